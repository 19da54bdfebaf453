/*
 * psm_lattice.c - builds the lattice: the groups of rows under each set of atoms.
 *
 * A group depends on the set of atoms sent so far, not on their order, so m! orders collapse to 2^m
 * sets. A set is admissible only if it contains, for each of its atoms, all atoms that the atom
 * needs.
 *
 * Invariants: sets are built by ascending size. Each set is built by refining the subset with the
 * fewest active rows. A row alone in its group is dropped, since no larger set can group it again.
 * If a level (the sets of one size) would cost more than half of the remaining budget, its most
 * promising sets are built for this half and the other sets are cut; level 1 is never cut. psm_dp.c
 * solves the groups below a cut as smaller problems.
 */
#include "psm_int.h"

#include <stdlib.h>

/* Promised gain of an atom by which no set has been refined yet: greater than any other gain. */
#define UNSEEN (UINT64_MAX / 4)

static uint64_t hash_of(field_set atoms) {
    return atoms * UINT64_C(0x9e3779b97f4a7c15) >> 32;
}

/* Finds the index of the set of these atoms; SET_NONE: there is no such set. */
static uint32_t set_find(const lattice *l, field_set atoms) {
    hash_slot *s = hash_index_first(&l->by_atoms, hash_of(atoms));
    while (s && l->set[s->item].atoms != atoms)
        s = hash_index_next(&l->by_atoms, s);
    return s ? s->item : SET_NONE;
}

static uint32_t set_add(lattice *l, field_set atoms) {
    if (l->sets == l->capacity) {
        uint32_t capacity = l->capacity == 0 ? 32 : l->capacity * 2;
        lattice_set *set = SCRATCH_ARRAY(l->s->mem, lattice_set, capacity);
        if (l->sets > 0)
            memcpy(set, l->set, sizeof *set * l->sets);
        l->set = set;
        l->capacity = capacity;
    }
    uint32_t i = l->sets++;
    int size = set_size(atoms);
    l->set[i] = (lattice_set){.atoms = atoms, .parent = SET_NONE, .next = l->level[size]};
    scratch_index_add(l->s->mem, &l->by_atoms, hash_of(atoms), i);
    l->level[size] = i;
    return i;
}

/* Whether `atoms` has all atoms of the problem that `atom` needs. */
static bool may_follow(const lattice *l, field_set atoms, int atom) {
    return (l->s->t->atom[atom].needs & l->atoms & ~atoms) == 0;
}

lattice_set *lattice_above(const lattice *l, const lattice_set *from, int atom) {
    if (!may_follow(l, from->atoms, atom))
        return NULL;
    uint32_t i = set_find(l, from->atoms | set_of(atom));
    return i == SET_NONE ? NULL : &l->set[i];
}

/* ---- building one set ------------------------------------------------------------------------ */

/* The groups of a set that is being built; members as in lattice_set. */
typedef struct refined {
    uint32_t *row, *start;
    uint32_t active, groups;
} refined;

/* Partitions rows[0 .. n-1] by id and appends the groups of two rows or more, in order of first
 * occurrence. */
static void refine_group(psm_search *s, const uint32_t *id, const uint32_t *rows, uint32_t n,
                         refined *to) {
    if (n == 2) {
        if (id[rows[0]] == id[rows[1]]) {
            to->start[to->groups++] = to->active;
            to->row[to->active++] = rows[0];
            to->row[to->active++] = rows[1];
        }
        return;
    }
    value_bin *bin = s->bin;
    for (uint32_t i = 0; i < n; i++) {
        value_bin *b = &bin[id[rows[i]]];
        b->count++;
        b->place = UINT32_MAX;
    }
    for (uint32_t i = 0; i < n; i++) {
        value_bin *b = &bin[id[rows[i]]];
        if (b->count < 2)
            continue;
        if (b->place == UINT32_MAX) {
            b->place = to->active;
            to->start[to->groups++] = to->active;
            to->active += b->count;
        }
        to->row[b->place++] = rows[i];
    }
    for (uint32_t i = 0; i < n; i++)
        bin[id[rows[i]]].count = 0;
}

static void set_store(lattice *l, lattice_set *set, const refined *from) {
    scratch *mem = l->s->mem;
    set->active = from->active;
    set->groups = from->groups;
    from->start[from->groups] = from->active;
    set->row = SCRATCH_ARRAY(mem, uint32_t, from->active);
    set->start = SCRATCH_ARRAY(mem, uint32_t, from->groups + 1);
    memcpy(set->row, from->row, sizeof *set->row * from->active);
    memcpy(set->start, from->start, sizeof *set->start * (from->groups + 1));
}

