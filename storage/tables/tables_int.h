/*
 * tables_int.h - the structs and functions that the files of tables/ share, and the format of
 * tables.mdb.
 *
 * tables.mdb is one LMDB environment of named trees (all without flags):
 *
 *   "catalog"   one record per object; integers little-endian, texts with a u32 length
 *                 H           format version, schema cookie, next object id
 *                 T id(be)    table: name, tree, columns, indexes (each with its tree), checks,
 *                             whether its trees have checksums
 *                 V id(be)    view        M id(be)  model
 *                 S id(be)    state of a table: its version counter, its number of rows
 *   "meta"      facts by key; statistics have the keys "stats:<table id>" and "counts:<table id>",
 *               copies of T, V and M records "catalog:<their key>", trees whose pages could not be
 *               freed "lost-tree:<n>"
 *   "s<n>"      a tree: the rows of one table or the entries of one index. A dropped object's tree
 *               is emptied and its number reused, because closing LMDB handles inside nested
 *               transactions is not safe.
 *
 * A row's key is its rowid, big-endian with the sign bit flipped, so that bytewise order is numeric
 * order. A row:
 *
 *   0        2            2+ceil(ncols/8)                     text
 *   +--------+------------+-----------------------------------+------------------------+
 *   | ncols  | null bits  | slots, one per column             | TEXT and BLOB bytes    |
 *   +--------+------------+-----------------------------------+------------------------+
 *     u16      bit i set:   INTEGER, REAL 8 bytes; BOOLEAN 1;   in column order, without
 *              column i is  TEXT, BLOB u32 end offset in the    separators
 *              NULL         text area; rowid column: none
 *
 * The offsets of the slots depend only on the definition, so a scan reads only the columns it
 * needs. A TEXT cell starts where the TEXT or BLOB column before it ends.
 *
 * Each value is preceded by its checksum (lmdb/sums_int.h), which tree.c writes and removes.
 *
 * An index entry has a key and an empty value:
 *
 *   | cell, cell, …                 | rowid (8) |   at most 400 bytes of cells: an uncut key
 *   | first 400 bytes | XXH3-128    | rowid (8) |   more: a cut key, of 424 bytes
 *
 *   cell: 0 for NULL, else 1 and INTEGER: 8 bytes, sign flipped; REAL: 8 bytes, ordered; BOOLEAN: 1
 *   byte; TEXT, BLOB: bytes with 0 written as 0 255, ended by 0 0.
 *
 * No cell is a prefix of another, so two different keys differ within the shorter one.
 *
 * An entry of an index with lists (vector_lists.c) has the cell 1 and the number of its list, 4 bytes
 * big-endian, and as value the vector in codes. A vector that is in no list has the cell 0 and no value.
 */
#ifndef KVASIR_TABLES_INT_H
#define KVASIR_TABLES_INT_H

#include <sys/types.h>

#include "base/bytes_int.h"
#include "lmdb/guard_int.h"
#include "lmdb/lmdb_int.h"

#include "storage/containers.h"
#include "storage/storage.h"

enum {
    FORMAT_VERSION = 2,
    FORMAT_WITHOUT_SUMS = 1, /* the version before values had checksums */
    TREES_MAX = 2048,
    TREES_FIXED = 2, /* trees besides the numbered ones: catalog and meta */
    COLUMNS_MAX = 2000,
    KEY_CUT = 400,    /* bytes of cells in a cut key; maximum in an uncut key */
    KEY_HASH = 16,    /* bytes of the hash in a cut key */
    KEY_ROWID = 8,    /* bytes of the rowid at the end of every key */
    KEY_NOT_NULL = 1, /* first byte of a cell that is not NULL */
    KEY_CUT_BYTES = KEY_CUT + KEY_HASH + KEY_ROWID
};

/* What stands for a tree's number. Number + TREES_FIXED is a position in txn.trees. */
#define TREE_CATALOG ((uint32_t)-2)
#define TREE_META ((uint32_t)-1)
/* In error messages only. */
#define TREE_MAIN ((uint32_t)-3)
#define TREE_FREE_LIST ((uint32_t)-4)

#define ROW_BYTES_MAX ((size_t)1 << 30)

/* ---- rows (row.c) ---------------------------------------------------------------------------- */

