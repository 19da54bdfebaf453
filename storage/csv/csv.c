/*
 * csv.c - reading CSV and TSV: batches of typed rows, errors that name file, line, column and
 * value.
 *
 * Invariant: c->line is the line on which the record at in.start begins.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv_int.h"

/* BATCH_CELLS limits the rows of a batch in a file of very many columns. */
enum { TEXT_PIECE = 64 << 10, BATCH_CELLS = BATCH_ROWS * 2048 };

/* ---- records --------------------------------------------------------------------------------- */

static int64_t count_lines(const char *p, const char *end) {
    int64_t n = 0;
    while (p < end && (p = memchr(p, '\n', (size_t)(end - p)))) {
        n++;
        p++;
    }
    return n;
}

int csv_error(const csv *c, err *e, err_code code, const char *at, int position, const char *format,
              ...) {
    char what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const char *start = c->in.p + c->in.start;
    /* A cell that was converted to UTF-8 is outside the window. */
    bool inside = at >= start && at <= c->in.p + c->in.end;
    long long line = (long long)(c->line + (inside ? count_lines(start, at) : 0));
    if (position < 0)
        return err_set(e, code, "%s, line %lld: %s", c->in.name, line, what);
    return err_set(e, code, "%s, line %lld, column \"%.*s\": %s", c->in.name, line,
                   (int)c->names[position].n, c->names[position].p, what);
}

