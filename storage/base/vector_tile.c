/*
 * vector_tile.c - inner products of several vectors with several others (base.h): each element is
 * read from memory once for a tile of them. One source, compiled for three instruction sets.
 *
 * Sums here are fused and in another order than vector_distance's, so results differ in their last
 * bits; vector_inner_error bounds the difference.
 */
#include <float.h>
#include <stdatomic.h>
#include <string.h>

#include "storage/base.h"

enum { ROWS = 2, QUERIES = VECTOR_TILE };

typedef void tile_function(const char *const *x, const char *const *y, size_t n, float *out);

#define INLINE static inline __attribute__((always_inline))

/* The elements after the last full register, and the sums of the registers' lanes. */
INLINE float finish(const float *lanes, int width, const char *x, const char *y, size_t from,
                    size_t n) {
    float sum = 0;
    for (int k = 0; k < width; k++)
        sum += lanes[k];
    for (size_t i = from; i < n; i++) {
        float a, b;
        memcpy(&a, x + i * sizeof a, sizeof a);
        memcpy(&b, y + i * sizeof b, sizeof b);
        sum += a * b;
    }
    return sum;
}

/* Defines a function for one instruction set, from its register type and three operations. */
#define TILE(isa, attributes, reg, WIDTH, ZERO, LOAD, STORE, MULTIPLY_ADD)                         \
    attributes static void tile_##isa(const char *const *x, const char *const *y, size_t n,        \
                                      float *out) {                                                \
        reg sums[ROWS][QUERIES];                                                                   \
        size_t full = n - n % (WIDTH);                                                             \
        _Pragma("GCC unroll 2") for (int r = 0; r < ROWS; r++)                                     \
            _Pragma("GCC unroll 4") for (int q = 0; q < QUERIES; q++) sums[r][q] = ZERO;           \
        for (size_t i = 0; i < full; i += (WIDTH)) {                                               \
            reg a[ROWS];                                                                           \
            _Pragma("GCC unroll 2") for (int r = 0; r < ROWS; r++) a[r] =                          \
                LOAD((const float *)(const void *)(x[r] + i * sizeof(float)));                     \
            _Pragma("GCC unroll 4") for (int q = 0; q < QUERIES; q++) {                            \
                reg b = LOAD((const float *)(const void *)(y[q] + i * sizeof(float)));             \
                _Pragma("GCC unroll 2") for (int r = 0; r < ROWS; r++) sums[r][q] =                \
                    MULTIPLY_ADD(a[r], b, sums[r][q]);                                             \
            }                                                                                      \
        }                                                                                          \
        for (int r = 0; r < ROWS; r++)                                                             \
            for (int q = 0; q < QUERIES; q++) {                                                    \
                float lanes[WIDTH];                                                                \
                STORE(lanes, sums[r][q]);                                                          \
                out[r * QUERIES + q] = finish(lanes, WIDTH, x[r], y[q], full, n);                  \
            }                                                                                      \
    }

#if defined(__x86_64__)
#include <immintrin.h>
TILE(avx512, __attribute__((target("avx512f"))), __m512, 16, _mm512_setzero_ps(), _mm512_loadu_ps,
     _mm512_storeu_ps, _mm512_fmadd_ps)
TILE(avx2, __attribute__((target("avx2,fma"))), __m256, 8, _mm256_setzero_ps(), _mm256_loadu_ps,
     _mm256_storeu_ps, _mm256_fmadd_ps)
#endif

static float load_one(const float *at) {
    float f;
    memcpy(&f, at, sizeof f);
    return f;
}
#define STORE_ONE(to, from) ((to)[0] = (from))
#define MULTIPLY_ADD_ONE(a, b, c) ((a) * (b) + (c))
TILE(generic, , float, 1, 0, load_one, STORE_ONE, MULTIPLY_ADD_ONE)

static tile_function *best_tile(void) {
    static _Atomic(tile_function *) best;
    tile_function *f = atomic_load_explicit(&best, memory_order_relaxed);
    if (!f) {
        f = tile_generic;
#if defined(__x86_64__)
        if (__builtin_cpu_supports("avx512f"))
            f = tile_avx512;
        else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
            f = tile_avx2;
#endif
        atomic_store_explicit(&best, f, memory_order_relaxed);
    }
    return f;
}

void vector_inner_tile(const char *const *x, int nx, const char *const y[VECTOR_TILE], size_t n,
                       float *out) {
    tile_function *tile = best_tile();
    for (int r = 0; r + ROWS <= nx; r += ROWS)
        tile(x + r, y, n, out + r * QUERIES);
    if (nx % ROWS == 0)
        return;
    const char *last[ROWS];
    float sums[ROWS * QUERIES];
    for (int r = 0; r < ROWS; r++)
        last[r] = x[nx - 1];
    tile(last, y, n, sums);
    memcpy(out + (nx - 1) * QUERIES, sums, sizeof(float) * QUERIES);
}

/* Each of two sums of n products errs by at most n × u × |x| |y|, u = epsilon / 2, to first order
 * (Higham, "Accuracy and Stability of Numerical Algorithms", section 3.1). */
double vector_inner_error(size_t n) {
    return ((double)n + 16) * (double)FLT_EPSILON * 1.01;
}
