/*
 * object_sql_int.h - prints the CREATE statement of a catalog object.
 */
#ifndef KVASIR_OBJECT_SQL_INT_H
#define KVASIR_OBJECT_SQL_INT_H

#include "storage/storage.h"

/* Each function appends one statement, without a semicolon. */
void table_sql(const table_def *t, buf *out);
void index_sql(const table_def *t, const index_def *x, buf *out);
void view_sql(const view_def *v, buf *out);
void model_sql(const model_def *m, buf *out);
/* Whether table_sql prints the index as a PRIMARY KEY or UNIQUE constraint. */
bool index_is_constraint(const table_def *t, const index_def *x);

#endif
