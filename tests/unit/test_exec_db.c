/*
 * test_exec_db.c - the database handle: results by batch, cancelling, statements and transactions
 * that follow each other.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/exec.h"

static db *open_memory(void) {
    db *d;
    err e;
    db_options options = {0};
    assert_int_equal(db_open(&options, &d, &e), 0);
    return d;
}

/* Runs a statement; gives its rows, the sum of its first column, its error. */
typedef struct outcome {
    int64_t rows, sum, changes;
    int code;
    err e;
} outcome;

static outcome run(db *d, const char *sql) {
    outcome o = {0};
    const batch *b;
    stmt_status status;
    stmt *s = db_submit(d, str_from(sql));
    err_clear(&o.e);
    while ((status = stmt_next(s, -1, &b, &o.e)) == STMT_ROWS) {
        o.rows += b->rows;
        for (int k = 0; k < b->rows && b->cols[0].type == TYPE_INTEGER; k++)
            o.sum += b->cols[0].i[k];
    }
    o.code = status == STMT_ERROR ? (int)o.e.code : 0;
    o.changes = stmt_changes(s);
    stmt_free(s);
    return o;
}

static void run_ok(db *d, const char *sql) {
    outcome o = run(d, sql);
    if (o.code)
        fail_msg("%s: %s", sql, o.e.message);
}

/* t: 0 … 9,999 */
static void make_numbers(db *d) {
    run_ok(d, "CREATE TABLE digits (n INTEGER)");
    run_ok(d, "INSERT INTO digits VALUES (0), (1), (2), (3), (4), (5), (6), (7), (8), (9)");
    run_ok(d, "CREATE TABLE t AS SELECT a.n * 1000 + b.n * 100 + c.n * 10 + x.n AS n FROM digits "
              "a, digits b, digits c, digits x");
}

static void a_result_larger_than_the_queue_arrives_whole(void **state) {
    (void)state;
    db *d = open_memory();
    make_numbers(d);
    outcome o = run(d, "SELECT t.n, repeat('x', 500) FROM t, digits");
    assert_int_equal(o.code, 0);
    assert_int_equal(o.rows, 100000);
    assert_int_equal(o.sum, 10 * 9999LL * 10000 / 2);
    db_close(d);
}

/* Takes the first batch of a statement's rows and lets go of it. */
static void abandon(db *d, const char *sql) {
    const batch *b;
    err e;
    stmt *s = db_submit(d, str_from(sql));
    assert_int_equal(stmt_next(s, -1, &b, &e), STMT_ROWS);
    stmt_free(s);
}

/* More rows than the queue holds: they come when all are written, and stay written. */
static void returned_rows_are_there_whoever_reads_them(void **state) {
    (void)state;
    db *d = open_memory();
    make_numbers(d);
    run_ok(d, "CREATE TABLE kept (id INTEGER PRIMARY KEY, n INTEGER, pad TEXT)");
    outcome o = run(d, "INSERT INTO kept (n, pad) SELECT t.n, repeat('x', 500) FROM t, digits "
                       "RETURNING n, pad, id");
    assert_int_equal(o.code, 0);
    assert_int_equal(o.rows, 100000);
    assert_int_equal(o.changes, 100000);
    assert_int_equal(o.sum, 10 * 9999LL * 10000 / 2);
    abandon(d, "UPDATE kept SET n = -1 RETURNING *");
    assert_int_equal(run(d, "SELECT count(*) FROM kept WHERE n = -1").sum, 100000);
    run_ok(d, "BEGIN");
    abandon(d, "DELETE FROM kept RETURNING *");
    run_ok(d, "COMMIT");
    assert_int_equal(run(d, "SELECT count(*) FROM kept").sum, 0);
    o = run(d, "EXPLAIN ANALYZE INSERT INTO kept (n) VALUES (1) RETURNING id");
    assert_int_equal(o.rows, 1); /* the plan */
    assert_int_equal(run(d, "SELECT count(*) FROM kept").sum, 1);
    db_close(d);
}

