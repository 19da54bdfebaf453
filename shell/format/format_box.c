/*
 * format_box.c - modes box and markdown, which keep all rows because column widths depend on every
 * cell.
 *
 *   chunk.cells [rows][ncols]   each cell's text and its width
 *
 * Invariant: every line of a box has the same width, as utf8_width counts it. A result too wide to
 * leave each text column MIN_TEXT columns is shown as records, one field below the other.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "format_int.h"

enum { MIN_TEXT = 8, ROWS_PER_CHUNK = 256, BOX_HEAP_BYTES = 64 << 20 };

/* Without --wrap a box wraps if a text column narrower than NARROW columns would cut texts. */
enum { NARROW = 20 };
/* A cell then has at most LEAST_LINES lines; if there are few rows, at most ALL_LINES divided by
 * their number. With --wrap it has as many as it needs. */
enum { LEAST_LINES = 4, ALL_LINES = 40 };
/* WORD: width up to which all columns are widened before one is widened further. MIN_VALUE: a record
 * with fewer columns for its values has them below the names. */
enum { WORD = 12, MIN_VALUE = 10 };

typedef struct cell {
    str text;  /* control characters made visible, except line feeds */
    int width; /* as one line; after --wrap: of the widest line */
    style look;
} cell;

typedef struct chunk chunk;
struct chunk {
    chunk *next;
    int rows;
    cell cells[]; /* [ROWS_PER_CHUNK][ncols] */
};

typedef struct box_state {
    chunk *first, *last;
    cell *heads; /* [ncols] column names */
    int *width;  /* [ncols] widest cell or heading; after fit(), the width drawn */
    int *data;   /* [ncols] widest cell, without the heading */
    bool *right; /* [ncols] whether the column is right-aligned */
    int lines;   /* most lines of a cell; the last one is cut */
    bool wraps;  /* a cell needs more than one line */
} box_state;

/* The characters of a box. Each horizontal rule has a left end, a crossing and a right end. */
typedef struct frame {
    const char *top[3], *middle[3], *bottom[3];
    const char *line; /* horizontal */
    const char *bar;  /* vertical */
    const char *more; /* at the end of a text that was cut */
} frame;

static const frame frame_utf8 = {
    {"┌", "┬", "┐"}, {"├", "┼", "┤"}, {"└", "┴", "┘"}, "─", "│", "…",
};
static const frame frame_ascii = {
    {"+", "+", "+"}, {"+", "+", "+"}, {"+", "+", "+"}, "-", "|", "~",
};

static void markdown_text(buf *out, str text) {
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] == '\n')
            buf_append_c(out, "<br>");
        else if (text.p[i] == '|')
            buf_append_c(out, "\\|");
        else
            buf_append_char(out, text.p[i]);
}

static bool is_markdown(const format *f) {
    return f->mode->end == box_markdown_end;
}

static bool has_lines(str text) {
    return text.n > 0 && memchr(text.p, '\n', text.n) != NULL;
}

static int widest_line(str text) {
    int widest = 0;
    while (text.n) {
        int width = utf8_width(str_split_next(&text, '\n'));
        widest = BASE_MAX(widest, width);
    }
    return widest;
}

/* Makes a cell of a text. `shown` is a scratch buffer. */
static cell make_cell(format *f, str text, const char *kept, buf *shown) {
    cell made = {0};
    buf_clear(shown);
    if (is_markdown(f))
        markdown_text(shown, text);
    else
        format_visible_but(shown, text, kept, f->options.utf8);
    made.text = str_copy(f->mem, buf_str(shown));
    made.width = f->options.wrap == WRAP_ON ? widest_line(made.text) : utf8_width(made.text);
    return made;
}

