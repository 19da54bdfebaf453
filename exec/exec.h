/*
 * exec.h - running statements: the database handle, statements and their results, progress,
 * cancelling.
 *
 *   db    an open database: store, settings, models, and the worker thread; only that thread uses
 *         tables.mdb
 *   stmt  one statement, from submission to its last row; its results are batches copied from the
 *         worker
 *
 * Threads: db_* and stmt_* are called on one thread (the shell's), except stmt_cancel and
 * stmt_progress, which may be called on any thread. Ownership: db outlives stmt; a batch from
 * stmt_next lives until the next stmt_next or stmt_free of the same statement.
 */
#ifndef KVASIR_EXEC_H
#define KVASIR_EXEC_H

#include "gpu/llm.h"
#include "planner/planner.h"

typedef struct db db;
typedef struct stmt stmt;

typedef struct db_options {
    const char *path; /* NULL: in memory */
    bool read_only;
    bool must_exist;   /* fail if there is no database at `path`; false: create it */
    const char *model; /* path or name of the default model (--model, KVASIR_MODEL); or NULL */
} db_options;

/* Opens a database and starts its worker. Errors are those of store_open. On failure *out is
 * NULL. */
int db_open(const db_options *options, db **out, err *e);
void db_close(db *d); /* NULL is fine; cancels and waits for the worker */

/* Endpoints of models at URLs that the user allows: lines "origin" or "origin,key". A statement that
 * needs others fails with ERR_MODEL. Called while no statement runs. */
void db_allow_endpoints(db *d, const char *pairs);
/* The lines that the last model lacked since db_set_typed; "": none. */
const char *db_refused_endpoints(const db *d);
/* Adds lines to ~/.config/kvasir/endpoints, which all processes of the user read. ERR_IO. */
int db_keep_endpoints(const char *pairs, err *e);
/* Whether the next statement is typed by a person: a CREATE MODEL then allows its endpoints. */
void db_set_typed(db *d, bool typed);

/* Starts the statement in `text` (copied). Only one statement exists at a time: free the previous
 * one first. Errors of parsing, binding and running are returned by stmt_next. */
stmt *db_submit(db *d, str text);

/* db_submit in two steps, so that the statement can be estimated before stmt_run starts it. */
stmt *db_prepare(db *d, str text);
void stmt_run(stmt *s);
/* After db_prepare and before stmt_run: changes a setting for this statement alone, as SET would.
 * Such a statement is a trial: it uses what is on record and records nothing, neither itself in the
 * history nor the field orders, priors and selectivities of its calls. Errors are those of SET. */
int stmt_override(stmt *s, const char *setting, const char *text, err *e);

typedef enum stmt_status {
    STMT_PENDING, /* timed out: still running (see stmt_progress) */
    STMT_ROWS,    /* *out holds rows */
    STMT_DONE,    /* no more rows; the statement succeeded */
    STMT_ERROR    /* the statement failed with *e and was rolled back */
} stmt_status;

/* Waits at most timeout_ms (-1: without limit) for the next batch. */
stmt_status stmt_next(stmt *s, int timeout_ms, const batch **out, err *e);
void stmt_free(stmt *s); /* cancels the statement if it still runs, and waits for its end */
/* Asks the statement to stop at the next batch or engine pass. It then fails with ERR_CANCELLED.
 * Async-signal-safe. */
void stmt_cancel(stmt *s);
/* Pauses the statement between two passes of the engine, or resumes it. Paused time counts towards
 * no limit, rate or ETA. */
void stmt_pause(stmt *s, bool paused);
/* Sets whether the members of exec_progress that take time to collect are filled while the statement
 * runs: branches, operators, disk use. They are always filled when an LLM operator ends. */
void stmt_watch(stmt *s, bool watched);
/* Makes the running LLM operator count, once, the tokens that other strategies would compute
 * (exec_progress.baselines). Meanwhile the model is idle; the count takes as long as EXPLAIN
 * (TOKENS). */
void stmt_compare(stmt *s, bool wanted);

/* The result's columns. Valid once stmt_next has returned a status other than STMT_PENDING. 0
 * columns: the statement returns no rows. */
