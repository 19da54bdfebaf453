/*
 * progress.c - the progress line on stderr: inputs, time left, hit rate, rates.
 *
 * Invariant: the line is drawn only on a terminal and, if the terminal can erase, is erased before
 * anything else is printed.
 */
#include <math.h>
#include <string.h>

#include "view_int.h"

enum { BAR_COLUMNS = 20, REDRAW_MS = 100, DUMB_MS = 1000 };

void progress_duration(buf *out, double seconds) {
    long whole = lround(seconds);
    if (seconds < 9.95)
        buf_printf(out, "%.1f s", seconds);
    else if (whole < 100)
        buf_printf(out, "%ld s", whole);
    else if (whole < 3600)
        buf_printf(out, "%ld min %ld s", whole / 60, whole % 60);
    else
        buf_printf(out, "%ld h %ld min", whole / 3600, whole / 60 % 60);
}

double progress_hit_rate(const llm_figures *m) {
    double reused = (double)(m->reused_memory + m->reused_disk),
           all = reused + (double)m->computed_tokens;
    return all > 0 ? reused / all : 0;
}

static void smooth(double *rate, double now, double weight) {
    *rate = *rate > 0 ? (1 - weight) * *rate + weight * now : now;
}

bool rates_update(run_rates *r, const exec_progress *x, double seconds, double least,
                  double weight) {
    if (seconds < r->seconds) /* the next LLM operator has begun */
        *r = (run_rates){0};
    double dt = seconds - r->seconds;
    if (dt < least)
        return false;
    uint64_t tokens = x->llm.computed_tokens + x->llm.output_tokens;
    uint64_t rows = x->rows_done - BASE_MIN(x->llm.answers_stored, x->rows_done);
    if (rows >= r->rows_then)
        smooth(&r->rows, (double)(rows - r->rows_then) / dt, weight);
    if (tokens >= r->tokens_then)
        smooth(&r->tokens, (double)(tokens - r->tokens_then) / dt, weight);
    r->seconds = seconds;
    r->rows_then = rows;
    r->tokens_then = tokens;
    return true;
}

const char *progress_bar(int eighths, bool utf8) {
    static const char *const glyphs[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    int k = BASE_MIN(BASE_MAX(eighths, 0), 8);
    return utf8 ? glyphs[k] : k >= 4 ? "#" : ".";
}

static void bar(buf *out, double part, bool utf8) {
    int steps = (int)(BASE_MIN(BASE_MAX(part, 0.0), 1.0) * BAR_COLUMNS * 8);
    buf_append_c(out, utf8 ? "▕" : "[");
    for (int i = 0; i < BAR_COLUMNS; i++)
        buf_append_c(out, progress_bar(steps - 8 * i, utf8));
    buf_append_c(out, utf8 ? "▏" : "]");
}

/* Appends `text` to the line if it fits, and clears `text`. The most important parts are added
 * first. */
static void part(buf *out, int width, buf *text) {
    if (utf8_width(buf_str(out)) + 2 + utf8_width(buf_str(text)) <= width) {
        buf_append_c(out, out->n ? "  " : "");
        buf_append_str(out, buf_str(text));
    }
    buf_clear(text);
}

void progress_render(progress_line *p, const exec_progress *x, int width, bool utf8, buf *out) {
    static const char hint[] = "v view";
    enum { HINT_WIDTH = 60, HINT_COLUMNS = sizeof hint - 1 + 2 };
    bool hinted = p->keys && width >= HINT_WIDTH;
    width -= hinted ? HINT_COLUMNS : 0;
    rates_update(&p->rates, x, x->llm_seconds, 0.25, 0.3);
    buf text = {0};
    if (p->label)
        buf_printf(&text, "%s: ", p->label);
    if (x->operators > 1)
        buf_printf(&text, "LLM %d/%d: ", x->operator_number, x->operators);
    bool counts = x->rows_total || x->rows_done || !x->phase[0];
    if (counts)
        buf_append_count(&text, x->rows_done);
    if (x->rows_total) {
        buf_append_char(&text, '/');
        buf_append_count(&text, x->rows_total);
    }
    if (counts)
        buf_append_c(&text, " " WORDS_INPUTS_SHORT);
    if (x->phase[0] && !x->rows_done && strcmp(x->phase, "model") != 0)
        buf_printf(&text, "%s%s", counts ? ", " : "", x->phase);
    part(out, width, &text);
    if (x->rows_total && width >= HINT_WIDTH) {
        bar(&text, (double)x->rows_done / (double)x->rows_total, utf8);
        part(out, width, &text);
    }
    if (p->rates.rows > 0 && x->rows_total > x->rows_done) {
        double left = (double)(x->rows_total - x->rows_done) / p->rates.rows;
        buf_append_c(&text, "ETA ");
        progress_duration(&text, left);
        part(out, width, &text);
    }
    if (x->llm.computed_tokens) {
        buf_printf(&text, "hit %.0f %%", 100 * progress_hit_rate(&x->llm));
        part(out, width, &text);
    }
    if (p->rates.rows > 0) {
        buf_printf(&text, "%.*f/s", p->rates.rows < 10 ? 1 : 0, p->rates.rows);
        part(out, width, &text);
    }
    if (p->rates.tokens > 0) {
        buf_append_count(&text, (uint64_t)p->rates.tokens);
        buf_append_c(&text, " tok/s");
        part(out, width, &text);
    }
    if (hinted)
        buf_printf(out, "  %s", hint);
    buf_free(&text);
}

void progress_draw(progress_line *p, const term *t, const exec_progress *x) {
    /* A terminal that cannot erase gets a new line each second instead of one line that changes. */
    bool dumb = t->dumb;
    if (p->drawn_ms > 0 && clock_ms() - p->drawn_ms < (dumb ? DUMB_MS : REDRAW_MS))
        return;
    int columns, rows;
    term_size(&columns, &rows);
    buf line = {0};
    progress_render(p, x, columns - 1, t->utf8, &line);
    fflush(stdout);
    if (dumb)
        fprintf(stderr, "%s\n", line.p ? line.p : "");
    else
        fprintf(stderr, "\r%s%s%s\033[K", style_on(t->color_err, STYLE_BAR), line.p ? line.p : "",
                style_off(t->color_err, STYLE_BAR));
    fflush(stderr);
    p->shown = !dumb;
    p->drawn_ms = clock_ms();
    buf_free(&line);
}

void progress_clear(progress_line *p) {
    if (!p->shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    p->shown = false;
}
