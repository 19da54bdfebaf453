/*
 * snapshot_int.h - reads tables before the model starts, so that no transaction is open while the
 * model works.
 */
#ifndef KVASIR_SNAPSHOT_INT_H
#define KVASIR_SNAPSHOT_INT_H

#include "core/exec_ctx_int.h"

/* Reads the largest subtrees of ctx->plan that have no LLM nodes into ctx->kept.ready. Called only
 * for plans with LLM nodes; afterwards the plan needs no transaction. */
int snapshot_take(exec_ctx *ctx, err *e);

#endif
