/*
 * cache_int.h - the structs and functions that the cache's files share, and the format of
 * cache.mdb.
 *
 *   cache.c        opening and closing; get and put; statistics
 *   cache_index.c  the index in memory: keys, sizes, use; choice of victims
 *   cache_write.c  the write-behind thread: batches, eviction, failures; loading the index
 *   cache_pins.c   blocks protected from eviction
 *   cache_items.c  listing values, clearing by identity
 *   cache_log.c    write transactions; the log of keys that each commit changed
 *   cache_meta.c   key-value pairs beside the values
 *   cache_check.c  verifies the file's pages before LMDB opens it
 *
 * Trees: "kv" and "answers" (16-byte key → value), "use" (space byte + key → use record), "format"
 * ("version" → u32, "sketch" → frequency sketch, pairs of cache_meta.c), "pins" (cache_pins.c),
 * "log" (cache_log.c). A value:
 *
 *   0     4       8        12         16         24    32    48             48 + 64·n
 *   +-----+-------+--------+----------+----------+-----+-----+--------------+---------+
 *   |magic|version|identity|payload at|payload   |XXH3 |key  |identity, pad |payload  |
 *   |     |       | bytes  |          | bytes u64| u64 | 16  |              |         |
 *   +-----+-------+--------+----------+----------+-----+-----+--------------+---------+
 *
 * An overflow page of LMDB has a header of 16 bytes, so a payload at 48 + 64·n is 64-byte aligned
 * in the map. The checksum covers the header's other fields, identity and payload.
 *
 * Each process that has the cache open holds a shared lock on cache.mdb-users. A process that gets
 * the lock exclusively is the only user of the cache: it checks the pages before LMDB opens the
 * file, and replaces a damaged file. Nothing is synced; the page check and the checksums find what
 * a power failure left half written.
 */
#ifndef CACHE_INT_H
#define CACHE_INT_H

#include <pthread.h>

#include "base/bytes_int.h"
#include "lmdb/lmdb_int.h"
#include "storage/containers.h"
#include "storage/storage.h"

enum {
    CACHE_VERSION = 1,
    CACHE_MAGIC = 0x4356414B, /* "KAVC" */
    CACHE_HEADER = 48,        /* bytes of a value_header */
    CACHE_SPACES = 2,
    CACHE_READERS = 32 /* maximum number of read transactions kept for reuse */
};

#define CACHE_BUDGET_DEFAULT ((size_t)4 << 30)
#define CACHE_BUDGET_MIN ((size_t)1 << 20)
#define CACHE_QUEUE_BYTES ((size_t)64 << 20) /* maximum size of the queued values */
#define CACHE_BATCH_BYTES ((size_t)16 << 20) /* maximum size of the values of one batch */

typedef struct value_header {
    uint32_t magic, version, identity_bytes, payload_at;
    uint64_t payload_bytes, checksum;
    hash128 key;
} value_header;

/* ---- the index ------------------------------------------------------------------------------- */

typedef struct cache_entry {
    hash128 key, parent;
    uint8_t space;
    bool live;         /* false: the entry is in the free list */
    bool changed;      /* the use record on disk is out of date */
    uint32_t hits;     /* number of uses */
    uint32_t children; /* number of live entries that have this one as parent */
    uint32_t pins;     /* number of names under which the value is pinned */
    uint64_t bytes;    /* size on disk, estimated by cache_disk_bytes */
    uint64_t born;     /* when the entry was added, in ticks of the index's clock */
    uint64_t used;     /* when the value was last used, in the same ticks */
    double cost;       /* milliseconds to compute the value again */
    int next_free;     /* next entry of the free list; -1: none */
    int elder;         /* previous entry in the list of the parent's children; -1: none */
    int younger;       /* next entry in this list; -1: none */
} cache_entry;

/* Recent request frequency of keys, stored or not: a count-min sketch as in TinyLFU. A key's count
 * is the least of its four counters; all counters are halved periodically, so that old requests
 * fade. A count outlives the eviction of its key, so a value that is stored again keeps its
 * frequency. */
enum { SKETCH_ROWS = 4, SKETCH_WIDTH = 1 << 14, SKETCH_MAX = 255 };
typedef struct cache_sketch {
    uint64_t noted; /* counts since the last halving */
    uint8_t counts[SKETCH_ROWS][SKETCH_WIDTH];
} cache_sketch;

typedef struct cache_index {
    cache_entry *entries;
    int count;           /* number of entries, live and free */
    int cap;             /* number of entries that `entries` has room for */
    int free;            /* head of the free list; -1: empty */
    int live;            /* number of live entries */
    hash_index keys;     /* entries by space and key */
    hash_index families; /* the first child of each parent, by space and parent's key */
    uint64_t clock;      /* incremented by each use and each new entry */
    uint64_t bytes;      /* size on disk of all live entries, estimated */
    cache_space_stats of[CACHE_SPACES]; /* by space; hits and misses are not counted here */
    cache_sketch *sketch;               /* NULL: empty */
} cache_index;

void index_clear(cache_index *x); /* keeps the clock and the sketch */
void index_free(cache_index *x);
cache_entry *index_find(cache_index *x, uint8_t space, hash128 key);
cache_entry *index_add(cache_index *x, uint8_t space, hash128 key, hash128 parent, double cost,
                       uint64_t bytes);
