/*
 * int8_vnni.c - int8_int.h's products by VPDPBUSD, 64 of them an instruction.
 *
 * Six rows × 32 columns are in registers: 12 sums of a group, 12 of the product. Compiled for
 * AVX-512 with VNNI, reached through int8_choose alone. Invariant: however rows are dealt out to
 * blocks of one to six, each result sees the same operations in the same order.
 */
#if defined(__x86_64__)

#include <float.h>
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "int8_int.h"
#include "storage/base.h"

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif
#define BLOCK static inline __attribute__((always_inline))

enum { QUADS = INT8_GROUP / 4, LANES = 16, ROWS = 6, SECOND_BITS = 8, LINE = 64 };
static const uint32_t INFINITE = 0x7f800000; /* the bits of infinity: what is less is finite */

typedef struct panel_group {
    float step[INT8_COLUMNS], low[INT8_COLUMNS];
    uint8_t bytes[QUADS][INT8_COLUMNS][4];
} panel_group;

/* ---- products -------------------------------------------------------------------------------- */

/* What a block of rows reads: the first row's groups, and bytes from one row to the next. By
 * pointer: copied whole right after its parts were stored it would have to wait for them. */
typedef struct operand {
    const char *at;
    size_t row;
    const char *ahead, *end; /* memory asked for while a group is computed, */
    int lines;               /* so many lines of it */
} operand;

/* Four digits of one row's group at `at`. */
BLOCK __m512i quad(const char *at, int plane, int k) {
    int32_t digits;
    memcpy(&digits, at + plane * INT8_GROUP + 4 * k, sizeof digits);
    return _mm512_set1_epi32(digits);
}

/* Its scale (0) or its sum (1). */
BLOCK __m512 factor(const char *at, int planes, int which) {
    float x;
    memcpy(&x, at + planes * INT8_GROUP + which * (int)sizeof x, sizeof x);
    return _mm512_set1_ps(x);
}

BLOCK void plane_add(int rows, const char *at, size_t row, int plane, const panel_group *b,
                     __m512i sums[ROWS][2]) {
    UNROLL
    for (int k = 0; k < QUADS; k++) {
        __m512i left = _mm512_load_si512(b->bytes[k]),
                right = _mm512_load_si512(b->bytes[k][LANES]);
        UNROLL
        for (int i = 0; i < rows; i++) {
            __m512i digits = quad(at + (size_t)i * row, plane, k);
            sums[i][0] = _mm512_dpbusd_epi32(sums[i][0], left, digits);
            sums[i][1] = _mm512_dpbusd_epi32(sums[i][1], right, digits);
        }
    }
}

BLOCK __m512 weigh(__m512i sum, __m512 step, __m512 low, __m512 scale, __m512 whole, __m512 out) {
    out = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), step), scale, out);
    return _mm512_fmadd_ps(low, whole, out);
}

/* c[rows, 32] of one panel; `keep`: which of its columns there are. */
BLOCK void block_product(int rows, int planes, const operand *a, const panel_group *b, int groups,
                         float *c, size_t row, const __mmask16 keep[2]) {
    const char *at = a->at, *ahead = a->ahead, *end_ahead = a->end;
    const size_t next_row = a->row;
    const int lines = a->lines;
    __m512 out[ROWS][2];
    UNROLL
    for (int i = 0; i < rows; i++)
        out[i][0] = out[i][1] = _mm512_setzero_ps();
    for (const panel_group *end = b + groups; b < end;
         b++, at += int8_operand_bytes(planes, INT8_GROUP)) {
        __m512i sums[ROWS][2];
        for (int i = 0; i < lines && ahead < end_ahead; i++, ahead += LINE)
            _mm_prefetch(ahead, _MM_HINT_T1);
        UNROLL
        for (int i = 0; i < rows; i++)
            sums[i][0] = sums[i][1] = _mm512_setzero_si512();
        plane_add(rows, at, next_row, 0, b, sums);
        if (planes == 2) {
            UNROLL
            for (int i = 0; i < rows; i++) {
                sums[i][0] = _mm512_slli_epi32(sums[i][0], SECOND_BITS);
                sums[i][1] = _mm512_slli_epi32(sums[i][1], SECOND_BITS);
            }
            plane_add(rows, at, next_row, 1, b, sums);
        }
        __m512 steps[2] = {_mm512_load_ps(b->step), _mm512_load_ps(b->step + LANES)};
        __m512 lows[2] = {_mm512_load_ps(b->low), _mm512_load_ps(b->low + LANES)};
        UNROLL
        for (int i = 0; i < rows; i++) {
            __m512 scale = factor(at + (size_t)i * next_row, planes, 0);
            __m512 whole = factor(at + (size_t)i * next_row, planes, 1);
            out[i][0] = weigh(sums[i][0], steps[0], lows[0], scale, whole, out[i][0]);
            out[i][1] = weigh(sums[i][1], steps[1], lows[1], scale, whole, out[i][1]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        _mm512_mask_storeu_ps(c + (size_t)i * row, keep[0], out[i][0]);
        _mm512_mask_storeu_ps(c + (size_t)i * row + LANES, keep[1], out[i][1]);
    }
}

typedef void (*block_function)(const operand *a, const panel_group *b, int groups, float *c,
                               size_t row, const __mmask16 keep[2]);

#define BLOCKS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define DEFINE(rows)                                                                               \
    static void block_##rows##_1(const operand *a, const panel_group *b, int groups, float *c,     \
                                 size_t row, const __mmask16 keep[2]) {                            \
        block_product(rows, 1, a, b, groups, c, row, keep);                                        \
    }                                                                                              \
    static void block_##rows##_2(const operand *a, const panel_group *b, int groups, float *c,     \
                                 size_t row, const __mmask16 keep[2]) {                            \
        block_product(rows, 2, a, b, groups, c, row, keep);                                        \
    }
