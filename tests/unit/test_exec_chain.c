/*
 * test_exec_chain.c - calls that go on from another call's prompt and answer: what they compute, how
 * much is asked, and that nothing that only costs changes an answer or a probability.
 */
#include "exec_answer_int.h"
#include "exec_cache_int.h"

enum { PLOTS = 12 };

#define ASKED                                                                                      \
    "SELECT id, LLM('Is it sad?', plot) RETURNS ENUM('yes', 'no') AS sad, "                        \
    "LLM('Is it for children?', after => sad) RETURNS BOOLEAN AS kids, "                           \
    "LLM('How good is {title}?', title, after => kids) RETURNS INTEGER BETWEEN 1 AND 5 AS stars"

static const char chained[] = ASKED " FROM plots";
static const char apart[] =
    "SELECT id, LLM('Is it sad?', plot) RETURNS ENUM('yes', 'no') AS sad, "
    "LLM('Is it for children?', plot) RETURNS BOOLEAN AS kids, "
    "LLM('How good is {title}?', title, plot) RETURNS INTEGER BETWEEN 1 AND "
    "5 AS stars FROM plots";
static const char with_probs[] =
    ASKED ", LLM_PROB(sad), LLM_PROB(kids), LLM_PROB(stars), LLM_MEAN(stars) FROM plots";

static db *d;

static int make_plots(void **state) {
    err e = {0};
    if (own_cache(state) || db_open(&(db_options){.model = "test:hash"}, &d, &e))
        return -1;
    run_c(d, "CREATE TABLE plots (id INTEGER PRIMARY KEY, title TEXT, plot TEXT)");
    buf sql = {0};
    buf_append_c(&sql, "INSERT INTO plots VALUES ");
    for (int i = 0; i < PLOTS; i++)
        buf_printf(&sql,
                   "%s(%d, 'Film %d', '%d of the %d keepers of the old lighthouse leaves at dawn, "
                   "and nobody asks why until the ship of the company comes back with a letter and "
                   "a dog that knows the way to the cellar')",
                   i ? ", " : "", i, i, i, i + 3);
    run_c(d, sql.p);
    buf_free(&sql);
    run_c(d, "UPDATE plots SET plot = NULL WHERE id % 6 = 5");
    run_c(d, "SET llm_calibrate = 'off'");
    run_c(d, "SET cache = off");
    return 0;
}

static int close_plots(void **state) {
    db_close(d);
    return remove_cache(state);
}

static answer rows_of(const char *sql, exec_summary *summary) {
    answer a;
    run_summary(d, str_from(sql), &a, summary);
    if (a.failed)
        fail_msg("%s: %s", sql, a.e.message);
    return a;
}

static llm_figures figures_of(const char *sql) {
    exec_summary summary;
    answer a = rows_of(sql, &summary);
    answer_free(&a);
    return summary.llm;
}

static void a_chain_computes_each_row_once(void **state) {
    (void)state;
    llm_figures one = figures_of(chained), three = figures_of(apart);
    print_message("computed: chained %d, apart %d\n", (int)one.computed_tokens,
                  (int)three.computed_tokens);
    assert_int_equal(one.requests, 3 * (PLOTS - PLOTS / 6));
    assert_true(2 * one.computed_tokens <= three.computed_tokens);
}

/* In chunks whose KV fits, or with the later calls above a LIMIT, rows are computed once, too. */
static void rows_are_kept_until_the_last_call(void **state) {
    (void)state;
    static const char *const limited[] = {ASKED " FROM plots LIMIT 6",
                                          ASKED " FROM plots ORDER BY sad, id LIMIT 6"};
    uint64_t all = figures_of(chained).computed_tokens;
    run_c(d, "SET kv_memory = '9MB'");
    assert_in_range(figures_of(chained).computed_tokens, all, all + all / 10);
    run_c(d, "RESET kv_memory");
    assert_in_range(figures_of(limited[0]).computed_tokens, all / 4, all);
    assert_in_range(figures_of(limited[1]).computed_tokens, all / 2, all);
}

static void an_answer_that_is_null_is_not_gone_on_from(void **state) {
    (void)state;
    assert_int_equal(
        figures_of("SELECT LLM('Is {plot} sad?', plot) RETURNS BOOLEAN AS sad, LLM('Why?', title, "
                   "after => sad) FROM plots WHERE plot IS NULL")
            .requests,
        0);
}

/* The statement under other settings gives the same rows, bit for bit. */
static void compare_settings(const char *sql) {
    static const char *const others[][2] = {{"threads", "1"},         {"psm", "'off'"},
                                            {"kv_cache", "off"},      {"kv_memory", "'40MB'"},
                                            {"dedup", "off"},         {"llm_schedule", "'fifo'"},
                                            {"llm_layout", "'auto'"}, {"cache", "on"},
                                            {"cache", "on"},          {"rules_off", "'reorder'"}};
    exec_summary summary;
    answer expected = rows_of(sql, &summary);
    assert_int_equal(expected.n, PLOTS);
    for (size_t i = 0; i < BASE_COUNT(others); i++) {
        buf set = {0};
        buf_printf(&set, "SET %s = %s", others[i][0], others[i][1]);
        run_c(d, set.p);
        answer a = rows_of(sql, &summary);
        if (!answer_equal(&a, &expected)) {
            print_answer("expected", &expected);
            print_answer(set.p, &a);
            fail();
        }
        answer_free(&a);
        buf_clear(&set);
        buf_printf(&set, "%s %s%s", strcmp(others[i][0], "cache") == 0 ? "SET" : "RESET",
                   others[i][0], strcmp(others[i][0], "cache") == 0 ? " = off" : "");
        run_c(d, set.p);
        buf_free(&set);
    }
    answer_free(&expected);
}

static void what_only_costs_changes_no_answer(void **state) {
    (void)state;
    compare_settings(with_probs);
}

static void nor_does_it_with_a_real_model(void **state) {
    (void)state;
    char model[4096];
    buf set = {0};
    if (!find_model(model))
        skip();
    buf_printf(&set, "SET model = '%s'", model);
    run_c(d, set.p);
    buf_free(&set);
    compare_settings(with_probs);
    run_c(d, "RESET model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_computes_each_row_once),
        cmocka_unit_test(rows_are_kept_until_the_last_call),
        cmocka_unit_test(an_answer_that_is_null_is_not_gone_on_from),
        cmocka_unit_test(what_only_costs_changes_no_answer),
        cmocka_unit_test(nor_does_it_with_a_real_model),
    };
    return cmocka_run_group_tests(tests, make_plots, close_plots);
}
