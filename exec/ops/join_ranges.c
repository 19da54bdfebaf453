/*
 * join_ranges.c - finds the candidates of a loop join: the right rows whose values are in the
 * ranges that the plan derived from the predicate (planner/cost/range_join.c).
 *
 *   order[0..count)   row numbers of the right input, sorted by the range's equality columns, if
 *                     any, then by its expression; rows with a NULL in one of these are left out,
 *                     since no comparison with NULL is true
 *   low[k], high[k]   order[low[k] .. high[k]) is the range of row k of the current left batch
 *
 * Invariant: every pair that passes the predicate is listed. Ranges only save work: if a value or a
 * bound cannot be computed, all rows are candidates, and evaluating the predicate reports the
 * error.
 */
#include <stdlib.h>
#include <string.h>

#include "join_ranges_int.h"
#include "rows/cells_int.h"
#include "rows/row_sort_int.h"

typedef struct range_rows {
    int nvalues;        /* number of values: the equality columns and the range's expression */
    sort_key *upward;   /* sorts ascending by all of these values */
    rowset *values;     /* the values of each right row */
    mem_array order_in; /* memory of `order` */
    const uint32_t *order;
    int64_t count; /* right rows without a NULL among these values */
    int64_t low[BATCH_ROWS], high[BATCH_ROWS];
} range_rows;

struct join_ranges {
    op *o;
    int n;          /* number of ranges; 0: values could not be computed, all rows are candidates */
    int64_t nright; /* number of right rows */
    bool bounded;   /* low and high are set for the current left batch */
    range_rows **ranges;
    mem_array list_in; /* memory of `list` */
    uint32_t *list;    /* result of join_ranges_list; has room for all right rows */
};

/* ---- the right input ------------------------------------------------------------------------- */

/* Sets the first value of a row to NULL if any of its values is NULL, so that the row sorts last.
 * Returns the number of rows without NULLs. */
static int64_t move_nulls_last(column *cols, int n, int rows, arena *mem) {
    uint8_t *null = arena_alloc(mem, (size_t)BASE_MAX(rows, 1));
    int64_t others = 0;
    for (int k = 0; k < rows; k++) {
        null[k] = row_has_null(cols, n, k);
        others += !null[k];
    }
    cols[0].null = null;
    return others;
}

/* Evaluates and sorts the values of the right rows for range `number`. Sets *known to true if all
 * values could be computed. */
static int read_values(join_ranges *j, const rowset *right, int number, bool *known, err *e) {
    op *o = j->o;
    const plan_range *p = &o->node->join.ranges[number];
    range_rows *g = j->ranges[number];
    int n = g->nvalues = p->nsame + 1;
    expr **values = ARENA_ARRAY(o->mem, expr *, n);
    value_type *types = ARENA_ARRAY(o->mem, value_type, n);
    column *cols = ARENA_ARRAY(o->mem, column, n);
    g->upward = ARENA_ARRAY(o->mem, sort_key, n);
    for (int i = 0; i < n; i++) {
        values[i] = i < p->nsame ? p->same_right[i] : p->right;
        types[i] = values[i]->type;
    }
    g->values = rowset_new_in(&o->memory, types, n);
    for (int b = 0; b < rowset_batches(right); b++) {
        err computing = {0};
        arena_reset(o->pass);
        const batch *in = rowset_batch(right, b);
        if (op_eval(o, values, n, in, cols, &computing))
            return 0;
        g->count += move_nulls_last(cols, n, in->rows, o->pass);
        batch kept = {.rows = in->rows, .ncols = n, .cols = cols, .mem = o->pass};
        int status = rowset_append(g->values, &kept, e);
        if (status)
            return status;
    }
    *known = true;
    int status = sort_rows(o->ctx, &o->memory, g->values, g->upward, n, &g->order_in, e);
    g->order = g->order_in.p;
    return status;
}

int join_ranges_new(op *o, const rowset *right, join_ranges **out, err *e) {
    join_ranges *j = *out = ARENA_NEW(o->mem, join_ranges);
    j->o = o;
    j->n = o->node->join.nranges;
    j->nright = rowset_rows(right);
    j->ranges = ARENA_ARRAY(o->mem, range_rows *, j->n);
    for (int i = 0; i < j->n; i++)
        j->ranges[i] = ARENA_NEW(o->mem, range_rows);
    int status = 0;
    bool known = true;
    for (int i = 0; i < j->n && status == 0 && known; i++) {
        known = false;
        status = read_values(j, right, i, &known, e);
    }
    if (status || !known) {
        j->n = 0;
        return status;
    }
    status = mem_array_resize(&j->list_in, &o->memory, sizeof *j->list * (size_t)j->nright, e);
    j->list = j->list_in.p;
    return status;
}

