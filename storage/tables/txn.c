/*
 * txn.c - transactions and savepoints.
 *
 * Invariants: an LMDB write transaction exists only while this process holds writer.lock; all LMDB
 * cursors are closed before the innermost LMDB transaction changes (scans seek again, row cursors
 * are reopened); handles of trees are opened when a catalog is loaded, so that no transaction uses
 * a handle opened after it began.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tables_int.h"

enum {
    /* maximum number of pages that changing a row in one tree copies, estimated */
    ROW_OVERHEAD_PAGES = 64,
    UNDO_BYTES_MAX = 1 << 20, /* maximum size of a row in the undo log */
    BASE_MOVED = -1,          /* result of verify_base: the meta page is of a later commit */
    MOVES_MAX = 100           /* maximum number of new tries after BASE_MOVED */
};
/* Without a child transaction a row is changed only while this much of the map stays free. */
#define MAP_SLACK ((size_t)16 << 20)

/* ---- handles and cursors --------------------------------------------------------------------- */

/* Called after an abort, which closes the handles that the transaction opened. */
static void forget_handles(txn *t, bool child_only) {
    int kept = 0;
    for (int i = 0; i < t->nopened; i++)
        if (child_only && !t->opened[i].in_child)
            t->opened[kept++] = t->opened[i];
        else
            t->store->tree_dbi[t->opened[i].tree] = 0;
    t->nopened = kept;
}

