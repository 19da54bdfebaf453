/*
 * factor.c - takes conditions that all branches of an OR have in common out of the OR.
 *
 * (a AND b) OR (a AND c) is equivalent to a AND (b OR c), also in three-valued logic. Outside of
 * the OR, a condition can become a join key or a bound of an index, or move down to a table.
 *
 * Invariant: the rewrite adds no errors. Outside of the OR, a condition may be evaluated for rows
 * for which the OR did not evaluate it. So it is taken out only if the first branch evaluates it
 * for every row, or if its evaluation cannot fail.
 */
#include "rules_int.h"

/* Whether x consists only of comparisons, IN, columns and literals, whose evaluation cannot
 * fail. */
static bool cannot_fail(const expr *x) {
    if (x->kind == EXPR_COLUMN || x->kind == EXPR_LITERAL)
        return true;
    if (x->kind != EXPR_IN && (x->kind != EXPR_OP || x->op < OP_EQ || x->op >= OP_LIKE))
        return false;
    for (int i = 0; i < x->nargs; i++)
        if (!cannot_fail(x->args[i]))
            return false;
    return true;
}

static bool has_equal(const conjuncts *c, const expr *x) {
    for (int i = 0; i < c->n; i++)
        if (expr_equal(c->list[i], x))
            return true;
    return false;
}

static bool is_or(const expr *x) {
    return x->kind == EXPR_OP && x->op == OP_OR;
}

/* Removes from `common` every condition that some branch of x does not have. */
static void keep_common(rule_ctx *r, expr *x, conjuncts *common) {
    if (is_or(x)) {
        for (int i = 0; i < x->nargs && common->n; i++)
            keep_common(r, x->args[i], common);
        return;
    }
    conjuncts branch = {0};
    int kept = 0;
    conjuncts_split(r, &branch, x);
    for (int i = 0; i < common->n; i++)
        if (has_equal(&branch, common->list[i]))
            common->list[kept++] = common->list[i];
    common->n = kept;
}

/* Appends to `rests` each branch of x without the conditions in `common`. Sets *empty if a branch
 * has no other conditions, since the OR of the rests is then true. */
static void add_rests(rule_ctx *r, expr *x, const conjuncts *common, conjuncts *rests,
                      bool *empty) {
    if (is_or(x)) {
        for (int i = 0; i < x->nargs; i++)
            add_rests(r, x->args[i], common, rests, empty);
        return;
    }
    conjuncts branch = {0}, rest = {0};
    conjuncts_split(r, &branch, x);
    for (int i = 0; i < branch.n; i++)
        if (!has_equal(common, branch.list[i]))
            conjuncts_add(r, &rest, branch.list[i]);
    *empty |= rest.n == 0;
    if (rest.n)
        conjuncts_add(r, rests, conjuncts_join(r, &rest));
}

/* Returns the conditions that may be taken out of the OR x. */
static conjuncts common_conditions(rule_ctx *r, expr *x) {
    conjuncts first = {0}, common = {0};
    expr *branch = x;
    while (is_or(branch))
        branch = branch->args[0];
    conjuncts_split(r, &first, branch);
    for (int i = 0; i < first.n; i++)
        if (!expr_is_volatile(first.list[i]))
            conjuncts_add(r, &common, first.list[i]);
    keep_common(r, x, &common);
    int leading = 0, kept = 0;
    while (leading < common.n && common.list[leading] == first.list[leading])
        leading++;
    for (int i = 0; i < common.n; i++)
        if (i < leading || cannot_fail(common.list[i]))
            common.list[kept++] = common.list[i];
    common.n = kept;
    return common;
}

/* Factors all ORs of the predicate. Returns `predicate` itself if no OR has a common condition. */
static expr *factor_predicate(rule_ctx *r, expr *predicate) {
    conjuncts all = {0}, out = {0};
    bool found = false;
    conjuncts_split(r, &all, predicate);
    for (int i = 0; i < all.n; i++) {
        conjuncts common = {0}, rests = {0};
        bool empty = false;
        if (is_or(all.list[i]))
            common = common_conditions(r, all.list[i]);
        if (common.n == 0) {
            conjuncts_add(r, &out, all.list[i]);
            continue;
        }
        found = true;
        conjuncts_add_all(r, &out, &common);
        add_rests(r, all.list[i], &common, &rests, &empty);
        if (!empty)
            conjuncts_add(r, &out, expr_chain(r->mem, OP_OR, rests.list, rests.n));
    }
    return found ? conjuncts_join(r, &out) : predicate;
}

rel *factor_common_or(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, factor_common_or);
    if (x->kind != REL_FILTER && x->kind != REL_JOIN)
        return x;
    expr *before = x->kind == REL_FILTER ? x->filter.predicate : x->join.predicate;
    expr *after = before ? factor_predicate(r, before) : NULL;
    if (after == before)
        return x;
    x = rel_copy(r, x);
    *(x->kind == REL_FILTER ? &x->filter.predicate : &x->join.predicate) = after;
    return x;
}
