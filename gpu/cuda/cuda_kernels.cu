/*
 * cuda_kernels.cu - the kernels between the matrix products: embedding, norms, rope, the KV pool,
 * activation, the head and draws; and the kernels that the probes use.
 *
 * Memory bandwidth limits all of these kernels. So a block or warp computes one row, neighbouring
 * threads read neighbouring columns, and steps are fused so that a row is read once. Invariant: a
 * row's result depends on that row alone, and the model's shape fixes the order of its sums: block
 * sizes never depend on the batch.
 */
#include "cuda_device.cuh"
#include "cuda_kernels_int.h"
#include "engine/sample_weight_int.h"

enum {
    ROW_THREADS = 256,
    /* maximum number of threads for rows of up to 4,096 columns; wider rows use up to NORM_MOST */
    NORM_THREADS = 256,
    NORM_MOST = 1024,
    TOP_THREADS = 1024,          /* threads per row of k_top and k_draw */
    TOP_LOADS = 8,               /* number of loads that a thread has in flight */
    DRAW_ROOM = 2 * TOP_THREADS, /* number of candidates that fit in shared memory */
    HEAD_WARPS = 4,              /* warps per block; each computes an attention head or a logit */
    HEAD_PIECE = 64              /* columns in a piece of an attention head, two per lane */
};

__host__ __device__ static __nv_bfloat16 *as_bf16(uint16_t *p) {
    return reinterpret_cast<__nv_bfloat16 *>(p);
}

static const __nv_bfloat16 *as_bf16(const uint16_t *p) {
    return reinterpret_cast<const __nv_bfloat16 *>(p);
}

static unsigned ceil_div(size_t n, size_t by) {
    return static_cast<unsigned>((n + by - 1) / by);
}

/* ---- embedding and angles -------------------------------------------------------------------- */

/* Embeds one row per block; a thread converts two adjacent columns at a time. */
__global__ void embed(const int32_t *tokens, const __nv_bfloat16 *table, float scale, int n,
                      float *x) {
    size_t row = blockIdx.x;
    const __nv_bfloat162 *from =
        reinterpret_cast<const __nv_bfloat162 *>(table + static_cast<size_t>(tokens[row]) * n);
    float2 *to = reinterpret_cast<float2 *>(x + row * n);
    for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
        float2 pair = __bfloat1622float2(from[i]);
        to[i] = make_float2(pair.x * scale, pair.y * scale);
    }
}

cudaError_t k_embed(const int32_t *tokens, const uint16_t *table, float scale, int n, int rows,
                    float *x, cudaStream_t stream) {
    embed<<<rows, ROW_THREADS, 0, stream>>>(tokens, as_bf16(table), scale, n, x);
    return cudaGetLastError();
}

/* Computes angles in double, as on the CPU: at large positions they are thousands of radians, too
 * large for the precision of f32. */
__global__ void angles(const int32_t *positions, const float *frequencies, int half,
                       float magnitude, size_t count, float *out) {
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= count)
        return;
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

/* ---- norms ----------------------------------------------------------------------------------- */

/* Loads four adjacent columns of a row. Thread t holds four columns in each of PIECES pieces: its
 * columns of piece p start at 4 * (t + p * threads). Columns past the end of the row are 0. */
__device__ __forceinline__ float4 columns_load(const float *x, int column, int n) {
    return column < n ? *reinterpret_cast<const float4 *>(x + column) : make_float4(0, 0, 0, 0);
}

/* Returns 1 / rms of this block's row. */
template <int PIECES>
__device__ __forceinline__ float row_scale(const float4 (&x)[PIECES], int n, float eps,
                                           float *sums) {
    float sum = 0;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        sum = fmaf(x[p].x, x[p].x, sum);
        sum = fmaf(x[p].y, x[p].y, sum);
        sum = fmaf(x[p].z, x[p].z, sum);
        sum = fmaf(x[p].w, x[p].w, sum);
    }
    return 1.0f / sqrtf(block_sum(sum, sums) / n + eps);
}

