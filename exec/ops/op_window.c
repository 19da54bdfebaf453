/*
 * op_window.c - window functions: returns the input rows in input order, each with the results of
 * the window functions. With a limit only the first rows of each partition are kept
 * (rows/sort_buffer.c).
 *
 *   rows     the kept input rows (spilling)
 *   keys     their sort keys (spilling)
 *   values   function arguments that are not plain columns (spilling)
 *   results  one column per function and batch of rows (spilling)
 *   order    row numbers, sorted by all keys
 *   differs  [k]: the index of the first key in which row order[k] differs from row order[k - 1]
 *
 * One sort serves all functions of the node. If a function has fewer keys, rows that are equal in
 * its keys are put back into input order, so that its results do not depend on the other functions'
 * keys. Partitions are computed one by one. Invariant: peers (rows with equal keys) are in input
 * order.
 */
#include <string.h>

#include "op_int.h"
#include "rows/row_sort_int.h"
#include "window_int.h"

/* The source of an argument: a column of the input, a column of `values`, or a constant. */
typedef struct window_source {
    enum { FROM_INPUT, FROM_VALUES, FROM_CONSTANT } from;
    int at; /* number of the column, for FROM_INPUT and FROM_VALUES */
    value constant;
} window_source;

enum { MAX_ARGS = 3 };

typedef struct window_state {
    sort_buffer *input;
    rowset *rows, *keys; /* taken from `input` after the last row */
    rowset *values;
    int nvalues;
    window_source (*sources)[MAX_ARGS]; /* [function][argument] */
    column *key_cols, *value_cols;
    uint32_t *order;
    int *differs;
    mem_array order_in, differs_in; /* memory of these arrays */
    arena *results, *scratch;
    column **columns; /* [function][batch] */
    bool done;
    int at; /* number of batches returned so far */
} window_state;

typedef int window_fn(window_part *p, const rel_window *w, const window_arg *args, err *e);

/* ---- the functions --------------------------------------------------------------------------- */

static int row_number(window_part *p, const rel_window *w, const window_arg *args, err *e) {
    (void)w, (void)args;
    int status = 0;
    for (int at = 0; at < p->n && !(status = window_cancelled(p, at, e)); at++)
        window_set(p, at, value_int(at + 1));
    return status;
}

static int rank(window_part *p, const rel_window *w, const window_arg *args, err *e) {
    (void)args;
    int status = 0;
    for (int at = 0; at < p->n && !(status = window_cancelled(p, at, e)); at++) {
        int before = p->first[p->group[at]];
        if (w->kind == WINDOW_PERCENT_RANK)
            window_set(p, at, value_real(p->n > 1 ? (double)before / (double)(p->n - 1) : 0));
        else
            window_set(p, at, value_int(before + 1));
    }
    return status;
}

static int dense_rank(window_part *p, const rel_window *w, const window_arg *args, err *e) {
    (void)w, (void)args;
    int status = 0;
    for (int at = 0; at < p->n && !(status = window_cancelled(p, at, e)); at++)
        window_set(p, at, value_int(p->group[at] + 1));
    return status;
}

static int cume_dist(window_part *p, const rel_window *w, const window_arg *args, err *e) {
    (void)w, (void)args;
    int status = 0;
    for (int at = 0; at < p->n && !(status = window_cancelled(p, at, e)); at++)
        window_set(p, at, value_real((double)p->first[p->group[at] + 1] / (double)p->n));
    return status;
}

static int not_positive(const rel_window *w, int arg, const char *what, int64_t got, err *e) {
    const expr *x = w->args[arg];
    return err_set_at(e, ERR_ARITHMETIC, x->pos, x->pos < 0 ? 0 : x->len,
                      "%s must be positive, not %lld", what, (long long)got);
}

/* NTILE: the sizes of the buckets differ by at most one row, and larger buckets come first. The
 * number of buckets is the argument's value in the partition's first row. */
static int ntile(window_part *p, const rel_window *w, const window_arg *args, err *e) {
    value parts = window_get(&args[0], 0);
    if (parts.type != TYPE_NULL && parts.i <= 0)
        return not_positive(w, 0, "the number of parts of ntile()", parts.i, e);
    int64_t size = parts.type == TYPE_NULL ? 0 : p->n / parts.i,
            larger = parts.type == TYPE_NULL ? 0 : p->n % parts.i;
    int status = 0;
    for (int at = 0; at < p->n && !(status = window_cancelled(p, at, e)); at++) {
        int64_t in_larger = larger * (size + 1);
        int64_t part =
            at < in_larger ? at / (size + 1) : larger + (at - in_larger) / BASE_MAX(size, 1);
        window_set(p, at, parts.type == TYPE_NULL ? parts : value_int(part + 1));
    }
    return status;
}

