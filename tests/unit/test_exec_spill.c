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
    ("SELECT id, lag(t) OVER (ORDER BY t DESC), rank() OVER (PARTITION BY id % 7 ORDER BY t), "
     "max(t) OVER (ORDER BY id ROWS 5 PRECEDING) FROM wide"),
    "WITH RECURSIVE r AS (SELECT id, t FROM wide UNION SELECT id, t || '.' FROM r "
    "WHERE length(t) < 345) SELECT id, t FROM r",
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

/* One operator keeps at most work_memory on the heap, whatever it keeps. */
static void test_operators_stay_within_work_memory(void **state) {
    (void)state;
    enum { MEMORY_OF_ONE = 256 << 10 };
    static const char *const single[] = {
        "SELECT a FROM series ORDER BY a, b",
        "SELECT count(*), sum(x.b) FROM series x JOIN series y ON x.a = y.a",
        "SELECT count(*) FROM series x WHERE a NOT IN (SELECT a + 1 FROM series)",
        "SELECT a, sum(b), avg(a), min(b) FROM series GROUP BY a",
        "SELECT b, median(a), group_concat(a), max('text ' || a) FROM series GROUP BY b",
        "SELECT b, group_concat(a, ' ' ORDER BY a DESC), count(DISTINCT a) FROM series GROUP BY b",
        "SELECT DISTINCT a FROM series",
        "SELECT a FROM series INTERSECT SELECT a + 7 FROM series",
        ("SELECT a, rank() OVER (PARTITION BY b ORDER BY a), sum(a) OVER (ORDER BY b), "
         "max(a) OVER (ORDER BY b ROWS BETWEEN 5 PRECEDING AND CURRENT ROW) FROM series"),
        "SELECT median(b) OVER (PARTITION BY b % 3 ORDER BY a) FROM series WHERE a < 3000",
        "CREATE UNIQUE INDEX series_a ON series (a)",
        "CREATE INDEX series_b ON series (b, a)",
    };
    ok("CREATE TABLE series AS SELECT i * 7919 % 100003 AS a, i % 50 AS b "
       "FROM generate_series(1, 100000) AS g(i)");
    for (size_t i = 0; i < BASE_COUNT(single); i++) {
        bool makes = strncmp(single[i], "CREATE", 6) == 0;
        ok("RESET work_memory");
        outcome fits = makes ? (outcome){0} : run_ok(d, single[i]);
        char set[80];
        snprintf(set, sizeof set, "SET work_memory = %d", MEMORY_OF_ONE);
        ok(set);
        outcome o = run_ok(d, single[i]);
        printf("%zu bytes on the heap, %zu in files: %s\n", o.sum.space.heap_peak_bytes,
               o.sum.space.file_peak_bytes, single[i]);
        assert_true(makes || o.hash == fits.hash);
        assert_in_range(o.sum.space.heap_peak_bytes, 1, MEMORY_OF_ONE + MEMORY_OF_ONE / 2);
        assert_true(o.sum.space.file_peak_bytes > 0);
    }
    ok("RESET work_memory");
    assert_int_equal(run_ok(d, "SELECT count(*) FROM series WHERE a = 12345").first, 1);
    ok("DROP TABLE series");
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

/* Killed at any moment, a process leaves no file behind, by no name. */
static void test_a_kill_leaves_nothing(void **state) {
    (void)state;
    db_close(d);
    for (int wait = 1; wait <= 16; wait *= 4) {
        pid_t pid = start_other("0", "SET work_memory = '4kB'",
                                "SELECT a.t, b.t FROM wide a, wide b ORDER BY a.t, b.id");
        usleep((useconds_t)wait * 10000);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(names_in(temporary), 0);
    }
    d = open_path();
    assert_int_equal(run_ok(d, "SELECT count(*) FROM wide").first, 10000);
}

/* ---- LLM operators --------------------------------------------------------------------------- */

enum { LONG_ROWS = 2000, LONG_BYTES = 3000, MEMORY = 128 << 10, ROW_BYTES = 400 };

/* Texts of their own in every row, and a table to join them with. */
static void make_long_rows(void) {
    ok("CREATE MODEL m FROM 'test:hash'");
    ok("SET model = 'm'");
    ok("SET answer_cache = off");
    ok("SET cost_rates = 'nominal'");
    ok("CREATE TABLE long AS SELECT id, 'row ' || id || repeat(' and so on', 300) AS t "
       "FROM wide WHERE id < 2000");
}

static const char *const asking[] = {
    "SELECT id, t, LLM('Is it long?', t) FROM long",
    "SELECT id, LLM('Is it long?', upper(t) AS t, id) FROM long",
    "SELECT id FROM long WHERE LLM('Is it long?', t) = 'yes' AND LLM('Is it good?', t) = 'yes'",
    "SELECT l.id, LLM('Is it so?', l.t, d.x) FROM long l JOIN digits d ON l.id % 10 = d.x",
    "SELECT a, count(*) FROM (SELECT LLM('How?', t) RETURNS INTEGER AS a FROM long) GROUP BY a",
    "SELECT id FROM long WHERE LLM('Is it long?', t) RETURNS INTEGER > 500 LIMIT 300",
    "SELECT id, LLM('Why?', t) FROM long WHERE LLM('How?', t) RETURNS ENUM('a', 'b') = 'a'",
};

static outcome asked[BASE_COUNT(asking)];

static void small_memory(void) {
    char set[64];
    snprintf(set, sizeof set, "SET work_memory = %d", MEMORY);
    ok(set);
}

static bool fits(const outcome *o) {
    size_t memory = o->sum.space.heap_peak_bytes;
    return memory <= (size_t)LONG_ROWS * ROW_BYTES + (size_t)8 * MEMORY;
}

static void test_calls_keep_little_in_memory(void **state) {
    (void)state;
    make_long_rows();
    for (size_t i = 0; i < BASE_COUNT(asking); i++) {
        run_ok(d, asking[i]); /* what it learns decides which filter comes first */
        asked[i] = run_ok(d, asking[i]);
        assert_int_equal(asked[i].sum.space.file_peak_bytes, 0);
        assert_false(fits(&asked[i]));
    }
    small_memory();
    int files = open_files();
    for (size_t i = 0; i < BASE_COUNT(asking); i++) {
        outcome o = run_ok(d, asking[i]);
        printf("%zu bytes in memory instead of %zu, %zu in files\n", o.sum.space.heap_peak_bytes,
               asked[i].sum.space.heap_peak_bytes, o.sum.space.file_peak_bytes);
        assert_true(fits(&o));
        assert_int_equal(o.hash, asked[i].hash);
        assert_int_equal(o.sum.llm.requests, asked[i].sum.llm.requests);
        assert_in_range(o.sum.llm.computed_tokens, asked[i].sum.llm.computed_tokens,
                        asked[i].sum.llm.computed_tokens * 21 / 20);
        assert_true(o.sum.space.file_peak_bytes > (size_t)LONG_ROWS * LONG_BYTES);
        assert_int_equal(open_files(), files);
    }
    ok("RESET work_memory");
}

/* What a snapshot or a shared node keeps, a join and a call read where it is. */
static void test_rows_are_kept_once(void **state) {
    (void)state;
    static const char *const twice[] = {
        "WITH w AS (SELECT * FROM long) SELECT max(a.t), max(b.t) FROM digits d JOIN w a ON a.id = "
        "d.x "
        "LEFT JOIN w b ON b.id = d.x + 10",
        "SELECT q.x, q.a, l.t FROM (SELECT x, LLM('Is it so?', x) AS a FROM digits) q "
        "JOIN long l ON l.id = q.x",
        "SELECT q.x, l.t FROM (SELECT x FROM digits WHERE LLM('Is it?', x) = 'yes') q "
        "JOIN long l ON l.id < q.x",
        "WITH w AS (SELECT * FROM long) SELECT a.id FROM w a JOIN digits d ON a.id = d.x "
        "WHERE EXISTS (SELECT 1 FROM w b WHERE b.id = a.id + 1)",
    };
    for (size_t i = 0; i < BASE_COUNT(twice); i++) {
        uint64_t hash = run_ok(d, twice[i]).hash;
        ok("SET work_memory = '4kB'");
        outcome o = run_ok(d, twice[i]);
        ok("RESET work_memory");
        assert_int_equal(o.hash, hash);
        printf("%zu bytes in files\n", o.sum.space.file_peak_bytes);
        assert_in_range(o.sum.space.file_peak_bytes, 0, (size_t)LONG_ROWS * LONG_BYTES * 2 - 1);
    }
}

static void test_calls_stop_at_the_limit_of_files(void **state) {
    (void)state;
    int files = open_files();
    small_memory();
    ok("SET max_temp_directory_size = '8MB'"); /* the rows fit, their prompts do not */
    for (size_t i = 0; i < BASE_COUNT(asking); i++) {
        outcome o = run(d, asking[i]);
        assert_int_equal(o.status, ERR_FULL);
        assert_int_equal(o.sum.llm.requests, 0);
        assert_int_equal(open_files(), files);
    }
    ok("RESET max_temp_directory_size");
    assert_int_equal(run_ok(d, asking[0]).hash, asked[0].hash);
    ok("RESET work_memory");
}

/* The rows and prompts may fit, and the answers not: then what came so far is lost to the statement
 * alone. */
static void test_the_limit_may_be_met_by_answers(void **state) {
    (void)state;
    static const char sql[] = "SELECT count(DISTINCT a) FROM (SELECT LLM('Say it', id) AS a "
                              "FROM wide)";
    int between = 0, files = open_files();
    int64_t distinct = run_ok(d, sql).first;
    ok("SET work_memory = '4kB'");
    for (int kilobytes = 64, done = 0; !done; kilobytes += 64) {
        char set[80];
        snprintf(set, sizeof set, "SET max_temp_directory_size = '%dkB'", kilobytes);
        ok(set);
        outcome o = run(d, sql);
        done = o.status == 0;
        assert_true(done || o.status == ERR_FULL);
        assert_true(!done || o.first == distinct);
        assert_in_range(o.sum.space.file_peak_bytes, 0, (size_t)kilobytes << 10);
        assert_int_equal(open_files(), files);
        between += !done && o.sum.llm.done > 0;
    }
    assert_true(between > 0);
    ok("RESET max_temp_directory_size");
    ok("RESET work_memory");
}

/* What was answered before a statement stopped is not asked again, also where the engine was given
 * its prompts part by part. */
static void test_a_stopped_statement_keeps_its_answers(void **state) {
    (void)state;
    small_memory();
    ok("SET answer_cache = on");
    ok("SET max_tokens_total = 1000000"); /* half of what it takes */
    outcome stopped = run(d, asking[0]);
    assert_int_equal(stopped.status, ERR_LIMIT);
    assert_in_range(stopped.sum.llm.done, 512, LONG_ROWS - 1);
    ok("RESET max_tokens_total");
    outcome rest = run_ok(d, asking[0]);
    assert_int_equal(rest.hash, asked[0].hash);
    assert_true(rest.sum.llm.answers_stored >= stopped.sum.llm.done);
    assert_int_equal(rest.sum.llm.answers_stored + rest.sum.llm.requests, LONG_ROWS);
    ok("SET answer_cache = off");
    ok("RESET work_memory");
}

static void test_a_cancelled_statement_lets_go(void **state) {
    (void)state;
    const batch *b;
    err e = {0};
    int files = open_files();
    ok("CREATE MODEL slow FROM 'test:hash:slow'");
    ok("SET model = 'slow'");
    small_memory();
    stmt *s = db_submit(d, str_from(asking[0]));
    exec_progress p = {0};
    while (p.llm.done == 0) {
        assert_int_equal(stmt_next(s, 10, &b, &e), STMT_PENDING);
        stmt_progress(s, &p);
    }
    assert_true(open_files() > files);
    stmt_cancel(s);
    assert_int_equal(stmt_next(s, -1, &b, &e), STMT_ERROR);
    assert_int_equal(e.code, ERR_CANCELLED);
    stmt_free(s);
    assert_int_equal(open_files(), files);
    ok("SET model = 'm'");
    ok("RESET work_memory");
}

/* How much more memory twice as many rows take, by row. */
static size_t bytes_a_row(const char *call) {
    enum { ROWS = 1 << 15 };
    char sql[160];
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        snprintf(sql, sizeof sql, "SELECT id, %s FROM many WHERE id < %d", call, ROWS << i);
        bytes[i] = run_ok(d, sql).sum.space.heap_peak_bytes;
    }
    printf("%s: %zu bytes a row\n", call, (bytes[1] - bytes[0]) / ROWS);
    return (bytes[1] - bytes[0]) / ROWS;
}

