/*
 * bench_route - simulates n inference engines with prefix caches, fed by different routers.
 *
 *   bench_route [--data DIR] [--workload reviews|beer|movies|zipf] [--rows N] [--engines N]
 *               [--slow K[,SPEED]] [--share at-once|after-first] [--only NAME] [--json]
 *
 * Without --data: the tutorials' reviews with their films' synopses. Workloads: reviews joined with
 * synopses (rt.reviews.tsv.gz, rt.movie_info.tsv.gz), beer.csv, movies15k.csv.gz, and products
 * whose numbers of reviews follow Zipf's law. Their distinct rows are copied up to N rows; copies
 * share the head alone. Fields and rows are in the solver's order, over lengths without a tokenizer: a
 * cell is a token for each 4 bytes, shared whole or not at all; 100 tokens of head precede it.
 *
 * An engine runs passes of up to 8,192 new tokens, each 4 ms + 1 s for 35,000 tokens; its cache
 * holds 400,000 tokens in blocks of 16, the least recently used prefix leaves first; 256 requests
 * are in flight; an answer is one token. A prefix can be used when its first prompt is scheduled
 * (--share at-once, as vLLM) or computed (after-first). --slow: K engines run at SPEED, 0.5.
 *
 * Figures: tokens computed by all engines / (T + (n - 1) H), T being the tokens of the prefix tree
 * and H the head; time until the last answer / the time of these tokens at full speed.
 *
 * Invariant, checked: every policy has every row answered once. Exits 1 if the runs of gpu/remote
 * compute more tokens than round robin in the same order.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_table.h"
#include "partition.h"
#include "remote/route_int.h"
#include "storage/containers.h"

enum { HEAD = 100, NAME_TOKENS = 3, BLOCK = 16, PASS = 8192, WINDOW = 256, MOST_ENGINES = 64 };
static const double RATE = 35000, PASS_SECONDS = 0.004;
static const uint64_t CACHE_TOKENS = 400000;

static uint64_t next_random(uint64_t *seed) {
    *seed = hash_mix(*seed, 0x1234567);
    return *seed;
}

static double uniform(uint64_t *seed) { /* 0 < x <= 1 */
    return ((double)(next_random(seed) >> 11) + 1) / (double)(UINT64_C(1) << 53);
}

/* ---- workloads ------------------------------------------------------------------------------- */

/* A node of the prefix tree of the distinct rows; 0: the head. */
typedef struct step {
    uint32_t node, tokens;
} step;

/* `distinct` rows in the order that shares most. Row i of all `rows` is row i % distinct of copy
 * i / distinct, whose nodes but the head are its own. */
typedef struct workload {
    const char *name;
    arena *mem;
    uint32_t distinct, rows, nodes;
    size_t *first; /* [distinct + 1] first step of each row */
    step *steps;
    size_t nsteps, cap;
    uint32_t *count, *shared; /* [rows] */
} workload;

static uint32_t node_of(const workload *w, uint32_t row, uint32_t node) {
    return node == 0 ? 0 : row / w->distinct * (w->nodes - 1) + node;
}

static const step *row_steps(const workload *w, uint32_t row, int *n) {
    size_t at = w->first[row % w->distinct];
    *n = (int)(w->first[row % w->distinct + 1] - at);
    return w->steps + at;
}

static void add_step(workload *w, uint32_t node, uint32_t tokens) {
    ARENA_PUSH(w->mem, w->steps, w->nsteps, w->cap, ((step){node, tokens}));
}

/* Copies the distinct rows' lengths, once their steps are there. */
static void finish(workload *w, uint32_t rows) {
    w->rows = rows;
    w->count = ARENA_ARRAY(w->mem, uint32_t, rows);
    w->shared = ARENA_ARRAY(w->mem, uint32_t, rows);
    const step *before = NULL;
    for (uint32_t i = 0; i < rows; i++) {
        int n;
        const step *s = row_steps(w, i, &n);
        bool first = i % w->distinct == 0, same = i > 0;
        w->count[i] = w->shared[i] = 0;
        for (int k = 0; k < n; k++) {
            same = same && (k == 0 || (!first && before[k].node == s[k].node));
            w->shared[i] += same ? s[k].tokens : 0;
            w->count[i] += s[k].tokens;
        }
        before = s;
    }
}

