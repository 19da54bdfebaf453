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
 * A demand goes down from the node that makes it to the first stack of LLM nodes it meets, and is
 * noted there. Below the stack none goes on: what its prompts say follows from all rows of its base
 * (DESIGN 2.2). Invariant of `each`: of the rows equal in the columns `by`, those behind the first
 * `each` of a relation, in `order` and then as they come, may be left out, and what the nodes above
 * give stays the same, its order too. With ties: those before which `each` come that differ in
 * `order`.
 */
#include <stdint.h>
#include <string.h>

#include "rules_int.h"

/* The left input of a join, whose rows are there without asking: rows of the right without a
 * partner in it are of no use. */
typedef struct partners {
    const rel *left;       /* NULL: none */
    conjuncts theirs, own; /* equal in pairs; own: over the relation, none volatile */
    bool nulls_match, mark_null;
} partners;

typedef struct demand {
    int64_t rows; /* > 0: about so many are used */
    int64_t each; /* > 0: of those equal in `by` no more than so many */
    conjuncts by; /* expressions over the relation, none volatile */
    int norder;   /* the same: by which the first of them come first */
    sort_key *order;
    bool ties;
    partners with;
} demand;

static rel *ask(rule_ctx *r, rel *x, demand d);

static const demand nothing = {0};

/* Rows that a LIMIT uses, 0: all. */
static int64_t used_rows(const rel *x) {
    int64_t offset = BASE_MAX(x->limit.offset, 0);
    return x->limit.limit < 0 || x->limit.limit > INT64_MAX - offset ? 0 : x->limit.limit + offset;
}

static demand rows_alone(demand d) {
    return (demand){.rows = d.rows};
}

static demand without_each(demand d) {
    return (demand){.rows = d.rows, .with = d.with};
}

/* Rows that are to be equal in x, too. */
static void add(rule_ctx *r, demand *d, expr *x) {
    if (d->each == 0 || !x || expr_is_constant(x))
        return;
    if (expr_is_volatile(x)) {
        *d = without_each(*d);
        return;
    }
    for (int i = 0; i < d->by.n; i++)
        if (expr_equal(d->by.list[i], x))
            return;
    conjuncts_add(r, &d->by, x);
}

/* The same, without another demand's list growing. */
static demand with(rule_ctx *r, demand d, expr *x) {
    demand more = d;
    more.by = (conjuncts){0};
    for (int i = 0; i < d.by.n; i++)
        add(r, &more, d.by.list[i]);
    add(r, &more, x);
    return more;
}

/* The demand for those of the rows equal in d's order first that a sort by the keys gives first. */
static demand in_order(rule_ctx *r, demand d, const sort_key *keys, int n) {
    sort_key *order = ARENA_ARRAY(r->mem, sort_key, d.norder + n + 1);
    if (d.norder)
        memcpy(order, d.order, sizeof *order * (size_t)d.norder);
    d.order = order;
    for (int i = 0; i < n && d.each > 0; i++)
        if (expr_is_volatile(keys[i].value))
            return without_each(d);
        else if (!expr_is_constant(keys[i].value))
            order[d.norder++] = keys[i];
    return d.ties && d.norder == 0 ? without_each(d) : d; /* all rows tie */
}

/* One of each combination of all columns. */
static demand one_of_each(rule_ctx *r, const rel *x, demand d) {
    demand one = {.rows = d.rows, .each = 1, .with = d.with};
    for (int i = 0; i < x->ncols; i++)
        add(r, &one, column_expr(r, &x->cols[i]));
    return one;
}

/* ---- what is demanded of a node's input ------------------------------------------------------ */

static partners replaced_partners(rule_ctx *r, partners p, const expr_map *map) {
    conjuncts own = {0};
    for (int i = 0; p.left && i < p.own.n; i++) {
        expr *x = expr_replace(r, p.own.list[i], map);
        if (expr_is_volatile(x))
            return (partners){0};
        conjuncts_add(r, &own, x);
    }
    p.own = own;
    return p;
}

