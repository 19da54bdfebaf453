/*
 * llm_runtime_int.h - what LLM operators of a statement share, as statements see it.
 */
#ifndef KVASIR_LLM_RUNTIME_INT_H
#define KVASIR_LLM_RUNTIME_INT_H

#include "core/exec_ctx_int.h"

/* Makes the statement's runtime and opens the engines of all calls; ctx->stmt and ctx->txn are set.
 * Never NULL: an error is reported by the operator that needs the engine. */
llm_runtime *llm_runtime_new(exec_ctx *ctx);
void llm_runtime_free(llm_runtime *r);
/* PIN, after its query ran: protects the blocks that it used from eviction, with a notice of how
 * many. */
int llm_runtime_pin(exec_ctx *ctx, str name, err *e);
/* Whether an engine was opened by a record about this machine that has turned out wrong
 * (llm_engine_outdated): the statement has to run again, without the answers that it found stored. */
bool llm_runtime_outdated(const llm_runtime *r);
/* Warns once per database if the cache has stopped storing what the model computes. */
void llm_runtime_report_cache_off(const llm_runtime *r);
/* Reads the examples of all calls while the transaction is open; ctx->plan is set. */
int llm_runtime_examples(exec_ctx *ctx, err *e);
/* Asks about `llm_sample` rows where the order of LLM filters depends on unknown selectivities;
 * *learned: the statement should be planned again. After snapshot_take (llm_sample.c). */
int llm_runtime_sample(exec_ctx *ctx, bool *learned, err *e);

/* Sets the functions of plan_env that know about models: token counts, learned selectivities and
 * answer lengths, field orders on record, measured rates (llm_facts.c). */
void llm_plan_hooks(exec_ctx *ctx, plan_env *env);

#endif
