/* Text alone: keywords, tokens, where statements end, errors with their place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "parse/ast_int.h"
#include "tests/sql/fixture.c"
#include "words/words_int.h"

static void keywords_are_sorted_and_found(void **state) {
    (void)state;
    size_t n;
    const char *const *words = sql_keywords(&n);
    assert_true(n > 80);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            assert_true(strcmp(words[i - 1], words[i]) < 0);
        int code = keyword_code(str_from(words[i]));
        assert_true(code > 0);
        assert_string_equal(keyword_name(code), words[i]);
    }
    assert_int_equal(keyword_code(STR("SeLeCt")), keyword_code(STR("SELECT")));
    assert_int_equal(keyword_code(STR("selects")), 0);
    assert_int_equal(keyword_code(STR("averyveryverylongword")), 0);
}

static void functions_have_signatures(void **state) {
    (void)state;
    size_t n, aggregates = 0;
    const function_info *f = sql_functions(&n);
    for (size_t i = 0; i < n; i++) {
        assert_true(f[i].name[0] && f[i].signature[0] && f[i].help[0]);
        assert_true(f[i].max_args < 0 || f[i].max_args >= f[i].min_args);
        agg_kind kind;
        window_kind window;
        bool aggregate = f[i].class == FUNCTION_AGGREGATE;
        /* json_group_array() stands for another one */
        assert_true(!aggregate || aggregate_find(str_from(f[i].name), &kind) ||
                    strcmp(f[i].name, "json_group_array") == 0);
        assert_true(f[i].class != FUNCTION_WINDOW || window_find(str_from(f[i].name), &window));
        aggregates += aggregate;
    }
    assert_int_equal(aggregates, 10);
    for (int i = 0; i < FUNC_COUNT; i++) {
        const char *letters = function_parameters((function_id)i);
        int most = function_of((function_id)i)->max_args, written = (int)strlen(letters);
        assert_int_equal(strspn(letters, "tirnasc=xbdv"), written);
        assert_true(most < 0 ? written > 0 : written <= most && (written > 0) == (most > 0));
    }
}

static void tokens_have_classes(void **state) {
    (void)state;
    static const struct {
        const char *text;
        token_class class;
        size_t length;
    } cases[] = {
        {"select x", TOKEN_KEYWORD, 6},
        {"name$1 ", TOKEN_NAME, 6},
        {"\"a\"\"b\" ", TOKEN_NAME, 6},
        {"'it''s' x", TOKEN_STRING, 7},
        {"x'00ff'", TOKEN_STRING, 7},
        {"1.5e-3+", TOKEN_NUMBER, 6},
        {".5", TOKEN_NUMBER, 2},
        {"-- a\nb", TOKEN_COMMENT, 4},
        {"/* a /* b */ */ c", TOKEN_COMMENT, 15},
        {"/* a", TOKEN_BAD, 4},
        {"'abc", TOKEN_BAD, 4},
        {"=>", TOKEN_OPERATOR, 2},
        {"::int", TOKEN_OPERATOR, 2},
        {":who", TOKEN_NAME, 4},
        {" \n\t", TOKEN_BLANK, 3},
        {"~", TOKEN_BAD, 1},
        {"12abc", TOKEN_BAD, 5},
        {"日本 x", TOKEN_NAME, 6},
        {"x'0'", TOKEN_BAD, 4},
        {"", TOKEN_BLANK, 0},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        token_class class;
        assert_int_equal(sql_token(str_from(cases[i].text), 0, &class), cases[i].length);
        assert_int_equal(class, cases[i].class);
    }
}

static void statements_end(void **state) {
    (void)state;
    static const struct {
        const char *text;
        bool ends, empty;
        size_t length;
    } cases[] = {
        {"select 1; select 2", true, false, 9},
        {"select 1", false, false, 8},
        {"select ';", false, false, 9},
        {"select ';';", true, false, 11},
        {"select (1;", false, false, 10},
        {"-- ;\n", false, true, 5},
        {"/* ; */ ;", true, true, 9},
        {"/* ;", false, false, 4},
        {"  ", false, true, 2},
        {";", true, true, 1},
        {"select \";\" ;", true, false, 12},
        {"select 1) ;", true, false, 11},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        size_t length;
        bool empty;
        assert_int_equal(sql_statement_end(str_from(cases[i].text), &length, &empty),
                         cases[i].ends);
        assert_int_equal(empty, cases[i].empty);
        if (cases[i].ends)
            assert_int_equal(length, cases[i].length);
    }
}

static void caret(const char *text, int pos, int len, const char *expected) {
    err e = {0};
    buf out = {0};
    err_set_at(&e, ERR_BIND, pos, len, "x");
    sql_error_caret(str_from(text), &e, 80, &out);
    assert_string_equal(out.p ? out.p : "", expected);
    buf_free(&out);
}

