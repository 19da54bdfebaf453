/*
 * db_int.h - the inside of db and stmt: private to db.c and the stmt_*.c files.
 *
 *   caller's thread                      worker
 *   db_submit --job-->                   stmt_execute: bind, plan, run
 *   stmt_next <--batches, at most 16 MB-- stmt_push
 *
 * Who may touch what: everything under `lock` by both; `txn`, `active`, `settings` and a running
 * statement's ctx by the worker alone; between statements (stmt_free has returned) by the caller
 * too, since the hand-over of the next job orders them.
 */
#ifndef KVASIR_DB_INT_H
#define KVASIR_DB_INT_H

#include <pthread.h>
#include <time.h>

#include "rows/rowset_int.h"

/* What a read transaction saw of a table, to tell whether a later write transaction sees the same.
 */
typedef struct table_version {
    char *name;
    uint32_t id;
    uint64_t version;
} table_version;

/* How long it pays to look at a counter before sleeping: learned. */
typedef struct spin {
    double longest_ms;
    unsigned waits;
} spin;

struct db {
    store *store;
    settings settings;
    char *model_override;
    struct models *models;
    str *variables; /* name, value, name, value, …; heap */
    int nvariables;

    txn *txn;    /* the open transaction of BEGIN, begun by its first statement; else NULL */
    txn *active; /* the transaction that the running statement uses, `txn` or its own; else NULL */
    atomic_bool in_transaction, failed; /* between BEGIN and its end; it can only be rolled back */
    table_version *seen;                /* of a BEGIN's read transaction, for its first write */
    int nseen;

    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t work;
    bool sleeping, quit;
    void (*job)(db *d, void *arg);
    void *job_arg;
    spin spin;          /* the worker's */
    spin caller_spin;   /* the caller's */
    atomic_uint posted; /* raised by each job, and by quit */
    stmt *spare;        /* a finished statement whose memory the next one takes */
    bool told_of_cache; /* that what the model computes is not kept any more: the worker's */
};

/* One batch copied out of the worker, in memory that is used again. */
typedef struct result {
    struct result *next;
    batch rows;
    arena *mem;
    size_t bytes;
} result;

struct stmt {
    db *db;
    buf text;
    arena *mem; /* as long as the statement: tree, plan, operators */
    workmem *space;
    atomic_bool cancel, paused, watched, compared;
    exec_ctx ctx; /* the worker's */
    sql_stmt *bound;
    int nshared;    /* entries of ctx.shared */
    bool described; /* ncols, names, types and is_text are final (told under the lock) */
    int ncols;
    const char **names;
    value_type *types;
    bool is_text;
    int64_t changes;
    stmt_kind kind;
    double started_s;
    bool drops_rows; /* rows are dropped, not handed out: EXPLAIN ANALYZE runs another statement's
                        query */

    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned events_seen; /* batches the caller took */
    atomic_uint events;   /* raised by each batch and by the end: what a short wait looks at */
    result *head, *tail, *idle, *current;
    size_t queued_bytes;
    bool waiting; /* somebody sleeps on `changed` */
    bool finished;
    int status;
    err error;
    exec_progress progress;
    exec_summary summary;
    buf notice; /* the worker's until the statement is finished */
};

/* ---- db.c ------------------------------------------------------------------------------------ */

/* Runs fn on the worker and waits for it. */
int db_call(db *d, int (*fn)(db *d, void *arg, err *e), void *arg, err *e);
void short_lock_init(pthread_mutex_t *lock);
/* A condition whose timed waits are until a time of CLOCK_MONOTONIC. */
void steady_cond_init(pthread_cond_t *cond);
/* Looks at the counter for some microseconds, until it is not
 * `seen`; returns early where that has not helped lately. */
void spin_until(spin *s, const atomic_uint *counter, unsigned seen);

/* ---- stmt.c: results and the life of a statement --------------------------------------------- */

