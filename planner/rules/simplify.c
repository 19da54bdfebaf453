/*
 * simplify.c - rules that simplify the tree: they merge filters over filters and projections over
 * projections, evaluate constant conditions, and inline shared relations (CTEs) with one reference.
 */
#include "rules_int.h"

/* ---- filters --------------------------------------------------------------------------------- */

/* Evaluates the constant parts of a condition. Returns a literal if the whole condition is
 * constant. */
static expr *fold_constants(rule_ctx *r, expr *x) {
    value v;
    if (x->kind == EXPR_OP && (x->op == OP_AND || x->op == OP_OR)) {
        expr *a = fold_constants(r, x->args[0]), *b = fold_constants(r, x->args[1]);
        bool is_or = x->op == OP_OR;
        if (is_or ? expr_is_true(a) || is_never(b) : is_never(a) || expr_is_true(b))
            return a;
        if (is_or ? expr_is_true(b) || is_never(a) : is_never(b) || expr_is_true(a))
            return b;
        return a == x->args[0] && b == x->args[1] ? x : expr_op2(r->mem, x->op, x->type, a, b);
    }
    bool constant = x->kind != EXPR_LITERAL && x->type == TYPE_BOOLEAN && expr_is_constant(x) &&
                    r->env->constant && r->env->constant(r->env->ctx, x, r->mem, &v) == 0;
    return constant ? expr_literal(r->mem, v) : x;
}

/* Appends the conditions of a predicate with their constant parts evaluated; leaves out conditions
 * that are always true. Returns true if this changed nothing. */
static bool add_folded(rule_ctx *r, expr *predicate, conjuncts *out) {
    conjuncts all = {0}, kept = {0};
    conjuncts_split(r, &all, predicate);
    for (int i = 0; i < all.n; i++) {
        expr *one = fold_constants(r, all.list[i]);
        if (!expr_is_true(one))
            conjuncts_add(r, &kept, one);
    }
    conjuncts_add_all(r, out, &kept);
    return conjuncts_same(&kept, &all);
}

/* Simplifies the conditions of ON. A condition that is never true stays in ON. If the mark may be
 * NULL (IN), ON is not changed, since NULL and FALSE then have different results. */
static rel *simplify_join(rule_ctx *r, rel *x) {
    conjuncts kept = {0};
    x = rel_each_input(r, x, merge_filters);
    if (x->join.mark_null || !x->join.predicate || add_folded(r, x->join.predicate, &kept))
        return x;
    rel *copy = rel_copy(r, x);
    copy->join.predicate = conjuncts_join(r, &kept);
    return copy;
}

/* Appends the conditions of x and of the filters directly below it, the lowest filter's first.
 * Returns the input of the lowest filter. */
static rel *add_filters(rule_ctx *r, rel *x, conjuncts *all, bool *same) {
    if (x->kind != REL_FILTER)
        return x;
    rel *input = add_filters(r, x->left, all, same);
    *same = add_folded(r, x->filter.predicate, all);
    return input;
}

rel *merge_filters(rule_ctx *r, rel *x) {
    conjuncts all = {0};
    bool same = false;
    if (x->kind == REL_JOIN)
        return simplify_join(r, x);
    if (x->kind != REL_FILTER)
        return rel_each_input(r, x, merge_filters);
    rel *input = add_filters(r, x, &all, &same);
    for (int i = 0; i < all.n; i++)
        if (is_never(all.list[i]))
            return make_empty(r, x);
    rel *left = merge_filters(r, input);
    return same && input == x->left ? rel_over(r, x, left, NULL) : make_filter(r, left, &all);
}

/* ---- projections ----------------------------------------------------------------------------- */

/* Whether the inner projection's expressions may replace the columns that the outer projection
 * reads: no expression is volatile, and none except columns and literals would be computed
 * twice. */
static bool can_merge(rule_ctx *r, const rel *outer, const rel *inner) {
    int *count = ARENA_ARRAY(r->mem, int, r->next_id + 1);
    rel_count_columns(outer, count);
    for (int i = 0; i < inner->ncols; i++) {
        const expr *x = inner->project.exprs[i].value;
        bool cheap = x->kind == EXPR_COLUMN || x->kind == EXPR_LITERAL;
        if (expr_is_volatile(x) || (!cheap && count[inner->cols[i].id] > 1))
            return false;
    }
    return true;
}

static bool is_identity(const rel *p) {
    if (p->ncols != p->left->ncols)
        return false;
    for (int i = 0; i < p->ncols; i++) {
        const expr *x = p->project.exprs[i].value;
        if (x->kind != EXPR_COLUMN || x->column.id != p->cols[i].id ||
            p->left->cols[i].id != p->cols[i].id)
            return false;
    }
    return true;
}

rel *merge_projections(rule_ctx *r, rel *x) {
    while (x->kind == REL_PROJECT && x->left->kind == REL_PROJECT && can_merge(r, x, x->left)) {
        expr_map map = {0};
        const rel *inner = x->left;
        for (int i = 0; i < inner->ncols; i++)
            expr_map_add(r, &map, inner->cols[i].id, inner->project.exprs[i].value);
        x = rel_replace_here(r, x, &map);
        x->left = inner->left;
    }
    x = rel_each_input(r, x, merge_projections);
    return x->kind == REL_PROJECT && is_identity(x) ? x->left : x;
}

/* ---- shared relations ------------------------------------------------------------------------ */

static void count_references(const rel *x, int *count) {
    for (; x; x = x->left) {
        if (x->kind == REL_SHARED && count[x->shared.number]++ > 0)
            return;
        if (x->right)
            count_references(x->right, count);
    }
}

static rel *inline_shared(rule_ctx *r, rel *x) {
    if (x->kind != REL_SHARED || x->shared.kept || r->counts[x->shared.number] != 1 ||
        rel_is_volatile(x->left))
        return rel_each_input(r, x, inline_shared);
    rel *p = rel_project(r->mem, inline_shared(r, x->left), x->ncols);
    for (int i = 0; i < x->ncols; i++)
        project_set(p, i, x->cols[i], column_expr(r, &x->left->cols[i]));
    return p;
}

rel *inline_ctes(rule_ctx *r, rel *x) {
    r->counts = ARENA_ARRAY(r->mem, int, r->next_share + 1);
    count_references(x, r->counts);
    return inline_shared(r, x);
}
