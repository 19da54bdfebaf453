/*
 * range_join.c - finds the ranges of a range join. The right rows are sorted, and for each left row
 * one or more ranges of them contain all its matches.
 *
 *   Range join b.k >= a.low AND b.k < a.high      b sorted by k; a row of a reads one range
 *   Range join b.x = a.x OR b.y = a.x             b sorted by x and by y; reads a range of each
 *   Range join b.s = a.s AND b.k <= a.k, last 1   b sorted by s and k; reads the end of a range
 *
 * Used if a join has no equal keys, or needs only the first pairs of each left row.
 * Invariant: every pair for which the predicate is true is in a range. A range may contain other
 * pairs, so the predicate is evaluated for every pair in it. IN in a SELECT list gets no ranges,
 * since its predicate may be NULL for a pair outside of a range.
 */
#include "cost_int.h"

/* Kinds of ranges: a narrower kind has a greater number; 0 means no range. */
enum { HALF_OPEN = 1, CLOSED, EQUAL };

/* The column ids of a join's inputs. */
typedef struct sides {
    id_set left, right;
} sides;

/* Whether x compares an expression of the right input with an expression of the left input. If so,
 * sets both and *op such that x is equivalent to `*right *op *left`. */
static bool is_bound(const sides *s, const expr *x, expr_op *op, expr **right, expr **left) {
    for (int i = 0; i < 2 && expr_compares(x, i, op) && !expr_is_volatile(x); i++) {
        *right = x->args[i];
        *left = x->args[1 - i];
        if (!expr_is_constant(*right) && expr_only_in(*right, &s->right) &&
            expr_only_in(*left, &s->left))
            return true;
    }
    return false;
}

/* Narrows the range g by the condition `g->right op bound`. */
static void narrow(plan_range *g, expr_op op, expr *bound) {
    bool low = op == OP_EQ || op == OP_GT || op == OP_GE,
         high = op == OP_EQ || op == OP_LT || op == OP_LE;
    if (low && (!g->low || op == OP_EQ)) {
        g->low = bound;
        g->low_inclusive = op != OP_GT;
    }
    if (high && (!g->high || op == OP_EQ)) {
        g->high = bound;
        g->high_inclusive = op != OP_LT;
    }
}

/* Finds the narrowest range over an expression of the right input that the conditions imply
 * together. Returns the kind of the range. */
static int best_range(const sides *s, const conjuncts *all, plan_range *best) {
    int most = 0;
    for (int i = 0; i < all->n; i++) {
        expr_op op;
        expr *right, *left;
        plan_range g = {0};
        if (!is_bound(s, all->list[i], &op, &g.right, &left))
            continue;
        for (int k = 0; k < all->n; k++)
            if (is_bound(s, all->list[k], &op, &right, &left) && expr_equal(right, g.right))
                narrow(&g, op, left);
        g.exact = all->n == (g.low && g.low != g.high) + (g.high != NULL);
        int kind = g.low == g.high ? EQUAL : g.low && g.high ? CLOSED : HALF_OPEN;
        if (kind > most) {
            most = kind;
            *best = g;
        }
    }
    return most;
}

static void split_or(rule_ctx *r, conjuncts *branches, expr *x) {
    if (x->kind != EXPR_OP || x->op != OP_OR) {
        conjuncts_add(r, branches, x);
        return;
    }
    for (int i = 0; i < x->nargs; i++)
        split_or(r, branches, x->args[i]);
}

/* Finds a range for each branch of the OR x. Returns the kind of the widest range. */
static int ranges_of(rule_ctx *r, const sides *s, expr *x, plan_range **out, int *n) {
    conjuncts branches = {0};
    split_or(r, &branches, x);
    int worst = EQUAL;
    plan_range *ranges = ARENA_ARRAY(r->mem, plan_range, branches.n);
    for (int i = 0; i < branches.n && worst > 0; i++) {
        conjuncts all = {0};
        conjuncts_split(r, &all, branches.list[i]);
        worst = BASE_MIN(worst, best_range(s, &all, &ranges[i]));
    }
    for (int i = 0; i < branches.n; i++)
        ranges[i].exact = false;
    *out = ranges;
    *n = branches.n;
    return worst;
}

static sides sides_of(rule_ctx *r, const rel *join) {
    return (sides){id_set_columns(r->mem, join->left), id_set_columns(r->mem, join->right)};
}

bool range_join_first(rule_ctx *r, const rel *join, plan_range *out) {
    sides s = sides_of(r, join);
    conjuncts all = {0}, rest = {0};
    conjuncts_split(r, &all, join->join.predicate);
    expr **left = ARENA_ARRAY(r->mem, expr *, all.n + 1),
         **right = ARENA_ARRAY(r->mem, expr *, all.n + 1);
    int n = 0;
    for (int i = 0; i < all.n; i++) {
        expr_op op;
        bool same = is_bound(&s, all.list[i], &op, &right[n], &left[n]) && op == OP_EQ &&
                    left[n]->type == right[n]->type;
        if (same)
            n++;
        else
            conjuncts_add(r, &rest, all.list[i]);
    }
    if (!choice_is_on(r, CHOICE_RANGE_JOIN) || best_range(&s, &rest, out) == 0 || !out->exact)
        return false;
    out->nsame = n;
    out->same_left = left;
    out->same_right = right;
    return true;
}

int range_join_choose(rule_ctx *r, const rel *join, plan_range **out) {
    if (!choice_is_on(r, CHOICE_RANGE_JOIN) || !join->join.predicate ||
        (join->join.kind == JOIN_MARK && join->join.mark_null))
        return 0;
    sides s = sides_of(r, join);
    conjuncts all = {0};
    conjuncts_split(r, &all, join->join.predicate);
    *out = ARENA_NEW(r->mem, plan_range);
    int best = best_range(&s, &all, *out), n = best > 0;
    for (int i = 0; i < all.n; i++) {
        plan_range *ranges;
        int count, kind = ranges_of(r, &s, all.list[i], &ranges, &count);
        if (kind <= best)
            continue;
        best = kind;
        n = count;
        *out = ranges;
    }
    return n;
}
