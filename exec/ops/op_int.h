/*
 * op_int.h - the operator protocol, and what several operators share.
 *
 * The operators are a tree parallel to the read-only plan_node tree. Pull model: op_next returns a
 * batch of 1..BATCH_ROWS rows, or NULL at the end. A batch is valid until its operator is asked
 * again; an operator that keeps rows copies them (rowset). One operator is one file with one `const
 * op_class`, which stmt/op_classes.c lists.
 */
#ifndef KVASIR_OP_INT_H
#define KVASIR_OP_INT_H

#include "eval/eval_int.h"
#include "rows/rowset_int.h"

struct op_class {
    const char *name;
    size_t state_bytes;                      /* op.state is this many zero bytes, in op.mem */
    int (*open)(op *o, err *e);              /* the inputs are open already; NULL: nothing to do */
    int (*next)(op *o, batch **out, err *e); /* *out = NULL at the end */
    void (*close)(op *o); /* frees what is not in op.mem; called once, also after errors; or NULL */
    /* All rows, of an operator that keeps them as long as the plan; else NULL. */
    int (*rows)(op *o, const rowset **out, err *e);
    bool builds_inputs;  /* op_build builds none */
    bool reports;        /* `close` reports the figures itself: op_report */
    bool counted_before; /* its rows were counted when they were read ahead */
};

struct op {
    const op_class *class;
    const plan_node *node;
    exec_ctx *ctx;
    op *left, *right;
    arena *mem;  /* lives as long as the operator */
    arena *pass; /* reset by the operator before it makes its next batch */
    batch out;   /* the batch it returns, when it builds one */
    void *state;
    plan_actual actual; /* rows and ms are counted by op_next */
    bool asked;         /* op_next was called at least once */
};

/* ---- build, pull, close ---------------------------------------------------------------------- */

/* Makes and opens the operators of the subtree `node`; rows of subtrees that were read ahead
 * (ctx->kept.ready) are not computed again. On failure *out is NULL. */
int op_build(exec_ctx *ctx, const plan_node *node, op **out, err *e);
/* The next batch, or NULL at the end. Checks for cancelling, counts rows and time. */
int op_next(op *o, batch **out, err *e);
/* Appends all rows of an operator. */
int rowset_drain(rowset *r, op *from, err *e);
/* All rows of an operator, before its first op_next. Rows that the plan keeps are read in place;
 * others are copied into *own, which the caller frees. */
int op_rows(op *o, const rowset **rows, rowset **own, err *e);
void op_close(op *o); /* the whole subtree; NULL is fine */
/* Adds what happened at the line `number` of the plan to ctx->counts.actual. */
void op_report(exec_ctx *ctx, int number, const plan_actual *actual);
/* The time of an operator without that of its inputs. */
double op_own_ms(const op *o);
/* Whether LLM calls get answers: EXPLAIN (TOKENS) counts them, and WARM computes only their prompts. */
bool calls_are_answered(const exec_ctx *ctx);
/* Whether a join reads its right input even though the left has no rows: where calls are counted or
 * warmed and not answered, the rows of a left input with calls are not known. */
bool right_side_must_drain(const exec_ctx *ctx, const plan_node *join);

/* ---- for operators --------------------------------------------------------------------------- */

/* Sets up o->out with the node's columns; the operator points them at data. */
void op_init_out(op *o);
/* `open` of operators that need only op_init_out. */
int op_open_out(op *o, err *e);
/* o->out = rows[0..count) of `in`, gathered in o->pass. */
void op_gather(op *o, const batch *in, const int *rows, int count);
/* Evaluates `n` expressions over `in` into out[0..n), in o->pass. */
int op_eval(op *o, expr *const *exprs, int n, const batch *in, column *out, err *e);
/* Adds the row's number to an error over the batch, when the statement inserts or updates: `before`
 * rows came in earlier batches. Evaluates the expressions again, row by row, to find it. */
void err_add_row(op *o, expr *const *exprs, int n, const batch *in, int64_t before, err *e);

/* The state of op_rowset: set by op_build for a subtree that was read ahead. */
typedef struct rowset_state {
    const rowset *rows;
    int at;
} rowset_state;
extern const op_class op_rowset;

#endif
