/*
 * sort_best.c - the first rows of each group in an order, of rows that come one by one: what a sort
 * under a LIMIT keeps, and under one for each row of an outer query; and what a window keeps whose
 * row_number() or rank() a filter bounds.
 *
 *   groups  {items, n} by entry of `table`; without group columns there is one
 *   items   {prefix, row}: a heap of up to `limit`, once it is full with the last in order on top;
 *           behind a full heap, with ties, all other rows so far that equal that last one
 *   rows    the rows of all groups, and those that better ones pushed out (spilling)
 *   keys    their sort keys (spilling)
 *
 * Rows that were pushed out are left behind as soon as they are as many as the others, so what is
 * kept follows groups × limit, not the input. Invariant: row numbers grow in input order, so of
 * rows with equal keys the later one goes first.
 */
#include <stdlib.h>
#include <string.h>

#include "row_sort_int.h"

typedef struct best_group {
    sort_item *items;
    size_t n, room;
} best_group;

struct sort_best {
    const exec_ctx *ctx;
    best_spec spec;
    value_type *key_types;
    rowset *rows, *keys;
    hash_table *table; /* NULL: one group */
    arena *mem;        /* groups and their items, spilling */
    best_group *groups;
    size_t ngroups; /* that there is room for */
    int64_t kept;   /* items in all groups */
    uint32_t entries[BATCH_ROWS];
};

static arena *spilling(const exec_ctx *ctx) {
    return arena_new_spilling((size_t)ctx->settings->work_memory, ctx->space);
}

sort_best *sort_best_new(const exec_ctx *ctx, const best_spec *spec) {
    sort_best *b = mem_zalloc(sizeof *b);
    b->ctx = ctx;
    b->spec = *spec;
    b->mem = spilling(ctx);
    b->key_types = mem_alloc(sizeof *b->key_types * (size_t)BASE_MAX(spec->nkeys, 1));
    for (int k = 0; k < spec->nkeys; k++)
        b->key_types[k] = spec->by[k].value->type;
    b->rows = rowset_new(ctx, spec->types, spec->ncols);
    b->keys = rowset_new(ctx, b->key_types, spec->nkeys);
    if (spec->ngroup > 0)
        b->table = hash_table_new(ctx, spec->group_types, spec->ngroup);
    return b;
}

void sort_best_free(sort_best *b) {
    if (!b)
        return;
    rowset_free(b->rows);
    rowset_free(b->keys);
    hash_table_free(b->table);
    arena_free(b->mem);
    free(b->key_types);
    free(b);
}

/* ---- groups ---------------------------------------------------------------------------------- */

static void make_groups(sort_best *b, size_t count) {
    if (count <= b->ngroups)
        return;
    size_t room = BASE_MAX(count, b->ngroups * 2);
    best_group *groups = arena_zalloc(b->mem, sizeof *groups * room);
    if (b->ngroups)
        memcpy(groups, b->groups, sizeof *groups * b->ngroups);
    b->groups = groups;
    b->ngroups = room;
}

/* entries[k] = the group of row k. */
static int find_groups(sort_best *b, const column *group, int rows, err *e) {
    if (!b->table) {
        memset(b->entries, 0, sizeof *b->entries * (size_t)rows);
        make_groups(b, 1);
        return 0;
    }
    int status = hash_table_add(b->table, group, rows, b->entries, e);
    make_groups(b, hash_table_count(b->table));
    return status;
}

/* ---- heaps ----------------------------------------------------------------------------------- */

static void sift_down(const sort_order *s, sort_item *heap, size_t n, size_t at) {
    sort_item x = heap[at];
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && sort_before(s, heap[child], heap[child + 1]))
            child++;
        if (sort_before(s, heap[child], x))
            break;
        heap[at] = heap[child];
    }
    heap[at] = x;
}

static void append_item(sort_best *b, best_group *g, sort_item x) {
    if (g->n == g->room) {
        size_t room = g->room ? g->room * 2 : (size_t)BASE_MIN(4, b->spec.limit);
        sort_item *items = arena_alloc(b->mem, sizeof *items * room);
        if (g->n)
            memcpy(items, g->items, sizeof *items * g->n);
        g->items = items;
        g->room = room;
    }
    g->items[g->n++] = x;
    b->kept++;
}

/* Row `row` of the keys against the last of a full heap, which came before it: below, equal to or
 * above 0. */
static int compare_to_last(const sort_best *b, const best_group *g, uint64_t prefix,
                           const column *keys, int row) {
    sort_item last = g->items[0];
    if (prefix != last.prefix)
        return prefix < last.prefix ? -1 : 1;
    const batch *of_last = rowset_batch(b->keys, (int)(last.row / BATCH_ROWS));
    return sort_compare(b->spec.by, b->spec.nkeys, keys, row, of_last->cols,
                        (int)(last.row % BATCH_ROWS));
}

