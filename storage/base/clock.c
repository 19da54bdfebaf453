/*
 * clock.c - monotonic and CPU clocks, for measuring and waiting.
 */
#include <time.h>

#include "storage/base.h"

static double read_ms(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

double clock_ms(void) {
    return read_ms(CLOCK_MONOTONIC);
}

double clock_thread_ms(void) {
    return read_ms(CLOCK_THREAD_CPUTIME_ID);
}
