/*
 * stmt.c - the life of a statement: submit, bind, dispatch by kind, results to the caller, end.
 *
 * Invariant: a statement either does all it says or leaves no trace: alone, it has its own
 * transaction, committed only at its end; inside BEGIN, a write is under a savepoint. How results
 * reach the caller is in stmt_result.c, queries in stmt_query.c.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/llm_runtime_int.h"
#include "stmt_int.h"
#include "system/llm_history_int.h"
#include "system/system_int.h"

/* ---- making and freeing ---------------------------------------------------------------------- */

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
    buf_clear(&s->notice);
    arena_reset(s->mem);
    workmem_begin(s->space, d->settings.max_temp_directory_size);
    atomic_store(&s->cancel, false);
    atomic_store(&s->view.paused, false);
    atomic_store(&s->view.watched, false);
    atomic_store(&s->view.compared, false);
    s->described = s->is_text = s->finished = s->waiting = s->drops_rows = false;
    s->ncols = 0;
    s->names = NULL;
    s->types = NULL;
    s->bound = NULL;
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
    return s;
}

void stmt_destroy(stmt *s) {
    if (!s)
        return;
    stmt_drop_results(s);
    arena_free(s->mem);
    workmem_free(s->space);
    buf_free(&s->text);
    buf_free(&s->notice);
    progress_destroy(&s->progress);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
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
    if (d->spare)
        stmt_destroy(s);
    else
        d->spare = s;
}

/* ---- binding --------------------------------------------------------------------------------- */

enum { ACCESS_NONE, ACCESS_READ, ACCESS_WRITE };

typedef struct kind_info {
    int access;
    int (*run)(stmt *s, sql_stmt *x, err *e);
} kind_info;

static const kind_info kinds[] = {
    [STMT_SELECT] = {ACCESS_READ, stmt_select},
    [STMT_INSERT] = {ACCESS_WRITE, stmt_dml},
    [STMT_UPDATE] = {ACCESS_WRITE, stmt_dml},
    [STMT_DELETE] = {ACCESS_WRITE, stmt_dml},
    [STMT_CREATE_TABLE] = {ACCESS_WRITE, stmt_ddl},
    [STMT_CREATE_TABLE_AS] = {ACCESS_WRITE, stmt_create_table_as},
    [STMT_CREATE_INDEX] = {ACCESS_WRITE, stmt_ddl},
    [STMT_CREATE_VIEW] = {ACCESS_WRITE, stmt_ddl},
    [STMT_CREATE_MODEL] = {ACCESS_WRITE, stmt_ddl},
    [STMT_DROP_TABLE] = {ACCESS_WRITE, stmt_ddl},
    [STMT_DROP_INDEX] = {ACCESS_WRITE, stmt_ddl},
    [STMT_DROP_VIEW] = {ACCESS_WRITE, stmt_ddl},
    [STMT_DROP_MODEL] = {ACCESS_WRITE, stmt_ddl},
    [STMT_ADD_COLUMN] = {ACCESS_WRITE, stmt_ddl},
    [STMT_DROP_COLUMN] = {ACCESS_WRITE, stmt_ddl},
    [STMT_RENAME_TABLE] = {ACCESS_WRITE, stmt_ddl},
    [STMT_RENAME_COLUMN] = {ACCESS_WRITE, stmt_ddl},
    [STMT_COPY_FROM] = {ACCESS_WRITE, stmt_copy_from},
    [STMT_COPY_TO] = {ACCESS_READ, stmt_copy_to},
    [STMT_BEGIN] = {ACCESS_NONE, stmt_transaction},
    [STMT_COMMIT] = {ACCESS_NONE, stmt_transaction},
    [STMT_ROLLBACK] = {ACCESS_NONE, stmt_transaction},
    [STMT_SET] = {ACCESS_NONE, stmt_set},
    [STMT_RESET] = {ACCESS_NONE, stmt_reset},
    [STMT_SHOW] = {ACCESS_NONE, stmt_show},
    [STMT_EXPLAIN] = {ACCESS_READ, stmt_explain},
    [STMT_ANALYZE] = {ACCESS_WRITE, stmt_analyze},
    [STMT_SHOW_CACHE] = {ACCESS_NONE, stmt_cache},
    [STMT_CLEAR_CACHE] = {ACCESS_NONE, stmt_cache},
    [STMT_WARM] = {ACCESS_READ, stmt_select},
    [STMT_UNPIN] = {ACCESS_NONE, stmt_cache},
};
BASE_COVERS(kinds, STMT_KINDS);

