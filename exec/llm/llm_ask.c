/*
 * llm_ask.c - the driver that gets answers: uses the known answers, submits the other prompts, and
 * keeps what the engine returns.
 *
 * Invariant: an answer is in the memo, and with answer_cache on also on disk, as soon as the engine
 * returns it. So a cancelled statement loses no computed answer.
 */
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"

static void keep_answer(op *o, site_run *site, uint32_t input, const llm_answer *a) {
    answer_memo *memo = o->ctx->llm->memo;
    if (!site->answers[input])
        site->answers[input] = answer_memo_expect(memo);
    answer_memo_fill(memo, site->answers[input], a, site->plan->call->nliterals);
    /* without dedup, equal rows are asked about separately, on purpose */
    if (o->ctx->settings->dedup)
        answer_memo_link(memo, inputs_key(site->in, site->plan->call, input), site->answers[input]);
    ((llm_state *)o->state)->inputs_done++;
}

cache *llm_answers_cache(const op *o) {
    const llm_state *s = o->state;
    bool used = s->mode->answers && o->ctx->settings->answer_cache;
    return used ? runtime_cache(o->ctx->llm) : NULL;
}

/* ---- which inputs ---------------------------------------------------------------------------- */

int llm_ask_open(llm_sender *x, llm_engine *engine, err *e) {
    return runtime_session(x->o->ctx->llm, engine, &x->session, e);
}

/* Marks and counts the inputs that the rows need. A late guard first excludes rows for which it is
 * not true; then the texts of late fields are made. */
int llm_ask_select(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e) {
    op *o = x->o;
    site_run *site = &((llm_state *)o->state)->sites[at];
    uint64_t inputs = 0, fresh = 0;
    arena *mem = NULL;
    int status = 0;
    if (site->plan->late_guard) {
        mem = arena_new_in(o->ctx->space);
        int64_t *guarded = arena_alloc(mem, sizeof *guarded * (size_t)BASE_MAX(count, 1));
        status = llm_rows_where(o, site->plan->guard, rows, count, guarded, &count, e);
        rows = guarded;
    }
    for (int64_t i = 0; i < count && status == 0; i++)
        site->asked[rows[i]] = 1;
    if (status == 0)
        status = llm_late_resolve(o, site, rows, count, e);
    if (status == 0)
        llm_mark_inputs(x, at, rows, count, &inputs, &fresh);
    o->ctx->llm->figures.inputs += inputs;
    o->ctx->llm->figures.distinct_inputs += fresh;
    ((llm_state *)o->state)->stages[x->stage].inputs_asked += fresh;
    arena_free(mem);
    return status;
}

/* Marks the inputs only of calls about which a sample may teach something. */
int llm_ask_select_sample(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e) {
    const site_run *site = &((llm_state *)x->o->state)->sites[at];
    uint64_t inputs, fresh;
    (void)e;
    if (!site->plan->late_guard && site->plan->nlate == 0 &&
        sample_teaches(x->o->ctx, site->plan->call))
        llm_mark_inputs(x, at, rows, count, &inputs, &fresh);
    return 0;
}

/* ---- known answers --------------------------------------------------------------------------- */

/* Finds an answer that is known or pending. *own: the statement's own answer, to the same fields of
 * the call or to another call with the same prompt. *stored: an answer from the cache, its text in
 * `mem`. If the statement has no answer for the fields, *id becomes the prompt's identity. */
static bool look_up(op *o, const site_run *site, uint32_t input, llm_span **spans, int nspans,
                    answer_id *id, arena *mem, llm_answer **own, llm_answer *stored) {
    exec_ctx *ctx = o->ctx;
    const answer_memo *memo = ctx->llm->memo;
    cache *c = llm_answers_cache(o);
    bool dedup = ctx->settings->dedup;
    *own = dedup ? answer_memo_find(memo, inputs_key(site->in, site->plan->call, input)) : NULL;
    if (*own)
        return true;
    answer_identify(site->prompt, ctx->settings, spans, nspans, id);
    *own = dedup ? answer_memo_find_prompt(memo, site->prompt, id) : NULL;
    bool shortened = ctx->settings->llm_overflow != OVERFLOW_ERROR ||
                     site->plan->call->returns == RETURNS_VECTOR;
    return *own || (c && answer_load(c, id, site->prompt, shortened, mem, stored));
}

/* Uses the known answer, if there is one. Otherwise, if dedup is on, adds a pending answer to the
 * memo. That a call with ON ERROR failed is no answer for an equal prompt of a call without: it is
 * submitted again, for the error. */
bool llm_ask_is_known(llm_sender *x, int at, uint32_t input) {
    op *o = x->o;
    llm_state *s = o->state;
    site_run *site = &s->sites[at];
    llm_answer *own, stored;
    arena_reset(s->scratch); /* receives a stored answer's text, until keep_answer() copies it */
    bool known = look_up(o, site, input, x->spans, x->nspans, &x->id, s->scratch, &own, &stored);
    if (own && own->failed && site->plan->call->on_error == ON_ERROR_FAIL)
        return false;
    if (!own && o->ctx->settings->dedup) {
        site->answers[input] = answer_memo_expect(o->ctx->llm->memo);
        answer_memo_link(o->ctx->llm->memo, answer_key(site->prompt, &x->id), site->answers[input]);
    }
    if (!known)
        return false;
    if (own) {
        site->answers[input] = own;
        o->ctx->llm->figures.answers_repeated++;
        s->inputs_done++;
        return true;
    }
    keep_answer(o, site, input, &stored);
    watch_stored(o->ctx->llm, x->spans, x->nspans);
    o->ctx->llm->figures.answers_stored++;
    return true;
}