static void a_cancelled_statement_ends_and_the_next_one_runs(void **state) {
    (void)state;
    db *d = open_memory();
    make_numbers(d);
    static const char *const endless[] = {
        "SELECT count(*) FROM t a, t b, t c",
        "SELECT a.n FROM t a, t b, t c",
        "SELECT count(*) FROM t a JOIN t b ON a.n % 2 = b.n % 2 JOIN t c ON b.n % 3 = c.n % 3",
        "SELECT a.n FROM t a, t b ORDER BY a.n * b.n",
        "INSERT INTO digits SELECT a.n FROM t a, t b, t c",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n % 7 + 1 FROM c) SELECT sum(n) FROM c",
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT c.n % 7 + 1 FROM c JOIN t ON t.n = c.n) "
        "SELECT sum(n) FROM c",
        "SELECT rank() OVER (ORDER BY a.n * b.n) FROM t a, t b, t c",
        "SELECT median(n) OVER (ORDER BY n GROUPS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED "
        "FOLLOWING EXCLUDE GROUP) FROM (SELECT a.n % 3 AS n FROM t a, digits b) AS q",
    };
    for (size_t k = 0; k < BASE_COUNT(endless); k++) {
        const batch *b;
        err e;
        stmt_status status;
        stmt *s = db_submit(d, str_from(endless[k]));
        usleep(20000);
        stmt_cancel(s);
        while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS) {
        }
        assert_int_equal(status, STMT_ERROR);
        assert_int_equal(e.code, ERR_CANCELLED);
        stmt_free(s);
        assert_int_equal(run(d, "SELECT count(*) FROM digits").sum, 10);
    }
    /* Freeing one that still runs, with rows nobody read, cancels it too. */
    for (int k = 0; k < 20; k++)
        stmt_free(db_submit(d, STR("SELECT a.n FROM t a, t b, t c")));
    assert_int_equal(run(d, "SELECT n FROM digits").rows, 10);
    db_close(d);
}

static void a_statement_still_running_is_pending(void **state) {
    (void)state;
    db *d = open_memory();
    make_numbers(d);
    const batch *b;
    err e;
    exec_progress p;
    stmt *s = db_submit(d, STR("SELECT count(*) FROM t a, t b, t c"));
    assert_int_equal(stmt_next(s, 0, &b, &e), STMT_PENDING);
    assert_int_equal(stmt_next(s, 5, &b, &e), STMT_PENDING);
    stmt_progress(s, &p);
    assert_true(p.seconds > 0.004);
    stmt_free(s);
    db_close(d);
}

static void a_transaction_is_told_and_ends(void **state) {
    (void)state;
    db *d = open_memory();
    run_ok(d, "CREATE TABLE a (x INTEGER)");
    assert_false(db_in_transaction(d));
    run_ok(d, "BEGIN");
    assert_true(db_in_transaction(d));
    assert_int_equal(run(d, "INSERT INTO a VALUES (1), (2)").changes, 2);
    assert_int_equal(run(d, "SELECT x FROM nowhere").code, ERR_BIND);
    assert_true(db_in_transaction(d));
    assert_false(db_transaction_failed(d));
    assert_int_equal(run(d, "SELECT x FROM a").sum, 3);
    run_ok(d, "ROLLBACK");
    assert_false(db_in_transaction(d));
    assert_int_equal(run(d, "SELECT x FROM a").rows, 0);
    run_ok(d, "BEGIN");
    run_ok(d, "INSERT INTO a VALUES (7)");
    db_close(d); /* an open transaction is rolled back */
}

static void many_small_statements_reuse_what_the_first_made(void **state) {
    (void)state;
    db *d = open_memory();
    char sql[80];
    run_ok(d, "CREATE TABLE a (id INTEGER PRIMARY KEY, x TEXT)");
    run_ok(d, "BEGIN");
    for (int k = 0; k < 2000; k++) {
        snprintf(sql, sizeof sql, "INSERT INTO a VALUES (%d, 'text %d')", k, k);
        run_ok(d, sql);
    }
    run_ok(d, "COMMIT");
    for (int k = 0; k < 500; k++) {
        snprintf(sql, sizeof sql, "SELECT id FROM a WHERE id = %d", k * 3);
        assert_int_equal(run(d, sql).sum, k * 3);
    }
    db_close(d);
}

