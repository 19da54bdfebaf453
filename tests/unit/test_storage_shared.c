/*
 * test_storage_shared.c - the cache in several processes: what one did, the others know, and what it
 * costs them to learn it.
 */
#include <sys/wait.h>

#include "storage_cache_int.h"

/* Another process writes and evicts in the same file at the same time. */
static void test_two_processes(void **state) {
    (void)state;
    enum { BUDGET = 4 << 20, BLOCKS = 300 };
    char path[512];
    snprintf(path, sizeof path, "%s", scratch("both"));
    store_close(open_with(path, BUDGET));
    pid_t pid = fork();
    store *s = NULL;
    store_options options = {.path = path, .cache_bytes = BUDGET};
    if (store_open(&options, &s, &e) != 0)
        _exit(3);
    cache *c = store_cache(s, &e);
    if (!c)
        _exit(4);
    for (uint64_t i = 1; i <= BLOCKS; i++) {
        put_block(c, i, 0, 1);
        if (i % 7 == 0)
            cache_flush(c);
        has_block(c, i / 2);
    }
    cache_flush(c);
    bool fine = has_block(c, BLOCKS) && stats_of(c).writing;
    if (pid == 0) {
        store_close(s);
        _exit(fine ? 0 : 5);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    assert_true(fine);
    has_block(c, BLOCKS); /* learns what the other did last: while both write, one may be ahead */
    assert_true(stats_of(c).bytes <= BUDGET);
    store_close(s);
    char file[600];
    snprintf(file, sizeof file, "%s/cache.mdb", path);
    OK(cache_check(file, &e));
}

/* ---- what another process did ---------------------------------------------------------------- */

enum { OTHER_BLOCKS = 400 }; /* more than a map for the least budget holds */

/* A chain of small blocks, each a commit; its place in it follows from its number. */
static void put_small(cache *c, uint64_t n) {
    char identity[40];
    snprintf(identity, sizeof identity, "small %d", (int)n);
    cache_put(c, CACHE_KV, key_of(n), str_from(identity), n % 5 ? key_of(n - 1) : (hash128){7, 7},
              1, STR("a small one"));
}

/* As a program writes that knows no log. */
static bool write_without_log(cache *c) {
    MDB_txn *t;
    MDB_val key = {4, "none"}, data = {4, "none"};
    return mdb_txn_begin(c->env, NULL, 0, &t) == 0 && mdb_put(t, c->format, &key, &data, 0) == 0 &&
           mdb_txn_commit(t) == 0;
}

/* As on a disk that fails: the last commit's keys are others. */
static bool damage_log(cache *c) {
    MDB_txn *t;
    MDB_val key, data;
    MDB_cursor *cursor;
    char bytes[64];
    cache_flush(c);
    if (cache_write_begin(c, &t) != 0 || mdb_cursor_open(t, c->log, &cursor) != 0 ||
        mdb_cursor_get(cursor, &key, &data, MDB_LAST) != 0 || data.mv_size > sizeof bytes)
        return false;
    memcpy(bytes, data.mv_data, data.mv_size);
    bytes[data.mv_size - 1] = (char)(bytes[data.mv_size - 1] ^ 1);
    MDB_val bad = {data.mv_size, bytes};
    int rc = mdb_cursor_put(cursor, &key, &bad, MDB_CURRENT);
    mdb_cursor_close(cursor);
    return cache_write_end(c, t, rc, CACHE_WROTE_KEYS) == 0;
}

static bool obey(cache *c, char order) {
    static uint64_t next = 5000;
    cache_pins pins;
    hash128 last = key_of(next - 1);
    switch (order) {
    case 'c':
        return cache_clear(c, CACHE_KV, &e) == 0;
    case 'g':
        for (uint64_t i = 0; i < OTHER_BLOCKS; i++)
            put_block(c, 1000 + i, 0, 1);
        return true;
    case 'p': /* the next, one commit */
        put_small(c, next++);
        return true;
    case 'm': /* many commits */
        for (int i = 0; i < 100; i++) {
            put_small(c, next++);
            cache_flush(c);
        }
        return true;
    case 'd': /* one goes, in the middle of its chain */
        return cache_clear_matching(c, CACHE_KV, STR("small 5003"), NULL, &e) == 0;
    case 'b': /* and is back */
        put_small(c, 5003);
        return true;
    case 'n':
        return cache_meta_put(c, STR("a note"), STR("of nothing"), &e) == 0;
    case 'k':
        return cache_pin(c, STR("pin"), &last, 1, &pins, &e) == 0;
    case 'f':
        return write_without_log(c);
    case 'x':
        put_small(c, next++);
        return damage_log(c);
    case 'u':
        return cache_unpin(c, STR("pin"), &pins, &e) == 0;
    default:
        return false;
    }
}

/* Does what it is told with a cache of the usual budget, until there is nothing more to do. */
static _Noreturn void other_process(const char *path, int orders, int answers) {
    store *s = NULL;
    store_options options = {.path = path};
    cache *c = store_open(&options, &s, &e) == 0 ? store_cache(s, &e) : NULL;
    for (char order; c && read(orders, &order, 1) == 1;) {
        if (!obey(c, order))
            break;
        cache_flush(c);
        if (write(answers, &order, 1) != 1)
            break;
    }
    store_close(s);
    _exit(0);
}

typedef struct other {
    pid_t pid;
    int orders, answers;
    char path[512];
} other;

/* The process begins before this one opens the database: LMDB does not outlive a fork. */
static void other_start(other *o, const char *name) {
    int orders[2], answers[2];
    snprintf(o->path, sizeof o->path, "%s", scratch(name));
    store_close(open_with(o->path, 0));
    assert_int_equal(pipe(orders) | pipe(answers), 0);
    o->pid = fork();
    if (o->pid == 0) {
        close(orders[1]);
        other_process(o->path, orders[0], answers[1]);
    }
    close(orders[0]);
    close(answers[1]);
    o->orders = orders[1];
    o->answers = answers[0];
}

static void other_tell(const other *o, char order) {
    char answer = 0;
    assert_int_equal(write(o->orders, &order, 1), 1);
    assert_int_equal(read(o->answers, &answer, 1), 1);
    assert_int_equal(answer, order);
}

static void other_end(const other *o) {
    int status = -1;
    close(o->orders);
    close(o->answers);
    waitpid(o->pid, &status, 0);
    assert_int_equal(status, 0);
}

/* What is shown is what there is, and what was taken away can be stored again. */
static void test_another_process_clears(void **state) {
    (void)state;
    other o;
    other_start(&o, "clears");
    store *s = open_with(o.path, 0);
    cache *c = cache_of(s);
    put_block(c, 1, 0, 1);
    cache_flush(c);
    other_tell(&o, 'c');
    put_block(c, 1, 0, 1); /* no duplicate, though this process has stored it before */
    cache_flush(c);
    assert_true(has_block(c, 1));
    assert_true(has_block(c, 1));
    other_tell(&o, 'g');
    assert_int_equal(stats_of(c).blocks, 1 + OTHER_BLOCKS);
    assert_int_equal(hits_of(c, 1), 2); /* reading the index again forgets no use */
    other_tell(&o, 'c');
    assert_int_equal(stats_of(c).blocks, 0);
    store_close(s);
    other_end(&o);
}

/* ---- what it costs to learn of it ------------------------------------------------------------ */

static int by_key(const void *a, const void *b) {
    return memcmp(&((const cache_item *)a)->key, &((const cache_item *)b)->key, sizeof(hash128));
}

/* The index is what reading the whole file would make of it. */
static void check_index(cache *c) {
    arena *a = arena_new();
    cache_item *known, *read;
    size_t n = cache_items(c, CACHE_KV, a, &known);
    cache_stats before = stats_of(c);
    pthread_mutex_lock(&c->mutex);
    c->last_txn = 0;
    pthread_mutex_unlock(&c->mutex);
    assert_int_equal(cache_items(c, CACHE_KV, a, &read), n);
    cache_stats after = stats_of(c);
    qsort(known, n, sizeof *known, by_key);
    qsort(read, n, sizeof *read, by_key);
    for (size_t i = 0; i < n; i++) {
        assert_true(hash128_equal(known[i].key, read[i].key));
        assert_true(hash128_equal(known[i].parent, read[i].parent));
        assert_true(known[i].bytes == read[i].bytes && known[i].used == read[i].used);
        assert_int_equal(known[i].hits, read[i].hits);
        assert_int_equal(known[i].children, read[i].children);
    }
    assert_int_equal(before.bytes, after.bytes);
    assert_int_equal(before.of[CACHE_KV].pinned, after.of[CACHE_KV].pinned);
    arena_free(a);
}

/* What was read of the file to learn what an order did. */
static uint64_t cost_of(cache *c, const other *o, const char *orders) {
    uint64_t before = c->entries_read;
    for (; *orders; orders++)
        other_tell(o, *orders);
    stats_of(c);
    return c->entries_read - before;
}

static void test_a_commit_is_learned_by_its_keys(void **state) {
    (void)state;
    static const struct {
        const char *orders;
        uint64_t reads;
    } steps[] = {
        {"p", 1}, {"ppppp", 5}, {"n", 0},   {"d", 0},   {"b", 1},
        {"k", 1}, {"u", 1},     {"kpu", 3}, {"dpb", 3}, {"ppnkpudb", 7},
    };
    other o;
    other_start(&o, "learned");
    store *s = open_with(o.path, 0);
    cache *c = cache_of(s);
    other_tell(&o, 'g');
    for (int i = 0; i < 8; i++)
        other_tell(&o, 'p');
    assert_int_equal(stats_of(c).blocks, OTHER_BLOCKS + 8);
    for (size_t i = 0; i < BASE_COUNT(steps); i++) {
        assert_int_equal(cost_of(c, &o, steps[i].orders), steps[i].reads);
        check_index(c);
    }
    put_small(c, 1); /* the writer learns in the same way */
    cache_flush(c);
    other_tell(&o, 'p');
    uint64_t before = c->entries_read;
    put_small(c, 2);
    cache_flush(c);
    assert_int_equal(c->entries_read - before, 1);
    other_tell(&o, 'd');
    put_small(c, 5003); /* gone, though this process has not looked since: it is stored again */
    cache_flush(c);
    assert_int_equal(cost_of(c, &o, "d"), 0);
    check_index(c);
    store_close(s);
    other_end(&o);
}

/* Where the log does not say all, all is read. */
static void test_what_no_log_tells_is_read(void **state) {
    (void)state;
    other o;
    other_start(&o, "unlogged");
    store *s = open_with(o.path, 0);
    cache *c = cache_of(s);
    other_tell(&o, 'g');
    uint64_t all = stats_of(c).blocks;
    assert_int_equal(cost_of(c, &o, "m"), all + 100); /* longer ago than the log goes back */
    check_index(c);
    assert_int_equal(cost_of(c, &o, "c"), 0);
    assert_int_equal(stats_of(c).blocks, 0);
    check_index(c);
    other_tell(&o, 'g');
    all = stats_of(c).blocks;

    assert_int_equal(cost_of(c, &o, "f"), all);
    assert_int_equal(cost_of(c, &o, "pf"), 1 + all + 1); /* what the log has of it was of no use */
    check_index(c);
    assert_int_equal(cost_of(c, &o, "x"), all + 2);
    check_index(c);
    assert_int_equal(cost_of(c, &o, "p"), 1);
    store_close(s);
    other_end(&o);
}

/* A file from before there was a log is given one, and what it holds is found. */
static void test_an_earlier_file_gets_a_log(void **state) {
    (void)state;
    MDB_txn *t;
    store *s = open_with(scratch("earlier"), 0);
    cache *c = cache_of(s);
    put_block(c, 1, 0, 1);
    cache_flush(c);
    assert_int_equal(mdb_txn_begin(c->env, NULL, 0, &t), 0);
    assert_int_equal(mdb_drop(t, c->log, 1), 0);
    assert_int_equal(mdb_txn_commit(t), 0);
    store_close(s);
    s = open_with(scratch("earlier"), 0);
    c = cache_of(s);
    assert_true(has_block(c, 1));
    put_block(c, 2, 1, 1);
    cache_flush(c);
    assert_true(has_block(c, 2));
    check_index(c);
    store_close(s);
}

/* Orders at random, and blocks of one's own between them. */
static void test_two_indexes_stay_alike(void **state) {
    (void)state;
    static const char orders[] = "ppppppppdbkunng";
    other o;
    uint64_t seed = 11;
    other_start(&o, "alike");
    store *s = open_with(o.path, 0);
    cache *c = cache_of(s);
    for (int i = 0; i < 300; i++) {
        seed = hash_mix(seed, (uint64_t)i);
        if (seed % 3 == 0) {
            put_small(c, 100 + seed / 3 % 60);
            has_block(c, 1000 + seed / 3 % 400);
        }
        if (seed % 40 == 1)
            OK(cache_clear_matching(c, CACHE_KV, STR("small 51"), NULL, &e));
        if (seed % 60 == 2)
            OK(cache_clear(c, CACHE_KV, &e));
        other_tell(&o, orders[seed / 64 % (sizeof orders - 1)]);
        if (seed % 4 == 0)
            cache_flush(c);
        if (seed % 5 == 0) {
            cache_flush(c);
            check_index(c);
        }
    }
    store_close(s);
    other_end(&o);
}

/* Each of these is the first thing to meet a file that has outgrown the map. */
static void test_another_process_grows_the_file(void **state) {
    (void)state;
    for (int first = 0; first < 4; first++) {
        other o;
        char name[16];
        cache_pins pins;
        buf identity = {0};
        snprintf(name, sizeof name, "grows%d", first);
        other_start(&o, name);
        store *s = open_with(o.path, CACHE_BUDGET_MIN);
        cache *c = cache_of(s);
        other_tell(&o, 'g');
        if (first == 0)
            assert_true(cache_prefetch(c, CACHE_KV, key_of(1000)));
        if (first == 1)
            OK(cache_clear(c, CACHE_KV, &e));
        if (first == 2)
            OK(cache_unpin(c, STR("nobody"), &pins, &e));
        if (first == 3)
            assert_true(cache_identity(c, CACHE_KV, key_of(1000), &identity));
        buf_free(&identity);
        store_close(s);
        other_end(&o);
    }
}

/* rm cache.mdb, while a process has it open: what begins then has nothing to do with that file. */
static void test_the_file_is_removed(void **state) {
    (void)state;
    other o;
    char file[600], lock[620];
    struct stat before, after;
    other_start(&o, "removed");
    other_tell(&o, 'g');
    snprintf(file, sizeof file, "%s/cache.mdb", o.path);
    snprintf(lock, sizeof lock, "%s-lock", file);
    assert_int_equal(stat(lock, &before) | unlink(file), 0);
    store *s = open_with(o.path, 0);
    cache *c = cache_of(s);
    assert_int_equal(stat(lock, &after), 0);
    assert_true(before.st_ino != after.st_ino);
    assert_false(has_block(c, 1000));
    put_block(c, 1, 0, 1);
    cache_flush(c);
    other_tell(&o, 'c');
    other_tell(&o, 'g');
    assert_true(has_block(c, 1));
    assert_int_equal(stats_of(c).blocks, 1);
    store_close(s);
    other_end(&o);
    OK(cache_check(file, &e));
}

/* A file whose name goes once it is open is a cache all the same; one whose name goes while LMDB,
 * which asks for it twice, opens it, is none, and says why. */
static void test_the_file_is_removed_while_it_is_opened(void **state) {
    (void)state;
    enum { TIMES = 100 };
    mkdir(scratch("fleeting"), 0777);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int opened = 0;
        for (int i = 0; i < TIMES; i++) {
            store *s = open_with(scratch("fleeting"), 0);
            err_clear(&e);
            opened += store_cache(s, &e) != NULL || e.message[0];
            store_close(s);
        }
        _exit(write(ends[1], &opened, sizeof opened) == sizeof opened ? 0 : 1);
    }
    char file[600];
    int opened = 0;
    snprintf(file, sizeof file, "%s", scratch("fleeting/cache.mdb"));
    while (waitpid(pid, NULL, WNOHANG) == 0)
        unlink(file);
    close(ends[1]);
    assert_int_equal(read(ends[0], &opened, sizeof opened), sizeof opened);
    close(ends[0]);
    assert_int_equal(opened, TIMES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_another_process_clears),
        cmocka_unit_test(test_a_commit_is_learned_by_its_keys),
        cmocka_unit_test(test_what_no_log_tells_is_read),
        cmocka_unit_test(test_an_earlier_file_gets_a_log),
        cmocka_unit_test(test_two_indexes_stay_alike),
        cmocka_unit_test(test_another_process_grows_the_file),
        cmocka_unit_test(test_the_file_is_removed),
        cmocka_unit_test(test_the_file_is_removed_while_it_is_opened),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
