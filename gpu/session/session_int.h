/*
 * session_int.h - requests in flight and the session around them.
 *
 *   queue ──(window)──> tree (waiting) ──schedule_fill──> live ──session_settle──> ready
 *   ready ──llm_step──> events
 *
 * A request is in exactly one of these places; `live` ones have their path's users counted, so that
 * their KV stays.
 */
#ifndef KVASIR_SESSION_INT_H
#define KVASIR_SESSION_INT_H

#include "engine/engine_int.h"
#include "engine/guide_int.h"
#include "loader_int.h"
#include "prefix_int.h"

typedef struct request {
    struct request *next; /* in the queue, a node's list, or the ready list */
    uint64_t tag;
    llm_span **spans;
    int nspans;
    llm_guide *guide; /* NULL: free text */
    bool chat;
    int max_tokens;
    llm_sampling sampling;
    str *stop;
    int nstop;
    llm_token *raw; /* llm_logprobs alone: the prompt's tokens, no spans */
    float *raw_logits;

    int prompt_tokens; /* with BOS and the guide's prefix */
    int head_tokens;
    int computed, from_disk;
    /* the likeliest tokens did not suffice to draw the next one: its row runs again */
    bool wants_all;
    bool keep;
    bool shortened;
    bool live, arrived; /* arrived: the pass in hand reaches the prompt's last token */
    prefix_node *end;   /* where the prompt ends in the tree */
    prefix_node *tail;  /* private: decoded tokens */

    uint64_t sample_seed;
    llm_token *output;
    int noutput;
    buf text;
    double log_prob; /* INTEGER, REAL: so far */
    number_state state;
    int digits;

    double **branch_log_prob; /* CHOICE: per branch, NULL until known */
    int branches_left;
    prefix_node **segments; /* per segment of the guide, NULL before and after it is resident */
    int *segment_children;  /* not yet done below it */
    int segments_placed;

    llm_finish finish;
    int choice;
    double prob;
    float *top_logits;
    llm_token *top_tokens;
} request;

/* Who waits for a want's logits. */
enum { WANT_NEXT_TOKEN = -1, WANT_TOP = -2, WANT_RAW = -3 };

typedef struct want_owner {
    request *r;
    int what; /* a branch of the request's guide, or WANT_… */
} want_owner;

_Static_assert((int)LLM_TOP_LOGITS <= (int)PASS_TOP, "a want's tops hold what an event shows");

typedef struct request_list {
    request *first, *last;
    int count;
} request_list;

struct llm_session {
    llm_engine *engine;
    llm_session_options options;
    void *work; /* the backend's; NULL when nothing goes through a model */
    bool runs_model;
    loader *loader; /* NULL: blocks are read from the store when they are needed */
    prefix_tree tree;
    prefix_node *cursor; /* where the depth-first walk stands */
    request_list queue;  /* not yet in the window */
    request_list ready;  /* answered, not handed out */
    request_list handed; /* whose texts the last events point to */
    request *current;    /* admitted, its prompt not yet wholly placed */
    request **live;      /* in order of admission */
    int nlive, live_cap;
    int in_window;

    /* the pass being built; all grown, never shrunk */
    pass pass;
    int rows_cap, copies_cap, wants_cap, next_cap;
    want_owner *owners;
    llm_token (*top_ids)[PASS_DRAW]; /* per want: of its likeliest tokens */
    float *logits;
    size_t logits_cap, logits_used;
    size_t *logits_at;            /* per want: offset, made a pointer when the pass is complete */
    prefix_node **finished_nodes; /* whose tokens this pass completes */
    int nfinished, finished_cap;
    int prefill_rows, decode_rows;

    llm_token *scratch; /* one prompt */
    int scratch_cap;
    int most_blocks; /* held at once so far */
    /* of the tree's: what live requests use must fit into these; the rest is in host memory */
    int device_blocks;
    void *block_bytes; /* one KV block, for the store */
    size_t block_size;
    double ms_per_token;
    double read_ms; /* of blocks that were read when they were needed, and how many */
    uint64_t reads;
    llm_figures figures;
    size_t kv_budget_bytes,
        kv_host_budget_bytes;  /* of KV memory, on the device and in host memory */
    uint64_t submitted_tokens; /* of all prompts, those that wait too */
    buf prefix_text;
    bool failed;  /* a pass failed: KV may be incomplete */
    bool unsound; /* logits were no numbers: no answer follows from them */
};

/* Are blocks worth storing and reading at all? Not where computing one takes less than reading it
 * would, which is so on a fast card; unless the store is to keep all, or the session is there to
 * fill it. */
bool session_store_pays(const llm_session *s);

/* ---- schedule.c */
/* Fills the pass: decode rows first, then prompts in order.
 * false: nothing could be placed although work is left. */
bool schedule_fill(llm_session *s);
/* Places `r` alone, whatever else waits (llm_logprobs). */
bool schedule_fill_one(llm_session *s, request *r);
void schedule_reset_pass(llm_session *s);
/* Fixes the wants' pointers once the pass is complete. */
void schedule_seal(llm_session *s);
/* The logits after a segment are known and so are those below it: its node goes. */
void schedule_segment_done(llm_session *s, request *r, int segment);
/* Lets go of all KV and counts that a live or waiting request holds. */
void schedule_release(llm_session *s, request *r);

/* ---- settle.c */
/* Hands the pass's logits to their requests: next tokens, branches, finished answers. */
void session_settle(llm_session *s);
void request_free(request *r);
/* Forgets what is known of the answer: the prompt is placed anew. */
void request_restart(request *r);
void list_push(request_list *list, request *r);
request *list_pop(request_list *list);

/* ---- sample.c */
/* The next token from logits[count] by the sampling rules; `step` counts the answer's tokens.
 * Greedy: the first of the largest. The same (seed, step, logits) give the same token. */
int sample_token(const float *logits, int count, const llm_sampling *sampling, uint64_t seed,
                 int step);
/* The same from the `count` likeliest alone (at most PASS_DRAW, in order) and the weight of all;
 * -1: they do not suffice. */
int sample_likeliest(const float *logits, const llm_token *ids, int count, uint64_t total,
                     const llm_sampling *sampling, uint64_t seed, int step);

#endif
