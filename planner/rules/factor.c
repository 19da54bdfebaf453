/*
 * factor.c - conditions that all branches of an OR have in common, written once beside it.
 *
 * (a AND b) OR (a AND c) says a AND (b OR c), with NULLs, too: what was hidden in the OR can then
 * become a join's key, a bound of an index, or go down to a table.
 *
 * Invariant: nothing is computed for rows that the OR kept from it: a condition goes out that the
 * first branch asks of every row, or that cannot fail.
 */
#include "rules_int.h"

/* Compares columns with literals or with each other: no error can come of it. */
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

/* Leaves in `common` what every branch of x has. */
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

/* The branches of x without `common`; *all: one of them is nothing else. */
static void add_rests(rule_ctx *r, expr *x, const conjuncts *common, conjuncts *rests, bool *all) {
    if (is_or(x)) {
        for (int i = 0; i < x->nargs; i++)
            add_rests(r, x->args[i], common, rests, all);
        return;
    }
    conjuncts branch = {0}, rest = {0};
    conjuncts_split(r, &branch, x);
    for (int i = 0; i < branch.n; i++)
        if (!has_equal(common, branch.list[i]))
            conjuncts_add(r, &rest, branch.list[i]);
    *all |= rest.n == 0;
    if (rest.n)
        conjuncts_add(r, rests, conjuncts_join(r, &rest));
}

/* What may go out of the OR x, of those that its first branch asks. */
static conjuncts candidates(rule_ctx *r, expr *x) {
    conjuncts first = {0}, may = {0};
    expr *branch = x;
    while (is_or(branch))
        branch = branch->args[0];
    conjuncts_split(r, &first, branch);
    for (int i = 0; i < first.n; i++)
        if (!expr_is_volatile(first.list[i]))
            conjuncts_add(r, &may, first.list[i]);
    keep_common(r, x, &may);
    int leading = 0, kept = 0;
    while (leading < may.n && may.list[leading] == first.list[leading])
        leading++;
    for (int i = 0; i < may.n; i++)
        if (i < leading || cannot_fail(may.list[i]))
            may.list[kept++] = may.list[i];
    may.n = kept;
    return may;
}

/* The condition with its ORs factored; itself where no OR has anything in common. */
static expr *factor(rule_ctx *r, expr *predicate) {
    conjuncts all = {0}, out = {0};
    bool found = false;
    conjuncts_split(r, &all, predicate);
    for (int i = 0; i < all.n; i++) {
        conjuncts common = {0}, rests = {0};
        bool whole = false;
        if (is_or(all.list[i]))
            common = candidates(r, all.list[i]);
        for (int k = 0; k < common.n; k++)
            conjuncts_add(r, &out, common.list[k]);
        found |= common.n > 0;
        if (common.n)
            add_rests(r, all.list[i], &common, &rests, &whole);
        else
            conjuncts_add(r, &out, all.list[i]);
        if (rests.n && !whole)
            conjuncts_add(r, &out, expr_chain(r->mem, OP_OR, rests.list, rests.n));
    }
    return found ? conjuncts_join(r, &out) : predicate;
}

rel *rule_factor(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, rule_factor);
    if (x->kind != REL_FILTER && x->kind != REL_JOIN)
        return x;
    expr *before = x->kind == REL_FILTER ? x->filter.predicate : x->join.predicate;
    expr *after = before ? factor(r, before) : NULL;
    if (after == before)
        return x;
    x = rel_copy(r, x);
    if (x->kind == REL_FILTER)
        x->filter.predicate = after;
    else
        x->join.predicate = after;
    return x;
}
