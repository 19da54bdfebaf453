/*
 * cpu_int.h - the CPU backend: its engine state and a session's work memory.
 *
 * A session's buffers are row-major, for a number of rows that is a multiple of the tile height. A
 * is the type of the weight that the row is multiplied with next (gemm_type):
 *
 *   x    f32 [rows, width]           the residual stream
 *   a    A   [rows, width]           normed x
 *   qkv  f32 [rows, (heads + 2 kv_heads) * head_dim]   product and bias
 *   att  A   [rows, heads * head_dim]                  attention's output
 *   h    A   [rows, ffn]             the feed-forward activations
 *   y    f32 [rows, width]           a branch's output; only for models that norm it before the sum
 *
 * In models with layer norms (model_config.layer_norm) a normed state replaces the state in x.
 *
 * cpu_kv.c defines the layout of KV blocks. Slots that are not written yet hold zeros or old
 * values, which are finite; attention masks them.
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

enum { ATTEND_ROWS = 64 }; /* maximum number of rows of an attention task */

typedef struct cpu_state {
    pool *threads;
    gemm *g;
    packed_model model;
    const kernels *k;
    const int8_kernels *int8; /* NULL: the processor has no such kernels */
    llm_precision precision;  /* not AUTO */
    /* type of the matrices whose weights are not bytes; if it is bf16, attention may use bf16 */
    gemm_type wide;
    float *frequencies;       /* [rope_dims/2] rope frequencies of layers without a window */
    float *frequencies_local; /* [rope_dims/2] rope frequencies of layers with a window */
    bool two_ropes;           /* frequencies and frequencies_local differ */
    float rope_magnitude;     /* factor of the sines and cosines */
    int sinks;                /* streaming attention: number of sink tokens */
    int window;               /* streaming attention: number of latest tokens; 0: full attention */
    llm_kv_dtype kv_dtype;
    char device[64];   /* llm_model_info.device */
    char machine[128]; /* the side file's key: kernels, ONEDNN_MAX_CPU_ISA, kind of build */
    char *cache_dir;   /* NULL: no side file */
    hash128 weights;   /* hash of all bytes of the file */
    /* true: the precision is that of 'auto', and the side file keeps measured rates */
    bool keeps_rates;
    side_probe probe; /* from the side file or from this load; part of the fingerprint */
    bool loaded;      /* the weights are loaded; guarded by the pool's lock */
    err load_error;   /* guarded by the pool's lock */
} cpu_state;

/* A worker's scratch memory for attention: the queries of ATTEND_ROWS rows × one kv head's
 * group. */
typedef struct attend_scratch {
    char *q, *q_sink;       /* bf16 or f32, as in attend_unit */
    float *out, *top, *sum; /* as in attend_unit */
    int *low, *high;        /* as in attend_unit */
    uint16_t *kt, *v;       /* one head of an int8 block, converted to bf16 */
} attend_scratch;

/* The layout of a KV block (cpu_kv.c). Sizes and offsets are in bytes. */
typedef struct kv_layout {
    llm_kv_dtype dtype;
    size_t head;   /* size of K or V of one head in a layer */
    size_t scales; /* offset of the scales in a layer */
    size_t layer;  /* size of a layer */
    size_t next;  /* distance of two layers; 0 in an embedding model, whose blocks have one layer */
    size_t block; /* size of a block */
} kv_layout;

/* Flags whose sum is the number of a set of rope angles. LOCAL: for layers with a window, which may
 * have their own frequencies. SINK: for the position from which a row sees the sinks, instead of
 * the row's own position. */
enum { ANGLES_LOCAL = 1, ANGLES_SINK = 2, ANGLES_SETS = 4 };

typedef struct head_top head_top;     /* defined in cpu_head.c */
typedef struct cpu_screen cpu_screen; /* defined in cpu_screen.c */

typedef struct cpu_work {
    llm_engine *engine;
    cpu_state *s;
    int rows_cap;
    char *kv;        /* the KV blocks */
    size_t kv_bytes; /* size of `kv` */
    kv_layout layout;
    float *x, *qkv, *y;         /* the top of this file explains x, qkv, y, a, att and h */
    float *angles[ANGLES_SETS]; /* [rows, rope_dims] cosines, then sines; NULL: not needed */
    void *a, *att, *h;
    float *norm_scratch;    /* [workers, max(width, ffn, 64)], see cpu_scratch_of */
    float *dense;           /* [workers, model_config.dense] */
    attend_scratch *attend; /* [workers] */
    /* rows of the pass; in the last layer, from attention on, only the wanted rows */
    pass_row *rows;
    int *ends; /* [rows] number of keys of the row's path that it may see */
    int nrows;
    /* [nwanted] the rows of the wants, or the rows that the pools are made of; ascending, each once */
    int *wanted;
    int nwanted;    /* number of these rows */
    int *want_rows; /* [wants of the pass] index of the want's row in `wanted` */
    int *whole;     /* indexes of the wants that ask for the whole vocabulary */
    int wants_cap;
    head_top *tops; /* [wants of the whole vocabulary, parts of the head] */
    size_t tops_cap;
    cpu_screen *screen; /* NULL until the first use */
    const pass *p;
    bool store_keys_on_attention; /* attention tasks store keys (see cpu_rows_are_independent) */
    bool keeps_late;              /* some rows are KEEP_MOVED */
    /* [blocks] scratch of cpu_rows_are_independent; all zero while that function does not run */
    uint8_t *written;
    int layer;       /* the current layer */
    int attend_rows; /* number of rows of an attention task in this layer */
} cpu_work;

/* ---- rows and tiles -------------------------------------------------------------------------- */

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

/* Returns the number of heads in a row's fused q, k and v. */
static inline int cpu_heads(const model_config *c) {
    return c->n_heads + 2 * c->n_kv_heads;
}

