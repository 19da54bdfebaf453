/*
 * window_frame.c - finds the rows of a window frame: ROWS, GROUPS, RANGE, and EXCLUDE.
 *
 * Invariant: offsets are constants and rows are sorted, so both bounds of the frame only move
 * forward: a walk over a partition of n rows costs O(n), for frames of any size.
 */
#include "window_int.h"

enum { CANCEL_EVERY = 1024 }; /* number of positions between two checks of the cancel flag */

void window_set(window_part *p, int at, value v) {
    uint32_t row = p->rows[at];
    column_set(&p->out[row / BATCH_ROWS], p->texts, BATCH_ROWS, (int)(row % BATCH_ROWS), v);
}

int window_cancelled(const window_part *p, int at, err *e) {
    return at % CANCEL_EVERY ? 0 : check_cancel(p->ctx->cancel, e);
}

/* ---- RANGE with an offset -------------------------------------------------------------------- */

/* Compares the key at k with a bound: the key at `at` plus or minus the bound's offset. Returns -1
 * if k comes before the bound in the window's order, 0 if equal, 1 if after. INTEGER keys are
 * compared in 128 bits, without overflow. */
static int compare_to_bound(const window_part *p, int k, int at, const frame_bound *b) {
    bool minus = (b->kind == BOUND_PRECEDING) != p->descending;
    int c;
    if (p->key.type == TYPE_REAL) {
        double to = minus ? p->key.r[at] - b->offset.r : p->key.r[at] + b->offset.r;
        c = (p->key.r[k] > to) - (p->key.r[k] < to);
    } else {
        __int128 by = b->offset.i, to = p->key.i[at] + (minus ? -by : by);
        c = (p->key.i[k] > to) - (p->key.i[k] < to);
    }
    return p->descending ? -c : c;
}

/* Returns the start of a frame whose start has an offset. If the key at `at` is NULL, that is the
 * first row with a NULL key; else NULL keys that come first are not in the frame. range_end does
 * the same at the other end. */
static int range_start(frame_walk *w, int at) {
    const window_part *p = w->p;
    if (at < w->low || at >= w->high)
        return p->first[p->group[at]];
    w->start = BASE_MAX(w->start, w->low);
    while (w->start < w->high && compare_to_bound(p, w->start, at, &w->frame->start) < 0)
        w->start++;
    return w->start;
}

static int range_end(frame_walk *w, int at) {
    const window_part *p = w->p;
    if (at < w->low || at >= w->high)
        return p->first[p->group[at] + 1];
    w->end = BASE_MAX(w->end, w->low);
    while (w->end < w->high && compare_to_bound(p, w->end, at, &w->frame->end) <= 0)
        w->end++;
    return w->end;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Returns `at` plus or minus the bound's offset, but at least -1 and at most `most`. */
static int moved(int at, const frame_bound *b, int most) {
    int by = (int)BASE_MIN(b->offset.i, (int64_t)INT32_MAX);
    if (b->kind == BOUND_PRECEDING)
        return by > at ? -1 : at - by;
    return by > most - at ? most : at + by;
}

static int frame_start(frame_walk *w, int at) {
    const window_part *p = w->p;
    const window_frame *f = w->frame;
    bool offset = f->start.kind == BOUND_PRECEDING || f->start.kind == BOUND_FOLLOWING;
    if (f->start.kind == BOUND_UNBOUNDED_PRECEDING)
        return 0;
    if (!offset)
        return f->unit == FRAME_ROWS ? at : p->first[p->group[at]];
    if (f->unit == FRAME_RANGE)
        return range_start(w, at);
    if (f->unit == FRAME_ROWS)
        return BASE_MAX(0, moved(at, &f->start, p->n));
    return p->first[BASE_MAX(0, moved(p->group[at], &f->start, p->ngroups))];
}

static int frame_end(frame_walk *w, int at) {
    const window_part *p = w->p;
    const window_frame *f = w->frame;
    bool offset = f->end.kind == BOUND_PRECEDING || f->end.kind == BOUND_FOLLOWING;
    if (f->end.kind == BOUND_UNBOUNDED_FOLLOWING)
        return p->n;
    if (!offset)
        return f->unit == FRAME_ROWS ? at + 1 : p->first[p->group[at] + 1];
    if (f->unit == FRAME_RANGE)
        return range_end(w, at);
    if (f->unit == FRAME_ROWS)
        return BASE_MIN(p->n, moved(at, &f->end, p->n) + 1);
    return p->first[BASE_MIN(p->ngroups, moved(p->group[at], &f->end, p->ngroups) + 1)];
}

/* ---- the walk -------------------------------------------------------------------------------- */

frame_walk frame_walk_new(const window_part *p, const window_frame *frame) {
    frame_walk w = {.p = p, .frame = frame, .high = p->n};
    bool ranges = frame->start.offset.type != TYPE_NULL || frame->end.offset.type != TYPE_NULL;
    if (frame->unit != FRAME_RANGE || !ranges)
        return w;
    while (w.low < w.high && column_is_null(&p->key, w.low))
        w.low++;
    while (w.high > w.low && column_is_null(&p->key, w.high - 1))
        w.high--;
    return w;
}

frame_rows frame_walk_to(frame_walk *w, int at) {
    const window_part *p = w->p;
    int start = frame_start(w, at), end = BASE_MAX(start, frame_end(w, at));
    frame_rows f = {start, end, -1, end, end};
    if (w->frame->exclude == EXCLUDE_NO_OTHERS)
        return f;
    bool alone = w->frame->exclude == EXCLUDE_CURRENT_ROW;
    int from = alone ? at : p->first[p->group[at]],
        to = alone ? at + 1 : p->first[p->group[at] + 1];
    f.skip = BASE_MIN(BASE_MAX(from, start), end);
    f.resume = BASE_MIN(BASE_MAX(to, f.skip), end);
    if (w->frame->exclude == EXCLUDE_TIES && at >= start && at < end)
        f.keep = at;
    return f;
}

int frame_nth(const frame_rows *f, int64_t k, bool back) {
    int before = f->skip - f->start, kept = f->keep >= 0, after = f->end - f->resume;
    if (back)
        k = (int64_t)before + kept + after - 1 - k;
    if (k < 0 || k >= (int64_t)before + kept + after)
        return -1;
    if (k < before)
        return f->start + (int)k;
    if (kept && k == before)
        return f->keep;
    return f->resume + (int)(k - before - kept);
}
