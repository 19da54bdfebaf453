/*
 * op_scan.c - table scan: reads the whole table, a range of rowids or the rows with given keys, and
 * filters the rows. An index join sets the keys before it reads the first row
 * (op_scan_int.h).
 *
 * Invariant: rows are returned in rowid order: rowids from an index or a list of keys are collected
 * and sorted first. An `ordered` scan instead returns rows in its index's order, or by descending
 * rowid. Cells point into the read transaction's memory map and are not copied. A range with a NULL
 * bound has no rows, because a comparison with NULL is never true.
 */
#include "op_scan_int.h"

typedef struct scan_state {
    table_scan *scan;
    bool empty;        /* no row is left to return */
    value *low, *high; /* values of the bounds */
    rowid_list found;  /* rowids from the index, the IN list or the index join's keys */
    batch in;
    int rows[BATCH_ROWS];
    bool more; /* an ordered scan reads the range next_low … next_high after the current range */
    scan_bound next_low, next_high;
} scan_state;

/* Evaluates the bounds, except a bound that takes its values from an IN list. Sets *possible to
 * false if a bound is NULL. */
static int scan_bounds(op *o, expr **exprs, int n, bool inclusive, scan_bound *out, value **values,
                       bool *possible, err *e) {
    *values = ARENA_ARRAY(o->mem, value, BASE_MAX(n, 1));
    for (int k = 0; k < n; k++) {
        if (o->node->scan.nin && k == o->node->scan.in_at)
            continue;
        int status = eval_value(exprs[k], NULL, 0, o->mem, &(*values)[k], e);
        if (status)
            return status;
        if ((*values)[k].type == TYPE_NULL)
            *possible = false;
    }
    *out = (scan_bound){.values = *values, .n = n, .inclusive = inclusive};
    return 0;
}

static int find_rows(scan_state *s, const scan_bound *low, const scan_bound *high, err *e) {
    int status = scan_rebind(s->scan, low, high, e);
    return status ? status : scan_rowids(s->scan, &s->found, e);
}

/* Finds the rows for each value of the IN list, by using the value as both bounds. */
static int find_listed(op *o, const scan_bound *low, const scan_bound *high, err *e) {
    const plan_node *p = o->node;
    scan_state *s = o->state;
    value v;
    int status = 0;
    for (int k = 0; k < p->scan.nin && status == 0; k++) {
        status = eval_value(p->scan.in[k], NULL, 0, o->mem, &v, e);
        if (status || v.type == TYPE_NULL)
            continue;
        s->low[p->scan.in_at] = s->high[p->scan.in_at] = v;
        status = p->scan.index ? find_rows(s, low, high, e) : rowid_list_add(&s->found, v.i, e);
    }
    return status;
}

/* Opens a scan in index order. If the query orders NULLs at the other end than the index has them,
 * the scan reads two ranges: the NULLs, and all other values. */
static int start_in_order(op *o, scan_spec *spec, scan_bound low, scan_bound high, err *e) {
    scan_state *s = o->state;
    scan_nulls nulls = o->node->scan.nulls;
    int n = nulls == NULLS_NOWHERE ? high.n - 1 : high.n;
    spec->descending = o->node->scan.descending;
    spec->first_rows = (int)BASE_MIN(o->node->scan.first, BATCH_ROWS);
    if (nulls != NULLS_BY_KEY)
        low = (scan_bound){.values = high.values, .n = n, .inclusive = true, .not_null = true};
    spec->low = low;
    spec->high = high;
    if (nulls == NULLS_BEFORE || nulls == NULLS_AFTER) {
        value *values = ARENA_ARRAY(o->mem, value, n + 1);
        for (int k = 0; k < n; k++)
            values[k] = high.values[k];
        values[n] = value_null();
        scan_bound null = {.values = values, .n = n + 1, .inclusive = true};
        bool before = nulls == NULLS_BEFORE;
        s->next_low = before ? low : null;
        s->next_high = before ? high : null;
        spec->low = before ? null : low;
        spec->high = before ? null : high;
        s->more = true;
    }
    return scan_open(o->ctx->txn, spec, &s->scan, e);
}