typedef struct row_layout {
    int ncolumns, rowid_column;
    uint32_t slots_end; /* offset of the text area */
    const column_def *columns;
    const table_def *def;
    uint32_t *slot; /* [ncolumns] offset of each column's slot; 0: the rowid column has none */
    /* [ncolumns] TEXT, BLOB: offset of the previous text column's slot, whose end offset is where
     * this text starts; 0: this is the first text column */
    uint32_t *text_start;
} row_layout;

void row_layout_init(row_layout *l, arena *a, const table_def *def);
size_t row_size(const row_layout *l, const value *row);
void row_encode(const row_layout *l, const value *row, uint8_t *out);
/* Whether the bytes can be a row of this layout. */
bool row_check(const row_layout *l, MDB_val bytes);
int row_decode(const row_layout *l, MDB_val bytes, int64_t rowid, value *row, err *e);
int row_corrupt(const row_layout *l, int64_t rowid, err *e);

static inline void rowid_put(uint8_t *out, int64_t rowid) {
    uint64_t be = __builtin_bswap64((uint64_t)rowid ^ ((uint64_t)1 << 63));
    __builtin_memcpy(out, &be, sizeof be);
}
static inline int64_t rowid_get(const void *p) {
    uint64_t be;
    __builtin_memcpy(&be, p, sizeof be);
    return (int64_t)(__builtin_bswap64(be) ^ ((uint64_t)1 << 63));
}

/* ---- keys (key.c) ---------------------------------------------------------------------------- */

void key_append_cell(buf *b, value_type type, value v);
/* Sets b to the index key of a row. */
void key_make(buf *b, const table_def *def, const index_def *index, const value *row,
              int64_t rowid);
static inline bool key_is_cut(MDB_val key) {
    return key.mv_size == KEY_CUT_BYTES;
}
static inline int64_t key_rowid(MDB_val key) {
    return rowid_get((const char *)key.mv_data + key.mv_size - KEY_ROWID);
}

/* ---- the catalog in memory (catalog.c) ------------------------------------------------------- */

/* Hint of every error about damage. */
#define DAMAGE_HINT ".check lists all damage; .recover DIRECTORY copies all that is sound"

/* Definitions are stored a second time in the tree of settings, under this prefix and their key, so
 * that a damaged page of the catalog loses none: .recover reads these. */
#define CATALOG_COPY "catalog:"
typedef struct catalog_copy_key {
    char bytes[sizeof CATALOG_COPY + 5];
} catalog_copy_key;
/* The same of keys that name the trees whose pages cannot be freed. */
#define LOST_TREE "lost-tree:"

#define ROWS_UNKNOWN UINT64_MAX

typedef struct table_info {
    const table_def *def;
    uint32_t tree;         /* number of the tree of rows */
    uint32_t *index_trees; /* [def->nindexes] numbers of the trees of the indexes */
    bool has_sums;         /* rows and entries have checksums; false: made by format version 1 */
    uint64_t rows;         /* number of rows at the last commit; ROWS_UNKNOWN: not recorded */
    row_layout layout;
} table_info;

/* A loaded catalog, reference-counted: shared by the store, its transactions, and the statements
 * that retain it. */
typedef struct snapshot {
    int refs;
    arena *mem;
    uint64_t cookie;
    uint64_t version_txn; /* id of the last LMDB commit that the counters in tables[] include */
    uint32_t next_id;     /* the next free object id */
    catalog catalog;
    table_def *tables;   /* catalog.tables, with writable version counters */
    table_info *infos;   /* [catalog.ntables] trees and layouts of the tables */
    uint32_t *view_ids;  /* [catalog.nviews] ids of catalog.views */
    uint32_t *model_ids; /* [catalog.nmodels] ids of catalog.models */
} snapshot;

void snapshot_release(snapshot *s); /* NULL is fine */

