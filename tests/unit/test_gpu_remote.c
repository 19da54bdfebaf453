/* Models at servers, without a network: URLs, options, keys, masking, windows, requests, replies. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/guide_int.h"
#include "remote/dialect_int.h"
#include "remote/remote_int.h"
#include "remote/window_int.h"

static arena *mem;

static int setup(void **state) {
    (void)state;
    mem = arena_new();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    arena_free(mem);
    return 0;
}

/* ---- URLs, options, keys --------------------------------------------------------------------- */

static void test_urls(void **state) {
    (void)state;
    static const struct {
        const char *url, *origin, *root, *base;
        bool loopback;
    } good[] = {
        {"http://127.0.0.1:8080", "http://127.0.0.1:8080", "http://127.0.0.1:8080",
         "http://127.0.0.1:8080/v1", true},
        {"http://[::1]:80/v1/", "http://[::1]:80", "http://[::1]:80", "http://[::1]:80/v1", true},
        {"HTTPS://API.Example.com/v1", "https://api.example.com", "https://api.example.com",
         "https://api.example.com/v1", false},
        {"https://x.y/v1beta/openai", "https://x.y", "https://x.y/v1beta/openai",
         "https://x.y/v1beta/openai", false},
        {"http://127.evil.com/", "http://127.evil.com", "http://127.evil.com",
         "http://127.evil.com/v1", false},
        {"http://localhost.evil.com", "http://localhost.evil.com", "http://localhost.evil.com",
         "http://localhost.evil.com/v1", false},
    };
    static const char *const bad[] = {"ftp://x",
                                      "http://",
                                      "http://user:pw@x",
                                      "https://x/v1?key=abc",
                                      "https://x#y",
                                      "http://x:99999",
                                      "http://x:80a",
                                      "http://a b",
                                      "http://x\nHost:",
                                      "http://x:0",
                                      "https://x/v1?token=s",
                                      "http://ex\\ample",
                                      "http://",
                                      "http://[::1",
                                      "http://:80"};
    endpoint at;
    for (size_t i = 0; i < BASE_COUNT(good); i++) {
        err e = {0};
        assert_int_equal(endpoint_parse(str_from(good[i].url), mem, &at, &e), 0);
        assert_string_equal(at.origin, good[i].origin);
        assert_string_equal(at.root, good[i].root);
        assert_string_equal(at.base, good[i].base);
        assert_int_equal(at.loopback, good[i].loopback);
    }
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        err e = {0};
        if (endpoint_parse(str_from(bad[i]), mem, &at, &e) != ERR_BIND)
            fail_msg("%s", bad[i]);
        assert_null(strstr(e.message, "pw"));
        assert_null(strstr(e.message, "abc"));
    }
}

static void test_options(void **state) {
    (void)state;
    remote_options o;
    err e = {0};
    assert_int_equal(
        remote_options_parse(STR("model=a=b\nthinking=OFF\nprice_in=2.5\n"), mem, &o, &e), 0);
    assert_string_equal(o.model, "a=b");
    assert_int_equal(o.thinking, THINKING_OFF);
    assert_true(o.price_in == 2.5 && o.price_cached == 2.5 && o.timeout == 120 && o.retries == 5);
    assert_int_equal(llm_remote_check_option(STR("tiemout"), STR("1"), &e), ERR_BIND);
    assert_string_equal(e.hint, "did you mean timeout?");
    assert_int_equal(llm_remote_check_option(STR("key"), STR("sk-12345678"), &e), ERR_BIND);
    assert_null(strstr(e.message, "12345678"));
    assert_non_null(strstr(e.hint, "key_env"));
    assert_int_equal(llm_remote_check_option(STR("api"), STR("soap"), &e), ERR_TYPE);
    assert_int_equal(llm_remote_check_option(STR("retries"), STR("-1"), &e), ERR_TYPE);
    assert_int_equal(llm_remote_check_option(STR("timeout"), STR("0"), &e), ERR_TYPE);
    assert_int_equal(llm_remote_check_option(STR("model"), STR("a\nkey_env=HOME"), &e), ERR_TYPE);
}

