/*
 * Tests of the progress line and the live view: all screen sizes, UTF-8 and ASCII.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
    x.nprefixes = 1;
    x.prefixes[0] = (exec_prefix){"synopsis: A young …", 412, 31, 12};
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
           "order     ████▁███████▁", "31 x  412", "scan reviews", "12,345",
           "positive  東京 is fine", "2,415 tok/s", "q shell", "p pause", "? help", "4 rows");
    EXPECT(picture(&v, 120, 40), "LLM 1 of 1", "KV disk", "scan reviews", "31 x  412",
           "back to the shell", "4 rows, answers");
    EXPECT(picture(&v, 60, 12), "150 of 200", "memory 80 %", "KV disk", "synopsis, review",
           "c cancel, keep");
    EXPECT(picture(&v, 40, 6), "150 of 200", "average  84 %", "q shell", "p pause");
    assert_null(strstr(picture(&v, 40, 6), "KV"));
    v.now.paused = true;
    EXPECT(picture(&v, 40, 6), "p resume");
    v.now.paused = false;
    EXPECT(picture(&v, 30, 2), "150/200 rows  hit 84 %");
}

static void test_panels(void **state) {
    (void)state;
    view_state v;
    run(&v, false);
    v.now.llm.stored_tokens = 50000;
    EXPECT(picture(&v, 80, 24), "answers 25 %", "memory 60 %");
    v.panel = PANEL_STRATEGIES;
    EXPECT(picture(&v, 80, 24), "no cache", "this run", "so far: 150 of 200", "counting what FIFO");
    v.panel = PANEL_PREFIXES;
    EXPECT(picture(&v, 80, 24), "synopsis: A young");
    v.panel = PANEL_ROWS;
    EXPECT(picture(&v, 80, 24), "operators", "filter", "last answers", "positive");
    v.scroll = 1000; /* past the end: still shows the last answer */
    EXPECT(picture(&v, 80, 24), "positive");
    v.help = true;
    EXPECT(picture(&v, 80, 24), "operators and answers", "up, down: scroll", "or computed",
           "and the limits", "a prompt was reused", "end of the prefix");
    EXPECT(picture(&v, 50, 30), "prefixes, operators and answers", "end of the prefix");
    EXPECT(picture(&v, 40, 8), "back to the shell", "keeps running", "answers are kept");
}

static void test_replay(void **state) {
    (void)state;
    view_state v;
    err e = {0};
    double wait_s;
    view_start(&v, STR(""), true);
    assert_true(view_replay_line(
        "{\"seconds\":2,\"rows_total\":10,\"rows_done\":5,\"statement\":\"SELECT 1\","
        "\"baselines\":{\"no cache\":1000,\"FIFO\":600},\"computed_tokens\":200,"
        "\"prefixes\":[{\"text\":\"p\",\"tokens\":3,\"fanout\":4,\"done\":1}]}",
        &v, &wait_s, &e));
    assert_true(wait_s == 2);
    assert_int_equal(v.now.rows_done, 5);
    assert_int_equal(v.now.nprefixes, 1);
    v.panel = PANEL_STRATEGIES;
    assert_non_null(strstr(picture(&v, 80, 24), "FIFO"));
    assert_false(view_replay_line("[1]", &v, &wait_s, &e));
    /* numbers out of range, and a control character */
    assert_true(view_replay_line("{\"seconds\":1e308,\"rows_done\":1e30,\"rows_total\":-1,"
                                 "\"baselines\":{\"FIFO\":-1},\"phase\":\"a\\u001bz\","
                                 "\"rows\":[{\"name\":\"scan\",\"depth\":2147483647}]}",
                                 &v, &wait_s, &e));
    assert_true(v.now.rows_done < UINT64_MAX && v.now.rows_total == 0);
    assert_non_null(strstr(picture(&v, 80, 24), "a␛z"));
    v.panel = PANEL_ROWS;
    assert_non_null(strstr(picture(&v, 80, 24), "scan"));
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
    x.baselines[0] = (exec_baseline){"no cache", 700};
    x.baselines[1] = (exec_baseline){"grouped", 100};
    for (int i = 0; i < 3; i++)
        view_update(&v, &x);
    assert_false(view_wants_baselines(&v));
    assert_true(v.baselines[0].tokens == 700);
    x.operator_number = 2;
    x.nbaselines = 0;
    view_update(&v, &x);
    assert_true(view_wants_baselines(&v));
    x.nbaselines = 2;
    view_update(&v, &x);
    assert_false(view_wants_baselines(&v));
    assert_true(v.baselines[0].tokens == 1400 && v.baselines[1].tokens == 200);
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
    assert_non_null(strstr(out.p, "90/200 rows"));
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
        {{.phase = "starting the model", .rows_total = 20}, "0/20 rows, starting the model"},
        {{.phase = "model", .rows_total = 20}, "0/20 rows"},
        {{.phase = "model", .rows_total = 20, .rows_done = 3}, "3/20 rows"},
        {{.phase = ""}, "0 rows"}};
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
    exec_summary s = {.seconds = 9.2, .held_seconds = 3, .llm.inputs = 200};
    s.llm.prompt_tokens = 196000;
    s.llm.computed_tokens = 31204;
    buf out = {0};
    shell_summary_line(&s, &out);
    assert_string_equal(out.p,
                        "200 rows asked, 6.2 s, hit rate 84 %, 31,204 of 196,000 tokens computed");
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
        cmocka_unit_test(test_panels),         cmocka_unit_test(test_replay),
        cmocka_unit_test(test_long_statement), cmocka_unit_test(test_baselines_while_running),
        cmocka_unit_test(test_progress),       cmocka_unit_test(test_progress_before_answers),
        cmocka_unit_test(test_summary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
