/* test_storage_txn.c - isolation, statement rollback,
 * versions, catalog changes, the map's end, several processes. */
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>

#include "storage_help_int.h"
#include "tables/tables_int.h"

static void test_readers_see_a_snapshot(void **state) {
    (void)state;
    store *s = open_at(scratch("snapshot"));
    txn *t = begin(s, true);
    create_people(t);
    add_person(t, value_null(), "Ada", 1);
    OK(txn_commit(t, &e));
    txn *r = begin(s, false);
    uint64_t version = table_named(r, "people")->version;
    assert_int_equal(count_rows(r, "people"), 1);
    t = begin(s, true);
    add_person(t, value_null(), "Bob", 2);
    assert_int_equal(count_rows(t, "people"), 2);
    assert_int_equal(count_rows(r, "people"), 1);
    OK(txn_commit(t, &e));
    assert_int_equal(count_rows(r, "people"), 1);
    assert_int_equal(table_named(r, "people")->version, version);
    txn_abort(r);
    r = begin(s, false);
    assert_int_equal(count_rows(r, "people"), 2);
    assert_int_equal(table_named(r, "people")->version, version + 1);
    txn_abort(r);
    t = begin(s, true);
    assert_int_equal(table_named(t, "people")->version, version + 1);
    txn_abort(t); /* nothing changed: the version stays */
    r = begin(s, false);
    assert_int_equal(table_named(r, "people")->version, version + 1);
    txn_abort(r);
    store_close(s);
}

static void test_statement_rollback(void **state) {
    (void)state;
    static const int sizes[] = {1, 10, 64, 65, 500}; /* around the undo log's end */
    store *s = open_at(scratch("rollback"));
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    for (size_t i = 0; i < BASE_COUNT(sizes); i++) {
        t = begin(s, true);
        uint64_t before = count_rows(t, "people");
        int64_t kept = add_person(t, value_null(), "kept", 1);
        OK(txn_savepoint(t, &e));
        for (int k = 0; k < sizes[i]; k++)
            add_person(t, value_null(), "gone", k);
        value row[4] = {value_int(kept), value_text(STR("changed")), value_real(9), value_null()};
        OK(table_update(t, table_named(t, "people"), kept, row, &e));
        row[0] = value_int(kept + 100000);
        OK(table_update(t, table_named(t, "people"), kept, row, &e));
        txn_rollback_to(t);
        assert_int_equal(count_rows(t, "people"), before + 1);
        bool found;
        OK(table_get(t, table_named(t, "people"), kept, row, &found, &e));
        assert_true(found && str_equal(row[1].s, STR("kept")));
        OK(txn_savepoint(t, &e));
        for (int k = 0; k < sizes[i]; k++)
            add_person(t, value_null(), "stays", k);
        OK(txn_release(t, &e));
        OK(txn_commit(t, &e));
        t = begin(s, false);
        assert_int_equal(count_rows(t, "people"), before + 1 + (uint64_t)sizes[i]);
        txn_abort(t);
    }
    store_close(s);
}

static void test_catalog_rolls_back_too(void **state) {
    (void)state;
    store *s = open_at(scratch("catalog-rollback"));
    txn *t = begin(s, true);
    OK(txn_savepoint(t, &e));
    create_people(t);
    add_person(t, value_null(), "x", 1);
    txn_rollback_to(t);
    assert_null(catalog_table(txn_catalog(t), STR("people")));
    OK(txn_savepoint(t, &e));
    create_people(t);
    OK(txn_release(t, &e));
    add_person(t, value_null(), "y", 1);
    OK(txn_savepoint(t, &e));
    OK(catalog_drop_table(t, STR("people"), &e));
    assert_null(catalog_table(txn_catalog(t), STR("people")));
    txn_rollback_to(t);
    assert_int_equal(count_rows(t, "people"), 1);
    txn_abort(t);
    t = begin(s, true);
    assert_null(catalog_table(txn_catalog(t), STR("people")));
    create_people(t); /* the same tree again after an abort that closed its handle */
    assert_int_equal(count_rows(t, "people"), 0);
    add_person(t, value_null(), "z", 1);
    OK(txn_commit(t, &e));
    t = begin(s, true);
    OK(catalog_drop_table(t, STR("PEOPLE"), &e));
    create_people(t); /* and again, in the transaction that emptied it */
    assert_int_equal(count_rows(t, "people"), 0);
    OK(txn_commit(t, &e));
    store_close(s);
}

