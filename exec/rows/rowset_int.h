/*
 * rowset_int.h - kept rows of fixed column types, in an arena that spills to a temporary file.
 *
 * Cells, texts included, are copied in; batches are read in place, any number of times, until the
 * rowset is freed or cleared. Ownership: the caller of rowset_new frees the rowset.
 */
#ifndef KVASIR_ROWSET_INT_H
#define KVASIR_ROWSET_INT_H

#include "core/exec_ctx_int.h"

/* Makes an empty rowset. Its first work_memory bytes are on the heap, the rest in a temporary
 * file; both are counted in ctx->space. ctx may be NULL. */
rowset *rowset_new(const exec_ctx *ctx, const value_type *types, int ncols);
/* The same, with the memory of an operator. */
rowset *rowset_new_in(mem_budget *memory, const value_type *types, int ncols);
void rowset_free(rowset *r);  /* NULL is fine */
void rowset_clear(rowset *r); /* removes all rows */
/* Appends a batch. ERR_FULL: the temporary file cannot grow. */
int rowset_append(rowset *r, const batch *b, err *e);
/* Appends row `row` of the columns `cols`, one per column of the rowset. Failures are reported by
 * rowset_full_error. */
void rowset_push(rowset *r, const column *cols, int row);
int rowset_full_error(const rowset *r, err *e); /* 0 or ERR_FULL */

int64_t rowset_rows(const rowset *r);
int rowset_batches(const rowset *r);
/* Returns batch i. Every batch but the last has BATCH_ROWS rows. */
const batch *rowset_batch(const rowset *r, int i);
value rowset_get(const rowset *r, int64_t row, int column);
/* Sets cell k of *out to column c of row rows[k], or to NULL if rows[k] is negative. Texts are not
 * copied. */
void rowset_gather(const rowset *r, int c, arena *mem, const int64_t *rows, int count, column *out);

#endif
