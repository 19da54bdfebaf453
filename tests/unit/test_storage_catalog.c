/* test_storage_catalog.c - definitions, constraints, ALTER, views, models, meta, statistics. */
#include <math.h>

#include "storage_help_int.h"

static store *db;

static int open_db(void **state) {
    (void)state;
    db = open_at(NULL);
    return 0;
}

static int close_db(void **state) {
    (void)state;
    store_close(db);
    return 0;
}

static int rename_second(txn *t, str to) {
    column_def columns[8];
    table_def renamed = *table_named(t, "persons");
    assert_in_range(renamed.ncolumns, 2, 8);
    memcpy(columns, renamed.columns, sizeof *columns * (size_t)renamed.ncolumns);
    columns[1].name = to;
    renamed.columns = columns;
    return catalog_rename_column(t, STR("persons"), 1, &renamed, &e);
}

static void test_names(void **state) {
    (void)state;
    txn *t = begin(db, true);
    create_people(t);
    assert_non_null(catalog_table(txn_catalog(t), STR("PEOPLE")));
    column_def twice[] = {COLUMN("a", TYPE_TEXT), COLUMN("A", TYPE_TEXT)};
    table_def def = {.name = STR("People"), .ncolumns = 2, .columns = twice, .rowid_column = -1};
    FAILS(ERR_BIND, catalog_create_table(t, &def, &e));
    def.name = STR("other");
    FAILS(ERR_BIND, catalog_create_table(t, &def, &e));
    FAILS(ERR_BIND, catalog_drop_table(t, STR("nobody"), &e));
    view_def view = {.name = STR("people"), .sql = STR("SELECT 1")};
    FAILS(ERR_BIND, catalog_create_view(t, &view, false, &e));
    OK(catalog_rename_table(t, STR("people"), STR("Persons"), &e));
    assert_null(catalog_table(txn_catalog(t), STR("people")));
    OK(rename_second(t, STR("full_name")));
    FAILS(ERR_BIND, rename_second(t, STR("SCORE")));
    assert_true(str_equal(table_named(t, "persons")->columns[1].name, STR("full_name")));
    txn_abort(t);
}

static void test_definitions_survive(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", scratch("definitions"));
    store *s = open_at(path);
    txn *t = begin(s, true);
    column_def columns[] = {COLUMN("k", TYPE_TEXT), COLUMN("v", TYPE_REAL)};
    columns[0].not_null = true;
    columns[1].default_sql = STR("1.5");
    columns[1].check_sql = STR("v > 0");
    int on_k[] = {0};
    index_def primary = {.unique = true, .primary = true, .ncolumns = 1, .columns = on_k};
    str check = STR("k <> 'x'");
    table_def def = {.name = STR("kv"),
                     .ncolumns = 2,
                     .columns = columns,
                     .rowid_column = -1,
                     .nindexes = 1,
                     .indexes = &primary,
                     .nchecks = 1,
                     .checks = &check};
    OK(catalog_create_table(t, &def, &e));
    str names[] = {STR("one"), STR("two")};
    view_def view = {
        .name = STR("w"), .ncolumns = 2, .columns = names, .sql = STR("SELECT k, v FROM kv")};
    OK(catalog_create_view(t, &view, false, &e));
    view.sql = STR("SELECT v, k FROM kv");
    FAILS(ERR_BIND, catalog_create_view(t, &view, false, &e));
    OK(catalog_create_view(t, &view, true, &e));
    model_def model = {.name = STR("m"), .source = STR("test:hash")};
    OK(catalog_create_model(t, &model, false, &e));
    model_def served = {
        .name = STR("s"), .source = STR("http://a http://b"), .options = STR("model=x\n")};
    OK(catalog_create_model(t, &served, false, &e));
    OK(txn_commit(t, &e));
    store_close(s);
    s = open_at(path);
    t = begin(s, true);
    const table_def *kv = table_named(t, "kv");
    assert_true(kv->columns[0].not_null && str_equal(kv->columns[1].check_sql, STR("v > 0")));
    assert_true(str_equal(kv->checks[0], check) &&
                str_equal(kv->columns[1].default_sql, STR("1.5")));
    assert_true(kv->indexes[0].primary && str_equal(kv->indexes[0].name, STR("kv_pkey")));
    assert_true(str_equal(catalog_view(txn_catalog(t), STR("W"))->sql, view.sql));
    assert_true(str_equal(catalog_view(txn_catalog(t), STR("w"))->columns[1], STR("two")));
    assert_true(str_equal(catalog_model(txn_catalog(t), STR("m"))->source, STR("test:hash")));
    assert_int_equal(catalog_model(txn_catalog(t), STR("m"))->options.n, 0);
    assert_true(str_equal(catalog_model(txn_catalog(t), STR("s"))->source, served.source));
    assert_true(str_equal(catalog_model(txn_catalog(t), STR("s"))->options, served.options));
    const table_def *owner = NULL;
    assert_non_null(catalog_index(txn_catalog(t), STR("KV_PKEY"), &owner));
    assert_ptr_equal(owner, kv);
    FAILS(ERR_BIND, catalog_drop_index(t, STR("kv_pkey"), &e));
    OK(catalog_drop_view(t, STR("w"), &e));
    OK(catalog_drop_model(t, STR("m"), &e));
    FAILS(ERR_BIND, catalog_drop_model(t, STR("m"), &e));
    OK(txn_commit(t, &e));
    store_close(s);
}

