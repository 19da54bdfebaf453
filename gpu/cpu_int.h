/*
 * cpu_int.h - the CPU backend's engine state and a session's work memory.
 *
 * A session's rows are padded to whole tiles; buffers are row-major:
 *
 *   x    f32 [rows, width]           the residual stream
 *   a    A   [rows, width]           normed, in the GEMM's type A (f32 or bf16)
 *   q    f32 [rows, heads*head_dim]  after rope, scaled
 *   att  A   [rows, heads*head_dim]
 *   h    A   [rows, ffn]
 *   y    f32 [rows, width]           a branch's output, only where it is normed before it is added
 *
 * KV: bf16, per block and layer: K [kv_heads, head_dim/2, 32, 2] (a key's values are columns of
 * pairs), then V [kv_heads, 32/2, head_dim, 2] (pairs of keys): what products of pairs read. Slots
 * not yet written are zero or old, always finite: attention masks them.
 */
#ifndef KVASIR_CPU_INT_H
#define KVASIR_CPU_INT_H

#include <time.h>

#include "engine_int.h"
#include "kernels_int.h"
#include "model_int.h"

enum { ATTEND_ROWS = 64 }; /* rows that one attention task takes through the blocks */

typedef struct cpu_state {
    pool *threads;
    gemm *g;
    packed_model model;
    const kernels *k;
    float *frequencies, *frequencies_local; /* [rope_dims/2] */
    bool two_ropes;
    float rope_magnitude;
    char device[64];
    char machine[128]; /* what measured rates hold for: kernels, and a bound on oneDNN's */
    char *cache_dir;   /* NULL: no side file */
    hash128 weights;   /* the file's identity */
} cpu_state;

/* A worker's attention scratch: queries of ATTEND_ROWS rows × one kv head's group. */
typedef struct attend_scratch {
    float *q, *out, *top, *sum;
    int *low, *high;
} attend_scratch;

typedef struct cpu_work {
    llm_engine *engine;
    cpu_state *s;
    int rows_cap;
    uint16_t *kv;
    size_t kv_bytes, block_elements, layer_elements;
    float *x, *q, *y, *angles, *angles_local; /* angles: [rows, rope_dims] = cos, sin */
    void *a, *att, *h;
    float *norm_scratch;    /* per worker [max(width, heads*head_dim)] */
    attend_scratch *attend; /* per worker */
    pass_row *rows;         /* of the pass, later only the wanted ones */
    int nrows;
    int *wanted, nwanted; /* unique rows of the wants, ascending */
    int *want_rows;       /* per want: its place in wanted */
    int *whole;           /* wants of the whole vocabulary */
    int wants_cap;
    const pass *p;
    int layer;
    int attend_rows;
} cpu_work;

/* One attention task: rows [64t, 64t+64) × kv head, through all their blocks (cpu_attention.c). */
void cpu_attend(cpu_work *w, int chunk, int kv_head, int worker);
int cpu_attend_chunks(const cpu_work *w);
uint16_t *cpu_keys(const cpu_work *w, int32_t block, int layer, int kv_head);
uint16_t *cpu_values(const cpu_work *w, int32_t block, int layer, int kv_head);

/* cpu.c: all of opening but the file, its config and its tokenizer, which engine has (tests: from
 * memory). */
int cpu_load(llm_engine *engine, const llm_engine_options *options, err *e);

/* cpu_forward.c */
/* Tokens/s of the layers' matrix products alone, `rows` at a time, through the pool: the bound of
 * benchmarks. */
double cpu_gemm_bound(llm_engine *engine, int rows, clockid_t clock);
int cpu_forward(llm_engine *engine, void *work, const pass *p, err *e);
int cpu_work_new(llm_engine *engine, int blocks, int rows, void **work, err *e);
void cpu_work_free(llm_engine *engine, void *work);

#endif
