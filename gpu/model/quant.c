/*
 * quant.c - the table of tensor types: elements and bytes of a block, and its conversion to f32.
 *
 * Invariant: the results equal those of ggml's reference dequantization bit for bit (tests compare
 * with vectors of the gguf Python package). Adding a type is one function and one row. Blocks are
 * read byte by byte: they need no alignment, and their numbers are little-endian. The comment above
 * a function shows the layout of a block. cpu/ and cuda/ pack weights for computing.
 */
#include "gguf_int.h"

#include <string.h>

enum { QK = 32, QK_K = 256 };

/* ---- scales --------------------------------------------------------------------------------- */

float quant_f16(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16, exponent = (bits >> 10) & 31,
             mantissa = bits & 0x3ff;
    uint32_t out;
    if (exponent == 31) {
        out = sign | 0x7f800000u | mantissa << 13;
    } else if (exponent) {
        out = sign | (exponent + 112) << 23 | mantissa << 13;
    } else {
        float tiny = (float)mantissa * 0x1p-24f; /* zero or subnormal: exact in f32 */
        memcpy(&out, &tiny, sizeof out);
        out |= sign;
    }
    float f;
    memcpy(&f, &out, sizeof f);
    return f;
}

static float load_f16(const uint8_t *p) {
    return quant_f16((uint16_t)(p[0] | p[1] << 8));
}

static uint32_t load_u32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* ---- floats --------------------------------------------------------------------------------- */

static void from_f32(const void *blocks, float *out, size_t n) {
    memcpy(out, blocks, n * sizeof *out);
}

static void from_f16(const void *blocks, float *out, size_t n) {
    const uint8_t *p = blocks;
    for (size_t i = 0; i < n; i++)
        out[i] = load_f16(p + 2 * i);
}

static void from_bf16(const void *blocks, float *out, size_t n) {
    const uint8_t *p = blocks;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)p[2 * i] << 16 | (uint32_t)p[2 * i + 1] << 24;
        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* ---- blocks of 32 --------------------------------------------------------------------------- */

/*
 * d f16 | m f16, if has_min | fifth bits u32, if has_fifth | q u8[16]
 *
 * The low nibble of byte i is element i, the high nibble element i + 16. An element is
 * (q - offset) * d + m.
 */
static inline void from_nibbles(const uint8_t *p, float *out, size_t n, bool has_min,
                                bool has_fifth, int offset) {
    const size_t at_fifth = has_min ? 4 : 2, at_q = at_fifth + (has_fifth ? 4 : 0);
    for (size_t b = 0; b < n / QK; b++, p += at_q + 16, out += QK) {
        float d = load_f16(p), m = has_min ? load_f16(p + 2) : 0;
        uint32_t fifth = has_fifth ? load_u32(p + at_fifth) : 0;
        for (int i = 0; i < 16; i++) {
            int low = (p[at_q + (size_t)i] & 15) | (int)(fifth >> i & 1) << 4;
            int high = (p[at_q + (size_t)i] >> 4) | (int)(fifth >> (i + 16) & 1) << 4;
            float x = (float)(low - offset) * d, y = (float)(high - offset) * d;
            out[i] = has_min ? x + m : x; /* adding 0 would turn -0 into 0 */
            out[i + 16] = has_min ? y + m : y;
        }
    }
}

static void from_q4_0(const void *blocks, float *out, size_t n) {
    from_nibbles(blocks, out, n, false, false, 8);
}

static void from_q4_1(const void *blocks, float *out, size_t n) {
    from_nibbles(blocks, out, n, true, false, 0);
}

static void from_q5_0(const void *blocks, float *out, size_t n) {
    from_nibbles(blocks, out, n, false, true, 16);
}

static void from_q5_1(const void *blocks, float *out, size_t n) {
    from_nibbles(blocks, out, n, true, true, 0);
}

/* d f16 | q i8[32] */
static void from_q8_0(const void *blocks, float *out, size_t n) {
    const uint8_t *p = blocks;
    for (size_t b = 0; b < n / QK; b++, p += 34, out += QK) {
        float d = load_f16(p);
        for (int i = 0; i < QK; i++)
            out[i] = (float)(int8_t)p[2 + i] * d;
    }
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};

/* d f16 | index u8[16] */
static void from_iq4_nl(const void *blocks, float *out, size_t n) {
    const uint8_t *p = blocks;
    for (size_t b = 0; b < n / QK; b++, p += 18, out += QK) {
        float d = load_f16(p);
        for (int i = 0; i < 16; i++) {
            out[i] = d * (float)iq4_values[p[2 + i] & 15];
            out[i + 16] = d * (float)iq4_values[p[2 + i] >> 4];
        }
    }
}

