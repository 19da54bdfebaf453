/*
 * test_planner_estimate.c - rows, distinct values, tokens and cost, over statistics given here:
 * 1,000 movies, 50,000 reviews.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "core/pipeline_int.h"
#include "rules/rules_int.h"
#include "tests/sql/fixture.c"

static fixture f;
static arena *mem;
static plan_env env;
static double learned_share, learned_tokens; /* negative: not known */
static const uint8_t *recorded;

/* ---- what is known of the fixture's tables --------------------------------------------------- */

enum { MOVIES = 1000, REVIEWS = 50000 };

/* id, title, synopsis, year */
static column_stats movie_stats[] = {
    {.distinct = MOVIES, .average_bytes = 4},
    {.distinct = MOVIES, .average_bytes = 20},
    {.distinct = MOVIES, .average_bytes = 840},
    {.distinct = 50,
     .average_bytes = 4,
     .null_fraction = 0.1,
     .low = {.type = TYPE_INTEGER, .i = 1970},
     .high = {.type = TYPE_INTEGER, .i = 2020}},
};
/* id, movie_id, title, review, stars, fresh */
static column_stats review_stats[] = {
    {.distinct = REVIEWS, .average_bytes = 5},
    {.distinct = MOVIES, .average_bytes = 4},
    {.distinct = MOVIES, .average_bytes = 20},
    {.distinct = 40000, .average_bytes = 126},
    {.distinct = 5,
     .average_bytes = 3,
     .null_fraction = 0.2,
     .ncommon = 1,
     .common = {{.type = TYPE_REAL, .r = 5}},
     .common_fraction = {0.3}},
    {.distinct = 2, .average_bytes = 5},
};

static int known_stats(void *ctx, const table_def *t, arena *a, table_stats *out) {
    (void)ctx;
    (void)a;
    if (str_equal(t->name, STR("movies")))
        *out = (table_stats){.rows = MOVIES,
                             .first_rowid = 1,
                             .last_rowid = MOVIES,
                             .analyzed = true,
                             .ncolumns = 4,
                             .columns = movie_stats};
    else if (str_equal(t->name, STR("reviews")))
        *out = (table_stats){.rows = REVIEWS,
                             .first_rowid = 1,
                             .last_rowid = REVIEWS,
                             .analyzed = true,
                             .ncolumns = 6,
                             .columns = review_stats};
    else
        *out = (table_stats){.rows = 4, .first_rowid = 1, .last_rowid = 4};
    return 0;
}

static double known_share(void *ctx, const llm_call *call, str literal) {
    (void)ctx;
    return str_equal(literal, call->literals[0]) ? learned_share : -1;
}

static double known_tokens(void *ctx, const llm_call *call) {
    (void)ctx;
    (void)call;
    return learned_tokens;
}

static bool known_order(void *ctx, const llm_call *call, uint8_t *order) {
    (void)ctx;
    if (recorded)
        memcpy(order, recorded, (size_t)call->nfields);
    return recorded != NULL;
}

static void set(const char *name, const char *text) {
    err e = {0};
    if (settings_set(&f.settings, str_from(name), value_text(str_from(text)), &e))
        fail_msg("%s", e.message);
}

static int set_up(void **state) {
    (void)state;
    fixture_init(&f);
    mem = arena_new();
    learned_share = learned_tokens = -1;
    recorded = NULL;
    env = (plan_env){.settings = &f.settings,
                     .table_stats = known_stats,
                     .selectivity = known_share,
                     .output_tokens = known_tokens,
                     .field_order = known_order};
    set("llm_calibrate", "off");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    arena_free(mem);
    fixture_free(&f);
    return 0;
}

static sql_stmt *bound(const char *text) {
    err e = {0};
    sql_stmt *s = NULL;
    if (sql_bind_text(str_from(text), &f.env, mem, &s, &e))
        fail_msg("%s: %s", text, e.message);
    return s;
}

static const rel_estimate *estimate_of(const rel *r) {
    return estimate_rel(estimator_new(mem, &env), r);
}

static double rows_of(const char *sql) {
    return estimate_of(bound(sql)->query)->rows;
}

