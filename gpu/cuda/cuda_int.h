/*
 * cuda_int.h - the CUDA backend's engine state and a session's work memory.
 *
 * Weights are bf16 matrices in device memory. Their rows keep the file's order: k_qkv rotates the
 * columns that the model pairs (rope_kind), so no row is permuted.
 *
 *   qkv      [(heads + 2 kv_heads) * d, width]   rows of q, k, v
 *   gate_up  [2 ffn, width]                      rows of gate, then of up
 *   head     [vocab, width]                      the embedding matrix if the model ties the two
 *
 * A pass runs as one or more parts. A part is a range of consecutive rows, at most `rows_cap` of
 * them, whose KV blocks fit on the card together. Its host data (cuda_part.c) is laid out in one
 * pinned buffer and sent to the card in one copy.
 */
#ifndef KVASIR_CUDA_INT_H
#define KVASIR_CUDA_INT_H

#include "cuda_gemm_int.h"
#include "cuda_kernels_int.h"
#include "engine/engine_int.h"
#include "model/pool_int.h"

enum {
    CUDA_PASS_ROWS = 16384, /* maximum number of rows in a part */
    /* Maximum number of rows that products are tested and timed with: the largest pass of a
     * session with default settings (8,192 new tokens, 1,024 decode rows, 64 rows that are
     * computed again). */
    CUDA_PROBE_ROWS = 9280,
    CUDA_WIDEST = 16384,    /* largest model width: the norm kernel holds a row in registers */
    CUDA_GRAPH_ROWS = 1024, /* maximum number of rows of a part that runs as a graph */
    CUDA_GRAPHS = 48,       /* maximum number of captured graphs per session */
    CUDA_HEAD_ROWS = 128,   /* maximum number of rows in one product with the head */
    CUDA_STAGES = 8,        /* number of pinned staging buffers, of one block each */
    CUDA_TRIPS = 32         /* number of trips (see cuda_kv) whose events are kept */
};

typedef struct cuda_layer {
    uint16_t *qkv, *o, *gate_up, *down;
    float *attn_norm, *ffn_norm;           /* [width] */
    float *post_attn_norm, *post_ffn_norm; /* [width] or NULL */
    float *qkv_bias, *o_bias;              /* NULL: none */
    float *q_norm, *k_norm;                /* [d]; NULL: none */
    bool has_rope;
    int window; /* sliding window of attention, in positions; 0: none */
} cuda_layer;

typedef struct cuda_state {
    int device;
    cudaStream_t stream; /* for loading and probing */
    cuda_gemm *g;
    int plan_qkv, plan_o, plan_gate_up, plan_down, plan_head;
    cuda_layer *layers;
    uint16_t *embedding, *head; /* the same matrix if the model ties them */
    float *final_norm;
    float *frequencies;       /* [rope_dims / 2]: rope frequencies of layers without a window */
    float *frequencies_local; /* [rope_dims / 2]: rope frequencies of layers with a window */
    bool two_ropes;           /* the two arrays differ */
    float rope_magnitude;
    void **allocations; /* device memory of the pointers above, freed with the engine */
    int nallocations, allocations_cap;
    size_t weight_bytes;       /* total size of the allocations */
    pool *threads;             /* for dequantising */
    const atomic_bool *cancel; /* checked while the file is read; NULL: cannot be cancelled */
    int probe_rows;            /* number of rows to test products with; 0: CUDA_PROBE_ROWS */
    char card[300];            /* "cuda <card's name>": the key of the rates in the side file */
    char name[360];            /* text of info.device */
    char reason[320];          /* text of info.precision_reason */
    char *cache_dir;
    hash128 weights; /* hash of the model's files, as info.weights */
} cuda_state;

/* Launch sizes of one attention plan. For a graph the sizes are padded, so that one graph fits many
 * parts. A captured graph depends only on its graph_shape and the addresses of the session's
 * buffers. */
typedef struct attend_shape {
    int levels;
    int wide[ATTEND_LEVELS];   /* tasks in the level's wide launch, some of which may be narrow */
    int narrow[ATTEND_LEVELS]; /* tasks in the level's narrow launch */
    int merges;
} attend_shape;

