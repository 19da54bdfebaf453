/*
 * hash_table.c - open addressing over entries whose keys are kept as rows.
 *
 *   slots   [0 0 7 0 3 …]  entry + 1, linear probing, at most half full
 *   hashes  one per entry: compared before the keys, and what growing needs
 *   keys    a rowset: entry k is row k
 *
 * Invariant: two entries never have equal keys (NULL = NULL, -0.0 = 0.0).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "hash_table_int.h"

struct hash_table {
    int nkeys;
    rowset *keys;
    uint32_t *slots;
    uint64_t *hashes;
    uint32_t nslots, count, capacity;
    uint64_t scratch[BATCH_ROWS];
};

hash_table *hash_table_new(const exec_ctx *ctx, const value_type *types, int nkeys) {
    hash_table *h = mem_alloc(sizeof *h);
    h->nkeys = nkeys;
    h->keys = rowset_new(ctx, types, nkeys);
    h->nslots = 256;
    h->slots = mem_zalloc(sizeof *h->slots * h->nslots);
    h->capacity = h->nslots / 2;
    h->hashes = mem_alloc(sizeof *h->hashes * h->capacity);
    h->count = 0;
    return h;
}

void hash_table_free(hash_table *h) {
    if (!h)
        return;
    rowset_free(h->keys);
    free(h->slots);
    free(h->hashes);
    free(h);
}

uint32_t hash_table_count(const hash_table *h) {
    return h->count;
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
        if (c->type != TYPE_NULL && !column_is_null(c, k)) {
            if (c->type == TYPE_TEXT || c->type == TYPE_BLOB)
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
        memset(h->scratch, 0, sizeof *h->scratch * (size_t)rows);
    for (int c = 0; c < h->nkeys; c++)
        hash_column(&keys[c], rows, c == 0, h->scratch);
}

static bool cells_equal(const column *a, int i, const column *b, int j) {
    bool a_null = a->type == TYPE_NULL || column_is_null(a, i);
    bool b_null = b->type == TYPE_NULL || column_is_null(b, j);
    if (a_null || b_null)
        return a_null && b_null;
    switch (a->type) {
    case TYPE_TEXT:
    case TYPE_BLOB:
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

/* The slot where the key is, or the empty one where it belongs. */
static uint32_t find_slot(const hash_table *h, uint64_t hash, const column *keys, int row) {
    uint32_t mask = h->nslots - 1, at = (uint32_t)hash & mask;
    for (;; at = (at + 1) & mask) {
        uint32_t entry = h->slots[at];
        if (entry == 0 || (h->hashes[entry - 1] == hash && entry_equals(h, entry - 1, keys, row)))
            return at;
    }
}

static int grow(hash_table *h, err *e) {
    if (h->nslots >= 1u << 31)
        return err_set(e, ERR_LIMIT, "more than 1,073,741,824 distinct keys");
    uint32_t nslots = h->nslots * 2, mask = nslots - 1;
    uint32_t *slots = mem_try_alloc(sizeof *slots * nslots);
    uint64_t *hashes = slots ? realloc(h->hashes, sizeof *hashes * (nslots / 2)) : NULL;
    if (!hashes) {
        free(slots);
        return err_set(e, ERR_FULL, "not enough memory for %u distinct keys", h->count);
    }
    h->hashes = hashes;
    memset(slots, 0, sizeof *slots * nslots);
    for (uint32_t k = 0; k < h->count; k++) {
        uint32_t at = (uint32_t)hashes[k] & mask;
        while (slots[at])
            at = (at + 1) & mask;
        slots[at] = k + 1;
    }
    free(h->slots);
    h->slots = slots;
    h->nslots = nslots;
    h->capacity = nslots / 2;
    return 0;
}

int hash_table_add(hash_table *h, const column *keys, int rows, uint32_t *entries, err *e) {
    hash_rows(h, keys, rows);
    for (int k = 0; k < rows; k++) {
        uint32_t at = find_slot(h, h->scratch[k], keys, k);
        if (h->slots[at]) {
            entries[k] = h->slots[at] - 1;
            continue;
        }
        if (h->count == h->capacity) {
            int status = grow(h, e);
            if (status)
                return status;
            at = find_slot(h, h->scratch[k], keys, k);
        }
        rowset_push(h->keys, keys, k);
        h->hashes[h->count] = h->scratch[k];
        entries[k] = h->count++;
        h->slots[at] = h->count;
    }
    return rowset_full_error(h->keys, e);
}

static bool has_null(const column *keys, int nkeys, int row) {
    for (int c = 0; c < nkeys; c++)
        if (keys[c].type == TYPE_NULL || column_is_null(&keys[c], row))
            return true;
    return false;
}

void hash_table_find(hash_table *h, const column *keys, int rows, bool nulls_match,
                     int64_t *entries) {
    hash_rows(h, keys, rows);
    for (int k = 0; k < rows; k++) {
        entries[k] = -1;
        if (nulls_match || !has_null(keys, h->nkeys, k))
            entries[k] = (int64_t)h->slots[find_slot(h, h->scratch[k], keys, k)] - 1;
    }
}
