/*
 * limit.c - top-N: sorts below a LIMIT, and windows below a bound on row_number() or rank(), keep
 * only the first rows.
 *
 * Invariant: the LIMIT or filter stays in its place. The sort or window below it keeps at least the
 * rows that the LIMIT or filter needs.
 */
#include <stdint.h>

#include "rules_int.h"

/* Returns how many first rows of each partition of its input a LIMIT needs; 0: all rows. */
static int64_t rows_needed(const rel *x) {
    if (x->kind != REL_LIMIT || x->limit.limit < 0)
        return 0;
    int64_t offset = BASE_MAX(x->limit.offset, 0);
    return x->limit.limit > INT64_MAX - offset ? 0 : x->limit.limit + offset;
}

/* ---- top k ----------------------------------------------------------------------------------- */

/* Sets below[i] to the column of x's input that x returns unchanged as its column ids[i]. Returns
 * false if one of the columns is computed by x. */
static bool columns_below(const rel *x, const int *ids, int n, int *below) {
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

/* Sets join.first of x, or of the join below x's projections. If the join's predicate is a range
 * over column `by` of the right input, and the sort above sorts by this column and keeps only the
 * first rows of each partition, then it needs only the first pairs of each left row. */
static rel *limit_join(rule_ctx *r, rel *x, const rel *sort, int by, const int *ids, int n) {
    int *below = ARENA_ARRAY(r->mem, int, n + 1), by_below;
    plan_range range;
    if ((x->kind != REL_PROJECT && (x->kind != REL_JOIN || x->join.kind != JOIN_INNER)) ||
        !columns_below(x, ids, n, below))
        return x;
    if (x->kind == REL_PROJECT)
        return columns_below(x, &by, 1, &by_below)
                   ? rel_over(r, x, limit_join(r, x->left, sort, by_below, below, n), NULL)
                   : x;
    if (!range_join_first(r, x, &range) || range.right->kind != EXPR_COLUMN ||
        range.right->column.id != by)
        return x;
    /* if few pairs are equal in the columns that the join equates, a hash or index join costs less
     * than sorting the right rows */
    if (range.nsame &&
        estimate_rel(r->estimates, x)->rows < estimate_rel(r->estimates, x->right)->rows)
        return x;
    rel *copy = rel_copy(r, x);
    copy->join.first = sort->sort.first;
    copy->join.first_descending = sort->sort.keys[0].descending;
    return copy;
}

/* Sets sort.first of x, or of the sort below x's projections and LLM nodes, which return one row
 * for each input row. Stops at a calibrated call: the rows below determine its
 * priors. */
static rel *limit_sort(rule_ctx *r, rel *x, int64_t rows, const int *ids, int n) {
    int *below = ARENA_ARRAY(r->mem, int, n + 1);
    bool passes = x->kind == REL_PROJECT || (x->kind == REL_LLM && !rel_is_calibrated(x));
    if ((!passes && x->kind != REL_SORT) || !columns_below(x, ids, n, below))
        return x;
    if (passes)
        return rel_over(r, x, limit_sort(r, x->left, rows, below, n), NULL);
    rel *copy = rel_copy(r, x);
    copy->sort.first = rows;
    copy->sort.npartition = n;
    copy->sort.partition = below;
    const expr *key = copy->sort.nkeys ? copy->sort.keys[0].value : NULL;
    if (!key || key->kind != EXPR_COLUMN)
        return copy;
    return rel_over(r, copy, limit_join(r, x->left, copy, key->column.id, below, n), NULL);
}

/* ---- row_number() and rank() ---------------------------------------------------------------- */

/* Returns the largest integer n for which `n op c` may be true; 0: unknown, or not positive. */
static int64_t largest(expr_op op, const expr *c) {
    if (c->kind != EXPR_LITERAL || c->literal.type != TYPE_INTEGER || c->literal.i <= 0)
        return 0;
    return op == OP_LE || op == OP_EQ ? c->literal.i : op == OP_LT ? c->literal.i - 1 : 0;
}

/* Returns the smaller of two upper bounds; 0 means no bound. */
static int64_t tighter(int64_t a, int64_t b) {
    return a && b ? BASE_MIN(a, b) : BASE_MAX(a, b);
}

/* Returns the largest value of column `id` for which the condition x may be true; 0: unknown. */
static int64_t upper_bound(const expr *x, int id) {
    expr_op op;
    if (x->kind == EXPR_OP && (x->op == OP_AND || x->op == OP_OR)) {
        int64_t a = upper_bound(x->args[0], id), b = upper_bound(x->args[1], id);
        return x->op == OP_AND ? tighter(a, b) : a && b ? BASE_MAX(a, b) : 0;
    }
    for (int i = 0; i < 2 && expr_compares(x, i, &op); i++)
        if (x->args[i]->kind == EXPR_COLUMN && x->args[i]->column.id == id)
            return largest(op, x->args[1 - i]);
    return 0;
}

/* Whether the function's value for a row depends only on this row and the rows before it. */
static bool reads_rows_before(const rel_window *w) {
    return w->kind == WINDOW_ROW_NUMBER || w->kind == WINDOW_RANK || w->kind == WINDOW_DENSE_RANK;
}

/* If all functions are row_number(), rank() or dense_rank() with the same partitions and order:
 * sets window.first to the maximum number of rows of a partition that may pass the filter. With a
 * bound on rank(), rows that tie may pass too. A bound on dense_rank() limits the rows only if it
 * is 1. */
static void limit_window(const expr *filter, rel *window) {
    int64_t row_number = 0, rank = 0;
    for (int i = 0; i < window->window.nfunctions; i++) {
        const rel_window *w = &window->window.functions[i];
        if (!reads_rows_before(w) || w->nkeys != window->window.nkeys ||
            w->npartition != window->window.functions[0].npartition)
            return;
        int64_t bound = upper_bound(filter, w->id);
        if (w->kind == WINDOW_ROW_NUMBER)
            row_number = tighter(row_number, bound);
        else if (w->nkeys > w->npartition && (w->kind == WINDOW_RANK || bound == 1))
            rank = tighter(rank, bound);
    }
    window->window.first = row_number ? row_number : rank;
    window->window.with_ties = !row_number && rank;
}

/* Whether keeping only the first rows costs less than sorting all rows. Heaps of the first rows
 * cost more than a sort if more than half of the rows are kept. If the window's input has LLM
 * calls, keeping only the first rows always costs less, since it saves calls (waves.c). */
static bool is_cheaper(rule_ctx *r, const rel *window) {
    const rel_estimate *in = estimate_rel(r->estimates, window->left);
    return in->guess || rel_has_llm(window->left) ||
           2 * estimate_rel(r->estimates, window)->rows <= in->rows;
}

static rel *limit_filtered_window(rule_ctx *r, rel *filter) {
    rel *window = rel_copy(r, filter->left);
    limit_window(filter->filter.predicate, window);
    bool bounded = window->window.first > 0 && is_cheaper(r, window);
    return bounded ? rel_over(r, filter, window, NULL) : filter;
}

/* ---- the rule -------------------------------------------------------------------------------- */

rel *keep_first_rows(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, keep_first_rows);
    if (x->kind == REL_FILTER && x->left->kind == REL_WINDOW)
        return limit_filtered_window(r, x);
    int64_t rows = rows_needed(x);
    if (rows == 0)
        return x;
    rel *left = limit_sort(r, x->left, rows, x->limit.partition, x->limit.npartition);
    return rel_over(r, x, left, NULL);
}
