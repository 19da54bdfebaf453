/*
 * kernels_impl.h - the source of all kernel tables, included by each kernels_<isa>.c
 * (kernels_int.h explains how).
 *
 * Vectors of W floats use gcc's vector extension; intrinsics are used only for operations that it
 * lacks. Sums are kept as W partial sums, which are added in a fixed tree. Invariant: no loop's
 * order of operations depends on how many rows or queries are in the call. The file is compiled
 * with -ffp-contract=off: multiplications and additions are fused only by fma_v.
 */
#include <math.h>
#include <string.h>

#include "kernels_int.h"
#include "model/config_int.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#define W 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define W 8
#else
#define W 4
#endif

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef uint16_t vh __attribute__((vector_size(2 * W)));
typedef int8_t vb __attribute__((vector_size(W)));

/* The number of queries in one tile: their scores and sums are in registers at the same time. */
#if W == 16
#define TILE 6
#else
#define TILE 2
#endif

#define KEYS LLM_BLOCK_TOKENS
/* For loops over a tile's queries: their scores stay in registers only if the loop is unrolled. */
#if defined(__GNUC__) && !defined(__clang__)
#define UNROLL _Pragma("GCC unroll 8")
#else
#define UNROLL _Pragma("unroll 8")
#endif
#define KV (KEYS / W) /* vectors of scores per query and block */

static inline vf load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, vf v) {
    memcpy(p, &v, sizeof v);
}

static inline vf all(float x) {
    return x - (vf){0};
}

