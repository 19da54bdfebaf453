/*
 * cache_index.c - the cache's index in memory: entries with their use, and the choice of victims.
 *
 * Invariant: an entry's `children` is the number of live entries with it as parent. An entry is
 * never evicted before its children, because a KV block cannot be used without its parent.
 * No LMDB here.
 */
#include <stdlib.h>
#include <string.h>

#include "cache_int.h"

enum { PAGE = 4096, PAGE_HEADER = 16, SMALL_MAX = 2000, SMALL_OVERHEAD = 192 };

/* Estimates the bytes on disk of a value and its use record. Small values are in leaf pages that
 * are about two thirds full; large values have overflow pages. */
uint64_t cache_disk_bytes(size_t n) {
    if (n <= SMALL_MAX)
        return n + n / 2 + SMALL_OVERHEAD;
    return (n + PAGE_HEADER + PAGE - 1) / PAGE * PAGE + SMALL_OVERHEAD;
}

static uint64_t hash_of(uint8_t space, hash128 key) {
    return hash_mix(key.low ^ space, key.high);
}

void index_clear(cache_index *x) {
    free(x->entries);
    hash_index_free(&x->keys);
    hash_index_free(&x->families);
    *x = (cache_index){.free = -1, .clock = x->clock, .sketch = x->sketch};
}

void index_free(cache_index *x) {
    index_clear(x);
    free(x->sketch);
    *x = (cache_index){.free = -1};
}

/* ---- request frequency ----------------------------------------------------------------------- */

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

/* Returns the slot with the first child of a key. The other children follow that child in a
 * list. */
static hash_slot *family_of(const cache_index *x, uint8_t space, hash128 parent) {
    uint64_t hash = hash_of(space, parent);
    for (hash_slot *s = hash_index_first(&x->families, hash); s;
         s = hash_index_next(&x->families, s)) {
        const cache_entry *child = &x->entries[s->item];
        if (child->space == space && hash128_equal(child->parent, parent))
            return s;
    }
    return NULL;
}

static void join_family(cache_index *x, int i) {
    cache_entry *e = &x->entries[i];
    e->elder = e->younger = -1;
    if (!has_parent(e))
        return;
    hash_slot *first = family_of(x, e->space, e->parent);
    if (!first) {
        hash_index_add(&x->families, hash_of(e->space, e->parent), (uint32_t)i);
        return;
    }
    e->younger = (int)first->item;
    x->entries[first->item].elder = i;
    first->item = (uint32_t)i;
}

static void leave_family(cache_index *x, int i) {
    const cache_entry *e = &x->entries[i];
    if (!has_parent(e))
        return;
    hash_slot *first = e->elder < 0 ? family_of(x, e->space, e->parent) : NULL;
    if (e->younger >= 0)
        x->entries[e->younger].elder = e->elder;
    if (e->elder >= 0)
        x->entries[e->elder].younger = e->younger;
    else if (e->younger >= 0)
        first->item = (uint32_t)e->younger;
    else
        hash_index_remove(&x->families, first);
}

static uint32_t count_children(const cache_index *x, const cache_entry *e) {
    uint32_t n = 0;
    const hash_slot *first = family_of(x, e->space, e->key);
    for (int i = first ? (int)first->item : -1; i >= 0; i = x->entries[i].younger)
        n++;
    return n;
}

cache_entry *index_find(cache_index *x, uint8_t space, hash128 key) {
    uint64_t hash = hash_of(space, key);
    for (hash_slot *s = hash_index_first(&x->keys, hash); s; s = hash_index_next(&x->keys, s)) {
        cache_entry *e = &x->entries[s->item];
        if (e->space == space && hash128_equal(e->key, key))
            return e;
    }
    return NULL;
}

static cache_entry *parent_of(cache_index *x, const cache_entry *e) {
    return has_parent(e) ? index_find(x, e->space, e->parent) : NULL;
}

cache_entry *index_add(cache_index *x, uint8_t space, hash128 key, hash128 parent, double cost,
                       uint64_t bytes) {
    if (x->count == 0)
        x->free = -1;
    int i = x->free;
    if (i >= 0) {
        x->free = x->entries[i].next_free;
    } else {
        ARRAY_RESERVE(x->entries, x->count + 1, x->cap);
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
    hash_index_add(&x->keys, hash_of(space, key), (uint32_t)i);
    join_family(x, i);
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
    hash_index_remove(&x->keys, hash_index_slot(&x->keys, hash_of(e->space, e->key), (uint32_t)i));
    leave_family(x, i);
    cache_entry *parent = parent_of(x, e);
    if (parent && parent->children)
        parent->children--;
    x->bytes -= e->bytes;
    x->of[e->space].entries--;
    x->of[e->space].bytes -= e->bytes;
    index_pin(x, e, 0);
    x->live--;
    e->live = false;
    e->next_free = x->free;
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
    /* when the value was last used: of equal ranks the least recently used is evicted first */
    uint64_t used;
    cache_entry *entry;
} candidate;

/* Returns an entry's rank; the entry with the least rank is evicted first. */
static double rank_of(const cache_index *x, const cache_entry *e, cache_policy policy) {
    switch (policy) {
    case CACHE_FIFO:
        return (double)e->born;
    case CACHE_LRU:
        return (double)e->used;
    case CACHE_COST:
        break;
    }
    return retention_score(index_frequency(x, e->space, e->key), e->cost / (double)e->bytes,
                           (double)(x->clock - e->used), (double)x->live);
}

static bool goes_before(const void *c, candidate a, candidate b) {
    (void)c;
    return a.rank != b.rank ? a.rank < b.rank : a.used < b.used;
}

HEAP_DEFINE(victims, candidate, const void *, goes_before, HEAP_NOT_TOLD);

/* Chooses victims from a heap. A parent enters the heap when its last child has been chosen. So a
 * chain of blocks of little value is evicted as a whole before any leaf of more value. Pinned
 * entries, and so their parents, never enter. */
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
            victims_push(NULL, heap, &n, (candidate){rank_of(x, e, policy), e->used, e});
    }
    while (n > 0 && freed < bytes && chosen < max) {
        cache_entry *e = victims_pop(NULL, heap, &n).entry;
        out[chosen++] = e;
        freed += e->bytes;
        cache_entry *parent = parent_of(x, e);
        if (parent && children[parent - x->entries] > 0 && --children[parent - x->entries] == 0 &&
            parent->pins == 0)
            victims_push(NULL, heap, &n,
                         (candidate){rank_of(x, parent, policy), parent->used, parent});
    }
    free(children);
    free(heap);
    return chosen;
}