/* Norms one row per block. The row stays in registers between its only load and its only store. */
template <int PIECES>
__global__ void __launch_bounds__(PIECES == 1 ? NORM_THREADS : NORM_MOST) norm(norm_args a) {
    __shared__ float sums[NORM_MOST / 32];
    size_t at = static_cast<size_t>(blockIdx.x) * a.n;
    int first = static_cast<int>(threadIdx.x) * 4, step = static_cast<int>(blockDim.x) * 4;
    float4 x[PIECES];
#pragma unroll
    for (int p = 0; p < PIECES; p++)
        x[p] = columns_load(a.x + at, first + p * step, a.n);
    if (a.branch != nullptr) {
        float4 branch[PIECES];
#pragma unroll
        for (int p = 0; p < PIECES; p++)
            branch[p] = columns_load(a.branch + at, first + p * step, a.n);
        float scale = row_scale(branch, a.n, a.eps, sums);
#pragma unroll
        for (int p = 0; p < PIECES; p++) {
            float4 w = columns_load(a.branch_weight, first + p * step, a.n);
            x[p].x += branch[p].x * scale * w.x;
            x[p].y += branch[p].y * scale * w.y;
            x[p].z += branch[p].z * scale * w.z;
            x[p].w += branch[p].w * scale * w.w;
        }
    }
    float scale = row_scale(x, a.n, a.eps, sums);
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        int column = first + p * step;
        float4 w = columns_load(a.weight, column, a.n);
        float4 out = make_float4(x[p].x * scale * w.x, x[p].y * scale * w.y, x[p].z * scale * w.z,
                                 x[p].w * scale * w.w);
        if (column < a.n) {
            *reinterpret_cast<uint2 *>(a.out + at + column) =
                make_uint2(pack_bf16(out.x, out.y), pack_bf16(out.z, out.w));
            if (a.in_place || a.branch != nullptr)
                *reinterpret_cast<float4 *>(a.x + at + column) = a.in_place ? out : x[p];
        }
    }
}

cudaError_t k_norm(const norm_args *args, cudaStream_t stream) {
    /* narrow rows: one piece per thread; wide rows: four */
    unsigned warps = ceil_div(static_cast<size_t>(args->n), 4 * 32);
    if (warps <= NORM_THREADS / 32) {
        norm<1><<<args->rows, warps * 32, 0, stream>>>(*args);
        return cudaGetLastError();
    }
    warps = ceil_div(warps, 4) > NORM_THREADS / 32 ? ceil_div(warps, 4) : NORM_THREADS / 32;
    if (warps > NORM_MOST / 32)
        return cudaErrorInvalidValue;
    norm<4><<<args->rows, warps * 32, 0, stream>>>(*args);
    return cudaGetLastError();
}

/* ---- q, k, v --------------------------------------------------------------------------------- */

__device__ __forceinline__ float2 pair_load(const float *x, int column, int d) {
    return column < d ? *reinterpret_cast<const float2 *>(x + column) : make_float2(0, 0);
}

/* Applies rope to columns `column` and column + 1 of a head, whose values are `own`. Columns from
 * `turned` on are not rotated. x [d] is the whole head; it is read only if the model pairs column i
 * with column i + rope_dims / 2. */
__device__ __forceinline__ float2 turn(const qkv_args &a, const float *angles, const float *x,
                                       int column, int turned, float2 own) {
    int half = a.rope_dims / 2;
    const float *cosines = angles, *sines = angles + half;
    if (column >= turned)
        return own;
    if (a.rope == ROPE_KIND_NEIGHBOURS) {
        float cosine = cosines[column / 2], sine = sines[column / 2];
        return make_float2(own.x * cosine - own.y * sine, own.y * cosine + own.x * sine);
    }
    float out[2] = {own.x, own.y};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int at = column + i, pair = at < half ? at : at - half;
        float cosine = cosines[pair], sine = sines[pair];
        out[i] = at < half ? out[i] * cosine - x[at + half] * sine
                           : out[i] * cosine + x[at - half] * sine;
    }
    return make_float2(out[0], out[1]);
}

/* Returns where to store a head of a row: q goes to its buffer, k and v go to the KV pool. Returns
 * null for k and v of a padding row, which are not stored. */
__device__ __forceinline__ __nv_bfloat16 *head_place(const qkv_args &a, size_t row, int head,
                                                     bool is_q, bool is_v) {
    if (is_q)
        return as_bf16(a.q) + (row * a.heads + head) * a.d;
    int32_t slot = a.slots[row];
    if (slot < 0)
        return nullptr;
    size_t kv_head = static_cast<size_t>(head - a.heads - (is_v ? a.kv_heads : 0));
    return as_bf16(a.kv) + static_cast<size_t>(slot / ATTEND_BLOCK) * a.block_elements +
           ((kv_head * 2 + (is_v ? 1 : 0)) * ATTEND_BLOCK + slot % ATTEND_BLOCK) * a.d;
}

