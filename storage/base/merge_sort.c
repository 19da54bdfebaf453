/*
 * merge_sort.c - sort_array: a merge sort that checks for cancellation.
 *
 * Halves are sorted one after the other, so that each part that fits into a cache, or into memory if
 * the array is mapped from a file, is sorted completely before the next one is read. Merging needs
 * room for half of the items.
 */
#include <stdlib.h>
#include <string.h>

#include "storage/base.h"

enum { RUN = 4096 }; /* up to so many items are sorted by qsort */

typedef int compare_fn(const void *, const void *);

typedef struct sorting {
    size_t size; /* of an item */
    compare_fn *compare;
    char *spare;
    const atomic_bool *cancel;
} sorting;

/* Merges the sorted items[0 .. na-1] and items[na .. n-1]. */
static int merge(const sorting *s, char *items, size_t na, size_t n, err *e) {
    size_t size = s->size;
    const char *a = s->spare, *a_end = a + na * size, *b = items + na * size,
               *b_end = items + n * size;
    int status = 0;
    if (s->compare(b, b - size) >= 0)
        return 0; /* in order already */
    memcpy(s->spare, items, na * size);
    while (a < a_end && b < b_end && (status = check_cancel(s->cancel, e)) == 0) {
        bool right = s->compare(b, a) < 0;
        memcpy(items, right ? b : a, size);
        items += size;
        *(right ? &b : &a) += size;
    }
    memcpy(items, a, (size_t)(a_end - a)); /* what is left of b is in its place */
    return status;
}

static int sort_part(const sorting *s, char *items, size_t n, err *e) {
    int status = check_cancel(s->cancel, e);
    if (n > 1 && n <= RUN && status == 0)
        qsort(items, n, s->size, s->compare);
    if (n <= RUN || status)
        return status;
    status = sort_part(s, items, n / 2, e);
    if (status == 0)
        status = sort_part(s, items + n / 2 * s->size, n - n / 2, e);
    return status ? status : merge(s, items, n / 2, n, e);
}

int sort_array(void *items, size_t n, size_t size, compare_fn *compare, const atomic_bool *cancel,
               err *e) {
    sorting s = {size, compare, n > RUN ? mem_try_alloc(n / 2 * size) : NULL, cancel};
    if (n > RUN && !s.spare)
        return err_set(e, ERR_FULL, "not enough memory to sort %zu entries", n);
    int status = sort_part(&s, items, n, e);
    free(s.spare);
    return status;
}

int sort_array_in(mem_budget *m, void *items, size_t n, size_t size, compare_fn *compare,
                  const atomic_bool *cancel, err *e) {
    mem_array spare = {0};
    int status = n > RUN ? mem_array_resize(&spare, m, n / 2 * size, e) : 0;
    if (status == 0)
        status = sort_part(&(sorting){size, compare, spare.p, cancel}, items, n, e);
    mem_array_free(&spare);
    return status;
}
