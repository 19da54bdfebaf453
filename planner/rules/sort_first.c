/*
 * sort_first.c - ORDER BY … LIMIT over LLM filters: sorts the rows before the model is asked about
 * them.
 *
 *   Limit(Sort(Project(Filter(LLM(x)))))  ->  Limit(Project(Filter(LLM(Sort(x)))))
 *
 * A filter keeps its input's order and sorting is stable, so the rows and their order are the same.
 * But the model is asked in limit batches until the LIMIT is reached, not about all rows. min() and
 * max() are treated likewise: their result is the first value of the sorted rows. Calibrated calls
 * are moved even without a filter, because llm_late.c leaves them below the sort.
 * Invariant: a sort stays in its place if its keys read answers or their evaluation may fail.
 * Volatile values are computed once, below the filters.
 */
#include <string.h>

#include "core/pipeline_int.h"
#include "rules_int.h"

typedef struct sort_keys {
    sort_key *list;
    int n;
    /* Volatile values that the keys read. They become columns below the filters. */
    rel_expr *drawn;
    int ndrawn;
} sort_keys;

/* Whether a function never fails. */
static bool is_total(function_id f) {
    static const function_id total[] = {
        FUNC_LENGTH, FUNC_LOWER, FUNC_UPPER,    FUNC_TRIM,   FUNC_LTRIM, FUNC_RTRIM,    FUNC_SUBSTR,
        FUNC_INSTR,  FUNC_LEFT_, FUNC_RIGHT_,   FUNC_TYPEOF, FUNC_SIGN,  FUNC_COALESCE, FUNC_IFNULL,
        FUNC_NULLIF, FUNC_IIF,   FUNC_GREATEST, FUNC_LEAST,  FUNC_RANDOM};
    for (size_t i = 0; i < BASE_COUNT(total); i++)
        if (f == total[i])
            return true;
    return false;
}

/* Whether the evaluation of a sort key never fails. Sorting before the filters also evaluates the
 * keys for rows that the filters drop. */
static bool never_fails(const expr *x) {
    bool ok = x->kind == EXPR_LITERAL || x->kind == EXPR_COLUMN || x->kind == EXPR_CASE ||
              x->kind == EXPR_IN || (x->kind == EXPR_FUNC && is_total(x->function));
    if (x->kind == EXPR_OP)
        ok = (x->op > OP_CONCAT && x->op < OP_LIKE) || (x->op == OP_MOD && x->type == TYPE_INTEGER);
    for (int i = 0; i < x->nargs && ok; i++)
        ok = never_fails(x->args[i]);
    return ok;
}

static bool keys_may_come_first(const sort_keys *keys, const id_set *ids) {
    for (int i = 0; i < keys->n; i++)
        if (!expr_only_in(keys->list[i].value, ids) || !never_fails(keys->list[i].value) ||
            expr_is_volatile(keys->list[i].value))
            return false;
    return true;
}

/* Whether a key reads column c. ids: an empty set. */
static bool reads(const sort_keys *keys, const rel_column *c, id_set ids) {
    id_set_add(&ids, c->id);
    for (int i = 0; i < keys->n; i++)
        if (expr_touches(keys->list[i].value, &ids))
            return true;
    return false;
}

/* Returns the keys as expressions over the input of the projection x. Sets *above to x, or to a
 * copy that reads volatile values as columns of its input (sort_keys.drawn). */
static sort_keys below_project(rule_ctx *r, const rel *x, const sort_keys *keys, rel **above) {
    sort_keys below = {ARENA_ARRAY(r->mem, sort_key, keys->n + 1), keys->n,
                       ARENA_ARRAY(r->mem, rel_expr, x->ncols + 1), 0};
    rel *p = rel_project(r->mem, x->left, x->ncols);
    expr_map map = {0};
    for (int i = 0; i < x->ncols; i++) {
        expr *from = x->project.exprs[i].value;
        if (expr_is_volatile(from) && reads(keys, &x->cols[i], id_set_new(r->mem))) {
            rel_column c = {r->next_id++, from->type, x->cols[i].name, {NULL, 0}};
            below.drawn[below.ndrawn++] = (rel_expr){from, c.id};
            from = column_expr(r, &c);
        }
        project_set(p, i, x->cols[i], from);
        expr_map_add(r, &map, x->cols[i].id, from);
    }
    for (int i = 0; i < keys->n; i++) {
        below.list[i] = keys->list[i];
        below.list[i].value = expr_replace(r, keys->list[i].value, &map);
    }
    *above = below.ndrawn ? p : (rel *)x;
    return below;
}

