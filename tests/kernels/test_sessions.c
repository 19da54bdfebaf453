/*
 * test_sessions.c - whole sessions on the card, with a tokenizer and the scheduler: blocks that
 * move between the card and host memory, and draws. On the emulated card many seeds vary the order
 * of the streams.
 */
#include "gpu_ahead.h"
#include "session/session_int.h"
#include "test_kernels_int.h"

#include <inttypes.h>

#ifdef KVASIR_HOST_CARD
#include "card_int.h"
#endif

static gguf_maker maker;
static llm_engine *engine;

int session_setup(void **state) {
    (void)state;
    static const tiny_model tiny = {"llama", "llama", 2, 64, 0, 0, NULL, 0};
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

static void blocks_continue_in_host_memory(void **state) {
    (void)state;
    tiers_check(engine);
}

/* Blocks moved from and to host memory, and those of them that moved while a part was computing. */
typedef struct moves {
    uint64_t in, in_ahead, out, out_ahead;
} moves;

/* Runs all prompts twice on a card of `slots` blocks; the second round finds their KV on the card
 * or in host memory. */
static void rounds_do(int slots, int most, ahead_run *out, moves *m) {
    size_t block = LLM_BLOCK_TOKENS * llm_engine_info(engine)->kv_bytes_per_token;
    llm_session_options options = {.keep_logits = true,
                                   .pass_tokens = 64,
                                   .max_batch = most,
                                   .kv_memory_bytes = (size_t)slots * block,
                                   .kv_host_bytes = 100 * block};
    llm_session *s;
    err e = {0};
    if (llm_session_new(engine, &options, &s, &e) != 0)
        fail_msg("%s", e.message);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2 * AHEAD_PROMPTS; i++)
            ahead_submit(engine, s, i / 2); /* submitted twice, so that its KV is kept */
        for (bool idle = false; !idle;) {
            llm_event ev;
            int count;
            if (llm_step(s, &ev, 1, &count, &idle, &e) != 0)
                fail_msg("%s", e.message);
            if (count > 0)
                memcpy(out->top[ev.tag], ev.top_logits, sizeof out->top[0]);
        }
    }
    const cuda_kv *kv = &((cuda_work *)s->work)->kv;
    *m = (moves){kv->moved_in, kv->in_ahead, kv->moved_out, kv->out_ahead};
    llm_session_free(s);
}

/* The next prompts' blocks are prefetched while a part computes; in every order of the streams, the
 * bits are those of a session with all its blocks on the card. */
static void the_next_blocks_are_prefetched(void **state) {
    (void)state;
    enum { BATCHES = 3 };
    ahead_run plain = {0};
    moves of[BATCHES];
    ahead_do(engine, NULL, AHEAD_PROMPTS, 200, &plain);
    int seeds = 1;
#ifdef KVASIR_HOST_CARD
    seeds = 5;
#endif
    for (int seed = 1; seed <= seeds; seed++) {
        for (int i = 0; i < BATCHES; i++) {
#ifdef KVASIR_HOST_CARD
            card_order(CARD_SEEDED, (uint64_t)seed);
#endif
            ahead_run run = {0};
            rounds_do(14 + 4 * i, i + 1, &run, &of[i]);
            assert_memory_equal(plain.top, run.top, sizeof plain.top);
        }
    }
#ifdef KVASIR_HOST_CARD
    card_order_given();
#endif
    for (int i = 0; i < BATCHES; i++) {
        print_message("%d slots: %" PRIu64 " of %" PRIu64 " blocks came during a part, %" PRIu64
                      " of %" PRIu64 " left during one\n",
                      14 + 4 * i, of[i].in_ahead, of[i].in, of[i].out_ahead, of[i].out);
        assert_true(of[i].in > 0 && of[i].in_ahead > 0 && of[i].out_ahead > 0);
    }
}

enum { DRAWS = 12 };

/* Generates unconstrained answers with several sampling settings, as text. */
static void draw_all(char texts[DRAWS][128]) {
    static const llm_sampling samplings[] = {{.temperature = 0.7f, .top_p = 1},
                                             {.temperature = 5, .top_p = 1},
                                             {.temperature = 3, .top_p = 0.8f},
                                             {.temperature = 4, .top_p = 1, .top_k = 3},
                                             {.temperature = 4, .top_p = 1, .min_p = 0.3f},
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
    cmocka_unit_test(blocks_continue_in_host_memory),
    cmocka_unit_test(the_next_blocks_are_prefetched),
    cmocka_unit_test(draws_are_those_from_all_logits),
};
const size_t session_tests_count = BASE_COUNT(session_tests);