BLOCKS(DEFINE)
#define ENTRY(rows) {block_##rows##_1, block_##rows##_2},
static const block_function blocks[ROWS][2] = {BLOCKS(ENTRY)};

/*
 * Weights are asked for while others are used. Many rows use a panel again and again, and ask for
 * the next, a share each, of the next part, too; few rows read through the part as fast as memory
 * gives it, so a little ahead, and not what may be another thread's.
 */
static void ask_ahead(operand *from, const panel_group *b, const panel_group *end, int groups,
                      int blocks_of_rows) {
    enum { GROUPS_AHEAD = 4 };
    bool many = blocks_of_rows > 1;
    from->ahead = (const char *)(b + (many ? groups : GROUPS_AHEAD));
    from->end = (const char *)(end + (many ? groups : 0));
    from->lines = (INT8_PANEL_GROUP / LINE + blocks_of_rows - 1) / blocks_of_rows;
}

static void product(const void *a, int rows, int planes, const void *panels, int n, int k,
                    float *c) {
    const panel_group *b = panels;
    int groups = k / INT8_GROUP, blocks_of_rows = (rows + ROWS - 1) / ROWS;
    operand from = {.row = int8_operand_bytes(planes, k)};
    const panel_group *end = b + (n + INT8_COLUMNS - 1) / INT8_COLUMNS * groups;
    for (int first = 0; first < n; first += INT8_COLUMNS, b += groups) {
        int left = BASE_MIN(n - first, INT8_COLUMNS);
        uint32_t mask = left < INT8_COLUMNS ? (1u << left) - 1 : UINT32_MAX;
        __mmask16 keep[2] = {(__mmask16)mask, (__mmask16)(mask >> LANES)};
        ask_ahead(&from, b, end, groups, blocks_of_rows);
        for (int row = 0; row < rows; row += ROWS) {
            from.at = (const char *)a + (size_t)row * from.row;
            blocks[BASE_MIN(rows - row, ROWS) - 1][planes - 1](
                &from, b, groups, c + (size_t)row * (size_t)n + first, (size_t)n, keep);
            from.ahead += groups * from.lines * LINE;
        }
    }
}

/* ---- operands -------------------------------------------------------------------------------- */

BLOCK __m512 magnitude(__m512 x) {
    return _mm512_abs_ps(x);
}

/* The largest magnitude, in the bits of a float: those of what is not finite come behind all
 * others. */
BLOCK uint32_t largest_bits(const __m512 x[2]) {
    __m512i m = _mm512_max_epu32((__m512i)magnitude(x[0]), (__m512i)magnitude(x[1]));
    return _mm512_reduce_max_epu32(m);
}

BLOCK bool all_finite(const __m512 x[2]) {
    return largest_bits(x) < INFINITE;
}

/* Stores 32 digits of x * by to the nearest, and gives their sum. */
BLOCK int digits_store(const __m512 x[2], __m512 by, char *out) {
    __m128i bytes[2];
    for (int i = 0; i < 2; i++) {
        bytes[i] = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x[i], by)));
        _mm_storeu_si128((__m128i *)(void *)(out + i * LANES), bytes[i]);
    }
    __m512i all = _mm512_zextsi256_si512(_mm256_set_m128i(bytes[1], bytes[0]));
    __m512i fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), all);
    __m256i sums = _mm512_castsi512_si256(fours);
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

