/*
 * gpu_ahead.h - KV that is elsewhere, on any backend: a request whose blocks are on their way
 * yields to one that is ready, blocks that do not fit the device go on in host memory, and answers
 * stay the same.
 *
 * The store in memory holds its blocks back until the test has seen an answer that needs none of
 * them.
 */
#ifndef KVASIR_GPU_AHEAD_H
#define KVASIR_GPU_AHEAD_H

#include "gpu_testing.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { AHEAD_SLOW = 2, AHEAD_PROMPTS = 8, AHEAD_STORED = 64 };

typedef struct ahead_store {
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    llm_kv_id ids[AHEAD_STORED];
    void *kv[AHEAD_STORED];
    int count;
    bool open, gave_up; /* blocks are handed out; nobody opened for half a minute */
} ahead_store;

static inline int ahead_find(const ahead_store *a, const llm_kv_id *id) {
    int i = 0;
    while (i < a->count && !hash128_equal(a->ids[i].key, id->key))
        i++;
    return i < a->count ? i : -1;
}

static inline bool ahead_get(void *ctx, const llm_kv_id *id, void *kv, size_t bytes) {
    ahead_store *a = ctx;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 30;
    pthread_mutex_lock(&a->mutex);
    int i = ahead_find(a, id);
    while (i >= 0 && !a->open && !a->gave_up)
        a->gave_up = pthread_cond_timedwait(&a->opened, &a->mutex, &until) == ETIMEDOUT;
    if (i >= 0)
        memcpy(kv, a->kv[i], bytes);
    pthread_mutex_unlock(&a->mutex);
    return i >= 0;
}

static inline bool ahead_prefetch(void *ctx, const llm_kv_id *id) {
    ahead_store *a = ctx;
    pthread_mutex_lock(&a->mutex);
    bool found = ahead_find(a, id) >= 0;
    pthread_mutex_unlock(&a->mutex);
    return found;
}

static inline void ahead_put(void *ctx, const llm_kv_id *id, const void *kv, size_t bytes) {
    ahead_store *a = ctx;
    pthread_mutex_lock(&a->mutex);
    if (a->count < AHEAD_STORED) {
        a->ids[a->count] = *id;
        a->kv[a->count] = mem_alloc(bytes);
        memcpy(a->kv[a->count++], kv, bytes);
    }
    pthread_mutex_unlock(&a->mutex);
}

/* Prompt i, different from its first token on, of several blocks. */
static inline void ahead_submit(llm_engine *engine, llm_session *s, int i) {
    static const char *const words[] = {"ab", "cd", "a", "b", "ba", "c", "d", "ef"};
    buf text = {0};
    for (int k = 0; k < 50; k++)
        buf_printf(&text, " %s", words[(k * (i + 3) + i) % 8]);
    buf_append_char(&text, '\n');
    llm_span *spans[] = {llm_span_new(engine, LLM_SPAN_TEMPLATE, str_from(words[i])),
                         llm_span_new(engine, LLM_SPAN_VALUE, buf_str(&text)),
                         llm_span_new(engine, LLM_SPAN_TEMPLATE, STR("ab:"))};
    llm_request q = {.tag = (uint64_t)i, .spans = spans, .nspans = 3, .max_tokens = 1};
    err e = {0};
    if (llm_submit(s, &q, &e) != 0)
        fail_msg("%s", e.message);
    for (int k = 0; k < 3; k++)
        llm_span_release(spans[k]);
    buf_free(&text);
}

typedef struct ahead_run {
    float top[AHEAD_PROMPTS][LLM_TOP_LOGITS];
    uint64_t order[AHEAD_PROMPTS];
    llm_figures figures;
    llm_memory memory;
} ahead_run;

/* The first `prompts` prompts; the store is opened by the first answer. */
static inline void ahead_do(llm_engine *engine, ahead_store *a, int prompts, size_t blocks,
                            ahead_run *out) {
    llm_session_options options = {.keep_logits = true, .pass_tokens = 64};
    options.kv_memory_bytes =
        blocks * LLM_BLOCK_TOKENS * llm_engine_info(engine)->kv_bytes_per_token;
    if (a)
        options.store = (llm_kv_store){a, ahead_get, ahead_put, ahead_prefetch, true};
    llm_session *s;
    err e = {0};
    if (llm_session_new(engine, &options, &s, &e) != 0)
        fail_msg("%s", e.message);
    for (int i = 0; i < prompts; i++)
        ahead_submit(engine, s, i);
    bool idle = false;
    for (int seen = 0; !idle;) {
        llm_event ev;
        int count;
        if (llm_step(s, &ev, 1, &count, &idle, &e) != 0)
            fail_msg("%s", e.message);
        if (count == 0)
            continue;
        out->order[seen++] = ev.tag;
        memcpy(out->top[ev.tag], ev.top_logits, sizeof out->top[0]);
        if (a) {
            pthread_mutex_lock(&a->mutex);
            a->open = true;
            pthread_cond_broadcast(&a->opened);
            pthread_mutex_unlock(&a->mutex);
        }
    }
    llm_session_figures(s, &out->figures);
    llm_session_free(s);
}

