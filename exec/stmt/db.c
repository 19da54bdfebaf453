/*
 * db.c - the database handle: open, close, variables, backup, model information, submitting
 * statements.
 *
 * Invariant: only the worker's thread uses the store's transactions.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/models_int.h"
#include "stmt_int.h"

/* ---- open, close ----------------------------------------------------------------------------- */

typedef struct open_request {
    db *db;
    const db_options *options;
} open_request;

static int open_store(void *arg, err *e) {
    const open_request *r = arg;
    const db_options *o = r->options;
    store_options options = {.path = o->path,
                             .read_only = o->read_only,
                             .must_exist = o->must_exist,
                             .cache_bytes = (size_t)r->db->settings.kv_disk};
    return store_open(&options, &r->db->store, e);
}

static int close_store(void *arg, err *e) {
    db *d = arg;
    (void)e;
    txn_abort(d->txn);
    d->txn = d->active = NULL;
    models_close(d);
    store_close(d->store);
    d->store = NULL;
    return 0;
}

static void free_db(db *d) {
    stmt_destroy(d->spare);
    for (int k = 0; k < 2 * d->nvariables; k++)
        free((char *)(uintptr_t)d->variables[k].p);
    free(d->variables);
    free(d->model_override);
    buf_free(&d->allowed);
    buf_free(&d->refused);
    settings_free(&d->settings);
    free(d);
}

int db_open(const db_options *options, db **out, err *e) {
    db *d = mem_zalloc(sizeof *d);
    open_request request = {d, options};
    *out = NULL;
    settings_init(&d->settings);
    if (options->model && *options->model)
        d->model_override = mem_strdup(options->model);
    int status = worker_start(&d->worker, e);
    if (status) {
        free_db(d);
        return status;
    }
    status = worker_call(&d->worker, open_store, &request, e);
    if (status) {
        worker_stop(&d->worker);
        free_db(d);
        return status;
    }
    *out = d;
    return 0;
}

void db_set_typed(db *d, bool typed) {
    d->typed = typed;
    buf_clear(&d->refused);
}

void db_close(db *d) {
    if (!d)
        return;
    (void)worker_call(&d->worker, close_store, d, NULL); /* closing cannot fail */
    worker_stop(&d->worker);
    free_db(d);
}

/* ---- state and variables --------------------------------------------------------------------- */

bool db_in_transaction(const db *d) {
    return atomic_load(&d->in_transaction);
}

bool db_transaction_failed(const db *d) {
    return atomic_load(&d->failed);
}

const char *db_path(const db *d) {
    return store_is_memory(d->store) ? ":memory:" : store_path(d->store);
}

const settings *db_settings(const db *d) {
    return &d->settings;
}

void db_set_variable(db *d, str name, str text) {
    for (int k = 0; k < d->nvariables; k++)
        if (str_equal(d->variables[2 * k], name)) {
            free((char *)(uintptr_t)d->variables[2 * k + 1].p);
            d->variables[2 * k + 1] = (str){mem_strndup(text.p, text.n), text.n};
            return;
        }
    d->variables =
        mem_realloc(d->variables, sizeof *d->variables * 2 * (size_t)(d->nvariables + 1));
    d->variables[2 * d->nvariables] = (str){mem_strndup(name.p, name.n), name.n};
    d->variables[2 * d->nvariables + 1] = (str){mem_strndup(text.p, text.n), text.n};
    d->nvariables++;
}

/* ---- on the worker: backup, damage, models --------------------------------------------------- */

typedef struct backup_request {
    db *db;
    const char *directory;
    const atomic_bool *cancel;
} backup_request;

static int backup(void *arg, err *e) {
    const backup_request *r = arg;
    return store_backup(r->db->store, r->directory, r->cancel, e);
}

int db_backup(db *d, const char *directory, const atomic_bool *cancel, err *e) {
    backup_request r = {d, directory, cancel};
    return worker_call(&d->worker, backup, &r, e);
}

