/*
 * containers.c - growth of arrays and of the hash index (storage/containers.h).
 *
 * Invariant of the index: between an item's home slot (its hash & mask) and its slot no slot is
 * empty.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/containers.h"

static BASE_NORETURN void too_many(size_t items) {
    fprintf(stderr, "kvasir: out of memory (%zu items in one array)\n", items);
    exit(70);
}

/* ---- arrays ---------------------------------------------------------------------------------- */

enum { ARRAY_FIRST = 16 };

void *array_grow(arena *a, void *p, size_t size, size_t need, size_t most, size_t *cap) {
    most = BASE_MIN(most, PTRDIFF_MAX / size);
    if (need > most)
        too_many(need);
    size_t before = *cap, doubled = before > most / 2 ? most : before * 2;
    *cap = BASE_MAX(need, BASE_MAX(doubled, BASE_MIN((size_t)ARRAY_FIRST, most)));
    if (!a)
        return mem_realloc(p, *cap * size);
    void *moved = arena_alloc(a, *cap * size);
    if (before > 0)
        memcpy(moved, p, before * size);
    return moved;
}

/* ---- hash index ------------------------------------------------------------------------------ */

enum { SLOTS_FIRST = 64 };

static void put(hash_index *x, hash_slot slot) {
    uint32_t at = slot.hash & x->mask;
    while (x->slots[at].item != HASH_NONE)
        at = (at + 1) & x->mask;
    x->slots[at] = slot;
}

uint32_t hash_index_slots_for(const hash_index *x, uint32_t items) {
    uint32_t have = x->slots ? x->mask + 1 : 0, slots = BASE_MAX(have, (uint32_t)SLOTS_FIRST);
    items = BASE_MIN(items, HASH_INDEX_MAX);
    while (slots / 2 < items)
        slots *= 2;
    return slots > have ? slots : 0;
}

bool hash_index_move(hash_index *x, hash_slot *slots, uint32_t nslots, const atomic_bool *cancel) {
    enum { CANCEL_EVERY = 1 << 16 };
    hash_index to = *x;
    uint32_t nold = x->slots ? x->mask + 1 : 0;
    memset(slots, 0xff, sizeof *slots * nslots);
    to.slots = slots;
    to.mask = nslots - 1;
    for (uint32_t i = 0; i < nold; i++) {
        if (i % CANCEL_EVERY == 0 && check_cancel(cancel, NULL))
            return false;
        if (x->slots[i].item != HASH_NONE)
            put(&to, x->slots[i]);
    }
    *x = to;
    return true;
}

void hash_index_reserve(hash_index *x, uint32_t items) {
    if (items > HASH_INDEX_MAX)
        too_many(items);
    uint32_t nslots = hash_index_slots_for(x, items);
    if (nslots == 0)
        return;
    size_t bytes = sizeof(hash_slot) * nslots;
    hash_slot *old = x->slots;
    hash_index_move(x, x->mem ? arena_alloc(x->mem, bytes) : mem_alloc(bytes), nslots, NULL);
    if (!x->mem)
        free(old);
}

void hash_index_add(hash_index *x, uint64_t hash, uint32_t item) {
    if (x->count >= (x->mask + 1) / 2)
        hash_index_reserve(x, x->count + 1);
    put(x, (hash_slot){(uint32_t)hash, item});
    x->count++;
}

/* Knuth, The Art of Computer Programming, volume 3, 6.4, algorithm R. */
void hash_index_remove(hash_index *x, hash_slot *s) {
    uint32_t hole = (uint32_t)(s - x->slots);
    for (uint32_t at = (hole + 1) & x->mask; x->slots[at].item != HASH_NONE;
         at = (at + 1) & x->mask) {
        uint32_t home = x->slots[at].hash & x->mask;
        if (((at - home) & x->mask) < ((at - hole) & x->mask))
            continue; /* the home slot of this item comes after the hole */
        x->slots[hole] = x->slots[at];
        hole = at;
    }
    x->slots[hole].item = HASH_NONE;
    x->count--;
}

void hash_index_clear(hash_index *x) {
    if (x->slots)
        memset(x->slots, 0xff, sizeof *x->slots * ((size_t)x->mask + 1));
    x->count = 0;
}

void hash_index_free(hash_index *x) {
    if (!x->mem)
        free(x->slots);
    *x = (hash_index){.mem = x->mem};
}
