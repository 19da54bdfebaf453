/*
 * shell_int.h - what the shell's files share: one `shell` struct, and the functions each file
 * offers the others.
 *
 *   arguments ─ args.c          text of SQL ─ script.c, repl.c (libedit: edit.c)
 *                                     │
 *                              shell_statement (run.c) ── progress.c, view.c while it runs
 *                                     │
 *         format.c (format_box.c, format_text.c, format_plan.c) ── output.c (stdout, file, pager)
 *
 * Ownership: `shell` owns what it points to; strings in it are on the heap. One thread: the
 * shell's.
 * Invariants: what is no data goes to stderr unless a person sits at a terminal; whether one does,
 * and whether there is colour, is decided in term_detect alone.
 */
#ifndef KVASIR_SHELL_INT_H
#define KVASIR_SHELL_INT_H

#include <signal.h>
#include <stdio.h>
#include <termios.h>

#include "exec/exec.h"
#include "shell/shell.h"

/* ---- the terminal (term.c) ------------------------------------------------------------------- */

typedef struct term {
    /* stdin and stdout are terminals: prompts, row counts, paging, fitting to the width */
    bool interactive;
    bool terminal; /* the same, even while -c or -f runs: a live view can be shown */
    bool err_tty;  /* stderr is one: progress lines */
    bool dumb;     /* TERM is unset or dumb: no cursor movement, no colour */
    bool utf8;     /* box drawing and blocks may be used; else ASCII */
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
void term_size(int *columns,
               int *rows); /* of the terminal on stdout or stderr; 80 × 24 if unknown */
const char *style_on(bool color, style s);
const char *style_off(bool color, style s);
void style_append(buf *out, bool color, style s, const char *text);
/* Remembers the terminal's modes at start; term_restore
 * puts them back. Safe in a signal handler. */
void term_save(void);
void term_restore(void);
/* Further bytes that term_restore writes (leaving a
 * full-screen view); NULL: none. Must stay valid. */
void term_set_restore_text(const char *text);

/* ---- signals (signals.c) --------------------------------------------------------------------- */

void signals_install(void);
/* While a statement runs Ctrl-C cancels it; one pressed since signals_clear does at once. NULL: none
 * runs. */
void signals_watch(stmt *s);
int signals_interrupts(void); /* Ctrl-C presses since signals_clear */
void signals_clear(void);
int signals_terminated(void); /* the signal that asks us to leave, or 0 */
/* The flag of either: who has no statement to cancel looks at it. */
const atomic_bool *signals_asked(void);
bool signals_resized(void);   /* since last asked */
bool signals_continued(void); /* since last asked */

/* ---- arguments (args.c) ---------------------------------------------------------------------- */

typedef enum input_kind { INPUT_COMMAND, INPUT_FILE } input_kind;

typedef struct args_input {
    input_kind kind;
    const char *text; /* the SQL, or the file's path; "-" is stdin */
} args_input;

typedef struct args_variable {
    str name;
    const char *value;
} args_variable;

typedef struct args {
    const char *db;   /* NULL: in memory */
    const char *mode; /* NULL: box */
    const char *model;
    const char *mock; /* --mock FILE: replay a recorded run in the view */
    const char *check_cache;
    bool read_only, keep_going, no_color, version, help, view, no_init;
    args_input *inputs; /* -c and -f in order */
    int ninputs;
    args_variable *variables;
    int nvariables;
} args;

/* Arguments point into argv. false: *e says what is wrong, with the nearest option as hint. */
bool args_parse(int argc, char **argv, args *out, err *e);
void args_free(args *a);
void args_help(buf *out);

/* ---- formats (format.c, format_box.c, format_text.c) ----------------------------------------- */

typedef struct format_options {
    const char *null_text;    /* NULL: the mode's own */
    const char *insert_table; /* of mode insert; NULL: "t" */
    int width;                /* columns to fit a box into; 0: unlimited */
    uint64_t max_rows;        /* rows a box shows; 0: all */
    bool no_headers, types_row, color, utf8;
    /* .width: columns per result column, 0: by content; negative: right-aligned */
    const int *widths;
    int nwidths;
    workmem *space; /* what modes that keep rows keep counts there; NULL: nowhere */
    /* Called before each row that is drawn at the end, so that `out` need not hold all of them;
     * false: the rest is not wanted. NULL: nobody drains it. */
    bool (*drain)(void *ctx);
    void *drain_ctx;
} format_options;

typedef struct format format;

/* One output mode: a row of the table from which
 * dispatch, --help, .mode and completion are made. */
typedef struct format_mode {
    const char *name, *help;
    bool needs_all; /* shows nothing before the last row is known */
    void (*begin)(format *f);
    void (*row)(format *f, const batch *b, int row);
    void (*end)(format *f);
} format_mode;

struct format {
    const format_mode *mode;
    format_options options;
    int ncols;
    const char *const *names;
    const value_type *types;
    buf *out;
    uint64_t rows;      /* seen */
    uint64_t rows_kept; /* of these, shown */
    bool cut;           /* a value was longer than the screen had room for */
    bool stopped;       /* nobody wants the rest of what is drawn */
    arena *mem;         /* of modes that keep rows */
    void *state;
};

const format_mode *format_modes(size_t *count);
const format_mode *format_mode_find(const char *name); /* NULL: none */
/* Column names and types must outlive the format; everything
 * is appended to `out`, which the caller may drain. */
void format_begin(format *f, const format_mode *mode, const format_options *options, int ncols,
                  const char *const *names, const value_type *types, buf *out);
void format_rows(format *f, const batch *b);
int format_full_error(const format *f, err *e); /* whether rows could not be kept */
bool format_drain(format *f);                   /* whether to go on drawing */
void format_end(format *f);
void format_free(format *f); /* after format_end, or instead of it */

/* Shared by the modes: a cell as people read it (BOOLEAN as true/false, BLOB as x'…'). */
void format_cell(const format *f, buf *out, value v);
/* Control characters as visible ones, one column each. */
void format_visible(buf *out, str text, bool utf8);
void format_json_string(buf *out, str text);
void format_pad(buf *out, int columns);
/* A line of a list: what stands left, and a text from column `indent` on, which goes on below itself
 * where `columns` end (0: never), and begins below where they leave it no room. */
void format_entry(buf *out, str left, int indent, str text, int columns);
void format_count(buf *out, uint64_t n); /* 54,432: never by locale */
/* A plan's lines, wrapped at blanks to `columns` (0: any number). (format_plan.c) */
void format_plan(buf *out, str text, int columns, bool utf8);
void box_begin(format *f);
void box_row(format *f, const batch *b, int row);
void box_end(format *f);
void text_csv_begin(format *f);
void text_csv_row(format *f, const batch *b, int row);
void text_tsv_begin(format *f);
void text_tsv_row(format *f, const batch *b, int row);
void text_json_row(format *f, const batch *b, int row);
void text_json_end(format *f);
void text_jsonl_row(format *f, const batch *b, int row);
void text_line_begin(format *f);
void text_line_row(format *f, const batch *b, int row);
void text_markdown_begin(format *f);
void text_markdown_row(format *f, const batch *b, int row);
void text_markdown_end(format *f);
void text_html_begin(format *f);
void text_html_row(format *f, const batch *b, int row);
void text_html_end(format *f);
void text_insert_row(format *f, const batch *b, int row);
void text_list_begin(format *f);
void text_list_row(format *f, const batch *b, int row);

/* ---- output (output.c) ----------------------------------------------------------------------- */

/* Where results go. Invariant: `hold` is empty unless a
 * pager may still be started for the result in progress. */
typedef struct output {
    FILE *file; /* stdout, or .output's */
    char *path; /* of .output and .once; NULL: stdout */
    bool once;  /* back to stdout after the next result */
    bool pipe;  /* `file` is a program's standard input: .output '|sort' */
    FILE *pager;
    buf hold;
    bool may_page;
    int error; /* errno of the first failed write */
} output;

int output_open(output *o, const char *path, bool once, err *e); /* path NULL: back to stdout */
/* A line before what it brings, which `once` is still for. */
void output_echo(output *o, str line);
/* A result begins: it may go through a pager when `may_page`. */
void output_begin(output *o, bool may_page);
void output_write(output *o, buf *text); /* clears text */
/* Whether who reads the result, a pager or a program, has seen enough of it. */
bool output_unread(const output *o);
/* Whether there is no use in writing more: it failed, or Ctrl-C came, which then counts as a failed
 * write. While a pager has the terminal, Ctrl-C is a key of its own. */
bool output_stopped(output *o);
void output_end(output *o); /* waits for the pager */
void output_close(output *o);

/* ---- the shell ------------------------------------------------------------------------------- */

typedef struct script script;
typedef struct repl repl;

typedef struct shell_variable {
    char *name, *text;
} shell_variable;

typedef struct shell {
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
    shell_variable *variables; /* what .set lists; a database that is opened gets them all */
    int nvariables;
    stmt *lingering; /* a cancelled statement whose end nobody waited for */
    exec_summary last;
    bool last_had_llm;
    buf last_text; /* the last statement, for .explain and .view */
    bool want_view, quit;
    int quit_code;
    int read_depth; /* .read within .read */
    script *script; /* where the statement now running comes from; NULL: the prompt */
    repl *repl;
    char *mock;
} shell;

/* Tells of a write that failed, if one did. False: there is nowhere to show results, which ends a
 * script's work. (output.c) */
bool output_check(shell *sh);
/* Shows a command's text where results go, through the pager if it is longer than the screen. Frees
 * the text. (output.c) */
void output_text(shell *sh, buf *text);

/* ---- running statements (run.c) -------------------------------------------------------------- */

/* Where a statement's text stands, for messages. `text` is what is shown with the caret: the
 * statement begins at `at`. */
typedef struct place {
    const char *file; /* NULL: the prompt */
    str text;
    size_t at;
    int line; /* of text[0], from 1 */
} place;

/* Tells a person what a long LLM statement will cost, and asks where SET confirm = on. False: not
 * to be run. (estimate.c) */
bool estimate_confirm(shell *sh, str text);
/* Runs one statement, prints its result or error. False: it failed (or was stopped). */
bool shell_statement(shell *sh, str text, const place *where);
/* Same, for commands that are SQL underneath; errors are told without a place. */
bool shell_sql(shell *sh, const char *text);
/* Calls `row` with every batch of a query; no output. */
typedef void (*shell_batch_fn)(void *ctx, stmt *s, const batch *b);
int shell_query(shell *sh, str text, shell_batch_fn fn, void *ctx, err *e);
/* Waits for a statement that Ctrl-C left behind; false:
 * it still runs, and we were told not to wait longer. */
bool shell_settle(shell *sh, bool wait);
/* A message to a person: stdout at the prompt, nowhere otherwise. */
void shell_note(shell *sh, const char *format, ...) BASE_PRINTF(2, 3);
/* Complaint of a command, with the place in the script if there is one. */
bool shell_complain(shell *sh, const char *format, ...) BASE_PRINTF(2, 3);
bool shell_failed(shell *sh, const err *e); /* the same of an error; both return false */
void shell_summary_line(const exec_summary *s, buf *out);

/* ---- scripts (script.c) ---------------------------------------------------------------------- */

/* Runs all of a file ("-": stdin) or a text; false: stopped at an error. */
bool script_file(shell *sh, const char *path);
bool script_text(shell *sh, const char *name, str text);
/* Runs all that is whole in `text`, typed at the prompt; *used: the bytes done with. */
bool script_prompt(shell *sh, str text, size_t *used);
/* Where the piece now running stands, for complaints of commands. */
bool script_place(const script *sc, place *out);

/* Where the next piece of `text` ends. A piece is a command line, a statement, or blank. */
typedef enum piece_kind { PIECE_BLANK, PIECE_COMMAND, PIECE_STATEMENT, PIECE_PARTIAL } piece_kind;
/* `last`: no more text follows, so a statement without `;` is whole. */
piece_kind script_piece(str text, bool last, size_t *length);

/* ---- commands (commands*.c) ------------------------------------------------------------------ */

typedef struct command_call {
    const char *name; /* as typed, with its dot or backslash */
    str rest;         /* all after the name, trimmed */
    int argc;         /* words of it: quotes removed */
    char **argv;
    arena *mem;
} command_call;

typedef enum command_arg {
    ARG_NONE,
    ARG_TABLE,
    ARG_FILE,
    ARG_MODE,
    ARG_ONOFF,
    ARG_SQL,
    ARG_COMMAND,
    ARG_SETTING,
    ARG_TEXT, /* all of the line, as it is */
    ARG_ANY
} command_arg;

typedef struct command {
    const char *name;    /* "tables": typed as .tables */
    const char *aliases; /* "\\dt \\d+ .ls": as typed, or "" */
    const char *usage;   /* "[TABLE]" */
    const char *help;
    command_arg arg; /* what its argument is, for completion */
    bool (*run)(shell *sh, command_call *call);
} command;

const command *commands_table(size_t *count);
/* The command for a name as typed (".tables", "\\dt"), or NULL. */
const command *command_find(str typed);
/* How it is done here what a command or option of another program does; NULL: not known. */
const char *habit_here(str typed);
/* Runs one command line; false: it failed. */
bool command_line(shell *sh, str line);
/* A command that switches *flag: on, off, or without a word the other way. */
bool command_switch(shell *sh, command_call *c, bool *flag, const char *what);

bool cmd_help(shell *sh, command_call *c);
bool cmd_tables(shell *sh, command_call *c);
bool cmd_views(shell *sh, command_call *c);
bool cmd_indexes(shell *sh, command_call *c);
bool cmd_schema(shell *sh, command_call *c);
bool cmd_functions(shell *sh, command_call *c);
bool cmd_settings(shell *sh, command_call *c);
bool cmd_import(shell *sh, command_call *c);
bool cmd_dump(shell *sh, command_call *c);
bool cmd_backup(shell *sh, command_call *c);
bool cmd_model(shell *sh, command_call *c);
bool cmd_stats(shell *sh, command_call *c);
bool cmd_cache(shell *sh, command_call *c);
bool cmd_explain(shell *sh, command_call *c);
bool cmd_tokens(shell *sh, command_call *c);
bool cmd_view(shell *sh, command_call *c);
bool cmd_history(shell *sh, command_call *c);
bool cmd_edit(shell *sh, command_call *c);

/* A name as SQL writes it: quoted where it must be. */
void name_append(buf *out, const char *name);

/* ---- the whole (shell.c) --------------------------------------------------------------------- */

/* Another database instead of the one that is open, which stays where that fails. */
int shell_open(shell *sh, const char *path, err *e);
/* All objects of the database, or NULL after an error was told. */
db_object *shell_objects(shell *sh, arena *a, int *count);
bool shell_set_variable(shell *sh, str name, str text, err *e);

/* ---- prompt (repl.c, edit.c, history.c, complete.c, highlight.c) ----------------------------- */

int repl_run(shell *sh);
/* What was typed while a statement ran is typed at the next prompt. */
void repl_feed(repl *r, str typed);

/* Whole statements, oldest first; a file shared by all shells of a user. */
typedef struct history_list {
    char **lines;
    size_t count, cap;
    char *path; /* NULL: not kept */
} history_list;
void history_open(history_list *h, const char *path); /* NULL: the standard place */
/* Appends to list and file; blank-led, empty and repeated ones are left out. True: it was added. */
bool history_add(history_list *h, str statement);
void history_close(history_list *h);

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
    const char *text; /* what the word is replaced with */
    const char *note; /* shown dim behind it: a type, a signature; may be "" */
    candidate_kind kind;
    int score; /* higher comes first */
} candidate;

