/*
 * pool_int.h - one pool of threads per engine; a job is a function over task numbers 0..tasks-1.
 *
 * Worker 0 is the caller. Every worker tells OpenMP to use one thread, since oneDNN's primitives
 * run inside tasks. Tasks are taken in any order by any worker: a task's result must not depend on
 * which worker runs it.
 */
#ifndef KVASIR_POOL_INT_H
#define KVASIR_POOL_INT_H

#include <stdatomic.h>

#include "storage/base.h"

typedef struct pool pool;
typedef void (*pool_task)(void *ctx, int task, int worker);

pool *pool_new(int threads); /* at least 1; fewer when the system refuses threads */
void pool_free(pool *p);
int pool_threads(const pool *p);
/* Returns when all tasks are done. One caller at a time:
 * lock around it with pool_lock where sessions may race. */
void pool_run(pool *p, int tasks, pool_task fn, void *ctx);
/* From now on tasks that have not begun are skipped once *cancel is true; NULL: none are. Between
 * jobs; what a job left undone is for its caller to know. */
void pool_let_cancel(pool *p, const atomic_bool *cancel);
/* ERR_CANCELLED where tasks may have been skipped; p NULL: there are no threads to skip them. */
int pool_check(const pool *p, err *e);
void pool_lock(pool *p);
void pool_unlock(pool *p);

#endif
