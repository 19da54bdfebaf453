/*
 * test_gpu_limits.c - prompts at the limits, on a tiny model with a SentencePiece vocabulary: where
 * its space prefix goes, contexts and budgets that are too small, truncation, streaming beyond the
 * context, and little memory shared by many.
 */
#include "gpu_fixture.h"

#include <math.h>

typedef struct piece {
    llm_span_kind kind;
    const char *text;
} piece;

static int submit(fixture *f, llm_session *s, const piece *pieces, int n, int max_tokens,
                  uint64_t tag, err *e) {
    llm_span *spans[16];
    for (int i = 0; i < n; i++)
        spans[i] = llm_span_new(&f->engine, pieces[i].kind, str_from(pieces[i].text));
    llm_request q = {.tag = tag,
                     .spans = spans,
                     .nspans = n,
                     .max_tokens = max_tokens,
                     .after = llm_engine_template(&f->engine, LLM_FORMAT_COMPLETION)};
    int code = llm_submit(s, &q, e);
    for (int i = 0; i < n; i++)
        llm_span_release(spans[i]);
    return code;
}

/* ---- the space in front ---------------------------------------------------------------------- */

/* The prompt of the pieces has as many tokens, and the same logits behind it, as `whole`. */
static void expect_prompt(fixture *f, const piece *pieces, int n, const char *whole) {
    err e = {0};
    llm_session *s = session(f, (llm_session_options){.keep_logits = true});
    size_t count;
    llm_token *tokens = llm_tokenize(&f->engine, str_from(whole), true, true, &count);
    float want[TINY_VOCAB];
    assert_int_equal(llm_logprobs(s, tokens, count, want, &e), 0);
    assert_int_equal(submit(f, s, pieces, n, 1, 0, &e), 0);
    bool idle = false, seen = false;
    while (!idle) {
        llm_event ev;
        int got;
        assert_int_equal(llm_step(s, &ev, 1, &got, &idle, &e), 0);
        if (got > 0) {
            assert_int_equal(ev.prompt_tokens, count);
            float shift = ev.top_logits[0] - want[ev.top_tokens[0]];
            for (int i = 0; i < LLM_TOP_LOGITS; i++)
                assert_true(fabsf(ev.top_logits[i] - want[ev.top_tokens[i]] - shift) < 1e-5f);
            seen = true;
        }
    }
    assert_true(seen);
    free(tokens);
    llm_session_free(s);
}

static void the_first_text_has_the_space(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    const piece plain[] = {{LLM_SPAN_TEMPLATE, ""},
                           {LLM_SPAN_INSTRUCTION, "ab\n"},
                           {LLM_SPAN_NAME, "cd:"},
                           {LLM_SPAN_VALUE, " ab a\n"},
                           {LLM_SPAN_TEMPLATE, "ab:"}};
    expect_prompt(&f, plain, 5, "ab\ncd: ab a\nab:");
    const piece chat[] = {{LLM_SPAN_TEMPLATE, "<|user|>"},
                          {LLM_SPAN_INSTRUCTION, "ab\n"},
                          {LLM_SPAN_TEMPLATE, "ba<|user|>"}};
    expect_prompt(&f, chat, 3, "<|user|>ab\nba<|user|>");
    const piece first[] = {{LLM_SPAN_TEMPLATE, "ab"}, {LLM_SPAN_VALUE, " ab\n"}};
    expect_prompt(&f, first, 2, "ab ab\n");
    fixture_close(&f);
}

/* ---- contexts -------------------------------------------------------------------------------- */

static void text_of(int words, char *out, size_t cap) {
    size_t n = 0;
    for (int i = 0; i < words && n + 4 < cap; i++)
        n += (size_t)snprintf(out + n, cap - n, " %s", i % 3 == 0 ? "ab" : i % 3 == 1 ? "cd" : "a");
    snprintf(out + n, cap - n, "\n");
}

static int shortened; /* answers so far to prompts without their last fields */

static int drain(llm_session *s, char (*texts)[64], int *most_live) {
    bool idle = false;
    int done = 0;
    err e = {0};
    while (!idle) {
        llm_event events[8];
        int count;
        if (llm_step(s, events, 8, &count, &idle, &e) != 0)
            fail_msg("%s", e.message);
        llm_memory st;
        llm_session_memory(s, &st);
        *most_live = BASE_MAX(*most_live, st.live_sequences);
        assert_true(st.kv_bytes <= st.kv_budget_bytes);
        for (int i = 0; i < count; i++, done++) {
            snprintf(texts[events[i].tag], 64, "%.*s", (int)events[i].text.n, events[i].text.p);
            shortened += events[i].shortened;
        }
    }
    return done;
}

