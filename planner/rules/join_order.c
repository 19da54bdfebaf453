/*
 * join_order.c - the order of inner joins: the best left-deep tree by dynamic programming over
 * subsets (Selinger et al. 1979), or, for more than MOST_EXACT relations, a greedy one.
 *
 * A join returns its rows in the order of its left input, so a user sees the order of joins in a
 * result without ORDER BY. Therefore the written order is kept, and its first relation stays first,
 * unless another order is estimated to cost much less. The cost is counted in rows that the joins
 * read, hash and return (step_cost).
 */
#include <math.h>
#include <string.h>

#include "rules_int.h"

enum {
    MOST_EXACT = 10, /* maximum number of relations that dynamic programming orders */
    /* Maximum number of relations that are ordered at all; a tree with more keeps its written
     * order. sqlite3 has the same limit for a join. */
    MOST_RELATIONS = 64
};

typedef uint64_t part_set; /* bit i: relation i of the graph */

static part_set only(int part) {
    return (part_set)1 << part;
}

/* Another order with the same first relation is chosen if it costs less than WORTH_REORDERING × the
 * cost of the written order. An order with another first relation is chosen if it costs less than
 * WORTH_ANOTHER_FIRST × the cost of the order chosen so far. */
static const double WORTH_REORDERING = 0.7, WORTH_ANOTHER_FIRST = 0.1;

/* Maximum estimate, so that the product of two estimates is finite. */
static const double MOST_ROWS = 1e100;

/* An input of the tree of inner joins: a node that is no inner join. */
typedef struct join_part {
    rel *x;
    double rows; /* estimated; at most MOST_ROWS */
    id_set ids;  /* ids of its columns */
} join_part;

typedef struct join_condition {
    expr *x;
    part_set parts;     /* the relations that x reads */
    double selectivity; /* estimated by selectivity_of */
    int class;          /* index of the equivalence class to which x belongs; -1: none */
} join_condition;

/* An equivalence class: columns that conditions make equal, one column from each of at least three
 * relations. The condition for joining a relation is that its column equals any one column of the
 * relations joined before. */
typedef struct join_class {
    part_set parts;
    expr *columns[MOST_RELATIONS];  /* by relation; all have the same type */
    double domains[MOST_RELATIONS]; /* by relation: column_estimate.domain of the column */
} join_class;

typedef struct join_graph {
    rule_ctx *r;
    int n;           /* number of relations */
    int nconditions; /* number of conditions */
    bool fixed;      /* the written order is kept: too many relations, or a volatile condition */
    join_part parts[MOST_RELATIONS]; /* [n] in written order */
    join_condition *conditions;      /* [nconditions] */
    join_class *classes;             /* [nclasses] */
    int nclasses;
    conjuncts all; /* the conditions of all joins, in written order */
} join_graph;

/* The cheapest order found for a set of relations. */
typedef struct join_plan {
    double cost;
    int last; /* the relation joined last */
} join_plan;

/* ---- the graph ------------------------------------------------------------------------------- */

/* Collects the relations and conditions of the tree of inner joins at x. */
static void collect(join_graph *g, rel *x) {
    if (rel_is_inner_join(x)) {
        collect(g, x->left);
        collect(g, x->right);
        conjuncts_split(g->r, &g->all, x->join.predicate);
        return;
    }
    if (g->n == MOST_RELATIONS) {
        g->fixed = true;
        return;
    }
    join_part *p = &g->parts[g->n++];
    p->x = x;
    p->rows = BASE_MIN(estimate_rel(g->r->estimates, p->x)->rows, MOST_ROWS);
    p->ids = id_set_new(g->r->mem);
    id_set_add_columns(&p->ids, p->x);
}

static part_set parts_of(const join_graph *g, const expr *x) {
    part_set parts = 0;
    for (int i = 0; i < g->n; i++)
        if (expr_touches(x, &g->parts[i].ids))
            parts |= only(i);
    return parts;
}

/* Estimates the fraction of pairs for which a condition on two relations is true, by estimating
 * their join. For a condition on more or fewer relations, returns a guess. */
static double selectivity_of(const join_graph *g, const join_condition *c) {
    if (__builtin_popcountll(c->parts) != 2)
        return 1.0 / 3;
    int first = __builtin_ctzll(c->parts), second = 63 - __builtin_clzll(c->parts);
    const join_part *a = &g->parts[first], *b = &g->parts[second];
    rel *both = rel_join(g->r->mem, JOIN_INNER, a->x, b->x, c->x);
    return estimate_rel(g->r->estimates, both)->rows / BASE_MAX(1, a->rows * b->rows);
}

