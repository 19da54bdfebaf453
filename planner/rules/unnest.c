/*
 * unnest.c - subqueries into joins: REL_APPLY goes away.
 *
 *   uncorrelated           Apply(L, R)        -> Join(L, R)
 *   by its conditions      unnest_pull.c      -> Join(L, R') on the correlated conditions
 *   in general             Neumann & Kemper   -> Join(S, R'') on S.f IS d
 *
 * In general: D, the distinct values of the outer columns f that R reads, is taken from the shared
 * outer relation S = Shared(L) and pushed into R as columns d until nothing below reads f.
 * Invariant of push(): for every row of D, the rows of the result with these values in d are the
 * rows of the input with f = d, in the input's order.
 *
 * Outer subqueries are unnested before inner ones, so an Apply met here reads columns of its own
 * left input alone.
 */
#include <string.h>

#include "rules_int.h"

typedef struct outer_columns {
    rule_ctx *r;
    rel *left;  /* L */
    int number; /* of S */
    id_set ids; /* f */
    int n;
    const rel_column **cols;             /* f, as columns of L */
    rel **shared_before, **shared_after; /* CTEs that read f, by share number */
    int nshared;
} outer_columns;

static rel *push(outer_columns *o, rel *x, int *d);

static bool touches(const outer_columns *o, const rel *x) {
    id_set unbound = rel_free_ids(o->r, x);
    for (int i = 0; i < o->n; i++)
        if (id_set_has(&unbound, o->cols[i]->id))
            return true;
    return false;
}

static rel_column renamed(const rel_column *c, int id) {
    rel_column copy = *c;
    copy.id = id;
    return copy;
}

static int *new_ids(outer_columns *o) {
    int *ids = ARENA_ARRAY(o->r->mem, int, o->n + 1);
    for (int i = 0; i < o->n; i++)
        ids[i] = o->r->next_id++;
    return ids;
}

static expr *d_column(outer_columns *o, int i, int id) {
    rel_column c = renamed(o->cols[i], id);
    return column_expr(o->r, &c);
}

/* f -> d */
static expr_map map_to(outer_columns *o, const int *d) {
    expr_map map = {0};
    for (int i = 0; i < o->n; i++)
        expr_map_add(o->r, &map, o->cols[i]->id, d_column(o, i, d[i]));
    return map;
}

/* a IS b for every d, and the rest. */
static expr *tie(outer_columns *o, const int *a, const int *b, expr *rest) {
    conjuncts all = {0};
    for (int i = 0; i < o->n; i++)
        conjuncts_add(
            o->r, &all,
            expr_op2(o->r->mem, OP_IS, TYPE_BOOLEAN, d_column(o, i, a[i]), d_column(o, i, b[i])));
    conjuncts_split(o->r, &all, rest);
    return conjuncts_join(o->r, &all);
}

static rel *shared_ref(rule_ctx *r, rel *input, int number, bool own_ids) {
    rel *x = rel_new(r->mem, REL_SHARED, input, NULL);
    x->shared.number = number;
    x->ncols = input->ncols;
    x->cols = ARENA_ARRAY(r->mem, rel_column, input->ncols + 1);
    for (int i = 0; i < input->ncols; i++)
        x->cols[i] = own_ids ? renamed(&input->cols[i], r->next_id++) : input->cols[i];
    return x;
}

/* D, with fresh ids in d. */
static rel *domain(outer_columns *o, int *d) {
    rel *s = shared_ref(o->r, o->left, o->number, true);
    rel *p = rel_project(o->r->mem, s, o->n);
    int *ids = new_ids(o);
    for (int i = 0; i < o->n; i++) {
        int at = (int)(o->cols[i] - o->left->cols);
        d[i] = ids[i];
        project_set(p, i, renamed(o->cols[i], ids[i]), column_expr(o->r, &s->cols[at]));
    }
    return rel_new(o->r->mem, REL_DISTINCT, p, NULL);
}

