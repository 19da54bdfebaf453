/*
 * session_int.h - a session and its requests.
 *
 *   queue ──(window)──> tree (waiting) ──schedule_fill──> live ──session_take_logits──> ready
 *                                                         live, blended: ──> probing ──> chosen
 *   ready ──llm_step──> events (handed)
 *
 * Invariant: a request is in exactly one of these places. A live request counts among the users of
 * the nodes on its path, so their KV is not evicted.
 */
#ifndef KVASIR_SESSION_INT_H
#define KVASIR_SESSION_INT_H

#include "engine/engine_int.h"
#include "engine/guide_int.h"
#include "loader_int.h"
#include "prefix_int.h"

/* A branch of a guide that is reached, and the logarithm of the probability of what leads to it. */
typedef struct search_branch {
    double log_prob;
    int branch;
} search_branch;

/* The search for the likeliest literal (search.c). */
typedef struct search {
    const llm_guide *guide;
    search_branch *open; /* heap: the likeliest first */
    size_t nopen, open_cap;
    search_branch taken; /* the branch whose tokens are in request.tail; branch -1: none */
    bool placed;         /* all of these tokens are in the current pass */
    int best;            /* the likeliest literal so far; -1: none */
    double best_log_prob;
} search;

/* A blended prompt, whose tokens behind its first chunk are the private node request.end (blend.c). */
typedef struct blend_state {
    llm_blend how;
    int nchunks;
    int *starts;         /* [nchunks + 1] positions: of each chunk, and where the last one ends */
    prefix_node **nodes; /* [nchunks] where the chunk behind the head ends; NULL: not held */
    int moved;           /* number of chunks that are in their places */
    int reserved;        /* number of blocks that are reserved for the answer */
    int probed;          /* number of rows added for the rule's scores */
    /* of each token at positions [starts[1], starts[nchunks]), from the pass's probes */
    _Atomic uint64_t *scores;
    int *chosen; /* [nchosen] positions that are computed again, ascending; NULL: not yet known */
    int nchosen;
    int placed; /* number of rows of the chosen tokens and of what follows the chunks */
} blend_state;

typedef struct request {
    struct request *next; /* in the queue, a node's list, or the ready list */
    uint64_t tag;
    llm_span **spans;
    int nspans;
    llm_guide *guide; /* NULL: free text */
    bool chat;        /* the template is a chat template: the answer does not end at a newline */
    int max_tokens;
    llm_sampling sampling;
    str *stop;
    int nstop;
    bool keep;
    llm_token *raw;     /* llm_logprobs: the prompt's tokens, instead of spans; otherwise NULL */
    float *raw_logits;  /* llm_logprobs: [vocabulary] receives the logits */
    blend_state *blend; /* NULL: the prompt is exact */

    int prompt_tokens; /* number of tokens, with BOS and the guide's prefix */
    int head_tokens;   /* llm_request.head_tokens */
    int computed;      /* number of prompt tokens that were computed */
    int from_disk;     /* number of prompt tokens whose KV was read from the store */
    bool shortened;

    bool live;
    bool arrived;     /* the prompt's last token is in the current pass or an earlier one */
    bool wants_all;   /* a draw needs more than the largest logits: the row runs again */
    prefix_node *end; /* the node where the prompt ends */
    /* private child of `end`, or NULL: holds the tokens decoded so far; in a search, the tokens
     * from the prompt's end to the branch being scored */
    prefix_node *tail;

    uint64_t sample_seed; /* hash of the prompt's tokens and sampling.seed */
    llm_token *output;    /* the answer's tokens so far */
    int noutput;
    buf text; /* the answer's text so far */

    /* INTEGER, REAL */
    double log_prob; /* sum of the log-probabilities of the tokens so far */
    number_state state;
    int digits; /* sum of guide_state.digits of the tokens so far */

    /* CHOICE */
    bool all_probs; /* all literals are scored */
    search *search; /* of a live request, if not all_probs; otherwise NULL */
    /* the next members are of a live request with all_probs */
    /* [branches] the log-probabilities of the branch's `ids`; NULL: not yet known */
    double **branch_log_prob;
    int branches_left;      /* number of branches whose log-probabilities are not yet known */
    prefix_node **segments; /* [segments] the segment's private node; NULL: it has none now */
    /* [segments] number of unfinished segments directly below the segment; -1: the segment is
     * finished too */
    int *segment_children;
    int segments_placed; /* number of segments that were added to a pass, in order */

    /* the answer */
    llm_finish finish;
    int choice;
    double prob;
    double *probs; /* [guide->count] of a finished CHOICE with all_probs; otherwise NULL */
    float *top_logits;
    llm_token *top_tokens;
    err *failure; /* why there is no answer; NULL: there is one */
} request;

