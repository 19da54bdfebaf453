/*
 * shell_int.h - the shell struct, messages, and running a statement.
 *
 * The shell struct owns what it points to. Only the shell's thread uses it; the worker thread of
 * the database is reached through db_* and stmt_*.
 *
 * Messages: in scripts only results go to stdout, everything else to stderr. At a prompt notes go
 * to stdout as well.
 */
#ifndef KVASIR_SHELL_INT_H
#define KVASIR_SHELL_INT_H

#include "shell/shell.h"
#include "view/view_int.h"

typedef struct shell_variable {
    char *name, *text;
} shell_variable;

/* The place of a statement in its source, for error messages. */
typedef struct place {
    const char *file; /* NULL: the prompt */
    str text;         /* the part of the source from which a line is shown with a caret */
    size_t at;        /* offset of the statement in text */
    int line;         /* line number of the start of text, from 1 */
} place;

typedef struct shell shell;
struct shell {
    db *db;
    char *db_path;     /* NULL: in memory */
    char *model;       /* --model or KVASIR_MODEL; NULL: not given */
    const char *allow; /* --allow-endpoint; NULL: not given */
    bool read_only;
    term term;
    output out;
    const format_mode *mode;
    format_wrapping wrap; /* set by .mode */
    int wrap_columns;     /* --wrap=N; 0: the screen's */
    /* what the commands .headers, .types and so on switch; keep_going is the opposite of .bail */
    bool headers, types_row, timer, echo, stats, keep_going, pager, progress;
    char *null_text;    /* text of NULL; NULL: the mode's default */
    char *insert_table; /* table name in mode insert; NULL: "t" */
    int widths[64];     /* format_options.widths, set by .width */
    int nwidths;
    int64_t max_rows;          /* rows that a box shows; -1: 10,000 if a pager may run, else 40 */
    shell_variable *variables; /* set again in each database that is opened */
    int nvariables, variables_cap;
    stmt *lingering;         /* a cancelled statement that has not ended yet; NULL: none */
    exec_summary last;       /* figures of the last statement, for .stats */
    buf last_text;           /* text of the last statement, for .explain, .view and .edit */
    bool want_view;          /* LLM statements open the live view */
    view_state *last_view;   /* picture of the last LLM statement, for .view last; NULL: none */
    view_recorder *recorder; /* records the next LLM statement; NULL: none */
    bool quit;               /* the shell ends after the running command or statement */
    int quit_code;           /* the shell's exit code if `quit` is set */

    const place *where; /* place of the script's running statement or command; NULL: the prompt */
    int read_depth;     /* nesting of .read */
    /* Runs a file of statements and commands (.read). A pointer because run/ is above commands/. */
    bool (*run_file)(shell *sh, const char *path);

    struct repl *repl;     /* NULL: no prompt; history and run_typed are then NULL too */
    history_list *history; /* statements entered at the prompt */
    /* Runs text as if it had been typed at the prompt (.edit). */
    bool (*run_typed)(shell *sh, str text);
    buf typed_ahead; /* keys typed while a statement ran: input of the next prompt */
};

/* ---- messages (messages.c) ------------------------------------------------------------------- */

/* At a prompt prints a message on stdout; does nothing in scripts. */
void shell_note(shell *sh, const char *format, ...) BASE_PRINTF(2, 3);
/* Prints an error and its place in `where`. */
void shell_error(shell *sh, const place *where, const err *e);
/* Print an error of a command, with the command's place in its script. Both return false. */
bool shell_complain(shell *sh, const char *format, ...) BASE_PRINTF(2, 3);
bool shell_failed(shell *sh, const err *e);
/* Prints "stopped", followed by `more`, after Ctrl-C. */
void shell_stopped(const shell *sh, const char *more);
/* Returns the number of screen columns that results must fit; 0: no limit, in scripts or if results
 * go to a file. */
int shell_columns(const shell *sh);
/* Returns the number of columns that boxes, records and CREATE statements must fit: shell_columns,
 * and after .mode --wrap also in scripts and files; 0: no limit. */
int shell_wrap_columns(const shell *sh);
/* Writes a command's text to the output, in the pager if it is longer than the screen. Frees the
 * text. */
void shell_print(shell *sh, buf *text);
/* Whether all output was written. If not, reports the failure, and may end the script. */
bool shell_check_output(shell *sh);

/* ---- figures of a statement (figures.c) ------------------------------------------------------ */

/* Appends the line that is printed after an LLM statement. */
void shell_summary_line(const exec_summary *s, buf *out);
/* Appends the list that .stats prints. */
void shell_figures(const exec_summary *s, buf *out);

/* ---- running statements (statement.c, query.c, confirm.c) ------------------------------------ */

/* Runs one statement and prints its result or error. False: it failed or was stopped. */
bool shell_statement(shell *sh, str text, const place *where);
/* Runs SQL for a command and prints its result or error. Does not change last_text. */
bool shell_sql(shell *sh, const char *text);
/* Runs a query without printing and calls fn with each batch; returns 0 or the error's code. */
typedef void (*shell_batch_fn)(void *ctx, stmt *s, const batch *b);
int shell_query(shell *sh, str text, shell_batch_fn fn, void *ctx, err *e);
/* Waits for a statement, draws its progress, after `label` unless that is NULL, and calls fn (unless
 * NULL) with each batch. Returns 0 or the error's code. Ctrl-C cancels the statement. */
int shell_wait(shell *sh, stmt *s, const char *label, shell_batch_fn fn, void *ctx, err *e);
/* Waits until the statement sh->lingering, if any, has ended. False: the statement still runs,
 * because `wait` was false or Ctrl-C was pressed. */
bool shell_wait_for_previous(shell *sh, bool wait);
/* Prints the estimated cost of a prepared statement that would take long. If SET confirm = on, asks
 * whether to run it. False: do not run it. */
bool estimate_confirm(shell *sh, stmt *s);
/* Asks whether the endpoints that the last statement lacked are allowed, and keeps the answer. False:
 * nobody can be asked, or the answer is no. */
bool endpoints_confirm(shell *sh);
/* Counts what each strategy would compute for the statement, for the live view and for a recording.
 * False: stopped by Ctrl-C. */
bool estimate_baselines(shell *sh, stmt *s, view_state *v);

/* ---- the database (database.c) --------------------------------------------------------------- */

/* Waits for the previous statement to end. True if it has ended and a database is open; else prints
 * an error. */
bool shell_ready(shell *sh);

/* Opens a database in place of the current database, which stays open on failure. */
int shell_open(shell *sh, const char *path, err *e);
void shell_close(shell *sh);
/* Returns all objects of the database, allocated in `a`; NULL after printing an error. */
db_object *shell_objects(shell *sh, arena *a, int *count);
bool shell_set_variable(shell *sh, str name, str text, err *e);

#endif
