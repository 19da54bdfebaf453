/*
 * stmt.c - the life of a statement: creation, binding, dispatch by kind, its end. Results are in
 * stmt_result.c, queries in stmt_query.c.
 *
 * Invariant: a statement is atomic. Outside BEGIN it has a transaction of its own, committed at its
 * end; inside BEGIN a write has a savepoint.
 */
#include <stdlib.h>
#include <string.h>

#include "eval/regexp_int.h"
#include "llm/llm_runtime_int.h"
#include "stmt_int.h"
#include "system/llm_history_int.h"
#include "system/system_int.h"

/* ---- making and freeing ---------------------------------------------------------------------- */

/* Resets results, figures and requests before each job of the statement. */
static void begin_job(stmt *s) {
    buf_clear(&s->notice);
    workmem_begin(s->space, s->db->settings.max_temp_directory_size);
    atomic_store(&s->view.paused, false);
    atomic_store(&s->view.watched, false);
    atomic_store(&s->view.compared, false);
    s->finished = s->waiting = s->drops_rows = false;
    s->form = TEXT_NONE;
    s->ncols = 0;
    s->names = NULL;
    s->types = NULL;
    s->changes = -1;
    s->nshared = 0;
    s->events_seen = 0;
    atomic_store(&s->events, 0);
    s->kind = STMT_SELECT;
    s->status = 0;
    err_clear(&s->error);
    s->progress.latest = (exec_progress){0};
    s->summary = (exec_summary){0};
    s->started_s = clock_seconds();
}

stmt *stmt_new(db *d, str text) {
    stmt *s = d->spare;
    d->spare = NULL;
    if (!s) {
        s = mem_zalloc(sizeof *s);
        s->db = d;
        s->mem = arena_new();
        s->space = workmem_new(NULL, d->settings.max_temp_directory_size);
        short_lock_init(&s->lock);
        steady_cond_init(&s->changed);
        progress_init(&s->progress);
    }
    buf_clear(&s->text);
    buf_append(&s->text, text.p, text.n);
    arena_reset(s->mem);
    atomic_store(&s->cancel, false);
    s->tree = (sql_tree){0};
    s->estimate = (exec_estimate){0};
    s->finished = true;
    s->is_trial = false;
    return s;
}

int stmt_override(stmt *s, const char *setting, const char *text, err *e) {
    if (!s->is_trial)
        settings_copy(&s->trial, &s->db->settings);
    s->is_trial = true;
    return settings_set(&s->trial, str_from(setting), value_text(str_from(text)), e);
}

const settings *stmt_settings(const stmt *s) {
    return s->is_trial ? &s->trial : &s->db->settings;
}

