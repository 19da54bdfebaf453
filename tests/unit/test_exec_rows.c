/*
 * test_exec_rows.c - kept rows, hash keys and sorting, against naive tables.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ops/op_int.h"
#include "rows/row_sort_int.h"
#include "stmt/stmt_int.h"

static const value_type types[] = {TYPE_INTEGER, TYPE_TEXT, TYPE_REAL};
/* HEAP_SLACK: a page per array, and the headers of chunks. */
enum { COLUMNS = 3, MANY = 10000, HEAP_SLACK = 16 << 10 };

/* Row r of a fixed pseudo-random table, NULLs and repeats in it. */
static value cell_of(int64_t row, int c, char *text) {
    uint64_t h = hash_mix((uint64_t)row + 1, (uint64_t)c + 1);
    if (h % 11 == 0)
        return value_null();
    if (c == 0)
        return value_int((int64_t)(h >> 8 & 1023) - 512);
    if (c == 2)
        return value_real((double)(h >> 8 & 63) / 8 - 2);
    int n = snprintf(text, 32, "%.*s%d", (int)(h % 13), "abcdefghijklm", (int)(h >> 16 & 31));
    return value_text((str){text, (size_t)n});
}

static void make_batch(batch *b, arena *a, int64_t start, int rows) {
    batch_init(b, a, types, COLUMNS, rows);
    b->rows = rows;
    for (int k = 0; k < rows; k++)
        for (int c = 0; c < COLUMNS; c++)
            column_set(&b->cols[c], a, rows, k, cell_of(start + k, c, arena_alloc(a, 32)));
}

static rowset *make_rows(const exec_ctx *ctx, int64_t count) {
    rowset *r = rowset_new(ctx, types, COLUMNS);
    arena *a = arena_new();
    err e;
    srand(3);
    for (int64_t at = 0; at < count;) {
        batch b;
        int some = 1 + rand() % BATCH_ROWS, rows = (int)BASE_MIN(count - at, some);
        arena_reset(a);
        make_batch(&b, a, at, rows);
        assert_int_equal(rowset_append(r, &b, &e), 0);
        at += rows;
    }
    arena_free(a);
    return r;
}

static void check_rows(const rowset *r, int64_t count) {
    char text[32];
    assert_int_equal(rowset_rows(r), count);
    for (int64_t row = 0; row < count; row++)
        for (int c = 0; c < COLUMNS; c++)
            assert_int_equal(value_compare(rowset_get(r, row, c), cell_of(row, c, text)), 0);
}

static void kept_rows_come_back(void **state) {
    (void)state;
    static const int64_t counts[] = {0, 1, 63, 64, 65, BATCH_ROWS, BATCH_ROWS + 1, MANY};
    for (size_t k = 0; k < BASE_COUNT(counts); k++) {
        rowset *r = make_rows(NULL, counts[k]);
        check_rows(r, counts[k]);
        rowset_free(r);
    }
}

static void rows_beyond_the_memory_limit_spill_and_come_back(void **state) {
    (void)state;
    settings s = {.work_memory = 64 * 1024};
    exec_ctx ctx = {.settings = &s};
    rowset *r = make_rows(&ctx, MANY);
    check_rows(r, MANY);
    rowset_free(r);
}

/* `limit`: heap bytes. */
static void check_entries(size_t limit) {
    rowset *r = make_rows(NULL, MANY);
    mem_budget memory = {.space = workmem_new(NULL, -1), .limit_bytes = limit};
    hash_table *h = hash_table_new(&memory, types, COLUMNS - 1);
    static uint32_t entries[BATCH_ROWS];
    static int64_t found[BATCH_ROWS];
    err e;
    uint32_t next = 0;
    for (int k = 0; k < rowset_batches(r); k++) {
        const batch *b = rowset_batch(r, k);
        assert_int_equal(hash_table_add(h, b->cols, b->rows, entries, &e), 0);
        for (int row = 0; row < b->rows; row++) {
            assert_true(entries[row] <= next); /* new entries in row order */
            next += entries[row] == next;
            for (int c = 0; c < COLUMNS - 1; c++)
                assert_int_equal(value_compare(rowset_get(hash_table_keys(h), entries[row], c),
                                               column_get(&b->cols[c], row)),
                                 0);
        }
        hash_table_find(h, b->cols, b->rows, true, found);
        for (int row = 0; row < b->rows; row++)
            assert_int_equal(found[row], entries[row]);
        hash_table_find(h, b->cols, b->rows, false, found);
        for (int row = 0; row < b->rows; row++) {
            bool null = column_is_null(&b->cols[0], row) || column_is_null(&b->cols[1], row);
            assert_int_equal(found[row], null ? -1 : (int64_t)entries[row]);
        }
    }
    assert_int_equal(hash_table_count(h), next);
    workmem_use use;
    workmem_usage(memory.space, &use);
    assert_in_range(use.heap_peak_bytes, 1, limit + HEAP_SLACK);
    assert_true((use.file_bytes > 0) == (limit < MANY * 8)); /* the slots alone take more */
    hash_table_free(h);
    assert_int_equal(memory.heap_bytes, 0);
    workmem_usage(memory.space, &use);
    assert_int_equal(use.heap_bytes + use.file_bytes, 0);
    workmem_free(memory.space);
    rowset_free(r);
}

