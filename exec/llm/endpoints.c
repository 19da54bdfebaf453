/*
 * endpoints.c - which endpoints of models this user allowed.
 *
 * A database or a script from somebody else must not send rows, or a key of the environment, to a
 * server of its choice. So every endpoint but one on this machine without a key needs the user's
 * leave, as a pair "origin" or "origin,key": in ~/.config/kvasir/endpoints, one a line, or for this
 * process (--allow-endpoint, an answer at the prompt).
 *
 * Invariant: an engine whose pairs are not all allowed is not opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "llm_int.h"

/* A list of pairs is small: a file beyond this size is not one. */
enum { FILE_MAX = 1 << 20 };

static bool list_path(buf *path) {
    bool found = xdg_path("XDG_CONFIG_HOME", ".config", path);
    buf_append_c(path, "/endpoints");
    return found;
}

/* Reads the user's list; a file that others may write is not read. */
static void read_list(buf *out) {
    buf path = {0};
    struct stat st;
    int fd = list_path(&path) ? open(path.p, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
    bool sound = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
                 (st.st_mode & 022) == 0 && st.st_size < FILE_MAX;
    char bytes[4096];
    for (ssize_t n; sound && (n = read(fd, bytes, sizeof bytes)) > 0;)
        buf_append(out, bytes, (size_t)n);
    if (fd >= 0)
        close(fd);
    buf_free(&path);
}

static bool in_list(str list, str pair) {
    while (list.n > 0)
        if (str_equal(str_trim(str_split_next(&list, '\n'), STR_SPACES), pair))
            return true;
    return false;
}

int endpoints_allowed(db *d, str source, str options, err *e) {
    buf pairs = {0}, kept = {0};
    buf_clear(&d->refused);
    llm_remote_pairs(source, options, &pairs);
    str rest = pairs.n > 0 ? buf_str(&pairs) : STR("");
    if (rest.n > 0)
        read_list(&kept);
    while (rest.n > 0) {
        str pair = str_split_next(&rest, '\n');
        if (in_list(buf_str(&kept), pair) || in_list(buf_str(&d->allowed), pair))
            continue;
        buf_append_str(&d->refused, pair);
        buf_append_char(&d->refused, '\n');
    }
    int status = 0;
    if (d->refused.n > 0) {
        str left = buf_str(&d->refused), first = str_split_next(&left, '\n'), key = first,
            origin = str_split_next(&key, ',');
        status =
            err_set(e, ERR_MODEL, "sending rows to %.*s%s%.*s is not allowed yet", (int)origin.n,
                    origin.p, key.n > 0 ? " with the key of " : "", (int)key.n, key.p);
        err_hint(e, "--allow-endpoint %.*s allows it", (int)BASE_MIN(first.n, 200u), first.p);
    }
    buf_free(&pairs);
    buf_free(&kept);
    return status;
}

const char *db_refused_endpoints(const db *d) {
    return d->refused.n > 0 ? d->refused.p : "";
}

void db_allow_endpoints(db *d, const char *pairs) {
    buf_append_c(&d->allowed, pairs);
    buf_append_char(&d->allowed, '\n');
    buf_clear(&d->refused);
}

int db_keep_endpoints(const char *pairs, err *e) {
    buf path = {0}, text = {0}, kept = {0};
    if (!list_path(&path)) {
        buf_free(&path);
        return err_set(e, ERR_IO, "there is no home directory to keep the list of endpoints in");
    }
    read_list(&kept);
    for (str rest = str_from(pairs); rest.n > 0;) {
        str pair = str_split_next(&rest, '\n');
        if (pair.n > 0 && !in_list(buf_str(&kept), pair))
            buf_printf(&text, "%.*s\n", (int)pair.n, pair.p);
    }
    for (char *slash = strchr(path.p + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path.p, 0700); /* a failure is noticed when the file is opened */
        *slash = '/';
    }
    int fd = open(path.p, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int status = 0;
    if (fd < 0 || (text.n > 0 && write(fd, text.p, text.n) != (ssize_t)text.n))
        status = err_set_errno(e, errno, "cannot write '%s'", path.p);
    if (fd >= 0)
        close(fd);
    buf_free(&path);
    buf_free(&text);
    buf_free(&kept);
    return status;
}

void endpoints_typed(db *d, const model_def *def) {
    buf pairs = {0};
    err e = {0};
    llm_remote_pairs(def->source, def->options, &pairs);
    if (pairs.n > 0) {
        db_allow_endpoints(d, pairs.p);
        db_keep_endpoints(pairs.p, &e); /* if it cannot be kept, the next process asks */
    }
    buf_free(&pairs);
}
