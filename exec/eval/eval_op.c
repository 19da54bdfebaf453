/*
 * eval_op.c - arithmetic, comparison, IS, NOT and || as typed loops over operands.
 *
 * Invariant: loops compute all rows, also NULL rows, whose cells are initialised. An overflow is an
 * error only in a row that is not NULL. INTEGER and REAL are compared exactly, without rounding the
 * INTEGER to a double.
 */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "eval_parts_int.h"

/* ---- NULLs ----------------------------------------------------------------------------------- */

/* Makes out NULL in each row where a or b is NULL. `b` may be a null pointer. */
static void merge_nulls(const eval_env *v, const operand *a, const operand *b, int n,
                        operand *out) {
    if (!a->c.null && (!b || !b->c.null))
        return;
    uint8_t *null = arena_alloc(v->mem, (size_t)n);
    for (int k = 0; k < n; k++)
        null[k] = (uint8_t)(operand_null_at(a, k) || (b && operand_null_at(b, k)));
    out->c.null = null;
}

static bool any_null_type(const operand *a, const operand *b) {
    return a->c.type == TYPE_NULL || b->c.type == TYPE_NULL || operand_is_null(a) ||
           operand_is_null(b);
}

/* ---- arithmetic ------------------------------------------------------------------------------ */

static bool add_i(int64_t a, int64_t b, int64_t *out) {
    return __builtin_add_overflow(a, b, out);
}

static bool sub_i(int64_t a, int64_t b, int64_t *out) {
    return __builtin_sub_overflow(a, b, out);
}

static bool mul_i(int64_t a, int64_t b, int64_t *out) {
    return __builtin_mul_overflow(a, b, out);
}

/* b is not 0. Returns true on overflow. */
static bool div_i(int64_t a, int64_t b, int64_t *out) {
    if (b == -1)
        return __builtin_sub_overflow(0, a, out);
    *out = a / b;
    return false;
}

static bool mod_i(int64_t a, int64_t b, int64_t *out) {
    *out = b == -1 ? 0 : a % b;
    return false;
}

typedef bool (*int_op)(int64_t a, int64_t b, int64_t *out);

/* Inlined with a constant `apply`, so that each operation has its own loop. Returns whether any row
 * overflowed, NULL rows included. */
static inline __attribute__((always_inline)) bool int_loop(int_op apply, const operand *a,
                                                           const operand *b, int n, int64_t *out) {
    const int64_t *pa = a->c.i, *pb = b->c.i;
    int sa = a->step, sb = b->step;
    bool over = false;
    for (int k = 0; k < n; k++)
        over |= apply(pa[k * sa], pb[k * sb], &out[k]);
    return over;
}

static inline __attribute__((always_inline)) bool divide_loop(const eval_env *v, int_op apply,
                                                              const operand *a, const operand *b,
                                                              int n, operand *out) {
    bool over = false;
    for (int k = 0; k < n; k++) {
        int64_t divisor = b->c.i[k * b->step];
        if (divisor == 0)
            operand_set_null(v, out, n, k);
        else
            over |= apply(a->c.i[k * a->step], divisor, &out->c.i[k]);
    }
    return over;
}

static int_op int_op_of(expr_op what) {
    static const int_op ops[] = {
        [OP_ADD] = add_i, [OP_SUB] = sub_i, [OP_MUL] = mul_i, [OP_DIV] = div_i, [OP_MOD] = mod_i};
    return ops[what];
}

static int overflow_error(const eval_env *v, const expr *x, int64_t a, int64_t b) {
    static const char *const names[] = {
        [OP_ADD] = "+", [OP_SUB] = "-", [OP_MUL] = "*", [OP_DIV] = "/"};
    return eval_error(v, x, ERR_ARITHMETIC, "%lld %s %lld is out of range for INTEGER",
                      (long long)a, names[x->op], (long long)b);
}

