/*
 * test_gpu_schedule.c - scheduling, reuse and statistics, run with the test backend: exact counts,
 * no model.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/engine_int.h"

static llm_engine *engine;

static int open_engine(void **state) {
    (void)state;
    err e = {0};
    llm_engine_options options = {.path = "test:hash"};
    return llm_engine_open(&options, &engine, &e);
}

static int close_engine(void **state) {
    (void)state;
    llm_engine_close(engine);
    return 0;
}

static llm_span *span(llm_span_kind kind, const char *text) {
    return llm_span_new(engine, kind, str_from(text));
}

static size_t span_count(const llm_span *s) {
    size_t n;
    llm_span_tokens(s, &n);
    return n;
}

typedef struct answers {
    char text[512][24];
    double prob[512];
    llm_figures stats;
} answers;

/* `movies` × `reviews` prompts: head, movie, review;
 * each movie's reviews are spread over the input. */
static void run(llm_session_options options, int movies, int reviews, bool reviews_first,
                answers *out) {
    err e = {0};
    llm_session *s;
    assert_int_equal(llm_session_new(engine, &options, &s, &e), 0);
    llm_span *head = span(LLM_SPAN_TEMPLATE, ""),
             *ask = span(LLM_SPAN_INSTRUCTION, "Is the review positive?\n");
    llm_span *after = span(LLM_SPAN_TEMPLATE, "answer:");
    llm_span *movie_name = span(LLM_SPAN_NAME, "movie:"),
             *review_name = span(LLM_SPAN_NAME, "review:");
    str literals[] = {STR("positive"), STR("negative")};
    const llm_template *template = llm_engine_template(engine, LLM_FORMAT_AUTO);
    llm_guide *guide = llm_guide_new(engine, LLM_GUIDE_CHOICE, literals, 2, template, &e);
    assert_non_null(guide);
    for (int i = 0; i < movies * reviews; i++) {
        int m = i % movies;
        char text[256];
        snprintf(text, sizeof text,
                 " the story of movie number %d goes on and on for quite a while\n", m);
        llm_span *movie = span(LLM_SPAN_VALUE, text);
        snprintf(text, sizeof text, " opinion %d of it\n", i);
        llm_span *review = span(LLM_SPAN_VALUE, text);
        llm_span *by_movie[] = {head, ask, movie_name, movie, review_name, review, after};
        llm_span *by_review[] = {head, ask, review_name, review, movie_name, movie, after};
        llm_request q = {.tag = (uint64_t)i,
                         .spans = reviews_first ? by_review : by_movie,
                         .nspans = 7,
                         .guide = guide,
                         .after = template};
        assert_int_equal(llm_submit(s, &q, &e), 0);
        llm_span_release(movie);
        llm_span_release(review);
    }
    bool idle = false;
    int seen = 0;
    while (!idle) {
        llm_event events[16];
        int count;
        assert_int_equal(llm_step(s, events, 16, &count, &idle, &e), 0);
        for (int i = 0; i < count; i++, seen++) {
            assert_true(events[i].tag < (uint64_t)(movies * reviews));
            snprintf(out->text[events[i].tag], sizeof out->text[0], "%.*s", (int)events[i].text.n,
                     events[i].text.p);
            out->prob[events[i].tag] = events[i].prob;
            assert_int_equal(events[i].prompt_tokens,
                             events[i].reused_tokens + events[i].computed_tokens);
        }
    }
    assert_int_equal(seen, movies * reviews);
    llm_session_figures(s, &out->stats);
    llm_span *all[] = {head, ask, after, movie_name, review_name};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        llm_span_release(all[i]);
    llm_guide_release(guide);
    llm_session_free(s);
}

static void check_balance(const llm_figures *st) {
    assert_int_equal(st->prompt_tokens, st->computed_tokens + st->reused_memory + st->reused_disk);
    assert_int_equal(st->done, st->requests);
}

