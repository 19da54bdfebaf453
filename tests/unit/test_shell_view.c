/*
 * Tests of the progress line and the live view: all screen sizes, UTF-8 and ASCII.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/shell_int.h"

static exec_progress sample(double seconds, uint64_t rows) {
    exec_progress x = {.llm_running = true,
                       .phase = "model",
                       .rows_total = 200,
                       .rows_done = rows,
                       .seconds = seconds,
                       .llm_seconds = seconds,
                       .operator_number = 1,
                       .operators = 1,
                       .field_order = "synopsis, review",
                       .last_answer = "positive",
                       .last_input = "東京 is fine"};
    x.llm.prompt_tokens = rows * 1000;
    x.llm.computed_tokens = rows * 160;
    x.llm.reused_memory = rows * 800;
    x.llm.reused_disk = rows * 40;
    x.llm.output_tokens = rows;
    x.memory.kv_bytes = 3 << 20;
    x.memory.kv_budget_bytes = 1 << 30;
    x.memory.live_sequences = 16;
    x.disk_bytes = 40 << 20;
    x.disk_budget_bytes = (uint64_t)8 << 30;
    x.nbranches = 4;
    x.branches[0] = (exec_branch){"Is it good?↵synopsis:", 0, 12, 150, 112};
    x.branches[1] = (exec_branch){"A young …", 1, 412, 31, 31};
    x.branches[2] = (exec_branch){"Four sisters who …", 1, 385, 29, 17};
    x.branches[3] = (exec_branch){"The", 2, 1, 11, 3};
    x.noperators = 2;
    x.operator_rows[0] = (exec_operator){.name = "filter", .rows_in = rows, .rows_out = rows / 3};
    x.operator_rows[1] =
        (exec_operator){.name = "scan reviews", .depth = 1, .source = true, .rows_out = 12345};
    for (x.nshared = 0; x.nshared < EXEC_SHARED; x.nshared++)
        x.shared[x.nshared] = (uint8_t)(x.nshared % 8 ? 95 : 12);
    return x;
}

static void run(view_state *v, bool utf8) {
    view_start(v, STR("SELECT *\n  FROM reviews"), utf8);
    for (int i = 1; i <= 10; i++) {
        exec_progress x = sample(i, (uint64_t)i * 15);
        view_update(v, &x);
    }
}

static char *picture(const view_state *v, int w, int h) {
    static buf out;
    view_cell *cells = mem_alloc(sizeof(view_cell) * (size_t)(w * h + 1));
    cells[w * h] = (view_cell){"guard", 0x5a};
    view_render(v, w, h, cells);
    assert_string_equal(cells[w * h].text, "guard");
    buf_clear(&out);
    for (int y = 0; y < h; y++) {
        buf line = {0};
        for (int x = 0; x < w; x++) {
            buf_append_c(&line, cells[y * w + x].text);
            assert_true(cells[y * w + x].attr < VIEW_ATTRS);
        }
        assert_int_equal(utf8_width(buf_str(&line)), w);
        buf_append_str(&out, buf_str(&line));
        buf_append_char(&out, '\n');
        buf_free(&line);
    }
    free(cells);
    return out.p;
}

static void test_sizes(void **state) {
    (void)state;
    view_state v;
    for (int utf8 = 0; utf8 < 2; utf8++) {
        run(&v, utf8 != 0);
        for (v.panel = PANEL_RUN; v.panel < PANELS; v.panel++) {
            for (int help = 0; help < 2; help++) {
                v.help = help != 0;
                for (int w = 1; w < 130; w += 7)
                    for (int h = 1; h < 45; h += 3)
                        picture(&v, w, h);
            }
        }
    }
}

static void expect(const char *text, const char *const *parts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (strstr(text, parts[i]) == NULL)
            print_error("no '%s' in\n%s", parts[i], text);
        assert_non_null(strstr(text, parts[i]));
    }
}
#define EXPECT(text, ...)                                                                          \
    do {                                                                                           \
        static const char *const parts[] = {__VA_ARGS__};                                          \
        expect(text, parts, BASE_COUNT(parts));                                                    \
    } while (0)

/* All panels from 80 x 24 up; the most important ones on smaller screens; one line below 40 x 6. */
static void test_full(void **state) {
    (void)state;
    view_state v;
    run(&v, true);
    EXPECT(picture(&v, 80, 24), "LLM 1 of 1", "SELECT * FROM reviews", "150 of 200", "15.0/s",
           "ETA 3.3 s", "average  84 %", "memory 80 %", "computed 16 %", "saved 126,000",
           "KV memory", "3.0 MB of 1.0 GB", "KV disk", "40 MB of 8.0 GB", "synopsis, review",
           "order     ████▁███████▁", "11         3       1  │  ├─ The", "scan reviews", "12,345",
           "positive  東京 is fine", "2,415 tok/s", "q shell", "p pause", "? help", "4 rows");
    EXPECT(picture(&v, 120, 40), "LLM 1 of 1", "KV disk", "scan reviews",
           "31        31     412  ├─ A young …", "back to the shell", "4 rows, answers");
    EXPECT(picture(&v, 60, 12), "150 of 200", "memory 80 %", "KV disk", "synopsis, review",
           "c cancel, keep");
    EXPECT(picture(&v, 40, 6), "150 of 200", "average  84 %", "q shell", "p pause");
    assert_null(strstr(picture(&v, 40, 6), "KV"));
    v.now.paused = true;
    EXPECT(picture(&v, 40, 6), "p resume");
    v.now.paused = false;
    EXPECT(picture(&v, 30, 2), "150/200 inputs  hit 84 %");
}

