/*
 * backend_int.h - what runs a pass of the model: a table of functions, one per device (cpu, test,
 * later cuda, remote).
 *
 * A pass is plain data: rows (one new token each), where their KV goes, and the logits wanted. The
 * scheduler fills it, a backend executes it; neither knows the other's insides. KV is paged:
 * LLM_BLOCK_TOKENS positions a block; a row's block table lists the blocks of positions 0, 32, 64,
 * … up to its own.
 *
 *   row        token t at position p, table [b0 b1 b2 …]   keys 0..p of the table are visible to it
 *   copies     before attention, in order: the first n slots of block `from` -> block `to`, where
 *              prompts branch inside a block
 *   wants      logits after a row: the listed ids, or the whole vocabulary
 *
 * Invariant: the bits of a row's KV and logits depend on its path's tokens alone, never on the
 * other rows.
 */
#ifndef KVASIR_BACKEND_INT_H
#define KVASIR_BACKEND_INT_H

#include "gpu/llm.h"

typedef struct pass_row {
    llm_token token;
    int position;
    const int32_t *table; /* [position / LLM_BLOCK_TOKENS + 1] */
} pass_row;

typedef struct pass_copy {
    int32_t from, to;
    int tokens;
} pass_copy;

typedef struct pass_want {
    int row;
    const llm_token *ids; /* NULL: the whole vocabulary */
    int count;            /* ids, or the vocabulary's size */
    float *logits;        /* [count], filled by the backend */
    /* top > 0 (ids NULL, top <= PASS_TOP): instead of all, logits[top] are the largest, largest
     * first, ties to the lower id; top_ids[top] their tokens. */
    int top;
    llm_token *top_ids;
    /* > 0, of backends that draw: top <= PASS_DRAW, and `total` is the weight of the whole
     * vocabulary (sample_weight_int.h). */
    float temperature;
    uint64_t total;
} pass_want;

enum { PASS_TOP = 16, PASS_DRAW = 64 };
enum { KV_PAGES = 64 }; /* of kv_page */

typedef struct pass {
    pass_row *rows; /* neighbours in the prefix tree stand together, so that blocks are shared by
                       runs of rows */
    int nrows;
    pass_copy *copies;
    int ncopies;
    pass_want *wants; /* by ascending row; a row may have several */
    int nwants;
    int32_t *next; /* blocks that the next pass will probably read, the first needed first */
    int nnext;
} pass;

/* A prompt as a backend without logits sees it (test:hash, remote). */
typedef struct backend_question {
    llm_span *const *spans;
    int nspans;
    const llm_guide *guide;
    int max_tokens;
} backend_question;

typedef struct backend_answer {
    int choice; /* index of the literal, or -1: `text` */
    double prob;
    int tokens;
    bool ended; /* by max_tokens */
} backend_answer;

/* How large a session's work is. */
typedef struct work_size {
    int blocks;        /* of KV */
    int device_blocks; /* of them on the device, at most: fewer where info.kv_host_bytes > 0 */
    int likely_blocks; /* so many may do: what is asked for at once */
    int rows;          /* of a pass */
    const atomic_bool *cancel; /* looked at while the weights are read; NULL: nobody cancels */
    /* How often a block is wanted, by its prompts so far and far more by those not yet answered;
     * -1: its content is nobody's. Any time on the session's thread; NULL: unknown. */
    int (*wanted)(const void *ctx, int32_t block);
    /* How often the block was given out: what it held in an earlier life is nobody's. As
     * `wanted`. */
    uint32_t (*life)(const void *ctx, int32_t block);
    const void *ctx;
} work_size;

typedef struct llm_backend {
    const char *name;
    /* What a session takes where its options do not say: new tokens of a pass, live sequences. */
    int pass_tokens, max_batch;
    bool draws; /* weighs the vocabulary itself, so that a draw needs the likeliest tokens alone */
    /* Fills engine->state and the facts in engine->info. */
    int (*open)(llm_engine *engine, const llm_engine_options *options, err *e);
    void (*close)(llm_engine *engine);
    /* Tokens of a text, appended (tokenizer_encode's contract), and back. */
    void (*encode)(const llm_engine *engine, str text, bool parse_special, bool segment_start,
                   llm_token **out, size_t *count, size_t *cap);
    void (*decode)(const llm_engine *engine, llm_token token, bool special, buf *out);
    /* The mutable side of a session: its KV and work memory. */
    int (*work_new)(llm_engine *engine, const work_size *size, void **work, err *e);
    void (*work_free)(llm_engine *engine, void *work);
    int (*forward)(llm_engine *engine, void *work, const pass *p, err *e);
    int (*kv_read)(llm_engine *engine, void *work, int32_t block, void *out, err *e);
    void (*kv_write)(llm_engine *engine, void *work, int32_t block, const void *in);
    /* A page of a block's bytes that kv_send takes to a block without copying it first, once its
     * last journey has ended; NULL: no memory. Called by the loader's thread (loader_int.h), `page`
     * < KV_PAGES; kv_send by the session's. Both NULL where kv_write is as good. */
    void *(*kv_page)(llm_engine *engine, void *work, int page);
    void (*kv_send)(llm_engine *engine, void *work, int page, int32_t block);
    /* What a session measured, for the next start
     * (side_file.c); NULL: nothing is kept. Thread-safe. */
    void (*keep_rates)(llm_engine *engine, double prefill_tok_s, double decode_tok_s);
    /* Instead of logits: the whole answer at once (NULL where `forward` gives logits). */
    void (*answer)(llm_engine *engine, const backend_question *question, backend_answer *out,
                   buf *text);
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

#endif
