/*
 * semi.c - WHERE x IN (…) and WHERE [NOT] EXISTS (…): a mark that only a condition reads becomes a
 * semi or anti join.
 *
 * Invariant: NOT IN stays a mark where a NULL could make it unknown: an anti join cannot say so.
 */
#include "rules_int.h"

static void count_one(void *ctx, int id) {
    int *count = ctx;
    count[id]++;
}

static void count_expr(void *ctx, const expr *x) {
    expr_columns(x, count_one, ctx);
}

static void count_columns(const rel *x, int *count) {
    for (int i = 0; i < x->ncols; i++)
        count[x->cols[i].id]++;
}

/* A shared relation is computed once, whoever refers to it: it reads once. */
static void count_reads(const rel *x, int *count, bool *seen) {
    for (; x; x = x->left) {
        rel_exprs(x, count_expr, count);
        bool by_position = x->kind == REL_SETOP || x->kind == REL_DISTINCT ||
                           x->kind == REL_SHARED || x->kind == REL_RECURSIVE;
        if (by_position)
            count_columns(x->left, count);
        if (x->kind == REL_SHARED) {
            if (seen[x->shared.number])
                return;
            seen[x->shared.number] = true;
        }
        for (int i = 0; x->kind == REL_LIMIT && i < x->limit.npartition; i++)
            count[x->limit.partition[i]]++;
        if (!x->right)
            continue;
        if (by_position)
            count_columns(x->right, count);
        count_reads(x->right, count, seen);
    }
}

/* `mark` or `NOT mark` of a mark nobody else reads: its id, else -1. */
static int lone_mark(const rule_ctx *r, const expr *x, bool *negated) {
    *negated = x->kind == EXPR_OP && x->op == OP_NOT;
    if (*negated)
        x = x->args[0];
    return x->kind == EXPR_COLUMN && r->counts[x->column.id] == 1 ? x->column.id : -1;
}

static rel *convert(rule_ctx *r, rel *x, int mark, bool negated) {
    if (x->kind == REL_JOIN && x->join.kind == JOIN_MARK && x->join.mark_id == mark) {
        if (negated && x->join.mark_null)
            return x;
        rel *copy = rel_copy(r, x);
        copy->join.kind = negated ? JOIN_ANTI : JOIN_SEMI;
        copy->join.mark_id = -1;
        copy->join.mark_null = false;
        rel_set_columns(r->mem, copy);
        return copy;
    }
    if (x->kind == REL_FILTER || x->kind == REL_LLM || x->kind == REL_JOIN)
        return rel_over(r, x, convert(r, x->left, mark, negated), x->right);
    return x;
}

static rel *semi_joins(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, semi_joins);
    if (x->kind != REL_FILTER)
        return x;
    conjuncts own = {0}, kept = {0};
    rel *left = x->left;
    conjuncts_split(r, &own, x->filter.predicate);
    for (int i = 0; i < own.n; i++) {
        bool negated;
        int mark = lone_mark(r, own.list[i], &negated);
        rel *converted = mark >= 0 ? convert(r, left, mark, negated) : left;
        if (converted == left)
            conjuncts_add(r, &kept, own.list[i]);
        left = converted;
    }
    return kept.n == own.n ? x : make_filter(r, left, &kept);
}

rel *rule_semi_joins(rule_ctx *r, rel *x) {
    r->counts = ARENA_ARRAY(r->mem, int, r->next_id + 1);
    count_columns(x, r->counts);
    count_reads(x, r->counts, ARENA_ARRAY(r->mem, bool, r->next_share + 1));
    return semi_joins(r, x);
}