/* Whether the text begins like a statement that writes: only a guess, to begin the right
 * transaction at once. */
static bool looks_like_write(str text) {
    static const char *const words[] = {"INSERT", "UPDATE", "DELETE",  "CREATE",
                                        "DROP",   "ALTER",  "ANALYZE", "COPY"};
    size_t at = 0, n;
    token_class class = TOKEN_BLANK;
    while ((n = sql_token(text, at, &class)) > 0 &&
           (class == TOKEN_BLANK || class == TOKEN_COMMENT))
        at += n;
    str first = {text.p + at, n};
    for (size_t k = 0; n && k < BASE_COUNT(words); k++)
        if (str_equal_nocase(first, str_from(words[k])))
            return true;
    return false;
}

static str *copy_strs(arena *mem, const str *from, int n) {
    str *to = ARENA_ARRAY(mem, str, BASE_MAX(n, 1));
    for (int k = 0; k < n; k++)
        to[k] = str_copy(mem, from[k]);
    return to;
}

static void copy_table(arena *mem, const table_def *from, table_def *to) {
    *to = *from;
    to->name = str_copy(mem, from->name);
    to->columns = ARENA_ARRAY(mem, column_def, BASE_MAX(from->ncolumns, 1));
    for (int c = 0; c < from->ncolumns; c++) {
        to->columns[c] = from->columns[c];
        to->columns[c].name = str_copy(mem, from->columns[c].name);
        to->columns[c].default_sql = str_copy(mem, from->columns[c].default_sql);
        to->columns[c].check_sql = str_copy(mem, from->columns[c].check_sql);
    }
    to->indexes = ARENA_ARRAY(mem, index_def, BASE_MAX(from->nindexes, 1));
    for (int k = 0; k < from->nindexes; k++) {
        const index_def *x = &from->indexes[k];
        to->indexes[k] = *x;
        to->indexes[k].name = str_copy(mem, x->name);
        to->indexes[k].columns = ARENA_ARRAY(mem, int, BASE_MAX(x->ncolumns, 1));
        memcpy(to->indexes[k].columns, x->columns, sizeof *x->columns * (size_t)x->ncolumns);
    }
    to->checks = copy_strs(mem, from->checks, from->nchecks);
}

/* A catalog that outlives its transaction: statements with LLM calls run on after theirs ended. */
static const catalog *copy_catalog(arena *mem, const catalog *from) {
    catalog *to = ARENA_NEW(mem, catalog);
    table_def *tables = ARENA_ARRAY(mem, table_def, BASE_MAX(from->ntables, 1));
    view_def *views = ARENA_ARRAY(mem, view_def, BASE_MAX(from->nviews, 1));
    model_def *models = ARENA_ARRAY(mem, model_def, BASE_MAX(from->nmodels, 1));
    *to = *from;
    for (int k = 0; k < from->ntables; k++)
        copy_table(mem, &from->tables[k], &tables[k]);
    for (int k = 0; k < from->nviews; k++) {
        const view_def *v = &from->views[k];
        views[k] = (view_def){str_copy(mem, v->name), v->ncolumns,
                              copy_strs(mem, v->columns, v->ncolumns), str_copy(mem, v->sql)};
    }
    for (int k = 0; k < from->nmodels; k++)
        models[k] =
            (model_def){str_copy(mem, from->models[k].name), str_copy(mem, from->models[k].source)};
    to->tables = tables;
    to->views = views;
    to->models = models;
    return to;
}

int stmt_prepare(stmt *s, bool write, bool own_catalog, err *e) {
    db *d = s->db;
    int status = stmt_begin_txn(s, write, e);
    if (status)
        return status;
    const catalog *c = txn_catalog(d->active);
    bind_env env = {
        .catalog = own_catalog ? copy_catalog(s->mem, c) : c,
        .settings = &d->settings,
        .system_table = system_table_columns,
        .ctx = d,
        .variables = d->variables,
        .nvariables = d->nvariables,
        .cancel = &s->cancel,
    };
    s->ctx.settings = &d->settings;
    status = sql_bind(buf_str(&s->text), &env, s->mem, &s->bound, e);
    s->ctx.stmt = status ? NULL : s->bound;
    return status;
}

static bool stmt_calls_model(const stmt *s) {
    const sql_stmt *x = s->bound;
    if (x->kind == STMT_EXPLAIN)
        x = x->explain.stmt;
    return x->ncalls > 0 && x->kind != STMT_CREATE_VIEW;
}

