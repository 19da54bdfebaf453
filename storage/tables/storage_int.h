/*
 * storage_int.h - what the files of storage/ share, and the format of tables.mdb.
 *
 * tables.mdb is one LMDB environment of named trees (all without flags):
 *
 *   "catalog"   one record per object; integers little-endian, texts with a u32 length
 *                 H           format version, schema cookie, next object id
 *                 T id(be)    table: name, tree, columns, indexes (each with its tree), checks
 *                 V id(be)    view        M id(be)  model
 *                 S id(be)    state of a table: its version counter
 *   "meta"      small facts by key; statistics are under "stats:<table id>" and "counts:<table id>"
 *   "s<n>"      a tree: the rows of one table or the entries of one index. A dropped object's tree
 *               is emptied and its number used again, because closing LMDB handles inside nested
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
 * Slots are at offsets that follow from the definition alone, so that a scan reads only the columns
 * it wants. A TEXT cell starts where the TEXT or BLOB column before it ends.
 *
 * An index entry has its key and no value:
 *
 *   | cell, cell, …                 | rowid (8) |   at most 400 bytes of cells
 *   | first 400 bytes | XXH3-128    | rowid (8) |   else; 424 bytes long, which no other entry is
 *
 *   cell: 0 for NULL, else 1 and INTEGER: 8 bytes, sign flipped; REAL: 8 bytes, ordered; BOOLEAN: 1
 *   byte; TEXT, BLOB: bytes with 0 written as 0 255, closed by 0 0.
 *
 * Cells are prefix-free, so two different keys differ within the shorter one.
 */
#ifndef KVASIR_STORAGE_INT_H
#define KVASIR_STORAGE_INT_H

#include <lmdb.h>
#include <sys/types.h>

#include "storage/containers.h"
#include "storage/storage.h"

enum {
    FORMAT_VERSION = 1,
    TREES_MAX = 2048,
    COLUMNS_MAX = 2000,
    KEY_CUT = 400,
    KEY_HASH = 16,
    KEY_ROWID = 8,
    KEY_NOT_NULL = 1, /* the first byte of a cell; of NULL it is 0 */
    KEY_CUT_BYTES = KEY_CUT + KEY_HASH + KEY_ROWID
};

#define ROW_BYTES_MAX ((size_t)1 << 30)

/* ---- rows (row.c) ---------------------------------------------------------------------------- */

typedef struct row_layout {
    int ncolumns, rowid_column;
    uint32_t slots_end; /* where the text area begins */
    const column_def *columns;
    uint32_t *slot; /* offset of each column's slot; 0: the rowid column */
    /* TEXT, BLOB: offset of the slot that holds its start; 0: it starts the text area. */
    uint32_t *text_start;
} row_layout;

void row_layout_init(row_layout *l, arena *a, const table_def *def);
size_t row_size(const row_layout *l, const value *row);
void row_encode(const row_layout *l, const value *row, uint8_t *out);
/* False when the bytes cannot be a row of this layout. */
bool row_check(const row_layout *l, MDB_val bytes);
int row_decode(const row_layout *l, MDB_val bytes, int64_t rowid, value *row, err *e);
int row_corrupt(err *e, int64_t rowid);

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
/* The entry of a row: cells, cut and hashed when long, then the rowid. Replaces b. */
void key_make(buf *b, const table_def *def, const index_def *index, const value *row,
              int64_t rowid);
static inline bool key_is_cut(MDB_val key) {
    return key.mv_size == KEY_CUT_BYTES;
}
static inline int64_t key_rowid(MDB_val key) {
    return rowid_get((const char *)key.mv_data + key.mv_size - KEY_ROWID);
}

/* ---- the catalog in memory (catalog.c) ------------------------------------------------------- */

typedef struct table_info {
    const table_def *def;
    uint32_t tree;         /* of the rows */
    uint32_t *index_trees; /* as def->indexes */
    row_layout layout;
} table_info;

/* One loaded catalog, reference-counted: shared by the store, its transactions and whoever retained
 * it. */
typedef struct snapshot {
    int refs;
    arena *mem;
    uint64_t cookie;
    uint64_t version_txn; /* the LMDB transaction whose version counters are in tables[] */
    uint32_t next_id;
    catalog catalog;
    table_def *tables; /* catalog.tables, writable for the counters */
    table_info *infos; /* as tables */
    uint32_t *view_ids, *model_ids;
} snapshot;

