/*
 * llm_calibrate.c - decides typed answers by p(answer) / prior(answer), so that an answer that the
 * model prefers whatever the input is does not win by that alone (batch calibration; Zhou et al.,
 * arXiv 2309.17249).
 *
 *   prior(answer) = mean of p(answer) over a sample of the call's distinct inputs
 *
 * The geometric mean was as good on eight tasks (tests/bench/README.md), but not if a model is sure
 * of its answers and one of them is rare: the threshold is then in the middle of the others'
 * probabilities. Content-free inputs (Zhao et al., arXiv 2102.09690) were worse.
 *
 * Invariant: priors are a function of statement, data, settings and the record alone, like field
 * orders (llm_order.c). The sample is chosen by hashes of the inputs' texts among all inputs of the
 * base, before any filter or limit. The memo and the cache hold what the model computed; priors are
 * applied where answers are read.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"

enum { PRIORS_SHOWN = 8 };

/* ---- deciding -------------------------------------------------------------------------------- */

static const double *priors_of(const op *o, const llm_call *call) {
    return o->ctx->llm->priors[call->number - 1].of;
}

llm_answer llm_decided(const op *o, const site_run *site, const llm_answer *a, double *probs) {
    const llm_call *call = site->plan->call;
    const double *prior = priors_of(o, call);
    llm_answer out = *a;
    double sum = 0;
    if (prior == NULL || a->probs == NULL)
        return out;
    for (int i = 0; i < call->nliterals; i++) {
        probs[i] = a->probs[i] / prior[i];
        sum += probs[i];
    }
    if (!(sum > 0 && isfinite(sum)))
        return out;
    out.choice = 0;
    for (int i = 0; i < call->nliterals; i++) {
        probs[i] /= sum;
        out.choice = probs[i] > probs[out.choice] ? i : out.choice;
    }
    out.probs = probs;
    out.prob = probs[out.choice];
    out.text = call->literals[out.choice];
    return out;
}

uint32_t llm_count_calibrated(const op *o, const site_run *site) {
    uint32_t changed = 0;
    const llm_call *call = site->plan->call;
    if (priors_of(o, call) == NULL)
        return 0;
    double *probs = mem_alloc(sizeof *probs * (size_t)call->nliterals);
    for (uint32_t i = 0; i < site->in->count; i++) {
        const llm_answer *a = site->answers[i];
        if (a != NULL && !a->pending && !a->failed)
            changed += llm_decided(o, site, a, probs).choice != a->choice;
    }
    free(probs);
    return changed;
}

/* ---- the record ------------------------------------------------------------------------------ */

/* The catalog's record of a call: the number of inputs in the sample, then the priors. The key has
 * everything that the priors depend on but the inputs. */
static void record_key(const op *o, const site_run *site, buf *out) {
    const llm_call *call = site->plan->call;
    const llm_runtime *r = o->ctx->llm;
    buf b = {0};
    buf_printf(&b, "%d %s", (int)call->returns, site->prompt->tmpl->name);
    for (int i = 0; i < call->nliterals; i++) {
        buf_printf(&b, " %zu:", call->literals[i].n);
        buf_append_str(&b, call->literals[i]);
    }
    for (int i = 0; i < r->nexamples[call->number - 1]; i++) {
        const prompt_example *x = &r->examples[call->number - 1][i];
        for (int f = 0; f < call->nfields; f++) {
            buf_printf(&b, " %zu:", x->fields[f].n);
            buf_append_str(&b, x->fields[f]);
        }
        buf_printf(&b, " = %zu:", x->answer.n);
        buf_append_str(&b, x->answer);
    }
    call_fact_key(call, "priors", llm_engine_info(site->engine)->fingerprint, out);
    buf_printf(out, "/%016llx", (unsigned long long)hash64(b.p, b.n, 0));
    buf_free(&b);
}

/* Returns the recorded priors, unless they come from less than half as many inputs as a sample of
 * this statement's would have. */
