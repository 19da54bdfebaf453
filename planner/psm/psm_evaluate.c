/*
 * psm_evaluate.c - psm_evaluate: counts the units that given orders share.
 */
#include "psm_int.h"

#include <string.h>

static void take_orders(const psm_table *t, const uint8_t *field_order, psm_paths *p) {
    size_t cells = (size_t)t->rows * (size_t)t->fields;
    p->order = SCRATCH_ARRAY(t->mem, uint8_t, cells);
    p->depth = SCRATCH_ARRAY(t->mem, uint8_t, t->rows);
    memcpy(p->order, field_order, cells);
    memset(p->depth, t->fields, t->rows);
}

/* Counts on a copy of the table in which each value of each field has a rank and a space of its
 * own. In the original table, different cells may share leading units, and equal cells of columns
 * without names have the same rank. */
uint64_t psm_cell_units(const psm_table *t, const psm_paths *p, uint32_t *keys, uint32_t *rows) {
    scratch_mark mark = scratch_save(t->mem);
    psm_table cells = *t;
    cells.column = SCRATCH_ARRAY(t->mem, psm_column, t->fields);
    cells.ranks = 1;
    for (int f = 0; f < t->fields; f++)
        cells.ranks += t->column[f].absent;
    cells.cell = SCRATCH_ZARRAY(t->mem, psm_cell, cells.ranks);
    uint32_t next = 1;
    for (int f = 0; f < t->fields; f++) {
        psm_column *c = &cells.column[f];
        *c = t->column[f];
        c->rank = SCRATCH_ZARRAY(t->mem, uint32_t, (size_t)c->absent + 1);
        for (uint32_t v = 0; v < c->absent; v++) {
            cells.cell[next] = (psm_cell){.length = c->cost[v], .space = next};
            c->rank[v] = next++;
        }
    }
    psm_trie_keys(&cells, p, keys);
    psm_trie_sort(&cells, keys, rows);
    uint64_t units = psm_trie_shared(&cells, keys, rows);
    scratch_restore(t->mem, mark);
    return units;
}

static void evaluate_table(const psm_table *t, const uint8_t *field_order,
                           const uint32_t *row_order, psm_score *score) {
    psm_paths p;
    take_orders(t, field_order, &p);
    uint32_t *keys = SCRATCH_ARRAY(t->mem, uint32_t, (size_t)t->rows * (size_t)t->fields);
    uint32_t *rows = SCRATCH_ARRAY(t->mem, uint32_t, t->rows);
    psm_trie_keys(t, &p, keys);
    score->total_units = t->units;
    for (uint32_t r = 0; r < t->rows; r++)
        rows[r] = r;
    score->adjacent_units = psm_trie_shared(t, keys, row_order != NULL ? row_order : rows);
    psm_trie_sort(t, keys, rows);
    score->shared_units = psm_trie_shared(t, keys, rows);
    score->cell_units = psm_cell_units(t, &p, keys, rows);
}

typedef struct evaluate_job {
    const psm_input *in;
    const uint8_t *field_order;
    const uint32_t *row_order;
    psm_score *score;
} evaluate_job;

static void evaluate_step(void *p, scratch *mem) {
    evaluate_job *job = p;
    psm_table t;
    psm_encode(&t, job->in, mem);
    evaluate_table(&t, job->field_order, job->row_order, job->score);
}

int psm_evaluate(const psm_input *in, const uint8_t *field_order, const uint32_t *row_order,
                 psm_score *score, err *e) {
    int status = psm_check(in, e);
    if (status != 0)
        return status;
    evaluate_job job = {in, field_order, row_order, score};
    if (!scratch_run(evaluate_step, &job, NULL)) {
        return err_set(e, ERR_FULL, "not enough memory to count %u rows of %d fields", in->rows,
                       in->nfields);
    }
    return 0;
}
