/* test_base_values.c - value.c: order, hashing, conversion, numbers as text; batch.c's columns. */
#include <locale.h>
#include <math.h>

#include "storage_help_int.h"

static void test_order_is_total_and_hash_agrees(void **state) {
    (void)state;
    value v[] = {value_null(),
                 value_real(NAN),
                 value_real(-INFINITY),
                 value_int(INT64_MIN),
                 value_real(-1.5),
                 value_int(-1),
                 value_bool(false),
                 value_int(1),
                 value_real(1.5),
                 value_int(9007199254740992),
                 value_int(9007199254740993),
                 value_int(INT64_MAX),
                 value_real(9223372036854775808.0),
                 value_real(INFINITY),
                 value_text(STR("")),
                 value_text(STR("a")),
                 value_text(STR("ab")),
                 {.type = TYPE_BLOB, .s = STR("")}};
    for (size_t i = 0; i < BASE_COUNT(v); i++)
        for (size_t k = 0; k < BASE_COUNT(v); k++) {
            int c = value_compare(v[i], v[k]);
            assert_int_equal((c > 0) - (c < 0), (i > k) - (i < k));
        }
    assert_int_equal(value_compare(value_int(1), value_real(1.0)), 0);
    assert_int_equal(value_compare(value_real(9007199254740992.0), value_int(9007199254740993)),
                     -1);
    assert_true(value_hash(value_int(1)) == value_hash(value_real(1.0)));
    assert_true(value_hash(value_bool(true)) == value_hash(value_int(1)));
    assert_true(value_hash(value_real(0.0)) == value_hash(value_real(-0.0)));
    assert_true(value_hash(value_text(STR("1"))) != value_hash(value_int(1)));
}

static int compare_firsts(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Around one run and several, against what is known of the items: all are there, in order. */
static void test_arrays_are_sorted(void **state) {
    (void)state;
    static int64_t items[20000][2];
    static const int counts[] = {0, 1, 2, 4095, 4096, 4097, 8192, 12289, 20000};
    atomic_bool cancel = false;
    for (size_t c = 0; c < BASE_COUNT(counts); c++) {
        int n = counts[c];
        for (int i = 0; i < n; i++)
            items[i][0] = items[i][1] = (int64_t)i * 7919 % n;
        OK(sort_array(items, (size_t)n, sizeof *items, compare_firsts, &cancel, &e));
        for (int i = 0; i + 1 < n; i++)
            assert_true(items[i][0] <= items[i + 1][0] && items[i][0] == items[i][1]);
        for (int i = 0; i < n && n % 7919; i++)
            assert_int_equal(items[i][0], i);
    }
    cancel = true;
    FAILS(ERR_CANCELLED, sort_array(items, 2, sizeof *items, compare_firsts, &cancel, &e));
    err_clear(&e);
}

static void test_integers_as_text(void **state) {
    (void)state;
    int64_t i;
    assert_true(parse_integer(STR("-9223372036854775808"), &i) && i == INT64_MIN);
    assert_true(parse_integer(STR("9223372036854775807"), &i) && i == INT64_MAX);
    static const char *const bad[] = {
        "", "-", "+", "9223372036854775808", "-9223372036854775809", "1 ", " 1", "0x1", "1e3"};
    for (size_t k = 0; k < BASE_COUNT(bad); k++)
        assert_false(parse_integer(str_from(bad[k]), &i));
}

static void test_reals_as_text(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"1", 1},
                {"-0.5", -0.5},
                {".5", 0.5},
                {"5.", 5},
                {"1e3", 1000},
                {"+2.5E-1", 0.25},
                {"0.1", 0.1},
                {"123456789012345678901", 123456789012345678901.0},
                {"2.2250738585072011e-308", 2.2250738585072011e-308},
                {"999999999999999", 999999999999999.0}};
    static const char *const bad[] = {"",     ".",   "-",  "1e",    "nan", "inf",
                                      "0x10", "1,5", "1 ", "1e999", "--1", "1.2.3"};
    double r;
    for (size_t k = 0; k < BASE_COUNT(good); k++) {
        assert_true(parse_real(str_from(good[k].text), &r));
        assert_true(r == good[k].value);
    }
    for (size_t k = 0; k < BASE_COUNT(bad); k++)
        assert_false(parse_real(str_from(bad[k]), &r));
}

static void test_format_real_round_trips(void **state) {
    (void)state;
    static const struct {
        double r;
        const char *text;
    } known[] = {{0.1, "0.1"},      {100, "100.0"},     {-0.0, "-0.0"},
                 {1e300, "1e+300"}, {5e-324, "5e-324"}, {1.0 / 3, "0.3333333333333333"}};
    char text[32];
    double back;
    for (size_t k = 0; k < BASE_COUNT(known); k++) {
        format_real(known[k].r, text);
        assert_string_equal(text, known[k].text);
    }
    uint64_t x = 7;
    for (int k = 0; k < 20000; k++) {
        double r;
        x = hash_mix(x, (uint64_t)k);
        memcpy(&r, &x, sizeof r);
        if (!isfinite(r))
            continue;
        size_t n = format_real(r, text);
        assert_true(n < sizeof text);
        assert_true(parse_real((str){text, n}, &back));
        assert_true(back == r);
    }
}