/* Of a model at servers: its endpoints in place of the KV memory. */
static void test_endpoints(void **state) {
    (void)state;
    view_state v;
    run(&v, true);
    v.now.nplaces = 12;
    for (int i = 0; i < v.now.nplaces; i++)
        v.now.places[i] =
            (exec_place){"http://10.0.0.5:8000", "up", 12, 16, 90, 0, 1000, 700, 523, 210, 480};
    v.now.places[1] = (exec_place){"http://10.0.0.17:8000", "down", 0, 8, 3, 4, 0, 0, 0, 0, 0};
    EXPECT(picture(&v, 100, 24),
           "endpoints http://10.0.0.5:8000  up    12 of 16  523 tok/s  210 ms, 95 % in 480 ms  hit "
           "70 %",
           "http://10.0.0.17:8000 down  0 of 8", "refused 4", "… 6 more", "synopsis, review");
    assert_null(strstr(picture(&v, 100, 24), "KV memory"));
    v.now.nplaces = 1;
    EXPECT(picture(&v, 80, 24), "endpoint  http://10.0.0.5:8000 up");
    for (int w = 1; w < 130; w += 7)
        for (int h = 1; h < 45; h += 3)
            picture(&v, w, h);
}

static void test_panels(void **state) {
    (void)state;
    view_state v;
    run(&v, false);
    v.now.llm.stored_tokens = 50000;
    EXPECT(picture(&v, 80, 24), "known 25 %", "memory 60 %");
    v.panel = PANEL_STRATEGIES;
    EXPECT(picture(&v, 80, 24), "no cache", "this run", "so far: 150 of 200", "Counting what FIFO");
    v.panel = PANEL_TREE;
    EXPECT(picture(&v, 80, 24), "|- A young ...", "`- ... 90 more");
    v.panel = PANEL_ROWS;
    EXPECT(picture(&v, 80, 24), "operators", "filter", "last answers", "positive");
    v.scroll = 1000; /* past the end: still shows the last answer */
    EXPECT(picture(&v, 80, 24), "positive");
    v.help = true;
    EXPECT(picture(&v, 80, 24), "operators and answers", "up, down: scroll", "or computed",
           "and the limits", "each of the latest prompts", "of them are answered");
    EXPECT(picture(&v, 50, 30), "operators and answers", "are answered");
    EXPECT(picture(&v, 40, 8), "back to the shell", "keeps running", "answers are kept");
}

/* A statement with a view and a recording: 60 updates at random, then the end. The recording, read
 * line by line, gives the same pictures as the run did, in all panels, at each line. */
