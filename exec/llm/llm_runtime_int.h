/*
 * llm_runtime_int.h - what a statement asks of the LLM operators' shared state.
 */
#ifndef KVASIR_LLM_RUNTIME_INT_H
#define KVASIR_LLM_RUNTIME_INT_H

#include "core/exec_ctx_int.h"

/* Makes the statement's runtime: ctx->stmt and ctx->txn are set; engines of all calls are opened
 * here. Never NULL; what failed is reported by the LLM operator. */
llm_runtime *llm_runtime_new(exec_ctx *ctx);
void llm_runtime_free(llm_runtime *r);
/* PIN, after its query ran: keeps the blocks it used
 * from being evicted, with a notice of how many. */
int llm_runtime_pin(exec_ctx *ctx, str name, err *e);
/* One of its engines was opened on a record of this machine that does not hold any more (llm.h):
 * what was found stored counts as not found. */
bool llm_runtime_outdated(const llm_runtime *r);
/* Tells once a database that what the model computes is not kept any more, should it be so. */
void llm_runtime_report_cache_off(const llm_runtime *r);
/* Reads the examples of all calls while the transaction is open; ctx->plan is set. */
int llm_runtime_examples(exec_ctx *ctx, err *e);
/* Where the order of LLM filters depends on shares not known, asks about `llm_sample` rows;
 * *learned: plan again. After snapshot_take (llm_sample.c). */
int llm_runtime_sample(exec_ctx *ctx, bool *learned, err *e);

/* Hooks for plan_env: token counting, learned selectivities, field orders on record. */
void llm_plan_hooks(exec_ctx *ctx, plan_env *env);

#endif
