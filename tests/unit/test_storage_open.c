/* test_storage_open.c - which directories are databases,
 * read-only ones, formats, :memory:, backups, orphans. */
#include <errno.h>
#include <fcntl.h>
#include <lmdb.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "storage_help_int.h"
#include "tables/tables_int.h"

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int try_open(const char *path, bool read_only, bool must_exist) {
    store *s = NULL;
    store_options options = {.path = path, .read_only = read_only, .must_exist = must_exist};
    err_clear(&e);
    int status = store_open(&options, &s, &e);
    if (!status)
        store_close(s);
    return status;
}

static int directories_synced;
static const char *made_meanwhile; /* a file that somebody makes; or NULL */

/* Stands in for the C library's. */
int fsync(int fd) {
    struct stat st;
    if (made_meanwhile)
        write_file(made_meanwhile, "");
    directories_synced += fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
    return 0;
}

static void test_names_are_durable(void **state) {
    (void)state;
    directories_synced = 0;
    assert_int_equal(try_open(scratch("named"), false, false), 0);
    assert_int_equal(directories_synced, 2); /* the database's and the one that it is in */
    assert_int_equal(try_open(scratch("named"), false, false), 0);
    assert_int_equal(try_open(NULL, false, false), 0);
    assert_int_equal(directories_synced, 2);
}

static void test_what_is_not_a_database(void **state) {
    (void)state;
    assert_int_equal(try_open(scratch("absent"), false, true), ERR_IO);
    assert_non_null(strstr(e.message, "no database"));
    assert_int_equal(try_open(scratch("absent"), true, false), ERR_IO);
    write_file(scratch("file.csv"), "a,b\n1,2\n");
    assert_int_equal(try_open(scratch("file.csv"), false, false), ERR_CORRUPT);
    assert_non_null(strstr(e.message, "is a file"));
    write_file(scratch("x.sqlite"), "SQLite format 3");
    truncate(scratch("x.sqlite"), 512);
    assert_int_equal(try_open(scratch("x.sqlite"), false, false), ERR_CORRUPT);
    assert_non_null(strstr(e.message, "SQLite"));
    mkdir(scratch("folder"), 0777);
    write_file(scratch("folder/letter.txt"), "hello");
    assert_int_equal(try_open(scratch("folder"), false, false), ERR_CORRUPT);
    assert_non_null(strstr(e.message, "letter.txt"));
    assert_int_not_equal(access(scratch("folder/writer.lock"), F_OK), 0);
    mkdir(scratch("garbage"), 0777);
    write_file(scratch("garbage/tables.mdb"), "this is no LMDB file, however long it may be");
    truncate(scratch("garbage/tables.mdb"), 100000);
    assert_int_equal(try_open(scratch("garbage"), false, false), ERR_CORRUPT);
    assert_int_equal(try_open(scratch("no/such/parent"), false, false), ERR_IO);
}

static void test_another_programs_lmdb_file(void **state) {
    (void)state;
    mkdir(scratch("foreign"), 0777);
    MDB_env *env;
    MDB_txn *t;
    MDB_dbi dbi;
    assert_int_equal(mdb_env_create(&env), 0);
    mdb_env_set_maxdbs(env, 4);
    assert_int_equal(mdb_env_open(env, scratch("foreign/tables.mdb"), MDB_NOSUBDIR, 0644), 0);
    mdb_txn_begin(env, NULL, 0, &t);
    mdb_dbi_open(t, "theirs", MDB_CREATE, &dbi);
    mdb_txn_commit(t);
    mdb_env_close(env);
    assert_int_equal(try_open(scratch("foreign"), false, false), ERR_CORRUPT);
    assert_non_null(strstr(e.message, "another program"));
}