static void test_constraints(void **state) {
    (void)state;
    txn *t = begin(db, true);
    column_def columns[] = {COLUMN("k", TYPE_TEXT), COLUMN("n", TYPE_INTEGER)};
    columns[1].not_null = true;
    int on_k[] = {0}, on_n[] = {1};
    index_def indexes[] = {{.unique = true, .primary = true, .ncolumns = 1, .columns = on_k},
                           {.unique = true, .ncolumns = 1, .columns = on_n}};
    table_def def = {.name = STR("c"),
                     .ncolumns = 2,
                     .columns = columns,
                     .rowid_column = -1,
                     .nindexes = 2,
                     .indexes = indexes};
    OK(catalog_create_table(t, &def, &e));
    const table_def *c = table_named(t, "c");
    int64_t rowid, other;
    bool found;
    OK(table_insert(t, c, (value[]){value_text(STR("a")), value_int(1)}, &rowid, &e));
    FAILS(ERR_CONSTRAINT,
          table_insert(t, c, (value[]){value_text(STR("a")), value_int(2)}, &rowid, &e));
    assert_string_equal(e.message, "table \"c\" already has a row with (k) = ('a')");
    FAILS(ERR_CONSTRAINT,
          table_insert(t, c, (value[]){value_text(STR("b")), value_int(1)}, &rowid, &e));
    FAILS(ERR_CONSTRAINT, table_insert(t, c, (value[]){value_null(), value_int(3)}, &rowid, &e));
    assert_string_equal(e.message, "column \"k\" of table \"c\" must not be NULL");
    FAILS(ERR_CONSTRAINT,
          table_insert(t, c, (value[]){value_text(STR("c")), value_null()}, &rowid, &e));
    FAILS(ERR_TYPE, table_insert(t, c, (value[]){value_int(1), value_int(1)}, &rowid, &e));
    value row[] = {value_text(STR("a")), value_int(9)};
    OK(table_find_conflict(t, c, row, on_k, 1, &other, &found, &e));
    assert_true(found && other == 1);
    OK(table_find_conflict(t, c, row, on_n, 1, &other, &found, &e));
    assert_false(found);
    OK(table_update(t, c, 1, row, &e)); /* its own key is no conflict */
    assert_int_equal(count_rows(t, "c"), 1);
    txn_abort(t);
}

