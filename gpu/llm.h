/*
 * llm.h - the inference engine's public interface: prompts in, as lists of token spans; answers
 * out, as events. An engine of an embedding model takes texts instead and makes vectors.
 *
 *   llm_engine    immutable: weights, tokenizer, threads; shared by sessions and threads
 *   llm_session   mutable: request queue, prefix tree, KV blocks, statistics; used by one thread at
 *                 a time
 *   llm_span      the tokens of a piece of prompt text, with its kind; reference-counted
 *   llm_guide     a compiled constraint on answers (ENUM, INTEGER, REAL); reference-counted
 *
 * Ownership: the caller that makes an engine, session, span or guide frees or releases it. A
 * session retains the spans and guides of its requests and must be freed before its engine.
 *
 * Errors: functions with an err * return 0 or an error code of base.h and fill *e.
 *
 * Invariant: an answer is a function of (engine fingerprint, prompt tokens, guide, sampling), bit
 * for bit. Other requests, their order, the number of threads and the source of KV (computed, in
 * memory, from the store) do not change it; gpu/README.md says how that is ensured. A vector is in
 * the same way a function of (engine fingerprint, text). The engine knows nothing of SQL and includes no header of another room except those of storage/base.
 */
#ifndef KVASIR_LLM_H
#define KVASIR_LLM_H

#include <stdatomic.h>

#include "storage/base.h"

typedef int32_t llm_token;
typedef struct llm_engine llm_engine;

/* ---- the engine ------------------------------------------------------------------------------ */

/* The number format of the layers' matrices and of the activations multiplied with them. INT8:
 * weights as bytes, with a scale and a minimum per group of 32; activations as bytes, with a scale
 * per group. The q, k and v matrices and the last layer have a more exact format (gpu/README.md,
 * "Precision"). INT8X2: the weights of all layers as bytes, activations as two bytes per value. */
typedef enum llm_precision {
    LLM_PRECISION_AUTO, /* chosen by measurement at the first load */
    LLM_F32,
    LLM_BF16,
    LLM_INT8,
    LLM_INT8X2,
    LLM_PRECISIONS
} llm_precision;
const char *llm_precision_name(llm_precision precision); /* as written in SET precision */

typedef enum llm_format { LLM_FORMAT_AUTO, LLM_FORMAT_CHAT, LLM_FORMAT_COMPLETION } llm_format;

/* STREAMING: a token attends to the first `sink_tokens` and the last `window_tokens` tokens only
 * (StreamingLLM, Xiao et al., arXiv 2309.17453). */
typedef enum llm_attention { LLM_ATTENTION_FULL, LLM_ATTENTION_STREAMING } llm_attention;

/* The number format of keys and values in KV blocks. */
typedef enum llm_kv_dtype { LLM_KV_BF16, LLM_KV_F32, LLM_KV_INT8, LLM_KV_DTYPES } llm_kv_dtype;
const char *llm_kv_dtype_name(llm_kv_dtype dtype); /* as written in SET kv_dtype */

typedef struct llm_engine_options {
    /* a .gguf file; URLs of servers, separated by spaces; "test:hash" in builds that have it */
    const char *path;
    str remote;  /* options of a model at a URL: lines "name=value" (LLM_REMOTE_OPTIONS) */
    int threads; /* 0: one per usable core */
    llm_precision precision;
    const char *device; /* "auto", "cpu", "cuda:0"; NULL: "auto" */
    llm_attention attention;
    int sink_tokens, window_tokens; /* for LLM_ATTENTION_STREAMING */
    llm_kv_dtype kv_dtype;
    const char *cache_dir; /* directory of the side files (measured facts); NULL: not used */
    bool load_now;         /* read the weights now, even if a side file has the load's results */
    const atomic_bool *cancel; /* polled while the file is read; NULL: cannot be cancelled */
} llm_engine_options;

