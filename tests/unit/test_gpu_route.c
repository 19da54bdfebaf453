/*
 * test_gpu_route.c - routing of remote requests, on random prefix trees.
 *
 * The partition: bisection against all interval partitions, and the bounds of gpu/README.md. The
 * router: each request is handed out once and answered once whatever fails, what waits never
 * stands still, and of requests that share a prefix that is new to an endpoint one is in flight.
 */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "remote/route_int.h"
#include "tests/bench/partition.h"

enum {
    TRIES = 10000,
    MOST_ROWS = 12,
    MOST_ENGINES = 4,
    MANY_ROWS = 60,
    WORTH = 16,
    NO_ENGINE = -1
};

static uint64_t next_random(uint64_t *seed, uint64_t below) {
    *seed = hash_mix(*seed, 0x1234567);
    return (*seed >> 13) % below;
}

/* ---- prompts --------------------------------------------------------------------------------- */

typedef struct prompts {
    uint32_t count[MANY_ROWS], shared[MANY_ROWS];
    uint32_t common[MANY_ROWS][MANY_ROWS]; /* tokens that two prompts share */
    int rows;
} prompts;

/* Prompts of up to `longest` tokens; each leaves the one before it at one of a few depths, or
 * anywhere; at a multiple of `step`. */
static void prompts_make(uint64_t *seed, int rows, uint32_t longest, uint32_t step, prompts *p) {
    uint32_t depths[4];
    for (int i = 0; i < 4; i++)
        depths[i] = (uint32_t)next_random(seed, longest + 1);
    p->rows = rows;
    for (int i = 0; i < rows; i++) {
        p->count[i] = 1 + (uint32_t)next_random(seed, longest);
        uint32_t depth = next_random(seed, 3) ? depths[next_random(seed, 4)]
                                              : (uint32_t)next_random(seed, longest + 1);
        p->shared[i] = i == 0 ? 0 : BASE_MIN(depth, BASE_MIN(p->count[i], p->count[i - 1]));
        p->shared[i] -= p->shared[i] % step;
        p->common[i][i] = p->count[i];
        for (int j = i - 1; j >= 0; j--)
            p->common[i][j] = p->common[j][i] =
                BASE_MIN(p->shared[i], j == i - 1 ? UINT32_MAX : p->common[i - 1][j]);
    }
}

/* Tokens that an engine computes that gets the rows of a mask: of each row those that no row before
 * it in the mask has. */
static uint64_t engine_tokens(const prompts *p, uint32_t mask) {
    uint64_t tokens = 0;
    for (int i = 0; i < p->rows; i++) {
        uint32_t most = 0;
        for (int j = 0; j < i; j++)
            if (mask >> j & 1)
                most = BASE_MAX(most, p->common[i][j]);
        tokens += mask >> i & 1 ? p->count[i] - most : 0;
    }
    return tokens;
}

/* ---- the partition --------------------------------------------------------------------------- */

typedef struct found {
    uint64_t best; /* tokens of the slowest engine */
    uint64_t tree, longest;
} found;

/* All divisions of the rows from `from` on into at most `engines` intervals. `slowest`, `all`: of
 * the intervals so far; `cut`: what their cuts should add to the tree. */
static void try_cuts(const prompts *p, uint64_t (*cost)[MOST_ROWS + 1], int from, int engines,
                     uint64_t slowest, uint64_t all, uint64_t cut, found *f) {
    if (from == p->rows) {
        assert_int_equal(all, f->tree + cut);
        f->best = BASE_MIN(f->best, slowest);
        return;
    }
    if (engines == 0)
        return;
    for (int to = from + 1; to <= p->rows; to++)
        try_cuts(p, cost, to, engines - 1, BASE_MAX(slowest, cost[from][to]), all + cost[from][to],
                 cut + p->shared[from], f);
}

