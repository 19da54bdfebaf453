/*
 * cache_write.c - the write-behind thread: batches of puts and deletes, eviction, write errors; and
 * loading the index from the file.
 *
 * Invariants: only cache_flush and cache_close wait for this thread; after a failed write nothing
 * more is written, and stored values stay readable; a batch is small relative to the budget,
 * because pages freed by a transaction are reusable only two transactions later.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache_int.h"

enum {
    VICTIMS_MAX = 4096, /* maximum number of victims chosen at once */
    BATCH_SHARE = 64,   /* a batch has at most budget / BATCH_SHARE bytes, or one value */
    SPARE_SHARE = 32,   /* make_way evicts budget / SPARE_SHARE bytes more than needed */
    PAGE = 4096
};

/* Returns the size of the map beyond the budget. Values may use half of that size, because after
 * many deletions pages are less full than cache_disk_bytes assumes. */
static size_t room_beside(const cache *c) {
    return cache_map_bytes(c->budget) - c->budget;
}

/* Returns the number of keys that one transaction may change. A transaction copies the pages it
 * changes, and the old pages are reusable only two transactions later, so it may change a sixth of
 * the free pages. Keys are hashes: each change touches one page of values and one of use records.
 * [mutex] */
static size_t keys_at_once(const cache *c) {
    enum { PARTS = 6, PAGES_PER_KEY = 2 };
    MDB_envinfo info = {0};
    mdb_env_info(c->env, &info);
    size_t left = info.me_mapsize - BASE_MIN((size_t)c->pages_bytes, info.me_mapsize);
    return BASE_MAX(left / PARTS / PAGES_PER_KEY / PAGE, (size_t)1);
}

/* A value in the tree "use". spare and unused are 0. */
typedef struct use_record {
    uint64_t born, used, bytes;
    double cost, spare;
    hash128 parent;
    uint32_t hits, unused;
    uint64_t checksum; /* of the other members, seeded by the key */
} use_record;

typedef struct use_key {
    uint8_t bytes[17];
} use_key;

static MDB_val key_of(use_key *k, uint8_t space, hash128 key) {
    k->bytes[0] = space;
    memcpy(k->bytes + 1, &key, sizeof key);
    return (MDB_val){sizeof k->bytes, k->bytes};
}

static uint64_t use_checksum(const use_record *r, hash128 key) {
    return hash64(r, offsetof(use_record, checksum), key.low ^ key.high);
}

