/*
 * messages.c - prints notes, errors with their place, the text of commands, and failed writes.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>

#include "shell_int.h"

void shell_note(shell *sh, const char *message, ...) {
    if (!sh->term.interactive)
        return;
    char text[512];
    va_list ap;
    va_start(ap, message);
    vsnprintf(text, sizeof text, message, ap);
    va_end(ap);
    printf("%s%s%s\n", style_on(sh->term.color_out, STYLE_DIM), text,
           style_off(sh->term.color_out, STYLE_DIM));
    fflush(stdout);
}

void shell_error(shell *sh, const place *where, const err *e) {
    bool color = sh->term.color_err;
    buf out = {0};
    err shifted = *e;
    buf message = {0};
    int line = 1, col = 1;
    if (e->code == ERR_INTERNAL)
        buf_append_c(&message, "internal error (a bug in kvasir): ");
    format_visible(&message, str_from(e->message), sh->term.utf8); /* may quote bytes of a file */
    buf_append_char(&message, 0);
    if (e->pos >= 0)
        shifted.pos = e->pos + (int)where->at;
    if (where->text.n)
        sql_error_place(where->text, e->pos >= 0 ? shifted.pos : (int)where->at, &line, &col);
    if (where->file != NULL)
        buf_printf(&out, "%s:%d:%d: %s%s%s\n", where->file, where->line + line - 1, col,
                   style_on(color, STYLE_BOLD), message.p, style_off(color, STYLE_BOLD));
    else if (e->pos >= 0 && where->text.n)
        buf_printf(&out, "%serror%s at %d:%d: %s\n", style_on(color, STYLE_ERROR),
                   style_off(color, STYLE_ERROR), line, col, message.p);
    else
        buf_printf(&out, "%s%s:%s %s\n", style_on(color, STYLE_ERROR),
                   sh->repl ? "error" : "kvasir", style_off(color, STYLE_ERROR), message.p);
    if (e->pos >= 0 && where->text.n) {
        int columns = INT_MAX, rows;
        if (sh->term.err_tty)
            term_size(&columns, &rows);
        sql_error_caret(where->text, &shifted, columns, &out);
    }
    if (out.n && out.p[out.n - 1] != '\n')
        buf_append_char(&out, '\n');
    if (e->hint[0])
        buf_printf(&out, "%shint:%s %s\n", style_on(color, STYLE_HINT),
                   style_off(color, STYLE_HINT), e->hint);
    fflush(stdout);
    fwrite(out.p, 1, out.n, stderr);
    buf_free(&message);
    buf_free(&out);
}

void shell_stopped(const shell *sh, const char *more) {
    /* The row that was being written may have ended within an escape sequence, and the ^C that the
     * terminal echoes then makes it ESC ^, which starts a string that only ESC \ ends (ECMA-48, PM
     * and ST). So ESC \ comes first; then the row and the ^C are erased. */
    bool erase = sh->term.err_tty && !sh->term.dumb;
    fflush(stdout);
    fprintf(stderr, "%sstopped%s\n", erase ? "\033\\\r\033[0m\033[K" : "", more);
}

bool shell_failed(shell *sh, const err *e) {
    err unplaced = *e;
    if (e->code == ERR_CANCELLED && atomic_load(signals_cancel_flag())) {
        shell_stopped(sh, "");
        return false;
    }
    static const place prompt = {0};
    unplaced.pos = -1;
    shell_error(sh, sh->where ? sh->where : &prompt, &unplaced);
    return false;
}

bool shell_complain(shell *sh, const char *message, ...) {
    err e = {0};
    va_list ap;
    va_start(ap, message);
    vsnprintf(e.message, sizeof e.message, message, ap);
    va_end(ap);
    return shell_failed(sh, &e);
}

int shell_columns(const shell *sh) {
    int columns = 0, rows;
    if (sh->term.interactive && sh->out.path == NULL)
        term_size(&columns, &rows);
    return columns;
}

int shell_wrap_columns(const shell *sh) {
    int columns = shell_columns(sh), rows;
    if (sh->wrap == WRAP_ON && sh->wrap_columns > 0)
        return sh->wrap_columns;
    if (sh->wrap == WRAP_ON && columns == 0)
        term_size(&columns, &rows);
    return columns;
}

void shell_print(shell *sh, buf *text) {
    output_begin(&sh->out, sh->term.interactive && sh->pager && !sh->term.dumb);
    output_write(&sh->out, text);
    output_end(&sh->out);
    buf_free(text);
}

bool shell_check_output(shell *sh) {
    int error = sh->out.error;
    if (error == 0)
        return true;
    sh->out.error = 0;
    clearerr(stdout);
    if (error == EINTR) /* Ctrl-C: "stopped" was printed already */
        return false;
    if (error != EPIPE)
        fprintf(stderr, "kvasir: cannot write the result: %s\n", strerror(error));
    if (!sh->term.interactive && (error == EPIPE || !sh->keep_going)) {
        sh->quit = true;
        sh->quit_code = error == EPIPE ? 128 + SIGPIPE : SHELL_FAILED;
    }
    return false;
}
