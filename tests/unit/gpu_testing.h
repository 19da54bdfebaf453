/*
 * gpu_testing.h - what the tests of gpu/ share: where vectors and the model are, one line of JSON,
 * GGUF bytes made in memory.
 *
 * Everything is static inline, so that a test takes what it needs. Buffers belong to the caller.
 */
#ifndef KVASIR_GPU_TESTING_H
#define KVASIR_GPU_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/llm.h"
#include "model/gguf_int.h"

/* ---- files ---------------------------------------------------------------------------------- */

/* A path of the source tree. */
static inline const char *source_path(const char *name, char out[4096]) {
    snprintf(out, 4096, "%s/%s", KVASIR_SOURCE_DIR, name);
    return out;
}

/* A shared vector file, or NULL where this checkout has none. */
static inline const char *shared_vectors(const char *name, char out[4096]) {
    const char *shared = getenv("KVASIR_SHARED");
    char relative[256];
    snprintf(relative, sizeof relative, "../shared/vectors/%s", name);
    if (shared && *shared)
        snprintf(out, 4096, "%s/vectors/%s", shared, name);
    else
        source_path(relative, out);
    return access(out, R_OK) == 0 ? out : NULL;
}

/* The path of a file where the quick start keeps models, or NULL where it was not fetched. */
static inline const char *fetched_path(const char *name, char out[4096]) {
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    bool own = data && *data;
    snprintf(out, 4096, "%s%s/kvasir/models/%s",
             own    ? data
             : home ? home
                    : "",
             own ? "" : "/.local/share", name);
    return access(out, R_OK) == 0 ? out : NULL;
}

/* The default model's path, or NULL where it was not fetched. */
static inline const char *model_path(char out[4096]) {
    const char *model = getenv("KVASIR_MODEL");
    if (!model || !*model)
        return fetched_path("SmolLM2-135M-Instruct.Q4_1.gguf", out);
    snprintf(out, 4096, "%s", model);
    return access(out, R_OK) == 0 ? out : NULL;
}

/* ---- JSON ----------------------------------------------------------------------------------- */

/* The place behind "key": in a line, or NULL. Keys of the vectors do not occur inside their texts.
 */
static inline const char *json_value(const char *line, const char *key) {
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = line ? strstr(line, quoted) : NULL;
    if (!at)
        return NULL;
    at += strlen(quoted);
    return at + strspn(at, " ");
}

static inline unsigned json_hex4(const char *p) {
    char digits[5] = {p[0], p[1], p[2], p[3], 0};
    return (unsigned)strtoul(digits, NULL, 16);
}

/* Appends the string that starts at `at` (its quote) to
 * `out`, unescaped; NUL bytes stay. Returns what follows. */
static inline const char *json_string(const char *at, buf *out) {
    for (at++; *at != '"'; at++) {
        if (*at != '\\') {
            buf_append_char(out, *at);
            continue;
        }
        at++;
        const char *from = "nrtbf", *to = "\n\r\t\b\f", *hit = strchr(from, *at);
        if (*at != 'u') {
            buf_append_char(out, hit ? to[hit - from] : *at);
            continue;
        }
        uint32_t cp = json_hex4(at + 1);
        at += 4;
        if (cp >= 0xD800 && cp < 0xDC00 && at[1] == '\\' && at[2] == 'u') {
            cp = 0x10000 + ((cp - 0xD800) << 10) + (json_hex4(at + 3) - 0xDC00);
            at += 6;
        }
        char bytes[4];
        buf_append(out, bytes, utf8_encode(cp, bytes));
    }
    return at + 1;
}

/* Reads "[1, 2, 3]" into out[0..cap); returns the count. */
static inline size_t json_ints(const char *at, llm_token *out, size_t cap) {
    size_t n = 0;
    for (at += 1 + strspn(at + 1, " "); *at && *at != ']' && n < cap; n++) {
        char *end;
        out[n] = (llm_token)strtol(at, &end, 10);
        at = end + strspn(end, ", ");
    }
    return n;
}

/* ---- GGUF made in memory -------------------------------------------------------------------- */

typedef struct gguf_maker {
    buf kvs, infos, data, file;
    uint64_t nkvs, ntensors;
} gguf_maker;

static inline void put_u32(buf *b, uint32_t v) {
    buf_append(b, &v, sizeof v);
}

static inline void put_u64(buf *b, uint64_t v) {
    buf_append(b, &v, sizeof v);
}

static inline void put_str(buf *b, str s) {
    put_u64(b, s.n);
    if (s.n)
        buf_append(b, s.p, s.n);
}

static inline void make_key(gguf_maker *m, const char *key, uint32_t type) {
    put_str(&m->kvs, str_from(key));
    put_u32(&m->kvs, type);
    m->nkvs++;
}

static inline void make_u32(gguf_maker *m, const char *key, uint32_t v) {
    make_key(m, key, 4);
    put_u32(&m->kvs, v);
}

static inline void make_f32(gguf_maker *m, const char *key, float v) {
    make_key(m, key, 6);
    buf_append(&m->kvs, &v, sizeof v);
}

static inline void make_bool(gguf_maker *m, const char *key, bool v) {
    make_key(m, key, 7);
    buf_append_char(&m->kvs, v);
}

static inline void make_str(gguf_maker *m, const char *key, const char *v) {
    make_key(m, key, 8);
    put_str(&m->kvs, str_from(v));
}

static inline void make_strs(gguf_maker *m, const char *key, const str *v, size_t n) {
    make_key(m, key, 9);
    put_u32(&m->kvs, 8);
    put_u64(&m->kvs, n);
    for (size_t i = 0; i < n; i++)
        put_str(&m->kvs, v[i]);
}

/* An array of 4-byte elements: type 5 is i32, 6 is f32. */
static inline void make_words(gguf_maker *m, const char *key, uint32_t type, const void *v,
                              size_t n) {
    make_key(m, key, 9);
    put_u32(&m->kvs, type);
    put_u64(&m->kvs, n);
    buf_append(&m->kvs, v, n * 4);
}

static inline void make_tensor(gguf_maker *m, const char *name, uint32_t type, uint64_t columns,
                               uint64_t rows, const void *data, size_t bytes) {
    while (m->data.n % 32)
        buf_append_char(&m->data, 0);
    put_str(&m->infos, str_from(name));
    put_u32(&m->infos, 2);
    put_u64(&m->infos, columns);
    put_u64(&m->infos, rows);
    put_u32(&m->infos, type);
    put_u64(&m->infos, m->data.n);
    buf_append(&m->data, data, bytes);
    m->ntensors++;
}

/* The whole file; lives in the maker. */
static inline str make_file(gguf_maker *m, uint32_t version) {
    buf_clear(&m->file);
    buf_append_c(&m->file, "GGUF");
    put_u32(&m->file, version);
    put_u64(&m->file, m->ntensors);
    put_u64(&m->file, m->nkvs);
    buf_append_str(&m->file, buf_str(&m->kvs));
    buf_append_str(&m->file, buf_str(&m->infos));
    while (m->file.n % 32)
        buf_append_char(&m->file, 0);
    buf_append_str(&m->file, buf_str(&m->data));
    return buf_str(&m->file);
}

static inline void make_free(gguf_maker *m) {
    buf_free(&m->kvs);
    buf_free(&m->infos);
    buf_free(&m->data);
    buf_free(&m->file);
}

#endif
