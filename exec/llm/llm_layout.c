/*
 * llm_layout.c - what stands first in a prompt, instruction or data.
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
