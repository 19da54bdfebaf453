/*
 * estimate.c - cardinality estimation: rows of each relation, distinct values of its columns, and
 * selectivity of conditions.
 *
 * Invariant: estimates depend only on the statistics, settings and learned facts of plan_env.
 * cost.c computes the costs.
 */
#include <math.h>
#include <string.h>

#include "estimate_int.h"

static const double GUESSED_ROWS = 1000, GUESSED_BYTES = 40, PATTERN_SHARE = 0.1;

estimator *estimator_new(arena *mem, const plan_env *env) {
    estimator *s = ARENA_NEW(mem, estimator);
    s->mem = mem;
    s->env = env;
    s->by_node.mem = mem;
    return s;
}

/* ---- columns --------------------------------------------------------------------------------- */

static int column_at(const rel *r, int id) {
    for (int i = 0; i < r->ncols; i++)
        if (r->cols[i].id == id)
            return i;
    return -1;
}

static double type_bytes(value_type t) {
    return type_is_bytes(t) ? GUESSED_BYTES : t == TYPE_BOOLEAN ? 5 : 6;
}

static column_estimate column_guess(value_type type, double rows) {
    double distinct = BASE_MAX(1, BASE_MIN(rows, BASE_MAX(10, rows / 10)));
    return (column_estimate){.distinct = type == TYPE_BOOLEAN ? 2 : distinct,
                             .bytes = type_bytes(type)};
}

/* Limits distinct values to the number of rows, and sets domains that are still unset. */
static void bound_values(rel_estimate *e, const rel *r) {
    for (int i = 0; i < r->ncols; i++) {
        column_estimate *c = &e->columns[i];
        c->distinct = BASE_MAX(1, BASE_MIN(c->distinct, e->rows));
        c->domain = BASE_MAX(c->domain, c->distinct);
    }
}

static const column_estimate *column_of(estimator *s, const rel *r, int id) {
    int at = column_at(r, id);
    return at < 0 ? NULL : &estimate_rel(s, r)->columns[at];
}

static bool as_number(value v, double *out) {
    if (!type_is_number(v.type))
        return false;
    *out = v.type == TYPE_REAL ? v.r : (double)v.i;
    return true;
}

/* Limits `distinct`, the distinct values of an expression. `x % constant` has at most `constant`
 * values, and `x / constant` at most the range of x divided by the constant. Other expressions keep
 * the number. */
static double divided_distinct(estimator *s, const expr *x, const rel *r, double distinct) {
    double by;
    bool divides = x->kind == EXPR_OP && (x->op == OP_MOD || x->op == OP_DIV);
    if (!divides || x->type != TYPE_INTEGER || x->args[1]->kind != EXPR_LITERAL ||
        !as_number(x->args[1]->literal, &by) || by == 0)
        return distinct;
    if (x->op == OP_MOD)
        return BASE_MIN(distinct, fabs(by));
    column_estimate of = estimate_expr(s, x->args[0], r);
    return of.ranged ? BASE_MIN(distinct, (of.high - of.low) / fabs(by) + 1) : distinct;
}

column_estimate estimate_expr(estimator *s, const expr *x, const rel *r) {
    double rows = estimate_rel(s, r)->rows, distinct = 1;
    if (x->kind == EXPR_COLUMN) {
        const column_estimate *c = column_of(s, r, x->column.id);
        return c ? *c : column_guess(x->type, rows);
    }
    if (x->kind == EXPR_CAST) {
        column_estimate c = estimate_expr(s, x->args[0], r);
        c.same = 0;
        return c;
    }
    if (expr_is_constant(x)) {
        column_estimate c = {.distinct = 1, .bytes = type_bytes(x->type)};
        if (x->type == TYPE_TEXT)
            c.bytes = estimate_text_bytes(s, x, r);
        c.null_fraction = x->type == TYPE_NULL;
        return c;
    }
    column_estimate c = column_guess(x->type, rows);
    for (int i = 0; i < x->nargs; i++) {
        column_estimate part = estimate_expr(s, x->args[i], r);
        distinct = BASE_MIN(distinct * part.distinct, rows);
    }
    distinct = divided_distinct(s, x, r, distinct);
    if (!expr_is_volatile(x))
        c.distinct = BASE_MAX(1, x->type == TYPE_BOOLEAN ? BASE_MIN(2, distinct) : distinct);
    if (x->type == TYPE_TEXT)
        c.bytes = estimate_text_bytes(s, x, r);
    return c;
}

double plan_distinct_left(double distinct, double rows, double share) {
    if (share >= 1 || distinct <= 1)
        return distinct;
    return distinct * (1 - pow(1 - BASE_MAX(0, share), rows / distinct));
}