static void tree_computes_each_node_once(void **state) {
    (void)state;
    static answers tree, fifo, none, small;
    run((llm_session_options){.reuse = LLM_REUSE_TREE}, 20, 10, false, &tree);
    run((llm_session_options){.reuse = LLM_REUSE_FIFO}, 20, 10, false, &fifo);
    run((llm_session_options){.reuse = LLM_REUSE_NONE}, 20, 10, false, &none);
    check_balance(&tree.stats);
    check_balance(&fifo.stats);
    check_balance(&none.stats);
    assert_int_equal(none.stats.computed_tokens, none.stats.prompt_tokens);
    /* all fits: nothing evicted */
    assert_int_equal(fifo.stats.computed_tokens, tree.stats.computed_tokens);
    assert_true(tree.stats.computed_tokens * 2 < none.stats.computed_tokens);
    /* three blocks of memory per prompt at most: the
     * tree still computes each node once, FIFO cannot */
    size_t block = llm_engine_info(engine)->kv_bytes_per_token * LLM_BLOCK_TOKENS;
    run((llm_session_options){.reuse = LLM_REUSE_TREE, .kv_memory_bytes = 12 * block}, 20, 10,
        false, &small);
    check_balance(&small.stats);
    assert_int_equal(small.stats.computed_tokens, tree.stats.computed_tokens);
    run((llm_session_options){.reuse = LLM_REUSE_FIFO, .kv_memory_bytes = 12 * block}, 20, 10,
        false, &fifo);
    check_balance(&fifo.stats);
    assert_true(fifo.stats.computed_tokens > tree.stats.computed_tokens);
    assert_true(fifo.stats.evicted_blocks > 0);
    for (int i = 0; i < 200; i++) {
        assert_string_equal(tree.text[i], none.text[i]);
        assert_string_equal(tree.text[i], small.text[i]);
        assert_string_equal(tree.text[i], fifo.text[i]);
    }
}

static void answers_ignore_field_order(void **state) {
    (void)state;
    static answers a, b;
    run((llm_session_options){0}, 5, 8, false, &a);
    run((llm_session_options){0}, 5, 8, true, &b);
    int positive = 0;
    for (int i = 0; i < 40; i++) {
        assert_string_equal(a.text[i], b.text[i]);
        assert_true(a.prob[i] == b.prob[i] && a.prob[i] >= 0.5 && a.prob[i] <= 1);
        positive += strcmp(a.text[i], "positive") == 0;
    }
    assert_true(positive > 5 && positive < 35);
}

static void counting_equals_running(void **state) {
    (void)state;
    static answers a, b;
    run((llm_session_options){.kv_memory_bytes = 1 << 20}, 20, 10, false, &a);
    run((llm_session_options){.kv_memory_bytes = 1 << 20, .count_only = true}, 20, 10, false, &b);
    check_balance(&b.stats);
    assert_int_equal(a.stats.computed_tokens, b.stats.computed_tokens);
    assert_int_equal(a.stats.prompt_tokens, b.stats.prompt_tokens);
    assert_string_equal(b.text[0], "");
}

