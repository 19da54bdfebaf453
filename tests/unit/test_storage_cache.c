/* test_storage_cache.c - the cache: identity, damage, eviction, versions, failed writes. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "storage_cache_int.h"

static void test_round_trip(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch("trip"));
    store *s = open_with(path, 0);
    cache *c = cache_of(s);
    assert_ptr_equal(cache_of(s), c);
    for (uint64_t i = 1; i <= 50; i++)
        put_block(c, i, i - 1, 1);
    cache_put(c, CACHE_ANSWERS, key_of(1), STR("who"), (hash128){0, 0}, 5, STR("yes"));
    cache_put(c, CACHE_ANSWERS, key_of(2), STR(""), (hash128){0, 0}, 5, STR(""));
    cache_flush(c);
    for (int round = 0; round < 2; round++) {
        for (uint64_t i = 1; i <= 50; i++)
            assert_true(has_block(c, i));
        assert_false(has_block(c, 51));
        buf b = {0};
        buf_append_c(&b, "kept ");
        assert_true(cache_get(c, CACHE_ANSWERS, key_of(1), STR("who"), NULL, 0, &b));
        assert_true(cache_get(c, CACHE_ANSWERS, key_of(2), STR(""), NULL, 0, &b));
        assert_string_equal(b.p, "kept yes");
        buf_free(&b);
        cache_stats st = stats_of(c);
        assert_int_equal(st.blocks, 50);
        assert_int_equal(st.answers, 2);
        assert_int_equal(st.hits, 52);
        assert_int_equal(st.misses, 1);
        assert_true(st.writing);
        if (round == 0) {
            store_close(s);
            char file[600];
            snprintf(file, sizeof file, "%s/cache.mdb", path);
            OK(cache_check(file, &e));
            s = open_with(path, 0);
            c = cache_of(s);
        }
    }
    OK(cache_clear(c, CACHE_KV, &e));
    assert_false(has_block(c, 1));
    assert_int_equal(stats_of(c).blocks, 0);
    assert_int_equal(stats_of(c).answers, 2);
    put_block(c, 1, 0, 1);
    cache_flush(c);
    assert_true(has_block(c, 1));
    store_close(s);
}

static void test_another_identity_is_a_miss(void **state) {
    (void)state;
    store *s = open_with(scratch("identity"), 0);
    cache *c = cache_of(s);
    buf b = {0};
    cache_put(c, CACHE_ANSWERS, key_of(1), STR("model A"), (hash128){0, 0}, 5, STR("yes"));
    cache_flush(c);
    assert_false(cache_get(c, CACHE_ANSWERS, key_of(1), STR("model B"), NULL, 0, &b));
    assert_int_equal(b.n, 0);
    cache_put(c, CACHE_ANSWERS, key_of(1), STR("model B"), (hash128){0, 0}, 5, STR("no"));
    cache_flush(c);
    assert_true(cache_get(c, CACHE_ANSWERS, key_of(1), STR("model B"), NULL, 0, &b));
    assert_string_equal(b.p, "no");
    put_block(c, 7, 0, 1);
    cache_flush(c);
    char small[10];
    assert_false(cache_get(c, CACHE_KV, key_of(7), STR("block 7"), small, sizeof small, NULL));
    assert_int_equal(stats_of(c).corrupt, 2);
    buf_free(&b);
    store_close(s);
}

static void test_budget_is_kept(void **state) {
    (void)state;
    static const cache_policy policies[] = {CACHE_FIFO, CACHE_LRU, CACHE_COST};
    enum { BUDGET = 4 << 20 };
    for (size_t p = 0; p < BASE_COUNT(policies); p++) {
        char path[512];
        snprintf(path, sizeof path, "%s/budget%d", scratch_dir, (int)p);
        store *s = open_with(path, BUDGET);
        cache *c = cache_of(s);
        cache_configure(c, BUDGET, policies[p]);
        put_block(c, 1, 0, 1000); /* dear and used */
        for (uint64_t i = 2; i < 400; i++) {
            put_block(c, i, 0, 1);
            cache_flush(c);
            if (i < 30 || policies[p] == CACHE_LRU)
                has_block(c, 1);
            assert_true(stats_of(c).bytes <= BUDGET);
        }
        cache_stats st = stats_of(c);
        assert_true(st.evicted > 300);
        assert_int_equal(st.dropped, 0);
        assert_int_equal(has_block(c, 1), policies[p] != CACHE_FIFO);
        assert_true(has_block(c, 399));
        assert_false(has_block(c, 2));
        struct stat file;
        snprintf(path, sizeof path, "%s/budget%d/cache.mdb", scratch_dir, (int)p);
        assert_int_equal(stat(path, &file), 0);
        assert_true(file.st_size <= (off_t)cache_map_bytes(BUDGET));
        store_close(s);
        OK(cache_check(path, &e));
    }
}

