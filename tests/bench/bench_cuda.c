/*
 * bench_cuda.c - bench_cuda [--device cuda:N] [--shape 135m|1b|8b] [--json]: the CUDA backend's
 * passes on random weights of a shape; what bench_engine --device cuda:N runs.
 *
 * Drives the backend as the scheduler would, with passes of its own making, so that no file is
 * needed and nothing else is measured: prefill of prompts of 512 tokens, decode steps of a batch
 * whose prompts share a prefix (the likeliest token of each row alone comes back), attention's
 * share of a step with and without sharing, and the share of matrix products. Medians of several
 * passes, after one to warm up.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/cuda_int.h"

enum { REPEATS = 7 };

/* What a card of Hopper's class is to reach; 0: nothing is asked. */
typedef struct goal {
    double least, aim;
} goal;

typedef struct shape {
    const char *name;
    model_config config;
    int batch, shared, context; /* of the decode row */
    goal prefill, products, decode, sharing;
} shape;

static const shape shapes[] = {
    {"135m",
     {.arch = "llama",
      .n_layers = 30,
      .n_embd = 576,
      .n_heads = 9,
      .n_kv_heads = 3,
      .head_dim = 64,
      .ffn = 1536,
      .vocab = 49152,
      .tied_head = true,
      .rope_theta = 100000},
     1024,
     256,
     300,
     {500e3, 1e6},
     {0, 0},
     {100e3, 300e3},
     {4, 8}},
    {"1b",
     {.arch = "llama",
      .n_layers = 16,
      .n_embd = 2048,
      .n_heads = 32,
      .n_kv_heads = 8,
      .head_dim = 64,
      .ffn = 8192,
      .vocab = 128256,
      .tied_head = true,
      .rope_theta = 500000},
     512,
     320,
     400,
     {0, 0},
     {0, 0},
     {0, 0},
     {4, 8}},
    {"8b",
     {.arch = "llama",
      .n_layers = 32,
      .n_embd = 4096,
      .n_heads = 32,
      .n_kv_heads = 8,
      .head_dim = 128,
      .ffn = 14336,
      .vocab = 128256,
      .rope_theta = 500000},
     256,
     320,
     400,
     {25e3, 35e3},
     {0.75, 0.85},
     {10e3, 20e3},
     {4, 8}},
};

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void die(const err *e) {
    fprintf(stderr, "bench_cuda: %s\n", e->message);
    exit(2);
}

