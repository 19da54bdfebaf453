/*
 * index_join.c - joins of few rows to a large table: the table is read by the keys of those rows.
 *
 *   Index join f.a = b.a            f's rows are read whole first, whichever side they are on;
 *   ├─ Scan few f                   their keys lead to rowids of b, which are sorted, so that the
 *                                   rows
 *   └─ Index scan big b [a = f.a]   that b gives come in its order: the join goes on as a hash join
 *
 * Owns which side, which key or index, and whether it pays. Invariant: the answer and its order are
 * those of the hash join over the whole table, for the rows left out could meet no partner. So the
 * table may be the right input of every kind of join but one that tells NULL from false (IN in a
 * SELECT list) or matches NULL with NULL; the left input only where a row without partner is no
 * answer. Where the model is asked in one of the inputs, the other is read before it, in the
 * snapshot: no keys are known yet.
 */
#include "plan_int.h"

/* In rows read in passing: what it costs to find a
 * key's entries, and to fetch a row by its rowid. */
static const double LOOKUP_ROWS = 40, FETCH_ROWS = 8;
/* A left row that finds no partner in the hash table
 * costs less than a right one that goes into it. */
static const double LEFT_ROW = 0.7;

double keys_cost(double keys, double found) {
    return keys * LOOKUP_ROWS + found * FETCH_ROWS;
}

bool plan_keys_pay(double keys, double found, double rows) {
    return keys_cost(keys, found) < rows;
}

typedef struct candidate {
    key_scan scan;
    const rel *table; /* the REL_SCAN */
    int *ids;         /* by join key: its column id at the table, or -1 */
    double cost;
} candidate;

/* ---- which table ----------------------------------------------------------------------------- */

static int plain_column(const expr *x) {
    return x->kind == EXPR_COLUMN ? x->column.id : -1;
}

/* What column `id` of x is one level below; -1: computed there. */
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

/* Down to the table whose columns the keys are: through what leaves out no more than the rows of a
 * key when they are left out. */
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

static int key_of_column(const candidate *c, int nkeys, int table_column) {
    for (int k = 0; k < nkeys; k++)
        for (int i = 0; i < c->table->ncols; i++)
            if (c->table->cols[i].id == c->ids[k] && c->table->scan.columns[i] == table_column)
                return k;
    return -1;
}

/* Rows of the table per key, by the distinct values of the columns looked up. */
static double rows_per_key(rule_ctx *r, const candidate *c, const int *keys, int n) {
    const rel_estimate *e = estimate_rel(r->estimates, c->table);
    double distinct = 1;
    for (int k = 0; k < n; k++)
        for (int i = 0; i < c->table->ncols; i++)
            if (c->table->cols[i].id == c->ids[keys[k]])
                distinct *= e->columns[i].distinct;
    return e->rows / BASE_MAX(1, BASE_MIN(distinct, e->rows));
}

static void try_keys(rule_ctx *r, candidate *c, const index_def *index, const int *keys, int n,
                     double others) {
    double rows = estimate_rel(r->estimates, c->table)->rows;
    double found = BASE_MIN(rows, others * rows_per_key(r, c, keys, n));
    double cost = others * LOOKUP_ROWS + found * FETCH_ROWS;
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

/* Of `others` rows with keys; c->cost is what has to be beaten. */
static void find_keys(rule_ctx *r, candidate *c, int nkeys, double others) {
    const table_def *t = c->table->scan.table;
    int rowid = key_of_column(c, nkeys, -1);
    if (rowid < 0 && t->rowid_column >= 0)
        rowid = key_of_column(c, nkeys, t->rowid_column);
    try_keys(r, c, NULL, &rowid, rowid >= 0, others);
    for (int i = 0; i < t->nindexes; i++) {
        const index_def *index = &t->indexes[i];
        int *keys = ARENA_ARRAY(r->mem, int, index->ncolumns), n = 0;
        while (n < index->ncolumns && (keys[n] = key_of_column(c, nkeys, index->columns[n])) >= 0)
            n++;
        try_keys(r, c, index, keys, n, others);
    }
}

/* ---- which side ------------------------------------------------------------------------------ */

static bool may_read(const plan_node *n, keyed_side side) {
    join_kind kind = n->join.kind;
    if (side == KEYED_LEFT)
        return join_is_inner(kind) || kind == JOIN_SEMI;
    return kind != JOIN_MARK || !n->join.mark_null;
}

/* Rows that the table would be read for without keys: all, or those that its own conditions lead
 * to, which are at least its rows. */
static double rows_without(rule_ctx *r, const candidate *c, keyed_side side) {
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
    c.cost = rows_without(r, &c, side);
    find_keys(r, &c, n->join.nkeys, estimate_rel(r->estimates, other)->rows);
    c.scan.side = c.scan.nkeys ? side : KEYED_NONE;
    return c;
}

/* In a statement with calls tables are read before any is made, and a recursion goes on after: what
 * its rounds read must not wait for their keys. */
static bool is_round(const rule_ctx *r, const rel *x) {
    for (; x && r->stmt->ncalls > 0; x = x->left)
        if (x->kind == REL_WORKING || (x->right && is_round(r, x->right)))
            return true;
    return false;
}

key_scan index_join_choose(rule_ctx *r, const rel *join, const plan_node *n) {
    const key_scan none = {.side = KEYED_NONE};
    if (is_round(r, join))
        return none;
    if (!choice_is_on(r, CHOICE_INDEX_JOIN) || n->join.null_safe || rel_has_llm(join->left) ||
        rel_has_llm(join->right))
        return none;
    candidate left = try_side(r, join, n, KEYED_LEFT), right = try_side(r, join, n, KEYED_RIGHT);
    if (left.scan.side == KEYED_NONE || right.scan.side == KEYED_NONE)
        return left.scan.side == KEYED_NONE ? right.scan : left.scan;
    /* The rows that a side would cost otherwise are what is saved. */
    double saved_left = rows_without(r, &left, KEYED_LEFT) - left.cost;
    return saved_left > rows_without(r, &right, KEYED_RIGHT) - right.cost ? left.scan : right.scan;
}
