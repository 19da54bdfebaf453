/*
 * llm_calibrate.c - finds the priors by which typed answers are decided (llm_decide.c), so that an
 * answer that the model prefers whatever the input is does not win by that alone (batch calibration;
 * Zhou et al., arXiv 2309.17249).
 *
 *   prior(answer) = mean of p(answer) over a sample of the call's distinct inputs
 *
 * The geometric mean was as good on eight tasks (tests/bench/README.md), but it fails if a model is
 * sure of its answers and one of them is rare: it then gives that one to half of the inputs.
 * Content-free inputs (Zhao et al., arXiv 2102.09690) were worse.
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

/* ---- the record ------------------------------------------------------------------------------ */

/* The inputs from which priors are computed. */
typedef struct prior_sample {
    uint32_t *inputs; /* [count] distinct */
    size_t count;
    uint64_t digest; /* of the inputs' texts */
} prior_sample;

/* The catalog's record of a call: this, then the prior of each literal. */
typedef struct prior_record {
    uint64_t count, digest; /* of its prior_sample */
} prior_record;

/* Appends the names of the tables that the call's fields come from. */
static void append_tables(const op *o, const llm_call *call, buf *out) {
    const rel *node;
    const llm_site *u = rel_site_of_call(o->ctx->stmt->query, call, &node);
    for (int f = 0; u != NULL && f < call->nfields; f++) {
        int id = expr_first_column(u->args[f]);
        bool same;
        const rel *from = rel_column_source(node->left, &id, &same);
        buf_append_char(out, ' ');
        buf_append_str(out, from->kind == REL_SCAN ? from->scan.table->name : STR("-"));
    }
}

/* The key has everything that the priors depend on but the inputs themselves. */
static void record_key(const op *o, const site_run *site, buf *out) {
    const llm_call *call = site->plan->call;
    const llm_runtime *r = o->ctx->llm;
    buf b = {0};
    buf_printf(&b, "%d %d %s", (int)call->returns, site->prompt->data_first,
               site->prompt->tmpl->name);
    append_tables(o, call, &b);
    for (int i = 0; i < call->nliterals; i++) {
        buf_printf(&b, " %zu:", call->literals[i].n);
        buf_append_str(&b, call->literals[i]);
    }
    for (int i = 0; call->shown_labels && i < call->shown_labels->n; i++) {
        const llm_labels *rows = call->shown_labels;
        str more = rows->descriptions ? rows->descriptions[i] : (str){NULL, 0};
        buf_printf(&b, " %zu=%zu:", rows->labels[i].n, more.n);
        buf_append_str(&b, rows->labels[i]);
        buf_append_str(&b, more);
    }
    for (int i = 0; i < r->nexamples[call->number - 1]; i++) {
        const prompt_example *x = &r->examples[call->number - 1][i];
        for (int f = 0; f < call->nfields; f++) {
            buf_printf(&b, " %zu:", x->fields[f].n);
            buf_append_str(&b, x->fields[f]);
        }
        for (int k = 0; k < call->nexample_answers; k++) {
            if (call->field.n > 0)
                buf_printf(&b, " %.*s", (int)call->example_answers[k].n,
                           call->example_answers[k].p);
            buf_printf(&b, " = %zu:", x->answers[k].n);
            buf_append_str(&b, x->answers[k]);
        }
    }
    if (site->prompt->blends)
        buf_printf(&b, " blend %g %d", site->prompt->blend.share, (int)site->prompt->blend.rule);
    call_fact_key(call, "priors", true, llm_engine_info(site->engine)->fingerprint, out);
    buf_printf(out, "/%016llx", (unsigned long long)hash64(b.p, b.n, 0));
    buf_free(&b);
}

/* Returns the recorded priors if they come from the same sample as this statement's, or from a
 * larger one, of which this statement's inputs are taken to be a part. */
static call_priors recall(op *o, const site_run *site, const prior_sample *sample) {
    size_t n = (size_t)site->plan->call->nliterals;
    call_priors out = {0};
    prior_record record;
    arena *a = arena_new();
    buf key = {0};
    str bytes;
    bool found = false;
    err ignored = {0}; /* a record that cannot be read counts as none */
    record_key(o, site, &key);
    if (fact_get(o->ctx->db, buf_str(&key), a, &bytes, &found, &ignored) == 0 && found &&
        bytes.n == sizeof record + sizeof *out.of * n) {
        memcpy(&record, bytes.p, sizeof record);
        if (record.count > sample->count ||
            (record.count == sample->count && record.digest == sample->digest)) {
            out = (call_priors){ARENA_ARRAY(o->ctx->llm->mem, double, n + 1), record.count, true};
            memcpy(out.of, bytes.p + sizeof record, sizeof *out.of * n);
        }
    }
    buf_free(&key);
    arena_free(a);
    return out;
}

