/*
 * Tests of the output modes with all types: wide characters, fitting, wrapping, truncation, quoting,
 * output for programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "format/format_int.h"

enum { ROWS = 3 };

static const char *const names[] = {"id", "title", "score", "ok"};
static const value_type types[] = {TYPE_INTEGER, TYPE_TEXT, TYPE_REAL, TYPE_BOOLEAN};

static void make_batch(arena *mem, batch *b) {
    static const char *const titles[ROWS] = {"東京物語", "a,\"b\"\nc", NULL};
    batch_init(b, mem, types, 4, ROWS);
    for (int i = 0; i < ROWS; i++) {
        column_set(&b->cols[0], mem, ROWS, i, value_int(i * 1000));
        column_set(&b->cols[1], mem, ROWS, i,
                   titles[i] ? value_text(str_from(titles[i])) : value_null());
        column_set(&b->cols[2], mem, ROWS, i, i == 1 ? value_null() : value_real(i + 0.5));
        column_set(&b->cols[3], mem, ROWS, i, value_bool(i == 0));
    }
    b->rows = ROWS;
}

static char *render(const char *mode, format_options options) {
    static buf out;
    arena *mem = arena_new();
    batch b;
    format f;
    make_batch(mem, &b);
    buf_clear(&out);
    format_begin(&f, format_mode_find(mode), &options, 4, names, types, &out);
    format_rows(&f, &b);
    format_end(&f);
    arena_free(mem);
    return out.p;
}

static void test_box(void **state) {
    (void)state;
    assert_string_equal(render("box", (format_options){.utf8 = true}),
                        "┌──────┬──────────┬───────┬───────┐\n"
                        "│   id │ title    │ score │ ok    │\n"
                        "├──────┼──────────┼───────┼───────┤\n"
                        "│    0 │ 東京物語 │   0.5 │ true  │\n"
                        "│ 1000 │ a,\"b\"␊c  │  NULL │ false │\n"
                        "│ 2000 │ NULL     │   2.5 │ false │\n"
                        "└──────┴──────────┴───────┴───────┘\n");
}

static void test_box_ascii(void **state) {
    (void)state;
    const char *text =
        render("box", (format_options){.max_rows = 1, .types_row = true, .null_text = "-"});
    assert_non_null(strstr(
        text, "+---------+----------+-------+---------+\n|      id | title    | score | ok      |\n"
              "| INTEGER | TEXT     |  REAL | BOOLEAN |\n"));
    assert_non_null(strstr(text, "... 2 more rows\n"));
}

enum { FILM_COLUMNS = 5, FILMS = 10 };

/* Short columns, a long text, one title much longer than the others, and a heading longer than its
 * cells. */
static char *render_films(int width, int ncols) {
    static const char *const heads[FILM_COLUMNS] = {"id", "title", "year", "review",
                                                    "LLM('Is {review} positive?', review)"};
    static const value_type kinds[FILM_COLUMNS] = {TYPE_INTEGER, TYPE_TEXT, TYPE_TEXT, TYPE_TEXT,
                                                   TYPE_TEXT};
    static const char *const titles[FILMS] = {
        "Ironmouth", "Tide",
        "The Lamp",  "Nine Crows on a Fence",
        "Salt",      "The Extraordinarily Long Voyage of the Good Ship Perseverance",
        "Ember",     "Kite",
        "Low Sun",   "Harbour"};
    static const char *const reviews[2] = {
        "The tide as the hero's ally is a wonderful idea, beautifully carried out.",
        "It looks expensive and feels cheap."};
    static buf out;
    arena *mem = arena_new();
    batch b;
    format f;
    batch_init(&b, mem, kinds, ncols, FILMS);
    for (int i = 0; i < FILMS; i++) {
        const char *cells[] = {titles[i], i % 2 ? "2021" : "1987", reviews[i % 2],
                               i % 2 ? "no" : "yes"};
        column_set(&b.cols[0], mem, FILMS, i, value_int(i + 1));
        for (int k = 1; k < ncols; k++)
            column_set(&b.cols[k], mem, FILMS, i, value_text(str_from(cells[k - 1])));
    }
    b.rows = FILMS;
    buf_clear(&out);
    format_options options = {.utf8 = true, .width = width, .wrap = WRAP_OFF};
    format_begin(&f, format_mode_find("box"), &options, ncols, heads, kinds, &out);
    format_rows(&f, &b);
    format_end(&f);
    arena_free(mem);
    return out.p;
}

