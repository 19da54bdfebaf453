/*
 * index_join.c - chooses index joins: hash joins of few rows to a large table, of which only the
 * rows with the few rows' keys are read.
 *
 *   Index join f.a = b.a            f is read first, whichever side it is. Its keys are looked up
 *   ├─ Scan few f                   in b, and the rowids found are sorted. So b's rows are read in
 *   └─ Index scan big b [a = f.a]   their usual order, and the join continues as a hash join.
 *
 * The side and the key or index are chosen by cost.
 * Invariant: the result and its order are the same as those of a hash join over the whole table,
 * since rows that are not read have no match. The table may be the right input of a join, unless
 * the result differs for NULL and false (IN in a SELECT list) or NULL matches NULL. It may be the
 * left input if left rows without a match are not in the result. An index join is not chosen if an
 * input has LLM calls: the other input is read before the calls, when the keys are not known yet.
 */
#include "plan_int.h"

/* The cost of finding a key's entries, and of fetching a row by its rowid. The unit is the cost of
 * reading the next row of a scan. */
static const double LOOKUP_ROWS = 40, FETCH_ROWS = 8;
/* The cost of a left row, which probes the hash table. The unit is the cost of a right row, which
 * is added to the hash table. */
static const double LEFT_ROW = 0.7;

double keys_cost(double keys, double found) {
    return keys * LOOKUP_ROWS + found * FETCH_ROWS;
}

bool plan_keys_pay(double keys, double found, double rows) {
    return keys_cost(keys, found) < rows;
}

/* An input of the join that could be read by keys. */
typedef struct candidate {
    key_scan scan;
    const rel *table; /* the REL_SCAN */
    int *ids;    /* by join key: the id of the column that the key is; -1: it is an expression */
    double cost; /* of the best way found so far to read the table; unit as in keys_cost */
} candidate;

/* ---- which table ----------------------------------------------------------------------------- */

/* Returns the id of the column that x is; -1: x is no column. */
static int plain_column(const expr *x) {
    return x->kind == EXPR_COLUMN ? x->column.id : -1;
}

/* Returns the id of the input's column that x returns as column `id`; -1: x computes the column. */
static int id_below(const rel *x, int id) {
    for (int i = 0; i < x->ncols; i++) {
        if (x->cols[i].id != id)
            continue;
        if (x->kind == REL_PROJECT)
            return plain_column(x->project.exprs[i].value);
        return i < x->group.nkeys ? plain_column(x->group.keys[i].value) : -1;
    }
    return -1;
}

/* Finds the table whose columns the keys are, below projections, groupings and filters. If the
 * input of such a node lacks the rows of a key, its output lacks exactly the rows of that key. */
static bool find_table(candidate *c, const rel *x, plan_node *n, int nkeys) {
    for (; x->kind != REL_SCAN; x = x->left, n = n->left) {
        if (x->kind == REL_FILTER && x->left->kind == REL_SCAN)
            break;
        if (x->kind == REL_FILTER && x->left->kind != REL_FILE)
            continue;
        if (x->kind != REL_PROJECT && x->kind != REL_GROUP)
            return false;
        for (int k = 0; k < nkeys; k++)
            c->ids[k] = id_below(x, c->ids[k]);
    }
    c->scan.top = x;
    c->scan.node = n;
    c->table = x->kind == REL_SCAN ? x : x->left;
    return n->kind == PLAN_SCAN;
}

/* ---- which key ------------------------------------------------------------------------------- */

/* Returns the number of the join key that is this column of the table; -1: none is. */
static int key_of_column(const candidate *c, int nkeys, int table_column) {
    for (int k = 0; k < nkeys; k++)
        for (int i = 0; i < c->table->ncols; i++)
            if (c->table->cols[i].id == c->ids[k] && c->table->scan.columns[i] == table_column)
                return k;
    return -1;
}

/* Estimates the table's rows per distinct combination of these keys. */
static double rows_per_key(rule_ctx *r, const candidate *c, const int *keys, int n) {
    const rel_estimate *e = estimate_rel(r->estimates, c->table);
    double distinct = 1;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < c->table->ncols; i++)
            if (c->table->cols[i].id == c->ids[keys[k]])
                distinct *= e->columns[i].distinct;
    return e->rows / BASE_MAX(1, BASE_MIN(distinct, e->rows));
}

