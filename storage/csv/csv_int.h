/*
 * csv_int.h - what the CSV files share: the input window, one record's cells, the reader.
 *
 *   csv_input.c   bytes: a file, standard input, gzip, or memory, as a window that grows to hold a
 *                 whole record
 *   csv_record.c  one record → cells
 *   csv_sniff.c   delimiter, header, names and types from the first records
 *   csv.c         batches of typed rows, and errors that name the place
 *   csv_write.c   the other direction
 *
 * A BLOB is \x and two hexadecimal digits a byte, as psql writes it: no byte of it can be taken for
 * the format's, or for text in another encoding. A cell without \x is its own bytes.
 */
#ifndef KVASIR_CSV_INT_H
#define KVASIR_CSV_INT_H

#include "storage/containers.h"
#include "storage/storage.h"

/* Bytes behind the window's end that may be read (never used): the scanner loads 16 at a time. */
enum { CSV_SLACK = 16 };

/* A record and a cell may not be longer than what a row holds. */
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
    bool once; /* it cannot be opened again from its beginning: standard input, a pipe */
    const atomic_bool *cancel; /* ends waiting for such bytes; NULL: nothing does */
    struct csv_gzip *gzip;
    char *p;
    size_t start, end, cap;
    bool eof;
} csv_input;

/* ERR_IO, ERR_CANCELLED. What was closed unread is opened as it was left. */
int csv_input_open(csv_input *in, const char *path, const atomic_bool *cancel, err *e);
void csv_input_memory(csv_input *in, const void *bytes, size_t n);
/* unread: the window still begins where the input does, and who opens it next has it all. */
void csv_input_close(csv_input *in, bool unread);
/* Reads more behind `end`; moves what is unread to
 * the front, or grows. eof when there is no more. */
int csv_input_more(csv_input *in, err *e);

/* A cell's bytes in the window, without its quotes; `escaped`: "" within stands for one quote. */
typedef struct csv_cell {
    const char *p;
    size_t n;
    bool quoted, escaped;
} csv_cell;

typedef struct csv_record {
    csv_cell *cells;
    int n, cap;
    const char *next; /* behind the record's line end */
} csv_record;

typedef enum csv_status {
    CSV_RECORD,     /* cells are filled */
    CSV_MORE,       /* the record does not end in the window */
    CSV_END,        /* nothing left */
    CSV_OPEN_QUOTE, /* the input ends within a quoted cell; next: where that begins */
    CSV_BAD_QUOTE   /* bytes between a closing quote and the delimiter; next: where */
} csv_status;

/* The record at p. `last`: the input ends at `end`. */
csv_status csv_record_next(const char *p, const char *end, bool last, char delimiter,
                           csv_record *out);
/* The cell's text; when escaped, it is unescaped into memory from `a`. */
str csv_cell_text(const csv_cell *c, arena *a);

/* The text with each byte that is no UTF-8 read as Windows-1252. */
str csv_recode(str s, arena *a);

struct csv {
    csv_input in;
    char *name;
    csv_options options;
    arena *mem;
    char delimiter;
    bool header;
    int ncolumns, batch_rows;
    str *names;
    value_type *types;
    csv_record record;
    bool read;    /* rows were */
    int64_t line; /* of the record at in.start */
    int64_t recoded, first_recoded;
};

int csv_sniff(csv *c, err *e);
int csv_open_memory(const void *bytes, size_t n, const csv_options *options, csv **out, err *e);
/* Reads the record at in.start into c->record, without consuming it. CSV_END at the end. */
int csv_peek(csv *c, bool *end, err *e);
/* Goes behind the record just read. */
void csv_advance(csv *c);
/* An error at `at` within the current record: "name,
 * line N, column 'c': …". `column` < 0: no column. */
int csv_error(const csv *c, err *e, err_code code, const char *at, int position, const char *format,
              ...) BASE_PRINTF(6, 7);

#endif
