/*
 * row_sort.c - sorts the row numbers of kept keys (row_sort_int.h).
 *
 * A merge sort over {prefix, row} items: insertion-sorted runs of 12, merged bottom up. Two runs
 * that are in order already are copied after one comparison, so sorted input needs only O(n)
 * comparisons. If the items do not fit into the budget, they are in a file: parts of them are sorted
 * one after the other, and all parts are merged in one pass that reads and writes sequentially.
 */
#include <stdlib.h>
#include <string.h>

#include "cells_int.h"
#include "row_sort_int.h"
#include "storage/containers.h"

/* ---- comparison ------------------------------------------------------------------------------ */

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
    case TYPE_VECTOR: {
        float first;
        uint32_t order;
        memcpy(&first, c->s[row].p, sizeof first);
        memcpy(&order, &first, sizeof order);
        return (uint64_t)(order >> 31 ? ~order : order | UINT32_C(1) << 31) << 32;
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

/* Returns a number that grows in the key's sort order: descending or not, NULLs first or last. */
static uint64_t prefix_of(const sort_key *k, const column *c, int row) {
    if (cell_is_null(c, row))
        return k->nulls_first ? 0 : UINT64_MAX;
    uint64_t bits = ordered_bits(c, row);
    bits = (k->descending ? ~bits : bits) >> 1;
    return k->nulls_first ? bits | UINT64_C(1) << 63 : bits;
}

static int compare_cell(const sort_key *k, const column *a, int i, const column *b, int j) {
    bool a_null = cell_is_null(a, i), b_null = cell_is_null(b, j);
    if (a_null || b_null)
        return a_null == b_null ? 0 : a_null == k->nulls_first ? -1 : 1;
    int c = cell_compare(a, i, b, j);
    return k->descending ? -c : c;
}

int sort_compare(const sort_key *by, int nkeys, const column *a, int i, const column *b, int j) {
    int c = 0;
    for (int k = 0; k < nkeys && c == 0; k++)
        c = compare_cell(&by[k], &a[k], i, &b[k], j);
    return c;
}

int sort_equal_keys(const sort_key *by, int nkeys, const column *a, int i, const column *b, int j) {
    int k = 0;
    while (k < nkeys && compare_cell(&by[k], &a[k], i, &b[k], j) == 0)
        k++;
    return k;
}

uint64_t sort_prefix(const sort_key *by, int nkeys, const column *keys, int row) {
    return nkeys ? prefix_of(&by[0], &keys[0], row) : 0;
}

static int compare_items(const sort_order *s, sort_item a, sort_item b) {
    if (a.prefix != b.prefix)
        return a.prefix < b.prefix ? -1 : 1;
    const batch *ba = rowset_batch(s->keys, (int)(a.row / BATCH_ROWS)),
                *bb = rowset_batch(s->keys, (int)(b.row / BATCH_ROWS));
    return sort_compare(s->by, s->nkeys, ba->cols, (int)(a.row % BATCH_ROWS), bb->cols,
                        (int)(b.row % BATCH_ROWS));
}

bool sort_before(const sort_order *s, sort_item a, sort_item b) {
    int c = compare_items(s, a, b);
    return c ? c < 0 : a.row < b.row;
}

bool sort_ties(const sort_order *s, sort_item a, sort_item b) {
    return compare_items(s, a, b) == 0;
}

/* ---- merge sort ------------------------------------------------------------------------------ */

enum { RUN = 12, CANCEL_CHECK_ITEMS = 1 << 16, RUN_LEAST = 1 << 16 };

static void sort_run(const sort_order *s, sort_item *a, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        sort_item x = a[i];
        int64_t j = i;
        for (; j > 0 && sort_before(s, x, a[j - 1]); j--)
            a[j] = a[j - 1];
        a[j] = x;
    }
}

static int merge(const exec_ctx *ctx, const sort_order *s, const sort_item *a, int64_t na,
                 const sort_item *b, int64_t nb, sort_item *out, err *e) {
    int status = 0;
    while (na && nb && status == 0) {
        if ((na + nb) % CANCEL_CHECK_ITEMS == 0)
            status = check_cancel(ctx->cancel, e);
        if (sort_before(s, *b, *a)) {
            *out++ = *b++;
            nb--;
        } else {
            *out++ = *a++;
            na--;
        }
    }
    memcpy(out, na ? a : b, sizeof *out * (size_t)(na ? na : nb));
    return status;
}

