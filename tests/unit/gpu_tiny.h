/*
 * gpu_tiny.h - tiny models of every architecture, made in memory: one row each, weights from a
 * formula.
 *
 * tests/vectors/make_tiny.py knows the same rows and the same formula, and computes the logits in
 * numpy; tiny.txt holds them. A weight is (hash stream of its tensor's name) in steps of 2^-24, so
 * both sides have the same bits.
 */
#ifndef KVASIR_GPU_TINY_H
#define KVASIR_GPU_TINY_H

#include "gpu_testing.h"

enum {
    TINY_EMBD = 32,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_FFN = 64,
    TINY_VOCAB = 40,
    TINY_TOKENS = 12,
    TINY_CONTEXT = 64
};

enum tiny_trait {
    TINY_BIAS = 1, /* q, k, v */
    TINY_QK_NORM = 2,
    TINY_POST_NORM = 4,
    TINY_FUSED = 8,
    TINY_HEAD = 16,     /* output.weight of its own */
    TINY_DIVISORS = 32, /* rope_freqs.weight */
    TINY_CAPS = 64,     /* soft caps of 5 and 3 */
    TINY_OUT_BIAS = 128,
    TINY_AFTER = 256,    /* layer norms after each sum; as many key heads as heads */
    TINY_UNGATED = 512,  /* no gate, biases in the feed-forward part */
    TINY_LEARNED = 1024, /* learned positions */
    TINY_DENSE = 2048    /* two dense layers after pooling, the wider one of TINY_FFN */
};

typedef struct tiny_model {
    const char *name, *arch;
    int layers, head_dim;
    unsigned traits;
    int window;          /* 0: no key */
    const char *scaling; /* NULL: no key; else with factor 4 and an original context of 16 */
    int pooling;         /* <arch>.pooling_type; 0: no key */
} tiny_model;

static const tiny_model tiny_models[] = {
    {"llama", "llama", 2, 8, 0, 0, NULL, 0},
    {"llama-head", "llama", 2, 8, TINY_HEAD, 0, NULL, 0},
    {"llama-bias", "llama", 2, 8, TINY_BIAS | TINY_OUT_BIAS, 0, NULL, 0},
    {"llama3", "llama", 2, 8, TINY_DIVISORS, 0, NULL, 0},
    {"llama-linear", "llama", 2, 8, 0, 0, "linear", 0},
    {"llama-yarn", "llama", 2, 8, 0, 0, "yarn", 0},
    {"smollm3", "smollm3", 4, 8, 0, 0, NULL, 0},
    {"qwen2", "qwen2", 2, 8, TINY_BIAS, 0, NULL, 0},
    {"qwen3", "qwen3", 2, 16, TINY_QK_NORM, 0, NULL, 0},
    {"phi3", "phi3", 2, 8, TINY_FUSED | TINY_HEAD, 5, NULL, 0},
    {"gemma", "gemma", 2, 16, 0, 0, NULL, 0},
    {"gemma2", "gemma2", 3, 16, TINY_POST_NORM | TINY_CAPS, 5, NULL, 0},
    {"gemma3", "gemma3", 7, 16, TINY_POST_NORM | TINY_QK_NORM, 5, "linear", 0},
};

#define TINY_BERT (TINY_AFTER | TINY_UNGATED | TINY_LEARNED | TINY_BIAS | TINY_OUT_BIAS)

static const tiny_model tiny_encoders[] = {
    {"bert", "bert", 2, 8, TINY_BERT, 0, NULL, 1},
    {"bert-first", "bert", 2, 8, TINY_BERT, 0, NULL, 2},
    {"nomic-bert", "nomic-bert", 2, 8, TINY_AFTER | TINY_FUSED, 0, NULL, 1},
    {"qwen3-embedding", "qwen3", 2, 16, TINY_QK_NORM, 0, NULL, 3},
    {"gemma-embedding", "gemma-embedding", 7, 16, TINY_POST_NORM | TINY_QK_NORM | TINY_DENSE, 5,
     NULL, 1},
};

