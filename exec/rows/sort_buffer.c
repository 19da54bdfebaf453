/*
 * sort_buffer.c - keeps the rows of a sort or a window with their sort keys: all rows, or only the
 * first `limit` of each group (top-N).
 *
 *   groups  {items, n} by entry of `table`; a single group if the spec has no group columns
 *   items   {prefix, row} of the kept rows. Once there are `limit` items, these are a heap with the
 *           last row in sort order on top. With ties, all other rows with the same keys as that
 *           last row follow.
 *   rows    the rows of all groups, and rejected rows that are not removed yet (spilling)
 *   keys    their sort keys (spilling)
 *
 * Rejected rows are removed when about half of all stored rows are rejected, so memory depends on
 * groups × limit, not on the number of input rows. Invariant: row numbers grow in input order, so
 * of rows with equal keys the later one is rejected first.
 */
#include <stdlib.h>
#include <string.h>

#include "row_sort_int.h"
#include "storage/containers.h"

typedef struct sort_group {
    sort_item *items;
    size_t n, room;
} sort_group;

struct sort_buffer {
    mem_budget *memory;
    sort_spec spec;
    value_type *key_types;
    rowset *rows, *keys;
    hash_table *table; /* NULL: one group */
    arena *mem;        /* groups and their items, spilling */
    sort_group *groups;
    size_t ngroups;               /* allocated length of `groups` */
    int64_t kept;                 /* number of items in all groups */
    uint32_t entries[BATCH_ROWS]; /* the group of each row of the batch being added */
};

sort_buffer *sort_buffer_new(mem_budget *memory, const sort_spec *spec) {
    sort_buffer *b = mem_zalloc(sizeof *b);
    b->memory = memory;
    b->spec = *spec;
    b->mem = arena_new_sharing(memory);
    b->key_types = mem_alloc(sizeof *b->key_types * (size_t)BASE_MAX(spec->nkeys, 1));
    for (int k = 0; k < spec->nkeys; k++)
        b->key_types[k] = spec->by[k].value->type;
    b->rows = rowset_new_in(memory, spec->types, spec->ncols);
    b->keys = rowset_new_in(memory, b->key_types, spec->nkeys);
    if (spec->limit > 0 && spec->ngroup > 0)
        b->table = hash_table_new(memory, spec->group_types, spec->ngroup);
    return b;
}

