/*
 * cpu_attention.c - attention by shared block (ENGINE 3).
 *
 * A task takes up to ATTEND_ROWS rows and one kv head through the blocks of their tables.
 * Neighbouring rows whose table has the same block attend to it together, so that a shared prefix
 * is read once per task. Invariant: each query meets its blocks one by one in
 * order of position, each as a unit of 32 keys with those it cannot see masked; nothing depends on
 * which rows share a task.
 */
#include <math.h>
#include <string.h>

#include "cpu_int.h"

uint16_t *cpu_keys(const cpu_work *w, int32_t block, int layer, int kv_head) {
    const model_config *c = &w->engine->config;
    size_t head = (size_t)c->head_dim * LLM_BLOCK_TOKENS;
    return w->kv + (size_t)block * w->block_elements + (size_t)layer * w->layer_elements +
           (size_t)kv_head * head;
}

uint16_t *cpu_values(const cpu_work *w, int32_t block, int layer, int kv_head) {
    return cpu_keys(w, block, layer, kv_head) + w->layer_elements / 2;
}

int cpu_attend_chunks(const cpu_work *w) {
    return (w->nrows + w->attend_rows - 1) / w->attend_rows;
}

static bool row_sees(const pass_row *row, int b, int window) {
    int first = b * LLM_BLOCK_TOKENS;
    return first <= row->position &&
           (window == 0 || first + LLM_BLOCK_TOKENS > row->position - window + 1);
}

/* Rows [from, to) of the chunk, group queries each, against block index b. */
static void run_attend(cpu_work *w, attend_scratch *s, int base, int from, int to, int b,
                       int kv_head) {
    const model_config *c = &w->engine->config;
    int d = c->head_dim, group = c->n_heads / c->n_kv_heads,
        window = w->s->model.layers[w->layer].window;
    int32_t block = w->rows[base + from].table[b];
    for (int i = from; i < to; i++) {
        int position = w->rows[base + i].position, first = b * LLM_BLOCK_TOKENS;
        int high = BASE_MIN(position - first + 1, LLM_BLOCK_TOKENS);
        int low = window > 0 ? BASE_MAX(position - window + 1 - first, 0) : 0;
        for (int g = 0; g < group; g++) {
            s->low[i * group + g] = low;
            s->high[i * group + g] = high;
        }
    }
    int at = from * group;
    attend_unit unit = {.q = s->q + (size_t)at * (size_t)d,
                        .nq = (to - from) * group,
                        .d = d,
                        .kt = cpu_keys(w, block, w->layer, kv_head),
                        .v = cpu_values(w, block, w->layer, kv_head),
                        .low = s->low + at,
                        .high = s->high + at,
                        .softcap = c->attn_softcap,
                        .top = s->top + at,
                        .sum = s->sum + at,
                        .out = s->out + (size_t)at * (size_t)d};
    w->s->k->attend(&unit);
}

static void queries_gather(cpu_work *w, attend_scratch *s, int base, int rows, int kv_head) {
    const model_config *c = &w->engine->config;
    size_t group = (size_t)(c->n_heads / c->n_kv_heads), d = (size_t)c->head_dim;
    size_t width = (size_t)c->n_heads * d, run = group * d;
    for (int i = 0; i < rows; i++) {
        memcpy(s->q + (size_t)i * run, w->q + (size_t)(base + i) * width + (size_t)kv_head * run,
               run * sizeof(float));
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

void cpu_attend(cpu_work *w, int chunk, int kv_head, int worker) {
    attend_scratch *s = &w->attend[worker];
    int base = chunk * w->attend_rows, rows = BASE_MIN(w->attend_rows, w->nrows - base);
    int window = w->s->model.layers[w->layer].window, blocks = 0;
    for (int i = 0; i < rows; i++) {
        blocks = BASE_MAX(blocks, w->rows[base + i].position / LLM_BLOCK_TOKENS + 1);
    }
    queries_gather(w, s, base, rows, kv_head);
    for (int b = 0; b < blocks; b++) {
        for (int from = 0; from < rows;) {
            const pass_row *row = &w->rows[base + from];
            if (!row_sees(row, b, window)) {
                from++;
                continue;
            }
            int to = from + 1;
            while (to < rows && row_sees(row + (to - from), b, window) &&
                   row[to - from].table[b] == row->table[b]) {
                to++;
            }
            run_attend(w, s, base, from, to, b, kv_head);
            from = to;
        }
    }
    outputs_scatter(w, s, base, rows, kv_head);
}
