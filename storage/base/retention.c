/*
 * retention.c - the score by which all caches choose what to evict: the cache on disk, KV blocks on
 * a card, and KV blocks in memory.
 *
 * Counting uses and evicting is left to each cache.
 */
#include "storage/base.h"

#include <math.h>

/* Half-life of a score, in uses of other entries, as a multiple of what the cache has room for. */
static const double TURNOVERS = 4;

double retention_score(double uses, double saves, double unused, double held) {
    return log2((uses + 1) * saves) - unused / (TURNOVERS * BASE_MAX(held, 1));
}
