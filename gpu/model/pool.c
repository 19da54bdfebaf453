/*
 * pool.c - the engine's thread pool.
 *
 * A job is published in one atomic word, from which workers claim tasks:
 *
 *   claim  [generation:16 | tasks:24 | next:24]
 *
 * Invariant: the next job is published only when all tasks of the last one are done, so a worker
 * may read fn and ctx from the claim of a task until it counts the task as done. The caller does
 * not wait for workers that have claimed no task: on a busy machine it runs the whole job itself.
 * Workers spin briefly before they sleep, since a pass is hundreds of short jobs. OpenMP is not
 * used: TSan does not see its synchronization.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "pool_int.h"

/* A function of libgomp, which oneDNN links; declared here because its header comes with gcc and
 * not with clang. */
extern void omp_set_num_threads(int);

/* SPINS: polls for a job before a worker sleeps. YIELD_EVERY: polls for the last tasks before the
 * caller yields its core. */
enum { SPINS = 3000, CLAIM_BITS = 24, CLAIM_MASK = (1 << CLAIM_BITS) - 1, YIELD_EVERY = 256 };

struct pool {
    int threads;
    pthread_t *ids;
    pthread_mutex_t mutex;   /* held to wait for `wake` and to broadcast it */
    pthread_mutex_t callers; /* pool_lock */
    pthread_cond_t wake;     /* a job was published, or `stop` was set */
    atomic_uint_fast64_t claim;
    atomic_int done, sleepers;
    atomic_bool stop;
    uint64_t generation;
    pool_task fn;
    void *ctx;
    const atomic_bool *cancel; /* NULL: jobs cannot be cancelled */
};

typedef struct worker_start {
    pool *p;
    int index;
} worker_start;

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static int claim_next(uint64_t claim) {
    return (int)(claim & CLAIM_MASK);
}

static int claim_tasks(uint64_t claim) {
    return (int)(claim >> CLAIM_BITS & CLAIM_MASK);
}

static bool has_task(pool *p) {
    uint64_t claim = atomic_load(&p->claim);
    return claim_next(claim) < claim_tasks(claim);
}

static bool is_cancelled(const pool *p) {
    return p != NULL && p->cancel != NULL && atomic_load(p->cancel);
}

static void work(pool *p, int worker) {
    while (has_task(p)) {
        uint64_t claim = atomic_fetch_add(&p->claim, 1);
        if (claim_next(claim) >= claim_tasks(claim))
            return;
        if (!is_cancelled(p))
            p->fn(p->ctx, claim_next(claim), worker);
        atomic_fetch_add(&p->done, 1);
    }
}

static void wait_for_job(pool *p) {
    for (int i = 0; i < SPINS; i++) {
        if (has_task(p))
            return;
        relax();
    }
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->sleepers, 1);
    while (!has_task(p) && !atomic_load(&p->stop))
        pthread_cond_wait(&p->wake, &p->mutex);
    atomic_fetch_sub(&p->sleepers, 1);
    pthread_mutex_unlock(&p->mutex);
}

static void *worker_main(void *arg) {
    worker_start start = *(worker_start *)arg;
    free(arg);
    omp_set_num_threads(1);
    while (!atomic_load(&start.p->stop)) {
        wait_for_job(start.p);
        work(start.p, start.index);
    }
    return NULL;
}

static void wake_sleepers(pool *p) {
    if (atomic_load(&p->sleepers) > 0) {
        pthread_mutex_lock(&p->mutex);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->mutex);
    }
}

pool *pool_new(int threads) {
    pool *p = mem_zalloc(sizeof *p);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_mutex_init(&p->callers, NULL);
    pthread_cond_init(&p->wake, NULL);
    p->ids = mem_zalloc(sizeof *p->ids * (size_t)threads);
    p->threads = 1;
    while (p->threads < threads) {
        worker_start *start = mem_alloc(sizeof *start);
        *start = (worker_start){p, p->threads};
        if (pthread_create(&p->ids[p->threads], NULL, worker_main, start) != 0) {
            free(start);
            break;
        }
        p->threads++;
    }
    return p;
}

void pool_free(pool *p) {
    if (p == NULL)
        return;
    atomic_store(&p->stop, true);
    wake_sleepers(p);
    for (int i = 1; i < p->threads; i++)
        pthread_join(p->ids[i], NULL);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->mutex);
    pthread_mutex_destroy(&p->callers);
    free(p->ids);
    free(p);
}

int pool_threads(const pool *p) {
    return p->threads;
}

void pool_run(pool *p, int tasks, pool_task fn, void *ctx) {
    omp_set_num_threads(1); /* the setting is per thread, and the caller may be a new thread */
    if (p->threads == 1 || tasks <= 1 || tasks > CLAIM_MASK / 2) {
        for (int i = 0; i < tasks && !is_cancelled(p); i++)
            fn(ctx, i, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    atomic_store(&p->done, 0);
    p->generation++;
    atomic_store(&p->claim, (p->generation << (2 * CLAIM_BITS)) | ((uint64_t)tasks << CLAIM_BITS));
    wake_sleepers(p);
    work(p, 0);
    for (int spins = 1; atomic_load(&p->done) < tasks; spins++) {
        relax();
        if (spins % YIELD_EVERY == 0)
            sched_yield(); /* a worker with a task may have been preempted */
    }
}

void pool_let_cancel(pool *p, const atomic_bool *cancel) {
    p->cancel = cancel;
}

int pool_check(const pool *p, err *e) {
    return is_cancelled(p) ? err_set(e, ERR_CANCELLED, "cancelled") : 0;
}

void pool_lock(pool *p) {
    pthread_mutex_lock(&p->callers);
}

void pool_unlock(pool *p) {
    pthread_mutex_unlock(&p->callers);
}
