/*
 * env.c - opening and closing a database: its directory, its LMDB environment, its format.
 *
 * Invariant: one directory is open at most once in a process (LMDB's locks and POSIX locks are both
 * per process), and a directory that is not ours is never written to. What a transaction does is
 * txn.c's.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "storage_int.h"

#define MAP_BYTES ((size_t)256 << 30)
#define MAP_BYTES_MIN ((size_t)64 << 20)
enum { INIT_TIMEOUT_MS = 5000 };

static const char *const our_files[] = {"tables.mdb",      "tables.mdb-lock",  "cache.mdb",
                                        "cache.mdb-lock",  "writer.lock",      "owner.lock",
                                        "cache.mdb-users", "cache.mdb-damaged"};

static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static store *open_stores;

int lmdb_error(err *e, int rc, const char *what) {
    switch (rc) {
    case 0:
        return 0;
    case MDB_MAP_FULL:
        return err_set(e, ERR_FULL, "%s: the database has reached its largest size", what);
    case MDB_TXN_FULL: /* what the transaction has written to disk, a child cannot write again */
        err_set(e, ERR_FULL, "%s: the statement changes too much of what its transaction wrote",
                what);
        err_hint(e, "COMMIT what came before it");
        return ERR_FULL;
    case MDB_MAP_RESIZED:
        return err_set(e, ERR_FULL, "%s: it has outgrown this process's address space (ulimit -v)",
                       what);
    case ENOSPC:
    case EDQUOT:
        return err_set(e, ERR_FULL, "%s: the disk is full", what);
    case MDB_READERS_FULL:
        return err_set(e, ERR_BUSY, "%s: too many processes are reading this database", what);
    case MDB_PANIC:
        return err_set(e, ERR_IO, "%s: a write failed before; leave the database and open it again",
                       what);
    case MDB_BAD_TXN:
        return err_set(e, ERR_IO, "%s: this transaction failed before; ROLLBACK ends it", what);
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
    case MDB_NOTFOUND:
        return err_set(e, ERR_CORRUPT, "%s: the file is damaged (%s)", what, mdb_strerror(rc));
    case EIO: /* LMDB's word for a write that came to less than was asked for */
        return err_set(e, ERR_IO, "%s: the disk is full or does not work", what);
    default:
        return err_set(e, ERR_IO, "%s: %s", what, mdb_strerror(rc));
    }
}

/* Before LMDB says which of its assumptions failed, and ends the process. */
static void say_damaged(MDB_env *env, const char *message) {
    const char *path = NULL;
    (void)message;
    if (mdb_env_get_path(env, &path) == 0 && path)
        fprintf(stderr, "kvasir: '%s' is damaged; this process cannot go on\n", path);
}

int lmdb_env_create(MDB_env **out) {
    int rc = mdb_env_create(out);
    return rc ? rc : mdb_env_set_assert(*out, say_damaged);
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
        return 0; /* LMDB opens it next, and says why it cannot */
    struct stat st;
    int error = fstat(fd, &st) != 0 ? errno : 0;
    off_t bytes = st.st_size > 0 ? st.st_size : LOCK_FILE_BYTES;
    if (!error && fallocate(fd, 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
        error = errno;
    close(fd);
    return error;
}

/* ---- the directory --------------------------------------------------------------------------- */

static bool is_our_file(const char *name) {
    for (size_t i = 0; i < BASE_COUNT(our_files); i++)
        if (strcmp(name, our_files[i]) == 0)
            return true;
    return false;
}

static int file_is_no_database(const char *path, err *e) {
    char head[16] = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, head, sizeof head) : -1;
    if (fd >= 0)
        close(fd);
    bool sqlite = n == 16 && memcmp(head, "SQLite format 3", 16) == 0;
    err_set(e, ERR_CORRUPT, "'%s' is %s, not a kvasir database (which is a directory)", path,
            sqlite ? "an SQLite database" : "a file");
    if (sqlite)
        err_hint(e,
                 "a table moves as CSV: sqlite3 -header -csv '%s' 'SELECT * FROM t' | "
                 "kvasir NEW \"CREATE TABLE t AS SELECT * FROM '-'\"",
                 path);
    else
        err_hint(e, "a CSV file can be queried directly: SELECT * FROM '%s'", path);
    return ERR_CORRUPT;
}

/* A directory with other things in it and no tables.mdb
 * is somebody's; making files there would surprise them. */
static int directory_check(const char *path, bool *has_tables, err *e) {
    DIR *d = opendir(path);
    if (!d)
        return err_set_errno(e, errno, "cannot open '%s'", path);
    int status = 0;
    char other[256] = "";
    *has_tables = false;
    for (struct dirent *entry; (entry = readdir(d));)
        if (strcmp(entry->d_name, "tables.mdb") == 0)
            *has_tables = true;
        else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
                 !is_our_file(entry->d_name))
            memcpy(other, entry->d_name, strlen(entry->d_name) + 1);
    closedir(d);
    if (!*has_tables && *other)
        status = err_set(e, ERR_CORRUPT,
                         "'%s' is a directory with other files in it ('%s'), not a kvasir database",
                         path, other);
    return status;
}

