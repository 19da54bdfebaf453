/*
 * llm_layout.c - chooses what comes first in the prompts of a group of calls: instruction or data.
 *
 *   instruction first   question 1 | row 1      the instruction is computed once per call,
 *                       question 2 | row 1      the rows for each call
 *
 *   data first          row 1 | question 1      each row is computed once for all calls,
 *                             | question 2      the instructions for each row
 *
 * Invariant: the layout is a function of statement, data and settings alone. Tokens are counted
 * over the distinct inputs in the best single field order; dedup, caches, psm, an order listed by
 * SET field_order and stored answers have no influence.
 */
#include <math.h>

#include "op_llm_int.h"

static double instruction_tokens(const prompt *p) {
    size_t count;
    llm_span *span = llm_span_new(p->engine, LLM_SPAN_INSTRUCTION, p->call->instruction);
    llm_span_tokens(span, &count);
    llm_span_release(span);
    return (double)count + 1; /* + 1 for the line break after the instruction */
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
