/*
 * llm_layout.c - what stands first in a prompt, instruction or data, and how many rows a wave has.
 *
 *   instruction first   head | row 1 head of another call | row 1 what rows share is computed once
 *                       per call
 *   data first          row 1 | question | other question a row is computed once for all calls on
 *                       it
 *
 * Invariant (DESIGN 2.2): the layout is a function of statement, data and settings alone: it is
 * counted over the distinct inputs in the best one order, whatever dedup, KV cache, psm and a
 * listed order are, and before anybody asks what is answered already.
 */
#include <math.h>

#include "op_llm_int.h"

static double instruction_tokens(const prompt *p) {
    size_t count;
    llm_span *span = llm_span_new(p->engine, LLM_SPAN_INSTRUCTION, p->call->instruction);
    llm_span_tokens(span, &count);
    llm_span_release(span);
    return (double)count + 1; /* its line break */
}

int layout_choose(const layout_call *calls, int count, const llm_inputs *in, bool *data_first,
                  err *e) {
    input_order order = {0};
    *data_first = false;
    if (count < 2 || in->count == 0)
        return 0;
    arena *mem = arena_new();
    plan_question *questions = ARENA_ARRAY(mem, plan_question, count);
    int status = order_solve_best(calls[0].prompt, in, mem, &order, e);
    for (int i = 0; i < count; i++)
        questions[i] = (plan_question){instruction_tokens(calls[i].prompt), calls[i].share};
    if (status == 0) {
        double data = (double)(order.psm.total_units - order.psm.shared_units);
        *data_first = plan_data_pays(data, in->count, questions, count);
    }
    arena_free(mem);
    return status;
}

/* ---- waves ----------------------------------------------------------------------------------- */

enum { FIRST_WAVE = 16, WAVE_GROWTH = 8 };

/* The rows that reached the LIMIT above `node` so far; -1:
 * there is none right above its filters and projections. */
static int64_t rows_passed(const exec_ctx *ctx, const plan_node *at, const plan_node *node) {
    if (!at)
        return -1;
    if (at->kind == PLAN_LIMIT) {
        const plan_node *n = at->left;
        while (n != node && (n->kind == PLAN_FILTER || n->kind == PLAN_PROJECT))
            n = n->left;
        if (n == node)
            return (int64_t)ctx->rows_out[at->left->number];
    }
    int64_t left = rows_passed(ctx, at->left, node);
    return left >= 0 ? left : rows_passed(ctx, at->right, node);
}

/* The share of its base's rows that the stack under `top` is planned to keep, and what the LIMIT
 * above wants of them. */
static double planned_share(const plan_node *top, int64_t *wanted) {
    double share = 1;
    const plan_node *base = llm_stack_base(top);
    for (const plan_node *n = top; n != base; n = n->left)
        if (n->kind == PLAN_LLM) {
            *wanted = n->llm.wanted;
            share *= n->estimate.selectivity;
        }
    return BASE_MIN(1, BASE_MAX(share, 0.01));
}

/* As many rows as should bring the rest of what the LIMIT wants, going by the share that passed, or
 * is expected to at first. One more that passed and two more that were asked are imagined, so that
 * bad luck at the start does not ask for all. */
int64_t wave_rows(const exec_ctx *ctx, const plan_node *node, int64_t asked, int64_t last_wave) {
    int64_t wanted = 0;
    double share = planned_share(node, &wanted);
    if (asked > 0) {
        int64_t passed = ctx->rows_out ? rows_passed(ctx, ctx->plan->root, node) : -1;
        if (passed < 0)
            return 2 * last_wave;
        share = (double)(passed + 1) / (double)(asked + 2);
        wanted = BASE_MAX(wanted - passed, 1);
    }
    double rows = ceil((double)wanted / share);
    double most = last_wave > 0 ? (double)WAVE_GROWTH * (double)last_wave : rows;
    return (int64_t)BASE_MAX(BASE_MIN(rows, most), FIRST_WAVE);
}