/* Sorts items[0..n) in place; `spare` has room for n items. */
static int sort_items(const exec_ctx *ctx, const sort_order *s, sort_item *items, sort_item *spare,
                      int64_t n, err *e) {
    int status = 0;
    for (int64_t at = 0; at < n && status == 0; at += RUN) {
        sort_run(s, items + at, BASE_MIN(RUN, n - at));
        if (at / RUN % (CANCEL_CHECK_ITEMS / RUN) == 0)
            status = check_cancel(ctx->cancel, e);
    }
    sort_item *from = items, *to = spare;
    for (int64_t width = RUN; width < n && status == 0; width *= 2) {
        status = check_cancel(ctx->cancel, e);
        for (int64_t at = 0; at < n && status == 0; at += 2 * width) {
            int64_t na = BASE_MIN(width, n - at), nb = BASE_MIN(width, n - at - na);
            if (nb == 0 || !sort_before(s, from[at + na], from[at + na - 1]))
                memcpy(to + at, from + at, sizeof *to * (size_t)(na + nb)); /* already sorted */
            else
                status = merge(ctx, s, from + at, na, from + at + na, nb, to + at, e);
        }
        sort_item *other = from;
        from = to;
        to = other;
    }
    if (from != items && status == 0)
        memcpy(items, from, sizeof *items * (size_t)n);
    return status;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* What is left of a sorted run. */
typedef struct run_rest {
    sort_item first; /* = *next */
    const sort_item *next, *end;
} run_rest;

static bool run_before(const sort_order *s, run_rest a, run_rest b) {
    return sort_before(s, a.first, b.first);
}

HEAP_DEFINE(runs, run_rest, const sort_order *, run_before, HEAP_NOT_TOLD);

/* Replaces the first run of the heap. Moves the smaller children up to a leaf and then x up from
 * there: that takes half the comparisons of runs_update, since x mostly belongs near the leaves. */
static void replace_first(const sort_order *s, run_rest *heap, size_t n, run_rest x) {
    size_t at = 0, child = 1;
    for (; child < n; child = 2 * at + 1) {
        if (child + 1 < n && run_before(s, heap[child + 1], heap[child]))
            child++;
        heap[at] = heap[child];
        at = child;
    }
    runs_update(s, heap, at + 1, at, x);
}

/* Writes the row numbers of the items, which are sorted runs of `width`, in sorted order. */
static int merge_runs(const exec_ctx *ctx, const sort_order *s, const sort_item *items, int64_t n,
                      int64_t width, uint32_t *out, err *e) {
    size_t nruns = (size_t)((n + width - 1) / width);
    run_rest *rest = mem_alloc(sizeof *rest * nruns);
    int status = 0;
    for (size_t k = 0; k < nruns; k++) {
        const sort_item *from = items + (int64_t)k * width;
        rest[k] = (run_rest){*from, from, from + BASE_MIN(width, n - (int64_t)k * width)};
    }
    runs_build(s, rest, nruns);
    for (int64_t k = 0; nruns > 0 && status == 0; k++) {
        if (k % CANCEL_CHECK_ITEMS == 0)
            status = check_cancel(ctx->cancel, e);
        out[k] = rest[0].first.row;
        const sort_item *next = rest[0].next + 1, *end = rest[0].end;
        if (next < end)
            replace_first(s, rest, nruns, (run_rest){*next, next, end});
        else
            runs_pop(s, rest, &nruns);
    }
    free(rest);
    return status;
}

static int make_items(const exec_ctx *ctx, const sort_order *s, int64_t from, int64_t n,
                      sort_item *out, err *e) {
    for (int64_t k = 0; k < n; k++) {
        if (k % CANCEL_CHECK_ITEMS == 0 && check_cancel(ctx->cancel, e))
            return ERR_CANCELLED;
        int64_t row = from + k;
        const batch *in = rowset_batch(s->keys, (int)(row / BATCH_ROWS));
        out[k] = (sort_item){sort_prefix(s->by, s->nkeys, in->cols, (int)(row % BATCH_ROWS)),
                             (uint32_t)row};
    }
    return 0;
}

/* Returns the number of items to sort at once: all n, if items, spare and row numbers fit into what
 * is left of the budget, else as many as make a spare of a quarter of the whole budget. */
static int64_t run_width(const mem_budget *memory, int64_t n) {
    size_t each = 2 * sizeof(sort_item) + sizeof(uint32_t);
    if (memory->heap_bytes + each * (size_t)n <= memory->limit_bytes)
        return n;
    return BASE_MAX((int64_t)RUN_LEAST, (int64_t)(memory->limit_bytes / 4 / sizeof(sort_item)));
}

int sort_rows(const exec_ctx *ctx, mem_budget *memory, const rowset *keys, const sort_key *by,
              int nkeys, mem_array *out, err *e) {
    sort_order s = {keys, by, nkeys};
    int64_t count = rowset_rows(keys), width = BASE_MIN(run_width(memory, count), count);
    mem_array items = {0};
    if (count >= UINT32_MAX)
        return err_set(e, ERR_LIMIT, "a sort takes at most 4,294,967,294 rows");
    int status = mem_array_resize(&items, memory, sizeof(sort_item) * (size_t)(count + width), e);
    if (status == 0)
        status = mem_array_resize(out, memory, sizeof(uint32_t) * (size_t)count, e);
    sort_item *all = items.p;
    for (int64_t at = 0; at < count && status == 0; at += width) {
        int64_t n = BASE_MIN(width, count - at);
        status = make_items(ctx, &s, at, n, all + at, e);
        if (status == 0)
            status = sort_items(ctx, &s, all + at, all + count, n, e);
    }
    if (status == 0 && width < count)
        status = merge_runs(ctx, &s, all, count, width, out->p, e);
    for (int64_t k = 0; k < count && width == count && status == 0; k++)
        ((uint32_t *)out->p)[k] = all[k].row;
    mem_array_free(&items);
    if (status)
        mem_array_free(out);
    return status;
}
