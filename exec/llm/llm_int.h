/*
 * llm_int.h - the LLM operator's parts: inputs, prompts, order, answers.
 *
 *   rows --inputs_gather--> distinct inputs (field values by dictionary id)
 *        --prompt_new-----> token spans of head, names and values, once each
 *        --order_solve----> field order per input, order of inputs (PSM)
 *        --answers_*------> the statement's memo, then the answers stored on disk
 *        --llm_runtime----> the engine's session; events become answers
 *
 * Invariant (DESIGN 2.2): layout and field order are fixed over all distinct inputs of a call
 * before anybody asks which are answered already, so that what is stored never changes a prompt's
 * text.
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

/* ---- inputs (llm_inputs.c) ------------------------------------------------------------------- */

/* The distinct texts of one field; ids are ranks in bytewise order. */
typedef struct field_values {
    uint32_t count;
    str *text;    /* in the rows, or in llm_runtime.kept: both may be on disk */
    hash128 *key; /* of the text */
} field_values;

enum { NO_INPUT = UINT32_MAX };

/* All distinct inputs of one use. value[f][i] is the
 * id of field f's text in input i, or PSM_ABSENT. */
typedef struct llm_inputs {
    int nfields;
    uint32_t count;
    field_values *fields; /* nfields */
    uint32_t **value;     /* nfields arrays of `count` */
    /* [rows] the input of each row, or NO_INPUT: its answer is NULL without a call */
    uint32_t *of_row;
    int64_t rows, needed_rows;
} llm_inputs;

/* Reads the use's fields from every row; with `dedup` equal inputs become one.
 * Lives in `mem`; its texts as long as the rows and ctx->llm. */
int inputs_gather(exec_ctx *ctx, const plan_call_site *site, const rowset *rows, bool dedup,
                  arena *mem, llm_inputs **out, err *e);
/* The 128-bit identity of an input within its statement:
 * number of the call, then (field, text's hash) pairs. */
hash128 inputs_key(const llm_inputs *in, const llm_call *call, uint32_t input);

/* ---- prompts (prompt.c) ---------------------------------------------------------------------- */

/* Everything that is the same for all prompts of a call, and the spans of every distinct value. */
typedef struct prompt {
    const llm_call *call;
    const llm_template *tmpl;
    bool data_first;
    llm_engine *engine;
    int nfields;
    /* spans in front of the row's fields: the shared head when instruction first */
    llm_span **before;
    int nbefore;
    llm_span **behind; /* spans behind them */
    int nbehind;
    llm_span **names;   /* nfields: "review:" */
    llm_span ***values; /* [field][value id]: " text\n" */
    uint32_t *nvalues;
    bool borrows; /* names and values are of another prompt, which outlives this one */
    size_t head_tokens;
    llm_guide *guide; /* NULL: free text */
    arena *mem;
} prompt;

/* One example: texts of the call's fields (absent: p = NULL) and the answer. */
typedef struct prompt_example {
    str *fields;
    str answer;
} prompt_example;

typedef struct prompt_spec {
    const llm_call *call;
    llm_engine *engine;
    const exec_ctx *ctx;
    bool data_first;
    /* of the same fields over the same inputs: its tokens are taken over; or NULL */
    const prompt *like;
} prompt_spec;

/* Tokenizes head and values, these into ctx->llm->kept. ERR_MODEL when the answer type cannot be
 * constrained, ERR_FULL. */
int prompt_new(const prompt_spec *spec, const llm_inputs *in, prompt **out, err *e);
void prompt_free(prompt *p); /* NULL is fine */
/* Changes what stands first; before prompt_finish_prefix. */
void prompt_set_layout(prompt *p, bool data_first);
/* Closes the head: the examples (there may be none) in this field order, and the blank line before
 * the row. Exactly once, before prompt_spans. */
void prompt_finish_prefix(prompt *p, const prompt_example *examples, int count,
                          const uint8_t *order);
/* Spans of one input in the given field order; returns
 * how many. `out` has room for prompt_max_spans(). */
int prompt_spans(const prompt *p, const llm_inputs *in, uint32_t input, const uint8_t *order,
                 llm_span **out);
int prompt_max_spans(const prompt *p);
/* The field whose name this span is; -1: none. Its value comes behind it. */
int prompt_named_field(const prompt *p, const llm_span *span);

/* ---- order (llm_order.c) --------------------------------------------------------------------- */

typedef struct input_order {
    psm_result psm;
    uint32_t *rank; /* by input: its place in psm.row_order; order_rank() */
    bool recorded;  /* the field order is one that was kept from an earlier run */
    str text;       /* for EXPLAIN: "synopsis, review" or the largest groups */
} input_order;

