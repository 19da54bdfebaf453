/*
 * unnest_pull.c - unnests the common correlated subqueries: pulls the conditions that read outer
 * columns up out of the subquery, and makes them conditions of the join.
 *
 *   EXISTS (SELECT … FROM u WHERE u.k = t.id AND …)   Join mark (t, u') on t.id = u.k
 *   (SELECT max(w) FROM u WHERE u.k = t.id)           Join left (t, Group by u.k (u)) on t.id = u.k
 *
 * Invariant of pull(): the rows that the input has for an outer row are the rows of the result for
 * which all pulled conditions are true, in the same order. A condition is pulled above a grouping,
 * DISTINCT or LIMIT only if it is an equality (= or IS). The node is then evaluated separately for
 * each value of the equality's inner side.
 */
#include "rules_int.h"

typedef struct puller {
    rule_ctx *r;
    const id_set *outer; /* the outer columns that the subquery reads */
    conjuncts pulled;    /* the conditions pulled so far */
    id_set carried;      /* inner columns that these read; every node above must return them */
    bool failed;         /* a condition may not be pulled up */
} puller;

/* Pulls the conditions that read outer columns up out of the tree x. equalities_only: a node above
 * permits only equalities to be pulled. */
static rel *pull(puller *p, rel *x, bool equalities_only);

static rel *fail(puller *p, rel *x) {
    p->failed = true;
    return x;
}

