/*
 * tokenizer_int.h - text to token ids and back: byte-level BPE with its pre-tokenizers,
 * SentencePiece, and BERT's WordPiece.
 *
 * Immutable after tokenizer_new and thread-safe; does not refer to the GGUF file afterwards. Every
 * byte string has a tokenization, valid UTF-8 or not, and decodes to itself with two exceptions: a
 * byte for which a BPE vocabulary has no token becomes U+FFFD, and U+2581, SentencePiece's mark for
 * a space, becomes a space. WordPiece normalises the text, so its tokens decode to similar text.
 */
#ifndef KVASIR_TOKENIZER_INT_H
#define KVASIR_TOKENIZER_INT_H

#include "gpu/llm.h"
#include "model/gguf_int.h"

typedef struct tokenizer tokenizer;

/* Loads a tokenizer from a file. ERR_UNSUPPORTED: the message names the tokenizer or pre-tokenizer;
 * ERR_CORRUPT: the vocabulary is damaged. */
int tokenizer_new(const gguf *g, tokenizer **out, err *e);
void tokenizer_free(tokenizer *t);

/* Appends the ids of `text` to *out, a heap array of *count ids with room for *cap. parse_special:
 * the names of control tokens in the text become their ids; otherwise they are plain text.
 * segment_start: the text gets SentencePiece's space prefix. BOS is not added. */
void tokenizer_encode(const tokenizer *t, str text, bool parse_special, bool segment_start,
                      llm_token **out, size_t *count, size_t *cap);
/* Appends the text of one token. A control token is left out unless `special`. */
void tokenizer_decode(const tokenizer *t, llm_token id, bool special, buf *out);

int tokenizer_size(const tokenizer *t);
llm_token tokenizer_bos(const tokenizer *t); /* [CLS] in WordPiece; -1: none */
llm_token tokenizer_eos(const tokenizer *t); /* [SEP] in WordPiece; -1: none */
bool tokenizer_adds_bos(const tokenizer *t);
/* Whether a text to embed ends with EOS; `otherwise`: what to assume if the file does not say. */
bool tokenizer_adds_eos(const tokenizer *t, bool otherwise);
bool tokenizer_is_control(const tokenizer *t, llm_token id);
/* Whether text after this token, or at a prompt's start (id < 0), is encoded with segment_start. */
bool tokenizer_starts_after(const tokenizer *t, llm_token id);
/* Whether the token ends an answer. */
bool tokenizer_is_end(const tokenizer *t, llm_token id);

/* Returns the chat template of the file's family, which marker strings in the file's Jinja program
 * identify. If the family is unknown, returns NULL and sets *family to "none". */
const llm_template *template_for_chat(const gguf *g, const char **family);
const llm_template *template_completion(void);

#endif
