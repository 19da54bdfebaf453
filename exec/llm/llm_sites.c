/*
 * llm_sites.c - prepares the call sites of a pipeline before the first prompt is sent: their
 * inputs, prompts, layout and orders.
 *
 * Invariant: the text of a prompt is determined by all rows of the base, and for late fields by the
 * answers that they read. Filters and known answers have no influence.
 */
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"

/* ---- from the plan --------------------------------------------------------------------------- */

void llm_sites_open(op *o) {
    llm_state *s = o->state;
    const plan_node *n = o->node;
    int nsites = 0;
    s->nstages = n->pipeline.nstages;
    for (int i = 0; i < s->nstages; i++)
        nsites += n->pipeline.stages[i].nsites;
    s->stages = ARENA_ARRAY(o->mem, llm_stage, s->nstages);
    s->sites = ARENA_ARRAY(o->mem, site_run, nsites + 1);
    s->orders = ARENA_ARRAY(o->mem, input_order, nsites + 1);
    for (int i = 0; i < s->nstages; i++) {
        const plan_stage *stage = &n->pipeline.stages[i];
        uint64_t *filter_rows = ARENA_ARRAY(o->mem, uint64_t, stage->nfilters + 1);
        s->stages[i] =
            (llm_stage){.plan = stage, .first_site = s->nsites, .filter_rows = filter_rows};
        for (int k = 0; k < stage->nsites; k++, s->nsites++)
            s->sites[s->nsites] =
                (site_run){.plan = &stage->sites[k], .stage = i, .order = &s->orders[s->nsites]};
    }
    s->may_move = n->pipeline.may_reorder && o->ctx->settings->llm_chunk > 0;
}

/* ---- inputs, prompts, orders ----------------------------------------------------------------- */

static arena *mem_of(op *o) {
    return ((llm_state *)o->state)->mem;
}

/* Finds the order of a call's fields and inputs. A call that goes on from another call of the
 * pipeline gets it later, from that one's. */
static int solve_order(op *o, site_run *site, err *e) {
    double started = clock_seconds();
    if (site->after)
        return 0;
    int status = order_solve(o->ctx, site->prompt, site->in, llm_strategy_of(o->ctx->settings),
                             mem_of(o), site->order, e);
    o->ctx->counts.summary.solve_seconds += clock_seconds() - started;
    return status;
}

/* Returns the call site, of an earlier stage, that makes the answer that this one goes on from; NULL:
 * none in this pipeline. */
static site_run *find_after(llm_state *s, const site_run *site) {
    const llm_call *after = site->plan->call->after;
    if (!after)
        return NULL;
    const expr *answer = site->plan->args[after->nfields];
    for (int i = 0; i < s->nsites && answer->kind == EXPR_COLUMN; i++)
        if (s->sites[i].plan->call == after && s->sites[i].plan->out_slot == answer->column.slot)
            return &s->sites[i];
    return NULL;
}

/* Adds the examples of a call. They list their fields in the order of the rows' prompts, so they
 * are added once that order is known. */
static void place_examples(op *o, site_run *site) {
    const llm_runtime *r = o->ctx->llm;
    int at = llm_call_root(site->plan->call)->number - 1;
    uint8_t order[PSM_MAX_FIELDS];
    bool ordered = site->order->psm.ngroups > 0;
    if (ordered)
        order_of_dominant_fields(&site->order->psm, site->in->nfields, order);
    prompt_finish_prefix(site->prompt, r->examples[at], r->nexamples[at], ordered ? order : NULL);
}

static bool data_first_is_set(const settings *s) {
    return s->llm_layout == LAYOUT_DATA_FIRST;
}

/* Returns the call site without its late guard: until the guard is evaluated, all rows may need the
 * call. */
static const plan_call_site *without_late_guard(op *o, const site_run *site) {
    if (!site->plan->late_guard)
        return site->plan;
    plan_call_site *copy = ARENA_NEW(o->mem, plan_call_site);
    *copy = *site->plan;
    copy->guard = NULL;
    return copy;
}

/* Makes the inputs, prompt and orders of a call. The inputs, and the tokens of their values, are
 * those of the group's leader. */
static int prepare_site(op *o, site_run *site, err *e) {
    exec_ctx *ctx = o->ctx;
    bool leads = site->leader == site;
    int status = runtime_engine(ctx->llm, site->plan->call, &site->engine, e);
    site->in = site->leader->in;
    if (status == 0 && leads)
        status = inputs_gather(ctx, without_late_guard(o, site), llm_late_sources(o, site, false),
                               ((llm_state *)o->state)->rows, ctx->settings->dedup, mem_of(o),
                               &site->in, e);
    if (status)
        return status;
    prompt_spec spec = {.call = site->plan->call,
                        .engine = site->engine,
                        .ctx = ctx,
                        .data_first = data_first_is_set(ctx->settings),
                        .like = leads ? NULL : site->leader->prompt};
    status = prompt_new(&spec, site->in, &site->prompt, e);
    if (status == 0)
        status = solve_order(o, site, e);
    if (status)
        return status;
    site->answer_field_tokens = llm_answer_field_tokens(o, site);
    site->answers = ARENA_ARRAY(mem_of(o), llm_answer *, site->in->count + 1);
    site->asked = ARENA_ARRAY(mem_of(o), uint8_t, site->in->rows + 1);
    facts_recall(ctx, site->plan->call, llm_engine_info(site->engine)->fingerprint, &site->facts);
    return 0;
}

