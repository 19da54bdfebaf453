/*
 * config_int.h - what a GGUF file says about its model: shapes, positions, and the ways
 * architectures differ.
 *
 * Read once, plain data, immutable; pointers in it point into the mapped file. Every difference
 * between architectures is a field here, so that a forward pass asks for `pairing` or `qk_norm`,
 * never for an architecture's name. config_read checks that all tensors a forward pass reads exist
 * with the shapes below: after it, model_tensor cannot fail. Weights are [N, K] row-major (dims {K,
 * N}): y[N] = W x[K].
 */
#ifndef KVASIR_CONFIG_INT_H
#define KVASIR_CONFIG_INT_H

#include "gguf_int.h"

enum { CONFIG_MAX_LAYERS = 512, CONFIG_MAX_HEAD_DIM = 512 };

typedef enum rope_pairing {
    /* dimensions (2i, 2i+1) turn together: llama files, whose converter permutes */
    ROPE_NEIGHBOURS,
    ROPE_HALVES /* dimensions (i, i + rope_dims/2): qwen, gemma, phi */
} rope_pairing;

typedef enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_YARN } rope_scaling;
typedef enum ffn_activation { FFN_SILU, FFN_GELU_TANH } ffn_activation;

typedef struct model_config {
    const char *arch; /* "llama", "qwen2", …: a literal of our table */
    str name;         /* general.name, may be empty */

    int n_layers, n_embd, n_heads, n_kv_heads, head_dim, ffn, vocab, context;
    float eps;        /* of every RMS norm */
    float attn_scale; /* scores are q·k * attn_scale */
    float embd_scale; /* the embedding row is multiplied by it; 1 but for gemma */
    ffn_activation activation;
    bool tied_head;   /* no output.weight: the head is token_embd.weight */
    bool qkv_bias;    /* blk.N.attn_{q,k,v}.bias (qwen2) */
    bool output_bias; /* blk.N.attn_output.bias */
    /* blk.N.attn_{q,k}_norm.weight [head_dim], per head, before rope (qwen3, gemma3) */
    bool qk_norm;
    bool post_norm; /* blk.N.post_{attention,ffw}_norm.weight on each branch's output (gemma2/3) */
    bool fused_qkv; /* blk.N.attn_qkv.weight: rows of q, then k, then v (phi3) */
    bool fused_gate_up; /* blk.N.ffn_up.weight: ffn rows of gate, then ffn rows of up (phi3) */
    float attn_softcap, final_softcap; /* x -> cap * tanh(x / cap); 0: none (gemma2) */

    rope_pairing pairing;
    int rope_dims;                       /* <= head_dim, even; dimensions beyond are not rotated */
    double rope_theta, rope_theta_local; /* local: in layers with a window */
    rope_scaling scaling;
    double rope_factor;  /* linear and yarn: the context is stretched by it; else 1 */
    double yarn_context; /* the context the model was trained on */
    double yarn_beta_fast, yarn_beta_slow;
    double rope_magnitude;  /* the file's factor on cos and sin; see config_rope_magnitude */
    bool has_rope_divisors; /* the file's rope factors (llama3, phi3): */
    float rope_divisors[CONFIG_MAX_HEAD_DIM / 2]; /* [rope_dims/2] */
    /* every norope_step-th layer (3, 7, … for 4) has no rope; 0: all have it (smollm3) */
    int norope_step;

    /* keys that a windowed layer sees, its own position included; 0: none is windowed */
    int window;
    int window_period; /* 1: all layers are windowed, else see config_layer_window */
    /* of a period: the first layer alone is windowed (gemma2), else all but the last (gemma3) */
    bool window_first;
} model_config;

/* ERR_UNSUPPORTED names the architecture or feature; ERR_CORRUPT
 * names the key or tensor that is missing or absurd. */
int config_read(const gguf *g, model_config *out, err *e);

bool config_layer_has_rope(const model_config *c, int layer);
int config_layer_window(const model_config *c, int layer); /* 0: the layer sees all keys */
/* Fills out[rope_dims/2]: the angle of pair i at position
 * p is p * out[i]; scaling and divisors are in it. */
void config_rope_frequencies(const model_config *c, int layer, float *out);
/* cos and sin are multiplied by it (yarn, longrope); 1 otherwise. */
float config_rope_magnitude(const model_config *c);

/* The tensor "blk.<layer>.<name>" ("<name>" for layer < 0), or NULL when the file has none. */
const gguf_tensor *model_tensor(const gguf *g, int layer, const char *name);
/* y[rows*K] = rows [first, first + rows) of a matrix (or of a vector: first 0, rows 1) as f32. */
void model_tensor_rows(const gguf_tensor *t, uint64_t first, uint64_t rows, float *out);

#endif
