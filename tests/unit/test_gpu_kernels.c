/*
 * test_gpu_kernels.c - every kernel table that this machine can run, compared with plain double
 * arithmetic and with itself: a row's bits must not depend on what else is in the call.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/gemm_int.h"
#include "cpu/head_screen_int.h"
#include "cpu/kernels_int.h"

static float noise(uint64_t seed, int i) {
    return (float)((double)(hash_mix(seed, (uint64_t)i) >> 11) * 0x1p-52 - 1.0);
}

static void fill(float *x, int n, uint64_t seed, float scale) {
    for (int i = 0; i < n; i++)
        x[i] = noise(seed, i) * scale;
}

static void near(double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
        fail_msg("got %.9g, want %.9g", got, want);
}

static void rows(void **state) {
    (void)state;
    const kernels *tables[KERNELS_TABLES];
    static const int sizes[] = {1, 7, 16, 33, 64, 576, 1000};
    float x[1000], y[1000], w[1000], out[1000];
    for (int t = 0, n = kernels_available(tables); t < n; t++) {
        const kernels *k = tables[t];
        for (size_t s = 0; s < BASE_COUNT(sizes); s++) {
            int m = sizes[s];
            fill(x, m, 1, 4);
            fill(y, m, 2, 3);
            fill(w, m, 3, 1);
            double dot = 0, square = 0, size = 0;
            for (int i = 0; i < m; i++) {
                dot += (double)x[i] * (double)y[i];
                size += fabs((double)x[i] * (double)y[i]);
                square += (double)x[i] * (double)x[i];
            }
            assert_true(fabs((double)k->dot(x, y, m) - dot) <= 1e-6 * size + 1e-6);
            k->rms_norm(x, w, 1e-5f, m, out);
            for (int i = 0; i < m; i++)
                near((double)out[i], (double)x[i] / sqrt(square / m + 1e-5) * (double)w[i], 1e-5);
            k->swiglu(x, y, m, out);
            for (int i = 0; i < m; i++)
                near((double)out[i], (double)x[i] / (1 + exp(-(double)x[i])) * (double)y[i], 1e-5);
            k->geglu(x, y, m, out);
            for (int i = 0; i < m; i++) {
                double v = (double)x[i],
                       g = 0.5 * v * (1 + tanh(0.79788456080286536 * (v + 0.044715 * v * v * v)));
                near((double)out[i], g * (double)y[i], 1e-5);
            }
            k->exp(x, m, out);
            for (int i = 0; i < m; i++)
                near((double)out[i], exp((double)x[i]), 1e-6);
        }
        for (int m = 1; m < 100; m++) {
            fill(x, m, 5, 4);
            int best = 0;
            for (int i = 1; i < m; i++)
                best = x[i] > x[best] ? i : best;
            assert_int_equal(k->largest(x, m), best);
            x[m - 1] = x[m / 2] = 9; /* the first of equals */
            assert_int_equal(k->largest(x, m), m / 2);
        }
        float edges[5] = {-INFINITY, -200, -88, 0, NAN};
        k->exp(edges, 5, out);
        assert_true(out[0] == 0 && out[1] == 0 && out[2] == 0 && out[3] == 1 && isnan(out[4]));
        fill(x, 1000, 6, 86);
        k->exp(x, 1000, out);
        for (int i = 0; i < 1000; i++)
            near((double)out[i] / exp((double)x[i]), 1, 5e-6);
    }
}

static void narrow_and_wide(void **state) {
    (void)state;
    const kernels *tables[KERNELS_TABLES];
    float x[100], back[100];
    uint16_t h[100], first[100];
    fill(x, 100, 9, 1000);
    x[0] = 0;
    x[1] = -0.0f;
    x[2] = 1.00390625f; /* a tie: to even */
    for (int t = 0, n = kernels_available(tables); t < n; t++) {
        tables[t]->to_bf16(x, 100, h);
        tables[t]->from_bf16(h, 100, back);
        for (int i = 0; i < 100; i++)
            assert_true(fabsf(back[i] - x[i]) <= fabsf(x[i]) / 256);
        assert_true(back[2] == 1.0f);
        if (t == 0)
            memcpy(first, h, sizeof h);
        assert_memory_equal(h, first, sizeof h);
    }
}

