/*
 * test_gpu_cpu.c - the CPU backend against the reference forward, on tiny models of every
 * architecture.
 *
 * The reference keeps KV in f32: log-probabilities agree closely with a backend that does so, too,
 * to a few hundredths where KV is narrower. The same prompt gives the same bits with 1 and 2
 * threads, whole and token by token, for every type of KV and both forms of attention.
 */
#include "cpu/cpu_int.h"
#include "gpu_testing.h"
#include "gpu_tiny.h"
#include "reference.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

static void log_softmax(float *x, int n) {
    double top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        top = fmax(top, (double)x[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    for (int i = 0; i < n; i++)
        x[i] = (float)((double)x[i] - top - log(sum));
}

/* Longer than the tiny models' context of 64, so that streaming goes beyond it. */
enum { LONG_TOKENS = 150 };

typedef struct variant {
    const char *name;
    llm_engine_options options;
    int tokens;
    float tolerance;
} variant;

#define STREAM(sinks, last)                                                                        \
    .attention = LLM_ATTENTION_STREAMING, .sink_tokens = (sinks), .window_tokens = (last)

/* Sinks and windows that end inside blocks, at their ends, and span several. */
static const variant variants[] = {
    {"bf16", {.precision = LLM_F32}, TINY_TOKENS, 0.05f},
    {"f32 KV", {.precision = LLM_F32, .kv_dtype = LLM_KV_F32}, 60, 1e-4f},
    {"int8 KV", {.precision = LLM_F32, .kv_dtype = LLM_KV_INT8}, 60, 0.1f},
    {"streaming 3+20",
     {.precision = LLM_F32, .kv_dtype = LLM_KV_F32, STREAM(3, 20)},
     LONG_TOKENS,
     2e-4f},
    {"streaming 0+32",
     {.precision = LLM_F32, .kv_dtype = LLM_KV_F32, STREAM(0, 32)},
     LONG_TOKENS,
     2e-4f},
    {"streaming 34+30",
     {.precision = LLM_F32, .kv_dtype = LLM_KV_F32, STREAM(34, 30)},
     LONG_TOKENS,
     2e-4f},
    {"streaming 4+40 in int8",
     {.precision = LLM_F32, .kv_dtype = LLM_KV_INT8, STREAM(4, 40)},
     LONG_TOKENS,
     0.1f},
    {"bf16 matrices", {.precision = LLM_BF16, .kv_dtype = LLM_KV_F32}, 60, 0.1f},
    {"int8 matrices", {.precision = LLM_INT8, .kv_dtype = LLM_KV_F32}, 60, 0.1f},
    {"int8x2 matrices", {.precision = LLM_INT8X2, .kv_dtype = LLM_KV_F32}, 60, 0.1f},
};

/* Weights in bytes or in bf16: not on every machine; bytes in groups of 32, and these weights, which
 * are on no grid, only where all 255 steps are to be had. */
static bool is_refused(const model_config *c, const variant *v) {
    bool in_bytes = v->options.precision == LLM_INT8 || v->options.precision == LLM_INT8X2;
    int run = c->n_heads / c->n_kv_heads * c->head_dim;
    if (v->options.precision == LLM_BF16)
        return gemm_measure(GEMM_BF16, TINY_EMBD, TINY_FFN) <= 0;
    const int8_kernels *int8 = int8_choose();
    return in_bytes && (int8 == NULL || int8->levels < 255 || run % INT8_GROUP != 0);
}

static void engine_load(llm_engine *engine, gguf *file, int threads, const variant *v) {
    err e = {0};
    llm_engine_options options = v->options;
    *engine = (llm_engine){
        .backend = &backend_cpu, .mem = arena_new(), .file = file, .bos = -1, .eos = -1};
    engine->info.path = "tiny.gguf";
    engine->info.threads = threads;
    assert_int_equal(config_read(file, &engine->config, &e), 0);
    if (cpu_load(engine, &options, &e) != 0)
        fail_msg("%s", e.message);
}

static void engine_unload(llm_engine *engine) {
    backend_cpu.close(engine);
    arena_free(engine->mem);
}

/* Whether the variant is one that the model or the machine cannot have; then it is refused. */
static bool refuses(gguf *file, const variant *v) {
    llm_engine engine = {.mem = arena_new(), .file = file};
    err e = {0};
    engine.info.threads = 1;
    assert_int_equal(config_read(file, &engine.config, &e), 0);
    bool refused = is_refused(&engine.config, v);
    if (refused) {
        assert_int_equal(cpu_load(&engine, &v->options, &e), ERR_UNSUPPORTED);
        backend_cpu.close(&engine);
    }
    arena_free(engine.mem);
    return refused;
}

static void logprobs(llm_engine *engine, const llm_token *tokens, int n, bool stepwise,
                     float *out) {
    llm_session *s;
    err e = {0};
    llm_session_options options = {.kv_memory_bytes = 64 << 20, .pass_tokens = 8};
    assert_int_equal(llm_session_new(engine, &options, &s, &e), 0);
    for (int i = stepwise ? 1 : n; i <= n; i++)
        if (llm_logprobs(s, tokens, (size_t)i, out, &e) != 0)
            fail_msg("%s", e.message);
    llm_session_free(s);
}

static void check_near(const float *got, const float *want, const variant *v, const char *model) {
    for (int i = 0; i < TINY_VOCAB; i++) {
        if (!(fabsf(got[i] - want[i]) < v->tolerance * (1 + fabsf(want[i])))) {
            fail_msg("%s, %s: token %d has %.5g instead of %.5g", model, v->name, i, (double)got[i],
                     (double)want[i]);
        }
    }
}

static void only_file(const char *dir, char out[512]) {
    DIR *d = opendir(dir);
    out[0] = '\0';
    for (struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;) {
        if (entry->d_name[0] != '.') {
            assert_string_equal(out, "");
            snprintf(out, 512, "%s/%s", dir, entry->d_name);
        }
    }
    closedir(d);
}

static void check_variant(gguf *g, reference *r, const char *model, const variant *v) {
    llm_token tokens[LONG_TOKENS];
    float want[TINY_VOCAB], got[TINY_VOCAB], again[TINY_VOCAB];
    err e = {0};
    for (int i = 0; i < v->tokens; i++)
        tokens[i] = i * i * 7 % TINY_VOCAB;
    reference_set_streaming(r, v->options.sink_tokens, v->options.window_tokens);
    assert_int_equal(reference_forward(r, tokens, v->tokens, v->tokens - 1, want, &e), 0);
    log_softmax(want, TINY_VOCAB);
    llm_engine engine;
    if (refuses(g, v))
        return;
    engine_load(&engine, g, 1, v);
    logprobs(&engine, tokens, v->tokens, false, got);
    check_near(got, want, v, model);
    logprobs(&engine, tokens, v->tokens, true, again);
    assert_memory_equal(got, again, sizeof got);
    engine_unload(&engine);
    engine_load(&engine, g, 2, v);
    logprobs(&engine, tokens, v->tokens, true, again);
    assert_memory_equal(got, again, sizeof got);
    engine_unload(&engine);
}

/* All engines of a model read one record: which of bf16 and f32 an int8 engine computes with where it
 * does not use bytes is measured when no record says it, and its bits and fingerprint follow. */
static void check_model(const tiny_model *t) {
    char dir[] = "/tmp/kvasir-side-XXXXXX", side_file[512];
    assert_non_null(mkdtemp(dir));
    gguf_maker m = {0};
    str file = tiny_make(&m, t);
    gguf *g;
    reference *r;
    err e = {0};
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    assert_int_equal(reference_open(g, &r, &e), 0);
    for (size_t i = 0; i < BASE_COUNT(variants); i++) {
        variant v = variants[i];
        v.options.cache_dir = dir;
        check_variant(g, r, t->name, &v);
    }
    only_file(dir, side_file);
    assert_int_equal(unlink(side_file), 0);
    assert_int_equal(rmdir(dir), 0);
    reference_close(r);
    gguf_close(g);
    make_free(&m);
}

static void every_architecture(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_COUNT(tiny_models); i++)
        check_model(&tiny_models[i]);
}

/* What an engine's options decide shows in its fingerprint and in the size of its KV. */
static void options_are_identity(void **state) {
    (void)state;
    gguf_maker m = {0};
    const tiny_model *wide = &tiny_models[0];
    while (wide->head_dim < 16) /* so that its matrices can be in bytes */
        wide++;
    str file = tiny_make(&m, wide);
    gguf *g;
    err e = {0};
    hash128 seen[BASE_COUNT(variants)] = {0};
    size_t bytes[BASE_COUNT(variants)];
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    for (size_t i = 0; i < BASE_COUNT(variants); i++) {
        if (refuses(g, &variants[i]))
            continue;
        llm_engine engine;
        engine_load(&engine, g, 1, &variants[i]);
        seen[i] = engine.info.fingerprint;
        bytes[i] = engine.info.kv_bytes_per_token;
        for (size_t j = 0; j < i; j++)
            assert_false(hash128_equal(seen[i], seen[j]));
        engine_unload(&engine);
    }
    size_t heads = (size_t)(wide->layers * TINY_KV_HEADS * 2);
    assert_int_equal(bytes[1], 2 * bytes[0]);
    assert_int_equal(bytes[2], bytes[0] / 2 + heads * sizeof(float));
    static const int refused[][2] = {{-1, 10}, {0, 0}, {40, 30}};
    for (size_t i = 0; i < BASE_COUNT(refused); i++) {
        llm_engine engine = {.mem = arena_new(), .file = g};
        llm_engine_options options = {.precision = LLM_F32, STREAM(refused[i][0], refused[i][1])};
        engine.info.threads = 1;
        assert_int_equal(config_read(g, &engine.config, &e), 0);
        assert_int_equal(cpu_load(&engine, &options, &e), ERR_LIMIT);
        engine_unload(&engine);
    }
    gguf_close(g);
    make_free(&m);
}

/* ---- opening on a record --------------------------------------------------------------------- */

static void open_on_record(llm_engine *engine, gguf *file, const char *dir, bool load_now) {
    variant v = {
        .options = {.precision = LLM_PRECISION_AUTO, .cache_dir = dir, .load_now = load_now}};
    engine_load(engine, file, 1, &v);
}

static bool weights_are_read(const llm_engine *engine) {
    const cpu_state *s = engine->state;
    return s->loaded && gemm_bytes(s->g) == engine->info.weight_bytes;
}

/* Changes one digit of what the probe found. */
static void tamper(const char *side_file) {
    char text[4096];
    FILE *f = fopen(side_file, "r+");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    char *digit = strchr(strstr(text, "probe_"), '.') + 5;
    *digit = *digit == '0' ? '1' : '0';
    rewind(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int one_answer_unless(const atomic_bool *cancel, llm_engine *engine, float *logits, err *e) {
    llm_session *s;
    llm_session_options options = {.kv_memory_bytes = 1 << 20, .cancel = cancel};
    static const llm_token tokens[] = {1, 2, 3, 4, 5};
    assert_int_equal(llm_session_new(engine, &options, &s, e), 0);
    int code = llm_logprobs(s, tokens, BASE_COUNT(tokens), logits, e);
    llm_session_free(s);
    return code;
}

static int one_answer(llm_engine *engine, float *logits, err *e) {
    return one_answer_unless(NULL, engine, logits, e);
}

static void a_record_spares_the_weights(void **state) {
    (void)state;
    gguf_maker m = {0};
    err e = {0};
    gguf *g;
    llm_engine first, second;
    float want[TINY_VOCAB], got[TINY_VOCAB];
    char dir[] = "/tmp/kvasir-side-XXXXXX";
    assert_non_null(mkdtemp(dir));
    str file = tiny_make(&m, &tiny_models[0]);
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    open_on_record(&first, g, dir, false);
    assert_true(weights_are_read(&first));
    assert_int_equal(one_answer(&first, want, &e), 0);

    open_on_record(&second, g, dir, false);
    assert_false(weights_are_read(&second));
    assert_true(hash128_equal(second.info.fingerprint, first.info.fingerprint));
    assert_true(second.info.prefill_tok_s > 0 && second.info.decode_tok_s > 0);
    assert_int_equal(second.info.weight_bytes, first.info.weight_bytes);
    assert_int_equal(one_answer(&second, got, &e), 0);
    assert_true(weights_are_read(&second) && !llm_engine_outdated(&second));
    assert_memory_equal(got, want, sizeof got);
    engine_unload(&second);

    /* bits that are not the record's: nothing is computed under its fingerprint */
    char side_file[512];
    only_file(dir, side_file);
    tamper(side_file);
    open_on_record(&second, g, dir, false);
    assert_false(hash128_equal(second.info.fingerprint, first.info.fingerprint));
    for (int i = 0; i < 2; i++)
        assert_int_equal(one_answer(&second, got, &e), ERR_MODEL);
    assert_true(llm_engine_outdated(&second));
    engine_unload(&second);
    open_on_record(&second, g, dir, false); /* the record is right again */
    assert_true(hash128_equal(second.info.fingerprint, first.info.fingerprint));
    assert_false(weights_are_read(&second));
    engine_unload(&second);
    tamper(side_file);
    open_on_record(&second, g, dir, true); /* or not asked */
    assert_true(weights_are_read(&second));
    assert_true(hash128_equal(second.info.fingerprint, first.info.fingerprint));
    engine_unload(&second);
    engine_unload(&first);
    gguf_close(g);
    make_free(&m);
    assert_int_equal(unlink(side_file), 0);
    assert_int_equal(rmdir(dir), 0);
}

typedef struct later {
    atomic_bool cancel;
    useconds_t delay_us;
} later;

static void *cancel_later(void *arg) {
    later *l = arg;
    usleep(l->delay_us);
    atomic_store(&l->cancel, true);
    return NULL;
}

/* Cancelled wherever it may be, a load goes on when the weights are wanted again. */
static void a_cancelled_load_goes_on(void **state) {
    (void)state;
    enum { TRIES = 40 };
    gguf_maker m = {0};
    err e = {0};
    gguf *g;
    llm_engine engine;
    float want[TINY_VOCAB], got[TINY_VOCAB];
    char dir[] = "/tmp/kvasir-side-XXXXXX", side_file[512];
    int cancelled = 0;
    assert_non_null(mkdtemp(dir));
    str file = tiny_make(&m, &tiny_models[0]);
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    open_on_record(&engine, g, dir, true);
    assert_int_equal(one_answer(&engine, want, &e), 0);
    engine_unload(&engine);
    for (int i = 0; i < TRIES; i++) {
        later l = {.cancel = i == 0, .delay_us = (useconds_t)i * 50};
        pthread_t thread;
        open_on_record(&engine, g, dir, false);
        assert_int_equal(pthread_create(&thread, NULL, cancel_later, &l), 0);
        int code = one_answer_unless(&l.cancel, &engine, got, &e);
        pthread_join(thread, NULL);
        assert_true(code == 0 || code == ERR_CANCELLED);
        assert_int_equal(weights_are_read(&engine), code == 0);
        cancelled += code != 0;
        assert_int_equal(one_answer(&engine, got, &e), 0);
        assert_memory_equal(got, want, sizeof got);
        engine_unload(&engine);
    }
    assert_true(cancelled > 0);
    gguf_close(g);
    make_free(&m);
    only_file(dir, side_file);
    assert_int_equal(unlink(side_file), 0);
    assert_int_equal(rmdir(dir), 0);
}

/* The likeliest tokens alone are those that all logits show, with the same bits. */
static void tops_are_the_largest(void **state) {
    (void)state;
    enum { ROWS = 3, TOP = 10 };
    gguf_maker m = {0};
    err e = {0};
    gguf *g;
    llm_engine engine;
    void *work;
    str file = tiny_make(&m, &tiny_models[0]);
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    variant v = {.options = {.precision = LLM_F32}};
    engine_load(&engine, g, 2, &v);
    assert_int_equal(
        backend_cpu.work_new(&engine, &(work_size){.blocks = 1, .rows = 64}, &work, &e), 0);
    static const int32_t table[] = {0};
    static float logits[3 * ROWS][TINY_VOCAB];
    llm_token ids[3 * ROWS][PASS_TOP];
    static const int tops[] = {0, TOP, 1};
    pass_row rows[ROWS];
    pass_want wants[3 * ROWS];
    for (int i = 0; i < 3 * ROWS; i++) {
        rows[i / 3] = (pass_row){.token = i / 3 + 1, .position = i / 3, .table = table};
        wants[i] = (pass_want){.row = i / 3,
                               .count = TINY_VOCAB,
                               .logits = logits[i],
                               .top = tops[i % 3],
                               .top_ids = ids[i]};
    }
    pass p = {.rows = rows, .nrows = ROWS, .wants = wants, .nwants = 3 * ROWS};
    assert_int_equal(backend_cpu.forward(&engine, work, &p, &e), 0);
    for (int r = 0; r < ROWS; r++) {
        const float *x = logits[3 * r];
        for (int k = 0; k < TOP; k++) {
            llm_token id = ids[3 * r + 1][k];
            int before = 0;
            for (int i = 0; i < TINY_VOCAB; i++)
                before += x[i] > x[id] || (x[i] == x[id] && i < id);
            assert_int_equal(before, k);
            assert_memory_equal(&logits[3 * r + 1][k], &x[id], sizeof *x);
        }
        assert_int_equal(ids[3 * r + 2][0], ids[3 * r + 1][0]);
        assert_memory_equal(logits[3 * r + 2], logits[3 * r + 1], sizeof(float));
    }
    backend_cpu.work_free(&engine, work);
    engine_unload(&engine);
    gguf_close(g);
    make_free(&m);
}

/* Tokens asked for by name have the logits that they have among all, caps and own heads included. */
static void listed_tokens_are_those_of_all(const tiny_model *t) {
    static const llm_token listed[] = {3, 0, TINY_VOCAB - 1, 17};
    static const int32_t table[] = {0};
    gguf_maker m = {0};
    err e = {0};
    gguf *g;
    llm_engine engine;
    void *work;
    str file = tiny_make(&m, t);
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    variant v = {.options = {.precision = LLM_F32}};
    engine_load(&engine, g, 2, &v);
    work_size size = {.blocks = 1, .rows = 64};
    assert_int_equal(backend_cpu.work_new(&engine, &size, &work, &e), 0);
    float all[TINY_VOCAB], some[BASE_COUNT(listed)];
    pass_row rows[] = {{.token = 7, .position = 0, .table = table},
                       {.token = 8, .position = 1, .table = table}};
    pass_want wants[] = {{.row = 1, .count = TINY_VOCAB, .logits = all},
                         {.row = 1, .ids = listed, .count = BASE_COUNT(listed), .logits = some}};
    pass p = {.rows = rows, .nrows = 2, .wants = wants, .nwants = 2};
    assert_int_equal(backend_cpu.forward(&engine, work, &p, &e), 0);
    for (size_t i = 0; i < BASE_COUNT(listed); i++)
        if (!(fabsf(some[i] - all[listed[i]]) < 1e-4f * (1 + fabsf(all[listed[i]]))))
            fail_msg("%s: token %d has %.6g listed, %.6g among all", t->name, listed[i],
                     (double)some[i], (double)all[listed[i]]);
    backend_cpu.work_free(&engine, work);
    engine_unload(&engine);
    gguf_close(g);
    make_free(&m);
}

static void listed_tokens(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_COUNT(tiny_models); i++)
        listed_tokens_are_those_of_all(&tiny_models[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture),          cmocka_unit_test(options_are_identity),
        cmocka_unit_test(tops_are_the_largest),        cmocka_unit_test(listed_tokens),
        cmocka_unit_test(a_record_spares_the_weights), cmocka_unit_test(a_cancelled_load_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
