/*
 * op_llm_int.h - the LLM operator: its state, and what its files do for each other.
 *
 * One operator runs a PLAN_LLM_PIPELINE (planner.h): stages of LLM calls, and the filters on their
 * answers.
 *
 *      rows of the base, all of them
 *        |
 *        |   per call site: distinct inputs (llm_inputs.c), prompts (prompt.c), instruction or
 *        |   data first (llm_layout.c), order of fields and of inputs (llm_order.c)
 *        v
 *   +-> some of the rows: all, a chunk, a limit batch, a top-n round
 *   |    |
 *   |    v
 *   |   the stage that comes next (llm_rank.c)  <-------------------------+
 *   |    |                                                                |
 *   |    |   the inputs that the rows need, each once (llm_send.c)        |
 *   |    |     driver "ask":   memo, cache, engine -> answers (llm_ask.c) |
 *   |    |     driver "count": a prefix tree, no model (llm_count.c)      |
 *   |    v                                                                |
 *   |   the rows that pass the stage's filters  -- a stage left? ---------+
 *   |    |
 *   +----+-- rows left?
 *        v
 *      the rows that passed all stages, in the base's order, with the answers' columns
 *
 * op_llm.c    the operator protocol, and the modes: what a run does with rows and inputs.
 * llm_sites.c prepares the call sites once all rows are read. What a prompt says follows from all
 *             rows of the base, whatever the filters keep; so an answer stored by one statement is
 *             found by the next.
 * llm_run.c   has rows go through the stages: all at once, or in chunks so that filters may change
 *             places, or so that KV is reused before it is evicted.
 * llm_demand.c runs limit batches and top-n rounds instead: fewer rows, where the nodes above need
 *             only some of those that pass (plan_demand).
 * llm_rank.c  chooses the next stage from what the stages have cost and kept so far.
 * llm_rows.c  subsets of the base's rows: their order, their columns, conditions over them.
 * llm_send.c  walks the inputs of a stage in the order in which they share most, and submits them.
 * llm_ask.c   the driver that wants answers; llm_steps.c runs the engine for it, with progress,
 *             pauses, and limits on tokens and time.
 * llm_count.c the driver that only counts tokens, for EXPLAIN (TOKENS) and the live view.
 * llm_sample.c asks about a few rows before the plan is final.
 *
 * Shared by the operators of a statement: llm_runtime.c (engines, session, memo, examples, learned
 * facts), llm_answers.c (the memo, stored answers), llm_kv.c (KV blocks on disk).
 */
#ifndef KVASIR_OP_LLM_INT_H
#define KVASIR_OP_LLM_INT_H

#include "watch_int.h"

/* An output token costs as much as this many computed ones, by the nominal rates
 * (planner/cost/cost.c). */
static const double OUTPUT_WEIGHT = 4;

/* A call site while it runs. */
typedef struct site_run {
    const plan_call_site *plan;
    struct site_run *leader; /* the first site of its group (plan_call_site.group); maybe itself */
    int stage;
    llm_engine *engine;
    llm_inputs *in; /* the leader's */
    prompt *prompt;
    input_order *order;   /* in llm_state.orders */
    llm_answer **answers; /* by input, in the memo; NULL: not asked yet */
    uint8_t *guarded;     /* by row: a late guard was true; NULL: no late guard */
    call_facts facts;
    bool learned; /* `facts` has more than is stored */
} site_run;

typedef struct llm_stage {
    const plan_stage *plan;
    int first_site;             /* of plan->nsites in llm_state.sites */
    int64_t rows_in, rows_kept; /* so far */
    uint64_t tokens;            /* computed so far, an output token as OUTPUT_WEIGHT */
    uint64_t new_inputs;        /* without an answer: llm_rank_count_inputs() */
    double cached; /* estimated share of its answers that were in the cache or memo at the start */
    uint64_t inputs_asked; /* distinct ones so far, without the sample's */
    uint64_t *filter_rows; /* [plan->nfilters] rows that passed */
    double ms;
    plan_actual actual;
} llm_stage;

/* ---- sending (llm_send.c) -------------------------------------------------------------------- */

/* Bits about an input of a call site. */
enum { INPUT_NEEDED = 1, INPUT_SENT = 2, INPUT_COUNTED = 4, INPUT_SEEN = 8 };

typedef struct llm_sender llm_sender;

