/*
 * unnest_pull.c - the common correlated subqueries: the conditions that read the outer row are
 * pulled up and become the join's.
 *
 *   EXISTS (SELECT … FROM u WHERE u.k = t.id AND …)      Join mark (t, u') on t.id = u.k
 *   (SELECT max(w) FROM u WHERE u.k = t.id)              Join left (t, Group by u.k (u)) on t.id =
 *                                                        u.k
 *
 * Invariant of pull(): for every outer row, the rows of the input are those rows of the result for
 * which all pulled conditions are true, in the same order. Above a condition that is not an
 * equality (= or IS) no grouping, DISTINCT or LIMIT may stand; above an equality they work by its
 * inner column.
 */
#include <string.h>

#include "rules_int.h"

typedef struct puller {
    rule_ctx *r;
    const id_set *outer;
    conjuncts pulled;
    id_set carried; /* inner columns that pulled conditions read: every node passes them up */
    bool failed;
} puller;

static rel *pull(puller *p, rel *x, bool keyed);

static rel *fail(puller *p, rel *x) {
    p->failed = true;
    return x;
}

static bool reads_outer(const puller *p, const rel *x) {
    id_set unbound = rel_free_ids(p->r, x);
    for (int i = 0; i < unbound.nwords && i < p->outer->nwords; i++)
        if (unbound.bits[i] & p->outer->bits[i])
            return true;
    return false;
}

static bool node_reads_outer(const puller *p, const rel *x) {
    id_set reads = id_set_new(p->r->mem);
    rel_reads(x, &reads);
    for (int i = 0; i < reads.nwords && i < p->outer->nwords; i++)
        if (reads.bits[i] & p->outer->bits[i])
            return true;
    return false;
}

/* ---- conditions ------------------------------------------------------------------------------ */

/* outer = inner or outer IS inner (either way round): the two sides. */
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

/* Adds a column that holds `value`. */
static rel *with_column(puller *p, rel *x, expr *key, int id) {
    rel *all = rel_project(p->r->mem, x, x->ncols + 1);
    for (int i = 0; i < x->ncols; i++)
        project_set(all, i, x->cols[i], column_expr(p->r, &x->cols[i]));
    project_set(all, x->ncols, (rel_column){id, key->type, STR("key"), {NULL, 0}}, key);
    return all;
}

