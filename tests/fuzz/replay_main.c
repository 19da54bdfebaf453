/*
 * replay_main.c - runs a fuzzer without libFuzzer: each seed file as it is, then mutations of them
 * for some seconds.
 *
 *   fuzz_x CORPUS [SECONDS [SEED]]      prints the seed; KVASIR_FUZZ_SEED in the environment sets
 *   it too fuzz_x FILE                         that input alone
 *
 * Before each mutated input its bytes are kept in a buffer; when the process dies of a signal, they
 * are written to crash-<name of the program> in the current directory.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 17, SEEDS_MAX = 4096 };

typedef struct seed {
    uint8_t *p;
    size_t n;
} seed;

static seed seeds[SEEDS_MAX];
static int nseeds;
static uint8_t input[INPUT_MAX];
static size_t input_bytes;
static char crash_file[256];
static uint64_t state;

static uint32_t next(uint32_t n) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

static void on_crash(int number) {
    int fd = open(crash_file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0) {
        ssize_t written = write(fd, input, input_bytes);
        (void)written; /* nothing more can be done here */
        close(fd);
    }
    signal(number, SIG_DFL);
    raise(number);
}

/* From an allocation of exactly its size, so that a sanitizer sees a read past the end. */
static void run(const uint8_t *p, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy)
        exit(70);
    memcpy(copy, p, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static void add_seed(const char *path) {
    FILE *f = fopen(path, "rb");
    if (!f || nseeds == SEEDS_MAX) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(2);
    }
    size_t n = fread(input, 1, sizeof input, f);
    fclose(f);
    seeds[nseeds].p = malloc(n ? n : 1);
    memcpy(seeds[nseeds].p, input, n);
    seeds[nseeds++].n = n;
}

static void add_directory(const char *path) {
    DIR *d = opendir(path);
    if (!d) {
        add_seed(path);
        return;
    }
    char name[1024];
    for (struct dirent *entry; (entry = readdir(d));) {
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        struct stat st;
        if (stat(name, &st) == 0 && S_ISREG(st.st_mode))
            add_seed(name);
    }
    closedir(d);
}

static void insert_bytes(size_t at, const uint8_t *p, size_t n) {
    if (input_bytes + n > INPUT_MAX)
        return;
    memmove(input + at + n, input + at, input_bytes - at);
    memcpy(input + at, p, n);
    input_bytes += n;
}

static void delete_bytes(size_t at, size_t n) {
    if (n > input_bytes - at)
        n = input_bytes - at;
    memmove(input + at, input + at + n, input_bytes - at - n);
    input_bytes -= n;
}

static void mutate_once(void) {
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff, '"', '\n', ',', '\'', '(', '{', ' '};
    size_t at = input_bytes ? next((uint32_t)input_bytes) : 0;
    const seed *other = &seeds[next((uint32_t)nseeds)];
    uint8_t byte = next(2) ? edges[next(sizeof edges)] : (uint8_t)next(256);
    size_t from = other->n ? next((uint32_t)other->n) : 0;
    switch (next(6)) {
    case 0:
        if (input_bytes)
            input[at] = byte;
        break;
    case 1:
        if (input_bytes)
            input[at] ^= (uint8_t)(1u << next(8));
        break;
    case 2:
        insert_bytes(at, &byte, 1);
        break;
    case 3:
        delete_bytes(at, 1 + next(8));
        break;
    case 4: /* a piece of another seed */
        insert_bytes(at, other->p + from, other->n - from > 64 ? 1 + next(64) : other->n - from);
        break;
    case 5: /* the rest of another seed */
        delete_bytes(at, input_bytes);
        insert_bytes(at, other->p + from, other->n - from);
        break;
    }
}

static double seconds_now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s CORPUS [SECONDS [SEED]]\n", argv[0]);
        return 2;
    }
    const char *name = strrchr(argv[0], '/'),
               *wanted = argc > 3 ? argv[3] : getenv("KVASIR_FUZZ_SEED");
    double limit = argc > 2 ? atof(argv[2]) : 0;
    state = wanted ? strtoull(wanted, NULL, 10) : (uint64_t)time(NULL);
    snprintf(crash_file, sizeof crash_file, "crash-%s", name ? name + 1 : argv[0]);
    add_directory(argv[1]);
    if (nseeds == 0) {
        fprintf(stderr, "no seeds in %s\n", argv[1]);
        return 2;
    }
    printf("%d seeds, %.0f s of mutations, seed %llu\n", nseeds, limit, (unsigned long long)state);
    fflush(stdout);
    static const int deadly[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++)
        signal(deadly[i], on_crash);
    for (int i = 0; i < nseeds; i++) {
        input_bytes = seeds[i].n;
        memcpy(input, seeds[i].p, input_bytes);
        run(input, input_bytes);
    }
    long runs = 0;
    for (double start = seconds_now(); seconds_now() - start < limit; runs++) {
        const seed *s = &seeds[next((uint32_t)nseeds)];
        input_bytes = s->n;
        memcpy(input, s->p, s->n);
        for (uint32_t i = 1 + next(8); i > 0; i--)
            mutate_once();
        run(input, input_bytes);
    }
    printf("%ld mutations\n", runs);
    for (int i = 0; i < nseeds; i++)
        free(seeds[i].p);
    return 0;
}
