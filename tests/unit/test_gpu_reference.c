/*
 * test_gpu_reference.c - the reference forward against numpy on tiny models of every architecture, and
 * against another engine's log-probabilities on the real one; what config_read refuses.
 */
#include "gpu_testing.h"
#include "gpu_tiny.h"
#include "reference.h"

#include <math.h>

/* A pass over the real model takes a minute there, and the tiny models run the same code. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* ---- tiny models ---------------------------------------------------------------------------- */

static void check_tiny(const tiny_model *t, const float *expected) {
    gguf_maker m = {0};
    str file = tiny_make(&m, t);
    gguf *g;
    reference *r;
    err e = {0};
    llm_token tokens[TINY_TOKENS];
    float logits[2 * TINY_VOCAB];
    tiny_tokens(tokens);
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    if (reference_open(g, &r, &e) != 0)
        fail_msg("%s: %s", t->name, e.message);
    assert_int_equal(reference_forward(r, tokens, TINY_TOKENS, TINY_TOKENS - 2, logits, &e), 0);
    for (int i = 0; i < 2 * TINY_VOCAB; i++) {
        if (!(fabsf(logits[i] - expected[i]) < 2e-4f))
            fail_msg("%s: logit %d is %.7g instead of %.7g", t->name, i, (double)logits[i],
                     (double)expected[i]);
    }
    reference_close(r);
    gguf_close(g);
    make_free(&m);
}

static void check_encoder(const tiny_model *t, const float *expected) {
    gguf_maker m = {0};
    str file = tiny_make(&m, t);
    gguf *g;
    reference *r;
    err e = {0};
    llm_token tokens[TINY_TOKENS];
    float vector[TINY_EMBD];
    tiny_tokens(tokens);
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    if (reference_open(g, &r, &e) != 0)
        fail_msg("%s: %s", t->name, e.message);
    assert_int_equal(reference_embed(r, tokens, TINY_TOKENS, vector, &e), 0);
    for (int i = 0; i < TINY_EMBD; i++) {
        if (!(fabsf(vector[i] - expected[i]) < 1e-5f))
            fail_msg("%s: number %d is %.7g instead of %.7g", t->name, i, (double)vector[i],
                     (double)expected[i]);
    }
    reference_close(r);
    gguf_close(g);
    make_free(&m);
}

static void read_line(FILE *f, const char *name, int count, float *out) {
    char word[32];
    assert_int_equal(fscanf(f, "%31s", word), 1);
    assert_string_equal(word, name);
    for (int i = 0; i < count; i++)
        assert_int_equal(fscanf(f, "%f", &out[i]), 1);
}

static void every_architecture_equals_numpy(void **state) {
    (void)state;
    char path[4096], name[32];
    FILE *f = fopen(source_path("tests/vectors/tiny.txt", path), "r");
    assert_non_null(f);
    for (size_t i = 0; i < BASE_COUNT(tiny_models); i++) {
        float expected[2 * TINY_VOCAB];
        read_line(f, tiny_models[i].name, 2 * TINY_VOCAB, expected);
        check_tiny(&tiny_models[i], expected);
    }
    for (size_t i = 0; i < BASE_COUNT(tiny_encoders); i++) {
        float expected[TINY_EMBD];
        read_line(f, tiny_encoders[i].name, TINY_EMBD, expected);
        check_encoder(&tiny_encoders[i], expected);
    }
    assert_int_equal(fscanf(f, "%31s", name), EOF);
    fclose(f);
}

