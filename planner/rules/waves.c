/*
 * waves.c - records in each pipeline which of the rows that pass its filters the nodes above need,
 * so that the model is asked about fewer rows (row_demand).
 *
 *   LIMIT k              about k rows                         limit_hint: limit batches
 *   DISTINCT a, IN (…)   for each a the first row that passes top_n: rounds over the groups
 *   row_number() OVER (PARTITION BY a ORDER BY d) <= k
 *                        for each a the first k rows by d     top_n with an order
 *   x IN (SELECT a …)    rows whose a equals some row's x     semi_join: asks about no other row
 *
 * A demand is passed down from the node that makes it to the first pipeline. It is not passed below
 * a pipeline, since the prompts of a pipeline depend on all rows of its base.
 * Invariant of top_n: sort the rows with equal keys by `order`, then by input order. Rows after the
 * first n may be left out without changing the rows, or their order, that the nodes above return.
 * With ties, a row may be left out only if it also differs in `order` from the n-th row.
 */
#include <stdint.h>
#include <string.h>

#include "core/pipeline_int.h"
#include "rules_int.h"

/* Records in the pipelines of x which of their rows are needed, if the nodes above x demand d. */
static rel *ask(rule_ctx *r, rel *x, row_demand d);

static const row_demand nothing = {0};

/* Returns how many rows of its input a LIMIT reads; 0: all. */
static int64_t used_rows(const rel *x) {
    int64_t offset = BASE_MAX(x->limit.offset, 0);
    return x->limit.limit < 0 || x->limit.limit > INT64_MAX - offset ? 0 : x->limit.limit + offset;
}

static row_demand limit_alone(row_demand d) {
    return (row_demand){.limit_hint = d.limit_hint};
}

static row_demand without_top_n(row_demand d) {
    return (row_demand){.limit_hint = d.limit_hint, .semi_join = d.semi_join};
}

/* Adds x to the keys of top_n. More keys can only make more rows needed. */
static void add_key(rule_ctx *r, row_demand *d, expr *x) {
    if (d->top_n.n == 0 || !x || expr_is_constant(x))
        return;
    if (expr_is_volatile(x)) {
        *d = without_top_n(*d);
        return;
    }
    for (int i = 0; i < d->top_n.keys.n; i++)
        if (expr_equal(d->top_n.keys.list[i], x))
            return;
    conjuncts_add(r, &d->top_n.keys, x);
}

/* Returns a copy of d with x added to the keys. */
static row_demand with_key(rule_ctx *r, row_demand d, expr *x) {
    row_demand more = d;
    more.top_n.keys = (conjuncts){0};
    for (int i = 0; i < d.top_n.keys.n; i++)
        add_key(r, &more, d.top_n.keys.list[i]);
    add_key(r, &more, x);
    return more;
}

/* Returns d with these sort keys appended to its order. */
static row_demand with_order(rule_ctx *r, row_demand d, const sort_key *keys, int n) {
    sort_key *order = ARENA_ARRAY(r->mem, sort_key, d.top_n.norder + n + 1);
    if (d.top_n.norder)
        memcpy(order, d.top_n.order, sizeof *order * (size_t)d.top_n.norder);
    d.top_n.order = order;
    for (int i = 0; i < n && d.top_n.n > 0; i++)
        if (expr_is_volatile(keys[i].value))
            return without_top_n(d);
        else if (!expr_is_constant(keys[i].value))
            order[d.top_n.norder++] = keys[i];
    /* without an order all rows tie, so with ties all are needed */
    return d.top_n.with_ties && d.top_n.norder == 0 ? without_top_n(d) : d;
}

/* Returns a demand for the first row of each group of rows that are equal in all columns. */
static row_demand one_of_each(rule_ctx *r, const rel *x, row_demand d) {
    row_demand one = {.limit_hint = d.limit_hint, .top_n.n = 1, .semi_join = d.semi_join};
    for (int i = 0; i < x->ncols; i++)
        add_key(r, &one, column_expr(r, &x->cols[i]));
    return one;
}

/* ---- what is demanded of a node's input ------------------------------------------------------ */

/* Returns the demand with the columns of its keys replaced. Returns no demand if a key would become
 * volatile. */
static semi_join_demand replaced_partners(rule_ctx *r, semi_join_demand p, const expr_map *map) {
    conjuncts own = {0};
    for (int i = 0; p.partner && i < p.keys.n; i++) {
        expr *x = expr_replace(r, p.keys.list[i], map);
        if (expr_is_volatile(x))
            return (semi_join_demand){0};
        conjuncts_add(r, &own, x);
    }
    p.keys = own;
    return p;
}

/* Returns the demand on a node as a demand on its input: `map` maps the node's columns to
 * expressions over the input. */
