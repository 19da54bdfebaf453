/*
 * llm_up.c - moves LLM calls, and the filters on their answers, above joins.
 *
 * A call has at most as many distinct inputs above a join as below it. Without calls between them,
 * the joins become one tree that can be ordered; llm_placement.c moves calls down again if that
 * costs nothing.
 * Invariant: nothing is moved out of an input whose columns a join may fill with NULLs (outer
 * join), or that a join only tests for a match (semi-join).
 */
#include "rules_int.h"

/* Returns a copy of `node`, the top of one input of `join`, over `joined`. `joined` is the join
 * with node's input in place of node. */
static rel *place_above(rule_ctx *r, const rel *node, rel *joined, const rel *join) {
    if (node->kind != REL_PROJECT) {
        rel *copy = rel_copy(r, node);
        copy->left = joined;
        rel_set_columns(r->mem, copy);
        return copy;
    }
    rel *p = rel_project(r->mem, joined, join->ncols);
    for (int i = 0; i < join->ncols; i++) {
        expr *x = NULL;
        for (int k = 0; k < node->ncols && !x; k++)
            if (node->cols[k].id == join->cols[i].id)
                x = node->project.exprs[k].value;
        project_set(p, i, join->cols[i], x ? x : column_expr(r, &join->cols[i]));
    }
    return p;
}

/* Whether the join's condition reads the node's answers, so that the node must stay below the
 * join. */
static bool reads_answers(rule_ctx *r, const rel *join, const rel *node) {
    id_set answers = id_set_new(r->mem);
    for (int i = 0; node->kind == REL_LLM && i < node->llm.nsites; i++)
        id_set_add_answers(&answers, &node->llm.sites[i]);
    return expr_touches(join->join.predicate, &answers);
}

/* Returns the join's condition, with columns of the node's input in place of columns that the node,
 * a projection, computes. */
static expr *condition_below(rule_ctx *r, const rel *join, const rel *node) {
    expr_map map = {0};
    for (int i = 0; node->kind == REL_PROJECT && i < node->ncols; i++)
        expr_map_add(r, &map, node->cols[i].id, node->project.exprs[i].value);
    return expr_replace(r, join->join.predicate, &map);
}

/* Moves the node at the top of one input above the join x. Returns NULL if the node must stay. */
static rel *lift_one(rule_ctx *r, rel *x, bool from_left) {
    rel *node = from_left ? x->left : x->right;
    if (!rel_has_calls_on_top(node) || node_is_volatile(node) || reads_answers(r, x, node))
        return NULL;
    rel *join = rel_copy(r, x);
    if (from_left)
        join->left = node->left;
    else
        join->right = node->left;
    join->join.predicate = condition_below(r, x, node);
    rel_set_columns(r->mem, join);
    return place_above(r, node, join, x);
}

/* Moves all nodes that may be moved above the join, one after the other. x is the join, or a node
 * moved above it before. */
static rel *lift_all(rule_ctx *r, rel *x) {
    if (x->kind != REL_JOIN)
        return rel_over(r, x, lift_all(r, x->left), NULL);
    rel *lifted = lift_one(r, x, true);
    if (!lifted && join_is_inner(x->join.kind))
        lifted = lift_one(r, x, false);
    return lifted ? lift_all(r, lifted) : x;
}

rel *rule_llm_up(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, rule_llm_up);
    return x->kind == REL_JOIN ? lift_all(r, x) : x;
}
