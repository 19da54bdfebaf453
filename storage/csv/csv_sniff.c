/*
 * csv_sniff.c - detects a CSV file's delimiter, header, column names and types.
 *
 * It reads the complete records of the first MiB (the first 64 KiB for the delimiter). Rules:
 *   delimiter  the candidate by which most records have as many cells as the first, at least two;
 *              of equals the one with more cells
 *   types      INTEGER, REAL or BOOLEAN (true/false) if every cell that is not NULL converts and
 *              prints the same: leading zeros, a plus sign, more than 64 bits, or a quoted "" make
 *              the column TEXT
 *   header     there is one if the first cell of a column that is not TEXT does not convert; or, if
 *              all columns are TEXT, if all cells of the first record look like names and none
 *              occurs again in its column
 * Invariant: only the byte order mark and the header are consumed.
 */
#include <stdlib.h>
#include <string.h>

#include "csv_int.h"

enum { SNIFF_BYTES = 1 << 20, DELIMITER_BYTES = 64 << 10, NAME_BYTES_MAX = 64 };

static const char candidates[] = {',', '\t', ';', '|'};

/* ---- the sample ------------------------------------------------------------------------------ */

static int fill_sample(csv *c, err *e) {
    int status = file_input_fill(&c->f.in, SNIFF_BYTES, e);
    if (!status && memchr(c->f.in.p + c->f.in.start, 0, c->f.in.end - c->f.in.start))
        status =
            err_set(e, ERR_CORRUPT, "'%s' is not a text file: it contains NUL bytes", c->f.in.name);
    return status;
}

/* Whether the lines end in CR without LF; such lines would be read as one long record. */
static bool ends_in_cr_alone(const csv *c) {
    const char *p = c->f.in.p + c->f.in.start;
    if (memchr(p, '\n', c->f.in.end - c->f.in.start))
        return false;
    for (int i = 0; i < c->record.n; i++) {
        const csv_cell *cell = &c->record.cells[i];
        if (!cell->quoted && memchr(cell->p, '\r', cell->n))
            return true;
    }
    return false;
}

static bool is_blank(const csv_record *r) {
    return r->n == 1 && r->cells[0].n == 0 && !r->cells[0].quoted;
}

/* ---- delimiter ------------------------------------------------------------------------------- */

/* Splits the records by this delimiter. Returns the share of records with as many cells as the
 * first record; sets *width to that number of cells. */
static double delimiter_fit(csv *c, char delimiter, int *width) {
    const char *p = c->f.in.p + c->f.in.start;
    size_t all = c->f.in.end - c->f.in.start, n = BASE_MIN(all, (size_t)DELIMITER_BYTES);
    const char *end = p + n;
    bool last = c->f.in.eof && n == all;
    int records = 0, alike = 0;
    *width = 0;
    csv_status status;
    while ((status = csv_record_next(p, end, last, delimiter, &c->record)) == CSV_RECORD) {
        p = c->record.next;
        if (is_blank(&c->record))
            continue;
        if (records++ == 0)
            *width = c->record.n;
        alike += c->record.n == *width;
    }
    if (status == CSV_BAD_QUOTE || status == CSV_OPEN_QUOTE)
        records++; /* a delimiter by which quotes are malformed is a little less likely */
    return *width > 1 && records ? (double)alike / records : 0;
}

static char find_delimiter(csv *c) {
    char best = ',';
    double best_fit = 0;
    int best_width = 1;
    for (size_t i = 0; i < sizeof candidates; i++) {
        int width;
        double fit = delimiter_fit(c, candidates[i], &width);
        if (fit > best_fit + 0.001 || (fit > best_fit - 0.001 && fit > 0 && width > best_width)) {
            best = candidates[i];
            best_fit = fit;
            best_width = width;
        }
    }
    return best;
}

/* ---- types ----------------------------------------------------------------------------------- */

/* Whether a number would be printed as it is written. Postcodes and telephone numbers may not be:
 * they may begin with 0 or +. */
static bool plain_number(str s) {
    if (s.n && s.p[0] == '-')
        s.p++, s.n--;
    return s.n && s.p[0] != '+' && !(s.n > 1 && s.p[0] == '0' && s.p[1] >= '0' && s.p[1] <= '9');
}