static void set_conditions(join_graph *g) {
    g->nconditions = g->all.n;
    g->conditions = ARENA_ARRAY(g->r->mem, join_condition, g->all.n + 1);
    for (int i = 0; i < g->all.n; i++) {
        join_condition *c = &g->conditions[i];
        c->x = g->all.list[i];
        c->parts = parts_of(g, c->x);
        c->selectivity = selectivity_of(g, c);
        c->class = -1;
    }
}

/* ---- equivalence classes --------------------------------------------------------------------- */

static int part_of(const join_graph *g, const expr *x) {
    return __builtin_ctzll(parts_of(g, x));
}

/* Returns the class of a column. If the column has none yet, makes a new class. */
static int class_of(join_graph *g, expr *x) {
    int part = part_of(g, x), i = 0;
    for (; i < g->nclasses; i++)
        if (g->classes[i].columns[part] && expr_equal(g->classes[i].columns[part], x))
            return i;
    g->classes[g->nclasses++] = (join_class){.parts = only(part)};
    g->classes[i].columns[part] = x;
    return i;
}

static bool equals_columns(const join_condition *c) {
    const expr *x = c->x;
    return x->kind == EXPR_OP && x->op == OP_EQ && x->args[0]->kind == EXPR_COLUMN &&
           x->args[1]->kind == EXPR_COLUMN && x->args[0]->type == x->args[1]->type &&
           (c->parts & (c->parts - 1)) != 0;
}

/* Merges the classes of the two columns that a condition makes equal, unless the result would have
 * two columns of one relation. */
static void merge_equivalence(join_graph *g, join_condition *c) {
    int to = class_of(g, c->x->args[0]), from = class_of(g, c->x->args[1]);
    join_class *a = &g->classes[to], *b = &g->classes[from];
    if (to != from && (a->parts & b->parts))
        return;
    c->class = to;
    if (to == from)
        return;
    for (int i = 0; i < g->n; i++)
        if (b->columns[i])
            a->columns[i] = b->columns[i];
    a->parts |= b->parts;
    *b = (join_class){0};
    for (int i = 0; i < g->nconditions; i++)
        if (g->conditions[i].class == from)
            g->conditions[i].class = to;
}

static void set_domains(const join_graph *g, join_class *k) {
    for (int i = 0; i < g->n; i++)
        if (k->columns[i])
            k->domains[i] = estimate_expr(g->r->estimates, k->columns[i], g->parts[i].x).domain;
}

/* Finds the equivalence classes. Drops classes of two columns, which say no more than the condition
 * between these columns. */
static void set_classes(join_graph *g) {
    int kept = 0;
    g->classes = ARENA_ARRAY(g->r->mem, join_class, 2 * g->nconditions + 1);
    for (int i = 0; i < g->nconditions; i++)
        if (equals_columns(&g->conditions[i]))
            merge_equivalence(g, &g->conditions[i]);
    for (int i = 0; i < g->nclasses; i++) {
        bool keep = __builtin_popcountll(g->classes[i].parts) > 2;
        for (int c = 0; c < g->nconditions; c++)
            if (g->conditions[c].class == i)
                g->conditions[c].class = keep ? kept : -1;
        if (keep) {
            g->classes[kept] = g->classes[i];
            set_domains(g, &g->classes[kept++]);
        }
    }
    g->nclasses = kept;
}

/* Estimates the fraction of the cross product of a set of relations in which their columns of the
 * class are equal. Assumes that the smallest domain is a subset of all other domains. */
static double class_selectivity(const join_graph *g, const join_class *k, part_set set) {
    double least = INFINITY, selectivity = 1;
    for (int i = 0; i < g->n; i++)
        if ((k->parts & set) >> i & 1) {
            least = BASE_MIN(least, k->domains[i]);
            selectivity /= k->domains[i];
        }
    return isinf(least) ? 1 : selectivity * least;
}

/* Returns an equality between the column that relation `part` has in the class and a column of a
 * relation in `set`: a written condition if there is one, otherwise a condition that follows from
 * several written ones. */
static expr *equi_condition(const join_graph *g, int class, part_set set, int part) {
    const join_class *k = &g->classes[class];
    for (int i = 0; i < g->nconditions; i++) {
        const join_condition *c = &g->conditions[i];
        if (c->class == class && (c->parts >> part & 1) && (c->parts & ~(set | only(part))) == 0)
            return c->x;
    }
    return expr_op2(g->r->mem, OP_EQ, TYPE_BOOLEAN, k->columns[__builtin_ctzll(k->parts & set)],
                    k->columns[part]);
}

