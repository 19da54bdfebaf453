/*
 * index_build.c - builds the index of a table that has rows.
 *
 *   keys   the key of every row, each after its length (spilling)
 *   items  {prefix, key}, sorted by key (spilling)
 *
 * All keys are sorted before the first is written: LMDB appends sorted keys several times faster
 * than it inserts others, and fills its pages. Invariant: the tree is empty at first. The pages that
 * LMDB changes are on its own heap until the transaction ends, at most 512 MB; no limit of ours
 * counts them.
 */
#include <stdlib.h>
#include <string.h>

#include "tables_int.h"

enum {
    BLOCK_BYTES = 16 << 10,    /* allocated at once for keys */
    DEFAULT_MEMORY = 64 << 20, /* heap of a build that has no budget */
    KEY_LEAST = 1 + KEY_ROWID, /* bytes of the shortest key, that of a NULL */
    LENGTH_BYTES = sizeof(uint16_t)
};

/* A key to be written. Items of different prefixes are compared without reading the keys. */
typedef struct build_item {
    uint64_t prefix;
    const uint8_t *key; /* its length, then its bytes */
} build_item;

typedef struct build {
    mem_budget *memory;
    arena *keys;
    uint8_t *block; /* where the next key is written */
    size_t left;    /* bytes left of this block */
    mem_array items;
    size_t n; /* number of items */
    const atomic_bool *cancel;
} build;

static MDB_val item_key(const build_item *item) {
    uint16_t n;
    memcpy(&n, item->key, LENGTH_BYTES);
    return (MDB_val){n, (void *)(uintptr_t)(item->key + LENGTH_BYTES)};
}

/* Keys begin with a byte that is 0 for NULL, else always the same. */
static uint64_t key_prefix(const buf *key) {
    uint64_t bits;
    _Static_assert(KEY_LEAST >= 1 + sizeof bits, "every key has a prefix");
    memcpy(&bits, key->p + 1, sizeof bits);
    return (uint64_t)(key->p[0] != 0) << 63 | __builtin_bswap64(bits) >> 1;
}

static int compare_items(const void *pa, const void *pb) {
    const build_item *a = pa, *b = pb;
    if (a->prefix != b->prefix)
        return a->prefix < b->prefix ? -1 : 1;
    MDB_val x = item_key(a), y = item_key(b);
    return str_compare((str){x.mv_data, x.mv_size}, (str){y.mv_data, y.mv_size});
}

static int build_add(build *b, const buf *key, err *e) {
    size_t bytes = LENGTH_BYTES + key->n, room = b->items.bytes / sizeof(build_item);
    uint16_t n = (uint16_t)key->n; /* at most KEY_CUT_BYTES */
    if (b->n == room) {
        size_t more = BASE_MAX(room * 2, (size_t)64);
        int status = mem_array_resize(&b->items, b->memory, sizeof(build_item) * more, e);
        if (status)
            return status;
    }
    if (b->left < bytes) {
        b->left = BLOCK_BYTES;
        b->block = arena_alloc(b->keys, b->left);
    }
    memcpy(b->block, &n, LENGTH_BYTES);
    memcpy(b->block + LENGTH_BYTES, key->p, key->n);
    ((build_item *)b->items.p)[b->n++] = (build_item){key_prefix(key), b->block};
    b->block += bytes;
    b->left -= bytes;
    return arena_full_error(b->keys, e);
}

static int build_read(build *b, txn *t, const table_info *info, int index, value *row, err *e) {
    txn_tree *tree;
    MDB_val key, data;
    int status = txn_rows(t, info, &tree, e);
    if (status)
        return status;
    int rc = tree_get(&tree->cursor, &key, &data, MDB_FIRST);
    for (; rc == 0; rc = tree_get(&tree->cursor, &key, &data, MDB_NEXT)) {
        if ((rc = tree_whole_value(&tree->cursor, key, data)) != 0)
            break;
        int64_t rowid = rowid_get(key.mv_data);
        if ((status = check_cancel(b->cancel, e)) != 0 ||
            (status = row_decode(&info->layout, data, rowid, row, e)) != 0)
            return status;
        key_make(&t->key, info->def, &info->def->indexes[index], row, rowid);
        if ((status = build_add(b, &t->key, e)) != 0)
            return status;
    }
    return rc == MDB_NOTFOUND ? 0 : tree_error(t, rc, "cannot read a table", e);
}

