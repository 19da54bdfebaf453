/*
 * names.c - what EXPLAIN calls the columns that no table has: LLM#2, count(*), the expression a
 * sort key stands for.
 *
 * Invariant: a name is looked at by people alone; ids and slots say what is read. Names are made
 * from the inputs up, so that one made of others shows theirs.
 */
#include <string.h>

#include "plan_int.h"

struct column_names {
    arena *mem;
    str *by_id;
    int n;
    bool *seen; /* shared relations, by number */
};

column_names *names_new(arena *mem, int nids, int nshared) {
    column_names *s = ARENA_NEW(mem, column_names);
    *s = (column_names){mem, ARENA_ARRAY(mem, str, nids + 1), nids,
                        ARENA_ARRAY(mem, bool, nshared + 1)};
    return s;
}

str names_of(const column_names *s, int id, str otherwise) {
    return id >= 0 && id < s->n && s->by_id[id].n ? s->by_id[id] : otherwise;
}

static void give(column_names *s, int id, str name) {
    if (id >= 0 && id < s->n)
        s->by_id[id] = name;
}

/* x with the names known so far. */
static expr *renamed(const column_names *s, const expr *x) {
    expr *copy = ARENA_NEW(s->mem, expr);
    *copy = *x;
    if (x->kind == EXPR_COLUMN) {
        copy->column.name = names_of(s, x->column.id, x->column.name);
        return copy;
    }
    copy->args = ARENA_ARRAY(s->mem, expr *, x->nargs + 1);
    for (int i = 0; i < x->nargs; i++)
        copy->args[i] = renamed(s, x->args[i]);
    return copy;
}

static str printed(const column_names *s, buf *b) {
    str text = str_copy(s->mem, buf_str(b));
    buf_free(b);
    return text;
}

static str expr_text(const column_names *s, const expr *x) {
    buf b = {0};
    expr_print(renamed(s, x), &b);
    return printed(s, &b);
}

static sort_key *renamed_keys(const column_names *s, const sort_key *from, int n) {
    sort_key *keys = ARENA_ARRAY(s->mem, sort_key, n + 1);
    for (int k = 0; k < n; k++) {
        keys[k] = from[k];
        keys[k].value = renamed(s, keys[k].value);
    }
    return keys;
}

static str agg_text(const column_names *s, const rel_agg *a) {
    buf b = {0};
    buf_printf(&b, "%s(%s", agg_kind_name(a->kind), a->distinct ? "distinct " : "");
    buf_append_str(&b, a->arg ? expr_text(s, a->arg) : STR("*"));
    sort_keys_print(" order by ", renamed_keys(s, a->keys, a->nkeys), a->nkeys, &b);
    buf_append_char(&b, ')');
    if (a->filter) {
        buf_append_c(&b, " filter ");
        buf_append_str(&b, expr_text(s, a->filter));
    }
    return printed(s, &b);
}

/* Keys keep their column's name; a computed key is its expression. */
static void name_group(column_names *s, const rel *r) {
    for (int i = 0; i < r->group.nkeys; i++)
        give(s, r->group.keys[i].id, expr_text(s, r->group.keys[i].value));
    for (int i = 0; i < r->group.naggs; i++)
        give(s, r->group.aggs[i].id, agg_text(s, &r->group.aggs[i]));
}

/* A column passed on keeps the name it was given
 * below; hidden sort keys are what they are made of. */
static void name_project(column_names *s, const rel *r) {
    for (int i = 0; i < r->ncols; i++) {
        const expr *x = r->project.exprs[i].value;
        if (x->kind == EXPR_COLUMN)
            give(s, r->cols[i].id,
                 names_of(s, x->column.id,
                          r->cols[i].qualifier.n ? (str){NULL, 0} : x->column.name));
        else if (str_equal(r->cols[i].name, STR("sort key")))
            give(s, r->cols[i].id, expr_text(s, x));
    }
}

static void name_windows(column_names *s, const rel *r) {
    for (int i = 0; i < r->window.nfunctions; i++) {
        rel_window w = r->window.functions[i];
        const sort_key *keys = renamed_keys(s, r->window.keys, w.nkeys);
        expr **args = ARENA_ARRAY(s->mem, expr *, w.nargs + 1);
        buf b = {0};
        for (int k = 0; k < w.nargs; k++)
            args[k] = renamed(s, w.args[k]);
        w.args = args;
        w.filter = w.filter ? renamed(s, w.filter) : NULL;
        window_print(&w, keys, true, &b);
        give(s, w.id, printed(s, &b));
    }
}

static void name_llm(column_names *s, const rel *r) {
    for (int i = r->left->ncols; i < r->ncols; i++)
        give(s, r->cols[i].id, r->cols[i].name);
}

void names_collect(column_names *s, const rel *r) {
    if (r->kind == REL_SHARED) {
        bool again = s->seen[r->shared.number];
        s->seen[r->shared.number] = true;
        if (!again)
            names_collect(s, r->left);
        for (int i = 0; i < r->ncols; i++)
            give(s, r->cols[i].id, names_of(s, r->left->cols[i].id, (str){NULL, 0}));
        return;
    }
    if (r->left)
        names_collect(s, r->left);
    if (r->right)
        names_collect(s, r->right);
    if (r->kind == REL_GROUP)
        name_group(s, r);
    else if (r->kind == REL_PROJECT)
        name_project(s, r);
    else if (r->kind == REL_LLM)
        name_llm(s, r);
    else if (r->kind == REL_WINDOW)
        name_windows(s, r);
}
