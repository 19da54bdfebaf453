/*
 * edit_int.h - the line editor (libedit with bracketed paste, multi-line statements, Ctrl-C as a
 * key) and SQL completion.
 *
 * Shell and history must outlive the editor.
 */
#ifndef KVASIR_EDIT_INT_H
#define KVASIR_EDIT_INT_H

#include "core/shell_int.h"

typedef struct editor editor;

typedef enum edit_status {
    EDIT_LINE,        /* Enter */
    EDIT_END,         /* Ctrl-D on an empty line, or the terminal was closed */
    EDIT_INTERRUPTED, /* Ctrl-C: discard the line */
    EDIT_BACK         /* Up on the first row: edit this line together with the lines before it */
} edit_status;

editor *editor_new(shell *sh, history_list *history);
void editor_free(editor *ed);
/* Reads a line into `line`, without its newline; several lines if a statement was recalled or
 * pasted. `before`: the lines of the statement entered so far. `prefill`: the initial text. */
edit_status editor_read(editor *ed, const char *prompt, str before, str prefill, buf *line);
/* Adds input that the next editor_read reads before input from the terminal. */
void editor_feed(editor *ed, str typed);
/* Appends to libedit's history. */
void editor_remember(editor *ed, const char *statement);
/* Drops the cached table and column names; the next completion reads them again. */
void editor_forget_names(editor *ed);
/* Returns the number of screen rows of a text after a prompt of `indent` columns. Sets *exact to
 * false if terminals may differ: the last row is full, or libedit and terminals disagree about a
 * character's width. */
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
    const char *text; /* replaces the word being completed */
    const char *note; /* shown after the text: a type or signature; or "" */
    candidate_kind kind;
    int score; /* higher is listed first */
} candidate;

typedef struct completion {
    size_t start; /* the word being completed is text[start, cursor) */
    candidate *items;
    int count;
    size_t common; /* length of the common prefix of all candidates */
} completion;

/* Finds the words that fit at `cursor` of a statement or command line, best first, in `a`. */
void complete_find(str text, size_t cursor, const db_object *objects, int nobjects, arena *a,
                   completion *out);

#endif