static void reduce_distinct(column_estimate *columns, int n, double rows, double share) {
    for (int i = 0; i < n; i++)
        columns[i].distinct = plan_distinct_left(columns[i].distinct, rows, share);
}

/* ---- leaves ---------------------------------------------------------------------------------- */

static bool is_key_column(const table_def *t, int at) {
    if (at < 0 || at == t->rowid_column)
        return true;
    for (int i = 0; i < t->nindexes; i++)
        if (t->indexes[i].unique && t->indexes[i].ncolumns == 1 && t->indexes[i].columns[0] == at)
            return true;
    return false;
}

static void set_range(column_estimate *c, double low, double high) {
    c->ranged = true;
    c->low = low;
    c->high = high;
}

/* Sets what no longer holds of values that are not those of one table column: no statistics. */
static void forget_stats(column_estimate *c) {
    c->stats = NULL;
    c->ranged = false;
    c->joint.source = NULL;
}

/* The range of a rowid is that of the table now, not when it was analyzed. */
static void estimate_range(const table_def *t, const table_stats *stats, int at,
                           column_estimate *c) {
    double low, high;
    if (at < 0 || at == t->rowid_column)
        set_range(c, (double)stats->first_rowid, (double)stats->last_rowid);
    else if (c->stats && as_number(c->stats->low, &low) && as_number(c->stats->high, &high))
        set_range(c, low, high);
}

static void estimate_scan(estimator *s, const rel *r, rel_estimate *e) {
    const table_def *t = r->scan.table;
    table_stats stats = {.rows = 0};
    bool known = s->env->table_stats && s->env->table_stats(s->env->ctx, t, s->mem, &stats) == 0;
    e->rows = known ? (double)stats.rows : GUESSED_ROWS;
    e->guess = !known || !stats.analyzed;
    for (int i = 0; i < r->ncols; i++) {
        int c = r->scan.columns[i];
        e->columns[i] = column_guess(r->cols[i].type, e->rows);
        if (is_key_column(t, c))
            e->columns[i].distinct = e->rows;
        if (known && stats.analyzed && c >= 0 && c < stats.ncolumns) {
            const column_stats *cs = &stats.columns[c];
            joint_column joint = {stats.njoint ? e : NULL, cs->joint, stats.njoint, e->rows};
            e->columns[i] = (column_estimate){.distinct = cs->distinct,
                                              .null_fraction = cs->null_fraction,
                                              .bytes = cs->average_bytes,
                                              .stats = cs,
                                              .joint = joint};
        }
        if (known && stats.rows > 0)
            estimate_range(t, &stats, c, &e->columns[i]);
    }
}

/* A recursion is guessed to have ten rounds of ten rows, as in PostgreSQL. */
static const double ROUNDS = 10, ROWS_A_ROUND = 10;

static void estimate_leaf(estimator *s, const rel *r, rel_estimate *e) {
    double bytes = 0;
    e->rows = r->kind == REL_VALUES ? r->values.nrows : r->kind == REL_WORKING ? ROWS_A_ROUND : 50;
    e->guess = r->kind == REL_WORKING;
    if (r->kind == REL_SERIES)
        e->rows = (double)r->series.count;
    if (r->kind == REL_FILE) {
        e->guess = true;
        e->rows = GUESSED_ROWS;
        if (s->env->file_stats)
            s->env->file_stats(s->env->ctx, r->file.path, &e->rows, &bytes);
    }
    for (int i = 0; i < r->ncols; i++) {
        e->columns[i] = column_guess(r->cols[i].type, e->rows);
        if (r->kind == REL_VALUES || r->kind == REL_SERIES)
            e->columns[i].distinct = BASE_MAX(1, e->rows);
    }
}

/* ---- selectivity ----------------------------------------------------------------------------- */

/* Finds the LLM call that computes column `id` of r; NULL: no call does. */
static const llm_site *site_of_column(const rel *r, int id) {
    for (; r; r = r->left) {
        int at = column_at(r, id);
        if (at < 0)
            return NULL;
        if (r->kind == REL_LLM)
            for (int i = 0; i < r->llm.nsites; i++)
                if (r->llm.sites[i].out_id == id)
                    return &r->llm.sites[i];
        if (r->kind == REL_SHARED) {
            id = r->left->cols[at].id;
        } else if (r->kind == REL_PROJECT || (r->kind == REL_GROUP && at < r->group.nkeys)) {
            const expr *from =
                r->kind == REL_GROUP ? r->group.keys[at].value : r->project.exprs[at].value;
            if (from->kind != EXPR_COLUMN)
                return NULL;
            id = from->column.id;
        } else if (r->right && column_at(r->left, id) < 0) {
            return site_of_column(r->right, id);
        }
    }
    return NULL;
}

/* Estimates the share of a call's answers that equal v: the share in earlier runs; if it is
 * unknown, 1 / number of literals of the call's type, or 0.1 if the type has none. */
