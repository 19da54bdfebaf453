/*
 * cuda_kernels_int.h - the CUDA kernels of our own as C functions that enqueue them.
 *
 * Each returns the launch's status and runs later, on `stream`; pointers are device memory unless
 * said otherwise. bf16 values are uint16_t here. Invariant: what a kernel computes for a row or
 * query depends on that row or query alone, operation by operation (compiled with -fmad=false; sums
 * in a fixed order; no atomics on numbers), so bits do not depend on the batch. Shapes are
 * row-major; n, d and widths are multiples of 8.
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

/* x[rows, n] f32 = table[tokens[r]] * scale; table [vocab, n] bf16 */
cudaError_t k_embed(const int32_t *tokens, const uint16_t *table, float scale, int n, int rows,
                    float *x, cudaStream_t stream);
/* angles[rows, 2 * half] = cos, then sin, of positions[r] * frequencies[i], times magnitude */
cudaError_t k_angles(const int32_t *positions, const float *frequencies, int half, float magnitude,
                     int rows, float *angles, cudaStream_t stream);

/* One norm between two products: x += rms(branch) * branch_weight where there is a branch; then
 * out = bf16(rms(x) * weight), and x itself becomes that, in f32, when `in_place`. */
typedef struct norm_args {
    float *x;                            /* [rows, n] */
    const float *branch, *branch_weight; /* [rows, n], [n]; NULL: none */
    const float *weight;                 /* [n] */
    float eps;
    int n, rows;
    bool in_place;
    uint16_t *out; /* [rows, n] */
} norm_args;
cudaError_t k_norm(const norm_args *args, cudaStream_t stream);

typedef enum rope_kind { ROPE_KIND_NONE, ROPE_KIND_NEIGHBOURS, ROPE_KIND_HALVES } rope_kind;

/* Bias, head norm and rope of the fused product; q goes to its buffer, k and v to the pool. */
typedef struct qkv_args {
    const float *qkv;                    /* [rows, (heads + 2 kv_heads) * d] */
    const float *bias, *q_norm, *k_norm; /* NULL: none */
    const float *angles;                 /* [rows, rope_dims] */
    const int32_t *slots;                /* [rows]: block * 32 + slot; -1: no place in the pool */
    uint16_t *q;                         /* [rows, heads * d] */
    uint16_t *kv;                        /* the pool at this layer */
    size_t block_elements;
    rope_kind rope;
    float eps;
    int rows, heads, kv_heads, d, rope_dims;
} qkv_args;
cudaError_t k_qkv(const qkv_args *args, cudaStream_t stream);

/* Copies the first `tokens` slots of block `from` to
 * block `to`, one layer; the copies are independent. */
cudaError_t k_copy(const slot_copy *copies, int count, uint16_t *kv, size_t block_elements,
                   int kv_heads, int d, cudaStream_t stream);

/* Attention over the tasks of one level (attend_plan_int.h).
 * Scores are q·k * scale, soft-capped where cap > 0. */
typedef struct attend_args {
    const uint16_t *q;  /* [rows, heads * d] */
    const uint16_t *kv; /* the pool at this layer */
    size_t block_elements;
    const attend_task *tasks;
    int count;                /* of tasks; those without queries are padding */
    bool wide;                /* tasks of up to ATTEND_WIDE queries, else up to ATTEND_NARROW */
    const int32_t *blocks;    /* lists of block ids that the tasks point into */
    const int32_t *positions; /* [rows] */
    const int32_t *states;    /* [rows]: the state of the row's chunk 0, or -1 */
    uint16_t *out;            /* [rows, heads * d] */
    float *state_out;         /* [states, heads, d] */
    float *state_norm;        /* [states, heads, 2]: top, sum */
    int heads, kv_heads, d, window;
    float scale, cap;
} attend_args;
bool k_attend_fits(int d); /* is there a kernel for heads of d dimensions? */
/* Once per process and device, before k_attend: lets
 * the kernels have the shared memory they need. */
cudaError_t k_attend_prepare(int d);
cudaError_t k_attend(const attend_args *args, cudaStream_t stream);

/* Merges the chunks of rows that have several, in order: out[row, heads * d]. */
cudaError_t k_merge(const attend_merge *merges, int count, const float *state_out,
                    const float *state_norm, int heads, int d, uint16_t *out, cudaStream_t stream);

/* h[rows, ffn] = act(gate) * up; gate_up [rows, gate ffn | up ffn] */
cudaError_t k_activate(const uint16_t *gate_up, int ffn, bool gelu, int rows, uint16_t *h,
                       cudaStream_t stream);
cudaError_t k_bias(float *x, const float *bias, int n, int rows,
                   cudaStream_t stream); /* x[r] += bias */
/* to[i] = from[index[i]], rows of `bytes` bytes (a multiple of 16) */
cudaError_t k_gather(const void *from, const int32_t *index, size_t bytes, int rows, void *to,
                     cudaStream_t stream);

/* out[i] = soft cap of x[items[i].row] · head[items[i].id] */
cudaError_t k_head_ids(const head_item *items, int count, const float *x, const uint16_t *head,
                       int n, float cap, float *out, cudaStream_t stream);
cudaError_t k_soft_cap(float *x, size_t count, float cap, cudaStream_t stream);
/* Per row of logits[rows, vocab]: its `k` largest, largest first, ties to the lower id. */
cudaError_t k_top(const float *logits, int vocab, int rows, int k, float *values, int32_t *ids,
                  cudaStream_t stream);

/* A draw's candidates and what the whole vocabulary weighs (sample_weight_int.h). */
enum { DRAWN_MOST = 64 };
typedef struct drawn {
    uint64_t total;
    float values[DRAWN_MOST];
    int32_t ids[DRAWN_MOST];
} drawn;
/* Per row of logits[rows, vocab]: the `k` <= min(DRAWN_MOST,
 * vocab) largest as k_top has them, and the weight of all. */
cudaError_t k_draw(const float *logits, int vocab, int rows, int k, const float *temperatures,
                   drawn *out, cudaStream_t stream);

/* For probes and benches: x[i] uniform in [-scale/2,
 * scale/2) by i and seed; *count += differing elements. */
cudaError_t k_random(uint16_t *x, size_t count, uint64_t seed, float scale, cudaStream_t stream);
cudaError_t k_differ(const uint16_t *a, const uint16_t *b, size_t count, unsigned *differing,
                     cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
