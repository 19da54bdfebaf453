/*
 * term.c - what the terminal is: who sits there, its size, its colours, and how it looked before we
 * came.
 *
 * Invariant: NO_COLOR, TERM=dumb, pipes and --no-color are read here and nowhere else; everybody
 * asks `term`.
 */
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "term_int.h"

static struct termios saved_modes;
static volatile sig_atomic_t modes_saved;
static const char *volatile restore_text;

/* Text is UTF-8 inside, whatever the locale; only what we
 * draw with follows it. An unset locale is no statement. */
static bool locale_is_utf8(void) {
    const char *name = getenv("LC_ALL");
    if (name == NULL || *name == 0)
        name = getenv("LC_CTYPE");
    if (name == NULL || *name == 0)
        name = getenv("LANG");
    bool named = name != NULL && *name != 0;
    bool utf8 = setlocale(LC_CTYPE, "") != NULL && strcasecmp(nl_langinfo(CODESET), "UTF-8") == 0;
    bool wants = named && (strcasestr(name, "utf-8") != NULL || strcasestr(name, "utf8") != NULL);
    /* Not the user's own, whose language has its own letters: in Turkish i is not I in lower case. */
    setlocale(LC_CTYPE, "C.UTF-8");
    return utf8 || !named || wants;
}

void term_detect(term *t, bool no_color) {
    *t = (term){0};
    t->utf8 = locale_is_utf8();
    const char *name = getenv("TERM");
    t->dumb = name == NULL || *name == 0 || strcmp(name, "dumb") == 0;
    bool out_tty = isatty(STDOUT_FILENO) != 0;
    t->err_tty = isatty(STDERR_FILENO) != 0;
    t->interactive = t->terminal = isatty(STDIN_FILENO) && out_tty;
    const char *off = getenv("NO_COLOR");
    bool color = !no_color && !t->dumb && (off == NULL || *off == 0);
    t->color_out = color && out_tty;
    t->color_err = color && t->err_tty;
}

void term_size(int *columns, int *rows) {
    struct winsize size = {0};
    *columns = 80;
    *rows = 24;
    int fds[] = {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO};
    for (size_t i = 0; i < BASE_COUNT(fds); i++) {
        if (ioctl(fds[i], TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
            *columns = size.ws_col;
            *rows = size.ws_row;
            return;
        }
    }
}

static const char *const style_codes[] = {
    [STYLE_PLAIN] = "",
    [STYLE_DIM] = "\033[2m",
    [STYLE_BOLD] = "\033[1m",
    [STYLE_ERROR] = "\033[1;31m",
    [STYLE_HINT] = "\033[36m",
    [STYLE_KEYWORD] = "\033[1;34m",
    [STYLE_FUNCTION] = "\033[35m",
    [STYLE_STRING] = "\033[32m",
    [STYLE_NUMBER] = "\033[33m",
    [STYLE_COMMENT] = "\033[2m",
    [STYLE_PROMPT] = "\033[1;36m",
    [STYLE_BAR] = "\033[36m",
};
BASE_COVERS(style_codes, STYLES);

const char *style_on(bool color, style s) {
    return color ? style_codes[s] : "";
}

const char *style_off(bool color, style s) {
    return color && s != STYLE_PLAIN ? "\033[0m" : "";
}

void style_append(buf *out, bool color, style s, const char *text) {
    buf_append_c(out, style_on(color, s));
    buf_append_c(out, text);
    buf_append_c(out, style_off(color, s));
}

void term_save(void) {
    if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &saved_modes) == 0)
        modes_saved = 1;
}

void term_set_restore_text(const char *text) {
    restore_text = text;
}

void term_restore(void) {
    const char *text = restore_text;
    if (text != NULL) {
        /* A terminal that does not take it is beyond restoring. */
        ssize_t written = write(STDOUT_FILENO, text, strlen(text));
        (void)written;
    }
    if (modes_saved)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_modes);
}
