/*
 * head_screen.c - quantises the head and states for the head screen (head_screen_int.h).
 *
 * Invariant: the bounds hold for any values, since norms are computed in double from the actual
 * values and errors, and rounded up. If a state has a few large values, a single scale would
 * leave few steps for its other values. So the groups of four values (quads) with the largest
 * values get coarse digits with their own scale; fine digits hold what remains.
 */
#include "head_screen_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const double UP = 1.00001; /* margin of a bound: norms are rounded to f32, sums are in f32 */
enum { HUGE_PAGE = 2 << 20, OFFSET = 128, DIGIT = 127 };

size_t head_screen_bytes(const head_screen *s) {
    return s == NULL ? 0 : (size_t)s->n * ((size_t)s->k + 3 * sizeof(float));
}

head_screen *head_screen_new(const kernels *k, int n, int width) {
    if (k->screen == NULL || n % SCREEN_COLUMNS != 0 || width % 4 != 0 || width < 4 * SCREEN_QUADS)
        return NULL;
    head_screen *s = mem_zalloc(sizeof *s);
    *s = (head_screen){.kernels = k, .n = n, .k = width};
    size_t room = ((size_t)n * (size_t)width + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    s->bytes = aligned_alloc(HUGE_PAGE, room);
    s->scale = aligned_alloc(64, 3 * sizeof(float) * (size_t)n);
    if (s->bytes == NULL || s->scale == NULL) {
        head_screen_free(s);
        return NULL;
    }
    (void)madvise(s->bytes, room, MADV_HUGEPAGE);
    s->rest = s->scale + n;
    s->norm = s->rest + n;
    return s;
}

void head_screen_free(head_screen *s) {
    if (s != NULL) {
        free(s->bytes);
        free(s->scale);
        free(s);
    }
}

void head_screen_set(head_screen *s, int j, const float *w) {
    uint16_t *narrow = mem_alloc(sizeof *narrow * (size_t)s->k);
    float *x = mem_alloc(sizeof *x * (size_t)s->k), top = 0; /* x: w rounded to bf16 */
    s->kernels->to_bf16(w, s->k, narrow);
    s->kernels->from_bf16(narrow, s->k, x);
    for (int i = 0; i < s->k; i++)
        top = BASE_MAX(fabsf(x[i]), top);
    float scale = top / DIGIT, inverse = top > 0 ? DIGIT / top : 0;
    double rest = 0, kept = 0;
    uint8_t *to = s->bytes + (size_t)(j / SCREEN_COLUMNS) * SCREEN_COLUMNS * (size_t)s->k +
                  (size_t)(j % SCREEN_COLUMNS) * 4;
    for (int i = 0; i < s->k; i++) {
        int digit = (int)lrintf(x[i] * inverse);
        double near = (double)digit * (double)scale, left = (double)x[i] - near;
        to[(size_t)(i / 4) * SCREEN_COLUMNS * 4 + (size_t)(i % 4)] = (uint8_t)(digit + OFFSET);
        rest += left * left;
        kept += near * near;
    }
    s->scale[j] = scale;
    s->rest[j] = (float)(sqrt(rest) * UP);
    s->norm[j] = (float)((sqrt(kept) + sqrt(rest)) * UP);
    free(narrow);
    free(x);
}

/* ---- states ---------------------------------------------------------------------------------- */

static float quad_top(const float *x) {
    float first = BASE_MAX(fabsf(x[0]), fabsf(x[1])), last = BASE_MAX(fabsf(x[2]), fabsf(x[3]));
    return BASE_MAX(first, last);
}

/* Chooses the SCREEN_QUADS quads with the largest values. Returns the largest magnitude in the
 * other quads. */
static float quads_choose(const float *x, int quads, int *chosen) {
    float tops[SCREEN_QUADS + 1] = {0};
    int count = 0;
    for (int q = 0; q < quads; q++) {
        float top = quad_top(x + 4 * q);
        int at = BASE_MIN(count, SCREEN_QUADS);
        if (count > SCREEN_QUADS && !(top > tops[SCREEN_QUADS]))
            continue;
        for (; at > 0 && top > tops[at - 1]; at--) {
            tops[at] = tops[at - 1];
            if (at < SCREEN_QUADS)
                chosen[at] = chosen[at - 1];
        }
        tops[at] = top;
        if (at < SCREEN_QUADS)
            chosen[at] = q;
        count++;
    }
    return tops[SCREEN_QUADS];
}

bool head_screen_state(const head_screen *s, const uint16_t *narrow, int8_t *fine,
                       screen_state *out) {
    float *x = mem_alloc(sizeof *x * (size_t)s->k), square = 0;
    s->kernels->from_bf16(narrow, s->k, x);
    for (int i = 0; i < s->k; i++)
        square += x[i] * x[i];
    if (!isfinite(square) || square < 1e-6f) {
        free(x);
        return false;
    }
    *out = (screen_state){0};
    float top = quads_choose(x, s->k / 4, out->quads);
    out->fine_scale = top / DIGIT;
    out->coarse_scale = quad_top(x + 4 * out->quads[0]) / DIGIT;
    double size = 0, rest = 0;
    float *left = mem_alloc(sizeof *left * (size_t)s->k);
    memcpy(left, x, sizeof *left * (size_t)s->k);
    int fines = 0, coarses = 0;
    for (int q = 0; q < SCREEN_QUADS; q++) {
        for (int i = 0; i < 4; i++) {
            int at = 4 * out->quads[q] + i;
            int digit = (int)lrintf(x[at] / out->coarse_scale);
            out->coarse[q][i] = (int8_t)digit;
            coarses += digit;
            left[at] = (float)((double)x[at] - (double)digit * (double)out->coarse_scale);
        }
    }
    for (int i = 0; i < s->k; i++) {
        long digit = out->fine_scale > 0 ? lrintf(left[i] / out->fine_scale) : 0;
        digit = BASE_MIN(BASE_MAX(digit, -DIGIT), DIGIT);
        fine[i] = (int8_t)digit;
        fines += (int)digit;
        double miss = (double)left[i] - (double)digit * (double)out->fine_scale;
        rest += miss * miss;
        size += (double)x[i] * (double)x[i];
    }
    free(left);
    free(x);
    /* bound of the rounding errors of k products and sums in f32, in the screen and in oneDNN */
    double rounding = (2.0 * s->k + 64) * 0x1p-23;
    out->fine_start = -OFFSET * fines;
    out->coarse_start = -OFFSET * coarses;
    out->size = (float)(sqrt(size) * UP);
    out->rest = (float)((sqrt(rest) + rounding * 2 * sqrt(size)) * UP);
    return true;
}

void head_screen_run(const head_screen *s, int first, const int8_t *fine,
                     const screen_state *states, int rows, float *best, uint64_t *masks,
                     float *upper) {
    screen_unit u = {.bytes = s->bytes + (size_t)first * (size_t)s->k,
                     .k = s->k,
                     .scale = s->scale + first,
                     .rest = s->rest + first,
                     .norm = s->norm + first,
                     .fine = fine,
                     .states = states,
                     .rows = rows,
                     .best = best,
                     .masks = masks,
                     .upper = upper};
    s->kernels->screen(&u);
}
