/*
 * exec_ctx_int.h - what every operator of a running statement is given: the transaction and the
 * settings that it reads, and where it keeps rows, counts, and reports.
 *
 * Ownership: a stmt owns its exec_ctx and all that it points to (stmt/stmt_int.h); both belong to
 * the worker's thread while the statement runs.
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

/* What the shell asks of a running statement: stmt_pause, stmt_watch, stmt_compare. */
typedef struct view_requests {
    atomic_bool paused, watched, compared;
} view_requests;

/* A recursive CTE's working table: the rows of its last round. */
typedef struct working_rows {
    const rowset *rows;
    uint64_t round; /* 1, 2, …: the round that made them */
} working_rows;

/* Rows that stay as long as the plan, for any operator to read. */
typedef struct kept_rows {
    rowset **ready;        /* [plan.nnodes] a subtree's rows, read ahead (snapshot.c); or NULL */
    rowset **shared;       /* [plan.nshared] a shared node's rows; NULL until its first use */
    working_rows *working; /* by number of the recursion (op_recursive.c) */
} kept_rows;

/* What a run counts. */
typedef struct run_counts {
    uint64_t *rows_out;  /* [plan.nnodes] rows that each node returned; NULL: not counted */
    plan_actual *actual; /* [plan.nnodes] for EXPLAIN ANALYZE and (TOKENS), filled as operators
                          * close; NULL: not measured */
    bool adds_rounds;    /* operators that close now ran one round of a recursion: rows add up */
    exec_summary summary;
} run_counts;

struct exec_ctx {
    db *db;
    const sql_stmt *stmt;
    const plan *plan;
    const op_class *const *classes; /* by plan_kind */
    const settings *settings;
    txn *txn;        /* NULL once the snapshot was taken */
    arena *mem;      /* lives as long as the statement */
    workmem *space;  /* accounts for what operators keep; NULL: each arena for itself */
    bool count_only; /* EXPLAIN (TOKENS): LLM operators count and every row passes */
    const atomic_bool *cancel;
    const view_requests *view; /* NULL: none */
    llm_runtime *llm;          /* NULL: the statement has no calls */
    kept_rows kept;
    run_counts counts;
    buf *notices;             /* the lines of stmt_notice; NULL: dropped */
    progress_board *progress; /* read by stmt_progress; NULL: dropped */
};

#endif
