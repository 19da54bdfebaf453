/*
 * int8_impl.h - the source of the products declared in int8_int.h, included by each int8_<isa>.c
 * (kernels_int.h explains how).
 *
 * For ROWS rows × two vectors of columns, the sums of the current group and of the whole product
 * are in registers. Invariant: each result gets the same operations in the same order, in whichever
 * way the rows are divided into blocks of one to ROWS rows.
 */
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

#if defined(__AVX512VNNI__)
enum { LANES = 16, ROWS = 6, LEVELS = 255 };
#elif defined(__AVXVNNI__)
enum { LANES = 8, ROWS = 3, LEVELS = 255 };
#else
#define SUMS_IN_16_BITS
enum { LANES = 8, ROWS = 3, LEVELS = 31 };
#endif
enum {
    QUADS = INT8_GROUP / 4,       /* runs of four values in a group */
    VECTORS = INT8_GROUP / LANES, /* vectors of f32 or int32 that hold a group */
    SECOND_BITS = 8,              /* bits of a digit of the second plane */
    LINE = 64                     /* bytes of a cache line */
};
static const uint32_t INFINITE = 0x7f800000; /* bits of infinity; smaller magnitudes are finite */
/*
 * 3 * 2^22, and its bits. Adding an integer below 2^22 to the bits adds it to the float, so an
 * integer sum that starts at BIAS_BITS is the float BIAS + sum without a conversion. BIAS times a
 * step is exact, since steps have STEP_SPARE bits fewer than floats.
 */
static const float BIAS = 12582912.0f;
enum { BIAS_BITS = 0x4b400000, STEP_SPARE = 2 };
_Static_assert(INT8_GROUP * 255 * 127 < 1 << 22, "a sum of one plane stays below 2^22");

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef uint32_t vu __attribute__((vector_size(4 * LANES)));

typedef struct panel_group {
    float step[INT8_COLUMNS], low[INT8_COLUMNS];
    uint8_t bytes[QUADS][INT8_COLUMNS][4];
} panel_group;

/* ---- vectors --------------------------------------------------------------------------------- */

BLOCK vf load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

BLOCK vi load_bytes(const void *p) {
    vi v;
    memcpy(&v, p, sizeof v);
    return v;
}

BLOCK vf all(float x) {
    return x - (vf){0};
}

BLOCK vi all_int(int32_t x) {
    return x - (vi){0};
}

BLOCK vf magnitude(vf x) {
    return (vf)((vi)x & 0x7fffffff);
}

BLOCK int sum_of_8(__m256i x) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

#if defined(__AVX512VNNI__)
BLOCK vf fused(vf a, vf b, vf c) {
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

BLOCK vf from_int(vi x) {
    return (vf)_mm512_cvtepi32_ps((__m512i)x);
}

BLOCK vi nearest(vf x) {
    return (vi)_mm512_cvtps_epi32((__m512)x);
}

BLOCK vf larger(vf a, vf b) {
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}

BLOCK float largest_lane(vf x) {
    return _mm512_reduce_max_ps((__m512)x);
}

/* Returns x minus the nearest integer. */
BLOCK vf off_integer(vf x) {
    return (vf)_mm512_reduce_ps((__m512)x, 0);
}

/* Stores the first n lanes of v, n > 0. */
BLOCK void store_first(float *c, vf v, int n) {
    __mmask16 keep = (__mmask16)(n < LANES ? (1u << n) - 1 : 0xffff);
    _mm512_mask_storeu_ps(c, keep, (__m512)v);
}

/* Returns sum + four weights · four digits, for one column per lane. */
BLOCK vi quad_add(vi sum, vi weights, vi digits) {
    return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)digits);
}

BLOCK uint32_t largest_bits(const vf x[VECTORS]) {
    return _mm512_reduce_max_epu32(
        _mm512_max_epu32((__m512i)magnitude(x[0]), (__m512i)magnitude(x[1])));
}

/* Returns 32 integers as signed bytes, with saturation. */
BLOCK __m256i signed_bytes(const vi x[VECTORS]) {
    return _mm256_set_m128i(_mm512_cvtsepi32_epi8((__m512i)x[1]),
                            _mm512_cvtsepi32_epi8((__m512i)x[0]));
}