static int use_write(cache *c, MDB_txn *t, const cache_entry *e) {
    use_key name;
    use_record r;
    memset(&r, 0, sizeof r);
    r.born = e->born;
    r.used = e->used;
    r.bytes = e->bytes;
    r.cost = e->cost;
    r.parent = e->parent;
    r.hits = e->hits;
    r.checksum = use_checksum(&r, e->key);
    MDB_val key = key_of(&name, e->space, e->key), data = {sizeof r, &r};
    return mdb_put(t, c->use, &key, &data, 0);
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool use_find(cache *c, MDB_txn *t, uint8_t space, hash128 key, use_record *out) {
    use_key name;
    MDB_val k = key_of(&name, space, key), data;
    if (mdb_get(t, c->use, &k, &data) != 0 || data.mv_size != sizeof *out)
        return false;
    memcpy(out, data.mv_data, sizeof *out);
    if (out->checksum == use_checksum(out, key))
        return true;
    *out = (use_record){0};
    return false;
}

static cache_entry *add_entry(cache *c, MDB_txn *t, uint8_t space, hash128 key,
                              size_t value_bytes) {
    use_record r = {0};
    bool known = use_find(c, t, space, key, &r);
    cache_entry *e =
        index_add(&c->index, space, key, r.parent, r.cost, cache_disk_bytes(value_bytes));
    c->entries_read++;
    if (known) {
        e->born = r.born;
        e->used = r.used;
        e->hits = r.hits;
        e->changed = false;
        c->index.clock = BASE_MAX(c->index.clock, BASE_MAX(r.born, r.used));
    }
    return e;
}

/* Adds to the index the uses that the entries of before[n] counted after their use records were
 * written. */
static void keep_use(cache_index *x, const cache_entry *before, int n) {
    for (int i = 0; i < n; i++) {
        const cache_entry *old = &before[i];
        cache_entry *e = old->live && old->changed ? index_find(x, old->space, old->key) : NULL;
        if (!e || e->born != old->born) /* deleted, or stored again */
            continue;
        e->hits = BASE_MAX(e->hits, old->hits);
        e->used = BASE_MAX(e->used, old->used);
        e->changed = true;
    }
}

void cache_load_entry(cache *c, MDB_txn *t, uint8_t space, hash128 key) {
    hash128 k = key;
    MDB_val name = {sizeof k, &k}, data;
    cache_entry *e = index_find(&c->index, space, key);
    cache_entry before = e ? *e : (cache_entry){0};
    if (e)
        index_remove(&c->index, e);
    if (mdb_get(t, c->values[space], &name, &data) != 0)
        return;
    e = add_entry(c, t, space, key, data.mv_size);
    index_pin(&c->index, e, space == CACHE_KV ? cache_count_pins(c, t, key) : 0);
    keep_use(&c->index, &before, 1);
}

/* Writes the checksum and bytes of the sketch under "sketch" in the tree "format". */
static int save_sketch(cache *c, MDB_txn *t) {
    const cache_sketch *s = c->index.sketch;
    MDB_val key = {6, "sketch"}, data = {sizeof(uint64_t) + sizeof *s, NULL};
    if (!s)
        return 0;
    int rc = mdb_put(t, c->format, &key, &data, MDB_RESERVE);
    if (rc)
        return rc;
    uint64_t sum = hash64(s, sizeof *s, CACHE_VERSION);
    memcpy(data.mv_data, &sum, sizeof sum);
    memcpy((char *)data.mv_data + sizeof sum, s, sizeof *s);
    return 0;
}

/* Loads the sketch. If there is no valid one, makes a sketch from the hits of the entries. */
static void load_sketch(cache *c, MDB_txn *t) {
    enum { SEED_MAX = 8 };
    cache_sketch *s = mem_zalloc(sizeof *s);
    MDB_val key = {6, "sketch"}, data;
    uint64_t sum = 0;
    if (mdb_get(t, c->format, &key, &data) == 0 && data.mv_size == sizeof sum + sizeof *s) {
        memcpy(&sum, data.mv_data, sizeof sum);
        memcpy(s, (const char *)data.mv_data + sizeof sum, sizeof *s);
        if (sum == hash64(s, sizeof *s, CACHE_VERSION)) {
            c->index.sketch = s;
            return;
        }
    }
    free(s);
    for (int i = 0; i < c->index.count; i++) {
        const cache_entry *e = &c->index.entries[i];
        for (uint32_t k = 0; e->live && k < BASE_MIN(e->hits + 1, (uint32_t)SEED_MAX); k++)
            index_note(&c->index, e->space, e->key);
    }
}

static int load_entries(cache *c, MDB_txn *t) {
    for (uint8_t space = 0; space < CACHE_SPACES; space++) {
        MDB_cursor *cursor;
        MDB_val key, data;
        int rc = mdb_cursor_open(t, c->values[space], &cursor);
        if (rc)
            return rc;
        for (rc = mdb_cursor_get(cursor, &key, &data, MDB_FIRST); rc == 0;
             rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT)) {
            hash128 k;
            if (key.mv_size != sizeof k)
                continue;
            memcpy(&k, key.mv_data, sizeof k);
            add_entry(c, t, space, k, data.mv_size);
        }
        mdb_cursor_close(cursor);
        if (rc != MDB_NOTFOUND)
            return rc;
    }
    return 0;
}

/* Loads all keys and use records; reads no value. */
int cache_load_index(cache *c, MDB_txn *t) {
    cache_entry *before = c->index.entries;
    int n = c->index.count;
    c->index.entries = NULL;
    index_clear(&c->index);
    int rc = load_entries(c, t);
    if (!rc) {
        keep_use(&c->index, before, n);
        rc = cache_load_pins(c, t);
    }
    free(before);
    if (!rc && !c->index.sketch)
        load_sketch(c, t);
    return rc;
}

