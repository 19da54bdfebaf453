/*
 * cpu_heads.c - from a layer's fused q, k, v to what attention reads: norms of heads, rope, KV.
 *
 * Owns what happens to a head between its product and its use. Queries are made ready by the
 * attention task that uses them; keys and values are stored before attention, or, where no other
 * row of the pass sees them, by the task that is about to read their block (cpu_int.h,
 * `keys_late`): a block then comes from memory once. Invariant: a head's bits do not depend on
 * when.
 */
#include "cpu_int.h"

static void head_norm(const cpu_work *w, const float *norm, float *x) {
    if (norm != NULL)
        w->s->k->rms_norm(x, norm, w->engine->config.eps, w->engine->config.head_dim, x);
}

/* To the row's position, or to the one from which it sees the sinks (set: ANGLES_SINK). */
static void head_turn(const cpu_work *w, int row, int set, float *x) {
    const model_layer *layer = &w->s->model.layers[w->layer];
    int dims = w->engine->config.rope_dims;
    if (layer->has_rope) {
        set += layer->window > 0 && w->s->two_ropes ? ANGLES_LOCAL : 0;
        w->s->k->rope(x, w->angles[set] + (size_t)row * (size_t)dims, dims / 2);
    }
}

static float *head_of(const cpu_work *w, int row, int head) {
    const model_config *c = &w->engine->config;
    return w->qkv + ((size_t)row * (size_t)cpu_heads(c) + (size_t)head) * (size_t)c->head_dim;
}

void cpu_queries_ready(const cpu_work *w, int row, int kv_head, float *q, float *q_sink) {
    const model_config *c = &w->engine->config;
    size_t d = (size_t)c->head_dim;
    int group = c->n_heads / c->n_kv_heads;
    for (int g = 0; g < group; g++, q += d) {
        memcpy(q, head_of(w, row, kv_head * group + g), sizeof(float) * d);
        head_norm(w, w->s->model.layers[w->layer].q_norm, q);
        if (q_sink != NULL) {
            memcpy(q_sink, q, sizeof(float) * d);
            head_turn(w, row, ANGLES_SINK, q_sink);
            w->s->k->scale(q_sink, c->attn_scale, c->head_dim);
            q_sink += d;
        }
        head_turn(w, row, 0, q);
        w->s->k->scale(q, c->attn_scale, c->head_dim);
    }
}

void cpu_keys_store(const cpu_work *w, int row, int kv_head) {
    const model_config *c = &w->engine->config;
    int position = w->rows[row].position, slot = position % LLM_BLOCK_TOKENS;
    int32_t block = w->rows[row].table[position / LLM_BLOCK_TOKENS];
    float key[CONFIG_MAX_HEAD_DIM];
    memcpy(key, head_of(w, row, c->n_heads + kv_head), sizeof(float) * (size_t)c->head_dim);
    head_norm(w, w->s->model.layers[w->layer].k_norm, key);
    head_turn(w, row, 0, key);
    cpu_kv_store(w, block, slot, KV_KEYS, kv_head, key);
    cpu_kv_store(w, block, slot, KV_VALUES, kv_head,
                 head_of(w, row, c->n_heads + c->n_kv_heads + kv_head));
}

/* ---- which rows see which keys --------------------------------------------------------------- */

/* Marks every row's own block; false: two rows write to the same one. */
static bool blocks_mark(const cpu_work *w) {
    for (int i = 0; i < w->nrows; i++) {
        const pass_row *row = &w->rows[i];
        uint8_t *mark = &w->written[row->table[row->position / LLM_BLOCK_TOKENS]];
        if (*mark)
            return false;
        *mark = 1;
    }
    return true;
}

bool cpu_rows_apart(const cpu_work *w) {
    enum { MANY = 256 }; /* rows that stand for a prompt, whose neighbours see each other */
    if (w->nrows > MANY || w->p->ncopies > 0 || w->nwanted < w->nrows)
        return false;
    bool apart = blocks_mark(w);
    for (int i = 0; apart && i < w->nrows; i++) {
        const pass_row *row = &w->rows[i];
        for (int b = 0; b < row->position / LLM_BLOCK_TOKENS; b++)
            apart = apart && !w->written[row->table[b]];
    }
    for (int i = 0; i < w->nrows; i++)
        w->written[w->rows[i].table[w->rows[i].position / LLM_BLOCK_TOKENS]] = 0;
    return apart;
}