typedef struct completion {
    size_t start; /* the word being completed is text[start, cursor) */
    candidate *items;
    int count;
    size_t common; /* bytes that all candidates share */
} completion;

/* Pure: what may stand at `cursor` of the statement (or
 * command line) `text`, best first. Allocated in `a`. */
void complete_find(str text, size_t cursor, const db_object *objects, int nobjects, arena *a,
                   completion *out);

/* The statement with its tokens coloured. */
void highlight(str text, bool color, buf *out);

/* ---- keys while a statement runs (keys.c) ---------------------------------------------------- */

typedef struct key_watch {
    bool open;
    struct termios before;
    buf typed; /* not for us: the prompt's, later */
} key_watch;

/* Keys are taken one by one from here on; nothing happens where nobody could press any. */
void keys_open(key_watch *k, const shell *sh);
/* Whether the key for the live view was pressed. */
bool keys_view(key_watch *k);
/* The terminal as it was; what else was typed goes to the prompt. */
void keys_close(key_watch *k, shell *sh);

/* ---- progress (progress.c) ------------------------------------------------------------------- */

typedef struct progress_line {
    bool shown;
    bool keys; /* v opens the view */
    double drawn_ms;
    double rate, token_rate; /* smoothed */
    double last_seconds;
    uint64_t last_rows, last_tokens;
} progress_line;

/* Draws the line on stderr, at most ten times a second. */
void progress_draw(progress_line *p, const shell *sh, const exec_progress *x);
void progress_clear(progress_line *p);
/* The line itself, at most `width` columns. Pure but for the smoothing in p. */
void progress_render(progress_line *p, const exec_progress *x, int width, bool utf8, buf *out);
double progress_hit_rate(const llm_stats *m);
/* What progress counts: one call's inputs are rows to
 * whoever waits for them, those of several calls answers. */
const char *progress_unit(const exec_progress *x);
void progress_duration(buf *out, double seconds);

#endif
