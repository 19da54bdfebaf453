/*
 * exec_int.h - operators and what they share: private to exec/.
 *
 *   exec_ctx   one running statement: snapshot, settings, cancel flag, arena, counters
 *   op         one running node of the plan: a parallel tree to the read-only plan_node tree
 *
 * Pull model: op_next gives a batch of 1..BATCH_ROWS rows, or NULL at the end. A batch is valid
 * until its operator is asked again; an operator that keeps rows copies them (rowset). One operator
 * is one file with one `const op_class`.
 */
#ifndef KVASIR_EXEC_INT_H
#define KVASIR_EXEC_INT_H

#include "exec/exec.h"

typedef struct exec_ctx exec_ctx;
typedef struct op op;
typedef struct rowset rowset;

/* The rows that came last to a recursion; another round has other ones. */
typedef struct working_rows {
    const rowset *rows;
    uint64_t round;
} working_rows;

typedef struct op_class {
    const char *name;
    size_t state_bytes;                      /* op.state is this many zero bytes, in op.mem */
    int (*open)(op *o, err *e);              /* children are open already; may be NULL */
    int (*next)(op *o, batch **out, err *e); /* *out = NULL at the end */
    void (*close)(
        op *o); /* releases what is not in op.mem; may be NULL; called once, also after errors */
} op_class;

struct op {
    const op_class *class;
    const plan_node *node;
    exec_ctx *ctx;
    op *left, *right;
    arena *mem;  /* as long as the operator */
    arena *pass; /* reset by the operator before it makes its next batch */
    batch out;   /* the batch it returns, when it builds one */
    void *state;
    plan_actual actual; /* rows and ms are counted by op_next */
    bool asked;         /* by op_next, at least once */
};

/* Makes the operator tree of `node` (a subtree's rows may already be in a rowset:
 * ctx->ready[node->number]). */
int op_build(exec_ctx *ctx, const plan_node *node, op **out, err *e);
int op_next(op *o, batch **out, err *e); /* looks at cancel, counts rows and time */
void op_close(op *o);                    /* the whole subtree; NULL is fine */

#define OPERATOR(id, operator, name) extern const op_class op_##operator;
PLAN_KINDS(OPERATOR)
#undef OPERATOR
extern const op_class op_rowset; /* instead of a node whose rows were read ahead */

/* ---- rows kept ------------------------------------------------------------------------------- */

/* Rows of fixed types, appended batch by batch and kept whole (their cells copied) in a spilling
 * arena of ctx->space; read any number of times. */
rowset *rowset_new(const exec_ctx *ctx, const value_type *types, int ncols);
void rowset_free(rowset *r);
void rowset_clear(rowset *r); /* forgets all rows */
int rowset_append(rowset *r, const batch *b,
                  err *e); /* ERR_FULL when the temporary file cannot grow */
int64_t rowset_rows(const rowset *r);
int rowset_batches(const rowset *r);
const batch *
rowset_batch(const rowset *r,
             int i); /* BATCH_ROWS rows each but the last; lives as long as the rowset */
value rowset_get(const rowset *r, int64_t row, int column);
/* Appends all rows of an operator. */
int rowset_drain(rowset *r, op *from, err *e);

/* ---- expressions ----------------------------------------------------------------------------- */

/* Evaluates x over all rows of `in` into a column allocated in `mem` (which may alias an input
 * column). Errors carry x's place and the row's number within the batch is not known to the caller:
 * messages name the value. AND/OR/CASE/COALESCE evaluate the parts only for rows that need them, so
 * an error in a branch not taken does not arise. */
int eval_column(const expr *x, const batch *in, arena *mem, column *out, err *e);
/* As eval_column, for what reads the rows rows[0..count) alone, in their order: where x could fail,
 * it is not evaluated over the others, and is NULL there. */
int eval_column_at(const expr *x, const batch *in, const int *rows, int count, arena *mem,
                   column *out, err *e);
/* Rows where x is true: fills rows[] (at least in->rows entries) and *count. */
int eval_filter(const expr *x, const batch *in, arena *mem, int *rows, int *count, err *e);
/* A constant expression, or one over `row` (slots index it). */
int eval_value(const expr *x, const value *row, int ncols, arena *mem, value *out, err *e);

/* ---- the statement --------------------------------------------------------------------------- */

typedef struct llm_runtime llm_runtime; /* models and the statement's answers: llm_runtime.c */