static int directory_prepare(store *s, err *e) {
    struct stat st;
    bool has_tables = false;
    if (stat(s->path, &st) != 0) {
        if (errno != ENOENT)
            return err_set_errno(e, errno, "cannot open '%s'", s->path);
        if (s->options.must_exist || s->read_only)
            return err_set(e, ERR_IO, "there is no database '%s'", s->path);
        if (mkdir(s->path, 0777) != 0 && errno != EEXIST)
            return err_set_errno(e, errno, "cannot create '%s'", s->path);
    } else if (!S_ISDIR(st.st_mode)) {
        return file_is_no_database(s->path, e);
    }
    int status = directory_check(s->path, &has_tables, e);
    if (status)
        return status;
    if (!has_tables && (s->options.must_exist || s->read_only))
        return err_set(e, ERR_IO, "there is no database in '%s'", s->path);
    struct statfs fs;
    if (statfs(s->path, &fs) != 0 || stat(s->path, &st) != 0)
        return err_set_errno(e, errno, "cannot examine '%s'", s->path);
    const char *network = fs_network_name((long)fs.f_type);
    if (network) {
        err_set(e, ERR_UNSUPPORTED,
                "'%s' is on a network file system (%s), where locks and memory maps do not work",
                s->path, network);
        err_hint(e, "keep the database on a local disk");
        return ERR_UNSUPPORTED;
    }
    s->device = st.st_dev;
    s->inode = st.st_ino;
    return 0;
}

/* Opens writer.lock, and finds out whether we may write here at all. */
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
        s->lock_fd = open(
            path.p, O_RDONLY | O_CLOEXEC); /* may be absent: then nobody ever wrote here since */
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

/* What a file's map may take: of an address space that is bounded (ulimit -v) at most half, since a
 * model has to be mapped, too, unless the file itself needs more. */
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

static int env_open(store *s, err *e) {
    buf file = {0};
    buf_printf(&file, "%s/tables.mdb", s->path);
    s->map_bytes = s->options.map_bytes ? s->options.map_bytes : map_bytes_for(file.p);
    int rc;
    while ((rc = env_try_open(s, file.p, s->map_bytes)) == ENOMEM && s->map_bytes > MAP_BYTES_MIN)
        s->map_bytes /= 2;
    buf_free(&file);
    if (rc == MDB_INVALID || rc == MDB_VERSION_MISMATCH)
        return err_set(e, ERR_CORRUPT, "'%s/tables.mdb' is not a kvasir database: %s", s->path,
                       mdb_strerror(rc));
    if (rc)
        return err_set_errno(e, rc, "cannot open '%s/tables.mdb'", s->path);
    MDB_envinfo info;
    mdb_env_info(s->env, &info);
    s->map_bytes = info.me_mapsize;
    if (!s->read_only)
        mdb_reader_check(s->env, NULL);
    return 0;
}

