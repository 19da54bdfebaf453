/*
 * db.c - the database handle: opening and closing, the worker thread, handing jobs over, facts kept
 * beside the catalog.
 *
 * Invariant: the worker alone uses the store's transactions, as long as the db lives. One job is
 * out at a time; who posts waits for its end before the next. A hand-over costs no system call when
 * both sides are awake: each looks at a counter for some microseconds before it sleeps.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "db_int.h"

/* ---- the worker ------------------------------------------------------------------------------ */

/* Whether two threads can run at once at all. */
static bool has_two_cores(void) {
    static atomic_int cores;
    int n = atomic_load_explicit(&cores, memory_order_relaxed);
    if (n == 0) {
        n = (int)sysconf(_SC_NPROCESSORS_ONLN);
        atomic_store_explicit(&cores, n, memory_order_relaxed);
    }
    return n > 1;
}

static inline void short_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Waking a sleeper takes 1 us on a bare machine and some 40 in a virtual one. It is looked on for
 * longer than that: where the other side has to be woken first, it is late by so much, and if both
 * then went to sleep, each would for ever find the other asleep. On a busy machine the other thread
 * waits for a core, perhaps ours: looking on then costs both. So what did not help is tried less and
 * less, but never quite given up. */
static const double SPIN_MOST_MS = .2, SPIN_LEAST_MS = .001;
enum { SPIN_TRY = 64, PAUSES_A_LOOK = 16 };

void spin_until(spin *s, const atomic_uint *counter, unsigned seen) {
    if (s->waits++ % SPIN_TRY == 0)
        s->longest_ms = SPIN_MOST_MS;
    if (!has_two_cores() || s->longest_ms < SPIN_LEAST_MS)
        return;
    double end_ms = clock_ms() + s->longest_ms;
    do {
        for (int k = 0; k < PAUSES_A_LOOK; k++) {
            if (atomic_load_explicit(counter, memory_order_acquire) != seen) {
                s->longest_ms = BASE_MIN(SPIN_MOST_MS, s->longest_ms * 2);
                return;
            }
            short_pause();
        }
    } while (clock_ms() < end_ms);
    s->longest_ms /= 4;
}

/* A lock that is held for less time than going to sleep takes. */
void short_lock_init(pthread_mutex_t *lock) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

/* Waits for it end by a clock that nobody sets. */
void steady_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

static void wait_for_job(db *d, unsigned seen) {
    spin_until(&d->spin, &d->posted, seen);
    if (atomic_load_explicit(&d->posted, memory_order_acquire) != seen)
        return;
    pthread_mutex_lock(&d->lock);
    d->sleeping = true;
    while (atomic_load_explicit(&d->posted, memory_order_acquire) == seen)
        pthread_cond_wait(&d->work, &d->lock);
    d->sleeping = false;
    pthread_mutex_unlock(&d->lock);
}

static void *worker_main(void *arg) {
    db *d = arg;
    unsigned seen = 0;
    for (;;) {
        wait_for_job(d, seen);
        seen++;
        pthread_mutex_lock(&d->lock);
        bool quit = d->quit;
        void (*job)(db *, void *) = d->job;
        void *job_arg = d->job_arg;
        pthread_mutex_unlock(&d->lock);
        if (quit)
            return NULL;
        job(d, job_arg);
    }
}

static void post(db *d, bool quit, void (*job)(db *, void *), void *arg) {
    pthread_mutex_lock(&d->lock);
    d->quit = quit;
    d->job = job;
    d->job_arg = arg;
    atomic_fetch_add_explicit(&d->posted, 1, memory_order_release);
    if (d->sleeping)
        pthread_cond_signal(&d->work);
    pthread_mutex_unlock(&d->lock);
}

static void db_post(db *d, void (*job)(db *d, void *arg), void *arg) {
    post(d, false, job, arg);
}

typedef struct call_job {
    int (*fn)(db *d, void *arg, err *e);
    void *arg;
    err *e;
    int status;
    bool done;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} call_job;

