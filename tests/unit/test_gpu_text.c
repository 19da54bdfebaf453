/*
 * test_gpu_text.c - free text on a tiny model: what is drawn, what ends it, what bytes become, and
 * what is no answer at all.
 *
 * Where the model itself does not matter, a device stands in for it that writes from a script, or
 * finds all tokens equally likely.
 */
#include "gpu_fixture.h"
#include "text/tokenizer_parts_int.h"

#include <math.h>

/* ---- asking ---------------------------------------------------------------------------------- */

typedef struct ending {
    char text[256];
    llm_finish finish;
    int tokens;
    double prob;
} ending;

/* `q` without its spans: the prompt is `prompt`. */
static ending ask(fixture *f, const char *prompt, llm_request q) {
    err e = {0};
    ending out = {0};
    llm_session *s = session(f, (llm_session_options){0});
    llm_span *spans[] = {llm_span_new(&f->engine, LLM_SPAN_TEMPLATE, str_from(prompt))};
    q.spans = spans;
    q.nspans = 1;
    q.after = q.after != NULL ? q.after : llm_engine_template(&f->engine, LLM_FORMAT_COMPLETION);
    assert_int_equal(llm_submit(s, &q, &e), 0);
    for (bool idle = false; !idle;) {
        llm_event ev;
        int got;
        assert_int_equal(llm_step(s, &ev, 1, &got, &idle, &e), 0);
        if (got > 0) {
            out = (ending){.finish = ev.finish, .tokens = ev.output_tokens, .prob = ev.prob};
            snprintf(out.text, sizeof out.text, "%.*s", (int)ev.text.n, ev.text.p);
        }
    }
    llm_span_release(spans[0]);
    llm_session_free(s);
    return out;
}

static ending text_of_model(fixture *f, const str *stop, int nstop, int max_tokens) {
    return ask(f, "ab cd:", (llm_request){.max_tokens = max_tokens, .stop = stop, .nstop = nstop});
}

/* ---- stops and limits ------------------------------------------------------------------------ */

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

/* ---- a scripted device ----------------------------------------------------------------------- */

enum { END = 2, SPACE = 4, A = 5, AB_SPACED = 10, NEWLINE = 12, CD = 15 }; /* of tiny_vocabulary */

static const llm_token *script;
static int script_from; /* position of the first row asked about; -1: none yet */

static int forward_script(llm_engine *engine, void *work, const pass *p, err *e) {
    (void)engine;
    (void)work;
    (void)e;
    for (int i = 0; i < p->nwants; i++) {
        const pass_want *want = &p->wants[i];
        int position = p->rows[want->row].position;
        script_from = script_from < 0 ? position : script_from;
        llm_token next = script[position - script_from];
        if (want->ids == NULL) {
            want->logits[0] = 1;
            want->top_ids[0] = next;
        }
        for (int k = 0; want->ids != NULL && k < want->count; k++)
            want->logits[k] = want->ids[k] == next ? 1 : 0;
    }
    return 0;
}

static ending written(fixture *f, const llm_token *tokens, llm_request q) {
    script = tokens;
    script_from = -1;
    return ask(f, "ab:", q);
}

static void expect_text(ending got, const char *text, llm_finish finish, int tokens) {
    assert_string_equal(got.text, text);
    assert_int_equal(got.finish, finish);
    assert_int_equal(got.tokens, tokens);
}

static void tokens_and_lines_end_a_text(void **state) {
    (void)state;
    static const llm_token two[] = {AB_SPACED, CD, END, A}, only_end[] = {END},
                           lines[] = {NEWLINE, NEWLINE, AB_SPACED, NEWLINE, CD, END},
                           spaced[] = {AB_SPACED, AB_SPACED, END};
    static const llm_template chat = {
        .name = "test", .before = {"", 0}, .after = {"", 0}, .answer_lead = {"", 0}, .chat = true};
    static const str space[] = {{" ", 1}};
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    llm_backend scripted = *f.engine.backend;
    scripted.forward = forward_script;
    f.engine.backend = &scripted;
    expect_text(written(&f, two, (llm_request){.max_tokens = 9}), "abcd", LLM_FINISH_STOP, 2);
    expect_text(written(&f, only_end, (llm_request){.max_tokens = 9}), "", LLM_FINISH_STOP, 0);
    expect_text(written(&f, two, (llm_request){.max_tokens = 1}), "ab", LLM_FINISH_LENGTH, 1);
    expect_text(written(&f, lines, (llm_request){.max_tokens = 9}), "ab", LLM_FINISH_STOP, 4);
    expect_text(written(&f, lines, (llm_request){.max_tokens = 9, .after = &chat}), "ab\ncd",
                LLM_FINISH_STOP, 5);
    /* the space that an answer starts with is none of its own */
    expect_text(written(&f, spaced, (llm_request){.max_tokens = 9, .stop = space, .nstop = 1}),
                "ab", LLM_FINISH_STOP, 2);
    f.engine.backend = &backend_cpu;
    fixture_close(&f);
}