static void test_recording(void **state) {
    (void)state;
    enum { UPDATES = 60 };
    view_state live, *pictures = mem_alloc(sizeof *pictures * (UPDATES + 1));
    char path[] = "/tmp/kvasir-view-XXXXXX";
    err e = {0};
    int fd = mkstemp(path), n = 0;
    assert_true(fd >= 0);
    close(fd);
    view_recorder *r = view_record_open(path, &e);
    assert_non_null(r);
    view_start(&live, STR("SELECT \"quoted\"\n\tFROM 東京"), true);
    view_add_baseline(&live, &(exec_baseline){"no cache", 40000, 40000});
    uint64_t random = 5;
    for (double seconds = 0; n <= UPDATES; n++) {
        random = hash_mix(random, 1);
        seconds += (double)(random >> 40 & 1023) / 3e3;
        exec_progress x = sample(seconds, (uint64_t)n * 3);
        x.nshared = BASE_MIN(n, EXEC_SHARED);
        x.nbranches = n % 5;
        x.noperators = n % 3;
        x.paused = n % 7 == 0;
        x.branches[1].done = n % 32;
        x.prefill_tok_s = 5000.0 / 3;
        snprintf(x.last_input, sizeof x.last_input, "tab\t and \x1b %d", n / 2);
        if (n < UPDATES)
            view_update(&live, &x);
        else
            view_finish(&live, &x, "done");
        view_record(r, &live);
        pictures[n] = live;
    }
    assert_int_equal(view_record_close(r, &e), 0);
    FILE *in = fopen(path, "r");
    view_state replayed;
    char *line = NULL;
    size_t cap = 0;
    view_start(&replayed, STR(""), true);
    for (n = 0; getline(&line, &cap, in) > 0; n++) {
        double wait_s;
        assert_int_equal(view_replay_line(line, &replayed, &wait_s, &e), 0);
        assert_true(n <= UPDATES && wait_s >= 0);
        for (int panel = 0; panel < PANELS; panel++) {
            pictures[n].panel = replayed.panel = (view_panel)panel;
            char *then = mem_strdup(picture(&pictures[n], 100, 40));
            assert_string_equal(picture(&replayed, 100, 40), then);
            free(then);
        }
    }
    assert_int_equal(n, UPDATES + 1);
    free(line);
    fclose(in);
    unlink(path);
    free(pictures);
}

static void test_damaged_recording(void **state) {
    (void)state;
    static const struct {
        const char *line, *error;
    } cases[] = {
        {"{\"seconds\":1", "each line of a recorded run must be a JSON object"},
        {"[1]", "each line of a recorded run must be a JSON object"},
        {"{\"seconds\":1}{}", "each line of a recorded run must be a JSON object"},
        {"{\"phase\":\"\xff\"}", "each line of a recorded run must be a JSON object"},
        {"{\"rows\":1}", "unknown member \"rows\""},
        {"{\"seconds\":-1}", "\"seconds\" must be a number from 0 to 1000000000000000"},
        {"{\"seconds\":null}", "\"seconds\" must be a number from 0 to 1000000000000000"},
        {"{\"inputs\":1e300}", "\"inputs\" must be a whole number from 0 to 1000000000000000"},
        {"{\"operators\":1.5}", "\"operators\" must be a whole number from 0 to 1000000000"},
        {"{\"shared\":[101]}", "\"shared\" must be a whole number from 0 to 100"},
        {"{\"shared\":3}", "\"shared\" must be a list of at most 256 items"},
        {"{\"plan\":[3]}", "\"plan\" must be a list of objects"},
        {"{\"plan\":[{\"name\":\"scan\",\"depth\":\"x\"}]}",
         "\"depth\" must be a whole number from 0 to 1000000000"},
        {"{\"strategies\":[{},{},{},{},{},{}]}",
         "\"strategies\" must be a list of at most 5 items"},
        {"{\"finished\":1}", "\"finished\" must be true or false"},
        {"{\"phase\":7}", "\"phase\" must be a text"},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        view_state v;
        double wait_s;
        err e = {0};
        view_start(&v, STR(""), true);
        assert_int_equal(view_replay_line(cases[i].line, &v, &wait_s, &e), ERR_CORRUPT);
        assert_string_equal(e.message, cases[i].error);
    }
}

