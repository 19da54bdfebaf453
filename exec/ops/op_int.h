/*
 * op_int.h - the interface of operators, and functions that several operators use.
 *
 * The operators are a tree parallel to the read-only plan_node tree. Pull model: op_next returns a
 * batch of 1..BATCH_ROWS rows, or NULL at the end. A batch is valid until the next op_next on the
 * same operator; operators that keep rows copy them into a rowset. Each kind of operator is
 * a `const op_class`, listed in stmt/op_classes.c.
 */
#ifndef KVASIR_OP_INT_H
#define KVASIR_OP_INT_H

#include "eval/eval_int.h"
#include "rows/rowset_int.h"

struct op_class {
    const char *name;
    size_t state_bytes;         /* size of op.state, which is zeroed and in op.mem */
    int (*open)(op *o, err *e); /* called after its inputs are open; may be NULL */
    /* *out is NULL on entry, and stays NULL after the last batch. */
    int (*next)(op *o, batch **out, err *e);
    /* Frees what is not in op.mem. Called once, also after errors; may be NULL. */
    void (*close)(op *o);
    /* Sets *out to all rows. This pointer is NULL if the rows do not live as long as the plan. */
    int (*rows)(op *o, const rowset **out, err *e);
    bool builds_inputs;  /* the operator builds its inputs; op_build does not build them */
    bool reports;        /* `close` calls op_report; op_close does not call it */
    bool counted_before; /* the snapshot counted the rows when it read them */
};

struct op {
    const op_class *class;
    const plan_node *node;
    exec_ctx *ctx;
    op *left, *right;
    mem_budget memory; /* of work_memory: what the operator keeps; freed by class->close */
    arena *mem;        /* lives at least as long as the operator */
    arena *pass;       /* holds the current batch; the operator resets it before the next */
    batch out;         /* the batch that op_next returns, unless it returns the input's batch */
    void *state;
    plan_actual actual; /* rows and milliseconds so far, counted by op_next and op_rows */
    bool asked;         /* op_next or op_rows was called at least once */
};

/* ---- build, pull, close ---------------------------------------------------------------------- */

/* Makes and opens the operators of the subtree `node`. Subtrees whose rows the snapshot read
 * (ctx->kept.ready) become op_rowset. On failure *out is NULL. */
int op_build(exec_ctx *ctx, const plan_node *node, op **out, err *e);
/* Sets *out to the next batch, or NULL at the end. Checks the cancel flag; counts rows and time. */
int op_next(op *o, batch **out, err *e);
/* Appends all remaining rows of an operator to `into`. */
int op_drain(op *o, rowset *into, err *e);
/* Sets *rows to all rows of an operator; called instead of op_next. Rows that live as long as the
 * plan are not copied, and *own is NULL. Other rows are copied into *own, in `memory`, which the
 * caller must free. */
int op_rows(op *o, mem_budget *memory, const rowset **rows, rowset **own, err *e);
void op_close(op *o); /* closes the whole subtree; NULL is fine */
/* Adds `actual` to the figures of plan node `number` in ctx->counts.actual. */
void op_report(exec_ctx *ctx, int number, const plan_actual *actual);
/* Returns the operator's time without its inputs' time, in milliseconds. */
double op_own_ms(const op *o);
/* Whether LLM calls get answers. They do not in EXPLAIN (TOKENS), which only counts prompts, and
 * in WARM, which computes prompts without answers. */
bool calls_are_answered(const exec_ctx *ctx);
/* Whether a join must read its right input even if the left returns no rows. True if the left input
 * calls the model and calls are not answered: which left rows exist is then unknown. */
bool right_side_must_drain(const exec_ctx *ctx, const plan_node *join);

/* ---- for operators --------------------------------------------------------------------------- */

/* Allocates the columns of o->out; the operator sets their data. */
void op_init_out(op *o);
/* The op_class.open of operators that only need op_init_out. */
int op_open_out(op *o, err *e);
/* Sets *out to the rows rows[0..count) of `in`, gathered in o->pass. *out is `in` itself if these
 * are all its rows, and NULL if count is 0. */
void op_choose(op *o, batch *in, const int *rows, int count, batch **out);
/* Sets *out to batch *at of a rowset and advances *at. NULL after the last batch. */
void op_next_kept(op *o, const rowset *rows, int *at, batch **out);
/* Evaluates `n` expressions over `in` into out[0..n), in o->pass. */
int op_eval(op *o, expr *const *exprs, int n, const batch *in, column *out, err *e);
/* Evaluates the values of `n` sort keys in the same way. */
int op_eval_keys(op *o, const sort_key *keys, int n, const batch *in, column *out, err *e);
/* In an INSERT or UPDATE, adds the number of the failing row to the error message. Finds the row by
 * evaluating the expressions row by row. `before`: number of rows in earlier batches. */
void err_add_row(op *o, expr *const *exprs, int n, const batch *in, int64_t before, err *e);

/* The state of op_rowset, set by op_build: the rows that the snapshot read. */
typedef struct rowset_state {
    const rowset *rows;
    int at; /* index of the next batch to return */
} rowset_state;
extern const op_class op_rowset;

#endif
