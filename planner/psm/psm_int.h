/*
 * psm_int.h - what the solver's files share: the encoded table, scratch memory, and the steps of a
 * solve.
 *
 *   psm_input -> psm_table (psm_table.c)   dense ids, costs and one rank space for all cells
 *             -> atoms     (psm_fd.c)      fields tied by functional dependency
 *             -> lattice   (psm_lattice.c) the rows' projections on sets of atoms
 *             -> psm_paths (psm_dp.c)      for each row the cells it shares
 *             -> orders    (psm_polish.c)  what follows them, by common leading units
 *             -> row order (psm_trie.c)    one sort, which also counts
 *
 * Scratch memory is a stack opened by scratch_run; when the system refuses more, or the work is
 * cancelled, scratch_alloc leaves by longjmp to it, so nothing between may own anything else.
 */
#ifndef KVASIR_PSM_INT_H
#define KVASIR_PSM_INT_H

#include "planner/psm.h"
#include "storage/containers.h"

#include <setjmp.h>
#include <string.h>

/* ---- scratch --------------------------------------------------------------------------------- */

typedef struct scratch_chunk scratch_chunk;

typedef struct scratch {
    scratch_chunk *top;        /* the chunk in use; older ones behind it */
    scratch_chunk *spare;      /* one emptied chunk, kept against thrashing at a chunk's edge */
    jmp_buf *full;             /* where to go when memory is refused */
    const atomic_bool *cancel; /* looked at with each allocation; NULL: never */
} scratch;

typedef struct scratch_mark {
    scratch_chunk *top;
    size_t used;
} scratch_mark;

void *scratch_alloc(scratch *s, size_t bytes); /* 16-byte aligned, not cleared */
scratch_mark scratch_save(const scratch *s);
void scratch_restore(scratch *s, scratch_mark m); /* gives back all that was allocated since */

/* Runs step(job, mem) with memory of its own and gives it back; false when the system refused some,
 * or *cancel was true when some was asked for (NULL: never). */
bool scratch_run(void (*step)(void *job, scratch *mem), void *job, const atomic_bool *cancel);

/* hash_index_add for an index whose slots are scratch. */
void scratch_index_add(scratch *s, hash_index *x, uint64_t hash, uint32_t item);

#define SCRATCH_ARRAY(s, type, n) ((type *)scratch_alloc((s), sizeof(type) * (size_t)(n)))
#define SCRATCH_ZARRAY(s, type, n)                                                                 \
    ((type *)memset(SCRATCH_ARRAY(s, type, n), 0, sizeof(type) * (size_t)(n)))

/* ---- the encoded table ----------------------------------------------------------------------- */

typedef uint64_t field_set; /* bit f: field (or atom) f */

static inline field_set set_of(int f) {
    return (field_set)1 << f;
}
static inline int set_first(field_set s) {
    return __builtin_ctzll(s);
}
static inline int set_size(field_set s) {
    return __builtin_popcountll(s);
}

/*
 * A column: the field's values under dense ids, all of which occur. Ids keep the bytewise order of
 * the text; the absent value, if it occurs, is an ordinary value of cost 0 and has the last id.
 */
typedef struct psm_column {
    uint32_t *id;      /* [rows] */
    uint32_t distinct; /* the absent value included */
    uint32_t absent;   /* its id, or `distinct` */
    uint32_t *cost;    /* [distinct] units of the cell, name included */
    uint32_t *rank;    /* [distinct] rank of the cell in psm_table.cell, from 1 */
    uint64_t units;    /* of all rows */
    uint32_t name_units;
} psm_column;

/*
 * Cells of all columns in one order, in which those that begin alike stand together: by column
 * (columns without name units, whose cells may begin alike across columns, count as one), then by
 * units. Cells that are the same units have the same rank. Rank 0 is the end of a row, which is
 * what absent cells have.
 */
typedef struct psm_cell {
    const int32_t *units; /* of the value, or NULL */
    uint32_t length;      /* of the value */
    uint32_t name_units;
    uint32_t space; /* cells of different spaces share nothing */
} psm_cell;

