/*
 * view_render.c - draws a view_state into an array of cells, without a terminal.
 *
 * Invariant: view_render is a pure function and writes every one of the w × h cells and no other.
 * On a small screen the least important panels are left out.
 */
#include <string.h>

#include "canvas_int.h"

enum { OPERATOR_COLUMNS = 30, OPERATOR_NARROW = 16, SMALL_H = 12, TINY_W = 40, TINY_H = 6 };

/* ---- lines of a run --------------------------------------------------------------------------- */

/* Returns the width of a bar that `text` columns of text follow: a third of the screen, less on a
 * narrow screen. */
static int bar_columns(const canvas *c, int text) {
    return BASE_MIN(c->w / 3, BASE_MAX(c->w - LABEL_COLUMNS - 1 - text, 8));
}

static void draw_title(canvas *c) {
    const exec_progress *x = &c->v->now;
    for (int i = 0; i < c->w; i++)
        canvas_cell(c, i, c->row, STR(" "), VIEW_TITLE);
    buf text = {0}, time = {0};
    buf_append_c(&text, " kvasir");
    if (x->operators)
        buf_printf(&text, "  LLM %d of %d", x->operator_number, x->operators);
    buf_append_c(&text, "  ");
    format_visible(&text, str_from(x->phase), c->v->utf8);
    if (c->v->finished)
        progress_duration(&time, x->seconds);
    else
        view_append_clock(&time, x->seconds);
    buf_append_char(&time, ' ');
    canvas_put_buf(c, 0, VIEW_TITLE, &text);
    canvas_put_buf(c, BASE_MAX(c->w - utf8_width(buf_str(&time)), 0), VIEW_TITLE, &time);
    c->row++;
}

static void draw_statement(canvas *c) {
    canvas_put_visible(c, 1, VIEW_DIM, c->v->statement);
    c->row++;
}

/* Returns the answers per second: of the last moments, or of the whole run if it is finished. */
static double answer_rate(const view_state *v) {
    const exec_progress *x = &v->now;
    uint64_t known = BASE_MIN(x->llm.answers_stored, x->rows_done);
    if (!v->finished)
        return v->rates.rows;
    return (double)(x->rows_done - known) / BASE_MAX(x->llm_seconds, 1e-3);
}

static void draw_inputs(canvas *c) {
    const exec_progress *x = &c->v->now;
    double rate = answer_rate(c->v);
    buf text = {0};
    canvas_label(c, WORDS_INPUTS_SHORT);
    double part = x->rows_total ? (double)x->rows_done / (double)x->rows_total : 0;
    int at = canvas_bar(c, LABEL_COLUMNS, bar_columns(c, 30), part, VIEW_GOOD) + 1;
    view_append_inputs(&text, x);
    if (rate > 0) {
        buf_append_c(&text, "  ");
        if (rate < 100)
            buf_printf(&text, "%.1f", rate);
        else
            buf_append_count(&text, (uint64_t)rate);
        buf_append_c(&text, "/s");
    }
    if (!c->v->finished && rate > 0 && x->rows_total > x->rows_done) {
        buf_append_c(&text, "  ETA ");
        progress_duration(&text, (double)(x->rows_total - x->rows_done) / rate);
    }
    if (x->llm.answers_stored) {
        buf_append_c(&text, "  ");
        buf_append_count(&text, x->llm.answers_stored);
        buf_append_c(&text, " known");
    }
    canvas_put_buf(c, at, VIEW_PLAIN, &text);
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
        canvas_put(c, x++, c->row, VIEW_GOOD, step(v->utf8, v->hit[i]));
}