static int quote_error(const csv *c, csv_status status, err *e) {
    if (status == CSV_OPEN_QUOTE)
        return csv_error(c, e, ERR_CORRUPT, c->record.next, -1, "this quote is never closed");
    return csv_error(c, e, ERR_CORRUPT, c->record.next, -1,
                     "cell %d has text after its closing quote (write a quote inside as \"\")",
                     c->record.n);
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
            return csv_error(c, e, ERR_LIMIT, in->p + in->start, -1,
                             "this record is longer than 1 GB");
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

/* ---- cells ----------------------------------------------------------------------------------- */

/* Memory for a batch's texts, allocated from the batch's arena in large pieces instead of per
 * cell. */
typedef struct text_pieces {
    arena *mem;
    char *p;     /* the unused bytes of the current piece */
    size_t room; /* number of unused bytes */
} text_pieces;

static str keep_text(text_pieces *t, const csv_cell *cell) {
    size_t n = cell->n;
    if (n == 0)
        return (str){"", 0};
    if (n > t->room) {
        /* A long cell gets memory of its own, so that the current piece stays in use. */
        if (n > TEXT_PIECE / 4) {
            char *own = arena_alloc(t->mem, n);
            memcpy(own, cell->p, n);
            return (str){own, n};
        }
        t->p = arena_alloc(t->mem, TEXT_PIECE);
        t->room = TEXT_PIECE;
    }
    char *out = t->p;
    memcpy(out, cell->p, n);
    t->p += n;
    t->room -= n;
    return (str){out, n};
}

static int convert_error(const csv *c, const csv_cell *cell, int position, const err *cause,
                         err *e) {
    csv_error(c, e, ERR_TYPE, cell->p, position, "%s", cause->message);
    if (c->options.own_types)
        err_hint(e,
                 "the types are those of CREATE TABLE; to see the file as it is: "
                 "SELECT * FROM '%s'",
                 c->name);
    else
        err_hint(e, "types are detected in the first MB; to choose them, use CREATE TABLE and "
                    "COPY");
    return ERR_TYPE;
}

static int hex_digit(char c) {
    char small = (char)(c | 0x20);
    return c >= '0' && c <= '9' ? c - '0' : small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

/* Decodes \x00ff into bytes in `mem`. */
static int blob_decode(str text, arena *mem, str *out, err *e) {
    char *p = arena_alloc(mem, text.n / 2);
    size_t n = 0, at = 2;
    for (; at + 1 < text.n; at += 2) {
        int high = hex_digit(text.p[at]), low = hex_digit(text.p[at + 1]);
        if (high < 0 || low < 0)
            break;
        p[n++] = (char)(high << 4 | low);
    }
    *out = (str){p, n};
    if (at == text.n)
        return 0;
    return err_set(e, ERR_TYPE, "'%.*s' is not a BLOB: \\x needs two hexadecimal digits per byte",
                   (int)BASE_MIN(text.n, 60u), text.p);
}

static int store_cell(csv *c, text_pieces *texts, column *out, int row, int position, err *e) {
    const csv_cell *cell = &c->record.cells[position];
    str text = {cell->p, cell->n};
    if (!cell->quoted && str_equal(text, c->options.null_text)) {
        column_set(out, texts->mem, c->batch_rows, row, value_null());
        return 0;
    }
    if (cell->escaped)
        text = csv_cell_text(cell, texts->mem);
    err cause;
    if (out->type == TYPE_BLOB && text.n >= 2 && memcmp(text.p, "\\x", 2) == 0)
        return blob_decode(text, texts->mem, &out->s[row], &cause)
                   ? convert_error(c, cell, position, &cause, e)
                   : 0;
    if (out->type == TYPE_TEXT || out->type == TYPE_BLOB) {
        out->s[row] = cell->escaped ? text : keep_text(texts, cell);
        return 0;
    }
    if (out->type == TYPE_INTEGER && parse_integer(text, &out->i[row]))
        return 0;
    if (out->type == TYPE_REAL && parse_real(text, &out->r[row]))
        return 0;
    value v;
    if (value_cast(texts->mem, value_text(text), out->type, &v, &cause) != 0)
        return convert_error(c, cell, position, &cause, e);
    column_set(out, texts->mem, c->batch_rows, row, v);
    return 0;
}

/* Code points of Windows-1252 from 0x80; its five undefined bytes map to themselves. */
static const uint16_t windows_1252[32] = {
    0x20AC, 0x0081, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x008D, 0x017D, 0x008F, 0x0090, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x009D, 0x017E, 0x0178};

str csv_recode(str s, arena *a) {
    char *out = arena_alloc(a, s.n * 3 + 4);
    size_t n = 0;
    for (uint32_t cp; s.n;) {
        size_t k = utf8_next(s, &cp);
        unsigned char byte = (unsigned char)s.p[0];
        if (k == 1 && byte >= 0x80)
            n += utf8_encode(byte < 0xA0 ? windows_1252[byte - 0x80] : byte, out + n);
        else
            for (size_t i = 0; i < k; i++)
                out[n++] = s.p[i];
        s.p += k;
        s.n -= k;
    }
    return (str){out, n};
}

/* Checks a whole record for UTF-8 at once, and its cells only if that fails. */
static void recode_cells(csv *c, const value_type *types, arena *a) {
    const char *p = c->in.p + c->in.start;
    if (utf8_valid((str){p, (size_t)(c->record.next - p)}))
        return;
    for (int i = 0; i < c->record.n; i++) {
        csv_cell *cell = &c->record.cells[i];
        str text = {cell->p, cell->n};
        if (types[i] == TYPE_BLOB || utf8_valid(text))
            continue;
        if (c->recoded++ == 0)
            c->first_recoded = c->line;
        text = csv_recode(text, a);
        cell->p = text.p;
        cell->n = text.n;
    }
}

static int store_record(csv *c, const value_type *types, text_pieces *texts, batch *out, err *e) {
    const char *p = c->in.p + c->in.start, *zero = memchr(p, 0, (size_t)(c->record.next - p));
    /* csv_sniff has looked for NUL bytes in the first MiB only. */
    if (zero)
        return csv_error(c, e, ERR_CORRUPT, zero, -1, "a NUL byte: this is not a text file");
    if (c->record.n != c->ncolumns)
        return csv_error(c, e, ERR_CORRUPT, c->in.p + c->in.start, -1, "%d cell%s, but %s has %d",
                         c->record.n, c->record.n == 1 ? "" : "s",
                         c->header ? "the header" : "the first line", c->ncolumns);
    recode_cells(c, types, out->mem);
    int status = 0;
    for (int i = 0; i < c->ncolumns && !status; i++)
        status = store_cell(c, texts, &out->cols[i], out->rows, i, e);
    return status;
}

/* ---- the interface --------------------------------------------------------------------------- */

int csv_next(csv *c, const value_type *types, batch *out, int64_t *lines, err *e) {
    text_pieces texts = {.mem = out->mem};
    c->read = true;
    batch_init(out, out->mem, types, c->ncolumns, c->batch_rows);
    while (out->rows < c->batch_rows) {
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
        return err_set(e, ERR_UNSUPPORTED, "the delimiter cannot be a quote or a line end");
    int status = csv_sniff(c, e);
    if (!status)
        c->batch_rows = BASE_MAX(BASE_MIN(BATCH_ROWS, BATCH_CELLS / c->ncolumns), 1);
    return status;
}

int csv_open(const char *path, const csv_options *options, csv **out, err *e) {
    csv *c = mem_zalloc(sizeof *c);
    c->name = mem_strdup(path);
    c->in.fd = -1;
    int status = csv_input_open(&c->in, c->name, options ? options->cancel : NULL, e);
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
    csv_input_close(&c->in, !c->read);
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

int64_t csv_recoded(const csv *c, int64_t *first_line) {
    if (first_line)
        *first_line = c->first_recoded;
    return c->recoded;
}