static void limits_are_errors(void **state) {
    (void)state;
    err e = {0};
    llm_session *s;
    llm_session_options options = {.kv_memory_bytes = 8 * 1024 * LLM_BLOCK_TOKENS};
    assert_int_equal(llm_session_new(engine, &options, &s, &e), 0);
    buf text = {0};
    for (int i = 0; i < 9000; i++)
        buf_append_c(&text, "1");
    llm_span *head = span(LLM_SPAN_TEMPLATE, ""), *name = span(LLM_SPAN_NAME, "x:");
    llm_span *huge = llm_span_new(engine, LLM_SPAN_VALUE, buf_str(&text));
    llm_span *large = llm_span_new(engine, LLM_SPAN_VALUE, (str){text.p, 400});
    llm_span *spans[] = {head, name, huge};
    llm_request q = {.spans = spans, .nspans = 3, .max_tokens = 8};
    assert_int_equal(llm_submit(s, &q, &e), ERR_LIMIT);
    assert_non_null(strstr(e.message, "context"));
    spans[2] = large;
    assert_int_equal(llm_submit(s, &q, &e), ERR_LIMIT);
    assert_non_null(strstr(e.message, "kv_memory"));
    q.max_tokens = INT32_MAX;
    assert_int_equal(llm_submit(s, &q, &e), ERR_LIMIT);
    q.max_tokens = 8;
    llm_session_free(s);
    options = (llm_session_options){.truncate = true};
    assert_int_equal(llm_session_new(engine, &options, &s, &e), 0);
    llm_span *two[] = {head, name, large, name, huge};
    q.spans = two;
    q.nspans = 5;
    assert_int_equal(llm_submit(s, &q, &e), 0);
    llm_event answer;
    int count;
    for (bool idle = false; !idle;)
        assert_int_equal(llm_step(s, &answer, 1, &count, &idle, &e), 0);
    llm_figures st;
    llm_session_figures(s, &st);
    assert_int_equal(st.truncated, 1);
    assert_int_equal(st.prompt_tokens, 1 + span_count(head) + span_count(name) + span_count(large));
    two[2] = huge; /* wherever the longest stands */
    two[4] = large;
    assert_int_equal(llm_submit(s, &q, &e), 0);
    const bool named[] = {false, false, true, false, false};
    q.named = named; /* the other one goes first, and the one left is too long */
    assert_int_equal(llm_submit(s, &q, &e), ERR_LIMIT);
    assert_non_null(strstr(e.message, "no more fields"));
    q.named = NULL;
    two[4] = huge;
    assert_int_equal(llm_submit(s, &q, &e), ERR_LIMIT);
    assert_non_null(strstr(e.message, "no more fields"));
    llm_session_free(s);
    llm_span *all[] = {head, name, huge, large};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        llm_span_release(all[i]);
    buf_free(&text);
}

static void cancel_keeps_what_is_answered(void **state) {
    (void)state;
    enum { HEAD = 2 };
    err e = {0};
    atomic_bool cancel = false;
    llm_session *s;
    llm_session_options options = {.cancel = &cancel, .pass_tokens = 64};
    assert_int_equal(llm_session_new(engine, &options, &s, &e), 0);
    for (int i = 0; i < 100; i++) {
        char text[64];
        snprintf(text, sizeof text, "question number %d of a hundred", i);
        llm_span *q = span(LLM_SPAN_TEMPLATE, text);
        llm_request r = {.tag = (uint64_t)i, .spans = &q, .nspans = 1, .head_tokens = HEAD};
        assert_int_equal(llm_submit(s, &r, &e), 0);
        llm_span_release(q);
    }
    llm_event events[2];
    int count;
    bool idle;
    assert_int_equal(llm_step(s, events, 2, &count, &idle, &e), 0);
    assert_int_equal(count, 2);
    cancel = true;
    assert_int_equal(llm_step(s, events, 2, &count, &idle, &e), ERR_CANCELLED);
    int left = count;
    while (!idle) {
        assert_int_equal(llm_step(s, events, 2, &count, &idle, &e), 0);
        left += count;
    }
    assert_true(left > 0 && left < 98);
    llm_figures st; /* what was never begun was not sent */
    llm_session_figures(s, &st);
    assert_int_equal(st.done, left + 2);
    assert_int_equal(st.prompt_tokens, st.computed_tokens + st.reused_memory);
    assert_true(st.head_tokens > st.done * HEAD); /* what was begun without an answer has one */
    assert_true(st.head_tokens < st.prompt_tokens);
    llm_session_free(s);
}

