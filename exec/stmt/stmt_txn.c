/*
 * stmt_txn.c - the transaction of a statement: its own, or that of BEGIN.
 *
 * Invariant: BEGIN takes a read transaction with its first statement; its first write replaces it by
 * a write transaction, which is refused if any table changed in between, so that all statements of
 * BEGIN see one snapshot.
 */
#include <stdlib.h>

#include "stmt_int.h"

static void forget_seen(db *d) {
    for (int k = 0; k < d->nseen; k++)
        free(d->seen[k].name);
    free(d->seen);
    d->seen = NULL;
    d->nseen = 0;
}

/* What BEGIN's read transaction sees, so that its
 * first write can tell whether anything changed since. */
static void remember_seen(db *d, const catalog *c) {
    forget_seen(d);
    d->seen = mem_alloc(sizeof *d->seen * (size_t)BASE_MAX(c->ntables, 1));
    for (int k = 0; k < c->ntables; k++) {
        const table_def *t = &c->tables[k];
        d->seen[d->nseen++] = (table_version){mem_strndup(t->name.p, t->name.n), t->id, t->version};
    }
}

int versions_check(const table_version *seen, int count, const catalog *c, err *e) {
    for (int k = 0; k < count; k++) {
        const table_def *t = catalog_table(c, str_from(seen[k].name));
        if (!t || t->id != seen[k].id || t->version != seen[k].version)
            return err_set(e, ERR_BUSY, "table \"%s\" was changed meanwhile", seen[k].name);
    }
    return 0;
}

/* BEGIN's read transaction becomes a write transaction, if nobody wrote since. */
static int upgrade(db *d, const txn_wait *wait, err *e) {
    remember_seen(d, txn_catalog(d->txn));
    int tables = d->nseen;
    txn_abort(d->txn);
    d->txn = d->active = NULL;
    int status = txn_begin(d->store, true, wait, &d->txn, e);
    bool changed = false; /* else another process holds the writer's lock, and the error names it */
    if (status == 0) {
        const catalog *c = txn_catalog(d->txn);
        status = c->ntables != tables ? (int)ERR_BUSY : versions_check(d->seen, tables, c, e);
        changed = status == ERR_BUSY;
        if (status) {
            txn_abort(d->txn);
            d->txn = NULL;
        }
    }
    forget_seen(d);
    if (status == ERR_BUSY || status == ERR_CANCELLED) {
        /* what it read is gone: nothing after this would be of one snapshot */
        atomic_store(&d->failed, true);
        if (changed)
            err_set(e, ERR_BUSY,
                    "the database changed since this transaction began; roll back and start over");
        err_hint(e, "ROLLBACK");
    }
    d->active = d->txn;
    return status;
}

int stmt_begin_txn(stmt *s, bool write, err *e) {
    db *d = s->db;
    txn_wait wait = {.busy_timeout_ms = (int)d->settings.busy_timeout, .cancel = &s->cancel};
    int status = 0;
    if (d->txn && write && !txn_is_write(d->txn))
        status = upgrade(d, &wait, e);
    else if (d->txn)
        d->active = d->txn;
    else if (!d->active)
        status = txn_begin(d->store, write, &wait, &d->active, e);
    if (status == 0 && atomic_load(&d->in_transaction) && !atomic_load(&d->failed))
        d->txn = d->active;
    s->ctx.txn = status ? NULL : d->active;
    return status;
}

int stmt_end_txn(stmt *s, bool commit, err *e) {
    db *d = s->db;
    txn *t = d->active;
    d->active = NULL;
    s->ctx.txn = NULL;
    if (!t || t == d->txn)
        return 0;
    if (commit && txn_is_write(t))
        return txn_commit(t, e);
    txn_abort(t);
    return 0;
}
