/*
 * kernels.cu - what stands between the matrix products: embedding, norms, rope and the KV pool, activation, the head.
 *
 * Memory-bound work: one block or warp a row, neighbouring threads on neighbouring columns, stages fused so that a row
 * is read once. Invariant: a row's numbers come from that row alone, in an order fixed by the model's shape (block
 * sizes never follow the batch).
 */
#include "cuda_device.cuh"
#include "cuda_kernels_int.h"

enum { ROW_THREADS = 256, HEAD_WARPS = 4, HEAD_MAX = 512 };

__host__ __device__ static __nv_bfloat16 *as_bf16(uint16_t *p) {
    return reinterpret_cast<__nv_bfloat16 *>(p);
}

static const __nv_bfloat16 *as_bf16(const uint16_t *p) {
    return reinterpret_cast<const __nv_bfloat16 *>(p);
}

static unsigned ceil_div(size_t n, size_t by) {
    return static_cast<unsigned>((n + by - 1) / by);
}

/* ---- rows in ----------------------------------------------------------------------------------- */

__global__ void embed(const int32_t *tokens, const __nv_bfloat16 *table, float scale, int n,
                      float *x) {
    size_t row = blockIdx.x;
    const __nv_bfloat16 *from = table + static_cast<size_t>(tokens[row]) * n;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        x[row * n + i] = __bfloat162float(from[i]) * scale;
    }
}

cudaError_t k_embed(const int32_t *tokens, const uint16_t *table, float scale, int n, int rows,
                    float *x, cudaStream_t stream) {
    embed<<<rows, ROW_THREADS, 0, stream>>>(tokens, as_bf16(table), scale, n, x);
    return cudaGetLastError();
}

/* In double, as the CPU does: far positions turn by thousands of radians. */
__global__ void angles(const int32_t *positions, const float *frequencies, int half,
                       float magnitude, size_t count, float *out) {
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= count) {
        return;
    }
    size_t row = at / half, i = at % half;
    double sine, cosine;
    sincos(static_cast<double>(positions[row]) * static_cast<double>(frequencies[i]), &sine,
           &cosine);
    out[row * 2 * half + i] = static_cast<float>(cosine) * magnitude;
    out[row * 2 * half + half + i] = static_cast<float>(sine) * magnitude;
}

cudaError_t k_angles(const int32_t *positions, const float *frequencies, int half, float magnitude,
                     int rows, float *out, cudaStream_t stream) {
    size_t count = static_cast<size_t>(rows) * half;
    angles<<<ceil_div(count, ROW_THREADS), ROW_THREADS, 0, stream>>>(positions, frequencies, half,
                                                                     magnitude, count, out);
    return cudaGetLastError();
}

/* ---- norms ------------------------------------------------------------------------------------- */

/* 1 / rms of this block's row; thread t adds columns t, t + threads, … */
__device__ float row_scale(const float *x, int n, float eps, float *sums) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        sum = fmaf(x[i], x[i], sum);
    }
    return 1.0f / sqrtf(block_sum(sum, sums) / n + eps);
}

__global__ void norm(norm_args a) {
    __shared__ float sums[ROW_THREADS / 32];
    size_t at = static_cast<size_t>(blockIdx.x) * a.n;
    float *x = a.x + at;
    if (a.branch != nullptr) {
        const float *branch = a.branch + at;
        float scale = row_scale(branch, a.n, a.eps, sums);
        for (int i = threadIdx.x; i < a.n;
             i += blockDim.x) { /* each thread reads back only what it wrote */
            x[i] += branch[i] * scale * a.branch_weight[i];
        }
    }
    float scale = row_scale(x, a.n, a.eps, sums);
    for (int i = threadIdx.x; i < a.n; i += blockDim.x) {
        float value = x[i] * scale * a.weight[i];
        as_bf16(a.out)[at + i] = __float2bfloat16_rn(value);
        if (a.in_place) {
            x[i] = value;
        }
    }
}

cudaError_t k_norm(const norm_args *args, cudaStream_t stream) {
    norm<<<args->rows, ROW_THREADS, 0, stream>>>(*args);
    return cudaGetLastError();
}

