/*
 * lmdb_int.h - LMDB as tables/ and cache/ both use it: error texts, environments, map sizes.
 */
#ifndef KVASIR_LMDB_INT_H
#define KVASIR_LMDB_INT_H

#include <lmdb.h>
#include <sys/types.h>

#include "storage/base.h"

enum {
    READERS_MAX = 510,         /* maximum readers of one environment, over all processes */
    LOCK_FILE_BYTES = 36 << 10 /* size of a lock file with room for READERS_MAX readers */
};

/* Sets *e to the meaning of an LMDB status or errno value, and returns its err_code; 0 for success.
 * `what` begins the message: "cannot write the table". */
int lmdb_error(err *e, int rc, const char *what);

/* Like mdb_env_create, but prints a message before LMDB aborts the process because of a damaged
 * file. */
int lmdb_env_create(MDB_env **out);

/* Sets the size of the map of an environment that has no open transactions. bytes = 0: the present
 * size, doubled until it holds what other processes have written. Returns an LMDB status or errno
 * value. On failure the old map stays: mdb_env_set_mapsize alone would leave the environment
 * without a map, and the next transaction would crash. */
int lmdb_map_resize(MDB_env *env, size_t bytes);

/* Allocates the disk blocks of the lock file of the database `file` before LMDB maps it. LMDB
 * creates a sparse lock file, so on a full disk the first access to its map would raise SIGBUS. The
 * size of an existing lock file stays: other processes have mapped it. Returns an errno value, 0
 * for success. */
int lmdb_lock_file_reserve(const char *file, mode_t mode);

#endif
