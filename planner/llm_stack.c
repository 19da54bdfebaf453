/*
 * llm_stack.c - LLM nodes over one another that one operator runs, and what stands first in their prompts.
 *
 *   Filter #2 = 'b' ─┐
 *     LLM #2         │ one stack: no call reads another's answer in its fields, so all are asked about the rows of x, in whatever order
 *       Filter #1    │ removes them most cheaply, and calls about the same fields can share them
 *         LLM #1   ──┘
 *           x          its base
 *
 * Invariant: what a stack is, and how its prompts are laid out, is a function of the relation and of x's rows alone; nothing that was
 * learned or measured has a say (DESIGN 2.2).
 */
#include <math.h>

#include "estimate_int.h"
#include "rules_int.h"

static bool in_stack(const rel *x) {
    return x->kind == REL_FILTER || x->kind == REL_LLM;
}

static void add_outputs(id_set *ids, const rel *llm) {
    for (int i = 0; i < llm->llm.nuses; i++) {
        id_set_add(ids, llm->llm.uses[i].out_id);
        if (llm->llm.uses[i].prob_id >= 0)
            id_set_add(ids, llm->llm.uses[i].prob_id);
    }
}

/* Whether a field of x's calls is made of an answer in `outputs`. */
static bool fields_touch(const rel *x, const id_set *outputs) {
    for (int i = 0; i < x->llm.nuses; i++)
        for (int f = 0; f < x->llm.uses[i].call->nfields; f++)
            if (expr_touches(x->llm.uses[i].args[f], outputs))
                return true;
    return false;
}

bool llm_stack_collect(arena *mem, const rel *top, llm_stack_rels *out) {
    *out = (llm_stack_rels){.base = top};
    for (const rel *x = top; in_stack(x) && out->count < PLAN_STACK; x = x->left) {
        if (x->kind != REL_LLM)
            continue;
        id_set answers = id_set_new(mem);
        add_outputs(&answers, x);
        for (int i = 0; i < out->count; i++)
            if (fields_touch(out->nodes[i], &answers))
                return true;
        out->nodes[out->count++] = x;
        out->base = x->left;
    }
    return out->count > 0;
}

/* ---- layout ------------------------------------------------------------------------------------ */

/* Data first must save at least this share of the computed tokens: the instruction is better read before the data. */
static const double LAYOUT_LEAST_SAVING = 0.1;

bool plan_data_pays(double data, double inputs, const plan_question *questions, int count) {
    double instruction_leads = 0, data_leads = data;
    for (int i = 0; i < count; i++) {
        instruction_leads += questions[i].tokens + questions[i].share * data;
        data_leads += inputs * questions[i].share * questions[i].tokens;
    }
    return count > 1 && data_leads <= (1 - LAYOUT_LEAST_SAVING) * instruction_leads;
}

double plan_share_asked(int filters) {
    return ldexp(1, -filters);
}

/* A use of the stack on its way to a layout. */
typedef struct laid_use {
    const llm_use *use;
    bool decides; /* a filter reads its answer */
    use_layout layout;
} laid_use;

static bool decides(const rel *top, const rel *base, const llm_use *u, arena *mem) {
    id_set out = id_set_new(mem);
    id_set_add(&out, u->out_id);
    if (u->prob_id >= 0)
        id_set_add(&out, u->prob_id);
    for (; top != base; top = top->left)
        if (top->kind == REL_FILTER && expr_touches(top->filter.predicate, &out))
            return true;
    return false;
}

/* Filters that stand before u in the statement; all of them where u is none. */
static int filters_before(const laid_use *uses, int n, const laid_use *u) {
    int count = 0;
    for (int i = 0; i < n; i++)
        count += uses[i].decides && (!u->decides || uses[i].use->call->number < u->use->call->number);
    return count;
}

static bool asks_everywhere(const llm_use *u, const rel *base, arena *mem) {
    id_set ids = id_set_new(mem);
    id_set_add_columns(&ids, base);
    return !u->guard || !expr_only_in(u->guard, &ids);
}

