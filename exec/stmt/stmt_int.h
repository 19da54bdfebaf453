/*
 * stmt_int.h - one statement, from submission to its last row: private to exec/stmt/.
 *
 *   caller's thread                        worker's thread
 *   db_submit --job-->                     stmt_execute: bind, plan, run
 *   stmt_next <--batches, up to 16 MB--    stmt_push
 *
 * Threads: members after `lock` are shared and protected by it; `ctx`, `bound` and `notice` belong to
 * the worker until the statement is finished.
 */
#ifndef KVASIR_STMT_INT_H
#define KVASIR_STMT_INT_H

#include "core/db_core_int.h"
#include "core/notice_int.h"
#include "core/progress_board_int.h"
#include "rows/rowset_int.h"

/* A batch copied for the caller; its memory is reused. */
typedef struct result {
    struct result *next;
    batch rows;
    arena *mem;
    size_t bytes;
} result;

struct stmt {
    db *db;
    buf text;
    arena *mem; /* tree, plan, operators; lives as long as the statement */
    workmem *space;
    atomic_bool cancel;
    view_requests view;
    exec_ctx ctx;
    sql_tree tree;          /* parsed `text`; ast NULL: not parsed yet */
    sql_stmt *bound;        /* bound `tree`; NULL: not bound yet */
    const catalog *catalog; /* that `bound` refers to; retained */
    exec_estimate estimate;
    int nshared;    /* entries of ctx.kept.shared */
    bool described; /* ncols, names, types and is_text are set; written under the lock */
    int ncols;
    const char **names;
    value_type *types;
    bool is_text;
    int64_t changes;
    stmt_kind kind;
    double started_s;
    bool drops_rows; /* result rows are dropped: EXPLAIN ANALYZE, WARM */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned events_seen; /* batches that the caller took */
    atomic_uint events;   /* incremented for each batch and at the end; polled by stmt_next */
    result *head, *tail;  /* queue of batches for the caller */
    result *idle;         /* batches whose memory is free for reuse */
    result *current;      /* the batch that the caller reads */
    size_t queued_bytes;
    bool waiting; /* a thread sleeps on `changed` */
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
/* The end of a job; the caller of stmt_next may take the statement from here on. */
void stmt_finish(stmt *s, int status, const err *e);
void stmt_open_ctx(stmt *s);
void stmt_release_ctx(stmt *s);
void stmt_notify(stmt *s); /* wakes the caller; under the lock */
void stmt_drop_results(stmt *s);
/* Frees the results, but keeps one batch's memory for the next statement; under the lock. */
void stmt_recycle_results(stmt *s);
/* Sets the result's columns (names are copied); before the first stmt_push. */
void stmt_describe(stmt *s, int ncols, const str *names, const value_type *types, bool is_text);
/* Copies a batch into the queue; waits while the queue is full. ERR_CANCELLED. */
int stmt_push(stmt *s, const batch *b, err *e);
/* The whole result: one text, in a column of this name; is_text as of stmt_describe. */
int stmt_push_text(stmt *s, str column, str text, bool is_text, err *e);

void stmt_release_plan(stmt *s); /* frees the rows that the last plan kept */
/* Plans x's query: sets ctx->plan and ctx->kept. */
int stmt_plan(stmt *s, const sql_stmt *x, err *e);
/* Runs the planned query. Rows go to `into`; NULL: to the caller. With LLM calls the snapshot is taken
 * first and, outside BEGIN, the transaction ended. */
int stmt_run_plan(stmt *s, rowset *into, err *e);
/* Ends the statement's own transaction, if it has one: commits or aborts it. */
int stmt_end_txn(stmt *s, bool commit, err *e);
int stmt_begin_txn(stmt *s, bool write, err *e);
int stmt_parse(stmt *s, err *e); /* does nothing if it is parsed already */
/* Begins a transaction, if none is open, and binds the statement, unless it is bound to the
 * transaction's catalog already. */
int stmt_prepare(stmt *s, bool write, err *e);

/* The tables that the statement's plan reads, as of the catalog it is bound to; in s->mem. */
const table_def **plan_tables(stmt *s, int *count);
/* ERR_BUSY, naming the table, unless c has it in the same version. */
int version_check(const table_def *seen, const catalog *c, err *e);

/* Evaluates a constant SQL expression as a value of type `type`, as DEFAULT of ALTER TABLE needs. */
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

/* The operators, indexed by plan_kind. */
extern const op_class *const op_classes[];

#endif