static void test_room_goes_where_it_is_needed(void **state) {
    (void)state;
    static const struct {
        int width, ncols;
        const char *box;
    } known[] = {
        {80, FILM_COLUMNS,
         "┌────┬───────────────────────┬──────┬───────────────────────────────┬──────────┐\n"
         "│ id │ title                 │ year │ review                        │ LLM('Is… │\n"
         "├────┼───────────────────────┼──────┼───────────────────────────────┼──────────┤\n"
         "│  1 │ Ironmouth             │ 1987 │ The tide as the hero's ally … │ yes      │\n"
         "│  2 │ Tide                  │ 2021 │ It looks expensive and feels… │ no       │\n"
         "│  3 │ The Lamp              │ 1987 │ The tide as the hero's ally … │ yes      │\n"
         "│  4 │ Nine Crows on a Fence │ 2021 │ It looks expensive and feels… │ no       │\n"
         "│  5 │ Salt                  │ 1987 │ The tide as the hero's ally … │ yes      │\n"
         "│  6 │ The Extraordinarily … │ 2021 │ It looks expensive and feels… │ no       │\n"
         "│  7 │ Ember                 │ 1987 │ The tide as the hero's ally … │ yes      │\n"
         "│  8 │ Kite                  │ 2021 │ It looks expensive and feels… │ no       │\n"
         "│  9 │ Low Sun               │ 1987 │ The tide as the hero's ally … │ yes      │\n"
         "│ 10 │ Harbour               │ 2021 │ It looks expensive and feels… │ no       │\n"
         "└────┴───────────────────────┴──────┴───────────────────────────────┴──────────┘\n"},
        {60, FILM_COLUMNS,
         "┌────┬───────────────────────┬──────┬───────────┬──────────┐\n"
         "│ id │ title                 │ year │ review    │ LLM('Is… │\n"
         "├────┼───────────────────────┼──────┼───────────┼──────────┤\n"
         "│  1 │ Ironmouth             │ 1987 │ The tide… │ yes      │\n"
         "│  2 │ Tide                  │ 2021 │ It looks… │ no       │\n"
         "│  3 │ The Lamp              │ 1987 │ The tide… │ yes      │\n"
         "│  4 │ Nine Crows on a Fence │ 2021 │ It looks… │ no       │\n"
         "│  5 │ Salt                  │ 1987 │ The tide… │ yes      │\n"
         "│  6 │ The Extraordinarily … │ 2021 │ It looks… │ no       │\n"
         "│  7 │ Ember                 │ 1987 │ The tide… │ yes      │\n"
         "│  8 │ Kite                  │ 2021 │ It looks… │ no       │\n"
         "│  9 │ Low Sun               │ 1987 │ The tide… │ yes      │\n"
         "│ 10 │ Harbour               │ 2021 │ It looks… │ no       │\n"
         "└────┴───────────────────────┴──────┴───────────┴──────────┘\n"},
        {40, FILM_COLUMNS - 1,
         "┌────┬─────────────┬──────┬────────────┐\n"
         "│ id │ title       │ year │ review     │\n"
         "├────┼─────────────┼──────┼────────────┤\n"
         "│  1 │ Ironmouth   │ 1987 │ The tide … │\n"
         "│  2 │ Tide        │ 2021 │ It looks … │\n"
         "│  3 │ The Lamp    │ 1987 │ The tide … │\n"
         "│  4 │ Nine Crows… │ 2021 │ It looks … │\n"
         "│  5 │ Salt        │ 1987 │ The tide … │\n"
         "│  6 │ The Extrao… │ 2021 │ It looks … │\n"
         "│  7 │ Ember       │ 1987 │ The tide … │\n"
         "│  8 │ Kite        │ 2021 │ It looks … │\n"
         "│  9 │ Low Sun     │ 1987 │ The tide … │\n"
         "│ 10 │ Harbour     │ 2021 │ It looks … │\n"
         "└────┴─────────────┴──────┴────────────┘\n"},
    };
    for (size_t i = 0; i < BASE_COUNT(known); i++)
        assert_string_equal(render_films(known[i].width, known[i].ncols), known[i].box);
}

