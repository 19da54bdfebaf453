/*
 * test_gpu_blend.c - blended prompts on tiny models of every architecture: where blended and exact
 * prompts must have the same KV, they give the same logits.
 *
 * test_gpu_bits compares the bits of blended prompts under all schedules; bench_blend prints how far
 * blended answers are from exact ones.
 */
#include <math.h>

#include "gpu_fixture.h"
#include "session/session_int.h"

enum { CHUNKS = 3 };

static const char *const chunk_texts[CHUNKS] = {" ab cd a ba ab a cd ab\n", " cd cd ba a\n",
                                                " ba ab a cd a a ba cd ab\n"};

typedef struct logits {
    float top[LLM_TOP_LOGITS];
    llm_token ids[LLM_TOP_LOGITS];
    llm_figures figures;
} logits;

/* Asks one prompt of `chunks` chunks. blend: NULL: an exact one. */
static logits ask(fixture *f, int chunks, const llm_blend *blend) {
    arena *mem = arena_new();
    llm_engine *engine = &f->engine;
    llm_span *parts[2 * CHUNKS];
    err e = {0};
    int n = 0;
    for (int i = 0; i < chunks; i++) {
        if (i > 0)
            parts[n++] = llm_span_new_in(engine, LLM_SPAN_NAME, STR("a:"), mem);
        parts[n++] = llm_span_new_in(engine, LLM_SPAN_VALUE, str_from(chunk_texts[i]), mem);
    }
    llm_span *spans[] = {llm_span_new_in(engine, LLM_SPAN_TEMPLATE, STR("ab cd\n"), mem),
                         llm_span_new_in(engine, LLM_SPAN_NAME, STR("a:"), mem),
                         llm_span_join(LLM_SPAN_VALUE, parts, n, mem),
                         llm_span_new_in(engine, LLM_SPAN_TEMPLATE, STR("ab ba:"), mem)};
    llm_request q = {.spans = spans,
                     .nspans = BASE_COUNT(spans),
                     .after = llm_engine_template(engine, LLM_FORMAT_COMPLETION),
                     .max_tokens = 1,
                     .blend = blend};
    llm_session *s = session(f, (llm_session_options){.keep_logits = true});
    logits out = {.top = {0}};
    if (llm_submit(s, &q, &e) != 0)
        fail_msg("%s", e.message);
    for (bool idle = false; !idle;) {
        llm_event event;
        int count;
        if (llm_step(s, &event, 1, &count, &idle, &e) != 0)
            fail_msg("%s", e.message);
        if (count > 0) {
            memcpy(out.top, event.top_logits, sizeof out.top);
            memcpy(out.ids, event.top_tokens, sizeof out.ids);
        }
    }
    llm_session_figures(s, &out.figures);
    llm_session_free(s);
    arena_free(mem);
    return out;
}

static bool same_bits(const logits *a, const logits *b) {
    return memcmp(a->top, b->top, sizeof a->top) == 0 && memcmp(a->ids, b->ids, sizeof a->ids) == 0;
}

static float difference(const logits *a, const logits *b) {
    float most = 0;
    for (int i = 0; i < LLM_TOP_LOGITS; i++)
        most = fmaxf(most, fabsf(a->top[i] - b->top[i]));
    return most;
}

static const llm_blend_rule all_rules[] = {LLM_BLEND_EDGES, LLM_BLEND_DEVIATION,
                                           LLM_BLEND_QUESTION};

static void all_again_is_exact(void **state) {
    (void)state;
    for (size_t i = 0; i < BASE_COUNT(tiny_models); i++) {
        fixture f;
        fixture_open_model(&f, &tiny_models[i], (llm_engine_options){.kv_dtype = LLM_KV_BF16});
        logits exact = ask(&f, CHUNKS, NULL);
        for (size_t r = 0; r < BASE_COUNT(all_rules); r++) {
            llm_blend all = {.share = 1, .rule = all_rules[r]};
            logits blended = ask(&f, CHUNKS, &all);
            if (!same_bits(&exact, &blended))
                fail_msg("%s, rule %d", tiny_models[i].name, (int)all_rules[r]);
        }
        fixture_close(&f);
    }
}

