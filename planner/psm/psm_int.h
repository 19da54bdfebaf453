/*
 * psm_int.h - the steps of the prefix sharing solver, and the data that the steps pass to each
 * other. psm.h explains the idea.
 *
 *   psm_input -> psm_table (psm_table.c)   dense value ids, costs, and ranks that order all cells
 *             -> atoms     (psm_fd.c)      fields tied by functional dependencies
 *             -> lattice   (psm_lattice.c) the groups of rows under each set of atoms
 *             -> psm_paths (psm_dp.c)      for each row the fields that it shares, in order
 *             -> orders    (psm_fixed.c)   the remaining fields of each row appended
 *             -> row order (psm_trie.c)    by one sort; the shared units are counted on it
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
    scratch_chunk *top; /* the chunk that memory is allocated from; linked to older chunks */
    /* The largest chunk freed so far, kept for the next push: code that allocates and frees again
     * and again around a chunk's end then does not call malloc each time. NULL: none */
    scratch_chunk *spare;
    jmp_buf *full; /* where scratch_alloc longjmps to out of memory and on cancellation */
    const atomic_bool *cancel; /* checked by each allocation; NULL: not cancellable */
} scratch;

/* The stack's state at a moment, to which scratch_restore returns. */
typedef struct scratch_mark {
    scratch_chunk *top; /* scratch.top; NULL: the stack was empty */
    size_t used;        /* bytes allocated in `top` */
} scratch_mark;

void *scratch_alloc(scratch *s, size_t bytes); /* 16-byte aligned, not cleared */
scratch_mark scratch_save(const scratch *s);
void scratch_restore(scratch *s, scratch_mark m); /* frees all allocations since the mark */

/* Runs step(job, mem) with a new stack, then frees the stack. Returns false if memory ran out or
 * the caller cancelled. */
bool scratch_run(void (*step)(void *job, scratch *mem), void *job, const atomic_bool *cancel);

/* hash_index_add for an index with its slots in scratch memory. */
void scratch_index_add(scratch *s, hash_index *x, uint64_t hash, uint32_t item);

/* Allocate an array of n elements of `type`; SCRATCH_ZARRAY sets them to zero. */
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
 * text. Rows without the field have the value "absent", whose id follows all other ids.
 */
typedef struct psm_column {
    uint32_t *id;      /* [rows] id of the row's value */
    uint32_t distinct; /* number of distinct values, including "absent" if a row has it */
    uint32_t absent;   /* id of "absent", even if no row has it: the number of other values */
    uint32_t *cost;    /* [distinct] units of the field's name plus those of the value; absent: 0 */
    uint32_t *rank;    /* [distinct] rank of the value's cell, from 1; absent: 0 */
    uint64_t units;    /* sum of the costs of all rows' values */
    uint32_t name_units; /* psm_field.name_units */
} psm_column;

/*
 * A cell of any column. Ranks number the cells of all columns, sorted by space and then by units,
 * so that cells with common leading units are neighbours. A column is a space of its own, but all
 * columns without name units are one space, since their cells may share units. Cells of a space
 * with equal units have the same rank. Rank 0 means the end of a row or an absent cell.
 */
typedef struct psm_cell {
    const int32_t *units; /* [length] the value's units; NULL: unknown */
    uint32_t length;      /* number of the value's units */
    uint32_t name_units;  /* number of the units of the column's name */
    uint32_t space;       /* cells of different spaces share no units */
} psm_cell;

/* How many leading units, with names, neighbours in the sorted values of a column share. at[k]: the
 * mean over 2^k evenly spaced values, in sixteenths of a unit; at[0] is not used. */
typedef struct common_curve {
    uint32_t at[33];
} common_curve;

/*
 * An atom: fields that determine each other and are always sent together. Its first field is the
 * field whose values share the most leading units. The atom's value ids are those of the first
 * field.
 */
typedef struct psm_atom {
    const uint32_t *id;            /* [rows] id of the row's value */
    uint32_t *cost;                /* [distinct] units of the cells of all fields of the atom */
    uint32_t distinct;             /* psm_column.distinct of the first field */
    uint32_t absent;               /* psm_column.absent of the first field */
    common_curve common;           /* the curve of the first field's values */
    int fields;                    /* number of fields */
    uint8_t field[PSM_MAX_FIELDS]; /* the fields in sending order */
    field_set needs;               /* atoms that this atom determines; they are sent before it */
} psm_atom;

