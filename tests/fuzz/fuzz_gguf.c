/*
 * fuzz_gguf.c - any bytes as a GGUF file: opened, asked for everything, and given to all that read
 * such files.
 *
 * Nothing may crash, leak or read outside the bytes; what opens must answer every question.
 */
#include <stdlib.h>
#include <string.h>

#include "reference.h"
#include "text/tokenizer_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void ask_for_values(const gguf *g) {
    static const char *const keys[] = {"general.architecture",
                                       "general.name",
                                       "llama.block_count",
                                       "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.scores",
                                       "tokenizer.ggml.token_type",
                                       "flag",
                                       "ints",
                                       "reals"};
    for (size_t i = 0; i < BASE_COUNT(keys); i++) {
        uint64_t u;
        double d;
        bool b;
        str s, *strs;
        int32_t *ints;
        float *reals;
        gguf_array array;
        gguf_get_u64(g, keys[i], &u);
        gguf_get_f64(g, keys[i], &d);
        gguf_get_bool(g, keys[i], &b);
        gguf_get_str(g, keys[i], &s);
        if (!gguf_get_array(g, keys[i], &array))
            continue;
        arena *a = arena_new();
        gguf_array_strs(&array, a, &strs);
        gguf_array_i32(&array, a, &ints);
        gguf_array_f32(&array, a, &reals);
        arena_free(a);
    }
}

/* The first row of each tensor: that its data lies inside the file. */
static void read_tensors(const gguf *g) {
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const gguf_tensor *t = gguf_tensor_at(g, i);
        if (t->dims[0] > 1 << 16)
            continue;
        float *row = malloc((size_t)t->dims[0] * sizeof *row);
        model_tensor_rows(t, t->dims[1] - 1, 1, row);
        free(row);
    }
}

/* A pass of two tokens where the configuration is small enough to be quick. */
static void run_model(const gguf *g) {
    reference *r;
    err e = {0};
    if (reference_open(g, &r, &e) != 0)
        return;
    const model_config *c = reference_config(r);
    const llm_token tokens[2] = {0, (llm_token)(c->vocab - 1)};
    bool quick = (double)c->n_layers * c->n_embd * c->ffn < 1e6 && c->vocab < 1 << 16;
    if (quick && c->pooling != POOL_NONE && c->context > 1 && c->dense < 1 << 16) {
        float *vector = malloc((size_t)c->n_embd * sizeof *vector);
        reference_embed(r, tokens, 2, vector, &e);
        free(vector);
    } else if (quick && c->pooling == POOL_NONE) {
        float *logits = malloc((size_t)c->vocab * sizeof *logits);
        reference_forward(r, tokens, 2, 1, logits, &e);
        free(logits);
    }
    reference_close(r);
}

static void tokenize(const gguf *g, const uint8_t *data, size_t n) {
    tokenizer *t;
    err e = {0};
    const char *family;
    template_for_chat(g, &family);
    if (tokenizer_new(g, &t, &e) != 0)
        return;
    llm_token *ids = NULL;
    size_t count = 0, cap = 0;
    buf out = {0};
    tokenizer_encode(t, (str){(const char *)data, BASE_MIN(n, (size_t)200)}, n % 2, true, &ids,
                     &count, &cap);
    for (size_t i = 0; i < count; i++)
        tokenizer_decode(t, ids[i], true, &out);
    buf_free(&out);
    free(ids);
    tokenizer_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    gguf *g;
    err e = {0};
    if (gguf_open_memory(data, n, &g, &e) != 0)
        return 0;
    ask_for_values(g);
    read_tensors(g);
    run_model(g);
    tokenize(g, data, n);
    gguf_close(g);
    return 0;
}