static void create_indexed_people(txn *t) {
    int score = 2;
    index_def index = {.name = STR("by_score"), .ncolumns = 1, .columns = &score};
    create_people(t);
    OK(catalog_create_index(t, STR("people"), &index, NULL, NULL, &e));
}

/* What rewrites a whole table ends when it is cancelled, and leaves it as it was. */
static void test_definitions_can_be_cancelled(void **state) {
    (void)state;
    store *s = open_at(NULL);
    atomic_bool cancel = true;
    int name = 1;
    index_def x = {.name = STR("by_name"), .unique = true, .ncolumns = 1, .columns = &name};
    column_def extra = {.name = STR("extra"), .type = TYPE_INTEGER};
    txn *t = begin(s, true);
    create_indexed_people(t);
    add_person(t, value_null(), "x", 1);
    add_person(t, value_null(), "y", 2);
    OK(txn_savepoint(t, &e));
    FAILS(ERR_CANCELLED, catalog_create_index(t, STR("people"), &x, NULL, &cancel, &e));
    txn_rollback_to(t);
    OK(txn_savepoint(t, &e));
    FAILS(ERR_CANCELLED, catalog_add_column(t, STR("people"), &extra, value_int(7), &cancel, &e));
    txn_rollback_to(t);
    OK(txn_savepoint(t, &e));
    FAILS(ERR_CANCELLED, catalog_drop_column(t, STR("people"), 1, &cancel, &e));
    txn_rollback_to(t);
    const table_def *def = table_named(t, "people");
    assert_int_equal(def->ncolumns, 4);
    assert_int_equal(count_rows(t, "people"), 2);
    assert_null(catalog_index(txn_catalog(t), STR("by_name"), NULL));
    cancel = false;
    OK(catalog_create_index(t, STR("people"), &x, NULL, &cancel, &e));
    OK(catalog_add_column(t, STR("people"), &extra, value_int(7), &cancel, &e));
    assert_int_equal(count_rows(t, "people"), 2);
    OK(txn_commit(t, &e));
    store_close(s);
}

/* Reads people 1 … 5000 while those read first are deleted; `by_score`: along an index, in which
 * the scores of `equal` people are one. */
static void scan_while_deleting(bool by_score, int equal, bool descending) {
    store *s = open_at(NULL);
    txn *t = begin(s, true);
    int wanted[] = {-1};
    create_indexed_people(t);
    for (int i = 1; i <= 5000; i++)
        add_person(t, value_int(i), "p", (i - 1) / equal);
    scan_spec spec = {.table = table_named(t, "people"),
                      .columns = wanted,
                      .ncolumns = 1,
                      .descending = descending};
    if (by_score)
        spec.index = &spec.table->indexes[0];
    table_scan *scan;
    arena *mem = arena_new();
    batch b = {.mem = mem};
    OK(txn_savepoint(t, &e));
    OK(scan_open(t, &spec, &scan, &e));
    int seen = 0;
    for (int round = 0;; round++) {
        OK(scan_next(scan, &b, &e));
        if (b.rows == 0)
            break;
        for (int i = 0; i < b.rows; i++, seen++) {
            int place = descending ? (4999 - seen) / equal * equal + seen % equal : seen;
            assert_int_equal(b.cols[0].i[i], place + 1);
        }
        for (int i = 0; i < b.rows && round == 0; i++)
            OK(table_delete(t, table_named(t, "people"), b.cols[0].i[i], &e));
        if (round == 1)
            OK(txn_release(t, &e));
    }
    assert_int_equal(seen, 5000);
    txn_abort(t);
    FAILS(ERR_INTERNAL, scan_next(scan, &b, &e));
    scan_close(scan);
    arena_free(mem);
    store_close(s);
}

/* A scan goes on behind the last row it gave, whatever is written between. */
static void test_scans_survive_writes(void **state) {
    (void)state;
    for (int descending = 0; descending < 2; descending++) {
        scan_while_deleting(false, 1, descending);
        scan_while_deleting(true, 1, descending);
        scan_while_deleting(true, 1000, descending);
    }
}

/* Rows whose keys are cut alike are read and sorted before the first of them is given, and down an
 * index so are all of one key. */
