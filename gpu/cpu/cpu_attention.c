/*
 * cpu_attention.c - attention over KV blocks, each shared block read once for several rows.
 *
 * A task computes attention of up to ATTEND_ROWS rows and one kv head, block by block. Neighbouring
 * rows whose tables have the same block attend to it together, as one unit, so a shared prefix is
 * read once per task. Invariant: a query processes its blocks in order of position, each as a unit
 * of 32 keys; keys that the query does not see are masked. Which units a query processes depends
 * only on its position and its text, so its bits do not depend on which rows share the task.
 *
 * Streaming attention (StreamingLLM): a query at position p sees the first `sinks` keys and the
 * last `window` keys. Keys keep their rotation. Sinks are scored with a second q, rotated for the
 * position min(p, sinks + window), so that distances are at most sinks + window. A block with keys
 * of both kinds is processed as two units.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_int.h"

int cpu_attend_chunks(const cpu_work *w) {
    return (w->nrows + w->attend_rows - 1) / w->attend_rows;
}

/* True if the current layer uses streaming attention. A layer whose own window is at most as large
 * as the streaming window does not use it. */
static bool cpu_layer_streams(const cpu_work *w) {
    int window = w->s->model.layers[w->layer].window;
    return w->s->window > 0 && (window == 0 || window > w->s->window);
}

/* The keys of a block that a unit covers. */
typedef enum key_part { KEYS_ALL, KEYS_SINKS, KEYS_WINDOW } key_part;

typedef struct key_range {
    int low, high; /* slots of the block, [low, high); empty: the query has no such unit */
} key_range;

/* The parameters that determine which keys a layer's queries see. */
typedef struct attend_sight {
    bool streams;
    int sinks, window; /* cpu_state.sinks and .window */
    int layer_window;  /* model_layer.window */
    bool both_ways;    /* model_config.both_ways */
} attend_sight;

static attend_sight sight_of(const cpu_work *w) {
    return (attend_sight){.streams = cpu_layer_streams(w),
                          .sinks = w->s->sinks,
                          .window = w->s->window,
                          .layer_window = w->s->model.layers[w->layer].window,
                          .both_ways = w->engine->config.both_ways};
}

/* Returns the keys of block b that a row sees. */
static inline key_range keys_of(const cpu_work *w, const attend_sight *s, int row, int b,
                                key_part part) {
    int first = b * LLM_BLOCK_TOKENS;
    int window = part == KEYS_WINDOW ? s->window : s->layer_window;
    int from = 0, end = w->ends[row];
    if (part == KEYS_SINKS) {
        end = BASE_MIN(end, s->sinks);
    } else if (window > 0 && s->both_ways) {
        from = BASE_MAX(w->rows[row].position - window / 2, 0);
        end = BASE_MIN(end, w->rows[row].position + window / 2 + 1);
    } else if (window > 0)
        from = BASE_MAX(end - window, part == KEYS_WINDOW ? s->sinks : 0);
    return (key_range){BASE_MAX(from - first, 0), BASE_MIN(end - first, LLM_BLOCK_TOKENS)};
}

/* ---- the units of a task --------------------------------------------------------------------- */

/* One unit: rows [from, to) of the chunk. Their tables have the same block at index b, and all
 * these rows see keys of this block. */
typedef struct attend_run {
    int from, to, b;
    key_part part;
} attend_run;

/* An iterator over the units of a task, in the order in which they are computed. */
typedef struct attend_walk {
    int base;      /* first row of the chunk */
    int rows;      /* number of rows of the chunk */
    int blocks;    /* largest number of blocks of a row's table */
    attend_run at; /* the current unit */
    attend_sight sight;
} attend_walk;

static inline bool walk_sees(const cpu_work *w, const attend_walk *k, int i) {
    key_range r = keys_of(w, &k->sight, k->base + i, k->at.b, k->at.part);
    return r.low < r.high;
}

/* Advances to the next unit. Returns false if there is none. */
static bool walk_next(const cpu_work *w, attend_walk *k) {
    attend_run *at = &k->at;
    const pass_row *row = &w->rows[k->base];
    at->from = at->to;
    for (;;) {
        while (at->from < k->rows && !walk_sees(w, k, at->from))
            at->from++;
        if (at->from < k->rows)
            break;
        if (at->part == KEYS_SINKS) {
            at->part = KEYS_WINDOW;
        } else if (++at->b < k->blocks) {
            bool sinks = at->b * LLM_BLOCK_TOKENS < k->sight.sinks;
            at->part = !k->sight.streams ? KEYS_ALL : sinks ? KEYS_SINKS : KEYS_WINDOW;
        } else {
            return false;
        }
        at->from = 0;
    }
    at->to = at->from + 1;
    while (at->to < k->rows && walk_sees(w, k, at->to) &&
           row[at->to].table[at->b] == row[at->from].table[at->b])
        at->to++;
    return true;
}

