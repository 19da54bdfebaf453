/*
 * env.c - opening and closing tables.mdb: the directory, the lock file, the LMDB environment, the
 * format.
 *
 * Invariants: a process opens one directory at most once, because LMDB's locks and POSIX locks both
 * belong to the process; nothing is written to a directory that is not a kvasir database.
 * Transactions are in txn.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tables_int.h"

#define MAP_BYTES ((size_t)256 << 30)
#define MAP_BYTES_MIN ((size_t)64 << 20)

static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static store *open_stores;

/* ---- the lock file --------------------------------------------------------------------------- */

/* Opens writer.lock; sets read_only and no_lock by the permissions of the files. */
static int lock_file_open(store *s, err *e) {
    buf path = {0}, tables = {0};
    buf_printf(&path, "%s/writer.lock", s->path);
    buf_printf(&tables, "%s/tables.mdb", s->path);
    s->lock_fd = open(path.p, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    int error = s->lock_fd < 0 ? errno : 0;
    if (!error && access(tables.p, W_OK) != 0 && errno != ENOENT)
        s->read_only = true;
    if (error == EACCES || error == EROFS || error == EPERM) {
        s->read_only = s->no_lock = true;
        /* lock_fd = -1 if the file is absent: then no process can be writing. */
        s->lock_fd = open(path.p, O_RDONLY | O_CLOEXEC);
        error = 0;
    }
    if (error)
        err_set_errno(e, error, "cannot open '%s'", path.p);
    buf_free(&path);
    buf_free(&tables);
    return error ? ERR_IO : 0;
}

/* ---- the environment ------------------------------------------------------------------------- */

static int env_try_open(store *s, const char *file, size_t map_bytes) {
    unsigned flags = MDB_NOSUBDIR | MDB_NOTLS;
    if (s->read_only)
        flags |= MDB_RDONLY;
    if (s->no_lock)
        flags |= MDB_NOLOCK;
    if (s->memory)
        flags |= MDB_NOSYNC;
    int rc = lmdb_env_create(&s->env);
    if (rc)
        return rc;
    mdb_env_set_maxdbs(s->env, TREES_MAX + 2);
    mdb_env_set_maxreaders(s->env, READERS_MAX);
    mdb_env_set_mapsize(s->env, map_bytes);
    rc = s->no_lock ? 0 : lmdb_lock_file_reserve(file, 0644);
    if (!rc)
        rc = mdb_env_open(s->env, file, flags, 0644);
    if (rc) {
        mdb_env_close(s->env);
        s->env = NULL;
    }
    return rc;
}

/* Returns the size of the file's map. Under `ulimit -v`, that is at most half of the address space,
 * because models are mapped as well, but never less than the file's own size. */
static size_t map_bytes_for(const char *file) {
    struct rlimit space;
    struct stat st;
    size_t bytes = MAP_BYTES, least = MAP_BYTES_MIN;
    if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY)
        return bytes;
    if (stat(file, &st) == 0)
        least = BASE_MAX(least, (size_t)st.st_size);
    while (bytes > space.rlim_cur / 2 && bytes / 2 >= least)
        bytes /= 2;
    return bytes;
}

/* Replaces the hint of an error about damage while a database is being opened: where it does not open,
 * the commands have to name it. */
static void hint_unopened(const store *s, err *e) {
    if (!e || strcmp(e->hint, DAMAGE_HINT) != 0)
        return;
    buf name = {0};
    append_path(&name, s->path);
    err_hint(e,
             "kvasir -c \".check %s\" lists all damage; "
             "kvasir -c \".recover NEW %s\" copies all that is sound",
             name.p, name.p);
    buf_free(&name);
}

/* Whether a file without bytes is what a process left that was killed while it made a database: then
 * LMDB's lock file is there, and has no commit. */
static bool is_new(const char *file) {
    enum { COMMIT_AT = 8 }; /* offset of MDB_txninfo.mti_txnid */
    uint64_t commit = 1;
    buf path = {0};
    buf_printf(&path, "%s-lock", file);
    int fd = open(path.p, O_RDONLY | O_CLOEXEC);
    bool read = fd >= 0 && pread(fd, &commit, sizeof commit, COMMIT_AT) == sizeof commit;
    if (fd >= 0)
        close(fd);
    buf_free(&path);
    return read && commit == 0;
}

/* Checks the meta pages of a file before LMDB opens it; a file of another kind is left to LMDB,
 * which refuses it. Another process may be writing one of them at this moment, so a fault is
 * believed only when it stays. */
static int metas_check(const store *s, const char *file, err *e) {
    enum { TRIES = 20, BYTES = 1 << 16 };
    const struct timespec pause = {.tv_nsec = 2000000};
    const char *what = NULL;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0; /* a new file, or LMDB reports the error */
    struct stat st;
    bool lost = fstat(fd, &st) == 0 && st.st_size == 0 && !is_new(file);
    uint8_t *bytes = mem_alloc(BYTES);
    for (int i = 0; i < TRIES; i++) {
        page_meta meta;
        size_t page_bytes;
        ssize_t n = pread(fd, bytes, BYTES, 0);
        what = n <= 0 || !page_is_lmdb(bytes, (size_t)n)
                   ? NULL
                   : page_read_metas(bytes, (size_t)n, &page_bytes, &meta, NULL);
        if (!what)
            break;
        nanosleep(&pause, NULL);
    }
    free(bytes);
    close(fd);
    if (lost) {
        err_set(e, ERR_CORRUPT, "'%s/tables.mdb' has zero bytes: its tables are lost", s->path);
        err_hint(e, "restore the file from a backup, or remove it to begin anew");
        return ERR_CORRUPT;
    }
    if (!what)
        return 0;
    err_set(e, ERR_CORRUPT, "'%s/tables.mdb' is damaged: one of its first two pages %s", s->path,
            what);
    err_hint(e, DAMAGE_HINT);
    return ERR_CORRUPT;
}

