/*
 * explain_int.h - the facts of plan nodes, written either as text or as members of a JSON object.
 *
 * describe.c names each fact once: by the text before it, and by its key in JSON. A fact without
 * text is NULL there and appears in JSON only; one without key appears in text only.
 */
#ifndef KVASIR_EXPLAIN_INT_H
#define KVASIR_EXPLAIN_INT_H

#include <cjson/cJSON.h>

#include "planner/planner.h"

/* The outputs of facts; one that is NULL is skipped. */
typedef struct facts {
    buf *text;
    cJSON *json;
} facts;

/* Appends to the text, as printf; JSON has nothing of it. */
#define fact_words(f, ...)                                                                         \
    do {                                                                                           \
        if ((f).text)                                                                              \
            buf_printf((f).text, __VA_ARGS__);                                                     \
    } while (0)
/* A fact: `before` and the value in the text (NULL: not there), member `key` in JSON (NULL: not there). */
void fact_str(facts f, const char *before, const char *key, str s);
void fact_name(facts f, const char *before, const char *key, const char *name);
void fact_number(facts f, const char *before, const char *key, int64_t n);
/* The text has `before` if `on`, else nothing. */
void fact_bool(facts f, const char *before, const char *key, bool on);
void fact_expr(facts f, const char *before, const char *key, const expr *x); /* NULL: no fact */
/* The text has at most 10 expressions, and the number of the others. */
void fact_exprs(facts f, const char *before, const char *key, expr *const *exprs, int n);
void fact_strs(facts f, const char *before, const char *key, const str *s, int n);
void fact_keys(facts f, const char *before, const char *key, const sort_key *keys, int n);
/* A list in JSON, to which fact_item appends an object; the text has nothing of either. */
facts fact_list(facts f, const char *key);
facts fact_item(facts list);

/* A line's title in the text, its members in JSON. */
void describe_line(facts f, const explain_line *l);
/* The text has the fields in the planned order, or `as_written` where another line has the run's. */
void describe_call(facts f, const plan_call_site *u, bool as_written);

#endif
