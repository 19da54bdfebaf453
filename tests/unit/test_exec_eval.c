/*
 * test_exec_eval.c - expressions over batches, against the same computed cell by cell in plain C.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "eval/eval_int.h"

static expr *literal(arena *a, value v) {
    expr *x = ARENA_NEW(a, expr);
    *x = (expr){.kind = EXPR_LITERAL, .type = v.type, .pos = -1, .literal = v};
    return x;
}

static expr *slot(arena *a, int at, value_type type) {
    expr *x = ARENA_NEW(a, expr);
    *x = (expr){.kind = EXPR_COLUMN, .type = type, .pos = -1};
    x->column.slot = at;
    return x;
}

static expr *apply(arena *a, expr_op how, value_type type, expr *l, expr *r) {
    expr *x = ARENA_NEW(a, expr);
    *x = (expr){.kind = EXPR_OP, .type = type, .pos = -1, .op = how, .nargs = r ? 2 : 1};
    x->args = ARENA_ARRAY(a, expr *, 2);
    x->args[0] = l;
    x->args[1] = r;
    return x;
}

enum { ROWS = 1000 };

/* Column 0: INTEGER with NULLs, column 1: INTEGER with zeros and NULLs. */
static void fill(batch *b, arena *a) {
    static const value_type types[] = {TYPE_INTEGER, TYPE_INTEGER};
    batch_init(b, a, types, 2, ROWS);
    srand(7);
    for (int k = 0; k < ROWS; k++) {
        column_set(&b->cols[0], a, ROWS, k,
                   rand() % 5 ? value_int(rand() % 100 - 50) : value_null());
        column_set(&b->cols[1], a, ROWS, k, rand() % 5 ? value_int(rand() % 7 - 3) : value_null());
    }
    b->rows = ROWS;
}

static void division_by_zero_and_null_are_null(void **state) {
    (void)state;
    arena *a = arena_new();
    batch b;
    column out;
    err e;
    fill(&b, a);
    expr *x = apply(a, OP_DIV, TYPE_INTEGER, slot(a, 0, TYPE_INTEGER), slot(a, 1, TYPE_INTEGER));
    assert_int_equal(eval_column(x, &b, a, &out, &e), 0);
    for (int k = 0; k < ROWS; k++) {
        value l = column_get(&b.cols[0], k), r = column_get(&b.cols[1], k),
              got = column_get(&out, k);
        if (l.type == TYPE_NULL || r.type == TYPE_NULL || r.i == 0)
            assert_int_equal(got.type, TYPE_NULL);
        else
            assert_int_equal(got.i, l.i / r.i);
    }
    arena_free(a);
}

static void overflow_counts_only_where_no_null_stands(void **state) {
    (void)state;
    static const value_type types[] = {TYPE_INTEGER, TYPE_INTEGER};
    arena *a = arena_new();
    batch b;
    column out;
    err e;
    batch_init(&b, a, types, 2, 2);
    b.rows = 2;
    b.cols[0].i[0] = INT64_MAX;
    b.cols[0].i[1] = 1;
    b.cols[1].i[0] = 1;
    b.cols[1].i[1] = 1;
    expr *x = apply(a, OP_ADD, TYPE_INTEGER, slot(a, 0, TYPE_INTEGER), slot(a, 1, TYPE_INTEGER));
    assert_int_equal(eval_column(x, &b, a, &out, &e), ERR_ARITHMETIC);
    b.cols[1].null = arena_zalloc(a, 2);
    b.cols[1].null[0] = 1;
    assert_int_equal(eval_column(x, &b, a, &out, &e), 0);
    assert_true(column_is_null(&out, 0));
    assert_int_equal(out.i[1], 2);
    arena_free(a);
}

/* b <> 0 AND big / b overflows nowhere that is asked: AND
 * keeps its right side from rows that do not need it. */
static void and_evaluates_its_right_side_where_needed(void **state) {
    (void)state;
    arena *a = arena_new();
    batch b;
    err e;
    int rows[ROWS], count, expected = 0;
    fill(&b, a);
    for (int k = 0; k < ROWS; k++) /* where column 1 is 0, column 0 + INT64_MAX would overflow */
        if (!column_is_null(&b.cols[0], k))
            b.cols[0].i[k] = !column_is_null(&b.cols[1], k) && b.cols[1].i[k] == 0 ? 5 : -5;
    expr *nonzero =
        apply(a, OP_NE, TYPE_BOOLEAN, slot(a, 1, TYPE_INTEGER), literal(a, value_int(0)));
    expr *sum =
        apply(a, OP_ADD, TYPE_INTEGER, slot(a, 0, TYPE_INTEGER), literal(a, value_int(INT64_MAX)));
    expr *positive = apply(a, OP_GT, TYPE_BOOLEAN, sum, literal(a, value_int(0)));
    expr *both = apply(a, OP_AND, TYPE_BOOLEAN, nonzero, positive);
    assert_int_equal(eval_filter(both, &b, a, rows, &count, &e), 0);
    for (int k = 0; k < ROWS; k++)
        if (!column_is_null(&b.cols[0], k) && !column_is_null(&b.cols[1], k) && b.cols[1].i[k] != 0)
            assert_int_equal(rows[expected++], k);
    assert_int_equal(count, expected);
    column out;
    assert_int_equal(eval_column(both, &b, a, &out, &e), 0);
    for (int k = 0; k < ROWS; k++) {
        value l = column_get(&b.cols[0], k), r = column_get(&b.cols[1], k),
              got = column_get(&out, k);
        if (r.type != TYPE_NULL && r.i == 0)
            assert_true(got.type == TYPE_BOOLEAN && got.i == 0);
        else if (l.type == TYPE_NULL || r.type == TYPE_NULL)
            assert_int_equal(got.type, TYPE_NULL);
        else
            assert_int_equal(got.i, 1);
    }
    arena_free(a);
}