static void test_rowid_column(void **state) {
    (void)state;
    txn *t = begin(db, true);
    create_people(t);
    const table_def *p = table_named(t, "people");
    assert_int_equal(add_person(t, value_null(), "a", 1), 1);
    assert_int_equal(add_person(t, value_int(10), "b", 1), 10);
    assert_int_equal(add_person(t, value_int(5), "c", 1), 5);
    assert_int_equal(add_person(t, value_null(), "d", 1), 11);
    assert_int_equal(add_person(t, value_int(-3), "e", 1), -3);
    value row[4] = {value_int(5), value_null(), value_null(), value_null()};
    int64_t rowid;
    bool found;
    FAILS(ERR_CONSTRAINT, table_insert(t, p, row, &rowid, &e));
    assert_string_equal(e.message, "table \"people\" already has a row with (id) = (5)");
    OK(table_get(t, p, 5, row, &found, &e));
    row[0] = value_int(6); /* moves, its cells pointing into the row it leaves */
    OK(table_update(t, p, 5, row, &e));
    OK(table_get(t, p, 5, row, &found, &e));
    assert_false(found);
    OK(table_get(t, p, 6, row, &found, &e));
    assert_true(found && str_equal(row[1].s, STR("c")) && row[0].i == 6);
    row[0] = value_int(10);
    FAILS(ERR_CONSTRAINT, table_update(t, p, 6, row, &e));
    add_person(t, value_int(INT64_MAX), "last", 1);
    row[0] = value_null();
    FAILS(ERR_LIMIT, table_insert(t, p, row, &rowid, &e));
    txn_abort(t);
}

static void test_alter_columns(void **state) {
    (void)state;
    txn *t = begin(db, true);
    create_people(t);
    int on_score[] = {2};
    index_def x = {.name = STR("by_score"), .ncolumns = 1, .columns = on_score};
    OK(catalog_create_index(t, STR("people"), &x, NULL, NULL, &e));
    for (int i = 1; i <= 3000; i++)
        add_person(t, value_null(), i % 3 ? "name" : NULL, i);
    column_def extra = COLUMN("extra", TYPE_TEXT);
    extra.not_null = true;
    FAILS(ERR_CONSTRAINT, catalog_add_column(t, STR("people"), &extra, value_null(), NULL, &e));
    OK(catalog_add_column(t, STR("people"), &extra, value_text(STR("filled")), NULL, &e));
    FAILS(ERR_BIND, catalog_add_column(t, STR("people"), &extra, value_text(STR("x")), NULL, &e));
    FAILS(ERR_BIND, catalog_drop_column(t, STR("people"), 0, NULL, &e));
    FAILS(ERR_BIND, catalog_drop_column(t, STR("people"), 2, NULL, &e));
    assert_non_null(strstr(e.message, "by_score"));
    OK(catalog_drop_column(t, STR("people"), 1, NULL, &e));
    const table_def *p = table_named(t, "people");
    assert_int_equal(p->ncolumns, 4);
    assert_int_equal(p->rowid_column, 0);
    assert_int_equal(p->indexes[0].columns[0], 1);
    value row[4], low = value_real(2990);
    bool found;
    OK(table_get(t, p, 77, row, &found, &e));
    assert_true(found && row[1].r == 77 && row[2].i == 1 && str_equal(row[3].s, STR("filled")));
    int wanted[] = {0, 3};
    scan_spec spec = {.table = p,
                      .index = &p->indexes[0],
                      .low = {.values = &low, .n = 1},
                      .columns = wanted,
                      .ncolumns = 2};
    table_scan *s;
    arena *mem = arena_new();
    batch b = {.mem = mem};
    OK(scan_open(t, &spec, &s, &e));
    OK(scan_next(s, &b, &e));
    assert_int_equal(b.rows, 10);
    assert_int_equal(b.cols[0].i[0], 2991);
    scan_close(s);
    arena_free(mem);
    OK(catalog_drop_index(t, STR("by_score"), &e));
    OK(catalog_drop_column(t, STR("people"), 1, NULL, &e));
    assert_int_equal(count_rows(t, "people"), 3000);
    txn_abort(t);
}

