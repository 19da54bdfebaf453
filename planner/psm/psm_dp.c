/*
 * psm_dp.c - dynamic programming over the lattice of atom sets: the best prefix tree with one atom
 * per node.
 *
 *   saving(g, S) = max over atoms c that may follow S of
 *                  sum over the groups h of S+c inside g of
 *                      (|h| - 1) * cost(c in h) + saving(h, S+c)
 *                  + common leading units, with names, of different values of c in g (estimated)
 *
 * The savings are computed from large sets to small ones; then the rows follow the choices from the
 * empty set upwards. The rows of a group whose value of the chosen atom is unique in the group
 * become a separate problem, and so does each group of a set below which the lattice was cut.
 *
 * Invariant: each row is in at most one open problem, and every problem has fewer rows or fewer
 * atoms than the one it comes from.
 */
#include "psm_int.h"

/* ---- savings --------------------------------------------------------------------------------- */

/* What one choice of atom saves in one group of a set. */
typedef struct tally {
    uint64_t units;  /* units shared by equal cells of the atom, and savings beyond the atom */
    uint32_t in;     /* rows that are in a group of the next set, which has the atom too */
    uint32_t values; /* groups of the next set, without the group of the absent value */
} tally;

/* Estimates the units, with names, that neighbours share among `values` different sorted values. */
static uint64_t common_units(const common_curve *curve, uint64_t values) {
    return values < 2 ? 0 : (values - 1) * curve->at[63 - __builtin_clzll(values)] / 16;
}

/* Adds each group of `next` to the tally of the group that contains it (s->group_of). Returns the
 * units that equal cells of the atom share if all groups choose it. */
static uint64_t tally_next(const psm_search *s, const psm_atom *atom, const lattice_set *next,
                           tally *sum) {
    uint64_t gain = 0;
    for (uint32_t h = 0; h < next->groups; h++) {
        uint32_t first = next->row[next->start[h]], size = next->start[h + 1] - next->start[h];
        uint32_t v = atom->id[first];
        uint64_t here = (uint64_t)(size - 1) * atom->cost[v];
        tally *to = &sum[s->group_of[first]];
        to->units += here + next->saving[h];
        to->in += size;
        to->values += v != atom->absent;
        gain += here;
    }
    return gain;
}

/* Makes `atom` the choice of every group in which it saves more than the best atom so far, and the
 * choice for all groups if that saves more. next: `set` with the atom added; sum: [groups] work
 * space. */
static void choose(const psm_search *s, lattice_set *set, int atom, const lattice_set *next,
                   tally *sum) {
    const psm_atom *a = &s->t->atom[atom];
    memset(sum, 0, sizeof *sum * set->groups);
    uint64_t alike = tally_next(s, a, next, sum) + next->one_order;
    for (uint32_t g = 0; g < set->groups; g++) {
        uint32_t size = set->start[g + 1] - set->start[g];
        uint64_t begun = common_units(&a->common, (uint64_t)sum[g].values + (size - sum[g].in));
        alike += begun;
        if (sum[g].units + begun > set->saving[g]) {
            set->saving[g] = sum[g].units + begun;
            set->choice[g] = sum[g].in > 0 ? (uint8_t)atom : CHOICE_NONE;
        }
    }
    if (alike > set->one_order) {
        set->one_order = alike;
        set->one_choice = (uint8_t)atom;
    }
}

/* Atoms whose values differ in all rows of all groups share only leading units, so they are sent
 * last. Ends the search in every group in which this saves most. last: the maximum of the atoms'
 * curves. */
static void choose_last(lattice_set *set, const common_curve *last) {
    for (uint32_t g = 0; g < set->groups; g++) {
        uint64_t begun = common_units(last, set->start[g + 1] - set->start[g]);
        if (begun > set->saving[g]) {
            set->saving[g] = begun;
            set->choice[g] = CHOICE_NONE;
        }
    }
}

/* Allocates a set's choices, and sets group_of to the set's groups. */
static void set_open(const lattice *l, lattice_set *set) {
    scratch *mem = l->s->mem;
    set->saving = SCRATCH_ZARRAY(mem, uint64_t, set->groups);
    set->choice = SCRATCH_ARRAY(mem, uint8_t, set->groups);
    set->entered = SCRATCH_ZARRAY(mem, bool, set->groups);
    memset(set->choice, CHOICE_NONE, set->groups);
    set->one_choice = CHOICE_NONE;
    for (uint32_t g = 0; g < set->groups; g++)
        for (uint32_t i = set->start[g]; i < set->start[g + 1]; i++)
            l->s->group_of[set->row[i]] = g;
}

