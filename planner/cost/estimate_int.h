/*
 * estimate_int.h - the estimator's state, and the functions that the files of cost/ share.
 */
#ifndef KVASIR_ESTIMATE_INT_H
#define KVASIR_ESTIMATE_INT_H

#include "cost_int.h"
#include "storage/containers.h"

typedef struct known_estimate {
    const rel *node;
    rel_estimate *value;
} known_estimate;

/* One field of a call over its input. */
typedef struct field_estimate {
    double tokens, distinct, score;
    joint_column joint;
} field_estimate;

/* Combinations in the joint sample of one source, by subset of one call's fields. */
typedef struct joint_counts joint_counts;
struct joint_counts {
    joint_counts *next;
    const llm_call *call;
    const joint_cell *first;
    int fields;
    const double *counts;
};

/* Measured bytes per token of a column. */
typedef struct token_bytes token_bytes;
struct token_bytes {
    token_bytes *next;
    const column_stats *stats;
    double bytes;
};

struct estimator {
    arena *mem;
    const plan_env *env;
    known_estimate *known;
    uint32_t nknown, known_cap;
    hash_index by_node; /* known */
    joint_counts *counted;
    token_bytes *measured;
};

/* Average bytes of an expression of type TEXT (estimate_text.c). */
double estimate_text_bytes(estimator *s, const expr *x, const rel *r);

/* A call's instruction with its line break, in tokens. */
double estimate_instruction_tokens(const estimator *s, const llm_call *call);
/* The prefix tree of the call's fields over all rows of
 * `input`, in tokens, and how many distinct inputs these make. */
void estimate_data(estimator *s, const llm_use *use, const rel *input, double *tokens,
                   double *inputs);

/* For each subset (a bit a field) of a call's fields: how many different combinations of their
 * values `rows` rows have. NULL: a field is no column of a table with statistics. */
double *joint_distinct(estimator *s, const llm_call *call, const field_estimate *f, double rows);
/* The field order under which the prefix tree has the fewest tokens. */
void joint_order(estimator *s, const field_estimate *f, const double *distinct, int n,
                 uint8_t *order);

#endif
