/*
 * test_storage_model.c - random rows, indexes, savepoints and transactions against a naive table in
 * memory.
 *
 * Texts are chosen so that many are longer than a key and share its first 400 bytes: cut keys, hash
 * groups and the checks on the row are exercised as much as plain keys.
 */
#include "storage_help_int.h"

enum { ROWS_MAX = 400, STEPS = 6000, SAVED_MAX = 2 };

typedef struct naive_row {
    bool alive;
    int a;
    int text; /* into texts[], -1: NULL */
    double c;
} naive_row;

typedef struct naive {
    naive_row rows[ROWS_MAX]; /* by rowid - 1 */
} naive;

static str texts[60];
static uint64_t seed = 20240607;

static uint32_t next(uint32_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % n;
}

/* Short ones, ones with zero bytes, and three families that differ only behind 400 bytes. */
static void make_texts(arena *a) {
    for (int i = 0; i < 60; i++) {
        buf b = {0};
        if (i < 20) {
            buf_printf(&b, "%.*s", i % 5, "abcde");
            if (i % 3 == 0)
                buf_append(&b, "\0x", 2);
            buf_printf(&b, "%d", i);
        } else {
            for (int k = 0; k < 398 + i % 3 * 2; k++)
                buf_append_char(&b, (char)('a' + i % 3));
            buf_printf(&b, "%d", (i * 37) % 41);
            if (i % 7 == 0)
                for (int k = 0; k < 5000; k++)
                    buf_append_char(&b, 'z'); /* LMDB overflow pages */
        }
        texts[i] = str_copy(a, buf_str(&b));
        buf_free(&b);
    }
}

static void values_of(const naive_row *r, value out[3]) {
    out[0] = value_int(r->a);
    out[1] = r->text < 0 ? value_null() : value_text(texts[r->text]);
    out[2] = value_real(r->c);
}

static void create(txn *t) {
    column_def columns[] = {COLUMN("a", TYPE_INTEGER), COLUMN("b", TYPE_TEXT),
                            COLUMN("c", TYPE_REAL)};
    int by_b[] = {1}, by_cb[] = {2, 1}, by_ab[] = {0, 1};
    index_def indexes[] = {{.name = STR("by_b"), .ncolumns = 1, .columns = by_b},
                           {.name = STR("by_cb"), .ncolumns = 2, .columns = by_cb},
                           {.name = STR("by_ab"), .unique = true, .ncolumns = 2, .columns = by_ab}};
    table_def def = {.name = STR("m"),
                     .ncolumns = 3,
                     .columns = columns,
                     .rowid_column = -1,
                     .nindexes = 3,
                     .indexes = indexes};
    OK(catalog_create_table(t, &def, &e));
}

static int naive_conflict(const naive *m, const naive_row *r, int self) {
    for (int i = 0; i < ROWS_MAX; i++)
        if (m->rows[i].alive && i != self && m->rows[i].a == r->a && m->rows[i].text == r->text &&
            r->text >= 0)
            return i;
    return -1;
}

static int naive_last(const naive *m) {
    for (int i = ROWS_MAX - 1; i >= 0; i--)
        if (m->rows[i].alive)
            return i;
    return -1;
}

static naive_row random_row(void) {
    return (naive_row){true, (int)next(40) - 20, (int)next(63) - 3 < 0 ? -1 : (int)next(60),
                       (double)next(9) / 4 - 1};
}

static void step_insert(txn *t, naive *m) {
    const table_def *def = table_named(t, "m");
    naive_row r = random_row();
    int at = naive_last(m) + 1;
    if (at == ROWS_MAX)
        return;
    value row[3];
    int64_t rowid = 0, other = 0;
    bool found = false;
    values_of(&r, row);
    int conflict = naive_conflict(m, &r, -1);
    OK(table_find_conflict(t, def, row, NULL, 0, &other, &found, &e));
    assert_int_equal(found, conflict >= 0);
    if (conflict >= 0) {
        assert_int_equal(other, conflict + 1);
        FAILS(ERR_CONSTRAINT, table_insert(t, def, row, &rowid, &e));
        return;
    }
    OK(table_insert(t, def, row, &rowid, &e));
    assert_int_equal(rowid, at + 1);
    m->rows[at] = r;
}