static void set_solve(lattice *l, lattice_set *set, tally *sum) {
    set_open(l, set);
    common_curve last = {{0}};
    for (field_set left = l->atoms & ~set->atoms; left != 0; left &= left - 1) {
        int atom = set_first(left);
        const lattice_set *next = lattice_above(l, set, atom);
        if (next == NULL)
            continue;
        set->open |= next->state == SET_CUT;
        if (next->groups > 0) {
            choose(l->s, set, atom, next, sum);
            continue;
        }
        for (size_t k = 0; k < BASE_COUNT(last.at); k++)
            last.at[k] = BASE_MAX(last.at[k], l->s->t->atom[atom].common.at[k]);
    }
    if (last.at[1] > 0 || last.at[BASE_COUNT(last.at) - 1] > 0)
        choose_last(set, &last);
}

/* Fills saving, choice, open, one_order and one_choice of all sets, the largest sets first. */
static void lattice_solve(lattice *l) {
    uint32_t most = 1;
    for (uint32_t i = 0; i < l->sets; i++)
        most = BASE_MAX(most, l->set[i].groups);
    tally *sum = SCRATCH_ARRAY(l->s->mem, tally, most);
    for (int size = set_size(l->atoms); size >= 0; size--) {
        for (uint32_t i = l->level[size]; i != SET_NONE; i = l->set[i].next)
            if (l->set[i].groups > 0)
                set_solve(l, &l->set[i], sum);
    }
}

/* ---- following the choices ------------------------------------------------------------------- */

/* A smaller problem that remains: the rows of walk.row from `start` up to the next problem's start,
 * and the atoms that are still to be ordered. */
typedef struct leftover {
    uint32_t start;
    field_set atoms;
} leftover;

/* Follows the choices of one problem's lattice, and collects the smaller problems that remain. */
typedef struct walk {
    uint32_t *row;     /* [rows of the problem] the rows of the smaller problems */
    uint32_t rows;     /* number of rows in `row` so far */
    leftover *problem; /* [rows of the problem / 2 + 1]; each has at least two rows */
    uint32_t problems; /* number of smaller problems so far */
} walk;

/* Makes w->row from `first` on a smaller problem; drops the row if it is only one. */
static void walk_keep(walk *w, uint32_t first, field_set atoms) {
    if (w->rows - first < 2) {
        w->rows = first;
        return;
    }
    w->problem[w->problems++] = (leftover){first, atoms};
}

/* Appends an atom's fields to a row's order. */
static void send_atom(psm_search *s, int atom, uint32_t row) {
    const psm_atom *a = &s->t->atom[atom];
    uint8_t *order = s->paths->order + (size_t)row * (size_t)s->t->fields;
    uint8_t *depth = &s->paths->depth[row];
    for (int i = 0; i < a->fields; i++)
        order[(*depth)++] = a->field[i];
}

/* Sends the chosen atom in all rows of group g that share its value with another row of g, and
 * enters their groups of `next`; the other rows become a smaller problem. group_of must have the
 * groups of `next` for their first rows. */
static void walk_group(lattice *l, const lattice_set *set, uint32_t g, lattice_set *next, walk *w) {
    psm_search *s = l->s;
    int atom = set->choice[g];
    const uint32_t *id = s->t->atom[atom].id;
    const uint32_t *row = set->row + set->start[g];
    uint32_t n = set->start[g + 1] - set->start[g], alone = w->rows;
    for (uint32_t i = 0; i < n; i++) {
        s->bin[id[row[i]]].count++;
        s->bin[id[row[i]]].place = 0;
    }
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = id[row[i]];
        if (s->bin[v].count == 1) {
            w->row[w->rows++] = row[i];
            continue;
        }
        send_atom(s, atom, row[i]);
        if (s->bin[v].place == 0) {
            s->bin[v].place = 1;
            next->entered[s->group_of[row[i]]] = true;
        }
    }
    for (uint32_t i = 0; i < n; i++)
        s->bin[id[row[i]]].count = 0;
    walk_keep(w, alone, l->atoms & ~set->atoms);
}

/* Makes group g, below which the lattice was cut, a smaller problem. */
static void walk_open(const lattice *l, const lattice_set *set, uint32_t g, walk *w) {
    uint32_t first = w->rows, n = set->start[g + 1] - set->start[g];
    memcpy(w->row + first, set->row + set->start[g], sizeof *w->row * n);
    w->rows += n;
    walk_keep(w, first, l->atoms & ~set->atoms);
}

