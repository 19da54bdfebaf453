/*
 * op_sort.c - ORDER BY: stable, by any keys; with a limit only the best rows are kept.
 *
 *   rows   all input rows (spilling)          keys   their sort keys (spilling)
 *   order  {prefix, row}: the first key as an order-preserving number decides most comparisons
 * without touching the keys
 *
 * Invariant: rows that compare equal come out in input order; so with a limit a later row that
 * equals the last kept one is dropped.
 */
#include <stdlib.h>
#include <string.h>

#include "op_int.h"

typedef struct sort_item {
    uint64_t prefix;
    uint32_t row;
} sort_item;

typedef struct sort_state {
    rowset *rows, *keys;
    sort_item *order;
    int64_t at, count;
    bool sorted;
    column *key_cols;
    int chosen[BATCH_ROWS];
} sort_state;

/* ---- comparison --------------------------------------------------------------------------------
 */

static uint64_t ordered_bits(const column *c, int row) {
    uint64_t bits = 0;
    switch (c->type) {
    case TYPE_TEXT:
    case TYPE_BLOB: {
        unsigned char head[8] = {0};
        memcpy(head, c->s[row].p, BASE_MIN(c->s[row].n, sizeof head));
        for (size_t k = 0; k < sizeof head; k++)
            bits = bits << 8 | head[k];
        return bits;
    }
    case TYPE_REAL: {
        double r = c->r[row] + 0.0; /* -0.0 sorts as 0.0 */
        memcpy(&bits, &r, sizeof bits);
        return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
    }
    default:
        return (uint64_t)c->i[row] ^ UINT64_C(1) << 63;
    }
}

/* Monotone in the first key's order, NULLs and direction included; equal prefixes say nothing. */
static uint64_t prefix_of(const sort_key *k, const column *c, int row) {
    bool null = c->type == TYPE_NULL || column_is_null(c, row);
    if (null)
        return k->nulls_first ? 0 : UINT64_MAX;
    uint64_t bits = ordered_bits(c, row);
    bits = (k->descending ? ~bits : bits) >> 1;
    return k->nulls_first ? bits | UINT64_C(1) << 63 : bits;
}

static int compare_cell(const sort_key *k, const column *a, int i, const column *b, int j) {
    bool a_null = a->type == TYPE_NULL || column_is_null(a, i),
         b_null = b->type == TYPE_NULL || column_is_null(b, j);
    if (a_null || b_null)
        return a_null == b_null ? 0 : a_null == k->nulls_first ? -1 : 1;
    int c;
    if (a->type == TYPE_TEXT || a->type == TYPE_BLOB)
        c = str_compare(a->s[i], b->s[j]);
    else if (a->type == TYPE_REAL)
        c = (a->r[i] > b->r[j]) - (a->r[i] < b->r[j]);
    else
        c = (a->i[i] > b->i[j]) - (a->i[i] < b->i[j]);
    return k->descending ? -c : c;
}

static int compare_keys(const plan_node *p, const column *a, int i, const column *b, int j) {
    for (int k = 0; k < p->sort.nkeys; k++) {
        int c = compare_cell(&p->sort.keys[k], &a[k], i, &b[k], j);
        if (c)
            return c;
    }
    return 0;
}

static bool before(const op *o, sort_item a, sort_item b) {
    if (a.prefix != b.prefix)
        return a.prefix < b.prefix;
    const rowset *keys = ((sort_state *)o->state)->keys;
    const batch *ba = rowset_batch(keys, (int)(a.row / BATCH_ROWS)),
                *bb = rowset_batch(keys, (int)(b.row / BATCH_ROWS));
    int c = compare_keys(o->node, ba->cols, (int)(a.row % BATCH_ROWS), bb->cols,
                         (int)(b.row % BATCH_ROWS));
    return c ? c < 0 : a.row < b.row;
}

/* ---- merge sort --------------------------------------------------------------------------------
 */

enum { RUN = 12 };

static void sort_run(const op *o, sort_item *a, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        sort_item x = a[i];
        int64_t j = i;
        for (; j > 0 && before(o, x, a[j - 1]); j--)
            a[j] = a[j - 1];
        a[j] = x;
    }
}