static void step_change(txn *t, naive *m, bool delete) {
    const table_def *def = table_named(t, "m");
    int at = (int)next(ROWS_MAX);
    if (!m->rows[at].alive)
        return;
    if (delete) {
        OK(table_delete(t, def, at + 1, &e));
        m->rows[at].alive = false;
        return;
    }
    naive_row r = random_row();
    value row[3];
    if (next(3) == 0)
        r.text = m->rows[at].text;
    values_of(&r, row);
    if (naive_conflict(m, &r, at) >= 0) {
        FAILS(ERR_CONSTRAINT, table_update(t, def, at + 1, row, &e));
        return;
    }
    OK(table_update(t, def, at + 1, row, &e));
    m->rows[at] = r;
}

static void step_clear(txn *t, naive *m) {
    uint64_t count, alive = 0;
    for (int i = 0; i < ROWS_MAX; i++)
        alive += m->rows[i].alive;
    OK(table_clear(t, table_named(t, "m"), &count, &e));
    assert_int_equal(count, alive);
    memset(m, 0, sizeof *m);
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const int *order_columns;
static int order_count;
static bool order_descending;
static const naive *order_model;

static int compare_rows(const void *pa, const void *pb) {
    int a = *(const int *)pa, b = *(const int *)pb, c = 0;
    value va[3], vb[3];
    values_of(&order_model->rows[a], va);
    values_of(&order_model->rows[b], vb);
    for (int i = 0; i < order_count && c == 0; i++)
        c = value_compare(va[order_columns[i]], vb[order_columns[i]]);
    if (c)
        return order_descending ? -c : c;
    return order_count == 0 && order_descending ? b - a : a - b;
}

static bool in_bounds(const naive_row *r, const int *columns, const scan_bound *low,
                      const scan_bound *high) {
    value v[3];
    int c = 0;
    values_of(r, v);
    for (int i = 0; i < low->n && c == 0; i++)
        c = value_compare(v[columns[i]], low->values[i]);
    if (low->n && (c < 0 || (c == 0 && !low->inclusive && !low->not_null)))
        return false;
    if (low->not_null && c == 0 && v[columns[low->n]].type == TYPE_NULL)
        return false;
    c = 0;
    for (int i = 0; i < high->n && c == 0; i++)
        c = value_compare(v[columns[i]], high->values[i]);
    return !(high->n && (c > 0 || (c == 0 && !high->inclusive)));
}

/* The rowids alone are the same, and rows listed come in
 * the list's order, those that are not there left out. */
static void check_listed(table_scan *s, const scan_bound *low, const scan_bound *high,
                         const int *expected, int n) {
    rowid_list found = {0}, wanted = {0};
    OK(scan_rebind(s, low, high, &e));
    OK(scan_rowids(s, &found, &e));
    assert_int_equal(found.n, n);
    OK(rowid_list_add(&wanted, 7777777, &e));
    for (int i = 0; i < n; i++) {
        assert_int_equal(found.ids[i], expected[i] + 1);
        OK(rowid_list_add(&wanted, expected[i] + 1, &e));
        OK(rowid_list_add(&wanted, expected[n - 1 - i] + 1, &e));
    }
    rowid_list_sort(&wanted);
    assert_int_equal(wanted.n, n + 1);
    scan_listed(s, &wanted);
    arena *mem = arena_new();
    batch b = {.mem = mem};
    OK(scan_next(s, &b, &e));
    assert_int_equal(b.rows, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(b.cols[0].i[i], wanted.ids[i]);
        assert_true(i == 0 || b.cols[0].i[i - 1] < b.cols[0].i[i]);
    }
    OK(scan_next(s, &b, &e));
    assert_int_equal(b.rows, 0);
    arena_free(mem);
    rowid_list_free(&found);
    rowid_list_free(&wanted);
}

static void check_order(txn *t, const naive *m, const index_def *x, const scan_bound *low,
                        const scan_bound *high, bool descending) {
    static const int by_rowid[1];
    const int *columns = x ? x->columns : by_rowid;
    int expected[ROWS_MAX], n = 0, seen = 0;
    for (int i = 0; i < ROWS_MAX; i++)
        if (m->rows[i].alive && (!x || in_bounds(&m->rows[i], columns, low, high)))
            expected[n++] = i;
    order_columns = columns;
    order_count = x ? x->ncolumns : 0;
    order_descending = descending;
    order_model = m;
    qsort(expected, (size_t)n, sizeof *expected, compare_rows);
    int wanted[] = {-1, 1, 0, 2};
    scan_spec spec = {.table = table_named(t, "m"),
                      .index = x,
                      .columns = wanted,
                      .ncolumns = 4,
                      .descending = descending,
                      .first_rows = (int)next(4)};
    if (x) {
        spec.low = *low;
        spec.high = *high;
    }
    table_scan *s;
    arena *mem = arena_new();
    batch b = {.mem = mem};
    OK(scan_open(t, &spec, &s, &e));
    for (;;) {
        OK(scan_next(s, &b, &e));
        if (b.rows == 0)
            break;
        for (int i = 0; i < b.rows; i++, seen++) {
            assert_true(seen < n);
            value v[3];
            values_of(&m->rows[expected[seen]], v);
            assert_int_equal(b.cols[0].i[i], expected[seen] + 1);
            assert_int_equal(value_compare(column_get(&b.cols[1], i), v[1]), 0);
            assert_int_equal(value_compare(column_get(&b.cols[2], i), v[0]), 0);
            assert_int_equal(value_compare(column_get(&b.cols[3], i), v[2]), 0);
        }
    }
    assert_int_equal(seen, n);
    if (x && !descending)
        check_listed(s, low, high, expected, n);
    scan_close(s);
    arena_free(mem);
}

static void check_scan(txn *t, const naive *m, const index_def *x, const scan_bound *low,
                       const scan_bound *high) {
    check_order(t, m, x, low, high, false);
    check_order(t, m, x, low, high, true);
}

static void check_all(txn *t, const naive *m) {
    const table_def *def = table_named(t, "m");
    scan_bound open = {0};
    check_scan(t, m, NULL, &open, &open);
    for (int i = 0; i < def->nindexes; i++) {
        const index_def *x = &def->indexes[i];
        check_scan(t, m, x, &open, &open);
        for (int k = 0; k < 6; k++) {
            naive_row low_row = random_row(), high_row = random_row();
            value low_all[3], high_all[3], low_values[3], high_values[3];
            values_of(&low_row, low_all);
            values_of(k < 3 ? &low_row : &high_row, high_all);
            for (int c = 0; c < x->ncolumns; c++) {
                low_values[c] = low_all[x->columns[c]];
                high_values[c] = high_all[x->columns[c]];
            }
            scan_bound low = {low_values, (int)next((uint32_t)x->ncolumns + 1), next(2), false};
            scan_bound high = {high_values, (int)next((uint32_t)x->ncolumns + 1), next(2), false};
            low.not_null = low.n < x->ncolumns && next(2);
            check_scan(t, m, x, &low, &high);
        }
    }
}

static void run(const char *path, size_t map_bytes, int steps) {
    store *s = NULL;
    store_options options = {.path = path, .map_bytes = map_bytes};
    OK(store_open(&options, &s, &e));
    static naive now, committed, saved;
    memset(&now, 0, sizeof now);
    txn *t = begin(s, true);
    create(t);
    OK(txn_commit(t, &e));
    committed = now;
    t = begin(s, true);
    bool open = false;
    for (int i = 0; i < steps; i++) {
        uint32_t what = next(100);
        if (what < 45)
            step_insert(t, &now);
        else if (what < 80)
            step_change(t, &now, what < 62);
        else if (what == 97 && next(20) == 0)
            step_clear(t, &now);
        else if (what < 86 && !open) {
            OK(txn_savepoint(t, &e));
            saved = now;
            open = true;
        } else if (what < 88 && open) {
            txn_rollback_to(t);
            now = saved;
            open = false;
            check_all(t, &now);
        } else if (what < 90 && open) {
            OK(txn_release(t, &e));
            open = false;
        } else if (what == 98 && next(2)) {
            if (next(3)) {
                OK(txn_commit(t, &e));
                committed = now;
            } else {
                txn_abort(t);
                now = committed;
            }
            open = false;
            t = begin(s, next(4) != 0);
            check_all(t, &now);
            if (!txn_is_write(t)) {
                txn_abort(t);
                t = begin(s, true);
            }
        } else if (what == 99) {
            check_all(t, &now);
        }
    }
    check_all(t, &now);
    OK(txn_commit(t, &e));
    store_close(s);
}

static void test_model(void **state) {
    (void)state;
    run(scratch("model"), 0, STEPS);
}

/* So small a map that every savepoint is a child transaction from the start. */
static void test_model_with_child_transactions(void **state) {
    (void)state;
    run(scratch("small"), (size_t)12 << 20, STEPS / 2);
}

/* An index built over the rows holds what an index kept up to date holds. */
static void test_built_index_equals_kept_index(void **state) {
    (void)state;
    store *s = open_at(scratch("built"));
    static naive m;
    memset(&m, 0, sizeof m);
    txn *t = begin(s, true);
    create(t);
    for (int i = 0; i < 300; i++)
        step_insert(t, &m);
    OK(catalog_drop_index(t, STR("by_b"), &e));
    OK(catalog_drop_index(t, STR("by_ab"), &e));
    check_all(t, &m);
    int by_b[] = {1}, by_ab[] = {0, 1};
    index_def b = {.name = STR("by_b2"), .ncolumns = 1, .columns = by_b};
    index_def ab = {.ncolumns = 2, .columns = by_ab, .unique = true};
    OK(catalog_create_index(t, STR("m"), &b, NULL, NULL, &e));
    OK(catalog_create_index(t, STR("m"), &ab, NULL, NULL, &e));
    assert_true(str_equal(table_named(t, "m")->indexes[2].name, STR("m_a_b_key")));
    check_all(t, &m);
    OK(txn_commit(t, &e));
    t = begin(s, true);
    value row[3];
    int64_t rowid;
    bool made = false;
    for (int i = 0; i < ROWS_MAX && !made; i++)
        if (m.rows[i].alive && m.rows[i].text >= 20) {
            values_of(&m.rows[i], row);
            made = true;
        }
    OK(catalog_drop_index(t, STR("m_a_b_key"), &e));
    OK(table_insert(t, table_named(t, "m"), row, &rowid, &e)); /* a duplicate with a cut key */
    OK(txn_savepoint(t, &e));
    FAILS(ERR_CONSTRAINT, catalog_create_index(t, STR("m"), &ab, NULL, NULL, &e));
    assert_non_null(strstr(e.message, "already has a row with (a, b)"));
    txn_rollback_to(t);
    assert_int_equal(table_named(t, "m")->nindexes, 2);
    OK(txn_commit(t, &e));
    store_close(s);
}

int main(void) {
    arena *a = arena_new();
    make_texts(a);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_model_with_child_transactions),
        cmocka_unit_test(test_built_index_equals_kept_index),
    };
    int failed = cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
    arena_free(a);
    return failed;
}
