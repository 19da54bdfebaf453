/*
 * snapshot.c - reads the largest subtrees of a plan that have no LLM nodes, so that the transaction
 * can end before the model starts. Calls about constants, such as the EMBED('text') of a search, are
 * asked first: then they do not keep a subtree from being read as a whole.
 *
 * Invariant: after snapshot_take no operator of the plan uses the transaction. A shared subtree
 * without LLM nodes is kept once, for all its readers (op_shared.c).
 */
#include "op_int.h"
#include "snapshot_int.h"

static int keep(exec_ctx *ctx, const plan_node *p, err *e) {
    op *o;
    int status = op_build(ctx, p, &o, e);
    if (status)
        return status;
    rowset *rows = rowset_new(ctx, p->types, p->ncols);
    status = op_drain(o, rows, e);
    op_close(o);
    if (status)
        rowset_free(rows);
    else
        ctx->kept.ready[p->number] = rows;
    return status;
}

static int keep_shared(exec_ctx *ctx, const plan_node *p, err *e) {
    op *o;
    batch *first;
    if (ctx->kept.shared[p->shared.number])
        return 0;
    int status = op_build(ctx, p, &o, e);
    if (status)
        return status;
    status = op_next(o, &first, e); /* keeps all rows of the shared node */
    op_close(o);
    return status;
}

/* Whether the subtree reads working rows, which the rounds of a recursion change. */
static bool reads_rounds(const plan_node *p) {
    return p && (p->kind == PLAN_WORKING || reads_rounds(p->left) || reads_rounds(p->right));
}

/* Whether LLM nodes of the subtree remain to be run. */
static bool asks(const exec_ctx *ctx, const plan_node *p) {
    return p && !ctx->kept.ready[p->number] &&
           (p->kind == PLAN_LLM_PIPELINE || asks(ctx, p->left) || asks(ctx, p->right));
}

static bool reads_tables(const plan_node *p) {
    return p && (p->kind == PLAN_SCAN || p->kind == PLAN_FILE || p->kind == PLAN_SYSTEM ||
                 reads_tables(p->left) || reads_tables(p->right));
}

static bool embeds_only(const plan_node *p) {
    for (int i = 0; i < p->pipeline.nstages; i++)
        for (int k = 0; k < p->pipeline.stages[i].nsites; k++)
            if (p->pipeline.stages[i].sites[k].call->returns != RETURNS_VECTOR)
                return false;
    return true;
}

/* Vectors are made also where prompts are only counted or shown: which rows are near decides what is
 * counted. */
static int ask_constants(exec_ctx *ctx, const plan_node *p, err *e) {
    if (!p)
        return 0;
    if (plan_asks_constants(p)) {
        bool counts = ctx->count_only;
        if (counts && !embeds_only(p))
            return 0;
        ctx->count_only = false;
        int status = keep(ctx, p, e);
        ctx->count_only = counts;
        return status;
    }
    int status = ask_constants(ctx, p->left, e);
    return status ? status : ask_constants(ctx, p->right, e);
}

static bool can_keep(const exec_ctx *ctx, const plan_node *p, bool in_round) {
    return !asks(ctx, p) && !(in_round && reads_rounds(p));
}

static int visit(exec_ctx *ctx, const plan_node *p, bool in_round, err *e) {
    if (!p || ctx->kept.ready[p->number])
        return 0;
    if (can_keep(ctx, p, in_round))
        return p->kind == PLAN_SHARED ? keep_shared(ctx, p, e) : keep(ctx, p, e);
    int status = visit(ctx, p->left, in_round, e);
    return status ? status : visit(ctx, p->right, in_round || p->kind == PLAN_RECURSIVE, e);
}

int snapshot_take(exec_ctx *ctx, err *e) {
    bool first = reads_tables(ctx->plan->root);
    int status = first ? ask_constants(ctx, ctx->plan->root, e) : 0;
    return status ? status : visit(ctx, ctx->plan->root, false, e);
}
