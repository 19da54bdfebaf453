/*
 * unnest.c - turns subqueries into joins: every REL_APPLY, a join whose right input may read
 * columns of its left input, becomes a REL_JOIN.
 *
 *   uncorrelated               Apply(L, R)    -> Join(L, R)
 *   correlated by conditions   unnest_pull.c  -> Join(L, R') on these conditions
 *   any other                  push()         -> Join(S, R'') on S.f IS d
 *
 * push() is the method of Neumann & Kemper, "Unnesting Arbitrary Queries" (BTW 2015): f are the
 * columns of L that R reads, S is L as a shared relation, and D contains the distinct values of f
 * in S. D is joined to R and pushed down in R, with its values as columns d, until nothing reads f
 * any more.
 * Invariant of push(): take an outer row with some values in f. The rows that the input has for it
 * are the rows of the result with the same values in d, in the same order.
 *
 * An outer subquery is unnested before the subqueries inside it, so that an Apply reads only
 * columns of its own left input.
 */
#include <string.h>

#include "rules_int.h"

/* L, S and f are explained at the top of this file. */
typedef struct outer_columns {
    rule_ctx *r;
    rel *left;               /* L */
    int share;               /* share number of S */
    const id_set *ids;       /* ids of f */
    int n;                   /* number of columns in f */
    const rel_column **cols; /* [n] f, as columns of L */
    /* By number of a shared relation that reads f: its input. */
    rel **shared_before;
    /* By number of a shared relation that reads f: the relation that push_shared made instead. */
    rel **shared_after;
    int nshared; /* entries of shared_before and shared_after */
} outer_columns;

/* Returns a relation with the columns of x and d. It has for each row of D the rows of x in which
 * that row's values replace f. Sets d to the ids of the columns d. */
static rel *push(outer_columns *o, rel *x, int *d);

bool reads_any_of(rule_ctx *r, const rel *x, const id_set *ids) {
    id_set unbound = rel_free_ids(r, x);
    return id_set_meets(&unbound, ids);
}

static rel_column renamed(const rel_column *c, int id) {
    rel_column copy = *c;
    copy.id = id;
    return copy;
}

static rel_column *with_new_ids(rule_ctx *r, const rel_column *cols, int n) {
    rel_column *out = ARENA_ARRAY(r->mem, rel_column, n + 1);
    for (int i = 0; i < n; i++)
        out[i] = renamed(&cols[i], r->next_id++);
    return out;
}

static int *ids_for_d(outer_columns *o) {
    return ARENA_ARRAY(o->r->mem, int, o->n + 1);
}

static void new_ids(outer_columns *o, int *d) {
    for (int i = 0; i < o->n; i++)
        d[i] = o->r->next_id++;
}

static expr *d_column(outer_columns *o, int i, int id) {
    rel_column c = renamed(o->cols[i], id);
    return column_expr(o->r, &c);
}

/* Sets the outputs of a projection from `at` on to the columns d, unchanged. */
static rel *pass_d(outer_columns *o, rel *project, int at, const int *d) {
    for (int i = 0; i < o->n; i++)
        project_set(project, at + i, renamed(o->cols[i], d[i]), d_column(o, i, d[i]));
    return project;
}

/* Returns the substitution that replaces f by d. */
static expr_map map_to(outer_columns *o, const int *d) {
    expr_map map = {0};
    for (int i = 0; i < o->n; i++)
        expr_map_add(o->r, &map, o->cols[i]->id, d_column(o, i, d[i]));
    return map;
}

/* Returns the condition that a[i] IS b[i] for all i, AND `rest`. */
static expr *equal_domains(outer_columns *o, const int *a, const int *b, expr *rest) {
    conjuncts all = {0};
    for (int i = 0; i < o->n; i++)
        conjuncts_add(
            o->r, &all,
            expr_op2(o->r->mem, OP_IS, TYPE_BOOLEAN, d_column(o, i, a[i]), d_column(o, i, b[i])));
    conjuncts_split(o->r, &all, rest);
    return conjuncts_join(o->r, &all);
}

