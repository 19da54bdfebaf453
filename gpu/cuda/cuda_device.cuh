/*
 * cuda_device.cuh - device functions that both .cu files use: reductions over warps and blocks,
 * packing of bf16 pairs.
 */
#ifndef KVASIR_CUDA_DEVICE_CUH
#define KVASIR_CUDA_DEVICE_CUH

#include "cuda_instructions.cuh"

#define WARP_ALL 0xffffffffu

__device__ __forceinline__ uint32_t pack_bf16(float low, float high) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &both, sizeof bits);
    return bits;
}

/* Returns the same sum in every lane: all lanes add the same pairs in the same tree, and addition
 * is commutative. */
__device__ __forceinline__ float warp_sum(float x) {
    for (int step = 16; step > 0; step /= 2) {
        x += __shfl_xor_sync(WARP_ALL, x, step);
    }
    return x;
}

/* Returns the sum over the four lanes that hold one row of an MMA's C fragment. */
__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(WARP_ALL, x, 1);
    return x + __shfl_xor_sync(WARP_ALL, x, 2);
}

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(WARP_ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(WARP_ALL, x, 2));
}

/* Returns the sum over the thread block, added in the order of its warps. `sums` [warps of the
 * block] is shared memory, which the caller may overwrite after the call without a barrier. */
__device__ __forceinline__ float block_sum(float x, float *sums) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = x;
    }
    __syncthreads();
    float total = 0;
    for (unsigned w = 0; w < blockDim.x / 32; w++) {
        total += sums[w];
    }
    __syncthreads();
    return total;
}

#endif
