/*
 * plan_calls_int.h - which parts of a plan call the model or read its answers.
 */
#ifndef KVASIR_PLAN_CALLS_INT_H
#define KVASIR_PLAN_CALLS_INT_H

#include "core/exec_ctx_int.h"

/* Whether an LLM node is in the subtree; p may be NULL. */
bool plan_has_llm(const plan_node *p);
/* Whether a node is a filter that reads LLM answers. EXPLAIN (TOKENS) has none and passes all rows. */
bool plan_filters_answers(const plan_node *n);
/* Whether a join reads its right input even though the left has no rows: where calls are counted or
 * warmed and not answered, the rows of a left input with calls are not known. */
bool right_side_must_drain(const exec_ctx *ctx, const plan_node *join);

#endif