static void test_meta(void **state) {
    (void)state;
    txn *t = begin(db, true);
    str bytes;
    bool found;
    char long_key[1000];
    memset(long_key, 'k', sizeof long_key);
    OK(meta_put(t, STR("order:1"), STR("a,b"), &e));
    OK(meta_put(t, STR("order:2"), STR(""), &e));
    OK(meta_put(t, STR("other"), STR("x"), &e));
    OK(meta_put(t, (str){long_key, 1000}, STR("long"), &e));
    OK(meta_put(t, (str){long_key, 999}, STR("shorter"), &e));
    OK(meta_get(t, (str){long_key, 1000}, &bytes, &found, &e));
    assert_true(found && str_equal(bytes, STR("long")));
    OK(meta_get(t, STR("order:2"), &bytes, &found, &e));
    assert_true(found && bytes.n == 0);
    OK(meta_delete_prefix(t, STR("order:"), &e));
    OK(meta_get(t, STR("order:1"), &bytes, &found, &e));
    assert_false(found);
    OK(meta_delete_prefix(t, STR("k"), &e));
    OK(meta_get(t, (str){long_key, 999}, &bytes, &found, &e));
    assert_false(found);
    OK(meta_get(t, STR("other"), &bytes, &found, &e));
    assert_true(found);
    OK(meta_delete_prefix(t, STR(""), &e));
    OK(meta_get(t, STR("other"), &bytes, &found, &e));
    assert_false(found);
    txn_abort(t);
}

static void test_statistics(void **state) {
    (void)state;
    txn *t = begin(db, true);
    create_people(t);
    const table_def *p = table_named(t, "people");
    arena *a = arena_new();
    table_stats stats;
    for (int i = 0; i < 20000; i++)
        add_person(t, value_null(), i % 4 == 0 ? "common" : i % 10 == 1 ? NULL : "x", i % 5000);
    OK(stats_get(t, p, true, a, &stats, &e));
    assert_false(stats.analyzed);
    assert_int_equal(stats.rows, 20000);
    OK(stats_analyze(t, p, NULL, &e));
    OK(stats_get(t, p, true, a, &stats, &e));
    assert_true(stats.analyzed);
    assert_true(stats.columns[1].distinct == 2);
    assert_true(fabs(stats.columns[1].null_fraction - 0.1) < 1e-9);
    assert_true(str_equal(stats.columns[1].common[0].s, STR("x")));
    assert_true(fabs(stats.columns[1].common_fraction[1] - 0.25) < 0.02);
    assert_true(stats.columns[1].p90_bytes == 6);
    assert_true(fabs(stats.columns[2].distinct / 5000 - 1) < 0.06);
    assert_true(stats.columns[2].low.r == 0 && stats.columns[2].high.r == 4999);
    assert_true(fabs(stats.columns[0].distinct / 20000 - 1) < 0.06);
    assert_int_equal(stats.columns[0].ncommon, 0);
    atomic_bool cancel = true;
    FAILS(ERR_CANCELLED, stats_analyze(t, p, &cancel, &e));
    column_def extra = COLUMN("extra", TYPE_TEXT);
    OK(catalog_add_column(t, STR("people"), &extra, value_null(), NULL, &e));
    OK(stats_get(t, table_named(t, "people"), true, a, &stats, &e));
    assert_false(stats.analyzed);
    arena_free(a);
    txn_abort(t);
}

