/*
 * stmt_result.c - the queue of result batches from the worker to the caller, and the functions that
 * the caller uses on a statement.
 *
 * Invariant: the queue holds at most about QUEUE_BYTES, so a slow reader slows the worker down
 * instead of filling memory. A batch belongs to the caller until the next stmt_next. stmt_next
 * polls a counter for some microseconds before it sleeps.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stmt_int.h"

enum { QUEUE_BYTES = 16 << 20 };

static void result_free(result *r) {
    while (r) {
        result *next = r->next;
        arena_free(r->mem);
        free(r);
        r = next;
    }
}

void stmt_drop_results(stmt *s) {
    result_free(s->head);
    result_free(s->idle);
    result_free(s->current);
    s->head = s->tail = s->idle = s->current = NULL;
    s->queued_bytes = 0;
}

void stmt_recycle_results(stmt *s) {
    /* batches that the caller did not take */
    while (s->head) {
        result *r = s->head;
        s->head = r->next;
        r->next = s->idle;
        s->idle = r;
    }
    if (s->current) {
        s->current->next = s->idle;
        s->idle = s->current;
    }
    s->tail = s->current = NULL;
    s->queued_bytes = 0;
    /* frees all results but one */
    while (s->idle && s->idle->next) {
        result *r = s->idle;
        s->idle = r->next;
        r->next = NULL;
        result_free(r);
    }
}

/* ---- results: the worker's side -------------------------------------------------------------- */

void stmt_notify(stmt *s) {
    atomic_fetch_add_explicit(&s->events, 1, memory_order_release);
    if (s->waiting)
        pthread_cond_broadcast(&s->changed);
}

void stmt_describe(stmt *s, int ncols, const str *names, const value_type *types, text_form form) {
    const char **own = ARENA_ARRAY(s->mem, const char *, BASE_MAX(ncols, 1));
    value_type *own_types = ARENA_ARRAY(s->mem, value_type, BASE_MAX(ncols, 1));
    for (int c = 0; c < ncols; c++) {
        own[c] = arena_strndup(s->mem, names[c].p, names[c].n);
        own_types[c] = types[c];
    }
    pthread_mutex_lock(&s->lock);
    s->ncols = ncols;
    s->names = own;
    s->types = own_types;
    s->form = form;
    pthread_mutex_unlock(&s->lock);
}

static size_t copy_column(arena *mem, const column *from, value_type type, int rows, column *to) {
    size_t bytes = 0;
    bool text = type_is_bytes(type);
    *to = (column){.type = type};
    if (from->type == TYPE_NULL || from->null) {
        to->null = arena_alloc(mem, (size_t)rows);
        if (from->type == TYPE_NULL)
            memset(to->null, 1, (size_t)rows);
        else
            memcpy(to->null, from->null, (size_t)rows);
    }
    if (from->type == TYPE_NULL) {
        to->i = arena_zalloc(mem, sizeof(str) * (size_t)rows);
        return sizeof(str) * (size_t)rows;
    }
    if (!text) {
        to->i = arena_alloc(mem, sizeof(int64_t) * (size_t)rows);
        memcpy(to->i, from->i, sizeof(int64_t) * (size_t)rows);
        return sizeof(int64_t) * (size_t)rows;
    }
    to->s = arena_alloc(mem, sizeof(str) * (size_t)rows);
    for (int k = 0; k < rows; k++)
        bytes += column_is_null(from, k) ? 0 : from->s[k].n;
    char *p = arena_alloc(mem, bytes + 1);
    for (int k = 0; k < rows; k++) {
        size_t n = column_is_null(from, k) ? 0 : from->s[k].n;
        if (n)
            memcpy(p, from->s[k].p, n);
        to->s[k] = (str){p, n};
        p += n;
    }
    return bytes + sizeof(str) * (size_t)rows;
}

static void add_ms(struct timespec *t, int ms) {
    t->tv_sec += ms / 1000;
    t->tv_nsec += (long)(ms % 1000) * 1000000;
    if (t->tv_nsec >= 1000000000) {
        t->tv_sec++;
        t->tv_nsec -= 1000000000;
    }
}

/* Waits until the queue has room, and returns a result to fill. Returns NULL if the statement was
 * cancelled. */
static result *result_take(stmt *s) {
    pthread_mutex_lock(&s->lock);
    while (s->queued_bytes > QUEUE_BYTES && !atomic_load(&s->cancel)) {
        struct timespec until; /* the cancel flag is polled, since stmt_cancel wakes no thread */
        clock_gettime(CLOCK_MONOTONIC, &until);
        add_ms(&until, 20);
        s->waiting = true;
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
    }
    result *r = s->idle;
    if (r)
        s->idle = r->next;
    pthread_mutex_unlock(&s->lock);
    if (atomic_load(&s->cancel)) {
        if (r) {
            r->next = NULL;
            result_free(r);
        }
        return NULL;
    }
    if (!r) {
        r = mem_zalloc(sizeof *r);
        r->mem = arena_new();
    }
    return r;
}

