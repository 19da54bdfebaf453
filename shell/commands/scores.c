/*
 * scores.c - agreement, balanced accuracy, AUC and the confusion table of answers whose truth is
 * known.
 *
 * Invariant: a row without truth or without answer counts for no score.
 */
#include <math.h>
#include <stdlib.h>

#include "scores_int.h"

typedef struct ranked {
    double prob;
    bool member; /* the row's truth is the class */
} ranked;

static int by_prob(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    return (x->prob > y->prob) - (x->prob < y->prob);
}

/* Returns the AUC of n rows: from the sum of the ranks of the members, where equal probabilities
 * share the mean of their ranks (the Mann-Whitney statistic). NAN: all or none are members. */
static double auc_of(ranked *rows, size_t n) {
    double sum = 0, members = 0;
    qsort(rows, n, sizeof *rows, by_prob);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && rows[end].prob == rows[i].prob; end++)
            continue;
        double rank = (double)(i + 1 + end) / 2; /* the mean of i + 1, …, end */
        for (size_t k = i; k < end; k++) {
            sum += rows[k].member ? rank : 0;
            members += rows[k].member;
        }
    }
    double others = (double)n - members;
    return members > 0 && others > 0 ? (sum - members * (members + 1) / 2) / (members * others)
                                     : NAN;
}

static bool counts(const int *truth, const int *answer, size_t row) {
    return truth[row] != SCORES_NONE && answer[row] != SCORES_NONE;
}

static double mean_auc(const int *truth, const int *answer, const double *probs, size_t rows,
                       int n) {
    double sum = 0;
    int classes = 0;
    ranked *list = mem_alloc(sizeof *list * BASE_MAX(rows, (size_t)1));
    for (int k = 0; k < n; k++) {
        size_t count = 0;
        for (size_t i = 0; i < rows; i++)
            if (counts(truth, answer, i))
                list[count++] = (ranked){probs[i * (size_t)n + (size_t)k], truth[i] == k};
        double auc = auc_of(list, count);
        if (!isnan(auc)) {
            sum += auc;
            classes++;
        }
    }
    free(list);
    return classes > 0 ? sum / classes : NAN;
}

uint64_t scores_of_truth(const scores *s, int class) {
    uint64_t sum = 0;
    for (int k = 0; k < s->n; k++)
        sum += s->table[class * s->n + k];
    return sum;
}

uint64_t scores_of_answer(const scores *s, int class) {
    uint64_t sum = 0;
    for (int k = 0; k < s->n; k++)
        sum += s->table[k * s->n + class];
    return sum;
}

double scores_recall(const scores *s, int class) {
    uint64_t rows = scores_of_truth(s, class);
    return rows ? (double)s->table[class * s->n + class] / (double)rows : NAN;
}

void scores_of(const int *truth, const int *answer, const double *probs, size_t rows, int n,
               arena *mem, scores *out) {
    *out = (scores){.n = n, .commonest = -1, .agreement = NAN, .balanced = NAN, .auc = NAN};
    out->table = ARENA_ARRAY(mem, uint64_t, (size_t)n * (size_t)n + 1);
    for (size_t i = 0; i < rows; i++) {
        out->no_truth += truth[i] == SCORES_NONE;
        out->no_answer += truth[i] != SCORES_NONE && answer[i] == SCORES_NONE;
        if (!counts(truth, answer, i))
            continue;
        out->rows++;
        out->equal += truth[i] == answer[i];
        out->table[truth[i] * n + answer[i]]++;
    }
    uint64_t most = 0;
    double recalls = 0;
    int classes = 0;
    for (int k = 0; k < n; k++) {
        uint64_t of_class = scores_of_truth(out, k);
        if (of_class == 0)
            continue;
        recalls += scores_recall(out, k);
        classes++;
        if (of_class > most) {
            most = of_class;
            out->commonest = k;
        }
    }
    if (out->rows > 0) {
        out->agreement = (double)out->equal / (double)out->rows;
        out->balanced = recalls / classes;
        out->commonest_agreement = (double)most / (double)out->rows;
    }
    if (probs != NULL)
        out->auc = mean_auc(truth, answer, probs, rows, n);
}

double scores_equal(const int *a, const int *b, size_t rows) {
    size_t both = 0, equal = 0;
    for (size_t i = 0; i < rows; i++) {
        both += counts(a, b, i);
        equal += counts(a, b, i) && a[i] == b[i];
    }
    return both ? (double)equal / (double)both : NAN;
}