static inline void ahead_check(llm_engine *engine) {
    ahead_store a = {.mutex = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};
    ahead_run plain = {0}, slow = {0}, tight = {0};
    ahead_do(engine, NULL, AHEAD_PROMPTS, 200, &plain);
    ahead_do(engine, &a, AHEAD_SLOW, 200, &slow); /* fills the store: those are the slow ones */
    assert_true(a.count >= AHEAD_SLOW && a.count < AHEAD_STORED);
    int held = a.count;
    a.open = false;
    ahead_do(engine, &a, AHEAD_PROMPTS, 200, &slow);
    assert_false(a.gave_up); /* the first answer needed no block that was held back */
    assert_true(slow.order[0] >= AHEAD_SLOW && slow.figures.yielded > 0);
    assert_true(slow.figures.reused_disk >= (uint64_t)(held * LLM_BLOCK_TOKENS));
    assert_int_equal(slow.figures.computed_tokens + slow.figures.reused_disk +
                         slow.figures.reused_memory,
                     slow.figures.prompt_tokens);
    ahead_do(engine, &a, AHEAD_PROMPTS, 12, &tight); /* all is stored, and little memory */
    assert_true(tight.figures.reused_disk > slow.figures.reused_disk);
    assert_memory_equal(plain.top, slow.top, sizeof plain.top);
    assert_memory_equal(plain.top, tight.top, sizeof plain.top);
    for (int i = 0; i < a.count; i++)
        free(a.kv[i]);
}

/* ---- tiers ---------------------------------------------------------------------------------- */

enum { TIER_BLOCKS = 14 };

/* Every prompt twice, and all of them again when
 * they are answered; what the second time computed. */
static inline uint64_t tiers_do(llm_engine *engine, size_t host_blocks, ahead_run *out) {
    size_t block = LLM_BLOCK_TOKENS * llm_engine_info(engine)->kv_bytes_per_token;
    llm_session_options options = {.keep_logits = true, .pass_tokens = 64, .max_batch = 3};
    options.kv_memory_bytes = TIER_BLOCKS * block;
    options.kv_host_bytes = host_blocks > 0 ? host_blocks * block : 1;
    llm_session *s;
    err e = {0};
    if (llm_session_new(engine, &options, &s, &e) != 0)
        fail_msg("%s", e.message);
    uint64_t first = 0;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 2 * AHEAD_PROMPTS; i++)
            ahead_submit(engine, s, i / 2);
        for (bool idle = false; !idle;) {
            llm_event ev;
            int count;
            if (llm_step(s, &ev, 1, &count, &idle, &e) != 0)
                fail_msg("%s", e.message);
            llm_session_figures(s, &out->figures);
            llm_session_memory(s, &out->memory);
            assert_true(out->memory.kv_bytes <= out->memory.kv_budget_bytes &&
                        out->memory.kv_host_bytes <= out->memory.kv_host_budget_bytes);
            if (count > 0)
                memcpy(out->top[ev.tag], ev.top_logits, sizeof out->top[0]);
        }
        first = round == 0 ? out->figures.computed_tokens : first;
    }
    llm_session_free(s);
    return out->figures.computed_tokens - first;
}

/* What does not fit the device's budget goes on in host
 * memory: it is not computed again, and no bit changes. */
static inline void tiers_check(llm_engine *engine) {
    ahead_run plain = {0}, without = {0}, with = {0};
    ahead_do(engine, NULL, AHEAD_PROMPTS, 200, &plain);
    uint64_t again = tiers_do(engine, 0, &without);
    uint64_t little = tiers_do(engine, 60, &with);
    assert_true(with.memory.kv_host_bytes > 0 && with.memory.kv_host_budget_bytes > 0);
    assert_true(with.memory.kv_peak_bytes > with.memory.kv_budget_bytes);
    assert_true(little * 4 < again); /* the last token of each, for its logits */
    assert_memory_equal(plain.top, without.top, sizeof plain.top);
    assert_memory_equal(plain.top, with.top, sizeof plain.top);
}

#endif
