/*
 * names.c - the names that EXPLAIN prints for columns that no table has: LLM#2, count(*), the
 * expression of a sort key.
 *
 * The names are only printed; ids and slots determine which column is read. Columns of inputs are
 * named first, since other names contain their names.
 */
#include <string.h>

#include "plan_int.h"

struct column_names {
    arena *mem;
    int n;      /* number of column ids in the statement */
    str *by_id; /* [n] printed name; empty: the column has only its own name */
};

column_names *names_new(arena *mem, int nids) {
    column_names *s = ARENA_NEW(mem, column_names);
    *s = (column_names){mem, nids, ARENA_ARRAY(mem, str, nids + 1)};
    return s;
}

str names_of(const column_names *s, int id, str otherwise) {
    return id >= 0 && id < s->n && s->by_id[id].n ? s->by_id[id] : otherwise;
}

static void set_name(column_names *s, int id, str name) {
    if (id >= 0 && id < s->n)
        s->by_id[id] = name;
}

static void set_printed(column_names *s, int id, buf *printed) {
    set_name(s, id, str_copy(s->mem, buf_str(printed)));
    buf_free(printed);
}

static void set_expr(column_names *s, int id, const expr *x) {
    buf b = {0};
    expr_print(x, &b);
    set_printed(s, id, &b);
}

static void name_aggregate(column_names *s, int id, const plan_agg *a) {
    buf b = {0};
    buf_printf(&b, "%s(%s", agg_kind_name(a->kind), a->distinct ? "distinct " : "");
    if (a->arg)
        expr_print(a->arg, &b);
    else
        buf_append_char(&b, '*');
    sort_keys_print(" order by ", a->keys, a->nkeys, &b);
    buf_append_char(&b, ')');
    if (a->filter) {
        buf_append_c(&b, " filter ");
        expr_print(a->filter, &b);
    }
    set_printed(s, id, &b);
}

/* Names a projection's column. A column that is passed on keeps the name that it has in the input.
 * A hidden sort key is named after its expression. */
static void name_projection(column_names *s, const rel_column *c, const expr *x) {
    if (x->kind == EXPR_COLUMN)
        set_name(s, c->id,
                 names_of(s, x->column.id, c->qualifier.n ? (str){NULL, 0} : x->column.name));
    else if (str_equal(c->name, STR("sort key")))
        set_expr(s, c->id, x);
}

static void name_windows(column_names *s, const plan_node *n) {
    for (int i = 0; i < n->window.nfunctions; i++) {
        buf b = {0};
        window_print(&n->window.functions[i], n->window.keys, true, &b);
        set_printed(s, n->window.functions[i].id, &b);
    }
}

void names_add(column_names *s, const rel *r, const plan_node *n) {
    switch (r->kind) {
    case REL_GROUP:
        for (int i = 0; i < n->group.nkeys; i++)
            set_expr(s, r->group.keys[i].id, n->group.keys[i]);
        for (int i = 0; i < n->group.naggs; i++)
            name_aggregate(s, r->group.aggs[i].id, &n->group.aggs[i]);
        return;
    case REL_PROJECT:
        for (int i = 0; i < r->ncols; i++)
            name_projection(s, &r->cols[i], n->project.exprs[i]);
        return;
    case REL_LLM:
        for (int i = r->left->ncols; i < r->ncols; i++)
            set_name(s, r->cols[i].id, r->cols[i].name);
        return;
    case REL_WINDOW:
        name_windows(s, n);
        return;
    case REL_SHARED:
        for (int i = 0; i < r->ncols; i++)
            set_name(s, r->cols[i].id, names_of(s, r->left->cols[i].id, (str){NULL, 0}));
        return;
    default:
        return;
    }
}