/* Returns the atoms that the entered groups of a set have chosen. If the lattice was cut below the
 * set, makes these groups smaller problems instead. */
static field_set walk_choices(const lattice *l, const lattice_set *set, walk *w) {
    field_set chosen = 0;
    for (uint32_t g = 0; g < set->groups; g++) {
        if (!set->entered[g])
            continue;
        if (set->open)
            walk_open(l, set, g, w);
        else if (set->choice[g] != CHOICE_NONE)
            chosen |= set_of(set->choice[g]);
    }
    return chosen;
}

static void walk_set(lattice *l, const lattice_set *set, walk *w) {
    field_set chosen = walk_choices(l, set, w);
    for (; chosen != 0; chosen &= chosen - 1) {
        int atom = set_first(chosen);
        lattice_set *next = lattice_above(l, set, atom);
        for (uint32_t h = 0; h < next->groups; h++)
            l->s->group_of[next->row[next->start[h]]] = h;
        for (uint32_t g = 0; g < set->groups; g++)
            if (set->entered[g] && set->choice[g] == atom)
                walk_group(l, set, g, next, w);
    }
}

/* ---- one order for all rows ------------------------------------------------------------------ */

/* Appends the choices that are best if all groups make the same choice, up to the lattice's end or
 * a cut. Stores the groups of the last set in `one`. */
static void single_follow(const lattice *l, psm_single *one) {
    const lattice_set *set = &l->set[0];
    while (set->one_choice != CHOICE_NONE && (!set->open || set == l->set)) {
        const psm_atom *a = &l->s->t->atom[set->one_choice];
        for (int i = 0; i < a->fields; i++)
            one->order[one->fields++] = a->field[i];
        set = lattice_above(l, set, set->one_choice);
    }
    one->atoms = l->atoms & ~set->atoms;
    one->more = set->open && set != l->set;
    one->groups = set->groups;
    memcpy(one->row, set->row, sizeof *one->row * set->active);
    memcpy(one->start, set->start, sizeof *one->start * (set->groups + 1));
}

/* Searches on from the groups in `one`, as long as each lattice is cut. */
static void single_continue(psm_search *s, psm_single *one) {
    while (one->more) {
        scratch_mark mark = scratch_save(s->mem);
        lattice l;
        lattice_build(&l, s, one->atoms, one->row, one->start, one->groups);
        lattice_solve(&l);
        single_follow(&l, one);
        scratch_restore(s->mem, mark);
    }
}

/* Returns the units that cells of field f share with a neighbour, if the rows of each group in
 * `one` are sorted by f. ranks: [rows] work space. */
static uint64_t common_in_groups(const psm_table *t, const psm_single *one, int f,
                                 uint32_t *ranks) {
    uint64_t sum = 0;
    for (uint32_t g = 0; g < one->groups; g++) {
        uint32_t n = 0;
        for (uint32_t i = one->start[g]; i < one->start[g + 1]; i++) {
            uint32_t rank = psm_rank(t, f, one->row[i]);
            if (rank != 0)
                ranks[n++] = rank;
        }
        psm_sort_ranks(ranks, n);
        for (uint32_t i = 1; i < n; i++)
            sum += psm_shared(t, ranks[i - 1], ranks[i]);
    }
    return sum;
}

/* Appends the field that shares most units in the groups of rows that are still equal. Then appends
 * the remaining fields by score, since hardly any two rows are equal in all fields before them. */
