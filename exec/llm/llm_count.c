/*
 * llm_count.c - EXPLAIN (TOKENS): what a statement's prompts cost under every strategy, counted
 * without the model.
 *
 * Invariant: the counts come from the engine's own scheduler run without a backend (count_only). It
 * is given the prompts that a cold run would ask, in the order it would, stage by stage, one
 * session for all operators of the statement and none twice; so they are what a run under that
 * strategy computes, evictions included, unless rows hang on answers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"
#include "ops/op_int.h"
#include "rows/rowset_int.h"

typedef struct counted {
    const char *name;
    psm_strategy strategy;
    llm_reuse reuse;
} counted;

static const counted strategies[COUNT_STRATEGIES] = {
    {"no cache", PSM_OFF, LLM_REUSE_NONE},
    {"FIFO", PSM_OFF, LLM_REUSE_FIFO},
    {"fixed", PSM_FIXED, LLM_REUSE_TREE},
    {"grouped", PSM_GROUPED, LLM_REUSE_TREE},
};

/* FIFO as DESIGN 7 has it: 64 requests in sight, and KV memory for as many of the longest. */
enum { FIFO_WINDOW = 64 };

/* The share of rows that the filters on answers of a pipeline's first stages are expected to keep. */
static double stages_share(const plan_node *n, int nstages) {
    double share = 1;
    for (int i = 0; i < nstages; i++) {
        const plan_stage *t = &n->pipeline.stages[i];
        double in = t->estimate.rows;
        for (int k = 0; k < t->nfilters; in = t->filter_estimates[k++].rows)
            if (in > 0 && plan_reads_answers(t->filters[k], n))
                share *= BASE_MIN(1, t->filter_estimates[k].rows / in);
    }
    return share;
}

/* The same of all filters on answers in n and below. */
static double answers_share(const plan_node *n) {
    double share = 1;
    for (; n; n = n->left)
        if (n->kind == PLAN_LLM_PIPELINE)
            share *= stages_share(n, n->pipeline.nstages);
        else if (plan_filters_answers(n) && n->left->estimate.rows > 0)
            share *= BASE_MIN(1, n->estimate.rows / n->left->estimate.rows);
    return share;
}

static uint64_t scaled_count(uint64_t n, double share) {
    return (uint64_t)((double)n * share + 0.5);
}

/* ---- one strategy's session ------------------------------------------------------------------ */

/* An operator's inputs counted under one strategy. */
typedef struct counting {
    op *o;
    const counted *how;
    count_run *run;
    arena *mem;
    input_order *orders; /* by use */
    uint32_t **rank;     /* by use, by input: its place in that order */
    uint8_t **met;       /* by use, by input */
    plan_tokens *out;    /* by stage */
} counting;

void count_run_close(count_run *run) {
    llm_session_free(run->session);
    answer_memo_free(run->asked);
    arena_free(run->mem);
    *run = (count_run){0};
}

/* A session serves one engine; what another had computed is lost, as in a run. */
static int open_session(counting *c, llm_engine *engine, err *e) {
    llm_session_options options;
    if (!c->run->asked) {
        c->run->mem = arena_new_in(c->o->ctx->space);
        c->run->asked = answer_memo_new(c->o->ctx->space, c->run->mem);
    }
    if (c->run->session && c->run->engine == engine)
        return 0;
    llm_session_free(c->run->session);
    c->run->session = NULL;
    c->run->engine = engine;
    session_options(c->o->ctx, &options);
    options.reuse = c->how->reuse;
    options.count_only = true;
    options.warm_only = false;
    options.window = c->how->reuse == LLM_REUSE_FIFO ? FIFO_WINDOW : 0;
    return llm_session_new(engine, &options, &c->run->session, e);
}

static int run_until_idle(llm_session *session, err *e) {
    llm_event events[64];
    bool idle = false;
    int finished, status = 0;
    while (status == 0 && !idle)
        status = llm_step(session, events, 64, &finished, &idle, e);
    return status;
}

/* Whether the statement asks this prompt for the second time; from now on it would. */
static bool asked_before(counting *c, const use_run *u, uint32_t input, llm_span **spans,
                         int nspans) {
    answer_memo *asked = c->run->asked;
    answer_id id = {0};
    if (!c->o->ctx->settings->dedup)
        return false;
    hash128 fields = inputs_key(u->in, u->use->call, input);
    answer_identify(u->prompt, c->o->ctx->settings, spans, nspans, &id);
    bool before = answer_memo_find(asked, fields) || answer_memo_find(asked, id.key);
    llm_answer *one = before ? NULL : answer_memo_expect(asked);
    if (one) {
        answer_memo_link(asked, fields, one);
        answer_memo_link(asked, id.key, one);
    }
    buf_free(&id.identity);
    return before;
}