static bool only_digits(str s) {
    for (size_t i = s.p[0] == '-'; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
    return true;
}

/* Returns the narrowest type of one cell that is not NULL. */
static value_type cell_type(str s) {
    int64_t i;
    double r;
    s = str_trim(s, " \t");
    if (str_equal_nocase(s, STR("true")) || str_equal_nocase(s, STR("false")))
        return TYPE_BOOLEAN;
    if (!plain_number(s))
        return TYPE_TEXT;
    if (parse_integer(s, &i))
        return TYPE_INTEGER;
    return !only_digits(s) && parse_real(s, &r) ? TYPE_REAL : TYPE_TEXT;
}

static bool cell_is_null(const csv *c, const csv_cell *cell) {
    return !cell->quoted && str_equal((str){cell->p, cell->n}, c->f.options.null_text);
}

/* What was seen in the records after the first one. */
typedef struct sample {
    value_type *types; /* [columns] TYPE_NULL: no value seen */
    bool *repeats;     /* [columns] the first record's cell occurs again in its column */
    csv_cell *first;   /* [columns] cells of the first record */
    int64_t records;   /* records after the first */
} sample;

static void sample_record(const csv *c, sample *s) {
    for (int i = 0; i < c->f.ncolumns && i < c->record.n; i++) {
        const csv_cell *cell = &c->record.cells[i];
        str text = {cell->p, cell->n};
        if (cell_is_null(c, cell))
            continue;
        if (s->types[i] != TYPE_TEXT)
            s->types[i] = file_join_types(
                s->types[i], cell->quoted && cell->n == 0 ? TYPE_TEXT : cell_type(text));
        if (s->types[i] == TYPE_TEXT && !s->repeats[i])
            s->repeats[i] = str_equal(text, (str){s->first[i].p, s->first[i].n});
    }
    s->records++;
}

static bool looks_like_name(const csv_cell *cell) {
    if (cell->n == 0 || cell->n > NAME_BYTES_MAX || memchr(cell->p, '\n', cell->n))
        return false;
    return cell_type((str){cell->p, cell->n}) == TYPE_TEXT;
}

static bool find_header(const csv *c, const sample *s) {
    bool typed = false;
    for (int i = 0; i < c->f.ncolumns; i++) {
        if (s->types[i] == TYPE_TEXT || s->types[i] == TYPE_NULL)
            continue;
        typed = true;
        if (!cell_is_null(c, &s->first[i]) &&
            file_join_types(s->types[i], cell_type((str){s->first[i].p, s->first[i].n})) ==
                TYPE_TEXT)
            return true;
    }
    if (typed)
        return false;
    for (int i = 0; i < c->f.ncolumns; i++)
        if (!looks_like_name(&s->first[i]) || s->repeats[i])
            return false;
    return true;
}

/* ---- names ----------------------------------------------------------------------------------- */

static str name_of_cell(csv *c, const csv_cell *cell) {
    str name = {0};
    if (c->header)
        name = str_copy(c->f.mem, str_trim(csv_cell_text(cell, c->f.mem), " \t"));
    if (!utf8_valid(name))
        name = csv_recode(name, c->f.mem);
    return name;
}

static void make_names(csv *c, const csv_cell *first) {
    str *names = ARENA_ARRAY(c->f.mem, str, c->f.ncolumns);
    for (int i = 0; i < c->f.ncolumns; i++)
        names[i] = name_of_cell(c, &first[i]);
    file_make_names(&c->f, names);
}

/* ---- csv_sniff ------------------------------------------------------------------------------- */

static void sample_rest(csv *c, sample *s) {
    const char *p = c->record.next, *end = c->f.in.p + c->f.in.end;
    while (csv_record_next(p, end, c->f.in.eof, c->delimiter, &c->record) == CSV_RECORD) {
        p = c->record.next;
        if (!is_blank(&c->record) || c->f.ncolumns == 1)
            sample_record(c, s);
        if (c->record.next - (c->f.in.p + c->f.in.start) > SNIFF_BYTES)
            break;
    }
}

/* Decides the types of the columns. Without a header, the first record is part of the sample. */
static void decide_types(csv *c, sample *s) {
    c->f.types = ARENA_ARRAY(c->f.mem, value_type, c->f.ncolumns);
    if (!c->header) {
        c->record.n = c->f.ncolumns;
        memcpy(c->record.cells, s->first, sizeof *s->first * (size_t)c->f.ncolumns);
        sample_record(c, s);
    }
    for (int i = 0; i < c->f.ncolumns; i++)
        c->f.types[i] = c->f.options.all_text || s->types[i] == TYPE_NULL ? TYPE_TEXT : s->types[i];
}

int csv_sniff(table_file *f, err *e) {
    csv *c = (csv *)f;
    bool end = false;
    if (f->options.delimiter == '"' || f->options.delimiter == '\n' || f->options.delimiter == '\r')
        return err_set(e, ERR_UNSUPPORTED, "the delimiter cannot be a quote or a line end");
    int status = fill_sample(c, e);
    if (status)
        return status;
    c->delimiter = c->f.options.delimiter ? c->f.options.delimiter : find_delimiter(c);
    if ((status = csv_peek(c, &end, e)) != 0)
        return status;
    if (end)
        return file_empty_error(&c->f, e);
    if (ends_in_cr_alone(c)) {
        err_set(e, ERR_UNSUPPORTED, "the lines of '%s' end in CR alone", c->f.in.name);
        err_hint(e, "convert them: tr '\\r' '\\n'");
        return ERR_UNSUPPORTED;
    }
    int n = c->f.ncolumns = c->record.n;
    sample s = {.types = ARENA_ARRAY(c->f.mem, value_type, n),
                .repeats = ARENA_ARRAY(c->f.mem, bool, n),
                .first = ARENA_ARRAY(c->f.mem, csv_cell, n)};
    memcpy(s.first, c->record.cells, sizeof *s.first * (size_t)n);
    sample_rest(c, &s);
    c->header = c->f.options.header == CSV_HEADER_YES ||
                (c->f.options.header == CSV_HEADER_AUTO && find_header(c, &s));
    decide_types(c, &s);
    make_names(c, s.first);
    if ((status = csv_peek(c, &end, e)) != 0)
        return status;
    if (c->header)
        csv_advance(c);
    return 0;
}
