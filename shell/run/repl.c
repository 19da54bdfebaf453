/*
 * repl.c - the prompt: reads lines, runs the statements and commands in them, keeps the history.
 *
 * Invariant: a statement is one entry of the history, whatever the number of its lines, and can be
 * edited as one: Up on its first row joins it with its earlier lines. Ctrl-C discards the
 * statement. Only Ctrl-D, .quit, SIGTERM, SIGHUP and closing the terminal end the shell.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "edit/edit_int.h"
#include "run_int.h"

typedef struct repl {
    shell *sh;
    history_list history;
    editor *ed;
    buf pending;         /* lines entered, each with its newline; not yet a whole statement */
    buf line;            /* the line that was read last */
    int idle_interrupts; /* number of times in a row that Ctrl-C was pressed at an empty prompt */
} repl;

/* Returns the number of screen rows of lines, each after a prompt of `indent` columns and ended by
 * a newline. Sets *exact as editor_rows does. */
static int rows_of_lines(str text, int indent, int columns, bool *exact) {
    int rows = 0;
    *exact = true;
    while (text.n) {
        bool line_exact;
        rows += editor_rows(str_split_next(&text, '\n'), indent, columns, &line_exact);
        *exact = *exact && line_exact;
    }
    return rows;
}

/* Returns the prompt of a statement's first line: with * in a transaction, ! if it can only be
 * rolled back. */
static const char *first_prompt(const shell *sh) {
    if (!sh->db || sh->lingering || !db_in_transaction(sh->db))
        return "kvasir> ";
    return db_transaction_failed(sh->db) ? "kvasir!> " : "kvasir*> ";
}

/* Draws the highlighted statement over the typed text, which a newline follows. Does nothing if the
 * rows that the text takes on the screen are not known exactly. */
static void echo_highlighted(repl *r, str text, const char *first, const char *next) {
    if (!r->sh->term.color_out || text.p[0] == '.' || text.p[0] == '\\')
        return;
    int columns, rows;
    bool exact;
    term_size(&columns, &rows);
    int used = rows_of_lines((str){text.p, text.n + 1}, (int)strlen(first), columns, &exact);
    if (!exact || used >= rows)
        return;
    buf out = {0}, shown = {0};
    highlight(text, true, &shown);
    buf_printf(&out, "\033[%dA\r\033[J%s%s%s", used, style_on(true, STYLE_PROMPT), first,
               style_off(true, STYLE_PROMPT));
    for (size_t i = 0; i < shown.n; i++) {
        buf_append_char(&out, shown.p[i]);
        if (shown.p[i] == '\n')
            buf_printf(&out, "%s%s%s", style_on(true, STYLE_DIM), next, style_off(true, STYLE_DIM));
    }
    buf_append_char(&out, '\n');
    fwrite(out.p, 1, out.n, stdout);
    fflush(stdout);
    buf_free(&out);
    buf_free(&shown);
}

/* Runs quit, exit and help typed without a dot. */
static bool bare_word(repl *r, str line) {
    static const struct {
        const char *word, *command;
    } words[] = {
        {"quit", ".quit"}, {"exit", ".quit"}, {"help", ".help"}, {"?", ".help"}, {"q", ".quit"}};
    while (line.n && strchr(" ;\n", line.p[line.n - 1]))
        line.n--;
    for (size_t i = 0; i < BASE_COUNT(words); i++) {
        if (str_equal_nocase(line, str_from(words[i].word))) {
            command_line(r->sh, str_from(words[i].command));
            return true;
        }
    }
    return false;
}

/* True if the text ends inside of a literal, quoted name or comment. */
static bool within_token(str text) {
    token_class class = TOKEN_BLANK;
    for (size_t at = 0, n; at < text.n && (n = sql_token(text, at, &class)) > 0;)
        at += n;
    return class == TOKEN_BAD;
}

/* Runs a command typed on a line of its own within a statement; the statement continues after the
 * command, as in psql. psql's \g, with or without a file, ends the statement: the line becomes `;`
 * and the result is false. */
static bool command_within(repl *r) {
    str line = buf_str(&r->line);
    size_t n = 0;
    while (n < line.n && !strchr(" \t;\n", line.p[n]))
        n++;
    if (n < 2 || !strchr(".\\", line.p[0]) || command_find((str){line.p, n}) == NULL ||
        within_token(buf_str(&r->pending)))
        return false;
    bool go = str_equal((str){line.p, n}, STR("\\g"));
    bool bare = strspn(line.p + n, " \t;") == line.n - n;
    bool ok = (go && bare) || command_line(r->sh, line);
    if (!go || !ok)
        return true;
    buf_clear(&r->line);
    buf_append_char(&r->line, ';');
    return false;
}

static void remember(repl *r, str text) {
    if (llm_remote_may_hold_key(text))
        return;
    if (history_add(&r->history, text))
        editor_remember(r->ed, r->history.lines[r->history.count - 1]);
}

