/*
 * storage.h - bytes on disk: tables, indexes, catalog and transactions in LMDB; CSV files; the KV
 * and answer cache.
 *
 *   store   one database: a directory with tables.mdb, cache.mdb, writer.lock; owns both LMDB
 *           environments
 *   txn     one transaction on tables.mdb with a snapshot of the catalog; owned by its caller, ends
 *           in commit or abort
 *   catalog immutable description of all objects as a transaction sees them; reference-counted, so
 *           that a statement can keep it after the transaction
 *
 * Thread rule: a store's transactions belong to one thread (the db's worker); cache_* may be called
 * from any thread. Ownership: cells that a scan or lookup returns point into the transaction's map
 * and live until the transaction's next write or its end; callers that keep them copy. Invariant: a
 * committed row survives a kill at any moment; losing cache.mdb loses nothing else.
 */
#ifndef KVASIR_STORAGE_H
#define KVASIR_STORAGE_H

#include <stdatomic.h>

#include "storage/base.h"

/* ---- the store ------------------------------------------------------------------------------- */

typedef struct store store;

typedef struct store_options {
    /* a directory; NULL or ":memory:": a private one
     * under $TMPDIR, without fsync, removed at close */
    const char *path;
    bool read_only;
    bool must_exist;
    size_t cache_bytes; /* budget of cache.mdb; 0: 4 GiB */
    /* NULL: beside the tables; in memory or read-only: the XDG cache (DIALECT 1) */
    const char *cache_path;
    /* of tables.mdb, the largest it can grow; 0: 256 GiB, or what the system grants */
    size_t map_bytes;
} store_options;

/* Opens or creates a database. ERR_IO, ERR_CORRUPT (not a kvasir database, with what was found),
 * ERR_UNSUPPORTED (a newer format version; a network file system, by name). Sweeps orphaned
 * :memory: directories and clears stale readers. */
int store_open(const store_options *options, store **out, err *e);
void store_close(store *s); /* NULL is fine; aborts what is open */
const char *store_path(const store *s);
bool store_is_memory(const store *s);
bool store_is_read_only(const store *s);
/* A compacted copy of tables.mdb as a new database directory, which is there once the copy is whole
 * and on the disk. ERR_CANCELLED soon after *cancel is true (NULL: never); ERR_IO, ERR_FULL. */
int store_backup(store *s, const char *directory, const atomic_bool *cancel, err *e);

/* ---- the catalog ----------------------------------------------------------------------------- */

typedef struct column_def {
    str name;
    value_type type;
    bool not_null;
    str default_sql; /* text of the DEFAULT expression; n = 0: none */
    str check_sql;   /* text of the column's CHECK; n = 0: none */
} column_def;

/* An index on columns of a table. The primary key is the index with
 * `primary` set, unless it is a single INTEGER column: then the column
 * is the rowid itself (table_def.rowid_column) and needs no index. */
typedef struct index_def {
    uint32_t id;
    str name;
    bool unique, primary;
    int ncolumns;
    int *columns; /* positions in the table */
} index_def;

typedef struct table_def {
    uint32_t id;
    str name;
    int ncolumns;
    column_def *columns;
    int rowid_column; /* the INTEGER PRIMARY KEY column, or -1 */
    int nindexes;
    index_def *indexes;
    int nchecks;
    str *checks;      /* table-level CHECK expressions, as text */
    uint64_t version; /* raised by every commit that changed the table's rows or shape */
} table_def;

typedef struct view_def {
    str name;
    int ncolumns; /* 0: as the query names them */
    str *columns;
    str sql; /* the SELECT */
} view_def;

typedef struct model_def {
    str name;
    str source; /* a path, or test:hash */
} model_def;

typedef struct catalog {
    int ntables, nviews, nmodels;
    const table_def *tables; /* by name, bytewise after lower-casing */
    const view_def *views;
    const model_def *models;
} catalog;

