/*
 * test_exec_llm.c - what the LLM operator spends: layouts that share rows between questions, waves
 * that stop early, and caps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "exec/exec.h"
#include "exec_cache_int.h"

static db *d;

/* What a statement said: its rows as text, what it cost, and how it ended. */
typedef struct outcome {
    buf text;
    exec_summary summary;
    bool failed;
    err e;
} outcome;

static void outcome_free(outcome *o) {
    buf_free(&o->text);
}

static outcome run(const char *sql) {
    outcome o = {0};
    const batch *b;
    stmt_status status;
    stmt *s = db_submit(d, str_from(sql));
    while ((status = stmt_next(s, -1, &b, &o.e)) == STMT_ROWS)
        for (int r = 0; r < b->rows; r++)
            for (int c = 0; c < b->ncols; c++) {
                value v = column_get(&b->cols[c], r);
                if (v.type != TYPE_NULL)
                    value_print(&o.text, v);
                buf_append_char(&o.text, c + 1 < b->ncols ? '|' : '\n');
            }
    o.failed = status == STMT_ERROR;
    stmt_summary(s, &o.summary);
    stmt_free(s);
    return o;
}

static void ok(const char *sql) {
    outcome o = run(sql);
    if (o.failed)
        fail_msg("%s: %s", sql, o.e.message);
    outcome_free(&o);
}

/* The statement's text result under one more setting, which is reset. */
static outcome run_under(const char *name, const char *word, const char *sql) {
    buf set = {0};
    buf_printf(&set, "SET %s = %s", name, word);
    ok(set.p);
    outcome o = run(sql);
    buf_clear(&set);
    buf_printf(&set, "RESET %s", name);
    ok(set.p);
    buf_free(&set);
    return o;
}

enum { ROWS = 400, LONG_ROWS = 60 };

static void make_tables(void) {
    buf sql = {0};
    ok("CREATE TABLE notes (n INTEGER PRIMARY KEY, body TEXT, author TEXT)");
    ok("CREATE TABLE words (n INTEGER PRIMARY KEY, word TEXT)");
    buf_append_c(&sql, "INSERT INTO notes VALUES ");
    for (int i = 0; i < LONG_ROWS; i++)
        buf_printf(&sql,
                   "%s(%d, 'note %d says that the %d dogs of the village bark at night and that "
                   "nobody sleeps %d', 'author %d')",
                   i ? ", " : "", i, i * 7, i % 5, i, i % 4);
    ok(sql.p);
    buf_clear(&sql);
    buf_append_c(&sql, "INSERT INTO words VALUES ");
    for (int i = 0; i < ROWS; i++)
        buf_printf(&sql, "%s(%d, 'w%d')", i ? ", " : "", i, i);
    ok(sql.p);
    buf_free(&sql);
}

static int set_up(void **state) {
    db_options options = {.path = NULL};
    err e;
    if (own_cache(state) != 0 || db_open(&options, &d, &e) != 0)
        return -1;
    ok("CREATE MODEL hashing FROM 'test:hash'");
    ok("CREATE MODEL slow FROM 'test:hash:slow'");
    ok("SET model = 'hashing'");
    ok("SET answer_cache = off");
    ok("SET llm_layout = 'auto'");
    ok("SET llm_calibrate = 'off'"); /* the counts are those without the samples of priors */
    make_tables();
    return 0;
}

static int tear_down(void **state) {
    db_close(d);
    return remove_cache(state);
}

/* ---- layout ---------------------------------------------------------------------------------- */

static const char two_questions[] =
    "SELECT n, LLM('Sad?', body, author) RETURNS ENUM('a', 'b', 'c'), LLM('Old?', body, author) "
    "RETURNS ENUM('a', 'b', 'c') FROM notes";

static void test_questions_about_a_row_share_it(void **state) {
    (void)state;
    outcome chosen = run(two_questions),
            first = run_under("llm_layout", "'instruction'", two_questions);
    ok("SET llm_layout = 'auto'");
    assert_false(chosen.failed);
    assert_int_equal(first.summary.llm.prompt_tokens > 0, true);
    assert_true((double)chosen.summary.llm.computed_tokens <
                0.75 * (double)first.summary.llm.computed_tokens);
    outcome_free(&chosen);
    outcome_free(&first);
}

/* How rows are asked must not change what they are asked. */
static void test_layout_ignores_what_only_costs(void **state) {
    (void)state;
    static const char *const same[][2] = {{"dedup", "off"},       {"kv_cache", "off"},
                                          {"psm", "'off'"},       {"psm", "'grouped'"},
                                          {"llm_window", "4"},    {"llm_schedule", "'fifo'"},
                                          {"answer_cache", "on"}, {"kv_memory", "'1MB'"}};
    outcome chosen = run(two_questions);
    for (size_t i = 0; i < BASE_COUNT(same); i++) {
        outcome other = run_under(same[i][0], same[i][1], two_questions);
        assert_false(other.failed);
        assert_string_equal(other.text.p, chosen.text.p);
        outcome_free(&other);
    }
    ok("SET answer_cache = off"); /* not the standard, which RESET brings back */
    outcome_free(&chosen);
}

static bool explained(const char *select, const char *words) {
    buf sql = {0};
    buf_printf(&sql, "EXPLAIN ANALYZE %s", select);
    outcome o = run(sql.p);
    assert_false(o.failed);
    bool found = strstr(o.text.p, words) != NULL;
    outcome_free(&o);
    buf_free(&sql);
    return found;
}

static void test_layout_is_explained(void **state) {
    (void)state;
    assert_true(explained(two_questions, "before the instruction"));
    /* one question, long questions about little, other
     * fields, a guard: the instruction stays first */
    assert_false(explained("SELECT LLM('Sad?', body) FROM notes", "before the instruction"));
    assert_false(explained("SELECT LLM('Is this the word that the village elder would have liked "
                           "to hear at night?', word), "
                           "LLM('Is this the word that the village priest would have liked to hear "
                           "at noon?', word) FROM words",
                           "before the instruction"));
    assert_false(explained("SELECT LLM('Sad?', body), LLM('Old?', author) FROM notes",
                           "before the instruction"));
    assert_false(
        explained("SELECT LLM('Sad?', body), CASE WHEN n > 3 THEN LLM('Old?', body) END FROM notes",
                  "before the instruction"));
}

