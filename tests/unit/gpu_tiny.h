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
    TINY_TOKENS = 12
};

enum tiny_trait {
    TINY_BIAS = 1, /* q, k, v */
    TINY_QK_NORM = 2,
    TINY_POST_NORM = 4,
    TINY_FUSED = 8,
    TINY_HEAD = 16,     /* output.weight of its own */
    TINY_DIVISORS = 32, /* rope_freqs.weight */
    TINY_CAPS = 64,     /* soft caps of 5 and 3 */
    TINY_OUT_BIAS = 128
};

typedef struct tiny_model {
    const char *name, *arch;
    int layers, head_dim;
    unsigned traits;
    int window;          /* 0: no key */
    const char *scaling; /* NULL: no key; else with factor 4 and an original context of 16 */
} tiny_model;

static const tiny_model tiny_models[] = {
    {"llama", "llama", 2, 8, 0, 0, NULL},
    {"llama-head", "llama", 2, 8, TINY_HEAD, 0, NULL},
    {"llama-bias", "llama", 2, 8, TINY_BIAS | TINY_OUT_BIAS, 0, NULL},
    {"llama3", "llama", 2, 8, TINY_DIVISORS, 0, NULL},
    {"llama-linear", "llama", 2, 8, 0, 0, "linear"},
    {"llama-yarn", "llama", 2, 8, 0, 0, "yarn"},
    {"smollm3", "smollm3", 4, 8, 0, 0, NULL},
    {"qwen2", "qwen2", 2, 8, TINY_BIAS, 0, NULL},
    {"qwen3", "qwen3", 2, 16, TINY_QK_NORM, 0, NULL},
    {"phi3", "phi3", 2, 8, TINY_FUSED | TINY_HEAD, 5, NULL},
    {"gemma", "gemma", 2, 16, 0, 0, NULL},
    {"gemma2", "gemma2", 3, 16, TINY_POST_NORM | TINY_CAPS, 5, NULL},
    {"gemma3", "gemma3", 7, 16, TINY_POST_NORM | TINY_QK_NORM, 5, "linear"},
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

static inline void tiny_layer(gguf_maker *m, const tiny_model *t, int layer) {
    int q = TINY_HEADS * t->head_dim, kv = TINY_KV_HEADS * t->head_dim;
    bool fused = t->traits & TINY_FUSED;
    tiny_in_layer(m, layer, "attn_norm.weight", TINY_EMBD, 1, 1, 0.5f);
    tiny_in_layer(m, layer, "ffn_norm.weight", TINY_EMBD, 1, 1, 0.5f);
    if (fused) {
        tiny_in_layer(m, layer, "attn_qkv.weight", TINY_EMBD, q + 2 * kv, 0, 1);
        tiny_in_layer(m, layer, "ffn_up.weight", TINY_EMBD, 2 * TINY_FFN, 0, 1);
    } else {
        tiny_in_layer(m, layer, "attn_q.weight", TINY_EMBD, q, 0, 1);
        tiny_in_layer(m, layer, "attn_k.weight", TINY_EMBD, kv, 0, 1);
        tiny_in_layer(m, layer, "attn_v.weight", TINY_EMBD, kv, 0, 1);
        tiny_in_layer(m, layer, "ffn_gate.weight", TINY_EMBD, TINY_FFN, 0, 1);
        tiny_in_layer(m, layer, "ffn_up.weight", TINY_EMBD, TINY_FFN, 0, 1);
    }
    tiny_in_layer(m, layer, "attn_output.weight", q, TINY_EMBD, 0, 1);
    tiny_in_layer(m, layer, "ffn_down.weight", TINY_FFN, TINY_EMBD, 0, 1);
    if (t->traits & TINY_BIAS) {
        tiny_in_layer(m, layer, "attn_q.bias", q, 1, 0, 1);
        tiny_in_layer(m, layer, "attn_k.bias", kv, 1, 0, 1);
        tiny_in_layer(m, layer, "attn_v.bias", kv, 1, 0, 1);
    }
    if (t->traits & TINY_OUT_BIAS)
        tiny_in_layer(m, layer, "attn_output.bias", TINY_EMBD, 1, 0, 1);
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
    tiny_key_u32(m, t, "attention.head_count_kv", TINY_KV_HEADS);
    tiny_key_u32(m, t, "attention.key_length", t->head_dim);
    tiny_key_u32(m, t, "attention.value_length", t->head_dim);
    tiny_key_u32(m, t, "context_length", 64);
    tiny_key_f32(m, t, "attention.layer_norm_rms_epsilon", 1e-5f);
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

/* The model's file; free the maker after the gguf that is opened from it. */
static inline str tiny_make(gguf_maker *m, const tiny_model *t) {
    tiny_keys(m, t);
    tiny_tensor(m, "token_embd.weight", TINY_EMBD, TINY_VOCAB, 0, 4);
    tiny_tensor(m, "output_norm.weight", TINY_EMBD, 1, 1, 0.5f);
    if (t->traits & TINY_HEAD)
        tiny_tensor(m, "output.weight", TINY_EMBD, TINY_VOCAB, 0, 4);
    if (t->traits & TINY_DIVISORS)
        tiny_tensor(m, "rope_freqs.weight", t->head_dim / 2, 1, 4, 4);
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

#endif
