/*
 * cuda_attention.cu - the attention kernels: FlashAttention-2's loop over KV blocks of 32 keys, on
 * tensor cores, for tasks that share blocks between queries.
 *
 * A thread block computes one task (attend_plan_int.h) for one kv head. Each warp holds 16 queries.
 * The task's KV blocks are processed in order, each loaded once for all queries, while the next
 * ones are being copied to shared memory. Invariant: a query's state (top, sum, out) after a block
 * depends only on the query, its state before and the block's keys and values, not on which queries
 * share its warp or where a task ends and another resumes. A block in which a query may attend to
 * no key leaves the query's state unchanged: the weights are 0, and the factor of sum and out is
 * exp2(0) = 1, or 0 while both are still 0.
 */
#include "cuda_device.cuh"
#include "cuda_kernels_int.h"

static constexpr float LOG2_E = 1.4426950408889634f;

enum { KEYS = ATTEND_BLOCK, KEY_TILES = KEYS / 8, KEY_STEPS = KEYS / 16 };

/* Number of elements from the start of a row in shared memory to the start of the next row. The
 * padding of 16 bytes puts eight consecutive rows into different banks. */
template <int D> constexpr int PITCH = D + 8;

/* Number of stages. A stage is the shared memory of one KV block; one is used while the others are
 * loaded. With few tasks on a large card, load latency is the limit, and more stages hide it. Fewer
 * stages let more tasks share a multiprocessor (D = 64, 4 warps: 46 KB, 4 tasks). Narrow tasks are
 * many and mostly short; two loads in flight are enough for them (30 KB, 7 tasks). */
template <int D, int WARPS> constexpr int STAGES = D <= 96 ? (WARPS > 1 ? 4 : 3) : D <= 128 ? 3 : 2;

/* Size in bytes of a thread block's shared memory. Its layout: queries [WARPS * 16][PITCH], then
 * per stage keys [32][PITCH] and values [32][PITCH]. */
template <int D, int WARPS> constexpr size_t shared_bytes() {
    return sizeof(__nv_bfloat16) * static_cast<size_t>(WARPS * 16 + 2 * STAGES<D, WARPS> * KEYS) *
           PITCH<D>;
}

/* True if a warp keeps its queries in registers. Wider heads would need too many registers: their
 * queries are read from shared memory again for each block. */
template <int D> constexpr bool KEEPS_QUERIES = D <= 128;

/* The two queries that a thread works on: queries g and g + 8 of its warp's 16 queries, where
 * g = lane / 4. */
struct query_rows {
    int row[2], head[2];
    int position[2]; /* -1: there is no such query */
};

__device__ __forceinline__ query_rows rows_of(const attend_args &a, const attend_task &task,
                                              int group) {
    query_rows q;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int i = warp * 16 + lane / 4 + 8 * h;
        int flat = task.first_query + i;
        bool real = i < task.queries;
        q.row[h] = real ? task.first_row + flat / group : task.first_row;
        q.head[h] = static_cast<int>(blockIdx.y) * group + flat % group;
        q.position[h] = real ? a.positions[q.row[h]] : -1;
    }
    return q;
}

template <int D>
__device__ __forceinline__ void queries_load(const attend_args &a, const attend_task &task,
                                             int group, int count, __nv_bfloat16 *to) {
    const __nv_bfloat16 *q = reinterpret_cast<const __nv_bfloat16 *>(a.q);
    for (int i = threadIdx.x; i < count * (D / 8); i += blockDim.x) {
        int query = i / (D / 8), column = i % (D / 8) * 8, flat = task.first_query + query;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (query < task.queries) {
            size_t row = static_cast<size_t>(task.first_row + flat / group);
            size_t head = static_cast<size_t>(blockIdx.y) * group + flat % group;
            value = *reinterpret_cast<const uint4 *>(q + (row * a.heads + head) * D + column);
        }
        *reinterpret_cast<uint4 *>(to + query * PITCH<D> + column) = value;
    }
}

/* Starts loading a block's keys and values, which are adjacent in memory. Past the task's last
 * block, commits an empty copy group, so that copy_wait counts the same number of groups. */
template <int D>
__device__ __forceinline__ void block_begin(const attend_args &a, const attend_task &task, int b,
                                            __nv_bfloat16 *stage) {
    if (b < task.b1) {
        size_t block = static_cast<size_t>(a.blocks[task.blocks_at + b - task.b0]);
        const __nv_bfloat16 *from = reinterpret_cast<const __nv_bfloat16 *>(a.kv) +
                                    block * a.block_elements +
                                    static_cast<size_t>(blockIdx.y) * 2 * KEYS * D;
        for (int i = threadIdx.x; i < 2 * KEYS * (D / 8); i += blockDim.x) {
            int key = i / (D / 8), column = i % (D / 8) * 8;
            copy_begin(stage + key * PITCH<D> + column, from + key * D + column);
        }
    }
    copy_commit();
}

