/*
 * eval_vector.c - functions on vectors; `<->`, `<=>` and `<#>` are calls of these.
 *
 * Invariant: a distance is that of vector_distance, the same bits on every machine.
 */
#include <math.h>
#include <string.h>

#include "eval_parts_int.h"

/* Computes a distance of the call's two arguments; `sign` multiplies it. */
static int distance(const call_env *c, vector_metric m, const value *args, double sign,
                    value *out) {
    str x = args[0].s, y = args[1].s;
    if (x.n != y.n)
        return err_set_at(c->v->e, ERR_TYPE, c->x->pos, c->x->len,
                          "the vectors have %d and %d dimensions", vector_dims(x), vector_dims(y));
    double d = vector_distance(m, x, y, m == VECTOR_COSINE ? vector_norm(y) : 0);
    *out = value_real(sign * d + 0.0); /* an inner product of 0 is not negated to -0 */
    if (!isnan(d))
        return 0;
    err_set_at(c->v->e, ERR_ARITHMETIC, c->x->pos, c->x->len,
               "a vector of zeros has no direction, so no cosine distance");
    err_hint(c->v->e, "leave such rows out: WHERE vector_norm(…) > 0");
    return ERR_ARITHMETIC;
}

static int fn_l2_distance(const call_env *c, const value *args, value *out) {
    return distance(c, VECTOR_L2, args, 1, out);
}

static int fn_cosine_distance(const call_env *c, const value *args, value *out) {
    return distance(c, VECTOR_COSINE, args, 1, out);
}

static int fn_inner_product(const call_env *c, const value *args, value *out) {
    return distance(c, VECTOR_INNER, args, 1, out);
}

static int fn_negative_inner_product(const call_env *c, const value *args, value *out) {
    return distance(c, VECTOR_INNER, args, -1, out);
}

static int fn_vector_dims(const call_env *c, const value *args, value *out) {
    (void)c;
    *out = value_int(vector_dims(args[0].s));
    return 0;
}

static int fn_vector_norm(const call_env *c, const value *args, value *out) {
    (void)c;
    *out = value_real(vector_norm(args[0].s));
    return 0;
}

static int fn_l2_normalize(const call_env *c, const value *args, value *out) {
    int n = vector_dims(args[0].s);
    float *unit = arena_alloc(c->mem, args[0].s.n);
    double norm = vector_norm(args[0].s);
    memcpy(unit, args[0].s.p, args[0].s.n);
    for (int i = 0; i < n && norm > 0; i++)
        unit[i] = (float)(unit[i] / norm);
    *out = (value){.type = TYPE_VECTOR, .s = {"", 0}};
    return vector_make(c->mem, unit, n, &out->s, c->v->e);
}

const function_row_entry vector_functions[] = {
    {FUNC_L2_DISTANCE, false, fn_l2_distance},
    {FUNC_COSINE_DISTANCE, false, fn_cosine_distance},
    {FUNC_INNER_PRODUCT, false, fn_inner_product},
    {FUNC_NEGATIVE_INNER_PRODUCT, false, fn_negative_inner_product},
    {FUNC_VECTOR_DIMS, false, fn_vector_dims},
    {FUNC_VECTOR_NORM, false, fn_vector_norm},
    {FUNC_L2_NORMALIZE, false, fn_l2_normalize},
};
const size_t vector_function_count = BASE_COUNT(vector_functions);