typedef struct psm_table {
    uint32_t rows;
    int fields;
    uint32_t most_distinct; /* the largest psm_column.distinct */
    psm_column *column;     /* [fields] */
    psm_cell *cell;         /* [ranks] a cell of each rank */
    uint32_t ranks;         /* number of ranks, including rank 0 */
    uint64_t units;         /* units of all rows */
    uint8_t *score_order;   /* [fields] set by psm_score_fields */
    psm_atom *atom;         /* [atoms] set by psm_find_atoms; NULL before */
    int atoms;
    field_set searched; /* atoms with a value that occurs twice; only they can share cells */
    scratch *mem;
} psm_table;

/* Checks the number of fields and all value ids. Fails with ERR_LIMIT or ERR_INTERNAL. */
int psm_check(const psm_input *in, err *e);
/* Fills *t, except the atoms, from `in`, which must have passed psm_check. */
void psm_encode(psm_table *t, const psm_input *in, scratch *mem);
/* As psm_encode, but only for rows chosen[0 .. count-1] of `in`. */
void psm_encode_rows(psm_table *t, const psm_input *in, const uint32_t *chosen, uint32_t count,
                     scratch *mem);
/* Returns the number of common leading units, with the name's, of two cells of different ranks. */
uint32_t psm_common(const psm_table *t, uint32_t rank_a, uint32_t rank_b);
/* Returns the number of common leading units, with the name's, of any two cells. */
static inline uint32_t psm_shared(const psm_table *t, uint32_t rank_a, uint32_t rank_b) {
    return rank_a == rank_b ? t->cell[rank_a].name_units + t->cell[rank_a].length
                            : psm_common(t, rank_a, rank_b);
}
/* Sorts ascending. */
void psm_sort_ranks(uint32_t *ranks, uint32_t n);

static inline bool psm_is_absent(const psm_table *t, int field, uint32_t row) {
    return t->column[field].id[row] == t->column[field].absent;
}
static inline uint32_t psm_rank(const psm_table *t, int field, uint32_t row) {
    return t->column[field].rank[t->column[field].id[row]];
}

/* ---- the steps ------------------------------------------------------------------------------- */

/* Fills score_order: the fields by units / number of distinct values, descending. This is the score
 * of PSM's first version (average length * rows / cardinality). PSM_FIXED sends the fields in this
 * order. */
void psm_score_fields(psm_table *t);
/* Fills atom, atoms and searched. */
void psm_find_atoms(psm_table *t);

/* The field orders of all rows. Only the first `depth` entries of a row's order are valid until
 * psm_complete fills in the other entries. */