static bool has_answer(cache *c, uint64_t n, size_t bytes) {
    static unsigned char want[4096];
    buf got = {0};
    fill(want, bytes, n);
    bool found = cache_get(c, CACHE_ANSWERS, key_of(n), STR("answer"), NULL, 0, &got);
    if (found) {
        assert_int_equal(got.n, bytes);
        assert_memory_equal(got.p, want, bytes);
    }
    buf_free(&got);
    return found;
}

/* A budget that no address space holds leaves the cache as it was. */
static void test_budget_beyond_all_bounds(void **state) {
    (void)state;
    store *s = open_with(scratch("boundless"), 0);
    cache *c = cache_of(s);
    uint64_t before = stats_of(c).budget_bytes;
    put_block(c, 1, 0, 1);
    cache_flush(c);
    assert_false(cache_configure(c, (size_t)1 << 62, CACHE_LRU));
    assert_int_equal(stats_of(c).budget_bytes, before);
    assert_true(has_block(c, 1));
    put_block(c, 2, 0, 1);
    cache_flush(c);
    assert_true(has_block(c, 2));
    assert_true(cache_configure(c, before / 2, CACHE_LRU));
    assert_int_equal(stats_of(c).budget_bytes, before / 2);
    assert_true(has_block(c, 1));
    store_close(s);
}

static void put_answers(cache *c, uint64_t from, uint64_t to, size_t bytes) {
    static unsigned char answer[4096];
    for (uint64_t i = from; i < to; i++) {
        fill(answer, bytes, i);
        cache_put(c, CACHE_ANSWERS, key_of(i), STR("answer"), (hash128){0, 0}, 1,
                  (str){(char *)answer, bytes});
        if (i % 1000 == 0)
            cache_flush(c);
    }
    cache_flush(c);
}

/* Trees of small values under hashes are emptier, and change more pages at once, than their bytes
 * say: what comes later is kept all the same, and what comes last is there. */
static void test_small_answers_come_and_go(void **state) {
    (void)state;
    static const size_t sizes[] = {60, 500, 1600, 2300};
    enum { BUDGET = 18 << 20, TIMES = 4 };
    for (size_t k = 0; k < BASE_COUNT(sizes); k++) {
        char path[512], file[600];
        struct stat st;
        snprintf(path, sizeof path, "%s/small%d", scratch_dir, (int)k);
        snprintf(file, sizeof file, "%s/cache.mdb", path);
        store *s = open_with(path, BUDGET);
        cache *c = cache_of(s);
        uint64_t fits = BUDGET / (sizes[k] + sizes[k] / 2 + 1000), all = fits * TIMES;
        cache_configure(c, BUDGET, CACHE_LRU);
        put_answers(c, 0, all, sizes[k]);
        cache_stats now = stats_of(c);
        assert_int_equal(now.dropped, 0);
        assert_int_equal(now.written, all);
        assert_true(now.evicted > 0 && now.answers == all - now.evicted);
        for (uint64_t i = 0; i < all; i++)
            assert_int_equal(has_answer(c, i, sizes[k]), i >= now.evicted);
        assert_true(now.answers > fits / 2);
        assert_int_equal(stat(file, &st), 0);
        assert_true(st.st_size <= (off_t)cache_map_bytes(BUDGET));
        store_close(s); /* what was read last is on record, for more entries than one transaction */
        OK(cache_check(file, &e));
        s = open_with(path, BUDGET);
        c = cache_of(s);
        cache_configure(c, BUDGET, CACHE_LRU);
        assert_int_equal(stats_of(c).answers, now.answers);
        put_answers(c, all, all + fits / 8, sizes[k]);
        assert_int_equal(stats_of(c).dropped, 0);
        assert_true(has_answer(c, all - 1, sizes[k]));
        cache_configure(c, BUDGET / 3, CACHE_LRU); /* in a file that was made for more */
        put_answers(c, all + fits, all + fits + fits / 8, sizes[k]);
        assert_true(stats_of(c).bytes <= BUDGET / 3);
        assert_int_equal(stats_of(c).dropped, 0);
        store_close(s);
        OK(cache_check(file, &e));
    }
}

