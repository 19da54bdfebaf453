/*
 * llm_call.c - properties of bound LLM calls: result type, field order, whether two calls can share
 * a prompt prefix.
 */
#include <string.h>

#include "tree_int.h"

value_type llm_call_type(const llm_call *call) {
    switch (call->returns) {
    case RETURNS_TEXT:
    case RETURNS_ENUM:
        return TYPE_TEXT;
    case RETURNS_BOOLEAN:
        return TYPE_BOOLEAN;
    case RETURNS_INTEGER:
        return TYPE_INTEGER;
    case RETURNS_REAL:
        return TYPE_REAL;
    case RETURNS_VECTOR:
        return TYPE_VECTOR;
    }
    return TYPE_TEXT;
}

const char *llm_returns_name(llm_returns r) {
    switch (r) {
    case RETURNS_TEXT:
        return "TEXT";
    case RETURNS_ENUM:
        return "ENUM";
    case RETURNS_BOOLEAN:
        return "BOOLEAN";
    case RETURNS_INTEGER:
        return "INTEGER";
    case RETURNS_REAL:
        return "REAL";
    case RETURNS_VECTOR:
        return "VECTOR";
    }
    return NULL;
}

const llm_call *llm_call_root(const llm_call *call) {
    while (call->after)
        call = call->after;
    return call;
}

int llm_call_max_tokens(const settings *s, const llm_call *call) {
    return call->max_tokens ? call->max_tokens : (int)s->max_tokens;
}

/* ---- field order ----------------------------------------------------------------------------- */

static int listed_field(const llm_call *call, str name) {
    const char *dot = memchr(name.p, '.', name.n);
    for (int f = 0; f < call->nfields; f++)
        if (str_equal_nocase(name, call->field_names[f]))
            return f;
    if (!dot)
        return -1;
    return listed_field(call, (str){dot + 1, name.n - (size_t)(dot + 1 - name.p)});
}

bool llm_call_listed_order(const llm_call *call, str names, uint8_t *order, str *unknown) {
    bool known = true;
    int n = 0;
    while (names.n) {
        str item = str_trim(str_split_next(&names, ','), " ");
        int f = listed_field(call, item);
        if (f < 0 && known) {
            *unknown = item;
            known = false;
        }
        if (f >= 0 && !memchr(order, f, (size_t)n))
            order[n++] = (uint8_t)f;
    }
    for (int f = 0; f < call->nfields; f++)
        if (!memchr(order, f, (size_t)n))
            order[n++] = (uint8_t)f;
    return known;
}

/* True if the parts of the prompts before and after the row allow it. */
static bool share_frame(const llm_call *a, const llm_call *b) {
    if (a->cue.n > 0 && b->cue.n > 0)
        return str_equal(a->instruction, b->instruction) && a->examples == b->examples &&
               a->after == b->after && a->shown_labels == b->shown_labels;
    return a->cue.n + b->cue.n == 0 && !a->examples && !b->examples && !a->after && !b->after &&
           !a->goes_on && !b->goes_on && !a->shown_labels && !b->shown_labels;
}

bool llm_calls_share_row(const llm_call *a, expr *const *a_args, const llm_call *b,
                         expr *const *b_args) {
    if (a->nfields == 0 || a->nfields != b->nfields || !share_frame(a, b))
        return false;
    if (a->prompt.type == TYPE_NULL || b->prompt.type == TYPE_NULL ||
        !str_equal(a->model, b->model) || a->contexts_ranked != b->contexts_ranked ||
        a->blends != b->blends)
        return false;
    for (int f = 0; f < a->nfields; f++)
        if (!str_equal(a->field_names[f], b->field_names[f]) ||
            a->field_required[f] != b->field_required[f] ||
            a->field_lists[f] != b->field_lists[f] || !expr_equal(a_args[f], b_args[f]) ||
            expr_is_volatile(a_args[f]))
            return false;
    return true;
}
