/*
 * cache.c - the KV and answer cache: opening and closing its file, reading values, queueing writes.
 *
 * Invariants: a value that cache_get returns has the caller's identity and a valid checksum; no
 * pointer into the map is used after its transaction; LMDB opens the file only after cache_check
 * passed it, or while another process, which has checked it, has it open.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cache_int.h"

enum { USERS_WAIT_MS = 3000, PREFETCH_MIN = 64 << 10 };

static const char *const value_trees[CACHE_SPACES] = {"kv", "answers"};

static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static cache *open_caches;

/* Returns the size of the map: the budget, a tenth more, and a constant. The map needs this reserve
 * because a transaction copies the pages it changes, and the old pages are reusable only two
 * transactions later. */
size_t cache_map_bytes(size_t budget) {
    enum { SHARE = 10, EXTRA = 4 << 20, LEAST = 16 << 20 };
    size_t bytes = BASE_MAX(budget + budget / SHARE + EXTRA, (size_t)LEAST);
    return bytes / 4096 * 4096;
}

static char *with_suffix(const char *path, const char *suffix) {
    buf b = {0};
    buf_printf(&b, "%s%s", path, suffix);
    return b.p;
}

/* ---- the lock of users ----------------------------------------------------------------------- */

/* Locks cache.mdb-users: exclusively, with *alone set, if no other process has the cache open, else
 * shared. */
