/*
 * simplify.c - rules that take away what does nothing: stacked filters, conditions that are known
 * beforehand, projections over projections, a CTE used once.
 */
#include <string.h>

#include "rules_int.h"

/* ---- filters --------------------------------------------------------------------------------- */

/* A condition without what is known of it: what is always true is TRUE then, what never is FALSE or
 * NULL. */
static expr *reduce(rule_ctx *r, expr *x) {
    value v;
    if (x->kind == EXPR_OP && (x->op == OP_AND || x->op == OP_OR)) {
        expr *a = reduce(r, x->args[0]), *b = reduce(r, x->args[1]);
        bool is_or = x->op == OP_OR;
        if (is_or ? expr_is_true(a) || is_never(b) : is_never(a) || expr_is_true(b))
            return a;
        if (is_or ? expr_is_true(b) || is_never(a) : is_never(b) || expr_is_true(a))
            return b;
        return a == x->args[0] && b == x->args[1] ? x : expr_op2(r->mem, x->op, x->type, a, b);
    }
    bool known = x->kind != EXPR_LITERAL && x->type == TYPE_BOOLEAN && expr_is_constant(x) &&
                 r->env->constant && r->env->constant(r->env->ctx, x, r->mem, &v) == 0;
    return known ? expr_literal(r->mem, v) : x;
}

/* The conditions of an AND that have something to say. */
static conjuncts reduced(rule_ctx *r, expr *x) {
    conjuncts all = {0}, kept = {0};
    conjuncts_split(r, &all, x);
    for (int i = 0; i < all.n; i++) {
        expr *one = reduce(r, all.list[i]);
        if (!expr_is_true(one))
            conjuncts_add(r, &kept, one);
    }
    return kept;
}

static bool same_conjuncts(rule_ctx *r, const conjuncts *c, expr *x) {
    conjuncts all = {0};
    conjuncts_split(r, &all, x);
    bool same = c->n == all.n;
    for (int i = 0; same && i < c->n; i++)
        same = c->list[i] == all.list[i];
    return same;
}

/* Where no pair differs from another by it, a condition of ON goes; one that may be unknown, which
 * NOT IN tells from false, stays as it is. */
static rel *filters_of_join(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, rule_filters);
    if (x->join.mark_null || !x->join.predicate)
        return x;
    conjuncts kept = reduced(r, x->join.predicate);
    if (same_conjuncts(r, &kept, x->join.predicate))
        return x;
    rel *copy = rel_copy(r, x);
    copy->join.predicate = conjuncts_join(r, &kept);
    return copy;
}

/* Filters one on the other become one, inner conditions first; what is always true goes, and what
 * never is leaves no rows to ask for. */
rel *rule_filters(rule_ctx *r, rel *x) {
    if (x->kind == REL_JOIN)
        return filters_of_join(r, x);
    if (x->kind != REL_FILTER)
        return rel_each_input(r, x, rule_filters);
    int depth = 0;
    rel *base = x;
    for (; base->kind == REL_FILTER; base = base->left)
        depth++;
    rel **chain = ARENA_ARRAY(r->mem, rel *, depth);
    int at = depth;
    for (rel *f = x; f->kind == REL_FILTER; f = f->left)
        chain[--at] = f;
    conjuncts kept = {0};
    for (int i = 0; i < depth; i++) {
        conjuncts own = reduced(r, chain[i]->filter.predicate);
        for (int k = 0; k < own.n; k++) {
            if (is_never(own.list[k]))
                return make_empty(r, x);
            conjuncts_add(r, &kept, own.list[k]);
        }
    }
    rel *left = rule_filters(r, base);
    if (depth == 1 && same_conjuncts(r, &kept, x->filter.predicate))
        return rel_over(r, x, left, NULL);
    return make_filter(r, left, &kept);
}

/* ---- projections ----------------------------------------------------------------------------- */

typedef struct use_counts {
    const rel *of;
    int *count; /* per column */
} use_counts;

static void count_column(void *ctx, int id) {
    use_counts *u = ctx;
    for (int i = 0; i < u->of->ncols; i++)
        u->count[i] += u->of->cols[i].id == id;
}

static void count_expr(void *ctx, const expr *x) {
    expr_columns(x, count_column, ctx);
}

/* Whether the inner projection's expressions may be written into the outer's: none volatile, none
 * computed twice by it. */
static bool can_merge(rule_ctx *r, const rel *outer, const rel *inner) {
    use_counts u = {inner, ARENA_ARRAY(r->mem, int, inner->ncols + 1)};
    rel_exprs(outer, count_expr, &u);
    for (int i = 0; i < inner->ncols; i++) {
        const expr *x = inner->project.exprs[i].value;
        bool cheap = x->kind == EXPR_COLUMN || x->kind == EXPR_LITERAL;
        if (expr_is_volatile(x) || (!cheap && u.count[i] > 1))
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

rel *rule_projects(rule_ctx *r, rel *x) {
    while (x->kind == REL_PROJECT && x->left->kind == REL_PROJECT && can_merge(r, x, x->left)) {
        expr_map map = {0};
        const rel *inner = x->left;
        for (int i = 0; i < inner->ncols; i++)
            expr_map_add(r, &map, inner->cols[i].id, inner->project.exprs[i].value);
        x = rel_replace_here(r, x, &map);
        x->left = inner->left;
    }
    x = rel_each_input(r, x, rule_projects);
    return x->kind == REL_PROJECT && is_identity(x) ? x->left : x;
}

/* ---- shared relations ------------------------------------------------------------------------ */

static void count_shared(const rel *x, int *count) {
    for (; x; x = x->left) {
        if (x->kind == REL_SHARED && count[x->shared.number]++ > 0)
            return;
        if (x->right)
            count_shared(x->right, count);
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

/* A CTE that one place reads becomes part of the query around it. */
rel *rule_inline(rule_ctx *r, rel *x) {
    r->counts = ARENA_ARRAY(r->mem, int, r->next_share + 1);
    count_shared(x, r->counts);
    return inline_shared(r, x);
}