typedef struct graph_shape {
    int rows;
    attend_shape attend;
} graph_shape;

/* The first run of a shape uses no graph: kernels are loaded on their first launch, which a capture
 * does not allow. Many shapes also occur only once. The second run of a shape is captured. */
typedef struct cuda_graph {
    graph_shape shape;
    cudaGraphExec_t exec; /* NULL: not captured */
    bool refused;         /* capturing failed and is not tried again */
    uint64_t used;        /* cuda_work.graph_clock at the last use */
} cuda_graph;

/* Offsets of an attention plan's arrays in the part's buffer, in bytes. */
typedef struct attend_layout {
    size_t states, wide[ATTEND_LEVELS], narrow[ATTEND_LEVELS], merges, blocks;
} attend_layout;

/* Offsets of a part's arrays in its buffer, in bytes. */
typedef struct part_layout {
    size_t tokens, positions, slots; /* int32_t [shape.rows] each; slots as in qkv_args */
    size_t wanted, wanted_positions; /* int32_t [nwanted] each */
    attend_layout all;               /* the plan over all rows */
    attend_layout last;              /* the plan over the wanted rows, for the last layer */
    size_t copies;                   /* slot_copy, by level */
    size_t items;                    /* head_item [nitems] */
    size_t whole;        /* int32_t [nwhole]: index among the wanted rows of each want's row */
    size_t temperatures; /* float [ndraws] */
    size_t bytes;        /* total size of the arrays */
} part_layout;

/* An eviction candidate. */
typedef struct slot_rank {
    double rank;   /* worth of the block in the slot; the lowest is evicted first */
    uint64_t used; /* kv->used[slot] when ranked; if it has changed, the entry is invalid */
    int32_t slot;
} slot_rank;

/* Pinned host memory for blocks that were evicted from the card. A page holds one block; pages are
 * allocated on demand, a chunk at a time. */
typedef struct host_tier {
    char **chunks; /* [nchunks] */
    int nchunks;
    int chunk_pages;     /* pages per chunk */
    int32_t *page_of;    /* [blocks]: the block's page; -1: it has no page */
    uint32_t *life;      /* [blocks]: how often the block was allocated (kv->life) when its page was
                          * written; if that number has changed, the page is invalid */
    uint64_t reclaimed;  /* kv->clock when unused pages were last reclaimed */
    int32_t *free_pages; /* [nfree]: numbers of the free pages; has room for `blocks` numbers */
    int nfree;
    int made; /* number of pages allocated so far */
    /* maximum of `made` for prefetching: blocks - slots; a part may allocate more pages */
    int budget;
} host_tier;

/* The KV blocks of a session. The scheduler uses block numbers below `blocks`. The card has `slots`
 * slots, which hold the blocks that parts work on. Block b is in slot b until a block number beyond
 * the slots is used; from then on `paged` is set and slot_of maps blocks to slots.
 *
 *   copy      ── trip 7 ──▶ trip 8 ──▶ [wait for part 3] ── trip 9 ──▶
 *                   ╲                        ╱
 *   compute   ── part 2 ── [wait for trip 7] part 3 ────────
 *
 * A trip is a group of block copies on the copy stream, followed by an event. A part waits for the
 * last trip that copied to or from any of its slots. Before the copy stream overwrites a slot of
 * the running part, it waits for the end of that part. */