static void merge(const op *o, const sort_item *a, int64_t na, const sort_item *b, int64_t nb,
                  sort_item *out) {
    while (na && nb) {
        if (before(o, *b, *a)) {
            *out++ = *b++;
            nb--;
        } else {
            *out++ = *a++;
            na--;
        }
    }
    memcpy(out, na ? a : b, sizeof *out * (size_t)(na + nb));
}

/* Sorts items[0..n); `spare` has room for n. The result is in items. false: cancelled. */
static bool sort_items(const op *o, sort_item *items, sort_item *spare, int64_t n) {
    for (int64_t at = 0; at < n; at += RUN)
        sort_run(o, items + at, BASE_MIN(RUN, n - at));
    sort_item *from = items, *to = spare;
    for (int64_t width = RUN; width < n; width *= 2) {
        if (o->ctx->cancel && atomic_load_explicit(o->ctx->cancel, memory_order_relaxed))
            return false;
        for (int64_t at = 0; at < n; at += 2 * width) {
            int64_t na = BASE_MIN(width, n - at), nb = BASE_MIN(width, n - at - na);
            if (nb == 0 || !before(o, from[at + na], from[at + na - 1]))
                memcpy(to + at, from + at, sizeof *to * (size_t)(na + nb)); /* in order already */
            else
                merge(o, from + at, na, from + at + na, nb, to + at);
        }
        sort_item *other = from;
        from = to;
        to = other;
    }
    if (from != items)
        memcpy(items, from, sizeof *items * (size_t)n);
    return true;
}

/* s->order = all kept rows, sorted. */
static int sort_rows(op *o, err *e) {
    sort_state *s = o->state;
    s->count = rowset_rows(s->keys);
    if (s->count >= UINT32_MAX)
        return err_set(e, ERR_LIMIT, "more than 4,294,967,294 rows to sort");
    free(s->order);
    s->order = mem_try_alloc(sizeof *s->order * (size_t)s->count * 2);
    if (!s->order)
        return err_set(e, ERR_FULL, "not enough memory to sort %lld rows", (long long)s->count);
    for (int b = 0; b < rowset_batches(s->keys); b++) {
        const batch *keys = rowset_batch(s->keys, b);
        for (int k = 0; k < keys->rows; k++) {
            uint32_t row = (uint32_t)b * BATCH_ROWS + (uint32_t)k;
            s->order[row] = (sort_item){prefix_of(&o->node->sort.keys[0], &keys->cols[0], k), row};
        }
    }
    if (!sort_items(o, s->order, s->order + s->count, s->count))
        return err_set(e, ERR_CANCELLED, "cancelled");
    return 0;
}

/* ---- keeping the best --------------------------------------------------------------------------
 */

/* Keeps the first `limit` rows in sorted order as rows 0 … limit - 1. */
static int prune(op *o, err *e) {
    sort_state *s = o->state;
    int status = sort_rows(o, e);
    int64_t keep = BASE_MIN(o->node->sort.limit, s->count);
    rowset *rows = rowset_new(o->ctx, o->node->types, o->node->ncols);
    rowset *keys = NULL;
    value_type *types = ARENA_ARRAY(o->pass, value_type, o->node->sort.nkeys);
    for (int k = 0; k < o->node->sort.nkeys; k++)
        types[k] = o->node->sort.keys[k].value->type;
    keys = rowset_new(o->ctx, types, o->node->sort.nkeys);
    for (int64_t k = 0; k < keep && status == 0; k++) {
        uint32_t row = s->order[k].row;
        int at = (int)(row % BATCH_ROWS);
        rowset_push(rows, rowset_batch(s->rows, (int)(row / BATCH_ROWS))->cols, at);
        rowset_push(keys, rowset_batch(s->keys, (int)(row / BATCH_ROWS))->cols, at);
    }
    if (status == 0)
        status = rowset_full_error(rows, e);
    if (status == 0)
        status = rowset_full_error(keys, e);
    rowset_free(s->rows);
    rowset_free(s->keys);
    s->rows = rows;
    s->keys = keys;
    return status;
}

/* Rows of the batch that come before the worst of `limit`
 * kept ones (rows 0 … limit - 1 are sorted after a prune). */