/* Extreme values, and a control character. */
static void test_wild_recording(void **state) {
    (void)state;
    view_state v;
    double wait_s;
    err e = {0};
    view_start(&v, STR(""), true);
    assert_int_equal(
        view_replay_line("{\"seconds\":1e15,\"inputs_done\":1e15,\"phase\":\"a\\u001bz\","
                         "\"plan\":[{\"name\":\"scan\",\"depth\":1000000000}],"
                         "\"branches\":[{\"depth\":1000000000,\"prompts\":1000000000}]}",
                         &v, &wait_s, &e),
        0);
    assert_non_null(strstr(picture(&v, 80, 24), "a␛z"));
    v.panel = PANEL_ROWS;
    assert_non_null(strstr(picture(&v, 80, 24), "scan"));
    v.panel = PANEL_TREE;
    assert_non_null(strstr(picture(&v, 80, 24), "1,000,000,000"));
}

/* Replays a recording up to its line `last`. */
static void replay(view_state *v, const char *path, int last, bool utf8) {
    FILE *in = fopen(path, "r");
    char *line = NULL;
    size_t cap = 0;
    double wait_s;
    err e = {0};
    assert_non_null(in);
    view_start(v, STR(""), utf8);
    for (int n = 0; n < last && getline(&line, &cap, in) > 0; n++)
        assert_int_equal(view_replay_line(line, v, &wait_s, &e), 0);
    free(line);
    fclose(in);
}

static void add_picture(buf *out, const view_state *v, int w, int h, const char *name) {
    buf_printf(out, "---- %s, %d x %d\n", name, w, h);
    str rest = str_from(picture(v, w, h));
    while (rest.n) {
        str line = str_split_next(&rest, '\n');
        while (line.n && line.p[line.n - 1] == ' ')
            line.n--;
        buf_append_str(out, line);
        buf_append_char(out, '\n');
    }
}

/* All panels of a recorded run at three sizes, while it runs and after its end, are those of
 * view_screens.txt, which this test rewrites if KVASIR_UPDATE is set. */
static void test_screens(void **state) {
    (void)state;
    static const char recorded[] = KVASIR_SOURCE_DIR "/tests/fuzz/corpus/view/run.jsonl",
                      expected[] = KVASIR_SOURCE_DIR "/tests/unit/view_screens.txt";
    static const char *const names[] = {"1 run", "2 compare", "3 prefixes", "4 rows"};
    static const int sizes[][2] = {{80, 24}, {120, 40}, {40, 10}};
    buf out = {0};
    view_state v;
    for (size_t i = 0; i < BASE_COUNT(sizes); i++) {
        replay(&v, recorded, 2, true);
        for (v.panel = PANEL_RUN; v.panel < PANELS; v.panel++)
            add_picture(&out, &v, sizes[i][0], sizes[i][1], names[v.panel]);
    }
    replay(&v, recorded, 3, false);
    for (v.panel = PANEL_RUN; v.panel < PANELS; v.panel++)
        add_picture(&out, &v, 80, 24, names[v.panel]);
    v.help = true;
    add_picture(&out, &v, 80, 24, "help");
    FILE *file = fopen(expected, getenv("KVASIR_UPDATE") ? "w+" : "r");
    assert_non_null(file);
    if (getenv("KVASIR_UPDATE"))
        fwrite(out.p, 1, out.n, file);
    rewind(file);
    char *text = mem_zalloc(out.n + 2);
    size_t n = fread(text, 1, out.n + 1, file);
    assert_string_equal(out.p, text);
    assert_int_equal(n, out.n);
    fclose(file);
    free(text);
    buf_free(&out);
}

/* A long statement is cut between two characters. */
static void test_long_statement(void **state) {
    (void)state;
    view_state v;
    buf text = {0};
    for (int i = 0; i < 3; i++) {
        buf_append_c(&text, "x");
        for (int k = 0; k < 300; k++)
            buf_append_c(&text, "日");
        view_start(&v, buf_str(&text), true);
        assert_true(utf8_valid(str_from(v.statement)));
        assert_true(strlen(v.statement) + 3 >= sizeof v.statement - 1);
        text.n = (size_t)i + 1;
        memset(text.p, 'x', text.n);
    }
    buf_free(&text);
}

/* Baselines are requested only while their panel is shown, once per operator, and are summed over the
 * operators. */
