/*
 * test_hash.c - the backend "test:hash": answers and vectors without a model, for tests.
 *
 * An answer is a hash of template, constraint and the (name, value) pairs sorted by name, so it
 * does not depend on the order of fields, on the batch or on the cache. Tokens are runs of up to
 * three bytes of a word and can be decoded to text. Scheduling, reuse and statistics work as with a
 * real model. A vector is the sum of hashes of the text's words, so texts with words in common are near
 * each other. "test:hash:slow" sleeps 20 ms per answer or vector, so that a test can interrupt it.
 */
#ifdef KVASIR_TEST_MODELS
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_int.h"
#include "engine/guide_int.h"
#include "storage/containers.h"

/* A token contains its text: up to three bytes in bits 0-23, and their number in the bits from
 * 24 on. Token 1 is BOS. */
enum {
    TEST_PIECE = 3,
    TEST_BOS = 1,
    TEST_VOCAB = 4 << 24,
    TEST_CONTEXT = 8192,
    TEST_KV_BYTES = 1024,
    TEST_EMBEDDING = 16
};

static int test_open(llm_engine *engine, const llm_engine_options *options, err *e) {
    (void)e;
    llm_model_info *info = &engine->info;
    info->name = "hash";
    info->architecture = "test";
    info->device = "none";
    info->precision = "exact";
    info->precision_reason = "answers are hashes";
    info->chat_family = "none";
    info->default_format = LLM_FORMAT_COMPLETION;
    info->vocab = TEST_VOCAB;
    info->context = TEST_CONTEXT;
    info->generates = strstr(engine->info.path, ":embed") == NULL;
    info->embedding = TEST_EMBEDDING;
    info->pooling = "hash";
    /* the next four are only displayed */
    info->attention = options->attention;
    info->sink_tokens = options->sink_tokens;
    info->window_tokens = options->window_tokens;
    info->kv_dtype = options->kv_dtype;
    info->kv_bytes_per_token = TEST_KV_BYTES;
    info->fingerprint = hash_128("test:hash 1", 11);
    info->prefill_tok_s = 1e6;
    info->decode_tok_s = 1e5;
    engine->bos = TEST_BOS;
    engine->adds_bos = true;
    return 0;
}

static void test_close(llm_engine *engine) {
    (void)engine;
}

/* Returns 1 for a letter, 2 for a digit, 3 for a newline, 4 for a space, 5 for other bytes. */
static int byte_class(char c) {
    unsigned char u = (unsigned char)c;
    bool letter = u >= 0x80 || (u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z');
    return letter ? 1 : u >= '0' && u <= '9' ? 2 : u == '\n' ? 3 : u == ' ' ? 4 : 5;
}

/* Returns the length in bytes of the first token. A space belongs to the word after it; a digit,
 * newline or punctuation mark is a token of its own. */
static size_t piece_length(const char *p, size_t n) {
    size_t len = 1;
    int kind = byte_class(p[0]);
    if (kind == 4 && n > 1 && byte_class(p[1]) == 1)
        kind = 1;
    while (kind == 1 && len < n && len < TEST_PIECE && byte_class(p[len]) == 1)
        len++;
    return len;
}

static void test_encode(const llm_engine *engine, str text, bool parse_special, bool segment_start,
                        llm_token **out, size_t *count, size_t *cap) {
    (void)engine;
    (void)parse_special;
    (void)segment_start;
    for (size_t at = 0; at < text.n;) {
        size_t len = piece_length(text.p + at, text.n - at);
        llm_token token = (llm_token)(len << 24);
        for (size_t i = 0; i < len; i++)
            token |= (llm_token)(unsigned char)text.p[at + i] << (8 * i);
        ARRAY_PUSH(*out, *count, *cap, token);
        at += len;
    }
}

static void test_decode(const llm_engine *engine, llm_token token, bool special, buf *out) {
    (void)engine;
    if (token == TEST_BOS && special)
        buf_append_c(out, "<bos>");
    for (int i = 0; i < token >> 24; i++)
        buf_append_char(out, (char)((token >> (8 * i)) & 0xff));
}

/* ---- answers --------------------------------------------------------------------------------- */

typedef struct field {
    str name, value;
} field;

static int by_name(const void *a, const void *b) {
    const field *x = a, *y = b;
    int order = str_compare(x->name, y->name);
    return order != 0 ? order : str_compare(x->value, y->value);
}

/* Returns a hash that does not depend on the order of the lines, because the order of fields
 * changes the order of lines in examples too. */
static uint64_t lines_hash(str text) {
    uint64_t sum = 0;
    while (text.n > 0) {
        const char *newline = memchr(text.p, '\n', text.n);
        size_t n = newline != NULL ? (size_t)(newline - text.p) + 1 : text.n;
        sum += hash64(text.p, n, 7);
        text = (str){text.p + n, text.n - n};
    }
    return sum;
}

static uint64_t question_hash(const backend_question *q) {
    field *fields = mem_zalloc(sizeof *fields * (size_t)(q->nspans + 1));
    int nfields = 0;
    buf head = {0}, examples = {0};
    str name = STR("");
    for (int i = 0; i < q->nspans; i++) {
        const llm_span *span = q->spans[i];
        if (span->kind == LLM_SPAN_NAME) {
            name = span->text;
        } else if (span->kind == LLM_SPAN_VALUE) {
            fields[nfields++] = (field){name, span->text};
            name = STR("");
        } else {
            buf_append_str(span->kind == LLM_SPAN_EXAMPLE ? &examples : &head, span->text);
        }
    }
    qsort(fields, (size_t)nfields, sizeof *fields, by_name);
    uint64_t h = hash64(head.n > 0 ? head.p : "", head.n, 1);
    h = hash_mix(h, lines_hash(buf_str(&examples)));
    for (int i = 0; i < nfields; i++) {
        h = hash_mix(h, hash64(fields[i].name.p, fields[i].name.n, 2));
        h = hash_mix(h, hash64(fields[i].value.p, fields[i].value.n, 3));
    }
    if (q->guide != NULL)
        h = hash_mix(h, hash_mix(q->guide->key.low, q->guide->key.high));
    buf_free(&head);
    buf_free(&examples);
    free(fields);
    return h;
}

/* Gives the answer's literal out->prob, and divides the rest among the others by their hashes. */
static void choice_probs(uint64_t h, backend_answer *out, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) {
        out->probs[i] = 1 + (double)(hash_mix(h, (uint64_t)i) & 0xff);
        sum += i == out->choice ? 0 : out->probs[i];
    }
    for (int i = 0; i < count; i++)
        out->probs[i] *= (1 - out->prob) / (sum > 0 ? sum : 1);
    out->probs[out->choice] = out->prob;
}