static int int_arithmetic(const eval_env *v, const expr *x, const operand *a, const operand *b,
                          int n, operand *out) {
    bool over = false;
    operand_new(v, TYPE_INTEGER, n, out);
    merge_nulls(v, a, b, n, out);
    switch (x->op) {
    case OP_ADD:
        over = int_loop(add_i, a, b, n, out->c.i);
        break;
    case OP_SUB:
        over = int_loop(sub_i, a, b, n, out->c.i);
        break;
    case OP_MUL:
        over = int_loop(mul_i, a, b, n, out->c.i);
        break;
    case OP_DIV:
        over = divide_loop(v, div_i, a, b, n, out);
        break;
    default:
        over = divide_loop(v, mod_i, a, b, n, out);
    }
    for (int k = 0; over && k < n; k++) {
        int64_t left = a->c.i[k * a->step], right = b->c.i[k * b->step], ignored;
        if (!column_is_null(&out->c, k) && int_op_of(x->op)(left, right, &ignored))
            return overflow_error(v, x, left, right);
    }
    return 0;
}

static int real_arithmetic(const eval_env *v, const expr *x, const operand *a, const operand *b,
                           int n, operand *out) {
    const double *pa = a->c.r, *pb = b->c.r;
    int sa = a->step, sb = b->step;
    operand_new(v, TYPE_REAL, n, out);
    merge_nulls(v, a, b, n, out);
    double *r = out->c.r;
    switch (x->op) {
    case OP_ADD:
        for (int k = 0; k < n; k++)
            r[k] = pa[k * sa] + pb[k * sb];
        break;
    case OP_SUB:
        for (int k = 0; k < n; k++)
            r[k] = pa[k * sa] - pb[k * sb];
        break;
    case OP_MUL:
        for (int k = 0; k < n; k++)
            r[k] = pa[k * sa] * pb[k * sb];
        break;
    default:
        for (int k = 0; k < n; k++) {
            r[k] = 0;
            if (pb[k * sb] == 0)
                operand_set_null(v, out, n, k);
            else
                r[k] = x->op == OP_DIV ? pa[k * sa] / pb[k * sb] : fmod(pa[k * sa], pb[k * sb]);
        }
    }
    for (int k = 0; k < n; k++)
        if (!isfinite(r[k]) && !column_is_null(&out->c, k))
            return eval_error(v, x, ERR_ARITHMETIC, "the result is out of range for REAL");
    return 0;
}

static int negate(const eval_env *v, const expr *x, const operand *a, int n, operand *out) {
    operand_new(v, a->c.type == TYPE_REAL ? TYPE_REAL : TYPE_INTEGER, n, out);
    merge_nulls(v, a, NULL, n, out);
    for (int k = 0; k < n; k++) {
        if (a->c.type == TYPE_REAL)
            out->c.r[k] = -a->c.r[k * a->step];
        else if (__builtin_sub_overflow(0, a->c.i[k * a->step], &out->c.i[k]) &&
                 !column_is_null(&out->c, k))
            return eval_error(v, x, ERR_ARITHMETIC, "-(%lld) is out of range for INTEGER",
                              (long long)a->c.i[k * a->step]);
    }
    return 0;
}

/* Converts an INTEGER or BOOLEAN operand to REAL, because the other operand is REAL. */
static void to_real(const eval_env *v, operand *a, int n) {
    if (a->c.type == TYPE_REAL)
        return;
    operand r;
    int cells = a->step ? n : 1;
    operand_new(v, TYPE_REAL, cells, &r);
    for (int k = 0; k < cells; k++)
        r.c.r[k] = (double)a->c.i[k];
    r.c.null = a->c.null;
    r.step = a->step;
    *a = r;
}