/* Adds a tensor whose element i is centre + scale * u, u in [-0.5, 0.5). */
static inline void tiny_tensor(gguf_maker *m, const char *name, int columns, int rows, float centre,
                               float scale) {
    uint64_t state = 0xcbf29ce484222325u; /* FNV-1a of the name */
    for (const char *p = name; *p; p++)
        state = (state ^ (unsigned char)*p) * 0x100000001b3u;
    size_t n = (size_t)columns * (size_t)rows;
    float *w = malloc(n * sizeof *w);
    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        w[i] = centre + scale * ((float)(state >> 40) * 0x1p-24f - 0.5f);
    }
    make_tensor(m, name, GGUF_F32, (uint64_t)columns, (uint64_t)rows, w, n * sizeof *w);
    free(w);
}

static inline void tiny_in_layer(gguf_maker *m, int layer, const char *name, int columns, int rows,
                                 float centre, float scale) {
    char full[64];
    snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    tiny_tensor(m, full, columns, rows, centre, scale);
}

static inline int tiny_kv_heads(const tiny_model *t) {
    return t->traits & TINY_AFTER ? TINY_HEADS : TINY_KV_HEADS;
}

/* A vector of gains near 1, and with TINY_AFTER one of biases. */
static inline void tiny_norm(gguf_maker *m, const tiny_model *t, int layer, const char *weight,
                             const char *bias) {
    tiny_in_layer(m, layer, weight, TINY_EMBD, 1, 1, 0.5f);
    if (t->traits & TINY_AFTER)
        tiny_in_layer(m, layer, bias, TINY_EMBD, 1, 0, 1);
}

static inline void tiny_projections(gguf_maker *m, const tiny_model *t, int layer) {
    int q = TINY_HEADS * t->head_dim, kv = tiny_kv_heads(t) * t->head_dim;
    if (t->traits & TINY_FUSED) {
        tiny_in_layer(m, layer, "attn_qkv.weight", TINY_EMBD, q + 2 * kv, 0, 1);
    } else {
        tiny_in_layer(m, layer, "attn_q.weight", TINY_EMBD, q, 0, 1);
        tiny_in_layer(m, layer, "attn_k.weight", TINY_EMBD, kv, 0, 1);
        tiny_in_layer(m, layer, "attn_v.weight", TINY_EMBD, kv, 0, 1);
    }
    bool fused = t->traits & TINY_FUSED && !(t->traits & TINY_AFTER); /* phi3's gate and up */
    if (!fused && !(t->traits & TINY_UNGATED))
        tiny_in_layer(m, layer, "ffn_gate.weight", TINY_EMBD, TINY_FFN, 0, 1);
    tiny_in_layer(m, layer, "ffn_up.weight", TINY_EMBD, fused ? 2 * TINY_FFN : TINY_FFN, 0, 1);
    tiny_in_layer(m, layer, "attn_output.weight", q, TINY_EMBD, 0, 1);
    tiny_in_layer(m, layer, "ffn_down.weight", TINY_FFN, TINY_EMBD, 0, 1);
}

static inline void tiny_layer(gguf_maker *m, const tiny_model *t, int layer) {
    int q = TINY_HEADS * t->head_dim, kv = tiny_kv_heads(t) * t->head_dim;
    bool after = t->traits & TINY_AFTER;
    tiny_norm(m, t, layer, after ? "attn_output_norm.weight" : "attn_norm.weight",
              "attn_output_norm.bias");
    tiny_norm(m, t, layer, after ? "layer_output_norm.weight" : "ffn_norm.weight",
              "layer_output_norm.bias");
    tiny_projections(m, t, layer);
    if (t->traits & TINY_BIAS) {
        tiny_in_layer(m, layer, "attn_q.bias", q, 1, 0, 1);
        tiny_in_layer(m, layer, "attn_k.bias", kv, 1, 0, 1);
        tiny_in_layer(m, layer, "attn_v.bias", kv, 1, 0, 1);
    }
    if (t->traits & TINY_OUT_BIAS)
        tiny_in_layer(m, layer, "attn_output.bias", TINY_EMBD, 1, 0, 1);
    if (t->traits & TINY_UNGATED) {
        tiny_in_layer(m, layer, "ffn_up.bias", TINY_FFN, 1, 0, 1);
        tiny_in_layer(m, layer, "ffn_down.bias", TINY_EMBD, 1, 0, 1);
    }
    if (t->traits & TINY_QK_NORM) {
        tiny_in_layer(m, layer, "attn_q_norm.weight", t->head_dim, 1, 1, 0.5f);
        tiny_in_layer(m, layer, "attn_k_norm.weight", t->head_dim, 1, 1, 0.5f);
    }
    if (t->traits & TINY_POST_NORM) {
        tiny_in_layer(m, layer, "post_attention_norm.weight", TINY_EMBD, 1, 1, 0.5f);
        tiny_in_layer(m, layer, "post_ffw_norm.weight", TINY_EMBD, 1, 1, 0.5f);
    }
}