/* A step for each field of each row in the solver's order; rows equal to the one before are left
 * out. */
static void make_tree(workload *w, uint32_t rows, int n, const psm_field *fields) {
    psm_input in = {rows, n, fields};
    psm_options options = {.strategy = PSM_AUTO};
    psm_result order;
    err e = {0};
    if (psm_solve(&in, &options, w->mem, &order, &e) != 0)
        bench_fail("psm_solve", e.message);
    w->first = ARENA_ARRAY(w->mem, size_t, rows + 1);
    w->nodes = 1;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t r = order.row_order[i], p = i ? order.row_order[i - 1] : r;
        const uint8_t *o = order.field_order + (size_t)r * (size_t)n;
        const uint8_t *q = order.field_order + (size_t)p * (size_t)n;
        int same = 0;
        while (i > 0 && same < n && o[same] == q[same] &&
               fields[o[same]].value[r] == fields[o[same]].value[p])
            same++;
        if (same == n)
            continue;
        size_t before = w->distinct ? w->first[w->distinct - 1] : 0;
        w->first[w->distinct++] = w->nsteps;
        add_step(w, 0, HEAD);
        for (int k = 0; k < n; k++) {
            const psm_field *f = &fields[o[k]];
            uint32_t node = k < same ? w->steps[before + 1 + (size_t)k].node : w->nodes++;
            add_step(w, node, f->name_units + f->length[f->value[r]]);
        }
    }
    w->first[w->distinct] = w->nsteps;
}

static void load_table(workload *w, const bench_table *t) {
    psm_field *fields = ARENA_ARRAY(w->mem, psm_field, t->fields);
    for (int f = 0; f < t->fields; f++) {
        str *texts;
        bench_table_field(w->mem, t, f, &fields[f], &texts);
        uint32_t *length = ARENA_ARRAY(w->mem, uint32_t, fields[f].distinct);
        for (uint32_t i = 0; i < fields[f].distinct; i++)
            length[i] = (uint32_t)(texts[i].n + 3) / 4;
        fields[f].length = length;
        fields[f].name_units = NAME_TOKENS;
    }
    make_tree(w, t->rows, t->fields, fields);
}

/* Reviews with the synopses of their films. `key`: the column of reviews that is the film's id. */
static void load_reviews(workload *w, const char *reviews_path, const char *key,
                         const char *films_path) {
    bench_table reviews, films, out = {.fields = 2, .name = {STR("synopsis"), STR("review")}};
    bench_table_read(w->mem, reviews_path, UINT32_MAX, &reviews);
    bench_table_read(w->mem, films_path, UINT32_MAX, &films);
    int movie = bench_table_column(&reviews, key), review = bench_table_column(&reviews, "review");
    int id = bench_table_column(&films, "id"), synopsis = bench_table_column(&films, "synopsis");
    hash_index by_id = {.mem = w->mem};
    for (uint32_t i = 0; i < films.rows; i++) {
        str film = films.cell[i * (uint32_t)films.fields + (uint32_t)id];
        hash_index_add(&by_id, hash64(film.p, film.n, 0), i);
    }
    out.cell = ARENA_ARRAY(w->mem, str, 2 * reviews.rows);
    for (uint32_t i = 0; i < reviews.rows; i++) {
        const str *row = reviews.cell + i * (uint32_t)reviews.fields;
        str film = row[movie];
        hash_slot *slot = hash_index_first(&by_id, hash64(film.p, film.n, 0));
        for (; slot; slot = hash_index_next(&by_id, slot)) {
            const str *cells = films.cell + slot->item * (uint32_t)films.fields;
            if (!str_equal(cells[id], film) || cells[synopsis].n == 0 || row[review].n == 0)
                continue;
            out.cell[2 * out.rows] = cells[synopsis];
            out.cell[2 * out.rows++ + 1] = row[review];
        }
    }
    load_table(w, &out);
}

/* 50,000 products, the k-th most reviewed with 1/k of the reviews of the first; lengths as in the
 * films' reviews: log-normal with medians of 130 and 30 tokens. */
