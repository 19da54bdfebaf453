/*
 * cpu_int.h - the CPU backend's engine state and a session's work memory.
 *
 * A session's rows are padded to whole tiles; buffers are row-major:
 *
 *   x    f32 [rows, width]           the residual stream
 *   a    A   [rows, width]           normed, in the type A that the next product reads (gemm_int.h)
 *   qkv  f32 [rows, (heads+2*kv_heads)*head_dim]   as the product and its bias give it
 *   att  A   [rows, heads*head_dim]
 *   h    A   [rows, ffn]
 *   y    f32 [rows, width]           a branch's output, only where it is normed before it is added
 *
 * KV lies as cpu_kv.c draws it. Slots not yet written are zero or old, always finite: attention
 * masks them.
 */
#ifndef KVASIR_CPU_INT_H
#define KVASIR_CPU_INT_H

#include <string.h>
#include <time.h>

#include "engine/engine_int.h"
#include "int8_int.h"
#include "kernels_int.h"
#include "model/side_file_int.h"
#include "weights_int.h"

enum { ATTEND_ROWS = 64 }; /* rows that one attention task takes through the blocks */

typedef struct cpu_state {
    pool *threads;
    gemm *g;
    packed_model model;
    const kernels *k;
    const int8_kernels *int8; /* NULL: not on this machine */
    llm_precision precision;  /* not AUTO */
    gemm_type wide;           /* of what is not in bytes; bf16: attention's products are, too */
    float *frequencies, *frequencies_local; /* [rope_dims/2] */
    bool two_ropes;
    float rope_magnitude;
    int sinks, window; /* streaming attention; window 0: all is seen */
    llm_kv_dtype kv_dtype;
    char device[64];
    char machine[128]; /* what measured rates hold for: kernels, a bound on oneDNN's, the build */
    char *cache_dir;   /* NULL: no side file */
    hash128 weights;   /* the file's identity */
    bool keeps_rates;  /* sessions measure what the side file is about: auto's precision */
    side_probe probe;  /* which the fingerprint covers: the last load's, or this one's */
    bool loaded;       /* under the pool's lock, as is: */
    err load_error;
} cpu_state;

/* A worker's attention scratch: queries of ATTEND_ROWS rows × one kv head's group; room for f32. */
typedef struct attend_scratch {
    char *q, *q_sink; /* bf16 or f32, as the kernels take them */
    float *out, *top, *sum;
    int *low, *high;
    uint16_t *kt, *v; /* one head of an int8 block, as bf16 */
} attend_scratch;

/* Bytes: of one head's K or V in a block, up to a layer's scales, of a layer, of a block. */
typedef struct kv_layout {
    llm_kv_dtype dtype;
    size_t head, scales, layer, block;
} kv_layout;

/* Rope's cos and sin at a row's own position, and at the one from which it sees the sinks; layers
 * with a window may have a rope of their own. */
enum { ANGLES_LOCAL = 1, ANGLES_SINK = 2, ANGLES_SETS = 4 };

typedef struct head_top head_top;     /* cpu_head.c */
typedef struct cpu_screen cpu_screen; /* cpu_screen.c */

typedef struct cpu_work {
    llm_engine *engine;
    cpu_state *s;
    int rows_cap;
    char *kv;
    size_t kv_bytes;
    kv_layout layout;
    float *x, *qkv, *y;
    float *angles[ANGLES_SETS]; /* [rows, rope_dims] = cos, sin; NULL: not needed */
    void *a, *att, *h;
    float *norm_scratch;    /* per worker [max(width, heads*head_dim)] */
    attend_scratch *attend; /* per worker */
    pass_row *rows;         /* of the pass, later only the wanted ones */
    int nrows;
    int *wanted, nwanted; /* unique rows of the wants, ascending */
    int *want_rows;       /* per want: its place in wanted */
    int *whole;           /* wants of the whole vocabulary */
    int wants_cap;
    head_top *tops; /* [wants of the whole vocabulary, parts of the head] */
    size_t tops_cap;
    cpu_screen *screen; /* its work memory, once it was used */
    const pass *p;
    bool keys_late; /* no row sees another's key of this pass: stored as attention comes to them */
    uint8_t *written; /* per block, while the above is found out; else all zero */
    int layer;
    int attend_rows;
} cpu_work;

/* ---- rows and tiles; what the files of a pass share */

/* Rows [first, first + rows) of the pass. */
typedef struct tile_range {
    int first, rows;
} tile_range;

static inline int cpu_tile_count(const cpu_work *w) {
    int tile = gemm_tile(w->s->g);
    return (w->nrows + tile - 1) / tile;
}

static inline tile_range cpu_tile_of(const cpu_work *w, int tile) {
    int size = gemm_tile(w->s->g), first = tile * size;
    return (tile_range){first, BASE_MIN(size, w->nrows - first)};
}

