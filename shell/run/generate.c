/*
 * generate.c - writes the man page and the completion scripts of bash and zsh (--generate), which
 * `cmake --install` puts in their places.
 *
 * Invariant: names and their meanings come from the tables that parse and explain them: options,
 * output modes, commands, settings, pages of .help. This file has only the texts of the man page
 * itself.
 */
#include <string.h>

#include "run_int.h"

/* ---- the man page (man(7)) ------------------------------------------------------------------- */

/* Appends text so that troff prints it as it is. `fill`: of a paragraph, whose lines are joined. */
static void man_text(buf *out, const char *text, bool fill) {
    bool start = out->n == 0 || out->p[out->n - 1] == '\n';
    for (const char *p = text; *p; p++) {
        if (start && (*p == '.' || *p == '\''))
            buf_append_c(out, "\\&");
        start = *p == '\n';
        if (*p == '\\')
            buf_append_c(out, "\\e");
        else if (*p == '-')
            buf_append_c(out, "\\-");
        else if (*p == '\'' && !fill)
            buf_append_c(out, "\\(aq");
        else if (*p == '~')
            buf_append_c(out, "\\(ti");
        else if (*p == '^')
            buf_append_c(out, "\\(ha");
        else if (*p == '`')
            buf_append_c(out, "\\(ga");
        else
            buf_append_char(out, *p);
    }
}

/* Appends a paragraph with a tag: a bold name, an argument in italics, and what they mean. */
static void man_entry(buf *out, const char *name, const char *argument, const char *text) {
    buf_append_c(out, ".TP\n\\fB");
    man_text(out, name, false);
    buf_append_c(out, "\\fR");
    if (argument && *argument) {
        buf_append_c(out, " \\fI");
        man_text(out, argument, false);
        buf_append_c(out, "\\fR");
    }
    buf_append_char(out, '\n');
    man_text(out, text, true);
    buf_append_char(out, '\n');
}

static void man_options(buf *out) {
    size_t n;
    const option *options = args_options(&n);
    buf_append_c(out, ".SH OPTIONS\n");
    for (size_t i = 0; i < n; i++)
        if (options[i].help)
            man_entry(out, options[i].name, options[i].argument, options[i].help);
    buf_append_c(out, ".SS Output\n");
    const format_mode *modes = format_modes(&n);
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "--%s", modes[i].name);
        man_entry(out, name, NULL, modes[i].help);
    }
}

static void man_commands(buf *out) {
    size_t n;
    const command *commands = commands_table(&n);
    buf_append_c(out,
                 ".SH COMMANDS\nSQL statements end with \\(oq;\\(cq. A command takes one line, "
                 "without \\(oq;\\(cq unless shown.\n");
    for (size_t i = 0; i < n; i++) {
        buf text = {0};
        char name[32];
        snprintf(name, sizeof name, ".%s", commands[i].name);
        buf_append_c(&text, commands[i].help);
        if (*commands[i].aliases)
            buf_printf(&text, "; also %s", commands[i].aliases);
        buf_append_char(&text, 0);
        man_entry(out, name, commands[i].usage, text.p);
        buf_free(&text);
    }
}

static void man_settings(buf *out) {
    size_t n;
    const setting_info *known = settings_table(&n);
    buf_append_c(out, ".SH SETTINGS\n");
    for (size_t i = 0; i < n; i++) {
        buf text = {0};
        buf_printf(&text, "%s: ", known[i].help);
        help_setting_values(&known[i], &text);
        if (*known[i].standard)
            buf_printf(&text, "; default %s", known[i].standard);
        buf_append_char(&text, 0);
        man_entry(out, known[i].name, NULL, text.p);
        buf_free(&text);
    }
}