static void test_pairs(void **state) {
    (void)state;
    buf b = {0};
    llm_remote_pairs(STR("http://127.0.0.1:1"), STR(""), &b);
    assert_int_equal(b.n, 0);
    llm_remote_pairs(STR("http://127.0.0.1:1 https://a.b/v1"), STR("key_env=K\n"), &b);
    assert_string_equal(b.p, "http://127.0.0.1:1,K\nhttps://a.b,K\n");
    buf_clear(&b);
    llm_remote_pairs(STR("http://10.0.0.1:1"), STR(""), &b);
    assert_string_equal(b.p, "http://10.0.0.1:1\n");
    buf_free(&b);
}

static void test_keys(void **state) {
    (void)state;
    remote_options o;
    err e = {0};
    char *key, path[] = "/tmp/kvasir-key-XXXXXX", line[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "abc-123\n", 8) == 8);
    close(fd);
    snprintf(line, sizeof line, "key_file=%s\n", path);
    assert_int_equal(remote_options_parse(str_from(line), mem, &o, &e), 0);
    assert_int_equal(remote_key_read(&o, &key, &e), 0);
    assert_string_equal(key, "abc-123");
    free(key);
    chmod(path, 0640);
    assert_int_equal(remote_key_read(&o, &key, &e), ERR_MODEL);
    assert_non_null(strstr(e.hint, "chmod 600"));
    unlink(path);
    assert_int_equal(remote_key_read(&o, &key, &e), ERR_MODEL);
    assert_int_equal(remote_options_parse(STR("key_env=KVASIR_TEST_KEY\n"), mem, &o, &e), 0);
    unsetenv("KVASIR_TEST_KEY");
    assert_int_equal(remote_key_read(&o, &key, &e), ERR_MODEL);
    setenv("KVASIR_TEST_KEY", "a\r\nX: y", 1);
    assert_int_equal(remote_key_read(&o, &key, &e), ERR_MODEL);
    unsetenv("KVASIR_TEST_KEY");
}

static void test_masking(void **state) {
    (void)state;
    static const struct {
        const char *text, *shown;
    } cases[] = {
        {"no secrets here", "no secrets here"},
        {"it was hunter2!", "it was ***!"},
        {"Bearer abcdefgh1", "***"},
        {"key sk-proj_12345678 is bad", "*** is bad"},
        {"a\x1b[31mb\tc", "a\\x1b[31mb\\x09c"},
        {"\xff", "\xef\xbf\xbd"},
        {"key-short", "key-short"},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        buf b = {0};
        remote_mask(str_from(cases[i].text), "hunter2", 1000, &b);
        assert_string_equal(b.p, cases[i].shown);
        buf_free(&b);
    }
    assert_true(address_is_link_local("169.254.169.254"));
    assert_true(address_is_link_local("fe80::1"));
    assert_true(address_is_link_local("febf::1"));
    assert_true(address_is_link_local("::ffff:169.254.1.1"));
    assert_true(address_is_link_local("::ffff:a9fe:101"));
    assert_false(address_is_link_local("127.0.0.1"));
    assert_false(address_is_link_local("fec0::1"));
    assert_false(address_is_link_local("::1"));
    assert_false(address_is_link_local("16.169.254.1"));
}

/* ---- windows --------------------------------------------------------------------------------- */

static void test_window(void **state) {
    (void)state;
    window w;
    window_init(&w, 2, 4, 0, 0);
    double now = 1;
    /* each full window is answered faster than the one before: it grows to its limit */
    for (int round = 0; round < 4; round++, now += 1.0 / (round + 1)) {
        int n = w.size;
        for (int i = 0; i < n; i++)
            window_sent(&w, now, 1);
        assert_true(window_wait(&w, now, 1) < 0);
        for (int i = 0; i < n; i++)
            window_done(&w, now + 0.5 / (round + 1), 100);
    }
    assert_int_equal(w.size, 4);
    /* two refusals of one round trip halve it once */
    window_cut(&w, 10, 9);
    window_cut(&w, 10.1, 9.5);
    assert_int_equal(w.size, 2);
    window_cut(&w, 11, 10.5);
    assert_int_equal(w.size, 1);
    window_cut(&w, 12, 11.5);
    assert_int_equal(w.size, 1);
}