static void make_zipf(workload *w, uint32_t rows) {
    enum { PRODUCTS = 50000 };
    uint64_t seed = 1;
    uint32_t *rank = ARENA_ARRAY(w->mem, uint32_t, PRODUCTS);
    double all = 0;
    for (uint32_t i = 0; i < PRODUCTS; i++) {
        uint32_t j = (uint32_t)(next_random(&seed) % (i + 1));
        rank[i] = rank[j];
        rank[j] = i + 1;
        all += 1.0 / (i + 1);
    }
    w->first = ARENA_ARRAY(w->mem, size_t, rows + 1);
    w->nodes = 1;
    for (uint32_t p = 0; p < PRODUCTS && w->distinct < rows; p++) {
        double normal[2];
        uint32_t product = w->nodes++, length = 0;
        uint32_t reviews = (uint32_t)BASE_MAX(1.0, rows / all / rank[p] + .5);
        for (uint32_t i = 0; i < reviews && w->distinct < rows; i++) {
            double r = sqrt(-2 * log(uniform(&seed))),
                   angle = 2 * 3.14159265358979 * uniform(&seed);
            normal[0] = r * cos(angle);
            normal[1] = r * sin(angle);
            if (i == 0)
                length = (uint32_t)BASE_MIN(870.0, BASE_MAX(20.0, 130 * exp(.6 * normal[0])));
            w->first[w->distinct++] = w->nsteps;
            add_step(w, 0, HEAD);
            add_step(w, product, length);
            add_step(w, w->nodes++,
                     (uint32_t)BASE_MIN(70.0, BASE_MAX(6.0, 30 * exp(.35 * normal[1]))));
        }
    }
    w->first[w->distinct] = w->nsteps;
}

static const char *path_of(arena *mem, const char *dir, const char *file) {
    return arena_printf(mem, "%s/%s", dir, file);
}

static void load(workload *w, const char *name, const char *dir, uint32_t rows) {
    arena *mem = arena_new();
    bench_table t;
    *w = (workload){.name = name, .mem = mem};
    if (strcmp(name, "tutorial") == 0) {
        dir = KVASIR_SOURCE_DIR "/tutorials/data";
        load_reviews(w, path_of(mem, dir, "reviews.csv"), "movie", path_of(mem, dir, "movies.csv"));
    } else if (strcmp(name, "reviews") == 0) {
        load_reviews(w, path_of(mem, dir, "rt.reviews.tsv.gz"), "id",
                     path_of(mem, dir, "rt.movie_info.tsv.gz"));
    } else if (strcmp(name, "zipf") == 0) {
        make_zipf(w, rows);
    } else if (strcmp(name, "beer") == 0 || strcmp(name, "movies") == 0) {
        const char *file = *name == 'b' ? "beer.csv" : "movies15k.csv.gz";
        bench_table_read(mem, path_of(mem, dir, file), UINT32_MAX, &t);
        load_table(w, &t);
    } else {
        bench_fail("no workload", name);
    }
    finish(w, rows);
}

/* ---- an engine's cache ----------------------------------------------------------------------- */

typedef struct entry {
    uint32_t node, tokens, newer, older;
} entry;

/* Nodes, the most recently used first. entries[0] is the ring's end; unused ones are linked by
 * `newer` from `unused` on. */
typedef struct cache {
    hash_index index;
    entry *entries;
    uint32_t n, cap, unused;
    uint64_t tokens;
} cache;

static uint64_t node_hash(uint32_t node) {
    return hash_mix(node, 0x9e3779b97f4a7c15);
}

static uint32_t cache_find(const cache *c, uint32_t node) {
    hash_slot *s = hash_index_first(&c->index, node_hash(node));
    while (s && c->entries[s->item].node != node)
        s = hash_index_next(&c->index, s);
    return s ? s->item : 0;
}

static void cache_unlink(cache *c, uint32_t x) {
    entry *e = &c->entries[x];
    c->entries[e->newer].older = e->older;
    c->entries[e->older].newer = e->newer;
}

