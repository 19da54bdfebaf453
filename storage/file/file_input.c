/*
 * file_input.c - the bytes of a table file: a file or standard input, plain or gzipped, or memory.
 *
 * Invariants: the bytes between start and end stay until the reader moves start, but their address
 * may change in file_input_more. A statement opens a file twice, to bind and to run; a pipe that is
 * closed before a row was read is therefore kept open, with the bytes read so far, for the next
 * open.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "file_int.h"

enum { WINDOW_FIRST = 256 << 10, GZIP_IN = 64 << 10 };

typedef struct file_gzip {
    z_stream z;
    bool file_end;   /* the compressed input has been read to its end */
    bool member_end; /* the current member has been decompressed to its end */
    unsigned char in[GZIP_IN];
} file_gzip;

/* Waits until read() would return data, the end, or an error. */
static int wait_bytes(const file_input *in, err *e) {
    enum { LOOK_MS = 20 }; /* interval at which in->cancel is checked */
    struct pollfd at = {.fd = in->fd, .events = POLLIN};
    for (;;) {
        if (check_cancel(in->cancel, e))
            return ERR_CANCELLED;
        int n = poll(&at, 1, in->cancel ? LOOK_MS : -1);
        if (n > 0 || (n < 0 && errno != EINTR))
            return 0;
    }
}

static int read_fd(file_input *in, void *out, size_t room, size_t *got, err *e) {
    ssize_t n;
    do {
        int status = in->once ? wait_bytes(in, e) : 0;
        if (status)
            return status;
        n = read(in->fd, out, room);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n < 0)
        return err_set_errno(e, errno, "cannot read '%s'", in->name);
    *got = (size_t)n;
    return 0;
}

static int gzip_damaged(const file_input *in, err *e) {
    return err_set(e, ERR_CORRUPT, "'%s': the gzip data is damaged or truncated", in->name);
}

/* Moves to the next gzip member. A file may have several, as `cat a.gz b.gz` makes; zero padding
 * after the last member is ignored. */
static int gzip_next_member(file_input *in, err *e) {
    file_gzip *g = in->gzip;
    while (g->z.avail_in && *g->z.next_in == 0) {
        g->z.next_in++;
        g->z.avail_in--;
    }
    if (g->z.avail_in == 0)
        return 0;
    g->member_end = false;
    return inflateReset(&g->z) == Z_OK ? 0 : gzip_damaged(in, e);
}

static int read_gzip(file_input *in, char *out, size_t room, size_t *got, err *e) {
    file_gzip *g = in->gzip;
    g->z.next_out = (unsigned char *)out;
    g->z.avail_out = (unsigned)BASE_MIN(room, (size_t)1 << 30);
    size_t asked = g->z.avail_out;
    while (g->z.avail_out == asked) {
        if (g->z.avail_in == 0 && !g->file_end) {
            size_t n = 0;
            int status = read_fd(in, g->in, sizeof g->in, &n, e);
            if (status)
                return status;
            g->file_end = n == 0;
            g->z.next_in = g->in;
            g->z.avail_in = (unsigned)n;
        }
        if (g->member_end) {
            int status = gzip_next_member(in, e);
            if (status)
                return status;
            if (g->member_end && !g->file_end)
                continue;
            if (g->member_end)
                break;
        }
        int rc = inflate(&g->z, Z_NO_FLUSH);
        g->member_end = rc == Z_STREAM_END;
        if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
            return gzip_damaged(in, e);
        if (!g->member_end && g->file_end && g->z.avail_in == 0 && g->z.avail_out == asked)
            return gzip_damaged(in, e);
    }
    *got = asked - g->z.avail_out;
    return 0;
}

static int gzip_open(file_input *in, err *e) {
    file_gzip *g = mem_zalloc(sizeof *g);
    in->gzip = g;
    memcpy(g->in, in->p, in->end);
    g->z.next_in = g->in;
    g->z.avail_in = (unsigned)in->end;
    in->end = 0;
    in->eof = false;
    if (inflateInit2(&g->z, 15 + 16) == Z_OK)
        return 0;
    free(g);
    in->gzip = NULL;
    return err_set(e, ERR_FULL, "not enough memory to read '%s'", in->name);
}

static void window_grow(file_input *in, size_t cap) {
    in->p = mem_realloc(in->p, cap + FILE_SLACK);
    memset(in->p + cap, 0, FILE_SLACK);
    in->cap = cap;
}

static int window_fill(file_input *in, err *e) {
    if (in->end == in->cap)
        window_grow(in, in->cap * 2);
    size_t got = 0, room = in->cap - in->end;
    int status = in->gzip ? read_gzip(in, in->p + in->end, room, &got, e)
                          : read_fd(in, in->p + in->end, room, &got, e);
    if (status)
        return status;
    in->end += got;
    in->eof = got == 0;
    memset(in->p + in->end, 0, FILE_SLACK); /* scanners may load these bytes */
    return 0;
}

