/*
 * test_gpu_bits.c - answers do not depend on company, order, threads or where KV came from: bit for
 * bit.
 *
 * Runs the real model (KVASIR_MODEL or the default one; skipped when absent) over prompts that
 * share heads and bodies, whose branches fall inside blocks and between them: in full attention
 * with bf16 KV, then the tests that differ most for every other type of KV, for streaming attention
 * and for f32. KVASIR_LONG=1: 200 prompts, else a few.
 */
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/sample_weight_int.h"
#include "session/session_int.h"

enum { MAX_PROMPTS = 200 };

typedef struct answer {
    char text[64];
    double prob;
    float top[LLM_TOP_LOGITS];
    llm_token ids[LLM_TOP_LOGITS];
} answer;

typedef struct fixture {
    char path[4096];
    llm_engine *one, *two; /* with 1 and 2 threads */
    arena *spans;          /* holds spans of chunks */
    bool only_exact;
    int prompts;
    answer *reference;
} fixture;

static fixture f;

/* The engine that a group of tests runs; full attention and bf16 KV first. */
static const llm_engine_options engines[] = {
    {.kv_dtype = LLM_KV_BF16},
    {.kv_dtype = LLM_KV_INT8},
    {.kv_dtype = LLM_KV_F32},
    {.attention = LLM_ATTENTION_STREAMING, .sink_tokens = 4, .window_tokens = 50},
    {.precision = LLM_F32},
    {.precision = LLM_BF16},
    {.precision = LLM_INT8},
    {.precision = LLM_INT8X2},
};
static size_t engine_at;
static llm_precision first_precision; /* the first group's: what 'auto' is here */
/* Where all engines keep what they measure: two measurements on a busy machine may differ. */
static char side_dir[] = "/tmp/kvasir-bits-XXXXXX";

/* ---- prompts --------------------------------------------------------------------------------- */

static const char *const words[] = {"a",     "film",  "that",  "moves", "slowly", "but",  "never",
                                    "bores", "the",   "actor", "is",    "good",   "and",  "bad",
                                    "scene", "of",    "light", "seven", "dull",   "plot", "warm",
                                    "harsh", "sound", "music", "story", "ends",   "well"};

static void text_make(uint64_t seed, int count, buf *out) {
    for (int i = 0; i < count; i++) {
        seed = hash_mix(seed, (uint64_t)i);
        buf_append_char(out, ' ');
        buf_append_c(out, words[seed % BASE_COUNT(words)]);
    }
    buf_append_char(out, '\n');
}

static bool is_blended(int i) {
    return i % 3 == 2;
}

/* A value of three chunks, whose texts other prompts have, too, at other places. */
static llm_span *chunks_span(const llm_engine *engine, int i) {
    llm_span *parts[5];
    for (int k = 0; k < 5; k++) {
        buf text = {0};
        int body = (i + 3 * k) % 7;
        if (k % 2 == 0)
            text_make(1000 + (uint64_t)body, 20 + 9 * body, &text);
        else
            buf_append_c(&text, "story:");
        parts[k] = llm_span_new_in(engine, k % 2 == 0 ? LLM_SPAN_VALUE : LLM_SPAN_NAME,
                                   buf_str(&text), f.spans);
        buf_free(&text);
    }
    return llm_span_retain(llm_span_join(LLM_SPAN_VALUE, parts, 5, f.spans));
}

/* Prompt i: a shared head, one of several bodies (whose
 * lengths walk over block boundaries) or chunks, a tail of its own. */
static int prompt_spans(const llm_engine *engine, int i, llm_span **out) {
    buf body = {0}, tail = {0};
    text_make(1000 + (uint64_t)(i % 7), 20 + 9 * (i % 7), &body);
    text_make(5000 + (uint64_t)i, 3 + i % 40, &tail);
    int n = 0;
    out[n++] = llm_span_new(engine, LLM_SPAN_TEMPLATE, STR(""));
    out[n++] =
        llm_span_new(engine, LLM_SPAN_INSTRUCTION, STR("Is the review positive or negative?\n"));
    out[n++] = llm_span_new(engine, LLM_SPAN_NAME, STR("story:"));
    out[n++] = is_blended(i) ? chunks_span(engine, i)
                             : llm_span_new(engine, LLM_SPAN_VALUE, buf_str(&body));
    out[n++] = llm_span_new(engine, LLM_SPAN_NAME, STR("review:"));
    out[n++] = llm_span_new(engine, LLM_SPAN_VALUE, buf_str(&tail));
    out[n++] = llm_span_new(engine, LLM_SPAN_TEMPLATE, STR("answer:"));
    buf_free(&body);
    buf_free(&tail);
    return n;
}

