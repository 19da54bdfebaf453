/*
 * commands.c - the table of shell commands, the parser of a command line, and short commands.
 * Longer commands are in commands_*.c.
 *
 * Invariant: dispatch, .help, the man page, completion and "did you mean" use this one table; names
 * of psql and sqlite3 are aliases in it. A command writes its answer to the output of results
 * (shell_print) and notes about what it did to the screen (shell_note).
 */
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "commands_int.h"

/* ---- arguments ------------------------------------------------------------------------------- */

static bool parse_switch(shell *sh, command_call *c, bool *out) {
    if (c->argc == 0) {
        *out = !*out;
        return true;
    }
    return parse_boolean(value_text(str_from(c->argv[0])), out) ||
           shell_complain(sh, "%s takes on or off, not '%s'", c->name, c->argv[0]);
}

bool command_switch(shell *sh, command_call *c, bool *flag, const char *what) {
    if (!parse_switch(sh, c, flag))
        return false;
    shell_note(sh, "%s: %s", what, *flag ? "on" : "off");
    return true;
}

/* ---- short commands -------------------------------------------------------------------------- */

static bool cmd_timer(shell *sh, command_call *c) {
    return command_switch(sh, c, &sh->timer, "timer");
}

static bool cmd_headers(shell *sh, command_call *c) {
    if (strcmp(c->name, "\\t") != 0)
        return command_switch(sh, c, &sh->headers, "headers");
    bool only = !sh->headers; /* psql's \t on turns headers off */
    bool ok = command_switch(sh, c, &only, "tuples only");
    sh->headers = !only;
    return ok;
}

static bool cmd_types(shell *sh, command_call *c) {
    return command_switch(sh, c, &sh->types_row, "types row");
}

static bool cmd_echo(shell *sh, command_call *c) {
    return command_switch(sh, c, &sh->echo, "echo");
}

static bool cmd_pager(shell *sh, command_call *c) {
    return command_switch(sh, c, &sh->pager, "pager");
}

static bool cmd_progress(shell *sh, command_call *c) {
    return command_switch(sh, c, &sh->progress, "progress");
}

static bool cmd_bail(shell *sh, command_call *c) {
    bool bail = !sh->keep_going;
    if (!command_switch(sh, c, &bail, "stop at errors"))
        return false;
    sh->keep_going = !bail;
    return true;
}

static bool list_modes(shell *sh) {
    size_t n;
    const format_mode *modes = format_modes(&n);
    buf out = {0};
    for (size_t i = 0; i < n; i++)
        buf_printf(&out, "%s %-9s %s\n", &modes[i] == sh->mode ? "*" : " ", modes[i].name,
                   modes[i].help);
    buf_append_c(&out,
                 "  --wrap    box, line: long texts over several lines; .schema, too\n"
                 "  --wrap=N  the same, in N columns\n"
                 "  --no-wrap one line each; default: wrap at a prompt, a box only if narrow\n");
    shell_print(sh, &out);
    return true;
}

static const format_mode *mode_named(shell *sh, const char *name) {
    size_t n;
    const format_mode *modes = format_modes(&n), *mode = format_mode_find(name);
    if (mode != NULL)
        return mode;
    const char *names[32];
    for (size_t i = 0; i < n && i < 32; i++)
        names[i] = modes[i].name;
    const char *near = str_nearest(str_from(name), names, BASE_MIN(n, (size_t)32));
    if (near)
        shell_complain(sh, "unknown mode '%s'; did you mean %s?", name, near);
    else
        shell_complain(sh, "unknown mode '%s'; .mode lists the modes", name);
    return NULL;
}

