/*
 * psm.h - prefix sharing maximization: in which order the rows of a batch, and the fields within
 * each row, are sent so that as much as possible of each prompt has been computed before (PSM,
 * 2024; GGR, MLSys'25).
 *
 * A pure function of its input: no clock decides anything, nothing is random, one thread. A row is
 * sent as its present fields in its field order, each as `name_units` units of name followed by the
 * units of its value; two rows share the units they begin with alike. What counts as a unit is the
 * caller's: tokens, or characters when no tokenizer is at hand.
 *
 * Ownership: everything in psm_input stays the caller's and is only read; all that psm_result
 * points to lives in the arena handed in.
 */
#ifndef KVASIR_PSM_H
#define KVASIR_PSM_H

#include "storage/base.h"

typedef enum psm_strategy {
    PSM_OFF,     /* rows and fields as they come */
    PSM_FIXED,   /* one field order for all rows, rows in lexicographic order */
    PSM_GROUPED, /* the field order may differ by group of rows */
    PSM_AUTO,    /* grouped where it saves a tenth of what the best one order computes */
    PSM_STRATEGIES
} psm_strategy;

const char *psm_strategy_name(psm_strategy s); /* "off", "fixed", "grouped", "auto" */

enum { PSM_MAX_FIELDS = 64, PSM_MAX_GROUPS = 16 };

#define PSM_ABSENT UINT32_MAX /* the field is left out of this row (NULL) */

/* One field of the prompt over all rows. Value ids are 0 .. distinct-1, ranks in bytewise order of
 * the values' text. Without units only whole cells share. */
typedef struct psm_field {
    str name;
    uint32_t name_units; /* of "name:", before every value; two fields' names share nothing */
    uint32_t distinct;
    const uint32_t *value;       /* [rows] id, or PSM_ABSENT */
    const uint32_t *length;      /* [distinct] units of the value, its separator included */
    const int32_t *const *units; /* [distinct][length] the units themselves, or NULL */
} psm_field;

typedef struct psm_input {
    uint32_t rows;
    int nfields; /* at most PSM_MAX_FIELDS */
    const psm_field *fields;
} psm_input;

typedef struct psm_options {
    psm_strategy strategy;
    /* nfields entries, a permutation: the one order to use whatever the strategy; or NULL. */
    const uint8_t *given_order;
    /* The statement has examples, so one field order holds for all rows; the best one is then
     * looked for, not only the one of greatest score. */
    bool one_order;
    /* How many (row, field set) pairs the first search
     * may look at; 0: a default that grows with the rows. */
    uint64_t work_limit;
    bool bound;                /* compute psm_result.bound too */
    const atomic_bool *cancel; /* ERR_CANCELLED soon after it is true; NULL: never */
} psm_options;

/* Rows that have one field order. */
typedef struct psm_group {
    const uint8_t *order; /* [fields] the fields they send, first to last */
    int fields;           /* fewer than nfields where fields are absent */
    uint32_t rows;
} psm_group;

typedef struct psm_result {
    /* Never PSM_AUTO; PSM_FIXED also where no grouping beats the best one order. */
    psm_strategy used;
    uint8_t *field_order;  /* [rows * nfields] by input row; absent fields stand last */
    uint32_t *row_order;   /* [rows] the input rows in the order in which to send them */
    uint64_t total_units;  /* in all rows */
    uint64_t shared_units; /* of these, at the head of an earlier row in row_order as well */
    /* Whole cells can share at most this fraction of total_units; NAN when not asked for. */
    double bound;
    psm_group groups[PSM_MAX_GROUPS]; /* largest first */
    int ngroups;
    uint32_t orders; /* different field orders in all, of which `groups` are the largest */
    double solve_ms; /* CPU time; for printing alone */
} psm_result;

/* ERR_LIMIT for too many fields, ERR_FULL without memory,
 * ERR_INTERNAL for an id or an order out of range. */
int psm_solve(const psm_input *in, const psm_options *options, arena *out, psm_result *result,
              err *e);

typedef struct psm_score {
    uint64_t total_units;
    uint64_t shared_units;   /* with any earlier row: what is not a new node of the prefix tree */
    uint64_t cell_units;     /* in the tree of whole cells: only equal (field, value) pairs share */
    uint64_t adjacent_units; /* with the row sent just before */
} psm_score;

/* Counts what any orders share, exactly as psm_solve means it. field_order as in psm_result
 * (entries of absent fields are skipped wherever they stand); row_order NULL: as the rows come.
 * Errors as psm_solve. */
int psm_evaluate(const psm_input *in, const uint8_t *field_order, const uint32_t *row_order,
                 psm_score *score, err *e);

#endif
