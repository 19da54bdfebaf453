/*
 * cpu_blend.c - what a pass does for blended prompts (session/blend.c): moves KV to other positions,
 * and scores the tokens of moved texts.
 *
 * A key is stored with its rotation. A moved key is rotated on by the difference of the positions,
 * and rounded to the blocks' type once more. Invariant: the bits of a moved slot depend only on the
 * slot that it is moved from and on the difference, and a score depends only on its probe.
 */
#include "cpu_int.h"

typedef struct slot_at {
    int32_t block;
    int slot;
} slot_at;

static slot_at slot_of(const int32_t *table, int position) {
    return (slot_at){table[position / LLM_BLOCK_TOKENS], position % LLM_BLOCK_TOKENS};
}

/* Task: one move and one kv head. */
static void move_task(void *ctx, int task, int worker) {
    cpu_work *w = ctx;
    const model_config *c = &w->engine->config;
    const model_layer *layer = &w->s->model.layers[w->layer];
    const pass_move *m = &w->p->moves[task / c->n_kv_heads];
    int head = task % c->n_kv_heads;
    float x[CONFIG_MAX_HEAD_DIM], angles[CONFIG_MAX_HEAD_DIM];
    (void)worker;
    if (layer->has_rope)
        cpu_angles(w, layer->window > 0 ? ANGLES_LOCAL : 0, m->to - m->from, 1, angles);
    for (int i = 0; i < m->count; i++) {
        slot_at from = slot_of(m->from_table, m->from + i), to = slot_of(m->to_table, m->to + i);
        cpu_kv_load(w, from.block, from.slot, KV_KEYS, head, x);
        if (layer->has_rope)
            w->s->k->rope(x, angles, c->rope_dims / 2);
        cpu_kv_store(w, to.block, to.slot, KV_KEYS, head, x);
        cpu_kv_load(w, from.block, from.slot, KV_VALUES, head, x);
        cpu_kv_store(w, to.block, to.slot, KV_VALUES, head, x);
    }
}

/* Task: stores the keys and values of a row, if they follow the moves. */
static void keep_task(void *ctx, int row, int worker) {
    cpu_work *w = ctx;
    (void)worker;
    for (int h = 0; w->rows[row].keep == KEEP_MOVED && h < w->engine->config.n_kv_heads; h++)
        cpu_keys_store(w, row, h);
}

/* ---- probes ---------------------------------------------------------------------------------- */

/* Task: one probe and one kv head. */
static void attention_task(void *ctx, int task, int worker) {
    cpu_work *w = ctx;
    int heads = w->engine->config.n_kv_heads;
    const pass_probe *probe = &w->p->probes[task / heads];
    if (probe->kind == PROBE_ATTENTION)
        cpu_attend_probe(w, probe, task % heads, worker);
}

static const pass_probe *probe_of_row(const cpu_work *w, int row) {
    const pass_probe *p = w->p->probes;
    while (p->kind != PROBE_DEVIATION || row < p->first || row >= p->first + p->count)
        p++;
    return p;
}

/* Task: one row of a PROBE_DEVIATION, which are the last of the pass. */
static void deviation_task(void *ctx, int task, int worker) {
    const cpu_work *w = ctx;
    const model_config *c = &w->engine->config;
    const int row = w->nrows - 1 - task, d = c->head_dim;
    const pass_probe *probe = probe_of_row(w, row);
    const pass_row *r = &w->rows[row];
    slot_at at = slot_of(r->table, r->position);
    const float *now =
        w->qkv +
        ((size_t)row * (size_t)cpu_heads(c) + (size_t)(c->n_heads + c->n_kv_heads)) * (size_t)d;
    float was[CONFIG_MAX_HEAD_DIM];
    double sum = 0;
    (void)worker;
    for (int h = 0; h < c->n_kv_heads; h++, now += d) {
        cpu_kv_load(w, at.block, at.slot, KV_VALUES, h, was);
        for (int i = 0; i < d; i++)
            sum += (double)(now[i] - was[i]) * (double)(now[i] - was[i]);
    }
    sum = BASE_MIN(sum, (double)UINT32_MAX); /* false for a NaN, too */
    atomic_store_explicit(&probe->scores[r->position - probe->from],
                          (uint64_t)(sum * (double)PROBE_ONE), memory_order_relaxed);
}

void cpu_blend_run(cpu_work *w) {
    const model_config *c = &w->engine->config;
    pool *threads = w->s->threads;
    if (w->p->nmoves > 0)
        pool_run(threads, w->p->nmoves * c->n_kv_heads, move_task, w);
    if (w->keeps_late)
        pool_run(threads, w->nrows, keep_task, w);
    const int *rows = w->p->probe_rows;
    int asks = probe_layers(c->n_layers), values = BASE_MIN(PROBE_VALUES, c->n_layers - 1);
    if (rows[PROBE_ATTENTION] > 0 && w->layer < asks)
        pool_run(threads, w->p->nprobes * c->n_kv_heads, attention_task, w);
    if (rows[PROBE_DEVIATION] > 0 && w->layer == values)
        pool_run(threads, rows[PROBE_DEVIATION], deviation_task, w);
    /* the rows of probes have nothing left to do */
    if (w->layer == values)
        w->nrows -= rows[PROBE_DEVIATION];
    if (w->layer == BASE_MAX(asks - 1, values))
        w->nrows -= rows[PROBE_ATTENTION];
}