static inline bool request_is_choice(const request *r) {
    return r->guide != NULL && r->guide->kind == LLM_GUIDE_CHOICE;
}
/* Returns the maximum number of tokens that the answer adds to the prompt. */
int request_answer_tokens(const request *r);

/* What a want's logits are for: one of these, or a number from 0 on, which is a branch of the
 * request's guide. */
enum { WANT_NEXT_TOKEN = -1, WANT_TOP = -2, WANT_RAW = -3 };

/* A want of the pass: its request, its purpose, and room for its result. */
typedef struct want_info {
    request *r;
    int what;                     /* WANT_… or a branch */
    size_t logits_at;             /* offset in the session's logits */
    llm_token top_ids[PASS_DRAW]; /* pass_want.top_ids */
} want_info;

_Static_assert((int)LLM_TOP_LOGITS <= (int)PASS_TOP, "a want holds the logits that an event shows");

typedef struct request_list {
    request *first, *last;
    int count;
} request_list;

/* The functions of a session, by where its model runs: in this process (session.c, an embedding
 * model: embed_session.c), or on servers (remote/remote_session.c). They do what the functions of llm.h with these names do. */
typedef struct session_driver {
    void (*free)(llm_session *s);
    int (*submit)(llm_session *s, const llm_request *q, err *e);
    /* `handed` is empty and *count is 0. */
    int (*step)(llm_session *s, llm_event *events, int capacity, int *count, bool *idle, err *e);
    void (*figures)(const llm_session *s, llm_figures *out);
    int (*branches)(llm_session *s, llm_branch *out, int capacity);
    int (*logprobs)(llm_session *s, const llm_token *tokens, size_t count, float *out, err *e);
    int (*places)(const llm_session *s, llm_place *out, int capacity); /* NULL: none */
} session_driver;

struct llm_session {
    const session_driver *driver;
    llm_engine *engine;
    llm_session_options options; /* with defaults filled in */
    /* the backend computes logits; false with count_only, or if the backend has no `forward` */
    bool runs_model;
    void *work;     /* the backend's session data; NULL before the first pass */
    loader *loader; /* NULL: blocks are not read ahead, but when they are needed */

    prefix_tree tree;
    prefix_node *cursor; /* current node of the depth-first walk */
    request_list queue;  /* requests that are not yet in the window */
    request_list ready;  /* requests that are answered, but not yet returned */
    request_list handed; /* requests whose texts the events of the last llm_step point to */
    request *current;    /* the live request whose prompt is not yet placed completely; or NULL */
    request **live;      /* live requests, in the order in which they became live */
    int nlive, live_cap;
    request_list probing; /* live requests whose last probe is in the current pass */
    request_list chosen;  /* live blended requests whose prompts are placed next */
    int in_window;        /* number of unanswered requests that have left the queue */

