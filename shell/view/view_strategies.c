/*
 * view_strategies.c - draws the panel that compares a run with other strategies: tokens, hit rates,
 * times, and in large digits how much faster the run is than one without reuse.
 *
 * Invariant: what is measured or counted has no mark; what is estimated has a ~.
 */
#include "canvas_int.h"

/* Returns a large digit's dots, 3 columns of 5 rows: bit 14 is the upper left one, bit 0 the lower
 * right one. */
static unsigned digit_bits(char c) {
    static const unsigned digits[] = {075557, 026227, 071747, 071717, 055711,
                                      074717, 074757, 071111, 075757, 075717};
    return c == '.' ? 4 : c == 'x' ? 00525 : c >= '0' && c <= '9' ? digits[c - '0'] : 0;
}

enum { DIGIT_ROWS = 5, DIGIT_COLUMNS = 3 };

/* Writes text in large digits, each dot two columns wide, and moves to the row after them. Returns
 * the column after the text. */
static int put_large(canvas *c, int x, view_attr attr, const char *text) {
    const char *dot = c->v->utf8 ? "██" : "##";
    for (; *text; text++) {
        for (int i = 0; i < DIGIT_ROWS * DIGIT_COLUMNS; i++)
            if (digit_bits(*text) >> (DIGIT_ROWS * DIGIT_COLUMNS - 1 - i) & 1)
                canvas_put(c, x + i % DIGIT_COLUMNS * 2, c->row + i / DIGIT_COLUMNS, attr, dot);
        x += *text == '.' ? 3 : 2 * DIGIT_COLUMNS + 1;
    }
    c->row += DIGIT_ROWS;
    return x;
}

static void draw_speed_up(canvas *c) {
    static const char about[] = "faster than without reuse";
    enum { ROOMY = 20 };
    double times = view_speed_up(c->v);
    buf text = {0};
    if (times <= 0)
        return;
    buf_printf(&text, "%.*fx", times < 99.95 ? 1 : 0, times);
    if (c->h >= ROOMY && c->w >= SMALL_W) {
        int row = c->row + DIGIT_ROWS - 1;
        int x = put_large(c, 2, VIEW_GOOD, text.p) + 1;
        canvas_put(c, x, row, VIEW_BOLD, about);
        canvas_put(c, x, row - 1, VIEW_DIM, "estimated:");
        buf_free(&text);
    } else {
        canvas_put(c, 1, c->row, VIEW_BOLD, "~");
        buf_printf(&text, " %s", about);
        canvas_put_buf(c, 2, VIEW_BOLD, &text);
    }
    c->row += c->h >= ROOMY ? 2 : 1;
}

/* Writes text that ends before column `end`. */
static void put_right(canvas *c, int end, view_attr attr, buf *text) {
    canvas_put_buf(c, BASE_MAX(end - utf8_width(buf_str(text)), 0), attr, text);
}

/* Draws a strategy's line. seconds: 0 if unknown. */
static void draw_strategy(canvas *c, const exec_baseline *b, uint64_t most, double seconds,
                          bool own) {
    enum { HIT = 30, TIME = 40, BAR = 42, BAR_LEAST = 10 };
    double share = b->prompt_tokens ? (double)b->computed_tokens / (double)b->prompt_tokens : 1;
    buf text = {0};
    canvas_put_visible(c, 1, own ? VIEW_BOLD : VIEW_DIM, b->name);
    canvas_put_count(c, LABEL_COLUMNS - 1, b->computed_tokens);
    buf_printf(&text, "%.1f %%", 100 * BASE_MAX(1 - share, 0));
    put_right(c, HIT, VIEW_PLAIN, &text);
    if (seconds > 0) {
        buf_append_c(&text, own ? "" : "~");
        if (seconds < 100)
            progress_duration(&text, seconds);
        else
            view_append_clock(&text, seconds);
        put_right(c, TIME, own ? VIEW_BOLD : VIEW_PLAIN, &text);
    }
    if (c->w >= BAR + BAR_LEAST)
        canvas_bar(c, BAR, c->w - BAR - 1, (double)b->computed_tokens / (double)BASE_MAX(most, 1u),
                   own ? VIEW_GOOD : VIEW_WORK);
    c->row++;
}

/* Says what the figures mean: what is counted, what is estimated. */
static void draw_strategy_notes(canvas *c, int last_row) {
    const view_state *v = c->v;
    double rate = view_tokens_per_second(v);
    buf text = {0};
    if (!v->finished) {
        buf_append_c(&text, "this run so far: ");
        view_append_inputs(&text, &v->now);
        buf_append_c(&text, " " WORDS_INPUTS ". ");
    }
    if (rate > 0) {
        buf_append_c(&text, "~ is estimated: this machine computes ");
        buf_append_count(&text, (uint64_t)rate);
        buf_append_c(&text, " tokens a second.");
    }
    if (view_wants_baselines(v) && !v->finished)
        buf_append_c(&text, " Counting what FIFO, fixed and grouped would compute.");
    c->row++;
    canvas_put_wrapped(c, 1, last_row, VIEW_DIM, text.p ? text.p : "");
    buf_free(&text);
}

void view_draw_strategies(canvas *c, int last_row) {
    const view_state *v = c->v;
    const llm_figures *m = &v->now.llm;
    const exec_baseline *others = v->baselines;
    uint64_t all = view_tokens_without_reuse(v), most = all;
    exec_baseline none = {"no cache", all, all}, own = {"this run", m->prompt_tokens, 0};
    int n = v->nbaselines;
    own.computed_tokens = m->computed_tokens;
    if (n == 0) { /* not counted: only the prompts so far are known */
        others = &none;
        n = 1;
    }
    draw_speed_up(c);
    canvas_put(c, 1, c->row++, VIEW_BOLD,
               "strategy   " WORDS_COMPUTED "  " WORDS_HIT_RATE "      time");
    for (int i = 0; i < n; i++)
        most = BASE_MAX(most, others[i].computed_tokens);
    for (int i = 0; i < n && c->row + 1 < last_row; i++)
        draw_strategy(c, &others[i], most, view_seconds_of(v, &others[i]), false);
    if (c->row < last_row)
        draw_strategy(c, &own, most, v->now.seconds, true);
    draw_strategy_notes(c, last_row);
}
