/*
 * card.h - the parts of CUDA C++ that kernels use, for the host compiler: a kernel runs as one
 * fiber per thread of a block.
 *
 * Included ahead of a kernel's source, in which CMake has rewritten launches to card_launch
 * (launches.sed). The threads of a block take turns: each runs until it waits for its warp or
 * block. Where a real card may choose an order, three are available here (card_order): early,
 * copies and streams run as soon as they can; late, they run as late as they may and threads run in
 * descending order; seeded, streams overtake each other at random. A missing barrier or wait
 * changes results in at least one of them.
 */
#ifndef KVASIR_HOST_CARD_H
#define KVASIR_HOST_CARD_H

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __align__
#define __align__(n)

struct card_index {
    unsigned x, y, z;
};
extern card_index threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
extern unsigned char *card_shared;

using std::max;
using std::min;

void card_launch(const void *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                 std::function<void()> body);

/* The address that identifies a kernel. */
template <typename... T> static inline const void *card_kernel(void (*f)(T...)) {
    return reinterpret_cast<const void *>(f);
}

/* Binds a launch's arguments by value, as a launch copies them. */
template <typename F, typename... T> static inline std::function<void()> card_bind(F f, T... args) {
    return [=] { f(args...); };
}

/* ---- inside a kernel ------------------------------------------------------------------------- */

void __syncthreads();
void card_sync_warp();
/* Exchanges up to CARD_LANE bytes between the lanes of the warp. Returns the bytes of all lanes,
 * CARD_LANE per lane, valid until the lane's next exchange but one. */
const unsigned char *card_exchange(const void *mine, size_t bytes);
enum { CARD_LANE = 64 };

static inline void __syncwarp(unsigned = 0xffffffffu) {
    card_sync_warp();
}

template <typename T> static inline T card_lane(const unsigned char *all, unsigned lane) {
    T value;
    memcpy(&value, all + lane * CARD_LANE, sizeof value);
    return value;
}

template <typename T> static inline T __shfl_xor_sync(unsigned, T value, int step) {
    const unsigned char *all = card_exchange(&value, sizeof value);
    return card_lane<T>(all, threadIdx.x % 32 ^ static_cast<unsigned>(step));
}

template <typename T> static inline T __shfl_sync(unsigned, T value, int lane) {
    const unsigned char *all = card_exchange(&value, sizeof value);
    return card_lane<T>(all, static_cast<unsigned>(lane));
}

static inline int card_count(int value) {
    const unsigned char *all = card_exchange(&value, sizeof value);
    int n = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        n += card_lane<int>(all, lane) != 0;
    return n;
}

static inline int __any_sync(unsigned, int value) {
    return card_count(value) > 0;
}

static inline int __all_sync(unsigned, int value) {
    return card_count(value) == 32;
}

static inline unsigned atomicAdd(unsigned *p, unsigned more) {
    unsigned before = *p;
    *p += more;
    return before;
}

/* Allows a kernel's launches more than 48 KB of dynamic shared memory. */
cudaError_t card_shared_allow(const void *kernel, size_t bytes);

template <typename F>
static inline cudaError_t cudaFuncSetAttribute(F *f, cudaFuncAttribute, size_t bytes) {
    return card_shared_allow(card_kernel(f), bytes);
}

/* Asynchronous copies into shared memory: done at once (early) or when awaited (late). */
void card_copy_begin(void *to, const void *from, size_t bytes);
void card_copy_commit();
void card_copy_wait(int open);

#endif
