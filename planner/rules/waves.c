/*
 * waves.c - how many of its rows the model is asked about, where what stands above needs only some
 * of those that pass.
 *
 *   LIMIT k              about the first k that pass        -> in waves of input order
 *   DISTINCT a, IN (…)   the first that passes of each a    -> round by round, some of each a
 *   row_number() OVER (PARTITION BY a ORDER BY d) <= k
 *                        of each a the first k in d's order -> round by round, in that order
 *   x IN (SELECT a …)    those whose a is some row's x      -> the others are not asked about
 *
 * A demand goes down from the node that makes it to the first pipeline and is noted there. None goes
 * below a pipeline, whose prompts are a function of all rows of its base.
 * Invariant of top_n: of the rows with equal keys, those after the first n in `order` and then in
 * input order may be left out without changing the rows, or the order of the rows, that the nodes
 * above return. With ties: those before which n rows come that differ in `order`.
 */
#include <stdint.h>
#include <string.h>

#include "core/pipeline_int.h"
#include "rules_int.h"

static rel *ask(rule_ctx *r, rel *x, row_demand d);

static const row_demand nothing = {0};

/* Rows that a LIMIT uses, 0: all. */
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

/* Rows that are to be equal in x, too. */
static void add(rule_ctx *r, row_demand *d, expr *x) {
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

/* The same, without another demand's list growing. */
static row_demand with(rule_ctx *r, row_demand d, expr *x) {
    row_demand more = d;
    more.top_n.keys = (conjuncts){0};
    for (int i = 0; i < d.top_n.keys.n; i++)
        add(r, &more, d.top_n.keys.list[i]);
    add(r, &more, x);
    return more;
}

/* The demand for those of the rows equal in d's order first that a sort by the keys gives first. */
static row_demand in_order(rule_ctx *r, row_demand d, const sort_key *keys, int n) {
    sort_key *order = ARENA_ARRAY(r->mem, sort_key, d.top_n.norder + n + 1);
    if (d.top_n.norder)
        memcpy(order, d.top_n.order, sizeof *order * (size_t)d.top_n.norder);
    d.top_n.order = order;
    for (int i = 0; i < n && d.top_n.n > 0; i++)
        if (expr_is_volatile(keys[i].value))
            return without_top_n(d);
        else if (!expr_is_constant(keys[i].value))
            order[d.top_n.norder++] = keys[i];
    return d.top_n.with_ties && d.top_n.norder == 0 ? without_top_n(d) : d; /* all rows tie */
}

/* One of each combination of all columns. */
static row_demand one_of_each(rule_ctx *r, const rel *x, row_demand d) {
    row_demand one = {.limit_hint = d.limit_hint, .top_n.n = 1, .semi_join = d.semi_join};
    for (int i = 0; i < x->ncols; i++)
        add(r, &one, column_expr(r, &x->cols[i]));
    return one;
}

/* ---- what is demanded of a node's input ------------------------------------------------------ */

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

static row_demand replaced(rule_ctx *r, row_demand d, const expr_map *map) {
    row_demand below = {.limit_hint = d.limit_hint,
                        .top_n.n = d.top_n.n,
                        .top_n.with_ties = d.top_n.with_ties,
                        .semi_join = replaced_partners(r, d.semi_join, map)};
    sort_key *order = ARENA_ARRAY(r->mem, sort_key, d.top_n.norder + 1);
    for (int i = 0; i < d.top_n.keys.n; i++)
        add(r, &below, expr_replace(r, d.top_n.keys.list[i], map));
    for (int i = 0; i < d.top_n.norder; i++) {
        order[i] = d.top_n.order[i];
        order[i].value = expr_replace(r, order[i].value, map);
    }
    return in_order(r, below, order, d.top_n.norder);
}

static row_demand below_project(rule_ctx *r, const rel *x, row_demand d) {
    expr_map map = {0};
    for (int i = 0; i < x->ncols; i++)
        expr_map_add(r, &map, x->cols[i].id, x->project.exprs[i].value);
    return replaced(r, d, &map);
}

/* Of an input whose columns are the node's by position. */
static row_demand by_position(rule_ctx *r, const rel *x, const rel *input, row_demand d) {
    expr_map map = {0};
    for (int i = 0; i < x->ncols; i++)
        expr_map_add(r, &map, x->cols[i].id, column_expr(r, &input->cols[i]));
    return replaced(r, d, &map);
}

/* Which of the rows that tie comes first does not matter to a demand with ties. */
static row_demand below_sort(rule_ctx *r, const rel *x, row_demand d) {
    d.limit_hint = 0;
    return d.top_n.with_ties ? d : in_order(r, d, x->sort.keys, x->sort.nkeys);
}

/* A window that gives no more than the first rows of each partition gives these what it would among
 * all: its functions are row_number(), rank() and the like. */
static row_demand below_window(rule_ctx *r, const rel *x) {
    int npartition = x->window.functions[0].npartition;
    row_demand d = {.top_n.n = x->window.first, .top_n.with_ties = x->window.with_ties};
    for (int i = 0; i < npartition; i++)
        add(r, &d, x->window.keys[i].value);
    return in_order(r, d, x->window.keys + npartition, x->window.nkeys - npartition);
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
        add(r, &below, column_expr(r, rel_column_of(x->left, x->limit.partition[i])));
    return below;
}

/* Aggregates to which it does not matter how often a value comes. */
static bool takes_each_once(const rel_agg *a) {
    return a->distinct || a->kind == AGG_MIN || a->kind == AGG_MAX || a->kind == AGG_FIRST;
}

/* Those of whole groups. */
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
        add(r, &d, x->group.keys[i].value);
    for (int i = 0; i < x->group.naggs; i++) {
        if (!takes_each_once(&x->group.aggs[i]))
            return (row_demand){.semi_join = d.semi_join};
        add(r, &d, x->group.aggs[i].arg);
        add(r, &d, x->group.aggs[i].filter);
        for (int k = 0; k < x->group.aggs[i].nkeys; k++)
            add(r, &d, x->group.aggs[i].keys[k].value);
    }
    return d;
}