/* Rows fed in two turns give what ANALYZE counts of all of them. */
static void test_statistics_while_writing(void **state) {
    (void)state;
    enum { BATCH = 2000, BATCHES = 6 };
    txn *t = begin(db, true);
    create_people(t);
    const table_def *p = table_named(t, "people");
    arena *a = arena_new();
    table_stats fed, analyzed;
    static int64_t rowids[BATCH];
    column cols[4];
    batch b = {.rows = BATCH, .ncols = p->ncolumns, .cols = cols, .mem = a};
    assert_int_equal(p->ncolumns, 4);
    for (int turn = 0; turn < BATCHES; turn++) {
        stats_feed *f;
        OK(stats_feed_resume(t, p, &f, &e));
        for (int k = 0; k < 4; k++)
            column_init(&cols[k], a, p->columns[k].type, BATCH, false);
        for (int i = 0; i < BATCH; i++) {
            int n = turn * BATCH + i;
            value row[] = {value_null(), n % 7 ? value_text(STR("x")) : value_null(),
                           value_real(n % 3000), value_null()};
            OK(table_insert(t, p, row, &rowids[i], &e));
            for (int k = 0; k < 4; k++)
                column_set(&cols[k], a, BATCH, i, row[k]);
        }
        stats_feed_rows(f, &b, rowids);
        OK(stats_feed_keep(f, t, p, &e));
        stats_feed_free(f);
    }
    OK(stats_get(t, p, true, a, &fed, &e));
    OK(stats_analyze(t, p, NULL, &e));
    OK(stats_get(t, p, true, a, &analyzed, &e));
    assert_true(fed.analyzed && fed.counted_rows == BATCH * BATCHES &&
                fed.njoint == analyzed.njoint);
    assert_true(fed.njoint > 100);
    for (int k = 0; k < 4; k++) {
        const column_stats *x = &fed.columns[k], *y = &analyzed.columns[k];
        assert_true(x->distinct == y->distinct && x->null_fraction == y->null_fraction);
        assert_true(x->average_bytes == y->average_bytes && x->p90_bytes == y->p90_bytes);
        assert_true(value_compare(x->low, y->low) == 0 && value_compare(x->high, y->high) == 0);
        assert_memory_equal(x->joint, y->joint, sizeof *x->joint * (size_t)fed.njoint);
    }
    double keys = fed.columns[0].distinct, few = fed.columns[1].distinct;
    for (int i = 0; i < BATCH * BATCHES / 2; i++)
        OK(table_delete(t, p, i + 1, &e));
    OK(stats_get(t, p, true, a, &fed, &e));
    assert_int_equal(fed.rows, BATCH * BATCHES / 2);
    assert_true(fabs(fed.columns[0].distinct / keys - 0.5) < 0.03); /* keys go with their rows */
    assert_true(fabs(fed.columns[1].distinct / few - 1) < 0.01);    /* one value stays */
    arena_free(a);
    txn_abort(t);
}

static void test_many_tables(void **state) {
    (void)state;
    txn *t = begin(db, true);
    column_def columns[] = {COLUMN("a", TYPE_INTEGER)};
    char name[32];
    int status = 0, made = 0;
    for (; made < 3000 && !status; made++) {
        snprintf(name, sizeof name, "t%d", made);
        table_def def = {
            .name = str_from(name), .ncolumns = 1, .columns = columns, .rowid_column = -1};
        status = catalog_create_table(t, &def, &e);
        if (made == 300)
            break;
    }
    assert_int_equal(made, 300);
    OK(txn_commit(t, &e));
    t = begin(db, true);
    assert_non_null(catalog_table(txn_catalog(t), STR("T299")));
    OK(catalog_drop_table(t, STR("t7"), &e));
    assert_null(catalog_table(txn_catalog(t), STR("t7")));
    OK(txn_commit(t, &e));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names, open_db, close_db),
        cmocka_unit_test(test_definitions_survive),
        cmocka_unit_test_setup_teardown(test_constraints, open_db, close_db),
        cmocka_unit_test_setup_teardown(test_rowid_column, open_db, close_db),
        cmocka_unit_test_setup_teardown(test_alter_columns, open_db, close_db),
        cmocka_unit_test_setup_teardown(test_meta, open_db, close_db),
        cmocka_unit_test_setup_teardown(test_statistics, open_db, close_db),
        cmocka_unit_test_setup_teardown(test_statistics_while_writing, open_db, close_db),
        cmocka_unit_test_setup_teardown(test_many_tables, open_db, close_db),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