/* No line of a fitted box is wider than the terminal, wrapped or not. */
static void test_fits(void **state) {
    (void)state;
    enum { TITLE = 9, MOST = 60 }; /* TITLE: columns of "─ row 3 ─" */
    for (int i = 3 * TITLE; i < 3 * MOST; i++) {
        int width = i / 3;
        format_options options = {.utf8 = true, .width = width, .wrap = (format_wrapping)(i % 3)};
        for (str text = str_from(render("box", options)); text.n;)
            assert_true(utf8_width(str_split_next(&text, '\n')) <= width);
    }
    /* too narrow for a table: one value per line */
    assert_non_null(strstr(render("box", (format_options){.utf8 = true, .width = 24}), "─ row 3 "));
}

/* Control characters in column names, which may come from a file's header, are shown as in cells. */
static void test_names(void **state) {
    (void)state;
    static const char *const odd[] = {"a\nb", "\033[31mred"};
    static const value_type kinds[] = {TYPE_INTEGER, TYPE_TEXT};
    static const struct {
        const char *mode, *text;
        int width;
        bool no_headers;
        format_wrapping wrap;
    } known[] = {
        {"box",
         "┌─────┬──────────┐\n│ a␊b │ ␛[31mred │\n├─────┼──────────┤\n"
         "│   1 │ x        │\n└─────┴──────────┘\n",
         80, false, WRAP_AUTO},
        {"box", "─ row 1 ─\na␊b │ 1\n␛[… │ x\n", 9, false, WRAP_OFF},
        {"box", "─ row 1 ─\na␊b\n1\n␛[31mred\nx\n", 9, false, WRAP_AUTO},
        {"line", "     a␊b = 1\n␛[31mred = x\n", 0, false, WRAP_AUTO},
        {"markdown", "| a<br>b | \033[31mred |\n|-------:|----------|\n|      1 | x        |\n", 0,
         true, WRAP_AUTO},
    };
    arena *mem = arena_new();
    batch b;
    batch_init(&b, mem, kinds, 2, 1);
    column_set(&b.cols[0], mem, 1, 0, value_int(1));
    column_set(&b.cols[1], mem, 1, 0, value_text(STR("x")));
    b.rows = 1;
    for (size_t i = 0; i < BASE_COUNT(known); i++) {
        format_options options = {.utf8 = true,
                                  .width = known[i].width,
                                  .no_headers = known[i].no_headers,
                                  .wrap = known[i].wrap};
        buf out = {0};
        format f;
        format_begin(&f, format_mode_find(known[i].mode), &options, 2, odd, kinds, &out);
        format_rows(&f, &b);
        format_end(&f);
        assert_string_equal(out.p, known[i].text);
        buf_free(&out);
    }
    arena_free(mem);
}

static void test_machine(void **state) {
    (void)state;
    assert_string_equal(render("csv", (format_options){0}),
                        "id,title,score,ok\n0,東京物語,0.5,true\n"
                        "1000,\"a,\"\"b\"\"\nc\",,false\n2000,,2.5,false\n");
    assert_string_equal(
        render("json", (format_options){0}),
        "[{\"id\":0,\"title\":\"東京物語\",\"score\":0.5,\"ok\":true},\n"
        " {\"id\":1000,\"title\":\"a,\\\"b\\\"\\nc\",\"score\":null,\"ok\":false},\n"
        " {\"id\":2000,\"title\":null,\"score\":2.5,\"ok\":false}]\n");
    assert_string_equal(render("insert", (format_options){.insert_table = "m"}),
                        "INSERT INTO m VALUES (0, '東京物語', 0.5, TRUE);\n"
                        "INSERT INTO m VALUES (1000, 'a,\"b\"\nc', NULL, FALSE);\n"
                        "INSERT INTO m VALUES (2000, NULL, 2.5, FALSE);\n");
    assert_string_equal(render("markdown", (format_options){0}),
                        "|   id | title      | score | ok    |\n"
                        "|-----:|------------|------:|-------|\n"
                        "|    0 | 東京物語   |   0.5 | true  |\n"
                        "| 1000 | a,\"b\"<br>c |  NULL | false |\n"
                        "| 2000 | NULL       |   2.5 | false |\n");
    assert_string_equal(render("list", (format_options){.no_headers = true, .null_text = "∅"}),
                        "0|東京物語|0.5|true\n1000|a,\"b\"\nc|∅|false\n2000|∅|2.5|false\n");
    assert_non_null(
        strstr(render("html", (format_options){0}), "<td>a,&quot;b&quot;\nc</td><td></td>"));
    assert_non_null(strstr(render("line", (format_options){0}), "   id = 0\ntitle = 東京物語\n"));
}

