/*
 * test_exec_shared.c - two processes on one database: who waits, who starts over, who is told to
 * roll back.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "exec_other_int.h"

static int64_t number(db *d, const char *sql) {
    return run_ok(d, sql).first;
}

/* ---- tests ----------------------------------------------------------------------------------- */

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

/* ---- starting over ----------------------------------------------------------------------------- */

/*
 * A statement that reads a pipe stands still in its snapshot while the pipe gives nothing: the other
 * process writes then. Each time the statement reads, it finds another pipe of the same name.
 */
typedef struct feeder {
    const char *other_sql; /* what the other process does while the first pipe is read */
    char fifo[96];
    int read; /* pipes that were read to their end */
    bool other_succeeded;
} feeder;

/* What is read to find out types is less than these rows and a pipe hold together. */
enum { FILLING = 64, FILLING_BYTES = 1 << 16 };

static void *feed(void *arg) {
    static char filling[FILLING_BYTES];
    feeder *f = arg;
    memset(filling, 'x', sizeof filling);
    for (int turn = 0; turn < 2; turn++) {
        FILE *pipe = fopen(f->fifo, "we");
        fputs("id,filling\n", pipe);
        for (int i = 0; i < FILLING; i++)
            fprintf(pipe, "%d,%.*s\n", 100 + i, (int)sizeof filling, filling);
        fflush(pipe);
        if (turn == 0)
            f->other_succeeded = other_succeeds(start_other("0", f->other_sql, NULL));
        fputs("1,\n2,\n3,\n", pipe);
        unlink(f->fifo);
        mkfifo(f->fifo, 0600);
        fclose(pipe);
        f->read++;
    }
    return NULL;
}

/* Runs `sql`, a format for the pipe's name, while the other process runs other_sql. */
static outcome run_fed(db *d, const char *sql, const char *other_sql) {
    feeder f = {.other_sql = other_sql};
    pthread_t thread;
    buf text = {0};
    snprintf(f.fifo, sizeof f.fifo, "%s/rows", directory);
    buf_printf(&text, sql, f.fifo);
    assert_int_equal(mkfifo(f.fifo, 0600), 0);
    assert_int_equal(pthread_create(&thread, NULL, feed, &f), 0);
    outcome o = run_ok(d, text.p);
    close(open(f.fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC)); /* who still waits for a reader dies */
    pthread_join(thread, NULL);
    assert_true(f.other_succeeded);
    assert_int_equal(f.read, 2);
    unlink(f.fifo);
    buf_free(&text);
    return o;
}

static void an_update_with_calls_starts_over_when_its_table_changed(void **state) {
    (void)state;
    db *d = open_path();
    run_ok(d, "CREATE MODEL m FROM 'test:hash'");
    run_ok(d, "SET model = 'm'");
    run_ok(d, "CREATE TABLE c (id INTEGER PRIMARY KEY, body TEXT, n INTEGER)");
    run_ok(d, "INSERT INTO c VALUES (1, 'aa', 0), (2, 'aaa', 0)");
    run_fed(d,
            "UPDATE c SET n = CASE WHEN LLM('Which of {body}?', body) RETURNS ENUM('x', 'y') IN "
            "('x', 'y') THEN n + 1 END FROM '%s' f WHERE f.id = c.id",
            "INSERT INTO c VALUES (3, 'a', 5)");
    assert_int_equal(number(d, "SELECT count(*) FROM c WHERE n = 1"), 2);
    assert_int_equal(number(d, "SELECT n FROM c WHERE id = 3"), 6);
    db_close(d);
}

/* Calls of RETURNING are answered before the write transaction, as those of SET are. */
static void what_starts_over_returns_its_rows_once(void **state) {
    (void)state;
    db *d = open_path();
    run_ok(d, "CREATE TABLE r (id INTEGER PRIMARY KEY, body TEXT, n INTEGER)");
    run_ok(d, "INSERT INTO r VALUES (1, 'aa', 0), (2, 'aaa', 0)");
    outcome o = run_fed(d,
                        "UPDATE r SET n = n + 1 FROM '%s' f WHERE f.id = r.id "
                        "RETURNING r.id, LLM('Which of {body}?', body) RETURNS ENUM('x', 'y')",
                        "INSERT INTO r VALUES (3, 'a', 5)");
    assert_int_equal(o.sum.rows, 3);
    assert_int_equal(number(d, "SELECT count(*) FROM r WHERE n IN (1, 6)"), 3);
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