/* ---- q, k, v ----------------------------------------------------------------------------------- */

/* A warp: one head of one row, in shared memory between the steps. */
__global__ void qkv_finish(qkv_args a) {
    __shared__ float heads[HEAD_WARPS][HEAD_MAX];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, all = a.heads + 2 * a.kv_heads;
    size_t task = static_cast<size_t>(blockIdx.x) * HEAD_WARPS + warp;
    if (task >= static_cast<size_t>(a.rows) * all) {
        return; /* a whole warp: no barrier of the block follows */
    }
    size_t row = task / all;
    int head = static_cast<int>(task % all);
    bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
    float *x = heads[warp];
    const float *from = a.qkv + (row * all + head) * a.d;
    const float *weight = is_v ? nullptr : is_q ? a.q_norm : a.k_norm;
    float sum = 0;
    for (int i = lane; i < a.d; i += 32) {
        x[i] = from[i] + (a.bias != nullptr ? a.bias[head * a.d + i] : 0.0f);
        sum = fmaf(x[i], x[i], sum);
    }
    if (weight != nullptr) {
        float scale = 1.0f / sqrtf(warp_sum(sum) / a.d + a.eps);
        for (int i = lane; i < a.d; i += 32) {
            x[i] = x[i] * scale * weight[i];
        }
    }
    __syncwarp();
    __nv_bfloat16 *to;
    if (is_q) {
        to = as_bf16(a.q) + (row * a.heads + head) * a.d;
    } else {
        int32_t slot = a.slots[row];
        if (slot < 0) {
            return;
        }
        size_t kv_head = static_cast<size_t>(head - a.heads - (is_v ? a.kv_heads : 0));
        to = as_bf16(a.kv) + static_cast<size_t>(slot / PLAN_BLOCK) * a.block_elements +
             ((kv_head * 2 + (is_v ? 1 : 0)) * PLAN_BLOCK + slot % PLAN_BLOCK) * a.d;
    }
    int turned = is_v || a.rope == ROPE_KIND_NONE ? 0 : a.rope_dims, half = a.rope_dims / 2;
    const float *cosines = a.angles + row * a.rope_dims, *sines = cosines + half;
    for (int i = lane; i < a.d; i += 32) {
        float value = x[i];
        if (i < turned && a.rope == ROPE_KIND_HALVES) {
            int pair = i < half ? i : i - half;
            value = i < half ? x[i] * cosines[pair] - x[i + half] * sines[pair]
                             : x[i] * cosines[pair] + x[i - half] * sines[pair];
        } else if (i < turned) {
            int pair = i / 2;
            value = i % 2 == 0 ? x[i] * cosines[pair] - x[i + 1] * sines[pair]
                               : x[i] * cosines[pair] + x[i - 1] * sines[pair];
        }
        to[i] = __float2bfloat16_rn(value);
    }
}

cudaError_t k_qkv(const qkv_args *args, cudaStream_t stream) {
    if (args->d > HEAD_MAX) {
        return cudaErrorInvalidValue;
    }
    size_t tasks = static_cast<size_t>(args->rows) * (args->heads + 2 * args->kv_heads);
    qkv_finish<<<ceil_div(tasks, HEAD_WARPS), HEAD_WARPS * 32, 0, stream>>>(*args);
    return cudaGetLastError();
}

/* A block: keys or values of one copy and kv head; the first `tokens` slots are one run of bytes. */
__global__ void copy_slots(const plan_copy *copies, uint16_t *kv, size_t block_elements, int d) {
    plan_copy c = copies[blockIdx.x];
    size_t part = static_cast<size_t>(blockIdx.y) * PLAN_BLOCK * d;
    const uint4 *from =
        reinterpret_cast<const uint4 *>(kv + static_cast<size_t>(c.from) * block_elements + part);
    uint4 *to = reinterpret_cast<uint4 *>(kv + static_cast<size_t>(c.to) * block_elements + part);
    for (int i = threadIdx.x; i < c.tokens * d / 8; i += blockDim.x) {
        to[i] = from[i];
    }
}