static double answer_selectivity(estimator *s, const llm_call *call, value v) {
    value text;
    err ignored = {0};
    double learned = -1;
    if (v.type == TYPE_BOOLEAN)
        text = value_text(llm_boolean_literal(v.i != 0));
    else if (value_cast(s->mem, v, TYPE_TEXT, &text, &ignored) != 0)
        return 0;
    if (s->env->selectivity && text.type == TYPE_TEXT)
        learned = s->env->selectivity(s->env->ctx, call, text.s);
    if (learned >= 0)
        return learned;
    return call->nliterals > 0 ? 1.0 / call->nliterals : 0.1;
}

/* Returns the share of rows with the value v; -1: v is not among the column's most common
 * values. */
static double common_fraction_of(const column_estimate *c, value v) {
    if (!c->stats)
        return -1;
    for (int i = 0; i < c->stats->ncommon; i++)
        if (value_compare(c->stats->common[i], v) == 0)
            return c->stats->common_fraction[i];
    return -1;
}

/* Estimates the selectivity of x = constant. */
static double constant_selectivity(estimator *s, const expr *x, const expr *constant,
                                   const rel *r) {
    const llm_site *site = x->kind == EXPR_COLUMN ? site_of_column(r, x->column.id) : NULL;
    if (site && constant->kind == EXPR_LITERAL)
        return answer_selectivity(s, site->call, constant->literal);
    column_estimate c = estimate_expr(s, x, r);
    double share = constant->kind == EXPR_LITERAL ? common_fraction_of(&c, constant->literal) : -1;
    return share >= 0 ? share : (1 - c.null_fraction) / BASE_MAX(1, c.distinct);
}

static double equality_selectivity(estimator *s, const expr *x, const rel *r) {
    const expr *a = x->args[0], *b = x->args[1];
    if (expr_is_constant(b))
        return constant_selectivity(s, a, b, r);
    if (expr_is_constant(a))
        return constant_selectivity(s, b, a, r);
    if (expr_equal(a, b) && !expr_is_volatile(a))
        return 1 - estimate_expr(s, a, r).null_fraction;
    return 1 /
           BASE_MAX(1, BASE_MAX(estimate_expr(s, a, r).distinct, estimate_expr(s, b, r).distinct));
}

/* Estimates the selectivity of x IS y, which differs from that of x = y if y is NULL, TRUE or
 * FALSE. */
static double is_selectivity(estimator *s, const expr *x, const rel *r) {
    const expr *a = x->args[0], *b = x->args[1];
    if (b->kind != EXPR_LITERAL)
        return equality_selectivity(s, x, r);
    if (b->literal.type == TYPE_NULL)
        return estimate_expr(s, a, r).null_fraction;
    if (b->literal.type == TYPE_BOOLEAN && a->type == TYPE_BOOLEAN) {
        double share = estimate_selectivity(s, a, r);
        return b->literal.i ? share : 1 - share;
    }
    return constant_selectivity(s, a, b, r);
}

static double in_selectivity(estimator *s, const expr *x, const rel *r) {
    double share = 0;
    for (int i = 1; i < x->nargs; i++)
        share += expr_is_constant(x->args[i])
                     ? constant_selectivity(s, x->args[0], x->args[i], r)
                     : 1 / BASE_MAX(1, estimate_expr(s, x->args[0], r).distinct);
    return share;
}

/* A condition `of < at`, `of <= at`, `of > at` or `of >= at`, where `at` is a literal number. */
typedef struct range_bound {
    const expr *of;
    expr_op op;
    double at;
} range_bound;

/* Whether x is such a condition, or one with its sides exchanged. */
static bool range_bound_of(const expr *x, range_bound *out) {
    if (x->kind != EXPR_OP || x->op < OP_LT || x->op > OP_GE)
        return false;
    for (int i = 0; i < 2; i++)
        if (expr_compares(x, i, &out->op) && x->args[1 - i]->kind == EXPR_LITERAL &&
            as_number(x->args[1 - i]->literal, &out->at)) {
            out->of = x->args[i];
            return true;
        }
    return false;
}

/* Estimates the selectivity of <, <=, > and >= between a column and a literal: interpolates between
 * the column's lowest and highest value, assuming a uniform distribution. If these are unknown,
 * returns a third of the values that are not NULL. */