/* Computes one head of a row per warp. A lane holds two adjacent columns in each of PIECES pieces
 * of HEAD_PIECE columns. All values of the head are loaded before the first one is used. */
template <int PIECES> __global__ void __launch_bounds__(HEAD_WARPS * 32) qkv_finish(qkv_args a) {
    __shared__ float heads[HEAD_WARPS][PIECES * HEAD_PIECE];
    int warp = threadIdx.x / 32, first = threadIdx.x % 32 * 2, all = a.heads + 2 * a.kv_heads;
    int head = static_cast<int>(blockIdx.x) * HEAD_WARPS + warp;
    if (head >= all)
        return; /* the whole warp returns, and there is no block barrier below */
    size_t row = blockIdx.y;
    bool is_q = head < a.heads, is_v = head >= a.heads + a.kv_heads;
    const float *from = a.qkv + (row * all + head) * a.d;
    const float *weight = is_v ? nullptr : is_q ? a.q_norm : a.k_norm;
    float2 x[PIECES];
    float sum = 0;
#pragma unroll
    for (int p = 0; p < PIECES; p++)
        x[p] = pair_load(from, first + p * HEAD_PIECE, a.d);
    __nv_bfloat16 *to = head_place(a, row, head, is_q, is_v);
    if (to == nullptr)
        return;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        if (a.bias != nullptr) {
            float2 bias = pair_load(a.bias + head * a.d, first + p * HEAD_PIECE, a.d);
            x[p] = make_float2(x[p].x + bias.x, x[p].y + bias.y);
        }
        sum = fmaf(x[p].y, x[p].y, fmaf(x[p].x, x[p].x, sum));
    }
    float scale = weight != nullptr ? 1.0f / sqrtf(warp_sum(sum) / a.d + a.eps) : 1.0f;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        int column = first + p * HEAD_PIECE;
        if (weight != nullptr) {
            float2 w = pair_load(weight, column, a.d);
            x[p] = make_float2(x[p].x * scale * w.x, x[p].y * scale * w.y);
        }
        *reinterpret_cast<float2 *>(&heads[warp][column]) = x[p];
    }
    __syncwarp();
    int turned = is_v || a.rope == ROPE_KIND_NONE ? 0 : a.rope_dims;
#pragma unroll
    for (int p = 0; p < PIECES; p++) {
        int column = first + p * HEAD_PIECE;
        if (column >= a.d)
            break;
        float2 out = turn(a, a.angles + row * a.rope_dims, heads[warp], column, turned, x[p]);
        *reinterpret_cast<uint32_t *>(to + column) = pack_bf16(out.x, out.y);
    }
}

cudaError_t k_qkv(const qkv_args *args, cudaStream_t stream) {
    unsigned pieces = ceil_div(static_cast<size_t>(args->d), HEAD_PIECE);
    dim3 grid(ceil_div(static_cast<size_t>(args->heads + 2 * args->kv_heads), HEAD_WARPS),
              static_cast<unsigned>(args->rows));
    if (pieces == 1)
        qkv_finish<1><<<grid, HEAD_WARPS * 32, 0, stream>>>(*args);
    else if (pieces == 2)
        qkv_finish<2><<<grid, HEAD_WARPS * 32, 0, stream>>>(*args);
    else if (pieces <= 4)
        qkv_finish<4><<<grid, HEAD_WARPS * 32, 0, stream>>>(*args);
    else
        return cudaErrorInvalidValue;
    return cudaGetLastError();
}

/* Copies the keys or the values of one kv head per thread block. The positions to copy are
 * contiguous. */
__global__ void copy_slots(const slot_copy *copies, uint16_t *kv, size_t block_elements, int d) {
    slot_copy c = copies[blockIdx.x];
    size_t part = static_cast<size_t>(blockIdx.y) * ATTEND_BLOCK * d;
    const uint4 *from =
        reinterpret_cast<const uint4 *>(kv + static_cast<size_t>(c.from) * block_elements + part);
    uint4 *to = reinterpret_cast<uint4 *>(kv + static_cast<size_t>(c.to) * block_elements + part);
    for (int i = threadIdx.x; i < c.tokens * d / 8; i += blockDim.x)
        to[i] = from[i];
}

