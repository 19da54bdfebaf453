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

/* The same sum in every lane: pairs are added in the same tree, and addition commutes. */
__device__ __forceinline__ float warp_sum(float x) {
    for (int step = 16; step > 0; step /= 2) {
        x += __shfl_xor_sync(WARP_ALL, x, step);
    }
    return x;
}

/* Sum over the four lanes that hold one row of an MMA's C fragment. */
__device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(WARP_ALL, x, 1);
    return x + __shfl_xor_sync(WARP_ALL, x, 2);
}

__device__ __forceinline__ float quad_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(WARP_ALL, x, 1));
    return fmaxf(x, __shfl_xor_sync(WARP_ALL, x, 2));
}

/* Sum over the block, in warp order. `sums` [warps] is shared memory; the caller may reuse it at
 * once. */
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
