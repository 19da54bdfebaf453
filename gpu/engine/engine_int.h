/*
 * engine_int.h - struct llm_engine and struct llm_span, and the functions that all backends with a
 * model file share.
 *
 * An open engine is immutable, except for `outdated` and what the backend loads into `state`. The
 * strings of `info` are in `mem`.
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
    gguf *file;              /* NULL: the model has no weights (test:hash) */
    file_identity *identity; /* set by the backend; NULL: the model has no weights */
    tokenizer *tokenizer;    /* NULL: the model has no weights */
    model_config config;
    const llm_template *chat; /* the chat template; NULL: the model's chat family is unknown */
    llm_token bos, eos;
    llm_token newline;    /* the token that ends an answer in completion format; -1: none */
    bool adds_bos;        /* prompts begin with BOS */
    bool adds_eos;        /* texts of an embedding model end with EOS */
    atomic_bool outdated; /* llm_engine_outdated */
};

/* A span. Its tokens and text follow the struct in the same allocation, on the heap or in an
 * arena. */
struct llm_span {
    atomic_int refs;
    llm_span_kind kind;
    size_t count;
    const llm_token *tokens;
    str text;
    int nchunks;
    const int
        *chunk_ends; /* [nchunks] number of tokens up to the end of each chunk; llm_span_join */
};

/* Appends the tokens of `text` to *out, as tokenizer_encode does. special: names of control tokens
 * in the text become these tokens. start: the text gets SentencePiece's space prefix. */
void engine_encode(const llm_engine *engine, str text, bool special, bool start, llm_token **out,
                   size_t *count, size_t *cap);
/* Whether the token ends an answer of free text. */
bool engine_is_end(const llm_engine *engine, llm_token id);
/* Whether text after the token `last` (-1: at the start) gets SentencePiece's space prefix. */
bool engine_starts_after(const llm_engine *engine, llm_token last);
/* Returns the span to use after the token `last`: `span` itself, retained, or a new span of the
 * same text with the space prefix. */
llm_span *engine_span_after(const llm_engine *engine, llm_span *span, llm_token last);

/* ---- engine_file.c: for backends that run a file */
/* Opens the file; sets file, config, tokenizer, special tokens and the chat template. */
int engine_file_open(llm_engine *engine, const char *path, err *e);
/* Fills the members of engine->info that depend only on the file; if there is no file, those that
 * depend only on engine->config. */
void engine_file_facts(llm_engine *engine);
/* Sets engine->identity and info.weights, hashing with `threads`. */
int engine_file_identify(llm_engine *engine, const char *cache_dir, pool *threads, err *e);
/* Checks, after the weights were read and after each pass, that the file has not changed. If it
 * has: ERR_MODEL, and the engine is outdated. `loaded` is the stamp that the files had before the
 * weights were read; after a pass, it is NULL. */
int engine_file_check(llm_engine *engine, const hash128 *loaded, pool *threads, err *e);
uint64_t engine_parameters(const gguf *file);
/* Whether LLM_FORMAT_AUTO means chat for this model. */
bool engine_prefers_chat(const llm_engine *engine);
/* llm_backend.encode and decode with the file's tokenizer. */
void engine_file_encode(const llm_engine *engine, str text, bool parse_special, bool segment_start,
                        llm_token **out, size_t *count, size_t *cap);
void engine_file_decode(const llm_engine *engine, llm_token token, bool special, buf *out);

#endif
