/*
 * progress_board_int.h - a statement's latest progress, shared by the worker and the caller's
 * thread.
 */
#ifndef KVASIR_PROGRESS_BOARD_INT_H
#define KVASIR_PROGRESS_BOARD_INT_H

#include <pthread.h>

#include "core/exec_ctx_int.h"

struct progress_board {
    pthread_mutex_t lock;
    exec_progress latest;
};

void progress_init(progress_board *p);
void progress_destroy(progress_board *p);
void progress_publish(progress_board *p, const exec_progress *latest); /* copies; p may be NULL */
void progress_read(progress_board *p, exec_progress *out);

#endif
