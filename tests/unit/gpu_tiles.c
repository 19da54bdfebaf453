/*
 * gpu_tiles.c - a kernel table whose tiles (AMX) are made of plain C, for machines without them.
 *
 * Owns the instructions of gpu/cpu/tiles_int.h as the manual describes them (Intel SDM 2, TILELOADD,
 * TDPBF16PS, …); what uses them is compiled as it is. A use without a configuration, and a shape
 * that the configuration does not give, end the program.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels_int.h"

#define KVASIR_TILES_INT_H /* in its place: */

typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };

static _Thread_local struct {
    bool configured;
    unsigned char bytes[TILES][ROWS][ROW_BYTES];
} unit;

static void demand(bool holds) {
    if (!holds)
        abort();
}

static void configure(const tile_config *c) {
    demand(c->palette == 1 && c->start_row == 0);
    for (int t = 0; t < 16; t++) {
        demand(c->rows[t] == (t < TILES ? ROWS : 0));
        demand(c->row_bytes[t] == (t < TILES ? ROW_BYTES : 0));
    }
    memset(&unit, 0, sizeof unit);
    unit.configured = true;
}

static void tile_load(int t, const void *from, ptrdiff_t stride) {
    demand(unit.configured);
    for (int r = 0; r < ROWS; r++)
        memcpy(unit.bytes[t][r], (const char *)from + r * stride, ROW_BYTES);
}

static void tile_store(int t, void *to, ptrdiff_t stride) {
    demand(unit.configured);
    for (int r = 0; r < ROWS; r++)
        memcpy((char *)to + r * stride, unit.bytes[t][r], ROW_BYTES);
}

static float widen(uint16_t h) {
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* sum[m][n] += a[m][2k] * b[k][2n] + a[m][2k + 1] * b[k][2n + 1] */
static void tile_product(int sum, int a, int b) {
    demand(unit.configured && sum != a && sum != b && a != b);
    for (int m = 0; m < ROWS; m++) {
        float to[16];
        uint16_t x[32], y[32];
        memcpy(to, unit.bytes[sum][m], sizeof to);
        memcpy(x, unit.bytes[a][m], sizeof x);
        for (int k = 0; k < ROWS; k++) {
            memcpy(y, unit.bytes[b][k], sizeof y);
            for (int n = 0; n < 16; n++) {
                to[n] += widen(x[2 * k]) * widen(y[2 * n]);
                to[n] += widen(x[2 * k + 1]) * widen(y[2 * n + 1]);
            }
        }
        memcpy(unit.bytes[sum][m], to, sizeof to);
    }
}

#define TILES_CONFIGURE(config) configure(config)
#define TILES_RELEASE() (unit.configured = false)
#define TILE_ZERO(t) memset(unit.bytes[t], 0, sizeof unit.bytes[t])
#define TILE_LOAD(t, from, stride) tile_load(t, from, (ptrdiff_t)(stride))
#define TILE_STORE(t, to, stride) tile_store(t, to, (ptrdiff_t)(stride))
#define TILE_PRODUCT(sum, a, b) tile_product(sum, a, b)

#define KERNELS_TABLE kernels_tiles_of_c
#define KERNELS_NAME "tiles of C"
#define KERNELS_TILES
#include "cpu/kernels_impl.h"