int stmt_column_count(const stmt *s);
const char *stmt_column_name(const stmt *s, int column);
value_type stmt_column_type(const stmt *s, int column);
/* Rows inserted, updated, deleted or copied; -1 for statements that change none. */
int64_t stmt_changes(const stmt *s);
stmt_kind stmt_what(const stmt *s);
/* Warnings, separated by '\n'; "" for none. Valid from STMT_DONE or STMT_ERROR until stmt_free. */
const char *stmt_notice(const stmt *s);
/* A result that is one text, to be shown without a table (EXPLAIN). */
typedef enum text_form {
    TEXT_NONE,    /* the result is rows */
    TEXT_PLAN,    /* lines with branches on the left, wrapped; or a JSON object */
    TEXT_PROMPTS, /* EXPLAIN (PROMPT): lines as llm/llm_show.c says */
    TEXT_TREE     /* EXPLAIN (TREE): lines that are cut at the screen's width */
} text_form;
text_form stmt_text_form(const stmt *s);
static inline bool stmt_is_text(const stmt *s) {
    return stmt_text_form(s) != TEXT_NONE;
}

enum {
    EXEC_BRANCHES = 64,
    EXEC_OPERATORS = 24,
    EXEC_SHARED = 256,
    EXEC_BASELINES = 5,
    EXEC_PLACES = 16
};

/* An endpoint of a model at servers (llm_place). */
typedef struct exec_place {
    char url[80], state[8];
    int in_flight, window;
    uint64_t answered, refused, prompt_tokens, cached_tokens;
    double tokens_s, median_ms, slow_ms;
} exec_place;

/* A branch of the prefix tree: tokens that two or more prompts share (llm_branch). */
typedef struct exec_branch {
    char text[240]; /* the beginning of the branch's text, on one line */
    int depth;      /* number of branches above it */
    int tokens;     /* number of its tokens, without the branches above */
    int prompts;    /* number of prompts that begin with it */
    int done;       /* number of these prompts that are answered */
} exec_branch;

/* An operator of the plan. */
typedef struct exec_operator {
    char name[48];
    int depth;   /* levels below the root */
    bool source; /* the operator has no input */
    bool model;  /* the operator calls the model */
    uint64_t rows_in, rows_out;
} exec_operator;

/* The tokens that a strategy would send and compute for the same inputs. */
typedef struct exec_baseline {
    char name[24];
    uint64_t prompt_tokens; /* tokens of all prompts; those not computed were reused */
    uint64_t computed_tokens;
} exec_baseline;

/* A consistent copy of a statement's progress, for the progress line and the live view. */
typedef struct exec_progress {
    bool llm_running;
    char phase[32]; /* "reading", "ordering", "starting the model", "model", … */
    /* expected number of distinct inputs of the running LLM operator */
    uint64_t rows_total;
    uint64_t rows_done;    /* number of these inputs that are answered */
    double seconds;        /* since the statement started */
    double llm_seconds;    /* time in the running LLM operator */
    llm_figures llm;       /* figures of the statement so far */
    llm_memory memory;     /* memory of the running engine session */
    uint64_t answers_kept; /* answers written to the cache so far */
    int operator_number;   /* number of the running LLM operator, from 1 */
    int operators;         /* number of LLM operators in the plan */
    /* tokens per second that this machine computed in earlier statements; 0: not measured */
    double prefill_tok_s;
    char field_order[160];
    char last_answer[80], last_input[80];
    bool paused;
    double held_seconds; /* time paused so far; not included in the times above */
    /* percent of tokens reused in each of the latest prompts, oldest first */
    uint8_t shared[EXEC_SHARED];
    int nshared;
    /* While watched (stmt_watch), and when an LLM operator has ended: */
    exec_branch branches[EXEC_BRANCHES]; /* the largest branches, depth first */
    int nbranches;
    exec_operator operator_rows[EXEC_OPERATORS]; /* in the order of EXPLAIN */
    int noperators;
    exec_place places[EXEC_PLACES]; /* of the running session, if its model is at servers */
    int nplaces;
    uint64_t disk_bytes;        /* size of the cache on disk */
    uint64_t disk_budget_bytes; /* maximum size of the cache on disk */
    /* After stmt_compare: */
    exec_baseline baselines[EXEC_BASELINES];
    int nbaselines;
} exec_progress;

