/*
 * llm_int.h - the parts of the LLM operator that do not depend on stages: inputs, prompts, orders,
 * answers, and the runtime that the operators of a statement share.
 *
 *   rows --inputs_gather--> distinct inputs (field values by dictionary id; texts of late fields
 *                           are added when their calls are about to be asked)
 *        --prompt_new-----> token spans of prefix, names and values, once each
 *        --order_solve----> field order per input, order of inputs (PSM)
 *        --answer_*-------> the statement's memo, then the answers stored on disk
 *        --llm_runtime----> the engine's session; events become answers
 *
 * Invariant: layout and field order are computed from all distinct inputs of a call, before stored
 * answers are looked up. So stored answers never change a prompt's text.
 */
#ifndef KVASIR_LLM_INT_H
#define KVASIR_LLM_INT_H

#include <pthread.h>
#include <stdio.h>

#include "core/db_core_int.h"
#include "core/notice_int.h"
#include "core/progress_board_int.h"
#include "llm_runtime_int.h"
#include "models_int.h"
#include "ops/op_int.h"

/* ---- contexts (llm_contexts.c) --------------------------------------------------------------- */

/* Reads a value of contexts =>: sets *out, allocated in `mem`, to its texts, each without line breaks;
 * empty texts and NULLs are left out. ERR_TYPE: it is no JSON array of texts. */
int contexts_read(const llm_call *call, str json, arena *mem, str **out, int *n, err *e);
/* Returns the texts as the value of a field: the lines of a text. n = 0: there is none. */
str contexts_join(const str *texts, int n, arena *mem);

/* Sets of texts; a set's number is the order in which it was added, from 0. */
typedef struct context_sets context_sets;
context_sets *contexts_new(workmem *space);
void contexts_free(context_sets *s); /* NULL is fine */
/* Returns the number of the set of these texts. */
uint32_t contexts_intern(context_sets *s, const str *texts, int n);
uint32_t contexts_count(const context_sets *s);
/* Decides in which order the texts of each set are sent. ERR_CANCELLED. */
int contexts_order(context_sets *s, const atomic_bool *cancel, err *e);
/* Returns the texts of a set in their order, as contexts_join does. */
str contexts_text(const context_sets *s, uint32_t set, arena *mem);

/* ---- inputs (llm_inputs.c) ------------------------------------------------------------------- */

/* LATE_UNKNOWN: the answers that the value is computed from may not be there yet. LATE_NULL: it is
 * NULL. LATE_ASSUMED: its text is made up, to be counted or shown without answers. */
typedef enum late_state { LATE_UNKNOWN, LATE_KNOWN, LATE_NULL, LATE_ASSUMED } late_state;

/* The distinct texts of one field; a text's id is its rank in bytewise order. Of a late field
 * (planner.h) an id stands for one combination of what the value is computed from, in the order of
 * the rows; several ids may turn out to have equal texts. */
typedef struct field_values {
    uint32_t count;
    str *text;    /* by id; the bytes are in the rows or in llm_runtime.kept, which may spill */
    hash128 *key; /* by id: hash of the text */
    bool late;
    uint8_t *state; /* late: by id: late_state; `text` and `key` are set if it is LATE_KNOWN */
} field_values;

/* What a late field is computed from. */
typedef struct late_source {
    bool late; /* false: the field is not late */
    int ncols;
    const int *cols; /* [ncols] columns of the rows */
    int nanswers;
    const uint32_t *const *inputs; /* [nanswers] by row: the input of a call whose answer is read */
} late_source;

enum { NO_INPUT = UINT32_MAX };

/* All distinct inputs of a call site. */
typedef struct llm_inputs {
    int nfields;
    uint32_t count;
    field_values *fields; /* [nfields] */
    uint32_t **value;     /* [nfields][count] id of the field's text in the input, or PSM_ABSENT */
    uint32_t *of_row;     /* by row: its input; NO_INPUT: the answer is NULL without a call */
    uint8_t *empty;       /* by row: it has no input because fields are NULL */
    uint8_t *resolved;    /* by input: its late fields are known; NULL: no field is late */
    int64_t rows;         /* number of all rows */
    int64_t needed_rows;  /* number of rows with an input */
} llm_inputs;