static void too_long_for_the_context(void **state) {
    (void)state;
    fixture f;
    char field[1024], texts[1][64], expected[64];
    text_of(40, field, sizeof field);
    const piece pieces[] = {{LLM_SPAN_TEMPLATE, ""},   {LLM_SPAN_NAME, "a:"},
                            {LLM_SPAN_VALUE, " cd\n"}, {LLM_SPAN_NAME, "b:"},
                            {LLM_SPAN_VALUE, field},   {LLM_SPAN_TEMPLATE, "ab:"}};
    fixture_open(&f, (llm_engine_options){0});
    err e = {0};
    llm_session *s = session(&f, (llm_session_options){0});
    assert_int_equal(submit(&f, s, pieces, 6, 20, 0, &e), ERR_LIMIT);
    snprintf(expected, sizeof expected, "context of %d", CONTEXT);
    assert_non_null(strstr(e.message, expected));
    assert_non_null(strstr(e.message, "a prompt of 5"));
    llm_session_free(s);
    s = session(&f, (llm_session_options){.truncate = true});
    assert_int_equal(submit(&f, s, pieces, 6, 20, 0, &e), 0);
    int live = 0;
    shortened = 0;
    assert_int_equal(drain(s, texts, &live), 1);
    assert_int_equal(shortened, 1);
    llm_figures st;
    llm_session_figures(s, &st);
    assert_int_equal(st.truncated, 1);
    assert_true(st.prompt_tokens < 16); /* the second field is gone, whole */
    const piece all[] = {{LLM_SPAN_TEMPLATE, ""}, {LLM_SPAN_INSTRUCTION, field}};
    assert_int_equal(submit(&f, s, all, 2, 40, 0, &e), ERR_LIMIT); /* nothing to cut */
    llm_session_free(s);
    fixture_close(&f);
}

/* Prompts of one token and up to the very context: what fits is answered, what does not refused. */
static void as_long_as_the_context(void **state) {
    (void)state;
    static const str literals[] = {{"ab", 2}, {"cd", 2}};
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    err e = {0};
    const llm_template *after = llm_engine_template(&f.engine, LLM_FORMAT_COMPLETION);
    llm_guide *guide = llm_guide_new(&f.engine, LLM_GUIDE_CHOICE, literals, 2, after, &e);
    llm_session *s = session(&f, (llm_session_options){0});
    for (int words = 0; words < CONTEXT + 4; words++) {
        char text[1024], texts[1][64];
        size_t count;
        text_of(words, text, sizeof text);
        llm_span *span =
            llm_span_new(&f.engine, LLM_SPAN_TEMPLATE, words > 0 ? str_from(text + 1) : STR(""));
        llm_span_tokens(span, &count);
        int prompt = (int)count + 1, left = CONTEXT - prompt, live = 0; /* with BOS */
        llm_request q = {.spans = &span, .nspans = 1, .after = after};
        for (int extra = -1; extra <= 1; extra++) {
            q.guide = NULL;
            q.max_tokens = left + extra;
            if (q.max_tokens > 0)
                assert_int_equal(llm_submit(s, &q, &e), extra <= 0 ? 0 : ERR_LIMIT);
        }
        q.guide = guide; /* the answer follows from the prompt's logits */
        assert_int_equal(llm_submit(s, &q, &e), left >= 0 ? 0 : ERR_LIMIT);
        drain(s, texts, &live);
        llm_span_release(span);
    }
    llm_figures st;
    llm_session_figures(s, &st);
    assert_true(st.done == st.requests && st.requests > 2 * CONTEXT);
    llm_guide_release(guide);
    llm_session_free(s);
    fixture_close(&f);
}

