/*
 * format_wrap.c - wraps texts into lines, for cells, records and lists.
 *
 * Invariant: lines are cut between grapheme clusters only, and each call takes at least one byte of
 * any bytes.
 */
#include <string.h>

#include "format_int.h"

/* Characters that may not begin (no_start) or end (no_end) a line that is broken beside a wide
 * character, as in CJK typesetting. Other scripts are broken at blanks only. */
static const char no_start[] = ",.;:!?)]}%、。，．・：；？！）］｝〕〉》」』】’”…‥々ー";
static const char no_end[] = "([{（［｛〔〈《「『【‘“";

typedef struct cluster {
    str text;
    int width;
    bool blank; /* a line may end before it; dropped there */
} cluster;

static cluster next_cluster(str text) {
    cluster c = {.text = text};
    c.text.n = utf8_cluster(text, &c.width);
    c.blank = str_equal(c.text, STR(" ")) || str_equal(c.text, STR("\u3000")) ||
              str_equal(c.text, STR("\u200b"));
    return c;
}

/* Whether the list has the first character of the cluster. */
static bool is_one_of(const char *list, cluster c) {
    uint32_t cp;
    char first[8] = {0};
    size_t n = utf8_next(c.text, &cp);
    memcpy(first, c.text.p, n);
    return strstr(list, first) != NULL;
}

/* Whether a line may end between two clusters without a blank between them. */
static bool may_part(cluster left, cluster right) {
    return (left.width > 1 || right.width > 1) && !is_one_of(no_end, left) &&
           !is_one_of(no_start, right);
}

str format_wrap(str *text, int columns) {
    size_t at = 0, end = 0;    /* end: after the last cluster that is not blank */
    size_t stop = 0, next = 0; /* the last place to break: the line's end, the next line's start */
    int used = 0;
    cluster before = {0};
    for (; at < text->n && text->p[at] != '\n'; at += before.text.n) {
        cluster c = next_cluster((str){text->p + at, text->n - at});
        if (end > 0 && !c.blank && (before.blank || may_part(before, c))) {
            stop = end;
            next = at;
        }
        if (!c.blank && used + c.width > columns && at > 0) {
            str line = {text->p, stop > 0 ? stop : end};
            next = stop > 0 ? next : at;
            *text = (str){text->p + next, text->n - next};
            return line;
        }
        used += c.width;
        end = c.blank ? end : at + c.text.n;
        before = c;
    }
    str line = {text->p, end};
    at += at < text->n; /* the line feed */
    *text = (str){text->p + at, text->n - at};
    return line;
}

static void expand_tabs(buf *out, str text) {
    enum { TAB = 8 };
    for (size_t from = 0, i = 0; i <= text.n; i++) { /* `from` is at a multiple of TAB */
        if (i < text.n && text.p[i] != '\t' && text.p[i] != '\n')
            continue;
        str part = {text.p + from, i - from};
        buf_append_str(out, part);
        if (i < text.n && text.p[i] == '\t')
            format_pad(out, TAB - utf8_width(part) % TAB);
        else if (i < text.n)
            buf_append_char(out, '\n');
        from = i + 1;
    }
}

void format_wrapped(buf *out, str text, int columns, int indent) {
    buf expanded = {0};
    expand_tabs(&expanded, text);
    str rest = buf_str(&expanded);
    buf_append_str(out, format_wrap(&rest, columns));
    while (rest.n) {
        str line = format_wrap(&rest, columns);
        buf_append_char(out, '\n');
        format_pad(out, line.n ? indent : 0);
        buf_append_str(out, line);
    }
    buf_free(&expanded);
}
