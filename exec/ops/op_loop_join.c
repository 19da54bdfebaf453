/*
 * op_loop_join.c - nested-loop join, for any predicate or none: pairs every left row with every
 * right row, or with the right rows in the left row's ranges (join_ranges.c) or nearest to it
 * (join_nearest.c). SEMI, ANTI and MARK joins stop at a left row's first match.
 */
#include "join_nearest_int.h"
#include "join_pairs_int.h"
#include "join_ranges_int.h"

/* From this number of left rows on, sorting the right input costs less than pairing every left row
 * with every right row. */
enum { ROWS_WORTH_SORTING = 64 };

typedef struct loop_state {
    join_pairs pairs;
    join_ranges *ranges;   /* NULL: no ranges */
    join_nearest *nearest; /* NULL: every right row may be a candidate */
    int64_t left_rows;     /* number of left rows read so far */
    int left;              /* current row of the left batch */
    int64_t right;         /* index of the next candidate */
    bool started;          /* list and nlist are set for the current left row */
    const uint32_t *list;  /* candidates of the current left row; NULL: all right rows */
    int64_t nlist;
    bool unmatched; /* in its current pass over the left batch, fill_until_match added a pair */
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
    if (o->node->join.nearest && !s->nearest && status == 0)
        status = join_nearest_new(o, s->pairs.right, &s->nearest, e);
    if (s->nearest && status == 0)
        status = join_nearest_search(s->nearest, s->pairs.in, e);
    if (status == 0 && s->ranges)
        join_ranges_bound(s->ranges, s->pairs.in);
    return status;
}

/* For joins that stop at a left row's first match: walks the right input once and pairs each of its
 * rows with all left rows that have no match yet. */
static void fill_until_match(const op *o, loop_state *s) {
    join_pairs *p = &s->pairs;
    int64_t nright = rowset_rows(p->right);
    /* a right row in several ranges is a candidate once per range */
    if (s->ranges)
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
    if (s->nearest)
        s->list = join_nearest_list(s->nearest, s->left, &s->nlist);
    s->started = true;
}

/* Adds candidates until the left batch ends or there are BATCH_ROWS candidates. */
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
    join_nearest_free(s->nearest);
    rowset_free(s->pairs.own_right);
}

const op_class op_loop_join = {.name = "loop join",
                               .state_bytes = sizeof(loop_state),
                               .open = op_open_out,
                               .next = loop_next,
                               .close = loop_close};
