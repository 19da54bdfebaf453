/*
 * psm_table.c - encodes the caller's fields: dense value ids, costs, and ranks of all cells.
 *
 * Invariants: later steps use only ids and ranks, not names or texts. Ids that no row has are
 * dropped, so `distinct` is the number of different values in the rows.
 */
#include "psm_int.h"

#include <stdlib.h>
#include <string.h>

int psm_check(const psm_input *in, err *e) {
    if (in->nfields < 0 || in->nfields > PSM_MAX_FIELDS) {
        return err_set(e, ERR_LIMIT, "an LLM call takes at most %d fields, this one has %d",
                       PSM_MAX_FIELDS, in->nfields);
    }
    for (int f = 0; f < in->nfields; f++) {
        const psm_field *field = &in->fields[f];
        for (uint32_t r = 0; r < in->rows; r++) {
            uint32_t v = field->value[r];
            if (v >= field->distinct && v != PSM_ABSENT) {
                return err_set(e, ERR_INTERNAL, "psm: value id %u of field %d is not below %u", v,
                               f, field->distinct);
            }
        }
    }
    return 0;
}

/* Maps a column's dense ids to the caller's ids. */
typedef struct encoded {
    uint32_t *source; /* [present] the caller's id of each dense id */
    uint32_t present; /* number of values, without the absent value */
} encoded;

