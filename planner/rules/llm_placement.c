/*
 * llm_placement.c - places LLM calls: after all filters that read no answer; above joins that leave
 * fewer distinct inputs, and below other joins. Of two calls whose answers filters read, the one
 * that reduces the other's cost more comes first.
 *
 * Each chain of filters and LLM nodes is taken apart into calls and conditions, and rebuilt. At the
 * bottom are the conditions that read no answer. Then follow the calls, each with the conditions
 * that can be evaluated after it. At the top are the calls that only add a column. Projections
 * between calls, such as those of a view, are moved above the chain.
 * Invariant: answers and rows are the same in any order; only the cost changes.
 */
#include <string.h>

#include "rules_int.h"

/* A call is placed below a join only if it has at most SAME_INPUTS times as many distinct inputs
 * there as above the join. */
static const double SAME_INPUTS = 1.001;

/* The calls and conditions of a chain while it is rebuilt. */
typedef struct call_chain {
    rule_ctx *r;
    int nsites;           /* number of calls */
    int room;             /* allocated entries of `sites` */
    llm_site *sites;      /* [nsites] the calls in written order, from the bottom */
    bool *placed;         /* [nsites] the call is in the rebuilt chain */
    conjuncts conditions; /* the conditions that read an answer */
    bool *applied;        /* [conditions.n] the condition is in the rebuilt chain */
    conjuncts last;       /* volatile conditions, which stay on top of the chain */
    expr_map made_of; /* maps columns of projections between calls to expressions over the base */
    bool may_sink;    /* calls may be placed below joins */
} call_chain;

static rel *place(rule_ctx *r, rel *x, bool streaming);

/* ---- taking apart ---------------------------------------------------------------------------- */

static void add_sites(call_chain *s, const rel *x) {
    if (s->nsites + x->llm.nsites > s->room) {
        int room = 2 * (s->nsites + x->llm.nsites);
        llm_site *sites = ARENA_ARRAY(s->r->mem, llm_site, room);
        if (s->nsites)
            memcpy(sites, s->sites, sizeof *sites * (size_t)s->nsites);
        s->sites = sites;
        s->room = room;
    }
    memcpy(s->sites + s->nsites, x->llm.sites, sizeof *x->llm.sites * (size_t)x->llm.nsites);
    s->nsites += x->llm.nsites;
}

static void add_columns(call_chain *s, const rel *project) {
    for (int i = 0; i < project->ncols; i++)
        expr_map_add(s->r, &s->made_of, project->cols[i].id,
                     expr_replace(s->r, project->project.exprs[i].value, &s->made_of));
}

/* Collects the calls and conditions of the chain whose top is x, including projections that have
 * calls below them. Returns the chain's input. */
static rel *take_apart(call_chain *s, rel *x, conjuncts *all) {
    bool between = x->kind == REL_PROJECT && rel_has_calls_on_top(x) && !node_is_volatile(x);
    if (x->kind != REL_FILTER && x->kind != REL_LLM && !between)
        return x;
    rel *base = take_apart(s, x->left, all);
    if (between) {
        add_columns(s, x);
        return base;
    }
    x = rel_replace_here(s->r, x, &s->made_of);
    if (x->kind == REL_LLM)
        add_sites(s, x);
    else
        conjuncts_split(s->r, all, x->filter.predicate);
    return base;
}

/* ---- one call -------------------------------------------------------------------------------- */

static bool site_only_in(const llm_site *u, const id_set *ids) {
    for (int i = 0; i < u->call->nfields; i++)
        if (!expr_only_in(u->args[i], ids))
            return false;
    return !u->guard || expr_only_in(u->guard, ids);
}

static bool use_is_volatile(const llm_site *u) {
    for (int i = 0; i < u->call->nfields; i++)
        if (expr_is_volatile(u->args[i]))
            return true;
    return u->guard && expr_is_volatile(u->guard);
}

static plan_estimate estimate_site(rule_ctx *r, const llm_site *u, const rel *input) {
    plan_estimate e = {0};
    uint8_t *order = ARENA_ARRAY(r->mem, uint8_t, u->call->nfields + 1);
    bool data = r->env->settings->llm_layout == LAYOUT_DATA_FIRST && u->call->cue.n == 0;
    estimate_llm_site(r->estimates, u, input, data ? LAID_DATA_FIRST : LAID_INSTRUCTION_FIRST, &e,
                      order);
    return e;
}

/* Adds a call on top of x. If x is an LLM node whose answers the call does not read, adds the call
 * to that node; otherwise makes a new LLM node. */
static rel *add_call(rule_ctx *r, rel *x, const llm_site *u) {
    id_set below = id_set_new(r->mem);
    if (x->kind != REL_LLM)
        return make_llm(r, x, u, 1);
    id_set_add_columns(&below, x->left);
    if (!site_only_in(u, &below))
        return make_llm(r, x, u, 1);
    int n = x->llm.nsites;
    llm_site *sites = ARENA_ARRAY(r->mem, llm_site, n + 1);
    memcpy(sites, x->llm.sites, sizeof *sites * (size_t)n);
    sites[n] = *u;
    rel *both = make_llm(r, x->left, sites, n + 1);
    return both;
}

