/*
 * eval_int.h - evaluating bound expressions over the rows of a batch.
 *
 * Errors carry the expression's source position but no row number, so messages quote the offending
 * value. AND, OR, CASE and COALESCE evaluate an operand only for the rows that need it: an error in
 * a branch that no row takes does not arise.
 */
#ifndef KVASIR_EVAL_INT_H
#define KVASIR_EVAL_INT_H

#include "exec/exec.h"

/* Evaluates x over all rows of `in`. *out is allocated in `mem`, or is a column of `in`. */
int eval_column(const expr *x, const batch *in, arena *mem, column *out, err *e);
/* As eval_column, for a caller that reads only rows[0..count), ascending: an x that can fail is
 * evaluated for these rows only, and is NULL in the others. */
int eval_column_at(const expr *x, const batch *in, const int *rows, int count, arena *mem,
                   column *out, err *e);
/* rows[0..*count) = the rows where x is true; rows[] has room for in->rows. */
int eval_filter(const expr *x, const batch *in, arena *mem, int *rows, int *count, err *e);
/* The value of x over one row, whose cells are row[0..ncols) by slot; for a constant, ncols is 0. */
int eval_value(const expr *x, const value *row, int ncols, arena *mem, value *out, err *e);

#endif