static inline vf fma_v(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

static inline vf pick(vi mask, vf a, vf b) {
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* Returns a > b ? a : b; min_v returns a < b ? a : b. With a NaN the result is b, as the
 * instructions define it. */
static inline vf max_v(vf a, vf b) {
#if defined(__AVX512F__)
    return (vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return pick(a > b, a, b);
#endif
}

static inline vf min_v(vf a, vf b) {
#if defined(__AVX512F__)
    return (vf)_mm512_min_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (vf)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return pick(a < b, a, b);
#endif
}

/* Lane i of the result is lane i ^ n of v. */
#if W == 16
#define SWAP8(v) __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define SWAP4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)
#define SWAP2(v) __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)
#define SWAP1(v) __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)
#elif W == 8
#define SWAP4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3)
#define SWAP2(v) __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5)
#define SWAP1(v) __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6)
#else
#define SWAP2(v) __builtin_shufflevector(v, v, 2, 3, 0, 1)
#define SWAP1(v) __builtin_shufflevector(v, v, 1, 0, 3, 2)
#endif

/* Sums the lanes in a fixed tree; every lane gets the sum. */
static inline vf sum_lanes(vf v) {
#if W == 16
    v = v + SWAP8(v);
#endif
#if W >= 8
    v = v + SWAP4(v);
#endif
    v = v + SWAP2(v);
    return v + SWAP1(v);
}

static inline vf max_lanes(vf v) {
#if W == 16
    v = max_v(v, SWAP8(v));
#endif
#if W >= 8
    v = max_v(v, SWAP4(v));
#endif
    v = max_v(v, SWAP2(v));
    return max_v(v, SWAP1(v));
}

#if defined(__AVX512DQ__)
/* e^x = 2^floor(y) * 2^f, y = x log2(e), f = y - floor(y); 2^f by a polynomial of degree 5 that
 * is 1 at 0 (relative error below 2e-7 + 5e-8 |x|). Returns 0 below -87. */
static inline vf exp_v(vf x) {
    enum { LESS_FLOOR = 1 }; /* operand of VREDUCEPS for x - floor(x) */
    __m512 y = (__m512)(x * all(1.44269504088896341f));
    vf f = (vf)_mm512_reduce_ps(y, LESS_FLOOR);
    vf p = fma_v(all(1.8671324e-3f), f, all(9.017025e-3f));
    p = fma_v(p, f, all(5.5799916e-2f));
    p = fma_v(p, f, all(2.4016444e-1f));
    p = fma_v(p, f, all(6.931513e-1f));
    p = fma_v(p, f, all(1.0f));
    __mmask16 kept = _mm512_cmp_ps_mask((__m512)x, (__m512)all(-87.0f), _CMP_NLT_UQ);
    return (vf)_mm512_maskz_scalef_ps(kept, (__m512)p, y);
}
#else
/* e^x = 2^n * e^r, |r| <= ln2/2, e^r by a polynomial of degree 6 (relative error about 2e-7).
 * Returns 0 below -87. */
static inline vf exp_v(vf x) {
    const vf magic = all(12582912.0f);
    const vf in = min_v(all(88.0f), max_v(all(-87.0f), x));
    vf t = fma_v(in, all(1.44269504088896341f), magic);
    vi n = (vi)t - (vi)magic;
    vf nf = t - magic;
    vf r = fma_v(nf, all(-0.693359375f), in);
    r = fma_v(nf, all(2.12194440e-4f), r);
    vf p = fma_v(all(1.3981999507e-3f), r, all(8.3334519073e-3f));
    p = fma_v(p, r, all(4.1665795894e-2f));
    p = fma_v(p, r, all(1.6666665459e-1f));
    p = fma_v(p, r, all(5.0000001201e-1f));
    p = fma_v(p, r * r, r + all(1.0f));
    vf scale = (vf)((n + 127) << 23);
    return pick(x < all(-87.0f), (vf){0}, p * scale);
}
#endif

/* Loads a tail shorter than a vector, padded with zeros, so that it gets the same operations as a
 * whole vector. */
static inline vf load_tail(const float *p, int n) {
    float x[W] = {0};
    memcpy(x, p, sizeof(float) * (size_t)n);
    return load(x);
}

static inline void store_tail(float *p, vf v, int n) {
    float x[W];
    store(x, v);
    memcpy(p, x, sizeof(float) * (size_t)n);
}

static void k_exp(const float *x, int n, float *out) {
    int i = 0;
    for (; i + W <= n; i += W)
        store(out + i, exp_v(load(x + i)));
    if (i < n)
        store_tail(out + i, exp_v(load_tail(x + i, n - i)), n - i);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static float k_dot(const float *a, const float *b, int n) {
    vf s0 = {0}, s1 = {0};
    int i = 0;
    for (; i + 2 * W <= n; i += 2 * W) {
        s0 = fma_v(load(a + i), load(b + i), s0);
        s1 = fma_v(load(a + i + W), load(b + i + W), s1);
    }
    for (; i + W <= n; i += W)
        s0 = fma_v(load(a + i), load(b + i), s0);
    if (i < n)
        s0 = fma_v(load_tail(a + i, n - i), load_tail(b + i, n - i), s0);
    return sum_lanes(s0 + s1)[0];
}

static inline bool any_equal(vf a, vf b) {
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_EQ_OQ)) != 0;
#else
    vi equal = a == b;
    return (equal[0] | equal[1] | equal[2] | equal[3]) != 0;
#endif
}

static int k_largest(const float *x, int n) {
    vf best = all(-INFINITY);
    int i = 0;
    for (; i + W <= n; i += W)
        best = max_v(load(x + i), best);
    float top = max_lanes(best)[0];
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (i = 0; i + W <= n && !any_equal(load(x + i), all(top)); i += W) {
    }
    while (i < n && x[i] != top)
        i++;
    return i < n ? i : 0;
}

static void k_rms_norm(const float *x, const float *w, float eps, int n, float *out) {
    float scale = 1.0f / sqrtf(k_dot(x, x, n) / (float)n + eps);
    int i = 0;
    for (; i + W <= n; i += W) {
        vf y = load(x + i) * all(scale);
        store(out + i, w != NULL ? y * load(w + i) : y);
    }
    for (; i < n; i++)
        out[i] = w != NULL ? x[i] * scale * w[i] : x[i] * scale;
}

static void k_layer_norm(const float *x, const float *w, const float *b, float eps, int n,
                         float *out) {
    vf sum = {0};
    int i = 0;
    for (; i + W <= n; i += W)
        sum += load(x + i);
    if (i < n)
        sum += load_tail(x + i, n - i);
    float mean = sum_lanes(sum)[0] / (float)n;
    for (i = 0; i < n; i++)
        out[i] = x[i] - mean;
    float scale = 1.0f / sqrtf(k_dot(out, out, n) / (float)n + eps);
    for (i = 0; i + W <= n; i += W)
        store(out + i, fma_v(load(out + i) * all(scale), load(w + i), load(b + i)));
    if (i < n) {
        vf y = load_tail(out + i, n - i) * all(scale);
        store_tail(out + i, fma_v(y, load_tail(w + i, n - i), load_tail(b + i, n - i)), n - i);
    }
}

static void k_to_bf16(const float *x, int n, uint16_t *out) {
    int i = 0;
    for (; i + W <= n; i += W) {
#if defined(__AVX512BF16__)
        __m256bh h = _mm512_cvtneps_pbh((__m512)load(x + i));
#else
        vu u = (vu)load(x + i);
        u = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
        vh h = __builtin_convertvector(u, vh);
#endif
        memcpy(out + i, &h, sizeof h);
    }
    for (; i < n; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        out[i] = (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
    }
}

static void k_from_bf16(const uint16_t *x, int n, float *out) {
    int i = 0;
    for (; i + W <= n; i += W) {
        vh h;
        memcpy(&h, x + i, sizeof h);
        store(out + i, (vf)(__builtin_convertvector(h, vu) << 16));
    }
    for (; i < n; i++) {
        uint32_t u = (uint32_t)x[i] << 16;
        memcpy(out + i, &u, 4);
    }
}

static inline vf abs_v(vf x) {
    return (vf)((vi)x & 0x7fffffff);
}

static float k_to_int8(const float *x, int n, int8_t *out) {
    vf top = {0};
    int i = 0;
    for (; i + W <= n; i += W)
        top = max_v(abs_v(load(x + i)), top);
    float largest = max_lanes(top)[0];
    for (; i < n; i++)
        largest = fmaxf(largest, fabsf(x[i]));
    float scale = largest / 127.0f, inverse = largest > 0 ? 127.0f / largest : 0;
    /* adding 1.5 * 2^23 rounds to an integer, which the low bits of the sum hold */
    const vf magic = all(12582912.0f);
    for (i = 0; i + W <= n; i += W) {
        vi q = (vi)(load(x + i) * all(inverse) + magic) - (vi)magic;
        vb b = __builtin_convertvector(q, vb);
        memcpy(out + i, &b, sizeof b);
    }
    for (; i < n; i++)
        out[i] = (int8_t)lrintf(x[i] * inverse);
    return scale;
}

static void k_int8_to_bf16(const int8_t *x, int n, uint16_t *out) {
    int i = 0;
    for (; i + W <= n; i += W) {
        vb b;
        memcpy(&b, x + i, sizeof b);
        vh h = __builtin_convertvector((vu) __builtin_convertvector(b, vf) >> 16, vh);
        memcpy(out + i, &h, sizeof h);
    }
    for (; i < n; i++) {
        uint32_t u;
        float f = (float)x[i];
        memcpy(&u, &f, 4);
        out[i] = (uint16_t)(u >> 16);
    }
}

static void k_add(float *x, const float *y, int n) {
    for (int i = 0; i < n; i++)
        x[i] += y[i];
}

static void k_scale(float *x, float by, int n) {
    for (int i = 0; i < n; i++)
        x[i] *= by;
}

static void k_rope(float *x, const float *cs, int half) {
    int i = 0;
    for (; i + W <= half; i += W) {
        vf a = load(x + i), b = load(x + half + i), c = load(cs + i), s = load(cs + half + i);
        store(x + i, fma_v(a, c, -(b * s)));
        store(x + half + i, fma_v(b, c, a * s));
    }
    for (; i < half; i++) {
        float a = x[i], b = x[half + i];
        x[i] = a * cs[i] - b * cs[half + i];
        x[half + i] = b * cs[i] + a * cs[half + i];
    }
}

static inline vf silu_v(vf x) {
    return x / (all(1.0f) + exp_v(-x));
}

static inline vf gelu_v(vf x) {
    vf inner = all(0.79788456080286535588f) * x * fma_v(all(0.044715f) * x, x, all(1.0f));
    vf e = exp_v(all(2.0f) * inner);
    vf tanh = all(1.0f) - all(2.0f) / (e + all(1.0f));
    return all(0.5f) * x * (all(1.0f) + tanh);
}

static void k_swiglu(const float *gate, const float *up, int n, float *out) {
    int i = 0;
    for (; i + W <= n; i += W)
        store(out + i, silu_v(load(gate + i)) * load(up + i));
    if (i < n)
        store_tail(out + i, silu_v(load_tail(gate + i, n - i)) * load_tail(up + i, n - i), n - i);
}

static void k_geglu(const float *gate, const float *up, int n, float *out) {
    int i = 0;
    for (; i + W <= n; i += W)
        store(out + i, gelu_v(load(gate + i)) * load(up + i));
    if (i < n)
        store_tail(out + i, gelu_v(load_tail(gate + i, n - i)) * load_tail(up + i, n - i), n - i);
}

/* x/2 (1 + erf(x / sqrt(2))), erf by Abramowitz and Stegun 7.1.26 (absolute error below 1.5e-7). */
static inline vf gelu_erf_v(vf x) {
    vf z = abs_v(x) * all(0.70710678118654752440f);
    vf t = all(1.0f) / fma_v(all(0.3275911f), z, all(1.0f));
    vf p = fma_v(all(1.061405429f), t, all(-1.453152027f));
    p = fma_v(p, t, all(1.421413741f));
    p = fma_v(p, t, all(-0.284496736f));
    p = fma_v(p, t, all(0.254829592f));
    vf rest = p * t * exp_v(-(z * z)); /* 1 - erf(|x| / sqrt(2)) */
    vf half = all(0.5f) * x;
    return pick(x < (vf){0}, half * rest, fma_v(-half, rest, x));
}

static void k_gelu(const float *x, const float *b, int n, float *out) {
    int i = 0;
    for (; i + W <= n; i += W)
        store(out + i, gelu_erf_v(b != NULL ? load(x + i) + load(b + i) : load(x + i)));
    if (i < n) {
        vf y = load_tail(x + i, n - i);
        store_tail(out + i, gelu_erf_v(b != NULL ? y + load_tail(b + i, n - i) : y), n - i);
    }
}

/* ---- attention ------------------------------------------------------------------------------- */

/* Loads pairs of bf16, each in 32 bits with the first of the pair low. A pair is two dimensions of
 * a key, or one dimension of two keys' values. */
static inline vu load_pairs(const uint16_t *p) {
    vu v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline vf first_of(vu pairs) {
    return (vf)(pairs << 16);
}

static inline vf second_of(vu pairs) {
    return (vf)(pairs & 0xffff0000u);
}

/* The type of queries that are multiplied with pairs. */
#if defined(__AVX512BF16__)
typedef uint16_t query;

static inline vf dot_pairs(vf sum, uint32_t x, vu pairs) {
    return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32((int)x), (__m512bh)pairs);
}

/* Rounds n floats to n/2 pairs of bf16, to nearest even. */
static inline void narrow_pairs(const float *x, int n, uint32_t *out) {
    for (int i = 0; i < n; i += W) {
        __m256bh h = _mm512_cvtneps_pbh((__m512)load(x + i));
        memcpy(out + i / 2, &h, sizeof h);
    }
}
#else
typedef float query;
#endif

/* Prefetches piece i of a->steps. */
static inline __attribute__((always_inline)) void ahead_prefetch(const attend_ahead *a, int i) {
    if (i < a->steps) {
        __builtin_prefetch(a->at + i * 128, 0, 2);
        __builtin_prefetch(a->at + i * 128 + a->second, 0, 2);
    }
}

/* Adds to s[t][nk] the scores of T queries with the first nk vectors of the block's keys. Callers
 * pass constant T and nk, so the loops are unrolled. */
static inline __attribute__((always_inline)) void scores(const query *q, int d, const uint16_t *kt,
                                                         int T, int nk, const attend_ahead *ahead,
                                                         vf s[][KV]) {
    const int half = d / 2;
    for (int i = 0; i < half; i++) {
        ahead_prefetch(ahead, i);
        for (int k = 0; k < nk; k++) {
            vu pairs = load_pairs(kt + 2 * i * KEYS + 2 * k * W);
            for (int t = 0; t < T; t++) {
#if defined(__AVX512BF16__)
                uint32_t two;
                memcpy(&two, q + t * d + 2 * i, sizeof two);
                s[t][k] = dot_pairs(s[t][k], two, pairs);
#else
                s[t][k] = fma_v(all(q[t * d + 2 * i]), first_of(pairs), s[t][k]);
                s[t][k] = fma_v(all(q[t * d + 2 * i + 1]), second_of(pairs), s[t][k]);
#endif
            }
        }
    }
}

/* Like `scores`, for keys in f32. */
static inline __attribute__((always_inline)) void scores_wide(const float *q, int d,
                                                              const float *kt, int T, int nk,
                                                              const attend_ahead *ahead,
                                                              vf s[][KV]) {
    for (int i = 0; i < d; i++) {
        ahead_prefetch(ahead, i);
        for (int k = 0; k < nk; k++) {
            vf keys = load(kt + i * KEYS + k * W);
            for (int t = 0; t < T; t++)
                s[t][k] = fma_v(all(q[t * d + i]), keys, s[t][k]);
        }
    }
}

static inline vf softcap_v(vf x, float cap) {
    vf e = exp_v(all(2.0f / cap) * x);
    return all(cap) * (all(1.0f) - all(2.0f) / (e + all(1.0f)));
}

static inline vi lanes(void) {
    vi lane;
    for (int i = 0; i < W; i++)
        lane[i] = i;
    return lane;
}

/* Sets the scores of keys outside [low, high) to -infinity. */
static inline void scores_mask(vf s[KV], int low, int high) {
    vi lane = lanes();
    for (int k = 0; k < KV; k++) {
        vi key = lane + k * W;
        s[k] = pick((key >= low) & (key < high), s[k], all(-INFINITY));
    }
}

/* Applies what the unit says of the scores of one query: the keys' scales, the soft cap, which keys the
 * query sees. */
static inline __attribute__((always_inline)) void scores_finish(const attend_unit *u, int at,
                                                                vf s[KV]) {
    for (int k = 0; u->key_scale != NULL && k < KV; k++)
        s[k] *= load(u->key_scale + k * W);
    for (int k = 0; u->softcap > 0 && k < KV; k++)
        s[k] = softcap_v(s[k], u->softcap);
    if (u->low[at] > 0 || u->high[at] < KEYS)
        scores_mask(s, u->low[at], u->high[at]);
}

/* Turns the scores of T queries, from query `at` on, into weights p[t][KEYS] and updates top and
 * sum. Sets old[t] to the factor for the query's earlier sums. A query that sees no key of the
 * block (because of a window) keeps its state. */
static inline __attribute__((always_inline)) void weigh(const attend_unit *u, int at, int T,
                                                        vf s[][KV], float *p, float *old) {
    vf fall = {0}, top[TILE];
    UNROLL
    for (int t = 0; t < T; t++) {
        int i = at + t;
        scores_finish(u, i, s[t]);
        vf best = s[t][0];
        for (int k = 1; k < KV; k++)
            best = max_v(best, s[t][k]);
        top[t] = max_v(max_lanes(best), all(u->top[i]));
        bool none = u->low[i] >= u->high[i];
        if (none && u->top[i] == -INFINITY)
            top[t] = (vf){0}; /* no key seen so far: -infinity minus -infinity is NaN */
        /* lane by lane in a register: a vector load after scalar stores would stall */
        fall = pick(lanes() == t, none ? (vf){0} : all(u->top[i]) - top[t], fall);
        u->top[i] = none ? u->top[i] : top[t][0];
    }
    float falls[W];
    store(falls, exp_v(fall));
    UNROLL
    for (int t = 0; t < T; t++) {
        vf total = {0};
        for (int k = 0; k < KV; k++) {
            vf e = exp_v(s[t][k] - top[t]);
            total += e;
            store(p + t * KEYS + k * W,
                  u->value_scale != NULL ? e * load(u->value_scale + k * W) : e);
        }
        old[t] = falls[t];
        u->sum[at + t] = u->sum[at + t] * old[t] + sum_lanes(total)[0];
    }
}

/* The weights of T queries in f32 and, for instructions on pairs, also as bf16 pairs. */
typedef struct weights {
    float p[TILE * KEYS], old[TILE];
    uint32_t pairs[TILE * KEYS / 2];
} weights;

/* Computes out[t][c … c+n*W) = out * old[t] + p[t] · v for n vectors of columns, with keys in
 * order. */
static inline __attribute__((always_inline)) void gather(const weights *w, const void *values,
                                                         bool wide, int keys, int d, int c, int T,
                                                         int n, float *out) {
    vf o[TILE][4];
    for (int t = 0; t < T; t++)
        for (int k = 0; k < n; k++)
            o[t][k] = load(out + t * d + c + k * W) * all(w->old[t]);
    for (int j = 0; wide && j < keys; j++) {
        for (int k = 0; k < n; k++) {
            vf v = load((const float *)values + j * d + c + k * W);
            for (int t = 0; t < T; t++)
                o[t][k] = fma_v(all(w->p[t * KEYS + j]), v, o[t][k]);
        }
    }
    for (int j = 0; !wide && 2 * j < keys; j++) {
        for (int k = 0; k < n; k++) {
            vu pairs = load_pairs((const uint16_t *)values + 2 * j * d + 2 * (c + k * W));
            for (int t = 0; t < T; t++) {
#if defined(__AVX512BF16__)
                o[t][k] = dot_pairs(o[t][k], w->pairs[t * (KEYS / 2) + j], pairs);
#else
                o[t][k] = fma_v(all(w->p[t * KEYS + 2 * j]), first_of(pairs), o[t][k]);
                o[t][k] = fma_v(all(w->p[t * KEYS + 2 * j + 1]), second_of(pairs), o[t][k]);
#endif
            }
        }
    }
    for (int t = 0; t < T; t++)
        for (int k = 0; k < n; k++)
            store(out + t * d + c + k * W, o[t][k]);
}

/* Computes the scores of a tile of queries. With `half`, computes them only for the first half of
 * the block's keys, since no query of the tile sees the second half. */
static inline __attribute__((always_inline)) void tile_scores(const attend_unit *u, bool wide,
                                                              int d, int at, int T, bool half,
                                                              const attend_ahead *ahead,
                                                              vf s[][KV]) {
    const float *q = (const float *)u->q + at * d;
    const query *narrow = (const query *)u->q + at * d;
    if (wide && half)
        scores_wide(q, d, u->kt, T, KV / 2, ahead, s);
    else if (wide)
        scores_wide(q, d, u->kt, T, KV, ahead, s);
    else if (half)
        scores(narrow, d, u->kt, T, KV / 2, ahead, s);
    else
        scores(narrow, d, u->kt, T, KV, ahead, s);
}

static inline __attribute__((always_inline)) void attend_tile(const attend_unit *u, bool wide,
                                                              int d, int at, int T, int tile) {
    static const attend_ahead nothing = {0};
    vf s[TILE][KV];
    weights w;
    for (int t = 0; t < T; t++)
        for (int k = 0; k < KV; k++)
            s[t][k] = (vf){0};
    int keys = 1; /* later keys have weight 0 for all queries of the tile, and are skipped */
    for (int t = 0; t < T; t++)
        keys = BASE_MAX(keys, BASE_MIN(u->high[at + t], KEYS));
    tile_scores(u, wide, d, at, T, keys <= KEYS / 2, tile < u->nahead ? u->ahead + tile : &nothing,
                s);
    weigh(u, at, T, s, w.p, w.old);
#if defined(__AVX512BF16__)
    if (!wide)
        narrow_pairs(w.p, T * KEYS, w.pairs);
#endif
    float *out = u->out + at * d;
    int c = 0;
    for (; c + 4 * W <= d; c += 4 * W)
        gather(&w, u->v, wide, keys, d, c, T, 4, out);
    for (; c < d; c += W)
        gather(&w, u->v, wide, keys, d, c, T, 1, out);
}

static inline __attribute__((always_inline)) void attend_unit_run(const attend_unit *u, bool wide,
                                                                  int d) {
    int i = 0, tile = 0;
    for (; i + TILE <= u->nq; i += TILE)
        attend_tile(u, wide, d, i, TILE, tile++);
#if TILE > 3
    for (; i + 3 <= u->nq; i += 3)
        attend_tile(u, wide, d, i, 3, tile++);
#endif
    for (; i < u->nq; i++)
        attend_tile(u, wide, d, i, 1, tile++);
}

#if W > 4 && !defined(__AVX512BF16__)
/* Converts [rows, n, 2] bf16 pairs to [2 rows, n] f32: for each row, the first halves of its pairs,
 * then the second halves. */
static void pairs_widen(const uint16_t *pairs, int rows, int n, float *out) {
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < n; c += W) {
            vu two = load_pairs(pairs + 2 * (r * n + c));
            store(out + 2 * r * n + c, first_of(two));
            store(out + (2 * r + 1) * n + c, second_of(two));
        }
    }
}

/* Attends with many queries: converts the block to f32 once. The operations on floats, and so the
 * bits, are the same as without the conversion. */
static void attend_widened(const attend_unit *u) {
    _Alignas(64) float kt[KEYS * CONFIG_MAX_HEAD_DIM], v[KEYS * CONFIG_MAX_HEAD_DIM];
    attend_unit wide = *u;
    pairs_widen(u->kt, u->d / 2, KEYS, kt);
    pairs_widen(u->v, KEYS / 2, u->d, v);
    wide.wide = true;
    wide.kt = kt;
    wide.v = v;
    if (u->d == 64)
        attend_unit_run(&wide, true, 64);
    else
        attend_unit_run(&wide, true, u->d);
}
#endif

static void k_attend(const attend_unit *u) {
#if W > 4 && !defined(__AVX512BF16__)
    if (!u->wide && u->nq >= 4 * TILE) {
        attend_widened(u);
        return;
    }
#endif
    /* with a constant d, addresses in the inner loops are constant offsets */
    if (u->wide)
        attend_unit_run(u, true, u->d);
    else if (u->d == 64)
        attend_unit_run(u, false, 64);
    else if (u->d == 128)
        attend_unit_run(u, false, 128);
    else
        attend_unit_run(u, false, u->d);
}

static void k_scores(const attend_unit *u, float *out) {
    static const attend_ahead nothing = {0};
    for (int i = 0; i < u->nq; i++) {
        vf s[1][KV] = {0};
        tile_scores(u, u->wide, u->d, i, 1, false, &nothing, s);
        scores_finish(u, i, s[0]);
        for (int k = 0; k < KV; k++)
            store(out + i * KEYS + k * W, s[0][k]);
    }
}

#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)
#include "kernels_screen_impl.h"
#endif

const kernels KERNELS_TABLE = {
    .name = KERNELS_NAME,
#if defined(__AVX512BF16__)
    .narrow = true,
#endif
    .queries = TILE,
    .heads = W,
    .attend = k_attend,
    .scores = k_scores,
    .rms_norm = k_rms_norm,
    .layer_norm = k_layer_norm,
    .to_bf16 = k_to_bf16,
    .from_bf16 = k_from_bf16,
    .to_int8 = k_to_int8,
    .int8_to_bf16 = k_int8_to_bf16,
    .add = k_add,
    .scale = k_scale,
    .rope = k_rope,
    .swiglu = k_swiglu,
    .geglu = k_geglu,
    .gelu = k_gelu,
    .dot = k_dot,
    .largest = k_largest,
    .exp = k_exp,
#if defined(__AVX512BF16__) && defined(__AVX512VNNI__)
    .screen = k_screen,
    .pair_products = k_pair_products,
#endif
};