static void equal_keys_are_one_entry(void **state) {
    (void)state;
    check_entries((size_t)64 << 20);
    check_entries((size_t)32 << 10);
    check_entries(1);
}

/* More rows than one run has: equal keys are in row order, NULLs last, in memory and in files. */
static void long_sorts_are_merged_from_runs(void **state) {
    (void)state;
    enum { ROWS = 300000, KEYS = 5000, LIMIT = 64 << 10 };
    rowset *keys = rowset_new(NULL, types, 1);
    for (int64_t r = 0; r < ROWS; r++) {
        int64_t x = (int64_t)(hash_mix((uint64_t)r, 1) % KEYS);
        uint8_t null = x == 0;
        column c = {.type = TYPE_INTEGER, .i = &x, .null = &null};
        rowset_push(keys, &c, 0);
    }
    exec_ctx ctx = {0};
    sort_key by = {.nulls_first = false};
    for (size_t limit = LIMIT; limit <= (size_t)LIMIT << 10; limit <<= 10) {
        mem_budget memory = {.space = workmem_new(NULL, -1), .limit_bytes = limit};
        mem_array sorted = {0};
        err e;
        assert_int_equal(sort_rows(&ctx, &memory, keys, &by, 1, &sorted, &e), 0);
        const uint32_t *order = sorted.p;
        for (int64_t k = 1; k < ROWS; k++) {
            value a = rowset_get(keys, order[k - 1], 0), b = rowset_get(keys, order[k], 0);
            int64_t x = a.type == TYPE_NULL ? KEYS : a.i, y = b.type == TYPE_NULL ? KEYS : b.i;
            assert_true(x < y || (x == y && order[k - 1] < order[k]));
        }
        workmem_use use;
        workmem_usage(memory.space, &use);
        assert_in_range(use.heap_peak_bytes, 0, limit);
        assert_int_equal(use.file_peak_bytes > 0, limit == LIMIT);
        mem_array_free(&sorted);
        workmem_free(memory.space);
    }
    rowset_free(keys);
}

/* ---- the sort operator over a subtree read ahead --------------------------------------------- */

static int compare_rows(const rowset *r, const sort_key *keys, int nkeys, int64_t a, int64_t b) {
    for (int k = 0; k < nkeys; k++) {
        int slot = keys[k].value->column.slot;
        value x = rowset_get(r, a, slot), y = rowset_get(r, b, slot);
        if ((x.type == TYPE_NULL) != (y.type == TYPE_NULL))
            return (x.type == TYPE_NULL) == keys[k].nulls_first ? -1 : 1;
        int c = value_compare(x, y);
        if (c)
            return keys[k].descending ? -c : c;
    }
    return (a > b) - (a < b);
}

/* Whether the row is among the first `limit` ones of its group: of the rows equal in column
 * `group`; -1: of all. */
static bool is_kept(const rowset *r, const sort_key *keys, int nkeys, int64_t limit, int group,
                    int64_t row) {
    int64_t before = 0;
    for (int64_t j = 0; j < rowset_rows(r) && before < limit; j++)
        before +=
            (group < 0 || value_compare(rowset_get(r, row, group), rowset_get(r, j, group)) == 0) &&
            compare_rows(r, keys, nkeys, j, row) < 0;
    return limit < 0 || before < limit;
}

/* Rows before `first` are known to be among the last. */
static void check_sort_in(int64_t work_memory, rowset *input, sort_key *keys, int nkeys,
                          int64_t limit, int group, int64_t first) {
    plan_node leaf = {.kind = PLAN_VALUES,
                      .number = 1,
                      .ncols = COLUMNS,
                      .types = (value_type *)(uintptr_t)types};
    plan_node sort = {.kind = PLAN_SORT,
                      .ncols = COLUMNS,
                      .types = (value_type *)(uintptr_t)types,
                      .left = &leaf};
    settings s = {.work_memory = work_memory};
    rowset *ready[2] = {NULL, input};
    exec_ctx ctx = {.classes = op_classes,
                    .settings = &s,
                    .mem = arena_new(),
                    .space = workmem_new(NULL, -1),
                    .kept.ready = ready};
    sort.sort.keys = keys;
    sort.sort.nkeys = nkeys;
    sort.sort.limit = limit;
    sort.sort.npartition = group >= 0;
    sort.sort.partition = &group;
    op *o;
    err e;
    batch *b;
    rowset *out = rowset_new(NULL, types, COLUMNS);
    assert_int_equal(op_build(&ctx, &sort, &o, &e), 0);
    while (op_next(o, &b, &e) == 0 && b)
        assert_int_equal(rowset_append(out, b, &e), 0);
    op_close(o);
    int64_t count = rowset_rows(input), kept = 0;
    bool *keep = mem_alloc(sizeof *keep * (size_t)count);
    for (int64_t i = first; i < count; i++)
        kept += keep[i] = is_kept(input, keys, nkeys, limit, group, i);
    assert_int_equal(rowset_rows(out), kept);
    /* Each row's place is the number of kept rows before it:
     * the k-th row put out must be the one of rank k. */
    for (int64_t i = first; i < count; i++) {
        int64_t at = 0;
        for (int64_t j = first; j < count && keep[i]; j++)
            at += keep[j] && compare_rows(input, keys, nkeys, j, i) < 0;
        for (int c = 0; keep[i] && c < COLUMNS; c++)
            assert_int_equal(value_compare(rowset_get(out, at, c), rowset_get(input, i, c)), 0);
    }
    free(keep);
    rowset_free(out);
    arena_free(ctx.mem);
    workmem_use use;
    workmem_usage(ctx.space, &use);
    assert_int_equal(use.heap_bytes + use.file_bytes, 0);
    assert_in_range(use.heap_peak_bytes, 0, (size_t)work_memory + HEAP_SLACK);
    workmem_free(ctx.space);
}

