/*
 * bench_evict - which KV blocks to throw away: fifo, lru and cost against Belady's optimum, on real
 * traces.
 *
 *   bench_evict --trace FILE [--share 0.1,0.25,0.5] [--json]     replays a trace
 *   bench_evict --record FILE --data DIR --db PATH [--statements N]   makes one
 *
 * A trace is what KVASIR_KV_TRACE writes while statements run: one line per block that was read
 * from the cache or computed and offered to it: key, parent, milliseconds to compute, bytes.
 * Replaying uses the cache's own index and choice of victims (storage/cache/cache_index.c), in a budget
 * of `share` of all distinct blocks. Belady's optimum knows the future, may refuse a block, and
 * need not keep parents: a bound that no policy reaches. The exit status says whether cost is at
 * least 5 points above lru and 0.85 of the optimum, on average over the shares.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "cache/cache_int.h"
#include "exec/exec.h"

typedef struct visit {
    hash128 key, parent;
    double cost;
    size_t bytes;
    int block, next; /* its number; when it is wanted next, INT_MAX: never */
} visit;

typedef struct trace {
    visit *items;
    int count, cap, blocks;
    uint64_t bytes; /* of all distinct blocks, on disk */
} trace;

enum { NEVER = 0x7fffffff, VICTIMS = 4096, SPARE = 32 };

static BASE_NORETURN void die(const char *what, const err *e) {
    fprintf(stderr, "bench_evict: %s%s%s\n", what, e ? ": " : "", e ? e->message : "");
    exit(1);
}

/* ---- reading a trace ------------------------------------------------------------------------- */

static void number_blocks(trace *t) {
    cache_index seen = {.free = -1};
    int *last = mem_alloc(sizeof *last * (size_t)BASE_MAX(t->count, 1));
    for (int i = 0; i < t->count; i++) {
        visit *a = &t->items[i];
        cache_entry *e = index_find(&seen, CACHE_KV, a->key);
        if (!e) {
            e = index_add(&seen, CACHE_KV, a->key, (hash128){0, 0}, 1, cache_disk_bytes(a->bytes));
            t->bytes += e->bytes;
            a->block = t->blocks++;
        } else {
            a->block = t->items[last[e - seen.entries]].block;
            t->items[last[e - seen.entries]].next = i;
        }
        last = mem_realloc(last, sizeof *last * (size_t)BASE_MAX(t->count, seen.cap));
        last[e - seen.entries] = i;
        a->next = NEVER;
    }
    free(last);
    index_free(&seen);
}

static void trace_read(const char *path, trace *t) {
    char line[256];
    gzFile f = gzopen(path, "rb"); /* plain text too */
    if (!f)
        die(path, NULL);
    while (gzgets(f, line, sizeof line)) {
        unsigned long long k[4];
        visit a = {.next = NEVER};
        if (sscanf(line, "%16llx%16llx %16llx%16llx %lf %zu", &k[0], &k[1], &k[2], &k[3], &a.cost,
                   &a.bytes) != 6)
            die("a line of the trace is no access", NULL);
        a.key = (hash128){.high = k[0], .low = k[1]};
        a.parent = (hash128){.high = k[2], .low = k[3]};
        if (t->count == t->cap) {
            t->cap = BASE_MAX(t->cap * 2, 1024);
            t->items = mem_realloc(t->items, sizeof *t->items * (size_t)t->cap);
        }
        t->items[t->count++] = a;
    }
    gzclose(f);
    number_blocks(t);
}

/* ---- the policies, by the cache's own index -------------------------------------------------- */

static void make_space(cache_index *x, cache_policy policy, uint64_t budget, uint64_t incoming) {
    cache_entry *victims[VICTIMS];
    if (x->bytes + incoming <= budget)
        return;
    size_t n =
        index_victims(x, policy, x->bytes + incoming - budget + budget / SPARE, victims, VICTIMS);
    for (size_t i = 0; i < n; i++)
        index_remove(x, victims[i]);
}

