/*
 * llm_runtime_int.h - what LLM operators of a statement share, as statements see it.
 */
#ifndef KVASIR_LLM_RUNTIME_INT_H
#define KVASIR_LLM_RUNTIME_INT_H

#include "core/exec_ctx_int.h"

/* Makes the statement's runtime and opens the engines of all calls. ctx->stmt and ctx->txn must be
 * set. Never returns NULL: if an engine cannot be opened, the operator that needs it reports the
 * error. */
llm_runtime *llm_runtime_new(exec_ctx *ctx);
void llm_runtime_free(llm_runtime *r);
/* For PIN, after its query ran: protects the blocks that the query used from eviction, and adds a
 * notice that says how many they are. */
int llm_runtime_pin(exec_ctx *ctx, str name, err *e);
/* Whether one of the statement's engines is outdated (llm_engine_outdated): what was recorded about
 * the model on this machine proved wrong. The statement must run again and must not use the stored
 * answers that it found. */
bool llm_runtime_outdated(const llm_runtime *r);
/* Warns once per database if the cache has stopped storing what the model computes. */
void llm_runtime_report_cache_off(const llm_runtime *r);
/* Reads the examples of all calls. The transaction must be open, and ctx->plan set. */
int llm_runtime_examples(exec_ctx *ctx, err *e);
/* Asks about `llm_sample` rows if the order of LLM filters depends on unknown selectivities
 * (llm_sample.c). *learned: whether the statement should be planned again. Called after
 * snapshot_take. */
int llm_runtime_sample(exec_ctx *ctx, bool *learned, err *e);

/* Appends what EXPLAIN (PROMPT) or EXPLAIN (TREE) prints; the statement has run with ctx->show. */
void llm_show_print(const exec_ctx *ctx, buf *out);

/* Sets the functions by which the planner asks about models (plan_env): token counts, learned
 * selectivities and answer lengths, recorded field orders, measured rates (llm_facts.c). */
void llm_plan_hooks(exec_ctx *ctx, plan_env *env);

#endif
