/*
 * test_gpu_guide.c - the tree of literals, what of it must be computed, and which literal wins;
 * stop rules of numbers.
 *
 * Uses the test backend's tokens: digits alone, words in runs of three letters.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/guide_int.h"
#include "engine/sample_weight_int.h"
#include "session/session_int.h"

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

static llm_guide *choice(const char *const *literals, int count, err *e) {
    str texts[16];
    for (int i = 0; i < count; i++)
        texts[i] = str_from(literals[i]);
    return llm_guide_new(engine, LLM_GUIDE_CHOICE, texts, count,
                         llm_engine_template(engine, LLM_FORMAT_COMPLETION), e);
}

static void first_tokens_differ(void **state) {
    (void)state;
    err e = {0};
    llm_guide *g = choice((const char *[]){"yes", "no"}, 2, &e);
    assert_non_null(g);
    assert_int_equal(g->nprefix, 0);
    assert_int_equal(g->nbranches, 1);
    assert_int_equal(g->nsegments, 0);
    double p[2];
    guide_softmax((float[]){1, 3}, 2, p);
    double probs[2];
    assert_int_equal(guide_best(g, (double *[]){p}, probs), 1);
    assert_true(fabs(probs[1] - (1 / (1 + exp(-2)))) < 1e-12);
    assert_true(fabs(probs[0] + probs[1] - 1) < 1e-12);
    guide_softmax((float[]){2, 2}, 2, p);
    assert_int_equal(guide_best(g, (double *[]){p}, probs), 0); /* a tie: the first listed */
    assert_true(fabs(probs[0] - (0.5)) < 1e-12);
    llm_guide_release(g);
}

static void inner_branches(void **state) {
    (void)state;
    err e = {0};
    llm_guide *g = choice((const char *[]){"1", "10", "12", "2"}, 4, &e); /* " " joins the prompt */
    assert_non_null(g);
    assert_int_equal(g->nprefix, 1);
    assert_int_equal(g->nbranches, 2);
    assert_int_equal(g->nsegments, 1);
    assert_int_equal(g->segments[0].count, 1);
    assert_int_equal(g->branches[0].count, 2);
    assert_int_equal(g->branches[1].count, 3); /* END, 0, 2 */
    assert_int_equal(g->branches[1].ids[0], g->end);
    double root[2], inner[3], probs[4];
    guide_softmax((float[]){1, 0}, 2, root);
    guide_softmax((float[]){0, 0, 5}, 3, inner);
    assert_int_equal(guide_best(g, (double *[]){root, inner}, probs), 2);
    assert_true(fabs(probs[2] - (exp(root[0] + inner[2]))) < 1e-12);
    assert_true(fabs(probs[0] - (exp(root[0] + inner[0]))) < 1e-12);
    assert_true(fabs(probs[3] - exp(root[1])) < 1e-12);
    guide_softmax((float[]){0, 0, 0}, 3, inner); /* split in three, "1" loses to "2" */
    assert_int_equal(guide_best(g, (double *[]){root, inner}, probs),
                     0 + 3 * (root[1] > root[0] + inner[0]));
    llm_guide_release(g);
}

static void deeper_segments(void **state) {
    (void)state;
    err e = {0};
    llm_guide *g =
        choice((const char *[]){"wonderful", "wonderland", "wonder", "wooden", "bad"}, 5, &e);
    assert_non_null(g);
    int sum = 0;
    for (int i = 0; i < g->nsegments; i++) {
        assert_true(g->segments[i].parent < i);
        sum += g->segments[i].children;
    }
    for (int b = 0; b < g->nbranches; b++)
        assert_true(g->branches[b].count >= 2);
    int roots = 0;
    for (int i = 0; i < g->nsegments; i++)
        roots += g->segments[i].parent < 0;
    assert_int_equal(sum + roots, g->nsegments);
    llm_guide_release(g);
}

static void one_literal_is_certain(void **state) {
    (void)state;
    err e = {0};
    llm_guide *g = choice((const char *[]){"sure"}, 1, &e);
    assert_non_null(g);
    assert_int_equal(g->nbranches, 0);
    double prob;
    assert_int_equal(guide_best(g, NULL, &prob), 0);
    assert_true(prob == 1.0);
    llm_guide_release(g);
}

static void refusals(void **state) {
    (void)state;
    err e = {0};
    assert_null(choice((const char *[]){"a\nb", "c"}, 2, &e));
    assert_int_equal(e.code, ERR_UNSUPPORTED);
    assert_null(choice(NULL, 0, &e));
    assert_int_equal(e.code, ERR_BIND);
}