/* Facts about an open engine. Strings live as long as the engine. */
typedef struct llm_model_info {
    const char *path, *name, *architecture;
    const char *device;           /* "cpu (AVX-512)", "cuda:0 NVIDIA …" */
    const char *device_reason;    /* a clause: why "auto" did not use the first device; or NULL */
    const char *precision;        /* llm_precision_name of the precision in use */
    const char *precision_reason; /* a clause: why this precision */
    const char *chat_family;      /* "chatml", "llama3", …; "none": no known chat template */
    llm_format default_format;    /* what LLM_FORMAT_AUTO means for this model */
    uint64_t parameters;
    uint64_t file_bytes;
    uint64_t weight_bytes; /* size of the packed weights in memory */
    int layers, width, heads, kv_heads, head_dim, ffn, vocab, context;
    bool generates; /* the model answers prompts; otherwise llm_session_new fails */
    int embedding;  /* number of dimensions of a text's vector; 0: llm_embed fails */
    /* what the vector is made from: "mean", "first token", "last token"; NULL: no vectors */
    const char *pooling;
    size_t kv_bytes_per_token;
    int kv_block_tokens;
    size_t kv_memory_bytes; /* a session's default KV memory on the device */
    /* a session's default KV memory on the host, for blocks that do not fit the device; 0: the
     * backend uses none */
    size_t kv_host_bytes;
    llm_attention attention;
    int sink_tokens, window_tokens; /* 0 without streaming */
    bool blends;                    /* llm_request.blend has an effect */
    llm_kv_dtype kv_dtype;
    int threads;
    hash128 weights; /* hash of all bytes of the file */
    /* hash of all that determines an answer's bits: file, precision, libraries, KV type, … */
    hash128 fingerprint;
    double prefill_tok_s, decode_tok_s; /* tokens per second on this machine; 0: not measured */
    bool remote; /* servers answer; members about weights, KV and devices have no meaning */
    const char *currency; /* remote: the currency of llm_figures.money */
    /* remote: prices of a million tokens; 0: none */
    double price_in, price_cached, price_out;
    /* remote: what llm_engine_probe found out, lines "name\ttext"; NULL: not asked */
    const char *servers;
    double load_ms; /* time of opening; llm_figures.load_ms adds the time of reading the weights */
} llm_model_info;

/* Opens a model. ERR_IO; ERR_CORRUPT: the file is damaged; ERR_UNSUPPORTED: the message names the
 * architecture, type or device. */
int llm_engine_open(const llm_engine_options *options, llm_engine **out, err *e);
void llm_engine_close(llm_engine *engine); /* NULL is fine */
const llm_model_info *llm_engine_info(const llm_engine *engine);
/* Returns what a remote model's servers charge for these tokens, of which `cached` were in their
 * caches. 0 for other models. */
double llm_price(const llm_model_info *info, double prompt, double cached, double output);
/* Copies the facts and their strings into *out and `mem`, so that they outlive the engine. */
void llm_engine_info_copy(const llm_engine *engine, arena *mem, llm_model_info *out);

/* Whether a load or a pass found that the file, or the bits that the model gives on this machine,
 * differ from the record in the side file. The llm_step that finds this fails with ERR_MODEL before
 * it returns an answer. The engine's fingerprint is then wrong: close the engine and open a new
 * one. Thread-safe. */
bool llm_engine_outdated(const llm_engine *engine);
/* Whether opening the engine's path now would give the same files with the same bytes. May read the
 * files. Thread-safe. */
bool llm_engine_is_current(const llm_engine *engine);

/* How a prompt's text is wrapped. `before` and `after` enclose the prompt's body and may hold
 * control tokens. An answer follows `after` and `answer_lead`. If the prompt goes on after an answer,
 * that answer is between `after`, `said_lead` and `turn`, and the new body and `after` follow. */
typedef struct llm_template {
    const char *name;  /* "completion", "chatml", … */
    str before, after; /* completion: "" and "answer:" */
    str answer_lead;   /* completion: " " */
    str said_lead;     /* completion: " " */
    str turn;          /* completion: "\n" */
    bool chat;
} llm_template;

