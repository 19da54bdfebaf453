/*
 * edit_int.h - the line editor: libedit with bracketed paste, statements of several lines, Ctrl-C
 * as a key, and completion.
 *
 * The editor borrows shell and history, which must outlive it.
 */
#ifndef KVASIR_EDIT_INT_H
#define KVASIR_EDIT_INT_H

#include "core/shell_int.h"

typedef struct editor editor;

typedef enum edit_status {
    EDIT_LINE,        /* Enter */
    EDIT_END,         /* Ctrl-D on an empty line, or the terminal is gone */
    EDIT_INTERRUPTED, /* Ctrl-C: discard the line */
    EDIT_BACK         /* Up on the first line: edit the statement's earlier lines as well */
} edit_status;

editor *editor_new(shell *sh, history_list *history);
void editor_free(editor *ed);
/* Reads one line (several, if recalled or pasted) into `line`, without its newline. `before`: the
 * statement's lines so far, for completion. `prefill`: text to start with. */
edit_status editor_read(editor *ed, const char *prompt, str before, str prefill, buf *line);
/* Adds input that was typed before the prompt was shown. */
void editor_feed(editor *ed, str typed);
/* Appends to libedit's history. */
void editor_remember(editor *ed, const char *statement);
/* Drops the cached names of tables and columns: the next completion reads them again. */
void editor_forget_names(editor *ed);
/* Rows that a text takes after a prompt of `indent` columns. *exact is false if terminals may
 * differ: the last row is full, or a character's width is in dispute. */
int editor_rows(str text, int indent, int columns, bool *exact);

/* ---- completion (complete.c) ----------------------------------------------------------------- */

typedef enum candidate_kind {
    CANDIDATE_KEYWORD,
    CANDIDATE_TABLE,
    CANDIDATE_COLUMN,
    CANDIDATE_FUNCTION,
    CANDIDATE_SETTING,
    CANDIDATE_VALUE,
    CANDIDATE_FILE,
    CANDIDATE_COMMAND,
    CANDIDATE_MODEL
} candidate_kind;

typedef struct candidate {
    const char *text; /* replaces the word */
    const char *note; /* shown dim after it: a type, a signature; or "" */
    candidate_kind kind;
    int score; /* higher is listed first */
} candidate;

typedef struct completion {
    size_t start; /* the word being completed is text[start, cursor) */
    candidate *items;
    int count;
    size_t common; /* length of the prefix that all candidates share */
} completion;

/* Finds the words that can follow at `cursor` of a statement or command line, best first, in `a`.
 * A pure function of its arguments. */
void complete_find(str text, size_t cursor, const db_object *objects, int nobjects, arena *a,
                   completion *out);

#endif
