/*
 * sample.c - from logits to a token.
 *
 * A draw is made among candidates, sorted by descending logit, then by id, with the weights of
 * sample_weight_int.h. Invariant: the result is a pure function of the arguments, with (seed, step)
 * as the only randomness, so it does not depend on the batch. A draw from the largest logits and
 * the total weight gives the same token as a draw from all logits, or reports that more logits are
 * needed.
 */
#include <stdlib.h>

#include "engine/sample_weight_int.h"
#include "session_int.h"

static int sample_greedy(const float *logits, int count) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

typedef struct candidate {
    uint64_t weight;
    float logit;
    int id;
} candidate;

static int by_logit(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->logit != y->logit ? (x->logit < y->logit ? 1 : -1) : x->id - y->id;
}

/* Returns a number in [0, 1). It is a full hash of both arguments, so that the steps of the same
 * seed are independent for practical purposes. */
static double uniform(uint64_t seed, int step) {
    uint64_t key[2] = {seed, (uint64_t)step};
    return (double)(hash64(key, sizeof key, 0) >> 11) * 0x1p-53;
}

/* The leading candidates that may be drawn. */
typedef struct cut {
    int kept;        /* number of these candidates */
    uint64_t weight; /* total weight of these candidates */
    bool found;      /* whether it is certain that no other token may be drawn */
} cut;

static bool top_p_reached(const llm_sampling *s, uint64_t weight, uint64_t total) {
    return s->top_p < 1 && s->top_p > 0 && (double)weight >= (double)s->top_p * (double)total;
}

static cut candidates_cut(const candidate *c, int count, const llm_sampling *s, uint64_t total) {
    cut at = {0};
    for (; at.kept < count; at.weight += c[at.kept++].weight) {
        double least = (double)s->min_p * (double)c[0].weight;
        at.found = at.kept > 0 &&
                   ((s->top_k > 0 && at.kept == s->top_k) || (double)c[at.kept].weight < least ||
                    top_p_reached(s, at.weight, total));
        if (at.found)
            return at;
    }
    at.found = at.weight == total || (s->top_k > 0 && at.kept == s->top_k) ||
               top_p_reached(s, at.weight, total);
    return at;
}

/* Draws a token. -1: the `count` known candidates do not suffice, because the draw, or the cut of
 * top_k, top_p or min_p, lies beyond them. */
static int candidates_draw(const candidate *c, int count, const llm_sampling *s, uint64_t total,
                           uint64_t seed, int step) {
    cut end = candidates_cut(c, count, s, total);
    bool cuts = s->top_k > 0 || s->min_p > 0 || (s->top_p < 1 && s->top_p > 0);
    if (!end.found && cuts)
        return -1;
    uint64_t at = (uint64_t)(uniform(seed, step) * (double)(end.found ? end.weight : total));
    for (int i = 0; i < end.kept; i++) {
        if (at < c[i].weight)
            return c[i].id;
        at -= c[i].weight;
    }
    return end.found ? c[end.kept - 1].id : -1;
}

int sample_token(const float *logits, int count, const llm_sampling *sampling, uint64_t seed,
                 int step) {
    int best = sample_greedy(logits, count);
    if (!(sampling->temperature > 0))
        return best;
    candidate *c = mem_alloc(sizeof *c * (size_t)count);
    uint64_t total = 0;
    int n = 0;
    for (int i = 0; i < count; i++) {
        uint64_t weight = sample_weight(logits[i], logits[best], sampling->temperature);
        if (weight > 0) {
            c[n++] = (candidate){weight, logits[i], i};
            total += weight;
        }
    }
    qsort(c, (size_t)n, sizeof *c, by_logit);
    int id = n > 0 ? candidates_draw(c, n, sampling, total, seed, step) : best;
    free(c);
    return id;
}

int sample_likeliest(const float *logits, const llm_token *ids, int count, uint64_t total,
                     const llm_sampling *sampling, uint64_t seed, int step) {
    candidate c[PASS_DRAW];
    int n = 0;
    for (; n < count; n++) {
        uint64_t weight = sample_weight(logits[n], logits[0], sampling->temperature);
        if (weight == 0)
            break;
        c[n] = (candidate){weight, logits[n], ids[n]};
    }
    return n > 0 ? candidates_draw(c, n, sampling, total, seed, step) : ids[0];
}
