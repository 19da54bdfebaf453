/*
 * json_scan.c - checks one JSON object (RFC 8259) and finds its members.
 *
 * Invariant: an object is JSON_DONE only if all its bytes are valid, also those of values that no
 * column shows; bytes after `end` decide nothing.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "json_int.h"

typedef struct scan {
    const char *p, *end;
    const char *start; /* the object's first byte */
    bool last;
    int depth;
    json_object *out;
} scan;

/* ---- errors ---------------------------------------------------------------------------------- */

BASE_PRINTF(3, 4)
static json_status bad(scan *s, const char *at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(s->out->why, sizeof s->out->why, format, args);
    va_end(args);
    s->out->at = at;
    return JSON_BAD;
}

static json_status window_ends(scan *s) {
    return s->last ? bad(s, s->start, "the file ends inside this object") : JSON_MORE;
}

const char *json_describe(const char *p, const char *end, char *out) {
    if (p == end)
        return "the end of the file";
    if (*p == '"')
        return "a string";
    if (*p == '[')
        return "an array";
    if (*p == '{')
        return "an object";
    if (*p == '-' || (*p >= '0' && *p <= '9'))
        return "a number";
    if (*p == '\'')
        return "a single quote";
    size_t n = 0;
    while (n < 24 && p + n < end && ascii_lower(p[n]) >= 'a' && ascii_lower(p[n]) <= 'z')
        n++;
    if (n)
        snprintf(out, 32, "'%.*s'", (int)n, p);
    else if (*p > ' ' && *p < 0x7f)
        snprintf(out, 32, "'%c'", *p);
    else
        snprintf(out, 32, "the byte 0x%02x", (unsigned)(unsigned char)*p);
    return out;
}

static json_status expected(scan *s, const char *what) {
    char found[32];
    return bad(s, s->p, "expected %s, found %s", what, json_describe(s->p, s->end, found));
}

/* ---- blanks, strings ------------------------------------------------------------------------- */

/* Moves to the next byte that is not blank; false: the window ends. */
static bool skip_blanks(scan *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
    return s->p < s->end;
}

#ifdef __SSE2__
#include <emmintrin.h>

/* Returns the first quote, backslash or control character in [p, end), else end. May load FILE_SLACK
 * bytes after end. */
static const char *find_special(const char *p, const char *end) {
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    const __m128i control = _mm_set1_epi8(0x1f);
    for (; p < end; p += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        __m128i small = _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes);
        __m128i other =
            _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
        int hits = _mm_movemask_epi8(_mm_or_si128(small, other));
        if (hits) {
            p += __builtin_ctz((unsigned)hits);
            return p < end ? p : end;
        }
    }
    return end;
}
#else
static const char *find_special(const char *p, const char *end) {
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p > 0x1f)
        p++;
    return p;
}
#endif