/* Reads --wrap, --wrap=N, --wrap N or --no-wrap at argv[*i]; false after an error. */
static bool parse_wrap(shell *sh, const command_call *c, int *i, format_wrapping *wrap,
                       int *columns) {
    const char *option = c->argv[*i], *number = NULL;
    bool equals = strncmp(option, "--wrap=", strlen("--wrap=")) == 0;
    bool on = equals || strcmp(option, "--wrap") == 0;
    int64_t n = 0;
    if (!on && strcmp(option, "--no-wrap") != 0)
        return shell_complain(sh, "%s has no option '%s'; it has --wrap, --wrap=N and --no-wrap",
                              c->name, option);
    if (equals)
        number = strchr(option, '=') + 1;
    else if (on && *i + 1 < c->argc && isdigit((unsigned char)c->argv[*i + 1][0]))
        number = c->argv[++*i]; /* as in sqlite3 */
    if (number && (!parse_integer(str_from(number), &n) || n < 1 || n > 10000))
        return shell_complain(sh, "--wrap takes columns from 1 to 10000, not '%s'", number);
    *wrap = on ? WRAP_ON : WRAP_OFF;
    *columns = (int)n;
    return true;
}

static bool cmd_mode(shell *sh, command_call *c) {
    const char *words[2] = {0}; /* the mode, the table */
    format_wrapping wrap = WRAP_AUTO;
    int columns = 0, given = 0;
    if (c->argc == 0)
        return list_modes(sh);
    for (int i = 0; i < c->argc; i++) {
        if (strncmp(c->argv[i], "--", 2) == 0) {
            if (!parse_wrap(sh, c, &i, &wrap, &columns))
                return false;
        } else if (given < 2) {
            words[given++] = c->argv[i];
        } else {
            return shell_complain(sh, "unexpected argument '%s'", c->argv[i]);
        }
    }
    const format_mode *mode = given ? mode_named(sh, words[0]) : sh->mode;
    if (mode == NULL)
        return false;
    if (given && wrap == WRAP_AUTO && strcasecmp(words[0], "wrapped") == 0)
        wrap = WRAP_ON; /* psql's format */
    if (wrap == WRAP_ON && !mode->wraps)
        return shell_complain(sh, "mode %s does not wrap texts; box and line do", mode->name);
    sh->mode = mode;
    sh->wrap = wrap;
    sh->wrap_columns = columns;
    if (words[1]) {
        free(sh->insert_table);
        sh->insert_table = mem_strdup(words[1]);
    }
    return true;
}

static bool cmd_expanded(shell *sh, command_call *c) {
    bool line = strcmp(sh->mode->name, "line") == 0;
    if (!command_switch(sh, c, &line, "one value per line"))
        return false;
    sh->mode = format_mode_find(line ? "line" : "box");
    return true;
}

static bool cmd_nullvalue(shell *sh, command_call *c) {
    free(sh->null_text);
    sh->null_text = mem_strdup(c->argc ? c->argv[0] : NULL);
    return true;
}

static bool cmd_width(shell *sh, command_call *c) {
    sh->nwidths = 0;
    for (int i = 0; i < c->argc; i++) {
        int64_t w;
        if (i == (int)BASE_COUNT(sh->widths))
            return shell_complain(sh, "%s takes at most %d widths", c->name, i);
        if (!parse_integer(str_from(c->argv[i]), &w) || w < -10000 || w > 10000)
            return shell_complain(sh, "%s takes column widths, not '%s'", c->name, c->argv[i]);
        sh->widths[sh->nwidths++] = (int)w;
    }
    return true;
}

static bool cmd_maxrows(shell *sh, command_call *c) {
    int64_t n = -1;
    if (c->argc && (!parse_integer(str_from(c->argv[0]), &n) || n < 0))
        return shell_complain(sh, "%s takes a number of rows (0 for all), not '%s'", c->name,
                              c->argv[0]);
    sh->max_rows = n;
    return true;
}