/* Makes `keys` the choice of c if looking them up for `others` rows costs less than c->cost. */
static void try_keys(rule_ctx *r, candidate *c, const index_def *index, const int *keys, int n,
                     double others) {
    double rows = estimate_rel(r->estimates, c->table)->rows;
    double found = BASE_MIN(rows, others * rows_per_key(r, c, keys, n));
    double cost = keys_cost(others, found);
    if (n == 0 || cost >= c->cost)
        return;
    c->cost = cost;
    c->scan.index = index;
    c->scan.nkeys = n;
    c->scan.keys = ARENA_ARRAY(r->mem, int, n);
    for (int k = 0; k < n; k++)
        c->scan.keys[k] = keys[k];
    c->scan.found = found;
}

/* Chooses the rowid or an index for looking up the keys of `others` rows, if that costs less than
 * c->cost. */
static void find_keys(rule_ctx *r, candidate *c, int nkeys, double others) {
    const table_def *t = c->table->scan.table;
    int rowid = key_of_column(c, nkeys, -1);
    if (rowid < 0 && t->rowid_column >= 0)
        rowid = key_of_column(c, nkeys, t->rowid_column);
    try_keys(r, c, NULL, &rowid, rowid >= 0, others);
    for (int i = 0; i < t->nindexes; i++) {
        const index_def *index = &t->indexes[i];
        if (index->lists)
            continue;
        int *keys = ARENA_ARRAY(r->mem, int, index->ncolumns), n = 0;
        while (n < index->ncolumns && (keys[n] = key_of_column(c, nkeys, index->columns[n])) >= 0)
            n++;
        try_keys(r, c, index, keys, n, others);
    }
}

/* ---- which side ------------------------------------------------------------------------------ */

/* Whether the join's kind permits its input on this side to be read by keys. */
static bool may_read(const plan_node *n, keyed_side side) {
    join_kind kind = n->join.kind;
    if (side == KEYED_LEFT)
        return join_is_inner(kind) || kind == JOIN_SEMI;
    return kind != JOIN_MARK || !n->join.mark_null;
}

/* Returns the cost of reading the table without keys: all rows, or the rows within the scan's own
 * bounds. */
static double cost_without(rule_ctx *r, const candidate *c, keyed_side side) {
    bool bounded = c->scan.node->scan.nlow + c->scan.node->scan.nhigh > 0;
    return estimate_rel(r->estimates, bounded ? c->scan.top : c->table)->rows *
           (side == KEYED_LEFT ? LEFT_ROW : 1);
}

static candidate try_side(rule_ctx *r, const rel *join, const plan_node *n, keyed_side side) {
    const rel *own = side == KEYED_LEFT ? join->left : join->right;
    const rel *other = side == KEYED_LEFT ? join->right : join->left;
    expr **keys = side == KEYED_LEFT ? n->join.left_keys : n->join.right_keys;
    candidate c = {.scan = {.side = KEYED_NONE}};
    c.ids = ARENA_ARRAY(r->mem, int, n->join.nkeys + 1);
    for (int k = 0; k < n->join.nkeys; k++)
        c.ids[k] = plain_column(keys[k]);
    if (!may_read(n, side) ||
        !find_table(&c, own, side == KEYED_LEFT ? n->left : n->right, n->join.nkeys))
        return c;
    c.cost = cost_without(r, &c, side);
    find_keys(r, &c, n->join.nkeys, estimate_rel(r->estimates, other)->rows);
    c.scan.side = c.scan.nkeys ? side : KEYED_NONE;
    return c;
}

/* Whether x reads a recursion's working rows in a statement with LLM calls. In such a statement
 * tables are read before the first call, but the recursion's rounds, and so the keys, follow
 * later. */
static bool is_in_late_recursion(const rule_ctx *r, const rel *x) {
    for (; x && r->stmt->ncalls > 0; x = x->left)
        if (x->kind == REL_WORKING || (x->right && is_in_late_recursion(r, x->right)))
            return true;
    return false;
}

key_scan index_join_choose(rule_ctx *r, const rel *join, const plan_node *n) {
    if (!choice_is_on(r, CHOICE_INDEX_JOIN) || n->join.null_safe || rel_has_llm(join->left) ||
        rel_has_llm(join->right) || is_in_late_recursion(r, join))
        return (key_scan){.side = KEYED_NONE};
    candidate left = try_side(r, join, n, KEYED_LEFT), right = try_side(r, join, n, KEYED_RIGHT);
    if (left.scan.side == KEYED_NONE || right.scan.side == KEYED_NONE)
        return left.scan.side == KEYED_NONE ? right.scan : left.scan;
    /* both are possible: choose the side that saves more */
    double saved_left = cost_without(r, &left, KEYED_LEFT) - left.cost;
    return saved_left > cost_without(r, &right, KEYED_RIGHT) - right.cost ? left.scan : right.scan;
}
