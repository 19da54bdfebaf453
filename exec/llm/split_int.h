/*
 * split_int.h - the parts of a text: chunks of tokens (split_chunks.c).
 */
#ifndef KVASIR_SPLIT_INT_H
#define KVASIR_SPLIT_INT_H

#include "gpu/llm.h"
#include "sql/sql.h"

/* Divides a text into chunks of at most spec->tokens tokens, counted word by word. A chunk ends with
 * the last sentence that ends in its second half, else with a word; it begins with the last words of
 * the one before, at most spec->overlap tokens. Words longer than 32 bytes are divided. Sets *out, in
 * `mem`, to the chunks, which point into the text. ERR_CANCELLED. */
int split_chunks(const llm_engine *engine, const split_spec *spec, str text, arena *mem, str **out,
                 uint32_t *n, const atomic_bool *cancel, err *e);

#endif
