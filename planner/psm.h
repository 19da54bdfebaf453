/*
 * psm.h - prefix sharing maximization: chooses the order of rows, and of the fields within each
 * row, that lets prompts share the longest prefixes (PSM, 2024; GGR, MLSys'25).
 *
 * The prompt of a row consists of its fields in some order; each field is a name and a value. A
 * model keeps the KV state of a prefix, so a prefix shared with an earlier row is not computed
 * again. Example with two rows:
 *
 *   review, title   "review: good | title: Brazil"  "review: bad | title: Brazil"  shared: nothing
 *   title, review   "title: Brazil | review: good"  "title: Brazil | review: bad"  shared: title
 *
 * Idea: rows that agree on a set of fields form a group, whatever the order of these fields. So the
 * m! orders of m fields collapse to 2^m sets of fields, and dynamic programming over this lattice
 * of sets finds, for each group, the field to send next; each row then follows the choices of its
 * groups. Fields tied by functional dependencies move together, which prunes the lattice. If the
 * lattice exceeds a budget, it is cut, and the groups below the cut are solved as separate
 * problems. Sorting the rows by their finished prompts gives the row order and the exact number of
 * shared units.
 *
 * A pure function: the result depends only on the input and the options. It runs in one thread.
 *
 * A unit is a token, or without a tokenizer a character. A cell is one field of one row: it is sent
 * as the `name_units` units of the field's name and the units of the row's value. Ownership:
 * psm_input is only read; everything in psm_result is allocated in the caller's arena.
 */
#ifndef KVASIR_PSM_H
#define KVASIR_PSM_H

#include "storage/base.h"

typedef enum psm_strategy {
    PSM_OFF,     /* input order of rows and fields */
    PSM_FIXED,   /* one field order for all rows; rows sorted */
    PSM_GROUPED, /* a field order per group of rows; rows sorted */
    PSM_AUTO,    /* grouped if it computes 10 % less than the best single order, else that order */
    PSM_STRATEGIES
} psm_strategy;

const char *psm_strategy_name(psm_strategy s); /* "off", "fixed", "grouped", "auto" */

enum { PSM_MAX_FIELDS = 64, PSM_MAX_GROUPS = 16 };

#define PSM_ABSENT UINT32_MAX /* value id: this row's prompt omits the field (NULL) */

/* One field of the prompt over all rows. Its values have ids 0 .. distinct-1 in bytewise order of
 * their text. */
typedef struct psm_field {
    str name;
    uint32_t name_units; /* units of "name:"; names of different fields share no prefix */
    uint32_t distinct;
    const uint32_t *value;       /* [rows] value id, or PSM_ABSENT */
    const uint32_t *length;      /* [distinct] number of units of the value and its separator */
    const int32_t *const *units; /* [distinct][length]; NULL: only equal values share units */
} psm_field;

typedef struct psm_input {
    uint32_t rows;
    int nfields; /* at most PSM_MAX_FIELDS */
    const psm_field *fields;
} psm_input;

typedef struct psm_options {
    psm_strategy strategy;
    const uint8_t *given_order; /* [nfields] the order for all rows; NULL: the strategy decides */
    bool one_order;             /* all rows must have the same order; the solver finds the best */
    uint64_t work_limit;        /* row visits of the first lattice; 0: at most 200 for each row */
    bool bound;                 /* also compute psm_result.bound */
    const atomic_bool *cancel;  /* NULL: not cancellable */
} psm_options;

/* The rows of one field order. */
typedef struct psm_group {
    const uint8_t *order; /* [fields] the fields sent, first to last */
    int fields;           /* number of fields sent: nfields minus the absent fields */
    uint32_t rows;
} psm_group;

typedef struct psm_result {
    psm_strategy used;     /* PSM_OFF, PSM_FIXED or PSM_GROUPED */
    uint8_t *field_order;  /* [rows * nfields] each input row's fields as sent, absent ones last */
    uint32_t *row_order;   /* [rows] input rows in the order to send them */
    uint64_t total_units;  /* units of all rows */
    uint64_t shared_units; /* units in prefixes shared with an earlier row of row_order */
    /* upper bound of the fraction of units that equal cells can share; NAN unless
     * psm_options.bound */
    double bound;
    psm_group groups[PSM_MAX_GROUPS]; /* the groups with the most rows, in descending order */
    int ngroups;
    uint32_t orders; /* number of different field orders */
    double solve_ms; /* CPU time, for display */
} psm_result;

/* Solves a problem. Fails with ERR_LIMIT (too many fields), ERR_FULL (out of memory),
 * ERR_CANCELLED, or ERR_INTERNAL (a value id is out of range, or given_order is no permutation). */
int psm_solve(const psm_input *in, const psm_options *options, arena *out, psm_result *result,
              err *e);

typedef struct psm_score {
    uint64_t total_units;    /* units of all rows */
    uint64_t shared_units;   /* units in prefixes shared with any earlier row */
    uint64_t cell_units;     /* shared_units if a cell is shared only whole and within its field */
    uint64_t adjacent_units; /* units in prefixes shared with the row sent just before */
} psm_score;

/* Counts the units shared under given orders, which are not checked. field_order has the form of
 * psm_result.field_order. If row_order is NULL, rows are sent in input order. Fails with ERR_LIMIT,
 * ERR_FULL or ERR_INTERNAL as psm_solve. */
int psm_evaluate(const psm_input *in, const uint8_t *field_order, const uint32_t *row_order,
                 psm_score *score, err *e);

#endif
