/*
 * llm_figures.c - sums and differences of the counters of LLM work.
 */
#include "storage/base.h"

void llm_figures_add(llm_figures *sum, const llm_figures *more) {
    llm_figures_add_since(sum, &(llm_figures){0}, more);
}

void llm_figures_add_since(llm_figures *sum, const llm_figures *before, const llm_figures *now) {
#define ADD_COUNTER(name, label, always, key) sum->name += now->name - before->name;
#define ADD_TIME(name) sum->name += now->name - before->name;
    LLM_COUNTERS(ADD_COUNTER)
    LLM_TIMES(ADD_TIME)
#undef ADD_COUNTER
#undef ADD_TIME
}

double llm_hit_rate(const llm_figures *f) {
    return f->prompt_tokens ? 1 - (double)f->computed_tokens / (double)f->prompt_tokens : 0;
}