static int users_lock(cache *c, bool *alone, err *e) {
    for (int waited = 0;; waited += 20) {
        *alone = flock(c->users_fd, LOCK_EX | LOCK_NB) == 0;
        if (*alone || flock(c->users_fd, LOCK_SH | LOCK_NB) == 0)
            return 0;
        if (waited >= USERS_WAIT_MS)
            return err_set(e, ERR_BUSY, "another process is checking the cache '%s' for damage",
                           c->path);
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

static int users_open(cache *c, err *e) {
    char *path = with_suffix(c->path, "-users");
    c->users_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (c->users_fd < 0 && (errno == EACCES || errno == EROFS)) {
        c->read_only = true;
        c->users_fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (c->users_fd < 0)
        err_set_errno(e, errno, "cannot open the cache '%s'", c->path);
    free(path);
    return c->users_fd < 0 ? ERR_IO : 0;
}

/* ---- the environment ------------------------------------------------------------------------- */

/* Renames a damaged file to make room for a new one. The damaged file is kept because it may help
 * to find the cause. */
static void set_aside(const cache *c) {
    char *lock = with_suffix(c->path, "-lock"), *damaged = with_suffix(c->path, "-damaged");
    if (rename(c->path, damaged) != 0)
        unlink(c->path);
    unlink(lock);
    free(lock);
    free(damaged);
}

/* If the file was deleted while processes have it open, deletes their lock file as well: its reader
 * table and locks belong to the deleted file. */
static void drop_stale_lock_file(const cache *c) {
    if (access(c->path, F_OK) == 0 || errno != ENOENT)
        return;
    char *lock = with_suffix(c->path, "-lock");
    unlink(lock);
    free(lock);
}

static void env_close(cache *c) {
    for (int i = 0; i < c->nreaders; i++)
        mdb_txn_abort(c->readers[i]);
    c->nreaders = 0;
    if (c->env)
        mdb_env_close(c->env);
    c->env = NULL;
}

static int env_open(cache *c) {
    unsigned flags = MDB_NOSUBDIR | MDB_NOTLS | MDB_NOSYNC;
    int rc = lmdb_env_create(&c->env);
    if (rc)
        return rc;
    mdb_env_set_maxdbs(c->env, 8);
    mdb_env_set_maxreaders(c->env, READERS_MAX);
    mdb_env_set_mapsize(c->env, cache_map_bytes(c->budget));
    rc = lmdb_lock_file_reserve(c->path, 0600);
    if (!rc)
        rc = mdb_env_open(c->env, c->path, flags | (c->read_only ? MDB_RDONLY : 0), 0600);
    if (rc) {
        mdb_env_close(c->env);
        c->env = NULL;
    } else if (!c->read_only) {
        mdb_reader_check(c->env, NULL);
    }
    return rc;
}

/* Opens the trees, or creates them in a new file, and loads the index. MDB_VERSION_MISMATCH: a file
 * of another format version. */
static int trees_open(cache *c) {
    MDB_txn *t = NULL;
    unsigned create = c->read_only ? 0 : MDB_CREATE;
    int rc = mdb_txn_begin(c->env, NULL, c->read_only ? MDB_RDONLY : 0, &t);
    if (rc)
        return rc;
    for (int i = 0; i < CACHE_SPACES && !rc; i++)
        rc = mdb_dbi_open(t, value_trees[i], create, &c->values[i]);
    if (!rc)
        rc = mdb_dbi_open(t, "use", create, &c->use);
    if (!rc)
        rc = mdb_dbi_open(t, "format", create, &c->format);
    if (!rc)
        rc = mdb_dbi_open(t, "pins", create, &c->pins);
    if (!rc)
        rc = mdb_dbi_open(t, "log", create, &c->log);
    uint32_t version = CACHE_VERSION, found = 0;
    MDB_val key = {7, "version"}, data;
    MDB_stat stat;
    if (!rc)
        rc = mdb_stat(t, c->format, &stat);
    if (!rc && stat.ms_entries == 0 && !c->read_only) {
        data = (MDB_val){sizeof version, &version};
        rc = mdb_put(t, c->format, &key, &data, 0);
    } else if (!rc) {
        rc = mdb_get(t, c->format, &key, &data);
        if (!rc && data.mv_size == sizeof found)
            memcpy(&found, data.mv_data, sizeof found);
        if (rc == MDB_NOTFOUND || (!rc && found != version))
            rc = MDB_VERSION_MISMATCH;
    }
    if (!rc)
        rc = cache_load_index(c, t);
    if (rc) {
        mdb_txn_abort(t);
        return rc;
    }
    c->pages_bytes = cache_pages_bytes(c, t);
    c->last_txn = mdb_txn_id(t);
    if (!c->read_only && stat.ms_entries > 0)
        c->last_txn--; /* this transaction changes nothing, so LMDB reuses its id */
    return mdb_txn_commit(t);
}

static int try_open(cache *c) {
    int rc = env_open(c);
    if (!rc && (rc = trees_open(c)) != 0)
        env_close(c);
    return rc;
}

/* Opens the file. If no other process has the file open, checks it first, and replaces it if it is
 * damaged or of another version. */
static int files_open(cache *c, bool alone, err *e) {
    err why;
    drop_stale_lock_file(c);
    if (alone && access(c->path, F_OK) == 0 && cache_check(c->path, &why) != 0) {
        if (c->read_only)
            return err_set(e, ERR_CORRUPT, "the cache '%s' is damaged: %s", c->path, why.message);
        set_aside(c);
        c->stats.corrupt++;
    }
    int rc = try_open(c);
    bool unusable = rc == MDB_INVALID || rc == MDB_VERSION_MISMATCH || rc == MDB_CORRUPTED ||
                    rc == MDB_PAGE_NOTFOUND || rc == MDB_NOTFOUND || rc == MDB_INCOMPATIBLE ||
                    rc == MDB_BAD_VALSIZE;
    if (unusable && alone && !c->read_only) {
        set_aside(c);
        rc = try_open(c);
    }
    if (rc == ENOMEM)
        return err_set(e, ERR_FULL,
                       "cannot open the cache '%s': it does not fit in this process's address "
                       "space (ulimit -v)",
                       c->path);
    return rc ? lmdb_error(e, rc, "cannot open the cache") : 0;
}

static int cache_open_file(cache *c, err *e) {
    bool alone = false;
    int status = users_open(c, e);
    if (!status)
        status = users_lock(c, &alone, e);
    if (!status)
        status = files_open(c, alone, e);
    if (status)
        return status;
    if (alone)
        flock(c->users_fd, LOCK_SH);
    c->stats.writing = !c->read_only;
    if (c->read_only)
        snprintf(c->stats.why_not, sizeof c->stats.why_not, "'%s' is read-only", c->path);
    else if (pthread_create(&c->thread, NULL, cache_writer, c) == 0)
        c->thread_started = true;
    else
        return err_set(e, ERR_IO, "cannot start the cache's thread");
    return 0;
}

/* ---- open and close -------------------------------------------------------------------------- */

static void cache_free(cache *c) {
    if (c->thread_started) {
        pthread_mutex_lock(&c->mutex);
        c->stop = true;
        c->save_use = c->stats.writing;
        pthread_cond_signal(&c->wake);
        pthread_mutex_unlock(&c->mutex);
        pthread_join(c->thread, NULL);
    }
    env_close(c);
    if (c->users_fd >= 0)
        close(c->users_fd);
    index_free(&c->index);
    buf_free(&c->touched);
    pthread_rwlock_destroy(&c->env_lock);
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->wake);
    pthread_cond_destroy(&c->idle);
    free(c->path);
    free(c);
}

static cache *cache_new(const char *path, size_t budget) {
    cache *c = mem_zalloc(sizeof *c);
    c->refs = 1;
    c->path = mem_strdup(path);
    c->users_fd = -1;
    c->budget = BASE_MAX(budget ? budget : CACHE_BUDGET_DEFAULT, CACHE_BUDGET_MIN);
    c->policy = CACHE_COST;
    c->last = &c->first;
    c->index.free = -1;
    pthread_rwlock_init(&c->env_lock, NULL);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->wake, NULL);
    pthread_cond_init(&c->idle, NULL);
    return c;
}

/* Returns the open cache of this file, or NULL: LMDB allows one environment per file and process,
 * and stores may share a file, as two :memory: stores do. */
static cache *find_open(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0)
        return NULL;
    for (cache *c = open_caches; c; c = c->next_open)
        if (c->device == st.st_dev && c->inode == st.st_ino)
            return c;
    return NULL;
}