static row_demand replaced(rule_ctx *r, row_demand d, const expr_map *map) {
    row_demand below = {.limit_hint = d.limit_hint,
                        .top_n.n = d.top_n.n,
                        .top_n.with_ties = d.top_n.with_ties,
                        .semi_join = replaced_partners(r, d.semi_join, map)};
    sort_key *order = ARENA_ARRAY(r->mem, sort_key, d.top_n.norder + 1);
    for (int i = 0; i < d.top_n.keys.n; i++)
        add_key(r, &below, expr_replace(r, d.top_n.keys.list[i], map));
    for (int i = 0; i < d.top_n.norder; i++) {
        order[i] = d.top_n.order[i];
        order[i].value = expr_replace(r, order[i].value, map);
    }
    return with_order(r, below, order, d.top_n.norder);
}

static row_demand below_project(rule_ctx *r, const rel *x, row_demand d) {
    expr_map map = {0};
    for (int i = 0; i < x->ncols; i++)
        expr_map_add(r, &map, x->cols[i].id, x->project.exprs[i].value);
    return replaced(r, d, &map);
}

/* Returns the demand d on x as a demand on an input whose columns match x's by position. */
static row_demand by_position(rule_ctx *r, const rel *x, const rel *input, row_demand d) {
    expr_map map = {0};
    for (int i = 0; i < x->ncols; i++)
        expr_map_add(r, &map, x->cols[i].id, column_expr(r, &input->cols[i]));
    return replaced(r, d, &map);
}

/* With ties, the sort's keys are not appended to the order: all rows that tie are needed anyway. */
static row_demand below_sort(rule_ctx *r, const rel *x, row_demand d) {
    d.limit_hint = 0;
    return d.top_n.with_ties ? d : with_order(r, d, x->sort.keys, x->sort.nkeys);
}

/* Returns the demand of a window that returns only the first rows of each partition. Its functions
 * (row_number(), rank(), dense_rank()) have the same values for these rows without the other
 * rows. */
static row_demand below_window(rule_ctx *r, const rel *x) {
    int npartition = x->window.functions[0].npartition;
    row_demand d = {.top_n.n = x->window.first, .top_n.with_ties = x->window.with_ties};
    for (int i = 0; i < npartition; i++)
        add_key(r, &d, x->window.keys[i].value);
    return with_order(r, d, x->window.keys + npartition, x->window.nkeys - npartition);
}

static row_demand below_limit(rule_ctx *r, const rel *x, row_demand d) {
    int64_t used = used_rows(x), offset = BASE_MAX(x->limit.offset, 0);
    row_demand below = {.limit_hint = d.limit_hint > 0 && d.limit_hint <= INT64_MAX - offset
                                          ? d.limit_hint + offset
                                          : 0};
    if (x->limit.npartition == 0) {
        if (used > 0)
            below.limit_hint = below.limit_hint > 0 ? BASE_MIN(below.limit_hint, used) : used;
        return below;
    }
    below.top_n.n = used;
    for (int i = 0; i < x->limit.npartition; i++)
        add_key(r, &below, column_expr(r, rel_column_of(x->left, x->limit.partition[i])));
    return below;
}

/* Whether the result of an aggregate does not depend on how often a value occurs. */
static bool takes_each_once(const rel_agg *a) {
    return a->distinct || a->kind == AGG_MIN || a->kind == AGG_MAX || a->kind == AGG_FIRST;
}

/* Returns a semi-join demand on groups as a demand on their rows, if it reads only group keys. */
static semi_join_demand below_keys(rule_ctx *r, const rel *x, semi_join_demand p) {
    expr_map map = {0};
    id_set keys = id_set_new(r->mem);
    for (int i = 0; i < x->group.nkeys; i++) {
        expr_map_add(r, &map, x->group.keys[i].id, x->group.keys[i].value);
        id_set_add(&keys, x->group.keys[i].id);
    }
    for (int i = 0; i < p.keys.n; i++)
        if (!expr_only_in(p.keys.list[i], &keys))
            return (semi_join_demand){0};
    return replaced_partners(r, p, &map);
}

static row_demand below_group(rule_ctx *r, const rel *x, row_demand above) {
    row_demand d = {.top_n.n = 1, .semi_join = below_keys(r, x, above.semi_join)};
    for (int i = 0; i < x->group.nkeys; i++)
        add_key(r, &d, x->group.keys[i].value);
    for (int i = 0; i < x->group.naggs; i++) {
        if (!takes_each_once(&x->group.aggs[i]))
            return (row_demand){.semi_join = d.semi_join};
        add_key(r, &d, x->group.aggs[i].arg);
        add_key(r, &d, x->group.aggs[i].filter);
        for (int k = 0; k < x->group.aggs[i].nkeys; k++)
            add_key(r, &d, x->group.aggs[i].keys[k].value);
    }
    return d;
}

