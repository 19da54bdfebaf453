/*
 * cuda_instructions.cuh - PTX instructions: mma and ldmatrix, whose layout of fragments CUDA C++
 * (wmma) leaves open, and cp.async.
 *
 * Fragments are as in mma.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"). With
 * g = lane / 4 and t = lane % 4, a lane holds these elements (row, column):
 *
 *   A [16, 16]  a0 (g, 2t..)  a1 (g+8, 2t..)  a2 (g, 2t+8..)  a3 (g+8, 2t+8..)
 *               each register: two adjacent elements of a row
 *   B [16, 8]   b0 (2t.., g)  b1 (2t+8.., g)
 *               each register: two adjacent elements of a column
 *   C [16, 8]   c0 c1 (g, 2t..)  c2 c3 (g+8, 2t..)
 */
#ifndef KVASIR_CUDA_INSTRUCTIONS_CUH
#define KVASIR_CUDA_INSTRUCTIONS_CUH

#include <cuda_bf16.h>
#include <stdint.h>

/* Computes c += a × b for bf16 operands, summed in f32. A row of c depends only on b and on the
 * same row of a. */
__device__ __forceinline__ void mma_16x8x16(float c[4], const uint32_t a[4], uint32_t b0,
                                            uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};\n"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Loads four 8x8 matrices from shared memory. Lane l passes the address of row l % 8 of matrix
 * l / 8. The lane receives two adjacent elements of each matrix: of row l / 4 (load_matrices) or of
 * column l / 4 (load_matrices_transposed). */
__device__ __forceinline__ void load_matrices(uint32_t r[4], const __nv_bfloat16 *row) {
    uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t r[4], const __nv_bfloat16 *row) {
    uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Starts an asynchronous copy of 16 bytes from global to shared memory. */
__device__ __forceinline__ void copy_begin(__nv_bfloat16 *to, const __nv_bfloat16 *from) {
    uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(at), "l"(from) : "memory");
}

__device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

/* Waits until at most `open` of this thread's committed copy groups are still pending. */
template <int open> __device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(open) : "memory");
}

#endif
