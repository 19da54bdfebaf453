/*
 * exec.h - running statements: the database handle, statements with their results, progress and
 * cancelling.
 *
 *   db    one open database: store, settings, models, the worker thread that alone touches
 *         tables.mdb
 *   stmt  one statement from submission to its last row; results arrive as batches copied out of
 *         the worker
 *
 * Thread rule: db_* and stmt_* are called from one thread (the shell's); stmt_cancel and
 * stmt_progress from any. Ownership: db outlives stmt; a batch from stmt_next lives until the next
 * stmt_next or stmt_free on it.
 */
#ifndef KVASIR_EXEC_H
#define KVASIR_EXEC_H

#include "gpu/llm.h"
#include "planner/planner.h"

typedef struct db db;
typedef struct stmt stmt;

typedef struct db_options {
    const char *path; /* NULL: in memory */
    bool read_only, must_exist;
    /* a path or model name that replaces the standard
     * one (KVASIR_MODEL); NULL: the standard rule */
    const char *model;
} db_options;

/* Opens a database and starts its worker; errors as store_open's. On failure *out is NULL. */
int db_open(const db_options *options, db **out, err *e);
void db_close(db *d); /* NULL is fine; cancels and waits for the worker */

/* Starts the one statement in `text` (copied). Only one statement runs at a time: the one before
 * must be freed first. Errors of parsing, binding and running all come from stmt_next. */
stmt *db_submit(db *d, str text);

/* The same in two steps, so that the statement can be estimated in between: stmt_run starts it. */
stmt *db_prepare(db *d, str text);
void stmt_run(stmt *s);

typedef enum stmt_status {
    STMT_PENDING, /* timed out: still running; look at stmt_progress */
    STMT_ROWS,    /* *out holds rows */
    STMT_DONE,    /* no more; the statement succeeded */
    STMT_ERROR    /* *e says why; it was rolled back */
} stmt_status;

/* Waits up to timeout_ms (-1: for ever) for the next batch. */
stmt_status stmt_next(stmt *s, int timeout_ms, const batch **out, err *e);
void stmt_free(stmt *s); /* cancels what still runs and waits for it */
/* Asks the statement to stop at the next batch or engine
 * pass; it ends in ERR_CANCELLED. Async-signal-safe. */
void stmt_cancel(stmt *s);
/* Holds the statement between two passes of the engine, or lets it go on; the time held counts for
 * no limit, rate or ETA. */
void stmt_pause(stmt *s, bool paused);
/* Whether somebody looks at what costs a little to tell:
 * prefixes, operators, the disk's share of exec_progress. */
void stmt_watch(stmt *s, bool watched);
/* Asks the LLM operator at work to count, once, what other strategies would compute
 * (exec_progress.baselines): the model waits for it as long as EXPLAIN (TOKENS) takes. */
void stmt_compare(stmt *s, bool wanted);

/* Result columns, known from the first status that is
 * not STMT_PENDING; 0 columns: a statement without rows. */
int stmt_column_count(const stmt *s);
const char *stmt_column_name(const stmt *s, int column);
value_type stmt_column_type(const stmt *s, int column);
/* Rows inserted, updated, deleted or copied; -1 for statements that change none. */
int64_t stmt_changes(const stmt *s);
stmt_kind stmt_what(const stmt *s);
/* What the user should know although nothing failed, one line each, '\n' between them; "" for none.
 * Known from STMT_DONE or STMT_ERROR on, until stmt_free. */
const char *stmt_notice(const stmt *s);
/* Whether the result is one text to be shown as it is (EXPLAIN), not a table. */
bool stmt_is_text(const stmt *s);

enum { EXEC_PREFIXES = 16, EXEC_OPERATORS = 24, EXEC_SHARED = 256, EXEC_BASELINES = 4 };

/* A prefix that prompts share: the end of its text, its tokens, the prompts that pass through it,
 * and how many of these are answered. */
typedef struct exec_prefix {
    char text[96];
    int tokens, fanout, done;
} exec_prefix;

/* One operator of the plan, in print order, `depth` below the first. */
typedef struct exec_operator {
    char name[48];
    int depth;
    bool source, model; /* it has no input; it asks the model */
    uint64_t rows_in, rows_out;
} exec_operator;

/* What a strategy computes of the prompts of the LLM operator at work. */
typedef struct exec_baseline {
    char name[24];
    uint64_t computed_tokens;
} exec_baseline;