/* Sets device and inode of the file that LMDB has open, which may no longer be the one at
 * c->path. */
static int file_identify(cache *c, err *e) {
    struct stat st;
    mdb_filehandle_t fd;
    int rc = mdb_env_get_fd(c->env, &fd);
    if (!rc && fstat(fd, &st) != 0)
        rc = errno;
    if (rc)
        return lmdb_error(e, rc, "cannot open the cache");
    c->device = st.st_dev;
    c->inode = st.st_ino;
    return 0;
}

cache *cache_open(const char *path, size_t budget, err *e) {
    pthread_mutex_lock(&open_mutex);
    cache *c = find_open(path);
    if (c) {
        c->refs++;
    } else {
        c = cache_new(path, budget);
        if (cache_open_file(c, e) != 0 || file_identify(c, e) != 0) {
            cache_free(c);
            c = NULL;
        } else {
            c->next_open = open_caches;
            open_caches = c;
        }
    }
    pthread_mutex_unlock(&open_mutex);
    return c;
}

void cache_close(cache *c) {
    if (!c)
        return;
    pthread_mutex_lock(&open_mutex);
    bool last = --c->refs == 0;
    for (cache **at = &open_caches; last && *at; at = &(*at)->next_open)
        if (*at == c) {
            *at = c->next_open;
            break;
        }
    if (last)
        /* Under open_mutex, so that no thread opens the file again before it is closed. */
        cache_free(c);
    pthread_mutex_unlock(&open_mutex);
}

/* ---- values ---------------------------------------------------------------------------------- */

static uint32_t payload_offset(size_t identity_bytes) {
    return (uint32_t)(CACHE_HEADER + (identity_bytes + 63) / 64 * 64);
}

/* Returns the hash of header (with checksum 0), identity and payload. */
static uint64_t value_checksum(const value_header *h, const unsigned char *identity,
                               const unsigned char *payload) {
    value_header bare = *h;
    bare.checksum = 0;
    uint64_t seed = hash64(&bare, sizeof bare, CACHE_VERSION);
    return hash64(payload, h->payload_bytes, hash64(identity, h->identity_bytes, seed));
}

static cache_job *make_value(hash128 key, str identity, str payload) {
    uint32_t at = payload_offset(identity.n);
    size_t bytes = at + payload.n;
    cache_job *job = mem_try_alloc(sizeof *job + bytes);
    if (!job)
        return NULL;
    value_header h = {CACHE_MAGIC, CACHE_VERSION, (uint32_t)identity.n, at, payload.n, 0, key};
    memset(job->value, 0, at);
    if (identity.n)
        memcpy(job->value + CACHE_HEADER, identity.p, identity.n);
    if (payload.n)
        memcpy(job->value + at, payload.p, payload.n);
    h.checksum = value_checksum(&h, job->value + CACHE_HEADER, job->value + at);
    memcpy(job->value, &h, sizeof h);
    job->bytes = bytes;
    return job;
}

