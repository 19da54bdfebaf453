/*
 * join_pairs_int.h - reads the inputs of a join (join_read.c) and makes output rows from candidate
 * pairs (join_pairs.c), for hash and loop joins of every kind.
 *
 * A join lists candidate pairs: a row of the left batch with a row of the kept right input. The
 * pairs of a left row are adjacent; only SEMI, ANTI and MARK joins, which ask whether a match
 * exists, may mix the pairs of several left rows. If join_needs_end, END_OF_LEFT_ROW follows the
 * last pair of a left row. join_emit applies the predicate and makes output rows in candidate
 * order, so the left input's order is kept.
 */
#ifndef KVASIR_JOIN_PAIRS_INT_H
#define KVASIR_JOIN_PAIRS_INT_H

#include "op_int.h"

enum { END_OF_LEFT_ROW = -1 };

/* The left rows that an index join keeps if it reads the right input by their keys. */
typedef struct kept_left {
    rowset *rows;
    int at;     /* number of batches of `rows` returned so far */
    batch view; /* the batch of `rows` returned last */
    bool ended; /* `rows` is the whole left input */
} kept_left;

typedef struct join_pairs {
    kept_left kept;
    bool looked_up; /* index join: the keys were looked up */
    const rowset *right;
    rowset *own_right;           /* = right if the join must free it; else NULL */
    batch *in;                   /* the current left batch */
    uint8_t matched[BATCH_ROWS]; /* [left row] whether a pair passed the predicate */
    uint8_t unknown[BATCH_ROWS]; /* [left row] MARK: whether a comparison was NULL */
    /* candidates */
    int count;
    int left[BATCH_ROWS];               /* row of the left batch */
    int64_t row[BATCH_ROWS];            /* row of the right input, or END_OF_LEFT_ROW */
    uint8_t passes[BATCH_ROWS];         /* whether the predicate is true */
    uint8_t predicate_null[BATCH_ROWS]; /* whether the predicate is NULL */
    /* output rows, before they are gathered */
    int out_count;
    int out_left[BATCH_ROWS];      /* row of the left batch */
    int64_t out_row[BATCH_ROWS];   /* row of the right input; -1: none, right columns are NULL */
    uint8_t mark[BATCH_ROWS];      /* MARK: the mark, if it is not NULL */
    uint8_t mark_null[BATCH_ROWS]; /* MARK: whether the mark is NULL */
} join_pairs;

bool join_needs_end(join_kind kind);
/* Sets p->in to the next left batch; NULL at the end. The right input is read after the first left
 * batch, so that its LLM calls do not run if there are no left rows. If only the left input has LLM
 * calls and every output row needs a right row, the right input is read first. */
int join_read_left(op *o, join_pairs *p, err *e);
static inline void join_add(join_pairs *p, int left, int64_t row) {
    p->left[p->count] = left;
    p->row[p->count++] = row;
}
/* Sets o->out to the output rows of the candidates (perhaps none), in o->pass. Removes the
 * candidates. */
int join_emit(op *o, join_pairs *p, err *e);

#endif
