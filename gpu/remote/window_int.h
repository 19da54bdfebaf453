/*
 * window_int.h - how many requests an endpoint gets at a time, and when. No clock: the caller gives
 * the time in seconds.
 *
 * The window grows by one for each full window that is answered while the endpoint's tokens per
 * second grow, and is halved when it says that it is busy (AIMD), at most once per round trip. Limits
 * per minute, of the options or of the server's headers, hold requests back before the server has
 * to refuse them.
 */
#ifndef KVASIR_WINDOW_INT_H
#define KVASIR_WINDOW_INT_H

#include "storage/base.h"

typedef struct window {
    int size, most;
    int in_flight;
    int answered;                                /* since the current full window began */
    double tokens;                               /* of these */
    double began_s;                              /* when it began; 0: not yet */
    double rate;                                 /* tokens per second of the last full window */
    double cut_s;                                /* when the window was halved last */
    double rpm, tpm;                             /* limits per minute; 0: none */
    double requests_left, tokens_left, filled_s; /* the buckets of rpm and tpm */
    double hold_until_s;                         /* the server's headers: nothing is sent before */
} window;

void window_init(window *w, int start, int most, double rpm, double tpm);
/* Returns how long, in seconds, a request of `tokens` tokens must wait before it is sent; 0: send
 * it now; negative: wait until another request is answered. */
double window_wait(window *w, double now, double tokens);
void window_sent(window *w, double now, double tokens);
/* A request is no longer in flight. `tokens` > 0: it was answered, with as many. */
void window_done(window *w, double now, double tokens);
/* Halves the window, unless it was halved after the request was sent. */
void window_cut(window *w, double now, double sent_s);
/* Takes what a reply's headers say about a limit: `left` (ignored unless > 0) and the time until it
 * is full again, such as "1s", "6m0s" or "20ms". */
void window_told(window *w, double now, str left, str reset);
/* Parses such a time; -1: it is none. */
double window_duration(str text);

#endif
