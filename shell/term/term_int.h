/*
 * term_int.h - terminal detection and styles, signal handlers, result output and pager, the history
 * file, SQL highlighting.
 *
 * Functions take the struct they work on; none knows the shell struct.
 */
#ifndef KVASIR_TERM_INT_H
#define KVASIR_TERM_INT_H

#include <stdio.h>

#include "exec/exec.h"

/* ---- the terminal (term.c) ------------------------------------------------------------------- */

typedef struct term {
    bool interactive; /* at a prompt: print row counts, use a pager, fit boxes to the screen */
    bool terminal;    /* stdin and stdout are terminals, also while -c or -f runs */
    bool err_tty;     /* stderr is a terminal: the progress line may be drawn */
    bool dumb;        /* TERM is unset or "dumb": no cursor movement, no colour */
    bool utf8;        /* draw with box characters and blocks; else ASCII */
    bool color_out;   /* print colours on stdout */
    bool color_err;   /* print colours on stderr */
} term;

typedef enum style {
    STYLE_PLAIN,
    STYLE_DIM,
    STYLE_BOLD,
    STYLE_ERROR,
    STYLE_HINT,
    STYLE_KEYWORD,
    STYLE_FUNCTION,
    STYLE_STRING,
    STYLE_NUMBER,
    STYLE_COMMENT,
    STYLE_PROMPT,
    STYLE_BAR,
    STYLES
} style;

void term_detect(term *t, bool no_color);
/* Sets the size of the terminal: the first of stdout, stderr and stdin that is a terminal; else 80
 * x 24. */
void term_size(int *columns, int *rows);
/* Return the escape sequences that start and end a style; "" without colour. */
const char *style_on(bool color, style s);
const char *style_off(bool color, style s);
void style_append(buf *out, bool color, style s, const char *text);
void term_save(void);    /* saves the terminal's modes */
void term_restore(void); /* restores them; async-signal-safe */
/* Sets the text that term_restore writes first, to leave a full-screen view; NULL: none. The text
 * is not copied. */
void term_set_restore_text(const char *text);

/* ---- signals (signals.c) --------------------------------------------------------------------- */

void signals_install(void);
/* Sets the statement that Ctrl-C cancels; NULL: none. Cancels it at once if Ctrl-C was pressed
 * since signals_clear, or if SIGTERM or SIGHUP was received. */
void signals_watch(stmt *s);
int signals_interrupts(void); /* Ctrl-C presses since signals_clear */
void signals_clear(void);
int signals_terminated(void); /* SIGTERM or SIGHUP if one was received; else 0 */
/* Returns the flag that Ctrl-C, SIGTERM and SIGHUP set, to cancel work that is not a statement. */
const atomic_bool *signals_cancel_flag(void);
bool signals_resized(void);   /* whether the terminal was resized since the last call */
bool signals_continued(void); /* whether the process was continued (SIGCONT) since the last call */

/* ---- output (output.c) ----------------------------------------------------------------------- */

/* Where results are written. */
typedef struct output {
    FILE *file;    /* stdout, or the target of .output or .once */
    char *path;    /* path of `file`; NULL: `file` is stdout */
    bool once;     /* .once: return to stdout after the next result */
    bool pipe;     /* `file` is the standard input of a program: .output '|sort' */
    FILE *pager;   /* open while a result is paged */
    bool may_page; /* the result in progress may still turn out to need a pager */
    buf hold;      /* the text of this result while may_page is set */
    int error;     /* errno of the first failed write */
} output;

int output_open(output *o, const char *path, bool once, err *e); /* path NULL: back to stdout */
/* Writes a line that is not part of a result (.echo), so that it does not end .once. */
void output_echo(output *o, str line);
/* Begins a result. may_page: show the result in a pager if it is longer than the screen. */
void output_begin(output *o, bool may_page);
void output_write(output *o, buf *text); /* clears text */
/* True if the pager or the program of .output stopped reading. */
bool output_reader_closed(const output *o);
/* True if a write failed, or if Ctrl-C was pressed, which sets the error EINTR. While a pager runs
 * Ctrl-C is a key of the pager. */
bool output_stopped(output *o);
void output_end(output *o); /* waits for the pager to exit */
void output_close(output *o);

/* ---- history (history.c) --------------------------------------------------------------------- */

/* The statements entered so far, oldest first. All shells of a user share the file. */
typedef struct history_list {
    char **lines; /* one statement each, which may contain newlines */
    size_t count, cap;
    char *path; /* NULL: not saved */
} history_list;

void history_open(history_list *h, const char *path); /* NULL: the default path */
/* Appends a statement to list and file. Returns false if it was not added, because it is empty,
 * starts with a space, or repeats the previous statement. */
bool history_add(history_list *h, str statement);
void history_close(history_list *h);

/* ---- SQL highlighting (highlight.c) ---------------------------------------------------------- */

/* Appends the statement with its tokens coloured. */
void highlight(str text, bool color, buf *out);

#endif