static inline void tiny_key_u32(gguf_maker *m, const tiny_model *t, const char *name, int v) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", t->arch, name);
    make_u32(m, key, (uint32_t)v);
}

static inline void tiny_key_f32(gguf_maker *m, const tiny_model *t, const char *name, float v) {
    char key[128];
    snprintf(key, sizeof key, "%s.%s", t->arch, name);
    make_f32(m, key, v);
}

static inline void tiny_keys(gguf_maker *m, const tiny_model *t) {
    make_str(m, "general.architecture", t->arch);
    tiny_key_u32(m, t, "block_count", t->layers);
    tiny_key_u32(m, t, "embedding_length", TINY_EMBD);
    tiny_key_u32(m, t, "feed_forward_length", TINY_FFN);
    tiny_key_u32(m, t, "attention.head_count", TINY_HEADS);
    tiny_key_u32(m, t, "attention.head_count_kv", tiny_kv_heads(t));
    tiny_key_u32(m, t, "attention.key_length", t->head_dim);
    tiny_key_u32(m, t, "attention.value_length", t->head_dim);
    tiny_key_u32(m, t, "context_length", TINY_CONTEXT);
    bool after = t->traits & TINY_AFTER;
    tiny_key_f32(m, t, after ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
                 1e-5f);
    if (t->pooling)
        tiny_key_u32(m, t, "pooling_type", t->pooling);
    tiny_key_f32(m, t, "rope.freq_base", 500);
    if (t->window)
        tiny_key_u32(m, t, "attention.sliding_window", t->window);
    if (t->traits & TINY_CAPS) {
        tiny_key_f32(m, t, "attn_logit_softcapping", 5);
        tiny_key_f32(m, t, "final_logit_softcapping", 3);
    }
    if (t->scaling) {
        char key[128];
        snprintf(key, sizeof key, "%s.rope.scaling.type", t->arch);
        make_str(m, key, t->scaling);
        tiny_key_f32(m, t, "rope.scaling.factor", 4);
        tiny_key_u32(m, t, "rope.scaling.original_context_length", 16);
    }
}

/* What an embedding model has beside its layers. */
static inline void tiny_embedder(gguf_maker *m, const tiny_model *t) {
    if (t->traits & TINY_AFTER) {
        tiny_tensor(m, "token_embd_norm.weight", TINY_EMBD, 1, 1, 0.5f);
        tiny_tensor(m, "token_embd_norm.bias", TINY_EMBD, 1, 0, 1);
        tiny_tensor(m, "token_types.weight", TINY_EMBD, 2, 0, 1);
    }
    if (t->traits & TINY_LEARNED)
        tiny_tensor(m, "position_embd.weight", TINY_EMBD, TINY_CONTEXT, 0, 1);
    if (t->traits & TINY_DENSE) {
        tiny_tensor(m, "dense_2.weight", TINY_EMBD, TINY_FFN, 0, 1);
        tiny_tensor(m, "dense_3.weight", TINY_FFN, TINY_EMBD, 0, 1);
    }
}

/* The model's file; free the maker after the gguf that is opened from it. */
static inline str tiny_make(gguf_maker *m, const tiny_model *t) {
    tiny_keys(m, t);
    tiny_tensor(m, "token_embd.weight", TINY_EMBD, TINY_VOCAB, 0, 4);
    if (!(t->traits & TINY_AFTER))
        tiny_tensor(m, "output_norm.weight", TINY_EMBD, 1, 1, 0.5f);
    if (t->traits & TINY_HEAD)
        tiny_tensor(m, "output.weight", TINY_EMBD, TINY_VOCAB, 0, 4);
    if (t->traits & TINY_DIVISORS)
        tiny_tensor(m, "rope_freqs.weight", t->head_dim / 2, 1, 4, 4);
    tiny_embedder(m, t);
    for (int layer = 0; layer < t->layers; layer++)
        tiny_layer(m, t, layer);
    return make_file(m, 3);
}

static inline void tiny_tokens(llm_token out[TINY_TOKENS]) {
    for (int i = 0; i < TINY_TOKENS; i++)
        out[i] = i * i * 7 % TINY_VOCAB;
}

