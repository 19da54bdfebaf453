/*
 * gemm_int.h - matrix products whose bits do not depend on the batch: oneDNN's in f32 or bf16, and
 * our own of weights in bytes (int8_int.h).
 *
 * A weight [N, K] is split into parts of columns, each packed once. A task multiplies one tile of
 * rows by one part:
 *
 *   A [rows, K] row-major, of the weight's type × part [K, n] → C [rows, n] f32
 *
 * C is in the worker's buffer. oneDNN may use another algorithm for another number of rows.
 * Therefore tiles have one of a few heights; smaller tiles are padded with rows whose results are
 * ignored. When the model is loaded, a probe finds heights that give each row the same bits. A
 * primitive runs on a single thread, with a scratchpad per worker: the library's default scratchpad
 * is shared by threads, which gives wrong results.
 */
#ifndef KVASIR_GEMM_INT_H
#define KVASIR_GEMM_INT_H

#include "model/pool_int.h"

enum { GEMM_TILE = 64, GEMM_SMALL = 16 }; /* heights that the probe tries first */

typedef struct gemm gemm;

/* The type of a weight and of the A that it is multiplied with. F32 and BF16 are the wide types,
 * computed by oneDNN; a gemm uses only one of the two. INT8 and INT8X2 are weights in bytes, with A
 * in one plane of bytes or in two planes. */
typedef enum gemm_type { GEMM_F32, GEMM_BF16, GEMM_INT8, GEMM_INT8X2, GEMM_TYPES } gemm_type;

typedef struct gemm_part {
    int first, n; /* rows [first, first + n) of the weight: columns of the product */
    int shape;    /* index into the gemm's shapes; only for the wide types */
    void *memory; /* dnnl_memory_t of the packed weights, or int8 panels */
} gemm_part;

typedef struct gemm_weight {
    gemm_type type;
    int k, n, nparts;
    gemm_part *parts;
} gemm_weight;

/* Fills out[k] with row `row` of the weight [N, K], in the order of weights_int.h. Thread-safe. */
typedef void (*gemm_row)(const void *ctx, int row, float *out);

/* `wide` is GEMM_F32 or GEMM_BF16. If `threads` is NULL, the caller is the only worker. */
int gemm_new(pool *threads, gemm_type wide, gemm **out, err *e);
void gemm_free(gemm *g);
/* True for weights in bytes: k must be a multiple of INT8_GROUP. */
static inline bool gemm_in_bytes(gemm_type type) {
    return type == GEMM_INT8 || type == GEMM_INT8X2;
}
static inline int gemm_planes(gemm_type type) {
    return type == GEMM_INT8X2 ? 2 : 1;
}
/* Returns the size in bytes of k elements of a row of A. */
size_t gemm_row_bytes(gemm_type type, int k);
/* Declares a weight of g's wide type or in bytes, split into parts of `part` columns (the last may
 * be smaller). Packs nothing. */
int gemm_declare(gemm *g, gemm_type type, int n, int k, int part, gemm_weight *out, err *e);
/* Returns a hash of what determines the result of gemm_probe: library version, its settings,
 * precision and declared shapes. */
hash128 gemm_identity(const gemm *g);
/* Finds heights that give each row the same bits for all declared shapes. Sets *digest to the hash
 * of the bits of fixed products. Returns ERR_UNSUPPORTED if there are no such heights. */
int gemm_probe(gemm *g, hash128 *digest, err *e);
/* Reads one part by calling `row`, and packs it. Thread-safe. */
int gemm_pack(gemm *g, gemm_weight *w, int part, gemm_row row, const void *ctx, err *e);
void gemm_weight_free(gemm_weight *w);
size_t gemm_bytes(const gemm *g); /* size of the weights packed so far */
/* Returns the height that a tile of `rows` rows (<= gemm_tile) is padded to. */
int gemm_height(const gemm *g, int rows);
int gemm_tile(const gemm *g); /* the largest height */
/* Multiplies a tile of `rows` rows (<= gemm_tile) by one part. Returns C, which is valid until the
 * worker's next call. a is [rows, k] and readable for gemm_height(g, rows) rows. */
const float *gemm_run(gemm *g, const gemm_weight *w, int part, int worker, int rows, const void *a);
/* Measures a [64, k] × [k, n] product on one thread; returns FLOP/s, or 0 if it is unsupported. */
double gemm_measure(gemm_type type, int k, int n);

#endif
