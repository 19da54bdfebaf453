/*
 * crash_cache.c - SIGKILL while the cache is written: what was flushed is there unless it was
 * evicted, nothing is ever wrong, the file's pages are whole.
 *
 * The writer puts blocks in chains within a small budget, so that eviction and reuse of pages are
 * always at work, flushes now and then and acknowledges the last block flushed.
 */
#include <sys/stat.h>

#include "crash_int.h"

enum { BLOCK = 30000, BUDGET = 3 << 20, CHAIN = 10 };

static err e;

static hash128 key_of(int64_t n) {
    return hash_128(&n, sizeof n);
}

static void fill(unsigned char *p, int64_t n) {
    for (size_t i = 0; i < BLOCK; i++)
        p[i] = (unsigned char)((uint64_t)n * 2654435761u >> (i % 24)) ^ (unsigned char)i;
}

/* Half of the writers evict by what is used last, so that what was flushed last must be there; the
 * others by cost, as users do, where it may have gone for what is read more often. */
static cache_policy policy_of(uint64_t seed) {
    return seed % 2 ? CACHE_COST : CACHE_LRU;
}

static cache *open_cache(const char *dir, cache_policy policy, store **s) {
    store_options options = {.path = dir, .cache_bytes = BUDGET};
    CHECK(store_open(&options, s, &e) == 0, "%s", e.message);
    cache *c = store_cache(*s, &e);
    CHECK(c, "%s", e.message);
    cache_configure(c, BUDGET, policy);
    return c;
}

static void put(cache *c, int64_t n) {
    static unsigned char block[BLOCK];
    fill(block, n);
    str identity = {(const char *)&n, sizeof n};
    hash128 parent = n % CHAIN ? key_of(n - 1) : (hash128){0, 0};
    cache_put(c, CACHE_KV, key_of(n), identity, parent, 1, (str){(const char *)block, BLOCK});
    cache_put(c, CACHE_ANSWERS, key_of(n), identity, (hash128){0, 0}, 1, identity);
}

/* Whether block n is there; a wrong one ends the test. */
static bool get(cache *c, int64_t n) {
    static unsigned char got[BLOCK], want[BLOCK];
    str identity = {(const char *)&n, sizeof n};
    buf answer = {0};
    bool block = cache_get(c, CACHE_KV, key_of(n), identity, got, BLOCK, NULL);
    bool known = cache_get(c, CACHE_ANSWERS, key_of(n), identity, NULL, 0, &answer);
    fill(want, n);
    CHECK(!block || memcmp(got, want, BLOCK) == 0, "block %lld is another", (long long)n);
    CHECK(!known || str_equal(buf_str(&answer), identity), "answer %lld is another", (long long)n);
    buf_free(&answer);
    return block;
}

static int writer(const char *dir, const char *seed) {
    crash_state = strtoull(seed, NULL, 10);
    store *s = NULL;
    cache *c = open_cache(dir, policy_of(crash_state), &s);
    for (int64_t n = crash_random(1000) * CHAIN;; n++) {
        put(c, n);
        if (crash_random(6))
            continue;
        cache_flush(c);
        get(c, n - crash_random(20));
        CHECK(write(STDOUT_FILENO, &n, sizeof n) == sizeof n, "cannot acknowledge");
    }
}

static void check(const char *dir, int64_t acknowledged, int64_t *kept) {
    char file[600];
    struct stat st;
    snprintf(file, sizeof file, "%s/cache.mdb", dir);
    CHECK(cache_check(file, &e) == 0, "%s", e.message);
    store *s = NULL;
    cache *c = open_cache(dir, policy_of(crash_seed), &s);
    for (int64_t n = acknowledged - 100; n < acknowledged + 40; n++)
        get(c, n);
    if (policy_of(crash_seed) == CACHE_LRU)
        *kept += get(c, acknowledged);
    cache_stats stats;
    cache_get_stats(c, &stats);
    CHECK(stats.corrupt == 0, "%llu entries were off", (unsigned long long)stats.corrupt);
    put(c, -5);
    cache_flush(c);
    CHECK(get(c, -5), "cannot write after a kill");
    store_close(s);
    CHECK(stat(file, &st) == 0 && st.st_size < BUDGET * 5 + (16 << 20),
          "the file has grown to %lld bytes", (long long)st.st_size);
}

static int64_t kept, by_use, kills;

static void round_of_killing(const char *database) {
    int64_t acknowledged = crash_kill_writer(database, 60);
    check(database, acknowledged, &kept);
    by_use += policy_of(crash_seed) == CACHE_LRU;
    kills++;
}

int main(int argc, char **argv) {
    int status = crash_main(argc, argv, &(crash_test){writer, round_of_killing, 50});
    printf("%lld kills; evicting by use, the last block flushed was there after %lld of %lld\n",
           (long long)kills, (long long)kept, (long long)by_use);
    CHECK(kept >= by_use * 9 / 10, "flushed blocks are lost");
    return status;
}