static attend_walk walk_start(const cpu_work *w, int base, int rows) {
    attend_walk k = {.base = base, .rows = rows, .sight = sight_of(w)};
    for (int i = 0; i < rows; i++)
        k.blocks = BASE_MAX(k.blocks, (w->ends[base + i] - 1) / LLM_BLOCK_TOKENS + 1);
    k.at = (attend_run){.from = rows, .to = rows, .b = -1, .part = KEYS_ALL};
    return k;
}

/* ---- prefetching ----------------------------------------------------------------------------- */

/*
 * A block shared by many rows takes long to compute and is read from a cache. The block of a single
 * row takes little time to compute and is read from memory. Therefore later units are prefetched
 * while a unit with many queries is computed: for every kernels.queries queries, the keys or the
 * values of one later unit. At most AHEAD_BYTES are prefetched and not yet used. The next unit's
 * block is always prefetched before the current unit is computed.
 */
enum { AHEAD_BYTES = 384 << 10, AHEAD_MAX = 64 };

typedef struct attend_prefetcher {
    attend_walk walk; /* at the next unit to prefetch */
    bool more;        /* false: all units are prefetched */
    kv_side side;     /* the side of that unit to prefetch next */
    int ahead;        /* number of units that are prefetched and not yet computed */
} attend_prefetcher;

static attend_ahead prefetch_take(const cpu_work *w, attend_prefetcher *a, int kv_head) {
    const attend_run *r = &a->walk.at;
    int keys = 0;
    for (int i = r->from; i < r->to; i++) {
        key_range range = keys_of(w, &a->walk.sight, a->walk.base + i, r->b, r->part);
        keys = BASE_MAX(keys, range.high);
    }
    attend_ahead out =
        cpu_kv_ahead(w, w->rows[a->walk.base + r->from].table[r->b], a->side, kv_head, keys);
    a->ahead += a->side == KV_VALUES;
    a->more = a->side == KV_KEYS || walk_next(w, &a->walk);
    a->side = a->side == KV_KEYS ? KV_VALUES : KV_KEYS;
    return out;
}

static void prefetch_now(const attend_ahead *a) {
    for (int i = 0; i < a->steps; i++) {
        __builtin_prefetch(a->at + i * 128, 0, 2);
        __builtin_prefetch(a->at + i * 128 + a->second, 0, 2);
    }
}

/* Chooses what to prefetch while a unit of `queries` queries is computed, and writes it to
 * out[AHEAD_MAX]. Returns the number of entries. */
static int prefetch_choose(const cpu_work *w, attend_prefetcher *a, int queries, int kv_head,
                           attend_ahead *out) {
    int most = BASE_MAX(AHEAD_BYTES / (2 * (int)w->layout.head), 2);
    /* the current unit and the next unit are prefetched now */
    while (a->more && a->ahead < 2) {
        attend_ahead next = prefetch_take(w, a, kv_head);
        prefetch_now(&next);
    }
    int n = 0, room = BASE_MIN((queries + w->s->k->queries - 1) / w->s->k->queries, AHEAD_MAX);
    while (n < room && a->more && a->ahead < most)
        out[n++] = prefetch_take(w, a, kv_head);
    a->ahead--;
    return n;
}

/* ---- a task ---------------------------------------------------------------------------------- */

/* Returns the size in bytes of an element of attend_unit.q. */
static size_t query_bytes(const cpu_work *w) {
    return w->s->k->narrow && w->s->kv_dtype != LLM_KV_F32 ? sizeof(uint16_t) : sizeof(float);
}

/* Sets the range of keys that a row's queries see. The range is all_keys, except while a unit is
 * computed whose keys the row sees only in part. */
static void keys_set_visible(attend_scratch *s, int row, int group, key_range r) {
    for (int i = row * group; i < (row + 1) * group; i++) {
        s->low[i] = r.low;
        s->high[i] = r.high;
    }
}

static const key_range all_keys = {0, LLM_BLOCK_TOKENS};

