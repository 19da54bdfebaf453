/*
 * format.c - the table of output modes, the calls of their functions, and text functions that modes
 * share.
 *
 * Invariant: formatting is a pure function of options and rows; it never asks the terminal.
 */
#include <string.h>

#include "format_int.h"

static const format_mode modes[] = {
    {"box", "a table drawn with lines, fitted to the terminal", 0, true, true, box_begin, box_row,
     box_end},
    {"csv", "comma-separated values", ',', false, false, text_csv_begin, text_csv_row, NULL},
    {"tsv", "tab-separated values", '\t', false, false, text_csv_begin, text_csv_row, NULL},
    {"json", "one array of objects", 0, false, false, NULL, text_json_row, text_json_end},
    {"jsonl", "one object per line", 0, false, false, NULL, text_jsonl_row, NULL},
    {"line", "one value per line", 0, false, true, text_line_begin, text_line_row, NULL},
    {"list", "values separated by |", '|', false, false, text_list_begin, text_list_row, NULL},
    {"markdown", "a Markdown table", 0, true, false, box_begin, box_row, box_markdown_end},
    {"html", "an HTML table", 0, false, false, text_html_begin, text_html_row, text_html_end},
    {"insert", "INSERT statements", 0, false, false, NULL, text_insert_row, NULL},
};

const format_mode *format_modes(size_t *count) {
    *count = BASE_COUNT(modes);
    return modes;
}

/* Names of modes in sqlite3, duckdb and psql, and the names of the modes in kvasir. */
static const struct {
    const char *alias, *name;
} aliases[] = {
    {"ndjson", "jsonl"},  {"jsonlines", "jsonl"}, {"tabs", "tsv"},     {"md", "markdown"},
    {"vertical", "line"}, {"table", "box"},       {"column", "box"},   {"duckbox", "box"},
    {"aligned", "box"},   {"wrapped", "box"},     {"quote", "insert"},
};

const format_mode *format_mode_find(const char *name) {
    str wanted = str_from(name);
    for (size_t i = 0; i < BASE_COUNT(aliases); i++)
        if (str_equal_nocase(wanted, str_from(aliases[i].alias)))
            wanted = str_from(aliases[i].name);
    for (size_t i = 0; i < BASE_COUNT(modes); i++)
        if (str_equal_nocase(wanted, str_from(modes[i].name)))
            return &modes[i];
    return NULL;
}

void format_begin(format *f, const format_mode *mode, const format_options *options, int ncols,
                  const char *const *names, const value_type *types, buf *out) {
    *f = (format){.mode = mode,
                  .options = *options,
                  .ncols = ncols,
                  .names = names,
                  .types = types,
                  .out = out};
    if (mode->begin)
        mode->begin(f);
}

void format_rows(format *f, const batch *b) {
    for (int row = 0; row < b->rows; row++) {
        f->mode->row(f, b, row);
        f->rows++;
    }
}

int format_full_error(const format *f, err *e) {
    return f->mem ? arena_full_error(f->mem, e) : 0;
}

bool format_drain(format *f) {
    if (f->options.drain != NULL && !f->stopped)
        f->stopped = !f->options.drain(f->options.drain_ctx);
    return !f->stopped;
}

void format_end(format *f) {
    if (f->mode->end)
        f->mode->end(f);
    if (!f->mode->needs_all)
        f->rows_kept = f->rows;
    format_free(f);
}

void format_free(format *f) {
    arena_free(f->mem);
    f->mem = NULL;
    f->state = NULL;
}

void format_cell(const format *f, buf *out, value v) {
    if (v.type == TYPE_NULL)
        buf_append_c(out, f->options.null_text ? f->options.null_text : "NULL");
    else if (v.type == TYPE_BLOB)
        value_print_sql(out, v);
    else
        value_print(out, v);
}

/* Whether a character from U+0080 to U+009F starts at text.p[i]. Terminals interpret these like the
 * ASCII control characters. */
static bool is_c1_control(str text, size_t i) {
    return i + 1 < text.n && (unsigned char)text.p[i] == 0xc2 &&
           (unsigned char)text.p[i + 1] < 0xa0;
}

void format_visible(buf *out, str text, bool utf8) {
    format_visible_but(out, text, "", utf8);
}

void format_visible_but(buf *out, str text, const char *kept, bool utf8) {
    size_t plain = 0;
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        bool second = is_c1_control(text, i);
        if ((c >= 0x20 && c != 0x7f && !second) || (c && strchr(kept, c)))
            continue;
        buf_append(out, text.p + plain, i - plain);
        i += second;
        plain = i + 1;
        if (!utf8) {
            buf_append_char(out, c == '\n' || c == '\t' ? ' ' : '?');
            continue;
        }
        if (second) {
            buf_append_c(out, "\uFFFD");
            continue;
        }
        char glyph[4]; /* U+2400 + c is the symbol of control character c */
        buf_append(out, glyph, utf8_encode(c == 0x7f ? 0x2421u : 0x2400u + c, glyph));
    }
    buf_append(out, text.p + plain, text.n - plain);
}

void format_pad(buf *out, int columns) {
    static const char blanks[] = "                                                                ";
    for (int n = columns; n > 0; n -= (int)sizeof blanks - 1)
        buf_append(out, blanks, (size_t)BASE_MIN(n, (int)sizeof blanks - 1));
}

void format_columns(buf *out, const char *const *texts, const style *styles, int n, int columns) {
    int widest = 1;
    for (int i = 0; i < n; i++)
        widest = BASE_MAX(widest, utf8_width(str_from(texts[i])));
    int across = BASE_MAX((columns + 2) / (widest + 2), 1), down = (n + across - 1) / across;
    for (int r = 0; r < down; r++) {
        for (int i = r; i < n; i += down) {
            style_append(out, styles != NULL, styles ? styles[i] : STYLE_PLAIN, texts[i]);
            if (i + down < n)
                format_pad(out, widest + 2 - utf8_width(str_from(texts[i])));
        }
        buf_append_char(out, '\n');
    }
}

void format_entry(buf *out, str left, int indent, str text, int columns) {
    enum { LEAST = 20 };
    int room = columns - indent;
    buf_append_str(out, left);
    if (columns > 0 && room < LEAST) {
        buf_append_char(out, '\n');
        indent = 4;
        room = columns - indent;
        format_pad(out, indent);
    } else {
        format_pad(out, BASE_MAX(indent - utf8_width(left), 2));
    }
    while (room >= LEAST && utf8_width(text) > room) {
        buf_append_str(out, format_wrap(&text, room));
        buf_append_char(out, '\n');
        format_pad(out, indent);
    }
    buf_append_str(out, text);
    buf_append_char(out, '\n');
}
