/*
 * models_int.h - the engines that a database has open, and the cache entries of a model's file. All
 * of it is for the worker's thread.
 */
#ifndef KVASIR_MODELS_INT_H
#define KVASIR_MODELS_INT_H

#include "exec/exec.h"

/* Opens, unless it is open with these options, the engine that `name` (n = 0: the setting, else the
 * default model) stands for. ERR_MODEL says how to get a model when there is none. The engine is
 * owned by the db, and open until engine_release: each call is a hold of its own. `c`: the catalog
 * to look CREATE MODEL names up in; may be NULL. */
int engine_acquire(db *d, const settings *s, const catalog *c, str name, const atomic_bool *cancel,
                   llm_engine **out, err *e);
/* Ends a hold; the db may close the engine from now on. NULL is fine. */
void engine_release(db *d, llm_engine *engine);
/* How many engines are open, held or not: for tests. */
int models_open(db *d);
/* Closes all; nobody may hold one. */
void models_close(db *d);
/* Whether CREATE MODEL may name this file: ERR_MODEL where it cannot be read. */
int models_check_file(str source, err *e);
/* Appends the file that calls use which name no model; ERR_MODEL: there is none. */
int model_default_path(db *d, const settings *s, const catalog *c, buf *path, err *e);

/* Deletes the entries that a model's file made (model_files.c). */
int model_files_clear(cache *c, str source, clear_what what, err *e);

#endif
