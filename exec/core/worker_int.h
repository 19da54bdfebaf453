/*
 * worker_int.h - a thread that runs one job at a time, and waiting between two threads.
 *
 * Threads poll a counter for some microseconds before they sleep, so that posting a job to a thread
 * that is awake takes no system call.
 */
#ifndef KVASIR_WORKER_INT_H
#define KVASIR_WORKER_INT_H

#include <pthread.h>

#include "storage/base.h"

/* The polling time of a waiting thread, adapted to how often polling succeeds. */
typedef struct spin {
    double longest_ms; /* maximum polling time of the next wait */
    unsigned waits;    /* number of waits so far */
} spin;

/* Polls the counter until it differs from `seen` or the polling time is up. */
void spin_until(spin *s, const atomic_uint *counter, unsigned seen);
/* A mutex that spins before it sleeps, for locks that are held briefly. */
void short_lock_init(pthread_mutex_t *lock);
/* A condition variable whose timed waits use CLOCK_MONOTONIC. */
void steady_cond_init(pthread_cond_t *cond);

typedef struct worker {
    pthread_t thread;
    pthread_mutex_t lock; /* protects sleeping, quit, job, arg */
    pthread_cond_t work;
    bool sleeping, quit;
    void (*job)(void *arg);
    void *arg;
    spin spin;
    atomic_uint posted; /* number of jobs posted so far; worker_stop counts as one */
} worker;

int worker_start(worker *w, err *e); /* *w is zero-initialised */
void worker_stop(worker *w);         /* waits until the thread ends */
/* Starts a job on the worker's thread; the previous one must have ended. */
void worker_post(worker *w, void (*job)(void *arg), void *arg);
/* Runs fn on the worker's thread, waits for it and returns its status. */
int worker_call(worker *w, int (*fn)(void *arg, err *e), void *arg, err *e);

#endif
