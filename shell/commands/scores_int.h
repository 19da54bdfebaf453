/*
 * scores_int.h - how well answers agree with the truth.
 *
 * A class is a number in [0, n); SCORES_NONE stands for NULL. Functions depend on their arguments
 * only; what they return is allocated in `mem`.
 */
#ifndef KVASIR_SCORES_INT_H
#define KVASIR_SCORES_INT_H

#include "storage/base.h"

enum { SCORES_NONE = -1 };

typedef struct scores {
    int n;           /* number of classes */
    uint64_t *table; /* [n][n]: rows by truth, then answer (the confusion table) */
    /* rows with both; of these, equal; without truth; with truth but without answer */
    uint64_t rows, equal, no_truth, no_answer;
    int commonest;              /* the truth of most rows; -1: no rows */
    double agreement;           /* equal / rows */
    double balanced;            /* balanced accuracy: the mean recall of the truth's classes */
    double commonest_agreement; /* the agreement if every answer were `commonest` */
    /* Area under the ROC curve: the chance that a row of a class is given a higher probability of
     * it than a row of another class, ties counted half; the mean over the classes. */
    double auc;
} scores;

/* truth, answer: [rows]. probs: [rows][n], the probability of each class; NULL: unknown. What is
 * undefined, such as the AUC if all rows have the same truth, is NAN. */
void scores_of(const int *truth, const int *answer, const double *probs, size_t rows, int n,
               arena *mem, scores *out);
/* Rows of which the truth is this class, or the answer. */
uint64_t scores_of_truth(const scores *s, int class);
uint64_t scores_of_answer(const scores *s, int class);
/* Returns the recall of a class; NAN: it is no row's truth. */
double scores_recall(const scores *s, int class);
/* The share of rows with both answers in which they are equal; NAN: no rows. */
double scores_equal(const int *a, const int *b, size_t rows);

#endif
