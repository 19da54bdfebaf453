/*
 * llm_count.c - EXPLAIN (TOKENS): what a statement's prompts cost under every strategy, counted without the model.
 *
 * Invariant: the counts come from the engine's own scheduler run without a backend (count_only), so they are what a cold run would
 * compute, evictions included.
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

static int run_session(llm_engine *engine, const llm_session_options *options, const prompt *p, const llm_inputs *in,
                       const input_order *order, llm_stats *out, err *e) {
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

int count_use(exec_ctx *ctx, const plan_llm_use *use, const prompt *p, const llm_inputs *in, bool scaled, plan_actual *actual,
              err *e) {
    int status = 0;
    plan_tokens *out = ARENA_ARRAY(ctx->mem, plan_tokens, actual->ntokens + (int)BASE_COUNT(strategies));
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
        out[actual->ntokens++] = (plan_tokens){.strategy = c->name,
                                               .rows = (uint64_t)in->needed_rows,
                                               .distinct_inputs = in->count,
                                               .prompt_tokens = stats.prompt_tokens,
                                               .head_tokens = p->head_tokens * in->count,
                                               .computed_tokens = stats.computed_tokens,
                                               .scaled = scaled};
        arena_free(mem);
    }
    actual->tokens = out;
    return status;
}