/* Rewrites the header's version in a closed database. */
static void set_version(const char *path, uint32_t version) {
    char file[600];
    MDB_env *env;
    MDB_txn *t;
    MDB_dbi dbi;
    MDB_val key = {1, "H"}, data;
    uint8_t header[64];
    snprintf(file, sizeof file, "%s/tables.mdb", path);
    mdb_env_create(&env);
    mdb_env_set_maxdbs(env, 4);
    assert_int_equal(mdb_env_open(env, file, MDB_NOSUBDIR, 0644), 0);
    mdb_txn_begin(env, NULL, 0, &t);
    assert_int_equal(mdb_dbi_open(t, "catalog", 0, &dbi), 0);
    assert_int_equal(mdb_get(t, dbi, &key, &data), 0);
    const sum_rule rule = {.seed = TREE_CATALOG, .head_bytes = SUM_WHOLE};
    size_t sums = sum_bytes(0);
    memcpy(header, data.mv_data, data.mv_size);
    memcpy(header + sums + 8, &version, 4);
    sum_write(&rule, key, header + sums, data.mv_size - sums, header);
    data.mv_data = header;
    assert_int_equal(mdb_put(t, dbi, &key, &data, 0), 0);
    mdb_txn_commit(t);
    mdb_env_close(env);
}

static void test_other_format_versions_are_refused(void **state) {
    (void)state;
    store_close(open_at(scratch("version")));
    set_version(scratch("version"), FORMAT_VERSION + 1);
    assert_int_equal(try_open(scratch("version"), false, false), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "format version 3"));
    assert_non_null(strstr(e.hint, "newer"));
    set_version(scratch("version"), 0);
    assert_int_equal(try_open(scratch("version"), true, false), ERR_UNSUPPORTED);
    set_version(scratch("version"), FORMAT_VERSION);
    assert_int_equal(try_open(scratch("version"), false, true), 0);
}

/* Removes what version 2 added to a value; false: version 1 did not have the value at all. */
static bool make_old_value(const char *tree, MDB_val key, MDB_val *v) {
    const uint32_t one = 1;
    if (!sum_payload(*v, v))
        fail();
    if (strcmp(tree, "meta") == 0)
        return key.mv_size < 8 || memcmp(key.mv_data, "catalog:", 8) != 0;
    if (strcmp(tree, "catalog") != 0)
        return true;
    switch (*(const char *)key.mv_data) {
    case 'H':
        memcpy((char *)v->mv_data + 8, &one, 4);
        break;
    case 'S':
        v->mv_size = 8;
        break;
    case 'T':
        v->mv_size--;
        break;
    }
    return true;
}

