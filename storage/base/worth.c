/*
 * worth.c - which of the things that are kept goes first: the one rule of the cache on disk, of the
 * KV blocks on a card, and of those in memory.
 *
 * Who keeps what, counts its use and frees room is the keeper's.
 */
#include "storage/base.h"

#include <math.h>

/* Uses of others, in times what the keeper holds, by which a worth halves. */
static const double TURNOVERS = 4;

double worth_of(double wanted, double saves, double unused, double held) {
    return log2((wanted + 1) * saves) - unused / (TURNOVERS * BASE_MAX(held, 1));
}
