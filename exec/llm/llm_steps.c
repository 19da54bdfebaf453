/*
 * llm_steps.c - runs the engine until all submitted prompts are answered: its steps, and between
 * the steps progress, pauses, limits on tokens and time, and the live view's comparison of
 * strategies.
 */
#include <math.h>
#include <string.h>

#include "op_llm_int.h"

enum { EVENTS_AT_ONCE = 64 };

/* ---- progress -------------------------------------------------------------------------------- */

/* Returns the number of inputs asked about so far, plus those still expected. */
static uint64_t expected_inputs(const llm_state *s) {
    double total = 0;
    for (int i = 0; i < s->nstages && s->prepared; i++) {
        double share = llm_rank_reaching(s, i), inputs = 0;
        for (int k = 0; k < s->stages[i].plan->nsites; k++)
            inputs += s->sites[s->stages[i].first_site + k].in->count;
        bool over = s->decided_rows == rowset_rows(s->rows);
        double asked = (double)s->stages[i].inputs_asked;
        total += over ? asked : BASE_MAX(asked, share * inputs);
    }
    return BASE_MAX((uint64_t)(total + 0.5), s->inputs_done);
}

void llm_publish(op *o, const char *phase) {
    llm_state *s = o->state;
    exec_progress *p = &s->progress;
    p->llm_running = true;
    strncpy(p->phase, phase, sizeof p->phase - 1);
    p->rows_total = expected_inputs(s);
    p->rows_done = s->inputs_done;
    p->seconds = clock_seconds() - o->ctx->llm->started_s;
    p->llm_seconds = clock_seconds() - s->started_s;
    runtime_figures(o->ctx->llm, &p->llm);
    runtime_memory(o->ctx->llm, &p->memory);
    p->held_seconds = o->ctx->counts.summary.held_seconds;
    watch_details(o->ctx, p, false);
    progress_publish(o->ctx->progress, p);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void note_limit(op *o, const char *limit, err *e) {
    const llm_state *s = o->state;
    o->ctx->counts.summary.reached_limit = true;
    if (s->progress.answers_kept > 0)
        err_hint(e,
                 "the answers so far are stored: run the statement again to continue, or raise "
                 "%s with SET",
                 limit);
}

/* A session at servers sends no request that may exceed a limit: adds to its error what is done. */
static void note_cap(op *o, err *e) {
    err why = *e;
    const char *limit = o->ctx->settings->max_cost > 0 && strstr(why.message, "max_cost")
                            ? "max_cost"
                            : "max_tokens_total";
    err_set(e, ERR_LIMIT, "reached %s (%llu of %llu answers done)", why.message,
            (unsigned long long)((llm_state *)o->state)->inputs_done,
            (unsigned long long)expected_inputs(o->state));
    note_limit(o, limit, e);
}

/* Returns ERR_LIMIT if max_tokens_total or max_seconds is exceeded. */
static int check_limits(op *o, err *e) {
    const settings *set = o->ctx->settings;
    llm_state *s = o->state;
    llm_figures now;
    const char *limit = "max_tokens_total";
    int status = 0;
    uint64_t inputs = 0;
    for (int i = 0; i < s->nsites; i++)
        inputs += (uint64_t)s->sites[i].in->count;
    if (s->inputs_done >= inputs)
        return 0; /* all answers have arrived: an error would only withhold them */
    runtime_figures(o->ctx->llm, &now);
    if (set->max_tokens_total > 0 && now.computed_tokens + now.choice_tokens + now.output_tokens >
                                         (uint64_t)set->max_tokens_total)
        status =
            err_set(e, ERR_LIMIT, "reached max_tokens_total = %lld (%llu of %llu answers done)",
                    (long long)set->max_tokens_total, (unsigned long long)s->inputs_done,
                    (unsigned long long)expected_inputs(s));
    else if (set->max_seconds > 0 && clock_seconds() - o->ctx->llm->started_s > set->max_seconds) {
        limit = "max_seconds";
        status = err_set(e, ERR_LIMIT, "reached max_seconds = %g (%llu of %llu answers done)",
                         set->max_seconds, (unsigned long long)s->inputs_done,
                         (unsigned long long)expected_inputs(s));
    }
    if (status != 0)
        note_limit(o, limit, e);
    return status;
}

/* ---- what other strategies would cost -------------------------------------------------------- */

/* Counts what other strategies would compute: once per operator, when the live view asks for it.
 * The model is idle meanwhile. */
static int compare_strategies(op *o, err *e) {
    llm_state *s = o->state;
    exec_progress *p = &s->progress;
    count_run runs[COUNT_STRATEGIES] = {0};
    if (p->nbaselines || !o->ctx->view ||
        !atomic_load_explicit(&o->ctx->view->compared, memory_order_relaxed))
        return 0;
    llm_publish(o, "counting");
    plan_actual *counted = ARENA_ARRAY(o->mem, plan_actual, s->nstages + 1);
    int status = llm_late_assume(o, e);
    if (status == 0)
        status = llm_count_stages(o, runs, counted, e);
    llm_late_forget(o);
    for (int i = 0; i < s->nstages && status == 0; i++)
        for (int k = 0; k < counted[i].ntokens; k++)
            watch_baseline(p, &counted[i].tokens[k]);
    for (int k = 0; k < COUNT_STRATEGIES; k++)
        count_run_close(&runs[k]);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Waits while the user has paused the statement. Paused time is not counted: the start times are
 * moved forward. */
static void wait_while_paused(op *o) {
    llm_state *s = o->state;
    double paused = watch_pause(o->ctx, &s->progress, llm_publish, o);
    s->stage_started_s += paused;
    s->started_s += paused;
    o->ctx->llm->started_s += paused;
    o->ctx->counts.summary.held_seconds += paused;
}

/* Names the phase. The first pass may have to read the weights, which takes long if they are
 * large. */
static const char *phase_of(const llm_session *session) {
    llm_figures figures;
    llm_session_figures(session, &figures);
    return figures.passes > 0 ? "model" : "starting the model";
}

static int after_step(op *o, err *e) {
    int status = arena_full_error(o->ctx->llm->kept, e);
    if (status == 0)
        status = check_limits(o, e);
    return status ? status : compare_strategies(o, e);
}

/* Keeps all answers, also those after one that failed. */
static int take_events(op *o, const llm_event *events, int count, err *e) {
    int status = 0;
    for (int i = 0; i < count; i++) {
        err why = {.pos = -1};
        int one = llm_ask_take_event(o, &events[i], &why);
        if (one != 0 && status == 0) {
            status = one;
            *e = why;
        }
    }
    return status;
}

/* Whether the session can take more prompts: servers should never wait for the next ones. */
static bool has_room(llm_sender *x) {
    llm_figures now;
    if (!x->full || !llm_engine_info(x->engine)->remote)
        return false;
    llm_session_figures(x->session, &now);
    x->left = (size_t)(now.requests - now.done - now.failed);
    return x->left < x->queued / 2;
}

int llm_ask_drain(llm_sender *x, err *e) {
    llm_event events[EVENTS_AT_ONCE];
    int status = 0, count = 0;
    bool idle = false;
    llm_publish(x->o, phase_of(x->session));
    while (status == 0 && !idle && !has_room(x)) {
        wait_while_paused(x->o);
        err why = {.pos = -1};
        status = llm_step(x->session, events, EVENTS_AT_ONCE, &count, &idle, e);
        int taken = take_events(x->o, events, count, &why);
        if (status == ERR_LIMIT && llm_engine_info(x->engine)->remote)
            note_cap(x->o, e);
        if (status == 0 && taken != 0) {
            status = taken;
            *e = why;
        }
        llm_publish(x->o, phase_of(x->session));
        if (status == 0)
            status = after_step(x->o, e);
    }
    return status;
}