/* Runs the complete statements and commands in `pending` and keeps the rest for more lines. */
static void run_pending(repl *r, const char *first, const char *next) {
    size_t length = 0, used = 0;
    str text = buf_str(&r->pending);
    for (size_t at = 0; at < text.n;) {
        piece_kind kind = script_piece((str){text.p + at, text.n - at}, false, &length);
        if (kind == PIECE_PARTIAL)
            break;
        at += length;
        /* A space before a statement stays part of it: the history then omits the statement. */
        if (kind != PIECE_BLANK || at == text.n)
            used = at;
    }
    if (used == 0)
        return;
    str entry = {text.p, used};
    while (entry.n && strchr(" \t\n", entry.p[entry.n - 1]))
        entry.n--;
    if (entry.n && used == text.n)
        echo_highlighted(r, (str){text.p, text.n - 1}, first, next);
    if (entry.n)
        remember(r, entry);
    /* Removed from `pending` first, since a command may run scripts or end the shell. */
    buf whole = r->pending;
    r->pending = (buf){0};
    buf_append(&r->pending, whole.p + used, whole.n - used);
    signals_clear();
    size_t ran;
    script_prompt(r->sh, (str){whole.p, used}, &ran);
    buf_free(&whole);
    editor_forget_names(r->ed);
    while (r->pending.n && strchr(" \t\n", r->pending.p[0]) && r->pending.p[0])
        memmove(r->pending.p, r->pending.p + 1, --r->pending.n);
}

/* Clears the screen rows of the lines in `pending`, so that all lines can be edited together. */
static void erase_rows_before(const repl *r, int indent) {
    int columns, rows;
    bool exact;
    term_size(&columns, &rows);
    int up = rows_of_lines(buf_str(&r->pending), indent, columns, &exact);
    printf("\033[%dA\r\033[J", BASE_MIN(up, rows - 1));
    fflush(stdout);
}

static void interrupted(repl *r) {
    bool idle = r->pending.n == 0 && r->line.n == 0;
    buf_clear(&r->pending);
    r->idle_interrupts = idle ? r->idle_interrupts + 1 : 0;
    if (r->idle_interrupts >= 2)
        shell_note(r->sh, "press Ctrl-D or type .quit to quit");
}

static void greet(const shell *sh) {
    bool color = sh->term.color_out;
    printf("%skvasir %s%s  %s.help%s lists commands, %sCtrl-D%s leaves%s\n",
           style_on(color, STYLE_BOLD), KVASIR_VERSION, style_off(color, STYLE_BOLD),
           style_on(color, STYLE_HINT), style_off(color, STYLE_HINT), style_on(color, STYLE_HINT),
           style_off(color, STYLE_HINT),
           sh->db_path ? "" : "; data is in memory, .open DIR opens a database");
    fflush(stdout);
}

static void loop(repl *r) {
    shell *sh = r->sh;
    buf prefill = {0};
    while (!sh->quit && !signals_terminated()) {
        const char *first = first_prompt(sh);
        const char *next = strlen(first) == 9 ? "    ...> " : "   ...> ";
        const char *prompt = r->pending.n ? next : first;
        editor_feed(r->ed, buf_str(&sh->typed_ahead));
        buf_clear(&sh->typed_ahead);
        edit_status status =
            editor_read(r->ed, prompt, buf_str(&r->pending), buf_str(&prefill), &r->line);
        buf_clear(&prefill);
        if (status == EDIT_BACK) {
            erase_rows_before(r, (int)strlen(prompt));
            buf_append_str(&prefill, buf_str(&r->pending));
            buf_append_str(&prefill, buf_str(&r->line));
            while (prefill.n && r->line.n == 0 && prefill.p[prefill.n - 1] == '\n')
                prefill.n--;
            buf_clear(&r->pending);
            continue;
        }
        if (status == EDIT_END) {
            putchar('\n');
            if (r->pending.n == 0)
                break;
            buf_clear(&r->pending);
            continue;
        }
        if (status == EDIT_INTERRUPTED) {
            interrupted(r);
            continue;
        }
        r->idle_interrupts = 0;
        if (r->pending.n == 0 && bare_word(r, buf_str(&r->line)))
            continue;
        if (r->pending.n && command_within(r))
            continue;
        buf_append_str(&r->pending, buf_str(&r->line));
        buf_append_char(&r->pending, '\n');
        run_pending(r, first, next);
    }
    buf_free(&prefill);
}

static bool run_typed(shell *sh, str text) {
    str entry = {text.p, text.n};
    while (entry.n && strchr(" \t\n", entry.p[entry.n - 1]))
        entry.n--;
    printf("%.*s\n", (int)entry.n, entry.p);
    remember(sh->repl, entry);
    size_t used;
    return script_prompt(sh, text, &used);
}

int repl_run(shell *sh) {
    repl r = {.sh = sh};
    history_open(&r.history, NULL);
    r.ed = editor_new(sh, &r.history);
    if (r.ed == NULL) {
        history_close(&r.history);
        bool ok = script_file(sh, "-");
        return sh->quit ? sh->quit_code : ok ? SHELL_OK : SHELL_FAILED;
    }
    sh->repl = &r;
    sh->history = &r.history;
    sh->run_typed = run_typed;
    greet(sh);
    loop(&r);
    sh->repl = NULL;
    sh->history = NULL;
    sh->run_typed = NULL;
    editor_free(r.ed);
    history_close(&r.history);
    buf_free(&r.pending);
    buf_free(&r.line);
    if (signals_terminated())
        return 128 + signals_terminated();
    return sh->quit_code;
}