static int build_write(const build *b, txn *t, const table_info *info, int index, value *row,
                       err *e) {
    const index_def *x = &info->def->indexes[index];
    tree_cursor *c;
    const build_item *items = b->items.p;
    bool found = true;
    int status = txn_index(t, info, index, &c, e);
    for (size_t i = 0; i < b->n && status == 0; i++) {
        MDB_val key = item_key(&items[i]);
        if ((status = check_cancel(b->cancel, e)) != 0)
            return status;
        if (x->lists) /* the entry has the row's vector */
            status = table_get(t, info->def, key_rowid(key), row, &found, e);
        if (status == 0)
            status = index_put_entry(t, c, x, key, row, MDB_APPEND, e);
    }
    return status;
}

/* Finds duplicates: neighbouring entries with equal keys. If the keys were cut, equal hashes do not
 * prove equal cells, so the rows are compared. */
static int build_check(txn *t, const table_info *info, int index, value *row,
                       const atomic_bool *cancel, err *e) {
    const index_def *x = &info->def->indexes[index];
    tree_cursor *shared, c;
    MDB_val key, data;
    buf last = {0};
    int rc, status = txn_index(t, info, index, &shared, e);
    if (!status)
        status = tree_cursor_copy(shared, &c, e);
    if (status)
        return status;
    for (rc = tree_get(&c, &key, &data, MDB_FIRST); rc == 0 && !status;
         rc = tree_get(&c, &key, &data, MDB_NEXT)) {
        size_t n = key.mv_size - KEY_ROWID;
        bool same = last.n == n && memcmp(last.p, key.mv_data, n) == 0, found = false;
        buf_clear(&last);
        buf_append(&last, key.mv_data, n);
        status = check_cancel(cancel, e);
        if (status || !same)
            continue;
        int64_t rowid = key_rowid(key), other;
        status = table_get(t, info->def, rowid, row, &found, e);
        if (!status && found)
            status = index_find_equal(t, info, index, row, true, rowid, &other, &found, e);
        if (!status && found)
            status = index_violation(info->def, x, row, e);
    }
    tree_cursor_close(&c);
    buf_free(&last);
    if (!status && rc != MDB_NOTFOUND)
        status = tree_error(t, rc, "cannot read an index", e);
    return status;
}

static int build_in(mem_budget *memory, txn *t, const table_info *info, int index,
                    const atomic_bool *cancel, err *e) {
    const index_def *x = &info->def->indexes[index];
    build b = {.memory = memory, .keys = arena_new_sharing(memory), .cancel = cancel};
    value *row = mem_alloc(sizeof *row * (size_t)info->def->ncolumns);
    int status = build_read(&b, t, info, index, row, e);
    if (status == 0)
        status =
            sort_array_in(memory, b.items.p, b.n, sizeof(build_item), compare_items, cancel, e);
    if (status == 0)
        status = build_write(&b, t, info, index, row, e);
    mem_array_free(&b.items);
    arena_free(b.keys);
    if (status == 0 && (x->unique || x->primary))
        status = build_check(t, info, index, row, cancel, e);
    free(row);
    return status;
}

int index_build(txn *t, const table_info *info, int index, mem_budget *memory,
                const atomic_bool *cancel, err *e) {
    if (memory)
        return build_in(memory, t, info, index, cancel, e);
    mem_budget own = {.space = workmem_new(NULL, -1), .limit_bytes = DEFAULT_MEMORY};
    int status = build_in(&own, t, info, index, cancel, e);
    workmem_free(own.space);
    return status;
}
