/*
 * test_sessions.c - whole sessions on the card, with a tokenizer and the scheduler: blocks that are
 * on their way, and draws from the likeliest tokens.
 */
#include "gpu_ahead.h"
#include "test_kernels_int.h"

static gguf_maker maker;
static llm_engine *engine;

int session_setup(void **state) {
    (void)state;
    static const tiny_model tiny = {"llama", "llama", 2, 64, 0, 0, NULL};
    err e = {0};
    maker = (gguf_maker){0};
    tiny_vocabulary(&maker);
    str file = tiny_make(&maker, &tiny);
    engine = mem_zalloc(sizeof *engine);
    *engine = (llm_engine){.backend = &backend_cuda, .mem = arena_new()};
    assert_int_equal(gguf_open_memory(file.p, file.n, &engine->file, &e), 0);
    assert_int_equal(config_read(engine->file, &engine->config, &e), 0);
    assert_int_equal(tokenizer_new(engine->file, &engine->tokenizer, &e), 0);
    engine->bos = engine->eos = engine->newline = -1;
    engine->config.context = 1024;
    engine->info.threads = 2;
    cuda_state *s = mem_zalloc(sizeof *s);
    s->probe_rows = 128;
    engine->state = s;
    int code = cuda_start(engine, 0, &e);
    if (code != 0)
        print_error("%s\n", e.message);
    return code;
}

int session_teardown(void **state) {
    (void)state;
    backend_cuda.close(engine);
    tokenizer_free(engine->tokenizer);
    arena_free(engine->mem);
    gguf_close(engine->file);
    free(engine);
    make_free(&maker);
    return 0;
}

static void requests_yield_to_those_that_are_ready(void **state) {
    (void)state;
    ahead_check(engine);
}

static void blocks_go_on_in_host_memory(void **state) {
    (void)state;
    tiers_check(engine);
}

enum { DRAWS = 12 };

/* Free answers of several samplings, as text. */
static void draw_all(char texts[DRAWS][128]) {
    static const llm_sampling samplings[] = {{.temperature = 0.7f, .top_p = 1},
                                             {.temperature = 5, .top_p = 1},
                                             {.temperature = 1, .top_p = 0.8f},
                                             {.temperature = 2, .top_p = 1, .top_k = 3},
                                             {.temperature = 2, .top_p = 1, .min_p = 0.3f},
                                             {.temperature = 0}};
    llm_session_options options = {.kv_memory_bytes = (size_t)16 << 20, .pass_tokens = 100};
    llm_session *s;
    err e = {0};
    assert_int_equal(llm_session_new(engine, &options, &s, &e), 0);
    for (int i = 0; i < DRAWS; i++) {
        llm_span *spans[] = {llm_span_new(engine, LLM_SPAN_TEMPLATE, STR("")),
                             llm_span_new(engine, LLM_SPAN_VALUE, STR(" ab cd a ba\n"))};
        llm_request q = {.tag = (uint64_t)i, .spans = spans, .nspans = 2, .max_tokens = 9};
        q.sampling = samplings[i % (int)BASE_COUNT(samplings)];
        q.sampling.seed = (uint64_t)i;
        assert_int_equal(llm_submit(s, &q, &e), 0);
        llm_span_release(spans[0]);
        llm_span_release(spans[1]);
    }
    bool idle = false;
    while (!idle) {
        llm_event ev;
        int count;
        if (llm_step(s, &ev, 1, &count, &idle, &e) != 0)
            fail_msg("%s", e.message);
        if (count > 0)
            snprintf(texts[ev.tag], sizeof texts[0], "%.*s", (int)ev.text.n, ev.text.p);
    }
    llm_session_free(s);
}

static void draws_are_those_from_all_logits(void **state) {
    (void)state;
    char few[DRAWS][128], all[DRAWS][128];
    draw_all(few);
    llm_backend plain = backend_cuda;
    plain.draws = false;
    engine->backend = &plain;
    draw_all(all);
    engine->backend = &backend_cuda;
    int others = 0;
    for (int i = 0; i < DRAWS; i++) {
        assert_string_equal(few[i], all[i]);
        others += strcmp(few[i], few[0]) != 0;
    }
    assert_true(others > DRAWS / 2);
}

const struct CMUnitTest session_tests[] = {
    cmocka_unit_test(requests_yield_to_those_that_are_ready),
    cmocka_unit_test(blocks_go_on_in_host_memory),
    cmocka_unit_test(draws_are_those_from_all_logits),
};
const size_t session_tests_count = BASE_COUNT(session_tests);
