/*
 * tree.c - reading and writing the trees of tables.mdb: LMDB behind the guard, values with their
 * checksums.
 *
 * Invariants: LMDB reads no committed page that the guard has not verified; every value written has
 * its checksums, if its tree has them. A cursor's position always lies in `safe`, the keys around
 * which LMDB may move to the next or previous entry.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tables_int.h"

/* ---- opening --------------------------------------------------------------------------------- */

int txn_dbi(txn *t, uint32_t tree, bool create, MDB_dbi *out, err *e) {
    if (tree == TREE_CATALOG || tree == TREE_META) {
        *out = tree == TREE_META ? t->store->meta_dbi : t->store->catalog_dbi;
        return 0;
    }
    if (tree >= TREES_MAX) {
        err_set(e, ERR_CORRUPT,
                "the catalog of '%s' is damaged: it refers to tree %u, which does not exist",
                t->store->path, tree);
        err_hint(e, DAMAGE_HINT);
        return ERR_CORRUPT;
    }
    MDB_dbi *known = &t->store->tree_dbi[tree];
    if (!*known) {
        char name[16];
        snprintf(name, sizeof name, "s%u", tree);
        MDB_dbi dbi;
        int rc = mdb_dbi_open(t->mdb, name, create ? MDB_CREATE : 0, &dbi);
        if (rc)
            return lmdb_error(e, rc, "cannot open a table's tree");
        *known = dbi;
        ARRAY_PUSH(t->opened, t->nopened, t->opened_cap,
                   ((opened_handle){tree, t->mdb != t->root}));
    }
    *out = *known;
    return 0;
}

static txn_tree *tree_slot(txn *t, uint32_t tree) {
    uint32_t slot = tree + TREES_FIXED;
    if (slot >= t->ntrees) {
        uint32_t n = BASE_MAX(slot + 1, t->ntrees * 2);
        t->trees = mem_realloc(t->trees, n * sizeof *t->trees);
        memset(t->trees + t->ntrees, 0, (n - t->ntrees) * sizeof *t->trees);
        t->ntrees = n;
    }
    if (!t->trees[slot])
        t->trees[slot] = mem_zalloc(sizeof *t->trees[slot]);
    return t->trees[slot];
}

static const char *tree_name(uint32_t tree, char out[16]) {
    if (tree == TREE_CATALOG)
        return "catalog";
    if (tree == TREE_META)
        return "meta";
    snprintf(out, 16, "s%u", tree);
    return out;
}

/* Reads the tree's record in the commit before this transaction. */
static int read_base(txn *t, uint32_t tree, txn_tree *at, err *e) {
    char name[16];
    bool found = false;
    if (!guard_named(&t->store->guard, &t->base, tree_name(tree, name), &at->base.record, &found))
        return tree_damaged(t->store, t->snap, TREE_MAIN, e);
    if (!found)
        at->base.record = (page_tree){.root = NO_PAGE}; /* this transaction made it */
    if (!guard_root(&t->store->guard, &t->base, &at->base.record))
        return tree_damaged(t->store, t->snap, tree, e);
    guard_use_tree(&t->store->guard, &at->base, &t->base, t->write);
    at->base_known = true;
    return 0;
}

/* Finds a tree and its rule of checksums. */
static int find_tree(txn *t, uint32_t tree, bool has_sums, size_t head_bytes, txn_tree **out,
                     MDB_dbi *dbi, err *e) {
    int status = txn_dbi(t, tree, false, dbi, e);
    if (status)
        return status;
    txn_tree *at = tree_slot(t, tree);
    *out = at;
    at->base.mark = (uint16_t)(tree + TREES_FIXED + 1);
    at->base.has_sums = has_sums;
    at->base.sums = (sum_rule){.seed = tree, .head_bytes = head_bytes};
    return at->base_known ? 0 : read_base(t, tree, at, e);
}

