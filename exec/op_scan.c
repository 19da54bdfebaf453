/*
 * op_scan.c - reading a table, whole or a range of its rowids or of an index, with a filter right
 * where the rows come in.
 *
 * Invariant: cells point into the read transaction's map and are not copied; who keeps them does. A
 * bound that is NULL matches no row, as `x = NULL` does not.
 */
#include "op_int.h"

typedef struct scan_state {
    table_scan *scan;
    bool empty;
    batch in;
    int rows[BATCH_ROWS];
} scan_state;

/* false in *open: a bound is NULL. */
static int scan_bounds(op *o, expr **exprs, int n, bool inclusive, scan_bound *out, bool *possible,
                       err *e) {
    if (n == 0)
        return 0;
    value *values = ARENA_ARRAY(o->mem, value, n);
    for (int k = 0; k < n; k++) {
        int status = eval_value(exprs[k], NULL, 0, o->mem, &values[k], e);
        if (status)
            return status;
        if (values[k].type == TYPE_NULL)
            *possible = false;
    }
    *out = (scan_bound){.values = values, .n = n, .inclusive = inclusive};
    return 0;
}

static int scan_start(op *o, err *e) {
    const plan_node *p = o->node;
    scan_state *s = o->state;
    scan_spec spec = {.table = p->scan.table,
                      .index = p->scan.index,
                      .columns = p->scan.columns,
                      .ncolumns = p->ncols};
    bool possible = true;
    op_init_out(o);
    if (!o->ctx->txn)
        return err_set(e, ERR_INTERNAL, "a scan of %.*s after its snapshot ended",
                       (int)p->scan.table->name.n, p->scan.table->name.p);
    int status =
        scan_bounds(o, p->scan.low, p->scan.nlow, p->scan.low_inclusive, &spec.low, &possible, e);
    if (status == 0)
        status = scan_bounds(o, p->scan.high, p->scan.nhigh, p->scan.high_inclusive, &spec.high,
                             &possible, e);
    s->empty = !possible;
    if (status || s->empty)
        return status;
    return scan_open(o->ctx->txn, &spec, &s->scan, e);
}

static int scan_rows(op *o, batch **out, err *e) {
    scan_state *s = o->state;
    const expr *filter = o->node->scan.filter;
    while (!s->empty) {
        arena_reset(o->pass);
        s->in = (batch){.mem = o->pass};
        int count, status = scan_next(s->scan, &s->in, e);
        if (status)
            return status;
        s->empty = s->in.rows == 0;
        if (s->empty)
            break;
        *out = &s->in;
        if (!filter)
            return 0;
        if ((status = eval_filter(filter, &s->in, o->pass, s->rows, &count, e)) != 0)
            return status;
        if (count == s->in.rows)
            return 0;
        *out = NULL;
        if (o->ctx->cancel && atomic_load_explicit(o->ctx->cancel, memory_order_relaxed))
            return err_set(e, ERR_CANCELLED, "cancelled");
        if (count == 0)
            continue;
        op_gather(o, &s->in, s->rows, count);
        *out = &o->out;
        return 0;
    }
    return 0;
}

static void scan_end(op *o) {
    scan_close(((scan_state *)o->state)->scan);
}

const op_class op_scan = {.name = "scan",
                          .state_bytes = sizeof(scan_state),
                          .open = scan_start,
                          .next = scan_rows,
                          .close = scan_end};
