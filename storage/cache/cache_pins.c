/*
 * cache_pins.c - pins: KV blocks protected from eviction under a name.
 *
 *   tree "pins": block's key, 16 bytes | XXH3-128 of the name in lower case  →  the name
 *
 * Invariants: a block pinned under two names stays protected until both are unpinned; a pin
 * outlives the loss of its block, which is protected again when it is stored again; pinned blocks
 * take at most half of the budget, so that eviction can always free space.
 */
#include <string.h>

#include "cache_int.h"

enum { PIN_SHARE = 2 };

typedef struct pin_key {
    hash128 block, name;
} pin_key;

/* Names are compared without case, as in the catalog. */
static hash128 name_hash(str name) {
    buf lower = {0};
    for (size_t i = 0; i < name.n; i++)
        buf_append_char(&lower, ascii_lower(name.p[i]));
    hash128 h = hash_128(lower.p, lower.n);
    buf_free(&lower);
    return h;
}

uint32_t cache_count_pins(cache *c, MDB_txn *t, hash128 block) {
    MDB_cursor *cursor = NULL;
    pin_key from = {.block = block};
    MDB_val key = {sizeof from, &from}, data;
    uint32_t n = 0;
    if (mdb_cursor_open(t, c->pins, &cursor) != 0)
        return 0;
    int rc = mdb_cursor_get(cursor, &key, &data, MDB_SET_RANGE);
    while (rc == 0 && key.mv_size == sizeof from &&
           memcmp(key.mv_data, &block, sizeof block) == 0) {
        n++;
        rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT);
    }
    mdb_cursor_close(cursor);
    return n;
}

/* Reads the next valid record, or the first one if the cursor is new. Returns MDB_NOTFOUND at the
 * end. */
static int pin_next(MDB_cursor *cursor, pin_key *out) {
    MDB_val key, data;
    int rc;
    do
        rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT);
    while (rc == 0 && key.mv_size != sizeof *out);
    if (rc == 0)
        memcpy(out, key.mv_data, sizeof *out);
    return rc;
}

int cache_load_pins(cache *c, MDB_txn *t) {
    MDB_cursor *cursor;
    pin_key pin;
    int rc = mdb_cursor_open(t, c->pins, &cursor);
    if (rc)
        return rc;
    while ((rc = pin_next(cursor, &pin)) == 0) {
        cache_entry *e = index_find(&c->index, CACHE_KV, pin.block);
        if (e)
            index_pin(&c->index, e, e->pins + 1);
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Pins the blocks that are in the index. MDB_MAP_FULL: pinned blocks would exceed their share of
 * the budget. [mutex] */
static int put_pins(cache *c, MDB_txn *t, str name, const hash128 *blocks, size_t n,
                    cache_pins *out) {
    pin_key pin = {.name = name_hash(name)};
    uint64_t all = c->index.of[CACHE_KV].pinned_bytes;
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const cache_entry *e = index_find(&c->index, CACHE_KV, blocks[i]);
        pin.block = blocks[i];
        MDB_val key = {sizeof pin, &pin}, data = {name.n, (void *)(uintptr_t)name.p};
        if (!e)
            continue;
        rc = mdb_put(t, c->pins, &key, &data, 0);
        cache_touch(c, CACHE_KV, blocks[i]);
        out->blocks++;
        out->bytes += e->bytes;
        all += e->pins ? 0 : e->bytes;
    }
    return rc == 0 && all > c->budget / PIN_SHARE ? MDB_MAP_FULL : rc;
}

/* Deletes the pins of a name. [mutex] */
static int delete_pins(cache *c, MDB_txn *t, str name, cache_pins *out) {
    MDB_cursor *cursor;
    pin_key pin;
    hash128 wanted = name_hash(name);
    int rc = mdb_cursor_open(t, c->pins, &cursor);
    if (rc)
        return rc;
    while (rc == 0 && (rc = pin_next(cursor, &pin)) == 0) {
        if (!hash128_equal(pin.name, wanted))
            continue;
        const cache_entry *e = index_find(&c->index, CACHE_KV, pin.block);
        out->blocks += e != NULL;
        out->bytes += e ? e->bytes : 0;
        out->records++;
        cache_touch(c, CACHE_KV, pin.block);
        rc = mdb_cursor_del(cursor, 0);
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

/* Pins blocks under a name, or deletes all pins of the name if n = 0, in one transaction. */
static int change_pins(cache *c, str name, const hash128 *blocks, size_t n, cache_pins *out) {
    MDB_txn *t = NULL;
    int rc = cache_write_begin(c, &t);
    if (rc)
        return rc;
    pthread_mutex_lock(&c->mutex);
    rc = n ? put_pins(c, t, name, blocks, n, out) : delete_pins(c, t, name, out);
    cache_load_touched(c, t);
    pthread_mutex_unlock(&c->mutex);
    return cache_write_end(c, t, rc, c->touched.n ? CACHE_WROTE_KEYS : CACHE_WROTE_NOTHING);
}

static int change(cache *c, str name, const hash128 *blocks, size_t n, cache_pins *out, err *e) {
    *out = (cache_pins){0};
    if (c->read_only)
        return err_set(e, ERR_IO, "the cache '%s' is read-only", c->path);
    cache_flush(c);
    pthread_rwlock_rdlock(&c->env_lock);
    int rc = change_pins(c, name, blocks, n, out);
    pthread_rwlock_unlock(&c->env_lock);
    if (rc != MDB_MAP_FULL)
        return lmdb_error(e, rc, "cannot change what is pinned");
    err_set(e, ERR_FULL, "pinning \"%.*s\" would take more than half of kv_disk",
            (int)BASE_MIN(name.n, 60u), name.p);
    err_hint(e, "UNPIN other names, or raise kv_disk with SET");
    return ERR_FULL;
}

int cache_pin(cache *c, str name, const hash128 *blocks, size_t n, cache_pins *out, err *e) {
    *out = (cache_pins){0};
    return n ? change(c, name, blocks, n, out, e) : 0;
}

int cache_unpin(cache *c, str name, cache_pins *out, err *e) {
    return change(c, name, NULL, 0, out, e);
}