static void make_old_tree(MDB_txn *t, const char *name) {
    arena *a = arena_new();
    MDB_dbi dbi;
    MDB_cursor *c;
    MDB_val keys[4000], values[4000], key, v;
    size_t n = 0;
    assert_int_equal(mdb_dbi_open(t, name, 0, &dbi), 0);
    assert_int_equal(mdb_cursor_open(t, dbi, &c), 0);
    for (int rc = mdb_cursor_get(c, &key, &v, MDB_FIRST); rc == 0;
         rc = mdb_cursor_get(c, &key, &v, MDB_NEXT)) {
        key.mv_data = arena_strndup(a, key.mv_data, key.mv_size);
        v.mv_data = arena_strndup(a, v.mv_data, v.mv_size);
        if (!make_old_value(name, key, &v))
            continue;
        assert_true(n < 4000);
        keys[n] = key;
        values[n++] = v;
    }
    mdb_cursor_close(c);
    assert_int_equal(mdb_drop(t, dbi, 0), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(mdb_put(t, dbi, &keys[i], &values[i], 0), 0);
    arena_free(a);
}

/* Makes a closed database as format version 1 would have written it. */
static void make_old(const char *path) {
    static const char *const trees[] = {"catalog", "meta", "s0", "s1"};
    char file[600];
    MDB_env *env;
    MDB_txn *t;
    snprintf(file, sizeof file, "%s/tables.mdb", path);
    assert_int_equal(mdb_env_create(&env), 0);
    mdb_env_set_maxdbs(env, 8);
    assert_int_equal(mdb_env_open(env, file, MDB_NOSUBDIR, 0644), 0);
    assert_int_equal(mdb_txn_begin(env, NULL, 0, &t), 0);
    for (int i = 0; i < 4; i++)
        make_old_tree(t, trees[i]);
    assert_int_equal(mdb_txn_commit(t), 0);
    mdb_env_close(env);
}

static double sum_of_scores(txn *t, int *rows) {
    const int score = 2;
    scan_spec spec = {.table = table_named(t, "people"), .columns = &score, .ncolumns = 1};
    table_scan *scan;
    batch b = {.mem = arena_new()};
    double sum = 0;
    *rows = 0;
    OK(scan_open(t, &spec, &scan, &e));
    do {
        OK(scan_next(scan, &b, &e));
        for (int i = 0; i < b.rows; i++)
            sum += b.cols[0].r[i];
        *rows += b.rows;
    } while (b.rows);
    scan_close(scan);
    arena_free(b.mem);
    return sum;
}

/* Its rows are read without checksums; the first write gives catalog and settings theirs, also if it
 * is rolled back; new tables have them. */
static void test_version_1_is_read_and_upgraded(void **state) {
    (void)state;
    enum { ROWS = 3000 };
    int rows;
    store *s = open_at(scratch("version1"));
    txn *t = begin(s, true);
    create_people(t);
    for (int i = 0; i < ROWS; i++)
        add_person(t, value_null(), "somebody", i);
    OK(stats_analyze(t, table_named(t, "people"), NULL, &e));
    int name = 1;
    index_def index = {.name = STR("by_name"), .ncolumns = 1, .columns = &name};
    OK(catalog_create_index(t, STR("people"), &index, NULL, NULL, &e));
    OK(txn_commit(t, &e));
    store_close(s);
    make_old(scratch("version1"));
    s = open_at(scratch("version1"));
    t = begin(s, false);
    assert_true(sum_of_scores(t, &rows) == ROWS * (ROWS - 1) / 2);
    assert_int_equal(t->format, FORMAT_WITHOUT_SUMS);
    txn_abort(t);
    txn_abort(begin(s, true));
    t = begin(s, true);
    assert_int_equal(t->format, FORMAT_VERSION);
    add_person(t, value_null(), "new", 1);
    OK(txn_commit(t, &e));
    store_close(s);
    s = open_at(scratch("version1"));
    t = begin(s, true);
    assert_true(sum_of_scores(t, &rows) == ROWS * (ROWS - 1) / 2 + 1);
    assert_int_equal(rows, ROWS + 1);
    assert_false(t->snap->infos[0].has_sums);
    OK(catalog_drop_table(t, STR("people"), &e));
    create_people(t); /* in the same trees, with checksums */
    assert_true(t->snap->infos[0].has_sums);
    for (int i = 0; i < 300; i++)
        add_person(t, value_null(), "again", 2);
    OK(txn_commit(t, &e));
    t = begin(s, false);
    assert_true(sum_of_scores(t, &rows) == 600);
    txn_abort(t);
    store_close(s);
}

/* LMDB's lock files are mapped: a hole in one is a SIGBUS on a full disk. */
static void test_lock_files_have_no_holes(void **state) {
    (void)state;
    store_options options = {.path = scratch("blocks")};
    store *s = NULL;
    OK(store_open(&options, &s, &e));
    assert_non_null(store_cache(s, &e));
    const char *files[] = {"blocks/tables.mdb-lock", "blocks/cache.mdb-lock"};
    for (size_t i = 0; i < BASE_COUNT(files); i++) {
        struct stat st;
        assert_int_equal(stat(scratch(files[i]), &st), 0);
        assert_true(st.st_size > 0 && st.st_blocks * 512 >= st.st_size);
    }
    store_close(s);
}

/* In a child with a disk of its own that `kilobytes` are left of; 77: the system lends none. */
static int on_small_disk(const char *directory, int kilobytes, int (*work)(const char *path)) {
    pid_t child = fork();
    if (child == 0) {
        char size[32], path[600];
        snprintf(size, sizeof size, "size=%dk", kilobytes);
        snprintf(path, sizeof path, "%s/db", directory);
        bool lent = unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) == 0 &&
                    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                    mount("tmpfs", directory, "tmpfs", 0, size) == 0;
        _exit(lent ? work(path) : 77);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

static int open_only(const char *path) {
    return try_open(path, false, false) == ERR_FULL && strstr(e.message, "space") ? 0 : 1;
}

static int fill(const char *path) {
    store *s = open_at(path);
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    t = begin(s, true);
    for (int i = 0; i < 20000; i++)
        add_person(t, value_null(), "Ada Lovelace of the many letters", i);
    int status = txn_commit(t, &e);
    bool said = status == ERR_IO && strstr(e.message, "disk is full") && strstr(e.message, path);
    t = begin(s, false);
    bool undone = count_rows(t, "people") == 0;
    txn_abort(t);
    store_close(s);
    return said && undone ? 0 : 1;
}

static void test_full_disk(void **state) {
    (void)state;
    mkdir(scratch("disk"), 0777);
    int status = on_small_disk(scratch("disk"), 12, open_only);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
    assert_int_equal(on_small_disk(scratch("disk"), 256, fill), 0);
}

/* A commit that the disk had no room for takes none of it, and the next one that fits goes on. */
static void test_failed_commit_gives_back_its_room(void **state) {
    (void)state;
    enum { ROOM = 256 << 10 };
    struct stat before, after;
    struct rlimit all, few;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    store *s = open_at(scratch("room"));
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    assert_int_equal(stat(scratch("room/tables.mdb"), &before), 0);
    t = begin(s, true);
    for (int i = 0; i < 20000; i++)
        add_person(t, value_null(), "too many", i);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = all;
    few.rlim_cur = (rlim_t)before.st_size + ROOM;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    int status = txn_commit(t, &e);
    int rc = setrlimit(RLIMIT_FSIZE, &all);
    signal(SIGXFSZ, handler);
    assert_int_equal(rc, 0);
    assert_int_equal(status, ERR_IO);
    assert_int_equal(stat(scratch("room/tables.mdb"), &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    t = begin(s, true);
    assert_int_equal(count_rows(t, "people"), 0);
    add_person(t, value_null(), "one", 1);
    OK(txn_commit(t, &e));
    t = begin(s, false);
    assert_int_equal(count_rows(t, "people"), 1);
    txn_abort(t);
    store_close(s);
}

/* A transaction at LMDB's limit of changed pages is no full database: half a GiB of pages in a test
 * would be too much to see it. */
static void test_what_is_full_is_said(void **state) {
    (void)state;
    FAILS(ERR_FULL, lmdb_error(&e, MDB_MAP_FULL, "cannot write"));
    assert_non_null(strstr(e.message, "maximum size"));
    FAILS(ERR_FULL, lmdb_error(&e, MDB_TXN_FULL, "cannot write"));
    assert_non_null(strstr(e.message, "uncommitted changes"));
    assert_non_null(strstr(e.hint, "COMMIT"));
    FAILS(ERR_FULL, lmdb_error(&e, MDB_MAP_RESIZED, "cannot read"));
    assert_non_null(strstr(e.message, "cannot map all of it"));
    FAILS(ERR_FULL, lmdb_error(&e, ENOSPC, "cannot write"));
    assert_non_null(strstr(e.message, "disk"));
}

static void test_once_per_process(void **state) {
    (void)state;
    store *s = open_at(scratch("once"));
    assert_int_equal(try_open(scratch("once/"), false, false), ERR_BUSY);
    store_close(s);
    assert_int_equal(try_open(scratch("once"), false, false), 0);
}

static void test_read_only(void **state) {
    (void)state;
    const char *path = scratch("ro");
    store *s = open_at(path);
    txn *t = begin(s, true);
    create_people(t);
    add_person(t, value_null(), "Ada", 1);
    OK(txn_commit(t, &e));
    store_close(s);
    store_options options = {.path = path, .read_only = true};
    OK(store_open(&options, &s, &e));
    assert_true(store_is_read_only(s));
    FAILS(ERR_IO, txn_begin(s, true, NULL, &t, &e));
    t = begin(s, false);
    assert_int_equal(count_rows(t, "people"), 1);
    value row[4] = {value_null(), value_null(), value_null(), value_null()};
    FAILS(ERR_INTERNAL, table_insert(t, table_named(t, "people"), row, NULL, &e));
    txn_abort(t);
    store_close(s);
}

/* A directory without write permission opens read-only;
 * root ignores permissions, so a child becomes nobody. */
static void test_directory_without_permission(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch("guarded"));
    store *s = open_at(path);
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    store_close(s);
    chmod(scratch_dir, 0755);
    chmod(path, 0555);
    chmod(scratch("guarded/writer.lock"), 0444);
    chmod(scratch("guarded/tables.mdb"), 0444);
    chmod(scratch("guarded/tables.mdb-lock"), 0444);
    pid_t pid = fork();
    if (pid == 0) {
        if (getuid() == 0 && setuid(65534) != 0)
            _exit(9);
        store_options options = {.path = path};
        txn *r = NULL, *w = NULL;
        if (store_open(&options, &s, &e) != 0 || !store_is_read_only(s) ||
            txn_begin(s, false, NULL, &r, &e) != 0)
            _exit(1);
        uint64_t n = 1;
        if (table_row_count(r, catalog_table(txn_catalog(r), STR("people")), &n, &e) != 0 || n != 0)
            _exit(2);
        if (txn_begin(s, true, NULL, &w, &e) != ERR_IO)
            _exit(3);
        txn_abort(r);
        store_close(s);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    chmod(path, 0755);
    assert_int_equal(status, 0);
}

static void test_memory_leaves_nothing(void **state) {
    (void)state;
    setenv("TMPDIR", scratch_dir, 1);
    store *a = open_at(NULL), *b = open_at(":memory:");
    assert_true(store_is_memory(a));
    assert_string_equal(store_path(b), ":memory:");
    txn *t = begin(a, true);
    create_people(t);
    OK(txn_commit(t, &e));
    t = begin(b, false);
    assert_null(catalog_table(txn_catalog(t), STR("people")));
    store_close(b); /* aborts what is open */
    store_close(a);
    DIR *d = opendir(scratch_dir);
    for (struct dirent *entry; (entry = readdir(d));)
        assert_null(strstr(entry->d_name, "kvasir-mem-"));
    closedir(d);
}

static void test_orphans_are_swept(void **state) {
    (void)state;
    setenv("TMPDIR", scratch_dir, 1);
    int up[2];
    assert_int_equal(pipe(up), 0);
    pid_t pid = fork();
    if (pid == 0) {
        store *s = NULL;
        store_options options = {0};
        char own[300] = "";
        if (store_open(&options, &s, &e) == 0) {
            snprintf(own, sizeof own, "%s", s->path);
            if (write(up[1], own, sizeof own) == sizeof own)
                pause();
        }
        _exit(1);
    }
    char path[300];
    assert_int_equal(read(up[0], path, sizeof path), sizeof path);
    store_close(open_at(NULL));
    assert_int_equal(access(path, F_OK), 0); /* its owner lives */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    store_close(open_at(NULL));
    assert_int_not_equal(access(path, F_OK), 0);
    close(up[0]);
    close(up[1]);
}

static void test_backup(void **state) {
    (void)state;
    store *s = open_at(scratch("origin"));
    txn *t = begin(s, true);
    create_people(t);
    for (int i = 0; i < 1000; i++)
        add_person(t, value_null(), "copied", i);
    OK(txn_commit(t, &e));
    OK(store_backup(s, scratch("copy"), NULL, &e));
    FAILS(ERR_IO, store_backup(s, scratch("copy"), NULL, &e));
    store *copy = open_at(scratch("copy"));
    t = begin(copy, false);
    assert_int_equal(count_rows(t, "people"), 1000);
    txn_abort(t);
    store_close(copy);
    store_close(s);
}

/* A copy has its name when it is whole and on the disk: one that was broken off has none. */
static void test_backup_is_whole_or_none(void **state) {
    (void)state;
    enum { ROWS = 20000, SMALL = 64 << 10 };
    char file[600];
    int status;
    struct stat st;
    store *s = open_at(scratch("long"));
    txn *t = begin(s, true);
    create_people(t);
    for (int i = 0; i < ROWS; i++)
        add_person(t, value_null(), "copied", i);
    OK(txn_commit(t, &e));
    pid_t pid = fork();
    if (pid == 0) { /* ends in the midst of writing, as by a kill */
        signal(SIGXFSZ, SIG_DFL);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){SMALL, SMALL});
        store_backup(s, scratch("saved"), NULL, &e);
        _exit(0);
    }
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    assert_int_not_equal(lstat(scratch("saved"), &st), 0);
    snprintf(file, sizeof file, "%s/saved.%ld.0.part/tables.mdb", scratch_dir, (long)pid);
    assert_int_equal(stat(file, &st), 0);
    directories_synced = 0;
    OK(store_backup(s, scratch("saved/"), NULL, &e));
    assert_int_equal(directories_synced, 2);
    assert_int_equal(stat(scratch("saved/tables.mdb"), &st), 0);
    FAILS(ERR_IO, store_backup(s, scratch("saved"), NULL, &e));
    store_close(s);
}

/* Where `ulimit -v` bounds the address space, the map leaves half of it to the model. */
static void test_map_leaves_address_space(void **state) {
    (void)state;
    enum { FREE = 3 << 29 };
    long pages = 0;
    struct rlimit usual;
    FILE *in = fopen("/proc/self/statm", "r");
    assert_non_null(in);
    assert_int_equal(fscanf(in, "%ld", &pages), 1);
    fclose(in);
    rlim_t space = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + FREE;
    assert_int_equal(getrlimit(RLIMIT_AS, &usual), 0);
    assert_int_equal(setrlimit(RLIMIT_AS, &(struct rlimit){space, usual.rlim_max}), 0);
    store *s;
    int status = store_open(&(store_options){.path = scratch("narrow")}, &s, &e);
    setrlimit(RLIMIT_AS, &usual);
    OK(status);
    assert_true(s->map_bytes <= space / 2);
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    store_close(s);
}

/* Nothing is taken for committed that nobody finds again; what was there can be read and saved. */
static void test_deleted_while_open(void **state) {
    (void)state;
    store *s = open_at(scratch("gone"));
    txn *t = begin(s, true);
    create_people(t);
    add_person(t, value_null(), "Ada", 1);
    OK(txn_commit(t, &e));
    remove_tree(scratch("gone"));
    FAILS(ERR_IO, txn_begin(s, true, NULL, &t, &e));
    assert_non_null(strstr(e.message, "was deleted"));
    t = begin(s, false);
    assert_int_equal(count_rows(t, "people"), 1);
    txn_abort(t);
    OK(store_backup(s, scratch("back"), NULL, &e));
    store_close(s);
    s = open_at(scratch("back"));
    t = begin(s, true);
    assert_int_equal(count_rows(t, "people"), 1);
    txn_abort(t);
    store_close(s);
}

static void test_backup_can_be_cancelled(void **state) {
    (void)state;
    char part[640];
    struct stat st;
    atomic_bool cancel = true;
    store *s = open_at(scratch("given up"));
    snprintf(part, sizeof part, "%s/half.%ld.0.part", scratch_dir, (long)getpid());
    FAILS(ERR_CANCELLED, store_backup(s, scratch("half"), &cancel, &e));
    assert_int_not_equal(lstat(scratch("half"), &st), 0);
    assert_int_not_equal(lstat(part, &st), 0);
    atomic_store(&cancel, false);
    OK(store_backup(s, scratch("half"), &cancel, &e));
    store_close(s);
}

/* What a process of the same number left, which was killed, is in nobody's way, and stays. */
static void test_backup_beside_a_broken_one(void **state) {
    (void)state;
    char left[640], ours[640];
    struct stat st;
    store *s = open_at(scratch("again"));
    snprintf(left, sizeof left, "%s/fresh.%ld.0.part", scratch_dir, (long)getpid());
    snprintf(ours, sizeof ours, "%s/fresh.%ld.1.part", scratch_dir, (long)getpid());
    assert_int_equal(mkdir(left, 0777), 0);
    OK(store_backup(s, scratch("fresh"), NULL, &e));
    assert_int_equal(stat(scratch("fresh/tables.mdb"), &st), 0);
    assert_int_equal(lstat(left, &st), 0);
    assert_int_not_equal(lstat(ours, &st), 0);
    store_close(s);
}

/* Who makes what has the backup's name meanwhile keeps it, and no copy stays beside it. */
static void test_backup_finds_its_name_taken(void **state) {
    (void)state;
    char part[640], taken[600];
    struct stat st;
    store *s = open_at(scratch("whose"));
    snprintf(taken, sizeof taken, "%s/taken", scratch_dir);
    snprintf(part, sizeof part, "%s.%ld.0.part", taken, (long)getpid());
    made_meanwhile = taken;
    FAILS(ERR_IO, store_backup(s, taken, NULL, &e));
    made_meanwhile = NULL;
    assert_true(stat(taken, &st) == 0 && S_ISREG(st.st_mode));
    assert_int_not_equal(lstat(part, &st), 0);
    FAILS(ERR_IO, store_backup(s, scratch("no such place/copy"), NULL, &e));
    assert_null(strstr(e.message, ".part"));
    store_close(s);
}

/* Copies `path` as one who may only read it, between what the parent does. */
static int copy_as_nobody(const char *path, const char *copied, int from_parent, int to_parent) {
    store *s = NULL;
    char go;
    if ((getuid() == 0 && setuid(65534) != 0) || read(from_parent, &go, 1) != 1)
        return 9;
    store_options options = {.path = path};
    if (store_open(&options, &s, &e) != 0 || !store_is_read_only(s))
        return 1;
    if (write(to_parent, "o", 1) != 1 || read(from_parent, &go, 1) != 1)
        return 2;
    int status = store_backup(s, copied, NULL, &e);
    store_close(s);
    return status ? 3 : 0;
}

/* Who may only read a database has no slot among LMDB's readers, which would keep
 * the pages that he copies: he waits for the writer, and has what that committed. */
static void test_backup_without_permission(void **state) {
    (void)state;
    char path[512], copied[512], byte;
    int down[2], up[2], status;
    snprintf(path, sizeof path, "%s", scratch("watched"));
    snprintf(copied, sizeof copied, "%s", scratch("public/copy"));
    assert_int_equal(pipe(down) | pipe(up), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(copy_as_nobody(path, copied, down[0], up[1]));
    store *s = open_at(path);
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    mkdir(scratch("public"), 0777);
    chmod(scratch("public"), 0777);
    chmod(scratch_dir, 0755);
    chmod(scratch("watched/writer.lock"), 0444);
    chmod(path, 0555);
    assert_int_equal(write(down[1], "g", 1), 1);
    assert_int_equal(read(up[0], &byte, 1), 1);
    t = begin(s, true);
    add_person(t, value_null(), "late", 1);
    assert_int_equal(write(down[1], "g", 1), 1);
    nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
    OK(txn_commit(t, &e));
    store_close(s);
    waitpid(pid, &status, 0);
    chmod(path, 0755);
    assert_int_equal(status, 0);
    s = open_at(copied);
    t = begin(s, false);
    assert_int_equal(count_rows(t, "people"), 1);
    txn_abort(t);
    store_close(s);
    for (int i = 0; i < 2; i++) {
        close(down[i]);
        close(up[i]);
    }
}

/* Zeroes the leaf pages that hold rows, but for the first row's. */
static void zero_leaves(const char *file, const char *in_a_row) {
    enum { PAGE = 4096, LEAF = 2 };
    static const unsigned char first_rowid[8] = {0x80, 0, 0, 0, 0, 0, 0, 1};
    unsigned char page[PAGE], zeros[PAGE] = {0};
    int fd = open(file, O_RDWR);
    for (off_t at = 2 * PAGE; pread(fd, page, PAGE, at) == PAGE; at += PAGE)
        if (page[10] == LEAF && memmem(page, PAGE, in_a_row, strlen(in_a_row)) &&
            !memmem(page, PAGE, first_rowid, sizeof first_rowid))
            assert_int_equal(pwrite(fd, zeros, PAGE, at), PAGE);
    close(fd);
}

/* LMDB gives up on some damage where it stands; which file it was is said before. */
static void test_damaged_pages_are_named(void **state) {
    (void)state;
    const int name = 1;
    scan_spec spec = {.columns = &name, .ncolumns = 1};
    table_scan *scan;
    batch b = {.mem = arena_new()};
    store *s = open_at(scratch("holes"));
    txn *t = begin(s, true);
    create_people(t);
    for (int i = 0; i < 2000; i++)
        add_person(t, value_null(), "somebody", i);
    OK(txn_commit(t, &e));
    store_close(s);
    zero_leaves(scratch("holes/tables.mdb"), "somebody");
    s = open_at(scratch("holes"));
    t = begin(s, false);
    spec.table = table_named(t, "people");
    int status = scan_open(t, &spec, &scan, &e);
    do
        status = status ? status : scan_next(scan, &b, &e);
    while (status == 0 && b.rows);
    assert_int_equal(status, ERR_CORRUPT);
    assert_non_null(strstr(e.message, "table \"people\" is damaged: page "));
    assert_non_null(strstr(e.message, "(rowids "));
    assert_non_null(strstr(e.hint, ".recover"));
    scan_close(scan);
    txn_abort(t);
    store_close(s);
    arena_free(b.mem);
}

static void test_network_file_systems(void **state) {
    (void)state;
    assert_string_equal(fs_network_name(0x6969), "NFS");
    assert_string_equal(fs_network_name((long)0xFF534D42), "CIFS");
    /* as a signed word has it */
    assert_string_equal(fs_network_name((long)(int32_t)0xFF534D42), "CIFS");
    assert_null(fs_network_name(0xEF53));
    assert_null(fs_network_name(0x01021994));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_durable),
        cmocka_unit_test(test_what_is_not_a_database),
        cmocka_unit_test(test_another_programs_lmdb_file),
        cmocka_unit_test(test_other_format_versions_are_refused),
        cmocka_unit_test(test_version_1_is_read_and_upgraded),
        cmocka_unit_test(test_lock_files_have_no_holes),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_failed_commit_gives_back_its_room),
        cmocka_unit_test(test_what_is_full_is_said),
        cmocka_unit_test(test_once_per_process),
        cmocka_unit_test(test_read_only),
        cmocka_unit_test(test_directory_without_permission),
        cmocka_unit_test(test_memory_leaves_nothing),
        cmocka_unit_test(test_orphans_are_swept),
        cmocka_unit_test(test_backup),
        cmocka_unit_test(test_map_leaves_address_space),
        cmocka_unit_test(test_deleted_while_open),
        cmocka_unit_test(test_backup_can_be_cancelled),
        cmocka_unit_test(test_backup_beside_a_broken_one),
        cmocka_unit_test(test_backup_finds_its_name_taken),
        cmocka_unit_test(test_backup_is_whole_or_none),
        cmocka_unit_test(test_backup_without_permission),
        cmocka_unit_test(test_damaged_pages_are_named),
        cmocka_unit_test(test_network_file_systems),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
