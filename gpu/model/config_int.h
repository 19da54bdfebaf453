/*
 * config_int.h - a model's configuration, from its GGUF file: sizes, positions, and the differences
 * between architectures.
 *
 * Plain data, immutable; pointers point into the mapped file. Every difference between
 * architectures is a field, so that a forward pass tests `pairing` or `qk_norm`, not an
 * architecture's name. config_read checks that all tensors of a forward pass exist with the right
 * shapes: afterwards model_tensor does not fail for them. Weights are [N, K] row-major (dims {K,
 * N}): y[N] = W x[K].
 */
#ifndef KVASIR_CONFIG_INT_H
#define KVASIR_CONFIG_INT_H

#include "gguf_int.h"

enum { CONFIG_MAX_LAYERS = 512, CONFIG_MAX_HEAD_DIM = 512 };

typedef enum rope_pairing {
    ROPE_NEIGHBOURS, /* rotates dimensions 2i and 2i + 1: llama (its converter permutes Q and K) */
    ROPE_HALVES      /* rotates dimensions i and i + rope_dims/2: qwen, gemma, phi */
} rope_pairing;

typedef enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_YARN } rope_scaling;
typedef enum ffn_activation { FFN_SILU, FFN_GELU_TANH, FFN_GELU /* by erf */ } ffn_activation;

/* What an embedding model makes of a text's final states. */
typedef enum model_pooling {
    POOL_NONE,  /* the model generates text */
    POOL_MEAN,  /* the mean of all states */
    POOL_FIRST, /* the state of the first token ([CLS]) */
    POOL_LAST   /* the state of the last token */
} model_pooling;

typedef struct model_config {
    const char *arch; /* "llama", "qwen2", …; static */
    str name;         /* general.name; may be empty */

    int n_layers, n_embd, n_heads, n_kv_heads, head_dim, ffn, vocab, context;
    float eps;        /* epsilon of every norm */
    float attn_scale; /* scores are q·k * attn_scale */
    float embd_scale; /* factor of embeddings; 1 except for gemma */
    ffn_activation activation;
    bool tied_head;   /* no output.weight: the head is token_embd.weight */
    bool qkv_bias;    /* blk.N.attn_{q,k,v}.bias, or of attn_qkv (qwen2, bert) */
    bool output_bias; /* blk.N.attn_output.bias */
    /* blk.N.attn_{q,k}_norm.weight [head_dim], per head, before rope (qwen3, gemma3) */
    bool qk_norm;
    bool post_norm; /* blk.N.post_{attention,ffw}_norm.weight on each branch's output (gemma2/3) */
    bool fused_qkv; /* blk.N.attn_qkv.weight: rows of q, then k, then v (phi3) */
    bool fused_gate_up; /* blk.N.ffn_up.weight: ffn rows of gate, then ffn rows of up (phi3) */
    float attn_softcap, final_softcap; /* x -> cap * tanh(x / cap); 0: none (gemma2) */

    model_pooling pooling;
    bool both_ways; /* a token attends to all tokens of its text (bert, gemma-embedding) */
    /* layer norms with a bias instead of RMS norms. A normed state replaces the residual stream:
     * token_embd_norm, then blk.N.attn_output_norm and blk.N.layer_output_norm after each sum
     * (bert, nomic-bert) */
    bool layer_norm;
    bool ungated;   /* no blk.N.ffn_gate.weight: down(activation(up x)) (bert) */
    bool ffn_bias;  /* blk.N.ffn_{up,down}.bias (bert) */
    bool positions; /* position_embd.weight [context, n_embd], added to the embedding (bert) */
    bool types;     /* token_types.weight, whose first row is added to the embedding (bert) */
    /* gemma-embedding: dense_2.weight [dense, n_embd] and dense_3.weight [n_embd, dense], applied to
     * the pooled state; 0: the file has none */
    int dense;

    rope_pairing pairing;
    int rope_dims;           /* even; dimensions from rope_dims on are not rotated */
    double rope_theta;       /* base of the frequencies in layers without a window */
    double rope_theta_local; /* base of the frequencies in layers with a window */
    rope_scaling scaling;
    double rope_factor;     /* linear and yarn: the factor that stretches the context; else 1 */
    double yarn_context;    /* length of the context that the model was trained on, in tokens */
    double yarn_beta_fast;  /* pairs with more rotations in yarn_context keep their frequency */
    double yarn_beta_slow;  /* pairs with fewer rotations get their frequency / rope_factor */
    double rope_magnitude;  /* the file's factor on cos and sin; see config_rope_magnitude */
    bool has_rope_divisors; /* the file has rope factors (llama3, phi3) */
    float rope_divisors[CONFIG_MAX_HEAD_DIM / 2]; /* [rope_dims/2]: divisors of the frequencies */
    /* layers without rope: every norope_step-th (for 4: layers 3, 7, … (smollm3); for 1: all
     * layers (bert)); 0: none */
    int norope_step;

    /* number of keys that a token attends to in a windowed layer, its own included; with both_ways,
     * window / 2 keys on either side; 0: no layer is windowed */
    int window;
    /* number of layers in a period, after which windowed and full layers repeat; 1: all layers are
     * windowed */
    int window_period;
    /* windowed layers of a period: only the first (true), or all except the last (false) */
    bool window_first;
} model_config;

/* Reads and checks the configuration. ERR_UNSUPPORTED: the message names the architecture or
 * feature. ERR_CORRUPT: it names the key or tensor that is missing or invalid. */
int config_read(const gguf *g, model_config *out, err *e);

bool config_layer_has_rope(const model_config *c, int layer);
int config_layer_window(const model_config *c, int layer); /* 0: not windowed */
/* A layer's norms, before attention and before the feed-forward part, and (layer = n_layers) the
 * norm after the last layer. Writes the name of the tensor's `kind`, "weight" or "bias". */
typedef enum norm_place { NORM_ATTENTION, NORM_FFN, NORM_FINAL } norm_place;
const gguf_tensor *config_norm(const gguf *g, const model_config *c, int layer, norm_place place,
                               const char *kind);
/* Fills out[rope_dims/2], with scaling and divisors: the angle of pair i at position p is p *
 * out[i]. */
void config_rope_frequencies(const model_config *c, int layer, float *out);
/* Returns the factor of cos and sin: 1, unless yarn or the file sets another. */
float config_rope_magnitude(const model_config *c);

/* Returns the tensor "blk.<layer>.<name>" ("<name>" for layer < 0), or NULL if the file has
 * none. */
const gguf_tensor *model_tensor(const gguf *g, int layer, const char *name);
/* out[rows * K] = rows [first, first + rows) of a matrix as f32; a vector is one row. */
void model_tensor_rows(const gguf_tensor *t, uint64_t first, uint64_t rows, float *out);

#endif