static rel *shared_ref(rule_ctx *r, rel *input, int number, rel_column *cols) {
    rel *x = rel_new(r->mem, REL_SHARED, input, NULL);
    x->shared.number = number;
    x->ncols = input->ncols;
    x->cols = cols;
    return x;
}

/* Returns D. Sets d to the new ids of its columns. */
static rel *domain(outer_columns *o, int *d) {
    rel_column *cols = with_new_ids(o->r, o->left->cols, o->left->ncols);
    rel *p = rel_project(o->r->mem, shared_ref(o->r, o->left, o->share, cols), o->n);
    new_ids(o, d);
    for (int i = 0; i < o->n; i++)
        project_set(p, i, renamed(o->cols[i], d[i]),
                    column_expr(o->r, &cols[o->cols[i] - o->left->cols]));
    return rel_new(o->r->mem, REL_DISTINCT, p, NULL);
}

/* Returns a projection of x to the columns of `like` and d. */
static rel *project_like(outer_columns *o, rel *x, const rel *like, const int *d) {
    return pass_d(o, pass_columns(o->r, x, like->cols, like->ncols, o->n), like->ncols, d);
}

/* Returns a projection of x to the columns `cols` and d. Column cols[i] is exprs[i], in which d
 * replaces f. */
static rel *project_values(outer_columns *o, rel *x, const rel_column *cols, int ncols,
                           expr *const *exprs, const int *d) {
    expr_map map = map_to(o, d);
    rel *p = rel_project(o->r->mem, x, ncols + o->n);
    for (int i = 0; i < ncols; i++)
        project_set(p, i, cols[i], expr_replace(o->r, exprs[i], &map));
    return pass_d(o, p, ncols, d);
}

/* ---- one input ------------------------------------------------------------------------------- */

static rel *push_same(outer_columns *o, rel *x, int *d) {
    rel *left = push(o, x->left, d);
    expr_map map = map_to(o, d);
    return rel_rebuild(o->r, rel_replace_here(o->r, x, &map), left, NULL);
}

static rel *push_project(outer_columns *o, rel *x, int *d) {
    rel *left = push(o, x->left, d);
    expr **exprs = ARENA_ARRAY(o->r->mem, expr *, x->ncols + 1);
    for (int i = 0; i < x->ncols; i++)
        exprs[i] = x->project.exprs[i].value;
    return project_values(o, left, x->cols, x->ncols, exprs, d);
}

static rel *push_distinct(outer_columns *o, rel *x, int *d) {
    rel *left = push(o, x->left, d);
    return rel_new(o->r->mem, REL_DISTINCT, project_like(o, left, x->left, d), NULL);
}

rel *limit_per(rule_ctx *r, const rel *x, rel *left, const int *ids, int n) {
    int before = x->limit.npartition;
    int *partition = ARENA_ARRAY(r->mem, int, before + n + 1);
    for (int i = 0; i < before + n; i++)
        partition[i] = i < before ? x->limit.partition[i] : ids[i - before];
    rel *copy = rel_rebuild(r, x, left, NULL);
    copy->limit.partition = partition;
    copy->limit.npartition = before + n;
    return copy;
}