/* The order in which an input's fields are sent. */
static inline const uint8_t *order_of_input(const input_order *o, const llm_inputs *in,
                                            uint32_t input) {
    return o->psm.field_order + (size_t)input * (size_t)in->nfields;
}
/* Fills rank. */
void order_rank(input_order *o, uint32_t count, arena *mem);
psm_strategy llm_strategy_of(const settings *s); /* as SET psm says */

/* Solves field and input order over all inputs; keeps
 * and reuses the record of the field order (DESIGN 2.2). */
int order_solve(exec_ctx *ctx, const prompt *p, const llm_inputs *in, psm_strategy strategy,
                arena *mem, input_order *out, err *e);
/* The same without records, for counting. */
int order_solve_plain(const exec_ctx *ctx, const prompt *p, const llm_inputs *in,
                      psm_strategy strategy, bool bound, arena *mem, input_order *out, err *e);
/* The best one order, whatever psm says and whoever listed another. */
int order_solve_best(const prompt *p, const llm_inputs *in, arena *mem, input_order *out, err *e);
/* The share of tokens that whole cells could share beyond what they do in this order, which was
 * solved with its bound; NAN: not known. */
int order_gap(const prompt *p, const llm_inputs *in, const input_order *order, double *gap, err *e);
/* The one order of a result that has only one (there are rows): what the rows with the most fields
 * send, as absent ones have no place. */
void order_of_dominant_fields(const psm_result *r, int nfields, uint8_t *order);
/* The key of a call's facts kept in the catalog: "field_order/…". */
void call_fact_key(const llm_call *call, const char *prefix, hash128 fingerprint, buf *out);

/* ---- layout (llm_layout.c) ------------------------------------------------------------------- */

/* One of the calls about the same fields, and the share of the inputs that it is asked about. */
typedef struct layout_call {
    const prompt *prompt;
    double share;
} layout_call;

/* Whether the data should stand first in `count` calls that share the distinct inputs `in` (DESIGN
 * 2.2: by token counts). */
int layout_choose(const layout_call *calls, int count, const llm_inputs *in, bool *data_first,
                  err *e);

/* ---- answers (llm_answers.c) ----------------------------------------------------------------- */

typedef struct llm_answer {
    str text;
    int choice;
    double prob;
    bool failed;    /* llm_on_error = 'null' turned a failure into NULL; text is its reason */
    bool ended;     /* by max_tokens, not by the model */
    bool shortened; /* llm_overflow = 'truncate' left fields out of the prompt */
    bool pending;   /* asked for, not there yet */
    uint32_t output_tokens;
} llm_answer;

/* The statement's answers, which live as long as the memo; several keys may lead to one: a call's
 * fields (inputs_key), and the prompt they came to (answer_identify). */
typedef struct answer_memo answer_memo;
answer_memo *answer_memo_new(workmem *space, arena *answers);
void answer_memo_free(answer_memo *m);
llm_answer *answer_memo_find(const answer_memo *m, hash128 key); /* NULL: none */
/* An answer that waits, to which no key leads yet. */
llm_answer *answer_memo_expect(answer_memo *m);
void answer_memo_link(answer_memo *m, hash128 key, llm_answer *a);
/* The answer that was expected is this one; copies text. */
void answer_memo_fill(answer_memo *m, llm_answer *expected, const llm_answer *a);

/* How a call's TEXT answers are drawn: the statement's settings, and over them its own options. */
void call_sampling(const settings *s, const llm_call *call, llm_sampling *out);

/* The texts that end a call's TEXT answers, its own or (in *own) the setting's; returns how many. */
int call_stops(const settings *s, const llm_call *call, str *own, const str **out);

/* Identity of a prompt's answer on disk: engine, tokens, constraint, sampling, template. */
typedef struct answer_id {
    hash128 key;
    buf identity;
} answer_id;
void answer_identify(const prompt *p, const settings *s, llm_span *const *spans, int nspans,
                     answer_id *out);
/* `shortened`: the answer to a prompt that fields were left out of will do. */
bool answer_load(cache *c, const answer_id *id, bool shortened, arena *mem, llm_answer *out);
void answer_store(cache *c, const answer_id *id, const llm_answer *a, double cost_ms);

/* The SQL value of an answer; TEXT is referenced. */
int answer_value(const llm_call *call, const llm_answer *a, value *out, err *e);

/* Prompt tokens per second of a model whose rate was not measured. */
enum { NOMINAL_TOK_S = 2000 };

