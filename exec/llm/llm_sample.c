/*
 * llm_sample.c - asks about a few rows before the plan is final, if the order of LLM filters
 * depends on selectivities that are not known yet.
 *
 *   plan -> read the rows below the calls -> ask about a sample -> plan again -> ask about the rest
 *
 * Invariant: the sample's answers are kept in the statement's memo and in the cache, so no prompt
 * is computed twice; they decide only which filter comes first. A single filter, calls known from
 * earlier runs, and small inputs are not sampled.
 */
#include "llm_int.h"

/* A pipeline is not sampled if it has fewer input rows than this many times llm_sample. */
enum { WORTH_SAMPLING = 4 };

/* Whether two stages that remove rows may change places. */
static bool order_is_open(const plan_node *pipeline) {
    const plan_stage *stages = pipeline->pipeline.stages;
    for (int i = 0; i < pipeline->pipeline.nstages; i++)
        for (int k = 0; k < i; k++)
            if (stages[i].nfilters && stages[k].nfilters && !(stages[i].after >> k & 1))
                return true;
    return false;
}

/* Whether the order of the stages depends on selectivities that are not known. */
static bool is_worth_sampling(exec_ctx *ctx, const plan_node *pipeline) {
    if (!order_is_open(pipeline))
        return false;
    for (int i = 0; i < pipeline->pipeline.nstages; i++)
        for (int k = 0; k < pipeline->pipeline.stages[i].nsites; k++)
            if (pipeline->pipeline.stages[i].sites[k].nlate == 0 &&
                sample_teaches(ctx, pipeline->pipeline.stages[i].sites[k].call))
                return true;
    return false;
}

/* Runs the operator itself in sample mode (llm_runtime.sample), so the prompts are the same as in
 * the run. */
static int sample_pipeline(exec_ctx *ctx, const plan_node *n, bool *learned, err *e) {
    const rowset *rows = ctx->kept.ready[n->left->number];
    op *o;
    batch *none;
    if (!rows || rowset_rows(rows) < WORTH_SAMPLING * ctx->settings->llm_sample ||
        !is_worth_sampling(ctx, n))
        return 0;
    *learned = true;
    int status = op_build(ctx, n, &o, e);
    if (status)
        return status;
    status = op_next(o, &none, e);
    op_close(o);
    return status;
}

static int visit(exec_ctx *ctx, const plan_node *n, bool *learned, err *e) {
    if (!plan_has_llm(n))
        return 0;
    int status = n->kind == PLAN_LLM_PIPELINE ? sample_pipeline(ctx, n, learned, e) : 0;
    if (status == 0)
        status = visit(ctx, n->left, learned, e);
    return status ? status : visit(ctx, n->right, learned, e);
}

int llm_runtime_sample(exec_ctx *ctx, bool *learned, err *e) {
    *learned = false;
    if (!ctx->llm || !calls_are_answered(ctx) || ctx->settings->llm_sample <= 0)
        return 0;
    ctx->llm->sample = ctx->settings->llm_sample;
    int status = visit(ctx, ctx->plan->root, learned, e);
    ctx->llm->sample = 0;
    return status;
}
