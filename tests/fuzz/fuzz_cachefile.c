/*
 * fuzz_cachefile.c - any bytes as a cache.mdb: the check neither reads outside them nor runs
 * forever.
 */
#include "cache/cache_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    err e;
    cache_check_bytes(data, size, &e);
    return 0;
}