typedef struct cuda_kv {
    int blocks, slots; /* if slots < blocks, the remaining blocks are in host memory */
    /* maximum number of slots; the pool grows to it when more slots are needed */
    int most;
    bool moved;            /* the pool was reallocated: captured graphs hold its old address */
    size_t block_elements; /* number of bf16 values in a block */
    size_t layer_elements; /* number of bf16 values in one layer of a block */
    uint16_t *pool;        /* device memory [slots, block_elements] */
    bool paged;
    /* the arrays from here to `host` are allocated only if paged */
    int32_t *slot_of;    /* [blocks]: the block's slot; -1: not on the card */
    int32_t *block_in;   /* [slots]: the slot's block; -1: the slot is free */
    int32_t *free_slots; /* [nfree]: numbers of the free slots; has room for `slots` numbers */
    int nfree;
    uint64_t *used;     /* [slots]: `clock` at the block's last use or prefetch request */
    uint64_t *part_of;  /* [slots]: number of the last part that used the slot */
    uint64_t *trip_of;  /* [slots]: number of the last trip to or from the slot */
    uint64_t clock;     /* counts uses of blocks */
    slot_rank *victims; /* [slots]: eviction candidates, in the order of their last ranking */
    int nvictims;
    int next_victim;        /* index of the next candidate to try */
    uint64_t search_failed; /* `clock` when a prefetch last found no slot to evict; 0: never */
    int taken;              /* number of slots filled since the last cuda_kv_bring began */
    host_tier host;
    int (*wanted)(const void *ctx, int32_t block);    /* work_size.wanted */
    uint32_t (*life)(const void *ctx, int32_t block); /* work_size.life */
    const void *ctx;                                  /* argument of wanted and life */
    uint64_t moved_in;             /* number of blocks copied from host memory to the card */
    uint64_t moved_out;            /* number of blocks copied from the card to host memory */
    uint64_t dropped;              /* number of blocks evicted without a copy: they were free */
    uint64_t in_ahead;             /* part of moved_in: copies while a part was computing */
    uint64_t out_ahead;            /* part of moved_out: copies while a part was computing */
    cudaStream_t copy;             /* the stream of trips */
    cudaEvent_t ended[CUDA_TRIPS]; /* the end of trip n: ended[n % CUDA_TRIPS] */
    uint64_t trips;                /* number of the last ended trip; the first trip is 1 */
    uint64_t needed;               /* the last trip that the current part's blocks depend on */
    uint64_t waited;               /* the last trip that the compute stream was made to wait for */
    bool trip_open;                /* copies were enqueued since the last trip ended */
    uint64_t part;                 /* number of the current part */
    bool computing;       /* the current part is enqueued; the host has not yet seen its end */
    bool copy_waits;      /* the copy stream already waits for the current part */
    cudaEvent_t computed; /* the end of the current part */
    uint16_t *stages[CUDA_STAGES];   /* pinned buffers of one block each */
    cudaEvent_t staged[CUDA_STAGES]; /* the end of the last copy from stages[i] to the card */
    int stage;                       /* index of the buffer to use next */
    /* pinned pages of llm_backend.kv_page; allocated, filled and awaited on the loader's thread */
    void *pages[KV_PAGES];
    cudaEvent_t page_sent[KV_PAGES]; /* the end of the last copy from pages[i] to the card */
} cuda_kv;