static void run_call(db *d, void *arg) {
    call_job *c = arg;
    int status = c->fn(d, c->arg, c->e);
    pthread_mutex_lock(&c->lock);
    c->status = status;
    c->done = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

int db_call(db *d, int (*fn)(db *d, void *arg, err *e), void *arg, err *e) {
    call_job c = {.fn = fn,
                  .arg = arg,
                  .e = e,
                  .lock = PTHREAD_MUTEX_INITIALIZER,
                  .changed = PTHREAD_COND_INITIALIZER};
    db_post(d, run_call, &c);
    pthread_mutex_lock(&c.lock);
    while (!c.done)
        pthread_cond_wait(&c.changed, &c.lock);
    pthread_mutex_unlock(&c.lock);
    pthread_cond_destroy(&c.changed);
    pthread_mutex_destroy(&c.lock);
    return c.status;
}

/* ---- open, close ----------------------------------------------------------------------------- */

typedef struct open_request {
    const db_options *options;
} open_request;

static int open_store(db *d, void *arg, err *e) {
    const db_options *o = ((open_request *)arg)->options;
    store_options options = {.path = o->path,
                             .read_only = o->read_only,
                             .must_exist = o->must_exist,
                             .cache_bytes = (size_t)d->settings.kv_disk};
    return store_open(&options, &d->store, e);
}

static int close_store(db *d, void *arg, err *e) {
    (void)arg, (void)e;
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
    for (int k = 0; k < d->nseen; k++)
        free(d->seen[k].name);
    free(d->seen);
    free(d->model_override);
    settings_free(&d->settings);
    pthread_cond_destroy(&d->work);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

/* What is sent to the process is for the thread that opened the db: a handler that ran here could
 * find that thread anywhere, past the end of the statement it cancels, too. Threads that the worker
 * starts inherit this. Signals of a thread's own doing stay its own. */
static int start_worker(db *d) {
    static const int sent[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t others, before;
    sigemptyset(&others);
    for (size_t k = 0; k < BASE_COUNT(sent); k++)
        sigaddset(&others, sent[k]);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    int rc = pthread_create(&d->worker, NULL, worker_main, d);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static void stop_worker(db *d) {
    post(d, true, NULL, NULL);
    pthread_join(d->worker, NULL);
}

int db_open(const db_options *options, db **out, err *e) {
    db *d = mem_zalloc(sizeof *d);
    open_request request = {options};
    *out = NULL;
    settings_init(&d->settings);
    short_lock_init(&d->lock);
    pthread_cond_init(&d->work, NULL);
    if (options->model && *options->model)
        d->model_override = mem_strdup(options->model);
    int rc = start_worker(d);
    if (rc) {
        free_db(d);
        return err_set_errno(e, rc, "cannot start the worker thread");
    }
    int status = db_call(d, open_store, &request, e);
    if (status) {
        stop_worker(d);
        free_db(d);
        return status;
    }
    *out = d;
    return 0;
}

void db_close(db *d) {
    if (!d)
        return;
    (void)db_call(d, close_store, NULL, NULL); /* cannot fail */
    stop_worker(d);
    free_db(d);
}

/* ---- plain facts ----------------------------------------------------------------------------- */

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

store *db_store(db *d) {
    return d->store;
}

struct models **db_models(db *d) {
    return &d->models;
}

const char *db_model_override(const db *d) {
    return d->model_override;
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

/* ---- on the worker: facts, backup, models ---------------------------------------------------- */

static void fact_key(str key, buf *out) {
    buf_append_c(out, "fact/");
    buf_append_str(out, key);
}

static int remember(db *d, str key, str bytes, err *e) {
    txn *t;
    buf full = {0};
    txn_wait at_once = {.busy_timeout_ms = 0};
    int status = txn_begin(d->store, true, &at_once, &t, e);
    if (status)
        return status;
    fact_key(key, &full);
    status = meta_put(t, buf_str(&full), bytes, e);
    buf_free(&full);
    if (status == 0)
        return txn_commit(t, e);
    txn_abort(t);
    return status;
}

void exec_remember(exec_ctx *ctx, str key, str bytes) {
    db *d = ctx->db;
    err e;
    if (d->active || d->txn || store_is_read_only(d->store))
        return;
    int status = remember(d, key, bytes, &e);
    if (status && status != ERR_BUSY) /* another process writes: it is learned again */
        exec_notice(ctx, "what was learned of the calls is not kept: %s", e.message);
}

int db_recall(db *d, str key, arena *a, str *out, bool *found, err *e) {
    txn *t = d->active ? d->active : d->txn;
    bool own = !t;
    buf full = {0};
    int status = own ? txn_begin(d->store, false, NULL, &t, e) : 0;
    *found = false;
    if (status)
        return status;
    fact_key(key, &full);
    status = meta_get(t, buf_str(&full), out, found, e);
    if (status == 0 && *found)
        *out = str_copy(a, *out);
    if (own)
        txn_abort(t);
    buf_free(&full);
    return status;
}

typedef struct backup_request {
    const char *directory;
    const atomic_bool *cancel;
} backup_request;

static int backup(db *d, void *arg, err *e) {
    const backup_request *r = arg;
    return store_backup(d->store, r->directory, r->cancel, e);
}

int db_backup(db *d, const char *directory, const atomic_bool *cancel, err *e) {
    backup_request r = {directory, cancel};
    return db_call(d, backup, &r, e);
}

/* The standard model, looked up in the catalog of now; models_release it. */
static int open_model(db *d, const atomic_bool *cancel, llm_engine **out, err *e) {
    txn *t = d->txn;
    int status = t ? 0 : txn_begin(d->store, false, NULL, &t, e);
    if (status)
        return status;
    status = models_engine(d, &d->settings, txn_catalog(t), STR(""), cancel, out, e);
    if (t != d->txn)
        txn_abort(t);
    return status;
}

typedef struct info_request {
    arena *mem;
    llm_model_info *out;
    const atomic_bool *cancel;
} info_request;

static int model_info(db *d, void *arg, err *e) {
    const info_request *r = arg;
    llm_engine *engine;
    int status = open_model(d, r->cancel, &engine, e);
    if (status)
        return status;
    llm_engine_info_copy(engine, r->mem, r->out);
    models_release(d, engine);
    return 0;
}

int db_model_info(db *d, arena *mem, llm_model_info *out, const atomic_bool *cancel, err *e) {
    info_request r = {mem, out, cancel};
    return db_call(d, model_info, &r, e);
}

typedef struct tokenize_request {
    str text;
    buf *out;
    const atomic_bool *cancel;
} tokenize_request;

static int tokenize(db *d, void *arg, err *e) {
    tokenize_request *r = arg;
    llm_engine *engine;
    size_t count;
    int status = open_model(d, r->cancel, &engine, e);
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
    models_release(d, engine);
    return 0;
}

int db_tokenize(db *d, str text, buf *out, const atomic_bool *cancel, err *e) {
    tokenize_request r = {text, out, cancel};
    return db_call(d, tokenize, &r, e);
}

/* ---- statements ------------------------------------------------------------------------------ */

stmt *db_submit(db *d, str text) {
    stmt *s = stmt_new(d, text);
    db_post(d, stmt_execute, s);
    return s;
}
