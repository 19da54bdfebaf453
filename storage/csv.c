/*
 * csv.c - reading CSV and TSV: batches of typed rows, errors that name file, line, column and value.
 *
 * Invariant: c->line is the line on which the record at in.start begins; cells handed out live in the batch's arena.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv_int.h"

enum { TEXT_PIECE = 64 << 10 };

/* ---- records ----------------------------------------------------------------------------------- */

static int64_t count_lines(const char *p, const char *end) {
    int64_t n = 0;
    while (p < end && (p = memchr(p, '\n', (size_t)(end - p)))) {
        n++;
        p++;
    }
    return n;
}

int csv_error(const csv *c, err *e, err_code code, const char *at, int position, const char *format, ...) {
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    long long line = (long long)(c->line + count_lines(c->in.p + c->in.start, at));
    if (position < 0)
        return err_set(e, code, "%s, line %lld: %s", c->in.name, line, what);
    return err_set(e, code, "%s, line %lld, column '%.*s': %s", c->in.name, line, (int)c->names[position].n,
                   c->names[position].p, what);
}

static int quote_error(const csv *c, csv_status status, err *e) {
    if (status == CSV_OPEN_QUOTE)
        return csv_error(c, e, ERR_CORRUPT, c->record.next, -1, "a quote is opened here and never closed");
    return csv_error(c, e, ERR_CORRUPT, c->record.next, -1,
                     "cell %d has text behind its closing quote (a quote inside is written \"\")", c->record.n);
}

int csv_peek(csv *c, bool *end, err *e) {
    csv_input *in = &c->in;
    for (;;) {
        csv_status status =
            csv_record_next(in->p + in->start, in->p + in->end, in->eof, c->delimiter, &c->record);
        *end = status == CSV_END;
        if (status == CSV_RECORD || status == CSV_END)
            return 0;
        if (status != CSV_MORE)
            return quote_error(c, status, e);
        if (in->end - in->start > CSV_RECORD_MAX)
            return csv_error(c, e, ERR_LIMIT, in->p + in->start, -1, "a record longer than 1 GiB begins here");
        int failed = csv_input_more(in, e);
        if (failed)
            return failed;
    }
}

void csv_advance(csv *c) {
    const char *p = c->in.p + c->in.start;
    c->in.start = (size_t)(c->record.next - c->in.p);
    bool quoted = false;
    for (int i = 0; i < c->record.n; i++)
        quoted = quoted || c->record.cells[i].quoted;
    c->line += quoted ? count_lines(p, c->record.next) : 1;
}

/* ---- cells ------------------------------------------------------------------------------------- */

/* Where a batch's texts go: pieces of its arena, filled without a call per cell. */
typedef struct text_pieces {
    arena *mem;
    char *p;
    size_t room;
} text_pieces;

static str keep_text(text_pieces *t, const csv_cell *cell) {
    size_t n = cell->n;
    if (n > t->room) {
        if (n > TEXT_PIECE / 4) { /* a cell of its own piece */
            char *own = arena_alloc(t->mem, n);
            memcpy(own, cell->p, n);
            return (str){own, n};
        }
        t->p = arena_alloc(t->mem, TEXT_PIECE);
        t->room = TEXT_PIECE;
    }
    char *out = t->p;
    if (n)
        memcpy(out, cell->p, n);
    t->p += n;
    t->room -= n;
    return (str){out, n};
}

static int convert_error(const csv *c, const csv_cell *cell, int position, const err *cause, err *e) {
    csv_error(c, e, ERR_TYPE, cell->p, position, "%s", cause->message);
    err_hint(e, "types are guessed from the first MiB; a table made with CREATE TABLE and filled with COPY has its own");
    return ERR_TYPE;
}

static int store_cell(csv *c, text_pieces *texts, column *out, int row, int position, err *e) {
    const csv_cell *cell = &c->record.cells[position];
    str text = {cell->p, cell->n};
    if (!cell->quoted && str_equal(text, c->options.null_text)) {
        column_set(out, texts->mem, BATCH_ROWS, row, value_null());
        return 0;
    }
    if (cell->escaped)
        text = csv_cell_text(cell, texts->mem);
    if (out->type == TYPE_TEXT || out->type == TYPE_BLOB) {
        out->s[row] = cell->escaped ? text : keep_text(texts, cell);
        return 0;
    }
    if (out->type == TYPE_INTEGER && parse_integer(text, &out->i[row]))
        return 0;
    if (out->type == TYPE_REAL && parse_real(text, &out->r[row]))
        return 0;
    value v;
    err cause;
    if (value_cast(texts->mem, value_text(text), out->type, &v, &cause) != 0)
        return convert_error(c, cell, position, &cause, e);
    column_set(out, texts->mem, BATCH_ROWS, row, v);
    return 0;
}