static void test_groups_of_keys_can_be_cancelled(void **state) {
    (void)state;
    store *s = open_at(NULL);
    txn *t = begin(s, true);
    int name = 1, wanted[] = {-1};
    index_def by_name = {.name = STR("by_name"), .ncolumns = 1, .columns = &name};
    char text[600];
    atomic_bool cancel;
    create_people(t);
    OK(catalog_create_index(t, STR("people"), &by_name, NULL, NULL, &e));
    for (int i = 0; i < 100; i++) {
        memset(text, 'x', sizeof text);
        snprintf(text + 500, sizeof text - 500, "%d", (i + 50) % 100 + 100);
        add_person(t, value_null(), i < 50 ? text : "y", i);
    }
    for (int down = 0; down < 2; down++) {
        const table_def *def = table_named(t, "people");
        scan_spec spec = {.table = def,
                          .index = &def->indexes[0],
                          .columns = wanted,
                          .ncolumns = 1,
                          .descending = down,
                          .cancel = &cancel};
        table_scan *scan;
        batch b = {.mem = arena_new()};
        cancel = true;
        OK(scan_open(t, &spec, &scan, &e));
        FAILS(ERR_CANCELLED, scan_next(scan, &b, &e));
        scan_close(scan);
        cancel = false;
        OK(scan_open(t, &spec, &scan, &e));
        OK(scan_next(scan, &b, &e));
        assert_int_equal(b.rows, 100);
        scan_close(scan);
        arena_free(b.mem);
    }
    txn_abort(t);
    store_close(s);
}

/* Along an index, up and down: an entry whose row is missing is no row that was deleted. */
static void test_entries_without_rows(void **state) {
    (void)state;
    store *s = open_at(NULL);
    txn *t = begin(s, true);
    int wanted[] = {-1};
    create_indexed_people(t);
    for (int i = 1; i <= 40; i++)
        add_person(t, value_int(i), "p", i / 10);
    const table_info *info;
    uint8_t bytes[KEY_ROWID];
    MDB_val key = {sizeof bytes, bytes};
    rowid_put(bytes, 25);
    OK(table_resolve(t, table_named(t, "people"), &info, &e));
    assert_int_equal(mdb_del(t->mdb, t->store->tree_dbi[info->tree], &key, NULL), 0);
    arena *mem = arena_new();
    for (int descending = 0; descending < 2; descending++) {
        scan_spec spec = {.table = table_named(t, "people"),
                          .columns = wanted,
                          .ncolumns = 1,
                          .descending = descending};
        spec.index = &spec.table->indexes[0];
        table_scan *scan;
        batch b = {.mem = mem};
        OK(scan_open(t, &spec, &scan, &e));
        FAILS(ERR_CORRUPT, scan_next(scan, &b, &e));
        scan_close(scan);
    }
    arena_free(mem);
    txn_abort(t);
    store_close(s);
}

static void test_full_map_is_a_clear_error(void **state) {
    (void)state;
    store *s = NULL;
    store_options options = {.path = scratch("full"), .map_bytes = 2 << 20};
    OK(store_open(&options, &s, &e));
    txn *t = begin(s, true);
    create_people(t);
    add_person(t, value_null(), "first", 1);
    char *big = malloc(100000);
    memset(big, 'x', 100000);
    OK(txn_savepoint(t, &e));
    int status = 0, rows = 0;
    while (!status && rows < 1000) {
        value row[4] = {value_null(), value_text((str){big, 100000}), value_null(), value_null()};
        status = table_insert(t, table_named(t, "people"), row, NULL, &e);
        rows += !status;
    }
    assert_int_equal(status, ERR_FULL);
    assert_true(rows > 5);
    txn_rollback_to(t);
    assert_int_equal(count_rows(t, "people"), 1);
    add_person(t, value_null(), "second", 1);
    OK(txn_commit(t, &e));
    t = begin(s, false);
    assert_int_equal(count_rows(t, "people"), 2);
    txn_abort(t);
    store_close(s);
    free(big);
}

static void test_huge_cells(void **state) {
    (void)state;
    store *s = open_at(scratch("huge"));
    size_t n = (size_t)40 << 20;
    char *big = malloc(n);
    memset(big, 'h', n);
    big[n - 1] = '!';
    txn *t = begin(s, true);
    create_people(t);
    int by_name[] = {1};
    index_def x = {.name = STR("by_name"), .unique = true, .ncolumns = 1, .columns = by_name};
    OK(catalog_create_index(t, STR("people"), &x, NULL, NULL, &e));
    value row[4] = {value_null(), value_text((str){big, n}), value_null(), value_null()};
    int64_t rowid;
    OK(table_insert(t, table_named(t, "people"), row, &rowid, &e));
    FAILS(ERR_CONSTRAINT, table_insert(t, table_named(t, "people"), row, &rowid, &e));
    assert_true(strlen(e.message) < 400);
    row[1].s.n--;
    OK(table_insert(t, table_named(t, "people"), row, &rowid, &e));
    OK(txn_commit(t, &e));
    t = begin(s, false);
    bool found;
    OK(table_get(t, table_named(t, "people"), 1, row, &found, &e));
    assert_true(found && row[1].s.n == n && memcmp(row[1].s.p, big, n) == 0);
    txn_abort(t);
    store_close(s);
    free(big);
}