static void draw_hit(canvas *c) {
    const view_state *v = c->v;
    buf text = {0};
    canvas_label(c, WORDS_HIT_RATE);
    double average = 100 * progress_hit_rate(&v->now.llm);
    if (v->finished && v->now.llm.prompt_tokens == 0)
        buf_append_c(&text, "no prompt was sent");
    else if (v->finished)
        buf_printf(&text, "%.0f %%  ", average);
    else
        buf_printf(&text, "now %3.0f %%  average %3.0f %%  ", 100 * v->hit_now, average);
    int at = canvas_put_buf(c, LABEL_COLUMNS, VIEW_BOLD, &text);
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
                 {"known", x->llm.stored_tokens, VIEW_KNOWN, false},
                 {WORDS_COMPUTED, x->llm.computed_tokens, VIEW_WORK, true}};
    enum { TEXT_COLUMNS = 52 };
    double all = 0, before = 0;
    int columns = bar_columns(c, TEXT_COLUMNS);
    int at = LABEL_COLUMNS + columns + 1;
    for (size_t i = 0; i < BASE_COUNT(parts); i++)
        all += (double)parts[i].tokens;
    canvas_label(c, "tokens");
    for (size_t i = 0; i < BASE_COUNT(parts); i++) {
        double part = all > 0 ? (double)parts[i].tokens / all : 0;
        int from = (int)(before * columns + 0.5), to = (int)((before + part) * columns + 0.5);
        canvas_bar(c, LABEL_COLUMNS + from, to - from, 1, parts[i].attr);
        before += part;
        if (!parts[i].always && parts[i].tokens == 0)
            continue;
        buf text = {0};
        buf_printf(&text, "%s %.0f %%", parts[i].name, 100 * part);
        at = canvas_put_buf(c, at, parts[i].attr, &text) + 2;
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
    double all = (double)(m->computed_tokens + m->output_tokens),
           average = all / BASE_MAX(c->v->now.seconds, 1e-3);
    buf_append_count(&text, (uint64_t)(c->v->finished ? average : c->v->rates.tokens));
    buf_append_c(&text, " tok/s");
    int x = canvas_put_buf(c, LABEL_COLUMNS, VIEW_BOLD, &text) + 2;
    for (size_t i = 0; i < BASE_COUNT(parts); i++) {
        buf_printf(&text, "%s ", parts[i].name);
        x = canvas_put_buf(c, x, VIEW_DIM, &text);
        buf_append_count(&text, parts[i].n);
        x = canvas_put_buf(c, x, VIEW_PLAIN, &text) + 2;
    }
    c->row++;
}

/* Writes a line such as "KV memory ███ 34 MB of 1.0 GB". */
static int put_budget(canvas *c, const char *name, uint64_t used, uint64_t budget) {
    buf text = {0};
    canvas_label(c, name);
    int at = canvas_bar(c, LABEL_COLUMNS, bar_columns(c, 30),
                        budget > 0 ? (double)used / (double)budget : 0, VIEW_DISK);
    buf_append_bytes(&text, used);
    buf_append_c(&text, " of ");
    buf_append_bytes(&text, budget);
    return canvas_put_buf(c, at + 1, VIEW_PLAIN, &text);
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
    canvas_put_buf(c, at, VIEW_PLAIN, &text);
    c->row++;
    if (x->disk_budget_bytes == 0)
        return;
    put_budget(c, "KV disk", x->disk_bytes, x->disk_budget_bytes);
    c->row++;
}

/* Writes an endpoint: state, requests in flight of the window, rate, times of answers, hit rate. */
static void put_place(canvas *c, const exec_place *p, int columns) {
    buf text = {0};
    int at = canvas_put_visible(c, LABEL_COLUMNS, VIEW_PLAIN, p->url);
    at = BASE_MAX(at, LABEL_COLUMNS + columns) + 1;
    bool up = strcmp(p->state, "up") == 0;
    buf_printf(&text, "%-5s ", p->state);
    at = canvas_put_buf(c, at, up ? VIEW_GOOD : VIEW_WORK, &text);
    buf_printf(&text, "%d of %d  ", p->in_flight, p->window);
    buf_append_count(&text, (uint64_t)p->tokens_s);
    buf_printf(&text, " tok/s  %.0f ms, 95 %% in %.0f ms", p->median_ms, p->slow_ms);
    if (p->prompt_tokens > 0)
        buf_printf(&text, "  hit %.0f %%",
                   100 * (double)p->cached_tokens / (double)p->prompt_tokens);
    if (p->refused > 0)
        buf_printf(&text, "  refused %llu", (unsigned long long)p->refused);
    canvas_put_buf(c, at, VIEW_PLAIN, &text);
    c->row++;
}

