/*
 * fuzz_json.c - any bytes as a JSON file: read as the detected types and as texts. What is read must
 * also be JSON to cJSON, with as many objects and the same strings, and must read the same from a
 * pipe in pieces. Also as a JSON array of texts.
 */
#include <cjson/cJSON.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/file_int.h"

enum { PIECE_MAX = 64, PIPE_MAX = 2048, PIECES = 16, NUMBER_MAX = 60 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all rows and closes the reader; `copy` gets them as SQL literals, a line each. false: the
 * file is refused. */
static bool read_rows(table_file *f, buf *copy) {
    err e;
    int n = table_file_column_count(f), status;
    value_type *types = malloc(sizeof *types * (size_t)BASE_MAX(n, 1));
    arena *mem = arena_new();
    batch b = {.rows = 1, .mem = mem};
    for (int i = 0; i < n; i++)
        types[i] = table_file_column_type(f, i);
    do {
        arena_reset(mem);
        b.mem = mem;
        status = table_file_next(f, types, &b, NULL, &e);
        for (int r = 0; !status && r < b.rows; r++) {
            for (int i = 0; i < n; i++) {
                value_print_sql(copy, column_get(&b.cols[i], r));
                buf_append_char(copy, ',');
            }
            buf_append_char(copy, '\n');
        }
    } while (!status && b.rows);
    arena_free(mem);
    free(types);
    table_file_close(f);
    return status == 0;
}

/* ---- what cJSON says ------------------------------------------------------------------------- */

/* cJSON refuses numbers of more than 63 characters, and ends strings at \u0000. */
static bool beyond_cjson(const uint8_t *p, size_t n) {
    size_t number = 0;
    for (size_t i = 0; i < n; i++) {
        number = memchr("0123456789+-.eE", p[i], 15) ? number + 1 : 0;
        if (number > NUMBER_MAX || (n - i >= 6 && memcmp(p + i, "\\u0000", 6) == 0))
            return true;
    }
    return false;
}

/* Compares an object with a row of texts. */
static void check_object(const table_file *f, const batch *b, int row, const cJSON *object) {
    if (!cJSON_IsObject(object))
        abort();
    for (int i = 0; i < b->ncols; i++) {
        char *key = mem_strndup(f->names[i].p, f->names[i].n);
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
        bool null = column_is_null(&b->cols[i], row);
        /* a name with a number, or column1, is not a key */
        if (item && cJSON_IsNull(item) != null)
            abort();
        if (item && cJSON_IsString(item) &&
            !str_equal(b->cols[i].s[row], str_from(item->valuestring)))
            abort();
        free(key);
    }
}

/* Parses the next value at *p. */
static cJSON *next_value(const char **p, const char *end) {
    const char *stop = NULL;
    cJSON *v = cJSON_ParseWithLengthOpts(*p, (size_t)(end - *p), &stop, false);
    if (!v)
        abort();
    *p = stop;
    return v;
}

/* Reads the file as texts, which the reader accepts, beside cJSON. */
static void check_cjson(const uint8_t *data, size_t size) {
    err e;
    table_file *f;
    file_options texts = {.format = FILE_JSON, .all_text = true};
    if (table_file_open_memory(data, size, &texts, &f, &e) != 0)
        abort();
    const char *p = (const char *)data, *end = p + size;
    if (size >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        p += 3;
    size_t blanks = strspn(f->in.p + f->in.start, " \t\r\n");
    cJSON *array = f->in.p[f->in.start + blanks] == '[' ? next_value(&p, end) : NULL;
    const cJSON *element = array ? array->child : NULL;
    value_type *types = f->types;
    arena *mem = arena_new();
    batch b = {.rows = 1, .mem = mem};
    while (b.rows) {
        arena_reset(mem);
        b.mem = mem;
        if (table_file_next(f, types, &b, NULL, &e) != 0)
            abort();
        for (int r = 0; r < b.rows; r++) {
            cJSON *object = array ? NULL : next_value(&p, end);
            check_object(f, &b, r, array ? element : object);
            element = array ? element->next : NULL;
            cJSON_Delete(object);
        }
    }
    if (element)
        abort();
    cJSON_Delete(array);
    arena_free(mem);
    table_file_close(f);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Reads the bytes from a pipe that returns a few of them at a time. */
static void check_pieces(const uint8_t *p, size_t n, str whole) {
    int ends[2];
    char path[64];
    if (n > PIPE_MAX || pipe2(ends, O_CLOEXEC | O_DIRECT) != 0)
        return;
    bool full = fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0;
    int pieces = 0;
    for (size_t at = 0, piece; at < n && !full; at += piece) {
        piece = ++pieces == PIECES ? n - at : BASE_MIN(n - at, (size_t)p[at] % PIECE_MAX + 1);
        full = write(ends[1], p + at, piece) != (ssize_t)piece;
    }
    close(ends[1]);
    if (full) { /* the system gives small pipes to who has many */
        close(ends[0]);
        return;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0]);
    table_file *f = NULL;
    file_options json = {.format = FILE_JSON};
    err e;
    buf copy = {0};
    if (table_file_open(path, &json, &f, &e) != 0 || !read_rows(f, &copy) ||
        !str_equal(buf_str(&copy), whole))
        abort();
    buf_free(&copy);
    close(ends[0]);
}

/* A JSON array of texts is one to cJSON, too, with the same strings. */
static void check_texts(const uint8_t *data, size_t size) {
    arena *mem = arena_new();
    str *texts;
    int n;
    if (json_texts((str){(const char *)data, size}, mem, &texts, &n) && !beyond_cjson(data, size)) {
        cJSON *array = cJSON_ParseWithLength((const char *)data, size);
        if (!cJSON_IsArray(array) || cJSON_GetArraySize(array) != n)
            abort();
        const cJSON *x = array->child;
        for (int i = 0; i < n; i++, x = x->next)
            if (cJSON_IsNull(x) != (texts[i].p == NULL) ||
                (cJSON_IsString(x) && !str_equal(texts[i], str_from(x->valuestring))))
                abort();
        cJSON_Delete(array);
    }
    arena_free(mem);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    file_options json = {.format = FILE_JSON};
    table_file *f = NULL;
    err e;
    buf whole = {0};
    check_texts(data, size);
    if (table_file_open_memory(data, size, &json, &f, &e) == 0 && read_rows(f, &whole)) {
        if (!beyond_cjson(data, size))
            check_cjson(data, size);
        if (size >= 2 && memcmp(data, "\x1f\x8b", 2) != 0)
            check_pieces(data, size, buf_str(&whole));
    }
    buf_free(&whole);
    return 0;
}
