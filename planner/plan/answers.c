/*
 * answers.c - finds the parts of a plan that read LLM answers: stages of a pipeline that depend on
 * other stages, fields that are computed from answers, and filters whose result is unknown without
 * the answers.
 */
#include "plan_int.h"

static bool is_constant(const plan_node *n) {
    switch (n->kind) {
    case PLAN_VALUES:
        return true;
    case PLAN_PROJECT:
    case PLAN_FILTER:
    case PLAN_LLM_PIPELINE:
        return is_constant(n->left);
    default:
        return false;
    }
}

bool plan_asks_constants(const plan_node *n) {
    return n->kind == PLAN_LLM_PIPELINE && is_constant(n);
}

bool plan_asks_rows(const plan_node *n) {
    return n && !plan_asks_constants(n) &&
           (n->kind == PLAN_LLM_PIPELINE || plan_asks_rows(n->left) || plan_asks_rows(n->right));
}

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
            plan_call_site *site = &t->sites[k];
            uint32_t read = site->guard ? stages_read(n, site->guard) : 0;
            site->late_guard = read != 0;
            t->after |= read;
            for (int f = 0; f < site->call->nfields; f++) {
                read = stages_read(n, site->args[f]);
                site->late[f] = read != 0;
                site->nlate += site->late[f];
                t->after |= read;
            }
        }
        if (stage_is_volatile(t)) {
            t->after = before;
            pinned |= 1u << i;
        }
        t->after = (t->after | (pinned & before)) & ~(1u << i);
        for (int k = 0; k < i; k++)
            if (t->after >> k & 1)
                t->after |= n->pipeline.stages[k].after;
    }
}

/* ---- values computed from answers ------------------------------------------------------------ */

/* The calls whose answers a value is computed from. */
typedef struct calls_found {
    bool any;
    bool *calls; /* by number of a call; NULL: only `any` is wanted */
} calls_found;

/* Adds the calls whose answers column `slot` of node n is computed from. */
static void search_slot(const plan_node *n, int slot, calls_found *c);

static void search_expr(const expr *x, const plan_node *in, calls_found *c) {
    if (x->kind == EXPR_COLUMN)
        search_slot(in, x->column.slot, c);
    for (int i = 0; i < x->nargs && (!c->any || c->calls); i++)
        search_expr(x->args[i], in, c);
}

static void search_keys(const sort_key *keys, int n, const plan_node *in, calls_found *c) {
    for (int i = 0; i < n; i++)
        search_expr(keys[i].value, in, c);
}

/* A window's result also depends on the keys of its partitions and order. */
static void search_window(const plan_node *n, const rel_window *w, calls_found *c) {
    if (w->filter)
        search_expr(w->filter, n->left, c);
    search_keys(n->window.keys, w->nkeys, n->left, c);
    for (int i = 0; i < w->nargs; i++)
        search_expr(w->args[i], n->left, c);
}

static void search_aggregate(const plan_node *n, const plan_agg *a, calls_found *c) {
    if (a->arg)
        search_expr(a->arg, n->left, c);
    search_keys(a->keys, a->nkeys, n->left, c);
    if (a->filter)
        search_expr(a->filter, n->left, c);
}

/* Adds the call of a pipeline that has this slot as its answer or as one of its probabilities. */
static void add_call(const plan_node *n, int slot, calls_found *c) {
    c->any = true;
    for (int i = 0; c->calls && i < n->pipeline.nstages; i++)
        for (int k = 0; k < n->pipeline.stages[i].nsites; k++) {
            const plan_call_site *site = &n->pipeline.stages[i].sites[k];
            bool made = site->out_slot == slot;
            for (int p = 0; p < site->nprobs; p++)
                made = made || site->probs[p].slot == slot;
            if (made)
                c->calls[site->call->number] = true;
        }
}

static void search_slot(const plan_node *n, int slot, calls_found *c) {
    const plan_node *in = n->left;
    if (!in || slot < 0)
        return;
    switch (n->kind) {
    case PLAN_LLM_PIPELINE:
        if (slot >= in->ncols)
            add_call(n, slot, c);
        else
            search_slot(in, slot, c);
        return;
    case PLAN_PROJECT:
        search_expr(n->project.exprs[slot], in, c);
        return;
    case PLAN_GROUP:
        if (slot < n->group.nkeys)
            search_expr(n->group.keys[slot], in, c);
        else
            search_aggregate(n, &n->group.aggs[slot - n->group.nkeys], c);
        return;
    case PLAN_WINDOW:
        if (slot < in->ncols)
            search_slot(in, slot, c);
        else
            search_window(n, &n->window.functions[slot - in->ncols], c);
        return;
    case PLAN_SETOP:
    case PLAN_RECURSIVE:
        search_slot(in, slot, c);
        search_slot(n->right, slot, c);
        return;
    case PLAN_HASH_JOIN:
    case PLAN_LOOP_JOIN:
        if (slot < in->ncols)
            search_slot(in, slot, c);
        else if (slot - in->ncols < n->right->ncols)
            search_slot(n->right, slot - in->ncols, c);
        return;
    default:
        if (slot < in->ncols)
            search_slot(in, slot, c);
    }
}

bool plan_reads_answers(const expr *x, const plan_node *in) {
    calls_found c = {.any = false};
    search_expr(x, in, &c);
    return c.any;
}

bool plan_filters_answers(const plan_node *n) {
    return n->kind == PLAN_FILTER && plan_reads_answers(n->filter.predicate, n->left);
}

static plan_read calls_read(const expr *x, const plan_node *in, int ncalls, arena *mem) {
    calls_found c = {.calls = ARENA_ARRAY(mem, bool, ncalls + 1)};
    search_expr(x, in, &c);
    plan_read r = {.calls = c.any ? ARENA_ARRAY(mem, int, ncalls) : NULL};
    for (int i = 1; i <= ncalls && c.any; i++)
        if (c.calls[i])
            r.calls[r.n++] = i;
    return r;
}

void plan_find_reads(plan_node *n, int ncalls, arena *mem) {
    for (int i = 0; i < n->pipeline.nstages; i++)
        for (int k = 0; k < n->pipeline.stages[i].nsites; k++) {
            plan_call_site *site = &n->pipeline.stages[i].sites[k];
            for (int f = 0; f < site->call->nfields; f++)
                site->reads[f] = calls_read(site->args[f], n, ncalls, mem);
        }
}
