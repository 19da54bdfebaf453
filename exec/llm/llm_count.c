/*
 * llm_count.c - EXPLAIN (TOKENS): what a statement's prompts cost under every strategy, counted
 * without the model.
 *
 * Invariant: the counts come from the engine's own scheduler run without a backend (count_only). It
 * gets the prompts of a cold run in the same order: stage by stage, in one session for all
 * operators, no prompt twice. So the counts, evictions included, are those of a run with that
 * strategy, except where answers decide which rows are asked about. Fields that are computed from
 * answers are counted as texts of the expected length.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"
#include "ops/op_int.h"
#include "rows/rowset_int.h"

/* A strategy whose tokens are counted. */
typedef struct counted {
    const char *name;
    psm_strategy strategy;
    llm_reuse reuse;
    bool blends; /* contexts are blended; counted if some call of the operator blends */
} counted;

static const counted strategies[COUNT_STRATEGIES] = {
    {"no cache", PSM_OFF, LLM_REUSE_NONE, false}, {"FIFO", PSM_OFF, LLM_REUSE_FIFO, false},
    {"fixed", PSM_FIXED, LLM_REUSE_TREE, false},  {"grouped", PSM_GROUPED, LLM_REUSE_TREE, false},
    {"blend", PSM_GROUPED, LLM_REUSE_TREE, true},
};

/* The FIFO strategy, for comparison: the scheduler knows this many requests at a time, and KV is
 * evicted in the order in which it was computed. */
enum { FIFO_WINDOW = 64 };

/* Returns the share of rows that the filters on answers in a pipeline's first `nstages` stages are
 * expected to keep. */
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

/* Returns the share of rows that all filters on answers in n and in the nodes below it are expected
 * to keep. */
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

/* ---- the driver ------------------------------------------------------------------------------ */

/* The count of an operator's inputs under one strategy. */
typedef struct counting {
    op *o;
    const counted *how;
    count_run *run;
    arena *mem;
    input_order *orders; /* by call site */
    plan_tokens *out;    /* by stage */
    llm_sender sender;
    llm_figures before; /* the figures of run->session when they were last read */
} counting;

int count_run_open(count_run *run, const exec_ctx *ctx, llm_engine *engine, llm_reuse reuse,
                   llm_session **out, err *e) {
    llm_session_options options;
    if (!run->asked) {
        run->mem = arena_new_in(ctx->space);
        run->asked = answer_memo_new(ctx->space, run->mem);
    }
    engine_session *x = sessions_entry(&run->sessions, ctx->llm, engine, run->mem);
    *out = x->session;
    if (x->session)
        return 0;
    session_options(ctx, &options);
    options.kv_memory_bytes = sessions_kv_bytes(ctx->llm, engine);
    options.reuse = reuse;
    options.count_only = true;
    options.warm_only = false;
    options.window = reuse == LLM_REUSE_FIFO ? FIFO_WINDOW : 0;
    int status = llm_session_new(engine, &options, &x->session, e);
    *out = x->session;
    return status;
}

static int count_open(llm_sender *x, llm_engine *engine, err *e) {
    counting *c = x->state;
    int status = count_run_open(c->run, x->o->ctx, engine, c->how->reuse, &x->session, e);
    if (status == 0)
        llm_session_figures(x->session, &c->before);
    return status;
}

/* Marks the inputs of all rows. Late guards are ignored, since they read answers, and counting has
 * none. */
static int count_select(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e) {
    counting *c = x->state;
    uint64_t inputs, fresh;
    (void)e;
    llm_mark_inputs(x, at, rows, count, &inputs, &fresh);
    c->out[x->stage].llm.distinct_inputs += fresh;
    return 0;
}

bool count_run_knows(count_run *run, llm_sender *x, int at, uint32_t input) {
    const site_run *site = &((llm_state *)x->o->state)->sites[at];
    answer_memo *asked = run->asked;
    if (!x->o->ctx->settings->dedup)
        return false;
    hash128 fields = inputs_key(site->in, site->plan->call, input);
    answer_identify(site->prompt, x->o->ctx->settings, x->spans, x->nspans, &x->id);
    bool before =
        answer_memo_find(asked, fields) || answer_memo_find_prompt(asked, site->prompt, &x->id);
    llm_answer *one = before ? NULL : answer_memo_expect(asked);
    if (one) {
        answer_memo_link(asked, fields, one);
        answer_memo_link(asked, answer_key(site->prompt, &x->id), one);
    }
    return before;
}

