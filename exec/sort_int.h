/*
 * sort_int.h - row numbers of kept keys, sorted: what ORDER BY and windows share.
 *
 * Invariant: rows that compare equal stay in the order they have. Ownership: the caller frees the
 * numbers it is given.
 */
#ifndef KVASIR_SORT_INT_H
#define KVASIR_SORT_INT_H

#include "rowset_int.h"

/* *out: the numbers of all rows of `keys`, whose columns are the values of by[0..nkeys), sorted.
 * ERR_FULL, ERR_LIMIT, ERR_CANCELLED. */
int sort_rows(const exec_ctx *ctx, const rowset *keys, const sort_key *by, int nkeys,
              uint32_t **out, err *e);
/* Row i of the columns a against row j of b: below, equal to or above 0. */
int sort_compare(const sort_key *by, int nkeys, const column *a, int i, const column *b, int j);
/* How many keys, from the first on, are equal in the two. */
int sort_equal_keys(const sort_key *by, int nkeys, const column *a, int i, const column *b, int j);

#endif