static int env_open(store *s, err *e) {
    buf file = {0};
    buf_printf(&file, "%s/tables.mdb", s->path);
    s->map_bytes = s->options.map_bytes ? s->options.map_bytes : map_bytes_for(file.p);
    int rc, status = metas_check(s, file.p, e);
    if (status) {
        buf_free(&file);
        return status;
    }
    while ((rc = env_try_open(s, file.p, s->map_bytes)) == ENOMEM && s->map_bytes > MAP_BYTES_MIN)
        s->map_bytes /= 2;
    buf_free(&file);
    if (rc == MDB_INVALID || rc == MDB_VERSION_MISMATCH) {
        err_set(e, ERR_CORRUPT, "'%s/tables.mdb' is not a kvasir database: %s", s->path,
                mdb_strerror(rc));
        err_hint(e, DAMAGE_HINT);
        return ERR_CORRUPT;
    }
    if (rc)
        return err_set_errno(e, rc, "cannot open '%s/tables.mdb'", s->path);
    MDB_envinfo info;
    mdb_env_info(s->env, &info);
    s->map_bytes = info.me_mapsize;
    if (!s->read_only)
        mdb_reader_check(s->env, NULL);
    return 0;
}

/* Writes the header of a new file. Another process may have written it while this one waited for
 * the lock, so the check is repeated under the lock. */
static int format_initialise(store *s, err *e) {
    txn_wait wait = {.busy_timeout_ms = FORMAT_TIMEOUT_MS};
    bool empty = true;
    int status = writer_lock(s, &wait, e);
    if (status)
        return status;
    status = guard_attach(s, &empty, e);
    if (!status && empty) {
        MDB_txn *mdb = NULL;
        int rc = mdb_txn_begin(s->env, NULL, 0, &mdb);
        status =
            rc ? store_error(s, rc, "cannot write the database", e) : catalog_initialise(s, mdb, e);
        if (!status && (rc = mdb_txn_commit(mdb)) != 0)
            status = store_error(s, rc, "cannot write the database", e);
        else if (status && mdb)
            mdb_txn_abort(mdb);
        if (!status)
            status = guard_attach(s, NULL, e);
        if (!status && !s->memory)
            status = directory_sync(s->path, e);
    }
    writer_unlock(s);
    return status;
}

static int format_open(store *s, err *e) {
    bool empty = false;
    int status =
        s->no_lock ? reader_lock(s, &(txn_wait){.busy_timeout_ms = FORMAT_TIMEOUT_MS}, e) : 0;
    if (status)
        return status;
    status = guard_attach(s, &empty, e);
    if (s->no_lock)
        writer_unlock(s);
    if (status || !empty)
        return status;
    if (s->read_only)
        return err_set(e, ERR_IO,
                       "the database '%s' is empty and read-only: it cannot be initialised",
                       s->path);
    return format_initialise(s, e);
}

/* ---- open and close -------------------------------------------------------------------------- */

static int store_register(store *s, err *e) {
    int status = 0;
    pthread_mutex_lock(&open_mutex);
    for (store *other = open_stores; other; other = other->next_open)
        if (other->device == s->device && other->inode == s->inode)
            status = err_set(e, ERR_BUSY, "'%s' is already open in this process", s->path);
    if (!status) {
        s->next_open = open_stores;
        open_stores = s;
    }
    pthread_mutex_unlock(&open_mutex);
    return status;
}

static void store_unregister(store *s) {
    pthread_mutex_lock(&open_mutex);
    for (store **at = &open_stores; *at; at = &(*at)->next_open)
        if (*at == s) {
            *at = s->next_open;
            break;
        }
    pthread_mutex_unlock(&open_mutex);
}

int tables_open(store *s, err *e) {
    int status;
    if (s->memory) {
        memdir_sweep();
        status = memdir_create(&s->path, &s->owner_fd, e);
    } else {
        s->path = path_without_slashes(s->options.path);
        status = 0;
    }
    if (status || (status = directory_prepare(s, e)) != 0)
        return status;
    if ((status = store_register(s, e)) == 0 && (status = lock_file_open(s, e)) == 0 &&
        (status = env_open(s, e)) == 0)
        status = format_open(s, e);
    if (status == ERR_CORRUPT)
        hint_unopened(s, e);
    return status;
}

void tables_close(store *s) {
    while (s->open_txns)
        txn_abort(s->open_txns);
    snapshot_release(s->snap);
    if (s->idle_reader)
        mdb_txn_abort(s->idle_reader);
    if (s->env)
        mdb_env_close(s->env);
    guard_free(&s->guard);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    store_unregister(s);
    if (s->memory && s->path)
        memdir_remove(s->path, s->owner_fd);
}
