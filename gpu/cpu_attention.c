/*
 * cpu_attention.c - attention by shared block (ENGINE 3).
 *
 * A task takes up to ATTEND_ROWS rows and one kv head through the blocks of their tables.
 * Neighbouring rows whose table has the same block attend to it together, so that a shared prefix
 * is read once per task. Invariant: each query meets its blocks one by one in order of position,
 * each as a unit of 32 keys with those it cannot see masked; which units it meets depends on its
 * position alone, and nothing on which rows share a task.
 *
 * Streaming attention: a query at position p sees the first `sinks` keys and the latest `window`.
 * Keys keep their own rotation. Sinks are scored with a second q, rotated to min(p, sinks +
 * window), so that no distance grows beyond that; a block that holds both is two units.
 */
#include <math.h>
#include <string.h>

#include "cpu_int.h"

int cpu_attend_chunks(const cpu_work *w) {
    return (w->nrows + w->attend_rows - 1) / w->attend_rows;
}

bool cpu_layer_streams(const cpu_work *w) {
    int window = w->s->model.layers[w->layer].window;
    return w->s->window > 0 && (window == 0 || window > w->s->window);
}

/* Which keys of the table's blocks a unit is about. */
typedef enum key_part { KEYS_ALL, KEYS_SINKS, KEYS_WINDOW } key_part;

typedef struct key_range {
    int low, high; /* of the block's slots; empty: the query meets no unit here */
} key_range;

static key_range keys_of(const cpu_work *w, int position, int b, key_part part) {
    int first = b * LLM_BLOCK_TOKENS, sinks = w->s->sinks;
    int window = part == KEYS_WINDOW ? w->s->window : w->s->model.layers[w->layer].window;
    int from = 0, end = position + 1;
    if (part == KEYS_SINKS) {
        end = BASE_MIN(end, sinks);
    } else if (window > 0) {
        from = BASE_MAX(end - window, part == KEYS_WINDOW ? sinks : 0);
    }
    return (key_range){BASE_MAX(from - first, 0), BASE_MIN(end - first, LLM_BLOCK_TOKENS)};
}

static bool row_sees(const cpu_work *w, const pass_row *row, int b, key_part part) {
    key_range r = keys_of(w, row->position, b, part);
    return r.low < r.high;
}

/* Rows [from, to) of the chunk, group queries each, against block index b. */
static void run_attend(cpu_work *w, attend_scratch *s, int base, int from, int to, int b,
                       int kv_head, key_part part) {
    const model_config *c = &w->engine->config;
    int d = c->head_dim, group = c->n_heads / c->n_kv_heads;
    for (int i = from; i < to; i++) {
        key_range r = keys_of(w, w->rows[base + i].position, b, part);
        for (int g = 0; g < group; g++) {
            s->low[i * group + g] = r.low;
            s->high[i * group + g] = r.high;
        }
    }
    int at = from * group;
    const float *q = part == KEYS_SINKS ? s->q_sink : s->q;
    attend_unit unit = {.q = q + (size_t)at * (size_t)d,
                        .nq = (to - from) * group,
                        .d = d,
                        .low = s->low + at,
                        .high = s->high + at,
                        .softcap = c->attn_softcap,
                        .top = s->top + at,
                        .sum = s->sum + at,
                        .out = s->out + (size_t)at * (size_t)d};
    cpu_kv_view(w, w->rows[base + from].table[b], kv_head, s, &unit);
    w->s->k->attend(&unit);
}

static void queries_gather(cpu_work *w, attend_scratch *s, int base, int rows, int kv_head) {
    const model_config *c = &w->engine->config;
    size_t group = (size_t)(c->n_heads / c->n_kv_heads), d = (size_t)c->head_dim;
    size_t width = (size_t)c->n_heads * d, run = group * d;
    bool streams = cpu_layer_streams(w);
    for (int i = 0; i < rows; i++) {
        size_t from = (size_t)(base + i) * width + (size_t)kv_head * run;
        memcpy(s->q + (size_t)i * run, w->q + from, run * sizeof(float));
        if (streams) {
            memcpy(s->q_sink + (size_t)i * run, w->q_sink + from, run * sizeof(float));
        }
    }
    memset(s->out, 0, (size_t)rows * run * sizeof(float));
    for (size_t i = 0; i < (size_t)rows * group; i++) {
        s->top[i] = -INFINITY;
        s->sum[i] = 0;
    }
}

static void outputs_scatter(cpu_work *w, attend_scratch *s, int base, int rows, int kv_head) {
    const model_config *c = &w->engine->config;
    size_t group = (size_t)(c->n_heads / c->n_kv_heads), d = (size_t)c->head_dim;
    size_t width = (size_t)c->n_heads * d, run = group * d, element = gemm_element(w->s->g);
    for (int i = 0; i < rows; i++) {
        float *out = s->out + (size_t)i * run;
        for (size_t g = 0; g < group; g++) {
            float scale = 1.0f / s->sum[(size_t)i * group + g];
            for (size_t j = 0; j < d; j++) {
                out[g * d + j] *= scale;
            }
        }
        char *to = (char *)w->att + ((size_t)(base + i) * width + (size_t)kv_head * run) * element;
        if (gemm_is_bf16(w->s->g)) {
            w->s->k->to_bf16(out, (int)run, (uint16_t *)(void *)to);
        } else {
            memcpy(to, out, run * sizeof(float));
        }
    }
}

/* Rows [from, to) of the chunk that see something of the same block: one unit. */
typedef struct attend_run {
    int from, to;
} attend_run;

/* The first run of block index b at or behind row `from`; empty: none is left. */
static attend_run run_find(const cpu_work *w, int base, int rows, int from, int b, key_part part) {
    const pass_row *row = &w->rows[base];
    while (from < rows && !row_sees(w, row + from, b, part)) {
        from++;
    }
    int to = from;
    while (to < rows && row_sees(w, row + to, b, part) && row[to].table[b] == row[from].table[b]) {
        to++;
    }
    return (attend_run){from, to};
}

/* All rows of the chunk that see something of block index b. While one run is computed the next
 * one's block comes from memory: in decode few queries meet a block, and it is in no cache. */
static void block_attend(cpu_work *w, attend_scratch *s, int base, int rows, int b, int kv_head,
                         key_part part) {
    attend_run run = run_find(w, base, rows, 0, b, part);
    while (run.from < run.to) {
        attend_run next = run_find(w, base, rows, run.to, b, part);
        if (next.from < next.to) {
            cpu_kv_prefetch(w, w->rows[base + next.from].table[b], kv_head);
        }
        run_attend(w, s, base, run.from, run.to, b, kv_head, part);
        run = next;
    }
}

void cpu_attend(cpu_work *w, int chunk, int kv_head, int worker) {
    attend_scratch *s = &w->attend[worker];
    int base = chunk * w->attend_rows, rows = BASE_MIN(w->attend_rows, w->nrows - base);
    int blocks = 0;
    for (int i = 0; i < rows; i++) {
        blocks = BASE_MAX(blocks, w->rows[base + i].position / LLM_BLOCK_TOKENS + 1);
    }
    queries_gather(w, s, base, rows, kv_head);
    bool streams = cpu_layer_streams(w);
    for (int b = 0; b < blocks; b++) {
        if (streams && b * LLM_BLOCK_TOKENS < w->s->sinks) {
            block_attend(w, s, base, rows, b, kv_head, KEYS_SINKS);
        }
        block_attend(w, s, base, rows, b, kv_head, streams ? KEYS_WINDOW : KEYS_ALL);
    }
    outputs_scatter(w, s, base, rows, kv_head);
}