static call_priors recall(op *o, const site_run *site, size_t sample) {
    size_t n = (size_t)site->plan->call->nliterals;
    call_priors out = {0};
    double *record = mem_alloc(sizeof *record * (n + 1));
    arena *a = arena_new();
    buf key = {0};
    str bytes;
    bool found = false;
    err ignored = {0}; /* a record that cannot be read counts as none */
    record_key(o, site, &key);
    if (fact_get(o->ctx->db, buf_str(&key), a, &bytes, &found, &ignored) == 0 && found &&
        bytes.n == sizeof *record * (n + 1)) {
        memcpy(record, bytes.p, bytes.n);
        if (record[0] >= (double)sample / 2) {
            out = (call_priors){ARENA_ARRAY(o->ctx->llm->mem, double, n + 1), (size_t)record[0],
                                true};
            memcpy(out.of, record + 1, sizeof *out.of * n);
        }
    }
    buf_free(&key);
    arena_free(a);
    free(record);
    return out;
}

static void keep(op *o, const site_run *site, const call_priors *priors) {
    size_t n = (size_t)site->plan->call->nliterals;
    double count = (double)priors->sample;
    buf key = {0}, bytes = {0};
    record_key(o, site, &key);
    buf_append(&bytes, &count, sizeof count);
    buf_append(&bytes, priors->of, sizeof *priors->of * n);
    fact_put(o->ctx, buf_str(&key), buf_str(&bytes));
    buf_free(&bytes);
    buf_free(&key);
}

/* ---- the sample ------------------------------------------------------------------------------ */

typedef struct hashed_input {
    uint64_t hash;
    uint32_t input;
} hashed_input;

static int by_hash(const void *a, const void *b) {
    const hashed_input *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return x->input < y->input ? -1 : x->input > y->input;
}

/* Returns up to LLM_PRIOR_INPUTS distinct inputs, by the smallest hashes of their texts, and sets
 * *count to their number. */
static uint32_t *choose_sample(const llm_inputs *in, arena *mem, size_t *count) {
    hashed_input *all = arena_alloc(mem, sizeof *all * (size_t)BASE_MAX(in->count, 1u));
    uint32_t *out = ARENA_ARRAY(mem, uint32_t, LLM_PRIOR_INPUTS);
    *count = 0;
    for (uint32_t i = 0; i < in->count; i++) {
        uint64_t h = 1;
        for (int f = 0; f < in->nfields; f++) {
            uint32_t id = in->value[f][i];
            h = hash_mix(h, id == PSM_ABSENT ? 0 : in->fields[f].key[id].low);
        }
        all[i] = (hashed_input){h, i};
    }
    qsort(all, in->count, sizeof *all, by_hash);
    for (uint32_t i = 0; i < in->count && *count < LLM_PRIOR_INPUTS; i++)
        if (i == 0 || all[i].hash != all[i - 1].hash) /* without dedup, inputs may be equal */
            out[(*count)++] = all[i].input;
    return out;
}

/* Marks the inputs of the sampled rows only for calls without priors, whatever their guards are:
 * the sample must not depend on the answers of other calls. */
static int select_uncalibrated(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e) {
    const site_run *site = &((llm_state *)x->o->state)->sites[at];
    uint64_t inputs, fresh = 0;
    (void)e;
    if (llm_call_is_calibrated(site->plan->call) && priors_of(x->o, site->plan->call) == NULL)
        llm_mark_inputs(x, at, rows, count, &inputs, &fresh);
    x->o->ctx->llm->figures.distinct_inputs += fresh;
    return 0;
}

/* Returns, ascending, the first row of each of the inputs. */
static int64_t *rows_of_inputs(const llm_inputs *in, const uint32_t *inputs, size_t count,
                               arena *mem, int64_t *nrows) {
    uint8_t *wanted = ARENA_ARRAY(mem, uint8_t, in->count + 1);
    int64_t *rows = ARENA_ARRAY(mem, int64_t, count + 1);
    *nrows = 0;
    for (size_t i = 0; i < count; i++)
        wanted[inputs[i]] = 1;
    for (int64_t r = 0; r < in->rows && *nrows < (int64_t)count; r++) {
        uint32_t input = in->of_row[r];
        if (input != NO_INPUT && wanted[input]) {
            wanted[input] = 0;
            rows[(*nrows)++] = r;
        }
    }
    return rows;
}

