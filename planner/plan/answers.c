/*
 * answers.c - finds the parts of a plan that read LLM answers: stages of a pipeline that depend on
 * other stages, and filters whose result is unknown without the answers.
 */
#include "plan_int.h"

bool plan_has_llm(const plan_node *n) {
    return n && (n->kind == PLAN_LLM_PIPELINE || plan_has_llm(n->left) || plan_has_llm(n->right));
}

/* ---- the order of a pipeline's stages -------------------------------------------------------- */

/* Returns the first slot that a stage adds to the columns of the stages before it. */
static int first_slot(const plan_node *n, int stage) {
    return stage == 0 ? n->left->ncols : n->pipeline.stages[stage - 1].ncols;
}

/* Returns the stages whose answers x reads; bit i: stage i. */
static uint32_t stages_read(const plan_node *n, const expr *x) {
    uint32_t read = 0;
    for (int i = 0; x->kind == EXPR_COLUMN && i < n->pipeline.nstages; i++)
        if (x->column.slot >= first_slot(n, i) && x->column.slot < n->pipeline.stages[i].ncols)
            read |= 1u << i;
    for (int i = 0; i < x->nargs; i++)
        read |= stages_read(n, x->args[i]);
    return read;
}

static bool stage_is_volatile(const plan_stage *t) {
    for (int i = 0; i < t->nfilters; i++)
        if (expr_is_volatile(t->filters[i]))
            return true;
    for (int i = 0; i < t->nsites; i++) {
        const plan_call_site *site = &t->sites[i];
        if (site->guard && expr_is_volatile(site->guard))
            return true;
        for (int f = 0; f < site->call->nfields; f++)
            if (expr_is_volatile(site->args[f]))
                return true;
    }
    return false;
}

/* A volatile stage keeps its place: it runs after all earlier stages and before all later
 * stages. */
void plan_order_stages(plan_node *n) {
    uint32_t pinned = 0; /* bit i: stage i is volatile */
    for (int i = 0; i < n->pipeline.nstages; i++) {
        plan_stage *t = &n->pipeline.stages[i];
        uint32_t before = (1u << i) - 1;
        for (int k = 0; k < t->nfilters; k++)
            t->after |= stages_read(n, t->filters[k]);
        for (int k = 0; k < t->nsites; k++) {
            uint32_t read = t->sites[k].guard ? stages_read(n, t->sites[k].guard) : 0;
            t->sites[k].late_guard = read != 0;
            t->after |= read;
        }
        if (stage_is_volatile(t)) {
            t->after = before;
            pinned |= 1u << i;
        }
        t->after = (t->after | (pinned & before)) & ~(1u << i);
    }
}

/* ---- filters on answers ---------------------------------------------------------------------- */

/* Whether column `slot` of node n is an answer, or is computed from an answer. */
static bool slot_is_answer(const plan_node *n, int slot);

bool plan_reads_answers(const expr *x, const plan_node *in) {
    if (x->kind == EXPR_COLUMN)
        return slot_is_answer(in, x->column.slot);
    for (int i = 0; i < x->nargs; i++)
        if (plan_reads_answers(x->args[i], in))
            return true;
    return false;
}

/* A window's result also depends on the keys of its partitions and order. */
static bool window_reads_answers(const plan_node *n, const rel_window *w) {
    bool reads = w->filter && plan_reads_answers(w->filter, n->left);
    for (int i = 0; i < w->nkeys && !reads; i++)
        reads = plan_reads_answers(n->window.keys[i].value, n->left);
    for (int i = 0; i < w->nargs && !reads; i++)
        reads = plan_reads_answers(w->args[i], n->left);
    return reads;
}

static bool aggregate_reads_answers(const plan_node *n, const plan_agg *a) {
    bool reads = a->arg && plan_reads_answers(a->arg, n->left);
    for (int i = 0; i < a->nkeys && !reads; i++)
        reads = plan_reads_answers(a->keys[i].value, n->left);
    return reads;
}

static bool slot_is_answer(const plan_node *n, int slot) {
    const plan_node *in = n->left;
    if (!in || slot < 0)
        return false;
    switch (n->kind) {
    case PLAN_LLM_PIPELINE:
        return slot >= in->ncols || slot_is_answer(in, slot);
    case PLAN_PROJECT:
        return plan_reads_answers(n->project.exprs[slot], in);
    case PLAN_GROUP:
        if (slot < n->group.nkeys)
            return plan_reads_answers(n->group.keys[slot], in);
        return aggregate_reads_answers(n, &n->group.aggs[slot - n->group.nkeys]);
    case PLAN_WINDOW:
        return slot < in->ncols ? slot_is_answer(in, slot)
                                : window_reads_answers(n, &n->window.functions[slot - in->ncols]);
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
    return n->kind == PLAN_FILTER && plan_reads_answers(n->filter.predicate, n->left);
}
