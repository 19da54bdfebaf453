/*
 * llm.h - the inference engine: prompts as lists of token spans in, answers as events out.
 *
 *   llm_engine    immutable: mapped weights, packed matrices, tokenizer, thread pool; shared by
 *                 sessions
 *   llm_session   mutable: KV blocks, radix tree, queue of requests, statistics; used by one thread
 *                 at a time
 *   llm_span      reference-counted tokens with their kind and text; a request is a list of them
 *   llm_guide     a compiled constraint on answers (ENUM, INTEGER, REAL), reference-counted
 *
 * Ownership: who makes an engine, session, span or guide releases it; a session retains the spans
 * and guides of the requests in it, and must be freed before its engine. Text in an event lives
 * until the next llm_step. Invariant: an answer is a function of (engine fingerprint, prompt
 * tokens, guide, sampling) alone, bit for bit: never of batch mates, order, thread count, or where
 * its KV came from (DESIGN 2.1). Nothing here knows SQL. The only foreign header is storage/base.h.
 */
#ifndef KVASIR_LLM_H
#define KVASIR_LLM_H

#include <stdatomic.h>

#include "storage/base.h"

typedef int32_t llm_token;
typedef struct llm_engine llm_engine;

/* ---- the engine ------------------------------------------------------------------------------ */

/* Of the layers' matrices. INT8: weights in bytes, in groups of 32, and states in one plane of
 * bytes, but those that q, k and v are made of in two; INT8X2: all states in two. */
typedef enum llm_precision {
    LLM_PRECISION_AUTO,
    LLM_F32,
    LLM_BF16,
    LLM_INT8,
    LLM_INT8X2,
    LLM_PRECISIONS
} llm_precision;
/* As SET precision spells it. */
const char *llm_precision_name(llm_precision precision);
typedef enum llm_format { LLM_FORMAT_AUTO, LLM_FORMAT_CHAT, LLM_FORMAT_COMPLETION } llm_format;

typedef enum llm_attention { LLM_ATTENTION_FULL, LLM_ATTENTION_STREAMING } llm_attention;
typedef enum llm_kv_dtype { LLM_KV_BF16, LLM_KV_F32, LLM_KV_INT8, LLM_KV_DTYPES } llm_kv_dtype;
const char *llm_kv_dtype_name(llm_kv_dtype dtype); /* as SET kv_dtype spells it */

typedef struct llm_engine_options {
    const char *path; /* a .gguf file, or "test:hash" (DESIGN 5) where the build has it */
    int threads;      /* 0: one per usable core */
    llm_precision precision;
    const char *device; /* "auto", "cpu", "cuda:0"; NULL is "auto" */
    llm_attention attention;
    int sink_tokens, window_tokens; /* streaming attention only */
    llm_kv_dtype kv_dtype;
    /* where the side file (rates, precision, format, probe) lives; NULL: none is read or written */
    const char *cache_dir;
    bool load_now; /* read the weights at once, even where what the last load found is on record */
    const atomic_bool *cancel; /* looked at while the file is read; NULL: nobody cancels */
} llm_engine_options;

/* Facts about an open engine; strings live as long as it does. */
typedef struct llm_model_info {
    const char *path, *name, *architecture;
    const char *device; /* "cpu (AVX-512)", "cuda:0 NVIDIA …" */
    /* one clause: why 'auto' took no better device; NULL: it did, or was not asked */
    const char *device_reason;
    const char *precision;                         /* llm_precision_name */
    const char *precision_reason;                  /* one clause: why this one */
    const char *chat_family;                       /* "chatml", "llama3", …, or "none" */
    llm_format default_format;                     /* what LLM_FORMAT_AUTO means for this model */
    uint64_t parameters, file_bytes, weight_bytes; /* weight_bytes: packed, resident */
    int layers, width, heads, kv_heads, head_dim, ffn, vocab, context;
    size_t kv_bytes_per_token;
    int kv_block_tokens;
    /* What a session takes for KV where its options do not say: on the device; and in host memory,
     * for blocks that leave a device with memory of its own (else 0). */
    size_t kv_memory_bytes, kv_host_bytes;
    llm_attention attention;        /* streaming: prompts may be longer than the context */
    int sink_tokens, window_tokens; /* 0 without streaming */
    llm_kv_dtype kv_dtype;
    int threads;
    hash128 weights;                    /* of all bytes of the file */
    hash128 fingerprint;                /* identity of KV blocks and answers (ENGINE 3) */
    double prefill_tok_s, decode_tok_s; /* measured on this machine; 0 when not yet measured */
    double load_ms; /* of opening; sessions add what the weights took (llm_figures) */
} llm_model_info;

/* Opens a model; ERR_IO, ERR_CORRUPT (the file, with what is wrong), ERR_UNSUPPORTED (names the
 * architecture or type). */