/* The estimated cost of running a statement; all zero if it calls no model. */
typedef struct exec_estimate {
    double cost_ms, distinct_inputs, computed_tokens, money; /* the planner's estimates */
    char currency[8];                                        /* of `money` */
    exec_baseline strategies[EXEC_BASELINES];                /* exact token counts, if requested */
    int nstrategies;
} exec_estimate;

/* Starts estimating a statement of db_prepare, which may be run afterwards without parsing and
 * binding it again. `count`: also counts tokens by strategy, as EXPLAIN (TOKENS) does.
 * stmt_next then returns STMT_DONE, or STMT_ERROR for an error that running the statement would
 * also cause. */
void stmt_estimate(stmt *s, bool count);
const exec_estimate *stmt_estimated(const stmt *s); /* of the last stmt_estimate */

void stmt_progress(stmt *s, exec_progress *out); /* as of the last batch or engine pass */

/* Totals of a finished statement, for .timer and benchmarks. */
typedef struct exec_summary {
    double seconds;       /* time from start to end */
    double sql_seconds;   /* seconds without llm_seconds and held_seconds */
    double solve_seconds; /* time spent ordering prompts; part of sql_seconds */
    double llm_seconds;   /* time spent in the model */
    double held_seconds;  /* time paused */
    bool reached_limit;   /* max_tokens_total, max_seconds or max_cost stopped it, with ERR_LIMIT */
    char currency[8];     /* of llm.money */
    uint64_t rows;
    uint64_t failed; /* LLM calls that failed and gave NULL or their DEFAULT */
    llm_figures llm;
    llm_memory memory;
    workmem_use space; /* peak use of memory and temporary files by kept rows */
    /* how typed answers fell, in rows: a line per call that has a list of answers, such as "mood:
     * positive 131, negative 109"; "" if there is none */
    char answers[1024];
} exec_summary;
void stmt_summary(const stmt *s, exec_summary *out);
/* The accounting of the statement's memory, for callers that keep its rows; valid until
 * stmt_free. */
workmem *stmt_workmem(stmt *s);

bool db_in_transaction(const db *d);     /* whether BEGIN has opened a transaction */
bool db_transaction_failed(const db *d); /* whether only ROLLBACK is allowed in it */
const char *db_path(const db *d);

/* An object of the database, for completion, .tables and .dump. */
typedef struct db_object {
    const char *kind; /* "table", "view", "index", "model", "system" */
    const char *name;
    const char *sql;   /* the CREATE statement; "" for system tables */
    const char *table; /* the table that an index belongs to; NULL for other objects */
    int ncolumns;
    const char **columns;
    value_type *types;
} db_object;
/* Lists all objects, allocated in `a`, as the open transaction sees them; if none is open, as a
 * new transaction does. */
int db_objects(db *d, arena *a, db_object **out, int *count, err *e);
const settings *db_settings(const db *d); /* as of the last finished statement */

/* The next five return ERR_CANCELLED soon after *cancel becomes true; `cancel` may be NULL. */

/* Returns information on the default model, which is opened if it is not open; texts are copied
 * into `mem`. Errors are those of llm_engine_open, and ERR_MODEL if no model is found. */
int db_model_info(db *d, arena *mem, llm_model_info *out, const atomic_bool *cancel, err *e);
/* Prints the number of tokens of a text and each token, for .tokens. */
int db_tokenize(db *d, str text, buf *out, const atomic_bool *cancel, err *e);
int db_backup(db *d, const char *directory, const atomic_bool *cancel,
              err *e); /* see store_backup */
int db_check(db *d, const char *from, const atomic_bool *cancel, buf *report, uint64_t *faults,
             err *e); /* see store_check */
int db_recover(db *d, const char *directory, const char *from, const atomic_bool *cancel,
               buf *report, bool *whole, err *e); /* see store_recover */

/* Sets the variable :name, which SQL reads as a TEXT literal; both texts are copied. */
void db_set_variable(db *d, str name, str text);

#endif