static void assert_plan_says(const char *sql, const char *text) {
    outcome o = run(sql);
    if (o.failed || strstr(o.text.p, text) == NULL)
        fail_msg("no '%s' in the plan of %s\n%s", text, sql, o.failed ? o.e.message : o.text.p);
    outcome_free(&o);
}

/* The order of fields on record holds as long as it is nearly the best; else the fresh one stands
 * beside it, for calls of the same text about other rows. */
static void test_a_record_gives_way_to_a_better_order(void **state) {
    (void)state;
    static const char first[] = "EXPLAIN ANALYZE SELECT LLM('Which order?', x, y) FROM lefts";
    static const char other[] = "EXPLAIN ANALYZE SELECT LLM('Which order?', x, y) FROM rights";
    static const char either[] = "EXPLAIN ANALYZE SELECT LLM('Which order?', x, y) FROM few_rows";
    ok("CREATE TABLE lefts AS SELECT 'what all of these rows have in common' AS x, word AS y "
       "FROM words");
    ok("CREATE TABLE rights AS SELECT y AS x, x AS y FROM lefts");
    ok("CREATE TABLE few_rows AS SELECT * FROM lefts LIMIT 1");
    assert_plan_says(first, "field order: x, y\n");
    assert_plan_says(other, "field order: y, x\n");
    assert_plan_says(either, "field order: x, y\n");
    assert_plan_says(other, "field order: y, x\n");
    assert_plan_says(first, "field order: x, y\n");
    ok("SELECT LLM('Which of both?', x, y) FROM rights");
    assert_plan_says("EXPLAIN ANALYZE SELECT LLM('Which of both?', x, y) FROM few_rows",
                     "field order: y, x (kept)\n");
    assert_plan_says(first, "field order: x, y\n");
}

/* Rows of one field read the same in any order of fields:
 * what differs of them is the examples' own lines. */
static void test_examples_stand_in_the_order_of_the_fields(void **state) {
    (void)state;
    static const char sql[] =
        "SELECT LLM('As in these', word AS body, CASE WHEN n % 4 = 0 THEN 'ann' END AS author, "
        "examples => shots) RETURNS ENUM('a', 'b') FROM words";
    ok("CREATE TABLE shots (body TEXT, author TEXT, answer TEXT)");
    ok("INSERT INTO shots VALUES ('good dog', 'ann', 'a'), ('bad dog', 'bob', 'b')");
    ok("SET answer_cache = on");
    outcome written = run_under("field_order", "'body, author'", sql);
    outcome again = run_under("field_order", "'body, author'", sql);
    outcome turned = run_under("field_order", "'author, body'", sql);
    ok("SET answer_cache = off");
    assert_int_equal(written.summary.llm.requests, ROWS);
    assert_int_equal(again.summary.llm.requests, 0);
    assert_int_equal(turned.summary.llm.requests, ROWS);
    outcome_free(&written);
    outcome_free(&again);
    outcome_free(&turned);
}

/* ---- pipelines of filters -------------------------------------------------------------------- */

static const char loose_then_tight[] =
    "SELECT n FROM words WHERE CASE WHEN LLM('Loose?', word) RETURNS ENUM('a', 'b') = 'a' THEN n "
    "ELSE length(word) END >= 0 AND LLM('Tight?', word) RETURNS ENUM('a', 'b', 'c') = 'a'";

/* The first condition is planned with a third of the rows and keeps all of them: the other one goes
 * first once that is seen. */
static void test_filters_change_places(void **state) {
    (void)state;
    ok("SET llm_sample = 0");
    outcome moved = run(loose_then_tight),
            planned = run_under("rules_off", "'reorder'", loose_then_tight),
            never = run_under("llm_chunk", "0", loose_then_tight),
            at_once = run_under("llm_chunk", "2", loose_then_tight);
    assert_string_equal(moved.text.p, planned.text.p);
    assert_string_equal(moved.text.p, never.text.p);
    assert_string_equal(moved.text.p, at_once.text.p);
    assert_int_equal(planned.summary.llm.requests, 2 * ROWS);
    assert_int_equal(never.summary.llm.requests, 2 * ROWS);
    assert_in_range(moved.summary.llm.requests, ROWS + 128, 2 * ROWS - 100);
    assert_in_range(at_once.summary.llm.requests, ROWS, ROWS + ROWS / 2);
    assert_true(explained(loose_then_tight, "asked before #1 after 128 rows: keeps "));
    ok("RESET llm_sample");
    outcome_free(&moved);
    outcome_free(&planned);
    outcome_free(&never);
    outcome_free(&at_once);
}

/* A few long texts in many rows are all asked about in the first wave, and cost nothing from then
 * on: the condition on them keeps its place before one on short texts that are all different. */
static void test_texts_that_come_again_cost_nothing(void **state) {
    (void)state;
    static const char sql[] =
        "SELECT n FROM plots WHERE CASE WHEN LLM('Which?', plot) RETURNS ENUM('a', 'b', 'c') = 'a' "
        "THEN n ELSE 0 END < 0 AND LLM('Good?', word) RETURNS ENUM('a', 'b') = 'a' LIMIT 5";
    ok("CREATE TABLE plots AS SELECT n, word, repeat('what happens in film ' || (n % 7), 40) AS "
       "plot "
       "FROM words");
    ok("SET llm_sample = 0");
    outcome o = run(sql);
    assert_int_equal(o.text.n, 0);
    assert_int_equal(o.summary.llm.requests, 7);
    ok("RESET llm_sample");
    outcome_free(&o);
}

/* Twenty long texts in many rows are all met whatever the condition on short ones, no two of them
 * alike, keeps: asked first, they spare nearly all of the short ones. As written, none. */
