/*
 * llm_facts.c - what earlier runs and the sample taught about calls, and what the planner asks
 * about models and calls (plan_env).
 *
 * Invariant: if the rows that reach a call may change the text of its prompts, plans do not depend
 * on what was learned or measured. So the same statement over the same data sends the same prompts.
 */
#include <stdlib.h>
#include <string.h>

#include "llm_int.h"

/* ---- learned facts --------------------------------------------------------------------------- */

/* Appends the key of a call's facts. The key includes the possible answers: facts about other
 * literals, or about another maximum length, do not apply. */
static void learned_key(const llm_call *call, hash128 fingerprint, buf *out) {
    buf b = {0};
    buf_printf(&b, "%d %d %d", (int)call->returns, call->max_tokens, call->examples != NULL);
    for (int i = 0; i < call->nliterals; i++) {
        buf_printf(&b, " %zu:", call->literals[i].n);
        buf_append_str(&b, call->literals[i]);
    }
    call_fact_key(call, "learned", true, fingerprint, out);
    buf_printf(out, "/%016llx", (unsigned long long)hash64(b.p, b.n, 0));
    buf_free(&b);
}

bool facts_recall(exec_ctx *ctx, const llm_call *call, hash128 fingerprint, call_facts *out) {
    buf key = {0};
    str bytes;
    bool found = false;
    err ignored = {0};
    if (ctx->llm && ctx->llm->sampled[call->number - 1].answers > 0) {
        *out = ctx->llm->sampled[call->number - 1];
        return true;
    }
    arena *a = arena_new();
    learned_key(call, fingerprint, &key);
    /* A fact that cannot be read counts as unknown. */
    bool ok = fact_get(ctx->db, buf_str(&key), a, &bytes, &found, &ignored) == 0 && found &&
              bytes.n == sizeof *out;
    if (ok)
        memcpy(out, bytes.p, sizeof *out);
    arena_free(a);
    buf_free(&key);
    return ok;
}

bool facts_for_plan(exec_ctx *ctx, const llm_call *call, hash128 fingerprint, call_facts *out) {
    if (ctx->llm && ctx->llm->forget && ctx->llm->sampled[call->number - 1].answers == 0)
        return false;
    return facts_recall(ctx, call, fingerprint, out);
}

bool sample_teaches(exec_ctx *ctx, const llm_call *call) {
    call_facts facts;
    const llm_engine *engine = ctx->llm->engines[call->number - 1];
    return engine && call->nliterals > 0 &&
           !(facts_for_plan(ctx, call, llm_engine_info(engine)->fingerprint, &facts) &&
             facts.answers > 0);
}

void facts_remember(exec_ctx *ctx, const llm_call *call, hash128 fingerprint,
                    const call_facts *facts) {
    buf key = {0};
    learned_key(call, fingerprint, &key);
    fact_put(ctx, buf_str(&key), (str){(const char *)facts, sizeof *facts});
    buf_free(&key);
}

/* ---- plan_env -------------------------------------------------------------------------------- */

static llm_engine *engine_of_call(const exec_ctx *ctx, const llm_call *call) {
    return ctx->llm ? ctx->llm->engines[call->number - 1] : NULL;
}

static double count_tokens(void *arg, str text) {
    exec_ctx *ctx = arg;
    llm_engine *engine = ctx->llm->engines[0];
    size_t count = 0;
    free(llm_tokenize(engine, text, false, false, &count));
    return (double)count;
}

/* Reads what is known about a call's answers. Returns false if nothing is known on which plans may
 * depend. */
static bool learned_facts(exec_ctx *ctx, const llm_call *call, call_facts *out) {
    llm_engine *engine = engine_of_call(ctx, call);
    return engine && facts_for_plan(ctx, call, llm_engine_info(engine)->fingerprint, out) &&
           out->answers > 0;
}

static double learned_selectivity(void *arg, const llm_call *call, str literal) {
    call_facts facts;
    if (!learned_facts(arg, call, &facts))
        return -1;
    for (int i = 0; i < call->nliterals && i < (int)BASE_COUNT(facts.literal_counts); i++)
        if (str_equal(call->literals[i], literal))
            /* Laplace's rule of succession: a literal that has not been seen among few answers is
             * rare, not impossible */
            return ((double)facts.literal_counts[i] + 1) /
                   ((double)facts.answers + call->nliterals);
    return -1;
}

