/*
 * pool_int.h - an engine's thread pool; a job is a function over task numbers 0 .. tasks - 1.
 *
 * Worker 0 is the calling thread. Every worker sets OpenMP to one thread, since oneDNN's primitives
 * run inside tasks. Any worker may run any task in any order, so a task's result must not depend on
 * the worker.
 */
#ifndef KVASIR_POOL_INT_H
#define KVASIR_POOL_INT_H

#include <stdatomic.h>

#include "storage/base.h"

typedef struct pool pool;
typedef void (*pool_task)(void *ctx, int task, int worker);

pool *pool_new(int threads); /* threads >= 1; makes fewer if the system refuses threads */
void pool_free(pool *p);
int pool_threads(const pool *p);
/* Runs a job and returns when all tasks are done. One caller at a time: sessions that share an
 * engine hold pool_lock. */
void pool_run(pool *p, int tasks, pool_task fn, void *ctx);
/* Sets the cancel flag of later jobs: once *cancel is true, tasks that have not begun are skipped.
 * NULL: no task is skipped. Must not be called during a job. */
void pool_let_cancel(pool *p, const atomic_bool *cancel);
/* Returns ERR_CANCELLED if *cancel is true, so that tasks may have been skipped; else 0. p may be
 * NULL. */
int pool_check(const pool *p, err *e);
void pool_lock(pool *p);
void pool_unlock(pool *p);

#endif
