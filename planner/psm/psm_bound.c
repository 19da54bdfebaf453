/*
 * psm_bound.c - an upper bound of what equal cells can share, by Lagrangian duality.
 *
 * Relaxation: each row chooses a chain of sets, beginning with the empty set. In the step from S to
 * S+c, the rows of a group of S+c share the cost of one copy of the group's cells. Any weights that
 * divide this cost among the group's rows give a lower bound on the units to compute: the sum, over
 * all rows, of the cost of the row's cheapest chain. The first weights are equal. Multiplicative
 * ascent then moves weight from the rows whose chains do not lead through a group to the rows whose
 * chains do.
 *
 * Invariant: the weights of a group add up to at most the cost of its cells, so every iterate is a
 * valid bound; the best bound is returned. If the lattice was cut, a lower bound of what the atoms
 * beyond the cut cost is added (cheapest_beyond), and the weights stay equal.
 */
#include "psm_int.h"

#include <math.h>

/* A step from one set to a set with one more atom. Its arrays have an entry for each active row of
 * the set `to`. */
typedef struct edge {
    uint32_t from; /* index of the smaller set */
    uint32_t to;   /* index of the larger set */
    uint8_t atom;  /* the atom that only `to` has */
    uint32_t *at;  /* the row's index in lattice_set.row of `from` */
    float *weight; /* the row's part of the cost of its group's cells of the atom, in units */
    uint8_t *used; /* flags USED and HANDLED */
} edge;

enum {
    USED = 1,   /* the row's cheapest chain has this edge */
    HANDLED = 2 /* at a group's first row: reweigh() has reweighed the group in this step */
};

/* The cheapest chain of each active row of a set, from this set on. Costs are in units. */
typedef struct stage {
    uint32_t *group; /* [active] the row's group; NULL: no chain leads to the set */
    float *rest;     /* [active] cost of the remaining atoms if the row shares none of them */
    float *least;    /* [active] cost of the cheapest chain */
    uint32_t *edge;  /* [active] index of the chain's first edge, or SET_NONE */
    uint32_t *place; /* [active] the row's index in the set to which this edge leads */
} stage;

/* An edge of a row's cheapest chain. */
typedef struct step_taken {
    uint32_t edge;  /* index of the edge */
    uint32_t place; /* the row's index in the set to which the edge leads */
} step_taken;

typedef struct bounder {
    lattice l;
    stage *stage; /* [sets] */
    edge *edge;   /* [edges] the edges from smaller sets before the edges from larger sets */
    uint32_t edges;
    uint64_t entries;  /* number of entries of the arrays of all edges */
    bool cut;          /* a set of the lattice was cut */
    step_taken *taken; /* [rows * atoms] the edges of all rows' cheapest chains */
} bounder;

/* ---- building -------------------------------------------------------------------------------- */

static void stage_open(const bounder *b, uint32_t i) {
    const lattice_set *set = &b->l.set[i];
    stage *st = &b->stage[i];
    scratch *mem = b->l.s->mem;
    st->group = SCRATCH_ARRAY(mem, uint32_t, set->active);
    st->rest = SCRATCH_ARRAY(mem, float, set->active);
    st->least = SCRATCH_ARRAY(mem, float, set->active);
    st->edge = SCRATCH_ARRAY(mem, uint32_t, set->active);
    st->place = SCRATCH_ARRAY(mem, uint32_t, set->active);
    for (uint32_t g = 0; g < set->groups; g++)
        for (uint32_t k = set->start[g]; k < set->start[g + 1]; k++)
            st->group[k] = g;
}

static void edge_open(bounder *b, uint32_t from, uint32_t to, int atom) {
    const lattice_set *set = &b->l.set[to];
    psm_search *s = b->l.s;
    const psm_atom *a = &s->t->atom[atom];
    edge *e = &b->edge[b->edges++];
    *e = (edge){.from = from, .to = to, .atom = (uint8_t)atom};
    e->at = SCRATCH_ARRAY(s->mem, uint32_t, set->active);
    e->weight = SCRATCH_ARRAY(s->mem, float, set->active);
    e->used = SCRATCH_ZARRAY(s->mem, uint8_t, set->active);
    for (uint32_t g = 0; g < set->groups; g++) {
        uint32_t size = set->start[g + 1] - set->start[g];
        float share = (float)a->cost[a->id[set->row[set->start[g]]]] / (float)size;
        for (uint32_t k = set->start[g]; k < set->start[g + 1]; k++) {
            e->at[k] = s->group_of[set->row[k]];
            e->weight[k] = share;
            b->stage[to].rest[k] =
                b->stage[from].rest[e->at[k]] - (float)a->cost[a->id[set->row[k]]];
        }
    }
    b->entries += set->active;
}

static uint32_t set_index(const bounder *b, const lattice_set *set) {
    return (uint32_t)(set - b->l.set);
}

