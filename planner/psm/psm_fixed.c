/*
 * psm_fixed.c - orders the fields by score, and completes partial orders.
 */
#include "psm_int.h"

/* Compares units / cardinality exactly, by cross multiplication. The absent value has the last id,
 * so `absent` is the number of distinct values without it. On a tie the earlier field stays
 * first. */
static bool scores_higher(const psm_column *a, const psm_column *b) {
    unsigned __int128 left = (unsigned __int128)a->units * BASE_MAX(b->absent, 1u);
    unsigned __int128 right = (unsigned __int128)b->units * BASE_MAX(a->absent, 1u);
    return left > right;
}

void psm_score_fields(psm_table *t) {
    t->score_order = SCRATCH_ARRAY(t->mem, uint8_t, t->fields);
    for (int f = 0; f < t->fields; f++) {
        int at = f;
        while (at > 0 && scores_higher(&t->column[f], &t->column[t->score_order[at - 1]])) {
            t->score_order[at] = t->score_order[at - 1];
            at--;
        }
        t->score_order[at] = (uint8_t)f;
    }
}

/* Moves a row's absent fields to the end of its order. */
static void absent_last(const psm_table *t, uint8_t *order, uint32_t row) {
    uint8_t missing[PSM_MAX_FIELDS];
    int kept = 0, gone = 0;
    for (int i = 0; i < t->fields; i++)
        if (psm_is_absent(t, order[i], row))
            missing[gone++] = order[i];
        else
            order[kept++] = order[i];
    for (int i = 0; i < gone; i++)
        order[kept + i] = missing[i];
}

void psm_complete(const psm_table *t, psm_paths *p, const uint8_t *tail) {
    for (uint32_t r = 0; r < t->rows; r++) {
        uint8_t *order = p->order + (size_t)r * (size_t)t->fields;
        field_set left = ~(field_set)0;
        for (int i = 0; i < p->depth[r]; i++)
            left &= ~set_of(order[i]);
        int at = p->depth[r];
        for (int i = 0; i < t->fields; i++)
            if (left & set_of(tail[i]))
                order[at++] = tail[i];
        p->depth[r] = (uint8_t)t->fields;
        absent_last(t, order, r);
    }
}

void psm_order_all(const psm_table *t, psm_paths *p, const uint8_t *order) {
    for (uint32_t r = 0; r < t->rows; r++)
        p->depth[r] = 0;
    psm_complete(t, p, order);
}
