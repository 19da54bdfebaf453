/*
 * catalog_change.c - CREATE, DROP, ALTER: changes of the catalog, and of the trees of tables and
 * indexes.
 *
 * Invariant: every change runs in a child transaction if a savepoint is open, increments the schema
 * cookie, and reloads t->snap; definitions in the old snapshot stay as they were.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables_int.h"

/* ---- records and names ----------------------------------------------------------------------- */

static int record_put(txn *t, char kind, uint32_t id, str bytes, err *e) {
    uint8_t name[5];
    catalog_copy_key copy;
    MDB_val key = catalog_key(name, kind, id);
    int status = catalog_put(t, (str){key.mv_data, key.mv_size}, bytes, e);
    return status ? status : meta_put(t, catalog_make_copy_key(&copy, kind, id), bytes, e);
}

static int record_delete(txn *t, char kind, uint32_t id, err *e) {
    uint8_t name[5];
    MDB_val data;
    tree_cursor *c;
    int status = txn_fixed(t, TREE_CATALOG, &c, e);
    if (status)
        return status;
    int rc = tree_look_up(c, catalog_key(name, kind, id), &data);
    if (!rc)
        rc = tree_delete(c);
    catalog_copy_key copy;
    return rc ? tree_error(t, rc, "cannot write the catalog", e)
              : meta_delete_prefix(t, catalog_make_copy_key(&copy, kind, id), e);
}

/* Does the last step of each change: raises the schema cookie and reloads the catalog. next_id: the
 * next free object id. */
static int change_done(txn *t, uint32_t next_id, err *e) {
    int status = catalog_raise_cookie(t, next_id, e);
    return status ? status : txn_load_catalog(t, e);
}

static int put_table(txn *t, const table_info *info, err *e) {
    buf b = {0};
    catalog_write_table(&b, info);
    int status = record_put(t, 'T', info->def->id, buf_str(&b), e);
    buf_free(&b);
    return status;
}

/* Replaces a table's definition; its rows stay as they are. */
static int replace_table(txn *t, const table_info *info, const table_def *def, err *e) {
    txn_mark_dirty(t, def->id);
    table_info changed = *info;
    changed.def = def;
    int status = put_table(t, &changed, e);
    return status ? status : change_done(t, t->snap->next_id, e);
}

static int check_name_free(const txn *t, str name, err *e) {
    const catalog *c = &t->snap->catalog;
    const char *what = catalog_table(c, name) ? "table" : catalog_view(c, name) ? "view" : NULL;
    if (!what)
        return 0;
    return err_set(e, ERR_BIND, "%s \"%.*s\" already exists", what, (int)name.n, name.p);
}

static int no_such(err *e, const char *what, str name) {
    return err_set(e, ERR_BIND, "no %s \"%.*s\"", what, (int)name.n, name.p);
}

/* Does the first step of a change of one table, and finds the table. */
static int change_table(txn *t, str name, const table_info **out, err *e) {
    int status = txn_before_change(t, e);
    const table_def *def = catalog_table(&t->snap->catalog, name);
    if (!status && !def)
        status = no_such(e, "table", name);
    if (!status)
        *out = &t->snap->infos[def - t->snap->tables];
    return status;
}

/* ---- trees ----------------------------------------------------------------------------------- */

/* Empties the tree of a dropped object. If it is damaged, its pages cannot be freed: its number is
 * noted and never used again, so that even a damaged index can be dropped and created. */
static int drop_tree(txn *t, const table_info *info, int index, err *e) {
    err why = {0};
    txn_close_cursors(t);
    int status = txn_empty_tree(t, info, index, &why);
    if (status == ERR_CORRUPT) {
        buf key = {0};
        buf_printf(&key, LOST_TREE "%u", index < 0 ? info->tree : info->index_trees[index]);
        status = meta_put(t, buf_str(&key), (str){"", 0}, e);
        buf_free(&key);
    } else if (status && e) {
        *e = why;
    }
    return status;
}

