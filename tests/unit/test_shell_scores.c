/*
 * Tests of agreement, balanced accuracy, AUC and the confusion table: cases counted by hand, and
 * the AUC against its definition over all pairs.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "commands/scores_int.h"

static arena *mem;

static int setup(void **state) {
    (void)state;
    mem = arena_new();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    arena_free(mem);
    return 0;
}

static void assert_near(double got, double expected) {
    assert_true(fabs(got - expected) < 1e-12);
}

/* Eight rows of two classes, 6 : 2; one row without truth, one without answer. */
static void test_agreement(void **state) {
    (void)state;
    static const int truth[] = {0, 0, 0, 0, 0, 0, 1, 1, -1, 1};
    static const int answer[] = {0, 0, 0, 0, 0, 1, 0, 1, 0, -1};
    scores s;
    scores_of(truth, answer, NULL, BASE_COUNT(truth), 2, mem, &s);
    assert_int_equal(s.rows, 8);
    assert_int_equal(s.equal, 6);
    assert_int_equal(s.no_truth, 1);
    assert_int_equal(s.no_answer, 1);
    assert_int_equal(s.commonest, 0);
    assert_near(s.agreement, 6.0 / 8);
    assert_near(s.commonest_agreement, 6.0 / 8);
    assert_near(s.balanced, (5.0 / 6 + 1.0 / 2) / 2);
    assert_near(scores_recall(&s, 0), 5.0 / 6);
    assert_int_equal(s.table[0], 5);
    assert_int_equal(s.table[1], 1);
    assert_int_equal(s.table[2], 1);
    assert_int_equal(s.table[3], 1);
    assert_int_equal(scores_of_truth(&s, 0), 6);
    assert_int_equal(scores_of_answer(&s, 1), 2);
    assert_true(isnan(s.auc));
}

/* A class without rows counts in no mean. */
static void test_unused_class(void **state) {
    (void)state;
    static const int truth[] = {0, 2, 2}, answer[] = {0, 1, 2};
    scores s;
    scores_of(truth, answer, NULL, 3, 3, mem, &s);
    assert_near(s.balanced, (1 + 0.5) / 2);
    assert_true(isnan(scores_recall(&s, 1)));
}

/* The definition: over all pairs of a row of the class and another row. */
static double auc_by_pairs(const int *truth, const double *probs, int rows, int n, int class) {
    double won = 0, pairs = 0;
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < rows; k++)
            if (truth[i] == class && truth[k] != class) {
                double a = probs[i * n + class], b = probs[k * n + class];
                won += a > b ? 1 : a < b ? 0 : 0.5;
                pairs++;
            }
    return won / pairs;
}

static void test_auc(void **state) {
    (void)state;
    enum { ROWS = 200, CLASSES = 3 };
    static int truth[ROWS];
    static double probs[ROWS * CLASSES];
    uint64_t random = 1;
    double mean = 0;
    scores s;
    for (int i = 0; i < ROWS; i++) {
        truth[i] = (int)((random = hash_mix(random, 1)) % CLASSES);
        for (int k = 0; k < CLASSES; k++) /* a few values, so that there are ties */
            probs[i * CLASSES + k] =
                (double)((random = hash_mix(random, 2)) % 8) + (truth[i] == k ? 2 : 0);
    }
    scores_of(truth, truth, probs, ROWS, CLASSES, mem, &s);
    for (int k = 0; k < CLASSES; k++)
        mean += auc_by_pairs(truth, probs, ROWS, CLASSES, k) / CLASSES;
    assert_near(s.auc, mean);
    assert_true(mean > 0.6 && mean < 0.9);
}

static void test_auc_ends(void **state) {
    (void)state;
    static const int truth[] = {0, 0, 1, 1}, one[] = {1, 1, 1, 1};
    static const double right[] = {.9, .1, .8, .2, .4, .6, .3, .7};
    static const double equal[] = {.5, .5, .5, .5, .5, .5, .5, .5};
    scores s;
    scores_of(truth, one, right, 4, 2, mem, &s);
    assert_near(s.auc, 1); /* the order of probabilities counts, not the answers */
    assert_near(s.agreement, 0.5);
    scores_of(truth, one, equal, 4, 2, mem, &s);
    assert_near(s.auc, 0.5);
    scores_of(one, one, right, 4, 2, mem, &s);
    assert_true(isnan(s.auc));
    assert_near(s.agreement, 1);
}

static void test_no_rows(void **state) {
    (void)state;
    static const int truth[] = {-1}, answer[] = {0};
    static const double probs[] = {.5, .5};
    scores s;
    scores_of(truth, answer, probs, 1, 2, mem, &s);
    assert_int_equal(s.rows, 0);
    assert_int_equal(s.commonest, -1);
    assert_true(isnan(s.agreement) && isnan(s.balanced) && isnan(s.auc));
    assert_true(isnan(scores_equal(truth, answer, 1)));
}

static void test_equal(void **state) {
    (void)state;
    static const int a[] = {0, 1, -1, 1}, b[] = {0, 0, 0, 1};
    assert_near(scores_equal(a, b, 4), 2.0 / 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agreement), cmocka_unit_test(test_unused_class),
        cmocka_unit_test(test_auc),       cmocka_unit_test(test_auc_ends),
        cmocka_unit_test(test_no_rows),   cmocka_unit_test(test_equal),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