/* Makes d the first partition keys of all windows, so that each row of D has windows of its own. */
static rel *push_window(outer_columns *o, rel *x, int *d) {
    rel *copy = push_same(o, x, d);
    int n = copy->window.nkeys;
    sort_key *keys = ARENA_ARRAY(o->r->mem, sort_key, n + o->n + 1);
    for (int i = 0; i < o->n; i++)
        keys[i].value = d_column(o, i, d[i]);
    for (int i = 0; i < n; i++)
        keys[o->n + i] = copy->window.keys[i];
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
        /* aggregates_or_zero makes the columns that have the old ids */
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

/* An aggregate without keys returns a row even for no input. So the left join adds the rows of D
 * for which `grouped` has no row. */
static rel *push_aggregate(outer_columns *o, rel *x, const rel *grouped, const int *keys, int *d) {
    rel *all = domain(o, d);
    rel *joined = rel_join(o->r->mem, JOIN_LEFT, all, rel_copy(o->r, grouped),
                           equal_domains(o, d, keys, NULL));
    rel *p = rel_project(o->r->mem, joined, x->ncols + o->n);
    aggregates_or_zero(o->r, x, grouped, p, 0);
    return pass_d(o, p, x->ncols, d);
}

static rel *push_group(outer_columns *o, rel *x, int *d) {
    int *in = ids_for_d(o), *keys = ids_for_d(o);
    new_ids(o, keys);
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
    bool in_right = reads_any_of(o->r, x->right, o->ids),
         in_left = reads_any_of(o->r, x->left, o->ids) || !join_is_inner(x->join.kind) || !in_right;
    int *right_d = in_left ? ids_for_d(o) : d;
    rel *copy = rel_copy(o->r, x);
    rel *left = in_left ? push(o, x->left, d) : x->left,
        *right = in_right ? push(o, x->right, right_d) : x->right;
    expr_map map = map_to(o, d);
    copy->join.predicate = expr_replace(o->r, x->join.predicate, &map);
    if (in_left && in_right)
        copy->join.predicate = equal_domains(o, d, right_d, copy->join.predicate);
    if (copy->join.kind == JOIN_CROSS && copy->join.predicate)
        copy->join.kind = JOIN_INNER;
    return rel_rebuild(o->r, copy, left, right);
}

/* Pushes D into the left input of a subquery within the subquery. The outer rows then have the
 * columns d, so the inner subquery reads d instead of f. */
static rel *push_apply(outer_columns *o, rel *x, int *d) {
    rel *left = push(o, x->left, d);
    expr_map map = map_to(o, d);
    return rel_rebuild(o->r, rel_replace_here(o->r, x, &map), left,
                       rel_replace(o->r, x->right, &map));
}

static rel *new_setop(outer_columns *o, set_op op, rel *left, rel *right, const rel_column *cols,
                      int ncols, int *d) {
    rel *x = rel_new(o->r->mem, REL_SETOP, left, right);
    x->setop.op = op;
    x->ncols = ncols + o->n;
    x->cols = ARENA_ARRAY(o->r->mem, rel_column, x->ncols + 1);
    memcpy(x->cols, cols, sizeof *cols * (size_t)ncols);
    new_ids(o, d);
    for (int i = 0; i < o->n; i++)
        x->cols[ncols + i] = renamed(o->cols[i], d[i]);
    return x;
}

static rel *push_setop(outer_columns *o, rel *x, int *d) {
    int *left_d = ids_for_d(o), *right_d = ids_for_d(o);
    rel *left = push(o, x->left, left_d), *right = push(o, x->right, right_d);
    return new_setop(o, x->setop.op, project_like(o, left, x->left, left_d),
                     project_like(o, right, x->right, right_d), x->cols, x->ncols, d);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

/* Returns the union of the rows, each row projected over D. Every input of a union needs its own
 * column ids. */
static rel *push_values(outer_columns *o, rel *x, int *d) {
    rel *all = NULL;
    for (int row = 0; row < x->values.nrows; row++) {
        bool last = row + 1 == x->values.nrows;
        int *row_d = ids_for_d(o);
        rel *left = domain(o, row_d);
        const rel_column *cols =
            x->values.nrows == 1 ? x->cols : with_new_ids(o->r, x->cols, x->ncols);
        rel *one = project_values(o, left, cols, x->ncols, x->values.rows[row], row_d);
        memcpy(d, row_d, sizeof *d * (size_t)o->n);
        all = row == 0
                  ? one
                  : new_setop(o, SETOP_UNION_ALL, all, one,
                              last ? x->cols : with_new_ids(o->r, x->cols, x->ncols), x->ncols, d);
    }
    return all;
}

/* Pushes D into a CTE of the subquery that reads f. All references share the new relation, which
 * has the columns d. */
static rel *push_shared(outer_columns *o, rel *x, int *d) {
    int number = x->shared.number;
    if (number >= o->nshared)
        return NULL;
    if (o->shared_before[number] != x->left) {
        int *inner = ids_for_d(o);
        rel *left = project_like(o, push(o, x->left, inner), x->left, inner);
        o->shared_before[number] = x->left;
        o->shared_after[number] =
            shared_ref(o->r, left, o->r->next_share++, with_new_ids(o->r, left->cols, left->ncols));
    }
    const rel *made = o->shared_after[number];
    rel *ref = shared_ref(o->r, made->left, made->shared.number,
                          with_new_ids(o->r, made->left->cols, made->left->ncols));
    ref->shared.kept = x->shared.kept;
    memcpy(ref->cols, x->cols, sizeof *x->cols * (size_t)x->ncols);
    for (int i = 0; i < o->n; i++)
        d[i] = ref->cols[x->ncols + i].id;
    return ref;
}

static rel *push(outer_columns *o, rel *x, int *d) {
    if (!reads_any_of(o->r, x, o->ids)) {
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
        x = push_same(o, x, d);
        return limit_per(o->r, x, x->left, d, o->n);
    case REL_WINDOW:
        return push_window(o, x, d);
    case REL_DISTINCT:
        return push_distinct(o, x, d);
    case REL_SETOP:
        return push_setop(o, x, d);
    case REL_SHARED:
        return push_shared(o, x, d);
    default: /* nodes with one input; VALUES is the only leaf that may read outer columns */
        return push_same(o, x, d);
    }
}

/* ---- the rule -------------------------------------------------------------------------------- */

rel *apply_to_join(rule_ctx *r, const rel *apply, rel *left, rel *right, expr *predicate) {
    rel *x = rel_copy(r, apply);
    x->kind = REL_JOIN;
    x->join.predicate = predicate;
    if (rel_is_inner_join(x))
        x->join.kind = predicate ? JOIN_INNER : JOIN_CROSS;
    return rel_rebuild(r, x, left, right);
}

static rel *unnest_by_pushing(rule_ctx *r, const rel *apply, const id_set *outer) {
    rel *left = apply->left;
    outer_columns o = {
        .r = r, .left = left, .share = r->next_share++, .ids = outer, .nshared = r->next_share};
    o.cols = ARENA_ARRAY(r->mem, const rel_column *, left->ncols + 1);
    o.shared_before = ARENA_ARRAY(r->mem, rel *, o.nshared);
    o.shared_after = ARENA_ARRAY(r->mem, rel *, o.nshared);
    for (int i = 0; i < left->ncols; i++)
        if (id_set_has(outer, left->cols[i].id))
            o.cols[o.n++] = &left->cols[i];
    int *d = ids_for_d(&o), *f = ids_for_d(&o);
    rel *right = push(&o, apply->right, d);
    for (int i = 0; i < o.n; i++)
        f[i] = o.cols[i]->id;
    return apply_to_join(r, apply, shared_ref(r, left, o.share, left->cols),
                         unnest_subqueries(r, right),
                         equal_domains(&o, f, d, apply->join.predicate));
}

static rel *unnest_apply(rule_ctx *r, rel *x) {
    rel *left = unnest_subqueries(r, x->left);
    id_set read = rel_free_ids(r, x->right), outer = id_set_new(r->mem);
    for (int i = 0; i < left->ncols; i++)
        if (id_set_has(&read, left->cols[i].id))
            id_set_add(&outer, left->cols[i].id);
    if (outer.nwords == 0)
        return apply_to_join(r, x, left, unnest_subqueries(r, x->right), x->join.predicate);
    rel *apply = rel_over(r, x, left, x->right);
    rel *joined = unnest_by_pulling(r, apply, &outer);
    if (!joined)
        joined = unnest_by_pushing(r, apply, &outer);
    return rel_like(r, joined, apply);
}

rel *unnest_subqueries(rule_ctx *r, rel *x) {
    return x->kind == REL_APPLY ? unnest_apply(r, x) : rel_each_input(r, x, unnest_subqueries);
}

static bool has_lateral(const rel *x) {
    return x &&
           ((x->kind == REL_APPLY && x->join.kind != JOIN_SINGLE && x->join.kind != JOIN_MARK) ||
            has_lateral(x->left) || has_lateral(x->right));
}

/* Conditions on the tables to the left of a LATERAL subquery are above it, but must be in L, of which
 * D has all values. */
rel *unnest_all(rule_ctx *r, rel *x) {
    return unnest_subqueries(r, has_lateral(x) ? push_conditions(r, x) : x);
}