static void try_any_assignment(uint64_t *seed, const prompts *p, int engines, const found *f) {
    uint32_t masks[MOST_ENGINES] = {0}, head = UINT32_MAX;
    uint64_t slowest = 0, all = 0, used = 0;
    for (int i = 0; i < p->rows; i++) {
        masks[next_random(seed, (uint64_t)engines)] |= 1u << i;
        head = BASE_MIN(head, i ? p->shared[i] : p->count[i]);
    }
    for (int e = 0; e < engines; e++) {
        uint64_t tokens = engine_tokens(p, masks[e]);
        slowest = BASE_MAX(slowest, tokens);
        all += tokens;
        used += masks[e] != 0;
    }
    assert_true(slowest * (uint64_t)engines >= f->tree && slowest >= f->longest);
    assert_true(slowest >= f->tree / (uint64_t)engines);
    assert_true(all >= f->tree + (used - 1) * head);
}

static void test_partition(void **state) {
    (void)state;
    uint64_t seed = 1;
    static prompts p;
    for (int try = 0; try < TRIES; try++) {
        int engines = 1 + (int)next_random(&seed, MOST_ENGINES);
        prompts_make(&seed, 1 + (int)next_random(&seed, MOST_ROWS), try % 2 ? 9 : 200, 1, &p);
        uint64_t cost[MOST_ROWS + 1][MOST_ROWS + 1];
        for (int a = 0; a < p.rows; a++)
            for (int b = a + 1; b <= p.rows; b++)
                cost[a][b] = engine_tokens(&p, ((1u << b) - 1) & ~((1u << a) - 1));
        found f = {UINT64_MAX, cost[0][p.rows], 0};
        for (int i = 0; i < p.rows; i++)
            f.longest = BASE_MAX(f.longest, (uint64_t)p.count[i]);
        try_cuts(&p, cost, 0, engines, 0, 0, 0, &f);

        partition_input in = {p.count, p.shared, (size_t)p.rows};
        size_t starts[MOST_ENGINES + 1];
        int n;
        assert_int_equal(partition_best(&in, engines, starts, &n), f.best);
        assert_in_range(n, 1, engines);
        starts[n] = (size_t)p.rows;
        uint64_t slowest = 0;
        for (int e = 0; e < n; e++)
            slowest = BASE_MAX(slowest, cost[starts[e]][starts[e + 1]]);
        assert_int_equal(slowest, f.best);
        assert_true(f.best * (uint64_t)engines <= f.tree + 2 * f.longest * (uint64_t)engines);
        try_any_assignment(&seed, &p, engines, &f);
    }
}

/* ---- the router ------------------------------------------------------------------------------ */

typedef struct play {
    prompts p;
    route *r;
    route_options options;
    int added, done;
    int at[MANY_ROWS]; /* where a request is in flight, or NO_ENGINE */
    bool is_done[MANY_ROWS];
    bool knows[MOST_ENGINES][MANY_ROWS]; /* requests that an endpoint answered since it came up */
    bool down[MOST_ENGINES];
    int flying[MOST_ENGINES], sent;
} play;

static void play_add(play *g, bool by_tokens) {
    static llm_token tokens[MANY_ROWS * 600];
    int i = g->added++;
    if (by_tokens) { /* distinct tokens where a prompt leaves the one before */
        for (uint32_t k = g->p.shared[i]; k < g->p.count[i]; k++)
            tokens[k] = (llm_token)(i + 1);
        route_add(g->r, i, tokens, (int)g->p.count[i]);
    } else {
        route_add_shared(g->r, i, (int)g->p.count[i], (int)g->p.shared[i]);
    }
}

/* Of requests that share at least WORTH tokens that are new to the endpoint, one is in flight. */
static void check_leaders(const play *g, int e, int id) {
    uint32_t known = 0;
    for (int j = 0; j < g->added; j++)
        if (g->knows[e][j])
            known = BASE_MAX(known, g->p.common[id][j]);
    for (int j = 0; j < g->added; j++)
        if (j != id && g->at[j] == e)
            assert_true(g->p.common[id][j] < known + WORTH);
}

/* Asks for a request; true: there was one. */
static bool play_next(play *g, int e) {
    size_t waiting = route_waiting(g->r);
    int64_t id = route_next(g->r, e);
    assert_in_range(route_held(g->r, e), 0, 2 * g->options.window);
    if (id < 0) {
        assert_int_equal(route_waiting(g->r), waiting);
        assert_true(id == ROUTE_NONE || (id == ROUTE_HELD && g->flying[e] > 0));
        assert_true(id == ROUTE_NONE || g->options.leaders);
        return false;
    }
    assert_true(!g->down[e] && id < g->added && !g->is_done[id] && g->at[id] == NO_ENGINE);
    assert_int_equal(route_waiting(g->r), waiting - 1);
    if (g->options.leaders)
        check_leaders(g, e, (int)id);
    g->at[id] = e;
    g->flying[e]++;
    g->sent++;
    return true;
}