static void objects_are_listed_with_their_sql(void **state) {
    (void)state;
    db *d = open_memory();
    arena *a = arena_new();
    db_object *objects;
    int count, seen = 0;
    err e;
    run_ok(d, "CREATE TABLE reviews (id INTEGER PRIMARY KEY, body TEXT NOT NULL)");
    run_ok(d, "CREATE INDEX by_body ON reviews (body)");
    run_ok(d, "CREATE VIEW short AS SELECT id FROM reviews WHERE length(body) < 10");
    assert_int_equal(db_objects(d, a, &objects, &count, &e), 0);
    for (int k = 0; k < count; k++) {
        const db_object *o = &objects[k];
        if (strcmp(o->name, "reviews") == 0) {
            assert_string_equal(o->kind, "table");
            assert_string_equal(
                o->sql, "CREATE TABLE reviews (id INTEGER PRIMARY KEY, body TEXT NOT NULL)");
            assert_int_equal(o->ncolumns, 2);
            assert_string_equal(o->columns[1], "body");
            seen++;
        } else if (strcmp(o->name, "by_body") == 0) {
            assert_string_equal(o->sql, "CREATE INDEX by_body ON reviews (body)");
            seen++;
        } else if (strcmp(o->name, "short") == 0) {
            assert_string_equal(o->kind, "view");
            assert_int_equal(o->ncolumns, 1);
            seen++;
        } else {
            assert_string_equal(o->kind, "system");
        }
    }
    assert_int_equal(seen, 3);
    arena_free(a);
    db_close(d);
}

static void variables_stand_for_their_text(void **state) {
    (void)state;
    db *d = open_memory();
    db_set_variable(d, STR("n"), STR("41"));
    assert_int_equal(run(d, "SELECT CAST(:n AS INTEGER) + 1").sum, 42);
    db_set_variable(d, STR("n"), STR("1"));
    assert_int_equal(run(d, "SELECT CAST(:n AS INTEGER) + 1").sum, 2);
    assert_int_equal(run(d, "SELECT :unknown").code, ERR_BIND);
    db_close(d);
}

#ifdef KVASIR_TEST_MODELS
/* A statement is parsed once, and bound again only where a call's type shows too late. */
static void a_statement_is_parsed_once(void **state) {
    (void)state;
    static const struct {
        const char *sql;
        unsigned bound;
    } cases[] = {
        {"SELECT count(*) FROM r", 1},
        {"INSERT INTO r VALUES (3, 'fair')", 1},
        {"SELECT id FROM r WHERE LLM('Is {body} good?', body) = 'yes'", 1},
        {"SELECT id FROM r WHERE LLM('Is {body} good?', body) AND LLM('Rate {body}', body) > 3", 1},
        {"SELECT id FROM (SELECT id, LLM('Is {body} good?', body) AS a FROM r) WHERE a = 'yes'", 1},
        {"EXPLAIN ANALYZE SELECT LLM('Rate {body}', body) RETURNS INTEGER FROM r "
         "WHERE LLM('Is {body} good?', body) = 'yes'",
         1},
        {"EXPLAIN ANALYZE SELECT id FROM (SELECT id, LLM('Rate {body}', body) AS rate, "
         "LLM('Is {body} good?', body) AS good FROM r) WHERE rate > 3 AND good = 'yes'",
         2},
        {"INSERT INTO r SELECT id + 10, LLM('Is {body} good?', body) RETURNS BOOLEAN FROM r", 1},
        {"CREATE TABLE s AS SELECT LLM('Is {body} good?', body) = 'yes' AS good FROM r", 1},
        {"EXPLAIN (TOKENS) SELECT LLM('Is {body} good?', body) = 'yes' FROM r", 1},
        {"INSERT INTO r SELECT 99, nosuch FROM r", 1},
    };
    db *d = open_memory();
    run_ok(d, "CREATE MODEL m FROM 'test:hash'");
    run_ok(d, "SET model = 'm'");
    run_ok(d, "CREATE TABLE r (id INTEGER PRIMARY KEY, body TEXT)");
    run_ok(d, "INSERT INTO r VALUES (1, 'good'), (2, 'bad')");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        unsigned parsed = sql_parsed, bound = sql_bound;
        run(d, cases[k].sql);
        if (sql_parsed - parsed != 1 || sql_bound - bound != cases[k].bound)
            fail_msg("parsed %u times, bound %u times: %s", sql_parsed - parsed, sql_bound - bound,
                     cases[k].sql);
    }
    /* calls that only the view shows: the write transaction ends before the model works */
    run_ok(d, "CREATE VIEW v AS SELECT id + 100, LLM('Is {body} good?', body) = 'yes' FROM r");
    unsigned bound = sql_bound;
    run_ok(d, "INSERT INTO r SELECT * FROM v");
    assert_int_equal(sql_bound - bound, 1);
    db_close(d);
}

