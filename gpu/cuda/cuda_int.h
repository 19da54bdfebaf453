/*
 * cuda_int.h - the CUDA backend's engine state and a session's work memory.
 *
 * Weights are bf16 in device memory, rows in the file's order; what rope pairs is the kernel's
 * business, so nothing is permuted:
 *
 *   qkv      [(heads + 2 kv_heads) * d, width]   rows of q, k, v
 *   gate_up  [2 ffn, width]                      rows of gate, then of up
 *   head     [vocab, width]                      the embedding itself where the file ties them
 *
 * A pass runs as one or more parts, each of at most `rows_cap` rows whose KV blocks fit the card. A
 * part's plain data (cuda_part.c) lies in one pinned buffer and goes to the card in one copy.
 */
#ifndef KVASIR_CUDA_INT_H
#define KVASIR_CUDA_INT_H

#include "cuda_gemm_int.h"
#include "cuda_kernels_int.h"
#include "engine/engine_int.h"
#include "model/pool_int.h"

enum {
    CUDA_PASS_ROWS = 16384, /* most rows of a part */
    /* Most rows that products are tested and timed on: a pass as a session makes it, where nobody
     * says otherwise (8,192 new tokens, 1,024 rows that decode, 64 that run once more). */
    CUDA_PROBE_ROWS = 9280,
    CUDA_WIDEST = 16384,    /* columns of a row that a norm holds in registers */
    CUDA_GRAPH_ROWS = 1024, /* parts up to here, of decode rows alone, run as captured graphs */
    CUDA_GRAPHS = 48,       /* kept per session */
    CUDA_HEAD_ROWS = 128,   /* rows of one product with the head */
    CUDA_STAGES = 8,        /* pinned blocks on their way to the card */
    CUDA_TRIPS = 32         /* groups of blocks on their way that a part may wait for one by one */
};

typedef struct cuda_layer {
    uint16_t *qkv, *o, *gate_up, *down;
    float *attn_norm, *ffn_norm;           /* [width] */
    float *post_attn_norm, *post_ffn_norm; /* [width] or NULL */
    float *qkv_bias, *o_bias;              /* NULL: none */
    float *q_norm, *k_norm;                /* [d]; NULL: none */
    bool has_rope;
    int window;
} cuda_layer;

typedef struct cuda_state {
    int device;
    cudaStream_t stream; /* of loading and probing */
    cuda_gemm *g;
    int plan_qkv, plan_o, plan_gate_up, plan_down, plan_head;
    cuda_layer *layers;
    uint16_t *embedding, *head; /* the same where tied */
    float *final_norm;
    float *frequencies, *frequencies_local; /* [rope_dims / 2] */
    bool two_ropes;
    float rope_magnitude;
    void **allocations; /* all of the above on the card */
    int nallocations, allocations_cap;
    size_t weight_bytes;
    pool *threads;               /* for dequantising */
    const atomic_bool *cancel;   /* looked at while the file is read; NULL: nobody cancels */
    int probe_rows;              /* 0: CUDA_PROBE_ROWS */
    char card[300];              /* what rates were measured on: the card, without its state */
    char name[360], reason[320]; /* as people see them */
    char *cache_dir;
    hash128 weights;
} cuda_state;

/* Counts as they are launched: padded where a graph is to fit several parts. A captured graph
 * depends on them and on the addresses of the session's buffers alone. */
typedef struct attend_shape {
    int levels;
    int wide[ATTEND_LEVELS], narrow[ATTEND_LEVELS]; /* tasks; narrow ones may run among the wide */
    int merges;
} attend_shape;

typedef struct graph_shape {
    int rows;
    attend_shape attend;
} graph_shape;

/* A shape is run plainly when it first comes (kernels that are loaded on first use must not be
 * while a graph is captured; many shapes come once), and captured when it comes again. */
typedef struct cuda_graph {
    graph_shape shape;
    cudaGraphExec_t exec; /* NULL: not captured */
    bool refused;         /* it could not be: it is not tried again */
    uint64_t used;        /* when last */
} cuda_graph;

typedef struct attend_layout {
    size_t states, wide[ATTEND_LEVELS], narrow[ATTEND_LEVELS], merges, blocks;
} attend_layout;

/* Where a part's arrays lie, in bytes from the buffer's start. */
typedef struct part_layout {
    size_t tokens, positions, slots, wanted, wanted_positions;
    /* of attention over all rows, and over the wanted ones in the last layer */
    attend_layout all, last;
    size_t copies, items, whole, temperatures;
    size_t bytes;
} part_layout;

typedef struct slot_rank {
    double rank;
    uint64_t used; /* the slot's, when it was ranked */
    int32_t slot;
} slot_rank;

/* Pinned memory of blocks that left the card, in pages
 * of a block's bytes; made in chunks as it is needed. */