static bool output_to(shell *sh, command_call *c, bool once) {
    err e = {.pos = -1};
    const char *path = c->argc && strcmp(c->argv[0], "stdout") != 0 ? c->argv[0] : NULL;
    /* After a '|' all of the line is the program's command line. */
    if (c->rest.n && *c->rest.p == '|')
        path = arena_strndup(c->mem, c->rest.p, c->rest.n);
    if (once && path == NULL)
        return shell_complain(sh, "%s needs a file", c->name);
    if (path && *path == '-') /* sqlite3's options -x and -e; write ./-x for a file named -x */
        return shell_complain(sh, "%s has no option '%s'", c->name, path);
    return output_open(&sh->out, path, once, &e) == 0 || shell_failed(sh, &e);
}

static bool cmd_output(shell *sh, command_call *c) {
    return output_to(sh, c, false);
}

static bool cmd_once(shell *sh, command_call *c) {
    return output_to(sh, c, true);
}

static bool cmd_read(shell *sh, command_call *c) {
    return c->argc ? sh->run_file(sh, c->argv[0]) : shell_complain(sh, "%s needs a file", c->name);
}

/* As .read, but a relative FILE is sought beside the script that has this line; at the prompt and
 * in -c, where there is none, in the working directory. */
static bool cmd_read_relative(shell *sh, command_call *c) {
    const char *script = sh->where && sh->where->file ? sh->where->file : "";
    const char *end = strrchr(script, '/');
    bool beside = c->argc && end && *c->argv[0] != '/' && strcmp(c->argv[0], "-") != 0;
    if (beside)
        c->argv[0] = arena_printf(c->mem, "%.*s%s", (int)(end + 1 - script), script, c->argv[0]);
    return cmd_read(sh, c);
}

/* Removes quotes around the whole text. */
str command_unquote(str s) {
    bool quoted = s.n >= 2 && (*s.p == '\'' || *s.p == '"') && s.p[s.n - 1] == *s.p;
    return quoted ? (str){s.p + 1, s.n - 2} : s;
}

static bool cmd_print(shell *sh, command_call *c) {
    buf line = {0};
    buf_append_str(&line, command_unquote(c->rest));
    buf_append_char(&line, '\n');
    output_begin(&sh->out, false);
    output_write(&sh->out, &line);
    output_end(&sh->out);
    buf_free(&line);
    return true;
}

static bool cmd_quit(shell *sh, command_call *c) {
    int64_t code = 0;
    if (c->argc && (!parse_integer(str_from(c->argv[0]), &code) || code < 0 || code > 255))
        return shell_complain(sh, "%s takes an exit code from 0 to 255, not '%s'", c->name,
                              c->argv[0]);
    sh->quit = true;
    sh->quit_code = (int)code;
    return true;
}

/* Turns sqlite3's `.param set :x 5` into `.set x 5` and `.param list` into `.set`. False: the words
 * after .param are neither of the two, nor NAME=VALUE. */
static bool param_words(command_call *c) {
    if (strncasecmp(c->name, ".param", strlen(".param")) != 0 || c->argc == 0)
        return true;
    bool list = str_equal_nocase(str_from(c->argv[0]), STR("list")) && c->argc == 1;
    bool set = str_equal_nocase(str_from(c->argv[0]), STR("set")) && c->argc == 3;
    if (!list && !set)
        return memchr(c->rest.p, '=', c->rest.n) != NULL;
    c->argv++;
    c->argc = list ? 0 : c->argc - 1;
    c->rest = (str){0};
    if (set && strchr(":@$", *c->argv[0]))
        c->argv[0]++;
    return true;
}

static bool list_variables(shell *sh) {
    buf out = {0};
    for (int i = 0; i < sh->nvariables; i++)
        buf_printf(&out, "%s=%s\n", sh->variables[i].name, sh->variables[i].text);
    shell_print(sh, &out);
    return true;
}

