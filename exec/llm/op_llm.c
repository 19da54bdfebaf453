/*
 * op_llm.c - the LLM operator: reads all rows of its pipeline's base, sends them through the
 * stages, and returns the rows that passed.
 *
 * Invariant: the rows come out in the order of the base, whatever the order of prompts and stages.
 * A table of modes says what a run is for: answering, warming KV (WARM), asking about a sample of
 * the rows before the plan is final, counting tokens (EXPLAIN (TOKENS)), or showing prompts (EXPLAIN
 * (PROMPT) and (TREE)). op_llm_int.h shows how the files fit together.
 */
#include <math.h>

#include "op_llm_int.h"
#include "ops/op_int.h"
#include "rows/rowset_int.h"

/* ---- modes ----------------------------------------------------------------------------------- */

static int answer_rows(op *o, err *e) {
    llm_state *s = o->state;
    int status = 0;
    if (s->decided_rows == 0) {
        llm_estimate_cached_share(o);
        status = s->mode->answers ? llm_calibrate(o, e) : 0;
    }
    if (status == 0)
        status = llm_run_next(o, e);
    if (status == 0)
        llm_ask_remember(o);
    return status;
}

static int answer_sample(op *o, err *e) {
    int status = llm_run_sample(o, e);
    if (status == 0)
        llm_ask_remember(o);
    return status;
}

static int count_rows(op *o, err *e) {
    llm_state *s = o->state;
    plan_actual *counted = ARENA_ARRAY(o->mem, plan_actual, s->nstages + 1);
    s->decided_rows = rowset_rows(s->rows);
    for (int i = 0; i < s->nstages; i++) {
        counted[i] = s->stages[i].actual;
        counted[i].rows = (uint64_t)s->decided_rows;
    }
    int status = llm_late_assume(o, e);
    if (status == 0)
        status = llm_count_stages(o, o->ctx->llm->counts, counted, e);
    for (int i = 0; i < s->nstages; i++)
        s->stages[i].actual = counted[i];
    return status;
}

static int show_rows(op *o, err *e) {
    int status = llm_late_assume(o, e);
    return status ? status : llm_show_rows(o, e);
}

static const llm_driver ask_driver = {.open = llm_ask_open,
                                      .select = llm_ask_select,
                                      .is_known = llm_ask_is_known,
                                      .failed = llm_ask_failed,
                                      .drain = llm_ask_drain};
static const llm_driver sample_driver = {.open = llm_ask_open,
                                         .select = llm_ask_select_sample,
                                         .is_known = llm_ask_is_known,
                                         .failed = llm_ask_failed,
                                         .drain = llm_ask_drain};