/* Returns the address that this lane passes to load_matrices for a 16x16 tile of its warp's
 * queries. */
template <int D>
__device__ __forceinline__ const __nv_bfloat16 *query_at(const __nv_bfloat16 *queries) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    return queries + (warp * 16 + lane % 16) * PITCH<D> + lane / 16 * 8;
}

/* Computes the scores of 16 queries × 32 keys; scores[n] is this lane's part of the tile of keys 8n
 * to 8n + 7. If KEEPS_QUERIES, kept [D / 16] holds the queries; otherwise they are read from
 * `query`. */
template <int D>
__device__ __forceinline__ void scores_make(const uint32_t (*kept)[4], const __nv_bfloat16 *query,
                                            const __nv_bfloat16 *keys, float scores[KEY_TILES][4]) {
    int lane = threadIdx.x % 32;
    const __nv_bfloat16 *b_row = keys + (lane / 16 * 8 + lane % 8) * PITCH<D> + lane / 8 % 2 * 8;
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            scores[n][i] = 0;
    }
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t read[4];
        if (!KEEPS_QUERIES<D>)
            load_matrices(read, query + k);
        const uint32_t *q = KEEPS_QUERIES<D> ? kept[k / 16] : read;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n += 2) {
            uint32_t b[4];
            load_matrices(b, b_row + n * 8 * PITCH<D> + k);
            mma_16x8x16(scores[n], q, b[0], b[1]);
            mma_16x8x16(scores[n + 1], q, b[2], b[3]);
        }
    }
}

/* True if a query at `position` attends to every key of block b. */
__device__ __forceinline__ bool sees_all(const attend_args &a, int position, int b) {
    return position >= b * KEYS + KEYS - 1 && (a.window == 0 || b * KEYS > position - a.window);
}

/* Scales and soft-caps the scores, converts them to base 2 (for exp2), and sets them to -infinity
 * for keys that the query does not attend to. */
__device__ __forceinline__ void scores_mask(const attend_args &a, const query_rows &q, int b,
                                            float scores[KEY_TILES][4]) {
    int first = b * KEYS + threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float score = scores[n][i] * a.scale;
            if (a.cap > 0)
                score = a.cap * tanhf(score / a.cap);
            scores[n][i] = score * LOG2_E;
        }
    }
    if (__all_sync(WARP_ALL, sees_all(a, q.position[0], b) && sees_all(a, q.position[1], b)))
        return;
#pragma unroll
    for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int key = first + n * 8 + i % 2, position = q.position[i / 2];
            bool seen = key <= position && (a.window == 0 || key > position - a.window);
            scores[n][i] = seen ? scores[n][i] : -INFINITY;
        }
    }
}

/* Online softmax: replaces scores by weights and updates top and sum. Sets old[h] to the factor by
 * which the output so far must be scaled. */
__device__ __forceinline__ void scores_weigh(float scores[KEY_TILES][4], float top[2], float sum[2],
                                             float old[2]) {
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float best = -INFINITY;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++)
            best = fmaxf(best, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
        float next = fmaxf(top[h], quad_max(best));
        float base = next == -INFINITY ? 0.0f : next; /* -infinity: no visible key so far */
        old[h] = exp2f(top[h] - base);
        float total = 0;
#pragma unroll
        for (int n = 0; n < KEY_TILES; n++) {
#pragma unroll
            for (int i = 2 * h; i < 2 * h + 2; i++) {
                scores[n][i] = exp2f(scores[n][i] - base);
                total += scores[n][i];
            }
        }
        sum[h] = sum[h] * old[h] + quad_sum(total);
        top[h] = next;
    }
}

/* out = out * old + weights × values */
template <int D>
__device__ __forceinline__ void values_gather(const __nv_bfloat16 *values,
                                              const float weights[KEY_TILES][4], const float old[2],
                                              float out[D / 8][4]) {
    int lane = threadIdx.x % 32;
    const __nv_bfloat16 *row = values + lane % 16 * PITCH<D> + lane / 16 * 8;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[n][i] *= old[i / 2];
    }
