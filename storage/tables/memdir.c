/*
 * memdir.c - the private directory of a :memory: database.
 *
 * Invariant: a directory kvasir-mem-* whose owner.lock is not locked belongs to a dead process, and
 * any process of the same user may remove it. The kernel releases the flock() when the process
 * dies.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tables_int.h"

#define PREFIX "kvasir-mem-"
enum { UNLOCKED_GRACE_S = 60 };

static const char *temporary_directory(void) {
    const char *dir = getenv("TMPDIR");
    return dir && *dir ? dir : "/tmp";
}

static void remove_files(const char *path) {
    DIR *d = opendir(path);
    if (!d)
        return;
    for (struct dirent *entry; (entry = readdir(d));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(dirfd(d), entry->d_name, 0);
    closedir(d);
    rmdir(path);
}

int memdir_create(char **path, int *owner_fd, err *e) {
    buf name = {0};
    buf_printf(&name, "%s/" PREFIX "%ld-XXXXXX", temporary_directory(), (long)getpid());
    if (!mkdtemp(name.p)) {
        err_set_errno(e, errno, "cannot create a temporary database in '%s'",
                      temporary_directory());
        buf_free(&name);
        return ERR_IO;
    }
    buf lock = {0};
    buf_printf(&lock, "%s/owner.lock", name.p);
    *owner_fd = open(lock.p, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    buf_free(&lock);
    /* The byte means that the lock has been held; an empty lock file may be about to be locked. */
    if (*owner_fd < 0 || flock(*owner_fd, LOCK_EX | LOCK_NB) != 0 ||
        write(*owner_fd, "k", 1) != 1) {
        err_set_errno(e, errno, "cannot lock the temporary database '%s'", name.p);
        if (*owner_fd >= 0)
            close(*owner_fd);
        remove_files(name.p);
        buf_free(&name);
        return ERR_IO;
    }
    *path = name.p;
    return 0;
}

void memdir_remove(const char *path, int owner_fd) {
    remove_files(path);
    if (owner_fd >= 0)
        close(owner_fd);
}

/* Removes the directory of a dead process. A directory without a lock file may be about to get
 * one. */
static void sweep_one(const char *path) {
    struct stat st;
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid())
        return;
    buf lock = {0};
    buf_printf(&lock, "%s/owner.lock", path);
    int fd = open(lock.p, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    buf_free(&lock);
    if (fd < 0) {
        if (errno == ENOENT && time(NULL) - st.st_mtime > UNLOCKED_GRACE_S)
            remove_files(path);
        return;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 &&
        (st.st_size > 0 || time(NULL) - st.st_mtime > UNLOCKED_GRACE_S))
        remove_files(path);
    close(fd);
}

void memdir_sweep(void) {
    const char *dir = temporary_directory();
    DIR *d = opendir(dir);
    if (!d)
        return;
    buf path = {0};
    for (struct dirent *entry; (entry = readdir(d));) {
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        buf_clear(&path);
        buf_printf(&path, "%s/%s", dir, entry->d_name);
        sweep_one(path.p);
    }
    buf_free(&path);
    closedir(d);
}
