/*
 * op_series.c - generate_series(): a column of first, first + step, …
 */
#include "op_int.h"

typedef struct series_state {
    int64_t at; /* rows returned so far */
} series_state;

static int series_next(op *o, batch **out, err *e) {
    (void)e;
    series_state *s = o->state;
    const series *of = &o->node->series;
    int count = (int)BASE_MIN((int64_t)BATCH_ROWS, of->count - s->at);
    if (count <= 0)
        return 0;
    arena_reset(o->pass);
    column *to = &o->out.cols[0];
    column_init(to, o->pass, TYPE_INTEGER, count, false);
    /* unsigned, because intermediate results may wrap */
    for (int k = 0; k < count; k++)
        to->i[k] = (int64_t)((uint64_t)of->first + (uint64_t)(s->at + k) * (uint64_t)of->step);
    o->out.rows = count;
    s->at += count;
    *out = &o->out;
    return 0;
}

const op_class op_series = {.name = "series",
                            .state_bytes = sizeof(series_state),
                            .open = op_open_out,
                            .next = series_next};
