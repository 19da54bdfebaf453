/*
 * sql_trees.c - the runner of the .tree files here: binds each statement over the fixture and
 * compares what is printed.
 *
 *   sql_trees FILE…            compare sql_trees --update FILE… write the output into the
 * files
 *
 * A file is blocks: a statement's lines, "----", the expected lines up to a blank line. Lines of #
 * before a block stay.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

static const char *const kinds[] = {"SELECT",       "INSERT",        "UPDATE",
                                    "DELETE",       "CREATE TABLE",  "CREATE TABLE AS",
                                    "CREATE INDEX", "CREATE VIEW",   "CREATE MODEL",
                                    "DROP TABLE",   "DROP INDEX",    "DROP VIEW",
                                    "DROP MODEL",   "ADD COLUMN",    "DROP COLUMN",
                                    "RENAME TABLE", "RENAME COLUMN", "COPY FROM",
                                    "COPY TO",      "BEGIN",         "COMMIT",
                                    "ROLLBACK",     "SET",           "RESET",
                                    "SHOW",         "EXPLAIN",       "ANALYZE",
                                    "SHOW CACHE",   "CLEAR CACHE",   "WARM",
                                    "UNPIN"};

static void print_error(str text, const err *e, buf *out) {
    buf_printf(out, "error: %s\n", e->message);
    sql_error_caret(text, e, 80, out);
    if (e->hint[0])
        buf_printf(out, "hint: %s\n", e->hint);
}

static void print_columns(const rel *r, buf *out) {
    buf_append_c(out, "columns:");
    for (int i = 0; i < r->ncols; i++)
        buf_printf(out, "%s %.*s %s", i ? "," : "", (int)r->cols[i].name.n, r->cols[i].name.p,
                   type_name(r->cols[i].type));
    buf_append_char(out, '\n');
}

static void print_stmt(const sql_stmt *s, buf *out) {
    if (s->kind != STMT_SELECT)
        buf_printf(out, "%s", kinds[s->kind]);
    if (s->name.n)
        buf_printf(out, " %.*s", (int)s->name.n, s->name.p);
    if (s->new_name.n)
        buf_printf(out, " to %.*s", (int)s->new_name.n, s->new_name.p);
    if (s->kind == STMT_SET) {
        buf_append_c(out, " = ");
        value_print_sql(out, s->set_value);
    }
    for (int i = 0; i < s->create_table.ncolumns; i++)
        buf_printf(out, "%s %.*s %s%s", i ? "," : ":", (int)s->create_table.columns[i].name.n,
                   s->create_table.columns[i].name.p, type_name(s->create_table.columns[i].type),
                   s->create_table.columns[i].not_null ? " NOT NULL" : "");
    for (int i = 0; i < s->create_table.nindexes; i++)
        buf_printf(out, " index %.*s", (int)s->create_table.indexes[i].name.n,
                   s->create_table.indexes[i].name.p);
    if (s->create_index.ncolumns)
        buf_printf(out, " index %.*s", (int)s->create_index.name.n, s->create_index.name.p);
    if (s->create_view.sql.n)
        buf_printf(out, ": %.*s", (int)s->create_view.sql.n, s->create_view.sql.p);
    if (s->kind != STMT_SELECT)
        buf_append_char(out, '\n');
    for (int i = 0; i < s->nchecks; i++) {
        buf_append_c(out, "check ");
        expr_print(s->checks[i].value, out);
        buf_append_char(out, '\n');
    }
    if (s->conflict_set)
        for (int i = 0; i < s->table->ncolumns; i++)
            if (s->conflict_set[i]) {
                buf_printf(out, "on conflict %.*s = ", (int)s->table->columns[i].name.n,
                           s->table->columns[i].name.p);
                expr_print(s->conflict_set[i], out);
                buf_append_char(out, '\n');
            }
    if (s->query) {
        print_columns(s->query, out);
        rel_print(s->query, out);
    }
    if (s->explain.stmt)
        print_stmt(s->explain.stmt, out);
}

static void run(str text, const bind_env *env, buf *out) {
    arena *mem = arena_new();
    err e = {0};
    sql_stmt *s = NULL;
    if (sql_bind_text(text, env, mem, &s, &e))
        print_error(text, &e, out);
    else
        print_stmt(s, out);
    arena_free(mem);
}

static char *read_file(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        exit(2);
    }
    buf b = {0};
    char chunk[4096];
    size_t got;
    while ((got = fread(chunk, 1, sizeof chunk, f)) > 0)
        buf_append(&b, chunk, got);
    fclose(f);
    *n = b.n;
    return b.p ? b.p : mem_strndup("", 0);
}

static str next_line(const char **at) {
    const char *end = strchr(*at, '\n');
    str line = {*at, end ? (size_t)(end - *at) : strlen(*at)};
    *at = end ? end + 1 : *at + line.n;
    return line;
}

/* Runs a file's blocks and writes them again, with what came out; counts the blocks that differ. */
static int run_file(const char *path, const bind_env *env, buf *again) {
    size_t n;
    char *text = read_file(path, &n);
    const char *at = text;
    int wrong = 0;
    while (*at) {
        const char *start = at;
        str line = next_line(&at);
        if (line.n == 0 || line.p[0] == '#') {
            buf_append(again, start, (size_t)(at - start));
            continue;
        }
        str statement = {start, line.n};
        while (*at) {
            line = next_line(&at);
            if (str_equal(line, STR("----")))
                break;
            statement.n = (size_t)(line.p - start) + line.n;
        }
        const char *expected = at;
        str want = {at, 0};
        while (*at && (line = next_line(&at)).n)
            want.n = (size_t)(at - expected);
        buf got = {0};
        run(statement, env, &got);
        if (!str_equal(buf_str(&got), want)) {
            wrong++;
            fprintf(stderr, "%s: %.*s\n--- expected\n%.*s--- got\n%s\n", path, (int)statement.n,
                    statement.p, (int)want.n, want.p, got.p ? got.p : "");
        }
        buf_printf(again, "%.*s\n----\n%s\n", (int)statement.n, statement.p, got.p ? got.p : "");
        buf_free(&got);
    }
    free(text);
    return wrong;
}

int main(int argc, char **argv) {
    bool write = argc > 1 && strcmp(argv[1], "--update") == 0;
    fixture f;
    fixture_init(&f);
    int wrong = 0;
    for (int i = write ? 2 : 1; i < argc; i++) {
        buf again = {0};
        wrong += run_file(argv[i], &f.env, &again);
        if (write) {
            FILE *out = fopen(argv[i], "wb");
            if (!out || fwrite(again.p, 1, again.n, out) != again.n || fclose(out) != 0) {
                perror(argv[i]);
                return 2;
            }
        }
        buf_free(&again);
    }
    fixture_free(&f);
    return wrong && !write ? 1 : 0;
}