void stmt_destroy(stmt *s) {
    if (!s)
        return;
    stmt_drop_results(s);
    arena_free(s->mem);
    workmem_free(s->space);
    buf_free(&s->text);
    buf_free(&s->notice);
    settings_free(&s->trial);
    progress_destroy(&s->progress);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void stmt_unbind(stmt *s) {
    catalog_release(s->catalog);
    s->catalog = NULL;
    s->bound = NULL;
}

void stmt_free(stmt *s) {
    if (!s)
        return;
    db *d = s->db;
    pthread_mutex_lock(&s->lock);
    if (!s->finished) {
        atomic_store(&s->cancel, true);
        pthread_cond_broadcast(&s->changed);
    }
    while (!s->finished) {
        s->waiting = true;
        pthread_cond_wait(&s->changed, &s->lock);
    }
    stmt_recycle_results(s);
    pthread_mutex_unlock(&s->lock);
    /* a statement that was only estimated, not run, is still bound; the worker no longer uses it */
    stmt_unbind(s);
    if (d->spare)
        stmt_destroy(s);
    else
        d->spare = s;
}

/* ---- binding --------------------------------------------------------------------------------- */

static int (*const kinds[])(stmt *s, sql_stmt *x, err *e) = {
    [STMT_SELECT] = stmt_select,
    [STMT_INSERT] = stmt_dml,
    [STMT_UPDATE] = stmt_dml,
    [STMT_DELETE] = stmt_dml,
    [STMT_CREATE_TABLE] = stmt_ddl,
    [STMT_CREATE_TABLE_AS] = stmt_create_table_as,
    [STMT_CREATE_INDEX] = stmt_ddl,
    [STMT_CREATE_VIEW] = stmt_ddl,
    [STMT_CREATE_MODEL] = stmt_ddl,
    [STMT_DROP_TABLE] = stmt_ddl,
    [STMT_DROP_INDEX] = stmt_ddl,
    [STMT_DROP_VIEW] = stmt_ddl,
    [STMT_DROP_MODEL] = stmt_ddl,
    [STMT_ADD_COLUMN] = stmt_ddl,
    [STMT_DROP_COLUMN] = stmt_ddl,
    [STMT_RENAME_TABLE] = stmt_ddl,
    [STMT_RENAME_COLUMN] = stmt_ddl,
    [STMT_COPY_FROM] = stmt_copy_from,
    [STMT_COPY_TO] = stmt_copy_to,
    [STMT_BEGIN] = stmt_transaction,
    [STMT_COMMIT] = stmt_transaction,
    [STMT_ROLLBACK] = stmt_transaction,
    [STMT_SET] = stmt_set,
    [STMT_RESET] = stmt_reset,
    [STMT_SHOW] = stmt_show,
    [STMT_EXPLAIN] = stmt_explain,
    [STMT_ANALYZE] = stmt_analyze,
    [STMT_SHOW_CACHE] = stmt_cache,
    [STMT_CLEAR_CACHE] = stmt_cache,
    [STMT_WARM] = stmt_select,
    [STMT_UNPIN] = stmt_cache,
};
BASE_COVERS(kinds, STMT_KINDS);

int stmt_parse(stmt *s, err *e) {
    return s->tree.ast ? 0 : sql_parse(buf_str(&s->text), s->mem, &s->tree, e);
}

int stmt_prepare(stmt *s, bool write, err *e) {
    db *d = s->db;
    int status = stmt_begin_txn(s, write, e);
    if (status)
        return status;
    const catalog *c = txn_catalog(d->active);
    s->ctx.settings = stmt_settings(s);
    s->ctx.stmt = s->bound;
    if (s->bound && s->catalog == c && !s->bound->read_rows)
        return 0;
    stmt_unbind(s);
    s->catalog = catalog_retain(c);
    bind_env env = {
        .catalog = c,
        .settings = stmt_settings(s),
        .system_table = system_table_columns,
        .ctx = s,
        .variables = d->variables,
        .nvariables = d->nvariables,
        .cancel = &s->cancel,
        .rows = stmt_rows,
    };
    status = sql_bind(&s->tree, &env, s->mem, &s->bound, e);
    s->ctx.stmt = s->bound = status ? NULL : s->bound;
    return status;
}

static bool calls_model(const stmt *s) {
    const sql_stmt *x = s->bound;
    if (x->kind == STMT_EXPLAIN)
        x = x->explain.stmt;
    return x->ncalls > 0 && x->kind != STMT_CREATE_VIEW;
}

/* Begins the right kind of transaction and binds the statement. Outside BEGIN, a statement that
 * calls the model must not hold a transaction while the model works. So it is bound in a read
 * transaction, which ends after the snapshot, and it retains the catalog. tree.calls_model does not
 * include calls in views, so a statement may have to be bound again. */
static int prepare(stmt *s, err *e) {
    bool alone = !atomic_load(&s->db->in_transaction);
    bool write =
        s->tree.writes && !(alone && s->tree.calls_model) && !store_is_read_only(s->db->store);
    int status = stmt_prepare(s, write, e);
    if (status)
        return status;
    bool wants = s->tree.writes && !(alone && calls_model(s));
    if (write == wants)
        return 0;
    if (alone && (status = stmt_end_txn(s, false, e)) != 0)
        return status;
    return stmt_prepare(s, wants, e);
}

/* ---- running --------------------------------------------------------------------------------- */

static int refuse_in_failed(const stmt *s, err *e) {
    if (!atomic_load(&s->db->failed) || s->bound->kind == STMT_ROLLBACK)
        return 0;
    err_set(e, ERR_BUSY, "this transaction has failed and can only be rolled back");
    err_hint(e, "ROLLBACK");
    return ERR_BUSY;
}

static int run_bound(stmt *s, err *e) {
    sql_stmt *x = s->bound;
    db *d = s->db;
    bool inside = d->txn && d->active == d->txn && txn_is_write(d->txn) && s->tree.writes;
    int status = inside ? txn_savepoint(d->txn, e) : 0;
    s->kind = x->kind;
    if (status == 0)
        status = kinds[x->kind](s, x, e);
    if (inside && d->txn) {
        if (status)
            txn_rollback_to(d->txn);
        else
            status = txn_release(d->txn, e);
    }
    err ignored;
    int ended = stmt_end_txn(s, status == 0, status ? &ignored : e);
    return status ? status : ended;
}

void stmt_open_ctx(stmt *s) {
    s->ctx = (exec_ctx){.db = s->db,
                        .settings = stmt_settings(s),
                        .is_trial = s->is_trial,
                        .mem = s->mem,
                        .space = s->space,
                        .classes = op_classes,
                        .cancel = &s->cancel,
                        .view = &s->view,
                        .notices = &s->notice,
                        .progress = &s->progress};
    regexp_set_cancel(&s->cancel);
}

void stmt_release_ctx(stmt *s) {
    stmt_release_plan(s);
    llm_runtime_free(s->ctx.llm);
    s->ctx = (exec_ctx){0};
    regexp_set_cancel(NULL);
}

static int run_once(stmt *s, err *e) {
    err ignored;
    err_clear(e);
    stmt_open_ctx(s);
    int status = prepare(s, e);
    if (status == 0)
        status = refuse_in_failed(s, e);
    if (status == 0)
        status = run_bound(s, e);
    else
        stmt_end_txn(s, false, &ignored);
    if (status == 0 && s->bound->compares_null)
        exec_notice(&s->ctx, "a comparison with NULL is never true; use IS NULL");
    return status;
}

/* Whether to run the statement again: loading the model showed that its fingerprint, by which
 * stored answers were looked up, is outdated, and the statement has returned no row yet. */
static bool may_start_over(const stmt *s, int status) {
    return status == ERR_MODEL && s->summary.rows == 0 && s->kind != STMT_COPY_TO &&
           llm_runtime_outdated(s->ctx.llm);
}

void stmt_finish(stmt *s, int status, const err *e) {
    pthread_mutex_lock(&s->lock);
    s->status = status;
    s->error = *e;
    s->finished = true;
    stmt_notify(s);
    pthread_mutex_unlock(&s->lock);
}

static void stmt_execute(void *arg) {
    stmt *s = arg;
    db *d = s->db;
    err e;
    int status = stmt_parse(s, &e);
    if (status == 0)
        status = run_once(s, &e);
    if (may_start_over(s, status)) {
        stmt_release_ctx(s);
        status = run_once(s, &e);
    }
    uint64_t rows = s->summary.rows;
    s->summary = s->ctx.counts.summary;
    s->summary.rows = rows;
    s->summary.seconds = clock_seconds() - s->started_s;
    workmem_usage(s->space, &s->summary.space);
    s->summary.sql_seconds = s->summary.seconds - s->summary.llm_seconds - s->summary.held_seconds;
    llm_runtime_report_cache_off(s->ctx.llm);
    stmt_release_ctx(s);
    stmt_unbind(s);
    buf record = {0};
    if (!s->is_trial)
        history_record(&s->summary, s->kind, buf_str(&s->text), status, &record);
    stmt_finish(s, status, &e); /* from here on the caller may free s */
    /* after stmt_finish, so that the caller does not wait for the write */
    history_write(d, &record);
    buf_free(&record);
}

void stmt_start(stmt *s, void (*job)(void *s)) {
    begin_job(s);
    worker_post(&s->db->worker, job, s);
}

void stmt_run(stmt *s) {
    stmt_start(s, stmt_execute);
}