/* ---- the order ------------------------------------------------------------------------------- */

/* Estimates the rows of a join of the relations in `set`. */
static double rows_of(const join_graph *g, part_set set) {
    double rows = 1;
    for (int i = 0; i < g->n; i++)
        if (set >> i & 1)
            rows *= g->parts[i].rows;
    for (int i = 0; i < g->nconditions; i++)
        if (g->conditions[i].class < 0 && (g->conditions[i].parts & ~set) == 0)
            rows *= g->conditions[i].selectivity;
    for (int i = 0; i < g->nclasses; i++)
        rows *= class_selectivity(g, &g->classes[i], set);
    return BASE_MIN(rows, MOST_ROWS);
}

/* Whether a condition, either written or implied by a class, joins relation `part` to relations in
 * `set`. */
static bool is_connected(const join_graph *g, part_set set, int part) {
    for (int i = 0; i < g->nconditions; i++)
        if ((g->conditions[i].parts >> part & 1) && (g->conditions[i].parts & set) &&
            (g->conditions[i].parts & ~(set | only(part))) == 0)
            return true;
    for (int i = 0; i < g->nclasses; i++)
        if ((g->classes[i].parts >> part & 1) && (g->classes[i].parts & set))
            return true;
    return false;
}

/* Returns the cost of a join's result: its rows. A join without a condition also costs 0.1 for each
 * pair. */
static double result_cost(const join_graph *g, part_set set, int part) {
    double pairs = rows_of(g, set) * g->parts[part].rows;
    return rows_of(g, set | only(part)) + (is_connected(g, set, part) ? 0 : pairs * 0.1);
}

/* Returns the cost of joining relation `part` to the relations in `set`: 1 for each left row, 2 for
 * each right row, which is hashed, and the cost of the result. */
static double step_cost(const join_graph *g, part_set set, int part) {
    return rows_of(g, set) + 2 * g->parts[part].rows + result_cost(g, set, part);
}

static double order_cost(const join_graph *g, const int *order) {
    double cost = 0;
    part_set set = only(order[0]);
    for (int i = 1; i < g->n; i++) {
        cost += step_cost(g, set, order[i]);
        set |= only(order[i]);
    }
    return cost;
}

/* Finds the cheapest order that begins with a relation in `firsts`; returns its cost. */
static double best_order(const join_graph *g, part_set firsts, int *order) {
    part_set full = only(g->n) - 1;
    join_plan *best = ARENA_ARRAY(g->r->mem, join_plan, full + 1);
    for (part_set set = 1; set <= full; set++) {
        best[set] = (join_plan){INFINITY, -1};
        if ((set & (set - 1)) == 0) {
            int first = __builtin_ctzll(set);
            best[set] = (join_plan){firsts & set ? 0 : INFINITY, first};
            continue;
        }
        for (int part = 0; part < g->n; part++) {
            part_set rest = set & ~only(part);
            if (rest == set || isinf(best[rest].cost))
                continue;
            double cost = best[rest].cost + step_cost(g, rest, part);
            if (cost < best[set].cost)
                best[set] = (join_plan){cost, part};
        }
    }
    part_set set = full;
    for (int i = g->n - 1; i >= 0; i--) {
        order[i] = best[set].last;
        set &= ~only(order[i]);
    }
    return best[full].cost;
}

/* Finds an order that begins with `first` and always joins next the relation whose result costs
 * least. The cost of hashing a relation is not compared, since it is the same in every order.
 * Returns the cost of the order. */
static double greedy_order(const join_graph *g, int first, int *order) {
    part_set set = only(first);
    order[0] = first;
    for (int i = 1; i < g->n; i++) {
        double least = INFINITY;
        for (int part = 0; part < g->n; part++) {
            double cost = set & only(part) ? INFINITY : result_cost(g, set, part);
            if (cost < least) {
                least = cost;
                order[i] = part;
            }
        }
        set |= only(order[i]);
    }
    return order_cost(g, order);
}

/* Finds the cheapest of the greedy orders that begin with each relation; returns its cost. */
static double best_greedy_order(const join_graph *g, int *order) {
    int tried[MOST_RELATIONS];
    double least = INFINITY;
    for (int first = 0; first < g->n; first++) {
        double cost = greedy_order(g, first, tried);
        if (cost < least) {
            least = cost;
            memcpy(order, tried, sizeof tried[0] * (size_t)g->n);
        }
    }
    return least;
}

/* Chooses among the written order, the best with the same first relation (kept), and the best with
 * any first relation (any). */