/* Reads the call's fields from every row; with `dedup` equal inputs become one. `sources`: of each
 * field. The result is allocated in `mem`; its texts stay valid as long as `rows` and ctx->llm. A row
 * whose late fields turn out to be NULL may lose its input later (llm_late_fields.c). */
int inputs_gather(exec_ctx *ctx, const plan_call_site *site, const late_source *sources,
                  const rowset *rows, bool dedup, arena *mem, llm_inputs **out, err *e);
/* Whether the value of a field is absent in an input's prompt. That of a late field must be known. */
static inline bool input_lacks(const llm_inputs *in, int field, uint32_t input) {
    uint32_t id = in->value[field][input];
    return id == PSM_ABSENT || (in->fields[field].late && in->fields[field].state[id] == LATE_NULL);
}
/* Returns a key for an input, unique within its statement: a hash of the call's number and the
 * fields' texts. */
hash128 inputs_key(const llm_inputs *in, const llm_call *call, uint32_t input);

/* ---- prompts (prompt.c) ---------------------------------------------------------------------- */

/* A part of a prompt: `before`, the fields [first, end), `after`. The answer to a part that is not
 * the last one is the field `end`; it has no name in the prompt. */
typedef struct prompt_part {
    const llm_call *call;
    llm_span **before; /* [nbefore] of the first part: the prefix that all prompts share */
    int nbefore;
    int first, end;
    llm_span **after; /* [nafter] */
    int nafter;
} prompt_part;

/* The prompts of a call: the token spans that are the same in all of them, and a span for each
 * distinct value of each field. */
typedef struct prompt {
    const llm_call *call;
    const llm_template *tmpl;
    bool data_first; /* the data come before the instruction */
    /* the prompts of a group about a row (plan_call_site.group) have a prefix that ends with the row */
    bool shares_row;
    const llm_template *frame; /* the template of the whole prompt; `tmpl` has the cue in `after` */
    /* [nparts] one for each call that the call goes on from, the earliest first, then its own */
    prompt_part *parts;
    int nparts;
    llm_engine *engine;
    int nfields;
    int nsolved;        /* number of first fields whose order is solved: those of llm_call_root */
    llm_span **names;   /* [nfields] "review:" */
    llm_span ***values; /* [nfields][value id] " text\n"; of a late field: prompt_add_value() */
    uint32_t *nvalues;  /* [nfields] number of distinct values */
    bool borrows;       /* names and values belong to another prompt, which outlives this one */
    size_t head_tokens; /* number of tokens before the fields of the first part */
    llm_guide *guide;   /* NULL: free text */
    bool blends;        /* requests are sent with `blend` */
    llm_blend blend;
    bool all_probs; /* answers have the probability of each literal, if there are any */
    arena *mem;
} prompt;

/* A solved example: the texts of the call's fields and of its answers, as llm_call.example_answers
 * names them; p = NULL: absent. */
typedef struct prompt_example {
    str *fields, *answers;
} prompt_example;

typedef struct prompt_spec {
    const llm_call *call;
    llm_engine *engine;
    const exec_ctx *ctx;
    bool data_first; /* no effect on a call with a cue */
    /* a prompt with the same fields and inputs, whose names and values are reused; or NULL */
    const prompt *like;
} prompt_spec;

/* Appends the text of a cell as it stands in a prompt: every line break (LF, CR, CRLF, VT, FF, NEL,
 * LS, PS) is one space. */
void prompt_append_cell(buf *out, str cell);
/* Sets *out to the guide of the call's answers, which the runtime owns; NULL: free text. */
int call_guide(const exec_ctx *ctx, const llm_call *call, llm_engine *engine, llm_guide **out,
               err *e);
