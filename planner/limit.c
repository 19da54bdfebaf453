/*
 * limit.c - what a LIMIT means to a sort below it: it keeps only the first rows.
 *
 * Invariant: the LIMIT stays; the sort is only told how much of its work it can use.
 */
#include <stdint.h>

#include "rules_int.h"

/* Rows that a LIMIT can use, of each of its groups, 0: all. */
static int64_t usable(const rel *x) {
    if (x->kind != REL_LIMIT || x->limit.limit < 0)
        return 0;
    int64_t offset = BASE_MAX(x->limit.offset, 0);
    return x->limit.limit > INT64_MAX - offset ? 0 : x->limit.limit + offset;
}

/* ---- top k ----------------------------------------------------------------------------------- */

/* The groups' columns where the node's input has them, in its ids; false: it has not. */
static bool partition_below(const rel *x, const int *ids, int n, int *below) {
    for (int i = 0; i < n; i++) {
        below[i] = ids[i];
        for (int c = 0; x->kind == REL_PROJECT && c < x->ncols; c++)
            if (x->project.exprs[c].id == ids[i] && x->project.exprs[c].value->kind == EXPR_COLUMN)
                below[i] = x->project.exprs[c].value->column.id;
        if (!rel_column_of(x->left, below[i]))
            return false;
    }
    return true;
}

/* Marks the sort below nodes that give a row for a row. */
static rel *mark_sort(rule_ctx *r, rel *x, int64_t rows, const int *ids, int n) {
    int *below = ARENA_ARRAY(r->mem, int, n + 1);
    bool passes = x->kind == REL_PROJECT || x->kind == REL_LLM;
    if ((!passes && x->kind != REL_SORT) || !partition_below(x, ids, n, below))
        return x;
    if (passes)
        return rel_over(r, x, mark_sort(r, x->left, rows, below, n), NULL);
    rel *copy = rel_copy(r, x);
    copy->sort.first = rows;
    copy->sort.npartition = n;
    copy->sort.partition = below;
    return copy;
}

rel *rule_top_k(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, rule_top_k);
    int64_t rows = usable(x);
    if (rows == 0)
        return x;
    rel *left = mark_sort(r, x->left, rows, x->limit.partition, x->limit.npartition);
    return rel_over(r, x, left, NULL);
}
