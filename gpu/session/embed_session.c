/*
 * embed_session.c - the session of an embedding model: a request's text in, its vector out.
 *
 * The answer of a request is the text of all its spans, as a vector: info.embedding f32 numbers, as
 * bytes. A step computes a batch of texts in the order of submission. There is no KV to keep and no
 * prefix to share, so a session only saves its caller a second kind of request.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "session_int.h"

typedef struct text_request {
    uint64_t tag;
    str text; /* on the heap */
    int tokens;
    bool cut;      /* the text is longer than the context */
    float *vector; /* on the heap; NULL: not computed yet */
    bool done;
} text_request;

typedef struct embed_session {
    llm_session base;
    text_request *queue; /* [n] in order of submission */
    size_t n, cap;
    size_t returned; /* texts before it were returned, and those before `released` are freed */
    size_t released;
    size_t batch; /* first text of the batch that is computed */
} embed_session;

static embed_session *of(llm_session *s) {
    return (embed_session *)s;
}

static void release(text_request *r) {
    free((char *)(uintptr_t)r->text.p);
    free(r->vector);
    r->text = (str){NULL, 0};
    r->vector = NULL;
}

static void embed_free(llm_session *s) {
    embed_session *x = of(s);
    for (size_t i = x->released; i < x->n; i++)
        release(&x->queue[i]);
    free(x->queue);
    free(s->scratch);
    free(x);
}

static int embed_submit(llm_session *s, const llm_request *q, err *e) {
    embed_session *x = of(s);
    buf text = {0};
    bool cut;
    for (int i = 0; i < q->nspans; i++)
        buf_append_str(&text, q->spans[i]->text);
    int tokens = (int)llm_embed_tokens(s->engine, buf_str(&text), &cut);
    if (tokens == 0) {
        buf_free(&text);
        return err_set(e, ERR_LIMIT, "the text has no token, so it has no vector");
    }
    text_request r = {.tag = q->tag, .text = buf_str(&text), .tokens = tokens, .cut = cut};
    s->figures.requests++;
    ARRAY_PUSH(x->queue, x->n, x->cap, r);
    return 0;
}

/* Called after each pass with the texts whose vectors are complete. */
static void take_pass(void *ctx, const size_t *texts, size_t count) {
    embed_session *x = ctx;
    for (size_t i = 0; i < count; i++)
        x->queue[x->batch + texts[i]].done = true;
}

/* Computes the next texts, of about four passes. */
static int compute_batch(embed_session *x, err *e) {
    enum { PASSES = 4, TEXTS = 1024 };
    llm_session *s = &x->base;
    size_t most = (size_t)session_pass_tokens(s->engine) * PASSES, tokens = 0, count = 0;
    float *vectors[TEXTS];
    str texts[TEXTS];
    x->batch = x->returned;
    while (x->batch + count < x->n && count < TEXTS && (count == 0 || tokens < most)) {
        text_request *r = &x->queue[x->batch + count];
        if (r->vector == NULL)
            r->vector = mem_alloc(sizeof *r->vector * (size_t)s->engine->info.embedding);
        vectors[count] = r->vector;
        texts[count++] = r->text;
        tokens += (size_t)r->tokens;
    }
    if (s->options.count_only) {
        for (size_t i = 0; i < count; i++)
            x->queue[x->batch + i].done = true;
        s->figures.done += count;
        s->figures.prompt_tokens += tokens;
        s->figures.computed_tokens += tokens;
        return 0;
    }
    llm_embed_options o = {.done = take_pass, .ctx = x, .cancel = s->options.cancel};
    llm_figures own = {0};
    int code = llm_embed(s->engine, texts, count, vectors, &o, &own, e);
    own.requests = 0; /* counted when they were submitted */
    llm_figures_add(&s->figures, &own);
    return code;
}

static llm_event event_of(const embed_session *x, const text_request *r) {
    size_t bytes = sizeof *r->vector * (size_t)x->base.engine->info.embedding;
    bool counted = x->base.options.count_only;
    return (llm_event){.tag = r->tag,
                       .text = {(const char *)r->vector, counted ? 0 : bytes},
                       .choice = -1,
                       .prob = NAN,
                       .finish = LLM_FINISH_STOP,
                       .shortened = r->cut,
                       .prompt_tokens = r->tokens,
                       .computed_tokens = r->tokens};
}

static int embed_step(llm_session *s, llm_event *events, int capacity, int *count, bool *idle,
                      err *e) {
    embed_session *x = of(s);
    int code = 0;
    for (; x->released < x->returned; x->released++)
        release(&x->queue[x->released]);
    if (x->returned == x->n)
        x->n = x->returned = x->released = 0;
    if (x->returned < x->n && !x->queue[x->returned].done)
        code = compute_batch(x, e);
    while (*count < capacity && x->returned < x->n && x->queue[x->returned].done)
        events[(*count)++] = event_of(x, &x->queue[x->returned++]);
    for (; code != 0 && x->n > x->returned && !x->queue[x->returned].done; x->n--)
        release(&x->queue[x->n - 1]);
    *idle = x->returned == x->n;
    return code;
}

static void embed_figures(const llm_session *s, llm_figures *out) {
    *out = s->figures;
}

static int embed_branches(llm_session *s, llm_branch *out, int capacity) {
    (void)s;
    (void)out;
    (void)capacity;
    return 0;
}

static int embed_logprobs(llm_session *s, const llm_token *tokens, size_t count, float *out,
                          err *e) {
    (void)tokens;
    (void)count;
    (void)out;
    return err_set(e, ERR_UNSUPPORTED, "the model '%s' makes embeddings and has no logits",
                   s->engine->info.path);
}

static const session_driver embed_driver = {.free = embed_free,
                                            .submit = embed_submit,
                                            .step = embed_step,
                                            .figures = embed_figures,
                                            .branches = embed_branches,
                                            .logprobs = embed_logprobs};

int embed_session_new(llm_engine *engine, const llm_session_options *options, llm_session **out,
                      err *e) {
    if (options->warm_only)
        return err_set(e, ERR_UNSUPPORTED,
                       "the model '%s' makes embeddings and keeps no prefixes: it cannot be warmed",
                       engine->info.path);
    embed_session *x = mem_zalloc(sizeof *x);
    x->base.driver = &embed_driver;
    x->base.engine = engine;
    x->base.options = *options;
    x->base.device_blocks = INT32_MAX;
    *out = &x->base;
    return 0;
}
