/*
 * join.c - the order of inner joins, by dynamic programming over left-deep trees.
 *
 * The rows of a result follow the left input, so the written order means something: the first
 * relation stays first, and the order changes at all, only where the estimate says that it pays
 * well. Cost is rows that pass through a join plus rows hashed by it.
 */
#include <math.h>
#include <string.h>

#include "rules_int.h"

enum { MAX_RELATIONS = 10 };

/* Another order must cost at most this share of the written one; another first relation at most
 * this share of the best that keeps it. */
static const double WORTH_REORDERING = 0.7, WORTH_ANOTHER_FIRST = 0.1;

typedef struct join_part {
    rel *x;
    double rows;
    id_set ids;
} join_part;

typedef struct join_condition {
    expr *x;
    unsigned parts; /* which relations it reads, by bit */
    double selectivity;
} join_condition;

typedef struct join_graph {
    rule_ctx *r;
    int n, nconditions;
    bool fixed; /* too many relations, or a volatile condition: the order stays */
    join_part parts[MAX_RELATIONS];
    join_condition *conditions;
    conjuncts all;
} join_graph;

typedef struct join_plan {
    double cost;
    int last; /* the relation joined last */
} join_plan;

static rel *order_below(rule_ctx *r, rel *x);

/* ---- the graph ------------------------------------------------------------------------------- */

static bool is_inner(const rel *x) {
    return x->kind == REL_JOIN && (x->join.kind == JOIN_INNER || x->join.kind == JOIN_CROSS);
}

static void collect(join_graph *g, rel *x) {
    if (is_inner(x)) {
        collect(g, x->left);
        collect(g, x->right);
        conjuncts_split(g->r, &g->all, x->join.predicate);
        return;
    }
    if (g->n == MAX_RELATIONS) {
        g->fixed = true;
        return;
    }
    join_part *p = &g->parts[g->n++];
    p->x = order_below(g->r, x);
    p->rows = estimate_rel(g->r->estimates, p->x)->rows;
    p->ids = id_set_new(g->r->mem);
    id_set_add_columns(&p->ids, p->x);
}

static unsigned parts_of(const join_graph *g, const expr *x) {
    unsigned parts = 0;
    for (int i = 0; i < g->n; i++)
        if (expr_touches(x, &g->parts[i].ids))
            parts |= 1u << i;
    return parts;
}

/* Of a condition between two relations: what estimate_rel makes of their join. */
static double selectivity_of(const join_graph *g, const join_condition *c) {
    int two[2], n = 0;
    for (int i = 0; i < g->n; i++)
        if (c->parts >> i & 1) {
            if (n == 2)
                return 1.0 / 3;
            two[n++] = i;
        }
    if (n < 2)
        return 1.0 / 3;
    const join_part *a = &g->parts[two[0]], *b = &g->parts[two[1]];
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
    }
}

/* ---- the order ------------------------------------------------------------------------------- */

static double rows_of(const join_graph *g, unsigned set) {
    double rows = 1;
    for (int i = 0; i < g->n; i++)
        if (set >> i & 1)
            rows *= g->parts[i].rows;
    for (int i = 0; i < g->nconditions; i++)
        if ((g->conditions[i].parts & ~set) == 0)
            rows *= g->conditions[i].selectivity;
    return rows;
}

static bool is_connected(const join_graph *g, unsigned set, int part) {
    for (int i = 0; i < g->nconditions; i++)
        if ((g->conditions[i].parts >> part & 1) && (g->conditions[i].parts & set) &&
            (g->conditions[i].parts & ~(set | 1u << part)) == 0)
            return true;
    return false;
}

/* The left rows pass, the right ones are hashed, the result
 * passes on; without a condition every pair is looked at. */
static double step_cost(const join_graph *g, unsigned set, int part) {
    double left = rows_of(g, set), right = g->parts[part].rows;
    double pairs = is_connected(g, set, part) ? 0 : left * right * 0.1;
    return left + 2 * right + rows_of(g, set | 1u << part) + pairs;
}

static double order_cost(const join_graph *g, const int *order) {
    double cost = 0;
    unsigned set = 1u << order[0];
    for (int i = 1; i < g->n; i++) {
        cost += step_cost(g, set, order[i]);
        set |= 1u << order[i];
    }
    return cost;
}