/* ---- several processes ----------------------------------------------------------------------- */

/* A child that opens the database, begins to write, says so, and waits to be told to go on. */
static pid_t start_writer(const char *path, int *to_child, int *from_child) {
    int down[2], up[2];
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    pid_t pid = fork(); /* before this process opens anything */
    if (pid == 0) {
        store *s = NULL;
        txn *t = NULL;
        store_options options = {.path = path};
        txn_wait wait = {.busy_timeout_ms = 5000};
        char c = 'k';
        if (store_open(&options, &s, &e) || txn_begin(s, true, &wait, &t, &e) ||
            write(up[1], &c, 1) != 1 || read(down[0], &c, 1) != 1)
            _exit(1);
        value row[4] = {value_null(), value_text(STR("child")), value_null(), value_null()};
        if (table_insert(t, catalog_table(txn_catalog(t), STR("people")), row, NULL, &e) ||
            txn_commit(t, &e))
            _exit(2);
        store_close(s);
        _exit(0);
    }
    char c;
    assert_int_equal(read(up[0], &c, 1), 1);
    *to_child = down[1];
    *from_child = up[0];
    return pid;
}

static bool killed_at_root;

/* LMDB writes a commit's root last, and less than a page of it. */
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    ssize_t written = real(fd, p, n, at);
    if (killed_at_root && n < 4096)
        kill(getpid(), SIGKILL);
    return written;
}

/* Of a writer that was killed while it committed readers and writers see the same, whoever comes
 * first, also while another process keeps LMDB's lock file from being made anew. */
