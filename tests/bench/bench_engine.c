/*
 * bench_engine.c - bench_engine [--json] [--precision f32|bf16|int8|int8x2] [--kv bf16|f32|int8]
 * [--threads N] [--cpu-time] [--only NAME]: the engine against the machine. --cpu-time counts the
 * process's time instead of the clock's: with one thread, for a busy machine. --only: the bound
 * and the line of that name.
 *
 * The bound is a pass of the layers' matrix products alone at M = 1,024, measured in the same
 * process; everything else is given as tokens/s and as a ratio of it. The model: KVASIR_MODEL, else
 * the default one.
 *
 * bench_engine --device cuda:N …: bench_cuda beside it, with the same arguments. That is a program
 * of its own because hosts with a card may lack what the CPU backend is built with.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cpu/cpu_int.h"

static clockid_t clock_used = CLOCK_MONOTONIC;

static double now_s(void) {
    struct timespec t;
    clock_gettime(clock_used, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char *const words[] = {" the",  " film",  " is",   " a",     " story", " of", " men",
                                    " and",  " music", " that", " never", " ends",  " in", " one",
                                    " good", " scene", " with", " light", " but"};

/* A span of about `tokens` tokens, different for each seed. */
static llm_span *text_span(const llm_engine *engine, llm_span_kind kind, uint64_t seed,
                           int tokens) {
    buf text = {0};
    for (int i = 0; i < tokens; i++) {
        seed = hash_mix(seed, (uint64_t)i);
        buf_append_c(&text, words[seed % BASE_COUNT(words)]);
    }
    llm_span *span = llm_span_new(engine, kind, buf_str(&text));
    buf_free(&text);
    return span;
}

static void die(const err *e) {
    fprintf(stderr, "bench_engine: %s\n", e->message);
    exit(2);
}

static void submit(llm_session *s, llm_span **spans, int n, llm_guide *guide,
                   const llm_template *after, int tokens) {
    llm_request q = {
        .spans = spans, .nspans = n, .guide = guide, .after = after, .max_tokens = tokens};
    err e = {0};
    if (llm_submit(s, &q, &e) != 0)
        die(&e);
}

/* 64 prompts of 512 tokens that share nothing; the answer is one of two words. */
static double prefill(llm_engine *engine, int prompts, int tokens) {
    err e = {0};
    llm_session *s;
    llm_session_options options = {0};
    if (llm_session_new(engine, &options, &s, &e) != 0)
        die(&e);
    str literals[] = {STR("yes"), STR("no")};
    const llm_template *after = llm_engine_template(engine, LLM_FORMAT_COMPLETION);
    llm_guide *guide = llm_guide_new(engine, LLM_GUIDE_CHOICE, literals, 2, after, &e);
    for (int i = 0; i < prompts; i++) {
        llm_span *span = text_span(engine, LLM_SPAN_TEMPLATE, (uint64_t)i + 77, tokens);
        submit(s, &span, 1, guide, after, 1);
        llm_span_release(span);
    }
    double start = now_s();
    bool idle = false;
    while (!idle) {
        llm_event events[64];
        int count;
        if (llm_step(s, events, 64, &count, &idle, &e) != 0)
            die(&e);
    }
    double seconds = now_s() - start;
    llm_figures st;
    llm_session_figures(s, &st);
    llm_guide_release(guide);
    llm_session_free(s);
    return (double)st.computed_tokens / seconds;
}

/* What the process holds in memory, and what it cannot do without: packed weights and KV in use. */
typedef struct footprint {
    double resident, needed; /* bytes */
} footprint;

static footprint footprint_now(const llm_engine *engine, const llm_memory *memory) {
    const cpu_state *state = engine->state;
    size_t weights = llm_engine_info(engine)->weight_bytes + head_screen_bytes(state->model.screen);
    footprint f = {.needed = (double)(weights + memory->kv_bytes)};
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;
    if (file != NULL && fscanf(file, "%*d %ld", &pages) == 1)
        f.resident = (double)pages * (double)sysconf(_SC_PAGESIZE);
    if (file != NULL)
        fclose(file);
    return f;
}

/* Tokens/s while all `sequences` sequences are live; `shared` of their prompt's tokens are one
 * prefix. `memory` is taken at the last of these steps. */
