/* hash.c - hashes over bytes; XXH3 so that a 23 kB KV block costs a microsecond. */
#include <xxhash.h>

#include "storage/base.h"

uint64_t hash64(const void *p, size_t n, uint64_t seed) {
    return XXH3_64bits_withSeed(n ? p : "", n, seed);
}

hash128 hash_128(const void *p, size_t n) {
    XXH128_hash_t h = XXH3_128bits(n ? p : "", n);
    return (hash128){h.low64, h.high64};
}
