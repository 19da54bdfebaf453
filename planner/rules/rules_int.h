/*
 * rules_int.h - the rules, one function each, and helpers that several of them use.
 */
#ifndef KVASIR_RULES_INT_H
#define KVASIR_RULES_INT_H

#include "cost/cost_int.h"

/* Runs all rules that are on over `root`, in the table's order. Reports each in p->rules (p may be
 * NULL); with `print` a report has the tree after the rule, if the rule changed it. */
rel *rules_run(rule_ctx *r, rel *root, bool print, plan *p);

rel *merge_filters(rule_ctx *r, rel *x);
rel *factor_common_or(rule_ctx *r, rel *x);
rel *inline_ctes(rule_ctx *r, rel *x);
rel *unnest_subqueries(rule_ctx *r, rel *x);
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

/* Puts a REL_PIPELINE around every maximal chain of LLM nodes and filters that one operator can run
 * (pipelines.c): before the rules that read pipelines, and before plan.c. */
rel *form_pipelines(rule_ctx *r, rel *x);

/* ---- unnesting (unnest.c, unnest_pull.c) ----------------------------------------------------- */

/* Unnests a subquery by pulling the conditions that read `outer` columns up. NULL: it is not
 * correlated by conditions alone, or not by such as may be pulled. */
rel *unnest_by_pulling(rule_ctx *r, rel *apply, const id_set *outer);
/* The join of an Apply's kind over these inputs. */
rel *apply_to_join(rule_ctx *r, const rel *apply, rel *left, rel *right, expr *predicate);
/* True if the tree x reads one of these columns from outside it. */
bool reads_any_of(rule_ctx *r, const rel *x, const id_set *ids);
/* The limit x over `left`, for each group of rows equal in the columns ids as well. */
rel *limit_per(rule_ctx *r, const rel *x, rel *left, const int *ids, int n);
/* The grouping x over `left` with the columns more[i] as additional keys ids[i]. If x had no keys,
 * its aggregates get new ids. */
rel *group_by_more(rule_ctx *r, const rel *x, rel *left, const rel_column *more, const int *ids,
                   int nmore);
/* Sets the outputs of `project` from `at` on: the aggregates of x, a grouping without keys, under
 * their own ids. g is group_by_more's result, outer joined, so a row may lack a group: its count
 * is 0 then. */
void aggregates_or_zero(rule_ctx *r, const rel *x, const rel *g, rel *project, int at);

#endif