static void cache_link(cache *c, uint32_t x) {
    uint32_t first = c->entries[0].older;
    c->entries[x].newer = 0;
    c->entries[x].older = first;
    c->entries[first].newer = x;
    c->entries[0].older = x;
}

static void cache_drop(cache *c, uint32_t x) {
    hash_index_remove(&c->index, hash_index_slot(&c->index, node_hash(c->entries[x].node), x));
    cache_unlink(c, x);
    c->tokens -= c->entries[x].tokens;
    c->entries[x].newer = c->unused;
    c->unused = x;
}

static void cache_use(cache *c, uint32_t node, uint32_t tokens) {
    if (c->n == 0)
        ARRAY_PUSH(c->entries, c->n, c->cap, ((entry){0}));
    uint32_t x = cache_find(c, node);
    if (x) {
        cache_unlink(c, x);
        cache_link(c, x);
        return;
    }
    if (c->unused) {
        x = c->unused;
        c->unused = c->entries[x].newer;
    } else {
        x = c->n;
        ARRAY_PUSH(c->entries, c->n, c->cap, ((entry){0}));
    }
    c->entries[x] = (entry){.node = node, .tokens = tokens};
    cache_link(c, x);
    hash_index_add(&c->index, node_hash(node), x);
    c->tokens += tokens;
    while (c->tokens > CACHE_TOKENS)
        cache_drop(c, c->entries[0].newer);
}

/* Puts a row's path into the cache, or marks it used; leaves are older than what is above them. */
static void cache_use_path(cache *c, const workload *w, uint32_t row, int steps) {
    int n;
    const step *s = row_steps(w, row, &n);
    for (int k = BASE_MIN(n, steps); k-- > 0;)
        cache_use(c, node_of(w, row, s[k].node), s[k].tokens);
}

/* ---- engines --------------------------------------------------------------------------------- */

typedef struct engine {
    cache cache;
    uint32_t *queue; /* rows from queue[at] on */
    size_t at, n, cap;
    uint32_t *batch; /* rows that the running pass completes */
    size_t nbatch, batch_cap;
    uint32_t rest;     /* tokens left to compute of the first row of the queue; 0: not begun */
    double speed, end; /* when the running pass ends */
    bool runs;
    uint64_t computed;
    int in_flight;
} engine;

typedef struct policy policy;

typedef struct simulation {
    const workload *w;
    const policy *how;
    int engines;
    bool late; /* a prefix can be used after its first prompt */
    engine e[MOST_ENGINES];
    bool *answered;
    uint64_t nanswered;
    /* state of policies: engines that were sent a node, as bits; tokens so sent; load */
    uint64_t *sent_to, seed, turns;
    double sent[MOST_ENGINES], load[MOST_ENGINES];
    float *cost;
    route *route;
    size_t starts[MOST_ENGINES + 1], taken[MOST_ENGINES];
} simulation;

/* Either chooses an engine for the next row of an order, or the next row for an engine. */
struct policy {
    const char *name;
    int (*pick)(simulation *s, uint32_t row);
    void (*picked_done)(simulation *s, uint32_t row, int at);
    bool (*next)(simulation *s, int at, uint32_t *row);
    void (*done)(simulation *s, uint32_t row);
    bool leaders;
};

/* The tokens to compute for a row that begins. */
static uint32_t begin_row(simulation *s, engine *e, uint32_t row) {
    int n, k = 0;
    const step *steps = row_steps(s->w, row, &n);
    uint32_t hit = 0, count = s->w->count[row];
    for (; k < n && cache_find(&e->cache, node_of(s->w, row, steps[k].node)); k++)
        hit += steps[k].tokens;
    hit = BASE_MIN(hit, count - 1) / BLOCK * BLOCK;
    cache_use_path(&e->cache, s->w, row, s->late ? k : n);
    e->computed += count - hit;
    return count - hit;
}

