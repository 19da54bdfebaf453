/*
 * format_plan.c - wraps the lines of an EXPLAIN plan to the screen; continuation lines repeat the
 * vertical branches of the plan tree. Also replaces box characters on an ASCII terminal.
 */
#include <string.h>

#include "format_int.h"

/* STEP: a continuation line is indented by this many columns more than the line it continues.
 * ROOM_MIN: lines are not wrapped if their continuations would have fewer columns. */
enum { STEP = 4, ROOM_MIN = 20 };

/* `below`: what continuation lines have below a branch; `ascii`: what an ASCII terminal shows. */
static const struct {
    const char *glyph, *below, *ascii;
} glyphs[] = {{" ", " ", " "}, {"│", "│", "|"}, {"├", "│", "|"},  {"└", " ", "`"},
              {"─", " ", "-"}, {"≈", "", "~"},  {"…", "", "..."}, {"–", "", "-"},
              {"▏", "", "|"},  {"⟦", "", "[["}, {"⟧", "", "]]"},  {"↵", "", "\\n"}};
enum { BRANCHES = 5 }; /* the first glyphs are the branches of the plan tree */

static int glyph_at(str s, int count) {
    for (int i = 0; i < count; i++) {
        size_t n = strlen(glyphs[i].glyph);
        if (s.n >= n && memcmp(s.p, glyphs[i].glyph, n) == 0)
            return i;
    }
    return -1;
}

void format_ascii(buf *out, str text) {
    while (text.n) {
        uint32_t cp;
        int i = glyph_at(text, (int)BASE_COUNT(glyphs));
        size_t n = i >= 0 ? strlen(glyphs[i].glyph) : utf8_next(text, &cp);
        buf_append(out, i >= 0 ? glyphs[i].ascii : text.p, i >= 0 ? strlen(glyphs[i].ascii) : n);
        text = (str){text.p + n, text.n - n};
    }
}

static void put(buf *out, str text, bool utf8) {
    if (utf8)
        buf_append_str(out, text);
    else
        format_ascii(out, text);
}

/* Returns how many bytes of the line fit in `columns`. The part ends at a blank if there is one
 * after the `indent` bytes of branches. */
static size_t fitting(str line, size_t indent, int columns) {
    if (utf8_width(line) <= columns)
        return line.n;
    size_t n = utf8_fit(line, columns), blank = n;
    while (blank > indent && line.p[blank] != ' ')
        blank--;
    return blank > indent ? blank : n;
}

/* Removes blanks between the text and the figures of a node's line, so that the line fits `columns`
 * if possible. */
static str narrowed(str line, size_t indent, int columns, buf *held) {
    size_t from = indent, to;
    int excess = utf8_width(line) - columns;
    while (from + 1 < line.n && (line.p[from] != ' ' || line.p[from + 1] != ' '))
        from++;
    for (to = from; to < line.n && line.p[to] == ' ' && to + 2 < line.n && line.p[to + 2] == ' ' &&
                    (int)(to - from) < excess;)
        to++;
    buf_append(held, line.p, from);
    buf_append(held, line.p + to, line.n - to);
    return buf_str(held);
}

static void plan_line(buf *out, str line, int columns, bool utf8) {
    buf below = {0}, held = {0};
    size_t indent = 0;
    bool node = true; /* false: a line of a node's details, whose last branch is │ */
    for (int i; (i = glyph_at((str){line.p + indent, line.n - indent}, BRANCHES)) >= 0;) {
        buf_append_c(&below, glyphs[i].below);
        indent += strlen(glyphs[i].glyph);
        node = *glyphs[i].glyph == ' ' ? node : strcmp(glyphs[i].glyph, "│") != 0;
    }
    format_pad(&below, STEP);
    int deep = utf8_width(buf_str(&below));
    bool wrap = columns - deep >= ROOM_MIN;
    if (wrap && node)
        line = narrowed(line, indent, columns, &held);
    for (int room = columns; line.n; room = columns - deep, indent = 0) {
        size_t n = wrap ? fitting(line, indent, room) : line.n, end = n;
        while (end > 0 && line.p[end - 1] == ' ')
            end--;
        put(out, (str){line.p, end}, utf8);
        buf_append_char(out, '\n');
        while (n < line.n && line.p[n] == ' ')
            n++;
        line = (str){line.p + n, line.n - n};
        if (line.n)
            put(out, buf_str(&below), utf8);
    }
    buf_free(&below);
    buf_free(&held);
}

void format_plan(buf *out, str text, int columns, bool utf8) {
    while (text.n) {
        str line = str_split_next(&text, '\n');
        if (line.n)
            plan_line(out, line, columns, utf8);
        else
            buf_append_char(out, '\n');
    }
}