/* ---- a vocabulary ---------------------------------------------------------------------------- */

#define TINY_SPACE "\xE2\x96\x81"

enum { TINY_MINUS = 28, TINY_POINT, TINY_DIGIT }; /* ten digits from TINY_DIGIT on */

/* 40 tokens: pieces that merge, with and without the space in front, one control token, and what
 * numbers are made of. */
static inline void tiny_vocabulary(gguf_maker *m) {
    static const char *const words[] = {"<unk>",
                                        "<s>",
                                        "</s>",
                                        "<|user|>",
                                        TINY_SPACE,
                                        "a",
                                        "b",
                                        "ab",
                                        TINY_SPACE "a",
                                        TINY_SPACE "b",
                                        TINY_SPACE "ab",
                                        ":",
                                        "\n",
                                        "c",
                                        "d",
                                        "cd",
                                        TINY_SPACE "c",
                                        TINY_SPACE "cd",
                                        "ba",
                                        TINY_SPACE "ba"};
    str tokens[TINY_VOCAB];
    int32_t kinds[TINY_VOCAB];
    float scores[TINY_VOCAB];
    static char fill[TINY_VOCAB][8];
    for (size_t i = 0; i < TINY_VOCAB; i++) {
        if (i >= TINY_MINUS)
            snprintf(fill[i], sizeof fill[i], "%c", "-.0123456789"[i - TINY_MINUS]);
        else
            snprintf(fill[i], sizeof fill[i], "%c%c", 'e' + (int)(i % 10), 'o' + (int)(i / 10));
        tokens[i] = str_from(i < BASE_COUNT(words) ? words[i] : fill[i]);
        kinds[i] = i == 0 ? 2 : i <= 3 ? 3 : 1;
        scores[i] = -(float)tokens[i].n * 0.1f - (float)i * 0.001f;
    }
    make_str(m, "tokenizer.ggml.model", "llama");
    make_strs(m, "tokenizer.ggml.tokens", tokens, TINY_VOCAB);
    make_words(m, "tokenizer.ggml.token_type", 5, kinds, TINY_VOCAB);
    make_words(m, "tokenizer.ggml.scores", 6, scores, TINY_VOCAB);
    make_u32(m, "tokenizer.ggml.bos_token_id", 1);
    make_u32(m, "tokenizer.ggml.eos_token_id", 2);
    make_u32(m, "tokenizer.ggml.unknown_token_id", 0);
}

/* 40 tokens of WordPiece: control tokens, words, pieces, a letter with and without its accent. */
static inline void tiny_wordpieces(gguf_maker *m) {
    static const char *const words[] = {"[PAD]",
                                        "[UNK]",
                                        "[CLS]",
                                        "[SEP]",
                                        TINY_SPACE "a",
                                        TINY_SPACE "b",
                                        TINY_SPACE "ab",
                                        "a",
                                        "b",
                                        "ab",
                                        TINY_SPACE "cab",
                                        TINY_SPACE ",",
                                        TINY_SPACE "[",
                                        TINY_SPACE "]",
                                        TINY_SPACE "cls",
                                        TINY_SPACE "e",
                                        TINY_SPACE "caf",
                                        "e",
                                        TINY_SPACE "\xE6\x97\xA5"};
    str tokens[TINY_VOCAB];
    int32_t kinds[TINY_VOCAB];
    static char fill[TINY_VOCAB][16];
    for (size_t i = 0; i < TINY_VOCAB; i++) {
        snprintf(fill[i], sizeof fill[i], TINY_SPACE "%c%c", 'f' + (int)(i % 10),
                 'o' + (int)(i / 10));
        tokens[i] = str_from(i < BASE_COUNT(words) ? words[i] : fill[i]);
        kinds[i] = i == 1 ? 2 : i <= 3 ? 3 : 1;
    }
    make_str(m, "tokenizer.ggml.model", "bert");
    make_strs(m, "tokenizer.ggml.tokens", tokens, TINY_VOCAB);
    make_words(m, "tokenizer.ggml.token_type", 5, kinds, TINY_VOCAB);
    make_u32(m, "tokenizer.ggml.cls_token_id", 2);
    make_u32(m, "tokenizer.ggml.seperator_token_id", 3);
    make_u32(m, "tokenizer.ggml.unknown_token_id", 1);
}

#endif
