/*
 * op_project.c - the SELECT list: evaluates expressions; plain columns are not copied.
 */
#include "op_int.h"

typedef struct project_state {
    int64_t before; /* number of rows in earlier batches */
} project_state;

static int project_next(op *o, batch **out, err *e) {
    project_state *s = o->state;
    batch *in;
    int status = op_next(o->left, &in, e);
    if (status || !in)
        return status;
    arena_reset(o->pass);
    status = op_eval(o, o->node->project.exprs, o->node->ncols, in, o->out.cols, e);
    if (status) {
        err_add_row(o, o->node->project.exprs, o->node->ncols, in, s->before, e);
        return status;
    }
    s->before += in->rows;
    o->out.rows = in->rows;
    *out = &o->out;
    return 0;
}

const op_class op_project = {.name = "project",
                             .state_bytes = sizeof(project_state),
                             .open = op_open_out,
                             .next = project_next};
