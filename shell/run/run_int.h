/*
 * run_int.h - the top of the shell: command-line arguments, scripts, the prompt.
 */
#ifndef KVASIR_RUN_INT_H
#define KVASIR_RUN_INT_H

#include "commands/commands_int.h"

/* ---- arguments (args.c) ---------------------------------------------------------------------- */

/* What an option sets. */
typedef enum option_kind {
    OPTION_FLAG,    /* a bool in args */
    OPTION_TEXT,    /* a const char * in args */
    OPTION_COMMAND, /* adds an INPUT_COMMAND */
    OPTION_FILE,    /* adds an INPUT_FILE */
    OPTION_VARIABLE /* adds a variable */
} option_kind;

typedef struct option {
    const char *name;
    /* name of the option's value, or the words that it may be, 'a|b|c'; NULL: it has no value */
    const char *argument;
    const char *help; /* NULL: --help does not list the option */
    option_kind kind;
    size_t at; /* OPTION_FLAG, OPTION_TEXT: offset of the member in args */
} option;

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
    const char *allow;    /* --allow-endpoint */
    const char *generate; /* --generate WHAT */
    const char *replay;   /* --mock FILE: a recorded run to show in the live view */
    bool read_only, keep_going, no_color, version, help, view, no_init;
    args_input *inputs; /* -c and -f, in order */
    int ninputs, inputs_cap;
    args_variable *variables;
    int nvariables, variables_cap;
} args;

/* Sets *out to the arguments; its strings point into argv. False: there is an error in *e, whose
 * hint names the most similar option. */
bool args_parse(int argc, char **argv, args *out, err *e);
void args_free(args *a);
void args_help(buf *out);
const option *args_options(size_t *count);
/* Texts that --help and the man page share. */
extern const char args_synopsis[], args_database[], args_exit_codes[];

/* ---- files for installation (generate.c) ----------------------------------------------------- */

/* Appends the man page ("man") or a completion script ("bash", "zsh"). False: `what` is none of
 * these. */
bool generate(const char *what, buf *out);

/* ---- scripts (script.c) ---------------------------------------------------------------------- */

/* Run the statements and commands of a file ("-": stdin) or text. False: one of them failed. */
bool script_file(shell *sh, const char *path);
bool script_text(shell *sh, const char *name, str text);
/* Runs the complete pieces of `text`, typed at the prompt. *used = the number of bytes run. */
bool script_prompt(shell *sh, str text, size_t *used);

/* A piece of a script: blanks and comments, a command, a statement, or the beginning of a command
 * or statement. */
typedef enum piece_kind { PIECE_BLANK, PIECE_COMMAND, PIECE_STATEMENT, PIECE_PARTIAL } piece_kind;
/* Returns the kind of the first piece of `text` and sets its length. `last`: no more text follows,
 * so that a statement without `;` is complete. */
piece_kind script_piece(str text, bool last, size_t *length);

/* ---- the prompt (repl.c) --------------------------------------------------------------------- */

int repl_run(shell *sh); /* returns the exit code */

#endif