cudaError_t k_copy(const slot_copy *copies, int count, uint16_t *kv, size_t block_elements,
                   int kv_heads, int d, cudaStream_t stream) {
    if (count == 0)
        return cudaSuccess;
    dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(2 * kv_heads));
    copy_slots<<<grid, 128, 0, stream>>>(copies, kv, block_elements, d);
    return cudaGetLastError();
}

/* ---- activation, bias, gathering ------------------------------------------------------------- */

__device__ float silu(float x) {
    return x / (1.0f + expf(-x));
}

__device__ float gelu_tanh(float x) {
    return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * x * fmaf(0.044715f * x, x, 1.0f)));
}

__device__ __forceinline__ uint32_t activate_pair(uint32_t gate, uint32_t up, bool gelu) {
    __nv_bfloat162 g2, u2;
    memcpy(&g2, &gate, sizeof g2);
    memcpy(&u2, &up, sizeof u2);
    float2 g = __bfloat1622float2(g2), u = __bfloat1622float2(u2);
    float a = gelu ? gelu_tanh(g.x) : silu(g.x), b = gelu ? gelu_tanh(g.y) : silu(g.y);
    return pack_bf16(a * u.x, b * u.y);
}

/* Computes eight adjacent columns per thread: 16 bytes of gate, of up and of h. */
__global__ void activate(const uint16_t *gate_up, int ffn, bool gelu, uint16_t *h) {
    int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i >= ffn)
        return;
    size_t row = blockIdx.y, at = row * ffn + i;
    uint4 gate = *reinterpret_cast<const uint4 *>(gate_up + row * 2 * ffn + i);
    uint4 up = *reinterpret_cast<const uint4 *>(gate_up + row * 2 * ffn + ffn + i);
    *reinterpret_cast<uint4 *>(h + at) =
        make_uint4(activate_pair(gate.x, up.x, gelu), activate_pair(gate.y, up.y, gelu),
                   activate_pair(gate.z, up.z, gelu), activate_pair(gate.w, up.w, gelu));
}

cudaError_t k_activate(const uint16_t *gate_up, int ffn, bool gelu, int rows, uint16_t *h,
                       cudaStream_t stream) {
    unsigned threads = 128; /* a block computes 1,024 columns */
    dim3 grid(ceil_div(static_cast<size_t>(ffn) / 8, threads), static_cast<unsigned>(rows));
    activate<<<grid, threads, 0, stream>>>(gate_up, ffn, gelu, h);
    return cudaGetLastError();
}

__global__ void bias_add(float *x, const float *bias, int n) {
    size_t row = blockIdx.x;
    for (int i = threadIdx.x; i < n; i += blockDim.x)
        x[row * n + i] += bias[i];
}

cudaError_t k_bias(float *x, const float *bias, int n, int rows, cudaStream_t stream) {
    bias_add<<<rows, ROW_THREADS, 0, stream>>>(x, bias, n);
    return cudaGetLastError();
}

__global__ void gather(const uint4 *from, const int32_t *index, size_t pieces, uint4 *to) {
    const uint4 *source = from + static_cast<size_t>(index[blockIdx.x]) * pieces;
    for (size_t i = threadIdx.x; i < pieces; i += blockDim.x)
        to[blockIdx.x * pieces + i] = source[i];
}

cudaError_t k_gather(const void *from, const int32_t *index, size_t bytes, int rows, void *to,
                     cudaStream_t stream) {
    gather<<<rows, 128, 0, stream>>>(static_cast<const uint4 *>(from), index, bytes / sizeof(uint4),
                                     static_cast<uint4 *>(to));
    return cudaGetLastError();
}

/* ---- the head -------------------------------------------------------------------------------- */

__device__ float capped(float x, float cap) {
    return cap > 0 ? cap * tanhf(x / cap) : x;
}

/* Computes one item per warp: the logit of one token for one row. */
__global__ void head_ids(const head_item *items, int count, const float *x,
                         const __nv_bfloat16 *head, int n, float cap, float *out) {
    int item = static_cast<int>(blockIdx.x) * HEAD_WARPS + static_cast<int>(threadIdx.x / 32),
        lane = threadIdx.x % 32;
    if (item >= count)
        return;
    const float *row = x + static_cast<size_t>(items[item].row) * n;
    const __nv_bfloat16 *weight = head + static_cast<size_t>(items[item].id) * n;
    float sum = 0;
    for (int i = lane; i < n; i += 32)
        sum = fmaf(row[i], __bfloat162float(weight[i]), sum);
    sum = warp_sum(sum);
    if (lane == 0)
        out[item] = capped(sum, cap);
}