static void streaming_reads_on(void **state) {
    (void)state;
    fixture f;
    char field[8192], texts[1][64];
    text_of(1500, field, sizeof field);
    fixture_open(&f, (llm_engine_options){.attention = LLM_ATTENTION_STREAMING,
                                          .sink_tokens = 4,
                                          .window_tokens = 40});
    err e = {0};
    llm_session *s = session(&f, (llm_session_options){0});
    const piece pieces[] = {
        {LLM_SPAN_TEMPLATE, ""}, {LLM_SPAN_VALUE, field}, {LLM_SPAN_TEMPLATE, "ab:"}};
    assert_int_equal(submit(&f, s, pieces, 3, 20, 0, &e), 0);
    int live = 0;
    assert_int_equal(drain(s, texts, &live), 1);
    llm_figures st;
    llm_session_figures(s, &st);
    assert_true(st.computed_tokens > 20 * CONTEXT && st.truncated == 0);
    llm_session_free(s);
    fixture_close(&f);
}

/* ---- budgets --------------------------------------------------------------------------------- */

enum { ROWS = 40 };

static void submit_rows(fixture *f, llm_session *s) {
    err e = {0};
    for (int i = 0; i < ROWS; i++) {
        char shared[256], own[256];
        text_of(10 + i % 4, shared, sizeof shared);
        text_of(2 + i % 17, own, sizeof own);
        const piece pieces[] = {{LLM_SPAN_TEMPLATE, ""},
                                {LLM_SPAN_VALUE, shared},
                                {LLM_SPAN_VALUE, own},
                                {LLM_SPAN_TEMPLATE, i % 2 != 0 ? "ab:" : "cd:"}};
        assert_int_equal(submit(f, s, pieces, 4, 20, (uint64_t)i, &e), 0);
    }
}

/* Few blocks: fewer sequences live at a time, finished branches go first, the answers stay. */
static void many_rows_in_few_blocks(void **state) {
    (void)state;
    static const int budgets[] = {1000, 24, 9, 5};
    static char want[ROWS][64], got[ROWS][64];
    int most[BASE_COUNT(budgets)] = {0};
    uint64_t evicted = 0;
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    size_t block = f.engine.info.kv_bytes_per_token * LLM_BLOCK_TOKENS;
    for (size_t i = 0; i < BASE_COUNT(budgets); i++) {
        llm_session *s =
            session(&f, (llm_session_options){.kv_memory_bytes = (size_t)budgets[i] * block});
        submit_rows(&f, s);
        assert_int_equal(drain(s, i == 0 ? want : got, &most[i]), ROWS);
        llm_figures st;
        llm_session_figures(s, &st);
        uint64_t sum = st.computed_tokens + st.reused_memory + st.reused_disk;
        assert_true(i == 0 ? sum == st.prompt_tokens
                           : sum >= st.prompt_tokens); /* evicted: again */
        evicted += st.evicted_blocks;
        assert_true(i == 0 ? evicted == 0 : most[i] <= most[i - 1]);
        for (int row = 0; row < ROWS && i > 0; row++)
            assert_string_equal(got[row], want[row]);
        llm_session_free(s);
    }
    assert_true(most[0] == ROWS && most[BASE_COUNT(budgets) - 1] < ROWS / 4 && evicted > 0);
    fixture_close(&f);
}

/* The size behind `what`, as SET reads it. */
static size_t size_after(const char *text, const char *what) {
    const char *at = strstr(text, what);
    double number;
    char unit[4] = "";
    assert_non_null(at);
    assert_int_equal(sscanf(at + strlen(what), "%lf %2[BkMG]", &number, unit), 2);
    return (size_t)(number * (double)((size_t)1 << (unit[0] == 'M'   ? 20
                                                    : unit[0] == 'k' ? 10
                                                                     : 0)));
}

static void too_long_for_the_budget(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    size_t block = f.engine.info.kv_bytes_per_token * LLM_BLOCK_TOKENS;
    err e = {0};
    llm_session *s;
    llm_session_options one = {.kv_memory_bytes = block};
    assert_int_equal(llm_session_new(&f.engine, &one, &s, &e), ERR_LIMIT);
    size_t least = size_after(e.message, "at least ");
    assert_in_range(least, 2 * block, 2 * block * 11 / 10 + 1);
    assert_int_equal(size_after(e.hint, "kv_memory = '"), least);
    assert_non_null(strstr(e.message, "this model needs kv_memory of at least"));
    s = session(&f, (llm_session_options){.kv_memory_bytes = 2 * block});
    char field[256];
    text_of(20, field, sizeof field);
    const piece pieces[] = {{LLM_SPAN_TEMPLATE, ""}, {LLM_SPAN_VALUE, field}};
    assert_int_equal(submit(&f, s, pieces, 2, 20, 0, &e), ERR_LIMIT);
    assert_non_null(strstr(e.message, "tokens with its answer needs kv_memory of at least"));
    least = size_after(e.hint, "kv_memory = '");
    llm_session *larger = session(&f, (llm_session_options){.kv_memory_bytes = least});
    assert_int_equal(submit(&f, larger, pieces, 2, 20, 0, &e), 0);
    llm_session_free(larger);
    llm_figures st;
    llm_session_figures(s, &st);
    assert_int_equal(st.requests, 0); /* nothing was started */
    llm_session_free(s);
    fixture_close(&f);
}

