/*
 * containers.h - growable arrays, a hash index and binary heaps.
 *
 * All three work on arrays that the caller owns, and are inlined where they compare: no function
 * pointer is called in a lookup or in a heap operation.
 */
#ifndef KVASIR_CONTAINERS_H
#define KVASIR_CONTAINERS_H

#include "storage/base.h"

#if defined(__GNUC__)
#define BASE_UNUSED __attribute__((unused))
#else
#define BASE_UNUSED
#endif

/* ---- growable arrays ------------------------------------------------------------------------- */

/*
 * An array is three variables or members: a pointer p, the number n of its items and the number cap
 * of items that it has room for; n and cap are of any integer type, and all three begin as 0.
 * Arguments are evaluated more than once. Growing never returns an error: like mem_realloc, it ends
 * the process if memory runs out, or if the type of cap cannot hold the new size.
 *
 *   ARRAY_PUSH(list->items, list->n, list->cap, ((item){.id = id}));
 */

/* Appends a value. Room is doubled, so that n pushes cost O(n). */
#define ARRAY_PUSH(p, n, cap, value)                                                               \
    do {                                                                                           \
        ARRAY_RESERVE(p, (size_t)(n) + 1, cap);                                                    \
        (p)[(n)++] = (value);                                                                      \
    } while (0)
/* Makes sure that there is room for `need` items. If the array has to grow, it at least doubles. */
#define ARRAY_RESERVE(p, need, cap) ARENA_RESERVE((arena *)NULL, p, need, cap)

/* The same in an arena: to grow, the items are copied to a new place, and the old place is not
 * reused. */
#define ARENA_PUSH(a, p, n, cap, value)                                                            \
    do {                                                                                           \
        ARENA_RESERVE(a, p, (size_t)(n) + 1, cap);                                                 \
        (p)[(n)++] = (value);                                                                      \
    } while (0)
#define ARENA_RESERVE(a, p, need, cap)                                                             \
    do {                                                                                           \
        if ((size_t)(need) > (size_t)(cap)) {                                                      \
            size_t array_room_ = (size_t)(cap);                                                    \
            (p) = array_grow((a), (p), sizeof *(p), (size_t)(need), ARRAY_CAP_MAX(cap),            \
                             &array_room_);                                                        \
            (cap) = (__typeof__(cap))array_room_;                                                  \
        }                                                                                          \
    } while (0)

/* The greatest value of the integer type of `cap`. */
#define ARRAY_CAP_MAX(cap)                                                                         \
    ((__typeof__(cap))-1 > 0 ? (size_t)(__typeof__(cap))-1                                         \
                             : ((size_t)1 << (8 * sizeof(cap) - 1)) - 1)

/* Called by the macros above. Returns p with room for max(need, 2 * *cap) items of `size` bytes,
 * but for at most `most` items, and sets *cap. The memory is in `a`, or on the heap if `a` is
 * NULL. */
void *array_grow(arena *a, void *p, size_t size, size_t need, size_t most, size_t *cap);

/* ---- hash index ------------------------------------------------------------------------------ */

/*
 * An open-addressing hash table from hashes to item numbers (linear probing, at most half full).
 * The items, with their keys, are in an array of the caller, and the caller compares the keys:
 *
 *   uint64_t hash = hash64(key.p, key.n, 0);
 *   for (hash_slot *s = hash_index_first(&x, hash); s; s = hash_index_next(&x, s))
 *       if (str_equal(items[s->item].key, key))
 *           return s->item;
 *   hash_index_add(&x, hash, n);
 *   ARRAY_PUSH(items, n, cap, new_item);
 *
 * A slot keeps 32 bits of its item's hash, so keys are compared only if these bits are equal, and
 * growing reads no item. Several items may have the same hash, or equal keys. Many items of the
 * same hash make every lookup near that hash slow. So link items of equal key in a list and index
 * only the first of them.
 */
typedef struct hash_slot {
    uint32_t hash; /* the low 32 bits of the item's hash */
    uint32_t item; /* number of the item; HASH_NONE: the slot is empty */
} hash_slot;

#define HASH_NONE UINT32_MAX
#define HASH_INDEX_MAX ((uint32_t)1 << 30) /* maximum number of items */

/* Zero-initialise; set mem for slots in an arena. */
typedef struct hash_index {
    hash_slot *slots; /* NULL before the first item */
    uint32_t mask;    /* number of slots, a power of two, minus 1 */
    uint32_t count;   /* number of items */
    arena *mem;       /* memory of the slots; NULL: the heap */
} hash_index;

/* Finds the first slot with this hash from slot `at` on; for the next two functions. */
static inline hash_slot *hash_index_probe(const hash_index *x, uint32_t at, uint32_t hash) {
    for (;; at++) {
        hash_slot *s = &x->slots[at & x->mask];
        if (s->item == HASH_NONE)
            return NULL;
        if (s->hash == hash)
            return s;
    }
}

/* Returns the first slot whose item has this hash, or NULL. Only the low 32 bits of `hash` are
 * used; they should be well mixed. The caller may put another item of the same hash into the slot.
 * The slot is valid until the next change of the index. */