static int scan_start(op *o, err *e) {
    const plan_node *p = o->node;
    scan_state *s = o->state;
    scan_spec spec = {.table = p->scan.table,
                      .index = p->scan.index,
                      .columns = p->scan.columns,
                      .ncolumns = p->ncols,
                      .cancel = o->ctx->cancel};
    scan_bound low = {0}, high = {0};
    bool possible = true, keyed = p->scan.keyed;
    op_init_out(o);
    if (!o->ctx->txn)
        return err_set(e, ERR_INTERNAL, "a scan of \"%.*s\" after its snapshot ended",
                       (int)p->scan.table->name.n, p->scan.table->name.p);
    int status = scan_bounds(o, p->scan.low, keyed ? 0 : p->scan.nlow, p->scan.low_inclusive, &low,
                             &s->low, &possible, e);
    if (status == 0)
        status = scan_bounds(o, p->scan.high, keyed ? 0 : p->scan.nhigh, p->scan.high_inclusive,
                             &high, &s->high, &possible, e);
    s->empty = !possible;
    if (status || s->empty)
        return status;
    if (p->scan.ordered)
        return start_in_order(o, &spec, low, high, e);
    bool by_rowid = !p->scan.index && !p->scan.nin;
    if (by_rowid) {
        spec.low = low;
        spec.high = high;
    }
    status = scan_open(o->ctx->txn, &spec, &s->scan, e);
    if (status || by_rowid || keyed)
        return status;
    status = p->scan.nin ? find_listed(o, &low, &high, e) : find_rows(s, &low, &high, e);
    op_scan_found(o);
    return status;
}

int op_scan_keys(op *o, const column *keys, int rows, err *e) {
    const plan_node *p = o->node;
    scan_state *s = o->state;
    int n = p->scan.nlow, status = 0;
    value *values = ARENA_ARRAY(o->mem, value, n);
    scan_bound equal = {.values = values, .n = n, .inclusive = true};
    for (int row = 0; row < rows && status == 0; row++) {
        bool null = false;
        for (int k = 0; k < n; k++) {
            values[k] = column_get(&keys[k], row);
            null |= values[k].type == TYPE_NULL;
        }
        if (!null)
            status = p->scan.index ? find_rows(s, &equal, &equal, e)
                                   : rowid_list_add(&s->found, values[0].i, e);
    }
    return status;
}

void op_scan_found(op *o) {
    scan_state *s = o->state;
    rowid_list_sort(&s->found);
    scan_listed(s->scan, &s->found);
}

void op_scan_list(op *o, const rowid_list *rows) {
    scan_state *s = o->state;
    rowid_list_free(&s->found);
    s->found = *rows;
    op_scan_found(o);
}

size_t op_scan_found_rows(const op *o) {
    return ((const scan_state *)o->state)->found.n;
}

int op_scan_whole(op *o, err *e) {
    scan_state *s = o->state;
    scan_close(s->scan);
    s->scan = NULL;
    scan_spec spec = {.table = o->node->scan.table,
                      .columns = o->node->scan.columns,
                      .ncolumns = o->node->ncols,
                      .cancel = o->ctx->cancel};
    return scan_open(o->ctx->txn, &spec, &s->scan, e);
}

static int scan_rows(op *o, batch **out, err *e) {
    scan_state *s = o->state;
    const expr *filter = o->node->scan.filter;
    while (!s->empty && !*out) {
        arena_reset(o->pass);
        s->in = (batch){.mem = o->pass};
        int count, status = scan_next(s->scan, &s->in, e);
        if (status)
            return status;
        if (s->in.rows == 0 && s->more) {
            s->more = false;
            if ((status = scan_rebind(s->scan, &s->next_low, &s->next_high, e)) != 0)
                return status;
            continue;
        }
        s->empty = s->in.rows == 0;
        if (s->empty)
            break;
        *out = &s->in;
        if (!filter)
            return 0;
        if ((status = eval_filter(filter, &s->in, o->pass, s->rows, &count, e)) != 0)
            return status;
        if (check_cancel(o->ctx->cancel, e))
            return ERR_CANCELLED;
        op_choose(o, &s->in, s->rows, count, out);
    }
    return 0;
}

static void scan_end(op *o) {
    scan_state *s = o->state;
    scan_close(s->scan);
    rowid_list_free(&s->found);
}

const op_class op_scan = {.name = "scan",
                          .state_bytes = sizeof(scan_state),
                          .open = scan_start,
                          .next = scan_rows,
                          .close = scan_end};
