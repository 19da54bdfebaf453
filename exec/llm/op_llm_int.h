/*
 * op_llm_int.h - the LLM operator: its state, and what its files do for each other.
 *
 * One operator runs a PLAN_LLM_PIPELINE (planner.h): stages of LLM calls, and the filters on their
 * answers.
 *
 *      rows of the base, all of them
 *        |
 *        |   per call site: distinct inputs (llm_inputs.c), prompts (prompt.c), instruction or
 *        |   data first (llm_layout.c), order of fields and of inputs (llm_order.c); all but the
 *        |   texts of fields that are computed from answers
 *        v
 *   +-> some of the rows: all, a chunk, a limit batch, a top-n round
 *   |    |
 *   |    v
 *   |   the stage that comes next (llm_rank.c)  <-------------------------+
 *   |    |                                                                |
 *   |    |   the inputs that the rows need, each once (llm_send.c)        |
 *   |    |     driver "ask":   memo, cache, engine -> answers (llm_ask.c) |
 *   |    |     driver "count": a prefix tree, no model (llm_count.c)      |
 *   |    |     driver "show":  the prompts' tokens, no model (llm_show.c) |
 *   |    v                                                                |
 *   |   the rows that pass the stage's filters  -- a stage left? ---------+
 *   |    |
 *   +----+-- rows left?
 *        v
 *      the rows that passed all stages, in the base's order, with the answers' columns
 *
 * op_llm.c    the operator protocol, and the modes: what a run does with rows and inputs.
 * llm_sites.c prepares the call sites once all rows are read. The text of a prompt is determined by
 *             all rows of the base, whatever the filters keep; so a statement finds the answers
 *             that an earlier one stored.
 * llm_late_fields.c  texts of fields that are computed from answers of earlier stages, made when the
 *             rows that need them are about to be asked.
 * llm_run.c   sends rows through the stages: all at once, or in chunks. Chunks let filters change
 *             places, or let KV be reused before it is evicted.
 * llm_demand.c runs limit batches and top-n rounds instead: it asks about fewer rows, if the
 *             nodes above need only some of the rows that pass (plan_demand).
 * llm_rank.c  chooses the next stage from what the stages have cost and kept so far.
 * llm_rows.c  subsets of the base's rows: their order, their columns, conditions over them.
 * llm_send.c  submits the inputs of a stage in the order in which their prompts share most tokens.
 * llm_ask.c   the driver that gets answers; llm_steps.c runs the engine for it, with progress,
 *             pauses, and limits on tokens and time.
 * llm_count.c the driver that only counts tokens, for EXPLAIN (TOKENS) and the live view.
 * llm_show.c  the driver that keeps the prompts, for EXPLAIN (PROMPT) and EXPLAIN (TREE), with
 *             prompt_tree.c, the tree of what they share.
 * llm_sample.c asks about a few rows before the plan is final.
 * llm_notes.c how often each answer was given, and notices about answers.
 * llm_calibrate.c finds the priors of calibrated calls; llm_decide.c applies them to answers.
 *
 * Shared by the operators of a statement: llm_runtime.c (engines, session, memo, examples, learned
 * facts), llm_answers.c (the memo, stored answers), llm_kv.c (KV blocks on disk).
 */
#ifndef KVASIR_OP_LLM_INT_H
#define KVASIR_OP_LLM_INT_H

#include "watch_int.h"

/* An output token costs as much as this many computed prompt tokens, by the nominal rates
 * (planner/cost/cost.c). */
static const double OUTPUT_WEIGHT = 4;

/* A call site while it runs. */
typedef struct site_run {
    const plan_call_site *plan;
    /* the first call site with the same plan_call_site.group; maybe this one */
    struct site_run *leader;
    /* the call site whose prompts and answers this one goes on from; NULL: none in this pipeline */
    struct site_run *after;
    int stage; /* index in llm_state.stages */
    llm_engine *engine;
    llm_inputs *in; /* the leader's inputs */
    prompt *prompt;
    input_order *order;   /* in llm_state.orders */
    llm_answer **answers; /* by input: its answer in the memo; NULL: not asked yet */
    uint8_t *asked;       /* by row: whether its answer was wanted; the late guard was true */
    call_facts facts;
    double answer_field_tokens; /* llm_answer_field_tokens() */
    bool learned; /* this run added answers to `facts`, which are not in the catalog yet */
} site_run;

