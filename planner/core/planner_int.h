/*
 * planner_int.h - what the planner's files share: rules over relations, estimates, and the way from
 * relations to plan nodes.
 *
 *   sql_stmt.query --rules.c: each rule in order--> rel --plan.c--> plan_node --estimate.c-->
 *   figures --explain.c--> text
 *
 * Invariant: a rule gets a relation and returns one that means the same; it copies what it changes
 * (rel_copy) and shares the rest, never touching an expr or an llm_call. Output columns (ids,
 * order) of the root stay as they were.
 */
#ifndef KVASIR_PLANNER_INT_H
#define KVASIR_PLANNER_INT_H

#include "planner/planner.h"

/* ---- rules ----------------------------------------------------------------------------------- */

typedef struct estimator estimator;

/* Rules that rewrite nothing, but let plan.c and access.c choose a way of reading (rules.c). */
typedef enum plan_choice {
    CHOICE_NONE,
    CHOICE_KEYS,
    CHOICE_KEY_LISTS,
    CHOICE_INDEX_JOIN,
    CHOICE_RANGE_JOIN,
    CHOICE_KEY_ORDER
} plan_choice;

typedef struct rule_ctx {
    arena *mem;
    const plan_env *env;
    const sql_stmt *stmt;
    int next_id, next_share; /* new column ids and share numbers are taken from here */
    estimator *estimates;
    int *counts; /* of the rule at work, per share number */
    /* inputs of shared relations that the rule at work has been through, per share number */
    rel **shared_before, **shared_after;
    int nshared;      /* entries of these */
    unsigned choices; /* those that are on, by bit */
    err *e;           /* a rule that fails sets it and returns its input */
} rule_ctx;

typedef rel *(*rule_fn)(rule_ctx *r, rel *root);

/* Runs all rules that are on over `root`, reporting each into plan->rules; `print` keeps the tree
 * after each that changed it. */
rel *rules_run(rule_ctx *r, rel *root, bool print, plan *p);

bool rule_chosen(const rule_ctx *r, plan_choice c);

/* Plans the statement again without each rule that had a part in p, and notes in p what the rule
 * saves of the cost (savings.c). */
void plan_find_savings(plan *p, const plan_env *env, arena *a);

/* A shallow copy in r->mem. */
rel *rel_copy(rule_ctx *r, const rel *from);

/* ---- estimates (estimate.c, cost.c) ---------------------------------------------------------- */

/* A table's column in the joint sample of its statistics. */
typedef struct joint_column {
    const void *source; /* one per scan; NULL: there is no sample */
    const joint_cell *cells;
    int rows;
    double table_rows;
} joint_column;

/* What is expected of one column of a relation. */
typedef struct column_estimate {
    double distinct, null_fraction, bytes;
    double domain; /* distinct before joins and conditions on other columns took rows away */
    /* of the table's column it comes from unchanged, if analyzed; else NULL */
    const column_stats *stats;
    joint_column joint;
    int same; /* columns that joins have made equal have the same number here; 0: none has */
} column_estimate;

typedef struct rel_estimate {
    double rows;
    bool guess;
    column_estimate *columns; /* one per rel column */
} rel_estimate;

estimator *estimator_new(arena *mem, const plan_env *env);
/* Rows and columns of a relation; remembered per relation node. */
const rel_estimate *estimate_rel(estimator *s, const rel *r);
/* The estimate of an expression's values over the rows of r. */
column_estimate estimate_expr(estimator *s, const expr *x, const rel *r);
/* How many combinations of values these expressions over a relation have, at least one. */
double estimate_combinations(estimator *s, const rel *r, expr *const *list, int count);
/* The share of `r`'s rows (0..1) for which x is true. */
double estimate_selectivity(estimator *s, const expr *x, const rel *r);
/* What stands first in a use's prompts; ON_DATA: data
 * that an earlier use of the stack has computed. */
typedef enum use_layout { LAID_INSTRUCTION_FIRST, LAID_DATA_FIRST, LAID_ON_DATA } use_layout;
/* The facts of one LLM use over `input`: distinct inputs, tokens, cost in ms; estimated best field
 * order into order (nfields). */
order_origin estimate_llm_use(estimator *s, const llm_use *use, const rel *input, use_layout layout,
                              plan_estimate *out, uint8_t *order);
/* Fills node->estimate (and the estimated field orders
 * of an LLM node) from the relation it was made of. */
void estimate_node(estimator *s, const rel *r, plan_node *node);
/* Once nodes are numbered: selectivity of LLM nodes,
 * what waves spare them, and the plan's total. */
void estimate_plan(plan *p, arena *mem);

/* ---- stacks of LLM nodes (llm_stack.c) ------------------------------------------------------- */

/* LLM nodes over one another, filters alone between them, of which none reads another's answer in
 * its fields; top first. */
typedef struct llm_stack_rels {
    int count;
    const rel *nodes[PLAN_STACK], *base;
} llm_stack_rels;

/* The stack whose top is x, a filter or LLM node; false: x stands over none. */
bool llm_stack_collect(arena *mem, const rel *x, llm_stack_rels *out);
/* Finds the stacks of a whole query, once its rules have run, and lays out their prompts as SET
 * llm_layout wants it or by estimated tokens. */
void estimate_stacks(estimator *s, const rel *query);
/* Of a node that estimate_stacks has seen: whether the next LLM node below is of its stack. */
bool estimate_joins_below(const estimator *s, const rel *llm);
/* What a use is to its stack. */
typedef struct use_place {
    use_layout layout;
    int group;          /* as plan_llm_use's */
    double asked_share; /* as plan_llm_use's */
} use_place;
/* The place of an LLM node's use; before estimate_stacks that of a use alone. */
use_place estimate_place(const estimator *s, const rel *llm, int use);

/* ---- names in EXPLAIN (names.c) -------------------------------------------------------------- */

typedef struct column_names column_names;

column_names *names_new(arena *mem, int nids, int nshared);
void names_collect(column_names *s, const rel *r);
/* What a column is called; `otherwise` when it is a table's or has no better name. */
str names_of(const column_names *s, int id, str otherwise);

#endif
