/*
 * window_agg.c - computes aggregates over window frames.
 *
 *   frames that begin where the partition does    one cell accumulates rows as the end moves: O(n)
 *   other frames of COUNT, SUM, AVG, MIN, MAX,    a segment tree of cells, fan-out 16: O(log n) per
 *   STDDEV                                        frame, and nothing is ever subtracted
 *   MEDIAN                                        a sorted array of the frame's values
 *   GROUP_CONCAT                                  one text, appended to if frames begin where the
 *                                                 partition does, else rebuilt for each new frame
 *
 * Invariant: a frame's result is what GROUP BY returns for its rows in the window's order, except
 * that REAL sums may be rounded differently, since they are added in another order.
 */
#include <string.h>

#include "agg_int.h"
#include "eval/eval_int.h"
#include "rows/cells_int.h"
#include "window_int.h"

enum { FANOUT = 16, MAX_LEVELS = 9 };

typedef struct window_agg {
    window_part *p;
    const rel_window *w;
    const window_arg *arg;
    /* levels[l][k], l > 0: the cell of the 16^l rows from row k * 16^l on; level 0 is the rows. */
    agg_cell *levels[MAX_LEVELS];
    int nlevels;
} window_agg;

/* ---- cells ----------------------------------------------------------------------------------- */

static bool is_better(const window_agg *a, int row, int than) {
    const column *c = &a->arg->c;
    int order = cell_compare(c, row * a->arg->step, c, than * a->arg->step);
    return a->w->agg == AGG_MIN ? order < 0 : order > 0;
}

/* MIN and MAX: keeps in cell->i the position of the first row with the extreme value. */
static void keep_better(const window_agg *a, agg_cell *cell, int row) {
    if (cell->count == 0 || is_better(a, row, (int)cell->i))
        cell->i = row;
}

static void take_row(const window_agg *a, agg_cell *cell, int row) {
    if (window_is_null(a->arg, row))
        return;
    const column *c = &a->arg->c;
    int at = row * a->arg->step;
    switch (a->w->agg) {
    case AGG_SUM:
    case AGG_AVG:
        if (c->type == TYPE_REAL)
            agg_cell_add_real(cell, c->r[at]);
        else
            cell->sum += c->i[at];
        break;
    case AGG_MIN:
    case AGG_MAX:
        keep_better(a, cell, row);
        break;
    case AGG_STDDEV:
        agg_cell_add_spread(cell, c->r[at]);
        return;
    default:
        break;
    }
    cell->count++;
}

/* Adds `other` to `cell` by Chan, Golub and LeVeque's formula for merging two sums of squared
 * differences. */
static void merge_spread(agg_cell *cell, const agg_cell *other) {
    double n = (double)cell->count, m = (double)other->count,
           apart = other->spread.mean - cell->spread.mean;
    cell->spread.mean += apart * m / (n + m);
    cell->spread.squares += other->spread.squares + apart * apart * n * m / (n + m);
}

static void take_cell(const window_agg *a, agg_cell *cell, const agg_cell *other) {
    if (other->count == 0)
        return;
    switch (a->w->agg) {
    case AGG_SUM:
    case AGG_AVG:
        if (a->arg->c.type == TYPE_REAL) {
            agg_cell_add_real(cell, other->real.sum);
            cell->real.carry += other->real.carry;
        } else {
            cell->sum += other->sum;
        }
        break;
    case AGG_MIN:
    case AGG_MAX:
        keep_better(a, cell, (int)other->i);
        break;
    case AGG_STDDEV:
        merge_spread(cell, other);
        break;
    default:
        break;
    }
    cell->count += other->count;
}

static int set_result(const window_agg *a, const agg_cell *cell, int at, err *e) {
    bool extreme = a->w->agg == AGG_MIN || a->w->agg == AGG_MAX;
    value v = value_null();
    int status = 0;
    if (extreme && cell->count > 0)
        v = window_get(a->arg, (int)cell->i);
    else if (!extreme)
        status = agg_cell_number(a->w->agg, a->arg->c.type, cell, &v, e);
    if (status == 0)
        window_set(a->p, at, v);
    return status;
}