static void play_done(play *g, int id) {
    int e = g->at[id];
    route_done(g->r, id);
    g->is_done[id] = g->knows[e][id] = true;
    g->at[id] = NO_ENGINE;
    g->flying[e]--;
    g->done++;
}

static void play_again(play *g, int id) {
    route_again(g->r, id);
    g->flying[g->at[id]]--;
    g->at[id] = NO_ENGINE;
}

static void play_down(play *g, int e) {
    route_down(g->r, e);
    for (int i = 0; i < g->added; i++)
        g->at[i] = g->at[i] == e ? NO_ENGINE : g->at[i];
    memset(g->knows[e], 0, sizeof g->knows[e]);
    g->flying[e] = 0;
    g->down[e] = true;
}

/* One random event: mostly requests and answers; `faults`: also requests that fail and endpoints
 * that go down and come up. */
static void play_step(play *g, uint64_t *seed, bool faults, bool by_tokens) {
    int e = (int)next_random(seed, (uint64_t)g->options.endpoints);
    int id = (int)next_random(seed, (uint64_t)g->p.rows), what = (int)next_random(seed, 100);
    bool flying = id < g->added && g->at[id] != NO_ENGINE;
    if (what < 8 && g->added < g->p.rows)
        play_add(g, by_tokens);
    else if (what < 50 && g->flying[e] < g->options.window)
        play_next(g, e);
    else if (what < 90 && flying)
        play_done(g, id);
    else if (faults && what < 95 && flying)
        play_again(g, id);
    else if (faults && what == 95)
        play_down(g, e);
    else if (what > 95 && g->down[e]) {
        route_up(g->r, e);
        g->down[e] = false;
    }
}

/* Ends a play without further faults: in each round each endpoint gets what it can, and then all of
 * that is answered. */
static void play_end(play *g, bool by_tokens) {
    while (g->added < g->p.rows)
        play_add(g, by_tokens);
    for (int e = 0; e < g->options.endpoints; e++) {
        route_up(g->r, e);
        g->down[e] = false;
    }
    while (g->done < g->p.rows) {
        for (int e = 0; e < g->options.endpoints; e++)
            while (g->flying[e] < g->options.window && play_next(g, e))
                ;
        int before = g->done;
        for (int i = 0; i < g->p.rows; i++)
            if (g->at[i] != NO_ENGINE)
                play_done(g, i);
        assert_true(g->done > before); /* something was in flight */
    }
    assert_int_equal(route_waiting(g->r), 0);
    for (int e = 0; e < g->options.endpoints; e++)
        assert_int_equal(route_next(g->r, e), ROUTE_NONE);
}

static void play_tries(bool faults) {
    uint64_t seed = 7 + faults;
    static play g;
    for (int try = 0; try < TRIES; try++) {
        memset(&g, 0, sizeof g);
        for (int i = 0; i < MANY_ROWS; i++)
            g.at[i] = NO_ENGINE;
        /* short prompts: many rows in a run; long ones: few */
        uint32_t longest = (uint32_t[]){60, 300, 3000}[next_random(&seed, 3)];
        int most = try % 4 ? MOST_ROWS : MANY_ROWS;
        prompts_make(&seed, 1 + (int)next_random(&seed, (uint64_t)most), longest,
                     faults ? WORTH : 1, &g.p);
        g.options = (route_options){1 + (int)next_random(&seed, MOST_ENGINES),
                                    next_random(&seed, 4) > 0, 1 + (int)next_random(&seed, 6)};
        g.r = route_new(&g.options);
        bool by_tokens = next_random(&seed, 2);
        for (int i = (int)next_random(&seed, (uint64_t)g.p.rows + 1); i > 0; i--)
            play_add(&g, by_tokens);
        for (int step = 10 * g.p.rows; step > 0; step--)
            play_step(&g, &seed, faults, by_tokens);
        play_end(&g, by_tokens);
        assert_true(faults || g.sent == g.p.rows);
        route_free(g.r);
    }
}

