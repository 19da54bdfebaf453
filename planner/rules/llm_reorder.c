/*
 * llm_reorder.c - lets the LLM filters of a pipeline change places during the run.
 *
 * Their order is planned by the share of rows that each is expected to keep (llm_placement.c). Where
 * the first rows show other shares, the operator goes on in a better order (exec/llm/llm_rank.c).
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
