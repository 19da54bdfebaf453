/*
 * test_gpu_limits.c - prompts at the limits, on a tiny model with a SentencePiece vocabulary: where
 * its space prefix goes, contexts and budgets that are too small, truncation, streaming beyond the
 * context, little memory shared by many, and what ends a text.
 */
#include "cpu_int.h"
#include "gpu_testing.h"
#include "gpu_tiny.h"

#include <math.h>

enum { CONTEXT = 64 };

typedef struct fixture {
    gguf_maker maker;
    gguf *file;
    llm_engine engine;
} fixture;

static void fixture_open(fixture *f, llm_engine_options options) {
    err e = {0};
    *f = (fixture){0};
    tiny_vocabulary(&f->maker);
    str file = tiny_make(&f->maker, &tiny_models[0]);
    assert_int_equal(gguf_open_memory(file.p, file.n, &f->file, &e), 0);
    llm_engine *engine = &f->engine;
    *engine = (llm_engine){.backend = &backend_cpu, .mem = arena_new(), .file = f->file};
    engine->info.threads = 2;
    options.precision = LLM_F32;
    assert_int_equal(config_read(f->file, &engine->config, &e), 0);
    assert_int_equal(tokenizer_new(f->file, &engine->tokenizer, &e), 0);
    engine->bos = tokenizer_bos(engine->tokenizer);
    engine->eos = tokenizer_eos(engine->tokenizer);
    engine->info.kv_memory_bytes = (size_t)1 << 30;
    engine->newline = 12;
    engine->adds_bos = true;
    if (cpu_load(engine, &options, &e) != 0)
        fail_msg("%s", e.message);
}

static void fixture_close(fixture *f) {
    backend_cpu.close(&f->engine);
    tokenizer_free(f->engine.tokenizer);
    arena_free(f->engine.mem);
    gguf_close(f->file);
    make_free(&f->maker);
}

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

static llm_session *session(fixture *f, llm_session_options options) {
    llm_session *s;
    err e = {0};
    if (llm_session_new(&f->engine, &options, &s, &e) != 0)
        fail_msg("%s", e.message);
    return s;
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
        llm_stats st;
        llm_session_stats(s, &st);
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
    llm_stats st;
    llm_session_stats(s, &st);
    assert_int_equal(st.truncated, 1);
    assert_true(st.prompt_tokens < 16); /* the second field is gone, whole */
    const piece all[] = {{LLM_SPAN_TEMPLATE, ""}, {LLM_SPAN_INSTRUCTION, field}};
    assert_int_equal(submit(&f, s, all, 2, 40, 0, &e), ERR_LIMIT); /* nothing to cut */
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
    llm_stats st;
    llm_session_stats(s, &st);
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
        llm_stats st;
        llm_session_stats(s, &st);
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
    llm_stats st;
    llm_session_stats(s, &st);
    assert_int_equal(st.requests, 0); /* nothing was started */
    llm_session_free(s);
    fixture_close(&f);
}

/* ---- what ends a text ------------------------------------------------------------------------ */

typedef struct ending {
    char text[256];
    llm_finish finish;
    int tokens;
} ending;

static ending text_of_model(fixture *f, const str *stop, int nstop, int max_tokens) {
    err e = {0};
    ending out = {0};
    llm_session *s = session(f, (llm_session_options){0});
    llm_span *spans[] = {llm_span_new(&f->engine, LLM_SPAN_TEMPLATE, STR("ab cd:"))};
    llm_request q = {.spans = spans,
                     .nspans = 1,
                     .max_tokens = max_tokens,
                     .stop = stop,
                     .nstop = nstop,
                     .after = llm_engine_template(&f->engine, LLM_FORMAT_COMPLETION)};
    assert_int_equal(llm_submit(s, &q, &e), 0);
    for (bool idle = false; !idle;) {
        llm_event ev;
        int got;
        assert_int_equal(llm_step(s, &ev, 1, &got, &idle, &e), 0);
        if (got > 0) {
            out = (ending){.finish = ev.finish, .tokens = ev.output_tokens};
            snprintf(out.text, sizeof out.text, "%.*s", (int)ev.text.n, ev.text.p);
        }
    }
    llm_span_release(spans[0]);
    llm_session_free(s);
    return out;
}

/* The answer, had it been written a byte at a time. */
static void expect_ending(fixture *f, const char *whole, const str *stop, int nstop) {
    size_t at = strlen(whole);
    for (size_t n = 1; n <= strlen(whole) && at == strlen(whole); n++)
        for (int k = 0; k < nstop; k++)
            if (n >= stop[k].n && memcmp(whole + n - stop[k].n, stop[k].p, stop[k].n) == 0)
                at = BASE_MIN(at, n - stop[k].n);
    assert_true(at < strlen(whole));
    ending got = text_of_model(f, stop, nstop, 24);
    assert_int_equal(got.finish, LLM_FINISH_STOP);
    while (at > 0 && whole[at - 1] == ' ')
        at--;
    assert_int_equal(strlen(got.text), at);
    assert_memory_equal(got.text, whole, at);
}

