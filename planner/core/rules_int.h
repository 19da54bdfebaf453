/*
 * rules_int.h - what the rules share: sets of column ids, conjuncts, rebuilding a relation around
 * new inputs.
 *
 * Invariant: nothing here changes a rel or an expr in place. A node whose parts did not change is
 * returned itself, so a rule that finds nothing to do gives back the pointer it was given.
 */
#ifndef KVASIR_RULES_INT_H
#define KVASIR_RULES_INT_H

#include "planner_int.h"

/* ---- sets of column ids ---------------------------------------------------------------------- */

typedef struct id_set {
    arena *mem;
    uint64_t *bits;
    int nwords;
} id_set;

id_set id_set_new(arena *mem);
void id_set_add(id_set *s, int id);
bool id_set_has(const id_set *s, int id);
void id_set_add_all(id_set *s, const id_set *from);
void id_set_add_expr(id_set *s, const expr *x); /* x may be NULL */
void id_set_add_columns(id_set *s, const rel *r);
id_set id_set_copy(const id_set *s);
bool expr_only_in(const expr *x, const id_set *s); /* every column of x is in s */
bool expr_touches(const expr *x, const id_set *s); /* some column of x is in s; x may be NULL */
/* Whether x compares by =, <, <=, > or >=; *op then says the same as args[at] *op args[1 - at]. */
bool expr_compares(const expr *x, int at, expr_op *op);

/* ---- expressions ----------------------------------------------------------------------------- */

/* Columns to be replaced: ids[i] by with[i]. */
typedef struct expr_map {
    int n, room;
    int *ids;
    expr **with;
} expr_map;

void expr_map_add(rule_ctx *r, expr_map *m, int id, expr *with);
expr *expr_map_get(const expr_map *m, int id); /* NULL: not in it */
expr *expr_replace(rule_ctx *r, expr *x, const expr_map *m);
/* Replaces in every expression of the tree, LLM nodes and
 * partitions too (partition columns must map to columns). */
rel *rel_replace(rule_ctx *r, rel *x, const expr_map *m);
/* The node's own expressions alone; inputs and columns stay. */
rel *rel_replace_here(rule_ctx *r, const rel *x, const expr_map *m);
bool expr_is_true(const expr *x);
expr *make_func(rule_ctx *r, function_id function, value_type type, expr *a, expr *b);

/* A growing list of conditions that must all hold. */
typedef struct conjuncts {
    int n, room;
    expr **list;
} conjuncts;

void conjuncts_add(rule_ctx *r, conjuncts *c, expr *x);
void conjuncts_split(rule_ctx *r, conjuncts *c, expr *x); /* by AND; x may be NULL */
expr *conjuncts_join(rule_ctx *r, const conjuncts *c);    /* NULL when empty */

expr *column_expr(rule_ctx *r, const rel_column *c);

/* ---- relations ------------------------------------------------------------------------------- */

/* Rebuilds a node over other inputs: a copy with its columns derived again, or `x` itself if
 * nothing changed. Where inputs count by position (set operations, DISTINCT, shared relations) they
 * are first given back the columns they had. */
rel *rel_over(rule_ctx *r, rel *x, rel *left, rel *right);
/* `x` with exactly the columns `like` has: itself or a projection over it. */
rel *rel_like(rule_ctx *r, rel *x, const rel *like);
bool is_never(const expr *x); /* FALSE or NULL, where only rows are kept for which it is true */
rel *make_empty(rule_ctx *r, const rel *like); /* no rows, of the same columns */
/* `left` itself when there are no conditions; without rows where one is never true. */
rel *make_filter(rule_ctx *r, rel *left, const conjuncts *c);
/* Sets an output of a projection that was made with room for it. */
void project_set(rel *project, int at, rel_column c, expr *x);
rel *make_llm(rule_ctx *r, rel *left, const llm_use *uses, int nuses); /* uses are copied */

/* Every pair that passes is a row, and nothing else is. */
static inline bool join_is_inner(join_kind kind) {
    return kind == JOIN_INNER || kind == JOIN_CROSS;
}
static inline bool rel_is_inner_join(const rel *x) {
    return x->kind == REL_JOIN && join_is_inner(x->join.kind);
}

/* Applies fn to the inputs of a node. */
rel *rel_each_input(rule_ctx *r, rel *x, rule_fn fn);

/* Calls visit for every expression of the node itself. */
void rel_exprs(const rel *x, void (*visit)(void *ctx, const expr *e), void *ctx);
/* Ids that the node itself reads from its inputs. */
void rel_reads(const rel *x, id_set *s);
/* Ids read in the tree that nothing in the tree makes. */
id_set rel_free_ids(rule_ctx *r, const rel *x);
bool node_is_volatile(const rel *x); /* anything volatile in the node itself */
bool rel_is_volatile(const rel *x);  /* in the tree */
bool rel_has_llm(const rel *x);
/* Whether LLM calls stand at the top of x, under filters and projections alone. */
bool rel_has_calls_on_top(const rel *x);