typedef struct llm_stage {
    const plan_stage *plan;
    int first_site;        /* index in llm_state.sites of the first of plan->nsites call sites */
    int64_t rows_in;       /* number of rows that entered the stage so far */
    int64_t rows_kept;     /* number of rows that passed the stage's filters so far */
    uint64_t tokens;       /* computed so far; an output token counts as OUTPUT_WEIGHT tokens */
    uint64_t new_inputs;   /* inputs without an answer; set by llm_rank_count_inputs() */
    double cached;         /* estimated share of the stage's answers that were known at the start */
    uint64_t inputs_asked; /* distinct inputs asked about so far, without the sample's */
    uint64_t *filter_rows; /* [plan->nfilters] number of rows that passed each filter */
    double ms;             /* time spent on the stage, in milliseconds */
    plan_actual actual;
} llm_stage;

/* ---- sending (llm_send.c) -------------------------------------------------------------------- */

/* Flags of an input of a call site. */
enum {
    INPUT_NEEDED = 1,  /* the rows that are being sent need its answer */
    INPUT_SENT = 2,    /* it was submitted, or its answer was known */
    INPUT_COUNTED = 4, /* it is counted among the distinct inputs */
    INPUT_SEEN = 8     /* set only while llm_rank_count_inputs() counts */
};

typedef struct llm_sender llm_sender;

/* What a driver does with inputs. Functions of type int return a status. */
typedef struct llm_driver {
    /* Sets x->session to the session of this engine. */
    int (*open)(llm_sender *x, llm_engine *engine, err *e);
    /* Marks the inputs of call site `at` that these rows need: llm_mark_inputs(). */
    int (*select)(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e);
    /* Whether the input, whose prompt is in x->spans, need not be submitted. */
    bool (*is_known)(llm_sender *x, int at, uint32_t input);
    /* Takes the request of an input that is not known; NULL: llm_submit(). */
    int (*submit)(llm_sender *x, const llm_request *request, err *e);
    /* Called if the input could not be submitted and the call has ON_ERROR_NULL. May be NULL. */
    void (*failed)(llm_sender *x, int at, uint32_t input, const err *reason);
    /* Runs the session until it is idle. */
    int (*drain)(llm_sender *x, err *e);
} llm_driver;

/* State of sending the inputs of all stages; each input of a call site is sent once. */
struct llm_sender {
    op *o;
    const llm_driver *driver;
    void *state;               /* of llm_count.c or llm_show.c; NULL in other drivers */
    const input_order *orders; /* by call site */
    uint8_t **marks;           /* by call site, by input: INPUT_… */
    int stage;                 /* the stage whose inputs are being sent */
    llm_session *session;
    llm_engine *engine; /* of the session */
    bool full;          /* drain is called because the queue is full: it may leave half of it */
    size_t left;        /* a result of drain: prompts that are not answered yet */
    bool exact;         /* prompts are exact although their calls blend contexts */
    bool keep;          /* keep the KV of the data, since a later stage asks about the same data */
    llm_span **spans;   /* spans of the current prompt */
    int nspans;
    bool *named;         /* by span: whether it is a value that the question names */
    size_t queued;       /* prompts submitted since a group of calls began or the queue was full */
    size_t queued_bytes; /* estimated memory of these prompts in the session */
    answer_id id;        /* scratch of is_known */
};

/* Initializes *x, with its arrays in `mem`; the rest is freed by llm_sender_close. The call sites
 * must be prepared. */
void llm_sender_open(llm_sender *x, op *o, const llm_driver *driver, const input_order *orders,
                     arena *mem);
void llm_sender_close(llm_sender *x);
/* Submits the inputs that the calls of a stage need for these rows. `done`: bit set of the stages
 * that the rows have been through. */
int llm_send_stage(llm_sender *x, int stage, uint32_t done, const int64_t *rows, int64_t count,
                   err *e);
/* Marks the inputs of these rows as needed. *inputs: the number of rows that have an input; *fresh:
 * the number of inputs marked for the first time. */