static void test_readers_see_what_a_killed_writer_left(void **state) {
    (void)state;
    const char *path = scratch("untold");
    int down[2], status;
    char c = 'g';
    assert_int_equal(pipe(down), 0);
    pid_t pid = fork();
    if (pid == 0) {
        if (read(down[0], &c, 1) != 1)
            _exit(1);
        store *s = open_at(path);
        txn *t = begin(s, true);
        add_person(t, value_null(), "Ada", 1);
        killed_at_root = true;
        txn_commit(t, &e);
        _exit(2);
    }
    store *s = open_at(path);
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    assert_int_equal(write(down[1], &c, 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int round = 0; round < 2; round++) {
        txn *r = begin(s, false);
        uint64_t seen = count_rows(r, "people");
        txn_abort(r);
        t = begin(s, true);
        assert_int_equal(count_rows(t, "people"), seen);
        txn_abort(t);
    }
    close(down[0]);
    close(down[1]);
    store_close(s);
}

static void test_two_processes(void **state) {
    (void)state;
    const char *path = scratch("two");
    store *s = open_at(path);
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    store_close(s);
    int to_child, from_child;
    pid_t pid = start_writer(path, &to_child, &from_child);
    s = open_at(path);
    txn_wait impatient = {.busy_timeout_ms = 50};
    char expected[64];
    FAILS(ERR_BUSY, txn_begin(s, true, &impatient, &t, &e));
    snprintf(expected, sizeof expected, "process %ld", (long)pid);
    assert_non_null(strstr(e.message, expected));
    atomic_bool cancel = true;
    txn_wait cancelled = {.busy_timeout_ms = 60000, .cancel = &cancel};
    FAILS(ERR_CANCELLED, txn_begin(s, true, &cancelled, &t, &e));
    txn *r = begin(s, false); /* readers do not wait */
    assert_int_equal(count_rows(r, "people"), 0);
    assert_int_equal(write(to_child, "g", 1), 1);
    txn_wait patient = {.busy_timeout_ms = 20000};
    OK(txn_begin(s, true, &patient, &t, &e));
    assert_int_equal(count_rows(t, "people"), 1);
    assert_int_equal(count_rows(r, "people"), 0);
    txn_abort(t);
    txn_abort(r);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    store_close(s);
    close(to_child);
    close(from_child);
}

/* A killed writer's lock dies with it, and what it wrote was never there. */
static void test_killed_writer(void **state) {
    (void)state;
    const char *path = scratch("killed");
    store *s = open_at(path);
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    store_close(s);
    int to_child, from_child, status;
    pid_t pid = start_writer(path, &to_child, &from_child);
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    s = open_at(path);
    t = begin(s, true);
    assert_int_equal(count_rows(t, "people"), 0);
    add_person(t, value_null(), "after", 1);
    OK(txn_commit(t, &e));
    store_close(s);
    close(to_child);
    close(from_child);
}

/* Another process's new table and new column are seen at the next transaction. */
static void test_schema_of_another_process(void **state) {
    (void)state;
    const char *path = scratch("schema");
    int go[2], done[2];
    assert_int_equal(pipe(go), 0);
    assert_int_equal(pipe(done), 0);
    pid_t pid = fork();
    char c = 'k';
    if (pid == 0) {
        if (read(go[0], &c, 1) != 1)
            _exit(1);
        store *s = open_at(path);
        txn *t = begin(s, true);
        column_def extra = COLUMN("extra", TYPE_TEXT);
        if (catalog_add_column(t, STR("people"), &extra, value_text(STR("new")), NULL, &e) ||
            txn_commit(t, &e))
            _exit(2);
        store_close(s);
        _exit(write(done[1], &c, 1) == 1 ? 0 : 3);
    }
    store *s = open_at(path);
    txn *t = begin(s, true);
    create_people(t);
    add_person(t, value_null(), "Ada", 1);
    OK(txn_commit(t, &e));
    assert_int_equal(write(go[1], &c, 1), 1);
    assert_int_equal(read(done[0], &c, 1), 1);
    t = begin(s, false);
    const table_def *def = table_named(t, "people");
    value row[5];
    bool found;
    assert_int_equal(def->ncolumns, 5);
    OK(table_get(t, def, 1, row, &found, &e));
    assert_true(found && str_equal(row[4].s, STR("new")) && str_equal(row[1].s, STR("Ada")));
    txn_abort(t);
    store_close(s);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    for (int i = 0; i < 2; i++) {
        close(go[i]);
        close(done[i]);
    }
}

/* Reads, says so, and waits to be killed. */
static void read_until_killed(const char *path, int from_parent, int to_parent) {
    char go;
    if (read(from_parent, &go, 1) != 1)
        _exit(1);
    store *s = open_at(path);
    begin(s, false);
    if (write(to_parent, "r", 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

/* A reader that died holds no pages: a writer that stays open uses them again. */
static void test_killed_reader(void **state) {
    (void)state;
    enum { COMMITS = 40, CELL = 256 << 10, LIMIT = 12 * CELL };
    char path[512], byte, *cell = calloc(1, CELL + 1);
    int down[2], up[2];
    struct stat st;
    snprintf(path, sizeof path, "%s", scratch("mourned"));
    memset(cell, 'x', CELL);
    assert_int_equal(pipe(down) | pipe(up), 0);
    pid_t pid = fork();
    if (pid == 0)
        read_until_killed(path, down[0], up[1]);
    store *s = open_at(path);
    txn *t = begin(s, true);
    create_people(t);
    add_person(t, value_int(1), cell, 0);
    OK(txn_commit(t, &e));
    assert_int_equal(write(down[1], "g", 1), 1);
    assert_int_equal(read(up[0], &byte, 1), 1);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i = 0; i < COMMITS; i++) {
        value row[4] = {value_int(1), value_text(str_from(cell)), value_real(i), value_bool(true)};
        t = begin(s, true);
        OK(table_update(t, table_named(t, "people"), 1, row, &e));
        OK(txn_commit(t, &e));
    }
    store_close(s);
    assert_int_equal(stat(scratch("mourned/tables.mdb"), &st), 0);
    assert_in_range(st.st_size, CELL, LIMIT);
    for (int i = 0; i < 2; i++) {
        close(down[i]);
        close(up[i]);
    }
    free(cell);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definitions_can_be_cancelled),
        cmocka_unit_test(test_readers_see_what_a_killed_writer_left),
        cmocka_unit_test(test_readers_see_a_snapshot),
        cmocka_unit_test(test_statement_rollback),
        cmocka_unit_test(test_catalog_rolls_back_too),
        cmocka_unit_test(test_scans_survive_writes),
        cmocka_unit_test(test_groups_of_keys_can_be_cancelled),
        cmocka_unit_test(test_entries_without_rows),
        cmocka_unit_test(test_full_map_is_a_clear_error),
        cmocka_unit_test(test_huge_cells),
        cmocka_unit_test(test_two_processes),
        cmocka_unit_test(test_killed_writer),
        cmocka_unit_test(test_killed_reader),
        cmocka_unit_test(test_schema_of_another_process),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
