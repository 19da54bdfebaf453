/*
 * crash_tables.c - SIGKILL while a table is written: every acknowledged transaction is there, each
 * is whole, the indexes agree with the rows, and the database can be written at once.
 *
 * The writer's transaction n adds rows ROWS·n … ROWS·n + ROWS - 1, rewrites those of a former
 * transaction and deletes and re-creates another's; sometimes a statement of it is rolled back; now
 * and then it makes and drops an index.
 */
#include "crash_int.h"

enum { ROWS = 20 };

static err e;

static value text_of(int64_t k, char out[700]) {
    int n = snprintf(out, 40, "row %lld ", (long long)k);
    size_t more = (size_t)(k * 7919 % 600);
    memset(out + n, 'a' + (int)(k % 26), more);
    return value_text((str){out, (size_t)n + more});
}

static const table_def *rows_table(txn *t) {
    const table_def *def = catalog_table(txn_catalog(t), STR("rows"));
    CHECK(def, "the table is gone");
    return def;
}

static void create(txn *t) {
    column_def columns[] = {{.name = STR("k"), .type = TYPE_INTEGER},
                            {.name = STR("text"), .type = TYPE_TEXT}};
    int on_k[] = {0}, on_text[] = {1};
    index_def indexes[] = {{.unique = true, .primary = true, .ncolumns = 1, .columns = on_k},
                           {.ncolumns = 1, .columns = on_text}};
    table_def def = {.name = STR("rows"),
                     .ncolumns = 2,
                     .columns = columns,
                     .rowid_column = -1,
                     .nindexes = 2,
                     .indexes = indexes};
    CHECK(catalog_create_table(t, &def, &e) == 0, "%s", e.message);
}

static void add_rows(txn *t, int64_t from) {
    char text[700];
    for (int64_t k = from; k < from + ROWS; k++) {
        value row[2] = {value_int(k), text_of(k, text)};
        CHECK(table_insert(t, rows_table(t), row, NULL, &e) == 0, "%s", e.message);
    }
}

static void rewrite_rows(txn *t, int64_t from, bool delete) {
    char text[700];
    for (int64_t k = from; k < from + ROWS; k++) {
        value row[2] = {value_int(k), text_of(k, text)};
        int64_t rowid;
        bool found;
        CHECK(table_find_conflict(t, rows_table(t), row, (int[]){0}, 1, &rowid, &found, &e) == 0 &&
                  found,
              "row %lld is gone", (long long)k);
        int status = delete ? table_delete(t, rows_table(t), rowid, &e)
                            : table_update(t, rows_table(t), rowid, row, &e);
        CHECK(status == 0, "%s", e.message);
    }
    if (delete)
        add_rows(t, from);
}

static void one_transaction(store *s, int64_t n) {
    txn *t = NULL;
    txn_wait wait = {.busy_timeout_ms = 10000};
    CHECK(txn_begin(s, true, &wait, &t, &e) == 0, "%s", e.message);
    add_rows(t, n * ROWS);
    if (crash_random(3) == 0 && n > 0) {
        CHECK(txn_savepoint(t, &e) == 0, "%s", e.message);
        rewrite_rows(t, crash_random((uint32_t)n) * ROWS, true);
        txn_rollback_to(t);
    }
    if (n > 0)
        rewrite_rows(t, crash_random((uint32_t)n) * ROWS, crash_random(2));
    if (crash_random(10) == 0) {
        int both[] = {1, 0};
        index_def x = {.name = STR("extra"), .ncolumns = 2, .columns = both};
        int status = catalog_index(txn_catalog(t), x.name, NULL)
                         ? catalog_drop_index(t, x.name, &e)
                         : catalog_create_index(t, STR("rows"), &x, NULL, NULL, &e);
        CHECK(status == 0, "%s", e.message);
    }
    CHECK(txn_commit(t, &e) == 0, "%s", e.message);
    CHECK(write(STDOUT_FILENO, &n, sizeof n) == sizeof n, "cannot acknowledge");
}

