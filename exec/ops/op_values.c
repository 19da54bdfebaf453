/*
 * op_values.c - VALUES: rows of constant expressions. SELECT without FROM is one row of no columns.
 *
 * If there are several rows, an error message has the number of the failing row.
 */
#include "op_int.h"

typedef struct values_state {
    int at; /* rows returned so far */
} values_state;

static int values_row(op *o, int row, int at, int capacity, err *e) {
    for (int c = 0; c < o->node->ncols; c++) {
        value v;
        int status = eval_value(o->node->values.rows[row][c], NULL, 0, o->pass, &v, e);
        column *to = &o->out.cols[c];
        if (status == 0 && v.type != to->type && v.type != TYPE_NULL)
            status = value_cast(o->pass, v, to->type, &v, e);
        if (status)
            return status;
        column_set(to, o->pass, capacity, at, v);
    }
    return 0;
}

static int values_next(op *o, batch **out, err *e) {
    values_state *s = o->state;
    int count = BASE_MIN(BATCH_ROWS, o->node->values.nrows - s->at);
    if (count <= 0)
        return 0;
    arena_reset(o->pass);
    for (int c = 0; c < o->node->ncols; c++)
        column_init(&o->out.cols[c], o->pass, o->node->types[c], count, false);
    for (int k = 0; k < count; k++) {
        int status = values_row(o, s->at + k, k, count, e);
        if (status) {
            if (o->node->values.nrows > 1 && e->code != ERR_CANCELLED) {
                err inner = *e;
                err_set_at(e, inner.code, inner.pos, inner.len, "row %d: %s", s->at + k + 1,
                           inner.message);
                if (inner.hint[0])
                    err_hint(e, "%s", inner.hint);
            }
            return status;
        }
    }
    o->out.rows = count;
    s->at += count;
    *out = &o->out;
    return 0;
}

const op_class op_values = {.name = "values",
                            .state_bytes = sizeof(values_state),
                            .open = op_open_out,
                            .next = values_next};
