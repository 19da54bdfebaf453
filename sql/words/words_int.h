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
const function_info *series_function(void); /* generate_series */
/* Returns the nearest name of a function that an expression can call, or NULL. */
const char *function_nearest(str name);

/* X(name, example of a value, help): the options of LLM(), written name => value after the fields. */
/* clang-format off */
#define SQL_LLM_OPTIONS(X)                                                                                                 \
    X("after", "name", "goes on from the prompt and the answer of another call in the select list, or of LLM() in FROM")   \
    X("contexts", "(query)", "retrieved texts, each a line of the field context: a query of one column, or a JSON array of texts")  \
    X("contexts_order", "'ranked'", "sends the contexts in the order of the query; 'set', the default, in the one that shares most")  \
    X("chunk_kv", "'blend'", "the KV of each context is computed once for all prompts, then moved and partly computed again: fewer tokens, other answers") \
    X("examples", "t", "solved cases, put before the row: a table, view or (query) with columns named as fields and one named answer") \
    X("labels", "t", "the answers of RETURNS ENUM without a list: a table, view or (query) with a column label and perhaps description") \
    X("model", "m", "a model made by CREATE MODEL, or a file")                                                             \
    X("calibrate", "'auto'", "decide by each answer's probability divided by its prior: auto, off, batch or fresh")              \
    X("max_tokens", "n", "the longest TEXT answer, in tokens")                                                             \
    X("stop", "'text'", "a text that ends a TEXT answer and is not part of it; may be given several times")                \
    X("temperature", "x", "sampling of a TEXT answer; 0 takes the likeliest token")
/* clang-format on */

/* X(name, signature, the call that it stands for, hint for wrong arguments): names of other systems
 * for common calls of LLM(). In the call, `prompt` is the first argument and `field` all others;
 * `text` and {text} are the first argument, {language} is the second; the arguments after the first are
 * {labels} and the answers of ENUM, or the fields of STRUCT (parse/llm_names.c). */
/* clang-format off */
#define SQL_LLM_NAMES(X)                                                                                                   \
    X("AI_FILTER", "AI_FILTER(prompt, field, …)", "LLM(prompt, field) RETURNS BOOLEAN",                                    \
      "pass a column as a field, not in the prompt")                                                                       \
    X("AI_CLASSIFY", "AI_CLASSIFY(text, 'label', 'label', …)", "LLM('Which fits {text} best: {labels}?', text) RETURNS ENUM('label', 'label')", \
      "the labels may also be a list: ['label', 'label']")                                                                 \
    X("AI_EXTRACT", "AI_EXTRACT(text, 'name', 'name', …)", "LLM('Read {text}', text) RETURNS STRUCT(name TEXT)",          \
      "the names may also be a list: ['name', 'name']")                                                                    \
    X("AI_COMPLETE", "AI_COMPLETE(prompt, field, …)", "LLM(prompt, field) RETURNS TEXT", "the model is an option: model => m") \
    X("AI_SCORE", "AI_SCORE(prompt, field, …)", "LLM_MEAN(LLM(prompt, field) RETURNS INTEGER BETWEEN 0 AND 10)",           \
      "pass a column as a field, not in the prompt")                                                                       \
    X("AI_SUMMARIZE", "AI_SUMMARIZE(text)", "LLM('Summarize {text} in one sentence', text, max_tokens => 64) RETURNS TEXT",                  \
      "the option max_tokens => n limits the length")                                                                      \
    X("AI_SENTIMENT", "AI_SENTIMENT(text)",                                                                                \
      "LLM('What is the sentiment of {text}?', text) RETURNS ENUM('positive', 'negative', 'neutral', 'mixed')",            \
      "for aspects of a text ask about each: LLM('How does {x} judge the price?', x) RETURNS ENUM(…)")                     \
    X("AI_TRANSLATE", "AI_TRANSLATE(text, 'language')", "LLM('Translate {text} into {language}', text, max_tokens => 256) RETURNS TEXT",      \
      "the language is the one to translate into")
/* The form of EMBED(), the only call that may return VECTOR; a row as above. */
#define SQL_LLM_EMBED(X) \
    X("EMBED", "EMBED(text [, model => m])", "LLM('', text) RETURNS VECTOR", "the embedding model is an option: model => m")
/* clang-format on */

typedef struct llm_name_info {
    const char *name, *signature, *stands_for, *instead;
} llm_name_info;

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