/* ---- one batch ------------------------------------------------------------------------------- */

int cache_delete(cache *c, MDB_txn *t, uint8_t space, hash128 key) {
    use_key name;
    MDB_val k = {sizeof key, &key}, u = key_of(&name, space, key);
    cache_touch(c, space, key);
    int rc = mdb_del(t, c->values[space], &k, NULL);
    if (rc == 0 || rc == MDB_NOTFOUND)
        rc = mdb_del(t, c->use, &u, NULL);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

uint64_t cache_pages_bytes(cache *c, MDB_txn *t) {
    enum { FREE_TREE = 0 };
    MDB_dbi trees[] = {FREE_TREE, c->values[0], c->values[1], c->use, c->format, c->pins, c->log};
    uint64_t pages = 0;
    for (size_t i = 0; i < BASE_COUNT(trees); i++) {
        MDB_stat s;
        if (mdb_stat(t, trees[i], &s) == 0)
            pages += s.ms_branch_pages + s.ms_leaf_pages + s.ms_overflow_pages;
    }
    return pages * PAGE;
}

/* Returns how many bytes must be evicted so that `incoming` bytes fit the budget, by the index's
 * estimate, and the map, by its pages in use. [mutex] */
static uint64_t excess_of(const cache *c, uint64_t incoming) {
    uint64_t limit = c->budget + room_beside(c) / 2, excess = 0;
    if (c->index.bytes + incoming > c->budget)
        excess = c->index.bytes + incoming - c->budget;
    /* At most `incoming`: new values also fill the space that victims leave in pages. */
    if (c->pages_bytes + incoming > limit)
        excess = BASE_MAX(excess, BASE_MIN(c->pages_bytes + incoming - limit, incoming));
    return excess;
}

typedef struct victim {
    hash128 key;
    uint8_t space;
} victim;

/* Chooses victims that free `excess` bytes and copies their keys. Returns their number. [mutex] */
static size_t victims_choose(cache *c, uint64_t excess, victim *out) {
    cache_entry **entries = mem_alloc(sizeof *entries * VICTIMS_MAX);
    size_t n = index_victims(&c->index, c->policy, excess, entries, VICTIMS_MAX);
    for (size_t i = 0; i < n; i++)
        out[i] = (victim){entries[i]->key, entries[i]->space};
    free(entries);
    return n;
}

/* Deletes n victims in one transaction, except victims that were deleted or pinned, or got
 * children, after they were chosen. */
static int evict_some(cache *c, const victim *victims, size_t n) {
    MDB_txn *t;
    size_t gone = 0;
    int rc = cache_write_begin(c, &t);
    if (rc)
        return rc;
    pthread_mutex_lock(&c->mutex);
    for (size_t i = 0; i < n && rc == 0; i++) {
        cache_entry *e = index_find(&c->index, victims[i].space, victims[i].key);
        if (!e || e->children || e->pins)
            continue;
        rc = cache_delete(c, t, victims[i].space, victims[i].key);
        index_remove(&c->index, e);
        gone++;
    }
    pthread_mutex_unlock(&c->mutex);
    rc = cache_write_end(c, t, rc, gone ? CACHE_WROTE_KEYS : CACHE_WROTE_NOTHING);
    pthread_mutex_lock(&c->mutex);
    c->stats.evicted += rc == 0 ? gone : 0;
    pthread_mutex_unlock(&c->mutex);
    return rc;
}

/* Evicts `excess` bytes, in transactions of keys_at_once / share keys. */
static int evict(cache *c, uint64_t excess, size_t share) {
    victim *victims = mem_alloc(sizeof *victims * VICTIMS_MAX);
    pthread_mutex_lock(&c->mutex);
    size_t n = victims_choose(c, excess, victims), at_once;
    pthread_mutex_unlock(&c->mutex);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i += at_once) {
        pthread_mutex_lock(&c->mutex);
        at_once = BASE_MAX(keys_at_once(c) / share, (size_t)1);
        pthread_mutex_unlock(&c->mutex);
        rc = evict_some(c, victims + i, BASE_MIN(at_once, n - i));
    }
    free(victims);
    return rc;
}

