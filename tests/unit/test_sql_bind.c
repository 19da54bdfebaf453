/* Bound statements: limits, the promises of sql.h's comments, LLM calls. The trees themselves are
 * in the .tree files of tests/sql. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/sql/fixture.c"

static fixture f;
static arena *mem;

static int set_up(void **state) {
    (void)state;
    fixture_init(&f);
    mem = arena_new();
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

static err refused(const char *text, err_code code) {
    err e = {0};
    sql_stmt *s = NULL;
    assert_int_equal(sql_bind_text(str_from(text), &f.env, mem, &s, &e), code);
    assert_int_equal(e.code, code);
    return e;
}

/* "before" + n times "part" + "after". */
static char *repeated(const char *before, const char *part, int n, const char *after) {
    buf b = {0};
    buf_append_c(&b, before);
    for (int i = 0; i < n; i++)
        buf_append_c(&b, part);
    buf_append_c(&b, after);
    char *text = arena_strndup(mem, b.p, b.n);
    buf_free(&b);
    return text;
}

static int depth_of(const rel *r) {
    int below = 0;
    if (!r)
        return 0;
    below = depth_of(r->left);
    return 1 + BASE_MAX(below, depth_of(r->right));
}

static int expr_depth(const expr *x) {
    int most = 0;
    for (int i = 0; i < x->nargs; i++)
        most = BASE_MAX(most, expr_depth(x->args[i]));
    return most + 1;
}

static void long_chains_stay_shallow(void **state) {
    (void)state;
    sql_stmt *s = bound(repeated("select 1 from movies where id = 0", " and id <> 1", 10000, ""));
    assert_true(depth_of(s->query) < 100);
    s = bound(repeated("select 1 from movies where id = 0", " or year = 1", 10000, ""));
    assert_true(expr_depth(s->query->left->filter.predicate) < 20);
    s = bound(repeated("select title", " || title", 10000, " from movies"));
    assert_true(expr_depth(s->query->project.exprs[0].value) < 20);
    s = bound(repeated("select 1 where 1 in (0", ", 1", 10000, ")"));
    assert_int_equal(s->query->left->filter.predicate->nargs, 10002);
    s = bound(repeated("values (0)", ", (1)", 10000, ""));
    assert_int_equal(s->query->values.nrows, 10001);
    s = bound(repeated("select 1", " union all select 1", 10000, ""));
    assert_true(depth_of(s->query) < 20);
}

static void nesting_has_a_limit(void **state) {
    (void)state;
    bound(repeated("select ", "(", 300, repeated("1", ")", 300, "")));
    refused(repeated("select ", "(", 100000, "1"), ERR_LIMIT);
    refused(repeated("select ", "not ", 100000, "true"), ERR_LIMIT);
    refused(repeated("select ", "- ", 100001, "year from movies"), ERR_LIMIT);
    refused(repeated("select 1", " + 1", 100000, ""), ERR_LIMIT);
    bound(repeated("select 1", " union select 1", 390, ""));
    err e = refused(repeated("select 1", " union select 1", 5000, ""), ERR_LIMIT);
    assert_non_null(strstr(e.message, "UNION, EXCEPT and INTERSECT combine fewer than"));
    assert_non_null(strstr(e.hint, "UNION ALL has no such limit"));
    assert_true(e.pos > 1000); /* the SELECT that is one too many */
    refused(repeated("select ", "(select ", 5000, "1"), ERR_LIMIT);
    refused(repeated("select ", "case when true then ", 5000, repeated("1 ", "end ", 5000, "")),
            ERR_LIMIT);
    refused(repeated("select * from ", "(select * from ", 5000, "movies"), ERR_LIMIT);
    refused(repeated("", "explain (", 5000, ""), ERR_SYNTAX);
    refused(repeated("select * from movies m0", " join movies using (id)", 5000, ""), ERR_LIMIT);
}

/* Small texts whose trees, or the searches through them, would double with each level. */
static void nothing_grows_exponentially(void **state) {
    (void)state;
    refused(repeated("select 1 where ", "(", 100, repeated("1", " between 0 and 1)", 100, "")),
            ERR_LIMIT);
    refused(repeated("select ", "case ", 100,
                     repeated("1", " when 1 then 1 when 2 then 2 end", 100, "")),
            ERR_LIMIT);
    bound(repeated("select 1 where ", "(", 10, repeated("1", " between 0 and 1)", 10, "")));
    buf ctes = {0};
    buf_append_c(&ctes, "with c0 as (select 1 as x)");
    for (int i = 1; i < 100; i++)
        buf_printf(&ctes, ", c%d as (select a.x from c%d a, c%d b)", i, i - 1, i - 1);
    buf_append_c(&ctes, " select * from c99");
    buf out = {0};
    rel_print(bound(arena_strndup(mem, ctes.p, ctes.n))->query, &out);
    assert_true(out.n < 1000000);
    buf_clear(&ctes);
    buf_append_c(&ctes, "select case when id > 0 then true");
    for (int i = 0; i < 40; i++)
        buf_printf(&ctes, " or LLM('%d', title) = 'yes'", i);
    buf_append_c(&ctes, " else false");
    for (int i = 0; i < 40; i++)
        buf_printf(&ctes, " or LLM('%d', title) = 'yes'", i);
    buf_append_c(&ctes, " end from movies");
    assert_int_equal(bound(arena_strndup(mem, ctes.p, ctes.n))->ncalls, 40);
    buf_free(&ctes);
    buf_free(&out);
}