/* As exec/README.md has it. */
static void test_what_stays_in_memory_of_a_row(void **state) {
    (void)state;
    ok("CREATE TABLE many AS SELECT a.id * 10 + d.x AS id, 'row ' || (a.id * 10 + d.x) AS t "
       "FROM wide a, digits d");
    ok("SET work_memory = '4kB'");
    assert_in_range(bytes_a_row("LLM('Is it so?', 'no' AS x)"), 13, 24);
    assert_in_range(bytes_a_row("LLM('Is it so?', id % 1000 AS x)"), 13, 24);
    assert_in_range(bytes_a_row("LLM('Is it so?', t)"), 100, 260);
    assert_in_range(bytes_a_row("LLM('Is it so?', t, id)"), 150, 400);
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
    ok("SET model = 'm'");
    outcome call = run(d, asking[0]);
    assert_int_equal(call.status, ERR_IO);
    assert_int_equal(call.sum.llm.requests, 0);
    ok("RESET work_memory");
    ok(greedy[0]);
    setenv("TMPDIR", temporary, 1);
    db_close(d);
    d = open_path();
}

int main(int argc, char **argv) {
    if (argc > 1)
        return be_other(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_small_memory_changes_nothing),
        cmocka_unit_test(test_operators_stay_within_work_memory),
        cmocka_unit_test(test_the_limit_is_of_all_files_together),
        cmocka_unit_test(test_every_operator_stops_at_the_limit),
        cmocka_unit_test(test_a_kill_leaves_nothing),
        cmocka_unit_test(test_calls_keep_little_in_memory),
        cmocka_unit_test(test_rows_are_kept_once),
        cmocka_unit_test(test_calls_stop_at_the_limit_of_files),
        cmocka_unit_test(test_the_limit_may_be_met_by_answers),
        cmocka_unit_test(test_a_stopped_statement_keeps_its_answers),
        cmocka_unit_test(test_a_cancelled_statement_lets_go),
        cmocka_unit_test(test_what_stays_in_memory_of_a_row),
        cmocka_unit_test(test_no_directory_for_files_is_an_error),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