/* Returns the template of a format; never NULL. AUTO: the template of the model's default_format.
 * CHAT: the completion template if the model's chat family is unknown. */
const llm_template *llm_engine_template(const llm_engine *engine, llm_format format);

/* ---- models at servers ----------------------------------------------------------------------- */

/* The options of CREATE MODEL … FROM 'http…' WITH (…). X(name, type, default, words, help): `words`
 * are the allowed words of a WORD, else what the value is. A REAL or INTEGER is not negative. */
/* clang-format off */
#define LLM_REMOTE_OPTIONS(X)                                                                          \
    X(model, TEXT, "", "name", "the model's name at the server (default: the one that it serves)")   \
    X(key_env, TEXT, "", "variable", "environment variable that has the key")                        \
    X(key_file, TEXT, "", "file", "file of mode 0600 that has the key")                              \
    X(api, WORD, "auto", "auto|chat|completions", "which interface is used; auto: chat")             \
    X(server, WORD, "auto", "auto|vllm|sglang|llamacpp|ollama|openai|generic", "what the server is; auto: asked") \
    X(tokenizer, TEXT, "", "file.gguf", "a file with the model's vocabulary (default: tokens are estimated)")     \
    X(thinking, WORD, "auto", "auto|on|off", "whether the model reasons before it answers")          \
    X(context, INTEGER, "0", "tokens", "the longest prompt with its answer (0: as the server says)") \
    X(window, INTEGER, "0", "requests", "most requests in flight at an endpoint (0: found out)")     \
    X(rpm, INTEGER, "0", "requests", "most requests a minute at an endpoint (0: no limit)")          \
    X(tpm, INTEGER, "0", "tokens", "most tokens a minute at an endpoint (0: no limit)")              \
    X(timeout, REAL, "120", "seconds", "longest time of a request")                                  \
    X(retries, INTEGER, "5", "times", "how often a request is sent again")                           \
    X(price_in, REAL, "0", "money", "price of a million prompt tokens")                              \
    X(price_cached, REAL, "", "money", "price of a million cached prompt tokens (as price_in)") \
    X(price_out, REAL, "0", "money", "price of a million output tokens")                             \
    X(currency, TEXT, "USD", "name", "the currency of the prices")                                   \
    X(ca, TEXT, "", "file.pem", "certificates that are trusted besides the system's")                \
    X(version, TEXT, "", "text", "part of the key of stored answers: another one forgets them")
/* clang-format on */

typedef struct llm_remote_option {
    const char *name, *type, *standard, *words, *help;
} llm_remote_option;
const llm_remote_option *llm_remote_options(size_t *count);

/* Whether the source of a model is URLs. */
bool llm_is_remote(str source);
/* Checks an option and its value; `value` as text. ERR_BIND: the name is unknown, with the nearest
 * as hint, or would be a key; ERR_TYPE: the value is not allowed. */
int llm_remote_check_option(str name, str value, err *e);
/* Checks the URLs of a source and all options. ERR_BIND; ERR_UNSUPPORTED: this build cannot ask
 * servers. */
int llm_remote_check(str source, str options, err *e);
/* Appends, for each endpoint that needs the user's leave, a line "origin" or "origin,key", where
 * `key` is the environment variable or the file that has the key. Loopback without a key needs
 * none. */
void llm_remote_pairs(str source, str options, buf *out);
/* Whether a statement's text may hold a key: it makes a model and has an option that would be one,
 * or what looks like one. Such a text is not kept in a history. */
bool llm_remote_may_hold_key(str text);
/* Asks a remote model's servers what they are, if that is not yet known, and appends to *about lines
 * "name\ttext" for people. ERR_MODEL: none answered. */
int llm_engine_probe(llm_engine *engine, const atomic_bool *cancel, buf *about, err *e);

/* ---- spans ----------------------------------------------------------------------------------- */

typedef enum llm_span_kind {
    LLM_SPAN_TEMPLATE, /* text of a template: its control tokens are parsed */
    LLM_SPAN_INSTRUCTION,
    LLM_SPAN_EXAMPLE,
    LLM_SPAN_NAME, /* "review:" */
    LLM_SPAN_VALUE /* " text of the cell\n" */
} llm_span_kind;

