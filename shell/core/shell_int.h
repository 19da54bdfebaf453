/*
 * shell_int.h - the state of one shell, its messages, and how it runs a statement.
 *
 * The shell struct owns what it points to, and strings in it are on the heap. All of it is used by
 * the shell's thread alone; the database's worker is reached through db_* and stmt_*.
 *
 * Messages: only results go to stdout, unless a person sits at the terminal; everything else goes
 * to stderr.
 */
#ifndef KVASIR_SHELL_INT_H
#define KVASIR_SHELL_INT_H

#include "shell/shell.h"
#include "view/view_int.h"

typedef struct shell_variable {
    char *name, *text;
} shell_variable;

/* A statement's place in the text it was read from. Messages show `text` with a caret. */
typedef struct place {
    const char *file; /* NULL: the prompt */
    str text;
    size_t at; /* offset of the statement in text */
    int line;  /* number of text's first line, from 1 */
} place;

typedef struct shell shell;
struct shell {
    db *db;
    char *db_path; /* NULL: in memory */
    char *model;
    bool read_only;
    term term;
    output out;
    const format_mode *mode;
    bool headers, types_row, timer, echo, stats, keep_going, pager, progress;
    char *null_text; /* NULL: the mode's own */
    char *insert_table;
    int widths[64];
    int nwidths;
    int64_t max_rows;          /* -1: 10,000 in a pager, 40 without */
    shell_variable *variables; /* set again in each database that is opened */
    int nvariables;
    stmt *lingering; /* a cancelled statement that has not ended yet; NULL: none */
    exec_summary last;
    buf last_text;  /* the last statement, for .explain, .view and .edit */
    bool want_view; /* LLM statements open the live view */
    bool quit;
    int quit_code;

    const place *where; /* of the script's piece that is running; NULL: typed at the prompt */
    int read_depth;     /* nesting of .read */
    /* Runs a file of statements and commands (.read). Set by run/, which is above the commands. */
    bool (*run_file)(shell *sh, const char *path);

    struct repl *repl;     /* the prompt; NULL: no prompt, as are the next two */
    history_list *history; /* its statements */
    /* Runs text as if it had been typed at the prompt (.edit). */
    bool (*run_typed)(shell *sh, str text);
    buf typed_ahead; /* keys typed while a statement ran: input of the next prompt */
};

/* ---- messages (messages.c) ------------------------------------------------------------------- */

/* Prints a message for a person: on stdout at a terminal, else nowhere. */
void shell_note(shell *sh, const char *format, ...) BASE_PRINTF(2, 3);
/* Prints an error, with its place in `where`. */
void shell_error(shell *sh, const place *where, const err *e);
/* Prints the error of a command, with the place of the command in its script. Both return false. */
bool shell_complain(shell *sh, const char *format, ...) BASE_PRINTF(2, 3);
bool shell_failed(shell *sh, const err *e);
/* Prints "stopped" and what follows it, after Ctrl-C. */
void shell_stopped(const shell *sh, const char *more);
/* Writes a command's text to the output, through the pager if longer than the screen; frees it. */
void shell_print(shell *sh, buf *text);
/* Reports a failed write, if there was one, and then returns false; ends a script. */
bool shell_check_output(shell *sh);

/* ---- figures of a statement (figures.c) ------------------------------------------------------ */

void shell_summary_line(const exec_summary *s, buf *out);
void shell_figures(const exec_summary *s, buf *out); /* .stats */

/* ---- running statements (statement.c, query.c, confirm.c) ------------------------------------ */

/* Runs one statement and prints its result or error. False: it failed or was stopped. */
bool shell_statement(shell *sh, str text, const place *where);
/* Same, for commands that are SQL underneath. Leaves the last statement's text as it is. */
bool shell_sql(shell *sh, const char *text);
/* Runs a query without output, calling fn with each batch; returns 0 or the error's code. */
typedef void (*shell_batch_fn)(void *ctx, stmt *s, const batch *b);
int shell_query(shell *sh, str text, shell_batch_fn fn, void *ctx, err *e);
/* Waits for the statement that Ctrl-C left running, if any. False: it runs still; `wait` was false,
 * or Ctrl-C was pressed. */
bool shell_wait_for_previous(shell *sh, bool wait);
/* Prints the estimated cost of a long LLM statement, and asks where SET confirm = on. False: do not
 * run it. */
bool estimate_confirm(shell *sh, str text);
/* Counts what other strategies would compute for the statement (EXPLAIN), for the live view. False:
 * stopped by Ctrl-C. */
bool estimate_baselines(shell *sh, str text, view_state *v);

/* ---- the database (database.c) --------------------------------------------------------------- */

/* Opens a database in place of the current one, which stays open if that fails. */
int shell_open(shell *sh, const char *path, err *e);
void shell_close(shell *sh);
/* All objects of the database, in `a`; NULL after an error was printed. */
db_object *shell_objects(shell *sh, arena *a, int *count);
bool shell_set_variable(shell *sh, str name, str text, err *e);

#endif