/* Whether the answers under the call's guide have the probability of each literal. */
bool call_scores_all(const llm_call *call, const llm_guide *guide);
/* Tokenizes the texts of all prompts; the spans of values are allocated in ctx->llm->kept. Errors:
 * ERR_MODEL if the model's answers cannot be constrained to the call's type, ERR_FULL,
 * ERR_CANCELLED. */
int prompt_new(const prompt_spec *spec, const llm_inputs *in, prompt **out, err *e);
void prompt_free(prompt *p); /* NULL is fine */
/* Puts the data before the instruction. Called before prompt_finish_prefix. */
void prompt_set_data_first(prompt *p);
/* Adds the examples (of llm_call_root), with their fields in `order` (NULL: as the call lists them),
 * and the blank line before the row. Called once, before prompt_spans. */
void prompt_finish_prefix(prompt *p, const prompt_example *examples, int count,
                          const uint8_t *order);
/* Makes the span of a late field's value, whose text is in `in`, in `mem`, which must outlive the
 * requests with the span. */
void prompt_add_value(prompt *p, const llm_inputs *in, int field, uint32_t id, arena *mem);
/* Writes the spans of an input's prompt to `out`, and returns their number. The fields of its first
 * part are in `order`, others as written. `out` has room for prompt_max_spans() spans. */
int prompt_spans(const prompt *p, const llm_inputs *in, uint32_t input, const uint8_t *order,
                 llm_span **out);
int prompt_max_spans(const prompt *p);
/* Returns the field whose name this span is, or -1 if it is not a field's name. The span after a
 * name is the field's value. */
int prompt_named_field(const prompt *p, const llm_span *span);

/* ---- order (llm_order.c) --------------------------------------------------------------------- */

/* Fields that are computed from answers, late or not, have no part in solving. Those of which a list
 * of texts is allowed come first where that surely computes no more tokens, the others last, both as
 * written. So a prompt's text depends neither on which rows were asked about before, nor on where the
 * planner placed the calls. */
typedef struct input_order {
    psm_result psm; /* units without those of fields computed from answers */
    bool recorded;  /* the order was taken from the record */
    uint32_t *rank; /* by input: its position in psm.row_order; set by order_rank() */
    str text;       /* for EXPLAIN: "synopsis, review", or the orders of the largest groups */
} input_order;

/* Returns the order in which an input's fields are sent. */
static inline const uint8_t *order_of_input(const input_order *o, const llm_inputs *in,
                                            uint32_t input) {
    return o->psm.field_order + (size_t)input * (size_t)in->nfields;
}
/* Fills o->rank. */
void order_rank(input_order *o, uint32_t count, arena *mem);
psm_strategy llm_strategy_of(const settings *s); /* the strategy that SET psm chose */

/* Computes the field order and the input order for all inputs. With SET field_order = 'keep',
 * uses a recorded field order if it is nearly as good as the best one; otherwise records the
 * best one. */
int order_solve(exec_ctx *ctx, const prompt *p, const llm_inputs *in, psm_strategy strategy,
                arena *mem, input_order *out, err *e);
/* Gives a call that goes on from `after`'s prompts their orders; of_row and rows are as in
 * llm_inputs. */
void order_follow(const input_order *after, const llm_inputs *after_in, const llm_inputs *in,
                  arena *mem, input_order *out);
/* As order_solve, but neither uses nor changes the recorded orders. `bound`: also computes an upper
 * bound on what any order could share. */
int order_solve_plain(const exec_ctx *ctx, const prompt *p, const llm_inputs *in,
                      psm_strategy strategy, bool bound, arena *mem, input_order *out, err *e);
/* Finds the best single field order, whatever the settings psm and field_order are. */
int order_solve_best(const prompt *p, const llm_inputs *in, arena *mem, input_order *out, err *e);
/* Sets *gap to an upper bound on how much another order of whole cells could raise the shared
 * fraction of tokens. `order` must have been solved with `bound`. NAN: unknown. */
int order_gap(const prompt *p, const llm_inputs *in, const input_order *order, double *gap, err *e);
/* Writes to `order` the field order of the group with the most fields; the fields that this group
 * lacks come last. r must have a group. If a result has one order for all rows, this function
 * returns that order. */
