/*
 * agg_int.h - aggregates: one `agg` per aggregate of a GROUP BY, with one cell a group.
 */
#ifndef KVASIR_AGG_INT_H
#define KVASIR_AGG_INT_H

#include "hash_table_int.h"

typedef struct agg agg;

agg *agg_new(const exec_ctx *ctx, const plan_agg *plan, arena *mem);
void agg_free(agg *a); /* NULL is fine */
/* Adds the rows of `in`; groups[k] is row k's group; groups
 * are below `ngroups`. Scratch memory comes from `pass`. */
int agg_add(agg *a, const batch *in, const uint32_t *groups, uint32_t ngroups, arena *pass, err *e);
/* Results of groups first … first + count - 1, in `pass`; texts live as long as the aggregate. */
int agg_result(agg *a, uint32_t first, int count, arena *pass, column *out, err *e);

#endif
