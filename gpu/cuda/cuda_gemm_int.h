/*
 * cuda_gemm_int.h - matrix products through cuBLASLt whose bits do not depend on the batch (ENGINE
 * 6).
 *
 *   out [rows, N]  = A [rows, K] bf16 × W [N, K]ᵀ bf16 (+ out, where the plan adds) sums in f32
 *
 * A plan is one (N, K, what becomes of the sums). Its bits are those of the library's first choice
 * for tall products that has no split K and no reduction, gives each row the same bits at every
 * height that it takes and at every place of random data, and leaves no height to which no algorithm
 * gives those bits. Among the algorithms that give them, each range of heights gets the one that is
 * measured to be fastest: what is measured decides when a product is done, never what it is. The
 * library is loaded at run time: a build runs on hosts without it. One stream at a time.
 */
#ifndef KVASIR_CUDA_GEMM_INT_H
#define KVASIR_CUDA_GEMM_INT_H

#include <cuda_runtime_api.h>

#include "storage/base.h"

enum { CUDA_GEMM_PLANS = 16, CUDA_GEMM_ROWS = 16 /* buffers' rows are a multiple of it */ };

typedef struct cuda_gemm cuda_gemm;

/* What becomes of the sums. The library may take another kernel where they are added, so that is
 * part of what is tested. */
typedef enum cuda_gemm_out { CUDA_GEMM_BF16, CUDA_GEMM_F32, CUDA_GEMM_ADDS } cuda_gemm_out;

int cuda_gemm_new(cuda_gemm **out, err *e);
void cuda_gemm_free(cuda_gemm *g); /* NULL is fine */
/* A plan for products of up to `rows` rows; the same
 * shape gives the same plan. Its number, or -1 and *e. */
int cuda_gemm_declare(cuda_gemm *g, int n, int k, cuda_gemm_out out, int rows, err *e);
/* Chooses every plan's algorithms, on up to `rows`
 * rows; `digest` covers the bits that they give. */
int cuda_gemm_probe(cuda_gemm *g, cudaStream_t stream, int rows, hash128 *digest, err *e);
/* Bytes of device memory, 256-aligned, that a stream's products may use while they run. */
size_t cuda_gemm_workspace(void);
/* Enqueues; a and out are readable and writable up to rows rounded up to CUDA_GEMM_ROWS. The
 * workspace is the stream's own. */
int cuda_gemm_run(cuda_gemm *g, int plan, const void *w, const void *a, int rows, void *out,
                  void *workspace, cudaStream_t stream, err *e);
/* cuBLASLt's version and, per plan, how many ranges of heights
 * have an algorithm of their own: one line for the log. */
void cuda_gemm_describe(const cuda_gemm *g, buf *out);

/* 0, or an error that names what was done; out of memory is ERR_FULL. What is told here is no
 * longer the thread's last error. */
int cuda_check(cudaError_t status, const char *what, err *e);

#endif