void txn_close_cursors(txn *t) {
    for (uint32_t i = 0; i < t->ntrees; i++)
        if (t->trees[i]) {
            tree_cursor_close(&t->trees[i]->cursor);
            t->trees[i]->last_known = false;
        }
    for (table_scan *s = t->scans; s; s = scan_next_open(s))
        scan_detach(s);
    t->epoch++;
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* Returns ERR_IO if tables.mdb was deleted: commits to it would be lost. */
static int check_named(const store *s, err *e) {
    mdb_filehandle_t fd;
    struct stat st;
    if (s->memory || mdb_env_get_fd(s->env, &fd) != 0 || fstat(fd, &st) != 0 || st.st_nlink > 0)
        return 0;
    err_set(e, ERR_IO, "'%s/tables.mdb' was deleted while it was open: writes to it would be lost",
            s->path);
    err_hint(e, "save its rows with .backup DIRECTORY");
    return ERR_IO;
}

/* Enlarges the map; LMDB may then map the file elsewhere. Returns an LMDB status or errno value. */
static int map_resize(store *s) {
    int rc = lmdb_map_resize(s->env, 0);
    return rc ? rc : guard_attach(s, NULL, NULL) ? MDB_CORRUPTED : 0;
}

/* Verifies what LMDB reads of every transaction: the meta page of the commit before it and the tree
 * of trees; what it reads of a write transaction: the free list. */
static int verify_base(txn *t, uint64_t commit, err *e) {
    store *s = t->store;
    page_guard *g = &s->guard;
    mdb_filehandle_t fd;
    struct stat st;
    bool moved = false;
    if (guard_knows(g, commit)) {
        t->base = g->meta;
        if (!t->write)
            return 0;
    } else {
        if (mdb_env_get_fd(s->env, &fd) != 0 || fstat(fd, &st) != 0)
            return err_set(e, ERR_IO, "cannot read the size of '%s/tables.mdb'", s->path);
        if (!guard_begin(g, (size_t)st.st_size, commit, &t->base, &moved))
            return moved && !t->write ? BASE_MOVED : tree_damaged(s, NULL, TREE_MAIN, e);
    }
    /* Tables are read even if the free list is damaged. */
    if ((t->write || guard_free_list_is_short(&t->base)) && !guard_free_list(g, &t->base) &&
        t->write)
        return tree_damaged(s, NULL, TREE_FREE_LIST, e);
    return guard_main(g, &t->base) ? 0 : tree_damaged(s, NULL, TREE_MAIN, e);
}

static int begin_write(txn *t, const txn_wait *wait, err *e) {
    store *s = t->store;
    if (s->read_only)
        return err_set(e, ERR_IO, "the database '%s' is read-only", s->path);
    for (txn *other = s->open_txns; other; other = other->next_open)
        if (other->write)
            return err_set(e, ERR_INTERNAL, "a write transaction is already open");
    int status = check_named(s, e);
    if (!status)
        status = writer_lock(s, wait, e);
    if (status)
        return status;
    /* LMDB does not reuse pages that a registered reader may read. Without this, a killed reader
     * would make the file grow with every commit. */
    mdb_reader_check(s->env, NULL);
    int rc = mdb_txn_begin(s->env, NULL, 0, &t->root);
    if (rc == MDB_MAP_RESIZED && !s->open_txns && (rc = map_resize(s)) == 0)
        rc = mdb_txn_begin(s->env, NULL, 0, &t->root);
    if (rc) {
        writer_unlock(s);
        return store_error(s, rc, "cannot begin to write", e);
    }
    if ((status = verify_base(t, mdb_txn_id(t->root) - 1, e)) != 0) {
        mdb_txn_abort(t->root);
        writer_unlock(s);
        return status;
    }
    MDB_envinfo info;
    MDB_stat stat;
    mdb_env_info(s->env, &info);
    mdb_env_stat(s->env, &stat);
    s->map_bytes = info.me_mapsize;
    t->used_bytes = (info.me_last_pgno + 1) * stat.ms_psize;
    return 0;
}

/* A writer that is killed after writing its commit's root, but before publishing the transaction id
 * in the lock file, leaves a commit that readers do not see until the next writer publishes it. A
 * user who looked in between and repeated the statement would have its rows twice. So a reader that
 * finds such a root, and no writer, begins and aborts a write transaction, which publishes it. */
static int publish_commit(store *s, MDB_txn *reader) {
    static const txn_wait at_once = {0};
    MDB_envinfo info;
    MDB_txn *writer = NULL;
    err busy;
    if (s->no_lock || s->read_only || mdb_env_info(s->env, &info) != 0 ||
        info.me_last_txnid <= mdb_txn_id(reader))
        return 0;
    for (const txn *other = s->open_txns; other; other = other->next_open)
        if (other->write) /* this process holds the lock already */
            return 0;
    if (writer_lock(s, &at_once, &busy) != 0)
        return 0; /* the writer at work will publish it */
    mdb_txn_reset(reader);
    if (mdb_txn_begin(s->env, NULL, 0, &writer) == 0)
        mdb_txn_abort(writer);
    writer_unlock(s);
    return mdb_txn_renew(reader);
}

static int begin_read(txn *t, const txn_wait *wait, err *e) {
    store *s = t->store;
    int status = s->no_lock ? reader_lock(s, wait, e) : 0;
    if (status)
        return status;
    int rc;
    if (s->idle_reader) {
        t->root = s->idle_reader;
        s->idle_reader = NULL;
        rc = mdb_txn_renew(t->root);
        if (rc) {
            mdb_txn_abort(t->root);
            t->root = NULL;
        }
    } else {
        rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &t->root);
        if (rc == MDB_READERS_FULL && mdb_reader_check(s->env, NULL) == 0)
            rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &t->root);
    }
    if (rc == MDB_MAP_RESIZED && !s->open_txns && (rc = map_resize(s)) == 0)
        rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &t->root);
    if (rc == 0 && (rc = publish_commit(s, t->root)) != 0) {
        mdb_txn_abort(t->root);
        t->root = NULL;
    }
    /* While this one began, other processes may have committed twice, and so replaced its meta
     * page. A new one is then begun. */
    status = lmdb_error(e, rc, "cannot begin to read");
    for (int i = 0; !status && (status = verify_base(t, mdb_txn_id(t->root), e)) == BASE_MOVED;) {
        mdb_txn_reset(t->root);
        status = i++ < MOVES_MAX ? lmdb_error(e, mdb_txn_renew(t->root), "cannot begin to read")
                                 : err_set(e, ERR_BUSY, "other processes commit too fast");
    }
    if (status && t->root) {
        mdb_txn_abort(t->root);
        t->root = NULL;
    }
    if (status && s->no_lock && !s->open_txns)
        writer_unlock(s);
    return status;
}