void llm_mark_inputs(llm_sender *x, int at, const int64_t *rows, int64_t count, uint64_t *inputs,
                     uint64_t *fresh);
/* Returns the number of the first row that has this input, counted from 1. */
int64_t llm_row_of_input(const llm_inputs *in, uint32_t input);

/* ---- the operator's state -------------------------------------------------------------------- */

/* What a run of the operator does; op_llm.c chooses a mode when the operator opens. */
typedef struct llm_mode {
    const llm_driver *driver;
    /* Decides which rows of the next limit batch, or of all rows, are returned. Raises
     * llm_state.decided_rows. */
    int (*decide)(op *o, err *e);
    /* calls get answers; false: they get none, and nothing is stored */
    bool answers;
    bool filters; /* filters are applied; false: all rows pass */
    bool returns; /* rows are returned to the node above */
} llm_mode;

/* Progress of limit batches and top-n rounds (llm_demand.c). */
typedef struct demand_state {
    const plan_node *limit; /* the LIMIT above */
    int64_t passed_before;  /* rows that had reached `limit` before the first batch */
    int64_t batch;          /* size of the last batch in rows */
    int64_t asked_rows;     /* number of rows asked about in all batches */
    /* by row: number of its group (rows with equal top_n.keys); NULL: no top-n */
    uint32_t *group_of;
    uint32_t ngroups;
    uint32_t *in_order; /* all rows, sorted by top_n.order; NULL: top_n has no order */
    /* by row: whether it ties with the row before it in its group; NULL: no ties */
    uint8_t *tied;
    int64_t *asked;  /* by group: number of rows asked about */
    int64_t *passed; /* by group: number of rows that passed all filters */
} demand_state;

typedef struct llm_state {
    const llm_mode *mode;
    llm_stage *stages; /* in planned order */
    int nstages;
    site_run *sites;
    int nsites;
    input_order *orders; /* by call site */
    const rowset *rows;  /* the base's rows */
    rowset *own_rows;    /* `rows` if this operator must free it, else NULL */
    arena *mem;          /* arrays by row and by input; counted in exec_ctx.space */
    arena *scratch;      /* memory for evaluating one batch's condition */
    uint8_t *dropped;    /* by row: whether a filter was not true, or no node above needs the row */
    /* number of rows of which it is known whether they pass; after llm_mode.decide these are the
     * first rows in input order */
    int64_t decided_rows;
    int64_t emitted_rows; /* number of first rows in input order that were emitted or dropped */
    int64_t ranked_rows;  /* number of rows in the last llm_rank_count_inputs() */
    demand_state demand;
    llm_sender sender;
    bool prepared;
    bool may_move;        /* stages may change places */
    uint64_t inputs_done; /* number of inputs that have an answer */
    int operators_before; /* number of stages of operators that started earlier */
    double started_s;     /* clock_seconds() at the operator's start, plus the pauses since then */
    double stage_started_s; /* the same for the running stage */
    exec_progress progress;
} llm_state;

/* ---- call sites (llm_sites.c) ---------------------------------------------------------------- */

/* Fills stages and call sites from the plan. */
void llm_sites_open(op *o);
/* Makes the inputs, prompts, layout and orders of all call sites. s->rows must be set. */
int llm_sites_prepare(op *o, err *e);
/* Returns the field order of call sites [first, end), such as "synopsis, review", and whether the
 * data come first. If the call sites differ, each is listed with its call's number. The text lives
 * as long as the statement. */
str llm_sites_order_text(op *o, int first, int end);

/* ---- late fields (llm_late_fields.c) ---------------------------------------------------------------- */

/* Returns what each field of a call site is computed from, for inputs_gather(). The inputs of earlier
 * call sites must be there. hidden: fields that are computed from answers, late or not, are as if all rows had
 * the same value. */
const late_source *llm_late_sources(op *o, const site_run *site, bool hidden);
/* Returns the expected tokens of an input's fields that are computed from answers: psm_result does not
 * count them. */
double llm_answer_field_tokens(const op *o, const site_run *site);
/* Makes the texts of the late fields of these rows, which are about to be asked. Rows whose answer is
 * NULL without a call lose their input. */