struct exec_ctx {
    db *db;
    const settings *settings;
    const sql_stmt *stmt;
    const plan *plan;
    txn *txn;       /* NULL once a snapshot was taken */
    arena *mem;     /* as long as the statement */
    workmem *space; /* counts and bounds what operators keep; NULL: each arena has its own */
    const atomic_bool *cancel;
    const atomic_bool *paused, *watched, *compared; /* stmt_pause, stmt_watch, stmt_compare */
    uint64_t *rows_out;    /* nnodes entries: rows that each node gave so far; NULL: not counted */
    rowset **ready;        /* nnodes entries: rows of subtrees read ahead (snapshot), or NULL */
    rowset **shared;       /* by share number, made on first use */
    working_rows *working; /* by number of the recursion: op_recursive.c */
    bool runs_again;       /* what closes now is a round of a recursion: rows add up */
    bool count_only;       /* EXPLAIN (TOKENS): LLM operators count and pass every row */
    llm_runtime *llm;
    /* Publishes progress for the shell's thread; copies *p. */
    void (*publish)(exec_ctx *ctx, const exec_progress *p);
    void *publish_ctx;
    exec_summary summary;
    /* nnodes entries: filled as operators close, for EXPLAIN ANALYZE and (TOKENS) */
    plan_actual *actual;
};

/* Adds a line to what stmt_notice gives: printf without a newline. The worker's thread. */
void exec_notice(exec_ctx *ctx, const char *format, ...) BASE_PRINTF(2, 3);
/* Tells of a file's cells that were no UTF-8; `file` may be NULL. */
void notice_recoded(exec_ctx *ctx, const char *path, const csv *file);

/* Reads every maximal subtree without LLM nodes of a plan that has some into ctx->ready, so that
 * the transaction can end. */
int snapshot_take(exec_ctx *ctx, err *e);
/* Whether an LLM node is in the subtree; p may be NULL. */
bool snapshot_has_calls(const plan_node *p);

/* ---- models (models.c) ----------------------------------------------------------------------- */

/* Opens, unless it is open with these options, the engine that `name` (n = 0: the setting, else the
 * default model) stands for. ERR_MODEL says how to get a model when there is none. The engine is
 * owned by the db, and open until models_release: each call is a hold of its own. `c`: the catalog
 * to look CREATE MODEL names up in; may be NULL. The worker's thread, as all that follow. */
int models_engine(db *d, const settings *s, const catalog *c, str name, const atomic_bool *cancel,
                  llm_engine **out, err *e);
/* Ends a hold; the db may close the engine from now on. NULL is fine. */
void models_release(db *d, llm_engine *engine);
/* How many engines are open, held or not: for tests. */
int models_open(db *d);
/* Closes all; nobody may hold one. */
void models_close(db *d);
/* Whether CREATE MODEL may name this file: ERR_MODEL where it cannot be read. */
int models_check_file(str source, err *e);
/* Appends the file that calls use which name no model; ERR_MODEL: there is none. */
int models_standard(db *d, const settings *s, const catalog *c, buf *path, err *e);

/* Makes the statement's runtime: ctx->stmt and ctx->txn are set; engines of all calls are opened
 * here. Never NULL; what failed is reported by the LLM operator. */
llm_runtime *llm_runtime_new(exec_ctx *ctx);
void llm_runtime_free(llm_runtime *r);
/* PIN, after its query ran: keeps the blocks it used
 * from being evicted, with a notice of how many. */
int llm_runtime_pin(exec_ctx *ctx, str name, err *e);
/* One of its engines was opened on a record of this machine that does not hold any more (llm.h):
 * what was found stored counts as not found. */
bool llm_runtime_outdated(const llm_runtime *r);
/* Tells once a database that what the model computes is not kept any more, should it be so. */
void llm_runtime_tell(const llm_runtime *r);
/* Reads the examples of all calls while the transaction
 * is open; ctx->plan is set. snapshot_take calls it. */
int llm_runtime_examples(exec_ctx *ctx, err *e);
/* Where the order of LLM filters depends on shares not known, asks about `llm_sample` rows;
 * *learned: plan again. After snapshot_take (llm_sample.c). */
int llm_runtime_sample(exec_ctx *ctx, bool *learned, err *e);

/* Whether a node is a filter that reads LLM answers: there
 * are none while counting, so it lets every row pass. */
bool count_passes_filter(const plan_node *n);

/* Hooks for plan_env: token counting, learned selectivities, field orders on record. */
void llm_plan_hooks(exec_ctx *ctx, plan_env *env);

/* db internals that models.c and the LLM operator need. */
store *db_store(db *d);
struct models **db_models(db *d); /* a slot owned by models.c; starts NULL */
const char *db_model_override(const db *d);
/* Keeps what a statement learned (facts, field orders), in a write transaction of its own, unless
 * the database is read-only, somebody writes, or a transaction is open. No statement fails for want
 * of it: where it cannot be written, as on a full disk, a notice says so. The worker's thread. */
void exec_remember(exec_ctx *ctx, str key, str bytes);
/* Reads what exec_remember kept into `a`; *found = false when there is none. */
int db_recall(db *d, str key, arena *a, str *out, bool *found, err *e);

#endif
