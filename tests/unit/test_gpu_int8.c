/*
 * test_gpu_int8.c - products of weights in bytes, against plain double arithmetic over what the
 * formats say (int8_int.h): grids of files kept exactly, a row's bits whatever else is in the call,
 * what is not finite.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/int8_int.h"
#include "storage/base.h"

enum { K = 96, GROUPS = K / INT8_GROUP, N = 77, ROWS = 13 };

static const int8_kernels *int8;

static float noise(uint64_t seed, int i) {
    return (float)((double)(hash_mix(seed, (uint64_t)i) >> 11) * 0x1p-52 - 1.0);
}

/* ---- reading the formats --------------------------------------------------------------------- */

/* Weight (column, k) as the panels hold it. */
static double weight_at(const char *panels, int at, int k) {
    const char *group =
        panels + ((size_t)(at / INT8_COLUMNS) * GROUPS + (size_t)k / INT8_GROUP) * INT8_PANEL_GROUP;
    float step, low;
    int lane = at % INT8_COLUMNS, in_group = k % INT8_GROUP;
    memcpy(&step, group + 4 * lane, sizeof step);
    memcpy(&low, group + 4 * (INT8_COLUMNS + lane), sizeof low);
    const char *bytes = group + 8 * INT8_COLUMNS;
    uint8_t byte = (uint8_t)bytes[in_group / 4 * INT8_COLUMNS * 4 + lane * 4 + in_group % 4];
    return (double)low + (double)step * byte;
}

static double value_at(const char *row, int planes, int k) {
    const char *group = row + (size_t)(k / INT8_GROUP) * int8_operand_bytes(planes, INT8_GROUP);
    float scale;
    memcpy(&scale, group + planes * INT8_GROUP, sizeof scale);
    int digits = (int8_t)group[k % INT8_GROUP];
    if (planes == 2)
        digits = digits * 256 + (int8_t)group[INT8_GROUP + k % INT8_GROUP];
    return (double)scale * digits;
}

typedef struct product {
    float w[N * K], a[ROWS * K], c[ROWS * N];
    char *panels, *rows;
} product;

static product *product_new(int planes, uint64_t seed) {
    product *p = mem_zalloc(sizeof *p);
    p->panels = aligned_alloc(INT8_ALIGN, int8_weight_bytes(N, K));
    p->rows = mem_alloc(ROWS * int8_operand_bytes(planes, K));
    for (int i = 0; i < N * K; i++)
        p->w[i] = noise(seed, i);
    for (int i = 0; i < ROWS * K; i++)
        p->a[i] = noise(seed + 1, i) * (i % 31 == 0 ? 20.0f : 1.0f);
    return p;
}

static void product_run(product *p, int planes) {
    size_t row = int8_operand_bytes(planes, K);
    int8->pack(p->w, N, K, p->panels);
    for (int i = 0; i < ROWS; i++)
        int8->store(p->a + i * K, K, planes, p->rows + (size_t)i * row);
    int8->product(p->rows, ROWS, planes, p->panels, N, K, p->c);
}

static void product_free(product *p) {
    free(p->panels);
    free(p->rows);
    free(p);
}

static void near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance))
        fail_msg("got %.9g, want %.9g within %.3g", got, want, tolerance);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void sums_are_those_of_the_formats(void **state) {
    (void)state;
    for (int planes = 1; planes <= 2; planes++) {
        product *p = product_new(planes, 7);
        size_t row = int8_operand_bytes(planes, K);
        product_run(p, planes);
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < N; j++) {
                double want = 0, size = 0;
                for (int k = 0; k < K; k++) {
                    double x = value_at(p->rows + (size_t)i * row, planes, k);
                    want += x * weight_at(p->panels, j, k);
                    size += fabs(x);
                }
                near((double)p->c[i * N + j], want, 1e-6 * size);
            }
        }
        product_free(p);
    }
}

/* A plane has 127 steps to the group's largest value, a second one 256 times as many. */
static void values_are_rounded_once(void **state) {
    (void)state;
    for (int planes = 1; planes <= 2; planes++) {
        product *p = product_new(planes, 11);
        product_run(p, planes);
        for (int i = 0; i < ROWS * K; i++) {
            int row = i / K, k = i % K;
            float most = 0;
            for (int j = k / INT8_GROUP * INT8_GROUP; j < (k / INT8_GROUP + 1) * INT8_GROUP; j++)
                most = fmaxf(most, fabsf(p->a[row * K + j]));
            double got = value_at(p->rows + (size_t)row * int8_operand_bytes(planes, K), planes, k);
            double step = (double)most / 127 / (planes == 2 ? 256 : 1);
            near(got, (double)p->a[i], step * (planes == 2 ? 1.01 : 0.501));
        }
        product_free(p);
    }
}

