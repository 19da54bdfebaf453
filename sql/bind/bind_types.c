/*
 * bind_types.c - type conversions: which are implicit, which need CAST.
 *
 * Numeric types are ordered BOOLEAN < INTEGER < REAL. A literal takes the type of its context if
 * its value allows it; a column never changes class (TEXT, number, BLOB) without CAST. Invariant: a
 * literal NULL, or a column that is always NULL, takes the type of its context.
 */
#include <math.h>
#include <stdio.h>

#include "bind_int.h"

static bool is_literal(const expr *x) {
    return x->kind == EXPR_LITERAL;
}

bool is_untyped_null(binder *b, const expr *x) {
    return expr_is_null(x) || (x->kind == EXPR_COLUMN && id_of(b, x->column.id)->is_null);
}

/* Returns the NULL x with the type. It is a copy, because the literal may be shared. */
static expr *null_as(binder *b, expr *x, value_type type) {
    if (x->type == type)
        return x;
    expr *copy = expr_literal(b->mem, value_null());
    copy->type = type;
    return expr_at(copy, x->pos, x->len);
}

static expr *convert_literal(binder *b, expr *x, value_type type) {
    value out;
    err ignored = {0};
    if (value_cast(b->mem, x->literal, type, &out, &ignored))
        return NULL;
    expr *y = expr_literal(b->mem, out);
    y->type = type;
    return expr_at(y, x->pos, x->len);
}

static void type_error(binder *b, const expr *x, value_type type, const char *what) {
    fail(b, ERR_BIND, x->pos, x->len, "%s needs %s, not %s", what, type_name(type),
         type_name(x->type));
    err_hint(b->e, "convert it with CAST(… AS %s)", type_name(type));
}

/* dims: of VECTOR(n), else 0. */
static expr *converted(binder *b, expr *x, value_type type, int dims, bool exact,
                       const char *what) {
    if (is_untyped_null(b, x))
        return null_as(b, x, type);
    if (x->type == type && dims == 0)
        return x;
    if (!is_literal(x)) {
        expr *cast = expr_cast(b->mem, x, type);
        cast->exact = exact;
        cast->dims = dims;
        return cast;
    }
    err problem = {0};
    value out;
    int status = (exact ? value_assign : value_cast)(b->mem, x->literal, type, &out, &problem);
    if (status == 0 && type == TYPE_VECTOR)
        status = vector_check(out.s, dims, &problem);
    if (status) {
        fail(b, ERR_TYPE, x->pos, x->len, "%s: %s", what, problem.message);
        return NULL;
    }
    return expr_at(expr_literal(b->mem, out), x->pos, x->len);
}

expr *to_type(binder *b, expr *x, value_type type, const char *what) {
    return converted(b, x, type, 0, false, what);
}

expr *to_written_type(binder *b, expr *x, value_type type, int dims) {
    return converted(b, x, type, dims, false, "CAST");
}

expr *to_column(binder *b, expr *x, const column_def *c) {
    const char *what = arena_printf(b->mem, "column \"%.*s\"", (int)c->name.n, c->name.p);
    return converted(b, x, c->type, c->dims, true, what);
}

expr *to_type_implicit(binder *b, expr *x, value_type type, const char *what) {
    if (is_untyped_null(b, x))
        return null_as(b, x, type);
    if (x->type == type)
        return x;
    if (is_literal(x)) {
        expr *y = convert_literal(b, x, type);
        if (y)
            return y;
    } else if (type_is_number(x->type) && type_is_number(type) && x->type < type) {
        return expr_cast(b->mem, x, type);
    }
    type_error(b, x, type, what);
    return NULL;
}

/* Converts an operand of arithmetic: BOOLEAN to 0 or 1, a text literal to the number it spells. */
expr *to_number(binder *b, expr *x, const char *what) {
    if (is_untyped_null(b, x))
        return null_as(b, x, TYPE_INTEGER);
    if (x->type == TYPE_BOOLEAN)
        return to_type(b, x, TYPE_INTEGER, what);
    if (type_is_number(x->type))
        return x;
    if (is_literal(x) && x->type == TYPE_TEXT) {
        expr *y = convert_literal(b, x, TYPE_INTEGER);
        if (!y)
            y = convert_literal(b, x, TYPE_REAL);
        if (y)
            return y;
    }
    fail(b, ERR_BIND, x->pos, x->len, "%s needs numbers, not %s", what, type_name(x->type));
    if (llm_info_of(b, x))
        err_hint(b->e, "write the type of the call: LLM(…) RETURNS INTEGER");
    else if (x->type == TYPE_VECTOR)
        err_hint(b->e, "a distance is a number: v <-> w; .functions vector lists what there is");
    else
        err_hint(b->e, "convert it with CAST(… AS REAL)");
    return NULL;
}

