/*
 * op_int.h - small helps that several operators share.
 */
#ifndef KVASIR_OP_INT_H
#define KVASIR_OP_INT_H

#include "rows/hash_table_int.h"

/* Sets up o->out with the node's columns (their data is for the operator to point at). */
void op_init_out(op *o);
/* `open` of operators that need no more than this. */
int op_open_out(op *o, err *e);
/* o->out = rows[0..count) of `in`, gathered in o->pass. */
void op_gather(op *o, const batch *in, const int *rows, int count);
/* Evaluates `n` expressions over `in` into out[0..n), in o->pass. */
int op_eval(op *o, expr *const *exprs, int n, const batch *in, column *out, err *e);
/* Prefixes the message of an error over the batch with the number of the row that caused it, when
 * the statement inserts: `before` rows came in earlier batches. The expressions are evaluated
 * again, row by row, to find it. */
void op_name_row(op *o, expr *const *exprs, int n, const batch *in, int64_t before, err *e);

/* Whether the right input is to be read though the left has no rows: where calls are counted or
 * warmed and not answered, a left input with calls says nothing about its rows. */
bool op_right_counts(const op *o);

/* Adds to ctx->actual what a node did, for an operator that runs several: rows, its own time, and
 * what LLM nodes count. */
void op_report(exec_ctx *ctx, const plan_node *node, const plan_actual *actual);

/* The state of PLAN_ROWSET: set by op_build for a subtree that was read ahead. */
typedef struct rowset_state {
    const rowset *rows;
    int at;
} rowset_state;

/* All rows of an operator, before its first was asked for. Those that are kept already, since its
 * subtree was read ahead or is shared, stay where they are, as long as the plan; others are kept in
 * *own, which the caller frees. */
int op_rows(op *o, const rowset **rows, rowset **own, err *e);

/* The rows of a shared node, computed if nobody has yet. */
int op_shared_rows(op *o, const rowset **rows, err *e);

/* A scan that is `keyed`, before its first row is asked for: looks up the rows of these keys
 * (columns as many as its bounds; NULLs match nothing), any number of times; then op_scan_found. */
int op_scan_keys(op *o, const column *keys, int rows, err *e);
void op_scan_found(op *o);
size_t op_scan_found_rows(const op *o); /* so far, those of equal keys again */
/* There are too many keys: it reads the table whole instead. */
int op_scan_whole(op *o, err *e);

#endif
