/*
 * join_nearest_int.h - finds for each left row of a loop join its k nearest right rows, by the
 * distance of two VECTOR columns (top-k of a LATERAL subquery).
 */
#ifndef KVASIR_JOIN_NEAREST_INT_H
#define KVASIR_JOIN_NEAREST_INT_H

#include "op_int.h"

typedef struct join_nearest join_nearest;

/* Prepares the search in the right input, which must stay. *out is set, and must be freed before the
 * operator's memory, also after errors. */
int join_nearest_new(op *o, const rowset *right, join_nearest **out, err *e);
void join_nearest_free(join_nearest *j); /* NULL is fine */
/* Searches for the rows of a left batch, by several threads. */
int join_nearest_search(join_nearest *j, const batch *in, err *e);
/* Returns the *n candidates of left row `left`, in the right input's order, valid until the next
 * search: its k nearest rows, of equally near ones the first, and a row whose distance is an error. */
const uint32_t *join_nearest_list(const join_nearest *j, int left, int64_t *n);

/* Shared with op_nearest.c. Returns the metric of a distance function; the function's result is
 * *sign × vector_distance. */
vector_metric nearest_metric(const expr *distance, double *sign);
/* Returns the number of threads that the statement may use. */
int nearest_threads(const op *o);

#endif
