/*
 * test_exec_spill.c - what operators keep beyond work_memory: how much, where, and what is left of
 * it.
 */
#include <dirent.h>
#include <signal.h>

#include "exec_other_int.h"

static db *d;

static void ok(const char *sql) {
    run_ok(d, sql);
}

/* Names in a directory, but for "." and "..". */
static int names_in(const char *where) {
    DIR *dir = opendir(where);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static int open_files(void) {
    return names_in("/proc/self/fd");
}

static char temporary[96];

static int set_up(void **state) {
    if (make_directory(state))
        return 1;
    snprintf(temporary, sizeof temporary, "%s/tmp", directory);
    if (mkdir(temporary, 0700) || setenv("TMPDIR", temporary, 1))
        return 1;
    d = open_path();
    ok("CREATE TABLE digits AS SELECT column1 AS x FROM (VALUES (0),(1),(2),(3),(4),(5),(6),(7),"
       "(8),(9))");
    /* 10,000 rows of about 300 bytes */
    ok("CREATE TABLE wide AS SELECT a.x * 1000 + b.x * 100 + c.x * 10 + d.x AS id, "
       "'row ' || a.x || b.x || c.x || d.x || repeat(' and so on', 30) AS t "
       "FROM digits a, digits b, digits c, digits d");
    return 0;
}

static int tear_down(void **state) {
    db_close(d);
    return remove_directory(state);
}

/* ---- temporary files ------------------------------------------------------------------------- */

static const char *const greedy[] = {
    "SELECT t FROM wide ORDER BY t DESC",
    "SELECT DISTINCT t FROM wide",
    "SELECT count(*) FROM wide a JOIN wide b ON a.t = b.t",
    "SELECT a.id FROM wide a, digits b ORDER BY a.t, b.x",
    "SELECT t FROM wide EXCEPT SELECT t FROM wide WHERE id > 5",
    "WITH w AS (SELECT * FROM wide) SELECT count(*) FROM w a JOIN w b ON a.id = b.id",
    "INSERT INTO wide SELECT * FROM wide WHERE id < 0 RETURNING t",
};

static void test_a_small_memory_changes_nothing(void **state) {
    (void)state;
    uint64_t hash[BASE_COUNT(greedy)];
    for (size_t i = 0; i < BASE_COUNT(greedy); i++) {
        outcome o = run_ok(d, greedy[i]);
        hash[i] = o.hash;
        assert_int_equal(o.sum.space.file_peak_bytes, 0);
    }
    ok("SET work_memory = '64kB'");
    int files = open_files();
    size_t spilled = 0;
    for (size_t i = 0; i < BASE_COUNT(greedy); i++) {
        outcome o = run_ok(d, greedy[i]);
        assert_int_equal(o.hash, hash[i]);
        assert_true(o.sum.space.heap_peak_bytes < 1 << 20);
        spilled += o.sum.space.file_peak_bytes > 0;
        assert_int_equal(open_files(), files);
    }
    assert_true(spilled >= 5);
    assert_int_equal(names_in(temporary), 0);
    ok("RESET work_memory");
}

/* No operator's file alone is beyond the limit that all together exceed. */
static void test_the_limit_is_of_all_files_together(void **state) {
    (void)state;
    static const char two[] = "SELECT DISTINCT t FROM wide ORDER BY t";
    ok("SET work_memory = '64kB'");
    size_t sorted = run_ok(d, "SELECT t FROM wide ORDER BY t").sum.space.file_peak_bytes,
           both = run_ok(d, two).sum.space.file_peak_bytes;
    assert_true(both > sorted);
    char set[80];
    snprintf(set, sizeof set, "SET max_temp_directory_size = %zu", (both + sorted) / 2);
    ok(set);
    ok("SELECT t FROM wide ORDER BY t");
    int files = open_files();
    outcome o = run(d, two);
    assert_int_equal(o.status, ERR_FULL);
    assert_true(o.sum.space.file_peak_bytes <= (both + sorted) / 2);
    assert_int_equal(open_files(), files);
    assert_int_equal(names_in(temporary), 0);
    ok("SELECT t FROM wide ORDER BY t"); /* what one took the next may take again */
    ok("RESET max_temp_directory_size");
    assert_int_equal(run_ok(d, two).sum.space.file_peak_bytes, both);
    ok("RESET work_memory");
}

static void test_every_operator_stops_at_the_limit(void **state) {
    (void)state;
    ok("SET work_memory = '64kB'");
    ok("SET max_temp_directory_size = '1MB'");
    int files = open_files(), stopped = 0;
    for (size_t i = 0; i < BASE_COUNT(greedy); i++) {
        outcome o = run(d, greedy[i]);
        assert_true(o.status == 0 || o.status == ERR_FULL);
        assert_true(o.sum.space.file_peak_bytes <= 1 << 20);
        assert_true(o.sum.space.heap_peak_bytes < 4 << 20);
        assert_int_equal(open_files(), files);
        stopped += o.status != 0;
    }
    assert_true(stopped >= 5);
    ok("RESET max_temp_directory_size");
    ok("RESET work_memory");
}

static void test_no_directory_for_files_is_an_error(void **state) {
    (void)state;
    char none[110];
    snprintf(none, sizeof none, "%s/none", temporary);
    setenv("TMPDIR", none, 1);
    db_close(d); /* TMPDIR is read once a statement's memory is made */
    d = open_path();
    ok("SET work_memory = '64kB'");
    assert_int_equal(run(d, greedy[0]).status, ERR_IO);
    ok("RESET work_memory");
    ok(greedy[0]);
    setenv("TMPDIR", temporary, 1);
    db_close(d);
    d = open_path();
}

/* Killed at any moment, a process leaves no file behind, by no name. */
static void test_a_kill_leaves_nothing(void **state) {
    (void)state;
    db_close(d);
    for (int wait = 1; wait <= 16; wait *= 4) {
        pid_t pid = start_other("0", "SET work_memory = '1kB'",
                                "SELECT a.t, b.t FROM wide a, wide b ORDER BY a.t, b.id");
        usleep((useconds_t)wait * 10000);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(names_in(temporary), 0);
    }
    d = open_path();
    assert_int_equal(run_ok(d, "SELECT count(*) FROM wide").first, 10000);
}

int main(int argc, char **argv) {
    if (argc > 1)
        return be_other(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_small_memory_changes_nothing),
        cmocka_unit_test(test_the_limit_is_of_all_files_together),
        cmocka_unit_test(test_every_operator_stops_at_the_limit),
        cmocka_unit_test(test_no_directory_for_files_is_an_error),
        cmocka_unit_test(test_a_kill_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