/* Looks for our header. *empty: a new file without any tree. */
static int format_check(store *s, bool *empty, err *e) {
    MDB_txn *mdb = NULL;
    int rc = mdb_txn_begin(s->env, NULL, MDB_RDONLY, &mdb);
    if (rc)
        return lmdb_error(e, rc, "cannot read the database");
    MDB_dbi main_dbi, dbi;
    MDB_stat stat = {0};
    int status = 0;
    *empty = false;
    if ((rc = mdb_dbi_open(mdb, NULL, 0, &main_dbi)) == 0)
        rc = mdb_stat(mdb, main_dbi, &stat);
    if (rc) {
        status = lmdb_error(e, rc, "cannot read the database");
    } else if (stat.ms_entries == 0) {
        *empty = true;
    } else if ((rc = mdb_dbi_open(mdb, "catalog", 0, &dbi)) == MDB_NOTFOUND ||
               rc == MDB_INCOMPATIBLE) {
        status = err_set(e, ERR_CORRUPT,
                         "'%s/tables.mdb' is another program's LMDB file, not a kvasir database",
                         s->path);
    } else if (rc) {
        status = lmdb_error(e, rc, "cannot read the database");
    } else {
        MDB_val key = {1, "H"}, header = {0, NULL};
        uint64_t cookie;
        uint32_t next_id;
        mdb_get(mdb, dbi, &key, &header);
        status = catalog_check_header(s->path, header, &cookie, &next_id, e);
        s->catalog_dbi = dbi;
        if (!status && mdb_dbi_open(mdb, "meta", 0, &s->meta_dbi) != 0)
            status = err_set(e, ERR_CORRUPT, "'%s/tables.mdb' lacks its tree 'meta'", s->path);
    }
    if (status || *empty)
        mdb_txn_abort(mdb);
    else
        mdb_txn_commit(mdb); /* keeps the handles */
    return status;
}

static int sync_path(const char *path, err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync(fd), error = errno;
    if (fd >= 0)
        close(fd);
    if (rc == 0 || error == EINVAL || error == EACCES) /* not for directories; not ours to read */
        return 0;
    return err_set_errno(e, error, "cannot write '%s'", path);
}

/* LMDB syncs a file's bytes; that a new file and its directory have
 * names is for us to see to, or a power failure takes what was committed. */
static int sync_names(const char *directory, err *e) {
    buf parent = {0};
    buf_printf(&parent, "%s/..", directory);
    int status = sync_path(directory, e);
    if (!status)
        status = sync_path(parent.p, e);
    buf_free(&parent);
    return status;
}

/* Two processes may find the same new file empty: the second looks again once it has the lock. */
static int format_initialise(store *s, err *e) {
    txn_wait wait = {.busy_timeout_ms = INIT_TIMEOUT_MS};
    bool empty = true;
    int status = writer_lock(s, &wait, e);
    if (status)
        return status;
    status = format_check(s, &empty, e);
    if (!status && empty) {
        MDB_txn *mdb = NULL;
        int rc = mdb_txn_begin(s->env, NULL, 0, &mdb);
        status =
            rc ? lmdb_error(e, rc, "cannot write the database") : catalog_initialise(s, mdb, e);
        if (!status && (rc = mdb_txn_commit(mdb)) != 0)
            status = lmdb_error(e, rc, "cannot write the database");
        else if (status && mdb)
            mdb_txn_abort(mdb);
        if (!status && !s->memory)
            status = sync_names(s->path, e);
    }
    writer_unlock(s);
    return status;
}

