/*
 * window.c - how many requests an endpoint gets at a time, and when (window_int.h).
 */
#include <math.h>

#include "window_int.h"

static const double GROWTH = 1.03; /* of tokens per second, for the window to grow */

void window_init(window *w, int start, int most, double rpm, double tpm) {
    *w = (window){.most = BASE_MAX(most, 1),
                  .rpm = rpm,
                  .tpm = tpm,
                  .requests_left = BASE_MAX(rpm / 60, 1.0),
                  .tokens_left = tpm / 60};
    w->size = BASE_MIN(BASE_MAX(start, 1), w->most);
}

/* Fills the buckets: at most a second's worth waits in them. */
static void fill(window *w, double now) {
    double passed = w->filled_s > 0 ? now - w->filled_s : 0;
    w->filled_s = now;
    w->requests_left =
        BASE_MIN(w->requests_left + passed * w->rpm / 60, BASE_MAX(w->rpm / 60, 1.0));
    w->tokens_left = BASE_MIN(w->tokens_left + passed * w->tpm / 60, w->tpm / 60);
}

double window_wait(window *w, double now, double tokens) {
    double wait = w->hold_until_s - now;
    if (w->in_flight >= w->size)
        return -1;
    fill(w, now);
    if (w->rpm > 0 && w->requests_left < 1)
        wait = BASE_MAX(wait, (1 - w->requests_left) * 60 / w->rpm);
    /* a prompt of more than a second's worth goes when the bucket is full */
    double need = BASE_MIN(tokens, w->tpm / 60);
    if (w->tpm > 0 && w->tokens_left < need)
        wait = BASE_MAX(wait, (need - w->tokens_left) * 60 / w->tpm);
    return BASE_MAX(wait, 0.0);
}

void window_sent(window *w, double now, double tokens) {
    w->in_flight++;
    w->began_s = w->began_s > 0 ? w->began_s : now;
    w->requests_left -= 1;
    w->tokens_left -= tokens;
}

void window_done(window *w, double now, double tokens) {
    w->in_flight--;
    if (tokens <= 0)
        return;
    w->answered++;
    w->tokens += tokens;
    if (w->answered < w->size)
        return;
    double rate = w->tokens / BASE_MAX(now - w->began_s, 1e-6);
    if (rate >= GROWTH * w->rate) {
        w->size = BASE_MIN(w->size + 1, w->most);
        w->rate = rate;
    }
    w->answered = 0;
    w->tokens = 0;
    w->began_s = now;
}

void window_cut(window *w, double now, double sent_s) {
    if (sent_s < w->cut_s)
        return;
    w->size = BASE_MAX(w->size / 2, 1);
    w->cut_s = now;
    w->answered = 0;
    w->tokens = 0;
    w->began_s = now;
    w->rate = 0;
}

double window_duration(str text) {
    static const struct {
        str unit;
        double seconds;
    } units[] = {{{"ms", 2}, 1e-3}, {{"h", 1}, 3600}, {{"m", 1}, 60}, {{"s", 1}, 1}};
    double sum = 0;
    text = str_trim(text, STR_SPACES);
    if (text.n == 0)
        return -1;
    while (text.n > 0) {
        size_t n = 0;
        double number;
        while (n < text.n && ((text.p[n] >= '0' && text.p[n] <= '9') || text.p[n] == '.'))
            n++;
        if (n == 0 || !parse_real((str){text.p, n}, &number))
            return -1;
        text = (str){text.p + n, text.n - n};
        double seconds = text.n == 0 ? 1 : 0;
        for (size_t i = 0; i < BASE_COUNT(units) && seconds == 0; i++) {
            str unit = units[i].unit;
            if (text.n >= unit.n && str_equal((str){text.p, unit.n}, unit)) {
                seconds = units[i].seconds;
                text = (str){text.p + unit.n, text.n - unit.n};
            }
        }
        if (seconds == 0)
            return -1;
        sum += number * seconds;
    }
    return isfinite(sum) ? sum : -1;
}

void window_told(window *w, double now, str left, str reset) {
    double n, longest = 120;
    if (!parse_real(str_trim(left, STR_SPACES), &n) || n <= 0 || n > w->in_flight)
        return; /* Azure sends -1 and 0 when there is no limit */
    double seconds = window_duration(reset);
    if (seconds > 0)
        w->hold_until_s = BASE_MAX(w->hold_until_s, now + BASE_MIN(seconds, longest));
}
