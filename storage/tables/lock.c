/*
 * lock.c - writer.lock: one writing process at a time, known by its pid.
 *
 * The lock is a POSIX record lock: the kernel releases it when its holder dies, and F_GETLK returns
 * the holder's pid. Such a lock belongs to the process, not to the descriptor, which suits a
 * database that is open once per process. Invariant: an LMDB write transaction exists only under
 * this lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <time.h>

#include "tables_int.h"

enum { POLL_FIRST_MS = 1, POLL_MAX_MS = 20 };

static void sleep_ms(int64_t ms) {
    struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
    nanosleep(&ts, NULL);
}

static int busy_error(const store *s, short type, int64_t waited_ms, err *e) {
    struct flock who = {.l_type = type, .l_whence = SEEK_SET};
    long pid = 0;
    if (fcntl(s->lock_fd, F_GETLK, &who) == 0 && who.l_type != F_UNLCK)
        pid = (long)who.l_pid;
    double seconds = (double)waited_ms / 1000;
    if (pid > 0)
        err_set(e, ERR_BUSY, "'%s' is being written by process %ld; gave up after %.1f s", s->path,
                pid, seconds);
    else
        err_set(e, ERR_BUSY, "'%s' is being written by another process; gave up after %.1f s",
                s->path, seconds);
    err_hint(e, "raise busy_timeout with SET to wait longer");
    return ERR_BUSY;
}

static int lock_wait(store *s, short type, const txn_wait *wait, err *e) {
    if (s->lock_fd < 0)
        return 0;
    int64_t start = (int64_t)clock_ms();
    int64_t timeout = wait ? wait->busy_timeout_ms : 0;
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET};
    for (int64_t pause = POLL_FIRST_MS;; pause = BASE_MIN(pause * 2, (int64_t)POLL_MAX_MS)) {
        if (fcntl(s->lock_fd, F_SETLK, &lock) == 0)
            return 0;
        if (errno != EACCES && errno != EAGAIN && errno != EINTR)
            return err_set_errno(e, errno, "cannot lock '%s/writer.lock'", s->path);
        if (wait && wait->cancel && atomic_load(wait->cancel))
            return err_set(e, ERR_CANCELLED,
                           "cancelled while waiting for another process to finish writing");
        int64_t waited = (int64_t)clock_ms() - start;
        if (waited >= timeout)
            return busy_error(s, type, waited, e);
        sleep_ms(BASE_MIN(pause, timeout - waited));
    }
}

int writer_lock(store *s, const txn_wait *wait, err *e) {
    return lock_wait(s, F_WRLCK, wait, e);
}

int reader_lock(store *s, const txn_wait *wait, err *e) {
    return lock_wait(s, F_RDLCK, wait, e);
}

void writer_unlock(store *s) {
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    if (s->lock_fd >= 0)
        fcntl(s->lock_fd, F_SETLK, &lock);
}
