/*
 * file_cells.c - what CSV and JSON do alike with a cell: names and types of columns, texts, errors.
 *
 * Invariant: an error names the line on which its byte is, counted from the record at in.start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file_int.h"

enum { TEXT_PIECE = 64 << 10 };

/* ---- errors ---------------------------------------------------------------------------------- */

int64_t file_count_lines(const char *p, const char *end) {
    int64_t n = 0;
    while (p < end && (p = memchr(p, '\n', (size_t)(end - p)))) {
        n++;
        p++;
    }
    return n;
}

int file_error(const table_file *f, err *e, err_code code, const char *at, const str *cell,
               const char *format, ...) {
    char what[512], place[256] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const char *start = f->in.p + f->in.start;
    /* A cell that was converted to UTF-8 is outside the window. */
    bool inside = at >= start && at <= f->in.p + f->in.end;
    long long line = (long long)(f->line + (inside ? file_count_lines(start, at) : 0));
    int n = 0;
    if (f->object)
        n = snprintf(place, sizeof place, ", object %lld", (long long)f->object);
    if (cell)
        snprintf(place + n, sizeof place - (size_t)n, ", %s \"%.*s\"", f->class->cell,
                 (int)BASE_MIN(cell->n, 128u), cell->p);
    return err_set(e, code, "%s, line %lld%s: %s", f->in.name, line, place, what);
}

int file_convert_error(const table_file *f, const char *at, int position, const err *cause,
                       err *e) {
    file_error(f, e, ERR_TYPE, at, &f->names[position], "%s", cause->message);
    if (f->options.own_types)
        err_hint(e,
                 "the types are those of CREATE TABLE; to see the file as it is: "
                 "SELECT * FROM '%s'",
                 f->name);
    else
        err_hint(e, "types are detected in %s; to choose them, use CREATE TABLE and COPY",
                 f->class->sample);
    return ERR_TYPE;
}

int file_empty_error(const table_file *f, err *e) {
    err_set(e, ERR_CORRUPT, "'%s' is empty", f->in.name);
    if (f->in.once)
        err_hint(e,
                 "a pipe can be read only once; if a statement before read it, keep the rows "
                 "there: CREATE TABLE t AS SELECT * FROM '%s'",
                 f->name);
    return ERR_CORRUPT;
}

/* ---- names and types ------------------------------------------------------------------------- */

/* Returns the column of this name, or -1. */
static int find_name(const hash_index *by_name, const str *names, str name, uint64_t hash) {
    for (hash_slot *s = hash_index_first(by_name, hash); s; s = hash_index_next(by_name, s))
        if (str_equal_nocase(names[s->item], name))
            return (int)s->item;
    return -1;
}

/* suffix[i] is the next number for the name of column i, so that n columns of one name do not take
 * n * n look-ups. */
void file_make_names(table_file *f, const str *wanted) {
    f->names = ARENA_ARRAY(f->mem, str, BASE_MAX(f->ncolumns, 1));
    int *suffix = mem_alloc(sizeof *suffix * (size_t)BASE_MAX(f->ncolumns, 1));
    hash_index by_name = {0};
    for (int i = 0; i < f->ncolumns; i++) {
        str name = wanted[i];
        if (name.n == 0)
            name = str_from(arena_printf(f->mem, "column%d", i + 1));
        str stem = name;
        uint64_t hash = str_hash_nocase(name);
        int same = find_name(&by_name, f->names, name, hash);
        for (int taken = same; taken >= 0; taken = find_name(&by_name, f->names, name, hash)) {
            name = str_from(arena_printf(f->mem, "%.*s_%d", (int)stem.n, stem.p, suffix[same]++));
            hash = str_hash_nocase(name);
        }
        f->names[i] = name;
        suffix[i] = 2;
        hash_index_add(&by_name, hash, (uint32_t)i);
    }
    hash_index_free(&by_name);
    free(suffix);
}

value_type file_join_types(value_type a, value_type b) {
    if (a == TYPE_NULL || a == b)
        return b;
    bool numbers = (a == TYPE_INTEGER || a == TYPE_REAL) && (b == TYPE_INTEGER || b == TYPE_REAL);
    return numbers ? TYPE_REAL : TYPE_TEXT;
}

/* ---- cells ----------------------------------------------------------------------------------- */

char *file_text_alloc(text_pieces *t, size_t n) {
    if (n > t->room) {
        /* A long text gets memory of its own, so that the current piece stays in use. */
        if (n > TEXT_PIECE / 4)
            return arena_alloc(t->mem, n);
        t->p = arena_alloc(t->mem, TEXT_PIECE);
        t->room = TEXT_PIECE;
    }
    char *out = t->p;
    t->p += n;
    t->room -= n;
    return out;
}

static str keep_text(text_pieces *t, str text) {
    if (text.n == 0)
        return (str){"", 0};
    char *out = file_text_alloc(t, text.n);
    memcpy(out, text.p, text.n);
    return (str){out, text.n};
}

int file_hex_digit(char c) {
    char small = ascii_lower(c);
    return c >= '0' && c <= '9' ? c - '0' : small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

/* Decodes \x00ff into bytes in `mem`. */
static int blob_decode(str text, arena *mem, str *out, err *e) {
    char *p = arena_alloc(mem, text.n / 2);
    size_t n = 0, at = 2;
    for (; at + 1 < text.n; at += 2) {
        int high = file_hex_digit(text.p[at]), low = file_hex_digit(text.p[at + 1]);
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

int file_store_text(table_file *f, text_pieces *t, column *out, int row, int position, str text,
                    bool kept, const char *at, err *e) {
    err cause;
    if (out->type == TYPE_BLOB && text.n >= 2 && memcmp(text.p, "\\x", 2) == 0)
        return blob_decode(text, t->mem, &out->s[row], &cause)
                   ? file_convert_error(f, at, position, &cause, e)
                   : 0;
    if (out->type == TYPE_TEXT || out->type == TYPE_BLOB) {
        out->s[row] = kept ? text : keep_text(t, text);
        return 0;
    }
    if (out->type == TYPE_INTEGER && parse_integer(text, &out->i[row]))
        return 0;
    if (out->type == TYPE_REAL && parse_real(text, &out->r[row]))
        return 0;
    value v;
    if (value_cast(t->mem, value_text(text), out->type, &v, &cause) != 0)
        return file_convert_error(f, at, position, &cause, e);
    column_set(out, t->mem, f->batch_rows, row, v);
    return 0;
}