/* Names are compared without ASCII case. NULL when absent. */
const table_def *catalog_table(const catalog *c, str name);
const view_def *catalog_view(const catalog *c, str name);
const model_def *catalog_model(const catalog *c, str name);
const index_def *catalog_index(const catalog *c, str name, const table_def **table);

/* ---- transactions ---------------------------------------------------------------------------- */

typedef struct txn txn;

/* How long and with what patience a write transaction waits for another process's. */
typedef struct txn_wait {
    int busy_timeout_ms;
    const atomic_bool *cancel; /* NULL: not cancellable */
} txn_wait;

/* Begins a snapshot (write = false) or takes writer.lock and begins a write transaction. ERR_BUSY
 * names the holder's pid; ERR_CANCELLED; ERR_IO for a read-only database. */
int txn_begin(store *s, bool write, const txn_wait *wait, txn **out, err *e);
int txn_commit(txn *t, err *e); /* frees t in every case; on failure nothing was written */
void txn_abort(txn *t);         /* frees t; NULL is fine */
bool txn_is_write(const txn *t);
/* A statement inside a write transaction: everything since
 * savepoint is undone or kept as one. At most one is open. */
int txn_savepoint(txn *t, err *e);
int txn_release(txn *t, err *e);
void txn_rollback_to(txn *t);
/* The catalog as this transaction sees it, its own changes included; valid until the next catalog
 * change or the end, unless it is retained. While nothing was committed two transactions of a store
 * see the same object. */
const catalog *txn_catalog(txn *t);
/* Keeps a catalog of txn_catalog, unchanged, until as many calls of catalog_release. Belongs to the
 * thread of the store's transactions. */
const catalog *catalog_retain(const catalog *c);
void catalog_release(const catalog *c); /* NULL is fine */

/* Catalog changes; need a write transaction. Definitions
 * are copied. ERR_BIND: the name is taken, or absent. */
int catalog_create_table(txn *t, const table_def *def,
                         err *e); /* ids and version are assigned; indexes[] of def are made too */
int catalog_drop_table(txn *t, str name, err *e);
/* Rewrites the definition; the rows are rewritten for added (NULL or `fill`) and dropped columns:
 * ERR_CANCELLED soon after *cancel is true (NULL: never). */
int catalog_add_column(txn *t, str table, const column_def *column, value fill,
                       const atomic_bool *cancel, err *e);
int catalog_drop_column(txn *t, str table, int column, const atomic_bool *cancel, err *e);
int catalog_rename_table(txn *t, str from, str to, err *e);
/* `renamed`: the table with the column's new name, there and in the texts of its CHECKs. */
int catalog_rename_column(txn *t, str table, int column, const table_def *renamed, err *e);
/* Builds the index from the rows; ERR_CONSTRAINT names the first value that is there twice;
 * ERR_CANCELLED as above. */
int catalog_create_index(txn *t, str table, const index_def *def, const atomic_bool *cancel,
                         err *e);
int catalog_drop_index(txn *t, str name, err *e);
int catalog_create_view(txn *t, const view_def *def, bool or_replace, err *e);
int catalog_drop_view(txn *t, str name, err *e);
int catalog_create_model(txn *t, const model_def *def, bool or_replace, err *e);
int catalog_drop_model(txn *t, str name, err *e);

/* Small facts kept beside the catalog (field orders,
 * learned output lengths, statistics): opaque bytes by key. */
int meta_get(txn *t, str key, str *out, bool *found, err *e);
int meta_put(txn *t, str key, str bytes, err *e);
int meta_delete_prefix(txn *t, str prefix, err *e);

/* ---- rows ------------------------------------------------------------------------------------ */

/* Inserts a row: ncolumns values of the columns' types or NULL. NOT NULL,
 * primary key and UNIQUE are checked here (ERR_CONSTRAINT names table,
 * column and value); CHECK and DEFAULT are exec's. *rowid: the row's. */
int table_insert(txn *t, const table_def *def, const value *row, int64_t *rowid, err *e);
/* Puts `row` in the place of the row at rowid, by which it may get another (rowid_column). Errors as
 * table_insert's. */
