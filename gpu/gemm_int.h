/*
 * gemm_int.h - matrix products through oneDNN whose bits do not depend on the batch (ENGINE 1).
 *
 * A weight [N, K] is cut into parts of columns, each packed once; a task is one tile of rows × one
 * part:
 *
 *   A [height, K] row-major, f32 or bf16  ×  part [K, n]  ->  C [height, n] f32, dense, in the
 * worker's buffer
 *
 * A tile's height is one of gemm_heights: those whose results agree bit for bit in the probe at
 * load; rows beyond the batch are read but mean nothing. Primitives run on one thread each, with a
 * scratchpad of the worker's own (the library's default one is shared between threads: silently
 * wrong numbers).
 */
#ifndef KVASIR_GEMM_INT_H
#define KVASIR_GEMM_INT_H

#include "pool_int.h"

enum { GEMM_TILE = 64, GEMM_SMALL = 16 }; /* heights tried first */

typedef struct gemm gemm;

typedef struct gemm_part {
    int first, n; /* columns */
    int shape;    /* of the gemm's table */
    void *memory; /* oneDNN's handle on the packed bytes */
} gemm_part;

typedef struct gemm_weight {
    int k, n, nparts;
    gemm_part *parts;
} gemm_weight;

/* Fills out[k] with row `row` of the weight, in the order the forward pass wants it. Thread-safe.
 */
typedef void (*gemm_row)(const void *ctx, int row, float *out);

int gemm_new(pool *threads, bool bf16, gemm **out, err *e);
void gemm_free(gemm *g);
bool gemm_is_bf16(const gemm *g);
size_t gemm_element(const gemm *g); /* bytes of an element of A */
/* Declares a weight cut into parts of `part` columns (the last may be smaller); packs nothing yet.
 */
int gemm_declare(gemm *g, int n, int k, int part, gemm_weight *out, err *e);
/* What the outcome of gemm_probe hangs on, as far as it can be known without running it: library,
 * its settings, precision and declared shapes. */
hash128 gemm_identity(const gemm *g);
/* Finds the heights that agree on all declared shapes; `digest` covers the probe's bits. */
int gemm_probe(gemm *g, hash128 *digest, err *e);
/* Dequantises and packs one part; a task of the load. */
int gemm_pack(gemm *g, gemm_weight *w, int part, gemm_row row, const void *ctx, err *e);
void gemm_weight_free(gemm_weight *w);
size_t gemm_bytes(const gemm *g); /* packed so far */
/* The height for a tile of `rows` rows (<= gemm_tile). */
int gemm_height(const gemm *g, int rows);
int gemm_tile(const gemm *g); /* the largest height */
/* C of one tile × one part, valid until the worker's next
 * call. a: [height, k], readable to its full height. */
const float *gemm_run(gemm *g, const gemm_weight *w, int part, int worker, int height,
                      const void *a);
const char *gemm_implementation(const gemm *g);
/* FLOP/s of one thread on a [64, k] × [k, n] product, measured now; 0 when the library cannot. */
double gemm_measure(bool bf16, int k, int n);

#endif