static void test_without_faults(void **state) {
    (void)state;
    play_tries(false);
}

static void test_with_faults(void **state) {
    (void)state;
    play_tries(true);
}

/* ---- leaders, by example --------------------------------------------------------------------- */

static void expect(route *r, int e, int64_t id) {
    assert_int_equal(route_next(r, e), id);
}

/* All share 50 tokens; 10 to 12 share 100 more, 20 to 22 others; 22 and 23 share 15 beyond that. */
static route *two_films(int endpoints, int window) {
    static const int shared[] = {0, 150, 150, 50, 150, 150, 165};
    static const int id[] = {10, 11, 12, 20, 21, 22, 23};
    route *r = route_new(&(route_options){endpoints, true, window});
    for (size_t i = 0; i < BASE_COUNT(id); i++)
        route_add_shared(r, id[i], 200, shared[i]);
    return r;
}

static void test_leaders(void **state) {
    (void)state;
    route *r = two_films(1, 8);
    expect(r, 0, 10); /* the head's leader, and its film's */
    expect(r, 0, ROUTE_HELD);
    assert_int_equal(route_held(r, 0), 6);
    route_done(r, 10);
    expect(r, 0, 11);
    expect(r, 0, 12);
    expect(r, 0, 20); /* the other film's leader */
    expect(r, 0, ROUTE_HELD);
    route_done(r, 12);
    expect(r, 0, ROUTE_HELD);
    route_again(r, 20); /* 21 leads in its place; 20 is taken again, and waits for it */
    expect(r, 0, 21);
    expect(r, 0, ROUTE_HELD);
    assert_int_equal(route_held(r, 0), 3);
    route_done(r, 21);
    expect(r, 0, 22);
    expect(r, 0, 23); /* 15 tokens are not worth waiting for */
    expect(r, 0, 20);
    expect(r, 0, ROUTE_NONE);
    for (int id = 24; id < 26; id++) { /* this film is known */
        route_add_shared(r, id, 200, 150);
        expect(r, 0, id);
    }
    route_down(r, 0); /* what it had is lost, so that the head needs a leader again */
    expect(r, 0, ROUTE_NONE);
    assert_int_equal(route_waiting(r), 6);
    route_up(r, 0);
    expect(r, 0, 11);
    expect(r, 0, ROUTE_HELD);
    route_done(r, 11);
    expect(r, 0, 20);
    expect(r, 0, ROUTE_HELD);
    route_free(r);
}

/* A run that an endpoint leaves goes to the next one, in order. */
static void test_down(void **state) {
    (void)state;
    route *r = two_films(2, 1);
    expect(r, 0, 10);
    expect(r, 0, ROUTE_HELD);
    assert_int_equal(route_held(r, 0), 2);
    expect(r, 1, ROUTE_NONE); /* all are one run */
    route_down(r, 0);
    static const int64_t order[] = {10, 11, 12, 20, 21, 22, 23};
    for (size_t i = 0; i < BASE_COUNT(order); i++) {
        expect(r, 1, order[i]);
        route_done(r, order[i]);
    }
    assert_int_equal(route_waiting(r), 0);
    route_free(r);
}

/* What a request shares with one far before it is the least that neighbours between them share. */
static void test_far(void **state) {
    (void)state;
    route *r = route_new(&(route_options){3, true, 8});
    for (int i = 0; i < 3000; i++) /* a run costs 4,000, most of them 8 */
        route_add_shared(r, i, 100, i == 800 ? 20 : 100);
    expect(r, 0, 0);
    expect(r, 1, 488);
    expect(r, 2, 978);
    route_done(r, 0);
    for (int i = 1; i < 488; i++) {
        expect(r, 0, i);
        route_done(r, i);
    }
    expect(r, 0, 1478);
    expect(r, 0, ROUTE_HELD);
    route_done(r, 1478);
    expect(r, 0, 1479);
    expect(r, 0, 1480);
    route_free(r);
}

/* ---- large queues ---------------------------------------------------------------------------- */

/* Requests of 100 tokens, of which groups of ten share 60 and all share 20. */
enum { GROUP = 10 };

static void add_of_groups(route *r, int i) {
    route_add_shared(r, i, 100, i % GROUP ? 60 : 20);
}

