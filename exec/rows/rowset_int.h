/*
 * rowset_int.h - what operators of exec/ need of kept rows beyond exec_int.h: single rows and
 * gathering.
 */
#ifndef KVASIR_ROWSET_INT_H
#define KVASIR_ROWSET_INT_H

#include "ops/exec_int.h"

/* Appends row `row` of the given columns (as many as the rowset has). A full temporary file shows
 * in rowset_full_error. */
void rowset_push(rowset *r, const column *cols, int row);
int rowset_full_error(const rowset *r, err *e);
/* out[k] = column c of row rows[k]; a negative row gives NULL. Cells are referenced, not copied. */
void rowset_gather(const rowset *r, int c, arena *mem, const int64_t *rows, int count, column *out);

#endif
