/*
 * cache_int.h - what the cache's files share, and the format of cache.mdb.
 *
 *   cache.c        opening and closing, get and put, the interface
 *   cache_index.c  what is stored, in memory: keys, sizes, use; which entry goes first
 *   cache_write.c  the write-behind thread: batches, eviction, failures
 *   cache_pins.c   which blocks eviction must leave alone
 *   cache_items.c  what is stored, for people: lists, identities, clearing by identity
 *   cache_log.c    what each commit touched; write transactions
 *   cache_meta.c  small facts about what is stored
 *   cache_check.c  walks the file's pages without LMDB, before LMDB may see them
 *
 * Trees: "kv" and "answers" (16-byte key → value), "use" (space byte + key → use record), "format"
 * ("version" → u32, "sketch" → how often keys were wanted, notes), "pins" (cache_pins.c), "log"
 * (cache_log.c). A value:
 *
 *   0     4       8        12         16         24    32    48             48 + 64·n
 *   +-----+-------+--------+----------+----------+-----+-----+--------------+---------+
 *   |magic|version|identity|payload at|payload   |XXH3 |key  |identity, pad |payload  |
 *   |     |       | bytes  |          | bytes u64| u64 | 16  |              |         |
 *   +-----+-------+--------+----------+----------+-----+-----+--------------+---------+
 *
 * LMDB's overflow pages begin with 16 bytes, so a payload at 48 + 64·n is 64-byte aligned in the
 * map. The checksum covers all other fields, identity and payload.
 *
 * Each process that has the cache open holds a shared lock on cache.mdb-users: who gets it
 * exclusively is alone, checks the pages before LMDB sees them, and may replace the file. Nothing
 * is ever synced: what a power failure leaves half written is what the check and the checksums are
 * for.
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
    CACHE_HEADER = 48,
    CACHE_SPACES = 2,
    CACHE_READERS = 32
};

#define CACHE_BUDGET_DEFAULT ((size_t)4 << 30)
#define CACHE_BUDGET_MIN ((size_t)1 << 20)
#define CACHE_QUEUE_BYTES ((size_t)64 << 20)
#define CACHE_BATCH_BYTES ((size_t)16 << 20)

typedef struct value_header {
    uint32_t magic, version, identity_bytes, payload_at;
    uint64_t payload_bytes, checksum;
    hash128 key;
} value_header;

/* ---- the index ------------------------------------------------------------------------------- */

typedef struct cache_entry {
    hash128 key, parent;
    uint8_t space;
    bool live, changed; /* changed: its use record is behind */
    uint32_t hits, children, pins;
    uint64_t bytes;      /* on disk, whole pages */
    uint64_t born, used; /* clock ticks */
    double cost;
    int next_free;      /* of an entry not in use: the next such; -1: none */
    int elder, younger; /* the neighbours among its parent's children; -1: none */
} cache_entry;

/* How often keys were wanted of late, stored or not (a count-min sketch, as in
 * TinyLFU): a key's count is the least of its four counters; all are halved
 * when there were many, so that old fame fades. That it outlives eviction is
 * the point: what comes back again and again is known when it does. */
enum { SKETCH_ROWS = 4, SKETCH_WIDTH = 1 << 14, SKETCH_MAX = 255 };
typedef struct cache_sketch {
    uint64_t noted; /* since the last halving */
    uint8_t counts[SKETCH_ROWS][SKETCH_WIDTH];
} cache_sketch;

typedef struct cache_index {
    cache_entry *entries;
    int count, cap; /* entries, used or not */
    int free;       /* the first one not in use; -1: none */
    int live;
    hash_index keys;     /* entries by space and key */
    hash_index families; /* first children by space and parent */
    uint64_t clock, bytes;
    cache_space_stats of[CACHE_SPACES]; /* entries, bytes and pins; hits are the cache's to count */
    cache_sketch *sketch;               /* NULL: nothing noted yet */
} cache_index;

void index_clear(cache_index *x); /* the clock and the sketch stay */
void index_free(cache_index *x);
cache_entry *index_find(cache_index *x, uint8_t space, hash128 key);
cache_entry *index_add(cache_index *x, uint8_t space, hash128 key, hash128 parent, double cost,
                       uint64_t bytes);
void index_remove(cache_index *x, cache_entry *entry);
void index_pin(cache_index *x, cache_entry *entry, uint32_t pins);
void index_touch(cache_index *x, cache_entry *entry);
/* Counts a key as wanted; index_touch does, index_add does not. */
void index_note(cache_index *x, uint8_t space, hash128 key);
/* The keys to evict, in order, so that `bytes` become
 * free: leaves before their parents. Returns their number. */
