/*
 * llm_count.c - EXPLAIN (TOKENS): what a statement's prompts cost under every strategy, counted
 * without the model.
 *
 * Invariant: the counts come from the engine's own scheduler run without a backend (count_only), so
 * they are what a cold run would compute, evictions included.
 */
#include <math.h>
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

/* One input after the other, all calls' questions about it together. */
static int submit_all(llm_session *session, const prompt *const *calls, int count,
                      const llm_inputs *in, const input_order *order, err *e) {
    int status = 0;
    llm_span **spans = mem_alloc(sizeof *spans * (size_t)prompt_max_spans(calls[0]));
    for (uint32_t k = 0; k < in->count; k++) {
        uint32_t input = order->psm.row_order[k];
        const uint8_t *fields = order->psm.field_order + (size_t)input * (size_t)in->nfields;
        for (int i = 0; i < count && status == 0; i++) {
            const prompt *p = calls[i];
            llm_request request = {.tag = input,
                                   .spans = spans,
                                   .nspans = prompt_spans(p, in, input, fields, spans),
                                   .guide = p->guide,
                                   .after = p->tmpl,
                                   .max_tokens = 1};
            status = llm_submit(session, &request, e);
        }
    }
    free(spans);
    return status;
}

static int run_session(const llm_session_options *options, const prompt *const *calls, int count,
                       const llm_inputs *in, const input_order *order, llm_stats *out, err *e) {
    llm_session *session;
    llm_event events[64];
    bool idle = false;
    int finished, status = llm_session_new(calls[0]->engine, options, &session, e);
    if (status)
        return status;
    status = submit_all(session, calls, count, in, order, e);
    while (status == 0 && !idle)
        status = llm_step(session, events, 64, &finished, &idle, e);
    llm_session_stats(session, out);
    llm_session_free(session);
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

/* Counts one strategy, less what the first `before`
 * calls alone cost; with the bound where it is the last. */
static int count_strategy(exec_ctx *ctx, const counted *c, bool last, const prompt *const *calls,
                          int before, int count, const llm_inputs *in, llm_stats *stats,
                          double *gap, err *e) {
    llm_stats less = {0};
    arena *mem = arena_new();
    input_order order = {0};
    llm_session_options options;
    bool bounded = last && in->count > 1 && in->nfields > 1;
    int status =
        order_solve_plain(ctx->settings, calls[0], in, c->strategy, bounded, mem, &order, e);
    session_options(ctx, &options);
    options.reuse = c->reuse;
    options.count_only = true;
    options.window = c->reuse == LLM_REUSE_FIFO ? FIFO_WINDOW : 0;
    if (status == 0)
        status = run_session(&options, calls, count, in, &order, stats, e);
    if (status == 0 && before > 0)
        status = run_session(&options, calls, before, in, &order, &less, e);
    stats->prompt_tokens -= less.prompt_tokens;
    stats->computed_tokens -= less.computed_tokens;
    if (status == 0 && bounded)
        status = order_gap(calls[0], in, &order, gap, e);
    arena_free(mem);
    return status;
}

int count_calls(exec_ctx *ctx, const prompt *const *calls, int before, int count,
                const llm_inputs *in, const plan_node *node, plan_actual *actual, err *e) {
    int status = 0;
    double share = answers_share(node->left), gap = NAN;
    size_t head = 0, n = BASE_COUNT(strategies);
    plan_tokens *out = ARENA_ARRAY(ctx->mem, plan_tokens, actual->ntokens + (int)n);
    for (int i = 0; i < actual->ntokens; i++)
        out[i] = actual->tokens[i];
    for (int i = before; i < count; i++)
        head += calls[i]->head_tokens;
    if (calls[0]->call->examples)
        n--; /* with examples one field order holds for all rows: fixed is all there is */
    for (size_t i = 0; i < n && status == 0; i++) {
        llm_stats stats = {0};
        status = count_strategy(ctx, &strategies[i], i + 1 == n, calls, before, count, in, &stats,
                                &gap, e);
        out[actual->ntokens++] = (plan_tokens){
            .strategy = strategies[i].name,
            .rows = scaled_count((uint64_t)in->needed_rows * (uint64_t)(count - before), share),
            .distinct_inputs =
                scaled_count((uint64_t)in->count * (uint64_t)(count - before), share),
            .prompt_tokens = scaled_count(stats.prompt_tokens, share),
            .head_tokens = scaled_count(head * in->count, share),
            .computed_tokens = scaled_count(stats.computed_tokens, share),
            .scaled = share < 1};
    }
    actual->tokens = out;
    if (gap > actual->bound)
        actual->bound = gap;
    return status;
}