/* Starts a pass, unless there is nothing to do. */
static void start(simulation *s, engine *e, double now) {
    uint32_t room = PASS;
    e->nbatch = 0;
    while (e->at < e->n && room > 0) {
        uint32_t row = e->queue[e->at], need = e->rest ? e->rest : begin_row(s, e, row);
        uint32_t part = BASE_MIN(need, room);
        room -= part;
        e->rest = need - part;
        if (e->rest == 0) {
            ARRAY_PUSH(e->batch, e->nbatch, e->batch_cap, row);
            e->at++;
        }
    }
    if (e->at == e->n)
        e->at = e->n = 0;
    e->runs = room < PASS;
    e->end = now + (PASS_SECONDS + (PASS - room) / RATE) / e->speed;
}

static void give(simulation *s, int at, uint32_t row) {
    engine *e = &s->e[at];
    if (e->at > 4096 && e->at > e->n / 2) {
        memmove(e->queue, e->queue + e->at, sizeof *e->queue * (e->n - e->at));
        e->n -= e->at;
        e->at = 0;
    }
    ARRAY_PUSH(e->queue, e->n, e->cap, row);
    e->in_flight++;
}

static bool feed(simulation *s, int at) {
    uint32_t row;
    if (s->e[at].in_flight >= WINDOW || !s->how->next(s, at, &row))
        return false;
    give(s, at, row);
    return true;
}

/* Gives `count` rows of the order to the engines that the policy picks. */
static void push(simulation *s, const uint32_t *order, uint32_t *given, size_t count, double now) {
    for (; count > 0 && *given < s->w->rows; count--) {
        uint32_t row = order[(*given)++];
        int at = s->how->pick(s, row);
        give(s, at, row);
        if (!s->e[at].runs && now > 0)
            start(s, &s->e[at], now);
    }
}

static void end_pass(simulation *s, int at) {
    engine *e = &s->e[at];
    for (size_t i = 0; i < e->nbatch; i++) {
        uint32_t row = e->batch[i];
        if (s->answered[row])
            bench_fail("a row is answered twice", s->how->name);
        s->answered[row] = true;
        s->nanswered++;
        if (s->late)
            cache_use_path(&e->cache, s->w, row, INT_MAX);
        if (s->how->picked_done)
            s->how->picked_done(s, row, at);
        if (s->how->done)
            s->how->done(s, row);
    }
    e->in_flight -= (int)e->nbatch;
}

/* Runs the whole workload; returns the time of the last answer. */
static double simulate(simulation *s, const uint32_t *order) {
    uint32_t given = 0;
    double now = 0;
    if (s->how->pick)
        push(s, order, &given, (size_t)WINDOW * (size_t)s->engines, 0);
    else
        for (int k = 0; k < WINDOW; k++)
            for (int i = 0; i < s->engines; i++)
                feed(s, i);
    for (int i = 0; i < s->engines; i++)
        start(s, &s->e[i], 0);
    for (;;) {
        int first = -1;
        for (int i = 0; i < s->engines; i++)
            if (s->e[i].runs && (first < 0 || s->e[i].end < s->e[first].end))
                first = i;
        if (first < 0)
            break;
        now = s->e[first].end;
        end_pass(s, first);
        if (s->how->pick)
            push(s, order, &given, s->e[first].nbatch, now);
        else
            while (feed(s, first))
                ;
        start(s, &s->e[first], now);
    }
    if (s->nanswered != s->w->rows)
        bench_fail("rows are unanswered", s->how->name);
    return now;
}

/* ---- policies -------------------------------------------------------------------------------- */

static int pick_in_turn(simulation *s, uint32_t row) {
    (void)row;
    return (int)(s->turns++ % (uint64_t)s->engines);
}

static int pick_least_loaded(simulation *s, uint32_t row) {
    int best = 0;
    (void)row;
    for (int i = 1; i < s->engines; i++)
        if (s->e[i].in_flight < s->e[best].in_flight)
            best = i;
    return best;
}

/* The engines that were sent the longest prefix of a row that any was sent; its tokens. A row's last
 * node is its own. */
static uint64_t longest_match(const simulation *s, uint32_t row, uint32_t *tokens) {
    int n;
    const step *steps = row_steps(s->w, row, &n);
    uint64_t engines = 0;
    *tokens = 0;
    for (int k = 0; k < n; k++) {
        uint64_t these = s->sent_to[node_of(s->w, row, steps[k].node)];
        if (!these)
            break;
        engines = these;
        *tokens += steps[k].tokens;
    }
    return engines;
}

