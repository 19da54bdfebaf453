/*
 * join_pairs_int.h - reading the inputs of a join (join_read.c), and making output rows from
 * candidate pairs (join_pairs.c), for hash and loop joins of every kind.
 *
 * A join lists candidate pairs: a row of the left batch with a row of the kept right input. The
 * pairs of a left row are in succession, except where only the existence of a match matters, and are
 * followed by END_OF_LEFT_ROW if join_needs_end. join_emit applies the predicate and makes output
 * rows in candidate order, so the left input's order is kept.
 */
#ifndef KVASIR_JOIN_PAIRS_INT_H
#define KVASIR_JOIN_PAIRS_INT_H

#include "op_int.h"

enum { END_OF_LEFT_ROW = -1 };

/* An index join that reads its right input by the keys of the left one keeps the left rows. */
typedef struct kept_left {
    rowset *rows;
    int at;     /* batches returned so far */
    batch view; /* the last of them */
    bool ended; /* `rows` is the whole left input */
} kept_left;

typedef struct join_pairs {
    kept_left kept;
    bool looked_up; /* the index join's keys were looked up */
    const rowset *right;
    rowset *own_right;           /* `right`, if the join must free it */
    batch *in;                   /* the current left batch */
    uint8_t matched[BATCH_ROWS]; /* by left row: a pair passed the predicate */
    uint8_t unknown[BATCH_ROWS]; /* by left row: the predicate was NULL for a pair (MARK) */
    /* candidates */
    int count;
    int left[BATCH_ROWS];
    int64_t row[BATCH_ROWS];
    uint8_t passes[BATCH_ROWS], predicate_null[BATCH_ROWS];
    /* output rows, before they are gathered */
    int out_count;
    int out_left[BATCH_ROWS];
    int64_t out_row[BATCH_ROWS]; /* -1: NULLs */
    uint8_t mark[BATCH_ROWS], mark_null[BATCH_ROWS];
} join_pairs;

bool join_needs_end(join_kind kind);
/* Sets p->in to the next left batch; NULL at the end. The right input is read after the first left
 * batch, so that its calls are not asked if there are no left rows. If only the left input has calls
 * and every output row needs a right row, the right input is read first. */
int join_read_left(op *o, join_pairs *p, err *e);
static inline void join_add(join_pairs *p, int left, int64_t row) {
    p->left[p->count] = left;
    p->row[p->count++] = row;
}
/* Makes o->out, perhaps of no rows, from the candidates, in o->pass; removes the candidates. */
int join_emit(op *o, join_pairs *p, err *e);

#endif