static void branches_are_seen(void **state) {
    (void)state;
    err e = {0};
    llm_session *s;
    llm_session_options options = {.pass_tokens = 64};
    assert_int_equal(llm_session_new(engine, &options, &s, &e), 0);
    llm_span *head = span(LLM_SPAN_TEMPLATE, "What is it about?\nstory of a long summer\n");
    for (int i = 0; i < 40; i++) {
        char text[64];
        snprintf(text, sizeof text, " %d is the number\n", i);
        llm_span *spans[] = {head, span(LLM_SPAN_VALUE, text)};
        llm_request r = {.tag = (uint64_t)i, .spans = spans, .nspans = 2};
        assert_int_equal(llm_submit(s, &r, &e), 0);
        llm_span_release(spans[1]);
    }
    llm_event events[4];
    int count;
    bool idle = false;
    assert_int_equal(llm_step(s, events, 4, &count, &idle, &e), 0);
    llm_branch seen[3];
    assert_true(llm_session_branches(s, seen, 3) >= 1);
    assert_int_equal(seen[0].depth, 0);
    assert_int_equal(seen[0].fanout, 40);
    assert_true(seen[0].done > 0 && seen[0].done < 40);
    buf text = {0};
    llm_detokenize(engine, seen[0].first, (size_t)seen[0].nfirst, true, &text);
    assert_non_null(memmem(text.p, text.n, "What is it about?", 17));
    buf_free(&text);
    while (!idle)
        assert_int_equal(llm_step(s, events, 4, &count, &idle, &e), 0);
    llm_memory st;
    llm_session_memory(s, &st);
    assert_true(st.kv_bytes > 0); /* the head stays for the next statement */
    llm_span_release(head);
    llm_session_free(s);
}

/* Prompts of two to four words of two letters: branches are those of a count by prefixes, each once
 * and below the branch that it continues, and those that save most if there is no room for all. */
static void branches_are_a_tree(void **state) {
    (void)state;
    enum { PROMPTS = 200, WORDS = 4 };
    err e = {0};
    llm_session *s;
    char prompts[PROMPTS][64];
    llm_branch all[1000], few[4];
    assert_int_equal(llm_session_new(engine, &(llm_session_options){.pass_tokens = 64}, &s, &e), 0);
    uint64_t random = 7;
    for (int i = 0; i < PROMPTS; i++) {
        int n = 0, words = 2 + i % (WORDS - 1);
        for (int w = 0; w < words; w++) {
            random = hash_mix(random, 1);
            n += snprintf(prompts[i] + n, sizeof prompts[i] - (size_t)n, " %c%c",
                          'a' + (int)(random >> 40) % 3, 'a' + (int)(random >> 50) % 3);
        }
        llm_span *spans[] = {span(LLM_SPAN_TEMPLATE, "Q:"), span(LLM_SPAN_VALUE, prompts[i])};
        llm_request q = {.spans = spans, .nspans = 2, .max_tokens = 1};
        assert_int_equal(llm_submit(s, &q, &e), 0);
        llm_span_release(spans[0]);
        llm_span_release(spans[1]);
    }
    llm_event events[4];
    int count;
    bool idle = false;
    assert_int_equal(llm_step(s, events, 4, &count, &idle, &e), 0);
    int n = llm_session_branches(s, all, 1000);
    assert_true(n > 20 && n < 1000);
    buf path[WORDS + 2] = {0}; /* the text from the root to the branch at each depth */
    int above[WORDS + 2];
    for (int i = 0; i < n; i++) {
        int depth = all[i].depth, begin = 0;
        assert_true(depth <= (i ? all[i - 1].depth + 1 : 0) && depth <= WORDS);
        buf_clear(&path[depth]);
        if (depth > 0)
            buf_append_str(&path[depth], buf_str(&path[depth - 1]));
        llm_detokenize(engine, all[i].first, (size_t)all[i].nfirst, false, &path[depth]);
        above[depth] = all[i].fanout;
        assert_true(depth == 0 || above[depth - 1] > above[depth]);
        for (int k = 0; k < PROMPTS; k++) {
            str whole = buf_str(&path[depth]);
            begin += whole.n <= 2 || strncmp(prompts[k], whole.p + 2, whole.n - 2) == 0;
        }
        assert_int_equal(all[i].fanout, begin);
        assert_int_equal(all[i].tokens, all[i].nfirst);
    }
    assert_int_equal(llm_session_branches(s, few, 4), 4);
    for (int i = 0; i < 4; i++) /* the top, and what may follow it */
        assert_true(few[i].depth == (i > 0) && few[i].fanout > PROMPTS / 9 - 9);
    for (int i = 0; i <= WORDS; i++)
        buf_free(&path[i]);
    llm_session_free(s);
}

