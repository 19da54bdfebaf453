/*
 * pipeline_int.h - REL_PIPELINE: the LLM calls and filters that one operator runs.
 *
 *   Pipeline            the bracket: rows and columns are those of the chain below it
 *     Filter #2 = 'b'   ┐ stage 1: calls, and the filters right above them
 *       LLM #2          ┘
 *         Filter #1     ┐ stage 0
 *           LLM #1      ┘
 *             x           the base, whose rows are all read before the first call is asked
 *
 * No call of a pipeline reads another's answer in a field, so the inputs of all calls are known once
 * the base's rows are. The stages can then run in the order that costs least, and calls about the same
 * fields can share the beginnings of their prompts.
 *
 * rules/pipelines.c forms the brackets; nothing else decides which nodes belong together. Rules that
 * run after it, estimates and plan.c find the chain below the bracket by counting its stages, so a
 * rule may rebuild the chain over another base (rel_over).
 */
#ifndef KVASIR_PIPELINE_INT_H
#define KVASIR_PIPELINE_INT_H

#include "rewrite_int.h"

/* Of the rows with equal `keys` only the first n, by `order` and then in input order, are of use;
 * with_ties: also those that tie with the last of them. */
typedef struct top_n_demand {
    int64_t n; /* 0: off */
    conjuncts keys;
    int norder;
    sort_key *order;
    bool with_ties;
} top_n_demand;

/* Rows whose `keys` equal the `partner_keys` of no row of `partner` are of no use. nulls_match: NULL
 * equals NULL; mark_null: NULL on either side makes the join's result unknown, so the row is of
 * use. */
typedef struct semi_join_demand {
    const rel *partner;           /* a join's left input, without LLM calls; NULL: off */
    conjuncts keys, partner_keys; /* equal in pairs */
    bool nulls_match, mark_null;
} semi_join_demand;

/* Which of a relation's rows are of use to the nodes above it. The expressions are over that
 * relation (partner_keys over the partner); none is volatile. */
typedef struct row_demand {
    int64_t limit_hint; /* a LIMIT above uses about this many rows; 0: off */
    top_n_demand top_n;
    semi_join_demand semi_join;
} row_demand;

typedef struct llm_pipeline {
    int nstages;
    row_demand demand; /* over the base */
    bool may_reorder;  /* the run may change the planned order of the stages */
} llm_pipeline;

/* One LLM node of the chain and the filters above it. */
typedef struct chain_stage {
    const rel *llm;
    int nfilters;
    const rel **filters; /* from below */
} chain_stage;

/* A bracket over `chain`, whose nstages LLM nodes and the filters above them it holds. */
rel *pipeline_new(rule_ctx *r, rel *chain, int nstages);
/* The same bracket with other details. */
rel *pipeline_with(rule_ctx *r, const rel *pipeline, const llm_pipeline *details);
rel *pipeline_base(const rel *pipeline);
/* The stages from the base up: an array of details->nstages. */
chain_stage *pipeline_stages(arena *mem, const rel *pipeline);
/* The chain from `top` down to `base`, rebuilt over `instead`. */
rel *chain_over(rule_ctx *r, rel *top, const rel *base, rel *instead);

#endif