void box_begin(format *f) {
    f->mem = arena_new_spilling(BOX_HEAP_BYTES, f->options.space);
    box_state *s = ARENA_NEW(f->mem, box_state);
    s->heads = ARENA_ARRAY(f->mem, cell, f->ncols + 1);
    s->width = ARENA_ARRAY(f->mem, int, f->ncols + 1);
    s->data = ARENA_ARRAY(f->mem, int, f->ncols + 1);
    s->right = ARENA_ARRAY(f->mem, bool, f->ncols + 1);
    buf shown = {0};
    for (int i = 0; i < f->ncols; i++) {
        s->heads[i] = make_cell(f, str_from(f->names[i]), "", &shown);
        s->heads[i].look = STYLE_BOLD;
        s->right[i] = f->types[i] == TYPE_INTEGER || f->types[i] == TYPE_REAL;
        bool headless =
            f->options.no_headers && !is_markdown(f); /* Markdown tables need a heading */
        s->width[i] = headless ? 1 : s->heads[i].width;
        if (f->options.types_row && !headless && !is_markdown(f))
            s->width[i] = BASE_MAX(s->width[i], (int)strlen(type_name(f->types[i])));
    }
    buf_free(&shown);
    f->state = s;
}

static cell *next_row(format *f) {
    box_state *s = f->state;
    if (s->last == NULL || s->last->rows == ROWS_PER_CHUNK) {
        size_t cells = sizeof(cell) * (size_t)f->ncols * ROWS_PER_CHUNK;
        chunk *c = arena_zalloc(f->mem, sizeof(chunk) + cells);
        if (s->last)
            s->last->next = c;
        else
            s->first = c;
        s->last = c;
    }
    return &s->last->cells[s->last->rows++ * f->ncols];
}

void box_row(format *f, const batch *b, int row) {
    if (f->options.max_rows && f->rows_kept >= f->options.max_rows)
        return;
    f->rows_kept++;
    box_state *s = f->state;
    cell *cells = next_row(f);
    buf raw = {0}, shown = {0};
    for (int i = 0; i < f->ncols; i++) {
        value v = column_get(&b->cols[i], row);
        buf_clear(&raw);
        format_cell(f, &raw, v);
        cells[i] = make_cell(f, buf_str(&raw), "\n", &shown);
        cells[i].look = v.type == TYPE_NULL ? STYLE_DIM : STYLE_PLAIN;
        s->wraps |= f->options.wrap == WRAP_ON && has_lines(cells[i].text);
        s->width[i] = BASE_MAX(s->width[i], cells[i].width);
        s->data[i] = BASE_MAX(s->data[i], cells[i].width);
    }
    buf_free(&raw);
    buf_free(&shown);
}

/* ---- fitting ------------------------------------------------------------------------------------
 *
 * If the screen is too narrow for all columns, width is given out in this order until it is used
 * up:
 *   1. numbers, in full: they are never cut
 *   2. MIN_TEXT for each other column
 *   3. the width that 90 % of a column's cells need: columns that need at most 1.5 times an equal
 *      share get it in full; then the narrowest column that needs more is widened by one, until the
 *      screen is full
 *   4. the width of the longest cells
 *   5. the width of headings
 *
 * If texts are wrapped, 3. gives full width up to 0.75 times an equal share, then WORD to each
 * column, and 4. goes to the column whose longest cell needs most lines, so that rows stay low.
 */

static int bar_columns(const format *f) {
    return 3 * f->ncols + 1;
}

static int total_width(const format *f, const int *width) {
    int total = 0;
    for (int i = 0; i < f->ncols; i++)
        total += width[i];
    return total;
}

/* Returns the width that 90 % of the cells of column k do not exceed, but at most `most`. */
static int usual_width(const format *f, int k, int most) {
    const box_state *s = f->state;
    uint64_t *cells = mem_zalloc(sizeof *cells * (size_t)(most + 1)), wider = 0;
    for (const chunk *c = s->first; c; c = c->next)
        for (int r = 0; r < c->rows; r++)
            cells[BASE_MIN(c->cells[r * f->ncols + k].width, most)]++;
    int width = most;
    while (width > 0 && (wider += cells[width]) <= f->rows_kept / 10)
        width--;
    free(cells);
    return width;
}

/* Widens the narrowest column below its target by one, until all columns have their target or the
 * room is used. Returns the unused room. */
static int widen(const format *f, int *width, const int *target, int room) {
    for (; room > 0; room--) {
        int least = -1;
        for (int i = 0; i < f->ncols; i++)
            if (width[i] < target[i] && (least < 0 || width[i] < width[least]))
                least = i;
        if (least < 0)
            break;
        width[least]++;
    }
    return room;
}

