/*
 * vector_sums.c - sums over the elements of vectors (vector_int.h): one source, compiled for
 * AVX2, which keeps up with memory, and for the machine of the build.
 *
 * Invariant: element i is added to lane i % 32, in f32, without fused multiply-add (the build has
 * -ffp-contract=off); then lane k + half is added to lane k, until one is left. That fixes every
 * rounding, whatever the width of a register.
 */
#include <string.h>

#include "base/vector_int.h"

enum { LANES = 32, WIDTH = 8, PARTS = LANES / WIDTH };
typedef float lanes __attribute__((vector_size(WIDTH * sizeof(float))));
typedef enum sum_kind { INNER, APART, ANGLE } sum_kind;

/* Inlined with a constant `what`, into functions for each instruction set. Vectors are passed by
 * address, since their ABI differs between these. */
#define INLINE static inline __attribute__((always_inline))

INLINE void add(sum_kind what, const char *x, const char *y, lanes *xy, lanes *xx) {
    for (size_t k = 0; k < PARTS; k++) {
        lanes a, b;
        memcpy(&a, x + k * sizeof a, sizeof a);
        memcpy(&b, y + k * sizeof b, sizeof b);
        if (what == APART)
            a = b = a - b;
        xy[k] += a * b;
        if (what == ANGLE)
            xx[k] += a * a;
    }
}

INLINE float total(const lanes *sums) {
    float s[WIDTH];
    lanes all = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    memcpy(s, &all, sizeof s);
    for (int half = WIDTH / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            s[k] += s[k + half];
    return s[0];
}

INLINE void sums(sum_kind what, const char *x, const char *y, size_t n, float *xy, float *xx) {
    enum { STEP = LANES * sizeof(float) };
    lanes a[PARTS] = {{0}}, b[PARTS] = {{0}};
    char last[2][STEP];
    for (size_t left = n * sizeof(float); left; left -= left < STEP ? left : STEP) {
        if (left < STEP) { /* zeros change no sum */
            memset(last, 0, sizeof last);
            x = memcpy(last[0], x, left);
            y = memcpy(last[1], y, left);
        }
        add(what, x, y, a, b);
        x += STEP;
        y += STEP;
    }
    *xy = total(a);
    if (what == ANGLE)
        *xx = total(b);
}

/* Blocks are short enough for a sum of 32 bits. */
INLINE int64_t codes_inner(const int8_t *x, const int16_t *y, size_t n) {
    enum { BLOCK = 4096 };
    int64_t sum = 0;
    for (size_t at = 0; at < n; at += BLOCK) {
        size_t end = n - at < BLOCK ? n : at + BLOCK;
        int32_t part = 0;
        for (size_t i = at; i < end; i++)
            part += x[i] * y[i];
        sum += part;
    }
    return sum;
}

#define KERNEL(isa, target)                                                                        \
    target static float inner_##isa(const char *x, const char *y, size_t n) {                      \
        float s;                                                                                   \
        sums(INNER, x, y, n, &s, NULL);                                                            \
        return s;                                                                                  \
    }                                                                                              \
    target static float apart_##isa(const char *x, const char *y, size_t n) {                      \
        float s;                                                                                   \
        sums(APART, x, y, n, &s, NULL);                                                            \
        return s;                                                                                  \
    }                                                                                              \
    target static void angle_##isa(const char *x, const char *y, size_t n, float *xy, float *xx) { \
        sums(ANGLE, x, y, n, xy, xx);                                                              \
    }                                                                                              \
    target static int64_t codes_##isa(const int8_t *x, const int16_t *y, size_t n) {               \
        return codes_inner(x, y, n);                                                               \
    }                                                                                              \
    static const vector_kernel kernel_##isa = {#isa, inner_##isa, apart_##isa, angle_##isa,        \
                                               codes_##isa};

KERNEL(generic, )
#if defined(__x86_64__)
KERNEL(avx2, __attribute__((target("avx2"))))
#endif

int vector_kernels(const vector_kernel *out[VECTOR_KERNELS]) {
    int n = 0;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        out[n++] = &kernel_avx2;
#endif
    out[n++] = &kernel_generic;
    return n;
}
