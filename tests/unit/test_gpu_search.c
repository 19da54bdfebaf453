/*
 * test_gpu_search.c - finding the likeliest literal best first gives the literal and the probability
 * of scoring all of them, to the bit: over random lists of answers, with logits that tie, and in
 * sessions of a tiny model, alone or in batches, with little memory and short passes.
 */
#include "gpu_fixture.h"

#include <math.h>

#include "session/session_int.h"

enum { MOST_LITERALS = 200, LITERAL_BYTES = 8, KINDS = 6, PROMPTS = 12 };

static uint64_t seed = 1;

static int random_below(int n) {
    seed = hash_mix(seed, 77);
    return (int)(seed % (uint64_t)n);
}

/* ---- random lists of answers ----------------------------------------------------------------- */

typedef struct answer_list {
    char texts[MOST_LITERALS][LITERAL_BYTES];
    str literals[MOST_LITERALS];
    int count;
} answer_list;

static bool is_new(const answer_list *list, const char *text) {
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->texts[i], text) == 0)
            return false;
    return true;
}

/* Answers of few letters, so that many share their beginnings or begin with another one. x and y
 * are the same token, so that two answers may have the same tokens. */
static void list_make(answer_list *list, int wanted) {
    static const char letters[] = "aabbcd01xy";
    list->count = 0;
    for (int tries = 0; list->count < wanted && tries < 10 * wanted; tries++) {
        char text[LITERAL_BYTES] = {0};
        int length = 1 + random_below(LITERAL_BYTES - 1);
        for (int k = 0; k < length; k++)
            text[k] = letters[random_below((int)sizeof letters - 1)];
        if (!is_new(list, text))
            continue;
        memcpy(list->texts[list->count], text, sizeof text);
        list->literals[list->count] = str_from(list->texts[list->count]);
        list->count++;
    }
}

static llm_guide *guide_make(fixture *f, const answer_list *list) {
    err e = {0};
    llm_guide *g = llm_guide_new(&f->engine, LLM_GUIDE_CHOICE, list->literals, list->count,
                                 llm_engine_template(&f->engine, LLM_FORMAT_COMPLETION), &e);
    assert_non_null(g);
    return g;
}

/* ---- given logits ---------------------------------------------------------------------------- */

static int search_all(const llm_guide *g, float *const *logits, double *prob, int *taken) {
    search *x = search_new(g);
    search_learn(x, logits[0]);
    for (*taken = 1; !search_is_done(x); ++*taken) {
        assert_true(search_take(x));
        search_learn(x, logits[x->taken.branch]);
    }
    int best = x->best;
    *prob = exp(x->best_log_prob);
    assert_false(search_take(x));
    search_free(x);
    return best;
}

static void equal_to_scoring_all(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    answer_list list;
    int taken_in_all = 0, branches = 0;
    for (int round = 0; round < 1000; round++) {
        list_make(&list, 1 + random_below(MOST_LITERALS));
        llm_guide *g = guide_make(&f, &list);
        float **logits = mem_zalloc(sizeof *logits * (size_t)(g->nbranches + 1));
        double **log_prob = mem_zalloc(sizeof *log_prob * (size_t)(g->nbranches + 1));
        int levels = 1 + random_below(8); /* few levels: many literals tie */
        for (int b = 0; b < g->nbranches; b++) {
            int n = g->branches[b].count;
            logits[b] = mem_alloc(sizeof(float) * (size_t)n);
            log_prob[b] = mem_alloc(sizeof(double) * (size_t)n);
            for (int i = 0; i < n; i++)
                logits[b][i] = (float)random_below(levels);
            guide_softmax(logits[b], n, log_prob[b]);
        }
        double *probs = mem_alloc(sizeof *probs * (size_t)g->count), prob;
        int best = guide_best(g, log_prob, probs), taken;
        if (g->nbranches > 0) {
            assert_int_equal(search_all(g, logits, &prob, &taken), best);
            assert_memory_equal(&prob, &probs[best], sizeof prob);
            assert_true(taken <= g->nbranches);
            taken_in_all += taken;
        }
        branches += g->nbranches;
        for (int b = 0; b < g->nbranches; b++) {
            free(logits[b]);
            free(log_prob[b]);
        }
        free(logits);
        free(log_prob);
        free(probs);
        llm_guide_release(g);
    }
    assert_true(taken_in_all < branches / 2);
    fixture_close(&f);
}

