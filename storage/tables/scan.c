/*
 * scan.c - scans of a table by rowid or by an index, a batch at a time.
 *
 * A batch first gathers pointers to the bytes of its rows, then decodes column by column.
 * Invariants: cells point into the map; after a write of its transaction a scan seeks to the entry
 * after the last one it read.
 *
 * Cut index keys with the same first KEY_CUT bytes form a *group*, whose order the keys do not
 * determine: its rows are fetched, compared with the bounds, sorted by their cells, and returned
 * from `pending`.
 */
#include <stdlib.h>
#include <string.h>

#include "tables_int.h"

enum { BATCH_GROWTH = 4 };

struct table_scan {
    txn *txn; /* NULL after the transaction's end */
    table_scan *next_open;
    const atomic_bool *cancel;
    const table_info *info;
    const index_def *index; /* in the transaction's catalog; NULL: the scan is by rowid */
    int index_at;           /* position of the index among the table's */
    int ncolumns;
    int *columns;      /* [ncolumns] as in scan_spec */
    value_type *types; /* [ncolumns] types of these columns */
    bool has_texts;    /* some of these are TEXT or BLOB */
    arena *mem;
    arena *bound_mem; /* values of the bounds; reset by scan_rebind */

    /* Bounds by rowid, inclusive. */
    int64_t low_rowid, high_rowid;
    bool empty; /* no rowid is within the bounds */
    /* Bounds by index: the cells as uncut key bytes, and as values to compare groups with. */
    buf low, high;
    bool low_inclusive, low_not_null, high_inclusive;
    value *low_values, *high_values;
    int nlow, nhigh;
    bool descending;
    int batch_rows; /* maximum rows of the next batch */
    bool at_low;    /* entries equal to an exclusive low bound may follow */

    tree_cursor rows;    /* in the tree of rows */
    tree_cursor entries; /* in the tree of the index */
    uint64_t epoch;      /* txn->epoch when the cursors were placed */
    bool started;        /* `last` is valid */
    bool done;           /* no entry follows */
    buf last;            /* the last key read */

    int64_t *pending; /* rowids of the current group, in order */
    size_t npending;
    size_t at_pending; /* position of the next rowid to return */
    size_t cap_pending;

    const int64_t *listed; /* rowids of scan_listed; NULL: scan by bounds */
    size_t nlisted;
    size_t at_listed; /* position of the next rowid to return */

    int64_t rowid[BATCH_ROWS]; /* rowids of the batch */
    MDB_val bytes[BATCH_ROWS]; /* rows of the batch, in the map */
};

table_scan *scan_next_open(const table_scan *s) {
    return s->next_open;
}

void scan_detach(table_scan *s) {
    tree_cursor_close(&s->rows);
    tree_cursor_close(&s->entries);
}

