/*
 * estimate_int.h - what estimate.c (rows, values, selectivity) and cost.c (tokens, milliseconds) share.
 */
#ifndef KVASIR_ESTIMATE_INT_H
#define KVASIR_ESTIMATE_INT_H

#include "planner_int.h"

typedef struct remembered {
    const rel *key;
    rel_estimate *value;
} remembered;

/* Estimates by relation node: an open hash table of nslots (a power of two) entries. */
struct estimator {
    arena *mem;
    const plan_env *env;
    remembered *slots;
    uint32_t nslots, count;
};

/* The estimate of an expression's values over the rows of r. */
column_estimate estimate_expr(estimator *s, const expr *x, const rel *r);
/* Average bytes of an expression of type TEXT (estimate_text.c). */
double estimate_text_bytes(estimator *s, const expr *x, const rel *r);

#endif
