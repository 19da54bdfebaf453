/*
 * pushdown.c - moves conditions down, to the tables or into the joins whose inputs they compare.
 *
 * Also derives conditions: a.x = b.x and b.x = 5 imply a.x = 5, which moves down to a.
 *
 * Invariant: conditions that reach the same place keep their order, so `x <> 0 AND y / x > 1` tests
 * x first. A volatile condition stays where it was written. No condition moves below a LIMIT. No
 * condition from above an outer join moves into the input whose columns the join may fill with
 * NULLs.
 */
#include <assert.h>

#include "rules_int.h"

static rel *push(rule_ctx *r, rel *x, const conjuncts *above);

static rel *push_none(rule_ctx *r, rel *x) {
    conjuncts none = {0};
    return push(r, x, &none);
}

static rel *stay(rule_ctx *r, rel *x, const conjuncts *above) {
    return make_filter(r, rel_each_input(r, x, push_none), above);
}

static rel *push_filter(rule_ctx *r, rel *x, const conjuncts *above) {
    conjuncts own = {0}, down = {0}, here = {0};
    conjuncts_split(r, &own, x->filter.predicate);
    for (int i = 0; i < own.n; i++)
        conjuncts_add(r, expr_is_volatile(own.list[i]) ? &here : &down, own.list[i]);
    conjuncts_add_all(r, &down, above);
    return make_filter(r, push(r, x->left, &down), &here);
}

/* ---- one input ------------------------------------------------------------------------------- */

/* Leaves conditions that read a column of `fixed` above x. Moves all others below x, where `map`
 * replaces their columns. */
static rel *push_through(rule_ctx *r, rel *x, const conjuncts *above, const expr_map *map,
                         const id_set *fixed) {
    conjuncts down = {0}, here = {0};
    for (int i = 0; i < above->n; i++)
        if (expr_touches(above->list[i], fixed))
            conjuncts_add(r, &here, above->list[i]);
        else
            conjuncts_add(r, &down, expr_replace(r, above->list[i], map));
    return make_filter(r, rel_over(r, x, push(r, x->left, &down), NULL), &here);
}

/* Moves conditions that read only columns of `ids` below x. Leaves all others above x. */
static rel *push_within(rule_ctx *r, rel *x, const conjuncts *above, const id_set *ids) {
    conjuncts down = {0}, here = {0};
    conjuncts_sort_out(r, above, ids, &down, &here);
    return make_filter(r, rel_over(r, x, push(r, x->left, &down), NULL), &here);
}

/* Moves conditions below x, which appends columns to its input's columns. Leaves conditions that
 * read an appended column above x. */
static rel *push_below(rule_ctx *r, rel *x, const conjuncts *above) {
    expr_map none = {0};
    id_set appended = id_set_new(r->mem);
    for (int i = x->left->ncols; i < x->ncols; i++)
        id_set_add(&appended, x->cols[i].id);
    return push_through(r, x, above, &none, &appended);
}

static void map_column(rule_ctx *r, expr_map *map, id_set *fixed, const rel_expr *c) {
    expr_map_add(r, map, c->id, c->value);
    if (expr_is_volatile(c->value))
        id_set_add(fixed, c->id);
}

static rel *push_project(rule_ctx *r, rel *x, const conjuncts *above) {
    expr_map map = {0};
    id_set fixed = id_set_new(r->mem);
    for (int i = 0; above->n && i < x->ncols; i++)
        map_column(r, &map, &fixed, &x->project.exprs[i]);
    return push_through(r, x, above, &map, &fixed);
}

static rel *push_group(rule_ctx *r, rel *x, const conjuncts *above) {
    expr_map map = {0};
    id_set fixed = id_set_new(r->mem);
    /* a grouping without keys returns a row even for no input, so no condition may drop its
     * input */
    if (x->group.nkeys == 0)
        return stay(r, x, above);
    for (int i = 0; i < x->group.nkeys; i++)
        map_column(r, &map, &fixed, &x->group.keys[i]);
    for (int i = 0; i < x->group.naggs; i++)
        id_set_add(&fixed, x->group.aggs[i].id);
    return push_through(r, x, above, &map, &fixed);
}

/* Moves conditions below a window if they read only columns by which every function is partitioned.
 * Such a condition drops whole partitions. */
static rel *push_window(rule_ctx *r, rel *x, const conjuncts *above) {
    id_set ids = id_set_new(r->mem);
    int common = x->window.nkeys;
    for (int i = 0; i < x->window.nfunctions; i++)
        common = BASE_MIN(common, x->window.functions[i].npartition);
    for (int i = 0; i < common; i++)
        if (x->window.keys[i].value->kind == EXPR_COLUMN)
            id_set_add(&ids, x->window.keys[i].value->column.id);
    return push_within(r, x, above, &ids);
}

/* Moves conditions below a residual if they read only columns of the left row, since such a
 * condition drops a left row with all its pairs. The left row's columns are those below the node
 * that numbers left rows. */