void order_of_dominant_fields(const psm_result *r, int nfields, uint8_t *order);
/* Appends the catalog's key for a fact about a call: "<prefix>/<hash of engine, instruction and
 * fields>". `cue`: the fact is about one field of a STRUCT, else about all. */
void call_fact_key(const llm_call *call, const char *prefix, bool cue, hash128 fingerprint,
                   buf *out);

/* ---- layout (llm_layout.c) ------------------------------------------------------------------- */

/* A call of a group, and the share of the group's inputs about which this call is asked. */
typedef struct layout_call {
    const prompt *prompt;
    double share;
} layout_call;

/* Sets *data_first: whether `count` calls about the inputs `in` compute clearly fewer tokens when
 * their prompts begin with the data (planner.h: plan_data_pays). */
int layout_choose(const layout_call *calls, int count, const llm_inputs *in, bool *data_first,
                  err *e);

/* ---- answers (llm_answers.c) ----------------------------------------------------------------- */

typedef struct llm_answer {
    str text;
    int choice;  /* index of the literal; -1: the call has no literals */
    double prob; /* probability of the answer among the allowed ones; NaN: free text */
    /* [call->nliterals] the probability of each literal; NULL: the answer has none
     * (prompt.all_probs), or failed */
    const double *probs;
    bool failed;    /* there is no answer, and llm_call.otherwise stands for it; text: the reason */
    bool ended;     /* max_tokens ended the answer, not the model */
    bool shortened; /* llm_overflow = 'truncate' left fields out of the prompt */
    bool pending;   /* requested; the answer has not arrived yet */
    uint32_t output_tokens;
} llm_answer;

/* The statement's answers. An answer may have several keys: its call and fields (inputs_key), and
 * its prompt (answer_key). Answers are allocated in the arena given to answer_memo_new. */
typedef struct answer_memo answer_memo;
answer_memo *answer_memo_new(workmem *space, arena *answers);
void answer_memo_free(answer_memo *m);
llm_answer *answer_memo_find(const answer_memo *m, hash128 key); /* NULL: none */
/* Adds a pending answer, without a key. */
llm_answer *answer_memo_expect(answer_memo *m);
void answer_memo_link(answer_memo *m, hash128 key, llm_answer *a);
/* Fills a pending answer; copies the text and the probabilities of its `nliterals` literals. */
void answer_memo_fill(answer_memo *m, llm_answer *expected, const llm_answer *a, int nliterals);

/* Sets how a call's TEXT answers are sampled: by the settings, but with the call's own temperature
 * if it has one. */
void call_sampling(const settings *s, const llm_call *call, llm_sampling *out);

/* Points *out at the texts that end a call's TEXT answers: the call's own texts, or else the text
 * of SET stop, which is stored in *own. Returns the number of texts. */
int call_stops(const settings *s, const llm_call *call, str *own, const str **out);

/* What identifies a prompt's answer on disk: engine, tokens, constraint, sampling, template. `key`
 * is the hash of `identity`, which the caller frees. */
typedef struct answer_id {
    hash128 key;
    buf identity;
} answer_id;
void answer_identify(const prompt *p, const settings *s, llm_span *const *spans, int nspans,
                     answer_id *out);
/* Returns the answer to a prompt, pending ones included, whose identity is `id`; NULL: there is
 * none, or none with all probabilities if the prompt asks for them. */
llm_answer *answer_memo_find_prompt(const answer_memo *m, const prompt *p, const answer_id *id);
/* Returns the key under which the prompt's answer is linked and stored. */
hash128 answer_key(const prompt *p, const answer_id *id);
/* Reads the stored answer to a prompt; returns false if there is none, or none with all
 * probabilities if the prompt asks for them. `shortened`: also accepts an answer whose prompt had
 * fields left out. */
bool answer_load(cache *c, const answer_id *id, const prompt *p, bool shortened, arena *mem,
                 llm_answer *out);
void answer_store(cache *c, const answer_id *id, const prompt *p, const llm_answer *a,
                  double cost_ms);

