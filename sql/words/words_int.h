/* words_int.h - lookups in the tables of functions and keywords, for parser, tree and binder. */
#ifndef KVASIR_WORDS_INT_H
#define KVASIR_WORDS_INT_H

#include "sql/sql.h"

/* ---- functions.c ----------------------------------------------------------------------------- */

/* A value_type, or a rule that derives the type from the arguments (see SQL_FUNCTIONS). */
typedef int function_result;
enum { RESULT_AS_FIRST = 100, RESULT_AS_COMMON, RESULT_AS_NUMBER };
#define RESULT_IS(type) ((function_result)(type))

const char *function_parameters(function_id id); /* letters: see SQL_FUNCTIONS */
function_result function_result_of(function_id id);
const function_info *function_of(function_id id);
bool function_find(str name, function_id *out);
bool window_find(str name, window_kind *out);
const function_info *window_of(window_kind kind); /* kind < WINDOW_AGGREGATE */
bool aggregate_find(str name, agg_kind *out);
const function_info *table_function(void); /* generate_series, the only one */
/* Returns the nearest name of a function that an expression can call, or NULL. */
const char *function_nearest(str name);
/* Returns the row of SQL_LLM_NAMES with this name, or NULL. */
const llm_name_info *llm_name_find(str name);
/* Returns what to write instead of another database's function, or NULL if there is no advice. */
const char *function_instead(str name);

/* ---- keywords.c ------------------------------------------------------------------------------ */

/* Returns the token code of a keyword; 0 if the word is not a keyword. */
int keyword_code(str word);
/* Returns the name of a token for messages, or NULL if it has none. */
const char *keyword_name(int code);
bool keyword_is_operator(int code); /* true for operators and punctuation */
/* Returns the nearest keyword, or NULL. */
const char *keyword_nearest(str word);

#endif
