/*
 * worker_int.h - one thread that runs one job at a time, and how two threads wait for each other.
 *
 * Handing a job over takes no system call while both threads are awake: each polls a counter for
 * some microseconds before it sleeps.
 */
#ifndef KVASIR_WORKER_INT_H
#define KVASIR_WORKER_INT_H

#include <pthread.h>

#include "storage/base.h"

/* How long polling pays before sleeping: learned. */
typedef struct spin {
    double longest_ms;
    unsigned waits;
} spin;

/* Polls the counter for some microseconds, until it is not `seen`; returns early where polling has
 * not helped lately. */
void spin_until(spin *s, const atomic_uint *counter, unsigned seen);
/* A mutex that spins before it sleeps, for locks held for less time than a sleep takes. */
void short_lock_init(pthread_mutex_t *lock);
/* A condition whose timed waits end at a time of CLOCK_MONOTONIC. */
void steady_cond_init(pthread_cond_t *cond);

typedef struct worker {
    pthread_t thread;
    pthread_mutex_t lock; /* of the four below */
    pthread_cond_t work;
    bool sleeping, quit;
    void (*job)(void *arg);
    void *arg;
    spin spin;
    atomic_uint posted; /* jobs so far, the end included */
} worker;

int worker_start(worker *w, err *e); /* *w is zero */
void worker_stop(worker *w);         /* waits for the thread's end */
/* Runs the job on the worker's thread; the one before it must have ended. */
void worker_post(worker *w, void (*job)(void *arg), void *arg);
/* Runs fn on the worker's thread, waits for it and returns its status. */
int worker_call(worker *w, int (*fn)(void *arg, err *e), void *arg, err *e);

#endif