/* ---- in sessions ----------------------------------------------------------------------------- */

typedef struct found {
    int choice;
    double prob;
    bool has_probs;
} found;

/* Submits prompt `i` about the list of its kind; the tag is 2·i + all_probs. */
static void submit(fixture *f, llm_session *s, llm_guide *const *guides, int i, bool all_probs) {
    static const char letters[] = "abcd01: ";
    char text[24] = {0};
    uint64_t kept = seed;
    seed = (uint64_t)(i / 2) * 31; /* two prompts of each text: of two lists */
    for (int k = 0, n = 4 + random_below(18); k < n; k++)
        text[k] = letters[random_below((int)sizeof letters - 1)];
    seed = kept;
    err e = {0};
    llm_span *span = llm_span_new(&f->engine, LLM_SPAN_TEMPLATE, str_from(text));
    llm_request q = {.tag = 2 * (uint64_t)i + all_probs,
                     .spans = &span,
                     .nspans = 1,
                     .guide = guides[i % KINDS],
                     .all_probs = all_probs,
                     .after = llm_engine_template(&f->engine, LLM_FORMAT_COMPLETION)};
    assert_int_equal(llm_submit(s, &q, &e), 0);
    llm_span_release(span);
}

static void drain(llm_session *s, llm_guide *const *guides, found *out) {
    bool idle = false;
    err e = {0};
    while (!idle) {
        llm_event events[8];
        int count;
        if (llm_step(s, events, 8, &count, &idle, &e) != 0)
            fail_msg("%s", e.message);
        for (int i = 0; i < count; i++) {
            const llm_event *ev = &events[i];
            const llm_guide *g = guides[ev->tag / 2 % KINDS];
            out[ev->tag] = (found){ev->choice, ev->prob, ev->probs != NULL};
            assert_true(str_equal(ev->text, g->literals[ev->choice]));
            if (ev->probs != NULL)
                assert_memory_equal(&ev->probs[ev->choice], &ev->prob, sizeof ev->prob);
        }
    }
}

static void check(const found *want, const found *got, const char *what) {
    for (int i = 0; i < 2 * PROMPTS; i++) {
        const found *a = &want[i / 2 * 2 + 1], *b = &got[i];
        assert_int_equal(b->has_probs, i % 2);
        if (a->choice != b->choice || memcmp(&a->prob, &b->prob, sizeof a->prob) != 0)
            fail_msg("%s: request %d: literal %d with %.17g, expected %d with %.17g", what, i,
                     b->choice, b->prob, a->choice, a->prob);
    }
}

static void the_same_in_sessions(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    size_t block = f.engine.info.kv_bytes_per_token * LLM_BLOCK_TOKENS;
    const struct {
        const char *what;
        llm_session_options options;
    } runs[] = {
        {"one batch", {0}},
        {"little memory", {.kv_memory_bytes = 18 * block}},
        {"short passes", {.pass_tokens = 5}},
        {"two at a time", {.max_batch = 2}},
        {"no reuse", {.reuse = LLM_REUSE_NONE, .kv_memory_bytes = 24 * block, .pass_tokens = 11}},
        {"first in, first out", {.reuse = LLM_REUSE_FIFO}},
    };
    answer_list list;
    for (int round = 0; round < 20; round++) {
        llm_guide *guides[KINDS];
        found alone[2 * PROMPTS] = {0};
        for (int k = 0; k < KINDS; k++) {
            list_make(&list, k == 0 ? 1 : 2 + random_below(k < 3 ? 8 : MOST_LITERALS - 1));
            guides[k] = guide_make(&f, &list);
        }
        for (int i = 0; i < 2 * PROMPTS; i++) {
            llm_session *s = session(&f, (llm_session_options){0});
            submit(&f, s, guides, i / 2, i % 2);
            drain(s, guides, alone);
            llm_session_free(s);
        }
        check(alone, alone, "alone");
        for (size_t r = 0; r < BASE_COUNT(runs); r++) {
            found together[2 * PROMPTS] = {0};
            llm_session *s = session(&f, runs[r].options);
            for (int i = 0; i < 2 * PROMPTS; i++)
                submit(&f, s, guides, i / 2, i % 2);
            drain(s, guides, together);
            check(alone, together, runs[r].what);
            llm_figures figures;
            llm_session_figures(s, &figures);
            assert_int_equal(figures.done, 2 * PROMPTS);
            llm_session_free(s);
        }
        for (int k = 0; k < KINDS; k++)
            llm_guide_release(guides[k]);
    }
    fixture_close(&f);
}

