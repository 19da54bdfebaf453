/*
 * file_int.h - what the readers of CSV and JSON files share.
 *
 *   file_input.c   reads a file, standard input, gzip, or memory into a window that grows to hold a
 *                  whole record
 *   file_cells.c   column names, types, texts of cells, errors with line and column
 *
 * A format is a file_class; its state begins with a table_file. storage/table_file.c, on top of the
 * formats, opens the input, chooses the class and has the functions of storage.h.
 *
 * A BLOB is written as \x and two hexadecimal digits per byte, as psql does, so none of its bytes
 * can be mistaken for a delimiter or for text in another encoding. A cell without \x is read as its
 * own bytes.
 */
#ifndef KVASIR_FILE_INT_H
#define KVASIR_FILE_INT_H

#include "storage/containers.h"
#include "storage/storage.h"

/* ---- input ----------------------------------------------------------------------------------- */

/* Readable bytes after the window's end: a scanner loads 16 at a time. */
enum { FILE_SLACK = 16 };

struct file_gzip;

/*
 *   p ....... start ............... end ......... cap  +FILE_SLACK
 *     used    unread, in the window     free
 */
typedef struct file_input {
    const char *name;
    int fd; /* -1: memory */
    bool owns_fd;
    bool once; /* standard input or a pipe: it cannot be opened again from its beginning */
    /* checked while waiting for standard input or a pipe; NULL: not cancellable */
    const atomic_bool *cancel;
    struct file_gzip *gzip; /* NULL: not gzipped */
    char *p;
    size_t start, end, cap;
    bool eof;  /* the input has no bytes after `end` */
    bool keep; /* used bytes stay in the window: the caller will move start back */
} file_input;

/* Opens an input. A pipe that file_input_close kept is read from its beginning. ERR_IO,
 * ERR_CANCELLED. */
int file_input_open(file_input *in, const char *path, const atomic_bool *cancel, err *e);
void file_input_memory(file_input *in, const void *bytes, size_t n);
/* Closes an input. `unread`: the window still has the input's beginning, so a pipe is kept for the
 * next open. */
void file_input_close(file_input *in, bool unread);
/* Moves the unread bytes to the front unless `keep` is set, grows the window if it is full, and
 * reads more. Sets eof at the end of the input. */
int file_input_more(file_input *in, err *e);
/* Reads until at least `bytes` are unread, or the input ends. */
int file_input_fill(file_input *in, size_t bytes, err *e);

/* ---- readers --------------------------------------------------------------------------------- */

typedef struct file_class {
    size_t bytes;       /* size of the reader's state */
    const char *cell;   /* what messages call a column: "column", "key" */
    const char *sample; /* from what types are detected: "the first MB" */
    bool by_name;       /* COPY matches columns by name, else by position */
    /* Detects columns and types: sets ncolumns, names, types; in.start is at the first row. */
    int (*open)(table_file *f, err *e);
    int (*next)(table_file *f, const value_type *types, batch *out, int64_t *lines, err *e);
    void (*close)(table_file *f); /* frees what the class added to table_file */
} file_class;

extern const file_class file_csv, file_json;

struct table_file {
    const file_class *class;
    file_input in;
    char *name;
    file_options options;
    arena *mem;
    int ncolumns;
    int batch_rows; /* maximum rows of a batch */
    str *names;
    value_type *types;
    bool read;             /* rows have been read */
    int64_t line;          /* line of the record at in.start */
    int64_t object;        /* number of that record, for messages; 0: the line says enough */
    int64_t recoded;       /* number of cells converted from Windows-1252 */
    int64_t first_recoded; /* line of the first of them */
};

int table_file_open_memory(const void *bytes, size_t n, const file_options *options,
                           table_file **out, err *e);

/* Number of newlines in [p, end). */
int64_t file_count_lines(const char *p, const char *end);
/* Sets an error at byte `at` of the current record: "file, line N, column "c": …". cell: the
 * column's name; NULL: the message names no column. */
int file_error(const table_file *f, err *e, err_code code, const char *at, const str *cell,
               const char *format, ...) BASE_PRINTF(6, 7);
/* Sets the error of a cell at `at` that does not convert to its column's type. */
int file_convert_error(const table_file *f, const char *at, int position, const err *cause, err *e);
/* Sets the error of an input without rows. */
int file_empty_error(const table_file *f, err *e);
/* Sets names from `wanted`, one per column: an empty name becomes column<n>, and a name that is
 * taken, in any case, gets a number: a, a_2, a_3. */
void file_make_names(table_file *f, const str *wanted);
/* The type of a column that has values of both types; TYPE_NULL: no value yet. */
value_type file_join_types(value_type a, value_type b);

/* Returns the value of a hexadecimal digit, or -1. */
int file_hex_digit(char c);

/* Memory for a batch's texts, allocated from the batch's arena in large pieces instead of per
 * cell. */
typedef struct text_pieces {
    arena *mem;
    char *p;     /* the unused bytes of the current piece */
    size_t room; /* number of unused bytes */
} text_pieces;

/* Returns memory for a text of n bytes. */
char *file_text_alloc(text_pieces *t, size_t n);
/* Stores the text of a cell at out[row], converted to the column's type. `kept`: the bytes of `text`
 * live as long as the batch, else they are copied. `at`: where the cell is, for errors. */
int file_store_text(table_file *f, text_pieces *t, column *out, int row, int position, str text,
                    bool kept, const char *at, err *e);

#endif