static void texts_are_trimmed(void **state) {
    (void)state;
    sql_stmt *s = bound("  -- before\n select 1 /* in */ ;\n -- after\n");
    assert_true(str_equal(s->text, STR("select 1")));
    s = bound("explain select 1;");
    assert_true(str_equal(s->text, STR("explain select 1")));
    refused(" -- nothing\n", ERR_SYNTAX);
    refused("", ERR_SYNTAX);
    refused(";", ERR_SYNTAX);
}

static int count_ids(const rel *r, int *seen, int most) {
    if (!r)
        return 0;
    for (int i = 0; i < r->ncols; i++) {
        assert_in_range(r->cols[i].id, 1, most - 1);
        seen[r->cols[i].id]++;
        assert_int_not_equal(r->cols[i].type, TYPE_NULL);
    }
    return 1 + count_ids(r->left, seen, most) + count_ids(r->right, seen, most);
}

static void ids_are_below_next_id_and_typed(void **state) {
    (void)state;
    static const char *const statements[] = {
        "select null, m.*, (select null) from movies m left join reviews r on LLM('fit?', m.title, "
        "r.review) = 'yes'",
        "with a as (select null as x) select * from a union select 'b' from a",
        "select null union all select null",
        "select coalesce(null, null), case when true then null end, min(null) from movies group by "
        "null",
        "values (null, 1)",
        "create table t as select null as n",
    };
    for (size_t i = 0; i < BASE_COUNT(statements); i++) {
        sql_stmt *s = bound(statements[i]);
        int *seen = ARENA_ARRAY(mem, int, s->next_id);
        count_ids(s->query, seen, s->next_id);
    }
}

static void equal_calls_are_one(void **state) {
    (void)state;
    sql_stmt *s = bound(
        "select LLM('Good {review}?', review), case when LLM('Good {review}?', r.review) = 'yes' "
        "then 1 end from reviews r "
        "where LLM('Good {review}?', review) <> 'maybe' order by LLM('Good {review}?', review)");
    assert_int_equal(s->ncalls, 1);
    const llm_call *c = s->calls[0];
    assert_int_equal(c->returns, RETURNS_ENUM);
    assert_true(c->by_use);
    assert_int_equal(c->nliterals, 2);
    assert_true(str_equal(c->instruction, STR("Good review?")));
    assert_true(c->field_required[0]);
    s = bound("select LLM('a', review), LLM('b', review), LLM('a', review, max_tokens => 3), "
              "LLM('a', review AS x) from reviews");
    assert_int_equal(s->ncalls, 4);
    s = bound("select LLM('a', a.review) from reviews a union all select LLM('a', b.review) from "
              "reviews b");
    assert_int_equal(s->ncalls, 1);
}

static void complements_keep_the_case(void **state) {
    (void)state;
    static const char *const cases[][3] = {{"yes", "yes", "no"},
                                           {"NO", "YES", "NO"},
                                           {"Positive", "Positive", "Negative"},
                                           {"ham", "spam", "ham"}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        const llm_call *c =
            bound(arena_printf(mem, "select 1 from reviews where LLM('x', review) = '%s'",
                               cases[i][0]))
                ->calls[0];
        assert_int_equal(c->nliterals, 2);
        assert_true(str_equal(c->literals[0], str_from(cases[i][1])) &&
                    str_equal(c->literals[1], str_from(cases[i][2])));
    }
    err e = refused("select 1 from reviews where LLM('x', review) = 'blue'", ERR_BIND);
    assert_non_null(strstr(e.hint, "RETURNS ENUM('blue', …)"));
}

static void calls_are_refused_where_they_cannot_be(void **state) {
    (void)state;
    refused("create table t (a text check (LLM('ok?', a) = 'yes'))", ERR_BIND);
    refused("create table t (a text default (LLM('ok?')))", ERR_BIND);
    refused("create index i on reviews (LLM('ok?', review))", ERR_UNSUPPORTED);
    refused("select 1 limit LLM('how many?') RETURNS INTEGER", ERR_BIND);
    refused("select LLM('x', review, examples => (select review, LLM('y', review) AS answer from "
            "reviews)) from reviews",
            ERR_BIND);
    refused("insert into few_shot (id) values (1) on conflict (id) do update set answer = LLM('x')",
            ERR_BIND);
}

static void checks_and_conflicts_have_slots(void **state) {
    (void)state;
    sql_stmt *s = bound("insert into everything (id, score) values (1, 2) on conflict (id) do "
                        "update set score = everything.score + excluded.score");
    assert_int_equal(s->nchecks, 2);
    assert_int_equal(s->checks[0].value->args[0]->column.slot, 2);
    const expr *sum = s->conflict_set[2];
    assert_int_equal(sum->args[0]->column.slot, 2);
    assert_int_equal(sum->args[1]->column.slot, 6 + 2);
    assert_null(s->conflict_set[0]);
    assert_int_equal(s->query->ncols, 6);
}

static void a_view_may_not_contain_itself(void **state) {
    (void)state;
    err e = refused("select * from loops", ERR_LIMIT);
    assert_int_equal(e.pos, -1);
    e = refused("select * from broken", ERR_BIND);
    assert_non_null(strstr(e.message, "in view \"broken\": no column \"nothing\""));
    assert_int_equal(e.pos, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_chains_stay_shallow),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(nothing_grows_exponentially),
        cmocka_unit_test(texts_are_trimmed),
        cmocka_unit_test(ids_are_below_next_id_and_typed),
        cmocka_unit_test(equal_calls_are_one),
        cmocka_unit_test(complements_keep_the_case),
        cmocka_unit_test(calls_are_refused_where_they_cannot_be),
        cmocka_unit_test(checks_and_conflicts_have_slots),
        cmocka_unit_test(a_view_may_not_contain_itself),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
