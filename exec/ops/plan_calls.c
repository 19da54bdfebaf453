/*
 * plan_calls.c - which parts of a plan call the model or read its answers.
 */
#include "plan_calls_int.h"

bool plan_has_llm(const plan_node *p) {
    return p && (p->kind == PLAN_LLM || plan_has_llm(p->left) || plan_has_llm(p->right));
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

/* A window's result depends on answers also where these partition or order its rows. */
static bool window_reads_answer(const plan_node *n, const rel_window *w) {
    bool reads = w->filter && expr_reads_answer(w->filter, n->left);
    for (int i = 0; i < w->nkeys && !reads; i++)
        reads = expr_reads_answer(n->window.keys[i].value, n->left);
    for (int i = 0; i < w->nargs && !reads; i++)
        reads = expr_reads_answer(w->args[i], n->left);
    return reads;
}

static bool aggregate_reads_answer(const plan_node *n, const plan_agg *a) {
    bool reads = a->arg && expr_reads_answer(a->arg, n->left);
    for (int i = 0; i < a->nkeys && !reads; i++)
        reads = expr_reads_answer(a->keys[i].value, n->left);
    return reads;
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
        return aggregate_reads_answer(n, &n->group.aggs[slot - n->group.nkeys]);
    case PLAN_WINDOW:
        return slot < in->ncols ? slot_is_answer(in, slot)
                                : window_reads_answer(n, &n->window.functions[slot - in->ncols]);
    case PLAN_HASH_JOIN:
    case PLAN_LOOP_JOIN:
        if (slot < in->ncols)
            return slot_is_answer(in, slot);
        return slot - in->ncols < n->right->ncols && slot_is_answer(n->right, slot - in->ncols);
    default:
        return slot < in->ncols && slot_is_answer(in, slot);
    }
}

bool plan_filters_answers(const plan_node *n) {
    return n->kind == PLAN_FILTER && expr_reads_answer(n->filter.predicate, n->left);
}

bool right_side_must_drain(const exec_ctx *ctx, const plan_node *join) {
    bool answered = !ctx->count_only && !(ctx->stmt && ctx->stmt->kind == STMT_WARM);
    return !answered && plan_has_llm(join->left);
}