void index_remove(cache_index *x, cache_entry *entry);
/* Sets an entry's number of pins. */
void index_pin(cache_index *x, cache_entry *entry, uint32_t pins);
void index_touch(cache_index *x, cache_entry *entry); /* records a use, in the sketch as well */
/* Counts a request of a key in the sketch. */
void index_note(cache_index *x, uint8_t space, hash128 key);
/* Chooses up to `max` entries whose eviction frees `bytes`, in order, children before their
 * parents. Returns their number. */
size_t index_victims(cache_index *x, cache_policy policy, uint64_t bytes, cache_entry **out,
                     size_t max);
/* Estimates the bytes on disk of a value of n bytes. */
uint64_t cache_disk_bytes(size_t n);

/* ---- the cache ------------------------------------------------------------------------------- */

typedef enum cache_job_kind { CACHE_JOB_PUT, CACHE_JOB_DELETE } cache_job_kind;

typedef struct cache_job {
    struct cache_job *next;
    cache_job_kind kind;
    uint8_t space;
    hash128 key, parent;
    double cost;
    size_t bytes;          /* size of `value` */
    unsigned char value[]; /* header, identity, payload */
} cache_job;

struct cache {
    struct cache *next_open; /* in the list of this process's open caches */
    int refs;                /* number of stores that share the cache */
    dev_t device;            /* of cache.mdb */
    ino_t inode;             /* of cache.mdb */
    char *path;
    int users_fd; /* cache.mdb-users */
    bool read_only;

    pthread_rwlock_t env_lock; /* shared during LMDB transactions, exclusive to change the map */
    MDB_env *env;
    MDB_dbi values[CACHE_SPACES], use, format, pins, log;
    buf touched; /* keys that the current write transaction changed */

    pthread_mutex_t mutex;           /* guards all members below */
    pthread_cond_t wake;             /* signalled when the thread has work */
    pthread_cond_t idle;             /* signalled when the thread has no work left */
    MDB_txn *readers[CACHE_READERS]; /* reset read transactions, for reuse */
    int nreaders;
    cache_index index;
    cache_policy policy;
    size_t budget;
    cache_job *first, **last; /* the queue of jobs */
    size_t queued_bytes;      /* size of the queued values */
    bool busy;                /* the thread is writing a batch */
    bool stop;                /* the thread has to end when the queue is empty */
    bool thread_started;
    bool save_use; /* the thread has to write the use records */
    pthread_t thread;
    size_t last_txn;       /* id of the LMDB commit that the index matches; 0: it matches none */
    uint64_t pages_bytes;  /* bytes of pages in use by all trees after this cache's last commit */
    uint64_t entries_read; /* entries ever loaded from the file, for tests */
    cache_stats stats;
};

/* Opens the cache of a file, which all stores of this process share. NULL, with *e set: the cache
 * cannot be used. budget 0: the default. cache_close releases a cache; NULL is fine. */
cache *cache_open(const char *path, size_t budget, err *e);
void cache_close(cache *c);
/* Like cache_check, for the bytes of a file in memory. */
int cache_check_bytes(const void *bytes, size_t n, err *e);
size_t cache_map_bytes(size_t budget);
/* Locks: [env] the caller holds env_lock shared, [mutex] it holds the mutex, [] it holds neither.
 * Functions that return an int return an LMDB status or errno value. */

/* Begins a transaction. If another process has enlarged the map, adopts the new size, and may
 * release env_lock for a moment to do so. [env] */
int cache_begin(cache *c, unsigned flags, MDB_txn **out);
/* Updates the index to the last commit of any process. [] */
void cache_refresh(cache *c);
/* Updates the index to commit `id`, the snapshot of t. [env, mutex] */
int cache_catch_up(cache *c, MDB_txn *t, size_t id);
/* Begins a write transaction and updates the index to its snapshot. [env] */
int cache_write_begin(cache *c, MDB_txn **out);
/* What a write transaction has changed. KEYS: only keys that were passed to cache_touch. MUCH:
 * other processes have to load the whole index. The index in memory must already have the
 * changes. */
typedef enum cache_extent { CACHE_WROTE_NOTHING, CACHE_WROTE_KEYS, CACHE_WROTE_MUCH } cache_extent;
/* Commits a write transaction, or aborts it if rc is an error or nothing was written. [env] */
int cache_write_end(cache *c, MDB_txn *t, int rc, cache_extent extent);
/* Records a changed key of the write transaction. */
void cache_touch(cache *c, uint8_t space, hash128 key);
/* Updates the index entries of the touched keys. [env, mutex] */
void cache_load_touched(cache *c, MDB_txn *t);
/* Replaces the index entry of a key by the file's entry, or removes it if the file has none. [env,
 * mutex] */
void cache_load_entry(cache *c, MDB_txn *t, uint8_t space, hash128 key);
uint64_t cache_pages_bytes(cache *c, MDB_txn *t); /* size of the pages that the trees use */
void *cache_writer(void *arg);                    /* main function of the thread */
void cache_enqueue(cache *c, cache_job *job);     /* [mutex] */
int cache_load_index(cache *c, MDB_txn *t);       /* [env, mutex] */
/* cache_count_pins returns the number of pins of a block in the file. cache_load_pins adds all pins
 * in the file to a newly loaded index. */
uint32_t cache_count_pins(cache *c, MDB_txn *t, hash128 block);
int cache_load_pins(cache *c, MDB_txn *t);
int cache_delete(cache *c, MDB_txn *t, uint8_t space, hash128 key); /* value and use record */

#endif
