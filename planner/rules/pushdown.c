/*
 * pushdown.c - conditions as near to the tables as they may go; joins made of WHERE's equalities.
 *
 * From a.x = b.x and b.x = 5 follows a.x = 5, which goes down to a.
 *
 * Invariant: conditions that end in the same place keep their order, so `x <> 0 AND y / x > 1` asks
 * for x first. A volatile condition stays where it was written; nothing passes a LIMIT or enters
 * the side of an outer join that may be NULL.
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
    for (int i = 0; i < above->n; i++)
        conjuncts_add(r, &down, above->list[i]);
    return make_filter(r, push(r, x->left, &down), &here);
}

/* ---- one input ------------------------------------------------------------------------------- */

/* Through a projection or grouping: what a condition's
 * columns stand for below. NULL: it has to stay. */
static expr *below(rule_ctx *r, expr *x, const expr_map *map, const id_set *fixed) {
    if (expr_touches(x, fixed))
        return NULL;
    return expr_replace(r, x, map);
}

static rel *push_through(rule_ctx *r, rel *x, const conjuncts *above, const expr_map *map,
                         const id_set *fixed) {
    conjuncts down = {0}, here = {0};
    for (int i = 0; i < above->n; i++) {
        expr *moved = below(r, above->list[i], map, fixed);
        conjuncts_add(r, moved ? &down : &here, moved ? moved : above->list[i]);
    }
    return make_filter(r, rel_over(r, x, push(r, x->left, &down), NULL), &here);
}

static rel *push_project(rule_ctx *r, rel *x, const conjuncts *above) {
    expr_map map = {0};
    id_set fixed = id_set_new(r->mem);
    for (int i = 0; above->n && i < x->ncols; i++) {
        expr_map_add(r, &map, x->cols[i].id, x->project.exprs[i].value);
        if (expr_is_volatile(x->project.exprs[i].value))
            id_set_add(&fixed, x->cols[i].id);
    }
    return push_through(r, x, above, &map, &fixed);
}

static rel *push_group(rule_ctx *r, rel *x, const conjuncts *above) {
    expr_map map = {0};
    id_set fixed = id_set_new(r->mem);
    if (x->group.nkeys == 0) /* its one row is there whatever comes in */
        return stay(r, x, above);
    for (int i = 0; i < x->group.nkeys; i++) {
        expr_map_add(r, &map, x->group.keys[i].id, x->group.keys[i].value);
        if (expr_is_volatile(x->group.keys[i].value))
            id_set_add(&fixed, x->group.keys[i].id);
    }
    for (int i = 0; i < x->group.naggs; i++)
        id_set_add(&fixed, x->group.aggs[i].id);
    return push_through(r, x, above, &map, &fixed);
}

static rel *push_llm(rule_ctx *r, rel *x, const conjuncts *above) {
    expr_map none = {0};
    id_set made = id_set_new(r->mem);
    for (int i = 0; i < x->llm.nuses; i++) {
        id_set_add(&made, x->llm.uses[i].out_id);
        if (x->llm.uses[i].prob_id >= 0)
            id_set_add(&made, x->llm.uses[i].prob_id);
    }
    return push_through(r, x, above, &none, &made);
}

static rel *push_number(rule_ctx *r, rel *x, const conjuncts *above) {
    expr_map none = {0};
    id_set made = id_set_new(r->mem);
    id_set_add(&made, x->number.id);
    return push_through(r, x, above, &none, &made);
}

/* Columns that every function of a window is partitioned by. */
static id_set partition_columns(rule_ctx *r, const rel *x) {
    id_set ids = id_set_new(r->mem);
    int common = x->window.nkeys;
    for (int i = 0; i < x->window.nfunctions; i++)
        common = BASE_MIN(common, x->window.functions[i].npartition);
    for (int i = 0; i < common; i++)
        if (x->window.keys[i].value->kind == EXPR_COLUMN)
            id_set_add(&ids, x->window.keys[i].value->column.id);
    return ids;
}

/* A condition on what all rows of a partition have alike takes whole partitions away: it may do so
 * before the window. */
static rel *push_window(rule_ctx *r, rel *x, const conjuncts *above) {
    conjuncts down = {0}, here = {0};
    id_set ids = partition_columns(r, x);
    for (int i = 0; i < above->n; i++)
        conjuncts_add(r, expr_only_in(above->list[i], &ids) ? &down : &here, above->list[i]);
    return make_filter(r, rel_over(r, x, push(r, x->left, &down), NULL), &here);
}

/* Below a residual, whole left rows may go: conditions
 * on what stands under the node that numbers them. */
