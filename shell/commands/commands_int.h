/*
 * commands_int.h - shell commands such as .tables: finds and runs them.
 */
#ifndef KVASIR_COMMANDS_INT_H
#define KVASIR_COMMANDS_INT_H

#include "core/shell_int.h"

/* A parsed command line. */
typedef struct command_call {
    const char *name; /* as typed, with its dot or backslash */
    str rest;         /* the text after the name, trimmed */
    int argc;
    char **argv; /* [argc] the words of `rest`, without quotes */
    arena *mem;
} command_call;

/* The kind of a command's argument, for completion and parsing. */
typedef enum command_arg {
    ARG_NONE,
    ARG_TABLE,
    ARG_FILE,
    ARG_MODE,
    ARG_ONOFF,
    ARG_SQL,
    ARG_SELECT, /* options, then a SELECT that may go on over several lines, up to ; */
    ARG_COMMAND,
    ARG_SETTING,
    ARG_TEXT, /* the rest of the line as typed */
    ARG_ANY
} command_arg;

typedef struct command {
    const char *name;    /* "tables": typed as .tables */
    const char *aliases; /* other names as typed, separated by blanks: "\\dt \\d .ls"; or "" */
    const char *usage;   /* "[TABLE]" */
    const char *help;
    command_arg arg;
    bool (*run)(shell *sh, command_call *call);
} command;

/* A page of .help about a subject (help_pages.c). A command, function or setting may have the same
 * name. */
typedef struct help_page {
    const char *name;
    const char *also; /* other names that find it, separated by blanks; or "" */
    const char *title;
    const char *text;
    void (*list)(buf *out); /* appends the rows of a table after the text; NULL: none */
    const char *more;       /* the text after these rows; NULL: none */
} help_page;

const help_page *help_pages(size_t *count);
void help_page_print(const help_page *page, buf *out);
/* Appends the values that a setting takes: 'off, fixed, grouped or auto' (commands_help.c). */
void help_setting_values(const setting_info *setting, buf *out);

const command *commands_table(size_t *count);
/* Returns the command with this name (".tables", "\\dt"), or the command whose name begins with
 * `typed` if there is exactly one. NULL otherwise. */
const command *command_find(str typed);
/* Returns the part of a command's text that begins with the word SELECT or WITH; n = 0: none. */
str command_select(str text);
/* Whether a list separated by blanks has the word. */
bool words_have(const char *words, str wanted);
/* Prints the error for a command that does not exist, with the nearest name. Returns false. */
bool command_unknown(shell *sh, str typed);
/* Returns what to use instead of a command or option of another program; NULL if unknown. */
const char *foreign_command(str typed);
/* Runs one command line. False: it failed. */
bool command_line(shell *sh, str line);
/* Returns the text without the quotes around it, if it has any. */
str command_unquote(str text);
/* Sets *flag to the argument (on or off), or flips it if there is no argument. Prints the new
 * value. */
bool command_switch(shell *sh, command_call *c, bool *flag, const char *what);

/* Returns `text` as a statement, without EXPLAIN before it and ';' after it, or, if it is empty, the
 * last statement. Empty after an error: there is none. */
str command_statement(shell *sh, const command_call *c, str text);

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
bool cmd_check(shell *sh, command_call *c);
bool cmd_recover(shell *sh, command_call *c);
bool cmd_model(shell *sh, command_call *c);
bool cmd_stats(shell *sh, command_call *c);
bool cmd_cache(shell *sh, command_call *c);
bool cmd_explain(shell *sh, command_call *c);
bool cmd_compare(shell *sh, command_call *c);
bool cmd_tokens(shell *sh, command_call *c);
bool cmd_try(shell *sh, command_call *c);
bool cmd_agree(shell *sh, command_call *c);
bool cmd_view(shell *sh, command_call *c);
bool cmd_history(shell *sh, command_call *c);
bool cmd_edit(shell *sh, command_call *c);

#endif
