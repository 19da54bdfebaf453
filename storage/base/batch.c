/*
 * batch.c - columns and batches.
 *
 * Invariant: a column's null bytes, once allocated, cover its whole capacity.
 */
#include <assert.h>
#include <string.h>

#include "storage/base.h"

static size_t cell_bytes(value_type type) {
    switch (type) {
    case TYPE_REAL:
        return sizeof(double);
    case TYPE_TEXT:
    case TYPE_BLOB:
    case TYPE_VECTOR:
        return sizeof(str);
    case TYPE_NULL:
    case TYPE_BOOLEAN:
    case TYPE_INTEGER:
        break;
    }
    return sizeof(int64_t);
}

void column_init(column *c, arena *mem, value_type type, int capacity, bool with_nulls) {
    c->type = type;
    c->i = arena_zalloc(mem, cell_bytes(type) * (size_t)capacity);
    c->null = with_nulls ? arena_zalloc(mem, (size_t)capacity) : NULL;
}

void batch_init(batch *b, arena *mem, const value_type *types, int ncols, int capacity) {
    b->rows = 0;
    b->ncols = ncols;
    b->mem = mem;
    b->cols = ARENA_ARRAY(mem, column, BASE_MAX(ncols, 1));
    for (int i = 0; i < ncols; i++)
        column_init(&b->cols[i], mem, types[i], capacity, false);
}

value column_get(const column *c, int row) {
    if (c->type == TYPE_NULL || column_is_null(c, row))
        return value_null();
    value v = {.type = c->type, .i = 0};
    switch (c->type) {
    case TYPE_REAL:
        v.r = c->r[row];
        break;
    case TYPE_TEXT:
    case TYPE_BLOB:
    case TYPE_VECTOR:
        v.s = c->s[row];
        break;
    case TYPE_NULL:
    case TYPE_BOOLEAN:
    case TYPE_INTEGER:
        v.i = c->i[row];
        break;
    }
    return v;
}

void column_set(column *c, arena *mem, int capacity, int row, value v) {
    if (v.type == TYPE_NULL) {
        if (!c->null)
            c->null = arena_zalloc(mem, (size_t)capacity);
        c->null[row] = 1;
        if (type_is_bytes(c->type))
            c->s[row] = (str){"", 0};
        else
            c->i[row] = 0;
        return;
    }
    assert(v.type == c->type);
    if (c->null)
        c->null[row] = 0;
    if (c->type == TYPE_REAL)
        c->r[row] = v.r;
    else if (type_is_bytes(c->type))
        c->s[row] = v.s;
    else
        c->i[row] = v.i;
}

void column_gather(column *out, arena *mem, const column *in, const int *rows, int count) {
    out->type = in->type;
    out->null = NULL;
    size_t size = cell_bytes(in->type);
    out->i = arena_alloc(mem, size * (size_t)BASE_MAX(count, 1));
    if (size == sizeof(str))
        for (int k = 0; k < count; k++)
            out->s[k] = in->s[rows[k]];
    else
        for (int k = 0; k < count; k++)
            out->i[k] = in->i[rows[k]]; /* a REAL moves as its 64 bits */
    if (!in->null)
        return;
    out->null = arena_alloc(mem, (size_t)BASE_MAX(count, 1));
    for (int k = 0; k < count; k++)
        out->null[k] = in->null[rows[k]];
}
