/*
 * workmem_int.h - what arenas need of a workmem: counting, and room in temporary files.
 */
#ifndef KVASIR_WORKMEM_INT_H
#define KVASIR_WORKMEM_INT_H

#include <sys/types.h>

#include "storage/base.h"

enum {
    WORKMEM_PAGE = 4096,
    WORKMEM_LIMIT = -1 /* a reason that is no errno: the files' limit */
};

/* Counts heap memory that was taken and given back. NULL: nobody counts. */
void workmem_heap(workmem *w, size_t taken, size_t given);
/* A file without a name, open for reading and writing; -1 with errno. */
int workmem_file(const workmem *w);
/* Reserves at the file's end, and counts, up to `wanted` bytes, at least `least` (both whole
 * pages). 0: there is no room, *reason says why (an errno or WORKMEM_LIMIT). */
size_t workmem_extend(workmem *w, int fd, off_t end, size_t wanted, size_t least, int *reason);
/* So many bytes of files are gone. */
void workmem_shrink(workmem *w, size_t bytes);
/* ERR_FULL or ERR_IO: why there was no room. */
int workmem_error(const workmem *w, int reason, err *e);

#endif
