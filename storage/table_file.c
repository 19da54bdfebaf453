/*
 * table_file.c - files that are read as tables: opens the input and chooses the format.
 *
 * Invariant: the format is chosen by options, name and first bytes before a reader sees any of them,
 * and the window still begins with the input's first byte until a row is read.
 */
#include <stdlib.h>
#include <string.h>

#include "file/file_int.h"

/* HEAD_BYTES: how much is read to recognize a format. BATCH_CELLS limits the rows of a batch in a
 * file of very many columns. */
enum { HEAD_BYTES = 4096, BATCH_CELLS = BATCH_ROWS * 2048 };

static bool ends_with(str s, str ending) {
    return s.n >= ending.n && str_equal_nocase((str){s.p + s.n - ending.n, ending.n}, ending);
}

static bool named_json(const char *path) {
    str name = str_from(path);
    if (ends_with(name, STR(".gz")))
        name.n -= 3;
    return ends_with(name, STR(".json")) || ends_with(name, STR(".jsonl")) ||
           ends_with(name, STR(".ndjson"));
}

/* Whether the text begins with [{, {" or an empty array or object, as no CSV file does. */
static bool begins_json(str s) {
    char head[2] = {0};
    for (size_t i = 0, k = 0; i < s.n && k < 2; i++)
        if (!strchr(" \t\r\n", s.p[i]))
            head[k++] = s.p[i];
    return (head[0] == '[' && (head[1] == '{' || head[1] == ']')) ||
           (head[0] == '{' && (head[1] == '"' || head[1] == '}'));
}

/* A user who gives a delimiter means CSV. */
static const file_class *choose_class(const file_input *in, const char *path,
                                      const file_options *o) {
    if (o->format == FILE_CSV || o->delimiter)
        return &file_csv;
    str head = {in->p + in->start, in->end - in->start};
    return o->format == FILE_JSON || named_json(path) || begins_json(head) ? &file_json : &file_csv;
}

/* Reads the first bytes, refuses other programs' files, and skips a byte order mark. */
static int read_head(file_input *in, const file_options *o, err *e) {
    int status = file_input_fill(in, HEAD_BYTES, e);
    if (status)
        return status;
    str head = {in->p, BASE_MIN(in->end, (size_t)HEAD_BYTES)};
    /* with a delimiter the user means CSV; what begins like UTF-16 is not CSV all the same */
    bool text = o->delimiter && head.n > 0 && (unsigned char)head.p[0] < 0x80;
    if (!text && refuse_foreign_file(ERR_UNSUPPORTED, in->name, head,
                                     "; kvasir reads CSV, TSV and JSON in UTF-8", e))
        return ERR_UNSUPPORTED;
    if (head.n >= 3 && memcmp(head.p, "\xef\xbb\xbf", 3) == 0)
        in->start = 3;
    return 0;
}

/* Takes the input. */
static int reader_new(file_input *in, char *path, const file_options *options, table_file **out,
                      err *e) {
    file_options o = options ? *options : (file_options){0};
    int status = read_head(in, &o, e);
    if (status) {
        file_input_close(in, true);
        free(path);
        return status;
    }
    const file_class *class = choose_class(in, path, &o);
    table_file *f = mem_zalloc(class->bytes);
    *f = (table_file){.class = class, .in = *in, .name = path, .options = o, .line = 1};
    f->mem = arena_new();
    f->options.null_text = str_copy(f->mem, o.null_text);
    status = class->open(f, e);
    if (status) {
        table_file_close(f);
        return status;
    }
    f->batch_rows = BASE_MAX(BASE_MIN(BATCH_ROWS, BATCH_CELLS / BASE_MAX(f->ncolumns, 1)), 1);
    *out = f;
    return 0;
}

int table_file_open(const char *path, const file_options *options, table_file **out, err *e) {
    file_input in = {.fd = -1};
    char *name = mem_strdup(path); /* in.name points to it */
    int status = file_input_open(&in, name, options ? options->cancel : NULL, e);
    if (status) {
        file_input_close(&in, true);
        free(name);
        return status;
    }
    return reader_new(&in, name, options, out, e);
}

int table_file_open_memory(const void *bytes, size_t n, const file_options *options,
                           table_file **out, err *e) {
    file_input in = {.fd = -1};
    file_input_memory(&in, bytes, n);
    return reader_new(&in, mem_strdup("-"), options, out, e);
}

void table_file_close(table_file *f) {
    if (!f)
        return;
    f->class->close(f);
    file_input_close(&f->in, !f->read);
    arena_free(f->mem);
    free(f->name);
    free(f);
}

int table_file_next(table_file *f, const value_type *types, batch *out, int64_t *lines, err *e) {
    f->read = true;
    batch_init(out, out->mem, types, f->ncolumns, f->batch_rows);
    return f->class->next(f, types, out, lines, e);
}

int table_file_column_count(const table_file *f) {
    return f->ncolumns;
}

str table_file_column_name(const table_file *f, int at) {
    return f->names[at];
}

value_type table_file_column_type(const table_file *f, int at) {
    return f->types[at];
}

bool table_file_by_name(const table_file *f) {
    return f->class->by_name;
}

int64_t table_file_recoded(const table_file *f, int64_t *first_line) {
    if (first_line)
        *first_line = f->first_recoded;
    return f->recoded;
}