/* Endpoints of different speeds end together. Each gets few intervals; all begin with a group but
 * those of the slowest, which are shorter than a group, and those behind them. */
static void test_speed(void **state) {
    (void)state;
    enum { ROWS = 20000, ENDPOINTS = 4, WINDOW = 8 };
    static const int speed[ENDPOINTS] = {60, 20, 20, 1}; /* answers in 20 rounds */
    route *r = route_new(&(route_options){ENDPOINTS, false, WINDOW});
    int64_t flying[ENDPOINTS][WINDOW], last[ENDPOINTS] = {-1, -1, -1, -1};
    int n[ENDPOINTS] = {0}, jumps = 0, inside = 0, done = 0, round = 0;
    for (int i = 0; i < ROWS; i++)
        add_of_groups(r, i);
    for (; done < ROWS; round++)
        for (int e = 0; e < ENDPOINTS; e++) {
            for (int64_t id; n[e] < WINDOW && (id = route_next(r, e)) >= 0; last[e] = id) {
                assert_true(id > last[e]);
                jumps += id != last[e] + 1;
                inside += id != last[e] + 1 && id % GROUP != 0;
                flying[e][n[e]++] = id;
            }
            int answers = speed[e] * (round + 1) / 20 - speed[e] * round / 20;
            for (int k = BASE_MIN(answers, n[e]); k > 0; k--, done++)
                route_done(r, flying[e][--n[e]]);
        }
    assert_in_range(jumps, ENDPOINTS, 100);
    assert_in_range(inside, 0, jumps / 4);
    assert_in_range(round, ROWS * 20 / 101, ROWS * 21 / 101);
    route_free(r);
}

/* 100,000 requests of which 1,000 are there at a time, some of them sent again: leaders, and memory
 * for those that are not done. */
static void test_stream(void **state) {
    (void)state;
    enum { ROWS = 100000, ENDPOINTS = 2, WINDOW = 16 };
    route *r = route_new(&(route_options){ENDPOINTS, true, WINDOW});
    bool(*known)[ROWS / GROUP] = mem_zalloc(sizeof(bool[ENDPOINTS][ROWS / GROUP]));
    int(*open)[ROWS / GROUP] = mem_zalloc(sizeof(int[ENDPOINTS][ROWS / GROUP]));
    bool *is_done = mem_zalloc(ROWS);
    int64_t flying[ENDPOINTS][WINDOW];
    int n[ENDPOINTS] = {0}, added = 0, done = 0;
    uint64_t seed = 11;
    size_t memory = mallinfo2().uordblks, most = 0;
    while (done < ROWS) {
        for (; added < ROWS && added - done < 1000; added++)
            add_of_groups(r, added);
        for (int e = 0; e < ENDPOINTS; e++) {
            for (int64_t id; n[e] < WINDOW && (id = route_next(r, e)) >= 0;) {
                assert_true(id < added && !is_done[id]);
                assert_true(known[e][id / GROUP] || open[e][id / GROUP] == 0);
                open[e][id / GROUP]++;
                flying[e][n[e]++] = id;
            }
            assert_true(n[e] > 0 || done == ROWS || route_next(r, e) == ROUTE_NONE);
            for (int k = 1 + (int)next_random(&seed, WINDOW); k > 0 && n[e] > 0; k--) {
                int one = (int)next_random(&seed, (uint64_t)n[e]);
                int64_t id = flying[e][one];
                flying[e][one] = flying[e][--n[e]];
                open[e][id / GROUP]--;
                if (next_random(&seed, 50) == 0) {
                    route_again(r, id);
                    continue;
                }
                route_done(r, id);
                is_done[id] = known[e][id / GROUP] = true;
                done++;
            }
        }
        most = BASE_MAX(most, mallinfo2().uordblks);
    }
    assert_int_equal(route_waiting(r), 0);
    assert_true(most < memory + 200000); /* 0 under ASan */
    route_free(r);
    free(known);
    free(open);
    free(is_done);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_partition),   cmocka_unit_test(test_without_faults),
        cmocka_unit_test(test_with_faults), cmocka_unit_test(test_leaders),
        cmocka_unit_test(test_down),        cmocka_unit_test(test_far),
        cmocka_unit_test(test_speed),       cmocka_unit_test(test_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