static void encode_column(psm_table *t, psm_column *c, const psm_field *field,
                          const uint32_t *chosen, encoded *out) {
    uint32_t *dense = SCRATCH_ZARRAY(t->mem, uint32_t, (size_t)field->distinct + 1);
    bool absent = false;
    c->id = SCRATCH_ARRAY(t->mem, uint32_t, t->rows);
    for (uint32_t r = 0; r < t->rows; r++) {
        uint32_t v = field->value[chosen != NULL ? chosen[r] : r];
        v = BASE_MIN(v, field->distinct);
        absent |= v == field->distinct;
        dense[v] = 1;
        c->id[r] = v;
    }
    uint32_t n = 0;
    out->source = SCRATCH_ARRAY(t->mem, uint32_t, field->distinct);
    for (uint32_t v = 0; v < field->distinct; v++) {
        if (dense[v] != 0) {
            out->source[n] = v;
            dense[v] = n++;
        }
    }
    dense[field->distinct] = n;
    out->present = n;
    c->absent = n;
    c->distinct = n + (absent ? 1 : 0);
    c->name_units = field->name_units;
    c->cost = SCRATCH_ARRAY(t->mem, uint32_t, (size_t)n + 1);
    c->rank = SCRATCH_ZARRAY(t->mem, uint32_t, (size_t)n + 1);
    for (uint32_t v = 0; v < n; v++)
        c->cost[v] = field->name_units + field->length[out->source[v]];
    c->cost[n] = 0;
    c->units = 0;
    for (uint32_t r = 0; r < t->rows; r++) {
        c->id[r] = dense[c->id[r]];
        c->units += c->cost[c->id[r]];
    }
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static uint32_t common_units(const psm_cell *a, const psm_cell *b) {
    uint32_t n = BASE_MIN(a->length, b->length), k = 0;
    while (k < n && a->units[k] == b->units[k])
        k++;
    return k;
}

/* Compares two cells by their units. Both must have units. */
static int cell_compare(const psm_cell *a, const psm_cell *b) {
    uint32_t k = common_units(a, b);
    bool end_a = k == a->length, end_b = k == b->length;
    if (end_a || end_b)
        return (int)end_b - (int)end_a;
    return a->units[k] < b->units[k] ? -1 : 1;
}

typedef struct cell_ref {
    psm_cell cell;
    uint32_t *rank; /* where the cell's rank is to be written */
} cell_ref;

static void merge_refs(cell_ref *v, cell_ref *spare, uint32_t n, uint32_t half) {
    memcpy(spare, v, sizeof *v * half);
    uint32_t i = 0, j = half, k = 0;
    while (i < half && j < n)
        v[k++] = cell_compare(&v[j].cell, &spare[i].cell) < 0 ? v[j++] : spare[i++];
    memcpy(v + k, spare + i, sizeof *v * (half - i));
}

/* Merge sort; sorted input takes one pass. The values of a column are already sorted if their units
 * are characters. */
static void sort_refs(cell_ref *v, cell_ref *spare, uint32_t n) {
    if (n < 2)
        return;
    uint32_t sorted = 1;
    while (sorted < n && cell_compare(&v[sorted - 1].cell, &v[sorted].cell) <= 0)
        sorted++;
    if (sorted == n)
        return;
    uint32_t half = sorted > n / 2 ? sorted : n / 2;
    if (half != sorted)
        sort_refs(v, spare, half);
    sort_refs(v + half, spare, n - half);
    merge_refs(v, spare, n, half);
}

/* Gives ranks to n cells of one space. known: the cells have units and are sorted by them, so equal
 * cells get the same rank. */
static void number_refs(psm_table *t, const cell_ref *v, uint32_t n, bool known) {
    for (uint32_t i = 0; i < n; i++) {
        if (i == 0 || !known || cell_compare(&v[i - 1].cell, &v[i].cell) != 0)
            t->cell[t->ranks++] = v[i].cell;
        *v[i].rank = t->ranks - 1;
    }
}

/* Lists the cells of column f. Returns their number. */
static uint32_t collect_refs(psm_table *t, const psm_field *field, int f, const encoded *from,
                             uint32_t space, cell_ref *v) {
    psm_column *c = &t->column[f];
    for (uint32_t i = 0; i < from->present; i++) {
        uint32_t source = from->source[i];
        v[i].cell = (psm_cell){.units = field->units != NULL ? field->units[source] : NULL,
                               .length = field->length[source],
                               .name_units = field->name_units,
                               .space = space};
        v[i].rank = &c->rank[i];
    }
    return from->present;
}

/* Ranks all cells. Columns that have units but no name units share space 0: each column is sorted,
 * then the columns are merged. */
static void rank_cells(psm_table *t, const psm_input *in, const encoded *from) {
    size_t total = 1;
    for (int f = 0; f < t->fields; f++)
        total += from[f].present;
    t->cell = SCRATCH_ARRAY(t->mem, psm_cell, total);
    t->cell[0] = (psm_cell){0};
    t->ranks = 1;
    scratch_mark mark = scratch_save(t->mem);
    cell_ref *v = SCRATCH_ARRAY(t->mem, cell_ref, total);
    cell_ref *spare = SCRATCH_ARRAY(t->mem, cell_ref, total);
    uint32_t nameless = 0;
    for (int f = 0; f < t->fields; f++) {
        const psm_field *field = &in->fields[f];
        if (field->units != NULL && field->name_units == 0) {
            uint32_t n = collect_refs(t, field, f, &from[f], 0, v + nameless);
            sort_refs(v + nameless, spare, n);
            if (nameless > 0 && n > 0)
                merge_refs(v, spare, nameless + n, nameless);
            nameless += n;
        }
    }
    number_refs(t, v, nameless, true);
    for (int f = 0; f < t->fields; f++) {
        const psm_field *field = &in->fields[f];
        if (field->units == NULL || field->name_units > 0) {
            uint32_t n = collect_refs(t, field, f, &from[f], (uint32_t)f + 1, v);
            if (field->units != NULL)
                sort_refs(v, spare, n);
            number_refs(t, v, n, field->units != NULL);
        }
    }
    scratch_restore(t->mem, mark);
}

uint32_t psm_common(const psm_table *t, uint32_t rank_a, uint32_t rank_b) {
    const psm_cell *a = &t->cell[rank_a], *b = &t->cell[rank_b];
    if (rank_a == 0 || rank_b == 0 || a->space != b->space)
        return 0;
    return a->name_units + (a->units != NULL ? common_units(a, b) : 0);
}

static int by_rank(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

void psm_sort_ranks(uint32_t *ranks, uint32_t n) {
    if (n > 24) {
        qsort(ranks, n, sizeof *ranks, by_rank);
        return;
    }
    for (uint32_t i = 1; i < n; i++) {
        uint32_t rank = ranks[i], at = i;
        for (; at > 0 && ranks[at - 1] > rank; at--)
            ranks[at] = ranks[at - 1];
        ranks[at] = rank;
    }
}

void psm_encode_rows(psm_table *t, const psm_input *in, const uint32_t *chosen, uint32_t count,
                     scratch *mem) {
    *t = (psm_table){.rows = count, .fields = in->nfields, .mem = mem};
    t->column = SCRATCH_ZARRAY(mem, psm_column, t->fields);
    encoded *from = SCRATCH_ARRAY(mem, encoded, t->fields);
    for (int f = 0; f < t->fields; f++) {
        encode_column(t, &t->column[f], &in->fields[f], chosen, &from[f]);
        t->units += t->column[f].units;
        t->most_distinct = BASE_MAX(t->most_distinct, t->column[f].distinct);
    }
    rank_cells(t, in, from);
    psm_score_fields(t);
}

void psm_encode(psm_table *t, const psm_input *in, scratch *mem) {
    psm_encode_rows(t, in, NULL, in->rows, mem);
}
