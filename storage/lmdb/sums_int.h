/*
 * sums_int.h - the checksums in front of every value of tables.mdb since format version 2.
 *
 *   payload up to SUM_WHOLE bytes:  | sum u32 | payload |
 *   longer payload:                 | head u32 | tail u32 | payload |
 *
 * sum covers the tree's seed, the key and the payload. Of a longer payload, `head` covers the
 * seed, the key, the payload's size and its first `head_bytes` bytes, `tail` the rest, so that a
 * scan that reads no text of a long row need not read the row's overflow pages. All are XXH3.
 */
#ifndef KVASIR_SUMS_INT_H
#define KVASIR_SUMS_INT_H

#include <lmdb.h>
#include <stdbool.h>
#include <stdint.h>

enum { SUM_WHOLE = 1024 };

typedef struct sum_rule {
    uint32_t seed;     /* differs between trees, so that another tree's page is noticed */
    size_t head_bytes; /* of payloads longer than SUM_WHOLE */
} sum_rule;

typedef enum sum_part { SUM_HEAD = 1, SUM_TAIL = 2, SUM_BOTH = 3 } sum_part;

/* Number of bytes in front of a payload of n bytes: 4 or 8. */
static inline size_t sum_bytes(size_t n) {
    return n <= SUM_WHOLE ? 4 : 8;
}
/* Writes the sums of a payload of n bytes to out[sum_bytes(n)]. */
void sum_write(const sum_rule *r, MDB_val key, const void *payload, size_t n, uint8_t *out);
/* Sets *payload to the payload of a stored value; false: no value has this size. */
bool sum_payload(MDB_val stored, MDB_val *payload);
/* Whether the sums of a stored value are right. A short value has one sum, checked with SUM_HEAD. */
bool sum_verify(const sum_rule *r, MDB_val key, MDB_val stored, sum_part parts);

#endif
