/*
 * run_plans.c - golden plan tests: queries with the tree after each rule that changed it, and the plan.
 *
 *   # comment
 *   CREATE TABLE t (…)      a statement without `----` is set-up and must succeed
 *                           a blank line ends the record
 *   SELECT …
 *   ----
 *   -- pushdown             EXPLAIN (RULES): each rule that changed the tree, and the tree
 *   …
 *   -- plan                 EXPLAIN
 *   …
 *
 * Every query also runs twice, with all rules and with as many as possible off: the rows must be the same, in any order. Each file runs
 * in a database of its own, in memory, with nominal rates. `--update` writes what was printed back into the file: read the diff.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

typedef struct runner {
    db *db;
    const char *path;
    bool update;
    buf updated, rules_off;
    int line, failed, records;
} runner;

/* ---- statements -------------------------------------------------------------------------------- */

static void print_row(buf *out, const batch *b, int row) {
    for (int c = 0; c < b->ncols; c++) {
        buf_append_char(out, '|');
        value_print_sql(out, column_get(&b->cols[c], row));
    }
    buf_append_char(out, '\n');
}

/* Appends what the statement gives: a text, or its rows, or its error. */
static bool run(runner *r, const char *before, str sql, buf *out) {
    buf text = {0};
    const batch *b;
    stmt_status status;
    err e;
    buf_append_c(&text, before);
    buf_append_str(&text, sql);
    err_clear(&e);
    stmt *s = db_submit(r->db, buf_str(&text));
    while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS)
        for (int k = 0; k < b->rows; k++) {
            if (stmt_is_text(s))
                buf_append_str(out, b->cols[0].s[k]);
            else
                print_row(out, b, k);
        }
    if (status == STMT_ERROR)
        buf_printf(out, "error: %s\n", e.message);
    stmt_free(s);
    buf_free(&text);
    return status != STMT_ERROR;
}

static bool set_up(runner *r, const char *sql) {
    buf out = {0};
    bool ok = run(r, "", str_from(sql), &out);
    if (!ok)
        printf("%s: %s: %.*s", r->path, sql, (int)out.n, out.p);
    buf_free(&out);
    return ok;
}

/* ---- the same rows with and without rules ------------------------------------------------------- */

static int compare_lines(const void *a, const void *b) {
    return str_compare(*(const str *)a, *(const str *)b);
}

static void sort_lines(buf *text) {
    buf out = {0};
    size_t n = 0;
    for (size_t k = 0; k < text->n; k++)
        n += text->p[k] == '\n';
    str *lines = mem_alloc(sizeof *lines * (n + 1));
    const char *at = text->p;
    for (size_t k = 0; k < n; k++) {
        const char *end = memchr(at, '\n', (size_t)(text->p + text->n - at));
        lines[k] = (str){at, (size_t)(end - at) + 1};
        at = end + 1;
    }
    qsort(lines, n, sizeof *lines, compare_lines);
    for (size_t k = 0; k < n; k++)
        buf_append_str(&out, lines[k]);
    free(lines);
    buf_free(text);
    *text = out;
}

static bool same_rows(runner *r, str sql, int line) {
    buf with = {0}, without = {0}, set = {0};
    buf_printf(&set, "SET rules_off = '%.*s'", (int)r->rules_off.n, r->rules_off.p);
    run(r, "", sql, &with);
    bool ok = set_up(r, set.p);
    run(r, "", sql, &without);
    ok = set_up(r, "SET rules_off = ''") && ok;
    sort_lines(&with);
    sort_lines(&without);
    if (!str_equal(buf_str(&with), buf_str(&without))) {
        printf("%s:%d: other rows without rules\n%.*s---- with\n%.*s---- without\n%.*s\n", r->path,
               line, (int)sql.n, sql.p, (int)with.n, with.n ? with.p : "", (int)without.n,
               without.n ? without.p : "");
        ok = false;
    }
    buf_free(&with);
    buf_free(&without);
    buf_free(&set);
    return ok;
}

/* All rules but the one that queries with correlated subqueries need. */
static void list_rules(buf *out) {
    size_t n;
    const plan_rule_info *rules = plan_rules(&n);
    for (size_t k = 0; k < n; k++)
        if (strcmp(rules[k].name, "unnest") != 0)
            buf_printf(out, "%s%s", out->n ? ", " : "", rules[k].name);
}

/* ---- records ----------------------------------------------------------------------------------- */

static void check_record(runner *r, str sql, bool is_query, str expected, int line) {
    buf got = {0};
    r->records++;
    buf_append_str(&r->updated, sql);
    bool ok = true;
    if (is_query) {
        run(r, "EXPLAIN (RULES) ", sql, &got);
        buf_append_c(&got, "-- plan\n");
        run(r, "EXPLAIN ", sql, &got);
        ok = (r->update || str_equal(buf_str(&got), expected));
        buf_append_c(&r->updated, "----\n");
        buf_append_str(&r->updated, buf_str(&got));
        if (!ok)
            printf("%s:%d:\n%.*s---- expected\n%.*s---- got\n%.*s\n", r->path, line, (int)sql.n,
                   sql.p, (int)expected.n, expected.p, (int)got.n, got.p);
        ok = same_rows(r, sql, line) && ok;
    } else if (!run(r, "", sql, &got)) {
        printf("%s:%d: %.*s", r->path, line, (int)got.n, got.p);
        ok = false;
    }
    r->failed += !ok;
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
        int first = ++r->line;
        if (is_blank(line) || line.p[0] == '#') {
            buf_append_str(&r->updated, line);
            continue;
        }
        str sql = {start.p, 0}, expected = {"", 0};
        bool is_query = false;
        for (; !is_blank(line); line = text.n ? next_line(&text) : (str){"", 0}, r->line++) {
            if (is_query) {
                expected.n += line.n;
            } else if (str_equal(line, STR("----\n"))) {
                is_query = true;
                expected = (str){text.p, 0};
            } else {
                sql.n += line.n;
            }
        }
        check_record(r, sql, is_query, expected, first);
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

static int test_file(const char *path, bool update) {
    runner r = {.path = path, .update = update};
    buf text = {0};
    db_options options = {0};
    err e;
    if (!read_file(path, &text)) {
        fprintf(stderr, "cannot read %s\n", path);
        return 1;
    }
    if (db_open(&options, &r.db, &e) != 0) {
        fprintf(stderr, "cannot start: %s\n", e.message);
        buf_free(&text);
        return 1;
    }
    list_rules(&r.rules_off);
    if (set_up(&r, "SET cost_rates = 'nominal'"))
        run_file(&r, buf_str(&text));
    else
        r.failed++;
    db_close(r.db);
    FILE *f = update ? fopen(path, "wb") : NULL;
    if (f) {
        fwrite(r.updated.p, 1, r.updated.n, f);
        fclose(f);
    }
    printf("%s: %d records, %d failed%s\n", path, r.records, r.failed, update ? ", updated" : "");
    buf_free(&r.rules_off);
    buf_free(&r.updated);
    buf_free(&text);
    return r.failed != 0;
}

int main(int argc, char **argv) {
    bool update = argc > 1 && strcmp(argv[1], "--update") == 0;
    int failed = 0;
    for (int k = 1 + update; k < argc; k++)
        failed |= test_file(argv[k], update);
    return failed;
}
