/*
 * access.c - chooses how a table is read: whole, by a range of rowids, or by an index.
 *
 * Invariant: a condition becomes a bound only if the bound is equivalent to it. Such a condition is
 * `column op constant`, with a constant of the column's type. The bounds of an index are equalities
 * on its first columns, then at most one range on the next column. One of the equalities may be to
 * any value of a list. All other conditions are evaluated by a filter, and so is the condition of
 * an upper bound without a lower bound, since such a range of an index includes its NULLs.
 */
#include "cost_int.h"

/* Maximum fraction of a table's rows that is read by an index, which needs a look-up for each
 * row. */
static const double INDEX_SHARE = 0.15;

typedef struct bounds {
    const index_def *index; /* NULL: bounds on the rowid */
    int nequal;             /* number of leading columns that are bound to a value */
    expr **equal;           /* [nequal] their values */
    /* nin > 0: column in_at may have any of the values in[]; equal[in_at] is in[0] */
    int nin;
    int in_at;
    expr **in;           /* [nin] */
    int nused;           /* number of conditions that became bounds */
    int *used;           /* [nused] indexes of these conditions */
    expr *low;           /* lower bound of the column after the first nequal; NULL: no bound */
    expr *high;          /* upper bound of this column; NULL: no bound */
    bool low_inclusive;  /* `low` itself is in the range */
    bool high_inclusive; /* `high` itself is in the range */
    bool ordered;        /* the scan must return rows in the order of the index */
    double share;        /* estimated fraction of the table's rows within the bounds */
    const rel *ranges;   /* the scan, filtered by the ranges among the used conditions */
} bounds;

/* Whether x is the table's column with this number; -1: the rowid. */
static bool is_column(const expr *x, const rel *scan, int table_column) {
    for (int k = 0; x->kind == EXPR_COLUMN && k < scan->ncols; k++)
        if (scan->cols[k].id == x->column.id && scan->scan.columns[k] == table_column)
            return true;
    return false;
}

/* Whether x compares the column with a constant of the same type. If so, sets *constant, and *op
 * such that x is equivalent to `column *op *constant`. */
static bool is_bound(const expr *x, const rel *scan, int table_column, expr_op *op,
                     expr **constant) {
    for (int i = 0; i < 2 && expr_compares(x, i, op); i++) {
        const expr *c = x->args[i];
        *constant = x->args[1 - i];
        if (is_column(c, scan, table_column) && expr_is_constant(*constant) &&
            (*constant)->type == c->type)
            return true;
    }
    return false;
}

/* If x is `column IN (…)`, `column = a`, or an OR of such conditions: appends the values that the
 * column may have, without NULLs, which match nothing. Returns false if x has another form. */
static bool is_list(rule_ctx *r, const expr *x, const rel *scan, int table_column,
                    conjuncts *values) {
    expr_op op;
    expr *constant;
    if (x->kind == EXPR_OP && x->op == OP_OR)
        return is_list(r, x->args[0], scan, table_column, values) &&
               is_list(r, x->args[1], scan, table_column, values);
    if (x->kind != EXPR_IN) {
        if (!is_bound(x, scan, table_column, &op, &constant) || op != OP_EQ)
            return false;
        conjuncts_add(r, values, constant);
        return true;
    }
    if (!is_column(x->args[0], scan, table_column))
        return false;
    for (int i = 1; i < x->nargs; i++) {
        if (x->args[i]->kind == EXPR_LITERAL && x->args[i]->literal.type == TYPE_NULL)
            continue;
        if (!expr_is_constant(x->args[i]) || x->args[i]->type != x->args[0]->type)
            return false;
        conjuncts_add(r, values, x->args[i]);
    }
    return true;
}

static void use_conjunct(rule_ctx *r, bounds *b, const rel *scan, const conjuncts *all, int i) {
    b->used[b->nused++] = i;
    b->share *= estimate_with_ranges(r->estimates, all->list[i], scan, &b->ranges);
}