/* The record's bytes are one span, so that its UTF-8 is checked once; only when that fails each cell is. */
static int check_utf8(const csv *c, const value_type *types, err *e) {
    const char *p = c->in.p + c->in.start;
    if (utf8_valid((str){p, (size_t)(c->record.next - p)}))
        return 0;
    for (int i = 0; i < c->record.n; i++) {
        const csv_cell *cell = &c->record.cells[i];
        if (types[i] != TYPE_BLOB && !utf8_valid((str){cell->p, cell->n}))
            return csv_error(c, e, ERR_CORRUPT, cell->p, i, "the value is not UTF-8 text");
    }
    return 0;
}

static int store_record(csv *c, const value_type *types, text_pieces *texts, batch *out, err *e) {
    int status = 0;
    if (c->record.n != c->ncolumns)
        return csv_error(c, e, ERR_CORRUPT, c->in.p + c->in.start, -1, "%d cells where %s has %d", c->record.n,
                         c->header ? "the header" : "the first line", c->ncolumns);
    if ((status = check_utf8(c, types, e)) != 0)
        return status;
    for (int i = 0; i < c->ncolumns && !status; i++)
        status = store_cell(c, texts, &out->cols[i], out->rows, i, e);
    return status;
}

/* ---- the interface ----------------------------------------------------------------------------- */

int csv_next(csv *c, const value_type *types, batch *out, int64_t *lines, err *e) {
    text_pieces texts = {.mem = out->mem};
    batch_init(out, out->mem, types, c->ncolumns, BATCH_ROWS);
    while (out->rows < BATCH_ROWS) {
        bool end;
        int status = csv_peek(c, &end, e);
        if (status || end)
            return status;
        bool blank = c->record.n == 1 && c->record.cells[0].n == 0 && !c->record.cells[0].quoted;
        if (!blank || c->ncolumns == 1) {
            if ((status = store_record(c, types, &texts, out, e)) != 0)
                return status;
            if (lines)
                lines[out->rows] = c->line;
            out->rows++;
        }
        csv_advance(c);
    }
    return 0;
}

static int csv_start(csv *c, const csv_options *options, err *e) {
    c->mem = arena_new();
    c->line = 1;
    if (options)
        c->options = *options;
    c->options.null_text = str_copy(c->mem, c->options.null_text);
    if (c->options.delimiter == '"' || c->options.delimiter == '\n' || c->options.delimiter == '\r')
        return err_set(e, ERR_UNSUPPORTED, "a quote or a line end cannot be the delimiter");
    return csv_sniff(c, e);
}

int csv_open(const char *path, const csv_options *options, csv **out, err *e) {
    csv *c = mem_zalloc(sizeof *c);
    c->name = mem_strndup(path, strlen(path));
    c->in.fd = -1;
    int status = csv_input_open(&c->in, c->name, e);
    if (!status)
        status = csv_start(c, options, e);
    if (status) {
        csv_close(c);
        return status;
    }
    *out = c;
    return 0;
}

int csv_open_memory(const void *bytes, size_t n, const csv_options *options, csv **out, err *e) {
    csv *c = mem_zalloc(sizeof *c);
    csv_input_memory(&c->in, bytes, n);
    int status = csv_start(c, options, e);
    if (status) {
        csv_close(c);
        return status;
    }
    *out = c;
    return 0;
}

void csv_close(csv *c) {
    if (!c)
        return;
    csv_input_close(&c->in);
    arena_free(c->mem);
    free(c->record.cells);
    free(c->name);
    free(c);
}

int csv_column_count(const csv *c) {
    return c->ncolumns;
}

str csv_column_name(const csv *c, int at) {
    return c->names[at];
}

value_type csv_column_type(const csv *c, int at) {
    return c->types[at];
}

char csv_delimiter(const csv *c) {
    return c->delimiter;
}
