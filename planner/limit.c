/*
 * limit.c - what a LIMIT means to a sort below it: it keeps only the first rows.
 *
 * Invariant: the LIMIT stays; the sort is only told how much of its work it can use.
 */
#include <stdint.h>

#include "rules_int.h"

/* Rows that a LIMIT can use, 0: all. */
static int64_t usable(const rel *x) {
    if (x->kind != REL_LIMIT || x->limit.limit < 0 || x->limit.npartition > 0)
        return 0;
    int64_t offset = BASE_MAX(x->limit.offset, 0);
    return x->limit.limit > INT64_MAX - offset ? 0 : x->limit.limit + offset;
}

/* ---- top k ----------------------------------------------------------------------------------- */

/* Marks the sort below nodes that give a row for a row. */
static rel *mark_sort(rule_ctx *r, rel *x, int64_t rows) {
    if (x->kind == REL_SORT) {
        rel *copy = rel_copy(r, x);
        copy->sort.first = rows;
        return copy;
    }
    if (x->kind == REL_PROJECT || x->kind == REL_LLM)
        return rel_over(r, x, mark_sort(r, x->left, rows), NULL);
    return x;
}

rel *rule_top_k(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, rule_top_k);
    int64_t rows = usable(x);
    return rows > 0 ? rel_over(r, x, mark_sort(r, x->left, rows), NULL) : x;
}
