/*
 * merge_sort.c - sort_array: qsort of runs, then merges, checking for cancellation.
 */
#include <stdlib.h>
#include <string.h>

#include "storage/base.h"

enum { RUN = 4096 };

typedef int compare_fn(const void *, const void *);

/* Merges a[0 .. na-1] and b[0 .. nb-1] into out; of equal items, those of `a` come first. */
static int merge(const char *a, size_t na, const char *b, size_t nb, size_t size, char *out,
                 compare_fn *compare, const atomic_bool *cancel, err *e) {
    int status = 0;
    while (na && nb && (status = check_cancel(cancel, e)) == 0) {
        bool right = compare(b, a) < 0;
        memcpy(out, right ? b : a, size);
        out += size;
        *(right ? &b : &a) += size;
        *(right ? &nb : &na) -= 1;
    }
    memcpy(out, na ? a : b, (na ? na : nb) * size);
    return status;
}

static int merge_runs(char *from, char *to, size_t n, size_t size, compare_fn *compare,
                      const atomic_bool *cancel, err *e) {
    char *items = from;
    int status = 0;
    for (size_t width = RUN; width < n && !status; width *= 2) {
        for (size_t at = 0; at < n && !status; at += 2 * width) {
            size_t na = BASE_MIN(width, n - at), nb = BASE_MIN(width, n - at - na);
            const char *a = from + at * size;
            status = merge(a, na, a + na * size, nb, size, to + at * size, compare, cancel, e);
        }
        char *other = from;
        from = to;
        to = other;
    }
    if (from != items && !status)
        memcpy(items, from, n * size);
    return status;
}

int sort_array(void *items, size_t n, size_t size, compare_fn *compare, const atomic_bool *cancel,
               err *e) {
    int status = 0;
    for (size_t at = 0; at < n && (status = check_cancel(cancel, e)) == 0; at += RUN)
        qsort((char *)items + at * size, BASE_MIN((size_t)RUN, n - at), size, compare);
    if (status || n <= RUN)
        return status;
    char *spare = mem_try_alloc(n * size);
    if (!spare)
        return err_set(e, ERR_FULL, "not enough memory to sort %zu entries", n);
    status = merge_runs(items, spare, n, size, compare, cancel, e);
    free(spare);
    return status;
}
