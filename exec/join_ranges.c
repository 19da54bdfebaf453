/*
 * join_ranges.c - which rows of the kept right input can meet a left row, where the plan knows
 * ranges of the right input's values for it (planner/range_join.c).
 *
 *   order[0..count)   row numbers of the right input, by the value of the range's expression; rows
 *                     where it is NULL are left out: a comparison with NULL lets no pair pass
 *   low[k], high[k]   the part of them for row k of the left batch at work
 *
 * Invariant: what is not listed is no pair. Ranges only save work: where a value or a bound cannot
 * be computed, every row is listed, and the predicate says what is wrong if it comes to that.
 */
#include <stdlib.h>
#include <string.h>

#include "join_int.h"
#include "sort_int.h"

static const sort_key upward = {0};

typedef struct range_rows {
    rowset *values; /* of the right rows: one column */
    uint32_t *order;
    int64_t count;
    int64_t low[BATCH_ROWS], high[BATCH_ROWS];
} range_rows;

struct join_ranges {
    op *o;
    int n;
    int64_t nright;
    bool bounded; /* low and high are those of the batch at work */
    range_rows **ranges;
    uint32_t *list; /* nright of them */
};

/* ---- the right input ------------------------------------------------------------------------- */

/* *known stays false where a value cannot be computed. */
static int read_values(join_ranges *j, const rowset *right, int number, bool *known, err *e) {
    op *o = j->o;
    expr *const *ranged = &o->node->join.ranges[number].right;
    range_rows *g = j->ranges[number];
    g->values = rowset_new(o->ctx, &(*ranged)->type, 1);
    for (int b = 0; b < rowset_batches(right); b++) {
        err computing = {0};
        column col;
        arena_reset(o->pass);
        const batch *in = rowset_batch(right, b);
        if (op_eval(o, ranged, 1, in, &col, &computing))
            return 0;
        batch kept = {.rows = in->rows, .ncols = 1, .cols = &col, .mem = o->pass};
        int status = rowset_append(g->values, &kept, e);
        if (status)
            return status;
        for (int k = 0; k < in->rows; k++)
            g->count += col.type != TYPE_NULL && !column_is_null(&col, k);
    }
    *known = true;
    return sort_rows(o->ctx, g->values, &upward, 1, &g->order, e);
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
    j->list = mem_try_alloc(sizeof *j->list * (size_t)j->nright);
    return j->list
               ? 0
               : err_set(e, ERR_FULL, "not enough memory to join %lld rows", (long long)j->nright);
}

void join_ranges_free(join_ranges *j) {
    for (int i = 0; j && i < j->o->node->join.nranges; i++) {
        rowset_free(j->ranges[i]->values);
        free(j->ranges[i]->order);
    }
    if (j)
        free(j->list);
}

/* ---- a left batch ---------------------------------------------------------------------------- */

/* How many values are below the bound, or, with `equal`, not above it. */
static int64_t count_below(const range_rows *g, const column *bound, int row, bool equal) {
    int64_t low = 0, high = g->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        uint32_t at = g->order[middle];
        int c = sort_compare(&upward, 1, rowset_batch(g->values, (int)(at / BATCH_ROWS))->cols,
                             (int)(at % BATCH_ROWS), bound, row);
        if (c < 0 || (equal && c == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Of the values between the ends of row k only the first that are wanted, and their equals. */
static void keep_first(range_rows *g, const plan_range *p, int k) {
    if (p->first <= 0 || g->high[k] - g->low[k] <= p->first)
        return;
    uint32_t last = g->order[p->downward ? g->high[k] - p->first : g->low[k] + p->first - 1];
    const column *key = rowset_batch(g->values, (int)(last / BATCH_ROWS))->cols;
    int64_t end = count_below(g, key, (int)(last % BATCH_ROWS), !p->downward);
    *(p->downward ? &g->low[k] : &g->high[k]) = end;
}

/* A NULL bound bounds all out. */
static int set_ends(join_ranges *j, const batch *in, int number) {
    range_rows *g = j->ranges[number];
    const plan_range *p = &j->o->node->join.ranges[number];
    err computing = {0};
    column low, high;
    if ((p->low && op_eval(j->o, &p->low, 1, in, &low, &computing)) ||
        (p->high && op_eval(j->o, &p->high, 1, in, &high, &computing)))
        return (int)computing.code;
    for (int k = 0; k < in->rows; k++) {
        bool null = (p->low && (low.type == TYPE_NULL || column_is_null(&low, k))) ||
                    (p->high && (high.type == TYPE_NULL || column_is_null(&high, k)));
        g->low[k] = p->low && !null ? count_below(g, &low, k, !p->low_inclusive) : 0;
        g->high[k] = null ? 0 : p->high ? count_below(g, &high, k, p->high_inclusive) : g->count;
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
    if (count * bits > j->nright) /* putting them in order costs more than walking all */
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
