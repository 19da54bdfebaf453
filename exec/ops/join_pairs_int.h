/*
 * join_pairs_int.h - what hash and loop join share: from candidate pairs to output rows, for every kind
 * of join.
 *
 * A join lists candidate pairs (left row of the batch, row of the kept right input), all of one
 * left row in a row (unless only whether there is one matters), and behind them an end mark (right
 * = -1) where the kind needs to know that a left row has no more. join_emit filters them by the
 * predicate and makes output rows in candidate order, so the left input's order is kept.
 */
#ifndef KVASIR_JOIN_INT_H
#define KVASIR_JOIN_INT_H

#include "op_int.h"

enum { END_OF_LEFT_ROW = -1 };

typedef struct join_pairs {
    rowset *left_rows; /* of an index join that reads the right input by the left one's keys: all,
                        * or those before it gave up */
    int left_batch;    /* of left_rows: the next */
    batch left_view;   /* of left_rows: the last one handed out */
    bool looked_up;    /* the keys were */
    bool left_ended;   /* left_rows are all */
    const rowset *right;
    rowset *own_right;           /* where it was not kept before */
    batch *in;                   /* the left batch */
    uint8_t matched[BATCH_ROWS]; /* per left row: a pair passed */
    uint8_t unknown[BATCH_ROWS]; /* per left row: a predicate was NULL (MARK) */
    int count;
    int left[BATCH_ROWS];
    int64_t row[BATCH_ROWS];
    /* The rows to put out, before they are gathered. */
    int out_count;
    int out_left[BATCH_ROWS];
    int64_t out_row[BATCH_ROWS];
    uint8_t mark[BATCH_ROWS], mark_null[BATCH_ROWS];
    uint8_t passes[BATCH_ROWS], predicate_null[BATCH_ROWS];
} join_pairs;

bool join_needs_end(join_kind kind);
/* The next left batch, or p->in = NULL. The first reads the right input whole, mostly not before
 * it: without left rows no kind of join has rows, and the right input's calls, if it has some, are
 * not asked. Where only the left has calls and needs a right row, the right comes first instead. */
int join_read_left(op *o, join_pairs *p, err *e);
static inline void join_add(join_pairs *p, int left, int64_t row) {
    p->left[p->count] = left;
    p->row[p->count++] = row;
}
/* Turns the candidates into o->out (perhaps no rows) and empties them. o->pass holds the output. */
int join_emit(op *o, join_pairs *p, err *e);

/* ---- ranges (join_ranges.c) ------------------------------------------------------------------ */

/* Which rows of the right input can meet a left row, by the plan's ranges. Freed also after errors,
 * before the operator's memory. */
typedef struct join_ranges join_ranges;
int join_ranges_new(op *o, const rowset *right, join_ranges **out, err *e);
void join_ranges_free(join_ranges *j); /* NULL is fine */
/* From now on it is asked about the rows of this batch. */
void join_ranges_bound(join_ranges *j, const batch *in);
/* How many rows left row `left` can meet, and the one at place `at` of them: in no order, those in
 * several ranges again. */
int64_t join_ranges_count(const join_ranges *j, int left);
int64_t join_ranges_row(const join_ranges *j, int left, int64_t at);
/* The same in the input's order, each once; NULL: all *n rows of it. Valid until the next call. */
const uint32_t *join_ranges_list(join_ranges *j, int left, int64_t *n);

#endif
