/*
 * fuzz_csv.c - any bytes as a CSV file: read as the sniffed types, as texts and as blobs; what was
 * read as texts or blobs is written, read again, and must be the same.
 */
#include <stdlib.h>
#include <string.h>

#include "csv_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all rows, every column as `type` or (NULL) as sniffed; `copy`, when there, gets them as CSV.
 * False when the file is refused. */
static bool read_all(const void *bytes, size_t n, const csv_options *options, value_type type,
                     buf *copy) {
    csv *c = NULL;
    err e;
    if (csv_open_memory(bytes, n, options, &c, &e) != 0)
        return false;
    int ncolumns = csv_column_count(c), status;
    value_type *types = malloc(sizeof *types * (size_t)ncolumns);
    value *row = malloc(sizeof *row * (size_t)ncolumns);
    arena *mem = arena_new();
    batch b = {.rows = 1, .mem = mem};
    for (int i = 0; i < ncolumns; i++)
        types[i] = type == TYPE_NULL ? csv_column_type(c, i) : type;
    do {
        arena_reset(mem);
        b.mem = mem;
        status = csv_next(c, types, &b, NULL, &e);
        for (int r = 0; !status && copy && r < b.rows; r++) {
            for (int i = 0; i < ncolumns; i++)
                row[i] = column_get(&b.cols[i], r);
            csv_write_row(copy, row, ncolumns, ',', STR(""));
        }
    } while (!status && b.rows);
    arena_free(mem);
    free(row);
    free(types);
    csv_close(c);
    return status == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const value_type kinds[] = {TYPE_TEXT, TYPE_BLOB};
    csv_options texts = {.all_text = true, .header = CSV_HEADER_NO};
    csv_options written = {.all_text = true, .header = CSV_HEADER_NO, .delimiter = ','};
    read_all(data, size, NULL, TYPE_NULL, NULL);
    for (size_t k = 0; k < BASE_COUNT(kinds); k++) {
        buf first = {0}, second = {0};
        if (read_all(data, size, &texts, kinds[k], &first) && first.n > 0) {
            bool zero = memchr(first.p, 0, first.n) != NULL;
            if (kinds[k] == TYPE_BLOB && zero)
                abort(); /* digits alone */
            if (!zero && (!read_all(first.p, first.n, &written, kinds[k], &second) ||
                          !str_equal(buf_str(&first), buf_str(&second))))
                abort();
        }
        buf_free(&first);
        buf_free(&second);
    }
    return 0;
}
