/*
 * llm_sessions.c - the sessions of a statement whose calls are answered by several engines.
 *
 * A session serves one engine and holds the KV of its prompts. If all sessions exist at once, a
 * cascade of two models can go from one to the other, chunk by chunk, and each finds its prefixes
 * again. That needs memory for the prompts of all of them.
 */
#include <string.h>

#include "llm_int.h"

static bool same_device(const llm_engine *a, const llm_engine *b) {
    return strcmp(llm_engine_info(a)->device, llm_engine_info(b)->device) == 0;
}

/* What the distinct engines of a statement on one device need. */
typedef struct device_needs {
    int engines;
    size_t token_bytes; /* sum over the engines of the KV of a token */
    size_t context;     /* the largest context, in tokens */
} device_needs;

static device_needs needs_of_device(const llm_runtime *r, const llm_engine *like) {
    device_needs n = {0};
    for (int i = 0; i < r->nengines; i++) {
        const llm_engine *engine = r->engines[i];
        /* an embedding model keeps no KV */
        bool counted = !engine || !llm_engine_info(engine)->generates || !same_device(engine, like);
        for (int k = 0; k < i && !counted; k++)
            counted = r->engines[k] == engine;
        if (counted)
            continue;
        const llm_model_info *info = llm_engine_info(engine);
        n.engines++;
        n.token_bytes += info->kv_bytes_per_token;
        n.context = BASE_MAX(n.context, (size_t)info->context);
    }
    return n;
}

static size_t device_kv_bytes(const llm_runtime *r, const llm_engine *engine) {
    int64_t set = r->ctx->settings->kv_memory;
    return set > 0 ? (size_t)set : llm_engine_info(engine)->kv_memory_bytes;
}

bool sessions_are_kept(const llm_runtime *r) {
    for (int i = 0; i < r->nengines; i++) {
        if (!r->engines[i])
            continue;
        device_needs n = needs_of_device(r, r->engines[i]);
        if (n.engines > 1 && device_kv_bytes(r, r->engines[i]) / n.context < n.token_bytes)
            return false;
    }
    return true;
}

size_t sessions_kv_bytes(const llm_runtime *r, const llm_engine *engine) {
    device_needs n = needs_of_device(r, engine);
    size_t all = device_kv_bytes(r, engine);
    if (n.engines < 2 || !sessions_are_kept(r))
        return all;
    double share = (double)llm_engine_info(engine)->kv_bytes_per_token / (double)n.token_bytes;
    return (size_t)((double)all * share);
}

/* Adds the session's figures to *figures unless that is NULL. */
static void close_session(engine_session *x, llm_figures *figures) {
    llm_figures last;
    if (x->session && figures) {
        llm_session_figures(x->session, &last);
        llm_figures_add(figures, &last);
    }
    llm_session_free(x->session);
    x->session = NULL;
    kv_link_close(&x->kv);
}

void sessions_close(session_set *set) {
    for (engine_session *x = set->first; x; x = x->next)
        close_session(x, NULL);
}

engine_session *sessions_entry(session_set *set, llm_runtime *r, llm_engine *engine, arena *mem) {
    engine_session *x = set->first;
    while (x && x->engine != engine)
        x = x->next;
    if (!x) {
        x = ARENA_NEW(mem, engine_session);
        *x = (engine_session){.engine = engine, .next = set->first};
        set->first = x;
    }
    for (engine_session *other = set->first; other; other = other->next)
        if (other != x && other->session && !sessions_are_kept(r))
            close_session(other, set == &r->sessions ? &r->figures : NULL);
    set->current = x;
    return x;
}