static void txn_unlink(txn *t) {
    store *s = t->store;
    bool others = false;
    for (txn **at = &s->open_txns; *at;) {
        if (*at == t) {
            *at = t->next_open;
            continue;
        }
        others = true;
        at = &(*at)->next_open;
    }
    if (t->write || (s->no_lock && !others))
        writer_unlock(s);
}

static void txn_free(txn *t) {
    txn_unlink(t);
    snapshot_release(t->snap);
    snapshot_release(t->retired);
    snapshot_release(t->savepoint_snap);
    arena_free(t->undo_mem);
    arena_free(t->row_mem);
    buf_free(&t->key);
    free(t->damage);
    free(t->opened);
    free(t->dirty);
    for (uint32_t i = 0; i < t->ntrees; i++)
        free(t->trees[i]);
    free(t->trees);
    free(t);
}

/* Ends the LMDB read transaction: resets it and keeps it, with its reader slot, for the next reader.
 * If the store keeps one already, or this one opened handles, commits it instead. */
static void end_read(txn *t) {
    store *s = t->store;
    if (!t->root)
        return;
    if (t->nopened || s->idle_reader) {
        mdb_txn_commit(t->root); /* unlike an abort, keeps the handles it opened */
    } else {
        mdb_txn_reset(t->root);
        s->idle_reader = t->root;
    }
}

static void txn_end_scans(txn *t) {
    txn_close_cursors(t);
    while (t->scans)
        scan_orphan(t->scans);
}

/* Opens the handles of all trees in the catalog. */
static int open_handles(txn *t, err *e) {
    const snapshot *snap = t->snap;
    MDB_dbi dbi;
    for (int i = 0; i < snap->catalog.ntables; i++) {
        const table_info *info = &snap->infos[i];
        int status = txn_dbi(t, info->tree, false, &dbi, e);
        for (int k = 0; k < info->def->nindexes && !status; k++)
            status = txn_dbi(t, info->index_trees[k], false, &dbi, e);
        if (status)
            return status;
    }
    return 0;
}

static txn *txn_new(store *s, bool write) {
    txn *t = mem_zalloc(sizeof *t);
    t->store = s;
    t->write = write;
    return t;
}

static int txn_begin_once(store *s, bool write, const txn_wait *wait, txn **out, err *e) {
    txn *t = txn_new(s, write);
    int status = write ? begin_write(t, wait, e) : begin_read(t, wait, e);
    if (status) {
        free(t);
        return status;
    }
    t->mdb = t->root;
    t->next_open = s->open_txns;
    s->open_txns = t;
    if ((status = txn_load_catalog(t, e)) != 0 ||
        (write && (status = catalog_upgrade(t, e)) != 0) || (status = open_handles(t, e)) != 0) {
        txn_abort(t);
        return status;
    }
    *out = t;
    return 0;
}

int txn_begin(store *s, bool write, const txn_wait *wait, txn **out, err *e) {
    for (;;) {
        txn *t = NULL;
        int status = txn_begin_once(s, write, wait, &t, e);
        if (status)
            return status;
        /* Other transactions may use the handles that a read transaction opened, but only after it
         * has ended. So it is ended here, and the next round begins another. */
        if (write || t->nopened == 0) {
            *out = t;
            return 0;
        }
        for (txn *other = s->open_txns; other; other = other->next_open)
            if (other->write) {
                txn_abort(t);
                return err_set(e, ERR_INTERNAL,
                               "a table is being opened during this process's write transaction");
            }
        txn_close_cursors(t);
        end_read(t);
        t->root = NULL;
        txn_free(t);
    }
}

