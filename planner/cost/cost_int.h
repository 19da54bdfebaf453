/*
 * cost_int.h - the functions of cost/ that rules/ and plan/ call: estimated rows, values, tokens
 * and milliseconds of relations; the bounds by which a table is read; the ranges of a range join.
 */
#ifndef KVASIR_COST_INT_H
#define KVASIR_COST_INT_H

#include "core/rewrite_int.h"

/* ---- estimates (estimate.c, cost.c) ---------------------------------------------------------- */

/* A table's column in the joint sample of its statistics. */
typedef struct joint_column {
    const void *source;      /* identifies the scan; NULL: there is no sample */
    const joint_cell *cells; /* [rows] the column's cells of the sampled rows */
    int rows;                /* number of sampled rows */
    double table_rows;       /* number of rows of the table */
} joint_column;

/* The estimated values of one column of a relation. */
typedef struct column_estimate {
    double distinct;      /* number of distinct values */
    double null_fraction; /* fraction of the rows that have NULL, 0 to 1 */
    double bytes;         /* average bytes of a value */
    double domain; /* distinct values before joins and conditions on other columns dropped rows */
    /* Statistics of the table column whose values this column has unchanged; NULL: there is no such
     * table column, or it was not analyzed. */
    const column_stats *stats;
    bool ranged; /* a column of numbers whose range is known: low and high */
    double low;  /* least value; a condition on the column narrows the range */
    double high; /* greatest value */
    joint_column joint;
    int same; /* all columns that joins have made equal have the same number; 0: no such columns */
} column_estimate;

typedef struct rel_estimate {
    double rows;
    bool guess;               /* estimated without statistics */
    column_estimate *columns; /* one per column of the relation */
} rel_estimate;

estimator *estimator_new(arena *mem, const plan_env *env);
/* Estimates the rows and columns of a relation. The result is cached by the relation's address. */
const rel_estimate *estimate_rel(estimator *s, const rel *r);
/* Estimates the values of an expression over the rows of r. */
column_estimate estimate_expr(estimator *s, const expr *x, const rel *r);
/* Estimates the number of distinct combinations of these expressions' values over r, at least 1. */
double estimate_combinations(estimator *s, const rel *r, expr *const *list, int count);
/* Estimates the fraction of r's rows (0..1) for which x is true. */
double estimate_selectivity(estimator *s, const expr *x, const rel *r);
/* As estimate_selectivity, for one of several conditions that all hold: if x is a range, its share
 * of *ranges, to which x is added. *ranges is first r. */
double estimate_with_ranges(estimator *s, const expr *x, const rel *r, const rel **ranges);
/* What a call's prompts begin with: the instruction, or the row's data. LAID_ON_DATA: the data,
 * whose tokens an earlier call of the pipeline has already computed. LAID_ON_ROW: instruction and
 * data, whose tokens an earlier field of the same STRUCT has already computed. */
typedef enum site_layout {
    LAID_INSTRUCTION_FIRST,
    LAID_DATA_FIRST,
    LAID_ON_DATA,
    LAID_ON_ROW
} site_layout;
/* Adds a call's distinct inputs, tokens and cost over `input` to `out`. Writes the field order that
 * is estimated as best into `order`, which has an entry for each field, and returns its origin. */
order_origin estimate_llm_site(estimator *s, const llm_site *site, const rel *input,
                               site_layout layout, plan_estimate *out, uint8_t *order);
/* The layout of a call's prompts among those of its pipeline. */
typedef struct call_layout {
    site_layout layout;
    int group;          /* plan_call_site.group */
    double asked_share; /* plan_call_site.asked_share */
} call_layout;
/* Returns the layouts of all calls of a REL_PIPELINE in the order of its stages. They are chosen by
 * the setting llm_layout, or with 'auto' by estimated tokens (layout.c). */
call_layout *estimate_layout(estimator *s, const rel *pipeline);
/* Sets node->estimate, and for a pipeline the estimates of its stages and calls. r is the relation
 * from which the node was built. */
void estimate_node(estimator *s, const rel *r, plan_node *node);
/* Completes the estimates of a plan whose nodes are numbered: sets the selectivities of LLM stages,
 * subtracts what early termination saves, and computes the plan's total. */
void estimate_plan(plan *p, arena *mem);

/* ---- scans (access.c) ------------------------------------------------------------------------ */

/* Turns conditions above a scan into bounds on the rowid or on an index. Sets the bounds in `node`
 * (constant expressions), and adds the other conditions to `rest`. */
void access_choose(rule_ctx *r, const rel *scan, const conjuncts *all, plan_node *node,
                   conjuncts *rest);
/* As access_choose, but with bounds on this index (NULL: the rowid), so that the scan can return
 * rows in the order of the index or in the reverse order. */
void access_choose_along(rule_ctx *r, const rel *scan, const conjuncts *all, const index_def *index,
                         plan_node *node, conjuncts *rest);

/* The bounds that access_choose or access_choose_along would set. */
typedef struct access_path {
    bool look_up; /* each row is fetched by its key, not by scanning a range of the table */
    int nequal; /* number of leading columns that are bound to one value, or to a list of values */
    bool low;   /* the next column has a lower bound */
    bool high;  /* the next column has an upper bound */
    double share; /* estimated fraction of the table's rows within the bounds */
} access_path;

access_path access_best(rule_ctx *r, const rel *scan, const conjuncts *all);
access_path access_along(rule_ctx *r, const rel *scan, const conjuncts *all,
                         const index_def *index);

/* ---- ranges of joins (range_join.c) ---------------------------------------------------------- */

/* For a join without equal keys: finds ranges of right rows that contain all matches of a left row.
 * The expressions of *out read column ids. Returns the number of ranges; 0: the predicate gives
 * no range. */
int range_join_choose(rule_ctx *r, const rel *join, plan_range **out);
/* Finds the range that, together with equalities of both sides (nsame), is equivalent to the join's
 * predicate. Returns false if there is no such range. */
bool range_join_first(rule_ctx *r, const rel *join, plan_range *out);

#endif
