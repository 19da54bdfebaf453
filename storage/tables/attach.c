/*
 * attach.c - prepares the guard of tables.mdb, and verifies what LMDB reads first.
 *
 * The guard reads pages in LMDB's map, whose address LMDB does not tell. So a temporary map of the
 * file is used to verify the pages on the way to the catalog's header and to find the header's
 * offset; then LMDB may look the header up, and the difference is the address of its map.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "tables_int.h"

/* Where the catalog's header is, by the guard. */
typedef struct header_place {
    bool empty;    /* the file has no trees */
    bool foreign;  /* it has no catalog */
    bool moved;    /* the commit has been overwritten: try again */
    size_t offset; /* of the header's value in the file */
} header_place;

/* Verifies the way to the header in the commit `id`. False: the guard's fault is set. */
static bool find_header(page_guard *g, size_t bytes, uint64_t id, header_place *out) {
    page_meta meta;
    page_tree record;
    guard_tree tree = {.has_sums = false /* not known yet */};
    MDB_val header;
    bool found = false;
    *out = (header_place){0};
    if (!guard_begin(g, bytes, id, &meta, &out->moved))
        return out->moved;
    out->empty = meta.trees[1].root == NO_PAGE;
    if (out->empty)
        return true;
    if (!guard_named(g, &meta, "catalog", &tree.record, &found))
        return false;
    if (found && !guard_find(g, &tree, (MDB_val){1, "H"}, &header, &found))
        return false;
    out->foreign = !found;
    if (found)
        out->offset = (size_t)((const uint8_t *)header.mv_data - g->file.map);
    return !found || guard_named(g, &meta, "meta", &record, &found);
}

/* Maps the file for find_header. */
static int look_for_header(store *s, uint64_t id, header_place *out, err *e) {
    mdb_filehandle_t fd;
    struct stat st;
    MDB_stat pages;
    if (mdb_env_get_fd(s->env, &fd) != 0 || fstat(fd, &st) != 0 ||
        mdb_env_stat(s->env, &pages) != 0)
        return err_set(e, ERR_IO, "cannot read the size of '%s/tables.mdb'", s->path);
    size_t bytes = (size_t)st.st_size;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_set_errno(e, errno, "cannot map '%s/tables.mdb'", s->path);
    page_guard g = {.file = {.map = map, .page_bytes = pages.ms_psize}};
    int status = 0;
    if (!find_header(&g, bytes, id, out)) {
        s->guard.fault = g.fault;
        status = tree_damaged(s, NULL, TREE_MAIN, e);
    }
    guard_free(&g);
    munmap(map, bytes);
    s->guard.file.page_bytes = pages.ms_psize;
    /* LMDB puts at least two nodes on a page, each with a pointer of 2 bytes and the longest key. */
    size_t half = (pages.ms_psize - PAGE_HEADER) / 2;
    s->guard.inline_bytes =
        half > NODE_HEADER + PAGE_KEY_MAX + 4 ? half - NODE_HEADER - PAGE_KEY_MAX - 4 : 0;
    return status;
}

/* Opens the fixed trees and computes the address of LMDB's map. */
static int find_map(store *s, MDB_txn *mdb, const header_place *place, err *e) {
    MDB_val key = {1, "H"}, header;
    int rc = mdb_dbi_open(mdb, "catalog", 0, &s->catalog_dbi);
    if (!rc && (rc = mdb_dbi_open(mdb, "meta", 0, &s->meta_dbi)) == MDB_NOTFOUND) {
        err_set(e, ERR_CORRUPT, "'%s/tables.mdb' is damaged: its tree 'meta' is missing", s->path);
        err_hint(e, DAMAGE_HINT);
        return ERR_CORRUPT;
    }
    if (!rc)
        rc = mdb_get(mdb, s->catalog_dbi, &key, &header);
    if (rc)
        return lmdb_error(e, rc, "cannot read the database");
    s->guard.file.map = (const uint8_t *)header.mv_data - place->offset;
    if (!catalog_is_header(header) && !sum_payload(header, &header))
        header.mv_size = 0;
    uint64_t cookie;
    uint32_t next_id;
    return catalog_check_header(s->path, header, &cookie, &next_id, e);
}

static int attach_in(store *s, MDB_txn *mdb, header_place *place, err *e) {
    int status = look_for_header(s, mdb_txn_id(mdb), place, e);
    if (status || place->empty || place->moved)
        return status;
    if (place->foreign)
        return err_set(e, ERR_CORRUPT,
                       "'%s/tables.mdb' is another program's LMDB file, not a kvasir database",
                       s->path);
    return find_map(s, mdb, place, e);
}

int guard_attach(store *s, bool *empty, err *e) {
    enum { TRIES = 100 };
    header_place place = {.moved = true};
    int status = 0;
    for (int i = 0; i < TRIES && place.moved && !status; i++) {
        MDB_txn *mdb = NULL;
        int rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &mdb);
        if (rc)
            return lmdb_error(e, rc, "cannot read the database");
        status = attach_in(s, mdb, &place, e);
        if (status || place.empty || place.moved)
            mdb_txn_abort(mdb);
        else
            mdb_txn_commit(mdb); /* keeps the handles */
    }
    if (!status && place.moved)
        status = err_set(e, ERR_BUSY, "other processes commit too fast to '%s'", s->path);
    if (empty)
        *empty = place.empty;
    return status;
}
