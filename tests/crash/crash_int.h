/*
 * crash_int.h - the killing: a child that runs this very program with other arguments, a pipe on
 * which it acknowledges what it has made durable, and SIGKILL after a random while; rounds of it.
 */
#ifndef CRASH_INT_H
#define CRASH_INT_H

#include <ftw.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "storage/storage.h"

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static uint64_t crash_state;
static unsigned crash_seed; /* the last writer's */

static inline uint32_t crash_random(uint32_t n) {
    crash_state = crash_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(crash_state >> 33) % n;
}

/* Prints the seed: `program SEED` or KVASIR_CRASH_SEED repeats a run. Returns the number of rounds,
 * `usual` of them in the suite, ten times as many if that is long. */
static inline int crash_start(const char *seed, int usual) {
    const char *rounds = getenv("KVASIR_CRASH_ROUNDS");
    if (!seed)
        seed = getenv("KVASIR_CRASH_SEED");
    crash_state = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)crash_state);
    fflush(stdout);
    return rounds ? atoi(rounds) : getenv("KVASIR_LONG") ? usual * 10 : usual;
}

static inline int crash_remove_one(const char *path, const struct stat *st, int kind,
                                   struct FTW *at) {
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

/* Removes a folder and all in it. */
static inline void crash_remove(const char *path) {
    nftw(path, crash_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Runs `program --write DIR SEED`, its acknowledgements (int64 each)
 * on its standard output, kills it between `ms` / 2 and `ms` after
 * the first, and returns the last one, or -1 when there was none. */
static inline int64_t crash_kill_writer(const char *dir, int ms) {
    int up[2];
    CHECK(pipe(up) == 0, "pipe");
    char seed[32];
    crash_seed = crash_random(1u << 30);
    snprintf(seed, sizeof seed, "%u", crash_seed);
    pid_t pid = fork(); /* nothing is open in this process */
    if (pid == 0) {
        dup2(up[1], STDOUT_FILENO);
        close(up[0]);
        close(up[1]);
        execl("/proc/self/exe", "writer", "--write", dir, seed, (char *)NULL);
        _exit(127);
    }
    close(up[1]);
    int64_t last = -1, ack;
    bool first = read(up[0], &ack, sizeof ack) == sizeof ack;
    if (first)
        last = ack;
    struct timespec pause = {.tv_nsec = (long)(ms / 2 + (int)crash_random((uint32_t)(ms / 2 + 1))) *
                                        1000000L};
    nanosleep(&pause, NULL);
    kill(pid, SIGKILL);
    while (read(up[0], &ack, sizeof ack) == sizeof ack)
        last = ack;
    close(up[0]);
    int status;
    waitpid(pid, &status, 0);
    CHECK(WIFSIGNALED(status), "the writer ended by itself with status %d", status);
    return last;
}

typedef struct crash_test {
    int (*writer)(const char *dir,
                  const char *seed); /* writes and acknowledges until it is killed */
    /* One round: kills a writer of `database` and checks what it left. */
    void (*round)(const char *database);
    int rounds; /* in the suite */
} crash_test;

static inline int crash_main(int argc, char **argv, const crash_test *t) {
    if (argc == 4 && strcmp(argv[1], "--write") == 0)
        return t->writer(argv[2], argv[3]);
    int rounds = crash_start(argc > 1 ? argv[1] : NULL, t->rounds);
    const char *tmp = getenv("TMPDIR");
    char dir[256], database[300];
    snprintf(dir, sizeof dir, "%s/kvasir-crash-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    CHECK(mkdtemp(dir), "mkdtemp");
    snprintf(database, sizeof database, "%s/db", dir);
    for (int i = 0; i < rounds; i++)
        t->round(database);
    crash_remove(dir);
    return 0;
}

#endif