/* Returns a projection of x that adds the keys' volatile values as columns. */
static rel *with_drawn(rule_ctx *r, rel *x, const sort_keys *keys) {
    if (keys->ndrawn == 0)
        return x;
    rel *p = rel_project(r->mem, x, x->ncols + keys->ndrawn);
    for (int i = 0; i < x->ncols; i++)
        project_set(p, i, x->cols[i], column_expr(r, &x->cols[i]));
    for (int i = 0; i < keys->ndrawn; i++) {
        const rel_expr *d = &keys->drawn[i];
        rel_column c = {d->id, d->value->type, STR("drawn"), {NULL, 0}};
        project_set(p, x->ncols + i, c, d->value);
    }
    return p;
}

static rel *sorted(rule_ctx *r, rel *x, const sort_keys *keys) {
    rel *sort = rel_new(r->mem, REL_SORT, x, NULL);
    sort->sort.nkeys = keys->n;
    sort->sort.keys = ARENA_ARRAY(r->mem, sort_key, keys->n + 1);
    memcpy(sort->sort.keys, keys->list, sizeof *keys->list * (size_t)keys->n);
    return sort;
}

/* Returns the input of the lowest LLM node in the chain of filters and LLM nodes at x; NULL: the
 * chain has no LLM node. */
static rel *input_of_calls(rel *x) {
    rel *input = NULL;
    for (; x->kind == REL_FILTER || x->kind == REL_LLM; x = x->left)
        if (x->kind == REL_LLM)
            input = x->left;
    return input;
}

/* Whether sorting first saves calls: between x and `base`, a filter reads answers or a call is
 * calibrated. */
static bool saves_calls(rule_ctx *r, const rel *x, const rel *base) {
    id_set known = id_set_new(r->mem);
    id_set_add_columns(&known, base);
    for (; x != base; x = x->left)
        if (x->kind == REL_FILTER ? !expr_only_in(x->filter.predicate, &known)
                                  : rel_is_calibrated(x))
            return true;
    return false;
}

/* Returns x with a sort by these keys below its LLM nodes, as far down as possible: calls may read
 * the answers of calls further down. Returns NULL if x has no LLM nodes, or if the sort must stay
 * above them. saves: sorting below the nodes above x saves calls. */
static rel *sort_below(rule_ctx *r, rel *x, const sort_keys *keys, bool saves) {
    id_set ids = id_set_new(r->mem);
    if ((x->kind == REL_PROJECT || x->kind == REL_DISTINCT) && keys->ndrawn == 0) {
        rel *above = x;
        sort_keys below = x->kind == REL_PROJECT ? below_project(r, x, keys, &above) : *keys;
        rel *left = sort_below(r, x->left, &below, saves);
        return left ? rel_over(r, above, left, NULL) : NULL;
    }
    rel *base = input_of_calls(x);
    if (!base)
        return NULL;
    saves = saves || saves_calls(r, x, base);
    rel *deeper = sort_below(r, base, keys, saves);
    if (deeper)
        return chain_over(r, x, base, deeper);
    id_set_add_columns(&ids, base);
    for (int i = 0; i < keys->ndrawn; i++) {
        if (!expr_only_in(keys->drawn[i].value, &ids) || !never_fails(keys->drawn[i].value))
            return NULL;
        id_set_add(&ids, keys->drawn[i].id);
    }
    if (!saves || !keys_may_come_first(keys, &ids))
        return NULL;
    return chain_over(r, x, base, sorted(r, with_drawn(r, base, keys), keys));
}

/* Returns x, the input of a LIMIT, with its sort moved down; NULL: x has no sort that can be
 * moved. */
static rel *without_sort(rule_ctx *r, rel *x) {
    if (x->kind == REL_PROJECT) {
        rel *left = without_sort(r, x->left);
        return left ? rel_over(r, x, left, NULL) : NULL;
    }
    if (x->kind != REL_SORT)
        return NULL;
    return sort_below(r, x->left, &(sort_keys){.list = x->sort.keys, .n = x->sort.nkeys}, false);
}

/* Rewrites a grouping that computes only min(v) or max(v) to read a single row: the first of its
 * input, sorted by v with NULLs last. */
static rel *first_of_sorted(rule_ctx *r, rel *x) {
    const rel_agg *a = x->group.aggs;
    if (x->group.nkeys > 0 || x->group.naggs != 1 || (a->kind != AGG_MIN && a->kind != AGG_MAX) ||
        a->filter)
        return x;
    sort_key key = {.value = a->arg, .descending = a->kind == AGG_MAX};
    rel *left = sort_below(r, x->left, &(sort_keys){.list = &key, .n = 1}, false);
    if (!left)
        return x;
    rel *first = rel_new(r->mem, REL_LIMIT, left, NULL);
    first->limit.limit = 1;
    return rel_over(r, x, first, NULL);
}

rel *rule_sort_first(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, rule_sort_first);
    if (x->kind == REL_GROUP)
        return first_of_sorted(r, x);
    rel *left = x->kind == REL_LIMIT && x->limit.limit >= 0 ? without_sort(r, x->left) : NULL;
    return left ? rel_over(r, x, left, NULL) : x;
}