static double decode(llm_engine *engine, int sequences, int shared, int own, footprint *memory) {
    err e = {0};
    llm_session *s;
    /* the first must go on until the last has read its prompt; KV is a limit, not a cost */
    int answer = 64 + sequences * own / engine->backend->pass_tokens;
    size_t tokens_each = (size_t)(shared + own + answer + 4 * LLM_BLOCK_TOKENS);
    llm_session_options options = {.max_batch = sequences,
                                   .kv_memory_bytes = (size_t)sequences * tokens_each *
                                                      llm_engine_info(engine)->kv_bytes_per_token};
    if (llm_session_new(engine, &options, &s, &e) != 0)
        die(&e);
    llm_template chat = *llm_engine_template(engine, LLM_FORMAT_COMPLETION);
    chat.chat = true; /* no stop at a newline */
    llm_span *head = text_span(engine, LLM_SPAN_TEMPLATE, 5, shared);
    for (int i = 0; i < sequences; i++) {
        llm_span *spans[] = {head, text_span(engine, LLM_SPAN_VALUE, (uint64_t)i + 1000, own)};
        submit(s, spans, 2, NULL, &chat, answer);
        llm_span_release(spans[1]);
    }
    double seconds = 0;
    uint64_t tokens = 0;
    bool idle = false;
    llm_figures before, after;
    llm_memory held, held_after;
    while (!idle) {
        llm_event events[64];
        int count;
        llm_session_figures(s, &before);
        llm_session_memory(s, &held);
        double start = now_s();
        if (llm_step(s, events, 64, &count, &idle, &e) != 0)
            die(&e);
        double took = now_s() - start;
        llm_session_figures(s, &after);
        llm_session_memory(s, &held_after);
        if (held.live_sequences == sequences && held_after.live_sequences == sequences &&
            before.computed_tokens == after.computed_tokens) {
            seconds += took;
            tokens += (uint64_t)sequences;
            *memory = footprint_now(engine, &held_after);
        }
    }
    llm_span_release(head);
    llm_session_free(s);
    return seconds > 0 ? (double)tokens / seconds : 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { STREAM_BYTES = 256 << 20, STREAM_TASKS = 64 };

static void stream_task(void *ctx, int task, int worker) {
    (void)worker;
    const uint64_t *p = (const uint64_t *)ctx + (size_t)task * (STREAM_BYTES / STREAM_TASKS / 8);
    uint64_t sums[8] = {0};
    for (size_t i = 0; i < STREAM_BYTES / STREAM_TASKS / 8; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] ^= p[i + j];
    volatile uint64_t keep =
        sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
    (void)keep;
}

/* Bytes/s that the engine's threads read together from memory that no cache holds. */
static double memory_rate(llm_engine *engine) {
    cpu_state *state = engine->state;
    char *bytes = aligned_alloc(2 << 20, STREAM_BYTES);
    if (bytes == NULL)
        return 0;
    madvise(bytes, STREAM_BYTES, MADV_HUGEPAGE); /* as weights lie */
    memset(bytes, 1, STREAM_BYTES);
    double best = 0;
    for (int i = 0; i < 5; i++) {
        double start = now_s();
        pool_run(state->threads, STREAM_TASKS, stream_task, bytes);
        best = BASE_MAX(best, STREAM_BYTES / (now_s() - start));
    }
    free(bytes);
    return best;
}

/* Bytes that one token alone reads of the weights:
 * of the head its coarse copy, where it has one. */
static double token_bytes(const llm_engine *engine) {
    const cpu_state *state = engine->state;
    const head_screen *screen = state->model.screen;
    double all = (double)llm_engine_info(engine)->weight_bytes;
    double head = (double)state->model.head.n *
                  (double)gemm_row_bytes(state->model.head.type, state->model.head.k);
    return screen == NULL ? all : all - head + (double)head_screen_bytes(screen);
}

/* ---- lines ----------------------------------------------------------------------------------- */

typedef struct report {
    bool json;
    const char *only; /* NULL: every line */
} report;

static bool wanted(const report *r, const char *name) {
    return r->only == NULL || strcmp(name, r->only) == 0;
}

static void print_line(const report *r, const char *name, double rate, double bound) {
    if (r->json) {
        printf("{\"name\":\"%s\",\"tok_s\":%.1f,\"bound_tok_s\":%.1f,\"ratio\":%.4f}\n", name, rate,
               bound, rate / bound);
    } else {
        printf("%-22s %10.1f tokens/s   %.3f of the bound\n", name, rate, rate / bound);
    }
    fflush(stdout);
}

static const char *model_path(char *out, size_t cap) {
    const char *file_given = getenv("KVASIR_MODEL"), *data = getenv("XDG_DATA_HOME"),
               *home = getenv("HOME");
    const char *file = "kvasir/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (file_given != NULL)
        return file_given;
    if (data != NULL && data[0] != '\0')
        snprintf(out, cap, "%s/%s", data, file);
    else
        snprintf(out, cap, "%s/.local/share/%s", home != NULL ? home : "", file);
    return out;
}

static void print_memory(const report *r, const char *name, footprint f) {
    if (r->json) {
        printf("{\"name\":\"%s_memory\",\"resident_bytes\":%.0f,\"needed_bytes\":%.0f,\"ratio\":%."
               "4f}\n",
               name, f.resident, f.needed, f.resident / f.needed);
    } else {
        printf("%-22s %10.0f MB resident   %.3f of weights and KV in use\n", name, f.resident / 1e6,
               f.resident / f.needed);
    }
}

typedef struct decode_case {
    const char *name;
    int sequences, shared, own;
} decode_case;

static const decode_case decode_cases[] = {
    {"decode_b1", 1, 200, 50},
    {"decode_b16", 16, 200, 50},
    {"decode_b64", 64, 250, 10},
    {"decode_b64_shared_2000", 64, 2000, 4},
    {"decode_b64_own_2000", 64, 2, 2000},
};

static void measure(llm_engine *engine, const report *r) {
    double bound = 0, whole = 0;
    for (int i = 0; i < 3; i++) {
        /* in turns, the best of each: a neighbour's noise must not favour one */
        bound = BASE_MAX(bound, cpu_gemm_bound(engine, 1024, clock_used));
        whole = wanted(r, "prefill_512") ? BASE_MAX(whole, prefill(engine, 64, 512)) : 0;
    }
    print_line(r, "bound", bound, bound);
    if (wanted(r, "prefill_512"))
        print_line(r, "prefill_512", whole, bound);
    for (size_t i = 0; i < BASE_COUNT(decode_cases); i++) {
        const decode_case *c = &decode_cases[i];
        if (wanted(r, c->name)) {
            footprint memory = {0};
            double stream = c->sequences == 1 ? memory_rate(engine) : 0;
            double rate = decode(engine, c->sequences, c->shared, c->own, &memory);
            print_line(r, c->name, rate, bound);
            print_memory(r, c->name, memory);
            /* a token reads every weight once: memory is the bound there */
            if (c->sequences == 1) {
                stream = BASE_MAX(stream, memory_rate(engine));
                print_line(r, "decode_b1_of_memory", rate, stream / token_bytes(engine));
            }
        }
    }
}

static bool arguments_read(int argc, char **argv, llm_engine_options *options, report *r) {
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--json") == 0) {
            r->json = true;
            continue;
        }
        if (strcmp(argv[i], "--cpu-time") == 0) {
            clock_used = CLOCK_PROCESS_CPUTIME_ID;
            continue;
        }
        if (next == NULL)
            return false;
        if (strcmp(argv[i], "--threads") == 0) {
            options->threads = atoi(next);
        } else if (strcmp(argv[i], "--only") == 0) {
            r->only = next;
        } else if (strcmp(argv[i], "--kv") == 0) {
            options->kv_dtype = strcmp(next, "f32") == 0    ? LLM_KV_F32
                                : strcmp(next, "int8") == 0 ? LLM_KV_INT8
                                                            : LLM_KV_BF16;
        } else if (strcmp(argv[i], "--precision") == 0) {
            options->precision = LLM_PRECISIONS;
            for (llm_precision p = LLM_PRECISION_AUTO; p < LLM_PRECISIONS; p++)
                if (strcmp(next, llm_precision_name(p)) == 0)
                    options->precision = p;
            if (options->precision == LLM_PRECISIONS)
                return false;
        } else {
            return false;
        }
        i++;
    }
    return true;
}

