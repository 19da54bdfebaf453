/*
 * bench_embed.c - bench_embed [--precision f32|bf16|int8|int8x2] [--threads N] [--runs N]
 * [--vectors FILE] [--json] MODEL TEXTS: texts per second of llm_embed. TEXTS has one text per line.
 *
 * A run embeds all texts; the median of the runs counts, by the clock and by CPU time. Opening the
 * model and reading its weights are not counted. --vectors writes the vectors as f32, row by row,
 * as tests/bench/embed_peer.py reads them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu/llm.h"
#include "storage/containers.h"

typedef struct arguments {
    llm_engine_options options;
    const char *texts, *vectors;
    int runs;
    bool json;
} arguments;

static void fail(const char *what) {
    fprintf(stderr, "bench_embed: %s\n", what);
    exit(2);
}

static llm_precision precision_of(const char *name) {
    for (llm_precision p = LLM_PRECISION_AUTO; p < LLM_PRECISIONS; p++)
        if (strcmp(name, llm_precision_name(p)) == 0)
            return p;
    fail("no such precision");
    return LLM_PRECISION_AUTO;
}

static arguments arguments_read(int argc, char **argv) {
    arguments a = {.options = {.device = "cpu", .load_now = true}, .runs = 3};
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--json") == 0) {
            a.json = true;
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0) {
            *(a.options.path == NULL ? &a.options.path : &a.texts) = argv[i];
            continue;
        }
        if (strcmp(argv[i], "--precision") == 0)
            a.options.precision = precision_of(next);
        else if (strcmp(argv[i], "--threads") == 0)
            a.options.threads = atoi(next);
        else if (strcmp(argv[i], "--runs") == 0)
            a.runs = BASE_MAX(atoi(next), 1);
        else if (strcmp(argv[i], "--vectors") == 0)
            a.vectors = next;
        else
            fail("unknown option");
        i++;
    }
    if (a.texts == NULL)
        fail("usage: bench_embed [options] MODEL TEXTS");
    return a;
}

static str *texts_read(const char *path, arena *mem, size_t *count) {
    FILE *f = fopen(path, "r");
    if (f == NULL)
        fail("cannot read the texts");
    str *texts = NULL;
    size_t cap = 0, room = 0;
    char *line = NULL;
    *count = 0;
    for (ssize_t n; (n = getline(&line, &room, f)) >= 0;) {
        n -= n > 0 && line[n - 1] == '\n';
        ARRAY_PUSH(texts, *count, cap, str_copy(mem, ((str){line, (size_t)n})));
    }
    free(line);
    fclose(f);
    return texts;
}

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[n / 2];
}

static void vectors_write(const char *path, const float *vectors, size_t n) {
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(vectors, sizeof *vectors, n, f) != n || fclose(f) != 0)
        fail("cannot write the vectors");
}

int main(int argc, char **argv) {
    arguments a = arguments_read(argc, argv);
    arena *mem = arena_new();
    size_t count;
    str *texts = texts_read(a.texts, mem, &count);
    err e = {0};
    llm_engine *engine;
    if (llm_engine_open(&a.options, &engine, &e) != 0)
        fail(e.message);
    const llm_model_info *info = llm_engine_info(engine);
    size_t width = (size_t)info->embedding;
    float *vectors = mem_alloc(sizeof *vectors * width * BASE_MAX(count, (size_t)1));
    float **out = ARENA_ARRAY(mem, float *, count);
    for (size_t i = 0; i < count; i++)
        out[i] = vectors + i * width;
    double *ms = ARENA_ARRAY(mem, double, a.runs), *cpu = ARENA_ARRAY(mem, double, a.runs);
    llm_figures figures;
    for (int run = 0; run < a.runs; run++) {
        double start = clock_ms(), start_cpu = cpu_ms();
        figures = (llm_figures){0};
        llm_embed_options options = {0};
        if (llm_embed(engine, texts, count, out, &options, &figures, &e) != 0)
            fail(e.message);
        ms[run] = clock_ms() - start;
        cpu[run] = cpu_ms() - start_cpu;
    }
    double wall = median(ms, a.runs), used = median(cpu, a.runs);
    double tokens = (double)figures.computed_tokens;
    printf(a.json
               ? "{\"precision\": \"%s\", \"texts\": %zu, \"tokens\": %.0f, \"texts_s\": %.1f, "
                 "\"tokens_s\": %.0f, \"texts_cpu_s\": %.1f}\n"
               : "%s: %zu texts of %.0f tokens; %.1f texts/s, %.0f tokens/s; %.1f texts per second "
                 "of CPU time\n",
           info->precision, count, tokens, (double)count / wall * 1e3, tokens / wall * 1e3,
           (double)count / used * 1e3);
    if (a.vectors != NULL)
        vectors_write(a.vectors, vectors, count * width);
    llm_engine_close(engine);
    free(vectors);
    free(texts);
    arena_free(mem);
    return 0;
}
