/*
 * llm_sample.c - asking a few rows before the plan is final, where the order of LLM filters hangs on shares nobody knows yet.
 *
 *   plan -> rows below the model read -> a sample of them asked -> plan again, knowing -> the rest
 *
 * Invariant: a sampled answer is kept in the statement's memo and in the cache, so nothing is paid twice; only which filter comes first
 * follows from it. One filter alone, calls seen before, and few rows are not sampled: there is nothing to choose, or to gain.
 */
#include "llm_int.h"

/* Rows below this many times the sample are simply asked. */
enum { WORTH_SAMPLING = 4, MAX_STACK = 32 };

/* LLM nodes over one another with filters alone between them, top first, and what they stand on. */
typedef struct filter_stack {
    const plan_node *nodes[MAX_STACK];
    int count;
    const plan_node *base;
} filter_stack;

static filter_stack stack_at(const plan_node *n) {
    filter_stack s = {.count = 0};
    for (; n->kind == PLAN_LLM || n->kind == PLAN_FILTER; n = n->left)
        if (n->kind == PLAN_LLM && s.count < MAX_STACK)
            s.nodes[s.count++] = n;
    s.base = n;
    return s;
}

/* Whether x reads the base's columns alone: slots are the same up the stack. */
static bool reads_base(const expr *x, const plan_node *base) {
    if (x->kind == EXPR_COLUMN)
        return x->column.slot < base->ncols;
    for (int i = 0; i < x->nargs; i++)
        if (!reads_base(x->args[i], base))
            return false;
    return true;
}

static bool worth_asking(exec_ctx *ctx, const plan_llm_use *u, const plan_node *base) {
    call_facts facts;
    const llm_engine *engine = ctx->llm->engines[u->call->number - 1];
    if (!engine || u->call->nliterals == 0 ||
        (facts_for_plan(ctx, u->call, llm_engine_info(engine)->fingerprint, &facts) &&
         facts.answers > 0))
        return false;
    for (int f = 0; f < u->call->nfields; f++)
        if (!reads_base(u->args[f], base))
            return false;
    return !u->guard || reads_base(u->guard, base);
}

/* One call over the base's rows; the operator asks a sample of them while the runtime says so. */
static int ask_sample(exec_ctx *ctx, const plan_llm_use *u, const plan_node *like,
                      const plan_node *base, err *e) {
    plan_node *node = ARENA_NEW(ctx->mem, plan_node);
    plan_llm_use *use = ARENA_NEW(ctx->mem, plan_llm_use);
    op *o;
    batch *first;
    *use = *u;
    use->out_slot = base->ncols;
    use->prob_slot = -1;
    *node = *like;
    node->left = (plan_node *)(uintptr_t)base;
    node->right = NULL;
    node->ncols = base->ncols + 1;
    node->types = ARENA_ARRAY(ctx->mem, value_type, node->ncols);
    for (int i = 0; i < base->ncols; i++)
        node->types[i] = base->types[i];
    node->types[base->ncols] = llm_call_type(u->call);
    node->llm.nuses = 1;
    node->llm.uses = use;
    node->llm.wanted = 0;
    int status = op_build(ctx, node, &o, e);
    if (status == 0)
        status = op_next(o, &first, e);
    op_close(o);
    return status;
}

static int sample_stack(exec_ctx *ctx, const filter_stack *s, bool *learned, err *e) {
    const rowset *rows = ctx->ready[s->base->number];
    int status = 0;
    if (s->count < 2 || !rows || rowset_rows(rows) < WORTH_SAMPLING * ctx->settings->llm_sample)
        return 0;
    for (int i = 0; i < s->count; i++)
        for (int k = 0; k < s->nodes[i]->llm.nuses && status == 0; k++) {
            const plan_llm_use *u = &s->nodes[i]->llm.uses[k];
            if (!worth_asking(ctx, u, s->base))
                continue;
            status = ask_sample(ctx, u, s->nodes[i], s->base, e);
            *learned = true;
        }
    return status;
}

static int visit(exec_ctx *ctx, const plan_node *n, bool *learned, err *e) {
    if (!snapshot_has_calls(n))
        return 0;
    filter_stack s = stack_at(n);
    int status = s.count ? sample_stack(ctx, &s, learned, e) : 0;
    if (s.base != n)
        return status ? status : visit(ctx, s.base, learned, e);
    status = visit(ctx, n->left, learned, e);
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