static bool find_equal(rule_ctx *r, bounds *b, const rel *scan, const conjuncts *all,
                       int table_column) {
    expr_op op;
    expr *constant;
    for (int i = 0; i < all->n; i++)
        if (is_bound(all->list[i], scan, table_column, &op, &constant) && op == OP_EQ) {
            b->equal[b->nequal++] = constant;
            use_conjunct(r, b, scan, all, i);
            return true;
        }
    return false;
}

/* Finds a condition that bounds the column to a list of values. A scan has at most one list, since
 * with two it would look up every pair of their values. An ordered scan has none, since a list's
 * rows are read in the order of the list. */
static bool find_list(rule_ctx *r, bounds *b, const rel *scan, const conjuncts *all,
                      int table_column) {
    bool lists = choice_is_on(r, CHOICE_KEY_LISTS) && !b->ordered;
    for (int i = 0; i < all->n && b->nin == 0 && lists; i++) {
        conjuncts values = {0};
        if (!is_list(r, all->list[i], scan, table_column, &values) || values.n == 0)
            continue;
        b->in = values.list;
        b->nin = values.n;
        b->in_at = b->nequal;
        b->equal[b->nequal++] = values.list[0];
        use_conjunct(r, b, scan, all, i);
        return true;
    }
    return false;
}

static bool find_equal_or_list(rule_ctx *r, bounds *b, const rel *scan, const conjuncts *all,
                               int table_column) {
    return find_equal(r, b, scan, all, table_column) || find_list(r, b, scan, all, table_column);
}

static void find_range(rule_ctx *r, bounds *b, const rel *scan, const conjuncts *all,
                       int table_column) {
    expr_op op;
    expr *constant;
    for (int i = 0; i < all->n; i++) {
        if (!is_bound(all->list[i], scan, table_column, &op, &constant) || op == OP_EQ)
            continue;
        bool low = op == OP_GT || op == OP_GE;
        if (low ? b->low != NULL : b->high != NULL)
            continue;
        if (low) {
            b->low = constant;
            b->low_inclusive = op == OP_GE;
        } else {
            b->high = constant;
            b->high_inclusive = op == OP_LE;
        }
        use_conjunct(r, b, scan, all, i);
    }
}

/* Returns the bounds that the conditions give for an index (NULL: for the rowid). */
static bounds try_index(rule_ctx *r, const rel *scan, const conjuncts *all, const index_def *index,
                        bool ordered) {
    bounds b = {.index = index,
                .ordered = ordered,
                .share = 1,
                .ranges = scan,
                .low_inclusive = true,
                .high_inclusive = true};
    int n = !choice_is_on(r, CHOICE_KEYS) ? 0 : index ? index->ncolumns : 1;
    b.equal = ARENA_ARRAY(r->mem, expr *, n + 1);
    b.used = ARENA_ARRAY(r->mem, int, all->n + 1);
    for (int k = 0; k < n; k++) {
        int at = index ? index->columns[k] : -1;
        bool found = find_equal_or_list(r, &b, scan, all, at);
        if (!found && !index && scan->scan.table->rowid_column >= 0)
            found = find_equal_or_list(r, &b, scan, all, at = scan->scan.table->rowid_column);
        if (found)
            continue;
        find_range(r, &b, scan, all, at);
        if (!index && b.nused == 0)
            find_range(r, &b, scan, all, -1);
        break;
    }
    return b;
}

/* Whether at most one row is within the bounds. */
static bool is_unique_match(const bounds *b) {
    int keys = b->index ? b->index->ncolumns : 1;
    return b->nin == 0 && b->nequal == keys && (!b->index || b->index->unique);
}

/* Whether bounds b are better than *best. Reading by an index needs a look-up for each row, reading
 * by rowid does not: an index is better than a range of rowids only if it reads less than half as
 * many rows. */
