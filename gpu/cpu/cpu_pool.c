/*
 * cpu_pool.c - the end of an embedding model's pass on the CPU: final norm, pooling, dense layers,
 * length 1.
 *
 * Invariant: a text's vector is computed by one task, from the text's rows in their order.
 */
#include <math.h>
#include <string.h>

#include "cpu_int.h"

/* Multiplies x[k] by the matrix [n, k]: y[n]. */
static void dense_run(const cpu_work *w, const float *matrix, int n, int k, const float *x,
                      float *y) {
    for (int i = 0; i < n; i++)
        y[i] = w->s->k->dot(matrix + (size_t)i * (size_t)k, x, k);
}

/* Gives x[n] the length 1; a vector of zeros stays as it is. */
static void unit_length(const cpu_work *w, float *x, int n) {
    float length = sqrtf(w->s->k->dot(x, x, n));
    if (length > 0)
        w->s->k->scale(x, 1.0f / length, n);
}

/* Returns the index of a text's first row in w->wanted. */
static int first_wanted(const cpu_work *w, int text) {
    return w->engine->config.pooling == POOL_MEAN ? w->p->pools[text].first : text;
}

static void text_task(void *ctx, int task, int worker) {
    cpu_work *w = ctx;
    const model_config *c = &w->engine->config;
    const pass_pool *text = &w->p->pools[task];
    const packed_model *m = &w->s->model;
    int n = c->n_embd, rows = c->pooling == POOL_MEAN ? text->count : 1;
    const float *x = w->x + (size_t)first_wanted(w, task) * (size_t)n;
    float *normed = cpu_scratch_of(w, worker), *out = text->vector;
    memset(out, 0, sizeof *out * (size_t)n);
    for (int i = 0; i < rows; i++) {
        cpu_norm(w, x + (size_t)i * (size_t)n, m->final_norm, m->final_norm_bias, normed);
        w->s->k->add(out, normed, n);
    }
    w->s->k->scale(out, 1.0f / (float)rows, n);
    if (c->dense > 0) {
        float *wide = w->dense + (size_t)worker * (size_t)c->dense;
        dense_run(w, m->dense[0], c->dense, n, out, wide);
        dense_run(w, m->dense[1], n, c->dense, wide, out);
    }
    unit_length(w, out, n);
}

void cpu_pool_run(cpu_work *w) {
    pool_run(w->s->threads, w->p->npools, text_task, w);
}