/* ---- layout ---------------------------------------------------------------------------------- */

/* Gives all calls of the group the leader's order of fields and inputs. */
static void take_order(llm_state *s, const site_run *leader) {
    for (int i = 0; i < s->nsites; i++)
        if (s->sites[i].leader == leader)
            *s->sites[i].order = *leader->order;
}

static bool only_answers(const llm_call *call) {
    for (int f = 0; f < call->nfields; f++)
        if (call->answer_texts[f] == 0)
            return false;
    return true;
}

/* Chooses whether the prompts of the leader's group begin with the data. The calls of a group whose
 * prompts share the row send fields and inputs in the leader's order. */
static int lay_out_group(op *o, site_run *leader, err *e) {
    llm_state *s = o->state;
    layout_call *calls = ARENA_ARRAY(o->mem, layout_call, s->nsites + 1);
    llm_inputs *distinct = leader->in;
    bool data_first = data_first_is_set(o->ctx->settings);
    int count = 0, status = 0;
    arena *mem = NULL;
    for (int i = 0; i < s->nsites; i++)
        if (s->sites[i].leader == leader)
            calls[count++] = (layout_call){s->sites[i].prompt, s->sites[i].plan->asked_share};
    if (leader->plan->call->cue.n > 0) {
        take_order(s, leader);
        return 0;
    }
    if (count < 2 || o->ctx->settings->llm_layout == LAYOUT_INSTRUCTION_FIRST)
        return 0;
    bool unknown = only_answers(leader->plan->call);
    /* the layout must not depend on dedup, so inputs are counted once each; nor on fields computed
     * from answers, whose texts may not be known yet */
    if (!data_first && !unknown &&
        (!o->ctx->settings->dedup || leader->plan->call->reads_answers)) {
        mem = arena_new_in(o->ctx->space);
        status = inputs_gather(o->ctx, without_late_guard(o, leader),
                               llm_late_sources(o, leader, true), s->rows, true, mem, &distinct, e);
    }
    if (status == 0 && !data_first && !unknown)
        status = layout_choose(calls, count, distinct, &data_first, e);
    arena_free(mem);
    for (int i = 0; i < s->nsites && status == 0 && data_first; i++)
        if (s->sites[i].leader == leader)
            prompt_set_data_first(s->sites[i].prompt);
    if (status == 0 && data_first)
        take_order(s, leader);
    return status;
}

str llm_sites_order_text(op *o, int first, int end) {
    llm_state *s = o->state;
    buf b = {0};
    bool alike = true;
    for (int i = first + 1; i < end; i++)
        alike = alike && str_equal(s->sites[i].order->text, s->sites[first].order->text) &&
                s->sites[i].prompt->data_first == s->sites[first].prompt->data_first;
    for (int i = first; i < (alike ? BASE_MIN(end, first + 1) : end); i++) {
        const site_run *site = &s->sites[i];
        if (!alike)
            buf_printf(&b, "%s#%d ", i > first ? ", then " : "", site->plan->call->number);
        buf_append_str(&b, site->order->text);
        if (site->prompt->data_first && site->order->text.n > 0)
            buf_append_c(&b, ", before the instruction");
    }
    str text = str_copy(o->ctx->mem, buf_str(&b));
    buf_free(&b);
    return text;
}

int llm_sites_prepare(op *o, err *e) {
    llm_state *s = o->state;
    int status = 0;
    for (int i = 0; i < s->nsites; i++) {
        s->sites[i].leader = &s->sites[i];
        for (int k = 0; k < i && s->sites[i].leader == &s->sites[i]; k++)
            if (s->sites[k].plan->group == s->sites[i].plan->group)
                s->sites[i].leader = s->sites[k].leader;
    }
    for (int i = 0; i < s->nsites; i++)
        s->sites[i].after = find_after(s, &s->sites[i]);
    for (int i = 0; i < s->nsites && status == 0; i++) {
        double started = clock_seconds();
        status = prepare_site(o, &s->sites[i], e);
        s->stages[s->sites[i].stage].ms += 1e3 * (clock_seconds() - started);
    }
    for (int i = 0; i < s->nsites && status == 0; i++) {
        site_run *site = &s->sites[i];
        if (site->after)
            order_follow(site->after->order, site->after->in, site->in, s->mem, site->order);
        if (site->leader == site)
            status = lay_out_group(o, site, e);
    }
    for (int i = 0; i < s->nsites && status == 0; i++) {
        place_examples(o, &s->sites[i]);
        order_rank(s->sites[i].order, s->sites[i].in->count, s->mem);
    }
    for (int i = 0; i < s->nstages && status == 0; i++) {
        llm_stage *t = &s->stages[i];
        t->actual.field_order =
            llm_sites_order_text(o, t->first_site, t->first_site + t->plan->nsites);
    }
    return status;
}
