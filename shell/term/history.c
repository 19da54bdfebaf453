/*
 * history.c - the history file: the statements a user entered, shared by all shells.
 *
 * The file has one statement per line, a newline in it written as \n and a backslash as \\. Each
 * statement is appended under a lock when it is entered, so shells that run at the same time keep
 * each other's statements.
 *
 * Invariant: a statement that starts with a space is never saved. A new file has mode 0600.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "storage/containers.h"
#include "term_int.h"

/* When a shell starts and the file has TRIM_LINES statements or more, only the latest KEEP_LINES
 * stay. A statement of more than LONGEST bytes is not saved. */
enum { KEEP_LINES = 5000, TRIM_LINES = 10000, LONGEST = 256 * 1024 };

static void escape(buf *out, str s) {
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '\n')
            buf_append_c(out, "\\n");
        else if (s.p[i] == '\\')
            buf_append_c(out, "\\\\");
        else
            buf_append_char(out, s.p[i]);
    buf_append_char(out, '\n');
}

static char *unescape(str s) {
    char *out = mem_alloc(s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\\' && i + 1 < s.n) {
            i++;
            out[n++] = s.p[i] == 'n' ? '\n' : s.p[i];
        } else {
            out[n++] = s.p[i];
        }
    }
    out[n] = 0;
    return out;
}

/* Like mkdir -p for the file's directory. */
static void make_directories(const char *path) {
    buf dir = {0};
    for (const char *p = path; *p; p++) {
        if (*p == '/' && dir.n)
            mkdir(dir.p, 0700); /* a failure is noticed when the file is opened */
        buf_append_char(&dir, *p);
    }
    buf_free(&dir);
}

static char *default_path(void) {
    const char *set = getenv("KVASIR_HISTORY");
    buf path = {0};
    if (set)
        buf_append_c(&path, set); /* if it is empty, there is no history file */
    else if (xdg_path("XDG_STATE_HOME", ".local/state", &path))
        buf_append_c(&path, "/history");
    if (path.n == 0) {
        buf_free(&path);
        return NULL;
    }
    return path.p;
}

static void read_lines(history_list *h, FILE *in) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    while ((n = getline(&line, &cap, in)) > 0) {
        if (line[n - 1] == '\n')
            n--;
        if (n > 0)
            ARRAY_PUSH(h->lines, h->count, h->cap, unescape((str){line, (size_t)n}));
    }
    free(line);
}

/* Drops the oldest statements of a long file. The caller holds the lock, so no other shell appends
 * meanwhile. The new text overwrites the longer old text, and the file is truncated last. So on a
 * full disk or after a crash every kept statement is still in the file. */
static void trim_file(history_list *h, int fd) {
    if (h->count < TRIM_LINES)
        return;
    size_t drop = h->count - KEEP_LINES;
    for (size_t i = 0; i < drop; i++)
        free(h->lines[i]);
    memmove(h->lines, h->lines + drop, sizeof(char *) * KEEP_LINES);
    h->count = KEEP_LINES;
    buf text = {0};
    for (size_t i = 0; i < h->count; i++)
        escape(&text, str_from(h->lines[i]));
    if (pwrite(fd, text.p, text.n, 0) != (ssize_t)text.n || ftruncate(fd, (off_t)text.n) != 0)
        fprintf(stderr, "kvasir: cannot write the history: %s\n", strerror(errno));
    buf_free(&text);
}

void history_open(history_list *h, const char *path) {
    *h = (history_list){0};
    h->path = path ? mem_strdup(path) : default_path();
    if (h->path == NULL)
        return;
    make_directories(h->path);
    /* Without O_APPEND, because trim_file() writes at the start of the file. */
    int fd = open(h->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        /* The file is not writable: the history is kept in memory only. */
        free(h->path);
        h->path = NULL;
        return;
    }
    flock(fd, LOCK_EX);
    int copy = dup(fd);
    FILE *in = copy >= 0 ? fdopen(copy, "r") : NULL;
    if (in) {
        read_lines(h, in);
        trim_file(h, fd);
        fclose(in);
    }
    flock(fd, LOCK_UN);
    close(fd);
}

/* Appends the whole line or nothing: the next line would be joined to a half-written line. */
static void append_line(int fd, const buf *line) {
    struct stat before;
    flock(fd, LOCK_EX);
    bool known = fstat(fd, &before) == 0;
    ssize_t written = write(fd, line->p, line->n);
    if (written != (ssize_t)line->n) {
        int error = written < 0 ? errno : ENOSPC;
        bool whole = written <= 0 || (known && ftruncate(fd, before.st_size) == 0);
        fprintf(stderr, "kvasir: cannot write the history: %s%s\n", strerror(error),
                whole ? "" : "; its last line is incomplete");
    }
    flock(fd, LOCK_UN);
}

bool history_add(history_list *h, str statement) {
    while (statement.n && strchr(" \t\n", statement.p[statement.n - 1]))
        statement.n--;
    if (statement.n == 0 || statement.p[0] == ' ' || statement.p[0] == '\t')
        return false;
    if (h->count && str_equal(statement, str_from(h->lines[h->count - 1])))
        return false;
    ARRAY_PUSH(h->lines, h->count, h->cap, mem_strndup(statement.p, statement.n));
    if (h->path == NULL || statement.n > LONGEST)
        return true;
    int fd = open(h->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return true;
    buf line = {0};
    escape(&line, statement);
    append_line(fd, &line);
    close(fd);
    buf_free(&line);
    return true;
}

void history_close(history_list *h) {
    for (size_t i = 0; i < h->count; i++)
        free(h->lines[i]);
    free(h->lines);
    free(h->path);
    *h = (history_list){0};
}