/* Among rows with equal keys, the first row is also the first distinct row, so a demand for one row
 * stays the same below DISTINCT. This does not hold for further rows. */
static row_demand below_distinct(rule_ctx *r, const rel *x, row_demand d) {
    return d.top_n.n == 1 ? d : one_of_each(r, x->left, d);
}

/* Adds to the keys the largest parts of x that read only columns of `side`, one input of a join. */
static void add_parts(rule_ctx *r, row_demand *d, expr *x, const id_set *side) {
    if (expr_only_in(x, side)) {
        add_key(r, d, x);
        return;
    }
    for (int i = 0; i < x->nargs; i++)
        add_parts(r, d, x->args[i], side);
}

static bool only_in(const conjuncts *list, const id_set *ids) {
    for (int i = 0; i < list->n; i++)
        if (!expr_only_in(list->list[i], ids))
            return false;
    return true;
}

/* Whether x is `a op b` (= or IS), with a over the left input and b over the right one. */
static bool is_equi_condition(const expr *x, expr_op op, const id_set *left, const id_set *right,
                              expr **a, expr **b) {
    if (x->kind != EXPR_OP || x->op != op)
        return false;
    for (int i = 0; i < 2; i++) {
        *a = x->args[i];
        *b = x->args[1 - i];
        if (expr_only_in(*a, left) && expr_only_in(*b, right) && !expr_is_constant(*b))
            return !expr_is_volatile(x);
    }
    return false;
}

/* Returns a demand for the right rows that match some left row; a join, even an anti-join, needs no
 * other right rows. Returns no demand if the left input has LLM calls. */
static semi_join_demand partners_on_left(rule_ctx *r, const rel *x) {
    semi_join_demand p = {.partner = x->left,
                          .mark_null = x->join.kind == JOIN_MARK && x->join.mark_null};
    id_set left = id_set_new(r->mem), right = id_set_new(r->mem);
    conjuncts all = {0};
    expr *a, *b;
    id_set_add_columns(&left, x->left);
    id_set_add_columns(&right, x->right);
    conjuncts_split(r, &all, x->join.predicate);
    for (int round = 0; round < 2 && p.keys.n == 0 && !rel_has_llm(x->left); round++)
        for (int i = 0; i < all.n; i++)
            if (is_equi_condition(all.list[i], round ? OP_IS : OP_EQ, &left, &right, &a, &b)) {
                conjuncts_add(r, &p.partner_keys, a);
                conjuncts_add(r, &p.keys, b);
                p.nulls_match = round > 0;
            }
    return p.keys.n > 0 ? p : (semi_join_demand){0};
}

/* Returns the demand on one input (`side`) of a join. The keys of top_n become those parts of d's
 * keys and of the join's condition that read only this input: rows of it that are equal in the
 * condition's parts match the same rows of the other input. */
static row_demand below_join(rule_ctx *r, const rel *x, const rel *side, row_demand d) {
    bool inner = join_is_inner(x->join.kind);
    row_demand own = {.limit_hint = d.limit_hint, .top_n.n = d.top_n.n};
    id_set ids = id_set_new(r->mem);
    id_set_add_columns(&ids, side);
    if (only_in(&d.semi_join.keys, &ids) && (inner || side == x->left))
        own.semi_join = d.semi_join;
    for (int i = 0; i < d.top_n.keys.n; i++)
        add_parts(r, &own, d.top_n.keys.list[i], &ids);
    if (x->join.predicate && expr_is_volatile(x->join.predicate))
        return without_top_n(own);
    if (x->join.predicate)
        add_parts(r, &own, x->join.predicate, &ids);
    for (int i = 0; i < d.top_n.norder; i++)
        if (!expr_only_in(d.top_n.order[i].value, &ids))
            return without_top_n(own);
    own.top_n.with_ties = d.top_n.with_ties;
    return with_order(r, own, d.top_n.order, d.top_n.norder);
}

/* Returns the demand on the right input of a join, which is read whole. If only the existence of a
 * match counts, one of several equal rows is enough. If a second match is an error, two are
 * enough. */