/* at[k]: what neighbours among 2^k values of a column share, in sixteenths of a unit. */
typedef struct common_curve {
    uint32_t at[33];
} common_curve;

/*
 * An atom: fields that determine each other, moved as one. Its ids are those of its first field,
 * the one whose different values have most in common.
 */
typedef struct psm_atom {
    const uint32_t *id; /* [rows] */
    uint32_t *cost;     /* [distinct] units of all its cells */
    uint32_t distinct;
    uint32_t absent;     /* id of the absent value of its first field, or `distinct` */
    common_curve common; /* of the values of its first field */
    int fields;
    uint8_t field[PSM_MAX_FIELDS]; /* in the order in which they are sent */
    field_set needs;               /* atoms that it determines: they stand before it */
} psm_atom;

typedef struct psm_table {
    uint32_t rows;
    int fields;
    uint32_t most_distinct;
    psm_column *column;   /* [fields] */
    psm_cell *cell;       /* [ranks] one of each rank */
    uint32_t ranks;       /* rank 0 included */
    uint64_t units;       /* in all rows */
    uint8_t *score_order; /* [fields] by v1's score */
    psm_atom *atom;       /* [atoms] filled by psm_find_atoms */
    int atoms;
    field_set searched; /* atoms in which some value occurs twice */
    scratch *mem;
} psm_table;

int psm_check(const psm_input *in, err *e);
/* Fails only by longjmp: `in` has passed psm_check. */
void psm_encode(psm_table *t, const psm_input *in, scratch *mem);
/* The same over rows chosen[0 .. count-1] of `in`. */
void psm_encode_rows(psm_table *t, const psm_input *in, const uint32_t *chosen, uint32_t count,
                     scratch *mem);
/* Units that two different cells begin with alike. */
uint32_t psm_common(const psm_table *t, uint32_t rank_a, uint32_t rank_b);
/* Units that two cells, the same or not, begin with alike. */
static inline uint32_t psm_shared(const psm_table *t, uint32_t rank_a, uint32_t rank_b) {
    return rank_a == rank_b ? t->cell[rank_a].name_units + t->cell[rank_a].length
                            : psm_common(t, rank_a, rank_b);
}
void psm_sort_ranks(uint32_t *ranks, uint32_t n);

static inline bool psm_is_absent(const psm_table *t, int field, uint32_t row) {
    return t->column[field].id[row] == t->column[field].absent;
}
static inline uint32_t psm_rank(const psm_table *t, int field, uint32_t row) {
    return t->column[field].rank[t->column[field].id[row]];
}

/* ---- the steps ------------------------------------------------------------------------------- */

/* Fills score_order: total units / cardinality, descending (v1: average length * N / cardinality).
 */
void psm_score_fields(psm_table *t);
/* Fills atom, atoms and searched. */
void psm_find_atoms(psm_table *t);

/* Per row the fields in the order in which it sends them. The first `depth` are settled; what
 * stands behind them is undefined until psm_polish or psm_complete. */
typedef struct psm_paths {
    uint8_t *order; /* [rows * fields] */
    uint8_t *depth; /* [rows] */
} psm_paths;

/* Appends the fields not among the first depth ones in the
 * order of `tail`, then moves absent fields to the end. */
void psm_complete(const psm_table *t, psm_paths *p, const uint8_t *tail);
void psm_order_all(const psm_table *t, psm_paths *p, const uint8_t *order);

/* ---- the prefix tree ------------------------------------------------------------------------- */

/* Sorts rows by the cells of their first depth fields (absent ones skipped); equal rows stay in
 * input order. keys: [rows * fields] the ranks by input row, 0 behind the last. */
void psm_trie_keys(const psm_table *t, const psm_paths *p, uint32_t *keys);
void psm_trie_sort(const psm_table *t, const uint32_t *keys, uint32_t *rows);
/* Units that rows in the order of `rows` share with the row before. */
uint64_t psm_trie_shared(const psm_table *t, const uint32_t *keys, const uint32_t *rows);

