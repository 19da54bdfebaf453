/*
 * cache_check.c - verifies the pages of a cache.mdb before LMDB opens it.
 *
 * LMDB trusts its pages: a flipped bit can make it read or write anywhere in this process. So every
 * page that LMDB could reach is read by lmdb/walk_pages.c, and the first fault refuses the file. A file
 * that passes can still hold wrong values; those fail their checksums.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache_int.h"
#include "lmdb/walk_int.h"

static int refuse(void *arg, const walk_fault *f) {
    return err_set(arg, ERR_CORRUPT, "page %llu %s", (unsigned long long)f->page, f->what);
}

int cache_check_bytes(const void *bytes, size_t n, err *e) {
    walk w = {.arg = e, .fault = refuse};
    int status = walk_all(&w, bytes, n);
    walk_free(&w);
    return status;
}

int cache_check(const char *path, err *e) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        int error = errno;
        if (fd >= 0)
            close(fd);
        return err_set_errno(e, error, "cannot open '%s'", path);
    }
    /* An empty file is valid: LMDB writes the first pages. */
    if (st.st_size == 0) {
        close(fd);
        return 0;
    }
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        return err_set_errno(e, errno, "cannot map '%s'", path);
    madvise(map, (size_t)st.st_size, MADV_RANDOM);
    int status = cache_check_bytes(map, (size_t)st.st_size, e);
    munmap(map, (size_t)st.st_size);
    return status;
}