typedef struct drained {
    buf *out, all;
    size_t most;
    int calls, stop_at;
} drained;

static bool drain(void *ctx) {
    drained *d = ctx;
    d->most = BASE_MAX(d->most, d->out->n);
    buf_append_str(&d->all, buf_str(d->out));
    buf_clear(d->out);
    return ++d->calls != d->stop_at;
}

/* Formats the same batch several times; returns all output, drained and remaining. */
static drained draw(const char *mode, int width, int batches, int stop_at, bool drains) {
    buf out = {0};
    drained d = {.out = &out, .stop_at = stop_at};
    format_options options = {.utf8 = true, .width = width};
    if (drains) {
        options.drain = drain;
        options.drain_ctx = &d;
    }
    arena *mem = arena_new();
    batch b;
    format f;
    make_batch(mem, &b);
    format_begin(&f, format_mode_find(mode), &options, 4, names, types, &out);
    for (int i = 0; i < batches; i++)
        format_rows(&f, &b);
    format_end(&f);
    buf_append_str(&d.all, buf_str(&out));
    buf_free(&out);
    arena_free(mem);
    return d;
}

/* Output is drained after each few rows, however many rows are kept, and drawing stops when drain
 * returns false. */
static void test_draining(void **state) {
    (void)state;
    static const struct {
        const char *mode;
        int width, lines; /* lines: rows, and further lines of their cells */
    } cases[] = {{"box", 0, ROWS}, {"box", 24, ROWS + 1}, {"markdown", 0, ROWS}};
    enum { BATCHES = 300, FEW_ROWS_BYTES = 1000 };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        const char *mode = cases[i].mode;
        int width = cases[i].width;
        drained whole = draw(mode, width, BATCHES, 0, false);
        drained parts = draw(mode, width, BATCHES, 0, true);
        drained stopped = draw(mode, width, BATCHES, 5, true);
        assert_string_equal(parts.all.p, whole.all.p);
        assert_int_equal(parts.calls, BATCHES * cases[i].lines);
        assert_in_range(parts.most, 1, FEW_ROWS_BYTES);
        assert_int_equal(stopped.calls, 5);
        assert_in_range(stopped.all.n, 1, whole.all.n / 10);
        buf_free(&whole.all);
        buf_free(&parts.all);
        buf_free(&stopped.all);
    }
}

/* ---- wrapping -------------------------------------------------------------------------------- */

/* Returns the text's lines, joined by |. */
static const char *wrapped(str text, int columns) {
    static buf out;
    buf_clear(&out);
    buf_append_c(&out, "");
    do {
        buf_append_str(&out, format_wrap(&text, columns));
        buf_append_c(&out, text.n ? "|" : "");
    } while (text.n);
    return out.p;
}