/* Returns the UTF-16 unit of \uXXXX at p, or -1. */
static int32_t unit_at(const char *p) {
    int32_t unit = 0;
    for (int i = 2; i < 6; i++) {
        int digit = file_hex_digit(p[i]);
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static bool is_high(int32_t unit) {
    return unit >= 0xD800 && unit < 0xDC00;
}

static bool is_low(int32_t unit) {
    return unit >= 0xDC00 && unit < 0xE000;
}

/* Scans the escape at s->p. */
static json_status scan_escape(scan *s) {
    const char *p = s->p;
    if (s->end - p < 2)
        return window_ends(s);
    if (p[1] != 'u') {
        if (!p[1] || !strchr("\"\\/bfnrt", p[1]))
            return bad(s, p, "a backslash must be written as \\\\");
        s->p += 2;
        return JSON_DONE;
    }
    if (s->end - p < 6)
        return window_ends(s);
    int32_t unit = unit_at(p);
    if (unit < 0)
        return bad(s, p, "\\u needs four hexadecimal digits");
    if (is_low(unit))
        return bad(s, p, "%.6s is half of a character: no first half before it", p);
    s->p += 6;
    if (!is_high(unit))
        return JSON_DONE;
    if (s->end - s->p < 6 && !s->last)
        return JSON_MORE;
    if (s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u' || !is_low(unit_at(s->p)))
        return bad(s, p, "%.6s is half of a character: no second half after it", p);
    s->p += 6;
    return JSON_DONE;
}

/* Scans the string at s->p, which is a quote. */
static json_status scan_string(scan *s, json_text *out) {
    const char *open = s->p++;
    out->escaped = false;
    for (;;) {
        s->p = find_special(s->p, s->end);
        if (s->p == s->end)
            return window_ends(s);
        if (*s->p == '"')
            break;
        if (*s->p == '\n')
            return bad(s, open, "this string is not closed on its line (write \\n for a line end)");
        if (*s->p != '\\')
            return bad(s, s->p, "a control character in a string must be written as \\u%04x",
                       (unsigned)(unsigned char)*s->p);
        json_status status = scan_escape(s);
        if (status)
            return status;
        out->escaped = true;
    }
    out->p = open + 1;
    out->n = (size_t)(s->p++ - out->p);
    return JSON_DONE;
}

size_t json_unescape(json_text text, char *out) {
    static const char letters[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    char *to = out;
    for (const char *p = text.p, *end = text.p + text.n; p < end;) {
        const char *backslash = memchr(p, '\\', (size_t)(end - p));
        size_t n = (size_t)((backslash ? backslash : end) - p);
        memcpy(to, p, n);
        to += n;
        p += n;
        if (!backslash)
            break;
        if (p[1] != 'u') {
            *to++ = means[strchr(letters, p[1]) - letters];
            p += 2;
            continue;
        }
        uint32_t cp = (uint32_t)unit_at(p);
        p += 6;
        if (is_high((int32_t)cp)) {
            cp = 0x10000 + ((cp - 0xD800) << 10) + ((uint32_t)unit_at(p) - 0xDC00);
            p += 6;
        }
        to += utf8_encode(cp, to);
    }
    return (size_t)(to - out);
}

/* ---- values ---------------------------------------------------------------------------------- */

static const char *skip_digits(const char *p, const char *end) {
    while (p < end && *p >= '0' && *p <= '9')
        p++;
    return p;
}

/* Scans digits, of which there must be one. */
static json_status scan_digits(scan *s) {
    const char *p = skip_digits(s->p, s->end);
    if (p == s->end)
        return window_ends(s);
    if (p == s->p)
        return expected(s, "a digit");
    s->p = p;
    return JSON_DONE;
}

static json_status scan_number(scan *s, json_kind *kind) {
    *kind = JSON_INTEGER;
    s->p += *s->p == '-';
    const char *first = s->p;
    json_status status = scan_digits(s);
    if (status)
        return status;
    if (*first == '0' && s->p - first > 1)
        return bad(s, first, "a number cannot begin with 0");
    if (*s->p == '.') {
        *kind = JSON_REAL;
        s->p++;
        if ((status = scan_digits(s)) != JSON_DONE)
            return status;
    }
    if (*s->p == 'e' || *s->p == 'E') {
        *kind = JSON_REAL;
        s->p++;
        s->p += s->p < s->end && (*s->p == '+' || *s->p == '-');
        status = scan_digits(s);
    }
    return status;
}

static json_status scan_word(scan *s, json_kind *kind) {
    static const struct {
        str word;
        json_kind kind;
    } words[] = {
        {STR("null"), JSON_NULL}, {STR("true"), JSON_BOOLEAN}, {STR("false"), JSON_BOOLEAN}};
    const char *p = s->p;
    while (p < s->end && ascii_lower(*p) >= 'a' && ascii_lower(*p) <= 'z')
        p++;
    if (p == s->end)
        return window_ends(s);
    str word = {s->p, (size_t)(p - s->p)};
    for (size_t i = 0; i < BASE_COUNT(words); i++) {
        if (!str_equal(word, words[i].word))
            continue;
        *kind = words[i].kind;
        s->p = p;
        return JSON_DONE;
    }
    if (str_equal(word, STR("NaN")) || str_equal(word, STR("Infinity")))
        return bad(s, s->p, "JSON has no %.*s: write null", (int)word.n, word.p);
    return expected(s, "a value");
}

static json_status scan_nested(scan *s);

/* Scans the value at s->p. */
static json_status scan_value(scan *s, json_member *m) {
    json_status status;
    m->value.p = s->p;
    switch (*s->p) {
    case '"':
        m->kind = JSON_STRING;
        return scan_string(s, &m->value);
    case '{':
    case '[':
        m->kind = JSON_NESTED;
        status = scan_nested(s);
        break;
    default:
        status = *s->p == '-' || (*s->p >= '0' && *s->p <= '9') ? scan_number(s, &m->kind)
                                                                : scan_word(s, &m->kind);
    }
    m->value.n = (size_t)(s->p - m->value.p);
    return status;
}

/* Scans a key and its colon, up to the value. */
static json_status scan_key(scan *s, json_member *m) {
    if (*s->p != '"')
        return expected(s, "a key in double quotes");
    json_status status = scan_string(s, &m->key);
    if (status)
        return status;
    if (!skip_blanks(s))
        return window_ends(s);
    if (*s->p != ':')
        return expected(s, "':'");
    s->p++;
    return skip_blanks(s) ? JSON_DONE : window_ends(s);
}

/* Scans the object or array at s->p. */
static json_status scan_nested(scan *s) {
    bool object = *s->p == '{', top = s->depth == 0;
    char close = object ? '}' : ']';
    if (++s->depth > JSON_DEPTH_MAX)
        return bad(s, s->p, "nested deeper than %d levels", JSON_DEPTH_MAX);
    s->p++;
    for (bool first = true;; first = false) {
        json_member m = {0};
        json_status status = JSON_DONE;
        if (!skip_blanks(s))
            return window_ends(s);
        if (*s->p == close && first)
            break;
        if (object && (status = scan_key(s, &m)) != JSON_DONE)
            return status;
        if (top)
            ARRAY_PUSH(s->out->members, s->out->n, s->out->cap, m);
        if ((status = scan_value(s, &m)) != JSON_DONE)
            return status;
        if (top)
            s->out->members[s->out->n - 1] = m;
        if (!skip_blanks(s))
            return window_ends(s);
        if (*s->p == close)
            break;
        if (*s->p != ',')
            return expected(s, object ? "',' or '}'" : "',' or ']'");
        s->p++;
    }
    s->p++;
    s->depth--;
    return JSON_DONE;
}

json_status json_scan(const char *p, const char *end, bool last, json_object *out) {
    scan s = {.p = p, .end = end, .start = p, .last = last, .out = out};
    out->n = 0;
    json_status status = scan_nested(&s);
    out->next = s.p;
    if (status || utf8_valid((str){p, (size_t)(s.p - p)}))
        return status;
    uint32_t cp;
    size_t k;
    while ((k = utf8_next((str){p, (size_t)(s.p - p)}, &cp)) > 1 || (unsigned char)*p < 0x80)
        p += k;
    return bad(&s, p, "the byte 0x%02x is not UTF-8", (unsigned)(unsigned char)*p);
}
