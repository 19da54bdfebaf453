/*
 * storage_help_int.h - what the storage tests share: a scratch directory, checks that print the
 * error, a small table.
 */
#ifndef STORAGE_HELP_INT_H
#define STORAGE_HELP_INT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/storage.h"

#define OK(call)                                                                                   \
    do {                                                                                           \
        err_clear(&e);                                                                             \
        if ((call) != 0)                                                                           \
            fail_msg("%s: %s", #call, e.message);                                                  \
    } while (0)
#define FAILS(code_, call)                                                                         \
    do {                                                                                           \
        err_clear(&e);                                                                             \
        assert_int_equal((call), (code_));                                                         \
        assert_int_equal(e.code, (code_));                                                         \
        assert_true(e.message[0]);                                                                 \
    } while (0)

static err e;
static char scratch_dir[256];

__attribute__((unused)) static void remove_tree(const char *path) {
    DIR *d = opendir(path);
    if (!d) {
        unlink(path);
        return;
    }
    for (struct dirent *entry; (entry = readdir(d));) {
        char child[600];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(child, sizeof child, "%s/%s", path, entry->d_name);
        remove_tree(child);
    }
    closedir(d);
    rmdir(path);
}

__attribute__((unused)) static int scratch_setup(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(scratch_dir, sizeof scratch_dir, "%s/kvasir-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(scratch_dir) ? 0 : -1;
}

__attribute__((unused)) static int scratch_teardown(void **state) {
    (void)state;
    remove_tree(scratch_dir);
    return 0;
}

__attribute__((unused)) static const char *scratch(const char *name) {
    static char paths[4][512];
    static int at;
    char *p = paths[at++ % 4];
    snprintf(p, sizeof paths[0], "%s/%s", scratch_dir, name);
    return p;
}

__attribute__((unused)) static store *open_at(const char *path) {
    store *s = NULL;
    store_options options = {.path = path};
    OK(store_open(&options, &s, &e));
    return s;
}

__attribute__((unused)) static txn *begin(store *s, bool write) {
    txn *t = NULL;
    txn_wait wait = {.busy_timeout_ms = 1000};
    OK(txn_begin(s, write, &wait, &t, &e));
    return t;
}

__attribute__((unused)) static const table_def *table_named(txn *t, const char *name) {
    const table_def *def = catalog_table(txn_catalog(t), str_from(name));
    if (!def)
        fail_msg("no table %s", name);
    return def;
}

#define COLUMN(name_, type_)                                                                       \
    { .name = {name_, sizeof(name_) - 1}, .type = type_ }

/* t(id INTEGER PRIMARY KEY, name TEXT, score REAL, flag BOOLEAN) */
__attribute__((unused)) static void create_people(txn *t) {
    column_def columns[] = {COLUMN("id", TYPE_INTEGER), COLUMN("name", TYPE_TEXT),
                            COLUMN("score", TYPE_REAL), COLUMN("flag", TYPE_BOOLEAN)};
    table_def def = {.name = STR("people"), .ncolumns = 4, .columns = columns, .rowid_column = 0};
    OK(catalog_create_table(t, &def, &e));
}

__attribute__((unused)) static int64_t add_person(txn *t, value id, const char *name,
                                                  double score) {
    value row[4] = {id, name ? value_text(str_from(name)) : value_null(), value_real(score),
                    value_bool(true)};
    int64_t rowid = 0;
    OK(table_insert(t, table_named(t, "people"), row, &rowid, &e));
    return rowid;
}

__attribute__((unused)) static uint64_t count_rows(txn *t, const char *table) {
    uint64_t n = 0;
    OK(table_row_count(t, table_named(t, table), &n, &e));
    return n;
}

#endif
