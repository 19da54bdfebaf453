/*
 * cache_log.c - write transactions, and the log of the keys that each commit changed. Other
 * processes update their index from the log; loading a whole index takes 40 ms for 100,000 entries.
 *
 *   tree "log": transaction's id, u64 big-endian  →  XXH3-64 of the rest, seeded by the id | for
 *                                                    each changed key: space, u8 | key, 16 bytes
 *
 * Invariants: the log has only keys. Each key is looked up in the file, so a value that was deleted
 * later is not found. If a commit is missing from the log (too many keys, too long ago, damaged)
 * the whole index is loaded. Every write transaction uses cache_write_begin and cache_write_end, so
 * the index matches the transaction's snapshot when the transaction begins, and its commit when it
 * ends.
 */
#include <string.h>

#include "cache_int.h"

enum { LOG_COMMITS = 64, LOG_KEYS = 4096, TOUCHED_BYTES = 1 + sizeof(hash128) };

typedef struct log_key {
    uint8_t bytes[8];
} log_key;

static MDB_val key_of(log_key *k, uint64_t id) {
    for (int i = 0; i < 8; i++)
        k->bytes[i] = (uint8_t)(id >> (56 - 8 * i));
    return (MDB_val){sizeof k->bytes, k->bytes};
}

static uint64_t id_of(MDB_val key) {
    uint64_t id = 0;
    for (size_t i = 0; i < key.mv_size && i < 8; i++)
        id = id << 8 | ((const uint8_t *)key.mv_data)[i];
    return id;
}

void cache_touch(cache *c, uint8_t space, hash128 key) {
    buf_append_char(&c->touched, (char)space);
    buf_append(&c->touched, &key, sizeof key);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Gets the keys of one commit, valid during the transaction. false: there is no valid record. */
static bool log_find(cache *c, MDB_txn *t, uint64_t id, const uint8_t **keys, size_t *n) {
    log_key name;
    uint64_t sum;
    MDB_val key = key_of(&name, id), data;
    if (mdb_get(t, c->log, &key, &data) != 0 || data.mv_size < sizeof sum)
        return false;
    *keys = (const uint8_t *)data.mv_data + sizeof sum;
    *n = (data.mv_size - sizeof sum) / TOUCHED_BYTES;
    memcpy(&sum, data.mv_data, sizeof sum);
    return sum == hash64(*keys, data.mv_size - sizeof sum, id) &&
           (data.mv_size - sizeof sum) % TOUCHED_BYTES == 0;
}

static bool entries_load(cache *c, MDB_txn *t, const uint8_t *keys, size_t n) {
    for (size_t i = 0; i < n; i++) {
        hash128 key;
        uint8_t space = keys[i * TOUCHED_BYTES];
        memcpy(&key, keys + i * TOUCHED_BYTES + 1, sizeof key);
        if (space >= CACHE_SPACES)
            return false;
        cache_load_entry(c, t, space, key);
    }
    return true;
}

static bool log_follow(cache *c, MDB_txn *t, uint64_t id) {
    const uint8_t *keys;
    size_t n;
    return log_find(c, t, id, &keys, &n) && entries_load(c, t, keys, n);
}

void cache_load_touched(cache *c, MDB_txn *t) {
    entries_load(c, t, (const uint8_t *)c->touched.p, c->touched.n / TOUCHED_BYTES);
}

int cache_catch_up(cache *c, MDB_txn *t, size_t id) {
    if (c->last_txn != 0 && id <= c->last_txn)
        return 0;
    bool known = c->last_txn != 0 && id - c->last_txn <= LOG_COMMITS;
    for (size_t i = c->last_txn + 1; i <= id && known; i++)
        known = log_follow(c, t, i);
    int rc = known ? 0 : cache_load_index(c, t);
    c->last_txn = rc == 0 ? id : 0;
    return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

int cache_write_begin(cache *c, MDB_txn **out) {
    int rc = cache_begin(c, 0, out);
    if (rc)
        return rc;
    buf_clear(&c->touched);
    pthread_mutex_lock(&c->mutex);
    rc = cache_catch_up(c, *out, mdb_txn_id(*out) - 1);
    pthread_mutex_unlock(&c->mutex);
    if (rc)
        mdb_txn_abort(*out);
    return rc;
}

/* Deletes the records of commits that are at least LOG_COMMITS commits old. */
static int log_prune(cache *c, MDB_txn *t, uint64_t id) {
    MDB_cursor *cursor;
    MDB_val key, data;
    int rc = mdb_cursor_open(t, c->log, &cursor);
    if (rc)
        return rc;
    while ((rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST)) == 0 &&
           id_of(key) + LOG_COMMITS <= id && (rc = mdb_cursor_del(cursor, 0)) == 0) {
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

static int log_write(cache *c, MDB_txn *t) {
    log_key name;
    uint64_t id = mdb_txn_id(t), sum = hash64(c->touched.p, c->touched.n, id);
    MDB_val key = key_of(&name, id), data = {sizeof sum + c->touched.n, NULL};
    int rc = log_prune(c, t, id);
    if (rc || c->touched.n > (size_t)LOG_KEYS * TOUCHED_BYTES)
        return rc;
    rc = mdb_put(t, c->log, &key, &data, MDB_RESERVE);
    if (rc)
        return rc;
    memcpy(data.mv_data, &sum, sizeof sum);
    if (c->touched.n)
        memcpy((char *)data.mv_data + sizeof sum, c->touched.p, c->touched.n);
    return 0;
}

int cache_write_end(cache *c, MDB_txn *t, int rc, cache_extent extent) {
    size_t id = mdb_txn_id(t);
    uint64_t pages = 0;
    if (!rc && extent == CACHE_WROTE_KEYS)
        rc = log_write(c, t);
    if (!rc && extent != CACHE_WROTE_NOTHING) {
        pages = cache_pages_bytes(c, t);
        rc = mdb_txn_commit(t);
    } else {
        mdb_txn_abort(t);
    }
    pthread_mutex_lock(&c->mutex);
    if (rc) {
        c->last_txn = 0; /* the index may have changes that the file lacks */
    } else if (extent != CACHE_WROTE_NOTHING) {
        c->last_txn = id;
        c->pages_bytes = pages;
    }
    pthread_mutex_unlock(&c->mutex);
    return rc;
}
