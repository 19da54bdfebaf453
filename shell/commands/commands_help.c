/*
 * commands_help.c - .help: the list of commands, and what is known about a name.
 *
 * Invariant: a name is looked up in all tables - pages, commands, settings, functions - and all that
 * is found is printed, since a name may be in several (`cache` is a command and a setting).
 */
#include <limits.h>
#include <string.h>

#include "commands_int.h"

/* Appends a command's entry of .help, wrapped to the screen, with its other names if they fit in
 * its last line. */
static void help_line(const shell *sh, const command *k, buf *out) {
    enum { LEFT = 26, INDENT = 2 + LEFT + 1, LEAST = 20 };
    bool color = sh->term.color_out;
    int columns = shell_columns(sh) ? shell_columns(sh) : INT_MAX;
    int width = (int)(1 + strlen(k->name) + 1 + strlen(k->usage));
    buf text = {0};
    format_wrapped(&text, str_from(k->help), BASE_MAX(columns - INDENT - 1, LEAST), INDENT);
    const char *last = text.n ? memrchr(text.p, '\n', text.n) : NULL;
    int used = last ? utf8_width((str){last + 1, text.n - (size_t)(last + 1 - text.p)})
                    : INDENT + utf8_width(buf_str(&text));
    bool aliases = *k->aliases && used + 2 + (int)strlen(k->aliases) < columns;
    buf_printf(out, "  %s.%s%s %s", style_on(color, STYLE_BOLD), k->name,
               style_off(color, STYLE_BOLD), k->usage);
    if (width > LEFT)
        buf_append_char(out, '\n');
    format_pad(out, width > LEFT ? INDENT : LEFT + 1 - width);
    buf_append_str(out, buf_str(&text));
    if (aliases)
        buf_printf(out, "  %s%s%s", style_on(color, STYLE_DIM), k->aliases,
                   style_off(color, STYLE_DIM));
    buf_append_char(out, '\n');
    buf_free(&text);
}

static bool list_commands(shell *sh) {
    bool color = sh->term.color_out;
    size_t n;
    buf out = {0};
    buf_append_c(&out,
                 "LLM('Is {review} positive?', review) RETURNS BOOLEAN asks about each row.\n\n");
    const help_page *pages = help_pages(&n);
    for (size_t i = 0; i < n; i++)
        buf_printf(&out, "  %s.help %-20s%s %s\n", style_on(color, STYLE_BOLD), pages[i].name,
                   style_off(color, STYLE_BOLD), pages[i].title);
    buf_printf(&out, "  %s.help%s NAME                 %s\n", style_on(color, STYLE_BOLD),
               style_off(color, STYLE_BOLD), "a command, function or setting");
    buf_append_c(
        &out,
        "\nSQL statements end with ';'. A command takes one line, without ';' unless shown:\n\n");
    const command *commands = commands_table(&n);
    for (size_t i = 0; i < n; i++)
        help_line(sh, &commands[i], &out);
    buf_append_c(&out, "\nCtrl-C stops a statement, Ctrl-D leaves.\n");
    shell_print(sh, &out);
    return true;
}

/* ---- one name -------------------------------------------------------------------------------- */

/* Appends the words of a|b|c as 'a', 'b' or 'c'; a text without | as it is. */
static void append_words(const char *words, buf *out) {
    const char *quote = strchr(words, '|') ? "'" : "";
    for (str rest = str_from(words); rest.n;) {
        str word = str_split_next(&rest, '|');
        buf_printf(out, "%s%.*s%s", quote, (int)word.n, word.p, quote);
        if (rest.n)
            buf_append_c(out, memchr(rest.p, '|', rest.n) ? ", " : " or ");
    }
}

void help_setting_values(const setting_info *s, buf *out) {
    bool automatic = strncmp(s->words, "auto|", strlen("auto|")) == 0;
    switch (s->type) {
    case SETTING_BOOLEAN:
        buf_append_c(out, "on or off");
        break;
    case SETTING_INTEGER:
        buf_printf(out, "a whole number%s%s", *s->words ? " of " : "", s->words);
        break;
    case SETTING_BYTES:
        buf_printf(out, "%sa size such as '512MB' or '2GB'", automatic ? "'auto' or " : "");
        break;
    case SETTING_REAL:
        if (strcmp(s->words, "0 to 1") == 0)
            buf_append_c(out, "a number from 0 to 1");
        else
            buf_printf(out, "a number%s%s", *s->words ? " of " : "", s->words);
        break;
    case SETTING_WORD:
    case SETTING_TEXT:
        append_words(s->words, out);
        break;
    }
}