/* DISTINCT: the first row equal in `by` is the first distinct one equal in them; of the second that
 * cannot be said. */
static row_demand below_distinct(rule_ctx *r, const rel *x, row_demand d) {
    return d.top_n.n == 1 ? d : one_of_each(r, x->left, d);
}

/* What x reads of one side of a join: its largest parts that read that side alone. */
static void add_parts(rule_ctx *r, row_demand *d, expr *x, const id_set *side) {
    if (expr_only_in(x, side)) {
        add(r, d, x);
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

/* a = b or, `op`, a IS b with a from the left input and b from the right one. */
static bool ties(const expr *x, expr_op op, const id_set *left, const id_set *right, expr **a,
                 expr **b) {
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

/* The rows on the left, where no model has to be asked for them: those on the right are to match
 * one of them, which a row that a left one shall not match must, too. */
static semi_join_demand left_rows(rule_ctx *r, const rel *x) {
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
            if (ties(all.list[i], round ? OP_IS : OP_EQ, &left, &right, &a, &b)) {
                conjuncts_add(r, &p.partner_keys, a);
                conjuncts_add(r, &p.keys, b);
                p.nulls_match = round > 0;
            }
    return p.keys.n > 0 ? p : (semi_join_demand){0};
}

/* Rows of one side equal in the condition's parts meet the same rows of the other. */
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
    return in_order(r, own, d.top_n.order, d.top_n.norder);
}

/* The right input is read whole; where it is only looked for matches, the first is enough, and
 * where a second is an error, the second. */
static row_demand below_right(rule_ctx *r, const rel *x, row_demand d) {
    join_kind kind = x->join.kind;
    int64_t decide = kind == JOIN_SEMI || kind == JOIN_ANTI || kind == JOIN_MARK ? 1
                     : kind == JOIN_SINGLE                                       ? 2
                                                                                 : 0;
    d.limit_hint = 0;
    row_demand right = below_join(r, x, x->right, decide > 0 ? (row_demand){.top_n.n = decide} : d);
    semi_join_demand of_left = left_rows(r, x);
    if (of_left.partner)
        right.semi_join = of_left;
    return right;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* A demand goes no further than the first pipeline: what its prompts say follows from all rows of
 * its base. */
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
    if (!known) /* answers tell the rows apart, and they are not known before these are asked about */
        d = without_top_n(d);
    if (d.limit_hint == 0 && d.top_n.n == 0 && !d.semi_join.partner)
        return over;
    details.demand = d;
    return pipeline_with(r, over, &details);
}

/* EXISTS: the first row decides. */
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
    rel *changed = rel_over(r, x, left, x->right); /* its rows are those that partners are of */
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

/* Groups of which only the keys are wanted, the first of them: DISTINCT gives them as they come. */
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
        return rel_over(r, x, ask(r, x->left, with(r, d, x->filter.predicate)), NULL);
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
    case REL_NUMBER:
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
