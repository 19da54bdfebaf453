/*
 * reference.h - the reference forward pass that the backends are compared with: plain f32, one
 * thread, no cache.
 *
 * Weights are read from the mapped file during a pass, each row dequantised once, so only the
 * activations take memory. The gguf must outlive the reference. Passes may run concurrently: each
 * has its own memory.
 */
#ifndef KVASIR_REFERENCE_H
#define KVASIR_REFERENCE_H

#include "gpu/llm.h"
#include "model/config_int.h"

typedef struct reference reference;

/* Fails as config_read does. */
int reference_open(const gguf *g, reference **out, err *e);
void reference_close(reference *r); /* `r` may be NULL */
const model_config *reference_config(const reference *r);

/* Sets streaming attention for later passes: a query at position p attends to the first `sinks`
 * keys, rotated as if it were at min(p, sinks + window), and to the latest `window` keys. window 0
 * turns it off. Not while a pass runs. */
void reference_set_streaming(reference *r, int sinks, int window);

/* Runs tokens[0..n) at positions 0 … n-1 and writes the logits of positions first … n-1 to
 * logits[n - first][vocab], row-major. ERR_LIMIT if a token is outside the vocabulary. */
int reference_forward(const reference *r, const llm_token *tokens, int n, int first, float *logits,
                      err *e);

/* The vector [n_embd] of a text's tokens, of length 1, by an embedding model. ERR_LIMIT as above. */
int reference_embed(const reference *r, const llm_token *tokens, int n, float *vector, err *e);

#endif