/* Records of the catalog to and from bytes. Readers copy into `a`; false: the bytes are damaged. */
void catalog_write_table(buf *b, const table_info *info);
/* Sets all of `info` but the layout and the rows; info->def must point to def. */
bool catalog_read_table(MDB_val data, arena *a, table_def *def, table_info *info);
void catalog_write_view(buf *b, const view_def *def);
bool catalog_read_view(MDB_val data, arena *a, view_def *def);
void catalog_write_model(buf *b, const model_def *def);
bool catalog_read_model(MDB_val data, arena *a, model_def *def);
int catalog_put(txn *t, str key, str bytes, err *e); /* writes a record */
/* Makes the key of a record: 'T', 'V', 'M', 'S' and an id. */
MDB_val catalog_key(uint8_t name[5], char kind, uint32_t id);
str catalog_make_copy_key(catalog_copy_key *out, char kind, uint32_t id);
/* Writes the state of a table. */
int catalog_put_state(txn *t, uint32_t table_id, uint64_t version, uint64_t rows, err *e);
bool catalog_is_header(MDB_val bytes); /* bytes: without checksums */
/* Rewrites the catalog and the settings of a database of an older format version. */
int catalog_upgrade(txn *t, err *e);
int catalog_raise_cookie(txn *t, uint32_t next_id, err *e);
int catalog_initialise(store *s, MDB_txn *mdb, err *e);
/* Checks the header: ERR_CORRUPT or ERR_UNSUPPORTED if this build cannot read it. */
int catalog_check_header(const char *path, MDB_val header, uint64_t *cookie, uint32_t *next_id,
                         err *e);

/* Finds the table with def's id in this transaction's catalog. ERR_BIND if it was dropped or its
 * number of columns or indexes changed. */
int table_resolve(txn *t, const table_def *def, const table_info **out, err *e);

/* ---- indexes with lists (vector_lists.c) ------------------------------------------------------------ */

/* Appends the cell of a row's vector, which may be NULL. */
void lists_append_cell(buf *b, const vector_lists *lists, value v);
/* Sets *out to the value of a row's entry; empty: of an entry without a vector, or of a sorted index. */
void lists_make_entry(buf *out, const index_def *index, const value *row);
size_t lists_entry_bytes(const vector_lists *lists);
/* Sets lists->halves, in `a`. */
void lists_prepare(vector_lists *lists, arena *a);
/* Makes, in `a`, the lists that `wanted` asks for, of the table's rows. At most 256 MB of its vectors are
 * on the heap meanwhile. */
int lists_train(txn *t, const table_info *info, const index_def *index, const atomic_bool *cancel,
                arena *a, const vector_lists **out, err *e);

/* ---- transactions (txn.c) -------------------------------------------------------------------- */

/* A cursor in a tree. Keys and values are read and written by the functions below only. */
typedef struct tree_cursor {
    txn *txn;
    uint32_t tree;
    guard_tree *base;   /* the tree before this transaction */
    MDB_cursor *mdb;    /* of the innermost LMDB transaction; NULL: not open */
    guard_range safe;   /* around the cursor's position; see tree.c */
    int ahead;          /* leaves to verify ahead at the next step beyond `safe` */
    size_t short_bytes; /* a payload up to this size is on its leaf, */
    size_t short_sums;  /* and has so many bytes of checksums */
} tree_cursor;

typedef struct txn_tree {
    tree_cursor cursor;
    guard_tree base;
    bool base_known; /* base is set */
    /* this transaction emptied the tree: base has no pages; before, and since the savepoint */
    bool emptied, emptied_since;
    int64_t last_rowid; /* the greatest rowid in the tree */
    bool last_known;    /* last_rowid and last_empty are valid */
    bool last_empty;    /* the tree has no rows */
} txn_tree;

typedef struct undo_entry {
    uint32_t table_id;
    int64_t rowid;
    uint8_t *bytes; /* the row before the change; NULL: there was no row */
    size_t nbytes;
} undo_entry;

enum { UNDO_MAX = 64 };

/* An LMDB handle that a transaction opened; LMDB closes it if that transaction aborts. */
typedef struct opened_handle {
    uint32_t tree; /* number of the handle's tree */
    bool in_child; /* the child transaction opened it, not the root */
} opened_handle;

/*
 * A savepoint begins as a short undo log, because an LMDB child transaction costs ten times as much
 * as a single-row INSERT. After UNDO_MAX rows, before any other kind of change, or when the map is
 * nearly full, a child transaction is begun; rolling back then aborts the child and replays the
 * log.
 */
