/*
 * table.c - operations on single rows: insert, update, delete, get.
 *
 * Invariant: all constraints are checked before the first write, so a refused row changes nothing;
 * a row and its index entries change together.
 */
#include <string.h>

#include "tables_int.h"

static int row_refused(const table_def *def, const column_def *c, value v, err *e) {
    if (v.type == TYPE_NULL)
        return err_set(e, ERR_CONSTRAINT, "column \"%.*s\" of table \"%.*s\" must not be NULL",
                       (int)c->name.n, c->name.p, (int)def->name.n, def->name.p);
    return err_set(e, ERR_TYPE, "column \"%.*s\" of table \"%.*s\" is %s, the value is %s",
                   (int)c->name.n, c->name.p, (int)def->name.n, def->name.p, type_name(c->type),
                   type_name(v.type));
}

static int check_row(const table_info *info, const value *row, err *e) {
    const table_def *def = info->def;
    for (int i = 0; i < def->ncolumns; i++) {
        const column_def *c = &def->columns[i];
        if (row[i].type == TYPE_NULL ? c->not_null && i != def->rowid_column
                                     : row[i].type != c->type)
            return row_refused(def, c, row[i], e);
        if (c->dims && row[i].type == TYPE_VECTOR && vector_check(row[i].s, c->dims, e))
            return err_set(e, ERR_TYPE, "column \"%.*s\": %s", (int)c->name.n, c->name.p,
                           e ? e->message : "");
    }
    for (int i = 0; i < def->nindexes; i++)
        for (int k = 0; def->indexes[i].primary && k < def->indexes[i].ncolumns; k++)
            if (row[def->indexes[i].columns[k]].type == TYPE_NULL)
                return row_refused(def, &def->columns[def->indexes[i].columns[k]], value_null(), e);
    if (row_size(&info->layout, row) > ROW_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "a row of table \"%.*s\" would be longer than 1 GB",
                       (int)def->name.n, def->name.p);
    return 0;
}

static int check_unique(txn *t, const table_info *info, const value *row, bool has_self,
                        int64_t self, err *e) {
    for (int i = 0; i < info->def->nindexes; i++) {
        const index_def *x = &info->def->indexes[i];
        bool found = false;
        int64_t other;
        if (!x->unique && !x->primary)
            continue;
        int status = index_find_equal(t, info, i, row, has_self, self, &other, &found, e);
        if (status)
            return status;
        if (found)
            return index_violation(info->def, x, row, e);
    }
    return 0;
}

static int rowid_taken(const table_def *def, int64_t rowid, err *e) {
    if (def->rowid_column < 0)
        return err_set(e, ERR_INTERNAL, "rowid %lld is taken", (long long)rowid);
    str name = def->columns[def->rowid_column].name;
    return err_set(e, ERR_CONSTRAINT, "table \"%.*s\" already has a row with (%.*s) = (%lld)",
                   (int)def->name.n, def->name.p, (int)name.n, name.p, (long long)rowid);
}

/* ---- reading one row ------------------------------------------------------------------------- */

static int fetch(txn *t, const table_info *info, int64_t rowid, MDB_val *data, bool *found,
                 err *e) {
    txn_tree *tree;
    uint8_t bytes[KEY_ROWID];
    int status = txn_rows(t, info, &tree, e);
    if (status)
        return status;
    rowid_put(bytes, rowid);
    MDB_val key = {sizeof bytes, bytes};
    int rc = tree_look_up(&tree->cursor, key, data);
    *found = rc == 0;
    return rc == 0 || rc == MDB_NOTFOUND ? 0 : tree_error(t, rc, "cannot read a row", e);
}

int table_get(txn *t, const table_def *def, int64_t rowid, value *row, bool *found, err *e) {
    const table_info *info;
    MDB_val data;
    int status = table_resolve(t, def, &info, e);
    if (!status)
        status = fetch(t, info, rowid, &data, found, e);
    if (!status && *found)
        status = row_decode(&info->layout, data, rowid, row, e);
    return status;
}

