/*
 * expr.c - comparison, properties and construction of bound expressions.
 *
 * Invariant: of these functions only expr_at changes an expression in place.
 */
#include <string.h>

#include "tree_int.h"
#include "words/words_int.h"

bool expr_equal(const expr *a, const expr *b) {
    if (a == b)
        return true;
    if (!a || !b || a->kind != b->kind || a->type != b->type || a->nargs != b->nargs)
        return false;
    switch (a->kind) {
    case EXPR_LITERAL:
        if (a->literal.type != b->literal.type || value_compare(a->literal, b->literal) != 0)
            return false;
        break;
    case EXPR_COLUMN:
        if (a->column.id != b->column.id)
            return false;
        break;
    case EXPR_OP:
        if (a->op != b->op)
            return false;
        break;
    case EXPR_FUNC:
        if (a->function != b->function)
            return false;
        break;
    case EXPR_CAST:
        if (a->exact != b->exact || a->dims != b->dims)
            return false;
        break;
    case EXPR_CASE:
    case EXPR_IN:
    case EXPR_LET:
    case EXPR_LET_VAR:
        break;
    }
    for (int i = 0; i < a->nargs; i++)
        if (!expr_equal(a->args[i], b->args[i]))
            return false;
    return true;
}

bool expr_is_volatile(const expr *x) {
    if (x->kind == EXPR_LET_VAR || (x->kind == EXPR_FUNC && function_of(x->function)->is_volatile))
        return true;
    for (int i = 0; i < x->nargs; i++)
        if (expr_is_volatile(x->args[i]))
            return true;
    return false;
}

static bool has_column(const expr *x) {
    if (x->kind == EXPR_COLUMN)
        return true;
    for (int i = 0; i < x->nargs; i++)
        if (has_column(x->args[i]))
            return true;
    return false;
}

bool expr_is_constant(const expr *x) {
    return !has_column(x) && !expr_is_volatile(x);
}

void expr_columns(const expr *x, void (*visit)(void *ctx, int id), void *ctx) {
    if (x->kind == EXPR_COLUMN)
        visit(ctx, x->column.id);
    for (int i = 0; i < x->nargs; i++)
        expr_columns(x->args[i], visit, ctx);
}

/* ---- construction ---------------------------------------------------------------------------- */

expr *expr_new(arena *a, expr_kind kind, value_type type, int nargs) {
    expr *x = ARENA_NEW(a, expr);
    x->kind = kind;
    x->type = type;
    x->pos = -1;
    x->nargs = nargs;
    if (nargs)
        x->args = ARENA_ARRAY(a, expr *, nargs);
    return x;
}

expr *expr_literal(arena *a, value v) {
    expr *x = expr_new(a, EXPR_LITERAL, v.type, 0);
    x->literal = v;
    return x;
}

expr *expr_column(arena *a, int id, value_type type, str name) {
    expr *x = expr_new(a, EXPR_COLUMN, type, 0);
    x->column.id = id;
    x->column.slot = -1;
    x->column.name = name;
    return x;
}

expr *expr_op2(arena *a, expr_op op, value_type type, expr *l, expr *r) {
    expr *x = expr_new(a, EXPR_OP, type, 2);
    x->op = op;
    x->args[0] = l;
    x->args[1] = r;
    return x;
}

expr *expr_op1(arena *a, expr_op op, value_type type, expr *l) {
    expr *x = expr_new(a, EXPR_OP, type, 1);
    x->op = op;
    x->args[0] = l;
    return x;
}

/* The tree is balanced, so that 10,000 conjuncts are only 14 levels deep. Operands are still
 * evaluated from left to right. */
expr *expr_chain(arena *a, expr_op op, expr **args, int nargs) {
    if (nargs == 0)
        return NULL;
    if (nargs == 1)
        return args[0];
    int half = (nargs + 1) / 2;
    return expr_op2(a, op, op == OP_CONCAT ? TYPE_TEXT : TYPE_BOOLEAN,
                    expr_chain(a, op, args, half), expr_chain(a, op, args + half, nargs - half));
}

expr *expr_and(arena *a, expr *l, expr *r) {
    if (!l || !r)
        return l ? l : r;
    return expr_chain(a, OP_AND, (expr *[]){l, r}, 2);
}

expr *expr_cast(arena *a, expr *from, value_type type) {
    expr *x = expr_new(a, EXPR_CAST, type, 1);
    x->pos = from->pos;
    x->len = from->len;
    x->args[0] = from;
    return x;
}

expr *expr_at(expr *x, int pos, int len) {
    x->pos = pos;
    x->len = len;
    return x;
}

bool expr_is_null(const expr *x) {
    return x->kind == EXPR_LITERAL && x->literal.type == TYPE_NULL;
}

static bool bound_equal(const frame_bound *a, const frame_bound *b) {
    return a->kind == b->kind && a->offset.type == b->offset.type &&
           value_compare(a->offset, b->offset) == 0;
}

bool window_frame_equal(const window_frame *a, const window_frame *b) {
    return a->unit == b->unit && a->exclude == b->exclude && bound_equal(&a->start, &b->start) &&
           bound_equal(&a->end, &b->end);
}