/* VALUE_OTHER: valid, but of another identity or size. */
typedef enum value_state { VALUE_GOOD, VALUE_OTHER, VALUE_DAMAGED } value_state;

/* Asks the kernel to read all pages of a large value; copying would fault them in one by one. */
static void will_need(MDB_val data) {
    uintptr_t first = (uintptr_t)data.mv_data & ~(uintptr_t)4095;
    uintptr_t end = (uintptr_t)data.mv_data + data.mv_size;
    if (data.mv_size > PREFETCH_MIN)
        madvise((void *)first, end - first, MADV_WILLNEED);
}

/* Copies the payload, then verifies the copy: another process may change the map in between. */
static value_state read_value(MDB_val data, hash128 key, str identity, void *out, size_t bytes,
                              buf *answer) {
    value_header h;
    const unsigned char *p = data.mv_data;
    if (data.mv_size < CACHE_HEADER)
        return VALUE_DAMAGED;
    memcpy(&h, p, sizeof h);
    if (h.magic != CACHE_MAGIC || h.version != CACHE_VERSION || h.identity_bytes > data.mv_size ||
        h.payload_at != payload_offset(h.identity_bytes) || h.payload_at > data.mv_size ||
        h.payload_bytes != data.mv_size - h.payload_at || !hash128_equal(h.key, key))
        return VALUE_DAMAGED;
    size_t before = answer ? answer->n : 0;
    bool fits = answer || h.payload_bytes == bytes;
    const unsigned char *payload = p + h.payload_at;
    if (answer) {
        buf_append(answer, payload, h.payload_bytes);
        payload = (const unsigned char *)answer->p + before;
    } else if (fits) {
        memcpy(out, payload, bytes);
        payload = out;
    }
    value_state state = VALUE_GOOD;
    if (h.checksum != value_checksum(&h, p + CACHE_HEADER, payload))
        state = VALUE_DAMAGED;
    else if (!fits || h.identity_bytes != identity.n ||
             (identity.n && memcmp(p + CACHE_HEADER, identity.p, identity.n) != 0))
        state = VALUE_OTHER;
    if (state != VALUE_GOOD && answer) {
        answer->n = before;
        answer->p[before] = 0;
    }
    return state;
}

/* ---- get ------------------------------------------------------------------------------------- */

/* Takes over the size of a map that another process has enlarged. [] */
static void cache_adopt_map(cache *c) {
    pthread_rwlock_wrlock(&c->env_lock);
    pthread_mutex_lock(&c->mutex);
    for (int i = 0; i < c->nreaders; i++)
        mdb_txn_abort(c->readers[i]);
    c->nreaders = 0;
    lmdb_map_resize(c->env, 0); /* if it fails, reads miss */
    pthread_mutex_unlock(&c->mutex);
    pthread_rwlock_unlock(&c->env_lock);
}

int cache_begin(cache *c, unsigned flags, MDB_txn **out) {
    int rc = mdb_txn_begin(c->env, NULL, flags, out);
    if (rc != MDB_MAP_RESIZED)
        return rc;
    pthread_rwlock_unlock(&c->env_lock);
    cache_adopt_map(c);
    pthread_rwlock_rdlock(&c->env_lock);
    return mdb_txn_begin(c->env, NULL, flags, out);
}

/* Returns a read transaction, or NULL. [env] */
static MDB_txn *reader_take(cache *c) {
    MDB_txn *t = NULL;
    pthread_mutex_lock(&c->mutex);
    if (c->nreaders)
        t = c->readers[--c->nreaders];
    pthread_mutex_unlock(&c->mutex);
    if (t && mdb_txn_renew(t) == 0)
        return t;
    mdb_txn_abort(t); /* NULL is fine */
    return cache_begin(c, MDB_RDONLY, &t) == 0 ? t : NULL;
}

static void reader_give(cache *c, MDB_txn *t) {
    mdb_txn_reset(t);
    pthread_mutex_lock(&c->mutex);
    if (c->nreaders < CACHE_READERS) {
        c->readers[c->nreaders++] = t;
        t = NULL;
    }
    pthread_mutex_unlock(&c->mutex);
    if (t)
        mdb_txn_abort(t);
}

