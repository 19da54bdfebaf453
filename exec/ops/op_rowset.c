/*
 * op_rowset.c - returns the rows of a subtree that the snapshot has read (snapshot.c).
 */
#include "op_int.h"

static int rowset_next(op *o, batch **out, err *e) {
    (void)e;
    rowset_state *s = o->state;
    op_next_kept(o, s->rows, &s->at, out);
    return 0;
}

static int rowset_all(op *o, const rowset **out, err *e) {
    (void)e;
    *out = ((const rowset_state *)o->state)->rows;
    return 0;
}

const op_class op_rowset = {.name = "rowset",
                            .state_bytes = sizeof(rowset_state),
                            .next = rowset_next,
                            .rows = rowset_all,
                            .builds_inputs = true,
                            .counted_before = true};