int llm_engine_open(const llm_engine_options *options, llm_engine **out, err *e);
void llm_engine_close(llm_engine *engine); /* NULL is fine */
const llm_model_info *llm_engine_info(const llm_engine *engine);
/* The same for longer than the engine is open: texts are copied into `mem`. */
void llm_engine_info_copy(const llm_engine *engine, arena *mem, llm_model_info *out);
/* Opening may believe what the last load on this machine found out, and leave the
 * weights unread until a session runs a pass. If they then compute otherwise,
 * that llm_step fails with ERR_MODEL before any answer, and the engine is
 * outdated: its fingerprint is of the past, one opened anew is right. Any thread. */
bool llm_engine_outdated(const llm_engine *engine);

/* Whether an engine opened anew by its path would be of the same files, with the same bytes. It may
 * read them. Any thread. */
bool llm_engine_is_current(const llm_engine *engine);

/* How user text is wrapped. `before` and `after` stand around the body and may
 * hold control tokens; an answer literal follows `after` with `answer_lead` in
 * front; a shared head ends where the first row's field starts. */
typedef struct llm_template {
    const char *name;  /* "completion", "chatml", … */
    str before, after; /* completion: "" and "answer:" */
    str answer_lead;   /* completion: " " */
    bool chat;
} llm_template;

/* The template for a format (AUTO: the model's default; CHAT of a family unknown to us:
 * completion). Never NULL. */
const llm_template *llm_engine_template(const llm_engine *engine, llm_format format);

/* ---- spans ----------------------------------------------------------------------------------- */

typedef enum llm_span_kind {
    /* ours: control tokens in the text are control tokens; BOS is added where it is the first */
    LLM_SPAN_TEMPLATE,
    LLM_SPAN_INSTRUCTION,
    LLM_SPAN_EXAMPLE,
    LLM_SPAN_NAME, /* "review:" */
    LLM_SPAN_VALUE /* " text of the cell\n" */
} llm_span_kind;

typedef struct llm_span llm_span;

/* Tokenizes `text` as one segment (ENGINE 5). All kinds but TEMPLATE take control tokens as plain
 * text (DESIGN 2.4). Thread-safe. Never NULL. The first span of a request should be a TEMPLATE (its
 * text may be ""): it carries BOS. SentencePiece's space in front of a prompt's first text is added
 * by llm_submit: not in these tokens. */
llm_span *llm_span_new(const llm_engine *engine, llm_span_kind kind, str text);
/* The same in `mem` (one thread at a time): it lives as long as that, which must outlast the
 * requests it is in, and whoever makes it does not release it. */
llm_span *llm_span_new_in(const llm_engine *engine, llm_span_kind kind, str text, arena *mem);
llm_span *llm_span_retain(llm_span *span);
void llm_span_release(llm_span *span); /* NULL is fine */
const llm_token *llm_span_tokens(const llm_span *span, size_t *count);

/* Whole-string tokenization, as `llama-tokenize` would: for vectors, tests and `.tokens`.
 * Malloc'ed, free() it. */
llm_token *llm_tokenize(const llm_engine *engine, str text, bool add_bos, bool parse_special,
                        size_t *count);
/* Appends the bytes of tokens; control tokens print as their names only when `special`. */
void llm_detokenize(const llm_engine *engine, const llm_token *tokens, size_t count, bool special,
                    buf *out);

/* ---- constraints ----------------------------------------------------------------------------- */

typedef enum llm_guide_kind { LLM_GUIDE_CHOICE, LLM_GUIDE_INTEGER, LLM_GUIDE_REAL } llm_guide_kind;
typedef struct llm_guide llm_guide;

/* Compiles a constraint for answers after a template (its answer_lead and its end token: DIALECT 2,
 * ENGINE 4). CHOICE: `literals`, in order, at least one, distinct. NULL and *e on failure. */
llm_guide *llm_guide_new(const llm_engine *engine, llm_guide_kind kind, const str *literals,
                         int count, const llm_template *after, err *e);
llm_guide *llm_guide_retain(llm_guide *guide);
void llm_guide_release(llm_guide *guide);
/* The identity of the constraint, for answer keys. */
hash128 llm_guide_key(const llm_guide *guide);

/* ---- sessions -------------------------------------------------------------------------------- */

typedef struct llm_session llm_session;

typedef struct llm_sampling {
    float temperature;  /* 0: greedy */
    float top_p, min_p; /* 1 and 0: off */
    int top_k;          /* 0: off */
    uint64_t seed;      /* mixed with the prompt's tokens, never with the batch */
} llm_sampling;

typedef enum llm_finish { LLM_FINISH_STOP, LLM_FINISH_LENGTH, LLM_FINISH_CHOICE } llm_finish;

typedef struct llm_request {
    uint64_t tag; /* comes back in the event */
    llm_span *const *spans;
    int nspans;
    int head_tokens; /* of its first spans, which all prompts of its kind have: counted apart */
    /* [nspans] of values that the question names, which truncation leaves out last; NULL: none */
    const bool *named;
    llm_guide *guide;          /* NULL: free text */
    const llm_template *after; /* decides the stop rule; NULL: completion */
    int max_tokens;            /* free text only */
    llm_sampling sampling;
    const str *stop; /* more texts that end an answer */
    int nstop;
    /* its prompt's beginning will be asked about again:
     * its KV stays while there is room (LLM_REUSE_TREE) */
    bool keep;
} llm_request;

