/*
 * identity_int.h - which file the weights are of: a hash of all its bytes, and whether it is that
 * file still (identity.c).
 */
#ifndef KVASIR_IDENTITY_INT_H
#define KVASIR_IDENTITY_INT_H

#include <pthread.h>

#include "gguf_int.h"
#include "pool_int.h"

/* Lives in the arena that identity_find was given; `hash` never changes. */
typedef struct file_identity {
    const gguf *file;
    const char *path, *cache_dir; /* cache_dir NULL: no record is kept */
    hash128 hash;
    pthread_mutex_t lock; /* what follows */
    hash128 stamp;        /* of the files when their hash was known to be `hash` */
    int64_t seen_ns;      /* since when the stamp is this one, by a clock that no one sets */
    bool settled;         /* a change from now on makes another stamp */
    bool read;            /* this process has read the bytes; else the hash is a record's */
    bool lost;            /* they were found to be others */
} file_identity;

/* Finds the hash of all bytes of all of a model's files, in a record that was made of files of the
 * same stamp, or by reading them (threads: NULL for this one alone). path, cache_dir: as the
 * engine's options have them (path NULL: it has none). ERR_IO: a file cannot be read; ERR_MODEL:
 * something writes to it; ERR_CANCELLED (pool_let_cancel). */
int identity_find(const gguf *file, const char *path, const char *cache_dir, pool *threads,
                  arena *mem, file_identity **out, err *e);
/* Whether the mapped bytes are those of the hash, by the files' stamp, or by reading where that is
 * another. read: a record's word alone is not taken for it. Any thread. Where `threads` were
 * cancelled it means nothing. */
bool identity_holds(file_identity *id, pool *threads, bool read);
/* Whether `path` leads to the files that were opened: the same ones, unchanged; or to none at all,
 * since files that are gone have not been replaced. */
bool identity_leads_here(file_identity *id, const char *path);
/* The files' stamp as it is now; the same for ever for a file in memory. */
hash128 identity_stamp(const gguf *file);
/* Whether a change to a file of this time of change would give it another one, at this time. */
bool identity_is_settled(int64_t changed_ns, int64_t now_ns);

#endif
