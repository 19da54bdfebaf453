/*
 * op_setop.c - UNION [ALL], EXCEPT, INTERSECT. Rows come in order of first appearance, the left
 * input's first; NULL equals NULL.
 *
 * EXCEPT and INTERSECT read the right input whole when the left has a first row; then the left
 * passes through, each distinct row once.
 */
#include "op_int.h"
#include "rows/hash_table_int.h"

typedef struct setop_state {
    hash_table *seen;  /* rows handed out */
    hash_table *right; /* EXCEPT, INTERSECT: all rows of the right input */
    bool left_done;
    uint32_t entries[BATCH_ROWS];
    int64_t found[BATCH_ROWS];
    int rows[BATCH_ROWS];
} setop_state;

static int setop_open(op *o, err *e) {
    (void)e;
    op_init_out(o);
    if (o->node->setop.op != SETOP_UNION_ALL)
        ((setop_state *)o->state)->seen = hash_table_new(o->ctx, o->node->types, o->node->ncols);
    return 0;
}

static bool needs_right(const op *o) {
    return o->node->setop.op == SETOP_EXCEPT || o->node->setop.op == SETOP_INTERSECT;
}

static int setop_read_right(op *o, err *e) {
    setop_state *s = o->state;
    batch *in;
    int status;
    s->right = hash_table_new(o->ctx, o->node->types, o->node->ncols);
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
    uint32_t next = hash_table_count(s->seen);
    int status = hash_table_add(s->seen, in->cols, in->rows, s->entries, e);
    if (status)
        return status;
    if (s->right)
        hash_table_find(s->right, in->cols, in->rows, true, s->found);
    for (int k = 0; k < in->rows; k++) {
        if (s->entries[k] != next)
            continue;
        next++;
        if (!s->right || (s->found[k] >= 0) == (o->node->setop.op == SETOP_INTERSECT))
            s->rows[(*count)++] = k;
    }
    return 0;
}

static int setop_next(op *o, batch **out, err *e) {
    setop_state *s = o->state;
    batch *in;
    int status;
    while ((status = setop_input(o, &in, e)) == 0 && in) {
        int count = 0;
        *out = in;
        if (!s->seen)
            return 0;
        *out = NULL;
        if ((status = setop_choose(o, in, &count, e)) != 0)
            return status;
        if (count == 0)
            continue;
        arena_reset(o->pass);
        op_gather(o, in, s->rows, count);
        *out = &o->out;
        return 0;
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