static bool is_better(const bounds *b, const bounds *best) {
    if (b->nused == 0)
        return false;
    if (is_unique_match(b) != is_unique_match(best))
        return is_unique_match(b);
    if (b->index && !is_unique_match(b) && b->share > INDEX_SHARE)
        return false;
    return best->nused == 0 || b->share < best->share * (best->index ? 1 : 0.5);
}

static void set_bounds(rule_ctx *r, plan_node *node, const bounds *b) {
    bool low = b->nequal || b->low, high = b->nequal || b->high;
    node->scan.index = b->index;
    node->scan.nlow = low ? b->nequal + (b->low != NULL) : 0;
    node->scan.nhigh = high ? b->nequal + (b->high != NULL) : 0;
    node->scan.low_inclusive = b->low_inclusive;
    node->scan.high_inclusive = b->high_inclusive;
    node->scan.low = ARENA_ARRAY(r->mem, expr *, node->scan.nlow + 1);
    node->scan.high = ARENA_ARRAY(r->mem, expr *, node->scan.nhigh + 1);
    for (int i = 0; i < b->nequal; i++)
        node->scan.low[i] = node->scan.high[i] = b->equal[i];
    node->scan.in = b->in;
    node->scan.nin = b->nin;
    node->scan.in_at = b->in_at;
    if (b->low)
        node->scan.low[b->nequal] = b->low;
    if (b->high)
        node->scan.high[b->nequal] = b->high;
}

/* Whether the range of an index includes its NULLs: it has an upper bound and no lower bound. A
 * condition `column < x` does not match NULLs. */
static bool starts_at_nulls(const bounds *b) {
    return b->index && b->high && !b->low;
}

static bounds best_bounds(rule_ctx *r, const rel *scan, const conjuncts *all) {
    const table_def *t = scan->scan.table;
    bounds best = try_index(r, scan, all, NULL, false);
    for (int i = 0; i < t->nindexes; i++) {
        if (t->indexes[i].lists)
            continue;
        bounds b = try_index(r, scan, all, &t->indexes[i], false);
        if (is_better(&b, &best))
            best = b;
    }
    return best;
}

static void use_bounds(rule_ctx *r, const conjuncts *all, const bounds *b, plan_node *node,
                       conjuncts *rest) {
    bool *used = ARENA_ARRAY(r->mem, bool, all->n + 1);
    for (int i = 0; i < b->nused; i++)
        used[b->used[i]] = true;
    if (b->nused) {
        set_bounds(r, node, b);
        /* the condition of the upper bound, the last one, is also kept as a filter to drop NULLs */
        if (starts_at_nulls(b))
            used[b->used[b->nused - 1]] = false;
    }
    for (int i = 0; i < all->n; i++)
        if (!used[i])
            conjuncts_add(r, rest, all->list[i]);
}

void access_choose(rule_ctx *r, const rel *scan, const conjuncts *all, plan_node *node,
                   conjuncts *rest) {
    bounds best = best_bounds(r, scan, all);
    use_bounds(r, all, &best, node, rest);
}

void access_choose_along(rule_ctx *r, const rel *scan, const conjuncts *all, const index_def *index,
                         plan_node *node, conjuncts *rest) {
    bounds b = try_index(r, scan, all, index, true);
    use_bounds(r, all, &b, node, rest);
    node->scan.index = index;
}

static access_path path_of(const bounds *b) {
    return (access_path){.look_up = b->nused > 0 && (b->index || b->nin > 0),
                         .nequal = b->nequal,
                         .share = b->nused > 0 ? b->share : 1,
                         .low = b->low != NULL,
                         .high = b->high != NULL};
}

access_path access_best(rule_ctx *r, const rel *scan, const conjuncts *all) {
    bounds best = best_bounds(r, scan, all);
    return path_of(&best);
}

access_path access_along(rule_ctx *r, const rel *scan, const conjuncts *all,
                         const index_def *index) {
    bounds b = try_index(r, scan, all, index, true);
    return path_of(&b);
}
