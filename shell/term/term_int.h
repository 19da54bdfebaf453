/*
 * term_int.h - the terminal, signals, where results are written, the history file, colours of SQL.
 *
 * Nothing here knows the shell: every function takes the part it works on.
 */
#ifndef KVASIR_TERM_INT_H
#define KVASIR_TERM_INT_H

#include <stdio.h>

#include "exec/exec.h"

/* ---- the terminal (term.c) ------------------------------------------------------------------- */

typedef struct term {
    bool interactive; /* prompts, row counts, paging, results fitted to the width */
    bool terminal;    /* stdin and stdout are terminals: true even while -c or -f runs */
    bool err_tty;     /* stderr is a terminal: progress line */
    bool dumb;        /* TERM is unset or "dumb": no cursor movement, no colour */
    bool utf8;        /* draw with box characters and blocks; else ASCII */
    bool color_out, color_err;
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
/* The size of the terminal on stdout, stderr or stdin; 80 x 24 if none has one. */
void term_size(int *columns, int *rows);
/* Escape sequences that begin and end a style; "" without colour. */
const char *style_on(bool color, style s);
const char *style_off(bool color, style s);
void style_append(buf *out, bool color, style s, const char *text);
/* Saves the terminal's modes at start; term_restore sets them again. Async-signal-safe. */
void term_save(void);
void term_restore(void);
/* Bytes that term_restore writes first (to leave a full-screen view); NULL: none. Not copied. */
void term_set_restore_text(const char *text);

/* ---- signals (signals.c) --------------------------------------------------------------------- */

void signals_install(void);
/* Sets the statement that Ctrl-C cancels; NULL: none. If Ctrl-C was pressed since signals_clear,
 * the statement is cancelled at once. */
void signals_watch(stmt *s);
int signals_interrupts(void); /* Ctrl-C presses since signals_clear */
void signals_clear(void);
int signals_terminated(void); /* the number of a SIGTERM or SIGHUP received; 0: none */
/* True after Ctrl-C, SIGTERM or SIGHUP: the cancel flag of work that is not a statement. */
const atomic_bool *signals_asked(void);
bool signals_resized(void);   /* since the last call */
bool signals_continued(void); /* since the last call */

/* ---- output (output.c) ----------------------------------------------------------------------- */

/* Where results are written. `hold` is empty unless the result in progress may still need a pager.
 */
typedef struct output {
    FILE *file; /* stdout, or .output's */
    char *path; /* of .output and .once; NULL: stdout */
    bool once;  /* back to stdout after the next result */
    bool pipe;  /* `file` is the standard input of a program: .output '|sort' */
    FILE *pager;
    buf hold;
    bool may_page;
    int error; /* errno of the first failed write */
} output;

int output_open(output *o, const char *path, bool once, err *e); /* path NULL: back to stdout */
/* Writes one line outside of a result (.echo): does not count as .once's result. */
void output_echo(output *o, str line);
/* Begins a result; may_page: one longer than the screen is shown by a pager. */
void output_begin(output *o, bool may_page);
void output_write(output *o, buf *text); /* clears text */
/* True if the pager or program that reads the result has closed its end. */
bool output_unread(const output *o);
/* True if further output is useless: a write failed, or Ctrl-C was pressed, which is recorded as
 * the error EINTR. While a pager runs, Ctrl-C is the pager's. */
bool output_stopped(output *o);
void output_end(output *o); /* waits for the pager */
void output_close(output *o);

/* ---- history (history.c) --------------------------------------------------------------------- */

/* Whole statements, oldest first; the file is shared by all shells of a user. */
typedef struct history_list {
    char **lines;
    size_t count, cap;
    char *path; /* NULL: not saved */
} history_list;

void history_open(history_list *h, const char *path); /* NULL: the default path */
/* Appends to list and file, unless the statement is empty, begins with a blank or repeats the last
 * one. Returns true if it was added. */
bool history_add(history_list *h, str statement);
void history_close(history_list *h);

/* ---- colours of SQL (highlight.c) ------------------------------------------------------------ */

/* Appends the statement, its tokens coloured. */
void highlight(str text, bool color, buf *out);

#endif
