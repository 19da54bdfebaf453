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

/* Where facts are written: one of both is not NULL. */
typedef struct facts {
    buf *text;
    cJSON *json;
} facts;

/* Words of the text alone. */
#define fact_words(f, ...)                                                                         \
    do {                                                                                           \
        if ((f).text)                                                                              \
            buf_printf((f).text, __VA_ARGS__);                                                     \
    } while (0)
void fact_str(facts f, const char *before, const char *key, str s);
void fact_name(facts f, const char *before, const char *key, const char *name);
void fact_number(facts f, const char *before, const char *key, int64_t n);
/* The text has `before` if `on`. */
void fact_bool(facts f, const char *before, const char *key, bool on);
void fact_expr(facts f, const char *before, const char *key, const expr *x); /* NULL: no fact */
/* The text has at most 10 of them. */
void fact_exprs(facts f, const char *before, const char *key, expr *const *exprs, int n);
void fact_strs(facts f, const char *before, const char *key, const str *s, int n);
void fact_keys(facts f, const char *before, const char *key, const sort_key *keys, int n);
/* In JSON a list of objects, of which fact_item appends the next; in text nothing. */
facts fact_list(facts f, const char *key);
facts fact_item(facts list);

/* The title of a line in the text; its members in JSON. */
void describe_line(facts f, const explain_line *l);
/* The text has the fields in estimated order, or `as_written` if another line has the true order. */
void describe_call(facts f, const plan_call_site *u, bool as_written);

#endif
