/*
 * row_sort_int.h - sorting kept rows by their keys (row_sort.c), and collecting the rows to sort,
 * all of them or the first of each group (sort_buffer.c): shared by ORDER BY, windows and
 * GROUP_CONCAT.
 *
 * Invariant: sorts are stable. Ownership: the caller frees what sort_rows and sort_buffer_take
 * return.
 */
#ifndef KVASIR_ROW_SORT_INT_H
#define KVASIR_ROW_SORT_INT_H

#include "hash_table_int.h"

/* *out = the row numbers of `keys` in sorted order; column k of `keys` holds the values of by[k].
 * ERR_FULL, ERR_LIMIT, ERR_CANCELLED. */
int sort_rows(const exec_ctx *ctx, const rowset *keys, const sort_key *by, int nkeys,
              uint32_t **out, err *e);
/* Compares row i of the columns a with row j of b: negative, 0 or positive. */
int sort_compare(const sort_key *by, int nkeys, const column *a, int i, const column *b, int j);
/* The number of leading keys in which the two rows are equal. */
int sort_equal_keys(const sort_key *by, int nkeys, const column *a, int i, const column *b, int j);

/* Kept keys and their order. */
typedef struct sort_order {
    const rowset *keys; /* column k: the values of by[k] */
    const sort_key *by;
    int nkeys;
} sort_order;

/* A row of them. The prefix is the first key as an order-preserving number: different prefixes
 * decide a comparison without reading the keys, equal ones do not. */
typedef struct sort_item {
    uint64_t prefix;
    uint32_t row;
} sort_item;

uint64_t sort_prefix(const sort_key *by, int nkeys, const column *keys, int row);
/* Whether a comes before b: by the keys, then by row number. */
bool sort_before(const sort_order *s, sort_item a, sort_item b);
bool sort_ties(const sort_order *s, sort_item a, sort_item b); /* their keys are equal */

/* ---- the rows to sort (sort_buffer.c) -------------------------------------------------------- */

typedef struct sort_buffer sort_buffer;

/* Which rows are kept; the arrays outlive the sort_buffer. */
typedef struct sort_spec {
    int64_t limit;           /* rows to keep of each group; 0: all rows */
    bool with_ties;          /* also keep rows that equal the last one within the limit */
    int ncols;               /* columns of the rows */
    const value_type *types; /* of these columns */
    const sort_key *by;
    int nkeys;
    int nsame;  /* leading keys that are equal within a group */
    int ngroup; /* columns that make a row's group; 0: all rows are one group */
    const value_type *group_types;
} sort_spec;

sort_buffer *sort_buffer_new(const exec_ctx *ctx, const sort_spec *spec);
void sort_buffer_free(sort_buffer *b); /* NULL is fine */
/* Adds rows with their key columns and, if there is a limit, their group columns. ERR_FULL,
 * ERR_LIMIT. */
int sort_buffer_add(sort_buffer *b, const batch *in, const column *keys, const column *group,
                    err *e);
/* The kept rows and their keys, in input order; empties the buffer. */
int sort_buffer_take(sort_buffer *b, rowset **rows, rowset **keys, err *e);

#endif