static void test_texts_of_many_rows_are_asked_first(void **state) {
    (void)state;
    static const char sql[] =
        "SELECT n FROM sagas WHERE LLM('Good?', word) RETURNS ENUM('a', 'b', 'c', 'd', 'e') = 'a' "
        "AND LLM('Which?', saga) RETURNS ENUM('a', 'b', 'c', 'd', 'e') = 'a'";
    ok("CREATE TABLE sagas AS SELECT n, word, repeat('what happens in saga ' || (n % 20), 40) AS "
       "saga FROM words");
    ok("SET llm_sample = 0");
    ok("SET llm_chunk = 16");
    ok("SET rules_off = 'llm_placement'");
    outcome moved = run(sql);
    outcome written = run_under("rules_off", "'llm_placement, reorder'", sql);
    assert_string_equal(moved.text.p, written.text.p);
    assert_in_range(written.summary.llm.requests, ROWS + 10, ROWS + 20);
    assert_in_range(moved.summary.llm.requests, 16 + 20, ROWS / 2);
    ok("RESET rules_off");
    outcome planned = run(sql);
    assert_string_equal(planned.text.p, written.text.p);
    assert_in_range(planned.summary.llm.requests, 20, ROWS / 2);
    ok("RESET llm_chunk");
    ok("RESET llm_sample");
    outcome_free(&moved);
    outcome_free(&written);
    outcome_free(&planned);
}

/* Every prompt of one order is found stored under the other: what a filter keeps has no say in what
 * the next one is asked. */
static void test_the_order_of_filters_changes_no_prompt(void **state) {
    (void)state;
#define SAD "LLM('Sad!', body, author) RETURNS ENUM('a', 'b') = 'a'"
#define OLD "LLM('Old!', body, author) RETURNS ENUM('a', 'b') = 'a'"
    ok("SET answer_cache = on");
    ok("SET llm_sample = 0");
    ok("SET field_order = 'fresh'");
    ok("SET rules_off = 'llm_placement, reorder'");
    outcome one = run("SELECT n FROM notes WHERE " SAD " AND " OLD),
            other = run("SELECT n FROM notes WHERE " OLD " AND " SAD);
    assert_string_equal(one.text.p, other.text.p);
    assert_in_range(one.summary.llm.requests, LONG_ROWS + 10, 2 * LONG_ROWS - 10);
    assert_int_equal(one.summary.llm.requests + other.summary.llm.requests, 2 * LONG_ROWS);
    ok("SET answer_cache = off");
    ok("RESET llm_sample");
    ok("RESET field_order");
    ok("RESET rules_off");
    outcome_free(&one);
    outcome_free(&other);
#undef SAD
#undef OLD
}

/* A filter whose answers are stored costs nothing, so it goes first. */
static void test_stored_answers_go_first(void **state) {
    (void)state;
#define NEW "LLM('New?', word) RETURNS ENUM('a', 'b', 'c') = 'a'"
#define KNOWN "LLM('Known, and told at length?', word) RETURNS ENUM('a', 'b') = 'a'"
    ok("SET answer_cache = on");
    ok("SET llm_sample = 0");
    outcome known = run("SELECT count(*) FROM words WHERE " KNOWN);
    int64_t passing = strtoll(known.text.p, NULL, 10);
    assert_in_range(passing, ROWS / 4, ROWS - ROWS / 4);
    outcome both = run("EXPLAIN ANALYZE SELECT n FROM words WHERE " NEW " AND " KNOWN);
    assert_int_equal(both.summary.llm.answers_stored, ROWS);
    assert_int_equal(both.summary.llm.requests, passing);
    assert_non_null(
        strstr(both.text.p, "asked before #1: 100 % of its answers are stored (#1: 0 %)"));
    ok("SET answer_cache = off");
    ok("RESET llm_sample");
    outcome_free(&known);
    outcome_free(&both);
#undef NEW
#undef KNOWN
}

static const char filter_then_question[] =
    "SELECT n, LLM('Old?', body, author) RETURNS ENUM('a', 'b', 'c') FROM notes "
    "WHERE LLM('Sad?', body, author) RETURNS ENUM('a', 'b') = 'a'";

/* A projection finds the data that the filter below it has computed, also where the KV memory holds
 * a few rows at a time. */
static void test_data_are_kept_for_the_next_question(void **state) {
    (void)state;
    outcome chosen = run(filter_then_question),
            first = run_under("llm_layout", "'instruction'", filter_then_question),
            apart = run_under("llm_layout", "'data'", filter_then_question);
    ok("SET llm_layout = 'auto'");
    outcome cramped = run_under("kv_memory", "'1MB'", filter_then_question);
    assert_false(cramped.failed);
    assert_string_equal(chosen.text.p, apart.text.p);
    assert_string_equal(chosen.text.p, cramped.text.p);
    assert_true((double)chosen.summary.llm.computed_tokens <
                0.9 * (double)first.summary.llm.computed_tokens);
    assert_true((double)cramped.summary.llm.computed_tokens <
                1.1 * (double)chosen.summary.llm.computed_tokens);
    assert_true(explained(filter_then_question, "before the instruction"));
    outcome_free(&chosen);
    outcome_free(&first);
    outcome_free(&apart);
    outcome_free(&cramped);
}

/* A call whose guard reads another's answer is asked only where that says so. */
static void test_a_guard_on_an_answer(void **state) {
    (void)state;
    outcome guarded = run("SELECT n, CASE WHEN LLM('Ask?', word) RETURNS ENUM('a', 'b') = 'a' THEN "
                          "LLM('Then?', word) RETURNS ENUM('x', 'y') END FROM words");
    outcome asked =
        run("SELECT count(*) FROM words WHERE LLM('Ask?', word) RETURNS ENUM('a', 'b') = 'a'");
    int64_t passing = strtoll(asked.text.p, NULL, 10);
    assert_in_range(passing, ROWS / 4, ROWS - ROWS / 4);
    assert_int_equal(guarded.summary.llm.requests, ROWS + passing);
    assert_int_equal(guarded.summary.llm.distinct_inputs, ROWS + passing);
    outcome_free(&guarded);
    outcome_free(&asked);
}

/* Calls that are no equal ones may come to the same prompt: it is asked once, whether the other
 * call stands beside it, above it or in another part of the statement. */