static double distinct_of(const char *sql) {
    return estimate_of(bound(sql)->query)->columns[0].distinct;
}

#define assert_near(actual, expected)                                                              \
    do {                                                                                           \
        double is_ = (actual), wanted_ = (expected);                                               \
        if (fabs(is_ - wanted_) > 1e-6 * fmax(1, fabs(wanted_)))                                   \
            fail_msg("%s is %.9g, not %.9g", #actual, is_, wanted_);                               \
    } while (0)

/* ---- texts ----------------------------------------------------------------------------------- */

static void test_texts_of_expressions(void **state) {
    (void)state;
    static const struct {
        const char *expression;
        double bytes;
    } cases[] = {
        {"title", 20},
        {"upper(title)", 20},
        {"title || ': ' || synopsis", 862},
        {"substr(synopsis, 1, 100)", 100},
        {"substr(title, 1, 100)", 20},
        {"repeat(title, 40)", 800},
        {"repeat('word ', 400)", 2000},
        {"CASE WHEN year < 1990 THEN title ELSE synopsis END", 840},
        {"coalesce(title, synopsis)", 840},
        {"iif(year < 1990, 'old', title)", 20},
        {"CAST(title AS TEXT)", 20},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        const char *sql = arena_printf(mem, "select %s from movies", cases[i].expression);
        assert_near(estimate_of(bound(sql)->query)->columns[0].bytes, cases[i].bytes);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void test_filters(void **state) {
    (void)state;
    assert_near(rows_of("select 1 from reviews"), REVIEWS);
    assert_near(rows_of("select 1 from reviews where movie_id = 7"), 50);
    assert_near(rows_of("select 1 from movies where year = 2000"), 0.9 / 50 * MOVIES);
    assert_near(rows_of("select 1 from reviews where stars = 5"), 0.3 * REVIEWS);
    assert_near(rows_of("select 1 from reviews where stars = 4"), 0.8 / 5 * REVIEWS);
    assert_near(rows_of("select 1 from reviews where movie_id in (1, 2, 3)"), 150);
    assert_near(rows_of("select 1 from movies where year < 1980"), 0.9 * 9.8 / 50 * MOVIES);
    assert_near(rows_of("select 1 from movies where 1980 > year"), 0.9 * 9.8 / 50 * MOVIES);
    assert_near(rows_of("select 1 from movies where year >= 1980"), 0.9 * 40.2 / 50 * MOVIES);
    assert_near(rows_of("select 1 from movies where year <= 1980"), 0.9 * 10.8 / 50 * MOVIES);
    assert_near(rows_of("select 1 from movies where year <= 1970"), 0.9 / 50 * MOVIES);
    assert_near(rows_of("select 1 from movies where year < 1970"), 0);
    assert_near(rows_of("select 1 from reviews where stars is null"), 0.2 * REVIEWS);
    assert_near(rows_of("select 1 from reviews where stars is not null"), 0.8 * REVIEWS);
    assert_near(rows_of("select 1 from reviews where title like 'A%'"), 0.1 * REVIEWS);
    assert_near(rows_of("select 1 from reviews where fresh"), 0.5 * REVIEWS);
    assert_near(rows_of("select 1 from reviews where fresh is not true"), 0.5 * REVIEWS);
    assert_near(rows_of("select 1 from reviews where false"), 0);
    assert_near(rows_of("select 1 from reviews where movie_id = 1 or movie_id = 2"),
                (1 - 0.999 * 0.999) * REVIEWS);
}

static void test_joins(void **state) {
    (void)state;
    const char *join = "select m.id from reviews r %s join movies m on r.movie_id = m.id %s";
    assert_near(rows_of(arena_printf(mem, join, "", "")), REVIEWS);
    assert_near(rows_of(arena_printf(mem, join, "left", "and m.year = 2000")), REVIEWS);
    assert_near(rows_of("select 1 from reviews, movies"), (double)REVIEWS * MOVIES);
    assert_near(distinct_of(arena_printf(mem, join, "", "")), MOVIES);
    assert_near(rows_of("select 1 from reviews r join (select id from movies where year = 2000) m "
                        "on r.movie_id = m.id"),
                0.9 / 50 * REVIEWS);
    /* the key has as many values as the smaller side brings */
    assert_near(distinct_of("select r.movie_id from reviews r join (select id from movies where "
                            "year = 2000) m on r.movie_id = m.id"),
                0.9 / 50 * MOVIES);
    /* and rows that find no partner take their values along */
    assert_near(
        distinct_of(
            "select m.synopsis from (select movie_id from reviews where movie_id in (1, 2)) r "
            "join movies m on r.movie_id = m.id"),
        2);
}

static void test_other_operators(void **state) {
    (void)state;
    assert_near(rows_of("select movie_id, count(*) from reviews group by movie_id"), MOVIES);
    assert_near(rows_of("select movie_id, fresh from reviews group by 1, 2"), 2 * MOVIES);
    assert_near(rows_of("select count(*) from reviews where false"), 1);
    assert_near(rows_of("select distinct fresh from reviews"), 2);
    assert_near(rows_of("select 1 from reviews limit 10"), 10);
    assert_near(rows_of("select 1 from movies limit 10 offset 995"), 5);
    assert_near(rows_of("select id from movies union all select id from reviews"),
                MOVIES + REVIEWS);
    assert_near(rows_of("values (1), (2)"), 2);
    assert_true(estimate_of(bound("select 1 from few_shot")->query)->guess);
    assert_false(estimate_of(bound("select 1 from movies")->query)->guess);
}

/* Reviews are fifty a movie: one in a thousand of them still names one movie in twenty. */
static void test_values_left(void **state) {
    (void)state;
    assert_near(distinct_of("select movie_id from reviews where id < 1000"),
                MOVIES * (1 - pow(2.0 / 3, 50)));
    assert_near(distinct_of("select movie_id from reviews where title = 'x'"),
                MOVIES * (1 - pow(1 - 1.0 / MOVIES, 50)));
    assert_near(distinct_of("select movie_id from reviews where movie_id = 3"), 1);
    assert_near(distinct_of("select movie_id from reviews where movie_id in (3, 4)"), 2);
    assert_near(distinct_of("select id from movies where year = 2000"), 0.9 / 50 * MOVIES);
    assert_near(distinct_of("select stars > 3 from reviews"), 2);
}

/* ---- LLM nodes ------------------------------------------------------------------------------- */

static const rel *find_llm(const rel *r) {
    for (; r; r = r->left) {
        if (r->kind == REL_LLM)
            return r;
        const rel *found = r->right ? find_llm(r->right) : NULL;
        if (found)
            return found;
    }
    return NULL;
}

static plan_estimate llm_of(const char *sql, uint8_t *order) {
    const rel *r = find_llm(bound(sql)->query);
    plan_estimate e = {0};
    uint8_t own[8];
    assert_non_null(r);
    estimator *s = estimator_new(mem, &env);
    rule_ctx rules = {.mem = mem, .env = &env};
    const call_layout *layouts = estimate_layout(s, pipeline_new(&rules, (rel *)r, 1));
    for (int i = r->llm.nsites; i-- > 0;)
        estimate_llm_site(s, &r->llm.sites[i], r->left, layouts[i].layout, &e, order ? order : own);
    return e;
}

static const char joined[] =
    "select LLM('Is it good?', r.review, m.synopsis) RETURNS ENUM('yes', 'no') from reviews r "
    "join movies m on r.movie_id = m.id";

static void test_distinct_inputs(void **state) {
    (void)state;
    assert_near(llm_of("select LLM('p', synopsis) from movies", NULL).distinct_inputs, MOVIES);
    assert_near(llm_of("select LLM('p', fresh) from reviews", NULL).distinct_inputs, 2);
    assert_near(llm_of("select LLM('p', review) from reviews", NULL).distinct_inputs, 40000);
    assert_near(llm_of(joined, NULL).distinct_inputs, REVIEWS);
    assert_near(llm_of("select LLM('{stars}', stars) from reviews", NULL).distinct_inputs, 5);
    assert_near(llm_of("select LLM('p', 'x' AS f) from reviews", NULL).distinct_inputs, 1);
    assert_near(
        llm_of("select case when fresh then LLM('p', id) end from reviews", NULL).distinct_inputs,
        REVIEWS / 2.0);
    set("dedup", "off");
    assert_near(llm_of("select LLM('p', fresh) from reviews", NULL).distinct_inputs, REVIEWS);
    assert_near(llm_of("select LLM('{stars}', stars) from reviews", NULL).distinct_inputs,
                0.8 * REVIEWS);
}

/* v1: a synopsis of 840 bytes in 1,000 values goes before a review of 126 in 40,000. */
static void test_field_order(void **state) {
    (void)state;
    static const uint8_t as_written[] = {0, 1}, synopsis_first[] = {1, 0};
    uint8_t order[2];
    llm_of(joined, order);
    assert_memory_equal(order, synopsis_first, 2);
    recorded = as_written;
    llm_of(joined, order);
    assert_memory_equal(order, as_written, 2);
    set("field_order", "fresh");
    llm_of(joined, order);
    assert_memory_equal(order, synopsis_first, 2);
    set("field_order", " review ");
    llm_of(joined, order);
    assert_memory_equal(order, as_written, 2);
    set("field_order", "keep");
    set("psm", "off");
    recorded = synopsis_first;
    llm_of(joined, order);
    assert_memory_equal(order, as_written, 2);
}

static void test_hit_rate(void **state) {
    (void)state;
    plan_estimate best = llm_of(joined, NULL);
    set("psm", "off");
    plan_estimate written = llm_of(joined, NULL);
    set("kv_cache", "off");
    plan_estimate none = llm_of(joined, NULL);
    assert_near(best.prompt_tokens, written.prompt_tokens);
    assert_true(best.computed_tokens < 0.3 * written.computed_tokens);
    assert_true(best.hit_rate > 0.8 && best.hit_rate < 1);
    assert_near(none.computed_tokens, none.prompt_tokens);
    assert_near(none.hit_rate, 0);
    assert_true(best.cost_ms < written.cost_ms && written.cost_ms < none.cost_ms);
}

static void test_rates(void **state) {
    (void)state;
    double nominal = llm_of(joined, NULL).cost_ms;
    env.prefill_tok_s = 4000;
    assert_near(llm_of(joined, NULL).cost_ms, nominal / 2);
    set("cost_rates", "nominal");
    assert_near(llm_of(joined, NULL).cost_ms, nominal);
}

static void test_output(void **state) {
    (void)state;
    assert_near(llm_of("select LLM('p', id, max_tokens => 10) from movies", NULL).output_tokens,
                7 * MOVIES);
    assert_near(llm_of("select LLM('p', id) RETURNS INTEGER from movies", NULL).output_tokens,
                MOVIES);
    learned_tokens = 3;
    assert_near(llm_of("select LLM('p', id, max_tokens => 10) from movies", NULL).output_tokens,
                3 * MOVIES);
}

static void test_examples_are_head(void **state) {
    (void)state;
    const char *plain = "select LLM('p', review) RETURNS ENUM('a', 'b') from reviews";
    const char *shown =
        "select LLM('p', review, examples => few_shot) RETURNS ENUM('a', 'b') from reviews";
    plan_estimate without = llm_of(plain, NULL), with = llm_of(shown, NULL);
    double more = (with.prompt_tokens - without.prompt_tokens) / without.distinct_inputs;
    assert_true(more > 100); /* four examples of some thirty tokens */
    assert_near(with.computed_tokens - without.computed_tokens, more);
}

static void test_answers_share(void **state) {
    (void)state;
    const char *sql =
        "select 1 from movies where LLM('p', title) RETURNS ENUM('a', 'b', 'c', 'd') %s";
    assert_near(rows_of(arena_printf(mem, sql, "= 'a'")), MOVIES / 4.0);
    assert_near(rows_of(arena_printf(mem, sql, "<> 'a'")), MOVIES * 0.75);
    assert_near(rows_of(arena_printf(mem, sql, "in ('a', 'b')")), MOVIES / 2.0);
    learned_share = 0.05;
    assert_near(rows_of(arena_printf(mem, sql, "= 'a'")), MOVIES * 0.05);
    assert_near(rows_of(arena_printf(mem, sql, "in ('a', 'b')")), MOVIES * 0.3);
    assert_near(rows_of("select 1 from movies where LLM('good?', title)"), MOVIES * 0.05);
    assert_near(rows_of("select 1 from (select LLM('p', title) RETURNS ENUM('a', 'b') as x from "
                        "movies) q where x = 'a'"),
                MOVIES * 0.05);
}

/* ---- whole plans ----------------------------------------------------------------------------- */

static plan *planned(const char *sql) {
    err e = {0};
    plan *p;
    if (plan_build(bound(sql), &env, mem, &p, &e))
        fail_msg("%s: %s", sql, e.message);
    return p;
}

static const plan_node *find_node(const plan_node *n, plan_kind kind) {
    if (!n || n->kind == kind)
        return n;
    const plan_node *found = find_node(n->left, kind);
    return found ? found : find_node(n->right, kind);
}

static void test_plan_totals(void **state) {
    (void)state;
    set("cost_rates", "nominal");
    plan *p = planned(
        "select title from movies where LLM('p', title) RETURNS ENUM('a', 'b', 'c', 'd') = 'a'");
    const plan_node *llm = find_node(p->root, PLAN_LLM_PIPELINE);
    const plan_estimate *asked = &llm->pipeline.stages[0].estimate;
    assert_near(asked->selectivity, 0.25);
    assert_near(asked->distinct_inputs, MOVIES);
    assert_near(p->total.rows, MOVIES / 4.0);
    assert_near(p->total.prompt_tokens, asked->prompt_tokens);
    assert_true(p->total.cost_ms > asked->cost_ms);
    assert_true(p->has_llm);
}

/* Twenty rows of which one in four passes: about eighty are asked. */
static void test_waves_cost_less(void **state) {
    (void)state;
    plan *p = planned("select title from movies where LLM('p', title) RETURNS ENUM('a', 'b', 'c', "
                      "'d') = 'a' limit 20");
    const plan_node *llm = find_node(p->root, PLAN_LLM_PIPELINE);
    assert_int_equal(llm->pipeline.demand.limit_hint, 20);
    assert_near(llm->pipeline.stages[0].estimate.distinct_inputs, 80);
}

static void test_printed(void **state) {
    (void)state;
    buf out = {0};
    set("cost_rates", "nominal");
    plan *p = planned(
        "select title from movies where LLM('Is {title} good?', title) = 'yes' order by year desc");
    plan_print(p, NULL, false, &out);
    assert_non_null(strstr(out.p, "#1 'Is title good?' (title) RETURNS ENUM('yes', 'no') by use"));
    assert_non_null(strstr(out.p, "keeps ≈50 % of rows"));
    assert_non_null(strstr(out.p, "Sort by"));
    buf_clear(&out);
    plan_actual *actual = ARENA_ARRAY(mem, plan_actual, p->nnodes);
    actual[p->root->number] = (plan_actual){.known = true, .rows = 3, .ms = 12.3456789};
    p->total.cost_ms = 98765.432198;
    p->total.hit_rate = 2.0 / 3;
    p->root->estimate.cost_ms = 0.00012345;
    plan_print_json(p, actual, &out);
    assert_non_null(strstr(out.p, "\"selectivity\": 0.5"));
    assert_non_null(strstr(out.p, "\"ms\": 12.346\n"));
    assert_non_null(strstr(out.p, "\"cost_ms\": 98765.432,"));
    assert_non_null(strstr(out.p, "\"cost_ms\": 0.000123,"));
    assert_non_null(strstr(out.p, "\"hit_rate\": 0.6667,"));
    assert_non_null(strstr(out.p, "\n  \"total\": {\n    \"rows\": "));
    buf_free(&out);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_texts_of_expressions),
        TEST(test_filters),
        TEST(test_joins),
        TEST(test_other_operators),
        TEST(test_values_left),
        TEST(test_distinct_inputs),
        TEST(test_field_order),
        TEST(test_hit_rate),
        TEST(test_rates),
        TEST(test_output),
        TEST(test_examples_are_head),
        TEST(test_answers_share),
        TEST(test_plan_totals),
        TEST(test_waves_cost_less),
        TEST(test_printed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