static int arithmetic(const eval_env *v, const expr *x, operand *args, int n, operand *out) {
    operand *a = &args[0], *b = &args[x->nargs - 1];
    if (any_null_type(a, b)) {
        operand_null(v, x->type, out);
        return 0;
    }
    if (!type_is_number(a->c.type) || !type_is_number(b->c.type))
        return eval_error(v, x, ERR_INTERNAL, "arithmetic on %s and %s", type_name(a->c.type),
                          type_name(b->c.type));
    if (x->op == OP_NEG)
        return negate(v, x, a, n, out);
    if (a->c.type != TYPE_REAL && b->c.type != TYPE_REAL)
        return int_arithmetic(v, x, a, b, n, out);
    to_real(v, a, n);
    to_real(v, b, n);
    return real_arithmetic(v, x, a, b, n, out);
}

/* ---- comparison ------------------------------------------------------------------------------ */

#define COMPARE_SWITCH(A, B)                                                                       \
    switch (how) {                                                                                 \
    case OP_EQ:                                                                                    \
        for (int k = 0; k < n; k++)                                                                \
            out[k] = (A) == (B);                                                                   \
        break;                                                                                     \
    case OP_NE:                                                                                    \
        for (int k = 0; k < n; k++)                                                                \
            out[k] = (A) != (B);                                                                   \
        break;                                                                                     \
    case OP_LT:                                                                                    \
        for (int k = 0; k < n; k++)                                                                \
            out[k] = (A) < (B);                                                                    \
        break;                                                                                     \
    case OP_LE:                                                                                    \
        for (int k = 0; k < n; k++)                                                                \
            out[k] = (A) <= (B);                                                                   \
        break;                                                                                     \
    case OP_GT:                                                                                    \
        for (int k = 0; k < n; k++)                                                                \
            out[k] = (A) > (B);                                                                    \
        break;                                                                                     \
    default:                                                                                       \
        for (int k = 0; k < n; k++)                                                                \
            out[k] = (A) >= (B);                                                                   \
    }

static inline __attribute__((always_inline)) void
compare_ints(expr_op how, const int64_t *a, int sa, const int64_t *b, int sb, int n, int64_t *out) {
    COMPARE_SWITCH(a[k * sa], b[k * sb])
}

static inline __attribute__((always_inline)) void
compare_reals(expr_op how, const double *a, int sa, const double *b, int sb, int n, int64_t *out) {
    COMPARE_SWITCH(a[k * sa], b[k * sb])
}

static void compare_texts(expr_op how, const operand *a, const operand *b, int n, int64_t *out) {
    if (how == OP_EQ || how == OP_NE) {
        for (int k = 0; k < n; k++)
            out[k] = str_equal(a->c.s[k * a->step], b->c.s[k * b->step]) == (how == OP_EQ);
        return;
    }
    for (int k = 0; k < n; k++)
        out[k] = bytes_compare(a->c.type, a->c.s[k * a->step], b->c.s[k * b->step]);
    COMPARE_SWITCH(out[k], 0)
}

static void compare_mixed(expr_op how, const operand *a, const operand *b, int n, int64_t *out) {
    for (int k = 0; k < n; k++)
        out[k] = value_compare(operand_get(a, k), operand_get(b, k));
    COMPARE_SWITCH(out[k], 0)
}

/* Compares cells; the caller handles NULLs. */
static void compare_data(expr_op how, const operand *a, const operand *b, int n, int64_t *out) {
    value_type ta = a->c.type, tb = b->c.type;
    bool ints =
        (ta == TYPE_INTEGER || ta == TYPE_BOOLEAN) && (tb == TYPE_INTEGER || tb == TYPE_BOOLEAN);
    if (ints && a->step && !b->step)
        compare_ints(how, a->c.i, 1, b->c.i, 0, n, out);
    else if (ints && a->step && b->step)
        compare_ints(how, a->c.i, 1, b->c.i, 1, n, out);
    else if (ints)
        compare_ints(how, a->c.i, a->step, b->c.i, b->step, n, out);
    else if (ta == TYPE_REAL && tb == TYPE_REAL && a->step && !b->step)
        compare_reals(how, a->c.r, 1, b->c.r, 0, n, out);
    else if (ta == TYPE_REAL && tb == TYPE_REAL)
        compare_reals(how, a->c.r, a->step, b->c.r, b->step, n, out);
    else if (ta == tb)
        compare_texts(how, a, b, n, out);
    else
        compare_mixed(how, a, b, n, out);
}