static double replay(const trace *t, cache_policy policy, uint64_t budget) {
    cache_index x = {.free = -1};
    int hits = 0;
    for (int i = 0; i < t->count; i++) {
        const visit *a = &t->items[i];
        cache_entry *e = index_find(&x, CACHE_KV, a->key);
        if (e) {
            index_touch(&x, e);
            hits++;
            continue;
        }
        make_space(&x, policy, budget, cache_disk_bytes(a->bytes));
        index_add(&x, CACHE_KV, a->key, a->parent, a->cost, cache_disk_bytes(a->bytes));
        index_note(&x, CACHE_KV, a->key);
    }
    index_free(&x);
    return t->count ? (double)hits / t->count : 0;
}

/* Keeps what is wanted soonest; blocks of one model have one size, so places can be counted. */
static double belady(const trace *t, uint64_t budget) {
    int places = (int)((double)budget * t->blocks / (double)BASE_MAX(t->bytes, (uint64_t)1));
    /* of those inside, else -1 */
    int *next = mem_alloc(sizeof *next * (size_t)BASE_MAX(t->blocks, 1));
    int inside = 0, hits = 0;
    for (int b = 0; b < t->blocks; b++)
        next[b] = -1;
    for (int i = 0; i < t->count; i++) {
        const visit *a = &t->items[i];
        bool hit = next[a->block] >= 0;
        hits += hit;
        inside += !hit;
        next[a->block] = a->next;
        if (inside <= places)
            continue;
        int worst = a->block;
        for (int b = 0; b < t->blocks; b++)
            if (next[b] > next[worst])
                worst = b;
        next[worst] = -1;
        inside--;
    }
    free(next);
    return t->count ? (double)hits / t->count : 0;
}

static int compare(const trace *t, const char *shares, bool json) {
    double over_lru = 0, of_belady = 0;
    int n = 0;
    if (!json)
        printf("%d accesses to %d blocks\n%8s %8s %8s %8s %8s\n", t->count, t->blocks, "share",
               "fifo", "lru", "cost", "belady");
    for (const char *at = shares; *at;) {
        double share = atof(at);
        uint64_t budget = (uint64_t)(share * (double)t->bytes);
        double fifo = replay(t, CACHE_FIFO, budget), lru = replay(t, CACHE_LRU, budget);
        double cost = replay(t, CACHE_COST, budget), best = belady(t, budget);
        printf(json ? "{\"share\":%g,\"fifo\":%.4f,\"lru\":%.4f,\"cost\":%.4f,\"belady\":%.4f}\n"
                    : "%8g %8.4f %8.4f %8.4f %8.4f\n",
               share, fifo, lru, cost, best);
        over_lru += cost - lru;
        of_belady += best > 0 ? cost / best : 1;
        n++;
        at += strcspn(at, ",");
        at += *at == ',';
    }
    over_lru /= BASE_MAX(n, 1);
    of_belady /= BASE_MAX(n, 1);
    bool met = over_lru >= 0.05 && of_belady >= 0.85;
    printf(json ? "{\"over_lru\":%.4f,\"of_belady\":%.4f,\"met\":%s}\n"
                : "cost: %+.4f over lru (>= 0.05), %.4f of the optimum (>= 0.85): %s\n",
           over_lru, of_belady,
           json  ? (met ? "true" : "false")
           : met ? "yes"
                 : "NO");
    return met ? 0 : 1;
}

/* ---- recording ------------------------------------------------------------------------------- */

static void run(db *d, const char *sql) {
    err e = {0};
    const batch *b;
    stmt *s = db_submit(d, str_from(sql));
    stmt_status status;
    while ((status = stmt_next(s, -1, &b, &e)) != STMT_DONE)
        if (status == STMT_ERROR) {
            fprintf(stderr, "in: %.300s\n", sql);
            die("statement failed", &e);
        }
    stmt_free(s);
}

static void runf(db *d, const char *format, ...) BASE_PRINTF(2, 3);
static void runf(db *d, const char *format, ...) {
    char sql[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof sql, format, args);
    va_end(args);
    run(d, sql);
}

/* 0..n-1, the first ones more often: one over the rank. */
static int zipf(uint64_t *state, int n) {
    double total = 0, at;
    *state = hash_mix(*state, 0x9e3779b97f4a7c15u);
    for (int i = 0; i < n; i++)
        total += 1.0 / (i + 1);
    at = (double)(*state >> 11) * 0x1p-53 * total;
    for (int i = 0; i < n - 1; i++)
        if ((at -= 1.0 / (i + 1)) < 0)
            return i;
    return n - 1;
}

