/*
 * bench_table.c - reads CSV files for bench_psm and bench_route (bench_table.h).
 */
#include "bench_table.h"

#include <stdio.h>
#include <stdlib.h>

#include "storage/containers.h"
#include "storage/storage.h"

void bench_fail(const char *what, const char *detail) {
    fprintf(stderr, "bench: %s%s%s\n", what, detail ? ": " : "", detail ? detail : "");
    exit(1);
}

static size_t add_batch(arena *mem, bench_table *t, size_t capacity, const batch *b) {
    size_t rows = t->rows + (size_t)b->rows, n = t->rows * (size_t)t->fields;
    ARENA_RESERVE(mem, t->cell, rows * (size_t)t->fields, capacity);
    for (int r = 0; r < b->rows; r++)
        for (int f = 0; f < t->fields; f++)
            t->cell[n++] = column_is_null(&b->cols[f], r) ? STR("") : b->cols[f].s[r];
    t->rows = (uint32_t)rows;
    return capacity;
}

void bench_table_read(arena *mem, const char *path, uint32_t most_rows, bench_table *out) {
    file_options options = {.header = CSV_HEADER_YES, .all_text = true};
    table_file *file;
    err e = {0};
    if (table_file_open(path, &options, &file, &e) != 0)
        bench_fail(path, e.message);
    *out = (bench_table){.fields = table_file_column_count(file)};
    if (out->fields > PSM_MAX_FIELDS)
        bench_fail(path, "too many columns");
    value_type types[PSM_MAX_FIELDS];
    for (int f = 0; f < out->fields; f++) {
        types[f] = TYPE_TEXT;
        out->name[f] = str_copy(mem, table_file_column_name(file, f));
    }
    batch b = {.mem = mem};
    size_t capacity = 0;
    do {
        if (table_file_next(file, types, &b, NULL, &e) != 0)
            bench_fail(path, e.message);
        capacity = add_batch(mem, out, capacity, &b);
    } while (b.rows > 0 && out->rows < most_rows);
    table_file_close(file);
    out->rows = BASE_MIN(out->rows, most_rows);
}

int bench_table_column(const bench_table *t, const char *name) {
    for (int f = 0; f < t->fields; f++)
        if (str_equal(t->name[f], str_from(name)))
            return f;
    bench_fail("no column", name);
}

typedef struct occurrence {
    str s;
    uint32_t row;
} occurrence;

static int by_text(const void *a, const void *b) {
    return str_compare(((const occurrence *)a)->s, ((const occurrence *)b)->s);
}

void bench_table_field(arena *mem, const bench_table *t, int f, psm_field *out, str **texts) {
    occurrence *o = mem_alloc(sizeof *o * ((size_t)t->rows + 1));
    uint32_t *ids = ARENA_ARRAY(mem, uint32_t, t->rows), n = 0;
    for (uint32_t r = 0; r < t->rows; r++)
        o[r] = (occurrence){t->cell[(size_t)r * (size_t)t->fields + (size_t)f], r};
    qsort(o, t->rows, sizeof *o, by_text);
    *texts = ARENA_ARRAY(mem, str, t->rows);
    for (uint32_t i = 0; i < t->rows; i++) {
        if (i == 0 || !str_equal(o[i].s, o[i - 1].s))
            (*texts)[n++] = o[i].s;
        ids[o[i].row] = n - 1;
    }
    free(o);
    *out = (psm_field){.name = t->name[f], .distinct = n, .value = ids};
}
