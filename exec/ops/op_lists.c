/*
 * op_lists.c - the rows near a vector, found by an ivfflat index; the sort above it picks and orders
 * them.
 *
 * Invariant: if the lists that are searched have fewer rows than are wanted, or if there is no vector to
 * search for, all rows of the table are returned: then the result is that of an exact search.
 */
#include <string.h>

#include "op_int.h"
#include "op_scan_int.h"

typedef struct lists_state {
    bool begun;
    value *row; /* [right's ncols] the one row of `right`, or NULLs */
} lists_state;

/* Reads the one row of the right input. */
static int read_row(op *o, err *e) {
    lists_state *s = o->state;
    int n = o->right ? o->node->right->ncols : 0, rows = 0, status = 0;
    s->row = ARENA_ARRAY(o->mem, value, n + 1);
    for (batch *in = NULL; o->right && !(status = op_next(o->right, &in, e)) && in; in = NULL) {
        rows += in->rows;
        for (int c = 0; c < n && rows == 1; c++) {
            s->row[c] = column_get(&in->cols[c], 0);
            if (type_is_bytes(s->row[c].type))
                s->row[c].s = str_copy(o->mem, s->row[c].s);
        }
    }
    if (status || rows <= 1)
        return status;
    err_set(e, ERR_CONSTRAINT, "a subquery used as a value returned more than one row");
    err_hint(e, "add LIMIT 1 to the subquery, or compare with IN (…)");
    return ERR_CONSTRAINT;
}

/* Sets *out to the vector to search for, or NULL. */
static int read_query(op *o, value *out, err *e) {
    const lists_state *s = o->state;
    const expr *const *args = (const expr *const *)o->node->nearest.distance->args;
    int left = o->node->left->ncols;
    for (int i = 0; i < 2; i++) {
        const expr *x = args[i];
        if (x->kind == EXPR_COLUMN && x->column.slot >= left) {
            *out = s->row[x->column.slot - left];
            return 0;
        }
        if (expr_is_constant(x))
            return eval_value(x, NULL, 0, o->mem, out, e);
    }
    return err_set(e, ERR_INTERNAL, "a vector search without a vector");
}

static int search(op *o, err *e) {
    const index_def *index = o->node->nearest.index;
    const vector_lists *lists = index->lists;
    const table_def *table = o->node->left->scan.table;
    int64_t probes = o->ctx->settings->vector_probes;
    uint64_t rows = 0;
    rowid_list found = {0};
    value query;
    int status = read_row(o, e);
    if (!status)
        status = read_query(o, &query, e);
    if (status || query.type != TYPE_VECTOR || vector_dims(query.s) != lists->dims ||
        (lists->metric == VECTOR_COSINE && !(vector_norm(query.s) > 0)) ||
        o->left->class != &op_scan || !o->ctx->txn)
        return status; /* the sort above reports errors of the vector */
    uint32_t most =
        probes > 0 ? (uint32_t)BASE_MIN(probes, (int64_t)UINT32_MAX) : lists_probes(lists);
    status = table_row_count(o->ctx->txn, table, &rows, e);
    if (!status)
        status = lists_search(o->ctx->txn, table, index, query.s, most,
                              (size_t)o->node->nearest.limit, o->ctx->cancel, &found, e);
    if (!status && found.n == (size_t)o->node->nearest.limit && found.n < rows)
        op_scan_list(o->left, &found);
    else
        rowid_list_free(&found);
    return status;
}

static int lists_next(op *o, batch **out, err *e) {
    lists_state *s = o->state;
    batch *in = NULL;
    int status = s->begun ? 0 : search(o, e);
    s->begun = true;
    if (!status)
        status = op_next(o->left, &in, e);
    if (status || !in)
        return status;
    arena_reset(o->pass);
    for (int c = 0; c < in->ncols; c++)
        o->out.cols[c] = in->cols[c];
    for (int c = in->ncols; c < o->node->ncols; c++) {
        column_init(&o->out.cols[c], o->pass, o->node->types[c], in->rows, false);
        for (int row = 0; row < in->rows; row++)
            column_set(&o->out.cols[c], o->pass, in->rows, row, s->row[c - in->ncols]);
    }
    o->out.rows = in->rows;
    *out = &o->out;
    return 0;
}

const op_class op_lists = {
    .name = "lists", .state_bytes = sizeof(lists_state), .open = op_open_out, .next = lists_next};
