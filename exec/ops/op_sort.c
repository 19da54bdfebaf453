/*
 * op_sort.c - ORDER BY: stable, by any keys; with a limit only the best rows, of each group if
 * there are groups, are kept.
 *
 *   rows   all input rows (spilling)          keys   their sort keys (spilling)
 *   best   instead of these two, while a limit chooses among the rows (sort_best.c)
 *   order  the rows' numbers, sorted (sort.c)
 *
 * Invariant: rows that compare equal come out in input order.
 */
#include <stdlib.h>

#include "op_int.h"
#include "rows/row_sort_int.h"

typedef struct sort_state {
    rowset *rows, *keys;
    sort_best *best;
    uint32_t *order;
    int64_t at, count;
    bool sorted;
    column *key_cols, *group_cols;
} sort_state;

static int sort_kept(op *o, err *e) {
    sort_state *s = o->state;
    s->count = rowset_rows(s->keys);
    return sort_rows(o->ctx, s->keys, o->node->sort.keys, o->node->sort.nkeys, &s->order, e);
}

static int keep_all(op *o, const batch *in, err *e) {
    sort_state *s = o->state;
    batch keys = {
        .rows = in->rows, .ncols = o->node->sort.nkeys, .cols = s->key_cols, .mem = o->pass};
    int status = rowset_append(s->rows, in, e);
    return status ? status : rowset_append(s->keys, &keys, e);
}

static int keep_best(op *o, const batch *in, err *e) {
    sort_state *s = o->state;
    for (int k = 0; k < o->node->sort.npartition; k++)
        s->group_cols[k] = in->cols[o->node->sort.partition[k]];
    return sort_best_add(s->best, in, s->key_cols, s->group_cols, e);
}

static int sort_read(op *o, err *e) {
    sort_state *s = o->state;
    batch *in;
    int status;
    while ((status = op_next(o->left, &in, e)) == 0 && in) {
        arena_reset(o->pass);
        for (int k = 0; k < o->node->sort.nkeys && status == 0; k++)
            status = eval_column(o->node->sort.keys[k].value, in, o->pass, &s->key_cols[k], e);
        if (status == 0)
            status = s->best ? keep_best(o, in, e) : keep_all(o, in, e);
        if (status)
            return status;
    }
    if (status == 0 && s->best)
        status = sort_best_take(s->best, &s->rows, &s->keys, e);
    if (status == 0)
        status = sort_kept(o, e);
    s->sorted = true;
    return status;
}

static sort_best *new_best(op *o) {
    const plan_node *p = o->node;
    value_type *types = ARENA_ARRAY(o->mem, value_type, BASE_MAX(p->sort.npartition, 1));
    for (int k = 0; k < p->sort.npartition; k++)
        types[k] = p->types[p->sort.partition[k]];
    return sort_best_new(o->ctx, &(best_spec){.limit = p->sort.limit,
                                              .ncols = p->ncols,
                                              .types = p->types,
                                              .nkeys = p->sort.nkeys,
                                              .by = p->sort.keys,
                                              .ngroup = p->sort.npartition,
                                              .group_types = types});
}

static int sort_open(op *o, err *e) {
    (void)e;
    sort_state *s = o->state;
    int n = o->node->sort.nkeys;
    op_init_out(o);
    s->key_cols = ARENA_ARRAY(o->mem, column, BASE_MAX(n, 1));
    if (o->node->sort.limit > 0) {
        s->group_cols = ARENA_ARRAY(o->mem, column, BASE_MAX(o->node->sort.npartition, 1));
        s->best = new_best(o);
        return 0;
    }
    value_type *types = ARENA_ARRAY(o->mem, value_type, BASE_MAX(n, 1));
    for (int k = 0; k < n; k++)
        types[k] = o->node->sort.keys[k].value->type;
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
    sort_best_free(s->best);
    rowset_free(s->rows);
    rowset_free(s->keys);
    free(s->order);
}

const op_class op_sort = {.name = "sort",
                          .state_bytes = sizeof(sort_state),
                          .open = sort_open,
                          .next = sort_next,
                          .close = sort_close};