/* A chain is evicted from its end: what is left is always reachable. */
static void test_leaves_go_first(void **state) {
    (void)state;
    cache_index x = {.free = -1};
    for (uint64_t i = 1; i <= 100; i++)
        index_add(&x, CACHE_KV, key_of(i), i > 1 ? key_of(i - 1) : (hash128){0, 0}, (double)i,
                  1000);
    cache_entry *victims[100];
    size_t n = index_victims(&x, CACHE_FIFO, 10000, victims, 100);
    assert_int_equal(n, 10);
    for (size_t i = 0; i < n; i++)
        assert_true(hash128_equal(victims[i]->key, key_of(100 - i)));
    for (size_t i = 0; i < n; i++)
        index_remove(&x, victims[i]);
    assert_int_equal(x.live, 90);
    assert_null(index_find(&x, CACHE_KV, key_of(95)));
    assert_int_equal(index_find(&x, CACHE_KV, key_of(90))->children, 0);
    assert_int_equal(index_find(&x, CACHE_KV, key_of(89))->children, 1);
    index_free(&x);
}

static void put_blocks(cache *c, uint64_t from, uint64_t to) {
    for (uint64_t i = from; i < to; i++) {
        put_block(c, i, 0, 1);
        cache_flush(c);
    }
}

/* What is counted as blocks come and go is what a walk over them finds. */
static void expect_counted(cache *c) {
    arena *a = arena_new();
    cache_item *items;
    cache_space_stats counted = stats_of(c).of[CACHE_KV], found = {0};
    found.entries = cache_items(c, CACHE_KV, a, &items);
    for (size_t i = 0; i < found.entries; i++)
        found.bytes += items[i].bytes;
    arena_free(a);
    assert_int_equal(counted.entries, found.entries);
    assert_int_equal(counted.bytes, found.bytes);
    assert_int_equal(counted.pinned_bytes * found.entries, counted.pinned * found.bytes);
}

/* Pinned blocks stay while others come and go, for as long as any name holds them. */
static void test_pins_outlast_eviction(void **state) {
    (void)state;
    enum { BUDGET = 4 << 20, PINNED = 20 };
    store *s = open_with(scratch("pins"), BUDGET);
    cache *c = cache_of(s);
    hash128 keys[PINNED + 1];
    cache_pins pins;
    for (uint64_t i = 0; i < PINNED; i++) {
        put_block(c, i + 1, i, 1); /* a chain */
        keys[i] = key_of(i + 1);
    }
    keys[PINNED] = key_of(999); /* not stored: left out */
    OK(cache_pin(c, STR("Few"), keys, PINNED + 1, &pins, &e));
    assert_int_equal(pins.blocks, PINNED);
    OK(cache_pin(c, STR("other"), keys, 3, &pins, &e));
    assert_int_equal(stats_of(c).of[CACHE_KV].pinned, PINNED);
    expect_counted(c);
    put_blocks(c, 100, 300);
    store_close(s);
    s = open_with(scratch("pins"), BUDGET); /* another session knows them, too */
    c = cache_of(s);
    put_blocks(c, 300, 500);
    assert_true(stats_of(c).evicted > 100 && stats_of(c).bytes <= BUDGET);
    assert_int_equal(stats_of(c).of[CACHE_KV].pinned, PINNED);
    expect_counted(c);
    for (uint64_t i = 1; i <= PINNED; i++)
        assert_true(has_block(c, i));
    OK(cache_unpin(c, STR("few"), &pins, &e));
    assert_int_equal(pins.records, PINNED);
    OK(cache_unpin(c, STR("few"), &pins, &e));
    assert_int_equal(pins.records, 0);
    cache_configure(c, BUDGET, CACHE_FIFO);
    put_blocks(c, 500, 700);
    for (uint64_t i = 1; i <= PINNED; i++)
        assert_int_equal(has_block(c, i), i <= 3);
    assert_int_equal(stats_of(c).of[CACHE_KV].pinned, 3);
    expect_counted(c);
    OK(cache_clear(c, CACHE_KV, &e));
    assert_int_equal(stats_of(c).of[CACHE_KV].pinned, 0);
    OK(cache_unpin(c, STR("other"), &pins, &e));
    assert_int_equal(pins.records, 0);
    store_close(s);
}