static int count_input(counting *c, int use, uint32_t input, llm_sending *how, err *e) {
    llm_state *s = c->o->state;
    const use_run *u = &s->uses[use];
    plan_tokens *out = &c->out[u->stage];
    if (c->met[use][input]++)
        return 0;
    out->llm.distinct_inputs++;
    const uint8_t *order = c->orders[use].psm.field_order + (size_t)input * (size_t)u->in->nfields;
    int nspans = prompt_spans(u->prompt, u->in, input, order, how->spans);
    if (asked_before(c, u, input, how->spans, nspans)) {
        out->llm.answers_repeated++;
        return 0;
    }
    str own;
    llm_request request = llm_ask_request(c->o, use, input, how, nspans, &own);
    int status = llm_submit(c->run->session, &request, e);
    if (status == 0)
        llm_queue_add(how, nspans);
    else if (c->o->ctx->settings->llm_on_error == ON_ERROR_NULL && status != ERR_CANCELLED)
        status = 0;
    return status;
}

/* ---- as a run would ask ---------------------------------------------------------------------- */

/* The inputs of a use and those that go along with it. */
static int count_use(counting *c, int use, uint32_t done, const int64_t *rows, int64_t count,
                     err *e) {
    llm_state *s = c->o->state;
    const use_run *u = &s->uses[use];
    int end = s->stages[u->stage].first_use + s->stages[u->stage].plan->nsites, status = 0;
    size_t n;
    arena *mem = arena_new_in(c->o->ctx->space);
    placed_input *list = llm_inputs_in_order(u->in, c->rank[use], rows, count, mem, &n);
    llm_sending how = llm_sending_new(u, llm_asked_again(s, u, done), mem);
    for (size_t k = 0; k < n && status == 0; k++) {
        for (int i = use; i < end && status == 0; i++)
            if (llm_goes_along(s, use, i))
                status = count_input(c, i, list[k].input, &how, e);
        if (status == 0 && llm_queue_is_full(c->o->ctx, &how)) {
            status = run_until_idle(c->run->session, e);
            how.queued = how.queued_bytes = 0;
        }
    }
    arena_free(mem);
    return status;
}

static int count_stage(counting *c, int stage, uint32_t done, const int64_t *rows, int64_t count,
                       err *e) {
    llm_state *s = c->o->state;
    const llm_stage *t = &s->stages[stage];
    int end = t->first_use + t->plan->nsites, status = 0;
    for (int first = t->first_use; first < end && status == 0; first++) {
        llm_figures before, after;
        if (!llm_engine_is_first(s, first))
            continue;
        status = open_session(c, s->uses[first].engine, e);
        if (status)
            return status;
        llm_session_figures(c->run->session, &before);
        for (int i = first; i < end && status == 0; i++)
            if (s->uses[i].engine == s->uses[first].engine && !llm_went_along(s, i))
                status = count_use(c, i, done, rows, count, e);
        if (status == 0)
            status = run_until_idle(c->run->session, e);
        llm_session_figures(c->run->session, &after);
        llm_figures_add_since(&c->out[stage].llm, &before, &after);
    }
    return status;
}