/* What Q4_0, Q4_1, Q5_1 and Q8_0 hold: levels from `first` to `last` of a grid, not all used. */
static void grids_of_files_are_exact(void **state) {
    (void)state;
    static const struct {
        int first, last; /* levels */
        float step, low;
    } grids[] = {{0, 15, 0.0123f, -0.08f}, {-8, 7, 0.031f, 0},     {0, 31, 0.007f, -0.1f},
                 {-127, 127, 0.00191f, 0}, {0, 15, 1e-4f, -0.9f},  {-8, -8, 0.5f, 0},
                 {-127, 40, 0.00203f, 0},  {3, 14, 0.02f, -0.11f}, {-127, 3, 0.0007f, 0},
                 {0, 1, 0.3f, -0.2f},      {-16, 13, 0.011f, 0}};
    for (size_t g = 0; g < BASE_COUNT(grids); g++) {
        int levels = grids[g].last - grids[g].first + 1;
        if (levels > int8->levels + 1)
            continue;
        product *p = product_new(1, 0);
        for (int i = 0; i < N * K; i++) {
            int level = grids[g].first + (int)(hash_mix(g, (uint64_t)i) % (uint64_t)levels);
            if (i % INT8_GROUP == 5) /* a Q8_0 group holds its largest */
                level = grids[g].first;
            p->w[i] = grids[g].low + grids[g].step * (float)level;
        }
        int8->pack(p->w, N, K, p->panels);
        for (int i = 0; i < N * K; i++)
            near(weight_at(p->panels, i / K, i % K), (double)p->w[i],
                 0.03 / 255 * (double)grids[g].step * levels);
        product_free(p);
    }
}

static void other_weights_are_rounded_once(void **state) {
    (void)state;
    product *p = product_new(1, 3);
    product_run(p, 1);
    for (int i = 0; i < N * K; i++) {
        float low = p->w[i], high = p->w[i];
        for (int j = i / INT8_GROUP * INT8_GROUP; j < (i / INT8_GROUP + 1) * INT8_GROUP; j++) {
            low = fminf(low, p->w[j]);
            high = fmaxf(high, p->w[j]);
        }
        near(weight_at(p->panels, i / K, i % K), (double)p->w[i],
             (double)(high - low) / int8->levels * 0.51);
    }
    product_free(p);
}

/* Alone, at another place, among fewer rows, in a part of fewer columns: the same bits. */
static void bits_hang_on_row_and_column_alone(void **state) {
    (void)state;
    for (int planes = 1; planes <= 2; planes++) {
        product *p = product_new(planes, 23);
        size_t row = int8_operand_bytes(planes, K);
        float c[ROWS * N];
        product_run(p, planes);
        for (int rows = 1; rows <= ROWS; rows++) {
            for (int first = 0; first + rows <= ROWS; first += 3) {
                for (int n = N; n > 0; n -= 29) {
                    int8->product(p->rows + (size_t)first * row, rows, planes, p->panels, n, K, c);
                    for (int i = 0; i < rows; i++)
                        assert_memory_equal(c + i * n, p->c + (first + i) * N,
                                            sizeof *c * (size_t)n);
                }
            }
        }
        product_free(p);
    }
}

/* NaN and infinity show in all that they are part of and in nothing else; zeros and values too
 * small for a scale give no NaN. */
static void what_is_not_finite_shows(void **state) {
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (size_t o = 0; o < BASE_COUNT(odd); o++) {
        for (int planes = 1; planes <= 2; planes++) {
            product *p = product_new(planes, 5);
            p->a[2 * K + 40] = odd[o];
            p->w[9 * K + 1] = odd[o];
            for (int k = 0; k < K; k++)
                p->a[3 * K + k] = k < INT8_GROUP ? 0 : 1e-40f;
            product_run(p, planes);
            for (int i = 0; i < ROWS; i++)
                for (int j = 0; j < N; j++)
                    assert_int_equal(isnan(p->c[i * N + j]) != 0, i == 2 || j == 9);
            product_free(p);
        }
    }
}

/* What differs between tables is how many steps a group of weights has, not how they are used. */
static void tables_of_equal_levels_agree(void **state) {
    (void)state;
    const int8_kernels *tables[INT8_TABLES], *own = int8;
    for (int planes = 1; planes <= 2; planes++) {
        product *p = product_new(planes, 31), *other = product_new(planes, 31);
        product_run(p, planes);
        for (int t = 0, n = int8_available(tables); t < n; t++) {
            if (tables[t]->levels != own->levels)
                continue;
            int8 = tables[t];
            product_run(other, planes);
            int8 = own;
            assert_memory_equal(p->panels, other->panels, int8_weight_bytes(N, K));
            assert_memory_equal(p->rows, other->rows, ROWS * int8_operand_bytes(planes, K));
            assert_memory_equal(p->c, other->c, sizeof p->c);
        }
        product_free(other);
        product_free(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_formats),
        cmocka_unit_test(values_are_rounded_once),
        cmocka_unit_test(grids_of_files_are_exact),
        cmocka_unit_test(other_weights_are_rounded_once),
        cmocka_unit_test(bits_hang_on_row_and_column_alone),
        cmocka_unit_test(what_is_not_finite_shows),
        cmocka_unit_test(tables_of_equal_levels_agree),
    };
    const int8_kernels *tables[INT8_TABLES];
    int failed = 0, n = int8_available(tables);
    for (int t = 0; t < n; t++) {
        int8 = tables[t];
        print_message("%s\n", int8->name);
        failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    if (n == 0)
        print_message("skipped: this machine has no AVX2\n");
    return n == 0 ? 77 : failed;
}
