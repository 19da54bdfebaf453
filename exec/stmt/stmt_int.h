/*
 * stmt_int.h - one statement, from submission to its last row: private to exec/stmt/.
 *
 *   caller's thread                        worker's thread
 *   db_submit --job-->                     stmt_execute: bind, plan, run
 *   stmt_next <--batches, up to 16 MB--    stmt_push
 *
 * Threads: `lock` protects the members from `changed` to `error`, except the atomic `events` and
 * the caller's events_seen; `progress` has its own lock. `ctx`, `bound`, `summary` and `notice`
 * belong to the worker until the statement is finished.
 */
#ifndef KVASIR_STMT_INT_H
#define KVASIR_STMT_INT_H

#include "core/db_core_int.h"
#include "core/notice_int.h"
#include "core/progress_board_int.h"
#include "rows/rowset_int.h"

/* A batch copied for the caller; its memory is reused for later batches. */
typedef struct result {
    struct result *next;
    batch rows;
    arena *mem;
    size_t bytes;
} result;

struct stmt {
    db *db;
    buf text;
    arena *mem; /* memory of tree, plan and operators; lives as long as the statement */
    workmem *space;
    bool is_trial;  /* stmt_override was called */
    settings trial; /* the settings of a trial; all zero until the first one */
    atomic_bool cancel;
    view_requests view;
    exec_ctx ctx;
    sql_tree tree;          /* `text` as parsed; tree.ast is NULL until then */
    sql_stmt *bound;        /* `tree` as bound; NULL until then */
    const catalog *catalog; /* the catalog that `bound` refers to; retained */
    exec_estimate estimate;
    int nshared; /* number of entries of ctx.kept.shared */
    int ncols;   /* this and the next three members are written under the lock */
    const char **names;
    value_type *types;
    text_form form;
    int64_t changes;
    stmt_kind kind;
    double started_s;
    bool drops_rows; /* result rows are dropped, as in EXPLAIN ANALYZE and WARM */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned events_seen; /* number of batches that the caller took */
    atomic_uint events;   /* incremented for each batch and at the end; polled by stmt_next */
    result *head, *tail;  /* queue of batches for the caller */
    result *idle;         /* batches whose memory is free for reuse */
    result *current;      /* the batch that the caller reads */
    size_t queued_bytes;
    bool waiting; /* a thread waits or has waited on `changed`; if none has, nobody signals it */
    bool finished;
    int status;
    err error;
    progress_board progress;
    exec_summary summary;
    buf notice; /* warnings, one per line */
};

/* ---- stmt.c: results and the life of a statement --------------------------------------------- */

stmt *stmt_new(db *d, str text);
void stmt_destroy(stmt *s);
void stmt_start(stmt *s, void (*job)(void *s)); /* hands a job to the worker */
/* Ends a job. After this the caller may free the statement. */
void stmt_finish(stmt *s, int status, const err *e);
void stmt_open_ctx(stmt *s);
const settings *stmt_settings(const stmt *s); /* the settings that the statement runs with */
void stmt_release_ctx(stmt *s);
void stmt_notify(stmt *s); /* wakes the caller; called under the lock */
void stmt_drop_results(stmt *s);
/* Frees the results, but keeps one batch's memory for the next statement. Called under the lock. */
void stmt_recycle_results(stmt *s);
/* Sets the result's columns and copies their names. Called before the first stmt_push. */
void stmt_describe(stmt *s, int ncols, const str *names, const value_type *types, text_form form);
/* Waits until the queue has room, then copies a batch into it. Returns ERR_CANCELLED if the
 * statement was cancelled. */
int stmt_push(stmt *s, const batch *b, err *e);
/* Returns one text as the whole result, in a column of this name. */
int stmt_push_text(stmt *s, str column, str text, text_form form, err *e);

void stmt_release_plan(stmt *s); /* frees the rows that the last plan kept */
/* Plans x's query: sets ctx->plan and ctx->kept. */
int stmt_plan(stmt *s, const sql_stmt *x, err *e);
/* Runs the planned query. Its rows go to `into`, or to the caller if `into` is NULL. With LLM
 * calls, first takes the snapshot and, outside BEGIN, ends the transaction. */
int stmt_run_plan(stmt *s, rowset *into, err *e);
/* Commits or aborts the statement's own transaction, if it has one. */
int stmt_end_txn(stmt *s, bool commit, err *e);
int stmt_begin_txn(stmt *s, bool write, err *e);
int stmt_parse(stmt *s, err *e); /* does nothing if the text is already parsed */
/* Begins a transaction if none is open. Binds the statement, unless it is already bound to the
 * transaction's catalog. */
int stmt_prepare(stmt *s, bool write, err *e);

/* Returns the tables that the statement's plan reads or writes, as the bound catalog defines them,
 * in an array in s->mem. */
const table_def **plan_tables(stmt *s, int *count);
/* Checks that `c` has the table `seen` in the same version. If not, returns ERR_BUSY with the
 * table's name. */
int version_check(const table_def *seen, const catalog *c, err *e);

/* Runs a query without LLM calls in the statement's transaction: a bind_env.rows whose context is
 * the stmt. */
int stmt_rows(void *stmt_of, const sql_stmt *query, int64_t most, arena *a, value **out,
              int64_t *count, err *e);
/* Evaluates `sql`, a constant expression or a query of one value, as a value of type `type`. For
 * the DEFAULT and CHECK of ALTER TABLE. */
int stmt_scalar(stmt *s, str sql, value_type type, value *out, err *e);

/* ---- statements by kind ---------------------------------------------------------------------- */

int stmt_select(stmt *s, sql_stmt *x, err *e);
int stmt_dml(stmt *s, sql_stmt *x, err *e);
int stmt_ddl(stmt *s, sql_stmt *x, err *e);
int stmt_create_table_as(stmt *s, sql_stmt *x, err *e);
int stmt_copy_from(stmt *s, sql_stmt *x, err *e);
int stmt_copy_to(stmt *s, sql_stmt *x, err *e);
int stmt_set(stmt *s, sql_stmt *x, err *e);
int stmt_reset(stmt *s, sql_stmt *x, err *e);
int stmt_show(stmt *s, sql_stmt *x, err *e);
int stmt_explain(stmt *s, sql_stmt *x, err *e);
int stmt_analyze(stmt *s, sql_stmt *x, err *e);
int stmt_transaction(stmt *s, sql_stmt *x, err *e);
int stmt_cache(stmt *s, sql_stmt *x, err *e);

/* The operators, by plan_kind. */
extern const op_class *const op_classes[];

#endif