/* cached_share() looks up every input of a small call, and at least this many of a large one. */
enum { CACHED_SAMPLE = 64 };

/* Estimates, from some inputs, the share of a call's answers that are known. Prompts with late
 * fields are not known yet. */
static double cached_share(op *o, const site_run *site) {
    if (site->plan->nlate > 0)
        return 0;
    llm_span **spans = mem_alloc(sizeof *spans * (size_t)prompt_max_spans(site->prompt));
    answer_id id = {0};
    arena *mem = arena_new();
    uint32_t step = BASE_MAX(1u, site->in->count / CACHED_SAMPLE), tried = 0, known = 0;
    for (uint32_t i = 0; i < site->in->count; i += step, tried++) {
        llm_answer *own, stored;
        int nspans = prompt_spans(site->prompt, site->in, i,
                                  order_of_input(site->order, site->in, i), spans);
        known += look_up(o, site, i, spans, nspans, &id, mem, &own, &stored);
        arena_reset(mem);
    }
    arena_free(mem);
    buf_free(&id.identity);
    free(spans);
    return tried ? (double)known / tried : 0;
}

void llm_estimate_cached_share(op *o) {
    llm_state *s = o->state;
    for (int i = 0; i < s->nstages && llm_order_is_flexible(s); i++) {
        llm_stage *t = &s->stages[i];
        for (int k = 0; k < t->plan->nsites; k++)
            t->cached += cached_share(o, &s->sites[t->first_site + k]) / t->plan->nsites;
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void keep_failure(op *o, int at, uint32_t input, const err *reason) {
    llm_answer none = {.failed = true, .choice = -1, .text = str_from(reason->message)};
    keep_answer(o, &((llm_state *)o->state)->sites[at], input, &none);
}

void llm_ask_failed(llm_sender *x, int at, uint32_t input, const err *reason) {
    keep_failure(x->o, at, input, reason);
}

static void learn(site_run *site, const llm_event *event, int choice) {
    site->learned = true;
    site->facts.answers++;
    site->facts.output_tokens += (uint64_t)event->output_tokens;
    if (choice >= 0 && choice < (int)BASE_COUNT(site->facts.literal_counts))
        site->facts.literal_counts[choice]++;
}

static void store_answer(op *o, const site_run *site, uint32_t input, const llm_answer *a,
                         uint64_t computed_tokens) {
    llm_state *s = o->state;
    cache *c = llm_answers_cache(o);
    if (!c)
        return;
    answer_id id = {0};
    llm_span **spans = mem_alloc(sizeof *spans * (size_t)prompt_max_spans(site->prompt));
    int nspans = prompt_spans(site->prompt, site->in, input,
                              order_of_input(site->order, site->in, input), spans);
    answer_identify(site->prompt, o->ctx->settings, spans, nspans, &id);
    double rate = llm_engine_info(site->engine)->prefill_tok_s;
    answer_store(c, &id, site->prompt, a,
                 1e3 * (double)computed_tokens / (rate > 0 ? rate : NOMINAL_TOK_S));
    s->progress.answers_kept++;
    buf_free(&id.identity);
    free(spans);
}

int llm_ask_take_event(op *o, const llm_event *event, err *e) {
    llm_state *s = o->state;
    int at = (int)(event->tag >> 32);
    site_run *site = &s->sites[at];
    uint32_t input = (uint32_t)event->tag;
    if (event->failure) {
        if (site->plan->call->on_error == ON_ERROR_FAIL)
            return llm_complain(o, at, input, event->failure, e);
        keep_failure(o, at, input, event->failure);
        return 0;
    }
    llm_answer a = {.text = event->text,
                    .choice = event->choice,
                    .prob = event->prob,
                    .probs = event->probs,
                    .ended = event->finish == LLM_FINISH_LENGTH,
                    .shortened = event->shortened,
                    .output_tokens = (uint32_t)event->output_tokens};
    if (!s->mode->answers) {
        a = (llm_answer){.text = STR(""), .choice = -1, .failed = true};
        keep_answer(o, site, input, &a);
        return 0;
    }
    keep_answer(o, site, input, &a);
    double *probs = ARENA_ARRAY(s->scratch, double, site->plan->call->nliterals + 1);
    llm_answer decided = llm_decided(o, site, &a, probs);
    learn(site, event, decided.choice);
    watch_prompt(&s->progress, event, site->in, input,
                 order_of_input(site->order, site->in, input));
    if (site->plan->call->returns != RETURNS_VECTOR)
        utf8_copy(s->progress.last_answer, sizeof s->progress.last_answer, decided.text);
    store_answer(o, site, input, &a, (uint64_t)event->computed_tokens);
    return 0;
}

void llm_ask_remember(op *o) {
    llm_state *s = o->state;
    for (int i = 0; i < s->nsites; i++) {
        const site_run *site = &s->sites[i];
        /* Storing facts takes a commit, so old facts are not stored again. */
        if (!site->learned)
            continue;
        if (!s->mode->returns)
            o->ctx->llm->sampled[site->plan->call->number - 1] = site->facts;
        facts_remember(o->ctx, site->plan->call, llm_engine_info(site->engine)->fingerprint,
                       &site->facts);
    }
}
