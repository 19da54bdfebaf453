/*
 * test_exec_shared.c - two processes on one database: who waits, who starts over, who is told to
 * roll back.
 *
 * The second process is this program again: test_exec_shared DIRECTORY WAIT_MS SQL … runs the
 * statements after a wait.
 */
#include <ftw.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/exec.h"

extern char **environ;

static char directory[64], path[80];

static db *open_shared(void) {
    db *d;
    err e;
    db_options options = {.path = path};
    if (db_open(&options, &d, &e) != 0) {
        fprintf(stderr, "%s\n", e.message);
        exit(2);
    }
    return d;
}

static int run(db *d, const char *sql, int64_t *first, err *e) {
    const batch *b;
    stmt_status status;
    stmt *s = db_submit(d, str_from(sql));
    err_clear(e);
    while ((status = stmt_next(s, -1, &b, e)) == STMT_ROWS)
        if (first && b->cols[0].type == TYPE_INTEGER)
            *first = b->cols[0].i[0];
    stmt_free(s);
    return status == STMT_ERROR ? (int)e->code : 0;
}

static void run_ok(db *d, const char *sql) {
    err e;
    if (run(d, sql, NULL, &e))
        fail_msg("%s: %s", sql, e.message);
}

static int64_t number(db *d, const char *sql) {
    int64_t n = -1;
    err e;
    if (run(d, sql, &n, &e))
        fail_msg("%s: %s", sql, e.message);
    return n;
}

/* ---- the other process -------------------------------------------------------------------------
 */

static pid_t start_other(const char *wait_ms, const char *first, const char *second) {
    char self[] = "/proc/self/exe";
    char *args[] = {
        self, path, (char *)(uintptr_t)wait_ms, (char *)(uintptr_t)first, (char *)(uintptr_t)second,
        NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, self, NULL, NULL, args, environ), 0);
    return pid;
}

static void wait_other(pid_t pid) {
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Lingers for a while with what it left open. */
static int be_other(int argc, char **argv) {
    err e;
    snprintf(path, sizeof path, "%s", argv[1]);
    usleep((useconds_t)atoi(argv[2]) * 1000);
    db *d = open_shared();
    for (int k = 3; k < argc; k++) {
        if (run(d, argv[k], NULL, &e) != 0) {
            fprintf(stderr, "%s: %s\n", argv[k], e.message);
            return 1;
        }
    }
    if (db_in_transaction(d))
        usleep(600000);
    db_close(d);
    return 0;
}

/* ---- tests -------------------------------------------------------------------------------------
 */

static void a_transaction_whose_reads_are_stale_cannot_write(void **state) {
    (void)state;
    db *d = open_shared();
    err e;
    run_ok(d, "CREATE TABLE a (x INTEGER)");
    run_ok(d, "BEGIN");
    assert_int_equal(number(d, "SELECT count(*) FROM a"), 0);
    wait_other(start_other("0", "INSERT INTO a VALUES (1)", NULL));
    assert_int_equal(number(d, "SELECT count(*) FROM a"), 0); /* its snapshot */
    assert_int_equal(run(d, "INSERT INTO a VALUES (2)", NULL, &e), ERR_BUSY);
    assert_true(db_transaction_failed(d));
    assert_int_equal(run(d, "SELECT count(*) FROM a", NULL, &e), ERR_BUSY);
    assert_int_equal(run(d, "COMMIT", NULL, &e), ERR_BUSY);
    run_ok(d, "ROLLBACK");
    assert_false(db_in_transaction(d));
    assert_int_equal(number(d, "SELECT count(*) FROM a"), 1);
    run_ok(d, "BEGIN");
    assert_int_equal(number(d, "SELECT count(*) FROM a"), 1);
    run_ok(d, "INSERT INTO a VALUES (2)"); /* nobody wrote since */
    run_ok(d, "COMMIT");
    assert_int_equal(number(d, "SELECT count(*) FROM a"), 2);
    db_close(d);
}

static void a_writer_waits_for_the_other_and_gives_up_in_time(void **state) {
    (void)state;
    db *d = open_shared();
    err e;
    run_ok(d, "CREATE TABLE b (x INTEGER)");
    run_ok(d, "BEGIN");
    run_ok(d, "INSERT INTO b VALUES (1)");
    pid_t other = start_other("0", "SET busy_timeout = 20000", "INSERT INTO b VALUES (2)");
    usleep(100000);
    run_ok(d, "COMMIT");
    wait_other(other);
    assert_int_equal(number(d, "SELECT sum(x) FROM b"), 3);

    other = start_other("0", "BEGIN",
                        "INSERT INTO b VALUES (4)"); /* it holds the lock for 600 ms, then goes */
    usleep(250000);
    run_ok(d, "SET busy_timeout = 50");
    assert_int_equal(run(d, "INSERT INTO b VALUES (8)", NULL, &e), ERR_BUSY);
    run_ok(d, "SET busy_timeout = 20000");
    run_ok(d, "INSERT INTO b VALUES (16)");
    wait_other(other);
    assert_int_equal(number(d, "SELECT sum(x) FROM b"),
                     19); /* the other's transaction was never committed */
    db_close(d);
}

static void an_update_with_calls_starts_over_when_its_table_changed(void **state) {
    (void)state;
    db *d = open_shared();
    run_ok(d, "CREATE MODEL m FROM 'test:hash'");
    run_ok(d, "SET model = 'm'");
    run_ok(d, "CREATE TABLE c (id INTEGER PRIMARY KEY, body TEXT, n INTEGER)");
    run_ok(d, "INSERT INTO c VALUES (1, 'aa', 0), (2, 'aaa', 0)");
    /* The comparison after the call takes its time, so that the other comes in between. */
    pid_t other = start_other("150", "INSERT INTO c VALUES (3, 'a', 5)", NULL);
    run_ok(d, "UPDATE c SET n = CASE WHEN LLM('Which of {body}?', body) RETURNS ENUM('x', 'y') IN "
              "('x', 'y') "
              "AND repeat(body, 20000) LIKE '%' || repeat('a', 8000) || 'b_' THEN 1 ELSE 2 END");
    wait_other(other);
    assert_int_equal(number(d, "SELECT count(*) FROM c"), 3);
    /* Applied to what was there when it was applied: before the other's row, or with it. */
    assert_int_equal(number(d, "SELECT count(*) FROM c WHERE n = 2 AND id < 3"), 2);
    db_close(d);
}

static int remove_one(const char *file, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(file);
}

static int setup(void **state) {
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/test_exec_shared-XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    snprintf(path, sizeof path, "%s/db.kvasir", directory);
    return setenv("XDG_CACHE_HOME", directory, 1);
}

static int teardown(void **state) {
    (void)state;
    return nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv) {
    if (argc > 3)
        return be_other(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transaction_whose_reads_are_stale_cannot_write),
        cmocka_unit_test(a_writer_waits_for_the_other_and_gives_up_in_time),
        cmocka_unit_test(an_update_with_calls_starts_over_when_its_table_changed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