static int open_tree(txn *t, uint32_t tree, bool has_sums, size_t head_bytes, txn_tree **out,
                     err *e) {
    MDB_dbi dbi = 0;
    int status = find_tree(t, tree, has_sums, head_bytes, out, &dbi, e);
    if (status || (*out)->cursor.mdb)
        return status;
    (*out)->cursor = (tree_cursor){.txn = t, .tree = tree, .base = &(*out)->base};
    size_t sums = has_sums ? 4 : 0, most = t->store->guard.inline_bytes;
    (*out)->cursor.short_bytes =
        BASE_MIN(BASE_MAX(most, sums) - sums, has_sums ? (size_t)SUM_WHOLE : SIZE_MAX);
    (*out)->cursor.short_sums = sums;
    return lmdb_error(e, mdb_cursor_open(t->mdb, dbi, &(*out)->cursor.mdb), "cannot read a table");
}

int txn_fixed(txn *t, uint32_t tree, tree_cursor **out, err *e) {
    txn_tree *at;
    int status = open_tree(t, tree, t->format > FORMAT_WITHOUT_SUMS, SUM_WHOLE, &at, e);
    *out = status ? NULL : &at->cursor;
    return status;
}

int txn_rows(txn *t, const table_info *info, txn_tree **out, err *e) {
    return open_tree(t, info->tree, info->has_sums, info->layout.slots_end, out, e);
}

int txn_index(txn *t, const table_info *info, int index, tree_cursor **out, err *e) {
    txn_tree *at;
    int status = open_tree(t, info->index_trees[index], info->has_sums, SUM_WHOLE, &at, e);
    *out = status ? NULL : &at->cursor;
    return status;
}

int tree_cursor_copy(const tree_cursor *from, tree_cursor *out, err *e) {
    MDB_dbi dbi = mdb_cursor_dbi(from->mdb);
    *out = *from;
    out->mdb = NULL;
    out->safe = (guard_range){0};
    return lmdb_error(e, mdb_cursor_open(from->txn->mdb, dbi, &out->mdb), "cannot read a table");
}