    /* the pass being filled; its arrays are used again for the next pass */
    pass pass;
    int rows_cap, copies_cap, wants_cap, next_cap, moves_cap, probes_cap;
    pass_row *probe_rows[PROBE_KINDS]; /* [pass.probe_rows] the last rows of the pass */
    int probe_rows_cap[PROBE_KINDS];
    want_info *want_infos; /* [pass.nwants] */
    int nwant_infos, want_infos_cap;
    float *logits;
    size_t logits_cap, logits_used;
    prefix_node **finished_nodes; /* nodes whose last token this pass computes */
    int nfinished, finished_cap;
    int prefill_rows; /* number of rows of prompts and segments */
    int decode_rows;  /* number of rows of decoded tokens */

    llm_token *scratch; /* the tokens of one prompt */
    int scratch_cap;
    int most_blocks;     /* maximum number of blocks in use at a time so far */
    int device_blocks;   /* number of blocks that fit the device: the limit for live requests */
    void *block_bytes;   /* buffer for one KV block, to and from the store */
    size_t block_size;   /* size of a KV block in bytes */
    double ms_per_token; /* time to compute one token, as last measured; 0: not measured */
    double read_ms;      /* time of reading `reads` blocks on the session's thread */
    uint64_t reads;
    llm_figures figures;
    size_t kv_budget_bytes;      /* limit of KV memory on the device */
    size_t kv_host_budget_bytes; /* limit of KV memory on the host */
    uint64_t submitted_tokens;   /* number of tokens of all prompts so far */
    llm_token *branch_tokens;    /* [branch_room] tokens that llm_session_branches returned */
    size_t branch_room;
    bool failed;  /* a pass failed: KV may be incomplete, so no other pass is run */
    bool unsound; /* a pass produced logits that are NaN or infinite */
};

/* Whether blocks are stored and read. They are not if computing a block is faster than reading it
 * from a disk, unless the store keeps all blocks or the session only fills it (warm_only). */
bool session_store_pays(const llm_session *s);
/* Returns the default of llm_session_options.pass_tokens. */
int session_pass_tokens(const llm_engine *engine);
/* llm_session_new for an embedding model. */
int embed_session_new(llm_engine *engine, const llm_session_options *options, llm_session **out,
                      err *e);
/* Fills *id with the identity of the node's i-th own block, from start/32 on. Requires
 * node->keys. */
void session_kv_id(const llm_session *s, const prefix_node *node, int i, llm_kv_id *id);

/* ---- session.c */
/* Makes a request whose prompt fits; *out is NULL on failure. */
int request_new(llm_session *s, const llm_request *q, request **out, err *e);
/* Removes fields, as llm_session_options.truncate says, until the prompt has at most `most` tokens,
 * or one field is left; also from `named`, a copy of llm_request.named. */
void request_fit(request *r, bool *named, int most);
bool *named_copy(const llm_request *q); /* NULL if there is none; the caller frees it */
/* Moves ready requests to events[capacity] and to `handed`. */
void session_hand_out(llm_session *s, llm_event *events, int capacity, int *count);
/* Frees what both drivers' sessions own: ready and handed requests, scratch. */
void session_end(llm_session *s);

/* PROBED: the prompt goes on after the pass, once its tokens are chosen. */
typedef enum placing { PLACED, PASS_FULL, NO_BLOCKS, PROBED } placing;

/* ---- blend.c */
/* Makes the state of a blended prompt; NULL: it is exact. The request's spans must be there. */
blend_state *blend_new(const llm_session *s, const request *r, const llm_blend *how);
void blend_free(blend_state *b); /* NULL is fine */
/* Returns the number of blocks that the chunks' own KV needs. */
int blend_blocks(const blend_state *b);
/* Inserts the chunks of the prompt s->scratch[count] into the tree, each behind the head. Returns
 * the private node where the prompt ends. */
prefix_node *blend_enter(llm_session *s, request *r, int count);
void blend_begin(llm_session *s, request *r); /* the request becomes live */
/* Adds to the pass what is next of the prompt. */
placing blend_place(llm_session *s, request *r);
/* Makes the loader read the chunks of a waiting request. */
void blend_prefetch(llm_session *s, const request *r);
/* After a pass: chooses the tokens of the requests that were probed. */
void blend_choose_probed(llm_session *s);
/* Lets go of the chunks and of reserved blocks. */
void blend_release(llm_session *s, request *r);

