/*
 * cost_int.h - what the rules and plan/ ask cost/: estimated rows, values, tokens and milliseconds
 * of relations; the bounds by which a table is read; the ranges of a join.
 */
#ifndef KVASIR_COST_INT_H
#define KVASIR_COST_INT_H

#include "core/rewrite_int.h"

/* ---- estimates (estimate.c, cost.c) ---------------------------------------------------------- */

/* A table's column in the joint sample of its statistics. */
typedef struct joint_column {
    const void *source; /* one per scan; NULL: there is no sample */
    const joint_cell *cells;
    int rows;
    double table_rows;
} joint_column;

/* The estimated values of one column of a relation. */
typedef struct column_estimate {
    double distinct, null_fraction, bytes;
    double domain; /* distinct values before joins and conditions on other columns dropped rows */
    /* of the table's column that this column is unchanged, if it was analyzed; else NULL */
    const column_stats *stats;
    joint_column joint;
    int same; /* the same number for all columns that joins have made equal; 0: none */
} column_estimate;

typedef struct rel_estimate {
    double rows;
    bool guess;               /* made without statistics */
    column_estimate *columns; /* one per column of the relation */
} rel_estimate;

estimator *estimator_new(arena *mem, const plan_env *env);
/* Rows and columns of a relation; cached by the relation's address. */
const rel_estimate *estimate_rel(estimator *s, const rel *r);
/* The values of an expression over the rows of r. */
column_estimate estimate_expr(estimator *s, const expr *x, const rel *r);
/* The number of distinct combinations of values of these expressions over r, at least 1. */
double estimate_combinations(estimator *s, const rel *r, expr *const *list, int count);
/* The fraction of `r`'s rows (0..1) for which x is true. */
double estimate_selectivity(estimator *s, const expr *x, const rel *r);
/* What a call's prompts begin with. ON_DATA: with data that an earlier call of the pipeline has
 * already computed. */
typedef enum use_layout { LAID_INSTRUCTION_FIRST, LAID_DATA_FIRST, LAID_ON_DATA } use_layout;
/* Adds a call's distinct inputs, tokens and cost over `input` to `out`, and writes the estimated
 * best field order into order (nfields). */
order_origin estimate_llm_use(estimator *s, const llm_use *use, const rel *input, use_layout layout,
                              plan_estimate *out, uint8_t *order);
/* The layout of a call's prompts among those of its pipeline. */
typedef struct call_layout {
    use_layout layout;
    int group;          /* as plan_call_site's */
    double asked_share; /* as plan_call_site's */
} call_layout;
/* The layouts of all calls of a REL_PIPELINE, in the order of its stages: by SET llm_layout, or by
 * estimated tokens (layout.c). */
call_layout *estimate_layout(estimator *s, const rel *pipeline);
/* Sets node->estimate, and the estimates of a pipeline's stages and calls, from the relation that the
 * node was made of. */
void estimate_node(estimator *s, const rel *r, plan_node *node);
/* Completes a plan whose nodes are numbered: selectivities of LLM calls, what early termination
 * saves, and the plan's total. */
void estimate_plan(plan *p, arena *mem);

/* ---- scans (access.c) ------------------------------------------------------------------------ */

/* Turns conditions above a scan into bounds on the rowid or an index. Sets the bounds in `node`
 * (constant expressions) and adds the conditions that remain to `rest`. */
void access_choose(rule_ctx *r, const rel *scan, const conjuncts *all, plan_node *node,
                   conjuncts *rest);
/* As access_choose, but by this index (NULL: the rowid), so that rows come in its order or in the
 * reverse. */
void access_choose_along(rule_ctx *r, const rel *scan, const conjuncts *all, const index_def *index,
                         plan_node *node, conjuncts *rest);

/* The bounds that access_choose or access_choose_along would set. */
typedef struct access_path {
    bool look_up;   /* each row is fetched by a key of its own, not by scanning a range */
    int nequal;     /* leading columns that are bound to one value */
    bool low, high; /* the next column has a lower, an upper bound */
    double share;   /* estimated fraction of the table's rows within the bounds */
} access_path;

access_path access_best(rule_ctx *r, const rel *scan, const conjuncts *all);
access_path access_along(rule_ctx *r, const rel *scan, const conjuncts *all,
                         const index_def *index);

/* ---- ranges of joins (range_join.c) ---------------------------------------------------------- */

/* The ranges of right rows that hold all matches of a left row, in a join without equal keys: *out
 * over column ids. Returns their number; 0: the predicate bounds nothing. */
int range_join_choose(rule_ctx *r, const rel *join, plan_range **out);
/* The one range that is equivalent to the join's predicate, after equalities of both sides (nsame).
 * false: there is none. */
bool range_join_first(rule_ctx *r, const rel *join, plan_range *out);

#endif