static row_demand below_right(rule_ctx *r, const rel *x, row_demand d) {
    join_kind kind = x->join.kind;
    int64_t decide = kind == JOIN_SEMI || kind == JOIN_ANTI || kind == JOIN_MARK ? 1
                     : kind == JOIN_SINGLE                                       ? 2
                                                                                 : 0;
    d.limit_hint = 0;
    row_demand right = below_join(r, x, x->right, decide > 0 ? (row_demand){.top_n.n = decide} : d);
    semi_join_demand of_left = partners_on_left(r, x);
    if (of_left.partner)
        right.semi_join = of_left;
    return right;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static rel *ask_pipeline(rule_ctx *r, rel *x, row_demand d) {
    rel *base = pipeline_base(x), *asked = ask(r, base, nothing);
    rel *over = rel_over(r, x, chain_over(r, x->left, base, asked), NULL);
    llm_pipeline details = *x->pipeline.details;
    id_set ids = id_set_new(r->mem);
    id_set_add_columns(&ids, asked);
    if (!only_in(&d.semi_join.keys, &ids))
        d.semi_join = (semi_join_demand){0};
    bool known = only_in(&d.top_n.keys, &ids);
    for (int i = 0; i < d.top_n.norder; i++)
        known = known && expr_only_in(d.top_n.order[i].value, &ids);
    /* keys and order that read answers are unknown until the rows have been asked about */
    if (!known)
        d = without_top_n(d);
    if (d.limit_hint == 0 && d.top_n.n == 0 && !d.semi_join.partner)
        return over;
    details.demand = d;
    return pipeline_with(r, over, &details);
}

/* Limits the input of EXISTS to its first row, which decides. */
static rel *first_row(rule_ctx *r, rel *x) {
    rel *limit = rel_new(r->mem, REL_LIMIT, x, NULL);
    limit->limit.limit = 1;
    return limit;
}

static rel *ask_join(rule_ctx *r, rel *x, row_demand d) {
    join_kind kind = x->join.kind;
    bool exists =
        !x->join.predicate && (kind == JOIN_SEMI || kind == JOIN_ANTI || kind == JOIN_MARK);
    rel *right = exists && rel_has_llm(x->right) ? first_row(r, x->right) : x->right;
    rel *left = ask(r, x->left, below_join(r, x, x->left, d));
    /* so that the partner of the right input's demand is the new left input */
    rel *changed = rel_over(r, x, left, x->right);
    return rel_over(r, x, left, ask(r, right, below_right(r, changed, d)));
}

static rel *ask_setop(rule_ctx *r, rel *x, row_demand d) {
    row_demand left, right;
    if (x->setop.op == SETOP_UNION_ALL || (x->setop.op == SETOP_UNION && d.top_n.n == 1)) {
        left = by_position(r, x, x->left, d);
        right = by_position(r, x, x->right, d);
    } else {
        left = one_of_each(r, x->left, by_position(r, x, x->left, d));
        right = one_of_each(r, x->right, by_position(r, x, x->right, d));
        right.limit_hint = x->setop.op == SETOP_UNION ? d.limit_hint : 0;
    }
    return rel_over(r, x, ask(r, x->left, left), ask(r, x->right, right));
}

/* GROUP BY without aggregates under a LIMIT becomes DISTINCT, which returns rows before its input
 * ends. */
static rel *ask_group(rule_ctx *r, rel *x, row_demand d) {
    if (x->group.nkeys == 0 || x->group.naggs > 0 || d.limit_hint == 0 || !rel_has_llm(x->left))
        return rel_over(r, x, ask(r, x->left, below_group(r, x, d)), NULL);
    rel *keys = rel_project(r->mem, x->left, x->group.nkeys);
    for (int i = 0; i < x->group.nkeys; i++)
        project_set(keys, i, x->cols[i], x->group.keys[i].value);
    return ask(r, rel_new(r->mem, REL_DISTINCT, keys, NULL), d);
}

static rel *ask(rule_ctx *r, rel *x, row_demand d) {
    switch (x->kind) {
    case REL_PIPELINE:
        return ask_pipeline(r, x, d);
    case REL_FILTER:
        return rel_over(r, x, ask(r, x->left, with_key(r, d, x->filter.predicate)), NULL);
    case REL_PROJECT:
        return rel_over(r, x, ask(r, x->left, below_project(r, x, d)), NULL);
    case REL_SORT:
        return rel_over(r, x, ask(r, x->left, below_sort(r, x, d)), NULL);
    case REL_WINDOW:
        return rel_over(r, x, ask(r, x->left, below_window(r, x)), NULL);
    case REL_LIMIT:
        return rel_over(r, x, ask(r, x->left, below_limit(r, x, d)), NULL);
    case REL_GROUP:
        return ask_group(r, x, d);
    case REL_DISTINCT:
        return rel_over(r, x, ask(r, x->left, below_distinct(r, x, d)), NULL);
    case REL_ROW_NUMBER:
    case REL_OUTER_RESIDUAL:
        return rel_over(r, x, ask(r, x->left, limit_alone(d)), NULL);
    case REL_SETOP:
        return ask_setop(r, x, d);
    case REL_JOIN:
        return ask_join(r, x, d);
    default:
        return rel_each_input(r, x, rule_waves);
    }
}

rel *rule_waves(rule_ctx *r, rel *x) {
    return ask(r, x, nothing);
}