#pragma unroll
    for (int k = 0; k < KEY_STEPS; k++) {
        const float *left = weights[2 * k], *right = weights[2 * k + 1];
        uint32_t a[4] = {pack_bf16(left[0], left[1]), pack_bf16(left[2], left[3]),
                         pack_bf16(right[0], right[1]), pack_bf16(right[2], right[3])};
#pragma unroll
        for (int n = 0; n < D / 8; n += 2) {
            uint32_t b[4];
            load_matrices_transposed(b, row + k * 16 * PITCH<D> + n * 8);
            mma_16x8x16(out[n], a, b[0], b[1]);
            mma_16x8x16(out[n + 1], a, b[2], b[3]);
        }
    }
}

__device__ __forceinline__ size_t state_of(const attend_args &a, const attend_task &task, int row,
                                           int head) {
    int chunk = task.b0 / ATTEND_CHUNK_BLOCKS;
    return static_cast<size_t>(a.states[row] + chunk) * a.heads + head;
}

template <int D>
__device__ __forceinline__ void state_load(const attend_args &a, const attend_task &task,
                                           const query_rows &q, float top[2], float sum[2],
                                           float out[D / 8][4]) {
    int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        top[h] = -INFINITY;
        sum[h] = 0;
        bool resumes = task.resumes != 0 && q.position[h] >= 0;
        size_t at = resumes ? state_of(a, task, q.row[h], q.head[h]) : 0;
        if (resumes) {
            top[h] = a.state_norm[2 * at];
            sum[h] = a.state_norm[2 * at + 1];
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            float2 value = make_float2(0, 0);
            if (resumes)
                value = *reinterpret_cast<const float2 *>(a.state_out + at * D + n * 8 + column);
            out[n][2 * h] = value.x;
            out[n][2 * h + 1] = value.y;
        }
    }
}

/* Writes the output if this is the last task of a row with a single chunk. Otherwise stores the
 * state, for the next level or for merge(). */
template <int D>
__device__ __forceinline__ void state_store(const attend_args &a, const attend_task &task,
                                            const query_rows &q, const float top[2],
                                            const float sum[2], const float out[D / 8][4]) {
    int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (q.position[h] < 0)
            continue;
        bool done = q.position[h] < ATTEND_CHUNK && q.position[h] / KEYS < task.b1;
        if (done) {
            uint16_t *to =
                a.out + (static_cast<size_t>(q.row[h]) * a.heads + q.head[h]) * D + column;
            float scale = 1.0f / sum[h];
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                *reinterpret_cast<uint32_t *>(to + n * 8) =
                    pack_bf16(out[n][2 * h] * scale, out[n][2 * h + 1] * scale);
            }
            continue;
        }
        size_t at = state_of(a, task, q.row[h], q.head[h]);
        if (threadIdx.x % 4 == 0) {
            a.state_norm[2 * at] = top[h];
            a.state_norm[2 * at + 1] = sum[h];
        }
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            *reinterpret_cast<float2 *>(a.state_out + at * D + n * 8 + column) =
                make_float2(out[n][2 * h], out[n][2 * h + 1]);
        }
    }
}

/* Computes one task. Stage i % STAGES holds block first + i. The barrier before block i ensures
 * that all threads' copies of block i have arrived. It also ensures that all warps are done with
 * block i - 1, whose stage the next load overwrites. */
template <int D, int WARPS> __global__ void __launch_bounds__(WARPS * 32) attend(attend_args a) {
    extern __shared__ __align__(16) unsigned char memory[];
    attend_task task = a.tasks[blockIdx.x];
    if (task.queries == 0)
        return;
    __nv_bfloat16 *queries = reinterpret_cast<__nv_bfloat16 *>(memory);
    __nv_bfloat16 *stages = queries + WARPS * 16 * PITCH<D>;
    constexpr int stage = 2 * KEYS * PITCH<D>, ahead = STAGES<D, WARPS> - 1;
    int group = a.heads / a.kv_heads, first = task.b0;
    if (a.window > 0)
        first = max(first, (task.least_position - a.window + 1) / KEYS);
#pragma unroll
    for (int i = 0; i < ahead; i++)
        block_begin<D>(a, task, first + i, stages + i * stage);
    query_rows q = rows_of(a, task, group);
    queries_load<D>(a, task, group, WARPS * 16, queries);
    float top[2], sum[2], out[D / 8][4];
    state_load<D>(a, task, q, top, sum, out);
    __syncthreads();
    const __nv_bfloat16 *query = query_at<D>(queries);
    uint32_t kept[KEEPS_QUERIES<D> ? D / 16 : 1][4];
#pragma unroll
    for (int k = 0; KEEPS_QUERIES<D> && k < D / 16; k++)
        load_matrices(kept[k], query + k * 16);
    for (int b = first, at = 0; b < task.b1; b++) {
        copy_wait<ahead - 1>();
        __syncthreads();
        int next = at == 0 ? ahead : at - 1; /* the stage of block b - 1 */
        block_begin<D>(a, task, b + ahead, stages + next * stage);
        if (__any_sync(WARP_ALL, q.position[0] >= b * KEYS || q.position[1] >= b * KEYS)) {
            const __nv_bfloat16 *keys = stages + at * stage;
            float scores[KEY_TILES][4], old[2];
            scores_make<D>(kept, query, keys, scores);
            scores_mask(a, q, b, scores);
            scores_weigh(scores, top, sum, old);
            values_gather<D>(keys + KEYS * PITCH<D>, scores, old, out);
        }
        at = at == ahead ? 0 : at + 1;
    }
    state_store<D>(a, task, q, top, sum, out);
}

