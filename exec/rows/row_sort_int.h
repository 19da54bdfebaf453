/*
 * row_sort_int.h - sorts kept rows by their keys (row_sort.c), and collects the rows to sort: all
 * rows, or the first rows of each group (sort_buffer.c). For ORDER BY, windows and GROUP_CONCAT.
 *
 * Invariant: sorts are stable. Ownership: the caller frees what sort_rows and sort_buffer_take
 * return; all of it is in the `memory` passed.
 */
#ifndef KVASIR_ROW_SORT_INT_H
#define KVASIR_ROW_SORT_INT_H

#include "hash_table_int.h"

/* Sets *out to the row numbers of `keys`, uint32_t, in sorted order; column k of `keys` holds the
 * values of by[k]. ERR_FULL, ERR_IO, ERR_LIMIT, ERR_CANCELLED. */
int sort_rows(const exec_ctx *ctx, mem_budget *memory, const rowset *keys, const sort_key *by,
              int nkeys, mem_array *out, err *e);
/* Compares row i of the columns a with row j of the columns b: negative, 0 or positive. */
int sort_compare(const sort_key *by, int nkeys, const column *a, int i, const column *b, int j);
/* Returns the number of leading keys in which the two rows are equal. */
int sort_equal_keys(const sort_key *by, int nkeys, const column *a, int i, const column *b, int j);

/* Kept keys and their order. */
typedef struct sort_order {
    const rowset *keys; /* column k: the values of by[k] */
    const sort_key *by;
    int nkeys;
} sort_order;

/* A row of kept keys. The prefix is made from the first key and grows in sort order: rows with
 * different prefixes are compared without reading the keys. */
typedef struct sort_item {
    uint64_t prefix;
    uint32_t row;
} sort_item;

uint64_t sort_prefix(const sort_key *by, int nkeys, const column *keys, int row);
/* Whether a comes before b: by the keys, then by row number. */
bool sort_before(const sort_order *s, sort_item a, sort_item b);
bool sort_ties(const sort_order *s, sort_item a, sort_item b); /* whether the keys are equal */

/* ---- the rows to sort (sort_buffer.c) -------------------------------------------------------- */

typedef struct sort_buffer sort_buffer;

/* Which rows a sort_buffer keeps. The arrays must live longer than the sort_buffer. */
typedef struct sort_spec {
    int64_t limit;  /* maximum number of rows to keep of each group; 0: all rows */
    bool with_ties; /* also keep rows with the same keys as the last row within the limit */
    int ncols;      /* number of columns of a row */
    const value_type *types; /* [ncols] types of the columns */
    const sort_key *by;
    int nkeys;
    int nsame;  /* number of leading keys that are equal in all rows of a group */
    int ngroup; /* number of group columns; 0: all rows are one group */
    const value_type *group_types;
} sort_spec;

sort_buffer *sort_buffer_new(mem_budget *memory, const sort_spec *spec);
void sort_buffer_free(sort_buffer *b); /* NULL is fine */
/* Adds rows with their key columns and, if there is a limit, their group columns. ERR_FULL,
 * ERR_LIMIT. */
int sort_buffer_add(sort_buffer *b, const batch *in, const column *keys, const column *group,
                    err *e);
/* Sets *rows and *keys to the kept rows and their keys, in input order. Empties the buffer. */
int sort_buffer_take(sort_buffer *b, rowset **rows, rowset **keys, err *e);

#endif