/* A position's logits depend on nothing after it, and not on which positions are asked for. */
static void later_tokens_do_not_matter(void **state) {
    (void)state;
    gguf_maker m = {0};
    str file = tiny_make(&m, &tiny_models[0]);
    gguf *g;
    reference *r;
    err e = {0};
    llm_token tokens[TINY_TOKENS];
    float all[TINY_TOKENS * TINY_VOCAB], one[TINY_VOCAB];
    tiny_tokens(tokens);
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    assert_int_equal(reference_open(g, &r, &e), 0);
    assert_int_equal(reference_forward(r, tokens, TINY_TOKENS, 0, all, &e), 0);
    for (int n = 1; n <= TINY_TOKENS; n++) {
        assert_int_equal(reference_forward(r, tokens, n, n - 1, one, &e), 0);
        assert_memory_equal(one, all + (n - 1) * TINY_VOCAB, sizeof one);
    }
    tokens[1] = TINY_VOCAB;
    assert_int_equal(reference_forward(r, tokens, 2, 1, one, &e), ERR_LIMIT);
    tokens[1] = -1;
    assert_int_equal(reference_forward(r, tokens, 2, 1, one, &e), ERR_LIMIT);
    reference_close(r);
    gguf_close(g);
    make_free(&m);
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void refuses(gguf_maker *m, int code, const char *reason) {
    str file = make_file(m, 3);
    gguf *g;
    reference *r;
    err e = {0};
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    assert_int_equal(reference_open(g, &r, &e), code);
    assert_null(r);
    if (!strstr(e.message, reason))
        fail_msg("\"%s\" does not say \"%s\"", e.message, reason);
    gguf_close(g);
    make_free(m);
    *m = (gguf_maker){0};
}

/* The first tiny model with one key of another value. */
static void with_key(gguf_maker *m, const char *key, uint32_t v) {
    tiny_model t = tiny_models[0];
    tiny_make(m, &t);
    const char *at = memmem(m->kvs.p, m->kvs.n, key, strlen(key));
    if (at)
        memcpy(m->kvs.p + (at - m->kvs.p) + strlen(key) + 4, &v, sizeof v);
    else
        make_u32(m, key, v);
}

static void refuses_what_it_cannot_run(void **state) {
    (void)state;
    gguf_maker m = {0};
    refuses(&m, ERR_CORRUPT, "does not name its architecture");
    make_str(&m, "general.architecture", "mamba");
    refuses(&m, ERR_UNSUPPORTED, "\"mamba\"");
    make_str(&m, "general.architecture", "llama");
    refuses(&m, ERR_CORRUPT, "lacks llama.block_count");
    with_key(&m, "llama.expert_count", 8);
    refuses(&m, ERR_UNSUPPORTED, "mixtures of experts");
    with_key(&m, "llama.block_count", 3);
    refuses(&m, ERR_CORRUPT, "lacks the tensor blk.2.attn_norm.weight");
    with_key(&m, "llama.block_count", 100000);
    refuses(&m, ERR_CORRUPT, "not in 1 … 512");
    with_key(&m, "llama.embedding_length", 64);
    refuses(&m, ERR_CORRUPT, "instead of");
    with_key(&m, "llama.attention.head_count", 0);
    refuses(&m, ERR_CORRUPT, "head_count is 0");
    with_key(&m, "llama.attention.head_count_kv", 3);
    refuses(&m, ERR_CORRUPT, "must be a multiple of");
    with_key(&m, "llama.attention.value_length", 4);
    refuses(&m, ERR_UNSUPPORTED, "values");
    with_key(&m, "llama.rope.freq_base", 0);
    refuses(&m, ERR_CORRUPT, "freq_base");
    tiny_model odd = tiny_models[0];
    odd.scaling = "su";
    tiny_make(&m, &odd);
    refuses(&m, ERR_UNSUPPORTED, "\"su\"");
}

/* ---- what files leave out ------------------------------------------------------------------- */

static const tiny_model *tiny_named(const char *name) {
    for (size_t i = 0; i < BASE_COUNT(tiny_models); i++)
        if (strcmp(tiny_models[i].name, name) == 0)
            return &tiny_models[i];
    return NULL;
}

static model_config config_of(gguf_maker *m, int code) {
    gguf *g;
    err e = {0};
    model_config c;
    str file = make_file(m, 3);
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    assert_int_equal(config_read(g, &c, &e), code);
    if (code != 0)
        assert_non_null(strstr(e.message, "longrope"));
    gguf_close(g);
    make_free(m);
    *m = (gguf_maker){0};
    return c;
}

/* A factor without a kind is linear, under its old name, too. */
static void a_factor_alone_is_linear(void **state) {
    (void)state;
    static const char *const keys[] = {"llama.rope.scaling.factor", "llama.rope.scale_linear"};
    for (size_t i = 0; i < BASE_COUNT(keys); i++) {
        gguf_maker m = {0};
        tiny_make(&m, tiny_named("llama"));
        make_f32(&m, keys[i], 4);
        model_config c = config_of(&m, 0);
        assert_true(c.scaling == ROPE_LINEAR && c.rope_factor == 4);
    }
}

/* Of two sets of divisors the short one is used, and only as far as it was trained,
 * whether the file calls this longrope or not; without that limit it is refused. */
static void longrope_ends_where_it_was_trained(void **state) {
    (void)state;
    static const float ones[] = {1, 1, 1, 1};
    for (int named = 0; named < 3; named++) {
        gguf_maker m = {0};
        tiny_make(&m, tiny_named("phi3"));
        if (named == 1)
            make_str(&m, "phi3.rope.scaling.type", "longrope");
        if (named < 2)
            make_u32(&m, "phi3.rope.scaling.original_context_length", 16);
        make_tensor(&m, "rope_factors_short.weight", GGUF_F32, 4, 1, ones, sizeof ones);
        make_tensor(&m, "rope_factors_long.weight", GGUF_F32, 4, 1, ones, sizeof ones);
        model_config c = config_of(&m, named < 2 ? 0 : ERR_UNSUPPORTED);
        if (named < 2)
            assert_true(c.context == 16 && c.has_rope_divisors);
    }
}

/* The first gemma2 files say neither their caps nor their window. */
static void gemma2_has_its_caps(void **state) {
    (void)state;
    gguf_maker m = {0};
    tiny_model bare = *tiny_named("gemma2");
    bare.traits &= ~(unsigned)TINY_CAPS;
    bare.window = 0;
    tiny_make(&m, &bare);
    model_config c = config_of(&m, 0);
    assert_true(c.attn_softcap == 50 && c.final_softcap == 30);
    assert_true(c.window == 4096 && config_layer_window(&c, 0) == 4096 &&
                config_layer_window(&c, 1) == 0);
}

/* ---- the real model ------------------------------------------------------------------------- */

typedef struct greedy_score {
    double kl;
    int steps, checked, equal;
} greedy_score;

/* Adds one step: `at` stands before its "top" pairs, `logits` are ours. */
static void score_step(const char *at, const float *logits, int vocab, greedy_score *score) {
    llm_token ids[16];
    double theirs[16], their_sum = 0, our_sum = 0, kl = 0;
    int n = 0, used;
    at = strstr(at, "[[") + 1;
    while (n < 16 && sscanf(at, " [%d, %lf]%n", &ids[n], &theirs[n], &used) == 2) {
        at += used + (at[used] == ',');
        n++;
    }
    assert_true(n >= 2);
    int best = 0;
    for (int i = 1; i < vocab; i++)
        best = logits[i] > logits[best] ? i : best;
    for (int i = 0; i < n; i++) {
        their_sum += exp(theirs[i]);
        our_sum += exp((double)logits[ids[i]] - (double)logits[best]);
    }
    for (int i = 0; i < n; i++) {
        double p = exp(theirs[i]) / their_sum,
               q = exp((double)logits[ids[i]] - (double)logits[best]) / our_sum;
        kl += p * log(p / q);
    }
    score->kl += kl;
    score->steps++;
    if (theirs[0] - theirs[1] > 0.05) {
        score->checked++;
        score->equal += best == ids[0];
    }
}

static void score_line(const reference *r, const char *line, greedy_score *score) {
    enum { MOST = 4096 };
    llm_token tokens[MOST];
    const char *steps[64];
    int vocab = reference_config(r)->vocab, nsteps = 0;
    int n = (int)json_ints(json_value(line, "ids"), tokens, MOST - 64), first = n - 1;
    for (const char *at = json_value(line, "steps");
         (at = json_value(at, "id")) != NULL && nsteps < 64; nsteps++) {
        tokens[n++] = (llm_token)strtol(at, NULL, 10);
        steps[nsteps] = at;
    }
    n--; /* the last step's token is predicted, not fed */
    float *logits = malloc((size_t)(n - first) * (size_t)vocab * sizeof *logits);
    err e = {0};
    assert_int_equal(reference_forward(r, tokens, n, first, logits, &e), 0);
    for (int i = 0; i < nsteps; i++)
        score_step(steps[i], logits + (size_t)i * (size_t)vocab, vocab, score);
    free(logits);
}

/* One prompt; with KVASIR_LONG set, all forty (two minutes). */
static void equals_another_engine_on_the_real_model(void **state) {
    (void)state;
    char model[4096], vectors[4096], *line = NULL;
    size_t cap = 0;
    if (SANITIZED || !model_path(model) || !shared_vectors("greedy.jsonl", vectors))
        skip();
    gguf *g;
    reference *r;
    err e = {0};
    assert_int_equal(gguf_open(model, &g, &e), 0);
    assert_int_equal(reference_open(g, &r, &e), 0);
    FILE *f = fopen(vectors, "r");
    assert_non_null(f);
    greedy_score score = {0};
    for (int left = getenv("KVASIR_LONG") ? INT32_MAX : 1; left > 0 && getline(&line, &cap, f) > 0;
         left--)
        score_line(r, line, &score);
    print_message("steps=%d kl_mean=%.3g top1=%d/%d\n", score.steps, score.kl / score.steps,
                  score.equal, score.checked);
    assert_true(score.kl / score.steps < 1e-6);
    assert_int_equal(score.equal, score.checked);
    free(line);
    fclose(f);
    reference_close(r);
    gguf_close(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_architecture_equals_numpy),
        cmocka_unit_test(later_tokens_do_not_matter),
        cmocka_unit_test(refuses_what_it_cannot_run),
        cmocka_unit_test(a_factor_alone_is_linear),
        cmocka_unit_test(longrope_ends_where_it_was_trained),
        cmocka_unit_test(gemma2_has_its_caps),
        cmocka_unit_test(equals_another_engine_on_the_real_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