static void note_sent(simulation *s, uint32_t row, int at) {
    int n;
    const step *steps = row_steps(s->w, row, &n);
    for (int k = 0; k < n; k++) {
        uint64_t *engines = &s->sent_to[node_of(s->w, row, steps[k].node)];
        if (!(*engines >> at & 1))
            s->sent[at] += steps[k].tokens;
        *engines |= UINT64_C(1) << at;
    }
}

static int any_of(simulation *s, uint64_t engines) {
    for (int skip = (int)(next_random(&s->seed) % (uint64_t)__builtin_popcountll(engines));
         skip > 0; skip--)
        engines &= engines - 1;
    return __builtin_ctzll(engines);
}

static int least(const double *of, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (of[i] < of[best])
            best = i;
    return best;
}

/* sgl-router 0.3.2, cache_aware: the engine with the longest match if that is over 0.3 of the
 * prompt, else the one that was sent least text; the least loaded if loads differ by 64 and by 1.5
 * times. Its trees are not evicted here. */
static int pick_sglang(simulation *s, uint32_t row) {
    int most = 0, fewest = pick_least_loaded(s, row), at;
    for (int i = 1; i < s->engines; i++)
        if (s->e[i].in_flight > s->e[most].in_flight)
            most = i;
    int high = s->e[most].in_flight, low = s->e[fewest].in_flight;
    if (high - low > 64 && high > 1.5 * low) {
        at = fewest;
    } else {
        uint32_t tokens;
        uint64_t match = longest_match(s, row, &tokens);
        at =
            match && tokens > .3 * s->w->count[row] ? any_of(s, match) : least(s->sent, s->engines);
    }
    note_sent(s, row, at);
    return at;
}

/* vLLM production-stack, prefixaware: any of the engines with the longest match, whatever their
 * load. */
static int pick_prefixaware(simulation *s, uint32_t row) {
    uint32_t tokens;
    uint64_t match = longest_match(s, row, &tokens);
    int at = match ? any_of(s, match) : (int)(next_random(&s->seed) % (uint64_t)s->engines);
    note_sent(s, row, at);
    return at;
}

/* Preble's E2: where the match is longer than the rest, its least loaded engine, else the least
 * loaded of all. Load: tokens to compute of what is unanswered, and 20 for a token of output.
 * `redirect`: the least loaded of all also if the chosen one has that many times its load. */
static int pick_e2(simulation *s, uint32_t row, double redirect) {
    uint32_t tokens, count = s->w->count[row];
    uint64_t match = longest_match(s, row, &tokens);
    int lightest = least(s->load, s->engines), at = lightest;
    if (match && tokens > count - tokens) {
        at = __builtin_ctzll(match);
        for (uint64_t left = match; left; left &= left - 1)
            if (s->load[__builtin_ctzll(left)] < s->load[at])
                at = __builtin_ctzll(left);
    }
    if (redirect > 0 && s->load[at] > redirect * s->load[lightest] + 20000)
        at = lightest;
    s->cost[row] = (float)((match >> at & 1 ? count - tokens : count) + 20);
    s->load[at] += s->cost[row];
    note_sent(s, row, at);
    return at;
}

static int pick_preble(simulation *s, uint32_t row) {
    return pick_e2(s, row, 0);
}

static int pick_preble_redirect(simulation *s, uint32_t row) {
    return pick_e2(s, row, 1.5);
}

static void done_preble(simulation *s, uint32_t row, int at) {
    s->load[at] -= s->cost[row];
}

/* The best interval of each engine, fixed in advance. */
static bool next_of_partition(simulation *s, int at, uint32_t *row) {
    if (s->starts[at] + s->taken[at] >= s->starts[at + 1])
        return false;
    *row = (uint32_t)(s->starts[at] + s->taken[at]++);
    return true;
}

static bool next_of_route(simulation *s, int at, uint32_t *row) {
    int64_t id = route_next(s->route, at);
    *row = (uint32_t)id;
    return id >= 0;
}

static void done_of_route(simulation *s, uint32_t row) {
    route_done(s->route, row);
}

