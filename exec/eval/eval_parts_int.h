/*
 * eval_parts_int.h - operands, and the functions that files of the evaluator call in each other.
 * Only for exec/eval/.
 */
#ifndef KVASIR_EVAL_PARTS_INT_H
#define KVASIR_EVAL_PARTS_INT_H

#include "eval_int.h"
#include "rows/cells_int.h"

/* The values of an expression over the rows of a batch: the value of row k is cell k * step of `c`.
 * The column is allocated in eval_env.mem or is a column of the input; it has NULL bytes only if a
 * row may be NULL. */
typedef struct operand {
    column c;
    int step; /* 1: a cell per row; 0: a constant, one cell for all rows */
} operand;

typedef struct eval_env {
    const batch *in;
    arena *mem;
    err *e;
    const operand *let_value; /* the value of the enclosing EXPR_LET, over the rows of `in` */
} eval_env;

/* eval.c */
int eval_any(const eval_env *v, const expr *x, operand *out);
/* Evaluates all arguments of x into an array in v->mem. Sets *n to 1 if all arguments are constant,
 * else to the number of rows of the batch. */
int eval_args(const eval_env *v, const expr *x, operand **out, int *n);
/* Sets an error at the expression's place in the statement. */
int eval_error(const eval_env *v, const expr *x, err_code code, const char *format, ...)
    BASE_PRINTF(4, 5);

void operand_null(const eval_env *v, value_type type, operand *out);
bool operand_is_null(const operand *a); /* whether `a` is a constant NULL */
/* Makes a column for n rows, whose cells are not initialised; no row is NULL. */
void operand_new(const eval_env *v, value_type type, int n, operand *out);
void operand_set_null(const eval_env *v, operand *o, int n, int row);
static inline bool operand_null_at(const operand *a, int row) {
    return a->c.null != NULL && a->c.null[row * a->step] != 0;
}
/* Sets a row to v, which is not NULL and has the operand's type. */
static inline void operand_set(operand *o, int row, value v) {
    if (type_is_bytes(o->c.type))
        o->c.s[row] = v.s;
    else
        o->c.i[row] = v.i; /* a REAL is copied as its 64 bits */
}
/* Sets a row to row `from` of `a`, which is not NULL and has the same type. */
static inline void operand_copy(operand *o, int row, const operand *a, int from) {
    if (type_is_bytes(o->c.type))
        o->c.s[row] = a->c.s[from * a->step];
    else
        o->c.i[row] = a->c.i[from * a->step];
}
static inline bool operands_constant(const operand *args, int n) {
    for (int k = 0; k < n; k++)
        if (args[k].step)
            return false;
    return true;
}
static inline value operand_get(const operand *a, int row) {
    return column_get(&a->c, row * a->step);
}

/* eval_op.c */
int eval_op(const eval_env *v, const expr *x, operand *out);
/* Compares a with b in n rows by the operator `how`, one of OP_EQ … OP_GE. The result is NULL where
 * a or b is NULL. */
void eval_compare(const eval_env *v, expr_op how, const operand *a, const operand *b, int n,
                  operand *out);

/* eval_cast.c */
int eval_cast(const eval_env *v, const expr *x, operand *out);
int eval_in(const eval_env *v, const expr *x, operand *out);

/* eval_func.c: functions except COALESCE, IFNULL, NULLIF, IIF and those of regular expressions. */
int eval_function(const eval_env *v, const expr *x, operand *out);

/* eval_text.c: LIKE, ILIKE, GLOB; REGEXP_MATCHES, REGEXP_EXTRACT. */
int eval_match(const eval_env *v, const expr *x, operand *out);
int eval_regexp(const eval_env *v, const expr *x, operand *out);

/* What a function receives besides its x->nargs arguments. */
typedef struct call_env {
    arena *mem;
    const eval_env *v;
    const expr *x;
} call_env;
typedef int (*function_row)(const call_env *c, const value *args, value *out);

typedef struct function_row_entry {
    function_id id;
    bool takes_null; /* false: if an argument is NULL, the result is NULL and `row` is not called */
    function_row row; /* computes the result of one row */
} function_row_entry;

/* The functions of eval_text.c, eval_time.c and eval_vector.c. */
extern const function_row_entry text_functions[], time_functions[], vector_functions[];
extern const size_t text_function_count, time_function_count, vector_function_count;

#endif