/* Marks the trees of objects and those that drop_tree noted. */
static int mark_used_trees(txn *t, bool *used, err *e) {
    const snapshot *s = t->snap;
    memset(used, 0, TREES_MAX);
    tree_cursor *c;
    int status = txn_fixed(t, TREE_META, &c, e);
    if (status)
        return status;
    const size_t n = sizeof LOST_TREE - 1;
    MDB_val key = {n, LOST_TREE}, data;
    int rc = tree_get(c, &key, &data, MDB_SET_RANGE);
    for (; rc == 0 && key.mv_size > n && memcmp(key.mv_data, LOST_TREE, n) == 0;
         rc = tree_get(c, &key, &data, MDB_NEXT)) {
        uint32_t tree = 0;
        for (size_t i = n; i < key.mv_size && tree < TREES_MAX; i++)
            tree = tree * 10 + (uint32_t)(((const char *)key.mv_data)[i] - '0');
        if (tree < TREES_MAX)
            used[tree] = true;
    }
    if (rc && rc != MDB_NOTFOUND)
        return tree_error(t, rc, "cannot read a setting of the database", e);
    for (int i = 0; i < s->catalog.ntables; i++) {
        if (s->infos[i].tree < TREES_MAX)
            used[s->infos[i].tree] = true;
        for (int k = 0; k < s->tables[i].nindexes; k++)
            if (s->infos[i].index_trees[k] < TREES_MAX)
                used[s->infos[i].index_trees[k]] = true;
    }
    return 0;
}

/* Allocates `count` unused, empty trees. */
static int take_trees(txn *t, uint32_t *out, int count, err *e) {
    bool used[TREES_MAX];
    int known = mark_used_trees(t, used, e);
    if (known)
        return known;
    uint32_t at = 0;
    for (int i = 0; i < count; i++) {
        while (at < TREES_MAX && used[at])
            at++;
        if (at == TREES_MAX)
            return err_set(e, ERR_LIMIT, "a database holds at most %d tables and indexes together",
                           TREES_MAX);
        out[i] = at++;
        MDB_dbi dbi;
        int status = txn_dbi(t, out[i], true, &dbi, e);
        if (status)
            return status;
    }
    return 0;
}

/* ---- tables ---------------------------------------------------------------------------------- */

static int check_columns(const table_def *def, err *e) {
    if (def->ncolumns < 1 || def->ncolumns > COLUMNS_MAX)
        return err_set(e, ERR_LIMIT, "a table has 1 to %d columns, not %d", COLUMNS_MAX,
                       def->ncolumns);
    for (int i = 0; i < def->ncolumns; i++) {
        const column_def *c = &def->columns[i];
        if (c->type < TYPE_BOOLEAN || c->type > TYPE_VECTOR)
            return err_set(e, ERR_TYPE, "column \"%.*s\" has no type", (int)c->name.n, c->name.p);
        for (int k = 0; k < i; k++)
            if (str_equal_nocase(c->name, def->columns[k].name))
                return err_set(e, ERR_BIND, "column \"%.*s\" is named twice", (int)c->name.n,
                               c->name.p);
    }
    return 0;
}

static bool index_name_taken(const catalog *c, const index_def *made, int nmade, str name) {
    for (int i = 0; i < nmade; i++)
        if (str_equal_nocase(made[i].name, name))
            return true;
    return catalog_index(c, name, NULL) != NULL;
}

/* Makes a name for an index without one: <table>_pkey, <table>_<columns>_key or
 * <table>_<columns>_idx. */
static str index_name(const catalog *c, arena *a, const table_def *def, const index_def *x,
                      const index_def *made, int nmade) {
    buf b = {0};
    buf_append_str(&b, def->name);
    if (x->primary) {
        buf_append_c(&b, "_pkey");
    } else {
        for (int i = 0; i < x->ncolumns; i++)
            buf_printf(&b, "_%.*s", (int)def->columns[x->columns[i]].name.n,
                       def->columns[x->columns[i]].name.p);
        buf_append_c(&b, x->unique ? "_key" : "_idx");
    }
    size_t stem = b.n;
    for (int k = 1; index_name_taken(c, made, nmade, buf_str(&b)); k++) {
        b.n = stem;
        buf_printf(&b, "%d", k);
    }
    str name = str_copy(a, buf_str(&b));
    buf_free(&b);
    return name;
}