/* ---- one cell -------------------------------------------------------------------------------- */

static bool grows(const window_frame *f) {
    return f->start.kind == BOUND_UNBOUNDED_PRECEDING && f->exclude == EXCLUDE_NO_OTHERS;
}

static int run_growing(window_agg *a, err *e) {
    frame_walk walk = frame_walk_new(a->p, &a->w->frame);
    agg_cell cell = {0};
    int taken = 0, status = 0;
    for (int at = 0; at < a->p->n && !status; at++) {
        frame_rows f = frame_walk_to(&walk, at);
        while (taken < f.end)
            take_row(a, &cell, taken++);
        status = set_result(a, &cell, at, e);
        if (!status)
            status = window_cancelled(a->p, at, e);
    }
    return status;
}

/* ---- a tree of cells ------------------------------------------------------------------------- */

static int build_tree(window_agg *a, err *e) {
    int below = a->p->n, status = 0;
    for (a->nlevels = 1; below > FANOUT && !status; a->nlevels++) {
        int level = a->nlevels, n = (below + FANOUT - 1) / FANOUT;
        agg_cell *cells = arena_zalloc(a->p->mem, sizeof *cells * (size_t)n);
        for (int k = 0; k < below && !(status = window_cancelled(a->p, k, e)); k++)
            if (level == 1)
                take_row(a, &cells[k / FANOUT], k);
            else
                take_cell(a, &cells[k / FANOUT], &a->levels[level - 1][k]);
        a->levels[level] = cells;
        below = n;
    }
    return status;
}

static void take_at(const window_agg *a, agg_cell *cell, int level, int from, int to) {
    for (int k = from; k < to; k++)
        if (level == 0)
            take_row(a, cell, k);
        else
            take_cell(a, cell, &a->levels[level][k]);
}

/* Adds rows [from, to) to the cell. Rows and cells whose parent is wholly in the range are left to
 * the next level, which adds the parent; the others, at both ends, are added on their own level. */
static void take_range(const window_agg *a, agg_cell *cell, int from, int to) {
    for (int level = 0; from < to; level++) {
        int first = (from + FANOUT - 1) / FANOUT, last = to / FANOUT;
        if (level + 1 == a->nlevels || first >= last) {
            take_at(a, cell, level, from, to);
            return;
        }
        take_at(a, cell, level, from, first * FANOUT);
        take_at(a, cell, level, last * FANOUT, to);
        from = first;
        to = last;
    }
}

static bool same_frame(const frame_rows *a, const frame_rows *b) {
    return memcmp(a, b, sizeof *a) == 0; /* frame_rows has only ints, so no padding */
}

static int run_tree(window_agg *a, err *e) {
    frame_walk walk = frame_walk_new(a->p, &a->w->frame);
    frame_rows before = {.start = -1};
    agg_cell cell = {0};
    int status = build_tree(a, e);
    for (int at = 0; at < a->p->n && !status; at++) {
        frame_rows f = frame_walk_to(&walk, at);
        if (!same_frame(&f, &before)) {
            memset(&cell, 0, sizeof cell);
            take_range(a, &cell, f.start, f.skip);
            if (f.keep >= 0)
                take_row(a, &cell, f.keep);
            take_range(a, &cell, f.resume, f.end);
            before = f;
        }
        status = set_result(a, &cell, at, e);
        if (!status)
            status = window_cancelled(a->p, at, e);
    }
    return status;
}

/* ---- MEDIAN ---------------------------------------------------------------------------------- */

typedef struct sorted_values {
    const window_arg *arg;
    double *x;
    int n;
} sorted_values;

