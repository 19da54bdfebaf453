/*
 * reference.h - the reference forward pass: plain f32, one thread, no cache; what the backends are
 * compared with.
 *
 * Reads weights from the mapped file as it goes (a row is dequantised once per pass), so it needs
 * no memory but the activations of the tokens given. The gguf must outlive it. Thread-safe: a pass
 * touches only its own memory.
 */
#ifndef KVASIR_REFERENCE_H
#define KVASIR_REFERENCE_H

#include "gpu/llm.h"
#include "model/config_int.h"

typedef struct reference reference;

/* Fails as config_read does. */
int reference_open(const gguf *g, reference **out, err *e);
void reference_close(reference *r); /* NULL is fine */
const model_config *reference_config(const reference *r);

/* Streaming attention in passes to come: queries see the first `sinks` keys, as from position
 * min(p, sinks + window), and the latest `window`. window 0: all keys. Not while a pass runs. */
void reference_set_streaming(reference *r, int sinks, int window);

/* One pass over tokens[0..n) at positions 0 … n-1. Writes the logits of positions first … n-1:
 * logits[n - first][vocab], row-major. ERR_LIMIT: a token outside the vocabulary. */
int reference_forward(const reference *r, const llm_token *tokens, int n, int first, float *logits,
                      err *e);

#endif
