/*
 * test_exec_shared.c - two processes on one database: who waits, who starts over, who is told to
 * roll back.
 */
#include "exec_other_int.h"

static int64_t number(db *d, const char *sql) {
    return run_ok(d, sql).first;
}

/* ---- tests -------------------------------------------------------------------------------------
 */

static void a_transaction_whose_reads_are_stale_cannot_write(void **state) {
    (void)state;
    db *d = open_path();
    run_ok(d, "CREATE TABLE a (x INTEGER)");
    run_ok(d, "BEGIN");
    assert_int_equal(number(d, "SELECT count(*) FROM a"), 0);
    wait_other(start_other("0", "INSERT INTO a VALUES (1)", NULL));
    assert_int_equal(number(d, "SELECT count(*) FROM a"), 0); /* its snapshot */
    assert_int_equal(run(d, "INSERT INTO a VALUES (2)").status, ERR_BUSY);
    assert_true(db_transaction_failed(d));
    assert_int_equal(run(d, "SELECT count(*) FROM a").status, ERR_BUSY);
    assert_int_equal(run(d, "COMMIT").status, ERR_BUSY);
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
    db *d = open_path();
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
    assert_int_equal(run(d, "INSERT INTO b VALUES (8)").status, ERR_BUSY);
    run_ok(d, "SET busy_timeout = 20000");
    run_ok(d, "INSERT INTO b VALUES (16)");
    wait_other(other);
    /* the other's transaction was never committed */
    assert_int_equal(number(d, "SELECT sum(x) FROM b"), 19);
    db_close(d);
}

static void an_update_with_calls_starts_over_when_its_table_changed(void **state) {
    (void)state;
    db *d = open_path();
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

/* Calls of RETURNING are answered before the write transaction, as those of SET are. */
static void what_starts_over_returns_its_rows_once(void **state) {
    (void)state;
    db *d = open_path();
    run_ok(d, "CREATE TABLE r (id INTEGER PRIMARY KEY, body TEXT, n INTEGER)");
    run_ok(d, "INSERT INTO r VALUES (1, 'aa', 0), (2, 'aaa', 0)");
    pid_t other = start_other("150", "INSERT INTO r VALUES (3, 'a', 5)", NULL);
    outcome o = run_ok(d, "UPDATE r SET n = n + 1 RETURNING id, LLM('Which of {b}?', repeat(body, "
                          "20000) LIKE '%' || repeat('a', 8000) || 'b_' AS b) RETURNS ENUM('x', "
                          "'y') IN ('x', 'y')");
    wait_other(other);
    assert_int_equal(number(d, "SELECT count(*) FROM r WHERE n IN (1, 6)"), (int64_t)o.sum.rows);
    assert_int_equal(number(d, "SELECT count(*) FROM r WHERE n IN (1, 5, 6)"), 3);
    db_close(d);
}

/* One directory for all. */
static int setup(void **state) {
    return make_directory(state) ? -1 : setenv("XDG_CACHE_HOME", directory, 1);
}

int main(int argc, char **argv) {
    if (argc > 1)
        return be_other(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_transaction_whose_reads_are_stale_cannot_write),
        cmocka_unit_test(a_writer_waits_for_the_other_and_gives_up_in_time),
        cmocka_unit_test(an_update_with_calls_starts_over_when_its_table_changed),
        cmocka_unit_test(what_starts_over_returns_its_rows_once),
    };
    return cmocka_run_group_tests(tests, setup, remove_directory);
}