stmt *stmt_new(db *d, str text);
void stmt_destroy(stmt *s);
void stmt_execute(db *d, void *arg);
void stmt_tell(stmt *s); /* something changed for the caller; under the lock */
void stmt_drop_results(stmt *s);
/* Names the result's columns (copied); before the first stmt_push. */
void stmt_describe(stmt *s, int ncols, const str *names, const value_type *types, bool is_text);
int stmt_push(stmt *s, const batch *b,
              err *e); /* copies; waits while the queue is full; ERR_CANCELLED */
int stmt_push_text(stmt *s, const char *column, str text, err *e);

void stmt_release_plan(stmt *s); /* what the last plan kept */
/* Plans x's query (ctx->plan, ready, shared). */
int stmt_plan(stmt *s, const sql_stmt *x, err *e);
/* Runs the planned query. With LLM calls outside a transaction the snapshot is taken and the
 * transaction ended first. Rows go to `into`, or to the caller when it is NULL. */
int stmt_run_plan(stmt *s, rowset *into, err *e);
/* Ends the statement's own transaction, if it has one: commits or aborts it. */
int stmt_end_txn(stmt *s, bool commit, err *e);
int stmt_begin_txn(stmt *s, bool write, err *e);
/* Binds the text again in a fresh transaction. */
int stmt_prepare(stmt *s, bool write, bool own_catalog, err *e);

/* What the statement's plan reads, as its transaction saw it, allocated in s->mem. */
table_version *plan_versions(stmt *s, int *count);
/* ERR_BUSY, naming the table, unless c shows the same versions. */
int versions_check(const table_version *seen, int count, const catalog *c, err *e);

/* A constant SQL expression as a value of type `type`: DEFAULTs of ALTER TABLE. */
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

/* ---- returning.c ----------------------------------------------------------------------------- */

typedef struct returned returned;
returned *returned_new(stmt *s, const sql_stmt *x); /* NULL: x has no RETURNING */
void returned_free(returned *r);                    /* NULL is fine */
/* Rows just written: rowid, columns, steps (sql_stmt.returning). */
int returned_batch(returned *r, const batch *written, err *e);
/* INSERT's rows one by one, of a batch of its query: `row` as it is now in the table. */
void returned_begin(returned *r, const table_def *t, const batch *from);
void returned_row(returned *r, const table_def *t, int64_t rowid, const value *row,
                  const batch *from, int at);
int returned_end(returned *r, err *e);
/* Commits, outside BEGIN, and gives the rows to the caller. */
int returned_hand_out(returned *r, err *e);

/* INSERT's inner loop, for COPY and CREATE TABLE AS too. `checks` are x's. */
typedef struct row_sink {
    stmt *s;
    const sql_stmt *x;
    const table_def *table;
    arena *mem; /* reset by each batch */
    int64_t rows, changes;
    bool name_rows;       /* errors name the row */
    const int64_t *lines; /* or, of a file, its path and the batch's line numbers */
    const char *path;
    stats_feed *feed; /* counts the rows, once there are many; or NULL */
    int64_t *rowids;  /* of the batch */
    returned *out;    /* of RETURNING; or NULL */
} row_sink;
void row_sink_init(row_sink *w, stmt *s, const sql_stmt *x, const table_def *table);
int row_sink_end(row_sink *w, err *e); /* after the last row: keeps what was counted */
void row_sink_free(row_sink *w);
int row_sink_write(row_sink *w, const batch *rows, err *e);

/* The SQL text of an object, as CREATE makes it (objects.c). */
void table_sql(const table_def *t, buf *out);
void view_sql(const view_def *v, buf *out);
void model_sql(const model_def *m, buf *out);
/* A name, quoted where it must be. */
void name_sql(str name, buf *out);

/* Deletes the entries that a model's file made (model_files.c). */
int model_files_clear(cache *c, str source, clear_what what, err *e);

/* ---- system tables (op_system.c) ------------------------------------------------------------- */

const rel_column *system_table_columns(void *ctx, str name, int *ncols);
typedef struct system_table_info {
    const char *name;
    int ncols;
    const rel_column *cols;
} system_table_info;
const system_table_info *system_table_at(size_t k); /* NULL behind the last */

#endif