cudaError_t k_head_ids(const head_item *items, int count, const float *x, const uint16_t *head,
                       int n, float cap, float *out, cudaStream_t stream) {
    if (count == 0)
        return cudaSuccess;
    head_ids<<<ceil_div(static_cast<size_t>(count), HEAD_WARPS), HEAD_WARPS * 32, 0, stream>>>(
        items, count, x, as_bf16(head), n, cap, out);
    return cudaGetLastError();
}

__global__ void soft_cap(float *x, size_t count, float cap) {
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at < count)
        x[at] = capped(x[at], cap);
}

cudaError_t k_soft_cap(float *x, size_t count, float cap, cudaStream_t stream) {
    if (cap <= 0)
        return cudaSuccess;
    soft_cap<<<ceil_div(count, ROW_THREADS), ROW_THREADS, 0, stream>>>(x, count, cap);
    return cudaGetLastError();
}

/* A token with its logit. Candidates are ordered by descending value, then by ascending id. */
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

/* Sets values[i] to logits[at + i * TOP_THREADS], or to -infinity past the row's end. All loads are
 * issued before the first value is used. */
__device__ __forceinline__ void logits_load(const float *logits, int at, int vocab,
                                            float values[TOP_LOADS]) {
#pragma unroll
    for (int i = 0; i < TOP_LOADS; i++) {
        int id = at + i * TOP_THREADS;
        values[i] = id < vocab ? logits[id] : -INFINITY;
    }
}

/* Returns, in every thread, the first candidate of the row that comes after `last`. `warps` [warps
 * of the block] is shared memory. */
__device__ candidate row_next(const float *logits, int vocab, candidate last, candidate *warps) {
    candidate best = {-INFINITY, INT32_MAX};
    for (int at = threadIdx.x; at < vocab; at += TOP_LOADS * TOP_THREADS) {
        float values[TOP_LOADS];
        logits_load(logits, at, vocab, values);
#pragma unroll
        for (int i = 0; i < TOP_LOADS; i++) {
            candidate here = {values[i], at + i * TOP_THREADS};
            if (here.id < vocab && comes_before(last, here) && comes_before(here, best))
                best = here;
        }
    }
    best = warp_first(best);
    if (threadIdx.x % 32 == 0)
        warps[threadIdx.x / 32] = best;
    __syncthreads();
    best = warps[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++)
        best = comes_before(warps[w], best) ? warps[w] : best;
    __syncthreads();
    return best;
}

/* Finds the k largest logits of one row per block. A block has the maximum number of threads, since
 * there are usually fewer rows than multiprocessors. */
__global__ void __launch_bounds__(TOP_THREADS)
    top(const float *logits, int vocab, int k, float *values, int32_t *ids) {
    __shared__ candidate warps[TOP_THREADS / 32];
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
    top<<<rows, TOP_THREADS, 0, stream>>>(logits, vocab, k, values, ids);
    return cudaGetLastError();
}

/* ---- draws ----------------------------------------------------------------------------------- */

/* Maps a candidate to its place, an integer; of two candidates the one with the greater place comes
 * before the other. NaN comes last. */
__device__ __forceinline__ uint64_t place_of(float value, int32_t id) {
    uint32_t bits;
    value += 0.0f; /* turns -0 into 0: the two are equal */
    memcpy(&bits, &value, sizeof bits);
    bits = value != value ? 0 : bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
    return static_cast<uint64_t>(bits) << 32 | ~static_cast<uint32_t>(id);
}

__device__ __forceinline__ int32_t id_at(uint64_t place) {
    return static_cast<int32_t>(~static_cast<uint32_t>(place));
}

/* Sorts places[0..n) in descending order, by a bitonic sort that uses all threads of the block; n
 * is a power of two. */
__device__ void places_sort(uint64_t *places, unsigned n) {
    for (unsigned run = 2; run <= n; run *= 2) {
        for (unsigned step = run / 2; step > 0; step /= 2) {
            for (unsigned i = threadIdx.x; i < n; i += blockDim.x) {
                unsigned other = i ^ step;
                bool falls = (i & run) == 0;
                if (other > i && (places[i] < places[other]) == falls) {
                    uint64_t place = places[i];
                    places[i] = places[other];
                    places[other] = place;
                }
            }
            __syncthreads();
        }
    }
}