/* LAG and LEAD. */
static int shifted(window_part *p, const rel_window *w, const window_arg *args, err *e) {
    int status = 0;
    for (int at = 0; at < p->n && !(status = window_cancelled(p, at, e)); at++) {
        value by = w->nargs > 1 ? window_get(&args[1], at) : value_int(1), v = value_null();
        int64_t left = w->kind == WINDOW_LAG ? at : p->n - 1 - at, right = p->n - 1 - left;
        if (by.type == TYPE_NULL)
            v = value_null();
        else if (by.i <= left && by.i >= -right)
            v = window_get(&args[0], (int)(w->kind == WINDOW_LAG ? at - by.i : at + by.i));
        else if (w->nargs > 2)
            v = window_get(&args[2], at);
        window_set(p, at, v);
    }
    return status;
}

/* FIRST_VALUE, LAST_VALUE, NTH_VALUE. */
static int nth_value(window_part *p, const rel_window *w, const window_arg *args, err *e) {
    frame_walk walk = frame_walk_new(p, &w->frame);
    int status = 0;
    for (int at = 0; at < p->n && !(status = window_cancelled(p, at, e)); at++) {
        frame_rows f = frame_walk_to(&walk, at);
        value n = w->nargs > 1 ? window_get(&args[1], at) : value_int(1);
        if (n.type != TYPE_NULL && n.i <= 0)
            return not_positive(w, 1, "the row of nth_value()", n.i, e);
        int row = n.type == TYPE_NULL ? -1 : frame_nth(&f, n.i - 1, w->kind == WINDOW_LAST_VALUE);
        window_set(p, at, row < 0 ? value_null() : window_get(&args[0], row));
    }
    return status;
}

static int aggregate(window_part *p, const rel_window *w, const window_arg *args, err *e) {
    return window_aggregate(p, w, &args[0], e);
}

/* Returns the function of a kind. A switch, not a table, so that the compiler reports a missing
 * kind. */
static window_fn *function_of(window_kind kind) {
    switch (kind) {
    case WINDOW_ROW_NUMBER:
        return row_number;
    case WINDOW_RANK:
    case WINDOW_PERCENT_RANK:
        return rank;
    case WINDOW_DENSE_RANK:
        return dense_rank;
    case WINDOW_CUME_DIST:
        return cume_dist;
    case WINDOW_NTILE:
        return ntile;
    case WINDOW_LAG:
    case WINDOW_LEAD:
        return shifted;
    case WINDOW_FIRST_VALUE:
    case WINDOW_LAST_VALUE:
    case WINDOW_NTH_VALUE:
        return nth_value;
    case WINDOW_AGGREGATE:
        break;
    }
    return aggregate;
}

/* ---- reading --------------------------------------------------------------------------------- */

static int source_of(op *o, const rel_window *w, const expr *x, window_source *s, err *e) {
    window_state *state = o->state;
    if (!w->filter && (!x || expr_is_constant(x))) {
        s->from = FROM_CONSTANT;
        s->constant = value_int(1); /* the argument of count(*) */
        return x ? eval_value(x, NULL, 0, o->mem, &s->constant, e) : 0;
    }
    bool plain = !w->filter && x->kind == EXPR_COLUMN;
    *s = (window_source){plain ? FROM_INPUT : FROM_VALUES,
                         plain ? x->column.slot : state->nvalues++, value_null()};
    return 0;
}

static int find_sources(op *o, value_type *types, err *e) {
    window_state *s = o->state;
    int status = 0;
    for (int i = 0; i < o->node->window.nfunctions && !status; i++) {
        const rel_window *w = &o->node->window.functions[i];
        for (int k = 0; k < BASE_MAX(w->nargs, 1) && !status; k++) {
            const expr *x = k < w->nargs ? w->args[k] : NULL;
            int before = s->nvalues;
            status = source_of(o, w, x, &s->sources[i][k], e);
            if (s->nvalues > before)
                types[before] = x ? x->type : TYPE_INTEGER;
        }
    }
    return status;
}

