/*
 * limit.c - what a LIMIT means to a sort below it, and a filter on row_number() or rank() to its
 * window: they keep only the first rows.
 *
 * Invariant: the LIMIT or filter stays; the sort or window is only told how much of its work it can
 * use.
 */
#include <stdint.h>

#include "rules_int.h"

/* Rows that a LIMIT can use, of each of its groups, 0: all. */
static int64_t usable(const rel *x) {
    if (x->kind != REL_LIMIT || x->limit.limit < 0)
        return 0;
    int64_t offset = BASE_MAX(x->limit.offset, 0);
    return x->limit.limit > INT64_MAX - offset ? 0 : x->limit.limit + offset;
}

/* ---- top k ----------------------------------------------------------------------------------- */

/* The groups' columns where the node's input has them, in its ids; false: it has not. */
static bool partition_below(const rel *x, const int *ids, int n, int *below) {
    for (int i = 0; i < n; i++) {
        below[i] = ids[i];
        for (int c = 0; x->kind == REL_PROJECT && c < x->ncols; c++)
            if (x->project.exprs[c].id == ids[i] && x->project.exprs[c].value->kind == EXPR_COLUMN)
                below[i] = x->project.exprs[c].value->column.id;
        if (!rel_column_of(x->left, below[i]))
            return false;
    }
    return true;
}

/* Where a sort keeps the first rows of groups of left rows, by the column of the right input that
 * the join keeps in a range, each left row's first pairs are enough. */
static rel *mark_join(rule_ctx *r, rel *x, const rel *sort, int by, const int *ids, int n) {
    int *below = ARENA_ARRAY(r->mem, int, n + 1), by_below;
    plan_range range;
    if ((x->kind != REL_PROJECT && (x->kind != REL_JOIN || x->join.kind != JOIN_INNER)) ||
        !partition_below(x, ids, n, below))
        return x;
    if (x->kind == REL_PROJECT)
        return partition_below(x, &by, 1, &by_below)
                   ? rel_over(r, x, mark_join(r, x->left, sort, by_below, below, n), NULL)
                   : x;
    if (!range_join_first(r, x, &range) || range.right->kind != EXPR_COLUMN ||
        range.right->column.id != by)
        return x;
    /* few pairs of equal rows come cheaper from a hash table or an index than by sorting */
    if (range.nsame &&
        estimate_rel(r->estimates, x)->rows < estimate_rel(r->estimates, x->right)->rows)
        return x;
    rel *copy = rel_copy(r, x);
    copy->join.first = sort->sort.first;
    copy->join.first_descending = sort->sort.keys[0].descending;
    return copy;
}

/* Marks the sort below nodes that give a row for a row. */
static rel *mark_sort(rule_ctx *r, rel *x, int64_t rows, const int *ids, int n) {
    int *below = ARENA_ARRAY(r->mem, int, n + 1);
    bool passes = x->kind == REL_PROJECT || x->kind == REL_LLM;
    if ((!passes && x->kind != REL_SORT) || !partition_below(x, ids, n, below))
        return x;
    if (passes)
        return rel_over(r, x, mark_sort(r, x->left, rows, below, n), NULL);
    rel *copy = rel_copy(r, x);
    copy->sort.first = rows;
    copy->sort.npartition = n;
    copy->sort.partition = below;
    const expr *key = copy->sort.nkeys ? copy->sort.keys[0].value : NULL;
    if (!key || key->kind != EXPR_COLUMN)
        return copy;
    return rel_over(r, copy, mark_join(r, x->left, copy, key->column.id, below, n), NULL);
}

/* ---- row_number() and rank() ---------------------------------------------------------------- */

/* The greatest whole number n for which `n op c` may be true; 0: there is none, or none above 0. */
static int64_t greatest(expr_op op, const expr *c) {
    if (c->kind != EXPR_LITERAL || c->literal.type != TYPE_INTEGER || c->literal.i <= 0)
        return 0;
    return op == OP_LE || op == OP_EQ ? c->literal.i : op == OP_LT ? c->literal.i - 1 : 0;
}

/* The lesser of two bounds. */
static int64_t lesser(int64_t a, int64_t b) {
    return a && b ? BASE_MIN(a, b) : BASE_MAX(a, b);
}

/* The same of the column `id` where the condition x may be true. */
static int64_t bound_of(const expr *x, int id) {
    expr_op op;
    if (x->kind == EXPR_OP && (x->op == OP_AND || x->op == OP_OR)) {
        int64_t a = bound_of(x->args[0], id), b = bound_of(x->args[1], id);
        return x->op == OP_AND ? lesser(a, b) : a && b ? BASE_MAX(a, b) : 0;
    }
    for (int i = 0; i < 2 && expr_compares(x, i, &op); i++)
        if (x->args[i]->kind == EXPR_COLUMN && x->args[i]->column.id == id)
            return greatest(op, x->args[1 - i]);
    return 0;
}

/* Whether the first rows of a partition get from the function what they get among all its rows. */
static bool sees_rows_before(const rel_window *w) {
    return w->kind == WINDOW_ROW_NUMBER || w->kind == WINDOW_RANK || w->kind == WINDOW_DENSE_RANK;
}

/* Tells the window how many rows of each partition the filter above it may keep. All functions must
 * have the same partitions, in the same order. A bound on rank() lets ties pass. How many rows are
 * before one dense_rank() does not say, but that none is where it is 1. */
static void bound_window(const expr *filter, rel *window) {
    int64_t place = 0, rank = 0;
    for (int i = 0; i < window->window.nfunctions; i++) {
        const rel_window *w = &window->window.functions[i];
        if (!sees_rows_before(w) || w->nkeys != window->window.nkeys ||
            w->npartition != window->window.functions[0].npartition)
            return;
        int64_t bound = bound_of(filter, w->id);
        if (w->kind == WINDOW_ROW_NUMBER)
            place = lesser(place, bound);
        else if (w->nkeys > w->npartition && (w->kind == WINDOW_RANK || bound == 1))
            rank = lesser(rank, bound);
    }
    window->window.first = place ? place : rank;
    window->window.with_ties = !place && rank;
}

/* Heaps of the first rows cost more than they spare only where these are known to be most of all,
 * and no model is asked which rows there are (waves.c). */
static bool is_worth_it(rule_ctx *r, const rel *window) {
    const rel_estimate *in = estimate_rel(r->estimates, window->left);
    return in->guess || rel_has_llm(window->left) ||
           2 * estimate_rel(r->estimates, window)->rows <= in->rows;
}

static rel *mark_window(rule_ctx *r, rel *filter) {
    rel *window = rel_copy(r, filter->left);
    bound_window(filter->filter.predicate, window);
    bool bounded = window->window.first > 0 && is_worth_it(r, window);
    return bounded ? rel_over(r, filter, window, NULL) : filter;
}

/* ---- the rule -------------------------------------------------------------------------------- */

rel *rule_top_k(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, rule_top_k);
    if (x->kind == REL_FILTER && x->left->kind == REL_WINDOW)
        return mark_window(r, x);
    int64_t rows = usable(x);
    if (rows == 0)
        return x;
    rel *left = mark_sort(r, x->left, rows, x->limit.partition, x->limit.npartition);
    return rel_over(r, x, left, NULL);
}
