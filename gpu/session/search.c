/*
 * search.c - finds the likeliest literal of a CHOICE without scoring all: best first.
 *
 * The probability of a literal is the product of its branches' shares, so it only falls from a
 * branch to what follows it. The search keeps the open branches (reached, but not yet scored)
 * and takes the likeliest of them until none is as likely as the likeliest literal found.
 *
 *      root --" red"--> A (open, .2)            B is taken first; "green" (.5) is found; then A
 *           --" gr"---> B (open, .7)            is not as likely, and the search ends
 *                       B --"een"--> green .5
 *
 * Invariant: literal and probability are those of guide_best, to the bit. Both read the same
 * logarithms and add them in the same order, from the root down. An open branch as likely as the
 * likeliest literal is taken too: a literal that is listed earlier may be below it. schedule.c adds
 * the tokens of a taken branch to a pass. One branch of a request is taken at a time: taking several
 * saves passes, but costs more in tokens (tests/bench/README.md).
 */
#include <math.h>
#include <stdlib.h>

#include "session_int.h"
#include "storage/containers.h"

static bool likelier(const search *x, search_branch a, search_branch b) {
    (void)x;
    return a.log_prob != b.log_prob ? a.log_prob > b.log_prob : a.branch < b.branch;
}

HEAP_DEFINE(open, search_branch, const search *, likelier, HEAP_NOT_TOLD);

search *search_new(const llm_guide *guide) {
    search *x = mem_zalloc(sizeof *x);
    x->guide = guide;
    x->taken.branch = -1;
    x->best = -1;
    x->best_log_prob = -INFINITY;
    return x;
}

void search_free(search *x) {
    if (x == NULL)
        return;
    free(x->open);
    free(x);
}

static bool may_win(const search *x, double log_prob) {
    return x->best < 0 || log_prob >= x->best_log_prob;
}

bool search_take(search *x) {
    if (x->nopen == 0 || !may_win(x, x->open[0].log_prob))
        return false;
    x->taken = open_pop(x, x->open, &x->nopen);
    x->placed = false;
    return true;
}

static void literal_found(search *x, int literal, double log_prob) {
    if (!may_win(x, log_prob) ||
        (log_prob == x->best_log_prob && x->best >= 0 && x->best < literal))
        return;
    x->best = literal;
    x->best_log_prob = log_prob;
}

void search_learn(search *x, const float *logits) {
    bool root = x->taken.branch < 0;
    const guide_branch *b = &x->guide->branches[root ? 0 : x->taken.branch];
    double from = root ? 0 : x->taken.log_prob;
    double *log_prob = mem_alloc(sizeof *log_prob * (size_t)b->count);
    guide_softmax(logits, b->count, log_prob);
    for (int i = 0; i < b->count; i++)
        if (b->next[i] < 0)
            literal_found(x, guide_leaf(b->next[i]), from + log_prob[i]);
    for (int i = 0; i < b->count; i++) {
        search_branch next = {from + log_prob[i], b->next[i]};
        if (next.branch < 0 || !may_win(x, next.log_prob))
            continue;
        ARRAY_RESERVE(x->open, x->nopen + 1, x->open_cap);
        open_push(x, x->open, &x->nopen, next);
    }
    x->taken.branch = -1;
    free(log_prob);
}

bool search_is_done(const search *x) {
    return x->taken.branch < 0 && x->best >= 0 &&
           (x->nopen == 0 || !may_win(x, x->open[0].log_prob));
}
