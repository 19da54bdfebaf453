/*
 * returning_int.h - RETURNING: the rows that an INSERT, UPDATE or DELETE returns at its end.
 */
#ifndef KVASIR_RETURNING_INT_H
#define KVASIR_RETURNING_INT_H

#include "stmt_int.h"

typedef struct returned returned;
returned *returned_new(stmt *s, const sql_stmt *x); /* NULL: x has no RETURNING */
void returned_free(returned *r);                    /* NULL is fine */
/* Adds rows that were just written. Columns of `written`: the rowid, the table's columns, the extra
 * columns of the query (see sql_stmt.returning). */
int returned_batch(returned *r, const batch *written, err *e);
/* INSERT adds rows one by one. For each batch `from` of its query it calls returned_begin, then
 * returned_row for each row written, with the row's values as they are now in the table, then
 * returned_end. */
void returned_begin(returned *r, const table_def *t, const batch *from);
void returned_row(returned *r, const table_def *t, int64_t rowid, const value *row,
                  const batch *from, int at);
int returned_end(returned *r, err *e);
/* Commits if outside BEGIN, and returns the rows to the caller. */
int returned_hand_out(returned *r, err *e);

#endif
