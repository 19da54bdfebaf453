/*
 * db_core_int.h - the database handle, and facts stored beside the catalog.
 *
 * Threads: while a statement runs, everything belongs to the worker, except the atomic members.
 * When no statement runs (stmt_free has returned), the caller may use all members; posting the next
 * job orders the accesses.
 */
#ifndef KVASIR_DB_CORE_INT_H
#define KVASIR_DB_CORE_INT_H

#include "core/exec_ctx_int.h"
#include "core/worker_int.h"

struct db {
    store *store;
    settings settings;
    char *model_override;  /* db_options.model; or NULL */
    struct models *models; /* the open engines (llm/models.c); NULL: none yet */
    str *variables;        /* name, value, name, value, …; on the heap */
    int nvariables;        /* number of name-value pairs */

    txn *txn; /* BEGIN's transaction, from its first statement on; else NULL */
    /* the running statement's transaction: `txn` or its own; else NULL */
    txn *active;
    atomic_bool in_transaction; /* BEGIN was run, and neither COMMIT nor ROLLBACK since */
    atomic_bool failed;         /* the transaction failed: only ROLLBACK is allowed */

    buf allowed; /* pairs that this process allowed (llm/endpoints.c), one a line */
    buf refused; /* pairs that the last model opened lacks */
    bool typed;  /* db_set_typed */
    worker worker;
    spin caller_spin;         /* polling time of stmt_next */
    stmt *spare;              /* a finished statement, for reuse of its memory */
    bool cache_warning_shown; /* the user was told that nothing is written to the cache */
};

/* Stores a fact that a statement learned (a field order, a column's answers, …) under `key`, in a
 * write transaction of its own. Does nothing in a trial, in a read-only database, inside a
 * transaction, or while another process writes. Other failures, such as a full disk, become a
 * notice. */
void fact_put(exec_ctx *ctx, str key, str bytes);
/* Reads the fact stored under `key`, copied into `a`. Sets *found to false if there is none. */
int fact_get(db *d, str key, arena *a, str *out, bool *found, err *e);

#endif
