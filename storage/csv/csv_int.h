/*
 * csv_int.h - the structs and functions that the CSV files share.
 *
 *   csv_input.c   reads a file, standard input, gzip, or memory into a window that grows to hold a
 *                 whole record
 *   csv_record.c  splits one record into cells
 *   csv_sniff.c   detects delimiter, header, names and types from the first records
 *   csv.c         batches of typed rows; errors with line and column
 *   csv_write.c   writes rows
 *
 * A BLOB is written as \x and two hexadecimal digits per byte, as psql does, so none of its bytes
 * can be mistaken for a delimiter or for text in another encoding. A cell without \x is read as its
 * own bytes.
 */
#ifndef KVASIR_CSV_INT_H
#define KVASIR_CSV_INT_H

#include "storage/containers.h"
#include "storage/storage.h"

/* Readable bytes after the window's end: the scanner loads 16 at a time. */
enum { CSV_SLACK = 16 };

/* Maximum size of a record: as much as a row can hold. */
#define CSV_RECORD_MAX ((size_t)1 << 30)

struct csv_gzip;

/*
 *   p ....... start ............... end ......... cap  +CSV_SLACK
 *     used    unread, in the window     free
 */
typedef struct csv_input {
    const char *name;
    int fd; /* -1: memory */
    bool owns_fd;
    bool once; /* standard input or a pipe: it cannot be opened again from its beginning */
    /* checked while waiting for standard input or a pipe; NULL: not cancellable */
    const atomic_bool *cancel;
    struct csv_gzip *gzip; /* NULL: not gzipped */
    char *p;
    size_t start, end, cap;
    bool eof; /* the input has no bytes after `end` */
} csv_input;

/* Opens an input. A pipe that csv_input_close kept is read from its beginning. ERR_IO,
 * ERR_CANCELLED. */
int csv_input_open(csv_input *in, const char *path, const atomic_bool *cancel, err *e);
void csv_input_memory(csv_input *in, const void *bytes, size_t n);
/* Closes an input. `unread`: the window still has the input's beginning, so a pipe is kept for the
 * next open. */
void csv_input_close(csv_input *in, bool unread);
/* Moves the unread bytes to the front, grows the window if it is full, and reads more. Sets eof at
 * the end of the input. */
int csv_input_more(csv_input *in, err *e);

/* A cell's bytes in the window, without its quotes; `escaped`: it contains "" for a quote. */
typedef struct csv_cell {
    const char *p;
    size_t n;
    bool quoted, escaped;
} csv_cell;

typedef struct csv_record {
    csv_cell *cells;
    int n, cap;
    const char *next; /* the byte after the record's line end; after an error see csv_status */
} csv_record;

typedef enum csv_status {
    CSV_RECORD,     /* cells are filled */
    CSV_MORE,       /* the record does not end in the window */
    CSV_END,        /* the end of the input */
    CSV_OPEN_QUOTE, /* the input ends in a quoted cell, which starts at `next` */
    CSV_BAD_QUOTE   /* bytes between a closing quote and the delimiter, at `next` */
} csv_status;

/* Splits the record at p. `last`: the input ends at `end`. */
csv_status csv_record_next(const char *p, const char *end, bool last, char delimiter,
                           csv_record *out);
/* Returns the cell's text; an escaped text is unescaped into memory from `a`. */
str csv_cell_text(const csv_cell *c, arena *a);

/* Converts the bytes of a text that are not UTF-8 from Windows-1252. */
str csv_recode(str s, arena *a);

struct csv {
    csv_input in;
    char *name;
    csv_options options;
    arena *mem;
    char delimiter;
    bool header;
    int ncolumns;
    int batch_rows; /* maximum rows of a batch */
    str *names;
    value_type *types;
    csv_record record;
    bool read;             /* rows have been read */
    int64_t line;          /* line of the record at in.start */
    int64_t recoded;       /* number of cells converted from Windows-1252 */
    int64_t first_recoded; /* line of the first of them */
};

int csv_sniff(csv *c, err *e);
int csv_open_memory(const void *bytes, size_t n, const csv_options *options, csv **out, err *e);
/* Reads the record at in.start into c->record, without consuming it. Sets *end if there is none. */
int csv_peek(csv *c, bool *end, err *e);
/* Moves to the next record. */
void csv_advance(csv *c);
/* Sets an error at byte `at` of the current record: "file, line N, column "c": …". position: that
 * of the column in a row; < 0: the message names no column. */
int csv_error(const csv *c, err *e, err_code code, const char *at, int position, const char *format,
              ...) BASE_PRINTF(6, 7);

#endif
