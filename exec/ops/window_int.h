/*
 * window_int.h - a window partition, the frames of its rows, and aggregates over frames. Only for
 * op_window.c, window_frame.c and window_agg.c.
 *
 *   rows    [n] input row numbers of the partition's rows, in the window's order
 *   group   [n] the number of each row's peer group (rows with equal keys)
 *   first   [ngroups + 1] the position where each peer group begins
 *
 * Window functions refer to a row by its position in the partition: 0 … n - 1.
 */
#ifndef KVASIR_WINDOW_INT_H
#define KVASIR_WINDOW_INT_H

#include "rows/rowset_int.h"

/* A function's argument: its value at position k is cell k * step of `c`. */
typedef struct window_arg {
    column c;
    int step; /* 1: a cell per position; 0: a constant, one cell for all positions */
} window_arg;

typedef struct window_part {
    const exec_ctx *ctx;
    arena *mem;   /* scratch, reset for each partition */
    arena *texts; /* result texts; lives as long as the operator */
    int n;        /* number of rows */
    int ngroups;  /* number of peer groups */
    const uint32_t *rows;
    int *group, *first;
    column key;      /* for RANGE with an offset: the only sort key's value at each position */
    bool descending; /* `key` is sorted in descending order */
    column *out;     /* results of the current function: one column per batch of input rows */
} window_part;

static inline value window_get(const window_arg *a, int at) {
    return column_get(&a->c, at * a->step);
}
static inline bool window_is_null(const window_arg *a, int at) {
    return a->c.type == TYPE_NULL || column_is_null(&a->c, at * a->step);
}
/* Sets the current function's result at position `at`; a text is not copied. */
void window_set(window_part *p, int at, value v);
/* Returns ERR_CANCELLED if the statement was cancelled. Checks only every 1,024th position. */
int window_cancelled(const window_part *p, int at, err *e);

/* The positions of a frame: [start, skip), then `keep` (-1: none), then [resume, end).
 * start <= skip <= resume <= end. */
typedef struct frame_rows {
    int start, skip, keep, resume, end;
} frame_rows;

/* Computes the frames of positions 0, 1, … in order; their bounds never move back. */
typedef struct frame_walk {
    const window_part *p;
    const window_frame *frame;
    /* for RANGE with an offset: */
    int low, high;  /* positions [low, high) are those whose key is not NULL */
    int start, end; /* bounds of the previous frame */
} frame_walk;

frame_walk frame_walk_new(const window_part *p, const window_frame *frame);
frame_rows frame_walk_to(frame_walk *w, int at);
/* Returns the position of a frame's row k, counted from 0; with `back`, counted from the frame's
 * end. Returns -1 if the frame has no row k. */
int frame_nth(const frame_rows *f, int64_t k, bool back);

/* Sets an aggregate's results for all rows of the partition; NULLs in arg are not aggregated. */
int window_aggregate(window_part *p, const rel_window *w, const window_arg *arg, err *e);

#endif
