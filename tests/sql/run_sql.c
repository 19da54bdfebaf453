/*
 * run_sql.c - runs golden SQL tests: statements with what they print.
 *
 *   # comment
 *   SELECT 1, 'a'          one statement, on any number of lines
 *   ----
 *   1|a                    rows; or `ok`, `ok 3` (rows changed), `error: message`, `hint: …`, `at
 * line:column` a blank line ends the record
 *
 * A record without `----` must succeed, whatever it prints. Each file runs in a database of its
 * own, in memory. `$TMP` stands for a fresh directory, `$HERE` for that of the test file.
 * `--update` writes what was printed back into the file: read the diff.
 */
#include <ftw.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec/exec.h"
#include "tests/sql/golden_int.h"

typedef struct runner {
    db *db;
    char here[PATH_MAX], tmp[64];
} runner;

static void print_value(buf *out, value v) {
    if (v.type == TYPE_NULL) {
        buf_append_c(out, "NULL");
    } else if (v.type == TYPE_BLOB) {
        value_print_sql(out, v);
    } else if (v.type == TYPE_TEXT && v.s.n == 0) {
        buf_append_c(out, "''");
    } else if (v.type == TYPE_TEXT) {
        for (size_t k = 0; k < v.s.n; k++)
            if (v.s.p[k] == '\n')
                buf_append_c(out, "\\n");
            else
                buf_append_char(out, v.s.p[k]);
    } else {
        value_print(out, v);
    }
}

static void print_batch(buf *out, const batch *b, bool is_text) {
    for (int k = 0; k < b->rows; k++) {
        if (is_text) {
            buf_append_str(out, b->cols[0].s[k]);
            continue;
        }
        for (int c = 0; c < b->ncols; c++) {
            buf_append_c(out, c ? "|" : "");
            print_value(out, column_get(&b->cols[c], k));
        }
        buf_append_char(out, '\n');
    }
}

static void print_error(buf *out, str sql, const err *e) {
    buf_printf(out, "error: %s\n", e->message);
    if (e->hint[0])
        buf_printf(out, "hint: %s\n", e->hint);
    if (e->pos >= 0) {
        int line, at;
        sql_error_place(sql, e->pos, &line, &at);
        buf_printf(out, "at %d:%d\n", line, at);
    }
}

/* Runs one statement; false: it failed. */
static bool run(runner *r, str sql, buf *out) {
    stmt *s = db_submit(r->db, sql);
    const batch *b;
    stmt_status status;
    err e;
    err_clear(&e);
    while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS)
        print_batch(out, b, stmt_is_text(s));
    if (status == STMT_ERROR)
        print_error(out, sql, &e);
    else if (stmt_changes(s) >= 0)
        buf_printf(out, "ok %lld\n", (long long)stmt_changes(s));
    else if (stmt_column_count(s) == 0)
        buf_append_c(out, "ok\n");
    stmt_free(s);
    return status != STMT_ERROR;
}

static void substitute(const runner *r, str text, buf *out) {
    for (size_t k = 0; k < text.n; k++) {
        str rest = {text.p + k, text.n - k};
        if (rest.n >= 4 && memcmp(rest.p, "$TMP", 4) == 0) {
            buf_append_c(out, r->tmp);
            k += 3;
        } else if (rest.n >= 5 && memcmp(rest.p, "$HERE", 5) == 0) {
            buf_append_c(out, r->here);
            k += 4;
        } else {
            buf_append_char(out, text.p[k]);
        }
    }
}

/* The reverse for messages with paths in them. */
static void unsubstitute(const runner *r, buf *text) {
    buf out = {0};
    size_t n = strlen(r->tmp), m = strlen(r->here);
    for (size_t k = 0; k < text->n; k++) {
        if (text->n - k >= n && memcmp(text->p + k, r->tmp, n) == 0) {
            buf_append_c(&out, "$TMP");
            k += n - 1;
        } else if (m && text->n - k >= m && memcmp(text->p + k, r->here, m) == 0) {
            buf_append_c(&out, "$HERE");
            k += m - 1;
        } else {
            buf_append_char(&out, text->p[k]);
        }
    }
    buf_free(text);
    *text = out;
}

static void check_record(golden *g, void *ctx, str sql, const str *expected, int line) {
    runner *r = ctx;
    buf text = {0}, got = {0};
    substitute(r, sql, &text);
    bool ok = run(r, buf_str(&text), &got);
    unsubstitute(r, &got);
    g->records++;
    buf_append_str(&g->updated, sql);
    if (expected || (!ok && g->update)) {
        buf_append_c(&g->updated, "----\n");
        buf_append_str(&g->updated, buf_str(&got));
    }
    if (expected ? !str_equal(buf_str(&got), *expected) : !ok) {
        g->failed++;
        str wanted = expected ? *expected : STR("");
        if (!g->update)
            printf("%s:%d:\n%.*s---- expected\n%.*s---- got\n%.*s\n", g->path, line, (int)sql.n,
                   sql.p, (int)wanted.n, wanted.p, (int)got.n, got.n ? got.p : "");
    }
    buf_free(&text);
    buf_free(&got);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int test_file(const char *path, bool update) {
    golden g = {.path = path, .update = update};
    runner r = {0};
    buf text = {0};
    db_options options = {0};
    err e;
    if (!golden_read(path, &text))
        return 1;
    if (!realpath(path, r.here)) {
        fprintf(stderr, "no file %s\n", path);
        buf_free(&text);
        return 1;
    }
    (void)dirname(r.here); /* cuts it in place */
    snprintf(r.tmp, sizeof r.tmp, "/tmp/run_sql-XXXXXX");
    if (!mkdtemp(r.tmp) || setenv("XDG_CACHE_HOME", r.tmp, 1) != 0 ||
        db_open(&options, &r.db, &e) != 0) {
        fprintf(stderr, "cannot start: %s\n", e.message);
        buf_free(&text);
        return 1;
    }
    golden_run(&g, buf_str(&text), check_record, &r);
    int differing = g.failed;
    db_close(r.db);
    nftw(r.tmp, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    g.failed = 0; /* an update is what differing records are for; not to be written is a failure */
    golden_write(&g);
    printf("%s: %d statements, %d %s\n", path, g.records, differing, update ? "updated" : "failed");
    buf_free(&text);
    return g.failed || (differing && !update);
}

int main(int argc, char **argv) {
    bool update = argc > 1 && strcmp(argv[1], "--update") == 0;
    int failed = 0;
    for (int k = 1 + update; k < argc; k++)
        failed |= test_file(argv[k], update);
    return failed;
}
