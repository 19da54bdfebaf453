/*
 * row_sink_int.h - INSERT's inner loop, for COPY and CREATE TABLE AS too (stmt_dml.c).
 */
#ifndef KVASIR_ROW_SINK_INT_H
#define KVASIR_ROW_SINK_INT_H

#include "returning_int.h"

typedef struct row_sink {
    stmt *s;
    const sql_stmt *x;
    const table_def *table;
    arena *mem; /* reset by each batch */
    int64_t rows, changes;
    bool name_rows;       /* errors name the row */
    const int64_t *lines; /* or, of a file, its path and the batch's line numbers */
    const char *path;
    stats_feed *feed; /* counts the rows, once there are many; or NULL */
    int64_t *rowids;  /* of the batch */
    returned *out;    /* of RETURNING; or NULL */
} row_sink;
void row_sink_init(row_sink *w, stmt *s, const sql_stmt *x, const table_def *table);
int row_sink_end(row_sink *w, err *e); /* after the last row: keeps what was counted */
void row_sink_free(row_sink *w);
int row_sink_write(row_sink *w, const batch *rows, err *e);

#endif