/* What happens to inputs. All functions return a status, if not said otherwise. */
typedef struct llm_driver {
    /* Sets x->session to the session of this engine. */
    int (*open)(llm_sender *x, llm_engine *engine, err *e);
    /* Marks the inputs of call site `at` that these rows need: llm_mark_inputs(). */
    int (*select)(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e);
    /* Whether the input, whose prompt is in x->spans, need not be submitted. */
    bool (*is_known)(llm_sender *x, int at, uint32_t input);
    /* The input could not be submitted, and llm_on_error = 'null'; NULL: nothing to do. */
    void (*failed)(llm_sender *x, int at, uint32_t input, const err *reason);
    /* Runs the session until it is idle. */
    int (*drain)(llm_sender *x, err *e);
} llm_driver;

/* One walk over the inputs of all stages, each input of a call site once. */
struct llm_sender {
    op *o;
    const llm_driver *driver;
    void *counting;            /* llm_count.c's state; NULL in other drivers */
    const input_order *orders; /* by call site */
    uint8_t **marks;           /* by call site, by input: INPUT_… */
    int stage;                 /* the one being sent */
    llm_session *session;
    bool keep;        /* a later stage asks about the same data: its KV is kept */
    llm_span **spans; /* the prompt at hand */
    int nspans;
    bool *named;                 /* by span: a value that the question names */
    size_t queued, queued_bytes; /* submitted since the session was last idle */
    answer_id id;                /* scratch of is_known */
};

/* Lives in `mem`, but for what llm_sender_close frees. The call sites are prepared. */
void llm_sender_open(llm_sender *x, op *o, const llm_driver *driver, const input_order *orders,
                     arena *mem);
void llm_sender_close(llm_sender *x);
/* Sends what the calls of a stage need for these rows; `done`: stages that the rows have been
 * through. */
int llm_send_stage(llm_sender *x, int stage, uint32_t done, const int64_t *rows, int64_t count,
                   err *e);
/* Marks the inputs of these rows as needed. *inputs: how many rows have one; *fresh: how many of
 * the inputs are marked for the first time. */
void llm_mark_inputs(llm_sender *x, int at, const int64_t *rows, int64_t count, uint64_t *inputs,
                     uint64_t *fresh);

/* ---- the operator's state -------------------------------------------------------------------- */

/* What a run of the operator is for; op_llm.c chooses one when it opens. */
typedef struct llm_mode {
    const llm_driver *driver;
    int (*decide)(op *o, err *e); /* some more rows go through the stages */
    bool answers;                 /* else calls have no answers, and nothing is stored */
    bool filters;                 /* else all rows pass */
    bool returns;                 /* rows to the node above */
} llm_mode;

/* Progress of limit batches and top-n rounds (llm_demand.c). */
typedef struct demand_state {
    const plan_node *limit; /* the LIMIT above */
    int64_t passed_before;  /* rows that had reached it before the first batch */
    int64_t batch;          /* size of the last batch in rows */
    int64_t asked_rows;     /* in all batches */
    uint32_t *group_of;     /* by row: number of its distinct top_n.keys; NULL: no top-n */
    uint32_t ngroups;
    uint32_t *in_order;      /* rows by top_n.order; NULL: input order */
    uint8_t *tied;           /* by row: ties with the one before it in its group; NULL: no ties */
    int64_t *asked, *passed; /* rows by group */
} demand_state;

typedef struct llm_state {
    const llm_mode *mode;
    llm_stage *stages; /* in planned order */
    int nstages;
    site_run *sites;
    int nsites;
    input_order *orders; /* by call site */
    const rowset *rows;  /* of the base */
    rowset *own_rows;    /* the same where nothing else keeps them, else NULL */
    arena *mem;          /* what is kept by row and by input; counted */
    arena *scratch;      /* of one batch's condition */
    uint8_t *dropped;    /* by row: a filter was not true, or nothing above needs it */
    int64_t decided_rows, emitted_rows; /* the first so many in input order */
    int64_t ranked_rows;                /* how many llm_rank_count_inputs() was called with */
    demand_state demand;
    llm_sender sender;
    bool prepared;
    bool may_move; /* stages may change places */
    uint64_t inputs_done;
    int operators_before;              /* stages of operators that started earlier */
    double started_s, stage_started_s; /* clocks without pauses */
    exec_progress progress;
} llm_state;

/* ---- call sites (llm_sites.c) ---------------------------------------------------------------- */

/* Fills stages and call sites from the plan. */
void llm_sites_open(op *o);
/* Inputs, prompts, layout and orders of all call sites; s->rows is set. */
int llm_sites_prepare(op *o, err *e);
/* "synopsis, review", with each call's number where call sites [first, end) differ, and whether the
 * data come first; lives as long as the statement. */
str llm_sites_order_text(op *o, int first, int end);

/* ---- rows (llm_rows.c) ----------------------------------------------------------------------- */