static int window_open(op *o, err *e) {
    window_state *s = o->state;
    int nkeys = o->node->window.nkeys, n = o->node->window.nfunctions;
    value_type *types = ARENA_ARRAY(o->mem, value_type, BASE_MAX(nkeys, n * MAX_ARGS));
    s->sources = arena_zalloc(o->mem, sizeof *s->sources * (size_t)n);
    int status = find_sources(o, types, e);
    if (status)
        return status;
    op_init_out(o);
    s->values = rowset_new_in(&o->memory, types, s->nvalues);
    for (int k = 0; k < nkeys; k++)
        types[k] = o->node->window.keys[k].value->type;
    const plan_node *p = o->node;
    int npartition = p->window.functions[0].npartition;
    s->input = sort_buffer_new(&o->memory, &(sort_spec){.limit = BASE_MAX(p->window.limit, 0),
                                                        .with_ties = p->window.with_ties,
                                                        .ncols = p->left->ncols,
                                                        .types = p->left->types,
                                                        .by = p->window.keys,
                                                        .nkeys = nkeys,
                                                        .nsame = npartition,
                                                        .ngroup = npartition,
                                                        .group_types = types});
    s->key_cols = ARENA_ARRAY(o->mem, column, BASE_MAX(nkeys, 1));
    s->value_cols = ARENA_ARRAY(o->mem, column, BASE_MAX(s->nvalues, 1));
    s->columns = ARENA_ARRAY(o->mem, column *, n);
    s->results = arena_new_sharing(&o->memory);
    /* a quarter of the budget is for partitions, which come when the rows have taken the rest:
     * making a file for each of many partitions would take longer than computing them */
    size_t quarter = o->memory.limit_bytes / 4;
    o->memory.limit_bytes -= quarter;
    s->scratch = arena_new_spilling(quarter, o->ctx->space);
    return 0;
}

/* Sets c to the argument (count(*): to 1) in rows where FILTER is true, and to NULL in others. */
static int filtered_values(op *o, const rel_window *w, const batch *in, column *c, err *e) {
    int *kept = ARENA_ARRAY(o->pass, int, in->rows), count;
    int status = eval_filter(w->filter, in, o->pass, kept, &count, e);
    if (status == 0 && w->nargs > 0)
        status = eval_column_at(w->args[0], in, kept, count, o->pass, c, e);
    if (status)
        return status;
    if (w->nargs == 0) {
        column_init(c, o->pass, TYPE_INTEGER, in->rows, false);
        for (int k = 0; k < in->rows; k++)
            c->i[k] = 1;
    }
    column all = *c;
    if (all.type == TYPE_NULL)
        return 0;
    c->null = arena_alloc(o->pass, (size_t)in->rows);
    memset(c->null, 1, (size_t)in->rows);
    for (int k = 0; k < count; k++)
        c->null[kept[k]] = column_is_null(&all, kept[k]);
    return 0;
}

static int read_values(op *o, const batch *in, err *e) {
    window_state *s = o->state;
    int status = 0;
    for (int i = 0; i < o->node->window.nfunctions; i++) {
        const rel_window *w = &o->node->window.functions[i];
        for (int k = 0; k < BASE_MAX(w->nargs, 1) && !status; k++) {
            const window_source *from = &s->sources[i][k];
            if (from->from != FROM_VALUES)
                continue;
            column *c = &s->value_cols[from->at];
            status = w->filter ? filtered_values(o, w, in, c, e)
                               : eval_column(w->args[k], in, o->pass, c, e);
        }
    }
    batch values = {.rows = in->rows, .ncols = s->nvalues, .cols = s->value_cols, .mem = o->pass};
    return status ? status : rowset_append(s->values, &values, e);
}

static int read_input(op *o, err *e) {
    window_state *s = o->state;
    batch *in;
    int status;
    while ((status = op_next(o->left, &in, e)) == 0 && in) {
        arena_reset(o->pass);
        status = op_eval_keys(o, o->node->window.keys, o->node->window.nkeys, in, s->key_cols, e);
        if (!status && o->node->window.limit <= 0)
            status = read_values(o, in, e);
        if (!status)
            status = sort_buffer_add(s->input, in, s->key_cols, s->key_cols, e);
        if (status)
            return status;
    }
    if (!status)
        status = sort_buffer_take(s->input, &s->rows, &s->keys, e);
    if (!status && rowset_rows(s->rows) > INT32_MAX - BATCH_ROWS)
        return err_set(e, ERR_LIMIT, "a window function takes at most 2,147,481,599 rows");
    return status;
}