int table_row_count(txn *t, const table_def *def, uint64_t *out, err *e) {
    const table_info *info;
    int status = table_resolve(t, def, &info, e);
    if (!status)
        status = tree_entries(t, info->tree, out, e);
    if (status || info->rows == ROWS_UNKNOWN || info->rows == *out || txn_is_dirty(t, def->id))
        return status;
    err_set(
        e, ERR_CORRUPT, "table \"%.*s\" is damaged: its tree counts %llu rows, the catalog %llu",
        (int)def->name.n, def->name.p, (unsigned long long)*out, (unsigned long long)info->rows);
    err_hint(e, DAMAGE_HINT);
    return ERR_CORRUPT;
}

int table_rowid_ends(txn *t, const table_def *def, int64_t *first, int64_t *last, err *e) {
    const table_info *info;
    txn_tree *tree;
    MDB_val key, data;
    int status = table_resolve(t, def, &info, e);
    if (!status)
        status = txn_rows(t, info, &tree, e);
    if (status)
        return status;
    *first = *last = 0;
    int rc = tree_get(&tree->cursor, &key, &data, MDB_FIRST);
    if (rc == 0) {
        *first = rowid_get(key.mv_data);
        rc = tree_get(&tree->cursor, &key, &data, MDB_LAST);
    }
    if (rc == 0)
        *last = rowid_get(key.mv_data);
    return rc == 0 || rc == MDB_NOTFOUND ? 0 : tree_error(t, rc, "cannot read a table", e);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Finds the greatest rowid in use. It is cached in *out until the transaction closes its
 * cursors. */
static int last_rowid(txn *t, const table_info *info, txn_tree **out, err *e) {
    txn_tree *tree;
    MDB_val key, data;
    int status = txn_rows(t, info, &tree, e);
    if (status)
        return status;
    if (!tree->last_known) {
        int rc = tree_get(&tree->cursor, &key, &data, MDB_LAST);
        if (rc && rc != MDB_NOTFOUND)
            return tree_error(t, rc, "cannot read a table", e);
        tree->last_empty = rc == MDB_NOTFOUND;
        tree->last_rowid = rc ? 0 : rowid_get(key.mv_data);
        tree->last_known = true;
    }
    *out = tree;
    return 0;
}

static int next_rowid(txn *t, const table_info *info, int64_t *out, err *e) {
    txn_tree *tree;
    int status = last_rowid(t, info, &tree, e);
    if (status)
        return status;
    if (tree->last_empty || tree->last_rowid < 0) {
        *out = 1;
        return 0;
    }
    if (tree->last_rowid == INT64_MAX)
        return err_set(e, ERR_LIMIT, "table \"%.*s\" has used its last rowid",
                       (int)info->def->name.n, info->def->name.p);
    *out = tree->last_rowid + 1;
    return 0;
}

/* Writes a new row. A rowid above the last is appended, which fills pages and needs no search. */
static int put_new_row(txn *t, const table_info *info, int64_t rowid, const MDB_val *bytes,
                       err *e) {
    uint8_t key_bytes[KEY_ROWID];
    txn_tree *tree;
    int status = last_rowid(t, info, &tree, e);
    if (status)
        return status;
    rowid_put(key_bytes, rowid);
    bool append = tree->last_empty || rowid > tree->last_rowid;
    int rc = tree_put(&tree->cursor, (MDB_val){sizeof key_bytes, key_bytes}, *bytes,
                      append ? MDB_APPEND : 0);
    if (rc)
        return tree_error(t, rc, "cannot write a row", e);
    if (append) {
        tree->last_rowid = rowid;
        tree->last_empty = false;
    }
    return 0;
}

static int delete_row(txn *t, const table_info *info, int64_t rowid, err *e) {
    uint8_t bytes[KEY_ROWID];
    txn_tree *tree;
    MDB_val data;
    int status = txn_rows(t, info, &tree, e);
    if (status)
        return status;
    rowid_put(bytes, rowid);
    MDB_val key = {sizeof bytes, bytes};
    int rc = tree_get(&tree->cursor, &key, &data, MDB_SET_KEY);
    if (!rc)
        rc = tree_delete(&tree->cursor);
    tree->last_known = false;
    return tree_error(t, rc, "cannot delete a row", e);
}

static int add_to_indexes(txn *t, const table_info *info, const value *row, int64_t rowid, err *e) {
    int status = 0;
    for (int i = 0; i < info->def->nindexes && !status; i++)
        status = index_add_row(t, info, i, row, rowid, e);
    return status;
}

static int remove_from_indexes(txn *t, const table_info *info, const value *row, int64_t rowid,
                               err *e) {
    int status = 0;
    for (int i = 0; i < info->def->nindexes && !status; i++)
        status = index_remove_row(t, info, i, row, rowid, e);
    return status;
}

/* Row operations copy the new and the old row to row_mem: cells may point into pages that LMDB
 * moves or frees when the first of several trees is written. */
static arena *scratch(txn *t) {
    if (!t->row_mem)
        t->row_mem = arena_new();
    return t->row_mem;
}

/* Encodes a row into *bytes. Sets *cells to its values, whose texts point into *bytes; NULL if the
 * table has no indexes. */
static int encode_row(txn *t, const table_info *info, const value *row, int64_t rowid,
                      MDB_val *bytes, value **cells, err *e) {
    bytes->mv_size = row_size(&info->layout, row);
    bytes->mv_data = arena_alloc(scratch(t), bytes->mv_size);
    row_encode(&info->layout, row, bytes->mv_data);
    *cells = NULL;
    if (!info->def->nindexes)
        return 0;
    *cells = arena_alloc(scratch(t), sizeof(value) * (size_t)info->def->ncolumns);
    return row_decode(&info->layout, *bytes, rowid, *cells, e);
}

/* Reads the row before a change. *data: its bytes in the map. *cells: its values, whose texts point
 * into a copy; NULL if the table has no indexes. */
static int fetch_old(txn *t, const table_info *info, int64_t rowid, MDB_val *data, value **cells,
                     err *e) {
    bool found = false;
    int status = fetch(t, info, rowid, data, &found, e);
    if (status)
        return status;
    if (!found)
        return err_set(e, ERR_INTERNAL, "table \"%.*s\" has no row %lld", (int)info->def->name.n,
                       info->def->name.p, (long long)rowid);
    *cells = NULL;
    if (!info->def->nindexes)
        return 0;
    MDB_val copy = {data->mv_size, arena_alloc(scratch(t), data->mv_size)};
    memcpy(copy.mv_data, data->mv_data, data->mv_size);
    *cells = arena_alloc(scratch(t), sizeof(value) * (size_t)info->def->ncolumns);
    return row_decode(&info->layout, copy, rowid, *cells, e);
}

static void scratch_reset(txn *t) {
    arena_reset(scratch(t));
}

/* Chooses the rowid of a new row: the value of its rowid column, which must be free, or else the
 * next rowid. */
static int choose_rowid(txn *t, const table_info *info, const value *row, int64_t *out, err *e) {
    int key_column = info->def->rowid_column;
    txn_tree *tree;
    MDB_val data;
    bool found = false;
    if (key_column < 0 || row[key_column].type == TYPE_NULL)
        return next_rowid(t, info, out, e);
    *out = row[key_column].i;
    int status = last_rowid(t, info, &tree, e);
    if (!status && !tree->last_empty && *out <= tree->last_rowid)
        status = fetch(t, info, *out, &data, &found, e);
    if (!status && found)
        status = rowid_taken(info->def, *out, e);
    return status;
}

int table_insert(txn *t, const table_def *def, const value *row, int64_t *rowid, err *e) {
    const table_info *info;
    MDB_val bytes;
    value *cells;
    int64_t id = 0;
    int status = txn_need_write(t, e);
    if (!status)
        status = table_resolve(t, def, &info, e);
    if (!status)
        status = check_row(info, row, e);
    if (!status)
        status = choose_rowid(t, info, row, &id, e);
    if (!status && info->def->nindexes)
        status = check_unique(t, info, row, false, 0, e);
    if (status)
        return status;
    scratch_reset(t);
    status = encode_row(t, info, row, id, &bytes, &cells, e);
    if (!status)
        status = txn_before_row(t, info, id, NULL, bytes.mv_size, e);
    if (status)
        return status;
    txn_mark_dirty(t, info->def->id);
    status = put_new_row(t, info, id, &bytes, e);
    if (!status)
        status = add_to_indexes(t, info, cells, id, e);
    if (!status && rowid)
        *rowid = id;
    return status;
}

static bool cells_equal(const index_def *x, const value *a, const value *b) {
    for (int i = 0; i < x->ncolumns; i++) {
        value l = a[x->columns[i]], r = b[x->columns[i]];
        if (l.type != r.type || value_compare(l, r) != 0)
            return false;
    }
    return true;
}

/* Moves the row of an UPDATE that changes the rowid. */
static int move_row(txn *t, const table_info *info, int64_t rowid, const value *row, err *e) {
    int64_t to = row[info->def->rowid_column].i, made;
    MDB_val data;
    bool found = false;
    int status = fetch(t, info, to, &data, &found, e);
    if (!status && found)
        status = rowid_taken(info->def, to, e);
    if (!status)
        status = check_unique(t, info, row, true, rowid, e);
    if (status)
        return status;
    arena *mem = arena_new(); /* cells of `row` may point into the old row */
    value *copy = ARENA_ARRAY(mem, value, info->def->ncolumns);
    for (int i = 0; i < info->def->ncolumns; i++)
        copy[i] = value_copy(mem, row[i]);
    status = table_delete(t, info->def, rowid, e);
    if (!status)
        status = table_insert(t, info->def, copy, &made, e);
    arena_free(mem);
    return status;
}

static int update_in_place(txn *t, const table_info *info, int64_t rowid, const value *row,
                           err *e) {
    MDB_val data, bytes;
    value *old, *cells;
    scratch_reset(t);
    int status = fetch_old(t, info, rowid, &data, &old, e);
    if (!status && info->def->nindexes)
        status = check_unique(t, info, row, true, rowid, e);
    if (!status)
        status = encode_row(t, info, row, rowid, &bytes, &cells, e);
    if (!status)
        status = txn_before_row(t, info, rowid, &data, bytes.mv_size, e);
    if (status)
        return status;
    txn_mark_dirty(t, info->def->id);
    for (int i = 0; i < info->def->nindexes && !status; i++) {
        if (cells_equal(&info->def->indexes[i], old, cells))
            continue;
        status = index_remove_row(t, info, i, old, rowid, e);
        if (!status)
            status = index_add_row(t, info, i, cells, rowid, e);
    }
    return status ? status : table_put_bytes(t, info, rowid, bytes.mv_data, bytes.mv_size, e);
}

int table_update(txn *t, const table_def *def, int64_t rowid, const value *row, err *e) {
    const table_info *info;
    int status = txn_need_write(t, e);
    if (!status)
        status = table_resolve(t, def, &info, e);
    if (!status)
        status = check_row(info, row, e);
    if (status)
        return status;
    int key_column = info->def->rowid_column;
    if (key_column >= 0 && row[key_column].type == TYPE_NULL)
        return row_refused(info->def, &info->def->columns[key_column], value_null(), e);
    if (key_column >= 0 && row[key_column].i != rowid)
        return move_row(t, info, rowid, row, e);
    return update_in_place(t, info, rowid, row, e);
}

int table_put_bytes(txn *t, const table_info *info, int64_t rowid, const uint8_t *bytes, size_t n,
                    err *e) {
    txn_tree *tree;
    uint8_t key_bytes[KEY_ROWID];
    int status = txn_rows(t, info, &tree, e);
    if (status)
        return status;
    rowid_put(key_bytes, rowid);
    tree->last_known = false;
    int rc = tree_put(&tree->cursor, (MDB_val){sizeof key_bytes, key_bytes},
                      (MDB_val){n, (void *)(uintptr_t)bytes}, 0);
    return tree_error(t, rc, "cannot write a row", e);
}

int table_delete(txn *t, const table_def *def, int64_t rowid, err *e) {
    const table_info *info;
    MDB_val data;
    value *old;
    int status = txn_need_write(t, e);
    if (!status)
        status = table_resolve(t, def, &info, e);
    if (status)
        return status;
    scratch_reset(t);
    status = fetch_old(t, info, rowid, &data, &old, e);
    if (!status)
        status = txn_before_row(t, info, rowid, &data, 0, e);
    if (status)
        return status;
    txn_mark_dirty(t, info->def->id);
    if (info->def->nindexes)
        status = remove_from_indexes(t, info, old, rowid, e);
    return status ? status : delete_row(t, info, rowid, e);
}

int table_clear(txn *t, const table_def *def, uint64_t *count, err *e) {
    const table_info *info;
    int status = table_row_count(t, def, count, e);
    if (!status)
        status = txn_before_change(t, e);
    if (!status)
        status = table_resolve(t, def, &info, e);
    if (status || *count == 0)
        return status;
    txn_mark_dirty(t, info->def->id);
    txn_close_cursors(t);
    for (int i = -1; i < info->def->nindexes && !status; i++)
        status = txn_empty_tree(t, info, i, e);
    return status;
}

int table_find_conflict(txn *t, const table_def *def, const value *row, const int *columns,
                        int ncolumns, int64_t *rowid, bool *found, err *e) {
    const table_info *info;
    int status = table_resolve(t, def, &info, e);
    *found = false;
    if (!status)
        status = check_row(info, row, e);
    if (status)
        return status;
    int key_column = info->def->rowid_column;
    if (key_column >= 0 && row[key_column].type == TYPE_INTEGER &&
        (ncolumns == 0 || (ncolumns == 1 && columns[0] == key_column))) {
        MDB_val data;
        *rowid = row[key_column].i;
        status = fetch(t, info, *rowid, &data, found, e);
    }
    for (int i = 0; i < info->def->nindexes && !status && !*found; i++)
        if (index_is_unique_on(&info->def->indexes[i], columns, ncolumns))
            status = index_find_equal(t, info, i, row, false, 0, rowid, found, e);
    return status;
}

int table_restore(txn *t, const table_info *info, int64_t rowid, const uint8_t *bytes,
                  size_t nbytes, err *e) {
    MDB_val data;
    value *cells;
    bool found = false;
    scratch_reset(t);
    int status = fetch(t, info, rowid, &data, &found, e);
    if (!status && found) {
        status = fetch_old(t, info, rowid, &data, &cells, e);
        if (!status)
            status = remove_from_indexes(t, info, cells, rowid, e);
        if (!status && !bytes)
            status = delete_row(t, info, rowid, e);
    }
    if (status || !bytes)
        return status;
    MDB_val old = {nbytes, (void *)(uintptr_t)bytes};
    cells = ARENA_ARRAY(scratch(t), value, info->def->ncolumns);
    status = row_decode(&info->layout, old, rowid, cells, e);
    if (!status)
        status = add_to_indexes(t, info, cells, rowid, e);
    return status ? status : table_put_bytes(t, info, rowid, bytes, nbytes, e);
}
