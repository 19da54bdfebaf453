/*
 * exec_cache_int.h - a cache for the tests of a program alone: that of databases in memory is the
 * user's.
 */
#ifndef KVASIR_EXEC_CACHE_INT_H
#define KVASIR_EXEC_CACHE_INT_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A group's set-up: *state is the directory. */
static inline int own_cache(void **state) {
    static char dir[] = "/tmp/kvasir-test-XXXXXX";
    *state = mkdtemp(dir);
    return *state && setenv("XDG_CACHE_HOME", dir, 1) == 0 ? 0 : -1;
}

static inline int remove_cache(void **state) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", (char *)*state);
    return system(command);
}

#endif