static double range_selectivity(estimator *s, const expr *x, const rel *r) {
    range_bound b;
    bool known = range_bound_of(x, &b);
    column_estimate c =
        estimate_expr(s, known ? b.of : x->args[x->args[0]->kind == EXPR_LITERAL ? 1 : 0], r);
    double present = 1 - c.null_fraction;
    if (!known || !c.ranged)
        return present / 3;
    bool less = b.op == OP_LT || b.op == OP_LE, with_equal = b.op == OP_LE || b.op == OP_GT;
    if (c.high <= c.low) { /* one value, or none */
        bool below = with_equal ? c.low <= b.at : c.low < b.at;
        return c.high == c.low && below == less ? present : 0;
    }
    double values = BASE_MAX(2, c.distinct),
           steps = (b.at - c.low) / (c.high - c.low) * (values - 1);
    double below = b.at < c.low ? 0 : BASE_MIN(1, (steps + with_equal) / values);
    return present * (less ? below : 1 - below);
}

/* Multiplies the selectivities of the terms of an AND. A range is estimated over the rows that the
 * earlier ranges leave: `id >= 20 AND id < 30` are ten rows, and not half of one half. */
static double and_selectivity(estimator *s, const expr *x, const rel *r, const rel **ranges) {
    if (x->kind == EXPR_OP && x->op == OP_AND) {
        double left = and_selectivity(s, x->args[0], r, ranges);
        return left * and_selectivity(s, x->args[1], r, ranges);
    }
    return estimate_with_ranges(s, x, r, ranges);
}

double estimate_with_ranges(estimator *s, const expr *x, const rel *r, const rel **ranges) {
    range_bound b;
    if (!range_bound_of(x, &b))
        return estimate_selectivity(s, x, r);
    double share = estimate_selectivity(s, x, *ranges);
    rel *filter = rel_new(s->mem, REL_FILTER, (rel *)*ranges, NULL);
    filter->filter.predicate = (expr *)x;
    *ranges = filter;
    return share;
}

static double op_selectivity(estimator *s, const expr *x, const rel *r) {
    const rel *ranges = r;
    switch (x->op) {
    case OP_AND:
        return and_selectivity(s, x, r, &ranges);
    case OP_OR:
        return 1 - (1 - estimate_selectivity(s, x->args[0], r)) *
                       (1 - estimate_selectivity(s, x->args[1], r));
    case OP_NOT:
        return 1 - estimate_selectivity(s, x->args[0], r);
    case OP_EQ:
        return equality_selectivity(s, x, r);
    case OP_NE:
        return 1 - equality_selectivity(s, x, r);
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
        return range_selectivity(s, x, r);
    case OP_IS:
        return is_selectivity(s, x, r);
    case OP_IS_NOT:
        return 1 - is_selectivity(s, x, r);
    case OP_LIKE:
    case OP_ILIKE:
    case OP_GLOB:
        return PATTERN_SHARE;
    default:
        return 0.5;
    }
}

double estimate_selectivity(estimator *s, const expr *x, const rel *r) {
    const expr yes = {
        .kind = EXPR_LITERAL, .type = TYPE_BOOLEAN, .pos = -1, .literal = value_bool(true)};
    double share = 0.5;
    if (x->kind == EXPR_LITERAL)
        share = x->literal.type != TYPE_NULL && x->literal.i != 0;
    else if (x->kind == EXPR_OP)
        share = op_selectivity(s, x, r);
    else if (x->kind == EXPR_IN)
        share = in_selectivity(s, x, r);
    else if (x->kind == EXPR_COLUMN)
        share = constant_selectivity(s, x, &yes, r);
    else if (x->kind == EXPR_FUNC && x->function == FUNC_REGEXP_MATCHES)
        share = PATTERN_SHARE;
    return BASE_MIN(1, BASE_MAX(0, share));
}

/* ---- operators ------------------------------------------------------------------------------- */

static void copy_columns(rel_estimate *e, int at, const rel_estimate *from, int n) {
    memcpy(e->columns + at, from->columns, sizeof *e->columns * (size_t)n);
}

/* Returns the estimate of a column of either input of a join; NULL: neither has it. */
static const column_estimate *side_column(estimator *s, const rel *join, int id) {
    const column_estimate *c = column_of(s, join->left, id);
    return c ? c : column_of(s, join->right, id);
}

static bool is_column_equality(const expr *x) {
    return x->kind == EXPR_OP && (x->op == OP_EQ || x->op == OP_IS) &&
           x->args[0]->kind == EXPR_COLUMN && x->args[1]->kind == EXPR_COLUMN;
}

/* Returns a number for each column of a join's inputs, left columns first. Columns with the same
 * number are equal (column_estimate.same); a column that equals no other has a number of its
 * own. */
static int *equal_columns(estimator *s, const rel *r) {
    int n = r->left->ncols;
    int *same = ARENA_ARRAY(s->mem, int, n + r->right->ncols + 1);
    for (int i = 0; i < n + r->right->ncols; i++) {
        const rel *side = i < n ? r->left : r->right;
        int at = i < n ? i : i - n, known = estimate_rel(s, side)->columns[at].same;
        same[i] = known ? known : side->cols[at].id + 1;
    }
    return same;
}

