/*
 * session_int.h - a session and its requests.
 *
 *   queue ──(window)──> tree (waiting) ──schedule_fill──> live ──session_take_logits──> ready
 *   ready ──llm_step──> events (handed)
 *
 * Invariant: a request is in exactly one of these places. The nodes on a live request's path have
 * it among their users, so their KV is not evicted.
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
    bool chat;        /* the template's: answers do not end at a newline */
    int max_tokens;
    llm_sampling sampling;
    str *stop;
    int nstop;
    bool keep;
    llm_token *raw; /* of llm_logprobs: the prompt's tokens, instead of spans */
    float *raw_logits;

    int prompt_tokens; /* with BOS and the guide's prefix */
    int head_tokens;
    int computed, from_disk; /* prompt tokens that were computed, read from the store */
    bool shortened;

    bool live;
    bool arrived;      /* the prompt's last token is in the current pass or an earlier one */
    bool wants_all;    /* a draw needs more than the largest logits: its row runs again */
    prefix_node *end;  /* where the prompt ends in the tree */
    prefix_node *tail; /* private child of `end`: the tokens decoded so far */

    uint64_t sample_seed;
    llm_token *output;
    int noutput;
    buf text;

    /* INTEGER, REAL */
    double log_prob; /* of the tokens so far */
    number_state state;
    int digits;

    /* CHOICE */
    double **branch_log_prob; /* [branches][continuations]; NULL: not yet known */
    int branches_left;        /* branches not yet known */
    prefix_node **segments;   /* per segment of the guide: its private node; NULL: none now */
    int *segment_children;    /* segments below it that are not finished; -1: itself finished */
    int segments_placed;

    /* the answer */
    llm_finish finish;
    int choice;
    double prob;
    float *top_logits;
    llm_token *top_tokens;
} request;

static inline bool request_is_choice(const request *r) {
    return r->guide != NULL && r->guide->kind == LLM_GUIDE_CHOICE;
}
/* Returns the maximum number of tokens that the answer adds to the prompt. */
int request_answer_tokens(const request *r);

/* What a want's logits are for; values from 0 on are branches of the request's guide. */
enum { WANT_NEXT_TOKEN = -1, WANT_TOP = -2, WANT_RAW = -3 };

/* A want of the pass: its request, its purpose, and room for its result. */
typedef struct want_info {
    request *r;
    int what;                     /* WANT_… */
    size_t logits_at;             /* offset in the session's logits */
    llm_token top_ids[PASS_DRAW]; /* tokens of the largest logits */
} want_info;

_Static_assert((int)LLM_TOP_LOGITS <= (int)PASS_TOP, "a want holds the logits that an event shows");

typedef struct request_list {
    request *first, *last;
    int count;
} request_list;

struct llm_session {
    llm_engine *engine;
    llm_session_options options; /* with defaults filled in */
    bool
        runs_model; /* the backend computes logits: not count_only, not a backend without forward */
    void *work;     /* the backend's session data; NULL before the first pass */
    loader *loader; /* NULL: blocks are read from the store when they are needed */

    prefix_tree tree;
    prefix_node *cursor; /* current node of the depth-first walk */
    request_list queue;  /* not yet in the window */
    request_list ready;  /* answered, not yet returned */
    request_list handed; /* returned by the last llm_step, whose events point to their texts */
    request *current;    /* admitted, with part of its prompt not yet placed; or NULL */
    request **live;      /* in order of admission */
    int nlive, live_cap;
    int in_window;

    /* the pass being filled; arrays are reused */
    pass pass;
    int rows_cap, copies_cap, wants_cap, next_cap;
    want_info *want_infos; /* [pass.nwants] */
    int nwant_infos, want_infos_cap;
    float *logits;
    size_t logits_cap, logits_used;
    prefix_node **finished_nodes; /* nodes whose last token this pass computes */
    int nfinished, finished_cap;
    int prefill_rows, decode_rows;

    llm_token *scratch; /* the tokens of one prompt */
    int scratch_cap;
    int most_blocks;     /* maximum number of blocks in use so far */
    int device_blocks;   /* blocks that fit the device: the limit for live requests */
    void *block_bytes;   /* one KV block, to and from the store */
    size_t block_size;   /* bytes of a KV block */
    double ms_per_token; /* to compute a prompt token, by the last pass; 0: unknown */
    double read_ms;      /* time of reading `reads` blocks on the session's thread */
    uint64_t reads;
    llm_figures figures;
    size_t kv_budget_bytes, kv_host_budget_bytes; /* KV memory on the device, in host memory */
    uint64_t submitted_tokens;                    /* of all prompts so far */
    buf prefix_text;                              /* llm_session_prefixes' texts */
    bool failed;  /* a pass failed: KV may be incomplete, so no other pass is run */
    bool unsound; /* a pass produced logits that are NaN or infinite */
};

/* Whether blocks are stored and read. They are not if computing a block is faster than reading it
 * from a disk, unless the store keeps all blocks or the session only fills it (warm_only). */
bool session_store_pays(const llm_session *s);
/* Fills *id with the identity of the node's i-th own block, from start/32 on. Requires
 * node->keys. */
void session_kv_id(const llm_session *s, const prefix_node *node, int i, llm_kv_id *id);

/* ---- schedule.c */
/* Fills the pass: a row for each decoding sequence, then prompts in order. false: nothing could be
 * placed although work is left. */
bool schedule_fill(llm_session *s);
/* Adds the prompt of `r` to the pass (llm_logprobs). false: the pass is full before the end of the
 * prompt. */
bool schedule_fill_one(llm_session *s, request *r);
void schedule_reset_pass(llm_session *s);
/* Sets the wants' pointers, once the pass is filled. */
void schedule_finish_pass(llm_session *s);
/* Removes a segment's node: its logits and those of the segments below it are known. */
void schedule_segment_done(llm_session *s, request *r, int segment);
/* Takes a waiting request out of the tree's lists; NULL: there is none. */
request *schedule_take_waiting(llm_session *s);
/* Releases the nodes and counters of a live or waiting request. */
void schedule_release(llm_session *s, request *r);

/* ---- answer.c */
/* Gives the pass's logits to their requests and finishes the answers that are now complete. */
void session_take_logits(llm_session *s);
void request_free(request *r); /* NULL is fine */
/* Resets the answer's state, for a prompt that is placed anew. */
void request_restart(request *r);
void list_push(request_list *list, request *r);
request *list_pop(request_list *list); /* NULL: empty */

/* ---- sample.c */
/* Picks a token from logits[count]. Greedy: the first of the largest. A draw depends only on (seed,
 * step, logits); `step` is the number of the answer's token. */
int sample_token(const float *logits, int count, const llm_sampling *sampling, uint64_t seed,
                 int step);
/* Makes the same draw, from the `count` (<= PASS_DRAW) largest logits in descending order, their
 * tokens `ids`, and the total weight of the vocabulary. -1: the draw needs more logits. */
int sample_likeliest(const float *logits, const llm_token *ids, int count, uint64_t total,
                     const llm_sampling *sampling, uint64_t seed, int step);

#endif
