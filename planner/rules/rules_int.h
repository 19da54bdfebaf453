/*
 * rules_int.h - the rules, one function each, and helpers that several of them use.
 */
#ifndef KVASIR_RULES_INT_H
#define KVASIR_RULES_INT_H

#include "cost/cost_int.h"

/* Runs all rules that are on over `root`, in the order of the table in rules.c. If p is not NULL,
 * reports each rule in p->rules. With `print`, the report of a rule that changed the tree has the
 * new tree. */
rel *rules_run(rule_ctx *r, rel *root, bool print, plan *p);

rel *merge_filters(rule_ctx *r, rel *x);
rel *factor_common_or(rule_ctx *r, rel *x);
rel *inline_ctes(rule_ctx *r, rel *x);
rel *unnest_all(rule_ctx *r, rel *x);
rel *unnest_subqueries(rule_ctx *r, rel *x); /* those of the tree x */
rel *marks_to_semi_joins(rule_ctx *r, rel *x);
rel *push_conditions(rule_ctx *r, rel *x);
rel *merge_projections(rule_ctx *r, rel *x);
rel *rule_llm_up(rule_ctx *r, rel *x);
rel *rule_sort_first(rule_ctx *r, rel *x);
rel *order_inner_joins(rule_ctx *r, rel *x);
rel *rule_llm_placement(rule_ctx *r, rel *x);
rel *rule_llm_late(rule_ctx *r, rel *x);
rel *prune_columns(rule_ctx *r, rel *x);
rel *keep_first_rows(rule_ctx *r, rel *x);
rel *rule_waves(rule_ctx *r, rel *x);
rel *rule_reorder(rule_ctx *r, rel *x);

/* Puts a REL_PIPELINE over every maximal chain of LLM nodes and filters that one operator can
 * run. Runs before the rules that read pipelines, and before plan.c. */
rel *form_pipelines(rule_ctx *r, rel *x);

/* ---- unnesting (unnest.c, unnest_pull.c) ----------------------------------------------------- */

/* Unnests a subquery by pulling up the conditions that read `outer` columns. Returns NULL if
 * another part of the subquery reads them, if a condition may not be pulled up, or if the method of
 * unnest.c compares fewer pairs of rows. */
rel *unnest_by_pulling(rule_ctx *r, rel *apply, const id_set *outer);
/* Returns a join of the same kind as the REL_APPLY `apply` over these inputs. */
rel *apply_to_join(rule_ctx *r, const rel *apply, rel *left, rel *right, expr *predicate);
/* Whether the tree x reads one of these columns, and no node of the tree has it as a column. */
bool reads_any_of(rule_ctx *r, const rel *x, const id_set *ids);
/* Returns the limit x over `left`, with the columns `ids` added to the partition columns. */
rel *limit_per(rule_ctx *r, const rel *x, rel *left, const int *ids, int n);
/* Returns the grouping x over `left`, with the columns more[i] added as keys; the key column of
 * more[i] has the id ids[i]. If x has no keys, its aggregates get new ids. */
rel *group_by_more(rule_ctx *r, const rel *x, rel *left, const rel_column *more, const int *ids,
                   int nmore);
/* Sets the outputs of `project` from `at` on to the aggregates of x, a grouping without keys, under
 * the ids that they have in x. `project` is over a left join with g, the result of group_by_more. A
 * row that matches no group of g gets 0 for a count and NULL for any other aggregate. */
void aggregates_or_zero(rule_ctx *r, const rel *x, const rel *g, rel *project, int at);

#endif
