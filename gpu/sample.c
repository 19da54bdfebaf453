/*
 * sample.c - from logits to a token.
 *
 * Invariant: a pure function of its arguments; randomness comes from (seed, step) alone, so a row's
 * sample never depends on the batch it ran in.
 */
#include <math.h>
#include <stdlib.h>

#include "session_int.h"

static int sample_greedy(const float *logits, int count) {
    int best = 0;
    for (int i = 1; i < count; i++) {
        if (logits[i] > logits[best]) {
            best = i;
        }
    }
    return best;
}

typedef struct candidate {
    double p;
    int id;
} candidate;

static int by_probability(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p ? 1 : -1) : x->id - y->id;
}

static double uniform(uint64_t seed, int step) {
    uint64_t bits = hash_mix(hash_mix(seed, 0x6b766173u), (uint64_t)step);
    return (double)(bits >> 11) * 0x1p-53;
}

/* How many of the sorted candidates survive top_k, top_p and min_p; at least one. */
static int candidates_keep(const candidate *c, int count, const llm_sampling *s, double total) {
    int keep = s->top_k > 0 ? BASE_MIN(s->top_k, count) : count;
    if (s->min_p > 0) {
        while (keep > 1 && c[keep - 1].p < (double)s->min_p * c[0].p) {
            keep--;
        }
    }
    if (s->top_p < 1 && s->top_p > 0) {
        double sum = 0;
        int n = 0;
        while (n < keep && sum < (double)s->top_p * total) {
            sum += c[n++].p;
        }
        keep = BASE_MAX(n, 1);
    }
    return keep;
}

int sample_token(const float *logits, int count, const llm_sampling *sampling, uint64_t seed,
                 int step) {
    int best = sample_greedy(logits, count);
    if (!(sampling->temperature > 0)) {
        return best;
    }
    candidate *c = mem_alloc(sizeof *c * (size_t)count);
    double total = 0;
    int n = 0;
    for (int i = 0; i < count; i++) {
        double p = exp(((double)logits[i] - (double)logits[best]) / (double)sampling->temperature);
        if (p > 1e-12) { /* the rest cannot be drawn with 53 bits that matter */
            c[n++] = (candidate){p, i};
            total += p;
        }
    }
    qsort(c, (size_t)n, sizeof *c, by_probability);
    int keep = candidates_keep(c, n, sampling, total);
    double sum = 0;
    for (int i = 0; i < keep; i++) {
        sum += c[i].p;
    }
    double at = uniform(seed, step) * sum;
    int chosen = 0;
    while (chosen < keep - 1 && at >= c[chosen].p) {
        at -= c[chosen++].p;
    }
    int id = c[chosen].id;
    free(c);
    return id;
}
