/*
 * join_ranges_int.h - the right rows that a left row of a loop join can match, where the plan
 * derived ranges for the right input's values from the predicate.
 */
#ifndef KVASIR_JOIN_RANGES_INT_H
#define KVASIR_JOIN_RANGES_INT_H

#include "op_int.h"

typedef struct join_ranges join_ranges;

/* Sorts the right input by the values of the plan's ranges. *out is set, and must be freed, also
 * after errors. */
int join_ranges_new(op *o, const rowset *right, join_ranges **out, err *e);
void join_ranges_free(join_ranges *j); /* before the operator's memory; NULL is fine */
/* Sets the left batch that the next three functions refer to. */
void join_ranges_bound(join_ranges *j, const batch *in);
/* The number of candidates of left row `left`, and the one at index `at`, in no order. A row that is
 * in several ranges is returned for each of them. */
int64_t join_ranges_count(const join_ranges *j, int left);
int64_t join_ranges_row(const join_ranges *j, int left, int64_t at);
/* The candidates in the right input's order, each once; NULL: all *n right rows. Valid until the next
 * call. */
const uint32_t *join_ranges_list(join_ranges *j, int left, int64_t *n);

#endif