struct txn {
    store *store;
    txn *next_open; /* in the list store->open_txns */
    bool write;
    bool savepoint;      /* a savepoint is open */
    bool broken;         /* rolling back a savepoint failed: commit is refused */
    MDB_txn *root, *mdb; /* mdb: the child transaction while there is one, else root */
    snapshot *snap;
    /* snap before the last catalog change; callers may still read it */
    snapshot *retired;
    snapshot *savepoint_snap; /* snap when the savepoint was opened */
    txn_tree **trees;         /* [ntrees] by tree number + TREES_FIXED; NULL: not used yet */
    uint32_t ntrees;
    page_meta base;  /* the meta page of the commit before this transaction */
    uint32_t format; /* format version of the database */
    err *damage;     /* what the guard found last, for tree_error; NULL: nothing */
    opened_handle *opened;
    int nopened, opened_cap;
    table_scan *scans; /* list of the transaction's scans */
    uint64_t epoch;    /* incremented by every write: scans then seek again */
    uint32_t *dirty;   /* [ndirty] ids of changed tables */
    int ndirty, dirty_cap;
    undo_entry undo[UNDO_MAX];
    int nundo;
    arena *undo_mem;
    size_t used_bytes; /* bytes of the map in use, estimated from above */
    buf key;           /* the last index key made */
    arena *row_mem;    /* scratch memory of one row operation */
};

/* Sets t->snap to the current catalog of the transaction (catalog.c). */
int txn_load_catalog(txn *t, err *e);
void txn_close_cursors(txn *t);
/* Must precede every change other than that of a single row: turns an open savepoint into a child
 * transaction. ERR_INTERNAL in a read transaction. */
int txn_before_change(txn *t, err *e);
/* Must precede the change of a single row to new_bytes bytes: logs the old bytes (NULL: there is no
 * such row) for the open savepoint, or begins a child transaction. */
int txn_before_row(txn *t, const table_info *info, int64_t rowid, const MDB_val *old,
                   size_t new_bytes, err *e);
/* Makes the commit increment the table's version. */
void txn_mark_dirty(txn *t, uint32_t table_id);
bool txn_is_dirty(const txn *t, uint32_t table_id);
int txn_need_write(const txn *t, err *e);

/* ---- trees (tree.c) -------------------------------------------------------------------------- */

/* Get the transaction's cursor in a tree, opened on first use: in the catalog or meta, in the rows
 * of a table, in an index. ERR_CORRUPT. */
int txn_fixed(txn *t, uint32_t tree, tree_cursor **out, err *e);
int txn_rows(txn *t, const table_info *info, txn_tree **out, err *e);
int txn_index(txn *t, const table_info *info, int index, tree_cursor **out, err *e);
/* Gets the LMDB handle of a tree, opened on first use. */
int txn_dbi(txn *t, uint32_t tree, bool create, MDB_dbi *out, err *e);
/* Opens another cursor in the same tree. */
int tree_cursor_copy(const tree_cursor *from, tree_cursor *out, err *e);
void tree_cursor_close(tree_cursor *c);

/* Like mdb_cursor_get; the value is without its checksums. Only the head of a value in overflow
 * pages is verified. Returns an LMDB status, to be passed to tree_error. */
int tree_get(tree_cursor *c, MDB_val *key, MDB_val *data, MDB_cursor_op op);
/* tree_get of the next or previous entry. */
int tree_step(tree_cursor *c, MDB_val *key, MDB_val *data, bool back);
/* Does what remains after LMDB has moved a cursor to *key: its leaf and those on `sides` of it are
 * verified, and the checksums removed from *data. */
int tree_arrive(tree_cursor *c, MDB_val *key, MDB_val *data, guard_sides sides);
/* tree_arrive after a step. */
int tree_step_arrive(tree_cursor *c, MDB_val *key, MDB_val *data, bool back);
/* tree_step without calls for the usual entry: the same leaf, a short value. */
static inline int tree_step_quickly(tree_cursor *c, MDB_val *key, MDB_val *data, bool back) {
    if (!(c->safe.sides & (back ? GUARD_LEFT : GUARD_RIGHT)))
        return tree_step(c, key, data, back);
    int rc = mdb_cursor_get(c->mdb, key, data, back ? MDB_PREV : MDB_NEXT);
    if (rc)
        return rc;
    size_t n = data->mv_size - c->short_sums; /* of a value without checksums: too large */
    if (!guard_in_range(&c->safe, *key) || n > c->short_bytes)
        return tree_step_arrive(c, key, data, back);
    *data = (MDB_val){n, (uint8_t *)data->mv_data + c->short_sums};
    return 0;
}
/* Reads at most `most` entries of a table after the one at the cursor, whose key is `key`, from their
 * leaf, without a call of LMDB for each: up to the leaf's end, or the next long row. The cursor is
 * then on the last of them. Sets *count = 0 in write transactions, whose pages may be outside the
 * map. The leaf needs no verification, since the cursor's was. */
