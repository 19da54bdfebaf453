/*
 * op_loop_join.c - join by any predicate, or none: every left row meets every row of the kept right
 * input, or, where one match decides (SEMI, ANTI, MARK), the rows up to it.
 */
#include "join_int.h"

typedef struct loop_state {
    join_pairs pairs;
    int left;       /* row of the left batch at work */
    int64_t right;  /* next row of the right input for it */
    bool unmatched; /* this sweep of fill_until_match found a left row without a match */
} loop_state;

/* Where the first match of a left row decides, the right input is walked once, each of its rows
 * beside all left rows still without a match: what one sweep matched, the next does not ask again.
 */
static void fill_until_match(const op *o, loop_state *s) {
    join_pairs *p = &s->pairs;
    int64_t nright = rowset_rows(p->right);
    if (!o->node->join.predicate)
        nright = BASE_MIN(nright, 1);
    while (s->right < nright && p->count < BATCH_ROWS) {
        if (!p->matched[s->left]) {
            join_add(p, s->left, s->right);
            s->unmatched = true;
        }
        if (++s->left < p->in->rows)
            continue;
        s->left = 0;
        s->right = s->unmatched ? s->right + 1 : nright;
        s->unmatched = false;
    }
    while (s->right >= nright && s->left < p->in->rows && p->count < BATCH_ROWS)
        join_add(p, s->left++, END_OF_LEFT_ROW);
}

/* Fills the candidates as far as they hold. */
static void loop_fill(const op *o, loop_state *s) {
    join_pairs *p = &s->pairs;
    join_kind kind = o->node->join.kind;
    int64_t nright = rowset_rows(p->right);
    if (kind == JOIN_SEMI || kind == JOIN_ANTI || kind == JOIN_MARK) {
        fill_until_match(o, s);
        return;
    }
    while (s->left < p->in->rows && p->count < BATCH_ROWS) {
        if (s->right < nright) {
            join_add(p, s->left, s->right++);
            continue;
        }
        if (join_needs_end(kind))
            join_add(p, s->left, END_OF_LEFT_ROW);
        s->left++;
        s->right = 0;
    }
}

static int loop_next(op *o, batch **out, err *e) {
    loop_state *s = o->state;
    for (;;) {
        if (!s->pairs.in || s->left == s->pairs.in->rows) {
            int status = join_read_left(o, &s->pairs, e);
            if (status || !s->pairs.in)
                return status;
            s->left = 0;
            s->right = 0;
            s->unmatched = false;
        }
        if (o->ctx->cancel && atomic_load_explicit(o->ctx->cancel, memory_order_relaxed))
            return err_set(e, ERR_CANCELLED, "cancelled");
        loop_fill(o, s);
        int status = join_emit(o, &s->pairs, e);
        if (status)
            return status;
        if (o->out.rows) {
            *out = &o->out;
            return 0;
        }
    }
}

static void loop_close(op *o) {
    rowset_free(((loop_state *)o->state)->pairs.own_right);
}

const op_class op_loop_join = {.name = "loop join",
                               .state_bytes = sizeof(loop_state),
                               .open = op_open_out,
                               .next = loop_next,
                               .close = loop_close};