static void test_limits_per_minute(void **state) {
    (void)state;
    window w;
    window_init(&w, 100, 100, 120, 0); /* two a second */
    int sent = 0;
    for (double now = 1; now < 11; now += 0.01)
        while (window_wait(&w, now, 10) == 0) {
            window_sent(&w, now, 10);
            window_done(&w, now, 10);
            sent++;
        }
    assert_in_range(sent, 19, 23);
    window_init(&w, 100, 100, 0, 600); /* ten tokens a second */
    sent = 0;
    for (double now = 1; now < 11; now += 0.01)
        while (window_wait(&w, now, 10) == 0) {
            window_sent(&w, now, 10);
            window_done(&w, now, 10);
            sent++;
        }
    assert_in_range(sent, 9, 12);
    window_init(&w, 10, 10, 0, 0);
    for (int i = 0; i < 5; i++)
        window_sent(&w, 1, 1);
    window_told(&w, 1, STR("-1"), STR("5s"));
    assert_true(window_wait(&w, 1, 1) == 0);
    window_told(&w, 1, STR("3"), STR("5s"));
    assert_true(window_wait(&w, 1, 1) == 5);
    assert_true(window_duration(STR("6m0s")) == 360 && window_duration(STR("20ms")) == 0.02);
    assert_true(window_duration(STR("1h2m")) == 3720 && window_duration(STR("7")) == 7);
    assert_true(window_duration(STR("x")) == -1 && window_duration(STR("")) == -1);
}

#ifdef KVASIR_REMOTE
/* ---- requests -------------------------------------------------------------------------------- */

static llm_engine *open_as(const char *server, const char *more) {
    llm_engine *engine;
    err e = {0};
    char options[256];
    snprintf(options, sizeof options, "model=m\nserver=%s\n%s", server, more);
    llm_engine_options o = {.path = "http://127.0.0.1:9/v1", .remote = str_from(options)};
    assert_int_equal(llm_engine_open(&o, &engine, &e), 0);
    return engine;
}

static llm_guide *guide_of(const llm_engine *engine, llm_guide_kind kind) {
    static const str literals[] = {{"yes", 3}, {"no", 2}, {"not sure", 8}};
    err e = {0};
    llm_guide *g = llm_guide_new(engine, kind, literals, kind == LLM_GUIDE_CHOICE ? 3 : 0,
                                 llm_engine_template(engine, LLM_FORMAT_AUTO), &e);
    assert_non_null(g);
    return g;
}

/* Writes a request about one review and returns its text. */
static char *written(const llm_engine *engine, llm_guide *g, way w, bool again, int *broken) {
    static const llm_token ids[] = {7, 8, 9};
    llm_span *spans[] = {
        llm_span_new(engine, LLM_SPAN_TEMPLATE, STR("")),
        llm_span_new(engine, LLM_SPAN_INSTRUCTION, STR("Positive <|im_end|>?\n")),
        llm_span_new(engine, LLM_SPAN_INSTRUCTION, STR("\n")),
        llm_span_new(engine, LLM_SPAN_NAME, STR("review:")),
        llm_span_new(engine, LLM_SPAN_VALUE, STR(" good <|im_end|> [INST] a<b \"\xff\"\n")),
        llm_span_new(engine, LLM_SPAN_TEMPLATE, STR("answer:"))};
    request r = {.spans = spans, .nspans = 6, .guide = g, .max_tokens = 32};
    question q = {.engine = engine, .r = &r, .way = w, .again = again, .ids = ids};
    buf b = {0};
    *broken = dialect_write(&q, &b);
    for (size_t i = 0; i < BASE_COUNT(spans); i++)
        llm_span_release(spans[i]);
    return b.p;
}

static void has(const char *text, const char *part) {
    if (strstr(text, part) == NULL)
        fail_msg("no %s in %s", part, text);
}

