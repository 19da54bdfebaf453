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
    uint64_t clock = x->clock;
    index_free(x);
    x->clock = clock;
}

void index_free(cache_index *x) {
    free(x->entries);
    free(x->buckets);
    *x = (cache_index){.free = -1};
}

static void rehash(cache_index *x) {
    x->nbuckets = BASE_MAX(x->nbuckets * 2, 1024);
    x->buckets = mem_realloc(x->buckets, sizeof *x->buckets * (size_t)x->nbuckets);
    memset(x->buckets, 0xff, sizeof *x->buckets * (size_t)x->nbuckets);
    for (int i = 0; i < x->count; i++) {
        cache_entry *e = &x->entries[i];
        if (!e->live)
            continue;
        int b = bucket_of(x, e->space, e->key);
        e->next = x->buckets[b];
        x->buckets[b] = i;
    }
}

cache_entry *index_find(cache_index *x, uint8_t space, hash128 key) {
    if (!x->nbuckets)
        return NULL;
    for (int i = x->buckets[bucket_of(x, space, key)]; i >= 0; i = x->entries[i].next)
        if (x->entries[i].space == space && hash128_equal(x->entries[i].key, key))
            return &x->entries[i];
    return NULL;
}

static double priority_of(const cache_index *x, const cache_entry *e) {
    return x->age + (double)(e->hits + 1) * e->cost / (double)e->bytes;
}

static cache_entry *parent_of(cache_index *x, const cache_entry *e) {
    if (e->parent.low == 0 && e->parent.high == 0)
        return NULL;
    return index_find(x, e->space, e->parent);
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
    int b = bucket_of(x, space, key);
    *e = (cache_entry){.key = key,
                       .parent = parent,
                       .space = space,
                       .live = true,
                       .changed = true,
                       .bytes = BASE_MAX(bytes, (uint64_t)1),
                       .cost = cost > 0 ? cost : 0.001,
                       .next = x->buckets[b]};
    e->born = e->used = ++x->clock;
    e->priority = priority_of(x, e);
    x->buckets[b] = i;
    x->live++;
    x->bytes += e->bytes;
    x->per_space[space]++;
    cache_entry *parent_entry = parent_of(x, e);
    if (parent_entry)
        parent_entry->children++;
    return e;
}

void index_remove(cache_index *x, cache_entry *e) {
    int i = (int)(e - x->entries);
    int *at = &x->buckets[bucket_of(x, e->space, e->key)];
    while (*at != i)
        at = &x->entries[*at].next;
    *at = e->next;
    cache_entry *parent = parent_of(x, e);
    if (parent && parent->children)
        parent->children--;
    x->bytes -= e->bytes;
    x->per_space[e->space]--;
    x->live--;
    e->live = false;
    e->next = x->free;
    x->free = i;
}

void index_touch(cache_index *x, cache_entry *e) {
    e->hits++;
    e->used = ++x->clock;
    e->priority = priority_of(x, e);
    e->changed = true;
}

void index_link(cache_index *x) {
    for (int i = 0; i < x->count; i++)
        x->entries[i].children = 0;
    for (int i = 0; i < x->count; i++) {
        cache_entry *parent = x->entries[i].live ? parent_of(x, &x->entries[i]) : NULL;
        if (parent)
            parent->children++;
    }
}

/* ---- eviction -------------------------------------------------------------------------------- */

typedef struct candidate {
    double rank;
    uint64_t used; /* breaks ties: of equal ones the longest unused goes */
    cache_entry *entry;
} candidate;

static int compare_candidates(const void *pa, const void *pb) {
    const candidate *a = pa, *b = pb;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->used > b->used) - (a->used < b->used);
}

static double rank_of(const cache_entry *e, cache_policy policy) {
    switch (policy) {
    case CACHE_FIFO:
        return (double)e->born;
    case CACHE_LRU:
        return (double)e->used;
    case CACHE_COST:
        break;
    }
    return e->priority;
}

size_t index_victims(cache_index *x, cache_policy policy, uint64_t bytes, cache_entry **out,
                     size_t max) {
    candidate *all = mem_alloc(sizeof *all * (size_t)BASE_MAX(x->count, 1));
    uint32_t *children = mem_alloc(sizeof *children * (size_t)BASE_MAX(x->count, 1));
    size_t n = 0, chosen = 0;
    uint64_t freed = 0;
    for (int i = 0; i < x->count; i++) {
        children[i] = x->entries[i].children;
        if (x->entries[i].live)
            all[n++] =
                (candidate){rank_of(&x->entries[i], policy), x->entries[i].used, &x->entries[i]};
    }
    if (n)
        qsort(all, n, sizeof *all, compare_candidates);
    /* Each pass takes leaves in order; their parents may be leaves in the next. */
    for (bool progress = true; progress && freed < bytes && chosen < max;) {
        progress = false;
        for (size_t i = 0; i < n && freed < bytes && chosen < max; i++) {
            cache_entry *e = all[i].entry;
            if (!e || children[e - x->entries])
                continue;
            cache_entry *parent = parent_of(x, e);
            if (parent && children[parent - x->entries])
                children[parent - x->entries]--;
            out[chosen++] = e;
            freed += e->bytes;
            all[i].entry = NULL;
            progress = true;
        }
    }
    free(children);
    free(all);
    return chosen;
}
