/*
 * confirm.c - estimates the cost of an LLM statement before it runs: prints a line about a long
 * statement, asks whether to run it, and counts the tokens of other strategies for the live view.
 *
 * Invariant: only a person at a terminal sees estimates and questions. A statement that cannot be
 * estimated is run: its own error says what is wrong.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shell_int.h"

/* The estimate is printed if the statement is expected to take at least this long, or to cost at
 * least confirm_cost. */
enum { LONG_MS = 60 * 1000 };

/* Estimates a statement; `count` is that of stmt_estimate. NULL: stopped by Ctrl-C. */
static const exec_estimate *estimate(shell *sh, stmt *s, bool count) {
    err e = {.pos = -1};
    stmt_estimate(s, count);
    if (shell_wait(sh, s, NULL, NULL, NULL, &e) != ERR_CANCELLED)
        return stmt_estimated(s);
    shell_note(sh, "the statement was stopped before it began");
    return NULL;
}

static void print_estimate(shell *sh, const exec_estimate *x) {
    buf line = {0};
    buf_append_c(&line, "about ");
    progress_duration(&line, x->cost_ms / 1000);
    buf_append_c(&line, ": ");
    buf_append_count(&line, (uint64_t)round(x->distinct_inputs));
    buf_append_c(&line, " " WORDS_INPUTS ", ");
    buf_append_count(&line, (uint64_t)round(x->computed_tokens));
    const settings *now = db_settings(sh->db);
    bool kept = now->cache && now->answer_cache;
    buf_append_c(&line, " tokens");
    if (x->money > 0) {
        buf_append_c(&line, ", ");
        buf_append_money(&line, x->money, x->currency);
    }
    buf_append_c(&line, kept ? "; Ctrl-C keeps the answers" : "");
    shell_note(sh, "%s", line.p);
    buf_free(&line);
}

static bool ask(const char *question) {
    char answer[16] = {0};
    printf("%s [y/N] ", question);
    fflush(stdout);
    ssize_t n = read(STDIN_FILENO, answer, sizeof answer - 1);
    if (n <= 0)
        putchar('\n');
    return n > 0 && (answer[0] == 'y' || answer[0] == 'Y');
}

bool estimate_confirm(shell *sh, stmt *s) {
    if (!sh->term.interactive || sh->where != NULL)
        return true;
    const exec_estimate *x = estimate(sh, s, false);
    double most = db_settings(sh->db)->confirm_cost;
    bool go = x != NULL;
    if (go && (x->cost_ms >= LONG_MS || (most > 0 && x->money >= most))) {
        print_estimate(sh, x);
        if (db_settings(sh->db)->confirm)
            go = ask("run it?");
        if (!go)
            shell_note(sh, "not run");
    }
    return go;
}

bool endpoints_confirm(shell *sh) {
    const char *wanted = db_refused_endpoints(sh->db);
    err e = {.pos = -1};
    if (!sh->term.interactive || sh->where != NULL || *wanted == '\0')
        return false;
    char *pairs = mem_strdup(wanted);
    bool allowed = true;
    for (str rest = str_from(pairs); rest.n > 0 && allowed;) {
        str key = str_split_next(&rest, '\n'), origin = str_split_next(&key, ',');
        buf question = {0};
        buf_printf(&question, "%s wants to send rows to %.*s%s%.*s. Allow?",
                   sh->db_path ? sh->db_path : "this database", (int)origin.n, origin.p,
                   key.n > 0 ? " with the key of " : "", (int)key.n, key.p);
        allowed = ask(question.p);
        buf_free(&question);
    }
    if (allowed) {
        db_allow_endpoints(sh->db, pairs);
        if (db_keep_endpoints(pairs, &e) != 0)
            shell_note(sh, "%s", e.message);
    }
    free(pairs);
    return allowed;
}

bool estimate_baselines(shell *sh, stmt *s, view_state *v) {
    const exec_estimate *x = estimate(sh, s, true);
    v->nbaselines = 0;
    for (int k = 0; x && k < x->nstrategies; k++)
        view_add_baseline(v, &x->strategies[k]);
    return x != NULL;
}