static inline hash_slot *hash_index_first(const hash_index *x, uint64_t hash) {
    return x->slots ? hash_index_probe(x, (uint32_t)hash, (uint32_t)hash) : NULL;
}

/* Returns the next slot with the same hash, or NULL. */
static inline hash_slot *hash_index_next(const hash_index *x, const hash_slot *s) {
    return hash_index_probe(x, (uint32_t)(s - x->slots) + 1, s->hash);
}

/* Returns the slot of an item, or NULL. */
static inline hash_slot *hash_index_slot(const hash_index *x, uint64_t hash, uint32_t item) {
    hash_slot *s = hash_index_first(x, hash);
    while (s && s->item != item)
        s = hash_index_next(x, s);
    return s;
}

/* Adds an item without looking for equal ones; first grows the index if it is full. */
void hash_index_add(hash_index *x, uint64_t hash, uint32_t item);
/* Empties a slot and moves slots that follow it, so that no tombstone is needed. */
void hash_index_remove(hash_index *x, hash_slot *s);
void hash_index_clear(hash_index *x); /* removes all items, keeps the slots */
void hash_index_free(hash_index *x);  /* frees slots on the heap; the index is empty again */

/* Makes room for `items` items in all, the present ones included. */
void hash_index_reserve(hash_index *x, uint32_t items);

/* For an index whose slots the caller allocates. If hash_index_slots_for(x, items) returns n > 0,
 * the caller calls hash_index_move with n new slots before adding items, and then frees the old
 * slots. `cancel` may be NULL; false: it was set, and the index keeps its slots. */
uint32_t hash_index_slots_for(const hash_index *x, uint32_t items);
bool hash_index_move(hash_index *x, hash_slot *slots, uint32_t nslots, const atomic_bool *cancel);

/* ---- heaps ----------------------------------------------------------------------------------- */

/*
 * HEAP_DEFINE(name, type, context, before, moved) defines static functions over an array `items` of
 * n items that is a binary heap: no item is before its parent, so items[0] comes first.
 *
 *   name_push(c, items, &n, x)       adds x; the array has room for it
 *   name_pop(c, items, &n)           removes and returns items[0]
 *   name_remove(c, items, &n, at)    removes items[at]
 *   name_update(c, items, n, at, x)  replaces items[at] by x
 *   name_build(c, items, n)          makes a heap of items in any order, in O(n)
 *
 * before(c, a, b): whether a comes before b (a function or a macro; two items by value). c, of type
 * `context`, is passed to before and moved. moved(c, x, at): called when x is stored at items[at],
 * for items that record their position; pass HEAP_NOT_TOLD if yours do not. If `type` is a pointer
 * type, give it a name with typedef.
 */
#define HEAP_NOT_TOLD(c, x, at) ((void)0)

#define HEAP_DEFINE(name, type, context, before, moved)                                            \
    BASE_UNUSED static inline void name##_down(context c, type *items, size_t n, size_t at,        \
                                               type x) {                                           \
        for (size_t child; (child = 2 * at + 1) < n; at = child) {                                 \
            if (child + 1 < n && before(c, items[child + 1], items[child]))                        \
                child++;                                                                           \
            if (!before(c, items[child], x))                                                       \
                break;                                                                             \
            items[at] = items[child];                                                              \
            moved(c, items[at], at);                                                               \
        }                                                                                          \
        items[at] = x;                                                                             \
        moved(c, x, at);                                                                           \
        (void)c;                                                                                   \
    }                                                                                              \
    BASE_UNUSED static inline void name##_update(context c, type *items, size_t n, size_t at,      \
                                                 type x) {                                         \
        for (; at > 0 && before(c, x, items[(at - 1) / 2]); at = (at - 1) / 2) {                   \
            items[at] = items[(at - 1) / 2];                                                       \
            moved(c, items[at], at);                                                               \
        }                                                                                          \
        name##_down(c, items, n, at, x);                                                           \
    }                                                                                              \
    BASE_UNUSED static inline void name##_push(context c, type *items, size_t *n, type x) {        \
        size_t at = (*n)++;                                                                        \
        name##_update(c, items, *n, at, x);                                                        \
    }                                                                                              \
    BASE_UNUSED static inline void name##_remove(context c, type *items, size_t *n, size_t at) {   \
        type last = items[--*n];                                                                   \
        if (at < *n)                                                                               \
            name##_update(c, items, *n, at, last);                                                 \
    }                                                                                              \
    BASE_UNUSED static inline type name##_pop(context c, type *items, size_t *n) {                 \
        type first = items[0], last = items[--*n];                                                 \
        if (*n > 0)                                                                                \
            name##_down(c, items, *n, 0, last);                                                    \
        return first;                                                                              \
    }                                                                                              \
    BASE_UNUSED static inline void name##_build(context c, type *items, size_t n) {                \
        for (size_t at = n / 2; at-- > 0;)                                                         \
            name##_down(c, items, n, at, items[at]);                                               \
        for (size_t at = n / 2; at < n; at++)                                                      \
            moved(c, items[at], at);                                                               \
    }                                                                                              \
    _Static_assert(sizeof(type) > 0, "takes the semicolon after HEAP_DEFINE")

#endif
