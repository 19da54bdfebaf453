/*
 * weights_int.h - a model's weights as the CPU's forward pass reads them.
 *
 * Matrices are packed for gemm.c, rows in the order the pass wants:
 *   qkv      [(heads + 2 kv_heads) * head_dim, width] q heads, k heads, v heads; where the file's
 *            rope pairs
 *            neighbours, rows of q and k are permuted so that it pairs halves
 *   gate_up  [2 ffn, width]   each part is [gate rows | the same up rows]
 * Small tensors are f32. Immutable once loaded; the head's rows for allowed answers are read from
 * the file as needed.
 */
#ifndef KVASIR_MODEL_INT_H
#define KVASIR_MODEL_INT_H

#include "gemm_int.h"
#include "head_screen_int.h"
#include "model/config_int.h"

typedef struct model_layer {
    gemm_weight qkv, o, gate_up, down;
    float *attn_norm, *ffn_norm;           /* [width] */
    float *post_attn_norm, *post_ffn_norm; /* [width] or NULL */
    float *qkv_bias, *o_bias;              /* NULL: none */
    float *q_norm, *k_norm;                /* [head_dim], permuted like q and k; NULL: none */
    bool has_rope;
    int window; /* 0: sees all */
} model_layer;

/* How a precision keeps matrices. */
typedef struct model_types {
    gemm_type qkv, rest; /* rest: o, gate_up, down */
    gemm_type last;      /* the last layer's */
    gemm_type head;
    gemm_type wide; /* a matrix whose groups have more steps than bytes may keep */
    int levels;     /* what bytes may keep; 255: any group */
} model_types;

typedef struct packed_model {
    const gguf *file;
    const model_config *config;
    gemm *g;
    model_types types;
    arena *mem;
    model_layer *layers;
    gemm_weight head;
    head_screen *screen; /* set before the load, or NULL: filled with the head; owned */
    float *final_norm;
    const gguf_tensor *embedding, *head_tensor;
    bool begun; /* a load has probed, and may have been cancelled: what it packed is kept */
    hash128 digest;
} packed_model;

/* Whether groups of 32 of the tensor keep their values in bytes of at most `levels` steps; 255 are
 * enough for any, rounded like the file's own where they are not on a grid. */
bool model_fits_bytes(const gguf_tensor *t, int levels);
/* Declares the matrices: quick, reads no weight. On failure
 * model_free is still to be called, here and below. */
int model_declare(packed_model *m, const gguf *file, const model_config *config, gemm *g,
                  const model_types *types, err *e);
/* Probes, then reads and packs everything; `digest` covers the probe. ERR_CANCELLED
 * (pool_let_cancel): the next call goes on from there. */
int model_load(packed_model *m, pool *threads, hash128 *digest, err *e);
void model_free(packed_model *m);
/* Row `id` of the token embedding, scaled: out[width]. */
void model_embed(const packed_model *m, int id, float *out);
void model_head_row(const packed_model *m, int id, float *out);

#endif