static int check_index(const table_def *def, const index_def *x, err *e) {
    if (x->ncolumns < 1)
        return err_set(e, ERR_BIND, "an index needs a column");
    for (int i = 0; i < x->ncolumns; i++)
        if (x->columns[i] < 0 || x->columns[i] >= def->ncolumns)
            return err_set(e, ERR_INTERNAL, "an index names column %d of %d", x->columns[i],
                           def->ncolumns);
    return 0;
}

static int create_table(txn *t, const table_def *def, arena *a, err *e) {
    uint32_t next_id = t->snap->next_id;
    table_def made = *def;
    made.id = next_id++;
    made.indexes = ARENA_ARRAY(a, index_def, BASE_MAX(def->nindexes, 1));
    uint32_t *trees = ARENA_ARRAY(a, uint32_t, def->nindexes + 1);
    int status = take_trees(t, trees, def->nindexes + 1, e);
    for (int i = 0; i < def->nindexes && !status; i++) {
        index_def *x = &made.indexes[i];
        *x = def->indexes[i];
        status = check_index(def, x, e);
        if (status)
            break;
        x->id = next_id++;
        if (x->name.n && index_name_taken(&t->snap->catalog, made.indexes, i, x->name))
            status =
                err_set(e, ERR_BIND, "index \"%.*s\" already exists", (int)x->name.n, x->name.p);
        else if (!x->name.n)
            x->name = index_name(&t->snap->catalog, a, def, x, made.indexes, i);
    }
    if (!status)
        status = put_table(t, &(table_info){&made, trees[0], trees + 1, .has_sums = true}, e);
    if (!status)
        status = catalog_put_state(t, made.id, 1, 0, e);
    return status ? status : change_done(t, next_id, e);
}

int catalog_create_table(txn *t, const table_def *def, err *e) {
    int status = txn_before_change(t, e);
    if (!status)
        status = check_name_free(t, def->name, e);
    if (!status)
        status = check_columns(def, e);
    if (!status && def->rowid_column >= def->ncolumns)
        status = err_set(e, ERR_INTERNAL, "the rowid column is none of the table's");
    if (!status && def->rowid_column >= 0 && def->columns[def->rowid_column].type != TYPE_INTEGER)
        status = err_set(e, ERR_INTERNAL, "the rowid column is not an INTEGER");
    if (status)
        return status;
    arena *a = arena_new();
    status = create_table(t, def, a, e);
    arena_free(a);
    return status;
}

int catalog_drop_table(txn *t, str name, err *e) {
    const table_info *info = NULL;
    int status = change_table(t, name, &info, e);
    if (status)
        return status;
    uint32_t id = info->def->id;
    for (int i = -1; i < info->def->nindexes && !status; i++)
        status = drop_tree(t, info, i, e);
    if (!status)
        status = record_delete(t, 'T', id, e);
    if (!status)
        status = record_delete(t, 'S', id, e);
    if (!status)
        status = stats_forget(t, id, e);
    return status ? status : change_done(t, t->snap->next_id, e);
}

/* Copies all rows of `from` into the tree of `to`. Column i of a new row is column source[i] of the
 * old row, or `fill` if source[i] is -1. */
static int rewrite_rows(txn *t, const table_info *from, const table_info *to, const int *source,
                        value fill, const atomic_bool *cancel, err *e) {
    txn_tree *in = NULL, *out = NULL;
    MDB_val key, data;
    arena *mem = arena_new();
    const row_layout *after = &to->layout;
    int n = after->ncolumns;
    value *old = mem_alloc(sizeof *old * (size_t)BASE_MAX(from->def->ncolumns, 1));
    value *row = mem_alloc(sizeof *row * (size_t)n);
    int status = txn_rows(t, from, &in, e);
    if (!status)
        status = txn_rows(t, to, &out, e);
    int rc = status ? MDB_NOTFOUND : tree_get(&in->cursor, &key, &data, MDB_FIRST);
    for (; rc == 0; rc = tree_get(&in->cursor, &key, &data, MDB_NEXT)) {
        int64_t rowid = rowid_get(key.mv_data);
        if ((rc = tree_whole_value(&in->cursor, key, data)) != 0)
            break;
        if ((status = check_cancel(cancel, e)) != 0 ||
            (status = row_decode(&from->layout, data, rowid, old, e)) != 0)
            break;
        for (int i = 0; i < n; i++)
            row[i] = source[i] < 0 ? fill : old[source[i]];
        uint8_t key_bytes[KEY_ROWID];
        rowid_put(key_bytes, rowid);
        arena_reset(mem);
        MDB_val bytes = {row_size(after, row), NULL};
        bytes.mv_data = arena_alloc(mem, bytes.mv_size);
        row_encode(after, row, bytes.mv_data);
        rc = tree_put(&out->cursor, (MDB_val){sizeof key_bytes, key_bytes}, bytes, MDB_APPEND);
        if (rc)
            break;
    }
    free(old);
    free(row);
    arena_free(mem);
    if (!status && rc != MDB_NOTFOUND)
        status = tree_error(t, rc, "cannot rewrite the table", e);
    return status;
}

