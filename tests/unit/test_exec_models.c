/*
 * test_exec_models.c - which engines stay open: those that are held, and the last used.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gpu_testing.h"
#include "gpu_tiny.h"
#include "llm/models_int.h"

static db *open_memory(void) {
    db *d;
    err e;
    db_options options = {.model = "test:hash"};
    assert_int_equal(db_open(&options, &d, &e), 0);
    return d;
}

static void run(db *d, const char *sql) {
    const batch *b;
    stmt_status status;
    err e = {0};
    stmt *s = db_submit(d, str_from(sql));
    while ((status = stmt_next(s, -1, &b, &e)) == STMT_ROWS)
        continue;
    if (status == STMT_ERROR)
        fail_msg("%s: %s", sql, e.message);
    stmt_free(s);
}

/* Between statements the worker is at rest, and its functions may be called here. */
static llm_engine *hold(db *d, int window_tokens) {
    settings s = *db_settings(d);
    llm_engine *engine;
    err e = {0};
    s.window_tokens = window_tokens;
    assert_int_equal(engine_acquire(d, &s, NULL, STR(""), false, NULL, &engine, &e), 0);
    return engine;
}

static void settings_tried_one_after_another_keep_two_engines_open(void **state) {
    (void)state;
    char sql[80];
    db *d = open_memory();
    assert_int_equal(models_open(d), 0);
    for (int window = 64; window < 640; window += 64) {
        snprintf(sql, sizeof sql, "SET window_tokens = %d", window);
        run(d, sql);
        run(d, "SELECT LLM('Is it?') RETURNS BOOLEAN");
        assert_int_equal(models_open(d), window == 64 ? 1 : 2);
    }
    run(d, "SELECT LLM('Is it?') RETURNS BOOLEAN");
    assert_int_equal(models_open(d), 2);
    db_close(d);
}

static void models_of_one_statement_stay_open_until_another_is(void **state) {
    (void)state;
    const char *all =
        "SELECT LLM('A?', model => m1) RETURNS BOOLEAN, LLM('B?', model => m2) RETURNS "
        "BOOLEAN, LLM('C?', model => m3) RETURNS BOOLEAN";
    db *d = open_memory();
    run(d, "CREATE MODEL m1 FROM 'test:hash:1'");
    run(d, "CREATE MODEL m2 FROM 'test:hash:2'");
    run(d, "CREATE MODEL m3 FROM 'test:hash:3'");
    run(d, all);
    assert_int_equal(models_open(d), 3);
    run(d, all);
    assert_int_equal(models_open(d), 3);
    run(d, "SELECT LLM('A?') RETURNS BOOLEAN");
    assert_int_equal(models_open(d), 2);
    db_close(d);
}

static void an_engine_that_is_held_stays_open(void **state) {
    (void)state;
    db *d = open_memory();
    llm_engine *held = hold(d, 64), *again = hold(d, 64);
    assert_ptr_equal(held, again);
    engine_release(d, again);
    for (int window = 128; window < 640; window += 64)
        engine_release(d, hold(d, window));
    assert_int_equal(models_open(d), 3);
    assert_int_equal(llm_engine_info(held)->kv_block_tokens, LLM_BLOCK_TOKENS); /* and is alive */
    engine_release(d, held);
    engine_release(d, hold(d, 128));
    assert_int_equal(models_open(d), 2);
    db_close(d);
}

static void the_last_used_is_the_one_that_stays(void **state) {
    (void)state;
    db *d = open_memory();
    llm_engine *first = hold(d, 64), *second = hold(d, 128);
    engine_release(d, second);
    engine_release(d, first); /* the last used */
    engine_release(d, hold(d, 192));
    llm_engine *now = hold(d, 64);
    assert_ptr_equal(now, first);
    assert_int_equal(models_open(d), 2);
    engine_release(d, now);
    db_close(d);
}

static void facts_outlive_the_engine_that_they_are_of(void **state) {
    (void)state;
    llm_model_info facts;
    err e = {0};
    db *d = open_memory();
    arena *mem = arena_new();
    assert_int_equal(db_model_info(d, mem, &facts, NULL, &e), 0);
    for (int window = 64; window < 256; window += 64)
        engine_release(d, hold(d, window));
    db_close(d);
    assert_string_equal(facts.path, "test:hash");
    assert_true(strlen(facts.name) > 0 && strlen(facts.architecture) > 0);
    assert_true(strlen(facts.device) > 0 && strlen(facts.chat_family) > 0);
    arena_free(mem);
}

static void facts_that_are_long_in_coming_can_be_cancelled(void **state) {
    (void)state;
    char path[] = P_tmpdir "/kvasir-models-XXXXXX", sql[96];
    atomic_bool cancel = true;
    llm_model_info facts;
    gguf_maker m = {0};
    err e = {0};
    buf out = {0};
    arena *mem = arena_new();
    tiny_vocabulary(&m);
    str file = tiny_make(&m, &tiny_models[0]);
    int fd = mkstemp(path);
    assert_int_equal(write(fd, file.p, file.n), file.n);
    make_free(&m);
    db *d = open_memory();
    snprintf(sql, sizeof sql, "SET model = '%s'", path);
    run(d, sql);
    assert_int_equal(db_model_info(d, mem, &facts, &cancel, &e), ERR_CANCELLED);
    assert_int_equal(db_tokenize(d, STR("ab"), &out, &cancel, &e), ERR_CANCELLED);
    cancel = false;
    assert_int_equal(db_model_info(d, mem, &facts, &cancel, &e), 0);
    assert_int_equal(db_tokenize(d, STR("ab"), &out, &cancel, &e), 0);
    db_close(d);
    close(fd);
    unlink(path);
    buf_free(&out);
    arena_free(mem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_tried_one_after_another_keep_two_engines_open),
        cmocka_unit_test(models_of_one_statement_stay_open_until_another_is),
        cmocka_unit_test(an_engine_that_is_held_stays_open),
        cmocka_unit_test(the_last_used_is_the_one_that_stays),
        cmocka_unit_test(facts_outlive_the_engine_that_they_are_of),
        cmocka_unit_test(facts_that_are_long_in_coming_can_be_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