/* Counts a read, and queues the deletion of a value that failed its check. */
static void note_read(cache *c, cache_space space, hash128 key, bool found, value_state state) {
    pthread_mutex_lock(&c->mutex);
    cache_entry *entry = index_find(&c->index, (uint8_t)space, key);
    if (found && state == VALUE_GOOD) {
        c->stats.hits++;
        c->stats.of[space].hits++;
        if (entry)
            index_touch(&c->index, entry);
        pthread_mutex_unlock(&c->mutex);
        return;
    }
    c->stats.misses++;
    c->stats.of[space].misses++;
    if (found) {
        c->stats.corrupt++;
        if (entry)
            index_remove(&c->index, entry); /* so that a new put is not dropped as a duplicate */
        if (c->stats.writing) {
            cache_job *job = mem_zalloc(sizeof *job);
            job->kind = CACHE_JOB_DELETE;
            job->space = (uint8_t)space;
            job->key = key;
            cache_enqueue(c, job);
        }
    }
    pthread_mutex_unlock(&c->mutex);
}

/* Looks up a value and prefetches its pages. */
static bool find_value(const cache *c, MDB_txn *t, cache_space space, hash128 key, MDB_val *data) {
    MDB_val name = {sizeof key, &key};
    if (mdb_get(t, c->values[space], &name, data) != 0)
        return false;
    will_need(*data);
    return true;
}

bool cache_get(cache *c, cache_space space, hash128 key, str identity, void *out, size_t bytes,
               buf *answer) {
    value_state state = VALUE_GOOD;
    bool found = false;
    MDB_txn *t;
    pthread_rwlock_rdlock(&c->env_lock);
    if ((t = reader_take(c)) != NULL) {
        MDB_val data;
        found = find_value(c, t, space, key, &data);
        if (found)
            state = read_value(data, key, identity, out, bytes, answer);
        reader_give(c, t);
    }
    pthread_rwlock_unlock(&c->env_lock);
    note_read(c, space, key, found, state);
    return found && state == VALUE_GOOD;
}

bool cache_prefetch(cache *c, cache_space space, hash128 key) {
    MDB_txn *t;
    bool found = false;
    pthread_rwlock_rdlock(&c->env_lock);
    if ((t = reader_take(c)) != NULL) {
        MDB_val data;
        found = find_value(c, t, space, key, &data);
        reader_give(c, t);
    }
    pthread_rwlock_unlock(&c->env_lock);
    return found;
}

/* ---- put and the rest ------------------------------------------------------------------------ */

/* Whether another process has committed since the index was updated. [env, mutex] */
static bool is_behind(const cache *c) {
    MDB_envinfo info;
    return !c->busy && mdb_env_info(c->env, &info) == 0 && info.me_last_txnid != c->last_txn;
}

void cache_refresh(cache *c) {
    MDB_txn *t = NULL;
    pthread_rwlock_rdlock(&c->env_lock);
    pthread_mutex_lock(&c->mutex);
    bool behind = is_behind(c);
    pthread_mutex_unlock(&c->mutex);
    if (behind && cache_begin(c, MDB_RDONLY, &t) == 0) {
        pthread_mutex_lock(&c->mutex);
        if (!c->busy)
            cache_catch_up(c, t, mdb_txn_id(t));
        pthread_mutex_unlock(&c->mutex);
        mdb_txn_abort(t);
    }
    pthread_rwlock_unlock(&c->env_lock);
}

void cache_put(cache *c, cache_space space, hash128 key, str identity, hash128 parent, double cost,
               str payload) {
    pthread_rwlock_rdlock(&c->env_lock);
    pthread_mutex_lock(&c->mutex);
    /* A stored value that another process may have evicted meanwhile is queued; write_job then
     * looks in an index that is up to date. */
    bool stored = index_find(&c->index, (uint8_t)space, key) && !is_behind(c);
    bool wanted = c->stats.writing && !stored;
    size_t bytes = payload_offset(identity.n) + payload.n;
    if (wanted &&
        (c->queued_bytes + bytes > CACHE_QUEUE_BYTES || cache_disk_bytes(bytes) > c->budget / 4)) {
        c->stats.dropped++;
        wanted = false;
    }
    pthread_mutex_unlock(&c->mutex);
    pthread_rwlock_unlock(&c->env_lock);
    if (!wanted)
        return;
    cache_job *job = make_value(key, identity, payload); /* copies and hashes without a lock */
    pthread_mutex_lock(&c->mutex);
    if (job) {
        job->kind = CACHE_JOB_PUT;
        job->space = (uint8_t)space;
        job->key = key;
        job->parent = parent;
        job->cost = cost;
        cache_enqueue(c, job);
    } else {
        c->stats.dropped++;
    }
    pthread_mutex_unlock(&c->mutex);
}