static void carets_stand_under_their_place(void **state) {
    (void)state;
    caret("select x", 7, 1, "  select x\n         ^\n");
    caret("select\n\txyz,\n1", 8, 3, "   xyz,\n   ^~~\n");
    caret("'日本' + x", 11, 1, "  '日本' + x\n           ^\n");
    caret("select x", 8, 0, "  select x\n          ^\n");
    caret("a\r\nb", 0, 1, "  a\n  ^\n");
    caret("x", -1, 0, "");
    char text[3000];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = 0;
    err e = {0};
    buf out = {0};
    err_set_at(&e, ERR_BIND, 2000, 5, "x");
    sql_error_caret(str_from(text), &e, 80, &out);
    assert_true(out.n < 400);
    assert_non_null(strstr(out.p, "^~~~~\n"));
    buf_clear(&out);
    for (int columns = 30; columns < 100; columns += 7) { /* never wider than the terminal */
        sql_error_caret(str_from(text), &e, columns, &out);
        str rest = buf_str(&out);
        while (rest.n > 0)
            assert_true(utf8_width(str_split_next(&rest, '\n')) <= BASE_MIN(columns, 80));
        buf_clear(&out);
    }
    buf_free(&out);
    int line, column_;
    sql_error_place(STR("a\nbc日d"), 7, &line, &column_);
    assert_int_equal(line, 2);
    assert_int_equal(column_, 4);
}

/* Returns the text's parts as "head|column=name!|…|from": ! marks LLM calls, with the number of
 * their answers; an error as its message. */
static const char *parts(const char *text) {
    static buf out;
    arena *a = arena_new();
    sql_tree tree;
    select_parts x;
    err e;
    buf_clear(&out);
    if (sql_parse(str_from(text), a, &tree, &e) || sql_select_parts(&tree, a, &x, &e)) {
        buf_append_c(&out, e.message);
    } else {
        buf_append_str(&out, x.head);
        for (int i = 0; i < x.ncolumns; i++) {
            const select_column *c = &x.columns[i];
            buf_printf(&out, "|%.*s=%.*s", (int)c->text.n, c->text.p, (int)c->name.n, c->name.p);
            if (c->is_call)
                buf_printf(&out, "!%d%s@%.*s", c->nanswers, c->calibrates ? "c" : "",
                           (int)c->text.n - c->after_prompt, c->text.p + c->after_prompt);
            else if (c->calls_model)
                buf_append_char(&out, '?');
        }
        buf_append_char(&out, '|');
        buf_append_str(&out, x.from);
    }
    arena_free(a);
    return out.p;
}

static void selects_are_taken_apart(void **state) {
    (void)state;
    assert_string_equal(parts("select (a) as b, t.c /* , */ from t where a IS DISTINCT FROM 1; --"),
                        "select |(a)=b|t.c=c|from t where a IS DISTINCT FROM 1");
    assert_string_equal(parts("with t as (select 1 as a) select a is distinct from 2 x from t"),
                        "with t as (select 1 as a) select |a is distinct from 2=x|from t");
    assert_string_equal(parts("select LLM('p', a) returns enum('x', 'y', 'z') as c from t"),
                        "select |LLM('p', a) returns enum('x', 'y', 'z')=c!3@, a) returns "
                        "enum('x', 'y', 'z')|from t");
    assert_string_equal(
        parts("select (LLM(('p'), calibrate => 'off', a) returns integer between -1 and 5) from t"),
        "select |(LLM(('p'), calibrate => 'off', a) returns integer between -1 and 5)=!7c@, "
        "calibrate => 'off', a) returns integer between -1 and 5)|from t");
    assert_string_equal(parts("select LLM('p', a) returns boolean, LLM('p', a) from t"),
                        "select |LLM('p', a) returns boolean=!2@, a) returns boolean|LLM('p', "
                        "a)=!0@, a)|from t");
    assert_string_equal(parts("select LLM('p', a) = 'yes' as b, 'LLM' from t"),
                        "select |LLM('p', a) = 'yes'=b?|'LLM'=|from t");
    assert_string_equal(
        parts("select LLM('p' as a, b), AI_SUMMARIZE(lower(c) as d, model => m) from t"),
        "select |LLM('p' as a, b)=!0@, b)|AI_SUMMARIZE(lower(c) as d, model => "
        "m)=!0@, model => m)|from t");
    assert_string_equal(parts("select AI_CLASSIFY(c, ['x', 'y']) as k, AI_SCORE('p', c) from t"),
                        "select |AI_CLASSIFY(c, ['x', 'y'])=k!2@, ['x', 'y'])|AI_SCORE('p', "
                        "c)=?|from t");
    assert_string_equal(parts("select 1"), "this needs one SELECT with FROM");
    assert_string_equal(parts("(select a from t)"), "this needs one SELECT with FROM");
    assert_string_equal(parts("select a from t union select a from t"),
                        "this needs one SELECT with FROM");
    assert_string_equal(parts("delete from t"), "this needs a SELECT");
    assert_string_equal(parts("select * from t"), "* is not allowed here");
    assert_string_equal(parts("select a from t limit 5"),
                        "ORDER BY and LIMIT are not allowed here: the rows are sampled");
    assert_string_equal(parts("select a from t group by a"),
                        "DISTINCT, GROUP BY, HAVING, WINDOW and QUALIFY are not allowed here");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keywords_are_sorted_and_found),
        cmocka_unit_test(functions_have_signatures),
        cmocka_unit_test(tokens_have_classes),
        cmocka_unit_test(statements_end),
        cmocka_unit_test(carets_stand_under_their_place),
        cmocka_unit_test(selects_are_taken_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