static int better_rows(op *o, int rows, bool pruned) {
    sort_state *s = o->state;
    int64_t limit = o->node->sort.limit;
    int count = 0;
    const batch *worst = pruned ? rowset_batch(s->keys, (int)((limit - 1) / BATCH_ROWS)) : NULL;
    for (int k = 0; k < rows; k++)
        if (!worst ||
            compare_keys(o->node, s->key_cols, k, worst->cols, (int)((limit - 1) % BATCH_ROWS)) < 0)
            s->chosen[count++] = k;
    return count;
}

static int keep_best(op *o, const batch *in, bool *pruned, err *e) {
    sort_state *s = o->state;
    int64_t limit = o->node->sort.limit;
    int count = better_rows(o, in->rows, *pruned), status;
    for (int k = 0; k < count; k++) {
        rowset_push(s->rows, in->cols, s->chosen[k]);
        rowset_push(s->keys, s->key_cols, s->chosen[k]);
    }
    if ((status = rowset_full_error(s->rows, e)) != 0 ||
        (status = rowset_full_error(s->keys, e)) != 0 ||
        rowset_rows(s->rows) < limit + BASE_MAX(limit, BATCH_ROWS))
        return status;
    status = prune(o, e);
    *pruned = true;
    return status;
}

static int keep_all(op *o, const batch *in, err *e) {
    sort_state *s = o->state;
    batch keys = {
        .rows = in->rows, .ncols = o->node->sort.nkeys, .cols = s->key_cols, .mem = o->pass};
    int status = rowset_append(s->rows, in, e);
    return status ? status : rowset_append(s->keys, &keys, e);
}

static int sort_read(op *o, err *e) {
    sort_state *s = o->state;
    batch *in;
    bool pruned = false;
    int status;
    while ((status = op_next(o->left, &in, e)) == 0 && in) {
        arena_reset(o->pass);
        for (int k = 0; k < o->node->sort.nkeys && status == 0; k++)
            status = eval_column(o->node->sort.keys[k].value, in, o->pass, &s->key_cols[k], e);
        if (status == 0)
            status = o->node->sort.limit > 0 ? keep_best(o, in, &pruned, e) : keep_all(o, in, e);
        if (status)
            return status;
    }
    if (status == 0)
        status = sort_rows(o, e);
    if (o->node->sort.limit >= 0)
        s->count = BASE_MIN(s->count, o->node->sort.limit);
    s->sorted = true;
    return status;
}

static int sort_open(op *o, err *e) {
    (void)e;
    sort_state *s = o->state;
    int n = o->node->sort.nkeys;
    value_type *types = ARENA_ARRAY(o->mem, value_type, BASE_MAX(n, 1));
    for (int k = 0; k < n; k++)
        types[k] = o->node->sort.keys[k].value->type;
    op_init_out(o);
    s->key_cols = ARENA_ARRAY(o->mem, column, BASE_MAX(n, 1));
    s->rows = rowset_new(o->ctx, o->node->types, o->node->ncols);
    s->keys = rowset_new(o->ctx, types, n);
    return 0;
}

static int sort_next(op *o, batch **out, err *e) {
    sort_state *s = o->state;
    int status = s->sorted || o->node->sort.limit == 0 ? 0 : sort_read(o, e);
    int count = (int)BASE_MIN(BATCH_ROWS, s->count - s->at);
    if (status || count <= 0)
        return status;
    arena_reset(o->pass);
    int64_t *rows = arena_alloc(o->pass, sizeof *rows * (size_t)count);
    for (int k = 0; k < count; k++)
        rows[k] = s->order[s->at + k].row;
    for (int c = 0; c < o->node->ncols; c++)
        rowset_gather(s->rows, c, o->pass, rows, count, &o->out.cols[c]);
    s->at += count;
    o->out.rows = count;
    *out = &o->out;
    return 0;
}

static void sort_close(op *o) {
    sort_state *s = o->state;
    rowset_free(s->rows);
    rowset_free(s->keys);
    free(s->order);
}

const op_class op_sort = {.name = "sort",
                          .state_bytes = sizeof(sort_state),
                          .open = sort_open,
                          .next = sort_next,
                          .close = sort_close};