static int format_open(store *s, err *e) {
    bool empty = false;
    int status =
        s->no_lock ? reader_lock(s, &(txn_wait){.busy_timeout_ms = INIT_TIMEOUT_MS}, e) : 0;
    if (status)
        return status;
    status = format_check(s, &empty, e);
    if (s->no_lock)
        writer_unlock(s);
    if (status || !empty)
        return status;
    if (s->read_only)
        return err_set(e, ERR_IO, "the database '%s' is empty and cannot be written", s->path);
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

/* The path without trailing slashes, so that messages and the files' names read well. */
static char *path_clean(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return mem_strndup(path, n);
}

static int store_open_files(store *s, err *e) {
    int status;
    if (s->memory) {
        memdir_sweep();
        status = memdir_create(&s->path, &s->owner_fd, e);
    } else {
        s->path = path_clean(s->options.path);
        status = 0;
    }
    if (status || (status = directory_prepare(s, e)) != 0)
        return status;
    if ((status = store_register(s, e)) != 0) {
        s->inode = 0; /* not ours to unregister */
        return status;
    }
    if ((status = lock_file_open(s, e)) == 0 && (status = env_open(s, e)) == 0)
        status = format_open(s, e);
    return status;
}

int store_open(const store_options *options, store **out, err *e) {
    store *s = mem_zalloc(sizeof *s);
    s->options = *options;
    s->options.path = mem_strdup(options->path);
    s->options.cache_path = mem_strdup(options->cache_path);
    s->memory = !options->path || strcmp(options->path, ":memory:") == 0;
    s->read_only = options->read_only && !s->memory;
    s->lock_fd = s->owner_fd = -1;
    int status = store_open_files(s, e);
    if (status) {
        store_close(s);
        return status;
    }
    *out = s;
    return 0;
}

void store_close(store *s) {
    if (!s)
        return;
    while (s->open_txns)
        txn_abort(s->open_txns);
    cache_close(s->cache);
    snapshot_release(s->snap);
    if (s->idle_reader)
        mdb_txn_abort(s->idle_reader);
    if (s->env)
        mdb_env_close(s->env);
    if (s->lock_fd >= 0)
        close(s->lock_fd);
    store_unregister(s);
    if (s->memory && s->path)
        memdir_remove(s->path, s->owner_fd);
    free((char *)(uintptr_t)s->options.path);
    free((char *)(uintptr_t)s->options.cache_path);
    free(s->path);
    free(s);
}

const char *store_path(const store *s) {
    return s->memory ? ":memory:" : s->path;
}

bool store_is_memory(const store *s) {
    return s->memory;
}

bool store_is_read_only(const store *s) {
    return s->read_only;
}

/* ---- backup ---------------------------------------------------------------------------------- */

/* LMDB's copying looks at no flag, but ends where it cannot write: so it writes to a pipe, whose
 * other end a thread reads. */
typedef struct copying {
    int from, to;
    const atomic_bool *cancel;
    int error; /* errno */
} copying;

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

static void *copying_main(void *arg) {
    copying *c = arg;
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

/* Writes the copy to the file; an errno or one of LMDB's. */
static int copy_env(store *s, int file, const atomic_bool *cancel) {
    int ends[2];
    pthread_t thread;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    (void)fcntl(ends[1], F_SETPIPE_SZ, COPY_BYTES); /* more than it has; not every user may */
    copying c = {.from = ends[0], .to = file, .cancel = cancel};
    int rc = pthread_create(&thread, NULL, copying_main, &c);
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

/* LMDB writes a copy's root first: one that was broken off would look like a database. So it is
 * made in `part`, and gets its name when it is whole and its bytes are on the disk. */
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

/* Whoever was killed has left his, and processes get the numbers of earlier ones. */
static int make_part(const char *directory, buf *part) {
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
    int status = taken || make_part(directory, &part) != 0
                     ? err_set_errno(e, taken ? EEXIST : errno, "cannot create '%s'", directory)
                     : copy_tables(s, part.p, directory, cancel, e);
    if (!status)
        status = sync_names(directory, e);
    buf_free(&part);
    return status;
}

int store_backup(store *s, const char *directory, const atomic_bool *cancel, err *e) {
    const txn_wait wait = {.busy_timeout_ms = INIT_TIMEOUT_MS, .cancel = cancel};
    bool lock = s->no_lock && !s->open_txns; /* else writers know of us, or wait already */
    int status = lock ? reader_lock(s, &wait, e) : 0;
    if (status)
        return status;
    char *name = path_clean(directory);
    status = copy_and_name(s, name, cancel, e);
    free(name);
    if (lock)
        writer_unlock(s);
    return status;
}
