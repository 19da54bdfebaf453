/*
 * identity.c - which file the weights are of: a hash of all its bytes, and whether it is that file
 * still.
 *
 *   hash    XXH3-128 of: how many files u64 | of each its bytes u64, and of each MiB its XXH3-128
 *   stamp   XXH3-128 of: of each file its device, inode, bytes, times of modification and of change
 *
 * Invariant (DESIGN 2.5): what is stored is stored under the hash of the very bytes that it was
 * computed from. Gigabytes are not read at every start, so a hash may come from a record
 * (side_file.c) of files with this stamp. It decides which stored answers are believed; before
 * anything is computed all weights are read anyway, and are hashed with it, so that a record that
 * is forged or wrong adds nothing to what is stored. After each pass the stamp is looked at, and
 * where it is another the files are read again: one that was renamed or touched is the same, one
 * that was written to is not, and that pass has given nothing yet.
 *
 * A stamp tells of a change only where the clock that stamps it has gone on since the one before:
 * until then (identity_is_settled) it is not put on record, and not believed for a second look.
 */
#include "identity_int.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "gpu/llm.h"
#include "side_file_int.h"

enum { CHUNK_BYTES = 1 << 20, READ_ATTEMPTS = 3 };

static const int64_t SECOND_NS = 1000000000;

/* ---- stamps ---------------------------------------------------------------------------------- */

static int64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

/* The kernel stamps by a tick of 10 ms at most; a file system without
 * fractions of a millisecond keeps no more than two seconds, perhaps. A time
 * that is yet to come is of a clock that was set back. */
bool identity_is_settled(int64_t changed_ns, int64_t now_ns) {
    int64_t grain = changed_ns % 1000000 != 0 ? SECOND_NS / 20 : 2 * SECOND_NS;
    return changed_ns <= now_ns && now_ns - changed_ns > grain;
}

/* Of the files now, or as they were opened. False: one has another size than was mapped. */
static bool stamp_take(const gguf *file, bool opened, hash128 *stamp, bool *settled) {
    buf b = {0};
    int64_t now = clock_ns(CLOCK_REALTIME);
    bool whole = true;
    struct stat st;
    *settled = true;
    for (size_t i = 0; i < gguf_file_count(file) && gguf_file_stat(file, i, opened, &st); i++) {
        size_t bytes;
        gguf_file_data(file, i, &bytes);
        whole = whole && st.st_size >= 0 && (size_t)st.st_size == bytes;
        int64_t facts[] = {(int64_t)st.st_dev,          (int64_t)st.st_ino,
                           (int64_t)st.st_size,         (int64_t)st.st_mtim.tv_sec,
                           (int64_t)st.st_mtim.tv_nsec, (int64_t)st.st_ctim.tv_sec,
                           (int64_t)st.st_ctim.tv_nsec};
        buf_append(&b, facts, sizeof facts);
        int64_t changed = (int64_t)st.st_ctim.tv_sec * SECOND_NS + st.st_ctim.tv_nsec;
        *settled = *settled && identity_is_settled(changed, now);
    }
    *stamp = hash_128(b.p, b.n);
    buf_free(&b);
    return whole;
}

hash128 identity_stamp(const gguf *file) {
    hash128 stamp;
    bool settled;
    return stamp_take(file, false, &stamp, &settled) ? stamp : (hash128){0, 0};
}

/* ---- hashing --------------------------------------------------------------------------------- */

typedef struct hash_work {
    const gguf *file;
    const size_t *first; /* of each file, its first chunk */
    hash128 *hashes;     /* of each chunk */
    bool mapped;
    atomic_bool unreadable;
} hash_work;

/* Has the chunk's pages there, at once and not one fault at a time; false where the file ends
 * before the mapping does or the disk fails, which a plain access would die of. Systems that do not
 * know how (before Linux 5.14) go without. */
static bool pages_ready(const uint8_t *p, size_t n) {
#ifdef MADV_POPULATE_READ
    return madvise((void *)(uintptr_t)p, n, MADV_POPULATE_READ) == 0 ||
           (errno != EFAULT && errno != EIO);
#else
    (void)p, (void)n;
    return true;
#endif
}

static void hash_chunk(void *ctx, int task, int worker) {
    (void)worker;
    hash_work *w = ctx;
    size_t i = 0, bytes, chunk = (size_t)task;
    while (chunk >= w->first[i + 1])
        i++;
    const uint8_t *p = gguf_file_data(w->file, i, &bytes);
    size_t at = (chunk - w->first[i]) * CHUNK_BYTES, n = BASE_MIN(bytes - at, (size_t)CHUNK_BYTES);
    if (w->mapped && !pages_ready(p + at, n))
        atomic_store(&w->unreadable, true);
    if (atomic_load(&w->unreadable))
        return;
    w->hashes[chunk] = hash_128(p + at, n);
}

