/*
 * op_sort.c - ORDER BY: stable, by any keys; with a limit only the best rows are kept.
 *
 *   rows   all input rows (spilling)          keys   their sort keys (spilling)
 *   order  the rows' numbers, sorted (sort.c)
 *
 * Invariant: rows that compare equal come out in input order; so with a limit a later row that
 * equals the last kept one is dropped.
 */
#include <stdlib.h>

#include "op_int.h"
#include "sort_int.h"

typedef struct sort_state {
    rowset *rows, *keys;
    uint32_t *order;
    int64_t at, count;
    bool sorted;
    column *key_cols;
    int chosen[BATCH_ROWS];
} sort_state;

static int sort_kept(op *o, err *e) {
    sort_state *s = o->state;
    free(s->order);
    s->order = NULL;
    s->count = rowset_rows(s->keys);
    return sort_rows(o->ctx, s->keys, o->node->sort.keys, o->node->sort.nkeys, &s->order, e);
}

/* ---- keeping the best ------------------------------------------------------------------------ */

/* Keeps the first `limit` rows in sorted order as rows 0 … limit - 1. */
static int prune(op *o, err *e) {
    sort_state *s = o->state;
    int status = sort_kept(o, e);
    int64_t keep = BASE_MIN(o->node->sort.limit, s->count);
    rowset *rows = rowset_new(o->ctx, o->node->types, o->node->ncols);
    rowset *keys = NULL;
    value_type *types = ARENA_ARRAY(o->pass, value_type, o->node->sort.nkeys);
    for (int k = 0; k < o->node->sort.nkeys; k++)
        types[k] = o->node->sort.keys[k].value->type;
    keys = rowset_new(o->ctx, types, o->node->sort.nkeys);
    for (int64_t k = 0; k < keep && status == 0; k++) {
        uint32_t row = s->order[k];
        int at = (int)(row % BATCH_ROWS);
        rowset_push(rows, rowset_batch(s->rows, (int)(row / BATCH_ROWS))->cols, at);
        rowset_push(keys, rowset_batch(s->keys, (int)(row / BATCH_ROWS))->cols, at);
    }
    if (status == 0)
        status = rowset_full_error(rows, e);
    if (status == 0)
        status = rowset_full_error(keys, e);
    rowset_free(s->rows);
    rowset_free(s->keys);
    s->rows = rows;
    s->keys = keys;
    return status;
}

/* Rows of the batch that come before the worst of `limit`
 * kept ones (rows 0 … limit - 1 are sorted after a prune). */
static int better_rows(op *o, int rows, bool pruned) {
    sort_state *s = o->state;
    int64_t limit = o->node->sort.limit;
    int count = 0;
    const batch *worst = pruned ? rowset_batch(s->keys, (int)((limit - 1) / BATCH_ROWS)) : NULL;
    for (int k = 0; k < rows; k++)
        if (!worst || sort_compare(o->node->sort.keys, o->node->sort.nkeys, s->key_cols, k,
                                   worst->cols, (int)((limit - 1) % BATCH_ROWS)) < 0)
            s->chosen[count++] = k;
    return count;
}

static int keep_best(op *o, const batch *in, bool *pruned, err *e) {
    sort_state *s = o->state;
    int64_t limit = o->node->sort.limit;
    int count = better_rows(o, in->rows, *pruned), status;
    for (int k = 0; k < count; k++) {
        rowset_push(s->rows, in->cols, s->chosen[k]);
        rowset_push(s->keys, s->key_cols, s->chosen[k]);
    }
    if ((status = rowset_full_error(s->rows, e)) != 0 ||
        (status = rowset_full_error(s->keys, e)) != 0 ||
        rowset_rows(s->rows) < limit + BASE_MAX(limit, BATCH_ROWS))
        return status;
    status = prune(o, e);
    *pruned = true;
    return status;
}

static int keep_all(op *o, const batch *in, err *e) {
    sort_state *s = o->state;
    batch keys = {
        .rows = in->rows, .ncols = o->node->sort.nkeys, .cols = s->key_cols, .mem = o->pass};
    int status = rowset_append(s->rows, in, e);
    return status ? status : rowset_append(s->keys, &keys, e);
}

static int sort_read(op *o, err *e) {
    sort_state *s = o->state;
    batch *in;
    bool pruned = false;
    int status;
    while ((status = op_next(o->left, &in, e)) == 0 && in) {
        arena_reset(o->pass);
        for (int k = 0; k < o->node->sort.nkeys && status == 0; k++)
            status = eval_column(o->node->sort.keys[k].value, in, o->pass, &s->key_cols[k], e);
        if (status == 0)
            status = o->node->sort.limit > 0 ? keep_best(o, in, &pruned, e) : keep_all(o, in, e);
        if (status)
            return status;
    }
    if (status == 0)
        status = sort_kept(o, e);
    if (o->node->sort.limit >= 0)
        s->count = BASE_MIN(s->count, o->node->sort.limit);
    s->sorted = true;
    return status;
}

static int sort_open(op *o, err *e) {
    (void)e;
    sort_state *s = o->state;
    int n = o->node->sort.nkeys;
    value_type *types = ARENA_ARRAY(o->mem, value_type, BASE_MAX(n, 1));
    for (int k = 0; k < n; k++)
        types[k] = o->node->sort.keys[k].value->type;
    op_init_out(o);
    s->key_cols = ARENA_ARRAY(o->mem, column, BASE_MAX(n, 1));
    s->rows = rowset_new(o->ctx, o->node->types, o->node->ncols);
    s->keys = rowset_new(o->ctx, types, n);
    return 0;
}

static int sort_next(op *o, batch **out, err *e) {
    sort_state *s = o->state;
    int status = s->sorted || o->node->sort.limit == 0 ? 0 : sort_read(o, e);
    int count = (int)BASE_MIN(BATCH_ROWS, s->count - s->at);
    if (status || count <= 0)
        return status;
    arena_reset(o->pass);
    int64_t *rows = arena_alloc(o->pass, sizeof *rows * (size_t)count);
    for (int k = 0; k < count; k++)
        rows[k] = s->order[s->at + k];
    for (int c = 0; c < o->node->ncols; c++)
        rowset_gather(s->rows, c, o->pass, rows, count, &o->out.cols[c]);
    s->at += count;
    o->out.rows = count;
    *out = &o->out;
    return 0;
}

static void sort_close(op *o) {
    sort_state *s = o->state;
    rowset_free(s->rows);
    rowset_free(s->keys);
    free(s->order);
}

const op_class op_sort = {.name = "sort",
                          .state_bytes = sizeof(sort_state),
                          .open = sort_open,
                          .next = sort_next,
                          .close = sort_close};
