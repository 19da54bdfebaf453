/*
 * bench_data.h - the tables that bench_queries asks about, made of real data in a fixed order.
 *
 *   movies      reviews of rt.reviews.tsv.gz joined with the films of rt.movie_info.tsv.gz: whole
 *               films in a seeded order until there
 *               are N joined rows, which are then shuffled by a fixed seed
 *   beer        the first N rows of beer.csv, as they stand
 *
 * Ownership: a bench_set owns its rows and texts until bench_set_free.
 */
#ifndef KVASIR_BENCH_DATA_H
#define KVASIR_BENCH_DATA_H

#include "exec/exec.h"

enum { BENCH_COLUMNS = 9 };

/* One row of the table that is asked about; label: what
 * people said, never among the fields (n = 0: nothing). */
typedef struct bench_row {
    str cells[BENCH_COLUMNS];
    str label;
} bench_row;

typedef struct bench_film {
    str id, synopsis, genre, studio;
} bench_film;

typedef struct bench_set {
    arena *mem;
    bench_row *rows;
    int nrows, capacity;
    bench_film *films;
    int nfilms;
    /* two reviews of films that are not among the rows: positive, negative */
    bench_row examples[2];
    str example_synopses[2];
} bench_set;

/* Cells of a row of `movies`. */
enum { CELL_MOVIE, CELL_REVIEW, CELL_PUBLISHER, CELL_TOP_CRITIC };

BASE_NORETURN void bench_die(const char *what, const err *e);
typedef void (*bench_row_fn)(void *ctx, const batch *b);
/* Runs one statement; ends the program when it fails. */
void bench_run(db *d, const char *sql, bench_row_fn each, void *ctx, exec_summary *summary);
void bench_run_all(db *d, const char *statements); /* with ';' between them */

/* Reads and chooses rows; ends the program when a file is missing. */
void bench_movies(const char *dir, int rows, bench_set *out);
void bench_beer(const char *dir, int rows, bench_set *out);
/* Makes the tables: `reviews` of all rows, `base` of the first nbase, `movies` and `few_shot`; or
 * `reviews` and `base` of beers. */
void bench_load_movies(db *d, const bench_set *set, int nbase);
void bench_load_beer(db *d, const bench_set *set, int nbase);
void bench_set_free(bench_set *set);

#endif
