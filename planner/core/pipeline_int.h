/*
 * pipeline_int.h - REL_PIPELINE: the LLM calls and filters that one operator runs.
 *
 *   Pipeline            has the rows and columns of the chain below it
 *     Filter #2 = 'b'   ┐ stage 1: calls, and the filters right above them
 *       LLM #2          ┘
 *         Filter #1     ┐ stage 0
 *           LLM #1      ┘
 *             x           the base, whose rows are all read before the first call is asked
 *
 * A call's field may read the answers of calls below it in the same chain. Which rows share an input
 * is known nevertheless once the base's rows are (planner.h). So the stages can run in the order that
 * costs least as far as they do not read each other, calls about the same fields can share the
 * beginnings of their prompts, and what the nodes above need limits the calls of all stages.
 *
 * rules/pipelines.c alone makes these nodes. Later rules, estimates and plan.c find the end of a
 * pipeline's chain by counting its stages, so a rule may rebuild the chain over another base
 * (rel_over).
 */
#ifndef KVASIR_PIPELINE_INT_H
#define KVASIR_PIPELINE_INT_H

#include "rewrite_int.h"

/* For each distinct value of `keys`, only the first n rows by `order` are needed; rows that are
 * equal by `order` count in input order. with_ties: rows that tie with the n-th are needed too. */
typedef struct top_n_demand {
    int64_t n; /* 0: there is no such demand */
    conjuncts keys;
    int norder;
    sort_key *order;
    bool with_ties;
} top_n_demand;

/* Only rows whose `keys` equal the `partner_keys` of some row of `partner` are needed. nulls_match:
 * NULL equals NULL. mark_null: NULL on either side makes the join's result unknown, so a row with a
 * NULL key is needed, and a partner with a NULL key makes all rows needed. */
typedef struct semi_join_demand {
    /* the left input of a join above, without LLM calls; NULL: there is no such demand */
    const rel *partner;
    conjuncts keys;         /* one for each partner key */
    conjuncts partner_keys; /* partner_keys.list[i] is compared with keys.list[i] */
    bool nulls_match, mark_null;
} semi_join_demand;

/* Which of a relation's rows the nodes above the relation need. The expressions read columns of the
 * relation, and partner_keys columns of the partner; no expression is volatile. */
typedef struct row_demand {
    int64_t limit_hint; /* a LIMIT above needs about this many rows; 0: there is no such LIMIT */
    top_n_demand top_n;
    semi_join_demand semi_join;
} row_demand;

typedef struct llm_pipeline {
    int nstages;
    row_demand demand; /* its expressions read columns of the base */
    bool may_reorder;  /* the run may change the planned order of the stages */
} llm_pipeline;

/* One LLM node of the chain, and the filters between it and the next LLM node above. */
typedef struct chain_stage {
    const rel *llm;
    int nfilters;
    const rel **filters; /* [nfilters] the lowest first */
} chain_stage;

/* Returns a REL_PIPELINE over `chain`, which holds the topmost nstages LLM nodes of the chain and
 * the filters above them. */
rel *pipeline_new(rule_ctx *r, rel *chain, int nstages);
/* Returns a copy of `pipeline` with a copy of these details. */
rel *pipeline_with(rule_ctx *r, const rel *pipeline, const llm_pipeline *details);
rel *pipeline_base(const rel *pipeline);
/* Returns an array of the pipeline's stages, the lowest first. */
chain_stage *pipeline_stages(arena *mem, const rel *pipeline);
/* Rebuilds the chain from `top` down to `base` with `instead` in place of `base`. */
rel *chain_over(rule_ctx *r, rel *top, const rel *base, rel *instead);

#endif
