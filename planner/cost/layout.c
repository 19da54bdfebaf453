/*
 * layout.c - decides what comes first in the prompts of a pipeline: the instruction or the row's
 * data.
 *
 * Calls about the same fields of the same rows form a group. If the data come first, the calls of a
 * group share the computed tokens of each row's data. If the instruction comes first, the rows of a
 * call share the tokens of its instruction. The fields of a STRUCT share both: instruction, row, and
 * a last line of their own.
 *
 * Invariant: the layout depends only on the relation and on the base's rows. Facts that earlier
 * runs learned or measured have no influence, because they would change the text of prompts.
 */
#include <math.h>

#include "core/pipeline_int.h"
#include "estimate_int.h"

/* Data come first only if this saves at least this share of the computed tokens, since models
 * answer better when they read the instruction before the data. */
static const double LAYOUT_LEAST_SAVING = 0.1;

bool plan_data_pays(double data, double inputs, const plan_question *questions, int count) {
    double instruction_leads = 0, data_leads = data;
    for (int i = 0; i < count; i++) {
        instruction_leads += questions[i].tokens + questions[i].share * data;
        data_leads += inputs * questions[i].share * questions[i].tokens;
    }
    return count > 1 && data_leads <= (1 - LAYOUT_LEAST_SAVING) * instruction_leads;
}

/* A call of the pipeline while its layout is decided. */
typedef struct laid_call {
    const llm_site *site;
    bool decides; /* a filter reads its answer */
} laid_call;

typedef struct layout {
    estimator *s;
    const rel *base;  /* of the pipeline */
    int n;            /* number of calls */
    laid_call *calls; /* [n] in the order of the stages */
    call_layout *out; /* [n] the result */
} layout;

/* Whether a filter of the pipeline reads the call's answer. */
static bool decides(const chain_stage *stages, int nstages, const llm_site *u, arena *mem) {
    id_set out = id_set_new(mem);
    id_set_add_answers(&out, u);
    for (int i = 0; i < nstages; i++)
        for (int f = 0; f < stages[i].nfilters; f++)
            if (expr_touches(stages[i].filters[f]->filter.predicate, &out))
                return true;
    return false;
}

/* Returns the number of calls that filters read and that are written before call i. If no filter
 * reads call i: the number of all calls that filters read. */
static int deciding_before(const layout *l, int i) {
    int count = 0;
    for (int k = 0; k < l->n; k++)
        count += l->calls[k].decides &&
                 (!l->calls[i].decides ||
                  l->calls[k].site->call->number < l->calls[i].site->call->number);
    return count;
}

/* Whether the call may need an answer for every row of the base: it has no guard, or its guard
 * reads answers. */
static bool asks_everywhere(const layout *l, const llm_site *u) {
    id_set ids = id_set_new(l->s->mem);
    id_set_add_columns(&ids, l->base);
    return !u->guard || !expr_only_in(u->guard, &ids);
}

/* Whether two calls ask about the same fields of the same rows. */
static bool share_rows(const layout *l, const llm_site *a, const llm_site *b) {
    return asks_everywhere(l, a) && asks_everywhere(l, b) &&
           llm_calls_share_row(a->call, a->args, b->call, b->args);
}

static void find_groups(layout *l) {
    for (int i = 0; i < l->n; i++) {
        l->out[i].group = i;
        for (int k = i; k-- > 0;)
            if (share_rows(l, l->calls[k].site, l->calls[i].site))
                l->out[i].group = l->out[k].group;
    }
}

/* Returns the call site without the fields that are computed from answers: the run chooses the layout
 * before it knows their texts. */
static llm_site known_part(const layout *l, const llm_site *u) {
    llm_call *call = ARENA_NEW(l->s->mem, llm_call);
    llm_site part = {.call = call, .args = ARENA_ARRAY(l->s->mem, expr *, u->call->nfields + 1)};
    *call = *u->call;
    call->field_names = ARENA_ARRAY(l->s->mem, str, call->nfields + 1);
    call->field_required = ARENA_ARRAY(l->s->mem, bool, call->nfields + 1);
    call->field_lists = ARENA_ARRAY(l->s->mem, bool, call->nfields + 1);
    call->answer_texts = ARENA_ARRAY(l->s->mem, uint32_t, call->nfields + 1);
    call->nfields = 0;
    for (int f = 0; f < u->call->nfields; f++) {
        if (u->call->answer_texts[f] > 0)
            continue;
        part.args[call->nfields] = u->args[f];
        call->field_names[call->nfields] = u->call->field_names[f];
        call->field_lists[call->nfields] = u->call->field_lists[f];
        call->field_required[call->nfields++] = u->call->field_required[f];
    }
    return part;
}

/* Lays out the group of a STRUCT's fields, whose prompts differ in their last line alone. */
static void lay_out_struct(layout *l, int leader) {
    for (int i = leader + 1; i < l->n; i++)
        if (l->out[i].group == leader)
            l->out[i].layout = LAID_ON_ROW;
}

/* Decides the layout of the group whose first call is `leader`. */
static void lay_out_group(layout *l, int leader) {
    plan_question *questions = ARENA_ARRAY(l->s->mem, plan_question, l->n);
    int64_t wanted = l->s->env->settings->llm_layout;
    double data, inputs;
    int count = 0;
    if (l->calls[leader].site->call->cue.n > 0) {
        lay_out_struct(l, leader);
        return;
    }
    for (int i = leader; i < l->n; i++)
        if (l->out[i].group == leader)
            questions[count++] = (plan_question){
                estimate_instruction_tokens(l->s, l->calls[i].site->call), l->out[i].asked_share};
    if (wanted == LAYOUT_INSTRUCTION_FIRST)
        return;
    if (wanted == LAYOUT_AUTO) {
        const llm_site known = known_part(l, l->calls[leader].site);
        if (known.call->nfields == 0)
            return;
        estimate_data(l->s, &known, l->base, &data, &inputs);
        if (!plan_data_pays(data, inputs, questions, count))
            return;
    }
    for (int i = leader; i < l->n; i++)
        if (l->out[i].group == leader)
            l->out[i].layout = i == leader ? LAID_DATA_FIRST : LAID_ON_DATA;
}

call_layout *estimate_layout(estimator *s, const rel *pipeline) {
    int nstages = pipeline->pipeline.details->nstages;
    const chain_stage *stages = pipeline_stages(s->mem, pipeline);
    layout l = {.s = s, .base = pipeline_base(pipeline)};
    for (int i = 0; i < nstages; i++)
        l.n += stages[i].llm->llm.nsites;
    l.calls = ARENA_ARRAY(s->mem, laid_call, l.n + 1);
    l.out = ARENA_ARRAY(s->mem, call_layout, l.n + 1);
    for (int i = 0, at = 0; i < nstages; i++)
        for (int k = 0; k < stages[i].llm->llm.nsites; k++, at++) {
            const llm_site *u = &stages[i].llm->llm.sites[k];
            l.calls[at] = (laid_call){u, decides(stages, nstages, u, s->mem)};
        }
    find_groups(&l);
    for (int i = 0; i < l.n; i++)
        l.out[i].asked_share = ldexp(1, -deciding_before(&l, i));
    for (int i = 0; i < l.n; i++)
        if (l.out[i].group == i)
            lay_out_group(&l, i);
    return l.out;
}