size_t index_victims(cache_index *x, cache_policy policy, uint64_t bytes, cache_entry **out,
                     size_t max);
/* Bytes that a value of n bytes takes on disk. */
uint64_t cache_disk_bytes(size_t n);

/* ---- the cache ------------------------------------------------------------------------------- */

typedef enum cache_job_kind { CACHE_JOB_PUT, CACHE_JOB_DELETE } cache_job_kind;

typedef struct cache_job {
    struct cache_job *next;
    cache_job_kind kind;
    uint8_t space;
    hash128 key, parent;
    double cost;
    size_t bytes;          /* of value */
    unsigned char value[]; /* header, identity, payload */
} cache_job;

struct cache {
    struct cache *next_open; /* of this process; shared by stores of the same file */
    int refs;
    dev_t device;
    ino_t inode;
    char *path;
    int users_fd;
    bool read_only;

    /* Shared while LMDB transactions live, exclusive to change the map. */
    pthread_rwlock_t env_lock;
    MDB_env *env;
    MDB_dbi values[CACHE_SPACES], use, format, pins, log;
    bool has_pins, has_log; /* false: a file from before there were any, which cannot be written */
    buf touched;            /* the write transaction's: only one lives */

    pthread_mutex_t mutex; /* all below */
    pthread_cond_t wake, idle;
    MDB_txn *readers[CACHE_READERS]; /* reset, to be renewed */
    int nreaders;
    cache_index index;
    cache_policy policy;
    size_t budget;
    cache_job *first, **last;
    size_t queued_bytes;
    bool busy, stop, thread_started, save_use;
    pthread_t thread;
    size_t last_txn;       /* LMDB's id of the commit that the index is of; 0: of none */
    uint64_t pages_bytes;  /* what the trees' pages took after our last commit */
    uint64_t entries_read; /* for the index, from the file, ever */
    cache_stats stats;
};

/* The cache of a file, shared by all stores of this process that open it; NULL with *e: it cannot
 * be used. budget 0: the default. cache_close releases it; NULL is fine. */
cache *cache_open(const char *path, size_t budget, err *e);
void cache_close(cache *c);
/* cache_check on a file's bytes. */
int cache_check_bytes(const void *bytes, size_t n, err *e);
size_t cache_map_bytes(size_t budget);
/* Begins a transaction, in a larger map where another process made one. The env lock is held
 * shared, the mutex is not; the lock may be given up for a moment. */
int cache_begin(cache *c, unsigned flags, MDB_txn **out);
/* Brings the index up to what other processes have committed since. No lock is held. */
void cache_refresh(cache *c);
/* Brings it to the commit of this id, which is the transaction's snapshot. The mutex is held. */
int cache_catch_up(cache *c, MDB_txn *t, size_t id);
/* A write transaction, with the index as of its beginning. The env lock is held shared. */
int cache_write_begin(cache *c, MDB_txn **out);
/* What a write transaction changed: nothing; what cache_touch was told of, and the index has it by
 * now; so much that who was not there must read all. */
typedef enum cache_extent { CACHE_WROTE_NOTHING, CACHE_WROTE_KEYS, CACHE_WROTE_MUCH } cache_extent;
/* Commits it, or gives it up where `rc` is an error or nothing was written; returns what came of it.
 * The mutex is not held. */
int cache_write_end(cache *c, MDB_txn *t, int rc, cache_extent extent);
void cache_touch(cache *c, uint8_t space, hash128 key);
void cache_load_touched(cache *c, MDB_txn *t); /* into the index; the mutex is held */
/* The entry of a key as it is in the file now, or none. The mutex is held. */
void cache_load_entry(cache *c, MDB_txn *t, uint8_t space, hash128 key);
uint64_t cache_pages_bytes(cache *c, MDB_txn *t); /* that the trees have in use */
void *cache_writer(void *arg);                    /* the thread */
void cache_enqueue(cache *c, cache_job *job);     /* the mutex is held */
int cache_load_index(cache *c, MDB_txn *t);
/* Pins of one block on record; and of all blocks, into an index just loaded. */
uint32_t cache_count_pins(cache *c, MDB_txn *t, hash128 block);
int cache_load_pins(cache *c, MDB_txn *t);
int cache_delete(cache *c, MDB_txn *t, uint8_t space, hash128 key); /* value and use record */

#endif