void eval_compare(const eval_env *v, expr_op how, const operand *a, const operand *b, int n,
                  operand *out) {
    if (any_null_type(a, b)) {
        operand_null(v, TYPE_BOOLEAN, out);
        return;
    }
    operand_new(v, TYPE_BOOLEAN, n, out);
    merge_nulls(v, a, b, n, out);
    compare_data(how, a, b, n, out->c.i);
}

/* IS and IS NOT: NULL IS NULL is true, and the result is never NULL. */
static void eval_is(const eval_env *v, bool negated, const operand *a, const operand *b, int n,
                    operand *out) {
    bool a_typed = a->c.type != TYPE_NULL, b_typed = b->c.type != TYPE_NULL;
    operand_new(v, TYPE_BOOLEAN, n, out);
    if (a_typed && b_typed && !operand_is_null(a) && !operand_is_null(b))
        compare_data(OP_EQ, a, b, n, out->c.i);
    else
        memset(out->c.i, 0, sizeof *out->c.i * (size_t)n);
    for (int k = 0; k < n; k++) {
        bool a_null = !a_typed || operand_null_at(a, k), b_null = !b_typed || operand_null_at(b, k);
        if (a_null || b_null)
            out->c.i[k] = a_null && b_null;
        out->c.i[k] ^= negated;
    }
}

/* ---- NOT, || --------------------------------------------------------------------------------- */

static void eval_not(const eval_env *v, const operand *a, int n, operand *out) {
    if (a->c.type == TYPE_NULL) {
        operand_null(v, TYPE_BOOLEAN, out);
        return;
    }
    operand_new(v, TYPE_BOOLEAN, n, out);
    merge_nulls(v, a, NULL, n, out);
    for (int k = 0; k < n; k++)
        out->c.i[k] = a->c.i[k * a->step] == 0;
}

static void eval_concat(const eval_env *v, const expr *x, const operand *a, const operand *b, int n,
                        operand *out) {
    if (any_null_type(a, b)) {
        operand_null(v, x->type, out);
        return;
    }
    operand_new(v, x->type, n, out);
    merge_nulls(v, a, b, n, out);
    size_t bytes = 0;
    for (int k = 0; k < n; k++)
        if (!column_is_null(&out->c, k))
            bytes += a->c.s[k * a->step].n + b->c.s[k * b->step].n;
    char *p = arena_alloc(v->mem, bytes);
    for (int k = 0; k < n; k++) {
        str left = a->c.s[k * a->step], right = b->c.s[k * b->step];
        if (column_is_null(&out->c, k)) {
            out->c.s[k] = (str){"", 0};
            continue;
        }
        out->c.s[k] = (str){p, left.n + right.n};
        if (left.n)
            memcpy(p, left.p, left.n);
        if (right.n)
            memcpy(p + left.n, right.p, right.n);
        p += left.n + right.n;
    }
}

int eval_op(const eval_env *v, const expr *x, operand *out) {
    if (x->op >= OP_LIKE)
        return eval_match(v, x, out);
    operand *args;
    int n, status = eval_args(v, x, &args, &n);
    if (status)
        return status;
    const operand *a = &args[0], *b = &args[x->nargs - 1];
    switch (x->op) {
    case OP_CONCAT:
        eval_concat(v, x, a, b, n, out);
        break;
    case OP_EQ:
    case OP_NE:
    case OP_LT:
    case OP_LE:
    case OP_GT:
    case OP_GE:
        eval_compare(v, x->op, a, b, n, out);
        break;
    case OP_IS:
    case OP_IS_NOT:
        eval_is(v, x->op == OP_IS_NOT, a, b, n, out);
        break;
    case OP_NOT:
        eval_not(v, a, n, out);
        break;
    default:
        status = arithmetic(v, x, args, n, out);
    }
    if (operands_constant(args, x->nargs))
        out->step = 0;
    return status;
}