int tree_rest_of_leaf(tree_cursor *c, MDB_val key, int most, int64_t *rowids, MDB_val *rows,
                      int *count);
/* Verifies the rest of a value that tree_get returned. */
int tree_whole_value(tree_cursor *c, MDB_val key, MDB_val payload);
/* Finds a key's value and verifies all of it. MDB_NOTFOUND. */
int tree_look_up(tree_cursor *c, MDB_val key, MDB_val *data);
/* Like mdb_cursor_put: writes a value and its checksums. Neither key nor payload may be in the map
 * or in another value. A value that it replaces must have been read: LMDB frees its overflow
 * pages. */
int tree_put(tree_cursor *c, MDB_val key, MDB_val payload, unsigned flags);
/* tree_put of a value that may replace one. */
int tree_replace(tree_cursor *c, MDB_val key, MDB_val payload);
int tree_delete(tree_cursor *c); /* deletes the entry at the cursor */
/* Like lmdb_error; where the disk or the file is full, or fails, the message names the database. */
int store_error(const store *s, int rc, const char *what, err *e);
/* The same, but for damage found by the guard sets the error that names the table. */
int tree_error(txn *t, int rc, const char *what, err *e);
/* Sets the error of the guard's last fault. snap: names the tables; NULL: none is loaded. Returns
 * ERR_CORRUPT. */
int tree_damaged(const store *store, const snapshot *snap, uint32_t tree, err *e);
/* Number of rows of a table that this transaction changed, to be recorded: what was recorded before,
 * and the difference that the transaction makes to the tree's entries. So a damaged count of LMDB's
 * is not recorded in its turn. */
int tree_rows(txn *t, const table_info *info, uint64_t *out, err *e);
/* Number of entries of a tree. */
int tree_entries(txn *t, uint32_t tree, uint64_t *out, err *e);
/* Deletes all entries of the rows (index = -1) or of an index; txn_before_change and
 * txn_close_cursors must have been called. */
int txn_empty_tree(txn *t, const table_info *info, int index, err *e);
/* The same for the catalog or meta. */
int txn_empty_fixed(txn *t, uint32_t tree, err *e);
/* Must be called after a rollback, which brings emptied trees back. */
void tree_forget_bases(txn *t);
void tree_keep_emptied(txn *t); /* the savepoint is released: what it emptied stays empty */

/* ---- tables (table.c, index.c) --------------------------------------------------------------- */

/* Sets the row at rowid to `bytes`, or deletes it if `bytes` is NULL, and updates its index
 * entries. Checks no constraint. */
int table_restore(txn *t, const table_info *info, int64_t rowid, const uint8_t *bytes,
                  size_t nbytes, err *e);
int table_put_bytes(txn *t, const table_info *info, int64_t rowid, const uint8_t *bytes, size_t n,
                    err *e);
int index_add_row(txn *t, const table_info *info, int index, const value *row, int64_t rowid,
                  err *e);
int index_remove_row(txn *t, const table_info *info, int index, const value *row, int64_t rowid,
                     err *e);
/* Finds a row other than `self` (if has_self) whose index columns equal those of `row`. A row with
 * a NULL in an index column equals no row. */
int index_find_equal(txn *t, const table_info *info, int index, const value *row, bool has_self,
                     int64_t self, int64_t *rowid, bool *found, err *e);
/* Fills the tree of an index (index_build.c). `memory`: see catalog_create_index. */
int index_build(txn *t, const table_info *info, int index, mem_budget *memory,
                const atomic_bool *cancel, err *e);
/* Whether the index is unique and its columns are `columns` in any order; ncolumns = 0: whether it
 * is unique. */
