/*
 * progress.c - the progress line on stderr: rows, time left, hit rate, rates.
 *
 * Invariant: it is drawn only on a terminal and erased before anything else is printed.
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

const char *progress_unit(const exec_progress *x) {
    return x->operators > 1 ? "answers" : "rows";
}

double progress_hit_rate(const llm_figures *m) {
    double reused = (double)(m->reused_memory + m->reused_disk),
           all = reused + (double)m->computed_tokens;
    return all > 0 ? reused / all : 0;
}

static void smooth(double *rate, double now) {
    *rate = *rate > 0 ? 0.7 * *rate + 0.3 * now : now;
}

static void update_rates(progress_line *p, const exec_progress *x) {
    double dt = x->llm_seconds - p->last_seconds;
    if (dt < 0) { /* the next LLM operator has begun */
        *p = (progress_line){.shown = p->shown, .keys = p->keys};
        dt = x->llm_seconds;
    }
    if (dt < 0.25)
        return;
    uint64_t tokens = x->llm.computed_tokens + x->llm.output_tokens;
    uint64_t asked = x->rows_done - BASE_MIN(x->llm.answers_stored, x->rows_done);
    if (asked >= p->last_rows) /* not counting stored answers, which take no model time */
        smooth(&p->rate, (double)(asked - p->last_rows) / dt);
    if (tokens >= p->last_tokens)
        smooth(&p->token_rate, (double)(tokens - p->last_tokens) / dt);
    p->last_seconds = x->llm_seconds;
    p->last_rows = asked;
    p->last_tokens = tokens;
}

static void bar(buf *out, double part, bool utf8) {
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int steps = (int)(BASE_MIN(BASE_MAX(part, 0.0), 1.0) * BAR_COLUMNS * 8);
    buf_append_c(out, utf8 ? "▕" : "[");
    for (int i = 0; i < BAR_COLUMNS; i++) {
        int left = steps - 8 * i;
        if (utf8)
            buf_append_c(out, left >= 8 ? "█" : left > 0 ? eighths[left] : " ");
        else
            buf_append_char(out, left >= 8 ? '#' : '.');
    }
    buf_append_c(out, utf8 ? "▏" : "]");
}

/* Appends `text` to the line if it fits, and clears it. The most important parts are added first. */
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
    update_rates(p, x);
    buf text = {0};
    const char *unit = progress_unit(x);
    if (x->operators > 1)
        buf_printf(&text, "LLM %d/%d: ", x->operator_number, x->operators);
    bool counts = x->rows_total || x->rows_done || !x->phase[0];
    if (counts)
        format_count(&text, x->rows_done);
    if (x->rows_total) {
        buf_append_char(&text, '/');
        format_count(&text, x->rows_total);
    }
    if (counts)
        buf_printf(&text, " %s", unit);
    if (x->phase[0] && !x->rows_done && strcmp(x->phase, "model") != 0)
        buf_printf(&text, "%s%s", counts ? ", " : "", x->phase);
    part(out, width, &text);
    if (x->rows_total && width >= HINT_WIDTH) {
        bar(&text, (double)x->rows_done / (double)x->rows_total, utf8);
        part(out, width, &text);
    }
    if (p->rate > 0 && x->rows_total > x->rows_done) {
        double left = (double)(x->rows_total - x->rows_done) / p->rate;
        buf_append_c(&text, "ETA ");
        progress_duration(&text, left);
        part(out, width, &text);
    }
    if (x->llm.computed_tokens) {
        buf_printf(&text, "hit %.0f %%", 100 * progress_hit_rate(&x->llm));
        part(out, width, &text);
    }
    if (p->rate > 0) {
        buf_printf(&text, "%.*f %s/s", p->rate < 10 ? 1 : 0, p->rate, unit);
        part(out, width, &text);
    }
    if (p->token_rate > 0) {
        format_count(&text, (uint64_t)p->token_rate);
        buf_append_c(&text, " tok/s");
        part(out, width, &text);
    }
    if (hinted)
        buf_printf(out, "  %s", hint);
    buf_free(&text);
}

void progress_draw(progress_line *p, const term *t, const exec_progress *x) {
    /* A terminal that cannot erase gets a new line each second instead of one that changes. */
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