cudaError_t k_copy(const plan_copy *copies, int count, uint16_t *kv, size_t block_elements,
                   int kv_heads, int d, cudaStream_t stream) {
    if (count == 0) {
        return cudaSuccess;
    }
    dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(2 * kv_heads));
    copy_slots<<<grid, 128, 0, stream>>>(copies, kv, block_elements, d);
    return cudaGetLastError();
}

/* ---- feed forward, bias, gathering ------------------------------------------------------------- */

__device__ float silu(float x) {
    return x / (1.0f + expf(-x));
}

__device__ float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * x * fmaf(0.044715f * x, x, 1.0f)));
}

/* Two neighbouring columns a thread. */
__global__ void activate(const __nv_bfloat162 *gate_up, int half_ffn, bool gelu, size_t count,
                         __nv_bfloat162 *h) {
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= count) {
        return;
    }
    size_t row = at / half_ffn, i = at % half_ffn;
    float2 gate = __bfloat1622float2(gate_up[row * 2 * half_ffn + i]);
    float2 up = __bfloat1622float2(gate_up[row * 2 * half_ffn + half_ffn + i]);
    float a = gelu ? gelu_tanh(gate.x) : silu(gate.x), b = gelu ? gelu_tanh(gate.y) : silu(gate.y);
    h[at] = __floats2bfloat162_rn(a * up.x, b * up.y);
}

cudaError_t k_activate(const uint16_t *gate_up, int ffn, bool gelu, int rows, uint16_t *h,
                       cudaStream_t stream) {
    size_t count = static_cast<size_t>(rows) * (ffn / 2);
    activate<<<ceil_div(count, ROW_THREADS), ROW_THREADS, 0, stream>>>(
        reinterpret_cast<const __nv_bfloat162 *>(gate_up), ffn / 2, gelu, count,
        reinterpret_cast<__nv_bfloat162 *>(h));
    return cudaGetLastError();
}

__global__ void bias_add(float *x, const float *bias, int n) {
    size_t row = blockIdx.x;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        x[row * n + i] += bias[i];
    }
}

cudaError_t k_bias(float *x, const float *bias, int n, int rows, cudaStream_t stream) {
    bias_add<<<rows, ROW_THREADS, 0, stream>>>(x, bias, n);
    return cudaGetLastError();
}

__global__ void gather(const uint4 *from, const int32_t *index, size_t pieces, uint4 *to) {
    const uint4 *source = from + static_cast<size_t>(index[blockIdx.x]) * pieces;
    for (size_t i = threadIdx.x; i < pieces; i += blockDim.x) {
        to[blockIdx.x * pieces + i] = source[i];
    }
}

cudaError_t k_gather(const void *from, const int32_t *index, size_t bytes, int rows, void *to,
                     cudaStream_t stream) {
    gather<<<rows, 128, 0, stream>>>(static_cast<const uint4 *>(from), index, bytes / sizeof(uint4),
                                     static_cast<uint4 *>(to));
    return cudaGetLastError();
}

/* ---- the head ---------------------------------------------------------------------------------- */

__device__ float capped(float x, float cap) {
    return cap > 0 ? cap * tanhf(x / cap) : x;
}

/* A warp: one allowed token of one row. */
__global__ void head_ids(const plan_item *items, int count, const float *x,
                         const __nv_bfloat16 *head, int n, float cap, float *out) {
    int item = static_cast<int>(blockIdx.x) * HEAD_WARPS + static_cast<int>(threadIdx.x / 32),
        lane = threadIdx.x % 32;
    if (item >= count) {
        return;
    }
    const float *row = x + static_cast<size_t>(items[item].row) * n;
    const __nv_bfloat16 *weight = head + static_cast<size_t>(items[item].id) * n;
    float sum = 0;
    for (int i = lane; i < n; i += 32) {
        sum = fmaf(row[i], __bfloat162float(weight[i]), sum);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        out[item] = capped(sum, cap);
    }
}

