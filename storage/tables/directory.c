/*
 * directory.c - the directory of a database: which ones are refused, creation, fsync.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tables_int.h"

static const char *const database_files[] = {"tables.mdb",      "tables.mdb-lock",  "cache.mdb",
                                             "cache.mdb-lock",  "writer.lock",      "owner.lock",
                                             "cache.mdb-users", "cache.mdb-damaged"};

static const struct {
    long magic;
    const char *name;
} network_systems[] = {
    {0x6969, "NFS"},       {0x517B, "SMB"},        {0xFF534D42, "CIFS"}, {0xFE534D42, "SMB2"},
    {0x73757245, "Coda"},  {0x5346414F, "AFS"},    {0x6B414653, "AFS"},  {0x00C36400, "Ceph"},
    {0x01021997, "9P"},    {0x0BD00BD0, "Lustre"}, {0x564C, "NCP"},      {0x47504653, "GPFS"},
    {0x7461636F, "OCFS2"}, {0x01161970, "GFS2"},
};

const char *fs_network_name(long magic) {
    for (size_t i = 0; i < BASE_COUNT(network_systems); i++)
        if (network_systems[i].magic == (magic & 0xFFFFFFFFL))
            return network_systems[i].name;
    return NULL;
}

static bool is_database_file(const char *name) {
    for (size_t i = 0; i < BASE_COUNT(database_files); i++)
        if (strcmp(name, database_files[i]) == 0)
            return true;
    return false;
}

/* Sets the error for a path that names a file. */
static int refuse_file(const char *path, err *e) {
    static const char wanted[] = ", not a kvasir database (which is a directory)";
    char head[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? read(fd, head, sizeof head) : -1;
    if (fd >= 0)
        close(fd);
    int status =
        refuse_foreign_file(ERR_CORRUPT, path, (str){head, n > 0 ? (size_t)n : 0}, wanted, e);
    if (status)
        return status;
    err_set(e, ERR_CORRUPT, "'%s' is a file%s", path, wanted);
    if (n == 0)
        err_hint(e, "it has zero bytes; remove it, or give the new database another name");
    else
        err_hint(e, "a CSV file can be queried directly: SELECT * FROM '%s'", path);
    return ERR_CORRUPT;
}

/* Refuses a directory that has other files and no tables.mdb: the user did not mean a database. */
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
                 !is_database_file(entry->d_name))
            memcpy(other, entry->d_name, strlen(entry->d_name) + 1);
    closedir(d);
    if (!*has_tables && *other)
        status = err_set(e, ERR_CORRUPT,
                         "'%s' is a directory with other files in it ('%s'), not a kvasir database",
                         path, other);
    return status;
}

int directory_prepare(store *s, err *e) {
    struct stat st;
    bool has_tables = false;
    if (stat(s->path, &st) != 0) {
        if (errno != ENOENT)
            return err_set_errno(e, errno, "cannot open '%s'", s->path);
        if (s->options.must_exist || s->read_only)
            return err_set(e, ERR_IO, "no database '%s'", s->path);
        if (mkdir(s->path, 0777) != 0 && errno != EEXIST)
            return err_set_errno(e, errno, "cannot create '%s'", s->path);
    } else if (!S_ISDIR(st.st_mode)) {
        return refuse_file(s->path, e);
    }
    int status = directory_check(s->path, &has_tables, e);
    if (status)
        return status;
    if (!has_tables && (s->options.must_exist || s->read_only))
        return err_set(e, ERR_IO, "no database in '%s'", s->path);
    struct statfs fs;
    if (statfs(s->path, &fs) != 0 || stat(s->path, &st) != 0)
        return err_set_errno(e, errno, "cannot read '%s'", s->path);
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

static int sync_path(const char *path, err *e) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync(fd), error = errno;
    if (fd >= 0)
        close(fd);
    /* EINVAL: this file system does not sync directories. EACCES: the parent is not readable. */
    if (rc == 0 || error == EINVAL || error == EACCES)
        return 0;
    return err_set_errno(e, error, "cannot write '%s'", path);
}

int directory_sync(const char *directory, err *e) {
    buf parent = {0};
    buf_printf(&parent, "%s/..", directory);
    int status = sync_path(directory, e);
    if (!status)
        status = sync_path(parent.p, e);
    buf_free(&parent);
    return status;
}

char *path_without_slashes(const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return mem_strndup(path, n);
}

void append_path(buf *b, const char *path) {
    buf_append_char(b, '\'');
    for (; *path; path++) {
        if (*path == '\'')
            buf_append_char(b, '\'');
        buf_append_char(b, *path);
    }
    buf_append_char(b, '\'');
}
