/*
 * walk.c - visits the expressions of relations, and replaces columns in them.
 *
 * Invariant: each_expr alone lists a node's own expressions, and own_exprs alone lists the arrays
 * that contain them. A new kind of relation must be added to both functions.
 */
#include <string.h>

#include "rewrite_int.h"

typedef void expr_fn(void *ctx, expr **x);

/* ---- the expressions of a node --------------------------------------------------------------- */

static void each_value(expr **list, int n, expr_fn *fn, void *ctx) {
    for (int i = 0; i < n; i++)
        fn(ctx, &list[i]);
}

static void each_key(sort_key *keys, int n, expr_fn *fn, void *ctx) {
    for (int i = 0; i < n; i++)
        fn(ctx, &keys[i].value);
}

static void each_of_group(const rel *x, expr_fn *fn, void *ctx) {
    for (int i = 0; i < x->group.nkeys; i++)
        fn(ctx, &x->group.keys[i].value);
    for (int i = 0; i < x->group.naggs; i++) {
        rel_agg *a = &x->group.aggs[i];
        fn(ctx, &a->arg);
        fn(ctx, &a->separator);
        fn(ctx, &a->filter);
        each_key(a->keys, a->nkeys, fn, ctx);
    }
}

static void each_of_window(const rel *x, expr_fn *fn, void *ctx) {
    each_key(x->window.keys, x->window.nkeys, fn, ctx);
    for (int i = 0; i < x->window.nfunctions; i++) {
        rel_window *w = &x->window.functions[i];
        each_value(w->args, w->nargs, fn, ctx);
        fn(ctx, &w->separator);
        fn(ctx, &w->filter);
    }
}

/* Calls fn with the address of each pointer to an expression in the node itself. The pointer may be
 * NULL. */
static void each_expr(rel *x, expr_fn *fn, void *ctx) {
    switch (x->kind) {
    case REL_VALUES:
        for (int i = 0; i < x->values.nrows; i++)
            each_value(x->values.rows[i], x->ncols, fn, ctx);
        return;
    case REL_FILTER:
        fn(ctx, &x->filter.predicate);
        return;
    case REL_PROJECT:
        for (int i = 0; i < x->ncols; i++)
            fn(ctx, &x->project.exprs[i].value);
        return;
    case REL_JOIN:
    case REL_APPLY:
        fn(ctx, &x->join.predicate);
        return;
    case REL_GROUP:
        each_of_group(x, fn, ctx);
        return;
    case REL_SORT:
        each_key(x->sort.keys, x->sort.nkeys, fn, ctx);
        return;
    case REL_LLM:
        for (int i = 0; i < x->llm.nsites; i++) {
            each_value(x->llm.sites[i].args, x->llm.sites[i].call->nfields, fn, ctx);
            fn(ctx, &x->llm.sites[i].guard);
        }
        return;
    case REL_WINDOW:
        each_of_window(x, fn, ctx);
        return;
    case REL_OUTER_RESIDUAL:
        fn(ctx, &x->residual.predicate);
        return;
    case REL_SPLIT:
        fn(ctx, &x->split.text);
        fn(ctx, &x->split.separator);
        return;
    default:
        return;
    }
}

typedef struct visitor {
    void (*visit)(void *ctx, const expr *e);
    void *ctx;
} visitor;

static void visit_place(void *ctx, expr **x) {
    const visitor *v = ctx;
    if (*x)
        v->visit(v->ctx, *x);
}

