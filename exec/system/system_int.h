/*
 * system_int.h - how system tables make their rows: private to op_system.c and system_*.c.
 */
#ifndef KVASIR_SYSTEM_INT_H
#define KVASIR_SYSTEM_INT_H

#include "core/exec_ctx_int.h"

typedef struct maker maker;

/* Adds the next cell of the row in hand; behind the last column the row is done. The value is
 * copied by the time of that. */
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
/* bind_env's hook. */
const rel_column *system_table_columns(void *ctx, str name, int *ncols);

/* ---- system_cache.c -------------------------------------------------------------------------- */

/* A stored prefix: how long, how often its last block was read, what it takes, and the text of its
 * end (NULL: made by another model than the standard one). */
typedef struct cache_prefix {
    uint64_t tokens, hits, bytes;
    str text;
} cache_prefix;
/* The stored prefixes that save most, best first; returns how many. */
int cache_prefixes(exec_ctx *ctx, const catalog *known, cache *c, arena *mem, int max,
                   cache_prefix *out);

enum { CACHE_COLS = 11, PREFIXES_COLS = 4, STATEMENTS_COLS = 14 };
extern const rel_column cache_cols[CACHE_COLS], prefixes_cols[PREFIXES_COLS],
    statements_cols[STATEMENTS_COLS];
int cache_rows(maker *m, err *e);
int prefixes_rows(maker *m, err *e);
int statements_rows(maker *m, err *e);

#endif