static bool count_is_known(llm_sender *x, int at, uint32_t input) {
    counting *c = x->state;
    bool known = count_run_knows(c->run, x, at, input);
    c->out[x->stage].llm.answers_repeated += known;
    return known;
}

/* Returns the price of what was counted since `before`; answers have their expected tokens. */
static double counted_price(const llm_sender *x, const llm_figures *before,
                            const llm_figures *now) {
    const llm_state *s = x->o->state;
    const llm_stage *t = &s->stages[x->stage];
    double answer = 0, sites = 0;
    for (int i = t->first_site; i < t->first_site + t->plan->nsites; i++) {
        bool asked = s->sites[i].engine == x->engine;
        answer += asked ? s->sites[i].plan->answer_tokens : 0;
        sites += asked;
    }
    double tokens = (double)(now->prompt_tokens - before->prompt_tokens);
    double computed = (double)(now->computed_tokens - before->computed_tokens);
    double requests = (double)(now->requests - before->requests);
    return llm_price(llm_engine_info(x->engine), tokens, tokens - computed,
                     requests * answer / BASE_MAX(sites, 1));
}

static int count_drain(llm_sender *x, err *e) {
    counting *c = x->state;
    llm_event events[64];
    llm_figures now;
    bool idle = false;
    int finished, status = 0;
    while (status == 0 && !idle)
        status = llm_step(x->session, events, 64, &finished, &idle, e);
    llm_session_figures(x->session, &now);
    llm_figures_add_since(&c->out[x->stage].llm, &c->before, &now);
    c->out[x->stage].llm.money += counted_price(x, &c->before, &now);
    c->before = now;
    return status;
}

static const llm_driver count_driver = {
    .open = count_open, .select = count_select, .is_known = count_is_known, .drain = count_drain};

/* ---- as a run would ask ---------------------------------------------------------------------- */