void sort_buffer_free(sort_buffer *b) {
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

static void make_groups(sort_buffer *b, size_t count) {
    size_t before = b->ngroups;
    ARENA_RESERVE(b->mem, b->groups, count, b->ngroups);
    memset(b->groups + before, 0, sizeof *b->groups * (b->ngroups - before));
}

/* Sets entries[k] to the group of row k. */
static int find_groups(sort_buffer *b, const column *group, int rows, err *e) {
    if (!b->table) {
        memset(b->entries, 0, sizeof *b->entries * (size_t)rows);
        make_groups(b, 1);
        return 0;
    }
    int status = hash_table_add(b->table, group, rows, b->entries, e);
    make_groups(b, hash_table_count(b->table));
    return status;
}

static bool item_after(const sort_order *s, sort_item a, sort_item b) {
    return sort_before(s, b, a);
}

HEAP_DEFINE(last_first, sort_item, const sort_order *, item_after, HEAP_NOT_TOLD);

/* Appends x to a group. The first allocation is for 4 items, not for 16 as in ARENA_PUSH, because
 * there may be millions of groups. */
static void append_item(sort_buffer *b, sort_group *g, sort_item x) {
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

/* Compares row `row` of the keys with the last row, in sort order, that a full group keeps. */
static int compare_to_last(const sort_buffer *b, const sort_group *g, uint64_t prefix,
                           const column *keys, int row) {
    sort_item last = g->items[0];
    if (prefix != last.prefix)
        return prefix < last.prefix ? -1 : 1;
    const batch *of_last = rowset_batch(b->keys, (int)(last.row / BATCH_ROWS));
    return sort_compare(b->spec.by, b->spec.nkeys, keys, row, of_last->cols,
                        (int)(last.row % BATCH_ROWS));
}

/* Replaces the last item of a full group by x. With ties, the old last item is kept if its keys
 * equal those of the new last item. */
static void replace_last(sort_buffer *b, const sort_order *s, sort_group *g, sort_item x) {
    size_t limit = (size_t)b->spec.limit;
    sort_item last = g->items[0];
    last_first_update(s, g->items, limit, 0, x);
    if (!b->spec.with_ties)
        return;
    if (sort_ties(s, last, g->items[0])) {
        append_item(b, g, last);
    } else {
        b->kept -= (int64_t)(g->n - limit);
        g->n = limit;
    }
}

static void add_row(sort_buffer *b, const sort_order *s, const batch *in, const column *keys,
                    int row) {
    sort_group *g = &b->groups[b->entries[row]];
    size_t limit = (size_t)b->spec.limit;
    int same = b->spec.nsame;
    uint64_t prefix = sort_prefix(s->by + same, s->nkeys - same, keys + same, row);
    bool full = g->n >= limit;
    int c = full ? compare_to_last(b, g, prefix, keys, row) : 0;
    if (c > 0 || (full && c == 0 && !b->spec.with_ties))
        return;
    sort_item x = {prefix, (uint32_t)rowset_rows(b->keys)};
    rowset_push(b->rows, in->cols, row);
    rowset_push(b->keys, keys, row);
    if (c < 0) {
        replace_last(b, s, g, x);
        return;
    }
    append_item(b, g, x);
    if (g->n == limit)
        last_first_build(s, g->items, limit);
}

/* ---- removing rejected rows ------------------------------------------------------------------ */

static const uint32_t REJECTED = UINT32_MAX;

/* Renumbers the kept rows: numbers[r] = row r's new number, or REJECTED. */
static void number_kept(const sort_buffer *b, uint32_t *numbers, int64_t rows) {
    uint32_t next = 0;
    memset(numbers, 0xff, sizeof *numbers * (size_t)rows);
    for (size_t g = 0; g < b->ngroups; g++)
        for (size_t k = 0; k < b->groups[g].n; k++)
            numbers[b->groups[g].items[k].row] = 0;
    for (int64_t r = 0; r < rows; r++)
        if (numbers[r] != REJECTED)
            numbers[r] = next++;
    for (size_t g = 0; g < b->ngroups; g++)
        for (size_t k = 0; k < b->groups[g].n; k++)
            b->groups[g].items[k].row = numbers[b->groups[g].items[k].row];
}

static int copy_kept(const sort_buffer *b, rowset **set, const value_type *types, int ncols,
                     const uint32_t *numbers, err *e) {
    rowset *from = *set, *to = rowset_new_in(b->memory, types, ncols);
    for (int64_t r = 0; r < rowset_rows(from); r++)
        if (numbers[r] != REJECTED)
            rowset_push(to, rowset_batch(from, (int)(r / BATCH_ROWS))->cols, (int)(r % BATCH_ROWS));
    rowset_free(from);
    *set = to;
    return rowset_full_error(to, e);
}

static int remove_rejected(sort_buffer *b, err *e) {
    int64_t n = rowset_rows(b->keys);
    if (b->spec.limit <= 0 || n == b->kept)
        return 0;
    mem_array numbers = {0};
    int status = mem_array_resize(&numbers, b->memory, sizeof(uint32_t) * (size_t)n, e);
    if (status)
        return status;
    number_kept(b, numbers.p, n);
    status = copy_kept(b, &b->rows, b->spec.types, b->spec.ncols, numbers.p, e);
    if (status == 0)
        status = copy_kept(b, &b->keys, b->key_types, b->spec.nkeys, numbers.p, e);
    mem_array_free(&numbers);
    return status;
}

/* ---- adding and taking ----------------------------------------------------------------------- */

static int add_all(sort_buffer *b, const batch *in, const column *keys, err *e) {
    batch key_rows = {.rows = in->rows, .ncols = b->spec.nkeys, .cols = (column *)keys};
    int status = rowset_append(b->rows, in, e);
    return status ? status : rowset_append(b->keys, &key_rows, e);
}

int sort_buffer_add(sort_buffer *b, const batch *in, const column *keys, const column *group,
                    err *e) {
    if (b->spec.limit <= 0)
        return add_all(b, in, keys, e);
    int status = find_groups(b, group, in->rows, e);
    if (status)
        return status;
    if (rowset_rows(b->keys) >= REJECTED - BATCH_ROWS)
        return err_set(e, ERR_LIMIT, "a sort takes at most 4,294,965,246 rows");
    sort_order s = {b->keys, b->spec.by, b->spec.nkeys};
    for (int k = 0; k < in->rows; k++)
        add_row(b, &s, in, keys, k);
    if ((status = rowset_full_error(b->rows, e)) != 0 ||
        (status = rowset_full_error(b->keys, e)) != 0 ||
        (status = arena_full_error(b->mem, e)) != 0 ||
        rowset_rows(b->keys) < 2 * (b->kept + BATCH_ROWS))
        return status;
    return remove_rejected(b, e);
}

int sort_buffer_take(sort_buffer *b, rowset **rows, rowset **keys, err *e) {
    int status = remove_rejected(b, e);
    *rows = b->rows;
    *keys = b->keys;
    b->rows = b->keys = NULL;
    return status;
}
