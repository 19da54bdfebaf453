/*
 * llm_decide.c - decides a calibrated call's answers by p(answer) / prior(answer).
 *
 * Invariant: the memo and the cache hold what the model computed; priors (llm_calibrate.c) are
 * applied where answers are read.
 */
#include <math.h>
#include <stdlib.h>

#include "op_llm_int.h"

const double *llm_priors(const op *o, const llm_call *call) {
    return o->ctx->llm->priors[call->number - 1].of;
}

llm_answer llm_decided(const op *o, const site_run *site, const llm_answer *a, double *probs) {
    const llm_call *call = site->plan->call;
    const double *prior = llm_priors(o, call);
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
    if (llm_priors(o, call) == NULL)
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