/* Makes room for `incoming` bytes. Evicts more than needed, so that not every batch has to
 * evict. */
static int make_way(cache *c, uint64_t incoming) {
    pthread_mutex_lock(&c->mutex);
    uint64_t excess = excess_of(c, incoming);
    pthread_mutex_unlock(&c->mutex);
    return excess ? evict(c, excess + c->budget / SPARE_SHARE, 1) : 0;
}

/* Takes the jobs of one transaction from the queue; sets *bytes to the estimated size of their
 * values on disk. [mutex] */
static cache_job *take_batch(cache *c, size_t *bytes) {
    size_t limit = BASE_MIN(CACHE_BATCH_BYTES, c->budget / BATCH_SHARE), n = 0;
    size_t most = keys_at_once(c);
    cache_job *jobs = c->first, **at = &c->first;
    *bytes = 0;
    while (*at && (n == 0 || (*bytes + (*at)->bytes <= limit && n < most))) {
        n++;
        *bytes += cache_disk_bytes((*at)->bytes);
        c->queued_bytes -= (*at)->bytes;
        at = &(*at)->next;
    }
    c->first = *at;
    if (!c->first)
        c->last = &c->first;
    *at = NULL;
    return jobs;
}

static int write_job(cache *c, MDB_txn *t, const cache_job *job) {
    hash128 k = job->key;
    pthread_mutex_lock(&c->mutex);
    cache_entry *e = index_find(&c->index, job->space, job->key);
    bool stored = e != NULL;
    if (stored && job->kind == CACHE_JOB_DELETE)
        index_remove(&c->index, e);
    pthread_mutex_unlock(&c->mutex);
    if (job->kind == CACHE_JOB_DELETE)
        return cache_delete(c, t, job->space, job->key);
    if (stored) /* it was queued twice, or another process has stored it meanwhile */
        return 0;
    MDB_val key = {sizeof k, &k}, data = {job->bytes, (void *)(uintptr_t)job->value};
    int rc = mdb_put(t, c->values[job->space], &key, &data, 0);
    if (rc)
        return rc;
    cache_touch(c, job->space, job->key);
    uint32_t pins = job->space == CACHE_KV ? cache_count_pins(c, t, job->key) : 0;
    pthread_mutex_lock(&c->mutex);
    e = index_add(&c->index, job->space, job->key, job->parent, job->cost,
                  cache_disk_bytes(job->bytes));
    index_pin(&c->index, e, pins);
    e->changed = false;
    index_note(&c->index, job->space, job->key);
    cache_entry copy = *e;
    c->stats.written++;
    pthread_mutex_unlock(&c->mutex);
    return use_write(c, t, &copy);
}

/* Writes changed use records in one transaction. Sets *more if some are left. The last such
 * transaction also writes the sketch. */
static int write_use(cache *c, bool *more) {
    MDB_txn *t;
    size_t n = 0;
    int rc = cache_write_begin(c, &t);
    if (rc)
        return rc;
    *more = false;
    pthread_mutex_lock(&c->mutex);
    size_t most = keys_at_once(c);
    for (int i = 0; i < c->index.count && rc == 0 && !*more; i++) {
        cache_entry *e = &c->index.entries[i];
        if (!e->live || !e->changed)
            continue;
        if ((*more = n++ == most))
            break;
        rc = use_write(c, t, e);
        cache_touch(c, e->space, e->key);
        e->changed = false;
    }
    rc = rc || *more ? rc : save_sketch(c, t);
    pthread_mutex_unlock(&c->mutex);
    return cache_write_end(c, t, rc, CACHE_WROTE_KEYS);
}

static int write_batch(cache *c, const cache_job *jobs, size_t bytes) {
    MDB_txn *t = NULL;
    int rc = make_way(c, bytes);
    rc = rc ? rc : cache_write_begin(c, &t);
    if (rc)
        return rc;
    for (const cache_job *job = jobs; job && !rc; job = job->next)
        rc = write_job(c, t, job);
    return cache_write_end(c, t, rc, c->touched.n ? CACHE_WROTE_KEYS : CACHE_WROTE_NOTHING);
}

