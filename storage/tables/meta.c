/*
 * meta.c - key-value pairs beside the catalog.
 *
 * Invariant: LMDB limits the length of keys, so a long key is replaced by its first META_KEEP bytes
 * and its hash, and every value begins with the whole key. Prefixes of up to META_KEEP bytes still
 * find long keys.
 */
#include <errno.h>
#include <string.h>

#include "tables_int.h"

enum { META_KEEP = 256 };

static MDB_val meta_key(str key, char *out) {
    size_t n = BASE_MIN(key.n, (size_t)META_KEEP);
    memcpy(out, key.p, n);
    if (key.n > META_KEEP) {
        hash128 h = hash_128(key.p, key.n);
        memcpy(out + n, &h, sizeof h);
        n += sizeof h;
    }
    return (MDB_val){n, out};
}

int meta_get(txn *t, str key, str *out, bool *found, err *e) {
    char bytes[META_KEEP + sizeof(hash128)];
    MDB_val k = meta_key(key, bytes), data;
    *found = false;
    *out = (str){"", 0};
    if (key.n == 0)
        return 0;
    tree_cursor *c;
    int status = txn_fixed(t, TREE_META, &c, e);
    if (status)
        return status;
    int rc = tree_look_up(c, k, &data);
    if (rc == MDB_NOTFOUND)
        return 0;
    if (rc)
        return tree_error(t, rc, "cannot read a setting of the database", e);
    bytes_reader r = {data.mv_data, (const uint8_t *)data.mv_data + data.mv_size, false};
    if (!str_equal(get_str(&r), key) || r.bad)
        return 0;
    *out = (str){(const char *)r.p, (size_t)(r.end - r.p)};
    *found = true;
    return 0;
}

int meta_put(txn *t, str key, str bytes, err *e) {
    char key_bytes[META_KEEP + sizeof(hash128)];
    int status = txn_before_change(t, e);
    if (status)
        return status;
    if (key.n == 0)
        return err_set(e, ERR_INTERNAL, "an empty key");
    tree_cursor *c;
    if ((status = txn_fixed(t, TREE_META, &c, e)) != 0)
        return status;
    buf b = {0};
    put_str(&b, key);
    buf_append_str(&b, bytes);
    int rc = tree_replace(c, meta_key(key, key_bytes), (MDB_val){b.n, b.p});
    buf_free(&b);
    return tree_error(t, rc, "cannot write a setting of the database", e);
}

int meta_delete_prefix(txn *t, str prefix, err *e) {
    int status = txn_before_change(t, e);
    tree_cursor *c = NULL;
    if (status)
        return status;
    if (prefix.n > META_KEEP)
        return err_set(e, ERR_INTERNAL, "the metadata prefix is longer than %d bytes", META_KEEP);
    if ((status = txn_fixed(t, TREE_META, &c, e)) != 0)
        return status;
    MDB_val key = {prefix.n, (void *)(uintptr_t)prefix.p}, data;
    int rc = tree_get(c, &key, &data, prefix.n ? MDB_SET_RANGE : MDB_FIRST);
    while (rc == 0 && key.mv_size >= prefix.n && memcmp(key.mv_data, prefix.p, prefix.n) == 0) {
        rc = tree_delete(c);
        if (!rc)
            rc = tree_get(c, &key, &data, MDB_GET_CURRENT);
        /* After the last entry GET_CURRENT returns EINVAL or NOTFOUND, depending on the version. */
        if (rc == EINVAL)
            rc = MDB_NOTFOUND;
    }
    return rc == 0 || rc == MDB_NOTFOUND
               ? 0
               : tree_error(t, rc, "cannot write a setting of the database", e);
}