/* The access a statement needs; EXPLAIN ANALYZE does what the explained statement does. */
static int access_of(const sql_stmt *x) {
    if (x->kind == STMT_EXPLAIN && x->explain.analyze)
        x = x->explain.stmt;
    return kinds[x->kind].access;
}

/* Binds in the right kind of transaction. A statement outside BEGIN
 * whose calls take long must not hold one: it is bound to a copy of
 * the catalog in a read transaction, which ends with its snapshot. */
static int prepare(stmt *s, err *e) {
    bool write = looks_like_write(buf_str(&s->text)) && !store_is_read_only(s->db->store);
    int status = stmt_prepare(s, write, false, e);
    if (status)
        return status;
    bool alone = !atomic_load(&s->db->in_transaction), calls = stmt_calls_model(s);
    bool wants = access_of(s->bound) == ACCESS_WRITE && !(alone && calls);
    if (calls == false && (write || !wants))
        return 0;
    if (calls && !alone && (write || !wants))
        return 0;
    if (alone && (status = stmt_end_txn(s, false, e)) != 0)
        return status;
    return stmt_prepare(s, wants, alone && calls, e);
}

/* ---- running --------------------------------------------------------------------------------- */

static int refuse_in_failed(const stmt *s, err *e) {
    if (!atomic_load(&s->db->failed) || s->bound->kind == STMT_ROLLBACK)
        return 0;
    err_set(e, ERR_BUSY, "this transaction can only be rolled back");
    err_hint(e, "ROLLBACK");
    return ERR_BUSY;
}

static int run_bound(stmt *s, err *e) {
    sql_stmt *x = s->bound;
    db *d = s->db;
    bool inside =
        d->txn && d->active == d->txn && txn_is_write(d->txn) && access_of(x) == ACCESS_WRITE;
    int status = inside ? txn_savepoint(d->txn, e) : 0;
    s->kind = x->kind;
    if (status == 0)
        status = kinds[x->kind].run(s, x, e);
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

static void release_ctx(stmt *s) {
    stmt_release_plan(s);
    llm_runtime_free(s->ctx.llm);
    s->ctx = (exec_ctx){0};
}

static int run_once(stmt *s, err *e) {
    err ignored;
    err_clear(e);
    s->ctx = (exec_ctx){.db = s->db,
                        .settings = &s->db->settings,
                        .mem = s->mem,
                        .space = s->space,
                        .classes = op_classes,
                        .cancel = &s->cancel,
                        .view = &s->view,
                        .notices = &s->notice,
                        .progress = &s->progress};
    int status = prepare(s, e);
    if (status == 0)
        status = refuse_in_failed(s, e);
    if (status == 0)
        status = run_bound(s, e);
    else
        stmt_end_txn(s, false, &ignored);
    if (status == 0 && s->bound->compares_null)
        exec_notice(&s->ctx, "a comparison with NULL is never true; IS NULL finds what is missing");
    return status;
}

/* The model computes otherwise than the fingerprint said under which stored answers were looked up.
 * Where none of them has left the statement yet, it can start over. */
static bool may_start_over(const stmt *s, int status) {
    return status == ERR_MODEL && s->summary.rows == 0 && s->kind != STMT_COPY_TO &&
           llm_runtime_outdated(s->ctx.llm);
}

void stmt_execute(void *arg) {
    stmt *s = arg;
    db *d = s->db;
    err e;
    int status = run_once(s, &e);
    if (may_start_over(s, status)) {
        release_ctx(s);
        status = run_once(s, &e);
    }
    uint64_t rows = s->summary.rows;
    s->summary = s->ctx.counts.summary;
    s->summary.rows = rows;
    s->summary.seconds = clock_seconds() - s->started_s;
    workmem_usage(s->space, &s->summary.space);
    s->summary.sql_seconds = s->summary.seconds - s->summary.llm_seconds - s->summary.held_seconds;
    llm_runtime_tell(s->ctx.llm);
    release_ctx(s);
    buf record = {0};
    history_record(&s->summary, s->kind, buf_str(&s->text), status, &record);
    pthread_mutex_lock(&s->lock);
    s->described = true;
    s->status = status;
    s->error = e;
    s->finished = true;
    stmt_tell(s);
    pthread_mutex_unlock(&s->lock); /* the caller may take the statement from here on */
    history_write(d, &record);      /* nobody waits for it but the next statement */
    buf_free(&record);
}