/* ---- sorting --------------------------------------------------------------------------------- */

static int sort_input(op *o, err *e) {
    window_state *s = o->state;
    const sort_key *by = o->node->window.keys;
    int n = (int)rowset_rows(s->rows), nkeys = o->node->window.nkeys;
    int status = sort_rows(o->ctx, &o->memory, s->keys, by, nkeys, &s->order_in, e);
    if (status == 0)
        status = mem_array_resize(&s->differs_in, &o->memory, sizeof *s->differs * (size_t)n, e);
    if (status)
        return status;
    s->order = s->order_in.p;
    s->differs = s->differs_in.p;
    for (int k = 1; k < n; k++) {
        uint32_t a = s->order[k - 1], b = s->order[k];
        if (k % BATCH_ROWS == 0 && check_cancel(o->ctx->cancel, e))
            return ERR_CANCELLED;
        s->differs[k] = sort_equal_keys(
            by, nkeys, rowset_batch(s->keys, (int)(a / BATCH_ROWS))->cols, (int)(a % BATCH_ROWS),
            rowset_batch(s->keys, (int)(b / BATCH_ROWS))->cols, (int)(b % BATCH_ROWS));
    }
    return 0;
}

/* Returns the end of the run of rows from `from` on that are equal in the first `nkeys` keys. */
static int run_end(const window_state *s, int from, int n, int nkeys) {
    int to = from + 1;
    while (to < n && s->differs[to] >= nkeys)
        to++;
    return to;
}

