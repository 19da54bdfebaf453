/*
 * head_screen_int.h - a coarse copy of the head, which tells what few tokens can be the likeliest.
 *
 * Row j of the head is kept in bytes, w[j] = w'[j] + rest; a state is taken apart alike, x = x' +
 * rest. By Cauchy and Schwarz then
 *
 *   | x . w[j]  -  x' . w'[j] |   <=   |x| |rest of w[j]|  +  |rest of x| |w'[j]|
 *
 * and a token whose upper bound is below another's lower one is out, however the products round
 * (their share is part of the bound). What is left is computed in the library's order: the caller
 * finds out at load which order gives the library's bits, and uses no screen where none does. So an
 * answer is the same with it and without.
 */
#ifndef KVASIR_HEAD_SCREEN_INT_H
#define KVASIR_HEAD_SCREEN_INT_H

#include "kernels_int.h"

typedef struct head_screen {
    const kernels *kernels;
    int n, k;       /* columns, a multiple of SCREEN_COLUMNS; width, one of 4 */
    int run;        /* how the library sums (pair_products); 0: not known */
    uint8_t *bytes; /* [n / SCREEN_COLUMNS][k / 4][SCREEN_COLUMNS][4]: w' / scale + 128 */
    float *scale, *rest, *norm; /* [n]; the norms of the rest and, at most, of the whole */
} head_screen;

/* NULL: there is none for this shape, these kernels or this memory. */
head_screen *head_screen_new(const kernels *k, int n, int width);
void head_screen_free(head_screen *s);
size_t head_screen_bytes(const head_screen *s);
/* Row j of the head in f32: w[k]. Each row once, in any order and from any thread. */
void head_screen_set(head_screen *s, int j, const float *w);
/* Takes x[k] apart, as products read it (bf16). false:
 * it is of no use here (not finite, or nothing). */
bool head_screen_state(const head_screen *s, const uint16_t *x, int8_t *fine, screen_state *out);
/* Columns [first, first + SCREEN_COLUMNS) for `rows` states;
 * best[rows] grows, masks[rows]: who may be the largest. */
void head_screen_run(const head_screen *s, int first, const int8_t *fine,
                     const screen_state *states, int rows, float *best, uint64_t *masks,
                     float *upper);

#endif
