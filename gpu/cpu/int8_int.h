/*
 * int8_int.h - products of weights in bytes, a table per instruction set (int8_impl.h).
 *
 * Both sides lie in groups of 32 along K (Q8_0 and Q4_1 of ggml are of this kind):
 *
 *   weight   low + step * byte, 0 <= byte <= levels, 255 or 31: with 255, what files hold in groups
 *            of 32 with at most 8 bits is exact (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K), the
 *            rest is rounded; steps are floats of 22 bits, and values further apart than
 *            FLT_MAX / 2^23.6 count as not finite
 *   operand  scale * digit, -127 <= digit <= 127, in one plane ("W8A8"), or in two
 *            scale * (256 * first + second) ("W8A16")
 *
 *   operand row [K/32]:      { int8 digits[planes][32]; float scale, sum }       40 or 72 bytes
 *   panel of 32 columns
 *   [K/32], 64-byte aligned: { float step[32], low[32]; uint8 bytes[8][32][4] }     1,280 bytes
 *
 * where sum is what the group's values sum up to. A product is the sum over groups, in order, of
 * scale * step * (digits . bytes) + sum * low; the inner one is exact in 32-bit integers. So a
 * result depends on its row and column alone, and needs no probe.
 */
#ifndef KVASIR_INT8_INT_H
#define KVASIR_INT8_INT_H

#include <stdbool.h>
#include <stddef.h>

enum {
    INT8_GROUP = 32,
    INT8_COLUMNS = 32,
    INT8_ALIGN = 64,
    INT8_PANEL_GROUP = (2 * 4 + INT8_GROUP) * INT8_COLUMNS, /* bytes */
    INT8_OPERAND_GROUP = 2 * INT8_GROUP + 8                 /* of two planes */
};

/* Bytes of k values of a row; k is a multiple of INT8_GROUP here and below. */
static inline size_t int8_operand_bytes(int planes, int k) {
    return (size_t)(k / INT8_GROUP) * (size_t)(planes * INT8_GROUP + 8);
}

/* Bytes of a weight [n, k]; columns are padded. */
static inline size_t int8_weight_bytes(int n, int k) {
    return (size_t)((n + INT8_COLUMNS - 1) / INT8_COLUMNS) * (size_t)(k / INT8_GROUP) *
           INT8_PANEL_GROUP;
}

typedef struct int8_kernels {
    const char *name;
    /* The most steps that a group of weights is cut into, 255 or 31. With 31 what is exact is
     * groups of 32 of at most 5 bits: Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K. */
    int levels;
    bool planes_gain; /* two planes are faster than products of f32 on the same machines */
    /* rows [n, k] f32 -> panels */
    void (*pack)(const float *rows, int n, int k, void *panels);
    /* x[k] -> one row of an operand, or a part of one; infinite and NaN values give NaN products */
    void (*store)(const float *x, int k, int planes, void *out);
    /* c [rows, n] = a [rows, k] × panels */
    void (*product)(const void *a, int rows, int planes, const void *panels, int n, int k,
                    float *c);
} int8_kernels;

enum { INT8_TABLES = 3 };
/* All that this machine can run, as far as ONEDNN_MAX_CPU_ISA lets it, the best last (kernels.c):
 * into out[INT8_TABLES]; returns how many. */
int int8_available(const int8_kernels **out);
const int8_kernels *int8_choose(void); /* the best; NULL: no AVX2 */

#if defined(__x86_64__)
extern const int8_kernels int8_avx2, int8_avxvnni, int8_vnni;
#endif

#endif