/* ---- KV blocks on disk (llm_kv.c) ------------------------------------------------------------ */

/* Between a session and the cache. With KVASIR_KV_TRACE=file in the environment each block that was
 * read, or computed and offered, is a line of that file: key, parent, milliseconds, bytes; for
 * replaying by tests/bench/bench_evict. */
typedef struct kv_link {
    cache *cache;
    /* to compute a block again, by the model's measured
     * rate: one pass's time is too uneven to rank by */
    double block_ms;
    FILE *trace;
    pthread_mutex_t mutex; /* of noted */
    hash128 *noted;        /* PIN: the blocks that were read or offered */
    size_t nnoted, noted_cap;
    bool notes;
} kv_link;
void kv_link_open(kv_link *l, cache *c, const llm_engine *engine, bool keep_all, llm_kv_store *out);
void kv_link_close(kv_link *l);
/* Pins the blocks noted so far (set `notes` before the session runs). */
int kv_link_pin(const kv_link *l, str name, cache_pins *out, err *e);

/* ---- which entries are whose (model_files.c) ------------------------------------------------- */

/* Notes that this model file makes entries of this fingerprint, and tells where it is another file
 * than last time. */
void model_files_note(exec_ctx *ctx, cache *c, const llm_model_info *info);

/* ---- EXPLAIN (TOKENS) (llm_count.c) ---------------------------------------------------------- */

enum { COUNT_STRATEGIES = 4 };

/* What a statement has asked so far under one strategy, as far as it is only counted. */
typedef struct count_run {
    llm_engine *engine; /* of `session` */
    llm_session *session;
    answer_memo *asked;
    arena *mem; /* of `asked` */
} count_run;
void count_run_close(count_run *run);

/* ---- the runtime (llm_runtime.c) ------------------------------------------------------------- */

/* What earlier runs of a call showed: how often each
 * literal was the answer, and how long answers were. */
typedef struct call_facts {
    uint64_t answers, output_tokens;
    uint64_t literal_counts[32]; /* the first 32 literals */
} call_facts;

/* What a statement's LLM operators share. Engines are opened when the runtime is made, while the
 * catalog can still be read; what went wrong then is reported by the operator that needs the
 * engine, so that EXPLAIN works without a model. */
struct llm_runtime {
    exec_ctx *ctx;
    answer_memo *memo;
    llm_engine **engines; /* by call number - 1; held until llm_runtime_free */
    int nengines;
    err open_error;
    prompt_example **examples; /* by call number - 1; read with the snapshot */
    int *nexamples;
    llm_engine *engine; /* of `session` */
    llm_session *session;
    cache *cache; /* NULL: off or unusable */
    kv_link kv;   /* between `session` and `cache` */
    bool cache_tried;
    int64_t sample;      /* > 0: operators ask about so many rows only (llm_sample.c) */
    call_facts *sampled; /* by call number - 1: what sampling showed */
    bool forget;         /* the plan must not depend on earlier runs (llm_plan_hooks) */
    llm_figures figures; /* of the sessions before this one, and what operators counted */
    int operators_started;
    double started_s;
    double watched_s; /* when details were last collected (watch.c) */
    count_run counts[COUNT_STRATEGIES];
    struct noted_order *noted_orders; /* llm_order.c */
    arena *mem;
    /* Spills: the spans of values, texts that are no cells as they stand, and answers. */
    arena *kept;
};

/* The engine of a call, or the error that opening it met. */
int runtime_engine(llm_runtime *r, const llm_call *call, llm_engine **out, err *e);
/* The session for an engine, made on first use; one at a time. */
int runtime_session(llm_runtime *r, llm_engine *engine, llm_session **out, err *e);
cache *runtime_cache(llm_runtime *r);
/* The statement's figures so far. */
void runtime_figures(const llm_runtime *r, llm_figures *out);
void runtime_memory(const llm_runtime *r, llm_memory *out); /* zero without a session */
void session_options(const exec_ctx *ctx, llm_session_options *out);

bool facts_recall(exec_ctx *ctx, const llm_call *call, hash128 fingerprint, call_facts *out);
/* The same for planning: only what this statement's
 * sample showed, where earlier runs must not decide. */
bool facts_for_plan(exec_ctx *ctx, const llm_call *call, hash128 fingerprint, call_facts *out);
/* Whether asking a sample may teach something about the call: it has few possible answers, and their
 * shares are not known. */
bool sample_teaches(exec_ctx *ctx, const llm_call *call);
void facts_remember(exec_ctx *ctx, const llm_call *call, hash128 fingerprint,
                    const call_facts *facts);

#endif
