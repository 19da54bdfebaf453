/*
 * llm_sample.c - asking a few rows before the plan is final, where the order of LLM filters hangs
 * on shares nobody knows yet.
 *
 *   plan -> rows below the model read -> a sample of them asked -> plan again, knowing -> the rest
 *
 * Invariant: a sampled answer is kept in the statement's memo and in the cache, so nothing is paid
 * twice; only which filter comes first follows from it. One filter alone, calls seen before, and
 * few rows are not sampled: there is nothing to choose, or to gain.
 */
#include "op_llm_int.h"

/* Rows below this many times the sample are simply asked. */
enum { WORTH_SAMPLING = 4 };

bool llm_sample_wants(exec_ctx *ctx, const plan_llm_use *u) {
    call_facts facts;
    const llm_engine *engine = ctx->llm->engines[u->call->number - 1];
    return engine && u->call->nliterals > 0 &&
           !(facts_for_plan(ctx, u->call, llm_engine_info(engine)->fingerprint, &facts) &&
             facts.answers > 0);
}

/* LLM nodes of the stack under `top`, and whether one has a call worth asking. */
static int count_nodes(exec_ctx *ctx, const plan_node *top, const plan_node *base, bool *worth) {
    int count = 0;
    *worth = false;
    for (const plan_node *n = top; n != base; n = n->left) {
        if (n->kind != PLAN_LLM)
            continue;
        count++;
        for (int i = 0; i < n->llm.nuses; i++)
            *worth = *worth || llm_sample_wants(ctx, &n->llm.uses[i]);
    }
    return count;
}

/* The operator itself asks a sample of its rows while the runtime says so: the same prompts as
 * later, whatever decides about them. */
static int sample_stack(exec_ctx *ctx, const plan_node *top, const plan_node *base, bool *learned,
                        err *e) {
    const rowset *rows = ctx->kept.ready[base->number];
    bool worth;
    op *o;
    batch *none;
    if (!rows || rowset_rows(rows) < WORTH_SAMPLING * ctx->settings->llm_sample ||
        count_nodes(ctx, top, base, &worth) < 2 || !worth)
        return 0;
    *learned = true;
    int status = op_build(ctx, top, &o, e);
    if (status)
        return status;
    status = op_next(o, &none, e);
    op_close(o);
    return status;
}

static int visit(exec_ctx *ctx, const plan_node *n, bool *learned, err *e) {
    if (!plan_has_llm(n))
        return 0;
    const plan_node *base = llm_stack_base(n);
    if (base) {
        int status = sample_stack(ctx, n, base, learned, e);
        return status ? status : visit(ctx, base, learned, e);
    }
    int status = visit(ctx, n->left, learned, e);
    return status ? status : visit(ctx, n->right, learned, e);
}

int llm_runtime_sample(exec_ctx *ctx, bool *learned, err *e) {
    *learned = false;
    if (!ctx->llm || ctx->count_only || ctx->settings->llm_sample <= 0 ||
        ctx->stmt->kind == STMT_WARM)
        return 0;
    ctx->llm->sample = ctx->settings->llm_sample;
    int status = visit(ctx, ctx->plan->root, learned, e);
    ctx->llm->sample = 0;
    return status;
}
