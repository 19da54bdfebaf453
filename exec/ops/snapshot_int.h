/*
 * snapshot_int.h - reading ahead, so that no transaction is open while the model works.
 */
#ifndef KVASIR_SNAPSHOT_INT_H
#define KVASIR_SNAPSHOT_INT_H

#include "core/exec_ctx_int.h"

/* Reads every maximal subtree without LLM nodes of ctx->plan, which has some, into ctx->kept.ready,
 * so that the transaction can end. */
int snapshot_take(exec_ctx *ctx, err *e);

#endif