/* A consistent copy of where a statement is; what the progress line and the view are made of. */
typedef struct exec_progress {
    bool llm_running;
    char phase[32]; /* "reading", "ordering", "starting the model", "model", … */
    /* of the LLM operator at work: distinct inputs of all its calls, as expected and so far */
    uint64_t rows_total, rows_done;
    double seconds;                 /* since the statement started */
    double llm_seconds;             /* in the LLM operator at work */
    llm_figures llm;                /* of the statement so far */
    llm_memory memory;              /* of the engine's session at work */
    uint64_t answers_kept;          /* written to the cache so far */
    int operator_number, operators; /* LLM#1 of 2 */
    char field_order[160];
    char last_answer[80], last_input[80];
    bool paused;
    double held_seconds; /* that the statement was paused so far; not in the times above */
    /* of each of the latest prompts, oldest first: percent of its tokens that were reused */
    uint8_t shared[EXEC_SHARED];
    int nshared;
    /* Only while watched (stmt_watch): */
    exec_prefix prefixes[EXEC_PREFIXES]; /* widest first */
    int nprefixes;
    exec_operator operator_rows[EXEC_OPERATORS];
    int noperators;
    uint64_t disk_bytes, disk_budget_bytes; /* the cache's */
    /* Once asked for (stmt_compare): */
    exec_baseline baselines[EXEC_BASELINES];
    int nbaselines;
} exec_progress;

/* What running a statement would take; all zero where it calls no model. */
typedef struct exec_estimate {
    double cost_ms, distinct_inputs, computed_tokens; /* estimates */
    exec_baseline strategies[EXEC_BASELINES];         /* counted: what each would compute */
    int nstrategies;
} exec_estimate;

/* Starts estimating a statement of db_prepare, which can run afterwards and is not parsed and bound
 * again then. `count`: also counts tokens by strategy, as EXPLAIN (TOKENS) does. stmt_next then ends
 * in STMT_DONE, or in STMT_ERROR where running the statement would fail before its first row, too. */
void stmt_estimate(stmt *s, bool count);
const exec_estimate *stmt_estimated(const stmt *s); /* of the last stmt_estimate */

void stmt_progress(stmt *s, exec_progress *out); /* as of the last batch or engine pass */

/* Totals of a finished statement: what .timer and benches print. */
typedef struct exec_summary {
    /* of it all; of that outside the model, ordering prompts included; ordering; in the model */
    double seconds, sql_seconds, solve_seconds, llm_seconds;
    double held_seconds; /* paused: in `seconds` alone */
    uint64_t rows;
    llm_figures llm;
    llm_memory memory;
    workmem_use space; /* peaks: what operators kept, in memory and in temporary files */
} exec_summary;
void stmt_summary(const stmt *s, exec_summary *out);
/* For what is kept of its rows elsewhere, until stmt_free: so that it counts, too. */
workmem *stmt_workmem(stmt *s);

/* Whether a transaction is open, and whether it can only be rolled back (for the prompt). */
bool db_in_transaction(const db *d);
bool db_transaction_failed(const db *d);
const char *db_path(const db *d);

/* What the database holds, for completion, .tables and .dump. */
typedef struct db_object {
    const char *kind;       /* "table", "view", "index", "model", "system" */
    const char *name, *sql; /* sql: the CREATE statement; "" for system tables */
    const char *table;      /* the table that an index is of; else NULL */
    int ncolumns;
    const char **columns;
    value_type *types;
} db_object;
/* All objects, in `a`, as the open transaction or a new snapshot sees them. */
int db_objects(db *d, arena *a, db_object **out, int *count, err *e);
const settings *db_settings(const db *d); /* as of the last finished statement */

/* These three end in ERR_CANCELLED soon after *cancel is true; NULL: nobody cancels. */

/* Facts about the model in use, opening it if need be; texts are copied into `mem`, since db may
 * close the model. Errors as llm_engine_open's, and ERR_MODEL where none is to be found. */
int db_model_info(db *d, arena *mem, llm_model_info *out, const atomic_bool *cancel, err *e);
/* How many tokens a text is, and which (for `.tokens`). */
int db_tokenize(db *d, str text, buf *out, const atomic_bool *cancel, err *e);
int db_backup(db *d, const char *directory, const atomic_bool *cancel, err *e); /* store_backup's */

/* Gives :name a value, which SQL reads as a TEXT literal; both texts are copied. */
void db_set_variable(db *d, str name, str text);

#endif