/* Opens the edges from one set to larger sets, and the stages of the sets to which they lead. */
static void edges_from(bounder *b, uint32_t from) {
    const lattice_set *set = &b->l.set[from];
    for (uint32_t k = 0; k < set->active; k++)
        b->l.s->group_of[set->row[k]] = k;
    for (field_set left = b->l.atoms & ~set->atoms; left != 0; left &= left - 1) {
        int atom = set_first(left);
        const lattice_set *next = lattice_above(&b->l, set, atom);
        if (next == NULL || next->groups == 0) {
            b->cut |= next != NULL && next->state == SET_CUT;
            continue;
        }
        uint32_t to = set_index(b, next);
        if (b->stage[to].group == NULL)
            stage_open(b, to);
        edge_open(b, from, to, atom);
    }
}

static uint32_t count_edges(const bounder *b) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->l.sets; i++)
        n += b->l.set[i].groups > 0 ? (uint32_t)set_size(b->l.set[i].atoms) : 0;
    return n;
}

static void open_all(bounder *b) {
    const psm_table *t = b->l.s->t;
    scratch *mem = b->l.s->mem;
    b->stage = SCRATCH_ZARRAY(mem, stage, b->l.sets);
    b->edge = SCRATCH_ARRAY(mem, edge, count_edges(b));
    b->taken = SCRATCH_ARRAY(mem, step_taken, (size_t)t->rows * (size_t)t->atoms);
    stage_open(b, 0);
    for (uint32_t r = 0; r < t->rows; r++) {
        uint64_t units = 0;
        for (field_set left = b->l.atoms; left != 0; left &= left - 1) {
            const psm_atom *a = &t->atom[set_first(left)];
            units += a->cost[a->id[r]];
        }
        b->stage[0].rest[r] = (float)units;
    }
    for (int size = 0; size < set_size(b->l.atoms); size++) {
        for (uint32_t i = b->l.level[size]; i != SET_NONE; i = b->l.set[i].next)
            if (b->l.set[i].groups > 0)
                edges_from(b, i);
    }
}

/* Replaces `rest` by a lower bound of what the remaining atoms of each row cost beyond a cut. There
 * the row can share the cell of an atom at most with as many rows as its group has, and at most
 * with as many as have its value in the whole table. */
static void cheapest_beyond(const bounder *b, uint32_t i) {
    const lattice_set *set = &b->l.set[i];
    const psm_table *t = b->l.s->t;
    stage *st = &b->stage[i];
    memset(st->rest, 0, sizeof *st->rest * set->active);
    for (field_set left = b->l.atoms & ~set->atoms; left != 0; left &= left - 1) {
        const psm_atom *a = &t->atom[set_first(left)];
        scratch_mark mark = scratch_save(b->l.s->mem);
        uint32_t *count = SCRATCH_ZARRAY(b->l.s->mem, uint32_t, a->distinct);
        for (uint32_t r = 0; r < t->rows; r++)
            count[a->id[r]]++;
        for (uint32_t k = 0; k < set->active; k++) {
            uint32_t g = st->group[k], v = a->id[set->row[k]];
            uint32_t with = BASE_MIN(set->start[g + 1] - set->start[g], count[v]);
            st->rest[k] += (float)a->cost[v] / (float)with;
        }
        scratch_restore(b->l.s->mem, mark);
    }
}

/* ---- one iterate ----------------------------------------------------------------------------- */

/* Finds for every set and each of its rows the cheapest chain from this set on. Edges lead from
 * smaller to larger sets and are relaxed in reverse order, so the chains from a set on are known
 * before an edge to this set is relaxed. Returns the sum of the costs of all rows' chains from the
 * empty set. */
static double cheapest_chains(bounder *b) {
    for (uint32_t i = 0; i < b->l.sets; i++) {
        const stage *st = &b->stage[i];
        if (st->group != NULL) {
            memcpy(st->least, st->rest, sizeof *st->least * b->l.set[i].active);
            memset(st->edge, 0xff, sizeof *st->edge * b->l.set[i].active);
        }
    }
    for (uint32_t i = b->edges; i-- > 0;) {
        const edge *e = &b->edge[i];
        const stage *from = &b->stage[e->from], *to = &b->stage[e->to];
        uint32_t n = b->l.set[e->to].active;
        for (uint32_t k = 0; k < n; k++) {
            float units = e->weight[k] + to->least[k];
            uint32_t at = e->at[k];
            if (units < from->least[at]) {
                from->least[at] = units;
                from->edge[at] = i;
                from->place[at] = k;
            }
        }
    }
    double sum = 0;
    for (uint32_t k = 0; k < b->l.set[0].active; k++)
        sum += (double)b->stage[0].least[k];
    return sum;
}

/* Lists the edges of all rows' cheapest chains in b->taken, and flags them as USED. Returns their
 * number. */