void cache_flush(cache *c) {
    pthread_mutex_lock(&c->mutex);
    while (c->thread_started && (c->first || c->busy))
        pthread_cond_wait(&c->idle, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
}

bool cache_configure(cache *c, size_t budget_bytes, cache_policy policy) {
    size_t budget = BASE_MAX(budget_bytes, CACHE_BUDGET_MIN);
    pthread_rwlock_wrlock(&c->env_lock); /* this process has no transaction now */
    pthread_mutex_lock(&c->mutex);
    c->policy = policy;
    if (budget != c->budget) {
        for (int i = 0; i < c->nreaders; i++)
            mdb_txn_abort(c->readers[i]);
        c->nreaders = 0;
        if (lmdb_map_resize(c->env, cache_map_bytes(budget)) == 0)
            c->budget = budget;
    }
    bool done = c->budget == budget;
    pthread_mutex_unlock(&c->mutex);
    pthread_rwlock_unlock(&c->env_lock);
    return done;
}

static int clear_use(cache *c, MDB_txn *t, cache_space space) {
    MDB_cursor *cursor;
    uint8_t first = (uint8_t)space;
    MDB_val key = {1, &first}, data;
    int rc = mdb_cursor_open(t, c->use, &cursor);
    if (rc)
        return rc;
    rc = mdb_cursor_get(cursor, &key, &data, MDB_SET_RANGE);
    while (rc == 0 && key.mv_size && *(const uint8_t *)key.mv_data == first) {
        if ((rc = mdb_cursor_del(cursor, 0)) == 0)
            rc = mdb_cursor_get(cursor, &key, &data, MDB_GET_CURRENT);
        if (rc == EINVAL)
            rc = MDB_NOTFOUND;
    }
    mdb_cursor_close(cursor);
    return rc == MDB_NOTFOUND ? 0 : rc;
}

int cache_clear(cache *c, cache_space space, err *e) {
    if (c->read_only)
        return err_set(e, ERR_IO, "the cache '%s' is read-only", c->path);
    cache_flush(c);
    MDB_txn *t = NULL;
    pthread_rwlock_rdlock(&c->env_lock);
    int rc = cache_write_begin(c, &t);
    if (!rc) {
        rc = mdb_drop(t, c->values[space], 0);
        rc = rc ? rc : clear_use(c, t, space);
        if (!rc && space == CACHE_KV)
            rc = mdb_drop(t, c->pins, 0);
        pthread_mutex_lock(&c->mutex);
        for (int i = 0; i < c->index.count && !rc; i++)
            if (c->index.entries[i].live && c->index.entries[i].space == space)
                index_remove(&c->index, &c->index.entries[i]);
        pthread_mutex_unlock(&c->mutex);
        rc = cache_write_end(c, t, rc, CACHE_WROTE_MUCH);
    }
    pthread_rwlock_unlock(&c->env_lock);
    return lmdb_error(e, rc, "cannot clear the cache");
}

bool cache_failed(cache *c, buf *why) {
    pthread_mutex_lock(&c->mutex);
    bool failed = !c->stats.writing && !c->read_only;
    if (failed)
        buf_append_c(why, c->stats.why_not);
    pthread_mutex_unlock(&c->mutex);
    return failed;
}

void cache_get_stats(cache *c, cache_stats *out) {
    cache_refresh(c);
    pthread_mutex_lock(&c->mutex);
    *out = c->stats;
    out->blocks = c->index.of[CACHE_KV].entries;
    out->answers = c->index.of[CACHE_ANSWERS].entries;
    out->bytes = c->index.bytes;
    out->budget_bytes = c->budget;
    for (int i = 0; i < CACHE_SPACES; i++) {
        const cache_space_stats *held = &c->index.of[i];
        out->of[i].entries = held->entries;
        out->of[i].bytes = held->bytes;
        out->of[i].pinned = held->pinned;
        out->of[i].pinned_bytes = held->pinned_bytes;
    }
    pthread_mutex_unlock(&c->mutex);
}