static void single_finish(psm_search *s, psm_single *one) {
    const psm_table *t = s->t;
    field_set left = 0;
    for (int f = 0; f < t->fields; f++)
        left |= set_of(f);
    for (int i = 0; i < one->fields; i++)
        left &= ~set_of(one->order[i]);
    int next = -1;
    uint64_t most = 0;
    for (field_set fields = left; fields != 0 && one->groups > 0; fields &= fields - 1) {
        uint64_t sum = common_in_groups(t, one, set_first(fields), s->tmp_row);
        if (sum > most) {
            most = sum;
            next = set_first(fields);
        }
    }
    if (next >= 0) {
        one->order[one->fields++] = (uint8_t)next;
        left &= ~set_of(next);
    }
    for (int i = 0; i < t->fields; i++)
        if (left & set_of(t->score_order[i]))
            one->order[one->fields++] = t->score_order[i];
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Sends the atoms that have a single value in these rows first, and returns the other atoms. Each
 * atom sent first halves the lattice. */
static field_set send_common(psm_search *s, const uint32_t *rows, uint32_t n, field_set atoms) {
    field_set rest = atoms;
    for (field_set left = atoms; left != 0; left &= left - 1) {
        int a = set_first(left);
        const uint32_t *id = s->t->atom[a].id;
        uint32_t i = 1;
        while (i < n && id[rows[i]] == id[rows[0]])
            i++;
        if (i == n) {
            rest &= ~set_of(a);
            for (i = 0; i < n; i++)
                send_atom(s, a, rows[i]);
        }
    }
    return rest;
}

/* Solves a problem. If `one` is not NULL, also stores the best single order of the problem's
 * lattice in it. */
static void solve_rows(psm_search *s, const uint32_t *rows, uint32_t n, field_set atoms,
                       psm_single *one) {
    if (one == NULL) {
        atoms = send_common(s, rows, n, atoms);
        if (n == 2)
            return;
    }
    scratch_mark mark = scratch_save(s->mem);
    walk w = {.row = SCRATCH_ARRAY(s->mem, uint32_t, n),
              .problem = SCRATCH_ARRAY(s->mem, leftover, n / 2 + 1)};
    scratch_mark walked = scratch_save(s->mem);
    lattice l;
    uint32_t start[2] = {0, n};
    lattice_build(&l, s, atoms, rows, start, 1);
    if (l.sets > 1) {
        lattice_solve(&l);
        if (one != NULL)
            single_follow(&l, one);
        l.set[0].entered[0] = true;
        for (int size = 0; size <= set_size(atoms); size++) {
            for (uint32_t i = l.level[size]; i != SET_NONE; i = l.set[i].next)
                if (l.set[i].groups > 0)
                    walk_set(&l, &l.set[i], &w);
        }
    }
    scratch_restore(s->mem, walked);
    for (uint32_t i = 0; i < w.problems; i++) {
        uint32_t end = i + 1 < w.problems ? w.problem[i + 1].start : w.rows;
        solve_rows(s, w.row + w.problem[i].start, end - w.problem[i].start, w.problem[i].atoms,
                   NULL);
    }
    scratch_restore(s->mem, mark);
}

/* Default budget of a lattice. A visited row that shares its value takes four bytes, so MOST_VISITS
 * limits a lattice to about 400 MB. */
enum { VISITS_PER_ROW = 200, MOST_VISITS = 96 << 20 };

void psm_search_open(psm_search *s, const psm_table *t, uint64_t work_limit, scratch *mem) {
    uint64_t most = work_limit != 0 ? work_limit : MOST_VISITS;
    *s = (psm_search){.t = t, .mem = mem};
    s->visits_per_row = BASE_MAX(most / BASE_MAX(t->rows, 1u), 1u);
    if (work_limit == 0)
        s->visits_per_row = BASE_MIN(s->visits_per_row, (uint64_t)VISITS_PER_ROW);
    s->bin = SCRATCH_ZARRAY(mem, value_bin, t->most_distinct);
    s->group_of = SCRATCH_ARRAY(mem, uint32_t, t->rows);
    s->tmp_row = SCRATCH_ARRAY(mem, uint32_t, t->rows);
    s->tmp_start = SCRATCH_ARRAY(mem, uint32_t, t->rows + 1);
}

psm_single psm_single_new(const psm_table *t) {
    return (psm_single){.order = SCRATCH_ARRAY(t->mem, uint8_t, t->fields),
                        .row = SCRATCH_ARRAY(t->mem, uint32_t, t->rows),
                        .start = SCRATCH_ARRAY(t->mem, uint32_t, t->rows + 1)};
}

void psm_search_grouped(psm_search *s, psm_single *one) {
    uint32_t n = s->t->rows;
    memset(s->paths->depth, 0, n);
    scratch_mark mark = scratch_save(s->mem);
    uint32_t *rows = SCRATCH_ARRAY(s->mem, uint32_t, n);
    for (uint32_t r = 0; r < n; r++)
        rows[r] = r;
    if (n > 1 && s->t->searched != 0)
        solve_rows(s, rows, n, s->t->searched, one);
    scratch_restore(s->mem, mark);
    if (one != NULL) {
        single_continue(s, one);
        single_finish(s, one);
    }
}

void psm_search_single(psm_search *s, psm_single *one) {
    uint32_t n = s->t->rows;
    for (uint32_t r = 0; r < n; r++)
        one->row[r] = r;
    one->start[0] = 0;
    one->start[1] = n;
    one->groups = 1;
    one->atoms = s->t->searched;
    one->more = n > 1 && one->atoms != 0;
    single_continue(s, one);
    single_finish(s, one);
}