/* Gives columns their full target, the smallest target first, while the target is at most `quarters`
 * quarters of an equal share of the room. Returns the unused room. */
static int widen_to_target(const format *f, int *width, const int *target, int room, int quarters) {
    for (;;) {
        int least = -1, open = 0, shared = room;
        for (int i = 0; i < f->ncols; i++) {
            if (width[i] >= target[i])
                continue;
            open++;
            shared += width[i];
            if (least < 0 || target[i] < target[least])
                least = i;
        }
        if (least < 0 || target[least] - width[least] > room ||
            target[least] * 4 * open > shared * quarters)
            return room;
        room -= target[least] - width[least];
        width[least] = target[least];
    }
}

/* Returns the width that .width sets for column i; 0: none. */
static int asked_width(const format *f, int i) {
    return i < f->options.nwidths ? abs(f->options.widths[i]) : 0;
}

/* Widens the column whose longest cell needs most lines by one, until none needs a second line or
 * the room is used. Returns the unused room. */
static int widen_tallest(const format *f, int *width, int room) {
    const int *data = ((const box_state *)f->state)->data;
    for (; room > 0; room--) {
        int tallest = -1;
        for (int i = 0; i < f->ncols; i++)
            if (width[i] < data[i] && (tallest < 0 || (int64_t)data[i] * width[tallest] >
                                                          (int64_t)data[tallest] * width[i]))
                tallest = i;
        if (tallest < 0)
            break;
        width[tallest]++;
    }
    return room;
}

/* Sets s->width, for cells that are wrapped or cut. False: the screen is too narrow for a table. */
static bool fit_columns(format *f, bool wrap) {
    box_state *s = f->state;
    int room = f->options.width - bar_columns(f);
    if (f->options.width == 0 || total_width(f, s->width) <= room)
        return true;
    int *width = ARENA_ARRAY(f->mem, int, f->ncols), *usual = ARENA_ARRAY(f->mem, int, f->ncols);
    int *word = ARENA_ARRAY(f->mem, int, f->ncols);
    for (int i = 0; i < f->ncols; i++) {
        int least = BASE_MIN(s->width[i], MIN_TEXT);
        width[i] = s->right[i] ? BASE_MAX(s->data[i], least) : least;
        usual[i] = asked_width(f, i) ? s->data[i] : usual_width(f, i, BASE_MAX(room, 0));
        word[i] = BASE_MIN(usual[i], WORD);
    }
    room -= total_width(f, width);
    if (room < 0)
        return false;
    room = widen_to_target(f, width, usual, room, wrap ? 3 : 6);
    room = widen(f, width, wrap ? word : usual, room);
    room = wrap ? widen_tallest(f, width, room) : widen(f, width, s->data, room);
    widen(f, width, s->width, room);
    s->width = width;
    return true;
}

/* Returns the most lines of a cell, in a box that cuts texts in narrow columns, or does not. */
static int lines_allowed(const format *f, bool narrow) {
    if (f->options.wrap == WRAP_ON)
        return INT_MAX;
    if (f->options.wrap == WRAP_OFF || !narrow)
        return 1;
    int rows = (int)BASE_MIN(f->rows_kept, (uint64_t)ALL_LINES);
    return BASE_MAX(ALL_LINES / BASE_MAX(rows, 1), LEAST_LINES);
}

