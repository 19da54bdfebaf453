/*
 * csv_sniff.c - what a CSV file does not say: its delimiter, whether it has a header, its columns'
 * names and types.
 *
 * Read are the complete records of the first MiB (of the first 64 KiB for the delimiter). Rules:
 *   delimiter  the candidate under which most records have as many cells as the first, more than
 *              one; ties to more cells
 *   types      INTEGER, REAL or BOOLEAN (true/false) when every cell that is there converts and
 *              prints back alike: a number with leading zeros or a plus sign, or too long for 64
 *              bits, makes its column TEXT; so does a quoted ""
 *   header     some column is no TEXT but its first cell does not convert; or, when all are TEXT,
 *              the first record's cells all look like names and none occurs below itself
 * Invariant: nothing is consumed beyond the byte order mark and, with a header, the first record.
 */
#include <string.h>

#include "csv_int.h"

enum { SNIFF_BYTES = 1 << 20, DELIMITER_BYTES = 64 << 10, NAME_BYTES_MAX = 64 };

static const char candidates[] = {',', '\t', ';', '|'};

/* ---- the sample ------------------------------------------------------------------------------ */

/* [{ and {" begin no line that people have in a CSV file. */
static bool is_json(const char *p, size_t n) {
    char head[2] = {0};
    for (size_t i = 0, k = 0; i < n && k < 2; i++)
        if (!strchr(" \t\r\n", p[i]))
            head[k++] = p[i];
    return (head[0] == '[' && head[1] == '{') || (head[0] == '{' && head[1] == '"');
}

static int fill_sample(csv *c, err *e) {
    while (!c->in.eof && c->in.end - c->in.start < SNIFF_BYTES) {
        int status = csv_input_more(&c->in, e);
        if (status)
            return status;
    }
    const char *p = c->in.p + c->in.start;
    size_t n = c->in.end - c->in.start;
    if (n >= 2 && (memcmp(p, "\xff\xfe", 2) == 0 || memcmp(p, "\xfe\xff", 2) == 0)) {
        err_set(e, ERR_UNSUPPORTED, "'%s' is UTF-16; kvasir reads UTF-8", c->in.name);
        err_hint(e, "iconv -f UTF-16 -t UTF-8 converts it");
        return ERR_UNSUPPORTED;
    }
    if (memchr(p, 0, n))
        return err_set(e, ERR_CORRUPT, "'%s' is not a text file: it has zero bytes", c->in.name);
    if (!c->options.delimiter && is_json(p, n)) { /* who names one means CSV */
        err_set(e, ERR_UNSUPPORTED, "'%s' is JSON; kvasir reads CSV and TSV", c->in.name);
        err_hint(e, "of a list of objects, jq -r 'map([.a, .b])[] | @csv' makes CSV");
        return ERR_UNSUPPORTED;
    }
    if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
        c->in.start += 3;
    return 0;
}