/* More than half of the budget is refused, and then nothing is pinned. */
static void test_pins_are_bounded(void **state) {
    (void)state;
    enum { BUDGET = 4 << 20, MANY = 50 };
    store *s = open_with(scratch("many-pins"), BUDGET);
    cache *c = cache_of(s);
    hash128 keys[MANY];
    cache_pins pins;
    put_blocks(c, 1, MANY + 1);
    for (uint64_t i = 0; i < MANY; i++)
        keys[i] = key_of(i + 1);
    assert_int_equal(cache_pin(c, STR("many"), keys, MANY, &pins, &e), ERR_FULL);
    assert_int_equal(stats_of(c).of[CACHE_KV].pinned, 0);
    OK(cache_pin(c, STR("many"), keys, MANY / 2, &pins, &e));
    assert_int_equal(stats_of(c).of[CACHE_KV].pinned, MANY / 2);
    assert_int_equal(cache_pin(c, STR("more"), keys + MANY / 2, MANY / 2, &pins, &e), ERR_FULL);
    assert_int_equal(stats_of(c).of[CACHE_KV].pinned, MANY / 2);
    store_close(s);
}

/* Reads of a skewed set among blocks that are read once, in a cache for a tenth of them. */
static double hit_rate(cache_policy policy) {
    enum { KEYS = 2000, ROOM = 200, READS = 60000 };
    cache_index x = {.free = -1};
    uint64_t seed = 5, once = KEYS;
    int hits = 0;
    for (int i = 0; i < READS; i++) {
        seed = hash_mix(seed, (uint64_t)i);
        double u = (double)(seed >> 11) / 9007199254740992.0;
        /* key k of the skewed set is read in proportion to 1 / (k + 1) */
        uint64_t n = seed % 10 < 3 ? once++ : (uint64_t)(pow(KEYS, u) - 1);
        cache_entry *entry = index_find(&x, CACHE_KV, key_of(n));
        if (entry) {
            index_touch(&x, entry);
            hits++;
            continue;
        }
        if (x.live == ROOM) {
            cache_entry *victims[8];
            size_t count = index_victims(&x, policy, 8000, victims, 8);
            for (size_t k = 0; k < count; k++)
                index_remove(&x, victims[k]);
        }
        index_add(&x, CACHE_KV, key_of(n), (hash128){0, 0}, 1, 1000);
        index_note(&x, CACHE_KV, key_of(n));
    }
    index_free(&x);
    return (double)hits / READS;
}

static void test_cost_beats_recency(void **state) {
    (void)state;
    double fifo = hit_rate(CACHE_FIFO), lru = hit_rate(CACHE_LRU), cost = hit_rate(CACHE_COST);
    print_message("hit rates: fifo %.3f, lru %.3f, cost %.3f\n", fifo, lru, cost);
    assert_true(lru > fifo);
    assert_true(cost > lru + 0.03);
}

static void test_notes_stay_with_the_file(void **state) {
    (void)state;
    store *s = open_with(scratch("notes"), 0);
    cache *c = cache_of(s);
    buf b = {0};
    assert_false(cache_meta_get(c, STR("one"), &b));
    OK(cache_meta_put(c, STR("one"), STR("first"), &e));
    OK(cache_meta_put(c, STR("two"), STR(""), &e));
    OK(cache_meta_put(c, STR("one"), STR("second"), &e));
    put_block(c, 1, 0, 1);
    OK(cache_clear(c, CACHE_KV, &e));
    OK(cache_clear(c, CACHE_ANSWERS, &e));
    store_close(s);
    s = open_with(scratch("notes"), 0);
    c = cache_of(s);
    assert_true(cache_meta_get(c, STR("one"), &b));
    assert_string_equal(b.p, "second");
    assert_true(cache_meta_get(c, STR("two"), &b));
    assert_false(cache_meta_get(c, STR("three"), &b));
    assert_string_equal(b.p, "second");
    buf_free(&b);
    store_close(s);
}