static void keep(op *o, const site_run *site, const prior_sample *sample,
                 const call_priors *priors) {
    prior_record record = {sample->count, sample->digest};
    buf key = {0}, bytes = {0};
    record_key(o, site, &key);
    buf_append(&bytes, &record, sizeof record);
    buf_append(&bytes, priors->of, sizeof *priors->of * (size_t)site->plan->call->nliterals);
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

/* Chooses up to LLM_PRIOR_INPUTS distinct inputs, by the smallest hashes of their texts. */
static prior_sample choose_sample(const llm_inputs *in, arena *mem) {
    hashed_input *all = arena_alloc(mem, sizeof *all * (size_t)BASE_MAX(in->count, 1u));
    prior_sample out = {.inputs = ARENA_ARRAY(mem, uint32_t, LLM_PRIOR_INPUTS)};
    for (uint32_t i = 0; i < in->count; i++) {
        uint64_t h = 1;
        for (int f = 0; f < in->nfields; f++) {
            uint32_t id = in->value[f][i];
            h = hash_mix(h, id == PSM_ABSENT ? 0 : in->fields[f].key[id].low);
        }
        all[i] = (hashed_input){h, i};
    }
    qsort(all, in->count, sizeof *all, by_hash);
    for (uint32_t i = 0; i < in->count && out.count < LLM_PRIOR_INPUTS; i++) {
        if (i > 0 && all[i].hash == all[i - 1].hash)
            continue; /* without dedup, inputs may be equal */
        out.inputs[out.count++] = all[i].input;
        out.digest = hash_mix(out.digest, all[i].hash);
    }
    return out;
}

/* Marks the inputs of the sampled rows only for calls without priors, whatever their guards are:
 * the sample must not depend on the answers of other calls. */
static int select_uncalibrated(llm_sender *x, int at, const int64_t *rows, int64_t count, err *e) {
    llm_state *s = x->o->state;
    const site_run *site = &s->sites[at];
    uint64_t inputs, fresh = 0;
    (void)e;
    if (llm_call_is_calibrated(site->plan->call) && llm_priors(x->o, site->plan->call) == NULL)
        llm_mark_inputs(x, at, rows, count, &inputs, &fresh);
    s->stages[x->stage].inputs_asked += fresh;
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

/* Returns the mean of the probabilities of the sampled inputs' answers; no priors if a server
 * answered one without the probabilities of all literals. */
static call_priors priors_of_sample(op *o, const site_run *site, const uint32_t *inputs,
                                    size_t count) {
    static const double floor = 1e-9; /* of a prior, so that quotients are finite */
    int n = site->plan->call->nliterals;
    double *out = ARENA_ARRAY(o->ctx->llm->mem, double, n + 1);
    size_t answers = 0;
    for (size_t k = 0; k < count; k++) {
        const llm_answer *a = site->answers[inputs[k]];
        if (a == NULL || a->pending || a->failed)
            continue;
        if (a->probs == NULL)
            return (call_priors){NULL, 0, false};
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
    int64_t nrows;
    int status = 0;
    bool fresh = call->calibrate == CALIBRATE_FRESH;
    size_t least = call->calibrate == CALIBRATE_AUTO ? LLM_AUTO_INPUTS : 1;
    const prior_sample sample = choose_sample(site->in, mem);
    call_priors priors = {0};
    if (!fresh)
        priors = recall(o, site, &sample);
    if (priors.of == NULL && sample.count >= least) {
        const llm_driver *usual = s->sender.driver;
        llm_driver driver = *usual;
        driver.select = select_uncalibrated;
        s->sender.driver = &driver;
        const int64_t *rows = rows_of_inputs(site->in, sample.inputs, sample.count, mem, &nrows);
        status = llm_run_sender(o, site->stage, 0, rows, nrows, e);
        s->sender.driver = usual;
        if (status == 0)
            priors = priors_of_sample(o, site, sample.inputs, sample.count);
        if (status == 0 && priors.of != NULL && !fresh)
            keep(o, site, &sample, &priors);
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
        if (llm_call_is_calibrated(call) && llm_priors(o, call) == NULL)
            status = calibrate(o, site, e);
    }
    return status;
}
