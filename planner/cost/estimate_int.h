/*
 * estimate_int.h - the estimator's state, and the functions that the files of cost/ share.
 */
#ifndef KVASIR_ESTIMATE_INT_H
#define KVASIR_ESTIMATE_INT_H

#include "cost_int.h"
#include "storage/containers.h"

/* A cache entry of estimate_rel. */
typedef struct known_estimate {
    const rel *node;
    rel_estimate *value;
} known_estimate;

/* One field of a call over its input. */
typedef struct field_estimate {
    double tokens;      /* average tokens of the field in a prompt: name, value, separators */
    double distinct;    /* number of distinct values */
    double score;       /* tokens * rows / distinct; the highest score is sent first */
    joint_column joint; /* column_estimate.joint of the value */
} field_estimate;

/* A cache entry of joint.c: counts[subset] is the number of combinations that a subset of one
 * call's fields has in the joint sample of their source. */
typedef struct joint_counts joint_counts;
struct joint_counts {
    joint_counts *next;
    const llm_call *call;
    const joint_cell *first; /* cells of the first of these fields */
    int fields;              /* number of these fields */
    const double *counts;    /* [2^fields] */
};

/* A cache entry of cost.c: the measured bytes per token of a column. */
typedef struct token_bytes token_bytes;
struct token_bytes {
    token_bytes *next;
    const column_stats *stats; /* the column's statistics */
    double bytes;              /* bytes per token */
};

struct estimator {
    arena *mem;
    const plan_env *env;
    known_estimate *known; /* [nknown] */
    uint32_t nknown;
    uint32_t known_cap;    /* allocated entries of `known` */
    hash_index by_node;    /* finds the entries of `known` by node */
    joint_counts *counted; /* cache of joint.c, the newest entry first */
    token_bytes *measured; /* cache of cost.c, the newest entry first */
};

/* Estimates the average bytes of an expression of type TEXT (estimate_text.c). */
double estimate_text_bytes(estimator *s, const expr *x, const rel *r);

/* Sets the estimate of the column of a call's answers over `input`, of which the default estimate is
 * given in *c: an answer is a function of its input, so it has no more values than the call has
 * inputs or allowed answers. */
void estimate_answer(estimator *s, const llm_site *site, const rel *input, column_estimate *c);

/* Returns the tokens of a call's instruction with its line break. */
double estimate_instruction_tokens(const estimator *s, const llm_call *call);
/* Estimates for all rows of `input` the tokens in the prefix tree of the call's fields, and the
 * number of distinct inputs. */
void estimate_data(estimator *s, const llm_site *site, const rel *input, double *tokens,
                   double *inputs);

/* Estimates for each subset of a call's fields (bit i: field i) how many distinct combinations of
 * the fields' values `rows` rows have. Returns NULL if a field has no joint sample, or if the call
 * has no fields or too many. */
double *joint_distinct(estimator *s, const llm_call *call, const field_estimate *f, double rows);
/* Finds the order of n fields whose prefix tree has the fewest tokens. distinct: the result of
 * joint_distinct. */
void joint_order(estimator *s, const field_estimate *f, const double *distinct, int n,
                 uint8_t *order);

#endif