static void test_wrap(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int columns;
        const char *lines;
    } cases[] = {
        {"", 5, ""},
        {"one two  three", 7, "one two|three"},
        {"one two  three", 8, "one two|three"},
        {"one two", 3, "one|two"},
        {"a pneumonia b", 4, "a|pneu|moni|a b"}, /* a word wider than the line */
        {"abc", 1, "a|b|c"},
        {"  two blanks", 7, "  two|blanks"},
        {"            x", 4, "|x"},
        {"blanks at the end        ", 9, "blanks at|the end"},
        {"a\n\n b\n", 9, "a|| b"},
        {"aa\nbb cc", 4, "aa|bb|cc"},
        /* between wide characters, but no closing mark at a start and no opening mark at an end */
        {"東京物語", 4, "東京|物語"},
        {"東京物語", 5, "東京|物語"},
        {"東京物語。", 8, "東京物|語。"},
        {"東京「物語」", 6, "東京|「物|語」"},
        {"film 東京 (1953)", 8, "film 東|京|(1953)"},
        {"東京", 1, "東|京"}, /* the caller cuts them */
        {"東京　物語", 4, "東京|物語"},
        /* clusters stay whole: combining marks, families, skin tones, flags */
        {"e\u0301e\u0301e\u0301", 2, "e\u0301e\u0301|e\u0301"},
        {"e\u0301\u0302\u0303x", 1, "e\u0301\u0302\u0303|x"},
        {"\u0301", 1, "\u0301"},
        {"👨‍👩‍👧‍👦👨‍👩‍👧‍👦", 3,
         "👨‍👩‍👧‍👦|👨‍👩‍👧‍👦"},
        {"👍🏽👍🏽 ok", 4, "👍🏽👍🏽|ok"},
        {"🇯🇵🇫🇷", 2, "🇯🇵|🇫🇷"},
        {"zero\u200bwidth", 6, "zero|width"},
        {"no\u00a0break it", 8, "no\u00a0break|it"},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++)
        assert_string_equal(wrapped(str_from(cases[i].text), cases[i].columns), cases[i].lines);
}

/* On any bytes: each call takes some, no line is wider than it may be, only blanks and line feeds
 * are lost. */
static void test_wrap_any_bytes(void **state) {
    (void)state;
    static const char *const parts[] = {" ",  "a",      "word",     "\n",   "語",
                                        "。", "\u0301", "👍🏽", "\xff", "\xe6"};
    unsigned seed = 1;
    for (int round = 0; round < 3000; round++) {
        buf text = {0}, kept = {0}, lines = {0};
        for (int i = 0; i < round % 40; i++) {
            seed = seed * 1103515245u + 12345u;
            buf_append_c(&text, parts[(seed >> 16) % BASE_COUNT(parts)]);
        }
        int columns = 1 + round % 7;
        for (str rest = buf_str(&text); rest.n;) {
            size_t before = rest.n;
            str line = format_wrap(&rest, columns);
            assert_true(rest.n < before);
            int first = 0;
            size_t n = line.n ? utf8_cluster(line, &first) : 0;
            assert_true(utf8_width(line) <= columns || n == line.n);
            buf_append_str(&lines, line);
        }
        for (size_t i = 0; i < text.n; i++)
            if (text.p[i] != ' ' && text.p[i] != '\n')
                buf_append_char(&kept, text.p[i]);
        size_t n = 0;
        for (size_t i = 0; i < lines.n; i++)
            if (lines.p[i] != ' ')
                lines.p[n++] = lines.p[i];
        lines.n = n;
        assert_true(str_equal(buf_str(&lines), buf_str(&kept)));
        buf_free(&text);
        buf_free(&kept);
        buf_free(&lines);
    }
}

/* Formats rows of the same two texts. */
static const char *draw_texts(const char *mode, format_options options, const char *title,
                              const char *text, int rows) {
    static const char *const heads[] = {"title", "text"};
    static const value_type kinds[] = {TYPE_TEXT, TYPE_TEXT};
    static buf out;
    arena *mem = arena_new();
    batch b;
    format f;
    batch_init(&b, mem, kinds, 2, rows);
    for (int i = 0; i < rows; i++) {
        column_set(&b.cols[0], mem, rows, i, value_text(str_from(title)));
        column_set(&b.cols[1], mem, rows, i, value_text(str_from(text)));
    }
    b.rows = rows;
    buf_clear(&out);
    options.utf8 = true;
    format_begin(&f, format_mode_find(mode), &options, 2, heads, kinds, &out);
    format_rows(&f, &b);
    format_end(&f);
    arena_free(mem);
    return out.p;
}

