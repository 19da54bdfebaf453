/*
 * stmt_txn.c - the transaction of a statement: its own transaction, or the transaction that BEGIN
 * opened.
 *
 * Invariant: the first statement after BEGIN starts a transaction. If that is a read transaction,
 * the first write replaces it by a write transaction, and fails if any table has changed in
 * between. So all statements of a transaction see one snapshot.
 */
#include "stmt_int.h"

int version_check(const table_def *seen, const catalog *c, err *e) {
    const table_def *t = catalog_table(c, seen->name);
    if (t && t->id == seen->id && t->version == seen->version)
        return 0;
    return err_set(e, ERR_BUSY, "table \"%.*s\" was changed by another writer", (int)seen->name.n,
                   seen->name.p);
}

static bool same_versions(const catalog *before, const catalog *now) {
    err ignored;
    bool same = before == now || before->ntables == now->ntables;
    for (int k = 0; before != now && same && k < before->ntables; k++)
        same = version_check(&before->tables[k], now, &ignored) == 0;
    return same;
}

/* Replaces BEGIN's read transaction by a write transaction. Fails if a table has changed in
 * between. */
static int upgrade(db *d, const txn_wait *wait, err *e) {
    const catalog *before = catalog_retain(txn_catalog(d->txn));
    txn_abort(d->txn);
    d->txn = d->active = NULL;
    int status = txn_begin(d->store, true, wait, &d->txn, e);
    if (status == 0 && !same_versions(before, txn_catalog(d->txn))) {
        txn_abort(d->txn);
        d->txn = NULL;
        status = err_set(e, ERR_BUSY, "the database changed since this transaction began");
    }
    catalog_release(before);
    if (status == ERR_BUSY || status == ERR_CANCELLED) {
        /* the transaction's snapshot is gone: later statements would see another one */
        atomic_store(&d->failed, true);
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
