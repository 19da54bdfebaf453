/*
 * storage.h - files: tables, indexes, catalog and transactions in LMDB; CSV; the KV and answer
 * cache.
 *
 *   store    one database: a directory with tables.mdb, cache.mdb, writer.lock; owns both LMDB
 *            environments
 *   txn      one transaction on tables.mdb with a snapshot of the catalog; its caller ends it with
 *            txn_commit or txn_abort
 *   catalog  the definitions of all tables, views and models in one transaction; immutable and
 *            reference-counted, so that a statement can keep it after the transaction
 *
 * Threads: all transactions of a store belong to one thread (the db's worker); cache_* may be
 * called from any thread. Ownership: cells returned by a scan or look-up point into the map and are
 * valid until the transaction's next write or its end. Invariants: a committed row survives a kill
 * at any moment; losing cache.mdb loses no row.
 */
#ifndef KVASIR_STORAGE_H
#define KVASIR_STORAGE_H

#include <stdatomic.h>

#include "storage/base.h"

/* ---- the store ------------------------------------------------------------------------------- */

typedef struct store store;

typedef struct store_options {
    /* the directory; NULL or ":memory:": a private one in $TMPDIR, without fsync, removed at
     * close */
    const char *path;
    bool read_only;
    bool must_exist;
    size_t cache_bytes; /* budget of cache.mdb; 0: 4 GiB */
    /* the cache's file; NULL: cache.mdb in the directory, or in the user's XDG cache directory if
     * the database is in memory or read-only */
    const char *cache_path;
    size_t map_bytes; /* maximum size of tables.mdb; 0: 256 GiB, less under `ulimit -v` */
} store_options;

/* Opens or creates a database. ERR_IO, ERR_CORRUPT (not a kvasir database), ERR_UNSUPPORTED
 * (another format version; a network file system). Also removes the :memory: directories of dead
 * processes and LMDB's records of dead readers. */
int store_open(const store_options *options, store **out, err *e);
void store_close(store *s); /* aborts open transactions; NULL is fine */
const char *store_path(const store *s);
bool store_is_memory(const store *s);
bool store_is_read_only(const store *s);
/* Copies tables.mdb, compacted, into a new database directory, which appears only once the copy is
 * complete and synced. ERR_CANCELLED, ERR_IO, ERR_FULL. */
int store_backup(store *s, const char *directory, const atomic_bool *cancel, err *e);

/* ---- the catalog ----------------------------------------------------------------------------- */

typedef struct column_def {
    str name;
    value_type type;
    bool not_null;
    str default_sql; /* text of the DEFAULT expression; n = 0: none */
    str check_sql;   /* text of the column's CHECK; n = 0: none */
} column_def;

/* An index. A primary key of a single INTEGER column is the rowid itself (table_def.rowid_column)
 * and has no index; any other primary key is the index with `primary` set. */
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
    uint64_t version; /* incremented by every commit that changes its rows or columns */
} table_def;

