/*
 * weights_int.h - a model's weights in the CPU backend.
 *
 * Matrices are packed for gemm.c. Rows are in the forward pass's order:
 *
 *   qkv      [(heads + 2 kv_heads) * head_dim, width]: q heads, k heads, v heads. If the file's
 *            rope pairs neighbouring dimensions, rows of q and k are permuted so that rope pairs
 *            dimensions i and i + rope_dims / 2
 *   gate_up  [2 ffn, width]: each part has gate rows, followed by the up rows of the same numbers;
 *            [ffn, width], the up rows alone, if the model has no gate
 *
 * Small tensors are f32. Immutable once loaded. The head's rows for allowed answers are read from
 * the file when they are needed.
 */
#ifndef KVASIR_WEIGHTS_INT_H
#define KVASIR_WEIGHTS_INT_H

#include "gemm_int.h"
#include "head_screen_int.h"
#include "model/config_int.h"

typedef struct model_layer {
    gemm_weight qkv, o, gate_up, down;
    /* [width] norms before the two parts of a layer (config_norm); a bias only for layer norms */
    float *attn_norm, *attn_norm_bias, *ffn_norm, *ffn_norm_bias;
    float *post_attn_norm, *post_ffn_norm;          /* [width]; NULL: none */
    float *qkv_bias, *o_bias, *up_bias, *down_bias; /* NULL: none */
    float *q_norm, *k_norm; /* [head_dim], permuted like q and k; NULL: none */
    bool has_rope;
    int window; /* number of keys that a query sees; 0: all keys */
} model_layer;

/* The types of a precision's matrices. */
typedef struct model_types {
    gemm_type qkv;
    gemm_type rest; /* type of o, gate_up and down in all layers except the last */
    gemm_type last; /* type of o, gate_up and down in the last layer */
    gemm_type head;
    gemm_type wide; /* type of matrices that do not fit bytes (model_fits_bytes) */
    int levels;     /* int8_kernels.levels; 0: no weights in bytes */
} model_types;

typedef struct packed_model {
    const gguf *file;
    const model_config *config;
    gemm *g;
    model_types types;
    arena *mem;
    model_layer *layers;
    gemm_weight head;    /* no parts: an embedding model */
    head_screen *screen; /* owned; made before the load, which fills it; NULL: no screen */
    float *final_norm, *final_norm_bias;
    float *dense[2]; /* [dense, width] and [width, dense] (model_config.dense); NULL: none */
    const gguf_tensor *embedding, *head_tensor;
    const gguf_tensor *positions; /* learned positions; NULL: none */
    float *type;                  /* [width] embedding of a token's type; NULL: none */
    bool begun;     /* model_load has run the probe; parts packed before a cancellation are kept */
    hash128 digest; /* the probe's output */
} packed_model;

/* True if weights in bytes with `levels` steps can hold the tensor. With 255 steps they can always
 * (some file types are then rounded, see int8_int.h). With fewer, the groups of the file type must
 * have at most `levels` steps. */
bool model_fits_bytes(const gguf_tensor *t, int levels);
/* Declares the matrices without reading weights. The caller calls model_free even if this or
 * model_load fails. */
int model_declare(packed_model *m, const gguf *file, const model_config *config, gemm *g,
                  const model_types *types, err *e);
/* Runs gemm_probe, which sets *digest, then reads and packs all weights. After ERR_CANCELLED
 * (pool_let_cancel) the next call continues where this one stopped. */
int model_load(packed_model *m, pool *threads, hash128 *digest, err *e);
void model_free(packed_model *m);
/* Reads row `id` of the token embedding, scaled and with what the model adds to it at `position`
 * (model_embed), or row `id` of the head (model_head_row), into out[width]. scratch: [width]. */
void model_embed(const packed_model *m, int id, int position, float *scratch, float *out);
void model_head_row(const packed_model *m, int id, float *out);

#endif