static void choose_order(const join_graph *g, int *order) {
    int kept[MOST_RELATIONS], any[MOST_RELATIONS];
    bool exact = g->n <= MOST_EXACT;
    for (int i = 0; i < g->n; i++)
        order[i] = i;
    double cost = order_cost(g, order);
    double cost_kept = exact ? best_order(g, 1, kept) : greedy_order(g, 0, kept);
    double cost_any = exact ? best_order(g, only(g->n) - 1, any) : best_greedy_order(g, any);
    if (cost_kept < cost * WORTH_REORDERING) {
        memcpy(order, kept, sizeof kept[0] * (size_t)g->n);
        cost = cost_kept;
    }
    if (cost_any < cost * WORTH_ANOTHER_FIRST)
        memcpy(order, any, sizeof any[0] * (size_t)g->n);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static rel *build_order(const join_graph *g, const int *order) {
    part_set set = only(order[0]);
    rel *x = g->parts[order[0]].x;
    bool *done = ARENA_ARRAY(g->r->mem, bool, g->nconditions + 1);
    for (int i = 1; i < g->n; i++) {
        conjuncts on = {0};
        for (int c = 0; c < g->nclasses; c++)
            if ((g->classes[c].parts >> order[i] & 1) && (g->classes[c].parts & set))
                conjuncts_add(g->r, &on, equi_condition(g, c, set, order[i]));
        set |= only(order[i]);
        for (int c = 0; c < g->nconditions; c++)
            if (!done[c] && g->conditions[c].class < 0 && (g->conditions[c].parts & ~set) == 0) {
                conjuncts_add(g->r, &on, g->conditions[c].x);
                done[c] = true;
            }
        x = rel_join(g->r->mem, on.n ? JOIN_INNER : JOIN_CROSS, x, g->parts[order[i]].x,
                     conjuncts_join(g->r, &on));
    }
    return x;
}

static bool is_written_order(const int *order, int n) {
    for (int i = 0; i < n; i++)
        if (order[i] != i)
            return false;
    return true;
}

static bool is_left_deep(const rel *x) {
    for (; rel_is_inner_join(x); x = x->left)
        if (rel_is_inner_join(x->right))
            return false;
    return true;
}

/* Orders a tree of inner joins. The trees inside its relations are already ordered. If the whole
 * tree must keep its order, orders its subtrees. */
static rel *order_joins(rule_ctx *r, rel *x) {
    if (!rel_is_inner_join(x))
        return x;
    join_graph *g = ARENA_NEW(r->mem, join_graph);
    int order[MOST_RELATIONS];
    g->r = r;
    collect(g, x);
    for (int i = 0; i < g->all.n; i++)
        g->fixed |= expr_is_volatile(g->all.list[i]);
    if (g->fixed)
        return rel_each_input(r, x, order_joins);
    if (g->n < 3)
        return x;
    set_conditions(g);
    set_classes(g);
    choose_order(g, order);
    bool stays = is_written_order(order, g->n) && is_left_deep(x) && g->nclasses == 0;
    return stays ? x : build_order(g, order);
}

static rel *order_within(rule_ctx *r, rel *x);

/* Orders every maximal tree of inner joins in x. A tree nested in a relation of another tree is
 * ordered before that tree. */
static rel *order_below(rule_ctx *r, rel *x) {
    return rel_is_inner_join(x) ? order_joins(r, order_within(r, x))
                                : rel_each_input(r, x, order_below);
}

/* As order_below, but leaves out the tree whose top is x itself. */
static rel *order_within(rule_ctx *r, rel *x) {
    return rel_each_input(r, x, rel_is_inner_join(x) ? order_within : order_below);
}

/* ---- recursion ------------------------------------------------------------------------------- */

static bool reads_working_rows(const rel *x) {
    for (; x; x = x->left)
        if (x->kind == REL_WORKING || (x->right && reads_working_rows(x->right)))
            return true;
    return false;
}

/* Swaps the inputs of joins whose right input reads a recursion's working rows. After the swap the
 * working rows probe, and the other input is hashed once for all rounds instead of being read again
 * in each round. */
static rel *working_rows_left(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, working_rows_left);
    if (!rel_is_inner_join(x) || !reads_working_rows(x->right) || reads_working_rows(x->left))
        return x;
    return rel_join(r->mem, x->join.kind, x->right, x->left, x->join.predicate);
}

rel *order_inner_joins(rule_ctx *r, rel *x) {
    x = order_below(r, x);
    return reads_working_rows(x) ? working_rows_left(r, x) : x;
}