typedef struct view_def {
    str name;
    int ncolumns; /* 0: the names of the query's columns */
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

/* Look-up by name, ignoring ASCII case; NULL: not found. */
const table_def *catalog_table(const catalog *c, str name);
const view_def *catalog_view(const catalog *c, str name);
const model_def *catalog_model(const catalog *c, str name);
const index_def *catalog_index(const catalog *c, str name, const table_def **table);

/* ---- transactions ---------------------------------------------------------------------------- */

typedef struct txn txn;

/* How to wait for the write transaction of another process. */
typedef struct txn_wait {
    int busy_timeout_ms;
    const atomic_bool *cancel; /* NULL: not cancellable */
} txn_wait;

/* Begins a read transaction, or locks writer.lock and begins a write transaction. ERR_BUSY names
 * the pid that holds the lock; ERR_CANCELLED; ERR_IO for a read-only database. */
int txn_begin(store *s, bool write, const txn_wait *wait, txn **out, err *e);
int txn_commit(txn *t, err *e); /* frees t in every case; on an error nothing is written */
void txn_abort(txn *t);         /* frees t; NULL is fine */
bool txn_is_write(const txn *t);
/* Statement-level rollback inside a write transaction: changes since txn_savepoint are kept or
 * undone together. At most one savepoint is open. */
int txn_savepoint(txn *t, err *e);
int txn_release(txn *t, err *e);
void txn_rollback_to(txn *t);
/* Returns the catalog as this transaction sees it, including its own changes. Unless it is
 * retained, it is valid until the next catalog change or the end of the transaction. Two
 * transactions of a store get the same object if nothing was committed in between. */
const catalog *txn_catalog(txn *t);
/* Keeps a catalog returned by txn_catalog until catalog_release has been called as often as
 * catalog_retain. Only on the thread of the store's transactions. */
const catalog *catalog_retain(const catalog *c);
void catalog_release(const catalog *c); /* NULL is fine */

/* Catalog changes, in a write transaction. Definitions are copied. ERR_BIND: the name is taken or
 * does not exist. */
/* Creates a table and the indexes of def; assigns ids and version. */
int catalog_create_table(txn *t, const table_def *def, err *e);
int catalog_drop_table(txn *t, str name, err *e);
/* This function and catalog_drop_column rewrite all rows of the table. `fill`: the new column's
 * value in existing rows. ERR_CANCELLED. */
int catalog_add_column(txn *t, str table, const column_def *column, value fill,
                       const atomic_bool *cancel, err *e);
int catalog_drop_column(txn *t, str table, int column, const atomic_bool *cancel, err *e);
int catalog_rename_table(txn *t, str from, str to, err *e);
/* `renamed`: the definition with the new name in the column and in the texts of CHECKs. */
int catalog_rename_column(txn *t, str table, int column, const table_def *renamed, err *e);
/* Builds the index. ERR_CONSTRAINT names the first duplicate of a unique index; ERR_CANCELLED. */
int catalog_create_index(txn *t, str table, const index_def *def, const atomic_bool *cancel,
                         err *e);
int catalog_drop_index(txn *t, str name, err *e);
int catalog_create_view(txn *t, const view_def *def, bool or_replace, err *e);
int catalog_drop_view(txn *t, str name, err *e);
int catalog_create_model(txn *t, const model_def *def, bool or_replace, err *e);
int catalog_drop_model(txn *t, str name, err *e);

/* Key-value store beside the catalog, for field orders, learned output lengths, statistics. Keys
 * and values are opaque bytes. */
int meta_get(txn *t, str key, str *out, bool *found, err *e);
int meta_put(txn *t, str key, str bytes, err *e);
int meta_delete_prefix(txn *t, str prefix, err *e);

/* ---- rows ------------------------------------------------------------------------------------ */

/* Inserts a row of ncolumns values, each of its column's type or NULL; sets *rowid (rowid may be
 * NULL) to its rowid. Checks NOT NULL, primary key and UNIQUE (ERR_CONSTRAINT); CHECK and DEFAULT
 * are evaluated by exec. */
int table_insert(txn *t, const table_def *def, const value *row, int64_t *rowid, err *e);
/* Replaces the row at rowid. A new value in rowid_column moves the row. Errors as table_insert. */
int table_update(txn *t, const table_def *def, int64_t rowid, const value *row, err *e);
int table_delete(txn *t, const table_def *def, int64_t rowid, err *e);
/* Deletes all rows without reading them; *count: their number. */
int table_clear(txn *t, const table_def *def, uint64_t *count, err *e);
/* Reads the row at rowid into ncolumns entries; *found = false: there is none. */
int table_get(txn *t, const table_def *def, int64_t rowid, value *row, bool *found, err *e);
/* For ON CONFLICT: finds a row that has the same unique key as `row`. Looks in the unique index or
 * primary key over exactly `columns`, or in all of them if ncolumns is 0. ERR_CONSTRAINT if `row`
 * has a NULL in a NOT NULL column. */
int table_find_conflict(txn *t, const table_def *def, const value *row, const int *columns,
                        int ncolumns, int64_t *rowid, bool *found, err *e);
int table_row_count(txn *t, const table_def *def, uint64_t *out, err *e); /* exact, constant time */

/* A bound on the leading columns of a scan's key. Values are of the columns' types. */
typedef struct scan_bound {
    const value *values;
    int n; /* number of columns bound; 0: open */
    bool inclusive;
    bool not_null; /* low bound of an index: the column after the bound ones is not NULL */
} scan_bound;

typedef struct scan_spec {
    const table_def *table;
    const index_def *index; /* NULL: scan by rowid; bounds are then one INTEGER */
    scan_bound low, high;
    bool descending;    /* by key; rows of equal index cells still by ascending rowid */
    int first_rows;     /* > 0: rows of the first batch; later batches grow to BATCH_ROWS */
    const int *columns; /* columns to decode, in output order; -1: the rowid */
    int ncolumns;
    const atomic_bool *cancel; /* checked within batches of an index scan; NULL: not cancellable */
} scan_spec;

typedef struct table_scan table_scan;

/* Opens a scan before its first row. The spec is copied, except `cancel`. */
int scan_open(txn *t, const scan_spec *spec, table_scan **out, err *e);
/* Sets `out` to the next rows in key order, at most BATCH_ROWS, with the spec's columns, allocated
 * in out->mem; rows = 0 at the end. NULLs are lowest: they are returned only if the low bound is
 * open or NULL. */
int scan_next(table_scan *s, batch *out, err *e);
void scan_close(table_scan *s); /* NULL is fine */

/* A list of rowids on the heap. Zero-initialise. */
typedef struct rowid_list {
    int64_t *ids;
    size_t n, capacity;
} rowid_list;

int rowid_list_add(rowid_list *l, int64_t rowid, err *e); /* ERR_FULL */
void rowid_list_sort(rowid_list *l);                      /* ascending, duplicates removed */
int rowid_compare(const void *a, const void *b);          /* of two int64_t, for qsort */
void rowid_list_free(rowid_list *l);
/* Restarts an open scan with other bounds. */
int scan_rebind(table_scan *s, const scan_bound *low, const scan_bound *high, err *e);
/* Appends the rowids of an index scan's remaining entries, in key order. */
int scan_rowids(table_scan *s, rowid_list *out, err *e);
/* Restarts the scan over the listed rows, in the list's order; rowids without a row are skipped.
 * The list must outlive the scan or its next scan_rebind. */
void scan_listed(table_scan *s, const rowid_list *rows);

/* ---- statistics ------------------------------------------------------------------------------ */

/* A cell of the joint sample: equal values of a column have equal ids, numbered from 0. */
#define JOINT_NULL UINT32_MAX
typedef struct joint_cell {
    uint32_t id, bytes;
} joint_cell;

typedef struct column_stats {
    double distinct, null_fraction, average_bytes, p90_bytes;
    value low, high;
    int ncommon;
    value common[8]; /* most common values, descending */
    double common_fraction[8];
    joint_cell *joint; /* [njoint] cells of the joint sample, whose rows all columns share */
} column_stats;

typedef struct table_stats {
    uint64_t rows;         /* exact */
    bool analyzed;         /* false: only `rows` is known */
    uint64_t counted_rows; /* rows at the time of counting */
    int ncolumns, njoint;
    column_stats *columns;
} table_stats;

/* ANALYZE: reads the whole table and stores its statistics. */
int stats_analyze(txn *t, const table_def *def, const atomic_bool *cancel, err *e);
/* Gets the statistics of a table, allocated in `a`. If none are stored, only `rows` is set.
 * Distinct counts are scaled to the current number of rows. `joint`: read the joint sample as well,
 * which takes longer than a look-up by key. */
int stats_get(txn *t, const table_def *def, bool joint, arena *a, table_stats *out, err *e);

/* Statistics of rows while they are written: resume, feed each batch, keep. Resume loads the counts
 * of the existing rows, or reads the table if no counts are stored. */
typedef struct stats_feed stats_feed;
int stats_feed_resume(txn *t, const table_def *def, stats_feed **out, err *e);
/* Counts the rows of a batch, which has the table's columns. */
void stats_feed_rows(stats_feed *f, const batch *rows, const int64_t *rowids);
int stats_feed_keep(stats_feed *f, txn *t, const table_def *def, err *e);
void stats_feed_free(stats_feed *f); /* NULL is fine */

/* ---- CSV ------------------------------------------------------------------------------------- */

/* 0 and AUTO: detected from the first MiB. */
typedef enum csv_header { CSV_HEADER_AUTO, CSV_HEADER_YES, CSV_HEADER_NO } csv_header;
typedef struct csv_options {
    char delimiter; /* 0: detected among ',', '\t', ';', '|' */
    csv_header header;
    str null_text;             /* an unquoted cell with this text is NULL */
    bool all_text;             /* all columns are TEXT */
    bool own_types;            /* the caller chose the types: errors do not call them guessed */
    const atomic_bool *cancel; /* checked while waiting for a pipe; NULL: not cancellable */
} csv_options;

typedef struct csv csv;

/* Opens a CSV or TSV file: RFC 4180, CRLF or LF, plain or gzipped; "-" is standard input. A pipe can
 * be opened again as long as no row was read from it. ERR_IO, ERR_CORRUPT, ERR_UNSUPPORTED (UTF-16,
 * JSON), ERR_CANCELLED. */
int csv_open(const char *path, const csv_options *options, csv **out, err *e);
void csv_close(csv *c); /* NULL is fine */
int csv_column_count(const csv *c);
str csv_column_name(const csv *c, int column); /* of the header, or column1, …; all different */
value_type csv_column_type(const csv *c, int column); /* detected: BOOLEAN, INTEGER, REAL, TEXT */
/* Returns the number of cells so far with bytes that are not UTF-8, which were read as
 * Windows-1252. Sets *first_line (first_line may be NULL) to the line of the first such cell. */
int64_t csv_recoded(const csv *c, int64_t *first_line);
/* Reads the next rows into `out`, allocated in out->mem: up to BATCH_ROWS, fewer with thousands of
 * columns; rows = 0 at the end. types[i]: the type of the file's column i. ERR_TYPE for a cell that
 * does not convert, ERR_CORRUPT for a row with another number of cells; messages name file, line,
 * column, value. lines[i]: the line where row i starts; `lines` may be NULL. */
int csv_next(csv *c, const value_type *types, batch *out, int64_t *lines, err *e);
/* Appends a row as a line of CSV, which csv_next reads back. NULL is written as null_text; the empty
 * text and a text equal to null_text are quoted; a BLOB is written as \x00ff. */
void csv_write_row(buf *out, const value *row, int n, char delimiter, str null_text);

/* ---- the cache: opaque KV blocks and answers by 128-bit key ---------------------------------- */

/* Every read compares the value's checksum and the caller's identity bytes; a value that fails is a
 * miss and is deleted. The cache never makes a query fail: errors turn reads into misses and writes
 * into drops. */
typedef struct cache cache;
typedef enum cache_space { CACHE_KV, CACHE_ANSWERS } cache_space;
typedef enum cache_policy { CACHE_FIFO, CACHE_LRU, CACHE_COST } cache_policy;

/* Figures of one space; hits and misses count this process only. */
typedef struct cache_space_stats {
    uint64_t entries, bytes, hits, misses, pinned, pinned_bytes;
} cache_space_stats;

typedef struct cache_stats {
    uint64_t blocks, answers, bytes, budget_bytes;
    uint64_t hits, misses, corrupt, evicted, dropped, written;
    bool writing;            /* false: read-only, or after a failed write */
    char why_not[256];       /* why `writing` is false */
    cache_space_stats of[2]; /* by cache_space */
} cache_stats;

/* Result of pinning or unpinning a name. */
typedef struct cache_pins {
    uint64_t records; /* removed by cache_unpin */
    uint64_t blocks;  /* of these in the cache */
    uint64_t bytes;   /* of these blocks */
} cache_pins;

/* A stored value, without its bytes. */
typedef struct cache_item {
    hash128 key, parent;
    uint64_t bytes, used; /* used: time of the last use in ticks of the cache's clock */
    uint32_t hits, children;
    double cost;
} cache_item;

/* Returns the store's cache, opened and checked on first use. NULL, with *e set: it cannot be
 * used. */
cache *store_cache(store *s, err *e);
/* Copies the value into out[bytes]; the value must have this size. With answer != NULL, appends the
 * value to `answer` instead. False: a miss. */
bool cache_get(cache *c, cache_space space, hash128 key, str identity, void *out, size_t bytes,
               buf *answer);
/* Asks the kernel to read the value's pages ahead; false: not stored. */
bool cache_prefetch(cache *c, cache_space space, hash128 key);
/* Queues a write without waiting for the disk. cost: milliseconds to compute the value again. parent:
 * key of the block above, zero for none. */
void cache_put(cache *c, cache_space space, hash128 key, str identity, hash128 parent, double cost,
               str value);
void cache_flush(cache *c); /* waits until all queued writes are committed */
/* Sets the budget (at least 1 MiB) and the eviction policy. False: no address space for a larger
 * budget; the old budget stays. */
bool cache_configure(cache *c, size_t budget_bytes, cache_policy policy);
int cache_clear(cache *c, cache_space space, err *e);
void cache_get_stats(cache *c, cache_stats *out);
/* Whether a write has failed; if so, appends the reason. False for a cache opened read-only. */
bool cache_failed(cache *c, buf *why);
/* Protects those of these KV blocks that are stored from eviction, until the name is unpinned or
 * the cache is cleared. ERR_FULL, with nothing changed: pins would take more than half of the
 * budget. */
int cache_pin(cache *c, str name, const hash128 *blocks, size_t n, cache_pins *out, err *e);
int cache_unpin(cache *c, str name, cache_pins *out, err *e);
/* Lists all values of a space, unordered, in `a`; returns their number. */
size_t cache_items(cache *c, cache_space space, arena *a, cache_item **out);
/* Appends the identity of a stored value. The checksum is not verified: for display only. */
bool cache_identity(cache *c, cache_space space, hash128 key, buf *out);
/* Deletes the values whose identity begins with `identity`; *deleted (may be NULL): their number. */
int cache_clear_matching(cache *c, cache_space space, str identity, uint64_t *deleted, err *e);
/* Key-value pairs in the cache's file, lost with it. cache_meta_get appends the value; false: missing
 * or damaged. */
bool cache_meta_get(cache *c, str key, buf *out);
int cache_meta_put(cache *c, str key, str bytes, err *e);
/* Verifies every page of a cache.mdb that no process has open, without using LMDB. ERR_CORRUPT
 * names the page and its fault. Must run before LMDB opens the file, because LMDB trusts the pages
 * of a file. */
int cache_check(const char *path, err *e);

#endif
