/* sums.c - checksums of values (format: sums_int.h). */
#define XXH_INLINE_ALL /* most payloads are short: a call would cost more than the hash */
#include <string.h>
#include <xxhash.h>

#include "sums_int.h"

static uint32_t fold(uint64_t h) {
    return (uint32_t)(h ^ h >> 32);
}

static uint64_t hash_key(const sum_rule *r, MDB_val key) {
    if (key.mv_size != 8)
        return XXH3_64bits_withSeed(key.mv_data, key.mv_size, r->seed);
    uint64_t rowid; /* the keys of most values: one multiplication spreads them */
    memcpy(&rowid, key.mv_data, 8);
    rowid = (rowid ^ (uint64_t)r->seed << 32) * 0x9e3779b97f4a7c15u;
    return rowid ^ rowid >> 29;
}

static size_t head_of(const sum_rule *r, size_t n) {
    return r->head_bytes < n ? r->head_bytes : n;
}

static uint32_t sum_of(uint64_t key, const uint8_t *payload, size_t n, size_t size) {
    return fold(XXH3_64bits(payload, n) ^ (key + size * 0x9e3779b97f4a7c15u));
}

void sum_write(const sum_rule *r, MDB_val key, const void *payload, size_t n, uint8_t *out) {
    uint64_t k = hash_key(r, key);
    if (n <= SUM_WHOLE) {
        uint32_t sum = sum_of(k, payload, n, n);
        memcpy(out, &sum, 4);
        return;
    }
    size_t head = head_of(r, n);
    uint32_t sums[2] = {sum_of(k, payload, head, n),
                        sum_of(k, (const uint8_t *)payload + head, n - head, n)};
    memcpy(out, sums, sizeof sums);
}

bool sum_payload(MDB_val stored, MDB_val *payload) {
    size_t n = stored.mv_size, skip = n <= SUM_WHOLE + 4 ? 4 : 8;
    if (n < 4 || (skip == 8 && n <= SUM_WHOLE + 8))
        return false;
    *payload = (MDB_val){n - skip, (uint8_t *)stored.mv_data + skip};
    return true;
}

bool sum_verify(const sum_rule *r, MDB_val key, MDB_val stored, sum_part parts) {
    MDB_val p;
    uint32_t sums[2];
    if (!sum_payload(stored, &p))
        return false;
    uint64_t k = hash_key(r, key);
    if (p.mv_size <= SUM_WHOLE) {
        memcpy(sums, stored.mv_data, 4);
        return !(parts & SUM_HEAD) || sums[0] == sum_of(k, p.mv_data, p.mv_size, p.mv_size);
    }
    memcpy(sums, stored.mv_data, 8);
    size_t head = head_of(r, p.mv_size);
    return (!(parts & SUM_HEAD) || sums[0] == sum_of(k, p.mv_data, head, p.mv_size)) &&
           (!(parts & SUM_TAIL) ||
            sums[1] == sum_of(k, (const uint8_t *)p.mv_data + head, p.mv_size - head, p.mv_size));
}