static rel *push_residual(rule_ctx *r, rel *x, const conjuncts *above) {
    const rel *numbered = x->left;
    while (numbered &&
           !(numbered->kind == REL_NUMBER && numbered->number.id == x->residual.group_id))
        numbered = numbered->left;
    if (!numbered)
        return stay(r, x, above);
    conjuncts down = {0}, here = {0};
    id_set left = id_set_new(r->mem);
    id_set_add_columns(&left, numbered->left);
    for (int i = 0; i < above->n; i++)
        conjuncts_add(r, expr_only_in(above->list[i], &left) ? &down : &here, above->list[i]);
    return make_filter(r, rel_over(r, x, push(r, x->left, &down), NULL), &here);
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

/* NULL when the columns in `ids` are. */
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

/* Never true when the columns in `ids` are NULL. */
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

/* Where the conditions around a join go. */
typedef struct join_parts {
    id_set left, right;
    conjuncts to_left, to_right, on, here;
} join_parts;

/* A left join whose missing rows a condition above throws away is an inner join. */
static join_kind stronger_kind(const rel *x, const join_parts *p, const conjuncts *above) {
    if (x->join.kind != JOIN_LEFT)
        return x->join.kind;
    for (int i = 0; i < above->n; i++)
        if (rejects_null(above->list[i], &p->right))
            return JOIN_INNER;
    return JOIN_LEFT;
}

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

static void place_above(rule_ctx *r, join_parts *p, join_kind kind, expr *x) {
    bool inner = join_is_inner(kind);
    if (inner)
        place_on(r, p, kind, false, x);
    else
        conjuncts_add(r, expr_only_in(x, &p->left) ? &p->to_left : &p->here, x);
}

/* Of two values of one type that x says are equal, the one beside the column `id`; NULL: there is
 * none. Between types equal could mean another thing. */
static expr *equal_of(const expr *x, int id) {
    expr_op op;
    for (int i = 0; i < 2 && expr_compares(x, i, &op) && op == OP_EQ; i++)
        if (x->args[i]->kind == EXPR_COLUMN && x->args[i]->column.id == id &&
            x->args[0]->type == x->args[1]->type)
            return x->args[1 - i];
    return NULL;
}

static bool is_fixed(const conjuncts *all, int id) {
    for (int i = 0; i < all->n; i++) {
        const expr *other = equal_of(all->list[i], id);
        if (other && other->kind == EXPR_LITERAL)
            return true;
    }
    return false;
}

/* Adds column = literal for those that follow from others by equal columns. */
static void add_what_follows(rule_ctx *r, conjuncts *all) {
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

/* The conditions that an input's rows have passed in filters and joins right below. */
static void add_passed(rule_ctx *r, conjuncts *all, const rel *x) {
    for (; x->kind == REL_FILTER || x->kind == REL_JOIN; x = x->left) {
        bool inner = rel_is_inner_join(x);
        if (x->kind == REL_FILTER || inner)
            conjuncts_split(r, all, inner ? x->join.predicate : x->filter.predicate);
        if (inner)
            add_passed(r, all, x->right);
    }
}

/* All conditions of pairs that come to be: those of ON, those that their rows have passed, and those
 * above that they will. IN has to see the pairs, too, that may be none only because of a NULL. */
static void place_what_follows(rule_ctx *r, join_parts *p, const rel *join, join_kind kind,
                               const conjuncts *own, const conjuncts *above) {
    conjuncts all = {0};
    bool inner = join_is_inner(kind);
    if (join->join.mark_null)
        return;
    for (int i = 0; i < own->n; i++)
        conjuncts_add(r, &all, own->list[i]);
    for (int i = 0; i < above->n; i++)
        if (inner || expr_only_in(above->list[i], &p->left))
            conjuncts_add(r, &all, above->list[i]);
    add_passed(r, &all, join->left);
    add_passed(r, &all, join->right);
    int known = all.n;
    add_what_follows(r, &all);
    for (int i = known; i < all.n; i++)
        if (inner || kind == JOIN_SEMI || expr_only_in(all.list[i], &p->right))
            place_on(r, p, kind, false, all.list[i]);
}

static rel *push_join(rule_ctx *r, rel *x, const conjuncts *above) {
    join_parts p = {.left = id_set_new(r->mem), .right = id_set_new(r->mem)};
    conjuncts own = {0};
    id_set_add_columns(&p.left, x->left);
    id_set_add_columns(&p.right, x->right);
    join_kind kind = stronger_kind(x, &p, above);
    conjuncts_split(r, &own, x->join.predicate);
    for (int i = 0; i < own.n; i++)
        place_on(r, &p, kind, x->join.mark_null, own.list[i]);
    for (int i = 0; i < above->n; i++)
        place_above(r, &p, kind, above->list[i]);
    place_what_follows(r, &p, x, kind, &own, above);
    rel *left = push(r, x->left, &p.to_left), *right = push(r, x->right, &p.to_right);
    if (join_is_inner(kind))
        kind = p.on.n ? JOIN_INNER : JOIN_CROSS;
    bool same = kind == x->join.kind && p.on.n == own.n && left == x->left && right == x->right;
    for (int i = 0; same && i < own.n; i++)
        same = own.list[i] == p.on.list[i];
    if (!same) {
        x = rel_copy(r, x);
        x->join.kind = kind;
        x->join.predicate = conjuncts_join(r, &p.on);
        x->left = left;
        x->right = right;
        rel_set_columns(r->mem, x);
    }
    return make_filter(r, x, &p.here);
}

/* A subquery not unnested: conditions on the outer rows alone pass it. */
static rel *push_apply(rule_ctx *r, rel *x, const conjuncts *above) {
    conjuncts down = {0}, here = {0};
    id_set left = id_set_new(r->mem);
    id_set_add_columns(&left, x->left);
    for (int i = 0; i < above->n; i++)
        conjuncts_add(r, expr_only_in(above->list[i], &left) ? &down : &here, above->list[i]);
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
        return push_llm(r, x, above);
    case REL_NUMBER:
        return push_number(r, x, above);
    case REL_WINDOW:
        return push_window(r, x, above);
    case REL_OUTER_RESIDUAL:
        return push_residual(r, x, above);
    default:
        return stay(r, x, above);
    }
}

rel *rule_pushdown(rule_ctx *r, rel *x) {
    return push_none(r, x);
}
