/*
 * rowids.c - lists of rowids found by an index, to be sorted into the table's order before the rows
 * are read.
 */
#include <stdlib.h>

#include "storage/storage.h"

int rowid_list_add(rowid_list *l, int64_t rowid, err *e) {
    if (l->n == l->capacity) {
        size_t room = BASE_MAX(l->capacity * 2, (size_t)64);
        int64_t *ids = realloc(l->ids, room * sizeof *ids);
        if (!ids)
            return err_set(e, ERR_FULL, "not enough memory for %zu rowids", room);
        l->ids = ids;
        l->capacity = room;
    }
    l->ids[l->n++] = rowid;
    return 0;
}

int rowid_compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Checked before sorting, because the rowids of a single index key are already sorted. */
static bool is_sorted(const rowid_list *l) {
    for (size_t i = 1; i < l->n; i++)
        if (l->ids[i - 1] >= l->ids[i])
            return false;
    return true;
}

void rowid_list_sort(rowid_list *l) {
    size_t kept = 0;
    if (is_sorted(l))
        return;
    qsort(l->ids, l->n, sizeof *l->ids, rowid_compare);
    for (size_t i = 0; i < l->n; i++)
        if (kept == 0 || l->ids[kept - 1] != l->ids[i])
            l->ids[kept++] = l->ids[i];
    l->n = kept;
}

void rowid_list_free(rowid_list *l) {
    free(l->ids);
    *l = (rowid_list){0};
}