static uint32_t mark_chains(bounder *b) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < b->l.set[0].active; k++) {
        const stage *st = &b->stage[0];
        uint32_t at = k;
        while (st->edge[at] != SET_NONE) {
            edge *e = &b->edge[st->edge[at]];
            b->taken[n++] = (step_taken){st->edge[at], st->place[at]};
            at = st->place[at];
            e->used[at] |= USED;
            st = &b->stage[e->to];
        }
    }
    return n;
}

/* Multiplies the weights of the rows that use group g by `factor`. Then scales the weights of all
 * rows of the group such that their sum is just below the cost of the group's cells. Does nothing
 * if all rows of the group use it, or none. */
static void reweigh_group(const bounder *b, const edge *e, uint32_t g, float factor) {
    const lattice_set *set = &b->l.set[e->to];
    const psm_atom *a = &b->l.s->t->atom[e->atom];
    uint32_t first = set->start[g], end = set->start[g + 1], users = 0;
    float cells = (float)a->cost[a->id[set->row[first]]];
    for (uint32_t k = first; k < end; k++)
        users += e->used[k] & USED;
    if (users == 0 || users == end - first)
        return;
    float least = 1e-6F * cells / (float)(end - first);
    double sum = 0;
    for (uint32_t k = first; k < end; k++) {
        float w = e->used[k] & USED ? e->weight[k] * factor : e->weight[k];
        e->weight[k] = BASE_MAX(w, least);
        sum += (double)e->weight[k];
    }
    float scale = sum > 0 ? (float)((double)cells / sum * 0.999999) : 0;
    for (uint32_t k = first; k < end; k++)
        e->weight[k] *= scale;
}

/* Reweighs the groups that the first `taken` entries of b->taken lead to, each group once. Then
 * clears the flags. */
static void reweigh(bounder *b, uint32_t taken, float factor) {
    for (uint32_t i = 0; i < taken; i++) {
        edge *e = &b->edge[b->taken[i].edge];
        uint32_t g = b->stage[e->to].group[b->taken[i].place];
        uint8_t *first = &e->used[b->l.set[e->to].start[g]];
        if (!(*first & HANDLED)) {
            *first |= HANDLED;
            reweigh_group(b, e, g, factor);
        }
    }
    for (uint32_t i = 0; i < taken; i++) {
        edge *e = &b->edge[b->taken[i].edge];
        e->used[b->taken[i].place] = 0;
        e->used[b->l.set[e->to].start[b->stage[e->to].group[b->taken[i].place]]] = 0;
    }
}

enum {
    ASCENT_STEPS = 40,       /* maximum number of steps */
    ASCENT_ENTRIES = 1 << 28 /* maximum number of steps * bounder.entries */
};

/* The ascent stops when bound and solution differ by at most this fraction of all units. */
#define NEAR 0.004

/* Improves the weights until a lower bound on the units to compute reaches `enough`. Returns the
 * best bound. */
static double ascend(bounder *b, double enough) {
    double best = cheapest_chains(b);
    uint64_t most = b->cut ? 0 : ASCENT_ENTRIES / BASE_MAX(b->entries, 1u);
    uint64_t steps = BASE_MIN(most, (uint64_t)ASCENT_STEPS);
    for (uint64_t i = 0; i < steps && best < enough; i++) {
        reweigh(b, mark_chains(b), expf(0.7F / sqrtf(1.0F + 0.15F * (float)i)));
        double now = cheapest_chains(b);
        best = BASE_MAX(best, now);
    }
    return best;
}

/* Budget of the lattice in row visits, which limits its memory. A cut lattice gives a looser
 * bound. */
enum { BOUND_VISITS = 24 << 20 };

double psm_bound(psm_search *s, uint64_t reached) {
    const psm_table *t = s->t;
    if (t->units == 0 || t->rows < 2 || t->searched == 0)
        return 0;
    scratch_mark mark = scratch_save(s->mem);
    uint32_t *rows = SCRATCH_ARRAY(s->mem, uint32_t, t->rows), start[2] = {0, t->rows};
    for (uint32_t r = 0; r < t->rows; r++)
        rows[r] = r;
    s->visits_per_row = BASE_MIN(s->visits_per_row, BOUND_VISITS / t->rows + 1);
    bounder b = {0};
    lattice_build(&b.l, s, t->searched, rows, start, 1);
    open_all(&b);
    for (uint32_t i = 0; i < b.l.sets && b.cut; i++)
        if (b.stage[i].group != NULL)
            cheapest_beyond(&b, i);
    double keys = 0; /* units of atoms without repeated values, which share no cell */
    for (int i = 0; i < t->atoms; i++)
        for (int k = 0; k < t->atom[i].fields && !(t->searched & set_of(i)); k++)
            keys += (double)t->column[t->atom[i].field[k]].units;
    double computed = (double)(t->units - reached) - NEAR * (double)t->units - keys;
    computed = ascend(&b, computed) + keys;
    scratch_restore(s->mem, mark);
    /* The factor covers rounding errors of float sums. */
    return 1 - computed * (1 - 1e-5) / (double)t->units;
}
