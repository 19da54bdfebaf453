/* hash.c - hashes of bytes, by XXH3: a KV block of 23 kB takes a microsecond. */
#include <xxhash.h>

#include "storage/base.h"

uint64_t hash64(const void *p, size_t n, uint64_t seed) {
    return XXH3_64bits_withSeed(n ? p : "", n, seed);
}

hash128 hash_128(const void *p, size_t n) {
    XXH128_hash_t h = XXH3_128bits(n ? p : "", n);
    return (hash128){h.low64, h.high64};
}
