/*
 * op_llm_int.h - the LLM operator's state: private to op_llm.c, op_build.c and the llm_*.c beside
 * it.
 *
 * One operator runs a pipeline (planner.h: PLAN_LLM_PIPELINE) of stages: calls that are asked
 * together, and the filters over their answers. No call reads another's answer in its fields, so the inputs of all are known once the base's rows are:
 * layout and field orders are solved over these, whatever the filters keep, and stages may run in
 * any order that their guards and conditions allow.
 *
 *   base's rows --> chunk of rows --> stage --> rows that pass --> stage --> … --> rows in input
 *   order, with the answers' columns
 */
#ifndef KVASIR_OP_LLM_INT_H
#define KVASIR_OP_LLM_INT_H

#include "watch_int.h"

/* One use of a node while it runs. */
typedef struct use_run {
    const plan_call_site *use;
    /* the first use of its group, which asks about
     * the same fields of the same rows: maybe itself */
    struct use_run *leader;
    int stage;
    llm_engine *engine;
    llm_inputs *in;
    prompt *prompt;
    input_order order;
    uint32_t *rank;       /* by input: its place in order.psm.row_order */
    llm_answer **answers; /* by input, in the memo; NULL: not asked yet */
    uint8_t *state;       /* by input: INPUT_… bits */
    uint8_t *guarded;     /* by row, with a late guard: the guard was true */
    call_facts facts;
    bool learned; /* `facts` are more than the record's */
} use_run;

enum { INPUT_WANTED = 1, INPUT_QUEUED = 2, INPUT_COUNTED = 4, INPUT_MET = 8 };

/* An output token weighs as many computed ones as the nominal rates say (planner/cost/cost.c). */
static const double OUTPUT_WEIGHT = 4;

typedef struct llm_stage {
    const plan_stage *plan;
    int first_use;              /* of plan->nsites */
    int64_t rows_in, rows_kept; /* so far */
    uint64_t tokens;            /* computed for it, an output token as OUTPUT_WEIGHT */
    uint64_t new_inputs;        /* without an answer, of the rows that llm_rank_look() saw last */
    double known; /* the share of its answers that are stored or in the memo already, by a sample */
    uint64_t *filter_rows; /* [plan->nfilters] rows that passed */
    uint64_t inputs_asked; /* distinct ones so far, not those of a sample */
    double ms;
    plan_actual actual;
} llm_stage;

typedef struct llm_state {
    llm_stage *stages; /* as planned: from below */
    int nstages;
    use_run *uses;
    int nuses;
    const rowset *rows;
    rowset *own_rows; /* where they had not been read ahead */
    arena *mem;       /* what is kept by row and by input; counted */
    uint8_t *dropped; /* by row: a filter was not true */
    int64_t decided_rows, emitted_rows;
    int64_t looked_rows; /* that llm_rank_look() saw last */
    /* llm_waves.c: rows asked in waves so far, the last wave's; the LIMIT above, and the rows that
     * had reached it before the first; by row the group of those equal in node->llm.by, NULL where
     * that does not matter; the rows in node->llm.order, NULL where they stay as they came, and by
     * row whether it ties with the one before it in its group; by group the rows that were asked
     * about, and that passed */
    int64_t asked_rows, wave, passed_before;
    const plan_node *limit;
    uint32_t *group_of, ngroups, *in_order;
    uint8_t *tied;
    int64_t *asked, *passed;
    bool prepared;
    bool may_move;  /* stages may change places */
    arena *scratch; /* of one look at a guard or condition */
    uint64_t inputs_done;
    int operators_before;
    double started_s;
    exec_progress progress;
} llm_state;

/* ---- stages (llm_stages.c) ------------------------------------------------------------------- */

psm_strategy llm_strategy_of(const settings *s); /* as SET psm says */
/* Fills stages and uses from the plan. */
void llm_stages_open(op *o);
/* The rows of rows[0..count), ascending, for which x is true:
 * into `out` (may be `rows`); answers so far are columns. */
int llm_rows_where(op *o, const expr *x, const int64_t *rows, int64_t count, int64_t *out,
                   int64_t *kept, err *e);
/* The columns of the pipeline's output over these rows, in out->mem: the base's and the answers so far;
 * only those marked in `read`, or all (NULL). */
int llm_rows_columns(op *o, const bool *read, const int64_t *rows, int count, batch *out, err *e);

/* ---- stage by stage (op_llm.c), in waves (llm_waves.c) --------------------------------------- */

/* Has rows[0..*count), ascending, go through the stages that are not in *done; those that pass stay
 * in `rows`, others are dropped. `deciding`: only as long as some stages remove rows. */
int llm_run_stages(op *o, uint32_t *done, bool deciding, int64_t *rows, int64_t *count, err *e);
/* The first use of a group whose data stand first and are asked about in several stages, so that
 * rows go through these in chunks of its order whose KV is kept meanwhile; -1: there is none. */