static void identity(void **state) {
    (void)state;
    err e = {0};
    llm_guide *a = choice((const char *[]){"x", "y"}, 2, &e),
              *b = choice((const char *[]){"x", "y"}, 2, &e);
    llm_guide *c = choice((const char *[]){"y", "x"}, 2, &e),
              *d = choice((const char *[]){"xy"}, 1, &e);
    assert_true(hash128_equal(llm_guide_key(a), llm_guide_key(b)));
    assert_false(hash128_equal(llm_guide_key(a), llm_guide_key(c)));
    assert_false(hash128_equal(llm_guide_key(a), llm_guide_key(d)));
    llm_guide *all[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        llm_guide_release(all[i]);
}

static void digits_are_limited(void **state) {
    (void)state;
    llm_guide g = {0};
    llm_token ids[] = {99, 1, 2, 3};
    uint8_t digits[] = {0, 1, 2, 3};
    g.states[NUMBER_DIGITS] = (guide_state){.count = 4, .ids = ids, .digits = digits, .ends = true};
    assert_int_equal(guide_allowed(&g, NUMBER_DIGITS, 0), 4);
    assert_int_equal(guide_allowed(&g, NUMBER_DIGITS, 16), 3);
    assert_int_equal(guide_allowed(&g, NUMBER_DIGITS, 18), 1); /* END alone */
}

static void sampling(void **state) {
    (void)state;
    float logits[] = {0, 3, 3, -1, 2};
    llm_sampling greedy = {0}, hot = {.temperature = 1, .top_p = 1},
                 narrow = {.temperature = 1, .top_p = 1, .top_k = 1};
    assert_int_equal(sample_token(logits, 5, &greedy, 1, 0), 1);
    int seen[5] = {0};
    for (int i = 0; i < 2000; i++) {
        int a = sample_token(logits, 5, &hot, 7, i);
        assert_int_equal(a, sample_token(logits, 5, &hot, 7, i));
        assert_int_equal(sample_token(logits, 5, &narrow, 7, i), 1);
        seen[a]++;
    }
    assert_true(seen[1] > 700 && seen[2] > 700 && seen[4] > 200 && seen[0] > 10 && seen[3] < 60);
}

/* What is drawn in one step says nothing of the next one, nor one seed of its neighbour: four ways of
 * two draws from two equals are equally frequent, to within five standard deviations. */
static void draws_are_independent(void **state) {
    (void)state;
    enum { PAIRS = 10000, OFF = 217 };
    static const float logits[] = {1, 1};
    const llm_sampling even = {.temperature = 1, .top_p = 1};
    for (int apart = 1; apart <= 16; apart *= 2) {
        int steps[4] = {0}, seeds[4] = {0}, one_answer[4] = {0};
        for (int i = 0; i < PAIRS; i++) {
            uint64_t seed = hash_mix(1, (uint64_t)i), next = (uint64_t)(i + apart);
            int first = sample_token(logits, 2, &even, seed, 0);
            steps[2 * first + sample_token(logits, 2, &even, seed, apart)]++;
            seeds[2 * sample_token(logits, 2, &even, (uint64_t)i, 3) +
                  sample_token(logits, 2, &even, next, 3)]++;
            one_answer[2 * sample_token(logits, 2, &even, 9, i) +
                       sample_token(logits, 2, &even, 9, i + apart)]++;
        }
        for (int way = 0; way < 4; way++) {
            assert_in_range(steps[way], PAIRS / 4 - OFF, PAIRS / 4 + OFF);
            assert_in_range(seeds[way], PAIRS / 4 - OFF, PAIRS / 4 + OFF);
            assert_in_range(one_answer[way], PAIRS / 4 - OFF, PAIRS / 4 + OFF);
        }
    }
}

/* Drawn from the likeliest and the weight of all: the
 * same token, or -1; enough of them always suffice. */
static void few_candidates_draw_what_all_would(void **state) {
    (void)state;
    enum { VOCAB = 700 };
    static const llm_sampling samplings[] = {
        {.temperature = 0.8f, .top_p = 1},
        {.temperature = 3, .top_p = 1},
        {.temperature = 1, .top_p = 0.9f},
        {.temperature = 2, .top_p = 0.99f},
        {.temperature = 1, .top_p = 1, .top_k = 40},
        {.temperature = 1, .top_p = 0.5f, .top_k = PASS_DRAW},
        {.temperature = 1.5f, .top_p = 1, .min_p = 0.1f},
        {.temperature = 30, .top_p = 1, .min_p = 0.2f},
    };
    float logits[VOCAB], top[PASS_DRAW];
    llm_token ids[PASS_DRAW];
    for (int i = 0; i < VOCAB; i++)
        logits[i] = (float)(hash_mix(3, (uint64_t)i) % 4096) / 64 - 32; /* some are equal */
    for (int k = 0; k < PASS_DRAW; k++) {
        int best = -1;
        for (int i = 0; i < VOCAB; i++) {
            bool after =
                k == 0 || logits[i] < top[k - 1] || (logits[i] == top[k - 1] && i > ids[k - 1]);
            best = after && (best < 0 || logits[i] > logits[best]) ? i : best;
        }
        ids[k] = best;
        top[k] = logits[best];
    }
    int undecided[BASE_COUNT(samplings)] = {0};
    for (size_t q = 0; q < BASE_COUNT(samplings); q++) {
        uint64_t total = 0;
        for (int i = 0; i < VOCAB; i++)
            total += sample_weight(logits[i], top[0], samplings[q].temperature);
        for (int step = 0; step < 500; step++) {
            int all = sample_token(logits, VOCAB, &samplings[q], 5, step);
            int few = sample_likeliest(top, ids, PASS_DRAW, total, &samplings[q], 5, step);
            assert_true(few == all || few == -1);
            undecided[q] += few == -1;
        }
    }
    assert_true(undecided[0] < 250 && undecided[1] > 0 && undecided[7] == 500);
    assert_int_equal(undecided[2] + undecided[4] + undecided[5] + undecided[6], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_tokens_differ),
        cmocka_unit_test(inner_branches),
        cmocka_unit_test(deeper_segments),
        cmocka_unit_test(one_literal_is_certain),
        cmocka_unit_test(refusals),
        cmocka_unit_test(identity),
        cmocka_unit_test(digits_are_limited),
        cmocka_unit_test(sampling),
        cmocka_unit_test(draws_are_independent),
        cmocka_unit_test(few_candidates_draw_what_all_would),
    };
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
