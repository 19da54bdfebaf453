/*
 * fuzz_rows.c - any bytes as a row, a catalog record and index cells: damaged ones are refused,
 * whole ones come back.
 *
 * The first bytes choose the table's columns; the rest is the row.
 */
#include <stdlib.h>
#include <string.h>

#include "tables/tables_int.h"

enum { COLUMNS = 12 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_row(const uint8_t *data, size_t size) {
    column_def columns[COLUMNS] = {0};
    if (size < 2)
        return;
    int n = 1 + data[0] % COLUMNS;
    uint64_t shape = data[1];
    table_def def = {.ncolumns = n, .columns = columns, .rowid_column = -1};
    for (int i = 0; i < n; i++) {
        columns[i].type = (value_type)(1 + shape % 5);
        shape = shape * 31 + 7;
        if (columns[i].type == TYPE_INTEGER && i % 3 == 0)
            def.rowid_column = i;
    }
    arena *a = arena_new();
    row_layout layout;
    row_layout_init(&layout, a, &def);
    value *row = ARENA_ARRAY(a, value, n);
    err e;
    MDB_val bytes = {size - 2, (void *)(uintptr_t)(data + 2)};
    if (row_decode(&layout, bytes, 7, row, &e) == 0) {
        size_t again_bytes = row_size(&layout, row);
        uint8_t *again = arena_alloc(a, again_bytes);
        value *second = ARENA_ARRAY(a, value, n);
        row_encode(&layout, row, again);
        if (row_decode(&layout, (MDB_val){again_bytes, again}, 7, second, &e) != 0)
            abort();
        for (int i = 0; i < n; i++)
            if (row[i].type != second[i].type || value_compare(row[i], second[i]) != 0)
                abort();
    }
    arena_free(a);
}

static void check_catalog(const uint8_t *data, size_t size) {
    MDB_val bytes = {size, (void *)(uintptr_t)data};
    arena *a = arena_new();
    table_def table = {0};
    view_def view = {0};
    model_def model = {0};
    table_info info = {.def = &table};
    if (catalog_read_table(bytes, a, &table, &info)) {
        buf b = {0};
        table_def again = {0};
        table_info info2 = {.def = &again};
        catalog_write_table(&b, &info);
        if (!catalog_read_table((MDB_val){b.n, b.p}, a, &again, &info2) ||
            info2.tree != info.tree || info2.has_sums != info.has_sums ||
            again.ncolumns != table.ncolumns || !str_equal(again.name, table.name))
            abort();
        buf_free(&b);
    }
    catalog_read_view(bytes, a, &view);
    catalog_read_model(bytes, a, &model);
    arena_free(a);
}

/* Two texts cut from the input: their cells are in the order of the texts. */
static void check_keys(const uint8_t *data, size_t size) {
    size_t half = size / 2;
    value a = value_text((str){(const char *)data, half}),
          b = value_text((str){(const char *)data + half, size - half});
    buf x = {0}, y = {0};
    key_append_cell(&x, TYPE_TEXT, a);
    key_append_cell(&y, TYPE_TEXT, b);
    int keys = str_compare(buf_str(&x), buf_str(&y)), values = value_compare(a, b);
    if ((keys > 0) - (keys < 0) != (values > 0) - (values < 0))
        abort();
    if (size >= 16) {
        double r, s;
        memcpy(&r, data, 8);
        memcpy(&s, data + 8, 8);
        buf_clear(&x);
        buf_clear(&y);
        key_append_cell(&x, TYPE_REAL, value_real(r));
        key_append_cell(&y, TYPE_REAL, value_real(s));
        keys = str_compare(buf_str(&x), buf_str(&y));
        values = value_compare(value_real(r), value_real(s));
        if ((keys > 0) - (keys < 0) != (values > 0) - (values < 0))
            abort();
    }
    buf_free(&x);
    buf_free(&y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_row(data, size);
    check_catalog(data, size);
    check_keys(data, size);
    return 0;
}
