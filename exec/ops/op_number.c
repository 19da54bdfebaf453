/*
 * op_number.c - adds a column that numbers the rows 1, 2, 3, … in input order.
 */
#include "op_int.h"

typedef struct number_state {
    int64_t last;
} number_state;

static int number_next(op *o, batch **out, err *e) {
    number_state *s = o->state;
    batch *in;
    int status = op_next(o->left, &in, e);
    if (status || !in)
        return status;
    arena_reset(o->pass);
    for (int c = 0; c < in->ncols; c++)
        o->out.cols[c] = in->cols[c];
    column *number = &o->out.cols[in->ncols];
    column_init(number, o->pass, TYPE_INTEGER, in->rows, false);
    for (int k = 0; k < in->rows; k++)
        number->i[k] = ++s->last;
    o->out.rows = in->rows;
    *out = &o->out;
    return 0;
}

const op_class op_number = {.name = "number",
                            .state_bytes = sizeof(number_state),
                            .open = op_open_out,
                            .next = number_next};