int llm_late_resolve(op *o, site_run *site, const int64_t *rows, int64_t count, err *e);
/* Gives all late values that are not known a made-up text of the expected length, so that prompts can
 * be counted or shown without answers. */
int llm_late_assume(op *o, err *e);
void llm_late_forget(op *o); /* forgets the made-up texts */

/* ---- rows (llm_rows.c) ----------------------------------------------------------------------- */

void llm_sort_rows(int64_t *rows, int64_t count); /* ascending */
/* Removes rows that a filter has dropped; returns how many are left. */
int64_t llm_drop_filtered_rows(const llm_state *s, int64_t *rows, int64_t count);
/* Of the rows 0, step, 2 * step and so on, returns those that were not dropped. */
int64_t *llm_rows_left(const llm_state *s, int64_t step, arena *mem, int64_t *count);
/* Returns all rows in the order of a call site's inputs, rows without an input first. If `order` is
 * NULL, returns them in input order. */
int64_t *llm_rows_in_order(const llm_state *s, int at, const input_order *order, arena *mem);
/* Whether rows may go through the stages in chunks: not if every change of engine between two
 * stages would close a session and lose its KV. */
bool llm_may_chunk(const op *o);
/* Returns the leader of a group whose prompts share the row and whose calls are in several stages, or
 * a call site that another one goes on from; -1: none. Rows go through these stages in chunks, in its
 * order, so that the later stages still find the KV. */
int llm_shared_prefix_site(const llm_state *s);
/* Sets *rows to the number of rows that a chunk may have so that the KV of their data stays in
 * memory until later stages have asked about the data. `at`: the result of
 * llm_shared_prefix_site(). */
int llm_rows_kept_at_once(op *o, int at, const input_order *order, int64_t *rows, err *e);
/* Copies the rows in rows[0..count) for which x is true to `out`, which may be `rows`. Sets *kept
 * to their number. `rows` is ascending. */
int llm_rows_where(op *o, const expr *x, const int64_t *rows, int64_t count, int64_t *out,
                   int64_t *kept, err *e);
void llm_mark_slots(const expr *x, bool *read); /* sets read[slot] for each column in x */
/* Fills the columns of the pipeline's output for these rows, allocated in out->mem: the base's
 * columns and the answers so far. `read` marks the columns to fill; NULL: all. */
int llm_rows_columns(op *o, const bool *read, const int64_t *rows, int count, batch *out, err *e);

/* ---- which stage next (llm_rank.c) ----------------------------------------------------------- */

/* Returns the stage to run next on rows that have been through the stages `done`; -1: none.
 * `deciding`: considers only stages that remove rows, and stages that these depend on. */
int llm_rank_next(const llm_state *s, uint32_t done, bool deciding);
/* Counts, for llm_rank_next(), the inputs that have no answer yet. The rows have been through the
 * stages `done`. */
void llm_rank_count_inputs(llm_state *s, uint32_t done, const int64_t *rows, int64_t count);
/* Whether two stages that remove rows may change places. */
bool llm_order_is_flexible(const llm_state *s);
/* If `stage` comes next although another stage was planned after `done`, records the reason for
 * EXPLAIN. */
void llm_rank_explain_swap(op *o, uint32_t done, int stage, int64_t after_rows);
/* Returns the share of all rows that is expected to reach a stage. */
double llm_rank_reaching(const llm_state *s, int stage);

/* ---- through the stages (llm_run.c, llm_demand.c) -------------------------------------------- */

/* Sends rows[0..*count) (ascending) through the stages that are not in *done. Rows that pass stay
 * in `rows`; others are dropped. `deciding`: stops when no stage that removes rows is left. */
int llm_run_stages(op *o, uint32_t *done, bool deciding, int64_t *rows, int64_t *count, err *e);
/* Sends all rows through the stages. */
int llm_run_all(op *o, err *e);
/* Sends the next limit batch through the stages, or all top-n rounds, or all rows. */
int llm_run_next(op *o, err *e);
/* Sends the prompts of a stage about rows[0..count) (llm_send_stage), and adds work and time to the
 * stage's figures. */
