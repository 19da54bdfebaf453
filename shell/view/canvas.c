/*
 * canvas.c - writes text and bars into the cells of the live view's picture.
 *
 * Invariant: only cells of the picture are written; what does not fit is cut at its edges.
 */
#include <string.h>

#include "canvas_int.h"

void canvas_cell(canvas *c, int x, int y, str grapheme, view_attr attr) {
    view_cell *cell = &c->cells[y * c->w + x];
    size_t n = BASE_MIN(grapheme.n, sizeof cell->text - 1);
    memcpy(cell->text, grapheme.p, n);
    cell->text[n] = 0;
    cell->attr = (uint8_t)attr;
}

int canvas_put(canvas *c, int x, int y, view_attr attr, const char *text) {
    if (y < 0 || y >= c->h)
        return x;
    for (str s = str_from(text); s.n && x < c->w;) {
        size_t n = utf8_fit(s, 1);
        int width = 1;
        if (n == 0) {
            n = utf8_fit(s, 2);
            width = 2;
        }
        if (n == 0 || x + width > c->w)
            break;
        canvas_cell(c, x, y, (str){s.p, n}, attr);
        if (width == 2)
            canvas_cell(c, x + 1, y, (str){"", 0}, attr);
        x += width;
        s = (str){s.p + n, s.n - n};
    }
    return x;
}

int canvas_put_buf(canvas *c, int x, view_attr attr, buf *text) {
    x = canvas_put(c, x, c->row, attr, text->p ? text->p : "");
    buf_free(text);
    return x;
}

int canvas_put_visible(canvas *c, int x, view_attr attr, const char *text) {
    buf shown = {0};
    format_visible(&shown, str_from(text), c->v->utf8);
    return canvas_put_buf(c, x, attr, &shown);
}

void canvas_label(canvas *c, const char *text) {
    canvas_put_visible(c, 1, VIEW_DIM, text);
}

int canvas_bar(canvas *c, int x, int columns, double part, view_attr attr) {
    int steps = (int)(BASE_MIN(BASE_MAX(part, 0.0), 1.0) * columns * 8 + 0.5);
    for (int i = 0; i < columns; i++)
        canvas_put(c, x + i, c->row, attr, progress_bar(steps - 8 * i, c->v->utf8));
    return x + columns;
}

void canvas_put_count(canvas *c, int x, uint64_t n) {
    enum { COUNT_COLUMNS = 10 };
    buf text = {0};
    buf_append_count(&text, n);
    canvas_put_buf(c, x + COUNT_COLUMNS - BASE_MIN((int)text.n, (int)COUNT_COLUMNS), VIEW_PLAIN,
                   &text);
}

int canvas_put_glyphs(canvas *c, int x, view_attr attr, buf *text) {
    buf ascii = {0};
    if (c->v->utf8)
        return canvas_put_buf(c, x, attr, text);
    format_ascii(&ascii, buf_str(text));
    buf_free(text);
    return canvas_put_buf(c, x, attr, &ascii);
}

void canvas_put_wrapped(canvas *c, int x, int last_row, view_attr attr, const char *text) {
    for (str left = str_from(text); left.n && c->row < last_row; c->row++) {
        str line = format_wrap(&left, BASE_MAX(c->w - x, 1));
        buf shown = {0};
        buf_append_str(&shown, line);
        canvas_put_buf(c, x, attr, &shown);
    }
}

void view_append_clock(buf *out, double seconds) {
    long s = (long)seconds;
    if (s >= 3600)
        buf_printf(out, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        buf_printf(out, "%ld:%02ld", s / 60, s % 60);
}

void view_append_inputs(buf *out, const exec_progress *x) {
    buf_append_count(out, x->rows_done);
    buf_append_c(out, " of ");
    buf_append_count(out, x->rows_total);
}