static int count_rows(counting *c, err *e) {
    llm_state *s = c->o->state;
    int kept = llm_may_chunk(c->o) ? llm_shared_prefix_site(s) : -1, status = 0;
    int64_t n = rowset_rows(s->rows), most = n, size;
    if (kept >= 0)
        status = llm_rows_kept_at_once(c->o, kept, &c->orders[kept], &most, e);
    int64_t *rows = llm_rows_in_order(s, kept, kept >= 0 ? &c->orders[kept] : NULL, c->mem);
    for (int64_t from = 0; from < n && status == 0; from += size) {
        uint32_t done = 0;
        int stage;
        size = BASE_MIN(most, n - from);
        int64_t count = llm_drop_filtered_rows(s, rows + from, size);
        llm_sort_rows(rows + from, count);
        while (status == 0 && (stage = llm_rank_next(s, done, false)) >= 0) {
            status = llm_send_stage(&c->sender, stage, done, rows + from, count, e);
            done |= 1u << stage;
        }
    }
    return status;
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Finds a call's order under the strategy. If the run uses the same strategy, this is the run's
 * order. */
static int order_of(counting *c, int at, err *e) {
    const settings *set = c->o->ctx->settings;
    llm_state *s = c->o->state;
    const site_run *site = &s->sites[at];
    int status = 0;
    if (site->prompt->shares_row && site->leader != site)
        c->orders[at] = c->orders[site->leader - s->sites];
    else if (site->after)
        order_follow(&c->orders[site->after - s->sites], site->after->in, site->in, c->mem,
                     &c->orders[at]);
    else if (llm_strategy_of(set) == c->how->strategy)
        c->orders[at] = *site->order;
    else
        status = order_solve_plain(c->o->ctx, site->prompt, site->in, c->how->strategy, false,
                                   c->mem, &c->orders[at], e);
    if (status == 0)
        order_rank(&c->orders[at], site->in->count, c->mem);
    return status;
}

/* Sets *gap to an upper bound on how much another order of whole cells could raise the shared
 * fraction of tokens, compared with the best order found. NAN: unknown. */
static int gap_of(counting *c, int at, double *gap, err *e) {
    const site_run *site = &((llm_state *)c->o->state)->sites[at];
    input_order best = {0};
    *gap = NAN;
    if (site->in->count < 2 || site->in->nfields < 2 || site->plan->call->reads_answers ||
        (site->prompt->shares_row && site->leader != site))
        return 0;
    int status = order_solve_plain(c->o->ctx, site->prompt, site->in, c->how->strategy, true,
                                   c->mem, &best, e);
    return status ? status : order_gap(site->prompt, site->in, &best, gap, e);
}

/* ---- all strategies -------------------------------------------------------------------------- */

static bool only_examples(const llm_state *s, const llm_stage *t) {
    for (int i = t->first_site; i < t->first_site + t->plan->nsites; i++)
        if (!s->sites[i].plan->call->examples)
            return false;
    return true;
}

/* Whether answers decide which rows are asked about; the counts are then upper bounds. */
static bool depends_on_answers(const llm_state *s, const llm_stage *t, const plan_demand *d) {
    for (int i = t->first_site; i < t->first_site + t->plan->nsites; i++)
        if (s->sites[i].plan->late_guard)
            return true;
    return d->limit_hint > 0 || d->top_n.n > 0;
}

static void note_stage(const op *o, int stage, plan_tokens *t) {
    const llm_state *s = o->state;
    const llm_stage *of = &s->stages[stage];
    double share = stages_share(o->node, stage) * answers_share(o->node->left);
    bool estimated = false;
    for (int i = of->first_site; i < of->first_site + of->plan->nsites; i++) {
        estimated = estimated || s->sites[i].plan->nlate > 0;
        for (int64_t r = 0; r < s->sites[i].in->rows; r++)
            t->rows += s->sites[i].in->of_row[r] != NO_INPUT && !s->dropped[r];
    }
    t->scaled = share < 1 || estimated;
    t->at_most = depends_on_answers(s, of, &o->node->pipeline.demand);
    for (int i = of->first_site; i < of->first_site + of->plan->nsites; i++)
        t->searched |= s->sites[i].prompt->guide != NULL && !s->sites[i].prompt->all_probs;
    t->rows = scaled_count(t->rows, share);
#define SCALE(name, label, always, key) t->llm.name = scaled_count(t->llm.name, share);
    LLM_COUNTERS(SCALE)
#undef SCALE
    t->llm.money *= share;
}

static bool stage_blends(const llm_state *s, const llm_stage *t) {
    bool blends = false;
    for (int i = t->first_site; i < t->first_site + t->plan->nsites; i++)
        blends = blends || s->sites[i].prompt->blends;
    return blends;
}

/* Counts one strategy; with the strategy PSM_GROUPED, the bounds too. */
static int count_strategy(counting *c, plan_actual *actual, plan_tokens *const *tokens, err *e) {
    llm_state *s = c->o->state;
    bool last = c->how->strategy == PSM_GROUPED;
    int status = 0;
    c->orders = ARENA_ARRAY(c->mem, input_order, s->nsites + 1);
    c->out = ARENA_ARRAY(c->mem, plan_tokens, s->nstages + 1);
    for (int i = 0; i < s->nsites && status == 0; i++)
        status = order_of(c, i, e);
    llm_sender_open(&c->sender, c->o, &count_driver, c->orders, c->mem);
    c->sender.state = c;
    c->sender.exact = !c->how->blends;
    if (status == 0)
        status = count_rows(c, e);
    llm_sender_close(&c->sender);
    for (int i = 0; i < s->nsites && status == 0 && last; i++) {
        double gap, *bound = &actual[s->sites[i].stage].bound;
        status = gap_of(c, i, &gap, e);
        if (gap > *bound || (isnan(*bound) && !isnan(gap)))
            *bound = gap;
    }
    for (int i = 0; i < s->nstages && status == 0; i++) {
        if (c->how->blends ? !stage_blends(s, &s->stages[i])
                           : last && only_examples(s, &s->stages[i]))
            /* with examples one field order holds for all rows, so `grouped` is the same as
             * `fixed` */
            continue;
        c->out[i].strategy = c->how->name;
        note_stage(c->o, i, &c->out[i]);
        tokens[i][actual[i].ntokens++] = c->out[i];
    }
    return status;
}

static bool any_blends(const llm_state *s) {
    bool blends = false;
    for (int i = 0; i < s->nstages; i++)
        blends = blends || stage_blends(s, &s->stages[i]);
    return blends;
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
        if (strategies[k].blends && !any_blends(s))
            continue;
        counting c = {
            .o = o, .how = &strategies[k], .run = &runs[k], .mem = arena_new_in(o->ctx->space)};
        status = count_strategy(&c, actual, tokens, e);
        if (status == 0)
            status = arena_full_error(c.mem, e);
        arena_free(c.mem);
    }
    return status;
}
