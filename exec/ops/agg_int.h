/*
 * agg_int.h - aggregates: one `agg` per aggregate function of a GROUP BY, with one cell per group.
 */
#ifndef KVASIR_AGG_INT_H
#define KVASIR_AGG_INT_H

#include "rows/hash_table_int.h"

#include <math.h>

typedef struct agg agg;

/* The state of an aggregate over one group; the member of the union depends on the kind. */
typedef struct agg_cell {
    int64_t count; /* number of values added; FIRST: -1 if the first value is NULL */
    union {
        __int128 sum; /* SUM, AVG of INTEGER */
        struct {
            double sum, carry;
        } real; /* SUM, AVG of REAL */
        struct {
            double mean;
            double squares; /* the sum of squared differences from the mean */
        } spread;           /* STDDEV */
        int64_t i;          /* MIN, MAX, FIRST; in window_agg.c the position of the MIN or MAX */
        double r;           /* MIN, MAX, FIRST of REAL */
        struct {
            /* GROUP_CONCAT: the text so far; MIN, MAX, FIRST of TEXT or BLOB: the value; MEDIAN:
             * all values, as doubles */
            char *p;
            size_t n, cap; /* in bytes */
        } text;
    };
} agg_cell;

/* Neumaier summation: `carry` is the sum of the rounding errors. */
static inline void agg_cell_add_real(agg_cell *cell, double x) {
    double sum = cell->real.sum + x;
    if (fabs(cell->real.sum) >= fabs(x))
        cell->real.carry += (cell->real.sum - sum) + x;
    else
        cell->real.carry += (x - sum) + cell->real.sum;
    cell->real.sum = sum;
}

/* Welford's algorithm for the variance, which subtracts no large squares. Also counts the value. */
static inline void agg_cell_add_spread(agg_cell *cell, double x) {
    double from = x - cell->spread.mean;
    cell->spread.mean += from / (double)++cell->count;
    cell->spread.squares += from * (x - cell->spread.mean);
}

/* Returns the median of the n > 0 sorted values x. */
static inline value agg_median(const double *x, int64_t n) {
    return value_real(n % 2 ? x[n / 2] : x[n / 2 - 1] / 2 + x[n / 2] / 2);
}

/* Sets *out to the result of COUNT, SUM, AVG or STDDEV; for other kinds, to NULL. SUM and AVG of no
 * value and STDDEV of fewer than two values are NULL. */
int agg_cell_number(agg_kind kind, value_type arg_type, const agg_cell *c, value *out, err *e);

/* `memory` is of what grows with the rows, `mem` of the rest. */
agg *agg_new(const exec_ctx *ctx, mem_budget *memory, const plan_agg *plan, arena *mem);
void agg_free(agg *a); /* NULL is fine */
/* Adds the rows of `in`; groups[k] < ngroups is row k's group. `pass` provides scratch memory. */
int agg_add(agg *a, const batch *in, const uint32_t *groups, uint32_t ngroups, arena *pass, err *e);
/* Sets *out, allocated in `pass`, to the results of groups first … first + count - 1. Texts are not
 * copied and live as long as `a`. */
int agg_result(agg *a, uint32_t first, int count, arena *pass, column *out, err *e);

#endif