static inline void *cpu_row_of(void *base, gemm_type type, int row, int columns) {
    return (char *)base + (size_t)row * gemm_row_bytes(type, columns);
}

static inline float *cpu_scratch_of(const cpu_work *w, int worker) {
    const model_config *c = &w->engine->config;
    return w->norm_scratch + (size_t)worker * (size_t)BASE_MAX(BASE_MAX(c->n_embd, c->ffn), 64);
}

/* Heads of a row's fused q, k and v. */
static inline int cpu_heads(const model_config *c) {
    return c->n_heads + 2 * c->n_kv_heads;
}

/* Stores f32 values as products of weights of the type
 * read them; in bytes: from a column that begins a group. */
static inline void cpu_operand_store(const cpu_work *w, gemm_type type, const float *x, int n,
                                     void *out) {
    if (gemm_in_bytes(type))
        w->s->int8->store(x, n, gemm_planes(type), out);
    else if (type == GEMM_BF16)
        w->s->k->to_bf16(x, n, out);
    else
        memcpy(out, x, sizeof(float) * (size_t)n);
}

/* One attention task: rows [64t, 64t+64) × kv head, through all their blocks (cpu_attention.c). */
void cpu_attend(cpu_work *w, int chunk, int kv_head, int worker);
int cpu_attend_chunks(const cpu_work *w);

/* cpu_heads.c */
/* One kv head's group of queries of a row: q[group, head_dim] at its position, scaled; q_sink:
 * NULL, or the same as seen from the sinks. */
void cpu_queries_ready(const cpu_work *w, int row, int kv_head, float *q, float *q_sink);
/* Stores a row's key and value in its block. */
void cpu_keys_store(const cpu_work *w, int row, int kv_head);
/* No row of the pass sees a key that another row
 * of it writes, and all go through the last layer. */
bool cpu_rows_apart(const cpu_work *w);

/* cpu_kv.c */
typedef enum kv_side { KV_KEYS, KV_VALUES } kv_side;
kv_layout cpu_kv_layout(const model_config *c, llm_kv_dtype dtype);
void *cpu_kv_block(const cpu_work *w, int32_t block);
/* Stores x[head_dim] in the layer at hand. */
void cpu_kv_store(const cpu_work *w, int32_t block, int slot, kv_side side, int kv_head,
                  const float *x);
/* The first slots of a block alone: the others of `to` may already hold keys of this pass. */
void cpu_kv_copy(const cpu_work *w, const pass_copy *copy);
/* Where the first `keys` of one head's keys or values lie, to be asked for ahead of their use. */
attend_ahead cpu_kv_ahead(const cpu_work *w, int32_t block, kv_side side, int kv_head, int keys);
/* Points the unit at one head's keys and values,
 * unpacked into the scratch where kernels need it. */
void cpu_kv_view(const cpu_work *w, int32_t block, int kv_head, attend_scratch *s,
                 attend_unit *unit);

/* cpu.c: all of opening but the file, its config and
 * its tokenizer, which engine has (tests: from memory). */
int cpu_load(llm_engine *engine, const llm_engine_options *options, err *e);
/* Reads and packs the weights unless they are: before the first pass. Any thread. ERR_MODEL, and
 * the engine is outdated: its fingerprint was taken from a record that does not hold any more.
 * ERR_CANCELLED once *cancel is true (NULL: never): what is packed stays for the next time. */
int cpu_ready(llm_engine *engine, const atomic_bool *cancel, err *e);

/* cpu_head.c: the logits that the pass wants of rows w->wanted, whose states are w->x. */
void cpu_head_run(cpu_work *w);
void cpu_final_cap(const cpu_work *w, float *logits, int n); /* where the model has one */

/* cpu_screen.c */
/* Settles the wants of one likeliest token among the `whole` ones; returns how many are left, now
 * the first in w->a and w->whole. */
int cpu_screen_run(cpu_work *w, int whole);
/* The run in which single products have the bits of the
 * head's; 0: none, and the screen is not to be used. */
int cpu_screen_order(cpu_state *s);
void cpu_screen_free(cpu_screen *s);

/* cpu_forward.c */
/* Tokens/s of the layers' matrix products alone, `rows`
 * at a time, through the pool: the bound of benchmarks. */
double cpu_gemm_bound(llm_engine *engine, int rows, clockid_t clock);
/* The same for one tile of `rows` rows, a height of the GEMM's; quick, from a few layers. */
double cpu_gemm_rate(llm_engine *engine, int rows);
int cpu_forward(llm_engine *engine, void *work, const pass *p, err *e);
int cpu_work_new(llm_engine *engine, const work_size *size, void **work, err *e);
void cpu_work_free(llm_engine *engine, void *work);

#endif