int stmt_push(stmt *s, const batch *b, err *e) {
    if (b->rows == 0)
        return 0;
    s->summary.rows += (uint64_t)b->rows;
    if (s->drops_rows)
        return 0;
    result *r = result_take(s);
    if (!r)
        return err_set(e, ERR_CANCELLED, "cancelled");
    arena_reset(r->mem);
    r->next = NULL;
    r->bytes = 0;
    r->rows = (batch){.rows = b->rows, .ncols = b->ncols, .mem = r->mem};
    r->rows.cols = arena_alloc(r->mem, sizeof(column) * (size_t)BASE_MAX(b->ncols, 1));
    for (int c = 0; c < b->ncols; c++)
        r->bytes += copy_column(r->mem, &b->cols[c], s->types[c], b->rows, &r->rows.cols[c]);
    pthread_mutex_lock(&s->lock);
    if (s->head)
        s->tail->next = r;
    else
        s->head = r;
    s->tail = r;
    s->queued_bytes += r->bytes;
    stmt_notify(s);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int stmt_push_text(stmt *s, str name, str text, text_form form, err *e) {
    value_type type = TYPE_TEXT;
    batch b;
    stmt_describe(s, 1, &name, &type, form);
    batch_init(&b, s->mem, &type, 1, 1);
    b.rows = 1;
    b.cols[0].s[0] = text;
    return stmt_push(s, &b, e);
}

/* ---- the caller's side ----------------------------------------------------------------------- */

/* Waits for a batch or the statement's end. Returns false if the time is up. Called under the
 * lock. */
static bool wait_for_event(stmt *s, int timeout_ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    add_ms(&until, BASE_MAX(timeout_ms, 0));
    while (!s->head && !s->finished) {
        s->waiting = true;
        int rc = 0;
        if (timeout_ms < 0)
            pthread_cond_wait(&s->changed, &s->lock);
        else
            rc = pthread_cond_timedwait(&s->changed, &s->lock, &until);
        if (rc == ETIMEDOUT)
            return s->head || s->finished;
    }
    return true;
}

stmt_status stmt_next(stmt *s, int timeout_ms, const batch **out, err *e) {
    stmt_status status = STMT_ROWS;
    *out = NULL;
    if (timeout_ms != 0)
        spin_until(&s->db->caller_spin, &s->events, s->events_seen);
    pthread_mutex_lock(&s->lock);
    if (s->current) {
        s->current->next = s->idle;
        s->idle = s->current;
        s->current = NULL;
    }
    if (!wait_for_event(s, timeout_ms)) {
        status = STMT_PENDING;
    } else if (s->head) {
        s->current = s->head;
        s->head = s->head->next;
        s->queued_bytes -= s->current->bytes;
        *out = &s->current->rows;
        s->events_seen++;
        if (s->waiting)
            pthread_cond_broadcast(&s->changed);
    } else if (s->status) {
        *e = s->error;
        status = STMT_ERROR;
    } else {
        status = STMT_DONE;
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

void stmt_cancel(stmt *s) {
    atomic_store(&s->cancel, true);
}

void stmt_pause(stmt *s, bool paused) {
    atomic_store(&s->view.paused, paused);
}

void stmt_watch(stmt *s, bool watched) {
    atomic_store(&s->view.watched, watched);
}

void stmt_compare(stmt *s, bool wanted) {
    atomic_store(&s->view.compared, wanted);
}

int stmt_column_count(const stmt *s) {
    return s->ncols;
}

const char *stmt_column_name(const stmt *s, int column_at) {
    return s->names[column_at];
}

value_type stmt_column_type(const stmt *s, int column_at) {
    return s->types[column_at];
}

int64_t stmt_changes(const stmt *s) {
    return s->changes;
}

stmt_kind stmt_what(const stmt *s) {
    return s->kind;
}

text_form stmt_text_form(const stmt *s) {
    return s->form;
}

void stmt_progress(stmt *s, exec_progress *out) {
    double now = clock_seconds();
    progress_read(&s->progress, out);
    /* while paused, `seconds` stays as it was when the pause began */
    if (out->paused)
        return;
    out->seconds = now - s->started_s - out->held_seconds;
}

void stmt_summary(const stmt *s, exec_summary *out) {
    *out = s->summary;
}

const char *stmt_notice(const stmt *s) {
    return s->notice.n ? s->notice.p : "";
}

workmem *stmt_workmem(stmt *s) {
    return s->space;
}
