/*
 * cuda_gemm_int.h - matrix products through cuBLASLt whose bits do not depend on the batch.
 *
 *   out [rows, N]  = A [rows, K] bf16 × W [N, K]ᵀ bf16 (+ out, where the plan adds), sums in f32
 *
 * A plan is one (N, K, cuda_gemm_out). "Height" is the number of rows of A. A reference algorithm
 * defines the bits of a plan. The algorithms that the library proposes for tall products are tried
 * first, then those for lower products. The reference is the first one that meets these conditions:
 *
 *   1. it uses no split K and no reduction
 *   2. a row of random data gets the same bits from it at every tested height and row offset
 *   3. in each range of heights, some algorithm gives these same bits
 *
 * Each range then uses the fastest algorithm with the reference bits, so timing affects only speed,
 * never results. The library is loaded at run time: the program also starts on hosts without it.
 * Not for concurrent use.
 */
#ifndef KVASIR_CUDA_GEMM_INT_H
#define KVASIR_CUDA_GEMM_INT_H

#include <cuda_runtime_api.h>

#include "storage/base.h"

enum {
    CUDA_GEMM_PLANS = 16, /* maximum number of plans */
    CUDA_GEMM_ROWS = 16   /* heights are rounded up to a multiple of this */
};

typedef struct cuda_gemm cuda_gemm;

/* How a product writes its f32 sums: rounded to bf16, stored as f32, or added to f32 values in
 * `out`. Part of a plan's identity, since the library may choose a different kernel for each. */
typedef enum cuda_gemm_out { CUDA_GEMM_BF16, CUDA_GEMM_F32, CUDA_GEMM_ADDS } cuda_gemm_out;

int cuda_gemm_new(cuda_gemm **out, err *e);
void cuda_gemm_free(cuda_gemm *g); /* `g` may be NULL */
/* Returns the number of the plan for this shape; declares the plan if it is new. Products with the
 * plan have at most `rows` rows. Returns -1 and sets *e if there are too many plans. */
int cuda_gemm_declare(cuda_gemm *g, int n, int k, cuda_gemm_out out, int rows, err *e);
/* Chooses every plan's algorithms, testing them on up to `rows` rows, and mixes each plan's
 * reference output into `digest`. Returns ERR_UNSUPPORTED if a plan has no algorithm with stable
 * bits. */
int cuda_gemm_probe(cuda_gemm *g, cudaStream_t stream, int rows, hash128 *digest, err *e);
/* Returns the size in bytes of the workspace that cuda_gemm_run needs. The workspace is device
 * memory, aligned to 256 bytes. */
size_t cuda_gemm_workspace(void);
/* Enqueues a product. The row count is rounded up to a multiple of CUDA_GEMM_ROWS: `a` must be
 * readable and `out` writable for the rounded count. Two streams must not share a workspace. */
int cuda_gemm_run(cuda_gemm *g, int plan, const void *w, const void *a, int rows, void *out,
                  void *workspace, cudaStream_t stream, err *e);
/* Appends one line for the log: cuBLASLt's version and, per plan, the number of height ranges whose
 * algorithm differs from the reference. */
void cuda_gemm_describe(const cuda_gemm *g, buf *out);

/* Returns 0 for cudaSuccess. Otherwise sets *e to an error that names the operation `what`:
 * ERR_FULL if memory is short, ERR_INTERNAL for all other causes. Also clears CUDA's last error,
 * which the next launch would report again. */
int cuda_check(cudaError_t status, const char *what, err *e);

#endif