/* Changes a table's definition to `made`, with other columns, and copies its rows to a new tree. */
static int reshape(txn *t, const table_info *info, table_def *made, const int *source, value fill,
                   arena *a, const atomic_bool *cancel, err *e) {
    table_info old = *info, changed = *info;
    changed.def = made;
    row_layout_init(&changed.layout, a, made);
    txn_mark_dirty(t, made->id);
    int status = stats_forget(t, made->id, e); /* statistics are stored by column position */
    if (!status)
        status = take_trees(t, &changed.tree, 1, e);
    if (!status)
        status = rewrite_rows(t, &old, &changed, source, fill, cancel, e);
    txn_close_cursors(t);
    if (!status)
        status = txn_empty_tree(t, &old, -1, e);
    if (!status)
        status = put_table(t, &changed, e);
    return status ? status : change_done(t, t->snap->next_id, e);
}

static int check_column_free(const table_def *def, str name, err *e) {
    for (int i = 0; i < def->ncolumns; i++)
        if (str_equal_nocase(def->columns[i].name, name))
            return err_set(e, ERR_BIND, "table \"%.*s\" already has a column \"%.*s\"",
                           (int)def->name.n, def->name.p, (int)name.n, name.p);
    return 0;
}

int catalog_add_column(txn *t, str table, const column_def *added, value fill,
                       const atomic_bool *cancel, err *e) {
    const table_info *info = NULL;
    uint64_t rows = 0;
    int status = change_table(t, table, &info, e);
    if (!status)
        status = check_column_free(info->def, added->name, e);
    if (!status && info->def->ncolumns == COLUMNS_MAX)
        status = err_set(e, ERR_LIMIT, "a table has at most %d columns", COLUMNS_MAX);
    if (!status)
        status = table_row_count(t, info->def, &rows, e);
    if (!status && added->not_null && fill.type == TYPE_NULL && rows > 0)
        status =
            err_set(e, ERR_CONSTRAINT,
                    "column \"%.*s\" is NOT NULL, but existing rows would have no value for it",
                    (int)added->name.n, added->name.p);
    if (!status && fill.type != TYPE_NULL && fill.type != added->type)
        status = err_set(e, ERR_INTERNAL, "the new column's value is of another type");
    if (status)
        return status;
    arena *a = arena_new();
    int n = info->def->ncolumns;
    table_def made = *info->def;
    made.ncolumns = n + 1;
    made.columns = ARENA_ARRAY(a, column_def, n + 1);
    int *source = ARENA_ARRAY(a, int, n + 1);
    for (int i = 0; i < n; i++) {
        made.columns[i] = info->def->columns[i];
        source[i] = i;
    }
    made.columns[n] = *added;
    source[n] = -1;
    status = reshape(t, info, &made, source, fill, a, cancel, e);
    arena_free(a);
    return status;
}

static int check_droppable(const table_def *def, int at, err *e) {
    if (at < 0 || at >= def->ncolumns)
        return err_set(e, ERR_INTERNAL, "column %d of %d", at, def->ncolumns);
    str name = def->columns[at].name;
    if (def->ncolumns == 1)
        return err_set(e, ERR_BIND,
                       "column \"%.*s\" cannot be dropped: it is the table's only column",
                       (int)name.n, name.p);
    if (at == def->rowid_column)
        return err_set(e, ERR_BIND, "column \"%.*s\" cannot be dropped: it is the primary key",
                       (int)name.n, name.p);
    for (int i = 0; i < def->nindexes; i++)
        for (int k = 0; k < def->indexes[i].ncolumns; k++)
            if (def->indexes[i].columns[k] == at)
                return err_set(
                    e, ERR_BIND, "column \"%.*s\" cannot be dropped: it belongs to index \"%.*s\"",
                    (int)name.n, name.p, (int)def->indexes[i].name.n, def->indexes[i].name.p);
    return 0;
}