/* Converts an answer to its SQL value. A TEXT value is not copied: it points into the answer or the
 * call. */
int answer_value(const llm_call *call, const llm_answer *a, value *out, err *e);

/* Returns a probability of an answer: `literal` as in llm_prob (sql.h). NaN: the answer failed, or
 * its call has no literals. */
double answer_prob(const llm_call *call, const llm_answer *a, int literal);

/* Prompt tokens per second assumed for a model whose rate was not measured. */
enum { NOMINAL_TOK_S = 2000 };

/* ---- KV blocks on disk (llm_kv.c) ------------------------------------------------------------ */

/* Passes KV blocks between a session and the cache. With KVASIR_KV_TRACE=file in the environment it
 * appends to that file a line for each block read or stored: key, parent, milliseconds, bytes
 * (tests/bench/bench_evict replays them). */
typedef struct kv_link {
    cache *cache;
    double block_ms;        /* cost of computing a block again, at the model's rate */
    FILE *trace;            /* the file of KVASIR_KV_TRACE; NULL: none */
    struct kv_notes *notes; /* records the blocks that are read or stored; NULL: not recorded */
} kv_link;
/* For PIN: the keys of blocks that a statement read or stored. */
typedef struct kv_notes {
    pthread_mutex_t mutex; /* protects the other members */
    hash128 *keys;
    size_t count, cap;
} kv_notes;
/* Connects a session of `engine` to the cache `c`: *out gets the functions that read and store KV
 * blocks, *l their state, which must outlive the session. `keep_all`: see llm_kv_store.keep_all. */
void kv_link_open(kv_link *l, cache *c, const llm_engine *engine, bool keep_all, kv_notes *notes,
                  llm_kv_store *out);
void kv_link_close(kv_link *l);

/* ---- sessions (llm_sessions.c) --------------------------------------------------------------- */

typedef struct engine_session {
    llm_engine *engine;
    llm_session *session; /* NULL: closed */
    kv_link kv;           /* between the session and the cache; not used by sessions that count */
    struct engine_session *next;
} engine_session;

/* The sessions of a statement, one for each engine. The engines of a device share its KV memory in
 * proportion to the bytes of a token, so each session holds as many tokens. If that is less than
 * the longest prompt that one of the models accepts, only one session exists at a time. */
typedef struct session_set {
    engine_session *first;
    engine_session *current; /* the last one returned; NULL: none */
} session_set;

/* Whether the sessions of a statement's engines may exist at the same time. */
bool sessions_are_kept(const llm_runtime *r);
/* Returns the entry of an engine, making it in `mem` if it is new, and closes sessions that may not
 * exist beside it. If entry->session is NULL, the caller makes a session with
 * sessions_kv_bytes(). */
engine_session *sessions_entry(session_set *set, llm_runtime *r, llm_engine *engine, arena *mem);
/* Returns the KV memory of a session of this engine, in bytes, as llm_session_options has it. */
size_t sessions_kv_bytes(const llm_runtime *r, const llm_engine *engine);
void sessions_close(session_set *set);

/* ---- model files of cache entries (model_files.c) -------------------------------------------- */

/* Records that this model file produces cache entries with this fingerprint. Warns if the file's
 * contents have changed since the last time. */
void model_files_note(exec_ctx *ctx, cache *c, const llm_model_info *info);

/* ---- EXPLAIN (TOKENS) (llm_count.c) ---------------------------------------------------------- */

enum { COUNT_STRATEGIES = 5 };

/* What a statement would have asked so far under one strategy. */
typedef struct count_run {
    session_set sessions; /* these count tokens without computing them */
    answer_memo *asked;   /* the prompts asked so far */
    arena *mem;           /* memory of `sessions` and of the answers in `asked` */
} count_run;
void count_run_close(count_run *run);
/* The prompts that EXPLAIN (PROMPT) or (TREE) shows (llm_show.c). */
typedef struct shown shown;
void shown_free(shown *x); /* NULL is fine */

/* ---- the runtime (llm_runtime.c), learned facts (llm_facts.c) -------------------------------- */

