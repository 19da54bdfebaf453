/*
 * eval_int.h - evaluates bound expressions over the rows of a batch.
 *
 * Errors carry the expression's source position but no row number, so messages quote the offending
 * value. AND, OR, CASE and COALESCE evaluate an operand only for the rows that need it: a branch
 * that no row takes causes no error.
 */
#ifndef KVASIR_EVAL_INT_H
#define KVASIR_EVAL_INT_H

#include "exec/exec.h"

/* Evaluates x over all rows of `in`. *out is allocated in `mem`, or is a column of `in`. */
int eval_column(const expr *x, const batch *in, arena *mem, column *out, err *e);
/* As eval_column, for a caller that reads only rows[0..count), ascending: if x can fail, it is
 * evaluated for these rows only, and all other rows are NULL. */
int eval_column_at(const expr *x, const batch *in, const int *rows, int count, arena *mem,
                   column *out, err *e);
/* Sets rows[0..*count) to the rows where x is true; rows[] has room for in->rows. */
int eval_filter(const expr *x, const batch *in, arena *mem, int *rows, int *count, err *e);
/* Sets *out to the value of x over one row: row[s] is the value of slot s, and ncols is the number
 * of slots. For a constant x, ncols is 0. */
int eval_value(const expr *x, const value *row, int ncols, arena *mem, value *out, err *e);

#endif