/* Returns the input of the join x below which the call and its conditions may be placed: it has all
 * columns that they read, and the call has no more distinct inputs over it than above the join.
 * NULL: neither input. A call that only adds a column (`adds`) is never placed below a semi- or
 * anti-join, since this join can only drop rows. */
static rel *cheaper_side(rule_ctx *r, rel *x, const llm_site *u, const conjuncts *conditions,
                         bool adds) {
    bool inner = rel_is_inner_join(x);
    if (x->kind != REL_JOIN || use_is_volatile(u) ||
        (adds && (x->join.kind == JOIN_SEMI || x->join.kind == JOIN_ANTI)))
        return NULL;
    for (int side = 0; side < 1 + inner; side++) {
        rel *input = side ? x->right : x->left;
        id_set ids = id_set_new(r->mem);
        id_set_add_columns(&ids, input);
        bool fits = site_only_in(u, &ids);
        id_set_add_answers(&ids, u);
        for (int i = 0; i < conditions->n; i++)
            fits = fits && expr_only_in(conditions->list[i], &ids);
        if (fits && estimate_site(r, u, input).distinct_inputs <=
                        estimate_site(r, u, x).distinct_inputs * SAME_INPUTS)
            return input;
    }
    return NULL;
}

/* Adds a call, and above it its conditions, on top of x, or further down below joins. */
static rel *sink(rule_ctx *r, rel *x, const llm_site *u, const conjuncts *conditions, bool adds,
                 bool may_sink) {
    rel *side = may_sink ? cheaper_side(r, x, u, conditions, adds) : NULL;
    if (!side)
        return make_filter(r, add_call(r, x, u), conditions);
    rel *filled = sink(r, side, u, conditions, adds, true);
    return side == x->left ? rel_over(r, x, filled, x->right) : rel_over(r, x, x->left, filled);
}

/* ---- putting together ------------------------------------------------------------------------ */

/* Returns the conditions not applied yet that read only these columns. */
static conjuncts ready_conditions(const call_chain *s, const id_set *ids) {
    conjuncts out = {0};
    for (int i = 0; i < s->conditions.n; i++)
        if (!s->applied[i] && expr_only_in(s->conditions.list[i], ids))
            conjuncts_add(s->r, &out, s->conditions.list[i]);
    return out;
}

static void mark_applied(call_chain *s, const conjuncts *c) {
    for (int i = 0; i < s->conditions.n; i++)
        for (int k = 0; k < c->n; k++)
            s->applied[i] |= s->conditions.list[i] == c->list[k];
}

/* Whether a condition not applied yet reads the call's answer, directly or through other calls. */
static bool is_needed_later(const call_chain *s, const llm_site *u) {
    id_set out = id_set_new(s->r->mem);
    bool waiting = false;
    id_set_add_answers(&out, u);
    for (int i = 0; i < s->conditions.n; i++) {
        if (!s->applied[i] && expr_touches(s->conditions.list[i], &out))
            return true;
        waiting = waiting || !s->applied[i];
    }
    for (int i = 0; i < s->nsites && waiting; i++) {
        if (s->placed[i] || &s->sites[i] == u)
            continue;
        bool reads = expr_touches(s->sites[i].guard, &out);
        for (int k = 0; k < s->sites[i].call->nfields; k++)
            reads = reads || expr_touches(s->sites[i].args[k], &out);
        if (reads && is_needed_later(s, &s->sites[i]))
            return true;
    }
    return false;
}

/* Classes of calls, in the order in which calls are placed. CALL_FILTERS: a condition can be
 * evaluated after the call. CALL_NEEDED: a later condition needs the answer. CALL_ADDS: the call
 * only adds a column. */
typedef enum call_class { CALL_FILTERS, CALL_NEEDED, CALL_ADDS } call_class;

/* A call that could be placed next. */
typedef struct candidate {
    const llm_site *site;
    call_class class;
    double cost_ms;
    /* CALL_FILTERS: the rows that pass the conditions that are evaluated after the call. */
    const rel *filtered;
} candidate;

static candidate candidate_of(const call_chain *s, const rel *x, const id_set *ids,
                              const llm_site *u) {
    id_set with = id_set_copy(ids);
    id_set_add_answers(&with, u);
    candidate c = {u, CALL_FILTERS, estimate_site(s->r, u, x).cost_ms, NULL};
    conjuncts on = ready_conditions(s, &with);
    if (on.n == 0)
        c.class = is_needed_later(s, u) ? CALL_NEEDED : CALL_ADDS;
    else
        c.filtered = make_filter(s->r, make_llm(s->r, (rel *)x, u, 1), &on);
    return c;
}

/* Returns how many milliseconds less c costs after the conditions of `first` have removed rows. The
 * saving is small if many rows share an input. */
static double spared_by(const call_chain *s, const candidate *c, const candidate *first) {
    return c->cost_ms - estimate_site(s->r, c->site, first->filtered).cost_ms;
}

