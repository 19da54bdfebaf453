/*
 * rowset.c - kept rows: an array of batches in an arena that spills to a temporary file.
 *
 *   batches  [0] 2,048 rows  [1] 2,048 rows  …  [n-1] the rest
 *
 * Invariant: row r is in batch r / BATCH_ROWS at r % BATCH_ROWS. The first batch starts small and
 * grows, since most results are small; every later batch is allocated with room for BATCH_ROWS rows
 * and never moves.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cells_int.h"
#include "rowset_int.h"
#include "storage/containers.h"

enum { FIRST_CAPACITY = 64, DEFAULT_MEMORY = 256 << 20 };

struct rowset {
    arena *mem;
    int ncols;
    value_type *types;
    int64_t rows;
    batch **batches;
    int nbatches, batches_cap;
    int capacity; /* maximum number of rows in the last batch */
};

static rowset *make(arena *mem, const value_type *types, int ncols) {
    rowset *r = mem_zalloc(sizeof *r);
    r->mem = mem;
    r->ncols = ncols;
    r->types = mem_alloc(sizeof *types * (size_t)BASE_MAX(ncols, 1));
    if (ncols)
        memcpy(r->types, types, sizeof *types * (size_t)ncols);
    return r;
}

rowset *rowset_new(const exec_ctx *ctx, const value_type *types, int ncols) {
    size_t limit = ctx && ctx->settings ? (size_t)ctx->settings->work_memory : DEFAULT_MEMORY;
    return make(arena_new_spilling(limit, ctx ? ctx->space : NULL), types, ncols);
}

rowset *rowset_new_in(mem_budget *memory, const value_type *types, int ncols) {
    return make(arena_new_sharing(memory), types, ncols);
}

void rowset_free(rowset *r) {
    if (!r)
        return;
    arena_free(r->mem);
    free(r->types);
    free(r->batches);
    free(r);
}

void rowset_clear(rowset *r) {
    arena_reset(r->mem);
    r->rows = 0;
    r->nbatches = r->capacity = 0;
}

static batch *last_batch(const rowset *r) {
    return r->nbatches ? r->batches[r->nbatches - 1] : NULL;
}

/* Returns the last batch, with room for at least one more row. If it must be enlarged or a new
 * batch allocated, makes room for at least `more` rows, limited to BATCH_ROWS in the batch. */
static batch *make_room(rowset *r, int more) {
    batch *b = last_batch(r);
    if (b && b->rows < r->capacity)
        return b;
    if (b && r->capacity < BATCH_ROWS) {
        int wanted = BASE_MIN(BATCH_ROWS, BASE_MAX(r->capacity * 4, b->rows + more));
        for (int c = 0; c < b->ncols; c++) {
            column *col = &b->cols[c], old = *col;
            column_init(col, r->mem, r->types[c], wanted, old.null != NULL);
            memcpy(col->i, old.i, cell_bytes(r->types[c]) * (size_t)b->rows);
            if (old.null)
                memcpy(col->null, old.null, (size_t)b->rows);
        }
        r->capacity = wanted;
        return b;
    }
    r->capacity = r->nbatches ? BATCH_ROWS : BASE_MIN(BATCH_ROWS, BASE_MAX(more, FIRST_CAPACITY));
    b = ARENA_NEW(r->mem, batch);
    batch_init(b, r->mem, r->types, r->ncols, r->capacity);
    ARRAY_PUSH(r->batches, r->nbatches, r->batches_cap, b);
    return b;
}

static void append_nulls(rowset *r, column *to, int at, const column *from, int start, int count) {
    bool all = from->type == TYPE_NULL;
    /* no cell to append is NULL, and to->null is already zero after the last row */
    if (!all && !from->null)
        return;
    if (!to->null)
        to->null = arena_zalloc(r->mem, (size_t)r->capacity);
    if (all)
        memset(to->null + at, 1, (size_t)count);
    else
        memcpy(to->null + at, from->null + start, (size_t)count);
}

static void append_texts(rowset *r, column *to, int at, const column *from, int start, int count) {
    size_t bytes = 0;
    for (int k = 0; k < count; k++)
        if (!column_is_null(from, start + k))
            bytes += from->s[start + k].n;
    char *p = bytes ? arena_alloc(r->mem, bytes) : NULL;
    for (int k = 0; k < count; k++) {
        str s = from->s[start + k];
        if (column_is_null(from, start + k) || s.n == 0) {
            to->s[at + k] = (str){"", 0};
            continue;
        }
        memcpy(p, s.p, s.n);
        to->s[at + k] = (str){p, s.n};
        p += s.n;
    }
}

static void append_cells(rowset *r, batch *b, const column *cols, int start, int count) {
    for (int c = 0; c < r->ncols; c++) {
        column *to = &b->cols[c];
        append_nulls(r, to, b->rows, &cols[c], start, count);
        if (cols[c].type == TYPE_NULL)
            continue;
        assert((cell_bytes(cols[c].type) == cell_bytes(to->type)));
        if (type_is_bytes(to->type))
            append_texts(r, to, b->rows, &cols[c], start, count);
        else
            memcpy(to->i + b->rows, cols[c].i + start, sizeof(int64_t) * (size_t)count);
    }
    b->rows += count;
    r->rows += count;
}

int rowset_full_error(const rowset *r, err *e) {
    return arena_full_error(r->mem, e);
}

int rowset_append(rowset *r, const batch *b, err *e) {
    assert(b->ncols == r->ncols);
    for (int done = 0; done < b->rows;) {
        batch *to = make_room(r, b->rows - done);
        int count = BASE_MIN(b->rows - done, r->capacity - to->rows);
        append_cells(r, to, b->cols, done, count);
        done += count;
    }
    return rowset_full_error(r, e);
}

void rowset_push(rowset *r, const column *cols, int row) {
    append_cells(r, make_room(r, 1), cols, row, 1);
}

int64_t rowset_rows(const rowset *r) {
    return r->rows;
}

int rowset_batches(const rowset *r) {
    return r->nbatches;
}

const batch *rowset_batch(const rowset *r, int i) {
    assert(i >= 0 && i < r->nbatches);
    return r->batches[i];
}

value rowset_get(const rowset *r, int64_t row, int c) {
    assert(row >= 0 && row < r->rows && c < r->ncols);
    return column_get(&r->batches[row / BATCH_ROWS]->cols[c], (int)(row % BATCH_ROWS));
}

void rowset_gather(const rowset *r, int c, arena *mem, const int64_t *rows, int count,
                   column *out) {
    out->type = r->types[c];
    out->null = NULL;
    bool texts = type_is_bytes(out->type);
    out->i = arena_alloc(mem, cell_bytes(out->type) * (size_t)BASE_MAX(count, 1));
    for (int k = 0; k < count; k++) {
        const column *from = rows[k] < 0 ? NULL : &r->batches[rows[k] / BATCH_ROWS]->cols[c];
        int at = (int)(rows[k] % BATCH_ROWS);
        if (!from || column_is_null(from, at)) {
            if (!out->null)
                out->null = arena_zalloc(mem, (size_t)count);
            out->null[k] = 1;
            if (texts)
                out->s[k] = (str){"", 0};
            else
                out->i[k] = 0;
        } else if (texts) {
            out->s[k] = from->s[at];
        } else {
            out->i[k] = from->i[at];
        }
    }
}
