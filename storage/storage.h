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
    /* the database's directory; NULL or ":memory:": a private directory in $TMPDIR, without fsync,
     * removed at close */
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
 * (another format version; a network file system). Also removes what dead processes left: LMDB's
 * records of their readers (unless read_only), and, for a :memory: database, their :memory:
 * directories. */
int store_open(const store_options *options, store **out, err *e);
void store_close(store *s); /* aborts open transactions; NULL is fine */
const char *store_path(const store *s);
bool store_is_memory(const store *s);
bool store_is_read_only(const store *s);
/* Copies tables.mdb, compacted, into a new database directory, which appears only once the copy is
 * complete and synced. ERR_CORRUPT if store_check finds faults; ERR_CANCELLED, ERR_IO, ERR_FULL. */
int store_backup(store *s, const char *directory, const atomic_bool *cancel, err *e);

/* Verifies all of the database in the directory `from`, which need not be one that can be opened, or
 * of the store's last commit if `from` is NULL. Appends a line per fault and one at the end to
 * *report. ERR_CANCELLED; ERR_IO, ERR_BUSY, if the file cannot be read. */
int store_check(store *s, const char *from, const atomic_bool *cancel, buf *report,
                uint64_t *faults, err *e);
/* Copies all that is sound of such a database into a new one, as store_backup does, and appends to
 * *report what was copied and what is lost. *whole: nothing is lost. */
int store_recover(store *s, const char *directory, const char *from, const atomic_bool *cancel,
                  buf *report, bool *whole, err *e);

/* ---- the catalog ----------------------------------------------------------------------------- */

typedef struct column_def {
    str name;
    value_type type;
    int dims; /* VECTOR: number of elements; 0: any, and in columns of other types */
    bool not_null;
    str default_sql; /* text of the DEFAULT expression; n = 0: none */
    str check_sql;   /* text of the column's CHECK; n = 0: none */
} column_def;

/* The lists of an index USING ivfflat: the k-means clusters of the vectors that the table had when the
 * index was built. A row's entry, with a copy of its vector, is in the list of the nearest centroid. */
typedef struct vector_lists {
    vector_metric metric; /* VECTOR_L2; VECTOR_COSINE: centroids have length 1 */
    /* of the vectors in lists; others are in none. For catalog_create_index 0: as the first vector */
    int dims;
    uint32_t n;             /* number of lists; for catalog_create_index 0: chosen by the rows */
    const float *centroids; /* [n][dims]; for catalog_create_index NULL: to be computed */
    const struct list_codes *codes; /* the centroids in codes (vector_lists.c) */
    uint64_t rows;                  /* number of rows when they were computed */
} vector_lists;

/* An index. A primary key of a single INTEGER column is the rowid itself (table_def.rowid_column)
 * and has no index; any other primary key is the index with `primary` set. */
typedef struct index_def {
    uint32_t id;
    str name;
    bool unique, primary;
    int ncolumns;
    int *columns;              /* [ncolumns] positions of the index's columns in the table */
    const vector_lists *lists; /* USING ivfflat, of one VECTOR column; NULL: a sorted index */
} index_def;

typedef struct table_def {
    uint32_t id;
    str name;
    int ncolumns;
    column_def *columns;
    int rowid_column; /* position of the INTEGER PRIMARY KEY column, or -1 */
    int nindexes;
    index_def *indexes;
    int nchecks;
    str *checks;      /* [nchecks] table-level CHECK expressions, as text */
    uint64_t version; /* incremented by every commit that changes its rows or columns */
} table_def;

typedef struct view_def {
    str name;
    int ncolumns; /* 0: the view's columns have the names of the query's columns */
    str *columns; /* [ncolumns] names of the view's columns */
    str sql;      /* the SELECT */
} view_def;

typedef struct model_def {
    str name;
    str source;  /* a path, test:hash, or URLs separated by spaces */
    str options; /* lines "name=value"; their meaning is the engine's */
} model_def;

