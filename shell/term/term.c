/*
 * term.c - detects the terminal (size, colour, UTF-8), names its styles, saves and restores its
 * modes.
 *
 * Invariant: only this file reads TERM, NO_COLOR and the locale or calls isatty; all other code
 * reads the members of `term`.
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

/* True if box characters may be drawn: the locale is UTF-8, has UTF-8 in its name, or is unset.
 * Text is UTF-8 whatever the locale. */
static bool locale_is_utf8(void) {
    const char *name = getenv("LC_ALL");
    if (name == NULL || *name == 0)
        name = getenv("LC_CTYPE");
    if (name == NULL || *name == 0)
        name = getenv("LANG");
    bool named = name != NULL && *name != 0;
    bool utf8 = setlocale(LC_CTYPE, "") != NULL && strcasecmp(nl_langinfo(CODESET), "UTF-8") == 0;
    bool wants = named && (strcasestr(name, "utf-8") != NULL || strcasestr(name, "utf8") != NULL);
    /* The user's locale is not kept: in Turkish the lower case of I is not i. */
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
        ssize_t written = write(STDOUT_FILENO, text, strlen(text));
        (void)written;
    }
    if (modes_saved)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &saved_modes);
}