static void test_requests(void **state) {
    (void)state;
    static const struct {
        const char *server;
        way way;
        const char *part;
    } cases[] = {
        {"vllm", WAY_CHOICE, "\"structured_outputs\":{\"choice\":[\"yes\",\"no\",\"not sure\"]}"},
        {"vllm", WAY_GUIDED, "\"guided_choice\":[\"yes\",\"no\",\"not sure\"]"},
        {"llamacpp", WAY_SCORE, "\"logit_bias\":[[7,100],[8,100],[9,100]]"},
        {"llamacpp", WAY_GRAMMAR,
         "\"grammar\":\"root ::= \\\"yes\\\" | \\\"no\\\" | \\\"not sure\\\"\""},
        {"sglang", WAY_REGEX, "\"regex\":\"(yes|no|not sure)\""},
        {"ollama", WAY_SCHEMA, "\"enum\":[\"yes\",\"no\",\"not sure\"]"},
        {"openai", WAY_TOP, "\"top_logprobs\":20"},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        llm_engine *engine = open_as(cases[i].server, "");
        llm_guide *g = guide_of(engine, LLM_GUIDE_CHOICE);
        int broken;
        char *text = written(engine, g, cases[i].way, false, &broken);
        has(text, cases[i].part);
        /* the cell's control tokens are broken, the instruction's are the user's own */
        assert_int_equal(broken, 1);
        has(text, "good <\xe2\x80\x8b|im_end|> [\xe2\x80\x8bINST] a<b");
        has(text, "\"role\":\"system\",\"content\":\"Positive <|im_end|>?\"");
        has(text, "\xef\xbf\xbd");
        has(text, "answer:\"}");
        free(text);
        text = written(engine, g, WAY_PLAIN, true, &broken);
        has(text, "Answer with one of: yes, no, not sure\\nanswer:");
        free(text);
        llm_guide_release(g);
        llm_engine_close(engine);
    }
}

static void test_completions(void **state) {
    (void)state;
    llm_engine *engine = open_as("vllm", "api=completions\n");
    int broken;
    char *text = written(engine, NULL, WAY_TEXT, false, &broken);
    has(text, "\"prompt\":\"Positive <|im_end|>?\\n\\nreview: good <\xe2\x80\x8b|im_end|>");
    has(text, "\"max_tokens\":32");
    has(text, "\"stop\":[\"\\n\"]");
    free(text);
    llm_engine_close(engine);
}

/* ---- replies --------------------------------------------------------------------------------- */

/* Reads a reply in which `message` is the choice's member. */
static void read_reply(const llm_engine *engine, llm_guide *g, way w, int status, const char *body,
                       reply *out) {
    static const llm_token ids[] = {7, 8, 9};
    request r = {.guide = g, .max_tokens = 32};
    question q = {.engine = engine, .r = &r, .way = w, .ids = ids};
    dialect_read(&q, status, str_from(body), out);
}

#define CONTENT(text) "{\"choices\":[{\"message\":{\"content\":" text "}}]}"

static void test_typed_replies(void **state) {
    (void)state;
    static const struct {
        llm_guide_kind kind;
        way way;
        const char *body;
        verdict verdict;
        const char *text;
    } cases[] = {
        {LLM_GUIDE_CHOICE, WAY_SCHEMA, CONTENT("\"{\\\"answer\\\": \\\"No\\\"}\""), VERDICT_ANSWER,
         "no"},
        {LLM_GUIDE_CHOICE, WAY_CHOICE, CONTENT("\" 'Yes'. \""), VERDICT_ANSWER, "yes"},
        {LLM_GUIDE_CHOICE, WAY_CHOICE, CONTENT("\"<think>no</think>\\nyes\""), VERDICT_ANSWER,
         "yes"},
        {LLM_GUIDE_CHOICE, WAY_CHOICE, CONTENT("\"<think>yes\""), VERDICT_WRONG_TYPE, NULL},
        {LLM_GUIDE_CHOICE, WAY_CHOICE, CONTENT("\"I say yes\""), VERDICT_WRONG_TYPE, NULL},
        {LLM_GUIDE_CHOICE, WAY_PLAIN, CONTENT("\"I say yes!\""), VERDICT_ANSWER, "yes"},
        {LLM_GUIDE_CHOICE, WAY_PLAIN, CONTENT("\"yes and no\""), VERDICT_WRONG_TYPE, NULL},
        {LLM_GUIDE_CHOICE, WAY_PLAIN, CONTENT("\"eyes\""), VERDICT_WRONG_TYPE, NULL},
        {LLM_GUIDE_CHOICE, WAY_PLAIN, CONTENT("null"), VERDICT_AGAIN, NULL},
        {LLM_GUIDE_CHOICE, WAY_PLAIN, CONTENT("5"), VERDICT_AGAIN, NULL},
        {LLM_GUIDE_CHOICE, WAY_PLAIN, "{\"choices\":[]}", VERDICT_AGAIN, NULL},
        {LLM_GUIDE_CHOICE, WAY_PLAIN, "{\"choices\":7}", VERDICT_AGAIN, NULL},
        {LLM_GUIDE_CHOICE, WAY_PLAIN, "[", VERDICT_AGAIN, NULL},
        {LLM_GUIDE_CHOICE, WAY_PLAIN, "", VERDICT_AGAIN, NULL},
        {LLM_GUIDE_INTEGER, WAY_SCHEMA, CONTENT("\"{\\\"answer\\\": -17}\""), VERDICT_ANSWER,
         "-17"},
        {LLM_GUIDE_INTEGER, WAY_SCHEMA, CONTENT("\"17.5\""), VERDICT_WRONG_TYPE, NULL},
        {LLM_GUIDE_INTEGER, WAY_PLAIN, CONTENT("\"It is 17.\""), VERDICT_ANSWER, "17"},
        {LLM_GUIDE_INTEGER, WAY_PLAIN, CONTENT("\"3 or 4\""), VERDICT_WRONG_TYPE, NULL},
        {LLM_GUIDE_REAL, WAY_SCHEMA, CONTENT("\"{\\\"answer\\\": 2.5}\""), VERDICT_ANSWER, "2.5"},
        {LLM_GUIDE_REAL, WAY_PLAIN, CONTENT("\"nan\""), VERDICT_WRONG_TYPE, NULL},
    };
    llm_engine *engine = open_as("generic", "");
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        llm_guide *g = guide_of(engine, cases[i].kind);
        reply got;
        read_reply(engine, g, cases[i].way, 200, cases[i].body, &got);
        if (got.verdict != cases[i].verdict)
            fail_msg("%s: verdict %d", cases[i].body, (int)got.verdict);
        if (cases[i].text != NULL)
            assert_string_equal(got.text.p, cases[i].text);
        reply_free(&got);
        llm_guide_release(g);
    }
    llm_engine_close(engine);
}

