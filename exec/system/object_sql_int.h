/*
 * object_sql_int.h - the CREATE statement that makes an object of the catalog.
 */
#ifndef KVASIR_OBJECT_SQL_INT_H
#define KVASIR_OBJECT_SQL_INT_H

#include "storage/storage.h"

/* Each appends one statement, without a semicolon. */
void table_sql(const table_def *t, buf *out);
void index_sql(const table_def *t, const index_def *x, buf *out);
void view_sql(const view_def *v, buf *out);
void model_sql(const model_def *m, buf *out);
/* Whether a constraint of CREATE TABLE made the index, so that table_sql shows it. */
bool index_is_constraint(const table_def *t, const index_def *x);

#endif
