/*
 * run_plans.c - golden plan tests: queries with the tree after each rule that changed it, and the
 * plan without its estimates. A file whose first line is `# estimates` has the plan alone, with
 * estimates: no other file changes with a constant of the cost model.
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
 * Every query also runs with all rules, with as many as possible off: the rows must be the same, in
 * any order; and with those off that only choose how to read: the rows must be the same, in the
 * same order. Each file runs in a database of its own, in memory, with nominal rates, and twice
 * over one new cache: then all answers are stored and teach nothing, so that no plan hangs on the
 * records before it. `--update` writes what was printed back into the file: read the diff.
 */
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "tests/sql/golden_int.h"

typedef struct runner {
    db *db;
    const char *path;
    buf rules_off, choices_off;
    bool estimates; /* the file compares estimates, and no trees of rules */
    bool judged;    /* else the plans do not count yet */
} runner;

/* ---- statements ------------------------------------------------------------------------------ */

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
        for (int k = 0; k < b->rows; k++)
            if (stmt_is_text(s))
                buf_append_str(out, b->cols[0].s[k]);
            else
                print_row(out, b, k);
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

/* ---- the same rows with and without rules ---------------------------------------------------- */

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

static bool same_rows(runner *r, const buf *off, bool ordered, str sql, int line) {
    buf with = {0}, without = {0}, set = {0};
    buf_printf(&set, "SET rules_off = '%.*s'", (int)off->n, off->p);
    run(r, "", sql, &with);
    bool ok = set_up(r, set.p);
    run(r, "", sql, &without);
    ok = set_up(r, "SET rules_off = ''") && ok;
    if (!ordered) {
        sort_lines(&with);
        sort_lines(&without);
    }
    if (!str_equal(buf_str(&with), buf_str(&without))) {
        printf("%s:%d: other rows without %s\n%.*s---- with\n%.*s---- without\n%.*s\n", r->path,
               line, off->p, (int)sql.n, sql.p, (int)with.n, with.n ? with.p : "", (int)without.n,
               without.n ? without.p : "");
        ok = false;
    }
    buf_free(&with);
    buf_free(&without);
    buf_free(&set);
    return ok;
}

/* All rules but the one that queries with correlated subqueries need; or those that choose. */
static void list_rules(buf *out, bool choices) {
    const plan_rule_info *rule;
    for (size_t k = 0; (rule = plan_rule(k)) != NULL; k++)
        if (choices ? rule->chooses : strcmp(rule->name, "unnest") != 0)
            buf_printf(out, "%s%s", out->n ? ", " : "", rule->name);
}

/* ---- records --------------------------------------------------------------------------------- */

static const char *find(str line, const char *word) {
    return line.n ? memmem(line.p, line.n, word, strlen(word)) : NULL;
}

/* "Rules: llm_late saves 882 ms, waves saves 411 ms" as "Rules: llm_late, waves". */
static void append_rule_names(buf *out, str line) {
    for (const char *between = ""; line.n; between = ",") {
        str part = str_split_next(&line, ',');
        const char *saves = find(part, " saves ");
        buf_append_c(out, between);
        buf_append(out, part.p, saves ? (size_t)(saves - part.p) : part.n);
    }
    buf_append_char(out, '\n');
}

/* Appends EXPLAIN's text without estimates: a node's line ends before its rows, and the line of an
 * LLM node's tokens is left out. */
static void append_without_estimates(buf *out, str text) {
    while (text.n) {
        str line = golden_line(&text);
        const char *rows = find(line, "rows≈");
        if (find(line, "Rules: ") == line.p) {
            append_rule_names(out, line);
        } else if (rows) {
            while (rows > line.p && rows[-1] == ' ')
                rows--;
            buf_append(out, line.p, (size_t)(rows - line.p));
            buf_append_char(out, '\n');
        } else if (!find(line, " " WORDS_INPUTS ", ≈")) {
            buf_append_str(out, line);
        }
    }
}

/* Appends the plan, and before it the tree after each rule where these are compared. */
static void explain(runner *r, str sql, buf *out) {
    buf text = {0};
    if (!r->estimates)
        run(r, "EXPLAIN (RULES) ", sql, out);
    buf_append_c(out, "-- plan\n");
    run(r, "EXPLAIN ", sql, &text);
    if (r->estimates)
        buf_append_str(out, buf_str(&text));
    else
        append_without_estimates(out, buf_str(&text));
    buf_free(&text);
}

static void check_record(golden *g, void *ctx, str sql, const str *expected, int line) {
    runner *r = ctx;
    buf got = {0};
    g->records++;
    buf_append_str(&g->updated, sql);
    bool ok = true;
    if (expected) {
        explain(r, sql, &got);
        ok = (g->update || !r->judged || str_equal(buf_str(&got), *expected));
        buf_append_c(&g->updated, "----\n");
        buf_append_str(&g->updated, buf_str(&got));
        if (!ok)
            printf("%s:%d:\n%.*s---- expected\n%.*s---- got\n%.*s\n", r->path, line, (int)sql.n,
                   sql.p, (int)expected->n, expected->p, (int)got.n, got.p);
        ok = same_rows(r, &r->rules_off, false, sql, line) && ok;
        ok = same_rows(r, &r->choices_off, true, sql, line) && ok;
    } else if (!run(r, "", sql, &got)) {
        printf("%s:%d: %.*s", r->path, line, (int)got.n, got.p);
        ok = false;
    }
    g->failed += !ok;
    buf_free(&got);
}

static int test_file(const char *path, bool update, bool judged) {
    golden g = {.path = path, .update = update};
    runner r = {.path = path, .judged = judged};
    buf text = {0};
    db_options options = {0};
    err e;
    if (!golden_read(path, &text))
        return 1;
    if (db_open(&options, &r.db, &e) != 0) {
        fprintf(stderr, "cannot start: %s\n", e.message);
        buf_free(&text);
        return 1;
    }
    r.estimates = find(buf_str(&text), "# estimates\n") == text.p;
    list_rules(&r.rules_off, false);
    list_rules(&r.choices_off, true);
    if (set_up(&r, "SET cost_rates = 'nominal'")) {
        golden_run(&g, buf_str(&text), check_record, &r);
        if (judged)
            golden_write(&g);
        else
            buf_free(&g.updated);
    } else {
        g.failed++;
    }
    db_close(r.db);
    if (judged)
        printf("%s: %d records, %d failed%s\n", path, g.records, g.failed,
               update ? ", updated" : "");
    buf_free(&r.rules_off);
    buf_free(&r.choices_off);
    buf_free(&text);
    return g.failed != 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

int main(int argc, char **argv) {
    bool update = argc > 1 && strcmp(argv[1], "--update") == 0;
    int failed = 0;
    char cache_dir[] = "/tmp/kvasir-plans-XXXXXX";
    if (mkdtemp(cache_dir) == NULL || setenv("XDG_CACHE_HOME", cache_dir, 1) != 0) {
        perror("run_plans");
        return 1;
    }
    for (int k = 1 + update; k < argc; k++) {
        failed |= test_file(argv[k], update, false);
        failed |= test_file(argv[k], update, true);
    }
    nftw(cache_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return failed;
}
