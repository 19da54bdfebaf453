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

typedef struct runner {
    db *db;
    const char *path;
    char here[PATH_MAX], tmp[64];
    bool update;
    buf updated;
    int line, failed, records;
} runner;

static void print_value(buf *out, value v) {
    if (v.type == TYPE_NULL) {
        buf_append_c(out, "NULL");
    } else if (v.type == TYPE_BLOB) {
        value_print_sql(out, v);
    } else if (v.type == TYPE_TEXT && v.s.n == 0) {
        buf_append_c(out, "''");
    } else if (v.type == TYPE_TEXT) {
        for (size_t k = 0; k < v.s.n; k++) {
            if (v.s.p[k] == '\n')
                buf_append_c(out, "\\n");
            else
                buf_append_char(out, v.s.p[k]);
        }
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

static void check_record(runner *r, str sql, bool has_expected, str expected, int line) {
    buf text = {0}, got = {0};
    substitute(r, sql, &text);
    bool ok = run(r, buf_str(&text), &got);
    unsubstitute(r, &got);
    r->records++;
    buf_append_str(&r->updated, sql);
    if (has_expected || (!ok && r->update)) {
        buf_append_c(&r->updated, "----\n");
        buf_append_str(&r->updated, buf_str(&got));
    }
    if (has_expected ? !str_equal(buf_str(&got), expected) : !ok) {
        r->failed++;
        if (!r->update)
            printf("%s:%d:\n%.*s---- expected\n%.*s---- got\n%.*s\n", r->path, line, (int)sql.n,
                   sql.p, (int)expected.n, expected.p, (int)got.n, got.n ? got.p : "");
    }
    buf_free(&text);
    buf_free(&got);
}

static str next_line(str *rest) {
    const char *end = memchr(rest->p, '\n', rest->n);
    str line = {rest->p, end ? (size_t)(end - rest->p) + 1 : rest->n};
    *rest = (str){rest->p + line.n, rest->n - line.n};
    return line;
}

static bool is_blank(str line) {
    return line.n == 0 || (line.n == 1 && line.p[0] == '\n');
}

static void run_file(runner *r, str text) {
    while (text.n) {
        str start = text, line = next_line(&text);
        r->line++;
        if (is_blank(line) || line.p[0] == '#') {
            buf_append_str(&r->updated, line);
            continue;
        }
        int first = r->line;
        str sql = {start.p, 0}, expected = {NULL, 0};
        bool has_expected = false;
        for (; !is_blank(line); line = next_line(&text), r->line++) {
            if (!has_expected && str_equal(line, STR("----\n"))) {
                has_expected = true;
                expected = (str){text.p, 0};
            } else if (has_expected) {
                expected.n += line.n;
            } else {
                sql.n += line.n;
            }
            if (text.n == 0) {
                line = (str){"", 0};
                break;
            }
        }
        check_record(r, sql, has_expected, expected, first);
        buf_append_str(&r->updated, line);
    }
}

static bool read_file(const char *path, buf *out) {
    FILE *f = fopen(path, "rb");
    char chunk[8192];
    size_t n;
    if (!f)
        return false;
    while ((n = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(out, chunk, n);
    fclose(f);
    return true;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int test_file(const char *path, bool update) {
    runner r = {.path = path, .update = update};
    buf text = {0};
    db_options options = {0};
    err e;
    if (!read_file(path, &text)) {
        fprintf(stderr, "cannot read %s\n", path);
        return 1;
    }
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
    run_file(&r, buf_str(&text));
    db_close(r.db);
    nftw(r.tmp, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    FILE *f = update ? fopen(path, "wb") : NULL;
    if (f) {
        fwrite(r.updated.p, 1, r.updated.n, f);
        fclose(f);
    }
    printf("%s: %d statements, %d %s\n", path, r.records, r.failed, update ? "updated" : "failed");
    buf_free(&r.updated);
    buf_free(&text);
    return r.failed && !update;
}

int main(int argc, char **argv) {
    bool update = argc > 1 && strcmp(argv[1], "--update") == 0;
    int failed = 0;
    for (int k = 1 + update; k < argc; k++)
        failed |= test_file(argv[k], update);
    return failed;
}
