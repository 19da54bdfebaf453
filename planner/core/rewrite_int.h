/*
 * rewrite_int.h - the vocabulary of rewriting: the context of a rule, sets of column ids,
 * conjuncts, and copies of relations with other inputs or expressions.
 *
 * Invariant: nothing here changes a rel or an expr in place. A function returns the same node if no
 * part of the node changed, so a rule that finds nothing to do returns the pointer that it got.
 */
#ifndef KVASIR_REWRITE_INT_H
#define KVASIR_REWRITE_INT_H

#include "planner/planner.h"
#include "storage/containers.h"

/* ---- the context of a rule ------------------------------------------------------------------- */

typedef struct estimator estimator;

/* Rules that rewrite nothing: they allow plan/ and cost/ to choose a certain physical operator. */
typedef enum plan_choice {
    CHOICE_NONE,
    CHOICE_KEYS,
    CHOICE_KEY_LISTS,
    CHOICE_INDEX_JOIN,
    CHOICE_RANGE_JOIN,
    CHOICE_KEY_ORDER,
    CHOICE_NEAREST,
    CHOICE_LISTS
} plan_choice;

typedef struct rule_ctx {
    arena *mem;
    const plan_env *env;
    const sql_stmt *stmt;
    int next_id;    /* the first unused column id */
    int next_share; /* the first unused number of a REL_SHARED */
    estimator *estimates;
    int *counts; /* scratch space of the running rule */
    /* By number of a shared relation: the relation's input before and after the running rule; NULL
     * until the rule has visited the relation. */
    rel **shared_before;
    rel **shared_after;
    int nshared;      /* entries of shared_before and shared_after */
    unsigned choices; /* bit c: plan_choice c is on */
    err *e;           /* a rule that fails sets it and returns its input */
} rule_ctx;

/* A rule. Returns a relation with the same rows and columns. It copies the nodes that it changes
 * (rel_copy), shares all others, and never changes an expr or an llm_call. */
typedef rel *(*rule_fn)(rule_ctx *r, rel *root);

static inline bool choice_is_on(const rule_ctx *r, plan_choice c) {
    return r->choices >> c & 1;
}

/* ---- sets of column ids ---------------------------------------------------------------------- */

typedef struct id_set {
    arena *mem;
    uint64_t *bits; /* [nwords] id i is bit i % 64 of bits[i / 64] */
    int nwords;
    int room; /* allocated entries of `bits` */
} id_set;

id_set id_set_new(arena *mem);
void id_set_add(id_set *s, int id);
bool id_set_has(const id_set *s, int id);
void id_set_add_all(id_set *s, const id_set *from);
void id_set_add_expr(id_set *s, const expr *x); /* x may be NULL */
void id_set_add_columns(id_set *s, const rel *r);
/* Adds the columns that a call site makes: its answer and probabilities. */
void id_set_add_answers(id_set *s, const llm_site *site);
id_set id_set_copy(const id_set *s);
id_set id_set_columns(arena *mem, const rel *r);     /* the columns of r */
bool id_set_meets(const id_set *a, const id_set *b); /* whether a and b have an id in common */
bool expr_only_in(const expr *x, const id_set *s);   /* whether s has every column of x */
bool expr_touches(const expr *x, const id_set *s); /* whether s has a column of x; x may be NULL */

/* ---- expressions ----------------------------------------------------------------------------- */

/* Whether x is a comparison by =, <, <=, > or >=. If so, sets *op such that x is equivalent to
 * `args[at] *op args[1 - at]`. */
bool expr_compares(const expr *x, int at, expr_op *op);

/* A substitution: maps column ids to the expressions that replace the columns. */
typedef struct expr_map {
    int n, room;
    rel_expr *list;
} expr_map;

void expr_map_add(rule_ctx *r, expr_map *m, int id, expr *with);
expr *expr_map_get(const expr_map *m, int id); /* NULL if the map does not have this id */
expr *expr_replace(rule_ctx *r, expr *x, const expr_map *m);
/* Substitutes in every expression of the tree, including the expressions of LLM nodes. A column
 * that is a partition key must map to a column. */
rel *rel_replace(rule_ctx *r, rel *x, const expr_map *m);
/* Substitutes in the node's own expressions only. The node's inputs and output columns stay the
 * same. */
