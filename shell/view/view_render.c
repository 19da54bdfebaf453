/*
 * view_render.c - draws a view_state into an array of cells, without a terminal.
 *
 * Invariant: view_render is a pure function and writes every one of the w × h cells and no other.
 * On a small screen the least important panels are left out.
 */
#include <string.h>

#include "view_int.h"

enum {
    LABEL_COLUMNS = 11,
    OPERATOR_COLUMNS = 30,
    SMALL_W = 60,
    SMALL_H = 12,
    TINY_W = 40,
    TINY_H = 6
};

/* ---- the state ------------------------------------------------------------------------------- */

void view_start(view_state *v, str statement, bool utf8) {
    *v = (view_state){.utf8 = utf8};
    size_t n = 0;
    char line[sizeof v->statement + 4]; /* utf8_copy cuts it between two characters */
    bool blank = true;                  /* runs of blanks become one */
    for (size_t i = 0; i < statement.n && n < sizeof line; i++) {
        bool space = statement.p[i] == 0 || strchr(" \t\r\n", statement.p[i]) != NULL;
        if (!space || !blank)
            line[n++] = space ? ' ' : statement.p[i];
        blank = space;
    }
    utf8_copy(v->statement, sizeof v->statement, (str){line, n});
}

static void push_sample(view_state *v, float hit) {
    if (v->nhit == VIEW_SAMPLES) {
        memmove(v->hit, v->hit + 1, sizeof v->hit - sizeof v->hit[0]);
        v->nhit--;
    }
    v->hit[v->nhit++] = hit;
}

static void push_answer(view_state *v, const exec_progress *x) {
    const view_answer *last = &v->answers[0];
    if (x->last_answer[0] == 0 || (v->nanswers && !strcmp(last->answer, x->last_answer) &&
                                   !strcmp(last->input, x->last_input)))
        return;
    memmove(v->answers + 1, v->answers, sizeof v->answers - sizeof v->answers[0]);
    v->nanswers = BASE_MIN(v->nanswers + 1, VIEW_ANSWERS);
    snprintf(v->answers[0].answer, sizeof v->answers[0].answer, "%s", x->last_answer);
    snprintf(v->answers[0].input, sizeof v->answers[0].input, "%s", x->last_input);
}

void view_add_baseline(view_state *v, const char *name, double tokens) {
    int i = 0;
    while (i < v->nbaselines && strcmp(v->baselines[i].name, name) != 0)
        i++;
    if (i == VIEW_BASELINES)
        return;
    if (i == v->nbaselines) {
        v->nbaselines++;
        v->baselines[i].tokens = 0;
        snprintf(v->baselines[i].name, sizeof v->baselines[i].name, "%s", name);
    }
    v->baselines[i].tokens += tokens;
}

/* Baselines counted before the run (estimate_baselines) cover all operators: no more are needed. */
bool view_wants_baselines(const view_state *v) {
    bool have_all = v->nbaselines > 0 && v->counted_operator == 0;
    return v->panel == PANEL_STRATEGIES && !have_all &&
           v->counted_operator != v->now.operator_number;
}

static void take_baselines(view_state *v, const exec_progress *x) {
    if (x->nbaselines == 0 || x->operator_number == v->counted_operator)
        return;
    v->counted_operator = x->operator_number;
    for (int i = 0; i < x->nbaselines; i++)
        view_add_baseline(v, x->baselines[i].name, (double)x->baselines[i].computed_tokens);
}