/* Returns the sum over the block in thread 0. All threads of the block must call it: it contains a
 * block barrier. */
__device__ uint64_t weights_sum(uint64_t weight, uint64_t *sums) {
    for (int step = 16; step > 0; step /= 2)
        weight += __shfl_xor_sync(WARP_ALL, weight, step);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = weight;
    __syncthreads();
    weight = 0;
    for (unsigned w = 0; threadIdx.x == 0 && w < blockDim.x / 32; w++)
        weight += sums[w];
    return weight;
}

/* Finds the k largest logits and the total weight of one row per block. The k-th largest of the
 * threads' own maxima is a lower bound of the row's k-th largest value. Usually few candidates
 * reach this bound. They are gathered in shared memory while the weights are summed, and then
 * sorted. If more than DRAW_ROOM candidates reach the bound, the k largest are found one by one, as
 * in `top`. */
__global__ void __launch_bounds__(TOP_THREADS)
    draw(const float *logits, int vocab, int k, const float *temperatures, drawn *out) {
    __shared__ uint64_t places[DRAW_ROOM];
    __shared__ uint64_t sums[TOP_THREADS / 32];
    __shared__ candidate warps[TOP_THREADS / 32];
    __shared__ unsigned found;
    const float *x = logits + static_cast<size_t>(blockIdx.x) * vocab;
    drawn *to = &out[blockIdx.x];
    uint64_t mine = 0, weight = 0;
    for (int id = threadIdx.x; id < vocab; id += TOP_THREADS)
        mine = max(mine, place_of(x[id], id));
    places[threadIdx.x] = mine;
    if (threadIdx.x == 0)
        found = 0;
    __syncthreads();
    places_sort(places, TOP_THREADS);
    uint64_t bound = places[k - 1];
    float largest = x[id_at(places[0])], temperature = temperatures[blockIdx.x];
    __syncthreads();
    for (int id = threadIdx.x; id < vocab; id += TOP_THREADS) {
        float value = x[id];
        uint64_t place = place_of(value, id);
        weight += sample_weight(value, largest, temperature);
        if (place >= bound) {
            unsigned at = atomicAdd(&found, 1u);
            if (at < DRAW_ROOM)
                places[at] = place;
        }
    }
    /* weights_sum contains a barrier, after which `found` is final */
    weight = weights_sum(weight, sums);
    unsigned n = found, room = 1;
    if (n > DRAW_ROOM) {
        candidate last = {INFINITY, -1};
        for (int i = 0; i < k; i++) {
            last = row_next(x, vocab, last, warps);
            if (threadIdx.x == 0)
                places[i] = place_of(last.value, last.id);
        }
    } else {
        while (room < n)
            room *= 2;
        for (unsigned i = n + threadIdx.x; i < room; i += TOP_THREADS)
            places[i] = 0;
        __syncthreads();
        places_sort(places, room);
    }
    __syncthreads();
    if (threadIdx.x < static_cast<unsigned>(k)) {
        int32_t id = id_at(places[threadIdx.x]);
        /* past the vocabulary if row_next found no more numbers, since the rest are NaN */
        to->ids[threadIdx.x] = id;
        to->values[threadIdx.x] = id < vocab ? x[id] : -INFINITY;
    }
    if (threadIdx.x == 0)
        to->total = weight;
}

cudaError_t k_draw(const float *logits, int vocab, int rows, int k, const float *temperatures,
                   drawn *out, cudaStream_t stream) {
    if (k < 1 || k > DRAWN_MOST || k > vocab)
        return cudaErrorInvalidValue;
    draw<<<rows, TOP_THREADS, 0, stream>>>(logits, vocab, k, temperatures, out);
    return cudaGetLastError();
}

/* ---- probes ---------------------------------------------------------------------------------- */

__global__ void random_fill(__nv_bfloat16 *x, size_t count, uint64_t seed, float scale) {
    size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (at >= count)
        return;
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
    if (at < count && a[at] != b[at])
        atomicAdd(differing, 1u);
}

cudaError_t k_differ(const uint16_t *a, const uint16_t *b, size_t count, unsigned *differing,
                     cudaStream_t stream) {
    differ<<<ceil_div(count, ROW_THREADS), ROW_THREADS, 0, stream>>>(a, b, count, differing);
    return cudaGetLastError();
}