static void test_box_wraps(void **state) {
    (void)state;
    format_options narrow = {.width = 25, .wrap = WRAP_ON}, any = {.wrap = WRAP_ON};
    assert_string_equal(draw_texts("box", narrow, "Tokyo Story", "東京物語 is a film\nby Ozu", 2),
                        "┌───────────┬───────────┐\n"
                        "│ title     │ text      │\n"
                        "├───────────┼───────────┤\n"
                        "│ Tokyo     │ 東京物語  │\n"
                        "│ Story     │ is a film │\n"
                        "│           │ by Ozu    │\n"
                        "├───────────┼───────────┤\n"
                        "│ Tokyo     │ 東京物語  │\n"
                        "│ Story     │ is a film │\n"
                        "│           │ by Ozu    │\n"
                        "└───────────┴───────────┘\n");
    /* What fits needs no rules; a line feed alone needs them. */
    assert_non_null(strstr(draw_texts("box", any, "a", "b", 2), "│ a     │ b    │\n│ a "));
    assert_non_null(
        strstr(draw_texts("box", any, "a", "b\nc", 2), "│ a     │ b    │\n│       │ c    │\n├"));
}

/* By default a wide column is cut in one line, a narrow one wrapped: with few rows in full, with
 * many in four lines. */
static void test_box_wraps_where_narrow(void **state) {
    (void)state;
    enum { LONG = 200 };
    char text[LONG + 1] = {0};
    memset(text, 'x', LONG);
    format_options wide = {.width = 60}, narrow = {.width = 24}, off = {.wrap = WRAP_OFF};
    assert_non_null(strstr(draw_texts("box", wide, "a", text, 2), "xxx… │\n│ a "));
    assert_null(strstr(draw_texts("box", narrow, "a", text, 2), "…"));
    const char *row =
        strstr(draw_texts("box", narrow, "a", text, 20), "│ a     │ xxxxxxxxxxxx │\n");
    assert_non_null(row);
    assert_non_null(strstr(row, "│       │ xxxxxxxxxxx… │\n├"));
    int lines = 0;
    for (const char *p = row; strncmp(p, "├", strlen("├")) != 0; p = strchr(p, '\n') + 1)
        lines++;
    assert_int_equal(lines, 4);
    off.width = 24;
    assert_non_null(strstr(draw_texts("box", off, "a", "x\ny\n", 2), "│ x␊y␊ │\n│ a "));
}

static void test_line_wraps(void **state) {
    (void)state;
    const char *text = "a synopsis of words\tand\n\ntabs";
    format_options wide = {.width = 30}, narrow = {.width = 20},
                   off = {.width = 20, .wrap = WRAP_OFF};
    assert_string_equal(draw_texts("line", wide, "x", text, 1), "title = x\n"
                                                                " text = a synopsis of words\n"
                                                                "        and\n"
                                                                "\n"
                                                                "        tabs\n");
    assert_string_equal(draw_texts("line", narrow, "x", text, 1), "title =\n"
                                                                  "    x\n"
                                                                  "text =\n"
                                                                  "    a synopsis of\n"
                                                                  "    words     and\n"
                                                                  "\n"
                                                                  "    tabs\n");
    assert_string_equal(draw_texts("line", off, "x", text, 1),
                        "title = x\n text = a synopsis of words\tand\n\ntabs\n");
}