typedef struct llm_event {
    uint64_t tag;
    /* the answer without lead, stop and surrounding space; valid until the next llm_step */
    str text;
    int choice;  /* index of the literal, or -1 */
    double prob; /* DIALECT 2; NAN for free text */
    llm_finish finish;
    bool shortened; /* fields were left out of the prompt (options.truncate) */
    int prompt_tokens, reused_tokens, computed_tokens, output_tokens;
    /* only with options.keep_logits: the LLM_TOP_LOGITS likeliest of the last prompt token */
    const float *top_logits;
    const llm_token *top_tokens;
} llm_event;

enum { LLM_TOP_LOGITS = 10, LLM_BLOCK_TOKENS = 32 };

/* One KV block's identity: what a store must compare before it believes a value (DESIGN 2.5). */
typedef struct llm_kv_id {
    hash128 fingerprint, parent, key; /* key chains (fingerprint, parent, tokens) */
    llm_token tokens[LLM_BLOCK_TOKENS];
    int depth;      /* blocks above it */
    int fanout;     /* prompts of this session that pass through it */
    double cost_ms; /* to compute it again */
} llm_kv_id;

/* Where full KV blocks come from and go to. `get` copies `bytes` bytes and returns true, or returns
 * false; it is called on the session's thread and, for blocks read ahead, on another, also while
 * the session's thread is in `get` or `put`. The others are called on the session's thread. */
typedef struct llm_kv_store {
    void *ctx;
    bool (*get)(void *ctx, const llm_kv_id *id, void *kv, size_t bytes);
    void (*put)(void *ctx, const llm_kv_id *id, const void *kv, size_t bytes);
    /* Is it there? Then a get will come soon. NULL: nothing is read ahead. */
    bool (*prefetch)(void *ctx, const llm_kv_id *id);
    bool keep_all; /* false: offer only blocks that at least two prompts share */
} llm_kv_store;

typedef enum llm_reuse {
    LLM_REUSE_TREE, /* the queue is seen in advance, depth first, every node once */
    /* as submitted, `window` requests seen at a time, blocks evicted first in first out */
    LLM_REUSE_FIFO,
    LLM_REUSE_NONE /* every prompt computed whole */
} llm_reuse;

typedef struct llm_session_options {
    /* 0: as the model's info says. Host memory is used where
     * the info says that it is of use; less than a block: none. */
    size_t kv_memory_bytes, kv_host_bytes;
    llm_reuse reuse;
    int window;      /* requests the scheduler sees at a time; 0: all (TREE), 64 (FIFO, NONE) */
    int max_batch;   /* sequences decoded together; 0: as many as suit the device */
    int pass_tokens; /* new tokens of one prefill pass; 0: as many as suit the device */
    bool keep_logits;
    /* run the schedule without the model: every answer
     * is empty, the statistics are exact for prompts */
    bool count_only;
    /* compute, and offer to the store, what prompts share (with
     * store.keep_all: all of them); every answer is empty */
    bool warm_only;
    /* leave whole fields, the longest first, out of prompts over the context instead of failing;
     * never the only one */
    bool truncate;
    llm_kv_store store;
    const atomic_bool *cancel; /* looked at once per pass, and while the weights are read */
} llm_session_options;

/* KV memory that a session holds, and the sequences in it. */
typedef struct llm_memory {
    size_t kv_bytes, kv_budget_bytes; /* on the device */
    size_t kv_host_bytes, kv_host_budget_bytes;
    size_t kv_peak_bytes; /* on both at once */
    int live_sequences;
} llm_memory;

int llm_session_new(llm_engine *engine, const llm_session_options *options, llm_session **out,
                    err *e);
void llm_session_free(llm_session *session); /* NULL is fine; drops what is queued */
/* Queues one request. ERR_LIMIT: the prompt is longer than the context, or does not fit the KV
 * budget; the message names the tokens. All arguments are copied or retained. */
int llm_submit(llm_session *session, const llm_request *request, err *e);
/* Runs one pass of the model and returns up to `capacity` finished answers; *count = 0 with work
 * left is normal. *idle: nothing is queued, live or waiting to be handed out. ERR_CANCELLED:
 * finished answers stay available, the rest is dropped. */
int llm_step(llm_session *session, llm_event *events, int capacity, int *count, bool *idle, err *e);
void llm_session_figures(const llm_session *session, llm_figures *out);
void llm_session_memory(const llm_session *session, llm_memory *out);

/* Log-probabilities [vocab] of the token after `tokens`
 * (BOS not added), through the same path as answers. */
int llm_logprobs(llm_session *session, const llm_token *tokens, size_t count, float *out, err *e);

/* Names of the widest shared prefixes, for views: fills up to `capacity` entries, widest first;
 * text is of the prefix's end, cut to 200 bytes, valid until the next call. */
typedef struct llm_prefix {
    str text;
    int tokens, fanout, done;
} llm_prefix;
int llm_session_prefixes(llm_session *session, llm_prefix *out, int capacity);

#endif