#define TOP(list)                                                                                  \
    "{\"choices\":[{\"message\":{\"content\":\"yes\"},\"logprobs\":{\"content\":[{\"top_"          \
    "logprobs\":[" list "]}]}}]}"
#define SCORED(list)                                                                               \
    "{\"choices\":[{\"message\":{\"content\":\"yes\"},\"logprobs\":{\"content\":[{\"top_probs\":"  \
    "[" list "]}]}}]}"
#define LP(token, lp) "{\"token\":\"" token "\",\"logprob\":" lp "}"
#define ID(id, p) "{\"id\":" id ",\"prob\":" p "}"

static void test_probabilities(void **state) {
    (void)state;
    static const struct {
        way way;
        const char *body;
        verdict verdict;
        double prob; /* < 0: not known */
        bool all;
    } cases[] = {
        /* "n" begins two literals: what it stands for is not known, but does not decide */
        {WAY_TOP, TOP(LP("yes", "-0.1") "," LP("No", "-4")), VERDICT_ANSWER, 0.98, false},
        {WAY_TOP, TOP(LP(" y", "-0.1") "," LP("zzz", "-4")), VERDICT_ANSWER, 1, false},
        {WAY_TOP, TOP(LP("the", "-0.1")), VERDICT_UNSURE, -1, false},
        {WAY_TOP, TOP(LP("n", "-0.5") "," LP("yes", "-1")), VERDICT_UNSURE, -1, false},
        {WAY_TOP, TOP(LP("yes", "0.5")), VERDICT_UNSURE, -1, false},
        {WAY_TOP, TOP(LP("yes", "NaN")), VERDICT_UNSURE, -1, false},
        {WAY_TOP, TOP(LP("yes", "\"x\"")), VERDICT_UNSURE, -1, false},
        {WAY_TOP, CONTENT("\"yes\""), VERDICT_UNSURE, -1, false},
        {WAY_SCORE, SCORED(ID("7", "0.5") "," ID("9", "0.3") "," ID("8", "0.2")), VERDICT_ANSWER,
         0.5, true},
        {WAY_SCORE, SCORED(ID("7", "0.5") "," ID("9", "0.3")), VERDICT_UNSURE, -1, false},
        {WAY_SCORE, SCORED(ID("7", "1.5") "," ID("9", "0") "," ID("8", "0")), VERDICT_UNSURE, -1,
         false},
        {WAY_SCORE, SCORED(ID("7", "0") "," ID("9", "0") "," ID("8", "0")), VERDICT_UNSURE, -1,
         false},
        {WAY_CHOICE, TOP(LP("yes", "-0.1") "," LP("zzz", "-4")), VERDICT_ANSWER, 1, false},
        /* the guided answer is not the likeliest: its probability is not known */
        {WAY_CHOICE, TOP(LP("not", "-0.1") "," LP("zzz", "-4")), VERDICT_ANSWER, -1, false},
    };
    llm_engine *engine = open_as("generic", "");
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        llm_guide *g = guide_of(engine, LLM_GUIDE_CHOICE);
        reply got;
        read_reply(engine, g, cases[i].way, 200, cases[i].body, &got);
        bool same = cases[i].prob < 0 ? isnan(got.prob) : fabs(got.prob - cases[i].prob) < 0.01;
        if (got.verdict != cases[i].verdict || !same || (got.probs != NULL) != cases[i].all)
            fail_msg("%s: verdict %d, probability %g", cases[i].body, (int)got.verdict, got.prob);
        reply_free(&got);
        llm_guide_release(g);
    }
    llm_engine_close(engine);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *body;
        verdict verdict;
    } cases[] = {
        {429, "{\"error\":{\"code\":\"rate_limit_exceeded\"}}", VERDICT_BUSY},
        {429, "{\"error\":{\"code\":\"insufficient_quota\"}}", VERDICT_ENDPOINT},
        {503, "", VERDICT_BUSY},
        {529, "", VERDICT_BUSY},
        {500, "", VERDICT_AGAIN},
        {502, "<html>", VERDICT_AGAIN},
        {408, "", VERDICT_AGAIN},
        {401, "", VERDICT_ENDPOINT},
        {404, "", VERDICT_ENDPOINT},
        {400, "{\"error\":{\"code\":\"context_length_exceeded\"}}", VERDICT_TOO_LONG},
        {400, "{\"message\":\"This model's maximum context length is 5\"}", VERDICT_TOO_LONG},
        {400, "{}", VERDICT_ROW},
        {413, "", VERDICT_ROW},
        {422, "", VERDICT_ROW},
    };
    llm_engine *engine = open_as("generic", "");
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        reply got;
        read_reply(engine, NULL, WAY_TEXT, cases[i].status, cases[i].body, &got);
        if (got.verdict != cases[i].verdict)
            fail_msg("%d %s: verdict %d", cases[i].status, cases[i].body, (int)got.verdict);
        reply_free(&got);
    }
    llm_engine_close(engine);
}