typedef struct llm_span llm_span;

/* Tokenizes `text` by itself. Only in a TEMPLATE are control tokens recognized; in other kinds
 * their names are plain text, so that data cannot forge them. The first span of a request should
 * be a TEMPLATE, which may be empty: llm_submit adds BOS before it. Never NULL. Thread-safe.
 * SentencePiece's space before the first text of a prompt is not in the tokens; llm_submit adds
 * it. */
llm_span *llm_span_new(const llm_engine *engine, llm_span_kind kind, str text);
/* Does the same as llm_span_new, but allocates the span in `mem`, which must outlive the requests
 * that use the span. The caller does not release the span. Only one thread at a time may use the
 * arena. */
llm_span *llm_span_new_in(const llm_engine *engine, llm_span_kind kind, str text, arena *mem);
/* Makes, in `mem`, a span with the tokens and texts of several spans. Its chunks (llm_blend) end after
 * each part of the joined span's kind. */
llm_span *llm_span_join(llm_span_kind kind, llm_span *const *parts, int n, arena *mem);
llm_span *llm_span_retain(llm_span *span);
void llm_span_release(llm_span *span); /* NULL is fine */
const llm_token *llm_span_tokens(const llm_span *span, size_t *count);

/* Tokenizes a whole text, as `llama-tokenize` does. The caller frees the result. */
llm_token *llm_tokenize(const llm_engine *engine, str text, bool add_bos, bool parse_special,
                        size_t *count);
/* Appends the text of the tokens. Control tokens are left out unless `special`. */
void llm_detokenize(const llm_engine *engine, const llm_token *tokens, size_t count, bool special,
                    buf *out);

/* ---- embeddings ------------------------------------------------------------------------------ */

typedef struct llm_embed_options {
    /* called after each pass, on the caller's thread, with the indexes of the texts whose vectors
     * are now complete; may be NULL */
    void (*done)(void *ctx, const size_t *texts, size_t count);
    void *ctx;                 /* first argument of `done` */
    int pass_tokens;           /* maximum number of tokens in a pass; 0: by the device's speed */
    const atomic_bool *cancel; /* polled once per pass, and while weights are read; may be NULL */
} llm_embed_options;

/* Makes the vector of each text: out[i], [info.embedding] numbers of length 1 (all 0 if the model's
 * states are). A text that is longer than the model's context loses its end and is counted as
 * truncated. Names of control tokens in a text are plain text. Needs memory for the tokens of all
 * texts and for the states of one pass. `figures`, unless NULL: requests, done, prompt_tokens,
 * computed_tokens, truncated, passes, prefill_ms and load_ms are added to it. ERR_UNSUPPORTED: the
 * model generates text. ERR_LIMIT: a text has no token. ERR_CANCELLED: the vectors that `done`
 * named are complete. Thread-safe. */
int llm_embed(llm_engine *engine, const str *texts, size_t count, float *const *out,
              const llm_embed_options *options, llm_figures *figures, err *e);
/* Returns the number of tokens that llm_embed would compute for the text. *truncated, unless NULL:
 * the text is longer than the context. Thread-safe. */
size_t llm_embed_tokens(const llm_engine *engine, str text, bool *truncated);

/* ---- constraints ----------------------------------------------------------------------------- */

/* CHOICE: the answer is one of a list of literals. */
typedef enum llm_guide_kind { LLM_GUIDE_CHOICE, LLM_GUIDE_INTEGER, LLM_GUIDE_REAL } llm_guide_kind;
typedef struct llm_guide llm_guide;

/* Compiles a constraint for answers that follow the template `after`. CHOICE: `count` >= 1 distinct
 * literals; their order decides ties. NULL with *e set on failure. */
llm_guide *llm_guide_new(const llm_engine *engine, llm_guide_kind kind, const str *literals,
                         int count, const llm_template *after, err *e);