static int64_t rows_of(stmt *s) {
    const batch *b;
    stmt_status status;
    err e = {0};
    int64_t rows = 0;
    while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS)
        rows += b->rows;
    return status == STMT_DONE ? rows : -1;
}

static void an_estimated_statement_runs_as_it_was_bound(void **state) {
    (void)state;
    static const char sql[] = "INSERT INTO r SELECT id + 100, body FROM r "
                              "WHERE LLM('Is {body} good?', body) IN ('yes', 'no') RETURNING id";
    db *d = open_memory();
    run_ok(d, "CREATE MODEL m FROM 'test:hash'");
    run_ok(d, "SET model = 'm'");
    run_ok(d, "CREATE TABLE r (id INTEGER PRIMARY KEY, body TEXT)");
    run_ok(d, "INSERT INTO r VALUES (1, 'good'), (2, 'bad'), (3, 'fair')");
    unsigned parsed = sql_parsed, bound = sql_bound;
    stmt *s = db_prepare(d, STR(sql));
    stmt_estimate(s, true);
    assert_int_equal(rows_of(s), 0);
    assert_true(stmt_estimated(s)->cost_ms > 0);
    assert_int_equal(stmt_estimated(s)->distinct_inputs, 3);
    assert_int_equal(stmt_estimated(s)->nstrategies, EXEC_BASELINES - 1); /* no blending */
    assert_string_equal(stmt_estimated(s)->strategies[0].name, "no cache");
    assert_true(stmt_estimated(s)->strategies[0].computed_tokens > 0);
    stmt_run(s);
    assert_int_equal(rows_of(s), 3);
    stmt_free(s);
    assert_int_equal(sql_parsed - parsed, 1);
    assert_int_equal(sql_bound - bound, 1);
    assert_int_equal(run(d, "SELECT id FROM r").sum, 1 + 2 + 3 + 101 + 102 + 103);
    s = db_prepare(d, STR("DELETE FROM r WHERE LLM('Is {body} good?', body) = 'yes'"));
    stmt_estimate(s, false);
    assert_int_equal(rows_of(s), 0);
    stmt_free(s); /* not run */
    assert_int_equal(run(d, "SELECT id FROM r").rows, 6);
    s = db_prepare(d, STR("DROP TABLE nosuch"));
    stmt_estimate(s, false);
    assert_int_equal(rows_of(s), -1);
    stmt_run(s);
    assert_int_equal(rows_of(s), -1);
    stmt_free(s);
    db_close(d);
}
#endif

static volatile sig_atomic_t handled;

static void on_signal(int number) {
    (void)number;
    handled++;
}

/* A handler that the worker ran could meet the end of the statement it cancels. */
static void signals_wait_for_the_caller(void **state) {
    (void)state;
    static const int sent[] = {SIGINT, SIGTERM, SIGWINCH, SIGCONT};
    struct sigaction action = {.sa_handler = on_signal}, before;
    sigset_t mask, old;
    db *d = open_memory();
    for (int k = 0; k < 4; k++) {
        handled = 0;
        sigemptyset(&mask);
        sigaddset(&mask, sent[k]);
        sigaction(sent[k], &action, &before);
        pthread_sigmask(SIG_BLOCK, &mask, &old);
        kill(getpid(), sent[k]);
        run_ok(d, "SELECT 1");
        assert_int_equal(handled, 0);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        assert_int_equal(handled, 1);
        sigaction(sent[k], &before, NULL);
    }
    db_close(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_result_larger_than_the_queue_arrives_whole),
        cmocka_unit_test(returned_rows_are_there_whoever_reads_them),
        cmocka_unit_test(a_cancelled_statement_ends_and_the_next_one_runs),
        cmocka_unit_test(a_statement_still_running_is_pending),
        cmocka_unit_test(a_transaction_is_told_and_ends),
        cmocka_unit_test(many_small_statements_reuse_what_the_first_made),
        cmocka_unit_test(objects_are_listed_with_their_sql),
        cmocka_unit_test(variables_stand_for_their_text),
#ifdef KVASIR_TEST_MODELS
        cmocka_unit_test(a_statement_is_parsed_once),
        cmocka_unit_test(an_estimated_statement_runs_as_it_was_bound),
#endif
        cmocka_unit_test(signals_wait_for_the_caller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
