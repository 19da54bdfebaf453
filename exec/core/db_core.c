/*
 * db_core.c - facts: what statements learn about models and columns, stored for later statements.
 */
#include "db_core_int.h"
#include "notice_int.h"

static void fact_key(str key, buf *out) {
    buf_append_c(out, "fact/");
    buf_append_str(out, key);
}

static int put(db *d, str key, str bytes, err *e) {
    txn *t;
    buf full = {0};
    txn_wait at_once = {.busy_timeout_ms = 0};
    int status = txn_begin(d->store, true, &at_once, &t, e);
    if (status)
        return status;
    fact_key(key, &full);
    status = meta_put(t, buf_str(&full), bytes, e);
    buf_free(&full);
    if (status == 0)
        return txn_commit(t, e);
    txn_abort(t);
    return status;
}

void fact_put(exec_ctx *ctx, str key, str bytes) {
    db *d = ctx->db;
    err e;
    if (ctx->is_trial || d->active || d->txn || store_is_read_only(d->store))
        return;
    int status = put(d, key, bytes, &e);
    /* ERR_BUSY: another process writes; a later statement will learn the fact again */
    if (status && status != ERR_BUSY)
        exec_notice(ctx, "cannot store the measured token counts of LLM calls: %s", e.message);
}

int fact_get(db *d, str key, arena *a, str *out, bool *found, err *e) {
    txn *t = d->active ? d->active : d->txn;
    bool own = !t;
    buf full = {0};
    int status = own ? txn_begin(d->store, false, NULL, &t, e) : 0;
    *found = false;
    if (status)
        return status;
    fact_key(key, &full);
    status = meta_get(t, buf_str(&full), out, found, e);
    if (status == 0 && *found)
        *out = str_copy(a, *out);
    if (own)
        txn_abort(t);
    buf_free(&full);
    return status;
}
