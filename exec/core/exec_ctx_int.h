/*
 * exec_ctx_int.h - the context of a running statement, which every operator has: its transaction,
 * settings, memory, kept rows, counters and outputs.
 *
 * Ownership: a stmt owns its exec_ctx (stmt/stmt_int.h) and what the exec_ctx points to, except
 * `db`, `settings` and `classes`. The worker's thread uses it while the statement runs.
 */
#ifndef KVASIR_EXEC_CTX_INT_H
#define KVASIR_EXEC_CTX_INT_H

#include "exec/exec.h"

typedef struct exec_ctx exec_ctx;
typedef struct op op;
typedef struct op_class op_class;
typedef struct rowset rowset;
typedef struct llm_runtime llm_runtime;
typedef struct progress_board progress_board;

/* Requests by stmt_pause, stmt_watch and stmt_compare. */
typedef struct view_requests {
    atomic_bool paused, watched, compared;
} view_requests;

/* A recursive CTE's working table: the rows of its previous round. */
typedef struct working_rows {
    const rowset *rows;
    uint64_t round; /* the current round: 1, 2, … */
} working_rows;

/* Rows that live as long as the plan and that any operator may read. */
typedef struct kept_rows {
    rowset **ready;        /* [plan.nnodes] a node's rows, if the snapshot read them; else NULL */
    rowset **shared;       /* [plan.nshared] rows of a shared node; NULL until its first use */
    working_rows *working; /* [recursion number], see op_recursive.c */
} kept_rows;

/* Counters of a run. */
typedef struct run_counts {
    uint64_t *rows_out;  /* [plan.nnodes] rows that each node returned; NULL: not counted */
    plan_actual *actual; /* [plan.nnodes] figures of EXPLAIN ANALYZE and EXPLAIN (TOKENS), set when
                          * operators close; NULL: not measured */
    /* the operators being closed ran one round of a recursion: `actual` adds up the rows of all
     * rounds */
    bool adds_rounds;
    exec_summary summary;
} run_counts;

/* What EXPLAIN prints about prompts. */
typedef enum show_what {
    SHOW_NOTHING,
    SHOW_PROMPTS, /* EXPLAIN (PROMPT) */
    SHOW_TREE     /* EXPLAIN (TREE) */
} show_what;

struct exec_ctx {
    db *db;
    const sql_stmt *stmt;
    const plan *plan;
    const op_class *const *classes; /* the operator of each plan_kind */
    const settings *settings;
    bool is_trial;  /* fact_put does nothing */
    txn *txn;       /* NULL if the snapshot ended the transaction */
    arena *mem;     /* lives as long as the statement */
    workmem *space; /* accounts for kept rows; NULL: not accounted */
    /* EXPLAIN (TOKENS), (PROMPT) and (TREE): LLM operators count prompts and pass every row */
    bool count_only;
    show_what show; /* with count_only: keep the prompts instead of counting their tokens */
    const atomic_bool *cancel;
    const view_requests *view; /* the caller's requests; NULL: none */
    llm_runtime *llm;          /* NULL: the statement has no calls */
    kept_rows kept;
    run_counts counts;
    buf *notices;             /* text of stmt_notice; NULL: notices are dropped */
    progress_board *progress; /* read by stmt_progress; NULL: not published */
};

#endif