static rel *take(puller *p, rel *x, expr *condition, bool keyed) {
    expr *outer, *inner;
    bool equal = is_equality(p, condition, &outer, &inner);
    if (expr_is_volatile(condition) || (keyed && !equal))
        return fail(p, x);
    if (equal && inner->kind != EXPR_COLUMN) {
        x = with_column(p, x, inner, p->r->next_id++);
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

static rel *pull_filter(puller *p, rel *x, bool keyed) {
    conjuncts own = {0}, here = {0};
    rel *left = pull(p, x->left, keyed);
    conjuncts_split(p->r, &own, x->filter.predicate);
    for (int i = 0; i < own.n; i++)
        if (!expr_touches(own.list[i], p->outer))
            conjuncts_add(p->r, &here, own.list[i]);
    left = make_filter(p->r, left, &here);
    for (int i = 0; i < own.n && !p->failed; i++)
        if (expr_touches(own.list[i], p->outer))
            left = take(p, left, own.list[i], keyed);
    return left;
}

/* ---- what passes them up --------------------------------------------------------------------- */

static int count_carried(const puller *p, const rel *from, const rel *without) {
    int n = 0;
    for (int i = 0; i < from->ncols; i++)
        n += id_set_has(&p->carried, from->cols[i].id) && !rel_column_of(without, from->cols[i].id);
    return n;
}

/* `exprs` of x over left, then the carried columns. */
static rel *pull_project(puller *p, rel *x, bool keyed) {
    if (node_reads_outer(p, x))
        return fail(p, x);
    rel *left = pull(p, x->left, keyed);
    rel *all = rel_project(p->r->mem, left, x->ncols + count_carried(p, left, x));
    int at = 0;
    for (; at < x->ncols; at++)
        project_set(all, at, x->cols[at], x->project.exprs[at].value);
    for (int i = 0; i < left->ncols; i++)
        if (id_set_has(&p->carried, left->cols[i].id) && !rel_column_of(x, left->cols[i].id))
            project_set(all, at++, left->cols[i], column_expr(p->r, &left->cols[i]));
    return all;
}

static rel *pull_distinct(puller *p, rel *x) {
    rel *left = pull(p, x->left, true);
    rel *all = rel_project(p->r->mem, left, x->ncols + count_carried(p, left, x));
    int at = 0;
    for (; at < x->ncols; at++)
        project_set(all, at, x->cols[at], column_expr(p->r, &x->cols[at]));
    for (int i = 0; i < left->ncols; i++)
        if (id_set_has(&p->carried, left->cols[i].id) && !rel_column_of(x, left->cols[i].id))
            project_set(all, at++, left->cols[i], column_expr(p->r, &left->cols[i]));
    return rel_new(p->r->mem, REL_DISTINCT, all, NULL);
}

static rel *pull_limit(puller *p, rel *x) {
    rel *left = pull(p, x->left, true), *copy = rel_copy(p->r, x);
    int n = x->limit.npartition;
    copy->limit.partition = ARENA_ARRAY(p->r->mem, int, n + left->ncols + 1);
    if (n)
        memcpy(copy->limit.partition, x->limit.partition, sizeof(int) * (size_t)n);
    for (int i = 0; i < left->ncols; i++)
        if (id_set_has(&p->carried, left->cols[i].id))
            copy->limit.partition[n++] = left->cols[i].id;
    copy->limit.npartition = n;
    copy->left = left;
    rel_set_columns(p->r->mem, copy);
    return copy;
}

/* Groups by the carried columns too; they get new ids. */
static rel *group_carried(puller *p, rel *x, rel *left) {
    rel_column *more = ARENA_ARRAY(p->r->mem, rel_column, left->ncols + 1);
    int *ids = ARENA_ARRAY(p->r->mem, int, left->ncols + 1), n = 0;
    expr_map map = {0};
    id_set carried = id_set_new(p->r->mem);
    for (int i = 0; i < left->ncols; i++)
        if (id_set_has(&p->carried, left->cols[i].id)) {
            more[n] = left->cols[i];
            ids[n++] = p->r->next_id++;
        }
    rel *g = group_by_more(p->r, x, left, more, ids, n);
    for (int i = 0; i < n; i++) {
        expr_map_add(p->r, &map, more[i].id, column_expr(p->r, rel_column_of(g, ids[i])));
        id_set_add(&carried, ids[i]);
    }
    for (int i = 0; i < p->pulled.n; i++)
        p->pulled.list[i] = expr_replace(p->r, p->pulled.list[i], &map);
    p->carried = carried;
    return g;
}

static rel *pull_join(puller *p, rel *x, bool keyed) {
    bool inner = rel_is_inner_join(x);
    if (!inner && (reads_outer(p, x->right) || node_reads_outer(p, x)))
        return fail(p, x);
    rel *copy = rel_copy(p->r, x);
    conjuncts own = {0}, here = {0};
    copy->left = pull(p, x->left, keyed);
    if (inner)
        copy->right = pull(p, x->right, keyed);
    conjuncts_split(p->r, &own, x->join.predicate);
    for (int i = 0; i < own.n; i++)
        if (!expr_touches(own.list[i], p->outer))
            conjuncts_add(p->r, &here, own.list[i]);
    copy->join.predicate = conjuncts_join(p->r, &here);
    if (inner)
        copy->join.kind = here.n ? JOIN_INNER : JOIN_CROSS;
    rel_set_columns(p->r->mem, copy);
    for (int i = 0; i < own.n && !p->failed; i++)
        if (expr_touches(own.list[i], p->outer))
            copy = take(p, copy, own.list[i], keyed);
    return copy;
}

static rel *pull(puller *p, rel *x, bool keyed) {
    if (p->failed || !reads_outer(p, x))
        return x;
    switch (x->kind) {
    case REL_FILTER:
        return pull_filter(p, x, keyed);
    case REL_PROJECT:
        return pull_project(p, x, keyed);
    case REL_DISTINCT:
        return pull_distinct(p, x);
    case REL_LIMIT:
        return pull_limit(p, x);
    case REL_SORT:
        return node_reads_outer(p, x) ? fail(p, x)
                                      : rel_over(p->r, x, pull(p, x->left, keyed), NULL);
    case REL_GROUP:
        if (x->group.nkeys == 0 || node_reads_outer(p, x))
            return fail(p, x);
        return group_carried(p, x, pull(p, x->left, true));
    case REL_JOIN:
    case REL_APPLY:
        return pull_join(p, x, keyed);
    default: /* LLM calls too: they would be asked about rows that the condition drops */
        return fail(p, x);
    }
}

/* ---- scalar aggregates ----------------------------------------------------------------------- */

static rel *project_beside(rule_ctx *r, rel *x, const rel *left, int more) {
    rel *p = rel_project(r->mem, x, left->ncols + more);
    for (int i = 0; i < left->ncols; i++)
        project_set(p, i, left->cols[i], column_expr(r, &left->cols[i]));
    return p;
}

/* Projections over an aggregate without keys: one row for
 * every outer row, so the projections may follow the join. */
static rel *pull_aggregate(puller *p, const rel *apply) {
    rel *x = apply->right, *left = apply->left;
    const rel *projects[16];
    int n = 0;
    for (; x->kind == REL_PROJECT && n < (int)BASE_COUNT(projects); x = x->left) {
        for (int i = 0; i < x->ncols; i++)
            if (expr_is_volatile(x->project.exprs[i].value))
                return NULL;
        projects[n++] = x;
    }
    if (x->kind != REL_GROUP || x->group.nkeys > 0 || node_reads_outer(p, x))
        return NULL;
    rel *input = pull(p, x->left, true);
    if (p->failed)
        return NULL;
    rel *g = rule_unnest(p->r, group_carried(p, x, input));
    rel *all = rel_join(p->r->mem, JOIN_LEFT, left, g, conjuncts_join(p->r, &p->pulled));
    rel *top = project_beside(p->r, all, left, x->ncols);
    aggregates_or_zero(p->r, x, g, top, left->ncols);
    while (n-- > 0) {
        rel *next = project_beside(p->r, top, left, projects[n]->ncols);
        for (int i = 0; i < projects[n]->ncols; i++)
            project_set(next, left->ncols + i, projects[n]->cols[i],
                        projects[n]->project.exprs[i].value);
        top = next;
    }
    return top;
}

/* ---- joining back ---------------------------------------------------------------------------- */

/* For IN, which can be unknown: a condition that is not true
 * takes the row away, it does not make the answer unknown. */
static rel *decide(puller *p, rel *right) {
    conjuncts not_null = {0};
    for (int i = 0; i < p->pulled.n; i++) {
        expr *outer, *inner, *x = p->pulled.list[i];
        if (is_equality(p, x, &outer, &inner)) {
            p->pulled.list[i] = expr_op2(p->r->mem, OP_IS, TYPE_BOOLEAN, outer, inner);
            if (x->op == OP_EQ)
                conjuncts_add(p->r, &not_null,
                              expr_op2(p->r->mem, OP_IS_NOT, TYPE_BOOLEAN, inner,
                                       expr_literal(p->r->mem, value_null())));
        } else {
            p->pulled.list[i] = expr_op2(p->r->mem, OP_IS, TYPE_BOOLEAN, x,
                                         expr_literal(p->r->mem, value_bool(true)));
        }
    }
    return make_filter(p->r, right, &not_null);
}

/* Conditions without an equality make a join that looks at all pairs. Where the outer columns
 * repeat, the general way looks at the pairs of their distinct values alone. */
static bool looks_at_too_many(puller *p, const rel *left) {
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

static puller puller_new(rule_ctx *r, const id_set *outer) {
    return (puller){.r = r, .outer = outer, .carried = id_set_new(r->mem)};
}

rel *unnest_by_pulling(rule_ctx *r, rel *apply, const id_set *outer) {
    puller p = puller_new(r, outer);
    if (apply->join.kind == JOIN_SINGLE && !apply->join.predicate) {
        rel *done = pull_aggregate(&p, apply);
        if (done)
            return done;
        p = puller_new(r, outer);
    }
    rel *right = pull(&p, apply->right, false);
    if (p.failed || looks_at_too_many(&p, apply->left))
        return NULL;
    if (apply->join.kind == JOIN_MARK && apply->join.mark_null)
        right = decide(&p, right);
    conjuncts_split(r, &p.pulled, apply->join.predicate);
    rel *x = rel_copy(r, apply);
    x->kind = REL_JOIN;
    x->right = rule_unnest(r, right);
    x->join.predicate = conjuncts_join(r, &p.pulled);
    rel_set_columns(r->mem, x);
    return x;
}