static void test_equal_prompts_are_asked_once(void **state) {
    (void)state;
    static const char *const sql[] = {
        "SELECT LLM('Same?', word), LLM('Same?', coalesce(word, 'none') AS word) FROM words",
        "SELECT LLM('Same?', word) RETURNS BOOLEAN, LLM('Same?', word) RETURNS ENUM('true', "
        "'false') "
        "FROM words",
        "SELECT LLM('Same?', word || '' AS word) FROM words "
        "WHERE length(LLM('Same?', word) RETURNS TEXT) >= 0",
        "SELECT LLM('Same?', word) FROM words UNION ALL "
        "SELECT LLM('Same?', word || '' AS word) FROM words"};
    for (size_t i = 0; i < BASE_COUNT(sql); i++) {
        outcome once = run(sql[i]), apart = run_under("dedup", "off", sql[i]);
        if (once.failed || apart.failed)
            fail_msg("%s: %s", sql[i], once.failed ? once.e.message : apart.e.message);
        assert_string_equal(once.text.p, apart.text.p);
        assert_int_equal(once.summary.llm.requests, ROWS);
        assert_int_equal(apart.summary.llm.requests, 2 * ROWS);
        outcome_free(&once);
        outcome_free(&apart);
    }
}

/* ---- waves ----------------------------------------------------------------------------------- */

static void test_waves_follow_the_share_that_passes(void **state) {
    (void)state;
    outcome few = run(
        "SELECT n FROM words WHERE LLM('Third?', word) RETURNS ENUM('a', 'b', 'c') = 'a' LIMIT 20");
    outcome all =
        run("SELECT n FROM words WHERE LLM('Third!', word) RETURNS ENUM('a', 'b', 'c') = 'a'");
    assert_false(few.failed);
    assert_int_equal(all.summary.llm.requests, ROWS);
    /* a third of the rows pass: 60 on average */
    assert_in_range(few.summary.llm.requests, 20, 120);
    outcome_free(&few);
    outcome_free(&all);
}

/* Both filters go wave by wave, not the lower one through all rows first. */
static void test_waves_go_through_all_filters(void **state) {
    (void)state;
    outcome few =
        run("SELECT n FROM words WHERE LLM('Third?', word) RETURNS ENUM('a', 'b', 'c') = 'a' "
            "AND LLM('Half?', word) RETURNS ENUM('a', 'b') = 'a' LIMIT 5");
    outcome all =
        run("SELECT n FROM words WHERE LLM('Third?', word) RETURNS ENUM('a', 'b', 'c') = 'a' "
            "AND LLM('Half?', word) RETURNS ENUM('a', 'b') = 'a'");
    assert_int_equal(strncmp(few.text.p, all.text.p, few.text.n), 0);
    assert_in_range(few.summary.llm.requests, 30, 2 * 32 + 100); /* with both samples */
    outcome_free(&few);
    outcome_free(&all);
}

static void test_a_limit_that_nothing_fills_asks_all(void **state) {
    (void)state;
    outcome o = run("SELECT n FROM words WHERE LLM('None?', word) RETURNS ENUM('a', 'b') = 'a' AND "
                    "n + length(word) < 0 LIMIT 3");
    assert_int_equal(o.text.n, 0);
    outcome_free(&o);
    o = run("SELECT n FROM words WHERE LLM('Name it', word, max_tokens => 4) RETURNS TEXT IS NULL "
            "LIMIT 3");
    assert_int_equal(o.text.n, 0);
    assert_int_equal(o.summary.llm.requests, ROWS);
    outcome_free(&o);
}

#define HALF "LLM('Half?', word) RETURNS ENUM('a', 'b') = 'a'"

/* A statement, and how many prompts it takes to ask about all rows, and no more than needed. */
struct asking {
    const char *sql;
    int all, most;
};

/* The rows are the same. */
static void compare_asked(const struct asking *cases, size_t n) {
    ok("SET llm_sample = 0");
    for (size_t i = 0; i < n; i++) {
        outcome few = run(cases[i].sql),
                all = run_under("rules_off", "'waves, sort_first'", cases[i].sql);
        if (few.failed || all.failed)
            fail_msg("%s: %s", cases[i].sql, few.failed ? few.e.message : all.e.message);
        print_message("%4d %4d  %s\n", (int)all.summary.llm.requests, (int)few.summary.llm.requests,
                      cases[i].sql);
        assert_string_equal(few.text.p ? few.text.p : "", all.text.p ? all.text.p : "");
        assert_int_equal(all.summary.llm.requests, cases[i].all);
        assert_in_range(few.summary.llm.requests, 1, cases[i].most);
        outcome_free(&few);
        outcome_free(&all);
    }
    ok("RESET llm_sample");
}

/* Whatever needs a few of the rows that pass has no more asked than it takes to find them; without
 * waves all are asked. */