static const llm_mode *mode_of(const exec_ctx *ctx) {
    static const llm_mode answer = {.driver = &ask_driver,
                                    .decide = answer_rows,
                                    .answers = true,
                                    .filters = true,
                                    .returns = true},
                          warm = {.driver = &ask_driver,
                                  .decide = answer_rows,
                                  .filters = true,
                                  .returns = true},
                          sample = {.driver = &sample_driver,
                                    .decide = answer_sample,
                                    .answers = true},
                          count = {.decide = count_rows, .returns = true},
                          show = {.driver = &llm_show_driver, .decide = show_rows, .returns = true};
    if (ctx->count_only)
        return ctx->show == SHOW_NOTHING ? &count : &show;
    if (ctx->llm->sample > 0)
        return &sample;
    return calls_are_answered(ctx) ? &answer : &warm;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int prepare(op *o, err *e) {
    llm_state *s = o->state;
    s->started_s = clock_seconds();
    llm_publish(o, "reading");
    int status = op_rows(o->left, &o->memory, &s->rows, &s->own_rows, e);
    llm_publish(o, "ordering");
    if (status == 0) {
        s->dropped = ARENA_ARRAY(s->mem, uint8_t, rowset_rows(s->rows) + 1);
        status = llm_demand_prepare(o, e);
    }
    if (status == 0)
        status = llm_sites_prepare(o, e);
    if (status == 0) {
        llm_sender_open(&s->sender, o, s->mode->driver, s->orders, s->mem);
        utf8_copy(s->progress.field_order, sizeof s->progress.field_order,
                  llm_sites_order_text(o, 0, s->nsites));
        s->progress.prefill_tok_s = llm_engine_info(s->sites[0].engine)->prefill_tok_s;
    }
    s->prepared = status == 0;
    s->operators_before = o->ctx->llm->operators_started;
    o->ctx->llm->operators_started += s->mode->returns ? s->nstages : 0;
    s->progress.operators = watch_operators(o->ctx->plan->root);
    return status;
}

/* Finds the next rows that are decided and not dropped, at most a batch. Returns their number. */
static int next_rows(llm_state *s, int64_t *rows) {
    int n = 0;
    for (; s->emitted_rows < s->decided_rows && n < BATCH_ROWS; s->emitted_rows++)
        if (!s->dropped[s->emitted_rows])
            rows[n++] = s->emitted_rows;
    return n;
}

static int emit(op *o, const int64_t *rows, int count, batch **out, err *e) {
    arena_reset(o->pass);
    o->out = (batch){.rows = count, .ncols = o->node->ncols, .mem = o->pass};
    o->out.cols = ARENA_ARRAY(o->pass, column, o->node->ncols + 1);
    *out = &o->out;
    return llm_rows_columns(o, NULL, rows, count, &o->out, e);
}

static int llm_open(op *o, err *e) {
    llm_state *s = o->state;
    (void)e;
    s->scratch = arena_new();
    s->mem = arena_new_in(o->ctx->space);
    s->mode = mode_of(o->ctx);
    llm_sites_open(o);
    return 0;
}

static int llm_next(op *o, batch **out, err *e) {
    llm_state *s = o->state;
    int64_t rows[BATCH_ROWS];
    int count = 0, status = s->prepared ? 0 : prepare(o, e);
    *out = NULL;
    while (status == 0 && (count = next_rows(s, rows)) == 0 &&
           s->decided_rows < rowset_rows(s->rows))
        status = s->mode->decide(o, e);
    if (status || count == 0 || !s->mode->returns)
        return status;
    return emit(o, rows, count, out, e);
}

/* Reports the figures of each line of EXPLAIN. The top line shows what the operator as a whole
 * did. */
static void report_stages(op *o) {
    llm_state *s = o->state;
    plan_actual top = {.rows = o->actual.rows, .ms = op_own_ms(o), .idle = !o->asked, .bound = NAN};
    bool filters = s->mode->filters;
    for (int i = 0; i < s->nstages; i++)
        top.ms -= s->stages[i].ms;
    top.ms = BASE_MAX(top.ms, 0);
    for (int i = 0; i < s->nstages; i++) {
        llm_stage *t = &s->stages[i];
        bool is_top = i + 1 == s->nstages && (!filters || t->plan->nfilters == 0);
        t->actual.ms = t->ms;
        if (s->prepared && s->mode->answers)
            t->actual.calibrated =
                llm_calibration_text(o, t->first_site, t->first_site + t->plan->nsites);
        if (is_top) {
            t->actual.rows = top.rows;
            t->actual.ms += top.ms;
            t->actual.idle = top.idle;
        }
        op_report(o->ctx, t->plan->number, &t->actual);
        for (int k = 0; k < t->plan->nfilters && filters; k++) {
            is_top = t->plan->filter_numbers[k] == o->node->number;
            op_report(o->ctx, t->plan->filter_numbers[k],
                      is_top ? &top : &(plan_actual){.rows = t->filter_rows[k], .bound = NAN});
        }
    }
}

static void llm_close(op *o) {
    llm_state *s = o->state;
    if (o->ctx->llm && s->prepared) {
        llm_note_answers(o);
        runtime_figures(o->ctx->llm, &o->ctx->counts.summary.llm);
        runtime_memory(o->ctx->llm, &o->ctx->counts.summary.memory);
        watch_details(o->ctx, &s->progress, true);
        llm_publish(o, "done");
    }
    if (o->ctx->counts.actual)
        report_stages(o);
    /* Answers are written in the background; the next statement must find them. */
    if (s->progress.answers_kept > 0)
        cache_flush(llm_answers_cache(o));
    llm_sender_close(&s->sender);
    for (int i = 0; i < s->nsites; i++)
        prompt_free(s->sites[i].prompt);
    rowset_free(s->own_rows);
    arena_free(s->scratch);
    arena_free(s->mem);
}

const op_class op_llm = {.name = "LLM",
                         .state_bytes = sizeof(llm_state),
                         .open = llm_open,
                         .next = llm_next,
                         .close = llm_close,
                         .reports = true};