/* Returns the position of a column among the columns of both inputs of a join; -1: neither has
 * it. */
static int side_at(const rel *join, int id) {
    int at = column_at(join->left, id), right = at < 0 ? column_at(join->right, id) : -1;
    return right < 0 ? at : join->left->ncols + right;
}

/* Removes from the condition the equalities that follow from other equalities, since they drop no
 * further rows: from a.x = c.x AND b.x = c.x the second, if the inputs already satisfy a.x = b.x.
 * Gives columns that the condition makes equal the same number in `same` (equal_columns). Returns
 * NULL if no condition is left. */
static expr *independent(estimator *s, const rel *r, expr *x, int *same) {
    if (x && x->kind == EXPR_OP && x->op == OP_AND) {
        expr *left = independent(s, r, x->args[0], same);
        expr *right = independent(s, r, x->args[1], same);
        bool all = left == x->args[0] && right == x->args[1];
        if (all || !left || !right)
            return all ? x : left ? left : right;
        return expr_chain(s->mem, OP_AND, (expr *[]){left, right}, 2);
    }
    if (!x || !is_column_equality(x))
        return x;
    int a = side_at(r, x->args[0]->column.id), b = side_at(r, x->args[1]->column.id);
    if (a < 0 || b < 0)
        return x;
    int to = same[a], from = same[b];
    for (int i = 0; i < r->left->ncols + r->right->ncols; i++)
        if (same[i] == from)
            same[i] = to;
    return to == from ? NULL : x;
}

/* Estimates the share of all pairs that a join condition keeps. For an equality of columns it is 1
 * / the larger column_estimate.domain of the two, assuming that the larger domain contains the
 * smaller. For an AND, multiplies the shares of its parts. */
static double join_selectivity(estimator *s, const expr *x, const rel *r) {
    if (!x)
        return 1;
    if (x->kind == EXPR_LITERAL)
        return x->literal.type != TYPE_NULL && x->literal.i != 0;
    if (x->kind == EXPR_OP && x->op == OP_AND)
        return join_selectivity(s, x->args[0], r) * join_selectivity(s, x->args[1], r);
    if (!is_column_equality(x))
        return 1.0 / 3;
    double most = 1;
    for (int i = 0; i < 2; i++) {
        const column_estimate *c = side_column(s, r, x->args[i]->column.id);
        if (c)
            most = BASE_MAX(most, c->domain);
    }
    return 1 / most;
}

/* For each two columns that a join equates: gives both columns the smaller number of distinct
 * values and the smaller domain of the two. */
static void merge_equivalence(const expr *x, const rel *r, rel_estimate *e) {
    if (!x || x->kind != EXPR_OP)
        return;
    if (x->op == OP_AND) {
        merge_equivalence(x->args[0], r, e);
        merge_equivalence(x->args[1], r, e);
        return;
    }
    int a = is_column_equality(x) ? column_at(r, x->args[0]->column.id) : -1;
    int b = is_column_equality(x) ? column_at(r, x->args[1]->column.id) : -1;
    if (a < 0 || b < 0)
        return;
    column_estimate *one = &e->columns[a], *other = &e->columns[b];
    one->distinct = other->distinct = BASE_MIN(one->distinct, other->distinct);
    one->domain = other->domain = BASE_MIN(one->domain, other->domain);
}

/* Estimates the share of the rows of input `side` that match a row of the other input: the product,
 * over the equalities, of the distinct values of the other input's column / the larger
 * column_estimate.domain of the two columns. */
static double match_share(estimator *s, const expr *x, const rel *r, const rel *side) {
    if (!x || x->kind != EXPR_OP)
        return 1;
    if (x->op == OP_AND)
        return match_share(s, x->args[0], r, side) * match_share(s, x->args[1], r, side);
    if (!is_column_equality(x))
        return 1;
    int own = column_at(side, x->args[0]->column.id) >= 0 ? 0 : 1;
    const column_estimate *a = side_column(s, r, x->args[own]->column.id),
                          *b = side_column(s, r, x->args[!own]->column.id);
    return a && b ? BASE_MIN(1, b->distinct / BASE_MAX(a->domain, b->domain)) : 1;
}

static double join_rows(join_kind kind, double left, double pairs) {
    switch (kind) {
    case JOIN_INNER:
    case JOIN_CROSS:
        return pairs;
    case JOIN_LEFT:
        return BASE_MAX(left, pairs);
    case JOIN_SEMI:
        return BASE_MIN(left, pairs);
    case JOIN_ANTI:
        return BASE_MAX(BASE_MIN(1, left), left - pairs);
    case JOIN_SINGLE:
    case JOIN_MARK:
        break;
    }
    return left;
}