static void test_two_stores_share_one_file(void **state) {
    (void)state;
    setenv("XDG_CACHE_HOME", scratch("xdg"), 1);
    store *a = open_with(NULL, 0), *b = open_with(NULL, 0);
    cache *c = cache_of(a);
    assert_ptr_equal(cache_of(b), c);
    put_block(c, 3, 0, 1);
    store_close(a);
    cache_flush(c);
    assert_true(has_block(cache_of(b), 3));
    store_close(b);
    struct stat st;
    assert_int_equal(stat(scratch("xdg/kvasir/cache.mdb"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    unsetenv("XDG_CACHE_HOME");
}

/* `sh tests/run.sh --long` asks for full counts. */
static bool long_run(void) {
    return getenv("KVASIR_LONG") != NULL;
}

/* ---- damage ---------------------------------------------------------------------------------- */

static unsigned char *load_file(const char *path, size_t *n) {
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    *n = (size_t)st.st_size;
    unsigned char *p = malloc(*n);
    FILE *f = fopen(path, "rb");
    assert_int_equal(fread(p, 1, *n, f), *n);
    fclose(f);
    return p;
}

static void save_file(const char *path, const unsigned char *p, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

static bool is_payload(const unsigned char *file, size_t page) {
    uint64_t number;
    uint16_t flags;
    memcpy(&number, file + page * 4096, 8);
    memcpy(&flags, file + page * 4096 + 10, 2);
    return number != page || flags == 0 || flags > 8;
}

/* Uses the damaged cache in every way: no wrong answer, no crash. */
static void use_damaged(const char *path) {
    store *s = open_with(path, 0);
    cache *c = cache_of(s);
    for (uint64_t i = 1; i <= 40; i++)
        has_block(c, i);
    buf b = {0};
    for (uint64_t i = 1; i <= 300; i++) {
        char answer[32];
        snprintf(answer, sizeof answer, "answer %d", (int)i);
        buf_clear(&b);
        if (cache_get(c, CACHE_ANSWERS, key_of(i), STR("id"), NULL, 0, &b))
            assert_string_equal(b.p, answer);
    }
    for (uint64_t i = 41; i <= 44; i++)
        put_block(c, i, 0, 1);
    cache_flush(c);
    for (uint64_t i = 41; i <= 44; i++)
        assert_true(has_block(c, i));
    buf_free(&b);
    store_close(s);
}

/* Flips a bit of the byte at `offset` behind each place of these bytes, old pages' too. */
static void flip_at(unsigned char *file, size_t n, const void *bytes, size_t count, size_t offset) {
    for (unsigned char *at = file; (at = memmem(at, n - (size_t)(at - file), bytes, count)); at++)
        at[offset] ^= offset ? 64 : 128;
}

/* What no page's structure tells: how often a block was read, a note, a block's bytes. */
static void test_flipped_facts(void **state) {
    (void)state;
    enum { HITS = 56 }; /* in a use record */
    char path[512], file[600];
    snprintf(path, sizeof path, "%s", scratch("facts"));
    snprintf(file, sizeof file, "%s/cache.mdb", path);
    store *s = open_with(path, 0);
    cache *c = cache_of(s);
    put_block(c, 1, 0, 1);
    put_block(c, 2, 0, 1);
    cache_flush(c);
    for (int i = 0; i < 3; i++)
        assert_true(has_block(c, 1));
    OK(cache_meta_put(c, STR("note"), STR("what the note says"), &e));
    store_close(s);
    size_t n;
    unsigned char *bytes = load_file(file, &n), use[19] = {17}, block[BLOCK];
    hash128 key = key_of(1);
    memcpy(use + 3, &key, sizeof key); /* the key's length, the space, the key */
    s = open_with(path, 0);
    assert_int_equal(hits_of(cache_of(s), 1), 3);
    store_close(s);
    flip_at(bytes, n, use, sizeof use, sizeof use + HITS);
    flip_at(bytes, n, "what the note says", 18, 0);
    fill(block, sizeof block, 2);
    flip_at(bytes, n, block, 256, 0);
    save_file(file, bytes, n);
    free(bytes);
    OK(cache_check(file, &e));
    s = open_with(path, 0);
    c = cache_of(s);
    buf b = {0};
    assert_int_equal(hits_of(c, 1), 0);
    assert_false(cache_meta_get(c, STR("note"), &b));
    assert_true(has_block(c, 1));
    assert_false(has_block(c, 2));
    assert_int_equal(stats_of(c).corrupt, 1);
    store_close(s);
    s = open_with(path, 0);
    assert_int_equal(stats_of(cache_of(s)).blocks, 1); /* what was off is not there any more */
    buf_free(&b);
    store_close(s);
}

/* An identity of nearly 4 GiB, whose payload would then begin where it ends in 32 bits. */
static void test_lengths_beyond_the_value(void **state) {
    (void)state;
    char path[512], file[600];
    snprintf(path, sizeof path, "%s", scratch("lengths"));
    snprintf(file, sizeof file, "%s/cache.mdb", path);
    store *s = open_with(path, 0);
    put_block(cache_of(s), 1, 0, 1);
    store_close(s);
    size_t n;
    unsigned char *bytes = load_file(file, &n);
    const uint32_t head[] = {CACHE_MAGIC, CACHE_VERSION};
    unsigned char *at = memmem(bytes, n, head, sizeof head);
    assert_non_null(at);
    value_header h;
    memcpy(&h, at, sizeof h);
    h.payload_bytes += h.payload_at - CACHE_HEADER;
    h.payload_at = CACHE_HEADER;
    h.identity_bytes = UINT32_MAX;
    memcpy(at, &h, sizeof h);
    save_file(file, bytes, n);
    free(bytes);
    s = open_with(path, 0);
    cache *c = cache_of(s);
    assert_false(has_block(c, 1));
    assert_int_equal(stats_of(c).corrupt, 1);
    store_close(s);
}

static void test_flipped_bits(void **state) {
    (void)state;
    char path[512], file[600];
    snprintf(path, sizeof path, "%s", scratch("flipped"));
    snprintf(file, sizeof file, "%s/cache.mdb", path);
    store *s = open_with(path, 0);
    cache *c = cache_of(s);
    for (uint64_t i = 1; i <= 40; i++)
        put_block(c, i, i - 1, 1);
    for (uint64_t i = 1; i <= 300; i++) {
        char answer[32];
        snprintf(answer, sizeof answer, "answer %d", (int)i);
        cache_put(c, CACHE_ANSWERS, key_of(i), STR("id"), (hash128){0, 0}, 5, str_from(answer));
    }
    cache_flush(c);
    OK(cache_clear(c, CACHE_ANSWERS, &e)); /* a free list with pages in it */
    for (uint64_t i = 1; i <= 300; i++) {
        char answer[32];
        snprintf(answer, sizeof answer, "answer %d", (int)i);
        cache_put(c, CACHE_ANSWERS, key_of(i), STR("id"), (hash128){0, 0}, 5, str_from(answer));
    }
    cache_flush(c);
    store_close(s);
    size_t n, tree_pages[4096], ntree = 0;
    unsigned char *good = load_file(file, &n), *bad = malloc(n);
    for (size_t page = 0; page < n / 4096 && ntree < 4096; page++)
        if (!is_payload(good, page))
            tree_pages[ntree++] = page;
    const char *wanted = getenv("KVASIR_FLIPS");
    int flips = wanted ? atoi(wanted) : long_run() ? 1000 : 150, rebuilt = 0;
    uint64_t seed = 99;
    for (int i = 0; i < flips; i++) {
        seed = hash_mix(seed, (uint64_t)i);
        size_t at = i % 2
                        ? tree_pages[seed % ntree] * 4096 + (seed >> 32) % (i % 4 == 1 ? 64 : 4096)
                        : (seed >> 20) % n;
        memcpy(bad, good, n);
        bad[at] ^= (unsigned char)(1u << (seed >> 8) % 8);
        save_file(file, bad, n);
        rebuilt += cache_check(file, NULL) != 0;
        use_damaged(path);
    }
    assert_true(rebuilt > 0);     /* many tree pages are of former transactions */
    save_file(file, good, n / 2); /* cut off */
    use_damaged(path);
    save_file(file, (const unsigned char *)"short", 5);
    use_damaged(path);
    save_file(file, good, 0);
    use_damaged(path);
    free(good);
    free(bad);
}

static void test_older_version_starts_anew(void **state) {
    (void)state;
    char path[512], file[600];
    snprintf(path, sizeof path, "%s", scratch("older"));
    snprintf(file, sizeof file, "%s/cache.mdb", path);
    store *s = open_with(path, 0);
    put_block(cache_of(s), 1, 0, 1);
    store_close(s);
    MDB_env *env;
    MDB_txn *t;
    MDB_dbi dbi;
    uint32_t version = 0;
    MDB_val key = {7, "version"}, data = {sizeof version, &version};
    mdb_env_create(&env);
    mdb_env_set_maxdbs(env, 8);
    assert_int_equal(mdb_env_open(env, file, MDB_NOSUBDIR, 0600), 0);
    mdb_txn_begin(env, NULL, 0, &t);
    assert_int_equal(mdb_dbi_open(t, "format", 0, &dbi), 0);
    assert_int_equal(mdb_put(t, dbi, &key, &data, 0), 0);
    assert_int_equal(mdb_txn_commit(t), 0);
    mdb_env_close(env);
    s = open_with(path, 0);
    cache *c = cache_of(s);
    assert_false(has_block(c, 1));
    put_block(c, 1, 0, 1);
    cache_flush(c);
    assert_true(has_block(c, 1));
    store_close(s);
}

static void test_unusable_place(void **state) {
    (void)state;
    store *s = NULL;
    store_options options = {.cache_path = "/proc/no/such/cache.mdb"};
    OK(store_open(&options, &s, &e));
    err_clear(&e);
    assert_null(store_cache(s, &e));
    assert_true(e.message[0]);
    store_close(s);
}

/* ---- places that cannot be written ----------------------------------------------------------- */

/* The program's own open comes before the C library's,
 * too: a read-only file system, even for root. */
static const char *read_only_part;

static int open_as_allowed(const char *name, const char *path, int flags, mode_t mode) {
    int (*real)(const char *, int, mode_t);
    *(void **)&real = dlsym(RTLD_NEXT, name);
    bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
    if (read_only_part && writes && strstr(path, read_only_part)) {
        errno = EROFS;
        return -1;
    }
    return real(path, flags, mode);
}

static mode_t mode_of(int flags, va_list args) {
    return flags & O_CREAT ? (mode_t)va_arg(args, int) : 0;
}

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_as_allowed("open", path, flags, mode);
}

int open64(const char *path, int flags, ...);
int open64(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    mode_t mode = mode_of(flags, args);
    va_end(args);
    return open_as_allowed("open64", path, flags, mode);
}

static void test_read_only_place(void **state) {
    (void)state;
    char file[600];
    snprintf(file, sizeof file, "%s/unwritable-cache.mdb", scratch_dir);
    store *s = NULL;
    store_options options = {.cache_path = file};
    OK(store_open(&options, &s, &e));
    put_block(cache_of(s), 1, 0, 1);
    store_close(s);
    read_only_part = "unwritable-cache";
    OK(store_open(&options, &s, &e));
    cache *c = cache_of(s);
    cache_pins pins;
    assert_true(has_block(c, 1));
    put_block(c, 2, 0, 1);
    cache_flush(c);
    assert_false(has_block(c, 2));
    assert_false(stats_of(c).writing);
    assert_non_null(strstr(stats_of(c).why_not, "is read-only"));
    assert_int_not_equal(cache_clear(c, CACHE_KV, &e), 0);
    assert_int_not_equal(cache_unpin(c, STR("x"), &pins, &e), 0);
    assert_true(has_block(c, 1));
    store_close(s);
    read_only_part = NULL;
}

/* Another process reads from an old snapshot, so that no page that it sees can be used again: the
 * map fills up, writes are dropped, and go on when the reader has gone. */
static void test_map_full(void **state) {
    (void)state;
    enum { BUDGET = 16 << 20 };
    char path[512], file[600], byte = 0;
    int ready[2], done[2];
    snprintf(path, sizeof path, "%s", scratch("map-full"));
    snprintf(file, sizeof file, "%s/cache.mdb", path);
    store *s = open_with(path, BUDGET);
    put_blocks(cache_of(s), 1, 200);
    store_close(s);
    assert_true(pipe(ready) == 0 && pipe(done) == 0);
    pid_t pid = fork(); /* nothing is open */
    if (pid == 0) {
        MDB_env *env;
        MDB_txn *t;
        bool holds = mdb_env_create(&env) == 0 &&
                     mdb_env_open(env, file, MDB_NOSUBDIR | MDB_RDONLY, 0600) == 0 &&
                     mdb_txn_begin(env, NULL, MDB_RDONLY, &t) == 0;
        close(done[1]);
        holds = holds && write(ready[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 0;
        _exit(holds ? 0 : 1);
    }
    close(ready[1]);
    close(done[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    s = open_with(path, BUDGET);
    cache *c = cache_of(s);
    put_blocks(c, 200, 600);
    assert_true(stats_of(c).dropped > 0);
    assert_true(stats_of(c).writing);
    for (uint64_t i = 1; i < 600; i++)
        has_block(c, i);
    close(done[1]);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    close(ready[0]);
    put_blocks(c, 600, 650);
    assert_true(has_block(c, 649));
    assert_int_equal(stats_of(c).corrupt, 0);
    store_close(s);
    OK(cache_check(file, &e));
}

/* ---- failed writes --------------------------------------------------------------------------- */

/* The program's own pwrite and pwritev come before the C library's when liblmdb calls them. */
static _Atomic int writes_left = -1;
static int write_errno;

static bool write_fails(void) {
    if (writes_left < 0)
        return false;
    if (writes_left > 0) {
        writes_left--;
        return false;
    }
    errno = write_errno;
    return true;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    return write_fails() ? -1 : real(fd, p, n, at);
}

ssize_t pwritev(int fd, const struct iovec *v, int count, off_t at) {
    static ssize_t (*real)(int, const struct iovec *, int, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwritev");
    return write_fails() ? -1 : real(fd, v, count, at);
}

static void test_failed_writes_of_the_cache(void **state) {
    (void)state;
    static const int errors[] = {ENOSPC, EIO};
    const int last = long_run() ? 200 : 20; /* the write that fails, from 1 */
    const uint64_t blocks = (uint64_t)last;
    for (int n = 2; n < 2 * last + 2; n++) {
        char path[512];
        snprintf(path, sizeof path, "%s/failing%d", scratch_dir, n);
        store *s = open_with(path, 0);
        cache *c = cache_of(s);
        write_errno = errors[n % 2];
        writes_left = n / 2 - 1;
        for (uint64_t i = 1; i <= blocks; i++) {
            put_block(c, i, 0, 1);
            cache_flush(c);
        }
        cache_stats st = stats_of(c);
        assert_true(writes_left != 0 || !st.writing);
        assert_true(st.writing || strstr(st.why_not, strerror(write_errno)));
        for (uint64_t i = 1; i <= blocks; i++)
            has_block(c, i);
        writes_left = -1;
        store_close(s);
        s = open_with(path, 0);
        c = cache_of(s);
        for (uint64_t i = 1; i <= blocks; i++)
            has_block(c, i);
        put_block(c, 999, 0, 1);
        cache_flush(c);
        assert_true(has_block(c, 999));
        store_close(s);
        char file[600];
        snprintf(file, sizeof file, "%s/cache.mdb", path);
        unlink(file);
    }
}

/* A commit that fails is no commit; the database goes on. */
static void test_failed_writes_of_tables(void **state) {
    (void)state;
    store *s = open_at(scratch("failing-tables"));
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    uint64_t rows = 0;
    int failures = 0;
    for (int n = 0; n < 12; n++) {
        t = begin(s, true);
        for (int i = 0; i < 200; i++)
            add_person(t, value_null(), "somebody with a name that fills the page a little", i);
        write_errno = ENOSPC;
        writes_left = n % 4;
        err_clear(&e);
        int status = txn_commit(t, &e);
        writes_left = -1;
        failures += status != 0;
        if (status)
            assert_true(status == ERR_FULL || status == ERR_IO);
        rows += status ? 0 : 200;
        store_close(s); /* after a failed meta page LMDB wants the environment opened anew */
        s = open_at(scratch("failing-tables"));
        t = begin(s, true);
        assert_int_equal(count_rows(t, "people"), rows);
        txn_abort(t);
    }
    assert_true(failures > 3);
    store_close(s);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *use_from_thread(void *arg) {
    cache *c = arg;
    static const cache_policy policies[] = {CACHE_FIFO, CACHE_LRU, CACHE_COST};
    uint64_t seed = (uint64_t)(uintptr_t)&seed;
    for (int i = 0; i < 300; i++) {
        seed = hash_mix(seed, (uint64_t)i);
        uint64_t n = seed % 100, wrong = 0;
        uint64_t got[500], block[500];
        for (size_t k = 0; k < BASE_COUNT(block); k++)
            block[k] = n * k;
        str identity = {(const char *)&n, sizeof n};
        if (cache_get(c, CACHE_KV, key_of(n), identity, got, sizeof got, NULL))
            wrong = memcmp(got, block, sizeof got) != 0;
        else
            cache_put(c, CACHE_KV, key_of(n), identity, (hash128){0, 0}, 1,
                      (str){(const char *)block, sizeof block});
        if (i % 50 == 7)
            cache_flush(c);
        if (i % 60 == 9)
            cache_configure(c, (size_t)(1 + i % 3) << 20, policies[i % 3]);
        if (wrong)
            return c;
    }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    store *s = open_with(scratch("threads"), 2 << 20);
    cache *c = cache_of(s);
    pthread_t threads[3];
    void *wrong;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_from_thread, c), 0);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    assert_int_equal(stats_of(c).corrupt, 0);
    assert_true(stats_of(c).writing);
    store_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_another_identity_is_a_miss),
        cmocka_unit_test(test_budget_is_kept),
        cmocka_unit_test(test_budget_beyond_all_bounds),
        cmocka_unit_test(test_small_answers_come_and_go),
        cmocka_unit_test(test_leaves_go_first),
        cmocka_unit_test(test_pins_outlast_eviction),
        cmocka_unit_test(test_pins_are_bounded),
        cmocka_unit_test(test_cost_beats_recency),
        cmocka_unit_test(test_notes_stay_with_the_file),
        cmocka_unit_test(test_two_stores_share_one_file),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_flipped_facts),
        cmocka_unit_test(test_lengths_beyond_the_value),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_older_version_starts_anew),
        cmocka_unit_test(test_unusable_place),
        cmocka_unit_test(test_read_only_place),
        cmocka_unit_test(test_map_full),
        cmocka_unit_test(test_failed_writes_of_the_cache),
        cmocka_unit_test(test_failed_writes_of_tables),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