/* Each array is sorted by the names in lower case, bytewise. */
typedef struct catalog {
    int ntables, nviews, nmodels;
    const table_def *tables;
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
/* `renamed`: the table's definition with the new name in the column and in the texts of CHECKs. */
int catalog_rename_column(txn *t, str table, int column, const table_def *renamed, err *e);
/* Builds the index; its keys are sorted in `memory` (NULL: in 64 MB of heap, then files of its own).
 * ERR_CONSTRAINT names the first duplicate of a unique index; ERR_FULL, ERR_CANCELLED. */
int catalog_create_index(txn *t, str table, const index_def *def, mem_budget *memory,
                         const atomic_bool *cancel, err *e);
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
 * primary key over exactly `columns`; if ncolumns is 0, in every unique index and the primary key.
 * ERR_CONSTRAINT if `row` has a NULL in a NOT NULL column. */
int table_find_conflict(txn *t, const table_def *def, const value *row, const int *columns,
                        int ncolumns, int64_t *rowid, bool *found, err *e);
int table_row_count(txn *t, const table_def *def, uint64_t *out, err *e); /* exact, constant time */
/* Gets the least and the greatest rowid, 0 and 0 of an empty table; two look-ups. */
int table_rowid_ends(txn *t, const table_def *def, int64_t *first, int64_t *last, err *e);

/* A bound on the leading columns of a scan's key. Values are of the columns' types. */
typedef struct scan_bound {
    const value *values;
    int n; /* number of columns bound; 0: unbounded */
    bool inclusive;
    bool not_null; /* only of the low bound of an index scan: column n of the key is not NULL */
} scan_bound;

typedef struct scan_spec {
    const table_def *table;
    const index_def *index; /* NULL: scan by rowid; each bound is then one INTEGER */
    scan_bound low, high;
    /* descending by key; rows with equal index cells are still in ascending order of rowid */
    bool descending;
    int first_rows;     /* > 0: maximum rows of the first batch; later batches grow to BATCH_ROWS */
    const int *columns; /* columns to decode, in output order; -1: the rowid */
    int ncolumns;
    const atomic_bool *cancel; /* checked within batches of an index scan; NULL: not cancellable */
} scan_spec;

typedef struct table_scan table_scan;

/* Opens a scan, positioned before its first row. The spec is copied, except `cancel`. */
int scan_open(txn *t, const scan_spec *spec, table_scan **out, err *e);
/* Sets `out` to the next rows in key order, at most BATCH_ROWS, with the spec's columns, allocated
 * in out->mem; rows = 0 at the end. NULL is the lowest value, so rows with a NULL in the key are
 * returned only if the low bound is unbounded or NULL. */
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

/* The number of lists that a search reads if it is not told: of 20 neighbours it finds 19 or more in
 * data with clusters (tests/bench/README.md). */
uint32_t lists_probes(const vector_lists *lists);
/* Appends the rowids of the k nearest vectors, the nearest first, among those in the `probes` lists whose
 * centroids are nearest to `query`, a vector of the index's dimensions. probes = lists->n: of all
 * vectors but NULL and, by cosine, zero vectors. ERR_CORRUPT, ERR_CANCELLED. */
int lists_search(txn *t, const table_def *def, const index_def *index, str query, uint32_t probes,
                 size_t k, const atomic_bool *cancel, rowid_list *out, err *e);

/* ---- statistics ------------------------------------------------------------------------------ */

/* A cell of the joint sample, which has the same rows of the table for all columns. */
#define JOINT_NULL UINT32_MAX
typedef struct joint_cell {
    uint32_t id;    /* equal values of a column have equal ids, numbered from 0; JOINT_NULL: NULL */
    uint32_t bytes; /* length of the printed value */
} joint_cell;

typedef struct column_stats {
    double distinct;      /* number of distinct values, estimated if there are many */
    double null_fraction; /* share of rows with NULL */
    double average_bytes; /* mean length of the printed values that are not NULL */
    double p90_bytes;     /* 90th percentile of these lengths */
    value low;            /* least value; of a long text the beginning; NULL: no values */
    value high;           /* greatest value; of a long text the beginning; NULL: no values */
    int ncommon;
    value common[8];           /* most common values, the most frequent first */
    double common_fraction[8]; /* [k]: share of rows that have common[k] */
    joint_cell *joint;         /* [njoint] cells of the joint sample */
} column_stats;

typedef struct table_stats {
    uint64_t rows;         /* exact number of rows */
    int64_t first_rowid;   /* least rowid; 0: the table is empty */
    int64_t last_rowid;    /* greatest rowid; 0: the table is empty */
    bool analyzed;         /* false: only the rows and the rowids are known */
    uint64_t counted_rows; /* rows when the statistics were counted */
    int ncolumns;
    int njoint; /* rows of the joint sample */
    column_stats *columns;
} table_stats;

/* ANALYZE: reads the whole table and stores its statistics. */
int stats_analyze(txn *t, const table_def *def, const atomic_bool *cancel, err *e);
/* Gets the statistics of a table, allocated in `a`. If none are stored, only the
 * rows and the rowids are set.
 * Distinct counts are scaled to the current number of rows. `joint`: read the joint sample as well,
 * which takes longer than a look-up by key. */
int stats_get(txn *t, const table_def *def, bool joint, arena *a, table_stats *out, err *e);

/* Counts rows for the statistics while they are written: stats_feed_resume, stats_feed_rows for
 * each batch, stats_feed_keep, which stores the statistics. stats_feed_resume loads the counts of
 * the existing rows; if none are stored or they are outdated, it reads the table. */
typedef struct stats_feed stats_feed;
int stats_feed_resume(txn *t, const table_def *def, stats_feed **out, err *e);
/* Counts the rows of a batch, which has the table's columns. */
void stats_feed_rows(stats_feed *f, const batch *rows, const int64_t *rowids);
int stats_feed_keep(stats_feed *f, txn *t, const table_def *def, err *e);
void stats_feed_free(stats_feed *f); /* NULL is fine */

/* ---- files that are read as tables ----------------------------------------------------------- */

/* CSV_HEADER_AUTO: whether there is a header is detected from the first MiB. */
typedef enum csv_header { CSV_HEADER_AUTO, CSV_HEADER_YES, CSV_HEADER_NO } csv_header;
/* FILE_AUTO: JSON by its name or first bytes, else CSV. */
typedef enum file_format { FILE_AUTO, FILE_CSV, FILE_JSON } file_format;
typedef struct file_options {
    file_format format;
    char delimiter; /* CSV; 0: detected among ',', '\t', ';', '|' from the first 64 KiB */
    csv_header header;
    str null_text; /* CSV: an unquoted cell with this text is NULL */
    /* JSON: the keys to read, which become the columns in this order; other keys are ignored.
     * NULL: all keys of the first 8 MiB; another key after them is an error. */
    const str *keys;
    int nkeys;
    bool all_text;             /* all columns are TEXT */
    bool own_types;            /* the caller chose the types: errors do not call them guessed */
    const atomic_bool *cancel; /* checked while waiting for a pipe; NULL: not cancellable */
} file_options;

typedef struct table_file table_file;

/* Opens a file, plain or gzipped; "-" is standard input. A pipe can be opened again as long as no
 * row was read from it.
 *   CSV   and TSV: RFC 4180, CRLF or LF
 *   JSON  RFC 8259: objects one after the other, as in JSON Lines, or one array of objects
 * ERR_IO, ERR_CORRUPT, ERR_UNSUPPORTED (UTF-16, other programs' files), ERR_CANCELLED. */
int table_file_open(const char *path, const file_options *options, table_file **out, err *e);
void table_file_close(table_file *f); /* NULL is fine */
int table_file_column_count(const table_file *f);
/* From the header or the keys, else column1, …; all different. */
str table_file_column_name(const table_file *f, int column);
/* Detected: BOOLEAN, INTEGER, REAL, TEXT. */
value_type table_file_column_type(const table_file *f, int column);
/* Whether the columns' order means nothing, so that COPY matches them by name. */
bool table_file_by_name(const table_file *f);
/* Returns the number of cells so far with bytes that are not UTF-8, which were read as
 * Windows-1252. Sets *first_line (first_line may be NULL) to the line of the first such cell. */
int64_t table_file_recoded(const table_file *f, int64_t *first_line);
/* Reads the next rows into `out`, allocated in out->mem: up to BATCH_ROWS, fewer with thousands of
 * columns or long texts; rows = 0 at the end. types[i]: the type of the file's column i. ERR_TYPE
 * for a cell that does not convert, ERR_CORRUPT for a malformed row; messages name file, line,
 * column, value. lines[i]: the line where row i starts; `lines` may be NULL. */
int table_file_next(table_file *f, const value_type *types, batch *out, int64_t *lines, err *e);
/* Appends a row as a line of CSV, which table_file_next reads back. NULL is written as null_text; the
 * empty text and a text equal to null_text are quoted; a BLOB is written as \x00ff. */
void csv_write_row(buf *out, const value *row, int n, char delimiter, str null_text);

/* Reads a JSON array of strings, numbers, booleans and nulls. Sets *out, allocated in `mem`, to its
 * elements as texts; p = NULL: a null. Returns false if `text` is anything else. */
bool json_texts(str text, arena *mem, str **out, int *n);

/* ---- the cache: opaque KV blocks and answers by 128-bit key ---------------------------------- */

/* Every read compares the value's checksum and the caller's identity bytes; a value that fails is a
 * miss and is deleted. The cache never makes a query fail: errors turn reads into misses and writes
 * into drops. */
typedef struct cache cache;
typedef enum cache_space { CACHE_KV, CACHE_ANSWERS } cache_space;
typedef enum cache_policy { CACHE_FIFO, CACHE_LRU, CACHE_COST } cache_policy;

/* Figures of one space. */
typedef struct cache_space_stats {
    uint64_t entries;      /* number of values in the file */
    uint64_t bytes;        /* size of these values on disk, estimated */
    uint64_t hits;         /* reads by this process that returned a value */
    uint64_t misses;       /* reads by this process that did not */
    uint64_t pinned;       /* number of pinned values */
    uint64_t pinned_bytes; /* size of the pinned values on disk, estimated */
} cache_space_stats;

typedef struct cache_stats {
    uint64_t blocks;         /* number of KV blocks in the file */
    uint64_t answers;        /* number of answers in the file */
    uint64_t bytes;          /* size of all values on disk, estimated */
    uint64_t budget_bytes;   /* limit of `bytes` */
    uint64_t hits;           /* reads by this process that returned a value */
    uint64_t misses;         /* reads by this process that did not */
    uint64_t corrupt;        /* damaged values, and files, that this process found */
    uint64_t evicted;        /* values that this process evicted */
    uint64_t dropped;        /* values that this process put but did not write */
    uint64_t written;        /* values that this process wrote */
    bool writing;            /* false: read-only, or after a failed write */
    char why_not[256];       /* why `writing` is false */
    cache_space_stats of[2]; /* by cache_space */
} cache_stats;

/* Result of pinning or unpinning a name. */
typedef struct cache_pins {
    uint64_t records; /* pins that cache_unpin removed; also of blocks that are not stored */
    uint64_t blocks;  /* blocks in the cache that were pinned or unpinned */
    uint64_t bytes;   /* size of these blocks on disk, estimated */
} cache_pins;

/* A stored value, without its bytes. */
typedef struct cache_item {
    hash128 key;
    hash128 parent;    /* as in cache_put */
    uint64_t bytes;    /* size on disk, estimated */
    uint64_t used;     /* time of the last use in ticks of the cache's clock */
    uint32_t hits;     /* number of uses */
    uint32_t children; /* number of stored values that have this one as parent */
    double cost;       /* milliseconds to compute the value again */
} cache_item;

/* Returns the store's cache, opened and checked on first use. NULL, with *e set: the cache cannot
 * be used. */
cache *store_cache(store *s, err *e);
/* Copies the value into out[bytes]; the value must have this size. With answer != NULL, appends the
 * value to `answer` instead. False: a miss. */
bool cache_get(cache *c, cache_space space, hash128 key, str identity, void *out, size_t bytes,
               buf *answer);
/* Asks the kernel to read the value's pages ahead; false: not stored. */
bool cache_prefetch(cache *c, cache_space space, hash128 key);
/* Queues a write without waiting for the disk. cost: milliseconds to compute the value again.
 * parent: key of the KV block that precedes this one in the prompt; zero: none. */
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
/* Protects from eviction the blocks in blocks[n] that are stored, until the name is unpinned or the
 * cache is cleared. ERR_FULL, with nothing changed: the pinned blocks would take more than half of
 * the budget. */
int cache_pin(cache *c, str name, const hash128 *blocks, size_t n, cache_pins *out, err *e);
int cache_unpin(cache *c, str name, cache_pins *out, err *e);
/* Lists all values of a space, unordered, in `a`; returns their number. */
size_t cache_items(cache *c, cache_space space, arena *a, cache_item **out);
/* Appends the identity of a stored value. The checksum is not verified: for display only. */
bool cache_identity(cache *c, cache_space space, hash128 key, buf *out);
/* Deletes the values whose identity begins with `identity`. *deleted (may be NULL): their
 * number. */
int cache_clear_matching(cache *c, cache_space space, str identity, uint64_t *deleted, err *e);
/* Key-value pairs in the cache's file, lost with it. cache_meta_get appends the value; false: the
 * pair is missing or damaged. */
bool cache_meta_get(cache *c, str key, buf *out);
int cache_meta_put(cache *c, str key, str bytes, err *e);
/* Verifies every page of a cache.mdb that no process has open, without using LMDB. ERR_CORRUPT
 * names the page and its fault. Must run before LMDB opens the file, because LMDB trusts the pages
 * of a file. */
int cache_check(const char *path, err *e);

#endif
