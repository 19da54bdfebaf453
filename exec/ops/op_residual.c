/*
 * op_residual.c - the ON condition of a LEFT JOIN that contains LLM calls. The input is candidate
 * pairs. All pairs of a left row are adjacent and have the left row's number in column group_slot.
 * Pairs whose predicate is true are returned. A left row without such a pair is returned once, with
 * the right columns NULL.
 *
 * Invariant: every left row returns at least one row. The left row is kept, across batches, until
 * the next left row begins.
 */
#include <string.h>

#include "op_int.h"

typedef struct residual_state {
    rowset *pending; /* the current left row with the right columns NULL; NULL: no current row */
    bool open;       /* there is a current left row */
    bool passed;     /* a pair of the current left row passed */
    int64_t group;   /* number of the current left row */
    bool input_done;
    rowset *result; /* output rows of the last input batch */
    int at;         /* number of batches of `result` returned so far */
} residual_state;

/* Ends the current left row: adds it with NULLs to the result if none of its pairs passed. */
static void finish_group(residual_state *s) {
    if (s->open && !s->passed)
        rowset_push(s->result, rowset_batch(s->pending, 0)->cols, 0);
    rowset_free(s->pending);
    s->pending = NULL;
    s->open = false;
}

static void start_group(op *o, const batch *in, int row, int64_t group) {
    residual_state *s = o->state;
    column *cols = arena_alloc(o->pass, sizeof *cols * (size_t)in->ncols);
    memcpy(cols, in->cols, sizeof *cols * (size_t)in->ncols);
    for (int k = 0; k < o->node->residual.nnull; k++)
        cols[o->node->residual.null_slots[k]].type = TYPE_NULL;
    s->pending = rowset_new_in(&o->memory, o->node->types, in->ncols);
    rowset_push(s->pending, cols, row);
    s->group = group;
    s->open = true;
    s->passed = false;
}

static int residual_batch(op *o, const batch *in, err *e) {
    residual_state *s = o->state;
    column test;
    const column *groups = &in->cols[o->node->residual.group_slot];
    int status = eval_column(o->node->residual.predicate, in, o->pass, &test, e);
    for (int k = 0; k < in->rows && status == 0; k++) {
        if (!s->open || s->group != groups->i[k]) {
            finish_group(s);
            start_group(o, in, k, groups->i[k]);
        }
        if (test.type == TYPE_NULL || column_is_null(&test, k) || test.i[k] == 0)
            continue;
        s->passed = true;
        rowset_push(s->result, in->cols, k);
    }
    return status ? status : rowset_full_error(s->result, e);
}

static int residual_next(op *o, batch **out, err *e) {
    residual_state *s = o->state;
    for (;;) {
        if (s->result)
            op_next_kept(o, s->result, &s->at, out);
        if (*out || s->input_done)
            return 0;
        batch *in;
        int status = op_next(o->left, &in, e);
        if (status)
            return status;
        rowset_free(s->result);
        s->result = rowset_new_in(&o->memory, o->node->types, o->node->ncols);
        s->at = 0;
        s->input_done = !in;
        arena_reset(o->pass);
        if (!in)
            finish_group(s);
        else if ((status = residual_batch(o, in, e)) != 0)
            return status;
    }
}

static void residual_close(op *o) {
    residual_state *s = o->state;
    rowset_free(s->pending);
    rowset_free(s->result);
}

const op_class op_residual = {.name = "residual",
                              .state_bytes = sizeof(residual_state),
                              .open = op_open_out,
                              .next = residual_next,
                              .close = residual_close};