static int count_rows(counting *c, err *e) {
    llm_state *s = c->o->state;
    int kept = llm_has_one_engine(s) ? llm_kept_use(s) : -1, status = 0;
    int64_t n = rowset_rows(s->rows), most = n, size;
    if (kept >= 0)
        status = llm_rows_kept_at_once(c->o, kept, &c->orders[kept], &most, e);
    int64_t *rows = llm_rows_in_order(s, kept, kept >= 0 ? c->rank[kept] : NULL, c->mem);
    for (int64_t from = 0; from < n && status == 0; from += size) {
        uint32_t done = 0;
        int stage;
        size = BASE_MIN(most, n - from);
        int64_t count = llm_rows_wanted(s, rows + from, size);
        llm_sort_rows(rows + from, count);
        while (status == 0 && (stage = llm_rank_next(s, done, false)) >= 0) {
            status = count_stage(c, stage, done, rows + from, count, e);
            done |= 1u << stage;
        }
    }
    return status;
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* A use's order under the strategy: the one that a run takes where that is its strategy. */
static int order_of(counting *c, int use, err *e) {
    const settings *set = c->o->ctx->settings;
    llm_state *s = c->o->state;
    const use_run *u = &s->uses[use];
    int status = 0;
    if (u->prompt->data_first && u->leader != u)
        c->orders[use] = c->orders[u->leader - s->uses];
    else if (llm_strategy_of(set) == c->how->strategy)
        c->orders[use] = u->order;
    else
        status = order_solve_plain(c->o->ctx, u->prompt, u->in, c->how->strategy, false, c->mem,
                                   &c->orders[use], e);
    c->rank[use] = ARENA_ARRAY(c->mem, uint32_t, u->in->count + 1);
    c->met[use] = ARENA_ARRAY(c->mem, uint8_t, u->in->count + 1);
    for (uint32_t k = 0; k < u->in->count && status == 0; k++)
        c->rank[use][c->orders[use].psm.row_order[k]] = k;
    return status;
}

/* How much more of its tokens a use could share at most, over the best order. */
static int gap_of(counting *c, int use, double *gap, err *e) {
    const use_run *u = &((llm_state *)c->o->state)->uses[use];
    input_order best = {0};
    *gap = NAN;
    if (u->in->count < 2 || u->in->nfields < 2 || (u->prompt->data_first && u->leader != u))
        return 0;
    int status =
        order_solve_plain(c->o->ctx, u->prompt, u->in, c->how->strategy, true, c->mem, &best, e);
    return status ? status : order_gap(u->prompt, u->in, &best, gap, e);
}

/* ---- all strategies -------------------------------------------------------------------------- */

static bool only_examples(const llm_state *s, const llm_stage *t) {
    for (int i = t->first_use; i < t->first_use + t->plan->nsites; i++)
        if (!s->uses[i].use->call->examples)
            return false;
    return true;
}

/* What hangs on answers can only be less than what was counted. */
static bool hangs_on_answers(const llm_state *s, const llm_stage *t, const plan_demand *d) {
    for (int i = t->first_use; i < t->first_use + t->plan->nsites; i++)
        if (s->uses[i].use->late_guard)
            return true;
    return d->limit_hint > 0 || d->top_n.n > 0;
}

static void note_stage(const op *o, int stage, plan_tokens *t) {
    const llm_state *s = o->state;
    const llm_stage *of = &s->stages[stage];
    double share = stages_share(o->node, stage) * answers_share(o->node->left);
    for (int i = of->first_use; i < of->first_use + of->plan->nsites; i++)
        for (int64_t r = 0; r < s->uses[i].in->rows; r++)
            t->rows += s->uses[i].in->of_row[r] != NO_INPUT && !s->dropped[r];
    t->scaled = share < 1;
    t->at_most = hangs_on_answers(s, of, &o->node->pipeline.demand);
    t->rows = scaled_count(t->rows, share);
#define SCALE(name, label, always, key) t->llm.name = scaled_count(t->llm.name, share);
    LLM_COUNTERS(SCALE)
#undef SCALE
}

static int count_strategy(counting *c, plan_actual *actual, plan_tokens *const *tokens, bool last,
                          err *e) {
    llm_state *s = c->o->state;
    int status = 0;
    c->orders = ARENA_ARRAY(c->mem, input_order, s->nuses + 1);
    c->rank = ARENA_ARRAY(c->mem, uint32_t *, s->nuses + 1);
    c->met = ARENA_ARRAY(c->mem, uint8_t *, s->nuses + 1);
    c->out = ARENA_ARRAY(c->mem, plan_tokens, s->nstages + 1);
    for (int i = 0; i < s->nuses && status == 0; i++)
        status = order_of(c, i, e);
    if (status == 0)
        status = count_rows(c, e);
    for (int i = 0; i < s->nuses && status == 0 && last; i++) {
        double gap, *bound = &actual[s->uses[i].stage].bound;
        status = gap_of(c, i, &gap, e);
        if (gap > *bound || (isnan(*bound) && !isnan(gap)))
            *bound = gap;
    }
    for (int i = 0; i < s->nstages && status == 0; i++) {
        if (last && only_examples(s, &s->stages[i]))
            continue; /* with examples one field order holds for all rows: fixed is all there is */
        c->out[i].strategy = c->how->name;
        note_stage(c->o, i, &c->out[i]);
        tokens[i][actual[i].ntokens++] = c->out[i];
    }
    return status;
}

int llm_count_stages(op *o, count_run *runs, plan_actual *actual, err *e) {
    llm_state *s = o->state;
    plan_tokens **tokens = ARENA_ARRAY(o->mem, plan_tokens *, s->nstages + 1);
    int status = 0;
    for (int i = 0; i < s->nstages; i++) {
        actual[i].ntokens = 0;
        actual[i].tokens = tokens[i] = ARENA_ARRAY(o->ctx->mem, plan_tokens, COUNT_STRATEGIES);
    }
    for (int k = 0; k < COUNT_STRATEGIES && status == 0; k++) {
        counting c = {
            .o = o, .how = &strategies[k], .run = &runs[k], .mem = arena_new_in(o->ctx->space)};
        status = count_strategy(&c, actual, tokens, k + 1 == COUNT_STRATEGIES, e);
        if (status == 0)
            status = arena_full_error(c.mem, e);
        arena_free(c.mem);
    }
    return status;
}