static demand replaced(rule_ctx *r, demand d, const expr_map *map) {
    demand below = {
        .rows = d.rows, .each = d.each, .ties = d.ties, .with = replaced_partners(r, d.with, map)};
    sort_key *order = ARENA_ARRAY(r->mem, sort_key, d.norder + 1);
    for (int i = 0; i < d.by.n; i++)
        add(r, &below, expr_replace(r, d.by.list[i], map));
    for (int i = 0; i < d.norder; i++) {
        order[i] = d.order[i];
        order[i].value = expr_replace(r, order[i].value, map);
    }
    return in_order(r, below, order, d.norder);
}

static demand below_project(rule_ctx *r, const rel *x, demand d) {
    expr_map map = {0};
    for (int i = 0; i < x->ncols; i++)
        expr_map_add(r, &map, x->cols[i].id, x->project.exprs[i].value);
    return replaced(r, d, &map);
}

/* Of an input whose columns are the node's by position. */
static demand by_position(rule_ctx *r, const rel *x, const rel *input, demand d) {
    expr_map map = {0};
    for (int i = 0; i < x->ncols; i++)
        expr_map_add(r, &map, x->cols[i].id, column_expr(r, &input->cols[i]));
    return replaced(r, d, &map);
}

/* Which of the rows that tie comes first does not matter to a demand with ties. */
static demand below_sort(rule_ctx *r, const rel *x, demand d) {
    d.rows = 0;
    return d.ties ? d : in_order(r, d, x->sort.keys, x->sort.nkeys);
}

/* A window that gives no more than the first rows of each partition gives these what it would among
 * all: its functions are row_number(), rank() and the like. */
static demand below_window(rule_ctx *r, const rel *x) {
    int npartition = x->window.functions[0].npartition;
    demand d = {.each = x->window.first, .ties = x->window.with_ties};
    for (int i = 0; i < npartition; i++)
        add(r, &d, x->window.keys[i].value);
    return in_order(r, d, x->window.keys + npartition, x->window.nkeys - npartition);
}

static demand below_limit(rule_ctx *r, const rel *x, demand d) {
    int64_t used = used_rows(x), offset = BASE_MAX(x->limit.offset, 0);
    demand below = {.rows = d.rows > 0 && d.rows <= INT64_MAX - offset ? d.rows + offset : 0};
    if (x->limit.npartition == 0) {
        if (used > 0)
            below.rows = below.rows > 0 ? BASE_MIN(below.rows, used) : used;
        return below;
    }
    below.each = used;
    for (int i = 0; i < x->limit.npartition; i++)
        add(r, &below, column_expr(r, rel_column_of(x->left, x->limit.partition[i])));
    return below;
}

/* Aggregates to which it does not matter how often a value comes. */
static bool takes_each_once(const rel_agg *a) {
    return a->distinct || a->kind == AGG_MIN || a->kind == AGG_MAX || a->kind == AGG_FIRST;
}

/* Those of whole groups. */
static partners below_keys(rule_ctx *r, const rel *x, partners p) {
    expr_map map = {0};
    id_set keys = id_set_new(r->mem);
    for (int i = 0; i < x->group.nkeys; i++) {
        expr_map_add(r, &map, x->group.keys[i].id, x->group.keys[i].value);
        id_set_add(&keys, x->group.keys[i].id);
    }
    for (int i = 0; i < p.own.n; i++)
        if (!expr_only_in(p.own.list[i], &keys))
            return (partners){0};
    return replaced_partners(r, p, &map);
}

