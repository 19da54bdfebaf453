/*
 * eval_parts_int.h - what the files of the evaluator share.
 *
 *   operand  the values of one expression over the rows of a batch: one cell a row (step 1), or one
 * for all (step 0)
 *
 * The value of row k is at k * step in `c`. An operand's type is its expression's; NULL bytes exist
 * only where a row may be NULL. Columns are allocated in the environment's arena, or alias the
 * input's.
 */
#ifndef KVASIR_EVAL_PARTS_INT_H
#define KVASIR_EVAL_PARTS_INT_H

#include "eval_int.h"

typedef struct operand {
    column c;
    int step;
} operand;

typedef struct eval_env {
    const batch *in;
    arena *mem;
    err *e;
    const operand *drawn; /* the value of the EXPR_ONCE around, over the rows of `in` */
} eval_env;

/* eval.c */
int eval_any(const eval_env *v, const expr *x, operand *out);
/* Evaluates all arguments of x; *n is 1 when all are
 * constant, else the batch's rows. Allocated in the arena. */
int eval_args(const eval_env *v, const expr *x, operand **out, int *n);
int eval_error(const eval_env *v, const expr *x, err_code code, const char *format, ...)
    BASE_PRINTF(4, 5);

void operand_null(const eval_env *v, value_type type, operand *out);
bool operand_is_null(const operand *a); /* NULL for every row */
/* A fresh column for n rows (data not zeroed, no NULL bytes). */
void operand_new(const eval_env *v, value_type type, int n, operand *out);
void operand_set_null(const eval_env *v, operand *o, int n, int row);
static inline bool operand_null_at(const operand *a, int row) {
    return a->c.null != NULL && a->c.null[row * a->step] != 0;
}
static inline value operand_get(const operand *a, int row) {
    return column_get(&a->c, row * a->step);
}

/* eval_op.c */
int eval_op(const eval_env *v, const expr *x, operand *out);
/* a `how` b for n rows, three-valued (OP_EQ … OP_GE). */
void eval_compare(const eval_env *v, expr_op how, const operand *a, const operand *b, int n,
                  operand *out);

/* eval_cast.c */
int eval_cast(const eval_env *v, const expr *x, operand *out);
int eval_in(const eval_env *v, const expr *x, operand *out);

/* eval_func.c: the functions that are not control flow. */
int eval_function(const eval_env *v, const expr *x, operand *out);

/* eval_text.c: LIKE, ILIKE, GLOB. */
int eval_match(const eval_env *v, const expr *x, operand *out);

/* One row of a function; args are never NULL unless the table says so. */
typedef struct call_env {
    arena *mem;
    const eval_env *v;
    const expr *x;
} call_env;
typedef int (*function_row)(const call_env *c, const value *args, int nargs, value *out);

typedef struct function_row_entry {
    function_id id;
    bool takes_null; /* else a NULL argument gives NULL */
    function_row row;
} function_row_entry;

/* Tables of eval_text.c and eval_time.c, for eval_func.c's dispatch. */
extern const function_row_entry text_functions[], time_functions[];
extern const size_t text_function_count, time_function_count;

#endif
