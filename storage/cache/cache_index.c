/*
 * cache_index.c - what the cache holds, in memory: a hash table of entries with their use, and the
 * order of eviction.
 *
 * Invariant: children counts live entries that name an entry as their parent, so an entry with
 * children is never evicted before them: a block without the blocks above it could never be
 * reached. Knows no LMDB.
 */
#include <stdlib.h>
#include <string.h>

#include "cache_int.h"

enum { PAGE = 4096, PAGE_HEADER = 16, SMALL_MAX = 2000, SMALL_OVERHEAD = 192 };

/* Small values share leaf pages, which are about two thirds full, and have a use record; large
 * ones have pages of their own. */
uint64_t cache_disk_bytes(size_t n) {
    if (n <= SMALL_MAX)
        return n + n / 2 + SMALL_OVERHEAD;
    return (n + PAGE_HEADER + PAGE - 1) / PAGE * PAGE + SMALL_OVERHEAD;
}

static int bucket_of(const cache_index *x, uint8_t space, hash128 key) {
    return (int)(hash_mix(key.low ^ space, key.high) & (uint64_t)(x->nbuckets - 1));
}

void index_clear(cache_index *x) {
    free(x->entries);
    free(x->buckets);
    free(x->families);
    *x = (cache_index){.free = -1, .clock = x->clock, .sketch = x->sketch};
}

void index_free(cache_index *x) {
    index_clear(x);
    free(x->sketch);
    *x = (cache_index){.free = -1};
}

/* ---- how often a key is wanted --------------------------------------------------------------- */

enum { NOTED_MIN = 4096, NOTED_PER_ENTRY = 16 };

static unsigned sketch_slot(uint8_t space, hash128 key, int row) {
    return (unsigned)(hash_mix(key.low ^ space, key.high + (uint64_t)row) & (SKETCH_WIDTH - 1));
}

static void sketch_halve(cache_sketch *s) {
    for (int row = 0; row < SKETCH_ROWS; row++)
        for (int i = 0; i < SKETCH_WIDTH; i++)
            s->counts[row][i] /= 2;
    s->noted = 0;
}

void index_note(cache_index *x, uint8_t space, hash128 key) {
    if (!x->sketch)
        x->sketch = mem_zalloc(sizeof *x->sketch);
    cache_sketch *s = x->sketch;
    for (int row = 0; row < SKETCH_ROWS; row++) {
        uint8_t *count = &s->counts[row][sketch_slot(space, key, row)];
        *count = (uint8_t)(*count + (*count < SKETCH_MAX));
    }
    if (++s->noted > (uint64_t)NOTED_PER_ENTRY * (uint64_t)BASE_MAX(x->live, NOTED_MIN))
        sketch_halve(s);
}

static unsigned index_frequency(const cache_index *x, uint8_t space, hash128 key) {
    unsigned least = x->sketch ? SKETCH_MAX : 0;
    for (int row = 0; x->sketch && row < SKETCH_ROWS; row++)
        least = BASE_MIN(least, (unsigned)x->sketch->counts[row][sketch_slot(space, key, row)]);
    return least;
}

/* ---- the table ------------------------------------------------------------------------------- */

static bool has_parent(const cache_entry *e) {
    return e->parent.low != 0 || e->parent.high != 0;
}

/* Puts an entry into its bucket, and among its parent's children. */
static void chain(cache_index *x, int i) {
    cache_entry *e = &x->entries[i];
    int *bucket = &x->buckets[bucket_of(x, e->space, e->key)];
    e->next = *bucket;
    *bucket = i;
    e->elder = e->younger = -1;
    if (!has_parent(e))
        return;
    int *family = &x->families[bucket_of(x, e->space, e->parent)];
    e->younger = *family;
    if (*family >= 0)
        x->entries[*family].elder = i;
    *family = i;
}

static void unchain(cache_index *x, int i) {
    cache_entry *e = &x->entries[i];
    int *at = &x->buckets[bucket_of(x, e->space, e->key)];
    while (*at != i)
        at = &x->entries[*at].next;
    *at = e->next;
    if (!has_parent(e))
        return;
    if (e->younger >= 0)
        x->entries[e->younger].elder = e->elder;
    if (e->elder >= 0)
        x->entries[e->elder].younger = e->younger;
    else
        x->families[bucket_of(x, e->space, e->parent)] = e->younger;
}

static void rehash(cache_index *x) {
    x->nbuckets = BASE_MAX(x->nbuckets * 2, 1024);
    size_t bytes = sizeof *x->buckets * (size_t)x->nbuckets;
    x->buckets = mem_realloc(x->buckets, bytes);
    x->families = mem_realloc(x->families, bytes);
    memset(x->buckets, 0xff, bytes);
    memset(x->families, 0xff, bytes);
    for (int i = 0; i < x->count; i++)
        if (x->entries[i].live)
            chain(x, i);
}

static uint32_t count_children(const cache_index *x, const cache_entry *e) {
    uint32_t n = 0;
    for (int i = x->families[bucket_of(x, e->space, e->key)]; i >= 0; i = x->entries[i].younger)
        n += x->entries[i].space == e->space && hash128_equal(x->entries[i].parent, e->key);
    return n;
}

