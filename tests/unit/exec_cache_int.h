/*
 * exec_cache_int.h - a cache for the tests of a program alone: that of databases in memory is the
 * user's; and where the default model is.
 */
#ifndef KVASIR_EXEC_CACHE_INT_H
#define KVASIR_EXEC_CACHE_INT_H

#include <stdbool.h>
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

/* Writes the path of KVASIR_MODEL or the default model; false: there is none, or the program is
 * sanitized: oneDNN's libgomp gives false reports, and passes take long. */
static inline bool find_model(char out[4096]) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    out[0] = '\0';
    return false;
#endif
    const char *model = getenv("KVASIR_MODEL"), *data = getenv("XDG_DATA_HOME"),
               *home = getenv("HOME");
    if (model && *model)
        snprintf(out, 4096, "%s", model);
    else if (data && *data)
        snprintf(out, 4096, "%s/kvasir/models/SmolLM2-135M-Instruct.Q4_1.gguf", data);
    else
        snprintf(out, 4096, "%s/.local/share/kvasir/models/SmolLM2-135M-Instruct.Q4_1.gguf",
                 home ? home : "");
    return access(out, R_OK) == 0;
}

#endif