static void estimate_join(estimator *s, const rel *r, rel_estimate *e) {
    const rel_estimate *left = estimate_rel(s, r->left), *right = estimate_rel(s, r->right);
    join_kind kind = r->join.kind;
    int *same = equal_columns(s, r);
    const expr *on = independent(s, r, r->join.predicate, same);
    double pairs = left->rows * right->rows * join_selectivity(s, on, r);
    if (r->join.first > 0)
        pairs = BASE_MIN(pairs, left->rows * (double)r->join.first);
    e->guess = left->guess || right->guess;
    e->rows = join_rows(kind, left->rows, pairs);
    int nright = r->ncols - r->left->ncols;
    copy_columns(e, 0, left, r->left->ncols);
    double match = kind == JOIN_INNER ? match_share(s, on, r, r->left) : 1;
    if (left->rows > 0)
        reduce_distinct(e->columns, r->left->ncols, left->rows,
                        BASE_MIN(match, e->rows / left->rows));
    if (kind == JOIN_MARK)
        e->columns[r->left->ncols] = column_guess(TYPE_BOOLEAN, e->rows);
    if (kind == JOIN_MARK || nright <= 0)
        return;
    copy_columns(e, r->left->ncols, right, nright);
    match = match_share(s, on, r, r->right);
    if (right->rows > 0)
        reduce_distinct(e->columns + r->left->ncols, nright, right->rows,
                        BASE_MIN(match, pairs / right->rows));
    if (kind == JOIN_INNER)
        merge_equivalence(r->join.predicate, r, e);
    for (int i = 0; i < r->ncols && kind == JOIN_INNER; i++)
        e->columns[i].same = same[i];
    for (int i = r->left->ncols; i < r->ncols && kind != JOIN_INNER && kind != JOIN_CROSS; i++) {
        double matched = left->rows > 0 ? BASE_MIN(1, pairs / left->rows) : 1;
        e->columns[i].null_fraction = 1 - matched * (1 - e->columns[i].null_fraction);
        forget_stats(&e->columns[i]);
    }
}

/* ---- one input ------------------------------------------------------------------------------- */

static double keys_distinct(estimator *s, const rel *r, double rows) {
    double product = 1;
    for (int i = 0; i < r->group.nkeys; i++)
        product *= estimate_expr(s, r->group.keys[i].value, r->left).distinct;
    return BASE_MAX(BASE_MIN(1, rows), BASE_MIN(product, rows));
}

static column_estimate aggregate_estimate(estimator *s, const rel *r, const rel_agg *a,
                                          double groups) {
    column_estimate c = column_guess(a->type, groups);
    c.distinct = BASE_MAX(1, groups);
    if (!a->arg)
        return c;
    double rows = estimate_rel(s, r->left)->rows, bytes = estimate_expr(s, a->arg, r->left).bytes;
    if (a->kind == AGG_GROUP_CONCAT)
        c.bytes = (bytes + 1) * rows / BASE_MAX(1, groups);
    else if (a->type == TYPE_TEXT)
        c.bytes = bytes;
    return c;
}

static void estimate_group(estimator *s, const rel *r, rel_estimate *e) {
    e->rows = r->group.nkeys ? keys_distinct(s, r, estimate_rel(s, r->left)->rows) : 1;
    for (int i = 0; i < r->group.nkeys; i++)
        e->columns[i] = estimate_expr(s, r->group.keys[i].value, r->left);
    for (int i = 0; i < r->group.naggs; i++)
        e->columns[r->group.nkeys + i] = aggregate_estimate(s, r, &r->group.aggs[i], e->rows);
}

static void estimate_setop(estimator *s, const rel *r, rel_estimate *e) {
    const rel_estimate *left = estimate_rel(s, r->left), *right = estimate_rel(s, r->right);
    bool both = r->setop.op == SETOP_UNION_ALL || r->setop.op == SETOP_UNION;
    double all = BASE_MAX(left->rows + right->rows, 1);
    e->guess = left->guess || right->guess;
    copy_columns(e, 0, left, r->ncols);
    for (int i = 0; i < r->ncols && both; i++) {
        column_estimate *c = &e->columns[i];
        const column_estimate *other = &right->columns[i];
        c->bytes = (c->bytes * left->rows + other->bytes * right->rows) / all;
        c->null_fraction =
            (c->null_fraction * left->rows + other->null_fraction * right->rows) / all;
        c->distinct += other->distinct;
        c->domain += other->domain;
        forget_stats(c);
        c->same = 0;
    }
    e->rows = r->setop.op == SETOP_UNION_ALL ? left->rows + right->rows
              : r->setop.op == SETOP_UNION   ? 0.8 * (left->rows + right->rows)
                                             : left->rows / 2;
}

static double distinct_rows(const rel *r, const rel_estimate *left) {
    double product = 1;
    for (int i = 0; i < r->ncols; i++)
        product *= left->columns[i].distinct;
    return BASE_MIN(product, left->rows);
}

