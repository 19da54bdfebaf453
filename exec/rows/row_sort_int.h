/*
 * row_sort_int.h - row numbers of kept keys, sorted: what ORDER BY and windows share; and the first
 * rows of each group in an order, of rows that come one by one.
 *
 * Invariant: rows that compare equal stay in the order they have. Ownership: the caller frees the
 * numbers it is given.
 */
#ifndef KVASIR_SORT_INT_H
#define KVASIR_SORT_INT_H

#include "hash_table_int.h"

/* *out: the numbers of all rows of `keys`, whose columns are the values of by[0..nkeys), sorted.
 * ERR_FULL, ERR_LIMIT, ERR_CANCELLED. */
int sort_rows(const exec_ctx *ctx, const rowset *keys, const sort_key *by, int nkeys,
              uint32_t **out, err *e);
/* Row i of the columns a against row j of b: below, equal to or above 0. */
int sort_compare(const sort_key *by, int nkeys, const column *a, int i, const column *b, int j);
/* How many keys, from the first on, are equal in the two. */
int sort_equal_keys(const sort_key *by, int nkeys, const column *a, int i, const column *b, int j);

/* Kept keys and how they are ordered. */
typedef struct sort_order {
    const rowset *keys; /* columns: the values of by[0..nkeys) */
    const sort_key *by;
    int nkeys;
} sort_order;

/* A row of them. Its prefix decides most comparisons without touching the keys: of two that differ
 * the lower comes first, equal ones say nothing. */
typedef struct sort_item {
    uint64_t prefix;
    uint32_t row;
} sort_item;

uint64_t sort_prefix(const sort_key *by, int nkeys, const column *keys, int row);
/* By the keys, then by the rows' numbers. */
bool sort_before(const sort_order *s, sort_item a, sort_item b);
bool sort_ties(const sort_order *s, sort_item a, sort_item b); /* by the keys */

/* ---- the first rows of each group (sort_best.c) ---------------------------------------------- */

typedef struct sort_best sort_best;

/* What is kept of which rows; the arrays outlive the sort_best. */
typedef struct best_spec {
    int64_t limit;  /* > 0: so many rows of each group */
    bool with_ties; /* and those equal to the last of them */
    int ncols;
    const value_type *types; /* of the rows' columns */
    int nkeys, nsame;        /* the first `nsame` keys are equal within a group */
    const sort_key *by;
    int ngroup; /* 0: all rows are one group */
    const value_type *group_types;
} best_spec;

sort_best *sort_best_new(const exec_ctx *ctx, const best_spec *spec);
void sort_best_free(sort_best *b); /* NULL is fine */
/* `keys`: the values of by[0..nkeys), a column each; `group`: those that make a row's group. ERR_FULL,
 * ERR_LIMIT. */
int sort_best_add(sort_best *b, const batch *in, const column *keys, const column *group, err *e);
/* The rows kept and their keys, in input order, which the caller frees; `b` is empty then. */
int sort_best_take(sort_best *b, rowset **rows, rowset **keys, err *e);

#endif