/* Called if the map is full although the budget is not: readers hold old pages, or free pages are
 * fragmented. Evicts in several small rounds, because deleting itself needs pages, which are
 * reusable only two transactions later. */
static int make_room(cache *c) {
    enum { ROUNDS = 3, SHARE = 16, SMALL = 4 };
    int rc = 0;
    mdb_reader_check(c->env, NULL);
    for (int i = 0; i < ROUNDS && rc == 0; i++)
        rc = evict(c, c->budget / SHARE / ROUNDS, SMALL);
    return rc;
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Counts the dropped jobs of a failed batch; stops writing unless only the map was full. [mutex] */
static void note_failure(cache *c, int rc, const cache_job *jobs) {
    for (; jobs; jobs = jobs->next)
        c->stats.dropped += jobs->kind == CACHE_JOB_PUT;
    if (rc == MDB_MAP_FULL || rc == MDB_TXN_FULL)
        return;
    c->stats.writing = false;
    snprintf(c->stats.why_not, sizeof c->stats.why_not, "writing '%s' failed: %s", c->path,
             mdb_strerror(rc));
}

static void drop_queue(cache *c) {
    for (cache_job *job = c->first, *next; job; job = next) {
        next = job->next;
        c->stats.dropped += job->kind == CACHE_JOB_PUT;
        free(job);
    }
    c->first = NULL;
    c->last = &c->first;
    c->queued_bytes = 0;
}

static int run_batch(cache *c, const cache_job *jobs, size_t bytes, bool save_use) {
    pthread_rwlock_rdlock(&c->env_lock);
    int rc = jobs ? write_batch(c, jobs, bytes) : 0;
    if (rc == MDB_MAP_FULL && make_room(c) == 0)
        rc = write_batch(c, jobs, bytes);
    for (bool more = save_use; more && rc == 0;)
        rc = write_use(c, &more);
    pthread_rwlock_unlock(&c->env_lock);
    return rc;
}

/* After a failed batch the index may have changes that the file lacks: loads the index again from
 * the file. */
static void reload_after_failure(cache *c) {
    MDB_txn *t = NULL;
    pthread_rwlock_rdlock(&c->env_lock);
    if (cache_begin(c, MDB_RDONLY, &t) == 0) {
        pthread_mutex_lock(&c->mutex);
        if (cache_catch_up(c, t, mdb_txn_id(t)) != 0)
            index_clear(&c->index);
        pthread_mutex_unlock(&c->mutex);
        mdb_txn_abort(t);
    }
    pthread_rwlock_unlock(&c->env_lock);
}

void *cache_writer(void *arg) {
    cache *c = arg;
    pthread_mutex_lock(&c->mutex);
    for (;;) {
        while (!c->first && !c->stop && !c->save_use)
            pthread_cond_wait(&c->wake, &c->mutex);
        if (!c->first && !c->save_use)
            break;
        if (!c->stats.writing) {
            drop_queue(c);
            c->save_use = false;
            pthread_cond_broadcast(&c->idle);
            continue;
        }
        size_t bytes;
        cache_job *jobs = take_batch(c, &bytes);
        bool save_use = c->save_use && !c->first;
        if (save_use)
            c->save_use = false;
        c->busy = true;
        pthread_mutex_unlock(&c->mutex);
        int rc = run_batch(c, jobs, bytes, save_use);
        if (rc)
            reload_after_failure(c);
        pthread_mutex_lock(&c->mutex);
        if (rc)
            note_failure(c, rc, jobs);
        c->busy = false;
        for (cache_job *job = jobs, *next; job; job = next) {
            next = job->next;
            free(job);
        }
        if (!c->first && !c->save_use)
            pthread_cond_broadcast(&c->idle);
    }
    pthread_mutex_unlock(&c->mutex);
    return NULL;
}

void cache_enqueue(cache *c, cache_job *job) {
    job->next = NULL;
    *c->last = job;
    c->last = &job->next;
    c->queued_bytes += job->bytes;
    pthread_cond_signal(&c->wake);
}
