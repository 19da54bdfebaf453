/*
 * csv.c - reading CSV and TSV: batches of typed rows.
 *
 * Invariant: f.line is the line on which the record at in.start begins.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csv_int.h"

/* ---- records --------------------------------------------------------------------------------- */

static int quote_error(const csv *c, csv_status status, err *e) {
    if (status == CSV_OPEN_QUOTE)
        return file_error(&c->f, e, ERR_CORRUPT, c->record.next, NULL,
                          "this quote is never closed");
    return file_error(&c->f, e, ERR_CORRUPT, c->record.next, NULL,
                      "cell %d has text after its closing quote (write a quote inside as \"\")",
                      c->record.n);
}

int csv_peek(csv *c, bool *end, err *e) {
    file_input *in = &c->f.in;
    for (;;) {
        csv_status status =
            csv_record_next(in->p + in->start, in->p + in->end, in->eof, c->delimiter, &c->record);
        *end = status == CSV_END;
        if (status == CSV_RECORD || status == CSV_END)
            return 0;
        if (status != CSV_MORE)
            return quote_error(c, status, e);
        if (in->end - in->start > CSV_RECORD_MAX)
            return file_error(&c->f, e, ERR_LIMIT, in->p + in->start, NULL,
                              "this record is longer than 1 GB");
        int failed = file_input_more(in, e);
        if (failed)
            return failed;
    }
}

void csv_advance(csv *c) {
    const char *p = c->f.in.p + c->f.in.start;
    c->f.in.start = (size_t)(c->record.next - c->f.in.p);
    bool quoted = false;
    for (int i = 0; i < c->record.n; i++)
        quoted = quoted || c->record.cells[i].quoted;
    c->f.line += quoted ? file_count_lines(p, c->record.next) : 1;
}

/* ---- cells ----------------------------------------------------------------------------------- */

static int store_cell(csv *c, text_pieces *texts, column *out, int row, int position, err *e) {
    const csv_cell *cell = &c->record.cells[position];
    str text = {cell->p, cell->n};
    if (!cell->quoted && str_equal(text, c->f.options.null_text)) {
        column_set(out, texts->mem, c->f.batch_rows, row, value_null());
        return 0;
    }
    if (cell->escaped)
        text = csv_cell_text(cell, texts->mem);
    return file_store_text(&c->f, texts, out, row, position, text, cell->escaped, cell->p, e);
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
    const char *p = c->f.in.p + c->f.in.start;
    if (utf8_valid((str){p, (size_t)(c->record.next - p)}))
        return;
    for (int i = 0; i < c->record.n; i++) {
        csv_cell *cell = &c->record.cells[i];
        str text = {cell->p, cell->n};
        if (types[i] == TYPE_BLOB || utf8_valid(text))
            continue;
        if (c->f.recoded++ == 0)
            c->f.first_recoded = c->f.line;
        text = csv_recode(text, a);
        cell->p = text.p;
        cell->n = text.n;
    }
}

static int store_record(csv *c, const value_type *types, text_pieces *texts, batch *out, err *e) {
    const char *p = c->f.in.p + c->f.in.start, *zero = memchr(p, 0, (size_t)(c->record.next - p));
    /* csv_sniff has looked for NUL bytes in the first MiB only. */
    if (zero)
        return file_error(&c->f, e, ERR_CORRUPT, zero, NULL, "a NUL byte: this is not a text file");
    if (c->record.n != c->f.ncolumns)
        return file_error(&c->f, e, ERR_CORRUPT, c->f.in.p + c->f.in.start, NULL,
                          "%d cell%s, but %s has %d", c->record.n, c->record.n == 1 ? "" : "s",
                          c->header ? "the header" : "the first line", c->f.ncolumns);
    recode_cells(c, types, out->mem);
    int status = 0;
    for (int i = 0; i < c->f.ncolumns && !status; i++)
        status = store_cell(c, texts, &out->cols[i], out->rows, i, e);
    return status;
}

/* ---- the class ------------------------------------------------------------------------------- */

static int csv_next(table_file *f, const value_type *types, batch *out, int64_t *lines, err *e) {
    csv *c = (csv *)f;
    text_pieces texts = {.mem = out->mem};
    while (out->rows < f->batch_rows) {
        bool end;
        int status = csv_peek(c, &end, e);
        if (status || end)
            return status;
        bool blank = c->record.n == 1 && c->record.cells[0].n == 0 && !c->record.cells[0].quoted;
        if (!blank || f->ncolumns == 1) {
            if ((status = store_record(c, types, &texts, out, e)) != 0)
                return status;
            if (lines)
                lines[out->rows] = f->line;
            out->rows++;
        }
        csv_advance(c);
    }
    return 0;
}

static void csv_close(table_file *f) {
    free(((csv *)f)->record.cells);
}

const file_class file_csv = {.bytes = sizeof(csv),
                             .cell = "column",
                             .sample = "the first MB",
                             .open = csv_sniff,
                             .next = csv_next,
                             .close = csv_close};
