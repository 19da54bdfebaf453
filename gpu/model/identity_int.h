/*
 * identity_int.h - the identity of a model's files: a hash of all their bytes, and the check that
 * they have not changed (identity.c).
 */
#ifndef KVASIR_IDENTITY_INT_H
#define KVASIR_IDENTITY_INT_H

#include <pthread.h>

#include "gguf_int.h"
#include "pool_int.h"

typedef struct file_identity {
    const gguf *file;
    const char *path, *cache_dir; /* cache_dir NULL: no records */
    hash128 hash;                 /* hash of all bytes; constant */
    pthread_mutex_t lock;         /* protects the members below */
    hash128 stamp;                /* the files' stamp when their hash was last known to be `hash` */
    int64_t seen_ns;              /* when this stamp was first seen, by a monotonic clock */
    bool settled;                 /* any later change of the files gives another stamp */
    bool read; /* this process has hashed the bytes; false: the hash is from a record */
    bool lost; /* the bytes have changed */
} file_identity;

/* Finds the hash of a model's files: in a record for their stamp, or by hashing them with `threads`
 * (NULL: the calling thread). path, cache_dir: as in llm_engine_options; path NULL: the file is in
 * memory. The result is allocated in `mem`. ERR_IO: a file cannot be read; ERR_MODEL: a file
 * changed while it was read; ERR_CANCELLED: `threads` were cancelled (pool_let_cancel). */
int identity_find(const gguf *file, const char *path, const char *cache_dir, pool *threads,
                  arena *mem, file_identity **out, err *e);
/* Whether the files' bytes still have the hash. Compares the stamp, and hashes the files again if
 * the stamp differs. With `read`, also hashes them if the hash is only known from a record.
 * Thread-safe. The result is undefined if `threads` were cancelled. */
bool identity_unchanged(file_identity *id, pool *threads, bool read);
/* Whether the files at `path` are those that were opened, unchanged. Also true if there are no
 * files at `path`: the files were deleted, not replaced. */
bool identity_same_at_path(file_identity *id, const char *path);
/* The files' stamp now; constant for a file in memory. */
hash128 identity_stamp(const gguf *file);
/* Whether a file that changes at now_ns would get a time of change other than changed_ns. */
bool identity_is_settled(int64_t changed_ns, int64_t now_ns);

#endif