expr *to_condition(binder *b, expr *x) {
    if (is_untyped_null(b, x))
        return null_as(b, x, TYPE_BOOLEAN);
    call_info *call = llm_info_of(b, x);
    if (call && !call->given)
        llm_note_type(b, call, TYPE_BOOLEAN);
    if (x->type == TYPE_BOOLEAN)
        return x;
    if (type_is_number(x->type)) {
        value zero = x->type == TYPE_REAL ? value_real(0) : value_int(0);
        return expr_at(expr_op2(b->mem, OP_NE, TYPE_BOOLEAN, x, expr_literal(b->mem, zero)), x->pos,
                       x->len);
    }
    if (call && !call->given)
        return x; /* the next pass binds it as BOOLEAN */
    fail(b, ERR_BIND, x->pos, x->len, "a condition must be BOOLEAN or a number, not %s",
         type_name(x->type));
    if (call)
        err_hint(b->e, "compare the answer, as in LLM(…) = 'yes', or write LLM(…) RETURNS BOOLEAN");
    return NULL;
}

/* ---- comparisons ----------------------------------------------------------------------------- */

/* Converts a literal to the type it is compared with, if the conversion is exact, because comparing
 * equal types is faster. Other literals stay: value_compare is exact across numeric types. */
static void align_number(binder *b, expr **literal, value_type other) {
    expr *x = *literal;
    if (!is_literal(x) || x->type == other)
        return;
    double r = x->type == TYPE_REAL ? x->literal.r : 0;
    bool whole = x->type == TYPE_REAL && other == TYPE_INTEGER && r == floor(r) && fabs(r) < 9e15;
    bool exact = x->type == TYPE_INTEGER && other == TYPE_REAL &&
                 x->literal.i < (INT64_C(1) << 53) && x->literal.i > -(INT64_C(1) << 53);
    bool up = x->type == TYPE_BOOLEAN && type_is_number(other);
    if (whole || exact || up) {
        expr *y = convert_literal(b, x, other);
        if (y)
            *literal = y;
    }
}

static int cannot_compare(binder *b, const expr *x, const expr *y, int pos, int len) {
    const expr *literal = is_literal(x) ? x : is_literal(y) ? y : NULL;
    const expr *other = literal == x ? y : x;
    if (literal && literal->type == TYPE_TEXT && type_is_number(other->type)) {
        fail(b, ERR_BIND, literal->pos, literal->len, "cannot compare '%.*s' with %s",
             (int)BASE_MIN(literal->literal.s.n, (size_t)60), literal->literal.s.p,
             type_name(other->type));
    } else {
        fail(b, ERR_BIND, pos, len, "cannot compare %s with %s", type_name(x->type),
             type_name(y->type));
    }
    value_type to = x->type == TYPE_BLOB || y->type == TYPE_BLOB ? TYPE_BLOB
                    : x->type == TYPE_TEXT                       ? y->type
                                                                 : x->type;
    err_hint(b->e, "convert it with CAST(… AS %s)", type_name(to));
    return ERR_BIND;
}