/* Narrows a column's range to the values for which the condition holds, none of which is NULL. */
static void narrow_range(column_estimate *c, const range_bound *b, bool whole) {
    if (b->op == OP_LT || b->op == OP_LE)
        c->high = BASE_MIN(c->high, whole && b->op == OP_LT ? ceil(b->at) - 1 : b->at);
    else
        c->low = BASE_MAX(c->low, whole && b->op == OP_GT ? floor(b->at) + 1 : b->at);
    c->null_fraction = 0;
}

/* Limits the distinct values of columns that a filter compares with constants: for = and IN to the
 * number of constants, for <, <=, > and >= to the share of the column's domain that they select,
 * and to the part of its range. */
static void bound_filtered_columns(estimator *s, const expr *x, const rel *r, rel_estimate *e) {
    if (x->kind == EXPR_OP && x->op == OP_AND) {
        bound_filtered_columns(s, x->args[0], r, e);
        bound_filtered_columns(s, x->args[1], r, e);
        return;
    }
    bool range = x->kind == EXPR_OP && x->op >= OP_LT && x->op <= OP_GE,
         equality = x->kind == EXPR_OP && (x->op == OP_EQ || x->op == OP_IS);
    if (!range && !equality && x->kind != EXPR_IN)
        return;
    int side = x->args[0]->kind == EXPR_COLUMN || x->kind == EXPR_IN ? 0 : 1;
    int at = x->args[side]->kind == EXPR_COLUMN ? column_at(r, x->args[side]->column.id) : -1;
    if (at < 0 || ((range || equality) && !expr_is_constant(x->args[!side])))
        return;
    column_estimate *c = &e->columns[at];
    range_bound b;
    double most = range ? c->domain * range_selectivity(s, x, r->left) : x->nargs - 1;
    c->distinct = BASE_MIN(c->distinct, most);
    c->domain = BASE_MIN(c->domain, most);
    if (c->ranged && range && range_bound_of(x, &b))
        narrow_range(c, &b, r->cols[at].type == TYPE_INTEGER);
}

static void estimate_filter(estimator *s, const rel *r, rel_estimate *e) {
    double before = e->rows;
    e->rows *= estimate_selectivity(s, r->filter.predicate, r->left);
    reduce_distinct(e->columns, r->ncols, before, before > 0 ? e->rows / before : 1);
    bound_filtered_columns(s, r->filter.predicate, r, e);
}

static void estimate_limit(const rel *r, rel_estimate *e) {
    double groups = 1, before = e->rows;
    for (int i = 0; i < r->limit.npartition; i++) {
        int at = column_at(r, r->limit.partition[i]);
        groups *= at >= 0 ? e->columns[at].distinct : 1;
    }
    groups = BASE_MAX(1, BASE_MIN(groups, e->rows));
    e->rows = BASE_MAX(0, e->rows - (double)r->limit.offset * groups);
    if (r->limit.limit >= 0)
        e->rows = BASE_MIN(e->rows, (double)r->limit.limit * groups);
    reduce_distinct(e->columns, r->ncols, before, before > 0 ? e->rows / before : 1);
}

static void estimate_llm_columns(estimator *s, const rel *r, rel_estimate *e) {
    for (int i = 0; i < r->llm.nsites; i++) {
        int at = column_at(r, r->llm.sites[i].out_id);
        if (at >= 0)
            estimate_answer(s, &r->llm.sites[i], r->left, &e->columns[at]);
    }
}

/* Estimates the number of distinct combinations of the first nkeys keys of the window node r. */
static double partitions_of(estimator *s, const rel *r, int nkeys) {
    double n = 1;
    for (int k = 0; k < nkeys; k++)
        n *= estimate_expr(s, r->window.keys[k].value, r->left).distinct;
    return BASE_MAX(1, BASE_MIN(n, estimate_rel(s, r->left)->rows));
}

/* Estimates the rows that a top-N window keeps of each partition. WITH TIES adds the average number
 * of rows that tie. */
static double first_rows(estimator *s, const rel *r) {
    double ties = estimate_rel(s, r->left)->rows / partitions_of(s, r, r->window.nkeys) - 1;
    return (double)r->window.first + (r->window.with_ties ? BASE_MAX(0, ties) : 0);
}