static const policy policies[] = {
    {"round robin", pick_in_turn, NULL, NULL, NULL, false},
    {"least loaded", pick_least_loaded, NULL, NULL, NULL, false},
    {"SGLang cache_aware", pick_sglang, NULL, NULL, NULL, false},
    {"Preble E2", pick_preble, done_preble, NULL, NULL, false},
    {"Preble E2, redirect", pick_preble_redirect, done_preble, NULL, NULL, false},
    {"vLLM prefixaware", pick_prefixaware, NULL, NULL, NULL, false},
    {"exact partition", NULL, NULL, next_of_partition, NULL, false},
    {"runs", NULL, NULL, next_of_route, done_of_route, false},
    {"runs, leader first", NULL, NULL, next_of_route, done_of_route, true},
};

/* ---- the report ------------------------------------------------------------------------------ */

typedef struct options {
    const char *data, *workload, *only;
    uint32_t rows;
    int engines, slow;
    double speed;
    bool late, json;
} options;

static route *fill_route(const workload *w, int engines, bool leaders) {
    route_options how = {engines, leaders, WINDOW};
    route *r = route_new(&how);
    for (uint32_t i = 0; i < w->rows; i++)
        route_add_shared(r, i, (int)w->count[i], (int)w->shared[i]);
    return r;
}

static void free_simulation(simulation *s) {
    for (int i = 0; i < s->engines; i++) {
        hash_index_free(&s->e[i].cache.index);
        free(s->e[i].cache.entries);
        free(s->e[i].queue);
        free(s->e[i].batch);
    }
    free(s->answered);
    free(s->sent_to);
    free(s->cost);
    route_free(s->route);
    free(s);
}

/* Returns the tokens computed. */
static uint64_t run(const workload *w, const options *o, const policy *how, const char *order_name,
                    const uint32_t *order) {
    uint64_t tree = 0, computed = 0, most = 0;
    simulation *s = mem_zalloc(sizeof *s);
    double speed = 0;
    *s = (simulation){.w = w, .how = how, .engines = o->engines, .late = o->late, .seed = 3};
    for (uint32_t i = 0; i < w->rows; i++)
        tree += w->count[i] - w->shared[i];
    for (int i = 0; i < o->engines; i++)
        speed += s->e[i].speed = i < o->slow ? o->speed : 1;
    s->answered = mem_zalloc(w->rows);
    if (how->pick) {
        size_t copies = (w->rows + w->distinct - 1) / w->distinct;
        s->sent_to = mem_zalloc(sizeof *s->sent_to * (copies * (w->nodes - 1) + 1));
        s->cost = mem_zalloc(sizeof *s->cost * w->rows);
    } else if (how->done) {
        s->route = fill_route(w, o->engines, how->leaders);
    } else {
        int n;
        partition_input in = {w->count, w->shared, w->rows};
        partition_best(&in, o->engines, s->starts, &n);
        for (; n <= o->engines; n++)
            s->starts[n] = w->rows;
    }
    double seconds = simulate(s, order);
    for (int i = 0; i < o->engines; i++) {
        computed += s->e[i].computed;
        most = BASE_MAX(most, s->e[i].computed);
    }
    uint64_t bound = tree + (uint64_t)(o->engines - 1) * HEAD;
    double tokens = (double)computed / (double)bound,
           time = seconds / ((double)bound / RATE / speed);
    double uneven = (double)most * o->engines / (double)computed;
    printf(o->json ? "{\"workload\":\"%s\",\"order\":\"%s\",\"policy\":\"%s\",\"computed\":%llu,"
                     "\"tokens\":%.4f,\"makespan\":%.4f,\"max_over_mean\":%.3f}\n"
                   : "%-8s %-8s %-20s %14llu %8.4f %8.3f %8.3f\n",
           w->name, order_name, how->name, (unsigned long long)computed, tokens, time, uneven);
    fflush(stdout);
    free_simulation(s);
    return computed;
}

