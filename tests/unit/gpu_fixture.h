/*
 * gpu_fixture.h - a tiny model with its vocabulary as an engine of the CPU backend, for tests of
 * sessions.
 */
#ifndef KVASIR_GPU_FIXTURE_H
#define KVASIR_GPU_FIXTURE_H

#include "cpu/cpu_int.h"
#include "gpu_testing.h"
#include "gpu_tiny.h"

enum { CONTEXT = 64 };

typedef struct fixture {
    gguf_maker maker;
    gguf *file;
    llm_engine engine;
} fixture;

static inline void fixture_open_model(fixture *f, const tiny_model *model,
                                      llm_engine_options options) {
    err e = {0};
    *f = (fixture){0};
    tiny_vocabulary(&f->maker);
    str file = tiny_make(&f->maker, model);
    assert_int_equal(gguf_open_memory(file.p, file.n, &f->file, &e), 0);
    llm_engine *engine = &f->engine;
    *engine = (llm_engine){.backend = &backend_cpu, .mem = arena_new(), .file = f->file};
    engine->info.threads = 2;
    options.precision = LLM_F32;
    assert_int_equal(config_read(f->file, &engine->config, &e), 0);
    assert_int_equal(tokenizer_new(f->file, &engine->tokenizer, &e), 0);
    engine->bos = tokenizer_bos(engine->tokenizer);
    engine->eos = tokenizer_eos(engine->tokenizer);
    engine->info.kv_memory_bytes = (size_t)1 << 30;
    engine->newline = 12;
    engine->adds_bos = true;
    if (cpu_load(engine, &options, &e) != 0)
        fail_msg("%s", e.message);
    engine->info.blends = options.attention == LLM_ATTENTION_FULL;
}

static inline void fixture_open(fixture *f, llm_engine_options options) {
    fixture_open_model(f, &tiny_models[0], options);
}

static inline void fixture_close(fixture *f) {
    backend_cpu.close(&f->engine);
    tokenizer_free(f->engine.tokenizer);
    arena_free(f->engine.mem);
    gguf_close(f->file);
    make_free(&f->maker);
}

static inline llm_session *session(fixture *f, llm_session_options options) {
    llm_session *s;
    err e = {0};
    if (llm_session_new(&f->engine, &options, &s, &e) != 0)
        fail_msg("%s", e.message);
    return s;
}

#endif