/* A laid out statement has the tokens that it had, and fits where it can. */
static void test_sql(void **state) {
    (void)state;
    static const struct {
        const char *sql, *text;
        int columns;
    } cases[] = {
        {"CREATE TABLE t (a INTEGER, b TEXT)", "CREATE TABLE t (a INTEGER, b TEXT)", 40},
        {"CREATE TABLE t (a INTEGER, b TEXT)", "CREATE TABLE t (a INTEGER, b TEXT)", 0},
        {"CREATE TABLE t (a INTEGER, b TEXT)", "CREATE TABLE t (\n    a INTEGER,\n    b TEXT\n)",
         30},
        {"CREATE TABLE \"a b\" (a TEXT CHECK (a IN ('x, y', 'zz')), UNIQUE (a, b))",
         "CREATE TABLE \"a b\" (\n    a TEXT CHECK (a IN\n        ('x, y', 'zz')),\n"
         "    UNIQUE (a, b)\n)",
         28},
        {"CREATE TABLE t (a TEXT DEFAULT ('line\nfeed'), b TEXT)",
         "CREATE TABLE t (\n    a TEXT DEFAULT ('line\nfeed'),\n    b TEXT\n)", 30},
        {"CREATE VIEW v AS SELECT a,b, upper('a long literal') FROM t WHERE a = 1 ORDER BY a",
         "CREATE VIEW v AS\n    SELECT a,b,\n        upper('a long literal')\n    FROM t\n"
         "    WHERE a = 1\n    ORDER BY a",
         24},
        {"CREATE VIEW v AS SELECT a -- what it is\nFROM a_table_with_a_long_name",
         "CREATE VIEW v AS SELECT a -- what it is\nFROM a_table_with_a_long_name", 20},
        {"CREATE VIEW v AS SELECT a\n FROM t", "CREATE VIEW v AS SELECT a\n FROM t", 25},
        {"CREATE VIEW v AS SELECT a\n FROM t", "CREATE VIEW v AS\n    SELECT a\n    FROM t", 24},
        {"CREATE INDEX i ON t (a, b)", "CREATE INDEX i ON t\n    (a, b)", 20},
    };
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        buf out = {0};
        format_sql(&out, str_from(cases[i].sql), cases[i].columns);
        assert_string_equal(out.p, cases[i].text);
        str texts[] = {str_from(cases[i].sql), buf_str(&out)};
        size_t at[2] = {0, 0}, n[2] = {1, 1};
        while (n[0] > 0 || n[1] > 0) {
            for (int k = 0; k < 2; k++) {
                token_class class;
                while ((n[k] = sql_token(texts[k], at[k], &class)) > 0 && class == TOKEN_BLANK)
                    at[k] += n[k];
            }
            assert_true(
                str_equal((str){texts[0].p + at[0], n[0]}, (str){texts[1].p + at[1], n[1]}));
            at[0] += n[0];
            at[1] += n[1];
        }
        buf_free(&out);
    }
}

static void test_counts(void **state) {
    (void)state;
    static const struct {
        uint64_t n;
        const char *text;
    } cases[] = {{0, "0"}, {999, "999"}, {1000, "1,000"}, {1234567, "1,234,567"}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        buf out = {0};
        buf_append_count(&out, cases[i].n);
        assert_string_equal(out.p, cases[i].text);
        buf_free(&out);
    }
}

static void test_entry(void **state) {
    (void)state;
    buf out = {0};
    format_entry(&out, STR("psm"), 8, STR("how fields of prompts are ordered (off|fixed)"), 30);
    format_entry(&out, STR("longer than it"), 8, STR("one line"), 0);
    format_entry(&out, STR("x"), 8, STR("awordwiderthanthescreenhasroom for"), 30);
    format_entry(&out, STR("psm"), 20, STR("how fields of prompts are ordered"), 30);
    assert_string_equal(out.p, "psm     how fields of prompts\n"
                               "        are ordered\n"
                               "        (off|fixed)\n"
                               "longer than it  one line\n"
                               "x       awordwiderthanthescree\n"
                               "        nhasroom for\n"
                               "psm\n"
                               "    how fields of prompts are\n"
                               "    ordered\n");
    buf_free(&out);
}

static void test_plan(void **state) {
    (void)state;
    static const char tree[] = "Project a\n"
                               "├─ Filter 東京 = 'a rather long text'      rows≈24\n"
                               "│  └─ LLM\n"
                               "│     │  field order: synopsis, review\n"
                               "└─ averylongnamewithoutanyblankinit";
    buf out = {0};
    format_plan(&out, str_from(tree), 37, true);
    assert_string_equal(out.p, "Project a\n"
                               "├─ Filter 東京 = 'a rather long text'\n"
                               "│      rows≈24\n"
                               "│  └─ LLM\n"
                               "│     │  field order: synopsis,\n"
                               "│     │      review\n"
                               "└─ averylongnamewithoutanyblankinit\n");
    buf_clear(&out);
    format_plan(&out, STR("├─ Scan                       rows 24 (≈24)"), 36, true);
    assert_string_equal(out.p, "├─ Scan                rows 24 (≈24)\n");
    buf_clear(&out);
    format_plan(&out, STR("└─ averylongnamewithoutanyblankinit"), 30, true);
    assert_string_equal(out.p, "└─ averylongnamewithoutanyblan\n"
                               "       kinit\n");
    buf_clear(&out);
    format_plan(&out, str_from(tree), 0, false);
    assert_string_equal(out.p, "Project a\n"
                               "|- Filter 東京 = 'a rather long text'      rows~24\n"
                               "|  `- LLM\n"
                               "|     |  field order: synopsis, review\n"
                               "`- averylongnamewithoutanyblankinit\n");
    buf_free(&out);
}

