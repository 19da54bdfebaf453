/*
 * pool.c - the threads that run tiles.
 *
 * Invariant: between jobs every worker waits for `generation` to change; a job is over when `running` is zero. Workers
 * spin briefly before they sleep, since a pass is hundreds of short jobs. No OpenMP of our own (it hides from TSan).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "pool_int.h"

/* libgomp's, which oneDNN links; the header is the compiler's and absent with clang. */
extern void omp_set_num_threads(int);

enum { SPINS = 4000 };

struct pool {
    int threads;
    pthread_t *ids;
    pthread_mutex_t mutex, callers;
    pthread_cond_t wake;
    atomic_uint generation;
    atomic_int next, running;
    atomic_bool stop;
    int tasks;
    pool_task fn;
    void *ctx;
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

static void work(pool *p, int worker) {
    int task;
    while ((task = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->tasks) {
        p->fn(p->ctx, task, worker);
    }
}

static unsigned wait_for_job(pool *p, unsigned seen) {
    for (int i = 0; i < SPINS; i++) {
        unsigned g = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (g != seen) {
            return g;
        }
        relax();
    }
    pthread_mutex_lock(&p->mutex);
    unsigned g;
    while ((g = atomic_load_explicit(&p->generation, memory_order_acquire)) == seen) {
        pthread_cond_wait(&p->wake, &p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
    return g;
}

static void *worker_main(void *arg) {
    worker_start start = *(worker_start *)arg;
    free(arg);
    omp_set_num_threads(1);
    unsigned seen = 0;
    for (;;) {
        seen = wait_for_job(start.p, seen);
        if (atomic_load_explicit(&start.p->stop, memory_order_relaxed)) {
            return NULL;
        }
        work(start.p, start.index);
        atomic_fetch_sub_explicit(&start.p->running, 1, memory_order_release);
    }
}

static void announce(pool *p) {
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_release);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->mutex);
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
    if (p == NULL) {
        return;
    }
    atomic_store(&p->stop, true);
    announce(p);
    for (int i = 1; i < p->threads; i++) {
        pthread_join(p->ids[i], NULL);
    }
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
    omp_set_num_threads(1); /* the caller's thread may be a new one */
    if (p->threads == 1 || tasks <= 1) {
        for (int i = 0; i < tasks; i++) {
            fn(ctx, i, 0);
        }
        return;
    }
    p->tasks = tasks;
    p->fn = fn;
    p->ctx = ctx;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->running, p->threads - 1, memory_order_relaxed);
    announce(p);
    work(p, 0);
    while (atomic_load_explicit(&p->running, memory_order_acquire) > 0) {
        relax();
    }
}

void pool_lock(pool *p) {
    pthread_mutex_lock(&p->callers);
}

void pool_unlock(pool *p) {
    pthread_mutex_unlock(&p->callers);
}
