/*
 * cache_meta.c - key-value pairs in the cache's file, lost with it.
 *
 *   tree "format": "note " | XXH3-128 of the key  →  XXH3-64 of the rest | u32 key's length | key |
 *                                                    value
 *
 * Invariant: a pair that is found has the whole key and a valid checksum.
 */
#include <string.h>

#include "cache_int.h"

#define NOTE "note "

typedef struct note_key {
    unsigned char bytes[sizeof NOTE - 1 + sizeof(hash128)];
} note_key;

static MDB_val key_of(note_key *k, str key) {
    hash128 h = hash_128(key.p, key.n);
    memcpy(k->bytes, NOTE, sizeof NOTE - 1);
    memcpy(k->bytes + sizeof NOTE - 1, &h, sizeof h);
    return (MDB_val){sizeof k->bytes, k->bytes};
}

static bool read_note(MDB_val data, str key, buf *out) {
    uint64_t sum;
    if (data.mv_size < sizeof sum)
        return false;
    memcpy(&sum, data.mv_data, sizeof sum);
    const uint8_t *p = (const uint8_t *)data.mv_data + sizeof sum;
    bytes_reader r = {p, p + (data.mv_size - sizeof sum), false};
    if (sum != hash64(p, data.mv_size - sizeof sum, CACHE_VERSION) ||
        !str_equal(get_str(&r), key) || r.bad)
        return false;
    buf_append(out, r.p, (size_t)(r.end - r.p));
    return true;
}

bool cache_meta_get(cache *c, str key, buf *out) {
    MDB_txn *t = NULL;
    note_key name;
    bool found = false;
    pthread_rwlock_rdlock(&c->env_lock);
    if (cache_begin(c, MDB_RDONLY, &t) == 0) {
        MDB_val k = key_of(&name, key), data;
        found = mdb_get(t, c->format, &k, &data) == 0 && read_note(data, key, out);
        mdb_txn_abort(t);
    }
    pthread_rwlock_unlock(&c->env_lock);
    return found;
}

static int put_note(cache *c, str key, str bytes) {
    MDB_txn *t = NULL;
    note_key name;
    int rc = cache_write_begin(c, &t);
    if (rc)
        return rc;
    buf note = {0};
    put_u64(&note, 0);
    put_str(&note, key);
    buf_append_str(&note, bytes);
    uint64_t sum = hash64(note.p + sizeof sum, note.n - sizeof sum, CACHE_VERSION);
    memcpy(note.p, &sum, sizeof sum);
    MDB_val k = key_of(&name, key), data = {note.n, note.p};
    rc = mdb_put(t, c->format, &k, &data, 0);
    buf_free(&note);
    /* The log record lists no keys: the index does not change. */
    return cache_write_end(c, t, rc, CACHE_WROTE_KEYS);
}

int cache_meta_put(cache *c, str key, str bytes, err *e) {
    if (c->read_only)
        return err_set(e, ERR_IO, "the cache '%s' is read-only", c->path);
    pthread_rwlock_rdlock(&c->env_lock);
    int rc = put_note(c, key, bytes);
    pthread_rwlock_unlock(&c->env_lock);
    return lmdb_error(e, rc, "cannot write to the cache");
}