static rel *push_residual(rule_ctx *r, rel *x, const conjuncts *above) {
    const rel *numbered = x->left;
    while (numbered &&
           !(numbered->kind == REL_ROW_NUMBER && numbered->row_number.id == x->residual.group_id))
        numbered = numbered->left;
    if (!numbered)
        return stay(r, x, above);
    id_set left = id_set_columns(r->mem, numbered->left);
    return push_within(r, x, above, &left);
}

static rel *push_setop(rule_ctx *r, rel *x, const conjuncts *above) {
    expr_map left = {0}, right = {0};
    conjuncts to_left = {0}, to_right = {0};
    for (int i = 0; above->n && i < x->ncols; i++) {
        expr_map_add(r, &left, x->cols[i].id, column_expr(r, &x->left->cols[i]));
        expr_map_add(r, &right, x->cols[i].id, column_expr(r, &x->right->cols[i]));
    }
    for (int i = 0; i < above->n; i++) {
        conjuncts_add(r, &to_left, expr_replace(r, above->list[i], &left));
        conjuncts_add(r, &to_right, expr_replace(r, above->list[i], &right));
    }
    return rel_over(r, x, push(r, x->left, &to_left), push(r, x->right, &to_right));
}

/* ---- joins ----------------------------------------------------------------------------------- */

/* True if x is NULL whenever all columns in `ids` are NULL. */
static bool is_strict(const expr *x, const id_set *ids) {
    if (x->kind == EXPR_COLUMN)
        return id_set_has(ids, x->column.id);
    if (x->kind == EXPR_CAST || x->kind == EXPR_IN)
        return is_strict(x->args[0], ids);
    if (x->kind != EXPR_OP || x->op == OP_IS || x->op == OP_IS_NOT || x->op == OP_AND ||
        x->op == OP_OR)
        return false;
    for (int i = 0; i < x->nargs; i++)
        if (is_strict(x->args[i], ids))
            return true;
    return false;
}

/* True if x is never true when all columns in `ids` are NULL. */
static bool rejects_null(const expr *x, const id_set *ids) {
    if (x->kind == EXPR_OP && (x->op == OP_AND || x->op == OP_OR)) {
        bool left = rejects_null(x->args[0], ids), right = rejects_null(x->args[1], ids);
        return x->op == OP_AND ? left || right : left && right;
    }
    if (x->kind == EXPR_OP && x->op == OP_IS_NOT)
        return x->args[1]->kind == EXPR_LITERAL && x->args[1]->literal.type == TYPE_NULL &&
               is_strict(x->args[0], ids);
    return is_strict(x, ids);
}

/* Where the conditions of a join and the conditions above it are placed: in the inputs, in ON, or
 * above the join (`here`). */
typedef struct join_parts {
    id_set left, right; /* columns of the inputs */
    conjuncts to_left, to_right, on, here;
} join_parts;

/* Returns the join's kind, but JOIN_INNER for a left join if a condition above drops the rows that
 * the join fills with NULLs. */
static join_kind stronger_kind(const rel *x, const join_parts *p, const conjuncts *above) {
    if (x->join.kind != JOIN_LEFT)
        return x->join.kind;
    for (int i = 0; i < above->n; i++)
        if (rejects_null(above->list[i], &p->right))
            return JOIN_INNER;
    return JOIN_LEFT;
}

/* Places a condition of ON. */
static void place_on(rule_ctx *r, join_parts *p, join_kind kind, bool mark_null, expr *x) {
    bool inner = join_is_inner(kind), is_volatile = expr_is_volatile(x);
    bool left_may = inner || kind == JOIN_SEMI;
    bool right_may = !(kind == JOIN_MARK && mark_null);
    if (!is_volatile && left_may && expr_only_in(x, &p->left))
        conjuncts_add(r, &p->to_left, x);
    else if (!is_volatile && right_may && expr_only_in(x, &p->right))
        conjuncts_add(r, &p->to_right, x);
    else
        conjuncts_add(r, &p->on, x);
}

/* Places a condition from above the join. */
static void place_above(rule_ctx *r, join_parts *p, join_kind kind, expr *x) {
    if (join_is_inner(kind))
        place_on(r, p, kind, false, x);
    else
        conjuncts_add(r, expr_only_in(x, &p->left) ? &p->to_left : &p->here, x);
}

/* If x is an equality with the column `id`, returns its other side; otherwise NULL. Both sides must
 * have the same type, since equality between different types is not transitive. */
static expr *equal_of(const expr *x, int id) {
    expr_op op;
    for (int i = 0; i < 2 && expr_compares(x, i, &op) && op == OP_EQ; i++)
        if (x->args[i]->kind == EXPR_COLUMN && x->args[i]->column.id == id &&
            x->args[0]->type == x->args[1]->type)
            return x->args[1 - i];
    return NULL;
}

/* Whether a condition equates column `id` with a literal. */
static bool is_fixed(const conjuncts *all, int id) {
    for (int i = 0; i < all->n; i++) {
        const expr *other = equal_of(all->list[i], id);
        if (other && other->kind == EXPR_LITERAL)
            return true;
    }
    return false;
}

/* Adds the conditions `column = literal` that the conditions and their equalities of columns
 * imply. */