void view_update(view_state *v, const exec_progress *x) {
    v->now = *x;
    push_answer(v, x);
    take_baselines(v, x);
    /* Answers arrive in groups, one per pass of the engine: a single interval is too noisy. */
    if (!rates_update(&v->rates, x, x->seconds, 0.5, 0.2))
        return;
    const llm_figures *a = &v->mark, *b = &x->llm;
    uint64_t seen_before = a->reused_memory + a->reused_disk,
             seen = b->reused_memory + b->reused_disk;
    bool grew = seen >= seen_before && b->computed_tokens >= a->computed_tokens;
    double fresh = grew ? (double)(b->computed_tokens - a->computed_tokens) : 0;
    double reused = grew ? (double)(seen - seen_before) : 0;
    if (fresh + reused > 0) {
        v->hit_now = reused / (fresh + reused);
        push_sample(v, (float)v->hit_now);
    }
    v->mark = x->llm;
}

/* ---- drawing --------------------------------------------------------------------------------- */

typedef struct canvas {
    const view_state *v;
    view_cell *cells;
    int w, h; /* size of the screen in columns and rows */
    int row;  /* the next row to draw */
} canvas;

static void put_cell(canvas *c, int x, int y, str grapheme, view_attr attr) {
    view_cell *cell = &c->cells[y * c->w + x];
    size_t n = BASE_MIN(grapheme.n, sizeof cell->text - 1);
    memcpy(cell->text, grapheme.p, n);
    cell->text[n] = 0;
    cell->attr = (uint8_t)attr;
}

/* Writes text from column x on, cut at the right edge. Returns the column after the text. */
static int put(canvas *c, int x, int y, view_attr attr, const char *text) {
    if (y < 0 || y >= c->h)
        return x;
    for (str s = str_from(text); s.n && x < c->w;) {
        size_t n = utf8_fit(s, 1);
        int width = 1;
        if (n == 0) {
            n = utf8_fit(s, 2);
            width = 2;
        }
        if (n == 0 || x + width > c->w)
            break;
        put_cell(c, x, y, (str){s.p, n}, attr);
        if (width == 2)
            put_cell(c, x + 1, y, (str){"", 0}, attr);
        x += width;
        s = (str){s.p + n, s.n - n};
    }
    return x;
}

static int put_buf(canvas *c, int x, view_attr attr, buf *text) {
    x = put(c, x, c->row, attr, text->p ? text->p : "");
    buf_free(text);
    return x;
}

/* Writes text from outside the program, such as names, with control characters made visible. */
static int put_visible(canvas *c, int x, view_attr attr, const char *text) {
    buf shown = {0};
    format_visible(&shown, str_from(text), c->v->utf8);
    return put_buf(c, x, attr, &shown);
}

static void label(canvas *c, const char *text) {
    put_visible(c, 1, VIEW_DIM, text);
}

/* Draws a bar of `columns`, filled to the fraction `part`. In UTF-8 the steps are 1/8 column. */
static int put_bar(canvas *c, int x, int columns, double part, view_attr attr) {
    int steps = (int)(BASE_MIN(BASE_MAX(part, 0.0), 1.0) * columns * 8 + 0.5);
    for (int i = 0; i < columns; i++)
        put(c, x + i, c->row, attr, progress_bar(steps - 8 * i, c->v->utf8));
    return x + columns;
}

/* Returns the width of a bar that `text` columns of text follow: a third of the screen, less on a
 * narrow screen. */
static int bar_columns(const canvas *c, int text) {
    return BASE_MIN(c->w / 3, BASE_MAX(c->w - LABEL_COLUMNS - 1 - text, 8));
}

/* Writes a count, right-aligned in columns x to x + 9. */
static void put_count(canvas *c, int x, uint64_t n) {
    enum { COUNT_COLUMNS = 10 };
    buf text = {0};
    buf_append_count(&text, n);
    put_buf(c, x + COUNT_COLUMNS - BASE_MIN((int)text.n, (int)COUNT_COLUMNS), VIEW_PLAIN, &text);
}

