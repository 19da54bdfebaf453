/*
 * kernels_int.h - the inner loops that oneDNN does not do, as a table per instruction set.
 *
 * One source (kernels_impl.h) compiled four times; kernels_choose picks at start
 * (ONEDNN_MAX_CPU_ISA bounds it, as it bounds oneDNN). Tables differ in their last bits; within
 * one, every function has a fixed order of operations for each row or query, so results do not
 * depend on what else is in the call.
 */
#ifndef KVASIR_KERNELS_INT_H
#define KVASIR_KERNELS_INT_H

#include "gpu/llm.h"

/* Memory asked for while a unit is computed, since it is needed soon: `steps` times 128 bytes, or
 * of each the first 64 alone (second: 0, else 64). */
typedef struct attend_ahead {
    const char *at;
    int steps, second;
} attend_ahead;

/*
 * One KV block and the queries that attend to it together.
 *
 *   q [nq, d] (scaled)        bf16 where the table is narrow and the unit not wide, else f32;
 *                             readable up to a multiple of the table's `queries`
 *   low, high [nq]            query i sees the keys [low[i], high[i])
 *   kt, v                     bf16, pairs: [d/2, 32, 2] and [32/2, d, 2]; wide: f32, [d, 32] and
 *                             [32, d]
 *   key_scale, value_scale    [32]: a key's scores and a value's weights are multiplied by it;
 *                             NULL: 1
 *   top [nq], sum [nq], out [nq, d]   running state per query; starts with -INFINITY, 0, 0
 */
typedef struct attend_unit {
    const void *q;
    int nq, d;
    const void *kt, *v;
    bool wide;
    const float *key_scale, *value_scale;
    const int *low, *high;
    float softcap; /* 0: none */
    float *top, *sum, *out;
    /* [nahead], of at most head_dim steps; one for each `queries` of the table */
    const attend_ahead *ahead;
    int nahead;
} attend_unit;

enum { SCREEN_COLUMNS = 64, SCREEN_QUADS = 8 };

/* A state in bytes (head_screen.c): fine digits, which
 * the unit holds, and coarse ones of some quads. */
typedef struct screen_state {
    int quads[SCREEN_QUADS]; /* which of the k / 4 */
    int8_t coarse[SCREEN_QUADS][4];
    int fine_start, coarse_start; /* what the bytes' offset adds to sums of digits, negated */
    float fine_scale, coarse_scale;
    float size, rest; /* the state's norm, and that of what no digit holds */
} screen_state;

/*
 * SCREEN_COLUMNS columns of the head's coarse copy and the states they are weighed for.
 *
 *   bytes [k/4, SCREEN_COLUMNS, 4]   scale, rest, norm [SCREEN_COLUMNS] fine [rows, k] upper [rows,
 *                                    SCREEN_COLUMNS]
 */
typedef struct screen_unit {
    const uint8_t *bytes;
    int k;
    const float *scale, *rest, *norm;
    const int8_t *fine;
    const screen_state *states;
    int rows;
    float *best;     /* [rows] the largest lower bound so far, in and out */
    uint64_t *masks; /* [rows] columns whose upper bound is not less than it */
    float *upper;
} screen_unit;

typedef struct kernels {
    const char *name;
    bool narrow; /* attend rounds queries and weights to bf16, for its products of pairs */
    int queries; /* that attend takes through a block together */
    int heads;   /* head dimensions that attend takes: multiples of this */
    /* out[n] = x / rms(x) * w; w NULL: all ones */
    void (*rms_norm)(const float *x, const float *w, float eps, int n, float *out);
    void (*to_bf16)(const float *x, int n, uint16_t *out); /* nearest, ties to even */
    void (*from_bf16)(const uint16_t *x, int n, float *out);
    /* x = out * scale to the nearest of 255 steps; returns scale (0 for zeros) */
    float (*to_int8)(const float *x, int n, int8_t *out);
    void (*int8_to_bf16)(const int8_t *x, int n, uint16_t *out); /* exact */
    void (*add)(float *x, const float *y, int n);
    void (*scale)(float *x, float by, int n);
    /* x[i], x[i + half] turn by cs[i] = cos, cs[half + i] = sin */
    void (*rope)(float *x, const float *cs, int half);
    void (*swiglu)(const float *gate, const float *up, int n, float *out);
    void (*geglu)(const float *gate, const float *up, int n, float *out); /* gelu, tanh form */
    float (*dot)(const float *a, const float *b, int n);
    int (*largest)(const float *x, int n);          /* the first of the largest; NaNs are not */
    void (*attend)(const attend_unit *unit);        /* d: a multiple of heads */
    void (*exp)(const float *x, int n, float *out); /* what softmax uses; for tests */
    /* Both or none (NULL): machines with VNNI and products of pairs of bf16. */
    void (*screen)(const screen_unit *unit);
    /* out[16] = x . rows, x [k], rows [16, k] in bf16, pairs in order; sums of `run` products each
     * (even, as is k) are added to one another */
    void (*pair_products)(const uint16_t *x, const uint16_t *rows, int k, int run, float *out);
} kernels;

extern const kernels kernels_generic;
#if defined(__x86_64__)
extern const kernels kernels_avx2, kernels_avx512, kernels_avx512bf16;
#endif

/* The best table that this machine, ONEDNN_MAX_CPU_ISA and the heads' dimensions allow; NULL: none.
 */
const kernels *kernels_choose(int head_dim, bool narrow);
enum { KERNELS_TABLES = 4 };
/* All that this machine can run, the best last: into out[KERNELS_TABLES]; returns how many. */
int kernels_available(const kernels **out);

#endif
