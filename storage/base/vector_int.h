/*
 * vector_int.h - the sums of which vector distances are made (vector_sums.c), one set of functions
 * for each instruction set.
 *
 * Invariant: all sets return the same bits.
 */
#ifndef KVASIR_VECTOR_INT_H
#define KVASIR_VECTOR_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Vectors of n f32, at any address. */
typedef struct vector_kernel {
    const char *name;
    float (*inner)(const char *x, const char *y, size_t n); /* sum of x[i] * y[i] */
    float (*apart)(const char *x, const char *y, size_t n); /* sum of (x[i] - y[i])² */
    /* *xy: as inner; *xx: sum of x[i]² */
    void (*angle)(const char *x, const char *y, size_t n, float *xy, float *xx);
    int64_t (*codes)(const int8_t *x, const int16_t *y, size_t n); /* sum of x[i] * y[i] */
} vector_kernel;

enum { VECTOR_KERNELS = 2 };
/* Lists the kernels that run on this machine, the widest first; returns their number, at least 1. */
int vector_kernels(const vector_kernel *out[VECTOR_KERNELS]);

#endif
