/*
 * row_sink_int.h - writing rows into a table, for INSERT, COPY FROM and CREATE TABLE AS.
 */
#ifndef KVASIR_ROW_SINK_INT_H
#define KVASIR_ROW_SINK_INT_H

#include "returning_int.h"

typedef struct row_sink {
    stmt *s;
    const sql_stmt *x;
    const table_def *table;
    arena *mem;           /* reset for each batch */
    int64_t rows;         /* number of rows in the batches written so far */
    int64_t changes;      /* number of rows inserted or updated so far */
    bool name_rows;       /* error messages include the row's number */
    const int64_t *lines; /* COPY: the line number of each row of the batch, for error messages */
    const char *path;     /* COPY: the path of the file */
    stats_feed *feed;     /* adds the rows to the table's statistics; NULL: not started */
    int64_t *rowids;      /* rowids of the batch, for `feed` */
    returned *out;        /* collects the rows of RETURNING; NULL: no RETURNING */
} row_sink;

void row_sink_init(row_sink *w, stmt *s, const sql_stmt *x, const table_def *table);
void row_sink_free(row_sink *w);
/* Writes a batch that has the table's columns. */
int row_sink_write(row_sink *w, const batch *rows, err *e);
int row_sink_end(row_sink *w, err *e); /* after the last row: stores the statistics */
/* Evaluates the table's CHECKs over rows that have the table's columns. On failure sets *bad to the
 * first row that fails. */
int row_sink_check(row_sink *w, const batch *rows, int *bad, err *e);

#endif