int llm_kept_use(const llm_state *s);
bool llm_has_one_engine(const llm_state *s); /* else there are no chunks */
/* How many rows' data the KV memory keeps until later stages have asked about them. */
int llm_rows_kept_at_once(op *o, int use, const input_order *order, int64_t *rows, err *e);
/* Keeps those of rows[0..count) that were not dropped; returns how many. */
int64_t llm_rows_wanted(const llm_state *s, int64_t *rows, int64_t count);
/* All rows as a use's inputs are ranked, rows that it does not ask about first; rank NULL: in input
 * order. */
int64_t *llm_rows_in_order(const llm_state *s, int use, const uint32_t *rank, arena *mem);
void llm_sort_rows(int64_t *rows, int64_t count); /* ascending */
/* Once the base's rows are there: rows that are of no use, groups of which a few are enough. */
int llm_waves_prepare(op *o, err *e);
/* The next rows in input order, as many as the LIMIT above should need. */
int llm_run_wave(op *o, err *e);
/* All rows, or of each group those until enough have passed. */
int llm_run_rounds(op *o, err *e);

/* ---- which stage next (llm_rank.c) ----------------------------------------------------------- */

/* The stage to run on rows that have been through `done`; -1: there is none. `deciding`: only
 * stages that remove rows, or that such wait for. */
int llm_rank_next(const llm_state *s, uint32_t done, bool deciding);
/* Has llm_rank_next() choose for these rows, which have been through `done`. */
void llm_rank_look(llm_state *s, uint32_t done, const int64_t *rows, int64_t count);
/* Whether two stages that remove rows could change places and may. */
bool llm_rank_free(const llm_state *s);
/* Notes in the moved stage that its place is not the
 * planned one; `done` have run, `stage` comes next. */
void llm_rank_note(op *o, uint32_t done, int stage, int64_t after_rows);
/* Rows that are expected to reach a stage, as a share of all. */
double llm_rank_share(const llm_state *s, int stage);

/* ---- asking (llm_ask.c) ---------------------------------------------------------------------- */

/* Finds out which share of each stage's answers is known
 * already, where that may decide which comes first. */
void llm_ask_known(op *o);
/* Has the model answer what a stage's calls need for
 * these rows; `done`: stages that have been through them. */
int llm_ask_stage(op *o, int stage, uint32_t done, const int64_t *rows, int64_t count, err *e);
/* Keeps what was learned about the calls' answers. */
void llm_ask_remember(op *o);
/* Tells of answers that max_tokens ended, and of prompts that had to leave fields out. */
void llm_ask_tell(op *o);

/* What goes with every input that is sent to a session together with others. */
typedef struct llm_sending {
    llm_span **spans;
    bool *named; /* of the spans: values that the question names */
    bool keep;   /* stages still to come ask about the same data: its KV is kept for them */
    size_t queued, queued_bytes; /* that the engine holds until they are answered */
} llm_sending;
llm_sending llm_sending_new(const use_run *u, bool keep, arena *mem);
/* Prompts that were sent wait in memory: beyond what it has room for, they are answered first. */
void llm_queue_add(llm_sending *how, int nspans);
bool llm_queue_is_full(const exec_ctx *ctx, const llm_sending *how);
/* The request for an input, whose spans are in `how`; lives as long as how, the settings and *own. */
llm_request llm_ask_request(op *o, int use, uint32_t input, const llm_sending *how, int nspans,
                            str *own);
/* Whether use i goes through the inputs together with use `first` of its stage: it is of its group,
 * and the data stand first. */
bool llm_goes_along(const llm_state *s, int first, int i);
bool llm_went_along(const llm_state *s, int use); /* with an earlier one */
/* Whether calls of stages not `done` ask about the same data. */
bool llm_asked_again(const llm_state *s, const use_run *u, uint32_t done);
/* Whether no earlier use of its stage has its engine: those of one engine are asked together. */
bool llm_engine_is_first(const llm_state *s, int use);

typedef struct placed_input {
    uint32_t rank, input;
} placed_input;
/* The inputs of these rows, each once, by rank. */
placed_input *llm_inputs_in_order(const llm_inputs *in, const uint32_t *rank, const int64_t *rows,
                                  int64_t count, arena *mem, size_t *n);

/* ---- counting (llm_count.c) ------------------------------------------------------------------ */

/* What each stage costs under every strategy, beside what `runs` have counted already: into the
 * tokens and bounds of actual[nstages]. */
int llm_count_stages(op *o, count_run *runs, plan_actual *actual, err *e);
/* Whether answers are wanted at all: counting and warming leave every input unanswered. */
bool llm_answers_wanted(const exec_ctx *ctx);
/* Where answers are kept; NULL: nowhere. */
cache *llm_answers_cache(const exec_ctx *ctx);
/* Whether a call is worth a sample: an answer of few
 * kinds whose shares nobody knows (llm_sample.c). */
bool llm_sample_wants(exec_ctx *ctx, const plan_call_site *u);
/* Publishes progress. */
void llm_publish(op *o, const char *phase);

#endif
