/*
 * cuda_instructions.cuh - the instructions of gpu/cuda/cuda_instructions.cuh in plain C++, for kernels on the emulated
 * card. It is included first, so its include guard excludes the original.
 */
#ifndef KVASIR_CUDA_INSTRUCTIONS_CUH
#define KVASIR_CUDA_INSTRUCTIONS_CUH

#include <cuda_bf16.h>
#include <stdint.h>

#include "card.h"

static inline float card_half(uint32_t pair, int high) {
    uint32_t bits = high != 0 ? pair & 0xffff0000u : pair << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Exchanges the lanes' fragments a[4] and b[2], and multiplies. */
static inline void mma_16x8x16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    uint32_t mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const unsigned char *all = card_exchange(mine, sizeof mine);
    unsigned lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (unsigned i = 0; i < 4; i++) {
        unsigned row = g + i / 2 * 8, column = 2 * t + i % 2;
        for (unsigned k = 0; k < 16; k++) {
            unsigned word = row / 8 + k / 8 * 2, from = row % 8 * 4 + k % 8 / 2;
            uint32_t left, right;
            memcpy(&left, all + from * CARD_LANE + word * 4, 4);
            memcpy(&right, all + (column * 4 + k % 8 / 2) * CARD_LANE + (4 + k / 8) * 4, 4);
            c[i] = fmaf(card_half(left, k % 2), card_half(right, k % 2), c[i]);
        }
    }
}

static inline void card_matrices(uint32_t r[4], const __nv_bfloat16 *row, bool transposed) {
    const unsigned char *all = card_exchange(&row, sizeof row);
    unsigned lane = threadIdx.x % 32;
    for (unsigned m = 0; m < 4; m++) {
        uint16_t pair[2];
        for (unsigned i = 0; i < 2; i++) {
            unsigned at = transposed ? lane % 4 * 2 + i : lane / 4,
                     column = transposed ? lane / 4 : lane % 4 * 2 + i;
            memcpy(&pair[i], card_lane<const __nv_bfloat16 *>(all, m * 8 + at) + column, 2);
        }
        memcpy(&r[m], pair, 4);
    }
}

static inline void load_matrices(uint32_t r[4], const __nv_bfloat16 *row) {
    card_matrices(r, row, false);
}

static inline void load_matrices_transposed(uint32_t r[4], const __nv_bfloat16 *row) {
    card_matrices(r, row, true);
}

static inline void copy_begin(__nv_bfloat16 *to, const __nv_bfloat16 *from) {
    card_copy_begin(to, from, 16);
}

static inline void copy_commit() {
    card_copy_commit();
}

template <int open> static inline void copy_wait() {
    card_copy_wait(open);
}

#endif
