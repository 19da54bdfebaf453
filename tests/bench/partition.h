/*
 * partition.h - the division of ordered requests into intervals, one for each of n equal engines,
 * whose slowest engine computes fewest tokens. Used by bench_route and by the test of gpu/remote.
 *
 * An engine that gets an interval [a, b) computes shared[a] + sum of (count - shared) over it: the
 * size of a union of paths from the root of the prefix tree. It never grows when the interval
 * shrinks, so filling engines one after another up to a limit needs the fewest engines for that
 * limit, and bisection over the limit finds the best one.
 */
#ifndef KVASIR_PARTITION_H
#define KVASIR_PARTITION_H

#include <limits.h>

#include "storage/base.h"

/* Tokens of each request; how many of them the request before it shares (the first: 0). */
typedef struct partition_input {
    const uint32_t *count, *shared;
    size_t rows;
} partition_input;

/* The number of intervals of at most `limit` tokens, INT_MAX if a request has more. `starts`: where
 * each begins, or NULL. */
static inline int partition_fill(const partition_input *in, uint64_t limit, size_t *starts) {
    int n = 0;
    for (size_t i = 0; i < in->rows;) {
        uint64_t cost = in->count[i];
        if (cost > limit)
            return INT_MAX;
        if (starts)
            starts[n] = i;
        n++;
        while (++i < in->rows && cost + in->count[i] - in->shared[i] <= limit)
            cost += in->count[i] - in->shared[i];
    }
    return n;
}

/* Returns the tokens of the slowest engine under the best division into at most `engines`
 * intervals, and fills starts[engines]; *n: the number of intervals. */
static inline uint64_t partition_best(const partition_input *in, int engines, size_t *starts,
                                      int *n) {
    uint64_t tree = 0, longest = 0;
    for (size_t i = 0; i < in->rows; i++) {
        tree += in->count[i] - in->shared[i];
        longest = BASE_MAX(longest, (uint64_t)in->count[i]);
    }
    uint64_t low = BASE_MAX(longest, tree / (uint64_t)engines);
    uint64_t high = tree / (uint64_t)engines + 2 * longest; /* always enough: gpu/README.md */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (partition_fill(in, middle, NULL) <= engines)
            high = middle;
        else
            low = middle + 1;
    }
    *n = partition_fill(in, low, starts);
    return low;
}

#endif
