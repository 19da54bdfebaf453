/*
 * cpu_head.c - the end of a pass on the CPU: final norm and logits of the wanted rows.
 *
 * Logits of listed tokens are dot products with the file's rows of the head. Logits of the whole
 * vocabulary are computed by tiles of rows × parts of the head. If only the likeliest tokens are
 * wanted, each task keeps the likeliest tokens of its part and drops the remaining logits. The
 * tokens of all parts are then merged in the order of the parts.
 */
#include <math.h>
#include <string.h>

#include "cpu_int.h"
#include "storage/containers.h"

void cpu_final_cap(const cpu_work *w, float *logits, int n) {
    float cap = w->engine->config.final_softcap;
    for (int i = 0; cap > 0 && i < n; i++)
        logits[i] = cap * tanhf(logits[i] / cap);
}

static void final_norm_task(void *ctx, int task, int worker) {
    cpu_work *w = ctx;
    int n = w->engine->config.n_embd;
    float *x = w->x + (size_t)task * (size_t)n, *scratch = cpu_scratch_of(w, worker);
    cpu_norm(w, x, w->s->model.final_norm, NULL, scratch);
    memcpy(x, scratch, sizeof(float) * (size_t)n);
}

/* Task: computes the logits of the listed tokens of one want, from the file's exact weights. */
static void ids_task(void *ctx, int task, int worker) {
    cpu_work *w = ctx;
    const pass_want *want = &w->p->wants[task];
    int n = w->engine->config.n_embd;
    float *row = cpu_scratch_of(w, worker);
    for (int i = 0; want->ids != NULL && i < want->count; i++) {
        model_head_row(&w->s->model, want->ids[i], row);
        want->logits[i] = w->s->k->dot(w->x + (size_t)w->want_rows[task] * (size_t)n, row, n);
    }
    if (want->ids != NULL)
        cpu_final_cap(w, want->logits, want->count);
}

/* ---- the likeliest tokens -------------------------------------------------------------------- */

/* The likeliest tokens of one part of the head for one want, largest logit first. */
struct head_top {
    int count;
    float logits[PASS_TOP];
    llm_token ids[PASS_TOP];
};

/* Adds a token if it is among the `top` tokens with the largest logits. Of equal logits, the token
 * added first comes first. */
static void top_add(head_top *t, int top, float logit, llm_token id) {
    if (t->count == top && !(logit > t->logits[top - 1]))
        return;
    int at = t->count < top ? t->count++ : top - 1;
    for (; at > 0 && logit > t->logits[at - 1]; at--) {
        t->logits[at] = t->logits[at - 1];
        t->ids[at] = t->ids[at - 1];
    }
    t->logits[at] = logit;
    t->ids[at] = id;
}

static void top_find(const cpu_work *w, const gemm_part *p, int top, const float *logits,
                     head_top *out) {
    out->count = 0;
    if (top == 1) {
        int best = w->s->k->largest(logits, p->n);
        top_add(out, top, logits[best], p->first + best);
        return;
    }
    for (int i = 0; i < p->n; i++)
        top_add(out, top, logits[i], p->first + i);
}

static void top_merge(const cpu_work *w, int whole, const pass_want *want) {
    int parts = w->s->model.head.nparts;
    head_top all = {0};
    for (int p = 0; p < parts; p++) {
        const head_top *t = &w->tops[(size_t)whole * (size_t)parts + (size_t)p];
        for (int i = 0; i < t->count; i++)
            top_add(&all, want->top, t->logits[i], t->ids[i]);
    }
    memcpy(want->top_ids, all.ids, sizeof *all.ids * (size_t)all.count);
    memcpy(want->logits, all.logits, sizeof *all.logits * (size_t)all.count);
    cpu_final_cap(w, want->logits, all.count);
}

/* ---- the whole vocabulary -------------------------------------------------------------------- */

/* Task: computes the logits of one part of the head for one tile of the rows that want the whole
 * vocabulary. */
static void head_task(void *ctx, int task, int worker) {
    cpu_work *w = ctx;
    const gemm_weight *head = &w->s->model.head;
    tile_range t = cpu_tile_of(w, task / head->nparts);
    int part = task % head->nparts;
    const gemm_part *p = &head->parts[part];
    const void *a = cpu_row_of(w->a, head->type, t.first, head->k);
    const float *out = gemm_run(w->s->g, head, part, worker, t.rows, a);
    for (int i = 0; i < t.rows; i++) {
        int whole = t.first + i;
        const pass_want *want = &w->p->wants[w->whole[whole]];
        const float *logits = out + (size_t)i * (size_t)p->n;
        if (want->top > 0) {
            size_t at = (size_t)whole * (size_t)head->nparts + (size_t)part;
            top_find(w, p, want->top, logits, &w->tops[at]);
        } else {
            memcpy(want->logits + p->first, logits, sizeof(float) * (size_t)p->n);
            cpu_final_cap(w, want->logits + p->first, p->n);
        }
    }
}

/* Stores the rows that want the whole vocabulary as operands of the product. Returns the number of
 * these rows. */
static int whole_gather(cpu_work *w) {
    const model_config *c = &w->engine->config;
    gemm_type type = w->s->model.head.type;
    int whole = 0, at = 0;
    for (int i = 0; i < w->p->nwants; i++) {
        while (w->wanted[at] != w->p->wants[i].row)
            at++;
        w->want_rows[i] = at;
        if (w->p->wants[i].ids == NULL) {
            cpu_operand_store(w, type, w->x + (size_t)at * (size_t)c->n_embd, c->n_embd,
                              cpu_row_of(w->a, type, whole, c->n_embd));
            w->whole[whole++] = i;
        }
    }
    return whole;
}

void cpu_head_run(cpu_work *w) {
    pool_run(w->s->threads, w->nwanted, final_norm_task, w);
    int whole = whole_gather(w);
    pool_run(w->s->threads, w->p->nwants, ids_task, w);
    whole = cpu_screen_run(w, whole);
    if (whole == 0)
        return;
    ARRAY_RESERVE(w->tops, (size_t)whole * (size_t)w->s->model.head.nparts, w->tops_cap);
    w->nrows = whole;
    pool_run(w->s->threads, cpu_tile_count(w) * w->s->model.head.nparts, head_task, w);
    for (int i = 0; i < whole; i++) {
        const pass_want *want = &w->p->wants[w->whole[i]];
        if (want->top > 0)
            top_merge(w, i, want);
    }
}
