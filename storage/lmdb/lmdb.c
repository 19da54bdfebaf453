/*
 * lmdb.c - LMDB as tables/ and cache/ both use it: error texts, environments, map sizes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lmdb_int.h"

int lmdb_error(err *e, int rc, const char *what) {
    switch (rc) {
    case 0:
        return 0;
    case MDB_MAP_FULL:
        return err_set(e, ERR_FULL, "%s: the file has reached its maximum size", what);
    case MDB_TXN_FULL: /* a child cannot change pages that its parent has already spilled to disk */
        err_set(e, ERR_FULL, "%s: the open transaction has too many uncommitted changes", what);
        err_hint(e, "run COMMIT before this statement");
        return ERR_FULL;
    case MDB_MAP_RESIZED:
        err_set(e, ERR_FULL, "%s: the file has grown and this process cannot map all of it", what);
        err_hint(e, "raise ulimit -v, or end the open transaction");
        return ERR_FULL;
    case ENOSPC:
    case EDQUOT:
        return err_set(e, ERR_FULL, "%s: the disk is full", what);
    case MDB_READERS_FULL:
        return err_set(e, ERR_BUSY, "%s: too many processes are reading this database", what);
    case MDB_PANIC:
        err_set(e, ERR_IO, "%s: an earlier write failed", what);
        err_hint(e, "close the database and open it again");
        return ERR_IO;
    case MDB_BAD_TXN:
        err_set(e, ERR_IO, "%s: this transaction has failed and can only be rolled back", what);
        err_hint(e, "ROLLBACK");
        return ERR_IO;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
    case MDB_NOTFOUND:
        return err_set(e, ERR_CORRUPT, "%s: the file is damaged: %s", what, mdb_strerror(rc));
    case EIO: /* LMDB returns EIO for a short write as well */
        return err_set(e, ERR_IO, "%s: the disk is full or failing", what);
    default:
        return err_set(e, ERR_IO, "%s: %s", what, mdb_strerror(rc));
    }
}

/* LMDB calls this when one of its assertions fails, then prints the assertion and aborts. */
static void report_damaged(MDB_env *env, const char *message) {
    const char *path = NULL;
    (void)message;
    if (mdb_env_get_path(env, &path) == 0 && path)
        fprintf(stderr, "kvasir: '%s' is damaged; kvasir has to stop\n", path);
}

int lmdb_env_create(MDB_env **out) {
    int rc = mdb_env_create(out);
    return rc ? rc : mdb_env_set_assert(*out, report_damaged);
}

int lmdb_map_resize(MDB_env *env, size_t bytes) {
    MDB_envinfo info;
    MDB_stat stat;
    mdb_filehandle_t fd = -1;
    int rc = mdb_env_info(env, &info);
    rc = rc ? rc : mdb_env_stat(env, &stat);
    rc = rc ? rc : mdb_env_get_fd(env, &fd);
    if (rc)
        return rc;
    size_t used = (info.me_last_pgno + 1) * stat.ms_psize;
    size_t wanted = bytes ? BASE_MAX(bytes, used) : info.me_mapsize;
    while (wanted < used)
        wanted *= 2;
    void *room = mmap(NULL, wanted, PROT_READ, MAP_SHARED, fd, 0);
    if (room == MAP_FAILED)
        return errno;
    munmap(room, wanted);
    return mdb_env_set_mapsize(env, wanted);
}

int lmdb_lock_file_reserve(const char *file, mode_t mode) {
    buf path = {0};
    buf_printf(&path, "%s-lock", file);
    int fd = open(path.p, O_RDWR | O_CREAT | O_CLOEXEC, mode);
    buf_free(&path);
    if (fd < 0)
        return 0; /* LMDB opens it next and reports the error */
    struct stat st;
    int error = fstat(fd, &st) != 0 ? errno : 0;
    off_t bytes = st.st_size > 0 ? st.st_size : LOCK_FILE_BYTES;
    if (!error && fallocate(fd, 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        error = errno;
    close(fd);
    return error;
}