typedef struct cuda_work {
    llm_engine *engine;
    cuda_state *s;
    cudaStream_t stream;
    cuda_kv kv;
    int rows_cap;   /* maximum number of rows in a part */
    int states_cap; /* maximum number of attention states in a part */

    /* device memory, row-major; rows: rows_cap */
    float *x; /* [rows, width]: the residual stream */
    float *y; /* [rows, width]: a branch before its post-norm */
    /* [rows, max(qkv width, width)]; after the last layer's k_qkv: the wanted rows of x */
    float *qkv;
    uint16_t *a;       /* [rows, max(width, heads * d)]; in the last layer: the wanted rows of q */
    uint16_t *q, *att; /* [rows, max(width, heads * d)] */
    uint16_t *gate_up; /* [rows, 2 ffn] */
    uint16_t *h;       /* [rows, ffn] */
    float *angles;     /* [rows, rope_dims]: k_angles of `frequencies` */
    float *angles_local; /* [rows, rope_dims]: k_angles of frequencies_local, if two_ropes */
    float *state_out;    /* [states_cap, heads, d]: see attend_args */
    float *state_norm;   /* [states_cap, heads, 2]: see attend_args */
    float *logits;       /* [CUDA_HEAD_ROWS, vocab] */
    void *workspace;     /* for the products on `stream` */
    /* results: a logit per item, then values and ids of each top-k want, then a `drawn` per draw */
    float *answers;
    size_t answers_cap; /* in floats */

    char *part_host;   /* the part's buffer in pinned host memory */
    char *part_device; /* its copy on the card */
    size_t part_cap;   /* size of each in bytes */
    char *back;        /* pinned: results copied back to the host */
    size_t back_cap;   /* in bytes */

    attend_plan plan;      /* over all rows of the part */
    attend_plan last_plan; /* over the wanted rows, for the last layer */
    attend_row *all_rows;  /* [rows_cap]: input of `plan` */
    attend_row *last_rows; /* [rows_cap]: input of last_plan */
    int32_t *tables;       /* if paged: the rows' tables with slots instead of block numbers */
    size_t tables_cap;     /* in entries */
    int32_t highest;       /* highest block number marked so far */
    int32_t *marks;        /* [blocks]: equal to `mark` if the current part uses the block */
    int32_t mark;
    int32_t *used; /* [nused]: the blocks that the current part uses */
    size_t used_cap, nused;
    int32_t *copy_levels; /* [2 * blocks]: scratch of slot_copy_levels, zero between parts */
    slot_copy *copies;    /* the part's copies; copies_plan replaces their block numbers by slots */
    slot_copy *sorted;    /* the same copies, sorted by level */
    int *copy_ends;       /* the end of each level in `sorted` */
    int copies_cap;
    /* [copies of the pass]: 1 + the first row of the part that ran the copy, 0: not run yet */
    int *copied;
    int *wanted;    /* [nwanted]: rows of the part with wants, ascending, without repeats */
    int *want_rows; /* [nwants]: index in `wanted` of each want's row */
    /* [nwhole]: wants of the whole vocabulary: top-k wants, then draws, then wants of all logits */
    pass_want **whole;
    int wants_cap;

    cuda_graph graphs[CUDA_GRAPHS];
    int ngraphs;
    uint64_t graph_clock;   /* counts uses of graphs */
    cudaError_t copy_error; /* error of a kv_write or kv_send, reported by the next pass */
} cuda_work;

/* The current part of a pass: cuda_part.c fills it, cuda_forward.c runs it. */
typedef struct cuda_part {
    const pass *p;
    int first, nrows;       /* rows of the pass: [first, first + nrows) */
    int want_first, nwants; /* wants of the pass: [want_first, want_first + nwants) */
    int nwanted; /* number of rows with wants; work->wanted lists them, as offsets from `first` */
    int nitems;  /* number of ids in all wants that list ids; each gets one logit */
    int nwhole;  /* number of wants of the whole vocabulary, listed in work->whole */
    int ntops;   /* number of top-k wants, the first in work->whole */
    int ndraws;  /* number of draws, which follow in work->whole */
    bool all_wanted;   /* every row has a want */
    bool graph;        /* the shape is padded: the part may run as a captured graph */
    int copy_levels;   /* number of levels of copies; their ends are in work->copy_ends */
    graph_shape shape; /* sizes for all rows of the part */
    attend_shape last; /* sizes for the wanted rows; zero if all rows are wanted */
    part_layout at;
} cuda_part;

/* ---- cuda_model.c */
/* Probes the products, then loads the weights of engine->file. With no file, makes random weights
 * of engine->config's shape, for benchmarks. Sets *digest to a hash of the probe's products. */
int cuda_load(llm_engine *engine, hash128 *digest, err *e);
/* Allocates device memory that is freed with the engine. Returns NULL and sets *e on failure. */
void *cuda_engine_alloc(cuda_state *s, size_t bytes, const char *what, err *e);

/* ---- cuda.c */
/* Opens the device and loads the model. The caller has set the engine's config, mem, info.threads
 * and file. If file is NULL, the weights are random. */
int cuda_start(llm_engine *engine, int device, err *e);
/* Returns whether this build can use the card; if not, writes the reason to why[size], as one
 * clause. */
bool cuda_usable(int device, char *why, size_t size);