/* About the same fields of all rows of the base. */
static bool share_rows(const llm_use *a, const llm_use *b, const rel *base, arena *mem) {
    return asks_everywhere(a, base, mem) && asks_everywhere(b, base, mem) &&
           llm_calls_share_fields(a->call, a->args, b->call, b->args);
}

static void lay_out_group(estimator *s, laid_use *uses, int n, int leader, const rel *base) {
    plan_question *questions = ARENA_ARRAY(s->mem, plan_question, n);
    int *members = ARENA_ARRAY(s->mem, int, n), count = 0;
    for (int i = leader; i < n; i++) {
        if (i != leader && !share_rows(uses[leader].use, uses[i].use, base, s->mem))
            continue;
        questions[count] = (plan_question){estimate_instruction_tokens(s, uses[i].use->call),
                                           plan_share_asked(filters_before(uses, n, &uses[i]))};
        members[count++] = i;
    }
    double data, inputs;
    if (s->env->settings->llm_layout == LAYOUT_AUTO) {
        estimate_data(s, uses[leader].use, base, &data, &inputs);
        if (!plan_data_pays(data, inputs, questions, count))
            return;
    }
    for (int k = 0; k < count; k++)
        uses[members[k]].layout = k ? LAID_ON_DATA : LAID_DATA_FIRST;
}

static laid_use *uses_of(estimator *s, const rel *top, const llm_stack_rels *stack, int *count) {
    *count = 0;
    for (int i = 0; i < stack->count; i++)
        *count += stack->nodes[i]->llm.nuses;
    laid_use *uses = ARENA_ARRAY(s->mem, laid_use, *count + 1);
    int n = 0;
    for (int i = stack->count; i-- > 0;)
        for (int k = 0; k < stack->nodes[i]->llm.nuses; k++) {
            const llm_use *u = &stack->nodes[i]->llm.uses[k];
            uses[n++] = (laid_use){u, decides(top, stack->base, u, s->mem), LAID_INSTRUCTION_FIRST};
        }
    return uses;
}

static void lay_out_stack(estimator *s, const rel *top, const llm_stack_rels *stack) {
    int n, at = 0;
    laid_use *uses = uses_of(s, top, stack, &n);
    for (int i = 0; i < n; i++)
        if (s->env->settings->llm_layout != LAYOUT_INSTRUCTION_FIRST && uses[i].layout == LAID_INSTRUCTION_FIRST)
            lay_out_group(s, uses, n, i, stack->base);
    for (int i = stack->count; i-- > 0;) {
        stacked_node *placed = ARENA_NEW(s->mem, stacked_node);
        *placed = (stacked_node){s->stacked, stack->nodes[i], i + 1 < stack->count, NULL};
        placed->layouts = ARENA_ARRAY(s->mem, use_layout, stack->nodes[i]->llm.nuses + 1);
        for (int k = 0; k < stack->nodes[i]->llm.nuses; k++)
            placed->layouts[k] = uses[at++].layout;
        s->stacked = placed;
    }
}

/* ---- all of a statement's -------------------------------------------------------------------------- */

static const stacked_node *find(const estimator *s, const rel *llm) {
    for (const stacked_node *n = s->stacked; n; n = n->next)
        if (n->node == llm)
            return n;
    return NULL;
}

void estimate_stacks(estimator *s, const rel *x) {
    llm_stack_rels stack;
    while (x) {
        bool found = in_stack(x) && llm_stack_collect(s->mem, x, &stack);
        if (found && find(s, stack.nodes[0]))
            return; /* a shared relation: been here */
        if (found)
            lay_out_stack(s, x, &stack);
        if (!found && x->right)
            estimate_stacks(s, x->right);
        x = found ? stack.base : x->left;
    }
}

bool estimate_joins_below(const estimator *s, const rel *llm) {
    const stacked_node *n = find(s, llm);
    return n && n->joins_below;
}

use_layout estimate_layout(const estimator *s, const rel *llm, int use) {
    const stacked_node *n = find(s, llm);
    if (n)
        return n->layouts[use];
    return s->env->settings->llm_layout == LAYOUT_DATA_FIRST ? LAID_DATA_FIRST : LAID_INSTRUCTION_FIRST;
}
