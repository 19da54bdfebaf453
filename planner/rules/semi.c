/*
 * semi.c - turns a mark join into a semi or anti join if nothing but one filter condition reads its
 * mark, as in WHERE x IN (…) and WHERE [NOT] EXISTS (…).
 *
 * Invariant: NOT IN stays a mark join if its mark may be NULL. A row whose mark is NULL does not
 * pass the filter, but it would pass an anti join.
 */
#include "rules_int.h"

static void count_columns(const rel *x, int *count) {
    for (int i = 0; i < x->ncols; i++)
        count[x->cols[i].id]++;
}

/* Counts for each column id how often it is read. Counts the nodes below a shared relation only
 * once, not for each reference. */
static void count_reads(const rel *x, int *count, bool *seen) {
    for (; x; x = x->left) {
        rel_count_columns(x, count);
        bool by_position = x->kind == REL_SETOP || x->kind == REL_DISTINCT ||
                           x->kind == REL_SHARED || x->kind == REL_RECURSIVE;
        if (by_position)
            count_columns(x->left, count);
        if (x->kind == REL_SHARED) {
            if (seen[x->shared.number])
                return;
            seen[x->shared.number] = true;
        }
        for (int i = 0; x->kind == REL_LIMIT && i < x->limit.npartition; i++)
            count[x->limit.partition[i]]++;
        if (!x->right)
            continue;
        if (by_position)
            count_columns(x->right, count);
        count_reads(x->right, count, seen);
    }
}

/* If x is a column or NOT a column, and nothing else reads the column: returns the column's id, and
 * sets *negated. Otherwise returns -1. */
static int sole_read(const rule_ctx *r, const expr *x, bool *negated) {
    *negated = x->kind == EXPR_OP && x->op == OP_NOT;
    if (*negated)
        x = x->args[0];
    return x->kind == EXPR_COLUMN && r->counts[x->column.id] == 1 ? x->column.id : -1;
}

/* Returns x with the join that makes the column `mark` turned into a semi or anti join, or x itself
 * if that is not possible. The join may be x, or below filters, LLM nodes and the left inputs of
 * joins. */
static rel *convert(rule_ctx *r, rel *x, int mark, bool negated) {
    if (x->kind == REL_JOIN && x->join.kind == JOIN_MARK && x->join.mark_id == mark) {
        if (negated && x->join.mark_null)
            return x;
        rel *copy = rel_copy(r, x);
        copy->join.kind = negated ? JOIN_ANTI : JOIN_SEMI;
        copy->join.mark_id = -1;
        copy->join.mark_null = false;
        return rel_rebuild(r, copy, x->left, x->right);
    }
    if (x->kind == REL_FILTER || x->kind == REL_LLM || x->kind == REL_JOIN)
        return rel_over(r, x, convert(r, x->left, mark, negated), x->right);
    return x;
}

static rel *convert_marks(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, convert_marks);
    if (x->kind != REL_FILTER)
        return x;
    conjuncts own = {0}, kept = {0};
    rel *left = x->left;
    conjuncts_split(r, &own, x->filter.predicate);
    for (int i = 0; i < own.n; i++) {
        bool negated;
        int mark = sole_read(r, own.list[i], &negated);
        rel *converted = mark >= 0 ? convert(r, left, mark, negated) : left;
        if (converted == left)
            conjuncts_add(r, &kept, own.list[i]);
        left = converted;
    }
    return kept.n == own.n ? x : make_filter(r, left, &kept);
}

rel *marks_to_semi_joins(rule_ctx *r, rel *x) {
    r->counts = ARENA_ARRAY(r->mem, int, r->next_id + 1);
    count_columns(x, r->counts);
    count_reads(x, r->counts, ARENA_ARRAY(r->mem, bool, r->next_share + 1));
    return convert_marks(r, x);
}