static void case_takes_the_first_true_branch_of_each_row(void **state) {
    (void)state;
    arena *a = arena_new();
    batch b;
    column out;
    err e;
    fill(&b, a);
    expr *x = ARENA_NEW(a, expr);
    *x = (expr){.kind = EXPR_CASE, .type = TYPE_INTEGER, .pos = -1, .nargs = 5};
    x->args = ARENA_ARRAY(a, expr *, 5);
    x->args[0] = apply(a, OP_GT, TYPE_BOOLEAN, slot(a, 0, TYPE_INTEGER), literal(a, value_int(10)));
    x->args[1] = literal(a, value_int(1));
    x->args[2] = apply(a, OP_LT, TYPE_BOOLEAN, slot(a, 1, TYPE_INTEGER), literal(a, value_int(0)));
    x->args[3] =
        apply(a, OP_MUL, TYPE_INTEGER, slot(a, 1, TYPE_INTEGER), literal(a, value_int(100)));
    x->args[4] = literal(a, value_null());
    assert_int_equal(eval_column(x, &b, a, &out, &e), 0);
    for (int k = 0; k < ROWS; k++) {
        value l = column_get(&b.cols[0], k), r = column_get(&b.cols[1], k),
              got = column_get(&out, k);
        if (l.type != TYPE_NULL && l.i > 10)
            assert_int_equal(got.i, 1);
        else if (r.type != TYPE_NULL && r.i < 0)
            assert_int_equal(got.i, r.i * 100);
        else
            assert_int_equal(got.type, TYPE_NULL);
    }
    arena_free(a);
}

/* The plainest matcher there is. */
static bool plain_like(const char *p, const char *s) {
    if (*p == 0)
        return *s == 0;
    if (*p == '%')
        return plain_like(p + 1, s) || (*s && plain_like(p, s + 1));
    return *s && (*p == '_' || *p == *s) && plain_like(p + 1, s + 1);
}

static void like_agrees_with_the_plainest_matcher(void **state) {
    (void)state;
    static const char letters[] = "ab%_";
    arena *a = arena_new();
    srand(11);
    for (int n = 0; n < 20000; n++) {
        char pattern[8] = "", text[10] = "";
        for (int k = rand() % 7; k > 0; k--)
            pattern[k - 1] = letters[rand() % 4];
        for (int k = rand() % 9; k > 0; k--)
            text[k - 1] = letters[rand() % 2];
        value v;
        err e;
        arena_reset(a);
        expr *x = apply(a, OP_LIKE, TYPE_BOOLEAN, literal(a, value_text(str_from(text))),
                        literal(a, value_text(str_from(pattern))));
        assert_int_equal(eval_value(x, NULL, 0, a, &v, &e), 0);
        if ((v.i != 0) != plain_like(pattern, text))
            fail_msg("'%s' LIKE '%s' is %d", text, pattern, (int)v.i);
    }
    arena_free(a);
}

static void in_is_three_valued_for_short_and_long_lists(void **state) {
    (void)state;
    arena *a = arena_new();
    for (int n = 1; n < 40; n++)
        for (int with_null = 0; with_null < 2; with_null++) {
            batch b;
            column out;
            err e;
            arena_reset(a);
            fill(&b, a);
            expr *x = ARENA_NEW(a, expr);
            *x = (expr){
                .kind = EXPR_IN, .type = TYPE_BOOLEAN, .pos = -1, .nargs = n + 1 + with_null};
            x->args = ARENA_ARRAY(a, expr *, n + 2);
            x->args[0] = slot(a, 0, TYPE_INTEGER);
            for (int k = 0; k < n; k++)
                x->args[k + 1] = literal(a, value_int(k * 3 - 20));
            if (with_null)
                x->args[n + 1] = literal(a, value_null());
            assert_int_equal(eval_column(x, &b, a, &out, &e), 0);
            for (int k = 0; k < ROWS; k++) {
                value v = column_get(&b.cols[0], k), got = column_get(&out, k);
                bool in =
                    v.type != TYPE_NULL && v.i >= -20 && (v.i + 20) % 3 == 0 && (v.i + 20) / 3 < n;
                if (in)
                    assert_int_equal(got.i, 1);
                else if (v.type == TYPE_NULL || with_null)
                    assert_int_equal(got.type, TYPE_NULL);
                else
                    assert_true(got.type == TYPE_BOOLEAN && got.i == 0);
            }
        }
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(division_by_zero_and_null_are_null),
        cmocka_unit_test(overflow_counts_only_where_no_null_stands),
        cmocka_unit_test(and_evaluates_its_right_side_where_needed),
        cmocka_unit_test(case_takes_the_first_true_branch_of_each_row),
        cmocka_unit_test(like_agrees_with_the_plainest_matcher),
        cmocka_unit_test(in_is_three_valued_for_short_and_long_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