typedef struct damage_request {
    db *db;
    const char *directory, *from;
    const atomic_bool *cancel;
    buf *report;
    uint64_t faults;
    bool whole;
} damage_request;

static int check(void *arg, err *e) {
    damage_request *r = arg;
    return store_check(r->db->store, r->from, r->cancel, r->report, &r->faults, e);
}

int db_check(db *d, const char *from, const atomic_bool *cancel, buf *report, uint64_t *faults,
             err *e) {
    damage_request r = {.db = d, .from = from, .cancel = cancel, .report = report};
    int status = worker_call(&d->worker, check, &r, e);
    *faults = r.faults;
    return status;
}

static int recover(void *arg, err *e) {
    damage_request *r = arg;
    return store_recover(r->db->store, r->directory, r->from, r->cancel, r->report, &r->whole, e);
}

int db_recover(db *d, const char *directory, const char *from, const atomic_bool *cancel,
               buf *report, bool *whole, err *e) {
    damage_request r = {
        .db = d, .directory = directory, .from = from, .cancel = cancel, .report = report};
    int status = worker_call(&d->worker, recover, &r, e);
    *whole = r.whole;
    return status;
}

/* Opens the default model, found through the current catalog. The caller must release it
 * with engine_release. */
static int open_model(db *d, const atomic_bool *cancel, llm_engine **out, err *e) {
    txn *t = d->txn;
    int status = t ? 0 : txn_begin(d->store, false, NULL, &t, e);
    if (status)
        return status;
    status = engine_acquire(d, &d->settings, txn_catalog(t), STR(""), false, cancel, out, e);
    if (t != d->txn)
        txn_abort(t);
    return status;
}

typedef struct info_request {
    db *db;
    arena *mem;
    llm_model_info *out;
    const atomic_bool *cancel;
} info_request;

static int model_info(void *arg, err *e) {
    const info_request *r = arg;
    llm_engine *engine;
    int status = open_model(r->db, r->cancel, &engine, e);
    if (status)
        return status;
    buf about = {0};
    if (llm_engine_info(engine)->remote)
        status = llm_engine_probe(engine, r->cancel, &about, e);
    llm_engine_info_copy(engine, r->mem, r->out);
    r->out->servers = about.n > 0 ? arena_strndup(r->mem, about.p, about.n) : NULL;
    buf_free(&about);
    engine_release(r->db, engine);
    return status;
}

int db_model_info(db *d, arena *mem, llm_model_info *out, const atomic_bool *cancel, err *e) {
    info_request r = {d, mem, out, cancel};
    return worker_call(&d->worker, model_info, &r, e);
}

typedef struct tokenize_request {
    db *db;
    str text;
    buf *out;
    const atomic_bool *cancel;
} tokenize_request;

static int tokenize(void *arg, err *e) {
    tokenize_request *r = arg;
    llm_engine *engine;
    size_t count;
    int status = open_model(r->db, r->cancel, &engine, e);
    if (status)
        return status;
    llm_token *tokens = llm_tokenize(engine, r->text, false, false, &count);
    buf_printf(r->out, "%zu token%s\n", count, count == 1 ? "" : "s");
    for (size_t k = 0; k < count; k++) {
        buf_printf(r->out, "%d\t", (int)tokens[k]);
        llm_detokenize(engine, &tokens[k], 1, true, r->out);
        buf_append_char(r->out, '\n');
    }
    free(tokens);
    engine_release(r->db, engine);
    return 0;
}

int db_tokenize(db *d, str text, buf *out, const atomic_bool *cancel, err *e) {
    tokenize_request r = {d, text, out, cancel};
    return worker_call(&d->worker, tokenize, &r, e);
}

/* ---- statements ------------------------------------------------------------------------------ */

stmt *db_prepare(db *d, str text) {
    return stmt_new(d, text);
}

stmt *db_submit(db *d, str text) {
    stmt *s = stmt_new(d, text);
    stmt_run(s);
    return s;
}
