/*
 * query.c - runs SQL that the user did not type: without printing (shell_query) or for a command
 * (shell_sql). Also waits for a cancelled statement to end.
 */
#include "shell_int.h"

enum { TICK_MS = 100 };

bool shell_wait_for_previous(shell *sh, bool wait) {
    if (sh->lingering == NULL)
        return true;
    signals_clear();
    if (wait)
        shell_note(sh, "waiting for the previous statement to stop");
    err e = {0};
    const batch *b;
    for (stmt_status status = STMT_ROWS; status == STMT_ROWS || status == STMT_PENDING;) {
        status = stmt_next(sh->lingering, wait ? TICK_MS : 0, &b, &e);
        if (status == STMT_PENDING && (!wait || signals_interrupts()))
            return false;
    }
    stmt_free(sh->lingering);
    sh->lingering = NULL;
    return true;
}

bool shell_sql(shell *sh, const char *text) {
    place where = sh->where ? *sh->where : (place){0};
    buf before = sh->last_text;
    sh->last_text = (buf){0};
    where.text = (str){0};
    bool ok = shell_statement(sh, str_from(text), &where);
    buf_free(&sh->last_text);
    sh->last_text = before;
    return ok;
}

static void show_waiting(const shell *sh, stmt *s, progress_line *line) {
    exec_progress now;
    stmt_progress(s, &now);
    if (sh->progress && sh->term.err_tty && now.llm_running)
        progress_draw(line, &sh->term, &now);
}

int shell_wait(shell *sh, stmt *s, const char *label, shell_batch_fn fn, void *ctx, err *e) {
    progress_line line = {.label = label};
    stmt_status status;
    const batch *b;
    signals_watch(s);
    while ((status = stmt_next(s, TICK_MS, &b, e)) == STMT_ROWS || status == STMT_PENDING)
        if (status == STMT_PENDING)
            show_waiting(sh, s, &line);
        else if (fn)
            fn(ctx, s, b);
    signals_watch(NULL);
    progress_clear(&line);
    return status == STMT_ERROR ? (int)e->code : 0;
}

int shell_query(shell *sh, str text, shell_batch_fn fn, void *ctx, err *e) {
    *e = (err){.pos = -1};
    if (!shell_wait_for_previous(sh, true))
        return err_set(e, ERR_BUSY, "the previous statement has not stopped yet");
    stmt *s = db_submit(sh->db, text);
    int code = shell_wait(sh, s, NULL, fn, ctx, e);
    stmt_free(s);
    return code;
}
