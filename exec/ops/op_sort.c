/*
 * op_sort.c - ORDER BY: a stable sort; with a limit, only the first rows, or the first rows of each
 * partition, are kept (rows/sort_buffer.c).
 *
 *   rows   the kept input rows (spilling)
 *   keys   their sort keys (spilling)
 *   order  the row numbers, sorted (rows/row_sort.c)
 */
#include "op_int.h"
#include "rows/row_sort_int.h"

typedef struct sort_state {
    sort_buffer *input;
    rowset *rows, *keys; /* taken from `input` after the last row */
    mem_array order;
    int64_t at;    /* number of rows returned so far */
    int64_t count; /* number of rows in total */
    bool sorted;
    column *key_cols, *group_cols;
} sort_state;

static int sort_read(op *o, err *e) {
    sort_state *s = o->state;
    const plan_node *p = o->node;
    batch *in;
    int status;
    while ((status = op_next(o->left, &in, e)) == 0 && in) {
        arena_reset(o->pass);
        status = op_eval_keys(o, p->sort.keys, p->sort.nkeys, in, s->key_cols, e);
        for (int k = 0; k < p->sort.npartition; k++)
            s->group_cols[k] = in->cols[p->sort.partition[k]];
        if (status == 0)
            status = sort_buffer_add(s->input, in, s->key_cols, s->group_cols, e);
        if (status)
            return status;
    }
    if (status == 0)
        status = sort_buffer_take(s->input, &s->rows, &s->keys, e);
    if (status == 0) {
        s->count = rowset_rows(s->keys);
        status = sort_rows(o->ctx, &o->memory, s->keys, p->sort.keys, p->sort.nkeys, &s->order, e);
        rowset_free(s->keys);
        s->keys = NULL;
    }
    s->sorted = true;
    return status;
}

static int sort_open(op *o, err *e) {
    (void)e;
    sort_state *s = o->state;
    const plan_node *p = o->node;
    value_type *types = ARENA_ARRAY(o->mem, value_type, BASE_MAX(p->sort.npartition, 1));
    op_init_out(o);
    for (int k = 0; k < p->sort.npartition; k++)
        types[k] = p->types[p->sort.partition[k]];
    s->key_cols = ARENA_ARRAY(o->mem, column, BASE_MAX(p->sort.nkeys, 1));
    s->group_cols = ARENA_ARRAY(o->mem, column, BASE_MAX(p->sort.npartition, 1));
    s->input = sort_buffer_new(&o->memory, &(sort_spec){.limit = BASE_MAX(p->sort.limit, 0),
                                                        .ncols = p->ncols,
                                                        .types = p->types,
                                                        .by = p->sort.keys,
                                                        .nkeys = p->sort.nkeys,
                                                        .ngroup = p->sort.npartition,
                                                        .group_types = types});
    return 0;
}

static int sort_next(op *o, batch **out, err *e) {
    sort_state *s = o->state;
    int status = s->sorted || o->node->sort.limit == 0 ? 0 : sort_read(o, e);
    int count = (int)BASE_MIN(BATCH_ROWS, s->count - s->at);
    if (status || count <= 0)
        return status;
    arena_reset(o->pass);
    const uint32_t *order = s->order.p;
    int64_t *rows = arena_alloc(o->pass, sizeof *rows * (size_t)count);
    for (int k = 0; k < count; k++)
        rows[k] = order[s->at + k];
    for (int c = 0; c < o->node->ncols; c++)
        rowset_gather(s->rows, c, o->pass, rows, count, &o->out.cols[c]);
    s->at += count;
    o->out.rows = count;
    *out = &o->out;
    return 0;
}

static void sort_close(op *o) {
    sort_state *s = o->state;
    sort_buffer_free(s->input);
    rowset_free(s->rows);
    rowset_free(s->keys);
    mem_array_free(&s->order);
}

const op_class op_sort = {.name = "sort",
                          .state_bytes = sizeof(sort_state),
                          .open = sort_open,
                          .next = sort_next,
                          .close = sort_close};
