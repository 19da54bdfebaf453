/*
 * worker.c - a thread that runs one job at a time, and waiting between two threads.
 *
 * Invariant: at most one job is posted and not yet finished.
 */
#include <signal.h>
#include <unistd.h>

#include "worker_int.h"

/* ---- waiting --------------------------------------------------------------------------------- */

/* Whether two threads can run at the same time. */
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

/* Waking a sleeping thread takes 1 us on bare metal and about 40 us in a virtual machine.
 * SPIN_MAX_MS is longer than that: if both threads polled for a shorter time, each would always
 * find the other asleep. On a busy machine the other thread may be waiting for the core on which
 * this thread polls. So the polling time shrinks while polling fails, and is reset every SPIN_RETRY
 * waits. */
static const double SPIN_MAX_MS = .2, SPIN_MIN_MS = .001;
enum { SPIN_RETRY = 64, PAUSES_PER_CLOCK_READ = 16 };

void spin_until(spin *s, const atomic_uint *counter, unsigned seen) {
    if (s->waits++ % SPIN_RETRY == 0)
        s->longest_ms = SPIN_MAX_MS;
    if (!has_two_cores() || s->longest_ms < SPIN_MIN_MS)
        return;
    double end_ms = clock_ms() + s->longest_ms;
    do {
        for (int k = 0; k < PAUSES_PER_CLOCK_READ; k++) {
            if (atomic_load_explicit(counter, memory_order_acquire) != seen) {
                s->longest_ms = BASE_MIN(SPIN_MAX_MS, s->longest_ms * 2);
                return;
            }
            short_pause();
        }
    } while (clock_ms() < end_ms);
    s->longest_ms /= 4;
}

void short_lock_init(pthread_mutex_t *lock) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

void steady_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void wait_for_job(worker *w, unsigned seen) {
    spin_until(&w->spin, &w->posted, seen);
    if (atomic_load_explicit(&w->posted, memory_order_acquire) != seen)
        return;
    pthread_mutex_lock(&w->lock);
    w->sleeping = true;
    while (atomic_load_explicit(&w->posted, memory_order_acquire) == seen)
        pthread_cond_wait(&w->work, &w->lock);
    w->sleeping = false;
    pthread_mutex_unlock(&w->lock);
}

static void *worker_main(void *arg) {
    worker *w = arg;
    unsigned seen = 0;
    for (;;) {
        wait_for_job(w, seen);
        seen++;
        pthread_mutex_lock(&w->lock);
        bool quit = w->quit;
        void (*job)(void *) = w->job;
        void *job_arg = w->arg;
        pthread_mutex_unlock(&w->lock);
        if (quit)
            return NULL;
        job(job_arg);
    }
}

/* ---- posting --------------------------------------------------------------------------------- */

static void post(worker *w, bool quit, void (*job)(void *), void *arg) {
    pthread_mutex_lock(&w->lock);
    w->quit = quit;
    w->job = job;
    w->arg = arg;
    atomic_fetch_add_explicit(&w->posted, 1, memory_order_release);
    if (w->sleeping)
        pthread_cond_signal(&w->work);
    pthread_mutex_unlock(&w->lock);
}

void worker_post(worker *w, void (*job)(void *arg), void *arg) {
    post(w, false, job, arg);
}

typedef struct call_job {
    int (*fn)(void *arg, err *e);
    void *arg;
    err *e;
    int status;
    bool done;
    pthread_mutex_t lock;
    pthread_cond_t changed;
} call_job;

static void run_call(void *arg) {
    call_job *c = arg;
    int status = c->fn(c->arg, c->e);
    pthread_mutex_lock(&c->lock);
    c->status = status;
    c->done = true;
    pthread_cond_signal(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

int worker_call(worker *w, int (*fn)(void *arg, err *e), void *arg, err *e) {
    call_job c = {.fn = fn,
                  .arg = arg,
                  .e = e,
                  .lock = PTHREAD_MUTEX_INITIALIZER,
                  .changed = PTHREAD_COND_INITIALIZER};
    worker_post(w, run_call, &c);
    pthread_mutex_lock(&c.lock);
    while (!c.done)
        pthread_cond_wait(&c.changed, &c.lock);
    pthread_mutex_unlock(&c.lock);
    pthread_cond_destroy(&c.changed);
    pthread_mutex_destroy(&c.lock);
    return c.status;
}

/* ---- start, stop ----------------------------------------------------------------------------- */

static void destroy(worker *w) {
    pthread_cond_destroy(&w->work);
    pthread_mutex_destroy(&w->lock);
}

/* Blocks process-directed signals in the worker and the threads that it starts, so that handlers
 * run on the thread that opened the db: on another thread, a handler could run while the db's
 * thread frees the statement that the handler cancels. Synchronous faults are not blocked. */
int worker_start(worker *w, err *e) {
    static const int sent[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
    sigset_t others, before;
    short_lock_init(&w->lock);
    pthread_cond_init(&w->work, NULL);
    sigemptyset(&others);
    for (size_t k = 0; k < BASE_COUNT(sent); k++)
        sigaddset(&others, sent[k]);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    int rc = pthread_create(&w->thread, NULL, worker_main, w);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        return 0;
    destroy(w);
    return err_set_errno(e, rc, "cannot start the worker thread");
}

void worker_stop(worker *w) {
    post(w, true, NULL, NULL);
    pthread_join(w->thread, NULL);
    destroy(w);
}
