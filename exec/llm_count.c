/*
 * llm_count.c - EXPLAIN (TOKENS): what a statement's prompts cost under every strategy, counted
 * without the model.
 *
 * Invariant: the counts come from the engine's own scheduler run without a backend (count_only), so
 * they are what a cold run would compute, evictions included.
 */
#include <stdlib.h>

#include "llm_int.h"

typedef struct counted {
    const char *name;
    psm_strategy strategy;
    llm_reuse reuse;
} counted;

static const counted strategies[] = {
    {"no cache", PSM_OFF, LLM_REUSE_NONE},
    {"FIFO", PSM_OFF, LLM_REUSE_FIFO},
    {"fixed", PSM_FIXED, LLM_REUSE_TREE},
    {"grouped", PSM_GROUPED, LLM_REUSE_TREE},
};

/* FIFO as DESIGN 7 has it: 64 requests in sight, and KV memory for as many of the longest. */
enum { FIFO_WINDOW = 64 };

static int run_session(llm_engine *engine, const llm_session_options *options, const prompt *p,
                       const llm_inputs *in, const input_order *order, llm_stats *out, err *e) {
    llm_session *session;
    llm_event events[64];
    bool idle = false;
    int count, status = llm_session_new(engine, options, &session, e);
    if (status)
        return status;
    llm_span **spans = mem_alloc(sizeof *spans * (size_t)prompt_max_spans(p));
    for (uint32_t k = 0; k < in->count && status == 0; k++) {
        uint32_t input = order->psm.row_order[k];
        const uint8_t *fields = order->psm.field_order + (size_t)input * (size_t)in->nfields;
        llm_request request = {.tag = input,
                               .spans = spans,
                               .nspans = prompt_spans(p, in, input, fields, spans),
                               .guide = p->guide,
                               .after = p->tmpl,
                               .max_tokens = 1};
        status = llm_submit(session, &request, e);
    }
    while (status == 0 && !idle)
        status = llm_step(session, events, 64, &count, &idle, e);
    llm_session_stats(session, out);
    llm_session_free(session);
    free(spans);
    return status;
}

/* Whether column `slot` of node n carries an LLM answer, or is made from one. */
static bool slot_is_answer(const plan_node *n, int slot);

static bool expr_reads_answer(const expr *x, const plan_node *in) {
    if (x->kind == EXPR_COLUMN)
        return slot_is_answer(in, x->column.slot);
    for (int i = 0; i < x->nargs; i++)
        if (expr_reads_answer(x->args[i], in))
            return true;
    return false;
}

static bool slot_is_answer(const plan_node *n, int slot) {
    const plan_node *in = n->left;
    if (!in || slot < 0)
        return false;
    switch (n->kind) {
    case PLAN_LLM:
        return slot >= in->ncols || slot_is_answer(in, slot);
    case PLAN_PROJECT:
        return expr_reads_answer(n->project.exprs[slot], in);
    case PLAN_GROUP:
        if (slot < n->group.nkeys)
            return expr_reads_answer(n->group.keys[slot], in);
        return n->group.aggs[slot - n->group.nkeys].arg &&
               expr_reads_answer(n->group.aggs[slot - n->group.nkeys].arg, in);
    case PLAN_HASH_JOIN:
    case PLAN_LOOP_JOIN:
        if (slot < in->ncols)
            return slot_is_answer(in, slot);
        return slot - in->ncols < n->right->ncols && slot_is_answer(n->right, slot - in->ncols);
    default:
        return slot < in->ncols && slot_is_answer(in, slot);
    }
}

bool count_passes_filter(const plan_node *n) {
    return n->kind == PLAN_FILTER && expr_reads_answer(n->filter.predicate, n->left);
}

/* The share of rows that the filters on answers below n are expected to keep. */
static double answers_share(const plan_node *n) {
    double share = 1;
    for (; n; n = n->left)
        if (count_passes_filter(n) && n->left->estimate.rows > 0)
            share *= BASE_MIN(1, n->estimate.rows / n->left->estimate.rows);
    return share;
}

static uint64_t scaled_count(uint64_t n, double share) {
    return (uint64_t)((double)n * share + 0.5);
}

int count_use(exec_ctx *ctx, const plan_llm_use *use, const prompt *p, const llm_inputs *in,
              const plan_node *node, plan_actual *actual, err *e) {
    int status = 0;
    double share = answers_share(node->left);
    plan_tokens *out =
        ARENA_ARRAY(ctx->mem, plan_tokens, actual->ntokens + (int)BASE_COUNT(strategies));
    for (int i = 0; i < actual->ntokens; i++)
        out[i] = actual->tokens[i];
    for (size_t i = 0; i < BASE_COUNT(strategies) && status == 0; i++) {
        const counted *c = &strategies[i];
        bool one_order = use->call->examples != NULL;
        if (c->strategy == PSM_GROUPED && one_order)
            continue; /* with examples one field order holds for all rows: fixed is all there is */
        arena *mem = arena_new();
        input_order order = {0};
        llm_session_options options;
        llm_stats stats = {0};
        status = order_solve_plain(p, in, c->strategy, false, mem, &order, e);
        session_options(ctx, &options);
        options.reuse = c->reuse;
        options.count_only = true;
        options.window = c->reuse == LLM_REUSE_FIFO ? FIFO_WINDOW : 0;
        if (status == 0)
            status = run_session(p->engine, &options, p, in, &order, &stats, e);
        out[actual->ntokens++] =
            (plan_tokens){.strategy = c->name,
                          .rows = scaled_count((uint64_t)in->needed_rows, share),
                          .distinct_inputs = scaled_count(in->count, share),
                          .prompt_tokens = scaled_count(stats.prompt_tokens, share),
                          .head_tokens = scaled_count(p->head_tokens * in->count, share),
                          .computed_tokens = scaled_count(stats.computed_tokens, share),
                          .scaled = share < 1};
        arena_free(mem);
    }
    actual->tokens = out;
    return status;
}
