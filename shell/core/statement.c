/*
 * statement.c - runs one statement and prints its result: submits it to the worker, waits with
 * progress line or live view, formats rows, prints error, notices and summary.
 *
 * Invariant: at a prompt Ctrl-C cancels the statement and never ends the shell; after a second
 * Ctrl-C the shell no longer waits for the statement. In scripts only rows, and the figures of
 * .stats, are written to stdout.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "shell_int.h"

enum { TICK_MS = 100, DRAIN_BYTES = 64 * 1024, PAGER_ROWS = 10000, PLAIN_ROWS = 40 };

/* ---- results --------------------------------------------------------------------------------- */

/* A running statement. */
typedef struct run {
    shell *sh;
    stmt *s;
    format format;
    bool formatting; /* format_begin was called, and neither format_end nor format_free yet */
    text_form form;  /* how the result is printed if it is one text */
    buf out;
    const char **names;
    value_type *types;
    progress_line progress;
    key_watch keys;
    view *view; /* NULL: not open */
    /* what the view shows, updated from the first LLM call on; NULL: no terminal, no recording */
    view_state *state;
    bool open_view; /* open the view when the first LLM call starts */
    bool saw_llm;   /* the first LLM call has started */
    bool full;      /* the output mode could not keep all rows */
    err reason;     /* if `full`: why it could not keep them */
    uint64_t rows;
    exec_progress now;
} run;

static void drain(run *r) {
    if (r->out.n == 0)
        return;
    progress_clear(&r->progress);
    output_write(&r->sh->out, &r->out);
    r->open_view = false; /* the result is on the screen or in the pager */
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
    r->form = stmt_text_form(r->s);
    bool page = sh->term.interactive && sh->pager && !sh->term.dumb;
    output_begin(&sh->out, page);
    if (r->form != TEXT_NONE || n == 0)
        return;
    r->names = mem_zalloc(sizeof(char *) * (size_t)n);
    r->types = mem_zalloc(sizeof(value_type) * (size_t)n);
    for (int i = 0; i < n; i++) {
        r->names[i] = stmt_column_name(r->s, i);
        r->types[i] = stmt_column_type(r->s, i);
    }
    format_options options = {
        .null_text = sh->null_text,
        .insert_table = sh->insert_table,
        .width = shell_wrap_columns(sh),
        .wrap = sh->wrap,
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
    if (shell_columns(sh) > 0)
        options.max_rows = sh->max_rows >= 0 ? (uint64_t)sh->max_rows
                           : page            ? PAGER_ROWS
                                             : PLAIN_ROWS;
    format_begin(&r->format, sh->mode, &options, n, r->names, r->types, &r->out);
    r->formatting = true;
}

static void take_text(run *r, const batch *b) {
    const shell *sh = r->sh;
    int columns = shell_columns(sh);
    for (int i = 0; i < b->rows; i++) {
        str text = column_get(&b->cols[0], i).s;
        bool json = text.n && text.p[0] == '{', color = sh->term.color_out && !sh->out.path;
        if (r->form == TEXT_PROMPTS)
            format_prompts(&r->out, text, columns, sh->term.utf8, color);
        else if (r->form == TEXT_TREE)
            format_tree(&r->out, text, columns, sh->term.utf8);
        else
            format_plan(&r->out, text, json ? 0 : columns, json || sh->term.utf8);
    }
}

/* Formats a batch of rows. After Ctrl-C, drops the rows that the worker computed ahead. */
static void take_rows(run *r, const batch *b) {
    if (output_stopped(&r->sh->out))
        return;
    r->rows += (uint64_t)b->rows;
    if (r->form != TEXT_NONE)
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

/* Prints "3 rows inserted", or "3 rows" for a SELECT. */
static void note_rows(run *r, uint64_t n, const char *what, const char *more) {
    buf count = {0};
    buf_append_count(&count, n);
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
        shell_stopped(sh, "");
    const char *cut = r->format.cut ? ", cells cut off; .mode box --wrap shows them in full" : "";
    const char *changed = stmt_changes(r->s) >= 0 ? what_changed(stmt_what(r->s)) : NULL;
    /* The count of changed rows is printed even if the rows of RETURNING went to a file. */
    if (changed)
        note_rows(r, (uint64_t)stmt_changes(r->s), changed, cut);
    else if (stmt_column_count(r->s) > 0 && r->form == TEXT_NONE && screen && sh->out.error == 0)
        note_rows(r, r->rows, "", cut);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void close_view(run *r) {
    if (r->view != NULL)
        view_close(r->view);
    r->view = NULL;
}

static void open_view(run *r) {
    const term *t = &r->sh->term;
    progress_clear(&r->progress);
    r->view = t->terminal && r->state ? view_open(t, r->state, r->s) : NULL;
    r->open_view = false;
}

static void show_progress(run *r) {
    shell *sh = r->sh;
    stmt_progress(r->s, &r->now);
    if (r->now.llm_running && !r->saw_llm) {
        r->saw_llm = true;
        if (sh->repl != NULL && sh->term.interactive && !sh->term.dumb)
            keys_open(&r->keys);
        r->progress.keys = r->keys.open;
    }
    if (r->saw_llm && r->state != NULL) {
        view_update(r->state, &r->now);
        if (sh->recorder != NULL)
            view_record(sh->recorder, r->state);
    }
    if (r->view == NULL && r->saw_llm && (keys_view(&r->keys) || r->open_view))
        open_view(r);
    if (r->view != NULL) {
        if (!view_tick(r->view))
            close_view(r);
    } else if (sh->progress && r->saw_llm && sh->term.err_tty) {
        progress_draw(&r->progress, &sh->term, &r->now);
    }
}

/* True if the shell should stop waiting for the statement. Cancels the statement if a write of its
 * result failed. */
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
                keys_close(&r->keys, &r->sh->typed_ahead); /* a pager may read the keys */
            r->progress.keys = r->keys.open;
            take_rows(r, b);
        }
        if ((status == STMT_DONE || status == STMT_ERROR) && r->full)
            *e = r->reason;
        if (status == STMT_DONE || status == STMT_ERROR)
            return r->full ? STMT_ERROR : status;
        if (status == STMT_PENDING && r->view == NULL)
            drain(r); /* so that the reader of a pipe gets rows early */
        if (given_up(r))
            return STMT_PENDING;
        show_progress(r);
    }
}

