/*
 * workmem_int.h - the functions of a workmem that arenas call: accounting and temporary files.
 */
#ifndef KVASIR_WORKMEM_INT_H
#define KVASIR_WORKMEM_INT_H

#include <sys/types.h>

#include "storage/base.h"

enum {
    WORKMEM_PAGE = 4096,
    /* The one value of `reason` that is no errno value: the limit of files is reached. */
    WORKMEM_LIMIT = -1
};

/* Adds and subtracts heap bytes; w may be NULL. */
void workmem_heap(workmem *w, size_t taken, size_t given);
/* Opens an unnamed temporary file; -1 with errno. */
int workmem_file(const workmem *w);
/* Reserves and counts up to `wanted` bytes at the file's end, at least `least` (both whole pages).
 * Returns their number, or 0 and *reason: an errno value or WORKMEM_LIMIT. */
size_t workmem_extend(workmem *w, int fd, off_t end, size_t wanted, size_t least, int *reason);
/* Subtracts file bytes. */
void workmem_shrink(workmem *w, size_t bytes);
/* Sets the error of a reason: ERR_FULL or ERR_IO. */
int workmem_error(const workmem *w, int reason, err *e);

#endif