/* What was learned from earlier runs of a call. The bytes of this struct are stored in the
 * catalog. */
typedef struct call_facts {
    uint64_t answers, output_tokens;
    uint64_t literal_counts[32]; /* how often each of the first 32 literals was the answer */
} call_facts;

/* The priors of a calibrated call (llm_calibrate.c). */
typedef struct call_priors {
    double *of;    /* [call->nliterals]; NULL: answers are not calibrated */
    size_t sample; /* number of inputs that they were computed from */
    bool recorded; /* taken from the catalog's record */
} call_priors;

/* What a statement's LLM operators share. Engines are opened when the runtime is made, while the
 * catalog can be read. If that fails, the operator that needs the engine reports the error, so that
 * EXPLAIN works without a model. */
struct llm_runtime {
    exec_ctx *ctx;
    answer_memo *memo;
    llm_engine **engines; /* by call number - 1; held until llm_runtime_free */
    int nengines;
    err open_error;
    call_priors *priors;       /* by call number - 1 */
    uint64_t **answer_rows;    /* by call number - 1: an answer_tally.rows (llm_notes.c); or NULL */
    llm_guide **guides;        /* by call number - 1: made on first use (call_guide) */
    prompt_example **examples; /* by call number - 1; read with the snapshot */
    int *nexamples;            /* by call number - 1 */
    session_set sessions;
    cache *cache;        /* NULL: off or unusable */
    bool cache_tried;    /* opening the cache was tried */
    kv_notes pinned;     /* PIN: the blocks to pin */
    int64_t sample;      /* > 0: operators ask about this many rows only (llm_sample.c) */
    call_facts *sampled; /* by call number - 1: learned from this statement's sample */
    bool forget;         /* plans must not depend on earlier runs (llm_plan_hooks) */
    /* sum of the figures of closed sessions and of the figures that the operators count */
    llm_figures figures;
    int operators_started; /* number of stages of all operators that have started; numbers the
                            * stages in the progress */
    uint64_t broken_noted; /* llm_figures.broken_cells that a notice has told */
    double started_s;
    double watched_s; /* when details were last collected (watch.c) */
    count_run counts[COUNT_STRATEGIES];
    shown *shown;                     /* NULL: nothing is shown */
    struct noted_order *noted_orders; /* llm_order.c */
    arena *mem;
    arena *kept; /* spans of values, texts of computed fields, answers; memory that may spill */
};

/* Returns the engine of a call in *out, or the error that occurred when it was opened. */
int runtime_engine(llm_runtime *r, const llm_call *call, llm_engine **out, err *e);
/* Returns the session of an engine, starting it if needed. */
int runtime_session(llm_runtime *r, llm_engine *engine, llm_session **out, err *e);
cache *runtime_cache(llm_runtime *r); /* opened on first use; NULL: off or unusable */
/* Returns the statement's figures so far. */
void runtime_figures(const llm_runtime *r, llm_figures *out);
/* Returns the sum over the open sessions; all zero without a session. */
void runtime_memory(const llm_runtime *r, llm_memory *out);
/* Sets the options of a session from the settings; the caller adds `store`. */
void session_options(const exec_ctx *ctx, llm_session_options *out);

/* Reads what is known about a call: this statement's sample, else the catalog's record. Returns
 * false if there is neither. */
bool facts_recall(exec_ctx *ctx, const llm_call *call, hash128 fingerprint, call_facts *out);
/* As facts_recall, but for plans: if plans must not depend on earlier runs, returns only what this
 * statement's sample taught. */
bool facts_for_plan(exec_ctx *ctx, const llm_call *call, hash128 fingerprint, call_facts *out);
/* Whether a sample may teach something about the call: the call has few possible answers, and how
 * often each occurs is not known. */
bool sample_teaches(exec_ctx *ctx, const llm_call *call);
/* Stores the facts of a call. */
void facts_remember(exec_ctx *ctx, const llm_call *call, hash128 fingerprint,
                    const call_facts *facts);

#endif
