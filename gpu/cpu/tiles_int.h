/*
 * tiles_int.h - AMX's instructions, as kernels_tiles_impl.h writes them.
 *
 * Eight tiles of 16 rows × 64 bytes, named by constants. The compilers' own intrinsics do not say
 * that a load reads memory (GCC 12), so what fills the memory may move behind it: these do.
 */
#ifndef KVASIR_TILES_INT_H
#define KVASIR_TILES_INT_H

#include <stddef.h>
#include <stdint.h>

/* Intel SDM 1, 18.3: palette 1, and per tile bytes a row and rows. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

#define TILES_CONFIGURE(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(config)) : "memory")
#define TILES_RELEASE() __asm__ volatile("tilerelease" ::: "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::: "memory")
/* Rows `stride` bytes apart. */
#define TILE_LOAD(t, from, stride)                                                                 \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"((const void *)(from)),                  \
                     "r"((ptrdiff_t)(stride))                                                      \
                     : "memory")
#define TILE_STORE(t, to, stride)                                                                  \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"((void *)(to)),                      \
                     "r"((ptrdiff_t)(stride))                                                      \
                     : "memory")
/* sum f32 [16, 16] += a bf16 [16, 32] × b, b as pairs of rows [16, 16, 2] */
#define TILE_PRODUCT(sum, a, b)                                                                    \
    __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sum ::: "memory")

#endif
