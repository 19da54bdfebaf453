/*
 * bench_table.h - the cells of a CSV file as text, and their columns as fields for the solver.
 *
 * Ownership: everything is in the arena that the caller gives. Errors end the program.
 */
#ifndef KVASIR_BENCH_TABLE_H
#define KVASIR_BENCH_TABLE_H

#include "planner/psm.h"

typedef struct bench_table {
    int fields;
    uint32_t rows;
    str name[PSM_MAX_FIELDS];
    str *cell; /* [rows * fields]; an empty cell and NULL are '' */
} bench_table;

/* Prints "what: detail" and ends the program; detail: or NULL. */
BASE_NORETURN void bench_fail(const char *what, const char *detail);
/* Reads the first `most_rows` rows of a file. */
void bench_table_read(arena *mem, const char *path, uint32_t most_rows, bench_table *out);
/* The number of the column. */
int bench_table_column(const bench_table *t, const char *name);
/* Sets *out to the values of a column without their units and lengths, and *texts to the text of
 * each. */
void bench_table_field(arena *mem, const bench_table *t, int f, psm_field *out, str **texts);

#endif