/* Stores n f32 values as part of a row of A, for a weight of this type. For a type in bytes, x[0]
 * must be the first value of a group of INT8_GROUP columns. */
static inline void cpu_operand_store(const cpu_work *w, gemm_type type, const float *x, int n,
                                     void *out) {
    if (gemm_in_bytes(type))
        w->s->int8->store(x, n, gemm_planes(type), out);
    else if (type == GEMM_BF16)
        w->s->k->to_bf16(x, n, out);
    else
        memcpy(out, x, sizeof(float) * (size_t)n);
}

/* cpu_attention.c: runs one attention task: a chunk of attend_rows rows × one kv head. */
void cpu_attend(cpu_work *w, int chunk, int kv_head, int worker);
int cpu_attend_chunks(const cpu_work *w);
/* Adds what the row of a PROBE_ATTENTION attends to, in one kv head's group, to its scores. */
void cpu_attend_probe(cpu_work *w, const pass_probe *probe, int kv_head, int worker);

/* cpu_blend.c */
/* Runs the moves of the pass in the current layer, stores the keys that must follow them, and runs
 * the probes. Lowers w->nrows to the rows that are needed from here on. */
void cpu_blend_run(cpu_work *w);

/* cpu_heads.c */
/* Writes the queries of a row for one kv head's group, after norm, rotation and scaling, to
 * q[group, head_dim]. Writes them rotated for the sinks to q_sink, unless it is NULL. */
void cpu_queries_ready(const cpu_work *w, int row, int kv_head, float *q, float *q_sink);
/* Stores a row's key and value of one kv head in the row's block. */
void cpu_keys_store(const cpu_work *w, int row, int kv_head);
/* True if no row of the pass sees a key that another row of the pass writes, and all rows have
 * wants. */
bool cpu_rows_are_independent(const cpu_work *w);

/* cpu_kv.c */
typedef enum kv_side { KV_KEYS, KV_VALUES } kv_side;
kv_layout cpu_kv_layout(const model_config *c, llm_kv_dtype dtype);
void *cpu_kv_block(const cpu_work *w, int32_t block);
/* Stores x[head_dim] in a slot of one head in the current layer (w->layer). */
void cpu_kv_store(const cpu_work *w, int32_t block, int slot, kv_side side, int kv_head,
                  const float *x);
/* Sets x[head_dim] to what cpu_kv_store stored, rounded to the type of the block. */
void cpu_kv_load(const cpu_work *w, int32_t block, int slot, kv_side side, int kv_head, float *x);
/* Copies the first copy->tokens slots of a block in the current layer. */
void cpu_kv_copy(const cpu_work *w, const pass_copy *copy);
/* Returns the memory of the first `keys` keys or values of one head, for prefetching. */
attend_ahead cpu_kv_ahead(const cpu_work *w, int32_t block, kv_side side, int kv_head, int keys);
/* Sets the unit's keys and values to the keys and values of one head. Converts int8 blocks in the
 * scratch memory. */
void cpu_kv_view(const cpu_work *w, int32_t block, int kv_head, attend_scratch *s,
                 attend_unit *unit);

/* cpu.c */
/* Opens the backend for an engine that has a file, config and tokenizer. (Tests make these in
 * memory.) */
int cpu_load(llm_engine *engine, const llm_engine_options *options, err *e);
/* Loads the weights unless they are loaded. Called before the first pass, from any thread. Returns
 * ERR_MODEL if the probe's bits differ from the record in the fingerprint; the engine is then
 * outdated. Returns ERR_CANCELLED once *cancel is true; the next call continues the load. `cancel`
 * may be NULL. */
int cpu_ready(llm_engine *engine, const atomic_bool *cancel, err *e);

/* cpu_head.c: computes the logits that the pass wants, from the states w->x of the wanted rows. */
void cpu_head_run(cpu_work *w);
void cpu_final_cap(const cpu_work *w, float *logits, int n); /* soft cap, if the model has one */

/* cpu_pool.c: computes the vectors that the pass asks for, from the states w->x of the wanted rows. */
void cpu_pool_run(cpu_work *w);

/* cpu_screen.c */
/* Finds the token for those of the first `whole` wants in w->whole that ask only for the likeliest
 * token, where the screen can. Moves the remaining wants to the front of w->a and w->whole, and
 * returns their number. */
int cpu_screen_run(cpu_work *w, int whole);
/* Returns the `run` for which kernels.pair_products gives the bits of oneDNN's product with the
 * head. Returns 0 if there is no such run; the screen then cannot be used. */
int cpu_screen_order(cpu_state *s);
void cpu_screen_free(cpu_screen *s);

/* cpu_forward.c */
/* Sets out[rope_dims] to the cosines, then the sines, of a position's angles of a set, times
 * `magnitude`. */
void cpu_angles(const cpu_work *w, int set, int position, float magnitude, float *out);
/* Sets out[width] to the state x after a norm. `bias` is not NULL for a layer norm only. */
void cpu_norm(const cpu_work *w, const float *x, const float *weight, const float *bias,
              float *out);
/* For benchmarks: returns an upper bound of tokens/s. It is the rate of the layers' matrix products
 * alone, for `rows` rows on all threads, measured by `clock`. Returns 0 on failure. */
double cpu_gemm_bound(llm_engine *engine, int rows, clockid_t clock);
/* Like cpu_gemm_bound, but for one tile of `rows` rows (a gemm_height), estimated from a few
 * layers. */
double cpu_gemm_rate(llm_engine *engine, int rows);
int cpu_forward(llm_engine *engine, void *work, const pass *p, err *e);
int cpu_work_new(llm_engine *engine, const work_size *size, void **work, err *e);
void cpu_work_free(llm_engine *engine, void *work);

#endif