llm_guide *llm_guide_retain(llm_guide *guide);
void llm_guide_release(llm_guide *guide);
/* Returns a hash of kind, literals and template: part of the key of a stored answer. */
hash128 llm_guide_key(const llm_guide *guide);
/* Whether scoring all literals (llm_request.all_probs) takes about as long as finding the likeliest
 * one, or the guide is no CHOICE. The answer and its probability are the same. */
bool llm_guide_is_small(const llm_guide *guide);
/* Returns the tokens that an answer computes beside its prompt to choose among a CHOICE's literals:
 * with all_probs their exact number, else an estimate. 0: the guide is no CHOICE. */
int llm_guide_tokens(const llm_guide *guide, bool all_probs);

/* ---- sessions -------------------------------------------------------------------------------- */

typedef struct llm_session llm_session;

typedef struct llm_sampling {
    float temperature;  /* 0: greedy */
    float top_p, min_p; /* top_p = 1, min_p = 0: off */
    int top_k;          /* 0: off */
    uint64_t seed;      /* combined with a hash of the prompt's tokens */
} llm_sampling;

/* STOP: an end token or stop text; LENGTH: max_tokens; CHOICE: the guide was completed. */
typedef enum llm_finish { LLM_FINISH_STOP, LLM_FINISH_LENGTH, LLM_FINISH_CHOICE } llm_finish;

/* Which tokens of chunks are computed again: half of them are those nearest to the chunks' ends, where
 * most of the error is; the others are, by rule:
 *   EDGES       the next nearest ones
 *   DEVIATION   those whose values in the second layer change most behind the chunks before them
 *               (CacheBlend, Yao et al., arXiv 2405.16444, section 4.2)
 *   QUESTION    those that the prompt's last token attends to most, in the first quarter of the layers */
typedef enum llm_blend_rule {
    LLM_BLEND_EDGES,
    LLM_BLEND_DEVIATION,
    LLM_BLEND_QUESTION,
    LLM_BLEND_RULES
} llm_blend_rule;

/* Blending. The chunks of a prompt are the parts of its first span that llm_span_join made; the
 * first one begins with the NAME before that span. The KV of each is computed behind the prompt's
 * head alone, so that prompts with the same head share it at any place; then moved to its place;
 * then a `share` (0 to 1) of the tokens of all chunks but the first, whose KV is exact, is computed
 * again. The answer differs from that of the exact prompt. It is a function of (engine
 * fingerprint, prompt tokens, where its chunks end, share, rule, guide, sampling), and does not
 * depend on which KV was stored. Blended KV is neither stored nor shared. */
typedef struct llm_blend {
    double share;
    llm_blend_rule rule;
} llm_blend;

typedef struct llm_request {
    uint64_t tag; /* returned in the event */
    llm_span *const *spans;
    int nspans;
    int head_tokens;           /* tokens of the prompt's shared head, counted in llm_figures */
    const bool *named;         /* [nspans] values that truncation removes last; NULL: none */
    llm_guide *guide;          /* NULL: free text */
    bool all_probs;            /* CHOICE: the event has the probability of each literal */
    const llm_template *after; /* determines where answers end; NULL: at a newline (completion) */
    int max_tokens;            /* limit of a free-text answer; 0: 32 */
    llm_sampling sampling;
    const str *stop; /* [nstop] further texts that end an answer */
    int nstop;
    /* NULL: the prompt is exact; also if it has fewer than two chunks, or !info.blends */
    const llm_blend *blend;
    /* with LLM_REUSE_TREE: keep the prompt's KV after the answer until it is evicted */
    bool keep;
} llm_request;

