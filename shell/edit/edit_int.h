/*
 * edit_int.h - the line editor: libedit with what it lacks (pasting, whole statements, Ctrl-C as a
 * key).
 *
 * Ownership: the editor borrows shell and history, which must outlive it.
 */
#ifndef KVASIR_EDIT_INT_H
#define KVASIR_EDIT_INT_H

#include "run/shell_int.h"

typedef struct editor editor;

typedef enum edit_status {
    EDIT_LINE,        /* Enter */
    EDIT_END,         /* Ctrl-D on an empty line, or the terminal is gone */
    EDIT_INTERRUPTED, /* Ctrl-C: the line is to be forgotten */
    EDIT_BACK         /* Up on a first line: the lines before are wanted too */
} edit_status;

editor *editor_new(shell *sh, history_list *history);
void editor_free(editor *ed);
/* Reads one line (of several rows, if recalled or pasted) into `line`, without its newline.
 * `before`: the statement's lines so far, for completion. `prefill`: text to start with. */
edit_status editor_read(editor *ed, const char *prompt, str before, str prefill, buf *line);
/* Typed while a statement ran: the next line begins with it. */
void editor_feed(editor *ed, str typed);
/* The list has a new last entry. */
void editor_remember(editor *ed, const char *statement);
/* Names may have changed: the next completion asks the database again. */
void editor_forget_names(editor *ed);
/* Rows that a text takes behind a prompt of `indent` columns; *exact:
 * false when the last row is just full, after which terminals differ,
 * or when the text has characters whose width they dispute. */
int editor_rows(str text, int indent, int columns, bool *exact);

#endif
