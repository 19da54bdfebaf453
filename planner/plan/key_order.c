/*
 * key_order.c - scans in the order of ORDER BY: by rowid or along an index, so that nothing is
 * sorted and a LIMIT ends the scan. min() and max() read the first row of such a scan.
 *
 *   SELECT … FROM t WHERE a = 1 AND c > 0 ORDER BY b DESC LIMIT 3
 *
 *   Limit 3
 *   └─ Index scan t by t_a_b, descending [a = 1] where c > 0
 *
 * Invariant: the scan returns rows in exactly the order of the (stable) sort. Therefore the index
 * must consist of columns that are bound to one value, then the sort's keys, and no other columns;
 * rows with equal keys are then in the order of their rowids. An index sorts NULLs first. If the
 * sort has NULLs last, they are read as a separate range, which is possible only for the first key.
 */
#include "plan_int.h"

/* Sets *at_table to the table's column that is the sort's key; -1: the rowid. Returns false if the
 * key is not a column of the table. */
static bool key_column(const rel *sort, int key, const rel *scan, int *at_table) {
    const expr *x = sort->sort.keys[key].value;
    for (const rel *at = sort->left; at != scan && x->kind == EXPR_COLUMN; at = at->left) {
        const expr *below = x;
        for (int i = 0; at->kind == REL_PROJECT && i < at->ncols; i++)
            if (at->project.exprs[i].id == x->column.id)
                below = at->project.exprs[i].value;
        x = below;
    }
    for (int i = 0; x->kind == EXPR_COLUMN && i < scan->ncols; i++)
        if (scan->cols[i].id == x->column.id) {
            *at_table = scan->scan.columns[i];
            if (*at_table == scan->scan.table->rowid_column)
                *at_table = -1;
            return true;
        }
    return false;
}

/* Returns the scan below the sort if only projections and filters are between them; otherwise
 * NULL. */
static const rel *table_below(const rel *sort) {
    const rel *x = sort->left;
    while (x->kind == REL_PROJECT || x->kind == REL_FILTER) {
        if (x->kind == REL_FILTER && expr_is_volatile(x->filter.predicate))
            return NULL;
        x = x->left;
    }
    return x->kind == REL_SCAN ? x : NULL;
}

/* Returns the conditions of the filter directly above the scan, which becomes part of the scan. */
static conjuncts conditions_of(rule_ctx *r, const rel *sort, const rel *scan) {
    conjuncts all = {0};
    for (const rel *at = sort->left; at != scan; at = at->left)
        if (at->kind == REL_FILTER && at->left == scan)
            conjuncts_split(r, &all, at->filter.predicate);
    return all;
}

/* Whether the key has NULLs where an index read in the key's direction has them. */
static bool nulls_by_key(const sort_key *k) {
    return k->nulls_first != k->descending;
}

/* Whether the index consists of `nequal` columns and the sort's keys, all in the same direction. */
static bool has_keys(const rel *sort, const rel *scan, const index_def *index, int nequal) {
    int n = sort->sort.nkeys;
    const sort_key *keys = sort->sort.keys;
    if (nequal + n != index->ncolumns)
        return false;
    for (int k = 0; k < n; k++) {
        int at_table, at = index->columns[nequal + k];
        if (!key_column(sort, k, scan, &at_table) || at_table != at ||
            keys[k].descending != keys[0].descending)
            return false;
        if (k > 0 && !nulls_by_key(&keys[k]) && !scan->scan.table->columns[at].not_null)
            return false;
    }
    return true;
}

/* Returns where the scan must return the rows with NULL in the sort's first key. */
static scan_nulls nulls_of(const rel *sort, const rel *scan, const index_def *index,
                           const access_path *path) {
    const sort_key *k = &sort->sort.keys[0];
    if (path->low || scan->scan.table->columns[index->columns[path->nequal]].not_null)
        return NULLS_BY_KEY;
    if (path->high)
        return NULLS_NOWHERE;
    return nulls_by_key(k) ? NULLS_BY_KEY : k->nulls_first ? NULLS_BEFORE : NULLS_AFTER;
}

/* Estimates the fraction of the rows within the scan's bounds that are read until the sort's LIMIT
 * is reached. */
static double share_read(rule_ctx *r, const rel *sort, const rel *scan, double in_bounds) {
    double rows = estimate_rel(r->estimates, scan)->rows * in_bounds,
           passing = estimate_rel(r->estimates, sort->left)->rows;
    double share = passing > 0 ? (double)sort->sort.first / passing : 1;
    return sort->sort.first > 0 && rows > 0 ? BASE_MIN(1, BASE_MAX(share, 1 / rows)) : 1;
}

/* Chooses a scan by rowid, which is already in the sort's order. Returns false if the order is
 * descending and the scan would lose its bounds on an index or its list of rowids. */
static bool order_by_rowid(rule_ctx *r, const rel *sort, const access_path *best, key_order *o) {
    o->index = NULL;
    o->descending = sort->sort.keys[0].descending;
    o->nulls = NULLS_BY_KEY;
    o->share = best->look_up ? 1 : share_read(r, sort, o->scan, best->share);
    return !o->descending || !best->look_up;
}

bool key_order_choose(rule_ctx *r, const rel *sort, key_order *out) {
    const rel *scan = table_below(sort);
    int first;
    if (!choice_is_on(r, CHOICE_KEY_ORDER) || !scan || sort->sort.nkeys == 0 ||
        sort->sort.npartition > 0 || !key_column(sort, 0, scan, &first))
        return false;
    const table_def *t = scan->scan.table;
    conjuncts all = conditions_of(r, sort, scan);
    access_path best = access_best(r, scan, &all);
    double rows = estimate_rel(r->estimates, scan)->rows;
    *out = (key_order){.scan = scan, .first = sort->sort.first};
    if (first < 0)
        return order_by_rowid(r, sort, &best, out);
    double least = best.look_up ? keys_cost(1, rows * best.share) : rows * best.share;
    bool found = false;
    for (int i = 0; i < t->nindexes && sort->sort.first > 0; i++) {
        const index_def *index = &t->indexes[i];
        if (index->lists)
            continue;
        access_path path = access_along(r, scan, &all, index);
        double share = share_read(r, sort, scan, path.share),
               cost = keys_cost(1, rows * path.share * share);
        if (cost >= least || !has_keys(sort, scan, index, path.nequal))
            continue;
        least = cost;
        found = true;
        out->index = index;
        out->descending = sort->sort.keys[0].descending;
        out->nulls = nulls_of(sort, scan, index, &path);
        out->share = share;
    }
    return found;
}

rel *key_order_extreme(rule_ctx *r, const rel *group) {
    const rel_agg *a = group->group.aggs;
    if (group->group.nkeys > 0 || group->group.naggs != 1 || a->filter || !a->arg ||
        a->arg->kind != EXPR_COLUMN || (a->kind != AGG_MIN && a->kind != AGG_MAX))
        return NULL;
    rel *sort = rel_new(r->mem, REL_SORT, group->left, NULL);
    sort->sort.keys = ARENA_ARRAY(r->mem, sort_key, 1);
    sort->sort.keys[0] = (sort_key){a->arg, a->kind == AGG_MAX, false};
    sort->sort.nkeys = 1;
    sort->sort.first = 1;
    return sort;
}