void scan_orphan(table_scan *s) {
    scan_detach(s);
    for (table_scan **at = &s->txn->scans; *at; at = &(*at)->next_open)
        if (*at == s) {
            *at = s->next_open;
            break;
        }
    s->txn = NULL;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void bound_by_rowid(table_scan *s, const scan_bound *low, const scan_bound *high) {
    s->low_rowid = INT64_MIN;
    s->high_rowid = INT64_MAX;
    s->empty = false;
    if (low->n) {
        value v = low->values[0];
        s->low_rowid = v.i;
        if (v.type == TYPE_NULL || (!low->inclusive && v.i == INT64_MAX))
            s->empty = true;
        else if (!low->inclusive)
            s->low_rowid++;
    }
    if (high->n) {
        value v = high->values[0];
        s->high_rowid = v.i;
        if (v.type == TYPE_NULL || (!high->inclusive && v.i == INT64_MIN))
            s->empty = true;
        else if (!high->inclusive)
            s->high_rowid--;
    }
    s->empty = s->empty || s->low_rowid > s->high_rowid;
}

static value *bound_values(table_scan *s, const scan_bound *bound, buf *cells) {
    value *values = ARENA_ARRAY(s->bound_mem, value, BASE_MAX(bound->n, 1));
    buf_clear(cells);
    for (int i = 0; i < bound->n; i++) {
        values[i] = value_copy(s->bound_mem, bound->values[i]);
        key_append_cell(cells, s->info->def->columns[s->index->columns[i]].type, values[i]);
    }
    if (bound->not_null)
        buf_append_char(cells, KEY_NOT_NULL);
    return values;
}

static int check_bound(const table_def *def, const index_def *index, const scan_bound *b, err *e) {
    if (b->n + b->not_null > (index ? index->ncolumns : 1))
        return err_set(e, ERR_INTERNAL, "a scan is bound on %d columns", b->n);
    for (int i = 0; i < b->n; i++) {
        value_type want = index ? def->columns[index->columns[i]].type : TYPE_INTEGER;
        if (b->values[i].type != want && b->values[i].type != TYPE_NULL)
            return err_set(e, ERR_INTERNAL, "a scan of %s is bound by %s", type_name(want),
                           type_name(b->values[i].type));
    }
    return 0;
}

static int set_bounds(table_scan *s, const scan_bound *low, const scan_bound *high, err *e) {
    int status = check_bound(s->info->def, s->index, low, e);
    if (status || (status = check_bound(s->info->def, s->index, high, e)) != 0)
        return status;
    s->nlow = low->n;
    s->nhigh = high->n;
    s->low_inclusive = low->inclusive || low->not_null;
    s->low_not_null = low->not_null;
    s->high_inclusive = high->inclusive;
    s->at_low = s->nlow && !s->low_inclusive;
    arena_reset(s->bound_mem);
    if (s->index) {
        s->low_values = bound_values(s, low, &s->low);
        s->high_values = bound_values(s, high, &s->high);
    } else {
        bound_by_rowid(s, low, high);
    }
    return 0;
}

/* Whether a row's index cells are within the bounds. */
static bool cells_in_bounds(const table_scan *s, const value *row) {
    int c = 0;
    for (int i = 0; i < s->nlow && c == 0; i++)
        c = value_compare(row[s->index->columns[i]], s->low_values[i]);
    if (s->nlow && (c < 0 || (c == 0 && !s->low_inclusive)))
        return false;
    if (s->low_not_null && c == 0 && row[s->index->columns[s->nlow]].type == TYPE_NULL)
        return false;
    c = 0;
    for (int i = 0; i < s->nhigh && c == 0; i++)
        c = value_compare(row[s->index->columns[i]], s->high_values[i]);
    return !(s->nhigh && (c > 0 || (c == 0 && !s->high_inclusive)));
}

/* Compares an entry with a bound by the cells that both have. */
static int compare_to_bound(MDB_val key, const buf *bound) {
    size_t cells = key_is_cut(key) ? KEY_CUT : key.mv_size - KEY_ROWID;
    size_t n = BASE_MIN(cells, bound->n);
    return n ? memcmp(key.mv_data, bound->p, n) : 0;
}

/* ---- placing the cursors --------------------------------------------------------------------- */

static int cursors_open(table_scan *s, err *e) {
    txn *t = s->txn;
    txn_tree *rows;
    tree_cursor *entries;
    int status = 0;
    if (!s->rows.mdb && (status = txn_rows(t, s->info, &rows, e)) == 0)
        status = tree_cursor_copy(&rows->cursor, &s->rows, e);
    if (!status && s->index && !s->entries.mdb &&
        (status = txn_index(t, s->info, s->index_at, &entries, e)) == 0)
        status = tree_cursor_copy(entries, &s->entries, e);
    return status;
}

/* Seeks to the last entry below `key`. */
static int seek_below(tree_cursor *c, MDB_val *key, MDB_val *data) {
    int rc = tree_get(c, key, data, MDB_SET_RANGE);
    if (rc && rc != MDB_NOTFOUND)
        return rc;
    return tree_get(c, key, data, rc ? MDB_LAST : MDB_PREV);
}

/* Seeks to the next entry of a descending scan: the one before the last entry read, or at first the
 * last one that is not above the high bound. */
static int seek_back(table_scan *s, tree_cursor *c, MDB_val *key, MDB_val *data) {
    uint8_t above[KEY_CUT_BYTES + 1];
    size_t n = BASE_MIN(s->high.n, (size_t)KEY_CUT);
    if (s->started) {
        *key = (MDB_val){s->last.n, s->last.p};
        return seek_below(c, key, data);
    }
    if (!s->index) {
        rowid_put(above, s->high_rowid);
        above[KEY_ROWID] = 0;
        *key = (MDB_val){KEY_ROWID + 1, above};
        return seek_below(c, key, data);
    }
    if (n == 0)
        return tree_get(c, key, data, MDB_LAST);
    memcpy(above, s->high.p, n);
    memset(above + n, 0xff, sizeof above - n);
    *key = (MDB_val){sizeof above, above};
    return seek_below(c, key, data);
}

/* Seeks to the next entry of an ascending scan: the one after the last entry read. If none was read
 * yet: the first entry not below the low bound, of which at most KEY_CUT bytes are compared. */
static int seek(table_scan *s, tree_cursor *c, MDB_val *key, MDB_val *data) {
    uint8_t low[KEY_ROWID];
    if (s->started) {
        *key = (MDB_val){s->last.n, s->last.p};
        int rc = tree_get(c, key, data, MDB_SET_RANGE);
        if (rc == 0 && key->mv_size == s->last.n && memcmp(key->mv_data, s->last.p, s->last.n) == 0)
            rc = tree_get(c, key, data, MDB_NEXT);
        return rc;
    }
    if (!s->index) {
        rowid_put(low, s->low_rowid);
        *key = (MDB_val){sizeof low, low};
        return tree_get(c, key, data, MDB_SET_RANGE);
    }
    if (s->low.n == 0)
        return tree_get(c, key, data, MDB_FIRST);
    *key = (MDB_val){BASE_MIN(s->low.n, (size_t)KEY_CUT), s->low.p};
    return tree_get(c, key, data, MDB_SET_RANGE);
}

/* Moves to the next entry. *placed: the cursor is on the last entry read. */
static int step(table_scan *s, tree_cursor *c, bool *placed, MDB_val *key, MDB_val *data) {
    bool go_on = *placed;
    *placed = true;
    if (go_on)
        return tree_step_quickly(c, key, data, s->descending);
    return s->descending ? seek_back(s, c, key, data) : seek(s, c, key, data);
}

static void remember(table_scan *s, const void *key, size_t n) {
    buf_clear(&s->last);
    buf_append(&s->last, key, n);
    s->started = true;
}

/* ---- gathering rows -------------------------------------------------------------------------- */

/* Whether a rowid is beyond the last one that the scan returns. */
static bool is_beyond(const table_scan *s, int64_t rowid) {
    return s->descending ? rowid < s->low_rowid : rowid > s->high_rowid;
}

static int gather_by_rowid(table_scan *s, bool placed, int *count, err *e) {
    MDB_val key;
    int n = 0, rc = 0;
    while (n < s->batch_rows && (rc = step(s, &s->rows, &placed, &key, &s->bytes[n])) == 0) {
        int more = 0, first = n;
        s->rowid[n++] = rowid_get(key.mv_data);
        if (!s->descending)
            rc = tree_rest_of_leaf(&s->rows, key, s->batch_rows - n, s->rowid + n, s->bytes + n,
                                   &more);
        n += more;
        for (int i = first; i < n; i++) {
            if (is_beyond(s, s->rowid[i])) {
                rc = MDB_NOTFOUND;
                n = i;
            } else if (!row_check(&s->info->layout, s->bytes[i])) {
                return row_corrupt(&s->info->layout, s->rowid[i], e);
            }
        }
        if (rc)
            break;
    }
    if (rc && rc != MDB_NOTFOUND)
        return tree_error(s->txn, rc, "cannot read a table", e);
    s->done = rc == MDB_NOTFOUND;
    if (n) {
        uint8_t last[KEY_ROWID];
        rowid_put(last, s->rowid[n - 1]);
        remember(s, last, sizeof last);
    }
    *count = n;
    return 0;
}

static int no_such_row(const table_scan *s, int64_t rowid, err *e) {
    err_set(e, ERR_CORRUPT,
            "index \"%.*s\" of table \"%s\" is damaged: it refers to row %lld, which is missing",
            (int)s->index->name.n, s->index->name.p, s->info->def->name.p, (long long)rowid);
    err_hint(e, "drop and create the index; " DAMAGE_HINT);
    return ERR_CORRUPT;
}

/* Reads a row's bytes. A missing row is an error if `found` is NULL; otherwise it sets *found =
 * false. */
static int fetch_row(table_scan *s, int64_t rowid, MDB_val *data, bool *found, err *e) {
    uint8_t bytes[KEY_ROWID];
    rowid_put(bytes, rowid);
    MDB_val key = {sizeof bytes, bytes};
    int rc = tree_get(&s->rows, &key, data, MDB_SET_KEY);
    if (found)
        *found = rc == 0;
    if (found && rc == MDB_NOTFOUND)
        return 0;
    if (rc == MDB_NOTFOUND)
        return no_such_row(s, rowid, e);
    if (rc)
        return tree_error(s->txn, rc, "cannot read a row", e);
    return row_check(&s->info->layout, *data) ? 0 : row_corrupt(&s->info->layout, rowid, e);
}

/* Verifies the rest of a row, of which fetching has verified only the head if it lies in overflow
 * pages. */
static int verify_texts(table_scan *s, int64_t rowid, MDB_val row, err *e) {
    uint8_t bytes[KEY_ROWID];
    rowid_put(bytes, rowid);
    int rc = tree_whole_value(&s->rows, (MDB_val){sizeof bytes, bytes}, row);
    return rc ? tree_error(s->txn, rc, "cannot read a row", e) : 0;
}

typedef struct group_row {
    int64_t rowid;
    const value *cells;
    const index_def *index;
    bool descending;
} group_row;

static int compare_group_rows(const void *pa, const void *pb) {
    const group_row *a = pa, *b = pb;
    int c = 0;
    for (int i = 0; i < a->index->ncolumns && c == 0; i++)
        c = value_compare(a->cells[a->index->columns[i]], b->cells[a->index->columns[i]]);
    if (c)
        return a->descending ? -c : c;
    return (a->rowid > b->rowid) - (a->rowid < b->rowid);
}

/* Sorts the pending rowids by the cells of their rows. Drops rows outside the bounds. */
static int sort_group(table_scan *s, err *e) {
    arena *mem = arena_new();
    group_row *group = ARENA_ARRAY(mem, group_row, BASE_MAX(s->npending, (size_t)1));
    size_t kept = 0;
    int status = 0;
    for (size_t i = 0; i < s->npending && !status; i++) {
        MDB_val data;
        value *cells = ARENA_ARRAY(mem, value, s->info->def->ncolumns);
        status = check_cancel(s->cancel, e);
        if (!status)
            status = fetch_row(s, s->pending[i], &data, NULL, e);
        if (!status)
            status = verify_texts(s, s->pending[i], data, e);
        if (!status)
            status = row_decode(&s->info->layout, data, s->pending[i], cells, e);
        if (!status && cells_in_bounds(s, cells))
            group[kept++] = (group_row){s->pending[i], cells, s->index, s->descending};
    }
    if (!status)
        status = sort_array(group, kept, sizeof *group, compare_group_rows, s->cancel, e);
    for (size_t i = 0; i < kept; i++)
        s->pending[i] = group[i].rowid;
    s->npending = kept;
    arena_free(mem);
    return status;
}

static void pending_add(table_scan *s, int64_t rowid) {
    ARRAY_PUSH(s->pending, s->npending, s->cap_pending, rowid);
}

/* Reads the whole group of cut keys that begins at `key`; in a descending scan, also a group of
 * uncut keys that differ only in the rowid, so that its rows are returned by ascending rowid. */
static int gather_group(table_scan *s, MDB_val key, err *e) {
    char cells[KEY_CUT];
    MDB_val data;
    bool cut = key_is_cut(key);
    size_t size = key.mv_size, n = cut ? (size_t)KEY_CUT : size - KEY_ROWID;
    memcpy(cells, key.mv_data, n);
    s->npending = s->at_pending = 0;
    int rc = 0;
    while (rc == 0 && key.mv_size == size && memcmp(key.mv_data, cells, n) == 0) {
        int status = check_cancel(s->cancel, e);
        if (status)
            return status;
        pending_add(s, key_rowid(key));
        remember(s, key.mv_data, key.mv_size);
        rc = tree_step(&s->entries, &key, &data, s->descending);
    }
    if (rc && rc != MDB_NOTFOUND)
        return tree_error(s->txn, rc, "cannot read an index", e);
    if (cut)
        return sort_group(s, e);
    for (size_t i = 0; i < s->npending / 2; i++) {
        int64_t other = s->pending[i];
        s->pending[i] = s->pending[s->npending - 1 - i];
        s->pending[s->npending - 1 - i] = other;
    }
    return 0;
}

/* Makes a step of a descending scan: skips an entry equal to an exclusive high bound; any other
 * entry begins a group, which it reads. */
static int descend(table_scan *s, MDB_val key, bool *placed, err *e) {
    bool cut = key_is_cut(key);
    int c = s->low.n ? compare_to_bound(key, &s->low) : 1;
    s->done = c < 0 || (c == 0 && !s->low_inclusive && !cut);
    if (s->done)
        return 0;
    if (s->nhigh && !s->high_inclusive && !cut && compare_to_bound(key, &s->high) == 0) {
        remember(s, key.mv_data, key.mv_size);
        return 0;
    }
    *placed = false; /* the cursor will be before the group */
    return gather_group(s, key, e);
}

/* Finds the rowid of the next entry within the bounds; at the end, sets s->done. *fresh = true: the
 * entry was just read, so its row must exist; false: it is from a group read earlier, and its row
 * may have been deleted since. */
static int next_entry(table_scan *s, bool *placed, int64_t *rowid, bool *fresh, err *e) {
    MDB_val key, data;
    int rc;
    while (s->at_pending == s->npending) {
        if ((rc = step(s, &s->entries, placed, &key, &data)) != 0) {
            s->done = rc == MDB_NOTFOUND;
            return s->done ? 0 : tree_error(s->txn, rc, "cannot read an index", e);
        }
        int status = check_cancel(s->cancel, e);
        if (status)
            return status;
        if (s->descending) {
            status = descend(s, key, placed, e);
            if (status || s->done)
                return status;
            continue;
        }
        int c = s->nhigh ? compare_to_bound(key, &s->high) : -1;
        if (c > 0 || (c == 0 && !s->high_inclusive && !key_is_cut(key))) {
            s->done = true;
            return 0;
        }
        if (s->at_low && (c = compare_to_bound(key, &s->low)) == 0 && !key_is_cut(key)) {
            remember(s, key.mv_data, key.mv_size);
            continue;
        }
        s->at_low = s->at_low && c <= 0;
        if (!key_is_cut(key)) {
            remember(s, key.mv_data, key.mv_size);
            *rowid = key_rowid(key);
            *fresh = true;
            return 0;
        }
        if ((status = gather_group(s, key, e)) != 0)
            return status;
        *placed = false; /* the cursor may be after the group */
    }
    *rowid = s->pending[s->at_pending++];
    *fresh = false;
    return 0;
}

/* Called if a row of the current group is missing: this is an error, unless the row's entry was
 * deleted as well. */
static int absent_row(table_scan *s, int64_t rowid, err *e) {
    MDB_val key = {s->last.n, s->last.p}, data;
    uint8_t bytes[KEY_CUT + KEY_ROWID];
    /* The row of a cut key was read when its group was sorted, so it has been deleted since. */
    if (key_is_cut(key))
        return 0;
    memcpy(bytes, s->last.p, s->last.n);
    rowid_put(bytes + s->last.n - KEY_ROWID, rowid);
    key.mv_data = bytes;
    int rc = tree_get(&s->entries, &key, &data, MDB_SET_KEY);
    if (rc == 0)
        return no_such_row(s, rowid, e);
    return rc == MDB_NOTFOUND ? 0 : tree_error(s->txn, rc, "cannot read an index", e);
}

static int gather_by_index(table_scan *s, bool placed, int *count, err *e) {
    int n = 0, status;
    while (n < s->batch_rows) {
        int64_t rowid;
        bool fresh, found = true;
        if ((status = next_entry(s, &placed, &rowid, &fresh, e)) != 0)
            return status;
        if (s->done)
            break;
        status = fetch_row(s, rowid, &s->bytes[n], fresh ? NULL : &found, e);
        if (!status && !found)
            status = absent_row(s, rowid, e);
        if (status)
            return status;
        s->rowid[n] = rowid;
        n += found;
    }
    *count = n;
    return 0;
}

static int gather_listed(table_scan *s, int *count, err *e) {
    int n = 0;
    while (n < BATCH_ROWS && s->at_listed < s->nlisted) {
        bool found;
        int64_t rowid = s->listed[s->at_listed++];
        int status = fetch_row(s, rowid, &s->bytes[n], &found, e);
        if (status)
            return status;
        s->rowid[n] = rowid;
        n += found;
    }
    s->done = s->at_listed == s->nlisted;
    *count = n;
    return 0;
}

/* ---- decoding columns ------------------------------------------------------------------------ */

static void fill_nulls(const table_scan *s, column *out, arena *mem, int at, int n) {
    size_t byte = 2 + (size_t)at / 8;
    unsigned bit = 1u << (at % 8), any = 0;
    for (int i = 0; i < n; i++)
        any |= ((const uint8_t *)s->bytes[i].mv_data)[byte] & bit;
    if (!any)
        return;
    out->null = arena_alloc(mem, (size_t)n);
    for (int i = 0; i < n; i++)
        out->null[i] = (((const uint8_t *)s->bytes[i].mv_data)[byte] & bit) != 0;
}

static int verify_long_rows(table_scan *s, int n, err *e) {
    int status = 0;
    for (int i = 0; i < n && !status; i++)
        if (s->bytes[i].mv_size > SUM_WHOLE)
            status = verify_texts(s, s->rowid[i], s->bytes[i], e);
    return status;
}

static int fill_texts(const table_scan *s, column *out, int at, int n, err *e) {
    const row_layout *l = &s->info->layout;
    uint32_t end_at = l->slot[at], start_at = l->text_start[at], base = l->slots_end;
    for (int i = 0; i < n; i++) {
        const uint8_t *p = s->bytes[i].mv_data;
        uint32_t start = 0, end;
        memcpy(&end, p + end_at, 4);
        if (start_at)
            memcpy(&start, p + start_at, 4);
        if (start > end || end > s->bytes[i].mv_size - base)
            return row_corrupt(l, s->rowid[i], e);
        out->s[i] = (str){(const char *)p + base + start, end - start};
    }
    return 0;
}

static int fill_column(const table_scan *s, column *out, arena *mem, int at, int n, err *e) {
    const row_layout *l = &s->info->layout;
    if (at < 0 || at == l->rowid_column) {
        memcpy(out->i, s->rowid, sizeof(int64_t) * (size_t)n);
        return 0;
    }
    fill_nulls(s, out, mem, at, n);
    uint32_t slot = l->slot[at];
    switch (out->type) {
    case TYPE_TEXT:
    case TYPE_BLOB:
    case TYPE_VECTOR:
        return fill_texts(s, out, at, n, e);
    case TYPE_BOOLEAN:
        for (int i = 0; i < n; i++)
            out->i[i] = ((const uint8_t *)s->bytes[i].mv_data)[slot] & 1;
        return 0;
    case TYPE_NULL:
    case TYPE_INTEGER:
    case TYPE_REAL:
        break;
    }
    for (int i = 0; i < n; i++)
        memcpy(&out->i[i], (const uint8_t *)s->bytes[i].mv_data + slot, 8);
    return 0;
}

/* ---- the interface --------------------------------------------------------------------------- */

static int scan_setup(table_scan *s, const scan_spec *spec, err *e) {
    const table_def *def = s->info->def;
    int status = 0;
    if (spec->index) {
        ptrdiff_t at = spec->index - spec->table->indexes;
        if (at < 0 || at >= def->nindexes)
            return err_set(e, ERR_INTERNAL, "the index belongs to another table");
        s->index = &def->indexes[at];
        s->index_at = (int)at;
    }
    if ((status = set_bounds(s, &spec->low, &spec->high, e)) != 0)
        return status;
    s->descending = spec->descending;
    s->batch_rows = spec->first_rows > 0 ? BASE_MIN(spec->first_rows, BATCH_ROWS) : BATCH_ROWS;
    s->ncolumns = spec->ncolumns;
    s->columns = ARENA_ARRAY(s->mem, int, BASE_MAX(spec->ncolumns, 1));
    s->types = ARENA_ARRAY(s->mem, value_type, BASE_MAX(spec->ncolumns, 1));
    for (int i = 0; i < spec->ncolumns; i++) {
        s->columns[i] = spec->columns[i];
        if (spec->columns[i] >= def->ncolumns)
            return err_set(e, ERR_INTERNAL, "column %d of %d", spec->columns[i], def->ncolumns);
        s->types[i] = spec->columns[i] < 0 ? TYPE_INTEGER : def->columns[spec->columns[i]].type;
        s->has_texts = s->has_texts || s->types[i] == TYPE_TEXT || s->types[i] == TYPE_BLOB;
    }
    return 0;
}

int scan_open(txn *t, const scan_spec *spec, table_scan **out, err *e) {
    const table_info *info;
    int status = table_resolve(t, spec->table, &info, e);
    if (status)
        return status;
    table_scan *s = mem_alloc(sizeof *s);
    memset(s, 0, offsetof(table_scan, rowid));
    s->txn = t;
    s->info = info;
    s->cancel = spec->cancel;
    s->mem = arena_new();
    s->bound_mem = arena_new();
    s->next_open = t->scans;
    t->scans = s;
    if ((status = scan_setup(s, spec, e)) != 0) {
        scan_close(s);
        return status;
    }
    *out = s;
    return 0;
}

int scan_rebind(table_scan *s, const scan_bound *low, const scan_bound *high, err *e) {
    s->started = s->done = s->empty = false;
    s->npending = s->at_pending = 0;
    s->listed = NULL;
    return set_bounds(s, low, high, e);
}

int scan_rowids(table_scan *s, rowid_list *out, err *e) {
    int64_t rowid = 0;
    bool placed = false, fresh;
    if (!s->txn || !s->index)
        return err_set(e, ERR_INTERNAL, "scan_rowids needs an open index scan");
    int status = cursors_open(s, e);
    s->epoch = s->txn->epoch;
    while (status == 0 && (status = next_entry(s, &placed, &rowid, &fresh, e)) == 0 && !s->done)
        status = rowid_list_add(out, rowid, e);
    return status;
}

void scan_listed(table_scan *s, const rowid_list *rows) {
    static const int64_t none;
    s->started = s->done = s->empty = false;
    s->listed = rows->n ? rows->ids : &none;
    s->nlisted = rows->n;
    s->at_listed = 0;
}

int scan_next(table_scan *s, batch *out, err *e) {
    int n = 0, status;
    if (!s->txn)
        return err_set(e, ERR_INTERNAL, "a scan was used after its transaction");
    if (!s->done && !s->empty) {
        bool placed =
            s->started && s->epoch == s->txn->epoch && s->rows.mdb && (!s->index || s->entries.mdb);
        if ((status = cursors_open(s, e)) != 0)
            return status;
        if (s->listed)
            status = gather_listed(s, &n, e);
        else
            status = s->index ? gather_by_index(s, placed && s->npending == 0, &n, e)
                              : gather_by_rowid(s, placed, &n, e);
        s->epoch = s->txn->epoch;
        s->batch_rows = BASE_MIN(BATCH_ROWS, s->batch_rows * BATCH_GROWTH);
        if (!status && s->has_texts)
            status = verify_long_rows(s, n, e);
        if (status)
            return status;
    }
    batch_init(out, out->mem, s->types, s->ncolumns, n);
    out->rows = n;
    for (int i = 0; i < s->ncolumns && n; i++)
        if ((status = fill_column(s, &out->cols[i], out->mem, s->columns[i], n, e)) != 0)
            return status;
    return 0;
}

void scan_close(table_scan *s) {
    if (!s)
        return;
    if (s->txn)
        scan_orphan(s);
    arena_free(s->mem);
    arena_free(s->bound_mem);
    buf_free(&s->low);
    buf_free(&s->high);
    buf_free(&s->last);
    free(s->pending);
    free(s);
}
