/*
 * bench_data.c - reading the real data, choosing rows by fixed seeds, loading them into a database.
 *
 * Invariant: which rows there are, and in which order, depends on the files and the number of rows
 * alone.
 */
#include "bench_data.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void bench_die(const char *what, const err *e) {
    fprintf(stderr, "bench_queries: %s%s%s\n", what, e ? ": " : "", e ? e->message : "");
    if (e && e->hint[0])
        fprintf(stderr, "  hint: %s\n", e->hint);
    exit(1);
}

void bench_run(db *d, const char *sql, bench_row_fn each, void *ctx, exec_summary *summary) {
    err e = {0};
    const batch *b;
    stmt *s = db_submit(d, str_from(sql));
    for (;;) {
        stmt_status status = stmt_next(s, -1, &b, &e);
        if (status == STMT_ERROR) {
            fprintf(stderr, "in: %.300s\n", sql);
            bench_die("statement failed", &e);
        }
        if (status == STMT_DONE)
            break;
        if (status == STMT_ROWS && each)
            each(ctx, b);
    }
    if (summary)
        stmt_summary(s, summary);
    stmt_free(s);
}

void bench_run_all(db *d, const char *statements) {
    str rest = str_from(statements);
    while (rest.n) {
        const char *end = memchr(rest.p, ';', rest.n);
        size_t n = end ? (size_t)(end - rest.p) : rest.n;
        char *one = mem_strndup(rest.p, n);
        bench_run(d, one, NULL, NULL, NULL);
        free(one);
        n += end != NULL;
        rest = (str){rest.p + n, rest.n - n};
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

typedef void (*keep_fn)(bench_set *set, const str *cells);

static int csv_find(const table_file *c, const char *name) {
    for (int i = 0; i < table_file_column_count(c); i++)
        if (str_equal_nocase(table_file_column_name(c, i), str_from(name)))
            return i;
    fprintf(stderr, "bench_queries: no column %s\n", name);
    exit(1);
}

/* Reads the named columns of a file as text, '' for NULL. */
static void read_file(const char *dir, const char *file, const char *const *names, int count,
                      bench_set *set, keep_fn keep) {
    err e = {0};
    table_file *c;
    buf path = {0};
    file_options text_only = {.all_text = true};
    buf_printf(&path, "%s/%s", dir, file);
    if (table_file_open(path.p, &text_only, &c, &e))
        bench_die("cannot read the data", &e);
    int n = table_file_column_count(c), at[BENCH_COLUMNS];
    value_type *types = mem_alloc(sizeof *types * (size_t)n);
    for (int i = 0; i < n; i++)
        types[i] = TYPE_TEXT;
    for (int i = 0; i < count; i++)
        at[i] = csv_find(c, names[i]);
    arena *pass = arena_new();
    for (;;) {
        batch b = {.mem = pass};
        if (table_file_next(c, types, &b, NULL, &e))
            bench_die("cannot read the data", &e);
        if (b.rows == 0)
            break;
        for (int r = 0; r < b.rows; r++) {
            str cells[BENCH_COLUMNS];
            for (int i = 0; i < count; i++)
                cells[i] = column_is_null(&b.cols[at[i]], r)
                               ? (str){"", 0}
                               : str_copy(set->mem, b.cols[at[i]].s[r]);
            keep(set, cells);
        }
        arena_reset(pass);
    }
    arena_free(pass);
    free(types);
    buf_free(&path);
    table_file_close(c);
}

static bench_row *add_row(bench_set *set) {
    if (set->nrows == set->capacity) {
        set->capacity = set->capacity ? set->capacity * 2 : 4096;
        set->rows = mem_realloc(set->rows, sizeof *set->rows * (size_t)set->capacity);
    }
    bench_row *r = &set->rows[set->nrows++];
    *r = (bench_row){.label = {"", 0}};
    return r;
}

static void keep_film(bench_set *set, const str *cells) {
    if (cells[1].n == 0)
        return;
    if (set->nfilms % 1024 == 0)
        set->films = mem_realloc(set->films, sizeof *set->films * (size_t)(set->nfilms + 1024));
    set->films[set->nfilms++] = (bench_film){cells[0], cells[1], cells[2], cells[3]};
}

static void keep_review(bench_set *set, const str *cells) {
    if (cells[1].n == 0)
        return;
    bench_row *r = add_row(set);
    memcpy(r->cells, cells, sizeof *cells * 4);
    r->label = cells[4];
}

static void keep_beer(bench_set *set, const str *cells) {
    memcpy(add_row(set)->cells, cells, sizeof *cells * BENCH_COLUMNS);
}

/* ---- choosing -------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int by_movie(const void *a, const void *b) {
    const bench_row *x = a, *y = b;
    return str_compare(x->cells[CELL_MOVIE], y->cells[CELL_MOVIE]);
}

static void shuffle_rows(bench_row *rows, int n, uint64_t seed) {
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(next_random(&seed) % (uint64_t)(i + 1));
        bench_row swap = rows[i];
        rows[i] = rows[j];
        rows[j] = swap;
    }
}

static void shuffle_films(bench_set *set, uint64_t seed) {
    for (int i = set->nfilms - 1; i > 0; i--) {
        int j = (int)(next_random(&seed) % (uint64_t)(i + 1));
        bench_film swap = set->films[i];
        set->films[i] = set->films[j];
        set->films[j] = swap;
    }
}

/* The first of a film's reviews, or NULL. */
static const bench_row *first_review(const bench_set *set, str movie) {
    bench_row key = {.cells = {movie}};
    const bench_row *hit = bsearch(&key, set->rows, (size_t)set->nrows, sizeof key, by_movie);
    while (hit && hit > set->rows && str_equal(hit[-1].cells[CELL_MOVIE], movie))
        hit--;
    return hit;
}

/* Takes whole films until there are `rows` reviews. The two examples are the first fresh and the
 * first rotten review of the films that come next. */
static void choose_rows(bench_set *set, int rows) {
    bool found[2] = {false, false};
    int n = 0;
    qsort(set->rows, (size_t)set->nrows, sizeof *set->rows, by_movie);
    shuffle_films(set, 20240311);
    bench_row *chosen = mem_alloc(sizeof *chosen * (size_t)(set->nrows + 1));
    for (int m = 0; m < set->nfilms && !(found[0] && found[1]); m++) {
        str movie = set->films[m].id;
        const bench_row *hit = first_review(set, movie), *end = set->rows + set->nrows;
        for (; hit && hit < end && str_equal(hit->cells[CELL_MOVIE], movie); hit++) {
            int which = str_equal(hit->label, STR("fresh")) ? 0 : 1;
            if (n < rows) {
                chosen[n++] = *hit;
            } else if (!found[which] && m % 2 == which) {
                set->examples[which] = *hit;
                set->example_synopses[which] = set->films[m].synopsis;
                found[which] = true;
            }
        }
    }
    shuffle_rows(chosen, n, 7);
    free(set->rows);
    set->rows = chosen;
    set->nrows = n;
}

void bench_movies(const char *dir, int rows, bench_set *out) {
    static const char *const films[] = {"id", "synopsis", "genre", "studio"};
    static const char *const reviews[] = {"id", "review", "publisher", "top_critic", "fresh"};
    *out = (bench_set){.mem = arena_new()};
    read_file(dir, "rt.movie_info.tsv.gz", films, BASE_COUNT(films), out, keep_film);
    read_file(dir, "rt.reviews.tsv.gz", reviews, BASE_COUNT(reviews), out, keep_review);
    choose_rows(out, rows);
}

static const char *const beer_columns[BENCH_COLUMNS] = {
    "review/profileName", "review/time", "review/overall", "review/taste", "review/palate",
    "review/appearance",  "beer/name",   "beer/style",     "beer/beerId",
};

void bench_beer(const char *dir, int rows, bench_set *out) {
    *out = (bench_set){.mem = arena_new()};
    read_file(dir, "beer.csv", beer_columns, BENCH_COLUMNS, out, keep_beer);
    out->nrows = BASE_MIN(out->nrows, rows);
}

void bench_set_free(bench_set *set) {
    free(set->rows);
    free(set->films);
    arena_free(set->mem);
}

/* ---- loading --------------------------------------------------------------------------------- */

enum { INSERT_BYTES = 200000 };

static void insert_flush(db *d, buf *sql) {
    if (sql->n)
        bench_run(d, sql->p, NULL, NULL, NULL);
    buf_clear(sql);
}

static void insert_row(db *d, buf *sql, const char *table, int64_t n, const str *cells, int count) {
    buf_printf(sql, sql->n ? ", (" : "INSERT INTO %s VALUES (", table);
    if (n >= 0)
        buf_printf(sql, "%" PRId64 ", ", n);
    for (int i = 0; i < count; i++) {
        buf_append_c(sql, i ? ", " : "");
        value_print_sql(sql, value_text(cells[i]));
    }
    buf_append_char(sql, ')');
    if (sql->n > INSERT_BYTES)
        insert_flush(d, sql);
}

static void insert_rows(db *d, const char *table, const bench_set *set, int rows, int columns) {
    buf sql = {0};
    for (int i = 0; i < rows; i++)
        insert_row(d, &sql, table, i, set->rows[i].cells, columns);
    insert_flush(d, &sql);
    buf_free(&sql);
}

void bench_load_movies(db *d, const bench_set *set, int nbase) {
    buf sql = {0};
    bench_run_all(
        d, "CREATE TABLE movies (id TEXT PRIMARY KEY, synopsis TEXT, genre TEXT, studio TEXT);"
           "CREATE TABLE few_shot (review TEXT, synopsis TEXT, answer TEXT);"
           "CREATE TABLE reviews (n INTEGER PRIMARY KEY, movie TEXT, review TEXT, publisher TEXT, "
           "top_critic TEXT);"
           "CREATE TABLE base (n INTEGER PRIMARY KEY, movie TEXT, review TEXT, publisher TEXT, "
           "top_critic TEXT)");
    for (int i = 0; i < set->nfilms; i++) {
        const bench_film *f = &set->films[i];
        insert_row(d, &sql, "movies", -1, (str[]){f->id, f->synopsis, f->genre, f->studio}, 4);
    }
    insert_flush(d, &sql);
    insert_rows(d, "reviews", set, set->nrows, 4);
    insert_rows(d, "base", set, nbase, 4);
    /* the rotten one first: a small model leans towards the answer that it saw last */
    for (int i = 1; i >= 0; i--) {
        str answer = i == 0 ? STR("positive") : STR("negative");
        insert_row(d, &sql, "few_shot", -1,
                   (str[]){set->examples[i].cells[CELL_REVIEW], set->example_synopses[i], answer},
                   3);
    }
    insert_flush(d, &sql);
    buf_free(&sql);
}

void bench_load_beer(db *d, const bench_set *set, int nbase) {
    static const char *const tables[] = {"reviews", "base"};
    for (int t = 0; t < 2; t++) {
        buf sql = {0};
        buf_printf(&sql,
                   "CREATE TABLE %s (n INTEGER PRIMARY KEY, profile TEXT, time TEXT, overall TEXT, "
                   "taste TEXT, palate TEXT, "
                   "appearance TEXT, name TEXT, style TEXT, beer TEXT)",
                   tables[t]);
        bench_run(d, sql.p, NULL, NULL, NULL);
        buf_free(&sql);
        insert_rows(d, tables[t], set, t ? nbase : set->nrows, BENCH_COLUMNS);
    }
}