cache_entry *index_find(cache_index *x, uint8_t space, hash128 key) {
    if (!x->nbuckets)
        return NULL;
    for (int i = x->buckets[bucket_of(x, space, key)]; i >= 0; i = x->entries[i].next)
        if (x->entries[i].space == space && hash128_equal(x->entries[i].key, key))
            return &x->entries[i];
    return NULL;
}

static cache_entry *parent_of(cache_index *x, const cache_entry *e) {
    return has_parent(e) ? index_find(x, e->space, e->parent) : NULL;
}

cache_entry *index_add(cache_index *x, uint8_t space, hash128 key, hash128 parent, double cost,
                       uint64_t bytes) {
    if (x->count == 0)
        x->free = -1;
    if (x->live >= x->nbuckets)
        rehash(x);
    int i = x->free;
    if (i >= 0) {
        x->free = x->entries[i].next;
    } else {
        if (x->count == x->cap) {
            x->cap = BASE_MAX(x->cap * 2, 256);
            x->entries = mem_realloc(x->entries, sizeof *x->entries * (size_t)x->cap);
        }
        i = x->count++;
    }
    cache_entry *e = &x->entries[i];
    *e = (cache_entry){.key = key,
                       .parent = parent,
                       .space = space,
                       .live = true,
                       .changed = true,
                       .bytes = BASE_MAX(bytes, (uint64_t)1),
                       .cost = cost > 0 ? cost : 0.001};
    e->born = e->used = ++x->clock;
    chain(x, i);
    e->children = count_children(x, e);
    x->live++;
    x->bytes += e->bytes;
    x->of[space].entries++;
    x->of[space].bytes += e->bytes;
    cache_entry *parent_entry = parent_of(x, e);
    if (parent_entry)
        parent_entry->children++;
    return e;
}

void index_remove(cache_index *x, cache_entry *e) {
    int i = (int)(e - x->entries);
    unchain(x, i);
    cache_entry *parent = parent_of(x, e);
    if (parent && parent->children)
        parent->children--;
    x->bytes -= e->bytes;
    x->of[e->space].entries--;
    x->of[e->space].bytes -= e->bytes;
    index_pin(x, e, 0);
    x->live--;
    e->live = false;
    e->next = x->free;
    x->free = i;
}

void index_pin(cache_index *x, cache_entry *e, uint32_t pins) {
    cache_space_stats *of = &x->of[e->space];
    if (pins > 0 && e->pins == 0) {
        of->pinned++;
        of->pinned_bytes += e->bytes;
    } else if (pins == 0 && e->pins > 0) {
        of->pinned--;
        of->pinned_bytes -= e->bytes;
    }
    e->pins = pins;
}

void index_touch(cache_index *x, cache_entry *e) {
    e->hits++;
    e->used = ++x->clock;
    e->changed = true;
    index_note(x, e->space, e->key);
}

/* ---- eviction -------------------------------------------------------------------------------- */

typedef struct candidate {
    double rank;
    uint64_t used; /* breaks ties: of equal ones the longest unused goes */
    cache_entry *entry;
} candidate;

/* COST: what a byte of it saves, by how often it is wanted and by how long it was not (worth_of).
 */
static double rank_of(const cache_index *x, const cache_entry *e, cache_policy policy) {
    switch (policy) {
    case CACHE_FIFO:
        return (double)e->born;
    case CACHE_LRU:
        return (double)e->used;
    case CACHE_COST:
        break;
    }
    return worth_of(index_frequency(x, e->space, e->key), e->cost / (double)e->bytes,
                    (double)(x->clock - e->used), (double)x->live);
}

static bool goes_before(const candidate *a, const candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->used < b->used;
}

/* A heap whose first goes first. */
static void heap_push(candidate *heap, size_t *n, candidate c) {
    size_t at = (*n)++;
    for (; at > 0 && goes_before(&c, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = c;
}

static candidate heap_pop(candidate *heap, size_t *n) {
    candidate first = heap[0], last = heap[--*n];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < *n; at = child) {
        if (child + 1 < *n && goes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!goes_before(&heap[child], &last))
            break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return first;
}

/* A parent stands in the heap once its last child has been chosen, which a pinned one never is: so
 * a chain of blocks that is worth little goes whole before any leaf that is worth more. */
size_t index_victims(cache_index *x, cache_policy policy, uint64_t bytes, cache_entry **out,
                     size_t max) {
    candidate *heap = mem_alloc(sizeof *heap * (size_t)(x->count + 1));
    uint32_t *children = mem_alloc(sizeof *children * (size_t)(x->count + 1));
    size_t n = 0, chosen = 0;
    uint64_t freed = 0;
    for (int i = 0; i < x->count; i++) {
        cache_entry *e = &x->entries[i];
        children[i] = e->children;
        if (e->live && e->children == 0 && e->pins == 0)
            heap_push(heap, &n, (candidate){rank_of(x, e, policy), e->used, e});
    }
    while (n > 0 && freed < bytes && chosen < max) {
        cache_entry *e = heap_pop(heap, &n).entry;
        out[chosen++] = e;
        freed += e->bytes;
        cache_entry *parent = parent_of(x, e);
        if (parent && children[parent - x->entries] > 0 && --children[parent - x->entries] == 0 &&
            parent->pins == 0)
            heap_push(heap, &n, (candidate){rank_of(x, parent, policy), parent->used, parent});
    }
    free(children);
    free(heap);
    return chosen;
}