static int64_t transactions_in(txn *t) {
    uint64_t rows;
    CHECK(table_row_count(t, rows_table(t), &rows, &e) == 0, "%s", e.message);
    CHECK(rows % ROWS == 0, "%llu rows: half a transaction", (unsigned long long)rows);
    return (int64_t)(rows / ROWS);
}

static int writer(const char *dir, const char *seed) {
    crash_state = strtoull(seed, NULL, 10);
    store *s = NULL;
    store_options options = {.path = dir};
    CHECK(store_open(&options, &s, &e) == 0, "%s", e.message);
    txn *t = NULL;
    CHECK(txn_begin(s, true, &(txn_wait){.busy_timeout_ms = 10000}, &t, &e) == 0, "%s", e.message);
    if (!catalog_table(txn_catalog(t), STR("rows")))
        create(t);
    int64_t n = transactions_in(t);
    CHECK(txn_commit(t, &e) == 0, "%s", e.message);
    for (;; n++)
        one_transaction(s, n);
}

/* Rows in the order of index `x` (NULL: rowid), each key once, each text its key's. */
static void check_order(txn *t, const index_def *x, int64_t rows) {
    table_scan *s = NULL;
    scan_spec spec = {.table = rows_table(t), .index = x, .columns = (int[]){0, 1}, .ncolumns = 2};
    bool *seen = calloc((size_t)rows + 1, 1);
    arena *mem = arena_new();
    batch b = {.rows = 1, .mem = mem};
    int64_t count = 0;
    CHECK(scan_open(t, &spec, &s, &e) == 0, "%s", e.message);
    while (b.rows) {
        arena_reset(mem);
        b.mem = mem;
        CHECK(scan_next(s, &b, &e) == 0, "%s", e.message);
        for (int i = 0; i < b.rows; i++, count++) {
            char text[700];
            int64_t k = b.cols[0].i[i];
            CHECK(k >= 0 && k < rows && !seen[k], "row %lld twice or out of range", (long long)k);
            seen[k] = true;
            CHECK(str_equal(text_of(k, text).s, b.cols[1].s[i]), "row %lld has another text",
                  (long long)k);
        }
    }
    CHECK(count == rows, "%lld of %lld rows by %s", (long long)count, (long long)rows,
          x ? x->name.p : "rowid");
    scan_close(s);
    arena_free(mem);
    free(seen);
}

static int64_t check(const char *dir, int64_t acknowledged) {
    store *s = NULL;
    store_options options = {.path = dir};
    CHECK(store_open(&options, &s, &e) == 0, "%s", e.message);
    txn *t = NULL;
    CHECK(txn_begin(s, true, &(txn_wait){.busy_timeout_ms = 10000}, &t, &e) == 0, "%s", e.message);
    if (!catalog_table(txn_catalog(t), STR("rows"))) {
        CHECK(acknowledged < 0, "acknowledged rows are gone");
        txn_abort(t);
        store_close(s);
        return 0;
    }
    int64_t n = transactions_in(t);
    CHECK(n > acknowledged, "transaction %lld was acknowledged, %lld are there",
          (long long)acknowledged, (long long)n);
    const table_def *def = rows_table(t);
    check_order(t, NULL, n * ROWS);
    for (int i = 0; i < def->nindexes; i++)
        check_order(t, &def->indexes[i], n * ROWS);
    add_rows(t, n * ROWS);
    CHECK(txn_commit(t, &e) == 0, "%s", e.message);
    store_close(s);
    return n + 1;
}

static int64_t transactions, kills, after_commit;

static void round_of_killing(const char *database) {
    if (transactions * ROWS > 20000) { /* a young database again: its pages split and merge more */
        crash_remove(database);
        transactions = 0;
    }
    int64_t acknowledged = crash_kill_writer(database, 80);
    transactions = check(database, acknowledged);
    after_commit += acknowledged >= 0;
    kills++;
}

int main(int argc, char **argv) {
    int status = crash_main(argc, argv, &(crash_test){writer, round_of_killing, 50});
    printf("%lld kills, %lld of them after a commit\n", (long long)kills, (long long)after_commit);
    return status;
}