void tree_cursor_close(tree_cursor *c) {
    if (c->mdb)
        mdb_cursor_close(c->mdb);
    c->mdb = NULL;
    c->safe = (guard_range){0};
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* Appends what a tree is: table "x", index "i" of table "x", the catalog. */
static void describe(const store *db, const snapshot *s, uint32_t tree, buf *b, bool *rows) {
    *rows = false;
    for (int i = 0; s && i < s->catalog.ntables; i++) {
        const table_info *info = &s->infos[i];
        if (info->tree == tree) {
            buf_printf(b, "table \"%s\"", info->def->name.p);
            *rows = true;
            return;
        }
        for (int k = 0; k < info->def->nindexes; k++)
            if (info->index_trees[k] == tree) {
                buf_printf(b, "index \"%s\" of table \"%s\"", info->def->indexes[k].name.p,
                           info->def->name.p);
                return;
            }
    }
    buf_printf(b, "%s of '%s'",
               tree == TREE_CATALOG     ? "the catalog"
               : tree == TREE_FREE_LIST ? "the list of free pages"
               : tree == TREE_META      ? "the tree of settings and statistics"
               : tree == TREE_MAIN      ? "the list of trees"
                                        : "a tree",
               db->path);
}

static void append_rowids(buf *b, const guard_fault *f) {
    bool low = f->low.mv_size == KEY_ROWID, high = f->high.mv_size == KEY_ROWID;
    long long first = low ? rowid_get(f->low.mv_data) : 0;
    long long end = high ? rowid_get(f->high.mv_data) : 0;
    if (low && high)
        buf_printf(b, " (rowids %lld to %lld)", first, end - 1);
    else if (low)
        buf_printf(b, " (rowids from %lld on)", first);
    else if (high)
        buf_printf(b, " (rowids below %lld)", end);
    else
        buf_printf(b, " (all rowids)");
}

int tree_damaged(const store *db, const snapshot *snap, uint32_t tree, err *e) {
    const guard_fault *f = &db->guard.fault;
    unsigned long long page = f->page;
    buf b = {0};
    bool rows;
    describe(db, snap, tree, &b, &rows);
    if (f->of_value && rows && f->low.mv_size == KEY_ROWID) {
        buf_printf(&b, " is damaged: the row with rowid %lld %s (page %llu)",
                   (long long)rowid_get(f->low.mv_data), f->what, page);
    } else {
        buf_printf(&b, " is damaged: %spage %llu", f->of_value ? "a value of " : "", page);
        if (rows)
            append_rowids(&b, f);
        buf_printf(&b, " %s", f->what);
    }
    err_set(e, ERR_CORRUPT, "%s", b.p);
    err_hint(e, DAMAGE_HINT);
    buf_free(&b);
    return ERR_CORRUPT;
}

/* Called when the guard found a fault: keeps the error for tree_error. */
static int refuse(txn *t, uint32_t tree) {
    if (!t->damage)
        t->damage = mem_alloc(sizeof *t->damage);
    tree_damaged(t->store, t->snap, tree, t->damage);
    return MDB_CORRUPTED;
}

int store_error(const store *s, int rc, const char *what, err *e) {
    int status = lmdb_error(e, rc, what);
    if (!e || (status != ERR_FULL && status != ERR_IO))
        return status;
    err plain = *e;
    err_set(e, plain.code, "'%s': %s", s->path, plain.message);
    if (*plain.hint)
        err_hint(e, "%s", plain.hint);
    return status;
}

int tree_error(txn *t, int rc, const char *what, err *e) {
    if (rc != MDB_CORRUPTED || !t->damage)
        return store_error(t->store, rc, what, e);
    if (e)
        *e = *t->damage;
    free(t->damage);
    t->damage = NULL;
    return ERR_CORRUPT;
}

/* ---- reading --------------------------------------------------------------------------------- */

static bool make_safe(tree_cursor *c, guard_place place, MDB_val key, guard_sides sides) {
    return guard_path(&c->txn->store->guard, c->base, place, key, sides, BASE_MAX(c->ahead, 1),
                      c->txn->write, &c->safe);
}

static bool is_safe_at(tree_cursor *c, MDB_val key, guard_sides sides) {
    return ((c->safe.sides & sides) == sides && guard_in_range(&c->safe, key)) ||
           make_safe(c, GUARD_KEY, key, sides);
}

/* Verifies a value in overflow pages, and removes the sums. */
static int take_value(tree_cursor *c, MDB_val key, MDB_val *data) {
    page_guard *g = &c->txn->store->guard;
    /* A writer looks at the overflow pages of short values too, since LMDB may free them. */
    bool may_overflow = c->txn->write || data->mv_size > g->inline_bytes;
    if (may_overflow && !guard_value(g, c->base, key, *data, SUM_HEAD))
        return refuse(c->txn, c->tree);
    if (c->base->has_sums && !sum_payload(*data, data)) {
        g->fault = (guard_fault){.what = "has no checksum", .low = key, .of_value = true};
        return refuse(c->txn, c->tree);
    }
    return 0;
}

int tree_arrive(tree_cursor *c, MDB_val *key, MDB_val *data, guard_sides sides) {
    return is_safe_at(c, *key, sides) ? take_value(c, *key, data) : refuse(c->txn, c->tree);
}

/* Makes it safe to leave the entry at the cursor in a direction. */
static int prepare_step(tree_cursor *c, guard_sides side) {
    MDB_val key, data;
    if (c->safe.sides & side)
        return 0;
    int rc = mdb_cursor_get(c->mdb, &key, &data, MDB_GET_CURRENT);
    if (rc)
        return rc == EINVAL ? MDB_NOTFOUND : rc;
    return make_safe(c, GUARD_KEY, key, side) ? 0 : refuse(c->txn, c->tree);
}

int tree_step_arrive(tree_cursor *c, MDB_val *key, MDB_val *data, bool back) {
    enum { AHEAD_MAX = 32 };
    if (!guard_in_range(&c->safe, *key)) /* a long scan verifies more and more ahead */
        c->ahead = BASE_MIN(BASE_MAX(c->ahead, 1) * 2, AHEAD_MAX);
    return tree_arrive(c, key, data, back ? GUARD_LEFT : GUARD_RIGHT);
}

int tree_step(tree_cursor *c, MDB_val *key, MDB_val *data, bool back) {
    int rc = prepare_step(c, back ? GUARD_LEFT : GUARD_RIGHT);
    if (!rc)
        rc = mdb_cursor_get(c->mdb, key, data, back ? MDB_PREV : MDB_NEXT);
    return rc ? rc : tree_step_arrive(c, key, data, back);
}

int tree_get(tree_cursor *c, MDB_val *key, MDB_val *data, MDB_cursor_op op) {
    const MDB_val none = {0, NULL};
    bool safe = true;
    guard_sides sides = GUARD_ALONE;
    if (op == MDB_NEXT || op == MDB_PREV)
        return tree_step(c, key, data, op == MDB_PREV);
    c->ahead = 1;
    if (op == MDB_SET_RANGE) /* may find the first entry of the next leaf */
        sides = GUARD_RIGHT;
    if (op == MDB_SET_KEY || op == MDB_SET_RANGE)
        safe = is_safe_at(c, *key, sides);
    else if (op == MDB_FIRST || op == MDB_LAST)
        safe = make_safe(c, op == MDB_FIRST ? GUARD_FIRST : GUARD_LAST, none, GUARD_ALONE);
    if (!safe)
        return refuse(c->txn, c->tree);
    int rc = mdb_cursor_get(c->mdb, key, data, op);
    return rc ? rc : tree_arrive(c, key, data, sides);
}

/* The position of a key among the leaf's, which has it. */
static int index_on_leaf(const page_file *f, uint64_t leaf, int nodes, int64_t rowid) {
    int low = 0, high = nodes - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (rowid_get(page_get_node(f, leaf, true, middle).key) < rowid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int tree_rest_of_leaf(tree_cursor *c, MDB_val key, int most, int64_t *rowids, MDB_val *rows,
                      int *count) {
    const page_file *f = &c->txn->store->guard.file;
    const uint8_t *at = key.mv_data;
    int nodes, n = 0;
    bool leaf;
    *count = 0;
    if (c->txn->write || at < f->map || at >= page_at(f, f->pages))
        return 0;
    uint64_t number = (uint64_t)(at - f->map) / f->page_bytes;
    page_shape(f, number, &leaf, &nodes);
    for (int i = index_on_leaf(f, number, nodes, rowid_get(at)) + 1; i < nodes && n < most; i++) {
        page_node node = page_get_node(f, number, true, i);
        size_t bytes = node.data_bytes - c->short_sums; /* without checksums: too large */
        if (node.flags & F_BIGDATA || bytes > c->short_bytes)
            break;
        rowids[n] = rowid_get(node.key);
        rows[n++] = (MDB_val){bytes, (uint8_t *)node.data + c->short_sums};
    }
    *count = n;
    if (n == 0)
        return 0;
    uint8_t last[KEY_ROWID];
    MDB_val ignored;
    rowid_put(last, rowids[n - 1]);
    return mdb_cursor_get(c->mdb, &(MDB_val){sizeof last, last}, &ignored, MDB_SET);
}

int tree_whole_value(tree_cursor *c, MDB_val key, MDB_val payload) {
    guard_tree *base = c->base;
    size_t sums = base->has_sums ? sum_bytes(payload.mv_size) : 0;
    MDB_val stored = {payload.mv_size + sums, (uint8_t *)payload.mv_data - sums};
    if (stored.mv_size <= c->txn->store->guard.inline_bytes)
        return 0;
    return guard_value(&c->txn->store->guard, base, key, stored, SUM_BOTH)
               ? 0
               : refuse(c->txn, c->tree);
}

int tree_look_up(tree_cursor *c, MDB_val key, MDB_val *data) {
    int rc = tree_get(c, &key, data, MDB_SET_KEY);
    return rc ? rc : tree_whole_value(c, key, *data);
}

/* ---- writing --------------------------------------------------------------------------------- */

int tree_replace(tree_cursor *c, MDB_val key, MDB_val payload) {
    MDB_val old;
    int rc = tree_look_up(c, key, &old);
    return rc && rc != MDB_NOTFOUND ? rc : tree_put(c, key, payload, 0);
}

int tree_put(tree_cursor *c, MDB_val key, MDB_val payload, unsigned flags) {
    const guard_tree *base = c->base;
    size_t sums = base->has_sums ? sum_bytes(payload.mv_size) : 0;
    MDB_val stored = {payload.mv_size + sums, NULL};
    if (!is_safe_at(c, key, GUARD_BOTH))
        return refuse(c->txn, c->tree);
    if (stored.mv_size == 0)
        stored.mv_data = "";
    int rc = mdb_cursor_put(c->mdb, &key, &stored, flags | (stored.mv_size ? MDB_RESERVE : 0));
    if (rc || stored.mv_size == 0)
        return rc;
    if (sums)
        sum_write(&base->sums, key, payload.mv_data, payload.mv_size, stored.mv_data);
    if (payload.mv_size)
        memcpy((uint8_t *)stored.mv_data + sums, payload.mv_data, payload.mv_size);
    return 0;
}

int tree_delete(tree_cursor *c) {
    return mdb_cursor_del(c->mdb, 0);
}

int tree_entries(txn *t, uint32_t tree, uint64_t *out, err *e) {
    MDB_dbi dbi = 0;
    MDB_stat stat = {0};
    int status = txn_dbi(t, tree, false, &dbi, e);
    if (!status)
        status = lmdb_error(e, mdb_stat(t->mdb, dbi, &stat), "cannot read a table");
    *out = stat.ms_entries;
    return status;
}

int tree_rows(txn *t, const table_info *info, uint64_t *out, err *e) {
    txn_tree *tree;
    int status = txn_rows(t, info, &tree, e);
    if (!status)
        status = tree_entries(t, info->tree, out, e);
    if (!status && tree->base.record.root != NO_PAGE && info->rows != ROWS_UNKNOWN)
        *out += info->rows - tree->base.record.entries;
    return status;
}

/* Empties a tree. From here on this transaction reads no page that the tree had before. */
static int empty(txn *t, uint32_t tree, txn_tree *at, MDB_dbi dbi, err *e) {
    if (!guard_emptying(&t->store->guard, &at->base))
        return tree_damaged(t->store, t->snap, tree, e);
    tree_cursor_close(&at->cursor);
    int rc = mdb_drop(t->mdb, dbi, 0);
    if (!rc) {
        at->base.record = (page_tree){.root = NO_PAGE};
        *(t->savepoint ? &at->emptied_since : &at->emptied) = true;
    }
    return lmdb_error(e, rc, "cannot empty a tree");
}

int txn_empty_fixed(txn *t, uint32_t tree, err *e) {
    MDB_dbi dbi = 0;
    txn_tree *at;
    int status = find_tree(t, tree, t->format > FORMAT_WITHOUT_SUMS, SUM_WHOLE, &at, &dbi, e);
    return status ? status : empty(t, tree, at, dbi, e);
}

int txn_empty_tree(txn *t, const table_info *info, int index, err *e) {
    uint32_t tree = index < 0 ? info->tree : info->index_trees[index];
    size_t head = index < 0 ? info->layout.slots_end : SUM_WHOLE;
    MDB_dbi dbi = 0;
    txn_tree *at;
    int status = find_tree(t, tree, info->has_sums, head, &at, &dbi, e);
    return status ? status : empty(t, tree, at, dbi, e);
}

/* A base that is read again is that of the last commit: not that of a tree which this transaction
 * emptied before the savepoint, and which may belong to another table now. */
void tree_forget_bases(txn *t) {
    for (uint32_t i = 0; i < t->ntrees; i++) {
        txn_tree *at = t->trees[i];
        if (at && !at->emptied)
            at->base_known = at->base.whole = at->base.counted = false;
        if (at && at->emptied)
            at->base.record = (page_tree){.root = NO_PAGE};
        if (at)
            at->emptied_since = false;
    }
}

void tree_keep_emptied(txn *t) {
    for (uint32_t i = 0; i < t->ntrees; i++)
        if (t->trees[i]) {
            t->trees[i]->emptied |= t->trees[i]->emptied_since;
            t->trees[i]->emptied_since = false;
        }
}
