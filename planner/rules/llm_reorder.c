/*
 * llm_reorder.c - allows the LLM filters of a pipeline to change places during the run.
 *
 * llm_placement.c plans the order of the filters by estimates. If the first rows of a run
 * contradict the estimates, the operator continues in a better order (exec/llm/llm_rank.c).
 * Invariant: answers and rows are the same in any order.
 */
#include "core/pipeline_int.h"
#include "rules_int.h"

rel *rule_reorder(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, rule_reorder);
    if (x->kind != REL_PIPELINE || x->pipeline.details->may_reorder)
        return x;
    llm_pipeline details = *x->pipeline.details;
    details.may_reorder = true;
    return pipeline_with(r, x, &details);
}
