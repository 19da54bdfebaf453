/*
 * tokenizer_int.h - text to token ids and back: byte-level BPE with its pre-tokenizers, and
 * SentencePiece.
 *
 * Immutable after tokenizer_new and thread-safe (PCRE2 match data and work memory belong to the
 * call). Copies what it needs from the GGUF. Invalid UTF-8 is tokenized by bytes, never refused:
 * every byte string has a tokenization and detokenizes to itself, with two exceptions: a byte for
 * which a BPE vocabulary has no token becomes U+FFFD, and U+2581, by which SentencePiece writes a
 * space, comes back as one.
 */
#ifndef KVASIR_TOKENIZER_INT_H
#define KVASIR_TOKENIZER_INT_H

#include "gpu/llm.h"
#include "model/gguf_int.h"

typedef struct tokenizer tokenizer;

/* ERR_UNSUPPORTED names the tokenizer model or pre-tokenizer; ERR_CORRUPT a broken vocabulary. */
int tokenizer_new(const gguf *g, tokenizer **out, err *e);
void tokenizer_free(tokenizer *t);

/* Appends the ids of `text` to *out (malloc'ed, grown as needed; *count entries,
 * *cap room). With parse_special, control tokens written in the text become
 * their ids; otherwise they are plain text. `segment_start`: this text starts a
 * prompt (SentencePiece's space prefix applies). BOS is never added here. */
void tokenizer_encode(const tokenizer *t, str text, bool parse_special, bool segment_start,
                      llm_token **out, size_t *count, size_t *cap);
/* Appends the bytes of one token; control tokens print only when `special`. */
void tokenizer_decode(const tokenizer *t, llm_token id, bool special, buf *out);

int tokenizer_size(const tokenizer *t);
llm_token tokenizer_bos(const tokenizer *t); /* -1: none */
llm_token tokenizer_eos(const tokenizer *t); /* -1: none */
bool tokenizer_adds_bos(const tokenizer *t);
bool tokenizer_is_control(const tokenizer *t, llm_token id);
/* Text behind this token, or at a prompt's start (id < 0), is encoded with segment_start. */
bool tokenizer_starts_after(const tokenizer *t, llm_token id);
bool tokenizer_is_end(const tokenizer *t,
                      llm_token id); /* any end-of-generation token, by the file's ids and types */

/* The chat family by marker strings in the file's template
 * (ENGINE 5); "none" when unknown. `table` row or NULL. */
const llm_template *template_for_chat(const gguf *g, const char **family);
const llm_template *template_completion(void);

#endif
