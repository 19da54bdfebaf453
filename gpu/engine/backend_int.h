/*
 * backend_int.h - the interface of a backend: a table of functions that run passes of the model on
 * a device (cpu, cuda, or test:hash, which has no model).
 *
 * A pass is plain data: rows (one new token each), the blocks their KV goes to, and the logits
 * wanted. The scheduler fills it, a backend runs it. KV is paged in blocks of LLM_BLOCK_TOKENS
 * positions; a row's block table lists the blocks of positions 0, 32, 64, … up to its own.
 *
 *   row        token t at position p, table [b0 b1 b2 …]: attends to keys 0..p of the table
 *   copies     run before attention, in order: copy the first n positions of block `from` to block
 *              `to`, for prompts that branch inside a block
 *   moves      run after the copies: copy the KV of a text to other positions of another table, with
 *              the keys rotated to their new positions
 *   probes     score the tokens of moved texts, so that some can be chosen
 *   wants      ask for logits after a row: of the listed ids, or of the whole vocabulary
 *   pools      instead of wants, for an embedding model: whole texts, each from position 0 on in
 *              blocks of its own, whose vectors are asked for. A row attends to the keys of its
 *              text that the model lets it see. The blocks hold one layer's keys at a time, so a
 *              later pass cannot attend to them
 *
 * Invariant: the bits of a row's KV and logits depend only on the tokens of its path, not on the
 * other rows of the pass.
 */
#ifndef KVASIR_BACKEND_INT_H
#define KVASIR_BACKEND_INT_H

#include "gpu/llm.h"

/* When a row's key and value are stored in its block. KEEP_MOVED: after the moves of the pass, which
 * may write to the same position. KEEP_NOT: never; the row attends to what the position held. */
typedef enum row_keep { KEEP_FIRST, KEEP_MOVED, KEEP_NOT } row_keep;

typedef struct pass_row {
    llm_token token;
    int position;
    row_keep keep;
    /* the row's block table, up to the block of its own position; in a pool, of its whole text */
    const int32_t *table;
} pass_row;

typedef struct pass_copy {
    int32_t from, to; /* blocks */
    int tokens;       /* number of positions copied, from the first of the block */
    bool after_moves; /* runs after the moves and the rows that are KEEP_MOVED */
} pass_copy;

/* Copies the KV of positions [from, from + count) of one table to positions [to, to + count) of
 * another. No two moves of a pass write to the same position, and none reads what another writes. */
typedef struct pass_move {
    const int32_t *from_table, *to_table;
    int from, to, count;
} pass_move;

/* Scores the tokens at positions [from, to) of a table, from rows that run through the first layers
 * only. ATTENTION: adds to scores[to - from] how much row `first` attends to each, summed over heads
 * and the first probe_layers() layers. DEVIATION: the rows [first, first + count) are tokens of these
 * positions, KEEP_NOT; sets each one's score to the squared distance of its value at layer
 * PROBE_VALUES from the value in the block. Sums are of integers, so that they do not depend on the
 * order of tasks. */
typedef enum probe_kind { PROBE_ATTENTION, PROBE_DEVIATION, PROBE_KINDS } probe_kind;
typedef struct pass_probe {
    probe_kind kind;
    int first, count;
    int from, to;
    _Atomic uint64_t *scores; /* in units of 1 / PROBE_ONE */
} pass_probe;

enum { PROBE_VALUES = 1, PROBE_ONE = 1 << 24 };

/* The later layers attend to the same tokens (tests/bench/README.md, bench_blend). */
static inline int probe_layers(int layers) {
    return (layers + 3) / 4;
}

typedef struct pass_want {
    int row;              /* index into pass.rows: the logits are those after this row */
    const llm_token *ids; /* [count] tokens whose logits are wanted; NULL: the whole vocabulary */
    int count;            /* number of ids; if ids is NULL, the vocabulary's size */
    float *logits;        /* the result: [count], or [top] if top > 0 */
    /* > 0 (then ids is NULL): only the `top` largest logits are wanted, in descending order, equal
     * logits by ascending token; 0: all `count` logits */
    int top;
    llm_token *top_ids; /* the result if top > 0: [top] the tokens of `logits` */
    /* > 0: the token will be drawn with this temperature. If also top > 0 (only for backends with
     * `draws`), the backend sets `total`. */
    float temperature;
    uint64_t total; /* a result: the sum of the weights (sample_weight_int.h) of all tokens */
} pass_want;

/* A text of a pass: rows [first, first + count). */
typedef struct pass_pool {
    int first, count;
    float *vector; /* the result: [info.embedding] of length 1 */
} pass_pool;

enum {
    PASS_TOP = 16, /* maximum of pass_want.top if no `total` is wanted */
    PASS_DRAW = 64 /* maximum of pass_want.top if `total` is wanted */
};
enum { KV_PAGES = 64 }; /* number of pages of llm_backend.kv_page */

typedef struct pass {
    pass_row *rows; /* in the order of the prefix tree: consecutive rows share blocks */
    int nrows;
    pass_copy *copies;
    int ncopies;
    pass_move *moves;
    int nmoves;
    pass_probe *probes;
    int nprobes;
    /* by kind: number of rows for probes: of the pass's last rows, those of PROBE_DEVIATION, and
     * before them those of PROBE_ATTENTION, which include what precedes a probe's row */
    int probe_rows[PROBE_KINDS];
    pass_want *wants; /* by ascending row; a row may have several */
    int nwants;
    pass_pool *pools; /* by ascending row; together they are all rows */
    int npools;
    int32_t *next; /* [nnext] blocks that the next pass will probably read, by first use */
    int nnext;
} pass;

