/*
 * storage_cache_int.h - what the cache's tests share: blocks whose bytes tell their number.
 */
#ifndef STORAGE_CACHE_INT_H
#define STORAGE_CACHE_INT_H

#include "cache/cache_int.h"
#include "storage_help_int.h"

enum { BLOCK = 60000 };

__attribute__((unused)) static hash128 key_of(uint64_t n) {
    return hash_128(&n, sizeof n);
}

__attribute__((unused)) static void fill(unsigned char *p, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)(hash_mix(seed, i / 64) >> (i % 8));
}

__attribute__((unused)) static void put_block(cache *c, uint64_t n, uint64_t parent, double cost) {
    static unsigned char block[BLOCK];
    char identity[40];
    fill(block, sizeof block, n);
    snprintf(identity, sizeof identity, "block %d", (int)n);
    cache_put(c, CACHE_KV, key_of(n), str_from(identity), parent ? key_of(parent) : (hash128){0, 0},
              cost, (str){(char *)block, sizeof block});
}

/* Whether the block is there; if so it must be right. */
__attribute__((unused)) static bool has_block(cache *c, uint64_t n) {
    static unsigned char got[BLOCK], want[BLOCK];
    char identity[40];
    snprintf(identity, sizeof identity, "block %d", (int)n);
    if (!cache_get(c, CACHE_KV, key_of(n), str_from(identity), got, sizeof got, NULL))
        return false;
    fill(want, sizeof want, n);
    assert_memory_equal(got, want, sizeof got);
    return true;
}

__attribute__((unused)) static store *open_with(const char *path, size_t budget) {
    store *s = NULL;
    store_options options = {.path = path, .cache_bytes = budget};
    OK(store_open(&options, &s, &e));
    return s;
}

__attribute__((unused)) static cache *cache_of(store *s) {
    cache *c = store_cache(s, &e);
    if (!c)
        fail_msg("%s", e.message);
    return c;
}

__attribute__((unused)) static cache_stats stats_of(cache *c) {
    cache_stats st;
    cache_get_stats(c, &st);
    return st;
}

__attribute__((unused)) static uint32_t hits_of(cache *c, uint64_t n) {
    cache_item *items;
    uint32_t hits = 0;
    arena *a = arena_new();
    size_t count = cache_items(c, CACHE_KV, a, &items);
    for (size_t i = 0; i < count; i++)
        hits = hash128_equal(items[i].key, key_of(n)) ? items[i].hits : hits;
    arena_free(a);
    return hits;
}

#endif