/* Returns the mean of the probabilities of the sampled inputs' answers. */
static call_priors priors_of_sample(op *o, const site_run *site, const uint32_t *inputs,
                                    size_t count) {
    static const double floor = 1e-9; /* of a prior, so that quotients are finite */
    int n = site->plan->call->nliterals;
    double *out = ARENA_ARRAY(o->ctx->llm->mem, double, n + 1);
    size_t answers = 0;
    for (size_t k = 0; k < count; k++) {
        const llm_answer *a = site->answers[inputs[k]];
        if (a == NULL || a->pending || a->probs == NULL)
            continue;
        answers++;
        for (int i = 0; i < n; i++)
            out[i] += a->probs[i];
    }
    for (int i = 0; i < n; i++)
        out[i] = BASE_MAX(out[i] / (double)BASE_MAX(answers, (size_t)1), floor);
    return (call_priors){answers > 0 ? out : NULL, answers, false};
}

static int calibrate(op *o, site_run *site, err *e) {
    llm_state *s = o->state;
    const llm_call *call = site->plan->call;
    arena *mem = arena_new_in(o->ctx->space);
    size_t count;
    int64_t nrows;
    int status = 0;
    bool fresh = call->calibrate == CALIBRATE_FRESH;
    size_t least = call->calibrate == CALIBRATE_AUTO ? LLM_AUTO_INPUTS : 1;
    const uint32_t *inputs = choose_sample(site->in, mem, &count);
    call_priors priors = {0};
    if (!fresh)
        priors = recall(o, site, count);
    if (priors.of == NULL && count >= least) {
        const llm_driver *usual = s->sender.driver;
        llm_driver driver = *usual;
        driver.select = select_uncalibrated;
        s->sender.driver = &driver;
        const int64_t *rows = rows_of_inputs(site->in, inputs, count, mem, &nrows);
        status = llm_send_stage(&s->sender, site->stage, 0, rows, nrows, e);
        s->sender.driver = usual;
        if (status == 0)
            priors = priors_of_sample(o, site, inputs, count);
        if (status == 0 && priors.of != NULL && !fresh)
            keep(o, site, &priors);
    }
    o->ctx->llm->priors[call->number - 1] = priors;
    arena_free(mem);
    return status;
}

str llm_calibration_text(op *o, int first, int end) {
    llm_state *s = o->state;
    buf b = {0};
    for (int i = first; i < end; i++) {
        const site_run *site = &s->sites[i];
        const llm_call *call = site->plan->call;
        const call_priors *p = &o->ctx->llm->priors[call->number - 1];
        double sum = 0;
        for (int k = 0; p->of && k < call->nliterals; k++)
            sum += p->of[k];
        if (p->of == NULL)
            continue;
        buf_printf(&b, "%s#%d by", b.n > 0 ? "; " : "", call->number);
        for (int k = 0; k < call->nliterals && k < PRIORS_SHOWN; k++)
            buf_printf(&b, "%s %.*s %.2f", k > 0 ? "," : "", (int)call->literals[k].n,
                       call->literals[k].p, p->of[k] / sum);
        buf_printf(&b, "%s (%zu inputs%s), %u answers changed",
                   call->nliterals > PRIORS_SHOWN ? ", …" : "", p->sample,
                   p->recorded ? ", recorded" : "", llm_count_calibrated(o, site));
    }
    str text = str_copy(o->ctx->mem, buf_str(&b));
    buf_free(&b);
    return text;
}

int llm_calibrate(op *o, err *e) {
    llm_state *s = o->state;
    int status = 0;
    for (int i = 0; i < s->nsites && status == 0; i++) {
        site_run *site = &s->sites[i];
        const llm_call *call = site->plan->call;
        if (call->calibrate_given && call->nliterals == 0)
            return err_set_at(e, ERR_BIND, call->pos, call->len,
                              "calibrate needs a call that has a list of answers: ENUM, BOOLEAN "
                              "or INTEGER BETWEEN");
        if (llm_call_is_calibrated(call) && priors_of(o, call) == NULL)
            status = calibrate(o, site, e);
    }
    return status;
}
