/*
 * op_filter.c - WHERE and HAVING: returns the rows whose predicate is true, in input order.
 */
#include "op_int.h"

typedef struct filter_state {
    int rows[BATCH_ROWS];
} filter_state;

static int filter_next(op *o, batch **out, err *e) {
    filter_state *s = o->state;
    batch *in;
    int status = 0, count;
    while (!*out && (status = op_next(o->left, &in, e)) == 0 && in) {
        arena_reset(o->pass);
        if ((status = eval_filter(o->node->filter.predicate, in, o->pass, s->rows, &count, e)) != 0)
            return status;
        op_choose(o, in, s->rows, count, out);
    }
    return status;
}

const op_class op_filter = {.name = "filter",
                            .state_bytes = sizeof(filter_state),
                            .open = op_open_out,
                            .next = filter_next};
