/*
 * store.c - one database: opens its tables and, on first use, its cache, and closes both.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/cache_int.h"
#include "tables/tables_int.h"

int store_open(const store_options *options, store **out, err *e) {
    store *s = mem_zalloc(sizeof *s);
    s->options = *options;
    s->options.path = mem_strdup(options->path);
    s->options.cache_path = mem_strdup(options->cache_path);
    s->memory = !options->path || strcmp(options->path, ":memory:") == 0;
    s->read_only = options->read_only && !s->memory;
    s->lock_fd = s->owner_fd = -1;
    int status = tables_open(s, e);
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
    cache_close(s->cache);
    tables_close(s);
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

/* ---- recovering ------------------------------------------------------------------------------ */

/* Removes the files of a database of which only the first is to stay (keep), or none. */
static void remove_files(const char *directory, bool keep) {
    static const char *const names[] = {"tables.mdb", "tables.mdb-lock", "writer.lock"};
    buf path = {0};
    for (size_t i = keep; i < sizeof names / sizeof *names; i++) {
        buf_clear(&path);
        buf_printf(&path, "%s/%s", directory, names[i]);
        unlink(path.p);
    }
    if (!keep)
        rmdir(directory);
    buf_free(&path);
}

/* Like a backup, the copy has its name only when it is complete. */
int store_recover(store *s, const char *directory, const char *from, const atomic_bool *cancel,
                  buf *report, bool *whole, err *e) {
    struct stat st;
    buf part = {0};
    store *to = NULL;
    char *name = path_without_slashes(directory);
    bool taken = lstat(name, &st) == 0;
    int status = 0;
    if (taken || part_create(name, &part) != 0) {
        status = err_set_errno(e, taken ? EEXIST : errno, "cannot create '%s'", name);
    } else {
        status = store_open(&(store_options){.path = part.p}, &to, e);
        if (!status)
            status = tables_recover(s, from, to, cancel, report, whole, e);
        store_close(to);
        remove_files(part.p, !status);
        if (!status && rename(part.p, name) != 0)
            status = err_set_errno(e, errno, "cannot create '%s'", name);
        if (status)
            remove_files(part.p, false);
        else
            status = directory_sync(name, e);
    }
    buf_free(&part);
    free(name);
    return status;
}

/* ---- the cache ------------------------------------------------------------------------------- */

static void make_directories(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700); /* an error shows when the file is opened */
        *slash = '/';
    }
}

/* Returns the path of the cache's file, on the heap; NULL, with *e set: there is no place for it.
 * It is the path in the options, else a file beside the tables. If the tables' directory is
 * temporary or read-only, it is a file in the user's cache directory. */
static char *cache_file(const store *s, err *e) {
    buf b = {0};
    if (s->options.cache_path) {
        buf_append_c(&b, s->options.cache_path);
    } else if (!s->memory && !s->read_only) {
        buf_printf(&b, "%s/cache.mdb", s->path);
    } else if (xdg_path("XDG_CACHE_HOME", ".cache", &b)) {
        buf_append_c(&b, "/cache.mdb");
    } else {
        err_set(e, ERR_IO,
                "no place for a cache: XDG_CACHE_HOME and HOME are not set, and this user has no "
                "home directory");
        return NULL;
    }
    make_directories(b.p);
    return b.p;
}

cache *store_cache(store *s, err *e) {
    if (!s->cache) {
        char *path = cache_file(s, e);
        s->cache = path ? cache_open(path, s->options.cache_bytes, e) : NULL;
        free(path);
    }
    return s->cache;
}
