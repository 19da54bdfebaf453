/*
 * cpu_heads.c - prepares q, k and v for attention: head norms, rope, storing keys and values.
 *
 * An attention task prepares the queries that it uses. Keys and values are stored before attention
 * or, if no other row of the pass sees them (cpu_rows_are_independent), by the attention task that
 * is about to read their block, so that the block is loaded from memory only once. Invariant: the
 * bits are the same either way.
 */
#include "cpu_int.h"

static void head_norm(const cpu_work *w, const float *norm, float *x) {
    if (norm != NULL)
        w->s->k->rms_norm(x, norm, w->engine->config.eps, w->engine->config.head_dim, x);
}

/* Rotates a head for the row's position, or with ANGLES_SINK for the position from which the row
 * sees the sinks. */
static void head_rotate(const cpu_work *w, int row, int set, float *x) {
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
            head_rotate(w, row, ANGLES_SINK, q_sink);
            w->s->k->scale(q_sink, c->attn_scale, c->head_dim);
            q_sink += d;
        }
        head_rotate(w, row, 0, q);
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
    head_rotate(w, row, 0, key);
    cpu_kv_store(w, block, slot, KV_KEYS, kv_head, key);
    cpu_kv_store(w, block, slot, KV_VALUES, kv_head,
                 head_of(w, row, c->n_heads + c->n_kv_heads + kv_head));
}

/* ---- independence of rows -------------------------------------------------------------------- */

/* Marks the block that each row writes to. Returns false if two rows write to the same block. */
static bool blocks_mark(const cpu_work *w) {
    for (int i = 0; i < w->nrows; i++) {
        const pass_row *row = &w->rows[i];
        if (row->keep != KEEP_FIRST)
            return false;
        uint8_t *mark = &w->written[row->table[row->position / LLM_BLOCK_TOKENS]];
        if (*mark)
            return false;
        *mark = 1;
    }
    return true;
}

bool cpu_rows_are_independent(const cpu_work *w) {
    enum { MANY = 256 }; /* a larger pass contains new prompts, whose rows attend to each other */
    if (w->nrows > MANY || w->p->ncopies > 0 || w->p->npools > 0 || w->p->nmoves > 0 ||
        w->p->nprobes > 0 || w->nwanted < w->nrows)
        return false;
    bool independent = blocks_mark(w);
    for (int i = 0; independent && i < w->nrows; i++) {
        const pass_row *row = &w->rows[i];
        for (int b = 0; b < row->position / LLM_BLOCK_TOKENS; b++)
            independent = independent && !w->written[row->table[b]];
    }
    for (int i = 0; i < w->nrows; i++)
        w->written[w->rows[i].table[w->rows[i].position / LLM_BLOCK_TOKENS]] = 0;
    return independent;
}
