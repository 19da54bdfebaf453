/*
 * walk.c - every expression of a relation, once in one place: reading them, and replacing columns
 * in them.
 *
 * Invariant: visit_exprs and rel_replace know the same expressions; a new kind of relation is added
 * to both.
 */
#include <string.h>

#include "rewrite_int.h"

static void visit(const expr *x, void (*fn)(void *ctx, const expr *e), void *ctx) {
    if (x)
        fn(ctx, x);
}

static void visit_group(const rel *x, void (*fn)(void *ctx, const expr *e), void *ctx) {
    for (int i = 0; i < x->group.nkeys; i++)
        visit(x->group.keys[i].value, fn, ctx);
    for (int i = 0; i < x->group.naggs; i++) {
        visit(x->group.aggs[i].arg, fn, ctx);
        visit(x->group.aggs[i].separator, fn, ctx);
        visit(x->group.aggs[i].filter, fn, ctx);
        for (int k = 0; k < x->group.aggs[i].nkeys; k++)
            visit(x->group.aggs[i].keys[k].value, fn, ctx);
    }
}

static void visit_llm(const rel *x, void (*fn)(void *ctx, const expr *e), void *ctx) {
    for (int i = 0; i < x->llm.nuses; i++) {
        for (int k = 0; k < x->llm.uses[i].call->nfields; k++)
            visit(x->llm.uses[i].args[k], fn, ctx);
        visit(x->llm.uses[i].guard, fn, ctx);
    }
}

static void visit_window(const rel *x, void (*fn)(void *ctx, const expr *e), void *ctx) {
    for (int i = 0; i < x->window.nkeys; i++)
        visit(x->window.keys[i].value, fn, ctx);
    for (int i = 0; i < x->window.nfunctions; i++) {
        const rel_window *w = &x->window.functions[i];
        for (int k = 0; k < w->nargs; k++)
            visit(w->args[k], fn, ctx);
        visit(w->separator, fn, ctx);
        visit(w->filter, fn, ctx);
    }
}

void rel_exprs(const rel *x, void (*fn)(void *ctx, const expr *e), void *ctx) {
    switch (x->kind) {
    case REL_VALUES:
        for (int i = 0; i < x->values.nrows; i++)
            for (int k = 0; k < x->ncols; k++)
                visit(x->values.rows[i][k], fn, ctx);
        return;
    case REL_FILTER:
        visit(x->filter.predicate, fn, ctx);
        return;
    case REL_PROJECT:
        for (int i = 0; i < x->ncols; i++)
            visit(x->project.exprs[i].value, fn, ctx);
        return;
    case REL_JOIN:
    case REL_APPLY:
        visit(x->join.predicate, fn, ctx);
        return;
    case REL_GROUP:
        visit_group(x, fn, ctx);
        return;
    case REL_SORT:
        for (int i = 0; i < x->sort.nkeys; i++)
            visit(x->sort.keys[i].value, fn, ctx);
        return;
    case REL_LLM:
        visit_llm(x, fn, ctx);
        return;
    case REL_WINDOW:
        visit_window(x, fn, ctx);
        return;
    case REL_OUTER_RESIDUAL:
        visit(x->residual.predicate, fn, ctx);
        return;
    default:
        return;
    }
}

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

static void replace_values(rule_ctx *r, rel *x, const expr_map *m) {
    expr ***rows = ARENA_ARRAY(r->mem, expr **, x->values.nrows + 1);
    for (int i = 0; i < x->values.nrows; i++) {
        rows[i] = ARENA_ARRAY(r->mem, expr *, x->ncols + 1);
        for (int k = 0; k < x->ncols; k++)
            rows[i][k] = expr_replace(r, x->values.rows[i][k], m);
    }
    x->values.rows = rows;
}

static void replace_project(rule_ctx *r, rel *x, const expr_map *m) {
    rel_expr *exprs = ARENA_ARRAY(r->mem, rel_expr, x->ncols + 1);
    for (int i = 0; i < x->ncols; i++)
        exprs[i] =
            (rel_expr){expr_replace(r, x->project.exprs[i].value, m), x->project.exprs[i].id};
    x->project.exprs = exprs;
}

