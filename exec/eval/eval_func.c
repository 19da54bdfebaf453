/*
 * eval_func.c - scalar functions: evaluation row by row, lookup by function_id, and the functions
 * on numbers. Functions on texts are in eval_text.c, on dates and times in eval_time.c, on
 * vectors in eval_vector.c.
 *
 * Invariant: a function is not called with a NULL argument unless its entry says takes_null. A
 * result outside its type's range is an error; an undefined result (sqrt of -1) is NULL.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "eval_parts_int.h"

static int range_error(const call_env *c, value_type type) {
    return eval_error(c->v, c->x, ERR_ARITHMETIC, "the result is out of range for %s",
                      type_name(type));
}

static double as_real(value v) {
    return v.type == TYPE_REAL ? v.r : (double)v.i;
}

/* Sets *out to r. NaN, an undefined result, becomes NULL; an infinite r is an error. */
static int real_result(const call_env *c, double r, value *out) {
    *out = isnan(r) ? value_null() : value_real(r);
    return isinf(r) ? range_error(c, TYPE_REAL) : 0;
}

static int fn_abs(const call_env *c, const value *args, value *out) {
    if (args[0].type == TYPE_REAL) {
        *out = value_real(fabs(args[0].r));
        return 0;
    }
    if (args[0].i == INT64_MIN)
        return range_error(c, TYPE_INTEGER);
    *out = value_int(args[0].i < 0 ? -args[0].i : args[0].i);
    return 0;
}

static int fn_round(const call_env *c, const value *args, value *out) {
    double x = as_real(args[0]);
    int64_t digits = c->x->nargs > 1 ? args[1].i : 0;
    digits = BASE_MAX(-308, BASE_MIN(digits, 30));
    double scale = pow(10, fabs((double)digits));
    double scaled = digits >= 0 ? x * scale : x / scale;
    if (!isfinite(scaled) || fabs(scaled) >= 4503599627370496.0) {
        *out = value_real(x); /* x has no digits that could be rounded */
        return 0;
    }
    scaled = round(scaled);
    return real_result(c, digits >= 0 ? scaled / scale : scaled * scale, out);
}

static int whole(value v, double (*to)(double), value *out) {
    *out = v.type == TYPE_REAL ? value_real(to(v.r)) : value_int(v.i);
    return 0;
}

static int fn_floor(const call_env *c, const value *args, value *out) {
    (void)c;
    return whole(args[0], floor, out);
}

static int fn_trunc(const call_env *c, const value *args, value *out) {
    (void)c;
    return whole(args[0], trunc, out);
}

static int fn_ceil(const call_env *c, const value *args, value *out) {
    (void)c;
    return whole(args[0], ceil, out);
}

static int fn_sign(const call_env *c, const value *args, value *out) {
    (void)c;
    double x = as_real(args[0]);
    *out = value_int((x > 0) - (x < 0));
    return 0;
}

static int fn_sqrt(const call_env *c, const value *args, value *out) {
    return real_result(c, sqrt(as_real(args[0])), out);
}

static int fn_power(const call_env *c, const value *args, value *out) {
    return real_result(c, pow(as_real(args[0]), as_real(args[1])), out);
}

static int fn_ln(const call_env *c, const value *args, value *out) {
    double x = as_real(args[0]);
    return real_result(c, x > 0 ? log(x) : NAN, out);
}

static int fn_log10(const call_env *c, const value *args, value *out) {
    double x = as_real(args[0]);
    return real_result(c, x > 0 ? log10(x) : NAN, out);
}

static int fn_exp(const call_env *c, const value *args, value *out) {
    return real_result(c, exp(as_real(args[0])), out);
}

static int fn_mod(const call_env *c, const value *args, value *out) {
    if (args[0].type == TYPE_REAL || args[1].type == TYPE_REAL)
        return real_result(c, fmod(as_real(args[0]), as_real(args[1])), out);
    if (args[1].i == 0)
        *out = value_null();
    else
        *out = value_int(args[1].i == -1 ? 0 : args[0].i % args[1].i);
    return 0;
}

static int fn_random(const call_env *c, const value *args, value *out) {
    (void)args;
    int64_t i;
    if (getrandom(&i, sizeof i, 0) != (ssize_t)sizeof i)
        return eval_error(c->v, c->x, ERR_IO,
                          "getrandom() failed: the system has no random numbers");
    *out = value_int(i);
    return 0;
}

static int fn_typeof(const call_env *c, const value *args, value *out) {
    char *name = arena_strndup(c->mem, type_name(args[0].type), strlen(type_name(args[0].type)));
    for (char *p = name; *p; p++)
        *p = ascii_lower(*p);
    *out = value_text(str_from(name));
    return 0;
}

