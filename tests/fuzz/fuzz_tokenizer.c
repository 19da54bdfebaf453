/*
 * fuzz_tokenizer.c - any bytes as text, through all kinds of tokenizer with small vocabularies: no
 * token may be a guarded one. BPE and SentencePiece can write every byte, and the tokens must decode
 * to the bytes. WordPiece cannot, and may give the unknown token.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_parts_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* A vocabulary file: its header, then keys, appended one by one. */
typedef struct vocabulary {
    buf kvs, file;
    uint64_t nkvs;
} vocabulary;

static void put(buf *b, const void *p, size_t n) {
    if (n)
        buf_append(b, p, n);
}

static void put_str(buf *b, str s) {
    uint64_t n = s.n;
    put(b, &n, sizeof n);
    put(b, s.p, s.n);
}

static void key(vocabulary *v, const char *name, uint32_t type) {
    put_str(&v->kvs, str_from(name));
    put(&v->kvs, &type, sizeof type);
    v->nkvs++;
}

static void array(vocabulary *v, const char *name, uint32_t element_type, uint64_t count) {
    key(v, name, 9);
    put(&v->kvs, &element_type, sizeof element_type);
    put(&v->kvs, &count, sizeof count);
}

static void text(vocabulary *v, const char *name, const char *value_text) {
    key(v, name, 8);
    put_str(&v->kvs, str_from(value_text));
}

static tokenizer *open_vocabulary(vocabulary *v) {
    const uint32_t version = 3;
    const uint64_t no_tensors = 0;
    put(&v->file, "GGUF", 4);
    put(&v->file, &version, sizeof version);
    put(&v->file, &no_tensors, sizeof no_tensors);
    put(&v->file, &v->nkvs, sizeof v->nkvs);
    put(&v->file, v->kvs.p, v->kvs.n);
    gguf *g;
    tokenizer *t = NULL;
    err e = {0};
    if (gguf_open_memory(v->file.p, v->file.n, &g, &e) != 0 || tokenizer_new(g, &t, &e) != 0) {
        fprintf(stderr, "%s\n", e.message);
        abort();
    }
    gguf_close(g);
    buf_free(&v->kvs);
    buf_free(&v->file);
    return t;
}

/* 256 letters, <|c|> as control, <b> as user-defined, and the merges "h e", "t he", "Ġ the". */
static tokenizer *open_bpe(const char *pre) {
    enum { MADE = 5, ALL = 256 + MADE };
    static const char *const made[MADE] = {"<|c|>", "<b>", "he", "the", "\xC4\xA0the"};
    static const char *const merges[] = {"h e", "t he", "\xC4\xA0 the"};
    vocabulary v = {0};
    text(&v, "tokenizer.ggml.model", "gpt2");
    text(&v, "tokenizer.ggml.pre", pre);
    array(&v, "tokenizer.ggml.tokens", 8, ALL);
    for (uint32_t byte = 0, next = 256; byte < 256; byte++) {
        bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        char letter[4];
        put_str(&v.kvs, (str){letter, utf8_encode(itself ? byte : next++, letter)});
    }
    for (int i = 0; i < MADE; i++)
        put_str(&v.kvs, str_from(made[i]));
    array(&v, "tokenizer.ggml.token_type", 5, ALL);
    for (int32_t i = 0; i < ALL; i++)
        put(&v.kvs,
            &(int32_t){i == 256   ? TOKEN_CONTROL
                       : i == 257 ? TOKEN_USER_DEFINED
                                  : TOKEN_NORMAL},
            4);
    array(&v, "tokenizer.ggml.merges", 8, BASE_COUNT(merges));
    for (size_t i = 0; i < BASE_COUNT(merges); i++)
        put_str(&v.kvs, str_from(merges[i]));
    return open_vocabulary(&v);
}

