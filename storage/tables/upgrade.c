/*
 * upgrade.c - gives a database of format version 1 the present format.
 *
 * Its catalog and settings are rewritten with checksums by the first transaction that writes. Its
 * tables keep their rows as they are, without checksums (table_info.has_sums).
 */
#include <stdlib.h>
#include <string.h>

#include "tables_int.h"

/* A record of a tree without checksums. */
typedef struct old_record {
    str key, data;
} old_record;

static int read_old(txn *t, uint32_t tree, arena *a, old_record **out, size_t *count, err *e) {
    tree_cursor *c;
    size_t cap = 0;
    MDB_val key, data;
    int status = txn_fixed(t, tree, &c, e);
    if (status)
        return status;
    int rc = tree_get(c, &key, &data, MDB_FIRST);
    for (; rc == 0; rc = tree_get(c, &key, &data, MDB_NEXT))
        ARRAY_PUSH(*out, *count, cap,
                   ((old_record){str_copy(a, (str){key.mv_data, key.mv_size}),
                                 str_copy(a, (str){data.mv_data, data.mv_size})}));
    return rc == MDB_NOTFOUND ? 0 : tree_error(t, rc, "cannot read the catalog", e);
}

static int write_new(txn *t, uint32_t tree, const old_record *records, size_t n, err *e) {
    tree_cursor *c;
    int status = txn_fixed(t, tree, &c, e);
    for (size_t i = 0; i < n && !status; i++) {
        MDB_val key = {records[i].key.n, (void *)(uintptr_t)records[i].key.p};
        MDB_val data = {records[i].data.n, (void *)(uintptr_t)records[i].data.p};
        status = tree_error(t, tree_put(c, key, data, 0), "cannot write the catalog", e);
    }
    return status;
}

/* Makes the second copies of definitions, as meta_put writes them. */
static int copy_records(txn *t, const old_record *records, size_t n, err *e) {
    tree_cursor *c;
    buf b = {0};
    int status = txn_fixed(t, TREE_META, &c, e);
    for (size_t i = 0; i < n && !status; i++) {
        const char *p = records[i].key.p;
        catalog_copy_key name;
        uint32_t id;
        if (records[i].key.n != 5 || *p == 'S')
            continue;
        memcpy(&id, p + 1, 4);
        str key = catalog_make_copy_key(&name, *p, __builtin_bswap32(id));
        buf_clear(&b);
        put_str(&b, key);
        buf_append_str(&b, records[i].data);
        int rc = tree_put(c, (MDB_val){key.n, (void *)(uintptr_t)key.p}, (MDB_val){b.n, b.p}, 0);
        status = tree_error(t, rc, "cannot write the catalog", e);
    }
    buf_free(&b);
    return status;
}

int catalog_upgrade(txn *t, err *e) {
    if (t->format == FORMAT_VERSION)
        return 0;
    arena *a = arena_new();
    old_record *objects = NULL, *meta = NULL;
    size_t nobjects = 0, nmeta = 0;
    int status = read_old(t, TREE_CATALOG, a, &objects, &nobjects, e);
    if (!status)
        status = read_old(t, TREE_META, a, &meta, &nmeta, e);
    if (!status)
        status = txn_empty_fixed(t, TREE_CATALOG, e);
    if (!status)
        status = txn_empty_fixed(t, TREE_META, e);
    t->format = FORMAT_VERSION; /* from here on these trees have checksums */
    if (!status)
        status = write_new(t, TREE_CATALOG, objects, nobjects, e);
    if (!status)
        status = write_new(t, TREE_META, meta, nmeta, e);
    if (!status)
        status = copy_records(t, objects, nobjects, e);
    if (!status)
        status = catalog_raise_cookie(t, t->snap->next_id, e);
    if (!status)
        status = txn_load_catalog(t, e);
    free(objects);
    free(meta);
    arena_free(a);
    return status;
}