static void test_no_more_is_asked_than_needed(void **state) {
    (void)state;
    static const struct asking cases[] = {
        {"SELECT n FROM words WHERE " HALF " UNION ALL SELECT n FROM notes LIMIT 5", ROWS, 48},
        {"SELECT n FROM words WHERE n < 10 AND " HALF " UNION ALL SELECT n FROM words WHERE "
         "LLM('Two?', word) RETURNS ENUM('a', 'b') = 'a' LIMIT 12",
         10 + ROWS, 10 + 48},
        {"SELECT n FROM words WHERE " HALF " LIMIT 4 OFFSET 20", ROWS, 90},
        {"SELECT n FROM words WHERE " HALF " ORDER BY n DESC LIMIT 5", ROWS, 48},
        {"SELECT n FROM words WHERE " HALF " ORDER BY length(word), word DESC LIMIT 5", ROWS, 48},
        {"SELECT max(n) FROM words WHERE " HALF, ROWS, 32},
        {"SELECT n FROM notes WHERE EXISTS (SELECT 1 FROM words WHERE " HALF ")", ROWS, 32},
        {"SELECT n, NOT EXISTS (SELECT 1 FROM words WHERE " HALF ") FROM notes", ROWS, 32},
        {"SELECT n FROM notes WHERE n IN (SELECT n % 20 FROM words WHERE " HALF ")", ROWS, 120},
        {"SELECT n FROM notes WHERE n NOT IN (SELECT n % 20 FROM words WHERE " HALF ")", ROWS, 120},
        {"SELECT n FROM notes WHERE n < 3 AND n IN (SELECT n % 20 FROM words WHERE " HALF ")", ROWS,
         16},
        {"SELECT x, x IN (SELECT n % 20 FROM words WHERE " HALF
         ") FROM (VALUES (NULL), (-5)) AS v(x)",
         ROWS, 120},
        {"SELECT x, x IN (SELECT CASE WHEN n > 9 THEN n % 20 END FROM words WHERE " HALF
         ") FROM (VALUES (-5), (3)) AS v(x)",
         ROWS, 60},
        {"SELECT n FROM notes WHERE n < 3 AND n IN (SELECT CAST(n % 20 AS REAL) FROM words WHERE "
         "length(LLM('Say', word)) > 0)",
         ROWS, 60},
        {"SELECT n FROM notes WHERE n < 3 AND 'x' || n IN (SELECT LLM('Say', word) FROM words)",
         ROWS, ROWS},
        {"SELECT o.n, q.n FROM notes AS o LEFT JOIN (SELECT n FROM words WHERE " HALF
         ") AS q ON q.n = o.n * 2 WHERE o.n < 10",
         ROWS, 10},
        {"SELECT n FROM notes AS o WHERE NOT EXISTS (SELECT 1 FROM words AS w WHERE w.n % 20 = o.n "
         "AND " HALF ")",
         ROWS, 120},
        {"SELECT n, (SELECT w.n FROM words AS w WHERE w.n % 20 = o.n AND " HALF
         " ORDER BY w.n DESC LIMIT 1) FROM notes AS o",
         ROWS, 120},
        {"SELECT n, (SELECT w.n FROM words AS w WHERE w.n % 20 = o.n AND " HALF
         " LIMIT 1 OFFSET 1) FROM notes AS o",
         ROWS, 160},
        {"SELECT DISTINCT n % 20 FROM words WHERE " HALF, ROWS, 120},
        {"SELECT DISTINCT n % 20 FROM words WHERE " HALF " LIMIT 3", ROWS, 48},
        {"SELECT n % 20 FROM words WHERE " HALF " GROUP BY 1 LIMIT 3", ROWS, 48},
        {"SELECT n % 20 FROM words WHERE " HALF " INTERSECT SELECT n FROM notes", ROWS, 120},
        {"SELECT n % 20, count(DISTINCT n % 40) FROM words WHERE " HALF " GROUP BY n % 20", ROWS,
         200},
        {"SELECT count(DISTINCT n % 20) FILTER (WHERE n % 3 = 0) FROM words WHERE " HALF, ROWS,
         140},
        {"SELECT w.n FROM words AS w JOIN (VALUES ('a'), ('c')) AS v(x) ON LLM('Which?', w.word) "
         "RETURNS ENUM('a', 'b') = v.x LIMIT 5",
         ROWS, 48},
        {"SELECT o.n FROM notes AS o JOIN words AS w ON w.n < 60 AND w.n >= o.n WHERE " HALF
         " UNION ALL SELECT n FROM notes LIMIT 5",
         60, 32},
        {"SELECT n FROM (SELECT n, LLM('Say', word, max_tokens => 2) AS s FROM words) AS q WHERE "
         "LLM('Half?', s, n) RETURNS ENUM('a', 'b') = 'a' LIMIT 5",
         2 * ROWS, ROWS + 48},
    };
    compare_asked(cases, BASE_COUNT(cases));
}

/* Of each partition those are asked about that come first, until so many have passed. */
static void test_the_first_of_each_partition_are_asked(void **state) {
    (void)state;
#define PASS " FROM words WHERE " HALF " "
    static const struct asking cases[] = {
        {"SELECT *" PASS "QUALIFY row_number() OVER (PARTITION BY n % 20 ORDER BY n DESC) <= 3",
         ROWS, 160},
        {"SELECT * FROM (SELECT n, row_number() OVER (PARTITION BY n % 20 ORDER BY length(word), n "
         "% 7 DESC) AS k" PASS ") q WHERE k < 3",
         ROWS, 120},
        {"SELECT n" PASS "QUALIFY row_number() OVER (ORDER BY n % 30) <= 3", ROWS, 32},
        {"SELECT n" PASS "QUALIFY row_number() OVER (PARTITION BY n % 20) <= 3", ROWS, 160},
        {"SELECT n" PASS "AND LLM('Two?', word) RETURNS ENUM('a', 'b') = 'a' QUALIFY row_number() "
         "OVER (PARTITION BY n % 10 ORDER BY n DESC) <= 2",
         600, 200},
        /* all that tie with the last are asked: 4 rows of each have one key */
        {"SELECT n, rank() OVER (PARTITION BY n % 20 ORDER BY n / 80 DESC) AS k" PASS
         "QUALIFY k <= 2",
         ROWS, 160},
        {"SELECT n" PASS "QUALIFY rank() OVER (PARTITION BY n % 20 ORDER BY 'x') = 1", ROWS, ROWS},
        {"SELECT n" PASS "WINDOW w AS (PARTITION BY n % 20 ORDER BY n) QUALIFY rank() OVER w <= 2 "
         "AND row_number() OVER w <= 3",
         ROWS, 160},
        {"SELECT w.n, o.n FROM words AS w JOIN notes AS o ON o.n = w.n % 20 WHERE " HALF
         " QUALIFY row_number() OVER (PARTITION BY o.n ORDER BY w.n DESC) <= 2",
         ROWS, 120},
        {"SELECT n FROM (SELECT n" PASS
         "ORDER BY n DESC) AS q QUALIFY row_number() OVER (PARTITION "
         "BY n % 20 ORDER BY n / 100) <= 2",
         ROWS, 120},
        {"SELECT n FROM (SELECT n" PASS "UNION ALL SELECT n + 5 FROM words WHERE "
         "LLM('Two?', word) RETURNS ENUM('a', 'b') = 'a') AS q QUALIFY row_number() OVER "
         "(PARTITION "
         "BY n % 20 ORDER BY n) <= 1",
         2 * ROWS, 160},
        {"SELECT n FROM (SELECT DISTINCT n / 4 AS n" PASS ") AS q QUALIFY row_number() OVER "
         "(PARTITION BY n % 10 ORDER BY n DESC) = 1",
         ROWS, 60},
        {"SELECT n, (SELECT w.n FROM words AS w WHERE w.n % 20 = o.n AND " HALF
         " ORDER BY w.n / 100 DESC LIMIT 1) FROM notes AS o",
         ROWS, 120},
        /* more than there are; none passes; what the rows behind count for */
        {"SELECT n" PASS "QUALIFY row_number() OVER (PARTITION BY n % 20 ORDER BY n) <= 20", ROWS,
         ROWS},
        {"SELECT n FROM words WHERE LLM('Half?', word) RETURNS ENUM('a', 'b') || n = 'c' QUALIFY "
         "row_number() OVER (PARTITION BY n % 20 ORDER BY n) <= 1",
         ROWS, ROWS},
        {"SELECT n, count(*) OVER (PARTITION BY n % 20)" PASS
         "QUALIFY row_number() OVER (PARTITION BY n % 20 ORDER BY n) <= 1",
         ROWS, ROWS},
        {"SELECT n" PASS "QUALIFY dense_rank() OVER (PARTITION BY n % 20 ORDER BY n) <= 2", ROWS,
         ROWS},
        {"SELECT n" PASS
         "QUALIFY row_number() OVER (PARTITION BY n % 20 ORDER BY LLM('Two?', word) "
         "RETURNS ENUM('a', 'b'), n) <= 1",
         600, 600},
    };
    compare_asked(cases, BASE_COUNT(cases));
}

