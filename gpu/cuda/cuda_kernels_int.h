/*
 * cuda_kernels_int.h - this project's own CUDA kernels as C functions that enqueue them.
 *
 * Each function enqueues its kernel on `stream` and returns the status of the launch. Pointers are
 * device memory unless a comment says otherwise; bf16 values are stored as uint16_t. Matrices are
 * row-major; n, d and widths are multiples of 8.
 *
 * Invariant: the result for a row or query depends on that row or query alone, so bits do not
 * depend on the batch. For this, the kernels are compiled with -fmad=false, sum in a fixed order
 * and use no floating-point atomics.
 *
 *   KV pool   per block and layer: [kv_heads][2: keys, values][32][d] bf16, keys after rope
 */
#ifndef KVASIR_CUDA_KERNELS_INT_H
#define KVASIR_CUDA_KERNELS_INT_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "attend_plan_int.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x[r] = table[tokens[r]] * scale; x [rows, n] f32, table [vocab, n] bf16 */
cudaError_t k_embed(const int32_t *tokens, const uint16_t *table, float scale, int n, int rows,
                    float *x, cudaStream_t stream);
/* Fills angles[rows, 2 * half]: in each row, `half` cosines and then `half` sines of the angles
 * positions[r] * frequencies[i], all multiplied by magnitude. */
cudaError_t k_angles(const int32_t *positions, const float *frequencies, int half, float magnitude,
                     int rows, float *angles, cudaStream_t stream);

/* Arguments of the RMS norm between two products. With a branch, first
 * x += norm(branch) * branch_weight. Then out = bf16(norm(x) * weight). With `in_place`, x is set
 * to the same values in f32. */
typedef struct norm_args {
    float *x;                   /* [rows, n] */
    const float *branch;        /* [rows, n]; NULL: no branch */
    const float *branch_weight; /* [n]; NULL: no branch */
    const float *weight;        /* [n] */
    float eps;
    int n, rows;
    bool in_place;
    uint16_t *out; /* [rows, n] */
} norm_args;
cudaError_t k_norm(const norm_args *args, cudaStream_t stream);

typedef enum rope_kind { ROPE_KIND_NONE, ROPE_KIND_NEIGHBOURS, ROPE_KIND_HALVES } rope_kind;

/* Applies bias, head norm and rope to the fused product q|k|v; stores q in its buffer, k and v in
 * the KV pool. */
typedef struct qkv_args {
    const float *qkv;                    /* [rows, (heads + 2 kv_heads) * d] */
    const float *bias, *q_norm, *k_norm; /* NULL: the model has none */
    const float *angles;                 /* [rows, rope_dims], from k_angles */
    const int32_t *slots; /* [rows]: slot * 32 + position in the slot; -1: k and v are not stored */
    uint16_t *q;          /* [rows, heads * d] */
    uint16_t *kv;         /* the pool, offset to this layer */
    size_t block_elements; /* number of bf16 values from one block to the next */
    rope_kind rope;
    float eps;
    int rows, heads, kv_heads, d, rope_dims;
} qkv_args;
cudaError_t k_qkv(const qkv_args *args, cudaStream_t stream);

/* Runs `count` copies for one layer concurrently: no copy may read or write what another copy
 * writes. */
cudaError_t k_copy(const slot_copy *copies, int count, uint16_t *kv, size_t block_elements,
                   int kv_heads, int d, cudaStream_t stream);

/* Arguments of attention for tasks of one level and width (attend_plan_int.h). A score is
 * q·k * scale, soft-capped if cap > 0. A window > 0 limits each query to the last `window`
 * positions, which include its own. */
typedef struct attend_args {
    const uint16_t *q;     /* [rows, heads * d] */
    const uint16_t *kv;    /* the pool, offset to this layer */
    size_t block_elements; /* number of bf16 values from one block to the next */
    const attend_task *tasks;
    int count; /* number of tasks, padding included */
    bool wide; /* true: up to ATTEND_WIDE queries per task; false: up to ATTEND_NARROW */
    const int32_t *blocks;    /* block ids, indexed by attend_task.blocks_at */
    const int32_t *positions; /* [rows] */
    const int32_t *states;    /* [rows]: number of the state of the row's chunk 0, or -1 */
    uint16_t *out;            /* [rows, heads * d] */
    float *state_out;         /* [states, heads, d]: weighted sums of values */
    float *state_norm;        /* [states, heads, 2]: largest score, sum of weights */
    int heads, kv_heads, d, window;
    float scale, cap;
} attend_args;
bool k_attend_fits(int d); /* true if there is a kernel for head dimension d */
/* Raises the kernels' limit of shared memory. Call once per process and device, before k_attend. */
cudaError_t k_attend_prepare(int d);
cudaError_t k_attend(const attend_args *args, cudaStream_t stream);

/* Merges the states of rows with several chunks, in order, into out[row, heads * d]. */
cudaError_t k_merge(const attend_merge *merges, int count, const float *state_out,
                    const float *state_norm, int heads, int d, uint16_t *out, cudaStream_t stream);

/* h[rows, ffn] = act(gate) * up; gate_up [rows, 2 ffn]: in each row, gate and then up */
cudaError_t k_activate(const uint16_t *gate_up, int ffn, bool gelu, int rows, uint16_t *h,
                       cudaStream_t stream);
cudaError_t k_bias(float *x, const float *bias, int n, int rows,
                   cudaStream_t stream); /* x[r] += bias */
/* Copies rows of `bytes` bytes, a multiple of 16: to[i] = from[index[i]] */
cudaError_t k_gather(const void *from, const int32_t *index, size_t bytes, int rows, void *to,
                     cudaStream_t stream);

/* out[i] = x[items[i].row] · head[items[i].id], soft-capped if cap > 0 */
cudaError_t k_head_ids(const head_item *items, int count, const float *x, const uint16_t *head,
                       int n, float cap, float *out, cudaStream_t stream);
cudaError_t k_soft_cap(float *x, size_t count, float cap, cudaStream_t stream);
/* Finds the `k` largest values of each row of logits[rows, vocab], and their ids. They are in
 * descending order of value; equal values are in ascending order of id. */
cudaError_t k_top(const float *logits, int vocab, int rows, int k, float *values, int32_t *ids,
                  cudaStream_t stream);

/* Input of a random draw: the likeliest tokens and the total weight of the vocabulary
 * (sample_weight_int.h). */
enum { DRAWN_MOST = 64 };
typedef struct drawn {
    uint64_t total;           /* sum of all tokens' weights */
    float values[DRAWN_MOST]; /* [k]: the largest logits */
    int32_t ids[DRAWN_MOST];  /* [k]: their tokens */
} drawn;
/* Finds the `k` largest values of each row of logits[rows, vocab], in k_top's order, and the total
 * weight of the row's tokens at temperatures[row]. Returns cudaErrorInvalidValue unless 1 <= k <=
 * min(DRAWN_MOST, vocab). */
cudaError_t k_draw(const float *logits, int vocab, int rows, int k, const float *temperatures,
                   drawn *out, cudaStream_t stream);

/* For probes and benchmarks: sets x[i] to a uniform value in [-scale/2, scale/2) that depends only
 * on i and seed. */
cudaError_t k_random(uint16_t *x, size_t count, uint64_t seed, float scale, cudaStream_t stream);
/* *differing += number of i < count with a[i] != b[i] */
cudaError_t k_differ(const uint16_t *a, const uint16_t *b, size_t count, unsigned *differing,
                     cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