static bool hash_files(const gguf *file, pool *threads, hash128 *out) {
    size_t files = gguf_file_count(file), *first = mem_zalloc(sizeof *first * (files + 1)), bytes;
    for (size_t i = 0; i < files; i++) {
        gguf_file_data(file, i, &bytes);
        first[i + 1] = first[i] + (bytes + CHUNK_BYTES - 1) / CHUNK_BYTES;
    }
    int chunks = (int)first[files];
    struct stat st;
    hash_work w = {.file = file,
                   .first = first,
                   .hashes = mem_zalloc(sizeof(hash128) * (size_t)chunks),
                   .mapped = gguf_file_stat(file, 0, true, &st)};
    if (threads != NULL)
        pool_run(threads, chunks, hash_chunk, &w);
    for (int i = 0; i < chunks && threads == NULL; i++)
        hash_chunk(&w, i, 0);
    buf b = {0};
    uint64_t count = files;
    buf_append(&b, &count, sizeof count);
    for (size_t i = 0; i < files; i++) {
        gguf_file_data(file, i, &bytes);
        uint64_t n = bytes;
        buf_append(&b, &n, sizeof n);
        buf_append(&b, w.hashes + first[i], sizeof(hash128) * (first[i + 1] - first[i]));
    }
    *out = hash_128(b.p, b.n);
    buf_free(&b);
    free(w.hashes);
    free(first);
    gguf_release_pages(file);
    return pool_check(threads, NULL) == 0 && !atomic_load(&w.unreadable);
}

/* ---- finding --------------------------------------------------------------------------------- */

static void record_keep(const file_identity *id, hash128 hash) {
    if (id->settled && id->cache_dir != NULL)
        side_file_identity_write(id->cache_dir, id->path, id->stamp, hash);
}

/* The keys and the vocabulary were read before: the files must be now what they were then. */
static int identity_read(file_identity *id, pool *threads, err *e) {
    hash128 after;
    bool later, read = hash_files(id->file, threads, &id->hash);
    if (pool_check(threads, e) != 0)
        return ERR_CANCELLED;
    if (!stamp_take(id->file, false, &after, &later) || !hash128_equal(after, id->stamp)) {
        err_set(e, ERR_MODEL, "the model '%s' changes while it is read", id->path);
        err_hint(e, "wait until what writes to it is done");
        return ERR_MODEL;
    }
    if (!read)
        return err_set(e, ERR_IO, "cannot read the model '%s'", id->path);
    id->read = true;
    record_keep(id, id->hash);
    return 0;
}

int identity_find(const gguf *file, const char *path, const char *cache_dir, pool *threads,
                  arena *mem, file_identity **out, err *e) {
    file_identity *id = ARENA_NEW(mem, file_identity);
    struct stat st;
    *id = (file_identity){.file = file, .seen_ns = clock_ns(CLOCK_MONOTONIC)};
    id->path = path != NULL ? arena_strndup(mem, path, strlen(path)) : "in memory";
    if (cache_dir != NULL && gguf_file_stat(file, 0, true, &st))
        id->cache_dir = arena_strndup(mem, cache_dir, strlen(cache_dir));
    pthread_mutex_init(&id->lock, NULL);
    *out = id;
    stamp_take(file, true, &id->stamp, &id->settled);
    if (id->cache_dir != NULL &&
        side_file_identity_read(id->cache_dir, path, id->stamp, &id->hash)) {
        id->settled = true; /* or it would not be on record */
        return 0;
    }
    return identity_read(id, threads, e);
}

/* ---- later ----------------------------------------------------------------------------------- */

/* The stamp is another one, or not yet to be relied on, or only a record's word for it. */
static bool read_again(file_identity *id, pool *threads) {
    for (int i = 0; i < READ_ATTEMPTS; i++) {
        hash128 before, after, hash;
        bool settled, later;
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        if (!stamp_take(id->file, false, &before, &settled))
            return false;
        if (!hash128_equal(before, id->stamp))
            id->seen_ns = now;
        id->stamp = before;
        id->settled = settled || now - id->seen_ns > 2 * SECOND_NS;
        if (!hash_files(id->file, threads, &hash) || !stamp_take(id->file, false, &after, &later))
            return false;
        if (!hash128_equal(after, before))
            continue;
        record_keep(id, hash);
        id->read = true;
        id->lost = !hash128_equal(hash, id->hash);
        return !id->lost;
    }
    return false;
}

bool identity_holds(file_identity *id, pool *threads, bool read) {
    hash128 now;
    bool settled;
    pthread_mutex_lock(&id->lock);
    bool holds = stamp_take(id->file, false, &now, &settled) && hash128_equal(now, id->stamp) &&
                 id->settled && (id->read || !read);
    holds = !id->lost && (holds || read_again(id, threads));
    pthread_mutex_unlock(&id->lock);
    return holds;
}

bool identity_leads_here(file_identity *id, const char *path) {
    buf name = {0};
    bool here = true;
    for (size_t i = 0; i < gguf_file_count(id->file) && here; i++) {
        struct stat ours, theirs;
        buf_clear(&name);
        gguf_shard_path(path, (int)i, &name);
        here = !gguf_file_stat(id->file, i, true, &ours) || stat(name.p, &theirs) != 0 ||
               (ours.st_dev == theirs.st_dev && ours.st_ino == theirs.st_ino);
    }
    buf_free(&name);
    return here && identity_holds(id, NULL, false);
}
