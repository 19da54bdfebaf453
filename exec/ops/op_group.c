/*
 * op_group.c - hash aggregation: GROUP BY, with groups in order of first appearance. Without keys
 * there is exactly one group, even if there are no rows.
 *
 * The key columns returned are columns of the hash table, not copies. COUNT(*) of a whole table is
 * read from its row count in storage.
 */
#include "agg_int.h"
#include "op_scan_int.h"

typedef struct group_state {
    hash_table *groups;
    agg **aggs;
    column *keys;
    uint32_t at; /* groups returned so far */
    bool done;
    uint32_t entries[BATCH_ROWS];
} group_state;

static int group_open(op *o, err *e) {
    (void)e;
    group_state *s = o->state;
    int nkeys = o->node->group.nkeys, naggs = o->node->group.naggs;
    op_init_out(o);
    s->keys = ARENA_ARRAY(o->mem, column, BASE_MAX(nkeys, 1));
    s->groups = hash_table_new(&o->memory, o->node->types, nkeys);
    s->aggs = ARENA_ARRAY(o->mem, agg *, BASE_MAX(naggs, 1));
    for (int k = 0; k < naggs; k++)
        s->aggs[k] = agg_new(o->ctx, &o->memory, &o->node->group.aggs[k], o->mem);
    return 0;
}

static int group_add(op *o, const batch *in, err *e) {
    group_state *s = o->state;
    int status = op_eval(o, o->node->group.keys, o->node->group.nkeys, in, s->keys, e);
    if (status == 0)
        status = hash_table_add(s->groups, s->keys, in->rows, s->entries, e);
    uint32_t n = hash_table_count(s->groups);
    for (int k = 0; k < o->node->group.naggs && status == 0; k++)
        status = agg_add(s->aggs[k], in, s->entries, n, o->pass, e);
    return status;
}

/* Whether the node computes SELECT COUNT(*) FROM t, without WHERE. */
static bool counts_a_table(const op *o) {
    const plan_node *p = o->node, *in = p->left;
    if (p->group.nkeys || o->left->class != &op_scan || in->scan.filter || in->scan.nlow ||
        in->scan.nhigh || in->scan.index)
        return false;
    for (int k = 0; k < p->group.naggs; k++)
        if (p->group.aggs[k].kind != AGG_COUNT_STAR || p->group.aggs[k].filter)
            return false;
    return p->group.naggs > 0 && o->ctx->txn != NULL;
}

static int count_table(op *o, batch **out, err *e) {
    group_state *s = o->state;
    uint64_t rows;
    int status = table_row_count(o->ctx->txn, o->node->left->scan.table, &rows, e);
    if (status || s->done)
        return status;
    for (int k = 0; k < o->node->group.naggs; k++) {
        column_init(&o->out.cols[k], o->pass, TYPE_INTEGER, 1, false);
        o->out.cols[k].i[0] = (int64_t)rows;
    }
    s->done = true;
    o->out.rows = 1;
    *out = &o->out;
    return 0;
}

static int group_read(op *o, err *e) {
    group_state *s = o->state;
    batch *in;
    int status;
    while ((status = op_next(o->left, &in, e)) == 0 && in) {
        arena_reset(o->pass);
        if ((status = group_add(o, in, e)) != 0)
            return status;
    }
    s->done = true;
    if (status == 0 && o->node->group.nkeys == 0 && hash_table_count(s->groups) == 0)
        status = hash_table_add(s->groups, NULL, 1, s->entries, e);
    return status;
}

static int group_next(op *o, batch **out, err *e) {
    group_state *s = o->state;
    if (counts_a_table(o))
        return count_table(o, out, e);
    int nkeys = o->node->group.nkeys, status = s->done ? 0 : group_read(o, e);
    if (status || s->at == hash_table_count(s->groups))
        return status;
    arena_reset(o->pass);
    const batch *keys = rowset_batch(hash_table_keys(s->groups), (int)(s->at / BATCH_ROWS));
    for (int k = 0; k < nkeys; k++)
        o->out.cols[k] = keys->cols[k];
    for (int k = 0; k < o->node->group.naggs && status == 0; k++)
        status = agg_result(s->aggs[k], s->at, keys->rows, o->pass, &o->out.cols[nkeys + k], e);
    s->at += (uint32_t)keys->rows;
    o->out.rows = keys->rows;
    *out = &o->out;
    return status;
}

static void group_close(op *o) {
    group_state *s = o->state;
    hash_table_free(s->groups);
    for (int k = 0; s->aggs && k < o->node->group.naggs; k++)
        agg_free(s->aggs[k]);
}

const op_class op_group = {.name = "group",
                           .state_bytes = sizeof(group_state),
                           .open = group_open,
                           .next = group_next,
                           .close = group_close};
