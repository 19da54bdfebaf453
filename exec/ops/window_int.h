/*
 * window_int.h - a partition of rows in a window's order, the frames of its rows, and aggregates
 * over them: private to op_window.c, window_frame.c, window_agg.c.
 *
 *   rows    [n] numbers of the partition's rows in the input, in the window's order
 *   group   [n] which group of equal order each is in      first  [ngroups + 1] where these begin
 *
 * What a row is called here is its position in the partition: 0 … n - 1.
 */
#ifndef KVASIR_WINDOW_INT_H
#define KVASIR_WINDOW_INT_H

#include "rows/rowset_int.h"

/* A function's argument by position; one cell for all where step is 0. */
typedef struct window_arg {
    column c;
    int step;
} window_arg;

typedef struct window_part {
    const exec_ctx *ctx;
    arena *mem;   /* for the partition at hand */
    arena *texts; /* for texts that functions make: as long as the operator */
    int n, ngroups;
    const uint32_t *rows;
    int *group, *first;
    /* the order's only key, by position: for RANGE with an offset */
    column key;
    bool descending;
    column *out; /* of the function at work: a column a batch of input rows */
} window_part;

static inline value window_get(const window_arg *a, int at) {
    return column_get(&a->c, at * a->step);
}
static inline bool window_is_null(const window_arg *a, int at) {
    return a->c.type == TYPE_NULL || column_is_null(&a->c, at * a->step);
}
/* The result of the row at a position; texts are referenced. */
void window_set(window_part *p, int at, value v);
/* Looked at now and then in loops over positions: ERR_CANCELLED. */
int window_cancelled(const window_part *p, int at, err *e);

/* The rows of a frame: [start, skip) and [resume, end), and between them the position `keep`, or
 * none (-1). start <= skip <= resume <= end. */
typedef struct frame_rows {
    int start, skip, keep, resume, end;
} frame_rows;

/* Goes through the frames of positions 0, 1, … in order: their bounds never go back. */
typedef struct frame_walk {
    const window_part *p;
    const window_frame *frame;
    int low, high;  /* where the key is not NULL, for RANGE with an offset */
    int start, end; /* as far as these have come */
} frame_walk;

frame_walk frame_walk_new(const window_part *p, const window_frame *frame);
frame_rows frame_walk_to(frame_walk *w, int at);
/* The k-th row of a frame from 0, and with `back` from its end; -1: it has not so many. */
int frame_nth(const frame_rows *f, int64_t k, bool back);

/* All rows of the partition for one aggregate; arg holds NULL where a row is not taken in. */
int window_aggregate(window_part *p, const rel_window *w, const window_arg *arg, err *e);

#endif
