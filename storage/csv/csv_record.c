/*
 * csv_record.c - splits a record of a CSV file into cells.
 *
 * Invariant: a quote begins a quoted cell only as the cell's first byte. Anywhere else a quote is
 * an ordinary character (TSV files contain such quotes). Inside a quoted cell only quotes are
 * special.
 */
#include <string.h>

#include "csv_int.h"

#ifdef __SSE2__
#include <emmintrin.h>

/* Returns the first delimiter or newline in [p, end), else end. May load FILE_SLACK bytes after
 * end. */
static const char *find_end(const char *p, const char *end, char delimiter) {
    const __m128i d = _mm_set1_epi8(delimiter), nl = _mm_set1_epi8('\n');
    for (; p < end; p += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        int hits =
            _mm_movemask_epi8(_mm_or_si128(_mm_cmpeq_epi8(bytes, d), _mm_cmpeq_epi8(bytes, nl)));
        if (hits) {
            p += __builtin_ctz((unsigned)hits);
            return p < end ? p : end;
        }
    }
    return end;
}
#else
static const char *find_end(const char *p, const char *end, char delimiter) {
    while (p < end && *p != delimiter && *p != '\n')
        p++;
    return p;
}
#endif

/* Returns the closing quote of a cell whose text begins at p; NULL: the quote is not in the
 * window. */
static const char *find_quote(const char *p, const char *end, bool last, bool *escaped) {
    for (;;) {
        const char *quote = memchr(p, '"', (size_t)(end - p));
        if (!quote || (quote + 1 == end && !last))
            return NULL;
        if (quote + 1 == end || quote[1] != '"')
            return quote;
        *escaped = true;
        p = quote + 2;
    }
}

static csv_cell *add_cell(csv_record *out) {
    ARRAY_RESERVE(out->cells, out->n + 1, out->cap);
    return &out->cells[out->n++];
}

/* Scans the cell at p. Sets *after to the delimiter, newline or end that follows the cell. */
static csv_status scan_cell(const char *p, const char *end, bool last, char delimiter,
                            csv_cell *cell, const char **after) {
    *cell = (csv_cell){.p = p};
    if (p == end || *p != '"') {
        const char *stop = find_end(p, end, delimiter);
        if (stop == end && !last)
            return CSV_MORE;
        cell->n = (size_t)(stop - p);
        if ((stop == end || *stop == '\n') && cell->n && stop[-1] == '\r')
            cell->n--;
        *after = stop;
        return CSV_RECORD;
    }
    const char *quote = find_quote(p + 1, end, last, &cell->escaped);
    if (!quote) {
        *after = p;
        return last ? CSV_OPEN_QUOTE : CSV_MORE;
    }
    cell->p = p + 1;
    cell->n = (size_t)(quote - p - 1);
    cell->quoted = true;
    const char *stop = quote + 1;
    if (stop < end && *stop == '\r' && (stop + 1 < end ? stop[1] == '\n' : last))
        stop++;
    else if (stop < end && *stop == '\r' && stop + 1 == end)
        return CSV_MORE;
    *after = stop;
    if (stop == end || *stop == delimiter || *stop == '\n')
        return CSV_RECORD;
    return CSV_BAD_QUOTE;
}

csv_status csv_record_next(const char *p, const char *end, bool last, char delimiter,
                           csv_record *out) {
    out->n = 0;
    if (p == end)
        return last ? CSV_END : CSV_MORE;
    for (;;) {
        csv_status status = scan_cell(p, end, last, delimiter, add_cell(out), &out->next);
        if (status != CSV_RECORD)
            return status;
        if (out->next == end)
            return CSV_RECORD;
        p = out->next + 1;
        if (*out->next == '\n') {
            out->next = p;
            return CSV_RECORD;
        }
        if (p == end && !last)
            return CSV_MORE;
    }
}

str csv_cell_text(const csv_cell *c, arena *a) {
    if (!c->escaped)
        return (str){c->p, c->n};
    char *out = arena_alloc(a, c->n);
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        out[n++] = c->p[i];
        if (c->p[i] == '"')
            i++;
    }
    return (str){out, n};
}
