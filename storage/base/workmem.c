/*
 * workmem.c - accounting of one statement's memory on the heap and in temporary files.
 *
 * Invariant: a temporary file that workmem_file has returned has no name, so a kill leaves no file.
 * Files are counted by their reserved bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "workmem_int.h"

/* The default limit of files is 1 / FREE_PART of the free space. */
enum { FREE_PART = 2 };

struct workmem {
    char *dir;
    int64_t files_max;        /* as passed to workmem_begin */
    atomic_size_t heap;       /* bytes on the heap */
    atomic_size_t heap_peak;  /* maximum of `heap` since workmem_begin */
    atomic_size_t files;      /* bytes in temporary files */
    atomic_size_t files_peak; /* maximum of `files` since workmem_begin */
    atomic_llong limit;       /* upper limit of `files`; -1: not determined yet */
};

workmem *workmem_new(const char *dir, int64_t files_max_bytes) {
    workmem *w = mem_zalloc(sizeof *w);
    if (!dir)
        dir = getenv("TMPDIR");
    if (!dir || !*dir)
        dir = "/tmp";
    w->dir = mem_strdup(dir);
    workmem_begin(w, files_max_bytes);
    return w;
}

void workmem_free(workmem *w) {
    if (!w)
        return;
    free(w->dir);
    free(w);
}

void workmem_begin(workmem *w, int64_t files_max_bytes) {
    w->files_max = files_max_bytes;
    atomic_store(&w->limit, files_max_bytes);
    atomic_store(&w->heap_peak, atomic_load(&w->heap));
    atomic_store(&w->files_peak, atomic_load(&w->files));
}

void workmem_usage(const workmem *w, workmem_use *out) {
    *out = (workmem_use){.heap_bytes = atomic_load(&w->heap),
                         .heap_peak_bytes = atomic_load(&w->heap_peak),
                         .file_bytes = atomic_load(&w->files),
                         .file_peak_bytes = atomic_load(&w->files_peak)};
}

static void raise_peak(atomic_size_t *peak, size_t now) {
    size_t before = atomic_load_explicit(peak, memory_order_relaxed);
    while (before < now && !atomic_compare_exchange_weak_explicit(
                               peak, &before, now, memory_order_relaxed, memory_order_relaxed))
        ;
}

void workmem_heap(workmem *w, size_t taken, size_t given) {
    if (!w)
        return;
    size_t now = atomic_fetch_add(&w->heap, taken - given) + taken - given;
    raise_peak(&w->heap_peak, now);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Returns the limit of files. Two threads may compute different limits at the same time; the one
 * stored first is used. */
static size_t files_limit(workmem *w) {
    long long limit = atomic_load(&w->limit), none = -1;
    struct statvfs fs;
    if (limit >= 0)
        return (size_t)limit;
    limit = INT64_MAX; /* if statvfs fails, only the disk limits the files */
    if (statvfs(w->dir, &fs) == 0)
        limit = (long long)((uint64_t)fs.f_bavail * fs.f_frsize / FREE_PART);
    return (size_t)(atomic_compare_exchange_strong(&w->limit, &none, limit) ? limit : none);
}

int workmem_file(const workmem *w) {
    int fd = open(w->dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    buf path = {0}; /* this file system lacks O_TMPFILE */
    buf_printf(&path, "%s/kvasir-spill-XXXXXX", w->dir);
    fd = mkostemp(path.p, O_CLOEXEC);
    if (fd >= 0)
        unlink(path.p);
    buf_free(&path);
    return fd;
}

/* Counts up to `wanted` bytes within the limit and returns their number; 0: fewer than `least`
 * bytes are left. */
static size_t files_take(workmem *w, size_t wanted, size_t least) {
    size_t limit = files_limit(w), used = atomic_load(&w->files), taken;
    do {
        size_t left = used < limit ? limit - used : 0;
        taken = BASE_MIN(wanted, left / WORKMEM_PAGE * WORKMEM_PAGE);
        if (taken < least)
            return 0;
    } while (!atomic_compare_exchange_weak(&w->files, &used, used + taken));
    raise_peak(&w->files_peak, used + taken);
    return taken;
}

size_t workmem_extend(workmem *w, int fd, off_t end, size_t wanted, size_t least, int *reason) {
    size_t taken = files_take(w, wanted, least);
    *reason = WORKMEM_LIMIT;
    if (taken == 0)
        return 0;
    do
        *reason = posix_fallocate(fd, end, (off_t)taken);
    while (*reason == EINTR);
    if (*reason == 0)
        return taken;
    if (ftruncate(fd, end) != 0)
        *reason = errno;
    workmem_shrink(w, taken);
    return 0;
}

void workmem_shrink(workmem *w, size_t bytes) {
    atomic_fetch_sub(&w->files, bytes);
}

/* ---- errors ---------------------------------------------------------------------------------- */

int workmem_error(const workmem *w, int reason, err *e) {
    if (reason != WORKMEM_LIMIT) {
        err_set_errno(e, reason, "cannot write temporary files in '%s'", w->dir);
        err_hint(
            e, "free space there, set TMPDIR to another directory, or raise work_memory with SET");
        return e ? (int)e->code : ERR_IO;
    }
    buf limit = {0};
    buf_append_bytes(&limit, (uint64_t)atomic_load(&w->limit));
    bool half = w->files_max < 0;
    err_set(e, ERR_FULL, "temporary files would exceed max_temp_directory_size = %s%s%s%s", limit.p,
            half ? ", half of what was free in '" : "", half ? w->dir : "", half ? "'" : "");
    err_hint(e, "check for a join without a condition, or raise max_temp_directory_size or "
                "work_memory with SET");
    buf_free(&limit);
    return ERR_FULL;
}
