/*
 * test_gpu_embed.c - embedding models: the CPU backend against the reference, equal bits whatever
 * shares a pass, truncation, cancelling, and what is refused.
 *
 * The tiny models' files are written to a directory of their own, so that they are opened as users'
 * files are.
 */
#include "gpu_testing.h"
#include "gpu_tiny.h"
#include "reference.h"

#include <math.h>

enum { TEXTS = 40, LONGEST_TEXT = 75 };

typedef struct fixture {
    char dir[64], path[128];
    str texts[TEXTS];
    arena *mem;
} fixture;

/* Texts of 0 to 75 words, whose tokens fit no tile; the last exceed the context. */
static str text_of(arena *mem, int i) {
    static const char *const words[] = {"a", "cab", "ab,", "[CLS]", "caf\u00e9", "B", "bab", "xyz"};
    buf b = {0};
    int n = i * i * 5 % (LONGEST_TEXT + 1);
    for (int j = 0; j < n; j++)
        buf_printf(&b, "%s ", words[(i * 7 + j * j) % (int)BASE_COUNT(words)]);
    str out = str_copy(mem, buf_str(&b));
    buf_free(&b);
    return out;
}

static int setup(void **state) {
    fixture *f = mem_zalloc(sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/kvasir-embed-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/tiny.gguf", f->dir);
    f->mem = arena_new();
    for (int i = 0; i < TEXTS; i++)
        f->texts[i] = text_of(f->mem, i);
    *state = f;
    return 0;
}

static int teardown(void **state) {
    fixture *f = *state;
    remove(f->path);
    rmdir(f->dir);
    arena_free(f->mem);
    free(f);
    return 0;
}

static void write_model(const fixture *f, const tiny_model *t) {
    gguf_maker m = {0};
    if (t->traits & TINY_AFTER)
        tiny_wordpieces(&m);
    else
        tiny_vocabulary(&m);
    str file = tiny_make(&m, t);
    FILE *out = fopen(f->path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(file.p, 1, file.n, out), file.n);
    fclose(out);
    make_free(&m);
}

static llm_engine *open_model(const fixture *f, llm_precision precision, int threads) {
    llm_engine_options options = {
        .path = f->path, .threads = threads, .precision = precision, .device = "cpu"};
    llm_engine *engine;
    err e = {0};
    if (llm_engine_open(&options, &engine, &e) != 0)
        fail_msg("%s", e.message);
    return engine;
}

static const tiny_model *encoder_named(const char *name) {
    for (size_t i = 0; i < BASE_COUNT(tiny_encoders); i++)
        if (strcmp(tiny_encoders[i].name, name) == 0)
            return &tiny_encoders[i];
    return NULL;
}

static void embed_with(llm_engine *engine, const str *texts, size_t n, llm_embed_options options,
                       float (*out)[TINY_EMBD]) {
    float *rows[TEXTS];
    err e = {0};
    for (size_t i = 0; i < n; i++)
        rows[i] = out[i];
    if (llm_embed(engine, texts, n, rows, &options, NULL, &e) != 0)
        fail_msg("%s", e.message);
}

/* ---- against the reference ------------------------------------------------------------------- */

/* The tokens that llm_embed computes, by the rules of the file. */
static size_t tokens_of(const llm_engine *engine, const tiny_model *t, str text,
                        llm_token out[TINY_CONTEXT]) {
    size_t n;
    bool pieces = t->traits & TINY_AFTER, ends = pieces || t->pooling == 3;
    llm_token *ids = llm_tokenize(engine, text, true, false, &n);
    n = BASE_MIN(n, (size_t)(TINY_CONTEXT - ends));
    memcpy(out, ids, n * sizeof *ids);
    if (ends)
        out[n++] = pieces ? 3 : 2;
    free(ids);
    return n;
}

static void check_encoder(const fixture *f, const tiny_model *t, llm_precision precision,
                          double least) {
    write_model(f, t);
    llm_engine *engine = open_model(f, precision, 2);
    float got[TEXTS][TINY_EMBD], want[TINY_EMBD];
    embed_with(engine, f->texts, TEXTS, (llm_embed_options){0}, got);
    gguf *g;
    reference *r;
    err e = {0};
    assert_int_equal(gguf_open(f->path, &g, &e), 0);
    assert_int_equal(reference_open(g, &r, &e), 0);
    for (int i = 0; i < TEXTS; i++) {
        llm_token tokens[TINY_CONTEXT];
        size_t n = tokens_of(engine, t, f->texts[i], tokens);
        assert_int_equal(llm_embed_tokens(engine, f->texts[i], NULL), n);
        assert_int_equal(reference_embed(r, tokens, (int)n, want, &e), 0);
        double cosine = 0, length = 0;
        for (int d = 0; d < TINY_EMBD; d++) {
            cosine += (double)got[i][d] * (double)want[d];
            length += (double)got[i][d] * (double)got[i][d];
        }
        if (!(cosine > least) || fabs(length - 1) > 1e-5)
            fail_msg("%s, %s: text %d of %zu tokens has cosine %.9g and length² %.9g", t->name,
                     llm_precision_name(precision), i, n, cosine, length);
    }
    reference_close(r);
    gguf_close(g);
    llm_engine_close(engine);
}

static void encoders_equal_the_reference(void **state) {
    llm_engine_options bf16 = {.path = "", .precision = LLM_BF16, .device = "cpu"};
    for (size_t i = 0; i < BASE_COUNT(tiny_encoders); i++) {
        check_encoder(*state, &tiny_encoders[i], LLM_F32, 0.999999);
        bf16.path = ((fixture *)*state)->path;
        llm_engine *engine = NULL;
        err e = {0};
        int code = llm_engine_open(&bf16, &engine, &e);
        llm_engine_close(engine);
        if (code == 0) /* a processor may lack bf16 products */
            check_encoder(*state, &tiny_encoders[i], LLM_BF16, 0.995);
        else
            assert_int_equal(code, ERR_UNSUPPORTED);
    }
}

/* ---- equal bits ------------------------------------------------------------------------------ */

static void same_bits(float (*a)[TINY_EMBD], float (*b)[TINY_EMBD], const char *how,
                      const tiny_model *t) {
    for (int i = 0; i < TEXTS; i++)
        if (memcmp(a[i], b[i], sizeof a[i]) != 0)
            fail_msg("%s: text %d has other bits %s", t->name, i, how);
}

/* The precision in use: another engine opened with 'auto' may measure and choose another one. */
static llm_precision precision_of(llm_engine *engine) {
    for (llm_precision p = LLM_F32; p < LLM_PRECISIONS; p++)
        if (strcmp(llm_precision_name(p), llm_engine_info(engine)->precision) == 0)
            return p;
    fail_msg("the engine's precision has no name");
    return LLM_PRECISION_AUTO;
}

static void check_bits(const fixture *f, const tiny_model *t) {
    float all[TEXTS][TINY_EMBD], other[TEXTS][TINY_EMBD], turned[TEXTS][TINY_EMBD];
    str reversed[TEXTS];
    write_model(f, t);
    llm_engine *engine = open_model(f, LLM_PRECISION_AUTO, 2);
    embed_with(engine, f->texts, TEXTS, (llm_embed_options){0}, all);
    for (int i = 0; i < TEXTS; i++)
        embed_with(engine, &f->texts[i], 1, (llm_embed_options){0}, &other[i]);
    same_bits(all, other, "alone", t);
    embed_with(engine, f->texts, TEXTS, (llm_embed_options){.pass_tokens = 70}, other);
    same_bits(all, other, "in small passes", t);
    for (int i = 0; i < TEXTS; i++)
        reversed[i] = f->texts[TEXTS - 1 - i];
    embed_with(engine, reversed, TEXTS, (llm_embed_options){0}, turned);
    for (int i = 0; i < TEXTS; i++)
        memcpy(other[i], turned[TEXTS - 1 - i], sizeof other[i]);
    same_bits(all, other, "in reverse", t);
    hash128 fingerprint = llm_engine_info(engine)->fingerprint;
    llm_precision precision = precision_of(engine);
    llm_engine_close(engine);
    engine = open_model(f, precision, 1);
    embed_with(engine, f->texts, TEXTS, (llm_embed_options){0}, other);
    same_bits(all, other, "with one thread", t);
    assert_true(hash128_equal(fingerprint, llm_engine_info(engine)->fingerprint));
    llm_engine_close(engine);
}

static void a_vector_depends_on_its_text_alone(void **state) {
    for (size_t i = 0; i < BASE_COUNT(tiny_encoders); i++)
        check_bits(*state, &tiny_encoders[i]);
}

/* The same weights, pooled otherwise, are another model: stored vectors must not mix. */
static void pooling_is_part_of_the_fingerprint(void **state) {
    fixture *f = *state;
    hash128 prints[2], weights[2];
    for (int i = 0; i < 2; i++) {
        write_model(f, encoder_named(i == 0 ? "bert" : "bert-first"));
        llm_engine *engine = open_model(f, LLM_F32, 1);
        prints[i] = llm_engine_info(engine)->fingerprint;
        weights[i] = llm_engine_info(engine)->weights;
        assert_string_equal(llm_engine_info(engine)->pooling, i == 0 ? "mean" : "first token");
        llm_engine_close(engine);
    }
    assert_false(hash128_equal(prints[0], prints[1]));
    assert_false(hash128_equal(weights[0], weights[1]));
}

/* ---- long texts, figures, cancelling --------------------------------------------------------- */

static void long_texts_lose_their_end(void **state) {
    fixture *f = *state;
    write_model(f, encoder_named("bert"));
    llm_engine *engine = open_model(f, LLM_F32, 1);
    buf text = {0};
    bool cut;
    for (int i = 0; i < TINY_CONTEXT - 2; i++)
        buf_append_c(&text, "cab ");
    assert_int_equal(llm_embed_tokens(engine, buf_str(&text), &cut), TINY_CONTEXT);
    assert_false(cut);
    str whole = str_copy(f->mem, buf_str(&text));
    buf_append_c(&text, "and what follows does not count");
    assert_int_equal(llm_embed_tokens(engine, buf_str(&text), &cut), TINY_CONTEXT);
    assert_true(cut);
    float vectors[2][TINY_EMBD], *out[2] = {vectors[0], vectors[1]};
    llm_figures figures = {0};
    llm_embed_options options = {0};
    err e = {0};
    str both[2] = {whole, buf_str(&text)};
    assert_int_equal(llm_embed(engine, both, 2, out, &options, &figures, &e), 0);
    assert_memory_equal(vectors[0], vectors[1], sizeof vectors[0]);
    assert_int_equal(figures.truncated, 1);
    assert_int_equal(figures.done, 2);
    assert_int_equal(figures.computed_tokens, 2 * TINY_CONTEXT);
    assert_int_equal(figures.passes, 1);
    buf_free(&text);
    llm_engine_close(engine);
}

typedef struct done_seen {
    atomic_bool cancel;
    bool seen[TEXTS];
    int count, passes;
} done_seen;

static void note_done(void *ctx, const size_t *texts, size_t count) {
    done_seen *d = ctx;
    for (size_t i = 0; i < count; i++) {
        assert_false(d->seen[texts[i]]);
        d->seen[texts[i]] = true;
        d->count++;
    }
    if (++d->passes == 2)
        atomic_store(&d->cancel, true);
}

static void cancelling_keeps_what_is_done(void **state) {
    fixture *f = *state;
    write_model(f, encoder_named("bert"));
    llm_engine *engine = open_model(f, LLM_F32, 1);
    float all[TEXTS][TINY_EMBD], some[TEXTS][TINY_EMBD], *out[TEXTS];
    embed_with(engine, f->texts, TEXTS, (llm_embed_options){0}, all);
    done_seen d = {0};
    llm_embed_options options = {
        .done = note_done, .ctx = &d, .cancel = &d.cancel, .pass_tokens = 100};
    err e = {0};
    for (int i = 0; i < TEXTS; i++)
        out[i] = some[i];
    assert_int_equal(llm_embed(engine, f->texts, TEXTS, out, &options, NULL, &e), ERR_CANCELLED);
    assert_true(d.passes == 2 && d.count > 1 && d.count < TEXTS);
    for (int i = 0; i < TEXTS; i++)
        if (d.seen[i])
            assert_memory_equal(all[i], some[i], sizeof all[i]);
    llm_engine_close(engine);
}

/* ---- the real model -------------------------------------------------------------------------- */

enum { WIDTH = 384, MOST_LINES = 16 };

static void read_vector(const char *line, float out[WIDTH]) {
    const char *at = json_value(line, "vector");
    at += 1;
    for (int i = 0; i < WIDTH; i++) {
        char *end;
        out[i] = strtof(at, &end);
        at = end + strspn(end, ", ");
    }
    assert_int_equal(*at, ']');
}

static void check_real(const char *path, llm_precision precision, const str *texts,
                       float (*want)[WIDTH], size_t n, double least) {
    llm_engine_options options = {.path = path, .precision = precision, .device = "cpu"};
    llm_embed_options embed = {0};
    llm_engine *engine;
    err e = {0};
    float got[MOST_LINES][WIDTH], *out[MOST_LINES];
    for (size_t i = 0; i < n; i++)
        out[i] = got[i];
    if (llm_engine_open(&options, &engine, &e) != 0 ||
        llm_embed(engine, texts, n, out, &embed, NULL, &e) != 0)
        fail_msg("%s", e.message);
    assert_int_equal(llm_engine_info(engine)->embedding, WIDTH);
    for (size_t i = 0; i < n; i++) {
        double cosine = 0;
        for (int d = 0; d < WIDTH; d++)
            cosine += (double)got[i][d] * (double)want[i][d];
        if (!(cosine > least))
            fail_msg("%s: text %zu has cosine %.9g", llm_engine_info(engine)->precision, i, cosine);
    }
    llm_engine_close(engine);
}

/* A cosine of .9999 is the limit for the precision that 'auto' chooses. */
static void equals_sentence_transformers(void **state) {
    (void)state;
    char model[4096], path[4096], *line = NULL;
    size_t cap = 0, n = 0;
    buf texts[MOST_LINES] = {0};
    str list[MOST_LINES];
    float want[MOST_LINES][WIDTH];
    if (!fetched_path("all-MiniLM-L6-v2.F16.gguf", model))
        skip();
    FILE *f = fopen(source_path("tests/vectors/embed.jsonl", path), "r");
    assert_non_null(f);
    for (; n < MOST_LINES && getline(&line, &cap, f) > 0; n++) {
        json_string(json_value(line, "text"), &texts[n]);
        list[n] = buf_str(&texts[n]);
        read_vector(line, want[n]);
    }
    fclose(f);
    assert_int_equal(n, 10);
    check_real(model, LLM_PRECISION_AUTO, list, want, n, 0.9999);
    check_real(model, LLM_F32, list, want, n, 0.99999);
    for (size_t i = 0; i < n; i++)
        buf_free(&texts[i]);
    free(line);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void models_say_what_they_are_for(void **state) {
    fixture *f = *state;
    err e = {0};
    llm_session *session;
    llm_session_options session_options = {.warm_only = true};
    llm_embed_options options = {0};
    float vector[TINY_EMBD], *out = vector;
    write_model(f, encoder_named("bert"));
    llm_engine *engine = open_model(f, LLM_F32, 1);
    assert_int_equal(llm_session_new(engine, &session_options, &session, &e), ERR_UNSUPPORTED);
    assert_null(session);
    assert_non_null(strstr(e.message, "cannot be warmed"));
    llm_engine_close(engine);
    write_model(f, &tiny_models[0]);
    engine = open_model(f, LLM_F32, 1);
    assert_int_equal(llm_engine_info(engine)->embedding, 0);
    assert_int_equal(llm_embed(engine, f->texts, 1, &out, &options, NULL, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "generates text"));
    llm_engine_close(engine);
}

/* Steps a session until it is idle, taking `capacity` events at a time; returns how many came. Their
 * vectors must be those that llm_embed makes of texts[tag]. */
static size_t take_vectors(llm_session *session, llm_engine *engine, const fixture *f,
                           int capacity) {
    llm_event events[8];
    size_t taken = 0;
    bool idle = false;
    int count;
    err e = {0};
    while (!idle) {
        assert_int_equal(llm_step(session, events, capacity, &count, &idle, &e), 0);
        for (int i = 0; i < count; i++, taken++) {
            float vector[TINY_EMBD], *out = vector;
            llm_embed_options options = {0};
            assert_int_equal(events[i].tag, taken);
            assert_int_equal(llm_embed(engine, &f->texts[taken], 1, &out, &options, NULL, &e), 0);
            assert_int_equal(events[i].text.n, sizeof vector);
            assert_memory_equal(events[i].text.p, vector, sizeof vector);
        }
    }
    return taken;
}

static void sessions_answer_with_vectors(void **state) {
    fixture *f = *state;
    enum { ASKED = 5 };
    err e = {0};
    llm_session *session;
    llm_figures figures;
    write_model(f, encoder_named("bert"));
    llm_engine *engine = open_model(f, LLM_F32, 1);
    for (int counts = 0; counts < 2; counts++) {
        llm_session_options options = {.count_only = counts};
        uint64_t tokens = 0;
        assert_int_equal(llm_session_new(engine, &options, &session, &e), 0);
        for (uint64_t i = 0; i < ASKED; i++) {
            llm_span *span = llm_span_new(engine, LLM_SPAN_VALUE, f->texts[i]);
            llm_request q = {.tag = i, .spans = &span, .nspans = 1};
            assert_int_equal(llm_submit(session, &q, &e), 0);
            llm_span_release(span);
            tokens += llm_embed_tokens(engine, f->texts[i], NULL);
        }
        if (!counts) {
            assert_int_equal(take_vectors(session, engine, f, 2), ASKED);
        } else {
            llm_event events[ASKED];
            bool idle;
            int count;
            assert_int_equal(llm_step(session, events, ASKED, &count, &idle, &e), 0);
            assert_int_equal(count, ASKED);
            assert_true(idle && events[0].text.n == 0);
        }
        llm_session_figures(session, &figures);
        assert_int_equal(figures.requests, ASKED);
        assert_int_equal(figures.done, ASKED);
        assert_int_equal(figures.computed_tokens, tokens);
        llm_session_free(session);
    }
    llm_engine_close(engine);
}

#ifdef KVASIR_TEST_MODELS
/* test:hash generates and embeds; texts with the same words have the same vector. */
static void hashes_are_vectors(void **state) {
    (void)state;
    llm_engine_options open = {.path = "test:hash"};
    llm_embed_options options = {0};
    llm_engine *engine;
    err e = {0};
    assert_int_equal(llm_engine_open(&open, &engine, &e), 0);
    enum { DIMENSIONS = 16 };
    assert_int_equal(llm_engine_info(engine)->embedding, DIMENSIONS);
    assert_true(llm_engine_info(engine)->generates);
    const str texts[] = {STR("one two three"), STR("three, one: two"), STR("four"), STR("")};
    float v[4][DIMENSIONS], *out[4] = {v[0], v[1], v[2], v[3]};
    llm_figures figures = {0};
    assert_int_equal(llm_embed(engine, texts, 4, out, &options, &figures, &e), 0);
    assert_memory_equal(v[0], v[1], sizeof v[0]);
    assert_memory_not_equal(v[0], v[2], sizeof v[0]);
    assert_true(v[3][0] == 1);
    assert_int_equal(figures.done, 4);
    assert_true(figures.computed_tokens > 4);
    llm_engine_close(engine);
}
#endif

static void refuses(gguf_maker *m, int code, const char *reason) {
    str file = make_file(m, 3);
    gguf *g;
    model_config c;
    err e = {0};
    assert_int_equal(gguf_open_memory(file.p, file.n, &g, &e), 0);
    assert_int_equal(config_read(g, &c, &e), code);
    if (!strstr(e.message, reason))
        fail_msg("\"%s\" does not say \"%s\"", e.message, reason);
    gguf_close(g);
    make_free(m);
    *m = (gguf_maker){0};
}

static void set_key(gguf_maker *m, const char *key, uint32_t v) {
    char *at = memmem(m->kvs.p, m->kvs.n, key, strlen(key));
    assert_non_null(at);
    memcpy(at + strlen(key) + 4, &v, sizeof v);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    gguf_maker m = {0};
    tiny_model bert = *encoder_named("bert");
    bert.pooling = 0;
    tiny_make(&m, &bert);
    refuses(&m, ERR_UNSUPPORTED, "bert.pooling_type");
    bert.pooling = 4;
    tiny_make(&m, &bert);
    refuses(&m, ERR_UNSUPPORTED, "rank texts");
    bert.pooling = 9;
    tiny_make(&m, &bert);
    refuses(&m, ERR_CORRUPT, "pooling_type is 9");
    tiny_make(&m, encoder_named("bert"));
    set_key(&m, "bert.context_length", TINY_CONTEXT + 1);
    refuses(&m, ERR_CORRUPT, "position_embd.weight");
    tiny_make(&m, encoder_named("gemma-embedding"));
    char *dense = memmem(m.infos.p, m.infos.n, "dense_3.weight", 14);
    assert_non_null(dense);
    dense[6] = '4';
    refuses(&m, ERR_CORRUPT, "lacks the tensor dense_3.weight");
    tiny_make(&m, encoder_named("nomic-bert"));
    static const float ones[TINY_FFN] = {1};
    make_tensor(&m, "blk.0.ffn_up.bias", GGUF_F32, TINY_FFN, 1, ones, sizeof ones);
    refuses(&m, ERR_UNSUPPORTED, "biases in a gated");
    tiny_make(&m, &tiny_models[0]);
    make_bool(&m, "llama.attention.causal", false);
    refuses(&m, ERR_UNSUPPORTED, "llama.pooling_type");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encoders_equal_the_reference),
        cmocka_unit_test(a_vector_depends_on_its_text_alone),
        cmocka_unit_test(pooling_is_part_of_the_fingerprint),
        cmocka_unit_test(long_texts_lose_their_end),
        cmocka_unit_test(cancelling_keeps_what_is_done),
        cmocka_unit_test(equals_sentence_transformers),
        cmocka_unit_test(models_say_what_they_are_for),
        cmocka_unit_test(sessions_answer_with_vectors),
#ifdef KVASIR_TEST_MODELS
        cmocka_unit_test(hashes_are_vectors),
#endif
        cmocka_unit_test(bad_files_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
