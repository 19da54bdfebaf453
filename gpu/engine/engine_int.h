/*
 * engine_int.h - struct llm_engine and struct llm_span, and what backends that run a file share.
 *
 * An open engine is immutable, but for `outdated` and what the backend loads into its `state`.
 * Strings of `info` live in `mem`.
 */
#ifndef KVASIR_ENGINE_INT_H
#define KVASIR_ENGINE_INT_H

#include "backend_int.h"
#include "model/config_int.h"
#include "model/gguf_int.h"
#include "model/identity_int.h"
#include "text/tokenizer_int.h"

struct llm_engine {
    llm_model_info info;
    const llm_backend *backend;
    void *state; /* the backend's data */
    arena *mem;
    gguf *file;              /* NULL without weights */
    file_identity *identity; /* NULL without weights; set by the backend */
    tokenizer *tokenizer;    /* NULL without weights */
    model_config config;
    const llm_template *chat; /* NULL: the family is unknown */
    llm_token bos, eos, newline;
    bool adds_bos;
    atomic_bool outdated;
};

/* Followed by its tokens and text, in one allocation on the heap or in an arena. */
struct llm_span {
    atomic_int refs;
    llm_span_kind kind;
    size_t count;
    const llm_token *tokens;
    str text;
};

/* Appends the tokens of `text` as one segment. */
void engine_encode(const llm_engine *engine, str text, bool special, bool start, llm_token **out,
                   size_t *count, size_t *cap);
bool engine_is_end(const llm_engine *engine, llm_token id);
/* Whether text after the token `last` (-1: at the start) gets SentencePiece's space prefix. */
bool engine_starts_after(const llm_engine *engine, llm_token last);
/* Returns the span to use after the token `last`: `span` itself, retained, or a new span of the
 * same text with the space prefix. */
llm_span *engine_span_after(const llm_engine *engine, llm_span *span, llm_token last);

/* ---- engine_file.c: for backends that run a file */
/* Opens the file; sets file, config, tokenizer, special tokens and the chat template. */
int engine_file_open(llm_engine *engine, const char *path, err *e);
/* Fills the members of engine->info that depend only on the file, or without a file on config. */
void engine_file_facts(llm_engine *engine);
/* Sets engine->identity and info.weights, hashing with `threads`. */
int engine_file_identify(llm_engine *engine, const char *cache_dir, pool *threads, err *e);
/* Checks, after the weights were read and after each pass, that the file has not changed. If it
 * has: ERR_MODEL, and the engine is outdated. loaded: the files' stamp from before the weights were
 * read, or NULL after a pass. */
int engine_file_check(llm_engine *engine, const hash128 *loaded, pool *threads, err *e);
uint64_t engine_parameters(const gguf *file);
/* Whether LLM_FORMAT_AUTO means chat for this model. */
bool engine_prefers_chat(const llm_engine *engine);
/* llm_backend.encode and decode with the file's tokenizer. */
void engine_file_encode(const llm_engine *engine, str text, bool parse_special, bool segment_start,
                        llm_token **out, size_t *count, size_t *cap);
void engine_file_decode(const llm_engine *engine, llm_token token, bool special, buf *out);

#endif