static sort_key *replace_keys(rule_ctx *r, const sort_key *from, int n, const expr_map *m) {
    sort_key *keys = ARENA_ARRAY(r->mem, sort_key, n + 1);
    for (int i = 0; i < n; i++) {
        keys[i] = from[i];
        keys[i].value = expr_replace(r, keys[i].value, m);
    }
    return keys;
}

static void replace_group(rule_ctx *r, rel *x, const expr_map *m) {
    rel_expr *keys = ARENA_ARRAY(r->mem, rel_expr, x->group.nkeys + 1);
    rel_agg *aggs = ARENA_ARRAY(r->mem, rel_agg, x->group.naggs + 1);
    for (int i = 0; i < x->group.nkeys; i++)
        keys[i] = (rel_expr){expr_replace(r, x->group.keys[i].value, m), x->group.keys[i].id};
    for (int i = 0; i < x->group.naggs; i++) {
        aggs[i] = x->group.aggs[i];
        aggs[i].arg = expr_replace(r, aggs[i].arg, m);
        aggs[i].filter = expr_replace(r, aggs[i].filter, m);
        aggs[i].separator = expr_replace(r, aggs[i].separator, m);
        aggs[i].keys = replace_keys(r, aggs[i].keys, aggs[i].nkeys, m);
    }
    x->group.keys = keys;
    x->group.aggs = aggs;
}

static void replace_window(rule_ctx *r, rel *x, const expr_map *m) {
    rel_window *functions = ARENA_ARRAY(r->mem, rel_window, x->window.nfunctions + 1);
    for (int i = 0; i < x->window.nfunctions; i++) {
        rel_window *w = &functions[i];
        *w = x->window.functions[i];
        w->args = ARENA_ARRAY(r->mem, expr *, w->nargs + 1);
        for (int k = 0; k < w->nargs; k++)
            w->args[k] = expr_replace(r, x->window.functions[i].args[k], m);
        w->separator = expr_replace(r, w->separator, m);
        w->filter = expr_replace(r, w->filter, m);
    }
    x->window.keys = replace_keys(r, x->window.keys, x->window.nkeys, m);
    x->window.functions = functions;
}

static void replace_llm(rule_ctx *r, rel *x, const expr_map *m) {
    llm_use *uses = ARENA_ARRAY(r->mem, llm_use, x->llm.nuses + 1);
    for (int i = 0; i < x->llm.nuses; i++) {
        int n = x->llm.uses[i].call->nfields;
        uses[i] = x->llm.uses[i];
        uses[i].guard = expr_replace(r, uses[i].guard, m);
        uses[i].args = ARENA_ARRAY(r->mem, expr *, n + 1);
        for (int k = 0; k < n; k++)
            uses[i].args[k] = expr_replace(r, x->llm.uses[i].args[k], m);
    }
    x->llm.uses = uses;
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
    switch (x->kind) {
    case REL_VALUES:
        replace_values(r, x, m);
        break;
    case REL_FILTER:
        x->filter.predicate = expr_replace(r, x->filter.predicate, m);
        break;
    case REL_PROJECT:
        replace_project(r, x, m);
        break;
    case REL_JOIN:
    case REL_APPLY:
        x->join.predicate = expr_replace(r, x->join.predicate, m);
        break;
    case REL_GROUP:
        replace_group(r, x, m);
        break;
    case REL_SORT:
        x->sort.keys = replace_keys(r, x->sort.keys, x->sort.nkeys, m);
        x->sort.partition = replace_ids(r, x->sort.partition, x->sort.npartition, m);
        break;
    case REL_LLM:
        replace_llm(r, x, m);
        break;
    case REL_LIMIT:
        x->limit.partition = replace_ids(r, x->limit.partition, x->limit.npartition, m);
        break;
    case REL_WINDOW:
        replace_window(r, x, m);
        break;
    case REL_OUTER_RESIDUAL:
        x->residual.predicate = expr_replace(r, x->residual.predicate, m);
        break;
    default:
        break;
    }
    return x;
}

static bool reads_any(rule_ctx *r, const rel *x, const expr_map *m) {
    id_set unbound = rel_free_ids(r, x);
    for (int i = 0; i < m->n; i++)
        if (id_set_has(&unbound, m->ids[i]))
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