/* Lines of old, which end in CR alone, would be cells of one long record. */
static bool ends_in_cr_alone(const csv *c) {
    const char *p = c->in.p + c->in.start;
    if (memchr(p, '\n', c->in.end - c->in.start))
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

/* How well `delimiter` explains the sample: the share
 * of records as wide as the first, and that width. */
static double delimiter_fit(csv *c, char delimiter, int *width) {
    const char *p = c->in.p + c->in.start;
    size_t all = c->in.end - c->in.start, n = BASE_MIN(all, (size_t)DELIMITER_BYTES);
    const char *end = p + n;
    bool last = c->in.eof && n == all;
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
        records++; /* a delimiter that makes nonsense of quotes is a little less likely */
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

/* A number whose text would not come back from its value
 * is a name made of digits: a postcode, a telephone. */
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

/* The narrowest type of one cell that is not NULL. */
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

static value_type join_types(value_type a, value_type b) {
    if (a == TYPE_NULL || a == b)
        return b;
    bool numbers = (a == TYPE_INTEGER || a == TYPE_REAL) && (b == TYPE_INTEGER || b == TYPE_REAL);
    return numbers ? TYPE_REAL : TYPE_TEXT;
}

static bool cell_is_null(const csv *c, const csv_cell *cell) {
    return !cell->quoted && str_equal((str){cell->p, cell->n}, c->options.null_text);
}

/* What the records below the first one say. */
typedef struct sample {
    value_type *types; /* TYPE_NULL: no value seen */
    bool *repeats;     /* the first record's cell occurs below */
    csv_cell *first;
    int64_t records;
} sample;

static void sample_record(const csv *c, sample *s) {
    for (int i = 0; i < c->ncolumns && i < c->record.n; i++) {
        const csv_cell *cell = &c->record.cells[i];
        str text = {cell->p, cell->n};
        if (cell_is_null(c, cell))
            continue;
        if (s->types[i] != TYPE_TEXT)
            s->types[i] =
                join_types(s->types[i], cell->quoted && cell->n == 0 ? TYPE_TEXT : cell_type(text));
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
    for (int i = 0; i < c->ncolumns; i++) {
        if (s->types[i] == TYPE_TEXT || s->types[i] == TYPE_NULL)
            continue;
        typed = true;
        if (!cell_is_null(c, &s->first[i]) &&
            join_types(s->types[i], cell_type((str){s->first[i].p, s->first[i].n})) == TYPE_TEXT)
            return true;
    }
    if (typed)
        return false;
    for (int i = 0; i < c->ncolumns; i++)
        if (!looks_like_name(&s->first[i]) || s->repeats[i])
            return false;
    return true;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The columns' names, none twice: a hash table of their places + 1 (0: free), by linear probing.
 * repeats[i] is the number that the next column of the name at place i gets; the numbers below are
 * taken, so that a name that occurs n times is not looked for n times each time. */
typedef struct name_set {
    const str *names;
    int *slots, *repeats;
    uint64_t mask;
} name_set;

static name_set name_set_make(arena *mem, const str *names, int count) {
    name_set set = {.names = names, .mask = 7, .repeats = ARENA_ARRAY(mem, int, count)};
    while (set.mask < 2 * (uint64_t)count)
        set.mask = 2 * set.mask + 1;
    set.slots = ARENA_ARRAY(mem, int, set.mask + 1);
    return set;
}

/* The slot of `name`, or the free one where it belongs. */
static int *name_slot(const name_set *set, str name) {
    uint64_t at = str_hash_nocase(name);
    int *slot;
    while (*(slot = &set->slots[at++ & set->mask]))
        if (str_equal_nocase(set->names[*slot - 1], name))
            break;
    return slot;
}

static str name_of_cell(csv *c, const csv_cell *cell, int at) {
    str name = {0};
    if (c->header)
        name = str_copy(c->mem, str_trim(csv_cell_text(cell, c->mem), " \t"));
    if (!utf8_valid(name))
        name = csv_recode(name, c->mem);
    return name.n ? name : str_from(arena_printf(c->mem, "column%d", at + 1));
}

static void make_names(csv *c, const csv_cell *first) {
    c->names = ARENA_ARRAY(c->mem, str, c->ncolumns);
    arena *mem = arena_new();
    name_set set = name_set_make(mem, c->names, c->ncolumns);
    for (int i = 0; i < c->ncolumns; i++) {
        str name = name_of_cell(c, &first[i], i), stem = name;
        int *slot = name_slot(&set, name), *repeat = *slot ? &set.repeats[*slot - 1] : NULL;
        while (*slot) {
            name = str_from(arena_printf(c->mem, "%.*s_%d", (int)stem.n, stem.p, (*repeat)++));
            slot = name_slot(&set, name);
        }
        c->names[i] = name;
        *slot = i + 1;
        set.repeats[i] = 2;
    }
    arena_free(mem);
}

/* ---- all together ---------------------------------------------------------------------------- */

static void sample_rest(csv *c, sample *s) {
    const char *p = c->record.next, *end = c->in.p + c->in.end;
    while (csv_record_next(p, end, c->in.eof, c->delimiter, &c->record) == CSV_RECORD) {
        p = c->record.next;
        if (!is_blank(&c->record) || c->ncolumns == 1)
            sample_record(c, s);
        if (c->record.next - (c->in.p + c->in.start) > SNIFF_BYTES)
            break;
    }
}

/* A header-less file's first record is data too. */
static void decide_types(csv *c, sample *s) {
    c->types = ARENA_ARRAY(c->mem, value_type, c->ncolumns);
    if (!c->header) {
        c->record.n = c->ncolumns;
        memcpy(c->record.cells, s->first, sizeof *s->first * (size_t)c->ncolumns);
        sample_record(c, s);
    }
    for (int i = 0; i < c->ncolumns; i++)
        c->types[i] = c->options.all_text || s->types[i] == TYPE_NULL ? TYPE_TEXT : s->types[i];
}

int csv_sniff(csv *c, err *e) {
    bool end = false;
    int status = fill_sample(c, e);
    if (status)
        return status;
    c->delimiter = c->options.delimiter ? c->options.delimiter : find_delimiter(c);
    if ((status = csv_peek(c, &end, e)) != 0)
        return status;
    if (end) {
        err_set(e, ERR_CORRUPT, "'%s' is empty", c->in.name);
        if (c->in.once)
            err_hint(e, "a pipe is read once: CREATE TABLE t AS SELECT * FROM '%s' keeps it",
                     c->name ? c->name : "-");
        return ERR_CORRUPT;
    }
    if (ends_in_cr_alone(c)) {
        err_set(e, ERR_UNSUPPORTED, "the lines of '%s' end in CR alone", c->in.name);
        err_hint(e, "tr '\\r' '\\n' makes them ends that kvasir reads");
        return ERR_UNSUPPORTED;
    }
    int n = c->ncolumns = c->record.n;
    sample s = {.types = ARENA_ARRAY(c->mem, value_type, n),
                .repeats = ARENA_ARRAY(c->mem, bool, n),
                .first = ARENA_ARRAY(c->mem, csv_cell, n)};
    memcpy(s.first, c->record.cells, sizeof *s.first * (size_t)n);
    sample_rest(c, &s);
    c->header = c->options.header == CSV_HEADER_YES ||
                (c->options.header == CSV_HEADER_AUTO && find_header(c, &s));
    decide_types(c, &s);
    make_names(c, s.first);
    if ((status = csv_peek(c, &end, e)) != 0)
        return status;
    if (c->header)
        csv_advance(c);
    return 0;
}