/* Every kind of answer: literals that differ at once,
 * literals with inner branches, a number, free text. */
static llm_guide *prompt_guide(const llm_engine *engine, int i) {
    static const str plain[] = {{"positive", 8}, {"negative", 8}};
    static const str nested[] = {{"1", 1}, {"10", 2},        {"12", 2},
                                 {"2", 1}, {"very good", 9}, {"very bad", 8}};
    const llm_template *after = llm_engine_template(engine, LLM_FORMAT_COMPLETION);
    err e = {0};
    switch (i % 4) {
    case 0:
        return llm_guide_new(engine, LLM_GUIDE_CHOICE, plain, 2, after, &e);
    case 1:
        return llm_guide_new(engine, LLM_GUIDE_CHOICE, nested, 6, after, &e);
    case 2:
        return llm_guide_new(engine, LLM_GUIDE_INTEGER, NULL, 0, after, &e);
    default:
        return NULL;
    }
}

static void submit(llm_session *s, const llm_engine *engine, int i) {
    llm_span *spans[8];
    int n = prompt_spans(engine, i, spans);
    llm_blend blend = {.share = i % 2 == 0 ? 0.15 : 0.5,
                       .rule = (llm_blend_rule)(i / 3 % LLM_BLEND_RULES)};
    llm_guide *guide = prompt_guide(engine, i);
    llm_request q = {.tag = (uint64_t)i,
                     .spans = spans,
                     .nspans = n,
                     .guide = guide,
                     .blend = is_blended(i) ? &blend : NULL,
                     .max_tokens = 6,
                     .after = llm_engine_template(engine, LLM_FORMAT_COMPLETION)};
    if (i % 8 == 7) {
        q.sampling = i % 16 == 7 ? (llm_sampling){.temperature = 0.9f, .top_p = 0.95f, .seed = 11}
                                 : (llm_sampling){.temperature = 1.5f, .top_p = 1, .seed = 12};
    }
    err e = {0};
    assert_int_equal(llm_submit(s, &q, &e), 0);
    for (int k = 0; k < n; k++)
        llm_span_release(spans[k]);
    llm_guide_release(guide);
}

static void drain(llm_session *s, answer *out) {
    bool idle = false;
    err e = {0};
    while (!idle) {
        llm_event events[32];
        int count;
        assert_int_equal(llm_step(s, events, 32, &count, &idle, &e), 0);
        for (int i = 0; i < count; i++) {
            answer *a = &out[events[i].tag];
            snprintf(a->text, sizeof a->text, "%.*s", (int)events[i].text.n, events[i].text.p);
            a->prob = events[i].prob;
            memcpy(a->top, events[i].top_logits, sizeof a->top);
            memcpy(a->ids, events[i].top_tokens, sizeof a->ids);
        }
    }
}

static llm_session *session(llm_engine *engine, llm_session_options options) {
    llm_session *s;
    err e = {0};
    options.keep_logits = true;
    options.kv_memory_bytes =
        options.kv_memory_bytes > 0 ? options.kv_memory_bytes : (size_t)256 << 20;
    assert_int_equal(llm_session_new(engine, &options, &s, &e), 0);
    return s;
}

static bool is_asked(int i) {
    return !f.only_exact || !is_blended(i);
}