typedef struct llm_event {
    uint64_t tag;
    str text;            /* the answer, without lead, stop text and surrounding space */
    int choice;          /* index of the literal; -1: not a CHOICE */
    double prob;         /* probability of the answer among the allowed ones; NaN: free text */
    const double *probs; /* all_probs: the probability of each literal, in their order; or NULL */
    llm_finish finish;
    bool shortened; /* fields were removed from the prompt (options.truncate) */
    int prompt_tokens, reused_tokens, computed_tokens, output_tokens;
    /* options.keep_logits: the LLM_TOP_LOGITS largest logits after the prompt, and their tokens;
     * otherwise NULL */
    const float *top_logits;
    const llm_token *top_tokens;
    /* why the request failed, with a hint; the members above but `tag` are then undefined. NULL: it
     * was answered */
    const err *failure;
} llm_event; /* pointers are valid until the next llm_step */

enum { LLM_TOP_LOGITS = 10, LLM_BLOCK_TOKENS = 32 };

/* The identity of a KV block. Before a store returns a block, it compares all members except the
 * last three with those that were put. */
typedef struct llm_kv_id {
    hash128 fingerprint;
    hash128 parent; /* key of the block before this one; of the first block: the fingerprint */
    hash128 key;    /* hash of (parent, tokens) */
    llm_token tokens[LLM_BLOCK_TOKENS];
    int depth;      /* index of the block in its prompt */
    int fanout;     /* number of this session's prompts that contain the block */
    double cost_ms; /* time to compute the block */
} llm_kv_id;

/* A store of full KV blocks, supplied by the caller. Each function may be NULL. All are called on
 * the session's thread. `get` is also called on the loader's thread, possibly while the session's
 * thread is in `get` or `put`. */
typedef struct llm_kv_store {
    void *ctx;
    /* Copies the block's `bytes` bytes to `kv`; false: the store does not have the block. */
    bool (*get)(void *ctx, const llm_kv_id *id, void *kv, size_t bytes);
    void (*put)(void *ctx, const llm_kv_id *id, const void *kv, size_t bytes);
    /* Whether the store has the block. If it has, `get` will probably be called for the block. If
     * `prefetch` is NULL, no block is read ahead. */
    bool (*prefetch)(void *ctx, const llm_kv_id *id);
    /* true: all full blocks are put; false: only blocks that two or more prompts share */
    bool keep_all;
} llm_kv_store;

/* Which prompts share KV, and in which order they are computed. */
typedef enum llm_reuse {
    LLM_REUSE_TREE, /* the whole queue is known; depth first, computing each node once */
    /* in order of submission, `window` requests known; the oldest prefix is evicted first */
    LLM_REUSE_FIFO,
    LLM_REUSE_NONE /* every prompt is computed whole */
} llm_reuse;

typedef struct llm_session_options {
    size_t kv_memory_bytes; /* KV memory on the device; 0: llm_model_info's */
    size_t kv_host_bytes;   /* KV memory on the host, if the device uses it; 0: llm_model_info's */
    llm_reuse reuse;
    int window;      /* requests known to the scheduler at a time; 0: all (TREE), 64 (FIFO, NONE) */
    int max_batch;   /* maximum number of sequences decoded together; 0: the backend's */
    int pass_tokens; /* maximum number of prompt tokens in a pass; 0: by the device's speed */
    bool keep_logits; /* fill llm_event.top_logits */
    bool count_only;  /* schedule without running the model: empty answers, exact statistics */
    /* only compute and store prefixes (all if store.keep_all, else the shared ones): empty
     * answers */
    bool warm_only;
    /* remove fields, longest first (llm_request.named last), if a prompt exceeds the context */
    bool truncate;
    /* remote: no request is sent by which more money or tokens might be spent (0: no limit); the
     * llm_step that cannot go on returns ERR_LIMIT */
    double max_money;
    uint64_t max_tokens;
    /* remote: called with what the user should know, on the session's thread; NULL: not called */
    void (*notice)(void *ctx, const char *text);
    void *notice_ctx;
    llm_kv_store store;
    const atomic_bool *cancel; /* polled once per pass, and while weights are read; may be NULL */
} llm_session_options;