int catalog_drop_column(txn *t, str table, int at, const atomic_bool *cancel, err *e) {
    const table_info *info = NULL;
    int status = change_table(t, table, &info, e);
    if (!status)
        status = check_droppable(info->def, at, e);
    if (status)
        return status;
    arena *a = arena_new();
    int n = info->def->ncolumns - 1;
    table_def made = *info->def;
    made.ncolumns = n;
    made.columns = ARENA_ARRAY(a, column_def, n);
    int *source = ARENA_ARRAY(a, int, n);
    for (int i = 0; i < n; i++) {
        source[i] = i + (i >= at);
        made.columns[i] = info->def->columns[source[i]];
    }
    made.rowid_column -= made.rowid_column > at;
    made.indexes = ARENA_ARRAY(a, index_def, BASE_MAX(made.nindexes, 1));
    for (int i = 0; i < made.nindexes; i++) {
        index_def *x = &made.indexes[i];
        *x = info->def->indexes[i];
        x->columns = ARENA_ARRAY(a, int, x->ncolumns);
        for (int k = 0; k < x->ncolumns; k++)
            x->columns[k] =
                info->def->indexes[i].columns[k] - (info->def->indexes[i].columns[k] > at);
    }
    status = reshape(t, info, &made, source, value_null(), a, cancel, e);
    arena_free(a);
    return status;
}

int catalog_rename_table(txn *t, str from, str to, err *e) {
    const table_info *info = NULL;
    int status = change_table(t, from, &info, e);
    if (!status && !str_equal_nocase(from, to))
        status = check_name_free(t, to, e);
    if (status)
        return status;
    table_def made = *info->def;
    made.name = to;
    return replace_table(t, info, &made, e);
}

int catalog_rename_column(txn *t, str table, int at, const table_def *renamed, err *e) {
    const table_info *info = NULL;
    int status = change_table(t, table, &info, e);
    if (status)
        return status;
    if (at < 0 || at >= info->def->ncolumns || renamed->ncolumns != info->def->ncolumns)
        return err_set(e, ERR_INTERNAL, "column %d of %d", at, info->def->ncolumns);
    str to = renamed->columns[at].name;
    if (!str_equal_nocase(info->def->columns[at].name, to) &&
        (status = check_column_free(info->def, to, e)) != 0)
        return status;
    table_def made = *info->def;
    made.columns = renamed->columns;
    made.nchecks = renamed->nchecks;
    made.checks = renamed->checks;
    return replace_table(t, info, &made, e);
}

/* ---- indexes --------------------------------------------------------------------------------- */

int catalog_create_index(txn *t, str table, const index_def *def, mem_budget *memory,
                         const atomic_bool *cancel, err *e) {
    const table_info *info = NULL;
    int status = change_table(t, table, &info, e);
    if (!status)
        status = check_index(info->def, def, e);
    if (!status && def->name.n && catalog_index(&t->snap->catalog, def->name, NULL))
        status =
            err_set(e, ERR_BIND, "index \"%.*s\" already exists", (int)def->name.n, def->name.p);
    if (status)
        return status;
    arena *a = arena_new();
    int n = info->def->nindexes;
    uint32_t next_id = t->snap->next_id, id = info->def->id;
    table_def made = *info->def;
    uint32_t *trees = ARENA_ARRAY(a, uint32_t, n + 1);
    made.indexes = ARENA_ARRAY(a, index_def, n + 1);
    made.nindexes = n + 1;
    for (int i = 0; i < n; i++) {
        made.indexes[i] = info->def->indexes[i];
        trees[i] = info->index_trees[i];
    }
    made.indexes[n] = *def;
    made.indexes[n].id = next_id++;
    if (def->lists && !def->lists->centroids)
        status = lists_train(t, info, def, cancel, a, &made.indexes[n].lists, e);
    if (!def->name.n)
        made.indexes[n].name = index_name(&t->snap->catalog, a, info->def, def, NULL, 0);
    if (!status)
        status = take_trees(t, &trees[n], 1, e);
    table_info changed = *info;
    changed.def = &made;
    changed.index_trees = trees;
    if (!status)
        status = put_table(t, &changed, e);
    if (!status)
        status = change_done(t, next_id, e);
    arena_free(a);
    for (int i = 0; i < t->snap->catalog.ntables && !status; i++)
        if (t->snap->tables[i].id == id)
            status = index_build(t, &t->snap->infos[i], n, memory, cancel, e);
    return status;
}