static void clock_text(buf *out, double seconds) {
    long s = (long)seconds;
    if (s >= 3600)
        buf_printf(out, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        buf_printf(out, "%ld:%02ld", s / 60, s % 60);
}

static void draw_title(canvas *c) {
    const exec_progress *x = &c->v->now;
    for (int i = 0; i < c->w; i++)
        put_cell(c, i, c->row, STR(" "), VIEW_TITLE);
    buf text = {0}, time = {0};
    buf_append_c(&text, " kvasir");
    if (x->operators)
        buf_printf(&text, "  LLM %d of %d", x->operator_number, x->operators);
    buf_append_c(&text, "  ");
    format_visible(&text, str_from(c->v->finished ? "done" : x->phase), c->v->utf8);
    clock_text(&time, x->seconds);
    buf_append_char(&time, ' ');
    put_buf(c, 0, VIEW_TITLE, &text);
    put_buf(c, BASE_MAX(c->w - utf8_width(buf_str(&time)), 0), VIEW_TITLE, &time);
    c->row++;
}

static void draw_statement(canvas *c) {
    put_visible(c, 1, VIEW_DIM, c->v->statement);
    c->row++;
}

static void append_rows(buf *out, const exec_progress *x) {
    buf_append_count(out, x->rows_done);
    buf_append_c(out, " of ");
    buf_append_count(out, x->rows_total);
}

static void draw_rows(canvas *c) {
    const exec_progress *x = &c->v->now;
    buf text = {0};
    label(c, progress_unit(x));
    double part = x->rows_total ? (double)x->rows_done / (double)x->rows_total : 0;
    int at = put_bar(c, LABEL_COLUMNS, bar_columns(c, 30), part, VIEW_GOOD) + 1;
    append_rows(&text, x);
    buf_printf(&text, "  %.1f/s", c->v->rates.rows);
    if (c->v->rates.rows > 0 && x->rows_total > x->rows_done) {
        buf_append_c(&text, "  ETA ");
        progress_duration(&text, (double)(x->rows_total - x->rows_done) / c->v->rates.rows);
    }
    if (x->llm.answers_stored)
        buf_printf(&text, "  %llu known", (unsigned long long)x->llm.answers_stored);
    put_buf(c, at, VIEW_PLAIN, &text);
    c->row++;
}

/* Returns a block that fills the fraction `part` of a row's height. */
static const char *step(bool utf8, double part) {
    static const char *const steps[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const ascii[] = {"_", "_", ".", ".", "-", "-", "=", "#"};
    int k = BASE_MIN(BASE_MAX((int)(part * 8), 0), 7);
    return utf8 ? steps[k] : ascii[k];
}

static void draw_spark(canvas *c, int x, int columns) {
    const view_state *v = c->v;
    for (int i = BASE_MAX(v->nhit - columns, 0); i < v->nhit; i++)
        put(c, x++, c->row, VIEW_GOOD, step(v->utf8, v->hit[i]));
}

static void draw_hit(canvas *c) {
    const view_state *v = c->v;
    buf text = {0};
    label(c, WORDS_HIT_RATE);
    buf_printf(&text, "now %3.0f %%  average %3.0f %%  ", 100 * v->hit_now,
               100 * progress_hit_rate(&v->now.llm));
    int at = put_buf(c, LABEL_COLUMNS, VIEW_BOLD, &text);
    draw_spark(c, at, c->w - at - 1);
    c->row++;
}

/* Draws one bar that shows where prompt tokens came from: KV in memory, KV on disk, stored answers
 * (whose prompts were never sent), computed. */
static void draw_split(canvas *c) {
    const exec_progress *x = &c->v->now;
    const struct {
        const char *name;
        uint64_t tokens;
        view_attr attr;
        bool always;
    } parts[] = {{"memory", x->llm.reused_memory, VIEW_GOOD, true},
                 {"disk", x->llm.reused_disk, VIEW_DISK, true},
                 {"answers", x->llm.stored_tokens, VIEW_KNOWN, false},
                 {WORDS_COMPUTED, x->llm.computed_tokens, VIEW_WORK, true}};
    enum { TEXT_COLUMNS = 52 };
    double all = 0, before = 0;
    int columns = bar_columns(c, TEXT_COLUMNS);
    int at = LABEL_COLUMNS + columns + 1;
    for (size_t i = 0; i < BASE_COUNT(parts); i++)
        all += (double)parts[i].tokens;
    label(c, "tokens");
    for (size_t i = 0; i < BASE_COUNT(parts); i++) {
        double part = all > 0 ? (double)parts[i].tokens / all : 0;
        int from = (int)(before * columns + 0.5), to = (int)((before + part) * columns + 0.5);
        put_bar(c, LABEL_COLUMNS + from, to - from, 1, parts[i].attr);
        before += part;
        if (!parts[i].always && parts[i].tokens == 0)
            continue;
        buf text = {0};
        buf_printf(&text, "%s %.0f %%", parts[i].name, 100 * part);
        at = put_buf(c, at, parts[i].attr, &text) + 2;
    }
    c->row++;
}

static void draw_tokens(canvas *c) {
    const llm_figures *m = &c->v->now.llm;
    const struct {
        const char *name;
        uint64_t n;
    } parts[] = {
        {"sent", m->prompt_tokens},
        {WORDS_COMPUTED, m->computed_tokens},
        {"saved", m->reused_memory + m->reused_disk},
        {"output", m->output_tokens},
    };
    buf text = {0};
    buf_append_count(&text, (uint64_t)c->v->rates.tokens);
    buf_append_c(&text, " tok/s");
    int x = put_buf(c, LABEL_COLUMNS, VIEW_BOLD, &text) + 2;
    for (size_t i = 0; i < BASE_COUNT(parts); i++) {
        buf_printf(&text, "%s ", parts[i].name);
        x = put_buf(c, x, VIEW_DIM, &text);
        buf_append_count(&text, parts[i].n);
        x = put_buf(c, x, VIEW_PLAIN, &text) + 2;
    }
    c->row++;
}

/* Writes a line such as "KV memory ███ 34 MB of 1.0 GB". */
static int put_budget(canvas *c, const char *name, uint64_t used, uint64_t budget) {
    buf text = {0};
    label(c, name);
    int at = put_bar(c, LABEL_COLUMNS, bar_columns(c, 30),
                     budget > 0 ? (double)used / (double)budget : 0, VIEW_DISK);
    buf_append_bytes(&text, used);
    buf_append_c(&text, " of ");
    buf_append_bytes(&text, budget);
    return put_buf(c, at + 1, VIEW_PLAIN, &text);
}

static void draw_memory(canvas *c) {
    const exec_progress *x = &c->v->now;
    const llm_figures *m = &x->llm;
    buf text = {0};
    int at = put_budget(c, "KV memory", x->memory.kv_bytes, x->memory.kv_budget_bytes);
    buf_printf(&text, x->memory.live_sequences == 1 ? "  %d sequence" : "  %d sequences",
               x->memory.live_sequences);
    if (m->evicted_blocks)
        buf_printf(&text, "  %llu blocks evicted", (unsigned long long)m->evicted_blocks);
    put_buf(c, at, VIEW_PLAIN, &text);
    c->row++;
    if (x->disk_budget_bytes == 0)
        return;
    put_budget(c, "KV disk", x->disk_bytes, x->disk_budget_bytes);
    c->row++;
}

static void draw_order(canvas *c) {
    if (c->v->now.field_order[0] == 0)
        return;
    label(c, "fields");
    put_visible(c, LABEL_COLUMNS, VIEW_PLAIN, c->v->now.field_order);
    c->row++;
}

/* Draws the latest prompts in the order they ran, one per column. The height is the share of the
 * prompt's tokens that was reused. */
static void draw_strip(canvas *c) {
    const exec_progress *x = &c->v->now;
    int columns = BASE_MIN(c->w - LABEL_COLUMNS - 1, x->nshared);
    if (x->nshared == 0)
        return;
    label(c, "order");
    for (int i = 0; i < columns; i++) {
        int percent = x->shared[x->nshared - columns + i];
        put(c, LABEL_COLUMNS + i, c->row, percent < 50 ? VIEW_WORK : VIEW_GOOD,
            step(c->v->utf8, percent / 100.0));
    }
    c->row++;
}

static void draw_prefixes(canvas *c, int rows, int from) {
    const exec_progress *x = &c->v->now;
    if (x->nprefixes == 0 || rows < 2)
        return;
    put(c, 1, c->row++, VIEW_BOLD, "widest shared prefixes");
    for (int i = from; i < x->nprefixes && i - from < rows - 1; i++, c->row++) {
        const exec_prefix *p = &x->prefixes[i];
        buf text = {0};
        buf_printf(&text, "%5d x %4d tok ", p->fanout, p->tokens);
        int at = put_buf(c, 1, VIEW_PLAIN, &text);
        at = put_bar(c, at, 8, p->fanout ? (double)p->done / p->fanout : 0, VIEW_GOOD) + 1;
        put_visible(c, at, VIEW_DIM, p->text);
    }
}

static void draw_operators(canvas *c, int rows, int from) {
    const exec_progress *x = &c->v->now;
    if (x->noperators == 0 || rows < 2)
        return;
    put(c, 1, c->row, VIEW_BOLD, "operators");
    put(c, OPERATOR_COLUMNS - 2, c->row, VIEW_DIM, "rows in");
    put(c, OPERATOR_COLUMNS + 15, c->row++, VIEW_DIM, "out");
    for (int i = from; i < x->noperators && i - from < rows - 1; i++, c->row++) {
        const exec_operator *o = &x->operator_rows[i];
        int indent = BASE_MIN(2 * o->depth, OPERATOR_COLUMNS / 2);
        put_visible(c, 1 + indent, o->model ? VIEW_GOOD : VIEW_PLAIN, o->name);
        if (!o->source)
            put_count(c, OPERATOR_COLUMNS, o->rows_in);
        put_count(c, OPERATOR_COLUMNS + 13, o->rows_out);
    }
}

static void draw_answers(canvas *c, int rows, int from) {
    const view_state *v = c->v;
    if (v->nanswers == 0 || rows < 2)
        return;
    put(c, 1, c->row++, VIEW_BOLD, "last answers");
    for (int i = from; i < v->nanswers && i - from < rows - 1; i++, c->row++) {
        int x = put_visible(c, 1, VIEW_PLAIN, v->answers[i].answer);
        put_visible(c, x + 2, VIEW_DIM, v->answers[i].input);
    }
}

static void draw_keys(canvas *c, int row) {
    static const struct {
        const char *key, *brief, *text;
        int panel; /* -1: none */
    } keys[] = {{"q", "shell", "back to the shell", -1},
                {"c", "cancel, keep", "cancel, keep answers", -1},
                {"p", "pause", "pause", -1},
                {"?", "help", "help", -1},
                {"1", "run", "run", PANEL_RUN},
                {"2", "compare", "compare", PANEL_STRATEGIES},
                {"3", "prefixes", "prefixes", PANEL_PREFIXES},
                {"4", "rows", "rows, answers", PANEL_ROWS}};
    enum { WIDE = 112 };
    int x = 1;
    for (size_t i = 0; i < BASE_COUNT(keys); i++) {
        bool here = keys[i].panel == (int)c->v->panel;
        const char *text = c->w < WIDE ? keys[i].brief : keys[i].text;
        if (*keys[i].key == 'p' && c->v->now.paused)
            text = "resume";
        if (x + 2 + (int)strlen(text) > c->w)
            break;
        x = put(c, x, row, VIEW_TITLE, keys[i].key);
        x = put(c, x + 1, row, here ? VIEW_BOLD : VIEW_DIM, text) + 2;
    }
}

/* Draws the tokens computed by this run and by other strategies for the same statement. */
static void draw_baselines(canvas *c, int last_row) {
    const view_state *v = c->v;
    view_baseline all[VIEW_BASELINES + 2];
    int n = 0;
    double most = 1;
    for (int i = 0; i < v->nbaselines; i++)
        all[n++] = v->baselines[i];
    const llm_figures *m = &v->now.llm;
    /* Without reuse of KV, all prompt tokens that were sent so far would have been computed. */
    if (n == 0)
        all[n++] = (view_baseline){
            "no cache", (double)(m->reused_memory + m->reused_disk + m->computed_tokens)};
    all[n++] = (view_baseline){"this run", (double)m->computed_tokens};
    for (int i = 0; i < n; i++)
        most = BASE_MAX(most, all[i].tokens);
    put(c, 1, c->row++, VIEW_BOLD, WORDS_PROMPT " " WORDS_COMPUTED ", by strategy");
    for (int i = 0; i < n && c->row < last_row; i++, c->row++) {
        buf text = {0};
        label(c, all[i].name);
        int at = put_bar(c, LABEL_COLUMNS + 1, BASE_MAX(c->w / 2, 10), all[i].tokens / most,
                         i == n - 1 ? VIEW_GOOD : VIEW_WORK);
        buf_append_count(&text, (uint64_t)all[i].tokens);
        if (i == n - 1 && !v->finished) {
            /* Baselines are for all rows, the figure of this run is for the rows so far. */
            buf_append_c(&text, "  so far: ");
            append_rows(&text, &v->now);
        } else if (i == n - 1 && all[i].tokens > 0) {
            buf_printf(&text, "  %.1f x less than %s", all[0].tokens / all[i].tokens, all[0].name);
        }
        put_buf(c, at + 1, VIEW_PLAIN, &text);
    }
    if (v->nbaselines == 0 && !v->finished && c->row + 1 < last_row)
        put(c, 1, c->row + 1, VIEW_DIM, "counting what FIFO, fixed and grouped would compute");
}

/* Writes text from column x, wrapped at blanks, and moves to the row after it. */
static void put_wrapped(canvas *c, int x, int last_row, view_attr attr, const char *text) {
    for (str left = str_from(text); left.n && c->row < last_row; c->row++) {
        str line = format_wrap(&left, BASE_MAX(c->w - x, 1));
        buf shown = {0};
        buf_append_str(&shown, line);
        put_buf(c, x, attr, &shown);
    }
}

static const view_help_line help_lines[] = {
    {"q", "back to the shell; the statement keeps running"},
    {"c", "cancel; answers are kept (not with SET cache = off)"},
    {"p", "pause or resume the statement"},
    {"1 2 3 4", "the run, other strategies, shared prefixes, operators and answers"},
    {"arrows", "left, right: switch panels; up, down: scroll"},
    {"rows", "distinct inputs answered; known: stored by an earlier run"},
    {WORDS_HIT_RATE, "share of the prompt tokens whose KV was reused"},
    {"tokens", "reused from memory or disk, in stored answers, or computed"},
    {"KV", "attention keys and values held in memory and on disk, and the limits"},
    {"fields", "the order of the fields in the prompts"},
    {"order", "latest prompts; the higher, the more of a prompt was reused"},
    {"prefixes", "prompts x tokens, prompts answered, the end of the prefix"},
};

const view_help_line *view_help(size_t *count) {
    *count = BASE_COUNT(help_lines);
    return help_lines;
}

static void draw_help(canvas *c, int last_row) {
    for (size_t i = 0; i < BASE_COUNT(help_lines) && c->row < last_row; i++) {
        label(c, help_lines[i].name);
        put_wrapped(c, LABEL_COLUMNS, last_row, VIEW_PLAIN, help_lines[i].text);
    }
}

/* Draws the only line that a tiny screen shows. */
static void draw_one_line(canvas *c) {
    const exec_progress *x = &c->v->now;
    buf text = {0};
    buf_append_count(&text, x->rows_done);
    buf_append_char(&text, '/');
    buf_append_count(&text, x->rows_total);
    buf_printf(&text, " %s  hit %.0f %%", progress_unit(x), 100 * progress_hit_rate(&x->llm));
    put_buf(c, 0, VIEW_PLAIN, &text);
}

/* Draws the operators, in at most half of the rows, and below them the answers. The arrow keys
 * scroll the answers. */
static void draw_rows_panel(canvas *c, int last_row) {
    int most = BASE_MAX(c->v->nanswers - 1, 0);
    draw_operators(c, BASE_MIN(c->v->now.noperators + 1, (last_row - c->row) / 2 + 1), 0);
    c->row += c->v->now.noperators > 0 && last_row - c->row > 3;
    draw_answers(c, last_row - c->row, BASE_MIN(c->v->scroll, most));
}

/* Distributes `rows` over n lists, one row at a time to each list i that has fewer than wants[i]
 * rows. gets[i]: the number of rows of list i. */
static void share_rows(int rows, const int *wants, int *gets, int n) {
    bool left = true;
    memset(gets, 0, sizeof *gets * (size_t)n);
    while (rows > 0 && left) {
        left = false;
        for (int i = 0; i < n && rows > 0; i++) {
            if (gets[i] == wants[i])
                continue;
            gets[i]++;
            rows--;
            left = true;
        }
    }
}

static void draw_lists(canvas *c, int last_row) {
    static void (*const draw[])(canvas *, int, int) = {draw_prefixes, draw_operators, draw_answers};
    enum { LISTS = BASE_COUNT(draw), ROOMY = 30 };
    const exec_progress *x = &c->v->now;
    const int wants[LISTS] = {x->nprefixes + (x->nprefixes > 0),
                              x->noperators + (x->noperators > 0),
                              c->v->nanswers + (c->v->nanswers > 0)};
    int gets[LISTS], blanks = 0;
    bool roomy = c->h >= ROOMY;
    for (int i = 0; i < LISTS; i++)
        blanks += roomy && wants[i] > 0;
    share_rows(last_row - c->row - blanks, wants, gets, LISTS);
    for (int i = 0; i < LISTS; i++) {
        c->row += roomy && gets[i] > 1;
        draw[i](c, gets[i], 0);
    }
}

static void draw_run(canvas *c, int last_row, bool small, bool full) {
    draw_rows(c);
    draw_hit(c);
    draw_split(c);
    if (small)
        return;
    draw_tokens(c);
    draw_memory(c);
    draw_order(c);
    draw_strip(c);
    if (full)
        draw_lists(c, last_row);
    else
        draw_answers(c, last_row - c->row, 0);
}

void view_render(const view_state *v, int w, int h, view_cell *cells) {
    canvas c = {.v = v, .cells = cells, .w = w, .h = h};
    if (w <= 0 || h <= 0)
        return;
    for (int i = 0; i < w * h; i++)
        cells[i] = (view_cell){" ", VIEW_PLAIN};
    if (h < TINY_H || w < TINY_W) {
        draw_one_line(&c);
        return;
    }
    bool small = h < SMALL_H || w < SMALL_W, full = h >= 24 && w >= 80;
    int last_row = h - 1;
    draw_title(&c);
    draw_keys(&c, last_row);
    if (!small) {
        draw_statement(&c);
        c.row += full;
    }
    if (v->help)
        draw_help(&c, last_row);
    else if (v->panel == PANEL_STRATEGIES)
        draw_baselines(&c, last_row);
    else if (v->panel == PANEL_PREFIXES)
        draw_prefixes(&c, last_row - c.row, BASE_MIN(v->scroll, BASE_MAX(v->now.nprefixes - 1, 0)));
    else if (v->panel == PANEL_ROWS)
        draw_rows_panel(&c, last_row);
    else
        draw_run(&c, last_row, small, full);
}