static bool cmd_set(shell *sh, command_call *c) {
    if (!param_words(c))
        return shell_complain(sh, "usage: %s set NAME VALUE, or %s list", c->name, c->name);
    if (c->argc == 0)
        return list_variables(sh);
    const char *equals = c->rest.n ? memchr(c->rest.p, '=', c->rest.n) : NULL;
    str name = {c->argv[0], strlen(c->argv[0])}, text = {0};
    if (equals) {
        name = str_trim((str){c->rest.p, (size_t)(equals - c->rest.p)}, " ");
        text = (str){equals + 1, c->rest.n - (size_t)(equals + 1 - c->rest.p)};
        text = command_unquote(str_trim(text, " "));
    } else if (c->argc == 2) {
        text = str_from(c->argv[1]);
    } else {
        return shell_complain(
            sh, "usage: %s NAME=VALUE (for a setting such as psm: SET psm = 'off';)", c->name);
    }
    err e = {.pos = -1};
    return shell_set_variable(sh, name, text, &e) || shell_failed(sh, &e);
}

static bool cmd_open(shell *sh, command_call *c) {
    err e = {.pos = -1};
    const char *path = c->argc && strcmp(c->argv[0], ":memory:") != 0 ? c->argv[0] : NULL;
    if (shell_open(sh, path, &e) != 0)
        return shell_failed(sh, &e);
    return true;
}

static bool cmd_databases(shell *sh, command_call *c) {
    (void)c;
    buf out = {0};
    const char *path = sh->db ? db_path(sh->db) : NULL;
    buf_printf(&out, "%s%s\n", sh->db_path == NULL ? "in memory: " : "",
               path ? path : "no database is open");
    shell_print(sh, &out);
    return true;
}

static bool cmd_shell(shell *sh, command_call *c) {
    if (c->rest.n == 0)
        return shell_complain(sh, "%s needs a command", c->name);
    char *line = arena_strndup(c->mem, c->rest.p, c->rest.n);
    fflush(stdout);
    int status = system(line);
    if (status == 0)
        return true;
    if (status < 0)
        return shell_complain(sh, "cannot run '%s': %s", line, strerror(errno));
    if (!WIFEXITED(status))
        return shell_complain(sh, "'%s' was killed by a signal", line);
    return shell_complain(sh, "'%s' exited with code %d", line, WEXITSTATUS(status));
}

static bool cmd_cd(shell *sh, command_call *c) {
    const char *to = c->argc ? c->argv[0] : getenv("HOME");
    if (to == NULL)
        return shell_complain(sh, "%s needs a directory: HOME is not set", c->name);
    if (chdir(to) != 0)
        return shell_complain(sh, "cannot change to '%s': %s", to, strerror(errno));
    return true;
}

static bool cmd_version(shell *sh, command_call *c) {
    (void)c;
    buf out = {0};
    buf_printf(&out, "kvasir %s\n", KVASIR_VERSION);
    shell_print(sh, &out);
    return true;
}

static const char *on_off(bool on) {
    return on ? "on" : "off";
}

