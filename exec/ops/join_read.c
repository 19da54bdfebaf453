/*
 * join_read.c - reads the inputs of a hash or loop join, in the right order. In an index join
 * (planner/plan/index_join.c) one input is a table. Its other input is read first, and then only
 * the table rows that have the keys of the other input.
 *
 * Invariant: table rows that are not read match no row, so the join returns the same as if it had
 * read the whole table.
 * Estimates may be wrong: when looking up the keys would cost more than reading the whole table,
 * the whole table is read and no more left rows are kept.
 */
#include <string.h>

#include "join_pairs_int.h"
#include "op_scan_int.h"

static int read_right(op *o, join_pairs *p, err *e) {
    return op_rows(o->right, &o->memory, &p->right, &p->own_right, e);
}

/* ---- index join ------------------------------------------------------------------------------ */

static op *find_scan(const op *o) {
    op *at = o->node->join.keyed == KEYED_LEFT ? o->left : o->right;
    while (at->node != o->node->join.key_scan)
        at = at->left;
    return at;
}

static int look_up(op *o, op *scan, const rowset *rows, uint64_t all, err *e) {
    const plan_node *p = o->node;
    int nkeys = p->join.key_scan->scan.nlow, status = 0;
    column *keys = ARENA_ARRAY(o->mem, column, nkeys);
    double asked = (double)rowset_rows(rows);
    for (int b = 0; b < rowset_batches(rows) && status == 0; b++) {
        const batch *in = rowset_batch(rows, b);
        if (!plan_keys_pay(asked, (double)op_scan_found_rows(scan), (double)all))
            return op_scan_whole(scan, e);
        if (check_cancel(o->ctx->cancel, e))
            return ERR_CANCELLED;
        arena_reset(o->pass);
        status = op_eval(o, p->join.lookup, nkeys, in, keys, e);
        if (status == 0)
            status = op_scan_keys(scan, keys, in->rows, e);
    }
    if (status == 0)
        op_scan_found(scan);
    return status;
}

static int rows_of_table(const op *o, uint64_t *all, err *e) {
    return table_row_count(o->ctx->txn, o->node->join.key_scan->scan.table, all, e);
}

/* Reads the right input first, then the left rows whose keys are in it. */
static int read_left_by_keys(op *o, join_pairs *p, err *e) {
    uint64_t all;
    int status = p->right ? 0 : read_right(o, p, e);
    if (status || rowset_rows(p->right) == 0)
        return status;
    if (!p->looked_up) {
        p->looked_up = true;
        if ((status = rows_of_table(o, &all, e)) == 0)
            status = look_up(o, find_scan(o), p->right, all, e);
    }
    return status ? status : op_next(o->left, &p->in, e);
}

/* Keeps left rows until the input ends, or until looking up their keys would cost more than reading
 * the whole table. */
static int keep_left(op *o, join_pairs *p, uint64_t all, err *e) {
    int status = 0;
    p->kept.rows = rowset_new_in(&o->memory, o->node->left->types, o->node->left->ncols);
    while (status == 0 && plan_keys_pay((double)rowset_rows(p->kept.rows), 0, (double)all)) {
        batch *in;
        if ((status = op_next(o->left, &in, e)) != 0)
            return status;
        if (!in) {
            p->kept.ended = true;
            break;
        }
        status = rowset_append(p->kept.rows, in, e);
    }
    return status;
}

static int read_right_of_kept_left(op *o, join_pairs *p, err *e) {
    uint64_t all;
    int status = rows_of_table(o, &all, e);
    if (status == 0)
        status = keep_left(o, p, all, e);
    if (status || (p->kept.ended && rowset_rows(p->kept.rows) == 0))
        return status;
    status = look_up(o, find_scan(o), p->kept.rows, all, e);
    return status ? status : read_right(o, p, e);
}

/* Keeps the left rows, reads the right rows with the same keys, then returns the left rows. */
static int read_right_by_keys(op *o, join_pairs *p, err *e) {
    int status = 0;
    if (!p->looked_up) {
        p->looked_up = true;
        status = read_right_of_kept_left(o, p, e);
    }
    if (status)
        return status;
    if (p->kept.at == rowset_batches(p->kept.rows))
        return p->kept.ended ? 0 : op_next(o->left, &p->in, e);
    p->kept.view = *rowset_batch(p->kept.rows, p->kept.at++);
    p->in = &p->kept.view;
    return 0;
}

static int read_keyed(op *o, join_pairs *p, err *e) {
    return o->node->join.keyed == KEYED_LEFT ? read_left_by_keys(o, p, e)
                                             : read_right_by_keys(o, p, e);
}

/* ---- the left input -------------------------------------------------------------------------- */

/* Whether an empty right input makes the join empty and reading it calls no model. */
static bool right_decides(const op *o) {
    join_kind kind = o->node->join.kind;
    return (kind == JOIN_INNER || kind == JOIN_CROSS || kind == JOIN_SEMI) &&
           !plan_has_llm(o->node->right);
}

static int read_left(op *o, join_pairs *p, err *e) {
    int status = 0;
    if (!p->right && right_decides(o) && plan_has_llm(o->node->left))
        status = read_right(o, p, e);
    if (status || (p->right && rowset_rows(p->right) == 0 && right_decides(o)))
        return status;
    status = op_next(o->left, &p->in, e);
    if (status == 0 && !p->right && (p->in || right_side_must_drain(o->ctx, o->node)))
        status = read_right(o, p, e);
    return status;
}

int join_read_left(op *o, join_pairs *p, err *e) {
    p->in = NULL;
    bool keyed = o->node->join.keyed != KEYED_NONE;
    int status = keyed ? read_keyed(o, p, e) : read_left(o, p, e);
    if (status == 0 && p->in) {
        memset(p->matched, 0, (size_t)p->in->rows);
        memset(p->unknown, 0, (size_t)p->in->rows);
    }
    return status;
}
