/*
 * lmdb_int.h - LMDB as tables/ and cache/ both use it: error texts, environments, map sizes.
 */
#ifndef KVASIR_LMDB_INT_H
#define KVASIR_LMDB_INT_H

#include <lmdb.h>
#include <sys/types.h>

#include "storage/base.h"

/* Maximum number of readers of one environment, over all processes, and the size of a lock file
 * with room for them. */
enum { READERS_MAX = 510, LOCK_FILE_BYTES = 36 << 10 };

/* Sets *e to the meaning of an LMDB status or errno value, and returns its code; 0 for success.
 * `what` begins the message: "cannot write the table". */
int lmdb_error(err *e, int rc, const char *what);

/* Like mdb_env_create, but prints a message before LMDB aborts the process because of a damaged
 * file. */
int lmdb_env_create(MDB_env **out);

/* Changes the map's size of an environment without transactions; 0: large enough for what other
 * processes have written. Returns an LMDB status or errno value. On failure the old map stays:
 * mdb_env_set_mapsize alone would leave the environment without a map, and the next transaction
 * would crash. */
int lmdb_map_resize(MDB_env *env, size_t bytes);

/* Allocates the disk blocks of `file`'s lock file before LMDB maps it. LMDB creates it sparse, so
 * on a full disk the first access to the map would raise SIGBUS. The size of an existing lock file
 * stays: other processes have mapped it. Returns an errno value, 0 for success. */
int lmdb_lock_file_reserve(const char *file, mode_t mode);

#endif