/* Returns the index of x, or the index at which to insert x. */
static int place_of(const sorted_values *s, double x) {
    int low = 0, high = s->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (s->x[middle] < x)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void put_rows(sorted_values *s, int from, int to) {
    for (int k = from; k < to; k++) {
        if (window_is_null(s->arg, k))
            continue;
        double x = s->arg->c.r[k * s->arg->step];
        int at = place_of(s, x);
        memmove(s->x + at + 1, s->x + at, sizeof *s->x * (size_t)(s->n++ - at));
        s->x[at] = x;
    }
}

static void drop_rows(sorted_values *s, int from, int to) {
    for (int k = from; k < to; k++) {
        if (window_is_null(s->arg, k))
            continue;
        int at = place_of(s, s->arg->c.r[k * s->arg->step]);
        memmove(s->x + at, s->x + at + 1, sizeof *s->x * (size_t)(--s->n - at));
    }
}

/* Frame bounds only move forward, so values are added at the frame's end and removed at its start.
 * Rows that EXCLUDE leaves out are removed for one result and then added again. */
static int run_median(window_agg *a, err *e) {
    frame_walk walk = frame_walk_new(a->p, &a->w->frame);
    sorted_values s = {.arg = a->arg};
    int start = 0, end = 0, status = 0;
    s.x = arena_alloc(a->p->mem, sizeof *s.x * (size_t)(a->p->n + 1));
    for (int at = 0; at < a->p->n && !status; at++) {
        frame_rows f = frame_walk_to(&walk, at);
        if (f.start >= end) {
            s.n = 0;
            start = end = f.start;
        }
        put_rows(&s, end, f.end);
        drop_rows(&s, start, f.start);
        start = f.start;
        end = BASE_MAX(end, f.end);
        drop_rows(&s, f.skip, f.resume);
        if (f.keep >= 0)
            put_rows(&s, f.keep, f.keep + 1);
        window_set(a->p, at, s.n ? agg_median(s.x, s.n) : value_null());
        if (f.keep >= 0)
            drop_rows(&s, f.keep, f.keep + 1);
        put_rows(&s, f.skip, f.resume);
        status = window_cancelled(a->p, at, e);
    }
    return status;
}

/* ---- GROUP_CONCAT ---------------------------------------------------------------------------- */

static void append_rows(const window_agg *a, str separator, buf *out, bool *any, int from, int to) {
    for (int k = from; k < to; k++) {
        if (window_is_null(a->arg, k))
            continue;
        if (*any)
            buf_append_str(out, separator);
        *any = true;
        buf_append_str(out, a->arg->c.s[k * a->arg->step]);
    }
}

static int run_texts(window_agg *a, err *e) {
    frame_walk walk = frame_walk_new(a->p, &a->w->frame);
    frame_rows before = {.start = -1};
    value v = value_null(), separator;
    buf text = {0};
    bool any = false;
    int status = eval_value(a->w->separator, NULL, 0, a->p->mem, &separator, e);
    str between = status || separator.type == TYPE_NULL ? STR("") : separator.s;
    for (int at = 0; at < a->p->n && !status; at++) {
        frame_rows f = frame_walk_to(&walk, at);
        bool longer = grows(&a->w->frame) && before.start == 0;
        if (!same_frame(&f, &before)) {
            if (!longer) {
                buf_clear(&text);
                any = false;
            }
            append_rows(a, between, &text, &any, longer ? before.end : f.start, f.skip);
            if (f.keep >= 0)
                append_rows(a, between, &text, &any, f.keep, f.keep + 1);
            append_rows(a, between, &text, &any, f.resume, f.end);
            v = any ? value_text(str_copy(a->p->texts, buf_str(&text))) : value_null();
            before = f;
        }
        window_set(a->p, at, v);
        status = window_cancelled(a->p, at, e);
    }
    buf_free(&text);
    return status;
}

int window_aggregate(window_part *p, const rel_window *w, const window_arg *arg, err *e) {
    window_agg a = {.p = p, .w = w, .arg = arg};
    if (w->agg == AGG_MEDIAN)
        return run_median(&a, e);
    if (w->agg == AGG_GROUP_CONCAT)
        return run_texts(&a, e);
    return grows(&w->frame) ? run_growing(&a, e) : run_tree(&a, e);
}
