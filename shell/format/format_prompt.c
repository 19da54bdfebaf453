/*
 * format_prompt.c - shows the texts of EXPLAIN (PROMPT) and EXPLAIN (TREE) on the screen.
 *
 * Invariant: no character of a prompt is dropped but a blank where a line is wrapped, and control
 * characters become visible. exec/llm/llm_show.c says what the lines look like.
 */
#include <string.h>

#include "format_int.h"

#define BAR "│ "
#define BAR_ENDS "├ "
#define MARK "▏"
#define TOKEN_BEGINS "⟦"
#define TOKEN_ENDS "⟧"

enum { ROOM_MIN = 20 }; /* lines are not wrapped to fewer columns than this */

typedef struct prompt_printer {
    buf *out;
    bool utf8, color;
    bool marked;          /* the shared prefix ends in this line, at the mark */
    bool shared, control; /* the next character is part of the shared prefix, of a control token */
} prompt_printer;

static bool begins_with(str s, const char *with) {
    size_t n = strlen(with);
    return s.n >= n && memcmp(s.p, with, n) == 0;
}

static void put(prompt_printer *p, str text) {
    buf visible = {0};
    format_visible(&visible, text, p->utf8);
    if (p->utf8)
        buf_append_str(p->out, buf_str(&visible));
    else
        format_ascii(p->out, buf_str(&visible));
    buf_free(&visible);
}

static style style_now(const prompt_printer *p) {
    return p->control ? STYLE_KEYWORD : p->shared ? STYLE_DIM : STYLE_PLAIN;
}

/* Prints a part of a prompt's line; the style changes at the marks in it. */
static void put_styled(prompt_printer *p, str text) {
    while (text.n) {
        size_t n = 0;
        bool begins = begins_with(text, TOKEN_BEGINS), ends = false, mark = false;
        p->control = p->control || begins;
        while (n < text.n && !ends && !mark) {
            str rest = {text.p + n, text.n - n};
            if (n > 0 && !p->control && begins_with(rest, TOKEN_BEGINS))
                break;
            ends = p->control && begins_with(rest, TOKEN_ENDS);
            mark = p->marked && p->shared && !p->control && begins_with(rest, MARK);
            n += ends ? strlen(TOKEN_ENDS) : mark ? strlen(MARK) : 1;
        }
        buf_append_c(p->out, style_on(p->color, style_now(p)));
        put(p, (str){text.p, n});
        buf_append_c(p->out, style_off(p->color, style_now(p)));
        p->control = p->control && !ends;
        p->shared = p->shared && !mark;
        text = (str){text.p + n, text.n - n};
    }
}

/* Removes from *line what fits the columns, and returns it. */
static str next_part(str *line, int columns) {
    str all = *line;
    if (columns >= ROOM_MIN && utf8_fit(all, columns) < all.n)
        return format_wrap(line, columns);
    *line = (str){all.p + all.n, 0};
    return all;
}

/* Prints a line of a prompt after its bar, wrapped to `columns`; a bar is repeated as long as the
 * shared prefix lasts. */
static void prompt_line(prompt_printer *p, str bar, str line, int columns) {
    p->shared = *bar.p != ' ';
    p->marked = begins_with(bar, BAR_ENDS);
    p->control = false;
    bool first = true;
    do {
        str part = next_part(&line, columns);
        str before = first ? bar : p->shared ? STR(BAR) : STR("  ");
        buf_append_c(p->out, style_on(p->color, p->shared ? STYLE_BAR : STYLE_PLAIN));
        put(p, part.n ? before : str_trim(before, " "));
        buf_append_c(p->out, style_off(p->color, p->shared ? STYLE_BAR : STYLE_PLAIN));
        put_styled(p, part);
        buf_append_char(p->out, '\n');
        first = false;
    } while (line.n);
}

/* Prints a line that is no part of a prompt. */
static void wrapped(prompt_printer *p, str line, int columns, style s) {
    do {
        str part = next_part(&line, columns);
        buf_append_c(p->out, style_on(p->color, s));
        put(p, part);
        buf_append_c(p->out, style_off(p->color, s));
        buf_append_char(p->out, '\n');
    } while (line.n);
}

void format_prompts(buf *out, str text, int columns, bool utf8, bool color) {
    prompt_printer p = {.out = out, .utf8 = utf8, .color = color};
    while (text.n) {
        str line = str_split_next(&text, '\n'), bar = {line.p, 0};
        if (begins_with(line, BAR) || begins_with(line, BAR_ENDS))
            bar.n = strlen(BAR);
        else if (begins_with(line, "  "))
            bar.n = 2;
        else if (str_equal(line, STR("│")))
            bar.n = line.n;
        if (bar.n) {
            prompt_line(&p, bar, (str){line.p + bar.n, line.n - bar.n}, columns - 2);
            continue;
        }
        wrapped(&p, line, columns, begins_with(line, "LLM#") ? STYLE_BOLD : STYLE_PLAIN);
    }
}

void format_cut(buf *out, str line, int columns) {
    bool fits = utf8_width(line) <= columns;
    str part = fits ? line : format_wrap(&line, BASE_MAX(columns - 2, 1));
    while (part.n && part.p[part.n - 1] == ' ')
        part.n--;
    buf_append_str(out, part);
    buf_append_c(out, fits ? "" : " …");
}

void format_tree(buf *out, str text, int columns, bool utf8) {
    int room = columns > 0 ? columns : FORMAT_TREE_COLUMNS;
    prompt_printer p = {.out = out, .utf8 = utf8};
    while (text.n) {
        str line = str_split_next(&text, '\n');
        bool branch = line.n && *line.p == ' ';
        if (!branch || utf8_width(line) <= room) {
            wrapped(&p, line, columns, STYLE_PLAIN);
            continue;
        }
        buf cut = {0};
        format_cut(&cut, line, room);
        put(&p, buf_str(&cut));
        buf_append_char(out, '\n');
        buf_free(&cut);
    }
}