/* Writes the state of each table whose rows changed: its version and number of rows. */
static int raise_versions(txn *t, err *e) {
    for (int i = 0; i < t->ndirty; i++) {
        for (int k = 0; k < t->snap->catalog.ntables; k++) {
            const table_info *info = &t->snap->infos[k];
            if (info->def->id != t->dirty[i])
                continue; /* tables dropped after the change are not found */
            uint64_t rows;
            int status = tree_rows(t, info, &rows, e);
            if (!status)
                status = catalog_put_state(t, info->def->id, info->def->version + 1, rows, e);
            if (status)
                return status;
        }
    }
    return 0;
}

/* Cuts off what an aborted transaction wrote after the pages in use. Otherwise a disk that it
 * filled would stay full. writer.lock is held. Errors are ignored: they cost only space. */
static void truncate_unused(store *s) {
    MDB_envinfo info;
    MDB_stat pages;
    mdb_filehandle_t fd;
    struct stat st;
    if (mdb_env_info(s->env, &info) != 0 || mdb_env_stat(s->env, &pages) != 0 ||
        mdb_env_get_fd(s->env, &fd) != 0 || fstat(fd, &st) != 0)
        return;
    off_t used = (off_t)((info.me_last_pgno + 1) * pages.ms_psize);
    if (st.st_size > used && ftruncate(fd, used) != 0)
        return;
}

/* Called after a write transaction was aborted. */
static void forget_write(txn *t) {
    truncate_unused(t->store);
    forget_handles(t, false);
}

static int commit_write(txn *t, err *e) {
    int status = t->savepoint ? txn_release(t, e) : 0;
    if (!status && t->broken)
        status =
            err_set(e, ERR_IO, "cannot undo the failed statement: the transaction is rolled back");
    if (!status)
        status = raise_versions(t, e);
    if (status) {
        mdb_txn_abort(t->root);
        forget_write(t);
        return status;
    }
    uint64_t id = mdb_txn_id(t->root);
    int rc = mdb_txn_commit(t->root);
    if (rc) {
        forget_write(t);
        return store_error(t->store, rc, "cannot commit", e);
    }
    /* A transaction without changes is no commit: its id is the next one's. */
    MDB_envinfo info;
    if (mdb_env_info(t->store->env, &info) == 0 && info.me_last_txnid == id)
        guard_committed(&t->store->guard, id);
    if (t->snap != t->store->snap) {
        snapshot_release(t->store->snap);
        t->store->snap = t->snap;
        t->snap->refs++;
    }
    return 0;
}

int txn_commit(txn *t, err *e) {
    int status = 0;
    txn_end_scans(t);
    if (t->write)
        status = commit_write(t, e);
    else
        end_read(t);
    txn_free(t);
    return status;
}

void txn_abort(txn *t) {
    if (!t)
        return;
    txn_end_scans(t);
    if (!t->write) {
        end_read(t);
    } else {
        if (t->mdb != t->root)
            mdb_txn_abort(t->mdb);
        mdb_txn_abort(t->root);
        forget_write(t);
    }
    txn_free(t);
}

bool txn_is_write(const txn *t) {
    return t->write;
}

const catalog *txn_catalog(txn *t) {
    return &t->snap->catalog;
}

int txn_need_write(const txn *t, err *e) {
    if (t->write)
        return 0;
    return err_set(e, ERR_INTERNAL, "a read transaction cannot write");
}

void txn_mark_dirty(txn *t, uint32_t table_id) {
    for (int i = t->ndirty - 1; i >= 0; i--)
        if (t->dirty[i] == table_id)
            return;
    ARRAY_PUSH(t->dirty, t->ndirty, t->dirty_cap, table_id);
}

bool txn_is_dirty(const txn *t, uint32_t table_id) {
    for (int i = 0; i < t->ndirty; i++)
        if (t->dirty[i] == table_id)
            return true;
    return false;
}

/* ---- savepoints ------------------------------------------------------------------------------ */

static int child_begin(txn *t, err *e) {
    txn_close_cursors(t);
    MDB_txn *child = NULL;
    int rc = mdb_txn_begin(t->store->env, t->root, 0, &child);
    if (rc)
        return store_error(t->store, rc, "cannot begin a statement", e);
    t->mdb = child;
    return 0;
}

