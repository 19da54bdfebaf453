/*
 * llm_late.c - moves LLM calls above windows, ORDER BY and LIMIT, so that the model is asked only
 * about rows that are returned.
 *
 *   Limit(Sort(Project e (LLM(x))))  ->  Project e (LLM(Limit(Sort(x))))
 *   Window(Project e (LLM(x)))       ->  Project e (LLM(Window(x)))
 *
 * Invariant: a call stays if the sort or window reads its answer, if its fields or guard are
 * volatile, if it is calibrated (the rows that reach it determine its priors), or if it is below a
 * filter, since a LIMIT counts the rows that pass the filter.
 */
#include <string.h>

#include "rules_int.h"

/* The calls of an LLM node below a sort, limit or window. */
typedef struct split_sites {
    llm_site *late;  /* [nlate] the calls that are moved above that node */
    llm_site *early; /* [nearly] the calls that stay below it */
    int nlate, nearly;
} split_sites;

/* Whether the call's answers do not depend on which rows reach it: it is not calibrated, and
 * neither a field nor the guard is volatile. */
static bool is_stable(const llm_site *u) {
    if (llm_call_is_calibrated(u->call))
        return false;
    for (int i = 0; i < u->call->nfields; i++)
        if (expr_is_volatile(u->args[i]))
            return false;
    return !u->guard || !expr_is_volatile(u->guard);
}

/* Splits the calls of `llm`: calls that `above` reads, and calls that are not stable, stay below it. */
static split_sites split(rule_ctx *r, const rel *llm, const rel *above) {
    split_sites s = {0};
    id_set reads = id_set_new(r->mem);
    rel_reads(above, &reads);
    s.late = ARENA_ARRAY(r->mem, llm_site, llm->llm.nsites + 1);
    s.early = ARENA_ARRAY(r->mem, llm_site, llm->llm.nsites + 1);
    for (int i = 0; i < llm->llm.nsites; i++) {
        const llm_site *u = &llm->llm.sites[i];
        bool read = id_set_has(&reads, u->out_id);
        for (int k = 0; k < u->nprobs; k++)
            read = read || id_set_has(&reads, u->probs[k].id);
        if (read || !is_stable(u))
            s.early[s.nearly++] = *u;
        else
            s.late[s.nlate++] = *u;
    }
    return s;
}

/* Moves the LLM calls at the top of `input` above x, a sort or limit over `input`. Returns NULL if
 * no call can be moved. */
static rel *hoist(rule_ctx *r, rel *x, rel *input) {
    if (input->kind == REL_PROJECT && input->left->kind == REL_PROJECT)
        input = merge_projections(r, input);
    rel *project = input->kind == REL_PROJECT ? input : NULL;
    rel *llm = project ? project->left : input;
    expr_map map = {0};
    if (llm->kind != REL_LLM || (project && node_is_volatile(project)))
        return NULL;
    for (int i = 0; project && i < project->ncols; i++)
        expr_map_add(r, &map, project->cols[i].id, project->project.exprs[i].value);
    rel *core = rel_replace_here(r, x, &map);
    split_sites s = split(r, llm, core);
    if (s.nlate == 0)
        return NULL;
    core->left = s.nearly ? make_llm(r, llm->left, s.early, s.nearly) : llm->left;
    rel_set_columns(r->mem, core);
    rel *again = hoist(r, core, core->left);
    rel *top = make_llm(r, again ? again : core, s.late, s.nlate);
    return project ? rel_over(r, project, top, NULL) : top;
}

static rel *late(rule_ctx *r, rel *x) {
    if (x->kind != REL_LIMIT || x->limit.npartition > 0)
        return rel_each_input(r, x, late);
    rel *input = late(r, x->left);
    rel *sort = input->kind == REL_SORT ? input : NULL;
    if (sort) {
        rel *hoisted = hoist(r, sort, sort->left);
        input = hoisted ? hoisted : input;
    }
    rel *hoisted = hoist(r, x, input);
    return hoisted ? hoisted : rel_over(r, x, input, NULL);
}

/* ---- windows --------------------------------------------------------------------------------- */

/* Whether x is an LLM node, or projections over an LLM node. */
static bool has_calls_on_top(const rel *x) {
    while (x->kind == REL_PROJECT)
        x = x->left;
    return x->kind == REL_LLM;
}

/* Returns the projection p, which was the window's input, over the window: p's columns, then the
 * columns that the window adds. */
static rel *project_over(rule_ctx *r, const rel *p, rel *window, const rel *like) {
    rel *out = rel_project(r->mem, window, like->ncols);
    for (int i = 0; i < like->ncols; i++)
        project_set(out, i, like->cols[i],
                    i < p->ncols ? p->project.exprs[i].value : column_expr(r, &like->cols[i]));
    return out;
}

static rel *over_window(rule_ctx *r, rel *x);

/* Moves the calls of `node`, the window's input, above the window x, except calls whose answers x
 * reads. */
static rel *over_calls(rule_ctx *r, rel *x, const rel *node) {
    split_sites s = split(r, node, x);
    if (s.nlate == 0)
        return x;
    rel *below = s.nearly ? make_llm(r, node->left, s.early, s.nearly) : node->left;
    return make_llm(r, over_window(r, rel_over(r, x, below, NULL)), s.late, s.nlate);
}

/* Moves the calls of its input above the window x, except calls whose answers x reads. This is
 * possible since a window returns one row for each input row. A filter on the window's result can
 * then be placed below the calls. */
static rel *over_window(rule_ctx *r, rel *x) {
    rel *node = x->left;
    expr_map map = {0};
    if (!has_calls_on_top(node))
        return x;
    if (node->kind == REL_LLM)
        return over_calls(r, x, node);
    if (node_is_volatile(node))
        return x;
    for (int i = 0; i < node->ncols; i++)
        expr_map_add(r, &map, node->cols[i].id, node->project.exprs[i].value);
    rel *window = rel_replace_here(r, x, &map);
    window->left = node->left;
    rel_set_columns(r->mem, window);
    rel *hoisted = over_window(r, window);
    return hoisted == window ? x : project_over(r, node, hoisted, x);
}

static rel *over_windows(rule_ctx *r, rel *x);

/* Moves calls above the windows that are below x, a node that drops rows. Without such a node the
 * move would save no calls, and calls that stay in one pipeline can share the beginnings of their
 * prompts. */
static rel *under_fewer(rule_ctx *r, rel *x) {
    bool passes = x->kind == REL_PROJECT || x->kind == REL_SORT || x->kind == REL_LLM ||
                  x->kind == REL_FILTER || x->kind == REL_LIMIT;
    if (x->kind == REL_WINDOW)
        return over_window(r, rel_over(r, x, under_fewer(r, x->left), NULL));
    return passes ? rel_over(r, x, under_fewer(r, x->left), NULL)
                  : rel_each_input(r, x, over_windows);
}

static rel *over_windows(rule_ctx *r, rel *x) {
    if (x->kind == REL_FILTER || x->kind == REL_LIMIT)
        return under_fewer(r, x);
    return rel_each_input(r, x, over_windows);
}

rel *rule_llm_late(rule_ctx *r, rel *x) {
    rel *hoisted = over_windows(r, x);
    return late(r, hoisted == x ? x : push_conditions(r, hoisted));
}
