/*
 * run.c - one statement from its text to its last row on the screen: waiting, progress, Ctrl-C,
 * errors, summary.
 *
 * Invariant: Ctrl-C ends the statement, never the shell at a prompt; a second one ends the waiting.
 * Nothing but rows is written to stdout unless a person sits there.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shell_int.h"
#include "view/view_int.h"

enum { TICK_MS = 100, DRAIN_BYTES = 64 * 1024, PAGER_ROWS = 10000, PLAIN_ROWS = 40 };

/* ---- messages -------------------------------------------------------------------------------- */

void shell_note(shell *sh, const char *message, ...) {
    if (!sh->term.interactive)
        return;
    char text[512];
    va_list ap;
    va_start(ap, message);
    vsnprintf(text, sizeof text, message, ap);
    va_end(ap);
    printf("%s%s%s\n", style_on(sh->term.color_out, STYLE_DIM), text,
           style_off(sh->term.color_out, STYLE_DIM));
    fflush(stdout);
}

static void shell_error(shell *sh, const place *where, const err *e) {
    bool color = sh->term.color_err;
    buf out = {0};
    err shifted = *e;
    buf message = {0};
    int line = 1, col = 1;
    format_visible(&message, str_from(e->message), sh->term.utf8); /* it may quote a file's bytes */
    buf_append_char(&message, 0);
    if (e->pos >= 0)
        shifted.pos = e->pos + (int)where->at;
    if (where->text.n)
        sql_error_place(where->text, e->pos >= 0 ? shifted.pos : (int)where->at, &line, &col);
    if (where->file != NULL)
        buf_printf(&out, "%s:%d:%d: %s%s%s\n", where->file, where->line + line - 1, col,
                   style_on(color, STYLE_BOLD), message.p, style_off(color, STYLE_BOLD));
    else if (e->pos >= 0 && where->text.n)
        buf_printf(&out, "%serror%s at %d:%d: %s\n", style_on(color, STYLE_ERROR),
                   style_off(color, STYLE_ERROR), line, col, message.p);
    else
        buf_printf(&out, "%s%s:%s %s\n", style_on(color, STYLE_ERROR),
                   sh->repl ? "error" : "kvasir", style_off(color, STYLE_ERROR), message.p);
    if (e->pos >= 0 && where->text.n) {
        int columns = INT_MAX, rows;
        if (sh->term.err_tty)
            term_size(&columns, &rows);
        sql_error_caret(where->text, &shifted, columns, &out);
    }
    if (out.n && out.p[out.n - 1] != '\n')
        buf_append_char(&out, '\n');
    if (e->hint[0])
        buf_printf(&out, "%shint:%s %s\n", style_on(color, STYLE_HINT),
                   style_off(color, STYLE_HINT), e->hint);
    fflush(stdout);
    fwrite(out.p, 1, out.n, stderr);
    buf_free(&message);
    buf_free(&out);
}

static void tell_stopped(const shell *sh, const char *more) {
    bool cover = sh->term.err_tty && !sh->term.dumb; /* the terminal's ^C, in the row's colour */
    fflush(stdout);
    fprintf(stderr, "%sstopped%s\n", cover ? "\r\033[0m\033[K" : "", more);
}

bool shell_failed(shell *sh, const err *e) {
    err told = *e;
    if (e->code == ERR_CANCELLED && atomic_load(signals_asked())) {
        tell_stopped(sh, "");
        return false;
    }
    place where = {0};
    told.pos = -1;
    if (sh->script != NULL)
        script_place(sh->script, &where);
    shell_error(sh, &where, &told);
    return false;
}

bool shell_complain(shell *sh, const char *message, ...) {
    err e = {0};
    va_list ap;
    va_start(ap, message);
    vsnprintf(e.message, sizeof e.message, message, ap);
    va_end(ap);
    return shell_failed(sh, &e);
}

