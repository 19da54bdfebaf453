/*
 * op_shared.c - a CTE that is used more than once: its first reader computes and keeps its rows,
 * and all readers read the kept rows.
 */
#include "op_int.h"

typedef struct shared_state {
    int at; /* number of batches returned so far */
} shared_state;

static int shared_fill(op *o, rowset **kept, err *e) {
    op *from;
    int status = op_build(o->ctx, o->node->left, &from, e);
    if (status)
        return status;
    rowset *r = rowset_new(o->ctx, o->node->types, o->node->ncols);
    status = op_drain(from, r, e);
    op_close(from);
    if (status)
        rowset_free(r);
    else
        *kept = r; /* freed with the plan */
    return status;
}

static int shared_rows(op *o, const rowset **rows, err *e) {
    rowset **kept = &o->ctx->kept.shared[o->node->shared.number];
    int status = *kept ? 0 : shared_fill(o, kept, e);
    *rows = *kept;
    return status;
}

static int shared_next(op *o, batch **out, err *e) {
    shared_state *s = o->state;
    const rowset *rows;
    int status = shared_rows(o, &rows, e);
    if (status == 0)
        op_next_kept(o, rows, &s->at, out);
    return status;
}

const op_class op_shared = {.name = "shared",
                            .state_bytes = sizeof(shared_state),
                            .next = shared_next,
                            .rows = shared_rows,
                            .builds_inputs = true};
