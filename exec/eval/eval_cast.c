/*
 * eval_cast.c - evaluates CAST and IN.
 *
 * Invariant: casts have the results and errors of value_cast (value_assign if expr.exact); for some
 * types, loops here compute the same faster. IN is NULL if no list value matches and the left
 * operand or a list value is NULL.
 */
#include <stdlib.h>
#include <string.h>

#include "eval_parts_int.h"

/* ---- CAST ------------------------------------------------------------------------------------ */

static int cast_cells(const eval_env *v, const expr *x, const operand *a, int n, operand *out) {
    operand_new(v, x->type, n, out);
    for (int k = 0; k < n; k++) {
        value from = operand_get(a, k), to;
        if (from.type == TYPE_NULL) {
            operand_set_null(v, out, n, k);
            continue;
        }
        int status = x->exact ? value_assign(v->mem, from, x->type, &to, v->e)
                              : value_cast(v->mem, from, x->type, &to, v->e);
        if (status == 0 && to.type == TYPE_VECTOR)
            status = vector_check(to.s, x->dims, v->e);
        if (status) {
            v->e->pos = x->pos;
            v->e->len = x->len;
            return status;
        }
        operand_set(out, k, to);
    }
    return 0;
}

int eval_cast(const eval_env *v, const expr *x, operand *out) {
    operand a;
    int status = eval_any(v, x->args[0], &a);
    if (status)
        return status;
    if (a.c.type == TYPE_NULL || operand_is_null(&a)) {
        operand_null(v, x->type, out);
        return 0;
    }
    if (a.c.type == x->type && x->dims == 0) {
        *out = a;
        return 0;
    }
    int n = a.step ? v->in->rows : 1;
    if (x->type == TYPE_REAL && (a.c.type == TYPE_INTEGER || a.c.type == TYPE_BOOLEAN)) {
        operand_new(v, TYPE_REAL, n, out);
        out->c.null = a.c.null;
        for (int k = 0; k < n; k++)
            out->c.r[k] = (double)a.c.i[k];
    } else if (x->type == TYPE_INTEGER && a.c.type == TYPE_BOOLEAN) {
        *out = a;
        out->c.type = TYPE_INTEGER;
    } else {
        status = cast_cells(v, x, &a, n, out);
    }
    out->step = a.step;
    return status;
}

/* ---- IN -------------------------------------------------------------------------------------- */

enum { SORT_FROM = 12 }; /* with fewer constants, comparing with each is faster */

static int by_int(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int by_text(const void *a, const void *b) {
    return str_compare(*(const str *)a, *(const str *)b);
}

/* Evaluates IN by sorting the list and a binary search per row. Returns false if the left operand
 * is neither INTEGER nor TEXT, or the list is not SORT_FROM or more constants, each NULL or of the
 * left operand's type. Sets *any_null to true if the list has a NULL. */
static bool in_sorted(const eval_env *v, const operand *args, int nargs, int n, bool *any_null,
                      int64_t *out) {
    value_type t = args[0].c.type;
    bool text = t == TYPE_TEXT;
    if (nargs - 1 < SORT_FROM || (t != TYPE_INTEGER && !text))
        return false;
    size_t cell = text ? sizeof(str) : sizeof(int64_t), count = 0;
    char *list = arena_alloc(v->mem, cell * (size_t)nargs);
    for (int k = 1; k < nargs; k++) {
        if (args[k].step || (args[k].c.type != t && !operand_is_null(&args[k])))
            return false;
        if (operand_is_null(&args[k]))
            *any_null = true;
        else
            memcpy(list + cell * count++, args[k].c.i, cell);
    }
    qsort(list, count, cell, text ? by_text : by_int);
    for (int k = 0; k < n; k++) {
        const void *needle = text ? (const void *)&args[0].c.s[k * args[0].step]
                                  : (const void *)&args[0].c.i[k * args[0].step];
        out[k] = bsearch(needle, list, count, cell, text ? by_text : by_int) != NULL;
    }
    return true;
}

int eval_in(const eval_env *v, const expr *x, operand *out) {
    operand *args;
    int n, status = eval_args(v, x, &args, &n);
    if (status)
        return status;
    if (args[0].c.type == TYPE_NULL) {
        operand_null(v, TYPE_BOOLEAN, out);
        return 0;
    }
    operand_new(v, TYPE_BOOLEAN, n, out);
    bool any_null = false;
    uint8_t *unknown = arena_zalloc(v->mem, (size_t)n);
    if (!in_sorted(v, args, x->nargs, n, &any_null, out->c.i)) {
        memset(out->c.i, 0, sizeof *out->c.i * (size_t)n);
        for (int a = 1; a < x->nargs; a++) {
            operand same;
            eval_compare(v, OP_EQ, &args[0], &args[a], n, &same);
            for (int k = 0; k < n; k++)
                if (operand_null_at(&same, k))
                    unknown[k] = 1;
                else
                    out->c.i[k] |= same.c.i[k * same.step];
        }
    }
    for (int k = 0; k < n; k++)
        if (operand_null_at(&args[0], k) || (out->c.i[k] == 0 && (any_null || unknown[k])))
            operand_set_null(v, out, n, k);
    out->step = operands_constant(args, x->nargs) ? 0 : 1;
    return 0;
}