void shell_summary_line(const exec_summary *s, buf *out) {
    format_count(out, s->llm_inputs);
    const llm_stats *m = &s->llm;
    bool asked = m->prompt_tokens || s->answers_stored; /* else EXPLAIN (TOKENS) counted them */
    buf_printf(out, " %s %s, ", s->llm_inputs == 1 ? "row" : "rows", asked ? "asked" : "counted");
    progress_duration(out, s->seconds - s->held_seconds); /* as the view's clock has it */
    if (m->prompt_tokens) {
        double hit = 1 - (double)m->computed_tokens / (double)m->prompt_tokens;
        buf_printf(out, ", " WORDS_HIT_RATE " %.0f %%, ", 100 * BASE_MAX(hit, 0.0));
        format_count(out, m->computed_tokens);
        buf_append_c(out, " of ");
        format_count(out, m->prompt_tokens);
        buf_append_c(out, " tokens " WORDS_COMPUTED);
    }
    if (s->answers_stored) {
        buf_append_c(out, ", ");
        format_count(out, s->answers_stored);
        buf_append_c(out, s->answers_stored == 1 ? " answer known" : " " WORDS_KNOWN);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

/* One statement on its way: what shell_statement and its helpers share. */
typedef struct run {
    shell *sh;
    stmt *s;
    format format;
    bool formatting, text;
    buf out;
    const char **names;
    value_type *types;
    progress_line progress;
    key_watch keys;
    view *view;
    view_state *state; /* what the view shows, kept from the first LLM call on; NULL: no terminal */
    bool open_view;    /* as soon as there is something to see */
    bool saw_llm;
    bool full; /* rows cannot be kept until the last is known: `reason` is its error */
    err reason;
    uint64_t rows;
    exec_progress now;
} run;

static void drain(run *r) {
    if (r->out.n == 0)
        return;
    progress_clear(&r->progress);
    output_write(&r->sh->out, &r->out);
}

static bool drain_drawn(void *ctx) {
    run *r = ctx;
    if (r->out.n >= DRAIN_BYTES)
        drain(r);
    return !output_stopped(&r->sh->out);
}

static void begin_result(run *r) {
    shell *sh = r->sh;
    int n = stmt_column_count(r->s);
    r->text = stmt_is_text(r->s);
    bool page = sh->term.interactive && sh->pager && !sh->term.dumb;
    output_begin(&sh->out, page);
    if (r->text || n == 0)
        return;
    r->names = mem_zalloc(sizeof(char *) * (size_t)n);
    r->types = mem_zalloc(sizeof(value_type) * (size_t)n);
    for (int i = 0; i < n; i++) {
        r->names[i] = stmt_column_name(r->s, i);
        r->types[i] = stmt_column_type(r->s, i);
    }
    bool screen = sh->term.interactive && sh->out.path == NULL;
    int columns, rows;
    term_size(&columns, &rows);
    format_options options = {
        .null_text = sh->null_text,
        .insert_table = sh->insert_table,
        .width = screen ? columns : 0,
        .max_rows = 0,
        .no_headers = !sh->headers,
        .types_row = sh->types_row,
        .color = sh->term.color_out && sh->out.path == NULL,
        .utf8 = sh->term.utf8,
        .widths = sh->widths,
        .nwidths = sh->nwidths,
        .space = stmt_workmem(r->s),
        .drain = drain_drawn,
        .drain_ctx = r,
    };
    if (screen)
        options.max_rows = sh->max_rows >= 0 ? (uint64_t)sh->max_rows
                           : page            ? PAGER_ROWS
                                             : PLAIN_ROWS;
    format_begin(&r->format, sh->mode, &options, n, r->names, r->types, &r->out);
    r->formatting = true;
}

static void take_text(run *r, const batch *b) {
    const shell *sh = r->sh;
    int columns = 0, rows;
    if (sh->term.interactive && sh->out.path == NULL)
        term_size(&columns, &rows);
    for (int i = 0; i < b->rows; i++) {
        str text = column_get(&b->cols[0], i).s;
        bool json = text.n && text.p[0] == '{';
        format_plan(&r->out, text, json ? 0 : columns, json || sh->term.utf8);
    }
}

/* The worker may be megabytes of rows ahead of us: after Ctrl-C nobody waits for these. */
static void take_rows(run *r, const batch *b) {
    if (output_stopped(&r->sh->out))
        return;
    r->rows += (uint64_t)b->rows;
    if (r->text)
        take_text(r, b);
    else if (r->formatting && !r->full)
        format_rows(&r->format, b);
    if (r->formatting && !r->full && format_full_error(&r->format, &r->reason)) {
        r->full = true;
        stmt_cancel(r->s);
    }
    if (r->out.n >= DRAIN_BYTES && r->view == NULL)
        drain(r);
}

/* "3 rows inserted"; of a SELECT "3 rows". */
static void note_rows(run *r, uint64_t n, const char *what, const char *more) {
    buf count = {0};
    format_count(&count, n);
    shell_note(r->sh, "%s %s%s%s", count.p, n == 1 ? "row" : "rows", what, more);
    buf_free(&count);
}

static const char *what_changed(stmt_kind kind) {
    static const struct {
        stmt_kind kind;
        const char *what;
    } words[] = {
        {STMT_INSERT, " inserted"}, {STMT_UPDATE, " updated"},          {STMT_DELETE, " deleted"},
        {STMT_COPY_FROM, " read"},  {STMT_CREATE_TABLE_AS, " written"}, {STMT_COPY_TO, " written"},
    };
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        if (words[i].kind == kind)
            return words[i].what;
    return NULL;
}

static void end_result(run *r) {
    shell *sh = r->sh;
    if (r->formatting) {
        format_end(&r->format);
        r->formatting = false;
    }
    drain(r);
    bool screen = sh->out.path == NULL;
    output_end(&sh->out);
    if (sh->out.error == EINTR)
        tell_stopped(sh, "");
    const char *cut = r->format.cut ? ", cells cut: .mode line shows them whole" : "";
    const char *changed = stmt_changes(r->s) >= 0 ? what_changed(stmt_what(r->s)) : NULL;
    if (changed) /* where its rows went, if it returned them, is no reason to keep silent */
        note_rows(r, (uint64_t)stmt_changes(r->s), changed, cut);
    else if (stmt_column_count(r->s) > 0 && !r->text && screen && sh->out.error == 0)
        note_rows(r, r->rows, "", cut);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void close_view(run *r) {
    if (r->view != NULL)
        view_close(r->view);
    r->view = NULL;
}

static void show_progress(run *r) {
    shell *sh = r->sh;
    stmt_progress(r->s, &r->now);
    if (r->now.llm_running && !r->saw_llm) {
        r->saw_llm = true;
        keys_open(&r->keys, sh);
        r->progress.keys = r->keys.open;
    }
    if (r->saw_llm && r->state != NULL)
        view_update(r->state, &r->now);
    if (r->view == NULL && r->saw_llm && (keys_view(&r->keys) || r->open_view)) {
        progress_clear(&r->progress);
        r->view = r->state ? view_open(sh, r->state, r->s) : NULL;
        r->open_view = false;
    }
    if (r->view != NULL) {
        if (!view_tick(r->view))
            close_view(r);
    } else if (sh->progress && r->saw_llm && sh->term.err_tty) {
        progress_draw(&r->progress, sh, &r->now);
    }
}

/* True: nobody waits for the statement any longer. */
static bool given_up(run *r) {
    shell *sh = r->sh;
    if (sh->out.error)
        stmt_cancel(r->s);
    if (signals_interrupts() < 2)
        return false;
    if (!sh->term.interactive) {
        term_restore();
        _exit(SHELL_INTERRUPTED);
    }
    return true;
}

static stmt_status wait_for_end(run *r, err *e) {
    bool begun = false;
    for (;;) {
        const batch *b = NULL;
        stmt_status status = stmt_next(r->s, TICK_MS, &b, e);
        if (status != STMT_PENDING && status != STMT_ERROR && !begun) {
            begin_result(r);
            begun = true;
        }
        if (status == STMT_ROWS) {
            if (r->view == NULL)
                keys_close(&r->keys, r->sh); /* a pager may want the keys */
            r->progress.keys = r->keys.open;
            take_rows(r, b);
        }
        if ((status == STMT_DONE || status == STMT_ERROR) && r->full)
            *e = r->reason;
        if (status == STMT_DONE || status == STMT_ERROR)
            return r->full ? STMT_ERROR : status;
        if (status == STMT_PENDING && r->view == NULL)
            drain(r); /* who reads a pipe sees rows as they come, too */
        if (given_up(r))
            return STMT_PENDING;
        show_progress(r);
    }
}

static void tell_cancelled(const run *r) {
    buf text = {0};
    buf_append_c(&text, " after ");
    progress_duration(&text, r->now.seconds);
    if (r->now.answers_kept) {
        buf_append_c(&text, "; ");
        format_count(&text, r->now.answers_kept);
        buf_append_c(&text, r->now.answers_kept == 1 ? " answer is kept" : " answers are kept");
        buf_append_c(&text, ", and a rerun asks only for the rest");
    }
    tell_stopped(r->sh, text.p);
    buf_free(&text);
}

/* True: it is none, who reads the rows had seen enough. */
static bool tell_failure(run *r, const err *e, const place *where) {
    shell *sh = r->sh;
    if (r->formatting)
        format_free(&r->format);
    r->formatting = false;
    drain(r);
    bool enough = output_unread(&sh->out);
    output_end(&sh->out);
    bool cancelled = e->code == ERR_CANCELLED;
    if (cancelled && (signals_interrupts() || signals_terminated()))
        tell_cancelled(r);
    else if (cancelled && enough)
        return true;
    else if (!cancelled || sh->out.error == 0)
        shell_error(sh, where, e);
    return false;
}

static void tell_times(run *r) {
    shell *sh = r->sh;
    const exec_summary *s = &sh->last;
    FILE *to = sh->term.interactive ? stdout : stderr;
    bool color = sh->term.interactive ? sh->term.color_out : sh->term.color_err;
    buf line = {0};
    if (s->llm_inputs && sh->progress && sh->term.err_tty) {
        shell_summary_line(s, &line);
        fflush(stdout);
        fprintf(stderr, "%s%s%s\n", style_on(sh->term.color_err, STYLE_DIM), line.p,
                style_off(sh->term.color_err, STYLE_DIM));
    }
    if (sh->timer) {
        buf_clear(&line);
        buf_printf(&line, "%.3f s", s->seconds);
        if (s->llm_inputs) {
            buf_printf(&line, " (model %.3f s, ordering %.3f s, the rest %.3f s", s->llm_seconds,
                       s->solve_seconds, BASE_MAX(s->sql_seconds - s->solve_seconds, 0.0));
            if (s->held_seconds > 0)
                buf_printf(&line, ", paused %.3f s", s->held_seconds);
            buf_append_char(&line, ')');
        }
        fprintf(to, "%s%s%s\n", style_on(color, STYLE_DIM), line.p, style_off(color, STYLE_DIM));
    }
    buf_free(&line);
    fflush(to);
}

bool shell_settle(shell *sh, bool wait) {
    if (sh->lingering == NULL)
        return true;
    signals_clear();
    if (wait)
        shell_note(sh, "waiting for the statement before to stop");
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

/* Before the start: what it will cost, and what the view wants to know. */
static bool prepare(run *r, str text) {
    shell *sh = r->sh;
    if (!estimate_confirm(sh, text))
        return false;
    if (sh->term.terminal && !sh->term.dumb) {
        r->state = mem_alloc(sizeof(view_state));
        view_start(r->state, text, sh->term.utf8);
        r->open_view = sh->want_view;
        if (sh->want_view && !estimate_baselines(sh, text, r->state)) {
            free(r->state);
            return false;
        }
    }
    return true;
}

/* What the user should know although nothing failed. */
static void tell_notices(const run *r) {
    str rest = str_from(stmt_notice(r->s));
    while (rest.n > 0) {
        str line = str_take(&rest, '\n');
        fprintf(stderr, "notice: %.*s\n", (int)line.n, line.p);
    }
}

static bool finish(run *r, stmt_status status, const err *e, const place *where) {
    shell *sh = r->sh;
    bool ok = status == STMT_DONE;
    if (ok || status == STMT_ERROR)
        tell_notices(r);
    if (ok) {
        end_result(r);
        stmt_summary(r->s, &sh->last);
        tell_times(r);
    } else if (status == STMT_ERROR) { /* answers may have been paid for: they count, too */
        ok = tell_failure(r, e, where);
        stmt_summary(r->s, &sh->last);
    } else {
        if (r->formatting)
            format_free(&r->format);
        shell_note(sh, "left to stop by itself; the next statement waits for it");
        sh->lingering = r->s;
        r->s = NULL;
    }
    if (r->s != NULL && sh->stats)
        ok = command_line(sh, STR(".stats")) && ok;
    if (r->s != NULL)
        stmt_free(r->s);
    free(r->state);
    free(r->names);
    free(r->types);
    buf_free(&r->out);
    return output_check(sh) && ok;
}

bool shell_statement(shell *sh, str text, const place *where) {
    if (!shell_settle(sh, true))
        return false;
    if (sh->db == NULL)
        return shell_complain(sh, "no database is open; .open DIRECTORY opens one");
    run r = {.sh = sh};
    if (!prepare(&r, text))
        return false;
    buf_clear(&sh->last_text);
    buf_append_str(&sh->last_text, text);
    r.s = db_submit(sh->db, text);
    err e = {.pos = -1};
    signals_watch(r.s);
    stmt_status status = wait_for_end(&r, &e);
    close_view(&r);
    keys_close(&r.keys, sh);
    signals_watch(NULL);
    stmt_progress(r.s, &r.now);
    progress_clear(&r.progress);
    return finish(&r, status, &e, where);
}

bool shell_sql(shell *sh, const char *text) {
    place where = {0};
    if (sh->script != NULL)
        script_place(sh->script, &where);
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
        progress_draw(line, sh, &now);
}

int shell_query(shell *sh, str text, shell_batch_fn fn, void *ctx, err *e) {
    *e = (err){.pos = -1};
    if (!shell_settle(sh, true))
        return err_set(e, ERR_BUSY, "the statement before has not stopped yet");
    stmt *s = db_submit(sh->db, text);
    signals_watch(s);
    progress_line line = {0};
    stmt_status status;
    const batch *b;
    while ((status = stmt_next(s, TICK_MS, &b, e)) == STMT_ROWS || status == STMT_PENDING)
        if (status == STMT_ROWS)
            fn(ctx, s, b);
        else
            show_waiting(sh, s, &line);
    signals_watch(NULL);
    progress_clear(&line);
    stmt_free(s);
    return status == STMT_ERROR ? (int)e->code : 0;
}