static void add_implied(rule_ctx *r, conjuncts *all) {
    for (int k = 0; k < all->n; k++) {
        const expr *fixed = all->list[k];
        int at = fixed->nargs == 2 && fixed->args[0]->kind == EXPR_COLUMN ? 0 : 1;
        if (fixed->nargs != 2 || fixed->args[at]->kind != EXPR_COLUMN)
            continue;
        expr *literal = equal_of(fixed, fixed->args[at]->column.id);
        for (int i = 0; literal && literal->kind == EXPR_LITERAL && i < all->n; i++) {
            expr *other = equal_of(all->list[i], fixed->args[at]->column.id);
            if (other && other->kind == EXPR_COLUMN && !is_fixed(all, other->column.id))
                conjuncts_add(r, all, expr_op2(r->mem, OP_EQ, TYPE_BOOLEAN, other, literal));
        }
    }
}

/* Adds conditions that are true for all rows of x: the conditions of the filters and inner joins at
 * its top. */
static void add_met(rule_ctx *r, conjuncts *all, const rel *x) {
    for (; x->kind == REL_FILTER || x->kind == REL_JOIN; x = x->left) {
        bool inner = rel_is_inner_join(x);
        if (x->kind == REL_FILTER || inner)
            conjuncts_split(r, all, inner ? x->join.predicate : x->filter.predicate);
        if (inner)
            add_met(r, all, x->right);
    }
}

/* Derives conditions from the conditions of ON, from those already applied in the inputs and from
 * those above the join, and places the derived conditions. Does nothing if the mark may be NULL
 * (IN), since pairs whose condition is NULL are then needed too. */
static void place_implied(rule_ctx *r, join_parts *p, const rel *join, join_kind kind,
                          const conjuncts *own, const conjuncts *above) {
    conjuncts all = {0}, others = {0};
    bool inner = join_is_inner(kind);
    if (join->join.mark_null)
        return;
    conjuncts_add_all(r, &all, own);
    if (inner)
        conjuncts_add_all(r, &all, above);
    else
        conjuncts_sort_out(r, above, &p->left, &all, &others);
    add_met(r, &all, join->left);
    add_met(r, &all, join->right);
    int given = all.n;
    add_implied(r, &all);
    for (int i = given; i < all.n; i++)
        if (inner || kind == JOIN_SEMI || expr_only_in(all.list[i], &p->right))
            place_on(r, p, kind, false, all.list[i]);
}

static rel *push_join(rule_ctx *r, rel *x, const conjuncts *above) {
    join_parts p = {.left = id_set_columns(r->mem, x->left),
                    .right = id_set_columns(r->mem, x->right)};
    conjuncts own = {0};
    join_kind kind = stronger_kind(x, &p, above);
    conjuncts_split(r, &own, x->join.predicate);
    for (int i = 0; i < own.n; i++)
        place_on(r, &p, kind, x->join.mark_null, own.list[i]);
    for (int i = 0; i < above->n; i++)
        place_above(r, &p, kind, above->list[i]);
    place_implied(r, &p, x, kind, &own, above);
    rel *left = push(r, x->left, &p.to_left), *right = push(r, x->right, &p.to_right);
    if (join_is_inner(kind))
        kind = p.on.n ? JOIN_INNER : JOIN_CROSS;
    if (kind != x->join.kind || left != x->left || right != x->right ||
        !conjuncts_same(&own, &p.on)) {
        x = rel_copy(r, x);
        x->join.kind = kind;
        x->join.predicate = conjuncts_join(r, &p.on);
        x = rel_rebuild(r, x, left, right);
    }
    return make_filter(r, x, &p.here);
}

/* Moves conditions that read only outer rows below a subquery that was not unnested. */
static rel *push_apply(rule_ctx *r, rel *x, const conjuncts *above) {
    conjuncts down = {0}, here = {0};
    id_set left = id_set_columns(r->mem, x->left);
    conjuncts_sort_out(r, above, &left, &down, &here);
    return make_filter(r, rel_over(r, x, push(r, x->left, &down), push_none(r, x->right)), &here);
}

static rel *push(rule_ctx *r, rel *x, const conjuncts *above) {
    switch (x->kind) {
    case REL_FILTER:
        return push_filter(r, x, above);
    case REL_PROJECT:
        return push_project(r, x, above);
    case REL_JOIN:
        return push_join(r, x, above);
    case REL_APPLY:
        return push_apply(r, x, above);
    case REL_GROUP:
        return push_group(r, x, above);
    case REL_SORT:
    case REL_DISTINCT:
        return rel_over(r, x, push(r, x->left, above), NULL);
    case REL_SETOP:
        return push_setop(r, x, above);
    case REL_LLM:
    case REL_ROW_NUMBER:
    case REL_SPLIT:
        return push_below(r, x, above);
    case REL_WINDOW:
        return push_window(r, x, above);
    case REL_OUTER_RESIDUAL:
        return push_residual(r, x, above);
    default:
        return stay(r, x, above);
    }
}

rel *push_conditions(rule_ctx *r, rel *x) {
    return push_none(r, x);
}
