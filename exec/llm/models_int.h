/*
 * models_int.h - the engines that a database has open, and the cache entries of a model file. All
 * functions are called on the worker's thread.
 */
#ifndef KVASIR_MODELS_INT_H
#define KVASIR_MODELS_INT_H

#include "exec/exec.h"

/* Takes a hold of the engine of the model `name`, and opens it if it is not open with these
 * settings. An empty name means the model of SET model or, if that is not set, the default model;
 * `embeds`: of SET embed_model, or the default embedding model. The db owns the engine and keeps it open until each hold is ended by engine_release. ERR_MODEL:
 * there is no such model; the hint says how to get one. `c`: the catalog, for names that CREATE
 * MODEL defined; may be NULL. */
int engine_acquire(db *d, const settings *s, const catalog *c, str name, bool embeds,
                   const atomic_bool *cancel, llm_engine **out, err *e);
/* Ends a hold: the db may close the engine. NULL is fine. */
void engine_release(db *d, llm_engine *engine);
/* Returns the number of open engines, held or not (for tests). */
int models_open(db *d);
/* Closes all engines; none may be held. */
void models_close(db *d);
/* Checks the file of CREATE MODEL, or its URLs and options: ERR_MODEL if a file cannot be read. */
int models_check_source(const model_def *def, err *e);
/* Appends the path of the model that calls use if they name none. ERR_MODEL: there is no such
 * model. */
int model_default_path(db *d, const settings *s, const catalog *c, buf *path, err *e);

/* Deletes the cache entries of a model file (model_files.c). */
int model_files_clear(cache *c, str source, clear_what what, err *e);

/* ---- endpoints.c */
/* Checks that the user allowed every endpoint of a model. Fails with ERR_MODEL if one is not
 * allowed; db_refused_endpoints then lists the endpoints that are not. */
int endpoints_allowed(db *d, str source, str options, err *e);
/* The user typed this CREATE MODEL: its endpoints are allowed from now on. */
void endpoints_typed(db *d, const model_def *def);

#endif
