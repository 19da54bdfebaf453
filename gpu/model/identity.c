/*
 * identity.c - the identity of a model's files: a hash of all their bytes, and the check that they
 * have not changed.
 *
 *   hash    XXH3-128 of: number of files u64 | per file: its size u64, the XXH3-128 of each MiB
 *   stamp   XXH3-128 of: per file: device, inode, size, times of modification and of change
 *
 * Invariant: answers and KV are stored under the hash of the bytes from which they were computed.
 * Hashing gigabytes at each start would take too long, so the hash of files with a known stamp
 * comes from a record (side_file.c). This recorded hash decides which stored answers are used.
 * Before anything is computed, all weights are read and hashed: a record that is forged or wrong
 * cannot add to what is stored. After each pass the stamp is compared, and if it differs the files
 * are read again: a renamed or touched file has the same bytes; if the bytes differ, the pass's
 * results are dropped.
 *
 * Two changes within the same tick of the file system's clock leave the same stamp. Until the tick
 * is over (identity_is_settled), a stamp is neither recorded nor taken as proof that nothing
 * changed.
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

/* A change is settled after a short wait: the kernel's ticks are at most 10 ms; a file system whose
 * times have no fractions of a millisecond may round them to 2 s. A time in the future comes from a
 * clock that was set back. */
bool identity_is_settled(int64_t changed_ns, int64_t now_ns) {
    int64_t grain = changed_ns % 1000000 != 0 ? SECOND_NS / 20 : 2 * SECOND_NS;
    return changed_ns <= now_ns && now_ns - changed_ns > grain;
}

/* Computes the files' stamp: when they were opened (`opened`), or now. false: the size of a file
 * differs from the size of its mapping. */
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
    const size_t *first; /* [files + 1] number of each file's first chunk */
    hash128 *hashes;     /* [chunks] */
    bool mapped;
    atomic_bool unreadable;
} hash_work;

/* Reads the chunk's pages in one call. false: the file is shorter than its mapping, or the disk
 * fails; accessing the page would raise SIGBUS. Linux before 5.14 has no such call: nothing is read
 * and the result is true. */
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

/* Hashes the files. Fails if their stamp has changed since they were opened: keys and vocabulary
 * were read since then. */
static int identity_read(file_identity *id, pool *threads, err *e) {
    hash128 after;
    bool later, read = hash_files(id->file, threads, &id->hash);
    if (pool_check(threads, e) != 0)
        return ERR_CANCELLED;
    if (!stamp_take(id->file, false, &after, &later) || !hash128_equal(after, id->stamp)) {
        err_set(e, ERR_MODEL, "the model '%s' changed after it was opened", id->path);
        err_hint(e, "wait until the file is complete and run the statement again");
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
        id->settled = true; /* only settled stamps are recorded */
        return 0;
    }
    return identity_read(id, threads, e);
}

/* ---- later ----------------------------------------------------------------------------------- */

/* Hashes the files again, because their stamp changed or is not settled, or because their hash is
 * from a record. */
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

bool identity_unchanged(file_identity *id, pool *threads, bool read) {
    hash128 now;
    bool settled;
    pthread_mutex_lock(&id->lock);
    bool holds = stamp_take(id->file, false, &now, &settled) && hash128_equal(now, id->stamp) &&
                 id->settled && (id->read || !read);
    holds = !id->lost && (holds || read_again(id, threads));
    pthread_mutex_unlock(&id->lock);
    return holds;
}

bool identity_same_at_path(file_identity *id, const char *path) {
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
    return here && identity_unchanged(id, NULL, false);
}
