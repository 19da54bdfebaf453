/*
 * db_core_int.h - the database handle, and facts kept beside the catalog.
 *
 * Threads: `txn`, `active`, `settings` and all that a running statement uses belong to the worker;
 * between statements (stmt_free has returned) the caller may use them too, since handing over the
 * next job orders the accesses.
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
    str *variables;        /* name, value, name, value, …; heap */
    int nvariables;

    txn *txn;                           /* of BEGIN, begun by its first statement; else NULL */
    txn *active;                        /* of the running statement: `txn` or its own; else NULL */
    atomic_bool in_transaction, failed; /* after BEGIN; only ROLLBACK is allowed */

    worker worker;
    spin caller_spin;         /* the caller's, in stmt_next */
    stmt *spare;              /* a finished statement, whose memory the next one takes over */
    bool cache_warning_shown; /* that the cache is not written to */
};

/* Keeps what a statement learned (facts, field orders) under `key`, in a write transaction of its
 * own. Does nothing in a read-only database, while a transaction is open, or while another process
 * writes. Never fails a statement: other failures, as a full disk, become a notice. */
void fact_put(exec_ctx *ctx, str key, str bytes);
/* Reads what fact_put kept into `a`; *found = false: nothing. */
int fact_get(db *d, str key, arena *a, str *out, bool *found, err *e);

#endif