static void stops_and_limits_end_a_text(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    ending whole = text_of_model(&f, NULL, 0, 24), three = text_of_model(&f, NULL, 0, 3);
    assert_int_equal(whole.finish, LLM_FINISH_LENGTH);
    assert_int_equal(whole.tokens, 24);
    assert_int_equal(three.finish, LLM_FINISH_LENGTH);
    assert_int_equal(three.tokens, 3);
    assert_memory_equal(three.text, whole.text, strlen(three.text));
    size_t n = strlen(whole.text);
    assert_true(n > 24); /* tokens of several letters: most stops below cross some */
    for (size_t from = 1; from + 8 < n; from++) {
        const str one[] = {{whole.text + from, 5}};
        const str inside[] = {{whole.text + from, 7}, {whole.text + from + 2, 2}};
        const str longer[] = {{whole.text + from + 3, 4}, {whole.text + from, 7}, {"never", 5}};
        if (whole.text[from] == ' ')
            continue;
        expect_ending(&f, whole.text, one, 1);
        expect_ending(&f, whole.text, inside, 2);
        expect_ending(&f, whole.text, longer, 3);
    }
    fixture_close(&f);
}

static void decode_odd_bytes(const llm_engine *engine, llm_token token, bool special, buf *out) {
    static const char bytes[] = {'a', (char)0x9b, '\0', (char)0xe2, (char)0x82};
    (void)engine;
    (void)token;
    (void)special;
    buf_append(out, bytes, sizeof bytes);
}

/* Bytes that are no character, a NUL, and a character that max_tokens cuts in two. */
static void answers_are_text(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    llm_backend odd = *f.engine.backend;
    odd.decode = decode_odd_bytes;
    f.engine.backend = &odd;
    ending got = text_of_model(&f, NULL, 0, 2);
    assert_string_equal(got.text, "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
                                  "a\xEF\xBF\xBD\xEF\xBF\xBD");
    f.engine.backend = &backend_cpu;
    fixture_close(&f);
}

static int forward_to_nothing(llm_engine *engine, void *work, const pass *p, err *e) {
    int code = backend_cpu.forward(engine, work, p, e);
    for (int i = 0; i < p->nwants; i++) {
        const pass_want *want = &p->wants[i];
        int first = want->ids != NULL ? want->count - 1 : 0; /* one of those listed is enough */
        for (int k = first; k < (want->top > 0 ? want->top : want->count); k++)
            want->logits[k] = i % 2 ? NAN : -INFINITY;
    }
    return code;
}

/* Where logits are no numbers there is an error, not an answer. */
static void no_numbers_are_no_answer(void **state) {
    (void)state;
    static const str literals[] = {{"ab", 2}, {"cd", 2}, {"c", 1}};
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    llm_backend odd = *f.engine.backend;
    odd.forward = forward_to_nothing;
    f.engine.backend = &odd;
    for (int kind = 0; kind < 4; kind++) {
        err e = {0};
        llm_event ev;
        int got;
        bool idle;
        llm_session *s = session(&f, (llm_session_options){0});
        const llm_template *after = llm_engine_template(&f.engine, LLM_FORMAT_COMPLETION);
        llm_span *spans[] = {llm_span_new(&f.engine, LLM_SPAN_TEMPLATE, STR("ab cd:"))};
        llm_request q = {.spans = spans, .nspans = 1, .after = after};
        if (kind == 1)
            q.sampling = (llm_sampling){.temperature = 1, .top_p = 1};
        if (kind == 2)
            q.guide = llm_guide_new(&f.engine, LLM_GUIDE_CHOICE, literals, 3, after, &e);
        assert_int_equal(llm_submit(s, &q, &e), 0);
        float out[TINY_VOCAB];
        static const llm_token tokens[] = {5, 6, 7};
        if (kind == 3)
            assert_int_equal(llm_logprobs(s, tokens, 3, out, &e), ERR_MODEL);
        else
            assert_int_equal(llm_step(s, &ev, 1, &got, &idle, &e), ERR_MODEL);
        assert_non_null(strstr(e.message, "no numbers"));
        llm_guide_release(q.guide);
        llm_span_release(spans[0]);
        llm_session_free(s);
    }
    f.engine.backend = &backend_cpu;
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_text_has_the_space),
        cmocka_unit_test(too_long_for_the_context),
        cmocka_unit_test(streaming_reads_on),
        cmocka_unit_test(many_rows_in_few_blocks),
        cmocka_unit_test(too_long_for_the_budget),
        cmocka_unit_test(stops_and_limits_end_a_text),
        cmocka_unit_test(answers_are_text),
        cmocka_unit_test(no_numbers_are_no_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
