/*
 * args.c - parses the command line with a table of options, from which --help, hints, the man page
 * and completion are made.
 *
 * As in sqlite3, the first argument that is not an option is the database and the second is SQL.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run_int.h"
#include "storage/containers.h"

#define FLAG(member) OPTION_FLAG, offsetof(args, member)
#define TEXT(member) OPTION_TEXT, offsetof(args, member)
static const option options[] = {
    {"-c", "SQL", "run SQL or a command such as .tables, then exit; may be repeated",
     OPTION_COMMAND, 0},
    {"-f", "FILE", "run a script (-: standard input), then exit; may be repeated", OPTION_FILE, 0},
    {"--set", "NAME=VALUE", "set the variable :NAME of SQL", OPTION_VARIABLE, 0},
    {"--read-only", NULL, "open the database read-only", FLAG(read_only)},
    {"--keep-going", NULL, "continue after an error in a script (the exit code is still 1)",
     FLAG(keep_going)},
    {"--model", "PATH", "use this GGUF file or model instead of the default model", TEXT(model)},
    {"--allow-endpoint", "URL[,KEY]",
     "let models send rows there, with the key of this variable or file", TEXT(allow)},
    {"--view", NULL, "show LLM statements in the live view", FLAG(view)},
    {"--mock", "FILE", "replay a recorded run in the live view", TEXT(replay)},
    {"--no-color", NULL, "no colour (also by NO_COLOR=1)", FLAG(no_color)},
    {"--no-init", NULL, "do not read ~/.config/kvasir/init.sql", FLAG(no_init)},
    {"--generate", "man|bash|zsh", "print the man page or a completion script", TEXT(generate)},
    {"--version", NULL, "print the version", FLAG(version)},
    {"--help", NULL, "print this help", FLAG(help)},
    {"--command", "SQL", NULL, OPTION_COMMAND, 0},
    {"--file", "FILE", NULL, OPTION_FILE, 0},
    {"-v", "NAME=VALUE", NULL, OPTION_VARIABLE, 0},
    {"--readonly", NULL, NULL, FLAG(read_only)},
    {"-readonly", NULL, NULL, FLAG(read_only)},
    {"-h", NULL, NULL, FLAG(help)},
    {"-?", NULL, NULL, FLAG(help)},
    {"-help", NULL, NULL, FLAG(help)},
    {"-V", NULL, NULL, FLAG(version)},
    {"-version", NULL, NULL, FLAG(version)},
};

const char args_synopsis[] = "kvasir [DATABASE] [SQL] [options]";
const char args_database[] =
    "DATABASE is a directory, created if missing. Without one data is in memory.";
const char args_exit_codes[] =
    "0 success; 1 a statement or command failed; 2 wrong arguments, or the\n"
    "database cannot be opened; 130 interrupted by Ctrl-C; 128 + n ended by signal n\n"
    "(141: the reader of the output ended first); or the code given to .quit.";

const option *args_options(size_t *count) {
    *count = BASE_COUNT(options);
    return options;
}

static const option *option_find(const char *name, size_t n) {
    for (size_t i = 0; i < BASE_COUNT(options); i++)
        if (strlen(options[i].name) == n && memcmp(options[i].name, name, n) == 0)
            return &options[i];
    return NULL;
}

/* Returns the mode of an option `--csv`, or `-csv` as in sqlite3 and duckdb. */
static const format_mode *mode_option(const char *arg) {
    const char *name = arg + (arg[1] == '-' ? 2 : 1);
    return name[0] != 0 && name[1] != 0 ? format_mode_find(name) : NULL;
}

static bool option_unknown(const char *arg, err *e) {
    const char *names[BASE_COUNT(options) + 32];
    char modes[32][24];
    size_t n = 0, nmodes;
    for (size_t i = 0; i < BASE_COUNT(options); i++)
        if (options[i].help != NULL)
            names[n++] = options[i].name;
    const format_mode *table = format_modes(&nmodes);
    for (size_t i = 0; i < nmodes && i < 32; i++) {
        snprintf(modes[i], sizeof modes[i], "--%s", table[i].name);
        names[n++] = modes[i];
    }
    err_set(e, ERR_SYNTAX, "unknown option '%s'", arg);
    const char *instead = foreign_command((str){arg, strcspn(arg, "=")});
    const char *near = strlen(arg) > 2 ? str_nearest(str_from(arg), names, n) : NULL;
    if (instead != NULL)
        err_hint(e, "%s", instead);
    else if (near != NULL)
        err_hint(e, "did you mean %s?", near);
    else
        err_hint(e, "kvasir --help lists the options");
    return false;
}

static void add_input(args *out, input_kind kind, const char *text) {
    ARRAY_PUSH(out->inputs, out->ninputs, out->inputs_cap, ((args_input){kind, text}));
}