void join_ranges_free(join_ranges *j) {
    for (int i = 0; j && i < j->o->node->join.nranges; i++) {
        rowset_free(j->ranges[i]->values);
        mem_array_free(&j->ranges[i]->order_in);
    }
    if (j)
        mem_array_free(&j->list_in);
}

/* ---- a left batch ---------------------------------------------------------------------------- */

/* Returns the number of right rows whose first n values are below the bound; with `equal`, below or
 * equal to the bound. */
static int64_t count_below(const range_rows *g, const column *bound, int n, int row, bool equal) {
    int64_t low = 0, high = g->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        uint32_t at = g->order[middle];
        int c = sort_compare(g->upward, n, rowset_batch(g->values, (int)(at / BATCH_ROWS))->cols,
                             (int)(at % BATCH_ROWS), bound, row);
        if (c < 0 || (equal && c == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Cuts the range of left row k to its first p->first right rows, counted from the high end if
 * p->downward. Rows with the same values as the last of these are kept too. */
static void keep_first(range_rows *g, const plan_range *p, int k) {
    if (p->first <= 0 || g->high[k] - g->low[k] <= p->first)
        return;
    uint32_t last = g->order[p->downward ? g->high[k] - p->first : g->low[k] + p->first - 1];
    const column *key = rowset_batch(g->values, (int)(last / BATCH_ROWS))->cols;
    int64_t end = count_below(g, key, g->nvalues, (int)(last % BATCH_ROWS), !p->downward);
    *(p->downward ? &g->low[k] : &g->high[k]) = end;
}

/* One end of a range, for each left row. If the range has no bound at this end, only the
 * equality columns limit it. */
typedef struct range_end {
    column *cols; /* the equality columns, and the bound if there is one */
    int n;
} range_end;

static int read_end(join_ranges *j, const plan_range *p, expr *bound, const batch *in,
                    range_end *end) {
    op *o = j->o;
    err computing = {0};
    end->n = p->nsame + (bound != NULL);
    end->cols = ARENA_ARRAY(o->pass, column, end->n + 1);
    int status = op_eval(o, p->same_left, p->nsame, in, end->cols, &computing);
    if (status == 0 && bound)
        status = op_eval(o, &bound, 1, in, &end->cols[p->nsame], &computing);
    return status;
}

/* Sets low and high of a range for each left row; a NULL in a bound makes the range empty. */
static int set_ends(join_ranges *j, const batch *in, int number) {
    range_rows *g = j->ranges[number];
    const plan_range *p = &j->o->node->join.ranges[number];
    range_end low, high;
    int status = read_end(j, p, p->low, in, &low);
    if (status || (status = read_end(j, p, p->high, in, &high)) != 0)
        return status;
    for (int k = 0; k < in->rows; k++) {
        bool null = row_has_null(low.cols, low.n, k) || row_has_null(high.cols, high.n, k);
        g->low[k] = null ? 0 : count_below(g, low.cols, low.n, k, p->low && !p->low_inclusive);
        g->high[k] = null ? 0 : count_below(g, high.cols, high.n, k, !p->high || p->high_inclusive);
        g->high[k] = BASE_MAX(g->low[k], g->high[k]);
        keep_first(g, p, k);
    }
    return 0;
}

void join_ranges_bound(join_ranges *j, const batch *in) {
    arena_reset(j->o->pass);
    j->bounded = j->n > 0;
    for (int i = 0; i < j->n && j->bounded; i++)
        j->bounded = set_ends(j, in, i) == 0;
}

int64_t join_ranges_count(const join_ranges *j, int left) {
    if (!j->bounded)
        return j->nright;
    int64_t count = 0;
    for (int i = 0; i < j->n; i++)
        count += j->ranges[i]->high[left] - j->ranges[i]->low[left];
    return count;
}

int64_t join_ranges_row(const join_ranges *j, int left, int64_t at) {
    for (int i = 0; i < j->n && j->bounded; i++) {
        const range_rows *g = j->ranges[i];
        if (at < g->high[left] - g->low[left])
            return g->order[g->low[left] + at];
        at -= g->high[left] - g->low[left];
    }
    return at;
}

static int compare_rows(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

const uint32_t *join_ranges_list(join_ranges *j, int left, int64_t *n) {
    int64_t count = join_ranges_count(j, left), kept = 0;
    int bits = 1;
    while (count >> bits)
        bits++;
    *n = j->nright;
    /* sorting the candidates would cost more than trying all right rows */
    if (count * bits > j->nright)
        return NULL;
    for (int64_t at = 0; at < count; at++)
        j->list[at] = (uint32_t)join_ranges_row(j, left, at);
    qsort(j->list, (size_t)count, sizeof *j->list, compare_rows);
    for (int64_t at = 0; at < count; at++)
        if (at == 0 || j->list[at] != j->list[kept - 1])
            j->list[kept++] = j->list[at];
    *n = kept;
    return j->list;
}