static void check_sort(rowset *input, sort_key *keys, int nkeys, int64_t limit, int group,
                       int64_t first) {
    check_sort_in(1 << 20, input, keys, nkeys, limit, group, first);
    check_sort_in(4 << 10, input, keys, nkeys, limit, group, first);
}

static void make_columns(expr *cols) {
    for (int c = 0; c < COLUMNS; c++) {
        cols[c] = (expr){.kind = EXPR_COLUMN, .type = types[c], .pos = -1};
        cols[c].column.slot = c;
    }
}

static void sorting_is_stable_with_and_without_a_limit(void **state) {
    (void)state;
    expr cols[COLUMNS];
    make_columns(cols);
    static const int64_t limits[] = {-1, 0, 1, 10, 2500};
    rowset *input = make_rows(NULL, 3000);
    for (size_t k = 0; k < BASE_COUNT(limits); k++)
        for (int flags = 0; flags < 8; flags += 3) {
            sort_key keys[2] = {{&cols[flags % 3], flags & 1, flags & 2},
                                {&cols[(flags + 1) % 3], flags & 4, flags & 1}};
            check_sort(input, keys, 1 + flags % 2, limits[k], -1, 0);
        }
    rowset_free(input);
}

static void each_group_has_its_first_rows(void **state) {
    (void)state;
    expr cols[COLUMNS];
    make_columns(cols);
    static const int64_t limits[] = {1, 2, 7, 500};
    rowset *input = make_rows(NULL, 700);
    for (size_t k = 0; k < BASE_COUNT(limits); k++)
        for (int flags = 0; flags < 8; flags += 3) {
            sort_key keys[2] = {{&cols[flags % 3], flags & 1, flags & 2},
                                {&cols[(flags + 1) % 3], flags & 4, flags & 1}};
            check_sort(input, keys, 1 + flags % 2, limits[k], (int)(k + 1) % COLUMNS, 0);
        }
    rowset_free(input);
}

/* Every five rows are better than all before them. */
static void what_better_rows_push_out_is_left_behind(void **state) {
    (void)state;
    enum { ROWS = 9000, LAST = 300 };
    expr cols[COLUMNS];
    rowset *input = rowset_new(NULL, types, COLUMNS);
    make_columns(cols);
    for (int64_t r = 0; r < ROWS; r++) {
        arena *a = arena_new();
        batch b;
        char text[32];
        int n = snprintf(text, sizeof text, "row %lld", (long long)r);
        batch_init(&b, a, types, COLUMNS, 1);
        column_set(&b.cols[0], a, 1, 0, value_int(-(r / 5)));
        column_set(&b.cols[1], a, 1, 0, value_text((str){text, (size_t)n}));
        column_set(&b.cols[2], a, 1, 0, r % 7 ? value_real((double)(r % 7)) : value_null());
        rowset_push(input, b.cols, 0);
        arena_free(a);
    }
    sort_key key = {&cols[0], false, false};
    static const int64_t limits[] = {1, 3, 40};
    for (size_t k = 0; k < BASE_COUNT(limits); k++)
        for (int group = -1; group <= 2; group += 3)
            check_sort(input, &key, 1, limits[k], group, ROWS - LAST);
    rowset_free(input);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_rows_come_back),
        cmocka_unit_test(rows_beyond_the_memory_limit_spill_and_come_back),
        cmocka_unit_test(equal_keys_are_one_entry),
        cmocka_unit_test(long_sorts_are_merged_from_runs),
        cmocka_unit_test(sorting_is_stable_with_and_without_a_limit),
        cmocka_unit_test(each_group_has_its_first_rows),
        cmocka_unit_test(what_better_rows_push_out_is_left_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
