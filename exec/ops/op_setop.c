/*
 * op_setop.c - UNION [ALL], EXCEPT, INTERSECT. Rows are in order of first appearance, rows of the
 * left input first; NULL equals NULL.
 *
 * EXCEPT and INTERSECT read the whole right input after the left input's first batch. Then EXCEPT
 * returns the distinct left rows that the right input does not contain; INTERSECT returns the
 * distinct left rows that the right input contains.
 */
#include "op_int.h"
#include "rows/hash_table_int.h"

typedef struct setop_state {
    hash_table *seen;  /* distinct rows so far; NULL for UNION ALL */
    hash_table *right; /* EXCEPT, INTERSECT: the rows of the right input */
    bool left_done;
    uint32_t entries[BATCH_ROWS];
    int64_t found[BATCH_ROWS];
    int rows[BATCH_ROWS];
} setop_state;

static int setop_open(op *o, err *e) {
    (void)e;
    op_init_out(o);
    if (o->node->setop.op != SETOP_UNION_ALL)
        ((setop_state *)o->state)->seen =
            hash_table_new(&o->memory, o->node->types, o->node->ncols);
    return 0;
}

static bool needs_right(const op *o) {
    return o->node->setop.op == SETOP_EXCEPT || o->node->setop.op == SETOP_INTERSECT;
}

static int setop_read_right(op *o, err *e) {
    setop_state *s = o->state;
    batch *in;
    int status;
    s->right = hash_table_new(&o->memory, o->node->types, o->node->ncols);
    while ((status = op_next(o->right, &in, e)) == 0 && in)
        if ((status = hash_table_add(s->right, in->cols, in->rows, s->entries, e)) != 0)
            break;
    return status;
}

static int setop_input(op *o, batch **in, err *e) {
    setop_state *s = o->state;
    if (!s->left_done) {
        int status = op_next(o->left, in, e);
        if (status == 0 && needs_right(o) && !s->right &&
            (*in || right_side_must_drain(o->ctx, o->node)))
            status = setop_read_right(o, e);
        if (status || *in)
            return status;
        s->left_done = true;
    }
    *in = NULL;
    return needs_right(o) ? 0 : op_next(o->right, in, e);
}

static int setop_choose(op *o, const batch *in, int *count, err *e) {
    setop_state *s = o->state;
    int status = hash_table_add_new(s->seen, in->cols, in->rows, s->rows, count, e);
    if (status || !s->right)
        return status;
    int fresh = *count;
    *count = 0;
    hash_table_find(s->right, in->cols, in->rows, true, s->found);
    for (int k = 0; k < fresh; k++)
        if ((s->found[s->rows[k]] >= 0) == (o->node->setop.op == SETOP_INTERSECT))
            s->rows[(*count)++] = s->rows[k];
    return 0;
}

static int setop_next(op *o, batch **out, err *e) {
    setop_state *s = o->state;
    batch *in;
    int status = 0, count;
    while (!*out && (status = setop_input(o, &in, e)) == 0 && in) {
        *out = in;
        if (!s->seen)
            return 0;
        if ((status = setop_choose(o, in, &count, e)) != 0)
            return status;
        arena_reset(o->pass);
        op_choose(o, in, s->rows, count, out);
    }
    return status;
}

static void setop_close(op *o) {
    setop_state *s = o->state;
    hash_table_free(s->seen);
    hash_table_free(s->right);
}

const op_class op_setop = {.name = "setop",
                           .state_bytes = sizeof(setop_state),
                           .open = setop_open,
                           .next = setop_next,
                           .close = setop_close};