BLOCK void group_store(const float *from, int planes, char *out) {
    __m512 x[2] = {_mm512_loadu_ps(from), _mm512_loadu_ps(from + LANES)};
    uint32_t bits = largest_bits(x);
    bool finite = bits < INFINITE;
    float most;
    memcpy(&most, &bits, sizeof most);
    static const float least = 1e-30f; /* below it all is 0, before a factor would be infinite */
    float step = most / 127, by = most > least ? 127 / most : 0;
    int sum = digits_store(x, _mm512_set1_ps(by), out);
    if (planes == 2) {
        __m512 rest[2];
        for (int i = 0; i < 2; i++) {
            __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(out + i * LANES));
            __m512 first = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
            rest[i] = _mm512_fnmadd_ps(first, _mm512_set1_ps(step), x[i]);
        }
        float finer = by * (1 << SECOND_BITS);
        sum =
            sum * (1 << SECOND_BITS) + digits_store(rest, _mm512_set1_ps(finer), out + INT8_GROUP);
        step /= 1 << SECOND_BITS;
    }
    float factors[2] = {finite ? step : NAN, finite ? step * (float)sum : NAN};
    memcpy(out + planes * INT8_GROUP, factors, sizeof factors);
}

static void store(const float *x, int k, int planes, void *out) {
    size_t bytes = int8_operand_bytes(planes, INT8_GROUP);
    for (int g = 0; g < k / INT8_GROUP; g++)
        group_store(x + g * INT8_GROUP, planes, (char *)out + (size_t)g * bytes);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Distance of the farthest of 32 values from a whole number of steps above `low`, in steps. */
static float off_grid(const __m512 x[2], __m512 low, float levels_per_unit) {
    __m512 worst = _mm512_setzero_ps();
    for (int i = 0; i < 2; i++) {
        __m512 at = _mm512_mul_ps(_mm512_sub_ps(x[i], low), _mm512_set1_ps(levels_per_unit));
        worst = _mm512_max_ps(worst, magnitude(_mm512_reduce_ps(at, 0)));
    }
    return _mm512_reduce_max_ps(worst);
}

/*
 * Into how many steps the group's range is cut. A file's values lie on a grid of its own; where the
 * range is a whole number of our steps to each of its steps, nothing is rounded. For up to 31 of
 * its steps, there is such a number from 225 to 255; a Q8_0 group has 127 from 0 to its largest.
 */
static int levels_find(const __m512 x[2], float low, float high) {
    static const float exact = 0.02f; /* of a step: what f32's rounding of far-off values does */
    float range = high - low, largest = fmaxf(fabsf(low), fabsf(high));
    int whole = (int)lrintf(range / largest * 127), best = 255;
    float least = off_grid(x, _mm512_set1_ps(low), (float)best / range);
    for (int levels = 254; levels >= 224 && least > exact; levels--) {
        int tried = levels > 224 ? levels : BASE_MIN(BASE_MAX(whole, 1), 255);
        float off = off_grid(x, _mm512_set1_ps(low), (float)tried / range);
        if (off <= exact) {
            least = off;
            best = tried;
        }
    }
    return best;
}

/* One column's group of 32 weights. */
static void column_pack(const float *from, int at, panel_group *out) {
    __m512 x[2] = {_mm512_loadu_ps(from), _mm512_loadu_ps(from + LANES)};
    float low = _mm512_reduce_min_ps(_mm512_min_ps(x[0], x[1]));
    float high = _mm512_reduce_max_ps(_mm512_max_ps(x[0], x[1])), range = high - low;
    uint8_t bytes[INT8_GROUP] = {0};
    out->low[at] = low;
    out->step[at] = 0;
    if (all_finite(x) && range > FLT_MIN * 255 && range <= FLT_MAX) {
        int levels = levels_find(x, low, high);
        out->step[at] = range / (float)levels;
        __m512 by = _mm512_set1_ps((float)levels / range), base = _mm512_set1_ps(low);
        for (int i = 0; i < 2; i++) {
            __m512i whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_sub_ps(x[i], base), by));
            __m128i narrow = _mm512_cvtusepi32_epi8(whole);
            _mm_storeu_si128((__m128i *)(void *)(bytes + i * LANES), narrow);
        }
    } else if (!all_finite(x) || !(range <= FLT_MAX)) {
        out->low[at] = NAN; /* what is not finite is not hidden */
    }
    for (int i = 0; i < QUADS; i++)
        memcpy(out->bytes[i][at], bytes + 4 * i, 4);
}

static void pack(const float *rows, int n, int k, void *panels) {
    panel_group *out = panels;
    int groups = k / INT8_GROUP;
    memset(out, 0, int8_weight_bytes(n, k));
    for (int i = 0; i < n; i++) {
        panel_group *panel = out + (size_t)(i / INT8_COLUMNS) * (size_t)groups;
        for (int g = 0; g < groups; g++)
            column_pack(rows + (size_t)i * (size_t)k + (size_t)g * INT8_GROUP, i % INT8_COLUMNS,
                        panel + g);
    }
}

const int8_kernels int8_vnni = {.pack = pack, .store = store, .product = product};

#else

typedef int int8_vnni_is_of_x86; /* a translation unit must declare something */

#endif
