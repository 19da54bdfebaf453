/*
 * merge.c - the merge loop of byte-pair encoding (BPE), over a hash table of pairs.
 *
 * Invariant: the result is that of merging the pair of lowest rank, of equal ranks the leftmost
 * pair, until no pair is left. Both loops below give this result: short pieces (words) are scanned
 * for the best pair before each merge; for long pieces (CJK runs, SentencePiece text) the pairs are
 * kept in a heap, so that no input takes quadratic time.
 *
 *   slots  [left | right | rank | merged] …   16 bytes each, open addressing, at most half full;
 *                                             a left of -1 is an empty slot
 */
#include "tokenizer_parts_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/containers.h"

enum { SHORT_SYMBOLS = 24 }; /* pieces of up to this many symbols are scanned */

static const uint32_t NO_RANK = UINT32_MAX;

typedef struct pair {
    int32_t left, right;
    uint32_t rank;
    int32_t merged;
} pair;

struct merge_table {
    pair *slots;
    size_t mask, used;
};

/* ---- the table ------------------------------------------------------------------------------ */

static size_t pair_slot(int32_t left, int32_t right) {
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    key *= 0x9e3779b97f4a7c15u;
    return (size_t)(key >> 32 ^ key >> 12);
}

static pair *new_slots(size_t n) {
    pair *slots = mem_alloc(n * sizeof *slots);
    for (size_t i = 0; i < n; i++)
        slots[i] = (pair){-1, -1, NO_RANK, -1};
    return slots;
}

merge_table *merge_table_new(size_t expected_pairs) {
    size_t n = 64;
    while (n < expected_pairs * 2)
        n *= 2;
    merge_table *m = mem_zalloc(sizeof *m);
    m->slots = new_slots(n);
    m->mask = n - 1;
    return m;
}

void merge_table_free(merge_table *m) {
    if (!m)
        return;
    free(m->slots);
    free(m);
}

/* Returns the pair's slot, or the empty slot where the pair would go. */
static pair *find(const merge_table *m, int32_t left, int32_t right) {
    size_t i = pair_slot(left, right) & m->mask;
    while (m->slots[i].left >= 0 && (m->slots[i].left != left || m->slots[i].right != right))
        i = (i + 1) & m->mask;
    return &m->slots[i];
}

static void grow(merge_table *m) {
    pair *old = m->slots;
    size_t n = m->mask + 1;
    m->mask = 2 * n - 1;
    m->slots = new_slots(2 * n);
    for (size_t i = 0; i < n; i++)
        if (old[i].left >= 0)
            *find(m, old[i].left, old[i].right) = old[i];
    free(old);
}

void merge_table_add(merge_table *m, int32_t left, int32_t right, uint32_t rank, int32_t merged) {
    assert(left >= 0 && right >= 0 && merged >= 0);
    if (m->used * 2 > m->mask)
        grow(m);
    pair *p = find(m, left, right);
    if (p->left >= 0 && p->rank <= rank)
        return;
    m->used += p->left < 0;
    *p = (pair){left, right, rank, merged};
}

static uint32_t rank_of(const merge_table *m, int32_t left, int32_t right) {
    return left < 0 || right < 0 ? NO_RANK : find(m, left, right)->rank;
}

/* ---- few symbols ---------------------------------------------------------------------------- */

static size_t merge_short(const merge_table *m, int32_t *ids, size_t n) {
    uint32_t ranks[SHORT_SYMBOLS]; /* ranks[i]: rank of the pair (i, i + 1) */
    for (size_t i = 0; i + 1 < n; i++)
        ranks[i] = rank_of(m, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (ranks[i] < ranks[best])
                best = i;
        if (ranks[best] == NO_RANK)
            break;
        ids[best] = find(m, ids[best], ids[best + 1])->merged;
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        memmove(ranks + best, ranks + best + 1, (n - best) * sizeof *ranks);
        if (best > 0)
            ranks[best - 1] = rank_of(m, ids[best - 1], ids[best]);
        if (best + 1 < n)
            ranks[best] = rank_of(m, ids[best], ids[best + 1]);
    }
    return n;
}

/* ---- many symbols --------------------------------------------------------------------------- */

/* A pair in the heap. Symbols form a linked list: next[i] is the index of the symbol after i; a
 * symbol that was merged into its left neighbour has id DEAD. */
typedef struct candidate {
    uint32_t rank;
    uint32_t at;         /* index of the left symbol; equal ranks merge in this order */
    int32_t left, right; /* ids of the pair; the candidate is skipped if the symbols have changed */
} candidate;

static inline bool merges_before(const merge_table *m, candidate a, candidate b) {
    (void)m;
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

HEAP_DEFINE(heap, candidate, const merge_table *, merges_before, HEAP_NOT_TOLD);

enum { DEAD = INT32_MIN };

static void candidate_add(const merge_table *m, candidate *heap, size_t *n, const int32_t *ids,
                          uint32_t left, uint32_t right) {
    uint32_t rank = rank_of(m, ids[left], ids[right]);
    if (rank != NO_RANK)
        heap_push(m, heap, n, (candidate){rank, left, ids[left], ids[right]});
}

static size_t merge_long(const merge_table *m, int32_t *ids, size_t n) {
    uint32_t *next = mem_alloc(2 * n * sizeof *next), *previous = next + n;
    /* n - 1 candidates at first, and at most two more per merge; there are at most n - 1 merges */
    candidate *heap = mem_alloc(3 * n * sizeof *heap);
    size_t queued = 0;
    for (uint32_t i = 0; i < n; i++) {
        next[i] = i + 1;
        previous[i] = i - 1; /* previous[0] is not read */
        if (i + 1 < n)
            candidate_add(m, heap, &queued, ids, i, i + 1);
    }
    while (queued > 0) {
        candidate c = heap_pop(m, heap, &queued);
        uint32_t right = next[c.at];
        if (ids[c.at] != c.left || right >= n || ids[right] != c.right)
            continue;
        ids[c.at] = find(m, c.left, c.right)->merged;
        ids[right] = DEAD;
        next[c.at] = next[right];
        if (next[c.at] < n)
            previous[next[c.at]] = c.at;
        if (c.at > 0)
            candidate_add(m, heap, &queued, ids, previous[c.at], c.at);
        if (next[c.at] < n)
            candidate_add(m, heap, &queued, ids, c.at, next[c.at]);
    }
    size_t left = 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] != DEAD)
            ids[left++] = ids[i];
    free(heap);
    free(next);
    return left;
}

size_t merge_run(const merge_table *m, int32_t *ids, size_t n) {
    if (n <= 1)
        return n;
    return n <= SHORT_SYMBOLS ? merge_short(m, ids, n) : merge_long(m, ids, n);
}
