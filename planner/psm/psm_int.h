/*
 * psm_int.h - the steps of the prefix sharing solver, and the data that the steps pass to each
 * other. psm.h explains the idea.
 *
 *   psm_input -> psm_table (psm_table.c)   dense value ids, costs, one rank space for all cells
 *             -> atoms     (psm_fd.c)      fields tied by functional dependencies
 *             -> lattice   (psm_lattice.c) the groups of rows under each set of atoms
 *             -> psm_paths (psm_dp.c)      per row the fields it shares with others, in order
 *             -> orders    (psm_fixed.c)   completed by the fields that follow
 *             -> row order (psm_trie.c)    by one sort, which also counts what is shared
 *
 * Scratch memory is a stack inside scratch_run. When memory runs out or the caller cancels,
 * scratch_alloc longjmps to scratch_run, which frees the stack; so no code in between may own any
 * other resource.
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
    scratch_chunk *top;   /* current chunk, linked to older ones */
    scratch_chunk *spare; /* one free chunk, so that use around a chunk's end does not thrash */
    jmp_buf *full;        /* longjmp target out of memory or on cancellation */
    const atomic_bool *cancel; /* checked by each allocation; NULL: not cancellable */
} scratch;

typedef struct scratch_mark {
    scratch_chunk *top;
    size_t used;
} scratch_mark;

void *scratch_alloc(scratch *s, size_t bytes); /* 16-byte aligned, not cleared */
scratch_mark scratch_save(const scratch *s);
void scratch_restore(scratch *s, scratch_mark m); /* frees all allocations since the mark */

/* Runs step(job, mem) with a new stack and frees it. False: out of memory or cancelled. */
bool scratch_run(void (*step)(void *job, scratch *mem), void *job, const atomic_bool *cancel);

/* hash_index_add for an index with its slots in scratch memory. */
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
 * A field over the rows of the problem. Value ids are dense and keep the bytewise order of the
 * text. "Absent" is a value of cost 0 with the last id, if it occurs.
 */
typedef struct psm_column {
    uint32_t *id;      /* [rows] */
    uint32_t distinct; /* including the absent value */
    uint32_t absent;   /* id of the absent value, or `distinct` */
    uint32_t *cost;    /* [distinct] units of the field's name plus those of the value */
    uint32_t *rank;    /* [distinct] rank of the cell: index into psm_table.cell, from 1 */
    uint64_t units;    /* of all rows */
    uint32_t name_units;
} psm_column;

/*
 * A cell of any column. Ranks number all cells so that cells with common leading units are
 * neighbours: by column, then by units. All columns without name units count as one column, since
 * their cells may share units. Cells with equal units have equal ranks. Rank 0 means the end of a
 * row or an absent cell.
 */
typedef struct psm_cell {
    const int32_t *units; /* the value's units, or NULL */
    uint32_t length;      /* number of the value's units */
    uint32_t name_units;
    uint32_t space; /* cells share units only within a space */
} psm_cell;

/* at[k]: mean number of units, in sixteenths, that neighbours share among 2^k values of a
 * column. */
typedef struct common_curve {
    uint32_t at[33];
} common_curve;

/*
 * An atom: fields that determine each other and are always sent together. Its first field is the
 * field whose values have the longest common beginnings. The atom's value ids are those of the
 * first field.
 */
typedef struct psm_atom {
    const uint32_t *id; /* [rows] */
    uint32_t *cost;     /* [distinct] units of all its cells */
    uint32_t distinct;
    uint32_t absent;     /* id of the first field's absent value, or `distinct` */
    common_curve common; /* the curve of the first field's values */
    int fields;
    uint8_t field[PSM_MAX_FIELDS]; /* in sending order */
    field_set needs;               /* atoms that this atom determines; they are sent before it */
} psm_atom;

typedef struct psm_table {
    uint32_t rows;
    int fields;
    uint32_t most_distinct;
    psm_column *column;   /* [fields] */
    psm_cell *cell;       /* [ranks] a cell of each rank */
    uint32_t ranks;       /* including rank 0 */
    uint64_t units;       /* of all rows */
    uint8_t *score_order; /* [fields] by psm_score_fields */
    psm_atom *atom;       /* [atoms] by psm_find_atoms; NULL before */
    int atoms;
    field_set searched; /* atoms with a value that occurs twice; only they can share cells */
    scratch *mem;
} psm_table;

int psm_check(const psm_input *in, err *e);
/* `in` must have passed psm_check. */
void psm_encode(psm_table *t, const psm_input *in, scratch *mem);
/* As psm_encode, but only for rows chosen[0 .. count-1] of `in`. */
void psm_encode_rows(psm_table *t, const psm_input *in, const uint32_t *chosen, uint32_t count,
                     scratch *mem);
/* Returns the number of common leading units of two different cells, with names. */
uint32_t psm_common(const psm_table *t, uint32_t rank_a, uint32_t rank_b);
/* Returns the number of common leading units of two cells, with names. */
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

/* Fills score_order: fields by total units / number of distinct values, descending. This is the
 * score of PSM's first version (average length * rows / cardinality), whose order PSM_FIXED
 * uses. */
void psm_score_fields(psm_table *t);
/* Fills atom, atoms and searched. */
void psm_find_atoms(psm_table *t);

/* The field orders of all rows. Only the first `depth` entries of a row's order are valid until
 * psm_complete fills in the other entries. */
