/*
 * utf8.c - code points, terminal width and case mapping, by utf8proc.
 *
 * Invariant: any byte string is accepted; a byte that is not part of a code point is one U+FFFD.
 */
#include <string.h>
#include <utf8proc.h>

#include "storage/base.h"

size_t utf8_next(str s, uint32_t *cp) {
    if (s.n == 0)
        return 0;
    utf8proc_int32_t c = 0;
    utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)s.p, (utf8proc_ssize_t)s.n, &c);
    if (k <= 0) {
        *cp = 0xFFFD;
        return 1;
    }
    *cp = (uint32_t)c;
    return (size_t)k;
}

size_t utf8_encode(uint32_t cp, char out[4]) {
    utf8proc_ssize_t k = utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)out);
    return k > 0 ? (size_t)k : 0;
}

bool utf8_valid(str s) {
    while (s.n) {
        uint64_t eight = 0;
        while (s.n >= sizeof eight &&
               (memcpy(&eight, s.p, sizeof eight), (eight & 0x8080808080808080u) == 0)) {
            s.p += sizeof eight;
            s.n -= sizeof eight;
        }
        if (s.n == 0)
            return true;
        if (s.p[0] >= 0) {
            s.p++;
            s.n--;
            continue;
        }
        utf8proc_int32_t c = 0;
        utf8proc_ssize_t k =
            utf8proc_iterate((const utf8proc_uint8_t *)s.p, (utf8proc_ssize_t)s.n, &c);
        if (k <= 0)
            return false;
        s.p += k;
        s.n -= (size_t)k;
    }
    return true;
}

static bool continues(char c) {
    return ((unsigned char)c & 0xC0u) == 0x80u;
}

str utf8_whole(str s) {
    for (int i = 0; i < 3 && s.n > 0 && continues(s.p[0]); i++) {
        s.p++;
        s.n--;
    }
    size_t back = 0; /* continuation bytes at the end */
    while (back < 3 && back < s.n && continues(s.p[s.n - 1 - back]))
        back++;
    if (back == s.n)
        return s;
    unsigned char lead = (unsigned char)s.p[s.n - 1 - back];
    size_t bytes = lead >= 0xF0u ? 4 : lead >= 0xE0u ? 3 : lead >= 0xC0u ? 2 : 1;
    s.n -= bytes > back + 1 ? back + 1 : 0;
    return s;
}

void utf8_copy(char *out, size_t size, str s) {
    size_t n = BASE_MIN(s.n, size - 1);
    while (n < s.n && n && continues(s.p[n]))
        n--;
    if (n)
        memcpy(out, s.p, n);
    out[n] = 0;
}

/* Returns the number of leading ASCII bytes, at most `most`, rounded down to a multiple of 8. Tests
 * 8 bytes at a time: ten times as fast as decoding code points, and most text is ASCII. */
static size_t ascii_run(const char *p, size_t most) {
    size_t at = 0;
    for (uint64_t w; at + sizeof w <= most; at += sizeof w) {
        memcpy(&w, p + at, sizeof w);
        if (w & 0x8080808080808080u)
            break;
    }
    return at;
}

size_t utf8_length(str s) {
    size_t count = 0;
    for (uint32_t cp; s.n;) {
        size_t k = ascii_run(s.p, s.n);
        count += k;
        if (k == 0) {
            k = utf8_next(s, &cp);
            count++;
        }
        s.p += k;
        s.n -= k;
    }
    return count;
}

size_t utf8_offset(str s, size_t code_points) {
    size_t at = 0;
    for (uint32_t cp; code_points > 0 && at < s.n;) {
        size_t k = ascii_run(s.p + at, BASE_MIN(s.n - at, code_points));
        code_points -= BASE_MAX(k, (size_t)1);
        at += k ? k : utf8_next((str){s.p + at, s.n - at}, &cp);
    }
    return at;
}

/* Returns the width of a single code point. Control characters are printed escaped, one column
 * wide. */
static int cp_width(uint32_t cp) {
    if (cp < 0x20 || cp == 0x7f)
        return 1;
    if (cp < 0x7f)
        return 1;
    if (cp == 0x200D || (cp >= 0xFE00 && cp <= 0xFE0F))
        return 0;
    return utf8proc_charwidth((utf8proc_int32_t)cp);
}

/* The width is that of the widest code point, or 2 if the cluster is a flag or has an emoji
 * presentation selector. */
size_t utf8_cluster(str s, int *width) {
    uint32_t first = 0, cp = 0;
    size_t at = utf8_next(s, &first);
    *width = cp_width(first);
    if (first < 0x80 && (at >= s.n || s.p[at] >= 0))
        return at;
    utf8proc_int32_t state = 0;
    uint32_t before = first;
    while (at < s.n) {
        size_t k = utf8_next((str){s.p + at, s.n - at}, &cp);
        if (utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)cp,
                                             &state))
            break;
        int w = cp_width(cp);
        if (cp == 0xFE0F || (first >= 0x1F1E6 && first <= 0x1F1FF))
            w = 2;
        *width = BASE_MAX(*width, w);
        before = cp;
        at += k;
    }
    return at;
}

int utf8_width(str s) {
    int total = 0, w = 0;
    while (s.n) {
        size_t k = utf8_cluster(s, &w);
        total += w;
        s.p += k;
        s.n -= k;
    }
    return total;
}

size_t utf8_fit(str s, int columns) {
    size_t at = 0;
    while (at < s.n) {
        int w = 0;
        size_t k = utf8_cluster((str){s.p + at, s.n - at}, &w);
        if (w > columns)
            break;
        columns -= w;
        at += k;
    }
    return at;
}

static str map_case(arena *a, str s, utf8proc_int32_t (*map)(utf8proc_int32_t)) {
    /* A mapped code point is at most 4 bytes, an unmapped byte stays one. */
    char *out = arena_alloc(a, s.n * 4 + 1);
    size_t n = 0;
    while (s.n) {
        uint32_t cp = 0;
        size_t k = utf8_next(s, &cp);
        if (cp == 0xFFFD && k == 1)
            out[n++] = s.p[0];
        else
            n += utf8_encode((uint32_t)map((utf8proc_int32_t)cp), out + n);
        s.p += k;
        s.n -= k;
    }
    out[n] = 0;
    return (str){out, n};
}

str utf8_lower(arena *a, str s) {
    return map_case(a, s, utf8proc_tolower);
}

str utf8_upper(arena *a, str s) {
    return map_case(a, s, utf8proc_toupper);
}