typedef struct host_tier {
    char **chunks;
    int nchunks, chunk_pages;
    int32_t *page_of;    /* [blocks]; -1: none */
    uint32_t *life;      /* [blocks]: the block's whose content the page has */
    uint64_t reclaimed;  /* the clock when pages of no use were looked for last */
    int32_t *free_pages; /* [blocks] */
    int nfree, made, budget;
} host_tier;

/* KV blocks: the scheduler's numbers, and the slots of the card that hold them. Block b is in slot
 * b until a block is used that has none; from then on `paged`.
 *
 *   copy      ── trip 7 ──▶ trip 8 ──▶ [behind part 3] ── trip 9 ──▶
 *                   ╲                        ╱
 *   compute   ── part 2 ── [behind trip 7] part 3 ────────
 *
 * A trip is a group of blocks' journeys with an event behind it. A part waits for the last trip
 * that one of its slots was in; the copy stream waits for a part where it takes a slot that this
 * uses. */
typedef struct cuda_kv {
    int blocks, slots; /* slots < blocks: the rest lives in host memory */
    int most;          /* slots that there may be: more are asked for when they are needed */
    bool moved;        /* the pool is elsewhere than it was: graphs know its address */
    size_t block_elements, layer_elements;
    uint16_t *pool; /* device [slots, block_elements] */
    bool paged;
    int32_t *slot_of;    /* [blocks]; -1: not on the card */
    int32_t *block_in;   /* [slots]; -1: free; this and what follows only where paged */
    int32_t *free_slots; /* [slots] */
    int nfree;
    uint64_t *used;     /* [slots]: the clock when last used, or asked for ahead */
    uint64_t *part_of;  /* [slots]: the last part that uses it */
    uint64_t *trip_of;  /* [slots]: the last trip of what it holds, or held */
    uint64_t clock;     /* counts uses of blocks */
    slot_rank *victims; /* [slots]: slots by worth, as they were ranked; */
    int nvictims, next_victim;
    uint64_t fruitless; /* the clock when no slot could be found ahead */
    int taken;          /* slots that the last part took anew */
    host_tier host;
    int (*wanted)(const void *ctx, int32_t block); /* work_size */
    uint32_t (*life)(const void *ctx, int32_t block);
    const void *ctx;
    uint64_t moved_in, moved_out, dropped; /* dropped: their content was nobody's */
    uint64_t in_ahead, out_ahead;          /* of those moved: while a part was under way */
    cudaStream_t copy;                     /* the second stream */
    cudaEvent_t ended[CUDA_TRIPS];         /* trip n: [n % CUDA_TRIPS] */
    uint64_t trips, needed, waited; /* trips ended; of these: the part in hand needs, compute saw */
    bool travelling;                /* something was put on `copy` behind the last trip */
    uint64_t part;                  /* parts so far */
    bool computing, behind;         /* the last one is under way; `copy` waits for its end */
    cudaEvent_t computed;           /* its end */
    uint16_t *stages[CUDA_STAGES];  /* pinned */
    cudaEvent_t staged[CUDA_STAGES];
    int stage;
    void *pages
        /* pinned; the loader's thread makes them, fills them, and waits for their journeys */
        [KV_PAGES];
    cudaEvent_t page_sent[KV_PAGES];
} cuda_kv;

typedef struct cuda_work {
    llm_engine *engine;
    cuda_state *s;
    cudaStream_t stream;
    cuda_kv kv;
    int rows_cap, states_cap;

    /* device, row-major, rows_cap rows */
    float *x, *y; /* [rows, width] */
    /* [rows, max(qkv width, width)]; after the last layer's k and v: the wanted rows of x */
    float *qkv;
    uint16_t *a;       /* [rows, max(width, heads * d)]; in the last layer: the wanted rows of q */
    uint16_t *q, *att; /* [rows, max(width, heads * d)] */
    uint16_t *gate_up, *h; /* [rows, 2 ffn], [rows, ffn] */
    float *angles, *angles_local;
    float *state_out, *state_norm; /* [states_cap, heads, d], [states_cap, heads, 2] */
    float *logits;                 /* [CUDA_HEAD_ROWS, vocab] */
    void *workspace;               /* of the products on `stream` */
    float *answers;                /* items' logits, tops' values and ids, what was drawn from */
    size_t answers_cap;            /* in floats */

    char *part_host, *part_device; /* the part's data: pinned, and on the card */
    size_t part_cap;
    char *back; /* pinned: what comes back */
    size_t back_cap;

    attend_plan plan, last_plan;
    attend_row *all_rows, *last_rows;
    int32_t *tables; /* slots of the rows' blocks, where paged */
    size_t tables_cap;
    int32_t highest;      /* of the blocks marked so far */
    int32_t *marks, mark; /* [blocks]: == mark: used by the part in hand */
    int32_t *used;        /* the blocks so marked */
    size_t used_cap, nused;
    int32_t *copy_levels;       /* [2 * blocks], zero between parts */
    slot_copy *copies, *sorted; /* the part's copies, by slots */
    int *copy_ends, copies_cap;
    /* per copy of the pass: one more than the first row of the part that took it; 0: none did */
    int *copied;
    int *wanted, *want_rows; /* [wants_cap] */
    pass_want **whole;
    int wants_cap;

    cuda_graph graphs[CUDA_GRAPHS];
    int ngraphs;
    uint64_t graph_clock;
    cudaError_t broken; /* a copy that no caller could be told of (kv_write) */
} cuda_work;