/* CPU time of the router alone: adding a request, taking and answering it. */
static void time_route(const workload *w, const options *o) {
    struct timespec t[2];
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[0]);
    route *r = fill_route(w, o->engines, true);
    int64_t *flying = mem_alloc(sizeof *flying * (size_t)o->engines * WINDOW);
    for (bool any = true; any;) {
        size_t n = 0;
        any = false;
        for (int i = 0; i < o->engines; i++) {
            int64_t id;
            for (int k = 0; k < WINDOW && (id = route_next(r, i)) >= 0; k++)
                flying[n++] = id;
        }
        for (size_t k = 0; k < n; k++, any = true)
            route_done(r, flying[k]);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[1]);
    double ns = (double)(t[1].tv_sec - t[0].tv_sec) * 1e9 + (double)(t[1].tv_nsec - t[0].tv_nsec);
    if (o->json)
        printf("{\"workload\":\"%s\",\"route_ns\":%.0f}\n", w->name, ns / w->rows);
    else
        printf("%-8s leader first: %.0f ns of CPU a request\n", w->name, ns / w->rows);
    free(flying);
    route_free(r);
}

/* false: the runs compute more than round robin. */
static bool run_workload(const char *name, const options *o) {
    workload w;
    uint64_t computed[BASE_COUNT(policies)] = {0}, seed = 5;
    load(&w, name, o->data, o->rows);
    uint32_t *order[2] = {ARENA_ARRAY(w.mem, uint32_t, w.rows),
                          ARENA_ARRAY(w.mem, uint32_t, w.rows)};
    for (uint32_t i = 0; i < w.rows; i++) {
        uint32_t j = (uint32_t)(next_random(&seed) % (i + 1));
        order[0][i] = i;
        order[1][i] = order[1][j];
        order[1][j] = i;
    }
    for (int shuffled = 1; shuffled >= 0; shuffled--)
        for (size_t p = 0; p < BASE_COUNT(policies); p++)
            if ((policies[p].pick || !shuffled) &&
                (!o->only || strcmp(o->only, policies[p].name) == 0))
                computed[p] =
                    run(&w, o, &policies[p], shuffled ? "shuffled" : "solver", order[shuffled]);
    time_route(&w, o);
    arena_free(w.mem);
    bool good = true;
    for (size_t p = 0; p < BASE_COUNT(policies) && computed[0]; p++)
        good = good && (!policies[p].done || computed[p] <= computed[0]);
    return good;
}

static options parse(int argc, char **argv) {
    options o = {.rows = 20000, .engines = 4, .speed = .5};
    for (int i = 1; i < argc; i++) {
        const char *text = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            o.json = true;
            continue;
        }
        if (strcmp(argv[i], "--data") == 0)
            o.data = text;
        else if (strcmp(argv[i], "--workload") == 0)
            o.workload = text;
        else if (strcmp(argv[i], "--only") == 0)
            o.only = text;
        else if (strcmp(argv[i], "--rows") == 0)
            o.rows = (uint32_t)strtoul(text, NULL, 10);
        else if (strcmp(argv[i], "--engines") == 0)
            o.engines = atoi(text);
        else if (strcmp(argv[i], "--slow") == 0 && sscanf(text, "%d,%lf", &o.slow, &o.speed) > 0)
            ;
        else if (strcmp(argv[i], "--share") == 0)
            o.late = strcmp(text, "after-first") == 0;
        else
            bench_fail("unknown option", argv[i]);
        i++;
    }
    if (o.rows < 1 || o.engines < 1 || o.engines > MOST_ENGINES)
        bench_fail("--rows wants at least 1, --engines 1 to 64", NULL);
    return o;
}

int main(int argc, char **argv) {
    static const char *const with_data[] = {"reviews", "beer", "movies", "zipf"};
    options o = parse(argc, argv);
    bool good = true;
    if (!o.json)
        printf("%-8s %-8s %-20s %14s %8s %8s %8s\n", "workload", "order", "policy", "computed",
               "tokens", "makespan", "max/mean");
    if (o.workload || !o.data)
        good = run_workload(o.workload ? o.workload : "tutorial", &o);
    else
        for (size_t i = 0; i < BASE_COUNT(with_data); i++)
            good = run_workload(with_data[i], &o) && good;
    if (!good)
        fprintf(stderr, "bench_route: runs compute more tokens than round robin\n");
    return good ? 0 : 1;
}