/* A search that is cancelled leaves nothing behind that the next one meets. */
static void cancelled_in_the_middle(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    answer_list list;
    list_make(&list, MOST_LITERALS);
    llm_guide *guides[KINDS];
    for (int k = 0; k < KINDS; k++)
        guides[k] = guide_make(&f, &list);
    atomic_bool cancel = false;
    llm_session *s = session(&f, (llm_session_options){.pass_tokens = 2, .cancel = &cancel});
    found first[2 * PROMPTS] = {0}, second[2 * PROMPTS] = {0};
    int passes = 1;
    for (bool done = false; !done; passes++) {
        for (int i = 0; i < PROMPTS; i++)
            submit(&f, s, guides, i, false);
        llm_event events[2 * PROMPTS];
        int count;
        bool idle;
        err e = {0};
        for (int p = 0; p < passes && !done; p++)
            assert_int_equal(llm_step(s, events, 2 * PROMPTS, &count, &done, &e), 0);
        atomic_store(&cancel, true);
        assert_int_equal(llm_step(s, events, 2 * PROMPTS, &count, &idle, &e),
                         done ? 0 : ERR_CANCELLED);
        atomic_store(&cancel, false);
        for (int i = 0; i < PROMPTS; i++)
            submit(&f, s, guides, i, false);
        drain(s, guides, passes == 1 ? first : second);
        assert_true(passes == 1 || memcmp(first, second, sizeof first) == 0);
    }
    assert_true(passes > 3);
    llm_session_free(s);
    for (int k = 0; k < KINDS; k++)
        llm_guide_release(guides[k]);
    fixture_close(&f);
}

/* 100,000 literals that share their first letters: the guide takes no quadratic time. */
static void a_long_list(void **state) {
    (void)state;
    enum { MANY = 100000 };
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    char *text = mem_alloc(MANY * 16);
    str *literals = mem_alloc(sizeof *literals * MANY);
    for (int i = 0; i < MANY; i++) {
        snprintf(text + (size_t)i * 16, 16, "a%d", i);
        literals[i] = str_from(text + (size_t)i * 16);
    }
    err e = {0};
    llm_guide *g = llm_guide_new(&f.engine, LLM_GUIDE_CHOICE, literals, MANY,
                                 llm_engine_template(&f.engine, LLM_FORMAT_COMPLETION), &e);
    assert_non_null(g);
    assert_int_equal(g->nbranches, 10000); /* the root, and each number from 1 to 9,999 */
    assert_false(llm_guide_is_small(g));
    llm_guide *guides[KINDS] = {g, g, g, g, g, g};
    llm_session *s = session(&f, (llm_session_options){.kv_memory_bytes = (size_t)1 << 20});
    found out[2 * PROMPTS] = {0};
    for (int i = 0; i < PROMPTS; i++)
        submit(&f, s, guides, i, false);
    drain(s, guides, out);
    llm_figures figures;
    llm_session_figures(s, &figures);
    assert_in_range(figures.choice_tokens, PROMPTS, (uint64_t)g->all_tokens);
    llm_session_free(s);
    llm_guide_release(g);
    free(literals);
    free(text);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_to_scoring_all),
        cmocka_unit_test(the_same_in_sessions),
        cmocka_unit_test(cancelled_in_the_middle),
        cmocka_unit_test(a_long_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