void llm_sort_rows(int64_t *rows, int64_t count); /* ascending */
/* Removes rows that a filter has dropped; returns how many are left. */
int64_t llm_drop_filtered_rows(const llm_state *s, int64_t *rows, int64_t count);
/* Every step-th row that was not dropped, ascending. */
int64_t *llm_rows_left(const llm_state *s, int64_t step, arena *mem, int64_t *count);
/* All rows in the order of a call site's inputs, rows without one first; order NULL: input order. */
int64_t *llm_rows_in_order(const llm_state *s, int at, const input_order *order, arena *mem);
/* Whether one engine answers all calls. Else rows do not go through the stages in chunks: a session
 * serves one engine, and its KV would be lost at every change. */
bool llm_has_one_engine(const llm_state *s);
/* The leader of a group that is asked data first in several stages, so that rows go through these in
 * chunks of its order and the data's KV is still there for the later ones; -1: none. */
int llm_shared_prefix_site(const llm_state *s);
/* How many rows' data fit into the KV memory until later stages have asked about them. */
int llm_rows_kept_at_once(op *o, int at, const input_order *order, int64_t *rows, err *e);
/* The rows of rows[0..count), ascending, for which x is true: into `out` (may be `rows`). */
int llm_rows_where(op *o, const expr *x, const int64_t *rows, int64_t count, int64_t *out,
                   int64_t *kept, err *e);
/* The columns of the pipeline's output over these rows, in out->mem: the base's and the answers so
 * far; only those marked in `read`, or all (NULL). */
int llm_rows_columns(op *o, const bool *read, const int64_t *rows, int count, batch *out, err *e);

/* ---- which stage next (llm_rank.c) ----------------------------------------------------------- */

/* The stage to run on rows that have been through `done`; -1: none. `deciding`: only stages that
 * remove rows, and those that such stages depend on. */
int llm_rank_next(const llm_state *s, uint32_t done, bool deciding);
/* Counts for llm_rank_next() the inputs that have no answer yet, of rows that have been through
 * `done`. */
void llm_rank_count_inputs(llm_state *s, uint32_t done, const int64_t *rows, int64_t count);
/* Whether two stages that remove rows may change places. */
bool llm_order_is_flexible(const llm_state *s);
/* If stage `stage` comes next though another was planned after `done`, records why, for EXPLAIN. */
void llm_rank_explain_swap(op *o, uint32_t done, int stage, int64_t after_rows);
/* The share of all rows that is expected to reach a stage. */
double llm_rank_reaching(const llm_state *s, int stage);

/* ---- through the stages (llm_run.c, llm_demand.c) -------------------------------------------- */

/* Has rows[0..*count), ascending, go through the stages that are not in *done; those that pass stay
 * in `rows`, others are dropped. `deciding`: only as long as some stages remove rows. */
int llm_run_stages(op *o, uint32_t *done, bool deciding, int64_t *rows, int64_t *count, err *e);
/* All rows. */
int llm_run_all(op *o, err *e);
/* A sample of the rows meets every stage, whatever its conditions. */
int llm_run_sample(op *o, err *e);
/* Before call sites are prepared: drops rows without partner, finds groups and order of top-n. */
int llm_demand_prepare(op *o, err *e);
/* The next limit batch: rows in input order. */
int llm_run_limit_batch(op *o, err *e);
/* All top-n rounds. */
int llm_run_top_n(op *o, err *e);

/* ---- asking (llm_ask.c), the engine's steps (llm_steps.c) ------------------------------------ */

/* The driver's functions. */
int llm_ask_open(llm_sender *x, llm_engine *engine, err *e);
int llm_ask_select(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e);
int llm_ask_select_sample(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e);
bool llm_ask_is_known(llm_sender *x, int at, uint32_t input);
void llm_ask_failed(llm_sender *x, int at, uint32_t input, const err *reason);
int llm_ask_drain(llm_sender *x, err *e); /* llm_steps.c */
/* Keeps an answer that the engine returned. */
void llm_ask_take_event(op *o, const llm_event *event);
/* Estimates llm_stage.cached from some inputs, where the order of stages may depend on it. */
void llm_estimate_cached_share(op *o);
/* Stores what was learned about the calls' answers. */
void llm_ask_remember(op *o);
/* Notices about answers that max_tokens ended, prompts that left fields out, calls that failed. */
void llm_ask_notices(op *o);
/* Where answers are stored; NULL: nowhere. */
cache *llm_answers_cache(const op *o);
/* Publishes progress. */
void llm_publish(op *o, const char *phase);

/* ---- counting (llm_count.c) ------------------------------------------------------------------ */

/* What each stage costs under every strategy, after what `runs` have counted already: into the
 * tokens and bounds of actual[nstages]. */
int llm_count_stages(op *o, count_run *runs, plan_actual *actual, err *e);

#endif
