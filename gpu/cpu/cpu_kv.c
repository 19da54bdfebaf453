/*
 * cpu_kv.c - the layout of KV blocks in the CPU backend, for each type of KV.
 *
 * Sessions store and load a block's bytes as they are. The blocks of an embedding model hold a single
 * layer, which the next layer of a pass overwrites. Invariant: the bytes of a slot depend only
 * on its key or value, so stored, copied and computed slots are equal.
 *
 *   block   layer 0 | layer 1 | …
 *   layer   K [kv heads] | V [kv heads] | scales of K [kv heads, 32] | scales of V [kv heads, 32]
 *   bf16    K [d/2, 32, 2] in pairs of dimensions, V [32/2, d, 2] in pairs of keys; no scales
 *   int8    K and V as with bf16; an element is its byte times its slot's scale
 *   f32     K [d, 32], V [32, d]; no scales
 *
 * A slot is the place of a position in its block, 0 to 31.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu_int.h"

enum { SLOTS = LLM_BLOCK_TOKENS };

static size_t element_bytes(llm_kv_dtype dtype) {
    static const size_t bytes[] = {[LLM_KV_BF16] = 2, [LLM_KV_F32] = 4, [LLM_KV_INT8] = 1};
    BASE_COVERS(bytes, LLM_KV_DTYPES);
    return bytes[dtype];
}

kv_layout cpu_kv_layout(const model_config *c, llm_kv_dtype dtype) {
    kv_layout l = {.dtype = dtype};
    size_t heads = (size_t)c->n_kv_heads;
    l.head = (size_t)c->head_dim * SLOTS * element_bytes(dtype);
    l.scales = 2 * heads * l.head;
    l.layer = l.scales + (dtype == LLM_KV_INT8 ? 2 * heads * SLOTS * sizeof(float) : 0);
    l.next = c->pooling == POOL_NONE ? l.layer : 0;
    l.block = l.next > 0 ? l.layer * (size_t)c->n_layers : l.layer;
    return l;
}

void *cpu_kv_block(const cpu_work *w, int32_t block) {
    return w->kv + (size_t)block * w->layout.block;
}

/* Returns the keys or values of one head in the current layer. */
static void *head_of(const cpu_work *w, int32_t block, kv_side side, int kv_head) {
    size_t heads = (size_t)w->engine->config.n_kv_heads;
    return (char *)cpu_kv_block(w, block) + (size_t)w->layer * w->layout.next +
           ((size_t)side * heads + (size_t)kv_head) * w->layout.head;
}

static float *scales_of(const cpu_work *w, int32_t block, kv_side side, int kv_head) {
    size_t heads = (size_t)w->engine->config.n_kv_heads;
    char *layer = (char *)cpu_kv_block(w, block) + (size_t)w->layer * w->layout.next;
    return (float *)(void *)(layer + w->layout.scales) +
           ((size_t)side * heads + (size_t)kv_head) * SLOTS;
}

/* ---- one slot -------------------------------------------------------------------------------- */

/* Returns the index of element i of a slot in the layout of pairs. */
static size_t pair_at(kv_side side, int slot, int i, int d) {
    return side == KV_KEYS ? (size_t)(i / 2 * 2 * SLOTS + 2 * slot + i % 2)
                           : (size_t)(slot / 2 * 2 * d + 2 * i + slot % 2);
}

static size_t wide_at(kv_side side, int slot, int i, int d) {
    return side == KV_KEYS ? (size_t)(i * SLOTS + slot) : (size_t)(slot * d + i);
}

static void store_bf16(const cpu_work *w, int32_t block, int slot, kv_side side, int kv_head,
                       const float *x) {
    int d = w->engine->config.head_dim;
    uint16_t *to = head_of(w, block, side, kv_head), narrow[CONFIG_MAX_HEAD_DIM];
    w->s->k->to_bf16(x, d, narrow);
    if (side == KV_KEYS) {
        for (int i = 0; i < d; i += 2)
            memcpy(to + i * SLOTS + 2 * slot, narrow + i, 2 * sizeof *narrow);
        return;
    }
    to += slot / 2 * 2 * d + slot % 2;
    for (int i = 0; i < d; i++)
        to[2 * i] = narrow[i];
}

void cpu_kv_store(const cpu_work *w, int32_t block, int slot, kv_side side, int kv_head,
                  const float *x) {
    int d = w->engine->config.head_dim;
    if (w->layout.dtype == LLM_KV_BF16) {
        store_bf16(w, block, slot, side, kv_head, x);
    } else if (w->layout.dtype == LLM_KV_INT8) {
        int8_t *to = head_of(w, block, side, kv_head), narrow[CONFIG_MAX_HEAD_DIM];
        scales_of(w, block, side, kv_head)[slot] = w->s->k->to_int8(x, d, narrow);
        for (int i = 0; i < d; i++)
            to[pair_at(side, slot, i, d)] = narrow[i];
    } else {
        float *to = head_of(w, block, side, kv_head);
        for (int i = 0; i < d; i++)
            to[wide_at(side, slot, i, d)] = x[i];
    }
}

