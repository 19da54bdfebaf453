/*
 * estimate_text.c - estimates the average length in bytes of a TEXT expression from the lengths of
 * its arguments. The cost of prompts with such expressions depends on it.
 */
#include "estimate_int.h"

static const double GUESSED_TIMES = 10; /* repetitions by repeat() if its count is no literal */

static double literal_or(const expr *x, double otherwise) {
    return x->kind == EXPR_LITERAL && x->literal.type == TYPE_INTEGER
               ? BASE_MAX(0, (double)x->literal.i)
               : otherwise;
}

/* Estimates the bytes of argument i. */
static double part(estimator *s, const expr *x, int i, const rel *r) {
    return estimate_expr(s, x->args[i], r).bytes;
}

static double sum_of(estimator *s, const expr *x, const rel *r) {
    double sum = 0;
    for (int i = 0; i < x->nargs; i++)
        sum += part(s, x, i, r);
    return sum;
}

/* Returns the length of the longest of the arguments with numbers from, from + step, … */
static double longest_of(estimator *s, const expr *x, int from, int step, const rel *r) {
    double longest = 0;
    for (int i = from; i < x->nargs; i += step)
        longest = BASE_MAX(longest, part(s, x, i, r));
    return longest;
}

static double case_bytes(estimator *s, const expr *x, const rel *r) {
    return BASE_MAX(longest_of(s, x, 1, 2, r), part(s, x, x->nargs - 1, r));
}

static double function_bytes(estimator *s, const expr *x, const rel *r) {
    double first = x->nargs > 0 ? part(s, x, 0, r) : 0;
    switch (x->function) {
    case FUNC_CONCAT:
        return sum_of(s, x, r);
    case FUNC_REPEAT:
        return first * literal_or(x->args[1], GUESSED_TIMES);
    case FUNC_SUBSTR:
        return x->nargs > 2 ? BASE_MIN(first, literal_or(x->args[2], first)) : first;
    case FUNC_COALESCE:
    case FUNC_IFNULL:
    case FUNC_GREATEST:
    case FUNC_LEAST:
        return longest_of(s, x, 0, 1, r);
    case FUNC_IIF:
        return longest_of(s, x, 1, 1, r);
    default: /* upper(), trim(), replace() … change the length little */
        return first;
    }
}

double estimate_text_bytes(estimator *s, const expr *x, const rel *r) {
    switch (x->kind) {
    case EXPR_LITERAL:
        return (double)x->literal.s.n;
    case EXPR_FUNC:
        return function_bytes(s, x, r);
    case EXPR_CASE:
        return case_bytes(s, x, r);
    case EXPR_LET:
        return estimate_text_bytes(s, x->args[1], r);
    default:
        return sum_of(s, x, r);
    }
}
