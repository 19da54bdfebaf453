/*
 * snapshot_int.h - reading tables before the model starts, so that no transaction is open meanwhile.
 */
#ifndef KVASIR_SNAPSHOT_INT_H
#define KVASIR_SNAPSHOT_INT_H

#include "core/exec_ctx_int.h"

/* Reads every maximal subtree of ctx->plan without LLM nodes into ctx->kept.ready. The plan has LLM
 * nodes; afterwards it needs no transaction. */
int snapshot_take(exec_ctx *ctx, err *e);

#endif
