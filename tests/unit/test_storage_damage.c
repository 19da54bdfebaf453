/* test_storage_damage.c - damage of one number in tables.mdb that random damage hardly ever hits. */
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>

#include "lmdb/walk_int.h"
#include "storage_help_int.h"
#include "tables/tables_int.h"

enum { TEXT = 9000, PEOPLE = 20 };

static const char *database(void) {
    return scratch("damaged");
}

static void fill(store *s, const char *text) {
    txn *t = begin(s, true);
    for (int i = 0; i < PEOPLE; i++)
        add_person(t, value_null(), text, i);
    OK(txn_commit(t, &e));
}

static void make_database(void) {
    char text[TEXT + 1];
    memset(text, 'a', TEXT);
    text[TEXT] = 0;
    remove_tree(database());
    store *s = open_at(database());
    txn *t = begin(s, true);
    create_people(t);
    OK(txn_commit(t, &e));
    fill(s, text);
    store_close(s);
}

/* A closed database's file in memory, writable. */
typedef struct image {
    page_file file;
    uint8_t *bytes;
    size_t n;
    page_meta meta;
} image;

static image map_image(void) {
    char path[600];
    struct stat st;
    size_t page_bytes;
    image m = {0};
    snprintf(path, sizeof path, "%s/tables.mdb", database());
    int fd = open(path, O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    m.n = (size_t)st.st_size;
    m.bytes = mmap(NULL, m.n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(m.bytes, MAP_FAILED);
    close(fd);
    assert_null(page_read_metas(m.bytes, m.n, &page_bytes, &m.meta, NULL));
    m.file = (page_file){m.bytes, page_bytes, m.n / page_bytes, m.meta.last_page};
    return m;
}

/* The numbers of the first overflow pages, in the order of the rowids, where they are in the file. */
static int find_overflow_numbers(image *m, uint8_t *out[PEOPLE]) {
    int n = 0, nodes;
    bool leaf;
    for (uint64_t p = 2; p <= m->meta.last_page; p++) {
        if (page_verify(&m->file, p, false, &leaf, &nodes) || !leaf)
            continue;
        for (int i = 0; i < nodes && n < PEOPLE; i++) {
            page_node x = page_get_node(&m->file, p, true, i);
            if (x.flags & F_BIGDATA)
                out[n++] = (uint8_t *)(uintptr_t)(x.key + x.key_bytes);
        }
    }
    return n;
}

static int read_person(txn *t, int64_t rowid) {
    value row[4];
    bool found;
    return table_get(t, table_named(t, "people"), rowid, row, &found, &e);
}

static void test_a_value_of_another_row(void **state) {
    (void)state;
    uint8_t *numbers[PEOPLE];
    make_database();
    image m = map_image();
    assert_int_equal(find_overflow_numbers(&m, numbers), PEOPLE);
    memcpy(numbers[1], numbers[0], 8);
    munmap(m.bytes, m.n);
    store *s = open_at(database());
    txn *t = begin(s, false);
    OK(read_person(t, 1)); /* the pages are verified as the value of this row only */
    assert_int_equal(read_person(t, 2), ERR_CORRUPT);
    assert_non_null(strstr(e.message, "rowid 2 does not match its checksum"));
    OK(read_person(t, 3));
    txn_abort(t);
    store_close(s);
}

static void test_a_longer_run_of_pages(void **state) {
    (void)state;
    uint8_t *numbers[PEOPLE];
    make_database();
    image m = map_image();
    assert_int_equal(find_overflow_numbers(&m, numbers), PEOPLE);
    m.bytes[page_load64(numbers[0]) * m.file.page_bytes + 12]++; /* the next page is of row 2 */
    munmap(m.bytes, m.n);
    store *s = open_at(database());
    txn *t = begin(s, false);
    OK(read_person(t, 1));
    txn_abort(t);
    t = begin(s, true);
    assert_int_equal(table_delete(t, table_named(t, "people"), 1, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.message, "miscounted"));
    txn_abort(t);
    store_close(s);
}

/* LMDB leaves a value that is made shorter in its transaction in its overflow pages. */
static void test_a_short_value_in_overflow_pages(void **state) {
    (void)state;
    uint8_t *numbers[PEOPLE];
    char text[TEXT + 1];
    memset(text, 'a', TEXT);
    text[TEXT] = 0;
    remove_tree(database());
    store *s = open_at(database());
    txn *t = begin(s, true);
    create_people(t);
    for (int64_t id = 1; id <= 2; id++) {
        value row[4] = {value_int(id), value_text(STR("short")), value_real(1), value_bool(true)};
        add_person(t, value_int(id), text, 1);
        OK(table_update(t, table_named(t, "people"), id, row, &e));
    }
    OK(txn_commit(t, &e));
    t = begin(s, false);
    OK(read_person(t, 1));
    txn_abort(t);
    store_close(s);
    image m = map_image();
    assert_int_equal(find_overflow_numbers(&m, numbers), 2);
    m.bytes[page_load64(numbers[0]) * m.file.page_bytes + PAGE_HEADER + 12] ^= 1;
    munmap(m.bytes, m.n);
    s = open_at(database());
    t = begin(s, false);
    assert_int_equal(read_person(t, 1), ERR_CORRUPT);
    assert_non_null(strstr(e.message, "rowid 1 does not match its checksum"));
    txn_abort(t);
    store_close(s);
}

static void test_settings_of_the_main_tree(void **state) {
    (void)state;
    make_database();
    image m = map_image();
    page_meta *meta = (page_meta *)(m.bytes + (m.meta.txn & 1) * m.file.page_bytes + PAGE_HEADER);
    meta->trees[1].flags = MDB_DUPSORT;
    munmap(m.bytes, m.n);
    store *s = NULL;
    assert_int_equal(store_open(&(store_options){.path = database()}, &s, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.message, "unknown settings"));
}

/* The record of people's tree before `fill`, put in the place of the last one, or only its root. */
static void set_older_record(bool root_only) {
    const char *name = "s0";
    image m = map_image();
    page_tree older = {.root = NO_PAGE};
    uint8_t *now = NULL;
    for (uint64_t p = 2; p <= m.meta.last_page; p++) {
        bool leaf;
        int nodes;
        if (page_verify(&m.file, p, false, &leaf, &nodes) || !leaf)
            continue;
        for (int i = 0; i < nodes; i++) {
            page_node x = page_get_node(&m.file, p, true, i);
            page_tree record;
            if (x.flags != F_SUBDATA || x.key_bytes != 2 || memcmp(x.key, name, 2) != 0)
                continue;
            memcpy(&record, x.data, sizeof record);
            if (record.entries == 2 * PEOPLE)
                now = (uint8_t *)(uintptr_t)x.data;
            else if (record.entries == PEOPLE)
                older = record;
        }
    }
    assert_non_null(now);
    assert_true(older.root != NO_PAGE);
    if (root_only)
        memcpy(now + offsetof(page_tree, root), &older.root, 8);
    else
        memcpy(now, &older, sizeof older);
    munmap(m.bytes, m.n);
}

static void test_an_older_root(void **state) {
    (void)state;
    for (int root_only = 0; root_only < 2; root_only++) {
        buf report = {0};
        uint64_t faults;
        bool whole;
        remove_tree(database());
        remove_tree(scratch("recovered"));
        store *s = open_at(database());
        txn *t = begin(s, true);
        create_people(t);
        OK(txn_commit(t, &e));
        fill(s, "somebody");
        fill(s, "somebody");
        store_close(s);
        set_older_record(root_only);
        s = open_at(database());
        for (int write = 0; write < 2; write++) {
            t = begin(s, write);
            assert_int_equal(read_person(t, 1), ERR_CORRUPT);
            assert_non_null(strstr(e.message, "table \"people\" is damaged: page "));
            assert_non_null(strstr(e.message, "list of free pages"));
            txn_abort(t);
        }
        t = begin(s, true); /* other tables can be written, which takes pages from the free list */
        column_def only = COLUMN("a", TYPE_INTEGER);
        table_def def = {.name = STR("other"), .ncolumns = 1, .columns = &only, .rowid_column = -1};
        OK(store_check(s, NULL, NULL, &report, &faults, &e));
        assert_true(faults > 0);
        OK(catalog_create_table(t, &def, &e));
        txn_abort(t);
        buf_clear(&report);
        OK(store_recover(s, scratch("recovered"), NULL, NULL, &report, &whole, &e));
        assert_non_null(strstr(report.p, "share"));
        assert_null(strstr(report.p, "nothing is lost"));
        assert_false(whole);
        store_close(s);
        s = open_at(scratch("recovered"));
        t = begin(s, false);
        assert_int_equal(count_rows(t, "people"), 2 * PEOPLE);
        txn_abort(t);
        store_close(s);
        buf_free(&report);
    }
}

/* Another process's commit can have the id of a transaction without changes, so that must not count as
 * known. */
static void test_a_commit_without_changes(void **state) {
    (void)state;
    MDB_envinfo info;
    make_database();
    store *s = open_at(database());
    for (int i = 0; i < 3; i++) {
        txn *t = begin(s, true);
        OK(txn_commit(t, &e));
        assert_int_equal(mdb_env_info(s->env, &info), 0);
        assert_int_equal(s->guard.txn, info.me_last_txnid);
        if (i == 1)
            fill(s, "somebody");
    }
    store_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_of_another_row),
        cmocka_unit_test(test_a_longer_run_of_pages),
        cmocka_unit_test(test_a_short_value_in_overflow_pages),
        cmocka_unit_test(test_settings_of_the_main_tree),
        cmocka_unit_test(test_an_older_root),
        cmocka_unit_test(test_a_commit_without_changes),
    };
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