/* A random order is drawn before the filters, once: what is shown is what was sorted by. */
static void test_a_random_order_asks_no_more(void **state) {
    (void)state;
    outcome o = run("SELECT n FROM words WHERE " HALF " ORDER BY random() LIMIT 5");
    assert_false(o.failed);
    assert_in_range(o.summary.llm.requests, 5, 64);
    outcome_free(&o);
    o = run("SELECT random() % 1000 AS r FROM words WHERE " HALF " ORDER BY r DESC LIMIT 20");
    assert_false(o.failed);
    assert_in_range(o.summary.llm.requests, 20, 200);
    long before = 1000;
    for (char *rest = o.text.p, *line; (line = strsep(&rest, "\n")) != NULL && *line;) {
        assert_true(strtol(line, NULL, 10) <= before);
        before = strtol(line, NULL, 10);
    }
    outcome_free(&o);
}

/* What is made of rows above the filters is not made of rows that these drop: no error comes of it
 * that would not come without waves. */
#define FEW_STRANGE                                                                                \
    " FROM (SELECT n, big, LLM('Half?', word) RETURNS ENUM('a', 'b') AS half FROM strange) AS q "  \
    "WHERE CASE WHEN half = 'a' THEN big END < 2 "
static void test_waves_look_at_no_row_that_fails(void **state) {
    (void)state;
    static const char *const sql[] = {
        "SELECT DISTINCT n * big" FEW_STRANGE, "SELECT n" FEW_STRANGE "ORDER BY n * big LIMIT 3",
        "SELECT n" FEW_STRANGE "QUALIFY row_number() OVER (ORDER BY n * big DESC) <= 3",
        "SELECT n" FEW_STRANGE "QUALIFY rank() OVER (PARTITION BY n * "
        "big % 20 ORDER BY n) <= 3"};
    ok("CREATE TABLE strange AS SELECT n, word, CASE n % 2 WHEN 0 THEN 1 ELSE 9223372036854775807 "
       "END AS big FROM words");
    for (size_t i = 0; i < BASE_COUNT(sql); i++) {
        outcome few = run(sql[i]), all = run_under("rules_off", "'waves, sort_first'", sql[i]);
        if (few.failed || all.failed)
            fail_msg("%s: %s", sql[i], few.failed ? few.e.message : all.e.message);
        assert_string_equal(few.text.p, all.text.p);
        outcome_free(&few);
        outcome_free(&all);
    }
}

/* A second row is an error of a subquery used as a value: it is looked for, and found early. */
static void test_a_second_row_is_found(void **state) {
    (void)state;
    static const char *const sql[] = {
        "SELECT (SELECT n FROM words WHERE " HALF ")",
        "SELECT (SELECT DISTINCT n / 200 FROM words WHERE " HALF ")",
        "SELECT n, (SELECT w.n FROM words AS w WHERE w.n % 20 = o.n AND " HALF ") FROM notes AS o"};
    for (size_t i = 0; i < BASE_COUNT(sql); i++) {
        outcome o = run(sql[i]);
        assert_int_equal(o.e.code, ERR_CONSTRAINT);
        outcome_free(&o);
    }
    outcome one = run("SELECT (SELECT n FROM words WHERE n < 1 AND length(LLM('Say', word)) >= 0)");
    assert_string_equal(one.text.p, "0\n");
    outcome_free(&one);
}

/* Prompts are the same whether all rows are asked or a few: what is stored is found again. */
static void test_waves_ask_the_same_prompts(void **state) {
    (void)state;
    static const char all[] = "SELECT n FROM notes WHERE LLM('Sad?', body, author) "
                              "RETURNS ENUM('a', 'b') = 'a'";
    static const char first[] =
        " QUALIFY row_number() OVER (PARTITION BY author ORDER BY body) = 1";
    static const char *const few[] = {" LIMIT 3", " ORDER BY body DESC LIMIT 3", first,
                                      " UNION ALL SELECT n FROM words LIMIT 3"};
    ok("SET answer_cache = on");
    ok("SET field_order = 'fresh'");
    ok("CLEAR CACHE");
    ok(all);
    for (size_t i = 0; i < BASE_COUNT(few); i++) {
        buf sql = {0};
        buf_printf(&sql, "%s%s", all, few[i]);
        outcome o = run(sql.p);
        assert_false(o.failed);
        assert_in_range(o.summary.llm.distinct_inputs, 1, LONG_ROWS);
        assert_int_equal(o.summary.llm.requests, 0);
        outcome_free(&o);
        buf_free(&sql);
    }
    ok("SET answer_cache = off");
    ok("RESET field_order");
}