int table_update(txn *t, const table_def *def, int64_t rowid, const value *row, err *e);
int table_delete(txn *t, const table_def *def, int64_t rowid, err *e); /* its index entries, too */
/* Deletes all rows, without reading them; *count: how many there were. */
int table_clear(txn *t, const table_def *def, uint64_t *count, err *e);
/* The row, or *found = false. `row` has ncolumns entries. */
int table_get(txn *t, const table_def *def, int64_t rowid, value *row, bool *found, err *e);
/* The row that stands in the way of inserting `row` by a unique index (or the primary key) whose
 * columns are `columns` (any, when ncolumns is 0), for ON CONFLICT. A row that could stand nowhere
 * (NOT NULL) is refused, as table_insert does. */
int table_find_conflict(txn *t, const table_def *def, const value *row, const int *columns,
                        int ncolumns, int64_t *rowid, bool *found, err *e);
int table_row_count(txn *t, const table_def *def, uint64_t *out, err *e); /* exact, reads no row */

/* One bound on an index scan's columns; a bound with
 * n = 0 is open. Values are of the columns' types. */
typedef struct scan_bound {
    const value *values;
    int n; /* leading index columns that are bound */
    bool inclusive;
    bool not_null; /* a low bound by index: the column behind these is not NULL either */
} scan_bound;

typedef struct scan_spec {
    const table_def *table;
    const index_def *index; /* NULL: by rowid; bounds then are one INTEGER */
    scan_bound low, high;
    /* the highest keys first; rows of an index that are equal in all its columns still come by
     * ascending rowid */
    bool descending;
    int first_rows;     /* > 0: so many are enough of the first batch, the next ones grow */
    const int *columns; /* the columns to decode, in output order; -1 is the rowid */
    int ncolumns;
    const atomic_bool *cancel; /* NULL: not cancellable; looked at within batches of an index */
} scan_spec;

typedef struct table_scan table_scan;

/* Opens a scan before its first row; the spec is copied, the transaction must outlive the scan. */
int scan_open(txn *t, const scan_spec *spec, table_scan **out, err *e);
/* Fills `out` (columns as in the spec, allocated in out->mem by the scan, which resets nothing)
 * with up to BATCH_ROWS rows; rows = 0 at the end. In key order; NULLs are lowest and are found
 * only by low bounds that are open or NULL. */
int scan_next(table_scan *s, batch *out, err *e);
void scan_close(table_scan *s); /* NULL is fine */

/* Rowids on the heap. Zero-initialise; free with rowid_list_free. */
typedef struct rowid_list {
    int64_t *ids;
    size_t n, capacity;
} rowid_list;

int rowid_list_add(rowid_list *l, int64_t rowid, err *e); /* ERR_FULL */
void rowid_list_sort(rowid_list *l);                      /* ascending, each once */
int rowid_compare(const void *a, const void *b);          /* of two int64_t, for qsort */
void rowid_list_free(rowid_list *l);
/* Points an open scan at other bounds of its index or of the rowids, and at their beginning. */
int scan_rebind(table_scan *s, const scan_bound *low, const scan_bound *high, err *e);
/* Appends the rowids of an index scan's entries, from
 * where it stands to its high bound, in key order. */
int scan_rowids(table_scan *s, rowid_list *out, err *e);
/* From now on the scan gives the rows listed, in the list's order, but for those that are not
 * there; the list stays the caller's and must outlive the scan or its next scan_rebind. */
void scan_listed(table_scan *s, const rowid_list *rows);

/* ---- statistics ------------------------------------------------------------------------------ */

/* A cell of the joint sample: rows of equal value have equal ids, 0, 1, … within a column. */
#define JOINT_NULL UINT32_MAX
typedef struct joint_cell {
    uint32_t id, bytes;
} joint_cell;

typedef struct column_stats {
    double distinct, null_fraction, average_bytes, p90_bytes;
    value low, high;
    int ncommon; /* most common values, at most 8 */
    value common[8];
    double common_fraction[8];
    joint_cell *joint; /* njoint cells, row by row the same rows in every column */
} column_stats;

