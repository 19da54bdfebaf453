/* test_base_vectors.c - VECTOR values: text, order, and sums that are the same on each instruction
 * set. */
#include <float.h>
#include <math.h>

#include "base/vector_int.h"
#include "storage_help_int.h"

static float random_float(void) {
    return (float)rand() / (float)RAND_MAX - 0.5f;
}

static str parsed(arena *a, const char *text) {
    str v = {NULL, 0};
    OK(vector_parse(a, str_from(text), &v, &e));
    return v;
}

static void test_kernels_give_equal_bits(void **state) {
    (void)state;
    const vector_kernel *k[VECTOR_KERNELS];
    int n = vector_kernels(k);
    char memory[2][4 * 1600 + 64];
    assert_true(n >= 1);
    for (size_t dims = 1; dims <= 1600; dims += dims < 100 ? 1 : 97)
        for (size_t shift = 0; shift < 3; shift++) {
            char *x = memory[0] + shift, *y = memory[1] + 2 * shift;
            for (size_t i = 0; i < dims; i++) {
                float f[2] = {random_float() * 100, random_float()};
                memcpy(x + 4 * i, &f[0], 4);
                memcpy(y + 4 * i, &f[1], 4);
            }
            for (int i = 0; i < n; i++) {
                float inner = k[i]->inner(x, y, dims), apart = k[i]->apart(x, y, dims), xy, xx;
                k[i]->angle(x, y, dims, &xy, &xx);
                float first = k[0]->inner(x, y, dims), square = k[0]->inner(x, x, dims),
                      away = k[0]->apart(x, y, dims);
                assert_memory_equal(&inner, &first, sizeof first);
                assert_memory_equal(&apart, &away, sizeof away);
                assert_memory_equal(&xy, &first, sizeof first);
                assert_memory_equal(&xx, &square, sizeof square);
            }
        }
}

/* Beside sums in double. */
static void test_distances_are_right(void **state) {
    (void)state;
    arena *a = arena_new();
    for (int dims = 1; dims < 800; dims = dims * 3 / 2 + 1) {
        float x[800], y[800];
        double xy = 0, xx = 0, yy = 0, apart = 0;
        for (int i = 0; i < dims; i++) {
            double p = x[i] = random_float(), q = y[i] = random_float();
            xy += p * q;
            xx += p * p;
            yy += q * q;
            apart += (p - q) * (p - q);
        }
        str v, w;
        OK(vector_make(a, x, dims, &v, &e));
        OK(vector_make(a, y, dims, &w, &e));
        assert_true(fabs(vector_distance(VECTOR_L2, v, w, 0) - sqrt(apart)) < 1e-5);
        assert_true(fabs(vector_distance(VECTOR_INNER, v, w, 0) - xy) < 1e-5);
        double cosine = 1 - xy / sqrt(xx * yy),
               found = vector_distance(VECTOR_COSINE, v, w, vector_norm(w));
        assert_true(fabs(found - cosine) < 1e-5);
        assert_true(vector_distance(VECTOR_L2, v, v, 0) == 0);
    }
    /* beyond f32, and below it */
    str big = parsed(a, "[3e38, 3e38]"), less = parsed(a, "[-3e38, 3e38]"),
        tiny = parsed(a, "[1e-40, 0]"), small = parsed(a, "[1e-30, 1e-30]"),
        zero = parsed(a, "[0, -0]");
    assert_true(fabs(vector_distance(VECTOR_L2, big, less, 0) / 6e38 - 1) < 1e-6);
    assert_true(fabs(vector_distance(VECTOR_COSINE, big, less, vector_norm(less)) - 1) < 1e-6);
    assert_true(fabs(vector_distance(VECTOR_COSINE, tiny, small, vector_norm(small)) -
                     (1 - sqrt(0.5))) < 1e-6);
    assert_true(fabs(vector_norm(tiny) / 1e-40 - 1) < 1e-4);
    assert_true(isnan(vector_distance(VECTOR_COSINE, zero, big, vector_norm(big))));
    assert_true(isnan(vector_distance(VECTOR_COSINE, big, zero, vector_norm(zero))));
    arena_free(a);
}

