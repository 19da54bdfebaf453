/*
 * int8_int.h - matrix products of weights in bytes: one table of functions per instruction set,
 * compiled from int8_impl.h (kernels_int.h explains how).
 *
 * Weights and operands (the rows of A) are quantised in groups of 32 along K, like ggml's Q4_1 and
 * Q8_0:
 *
 *   weight   low + step * byte, where 0 <= byte <= levels, and levels is 255 or 31. With 255, file
 *            types with groups of 32 and at most 8 bits are exact (Q4_0, Q4_1, Q5_0, Q5_1, Q8_0,
 *            Q4_K, Q5_K) and all other types are rounded. A step is a float with 22 bits of
 *            mantissa; a group whose range exceeds FLT_MAX / 2^23.6 is treated as not finite
 *   operand  scale * digit, -127 <= digit <= 127, in one plane ("W8A8"), or
 *            scale * (256 * first + second) in two planes ("W8A16")
 *
 *   operand row [K/32]:      { int8 digits[planes][32]; float scale, sum }       40 or 72 bytes
 *   panel of 32 columns
 *   [K/32], 64-byte aligned: { float step[32], low[32]; uint8 bytes[8][32][4] }     1,280 bytes
 *
 * where sum is the sum of the group's values. A product is the sum over groups, in order, of
 * scale * step * (digits · bytes) + sum * low. The inner product (digits · bytes) is exact in
 * 32-bit integers. So a result depends only on its row and column, and these products need no probe
 * (gemm_int.h).
 */
#ifndef KVASIR_INT8_INT_H
#define KVASIR_INT8_INT_H

#include <stdbool.h>
#include <stddef.h>

enum {
    INT8_GROUP = 32,
    INT8_COLUMNS = 32,
    INT8_ALIGN = 64,
    INT8_PANEL_GROUP = (2 * 4 + INT8_GROUP) * INT8_COLUMNS, /* bytes of a group in a panel */
    INT8_OPERAND_GROUP = 2 * INT8_GROUP + 8 /* bytes of a group in an operand row of two planes */
};

/* Returns the size in bytes of k values of an operand row. Here and below k is a multiple of
 * INT8_GROUP. */
static inline size_t int8_operand_bytes(int planes, int k) {
    return (size_t)(k / INT8_GROUP) * (size_t)(planes * INT8_GROUP + 8);
}

/* Returns the size in bytes of a packed weight [n, k], whose columns are padded to whole panels. */
static inline size_t int8_weight_bytes(int n, int k) {
    return (size_t)((n + INT8_COLUMNS - 1) / INT8_COLUMNS) * (size_t)(k / INT8_GROUP) *
           INT8_PANEL_GROUP;
}

typedef struct int8_kernels {
    const char *name;
    /* Steps in a group's range of weights, 255 or 31. With 31 only file types with groups of 32 and
     * at most 5 bits are exact: Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K. */
    int levels;
    /* products with two planes are faster than f32 products on this table's processors */
    bool planes_gain;
    /* Packs rows [n, k] f32 into panels. */
    void (*pack)(const float *rows, int n, int k, void *panels);
    /* Quantises x[k] into an operand row or a part of one. A group with an infinite or NaN value
     * makes products NaN. */
    void (*store)(const float *x, int k, int planes, void *out);
    /* c [rows, n] = a [rows, k] × panels */
    void (*product)(const void *a, int rows, int planes, const void *panels, int n, int k,
                    float *c);
} int8_kernels;

enum { INT8_TABLES = 3 };
/* Lists all tables that the processor and ONEDNN_MAX_CPU_ISA allow in out[INT8_TABLES], the best
 * last. Returns their number. */
int int8_available(const int8_kernels **out);
const int8_kernels *int8_choose(void); /* the best table; NULL: the processor has no AVX2 */

#if defined(__x86_64__)
extern const int8_kernels int8_avx2, int8_avxvnni, int8_vnni;
#endif

#endif