static void test_answer(llm_engine *engine, const backend_question *q, backend_answer *out,
                        buf *text) {
    if (strstr(engine->info.path, ":slow") != NULL)
        usleep(20000);
    uint64_t h = question_hash(q);
    if (q->guide == NULL) {
        enum { TOKENS = 4, TOKEN_BYTES = 3 };
        buf_printf(text, "t-%08x", (unsigned)(h & 0xffffffffu));
        out->tokens = BASE_MIN((int)TOKENS, q->max_tokens);
        out->ended = q->max_tokens < TOKENS;
        text->n = BASE_MIN(text->n, (size_t)out->tokens * TOKEN_BYTES);
        return;
    }
    out->prob = 0.5 + (double)((h >> 32) & 0xffff) / 131072.0;
    if (q->guide->kind == LLM_GUIDE_CHOICE) {
        out->choice = (int)((h >> 8) % (uint64_t)q->guide->count);
        if (out->probs != NULL)
            choice_probs(h, out, q->guide->count);
        buf_append_str(text, q->guide->literals[out->choice]);
    } else if (q->guide->kind == LLM_GUIDE_INTEGER) {
        buf_printf(text, "%d", (int)(h % 100));
        out->tokens = 2;
    } else {
        buf_printf(text, "%d.%d", (int)(h % 100), (int)((h >> 16) % 10));
        out->tokens = 4;
    }
}

/* ---- vectors --------------------------------------------------------------------------------- */

static void word_add(const char *word, size_t n, float *vector) {
    uint64_t h = hash64(word, n, 11);
    for (int d = 0; n > 0 && d < TEST_EMBEDDING; d++)
        vector[d] += (h >> d) & 1 ? 1.0f : -1.0f;
}

static void test_embed(llm_engine *engine, str text, float *vector) {
    if (strstr(engine->info.path, ":slow") != NULL)
        usleep(20000);
    memset(vector, 0, sizeof *vector * TEST_EMBEDDING);
    vector[0] = 0.5f; /* no text has a vector of zeros */
    size_t from = 0;
    for (size_t at = 0; at <= text.n; at++) {
        if (at == text.n || byte_class(text.p[at]) > 2) {
            word_add(text.p + from, at - from, vector);
            from = at + 1;
        }
    }
    float square = 0;
    for (int d = 0; d < TEST_EMBEDDING; d++)
        square += vector[d] * vector[d];
    for (int d = 0; d < TEST_EMBEDDING; d++)
        vector[d] /= sqrtf(square);
}

const llm_backend backend_test = {
    .name = "test",
    .pass_tokens = 1024,
    .max_batch = 256,
    .blends = true,
    .open = test_open,
    .close = test_close,
    .encode = test_encode,
    .decode = test_decode,
    .answer = test_answer,
    .embed = test_embed,
};
#else
typedef int test_hash_is_not_built; /* ISO C requires a declaration in a file */
#endif
