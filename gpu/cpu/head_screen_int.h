/*
 * head_screen_int.h - a copy of the head quantised to bytes, which finds the few tokens that can be
 * the likeliest without the full product.
 *
 * Row j of the head is quantised, w[j] = w'[j] + error, and so is a state, x = x' + error. By the
 * Cauchy-Schwarz inequality
 *
 *   | x · w[j]  -  x' · w'[j] |   <=   |x| |error of w[j]|  +  |error of x| |w'[j]|
 *
 * which gives an upper and a lower bound for each logit; rounding in the products is part of the
 * bound. A token whose upper bound is below another token's lower bound is not the likeliest. The
 * logits of the remaining tokens are computed exactly, with the order of additions that oneDNN
 * uses: cpu_screen.c finds that order when the model is loaded, and the screen is not used if no
 * order gives oneDNN's bits. So answers are the same with and without the screen.
 */
#ifndef KVASIR_HEAD_SCREEN_INT_H
#define KVASIR_HEAD_SCREEN_INT_H

#include "kernels_int.h"

typedef struct head_screen {
    const kernels *kernels;
    int n;          /* number of tokens, a multiple of SCREEN_COLUMNS */
    int k;          /* width, a multiple of 4 */
    int run;        /* oneDNN's order of additions: `run` of kernels.pair_products; 0: not found */
    uint8_t *bytes; /* [n / SCREEN_COLUMNS][k / 4][SCREEN_COLUMNS][4]: w' / scale + 128 */
    float *scale;   /* [n] value of one step of w' */
    float *rest;    /* [n] upper bound of the norm of the quantisation error */
    float *norm;    /* [n] upper bound of the norms of w and w' */
} head_screen;

/* Makes a screen without rows. Returns NULL if the shape or the kernels do not allow a screen, or
 * memory is short. */
head_screen *head_screen_new(const kernels *k, int n, int width);
void head_screen_free(head_screen *s);
size_t head_screen_bytes(const head_screen *s);
/* Quantises row j of the head, w[k] in f32. Call once per row, in any order and from any thread. */
void head_screen_set(head_screen *s, int j, const float *w);
/* Quantises the state x[k] (bf16) into fine[k] and *out. Returns false if the screen cannot be used
 * for the state: a value is not finite, or all values are about zero. */
bool head_screen_state(const head_screen *s, const uint16_t *x, int8_t *fine, screen_state *out);
/* Screens tokens [first, first + SCREEN_COLUMNS) for `rows` states: raises best[rows] and writes
 * masks[rows] and upper, as in screen_unit. */
void head_screen_run(const head_screen *s, int first, const int8_t *fine,
                     const screen_state *states, int rows, float *best, uint64_t *masks,
                     float *upper);

#endif
