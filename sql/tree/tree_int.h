/*
 * tree_int.h - constructors and walks of bound trees for the binder. Functions that the planner
 * uses too are in sql.h.
 */
#ifndef KVASIR_TREE_INT_H
#define KVASIR_TREE_INT_H

#include "sql/sql.h"

/* ---- expr.c ---------------------------------------------------------------------------------- */

expr *expr_and(arena *a, expr *l, expr *r); /* l, r or both may be NULL */
expr *expr_cast(arena *a, expr *from, value_type type);
expr *expr_at(expr *x, int pos, int len); /* sets the span of x; returns x */
bool expr_is_null(const expr *x);

/* ---- source.c -------------------------------------------------------------------------------- */

/* Returns the number of elements that all vectors of x's VECTOR column `id` have; 0: not known. */
int rel_column_dims(const rel *x, int id);

/* ---- rel.c ----------------------------------------------------------------------------------- */

rel *rel_make(arena *a, rel_kind kind, int ncols);
rel *rel_one_row(arena *a);
rel *rel_filter(arena *a, rel *left, expr *predicate);
rel *rel_apply(arena *a, join_kind kind, rel *left, rel *right, expr *predicate, int mark_id,
               bool mark_null);
rel *rel_row_number(arena *a, rel *left, int id);
rel *rel_windows(arena *a, rel *left, sort_key *keys, int nkeys, rel_window *functions, int n);
rel *rel_sort(arena *a, rel *left, sort_key *keys, int nkeys);
rel *rel_limit(arena *a, rel *left, int64_t limit, int64_t offset);
rel *rel_distinct(arena *a, rel *left);
rel *rel_residual(arena *a, rel *left, int group_id, expr *predicate, int *null_ids, int nnull);
rel *rel_shared(arena *a, rel *left, int number);
rel *rel_recursive(arena *a, rel *left, rel *right, int number, bool distinct);

typedef struct rel_visit {
    void (*on_expr)(struct rel_visit *v, expr **x);    /* may replace *x; may be NULL */
    void (*on_site)(struct rel_visit *v, llm_site *u); /* may be NULL */
    void *ctx;
    /* bit set of the numbers of the shared relations already visited; a relation whose number does
     * not fit is visited at each reference */
    uint64_t seen[16];
} rel_visit;
/* Calls the visitor for every expression and call site of the tree. A shared relation is visited only
 * once. */
void rel_walk(rel *r, rel_visit *v);
/* rel_settle sets the type of a column whose values are all NULL, once the context determines it.
 * rel_settle_all sets every column that has no type to TEXT. */
void rel_settle(rel *r, int column, value_type type);
void rel_settle_all(rel *r);

/* ---- reads.c --------------------------------------------------------------------------------- */

/* Sets reads_answers and answer_texts of the calls in the tree x; x may be NULL. Its column ids are below
 * next_id, its numbers of shared relations below next_share. */
void rel_note_answer_fields(const rel *x, int next_id, int next_share);

#endif