/* Values that are equal, such as 1 and 1.0, have the same hash. */
static int fn_hash(const call_env *c, const value *args, value *out) {
    uint64_t h = 0;
    for (int k = 0; k < c->x->nargs; k++)
        h = hash_mix(h, value_hash(args[k]));
    *out = value_int((int64_t)h);
    return 0;
}

static int extreme(const call_env *c, const value *args, int sign, value *out) {
    *out = value_null();
    for (int k = 0; k < c->x->nargs; k++)
        if (args[k].type != TYPE_NULL &&
            (out->type == TYPE_NULL || value_compare(args[k], *out) * sign > 0))
            *out = args[k];
    return 0;
}

static int fn_greatest(const call_env *c, const value *args, value *out) {
    return extreme(c, args, 1, out);
}

static int fn_least(const call_env *c, const value *args, value *out) {
    return extreme(c, args, -1, out);
}

static int fn_version(const call_env *c, const value *args, value *out) {
    (void)c, (void)args;
    *out = value_text(STR(KVASIR_VERSION));
    return 0;
}

static const function_row_entry number_functions[] = {
    {FUNC_ABS, false, fn_abs},          {FUNC_ROUND, false, fn_round},
    {FUNC_FLOOR, false, fn_floor},      {FUNC_CEIL, false, fn_ceil},
    {FUNC_SIGN, false, fn_sign},        {FUNC_SQRT, false, fn_sqrt},
    {FUNC_POWER, false, fn_power},      {FUNC_LN, false, fn_ln},
    {FUNC_EXP, false, fn_exp},          {FUNC_MOD, false, fn_mod},
    {FUNC_RANDOM, true, fn_random},     {FUNC_TYPEOF, true, fn_typeof},
    {FUNC_GREATEST, true, fn_greatest}, {FUNC_LEAST, true, fn_least},
    {FUNC_VERSION, true, fn_version},   {FUNC_TRUNC, false, fn_trunc},
    {FUNC_LOG10, false, fn_log10},      {FUNC_HASH, true, fn_hash},
};

static const function_row_entry *find_in(const function_row_entry *table, size_t count,
                                         function_id id) {
    for (size_t k = 0; k < count; k++)
        if (table[k].id == id)
            return &table[k];
    return NULL;
}

static const function_row_entry *function_find(function_id id) {
    const function_row_entry *f = find_in(number_functions, BASE_COUNT(number_functions), id);
    if (!f)
        f = find_in(text_functions, text_function_count, id);
    if (!f)
        f = find_in(time_functions, time_function_count, id);
    return f ? f : find_in(vector_functions, vector_function_count, id);
}

/* Stores a function's result. Converts it if its type is not the expression's, as in greatest() of
 * INTEGER and REAL. */
static int store_result(const call_env *c, value got, int n, int row, operand *out) {
    if (got.type == TYPE_NULL) {
        operand_set_null(c->v, out, n, row);
        return 0;
    }
    if (got.type != out->c.type) {
        int status = value_cast(c->mem, got, out->c.type, &got, c->v->e);
        if (status)
            return status;
    }
    operand_set(out, row, got);
    return 0;
}

int eval_function(const eval_env *v, const expr *x, operand *out) {
    const function_row_entry *f = function_find(x->function);
    if (!f)
        return err_set(v->e, ERR_INTERNAL, "function %d is not implemented", (int)x->function);
    operand *args;
    int n, status = eval_args(v, x, &args, &n);
    if (status)
        return status;
    bool constant = n == 1 && v->in->rows != 1 && !expr_is_volatile(x);
    if (n == 1 && !constant)
        n = v->in->rows; /* random() has no arguments, but a new value in each row */
    value few[8], *row = x->nargs <= 8 ? few : arena_alloc(v->mem, sizeof *row * (size_t)x->nargs);
    call_env c = {.mem = v->mem, .v = v, .x = x};
    operand_new(v, x->type, n, out);
    for (int k = 0; k < n; k++) {
        bool null = false;
        value got;
        for (int a = 0; a < x->nargs; a++) {
            row[a] = operand_get(&args[a], k);
            null |= row[a].type == TYPE_NULL;
        }
        if (null && !f->takes_null)
            got = value_null();
        else if ((status = f->row(&c, row, &got)) != 0)
            return status;
        if ((status = store_result(&c, got, n, k, out)) != 0)
            return status;
    }
    out->step = constant ? 0 : 1;
    return 0;
}
