/*
 * test_gpu_ahead.c - blocks read ahead of the walk, on the CPU: requests yield, bits stay, and what
 * is dropped, taken early or never taken does no harm.
 */
#include "cpu/cpu_int.h"
#include "gpu_ahead.h"
#include "gpu_tiny.h"
#include "session/session_int.h"

static gguf_maker maker;
static llm_engine engine;

static int setup(void **state) {
    (void)state;
    err e = {0};
    maker = (gguf_maker){0};
    tiny_vocabulary(&maker);
    str file = tiny_make(&maker, &tiny_models[0]);
    engine = (llm_engine){.backend = &backend_cpu, .mem = arena_new()};
    assert_int_equal(gguf_open_memory(file.p, file.n, &engine.file, &e), 0);
    assert_int_equal(config_read(engine.file, &engine.config, &e), 0);
    assert_int_equal(tokenizer_new(engine.file, &engine.tokenizer, &e), 0);
    engine.bos = engine.eos = engine.newline = -1;
    engine.config.context = 1024;
    engine.info.threads = 2;
    llm_engine_options options = {.precision = LLM_F32};
    return cpu_load(&engine, &options, &e);
}

static int teardown(void **state) {
    (void)state;
    backend_cpu.close(&engine);
    tokenizer_free(engine.tokenizer);
    arena_free(engine.mem);
    gguf_close(engine.file);
    make_free(&maker);
    return 0;
}

static void requests_yield_to_those_that_are_ready(void **state) {
    (void)state;
    ahead_check(&engine);
}

/* The CPU has one tier; the scheduler does not know, and
 * keeps what live requests use within the smaller budget. */
static void blocks_go_on_in_host_memory(void **state) {
    (void)state;
    engine.info.kv_host_bytes = 1;
    tiers_check(&engine);
}

/* What a pass foresees of the next: blocks that hold KV which somebody waits for, no more of them
 * than fit beside those of live requests. */
static llm_session *watched;
static int foreseen;

static int forward_watched(llm_engine *e, void *work, const pass *p, err *error) {
    const prefix_tree *t = &watched->tree;
    assert_true(p->nnext <= BASE_MAX(watched->device_blocks - t->used_blocks, 0));
    for (int i = 0; i < p->nnext; i++)
        assert_true(t->refs[p->next[i]] > 0 && t->owner[p->next[i]]->waiting > 0);
    foreseen += p->nnext;
    return backend_cpu.forward(e, work, p, error);
}

static void passes_foresee_what_comes_next(void **state) {
    (void)state;
    llm_backend watching = backend_cpu;
    watching.forward = forward_watched;
    engine.backend = &watching;
    engine.info.kv_host_bytes = 1;
    foreseen = 0;
    size_t block = LLM_BLOCK_TOKENS * engine.info.kv_bytes_per_token;
    llm_session_options options = {.pass_tokens = 64,
                                   .max_batch = 2,
                                   .kv_memory_bytes = TIER_BLOCKS * block,
                                   .kv_host_bytes = 60 * block};
    err e = {0};
    assert_int_equal(llm_session_new(&engine, &options, &watched, &e), 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2 * AHEAD_PROMPTS; i++)
            ahead_submit(&engine, watched, i / 2);
        for (bool idle = false; !idle;) {
            llm_event ev;
            int count;
            assert_int_equal(llm_step(watched, &ev, 1, &count, &idle, &e), 0);
        }
    }
    assert_true(foreseen > 0);
    llm_session_free(watched);
    engine.backend = &backend_cpu;
}

/* A block of 2 MB takes a disk a millisecond: 32 µs a token. */
static void what_is_computed_sooner_than_read_is_not_stored(void **state) {
    (void)state;
    llm_session s = {.block_size = 2000000};
    assert_true(session_store_pays(&s)); /* nobody knows yet */
    s.ms_per_token = 0.1;
    assert_true(session_store_pays(&s));
    s.ms_per_token = 0.001;
    assert_false(session_store_pays(&s));
    s.options.store.keep_all = true;
    assert_true(session_store_pays(&s));
    s.options.store.keep_all = false;
    s.options.warm_only = true;
    assert_true(session_store_pays(&s));
}

/* ---- the loader alone ------------------------------------------------------------------------ */

static char written[4][16]; /* what came to a session's blocks */

static void note_write(llm_engine *e, void *work, int32_t block, const void *in) {
    (void)e;
    (void)work;
    memcpy(written[block], in, sizeof written[0]);
}

static llm_kv_id id_of(int i) {
    return (llm_kv_id){.key = {.low = (uint64_t)i + 1}, .depth = i};
}

/* Every third block is not there. */
static bool plain_get(void *ctx, const llm_kv_id *id, void *kv, size_t bytes) {
    (void)ctx;
    memset(kv, id->depth % 251, bytes);
    return id->depth % 3 != 2;
}

static void many_blocks_pass_through_few_pages(void **state) {
    (void)state;
    static const llm_backend plain = {.kv_write = note_write};
    llm_engine e = {.backend = &plain};
    llm_kv_store store = {.get = plain_get};
    for (int round = 0; round < 20; round++) {
        loader *l = loader_new(&e, NULL, &store, 16);
        assert_non_null(l);
        assert_int_equal(loader_status(l, 0, id_of(0).key), LOAD_UNKNOWN);
        uint64_t numbers[1000];
        int asked = 0;
        for (int i = 0; i < 1000; i++) { /* takes some, drops some, forgets the rest */
            for (; asked < 1000 && loader_room(l) > 0; asked++) {
                llm_kv_id id = id_of(asked);
                numbers[asked] = loader_ask(l, &id);
            }
            if (i >= asked)
                continue;
            if (i % 7 == round % 7) {
                loader_drop(l, numbers[i], 2);
            } else if (i % 5 != round % 5) {
                load_state got = loader_take(l, numbers[i], id_of(i).key, i % 4);
                assert_true(got != LOAD_HERE ||
                            (i % 3 != 2 && written[i % 4][7] == (char)(i % 251)));
                assert_true(got == LOAD_HERE || got == LOAD_UNKNOWN || i % 3 == 2);
                assert_int_equal(loader_status(l, numbers[i], id_of(i).key), LOAD_UNKNOWN);
            }
        }
        /* what is never taken keeps its page, and its place while it is to come */
        assert_true(asked >= LOADS / 2);
        loader_free(l);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_yield_to_those_that_are_ready, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_go_on_in_host_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(passes_foresee_what_comes_next, setup, teardown),
        cmocka_unit_test(what_is_computed_sooner_than_read_is_not_stored),
        cmocka_unit_test(many_blocks_pass_through_few_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
