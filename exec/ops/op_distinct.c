/*
 * op_distinct.c - distinct rows: the first of each, in order of first appearance. NULL equals NULL
 * here.
 */
#include "op_int.h"
#include "rows/hash_table_int.h"

typedef struct distinct_state {
    hash_table *seen;
    uint32_t entries[BATCH_ROWS];
    int rows[BATCH_ROWS];
} distinct_state;

static int distinct_open(op *o, err *e) {
    (void)e;
    op_init_out(o);
    ((distinct_state *)o->state)->seen = hash_table_new(o->ctx, o->node->types, o->node->ncols);
    return 0;
}

static int distinct_next(op *o, batch **out, err *e) {
    distinct_state *s = o->state;
    batch *in;
    int status;
    while ((status = op_next(o->left, &in, e)) == 0 && in) {
        uint32_t next = hash_table_count(s->seen);
        int count = 0;
        if ((status = hash_table_add(s->seen, in->cols, in->rows, s->entries, e)) != 0)
            return status;
        for (int k = 0; k < in->rows; k++)
            if (s->entries[k] == next) {
                s->rows[count++] = k;
                next++;
            }
        if (count == 0)
            continue;
        arena_reset(o->pass);
        *out = in;
        if (count < in->rows) {
            op_gather(o, in, s->rows, count);
            *out = &o->out;
        }
        return 0;
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
