/*
 * test_exec_prompt_tree.c - the tree of EXPLAIN (TREE): random prompts, compared with counting
 * without a tree; and what is printed adds up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llm/prompt_tree_int.h"

enum { ROUNDS = 300, PROMPTS = 60, TOKENS = 12 };

static llm_engine *engine;

static int open_engine(void **state) {
    llm_engine_options options = {.path = "test:hash"};
    err e;
    (void)state;
    return llm_engine_open(&options, &engine, &e);
}

static int close_engine(void **state) {
    (void)state;
    llm_engine_close(engine);
    return 0;
}

static uint32_t pick(uint64_t *state, uint32_t n) {
    *state = hash_mix(*state, 1);
    return (uint32_t)((*state >> 33) % n);
}

/* Adds up the second column of the lines that begin with blanks, but for the line with names. */
static uint64_t tokens_printed(const char *text) {
    uint64_t sum = 0;
    while ((text = strchr(text, '\n')) != NULL && *++text == ' ') {
        const char *p = text + strspn(text, " ");
        p += strspn(p, "0123456789,");
        sum += strtoull(p, NULL, 10); /* under 1,000 */
    }
    return sum;
}

static void test_random_prompts(void **state) {
    (void)state;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        llm_token prompts[PROMPTS][TOKENS];
        int lengths[PROMPTS];
        uint64_t random = round, sent = 0, computed = 0;
        uint32_t letters = 1 + pick(&random, 4), n = 1 + pick(&random, PROMPTS);
        arena *mem = arena_new();
        prompt_tree tree;
        prompt_tree_init(&tree, engine, mem);
        for (uint32_t i = 0; i < n; i++) {
            int best = 0;
            lengths[i] = 1 + (int)pick(&random, TOKENS);
            for (int k = 0; k < lengths[i]; k++)
                /* a token of test:hash with one letter */
                prompts[i][k] = (llm_token)(1 << 24 | ('a' + (int)pick(&random, letters)));
            for (uint32_t j = 0; j < i; j++) {
                int same = 0;
                while (same < BASE_MIN(lengths[i], lengths[j]) &&
                       prompts[i][same] == prompts[j][same])
                    same++;
                best = BASE_MAX(best, same);
            }
            assert_int_equal(prompt_tree_add(&tree, prompts[i], lengths[i]), best);
            sent += (uint64_t)lengths[i];
            computed += (uint64_t)(lengths[i] - best);
        }
        assert_int_equal(tree.sent, sent);
        assert_int_equal(tree.computed, computed);
        assert_int_equal(tree.nodes[TREE_ROOT].prompts, n);
        buf out = {0};
        prompt_tree_print(&tree, &out);
        assert_int_equal(tokens_printed(out.p), computed);
        buf_free(&out);
        prompt_tree_free(&tree);
        arena_free(mem);
    }
}

/* Children stand in the order of their first prompts; equal-looking ones are one line. */
static void test_printed(void **state) {
    static const char *const texts[] = {"Good?\nz: one", "Good?\nz: two",  "Good?\na: 1",
                                        "Good?\na: 2",   "Good?\na: 3",    "Good?\na: 4",
                                        "Good?\na: 5",   "Good?\nz: two\n"};
    arena *mem = arena_new();
    prompt_tree tree;
    buf out = {0};
    (void)state;
    prompt_tree_init(&tree, engine, mem);
    for (size_t i = 0; i < BASE_COUNT(texts); i++) {
        size_t count;
        llm_token *tokens = llm_tokenize(engine, str_from(texts[i]), false, false, &count);
        prompt_tree_add(&tree, tokens, (int)count);
        free(tokens);
    }
    prompt_tree_print(&tree, &out);
    assert_string_equal(out.p, "  prompts       tokens  text\n"
                               "        8            4  Good?↵\n"
                               "        3            2  ├─ z:\n"
                               "        1            2  │  ├─ one\n"
                               "        2            2  │  └─ two\n"
                               "        1            1  │     └─ ↵\n"
                               "        5            3  └─ a:\n"
                               "        1            1     ├─ 1\n"
                               "        1            1     ├─ 2\n"
                               "        3            3     └─ … 3 more, 1 token each\n");
    buf_free(&out);
    prompt_tree_free(&tree);
    arena_free(mem);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_prompts),
                                       cmocka_unit_test(test_printed)};
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
