/*
 * llm_kv.c - passes KV blocks between a session and the cache.
 *
 * Invariant: a block is stored and looked up under its whole identity: fingerprint, parent, key and
 * tokens. So the cache cannot return a wrong block.
 */
#include <stdlib.h>

#include "llm_int.h"
#include "storage/containers.h"

static str kv_identity(const llm_kv_id *id) {
    /* fingerprint, parent, key and tokens are the first members, without gaps */
    return (str){(const char *)id, offsetof(llm_kv_id, depth)};
}

static void trace_block(const kv_link *l, const llm_kv_id *id, size_t bytes) {
    if (l->trace)
        fprintf(l->trace, "%016llx%016llx %016llx%016llx %.3f %zu\n",
                (unsigned long long)id->key.high, (unsigned long long)id->key.low,
                (unsigned long long)id->parent.high, (unsigned long long)id->parent.low,
                l->block_ms, bytes);
}

/* Called on several threads, since the engine's threads read blocks. */
static void note_block(const kv_link *l, hash128 key) {
    kv_notes *notes = l->notes;
    if (!notes)
        return;
    pthread_mutex_lock(&notes->mutex);
    ARRAY_PUSH(notes->keys, notes->count, notes->cap, key);
    pthread_mutex_unlock(&notes->mutex);
}

static bool kv_get(void *ctx, const llm_kv_id *id, void *kv, size_t bytes) {
    kv_link *l = ctx;
    bool found = cache_get(l->cache, CACHE_KV, id->key, kv_identity(id), kv, bytes, NULL);
    if (found) {
        trace_block(l, id, bytes);
        note_block(l, id->key);
    }
    return found;
}

static void kv_put(void *ctx, const llm_kv_id *id, const void *kv, size_t bytes) {
    kv_link *l = ctx;
    trace_block(l, id, bytes);
    note_block(l, id->key);
    cache_put(l->cache, CACHE_KV, id->key, kv_identity(id), id->parent, l->block_ms,
              (str){kv, bytes});
}

static bool kv_prefetch(void *ctx, const llm_kv_id *id) {
    return cache_prefetch(((const kv_link *)ctx)->cache, CACHE_KV, id->key);
}

void kv_link_open(kv_link *l, cache *c, const llm_engine *engine, bool keep_all, kv_notes *notes,
                  llm_kv_store *out) {
    double rate = llm_engine_info(engine)->prefill_tok_s;
    const char *trace = getenv("KVASIR_KV_TRACE");
    *l = (kv_link){.cache = c,
                   .block_ms = 1e3 * LLM_BLOCK_TOKENS / (rate > 0 ? rate : NOMINAL_TOK_S),
                   .trace = trace && *trace ? fopen(trace, "ae") : NULL,
                   .notes = notes};
    *out = (llm_kv_store){
        .ctx = l, .get = kv_get, .put = kv_put, .prefetch = kv_prefetch, .keep_all = keep_all};
}

void kv_link_close(kv_link *l) {
    if (l->trace)
        fclose(l->trace);
    *l = (kv_link){.cache = NULL};
}
