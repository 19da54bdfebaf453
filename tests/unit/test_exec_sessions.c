/*
 * test_exec_sessions.c - statements whose calls are answered by two engines: whether both sessions
 * exist at once, and what that changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/exec.h"
#include "exec_answer_int.h"
#include "exec_cache_int.h"

enum { ROWS = 400 };

/* A long instruction, so that a head that is computed again shows in the counts. */
#define RULES                                                                                      \
    "Think of the dogs of the village, of the cats of the town, of the birds of the wood, of the " \
    "fish of the lake, and of the people who feed them all the year. "
#define SMALL "LLM('" RULES "Is {word} a noun?', word, model => small) RETURNS ENUM('yes', 'no')"
#define LARGE "LLM('" RULES "Is {word} long?', word, model => large) RETURNS ENUM('yes', 'no')"

static const char rounds[] =
    "SELECT DISTINCT n % 20 AS rest FROM words WHERE " SMALL " = 'yes' AND " LARGE " = 'no'";
static const char cascade[] =
    "SELECT n, CASE WHEN " SMALL " = 'yes' THEN " LARGE " ELSE 'no' END FROM words";

static const char limited[] =
    "SELECT n, CASE WHEN " SMALL " = 'yes' THEN " LARGE " ELSE 'no' END FROM words LIMIT 5";

static db *d;

/* Returns the rows of a statement that must not fail. */
static answer rows_of(const char *sql, exec_summary *summary) {
    answer a;
    run_summary(d, str_from(sql), &a, summary);
    if (a.failed)
        fail_msg("%s: %s", sql, a.e.message);
    return a;
}

static int make_words(void **state) {
    err e = {0};
    if (own_cache(state) || db_open(&(db_options){.model = "test:hash"}, &d, &e))
        return -1;
    run_c(d, "CREATE TABLE words (n INTEGER PRIMARY KEY, word TEXT)");
    buf sql = {0};
    buf_append_c(&sql, "INSERT INTO words VALUES ");
    for (int i = 0; i < ROWS; i++)
        buf_printf(&sql, "%s(%d, 'word %d')", i ? ", " : "", i, i);
    run_c(d, sql.p);
    buf_free(&sql);
    run_c(d, "CREATE MODEL small FROM 'test:hash:small'");
    run_c(d, "CREATE MODEL large FROM 'test:hash:large'");
    run_c(d, "SET cache = off");
    run_c(d, "SET llm_calibrate = 'off'");
    run_c(d, "SET llm_sample = 0");
    return 0;
}

static int close_words(void **state) {
    db_close(d);
    return remove_cache(state);
}

/* Returns the tokens that the statement computes. Its rows must be `expected`, or are stored there. */
static uint64_t computed(const char *sql, const char *kv_memory, answer *expected) {
    buf set = {0};
    exec_summary summary;
    buf_printf(&set, "SET kv_memory = '%s'", kv_memory);
    run_c(d, set.p);
    buf_free(&set);
    answer a = rows_of(sql, &summary);
    if (!expected->rows) {
        *expected = a;
        return summary.llm.computed_tokens;
    }
    assert_true(answer_equal(&a, expected));
    answer_free(&a);
    return summary.llm.computed_tokens;
}

/* The context of test:hash takes 8 MB: 12 MB are too few for both sessions. */
static void sessions_exist_at_once_where_memory_suffices(void **state) {
    (void)state;
    answer rows = {0};
    uint64_t both = computed(rounds, "64MB", &rows), one = computed(rounds, "12MB", &rows);
    print_message("computed: %d with both sessions, %d with one\n", (int)both, (int)one);
    assert_true(rows.n > 10);
    assert_true(both < one);
    answer_free(&rows);
}

static void a_cascade_asks_the_large_model_about_what_is_left(void **state) {
    (void)state;
    exec_summary summary;
    answer rows = {0};
    uint64_t both = computed(cascade, "64MB", &rows), one = computed(cascade, "12MB", &rows);
    assert_true(both <= one);
    answer small = rows_of("SELECT count(*) FROM words WHERE " SMALL " = 'yes'", &summary);
    int yes = atoi(small.rows[0]);
    answer again = rows_of(cascade, &summary);
    assert_int_equal(summary.llm.requests, ROWS + yes);
    answer few = rows_of(limited, &summary);
    assert_in_range(summary.llm.requests, 5, 10);
    answer_free(&few);
    answer_free(&again);
    answer_free(&small);
    answer_free(&rows);
}

/* The memory of the sessions together is what was set. */
static void sessions_share_the_memory(void **state) {
    (void)state;
    exec_summary summary;
    run_c(d, "SET kv_memory = '64MB'");
    answer a = rows_of(cascade, &summary);
    assert_in_range(summary.memory.kv_budget_bytes, 63 << 20, 64 << 20);
    answer_free(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sessions_exist_at_once_where_memory_suffices),
        cmocka_unit_test(a_cascade_asks_the_large_model_about_what_is_left),
        cmocka_unit_test(sessions_share_the_memory),
    };
    return cmocka_run_group_tests(tests, make_words, close_words);
}
