/*
 * golden_int.h - files of records, a statement and what it prints, that their runner compares and,
 * with --update, writes anew. Included by each runner of such files.
 *
 *   # comment
 *   a statement, on any number of lines
 *   ----                    may be missing
 *   what it prints
 *                           a blank line, or the end of the file, ends the record
 *
 * Invariant: what a runner does not change comes back byte by byte in `updated`.
 */
#ifndef KVASIR_GOLDEN_INT_H
#define KVASIR_GOLDEN_INT_H

#include <stdio.h>
#include <string.h>

#include "storage/base.h"

typedef struct golden {
    const char *path;
    bool update;
    buf updated; /* the file as it should be: freed by golden_write */
    int line, failed, records;
} golden;

/* Runs one record that begins at `line`, appends it to g->updated, and counts it in g->failed where
 * it is not as expected. `expected` is NULL where the record has no ----. */
typedef void golden_check(golden *g, void *ctx, str sql, const str *expected, int line);

static inline bool golden_read(const char *path, buf *out) {
    FILE *f = fopen(path, "rb");
    char chunk[8192];
    size_t n;
    if (!f) {
        fprintf(stderr, "cannot read %s\n", path);
        return false;
    }
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(out, chunk, n);
    bool whole = !ferror(f);
    fclose(f);
    return whole;
}

/* Writes the file back where it is to be updated. */
static inline void golden_write(golden *g) {
    FILE *f = g->update ? fopen(g->path, "wb") : NULL;
    if (g->update &&
        (!f || fwrite(g->updated.p, 1, g->updated.n, f) != g->updated.n || fflush(f) != 0)) {
        fprintf(stderr, "cannot write %s\n", g->path);
        g->failed++;
    }
    if (f)
        fclose(f);
    buf_free(&g->updated);
}

static inline str golden_line(str *rest) {
    const char *end = rest->n ? memchr(rest->p, '\n', rest->n) : NULL;
    str line = {rest->p, end ? (size_t)(end - rest->p) + 1 : rest->n};
    *rest = (str){rest->p + line.n, rest->n - line.n};
    return line;
}

static inline bool golden_is_blank(str line) {
    return line.n == 0 || (line.n == 1 && line.p[0] == '\n');
}

static inline void golden_run(golden *g, str text, golden_check *check, void *ctx) {
    while (text.n) {
        str start = text, line = golden_line(&text);
        int first = ++g->line;
        if (golden_is_blank(line) || line.p[0] == '#') {
            buf_append_str(&g->updated, line);
            continue;
        }
        str sql = {start.p, 0}, expected = {NULL, 0};
        for (; !golden_is_blank(line); line = golden_line(&text), g->line++)
            if (expected.p)
                expected.n += line.n;
            else if (str_equal(line, STR("----\n")))
                expected = (str){text.p, 0};
            else
                sql.n += line.n;
        check(g, ctx, sql, expected.p ? &expected : NULL, first);
        buf_append_str(&g->updated, line);
    }
}

#endif
