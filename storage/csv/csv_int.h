/*
 * csv_int.h - the structs and functions that the CSV files share.
 *
 *   csv_record.c  splits one record into cells
 *   csv_sniff.c   detects delimiter, header, names and types from the first records
 *   csv.c         batches of typed rows
 *   csv_write.c   writes rows
 */
#ifndef KVASIR_CSV_INT_H
#define KVASIR_CSV_INT_H

#include "file/file_int.h"

/* Maximum size of a record: as much as a row can hold. */
#define CSV_RECORD_MAX ((size_t)1 << 30)

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

typedef struct csv {
    table_file f;
    char delimiter;
    bool header;
    csv_record record;
} csv;

/* The open function of the class. */
int csv_sniff(table_file *f, err *e);
/* Reads the record at in.start into c->record, without consuming it. Sets *end if there is none. */
int csv_peek(csv *c, bool *end, err *e);
/* Moves to the next record. */
void csv_advance(csv *c);

#endif
