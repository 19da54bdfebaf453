/*
 * hash_table.c - keeps distinct rows of keys in a rowset, and finds them by a hash index
 * (storage/containers.h).
 *
 * Invariant: entry k's keys are row k of `keys`, and no two entries have equal keys (NULL = NULL,
 * -0.0 = 0.0, NaN = NaN).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "cells_int.h"
#include "hash_table_int.h"
#include "storage/containers.h"

struct hash_table {
    int nkeys;
    mem_budget *memory;
    rowset *keys;
    hash_index index;             /* finds entries by the hash of their keys */
    mem_array slots;              /* memory of `index` */
    uint64_t hashes[BATCH_ROWS];  /* hashes of the rows being added or looked up */
    uint32_t entries[BATCH_ROWS]; /* scratch of hash_table_add_new */
};

hash_table *hash_table_new(mem_budget *memory, const value_type *types, int nkeys) {
    hash_table *h = mem_alloc(sizeof *h);
    h->nkeys = nkeys;
    h->memory = memory;
    h->keys = rowset_new_in(memory, types, nkeys);
    h->index = (hash_index){0};
    h->slots = (mem_array){0};
    return h;
}

void hash_table_free(hash_table *h) {
    if (!h)
        return;
    rowset_free(h->keys);
    mem_array_free(&h->slots);
    free(h);
}

uint32_t hash_table_count(const hash_table *h) {
    return h->index.count;
}

const rowset *hash_table_keys(const hash_table *h) {
    return h->keys;
}

static uint64_t hash_real(double r) {
    uint64_t bits;
    r += 0.0; /* -0.0 becomes 0.0 */
    memcpy(&bits, &r, sizeof bits);
    return hash_mix(2, bits);
}

static void hash_column(const column *c, int rows, bool first, uint64_t *out) {
    for (int k = 0; k < rows; k++) {
        uint64_t h = 0x6b7661736972u;
        if (!cell_is_null(c, k)) {
            if (type_is_bytes(c->type))
                h = hash64(c->s[k].p, c->s[k].n, 0);
            else
                h = c->type == TYPE_REAL ? hash_real(c->r[k]) : hash_mix(1, (uint64_t)c->i[k]);
        }
        out[k] = first ? h : hash_mix(out[k], h);
    }
}

static void hash_rows(hash_table *h, const column *keys, int rows) {
    assert(rows <= BATCH_ROWS);
    if (h->nkeys == 0)
        memset(h->hashes, 0, sizeof *h->hashes * (size_t)rows);
    for (int c = 0; c < h->nkeys; c++)
        hash_column(&keys[c], rows, c == 0, h->hashes);
}

static bool cells_equal(const column *a, int i, const column *b, int j) {
    bool a_null = cell_is_null(a, i), b_null = cell_is_null(b, j);
    if (a_null || b_null)
        return a_null && b_null;
    switch (a->type) {
    case TYPE_TEXT:
    case TYPE_BLOB:
    case TYPE_VECTOR:
        return str_equal(a->s[i], b->s[j]);
    case TYPE_REAL:
        return a->r[i] == b->r[j] || (a->r[i] != a->r[i] && b->r[j] != b->r[j]);
    default:
        return a->i[i] == b->i[j];
    }
}

static bool entry_equals(const hash_table *h, uint32_t entry, const column *keys, int row) {
    if (h->nkeys == 0)
        return true;
    const batch *b = rowset_batch(h->keys, (int)(entry / BATCH_ROWS));
    for (int c = 0; c < h->nkeys; c++)
        if (!cells_equal(&b->cols[c], (int)(entry % BATCH_ROWS), &keys[c], row))
            return false;
    return true;
}

/* Returns the entry of a row's keys, or HASH_NONE. */
static uint32_t find_entry(const hash_table *h, uint64_t hash, const column *keys, int row) {
    for (const hash_slot *s = hash_index_first(&h->index, hash); s;
         s = hash_index_next(&h->index, s))
        if (entry_equals(h, s->item, keys, row))
            return s->item;
    return HASH_NONE;
}

/* Makes room for one more entry. */
static int make_room(hash_table *h, err *e) {
    uint32_t n = hash_index_slots_for(&h->index, h->index.count + 1);
    mem_array slots = {0};
    int status = n ? mem_array_resize(&slots, h->memory, sizeof(hash_slot) * n, e) : 0;
    if (n == 0 || status)
        return status;
    if (!hash_index_move(&h->index, slots.p, n, h->memory->cancel)) {
        mem_array_free(&slots);
        return err_set(e, ERR_CANCELLED, "cancelled");
    }
    mem_array_free(&h->slots);
    h->slots = slots;
    return 0;
}

static int add_entry(hash_table *h, uint64_t hash, const column *keys, int row, err *e) {
    uint32_t n = h->index.count;
    if (n == HASH_INDEX_MAX)
        return err_set(e, ERR_LIMIT, "too many distinct keys: at most 1,073,741,824 are supported");
    int status = make_room(h, e);
    if (status)
        return status;
    hash_index_add(&h->index, hash, n);
    rowset_push(h->keys, keys, row);
    return 0;
}

int hash_table_add(hash_table *h, const column *keys, int rows, uint32_t *entries, err *e) {
    hash_rows(h, keys, rows);
    for (int k = 0; k < rows; k++) {
        entries[k] = find_entry(h, h->hashes[k], keys, k);
        if (entries[k] != HASH_NONE)
            continue;
        entries[k] = h->index.count;
        int status = add_entry(h, h->hashes[k], keys, k, e);
        if (status)
            return status;
    }
    return rowset_full_error(h->keys, e);
}

int hash_table_add_new(hash_table *h, const column *keys, int rows, int *new_rows, int *count,
                       err *e) {
    uint32_t next = h->index.count;
    *count = 0;
    int status = hash_table_add(h, keys, rows, h->entries, e);
    for (int k = 0; k < rows && status == 0; k++)
        if (h->entries[k] == next) {
            new_rows[(*count)++] = k;
            next++;
        }
    return status;
}

void hash_table_find(hash_table *h, const column *keys, int rows, bool nulls_match,
                     int64_t *entries) {
    hash_rows(h, keys, rows);
    for (int k = 0; k < rows; k++) {
        bool matches = nulls_match || !row_has_null(keys, h->nkeys, k);
        uint32_t entry = matches ? find_entry(h, h->hashes[k], keys, k) : HASH_NONE;
        entries[k] = entry == HASH_NONE ? -1 : (int64_t)entry;
    }
}