void cpu_kv_load(const cpu_work *w, int32_t block, int slot, kv_side side, int kv_head, float *x) {
    int d = w->engine->config.head_dim;
    const void *from = head_of(w, block, side, kv_head);
    if (w->layout.dtype == LLM_KV_BF16) {
        uint16_t narrow[CONFIG_MAX_HEAD_DIM];
        for (int i = 0; i < d; i++)
            narrow[i] = ((const uint16_t *)from)[pair_at(side, slot, i, d)];
        w->s->k->from_bf16(narrow, d, x);
    } else if (w->layout.dtype == LLM_KV_INT8) {
        float scale = scales_of(w, block, side, kv_head)[slot];
        for (int i = 0; i < d; i++)
            x[i] = (float)((const int8_t *)from)[pair_at(side, slot, i, d)] * scale;
    } else {
        for (int i = 0; i < d; i++)
            x[i] = ((const float *)from)[wide_at(side, slot, i, d)];
    }
}

/* ---- slots of a branch ----------------------------------------------------------------------- */

/* Copies the first n slots of `count` runs; a run has SLOTS slots of `size` bytes. */
static void runs_copy(char *to, const char *from, int count, size_t size, size_t n) {
    for (int i = 0; i < count; i++)
        memcpy(to + (size_t)i * SLOTS * size, from + (size_t)i * SLOTS * size, n * size);
}

/* Copies the values of the first n keys. Values are stored in pairs of keys: copies whole pairs,
 * then the first half of the last pair. */
static void values_copy(char *to, const char *from, size_t n, size_t d, size_t size) {
    size_t whole = n / 2 * 2 * d * size;
    memcpy(to, from, whole);
    for (size_t i = 0; n % 2 != 0 && i < d; i++)
        memcpy(to + whole + 2 * i * size, from + whole + 2 * i * size, size);
}

static void head_copy(const cpu_work *w, const pass_copy *copy, int kv_head) {
    int d = w->engine->config.head_dim;
    size_t n = (size_t)copy->tokens, size = element_bytes(w->layout.dtype);
    char *k = head_of(w, copy->to, KV_KEYS, kv_head), *v = head_of(w, copy->to, KV_VALUES, kv_head);
    const char *from_k = head_of(w, copy->from, KV_KEYS, kv_head),
               *from_v = head_of(w, copy->from, KV_VALUES, kv_head);
    if (w->layout.dtype == LLM_KV_F32) {
        runs_copy(k, from_k, d, size, n);
        memcpy(v, from_v, n * (size_t)d * size);
        return;
    }
    runs_copy(k, from_k, d / 2, 2 * size, n);
    values_copy(v, from_v, n, (size_t)d, size);
    for (kv_side side = KV_KEYS; side <= KV_VALUES && w->layout.dtype == LLM_KV_INT8; side++) {
        memcpy(scales_of(w, copy->to, side, kv_head), scales_of(w, copy->from, side, kv_head),
               n * sizeof(float));
    }
}

void cpu_kv_copy(const cpu_work *w, const pass_copy *copy) {
    for (int h = 0; h < w->engine->config.n_kv_heads; h++)
        head_copy(w, copy, h);
}

/* ---- the kernels' view of a block ------------------------------------------------------------ */

attend_ahead cpu_kv_ahead(const cpu_work *w, int32_t block, kv_side side, int kv_head, int keys) {
    enum { STEP = 128 };
    attend_ahead a = {head_of(w, block, side, kv_head), (int)(w->layout.head / STEP), STEP / 2};
    if (side == KV_VALUES) {
        /* values are in the order of keys, so the values after the last key are not needed */
        size_t bytes = (size_t)(keys + 1) / 2 * 2 * (w->layout.head / SLOTS);
        a.steps = (int)((bytes + STEP - 1) / STEP);
    } else if (w->layout.dtype != LLM_KV_INT8 && keys <= SLOTS / 2) {
        /* a piece has the 32 slots of one dimension (f32) or of a pair of dimensions (bf16); the
         * first half of the slots is enough */
        a.second = 0;
    }
    return a;
}

void cpu_kv_view(const cpu_work *w, int32_t block, int kv_head, attend_scratch *s,
                 attend_unit *unit) {
    unit->kt = head_of(w, block, KV_KEYS, kv_head);
    unit->v = head_of(w, block, KV_VALUES, kv_head);
    unit->wide = w->layout.dtype == LLM_KV_F32;
    unit->key_scale = unit->value_scale = NULL;
    if (w->layout.dtype == LLM_KV_INT8) {
        int n = w->engine->config.head_dim * SLOTS;
        w->s->k->int8_to_bf16(unit->kt, n, s->kt);
        w->s->k->int8_to_bf16(unit->v, n, s->v);
        unit->kt = s->kt;
        unit->v = s->v;
        unit->key_scale = scales_of(w, block, KV_KEYS, kv_head);
        unit->value_scale = scales_of(w, block, KV_VALUES, kv_head);
    }
}