/* ---- cuda_work.c */
int cuda_work_new(llm_engine *engine, const work_size *size, void **work, err *e);
void cuda_work_free(llm_engine *engine, void *work);

/* ---- cuda_kv.c */
/* Allocates slots for size->likely_blocks, or the maximum number of slots if likely_blocks is more
 * than a quarter of it. Allocates fewer if memory is short, but at least least_slots. On failure
 * the caller still calls cuda_kv_free. */
int cuda_kv_new(cuda_kv *kv, const model_config *c, const work_size *size, int least_slots, err *e);
void cuda_kv_free(cuda_kv *kv);
/* Prepares for the use of blocks up to number `highest`; no part may be running. Grows the pool if
 * it can grow. If `highest` still exceeds the slots, begins paging. */
cudaError_t cuda_kv_reach(cuda_kv *kv, int32_t highest);
/* Begins a new part: enqueues the copies that bring blocks[n] onto the card. At most `slots` of
 * these blocks may be distinct, and no part may be running. */
int cuda_kv_bring(cuda_kv *kv, const int32_t *blocks, size_t n, err *e);
/* Makes `stream` wait for the blocks of the last cuda_kv_bring. */
cudaError_t cuda_kv_wait(cuda_kv *kv, cudaStream_t stream);
/* Records the event that marks the part's end on the card. To be called when all kernels that use
 * the part's blocks have been enqueued on `stream`. */
cudaError_t cuda_kv_begin(cuda_kv *kv, cudaStream_t stream);
/* Notes that the part has ended on the card. */
void cuda_kv_end(cuda_kv *kv);
/* Prefetches blocks for the next part while the current part runs: call it between cuda_kv_begin
 * and cuda_kv_end. `sure`: the next part needs the blocks, so they may evict any block, and blocks
 * of the running part after its end. Without `sure`, a block is copied to the card only if it is
 * worth more than the block that it evicts, and some slots are freed in advance. Running out of
 * host memory is not an error here. */
cudaError_t cuda_kv_prefetch(cuda_kv *kv, const int32_t *blocks, size_t n, bool sure);
/* Returns the slot of a block that is on the card. */
static inline int32_t cuda_kv_slot(const cuda_kv *kv, int32_t block) {
    return kv->paged ? kv->slot_of[block] : block;
}
/* Writes a block's content from host memory; returns once `in` was copied to a pinned buffer. */
cudaError_t cuda_kv_put(cuda_kv *kv, int32_t block, const void *in);
/* Waits for the page's last copy to end, then returns the page: pinned memory of one block's size.
 * Returns NULL if there is no memory. Called on the loader's thread. */
void *cuda_kv_page(cuda_kv *kv, int page);
/* Writes a block's content from a page, which is in use until cuda_kv_page returns it again. */
cudaError_t cuda_kv_send(cuda_kv *kv, int page, int32_t block);
/* Reads a block's content to `out`. Returns cudaErrorInvalidValue if the block was never
 * written. */
cudaError_t cuda_kv_get(cuda_kv *kv, int32_t block, void *out);

/* ---- cuda_part.c */
/* Returns how many rows from `first` on fit in one part. Returns 0 and sets *e if not even one row
 * fits. If there are fewer slots than blocks, work->used then lists the blocks of these rows. */
int cuda_part_rows(cuda_work *w, const pass *p, int first, err *e);
/* Plans the part, brings its blocks and fills the pinned buffer. The caller has set part->p, first,
 * nrows and want_first. */
int cuda_part_make(cuda_work *w, cuda_part *part, err *e);
/* Drops all captured graphs; needed after a buffer of the session was reallocated. Defined in
 * cuda_work.c. */
void cuda_graphs_drop(cuda_work *w);
/* Reallocates *p if it has less than `bytes` of pinned memory; its content is then lost. */
int cuda_pinned_reserve(char **p, size_t *cap, size_t bytes, err *e);

/* ---- cuda_forward.c */
/* llm_backend.forward: runs the pass, and writes its logits to its wants. */
int cuda_forward(llm_engine *engine, void *work, const pass *p, err *e);

#endif