/* ---- super-blocks of 256 -------------------------------------------------------------------- */

/* scales (low nibbles) and minima (high nibbles) u8[16] | q u8[64], 2 bits | d f16 | dmin f16 */
static void from_q2_k(const void *blocks, float *out, size_t n) {
    const uint8_t *p = blocks;
    for (size_t b = 0; b < n / QK_K; b++, p += 84, out += QK_K) {
        const uint8_t *scales = p, *q = p + 16;
        float d = load_f16(p + 80), dmin = load_f16(p + 82);
        for (int i = 0; i < QK_K; i++) {
            /* 128 elements share 32 bytes: bits 0-1 are of the first 32 elements, bits 2-3 of the
             * next 32, and so on */
            int group = i / 128, shift = i / 32 % 4 * 2, byte = group * 32 + i % 32;
            uint8_t scale = scales[i / 16];
            float dl = d * (float)(scale & 15), ml = dmin * (float)(scale >> 4);
            out[i] = dl * (float)(q[byte] >> shift & 3) - ml;
        }
    }
}

/* third bits u8[32] | q u8[64], 2 bits | scales 16 of 6 bits u8[12] | d f16 */
static void from_q3_k(const void *blocks, float *out, size_t n) {
    const uint8_t *p = blocks;
    for (size_t b = 0; b < n / QK_K; b++, p += 110, out += QK_K) {
        const uint8_t *high = p, *q = p + 32, *packed = p + 96;
        float d = load_f16(p + 108);
        float scales[16];
        for (int i = 0; i < 16; i++) {
            int low4 = packed[i % 8] >> (i / 8 * 4) & 15;
            int high2 = packed[8 + i % 4] >> (i / 4 * 2) & 3;
            scales[i] = d * (float)((low4 | high2 << 4) - 32);
        }
        for (int i = 0; i < QK_K; i++) {
            int low = q[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
            /* a clear third bit subtracts 4 */
            int offset = high[i % 32] >> (i / 32) & 1 ? 0 : 4;
            out[i] = scales[i / 16] * (float)(low - offset);
        }
    }
}

/* Reads scale and minimum i of eight; each has 6 bits, and all are packed into 12 bytes. Scales 0-3
 * are the low six bits of bytes 0-3, minima 0-3 the low six bits of bytes 4-7. Scales 4-7 have
 * their low four bits in the low nibbles of bytes 8-11 and their high two bits at the top of bytes
 * 0-3. Minima 4-7 have their low four bits in the high nibbles of bytes 8-11 and their high two
 * bits at the top of bytes 4-7. */
static void unpack_scale_min(const uint8_t *p, int i, int *scale, int *min) {
    if (i < 4) {
        *scale = p[i] & 63;
        *min = p[i + 4] & 63;
    } else {
        *scale = (p[i + 4] & 15) | p[i - 4] >> 6 << 4;
        *min = p[i + 4] >> 4 | p[i] >> 6 << 4;
    }
}

/* d f16 | dmin f16 | scales u8[12] | fifth bits u8[32], if has_fifth | q u8[128]: 64 elements share
 * 32 bytes, low nibbles first */
static inline void from_k_nibbles(const uint8_t *p, float *out, size_t n, bool has_fifth) {
    const size_t at_q = has_fifth ? 48 : 16;
    for (size_t b = 0; b < n / QK_K; b++, p += at_q + 128, out += QK_K) {
        float d = load_f16(p), dmin = load_f16(p + 2);
        for (int group = 0; group < 8; group++) {
            int scale, min;
            unpack_scale_min(p + 4, group, &scale, &min);
            float dl = d * (float)scale, ml = dmin * (float)min;
            const uint8_t *fifth = p + 16, *q = p + at_q + group / 2 * 32;
            for (int i = 0; i < 32; i++) {
                int v = q[i] >> (group % 2 * 4) & 15;
                v |= has_fifth ? (fifth[i] >> group & 1) << 4 : 0;
                out[group * 32 + i] = dl * (float)v - ml;
            }
        }
    }
}

static void from_q4_k(const void *blocks, float *out, size_t n) {
    from_k_nibbles(blocks, out, n, false);
}

static void from_q5_k(const void *blocks, float *out, size_t n) {
    from_k_nibbles(blocks, out, n, true);
}

/* low nibbles u8[128] | high pairs of bits u8[64] | scales i8[16] | d f16 */
static void from_q6_k(const void *blocks, float *out, size_t n) {
    const uint8_t *p = blocks;
    for (size_t b = 0; b < n / QK_K; b++, p += 210, out += QK_K) {
        const uint8_t *low = p, *high = p + 128, *scales = p + 192;
        float d = load_f16(p + 208);
        for (int i = 0; i < QK_K; i++) {
            /* 128 elements share 64 low bytes, of two nibbles each, and 32 high bytes, of four
             * pairs of bits each */
            int half = i / 128, j = i % 128;
            int v = (low[half * 64 + j % 64] >> (j / 64 * 4) & 15) |
                    (high[half * 32 + j % 32] >> (j / 32 * 2) & 3) << 4;
            out[i] = d * (float)(int8_t)scales[i / 16] * (float)(v - 32);
        }
    }
}

/* d f16 | scales' high pairs of bits u16 | scales' low nibbles u8[4] | index u8[128] */
static void from_iq4_xs(const void *blocks, float *out, size_t n) {
    const uint8_t *p = blocks;
    for (size_t b = 0; b < n / QK_K; b++, p += 136, out += QK_K) {
        float d = load_f16(p);
        int high = p[2] | p[3] << 8;
        for (int group = 0; group < 8; group++) {
            int scale = (p[4 + group / 2] >> (group % 2 * 4) & 15) | (high >> (2 * group) & 3) << 4;
            float dl = d * (float)(scale - 32);
            const uint8_t *q = p + 8 + group * 16;
            for (int i = 0; i < 16; i++) {
                out[group * 32 + i] = dl * (float)iq4_values[q[i] & 15];
                out[group * 32 + i + 16] = dl * (float)iq4_values[q[i] >> 4];
            }
        }
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

static const quant_type types[] = {
    {GGUF_F32, "F32", 1, 4, 0, from_f32},
    {GGUF_F16, "F16", 1, 2, 0, from_f16},
    {GGUF_BF16, "BF16", 1, 2, 0, from_bf16},
    {GGUF_Q4_0, "Q4_0", QK, 18, 15, from_q4_0},
    {GGUF_Q4_1, "Q4_1", QK, 20, 15, from_q4_1},
    {GGUF_Q5_0, "Q5_0", QK, 22, 31, from_q5_0},
    {GGUF_Q5_1, "Q5_1", QK, 24, 31, from_q5_1},
    {GGUF_Q8_0, "Q8_0", QK, 34, 254, from_q8_0},
    {GGUF_IQ4_NL, "IQ4_NL", QK, 18, 240, from_iq4_nl},
    {GGUF_Q2_K, "Q2_K", QK_K, 84, 0, from_q2_k},
    {GGUF_Q3_K, "Q3_K", QK_K, 110, 0, from_q3_k},
    {GGUF_Q4_K, "Q4_K", QK_K, 144, 15, from_q4_k},
    {GGUF_Q5_K, "Q5_K", QK_K, 176, 31, from_q5_k},
    {GGUF_Q6_K, "Q6_K", QK_K, 210, 0, from_q6_k},
    {GGUF_IQ4_XS, "IQ4_XS", QK_K, 136, 240, from_iq4_xs},
};

const quant_type *quant_find(uint32_t type) {
    for (size_t i = 0; i < BASE_COUNT(types); i++)
        if ((uint32_t)types[i].type == type)
            return &types[i];
    return NULL;
}

const char *quant_type_label(uint32_t type) {
    static const char *const labels[] = {
        [0] = "F32",     [1] = "F16",      [2] = "Q4_0",    [3] = "Q4_1",     [4] = "Q4_2",
        [5] = "Q4_3",    [6] = "Q5_0",     [7] = "Q5_1",    [8] = "Q8_0",     [9] = "Q8_1",
        [10] = "Q2_K",   [11] = "Q3_K",    [12] = "Q4_K",   [13] = "Q5_K",    [14] = "Q6_K",
        [15] = "Q8_K",   [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
        [20] = "IQ4_NL", [21] = "IQ3_S",   [22] = "IQ2_S",  [23] = "IQ4_XS",  [24] = "I8",
        [25] = "I16",    [26] = "I32",     [27] = "I64",    [28] = "F64",     [29] = "IQ1_M",
        [30] = "BF16",   [34] = "TQ1_0",   [35] = "TQ2_0",  [39] = "MXFP4",
    };
    const char *label = type < BASE_COUNT(labels) ? labels[type] : NULL;
    return label ? label : "unknown";
}
