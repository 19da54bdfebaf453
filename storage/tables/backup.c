/*
 * backup.c - a compacted copy of tables.mdb in a new directory, once .check has found no fault in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tables_int.h"

/* LMDB's copy function cannot be cancelled, but ends when a write fails. So it writes to a pipe; a
 * thread copies from there to the file, and closes the pipe on cancellation. */
typedef struct pipe_copy {
    int from; /* the pipe's end for reading */
    int to;   /* the file */
    const atomic_bool *cancel;
    int error; /* errno value; 0: none */
} pipe_copy;

enum { COPY_BYTES = 256 << 10 };

static int write_all(int fd, const char *p, size_t n) {
    while (n > 0) {
        ssize_t written = write(fd, p, n);
        if (written < 0 && errno != EINTR)
            return errno;
        p += BASE_MAX(written, 0);
        n -= (size_t)BASE_MAX(written, 0);
    }
    return 0;
}

static void *pipe_copy_main(void *arg) {
    pipe_copy *c = arg;
    char *bytes = mem_alloc(COPY_BYTES);
    ssize_t n = 1;
    while (c->error == 0 && n != 0) {
        n = read(c->from, bytes, COPY_BYTES);
        if (c->cancel && atomic_load(c->cancel))
            c->error = ECANCELED;
        else if (n < 0)
            c->error = errno == EINTR ? 0 : errno;
        else
            c->error = write_all(c->to, bytes, (size_t)n);
    }
    free(bytes);
    close(c->from);
    return NULL;
}

/* Returns an LMDB status or errno value. */
static int copy_env(store *s, int file, const atomic_bool *cancel) {
    int ends[2];
    pthread_t thread;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    (void)fcntl(ends[1], F_SETPIPE_SZ, COPY_BYTES); /* a larger pipe, if the system permits it */
    pipe_copy c = {.from = ends[0], .to = file, .cancel = cancel};
    int rc = pthread_create(&thread, NULL, pipe_copy_main, &c);
    if (rc) {
        close(ends[0]);
        close(ends[1]);
        return rc;
    }
    rc = mdb_env_copyfd2(s->env, ends[1], MDB_CP_COMPACT);
    close(ends[1]);
    pthread_join(thread, NULL);
    return c.error ? c.error : rc;
}

static int copy_file(store *s, const char *path, const atomic_bool *cancel, err *e) {
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_set_errno(e, errno, "cannot create '%s'", path);
    int rc = copy_env(s, fd, cancel);
    if (rc == 0 && fsync(fd) != 0)
        rc = errno;
    if (close(fd) != 0 && rc == 0)
        rc = errno;
    return rc == ECANCELED ? err_set(e, ERR_CANCELLED, "cancelled")
                           : lmdb_error(e, rc, "cannot copy the database");
}

/* LMDB writes the root of a copy first, so an interrupted copy would look like a database. The copy
 * is therefore made in the directory `part`, which is renamed once its bytes are on disk. */
static int copy_tables(store *s, const char *part, const char *directory, const atomic_bool *cancel,
                       err *e) {
    buf file = {0};
    buf_printf(&file, "%s/tables.mdb", part);
    int status = copy_file(s, file.p, cancel, e);
    if (!status && rename(part, directory) != 0)
        status = err_set_errno(e, errno, "cannot create '%s'", directory);
    if (status) {
        unlink(file.p);
        rmdir(part);
    }
    buf_free(&file);
    return status;
}

int part_create(const char *directory, buf *part) {
    enum { TRIES = 1000 };
    int made = -1;
    for (int k = 0; k < TRIES && made != 0; k++) {
        buf_clear(part);
        buf_printf(part, "%s.%ld.%d.part", directory, (long)getpid(), k);
        made = mkdir(part->p, 0777);
        if (made != 0 && errno != EEXIST)
            break;
    }
    return made;
}

static int copy_and_name(store *s, const char *directory, const atomic_bool *cancel, err *e) {
    struct stat st;
    buf part = {0};
    bool taken = lstat(directory, &st) == 0;
    int status = taken || part_create(directory, &part) != 0
                     ? err_set_errno(e, taken ? EEXIST : errno, "cannot create '%s'", directory)
                     : copy_tables(s, part.p, directory, cancel, e);
    if (!status)
        status = directory_sync(directory, e);
    buf_free(&part);
    return status;
}

/* LMDB's copy function follows page numbers without checking them, and a copy of damage would take
 * the place of an older copy without. */
static int refuse_damage(store *s, const atomic_bool *cancel, err *e) {
    buf report = {0};
    uint64_t faults = 0;
    int status = store_check(s, NULL, cancel, &report, &faults, e);
    if (!status && faults) {
        status = err_set(e, ERR_CORRUPT, "'%s' is damaged: %.*s", s->path,
                         (int)strcspn(report.p, "\n"), report.p);
        err_hint(e, DAMAGE_HINT);
    }
    buf_free(&report);
    return status;
}

int store_backup(store *s, const char *directory, const atomic_bool *cancel, err *e) {
    const txn_wait wait = {.busy_timeout_ms = FORMAT_TIMEOUT_MS, .cancel = cancel};
    int damaged = refuse_damage(s, cancel, e);
    if (damaged)
        return damaged;
    /* With no_lock a shared lock keeps writers away; an open transaction holds it already. */
    bool lock = s->no_lock && !s->open_txns;
    int status = lock ? reader_lock(s, &wait, e) : 0;
    if (status)
        return status;
    char *name = path_without_slashes(directory);
    status = copy_and_name(s, name, cancel, e);
    free(name);
    if (lock)
        writer_unlock(s);
    return status;
}