static void test_usage(void **state) {
    (void)state;
    llm_engine *engine = open_as("generic", "");
    reply got;
    read_reply(engine, NULL, WAY_TEXT, 200,
               "{\"choices\":[{\"message\":{\"content\":\"x\"}}],\"usage\":{\"prompt_tokens\":10,"
               "\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}",
               &got);
    assert_true(got.prompt_tokens == 10 && got.output_tokens == 2 && got.cached_tokens == 4);
    reply_free(&got);
    read_reply(engine, NULL, WAY_TEXT, 200,
               "{\"choices\":[{\"message\":{\"content\":\"x\"}}],\"usage\":{\"prompt_tokens\":-10,"
               "\"completion_tokens\":1e300,\"prompt_tokens_details\":{\"cached_tokens\":4}}}",
               &got);
    assert_true(got.prompt_tokens == -1 && got.output_tokens == -1 && got.cached_tokens == -1);
    reply_free(&got);
    llm_engine_close(engine);
}

/* Estimated tokens decode to their text, whatever its bytes are. */
static void test_tokens(void **state) {
    (void)state;
    llm_engine *engine = open_as("generic", "");
    char text[1024];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i < 256 ? i : hash64(&i, sizeof i, 1) & 0xff);
    size_t count;
    llm_token *tokens = llm_tokenize(engine, (str){text, sizeof text}, false, false, &count);
    buf b = {0};
    llm_detokenize(engine, tokens, count, true, &b);
    assert_int_equal(b.n, sizeof text);
    assert_memory_equal(b.p, text, sizeof text);
    buf_free(&b);
    free(tokens);
    llm_engine_close(engine);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_masking),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_limits_per_minute),
#ifdef KVASIR_REMOTE
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_completions),
        cmocka_unit_test(test_typed_replies),
        cmocka_unit_test(test_probabilities),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_tokens),
#endif
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