/* A number has 18 digits at most, and one of them behind its point, wherever that comes. */
static void a_number_ends_in_a_digit(void **state) {
    (void)state;
    static const struct {
        llm_guide_kind kind;
        int point; /* digits before it */
        const char *text;
    } cases[] = {
        {LLM_GUIDE_INTEGER, 0, "-777777777777777777"}, {LLM_GUIDE_REAL, 1, "-7.77777777777777777"},
        {LLM_GUIDE_REAL, 17, "-77777777777777777.7"},  {LLM_GUIDE_REAL, 18, "-777777777777777777"},
        {LLM_GUIDE_REAL, 0, "-777777777777777777"},
    };
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    llm_backend scripted = *f.engine.backend;
    scripted.forward = forward_script;
    f.engine.backend = &scripted;
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        llm_token tokens[32] = {SPACE, TINY_MINUS};
        for (int k = 2; k < 32; k++)
            tokens[k] = cases[i].point > 0 && k == 2 + cases[i].point ? (llm_token)TINY_POINT
                                                                      : (llm_token)TINY_DIGIT + 7;
        err e = {0};
        llm_guide *guide = llm_guide_new(&f.engine, cases[i].kind, NULL, 0,
                                         llm_engine_template(&f.engine, LLM_FORMAT_COMPLETION), &e);
        ending got = written(&f, tokens, (llm_request){.guide = guide});
        expect_text(got, cases[i].text, LLM_FINISH_CHOICE, (int)strlen(cases[i].text) + 1);
        assert_true(got.prob > 0 && got.prob < 1);
        llm_guide_release(guide);
    }
    f.engine.backend = &backend_cpu;
    fixture_close(&f);
}

/* A vocabulary in which a number could begin but not go on is refused. */
static void a_number_needs_digits(void **state) {
    (void)state;
    static const llm_token missing[][2] = {{TINY_DIGIT, TINY_DIGIT + 9}, {SPACE, SPACE}};
    for (size_t i = 0; i < BASE_COUNT(missing); i++) {
        fixture f;
        err e = {0};
        fixture_open(&f, (llm_engine_options){0});
        for (llm_token id = missing[i][0]; id <= missing[i][1]; id++)
            f.engine.tokenizer->flags[id] |= TOKEN_IS_CONTROL;
        llm_guide *guide = llm_guide_new(&f.engine, LLM_GUIDE_INTEGER, NULL, 0,
                                         llm_engine_template(&f.engine, LLM_FORMAT_COMPLETION), &e);
        assert_null(guide);
        assert_int_equal(e.code, ERR_UNSUPPORTED);
        fixture_close(&f);
    }
}

/* ---- draws ----------------------------------------------------------------------------------- */

static int forward_evenly(llm_engine *engine, void *work, const pass *p, err *e) {
    (void)engine;
    (void)work;
    (void)e;
    for (int i = 0; i < p->nwants; i++)
        for (int k = 0; k < p->wants[i].count; k++)
            p->wants[i].logits[k] = k < AB_SPACED ? -1000 : 0; /* no end, no newline but one */
    return 0;
}

static ending drawn(fixture *f, const char *prompt, uint64_t seed) {
    static const llm_template chat = {
        .name = "test", .before = {"", 0}, .after = {"", 0}, .answer_lead = {"", 0}, .chat = true};
    return ask(f, prompt,
               (llm_request){.max_tokens = 12,
                             .after = &chat,
                             .sampling = {.temperature = 1, .top_p = 1, .seed = seed}});
}

/* Of equally likely tokens seed and prompt decide, and nothing else. */
static void seed_and_prompt_decide_a_draw(void **state) {
    (void)state;
    fixture f;
    fixture_open(&f, (llm_engine_options){0});
    llm_backend even = *f.engine.backend;
    even.forward = forward_evenly;
    f.engine.backend = &even;
    ending first = drawn(&f, "ab:", 1);
    assert_int_equal(first.tokens, 12);
    assert_string_equal(drawn(&f, "ab:", 1).text, first.text);
    assert_string_not_equal(drawn(&f, "ab:", 2).text, first.text);
    assert_string_not_equal(drawn(&f, "cd:", 1).text, first.text);
    f.engine.backend = &backend_cpu;
    fixture_close(&f);
}

/* ---- what is no text, and no answer ---------------------------------------------------------- */

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
static void nan_logits_are_an_error(void **state) {
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
        assert_non_null(strstr(e.message, "not finite"));
        assert_int_equal(llm_logprobs(s, tokens, 3, out, &e), ERR_INTERNAL); /* its KV is no good */
        llm_guide_release(q.guide);
        llm_span_release(spans[0]);
        llm_session_free(s);
    }
    f.engine.backend = &backend_cpu;
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_and_limits_end_a_text),
        cmocka_unit_test(tokens_and_lines_end_a_text),
        cmocka_unit_test(a_number_ends_in_a_digit),
        cmocka_unit_test(a_number_needs_digits),
        cmocka_unit_test(seed_and_prompt_decide_a_draw),
        cmocka_unit_test(answers_are_text),
        cmocka_unit_test(nan_logits_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