/* KV memory of a session, in bytes. */
typedef struct llm_memory {
    size_t kv_bytes;             /* in use on the device */
    size_t kv_budget_bytes;      /* limit of kv_bytes */
    size_t kv_host_bytes;        /* in use in host memory */
    size_t kv_host_budget_bytes; /* limit of kv_host_bytes */
    size_t kv_peak_bytes;        /* maximum in use so far, device and host together */
    int live_sequences;
} llm_memory;

/* Creates a session. In that of an embedding model (info.generates is false) the answer of a request
 * is the vector of its spans' text: event.text has its bytes, info.embedding f32 numbers; a text that
 * lost its end is `shortened`. ERR_LIMIT: kv_memory_bytes is too small for this model.
 * ERR_UNSUPPORTED: an embedding model cannot be warmed. */
int llm_session_new(llm_engine *engine, const llm_session_options *options, llm_session **out,
                    err *e);
void llm_session_free(llm_session *session); /* NULL is fine; drops unanswered requests */
/* Queues a request; its arguments are copied or retained. ERR_LIMIT: the prompt has no token, or
 * the prompt and its answer exceed the context or the KV memory; the message has the number of
 * tokens. */
int llm_submit(llm_session *session, const llm_request *request, err *e);
/* Returns the tokens that llm_submit would send: with BOS and with the tokens that all allowed
 * answers begin with, without the fields that options.truncate removes. Valid until the next call
 * on the session. NULL with *e set where llm_submit would fail. */
const llm_token *llm_prompt_tokens(llm_session *session, const llm_request *request, int *count,
                                   err *e);
/* Runs at most one pass of the model and returns up to `capacity` finished answers in
 * `events`; *count may be 0 while work is left. *idle: no request is unanswered, and all
 * answers have been returned. ERR_CANCELLED: unanswered requests were dropped; finished answers are
 * still returned. */
int llm_step(llm_session *session, llm_event *events, int capacity, int *count, bool *idle, err *e);
/* An endpoint of a remote session, for people who watch it. */
typedef struct llm_place {
    const char *url;
    const char
        *state; /* "up"; "tried": one request tells whether it answers again; "down"; "left" */
    int in_flight, window;      /* requests: now, and at most for now */
    uint64_t answered, refused; /* requests: answered, answered by 429 or 503 */
    uint64_t prompt, cached;    /* tokens of its prompts, and of these those that it had */
    double tokens_s;            /* of its last full window; 0: not known yet */
    double median_ms, slow_ms;  /* of its latest answers: the median, the 95th percentile */
} llm_place;
/* Writes the endpoints, at most `capacity`, and returns their number; 0: the model is not remote.
 * Texts are valid as long as the session. */
int llm_session_places(const llm_session *session, llm_place *out, int capacity);
/* Copies the session's counters and times so far to *out (llm_figures: storage/base.h). */
void llm_session_figures(const llm_session *session, llm_figures *out);
void llm_session_memory(const llm_session *session, llm_memory *out);

/* Fills out[vocab] with the log-probabilities of the token after tokens[count], computed as answers
 * are. BOS is not added. */
int llm_logprobs(llm_session *session, const llm_token *tokens, size_t count, float *out, err *e);

/* A branch of the prefix tree, for the live view: a run of tokens that two or more prompts share.
 * Where prompts part, a branch ends and others continue it. */
typedef struct llm_branch {
    int depth;  /* number of branches above it */
    int tokens; /* number of its tokens, without the branches above */
    int fanout; /* number of prompts so far that begin with the branches above and this one */
    int done;   /* number of these prompts that are answered */
    /* [nfirst] its first tokens, at most LLM_BRANCH_TOKENS, and [nbefore] the tokens before them,
     * at most LLM_BRANCH_BEFORE; valid until the next call */
    const llm_token *first, *before;
    int nfirst, nbefore;
} llm_branch;
enum { LLM_BRANCH_TOKENS = 100, LLM_BRANCH_BEFORE = 8 };
/* Fills out[capacity], depth first, with the branches that save most tokens (what the branches below
 * them save counts as well), without very small ones. Returns their number. */
int llm_session_branches(llm_session *session, llm_branch *out, int capacity);

#endif
