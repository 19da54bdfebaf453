/*
 * retention.c - the score by which all caches choose victims: the cache on disk, KV blocks on a
 * GPU, and KV blocks in memory. Each cache counts uses and evicts by itself.
 */
#include "storage/base.h"

#include <math.h>

/* The value whose log2 is the score halves with every TURNOVERS * held uses of other entries. */
static const double TURNOVERS = 4;

double retention_score(double uses, double saves, double unused, double held) {
    return log2((uses + 1) * saves) - unused / (TURNOVERS * BASE_MAX(held, 1));
}