static void set_build(lattice *l, lattice_set *set) {
    const lattice_set *parent = &l->set[set->parent];
    const psm_atom *atom = &l->s->t->atom[set->by];
    refined to = {.row = l->s->tmp_row, .start = l->s->tmp_start};
    for (uint32_t g = 0; g < parent->groups; g++) {
        uint32_t a = parent->start[g];
        refine_group(l->s, atom->id, parent->row + a, parent->start[g + 1] - a, &to);
    }
    set->state = SET_BUILT;
    uint64_t gain = 0;
    for (uint32_t g = 0; g < to.groups; g++) {
        uint32_t end = g + 1 < to.groups ? to.start[g + 1] : to.active;
        gain += (uint64_t)(end - to.start[g] - 1) * atom->cost[atom->id[to.row[to.start[g]]]];
    }
    set->chain = parent->chain + gain;
    l->width[set->by] = BASE_MIN(l->width[set->by], gain);
    if (to.groups > 0)
        set_store(l, set, &to);
}

/* Adds the sets that have one more atom than set `from`. Takes an index, because set_add may move
 * the sets. */
static void set_expand(lattice *l, uint32_t from) {
    field_set atoms = l->set[from].atoms;
    for (field_set left = l->atoms & ~atoms; left != 0; left &= left - 1) {
        int atom = set_first(left);
        if (!may_follow(l, atoms, atom))
            continue;
        uint32_t i = set_find(l, atoms | set_of(atom));
        if (i == SET_NONE)
            i = set_add(l, atoms | set_of(atom));
        lattice_set *set = &l->set[i], *parent = &l->set[from];
        if (set->parent == SET_NONE || parent->active < l->set[set->parent].active) {
            set->parent = from;
            set->by = (uint8_t)atom;
            set->promise = parent->chain + l->width[atom];
        }
    }
}

/* ---- building all ---------------------------------------------------------------------------- */

/* The bookkeeping of building a set costs about as much as SET_VISITS row visits. */
enum { SET_VISITS = 24 };

/* Returns the cost of building a set, in row visits. */
static uint64_t set_cost(const lattice *l, const lattice_set *set) {
    return l->set[set->parent].active + SET_VISITS;
}

static uint64_t level_cost(const lattice *l, int size) {
    uint64_t cost = 0;
    for (uint32_t i = l->level[size]; i != SET_NONE; i = l->set[i].next)
        cost += set_cost(l, &l->set[i]);
    return cost;
}

/* One of the sets of a level that exceeds its budget. */
typedef struct bid {
    uint64_t promise; /* lattice_set.promise */
    field_set atoms;
    uint32_t set; /* index of the set */
} bid;

static int by_promise(const void *a, const void *b) {
    const bid *x = a, *y = b;
    if (x->promise != y->promise)
        return x->promise > y->promise ? -1 : 1;
    return x->atoms < y->atoms ? -1 : 1;
}

/* Cuts the least promising sets of a level, so that building the remaining sets costs at most
 * `budget`. */
static void level_cut(lattice *l, int size, uint64_t budget) {
    scratch_mark mark = scratch_save(l->s->mem);
    bid *list = SCRATCH_ARRAY(l->s->mem, bid, l->sets);
    uint32_t n = 0;
    for (uint32_t i = l->level[size]; i != SET_NONE; i = l->set[i].next)
        list[n++] = (bid){l->set[i].promise, l->set[i].atoms, i};
    qsort(list, n, sizeof *list, by_promise);
    for (uint32_t i = 0; i < n; i++) {
        lattice_set *set = &l->set[list[i].set];
        uint64_t cost = set_cost(l, set);
        if (cost > budget)
            set->state = SET_CUT;
        else
            budget -= cost;
    }
    scratch_restore(l->s->mem, mark);
}

static void level_build(lattice *l, int size) {
    uint64_t cost = level_cost(l, size), allowed = l->budget / 2;
    if (cost > allowed && size > 1) {
        level_cut(l, size, allowed);
        cost = allowed;
    }
    l->budget -= BASE_MIN(cost, l->budget);
    for (uint32_t i = l->level[size]; i != SET_NONE; i = l->set[i].next) {
        lattice_set *set = &l->set[i];
        if (set->state == SET_WAITING) {
            set_build(l, set);
            if (set->groups > 0)
                set_expand(l, i);
        }
    }
}

void lattice_build(lattice *l, psm_search *s, field_set atoms, const uint32_t *rows,
                   const uint32_t *start, uint32_t groups) {
    *l = (lattice){.s = s, .atoms = atoms};
    memset(l->level, 0xff, sizeof l->level);
    uint32_t n = start[groups];
    l->budget = s->visits_per_row * n;
    for (int a = 0; a < PSM_MAX_FIELDS; a++)
        l->width[a] = UNSEEN;
    set_add(l, 0);
    refined root = {.row = s->tmp_row, .start = s->tmp_start, .active = n, .groups = groups};
    memcpy(root.row, rows, sizeof *rows * n);
    memcpy(root.start, start, sizeof *start * groups);
    set_store(l, &l->set[0], &root);
    l->set[0].state = SET_BUILT;
    set_expand(l, 0);
    for (int size = 1; size <= set_size(atoms); size++)
        level_build(l, size);
}