static void draw_places(canvas *c) {
    enum { MOST = 8 };
    const exec_progress *x = &c->v->now;
    int shown = BASE_MIN(x->nplaces, BASE_MIN((int)MOST, BASE_MAX(c->h / 4, 1))), columns = 0;
    for (int i = 0; i < shown; i++)
        columns = BASE_MAX(columns, utf8_width(str_from(x->places[i].url)));
    canvas_label(c, shown == 1 ? "endpoint" : "endpoints");
    for (int i = 0; i < shown; i++)
        put_place(c, &x->places[i], BASE_MIN(columns, c->w / 3));
    if (shown < x->nplaces) {
        buf text = {0};
        buf_printf(&text, "… %d more", x->nplaces - shown);
        canvas_put_buf(c, LABEL_COLUMNS, VIEW_DIM, &text);
        c->row++;
    }
}

static void draw_order(canvas *c) {
    if (c->v->now.field_order[0] == 0)
        return;
    canvas_label(c, "fields");
    canvas_put_visible(c, LABEL_COLUMNS, VIEW_PLAIN, c->v->now.field_order);
    c->row++;
}

/* Draws the latest prompts in the order they ran, one per column. The height is the share of the
 * prompt's tokens that was reused. */
static void draw_strip(canvas *c) {
    const exec_progress *x = &c->v->now;
    int columns = BASE_MIN(c->w - LABEL_COLUMNS - 1, x->nshared);
    if (x->nshared == 0)
        return;
    canvas_label(c, "order");
    for (int i = 0; i < columns; i++) {
        int percent = x->shared[x->nshared - columns + i];
        canvas_put(c, LABEL_COLUMNS + i, c->row, percent < 50 ? VIEW_WORK : VIEW_GOOD,
                   step(c->v->utf8, percent / 100.0));
    }
    c->row++;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void draw_operators(canvas *c, int rows, int from) {
    const exec_progress *x = &c->v->now;
    if (x->noperators == 0 || rows < 2)
        return;
    int numbers = c->w < SMALL_W ? OPERATOR_NARROW : OPERATOR_COLUMNS;
    canvas_put(c, 1, c->row, VIEW_BOLD, "operators");
    canvas_put(c, numbers + 3, c->row, VIEW_DIM, "rows in");
    canvas_put(c, numbers + 20, c->row++, VIEW_DIM, "out");
    for (int i = from; i < x->noperators && i - from < rows - 1; i++, c->row++) {
        const exec_operator *o = &x->operator_rows[i];
        int indent = BASE_MIN(2 * o->depth, numbers / 2);
        canvas_put_visible(c, 1 + indent, o->model ? VIEW_GOOD : VIEW_PLAIN, o->name);
        if (!o->source)
            canvas_put_count(c, numbers, o->rows_in);
        canvas_put_count(c, numbers + 13, o->rows_out);
    }
}

static void draw_answers(canvas *c, int rows, int from) {
    const view_state *v = c->v;
    if (v->nanswers == 0 || rows < 2)
        return;
    canvas_put(c, 1, c->row++, VIEW_BOLD, "last answers");
    for (int i = from; i < v->nanswers && i - from < rows - 1; i++, c->row++) {
        int x = canvas_put_visible(c, 1, VIEW_PLAIN, v->answers[i].answer);
        canvas_put_visible(c, x + 2, VIEW_DIM, v->answers[i].input);
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
                {"3", "prefixes", "prefix tree", PANEL_TREE},
                {"4", "rows", "rows, answers", PANEL_ROWS}};
    enum { WIDE = 112 };
    int x = 1;
    for (size_t i = 0; i < BASE_COUNT(keys); i++) {
        bool here = keys[i].panel == (int)c->v->panel;
        if (c->v->finished && strchr("cp", *keys[i].key))
            continue;
        const char *text = c->w < WIDE ? keys[i].brief : keys[i].text;
        if (*keys[i].key == 'p' && c->v->now.paused)
            text = "resume";
        if (x + 2 + (int)strlen(text) > c->w)
            break;
        x = canvas_put(c, x, row, VIEW_TITLE, keys[i].key);
        x = canvas_put(c, x + 1, row, here ? VIEW_BOLD : VIEW_DIM, text) + 2;
    }
}

/* ---- help, and the whole screen -------------------------------------------------------------- */

static const view_help_line help_lines[] = {
    {"q", "back to the shell; the statement keeps running"},
    {"c", "cancel; answers are kept (not with SET cache = off)"},
    {"p", "pause or resume the statement"},
    {"1 2 3 4", "the run, other strategies, the prefix tree, operators and answers"},
    {"arrows", "left, right: switch panels; up, down: scroll"},
    {WORDS_INPUTS_SHORT, WORDS_INPUTS " with an answer; known: stored by an earlier run"},
    {WORDS_HIT_RATE, "share of the prompt tokens whose KV was reused"},
    {"tokens", "reused from memory or disk, in stored answers, or computed"},
    {"KV", "attention keys and values held in memory and on disk, and the limits"},
    {"endpoints", "servers: requests in flight of the most for now, times of the latest answers"},
    {"fields", "the order of the fields in the prompts"},
    {"order", "a bar for each of the latest prompts; its height: the share that was reused"},
    {"prefixes", "prompts that begin with a text, and how many of them are answered"},
};

const view_help_line *view_help(size_t *count) {
    *count = BASE_COUNT(help_lines);
    return help_lines;
}

static void draw_help(canvas *c, int last_row) {
    for (size_t i = 0; i < BASE_COUNT(help_lines) && c->row < last_row; i++) {
        canvas_label(c, help_lines[i].name);
        canvas_put_wrapped(c, LABEL_COLUMNS, last_row, VIEW_PLAIN, help_lines[i].text);
    }
}

/* Draws the only line that a tiny screen shows. */
static void draw_one_line(canvas *c) {
    const exec_progress *x = &c->v->now;
    buf text = {0};
    buf_append_count(&text, x->rows_done);
    buf_append_char(&text, '/');
    buf_append_count(&text, x->rows_total);
    buf_printf(&text, " " WORDS_INPUTS_SHORT "  hit %.0f %%", 100 * progress_hit_rate(&x->llm));
    canvas_put_buf(c, 0, VIEW_PLAIN, &text);
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
    static void (*const draw[])(canvas *, int, int) = {view_draw_tree, draw_operators,
                                                       draw_answers};
    enum { LISTS = BASE_COUNT(draw), ROOMY = 30 };
    const exec_progress *x = &c->v->now;
    const int wants[LISTS] = {view_tree_rows(x), x->noperators + (x->noperators > 0),
                              c->v->nanswers + (c->v->nanswers > 0)};
    int gets[LISTS], blanks = 0;
    bool roomy = c->h >= ROOMY;
    for (int i = 0; i < LISTS; i++)
        blanks += roomy && wants[i] > 0;
    share_rows(last_row - c->row - blanks, wants, gets, LISTS);
    for (int i = 0; i < LISTS; i++) {
        c->row += roomy && gets[i] > 1;
        draw[i](c, gets[i], draw[i] == view_draw_tree ? -1 : 0);
    }
}

static void draw_run(canvas *c, int last_row, bool small, bool full) {
    draw_inputs(c);
    draw_hit(c);
    draw_split(c);
    if (!small) {
        draw_tokens(c);
        if (c->v->now.nplaces > 0)
            draw_places(c);
        else
            draw_memory(c);
        draw_order(c);
    }
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
        view_draw_strategies(&c, last_row);
    else if (v->panel == PANEL_TREE)
        view_tree_panel(&c, last_row);
    else if (v->panel == PANEL_ROWS)
        draw_rows_panel(&c, last_row);
    else
        draw_run(&c, last_row, small, full);
}