/* ---- the search ------------------------------------------------------------------------------ */

/* Rows of one value while a group is divided. */
typedef struct value_bin {
    uint32_t count, place;
} value_bin;

/*
 * What all steps of one search share. The arrays are scratch, one entry per row or value id, and
 * clean between uses.
 */
typedef struct psm_search {
    const psm_table *t;
    psm_paths *paths;
    scratch *mem;
    uint64_t visits_per_row; /* budget of one lattice, per row of its problem */
    value_bin *bin;          /* [most_distinct] counts zero */
    uint32_t *group_of;      /* [rows] */
    uint32_t *tmp_row;       /* [rows] */
    uint32_t *tmp_start;     /* [rows + 1] */
} psm_search;

typedef enum lattice_state { SET_WAITING, SET_CUT, SET_BUILT } lattice_state;

enum { CHOICE_NONE = 255 };

/*
 * One set of atoms and the rows that share it with another row, grouped by their projection on it.
 *
 *   row    [r r r | r r | r r r r]   active rows, group by group; within a group in the order of
 * the problem's rows start  [0       3     5        9]
 */
typedef struct lattice_set {
    field_set atoms;
    lattice_state state;
    uint32_t active, groups;
    uint32_t *row, *start;
    /* [groups] units that the group's rows share from here on, under the best choice */
    uint64_t *saving;
    uint8_t *choice; /* [groups] the next atom, or CHOICE_NONE */
    bool *entered;   /* [groups] on the way down: the group is a node of the tree */
    uint32_t parent; /* the set it is refined from, by atom `by`: the one of fewest active rows */
    uint8_t by;
    bool open;          /* some set above it was cut: what follows here is solved anew */
    uint64_t chain;     /* units shared on the way to it, if all rows go there */
    uint64_t promise;   /* what chain is expected to be, before the set is built */
    uint64_t one_order; /* units shared from here on if all rows choose alike */
    uint8_t one_choice;
    uint32_t next; /* in its level's list, or SET_NONE */
} lattice_set;

#define SET_NONE UINT32_MAX

typedef struct lattice {
    psm_search *s;
    field_set atoms; /* of the problem */
    lattice_set *set;
    uint32_t sets, capacity;
    hash_index by_atoms;                /* the sets */
    uint32_t level[PSM_MAX_FIELDS + 1]; /* sets of each size */
    /* the least that refining a set by the atom has gained so far */
    uint64_t width[PSM_MAX_FIELDS];
    uint64_t budget;
} lattice;

/* Groups `rows` by every down-set of `atoms` (as far as
 * the budget goes). start: the groups to begin with. */
void lattice_build(lattice *l, psm_search *s, field_set atoms, const uint32_t *rows,
                   const uint32_t *start, uint32_t groups);
/* The set with `atom` added, or NULL where `atom` may not stand next. */
lattice_set *lattice_above(const lattice *l, const lattice_set *from, int atom);

void psm_search_open(psm_search *s, const psm_table *t, uint64_t work_limit, scratch *mem);
/* One order for all rows, and the rows still together at its end, as lattice_set has them. */
typedef struct psm_single {
    uint8_t *order;
    int fields;
    uint32_t *row, *start, groups;
    field_set atoms; /* not in it yet */
    bool more;       /* the search has not come to its end */
} psm_single;

psm_single psm_single_new(const psm_table *t);

/* Settles the cells that rows share, group by group; rows that share none keep depth 0. one: NULL,
 * or a new one, in which the best single order is left. */
void psm_search_grouped(psm_search *s, psm_single *one);
/* The best order for all rows, whole cells first. */
void psm_search_single(psm_search *s, psm_single *one);

/* At most this fraction of all units can be shared by whole cells. reached: units that a solution
 * shares; the bound is not tightened further once it is near. */
double psm_bound(psm_search *s, uint64_t reached);

/* What only equal (field, value) pairs share. keys:
 * [rows * fields], rows: [rows], both overwritten. */
uint64_t psm_cell_units(const psm_table *t, const psm_paths *p, uint32_t *keys, uint32_t *rows);

#endif
