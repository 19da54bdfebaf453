/*
 * system_int.h - the system tables: their list, and functions that compute their rows.
 */
#ifndef KVASIR_SYSTEM_INT_H
#define KVASIR_SYSTEM_INT_H

#include "core/exec_ctx_int.h"

typedef struct maker maker;

/* Sets the next cell of the current row. The row's last cell completes the row, and the row is then
 * added with copies of its values. */
void system_cell(maker *m, value v);
exec_ctx *system_ctx(const maker *m);
arena *system_mem(const maker *m);

#define COLUMN(column_name, column_type)                                                           \
    {                                                                                              \
        .type = column_type, .name = { column_name, sizeof(column_name) - 1 }                      \
    }

/* ---- the tables (op_system.c) ---------------------------------------------------------------- */

typedef struct system_table_info {
    const char *name;
    int ncols;
    const rel_column *cols;
} system_table_info;
const system_table_info *system_table_at(size_t k); /* NULL after the last */
/* Returns the columns of the system table `name`, or NULL if there is none. Used as
 * bind_env.system_table. */
const rel_column *system_table_columns(void *ctx, str name, int *ncols);

/* ---- system_cache.c -------------------------------------------------------------------------- */

enum { CACHE_COLS = 15, PREFIXES_COLS = 4, STATEMENTS_COLS = 14 };
extern const rel_column cache_cols[CACHE_COLS], prefixes_cols[PREFIXES_COLS],
    statements_cols[STATEMENTS_COLS];
int cache_rows(maker *m, err *e);
int prefixes_rows(maker *m, err *e);
int statements_rows(maker *m, err *e);

#endif