rel *rel_replace_here(rule_ctx *r, const rel *x, const expr_map *m);
bool expr_is_true(const expr *x);
bool is_never(const expr *x); /* whether x is the literal FALSE or NULL */
expr *make_func(rule_ctx *r, function_id function, value_type type, expr *a, expr *b);
expr *column_expr(rule_ctx *r, const rel_column *c);

/* A growing list of conditions that must all hold. */
typedef struct conjuncts {
    int n, room;
    expr **list;
} conjuncts;

void conjuncts_add(rule_ctx *r, conjuncts *c, expr *x);
void conjuncts_add_all(rule_ctx *r, conjuncts *c, const conjuncts *from);
void conjuncts_split(rule_ctx *r, conjuncts *c, expr *x);    /* by AND; x may be NULL */
expr *conjuncts_join(rule_ctx *r, const conjuncts *c);       /* NULL: no conditions */
bool conjuncts_same(const conjuncts *a, const conjuncts *b); /* the same pointers, same order */
/* Appends each condition of `all` to `within` if the condition reads only columns of `ids`,
 * otherwise to `others`. */
void conjuncts_sort_out(rule_ctx *r, const conjuncts *all, const id_set *ids, conjuncts *within,
                        conjuncts *others);

/* ---- relations ------------------------------------------------------------------------------- */

/* A shallow copy in r->mem. */
rel *rel_copy(rule_ctx *r, const rel *from);
/* Returns a copy of `from` over these inputs, and derives the copy's columns from the inputs'. */
rel *rel_rebuild(rule_ctx *r, const rel *from, rel *left, rel *right);
/* As rel_rebuild, but returns `x` itself if the inputs are the same. Some nodes match the columns
 * of their inputs by position (set operations, DISTINCT, shared relations, recursions); for these,
 * projects the new inputs to the columns of the old inputs first. */
rel *rel_over(rule_ctx *r, rel *x, rel *left, rel *right);
/* Returns a relation with the rows of `x` and exactly the columns of `like`: x itself if it has
 * them, or a projection over x. */
rel *rel_like(rule_ctx *r, rel *x, const rel *like);
/* Returns a relation that has no rows and the columns of `like`. */
rel *make_empty(rule_ctx *r, const rel *like);
/* Returns a filter by all conditions over `left`, or `left` itself if there are no conditions. If
 * is_never holds for a condition, returns a relation without rows (make_empty). */
rel *make_filter(rule_ctx *r, rel *left, const conjuncts *c);
/* Returns a projection over `input` whose first outputs are the columns `cols`, unchanged. The
 * caller must set `more` further outputs by project_set. */
rel *pass_columns(rule_ctx *r, rel *input, const rel_column *cols, int ncols, int more);
/* Sets output `at` of a projection. */
void project_set(rel *project, int at, rel_column c, expr *x);
rel *make_llm(rule_ctx *r, rel *left, const llm_site *sites, int nsites); /* sites are copied */

/* Whether a join of this kind returns exactly the pairs of rows for which its predicate is true. */
static inline bool join_is_inner(join_kind kind) {
    return kind == JOIN_INNER || kind == JOIN_CROSS;
}
static inline bool rel_is_inner_join(const rel *x) {
    return x->kind == REL_JOIN && join_is_inner(x->join.kind);
}

/* Applies fn to the inputs of x and returns x over the results (rel_over). */
rel *rel_each_input(rule_ctx *r, rel *x, rule_fn fn);

/* Calls visit for every expression of the node itself. */
void rel_exprs(const rel *x, void (*visit)(void *ctx, const expr *e), void *ctx);
/* Adds the ids that the node itself reads from its inputs. */
void rel_reads(const rel *x, id_set *s);
/* Adds to count[id] how often the node's own expressions name column id. */
void rel_count_columns(const rel *x, int *count);
/* Returns the ids that the tree reads but that are columns of none of its nodes: references to an
 * outer query. */
id_set rel_free_ids(rule_ctx *r, const rel *x);
bool node_is_volatile(const rel *x); /* whether an expression of the node itself is volatile */
bool rel_is_volatile(const rel *x);  /* whether an expression of any node of the tree is volatile */
bool rel_has_llm(const rel *x);
/* Whether x is an LLM node, or filters and projections over an LLM node. */
bool rel_has_calls_on_top(const rel *x);

#endif