/* Writes the entry of a row. */
int index_put_entry(txn *t, tree_cursor *c, const index_def *x, MDB_val key, const value *row,
                    unsigned flags, err *e);
bool index_is_unique_on(const index_def *index, const int *columns, int ncolumns);
int index_violation(const table_def *def, const index_def *index, const value *row, err *e);

/* ---- scans (scan.c) -------------------------------------------------------------------------- */

table_scan *scan_next_open(const table_scan *s);
void scan_detach(table_scan *s); /* closes its LMDB cursors; scan_next opens them again */
void scan_orphan(table_scan *s); /* removes it from its transaction, which is about to end */

int stats_forget(txn *t, uint32_t table_id, err *e); /* stats_record.c */

/* ---- the store (env.c, directory.c, lock.c, memdir.c) ---------------------------------------- */

/* Maximum wait for writer.lock when a database is opened or backed up. */
enum { FORMAT_TIMEOUT_MS = 5000 };

struct store {
    char *path;
    bool memory, read_only;
    /* no write permission: readers hold a shared lock on writer.lock, not an LMDB reader slot */
    bool no_lock;
    MDB_env *env;
    page_guard guard;
    uint32_t format;     /* of the commit format_txn - 1 */
    uint64_t format_txn; /* 0: not read yet */
    size_t map_bytes;
    dev_t device;     /* of the database's directory */
    ino_t inode;      /* of the database's directory */
    store *next_open; /* in the list of this process's open stores */
    int lock_fd;      /* writer.lock; -1: none */
    int owner_fd;     /* owner.lock of a :memory: database; -1: none */
    MDB_dbi catalog_dbi, meta_dbi;
    MDB_dbi tree_dbi[TREES_MAX]; /* handles of trees by number; 0: not open */
    snapshot *snap;              /* the catalog loaded last */
    MDB_txn *idle_reader;        /* a reset read transaction for the next reader, or NULL */
    txn *open_txns;              /* list of open transactions */
    struct cache *cache;         /* NULL: not yet opened */
    store_options options;       /* its texts are owned by the store */
};

/* Open and close tables.mdb of a store whose options are set. */
int tables_open(store *s, err *e);
/* Verifies what LMDB reads first, opens the two fixed trees, and finds LMDB's map for the guard.
 * Must be called again after the map was resized. *empty (may be NULL): a new file without trees. */
int guard_attach(store *s, bool *empty, err *e);
void tables_close(store *s);

/* Creates the directory if there is none; ERR_CORRUPT, ERR_UNSUPPORTED or ERR_IO unless it can hold
 * a database. Sets s->device and s->inode. */
int directory_prepare(store *s, err *e);
/* fsync of a directory and its parent: LMDB syncs the bytes of a file, not its name. */
int directory_sync(const char *directory, err *e);
/* Returns a copy of the path without trailing slashes, on the heap. */
char *path_without_slashes(const char *path);
/* Appends a path in quotes, as a word of a shell command. */
void append_path(buf *b, const char *path);
/* Returns the name of a network file system, found by statfs's f_type; NULL for other file
 * systems. */
const char *fs_network_name(long magic);

/* Makes a new directory, for a copy that gets the name `directory` when it is complete. A killed copy
 * of an earlier process with the same pid may have left a directory of the same name, so several
 * names are tried. -1: errno. */
int part_create(const char *directory, buf *part);

/* Copies what is sound of the store's database, or of the one in the directory `from`, to the empty
 * database `to`: see store_recover. */
int tables_recover(store *s, const char *from, store *to, const atomic_bool *cancel, buf *report,
                   bool *whole, err *e);

/* POSIX locks on writer.lock, exclusive and shared. ERR_BUSY after the timeout; ERR_CANCELLED. */
int writer_lock(store *s, const txn_wait *wait, err *e);
void writer_unlock(store *s);
int reader_lock(store *s, const txn_wait *wait, err *e);

/* Creates a private directory under $TMPDIR, to be removed by memdir_remove. *owner_fd holds the
 * directory's lock until memdir_remove or the end of the process; see memdir_sweep. */
int memdir_create(char **path, int *owner_fd, err *e);
void memdir_remove(const char *path, int owner_fd);
void memdir_sweep(void); /* removes the directories of dead processes */
#endif