void rel_exprs(const rel *x, void (*visit)(void *ctx, const expr *e), void *ctx) {
    visitor v = {visit, ctx};
    /* a copy, because each_expr's parameter is not const; visit_place changes nothing */
    rel node = *x;
    each_expr(&node, visit_place, &v);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void read_expr(void *ctx, const expr *e) {
    id_set_add_expr(ctx, e);
}

static void read_ids(const int *ids, int n, id_set *s) {
    for (int i = 0; i < n; i++)
        id_set_add(s, ids[i]);
}

void rel_reads(const rel *x, id_set *s) {
    rel_exprs(x, read_expr, s);
    if (x->kind == REL_LIMIT)
        read_ids(x->limit.partition, x->limit.npartition, s);
    if (x->kind == REL_SORT)
        read_ids(x->sort.partition, x->sort.npartition, s);
    if (x->kind == REL_OUTER_RESIDUAL)
        id_set_add(s, x->residual.group_id);
}

static void count_id(void *ctx, int id) {
    int *count = ctx;
    count[id]++;
}

static void count_expr(void *ctx, const expr *x) {
    expr_columns(x, count_id, ctx);
}

void rel_count_columns(const rel *x, int *count) {
    rel_exprs(x, count_expr, count);
}

/* Adds to `reads` the ids that the tree reads, and to `made` the ids of its nodes' columns. */
static void collect(const rel *x, id_set *reads, id_set *made) {
    for (; x; x = x->left) {
        rel_reads(x, reads);
        id_set_add_columns(made, x);
        if (x->right)
            collect(x->right, reads, made);
    }
}

id_set rel_free_ids(rule_ctx *r, const rel *x) {
    id_set reads = id_set_new(r->mem), made = id_set_new(r->mem);
    collect(x, &reads, &made);
    for (int i = 0; i < reads.nwords && i < made.nwords; i++)
        reads.bits[i] &= ~made.bits[i];
    return reads;
}

static void note_volatile(void *ctx, const expr *e) {
    *(bool *)ctx |= expr_is_volatile(e);
}

bool node_is_volatile(const rel *x) {
    bool found = false;
    rel_exprs(x, note_volatile, &found);
    return found;
}

bool rel_is_volatile(const rel *x) {
    for (; x; x = x->left)
        if (node_is_volatile(x) || (x->right && rel_is_volatile(x->right)))
            return true;
    return false;
}

bool rel_has_calls_on_top(const rel *x) {
    for (; x->kind == REL_FILTER || x->kind == REL_PROJECT || x->kind == REL_LLM; x = x->left)
        if (x->kind == REL_LLM)
            return true;
    return false;
}

bool rel_has_llm(const rel *x) {
    for (; x; x = x->left)
        if (x->kind == REL_LLM || (x->right && rel_has_llm(x->right)))
            return true;
    return false;
}

/* ---- replacing ------------------------------------------------------------------------------- */

#define COPY_ARRAY(r, p, n) ((p) = copy_array((r), (p), sizeof *(p) * (size_t)(n)))

static void *copy_array(rule_ctx *r, const void *from, size_t size) {
    char *copy = ARENA_ARRAY(r->mem, char, size + 1);
    return size ? memcpy(copy, from, size) : copy;
}

/* Replaces a copied node's arrays of expressions by copies, which the caller may then change. */
static void own_exprs(rule_ctx *r, rel *x) {
    switch (x->kind) {
    case REL_VALUES:
        COPY_ARRAY(r, x->values.rows, x->values.nrows);
        for (int i = 0; i < x->values.nrows; i++)
            COPY_ARRAY(r, x->values.rows[i], x->ncols);
        return;
    case REL_PROJECT:
        COPY_ARRAY(r, x->project.exprs, x->ncols);
        return;
    case REL_GROUP:
        COPY_ARRAY(r, x->group.keys, x->group.nkeys);
        COPY_ARRAY(r, x->group.aggs, x->group.naggs);
        for (int i = 0; i < x->group.naggs; i++)
            COPY_ARRAY(r, x->group.aggs[i].keys, x->group.aggs[i].nkeys);
        return;
    case REL_SORT:
        COPY_ARRAY(r, x->sort.keys, x->sort.nkeys);
        return;
    case REL_LLM:
        COPY_ARRAY(r, x->llm.sites, x->llm.nsites);
        for (int i = 0; i < x->llm.nsites; i++)
            COPY_ARRAY(r, x->llm.sites[i].args, x->llm.sites[i].call->nfields);
        return;
    case REL_WINDOW:
        COPY_ARRAY(r, x->window.keys, x->window.nkeys);
        COPY_ARRAY(r, x->window.functions, x->window.nfunctions);
        for (int i = 0; i < x->window.nfunctions; i++)
            COPY_ARRAY(r, x->window.functions[i].args, x->window.functions[i].nargs);
        return;
    default:
        return;
    }
}

typedef struct replacer {
    rule_ctx *r;
    const expr_map *map;
} replacer;

static void replace_place(void *ctx, expr **x) {
    const replacer *p = ctx;
    *x = expr_replace(p->r, *x, p->map);
}

static int *replace_ids(rule_ctx *r, const int *from, int n, const expr_map *m) {
    int *ids = ARENA_ARRAY(r->mem, int, n + 1);
    for (int i = 0; i < n; i++) {
        const expr *with = expr_map_get(m, from[i]);
        ids[i] = with && with->kind == EXPR_COLUMN ? with->column.id : from[i];
    }
    return ids;
}

rel *rel_replace_here(rule_ctx *r, const rel *from, const expr_map *m) {
    rel *x = rel_copy(r, from);
    replacer p = {r, m};
    own_exprs(r, x);
    each_expr(x, replace_place, &p);
    if (x->kind == REL_SORT)
        x->sort.partition = replace_ids(r, x->sort.partition, x->sort.npartition, m);
    if (x->kind == REL_LIMIT)
        x->limit.partition = replace_ids(r, x->limit.partition, x->limit.npartition, m);
    return x;
}

static bool reads_any(rule_ctx *r, const rel *x, const expr_map *m) {
    id_set unbound = rel_free_ids(r, x);
    for (int i = 0; i < m->n; i++)
        if (id_set_has(&unbound, m->list[i].id))
            return true;
    return false;
}

rel *rel_replace(rule_ctx *r, rel *from, const expr_map *m) {
    if (!from || m->n == 0 || (from->kind == REL_SHARED && !reads_any(r, from, m)))
        return from;
    rel *x = rel_replace_here(r, from, m);
    x->left = rel_replace(r, from->left, m);
    x->right = rel_replace(r, from->right, m);
    return x;
}