int catalog_drop_index(txn *t, str name, err *e) {
    const table_def *table = NULL;
    int status = txn_before_change(t, e);
    if (status)
        return status;
    const index_def *x = catalog_index(&t->snap->catalog, name, &table);
    if (!x)
        return no_such(e, "index", name);
    if (x->primary)
        return err_set(e, ERR_BIND,
                       "index \"%.*s\" cannot be dropped: it is the primary key of table \"%.*s\"",
                       (int)name.n, name.p, (int)table->name.n, table->name.p);
    const table_info *info = &t->snap->infos[table - t->snap->tables];
    int at = (int)(x - table->indexes), n = table->nindexes - 1;
    if ((status = drop_tree(t, info, at, e)) != 0)
        return status;
    arena *a = arena_new();
    table_def made = *table;
    uint32_t *trees = ARENA_ARRAY(a, uint32_t, n + 1);
    made.indexes = ARENA_ARRAY(a, index_def, n + 1);
    made.nindexes = n;
    for (int i = 0; i < n; i++) {
        made.indexes[i] = table->indexes[i + (i >= at)];
        trees[i] = info->index_trees[i + (i >= at)];
    }
    table_info changed = *info;
    changed.def = &made;
    changed.index_trees = trees;
    status = put_table(t, &changed, e);
    arena_free(a);
    return status ? status : change_done(t, t->snap->next_id, e);
}

/* ---- views and models ------------------------------------------------------------------------ */

int catalog_create_view(txn *t, const view_def *def, bool or_replace, err *e) {
    int status = txn_before_change(t, e);
    const view_def *old = catalog_view(&t->snap->catalog, def->name);
    if (!status && !(old && or_replace))
        status = check_name_free(t, def->name, e);
    if (status)
        return status;
    uint32_t next_id = t->snap->next_id;
    uint32_t id = old ? t->snap->view_ids[old - t->snap->catalog.views] : next_id++;
    buf b = {0};
    catalog_write_view(&b, def);
    status = record_put(t, 'V', id, buf_str(&b), e);
    buf_free(&b);
    return status ? status : change_done(t, next_id, e);
}

int catalog_drop_view(txn *t, str name, err *e) {
    int status = txn_before_change(t, e);
    const view_def *old = catalog_view(&t->snap->catalog, name);
    if (!status && !old)
        status = no_such(e, "view", name);
    if (!status)
        status = record_delete(t, 'V', t->snap->view_ids[old - t->snap->catalog.views], e);
    return status ? status : change_done(t, t->snap->next_id, e);
}

int catalog_create_model(txn *t, const model_def *def, bool or_replace, err *e) {
    int status = txn_before_change(t, e);
    const model_def *old = catalog_model(&t->snap->catalog, def->name);
    if (!status && old && !or_replace)
        status =
            err_set(e, ERR_BIND, "model \"%.*s\" already exists", (int)def->name.n, def->name.p);
    if (status)
        return status;
    uint32_t next_id = t->snap->next_id;
    uint32_t id = old ? t->snap->model_ids[old - t->snap->catalog.models] : next_id++;
    buf b = {0};
    catalog_write_model(&b, def);
    status = record_put(t, 'M', id, buf_str(&b), e);
    buf_free(&b);
    return status ? status : change_done(t, next_id, e);
}

int catalog_drop_model(txn *t, str name, err *e) {
    int status = txn_before_change(t, e);
    const model_def *old = catalog_model(&t->snap->catalog, name);
    if (!status && !old)
        status = no_such(e, "model", name);
    if (!status)
        status = record_delete(t, 'M', t->snap->model_ids[old - t->snap->catalog.models], e);
    return status ? status : change_done(t, t->snap->next_id, e);
}
