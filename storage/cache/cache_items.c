/*
 * cache_items.c - listing values, their identities, and clearing by identity, for system tables and
 * DROP MODEL. Damaged values are skipped here; cache_get deletes them.
 */
#include <string.h>

#include "cache_int.h"

enum { DELETES_AT_ONCE = 512 };

size_t cache_items(cache *c, cache_space space, arena *a, cache_item **out) {
    size_t n = 0;
    cache_refresh(c);
    pthread_mutex_lock(&c->mutex);
    *out = ARENA_ARRAY(a, cache_item, c->index.of[space].entries + 1);
    for (int i = 0; i < c->index.count; i++) {
        const cache_entry *e = &c->index.entries[i];
        if (e->live && e->space == (uint8_t)space)
            (*out)[n++] = (cache_item){.key = e->key,
                                       .parent = e->parent,
                                       .bytes = e->bytes,
                                       .used = e->used,
                                       .hits = e->hits,
                                       .children = e->children,
                                       .cost = e->cost};
    }
    pthread_mutex_unlock(&c->mutex);
    return n;
}

/* Returns the identity of a stored value; p = NULL: the header is invalid. */
static str identity_of(MDB_val data) {
    value_header h;
    if (data.mv_size < CACHE_HEADER)
        return (str){NULL, 0};
    memcpy(&h, data.mv_data, sizeof h);
    if (h.magic != CACHE_MAGIC || h.version != CACHE_VERSION || h.payload_at > data.mv_size ||
        h.payload_at < CACHE_HEADER || h.identity_bytes > h.payload_at - CACHE_HEADER)
        return (str){NULL, 0};
    return (str){(const char *)data.mv_data + CACHE_HEADER, h.identity_bytes};
}

bool cache_identity(cache *c, cache_space space, hash128 key, buf *out) {
    MDB_txn *t = NULL;
    bool found = false;
    pthread_rwlock_rdlock(&c->env_lock);
    if (cache_begin(c, MDB_RDONLY, &t) == 0) {
        hash128 k = key;
        MDB_val name = {sizeof k, &k}, data;
        str identity = {NULL, 0};
        if (mdb_get(t, c->values[space], &name, &data) == 0)
            identity = identity_of(data);
        found = identity.p != NULL;
        if (found)
            buf_append_str(out, identity);
        mdb_txn_abort(t);
    }
    pthread_rwlock_unlock(&c->env_lock);
    return found;
}

/* Finds up to DELETES_AT_ONCE keys, from *from on, whose values have an identity that begins with
 * `wanted`. Returns their number. Sets *from to the last key found; *end = true: no keys are
 * left. */
static size_t find_matching(cache *c, MDB_txn *t, cache_space space, str wanted, hash128 *from,
                            hash128 *keys, bool *end) {
    MDB_cursor *cursor = NULL;
    MDB_val key = {sizeof *from, from}, data;
    size_t n = 0;
    *end = true;
    if (mdb_cursor_open(t, c->values[space], &cursor) != 0)
        return 0;
    int rc = mdb_cursor_get(cursor, &key, &data, MDB_SET_RANGE);
    for (; rc == 0 && n < DELETES_AT_ONCE; rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT)) {
        str identity = identity_of(data);
        if (key.mv_size == sizeof *keys && identity.n >= wanted.n && identity.p &&
            memcmp(identity.p, wanted.p, wanted.n) == 0)
            memcpy(&keys[n++], key.mv_data, sizeof *keys);
    }
    *end = rc != 0;
    mdb_cursor_close(cursor);
    if (n)
        *from = keys[n - 1];
    return n;
}

/* Deletes up to DELETES_AT_ONCE matching values in one transaction. */
static int clear_some(cache *c, cache_space space, str wanted, hash128 *from, bool *end,
                      uint64_t *deleted) {
    hash128 keys[DELETES_AT_ONCE];
    MDB_txn *t = NULL;
    int rc = cache_write_begin(c, &t);
    if (rc)
        return rc;
    size_t n = find_matching(c, t, space, wanted, from, keys, end);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = cache_delete(c, t, (uint8_t)space, keys[i]);
    pthread_mutex_lock(&c->mutex);
    for (size_t i = 0; i < n && rc == 0; i++) {
        cache_entry *e = index_find(&c->index, (uint8_t)space, keys[i]);
        if (e)
            index_remove(&c->index, e);
    }
    pthread_mutex_unlock(&c->mutex);
    rc = cache_write_end(c, t, rc, n ? CACHE_WROTE_KEYS : CACHE_WROTE_NOTHING);
    *deleted += rc == 0 ? n : 0;
    return rc;
}

int cache_clear_matching(cache *c, cache_space space, str identity, uint64_t *deleted, err *e) {
    uint64_t count = 0;
    hash128 from = {0, 0};
    bool end = false;
    int rc = 0;
    if (c->read_only)
        return err_set(e, ERR_IO, "the cache '%s' is read-only", c->path);
    cache_flush(c);
    pthread_rwlock_rdlock(&c->env_lock);
    while (rc == 0 && !end)
        rc = clear_some(c, space, identity, &from, &end, &count);
    pthread_rwlock_unlock(&c->env_lock);
    if (deleted)
        *deleted = count;
    return lmdb_error(e, rc, "cannot clear the cache");
}