/* A request to a backend that returns whole answers instead of logits (test:hash). */
typedef struct backend_question {
    llm_span *const *spans;
    int nspans;
    const llm_guide *guide;
    int max_tokens;
} backend_question;

typedef struct backend_answer {
    int choice; /* index of the literal; -1: the answer is the text */
    double prob;
    double *probs; /* [guide->count] to fill with the probability of each literal; or NULL */
    int tokens;    /* number of tokens of the answer */
    bool ended;    /* max_tokens cut the answer */
} backend_answer;

/* The sizes of a session's data in a backend, and what the backend may ask the session. */
typedef struct work_size {
    int blocks; /* number of KV blocks, on the device and in host memory together */
    /* maximum number of blocks on the device; less than `blocks` if info.kv_host_bytes > 0 */
    int device_blocks;
    /* estimate of the number of blocks that the session will use; a backend may start with memory
     * for this number */
    int likely_blocks;
    int rows;                  /* maximum number of rows in a pass */
    const atomic_bool *cancel; /* polled while the weights are read; NULL: cannot be cancelled */
    /* Returns the number of prompts so far that contain the block; an unanswered prompt counts as
     * many answered ones. -1: the block is free. Called on the session's thread. May be NULL. */
    int (*wanted)(const void *ctx, int32_t block);
    /* Returns how often the block has been allocated. When this number changes, the block's old
     * content is no longer valid. Called on the session's thread. May be NULL. */
    uint32_t (*life)(const void *ctx, int32_t block);
    const void *ctx; /* first argument of `wanted` and `life` */
} work_size;

typedef struct llm_backend {
    const char *name;
    int pass_tokens; /* upper limit of the default of llm_session_options.pass_tokens */
    int max_batch;   /* default of llm_session_options.max_batch */
    bool draws;      /* supports pass_want.total */
    bool blends;     /* supports moves, probes and KEEP_MOVED, or has no `forward` */
    /* Fills engine->state and the facts in engine->info. */
    int (*open)(llm_engine *engine, const llm_engine_options *options, err *e);
    void (*close)(llm_engine *engine);
    /* Do the same as tokenizer_encode and tokenizer_decode (text/tokenizer_int.h). */
    void (*encode)(const llm_engine *engine, str text, bool parse_special, bool segment_start,
                   llm_token **out, size_t *count, size_t *cap);
    void (*decode)(const llm_engine *engine, llm_token token, bool special, buf *out);
    /* Creates a session's data: KV blocks and buffers. Loads the weights if they are not loaded
     * yet. */
    int (*work_new)(llm_engine *engine, const work_size *size, void **work, err *e);
    void (*work_free)(llm_engine *engine, void *work);
    /* Runs a pass: computes the KV of the rows and the results of the wants or pools. NULL: the
     * backend has `answer` and `embed` instead. */
    int (*forward)(llm_engine *engine, void *work, const pass *p, err *e);
    /* Copy a block's bytes (info.kv_bytes_per_token * LLM_BLOCK_TOKENS) out and in. */
    int (*kv_read)(llm_engine *engine, void *work, int32_t block, void *out, err *e);
    void (*kv_write)(llm_engine *engine, void *work, int32_t block, const void *in);
    /* Pages of memory, each as large as a block, from which the device reads without another copy.
     * kv_page and kv_send are NULL if kv_write is as fast. kv_page waits until the last transfer
     * from the page (< KV_PAGES) has ended; then it returns the page's memory, or NULL if there is
     * none. It is called on the loader's thread. kv_send starts the transfer of a page to a block,
     * on the session's thread. */
    void *(*kv_page)(llm_engine *engine, void *work, int page);
    void (*kv_send)(llm_engine *engine, void *work, int page, int32_t block);
    /* Records rates that a session measured, in the side file; 0: not measured. NULL: the backend
     * records no rates. Thread-safe. */
    void (*keep_rates)(llm_engine *engine, double prefill_tok_s, double decode_tok_s);
    /* Returns a whole answer, for backends without `forward`. */
    void (*answer)(llm_engine *engine, const backend_question *question, backend_answer *out,
                   buf *text);
    /* Makes the vector [info.embedding] of a text, for backends without `forward`. */
    void (*embed)(llm_engine *engine, str text, float *vector);
    /* Does the same as llm_session_new, for backends whose requests are answered elsewhere: these
     * have neither `forward` nor `answer`. A session that only counts is local. NULL: all sessions
     * are local. */
    int (*session_new)(llm_engine *engine, const llm_session_options *options, llm_session **out,
                       err *e);
} llm_backend;

#ifdef KVASIR_CPU
extern const llm_backend backend_cpu;
#endif
#ifdef KVASIR_CUDA
extern const llm_backend backend_cuda;
#endif
#ifdef KVASIR_TEST_MODELS
extern const llm_backend backend_test;
#endif
#ifdef KVASIR_REMOTE
extern const llm_backend backend_remote;
#endif

#endif