static void test_prompts(void **state) {
    static const char text[] = "LLM#1: 2 distinct inputs\n"
                               "│ ⟦<s>⟧Is it ▏ good?\n"
                               "│\n"
                               "├ review: a long and▏ \033[1m dull one ▏\n"
                               "  answer:\n";
    buf out = {0};
    (void)state;
    format_prompts(&out, str_from(text), 0, true, false);
    assert_string_equal(out.p, "LLM#1: 2 distinct inputs\n"
                               "│ ⟦<s>⟧Is it ▏ good?\n"
                               "│\n"
                               "├ review: a long and▏ ␛[1m dull one ▏\n"
                               "  answer:\n");
    buf_clear(&out);
    format_prompts(&out, str_from(text), 23, true, false); /* the bar ends with the prefix */
    assert_string_equal(out.p, "LLM#1: 2 distinct\n"
                               "inputs\n"
                               "│ ⟦<s>⟧Is it ▏ good?\n"
                               "│\n"
                               "├ review: a long and▏\n"
                               "  ␛[1m dull one ▏\n"
                               "  answer:\n");
    buf_clear(&out);
    format_prompts(&out, str_from(text), 0, false, false);
    assert_string_equal(out.p, "LLM#1: 2 distinct inputs\n"
                               "| [[<s>]]Is it | good?\n"
                               "|\n"
                               "| review: a long and| ?[1m dull one |\n"
                               "  answer:\n");
    buf_clear(&out);
    format_prompts(&out, STR("│ ▏\n├ ⟦<s>⟧ab▏c\n"), 0, true, true);
    assert_string_equal(out.p, "\033[36m│ \033[0m\033[2m▏\033[0m\n"
                               "\033[36m├ \033[0m\033[1;34m⟦<s>⟧\033[0m\033[2mab▏\033[0mc\n");
    buf_free(&out);
}

static void test_tree(void **state) {
    static const char text[] = "  prompts  text\n"
                               "       24  ├─ Is it positive or negative?↵\n"
                               "24 prompts and no more, said once\n";
    buf out = {0};
    (void)state;
    format_tree(&out, str_from(text), 30, true);
    assert_string_equal(out.p, "  prompts  text\n"
                               "       24  ├─ Is it positive …\n"
                               "24 prompts and no more, said\n"
                               "once\n");
    buf_clear(&out);
    format_tree(&out, str_from(text), 0, false);
    assert_string_equal(out.p, "  prompts  text\n"
                               "       24  |- Is it positive or negative?\\n\n"
                               "24 prompts and no more, said once\n");
    buf_free(&out);
}

/* Any bytes are printed without control characters other than line breaks. */
static void test_prompts_of_any_bytes(void **state) {
    static const char *const pieces[] = {"│ ",          "├ ", "▏",    "⟦",    "⟧",
                                         "  ",          "\n", "\xe2", "\x1b", "\xc2\x9b",
                                         "a long word", " ",  "東",   "\xff"};
    uint64_t random = 1;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        buf text = {0}, out = {0};
        for (int i = 0; i < 30; i++) {
            random = hash_mix(random, 1);
            buf_append_c(&text, pieces[(random >> 33) % BASE_COUNT(pieces)]);
        }
        format_prompts(&out, buf_str(&text), round % 2 ? 24 : 0, round % 3 > 0, false);
        format_tree(&out, buf_str(&text), 10 + round % 30, round % 3 > 0);
        for (size_t i = 0; i < out.n; i++)
            assert_true((unsigned char)out.p[i] >= ' ' || out.p[i] == '\n');
        buf_free(&text);
        buf_free(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_box),
        cmocka_unit_test(test_box_ascii),
        cmocka_unit_test(test_room_goes_where_it_is_needed),
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_machine),
        cmocka_unit_test(test_draining),
        cmocka_unit_test(test_wrap),
        cmocka_unit_test(test_wrap_any_bytes),
        cmocka_unit_test(test_box_wraps),
        cmocka_unit_test(test_box_wraps_where_narrow),
        cmocka_unit_test(test_line_wraps),
        cmocka_unit_test(test_sql),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_entry),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_prompts_of_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