static void test_real_rounded(void **state) {
    (void)state;
    static const struct {
        double r;
        int decimals;
        double rounded;
    } known[] = {{12.3456789, 3, 12.346}, {98765.4321, 0, 98765},      {2.0 / 3, 4, .6667},
                 {0.0009999, 3, .001},    {.00012345, 3, .000123},     {-1.0005001, 3, -1.001},
                 {1e300, 3, 1e300},       {1.2345e-30, 3, 1.2345e-30}, {0, 3, 0}};
    for (size_t k = 0; k < BASE_COUNT(known); k++)
        assert_true(real_rounded(known[k].r, known[k].decimals) == known[k].rounded);
    assert_true(isnan(real_rounded(NAN, 3)) && isinf(real_rounded(INFINITY, 3)));
}

/* The short path of parse_real against strtod. */
static void test_parse_real_is_exact(void **state) {
    (void)state;
    uint64_t x = 3;
    for (int k = 0; k < 50000; k++) {
        char text[40];
        double r;
        x = hash_mix(x, (uint64_t)k);
        snprintf(text, sizeof text, "%s%llu.%0*llu", x & 1 ? "-" : "",
                 (unsigned long long)(x >> 40), (int)(x % 9 + 1),
                 (unsigned long long)(x >> 8 & 0xff));
        assert_true(parse_real(str_from(text), &r));
        assert_true(r == strtod(text, NULL));
    }
}

static void test_numbers_ignore_the_locale(void **state) {
    (void)state;
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8"};
    for (size_t k = 0; k < BASE_COUNT(names); k++)
        if (setlocale(LC_ALL, names[k]))
            break;
    char text[32];
    double r;
    format_real(1.5, text);
    assert_string_equal(text, "1.5");
    assert_true(parse_real(STR("1.25e1"), &r) && r == 12.5);
    setlocale(LC_ALL, "C");
}

static void test_casts(void **state) {
    (void)state;
    arena *a = arena_new();
    value out;
    OK(value_cast(a, value_text(STR(" 12 ")), TYPE_INTEGER, &out, &e));
    assert_int_equal(out.i, 12);
    OK(value_cast(a, value_null(), TYPE_REAL, &out, &e));
    assert_int_equal(out.type, TYPE_NULL);
    OK(value_cast(a, value_bool(true), TYPE_TEXT, &out, &e));
    assert_true(str_equal(out.s, STR("true")));
    OK(value_cast(a, value_text(STR("YES")), TYPE_BOOLEAN, &out, &e));
    assert_int_equal(out.i, 1);
    FAILS(ERR_TYPE, value_cast(a, value_text(STR("abc")), TYPE_INTEGER, &out, &e));
    assert_string_equal(e.message, "'abc' is not an INTEGER");
    FAILS(ERR_TYPE, value_cast(a, value_text(STR("1.5")), TYPE_INTEGER, &out, &e));
    FAILS(ERR_TYPE, value_cast(a, value_real(1e300), TYPE_INTEGER, &out, &e));
    FAILS(ERR_TYPE,
          value_cast(a, (value){.type = TYPE_BLOB, .s = STR("\xff")}, TYPE_TEXT, &out, &e));
    arena_free(a);
}

static void test_literals(void **state) {
    (void)state;
    buf b = {0};
    value_print_sql(&b, value_text(STR("it's")));
    value_print_sql(&b, (value){.type = TYPE_BLOB, .s = STR("\x01\xfe")});
    value_print_sql(&b, value_null());
    value_print_sql(&b, value_bool(true));
    assert_string_equal(b.p, "'it''s'X'01fe'NULLTRUE");
    buf_free(&b);
}

static void test_columns(void **state) {
    (void)state;
    arena *a = arena_new();
    batch b;
    value_type types[] = {TYPE_INTEGER, TYPE_TEXT, TYPE_REAL};
    batch_init(&b, a, types, 3, 8);
    for (int i = 0; i < 8; i++) {
        column_set(&b.cols[0], a, 8, i, i == 3 ? value_null() : value_int(i));
        column_set(&b.cols[1], a, 8, i, value_text(STR("x")));
        column_set(&b.cols[2], a, 8, i, value_real(i / 2.0));
    }
    column_set(&b.cols[0], a, 8, 3, value_int(33)); /* a NULL taken back */
    column_set(&b.cols[0], a, 8, 4, value_null());
    assert_null(b.cols[1].null);
    int rows[] = {4, 3, 3};
    column picked;
    column_gather(&picked, a, &b.cols[0], rows, 3);
    assert_int_equal(column_get(&picked, 0).type, TYPE_NULL);
    assert_int_equal(column_get(&picked, 2).i, 33);
    column_gather(&picked, a, &b.cols[2], rows, 3);
    assert_true(column_get(&picked, 0).r == 2.0);
    arena_free(a);
}

static void test_json_text(void **state) {
    (void)state;
    buf out = {0};
    buf_append_json(&out, (str){"\0\x1f\\\b\xff/é", 8});
    assert_string_equal(out.p, "\"\\u0000\\u001f\\\\\\b\xEF\xBF\xBD/é\"");
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_is_total_and_hash_agrees),
        cmocka_unit_test(test_arrays_are_sorted),
        cmocka_unit_test(test_integers_as_text),
        cmocka_unit_test(test_reals_as_text),
        cmocka_unit_test(test_real_rounded),
        cmocka_unit_test(test_format_real_round_trips),
        cmocka_unit_test(test_parse_real_is_exact),
        cmocka_unit_test(test_numbers_ignore_the_locale),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_json_text),
        cmocka_unit_test(test_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
