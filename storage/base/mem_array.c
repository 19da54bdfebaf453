/*
 * mem_array.c - one array in a budget: on the heap, or mapped from an unnamed file of its own.
 *
 * Invariant: a mapped array takes up its whole file, whose space is reserved, so that no access to
 * it can fail; it does not return to the heap. What is in the array is left to the caller.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workmem_int.h"

/* Makes the file `size` bytes long (whole pages, more than before) and maps it in place of a->p. */
static int map_more(mem_array *a, size_t size, err *e) {
    workmem *w = a->budget->space;
    int reason;
    size_t more = size - a->size;
    if (!workmem_extend(w, a->fd, (off_t)a->size, more, more, &reason))
        return workmem_error(w, reason, e);
    void *p = a->size ? mremap(a->p, a->size, size, MREMAP_MAYMOVE)
                      : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    if (p == MAP_FAILED) {
        reason = errno;
        if (ftruncate(a->fd, (off_t)a->size) == 0)
            workmem_shrink(w, more);
        return workmem_error(w, reason, e);
    }
    a->p = p;
    a->size = size;
    return 0;
}

/* Moves an array from the heap to a file of `size` bytes. */
static int move_to_file(mem_array *a, size_t size, err *e) {
    mem_array to = {.budget = a->budget, .mapped = true};
    to.fd = workmem_file(a->budget->space);
    int status = to.fd < 0 ? workmem_error(a->budget->space, errno, e) : map_more(&to, size, e);
    if (status) {
        if (to.fd >= 0)
            close(to.fd);
        return status;
    }
    to.bytes = a->bytes;
    if (a->bytes)
        memcpy(to.p, a->p, a->bytes);
    mem_array_free(a);
    *a = to;
    return 0;
}

static int resize_on_heap(mem_array *a, size_t bytes, err *e) {
    void *p = realloc(a->p, BASE_MAX(bytes, (size_t)1));
    if (!p)
        return err_set(e, ERR_FULL, "not enough memory for %zu bytes", bytes);
    a->p = p;
    a->budget->heap_bytes += bytes - a->size;
    workmem_heap(a->budget->space, bytes, a->size);
    a->size = bytes;
    return 0;
}

int mem_array_resize(mem_array *a, mem_budget *m, size_t bytes, err *e) {
    size_t page = WORKMEM_PAGE - 1, whole = (bytes + page) & ~page;
    int status = 0;
    a->budget = m;
    if (a->mapped)
        status = whole > a->size ? map_more(a, whole, e) : 0;
    else if (bytes <= WORKMEM_PAGE || m->heap_bytes - a->size + bytes <= m->limit_bytes)
        status = resize_on_heap(a, bytes, e);
    else
        status = move_to_file(a, whole, e);
    if (status == 0)
        a->bytes = bytes;
    return status;
}

void mem_array_free(mem_array *a) {
    if (a->mapped) {
        munmap(a->p, a->size);
        close(a->fd);
        workmem_shrink(a->budget->space, a->size);
    } else if (a->p) {
        free(a->p);
        a->budget->heap_bytes -= a->size;
        workmem_heap(a->budget->space, 0, a->size);
    }
    *a = (mem_array){0};
}