static void estimate_windows(estimator *s, const rel *r, rel_estimate *e) {
    double before = e->rows;
    if (r->window.first > 0)
        e->rows = BASE_MIN(before, first_rows(s, r) *
                                       partitions_of(s, r, r->window.functions[0].npartition));
    reduce_distinct(e->columns, r->ncols, before, before > 0 ? e->rows / before : 1);
    for (int i = 0; i < r->window.nfunctions; i++) {
        const rel_window *w = &r->window.functions[i];
        column_estimate *c = &e->columns[r->left->ncols + i];
        c->distinct = BASE_MAX(1, e->rows / partitions_of(s, r, w->npartition));
        /* they go from 1 to the rows of a partition, so `rank <= 3` keeps few rows */
        if (w->kind == WINDOW_ROW_NUMBER || w->kind == WINDOW_RANK || w->kind == WINDOW_DENSE_RANK)
            set_range(c, 1, BASE_MAX(2, floor(c->distinct)));
        if (w->nargs > 0 && w->type == TYPE_TEXT)
            c->bytes = estimate_expr(s, w->args[0], r->left).bytes;
    }
}

/* A token has about four bytes. The parts of string_split() are guessed to be ten. */
static void estimate_split(estimator *s, const rel *r, rel_estimate *e) {
    enum { TOKEN_BYTES = 4, PARTS = 10 };
    const split_spec *spec = &r->split.spec;
    double bytes = estimate_expr(s, r->split.text, r->left).bytes, parts = PARTS;
    if (spec->chunks)
        parts = BASE_MAX(1, bytes / TOKEN_BYTES / (double)(spec->tokens - spec->overlap));
    e->rows *= parts;
    e->guess = true;
    e->columns[r->ncols - 2] = column_guess(TYPE_TEXT, e->rows);
    e->columns[r->ncols - 2].bytes = bytes / parts;
    e->columns[r->ncols - 1] = column_guess(TYPE_INTEGER, parts);
}

static void estimate_unary(estimator *s, const rel *r, rel_estimate *e) {
    const rel_estimate *left = estimate_rel(s, r->left);
    int same = BASE_MIN(r->ncols, r->left->ncols);
    e->rows = left->rows;
    copy_columns(e, 0, left, same);
    for (int i = same; i < r->ncols; i++)
        e->columns[i] = column_guess(r->cols[i].type, e->rows);
    switch (r->kind) {
    case REL_FILTER:
        estimate_filter(s, r, e);
        break;
    case REL_PROJECT:
        for (int i = 0; i < r->ncols; i++)
            e->columns[i] = estimate_expr(s, r->project.exprs[i].value, r->left);
        break;
    case REL_LIMIT:
        estimate_limit(r, e);
        break;
    /* columns of two references are not equal in a joined row, even if they have the same input */
    case REL_SHARED:
        for (int i = 0; i < r->ncols; i++)
            e->columns[i].same = 0;
        break;
    case REL_DISTINCT:
        e->rows = distinct_rows(r, left);
        break;
    case REL_SPLIT:
        estimate_split(s, r, e);
        break;
    case REL_ROW_NUMBER:
        e->columns[r->ncols - 1].distinct = e->rows;
        break;
    case REL_LLM:
        estimate_llm_columns(s, r, e);
        break;
    case REL_WINDOW:
        estimate_windows(s, r, e);
        break;
    case REL_RECURSIVE:
        e->guess = true;
        e->rows += ROUNDS * estimate_rel(s, r->right)->rows;
        for (int i = 0; i < r->ncols; i++)
            e->columns[i] = column_guess(r->cols[i].type, e->rows);
        break;
    default:
        break;
    }
}

const rel_estimate *estimate_rel(estimator *s, const rel *r) {
    uint64_t hash = hash_mix(7, (uint64_t)(uintptr_t)r);
    for (hash_slot *at = hash_index_first(&s->by_node, hash); at;
         at = hash_index_next(&s->by_node, at))
        if (s->known[at->item].node == r)
            return s->known[at->item].value;
    rel_estimate *e = ARENA_NEW(s->mem, rel_estimate);
    e->columns = ARENA_ARRAY(s->mem, column_estimate, r->ncols + 1);
    if (r->left)
        e->guess = estimate_rel(s, r->left)->guess;
    if (r->kind == REL_SCAN)
        estimate_scan(s, r, e);
    else if (!r->left)
        estimate_leaf(s, r, e);
    else if (r->kind == REL_JOIN || r->kind == REL_APPLY)
        estimate_join(s, r, e);
    else if (r->kind == REL_GROUP)
        estimate_group(s, r, e);
    else if (r->kind == REL_SETOP)
        estimate_setop(s, r, e);
    else
        estimate_unary(s, r, e);
    bound_values(e, r);
    hash_index_add(&s->by_node, hash, s->nknown);
    ARENA_PUSH(s->mem, s->known, s->nknown, s->known_cap, ((known_estimate){r, e}));
    return e;
}

double estimate_combinations(estimator *s, const rel *r, expr *const *list, int count) {
    double product = 1;
    for (int i = 0; i < count; i++)
        product *= estimate_expr(s, list[i], r).distinct;
    return BASE_MAX(1, BASE_MIN(product, estimate_rel(s, r)->rows));
}