/* Merges the chunk states of one row and query head; thread i computes dimension i. */
__global__ void merge(const attend_merge *merges, const float *state_out, const float *state_norm,
                      int heads, uint16_t *out) {
    attend_merge m = merges[blockIdx.x];
    if (m.chunks == 0)
        return;
    int head = static_cast<int>(blockIdx.y), d = static_cast<int>(blockDim.x),
        i = static_cast<int>(threadIdx.x);
    float top = -INFINITY;
    for (int c = 0; c < m.chunks; c++)
        top = fmaxf(top, state_norm[2 * (static_cast<size_t>(m.state + c) * heads + head)]);
    float sum = 0, total = 0;
    for (int c = 0; c < m.chunks; c++) {
        size_t at = static_cast<size_t>(m.state + c) * heads + head;
        float factor = exp2f(state_norm[2 * at] - top);
        sum += state_norm[2 * at + 1] * factor;
        total += state_out[at * d + i] * factor;
    }
    __nv_bfloat16 value = __float2bfloat16_rn(total * (1.0f / sum));
    reinterpret_cast<__nv_bfloat16 *>(out)[(static_cast<size_t>(m.row) * heads + head) * d + i] =
        value;
}

/* ---- launches -------------------------------------------------------------------------------- */

template <int D, int WARPS> static cudaError_t launch(const attend_args &a, cudaStream_t stream) {
    dim3 grid(static_cast<unsigned>(a.count), static_cast<unsigned>(a.kv_heads));
    attend<D, WARPS><<<grid, WARPS * 32, shared_bytes<D, WARPS>(), stream>>>(a);
    return cudaGetLastError();
}

template <int D> static cudaError_t prepare() {
    static_assert(shared_bytes<D, 4>() <= 99 * 1024,
                  "every supported card allows a block 99 KB of shared memory");
    cudaError_t status = cudaFuncSetAttribute(
        attend<D, 4>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<D, 4>());
    return status != cudaSuccess
               ? status
               : cudaFuncSetAttribute(attend<D, 1>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      shared_bytes<D, 1>());
}

struct attend_size {
    int d;
    cudaError_t (*prepare)();
    cudaError_t (*wide)(const attend_args &, cudaStream_t);
    cudaError_t (*narrow)(const attend_args &, cudaStream_t);
};

static const attend_size sizes[] = {
    {64, prepare<64>, launch<64, 4>, launch<64, 1>},
    {96, prepare<96>, launch<96, 4>, launch<96, 1>},
    {128, prepare<128>, launch<128, 4>, launch<128, 1>},
    {256, prepare<256>, launch<256, 4>, launch<256, 1>},
};

static const attend_size *size_find(int d) {
    for (const attend_size &size : sizes)
        if (size.d == d)
            return &size;
    return nullptr;
}

bool k_attend_fits(int d) {
    return size_find(d) != nullptr;
}

cudaError_t k_attend_prepare(int d) {
    const attend_size *size = size_find(d);
    return size != nullptr ? size->prepare() : cudaErrorInvalidValue;
}

cudaError_t k_attend(const attend_args *args, cudaStream_t stream) {
    const attend_size *size = size_find(args->d);
    if (size == nullptr)
        return cudaErrorInvalidValue;
    if (args->count == 0)
        return cudaSuccess;
    return args->wide ? size->wide(*args, stream) : size->narrow(*args, stream);
}

cudaError_t k_merge(const attend_merge *merges, int count, const float *state_out,
                    const float *state_norm, int heads, int d, uint16_t *out, cudaStream_t stream) {
    if (count == 0)
        return cudaSuccess;
    dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(heads));
    merge<<<grid, static_cast<unsigned>(d), 0, stream>>>(merges, state_out, state_norm, heads, out);
    return cudaGetLastError();
}