typedef struct table_stats {
    uint64_t rows;
    bool analyzed;         /* false: only `rows` is known */
    uint64_t counted_rows; /* those the rest was counted over */
    int ncolumns, njoint;
    column_stats *columns;
} table_stats;

/* Reads the whole table and keeps the result. */
int stats_analyze(txn *t, const table_def *def, const atomic_bool *cancel, err *e);
/* What is known: the row count always (exact), the rest if it was counted, by ANALYZE or while many
 * rows were written; distinct values are scaled to the rows of now. The joint sample only where it
 * is asked for: reading it costs more than a look-up by key. Allocated in `a`. */
int stats_get(txn *t, const table_def *def, bool joint, arena *a, table_stats *out, err *e);

/* Counting rows while they are written: resume, feed each batch
 * with its rows' ids, keep. Resume takes up what is known of the
 * rows already there, and reads them where nobody has counted them. */
typedef struct stats_feed stats_feed;
int stats_feed_resume(txn *t, const table_def *def, stats_feed **out, err *e);
void stats_feed_rows(stats_feed *f, const batch *rows,
                     const int64_t *rowids); /* columns as the table's */
int stats_feed_keep(stats_feed *f, txn *t, const table_def *def, err *e);
void stats_feed_free(stats_feed *f); /* NULL is fine */

/* ---- CSV ------------------------------------------------------------------------------------- */

/* 0 and AUTO mean: find out from the records in the first MiB. */
typedef enum csv_header { CSV_HEADER_AUTO, CSV_HEADER_YES, CSV_HEADER_NO } csv_header;
typedef struct csv_options {
    char delimiter; /* ',', '\t', ';', '|' are tried */
    csv_header header;
    str null_text;             /* an unquoted cell equal to this is NULL; default: the empty text */
    bool all_text;             /* no type sniffing */
    bool own_types;            /* the caller has types of its own: no hint that they were guessed */
    const atomic_bool *cancel; /* looked at while a pipe gives nothing; NULL: not cancellable */
} csv_options;

typedef struct csv csv;

/* Opens a CSV or TSV file (RFC 4180, CRLF or LF, gzip by
 * its magic, "-" is standard input). ERR_IO names the file. What comes once, as from a pipe, can be
 * opened again as long as no row was read; waiting for it ends with ERR_CANCELLED. */
int csv_open(const char *path, const csv_options *options, csv **out, err *e);
void csv_close(csv *c); /* NULL is fine */
int csv_column_count(const csv *c);
str csv_column_name(const csv *c, int column); /* header, or column1, column2, …; made distinct */
value_type csv_column_type(const csv *c, int column); /* sniffed: BOOLEAN, INTEGER, REAL or TEXT */
/* Cells so far that were not UTF-8: each such byte was
 * read as Windows-1252. *first_line (may be NULL): where. */
int64_t csv_recoded(const csv *c, int64_t *first_line);
/* Reads up to BATCH_ROWS rows (fewer, where there are thousands of columns) as `types` (ncols
 * entries, one a column of the file) into `out`, allocated in out->mem; rows = 0 at the end. A cell
 * that does not convert, and a row of another width, are errors that name file, line, column and value (ERR_TYPE, ERR_CORRUPT). `lines` (may be
 * NULL): the line each row starts on. */
int csv_next(csv *c, const value_type *types, batch *out, int64_t *lines, err *e);
/* Appends one row as CSV. NULL is null_text, usually empty; a value that reads the same is quoted,
 * and so is "". A BLOB is \x00ff, which csv_next reads into a column of that type. */
void csv_write_row(buf *out, const value *row, int n, char delimiter, str null_text);

/* ---- the cache: opaque KV blocks and answers by 128-bit key ---------------------------------- */

/* Values are checked as far as their checksum and the identity
 * bytes that the caller gave; what is off is a miss, is deleted and
 * counted. Nothing here ever fails a query: get says no, put drops. */