/* The pages of .help: each a section, its lines as they are. */
static void man_pages(buf *out) {
    size_t n;
    const help_page *pages = help_pages(&n);
    for (size_t i = 0; i < n; i++) {
        buf text = {0};
        help_page_print(&pages[i], &text);
        buf_append_char(&text, 0);
        buf_append_c(out, ".SH ");
        for (const char *p = pages[i].title; *p; p++)
            buf_append_char(out, (char)(*p >= 'a' && *p <= 'z' ? *p - 'a' + 'A' : *p));
        buf_append_c(out, "\n.nf\n");
        man_text(out, text.p, false);
        buf_append_c(out, ".fi\n");
        buf_free(&text);
    }
}

static void generate_man(buf *out) {
    static const char *const variables[][2] = {
        {"KVASIR_MODEL", "the model, unless --model names one"},
        {"KVASIR_HISTORY", "the file of the statements that were typed"},
        {"PAGER, VISUAL, EDITOR", "programs that .pager and .edit run"},
        {"NO_COLOR", "if set, no colour"},
        {"TMPDIR", "folder of temporary files"},
    };
    static const char *const files[][2] = {
        {"DATABASE/tables.mdb, DATABASE/cache.mdb", "tables, and the cache, which may be deleted"},
        {"${XDG_DATA_HOME:-~/.local/share}/kvasir/models", "models"},
        {"${XDG_CACHE_HOME:-~/.cache}/kvasir", "the cache of databases in memory"},
        {"${XDG_CONFIG_HOME:-~/.config}/kvasir/init.sql", "read at each start of a prompt"},
        {"${XDG_STATE_HOME:-~/.local/state}/kvasir/history", "statements that were typed"},
    };
    buf_printf(out,
               ".\\\" Generated by kvasir --generate man.\n.TH KVASIR 1 \"\" \"kvasir %s\" \"User "
               "Commands\"\n.SH NAME\nkvasir \\- a SQL shell whose queries can call a language "
               "model\n.SH SYNOPSIS\n",
               KVASIR_VERSION);
    man_text(out, args_synopsis, true);
    buf_append_c(out, "\n.SH DESCRIPTION\n");
    man_text(out, args_database, true);
    buf_append_c(out,
                 "\nThe first argument that is not an option is the database, the second is SQL. "
                 "Without SQL,\n\\-c or \\-f, and with a terminal, kvasir prompts for statements; "
                 "without a terminal it reads them\nfrom standard input.\n");
    man_options(out);
    man_commands(out);
    man_pages(out);
    man_settings(out);
    buf_append_c(out, ".SH EXIT STATUS\n");
    man_text(out, args_exit_codes, true);
    buf_append_c(out, "\n.SH ENVIRONMENT\n");
    for (size_t i = 0; i < BASE_COUNT(variables); i++)
        man_entry(out, variables[i][0], NULL, variables[i][1]);
    buf_append_c(out, ".SH FILES\n");
    for (size_t i = 0; i < BASE_COUNT(files); i++)
        man_entry(out, files[i][0], NULL, files[i][1]);
    buf_append_c(out, ".SH SEE ALSO\n\\fBsqlite3\\fR(1), \\fBpsql\\fR(1)\n");
}

/* ---- completion ------------------------------------------------------------------------------ */

static bool takes_file(const option *o) {
    return strcmp(o->argument, "FILE") == 0 || strcmp(o->argument, "PATH") == 0;
}

/* Appends the words that an option's value may be, separated by blanks: those of 'a|b|c', and after
 * an option that takes SQL the commands. */
static void value_words(const option *o, buf *out) {
    size_t n;
    const command *commands = commands_table(&n);
    if (o->kind == OPTION_COMMAND)
        for (size_t i = 0; i < n; i++)
            buf_printf(out, "%s.%s", i ? " " : "", commands[i].name);
    else if (strchr(o->argument, '|'))
        for (const char *p = o->argument; *p; p++)
            buf_append_char(out, *p == '|' ? ' ' : *p);
}