int llm_run_sender(op *o, int stage, uint32_t done, const int64_t *rows, int64_t count, err *e);
/* Asks about a sample of the rows in every stage, without applying filters. */
int llm_run_sample(op *o, err *e);
/* Called before the call sites are prepared: drops rows without a join partner, and finds the
 * groups and the order of top-n. */
int llm_demand_prepare(op *o, err *e);
/* Runs the next limit batch: rows in input order. */
int llm_run_limit_batch(op *o, err *e);
/* Runs all top-n rounds. */
int llm_run_top_n(op *o, err *e);

/* ---- calibration (llm_calibrate.c, llm_decide.c) --------------------------------------------- */

/* Finds the priors of all calls that are calibrated, asking about a sample of their inputs if no
 * record has them. The call sites must be prepared and the sender open. */
int llm_calibrate(op *o, err *e);
/* Returns the call's priors; NULL: its answers are not calibrated. */
const double *llm_priors(const op *o, const llm_call *call);
/* Returns the answer as its call's priors decide it; `a` itself if the call has none. The result's
 * probabilities may be in probs[call->nliterals]. */
llm_answer llm_decided(const op *o, const site_run *site, const llm_answer *a, double *probs);
/* Returns the priors of call sites [first, end), and how many answers they changed, for EXPLAIN
 * ANALYZE; empty if none is calibrated. The text lives as long as the statement. */
str llm_calibration_text(op *o, int first, int end);
/* Returns how many answers the priors changed. */
uint32_t llm_count_calibrated(const op *o, const site_run *site);

/* ---- asking (llm_ask.c), the engine's steps (llm_steps.c) ------------------------------------ */

/* The functions of the drivers ask_driver and sample_driver (op_llm.c). */
int llm_ask_open(llm_sender *x, llm_engine *engine, err *e);
int llm_ask_select(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e);
int llm_ask_select_sample(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e);
bool llm_ask_is_known(llm_sender *x, int at, uint32_t input);
void llm_ask_failed(llm_sender *x, int at, uint32_t input, const err *reason);
int llm_ask_drain(llm_sender *x, err *e); /* llm_steps.c */
/* Keeps what the engine returned. Fails if the request failed and the call has no ON ERROR. */
int llm_ask_take_event(op *o, const llm_event *event, err *e);
/* Sets *e to the reason `why` an input was not answered, with the call and the row. */
int llm_complain(const op *o, int at, uint32_t input, const err *why, err *e);
/* Estimates llm_stage.cached from some inputs, if the order of stages may depend on it. */
void llm_estimate_cached_share(op *o);
/* Stores what was learned about the calls' answers. */
void llm_ask_remember(op *o);
/* Returns the cache that stores the answers; NULL: answers are not stored. */
cache *llm_answers_cache(const op *o);
/* Publishes the operator's progress for stmt_progress. */
void llm_publish(op *o, const char *phase);

/* ---- about the answers (llm_notes.c) --------------------------------------------------------- */

/* Sets exec_summary.answers, and adds notices: answers that max_tokens ended, prompts from which
 * fields were left out, calls that failed, answers that are nearly all the same, rows in which the
 * fields asked about are NULL. */
void llm_note_answers(op *o);

/* ---- counting (llm_count.c) ------------------------------------------------------------------ */

/* Counts what each stage costs under every strategy, and sets `tokens` and `bound` of
 * actual[nstages]. Late values must be known or assumed. runs[COUNT_STRATEGIES] has the sessions and prompts of the operators counted
 * earlier. */
int llm_count_stages(op *o, count_run *runs, plan_actual *actual, err *e);
/* Sets *out to run's session of this engine, which computes nothing. */
int count_run_open(count_run *run, const exec_ctx *ctx, llm_engine *engine, llm_reuse reuse,
                   llm_session **out, err *e);
/* Whether the prompt in x->spans was asked before. If not, records it as asked. */
bool count_run_knows(count_run *run, llm_sender *x, int at, uint32_t input);

/* ---- showing (llm_show.c) -------------------------------------------------------------------- */

extern const llm_driver llm_show_driver;
/* Collects the prompts that a run would send about the rows that it would take next, if all rows
 * passed all filters. Late values must be known or assumed. */
int llm_show_rows(op *o, err *e);

#endif
