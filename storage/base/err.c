/*
 * err.c - errors, byte strings and nearest words.
 *
 * Invariant: setting an error replaces the previous one and its hint.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "storage/base.h"

static int err_vset(err *e, err_code code, int pos, int len, const char *format, va_list args) {
    if (!e)
        return (int)code;
    /* A copy, because the arguments may point into e. It is longer than e->message, so that
     * utf8_copy can find out whether it cuts a character. */
    char message[sizeof e->message + 4];
    vsnprintf(message, sizeof message, format, args);
    e->code = code;
    e->pos = pos;
    e->len = len;
    e->hint[0] = 0;
    utf8_copy(e->message, sizeof e->message, str_from(message));
    return (int)code;
}

int err_set(err *e, err_code code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = err_vset(e, code, -1, 0, format, args);
    va_end(args);
    return status;
}

int err_set_at(err *e, err_code code, int pos, int len, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = err_vset(e, code, pos, len, format, args);
    va_end(args);
    return status;
}

int err_set_errno(err *e, int errno_value, const char *format, ...) {
    char what[768];
    bool full = errno_value == ENOSPC || errno_value == EDQUOT;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return err_set(e, full ? ERR_FULL : ERR_IO, "%s: %s", what, strerror(errno_value));
}

void err_hint(err *e, const char *format, ...) {
    if (!e)
        return;
    va_list args;
    char hint[sizeof e->hint + 4];
    va_start(args, format);
    vsnprintf(hint, sizeof hint, format, args);
    va_end(args);
    utf8_copy(e->hint, sizeof e->hint, str_from(hint));
}

void err_clear(err *e) {
    *e = (err){.code = ERR_NONE, .pos = -1};
}

/* ---- byte strings ---------------------------------------------------------------------------- */

str str_from(const char *c_string) {
    return (str){c_string ? c_string : "", c_string ? strlen(c_string) : 0};
}

bool str_equal(str a, str b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

bool str_equal_nocase(str a, str b) {
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
            return false;
    return true;
}

uint64_t str_hash_nocase(str s) {
    unsigned char lower[64];
    uint64_t hash = s.n;
    for (size_t i = 0; i < s.n;) {
        size_t n = 0;
        while (n < sizeof lower && i < s.n)
            lower[n++] = (unsigned char)ascii_lower(s.p[i++]);
        hash = hash64(lower, n, hash);
    }
    return hash;
}

int str_compare_nocase(str a, str b) {
    size_t n = BASE_MIN(a.n, b.n);
    for (size_t i = 0; i < n; i++)
        if (ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
            return (unsigned char)ascii_lower(a.p[i]) - (unsigned char)ascii_lower(b.p[i]);
    return (a.n > b.n) - (a.n < b.n);
}

int str_compare(str a, str b) {
    size_t n = BASE_MIN(a.n, b.n);
    int c = n ? memcmp(a.p, b.p, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

str str_split_next(str *rest, char separator) {
    const char *at = rest->n ? memchr(rest->p, separator, rest->n) : NULL;
    str taken = {rest->p, at ? (size_t)(at - rest->p) : rest->n};
    size_t used = taken.n + (at != NULL);
    if (used)
        *rest = (str){rest->p + used, rest->n - used};
    return taken;
}

static bool is_one_of(char c, const char *set) {
    return c != 0 && strchr(set, c) != NULL;
}

str str_trim(str s, const char *blanks) {
    while (s.n && is_one_of(s.p[0], blanks))
        s = (str){s.p + 1, s.n - 1};
    while (s.n && is_one_of(s.p[s.n - 1], blanks))
        s.n--;
    return s;
}

str str_copy(arena *a, str s) {
    return (str){arena_strndup(a, s.p, s.n), s.n};
}

enum { NEAREST_MAX = 64 };

/* Returns the optimal string alignment distance of two words, or NEAREST_MAX if a word is longer
 * than NEAREST_MAX. */
static int word_distance(str a, str b) {
    int rows[3][NEAREST_MAX + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    if (a.n > NEAREST_MAX || b.n > NEAREST_MAX)
        return NEAREST_MAX;
    for (size_t j = 0; j <= b.n; j++)
        last[j] = (int)j;
    memset(rows[0], 0, sizeof rows[0]);
    for (size_t i = 1; i <= a.n; i++) {
        now[0] = (int)i;
        for (size_t j = 1; j <= b.n; j++) {
            int change = ascii_lower(a.p[i - 1]) != ascii_lower(b.p[j - 1]);
            int best = BASE_MIN(BASE_MIN(last[j] + 1, now[j - 1] + 1), last[j - 1] + change);
            if (i > 1 && j > 1 && ascii_lower(a.p[i - 1]) == ascii_lower(b.p[j - 2]) &&
                ascii_lower(a.p[i - 2]) == ascii_lower(b.p[j - 1]))
                best = BASE_MIN(best, before[j - 2] + 1);
            now[j] = best;
        }
        int *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[b.n];
}

const char *str_nearest(str word, const char *const *candidates, size_t count) {
    const char *best = NULL;
    int best_distance = BASE_MAX(1, (int)(word.n / 3)) + 1;
    for (size_t i = 0; i < count; i++) {
        int d = word_distance(word, str_from(candidates[i]));
        if (d < best_distance) {
            best_distance = d;
            best = candidates[i];
        }
    }
    return best;
}