static double learned_output_tokens(void *arg, const llm_call *call) {
    call_facts facts;
    return learned_facts(arg, call, &facts) ? (double)facts.output_tokens / (double)facts.answers
                                            : -1;
}

static double choice_tokens(void *arg, const llm_call *call) {
    exec_ctx *ctx = arg;
    llm_engine *engine = engine_of_call(ctx, call);
    llm_guide *guide;
    err ignored = {0}; /* the operator that needs the guide reports it */
    if (!engine || call->nliterals == 0 || call_guide(ctx, call, engine, &guide, &ignored) != 0)
        return 0;
    return llm_guide_tokens(guide, call_scores_all(call, guide));
}

static double money_of_call(void *arg, const llm_call *call, double tokens, double computed,
                            double output) {
    llm_engine *engine = engine_of_call(arg, call);
    return engine ? llm_price(llm_engine_info(engine), tokens, tokens - computed, output) : 0;
}

static bool learned_field_order(void *arg, const llm_call *call, uint8_t *order) {
    exec_ctx *ctx = arg;
    llm_engine *engine = engine_of_call(ctx, call);
    buf key = {0};
    str bytes;
    bool found = false;
    err ignored = {0};
    if (!engine)
        return false;
    arena *a = arena_new();
    call_fact_key(call, "field_order", false, llm_engine_info(engine)->fingerprint, &key);
    found = fact_get(ctx->db, buf_str(&key), a, &bytes, &found, &ignored) == 0 && found &&
            call->nfields > 0 && bytes.n > 0 && bytes.n % (size_t)call->nfields == 0;
    /* The record has several orders; the newest comes last. */
    if (found)
        memcpy(order, bytes.p + bytes.n - call->nfields, (size_t)call->nfields);
    for (int f = 0; found && f < call->nfields; f++)
        found = order[f] < call->nfields;
    arena_free(a);
    buf_free(&key);
    return found;
}

/* Whether the text of a call's prompts, or how its answers are decided, may depend on the rows that
 * reach the call. It does if the call is calibrated, if a field order is computed from these rows or
 * compared with a recorded one, or if a layout is chosen by counting tokens. */
static bool text_depends_on_rows(const settings *s, const llm_call *call) {
    str mode = str_from(s->field_order);
    if (s->llm_layout == LAYOUT_AUTO || llm_call_is_calibrated(call))
        return true;
    return call->nfields > 1 && s->psm != PSM_SETTING_OFF &&
           (str_equal_nocase(mode, STR("keep")) || str_equal_nocase(mode, STR("fresh")));
}

/* Whether plans may depend on what was learned or measured. They may not if the text of a call's
 * prompts depends on the rows that reach the call, since the plan determines these rows. */
static bool may_use_what_was_learned(exec_ctx *ctx) {
    for (int i = 0; i < ctx->stmt->ncalls; i++)
        if (text_depends_on_rows(ctx->settings, ctx->stmt->calls[i]))
            return false;
    return true;
}

void llm_plan_hooks(exec_ctx *ctx, plan_env *env) {
    env->ctx = ctx;
    env->selectivity = learned_selectivity;
    env->output_tokens = learned_output_tokens;
    env->field_order = learned_field_order;
    env->choice_tokens = choice_tokens;
    if (!ctx->llm || ctx->stmt->ncalls == 0 || !ctx->llm->engines[0])
        return;
    env->count_tokens = count_tokens;
    env->money = money_of_call;
    for (int i = 0; i < ctx->stmt->ncalls && !env->currency; i++)
        if (ctx->llm->engines[i])
            env->currency = llm_engine_info(ctx->llm->engines[i])->currency;
    ctx->llm->forget = !may_use_what_was_learned(ctx);
    if (ctx->settings->cost_rates == RATES_MEASURED && !ctx->llm->forget) {
        const llm_model_info *info = llm_engine_info(ctx->llm->engines[0]);
        env->prefill_tok_s = info->prefill_tok_s;
        env->decode_tok_s = info->decode_tok_s;
    }
}