cudaError_t k_head_ids(const plan_item *items, int count, const float *x, const uint16_t *head,
                       int n, float cap, float *out, cudaStream_t stream) {
    if (count == 0) {
        return cudaSuccess;
    }
    head_ids<<<ceil_div(static_cast<size_t>(count), HEAD_WARPS), HEAD_WARPS * 32, 0, stream>>>(
        items, count, x, as_bf16(head), n, cap, out);
    return cudaGetLastError();
}

__global__ void soft_cap(float *x, size_t count, float cap) {
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count) {
        x[at] = capped(x[at], cap);
    }
}

cudaError_t k_soft_cap(float *x, size_t count, float cap, cudaStream_t stream) {
    if (cap <= 0) {
        return cudaSuccess;
    }
    soft_cap<<<ceil_div(count, ROW_THREADS), ROW_THREADS, 0, stream>>>(x, count, cap);
    return cudaGetLastError();
}

/* (value, id) in the order of the answer: larger values first, lower ids first among equals. */
struct candidate {
    float value;
    int32_t id;
};

__device__ bool comes_before(candidate a, candidate b) {
    return a.value > b.value || (a.value == b.value && a.id < b.id);
}

__device__ candidate warp_first(candidate best) {
    for (int step = 16; step > 0; step /= 2) {
        candidate other = {__shfl_xor_sync(WARP_ALL, best.value, step),
                           __shfl_xor_sync(WARP_ALL, best.id, step)};
        best = comes_before(other, best) ? other : best;
    }
    return best;
}

/* The first of the row's candidates that come after `last`. */
__device__ candidate row_next(const float *logits, int vocab, candidate last, candidate *warps) {
    candidate best = {-INFINITY, INT32_MAX};
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
        candidate here = {logits[i], i};
        if (comes_before(last, here) && comes_before(here, best)) {
            best = here;
        }
    }
    best = warp_first(best);
    if (threadIdx.x % 32 == 0) {
        warps[threadIdx.x / 32] = best;
    }
    __syncthreads();
    best = warps[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++) {
        best = comes_before(warps[w], best) ? warps[w] : best;
    }
    __syncthreads();
    return best;
}

__global__ void top(const float *logits, int vocab, int k, float *values, int32_t *ids) {
    __shared__ candidate warps[ROW_THREADS / 32];
    size_t row = blockIdx.x;
    const float *x = logits + row * vocab;
    candidate last = {INFINITY, -1};
    for (int i = 0; i < k; i++) {
        last = row_next(x, vocab, last, warps);
        if (threadIdx.x == 0) {
            values[row * k + i] = last.value;
            ids[row * k + i] = last.id;
        }
    }
}

cudaError_t k_top(const float *logits, int vocab, int rows, int k, float *values, int32_t *ids,
                  cudaStream_t stream) {
    top<<<rows, ROW_THREADS, 0, stream>>>(logits, vocab, k, values, ids);
    return cudaGetLastError();
}

/* ---- probes ------------------------------------------------------------------------------------ */

__global__ void random_fill(__nv_bfloat16 *x, size_t count, uint64_t seed, float scale) {
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= count) {
        return;
    }
    uint64_t bits = (seed + at) * 0x9e3779b97f4a7c15u; /* splitmix64 */
    bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    x[at] = __float2bfloat16_rn((static_cast<float>(bits >> 40) * 0x1p-24f - 0.5f) * scale);
}

cudaError_t k_random(uint16_t *x, size_t count, uint64_t seed, float scale, cudaStream_t stream) {
    random_fill<<<ceil_div(count, ROW_THREADS), ROW_THREADS, 0, stream>>>(as_bf16(x), count, seed,
                                                                          scale);
    return cudaGetLastError();
}

__global__ void differ(const uint16_t *a, const uint16_t *b, size_t count, unsigned *differing) {
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count && a[at] != b[at]) {
        atomicAdd(differing, 1u);
    }
}

cudaError_t k_differ(const uint16_t *a, const uint16_t *b, size_t count, unsigned *differing,
                     cudaStream_t stream) {
    differ<<<ceil_div(count, ROW_THREADS), ROW_THREADS, 0, stream>>>(a, b, count, differing);
    return cudaGetLastError();
}
