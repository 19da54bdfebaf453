/*
 * llm_stack.c - LLM nodes over one another that one operator runs, and what stands first in their
 * prompts.
 *
 *   Filter #2 = 'b' ─┐
 *     LLM #2         │ one stack: no call reads another's answer in its fields, so all are asked
 *                    about the rows of x, in whatever order
 *       Filter #1    │ removes them most cheaply, and calls about the same fields can share them
 *         LLM #1   ──┘
 *           x          its base
 *
 * Invariant: what a stack is, and how its prompts are laid out, is a function of the relation and
 * of x's rows alone; nothing that was learned or measured has a say (DESIGN 2.2).
 */
#include <math.h>

#include "cost/estimate_int.h"
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

/* ---- layout ---------------------------------------------------------------------------------- */

/* Data first must save at least this share of the computed
 * tokens: the instruction is better read before the data. */
static const double LAYOUT_LEAST_SAVING = 0.1;

bool plan_data_pays(double data, double inputs, const plan_question *questions, int count) {
    double instruction_leads = 0, data_leads = data;
    for (int i = 0; i < count; i++) {
        instruction_leads += questions[i].tokens + questions[i].share * data;
        data_leads += inputs * questions[i].share * questions[i].tokens;
    }
    return count > 1 && data_leads <= (1 - LAYOUT_LEAST_SAVING) * instruction_leads;
}

/* A use of the stack on its way to its place. */
typedef struct stack_use {
    const llm_use *use;
    bool decides; /* a filter reads its answer */
    use_place place;
} stack_use;

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
static int filters_before(const stack_use *uses, int n, const stack_use *u) {
    int count = 0;
    for (int i = 0; i < n; i++)
        count +=
            uses[i].decides && (!u->decides || uses[i].use->call->number < u->use->call->number);
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

/* The group that asks about the same fields of the same rows as use `leader`, its first. */
static void lay_out_group(estimator *s, stack_use *uses, int n, int leader, const rel *base) {
    plan_question *questions = ARENA_ARRAY(s->mem, plan_question, n);
    int64_t wanted = s->env->settings->llm_layout;
    double data, inputs;
    int count = 0;
    for (int i = leader; i < n; i++) {
        if (uses[i].place.group != leader)
            continue;
        questions[count++] = (plan_question){estimate_instruction_tokens(s, uses[i].use->call),
                                             uses[i].place.asked_share};
    }
    if (wanted == LAYOUT_INSTRUCTION_FIRST)
        return;
    if (wanted == LAYOUT_AUTO) {
        estimate_data(s, uses[leader].use, base, &data, &inputs);
        if (!plan_data_pays(data, inputs, questions, count))
            return;
    }
    for (int i = leader; i < n; i++)
        if (uses[i].place.group == leader)
            uses[i].place.layout = i == leader ? LAID_DATA_FIRST : LAID_ON_DATA;
}

static void find_groups(stack_use *uses, int n, const rel *base, arena *mem) {
    for (int i = 0; i < n; i++) {
        uses[i].place.group = i;
        for (int k = i; k-- > 0;)
            if (share_rows(uses[k].use, uses[i].use, base, mem))
                uses[i].place.group = uses[k].place.group;
    }
}

static stack_use *uses_of(estimator *s, const rel *top, const llm_stack_rels *stack, int *count) {
    *count = 0;
    for (int i = 0; i < stack->count; i++)
        *count += stack->nodes[i]->llm.nuses;
    stack_use *uses = ARENA_ARRAY(s->mem, stack_use, *count + 1);
    int n = 0;
    for (int i = stack->count; i-- > 0;)
        for (int k = 0; k < stack->nodes[i]->llm.nuses; k++) {
            const llm_use *u = &stack->nodes[i]->llm.uses[k];
            uses[n++] = (stack_use){
                u, decides(top, stack->base, u, s->mem), {LAID_INSTRUCTION_FIRST, 0, 1}};
        }
    return uses;
}

static void lay_out_stack(estimator *s, const rel *top, const llm_stack_rels *stack) {
    int n, at = 0;
    stack_use *uses = uses_of(s, top, stack, &n);
    find_groups(uses, n, stack->base, s->mem);
    for (int i = 0; i < n; i++)
        uses[i].place.asked_share = ldexp(
            1, -filters_before(uses, n, &uses[i])); /* what is learned must not change a prompt */
    for (int i = 0; i < n; i++)
        if (uses[i].place.group == i)
            lay_out_group(s, uses, n, i, stack->base);
    for (int i = stack->count; i-- > 0;) {
        stacked_node *placed = ARENA_NEW(s->mem, stacked_node);
        *placed = (stacked_node){s->stacked, stack->nodes[i], i + 1 < stack->count, NULL};
        placed->places = ARENA_ARRAY(s->mem, use_place, stack->nodes[i]->llm.nuses + 1);
        for (int k = 0; k < stack->nodes[i]->llm.nuses; k++)
            placed->places[k] = uses[at++].place;
        s->stacked = placed;
    }
}

/* ---- all of a statement's -------------------------------------------------------------------- */

void estimate_stacks(estimator *s, const rel *x) {
    llm_stack_rels stack;
    while (x) {
        bool found = in_stack(x) && llm_stack_collect(s->mem, x, &stack);
        if (found && estimate_stacked(s, stack.nodes[0]))
            return; /* a shared relation: been here */
        if (found)
            lay_out_stack(s, x, &stack);
        if (!found && x->right)
            estimate_stacks(s, x->right);
        x = found ? stack.base : x->left;
    }
}