/* Random sessions: whatever the limits, every request is answered once and the counts add up. */
static void random_sessions(void **state) {
    (void)state;
    static answers out, first;
    uint64_t seed = 3;
    for (int round = 0; round < 60; round++) {
        seed = hash_mix(seed, (uint64_t)round);
        size_t block = llm_engine_info(engine)->kv_bytes_per_token * LLM_BLOCK_TOKENS;
        llm_session_options options = {.reuse = (llm_reuse)(seed % 3),
                                       .window = (int)(seed >> 8 & 15),
                                       .max_batch = 1 + (int)(seed >> 16 & 7),
                                       .pass_tokens = 1 + (int)(seed >> 24 & 127),
                                       .kv_memory_bytes = (8 + (size_t)(seed >> 32 & 31)) * block,
                                       .count_only = (seed >> 40 & 3) == 0};
        run(options, 6, 6, (seed >> 44 & 1) != 0, round == 0 ? &first : &out);
        check_balance(round == 0 ? &first.stats : &out.stats);
    }
}

/* A span in an arena says what one on the heap does, and lasts through requests that retain it and
 * let it go, be they answered or dropped with their session. */
static void spans_may_live_in_an_arena(void **state) {
    (void)state;
    err e = {0};
    llm_session *s;
    llm_event events[8];
    bool idle = false;
    int count;
    arena *mem = arena_new_spilling(1, NULL);
    llm_span *heap = span(LLM_SPAN_VALUE, " a story of a long summer\n"),
             *name = span(LLM_SPAN_NAME, "x:"), *head = span(LLM_SPAN_TEMPLATE, "");
    llm_span *kept = llm_span_new_in(engine, LLM_SPAN_VALUE, heap->text, mem);
    size_t n, m;
    const llm_token *a = llm_span_tokens(heap, &n), *b = llm_span_tokens(kept, &m);
    assert_true(n == m && memcmp(a, b, n * sizeof *a) == 0);
    assert_true(str_equal(heap->text, kept->text));
    assert_true(arena_spilled_bytes(mem) > 0);
    for (int round = 0; round < 2; round++) {
        llm_span *spans[] = {head, name, kept};
        llm_request q = {.spans = spans, .nspans = 3, .max_tokens = 4};
        assert_int_equal(llm_session_new(engine, &(llm_session_options){0}, &s, &e), 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(llm_submit(s, &q, &e), 0);
        for (idle = round > 0; !idle;)
            assert_int_equal(llm_step(s, events, 8, &count, &idle, &e), 0);
        llm_session_free(s);
    }
    b = llm_span_tokens(kept, &m);
    assert_true(n == m && memcmp(a, b, n * sizeof *a) == 0);
    llm_span_release(heap);
    llm_span_release(name);
    llm_span_release(head);
    arena_free(mem);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tree_computes_each_node_once),
        cmocka_unit_test(answers_ignore_field_order),
        cmocka_unit_test(counting_equals_running),
        cmocka_unit_test(limits_are_errors),
        cmocka_unit_test(spans_may_live_in_an_arena),
        cmocka_unit_test(cancel_keeps_what_is_answered),
        cmocka_unit_test(branches_are_seen),
        cmocka_unit_test(branches_are_a_tree),
        cmocka_unit_test(random_sessions),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