/* ---- what was learned ------------------------------------------------------------------------- */

/* What a question was answered teaches about those answers alone: not about other literals, and
 * not about how long a free text is. */
static void test_what_was_learned_is_of_the_answers_allowed(void **state) {
    (void)state;
    static const char of_three[] = "EXPLAIN SELECT n FROM words WHERE LLM('Of a kind?', word) "
                                   "RETURNS ENUM('a', 'b', 'c') = 'b'";
    static const char of_two[] =
        "EXPLAIN SELECT n FROM words WHERE LLM('Of a kind?', word) RETURNS ENUM('x', 'y') = 'y'";
    ok("SET llm_layout = 'instruction'"); /* else nothing learned has a say */
    ok("SELECT LLM('Of a kind?', word, max_tokens => 3) RETURNS TEXT FROM words LIMIT 40");
    assert_plan_says(of_three, "keeps ≈33.3 %");
    ok("SELECT n FROM words WHERE LLM('Of a kind?', word) RETURNS ENUM('a', 'b', 'c') = 'b'");
    outcome again = run(of_three);
    assert_null(strstr(again.text.p, "keeps ≈33.3 %"));
    assert_plan_says(of_two, "keeps ≈50 %");
    ok("SET llm_layout = 'auto'");
    outcome_free(&again);
}

/* ---- samples --------------------------------------------------------------------------------- */

/* What a sample asked is not asked again: each of two filters meets each row once at most,
 * whichever comes first. */
static void test_a_sample_is_paid_once(void **state) {
    (void)state;
    static const char sql[] =
        "SELECT n FROM words WHERE LLM('Broad?', word) RETURNS ENUM('a', 'b', 'c') <> 'a' "
        "AND LLM('Tight?', word) RETURNS ENUM('a', 'b', 'c') = 'a'";
    outcome sampled = run(sql), unsampled = run_under("llm_sample", "0", sql);
    if (sampled.failed)
        fail_msg("%s", sampled.e.message);
    assert_string_equal(sampled.text.p, unsampled.text.p);
    /* the narrow one first, the sample of the other kept */
    assert_in_range(sampled.summary.llm.requests, ROWS, ROWS + ROWS / 2 + 32);
    outcome_free(&sampled);
    outcome_free(&unsampled);
}

/* ---- counts and caps ------------------------------------------------------------------------- */

static void test_token_counts_bound_what_is_possible(void **state) {
    (void)state;
    outcome o = run("EXPLAIN (TOKENS) SELECT LLM('Sad?', author, body, n % 3 AS third, n % 7 AS "
                    "seventh) FROM notes");
    assert_false(o.failed);
    assert_non_null(strstr(o.text.p, "grouped"));
    assert_non_null(strstr(o.text.p, "points more are possible"));
    outcome_free(&o);
}

/* What was counted is no run, and a run knows no bound: JSON shows no zeros for either. */
static void test_counted_and_run_are_told_apart(void **state) {
    (void)state;
    outcome counted = run("EXPLAIN (TOKENS, FORMAT JSON) SELECT LLM('Sad?', body, author) "
                          "FROM notes");
    outcome ran = run("EXPLAIN (ANALYZE, FORMAT JSON) SELECT LLM('Sad?', body, author) FROM notes");
    assert_non_null(strstr(counted.text.p, "\"strategy\": \"grouped\""));
    assert_non_null(strstr(counted.text.p, "\"bound\""));
    assert_null(strstr(counted.text.p, "\"stored_answers\""));
    assert_non_null(strstr(ran.text.p, "\"stored_answers\""));
    assert_null(strstr(ran.text.p, "\"bound\""));
    outcome_free(&counted);
    outcome_free(&ran);
}

static void test_json_names_every_node(void **state) {
    (void)state;
    static const char *const nodes[] = {"project", "residual", "llm",  "hash_join", "number",
                                        "limit",   "series",   "scan", "distinct",  "setop"};
    outcome o =
        run("EXPLAIN (FORMAT JSON) SELECT g.n FROM (SELECT n FROM generate_series(1, 9) AS "
            "g(n) LIMIT 5) AS g LEFT JOIN notes AS o ON g.n = o.n AND LLM('Sad?', o.body) = "
            "'yes' UNION ALL SELECT DISTINCT n FROM words");
    for (size_t i = 0; i < BASE_COUNT(nodes); i++) {
        buf wanted = {0};
        buf_printf(&wanted, "\"node\": \"%s\"", nodes[i]);
        if (!strstr(o.text.p, wanted.p))
            fail_msg("no %s in %s", nodes[i], o.text.p);
        buf_free(&wanted);
    }
    assert_null(strstr(o.text.p, "\"node\": \"shared\""));
    outcome_free(&o);
}

static void test_a_view_names_every_operator(void **state) {
    (void)state;
    static const char *const names[] = {"except", "scan words", "series", "LLM#1"};
    exec_progress p;
    const batch *b;
    err e;
    ok("SET model = 'slow'");
    stmt *s =
        db_submit(d, STR("SELECT n FROM words WHERE n < 9 AND LLM('Seen?', word) = 'yes' EXCEPT "
                         "SELECT n FROM generate_series(1, 9) AS g(n)"));
    stmt_watch(s, true);
    while (stmt_next(s, -1, &b, &e) == STMT_ROWS)
        ;
    stmt_progress(s, &p);
    stmt_free(s);
    for (size_t i = 0; i < BASE_COUNT(names); i++) {
        int k = 0;
        while (k < p.noperators && strcmp(p.operator_rows[k].name, names[i]) != 0)
            k++;
        if (k == p.noperators)
            fail_msg("no %s among %d operators", names[i], p.noperators);
    }
    ok("SET model = 'hashing'");
}