enum { WINDOWS = 8, WINDOW_MOVIES = 6 };

/* An analyst's week: a few questions and a few groups of movies again and again, and every fourth
 * time a question that is asked once. Only what prompts share is computed (WARM). */
static void record(const char *file, const char *data, const char *path, int statements) {
    static const char *const questions[] = {
        "Is the review positive or negative?", "Does the review mention an actor?",
        "Is the review about the plot?", "Would the critic see the film again?",
        "Is the review written in anger?"};
    err e = {0};
    db *d;
    uint64_t state = 20240311;
    db_options o = {.path = path, .model = getenv("KVASIR_MODEL")};
    unlink(file);
    if (setenv("KVASIR_KV_TRACE", file, 1) != 0 || db_open(&o, &d, &e))
        die("cannot open the database", &e);
    runf(d,
         "CREATE TABLE movies AS SELECT id, synopsis FROM '%s/rt.movie_info.tsv.gz' WHERE synopsis "
         "<> ''",
         data);
    runf(d,
         "CREATE TABLE reviews AS SELECT r.id AS movie, r.review AS review, m.synopsis AS synopsis "
         "FROM '%s/rt.reviews.tsv.gz' r JOIN movies m ON r.id = m.id WHERE r.review <> '' ORDER BY "
         "r.id LIMIT 6000",
         data);
    run(d, "CREATE TABLE chosen AS SELECT movie, min(review) AS a, max(review) AS b, min(synopsis) "
           "AS synopsis "
           "FROM reviews GROUP BY movie ORDER BY movie");
    for (int w = 0; w < WINDOWS; w++)
        runf(d,
             "CREATE VIEW w%d AS SELECT synopsis, a AS review FROM (SELECT * FROM chosen ORDER BY "
             "movie LIMIT %d OFFSET %d) "
             "UNION ALL SELECT synopsis, b FROM (SELECT * FROM chosen ORDER BY movie LIMIT %d "
             "OFFSET %d)",
             w, WINDOW_MOVIES, w * WINDOW_MOVIES, WINDOW_MOVIES, w * WINDOW_MOVIES);
    run(d, "SET field_order = 'synopsis, review'");
    for (int i = 0; i < statements; i++) {
        int w = zipf(&state, WINDOWS), q = zipf(&state, (int)BASE_COUNT(questions));
        if (i % 4 == 3)
            runf(d,
                 "WARM w%d USING LLM('Question %d: is it a good review?', synopsis, review) "
                 "RETURNS BOOLEAN",
                 w, i);
        else
            runf(d, "WARM w%d USING LLM('%s', synopsis, review) RETURNS BOOLEAN", w, questions[q]);
        fprintf(stderr, "\r%d of %d", i + 1, statements);
    }
    fputc('\n', stderr);
    db_close(d);
}

int main(int argc, char **argv) {
    const char *file = NULL, *to = NULL, *data = NULL, *path = NULL, *shares = "0.1,0.25,0.5";
    int statements = 320, status = 0;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
            continue;
        }
        if (!next)
            die("usage: bench_evict --trace FILE [--share S,S…] [--json] | --record FILE --data "
                "DIR --db PATH",
                NULL);
        if (strcmp(argv[i], "--trace") == 0)
            file = next;
        else if (strcmp(argv[i], "--record") == 0)
            to = next;
        else if (strcmp(argv[i], "--data") == 0)
            data = next;
        else if (strcmp(argv[i], "--db") == 0)
            path = next;
        else if (strcmp(argv[i], "--share") == 0)
            shares = next;
        else if (strcmp(argv[i], "--statements") == 0)
            statements = atoi(next);
        else
            die("unknown option", NULL);
        i++;
    }
    if (to && data && path)
        record(to, data, path, statements);
    else if (!file)
        die("say --trace FILE, or --record FILE --data DIR --db PATH", NULL);
    if (file) {
        trace t = {0};
        trace_read(file, &t);
        status = compare(&t, shares, json);
        free(t.items);
    }
    return status;
}