/* Computes the current unit: `group` queries of each of its rows. */
static void run_attend(cpu_work *w, attend_scratch *s, const attend_walk *walk, int kv_head,
                       attend_prefetcher *prefetcher) {
    const model_config *c = &w->engine->config;
    const attend_run *run = &walk->at;
    const pass_row *rows = &w->rows[walk->base];
    int d = c->head_dim, group = c->n_heads / c->n_kv_heads;
    bool whole = true;
    for (int i = run->from; i < run->to; i++) {
        key_range r = keys_of(w, &walk->sight, walk->base + i, run->b, run->part);
        if (r.low == all_keys.low && r.high == all_keys.high)
            continue;
        keys_set_visible(s, i, group, r);
        whole = false;
    }
    int at = run->from * group;
    const char *q = run->part == KEYS_SINKS ? s->q_sink : s->q;
    attend_ahead ahead[AHEAD_MAX];
    attend_unit unit = {.q = q + (size_t)at * (size_t)d * query_bytes(w),
                        .nq = (run->to - run->from) * group,
                        .d = d,
                        .low = s->low + at,
                        .high = s->high + at,
                        .softcap = c->attn_softcap,
                        .top = s->top + at,
                        .sum = s->sum + at,
                        .out = s->out + (size_t)at * (size_t)d,
                        .ahead = ahead};
    unit.nahead = prefetch_choose(w, prefetcher, unit.nq, kv_head, ahead);
    cpu_kv_view(w, rows[run->from].table[run->b], kv_head, s, &unit);
    w->s->k->attend(&unit);
    for (int i = run->from; i < run->to && !whole; i++)
        keys_set_visible(s, i, group, all_keys);
}

/* Stores x[n] as row i of to [rows, n], in the type of q. */
static void queries_keep(const cpu_work *w, const float *x, size_t n, int i, char *to) {
    size_t element = query_bytes(w);
    to += (size_t)i * n * element;
    if (element == sizeof *x)
        memcpy(to, x, n * element);
    else
        w->s->k->to_bf16(x, (int)n, (uint16_t *)(void *)to);
}

static void queries_gather(cpu_work *w, attend_scratch *s, int base, int rows, int kv_head) {
    const model_config *c = &w->engine->config;
    size_t group = (size_t)(c->n_heads / c->n_kv_heads), run = group * (size_t)c->head_dim;
    /* s->out is scratch memory until the first unit is computed */
    float *ready = s->out, *sink = cpu_layer_streams(w) ? s->out + run : NULL;
    for (int i = 0; i < rows; i++) {
        cpu_queries_ready(w, base + i, kv_head, ready, sink);
        queries_keep(w, ready, run, i, s->q);
        if (sink != NULL)
            queries_keep(w, sink, run, i, s->q_sink);
    }
    memset(s->out, 0, (size_t)rows * run * sizeof(float));
    for (int i = 0; i < rows; i++)
        keys_set_visible(s, i, (int)group, all_keys);
    for (size_t i = 0; i < (size_t)rows * group; i++) {
        s->top[i] = -INFINITY;
        s->sum[i] = 0;
    }
}

static void outputs_scatter(cpu_work *w, attend_scratch *s, int base, int rows, int kv_head) {
    const model_config *c = &w->engine->config;
    size_t group = (size_t)(c->n_heads / c->n_kv_heads), d = (size_t)c->head_dim;
    size_t run = group * d;
    gemm_type type = w->s->model.layers[w->layer].o.type;
    for (int i = 0; i < rows; i++) {
        float *out = s->out + (size_t)i * run;
        for (size_t g = 0; g < group; g++) {
            float scale = 1.0f / s->sum[(size_t)i * group + g];
            for (size_t j = 0; j < d; j++)
                out[g * d + j] *= scale;
        }
        char *to = cpu_row_of(w->att, type, base + i, c->n_heads * c->head_dim);
        cpu_operand_store(w, type, out, (int)run, to + gemm_row_bytes(type, kv_head * (int)run));
    }
}

/* If the attention tasks store keys, stores the keys of the chunk's rows whose positions are in
 * block b. */
static void keys_store(const cpu_work *w, int base, int rows, int b, int kv_head) {
    for (int i = base; w->store_keys_on_attention && i < base + rows; i++)
        if (w->rows[i].position / LLM_BLOCK_TOKENS == b)
            cpu_keys_store(w, i, kv_head);
}