static demand below_group(rule_ctx *r, const rel *x, demand above) {
    demand d = {.each = 1, .with = below_keys(r, x, above.with)};
    for (int i = 0; i < x->group.nkeys; i++)
        add(r, &d, x->group.keys[i].value);
    for (int i = 0; i < x->group.naggs; i++) {
        if (!takes_each_once(&x->group.aggs[i]))
            return (demand){.with = d.with};
        add(r, &d, x->group.aggs[i].arg);
        add(r, &d, x->group.aggs[i].filter);
        for (int k = 0; k < x->group.aggs[i].nkeys; k++)
            add(r, &d, x->group.aggs[i].keys[k].value);
    }
    return d;
}

/* DISTINCT: the first row equal in `by` is the first distinct one equal in them; of the second that
 * cannot be said. */
static demand below_distinct(rule_ctx *r, const rel *x, demand d) {
    return d.each == 1 ? d : one_of_each(r, x->left, d);
}

/* What x reads of one side of a join: its largest parts that read that side alone. */
static void add_parts(rule_ctx *r, demand *d, expr *x, const id_set *side) {
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
static partners left_rows(rule_ctx *r, const rel *x) {
    partners p = {.left = x->left, .mark_null = x->join.kind == JOIN_MARK && x->join.mark_null};
    id_set left = id_set_new(r->mem), right = id_set_new(r->mem);
    conjuncts all = {0};
    expr *a, *b;
    id_set_add_columns(&left, x->left);
    id_set_add_columns(&right, x->right);
    conjuncts_split(r, &all, x->join.predicate);
    for (int round = 0; round < 2 && p.own.n == 0 && !rel_has_llm(x->left); round++)
        for (int i = 0; i < all.n; i++)
            if (ties(all.list[i], round ? OP_IS : OP_EQ, &left, &right, &a, &b)) {
                conjuncts_add(r, &p.theirs, a);
                conjuncts_add(r, &p.own, b);
                p.nulls_match = round > 0;
            }
    return p.own.n > 0 ? p : (partners){0};
}

/* Rows of one side equal in the condition's parts meet the same rows of the other. */
static demand below_join(rule_ctx *r, const rel *x, const rel *side, demand d) {
    bool inner = join_is_inner(x->join.kind);
    demand own = {.rows = d.rows, .each = d.each};
    id_set ids = id_set_new(r->mem);
    id_set_add_columns(&ids, side);
    if (only_in(&d.with.own, &ids) && (inner || side == x->left))
        own.with = d.with;
    for (int i = 0; i < d.by.n; i++)
        add_parts(r, &own, d.by.list[i], &ids);
    if (x->join.predicate && expr_is_volatile(x->join.predicate))
        return without_each(own);
    if (x->join.predicate)
        add_parts(r, &own, x->join.predicate, &ids);
    for (int i = 0; i < d.norder; i++)
        if (!expr_only_in(d.order[i].value, &ids))
            return without_each(own);
    own.ties = d.ties;
    return in_order(r, own, d.order, d.norder);
}

/* The right input is read whole; where it is only looked for matches, the first is enough, and
 * where a second is an error, the second. */
static demand below_right(rule_ctx *r, const rel *x, demand d) {
    join_kind kind = x->join.kind;
    int64_t decide = kind == JOIN_SEMI || kind == JOIN_ANTI || kind == JOIN_MARK ? 1
                     : kind == JOIN_SINGLE                                       ? 2
                                                                                 : 0;
    d.rows = 0;
    demand right = below_join(r, x, x->right, decide > 0 ? (demand){.each = decide} : d);
    partners of_left = left_rows(r, x);
    if (of_left.left)
        right.with = of_left;
    return right;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Notes a demand in the nodes of a stack: they are asked wave by wave together. */
static rel *mark_stack(rule_ctx *r, rel *x, const llm_stack_rels *stack, rel *base,
                       const demand *d) {
    if (x == stack->base)
        return base;
    rel *marked = rel_over(r, x, mark_stack(r, x->left, stack, base, d), NULL);
    if (x->kind != REL_LLM || (d->rows == 0 && d->each == 0 && !d->with.left))
        return marked;
    rel *copy = rel_copy(r, marked);
    copy->llm.wanted = d->rows;
    copy->llm.each = d->each;
    copy->llm.nby = d->by.n;
    copy->llm.by = d->by.list;
    copy->llm.norder = d->norder;
    copy->llm.order = d->order;
    copy->llm.with_ties = d->ties;
    copy->llm.nown = d->with.own.n;
    copy->llm.own = d->with.own.list;
    copy->llm.theirs = d->with.theirs.list;
    copy->llm.partner = d->with.left;
    copy->llm.nulls_match = d->with.nulls_match;
    copy->llm.mark_null = d->with.mark_null;
    return copy;
}

static rel *ask_stack(rule_ctx *r, rel *x, const llm_stack_rels *stack, demand d) {
    rel *base = ask(r, (rel *)stack->base, nothing);
    id_set ids = id_set_new(r->mem);
    id_set_add_columns(&ids, base);
    if (!only_in(&d.with.own, &ids))
        d.with = (partners){0};
    bool known = only_in(&d.by, &ids);
    for (int i = 0; i < d.norder; i++)
        known = known && expr_only_in(d.order[i].value, &ids);
    if (!known) /* what the model answers tells rows apart */
        d = without_each(d);
    return mark_stack(r, x, stack, base, &d);
}

/* EXISTS: the first row decides. */
static rel *first_row(rule_ctx *r, rel *x) {
    rel *limit = rel_new(r->mem, REL_LIMIT, x, NULL);
    limit->limit.limit = 1;
    return limit;
}

static rel *ask_join(rule_ctx *r, rel *x, demand d) {
    join_kind kind = x->join.kind;
    bool exists =
        !x->join.predicate && (kind == JOIN_SEMI || kind == JOIN_ANTI || kind == JOIN_MARK);
    rel *right = exists && rel_has_llm(x->right) ? first_row(r, x->right) : x->right;
    rel *left = ask(r, x->left, below_join(r, x, x->left, d));
    rel *changed = rel_over(r, x, left, x->right); /* its rows are those that partners are of */
    return rel_over(r, x, left, ask(r, right, below_right(r, changed, d)));
}

static rel *ask_setop(rule_ctx *r, rel *x, demand d) {
    demand left, right;
    if (x->setop.op == SETOP_UNION_ALL || (x->setop.op == SETOP_UNION && d.each == 1)) {
        left = by_position(r, x, x->left, d);
        right = by_position(r, x, x->right, d);
    } else {
        left = one_of_each(r, x->left, by_position(r, x, x->left, d));
        right = one_of_each(r, x->right, by_position(r, x, x->right, d));
        right.rows = x->setop.op == SETOP_UNION ? d.rows : 0;
    }
    return rel_over(r, x, ask(r, x->left, left), ask(r, x->right, right));
}

/* Groups of which only the keys are wanted, the first of them: DISTINCT gives them as they come. */
static rel *ask_group(rule_ctx *r, rel *x, demand d) {
    if (x->group.nkeys == 0 || x->group.naggs > 0 || d.rows == 0 || !rel_has_llm(x->left))
        return rel_over(r, x, ask(r, x->left, below_group(r, x, d)), NULL);
    rel *keys = rel_project(r->mem, x->left, x->group.nkeys);
    for (int i = 0; i < x->group.nkeys; i++)
        project_set(keys, i, x->cols[i], x->group.keys[i].value);
    return ask(r, rel_new(r->mem, REL_DISTINCT, keys, NULL), d);
}

static rel *ask(rule_ctx *r, rel *x, demand d) {
    llm_stack_rels stack;
    if ((x->kind == REL_FILTER || x->kind == REL_LLM) && llm_stack_collect(r->mem, x, &stack))
        return ask_stack(r, x, &stack, d);
    switch (x->kind) {
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
        return rel_over(r, x, ask(r, x->left, rows_alone(d)), NULL);
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