static void test_texts_parse_back(void **state) {
    (void)state;
    arena *a = arena_new();
    buf b = {0};
    for (int i = 0; i < 3000; i++) {
        uint32_t bits = (uint32_t)rand() << 16 ^ (uint32_t)rand();
        float f;
        memcpy(&f, &bits, sizeof f);
        if (!isfinite(f))
            continue;
        str v, back;
        OK(vector_make(a, &f, 1, &v, &e));
        buf_clear(&b);
        vector_print(&b, v);
        OK(vector_parse(a, buf_str(&b), &back, &e));
        assert_true(str_equal(v, back));
    }
    buf_clear(&b);
    vector_print(&b, parsed(a, " [ 1,-2.50 ,\t3e-2, 0.1, 16777217, -0, 1e-45, 3.4028235e38 ] "));
    assert_string_equal(b.p, "[1,-2.5,0.03,0.1,16777216,0,1e-45,3.4028235e+38]");
    buf_free(&b);
    arena_free(a);
}

static void test_malformed_texts_are_refused(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        {"", "'' is not a VECTOR: [ is missing at position 1"},
        {"1,2", "'1,2' is not a VECTOR: [ is missing at position 1"},
        {"[]", "'[]' is not a VECTOR: a number is missing at position 2"},
        {"[1,]", "'[1,]' is not a VECTOR: a number is missing at position 4"},
        {"[1 2]", "'[1 2]' is not a VECTOR: ] is missing at position 4"},
        {"[1,2", "'[1,2' is not a VECTOR: ] is missing at position 5"},
        {"[1] x", "'[1] x' is not a VECTOR: text follows the ] at position 5"},
        {"[0x10]", "'[0x10]' is not a VECTOR: not a number at position 2"},
        {"[1, nan]", "'[1, nan]' is not a VECTOR: NaN is not allowed at position 5"},
        {"[-Infinity]",
         "'[-Infinity]' is not a VECTOR: an infinite element is not allowed at position 2"},
        {"[3.5e38]", "'[3.5e38]' is not a VECTOR: a number beyond the range of f32 at position 2"}};
    arena *a = arena_new();
    str v;
    for (size_t i = 0; i < BASE_COUNT(texts); i++) {
        FAILS(ERR_TYPE, vector_parse(a, str_from(texts[i][0]), &v, &e));
        assert_string_equal(e.message, texts[i][1]);
    }
    buf b = {0};
    for (int i = 0; i <= VECTOR_DIMS_MAX; i++)
        buf_append_c(&b, i ? ",1" : "[1");
    buf_append_char(&b, ']');
    FAILS(ERR_TYPE, vector_parse(a, buf_str(&b), &v, &e));
    assert_non_null(strstr(e.message, "more than 16000 elements at position 32002"));
    b.n -= 2;
    b.p[b.n - 1] = ']';
    OK(vector_parse(a, buf_str(&b), &v, &e));
    assert_int_equal(vector_dims(v), VECTOR_DIMS_MAX);
    const float nan = NAN;
    FAILS(ERR_TYPE, vector_make(a, &nan, 1, &v, &e));
    FAILS(ERR_TYPE, vector_check(v, 3, &e));
    assert_string_equal(e.message, "expected 3 dimensions, not 16000");
    OK(vector_check(v, 0, &e));
    buf_free(&b);
    arena_free(a);
}

static void test_order_is_by_element(void **state) {
    (void)state;
    static const char *const rising[] = {"[-2]",  "[-1,5]", "[0]", "[0,-9]",
                                         "[0,1]", "[0.5]",  "[3]"};
    arena *a = arena_new();
    for (size_t i = 0; i < BASE_COUNT(rising); i++)
        for (size_t k = 0; k < BASE_COUNT(rising); k++) {
            value v = {.type = TYPE_VECTOR, .s = parsed(a, rising[i])},
                  w = {.type = TYPE_VECTOR, .s = parsed(a, rising[k])};
            int c = value_compare(v, w);
            assert_int_equal((c > 0) - (c < 0), (i > k) - (i < k));
            assert_true((value_hash(v) == value_hash(w)) == (i == k));
        }
    value zero = {.type = TYPE_VECTOR, .s = parsed(a, "[0,-0]")},
          also = {.type = TYPE_VECTOR, .s = parsed(a, "[-0,0]")};
    assert_int_equal(value_compare(zero, also), 0);
    assert_true(value_hash(zero) == value_hash(also));
    assert_true(value_compare(value_text(STR("x")), zero) < 0);
    arena_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_give_equal_bits),
        cmocka_unit_test(test_distances_are_right),
        cmocka_unit_test(test_texts_parse_back),
        cmocka_unit_test(test_malformed_texts_are_refused),
        cmocka_unit_test(test_order_is_by_element),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