/* Puts x into a full heap; what it pushes out stays beside it while that is a tie. */
static void push_out_last(sort_best *b, const sort_order *s, best_group *g, sort_item x) {
    size_t limit = (size_t)b->spec.limit;
    sort_item last = g->items[0];
    g->items[0] = x;
    sift_down(s, g->items, limit, 0);
    if (!b->spec.with_ties)
        return;
    if (sort_ties(s, last, g->items[0])) {
        append_item(b, g, last);
    } else {
        b->kept -= (int64_t)(g->n - limit);
        g->n = limit;
    }
}

static void add_row(sort_best *b, const sort_order *s, const batch *in, const column *keys,
                    int row) {
    best_group *g = &b->groups[b->entries[row]];
    int same = b->spec.nsame;
    uint64_t prefix = sort_prefix(s->by + same, s->nkeys - same, keys + same, row);
    bool full = g->n >= (size_t)b->spec.limit;
    int c = full ? compare_to_last(b, g, prefix, keys, row) : 0;
    if (c > 0 || (full && c == 0 && !b->spec.with_ties))
        return;
    sort_item x = {prefix, (uint32_t)rowset_rows(b->keys)};
    rowset_push(b->rows, in->cols, row);
    rowset_push(b->keys, keys, row);
    if (c < 0) {
        push_out_last(b, s, g, x);
        return;
    }
    append_item(b, g, x);
    for (size_t at = g->n == (size_t)b->spec.limit ? g->n / 2 : 0; at-- > 0;)
        sift_down(s, g->items, g->n, at);
}

/* ---- leaving rows behind --------------------------------------------------------------------- */

static const uint32_t LEFT_BEHIND = UINT32_MAX;

/* numbers[r] = what row r's number becomes; LEFT_BEHIND: in no group. */
static void number_kept(const sort_best *b, uint32_t *numbers, int64_t rows) {
    uint32_t next = 0;
    memset(numbers, 0xff, sizeof *numbers * (size_t)rows);
    for (size_t g = 0; g < b->ngroups; g++)
        for (size_t k = 0; k < b->groups[g].n; k++)
            numbers[b->groups[g].items[k].row] = 0;
    for (int64_t r = 0; r < rows; r++)
        if (numbers[r] != LEFT_BEHIND)
            numbers[r] = next++;
    for (size_t g = 0; g < b->ngroups; g++)
        for (size_t k = 0; k < b->groups[g].n; k++)
            b->groups[g].items[k].row = numbers[b->groups[g].items[k].row];
}

static rowset *kept_of(const sort_best *b, const rowset *from, const value_type *types, int ncols,
                       const uint32_t *numbers) {
    rowset *to = rowset_new(b->ctx, types, ncols);
    for (int64_t r = 0; r < rowset_rows(from); r++)
        if (numbers[r] != LEFT_BEHIND)
            rowset_push(to, rowset_batch(from, (int)(r / BATCH_ROWS))->cols, (int)(r % BATCH_ROWS));
    return to;
}

static int leave_behind(sort_best *b, err *e) {
    int64_t n = rowset_rows(b->keys);
    if (n == b->kept)
        return 0;
    uint32_t *numbers = mem_try_alloc(sizeof *numbers * (size_t)n);
    if (!numbers)
        return err_set(e, ERR_FULL, "not enough memory to sort %lld rows", (long long)n);
    number_kept(b, numbers, n);
    rowset *rows = kept_of(b, b->rows, b->spec.types, b->spec.ncols, numbers),
           *keys = kept_of(b, b->keys, b->key_types, b->spec.nkeys, numbers);
    free(numbers);
    rowset_free(b->rows);
    rowset_free(b->keys);
    b->rows = rows;
    b->keys = keys;
    int status = rowset_full_error(rows, e);
    return status ? status : rowset_full_error(keys, e);
}

int sort_best_add(sort_best *b, const batch *in, const column *keys, const column *group, err *e) {
    int status = find_groups(b, group, in->rows, e);
    if (status)
        return status;
    if (rowset_rows(b->keys) >= LEFT_BEHIND - BATCH_ROWS)
        return err_set(e, ERR_LIMIT, "more than 4,294,965,246 rows to sort");
    sort_order s = {b->keys, b->spec.by, b->spec.nkeys};
    for (int k = 0; k < in->rows; k++)
        add_row(b, &s, in, keys, k);
    if ((status = rowset_full_error(b->rows, e)) != 0 ||
        (status = rowset_full_error(b->keys, e)) != 0 ||
        (status = arena_full_error(b->mem, e)) != 0 ||
        rowset_rows(b->keys) < 2 * (b->kept + BATCH_ROWS))
        return status;
    return leave_behind(b, e);
}

int sort_best_take(sort_best *b, rowset **rows, rowset **keys, err *e) {
    int status = leave_behind(b, e);
    *rows = b->rows;
    *keys = b->keys;
    b->rows = b->keys = NULL;
    return status;
}