/* The cheapest order that begins with one of `firsts`. */
static double best_order(const join_graph *g, unsigned firsts, int *order) {
    unsigned full = (1u << g->n) - 1;
    join_plan *best = ARENA_ARRAY(g->r->mem, join_plan, full + 1);
    for (unsigned set = 1; set <= full; set++) {
        best[set] = (join_plan){INFINITY, -1};
        if ((set & (set - 1)) == 0) {
            int only = __builtin_ctz(set);
            best[set] = (join_plan){firsts >> only & 1 ? 0 : INFINITY, only};
            continue;
        }
        for (int part = 0; part < g->n; part++) {
            unsigned rest = set & ~(1u << part);
            if (rest == set || isinf(best[rest].cost))
                continue;
            double cost = best[rest].cost + step_cost(g, rest, part);
            if (cost < best[set].cost)
                best[set] = (join_plan){cost, part};
        }
    }
    unsigned set = full;
    for (int i = g->n - 1; i >= 0; i--) {
        order[i] = best[set].last;
        set &= ~(1u << order[i]);
    }
    return best[full].cost;
}

static void choose_order(const join_graph *g, int *order) {
    int kept[MAX_RELATIONS], any[MAX_RELATIONS];
    for (int i = 0; i < g->n; i++)
        order[i] = i;
    double cost = order_cost(g, order);
    double cost_kept = best_order(g, 1, kept), cost_any = best_order(g, (1u << g->n) - 1, any);
    if (cost_kept < cost * WORTH_REORDERING) {
        memcpy(order, kept, sizeof kept[0] * (size_t)g->n);
        cost = cost_kept;
    }
    if (cost_any < cost * WORTH_ANOTHER_FIRST)
        memcpy(order, any, sizeof any[0] * (size_t)g->n);
}

/* ---- the tree -------------------------------------------------------------------------------- */

static rel *build_order(const join_graph *g, const int *order) {
    unsigned set = 1u << order[0];
    rel *x = g->parts[order[0]].x;
    bool *done = ARENA_ARRAY(g->r->mem, bool, g->nconditions + 1);
    for (int i = 1; i < g->n; i++) {
        conjuncts on = {0};
        set |= 1u << order[i];
        for (int c = 0; c < g->nconditions; c++)
            if (!done[c] && (g->conditions[c].parts & ~set) == 0) {
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

/* Whether the join tree is left-deep already, so that the written order needs no new nodes. */
static bool is_left_deep(const rel *x) {
    for (; is_inner(x); x = x->left)
        if (is_inner(x->right))
            return false;
    return true;
}

static rel *order_below(rule_ctx *r, rel *x) {
    if (!is_inner(x))
        return rel_each_input(r, x, order_below);
    join_graph *g = ARENA_NEW(r->mem, join_graph);
    int order[MAX_RELATIONS];
    g->r = r;
    collect(g, x);
    for (int i = 0; i < g->all.n; i++)
        g->fixed |= expr_is_volatile(g->all.list[i]);
    if (g->fixed || g->n < 3)
        return rel_each_input(r, x, order_below);
    set_conditions(g);
    choose_order(g, order);
    if (is_written_order(order, g->n) && is_left_deep(x))
        return rel_each_input(r, x, order_below);
    return build_order(g, order);
}

/* ---- recursion ------------------------------------------------------------------------------- */

static bool reads_rounds(const rel *x) {
    for (; x; x = x->left)
        if (x->kind == REL_WORKING || (x->right && reads_rounds(x->right)))
            return true;
    return false;
}

/* The rows that came last on the left, which probes: what they are joined to is hashed once for all
 * rounds, not walked in each. */
static rel *rounds_first(rule_ctx *r, rel *x) {
    x = rel_each_input(r, x, rounds_first);
    if (!is_inner(x) || !reads_rounds(x->right) || reads_rounds(x->left))
        return x;
    return rel_join(r->mem, x->join.kind, x->right, x->left, x->join.predicate);
}

rel *rule_join_order(rule_ctx *r, rel *x) {
    x = order_below(r, x);
    return reads_rounds(x) ? rounds_first(r, x) : x;
}