/* Becomes bench_cuda where a card is asked for. */
static void run_on_card(char **argv) {
    char self[4096];
    for (char **a = argv + 1; *a != NULL; a++) {
        if (strcmp(*a, "--device") != 0 || a[1] == NULL || strncmp(a[1], "cuda", 4) != 0)
            continue;
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - sizeof "bench_cuda");
        while (n > 0 && self[n - 1] != '/')
            n--;
        strcpy(self + BASE_MAX(n, 0), "bench_cuda");
        execv(self, argv);
        fprintf(stderr, "bench_engine: %s is not built: %s\n", self, strerror(errno));
        exit(1);
    }
}

int main(int argc, char **argv) {
    char path[4096];
    report r = {0};
    llm_engine_options options = {.path = model_path(path, sizeof path), .device = "cpu"};
    run_on_card(argv);
    if (!arguments_read(argc, argv, &options, &r)) {
        fprintf(stderr, "usage: bench_engine [--json] [--precision f32|bf16|int8|int8x2] [--kv "
                        "bf16|f32|int8] [--threads N] [--cpu-time] [--only NAME]\n"
                        "       bench_engine --device cuda:N [--shape 135m|1b|8b] [--json]\n");
        return 2;
    }
    err e = {0};
    llm_engine *engine;
    if (llm_engine_open(&options, &engine, &e) != 0)
        die(&e);
    const llm_model_info *info = llm_engine_info(engine);
    if (!r.json) {
        printf("%s, %s (%s), %d threads, loaded in %.0f ms\n", info->device, info->precision,
               info->precision_reason, info->threads, info->load_ms);
    }
    measure(engine, &r);
    llm_engine_close(engine);
    return 0;
}
