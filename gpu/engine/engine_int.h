/*
 * engine_int.h - the engine's and the spans' insides, shared by the files of this folder.
 *
 * The engine is immutable once open. Strings of `info` live in `mem`.
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
    void *state; /* the backend's */
    arena *mem;
    gguf *file;              /* NULL without weights */
    file_identity *identity; /* NULL without weights; found by the backend */
    tokenizer *tokenizer;    /* NULL without weights */
    model_config config;
    const llm_template *chat; /* NULL: the family is unknown */
    llm_token bos, eos, newline;
    bool adds_bos;
    atomic_bool outdated;
};

/* tokens and text lie behind the struct in one allocation, of the heap's or an arena's; `refs` is
 * atomic. */
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
/* Text behind `last` (-1: nothing yet) takes SentencePiece's space prefix. */
bool engine_starts_after(const llm_engine *engine, llm_token last);
/* `span` as it stands behind `last`: itself, retained, or its text with the prefix. */
llm_span *engine_span_behind(const llm_engine *engine, llm_span *span, llm_token last);

/* ---- engine_file.c: for backends that run a file */
/* Opens the file; fills config, tokenizer and what they say of tokens and templates. */
int engine_file_open(llm_engine *engine, const char *path, err *e);
/* The facts in engine->info that the file alone
 * decides; without a file (benches) what config says. */
void engine_file_facts(llm_engine *engine);
/* Finds engine->identity, with the backend's threads. */
int engine_file_identify(llm_engine *engine, const char *cache_dir, pool *threads, err *e);
/* After the weights were read, and after each pass: ERR_MODEL, and the engine is outdated, where the
 * file is not what it was. loaded: NULL, or the files' stamp before they were read. */
int engine_file_check(llm_engine *engine, const hash128 *loaded, pool *threads, err *e);
uint64_t engine_parameters(const gguf *file);
/* Prompts as a chat's turns, where nothing else was asked for: the same on every device. */
bool engine_prefers_chat(const llm_engine *engine);
/* llm_backend's encode and decode, by the file's tokenizer. */
void engine_file_encode(const llm_engine *engine, str text, bool parse_special, bool segment_start,
                        llm_token **out, size_t *count, size_t *cap);
void engine_file_decode(const llm_engine *engine, llm_token token, bool special, buf *out);

#endif
