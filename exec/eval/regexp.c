/*
 * regexp.c - matches texts with regular expressions, by PCRE2.
 *
 * Invariant: no pattern can keep the thread. Callouts, which PCRE2 makes at every step of a match,
 * look for a cancel and count the steps of a text up to STEPS; memory and nesting are limited too.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

#include "regexp_int.h"

enum { STEPS = 10 * 1000 * 1000, STEPS_PER_LOOK = 1 << 12, HEAP_KIB = 64 << 10 };

static _Thread_local const atomic_bool *cancel_flag;

void regexp_set_cancel(const atomic_bool *cancel) {
    cancel_flag = cancel;
}

struct regexp {
    str pattern; /* of `code` */
    pcre2_code *code;
    pcre2_match_data *found;
    pcre2_match_context *limits;
    int64_t steps; /* of the current match */
    bool cancelled;
};

static int count_step(pcre2_callout_block *at, void *ctx) {
    regexp *r = ctx;
    (void)at;
    if (++r->steps > STEPS)
        return PCRE2_ERROR_MATCHLIMIT;
    if (r->steps % STEPS_PER_LOOK == 0 && cancel_flag && atomic_load(cancel_flag))
        r->cancelled = true;
    return r->cancelled ? PCRE2_ERROR_CALLOUT : 0;
}

static int out_of_memory(err *e) {
    return err_set(e, ERR_FULL, "not enough memory for a regular expression");
}

int regexp_new(regexp **out, err *e) {
    regexp *r = *out = mem_zalloc(sizeof *r);
    r->limits = pcre2_match_context_create(NULL);
    if (!r->limits)
        return out_of_memory(e);
    pcre2_set_callout(r->limits, count_step, r);
    pcre2_set_match_limit(r->limits, STEPS);
    pcre2_set_depth_limit(r->limits, STEPS);
    pcre2_set_heap_limit(r->limits, HEAP_KIB);
    return 0;
}

static void forget_pattern(regexp *r) {
    pcre2_match_data_free(r->found);
    pcre2_code_free(r->code);
    r->found = NULL;
    r->code = NULL;
}

void regexp_free(regexp *r) {
    if (!r)
        return;
    forget_pattern(r);
    pcre2_match_context_free(r->limits);
    free(r);
}

int regexp_compile(regexp *r, str pattern, err *e) {
    if (r->code && str_equal(r->pattern, pattern))
        return 0;
    forget_pattern(r);
    int code;
    PCRE2_SIZE at;
    uint32_t flags = PCRE2_MATCH_INVALID_UTF | PCRE2_AUTO_CALLOUT | PCRE2_NEVER_BACKSLASH_C;
    r->code = pcre2_compile((PCRE2_SPTR)pattern.p, pattern.n, flags, &code, &at, NULL);
    if (!r->code) {
        char why[256];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
        size_t place = utf8_length((str){pattern.p, BASE_MIN(at, pattern.n)});
        return err_set(e, ERR_TYPE, "regular expression, after character %zu: %s", place, why);
    }
    r->pattern = pattern;
    r->found = pcre2_match_data_create_from_pattern(r->code, NULL);
    return r->found ? 0 : out_of_memory(e);
}

int regexp_groups(const regexp *r) {
    uint32_t n;
    pcre2_pattern_info(r->code, PCRE2_INFO_CAPTURECOUNT, &n);
    return (int)n;
}

static int match_failed(const regexp *r, int code, str text, err *e) {
    if (r->cancelled)
        return check_cancel(cancel_flag, e);
    if (code == PCRE2_ERROR_NOMEMORY)
        return out_of_memory(e);
    char why[256];
    pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
    err_set(e, ERR_LIMIT, "%s after %lld steps of a regular expression in a text of %zu bytes", why,
            (long long)r->steps, text.n);
    err_hint(e, "repeats inside repeats, as in (a+)+, try every way to split a text; write (?>a+), "
                "which tries one");
    return ERR_LIMIT;
}

int regexp_match(regexp *r, str text, bool *matched, err *e) {
    r->steps = 0;
    int n = pcre2_match(r->code, (PCRE2_SPTR)text.p, text.n, 0, 0, r->found, r->limits);
    *matched = n >= 0;
    return n >= 0 || n == PCRE2_ERROR_NOMATCH ? 0 : match_failed(r, n, text, e);
}

str regexp_group(const regexp *r, int group, str text) {
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(r->found);
    size_t from = ends[2 * group], to = ends[2 * group + 1];
    /* \K in a lookahead may put the start after the end */
    bool some = from != PCRE2_UNSET && to != PCRE2_UNSET && from < to;
    return some ? (str){text.p + from, to - from} : STR("");
}