/* <unk>, <s>, 256 byte tokens and a few words, without the space prefix. */
static tokenizer *open_spm(void) {
    static const char *const words[] = {"\xE2\x96\x81",    "t",   "h", "e", "he", "the",
                                        "\xE2\x96\x81the", "\n\n"};
    enum { WORDS = BASE_COUNT(words), FIRST = 258, ALL = FIRST + WORDS };
    vocabulary v = {0};
    text(&v, "tokenizer.ggml.model", "llama");
    array(&v, "tokenizer.ggml.tokens", 8, ALL);
    put_str(&v.kvs, STR("<unk>"));
    put_str(&v.kvs, STR("<s>"));
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", byte);
        put_str(&v.kvs, str_from(name));
    }
    for (size_t i = 0; i < WORDS; i++)
        put_str(&v.kvs, str_from(words[i]));
    array(&v, "tokenizer.ggml.token_type", 5, ALL);
    for (int32_t i = 0; i < (int32_t)ALL; i++) {
        int32_t kind = i == 0      ? TOKEN_UNKNOWN
                       : i == 1    ? TOKEN_CONTROL
                       : i < FIRST ? TOKEN_BYTE
                                   : TOKEN_NORMAL;
        put(&v.kvs, &kind, sizeof kind);
    }
    array(&v, "tokenizer.ggml.scores", 6, ALL);
    for (int i = 0; i < (int)ALL; i++)
        put(&v.kvs, &(float){-(float)i}, sizeof(float));
    key(&v, "tokenizer.ggml.add_space_prefix", 7);
    put(&v.kvs, "", 1);
    return open_vocabulary(&v);
}

/* Control tokens and a few words and pieces, with or without capitals. */
static tokenizer *open_wordpiece(bool cased) {
    static const char *const words[] = {
        "[CLS]", "[SEP]", "[UNK]",         "\xE2\x96\x81the",          "\xE2\x96\x81[",
        "s",     "e",     "\xE2\x96\x81t", "\xE2\x96\x81\xE2\x96\x81", "\xC3\xA9"};
    vocabulary v = {0};
    text(&v, "tokenizer.ggml.model", "bert");
    array(&v, "tokenizer.ggml.tokens", 8, BASE_COUNT(words) + cased);
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        put_str(&v.kvs, str_from(words[i]));
    if (cased)
        put_str(&v.kvs, STR("\xE2\x96\x81The"));
    array(&v, "tokenizer.ggml.token_type", 5, BASE_COUNT(words) + cased);
    for (size_t i = 0; i < BASE_COUNT(words) + cased; i++)
        put(&v.kvs, &(int32_t){i < 2 ? TOKEN_CONTROL : i == 2 ? TOKEN_UNKNOWN : TOKEN_NORMAL}, 4);
    return open_vocabulary(&v);
}

static void check(const tokenizer *t, str s) {
    llm_token *ids = NULL;
    size_t count = 0, cap = 0;
    buf back = {0};
    tokenizer_encode(t, s, false, true, &ids, &count, &cap);
    for (size_t i = 0; i < count; i++) {
        bool unknown = t->kind == KIND_WORDPIECE && ids[i] == t->unknown;
        if (ids[i] < 0 || ids[i] >= t->n || (token_is(t, ids[i], TOKEN_IS_GUARDED) && !unknown))
            abort();
        tokenizer_decode(t, ids[i], false, &back);
    }
    /* it means a space there */
    bool marked = t->kind == KIND_SENTENCEPIECE && s.n && memmem(s.p, s.n, "\xE2\x96\x81", 3);
    if (t->kind != KIND_WORDPIECE && !marked && !str_equal(buf_str(&back), s))
        abort();
    count = 0;
    tokenizer_encode(t, s, true, true, &ids, &count, &cap);
    free(ids);
    buf_free(&back);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const pres[] = {"smollm", "gpt2", "llama-bpe", "qwen2", "gpt-4o", "tekken"};
    /* made once, as long as the process */
    enum { PRES = BASE_COUNT(pres), SPM = PRES, PIECES, CASED_PIECES, ALL };
    static tokenizer *tokenizers[ALL];
    for (size_t i = 0; i < BASE_COUNT(tokenizers); i++) {
        if (!tokenizers[i])
            tokenizers[i] = i < PRES   ? open_bpe(pres[i])
                            : i == SPM ? open_spm()
                                       : open_wordpiece(i == CASED_PIECES);
        check(tokenizers[i], (str){(const char *)data, n});
    }
    return 0;
}
