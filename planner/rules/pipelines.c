/*
 * pipelines.c - puts a REL_PIPELINE (core/pipeline_int.h) over each maximal chain of LLM nodes and
 * filters that one operator can run. This rewrite cannot be switched off, since later rules and
 * plan.c need these nodes.
 */
#include "core/pipeline_int.h"
#include "rules_int.h"

static void add_answers(id_set *ids, const rel *llm) {
    for (int i = 0; i < llm->llm.nsites; i++)
        id_set_add_answers(ids, &llm->llm.sites[i]);
}

static bool has_volatile_guard(const rel *llm) {
    for (int i = 0; i < llm->llm.nsites; i++)
        if (llm->llm.sites[i].guard && expr_is_volatile(llm->llm.sites[i].guard))
            return true;
    return false;
}

/* Whether the calls of `llm` cannot be in the same pipeline as the calls of `below` whose `answers`
 * they read: a calibrated call needs the texts of all its inputs before the first row is asked about,
 * and which rows share an input is not known if it depends on volatile values. */
static bool needs_all(const rel *llm, const rel *below, const id_set *answers) {
    bool unknown = has_volatile_guard(below);
    for (int i = 0; i < llm->llm.nsites; i++) {
        const llm_site *site = &llm->llm.sites[i];
        for (int f = 0; f < site->call->nfields; f++)
            if (expr_touches(site->args[f], answers) &&
                (unknown || llm_call_is_calibrated(site->call) || expr_is_volatile(site->args[f])))
                return true;
    }
    return false;
}

/* Returns the base of the pipeline whose chain begins at `top`. Sets *nstages to the number of LLM
 * nodes in the chain; 0: there is no pipeline at `top`. */
static rel *chain_base(rule_ctx *r, rel *top, int *nstages) {
    const rel *llm[PIPELINE_STAGES];
    rel *base = top;
    int n = 0;
    for (rel *x = top; (x->kind == REL_FILTER || x->kind == REL_LLM) && n < PIPELINE_STAGES;
         x = x->left) {
        if (x->kind != REL_LLM)
            continue;
        id_set answers = id_set_new(r->mem);
        add_answers(&answers, x);
        for (int i = 0; i < n; i++)
            if (needs_all(llm[i], x, &answers)) {
                *nstages = n;
                return base;
            }
        llm[n++] = x;
        base = x->left;
    }
    *nstages = n;
    return base;
}

rel *form_pipelines(rule_ctx *r, rel *x) {
    int nstages;
    rel *base = chain_base(r, x, &nstages);
    if (nstages == 0)
        return rel_each_input(r, x, form_pipelines);
    return pipeline_new(r, chain_over(r, x, base, form_pipelines(r, base)), nstages);
}
