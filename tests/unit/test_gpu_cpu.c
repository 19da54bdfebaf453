/*
 * test_gpu_cpu.c - the CPU backend against the reference forward, on tiny models of every
 * architecture.
 *
 * The reference keeps KV in f32, the backend in bf16: log-probabilities agree to a few hundredths,
 * and within f32 the same prompt gives the same bits with 1 and 2 threads, whole and token by
 * token.
 */
#include "cpu_int.h"
#include "gpu_testing.h"
#include "gpu_tiny.h"
#include "ref_int.h"

#include <math.h>

static void log_softmax(float *x, int n) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) {
        top = fmax(top, (double)x[i]);
    }
    for (int i = 0; i < n; i++) {
        sum += exp((double)x[i] - top);
    }
    for (int i = 0; i < n; i++) {
        x[i] = (float)((double)x[i] - top - log(sum));
    }
}

static void engine_load(llm_engine *engine, gguf *file, int threads, llm_precision precision) {
    err e = {0};
    llm_engine_options options = {.precision = precision};
    *engine = (llm_engine){
        .backend = &backend_cpu, .mem = arena_new(), .file = file, .bos = -1, .eos = -1};
    engine->info.threads = threads;
    assert_int_equal(config_read(file, &engine->config, &e), 0);
    if (cpu_load(engine, &options, &e) != 0) {
        fail_msg("%s", e.message);
    }
}

static void engine_unload(llm_engine *engine) {
    backend_cpu.close(engine);
    arena_free(engine->mem);
}

static void logprobs(llm_engine *engine, const llm_token *tokens, int n, bool stepwise,
                     float *out) {
    llm_session *s;
    err e = {0};
    llm_session_options options = {.kv_memory_bytes = 1 << 20, .pass_tokens = 8};
    assert_int_equal(llm_session_new(engine, &options, &s, &e), 0);
    for (int i = stepwise ? 1 : n; i <= n; i++) {
        if (llm_logprobs(s, tokens, (size_t)i, out, &e) != 0) {
            fail_msg("%s", e.message);
        }
    }
    llm_session_free(s);
}

static void check_model(const tiny_model *t) {
    gguf_maker m = {0};
    str file = tiny_make(&m, t);
    gguf *g;
    ref *r;
    err e = {0};
    llm_token tokens[TINY_TOKENS];
    float want[TINY_VOCAB], got[TINY_VOCAB], again[TINY_VOCAB];
    tiny_tokens(tokens);
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    assert_int_equal(ref_open(g, &r, &e), 0);
    assert_int_equal(ref_forward(r, tokens, TINY_TOKENS, TINY_TOKENS - 1, want, &e), 0);
    log_softmax(want, TINY_VOCAB);
    llm_engine engine;
    engine_load(&engine, g, 1, LLM_F32);
    logprobs(&engine, tokens, TINY_TOKENS, false, got);
    for (int i = 0; i < TINY_VOCAB; i++) {
        if (!(fabsf(got[i] - want[i]) < 0.05f * (1 + fabsf(want[i])))) {
            fail_msg("%s: token %d has %.5g instead of %.5g", t->name, i, (double)got[i],
                     (double)want[i]);
        }
    }
    logprobs(&engine, tokens, TINY_TOKENS, true, again);
    assert_memory_equal(got, again, sizeof got);
    engine_unload(&engine);
    engine_load(&engine, g, 2, LLM_F32);
    logprobs(&engine, tokens, TINY_TOKENS, true, again);
    assert_memory_equal(got, again, sizeof got);
    engine_unload(&engine);
    ref_close(r);
    gguf_close(g);
    make_free(&m);
}

static void every_architecture(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_COUNT(tiny_models); i++) {
        check_model(&tiny_models[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_architecture)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
