/*
 * op_classes.c - the table of operators by plan node kind.
 */
#include "ops/op_int.h"
#include "stmt_int.h"

#define OPERATOR(id, operator, name) extern const op_class op_##operator;
PLAN_KINDS(OPERATOR)
#undef OPERATOR

const op_class *const op_classes[] = {
#define OPERATOR(id, operator, name) [PLAN_##id] = &op_##operator,
    PLAN_KINDS(OPERATOR)
#undef OPERATOR
};
