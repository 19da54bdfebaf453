/*
 * test_kernels_int.h - helpers of the CUDA tests: buffers on the card, random numbers, and
 * comparison with a tolerance.
 */
#ifndef KVASIR_TEST_KERNELS_INT_H
#define KVASIR_TEST_KERNELS_INT_H

#include "gpu_tiny.h"

#include "cuda/cuda_int.h"

#include <math.h>

extern const struct CMUnitTest forward_tests[];
extern const size_t forward_tests_count;
extern const struct CMUnitTest session_tests[];
extern const size_t session_tests_count;
int session_setup(void **state), session_teardown(void **state);

static inline void must(cudaError_t status) {
    if (status != cudaSuccess)
        fail_msg("CUDA: %s", cudaGetErrorString(status));
}

/* Copies `host` to new device memory; NULL: fills it with 0xff, which is NaN in f32 and bf16. */
static inline void *to_card(const void *host, size_t bytes) {
    void *p = NULL;
    must(cudaMalloc(&p, bytes + 16));
    must(host ? cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice) : cudaMemset(p, 0xff, bytes));
    return p;
}

static inline void from_card(void *host, const void *card, size_t bytes) {
    must(cudaDeviceSynchronize());
    must(cudaMemcpy(host, card, bytes, cudaMemcpyDeviceToHost));
}

/* Uniform in [-scale/2, scale/2). */
static inline float number(uint64_t *seed, float scale) {
    *seed = hash_mix(*seed, 3);
    return ((float)(*seed >> 40) * 0x1p-24f - 0.5f) * scale;
}

static inline uint16_t narrow(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline float widen(uint16_t x) {
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline void fill(float *x, uint16_t *rounded, size_t n, uint64_t seed, float scale) {
    for (size_t i = 0; i < n; i++) {
        float one = number(&seed, scale);
        if (rounded) {
            rounded[i] = narrow(one);
            one = widen(rounded[i]);
        }
        if (x)
            x[i] = one;
    }
}

/* Fails unless |out - expected| <= limit * |expected|; NaN always fails. */
static inline void near(const char *what, const float *out, const float *expected, size_t n,
                        double limit) {
    double error = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)out[i] - (double)expected[i];
        error += d * d;
        size += (double)expected[i] * (double)expected[i];
    }
    if (!(sqrt(error) <= limit * sqrt(size)))
        fail_msg("%s: relative error %.3g, allowed is %.3g", what, sqrt(error / size), limit);
}

#endif
