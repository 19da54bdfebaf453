/*
 * plan_int.h - the choices of physical operators that plan.c makes with the help of other files.
 */
#ifndef KVASIR_PLAN_INT_H
#define KVASIR_PLAN_INT_H

#include "rules/rules_int.h"

/* Sets `after` of a pipeline's stages and late_guard of its call sites, whose expressions are
 * resolved (answers.c). */
void plan_order_stages(plan_node *pipeline);

/* Plans the statement again without each rule that changed it, and notes in p the cost that each
 * rule saves (savings.c). */
void plan_find_savings(plan *p, const plan_env *env, arena *a);

/* ---- scans that read in the order of a sort (key_order.c) ------------------------------------ */

typedef struct key_order {
    const rel *scan;
    const index_def *index; /* NULL: by rowid */
    bool descending;
    scan_nulls nulls;
    int64_t first; /* rows that the sort keeps, 0: all */
    double share;  /* estimated fraction of the rows within the scan's bounds that are read */
} key_order;

/* True if a scan below the sort can read its table in the sort's order, and that costs less than
 * sorting. */
bool key_order_choose(rule_ctx *r, const rel *sort, key_order *out);
/* For min() or max() of one column, without keys: a sort of the input whose first row has the
 * result. NULL: `group` is something else. */
rel *key_order_extreme(rule_ctx *r, const rel *group);

/* ---- joins to a table read by keys (index_join.c) -------------------------------------------- */

typedef struct key_scan {
    keyed_side side;
    const rel *top; /* the table's scan, or the filter above it that becomes part of the scan */
    plan_node *node;
    const index_def *index; /* NULL: by rowid */
    int nkeys, *keys;       /* the join keys that are looked up, in the order of the index */
    double found;           /* estimated rows that the keys find, before the scan's filter */
} key_scan;

/* The cost of finding `found` rows by `keys` look-ups; the unit is reading the next row of a scan. */
double keys_cost(double keys, double found);
/* The input of a hash join, its inputs built, that is a table and costs less if it is read by the keys
 * of the other input's rows; side KEYED_NONE: neither. */
key_scan index_join_choose(rule_ctx *r, const rel *join, const plan_node *n);

/* ---- column names in EXPLAIN (names.c) ------------------------------------------------------- */

typedef struct column_names column_names;

column_names *names_new(arena *mem, int nids);
/* Names the columns that r computes, or passes on under new ids; n: its node (for an LLM node NULL).
 * Inputs come first: their names are part of these. */
void names_add(column_names *s, const rel *r, const plan_node *n);
/* The printed name of a column; `otherwise` if it is a table's column or has no better name. */
str names_of(const column_names *s, int id, str otherwise);

#endif