typedef struct psm_paths {
    uint8_t *order; /* [rows * fields] each row's fields in sending order */
    uint8_t *depth; /* [rows] number of valid entries of the row's order */
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
/* Returns the sum, over all rows in the order of `rows`, of the units that a row shares with the
 * row before it. */
uint64_t psm_trie_shared(const psm_table *t, const uint32_t *keys, const uint32_t *rows);

/* ---- the search ------------------------------------------------------------------------------ */

/* The rows of one value in a group. */
typedef struct value_bin {
    uint32_t count; /* number of the rows */
    uint32_t place; /* where the value's next row goes; psm_dp.c: 1 after the value's first row */
} value_bin;

/* State of one search. Its arrays are work space of single steps. */
typedef struct psm_search {
    const psm_table *t;
    psm_paths *paths; /* the field orders found so far */
    scratch *mem;
    uint64_t visits_per_row; /* budget of a lattice in row visits, per row of its problem */
    value_bin *bin;          /* [most_distinct] by value id; all counts are 0 between steps */
    uint32_t *group_of;  /* [rows] the row's group in a set; in psm_bound.c its index in a set */
    uint32_t *tmp_row;   /* [rows] lattice_set.row of a set that is being built */
    uint32_t *tmp_start; /* [rows + 1] lattice_set.start of a set that is being built */
} psm_search;

typedef enum lattice_state {
    SET_WAITING, /* not built yet */
    SET_CUT,     /* not built, because the budget is too small */
    SET_BUILT    /* its groups are known */
} lattice_state;

enum { CHOICE_NONE = 255 }; /* in place of an atom: no further atom is shared */

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
    uint32_t active;  /* number of rows in groups */
    uint32_t groups;  /* number of groups */
    uint32_t *row;    /* [active] */
    uint32_t *start;  /* [groups + 1] index in `row` of each group's first row, then `active` */
    uint64_t *saving; /* [groups] units shared beyond this set under the best choices */
    uint8_t *choice;  /* [groups] the atom to send next, or CHOICE_NONE */
    bool *entered;    /* [groups] set while rows follow the choices: rows have come to the group */
    uint32_t parent;  /* the set that is refined to this set: the subset with fewest active rows */
    uint8_t by;       /* the atom that refines `parent` to this set */
    bool open;        /* a set with one more atom was cut: these groups become separate problems */
    uint64_t chain;   /* units shared if all rows send this set's atoms, parent by parent */
    uint64_t promise; /* estimate of `chain` before the set is built */
    uint64_t one_order; /* units shared beyond this set if all groups make the same choices */
    uint8_t one_choice; /* the first of these choices, or CHOICE_NONE */
    uint32_t next;      /* index of the next set of the same size, or SET_NONE */
} lattice_set;

#define SET_NONE UINT32_MAX /* in place of a set's index: no set */

typedef struct lattice {
    psm_search *s;
    field_set atoms;                    /* the problem's atoms */
    lattice_set *set;                   /* [sets] */
    uint32_t sets;                      /* number of sets, in any state */
    uint32_t capacity;                  /* allocated entries of `set` */
    hash_index by_atoms;                /* finds the entries of `set` by atoms */
    uint32_t level[PSM_MAX_FIELDS + 1]; /* first set of each size, or SET_NONE */
    uint64_t width[PSM_MAX_FIELDS]; /* by atom: least gain so far of adding it to a set, in units */
    uint64_t budget;                /* row visits left */
} lattice;

/* Groups `rows` by every admissible set of `atoms` within the budget, beginning with the groups
 * that `start` describes as in lattice_set. */
void lattice_build(lattice *l, psm_search *s, field_set atoms, const uint32_t *rows,
                   const uint32_t *start, uint32_t groups);
/* Finds the set that consists of `from` and `atom`, in any state. Returns NULL if `atom` may not be
 * sent next, or if the lattice does not have the set. */
lattice_set *lattice_above(const lattice *l, const lattice_set *from, int atom);

/* Sets *s to a new search. work_limit: as in psm_options. */
void psm_search_open(psm_search *s, const psm_table *t, uint64_t work_limit, scratch *mem);
/* A field order for all rows while it is being searched. row, start, groups: the groups of rows
 * that are still equal under this order, as in lattice_set. */
typedef struct psm_single {
    uint8_t *order; /* [psm_table.fields] */
    int fields;     /* number of fields in `order` so far */
    uint32_t *row, *start, groups;
    field_set atoms; /* atoms that are not yet in `order` */
    bool more;       /* the lattice was cut at these groups, so they must be searched further */
} psm_single;

psm_single psm_single_new(const psm_table *t);

/* Finds for each row the fields whose cells it shares with other rows (s->paths). Also finds the
 * best single order and stores it in `one`, which must be new. */
void psm_search_grouped(psm_search *s, psm_single *one);
/* Finds the best single order. */
void psm_search_single(psm_search *s, psm_single *one);

/* Returns an upper bound on the fraction of all units that equal cells can share. `reached`: units
 * that a solution shares; the bound is improved until it is close to their fraction. */
double psm_bound(psm_search *s, uint64_t reached);

/* Counts the units in shared prefixes if a cell can be shared only whole, and only with an equal
 * cell of the same field. Overwrites keys[rows * fields] and rows[rows]. */
uint64_t psm_cell_units(const psm_table *t, const psm_paths *p, uint32_t *keys, uint32_t *rows);

#endif
