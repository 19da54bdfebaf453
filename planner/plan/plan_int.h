/*
 * plan_int.h - the functions of plan/ that plan.c calls to choose physical operators.
 */
#ifndef KVASIR_PLAN_INT_H
#define KVASIR_PLAN_INT_H

#include "rules/rules_int.h"

/* Sets `after` of a pipeline's stages, and late and late_guard of its call sites. The expressions
 * must already have slots (answers.c). */
void plan_order_stages(plan_node *pipeline);
/* Sets `reads` of a pipeline's call sites. The calls of the statement have the numbers 1 to
 * ncalls. */
void plan_find_reads(plan_node *pipeline, int ncalls, arena *mem);

/* For each rule that changed the tree or permits an algorithm, plans the statement again without
 * this rule, and records in p the cost that the rule saves (savings.c). */
void plan_find_savings(plan *p, const plan_env *env, arena *a);

/* ---- scans that read in the order of a sort (key_order.c) ------------------------------------ */

/* A scan that takes the place of a sort. */
typedef struct key_order {
    const rel *scan;
    const index_def *index; /* read in the order of this index; NULL: by rowid */
    bool descending;
    scan_nulls nulls;
    int64_t first; /* number of first rows that the sort keeps; 0: all */
    double share;  /* estimated fraction of the rows within the scan's bounds that are read */
} key_order;

/* Whether a scan below the sort can read its table in the sort's order, at a lower cost than
 * sorting. If so, sets *out. */
bool key_order_choose(rule_ctx *r, const rel *sort, key_order *out);
/* If `group` computes only min() or max() of a column, without keys: returns a sort of its input
 * whose first row has the result. Otherwise returns NULL. */
rel *key_order_extreme(rule_ctx *r, const rel *group);

/* ---- joins to a table read by keys (index_join.c) -------------------------------------------- */

/* A table that is read by the keys of a join. */
typedef struct key_scan {
    keyed_side side; /* the join's input that has the table; KEYED_NONE: no table is read by keys */
    const rel *top;  /* the table's scan, or the filter above it that becomes part of the scan */
    plan_node *node; /* the scan's PLAN_SCAN */
    const index_def *index; /* where the keys are looked up; NULL: they are rowids */
    int nkeys;
    int *keys;    /* [nkeys] numbers of the join keys that are looked up, in the index's order */
    double found; /* estimated rows that the look-ups find, before the scan's filter */
} key_scan;

/* Returns the cost of finding `found` rows by `keys` look-ups. The unit is the cost of reading the
 * next row of a scan. */
double keys_cost(double keys, double found);
/* Chooses the input of hash join n that is a table, and that costs less if it is read by the keys
 * of the other input's rows. The inputs must already be built. Side KEYED_NONE: there is no such
 * input. */
key_scan index_join_choose(rule_ctx *r, const rel *join, const plan_node *n);

/* ---- column names in EXPLAIN (names.c) ------------------------------------------------------- */

typedef struct column_names column_names;

column_names *names_new(arena *mem, int nids);
/* Names the columns that r computes, or passes on under new ids. n is r's plan node; NULL for an
 * LLM node. The inputs' columns must be named before, since the new names contain their names. */
void names_add(column_names *s, const rel *r, const plan_node *n);
/* Returns the printed name of a column, or `otherwise` if names_add has set none. */
str names_of(const column_names *s, int id, str otherwise);

#endif