/* Exactly the columns of `like`, then d. */
static rel *exactly(outer_columns *o, rel *x, const rel *like, const int *d) {
    rel *p = rel_project(o->r->mem, x, like->ncols + o->n);
    for (int i = 0; i < like->ncols; i++)
        project_set(p, i, like->cols[i], column_expr(o->r, &like->cols[i]));
    for (int i = 0; i < o->n; i++)
        project_set(p, like->ncols + i, renamed(o->cols[i], d[i]), d_column(o, i, d[i]));
    return p;
}

/* ---- one input ------------------------------------------------------------------------------- */

static rel *push_same(outer_columns *o, rel *x, int *d) {
    rel *left = push(o, x->left, d);
    expr_map map = map_to(o, d);
    rel *copy = rel_replace_here(o->r, x, &map);
    copy->left = left;
    rel_set_columns(o->r->mem, copy);
    return copy;
}

static rel *push_project(outer_columns *o, rel *x, int *d) {
    rel *left = push(o, x->left, d);
    expr_map map = map_to(o, d);
    rel *p = rel_project(o->r->mem, left, x->ncols + o->n);
    for (int i = 0; i < x->ncols; i++)
        project_set(p, i, x->cols[i], expr_replace(o->r, x->project.exprs[i].value, &map));
    for (int i = 0; i < o->n; i++)
        project_set(p, x->ncols + i, renamed(o->cols[i], d[i]), d_column(o, i, d[i]));
    return p;
}

static rel *push_distinct(outer_columns *o, rel *x, int *d) {
    rel *left = push(o, x->left, d);
    return rel_new(o->r->mem, REL_DISTINCT, exactly(o, left, x->left, d), NULL);
}

static rel *push_limit(outer_columns *o, rel *x, int *d) {
    rel *copy = push_same(o, x, d);
    int n = copy->limit.npartition;
    int *ids = ARENA_ARRAY(o->r->mem, int, n + o->n + 1);
    if (n)
        memcpy(ids, copy->limit.partition, sizeof *ids * (size_t)n);
    memcpy(ids + n, d, sizeof *ids * (size_t)o->n);
    copy->limit.partition = ids;
    copy->limit.npartition = n + o->n;
    return copy;
}

/* Each row of D has its own windows: all are partitioned by d, first of all. */
static rel *push_window(outer_columns *o, rel *x, int *d) {
    rel *copy = push_same(o, x, d);
    int n = copy->window.nkeys;
    sort_key *keys = ARENA_ARRAY(o->r->mem, sort_key, n + o->n + 1);
    for (int i = 0; i < o->n; i++)
        keys[i].value = d_column(o, i, d[i]);
    if (n)
        memcpy(keys + o->n, copy->window.keys, sizeof *keys * (size_t)n);
    copy->window.keys = keys;
    copy->window.nkeys = n + o->n;
    for (int i = 0; i < copy->window.nfunctions; i++) {
        copy->window.functions[i].npartition += o->n;
        copy->window.functions[i].nkeys += o->n;
    }
    return copy;
}

rel *group_by_more(rule_ctx *r, const rel *x, rel *left, const rel_column *more, const int *ids,
                   int nmore) {
    int nkeys = x->group.nkeys, naggs = x->group.naggs;
    rel *g = rel_copy(r, x);
    g->left = left;
    g->group.nkeys = nkeys + nmore;
    g->group.keys = ARENA_ARRAY(r->mem, rel_expr, nkeys + nmore + 1);
    g->group.aggs = ARENA_ARRAY(r->mem, rel_agg, naggs + 1);
    g->ncols = nkeys + nmore + naggs;
    g->cols = ARENA_ARRAY(r->mem, rel_column, g->ncols + 1);
    for (int i = 0; i < nkeys; i++) {
        g->group.keys[i] = x->group.keys[i];
        g->cols[i] = x->cols[i];
    }
    for (int i = 0; i < nmore; i++) {
        g->group.keys[nkeys + i] = (rel_expr){column_expr(r, &more[i]), ids[i]};
        g->cols[nkeys + i] = renamed(&more[i], ids[i]);
    }
    for (int i = 0; i < naggs; i++) {
        g->group.aggs[i] = x->group.aggs[i];
        g->cols[nkeys + nmore + i] = x->cols[nkeys + i];
        /* its aggregates get new ids: the old ones are made by aggregates_or_zero */
        if (nkeys == 0) {
            g->group.aggs[i].id = r->next_id++;
            g->cols[nmore + i].id = g->group.aggs[i].id;
        }
    }
    return g;
}