void cpu_attend(cpu_work *w, int chunk, int kv_head, int worker) {
    attend_scratch *s = &w->attend[worker];
    int base = chunk * w->attend_rows, rows = BASE_MIN(w->attend_rows, w->nrows - base);
    queries_gather(w, s, base, rows, kv_head);
    attend_walk walk = walk_start(w, base, rows);
    attend_prefetcher prefetcher = {.walk = walk};
    prefetcher.more = walk_next(w, &prefetcher.walk);
    for (int stored = -1; walk_next(w, &walk);) {
        for (; stored < walk.at.b; stored++)
            keys_store(w, base, rows, stored + 1, kv_head);
        run_attend(w, s, &walk, kv_head, &prefetcher);
    }
    outputs_scatter(w, s, base, rows, kv_head);
}

/* ---- probes ---------------------------------------------------------------------------------- */

/* Adds a block's scores x[32] of one query to its softmax state. */
static void softmax_add(const cpu_work *w, const float *x, float *top, float *sum) {
    float e[LLM_BLOCK_TOKENS + 1], most = *top, total = 0;
    for (int k = 0; k < LLM_BLOCK_TOKENS; k++)
        most = BASE_MAX(most, x[k]);
    for (int k = 0; k < LLM_BLOCK_TOKENS; k++)
        e[k] = x[k] - most;
    e[LLM_BLOCK_TOKENS] = *top - most;
    w->s->k->exp(e, LLM_BLOCK_TOKENS + 1, e);
    for (int k = 0; k < LLM_BLOCK_TOKENS; k++)
        total += e[k];
    *sum = *sum * e[LLM_BLOCK_TOKENS] + total;
    *top = most;
}

/* Adds the weights of block b's keys, of `group` queries with the scores x[group, 32], to the probe's
 * scores. */
static void weights_add(const cpu_work *w, const pass_probe *probe, int b, const float *x,
                        const float *top, const float *sum, int group) {
    float e[LLM_BLOCK_TOKENS];
    uint64_t total[LLM_BLOCK_TOKENS] = {0};
    for (int g = 0; g < group; g++) {
        for (int k = 0; k < LLM_BLOCK_TOKENS; k++)
            e[k] = x[g * LLM_BLOCK_TOKENS + k] - top[g];
        w->s->k->exp(e, LLM_BLOCK_TOKENS, e);
        for (int k = 0; k < LLM_BLOCK_TOKENS; k++)
            total[k] += (uint64_t)(BASE_MIN(e[k] / sum[g], 1.0f) * (float)PROBE_ONE); /* no NaN */
    }
    int first = b * LLM_BLOCK_TOKENS, from = BASE_MAX(probe->from - first, 0),
        to = BASE_MIN(probe->to - first, LLM_BLOCK_TOKENS);
    for (int k = from; k < to; k++)
        atomic_fetch_add_explicit(&probe->scores[first + k - probe->from], total[k],
                                  memory_order_relaxed);
}

void cpu_attend_probe(cpu_work *w, const pass_probe *probe, int kv_head, int worker) {
    const model_config *c = &w->engine->config;
    attend_scratch *s = &w->attend[worker];
    attend_sight sight = sight_of(w);
    int group = c->n_heads / c->n_kv_heads, d = c->head_dim, row = probe->first;
    float *x = mem_alloc(sizeof *x * (size_t)(group * BASE_MAX(d, LLM_BLOCK_TOKENS)));
    cpu_queries_ready(w, row, kv_head, x, NULL);
    queries_keep(w, x, (size_t)(group * d), 0, s->q);
    for (int g = 0; g < group; g++) {
        s->top[g] = -INFINITY;
        s->sum[g] = 0;
    }
    attend_unit unit = {
        .q = s->q, .nq = group, .d = d, .low = s->low, .high = s->high, .softcap = c->attn_softcap};
    int blocks = (w->ends[row] - 1) / LLM_BLOCK_TOKENS + 1;
    for (int again = 0; again < 2; again++) {
        for (int b = again ? probe->from / LLM_BLOCK_TOKENS : 0; b < blocks; b++) {
            key_range r = keys_of(w, &sight, row, b, KEYS_ALL);
            if (r.low >= r.high)
                continue;
            keys_set_visible(s, 0, group, r);
            cpu_kv_view(w, w->rows[row].table[b], kv_head, s, &unit);
            w->s->k->scores(&unit, x);
            for (int g = 0; g < group && !again; g++)
                softmax_add(w, x + g * LLM_BLOCK_TOKENS, &s->top[g], &s->sum[g]);
            if (again)
                weights_add(w, probe, b, x, s->top, s->sum, group);
        }
    }
    free(x);
}