int unify_comparison(binder *b, expr_op op, expr **x, expr **y, int pos, int len) {
    if (llm_note_use(b, op, *x, *y) || llm_note_use(b, op, *y, *x))
        return 0;
    bool equates = op < OP_LT || op > OP_GE; /* with < and > any text is a valid operand */
    if (equates && (!llm_check_literal(b, *x, *y) || !llm_check_literal(b, *y, *x)))
        return (int)b->e->code;
    bool no_x = is_untyped_null(b, *x), no_y = is_untyped_null(b, *y);
    if (no_x || no_y) {
        value_type type = no_x ? (*y)->type : (*x)->type;
        type = type ? type : (*x)->type ? (*x)->type : TYPE_TEXT;
        *x = no_x ? null_as(b, *x, type) : *x;
        *y = no_y ? null_as(b, *y, type) : *y;
        return 0;
    }
    value_type tx = (*x)->type, ty = (*y)->type;
    if (type_is_number(tx) && type_is_number(ty)) {
        if (tx == TYPE_BOOLEAN && ty != TYPE_BOOLEAN && !is_literal(*x))
            *x = expr_cast(b->mem, *x, TYPE_INTEGER);
        if (ty == TYPE_BOOLEAN && tx != TYPE_BOOLEAN && !is_literal(*y))
            *y = expr_cast(b->mem, *y, TYPE_INTEGER);
        align_number(b, x, (*y)->type);
        align_number(b, y, (*x)->type);
        return 0;
    }
    if (tx == ty)
        return 0;
    /* BLOBs are excluded: a number literal would be converted by its spelling, which is never
     * intended. */
    expr **literal = is_literal(*y) ? y : is_literal(*x) ? x : NULL;
    if (literal && tx != TYPE_BLOB && ty != TYPE_BLOB) {
        value_type other = literal == y ? tx : ty;
        expr *converted = convert_literal(b, *literal, other);
        if (!converted && other == TYPE_INTEGER)
            converted = convert_literal(b, *literal, TYPE_REAL);
        if (converted) {
            *literal = converted;
            return 0;
        }
    }
    return cannot_compare(b, *x, *y, pos, len);
}

/* Treats LLM calls without RETURNS as numbers if another operand is a number. */
static void ask_for_numbers(binder *b, expr **xs, int n) {
    const expr *number = NULL;
    for (int i = 0; i < n && !number; i++)
        if (type_is_number(xs[i]->type) && !is_untyped_null(b, xs[i]))
            number = xs[i];
    for (int i = 0; i < n && number; i++)
        if (llm_note_use(b, OP_EQ, xs[i], number))
            xs[i] = expr_cast(b->mem, xs[i], number->type);
}

/* Finds one type for all operands (of CASE, COALESCE, VALUES, …): the highest numeric type, or the
 * type that all have. Literals adapt to the other operands. */
int unify_all(binder *b, expr **xs, int n, const char *what, value_type *type) {
    value_type t = TYPE_NULL;
    const expr *first = NULL;
    ask_for_numbers(b, xs, n);
    /* pass 0 ignores literals; if it finds no type, pass 1 considers them too */
    for (int pass = 0; pass < 2 && t == TYPE_NULL; pass++)
        for (int i = 0; i < n; i++) {
            if (is_untyped_null(b, xs[i]) || (is_literal(xs[i]) && pass == 0))
                continue;
            bool numbers = type_is_number(xs[i]->type) && type_is_number(t);
            if (t == TYPE_NULL || (numbers && xs[i]->type > t)) {
                t = xs[i]->type;
                first = first ? first : xs[i];
            } else if (!numbers && t != xs[i]->type && !(is_literal(xs[i]) || is_literal(first))) {
                fail(b, ERR_BIND, xs[i]->pos, xs[i]->len, "%s mixes %s and %s", what, type_name(t),
                     type_name(xs[i]->type));
                err_hint(b->e, "convert it with CAST(… AS %s)", type_name(t));
                return ERR_BIND;
            }
        }
    /* a literal can raise a numeric type: with a REAL literal, INTEGER columns become REAL */
    for (int i = 0; i < n; i++)
        if (is_literal(xs[i]) && type_is_number(xs[i]->type) && type_is_number(t) &&
            xs[i]->type > t)
            t = xs[i]->type;
    for (int i = 0; i < n; i++) {
        /* all operands are NULL: the context of the whole expression determines the type */
        if (t == TYPE_NULL) {
            xs[i] = null_as(b, xs[i], TYPE_NULL);
            continue;
        }
        if (is_literal(xs[i]) && !is_untyped_null(b, xs[i]) && xs[i]->type != t &&
            !type_is_number(xs[i]->type) != !type_is_number(t) && xs[i]->type != TYPE_TEXT) {
            fail(b, ERR_BIND, xs[i]->pos, xs[i]->len, "%s mixes %s and %s", what, type_name(t),
                 type_name(xs[i]->type));
            err_hint(b->e, "convert it with CAST(… AS %s)", type_name(t));
            return ERR_BIND;
        }
        if (!(xs[i] = to_type_implicit(b, xs[i], t, what)))
            return (int)b->e->code;
    }
    *type = t;
    return 0;
}