static void print_line(bool json, const char *name, double figure, const char *unit, goal g) {
    if (json) {
        printf("{\"name\":\"%s\",\"value\":%.4f,\"unit\":\"%s\",\"least\":%g,\"aim\":%g}\n", name,
               figure, unit, g.least, g.aim);
    } else {
        printf("%-28s %14.2f %-14s", name, figure, unit);
        if (g.least > 0) {
            printf(" at least %8g, aim %8g: %s", g.least, g.aim,
                   figure >= g.aim     ? "aim"
                   : figure >= g.least ? "reached"
                                       : "MISSED");
        }
        printf("\n");
    }
    fflush(stdout);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Milliseconds of a pass, the median. */
static double pass_ms(llm_engine *engine, void *work, const pass *p) {
    double ms[REPEATS];
    err e = {0};
    for (int i = -1; i < REPEATS; i++) {
        double start = now_ms();
        if (cuda_forward(engine, work, p, &e) != 0)
            die(&e);
        if (i >= 0)
            ms[i] = now_ms() - start;
    }
    qsort(ms, REPEATS, sizeof ms[0], by_size);
    return ms[REPEATS / 2];
}

static void *work_new(llm_engine *engine, int blocks, int rows) {
    void *work = NULL;
    err e = {0};
    work_size size = {
        .blocks = blocks, .device_blocks = blocks, .likely_blocks = blocks, .rows = rows};
    if (cuda_work_new(engine, &size, &work, &e) != 0)
        die(&e);
    return work;
}

/* Prompts that share nothing, whole in one pass; one likeliest token each. */
static double prefill_tokens_s(llm_engine *engine, int prompts, int tokens) {
    int blocks = (tokens + LLM_BLOCK_TOKENS - 1) / LLM_BLOCK_TOKENS, n = prompts * tokens;
    int32_t *tables = mem_alloc(sizeof *tables * (size_t)(prompts * blocks));
    pass_row *rows = mem_alloc(sizeof *rows * (size_t)n);
    pass_want *wants = mem_zalloc(sizeof *wants * (size_t)prompts);
    float *logits = mem_alloc(sizeof *logits * (size_t)prompts);
    llm_token *ids = mem_alloc(sizeof *ids * (size_t)prompts);
    for (int i = 0; i < prompts * blocks; i++)
        tables[i] = i;
    for (int i = 0; i < n; i++) {
        int prompt = i / tokens;
        rows[i] = (pass_row){
            .token = (llm_token)(hash_mix(5, (uint64_t)i) % (uint64_t)engine->config.vocab),
            .position = i % tokens,
            .table = tables + prompt * blocks};
    }
    for (int i = 0; i < prompts; i++) {
        wants[i] = (pass_want){.row = (i + 1) * tokens - 1,
                               .count = engine->config.vocab,
                               .logits = &logits[i],
                               .top = 1,
                               .top_ids = &ids[i]};
    }
    pass p = {.rows = rows, .nrows = n, .wants = wants, .nwants = prompts};
    void *work = work_new(engine, prompts * blocks, n);
    double ms = pass_ms(engine, work, &p);
    cuda_work_free(engine, work);
    void *all[] = {tables, rows, wants, logits, ids};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        free(all[i]);
    return n * 1e3 / ms;
}

/* Random KV: a card computes faster on zeros. */
static void kv_fill(cuda_work *w) {
    size_t count = (size_t)w->kv.slots * w->kv.block_elements;
    err e = {0};
    int code = cuda_check(k_random(w->kv.pool, count, 11, 1, w->stream), "random KV", &e);
    code = code != 0 ? code : cuda_check(cudaStreamSynchronize(w->stream), "random KV", &e);
    if (code != 0)
        die(&e);
}

/* A decode step of `live` rows at the end of `context` tokens, of which `shared` are one prefix. */
static double decode_ms(llm_engine *engine, int live, int shared, int context) {
    int blocks = (context + LLM_BLOCK_TOKENS - 1) / LLM_BLOCK_TOKENS,
        common = shared / LLM_BLOCK_TOKENS;
    int32_t *tables = mem_alloc(sizeof *tables * (size_t)(live * blocks)), next = common;
    pass_row *rows = mem_alloc(sizeof *rows * (size_t)live);
    pass_want *wants = mem_zalloc(sizeof *wants * (size_t)live);
    float *logits = mem_alloc(sizeof *logits * (size_t)live);
    llm_token *ids = mem_alloc(sizeof *ids * (size_t)live);
    for (int i = 0; i < live; i++) {
        for (int b = 0; b < blocks; b++)
            tables[i * blocks + b] = b < common ? b : next++;
        rows[i] = (pass_row){.token = i % engine->config.vocab,
                             .position = context - 1,
                             .table = tables + i * blocks};
        wants[i] = (pass_want){.row = i,
                               .count = engine->config.vocab,
                               .logits = &logits[i],
                               .top = 1,
                               .top_ids = &ids[i]};
    }
    pass p = {.rows = rows, .nrows = live, .wants = wants, .nwants = live};
    void *work = work_new(engine, next, live);
    kv_fill(work);
    double ms = pass_ms(engine, work, &p);
    cuda_work_free(engine, work);
    void *all[] = {tables, rows, wants, logits, ids};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        free(all[i]);
    return ms;
}

/* Random activations, as random as KV. */
static int activations_fill(cuda_work *w, int rows, err *e) {
    const model_config *c = &w->engine->config;
    size_t n = (size_t)rows, width = (size_t)c->n_embd, heads = (size_t)(c->n_heads * c->head_dim);
    int code = cuda_check(k_random(w->a, n * width, 12, 2, w->stream), "random rows", e);
    code = code != 0 ? code
                     : cuda_check(k_random(w->att, n * heads, 13, 2, w->stream), "random rows", e);
    return code != 0
               ? code
               : cuda_check(k_random(w->h, n * (size_t)c->ffn, 14, 2, w->stream), "random rows", e);
}

/* Milliseconds of all layers' products alone, at `rows` rows. */
static double products_ms(llm_engine *engine, int rows) {
    cuda_state *s = engine->state;
    const model_config *c = &engine->config;
    cuda_work *w = work_new(engine, 2, rows);
    double ms[REPEATS];
    err e = {0};
    rows = BASE_MIN(rows, w->rows_cap);
    int code = activations_fill(w, rows, &e);
    for (int i = -1; i < REPEATS; i++) {
        double start = now_ms();
        for (int l = 0; l < c->n_layers && code == 0; l++) {
            const cuda_layer *y = &s->layers[l];
            code = cuda_gemm_run(s->g, s->plan_qkv, y->qkv, w->a, rows, w->qkv, w->workspace,
                                 w->stream, &e);
            code = code != 0 ? code
                             : cuda_gemm_run(s->g, s->plan_o, y->o, w->att, rows, w->x,
                                             w->workspace, w->stream, &e);
            code = code != 0 ? code
                             : cuda_gemm_run(s->g, s->plan_gate_up, y->gate_up, w->a, rows,
                                             w->gate_up, w->workspace, w->stream, &e);
            code = code != 0 ? code
                             : cuda_gemm_run(s->g, s->plan_down, y->down, w->h, rows, w->x,
                                             w->workspace, w->stream, &e);
        }
        code = code != 0 ? code : cuda_check(cudaStreamSynchronize(w->stream), "products", &e);
        if (code != 0)
            die(&e);
        if (i >= 0)
            ms[i] = now_ms() - start;
    }
    cuda_work_free(engine, w);
    qsort(ms, REPEATS, sizeof ms[0], by_size);
    return ms[REPEATS / 2];
}

static void shape_run(const shape *sh, int device, bool json) {
    err e = {0};
    llm_engine engine = {.backend = &backend_cuda, .mem = arena_new(), .config = sh->config};
    model_config *c = &engine.config;
    c->context = 8192;
    c->eps = 1e-5f;
    c->attn_scale = 1 / sqrtf((float)c->head_dim);
    c->embd_scale = 1;
    c->rope_dims = c->head_dim;
    c->rope_factor = c->rope_magnitude = 1;
    c->pairing = ROPE_NEIGHBOURS;
    engine.info.threads = 8;
    engine.state = mem_zalloc(sizeof(cuda_state));
    if (cuda_start(&engine, device, &e) != 0)
        die(&e);
    if (!json)
        printf("%s on %s; %s\n", sh->name, engine.info.device, engine.info.precision_reason);
    enum { PROMPTS = 16, TOKENS = 512 };
    double prefill = prefill_tokens_s(&engine, PROMPTS, TOKENS);
    double products = products_ms(&engine, PROMPTS * TOKENS);
    print_line(json, "prefill", prefill, "tokens/s", sh->prefill);
    print_line(json, "products / prefill", products * prefill / (PROMPTS * TOKENS * 1e3),
               "of its time", sh->products);
    double step = decode_ms(&engine, sh->batch, sh->shared, sh->context);
    print_line(json, "decode", sh->batch * 1e3 / step, "tokens/s", sh->decode);
    print_line(json, "decode, batch 1", 1e3 / decode_ms(&engine, 1, 0, sh->context), "tokens/s",
               (goal){0});
    /* what 1,024 tokens of context add to a step, shared and not */
    double base = decode_ms(&engine, 256, 0, 1), together = decode_ms(&engine, 256, 1024, 1025);
    double apart = decode_ms(&engine, 256, 0, 1025);
    print_line(json, "attention apart / together", (apart - base) / (together - base),
               "x, 256 rows", sh->sharing);
    backend_cuda.close(&engine);
    arena_free(engine.mem);
}

int main(int argc, char **argv) {
    const char *only = NULL;
    bool json = false;
    int device = 0, end = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) {
            json = true;
        } else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc &&
                   sscanf(argv[i + 1], "cuda:%d%n", &device, &end) == 1 && !argv[i + 1][end]) {
            i++;
        } else if (strcmp(argv[i], "--shape") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else {
            fprintf(stderr, "usage: bench_cuda [--device cuda:N] [--shape 135m|1b|8b] [--json]\n");
            return 2;
        }
    }
    char why[200];
    if (!cuda_usable(device, why, sizeof why)) {
        fprintf(stderr, "bench_cuda: %s\n", why);
        return 77;
    }
    for (size_t i = 0; i < BASE_COUNT(shapes); i++)
        if (only == NULL || strcmp(only, shapes[i].name) == 0)
            shape_run(&shapes[i], device, json);
    return 0;
}
