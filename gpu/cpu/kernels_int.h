/*
 * kernels_int.h - the CPU's inner loops other than matrix products: one table of functions per
 * instruction set.
 *
 * One source file is compiled once per instruction set. kernels_<isa>.c only names its table and
 * includes kernels_impl.h; gpu/CMakeLists.txt compiles it with that instruction set's flags, and
 * the macros that these flags define (__AVX512F__, …) select vector width and instructions in the
 * source. Each object file exports one table, and kernels.c selects one at run time, so code for an
 * instruction set runs only on processors that have it. The products of weights in bytes are built
 * in the same way from int8_impl.h (int8_int.h).
 *
 * Tables differ from each other in the last bits of their results. Within a table, every function
 * has a fixed order of operations for each row or query. So the result for a row or query does not
 * depend on the other rows or queries of the call.
 */
#ifndef KVASIR_KERNELS_INT_H
#define KVASIR_KERNELS_INT_H

#include "gpu/llm.h"

/* Memory to prefetch while a unit is computed. */
typedef struct attend_ahead {
    const char *at; /* start of the memory */
    int steps;      /* number of consecutive pieces of 128 bytes */
    int second; /* offset of the second cache line prefetched in each piece: 64, or 0 for none */
} attend_ahead;

/*
 * One KV block and the queries that attend to it together.
 *
 *   q [nq, d] (scaled)        bf16 if the table is narrow and the unit is not wide; otherwise f32
 *   low, high [nq]            query i sees the keys [low[i], high[i])
 *   kt, v                     bf16 in pairs: [d/2, 32, 2] and [32/2, d, 2]; if wide f32: [d, 32]
 *                             and [32, d]
 *   key_scale, value_scale    [32]: factors of each key's scores and each value's weights; NULL: 1
 *   top [nq], sum [nq], out [nq, d]   softmax state per query: the largest score, the sum of
 *                             weights, the weighted sum of values; starts as -INFINITY, 0, 0
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
    /* [nahead] memory to prefetch: an entry for each group of kernels.queries queries */
    const attend_ahead *ahead;
    int nahead;
} attend_unit;

enum { SCREEN_COLUMNS = 64, SCREEN_QUADS = 8 };

/* A state quantised to bytes (head_screen.c). Each value has a fine digit, in screen_unit.fine. The
 * values of SCREEN_QUADS groups of four also have a coarse digit. */
typedef struct screen_state {
    int quads[SCREEN_QUADS]; /* numbers of the groups of four that have coarse digits */
    int8_t coarse[SCREEN_QUADS][4];
    /* initial values of the sums of products: they cancel the offset of 128 in screen_unit.bytes */
    int fine_start, coarse_start;
    float fine_scale;   /* value of one step of a fine digit */
    float coarse_scale; /* value of one step of a coarse digit */
    float size;         /* upper bound of the norm of the state */
    float rest;         /* upper bound of the norm of the state's quantisation error */
} screen_state;

/*
 * SCREEN_COLUMNS tokens of the head's coarse copy and the states to screen them for.
 *
 *   bytes              [k/4, SCREEN_COLUMNS, 4], of head_screen.bytes
 *   scale, rest, norm  [SCREEN_COLUMNS], as in head_screen
 *   fine               [rows, k] the states' fine digits
 *   states             [rows]
 *   upper              [rows, SCREEN_COLUMNS] out: upper bounds of the logits
 */
typedef struct screen_unit {
    const uint8_t *bytes;
    int k;
    const float *scale, *rest, *norm;
    const int8_t *fine;
    const screen_state *states;
    int rows;
    float *best;     /* [rows] in and out: the largest lower bound of a logit so far */
    uint64_t *masks; /* [rows] out: one bit per token whose upper bound is not below `best` */
    float *upper;
} screen_unit;

typedef struct kernels {
    const char *name;
    bool narrow; /* attend rounds queries and weights to bf16, for instructions on bf16 pairs */
    int queries; /* number of queries that attend processes together */
    int heads;   /* attend supports head dimensions that are multiples of this number */
    /* Sets out[n] = x / rms(x) * w. If w is NULL, all weights are 1. */
    void (*rms_norm)(const float *x, const float *w, float eps, int n, float *out);
    /* Sets out[n] = (x - mean(x)) / deviation(x) * w + b. */
    void (*layer_norm)(const float *x, const float *w, const float *b, float eps, int n,
                       float *out);
    void (*to_bf16)(const float *x, int n, uint16_t *out); /* nearest, ties to even */
    void (*from_bf16)(const uint16_t *x, int n, float *out);
    /* Quantises x to integers from -127 to 127, with x ≈ out * scale. Returns the scale (0 if all
     * of x is zero). */
    float (*to_int8)(const float *x, int n, int8_t *out);
    void (*int8_to_bf16)(const int8_t *x, int n, uint16_t *out); /* exact */
    void (*add)(float *x, const float *y, int n);
    void (*scale)(float *x, float by, int n);
    /* Rotates each pair (x[i], x[i + half]) by the angle with cosine cs[i], sine cs[half + i]. */
    void (*rope)(float *x, const float *cs, int half);
    void (*swiglu)(const float *gate, const float *up, int n, float *out);
    void (*geglu)(const float *gate, const float *up, int n, float *out); /* gelu, tanh form */
    /* Sets out[n] = gelu(x + b), by erf; its error is below 4e-7 (1 + |x|). b NULL: no bias. */
    void (*gelu)(const float *x, const float *b, int n, float *out);
    float (*dot)(const float *a, const float *b, int n);
    int (*largest)(const float *x, int n);   /* index of the first largest value; ignores NaN */
    void (*attend)(const attend_unit *unit); /* updates top, sum and out */
    /* Sets out[nq, LLM_BLOCK_TOKENS] to the scores from which attend makes weights. Reads neither v
     * nor top, sum, out and ahead. */
    void (*scores)(const attend_unit *unit, float *out);
    /* Sets out[n] = e^x, as attend computes it. (The fingerprint includes its results.) */
    void (*exp)(const float *x, int n, float *out);
    /* The head screen (head_screen_int.h). `screen` and pair_products are NULL without VNNI and
     * AVX-512 BF16. */
    void (*screen)(const screen_unit *unit);
    /* Sets out[16] = x · rows, for x [k] and rows [16, k] in bf16. Adds pairs in order within runs
     * of `run` products, then adds the runs' sums. run and k are even. */
    void (*pair_products)(const uint16_t *x, const uint16_t *rows, int k, int run, float *out);
} kernels;

extern const kernels kernels_generic;
#if defined(__x86_64__)
extern const kernels kernels_avx2, kernels_avx512, kernels_avx512bf16;
#endif

/* Returns the best table that the processor, ONEDNN_MAX_CPU_ISA and the head dimension allow.
 * `narrow` also allows a table that computes attention in bf16. Returns NULL if there is no
 * table. */
const kernels *kernels_choose(int head_dim, bool narrow);
enum { KERNELS_TABLES = 4 };
/* Lists all tables that this processor can run in out[KERNELS_TABLES], the best last. Returns their
 * number. */
int kernels_available(const kernels **out);

#endif
