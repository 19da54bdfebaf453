/*
 * mixed_points.c - functions of the C library that change a file or write to a pipe, replaced by
 * ones that count their calls and kill the process at a chosen one: before it, after it, or when
 * half of its pages are written.
 *
 * The program's symbols precede those of libc for shared libraries too, so LMDB and zlib call these.
 * Between two such calls only memory changes. Of that only LMDB's lock file outlives the process:
 * the transaction id in it is stored directly after the write of the meta page, so a death after
 * that write is one before this store. A page is not torn: the kernel copies it whole.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mixed_int.h"

enum { PAGE = 4096, PIECES_MAX = 1024 };

static atomic_int calls_left;
static point place;

void point_arm(int nth, point where) {
    place = where;
    atomic_store(&calls_left, nth);
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static bool is_reached(void) {
    return atomic_load(&calls_left) > 0 && atomic_fetch_sub(&calls_left, 1) == 1;
}

/* The body of a function: `call`, and a death before it, after it, or after `half` of it. */
#define AT_POINT(type, call, half)                                                                 \
    bool reached = is_reached();                                                                   \
    if (reached && place == POINT_WITHIN)                                                          \
        half;                                                                                      \
    if (reached && place != POINT_AFTER)                                                           \
        die();                                                                                     \
    type result = (type)(call);                                                                    \
    if (reached)                                                                                   \
        die();                                                                                     \
    return result

static size_t half_of(size_t n) {
    return n / 2 / PAGE * PAGE;
}

ssize_t write(int fd, const void *p, size_t n) {
    AT_POINT(ssize_t, syscall(SYS_write, fd, p, n), syscall(SYS_write, fd, p, half_of(n)));
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
    AT_POINT(ssize_t, syscall(SYS_pwrite64, fd, p, n, at),
             syscall(SYS_pwrite64, fd, p, half_of(n), at));
}

static long write_half(int fd, const struct iovec *v, int n) {
    struct iovec some[PIECES_MAX];
    size_t bytes = 0;
    int k = 0;
    for (int i = 0; i < n; i++)
        bytes += v[i].iov_len;
    for (bytes = half_of(bytes); k < n && k < PIECES_MAX && bytes; k++) {
        some[k] = v[k];
        some[k].iov_len = BASE_MIN(v[k].iov_len, bytes);
        bytes -= some[k].iov_len;
    }
    return syscall(SYS_writev, fd, some, k);
}

ssize_t writev(int fd, const struct iovec *v, int n) {
    AT_POINT(ssize_t, syscall(SYS_writev, fd, v, n), write_half(fd, v, n));
}

int fdatasync(int fd) {
    AT_POINT(int, syscall(SYS_fdatasync, fd), (void)0);
}

int fsync(int fd) {
    AT_POINT(int, syscall(SYS_fsync, fd), (void)0);
}

int msync(void *p, size_t n, int flags) {
    AT_POINT(int, syscall(SYS_msync, p, n, flags), (void)0);
}

int ftruncate(int fd, off_t n) {
    AT_POINT(int, syscall(SYS_ftruncate, fd, n), (void)0);
}

int rename(const char *from, const char *to) {
    AT_POINT(int, syscall(SYS_rename, from, to), (void)0);
}

int unlink(const char *path) {
    AT_POINT(int, syscall(SYS_unlink, path), (void)0);
}
