/*
 * ref_int.h - the reference forward pass: plain f32, one thread, no cache; what fast kernels are
 * compared with.
 *
 * Reads weights from the mapped file as it goes (a row is dequantised once per pass), so it needs
 * no memory but the activations of the tokens given. The gguf must outlive it. Thread-safe: a pass
 * touches only its own memory.
 */
#ifndef KVASIR_REF_INT_H
#define KVASIR_REF_INT_H

#include "gpu/llm.h"
#include "model/config_int.h"

typedef struct ref ref;

/* Fails as config_read does. */
int ref_open(const gguf *g, ref **out, err *e);
void ref_close(ref *r); /* NULL is fine */
const model_config *ref_config(const ref *r);

/* Streaming attention in passes to come: queries see the first `sinks` keys, as from position
 * min(p, sinks + window), and the latest `window`. window 0: all keys. Not while a pass runs. */
void ref_set_streaming(ref *r, int sinks, int window);

/* One pass over tokens[0..n) at positions 0 … n-1. Writes the logits of positions first … n-1:
 * logits[n - first][vocab], row-major. ERR_LIMIT: a token outside the vocabulary. */
int ref_forward(const ref *r, const llm_token *tokens, int n, int first, float *logits, err *e);

#endif