static void test_a_cap_on_tokens(void **state) {
    (void)state;
    ok("SET answer_cache = on");
    static const char sql[] =
        "SELECT n, LLM('Capped', body, max_tokens => 4) RETURNS TEXT FROM notes";
    outcome o = run_under("max_tokens_total", "1100", sql);
    assert_true(o.failed);
    assert_int_equal(o.e.code, ERR_LIMIT);
    assert_non_null(strstr(o.e.message, "max_tokens_total = 1100"));
    const llm_figures *st = &o.summary.llm; /* prompts that waited when it stopped were not sent */
    assert_true(st->done < LONG_ROWS);
    assert_int_equal(st->prompt_tokens, st->computed_tokens + st->reused_memory + st->reused_disk);
    outcome_free(&o);
    o = run(sql); /* what was paid for is kept */
    assert_false(o.failed);
    assert_true(o.summary.llm.answers_stored > 0);
    assert_int_equal(o.summary.llm.answers_stored + o.summary.llm.requests, LONG_ROWS);
    outcome_free(&o);
    ok("SET answer_cache = off");
    o = run_under("max_tokens_total", "5", "SELECT LLM('Over the cap with the last answer')");
    assert_false(o.failed);
    outcome_free(&o);
}

/* A nucleus of nothing holds the likeliest token, so the greedy answer is this one, too. */
static void test_no_nucleus_is_greedy(void **state) {
    (void)state;
    static const char sql[] = "SELECT LLM('Narrow', body) RETURNS TEXT FROM notes";
    ok("SET answer_cache = on");
    outcome greedy = run(sql);
    ok("SET temperature = 2");
    outcome drawn = run(sql), narrow = run_under("top_p", "0", sql);
    assert_int_equal(drawn.summary.llm.answers_stored, 0);
    assert_int_equal(narrow.summary.llm.answers_stored, LONG_ROWS);
    outcome_free(&greedy);
    outcome_free(&drawn);
    outcome_free(&narrow);
    ok("RESET temperature");
    ok("SET answer_cache = off");
}

static void test_a_cap_on_seconds(void **state) {
    (void)state;
    ok("SET model = 'slow'");
    outcome o = run_under("max_seconds", "0.1",
                          "SELECT n, LLM('Late', body, max_tokens => 4) RETURNS TEXT FROM notes");
    assert_true(o.failed);
    assert_int_equal(o.e.code, ERR_LIMIT);
    assert_non_null(strstr(o.e.message, "reached max_seconds = 0.1 ("));
    assert_true(o.summary.llm.done < LONG_ROWS);
    ok("SET model = 'hashing'");
    outcome_free(&o);
}

/* What a live view is told has room for so many bytes, of which the last may be half a character. */
static void test_progress_is_told_in_whole_characters(void **state) {
    (void)state;
    static const char long_name[] = "日本語日本語日本語日本語日本語日本語日本語";
    buf sql = {0};
    const batch *b;
    err e;
    stmt_status status;
    exec_progress p;
    ok("SET model = 'slow'");
    ok("SET answer_cache = off");
    for (int ascii = 0; ascii < 3; ascii++) {
        buf_clear(&sql);
        buf_printf(&sql, "CREATE TABLE \"%.*s%s\" AS SELECT body FROM notes LIMIT 3", ascii, "xx",
                   long_name);
        ok(sql.p);
        buf_clear(&sql);
        buf_printf(&sql, "SELECT LLM('Is it?', body AS \"%.*s%s%s%s\", body AS b) FROM \"%.*s%s\"",
                   ascii, "xx", long_name, long_name, long_name, ascii, "xx", long_name);
        do { /* again, if it ended before it was known to be watched */
            stmt *s = db_submit(d, buf_str(&sql));
            stmt_watch(s, true);
            while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS) {
            }
            assert_int_equal(status, STMT_DONE);
            stmt_progress(s, &p);
            stmt_free(s);
        } while (p.noperators == 0);
        assert_true(strlen(p.field_order) + 3 >= sizeof p.field_order - 1);
        assert_true(utf8_valid(str_from(p.field_order)));
        assert_int_equal(strncmp(p.operator_rows[p.noperators - 1].name, "scan ", 5), 0);
        for (int i = 0; i < p.noperators; i++)
            assert_true(utf8_valid(str_from(p.operator_rows[i].name)));
    }
    ok("RESET answer_cache");
    ok("SET model = 'hashing'");
    buf_free(&sql);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_questions_about_a_row_share_it),
        cmocka_unit_test(test_layout_ignores_what_only_costs),
        cmocka_unit_test(test_layout_is_explained),
        cmocka_unit_test(test_examples_stand_in_the_order_of_the_fields),
        cmocka_unit_test(test_a_record_gives_way_to_a_better_order),
        cmocka_unit_test(test_filters_change_places),
        cmocka_unit_test(test_texts_that_come_again_cost_nothing),
        cmocka_unit_test(test_texts_of_many_rows_are_asked_first),
        cmocka_unit_test(test_the_order_of_filters_changes_no_prompt),
        cmocka_unit_test(test_stored_answers_go_first),
        cmocka_unit_test(test_data_are_kept_for_the_next_question),
        cmocka_unit_test(test_a_guard_on_an_answer),
        cmocka_unit_test(test_equal_prompts_are_asked_once),
        cmocka_unit_test(test_waves_follow_the_share_that_passes),
        cmocka_unit_test(test_waves_go_through_all_filters),
        cmocka_unit_test(test_a_limit_that_nothing_fills_asks_all),
        cmocka_unit_test(test_no_more_is_asked_than_needed),
        cmocka_unit_test(test_the_first_of_each_partition_are_asked),
        cmocka_unit_test(test_a_random_order_asks_no_more),
        cmocka_unit_test(test_waves_look_at_no_row_that_fails),
        cmocka_unit_test(test_a_second_row_is_found),
        cmocka_unit_test(test_waves_ask_the_same_prompts),
        cmocka_unit_test(test_token_counts_bound_what_is_possible),
        cmocka_unit_test(test_what_was_learned_is_of_the_answers_allowed),
        cmocka_unit_test(test_a_sample_is_paid_once),
        cmocka_unit_test(test_counted_and_run_are_told_apart),
        cmocka_unit_test(test_json_names_every_node),
        cmocka_unit_test(test_progress_is_told_in_whole_characters),
        cmocka_unit_test(test_a_view_names_every_operator),
        cmocka_unit_test(test_a_cap_on_tokens),
        cmocka_unit_test(test_no_nucleus_is_greedy),
        cmocka_unit_test(test_a_cap_on_seconds),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