void aggregates_or_zero(rule_ctx *r, const rel *x, const rel *g, rel *project, int at) {
    for (int i = 0; i < x->group.naggs; i++) {
        const rel_agg *a = &g->group.aggs[i];
        expr *result = column_expr(r, rel_column_of(g, a->id));
        if (a->kind == AGG_COUNT || a->kind == AGG_COUNT_STAR)
            result =
                make_func(r, FUNC_COALESCE, a->type, result, expr_literal(r->mem, value_int(0)));
        project_set(project, at + i, x->cols[i], result);
    }
}

/* Without keys there is one row for every row of D, also where nothing came in. */
static rel *push_aggregate(outer_columns *o, rel *x, const rel *grouped, const int *keys, int *d) {
    rel *all = domain(o, d);
    rel *joined =
        rel_join(o->r->mem, JOIN_LEFT, all, rel_copy(o->r, grouped), tie(o, d, keys, NULL));
    rel *p = rel_project(o->r->mem, joined, x->ncols + o->n);
    aggregates_or_zero(o->r, x, grouped, p, 0);
    for (int i = 0; i < o->n; i++)
        project_set(p, x->ncols + i, renamed(o->cols[i], d[i]), d_column(o, i, d[i]));
    return p;
}

static rel *push_group(outer_columns *o, rel *x, int *d) {
    int *in = ARENA_ARRAY(o->r->mem, int, o->n + 1), *keys = new_ids(o);
    rel *left = push(o, x->left, in);
    expr_map map = map_to(o, in);
    rel *here = rel_replace_here(o->r, x, &map);
    rel_column *more = ARENA_ARRAY(o->r->mem, rel_column, o->n + 1);
    for (int i = 0; i < o->n; i++)
        more[i] = renamed(o->cols[i], in[i]);
    rel *g = group_by_more(o->r, here, left, more, keys, o->n);
    if (x->group.nkeys == 0)
        return push_aggregate(o, x, g, keys, d);
    memcpy(d, keys, sizeof *d * (size_t)o->n);
    return g;
}

/* ---- two inputs ------------------------------------------------------------------------------ */

static rel *push_join(outer_columns *o, rel *x, int *d) {
    bool inner = join_is_inner(x->join.kind);
    bool in_right = touches(o, x->right), in_left = touches(o, x->left) || !inner || !in_right;
    int *right_d = ARENA_ARRAY(o->r->mem, int, o->n + 1);
    rel *copy = rel_copy(o->r, x);
    if (in_left)
        copy->left = push(o, x->left, d);
    if (in_right)
        copy->right = push(o, x->right, in_left ? right_d : d);
    expr_map map = map_to(o, d);
    copy->join.predicate = expr_replace(o->r, x->join.predicate, &map);
    if (in_left && in_right)
        copy->join.predicate = tie(o, d, right_d, copy->join.predicate);
    if (copy->join.kind == JOIN_CROSS && copy->join.predicate)
        copy->join.kind = JOIN_INNER;
    rel_set_columns(o->r->mem, copy);
    return copy;
}