static bool add_variable(args *out, const char *text, err *e) {
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text) {
        err_set(e, ERR_SYNTAX, "--set needs NAME=VALUE, not '%s'", text);
        return false;
    }
    args_variable one = {{text, (size_t)(equals - text)}, equals + 1};
    ARRAY_PUSH(out->variables, out->nvariables, out->variables_cap, one);
    return true;
}

static bool option_apply(args *out, const option *o, const char *given, err *e) {
    void *member = (char *)out + o->at;
    switch (o->kind) {
    case OPTION_FLAG:
        *(bool *)member = true;
        return true;
    case OPTION_TEXT:
        *(const char **)member = given;
        return true;
    case OPTION_COMMAND:
        add_input(out, INPUT_COMMAND, given);
        return true;
    case OPTION_FILE:
        add_input(out, INPUT_FILE, given);
        return true;
    case OPTION_VARIABLE:
        return add_variable(out, given, e);
    }
    return true;
}

/* Parses the option argv[*i]; advances *i if its value is the next argument. */
static bool parse_option(int argc, char **argv, int *i, args *out, err *e) {
    const char *arg = argv[*i];
    const char *equals = arg[1] == '-' ? strchr(arg, '=') : NULL;
    const option *o = option_find(arg, equals ? (size_t)(equals - arg) : strlen(arg));
    if (o == NULL) {
        const format_mode *mode = mode_option(arg);
        if (mode == NULL)
            return option_unknown(arg, e);
        out->mode = mode->name;
        return true;
    }
    if (o->argument == NULL) {
        if (equals != NULL) {
            err_set(e, ERR_SYNTAX, "%s takes no value", o->name);
            return false;
        }
        return option_apply(out, o, NULL, e);
    }
    const char *given = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    if (given == NULL) {
        err_set(e, ERR_SYNTAX, "%s needs %s", o->name, o->argument);
        return false;
    }
    return option_apply(out, o, given, e);
}

/* True for an SQL statement or a command, as in `kvasir 'SELECT 1'` or `kvasir .tables`: taken as a
 * database, it would create a directory of that name. */
static bool is_statement(const char *name) {
    size_t n = strcspn(name, " ;"), count;
    if (access(name, F_OK) == 0)
        return false;
    const command *named = name[0] == '.' ? command_find((str){name, n}) : NULL;
    if (named && strlen(named->name) == n - 1) /* the full name only: .data may be a directory */
        return true;
    const char *const *words = sql_keywords(&count);
    for (size_t i = 0; i < count && name[n]; i++)
        if (str_equal_nocase((str){name, n}, str_from(words[i])))
            return true;
    return false;
}

bool args_parse(int argc, char **argv, args *out, err *e) {
    *out = (args){0};
    bool only_names = false;
    int names = 0;
    for (int i = 1; i < argc; i++) {
        if (!only_names && strcmp(argv[i], "--") == 0) {
            only_names = true;
        } else if (!only_names && argv[i][0] == '-' && argv[i][1] != 0) {
            if (!parse_option(argc, argv, &i, out, e))
                return false;
        } else if (names == 0 && is_statement(argv[i])) {
            err_set(e, ERR_SYNTAX, "no database '%s'", argv[i]);
            err_hint(e, "use -c to run SQL or a command");
            return false;
        } else if (names == 0) {
            out->db = strcmp(argv[i], ":memory:") == 0 ? NULL : argv[i];
            names++;
        } else if (names == 1) {
            add_input(out, INPUT_COMMAND, argv[i]);
            names++;
        } else {
            err_set(e, ERR_SYNTAX, "unexpected argument '%s'", argv[i]);
            err_hint(e, "give at most one database and one SQL text");
            return false;
        }
    }
    return true;
}

void args_free(args *a) {
    free(a->inputs);
    free(a->variables);
    *a = (args){0};
}

void args_help(buf *out) {
    enum { LEFT = 21 };
    size_t n;
    const format_mode *modes = format_modes(&n);
    buf left = {0};
    buf_printf(out,
               "kvasir: a SQL shell whose queries can call a language model\n\nusage: %s\n\n%s\n\n",
               args_synopsis, args_database);
    for (size_t i = 0; i < BASE_COUNT(options); i++) {
        const option *o = &options[i];
        if (o->help == NULL)
            continue;
        buf_clear(&left);
        buf_printf(&left, "  %s%s%s", o->name, o->argument ? " " : "",
                   o->argument ? o->argument : "");
        format_entry(out, buf_str(&left), LEFT, str_from(o->help), 0);
    }
    buf_free(&left);
    buf_append_c(out, "\noutput:\n");
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "  --%-16s %s\n", modes[i].name, modes[i].help);
    buf_printf(out, "\nexit codes: %s\nIn the shell, .help lists the commands.\n", args_exit_codes);
}