static void test_baselines_while_running(void **state) {
    (void)state;
    view_state v;
    view_start(&v, STR("SELECT 1"), true);
    exec_progress x = {.llm_running = true, .operator_number = 1, .operators = 2};
    view_update(&v, &x);
    assert_false(view_wants_baselines(&v));
    v.panel = PANEL_STRATEGIES;
    assert_true(view_wants_baselines(&v));
    x.nbaselines = 2;
    x.baselines[0] = (exec_baseline){"no cache", 700, 700};
    x.baselines[1] = (exec_baseline){"grouped", 700, 100};
    for (int i = 0; i < 3; i++)
        view_update(&v, &x);
    assert_false(view_wants_baselines(&v));
    assert_true(v.baselines[0].computed_tokens == 700);
    x.operator_number = 2;
    x.nbaselines = 0;
    view_update(&v, &x);
    assert_true(view_wants_baselines(&v));
    x.nbaselines = 2;
    view_update(&v, &x);
    assert_false(view_wants_baselines(&v));
    assert_true(v.baselines[0].computed_tokens == 1400 && v.baselines[1].computed_tokens == 200);
    assert_non_null(strstr(picture(&v, 80, 24), "grouped"));
    v.counted_operator = 0; /* as after EXPLAIN (TOKENS), which covers the whole statement */
    assert_false(view_wants_baselines(&v));
}

static void test_progress(void **state) {
    (void)state;
    progress_line p = {0};
    buf out = {0};
    for (int width = 1; width < 140; width++) {
        for (int i = 0; i < 3; i++) {
            exec_progress x = sample(i + width, (uint64_t)(i + 1) * 30);
            buf_clear(&out);
            progress_render(&p, &x, width, width % 2 == 0, &out);
            assert_true(utf8_width(buf_str(&out)) <= width);
        }
    }
    assert_non_null(strstr(out.p, "90/200 inputs"));
    assert_non_null(strstr(out.p, "hit 84 %"));
    assert_non_null(strstr(out.p, "ETA"));
    buf_free(&out);
}

/* The phase is shown until there are answers. */
static void test_progress_before_answers(void **state) {
    (void)state;
    static const struct {
        exec_progress x;
        const char *line;
    } cases[] = {
        {{.phase = "opening the model"}, "opening the model"},
        {{.phase = "reading"}, "reading"},
        {{.phase = "starting the model", .rows_total = 20}, "0/20 inputs, starting the model"},
        {{.phase = "model", .rows_total = 20}, "0/20 inputs"},
        {{.phase = "model", .rows_total = 20, .rows_done = 3}, "3/20 inputs"},
        {{.phase = ""}, "0 inputs"}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        progress_line p = {0};
        buf out = {0};
        progress_render(&p, &cases[i].x, 50, true, &out);
        assert_string_equal(out.p, cases[i].line);
        buf_free(&out);
    }
}

static void test_summary(void **state) {
    (void)state;
    exec_summary s = {.seconds = 9.2, .held_seconds = 3};
    s.llm.inputs = s.llm.distinct_inputs = 200;
    s.llm.prompt_tokens = 196000;
    s.llm.computed_tokens = 31204;
    buf out = {0};
    shell_summary_line(&s, &out);
    assert_string_equal(out.p,
                        "200 rows asked, 6.2 s, hit rate 84 %, 31,204 of 196,000 tokens computed");
    buf_clear(&out);
    s.llm.distinct_inputs = 20;
    shell_summary_line(&s, &out);
    assert_non_null(strstr(out.p, "200 rows asked, 20 distinct inputs, 6.2 s"));
    snprintf(s.answers, sizeof s.answers,
             "mood: positive 131, negative 69\nLLM#2: true 200, false 0");
    buf_clear(&out);
    shell_summary_line(&s, &out);
    assert_string_equal(strchr(out.p, '\n'),
                        "\nmood: positive 131, negative 69\nLLM#2: true 200, false 0");
    buf_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),          cmocka_unit_test(test_full),
        cmocka_unit_test(test_endpoints),      cmocka_unit_test(test_panels),
        cmocka_unit_test(test_recording),      cmocka_unit_test(test_damaged_recording),
        cmocka_unit_test(test_wild_recording), cmocka_unit_test(test_screens),
        cmocka_unit_test(test_long_statement), cmocka_unit_test(test_baselines_while_running),
        cmocka_unit_test(test_progress),       cmocka_unit_test(test_progress_before_answers),
        cmocka_unit_test(test_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
