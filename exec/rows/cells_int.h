/*
 * cells_int.h - tests single cells of columns for NULL, and compares them in the order of their
 * type.
 */
#ifndef KVASIR_CELLS_INT_H
#define KVASIR_CELLS_INT_H

#include "storage/base.h"

static inline size_t cell_bytes(value_type t) {
    return type_is_bytes(t) ? sizeof(str) : sizeof(int64_t);
}

/* Whether a cell is NULL. In a column of type NULL every cell is. */
static inline bool cell_is_null(const column *c, int row) {
    return c->type == TYPE_NULL || column_is_null(c, row);
}

/* Whether any of the row's n cells is NULL. */
static inline bool row_has_null(const column *cols, int n, int row) {
    for (int c = 0; c < n; c++)
        if (cell_is_null(&cols[c], row))
            return true;
    return false;
}

/* Compares two cells of the same type, neither of them NULL: negative, 0 or positive. */
static inline int cell_compare(const column *a, int i, const column *b, int j) {
    if (type_is_bytes(a->type))
        return bytes_compare(a->type, a->s[i], b->s[j]);
    if (a->type == TYPE_REAL)
        return (a->r[i] > b->r[j]) - (a->r[i] < b->r[j]);
    return (a->i[i] > b->i[j]) - (a->i[i] < b->i[j]);
}

#endif
