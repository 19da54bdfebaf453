/*
 * object_sql.c - prints the CREATE statement of a catalog object.
 */
#include <string.h>

#include "gpu/llm.h"
#include "object_sql_int.h"
#include "sql/sql.h"

static void column_list(const table_def *t, const index_def *x, buf *out) {
    buf_append_char(out, '(');
    for (int k = 0; k < x->ncolumns; k++) {
        buf_append_c(out, k ? ", " : "");
        sql_print_name(out, t->columns[x->columns[k]].name);
    }
    buf_append_char(out, ')');
}

/* The binder names the index of a UNIQUE constraint <table>_<columns>_key. A user's index with such
 * a name is printed as a UNIQUE constraint too, which is equivalent. */
bool index_is_constraint(const table_def *t, const index_def *x) {
    buf tail = {0};
    if (x->primary || !x->unique)
        return x->primary;
    for (int k = 0; k < x->ncolumns; k++) {
        buf_append_char(&tail, '_');
        buf_append_str(&tail, t->columns[x->columns[k]].name);
    }
    buf_append_c(&tail, "_key");
    bool made = x->name.n > tail.n &&
                str_equal_nocase((str){x->name.p + (x->name.n - tail.n), tail.n}, buf_str(&tail));
    buf_free(&tail);
    return made;
}

static const index_def *column_constraint(const table_def *t, int column_at) {
    for (int k = 0; k < t->nindexes; k++) {
        const index_def *x = &t->indexes[k];
        if (index_is_constraint(t, x) && x->ncolumns == 1 && x->columns[0] == column_at)
            return x;
    }
    return NULL;
}

void table_sql(const table_def *t, buf *out) {
    buf_append_c(out, "CREATE TABLE ");
    sql_print_name(out, t->name);
    buf_append_c(out, " (");
    for (int c = 0; c < t->ncolumns; c++) {
        const column_def *d = &t->columns[c];
        const index_def *x = column_constraint(t, c);
        buf_append_c(out, c ? ", " : "");
        sql_print_name(out, d->name);
        buf_append_char(out, ' ');
        type_print(out, d->type, d->dims);
        if (c == t->rowid_column || (x && x->primary))
            buf_append_c(out, " PRIMARY KEY");
        else if (x)
            buf_append_c(out, " UNIQUE");
        if (d->not_null && c != t->rowid_column && !(x && x->primary))
            buf_append_c(out, " NOT NULL");
        if (d->default_sql.n)
            buf_printf(out, " DEFAULT (%.*s)", (int)d->default_sql.n, d->default_sql.p);
        if (d->check_sql.n)
            buf_printf(out, " CHECK (%.*s)", (int)d->check_sql.n, d->check_sql.p);
    }
    for (int k = 0; k < t->nindexes; k++) {
        const index_def *x = &t->indexes[k];
        if (!index_is_constraint(t, x) || x->ncolumns == 1)
            continue;
        buf_append_c(out, x->primary ? ", PRIMARY KEY " : ", UNIQUE ");
        column_list(t, x, out);
    }
    for (int k = 0; k < t->nchecks; k++)
        buf_printf(out, ", CHECK (%.*s)", (int)t->checks[k].n, t->checks[k].p);
    buf_append_c(out, ")");
}

void index_sql(const table_def *t, const index_def *x, buf *out) {
    buf_append_c(out, x->unique ? "CREATE UNIQUE INDEX " : "CREATE INDEX ");
    sql_print_name(out, x->name);
    buf_append_c(out, " ON ");
    sql_print_name(out, t->name);
    if (x->lists) {
        buf_append_c(out, " USING ivfflat (");
        sql_print_name(out, t->columns[x->columns[0]].name);
        buf_printf(out, " %s) WITH (lists = %u)",
                   x->lists->metric == VECTOR_COSINE ? "vector_cosine_ops" : "vector_l2_ops",
                   x->lists->n);
        return;
    }
    buf_append_char(out, ' ');
    column_list(t, x, out);
}

void view_sql(const view_def *v, buf *out) {
    buf_append_c(out, "CREATE VIEW ");
    sql_print_name(out, v->name);
    for (int k = 0; k < v->ncolumns; k++) {
        buf_append_c(out, k ? ", " : " (");
        sql_print_name(out, v->columns[k]);
    }
    buf_append_c(out, v->ncolumns ? ") AS " : " AS ");
    buf_append_str(out, v->sql);
}

/* Prints one source, or the list of URLs. */
static void print_source(str source, buf *out) {
    bool list = llm_is_remote(source) && memchr(source.p, ' ', source.n) != NULL;
    if (!list) {
        value_print_sql(out, value_text(source));
        return;
    }
    for (bool first = true; source.n > 0; first = false) {
        buf_append_c(out, first ? "(" : ", ");
        value_print_sql(out, value_text(str_split_next(&source, ' ')));
    }
    buf_append_char(out, ')');
}

static void print_options(str options, buf *out) {
    for (bool first = true; options.n > 0; first = false) {
        str line = str_split_next(&options, '\n'), name = str_split_next(&line, '=');
        buf_printf(out, "%s%.*s ", first ? " WITH (" : ", ", (int)name.n, name.p);
        value_print_sql(out, value_text(line));
        if (options.n == 0)
            buf_append_char(out, ')');
    }
}

void model_sql(const model_def *m, buf *out) {
    buf_append_c(out, "CREATE MODEL ");
    sql_print_name(out, m->name);
    buf_append_c(out, " FROM ");
    print_source(m->source, out);
    print_options(m->options, out);
}
