/*
 * llm_reorder.c - lets LLM filters of one stack change places during the run.
 *
 * Their order is planned by what they are expected to keep (llm_placement.c); where the first rows
 * show otherwise, the operator goes on in the order that what it saw speaks for (exec/llm/llm_rank.c).
 * Invariant: answers and rows are the same in any order.
 */
#include "rules_int.h"

rel *rule_reorder(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, rule_reorder);
    if (x->kind != REL_LLM || x->llm.may_reorder)
        return x;
    rel *copy = rel_copy(r, x);
    copy->llm.may_reorder = true;
    return copy;
}