static void print_cancelled(const run *r) {
    buf text = {0};
    buf_append_c(&text, " after ");
    progress_duration(&text, r->now.seconds);
    if (r->now.answers_kept) {
        buf_append_c(&text, "; ");
        buf_append_count(&text, r->now.answers_kept);
        buf_append_c(&text, r->now.answers_kept == 1 ? " answer is kept" : " answers are kept");
        buf_append_c(&text, "; a rerun computes only the rest");
    }
    shell_stopped(r->sh, text.p);
    buf_free(&text);
}

/* Prints the error. Returns true, without printing, if the statement only ended because the reader
 * of its rows stopped reading. */
static bool print_failure(run *r, const err *e, const place *where) {
    shell *sh = r->sh;
    if (r->formatting)
        format_free(&r->format);
    r->formatting = false;
    drain(r);
    bool enough = output_reader_closed(&sh->out);
    output_end(&sh->out);
    bool cancelled = e->code == ERR_CANCELLED;
    if (cancelled && (signals_interrupts() || signals_terminated()))
        print_cancelled(r);
    else if (cancelled && enough)
        return true;
    else if (!cancelled || sh->out.error == 0)
        shell_error(sh, where, e);
    return false;
}

static void print_times(run *r) {
    shell *sh = r->sh;
    const exec_summary *s = &sh->last;
    FILE *to = sh->term.interactive ? stdout : stderr;
    bool color = sh->term.interactive ? sh->term.color_out : sh->term.color_err;
    buf line = {0};
    if (s->llm.inputs && sh->progress && sh->term.err_tty) {
        shell_summary_line(s, &line);
        fflush(stdout);
        fprintf(stderr, "%s%s%s\n", style_on(sh->term.color_err, STYLE_DIM), line.p,
                style_off(sh->term.color_err, STYLE_DIM));
    }
    if (sh->timer) {
        buf_clear(&line);
        buf_printf(&line, "%.3f s", s->seconds);
        if (s->llm.inputs) {
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

/* Asks for confirmation of a long LLM statement and counts baselines for the view. False: do not
 * run. */
static bool prepare(run *r, str text) {
    shell *sh = r->sh;
    r->s = db_prepare(sh->db, text);
    if (!estimate_confirm(sh, r->s))
        return false;
    bool screen = sh->term.terminal && !sh->term.dumb;
    if (screen || sh->recorder != NULL) {
        r->state = mem_alloc(sizeof(view_state));
        view_start(r->state, text, sh->term.utf8);
        r->open_view = screen && sh->want_view;
        bool wanted = r->open_view || sh->recorder != NULL;
        if (wanted && !estimate_baselines(sh, r->s, r->state))
            return false;
        stmt_watch(r->s, wanted);
    }
    return true;
}

/* ---- the last picture ------------------------------------------------------------------------ */

/* Whether another statement or command was entered together with this one. */
static bool more_follows(str text, const place *where) {
    str rest = where->text;
    size_t end = where->at + text.n;
    if (end >= rest.n)
        return false;
    return str_trim((str){rest.p + end, rest.n - end}, STR_SPACES).n > 0;
}

static bool end_recording(shell *sh, const view_state *state) {
    err e = {.pos = -1};
    view_record(sh->recorder, state);
    bool ok = view_record_close(sh->recorder, &e) == 0;
    sh->recorder = NULL;
    return ok || shell_failed(sh, &e);
}

/* Shows the view's last picture until a key is pressed, records it, and keeps it for .view last. It
 * is not shown in scripts, which wait for no key, nor after an error, which is read first. False: the
 * recording was not written. */
static bool end_view(run *r, stmt_status status, bool more) {
    shell *sh = r->sh;
    bool done = status == STMT_DONE;
    exec_summary s = {.rows = 0};
    if (status != STMT_PENDING)
        stmt_summary(r->s, &s);
    bool asked = s.llm.prompt_tokens || s.llm.answers_stored; /* EXPLAIN (TOKENS) asks nothing */
    if (sh->recorder != NULL && !asked)
        view_record_restart(sh->recorder);
    if (r->state == NULL || !asked)
        return true;
    r->now.seconds = s.seconds - s.held_seconds;
    r->now.llm = s.llm;
    if (done)
        r->now.rows_total = r->now.rows_done; /* no more were needed, for example by a LIMIT */
    view_finish(r->state, &r->now, done ? "done" : "stopped");
    bool keep = done && !more && sh->term.interactive && sh->where == NULL &&
                db_settings(sh->db)->view_keep;
    if (keep && r->open_view)
        open_view(r);
    if (keep && r->view != NULL)
        view_hold(r->view, &sh->typed_ahead);
    close_view(r);
    free(sh->last_view);
    sh->last_view = r->state;
    r->state = NULL;
    return sh->recorder == NULL || end_recording(sh, sh->last_view);
}

static void print_notices(const run *r) {
    str rest = str_from(stmt_notice(r->s));
    while (rest.n > 0) {
        str line = str_split_next(&rest, '\n');
        fprintf(stderr, "notice: %.*s\n", (int)line.n, line.p);
    }
}

static bool finish(run *r, stmt_status status, const err *e, const place *where) {
    shell *sh = r->sh;
    bool ok = status == STMT_DONE;
    if (ok || status == STMT_ERROR)
        print_notices(r);
    if (ok) {
        end_result(r);
        stmt_summary(r->s, &sh->last);
        print_times(r);
    } else if (status == STMT_ERROR) {
        ok = print_failure(r, e, where);
        stmt_summary(r->s, &sh->last); /* counts the answers computed before the error */
    } else {
        if (r->formatting)
            format_free(&r->format);
        shell_note(
            sh, "the statement is still stopping in the background; the next one will wait for it");
        sh->lingering = r->s;
        r->s = NULL;
    }
    if (r->s != NULL && sh->stats) {
        buf figures = {0};
        shell_figures(&sh->last, &figures);
        shell_print(sh, &figures);
    }
    if (r->s != NULL)
        stmt_free(r->s);
    free(r->state);
    free(r->names);
    free(r->types);
    buf_free(&r->out);
    return shell_check_output(sh) && ok;
}

/* Runs a statement. *refused: it needs an endpoint that is not allowed. */
static bool run_once(shell *sh, str text, const place *where, bool *refused) {
    run r = {.sh = sh};
    db_set_typed(sh->db, sh->term.interactive && sh->where == NULL);
    if (!prepare(&r, text)) {
        stmt_free(r.s);
        free(r.state);
        return false;
    }
    buf_clear(&sh->last_text);
    buf_append_str(&sh->last_text, text);
    stmt_run(r.s);
    err e = {.pos = -1};
    signals_watch(r.s);
    stmt_status status = wait_for_end(&r, &e);
    stmt_progress(r.s, &r.now);
    bool recorded = end_view(&r, status, more_follows(text, where));
    close_view(&r);
    keys_close(&r.keys, &sh->typed_ahead);
    signals_watch(NULL);
    progress_clear(&r.progress);
    *refused = status == STMT_ERROR && *db_refused_endpoints(sh->db) != '\0';
    return finish(&r, status, &e, where) && recorded;
}

bool shell_statement(shell *sh, str text, const place *where) {
    bool refused = false;
    if (!shell_ready(sh))
        return false;
    bool ok = run_once(sh, text, where, &refused);
    return refused && endpoints_confirm(sh) ? run_once(sh, text, where, &refused) : ok;
}
