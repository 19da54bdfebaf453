/*
 * join_ranges_int.h - finds the right rows that a left row of a loop join can match, by ranges of
 * right values that the plan derived from the predicate.
 */
#ifndef KVASIR_JOIN_RANGES_INT_H
#define KVASIR_JOIN_RANGES_INT_H

#include "op_int.h"

typedef struct join_ranges join_ranges;

/* Sorts the right input by the values of the plan's ranges. *out is set, and must be freed, also
 * after errors. */
int join_ranges_new(op *o, const rowset *right, join_ranges **out, err *e);
/* Call it before the operator's memory is freed. NULL is fine. */
void join_ranges_free(join_ranges *j);
/* Sets the left batch that the next three functions refer to. */
void join_ranges_bound(join_ranges *j, const batch *in);
/* Returns the number of candidates of left row `left`. Candidates are in no particular order; a
 * right row in several ranges is a candidate once per range. */
int64_t join_ranges_count(const join_ranges *j, int left);
/* Returns the candidate at index `at`: a row number of the right input. */
int64_t join_ranges_row(const join_ranges *j, int left, int64_t at);
/* Returns the *n candidates in the right input's order, each once, valid until the next call.
 * Returns NULL if all *n right rows are to be tried. */
const uint32_t *join_ranges_list(join_ranges *j, int left, int64_t *n);

#endif
