/*
 * format_text.c - output modes that write each row at once: csv, tsv, list, json, jsonl, line,
 * html, insert.
 *
 * Invariant: modes that programs read write numbers with value_print, independent of the locale,
 * and BOOLEAN as true or false, so that the same values and types are read back.
 */
#include <stdlib.h>

#include "format_int.h"

static void end_line(format *f) {
    buf_append_char(f->out, '\n');
}

/* ---- csv, tsv, list -------------------------------------------------------------------------- */

void text_csv_begin(format *f) {
    if (f->options.no_headers)
        return;
    value *names = mem_alloc(sizeof *names * (size_t)BASE_MAX(f->ncols, 1));
    for (int i = 0; i < f->ncols; i++)
        names[i] = value_text(str_from(f->names[i]));
    csv_write_row(f->out, names, f->ncols, f->mode->delimiter, STR(""));
    free(names);
}

void text_csv_row(format *f, const batch *b, int row) {
    value *cells = mem_alloc(sizeof *cells * (size_t)BASE_MAX(f->ncols, 1));
    for (int i = 0; i < f->ncols; i++)
        cells[i] = column_get(&b->cols[i], row);
    csv_write_row(f->out, cells, f->ncols, f->mode->delimiter, str_from(f->options.null_text));
    free(cells);
}

void text_list_begin(format *f) {
    if (f->options.no_headers)
        return;
    for (int i = 0; i < f->ncols; i++) {
        if (i)
            buf_append_char(f->out, f->mode->delimiter);
        buf_append_c(f->out, f->names[i]);
    }
    end_line(f);
}

void text_list_row(format *f, const batch *b, int row) {
    for (int i = 0; i < f->ncols; i++) {
        value v = column_get(&b->cols[i], row);
        if (i)
            buf_append_char(f->out, f->mode->delimiter);
        if (v.type == TYPE_NULL)
            buf_append_c(f->out, f->options.null_text ? f->options.null_text : "");
        else
            value_print(f->out, v);
    }
    end_line(f);
}

/* ---- json ------------------------------------------------------------------------------------ */

static void json_object(format *f, const batch *b, int row) {
    buf_append_char(f->out, '{');
    for (int i = 0; i < f->ncols; i++) {
        if (i)
            buf_append_char(f->out, ',');
        buf_append_json(f->out, str_from(f->names[i]));
        buf_append_char(f->out, ':');
        value_print_json(f->out, column_get(&b->cols[i], row));
    }
    buf_append_char(f->out, '}');
}

void text_json_row(format *f, const batch *b, int row) {
    buf_append_c(f->out, f->rows ? ",\n " : "[");
    json_object(f, b, row);
}

void text_json_end(format *f) {
    buf_append_c(f->out, f->rows ? "]\n" : "[]\n");
}

void text_jsonl_row(format *f, const batch *b, int row) {
    json_object(f, b, row);
    end_line(f);
}

/* ---- line ------------------------------------------------------------------------------------ */

/* Makes control characters in column names visible: names may come from a file's header. */
void text_line_begin(format *f) {
    f->mem = arena_new();
    str *shown = ARENA_ARRAY(f->mem, str, f->ncols + 1);
    buf name = {0};
    for (int i = 0; i < f->ncols; i++) {
        buf_clear(&name);
        format_visible(&name, str_from(f->names[i]), f->options.utf8);
        shown[i] = str_copy(f->mem, buf_str(&name));
    }
    buf_free(&name);
    f->state = shown;
}

/* The lines of a wrapped value begin below the first one's start; LEAST columns are needed for that,
 * else they begin at column BELOW of the line after the name. */
void text_line_row(format *f, const batch *b, int row) {
    enum { LEAST = 20, BELOW = 4 };
    const str *names = f->state;
    int width = 0;
    for (int i = 0; i < f->ncols; i++)
        width = BASE_MAX(width, utf8_width(names[i]));
    bool wrap = f->options.width > 0 && f->options.wrap != WRAP_OFF;
    bool below = wrap && f->options.width - width - 3 < LEAST;
    int indent = below ? BELOW : width + 3;
    buf text = {0};
    if (f->rows)
        end_line(f);
    for (int i = 0; i < f->ncols; i++) {
        value v = column_get(&b->cols[i], row);
        buf_clear(&text);
        if (v.type == TYPE_TEXT)
            format_visible_but(&text, v.s, "\n\t", f->options.utf8);
        else
            format_cell(f, &text, v);
        format_pad(f->out, below ? 0 : width - utf8_width(names[i]));
        buf_append_c(f->out, style_on(f->options.color, STYLE_BOLD));
        buf_append_str(f->out, names[i]);
        buf_append_c(f->out, style_off(f->options.color, STYLE_BOLD));
        buf_append_c(f->out, below ? " =\n" : " = ");
        format_pad(f->out, below ? BELOW : 0);
        buf_append_c(f->out, style_on(f->options.color, v.type ? STYLE_PLAIN : STYLE_DIM));
        if (wrap)
            format_wrapped(f->out, buf_str(&text), f->options.width - indent, indent);
        else
            buf_append_str(f->out, buf_str(&text));
        buf_append_c(f->out, style_off(f->options.color, v.type ? STYLE_PLAIN : STYLE_DIM));
        end_line(f);
    }
    buf_free(&text);
}

/* ---- html ------------------------------------------------------------------------------------ */

static void html_text(buf *out, str s) {
    for (size_t i = 0; i < s.n; i++) {
        switch (s.p[i]) {
        case '<':
            buf_append_c(out, "&lt;");
            break;
        case '>':
            buf_append_c(out, "&gt;");
            break;
        case '&':
            buf_append_c(out, "&amp;");
            break;
        case '"':
            buf_append_c(out, "&quot;");
            break;
        default:
            buf_append_char(out, s.p[i]);
        }
    }
}

void text_html_begin(format *f) {
    buf_append_c(f->out, "<table>\n");
    if (f->options.no_headers)
        return;
    buf_append_c(f->out, "<tr>");
    for (int i = 0; i < f->ncols; i++) {
        buf_append_c(f->out, "<th>");
        html_text(f->out, str_from(f->names[i]));
        buf_append_c(f->out, "</th>");
    }
    buf_append_c(f->out, "</tr>\n");
}

void text_html_row(format *f, const batch *b, int row) {
    buf cell = {0};
    buf_append_c(f->out, "<tr>");
    for (int i = 0; i < f->ncols; i++) {
        value v = column_get(&b->cols[i], row);
        buf_append_c(f->out, "<td>");
        buf_clear(&cell);
        if (v.type != TYPE_NULL || f->options.null_text)
            format_cell(f, &cell, v);
        html_text(f->out, buf_str(&cell));
        buf_append_c(f->out, "</td>");
    }
    buf_append_c(f->out, "</tr>\n");
    buf_free(&cell);
}

void text_html_end(format *f) {
    buf_append_c(f->out, "</table>\n");
}

/* ---- insert ---------------------------------------------------------------------------------- */

void text_insert_row(format *f, const batch *b, int row) {
    const char *table = f->options.insert_table ? f->options.insert_table : "t";
    buf_append_c(f->out, "INSERT INTO ");
    sql_print_name(f->out, str_from(table));
    buf_append_c(f->out, " VALUES (");
    for (int i = 0; i < f->ncols; i++) {
        if (i)
            buf_append_c(f->out, ", ");
        value_print_sql(f->out, column_get(&b->cols[i], row));
    }
    buf_append_c(f->out, ");\n");
}