typedef struct cache cache;
typedef enum cache_space { CACHE_KV, CACHE_ANSWERS } cache_space;
typedef enum cache_policy { CACHE_FIFO, CACHE_LRU, CACHE_COST } cache_policy;

/* Of one space; hits and misses are this process's. */
typedef struct cache_space_stats {
    uint64_t entries, bytes, hits, misses, pinned, pinned_bytes;
} cache_space_stats;

typedef struct cache_stats {
    uint64_t blocks, answers, bytes, budget_bytes;
    uint64_t hits, misses, corrupt, evicted, dropped, written;
    bool writing; /* false after a failed write or on a read-only directory */
    char why_not[256];
    cache_space_stats of[2]; /* by cache_space */
} cache_stats;

/* What a name's pins came to: records, and stored blocks among them. */
typedef struct cache_pins {
    uint64_t records, blocks, bytes;
} cache_pins;

/* One stored value, as the index knows it. */
typedef struct cache_item {
    hash128 key, parent;
    uint64_t bytes, used; /* used: larger is later */
    uint32_t hits, children;
    double cost;
} cache_item;

/* The store's cache, opened (and checked after an unclean end) on first use; NULL only when it
 * cannot be used at all, with the reason in *e. */
cache *store_cache(store *s, err *e);
/* Copies the value of `key` into `out` (exactly `bytes` for KV) or appends it to `answer`.
 * `identity` must equal what was put. */
bool cache_get(cache *c, cache_space space, hash128 key, str identity, void *out, size_t bytes,
               buf *answer);
/* Has the system read the value's pages ahead of a cache_get; false: there is none. */
bool cache_prefetch(cache *c, cache_space space, hash128 key);
/* Queues a write; never waits for the disk. `cost` in ms
 * to compute again, `parent` the block above (zero: none). */
void cache_put(cache *c, cache_space space, hash128 key, str identity, hash128 parent, double cost,
               str value);
void cache_flush(cache *c); /* waits until what was put is committed */
/* Sets the budget (at least 1 MiB) and the eviction policy. False: there is no address space for
 * the larger budget, and the old one is kept. */
bool cache_configure(cache *c, size_t budget_bytes, cache_policy policy);
int cache_clear(cache *c, cache_space space, err *e);
void cache_get_stats(cache *c, cache_stats *out);
/* True once a write has failed, and from then on; appends the reason. A cache that was opened
 * read-only has not failed. */
bool cache_failed(cache *c, buf *why);
/* Keeps those of the KV blocks that are stored from being evicted
 * until the name is unpinned or the cache cleared. ERR_FULL, and
 * nothing changes, where pins would take more than half of the budget. */
int cache_pin(cache *c, str name, const hash128 *blocks, size_t n, cache_pins *out, err *e);
int cache_unpin(cache *c, str name, cache_pins *out, err *e);
/* All values of a space, in no order; returns their number. */
size_t cache_items(cache *c, cache_space space, arena *a, cache_item **out);
/* Appends the identity that a value was stored with (not its
 * checksum's judgement: for showing, not for answering). */
bool cache_identity(cache *c, cache_space space, hash128 key, buf *out);
/* Deletes the values whose identity begins with `identity`; *deleted (may be NULL): how many. */
int cache_clear_matching(cache *c, cache_space space, str identity, uint64_t *deleted, err *e);
/* Opaque bytes by key, stored in the cache's file and lost with it. cache_meta_get appends them;
 * false: there are none, or they are damaged. */
bool cache_meta_get(cache *c, str key, buf *out);
int cache_meta_put(cache *c, str key, str bytes, err *e);
/* Walks every page of a cache.mdb that nobody has open, without LMDB: 0,
 * or ERR_CORRUPT with what is wrong and on which page. Every opening that
 * is alone does this first, so that LMDB never meets a damaged page. */
int cache_check(const char *path, err *e);
int cache_check_tree(const char *path); /* the same, as 0 or 1 */

#endif