/* In a model of one layer, a token's key and value depend on the token and its position alone, so
 * moved KV differs from computed KV by rounding alone: in bf16 about 2^-8, in f32 far less. */
static void moved_kv_of_one_layer(void **state) {
    (void)state;
    static const llm_kv_dtype dtypes[] = {LLM_KV_F32, LLM_KV_BF16, LLM_KV_INT8};
    static const float bounds[] = {1e-4f, 0.2f, 0.2f};
    for (size_t i = 0; i < BASE_COUNT(tiny_models) * BASE_COUNT(dtypes); i++) {
        fixture f;
        tiny_model one = tiny_models[i / BASE_COUNT(dtypes)];
        size_t dtype = i % BASE_COUNT(dtypes);
        one.layers = 1;
        fixture_open_model(&f, &one, (llm_engine_options){.kv_dtype = dtypes[dtype]});
        logits exact = ask(&f, CHUNKS, NULL);
        llm_blend none = {.share = 0, .rule = LLM_BLEND_EDGES};
        logits blended = ask(&f, CHUNKS, &none);
        if (difference(&exact, &blended) > bounds[dtype])
            fail_msg("%s, %s: %g", one.name, llm_kv_dtype_name(dtypes[dtype]),
                     (double)difference(&exact, &blended));
        fixture_close(&f);
    }
}

static void one_chunk_is_exact(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, (llm_engine_options){.kv_dtype = LLM_KV_BF16});
    llm_blend none = {.share = 0, .rule = LLM_BLEND_EDGES};
    logits exact = ask(&f, 1, NULL), blended = ask(&f, 1, &none);
    assert_true(same_bits(&exact, &blended));
    exact = ask(&f, CHUNKS, NULL);
    blended = ask(&f, CHUNKS, &none);
    assert_false(same_bits(&exact, &blended)); /* with more, blending has an effect */
    fixture_close(&f);
}

/* ---- scores ---------------------------------------------------------------------------------- */

static int probes_seen;
static uint64_t most_deviation;

/* Runs a pass, then checks the scores of its probes. */
static int checked_forward(llm_engine *engine, void *work, const pass *p, err *e) {
    int code = cpu_forward(engine, work, p, e);
    for (int i = 0; i < p->nprobes && code == 0; i++) {
        const pass_probe *probe = &p->probes[i];
        uint64_t sum = 0, all = (uint64_t)PROBE_ONE * (uint64_t)engine->config.n_heads *
                                (uint64_t)probe_layers(engine->config.n_layers);
        for (int k = 0; k < probe->to - probe->from; k++)
            sum += probe->scores[k];
        probes_seen++;
        if (probe->kind == PROBE_DEVIATION)
            most_deviation = BASE_MAX(most_deviation, sum);
        else /* the row also sees the head, the first chunk and the question */
            assert_true(sum > 0 && sum < all);
    }
    return code;
}

static void scores_of_probes(void **state) {
    (void)state;
    for (int layers = 1; layers <= 2; layers++) {
        fixture f;
        tiny_model model = tiny_models[0];
        model.layers = layers;
        fixture_open_model(&f, &model, (llm_engine_options){.kv_dtype = LLM_KV_F32});
        llm_backend checked = *f.engine.backend;
        const llm_backend *plain = f.engine.backend;
        checked.forward = checked_forward;
        f.engine.backend = &checked;
        probes_seen = 0;
        most_deviation = 0;
        ask(&f, CHUNKS, &(llm_blend){.share = 0.5, .rule = LLM_BLEND_DEVIATION});
        ask(&f, CHUNKS, &(llm_blend){.share = 0.5, .rule = LLM_BLEND_QUESTION});
        assert_int_equal(probes_seen, 2);
        /* values of the first layer depend on their tokens alone */
        assert_true(layers == 1 ? most_deviation < PROBE_ONE / 1000
                                : most_deviation > PROBE_ONE / 100);
        f.engine.backend = plain;
        fixture_close(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_again_is_exact),
        cmocka_unit_test(moved_kv_of_one_layer),
        cmocka_unit_test(one_chunk_is_exact),
        cmocka_unit_test(scores_of_probes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