static void same(const answer *a, const answer *b, const char *what) {
    for (int i = 0; i < f.prompts; i++) {
        bool equal = !is_asked(i) || (strcmp(a[i].text, b[i].text) == 0 &&
                                      memcmp(&a[i].prob, &b[i].prob, sizeof a[i].prob) == 0 &&
                                      memcmp(a[i].top, b[i].top, sizeof a[i].top) == 0 &&
                                      memcmp(a[i].ids, b[i].ids, sizeof a[i].ids) == 0);
        if (!equal) {
            fail_msg("%s: prompt %d: '%s' %.17g %.9g, alone '%s' %.17g %.9g", what, i, b[i].text,
                     b[i].prob, (double)b[i].top[0], a[i].text, a[i].prob, (double)a[i].top[0]);
        }
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void run_all(llm_session *s, const llm_engine *engine, bool reverse, answer *out) {
    for (int k = 0; k < f.prompts; k++) {
        int i = reverse ? f.prompts - 1 - k : k;
        if (is_asked(i))
            submit(s, engine, i);
    }
    drain(s, out);
}

static llm_precision precision_of(const llm_engine *engine) {
    llm_precision p = LLM_F32;
    while (p < LLM_PRECISIONS && strcmp(llm_engine_info(engine)->precision, llm_precision_name(p)))
        p++;
    return p;
}

static int setup(void **state) {
    (void)state;
    const char *model = getenv("KVASIR_MODEL"), *data = getenv("XDG_DATA_HOME"),
               *home = getenv("HOME");
    const char *file = "kvasir/models/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (model != NULL)
        snprintf(f.path, sizeof f.path, "%s", model);
    else if (data != NULL && data[0] != '\0')
        snprintf(f.path, sizeof f.path, "%s/%s", data, file);
    else
        snprintf(f.path, sizeof f.path, "%s/.local/share/%s", home != NULL ? home : "", file);
    if (access(f.path, R_OK) != 0) {
        fprintf(stderr, "no model at %s: skipped\n", f.path);
        return 0;
    }
    const char *all = getenv("KVASIR_LONG");
    f.prompts = all != NULL && strcmp(all, "1") == 0 ? MAX_PROMPTS : engine_at == 0 ? 24 : 12;
    f.reference = mem_zalloc(sizeof *f.reference * MAX_PROMPTS);
    f.spans = arena_new();
    err e = {0};
    llm_engine_options one = engines[engine_at], two = one;
    one.path = two.path = f.path;
    one.cache_dir = two.cache_dir = side_dir;
    one.threads = 1;
    two.threads = 2;
    if (llm_engine_open(&one, &f.one, &e) != 0 || llm_engine_open(&two, &f.two, &e) != 0) {
        fprintf(stderr, "%s\n", e.message);
        bool optional = one.precision > LLM_F32; /* what not every machine has */
#ifndef KVASIR_CPU /* for cards alone: what the card at hand cannot do, or no card, is skipped */
        optional = true;
#endif
        free(f.reference);
        arena_free(f.spans);
        f.spans = NULL;
        f.reference = NULL;
        return optional && e.code == ERR_UNSUPPORTED ? 0 : 1;
    }
    assert_true(
        hash128_equal(llm_engine_info(f.one)->fingerprint, llm_engine_info(f.two)->fingerprint));
    if (engine_at == 0)
        first_precision = precision_of(f.one);
    for (int i = 0; i < f.prompts; i++) { /* alone: a session each */
        llm_session *s = session(f.two, (llm_session_options){.reuse = LLM_REUSE_NONE});
        submit(s, f.two, i);
        drain(s, f.reference);
        llm_session_free(s);
    }
    return 0;
}

static int teardown(void **state) {
    (void)state;
    llm_engine_close(f.one);
    llm_engine_close(f.two);
    free(f.reference);
    arena_free(f.spans);
    f = (fixture){0};
    return 0;
}

static void check_run(llm_engine *engine, llm_session_options options, bool reverse,
                      const char *what) {
    if (f.reference == NULL)
        skip();
    answer *out = mem_zalloc(sizeof *out * MAX_PROMPTS);
    llm_session *s = session(engine, options);
    run_all(s, engine, reverse, out);
    same(f.reference, out, what);
    llm_session_free(s);
    free(out);
}

static void in_one_batch(void **state) {
    (void)state;
    check_run(f.two, (llm_session_options){0}, false, "one batch");
}

static void in_reverse(void **state) {
    (void)state;
    check_run(f.two, (llm_session_options){.pass_tokens = 100}, true, "reverse, passes of 100");
}

static void with_one_thread(void **state) {
    (void)state;
    check_run(f.one, (llm_session_options){.pass_tokens = 333, .max_batch = 5}, false,
              "1 thread, batches of 5");
}

static void without_cache(void **state) {
    (void)state;
    check_run(f.two, (llm_session_options){.reuse = LLM_REUSE_NONE}, false, "no cache");
}

static void first_in_first_out(void **state) {
    (void)state;
    check_run(f.one, (llm_session_options){.reuse = LLM_REUSE_FIFO, .window = 8}, true, "fifo");
}

static void with_little_memory(void **state) {
    (void)state;
    size_t block =
        f.two != NULL ? llm_engine_info(f.two)->kv_bytes_per_token * LLM_BLOCK_TOKENS : 0;
    f.only_exact = true;
    check_run(f.two, (llm_session_options){.kv_memory_bytes = 19 * block}, false,
              "19 blocks of KV");
    f.only_exact = false;
    check_run(f.two, (llm_session_options){.kv_memory_bytes = 33 * block}, false,
              "33 blocks of KV, with those of chunks");
}

/* A device that finds the likeliest tokens, and draws' candidates, by looking at all logits: same
 * answers, also where the candidates do not suffice and the row runs again. */
static const llm_backend *plain;
static int draws_of_few, draws_of_all;

static void largest(const float *logits, const pass_want *want) {
    for (int k = 0; k < want->top; k++) {
        int best = -1;
        for (int i = 0; i < want->count; i++) {
            bool taken = false;
            for (int j = 0; j < k; j++)
                taken = taken || want->top_ids[j] == i;
            best = !taken && (best < 0 || logits[i] > logits[best]) ? i : best;
        }
        want->top_ids[k] = best;
        want->logits[k] = logits[best];
    }
}

static uint64_t weigh(const float *logits, const pass_want *want) {
    uint64_t total = 0;
    for (int i = 0; i < want->count; i++)
        total += sample_weight(logits[i], want->logits[0], want->temperature);
    return total;
}

static int all_forward(llm_engine *engine, void *work, const pass *p, err *e) {
    pass whole = *p;
    size_t vocab = (size_t)engine->info.vocab, n = (size_t)p->nwants;
    float *logits = mem_alloc(sizeof *logits * vocab * (n + 1));
    whole.wants = mem_alloc(sizeof *whole.wants * (n + 1));
    for (size_t i = 0; i < n; i++) {
        whole.wants[i] = p->wants[i];
        if (p->wants[i].top > 0) {
            assert_true(p->wants[i].ids == NULL &&
                        p->wants[i].top <= (p->wants[i].temperature > 0 ? PASS_DRAW : PASS_TOP));
            whole.wants[i].top = 0;
            whole.wants[i].logits = logits + i * vocab;
        }
    }
    int code = plain->forward(engine, work, &whole, e);
    for (size_t i = 0; i < n && code == 0; i++) {
        pass_want *want = &p->wants[i];
        if (want->top > 0) {
            largest(logits + i * vocab, want);
            want->total = weigh(logits + i * vocab, want);
        }
        draws_of_few += want->temperature > 0 && want->top > 0;
        draws_of_all += want->temperature > 0 && want->top == 0;
    }
    free(logits);
    free(whole.wants);
    return code;
}

static void with_all_logits(void **state) {
    (void)state;
    if (f.reference == NULL)
        skip();
    plain = f.two->backend;
    llm_backend all = *plain;
    all.forward = all_forward;
    all.draws = true;
    f.two->backend = &all;
    check_run(f.two, (llm_session_options){.pass_tokens = 100}, false, "all logits");
    f.two->backend = plain;
    assert_true(draws_of_all > 0 && draws_of_few > draws_of_all);
}

static void warm(void **state) {
    (void)state;
    if (f.reference == NULL)
        skip();
    answer *out = mem_zalloc(sizeof *out * MAX_PROMPTS);
    llm_session *s = session(f.two, (llm_session_options){0});
    run_all(s, f.two, false, out);
    llm_figures before, after;
    llm_session_figures(s, &before);
    run_all(s, f.two, true, out);
    llm_session_figures(s, &after);
    assert_true(after.computed_tokens - before.computed_tokens < before.computed_tokens);
    same(f.reference, out, "warm");
    llm_session_free(s);
    free(out);
}

/* ---- blocks from a store --------------------------------------------------------------------- */

typedef struct stored {
    llm_kv_id id;
    void *kv;
    struct stored *next;
} stored;

/* blocks are read ahead by another thread */
static pthread_mutex_t store_mutex = PTHREAD_MUTEX_INITIALIZER;

static const stored *store_find(stored **blocks, const llm_kv_id *id) {
    pthread_mutex_lock(&store_mutex);
    const stored *b = *blocks;
    pthread_mutex_unlock(&store_mutex);
    while (b != NULL && !hash128_equal(b->id.key, id->key))
        b = b->next;
    return b;
}

static bool store_get(void *ctx, const llm_kv_id *id, void *kv, size_t bytes) {
    const stored *b = store_find(ctx, id);
    if (b != NULL) {
        assert_true(hash128_equal(b->id.parent, id->parent) && b->id.depth == id->depth);
        assert_memory_equal(b->id.tokens, id->tokens, sizeof id->tokens);
        memcpy(kv, b->kv, bytes);
    }
    return b != NULL;
}

static bool store_prefetch(void *ctx, const llm_kv_id *id) {
    return store_find(ctx, id) != NULL;
}

static void store_put(void *ctx, const llm_kv_id *id, const void *kv, size_t bytes) {
    stored *b = mem_alloc(sizeof *b);
    *b = (stored){.id = *id, .kv = mem_alloc(bytes), .next = *(stored **)ctx};
    memcpy(b->kv, kv, bytes);
    pthread_mutex_lock(&store_mutex);
    *(stored **)ctx = b;
    pthread_mutex_unlock(&store_mutex);
}

static void from_a_store(void **state) {
    (void)state;
    if (f.reference == NULL)
        skip();
    stored *blocks = NULL;
    llm_kv_store store = {.ctx = &blocks, .get = store_get, .put = store_put, .keep_all = true};
    answer *out = mem_zalloc(sizeof *out * MAX_PROMPTS);
    uint64_t computed = 0;
    for (int round = 0; round < 3; round++) {
        store.prefetch = round == 2 ? store_prefetch : NULL; /* read ahead */
        llm_session *s = session(f.two, (llm_session_options){.store = store});
        run_all(s, f.two, round == 1, out);
        llm_figures st;
        llm_session_figures(s, &st);
        /* blended prompts compute some tokens twice */
        assert_true(st.prompt_tokens <= st.computed_tokens + st.reused_memory + st.reused_disk);
        /* who yields to whom is a matter of time, and with
         * it what is evicted: not counted to the token */
        assert_true(round == 0 || (st.reused_disk > 0 && st.computed_tokens < computed));
        computed = round == 0 ? st.computed_tokens : computed;
        same(f.reference, out, "store");
        llm_session_free(s);
    }
    while (blocks != NULL) {
        stored *next = blocks->next;
        free(blocks->kv);
        free(blocks);
        blocks = next;
    }
    free(out);
}

static void side_dir_remove(void) {
    DIR *d = opendir(side_dir);
    for (struct dirent *entry; d != NULL && (entry = readdir(d)) != NULL;) {
        char path[sizeof side_dir + sizeof entry->d_name];
        snprintf(path, sizeof path, "%s/%s", side_dir, entry->d_name);
        unlink(path);
    }
    if (d != NULL)
        closedir(d);
    rmdir(side_dir);
}

int main(void) {
    if (mkdtemp(side_dir) == NULL)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_one_batch),       cmocka_unit_test(in_reverse),
        cmocka_unit_test(with_one_thread),    cmocka_unit_test(without_cache),
        cmocka_unit_test(first_in_first_out), cmocka_unit_test(with_little_memory),
        cmocka_unit_test(with_all_logits),    cmocka_unit_test(warm),
        cmocka_unit_test(from_a_store),
    };
    const struct CMUnitTest fewer[] = {
        cmocka_unit_test(in_reverse),
        cmocka_unit_test(with_one_thread),
        cmocka_unit_test(with_little_memory),
        cmocka_unit_test(from_a_store),
    };
    int failed = cmocka_run_group_tests(tests, setup, teardown);
    for (engine_at = 1; engine_at < BASE_COUNT(engines); engine_at++) {
        llm_precision precision = engines[engine_at].precision;
        if (precision == LLM_PRECISION_AUTO || precision != first_precision)
            failed += cmocka_run_group_tests(fewer, setup, teardown);
    }
    side_dir_remove();
    return failed;
}
