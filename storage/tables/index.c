/*
 * index.c - index entries and uniqueness checks.
 *
 * Invariant: an index has exactly one entry per row of its table. The keys of unique indexes end in
 * the rowid as well, so uniqueness is enforced here, not by LMDB. Keys that were cut (tables_int.h)
 * are compared by reading the rows.
 */
#include <stdlib.h>
#include <string.h>

#include "tables_int.h"

static bool index_row_has_null(const index_def *index, const value *row) {
    for (int i = 0; i < index->ncolumns; i++)
        if (row[index->columns[i]].type == TYPE_NULL)
            return true;
    return false;
}

bool index_is_unique_on(const index_def *index, const int *columns, int ncolumns) {
    if (!index->unique && !index->primary)
        return false;
    if (ncolumns == 0)
        return true;
    if (ncolumns != index->ncolumns)
        return false;
    for (int i = 0; i < ncolumns; i++) {
        bool there = false;
        for (int k = 0; k < ncolumns; k++)
            there = there || index->columns[k] == columns[i];
        if (!there)
            return false;
    }
    return true;
}

int index_violation(const table_def *def, const index_def *index, const value *row, err *e) {
    buf names = {0}, values = {0};
    for (int i = 0; i < index->ncolumns; i++) {
        str name = def->columns[index->columns[i]].name;
        value v = row[index->columns[i]];
        buf_printf(&names, "%s%.*s", i ? ", " : "", (int)name.n, name.p);
        if (i)
            buf_append_c(&values, ", ");
        bool shortened = v.type == TYPE_TEXT && v.s.n > 80;
        if (shortened)
            v.s.n = utf8_fit((str){v.s.p, 80}, 60);
        if (v.type == TYPE_BLOB)
            v.s.n = BASE_MIN(v.s.n, (size_t)20);
        value_print_sql(&values, v);
        if (shortened)
            buf_append_c(&values, "…");
    }
    err_set(e, ERR_CONSTRAINT, "table \"%.*s\" already has a row with (%s) = (%s)",
            (int)def->name.n, def->name.p, names.p, values.p);
    buf_free(&names);
    buf_free(&values);
    return ERR_CONSTRAINT;
}

int index_put_entry(txn *t, tree_cursor *c, const index_def *x, MDB_val key, const value *row,
                    unsigned flags, err *e) {
    buf entry = {0};
    lists_make_entry(&entry, x, row);
    int rc = tree_put(c, key, (MDB_val){entry.n, entry.p}, flags);
    buf_free(&entry);
    return tree_error(t, rc, "cannot write an index", e);
}

int index_add_row(txn *t, const table_info *info, int index, const value *row, int64_t rowid,
                  err *e) {
    const index_def *x = &info->def->indexes[index];
    tree_cursor *c;
    int status = txn_index(t, info, index, &c, e);
    if (status)
        return status;
    key_make(&t->key, info->def, x, row, rowid);
    return index_put_entry(t, c, x, (MDB_val){t->key.n, t->key.p}, row, 0, e);
}

static int index_lacks_row(const table_def *def, const index_def *x, int64_t rowid, err *e) {
    err_set(e, ERR_CORRUPT,
            "index \"%.*s\" of table \"%.*s\" is damaged: it lacks the row with rowid %lld",
            (int)x->name.n, x->name.p, (int)def->name.n, def->name.p, (long long)rowid);
    err_hint(e, "drop and create the index; " DAMAGE_HINT);
    return ERR_CORRUPT;
}

int index_remove_row(txn *t, const table_info *info, int index, const value *row, int64_t rowid,
                     err *e) {
    tree_cursor *c;
    MDB_val data;
    int status = txn_index(t, info, index, &c, e);
    if (status)
        return status;
    key_make(&t->key, info->def, &info->def->indexes[index], row, rowid);
    MDB_val key = {t->key.n, t->key.p};
    int rc = tree_get(c, &key, &data, MDB_SET_KEY);
    if (!rc)
        rc = tree_delete(c);
    if (rc == MDB_NOTFOUND)
        return index_lacks_row(info->def, &info->def->indexes[index], rowid, e);
    return tree_error(t, rc, "cannot write an index", e);
}

/* Whether the row at rowid has the same index cells as `row`. */
static int row_has_cells(txn *t, const table_info *info, const index_def *x, const value *row,
                         int64_t rowid, bool *equal, err *e) {
    value *other = mem_alloc(sizeof *other * (size_t)info->def->ncolumns);
    bool found = false;
    int status = table_get(t, info->def, rowid, other, &found, e);
    *equal = !status && found;
    for (int i = 0; i < x->ncolumns && *equal; i++)
        *equal = value_compare(row[x->columns[i]], other[x->columns[i]]) == 0;
    free(other);
    return status;
}

int index_find_equal(txn *t, const table_info *info, int index, const value *row, bool has_self,
                     int64_t self, int64_t *rowid, bool *found, err *e) {
    const index_def *x = &info->def->indexes[index];
    tree_cursor *c;
    *found = false;
    if (index_row_has_null(x, row))
        return 0;
    int status = txn_index(t, info, index, &c, e);
    if (status)
        return status;
    key_make(&t->key, info->def, x, row, INT64_MIN);
    size_t n = t->key.n - KEY_ROWID;
    bool cut = t->key.n == KEY_CUT_BYTES;
    MDB_val key = {t->key.n, t->key.p}, data;
    int rc = tree_get(c, &key, &data, MDB_SET_RANGE);
    for (; rc == 0 && !*found; rc = tree_get(c, &key, &data, MDB_NEXT)) {
        if (key.mv_size != t->key.n || memcmp(key.mv_data, t->key.p, n) != 0)
            return 0;
        int64_t id = key_rowid(key);
        if (has_self && id == self)
            continue;
        *found = true;
        if (cut && (status = row_has_cells(t, info, x, row, id, found, e)) != 0)
            return status;
        *rowid = id;
        if (*found)
            return 0;
    }
    return rc == MDB_NOTFOUND ? 0 : tree_error(t, rc, "cannot read an index", e);
}
