/*
 * output.c - writes results to stdout, to a file or program (.output, .once), or to a pager if they
 * are longer than the screen.
 *
 * Invariant: after a failed write nothing more is written, until shell_check_output has reported
 * the error and cleared it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "term_int.h"

static void to_stdout(output *o) {
    if (o->pipe)
        pclose(o->file); /* the program reports its own failure */
    else if (o->file && o->file != stdout && fclose(o->file) != 0 && o->error == 0)
        o->error = errno;
    o->file = stdout;
    o->pipe = false;
    free(o->path);
    o->path = NULL;
    o->once = false;
}

int output_open(output *o, const char *path, bool once, err *e) {
    to_stdout(o);
    if (path == NULL)
        return 0;
    bool pipe = path[0] == '|';
    fflush(stdout);
    FILE *file = pipe ? popen(path + 1, "w") : fopen(path, "w");
    if (file == NULL)
        return err_set_errno(e, errno, "cannot write '%s'", path);
    o->file = file;
    o->pipe = pipe;
    o->path = mem_strdup(path);
    o->once = once;
    return 0;
}

void output_begin(output *o, bool may_page) {
    buf_clear(&o->hold);
    o->may_page = may_page && o->path == NULL;
}

/* Writes with write(2), because a stdio buffer loses its bytes when a signal interrupts the flush.
 * Ctrl-C stops the writing unless a pager runs. A write that a signal ended early returns the
 * number of bytes written so far, not EINTR. So Ctrl-C is checked after a short write. */
static void put(output *o, FILE *file, const char *p, size_t n) {
    if (n == 0 || o->error)
        return;
    if (fflush(file) != 0)
        o->error = errno;
    while (n > 0 && o->error == 0) {
        ssize_t written = write(fileno(file), p, n);
        if (written >= 0) {
            p += written;
            n -= (size_t)written;
            if (n > 0)
                output_stopped(o);
        } else if (errno != EINTR || o->pager == NULL) {
            o->error = errno;
        }
    }
}

void output_echo(output *o, str line) {
    put(o, o->file, line.p, line.n);
    put(o, o->file, "\n", 1);
}

static bool longer_than_screen(const buf *text) {
    int columns, rows, lines = 0;
    term_size(&columns, &rows);
    for (size_t i = 0; i < text->n && lines < rows; i++)
        lines += text->p[i] == '\n';
    return lines >= rows - 1;
}

/* Starts $PAGER, or less; NULL if it is not installed or is cat. less -FRSX exits at once if the
 * text fits, passes colours on, chops long lines and leaves the text on the screen. */
static FILE *pager_start(void) {
    const char *program = getenv("PAGER");
    if (program == NULL)
        program = "less";
    if (*program == 0 || strcmp(program, "cat") == 0)
        return NULL;
    setenv("LESS", "FRSX", 0);
    setenv("LESSCHARSET", "utf-8", 0);
    buf test = {0};
    buf_printf(&test, "command -v %s >/dev/null 2>&1", program);
    bool installed = system(test.p) == 0;
    buf_free(&test);
    if (!installed)
        return NULL;
    fflush(stdout);
    return popen(program, "w");
}

void output_write(output *o, buf *text) {
    if (o->may_page && o->pager == NULL) {
        buf_append(&o->hold, text->p, text->n);
        buf_clear(text);
        if (!longer_than_screen(&o->hold))
            return;
        o->pager = pager_start();
        o->may_page = false;
        put(o, o->pager ? o->pager : o->file, o->hold.p, o->hold.n);
        buf_clear(&o->hold);
        return;
    }
    if (text->n)
        put(o, o->pager ? o->pager : o->file, text->p, text->n);
    buf_clear(text);
}

bool output_reader_closed(const output *o) {
    return o->error == EPIPE && (o->pager != NULL || o->pipe);
}

bool output_stopped(output *o) {
    if (o->error == 0 && o->pager == NULL && atomic_load(signals_cancel_flag()))
        o->error = EINTR;
    return o->error != 0;
}

void output_end(output *o) {
    if (o->hold.n)
        put(o, o->file, o->hold.p, o->hold.n);
    buf_clear(&o->hold);
    o->may_page = false;
    if (output_reader_closed(o))
        o->error = 0;
    if (o->pager)
        pclose(o->pager);
    o->pager = NULL;
    if (o->once)
        to_stdout(o);
}

void output_close(output *o) {
    to_stdout(o);
    buf_free(&o->hold);
}
