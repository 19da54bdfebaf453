/* words_int.h - the tables of functions and keywords as the other sub-rooms of sql/ need them. */
#ifndef KVASIR_WORDS_INT_H
#define KVASIR_WORDS_INT_H

#include "sql/sql.h"

/* ---- functions.c ----------------------------------------------------------------------------- */

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

/* ---- keywords.c ------------------------------------------------------------------------------ */

/* The token code of a keyword, 0 for another word. */
int keyword_code(str word);
/* What a token is called in a message; NULL: nothing worth saying. */
const char *keyword_name(int code);
bool keyword_is_operator(int code);
/* The nearest keyword, or NULL. */
const char *keyword_nearest(str word);

#endif