void snapshot_release(snapshot *s); /* NULL is fine */

/* The records' bytes; readers copy into `a` and are false when the bytes are damaged. */
void catalog_write_table(buf *b, const table_def *def, uint32_t tree, const uint32_t *index_trees);
bool catalog_read_table(MDB_val data, arena *a, table_def *def, uint32_t *tree,
                        uint32_t **index_trees);
void catalog_write_view(buf *b, const view_def *def);
bool catalog_read_view(MDB_val data, arena *a, view_def *def);
void catalog_write_model(buf *b, const model_def *def);
bool catalog_read_model(MDB_val data, arena *a, model_def *def);
int catalog_raise_cookie(txn *t, uint32_t next_id, err *e);
int catalog_initialise(store *s, MDB_txn *mdb, err *e);
/* ERR_CORRUPT or ERR_UNSUPPORTED unless the header is one this build reads. */
int catalog_check_header(const char *path, MDB_val header, uint64_t *cookie, uint32_t *next_id,
                         err *e);

/* The definition as this transaction has it. ERR_BIND
 * when the table is gone or has another shape. */
int table_resolve(txn *t, const table_def *def, const table_info **out, err *e);

/* ---- transactions (txn.c) -------------------------------------------------------------------- */

typedef struct txn_tree {
    MDB_cursor *cursor; /* open on the innermost LMDB transaction, or NULL */
    int64_t last_rowid;
    bool last_known; /* last_rowid is the tree's last key; last_empty: it has none */
    bool last_empty;
} txn_tree;

typedef struct undo_entry {
    uint32_t table_id;
    int64_t rowid;
    uint8_t *bytes; /* the row as it was; NULL: there was none */
    size_t nbytes;
} undo_entry;

enum { UNDO_MAX = 64 };

/* An LMDB handle opened by a transaction: closed again by LMDB if that aborts. */
typedef struct opened_handle {
    uint32_t tree;
    bool in_child;
} opened_handle;

/*
 * A savepoint begins as a short undo log, because an LMDB child transaction costs ten times a
 * single-row INSERT. After UNDO_MAX rows, before any other kind of change, or near the end of the
 * map, a child transaction takes over; rolling back then aborts the child and replays the log.
 */
struct txn {
    store *store;
    txn *next_open;
    bool write, savepoint;
    bool broken;         /* a statement could not be undone: commit is refused */
    MDB_txn *root, *mdb; /* mdb: the child while there is one, else root */
    snapshot *snap;
    snapshot *retired; /* the one before the last catalog change: callers may still read it */
    snapshot *savepoint_snap; /* as it was at the savepoint */
    txn_tree *trees;
    uint32_t ntrees;
    opened_handle *opened;
    int nopened, opened_cap;
    table_scan *scans;
    uint64_t epoch;  /* raised by every write: what scans read may have moved */
    uint32_t *dirty; /* ids of the tables that changed */
    int ndirty, dirty_cap;
    undo_entry undo[UNDO_MAX];
    int nundo;
    arena *undo_mem;
    size_t used_bytes; /* upper estimate of the map in use */
    buf key;           /* scratch */
    arena *row_mem;    /* scratch of one row operation */
};

/* Makes t->snap the catalog as the transaction sees it now (catalog.c). */
int txn_load_catalog(txn *t, err *e);
/* The cursor of a tree, opened on first use. */
int txn_cursor(txn *t, uint32_t tree, MDB_cursor **out, err *e);
int txn_dbi(txn *t, uint32_t tree, bool create, MDB_dbi *out, err *e);
void txn_close_cursors(txn *t);
/* Takes all that is in a tree away; txn_before_change was called. */
int txn_empty_tree(txn *t, uint32_t tree, err *e);
/* Before any change other than of one row: the savepoint, if any, becomes a child transaction. */
int txn_before_change(txn *t, err *e);
/* Before one row is written: logs its old bytes (NULL: none), or makes the child. */
int txn_before_row(txn *t, const table_info *info, int64_t rowid, const MDB_val *old,
                   size_t new_bytes, err *e);
void txn_mark_dirty(txn *t, uint32_t table_id);
int txn_need_write(const txn *t, err *e);

/* Translates an LMDB or errno status. `what` reads like "cannot write the table". */
int lmdb_error(err *e, int rc, const char *what);