/* Returns 32 integers as unsigned bytes, with saturation. */
BLOCK __m256i unsigned_bytes(const vi x[VECTORS]) {
    return _mm256_set_m128i(_mm512_cvtusepi32_epi8((__m512i)x[1]),
                            _mm512_cvtusepi32_epi8((__m512i)x[0]));
}

BLOCK int bytes_sum(__m256i bytes) {
    __m512i fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1),
                                        _mm512_zextsi256_si512(bytes));
    return sum_of_8(_mm512_castsi512_si256(fours));
}
#else
BLOCK vf fused(vf a, vf b, vf c) {
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

BLOCK vf from_int(vi x) {
    return (vf)_mm256_cvtepi32_ps((__m256i)x);
}

BLOCK vi nearest(vf x) {
    return (vi)_mm256_cvtps_epi32((__m256)x);
}

BLOCK vf larger(vf a, vf b) {
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}

BLOCK float largest_lane(vf x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

BLOCK vf off_integer(vf x) {
    return x - (vf)_mm256_round_ps((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

BLOCK void store_first(float *c, vf v, int n) {
    vi lane = {0, 1, 2, 3, 4, 5, 6, 7};
    if (n >= LANES)
        _mm256_storeu_ps(c, (__m256)v);
    else
        _mm256_maskstore_ps(c, (__m256i)(lane < n), (__m256)v);
}

#if defined(__AVXVNNI__)
BLOCK vi quad_add(vi sum, vi weights, vi digits) {
    return (vi)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)weights, (__m256i)digits);
}
#endif

BLOCK uint32_t largest_bits(const vf x[VECTORS]) {
    __m256i m =
        _mm256_max_epu32(_mm256_max_epu32((__m256i)magnitude(x[0]), (__m256i)magnitude(x[1])),
                         _mm256_max_epu32((__m256i)magnitude(x[2]), (__m256i)magnitude(x[3])));
    __m128i s = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    s = _mm_max_epu32(s, _mm_shuffle_epi32(s, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* Restores the order after AVX2 pack instructions, which work on halves of 128 bits. */
BLOCK __m256i in_order(__m256i packed) {
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

BLOCK __m256i signed_bytes(const vi x[VECTORS]) {
    return in_order(_mm256_packs_epi16(_mm256_packs_epi32((__m256i)x[0], (__m256i)x[1]),
                                       _mm256_packs_epi32((__m256i)x[2], (__m256i)x[3])));
}

BLOCK __m256i unsigned_bytes(const vi x[VECTORS]) {
    return in_order(_mm256_packus_epi16(_mm256_packs_epi32((__m256i)x[0], (__m256i)x[1]),
                                        _mm256_packs_epi32((__m256i)x[2], (__m256i)x[3])));
}

BLOCK int bytes_sum(__m256i bytes) {
    __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
    return sum_of_8(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
#endif

/* As integers, the bits of infinity and NaN are larger than those of all other magnitudes. */
BLOCK bool all_finite(const vf x[VECTORS]) {
    return largest_bits(x) < INFINITE;
}

/* ---- products -------------------------------------------------------------------------------- */

/* What a block of rows reads. It is passed by pointer, since copying it right after its members
 * were stored would stall. */
typedef struct operand {
    const char *at;          /* the groups of the block's first row */
    size_t row;              /* bytes from one row to the next */
    const char *ahead, *end; /* the memory to prefetch is [ahead, end) */
    int lines;               /* cache lines to prefetch per group */
} operand;

/* Returns digits 4k … 4k+3 of a row's group at `at`, in every lane. */
BLOCK vi quad(const char *at, int plane, int k) {
    int32_t digits;
    memcpy(&digits, at + plane * INT8_GROUP + 4 * k, sizeof digits);
    return all_int(digits);
}

/* Returns the group's scale (`which` 0) or its sum (`which` 1), in every lane. */
BLOCK vf factor(const char *at, int planes, int which) {
    float x;
    memcpy(&x, at + planes * INT8_GROUP + which * (int)sizeof x, sizeof x);
    return all(x);
}

#if defined(SUMS_IN_16_BITS)
/* Without VNNI, the products of pairs are first added over four quads, which gives sums that fit 16
 * bits. These sums are then added in 32 bits. */
enum { QUADS_IN_16_BITS = 4 };
_Static_assert(QUADS_IN_16_BITS * 2 * LEVELS * 128 < 1 << 15, "sums of pairs fit 16 bits");

BLOCK void plane_add(int rows, const char *at, size_t row, int plane, const panel_group *b,
                     int first, vi sums[ROWS][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL
    for (int part = 0; part < QUADS; part += QUADS_IN_16_BITS) {
        __m256i pairs[ROWS][2];
        UNROLL
        for (int k = part; k < part + QUADS_IN_16_BITS; k++) {
            __m256i left = (__m256i)load_bytes(b->bytes[k][first]);
            __m256i right = (__m256i)load_bytes(b->bytes[k][first + LANES]);
            UNROLL
            for (int i = 0; i < rows; i++) {
                __m256i digits = (__m256i)quad(at + (size_t)i * row, plane, k);
                __m256i products[2] = {_mm256_maddubs_epi16(left, digits),
                                       _mm256_maddubs_epi16(right, digits)};
                for (int v = 0; v < 2; v++)
                    pairs[i][v] =
                        k == part ? products[v] : _mm256_add_epi16(pairs[i][v], products[v]);
            }
        }
        UNROLL
        for (int i = 0; i < rows; i++)
            for (int v = 0; v < 2; v++)
                sums[i][v] += (vi)_mm256_madd_epi16(pairs[i][v], ones);
    }
}
#else
BLOCK void plane_add(int rows, const char *at, size_t row, int plane, const panel_group *b,
                     int first, vi sums[ROWS][2]) {
    UNROLL
    for (int k = 0; k < QUADS; k++) {
        vi left = load_bytes(b->bytes[k][first]), right = load_bytes(b->bytes[k][first + LANES]);
        UNROLL
        for (int i = 0; i < rows; i++) {
            vi digits = quad(at + (size_t)i * row, plane, k);
            sums[i][0] = quad_add(sums[i][0], left, digits);
            sums[i][1] = quad_add(sums[i][1], right, digits);
        }
    }
}
#endif

/* The factors of LANES columns in one group of a panel. base = -BIAS * step removes the bias. */
typedef struct column_factors {
    vf step, low, base;
} column_factors;

BLOCK column_factors factors_load(const panel_group *b, int first) {
    vf step = load(b->step + first);
    return (column_factors){step, load(b->low + first), step * all(-BIAS)};
}

/* Returns step * (digits · bytes), rounded once. With one plane, `sum` includes the bias. */
BLOCK vf stepped(int planes, vi sum, const column_factors *f) {
    return planes == 1 ? fused((vf)sum, f->step, f->base) : from_int(sum) * f->step;
}

BLOCK vf weigh(int planes, vi sum, const column_factors *f, vf scale, vf whole, vf out) {
    return fused(f->low, whole, fused(stepped(planes, sum, f), scale, out));
}

/* Computes c[rows, 2 * LANES] for the columns from `first` of one panel, of which `left` are
 * columns of the matrix. */
BLOCK void block_product(int rows, int planes, const operand *a, const panel_group *b, int groups,
                         int first, float *c, size_t row, int left) {
    const char *at = a->at, *ahead = a->ahead, *end_ahead = a->end;
    const size_t next_row = a->row;
    const int lines = a->lines;
    vf out[ROWS][2];
    UNROLL
    for (int i = 0; i < rows; i++)
        out[i][0] = out[i][1] = (vf){0};
    for (const panel_group *end = b + groups; b < end;
         b++, at += int8_operand_bytes(planes, INT8_GROUP)) {
        vi sums[ROWS][2];
        for (int i = 0; i < lines && ahead < end_ahead; i++, ahead += LINE)
            _mm_prefetch(ahead, _MM_HINT_T1);
        UNROLL
        for (int i = 0; i < rows; i++)
            sums[i][0] = sums[i][1] = all_int(planes == 1 ? BIAS_BITS : 0);
        plane_add(rows, at, next_row, 0, b, first, sums);
        if (planes == 2) {
            UNROLL
            for (int i = 0; i < rows; i++) {
                sums[i][0] = (vi)((vu)sums[i][0] << SECOND_BITS);
                sums[i][1] = (vi)((vu)sums[i][1] << SECOND_BITS);
            }
            plane_add(rows, at, next_row, 1, b, first, sums);
        }
        column_factors near = factors_load(b, first), far = factors_load(b, first + LANES);
        UNROLL
        for (int i = 0; i < rows; i++) {
            vf scale = factor(at + (size_t)i * next_row, planes, 0);
            vf whole = factor(at + (size_t)i * next_row, planes, 1);
            out[i][0] = weigh(planes, sums[i][0], &near, scale, whole, out[i][0]);
            out[i][1] = weigh(planes, sums[i][1], &far, scale, whole, out[i][1]);
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        store_first(c + (size_t)i * row, out[i][0], left);
        if (left > LANES)
            store_first(c + (size_t)i * row + LANES, out[i][1], left - LANES);
    }
}

typedef void (*block_function)(const operand *a, const panel_group *b, int groups, int first,
                               float *c, size_t row, int left);

#define DEFINE(rows)                                                                               \
    static void block_##rows##_1(const operand *a, const panel_group *b, int groups, int first,    \
                                 float *c, size_t row, int left) {                                 \
        block_product(rows, 1, a, b, groups, first, c, row, left);                                 \
    }                                                                                              \
    static void block_##rows##_2(const operand *a, const panel_group *b, int groups, int first,    \
                                 float *c, size_t row, int left) {                                 \
        block_product(rows, 2, a, b, groups, first, c, row, left);                                 \
    }
#define ENTRY(rows) {block_##rows##_1, block_##rows##_2},
#if defined(__AVX512VNNI__)
#define BLOCKS(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define BLOCKS(X) X(1) X(2) X(3)
#endif
BLOCKS(DEFINE)
static const block_function blocks[ROWS][2] = {BLOCKS(ENTRY)};

/*
 * Sets what the blocks of rows prefetch. With several blocks of rows, a panel is used several
 * times, and each use prefetches a share of the next panel, also beyond the end of this part. With
 * a single block, memory bandwidth is the limit: the block prefetches a few groups ahead. It
 * prefetches nothing beyond the end of this part, since another thread may compute the next part.
 */
static void prefetch_set(operand *from, const panel_group *b, const panel_group *end, int groups,
                         int blocks_of_rows) {
    enum { GROUPS_AHEAD = 4, LINES = INT8_PANEL_GROUP / LINE, PARTS = INT8_COLUMNS / (2 * LANES) };
    bool many = blocks_of_rows > 1;
    int uses = many ? blocks_of_rows * PARTS : 1;
    from->ahead = (const char *)(b + (many ? groups : GROUPS_AHEAD));
    from->end = (const char *)(end + (many ? groups : 0));
    from->lines = (LINES + uses - 1) / uses;
}

static void product(const void *a, int rows, int planes, const void *panels, int n, int k,
                    float *c) {
    const panel_group *b = panels;
    int groups = k / INT8_GROUP, blocks_of_rows = (rows + ROWS - 1) / ROWS;
    operand from = {.row = int8_operand_bytes(planes, k)};
    const panel_group *end = b + (n + INT8_COLUMNS - 1) / INT8_COLUMNS * groups;
    for (int at = 0; at < n; at += 2 * LANES) {
        int first = at % INT8_COLUMNS;
        if (first == 0)
            prefetch_set(&from, b, end, groups, blocks_of_rows);
        for (int row = 0; row < rows; row += ROWS) {
            from.at = (const char *)a + (size_t)row * from.row;
            blocks[BASE_MIN(rows - row, ROWS) - 1][planes - 1](
                &from, b, groups, first, c + (size_t)row * (size_t)n + at, (size_t)n,
                BASE_MIN(n - at, 2 * LANES));
            from.ahead += groups * from.lines * LINE;
        }
        if (first + 2 * LANES == INT8_COLUMNS)
            b += groups;
    }
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Stores 32 values x * by, rounded to integers, as digits. Returns the sum of the digits. */
BLOCK int digits_store(const vf x[VECTORS], vf by, char *out) {
    vi whole[VECTORS];
    UNROLL
    for (int i = 0; i < VECTORS; i++)
        whole[i] = nearest(x[i] * by);
    __m256i bytes = signed_bytes(whole);
    memcpy(out, &bytes, sizeof bytes);
    return bytes_sum(bytes);
}

BLOCK void group_store(const float *from, int planes, char *out) {
    vf x[VECTORS];
    UNROLL
    for (int i = 0; i < VECTORS; i++)
        x[i] = load(from + i * LANES);
    uint32_t bits = largest_bits(x);
    bool finite = bits < INFINITE;
    float most;
    memcpy(&most, &bits, sizeof most);
    /* groups with smaller magnitudes become 0: 127 / most could overflow */
    static const float least = 1e-30f;
    float step = most / 127, by = most > least ? 127 / most : 0;
    int sum = digits_store(x, all(by), out);
    if (planes == 2) {
        vf rest[VECTORS];
        UNROLL
        for (int i = 0; i < VECTORS; i++)
            rest[i] = fused(-from_int(nearest(x[i] * all(by))), all(step), x[i]);
        float finer = by * (1 << SECOND_BITS);
        sum = sum * (1 << SECOND_BITS) + digits_store(rest, all(finer), out + INT8_GROUP);
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

/* Returns the largest of 32 values. */
static float largest_of(const vf x[VECTORS]) {
    vf top = x[0];
    for (int i = 1; i < VECTORS; i++)
        top = larger(top, x[i]);
    return largest_lane(top);
}

/* Returns the maximum distance, in steps, of the 32 values from the grid low + i /
 * levels_per_unit. */
static float off_grid(const vf x[VECTORS], float low, float levels_per_unit) {
    vf off[VECTORS];
    for (int i = 0; i < VECTORS; i++)
        off[i] = magnitude(off_integer((x[i] - all(low)) * all(levels_per_unit)));
    return largest_of(off);
}

/*
 * Returns the number of steps for the group's range. The values of a quantised file are on the grid
 * of the file's own steps. Nothing is rounded if the returned number is a multiple of the number of
 * file steps in the range. A number of file steps up to 31 has a multiple from 225 to 255 (with
 * LEVELS = 31: from 16 to 31). A Q8_0 group has 127 file steps from 0 to its largest magnitude;
 * `whole`, the number of these steps in the range, is tried last.
 */
static int levels_find(const vf x[VECTORS], float low, float high) {
    static const float exact = 0.02f; /* in steps: f32 rounding of values far from `low` */
    enum { LEAST = LEVELS == 255 ? 225 : LEVELS / 2 + 1 };
    float range = high - low, largest = fmaxf(fabsf(low), fabsf(high));
    int whole = (int)lrintf(range / largest * 127), best = LEVELS;
    float least = off_grid(x, low, (float)best / range);
    for (int levels = LEVELS - 1; levels >= LEAST - 1 && least > exact; levels--) {
        int tried = levels >= LEAST ? levels : BASE_MIN(BASE_MAX(whole, 1), LEVELS);
        float off = off_grid(x, low, (float)tried / range);
        if (off <= exact) {
            least = off;
            best = tried;
        }
    }
    return best;
}

/* Returns the nearest step by which BIAS can be multiplied exactly. */
static float step_round(float step) {
    uint32_t bits, spare = (1u << STEP_SPARE) - 1;
    memcpy(&bits, &step, sizeof bits);
    bits = (bits + spare / 2 + 1) & ~spare;
    memcpy(&step, &bits, sizeof step);
    return step;
}

/* Packs one column's group of 32 weights. */
static void column_pack(const float *from, int at, panel_group *out) {
    vf x[VECTORS], negative[VECTORS];
    for (int i = 0; i < VECTORS; i++) {
        x[i] = load(from + i * LANES);
        negative[i] = -x[i];
    }
    float low = -largest_of(negative), high = largest_of(x), range = high - low;
    __m256i bytes = _mm256_setzero_si256();
    out->low[at] = low;
    out->step[at] = 0;
    if (all_finite(x) && range > FLT_MIN * 255 && range <= FLT_MAX / BIAS) {
        int levels = levels_find(x, low, high);
        out->step[at] = step_round(range / (float)levels);
        vi whole[VECTORS];
        for (int i = 0; i < VECTORS; i++)
            whole[i] = nearest((x[i] - all(low)) * all((float)levels / range));
        bytes = unsigned_bytes(whole);
    } else if (!all_finite(x) || !(range <= FLT_MAX / BIAS)) {
        out->low[at] = NAN; /* weights that are not finite must show in the results */
    }
    for (int i = 0; i < QUADS; i++)
        memcpy(out->bytes[i][at], (const char *)&bytes + 4 * i, 4);
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

const int8_kernels INT8_TABLE = {.name = INT8_NAME,
                                 .levels = LEVELS,
#if !defined(SUMS_IN_16_BITS)
                                 .planes_gain = true,
#endif
                                 .pack = pack,
                                 .store = store,
                                 .product = product};