static bool node_reads_outer(const puller *p, const rel *x) {
    id_set reads = id_set_new(p->r->mem);
    rel_reads(x, &reads);
    return id_set_meets(&reads, p->outer);
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* Whether x compares an expression of outer columns with an inner one by = or IS. Sets the two
 * sides. */
static bool is_equality(const puller *p, const expr *x, expr **outer, expr **inner) {
    if (x->kind != EXPR_OP || (x->op != OP_EQ && x->op != OP_IS))
        return false;
    for (int i = 0; i < 2; i++) {
        *outer = x->args[i];
        *inner = x->args[1 - i];
        if (expr_only_in(*outer, p->outer) && expr_touches(*outer, p->outer) &&
            !expr_touches(*inner, p->outer) && !expr_is_constant(*inner))
            return true;
    }
    return false;
}

/* Pulls one condition up above x. Returns x; if the inner side of an equality is not a column,
 * returns a projection of x with one more column, which is the inner side. */
static rel *pull_condition(puller *p, rel *x, expr *condition, bool equalities_only) {
    expr *outer, *inner;
    bool equal = is_equality(p, condition, &outer, &inner);
    if (expr_is_volatile(condition) || (equalities_only && !equal))
        return fail(p, x);
    if (equal && inner->kind != EXPR_COLUMN) {
        rel_column key = {p->r->next_id++, inner->type, STR("key"), {NULL, 0}};
        x = pass_columns(p->r, x, x->cols, x->ncols, 1);
        project_set(x, x->ncols - 1, key, inner);
        inner = column_expr(p->r, &x->cols[x->ncols - 1]);
    }
    if (equal)
        condition = expr_op2(p->r->mem, condition->op, TYPE_BOOLEAN, outer, inner);
    conjuncts_add(p->r, &p->pulled, condition);
    id_set reads = id_set_new(p->r->mem);
    id_set_add_expr(&reads, condition);
    for (int i = 0; i < x->ncols; i++)
        if (id_set_has(&reads, x->cols[i].id))
            id_set_add(&p->carried, x->cols[i].id);
    return x;
}

static rel *pull_conditions(puller *p, rel *x, const conjuncts *all, bool equalities_only) {
    for (int i = 0; i < all->n && !p->failed; i++)
        x = pull_condition(p, x, all->list[i], equalities_only);
    return x;
}

/* Splits a predicate into the conditions that read outer columns and the others. */
static void split_predicate(const puller *p, expr *predicate, conjuncts *outer, conjuncts *here) {
    conjuncts all = {0};
    conjuncts_split(p->r, &all, predicate);
    for (int i = 0; i < all.n; i++)
        conjuncts_add(p->r, expr_touches(all.list[i], p->outer) ? outer : here, all.list[i]);
}

static rel *pull_filter(puller *p, rel *x, bool equalities_only) {
    conjuncts outer = {0}, here = {0};
    rel *left = pull(p, x->left, equalities_only);
    split_predicate(p, x->filter.predicate, &outer, &here);
    return pull_conditions(p, make_filter(p->r, left, &here), &outer, equalities_only);
}

/* ---- nodes that keep the carried columns ----------------------------------------------------- */

/* Returns the carried columns of `from` that `without` does not have; `without` may be NULL. */
static rel_column *carried_columns(const puller *p, const rel *from, const rel *without, int *n) {
    rel_column *cols = ARENA_ARRAY(p->r->mem, rel_column, from->ncols + 1);
    *n = 0;
    for (int i = 0; i < from->ncols; i++)
        if (id_set_has(&p->carried, from->cols[i].id) &&
            !(without && rel_column_of(without, from->cols[i].id)))
            cols[(*n)++] = from->cols[i];
    return cols;
}

/* Returns a projection of `left` to the columns of x and the carried columns. */
static rel *project_carried(puller *p, rel *left, const rel *x) {
    int n;
    const rel_column *more = carried_columns(p, left, x, &n);
    rel *all = pass_columns(p->r, left, x->cols, x->ncols, n);
    for (int i = 0; i < n; i++)
        project_set(all, x->ncols + i, more[i], column_expr(p->r, &more[i]));
    return all;
}

static rel *pull_project(puller *p, rel *x, bool equalities_only) {
    if (node_reads_outer(p, x))
        return fail(p, x);
    rel *all = project_carried(p, pull(p, x->left, equalities_only), x);
    for (int i = 0; i < x->ncols; i++)
        all->project.exprs[i] = x->project.exprs[i];
    return all;
}

static rel *pull_distinct(puller *p, rel *x) {
    rel *left = pull(p, x->left, true);
    return rel_new(p->r->mem, REL_DISTINCT, project_carried(p, left, x), NULL);
}

static rel *pull_limit(puller *p, rel *x) {
    int n;
    rel *left = pull(p, x->left, true);
    const rel_column *carried = carried_columns(p, left, NULL, &n);
    int *ids = ARENA_ARRAY(p->r->mem, int, n + 1);
    for (int i = 0; i < n; i++)
        ids[i] = carried[i].id;
    return limit_per(p->r, x, left, ids, n);
}

/* Returns the grouping x over `left`, with the carried columns added as keys. The keys get new ids,
 * which become p->carried. */
static rel *group_by_carried(puller *p, rel *x, rel *left) {
    int n;
    const rel_column *more = carried_columns(p, left, NULL, &n);
    int *ids = ARENA_ARRAY(p->r->mem, int, n + 1);
    expr_map map = {0};
    for (int i = 0; i < n; i++)
        ids[i] = p->r->next_id++;
    rel *g = group_by_more(p->r, x, left, more, ids, n);
    p->carried = id_set_new(p->r->mem);
    for (int i = 0; i < n; i++) {
        expr_map_add(p->r, &map, more[i].id, column_expr(p->r, rel_column_of(g, ids[i])));
        id_set_add(&p->carried, ids[i]);
    }
    for (int i = 0; i < p->pulled.n; i++)
        p->pulled.list[i] = expr_replace(p->r, p->pulled.list[i], &map);
    return g;
}

static rel *pull_join(puller *p, rel *x, bool equalities_only) {
    bool inner = rel_is_inner_join(x);
    if (!inner && (reads_any_of(p->r, x->right, p->outer) || node_reads_outer(p, x)))
        return fail(p, x);
    rel *copy = rel_copy(p->r, x);
    conjuncts outer = {0}, here = {0};
    rel *left = pull(p, x->left, equalities_only),
        *right = inner ? pull(p, x->right, equalities_only) : x->right;
    split_predicate(p, x->join.predicate, &outer, &here);
    copy->join.predicate = conjuncts_join(p->r, &here);
    if (inner)
        copy->join.kind = here.n ? JOIN_INNER : JOIN_CROSS;
    return pull_conditions(p, rel_rebuild(p->r, copy, left, right), &outer, equalities_only);
}

static rel *pull(puller *p, rel *x, bool equalities_only) {
    if (p->failed || !reads_any_of(p->r, x, p->outer))
        return x;
    switch (x->kind) {
    case REL_FILTER:
        return pull_filter(p, x, equalities_only);
    case REL_PROJECT:
        return pull_project(p, x, equalities_only);
    case REL_DISTINCT:
        return pull_distinct(p, x);
    case REL_LIMIT:
        return pull_limit(p, x);
    case REL_SORT:
        return node_reads_outer(p, x) ? fail(p, x)
                                      : rel_over(p->r, x, pull(p, x->left, equalities_only), NULL);
    case REL_GROUP:
        if (x->group.nkeys == 0 || node_reads_outer(p, x))
            return fail(p, x);
        return group_by_carried(p, x, pull(p, x->left, true));
    case REL_JOIN:
    case REL_APPLY:
        return pull_join(p, x, equalities_only);
    /* LLM nodes too: above them the condition would no longer keep rows from being asked about */
    default:
        return fail(p, x);
    }
}

/* ---- scalar aggregates ----------------------------------------------------------------------- */

/* Unnests a scalar subquery that is an aggregate without keys below projections. It has one row for
 * every outer row, so the projections may be placed above the join. Returns NULL if the subquery
 * has another form. */
static rel *pull_aggregate(puller *p, const rel *apply) {
    rel *x = apply->right, *left = apply->left;
    const rel *projects[16];
    int n = 0;
    for (; x->kind == REL_PROJECT && n < (int)BASE_COUNT(projects); x = x->left) {
        if (node_is_volatile(x))
            return NULL;
        projects[n++] = x;
    }
    if (x->kind != REL_GROUP || x->group.nkeys > 0 || node_reads_outer(p, x))
        return NULL;
    rel *input = pull(p, x->left, true);
    if (p->failed)
        return NULL;
    rel *g = unnest_subqueries(p->r, group_by_carried(p, x, input));
    rel *all = rel_join(p->r->mem, JOIN_LEFT, left, g, conjuncts_join(p->r, &p->pulled));
    rel *top = pass_columns(p->r, all, left->cols, left->ncols, x->ncols);
    aggregates_or_zero(p->r, x, g, top, left->ncols);
    while (n-- > 0) {
        top = pass_columns(p->r, top, left->cols, left->ncols, projects[n]->ncols);
        for (int i = 0; i < projects[n]->ncols; i++)
            project_set(top, left->ncols + i, projects[n]->cols[i],
                        projects[n]->project.exprs[i].value);
    }
    return top;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Rewrites the pulled conditions such that none can be NULL. A join condition that is NULL would
 * make the join's mark NULL (IN in a SELECT list), but in the subquery the same condition only
 * dropped the row. */
static rel *make_two_valued(puller *p, rel *right) {
    conjuncts not_null = {0};
    for (int i = 0; i < p->pulled.n; i++) {
        expr *outer, *inner, *x = p->pulled.list[i];
        bool equal = is_equality(p, x, &outer, &inner);
        if (!equal) {
            outer = x;
            inner = expr_literal(p->r->mem, value_bool(true));
        }
        p->pulled.list[i] = expr_op2(p->r->mem, OP_IS, TYPE_BOOLEAN, outer, inner);
        if (equal && x->op == OP_EQ)
            conjuncts_add(p->r, &not_null,
                          expr_op2(p->r->mem, OP_IS_NOT, TYPE_BOOLEAN, inner,
                                   expr_literal(p->r->mem, value_null())));
    }
    return make_filter(p->r, right, &not_null);
}

/* Whether unnest.c's method compares fewer pairs. Without an equality among the conditions, the
 * join compares all pairs of rows. If values of the outer columns repeat, joining only their
 * distinct values compares fewer. */
static bool compares_too_many_pairs(puller *p, const rel *left) {
    expr *outer, *inner;
    double distinct = 1;
    const rel_estimate *e = estimate_rel(p->r->estimates, left);
    for (int i = 0; i < p->pulled.n; i++)
        if (is_equality(p, p->pulled.list[i], &outer, &inner))
            return false;
    for (int i = 0; i < left->ncols; i++)
        if (id_set_has(p->outer, left->cols[i].id))
            distinct *= e->columns[i].distinct;
    return distinct < e->rows / 2;
}

rel *unnest_by_pulling(rule_ctx *r, rel *apply, const id_set *outer) {
    const puller fresh = {.r = r, .outer = outer, .carried = id_set_new(r->mem)};
    puller p = fresh;
    if (apply->join.kind == JOIN_SINGLE && !apply->join.predicate) {
        rel *done = pull_aggregate(&p, apply);
        if (done)
            return done;
        p = fresh;
    }
    rel *right = pull(&p, apply->right, false);
    if (p.failed || compares_too_many_pairs(&p, apply->left))
        return NULL;
    if (apply->join.kind == JOIN_MARK && apply->join.mark_null)
        right = make_two_valued(&p, right);
    conjuncts_split(r, &p.pulled, apply->join.predicate);
    return apply_to_join(r, apply, apply->left, unnest_subqueries(r, right),
                         conjuncts_join(r, &p.pulled));
}
