/*
 * progress_board.c - passes a statement's latest progress from the worker to the caller's thread.
 */
#include "progress_board_int.h"

void progress_init(progress_board *p) {
    pthread_mutex_init(&p->lock, NULL);
    p->latest = (exec_progress){0};
}

void progress_destroy(progress_board *p) {
    pthread_mutex_destroy(&p->lock);
}

void progress_publish(progress_board *p, const exec_progress *latest) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->latest = *latest;
    pthread_mutex_unlock(&p->lock);
}

void progress_read(progress_board *p, exec_progress *out) {
    pthread_mutex_lock(&p->lock);
    *out = p->latest;
    pthread_mutex_unlock(&p->lock);
}
