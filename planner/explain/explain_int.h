/*
 * explain_int.h - the facts of plan nodes, written either as text or as members of a JSON object.
 *
 * describe.c writes each fact by one call for both formats, with the text printed before the fact
 * and the fact's key in JSON. If the text is NULL, the fact appears only in JSON. If the key is
 * NULL, it appears only in the text.
 */
#ifndef KVASIR_EXPLAIN_INT_H
#define KVASIR_EXPLAIN_INT_H

#include <cjson/cJSON.h>

#include "planner/planner.h"

/* Where facts are written; an output that is NULL is skipped. */
typedef struct facts {
    buf *text;
    cJSON *json;
} facts;

/* Appends to the text only, formatted as by printf. */
#define fact_words(f, ...)                                                                         \
    do {                                                                                           \
        if ((f).text)                                                                              \
            buf_printf((f).text, __VA_ARGS__);                                                     \
    } while (0)
/* Writes a fact: `before` and the value to the text, member `key` to JSON. If `before` or `key` is
 * NULL, that output is skipped. */
void fact_str(facts f, const char *before, const char *key, str s);
void fact_name(facts f, const char *before, const char *key, const char *name);
void fact_number(facts f, const char *before, const char *key, int64_t n);
/* Writes to the text only `before`, and only if `on` is true. */
void fact_bool(facts f, const char *before, const char *key, bool on);
void fact_expr(facts f, const char *before, const char *key, const expr *x); /* NULL: no fact */
/* Writes all expressions to JSON. Writes to the text all if there are at most 10, otherwise the
 * first 8 and the number of further ones. */
void fact_exprs(facts f, const char *before, const char *key, expr *const *exprs, int n);
void fact_strs(facts f, const char *before, const char *key, const str *s, int n);
void fact_keys(facts f, const char *before, const char *key, const sort_key *keys, int n);
/* fact_list adds a list to JSON, and fact_item appends an object to such a list. Neither writes
 * text. */
facts fact_list(facts f, const char *key);
facts fact_item(facts list);

/* Writes a line's title to the text, and the line's facts to JSON. */
void describe_line(facts f, const explain_line *l);
/* Writes the facts of a call. The text lists the fields in the planned order. With `as_written` it
 * lists them as written, since another line shows the order of the run. */
void describe_call(facts f, const plan_call_site *u, bool as_written);

#endif