typedef struct psm_paths {
    uint8_t *order; /* [rows * fields] */
    uint8_t *depth; /* [rows] */
} psm_paths;

/* Appends each row's remaining fields in the order of `tail`, then moves absent fields to the
 * end. */
void psm_complete(const psm_table *t, psm_paths *p, const uint8_t *tail);
/* Gives all rows the same order. */
void psm_order_all(const psm_table *t, psm_paths *p, const uint8_t *order);

/* ---- the prefix tree ------------------------------------------------------------------------- */

/* Fills keys[rows * fields]: for each input row the ranks of its cells in the order in which they
 * are sent, without absent cells, then zeros. */
void psm_trie_keys(const psm_table *t, const psm_paths *p, uint32_t *keys);
/* Sorts all rows by their keys into `rows`, stably. */
void psm_trie_sort(const psm_table *t, const uint32_t *keys, uint32_t *rows);
/* Returns the sum of the units that each row in the order of `rows` shares with the previous
 * row. */
uint64_t psm_trie_shared(const psm_table *t, const uint32_t *keys, const uint32_t *rows);

/* ---- the search ------------------------------------------------------------------------------ */

/* The rows of one value while a group is partitioned. */
typedef struct value_bin {
    uint32_t count, place;
} value_bin;

/* State of one search. Its arrays are work space of single steps. */
typedef struct psm_search {
    const psm_table *t;
    psm_paths *paths;
    scratch *mem;
    uint64_t visits_per_row; /* budget of a lattice, per row of its problem */
    value_bin *bin;          /* [most_distinct] with counts 0 between uses */
    uint32_t *group_of;      /* [rows] */
    uint32_t *tmp_row;       /* [rows] */
    uint32_t *tmp_start;     /* [rows + 1] */
} psm_search;

typedef enum lattice_state { SET_WAITING, SET_CUT, SET_BUILT } lattice_state;

enum { CHOICE_NONE = 255 };

/*
 * A set of atoms. Its groups are the rows that agree on all of them; rows alone in their group are
 * left out.
 *
 *   row    [r r r | r r | r r r r]   the rows by group, each group in the order of the problem
 *   start  [0       3     5        9]
 */
typedef struct lattice_set {
    field_set atoms;
    lattice_state state;
    uint32_t active, groups; /* number of rows and of groups */
    uint32_t *row, *start;
    uint64_t *saving; /* [groups] units shared beyond this set under the best choices */
    uint8_t *choice;  /* [groups] the atom to send next, or CHOICE_NONE */
    bool *entered;    /* [groups] while rows follow the choices: some rows take this path */
    uint32_t parent;  /* the set that is refined to this set: the subset with fewest active rows */
    uint8_t by;       /* the atom that refines `parent` to this set */
    bool open;        /* a larger set was cut: the groups of this set become separate problems */
    uint64_t chain;   /* units shared up to this set if all rows take this path */
    uint64_t promise; /* estimate of chain before the set is built */
    uint64_t one_order; /* units shared beyond this set if all rows make the same choices */
    uint8_t one_choice; /* the first of these choices */
    uint32_t next;      /* next set of the same size, or SET_NONE */
} lattice_set;

#define SET_NONE UINT32_MAX

typedef struct lattice {
    psm_search *s;
    field_set atoms; /* the problem's atoms */
    lattice_set *set;
    uint32_t sets, capacity;
    hash_index by_atoms;                /* finds the entries of `set` by atoms */
    uint32_t level[PSM_MAX_FIELDS + 1]; /* first set of each size, or SET_NONE */
    uint64_t width[PSM_MAX_FIELDS];     /* least gain of refining by each atom so far */
    uint64_t budget;                    /* row visits left */
} lattice;

/* Groups `rows` by every admissible set of `atoms` within the budget, beginning with the groups
 * that `start` describes as in lattice_set. */
void lattice_build(lattice *l, psm_search *s, field_set atoms, const uint32_t *rows,
                   const uint32_t *start, uint32_t groups);
/* Finds the set that consists of `from` and `atom`. Returns NULL if `atom` may not be sent next, or
 * if the set was not built. */
lattice_set *lattice_above(const lattice *l, const lattice_set *from, int atom);

void psm_search_open(psm_search *s, const psm_table *t, uint64_t work_limit, scratch *mem);
/* A field order for all rows while it is being searched. row, start, groups: the groups of rows
 * that are still equal under this order, as in lattice_set. */
typedef struct psm_single {
    uint8_t *order;
    int fields;
    uint32_t *row, *start, groups;
    field_set atoms; /* not yet in `order` */
    bool more;       /* the lattice was cut below: search on */
} psm_single;

psm_single psm_single_new(const psm_table *t);

/* Finds for each row the fields whose cells it shares with other rows (s->paths). Also finds the
 * best single order and stores it in `one`, which must be new. */
void psm_search_grouped(psm_search *s, psm_single *one);
/* Finds the best single order. */
void psm_search_single(psm_search *s, psm_single *one);

/* Returns an upper bound on the fraction of all units that equal cells can share. `reached`: units
 * that a solution shares; the bound is improved until it is close to them. */
double psm_bound(psm_search *s, uint64_t reached);

/* Counts the units shared if only equal cells of one field can be shared. Overwrites keys[rows *
 * fields] and rows[rows]. */
uint64_t psm_cell_units(const psm_table *t, const psm_paths *p, uint32_t *keys, uint32_t *rows);

#endif