/* mdb_env_create, with a word to the user where LMDB gives up on a damaged file. */
int lmdb_env_create(MDB_env **out);

/* Gives an environment without transactions another map; 0: one that holds what other processes have
 * written. An LMDB or errno status; on failure the old map stays, where mdb_env_set_mapsize leaves
 * none, and the next transaction would read at address zero. */
int lmdb_map_resize(MDB_env *env, size_t bytes);

/* LMDB maps its lock file, which it makes as one hole: with the disk full, the first touch of it
 * would be a SIGBUS. This gives the lock file of the environment `file` its blocks beforehand. A
 * file that has a size keeps it: other processes count on it. An errno value, 0 for none. */
enum { READERS_MAX = 510, LOCK_FILE_BYTES = 36 << 10 };
int lmdb_lock_file_reserve(const char *file, mode_t mode);

/* ---- tables (table.c, index.c) --------------------------------------------------------------- */

/* Makes the row at rowid equal to the bytes (NULL: absent), indexes included, checking nothing. */
int table_restore(txn *t, const table_info *info, int64_t rowid, const uint8_t *bytes,
                  size_t nbytes, err *e);
int table_put_bytes(txn *t, const table_info *info, int64_t rowid, const uint8_t *bytes, size_t n,
                    err *e);
int index_add_row(txn *t, const table_info *info, int index, const value *row, int64_t rowid,
                  err *e);
int index_remove_row(txn *t, const table_info *info, int index, const value *row, int64_t rowid,
                     err *e);
/* A row other than `self` (when has_self) whose index columns equal row's. */
int index_find_equal(txn *t, const table_info *info, int index, const value *row, bool has_self,
                     int64_t self, int64_t *rowid, bool *found, err *e);
int index_build(txn *t, const table_info *info, int index, const atomic_bool *cancel, err *e);
/* Unique over exactly these columns, in any order; over any when ncolumns is 0. */
bool index_is_unique_on(const index_def *index, const int *columns, int ncolumns);
int index_violation(const table_def *def, const index_def *index, const value *row, err *e);

/* ---- scans (scan.c) -------------------------------------------------------------------------- */

table_scan *scan_next_open(const table_scan *s);
void scan_detach(table_scan *s); /* its LMDB cursors close; it seeks again when asked for more */
void scan_orphan(table_scan *s); /* its transaction ends */

int stats_forget(txn *t, uint32_t table_id, err *e); /* stats_record.c */

/* ---- the store (env.c, lock.c, memdir.c) ----------------------------------------------------- */

struct store {
    char *path;
    bool memory, read_only;
    /* A directory we cannot write to: readers hold writer.lock shared instead of an LMDB slot. */
    bool no_lock;
    MDB_env *env;
    size_t map_bytes;
    dev_t device;
    ino_t inode;
    store *next_open; /* of this process */
    int lock_fd, owner_fd;
    MDB_dbi catalog_dbi, meta_dbi;
    MDB_dbi tree_dbi[TREES_MAX]; /* 0: not open */
    snapshot *snap;
    MDB_txn *idle_reader;
    txn *open_txns;
    struct cache *cache;
    store_options options; /* its texts are owned */
};

int writer_lock(store *s, const txn_wait *wait, err *e);
void writer_unlock(store *s);
int reader_lock(store *s, const txn_wait *wait, err *e);

/* A private directory under $TMPDIR, removed by memdir_remove; *owner_fd holds its lock as long
 * as the process lives. */
int memdir_create(char **path, int *owner_fd, err *e);
void memdir_remove(const char *path, int owner_fd);
void memdir_sweep(void);
/* The name of a file system that is over a network, else NULL. */
const char *fs_network_name(long magic);

void cache_close(struct cache *c); /* NULL is fine */

/* ---- bytes (catalog.c, stats_record.c) ------------------------------------------------------- */

void put_u8(buf *b, uint8_t v);
void put_u32(buf *b, uint32_t v);
void put_u64(buf *b, uint64_t v);
void put_str(buf *b, str s);

/* Reads what put_* wrote; past the end everything is zero and `bad` is set. */
typedef struct bytes_reader {
    const uint8_t *p, *end;
    bool bad;
} bytes_reader;

uint8_t get_u8(bytes_reader *r);
uint32_t get_u32(bytes_reader *r);
uint64_t get_u64(bytes_reader *r);
str get_str(bytes_reader *r);

#endif
