/*
 * gemm_int.h - matrix products whose bits do not depend on the batch (ENGINE 1): oneDNN's in f32
 * or bf16, and our own of weights in bytes (int8_int.h).
 *
 * A weight [N, K] is cut into parts of columns, each packed once; a task is one tile of rows × one
 * part:
 *
 *   A [rows, K] row-major, of the weight's type  ×  part [K, n]  ->  C [rows, n] f32, dense, in
 * the worker's buffer
 *
 * oneDNN's tiles have one of a few heights: those whose results agree bit for bit in the probe at
 * load; rows beyond the batch are read but mean nothing. Primitives run on one thread each, with a
 * scratchpad of the worker's own (the library's default one is shared between threads: silently
 * wrong numbers).
 */
#ifndef KVASIR_GEMM_INT_H
#define KVASIR_GEMM_INT_H

#include "model/pool_int.h"

enum { GEMM_TILE = 64, GEMM_SMALL = 16 }; /* heights tried first */

typedef struct gemm gemm;

/* How a weight is kept and what its products read as A: the wide types are oneDNN's, one of them
 * for a gemm; INT8 and INT8X2 are weights in bytes, with A in one plane of bytes or in two. */
typedef enum gemm_type { GEMM_F32, GEMM_BF16, GEMM_INT8, GEMM_INT8X2, GEMM_TYPES } gemm_type;

typedef struct gemm_part {
    int first, n; /* columns */
    int shape;    /* of the gemm's table; wide types alone */
    void *memory; /* oneDNN's handle on the packed bytes, or int8's panels */
} gemm_part;

typedef struct gemm_weight {
    gemm_type type;
    int k, n, nparts;
    gemm_part *parts;
} gemm_weight;

/* Fills out[k] with row `row` of the weight, in the order the forward pass wants it. Thread-safe.
 */
typedef void (*gemm_row)(const void *ctx, int row, float *out);

/* `wide`: GEMM_F32 or GEMM_BF16. */
int gemm_new(pool *threads, gemm_type wide, gemm **out, err *e);
void gemm_free(gemm *g);
/* Weights in bytes: k and first columns are to be multiples of INT8_GROUP. */
static inline bool gemm_in_bytes(gemm_type type) {
    return type == GEMM_INT8 || type == GEMM_INT8X2;
}
static inline int gemm_planes(gemm_type type) {
    return type == GEMM_INT8X2 ? 2 : 1;
}
/* Bytes of k elements of a row of A. */
size_t gemm_row_bytes(gemm_type type, int k);
/* Declares a weight of g's wide type or in bytes, cut into parts
 * of `part` columns (the last may be smaller); packs nothing yet. */
int gemm_declare(gemm *g, gemm_type type, int n, int k, int part, gemm_weight *out, err *e);
/* What the outcome of gemm_probe hangs on, as far as it can be known without running it: library,
 * its settings, precision and declared shapes. */
hash128 gemm_identity(const gemm *g);
/* Finds the heights that agree on all declared shapes; `digest` covers the probe's bits. */
int gemm_probe(gemm *g, hash128 *digest, err *e);
/* Dequantises and packs one part; a task of the load. */
int gemm_pack(gemm *g, gemm_weight *w, int part, gemm_row row, const void *ctx, err *e);
void gemm_weight_free(gemm_weight *w);
size_t gemm_bytes(const gemm *g); /* packed so far */
/* oneDNN's height for a tile of `rows` rows (<= gemm_tile). */
int gemm_height(const gemm *g, int rows);
int gemm_tile(const gemm *g); /* the largest height */
/* C of one tile of `rows` rows (<= gemm_tile) × one part, valid until the
 * worker's next call. a: [rows, k], readable up to gemm_height(g, rows). */
const float *gemm_run(gemm *g, const gemm_weight *w, int part, int worker, int rows, const void *a);
/* FLOP/s of one thread on a [64, k] × [k, n] product, measured now; 0 where there is none. */
double gemm_measure(gemm_type type, int k, int n);

#endif