static void generate_bash(buf *out) {
    size_t n, nmodes;
    const option *options = args_options(&n);
    const format_mode *modes = format_modes(&nmodes);
    buf_append_c(out,
                 "# Completion of kvasir for bash; generated by kvasir --generate bash.\n"
                 "_kvasir() {\n"
                 "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
                 "    if [[ $cur == = ]]; then\n"
                 "        cur=\n"
                 "    elif [[ $prev == = ]]; then\n"
                 "        prev=${COMP_WORDS[COMP_CWORD-2]}\n"
                 "    fi\n"
                 "    case $prev in\n");
    for (size_t i = 0; i < n; i++) {
        buf words = {0};
        if (options[i].argument)
            value_words(&options[i], &words);
        if (words.n)
            buf_printf(out, "    %s) words='%.*s' ;;\n", options[i].name, (int)words.n, words.p);
        buf_free(&words);
    }
    buf_append_c(out, "    *) [[ $cur == -* ]] && words='");
    for (size_t i = 0; i < n; i++)
        if (options[i].help)
            buf_printf(out, "%s ", options[i].name);
    for (size_t i = 0; i < nmodes; i++)
        buf_printf(out, "--%s%s", modes[i].name, i + 1 < nmodes ? " " : "");
    /* without a match, -o default completes the names of files */
    buf_append_c(out, "' ;;\n"
                      "    esac\n"
                      "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                      "}\n"
                      "complete -o default -F _kvasir kvasir\n");
}

/* Appends a text within '…' of zsh, as the description of an option: [ ] and : separate parts. */
static void zsh_text(buf *out, const char *text) {
    for (const char *p = text; *p; p++) {
        if (strchr("[]:\\", *p))
            buf_append_char(out, '\\');
        if (*p == '\'')
            buf_append_c(out, "'\\''");
        else
            buf_append_char(out, *p);
    }
}

static void zsh_option(buf *out, const option *o) {
    bool repeats =
        o->kind == OPTION_COMMAND || o->kind == OPTION_FILE || o->kind == OPTION_VARIABLE;
    buf words = {0};
    buf_printf(out, "        '%s%s%s[", repeats ? "*" : "", o->name,
               o->argument && o->name[1] == '-' ? "=" : "");
    zsh_text(out, o->help);
    buf_append_char(out, ']');
    if (o->argument) {
        value_words(o, &words);
        buf_printf(out, ":%s:", strchr(o->argument, '|') ? "what" : o->argument);
        if (words.n)
            buf_printf(out, "(%.*s)", (int)words.n, words.p);
        else if (takes_file(o))
            buf_append_c(out, "_files");
    }
    buf_append_c(out, "' \\\n");
    buf_free(&words);
}

static void generate_zsh(buf *out) {
    size_t n;
    const option *options = args_options(&n);
    buf_append_c(out, "#compdef kvasir\n"
                      "# Completion of kvasir for zsh; generated by kvasir --generate zsh.\n"
                      "_kvasir() {\n"
                      "    _arguments -S \\\n");
    for (size_t i = 0; i < n; i++)
        if (options[i].help)
            zsh_option(out, &options[i]);
    const format_mode *modes = format_modes(&n);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "        '--%s[", modes[i].name);
        zsh_text(out, modes[i].help);
        buf_append_c(out, "]' \\\n");
    }
    buf_append_c(out,
                 "        '1:database:_files -/' '2:SQL:'\n"
                 "}\n"
                 "if [ \"$funcstack[1]\" = _kvasir ]; then _kvasir \"$@\"; else compdef _kvasir "
                 "kvasir; fi\n");
}

bool generate(const char *what, buf *out) {
    static const struct {
        const char *name;
        void (*write)(buf *out);
    } kinds[] = {{"man", generate_man}, {"bash", generate_bash}, {"zsh", generate_zsh}};
    for (size_t i = 0; i < BASE_COUNT(kinds); i++)
        if (strcmp(what, kinds[i].name) == 0) {
            kinds[i].write(out);
            return true;
        }
    return false;
}