/* The part of a pass in hand (cuda_part.c fills it, cuda_forward.c runs it). */
typedef struct cuda_part {
    const pass *p;
    int first, nrows; /* of the pass */
    int want_first, nwants;
    int nwanted; /* unique rows of the wants: work->wanted, ascending, counted from `first` */
    int nitems;  /* allowed tokens of all wants */
    int nwhole, ntops,
        /* wants of the whole vocabulary: work->whole; first those of tops, then those of draws */
        ndraws;
    bool all_wanted, graph;
    int copy_levels; /* ends of levels: work->copy_ends */
    graph_shape shape;
    attend_shape last;
    part_layout at;
} cuda_part;

/* ---- cuda_model.c */
/* Loads engine->file (NULL: random weights of engine->config's shape, for benches), and probes. */
int cuda_load(llm_engine *engine, hash128 *digest, err *e);
void *cuda_keep(cuda_state *s, size_t bytes, const char *what,
                err *e); /* device memory that lives with the engine */

/* ---- cuda.c */
/* Opens the device and loads; the engine has its file (or none), config, mem and info.threads. */
int cuda_start(llm_engine *engine, int device, err *e);
/* Is there a card that will do? On false `why` says, in one clause. */
bool cuda_usable(int device, char *why, size_t size);

/* ---- cuda_work.c */
int cuda_work_new(llm_engine *engine, const work_size *size, void **work, err *e);
void cuda_work_free(llm_engine *engine, void *work);

/* ---- cuda_kv.c */
/* Room on the card for size->likely_blocks, or
 * fewer, down to least_slots, where memory is short. */
int cuda_kv_new(cuda_kv *kv, const model_config *c, const work_size *size, int least_slots, err *e);
void cuda_kv_free(cuda_kv *kv);
/* Called before blocks up to `highest` are used, with no compute under way: makes room on the card
 * as long as there is some; from then on blocks move. */
cudaError_t cuda_kv_reach(cuda_kv *kv, int32_t highest);
/* Brings blocks[n] onto the card for a new part, with none under way (at most `slots` of them,
 * repeats are fine). */
int cuda_kv_bring(cuda_kv *kv, const int32_t *blocks, size_t n, err *e);
/* Has `stream` wait for the blocks that were brought. */
cudaError_t cuda_kv_wait(cuda_kv *kv, cudaStream_t stream);
/* The part that blocks were brought for is on the stream, all that reads or writes them; it is
 * done. */
cudaError_t cuda_kv_begin(cuda_kv *kv, cudaStream_t stream);
void cuda_kv_end(cuda_kv *kv);
/* Between these two: begins to bring what the next part will need, and makes room, as far as there
 * is any. sure: it will, and takes slots of the part under way once that is done; else only blocks
 * that are worth more than those that would give way come. */
cudaError_t cuda_kv_ahead(cuda_kv *kv, const int32_t *blocks, size_t n, bool sure);
static inline int32_t cuda_kv_slot(const cuda_kv *kv, int32_t block) {
    return kv->paged ? kv->slot_of[block] : block;
}
cudaError_t cuda_kv_put(cuda_kv *kv, int32_t block, const void *in);
/* A page's memory once its last journey has ended;
 * NULL: none is to be had. From the loader's thread. */
void *cuda_kv_page(cuda_kv *kv, int page);
cudaError_t cuda_kv_send(cuda_kv *kv, int page, int32_t block);
cudaError_t cuda_kv_get(cuda_kv *kv, int32_t block, void *out);

/* ---- cuda_part.c */
/* How many rows from `first` on one part can take; 0 and *e: not even one. Where blocks may be in
 * host memory, work->used lists those of these rows. */
int cuda_part_rows(cuda_work *w, const pass *p, int first, err *e);
/* Plans the part and fills the pinned buffer; part->p, first, nrows are given. */
int cuda_part_make(cuda_work *w, cuda_part *part, err *e);
void cuda_graphs_drop(cuda_work *w); /* after a buffer has moved */
/* Pinned memory for at least `bytes` more; grows `*p`. Content is lost. */
int cuda_pinned_reserve(char **p, size_t *cap, size_t bytes, err *e);

/* ---- cuda_forward.c */
int cuda_forward(llm_engine *engine, void *work, const pass *p, err *e);

#endif