/* What is answered without a row of its own makes room once the pass is settled: nobody is told that
 * there is none. */
static void room_comes_with_answers_that_need_no_row(void **state) {
    (void)state;
    static const str literal = {"ab", 2};
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    size_t block = f.engine.info.kv_bytes_per_token * LLM_BLOCK_TOKENS;
    err e = {0};
    const llm_template *after = llm_engine_template(&f.engine, LLM_FORMAT_COMPLETION);
    llm_guide *only = llm_guide_new(&f.engine, LLM_GUIDE_CHOICE, &literal, 1, after, &e);
    llm_session *s = session(&f, (llm_session_options){.kv_memory_bytes = 4 * block});
    char text[3][256], answers[3][64];
    llm_span *spans[3];
    for (int i = 0; i < 3; i++) { /* different from the first token on, of two blocks each */
        text_of(50 - 3 * i, text[i], sizeof text[i]);
        text[i][0] = "abc"[i];
        spans[i] = llm_span_new(&f.engine, LLM_SPAN_TEMPLATE, str_from(text[i]));
    }
    llm_request q = {.nspans = 1, .max_tokens = 1, .after = after, .keep = true};
    int live = 0;
    for (int round = 0; round < 2; round++) {
        q.guide = round == 0 ? NULL : only; /* then they hold the KV of the first round */
        for (int i = 0; i < 2 + round; i++) {
            q.tag = (uint64_t)i;
            q.spans = &spans[i];
            q.guide = i < 2 ? q.guide : NULL;
            assert_int_equal(llm_submit(s, &q, &e), 0);
        }
        assert_int_equal(drain(s, answers, &live), 2 + round);
    }
    assert_string_equal(answers[1], "ab");
    for (int i = 0; i < 3; i++)
        llm_span_release(spans[i]);
    llm_guide_release(only);
    llm_session_free(s);
    fixture_close(&f);
}

/* ---- vocabularies ---------------------------------------------------------------------------- */

static int open_with_rows(int rows, err *e) {
    const tiny_model *t = &tiny_models[0];
    gguf_maker m = {0};
    tiny_vocabulary(&m);
    tiny_keys(&m, t);
    tiny_tensor(&m, "token_embd.weight", TINY_EMBD, rows, 0, 4);
    tiny_tensor(&m, "output_norm.weight", TINY_EMBD, 1, 1, 0.5f);
    for (int layer = 0; layer < t->layers; layer++)
        tiny_layer(&m, t, layer);
    str bytes = make_file(&m, 3);
    char path[] = "/tmp/kvasir-rows-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, bytes.p, bytes.n) == (ssize_t)bytes.n);
    llm_engine_options options = {.path = path, .device = "cpu", .precision = LLM_F32};
    llm_engine *engine;
    int code = llm_engine_open(&options, &engine, e);
    llm_engine_close(engine);
    assert_int_equal(close(fd) | unlink(path), 0);
    make_free(&m);
    return code;
}

/* Rows without a token are padding; a token without a row cannot be computed. */
static void every_token_has_a_row(void **state) {
    (void)state;
    err e = {0};
    assert_int_equal(open_with_rows(TINY_VOCAB, &e), 0);
    assert_int_equal(open_with_rows(TINY_VOCAB + 8, &e), 0);
    assert_int_equal(open_with_rows(TINY_VOCAB - 1, &e), ERR_CORRUPT);
    assert_non_null(strstr(e.message, "40 tokens, but its embedding table only 39 rows"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_text_has_the_space),
        cmocka_unit_test(too_long_for_the_context),
        cmocka_unit_test(as_long_as_the_context),
        cmocka_unit_test(streaming_reads_on),
        cmocka_unit_test(many_rows_in_few_blocks),
        cmocka_unit_test(too_long_for_the_budget),
        cmocka_unit_test(room_comes_with_answers_that_need_no_row),
        cmocka_unit_test(every_token_has_a_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
