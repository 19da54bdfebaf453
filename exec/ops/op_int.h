/*
 * op_int.h - the operator protocol, and functions that several operators use.
 *
 * The operators are a tree parallel to the read-only plan_node tree. Pull model: op_next returns a
 * batch of 1..BATCH_ROWS rows, or NULL at the end. A batch is valid until the next op_next on the
 * same operator; operators that keep rows copy them into a rowset. Each operator is a file with one
 * `const op_class`, listed in stmt/op_classes.c.
 */
#ifndef KVASIR_OP_INT_H
#define KVASIR_OP_INT_H

#include "eval/eval_int.h"
#include "rows/rowset_int.h"

struct op_class {
    const char *name;
    size_t state_bytes;                      /* size of op.state, zeroed, in op.mem */
    int (*open)(op *o, err *e);              /* after its inputs were opened; may be NULL */
    int (*next)(op *o, batch **out, err *e); /* *out is NULL before, and after the last batch */
    void (*close)(
        op *o); /* frees what is not in op.mem; called once, also after errors; may be NULL */
    /* All rows, for operators whose rows live as long as the plan; else NULL. */
    int (*rows)(op *o, const rowset **out, err *e);
    bool builds_inputs;  /* the operator builds its inputs itself; op_build does not */
    bool reports;        /* `close` calls op_report itself */
    bool counted_before; /* its rows were counted when the snapshot read them */
};

struct op {
    const op_class *class;
    const plan_node *node;
    exec_ctx *ctx;
    op *left, *right;
    arena *mem;  /* lives as long as the operator */
    arena *pass; /* holds the current batch; the operator resets it before the next */
    batch out;   /* the batch to return, where it is not the input's */
    void *state;
    plan_actual actual; /* rows and milliseconds so far, counted by op_next */
    bool asked;         /* op_next was called at least once */
};

/* ---- build, pull, close ---------------------------------------------------------------------- */

/* Makes and opens the operators of the subtree `node`. Subtrees whose rows the snapshot read
 * (ctx->kept.ready) become op_rowset. On failure *out is NULL. */
int op_build(exec_ctx *ctx, const plan_node *node, op **out, err *e);
/* The next batch, or NULL at the end. Checks the cancel flag; counts rows and time. */
int op_next(op *o, batch **out, err *e);
/* Appends all remaining rows of an operator to `into`. */
int op_drain(op *o, rowset *into, err *e);
/* All rows of an operator that no op_next was called on. Rows that live as long as the plan are not
 * copied; others are copied into *own, which the caller frees. */
int op_rows(op *o, const rowset **rows, rowset **own, err *e);
void op_close(op *o); /* the whole subtree; NULL is fine */
/* Adds the figures of plan node `number` to ctx->counts.actual. */
void op_report(exec_ctx *ctx, int number, const plan_actual *actual);
/* The operator's time without its inputs' time, in milliseconds. */
double op_own_ms(const op *o);
/* Whether LLM calls get answers: EXPLAIN (TOKENS) counts them, and WARM computes only their prompts. */
bool calls_are_answered(const exec_ctx *ctx);
/* Whether a join must read its right input even if the left returns no rows. True where the left
 * calls the model and calls are only counted or warmed: its rows are then unknown. */
bool right_side_must_drain(const exec_ctx *ctx, const plan_node *join);

/* ---- for operators --------------------------------------------------------------------------- */

/* Allocates the columns of o->out; the operator sets their data. */
void op_init_out(op *o);
/* op_class.open of operators that only call op_init_out. */
int op_open_out(op *o, err *e);
/* *out = the rows rows[0..count) of `in`, gathered in o->pass: `in` itself where these are all rows,
 * NULL where there are none. */
void op_choose(op *o, batch *in, const int *rows, int count, batch **out);
/* *out = batch *at of a rowset, or NULL after the last; advances *at. */
void op_next_kept(op *o, const rowset *rows, int *at, batch **out);
/* Evaluates `n` expressions over `in` into out[0..n), in o->pass. */
int op_eval(op *o, expr *const *exprs, int n, const batch *in, column *out, err *e);
/* The same for the values of sort keys. */
int op_eval_keys(op *o, const sort_key *keys, int n, const batch *in, column *out, err *e);
/* Adds the failing row's number to an error message, where the statement inserts or updates. Finds
 * the row by evaluating the expressions row by row; `before` rows came in earlier batches. */
void err_add_row(op *o, expr *const *exprs, int n, const batch *in, int64_t before, err *e);

/* The state of op_rowset, set by op_build: the rows that the snapshot read. */
typedef struct rowset_state {
    const rowset *rows;
    int at;
} rowset_state;
extern const op_class op_rowset;

#endif