static void help_setting(shell *sh, const setting_info *s, buf *out) {
    enum { LEFT = 11 };
    buf now = {0}, values = {0};
    err e = {.pos = -1};
    int columns = shell_columns(sh);
    bool quoted = s->type == SETTING_WORD || s->type == SETTING_TEXT || s->type == SETTING_BYTES;
    const char *quote = quoted ? "'" : "";
    const settings *all = sh->db ? db_settings(sh->db) : NULL;
    if (all == NULL || settings_show(all, str_from(s->name), &now, &e) != 0)
        buf_append_c(&now, s->standard);
    buf_printf(out, "SET %s = %s%.*s%s;    -- the current value\n", s->name, quote, (int)now.n,
               now.n ? now.p : "", quote);
    format_entry(out, STR("  about"), LEFT, str_from(s->help), columns);
    help_setting_values(s, &values);
    format_entry(out, STR("  values"), LEFT, buf_str(&values), columns);
    buf_printf(out, "  default  %s%s%s\n", quote, s->standard, quote);
    buf_free(&values);
    buf_free(&now);
}

/* Appends all that the tables have under a name; false: nothing. */
static bool help_name(shell *sh, str name, bool only_settings, buf *out) {
    size_t npages, ncommands, nsettings, nfunctions, before = out->n;
    const help_page *pages = help_pages(&npages), *page = NULL;
    const command *commands = commands_table(&ncommands);
    const setting_info *known = settings_table(&nsettings);
    const function_info *functions = sql_functions(&nfunctions);
    for (size_t i = 0; i < ncommands && !only_settings; i++)
        if (str_equal_nocase(name, str_from(commands[i].name)))
            help_line(sh, &commands[i], out);
    for (size_t i = 0; i < nsettings; i++)
        if (str_equal_nocase(name, str_from(known[i].name))) {
            buf_append_c(out, out->n > before ? "\n" : "");
            help_setting(sh, &known[i], out);
        }
    for (size_t i = 0; i < npages && !only_settings; i++)
        if (str_equal_nocase(name, str_from(pages[i].name)) || words_have(pages[i].also, name))
            page = &pages[i];
    for (size_t i = 0; i < nfunctions && !only_settings && page == NULL; i++)
        if (str_equal_nocase(name, str_from(functions[i].name)))
            format_entry(out, str_from(functions[i].signature), 37, str_from(functions[i].help),
                         shell_columns(sh));
    if (page && out->n > before)
        buf_append_char(out, '\n');
    if (page)
        help_page_print(page, out);
    return out->n > before;
}

static bool help_nothing(shell *sh, command_call *c, const char *name, bool only_settings) {
    size_t npages, ncommands, nsettings, nfunctions, n = 0;
    const help_page *pages = help_pages(&npages);
    const command *commands = commands_table(&ncommands);
    const setting_info *known = settings_table(&nsettings);
    const function_info *functions = sql_functions(&nfunctions);
    const char **names =
        ARENA_ARRAY(c->mem, const char *, npages + ncommands + nsettings + nfunctions);
    for (size_t i = 0; i < nsettings; i++)
        names[n++] = known[i].name;
    for (size_t i = 0; i < npages && !only_settings; i++)
        names[n++] = pages[i].name;
    for (size_t i = 0; i < ncommands && !only_settings; i++)
        names[n++] = commands[i].name;
    for (size_t i = 0; i < nfunctions && !only_settings; i++)
        names[n++] = functions[i].name;
    const char *near = str_nearest(str_from(name), names, n);
    if (only_settings)
        return near ? shell_complain(sh, "no setting \"%s\"; did you mean %s?", name, near)
                    : shell_complain(sh, "no setting \"%s\"; .settings lists all", name);
    return near ? shell_complain(sh, "no help on '%s'; did you mean .help %s?", name, near)
                : shell_complain(sh, "no help on '%s'; .help lists commands and pages", name);
}

bool cmd_help(shell *sh, command_call *c) {
    buf out = {0};
    if (c->argc == 0)
        return list_commands(sh);
    bool only_settings = c->argc > 1 && str_equal_nocase(str_from(c->argv[0]), STR("set"));
    const char *name = c->argv[only_settings ? 1 : 0];
    bool dotted = *name == '.' || *name == '\\';
    const command *one = NULL; /* also found by an alias or the beginning of its name */
    if (!only_settings)
        one = command_find(str_from(dotted ? name : arena_printf(c->mem, ".%s", name)));
    bool found = !dotted && help_name(sh, str_from(name), only_settings, &out);
    if (!found && one)
        found = help_name(sh, str_from(one->name), false, &out);
    shell_print(sh, &out);
    if (found)
        return true;
    return dotted ? command_unknown(sh, str_from(name)) : help_nothing(sh, c, name, only_settings);
}
