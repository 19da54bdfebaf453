/*
 * psm_fd.c - finds functional dependencies between fields, and makes the atoms of the search.
 *
 * Fields that determine each other form an atom; a field is sent after the fields it determines.
 * Neither rule loses sharing: rows with equal values of a field also have equal values of the
 * fields that it determines, so sending the determined fields first splits no group. Dependencies
 * are verified on all rows.
 */
#include "psm_int.h"

/* Whether each value of a occurs with only one value of b. `to` is work space of a->distinct
 * entries. Most pairs of columns fail within a few rows. */
static bool determines(const psm_table *t, const psm_column *a, const psm_column *b, uint32_t *to) {
    memset(to, 0xff, sizeof *to * a->distinct);
    for (uint32_t r = 0; r < t->rows; r++) {
        uint32_t *seen = &to[a->id[r]];
        if (*seen == UINT32_MAX)
            *seen = b->id[r];
        else if (*seen != b->id[r])
            return false;
    }
    return true;
}

/* Writes the ranks of a column's values, without the absent one, ascending; returns their number.
 * seen: [ranks] work space. */
static uint32_t sorted_ranks(const psm_column *c, uint32_t *seen, uint32_t *out) {
    uint32_t low = UINT32_MAX, high = 0, n = 0;
    for (uint32_t v = 0; v < c->absent; v++) {
        low = BASE_MIN(low, c->rank[v]);
        high = BASE_MAX(high, c->rank[v]);
    }
    if (c->absent == 0)
        return 0;
    memset(seen, 0, sizeof *seen * ((size_t)high - low + 1));
    for (uint32_t v = 0; v < c->absent; v++)
        seen[c->rank[v] - low] = 1;
    for (uint32_t rank = low; rank <= high; rank++)
        if (seen[rank - low] != 0)
            out[n++] = rank;
    return n;
}

/* Fills the curve of a column from its sorted ranks: sums the units that neighbours share among 2,
 * 4, 8, … evenly spaced ranks. Returns the largest of these sums. */
static uint64_t measure_common(const psm_table *t, const uint32_t *rank, uint32_t n,
                               common_curve *common) {
    uint64_t sum = 0, most = 0;
    for (int k = 1; k < (int)BASE_COUNT(common->at); k++) {
        uint64_t count = UINT64_C(1) << k;
        if (count < 2 * (uint64_t)n) {
            count = BASE_MIN(count, (uint64_t)n);
            sum = 0;
            for (uint64_t i = 1; i < count; i++)
                sum += psm_common(t, rank[(i - 1) * n / count], rank[i * n / count]);
            common->at[k] = count > 1 ? (uint32_t)BASE_MIN(sum * 16 / (count - 1), UINT32_MAX) : 0;
        } else {
            common->at[k] = common->at[k - 1];
        }
        most = BASE_MAX(most, sum);
    }
    return most;
}

/* Adds the units of field f to the costs of its atom, whose value ids are those of another
 * field. */
static void add_cost(const psm_table *t, psm_atom *a, int f) {
    const psm_column *c = &t->column[f];
    uint32_t *other = SCRATCH_ZARRAY(t->mem, uint32_t, a->distinct);
    for (uint32_t r = 0; r < t->rows; r++)
        other[a->id[r]] = c->id[r];
    for (uint32_t v = 0; v < a->distinct; v++)
        a->cost[v] += c->cost[other[v]];
}

/* Orders the atom's fields by `total`, descending, and sets its members from the first field.
 * total, common: by field, the results of measure_common. */
static void finish_atom(psm_table *t, psm_atom *a, const uint64_t *total,
                        const common_curve *common) {
    for (int i = 1; i < a->fields; i++) {
        uint8_t f = a->field[i];
        int at = i;
        for (; at > 0 && total[a->field[at - 1]] < total[f]; at--)
            a->field[at] = a->field[at - 1];
        a->field[at] = f;
    }
    const psm_column *c = &t->column[a->field[0]];
    a->common = common[a->field[0]];
    a->id = c->id;
    a->distinct = c->distinct;
    a->absent = c->absent;
    a->cost = SCRATCH_ARRAY(t->mem, uint32_t, c->distinct);
    memcpy(a->cost, c->cost, sizeof *a->cost * c->distinct);
    for (int i = 1; i < a->fields; i++) {
        scratch_mark mark = scratch_save(t->mem);
        add_cost(t, a, a->field[i]);
        scratch_restore(t->mem, mark);
    }
}

/* Adds field f to the atom whose fields it determines, and which determine it; if there is none,
 * makes a new atom. A field without repeated values is always an atom of its own: it determines all
 * fields, but shares none of its cells. */
static void add_to_atoms(psm_table *t, int f, uint32_t *to) {
    const psm_column *c = &t->column[f];
    for (int i = 0; i < t->atoms && c->distinct < t->rows; i++) {
        const psm_column *other = &t->column[t->atom[i].field[0]];
        if (other->distinct == c->distinct && determines(t, c, other, to)) {
            t->atom[i].field[t->atom[i].fields++] = (uint8_t)f;
            return;
        }
    }
    psm_atom *a = &t->atom[t->atoms++];
    a->field[a->fields++] = (uint8_t)f;
}

void psm_find_atoms(psm_table *t) {
    t->atom = SCRATCH_ZARRAY(t->mem, psm_atom, t->fields);
    uint64_t total[PSM_MAX_FIELDS];
    common_curve *common = SCRATCH_ZARRAY(t->mem, common_curve, t->fields);
    scratch_mark mark = scratch_save(t->mem);
    uint32_t *to = SCRATCH_ARRAY(t->mem, uint32_t, BASE_MAX(t->most_distinct, t->ranks));
    uint32_t *ranks = SCRATCH_ARRAY(t->mem, uint32_t, t->most_distinct);
    for (int f = 0; f < t->fields; f++) {
        uint32_t n = sorted_ranks(&t->column[f], to, ranks);
        total[f] = measure_common(t, ranks, n, &common[f]);
        add_to_atoms(t, f, to);
    }
    scratch_restore(t->mem, mark);
    for (int i = 0; i < t->atoms; i++)
        finish_atom(t, &t->atom[i], total, common);
    to = SCRATCH_ARRAY(t->mem, uint32_t, t->most_distinct);
    for (int i = 0; i < t->atoms; i++) {
        psm_atom *a = &t->atom[i];
        const psm_column *from = &t->column[a->field[0]];
        for (int j = 0; j < t->atoms && a->distinct < t->rows; j++) {
            const psm_column *target = &t->column[t->atom[j].field[0]];
            if (target->distinct < from->distinct && determines(t, from, target, to))
                a->needs |= set_of(j);
        }
        t->searched |= a->distinct < t->rows ? set_of(i) : 0;
    }
}