int file_input_more(file_input *in, err *e) {
    if (in->start && !in->keep) {
        memmove(in->p, in->p + in->start, in->end - in->start);
        in->end -= in->start;
        in->start = 0;
    }
    /* A record is scanned again from its beginning after each call, so the window is at least
     * doubled, even if a pipe returns few bytes at a time. */
    size_t enough = in->end < WINDOW_FIRST ? in->end + 1 : in->end * 2;
    int status = 0;
    while (status == 0 && !in->eof && in->end < enough)
        status = window_fill(in, e);
    return status;
}

int file_input_fill(file_input *in, size_t bytes, err *e) {
    int status = 0;
    while (!status && !in->eof && in->end - in->start < bytes)
        status = file_input_more(in, e);
    return status;
}

/* ---- pipes kept for the next open ------------------------------------------------------------ */

typedef struct set_aside {
    file_input in;
    dev_t device;
    ino_t file;
    struct set_aside *next;
} set_aside;

static pthread_mutex_t aside_mutex = PTHREAD_MUTEX_INITIALIZER;
static set_aside *aside;

static void put_aside(const file_input *in, const struct stat *st) {
    set_aside *a = mem_alloc(sizeof *a);
    *a = (set_aside){.in = *in, .device = st->st_dev, .file = st->st_ino};
    a->in.start = 0;
    a->in.keep = false;
    pthread_mutex_lock(&aside_mutex);
    a->next = aside;
    aside = a;
    pthread_mutex_unlock(&aside_mutex);
}

static bool take_aside(file_input *in, const struct stat *st) {
    pthread_mutex_lock(&aside_mutex);
    set_aside **at = &aside, *found;
    while (*at && ((*at)->device != st->st_dev || (*at)->file != st->st_ino))
        at = &(*at)->next;
    if ((found = *at) != NULL)
        *at = found->next;
    pthread_mutex_unlock(&aside_mutex);
    if (!found)
        return false;
    const file_input asked = *in;
    *in = found->in;
    in->name = asked.name;
    in->cancel = asked.cancel;
    free(found);
    return true;
}

/* ---- open and close -------------------------------------------------------------------------- */

int file_input_open(file_input *in, const char *path, const atomic_bool *cancel, err *e) {
    struct stat st;
    bool standard = strcmp(path, "-") == 0;
    in->name = standard ? "standard input" : path;
    in->cancel = cancel;
    if ((standard ? fstat(STDIN_FILENO, &st) : stat(path, &st)) != 0)
        return err_set_errno(e, errno, "cannot open '%s'", in->name);
    if (S_ISDIR(st.st_mode))
        return err_set(e, ERR_IO, "'%s' is a directory, not a file", path);
    in->once = standard || !S_ISREG(st.st_mode);
    if (in->once && take_aside(in, &st))
        return 0;
    int nonblock = S_ISFIFO(st.st_mode) ? O_NONBLOCK : 0; /* else open() waits for a writer */
    in->fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | nonblock);
    in->owns_fd = !standard;
    if (in->fd < 0)
        return err_set_errno(e, errno, "cannot open '%s'", path);
    posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    window_grow(in, WINDOW_FIRST);
    size_t got = 0;
    /* Reads the two bytes by which gzip is recognized; a pipe may return them one at a time. */
    while (in->end < 2 && !in->eof) {
        int status = read_fd(in, in->p + in->end, GZIP_IN - in->end, &got, e);
        if (status)
            return status;
        in->end += got;
        in->eof = got == 0;
    }
    memset(in->p + in->end, 0, FILE_SLACK);
    if (in->end >= 2 && memcmp(in->p, "\x1f\x8b", 2) == 0)
        return gzip_open(in, e);
    return 0;
}

void file_input_memory(file_input *in, const void *bytes, size_t n) {
    in->name = "memory";
    in->fd = -1;
    window_grow(in, BASE_MAX(n, (size_t)1));
    memset(in->p, 0, in->cap);
    if (n)
        memcpy(in->p, bytes, n);
    in->end = n;
    in->eof = true;
}

void file_input_close(file_input *in, bool unread) {
    struct stat st;
    if (unread && in->once && in->end > 0 && fstat(in->fd, &st) == 0) {
        put_aside(in, &st);
        return;
    }
    if (in->gzip)
        inflateEnd(&in->gzip->z);
    free(in->gzip);
    free(in->p);
    if (in->owns_fd && in->fd >= 0)
        close(in->fd);
}
