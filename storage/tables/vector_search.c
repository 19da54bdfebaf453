/*
 * vector_search.c - finds the rows nearest to a vector by an index USING ivfflat.
 */
#include <stdlib.h>
#include <string.h>

#include "vector_lists_int.h"

enum {
    PROBES_LEAST = 8,
    PROBES_FEW = 4, /* one of so many lists is read if there are few lists, */
    PROBES_MORE = 40,
    PROBES_MANY = 16, /* else one of so many and PROBES_MORE */
    CANDIDATES = 4,   /* times k entries, and some more, are compared exactly */
    CANDIDATES_MORE = 16,
    VECTORS_PER_LOOK = 64 /* between two looks at the cancel flag */
};

uint32_t lists_probes(const vector_lists *lists) {
    uint32_t probes = BASE_MIN(lists->n / PROBES_FEW, PROBES_MORE + lists->n / PROBES_MANY);
    return BASE_MIN(BASE_MAX(probes, (uint32_t)PROBES_LEAST), lists->n);
}

typedef struct found {
    double distance;
    int64_t id; /* of a row, or a list */
} found;

static bool is_farther(found a, found b) {
    return a.distance != b.distance ? a.distance > b.distance : a.id > b.id;
}

#define FARTHER(context, a, b) is_farther(a, b)
HEAP_DEFINE(found_heap, found, const void *, FARTHER, HEAP_NOT_TOLD);

/* Keeps x among the k nearest. */
static void keep(found *heap, size_t *n, size_t k, found x) {
    if (*n < k)
        found_heap_push(NULL, heap, n, x);
    else if (is_farther(heap[0], x))
        found_heap_update(NULL, heap, k, 0, x);
}

static int by_id(const void *a, const void *b) {
    int64_t x = ((const found *)a)->id, y = ((const found *)b)->id;
    return x < y ? -1 : x > y;
}

static int by_distance(const void *a, const void *b) {
    return is_farther(*(const found *)b, *(const found *)a) ? -1 : 1;
}

typedef struct search {
    txn *t;
    const table_def *def;
    const index_def *index;
    str query;
    coded_query coded;
    found *heap; /* [room] the best entries so far, by estimated distance */
    size_t n, room;
    const atomic_bool *cancel;
} search;

static int entry_is_damaged(const search *s, err *e) {
    err_set(e, ERR_CORRUPT,
            "index \"%.*s\" of table \"%.*s\" is damaged: an entry is not that of a row",
            (int)s->index->name.n, s->index->name.p, (int)s->def->name.n, s->def->name.p);
    err_hint(e, "drop and create the index; " DAMAGE_HINT);
    return ERR_CORRUPT;
}

/* Fetches the page that is probably read soon: of an index that was built, entries are in the order of the
 * pages. Else the processor waits for each page's first bytes. */
static void fetch_ahead(const void *entry, uintptr_t *fetched) {
    enum { PAGE = 4096, LINE = 64, AHEAD = 3 };
    uintptr_t page = ((uintptr_t)entry & ~(uintptr_t)(PAGE - 1)) + AHEAD * PAGE;
    if (page == *fetched)
        return;
    *fetched = page;
    for (int at = 0; at < PAGE; at += LINE)
        __builtin_prefetch((const void *)(page + (uintptr_t)at));
}

/* Returns what orders the entries as their distances do, but for the rounding of codes. */
static double estimate(const search *s, const char *entry) {
    size_t dims = s->query.n / sizeof(float);
    entry_head head;
    memcpy(&head, entry, sizeof head);
    int64_t sum = vector_codes_inner((const int8_t *)entry + sizeof head, s->coded.codes, dims);
    return (double)head.square - 2 * (double)head.scale * s->coded.scale * (double)sum;
}

