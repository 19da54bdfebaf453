/*
 * op_distinct.c - SELECT DISTINCT: returns the first of equal rows, in input order. NULL equals
 * NULL.
 */
#include "op_int.h"
#include "rows/hash_table_int.h"

typedef struct distinct_state {
    hash_table *seen;
    int rows[BATCH_ROWS];
} distinct_state;

static int distinct_open(op *o, err *e) {
    (void)e;
    op_init_out(o);
    ((distinct_state *)o->state)->seen = hash_table_new(&o->memory, o->node->types, o->node->ncols);
    return 0;
}

static int distinct_next(op *o, batch **out, err *e) {
    distinct_state *s = o->state;
    batch *in;
    int status = 0, count;
    while (!*out && (status = op_next(o->left, &in, e)) == 0 && in) {
        arena_reset(o->pass);
        status = hash_table_add_new(s->seen, in->cols, in->rows, s->rows, &count, e);
        if (status)
            return status;
        op_choose(o, in, s->rows, count, out);
    }
    return status;
}

static void distinct_close(op *o) {
    hash_table_free(((distinct_state *)o->state)->seen);
}

const op_class op_distinct = {.name = "distinct",
                              .state_bytes = sizeof(distinct_state),
                              .open = distinct_open,
                              .next = distinct_next,
                              .close = distinct_close};