static bool cmd_show(shell *sh, command_call *c) {
    const char *widths = sh->nwidths ? "" : "by content";
    for (int i = 0; i < sh->nwidths; i++)
        widths = arena_printf(c->mem, "%s%s%d", widths, i ? " " : "", sh->widths[i]);
    const struct {
        const char *name, *value;
    } lines[] = {
        {"mode", sh->mode->name},
        {"wrap", sh->wrap == WRAP_AUTO   ? "auto"
                 : sh->wrap == WRAP_OFF  ? "off"
                 : sh->wrap_columns == 0 ? "on"
                                         : arena_printf(c->mem, "%d", sh->wrap_columns)},
        {"headers", on_off(sh->headers)},
        {"types", on_off(sh->types_row)},
        {"nullvalue", sh->null_text ? sh->null_text : "by mode"},
        {"width", widths},
        {"maxrows",
         sh->max_rows < 0 ? "auto" : arena_printf(c->mem, "%lld", (long long)sh->max_rows)},
        {"pager", on_off(sh->pager)},
        {"output", sh->out.path ? sh->out.path : "stdout"},
        {"timer", on_off(sh->timer)},
        {"progress", on_off(sh->progress)},
        {"stats", on_off(sh->stats)},
        {"view", on_off(sh->want_view)},
        {"echo", on_off(sh->echo)},
        {"bail", on_off(!sh->keep_going)},
        {"database", sh->db_path ? sh->db_path : ":memory:"},
    };
    buf out = {0};
    for (size_t i = 0; i < BASE_COUNT(lines); i++)
        buf_printf(&out, "%10s: %s\n", lines[i].name, lines[i].value);
    shell_print(sh, &out);
    return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const command commands[] = {
    {"help", "\\? \\h .h .?", "[NAME ...]", "this list, or a page, command, function or setting",
     ARG_COMMAND, cmd_help},
    {"tables", "\\dt \\d .ls", "[PATTERN]", "list tables and views", ARG_TABLE, cmd_tables},
    {"schema", ".describe .desc \\sf", "[NAME]", "show CREATE statements (also \\d NAME)",
     ARG_TABLE, cmd_schema},
    {"views", "\\dv", "[PATTERN]", "list views", ARG_TABLE, cmd_views},
    {"indexes", "\\di .indices", "[PATTERN]", "list indexes", ARG_TABLE, cmd_indexes},
    {"functions", "\\df", "[PATTERN]", "list functions with their arguments", ARG_ANY,
     cmd_functions},
    {"settings", "\\dconfig", "[PATTERN]", "list settings (SET and SHOW) with their values",
     ARG_SETTING, cmd_settings},
    {"read", "\\i .source", "FILE", "run a script", ARG_FILE, cmd_read},
    {"ir", "\\ir", "FILE", "run a script, named relative to the script that this line is in",
     ARG_FILE, cmd_read_relative},
    {"import", "", "FILE TABLE", "load CSV, TSV or JSON into a table, created if missing", ARG_FILE,
     cmd_import},
    {"dump", "", "[TABLE ...]", "write tables, indexes and views as SQL", ARG_TABLE, cmd_dump},
    {"backup", ".save", "DIRECTORY", "copy the database, compacted", ARG_FILE, cmd_backup},
    {"check", "", "[DIRECTORY]", "look for damage in the database, or in the one in DIRECTORY",
     ARG_FILE, cmd_check},
    {"recover", "", "NEW [DIRECTORY]",
     "copy what is sound to NEW: of the database, or of DIRECTORY", ARG_FILE, cmd_recover},
    {"open", "\\c \\connect", "[DIRECTORY]", "open another database (none: in memory)", ARG_FILE,
     cmd_open},
    {"databases", "\\l \\conninfo", "", "show the directory of the database", ARG_NONE,
     cmd_databases},
    {"mode", "\\pset", "[MODE [TABLE]] [--wrap|--no-wrap]",
     "set the output mode, or list the modes", ARG_MODE, cmd_mode},
    {"expanded", "\\x", "[on|off]", "one value per line instead of a table", ARG_ONOFF,
     cmd_expanded},
    {"headers", ".header \\t", "[on|off]", "show column names", ARG_ONOFF, cmd_headers},
    {"types", "", "[on|off]", "show column types below the names", ARG_ONOFF, cmd_types},
    {"width", "", "[N ...]", "box column widths (0: by content, negative: right)", ARG_ANY,
     cmd_width},
    {"nullvalue", "", "[TEXT]", "text shown for NULL", ARG_ANY, cmd_nullvalue},
    {"maxrows", "", "[N]", "limit the rows of a box (0: all)", ARG_ANY, cmd_maxrows},
    {"pager", "", "[on|off]", "show long results in $PAGER", ARG_ONOFF, cmd_pager},
    {"output", "\\o", "[FILE|'|COMMAND']", "write results to a file or program (none: screen)",
     ARG_FILE, cmd_output},
    {"once", "\\g", "FILE|'|COMMAND'", "write the next result to a file or program", ARG_FILE,
     cmd_once},
    {"timer", "\\timing", "[on|off]", "show the time of each statement", ARG_ONOFF, cmd_timer},
    {"progress", "", "[on|off]", "show progress of LLM statements", ARG_ONOFF, cmd_progress},
    {"stats", "", "[on|off]", "show figures of the last statement, or of each", ARG_ONOFF,
     cmd_stats},
    {"explain", "", "[tokens|prompt|tree|analyze] [SQL]",
     "show the plan of SQL or of the last statement, or its prompts", ARG_SQL, cmd_explain},
    {"compare", "", "[--limit SECONDS] [SQL]", "time a query under each strategy", ARG_SQL,
     cmd_compare},
    {"try", "", "[--rows N] [--truth COLUMN] [--calibrate] [--confusion] [SELECT ...;]",
     "compare forms of a question on a sample of rows, with the truth if known", ARG_SELECT,
     cmd_try},
    {"agree", "", "TRUTH ANSWER [SELECT ...;]",
     "compare two columns of a SELECT, or of the last statement", ARG_SELECT, cmd_agree},
    {"view", "\\view", "[on|off|last|record FILE|SQL]",
     "show LLM statements in the live view, the last one again, or record the next", ARG_SQL,
     cmd_view},
    {"model", "", "[NAME|FILE]", "show the model in use, or use another", ARG_FILE, cmd_model},
    {"tokens", "", "TEXT", "show the tokens of a text", ARG_TEXT, cmd_tokens},
    {"cache", "", "[clear [kv|answers]]", "show what the cache holds, or clear it", ARG_ANY,
     cmd_cache},
    {"set", "\\set .param .parameter", "[NAME=VALUE]",
     "set the variable :NAME of SQL, or list variables", ARG_TEXT, cmd_set},
    {"print", "\\echo \\qecho", "TEXT", "print a text", ARG_TEXT, cmd_print},
    {"echo", "", "[on|off]", "print statements before they run", ARG_ONOFF, cmd_echo},
    {"bail", "", "[on|off]", "stop scripts at the first error", ARG_ONOFF, cmd_bail},
    {"history", "\\s", "[N]", "list the latest statements", ARG_ANY, cmd_history},
    {"edit", "\\e", "", "edit the last statement in $EDITOR and run it", ARG_NONE, cmd_edit},
    {"shell", "\\! .! .system", "COMMAND", "run a system command", ARG_TEXT, cmd_shell},
    {"cd", "\\cd", "[DIRECTORY]", "change the working directory", ARG_FILE, cmd_cd},
    {"show", "", "", "show the shell's settings", ARG_NONE, cmd_show},
    {"version", ".about", "", "show the version", ARG_NONE, cmd_version},
    {"quit", "\\q .exit .q", "[CODE]", "leave (also Ctrl-D)", ARG_ANY, cmd_quit},
};

const command *commands_table(size_t *count) {
    *count = BASE_COUNT(commands);
    return commands;
}

bool words_have(const char *words, str wanted) {
    for (str rest = str_from(words); rest.n;)
        if (str_equal_nocase(wanted, str_split_next(&rest, ' ')))
            return true;
    return false;
}

const command *command_find(str typed) {
    if (typed.n < 2)
        return NULL;
    while (typed.n > 2 && typed.p[0] == '\\' && typed.p[typed.n - 1] == '+')
        typed.n--; /* psql's suffix for more detail, as in \d+ */
    str bare = {typed.p + 1, typed.n - 1};
    const command *by_prefix = NULL;
    int prefixes = 0;
    for (size_t i = 0; i < BASE_COUNT(commands); i++) {
        const command *c = &commands[i];
        if ((typed.p[0] == '.' && str_equal_nocase(bare, str_from(c->name))) ||
            words_have(c->aliases, typed))
            return c;
        str head = {c->name, BASE_MIN(strlen(c->name), bare.n)};
        if (typed.p[0] == '.' && bare.n >= 2 && str_equal_nocase(bare, head)) {
            by_prefix = c;
            prefixes++;
        }
    }
    return prefixes == 1 ? by_prefix : NULL;
}

/* ---- running one ----------------------------------------------------------------------------- */

static const char *nearest_command(str typed, arena *mem) {
    const char *names[BASE_COUNT(commands) * 4];
    size_t n = 0;
    char sign = *typed.p;
    for (size_t i = 0; i < BASE_COUNT(commands); i++) {
        names[n++] = arena_printf(mem, "%c%s", sign, commands[i].name);
        for (str rest = str_from(commands[i].aliases); rest.n && n < BASE_COUNT(names);) {
            str alias = str_split_next(&rest, ' ');
            if (*alias.p == sign)
                names[n++] = arena_strndup(mem, alias.p, alias.n);
        }
    }
    /* Try the name with the other sign: \tables means .tables, .x means \x. A name of one or two
     * letters after a backslash is too short for a guess. */
    char *other = arena_strndup(mem, typed.p, typed.n);
    *other = sign == '.' ? '\\' : '.';
    const command *meant = sign == '.' || typed.n > 3 ? command_find(str_from(other)) : NULL;
    const char *near = meant ? other : typed.n > 2 ? str_nearest(typed, names, n) : NULL;
    for (size_t i = 0; near != NULL && i < BASE_COUNT(commands); i++)
        if (strcmp(near + 1, commands[i].name) == 0 || (meant == &commands[i] && sign != '.'))
            return arena_printf(mem, ".%s", commands[i].name);
    return near;
}

bool command_unknown(shell *sh, str typed) {
    arena *mem = arena_new();
    const char *instead = foreign_command(typed),
               *near = instead ? NULL : nearest_command(typed, mem);
    if (instead)
        shell_complain(sh, "unknown command '%.*s'; %s", (int)typed.n, typed.p, instead);
    else if (near)
        shell_complain(sh, "unknown command '%.*s'; did you mean %s?", (int)typed.n, typed.p, near);
    else
        shell_complain(sh, "unknown command '%.*s'; .help lists the commands", (int)typed.n,
                       typed.p);
    arena_free(mem);
    return false;
}

/* Splits c->rest at blanks outside of '…' and "…"; a doubled quote within quotes is one quote. */
static void split(command_call *c) {
    const char *p = c->rest.p, *end = c->rest.p + c->rest.n;
    c->argv = ARENA_ARRAY(c->mem, char *, c->rest.n / 2 + 2);
    while (p < end) {
        if (isspace((unsigned char)*p)) {
            p++;
            continue;
        }
        char *word = arena_alloc(c->mem, (size_t)(end - p) + 1), *to = word;
        char quote = 0;
        for (; p < end && (quote || !isspace((unsigned char)*p)); p++)
            if (quote && *p == quote && p + 1 < end && p[1] == quote)
                *to++ = *p++;
            else if (quote && *p == quote)
                quote = 0;
            else if (!quote && (*p == '\'' || *p == '"'))
                quote = *p;
            else
                *to++ = *p;
        *to = 0;
        c->argv[c->argc++] = word;
    }
}

/* Replaces ~ and ~/… as sh does. */
static void expand_home(command_call *c) {
    const char *home = getenv("HOME");
    for (int i = 0; i < c->argc && home != NULL; i++)
        if (c->argv[i][0] == '~' && (c->argv[i][1] == '/' || c->argv[i][1] == 0))
            c->argv[i] = arena_printf(c->mem, "%s%s", home, c->argv[i] + 1);
}

/* Prints an error and returns false if there are more words than the usage names. Options do not
 * count; the error names the last option, because the surplus word may be its value. */
static bool count_words(shell *sh, const command *k, const command_call *c) {
    int most = *k->usage != 0, given = 0;
    const char *option = NULL;
    for (const char *p = k->usage; *p; p++)
        most += *p == ' ';
    bool program = c->rest.n && *c->rest.p == '|';
    if (k->arg == ARG_SQL || k->arg == ARG_SELECT || k->arg == ARG_TEXT ||
        strstr(k->usage, "...") != NULL || program)
        return true;
    for (int i = 0; i < c->argc; i++) {
        bool is_option = c->argv[i][0] == '-';
        option = is_option ? c->argv[i] : option;
        given += !is_option;
        if (given > most)
            return shell_complain(sh, "unexpected argument '%s'; usage: %s%s%s",
                                  option ? option : c->argv[i], c->name, most ? " " : "", k->usage);
    }
    return true;
}

/* Returns the command for a psql command whose meaning depends on its arguments, such as \d (lists
 * tables), \d NAME (describes one) and \pset OPTION VALUE. NULL after an error. */
static const command *psql_command(shell *sh, const command *found, command_call *c) {
    static const struct {
        const char *option, *command;
    } options[] = {{"format", ".mode"},
                   {"null", ".nullvalue"},
                   {"pager", ".pager"},
                   {"expanded", ".expanded"},
                   {"tuples_only", "\\t"}};
    bool pset = strcmp(c->name, "\\pset") == 0;
    if (strcmp(c->name, "\\d") == 0 && c->argc)
        return command_find(STR(".schema"));
    if (pset && c->argc == 0)
        return command_find(STR(".show"));
    for (size_t i = 0; i < BASE_COUNT(options) && pset; i++) {
        if (strcmp(c->argv[0], options[i].option) != 0)
            continue;
        c->name = options[i].command;
        c->argv++;
        c->argc--;
        return command_find(str_from(c->name));
    }
    if (pset && c->argc > 1) {
        shell_complain(
            sh, "unknown \\pset option '%s'; known: format, null, pager, expanded, tuples_only",
            c->argv[0]);
        return NULL;
    }
    return found;
}

str command_select(str text) {
    for (size_t at = 0, end; at < text.n; at = end + 1) {
        end = at;
        while (end < text.n && !isspace((unsigned char)text.p[end]))
            end++;
        str word = {text.p + at, end - at};
        if (str_equal_nocase(word, STR("SELECT")) || str_equal_nocase(word, STR("WITH")))
            return (str){word.p, text.n - at};
    }
    return (str){0};
}

bool command_line(shell *sh, str line) {
    line = str_trim(line, STR_SPACES);
    size_t n = 1;
    while (n < line.n && !isspace((unsigned char)line.p[n]) && line.p[n] != ';')
        n++;
    if (n > 2 && line.p[1] == '!') /* \!ls without a blank */
        n = 2;
    str typed = {line.p, n};
    const command *found = command_find(typed);
    if (found == NULL)
        return command_unknown(sh, typed);
    command_call call = {.mem = arena_new()};
    call.name = arena_strndup(call.mem, typed.p, typed.n);
    call.rest = str_trim((str){line.p + n, line.n - n}, STR_SPACES);
    if (found->arg != ARG_TEXT && found->arg != ARG_SQL) {
        /* A ';' at the end, as in SQL, is not part of the arguments. */
        while (call.rest.n && call.rest.p[call.rest.n - 1] == ';')
            call.rest.n--;
        call.rest = str_trim(call.rest, STR_SPACES);
    } else if (call.rest.n == 1 && call.rest.p[0] == ';') {
        call.rest.n = 0;
    }
    split(&call);
    found = psql_command(sh, found, &call);
    if (found && found->arg == ARG_FILE)
        expand_home(&call);
    bool ok = found && count_words(sh, found, &call) && found->run(sh, &call);
    if ((fflush(stdout) != 0 || ferror(stdout)) && sh->out.error == 0)
        sh->out.error = errno;
    arena_free(call.mem);
    return shell_check_output(sh) && ok;
}