/* A subquery in the subquery: its outer rows carry d, so it reads d instead of f. */
static rel *push_apply(outer_columns *o, rel *x, int *d) {
    rel *copy = rel_copy(o->r, x);
    copy->left = push(o, x->left, d);
    expr_map map = map_to(o, d);
    copy->right = rel_replace(o->r, x->right, &map);
    copy->join.predicate = expr_replace(o->r, x->join.predicate, &map);
    rel_set_columns(o->r->mem, copy);
    return copy;
}

static rel *setop_of(outer_columns *o, set_op op, rel *left, rel *right, const rel *like, int *d) {
    rel *x = rel_new(o->r->mem, REL_SETOP, left, right);
    int *ids = new_ids(o);
    x->setop.op = op;
    x->ncols = like->ncols + o->n;
    x->cols = ARENA_ARRAY(o->r->mem, rel_column, x->ncols + 1);
    memcpy(x->cols, like->cols, sizeof *x->cols * (size_t)like->ncols);
    for (int i = 0; i < o->n; i++)
        x->cols[like->ncols + i] = renamed(o->cols[i], d[i] = ids[i]);
    return x;
}

static rel *push_setop(outer_columns *o, rel *x, int *d) {
    int *left_d = ARENA_ARRAY(o->r->mem, int, o->n + 1),
        *right_d = ARENA_ARRAY(o->r->mem, int, o->n + 1);
    rel *left = push(o, x->left, left_d), *right = push(o, x->right, right_d);
    left = exactly(o, left, x->left, left_d);
    right = exactly(o, right, x->right, right_d);
    return setop_of(o, x->setop.op, left, right, x, d);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* One row of VALUES over D. */
static rel *values_row(outer_columns *o, const rel *x, int row, const rel_column *cols, int *d) {
    rel *p = rel_project(o->r->mem, domain(o, d), x->ncols + o->n);
    expr_map map = map_to(o, d);
    for (int i = 0; i < x->ncols; i++)
        project_set(p, i, cols[i], expr_replace(o->r, x->values.rows[row][i], &map));
    for (int i = 0; i < o->n; i++)
        project_set(p, x->ncols + i, renamed(o->cols[i], d[i]), d_column(o, i, d[i]));
    return p;
}

static rel *push_values(outer_columns *o, rel *x, int *d) {
    rel *all = values_row(o, x, 0, x->cols, d);
    for (int row = 1; row < x->values.nrows; row++) {
        int *row_d = ARENA_ARRAY(o->r->mem, int, o->n + 1);
        rel_column *cols = ARENA_ARRAY(o->r->mem, rel_column, x->ncols + 1);
        /* ids of its own for what the union gives again */
        rel *first = rel_project(o->r->mem, all, x->ncols + o->n);
        for (int i = 0; i < x->ncols + o->n; i++)
            project_set(first, i, renamed(&all->cols[i], o->r->next_id++),
                        column_expr(o->r, &all->cols[i]));
        for (int i = 0; i < x->ncols; i++)
            cols[i] = renamed(&x->cols[i], o->r->next_id++);
        all = setop_of(o, SETOP_UNION_ALL, first, values_row(o, x, row, cols, row_d), x, d);
    }
    return all;
}

/* A CTE in the subquery that reads f: all its references go on sharing one relation. */
static rel *push_shared(outer_columns *o, rel *x, int *d) {
    int number = x->shared.number;
    int *inner = ARENA_ARRAY(o->r->mem, int, o->n + 1);
    if (number >= o->nshared)
        return NULL;
    if (o->shared_before[number] != x->left) {
        rel *left = push(o, x->left, inner);
        o->shared_before[number] = x->left;
        o->shared_after[number] =
            shared_ref(o->r, exactly(o, left, x->left, inner), o->r->next_share++, true);
    }
    const rel *made = o->shared_after[number];
    rel *ref = shared_ref(o->r, made->left, made->shared.number, true);
    ref->shared.kept = x->shared.kept;
    for (int i = 0; i < x->ncols; i++)
        ref->cols[i] = x->cols[i];
    for (int i = 0; i < o->n; i++)
        d[i] = ref->cols[x->ncols + i].id;
    return ref;
}

static rel *push(outer_columns *o, rel *x, int *d) {
    if (!touches(o, x)) {
        rel *all = domain(o, d);
        bool one_row = x->kind == REL_VALUES && x->values.nrows == 1 && x->ncols == 0;
        return one_row ? all : rel_join(o->r->mem, JOIN_CROSS, all, x, NULL);
    }
    switch (x->kind) {
    case REL_VALUES:
        return push_values(o, x, d);
    case REL_PROJECT:
        return push_project(o, x, d);
    case REL_JOIN:
        return push_join(o, x, d);
    case REL_APPLY:
        return push_apply(o, x, d);
    case REL_GROUP:
        return push_group(o, x, d);
    case REL_LIMIT:
        return push_limit(o, x, d);
    case REL_WINDOW:
        return push_window(o, x, d);
    case REL_DISTINCT:
        return push_distinct(o, x, d);
    case REL_SETOP:
        return push_setop(o, x, d);
    case REL_SHARED:
        return push_shared(o, x, d);
    case REL_SCAN:
    case REL_FILE:
    case REL_SYSTEM:
    case REL_SERIES:
    case REL_WORKING:
    case REL_RECURSIVE: /* read nothing, so they were met above */
    case REL_FILTER:
    case REL_SORT:
    case REL_LLM:
    case REL_PIPELINE:
    case REL_NUMBER:
    case REL_OUTER_RESIDUAL:
        break;
    }
    return push_same(o, x, d);
}

/* ---- the rule -------------------------------------------------------------------------------- */

static rel *as_join(rule_ctx *r, const rel *apply, rel *left, rel *right, expr *predicate) {
    rel *x = rel_copy(r, apply);
    x->kind = REL_JOIN;
    x->left = left;
    x->right = right;
    x->join.predicate = predicate;
    rel_set_columns(r->mem, x);
    return x;
}

static rel *unnest_in_general(rule_ctx *r, const rel *apply, rel *left, const id_set *read) {
    outer_columns o = {.r = r, .left = left, .number = r->next_share++, .nshared = r->next_share};
    o.cols = ARENA_ARRAY(r->mem, const rel_column *, left->ncols + 1);
    o.shared_before = ARENA_ARRAY(r->mem, rel *, o.nshared);
    o.shared_after = ARENA_ARRAY(r->mem, rel *, o.nshared);
    for (int i = 0; i < left->ncols; i++)
        if (id_set_has(read, left->cols[i].id))
            o.cols[o.n++] = &left->cols[i];
    int *d = ARENA_ARRAY(r->mem, int, o.n + 1), *f = ARENA_ARRAY(r->mem, int, o.n + 1);
    rel *right = push(&o, apply->right, d);
    for (int i = 0; i < o.n; i++)
        f[i] = o.cols[i]->id;
    rel *shared = shared_ref(r, left, o.number, false);
    return as_join(r, apply, shared, rule_unnest(r, right), tie(&o, f, d, apply->join.predicate));
}

static rel *unnest_apply(rule_ctx *r, rel *x) {
    rel *left = rule_unnest(r, x->left);
    id_set read = rel_free_ids(r, x->right), outer = id_set_new(r->mem);
    for (int i = 0; i < left->ncols; i++)
        if (id_set_has(&read, left->cols[i].id))
            id_set_add(&outer, left->cols[i].id);
    if (outer.nwords == 0)
        return as_join(r, x, left, rule_unnest(r, x->right), x->join.predicate);
    rel *apply = rel_over(r, x, left, x->right);
    rel *joined = unnest_by_pulling(r, apply, &outer);
    if (!joined)
        joined = unnest_in_general(r, apply, left, &outer);
    return rel_like(r, joined, apply);
}

rel *rule_unnest(rule_ctx *r, rel *x) {
    return x->kind == REL_APPLY ? unnest_apply(r, x) : rel_each_input(r, x, rule_unnest);
}