/* Sets s->width, s->lines and s->wraps. False: the screen is too narrow for a table. */
static bool fit(format *f) {
    box_state *s = f->state;
    for (int i = 0; i < f->ncols; i++) {
        if (!asked_width(f, i))
            continue;
        s->wraps |= f->options.wrap == WRAP_ON && s->data[i] > asked_width(f, i);
        s->width[i] = s->data[i] = asked_width(f, i);
        s->right[i] |= f->options.widths[i] < 0;
    }
    int *whole = s->width;
    if (!fit_columns(f, f->options.wrap == WRAP_ON)) {
        s->lines = f->options.wrap == WRAP_OFF ? 1 : INT_MAX;
        return false;
    }
    bool cut = false, narrow = false; /* whether one-line cells are cut, and some to < NARROW */
    for (int i = 0; i < f->ncols; i++) {
        cut |= s->data[i] > s->width[i];
        narrow |= s->data[i] > s->width[i] && s->width[i] < NARROW;
    }
    s->lines = lines_allowed(f, narrow);
    if (f->options.wrap == WRAP_AUTO && s->lines > 1) {
        s->width = whole;
        fit_columns(f, true);
    }
    s->wraps |= s->lines > 1 && cut;
    return true;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static void draw_rule(format *f, const frame *fr, const char *const ends[3]) {
    const box_state *s = f->state;
    buf_append_c(f->out, style_on(f->options.color, STYLE_DIM));
    buf_append_c(f->out, ends[0]);
    for (int i = 0; i < f->ncols; i++) {
        if (i)
            buf_append_c(f->out, ends[1]);
        for (int k = 0; k < s->width[i] + 2; k++)
            buf_append_c(f->out, fr->line);
    }
    buf_append_c(f->out, ends[2]);
    buf_append_c(f->out, style_off(f->options.color, STYLE_DIM));
    buf_append_char(f->out, '\n');
}

/* Draws a line of a cell, with symbols for line feeds. Returns true if the text was cut. */
static bool draw_cell(format *f, const frame *fr, str text, int width, int room, bool right,
                      style st) {
    bool cut = width > room;
    if (cut) {
        text.n = utf8_fit(text, room - 1);
        width = utf8_width(text) + 1;
    }
    if (right)
        format_pad(f->out, room - width);
    buf_append_c(f->out, style_on(f->options.color, st));
    format_visible(f->out, text, f->options.utf8);
    buf_append_c(f->out, style_off(f->options.color, st));
    if (cut)
        style_append(f->out, f->options.color, STYLE_DIM, fr->more);
    if (!right)
        format_pad(f->out, room - width);
    return cut;
}

static void draw_bar(format *f, const frame *fr, const char *before, const char *after) {
    buf_append_c(f->out, before);
    style_append(f->out, f->options.color, STYLE_DIM, fr->bar);
    buf_append_c(f->out, after);
}

/* How a row is drawn: a row of the box, or a name and its value in a record view. */
typedef struct shape {
    int n;             /* cells */
    const int *width;  /* [n] */
    const bool *right; /* [n] */
    int lines;         /* as in box_state */
    bool framed;       /* bars also at both ends, else only between cells */
} shape;

/* Draws a row of cells, with as many lines as the longest of them needs. Returns true if a text was
 * cut. */
static bool draw_row(format *f, const frame *fr, const shape *as, const cell *cells) {
    str *rest = mem_alloc(sizeof *rest * (size_t)BASE_MAX(as->n, 1));
    bool cut = false, more = true;
    for (int i = 0; i < as->n; i++)
        rest[i] = cells[i].text;
    for (int line = 1; more; line++) {
        more = false;
        for (int i = 0; i < as->n; i++) {
            bool last = line == as->lines;
            str text = last ? rest[i] : format_wrap(&rest[i], as->width[i]);
            int width = as->lines == 1 ? cells[i].width : utf8_width(text);
            int room = as->width[i];
            if (i + 1 == as->n && !as->framed && !as->right[i])
                room = BASE_MIN(room, BASE_MAX(width, 1)); /* no blanks at the end */
            if (i || as->framed)
                draw_bar(f, fr, i ? " " : "", " ");
            cut |= draw_cell(f, fr, text, width, room, as->right[i], cells[i].look);
            more |= !last && rest[i].n > 0;
        }
        if (as->framed)
            draw_bar(f, fr, " ", "");
        buf_append_char(f->out, '\n');
        more = more && format_drain(f);
    }
    free(rest);
    return cut;
}

static void draw_heads(format *f, const frame *fr, const shape *as) {
    const box_state *s = f->state;
    draw_row(f, fr, as, s->heads);
    if (!f->options.types_row)
        return;
    cell *kinds = ARENA_ARRAY(f->mem, cell, f->ncols);
    for (int i = 0; i < f->ncols; i++) {
        kinds[i].text = str_from(type_name(f->types[i]));
        kinds[i].width = (int)kinds[i].text.n;
        kinds[i].look = STYLE_DIM;
    }
    draw_row(f, fr, as, kinds);
}

static void draw_table(format *f, const frame *fr) {
    const box_state *s = f->state;
    shape as = {f->ncols, s->width, s->right, s->lines, true};
    draw_rule(f, fr, fr->top);
    if (!f->options.no_headers) {
        draw_heads(f, fr, &as);
        draw_rule(f, fr, fr->middle);
    }
    bool first = true;
    for (const chunk *c = s->first; c; c = c->next) {
        for (int r = 0; r < c->rows && format_drain(f); r++, first = false) {
            if (s->wraps && !first)
                draw_rule(f, fr, fr->middle);
            f->cut |= draw_row(f, fr, &as, &c->cells[r * f->ncols]);
        }
    }
    draw_rule(f, fr, fr->bottom);
}

/* Draws each row as a record, in place of a table that is too wide. */
static void draw_records(format *f, const frame *fr) {
    const box_state *s = f->state;
    int screen = BASE_MAX(f->options.width, 1), names = 0;
    for (int i = 0; i < f->ncols; i++)
        names = BASE_MAX(names, s->heads[i].width);
    names = BASE_MIN(names, BASE_MAX(screen / 3, 1));
    const int widths[] = {names, BASE_MAX(screen - names - 3, 1)};
    const bool right[] = {true, false};
    shape beside = {2, widths, right, s->lines, false};
    shape below = {1, &screen, &right[1], s->lines, false};
    bool narrow = s->lines > 1 && widths[1] < MIN_VALUE;
    uint64_t row = 0;
    for (const chunk *c = s->first; c; c = c->next) {
        for (int r = 0; r < c->rows && format_drain(f); r++) {
            buf title = {0};
            buf_printf(&title, "%s row %llu ", fr->line, (unsigned long long)++row);
            for (int w = utf8_width(buf_str(&title)); w < screen; w++)
                buf_append_c(&title, fr->line);
            style_append(f->out, f->options.color, STYLE_DIM, title.p);
            buf_append_char(f->out, '\n');
            buf_free(&title);
            for (int i = 0; i < f->ncols && !f->stopped; i++) {
                cell pair[] = {s->heads[i], c->cells[r * f->ncols + i]};
                if (narrow)
                    draw_row(f, fr, &below, &pair[0]);
                f->cut |= draw_row(f, fr, narrow ? &below : &beside, &pair[narrow]);
            }
        }
    }
}

static void draw_more(format *f, const frame *fr) {
    if (f->rows == f->rows_kept)
        return;
    buf line = {0};
    buf_printf(&line, "%s ", fr == &frame_utf8 ? "…" : "...");
    buf_append_count(&line, f->rows - f->rows_kept);
    buf_append_c(&line, f->rows - f->rows_kept == 1 ? " more row" : " more rows");
    style_append(f->out, f->options.color, STYLE_DIM, line.p);
    buf_append_char(f->out, '\n');
    buf_free(&line);
}

void box_end(format *f) {
    const frame *fr = f->options.utf8 ? &frame_utf8 : &frame_ascii;
    if (fit(f))
        draw_table(f, fr);
    else
        draw_records(f, fr);
    draw_more(f, fr);
}

static void markdown_line(format *f, const cell *cells) {
    const box_state *s = f->state;
    for (int i = 0; i < f->ncols; i++) {
        int pad = s->width[i] - cells[i].width;
        buf_append_c(f->out, i ? " | " : "| ");
        format_pad(f->out, s->right[i] ? pad : 0);
        buf_append_str(f->out, cells[i].text);
        format_pad(f->out, s->right[i] ? 0 : pad);
    }
    buf_append_c(f->out, " |\n");
}

void box_markdown_end(format *f) {
    const box_state *s = f->state;
    markdown_line(f, s->heads);
    for (int i = 0; i < f->ncols; i++) {
        buf_append_char(f->out, '|');
        for (int k = 0; k < s->width[i] + 2 - s->right[i]; k++)
            buf_append_char(f->out, '-');
        if (s->right[i])
            buf_append_char(f->out, ':');
    }
    buf_append_c(f->out, "|\n");
    for (const chunk *c = s->first; c; c = c->next)
        for (int r = 0; r < c->rows && format_drain(f); r++)
            markdown_line(f, &c->cells[r * f->ncols]);
    draw_more(f, f->options.utf8 ? &frame_utf8 : &frame_ascii);
}
