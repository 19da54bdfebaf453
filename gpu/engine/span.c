/*
 * span.c - spans (reference-counted tokens of a piece of text), and tokenization of whole texts.
 *
 * Invariant: a span is immutable, so threads may share it. The backend's encode does the
 * tokenization; the session, which knows a span's place in the prompt, adds BOS and SentencePiece's
 * space prefix.
 */
#include <stdlib.h>
#include <string.h>

#include "engine_int.h"

void engine_encode(const llm_engine *engine, str text, bool special, bool start, llm_token **out,
                   size_t *count, size_t *cap) {
    engine->backend->encode(engine, text, special, start, out, count, cap);
}

bool engine_is_end(const llm_engine *engine, llm_token id) {
    return engine->tokenizer != NULL && tokenizer_is_end(engine->tokenizer, id);
}

bool engine_starts_after(const llm_engine *engine, llm_token last) {
    return engine->tokenizer != NULL && tokenizer_starts_after(engine->tokenizer, last);
}

/* Makes a span with room for its tokens and text, in `mem`, or on the heap if `mem` is NULL. The first
 * reference to a span in an arena is not released, so its count does not reach 0 and the span is not
 * freed. */
static llm_span *span_alloc(llm_span_kind kind, size_t count, size_t text_bytes, arena *mem) {
    size_t token_bytes = count * sizeof(llm_token);
    size_t bytes = sizeof(llm_span) + token_bytes + text_bytes + 1;
    llm_span *span = mem ? arena_alloc(mem, bytes) : mem_alloc(bytes);
    atomic_init(&span->refs, 1);
    span->kind = kind;
    span->count = count;
    span->nchunks = 0;
    span->chunk_ends = NULL;
    char *text = (char *)(span + 1) + token_bytes;
    text[text_bytes] = '\0';
    span->tokens = (llm_token *)(span + 1);
    span->text = (str){text, text_bytes};
    return span;
}

/* Copies tokens and text to places in a new span. */
static void span_fill(llm_span *span, size_t token_at, const llm_token *tokens, size_t count,
                      size_t text_at, str text) {
    llm_token *own_tokens = (llm_token *)(span + 1);
    if (count > 0)
        memcpy(own_tokens + token_at, tokens, count * sizeof *tokens);
    if (text.n > 0)
        memcpy((char *)(own_tokens + span->count) + text_at, text.p, text.n);
}

static llm_span *span_make(const llm_engine *engine, llm_span_kind kind, str text, bool start,
                           arena *mem) {
    llm_token *tokens = NULL;
    size_t count = 0, cap = 0;
    engine_encode(engine, text, kind == LLM_SPAN_TEMPLATE, start, &tokens, &count, &cap);
    llm_span *span = span_alloc(kind, count, text.n, mem);
    span_fill(span, 0, tokens, count, 0, text);
    free(tokens);
    return span;
}

llm_span *llm_span_join(llm_span_kind kind, llm_span *const *parts, int n, arena *mem) {
    size_t count = 0, bytes = 0;
    for (int i = 0; i < n; i++) {
        count += parts[i]->count;
        bytes += parts[i]->text.n;
    }
    llm_span *span = span_alloc(kind, count, bytes, mem);
    int *ends = ARENA_ARRAY(mem, int, n);
    span->chunk_ends = ends;
    count = bytes = 0;
    for (int i = 0; i < n; i++) {
        span_fill(span, count, parts[i]->tokens, parts[i]->count, bytes, parts[i]->text);
        count += parts[i]->count;
        bytes += parts[i]->text.n;
        if (parts[i]->kind == kind)
            ends[span->nchunks++] = (int)count;
    }
    return span;
}

/* Tokenizes as in the middle of a text; engine_span_after adds the space prefix if one is
 * needed. */
llm_span *llm_span_new(const llm_engine *engine, llm_span_kind kind, str text) {
    return span_make(engine, kind, text, false, NULL);
}

llm_span *llm_span_new_in(const llm_engine *engine, llm_span_kind kind, str text, arena *mem) {
    return span_make(engine, kind, text, false, mem);
}

llm_span *engine_span_after(const llm_engine *engine, llm_span *span, llm_token last) {
    return span->text.n > 0 && engine_starts_after(engine, last)
               ? span_make(engine, span->kind, span->text, true, NULL)
               : llm_span_retain(span);
}

llm_span *llm_span_retain(llm_span *span) {
    atomic_fetch_add_explicit(&span->refs, 1, memory_order_relaxed);
    return span;
}

void llm_span_release(llm_span *span) {
    if (span != NULL && atomic_fetch_sub_explicit(&span->refs, 1, memory_order_acq_rel) == 1)
        free(span);
}

const llm_token *llm_span_tokens(const llm_span *span, size_t *count) {
    *count = span->count;
    return span->tokens;
}

llm_token *llm_tokenize(const llm_engine *engine, str text, bool add_bos, bool parse_special,
                        size_t *count) {
    llm_token *tokens = mem_alloc(sizeof(llm_token) * 16);
    size_t cap = 16;
    *count = 0;
    if (add_bos && engine->adds_bos && engine->bos >= 0)
        tokens[(*count)++] = engine->bos;
    engine_encode(engine, text, parse_special, true, &tokens, count, &cap);
    return tokens;
}

void llm_detokenize(const llm_engine *engine, const llm_token *tokens, size_t count, bool special,
                    buf *out) {
    for (size_t i = 0; i < count; i++)
        engine->backend->decode(engine, tokens[i], special, out);
}