int txn_savepoint(txn *t, err *e) {
    int status = txn_need_write(t, e);
    if (status)
        return status;
    if (t->savepoint)
        return err_set(e, ERR_INTERNAL, "a savepoint is already open");
    t->savepoint = true;
    t->savepoint_snap = t->snap;
    t->savepoint_snap->refs++;
    t->nundo = 0;
    return 0;
}

static void savepoint_end(txn *t) {
    tree_keep_emptied(t);
    t->savepoint = false;
    t->nundo = 0;
    snapshot_release(t->savepoint_snap);
    t->savepoint_snap = NULL;
    if (t->undo_mem)
        arena_reset(t->undo_mem);
}

static void undo_replay(txn *t) {
    err e;
    for (int i = t->nundo - 1; i >= 0; i--) {
        const undo_entry *u = &t->undo[i];
        const table_info *info = NULL;
        for (int k = 0; k < t->snap->catalog.ntables; k++)
            if (t->snap->tables[k].id == u->table_id)
                info = &t->snap->infos[k];
        if (!info || table_restore(t, info, u->rowid, u->bytes, u->nbytes, &e) != 0)
            t->broken = true; /* txn_commit then fails: half a statement must not be kept */
    }
}

void txn_rollback_to(txn *t) {
    if (!t->savepoint)
        return;
    txn_close_cursors(t);
    if (t->mdb != t->root) {
        mdb_txn_abort(t->mdb);
        t->mdb = t->root;
        forget_handles(t, true);
    }
    tree_forget_bases(t);
    if (t->snap != t->savepoint_snap) {
        snapshot_release(t->retired);
        t->retired = t->snap;
        t->snap = t->savepoint_snap;
        t->snap->refs++;
    }
    t->savepoint = false; /* so that undoing is not logged */
    undo_replay(t);
    savepoint_end(t);
}

int txn_release(txn *t, err *e) {
    if (!t->savepoint)
        return 0;
    if (t->mdb != t->root) {
        txn_close_cursors(t);
        int rc = mdb_txn_commit(t->mdb);
        t->mdb = t->root;
        if (rc) {
            store_error(t->store, rc, "cannot end a statement", e);
            forget_handles(t, true);
            txn_rollback_to(t);
            return e ? (int)e->code : ERR_IO;
        }
        for (int i = 0; i < t->nopened; i++)
            t->opened[i].in_child = false;
    }
    savepoint_end(t);
    return 0;
}

int txn_before_change(txn *t, err *e) {
    int status = txn_need_write(t, e);
    if (!status && t->savepoint && t->mdb == t->root)
        status = child_begin(t, e);
    return status;
}

static bool map_has_room(const txn *t, size_t bytes) {
    return t->used_bytes + bytes + MAP_SLACK < t->store->map_bytes;
}

int txn_before_row(txn *t, const table_info *info, int64_t rowid, const MDB_val *old,
                   size_t new_bytes, err *e) {
    t->epoch++;
    size_t old_bytes = old ? old->mv_size : 0;
    t->used_bytes += new_bytes + old_bytes + ROW_OVERHEAD_PAGES * (size_t)4096 / 16;
    if (!t->savepoint || t->mdb != t->root)
        return 0;
    if (t->nundo == UNDO_MAX || old_bytes > UNDO_BYTES_MAX ||
        !map_has_room(t, new_bytes +
                             ROW_OVERHEAD_PAGES * (size_t)4096 * (size_t)(1 + info->def->nindexes)))
        return child_begin(t, e);
    undo_entry *u = &t->undo[t->nundo++];
    *u = (undo_entry){.table_id = info->def->id, .rowid = rowid};
    if (old) {
        if (!t->undo_mem)
            t->undo_mem = arena_new();
        u->bytes = arena_alloc(t->undo_mem, old_bytes);
        u->nbytes = old_bytes;
        memcpy(u->bytes, old->mv_data, old_bytes);
    }
    return 0;
}