static void rope(void **state) {
    (void)state;
    const kernels *tables[KERNELS_TABLES];
    for (int t = 0, n = kernels_available(tables); t < n; t++) {
        float x[64], was[64], cs[64];
        fill(x, 64, 5, 2);
        memcpy(was, x, sizeof x);
        for (int i = 0; i < 32; i++) {
            cs[i] = cosf((float)i);
            cs[32 + i] = sinf((float)i);
        }
        tables[t]->rope(x, cs, 32);
        for (int i = 0; i < 32; i++) {
            near((double)x[i],
                 (double)was[i] * (double)cs[i] - (double)was[i + 32] * (double)cs[32 + i], 1e-6);
            near((double)x[i + 32],
                 (double)was[i + 32] * (double)cs[i] + (double)was[i] * (double)cs[32 + i], 1e-6);
        }
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { QUERIES = 29, DIM = 96, BLOCKS = 3 };

typedef struct attention {
    float q[(QUERIES + 16) * DIM], kt[BLOCKS][DIM * LLM_BLOCK_TOKENS],
        v[BLOCKS][LLM_BLOCK_TOKENS * DIM];
    uint16_t narrow_kt[BLOCKS][DIM * LLM_BLOCK_TOKENS], narrow_v[BLOCKS][LLM_BLOCK_TOKENS * DIM];
    float top[QUERIES], sum[QUERIES], out[QUERIES * DIM];
    int position[QUERIES];
} attention;

/* x [rows, columns] rounded to bf16 in place, and as pairs of rows [rows/2, columns, 2]. */
static void pairs_make(float *x, int count, int columns, uint16_t *out) {
    for (int i = 0; i < count * columns; i++) {
        uint16_t h;
        kernels_generic.to_bf16(x + i, 1, &h);
        kernels_generic.from_bf16(&h, 1, x + i);
        int row = i / columns, at = i % columns;
        out[(row / 2 * columns + at) * 2 + row % 2] = h;
    }
}

/* What is asked for ahead must not show: the next block's, in part or whole, or nothing. */
static int ahead_fill(const attention *a, int b, attend_ahead out[2]) {
    out[0] = (attend_ahead){(const char *)a->narrow_kt[(b + 1) % BLOCKS], DIM / 2, 64};
    out[1] = (attend_ahead){(const char *)a->narrow_v[(b + 1) % BLOCKS], DIM / 4, 0};
    return b % 3;
}

static void attention_run(const kernels *k, attention *a, int from, int count, float softcap,
                          int window) {
    for (int i = from; i < from + count; i++) {
        a->top[i] = -INFINITY;
        a->sum[i] = 0;
        memset(a->out + i * DIM, 0, sizeof(float) * DIM);
    }
    static uint16_t narrow[(QUERIES + 16) * DIM];
    k->to_bf16(a->q, (QUERIES + 16) * DIM, narrow);
    for (int b = 0; b < BLOCKS; b++) {
        int low[QUERIES], high[QUERIES];
        for (int i = from; i < from + count; i++) {
            int first = b * LLM_BLOCK_TOKENS;
            high[i] = BASE_MIN(a->position[i] + 1 - first, LLM_BLOCK_TOKENS);
            low[i] = window > 0 ? BASE_MAX(a->position[i] + 1 - window - first, 0) : 0;
        }
        const void *q = k->narrow ? (const void *)(narrow + from * DIM) : a->q + from * DIM;
        attend_unit unit = {.q = q,
                            .nq = count,
                            .d = DIM,
                            .kt = a->narrow_kt[b],
                            .v = a->narrow_v[b],
                            .low = low + from,
                            .high = high + from,
                            .softcap = softcap,
                            .top = a->top + from,
                            .sum = a->sum + from,
                            .out = a->out + from * DIM};
        attend_ahead ahead[2];
        unit.ahead = ahead;
        unit.nahead = ahead_fill(a, b, ahead);
        static float scores[QUERIES * LLM_BLOCK_TOKENS], tops[QUERIES];
        k->scores(&unit, scores);
        for (int i = 0; i < count; i++) {
            tops[i] = unit.top[i];
            for (int j = 0; j < LLM_BLOCK_TOKENS; j++)
                tops[i] = BASE_MAX(tops[i], scores[i * LLM_BLOCK_TOKENS + j]);
        }
        k->attend(&unit);
        for (int i = 0; i < count; i++)
            assert_true(unit.low[i] >= unit.high[i] ||
                        memcmp(&tops[i], &unit.top[i], sizeof *tops) == 0);
    }
}

static void attention_check(const attention *a, int i, float softcap, int window,
                            double tolerance) {
    double score[BLOCKS * LLM_BLOCK_TOKENS], sum = 0, out[DIM] = {0};
    int first = window > 0 ? BASE_MAX(a->position[i] + 1 - window, 0) : 0;
    for (int p = first; p <= a->position[i]; p++) {
        score[p] = 0;
        for (int d = 0; d < DIM; d++)
            score[p] += (double)a->q[i * DIM + d] * (double)a->kt[p / 32][d * 32 + p % 32];
        score[p] = softcap > 0 ? (double)softcap * tanh(score[p] / (double)softcap) : score[p];
        score[p] = exp(score[p]);
        sum += score[p];
        for (int d = 0; d < DIM; d++)
            out[d] += score[p] * (double)a->v[p / 32][p % 32 * DIM + d];
    }
    for (int d = 0; d < DIM; d++)
        near((double)(a->out[i * DIM + d] / a->sum[i]), out[d] / sum, tolerance);
}

static void attend(void **state) {
    (void)state;
    static const struct {
        float softcap;
        int window;
    } cases[] = {{0, 0}, {30, 0}, {0, 20}};
    static attention a, alone;
    const kernels *tables[KERNELS_TABLES];
    fill(a.q, QUERIES * DIM, 1, 0.6f);
    fill(a.kt[0], BLOCKS * DIM * 32, 2, 1);
    fill(a.v[0], BLOCKS * DIM * 32, 3, 1);
    /* what bf16 holds, so that the reference sees the same values */
    for (int b = 0; b < BLOCKS; b++) {
        pairs_make(a.kt[b], DIM, 32, a.narrow_kt[b]);
        pairs_make(a.v[b], 32, DIM, a.narrow_v[b]);
    }
    for (int i = 0; i < QUERIES; i++)
        a.position[i] = (i * 17 + 30) % (BLOCKS * 32);
    for (int t = 0, n = kernels_available(tables); t < n; t++) {
        for (size_t c = 0; c < BASE_COUNT(cases); c++) {
            attention_run(tables[t], &a, 0, QUERIES, cases[c].softcap, cases[c].window);
            alone = a;
            for (int i = 0; i < QUERIES; i++) {
                attention_check(&a, i, cases[c].softcap, cases[c].window,
                                tables[t]->narrow ? 0.03 : 2e-5);
                attention_run(tables[t], &alone, i, 1, cases[c].softcap, cases[c].window);
            }
            assert_memory_equal(a.out, alone.out, sizeof a.out);
            assert_memory_equal(a.sum, alone.sum, sizeof a.sum);
        }
    }
}

/* ---- the head's screen ----------------------------------------------------------------------- */

enum { HEAD = 1024, WIDTH = 96, STATES = 11 };

/* Logits in double, as exact as the screen must bound them. */
static double logit_of(const float *w, const uint16_t *x) {
    uint16_t narrow[WIDTH];
    float a[WIDTH], b[WIDTH];
    double sum = 0;
    kernels_generic.to_bf16(w, WIDTH, narrow);
    kernels_generic.from_bf16(narrow, WIDTH, a);
    kernels_generic.from_bf16(x, WIDTH, b);
    for (int i = 0; i < WIDTH; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* No token above the best lower bound is dropped, and few
 * are kept; one large value in a state and one in the head. */
static void screen_check(const kernels *k, float *w, float outlier) {
    head_screen *s = head_screen_new(k, HEAD, WIDTH);
    assert_non_null(s);
    for (int j = 0; j < HEAD; j++)
        head_screen_set(s, j, w + j * WIDTH);
    static uint16_t x[STATES][WIDTH];
    static int8_t fine[STATES * WIDTH];
    static float best[STATES], upper[STATES * SCREEN_COLUMNS], state[WIDTH];
    static double logits[STATES][HEAD], top[STATES];
    screen_state states[STATES];
    for (int i = 0; i < STATES; i++) {
        fill(state, WIDTH, 40 + (uint64_t)i, 1);
        state[i * 7] *= outlier;
        kernels_generic.to_bf16(state, WIDTH, x[i]);
        assert_true(head_screen_state(s, x[i], fine + i * WIDTH, &states[i]));
        best[i] = -INFINITY;
        top[i] = -INFINITY;
        for (int j = 0; j < HEAD; j++) {
            logits[i][j] = logit_of(w + j * WIDTH, x[i]);
            top[i] = fmax(top[i], logits[i][j]);
        }
    }
    int kept = 0;
    for (int round = 0; round < 2; round++) { /* the second knows the best of all */
        for (int first = 0; first < HEAD; first += SCREEN_COLUMNS) {
            uint64_t masks[STATES];
            head_screen_run(s, first, fine, states, STATES, best, masks, upper);
            for (int i = 0; i < STATES; i++) {
                kept += round == 1 ? __builtin_popcountll(masks[i]) : 0;
                assert_true((double)best[i] <= top[i]);
                for (int j = 0; j < SCREEN_COLUMNS; j++) {
                    assert_true((double)upper[i * SCREEN_COLUMNS + j] >= logits[i][first + j]);
                    if (logits[i][first + j] == top[i])
                        assert_true(masks[i] >> j & 1);
                }
            }
        }
    }
    assert_true(kept >= STATES && kept < STATES * 40);
    x[0][5] = 0x7f80; /* infinity */
    assert_false(head_screen_state(s, x[0], fine, states));
    memset(x[0], 0, sizeof x[0]);
    assert_false(head_screen_state(s, x[0], fine, states));
    head_screen_free(s);
}

static void screen(void **state) {
    (void)state;
    static float w[HEAD * WIDTH];
    const kernels *tables[KERNELS_TABLES];
    for (int t = 0, n = kernels_available(tables); t < n; t++) {
        const kernels *k = tables[t];
        if (k->screen == NULL) {
            assert_null(head_screen_new(k, HEAD, WIDTH));
            continue;
        }
        assert_null(head_screen_new(k, HEAD + 1, WIDTH));
        fill(w, HEAD * WIDTH, 77, 1);
        screen_check(k, w, 1);
        memset(w + 5 * WIDTH, 0, sizeof(float) * WIDTH);
        w[9 * WIDTH + 3] = 20;
        screen_check(k, w, 30);
        static uint16_t rows[16 * WIDTH];
        float out[16];
        k->to_bf16(w, 16 * WIDTH, rows);
        for (int run = 32; run <= WIDTH; run += 32) {
            k->pair_products(rows, rows, WIDTH, run, out);
            for (int i = 0; i < 16; i++)
                near((double)out[i], logit_of(w + i * WIDTH, rows), 1e-4);
        }
    }
}

/* ---- products -------------------------------------------------------------------------------- */

enum { K = 96, N = 80, ROWS = 70 };

static void weight_row(const void *ctx, int row, float *out) {
    memcpy(out, (const float *)ctx + row * K, sizeof(float) * K);
}

static void products(void **state) {
    (void)state;
    float *w = mem_alloc(sizeof(float) * N * K), *a = mem_zalloc(sizeof(float) * 128 * K);
    fill(w, N * K, 1, 1);
    fill(a, ROWS * K, 2, 1);
    pool *threads = pool_new(2);
    gemm *g;
    gemm_weight weight;
    hash128 digest;
    err e = {0};
    assert_int_equal(gemm_new(threads, GEMM_F32, &g, &e), 0);
    assert_int_equal(gemm_declare(g, GEMM_F32, N, K, 64, &weight, &e), 0);
    assert_int_equal(weight.nparts, 2);
    assert_int_equal(gemm_probe(g, &digest, &e), 0);
    for (int p = 0; p < weight.nparts; p++) {
        assert_int_equal(gemm_pack(g, &weight, p, weight_row, w, &e), 0);
        const gemm_part *part = &weight.parts[p];
        int height = gemm_tile(g);
        const float *out = gemm_run(g, &weight, p, 1, height, a);
        float whole[64];
        for (int i = 0; i < height && i < ROWS; i++) {
            for (int j = 0; j < part->n; j++) {
                double sum = 0;
                for (int d = 0; d < K; d++)
                    sum += (double)a[i * K + d] * (double)w[(part->first + j) * K + d];
                near((double)out[i * part->n + j], sum, 1e-4);
            }
        }
        memcpy(whole, out + 3 * part->n, sizeof(float) * (size_t)part->n);
        /* the same row, first in a small tile */
        const float *again = gemm_run(g, &weight, p, 0, 1, a + 3 * K);
        assert_memory_equal(whole, again, sizeof(float) * (size_t)part->n);
    }
    gemm_weight_free(&weight);
    gemm_free(g);
    pool_free(threads);
    free(w);
    free(a);
}

static void count_task(void *ctx, int task, int worker) {
    (void)worker;
    atomic_fetch_add((atomic_int *)ctx + task, 1);
}

static void pool_runs_each_task_once(void **state) {
    (void)state;
    pool *p = pool_new(3);
    static atomic_int seen[300];
    for (int round = 1; round <= 300; round++) {
        pool_run(p, round, count_task, seen);
        for (int i = 0; i < 300; i++)
            assert_int_equal(atomic_load(&seen[i]), BASE_MAX(round - i, 0));
    }
    pool_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows),
        cmocka_unit_test(narrow_and_wide),
        cmocka_unit_test(rope),
        cmocka_unit_test(attend),
        cmocka_unit_test(screen),
        cmocka_unit_test(products),
        cmocka_unit_test(pool_runs_each_task_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
