/* functions_int.h - the function tables as the binder and the printer need them. */
#ifndef KVASIR_FUNCTIONS_INT_H
#define KVASIR_FUNCTIONS_INT_H

#include "sql/sql.h"

/* A fixed type, or one that follows the arguments. */
typedef int function_result;
enum { RESULT_AS_FIRST = 100, RESULT_AS_COMMON, RESULT_AS_NUMBER };
#define RESULT_IS(type) ((function_result)(type))

const char *function_parameters(function_id id); /* sql.h says what the letters mean */
function_result function_result_of(function_id id);
const function_info *function_of(function_id id);
bool function_find(str name, function_id *out);
bool window_find(str name, window_kind *out);
const function_info *window_of(window_kind kind); /* of those that are no aggregate */
bool aggregate_find(str name, agg_kind *out);
const function_info *table_function(void); /* the only one there is */
const char *function_nearest(str name);    /* of those that expressions call */
const char *function_instead(str name);    /* of another database's function; NULL: it is none */

#endif