/* Whether a goes before b: cost(a) + cost(b after a) is less than cost(b) + cost(a after b), by
 * more than rounding. If no two rows share an input, a goes first if it costs less per removed
 * row. */
static bool goes_first(const call_chain *s, const candidate *a, const candidate *b) {
    static const double ROUNDING = 1e-9;
    if (a->class != b->class || a->class != CALL_FILTERS)
        return a->class < b->class;
    return spared_by(s, a, b) < spared_by(s, b, a) - ROUNDING * (a->cost_ms + b->cost_ms);
}

/* Returns the index of the call to place next; -1: no call can be placed. */
static int next_site(const call_chain *s, const rel *x, const id_set *ids) {
    int best = -1, waiting = 0;
    candidate chosen = {0};
    for (int i = 0; i < s->nsites; i++)
        waiting += !s->placed[i];
    for (int i = 0; i < s->nsites; i++) {
        if (s->placed[i] || !site_only_in(&s->sites[i], ids))
            continue;
        if (waiting == 1)
            return i;
        candidate c = candidate_of(s, x, ids, &s->sites[i]);
        if (best < 0 || goes_first(s, &c, &chosen)) {
            best = i;
            chosen = c;
        }
    }
    return best;
}

static rel *put_together(call_chain *s, rel *x) {
    id_set ids = id_set_new(s->r->mem);
    id_set_add_columns(&ids, x);
    for (int at = next_site(s, x, &ids); at >= 0; at = next_site(s, x, &ids)) {
        const llm_site *u = &s->sites[at];
        id_set_add_answers(&ids, u);
        conjuncts on = ready_conditions(s, &ids);
        s->placed[at] = true;
        mark_applied(s, &on);
        x = sink(s->r, x, u, &on, on.n == 0 && !is_needed_later(s, u), s->may_sink);
    }
    return make_filter(s->r, x, &s->last);
}

/* Returns the rebuilt chain, with the projections that were between its calls above it. */
static rel *with_projections(const call_chain *s, rel *done, const rel *like) {
    if (s->made_of.n == 0)
        return done;
    rel *p = rel_project(s->r->mem, done, like->ncols);
    for (int i = 0; i < like->ncols; i++) {
        expr *x = expr_map_get(&s->made_of, like->cols[i].id);
        project_set(p, i, like->cols[i], x ? x : column_expr(s->r, &like->cols[i]));
    }
    return p;
}

static bool all_placed(const call_chain *s) {
    for (int i = 0; i < s->nsites; i++)
        if (!s->placed[i])
            return false;
    for (int i = 0; i < s->conditions.n; i++)
        if (!s->applied[i])
            return false;
    return true;
}

/* ---- the rule -------------------------------------------------------------------------------- */

static rel *place_chain(rule_ctx *r, rel *x, bool streaming) {
    call_chain s = {.r = r, .may_sink = !streaming};
    conjuncts all = {0}, plain = {0};
    rel *base = take_apart(&s, x, &all);
    if (s.nsites == 0)
        return rel_over(r, x, place(r, x->left, streaming && x->kind == REL_FILTER), NULL);
    id_set answers = id_set_new(r->mem);
    for (int i = 0; i < s.nsites; i++)
        id_set_add_answers(&answers, &s.sites[i]);
    for (int i = 0; i < all.n; i++)
        conjuncts_add(r,
                      expr_is_volatile(all.list[i])         ? &s.last
                      : expr_touches(all.list[i], &answers) ? &s.conditions
                                                            : &plain,
                      all.list[i]);
    s.placed = ARENA_ARRAY(r->mem, bool, s.nsites);
    s.applied = ARENA_ARRAY(r->mem, bool, s.conditions.n + 1);
    if (plain.n)
        base = push_conditions(r, make_filter(r, base, &plain));
    rel *done = put_together(&s, place(r, base, false));
    return all_placed(&s) ? with_projections(&s, done, x) : x;
}

/* Places the calls in x. streaming: a LIMIT above may need only the first rows, so calls are not
 * moved below joins; the model can then be asked in limit batches. */
static rel *place(rule_ctx *r, rel *x, bool streaming) {
    if (x->kind == REL_FILTER || x->kind == REL_LLM)
        return place_chain(r, x, streaming);
    bool is_union =
        x->kind == REL_SETOP && (x->setop.op == SETOP_UNION_ALL || x->setop.op == SETOP_UNION);
    bool passes = x->kind == REL_LIMIT ||
                  (streaming && (x->kind == REL_PROJECT || x->kind == REL_DISTINCT || is_union));
    if (x->kind == REL_SHARED)
        return rel_each_input(r, x, rule_llm_placement);
    rel *left = x->left ? place(r, x->left, passes) : NULL;
    rel *right = x->right ? place(r, x->right, passes && is_union) : NULL;
    return rel_over(r, x, left, right);
}

rel *rule_llm_placement(rule_ctx *r, rel *x) {
    return place(r, x, false);
}
