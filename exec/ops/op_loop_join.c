/*
 * op_loop_join.c - join by any predicate, or none: every left row meets every row of the kept right
 * input, or those of its ranges (join_ranges.c); where one match decides (SEMI, ANTI, MARK), the
 * rows up to it.
 */
#include "join_pairs_int.h"

/* Sorting the right input costs about as much as so many left rows that meet all of it. */
enum { ROWS_WORTH_SORTING = 64 };

typedef struct loop_state {
    join_pairs pairs;
    join_ranges *ranges; /* NULL: every right row is one to meet */
    int64_t left_rows;   /* so far */
    int left;            /* row of the left batch at work */
    int64_t right;       /* how many rows of the right input it has met */
    bool started;        /* list and nlist are those of the left row at work */
    const uint32_t *list;
    int64_t nlist;
    bool unmatched; /* this sweep of fill_until_match found a left row without a match */
} loop_state;

static int read_left(op *o, loop_state *s, err *e) {
    int status = join_read_left(o, &s->pairs, e);
    if (status || !s->pairs.in)
        return status;
    s->left = 0;
    s->right = 0;
    s->started = s->unmatched = false;
    s->left_rows += s->pairs.in->rows;
    if (o->node->join.nranges && !s->ranges && s->left_rows >= ROWS_WORTH_SORTING)
        status = join_ranges_new(o, s->pairs.right, &s->ranges, e);
    if (status == 0 && s->ranges)
        join_ranges_bound(s->ranges, s->pairs.in);
    return status;
}

/* Where the first match of a left row decides, the right input is walked once, each of its rows
 * beside all left rows still without a match: what one sweep matched, the next does not ask again.
 */
static void fill_until_match(const op *o, loop_state *s) {
    join_pairs *p = &s->pairs;
    int64_t nright = rowset_rows(p->right);
    if (s->ranges) /* which list a row once a range */
        nright *= o->node->join.nranges;
    if (!o->node->join.predicate)
        nright = BASE_MIN(nright, 1);
    while (s->right < nright && p->count < BATCH_ROWS) {
        if (!p->matched[s->left] &&
            (!s->ranges || s->right < join_ranges_count(s->ranges, s->left))) {
            join_add(p, s->left,
                     s->ranges ? join_ranges_row(s->ranges, s->left, s->right) : s->right);
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

static void start_row(loop_state *s) {
    s->list = NULL;
    s->nlist = rowset_rows(s->pairs.right);
    if (s->ranges)
        s->list = join_ranges_list(s->ranges, s->left, &s->nlist);
    s->started = true;
}

/* Fills the candidates as far as they hold. */
static void loop_fill(const op *o, loop_state *s) {
    join_pairs *p = &s->pairs;
    join_kind kind = o->node->join.kind;
    if (kind == JOIN_SEMI || kind == JOIN_ANTI || kind == JOIN_MARK) {
        fill_until_match(o, s);
        return;
    }
    while (s->left < p->in->rows && p->count < BATCH_ROWS) {
        if (!s->started)
            start_row(s);
        if (s->right < s->nlist) {
            join_add(p, s->left, s->list ? s->list[s->right] : s->right);
            s->right++;
            continue;
        }
        if (join_needs_end(kind))
            join_add(p, s->left, END_OF_LEFT_ROW);
        s->left++;
        s->right = 0;
        s->started = false;
    }
}

static int loop_next(op *o, batch **out, err *e) {
    loop_state *s = o->state;
    for (;;) {
        if (!s->pairs.in || s->left == s->pairs.in->rows) {
            int status = read_left(o, s, e);
            if (status || !s->pairs.in)
                return status;
        }
        if (check_cancel(o->ctx->cancel, e))
            return ERR_CANCELLED;
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
    loop_state *s = o->state;
    join_ranges_free(s->ranges);
    rowset_free(s->pairs.own_right);
}

const op_class op_loop_join = {.name = "loop join",
                               .state_bytes = sizeof(loop_state),
                               .open = op_open_out,
                               .next = loop_next,
                               .close = loop_close};