static int read_list(search *s, tree_cursor *c, uint32_t list, err *e) {
    buf prefix = {0};
    lists_append_list(&prefix, list);
    MDB_val key = {prefix.n, prefix.p}, data;
    uintptr_t fetched = 0;
    int status = 0, rc = tree_get(c, &key, &data, MDB_SET_RANGE);
    for (size_t at = 0; rc == 0 && status == 0; at++) {
        if (key.mv_size != LIST_PREFIX + KEY_ROWID ||
            memcmp(key.mv_data, prefix.p, LIST_PREFIX) != 0)
            break;
        if ((rc = tree_whole_value(c, key, data)) != 0)
            break;
        fetch_ahead(data.mv_data, &fetched);
        if (data.mv_size != lists_entry_bytes(s->index->lists))
            status = entry_is_damaged(s, e);
        else
            keep(s->heap, &s->n, s->room, (found){estimate(s, data.mv_data), key_rowid(key)});
        if (status == 0 && at % VECTORS_PER_LOOK == 0)
            status = check_cancel(s->cancel, e);
        if (status == 0)
            rc = tree_get(c, &key, &data, MDB_NEXT);
    }
    buf_free(&prefix);
    if (status || rc == 0 || rc == MDB_NOTFOUND)
        return status;
    return tree_error(s->t, rc, "cannot read an index", e);
}

/* Sets the distances of the entries found to those of their rows, and sorts them. */
static int compare_rows(search *s, err *e) {
    const vector_lists *l = s->index->lists;
    value *row = mem_alloc(sizeof *row * (size_t)s->def->ncolumns);
    double norm = vector_norm(s->query);
    int status = 0;
    qsort(s->heap, s->n, sizeof *s->heap, by_id); /* rows are read in their order */
    for (size_t i = 0; i < s->n && status == 0; i++) {
        bool there = false;
        status = table_get(s->t, s->def, s->heap[i].id, row, &there, e);
        const value *v = &row[s->index->columns[0]];
        if (status == 0 && (!there || v->type != TYPE_VECTOR || v->s.n != s->query.n))
            status = entry_is_damaged(s, e);
        else if (status == 0)
            s->heap[i].distance = vector_distance(l->metric, v->s, s->query, norm);
    }
    free(row);
    qsort(s->heap, s->n, sizeof *s->heap, by_distance);
    return status;
}

/* Finds the lists to read, in the order in which they are stored. */
static found *nearest_lists(const vector_lists *l, const coded_query *q, uint32_t probes,
                            size_t *n) {
    found *heap = mem_alloc(sizeof *heap * probes);
    *n = 0;
    for (uint32_t i = 0; i < l->n; i++)
        keep(heap, n, probes, (found){lists_farness(l, i, q), i});
    qsort(heap, *n, sizeof *heap, by_id);
    return heap;
}

int lists_search(txn *t, const table_def *def, const index_def *index, str query, uint32_t probes,
                 size_t k, const atomic_bool *cancel, rowid_list *out, err *e) {
    const table_info *info;
    tree_cursor *shared, c;
    ptrdiff_t at = index - def->indexes;
    int status = table_resolve(t, def, &info, e);
    if (!status)
        status = txn_index(t, info, (int)at, &shared, e);
    if (!status)
        status = tree_cursor_copy(shared, &c, e);
    if (status || k == 0)
        return status;
    const vector_lists *l = info->def->indexes[at].lists;
    size_t room = k * CANDIDATES + CANDIDATES_MORE, nlists;
    search s = {.t = t,
                .def = info->def,
                .index = &info->def->indexes[at],
                .query = query,
                .coded = lists_query(query),
                .heap = mem_alloc(sizeof(found) * room),
                .room = room,
                .cancel = cancel};
    found *lists = nearest_lists(l, &s.coded, BASE_MAX(BASE_MIN(probes, l->n), 1u), &nlists);
    for (size_t i = 0; i < nlists && status == 0; i++)
        status = read_list(&s, &c, (uint32_t)lists[i].id, e);
    if (status == 0)
        status = compare_rows(&s, e);
    for (size_t i = 0; i < s.n && i < k && status == 0; i++)
        status = rowid_list_add(out, s.heap[i].id, e);
    free(lists);
    free(s.heap);
    free(s.coded.codes);
    tree_cursor_close(&c);
    return status;
}
