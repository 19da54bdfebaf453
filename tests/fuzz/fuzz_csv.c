/*
 * fuzz_csv.c - any bytes as a CSV file: read as the sniffed types and as texts; what was read as
 * texts is written, read again, and must be the same.
 */
#include <stdlib.h>
#include <string.h>

#include "csv_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads all rows; `copy`, when there, gets them as CSV. False when the file is refused. */
static bool read_all(const void *bytes, size_t n, const csv_options *options, buf *copy) {
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
        types[i] = csv_column_type(c, i);
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
    csv_options texts = {.all_text = true, .header = CSV_HEADER_NO};
    csv_options written = {.all_text = true, .header = CSV_HEADER_NO, .delimiter = ','};
    buf first = {0}, second = {0};
    read_all(data, size, NULL, NULL);
    if (read_all(data, size, &texts, &first) && first.n > 0) {
        /* A byte order mark at the start of a cell is taken for
         * the file's: the one text that does not come back. */
        bool mark = first.n >= 3 && memcmp(first.p, "\xef\xbb\xbf", 3) == 0;
        bool zero = memchr(first.p, 0, first.n) != NULL;
        if (!mark && !zero &&
            (!read_all(first.p, first.n, &written, &second) ||
             !str_equal(buf_str(&first), buf_str(&second))))
            abort();
    }
    buf_free(&first);
    buf_free(&second);
    return 0;
}