static int compare_numbers(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Sets *out to the row numbers sorted by only the first `nkeys` keys, a copy of s->order. */
static int order_by_fewer(op *o, int n, int nkeys, mem_array *out, err *e) {
    const window_state *s = o->state;
    int status = mem_array_resize(out, &o->memory, sizeof *s->order * (size_t)n, e);
    uint32_t *rows = out->p;
    if (status == 0)
        memcpy(rows, s->order, sizeof *rows * (size_t)n);
    for (int from = 0, to; from < n && status == 0; from = to) {
        to = run_end(s, from, n, nkeys);
        status = sort_array_in(&o->memory, rows + from, (size_t)(to - from), sizeof *rows,
                               compare_numbers, o->ctx->cancel, e);
    }
    return status;
}

/* ---- partitions ------------------------------------------------------------------------------ */

static int gather(window_part *p, const rowset *from, int c, column *out, err *e) {
    bool texts = false;
    int status = 0;
    for (int k = 0; k < p->n && !(status = window_cancelled(p, k, e)); k++) {
        const column *in = &rowset_batch(from, (int)(p->rows[k] / BATCH_ROWS))->cols[c];
        int at = (int)(p->rows[k] % BATCH_ROWS);
        if (k == 0) {
            column_init(out, p->mem, in->type, p->n, false);
            texts = type_is_bytes(in->type);
        }
        if (column_is_null(in, at))
            column_set(out, p->mem, p->n, k, value_null());
        else if (texts)
            out->s[k] = in->s[at];
        else
            out->i[k] = in->i[at];
    }
    return status;
}

static void constant_arg(window_part *p, value v, window_arg *out) {
    column_init(&out->c, p->mem, v.type, 1, false);
    if (v.type != TYPE_NULL)
        column_set(&out->c, p->mem, 1, 0, v);
    out->step = 0;
}

static int gather_args(const op *o, window_part *p, int function, window_arg *args, err *e) {
    const window_state *s = o->state;
    const rel_window *w = &o->node->window.functions[function];
    int status = 0;
    for (int k = 0; k < BASE_MAX(w->nargs, 1) && !status; k++) {
        const window_source *from = &s->sources[function][k];
        args[k].step = 1;
        if (from->from == FROM_CONSTANT)
            constant_arg(p, from->constant, &args[k]);
        else
            status =
                gather(p, from->from == FROM_INPUT ? s->rows : s->values, from->at, &args[k].c, e);
    }
    return status;
}

/* Sets the peer groups of the partition that begins at order[from]. */
static void find_groups(const op *o, window_part *p, int from, int nkeys) {
    const window_state *s = o->state;
    p->group = arena_alloc(p->mem, sizeof *p->group * (size_t)p->n);
    p->first = arena_alloc(p->mem, sizeof *p->first * (size_t)(p->n + 1));
    p->ngroups = 0;
    for (int k = 0; k < p->n; k++) {
        if (k == 0 || s->differs[from + k] < nkeys)
            p->first[p->ngroups++] = k;
        p->group[k] = p->ngroups - 1;
    }
    p->first[p->ngroups] = p->n;
}

static bool same_keys(const rel_window *a, const rel_window *b) {
    return a->npartition == b->npartition && a->nkeys == b->nkeys;
}

/* Computes all functions with the same keys as `like` over one partition. */
static int run_partition(op *o, window_part *p, const rel_window *like, err *e) {
    window_state *s = o->state;
    int status = 0;
    for (int i = 0; i < o->node->window.nfunctions && !status; i++) {
        const rel_window *w = &o->node->window.functions[i];
        window_arg args[MAX_ARGS];
        if (!same_keys(w, like))
            continue;
        status = gather_args(o, p, i, args, e);
        if (w->frame.start.offset.type != TYPE_NULL || w->frame.end.offset.type != TYPE_NULL) {
            p->descending =
                w->nkeys > w->npartition && o->node->window.keys[w->npartition].descending;
            if (w->frame.unit == FRAME_RANGE && !status)
                status = gather(p, s->keys, w->npartition, &p->key, e);
        }
        p->out = s->columns[i];
        if (!status)
            status = function_of(w->kind)(p, w, args, e);
        if (!status && (status = arena_full_error(p->mem, e)) == 0)
            status = arena_full_error(p->texts, e);
    }
    return status;
}

static int run_keys(op *o, const rel_window *like, err *e) {
    window_state *s = o->state;
    int n = (int)rowset_rows(s->rows), status = 0;
    mem_array fewer = {0};
    if (like->nkeys < o->node->window.nkeys && n > 0)
        status = order_by_fewer(o, n, like->nkeys, &fewer, e);
    const uint32_t *order = fewer.p ? fewer.p : s->order;
    for (int from = 0, to; from < n && !status; from = to) {
        to = run_end(s, from, n, like->npartition);
        arena_reset(s->scratch);
        window_part p = {.ctx = o->ctx,
                         .mem = s->scratch,
                         .texts = s->results,
                         .n = to - from,
                         .rows = order + from};
        find_groups(o, &p, from, like->nkeys);
        status = run_partition(o, &p, like, e);
        if (!status)
            status = window_cancelled(&p, 0, e);
    }
    mem_array_free(&fewer);
    return status;
}

static int run_windows(op *o, err *e) {
    window_state *s = o->state;
    const rel_window *all = o->node->window.functions;
    int nbatches = rowset_batches(s->rows), status = 0;
    for (int i = 0; i < o->node->window.nfunctions; i++) {
        s->columns[i] = arena_zalloc(s->results, sizeof(column) * (size_t)BASE_MAX(nbatches, 1));
        for (int b = 0; b < nbatches; b++)
            column_init(&s->columns[i][b], s->results, all[i].type, BATCH_ROWS, false);
    }
    for (int i = 0; i < o->node->window.nfunctions && !status; i++) {
        bool done = false;
        for (int k = 0; k < i; k++)
            done = done || same_keys(&all[k], &all[i]);
        if (!done)
            status = run_keys(o, &all[i], e);
    }
    return status;
}

static int window_next(op *o, batch **out, err *e) {
    window_state *s = o->state;
    int status = s->done ? 0 : read_input(o, e);
    if (!s->done && !status)
        status = sort_input(o, e);
    if (!s->done && !status)
        status = run_windows(o, e);
    s->done = true;
    if (status || s->at == rowset_batches(s->rows))
        return status;
    const batch *in = rowset_batch(s->rows, s->at);
    for (int c = 0; c < in->ncols; c++)
        o->out.cols[c] = in->cols[c];
    for (int i = 0; i < o->node->window.nfunctions; i++)
        o->out.cols[in->ncols + i] = s->columns[i][s->at];
    o->out.rows = in->rows;
    s->at++;
    *out = &o->out;
    return 0;
}

static void window_close(op *o) {
    window_state *s = o->state;
    sort_buffer_free(s->input);
    rowset_free(s->rows);
    rowset_free(s->keys);
    rowset_free(s->values);
    arena_free(s->results);
    arena_free(s->scratch);
    mem_array_free(&s->order_in);
    mem_array_free(&s->differs_in);
}

const op_class op_window = {.name = "window",
                            .state_bytes = sizeof(window_state),
                            .open = window_open,
                            .next = window_next,
                            .close = window_close};