/* ---- the rules (one file each) --------------------------------------------------------------- */

rel *rule_filters(rule_ctx *r, rel *x);
rel *rule_factor(rule_ctx *r, rel *x);
rel *rule_inline(rule_ctx *r, rel *x);
rel *rule_unnest(rule_ctx *r, rel *x);
rel *rule_semi_joins(rule_ctx *r, rel *x);
rel *rule_pushdown(rule_ctx *r, rel *x);
rel *rule_projects(rule_ctx *r, rel *x);
rel *rule_llm_up(rule_ctx *r, rel *x);
rel *rule_sort_first(rule_ctx *r, rel *x);
rel *rule_join_order(rule_ctx *r, rel *x);
rel *rule_llm_placement(rule_ctx *r, rel *x);
rel *rule_llm_late(rule_ctx *r, rel *x);
rel *rule_prune(rule_ctx *r, rel *x);
rel *rule_top_k(rule_ctx *r, rel *x);
rel *rule_waves(rule_ctx *r, rel *x);
rel *rule_reorder(rule_ctx *r, rel *x);

/* A correlated subquery that equalities tie to the outer query alone: its conditions pulled up,
 * unnest_pull.c. NULL: not of that shape. */
rel *unnest_by_pulling(rule_ctx *r, rel *apply, const id_set *outer);
/* Grouping x over `left` with columns more[i] as further keys ids[i]. Without keys before, its
 * aggregates get new ids. */
rel *group_by_more(rule_ctx *r, const rel *x, rel *left, const rel_column *more, const int *ids,
                   int nmore);
/* From position `at` of `project`: the aggregates of x (no keys) under their own ids, from g made
 * by group_by_more and joined to rows that may have no group: there a count is 0. */
void aggregates_or_zero(rule_ctx *r, const rel *x, const rel *g, rel *project, int at);

/* ---- scans (access.c) ------------------------------------------------------------------------ */

/* Chooses rowid or index bounds for a scan from the conditions above it and leaves those it did not
 * use in `rest`. The bounds are written into `node` with constant expressions. */
void access_choose(rule_ctx *r, const rel *scan, const conjuncts *all, plan_node *node,
                   conjuncts *rest);
/* As access_choose, but the rows come in the order of this index (NULL: the rowid), or the reverse. */
void access_choose_along(rule_ctx *r, const rel *scan, const conjuncts *all, const index_def *index,
                         plan_node *node, conjuncts *rest);

/* What these two would choose. */
typedef struct access_path {
    bool look_up;   /* rows are found one by one, not read in passing */
    int nequal;     /* leading columns that are bound to one value */
    bool low, high; /* the column behind them is bound */
    double share;   /* of the table's rows, within the bounds */
} access_path;

access_path access_best(rule_ctx *r, const rel *scan, const conjuncts *all);
access_path access_along(rule_ctx *r, const rel *scan, const conjuncts *all,
                         const index_def *index);

/* ---- reading in the order that a sort wants (key_order.c) ------------------------------------ */

typedef struct key_order {
    const rel *scan;
    const index_def *index; /* NULL: by rowid */
    bool descending;
    scan_nulls nulls;
    int64_t first; /* rows that the sort keeps, 0: all */
    double share;  /* of the rows within the scan's bounds that are likely to be read */
} key_order;

/* Whether the sort's input gives its rows in the sort's order, if a scan below reads them by a key,
 * and that costs less than sorting. */
bool key_order_choose(rule_ctx *r, const rel *sort, key_order *out);
/* min() or max() of a column over all rows of an input: the sort whose first row has it; else NULL. */
rel *key_order_extreme(rule_ctx *r, const rel *group);

/* ---- joins to a table read by keys (index_join.c) -------------------------------------------- */

typedef struct key_scan {
    keyed_side side;
    const rel *top; /* the table's relation, or that of the filter above it that its scan takes */
    plan_node *node;
    const index_def *index; /* NULL: by rowid */
    int nkeys, *keys;       /* the join's keys that are looked up, in the index' order */
    double found;           /* rows, before the scan's filter */
} key_scan;

/* Finding so many rows by so many keys, in rows read in passing. */
double keys_cost(double keys, double found);
/* Which side of a hash join, its children built, is a table better read by the keys of the other
 * side's rows; KEYED_NONE: neither. */
key_scan index_join_choose(rule_ctx *r, const rel *join, const plan_node *n);
/* What a join without equal keys knows of the right rows that a left row can meet: *out, as many as
 * it returns, over column ids; 0: nothing. */
int range_join_choose(rule_ctx *r, const rel *join, plan_range **out);
/* The one range of the right input's rows, of those that equal a left row in some columns (or none),
 * that holds all pairs and nothing else: false where there is none. */
bool range_join_first(rule_ctx *r, const rel *join, plan_range *out);

#endif