/* ---- schedule.c */
/* Adds rows for all tokens without KV on the path from the root to `node`. */
placing schedule_path(llm_session *s, request *r, prefix_node *node);
/* Makes a node resident; false: there are not enough blocks. */
bool schedule_node(llm_session *s, request *r, prefix_node *node);
/* Returns an upper bound of the number of blocks that the nodes of a live request's answer need. */
int schedule_answer_blocks(const llm_session *s, const request *r);
/* Adds a row for the token at this position of request.end, and counts it as computed. */
void schedule_row(llm_session *s, request *r, int position, row_keep keep);
int schedule_rows_left(const llm_session *s); /* number of rows that may be added to the pass */
/* Counts tokens of the prompt as computed. */
void schedule_computed(llm_session *s, request *r, int tokens);
/* Makes the loader read the blocks of the nodes from the first that is not resident to `node`. */
void schedule_prefetch(llm_session *s, prefix_node *node);
/* Writes the prompt's tokens, with BOS and the guide's prefix, to s->scratch. Returns their
 * number. */
int schedule_flatten(llm_session *s, const request *r);
/* Fills the pass: a row for each decoding sequence, then prompts in order. false: nothing could be
 * placed although work is left. */
bool schedule_fill(llm_session *s);
/* Adds the prompt of `r` to the pass (llm_logprobs). false: the pass is full before the end of the
 * prompt. */
bool schedule_fill_one(llm_session *s, request *r);
void schedule_reset_pass(llm_session *s);
/* Sets the wants' pointers to their results, once the pass is filled. */
void schedule_finish_pass(llm_session *s);
/* Removes a segment's node. Called when the logits of the segment and of all segments below it are
 * known, or when the request is released. */
void schedule_segment_done(llm_session *s, request *r, int segment);
/* Takes a waiting request out of the tree's lists; NULL: there is none. */
request *schedule_take_waiting(llm_session *s);
/* Releases the nodes and counters of a live or waiting request. */
void schedule_release(llm_session *s, request *r);

/* ---- answer.c */
/* Sets the answer to `text` made valid: U+FFFD replaces NUL and bytes that are not UTF-8. */
void free_text_set(request *r, str text);
/* Returns the length of r->text before its stop text; SIZE_MAX: there is no stop text. */
size_t text_stop(const request *r);
/* Gives the pass's logits to their requests and finishes the answers that are now complete. */
void session_take_logits(llm_session *s);
void request_free(request *r); /* NULL is fine */
/* Makes the answer's state for a request that becomes live, or whose prompt is placed anew. */
void request_begin(request *r);
/* Frees what request_begin made. */
void request_end(request *r);
void list_push(request_list *list, request *r);
request *list_pop(request_list *list); /* NULL: empty */

/* ---- search.c */
search *search_new(const llm_guide *guide); /* the guide must outlive the search */
void search_free(search *x);                /* NULL is fine */
/* Takes the likeliest open branch. false: none can change the answer. */
bool search_take(search *x);
/* Takes the logits of the taken branch; before one is taken, of the root. */
void search_learn(search *x, const float *logits);
/* Whether the likeliest literal is found: search.best. */
bool search_is_done(const search *x);

/* ---- sample.c */
/* Picks a token from logits[count]. Greedy: the token with the largest logit; of equal logits, the
 * first one. A draw depends only on the arguments; `step` is the index of the token in the
 * answer. */
int sample_token(const float *logits, int count, const llm_sampling *sampling, uint64_t seed,
                 int step);
/* Makes the same draw, from the `count` (<= PASS_DRAW) largest logits in descending order, their
 * tokens `ids`, and the total weight of the vocabulary. -1: the draw needs more logits. */
int sample_likeliest(const float *logits, const llm_token *ids, int count, uint64_t total,
                     const llm_sampling *sampling, uint64_t seed, int step);

#endif
