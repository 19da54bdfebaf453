/*
 * session.c - the public functions of a session: create, submit, step, statistics.
 *
 * They call the session's driver (session_int.h). This file has the local one, whose backend runs
 * the model in this process.
 *
 * Invariant: between calls no pass is running, and every request is in exactly one place
 * (session_int.h). schedule.c decides the order of work, answer.c turns logits into answers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session_int.h"

/* MOST_TOKENS: maximum length of a prompt, and of an answer; the sum of both still fits an int. */
enum { DEFAULT_FIFO_WINDOW = 64, DEFAULT_MAX_TOKENS = 32, MOST_TOKENS = (1 << 30) - 1 };

/* ---- lifetime -------------------------------------------------------------------------------- */

/* Rounds up to a size that buf_append_bytes prints exactly: the limit that a hint suggests must
 * still be large enough. */
static size_t round_up_for_print(size_t bytes) {
    size_t unit = 1;
    while (bytes / unit >= 1024)
        unit *= 1024;
    double n = (double)bytes / (double)unit;
    n = unit > 1 && n < 9.9 ? ceil(n * 10) / 10 : ceil(n);
    return (size_t)ceil(n * (double)unit);
}

static int refuse_memory(size_t given, size_t need, const char *what, err *e) {
    buf least = {0}, now = {0};
    buf_append_bytes(&least, round_up_for_print(need));
    buf_append_bytes(&now, given);
    err_set(e, ERR_LIMIT, "%s needs kv_memory of at least %s; it is %s", what, least.p, now.p);
    err_hint(e, "SET kv_memory = '%s', or more", least.p);
    buf_free(&least);
    buf_free(&now);
    return ERR_LIMIT;
}

/* Cancelling waits for the end of a pass, so a pass gets about a second's work. */
int session_pass_tokens(const llm_engine *engine) {
    static const double least = 128, pass_seconds = 1;
    double most = engine->backend->pass_tokens, rate = engine->info.prefill_tok_s;
    return (int)(rate > 0 ? BASE_MIN(BASE_MAX(rate * pass_seconds, least), most) : most);
}

static const session_driver local_driver;

int llm_session_new(llm_engine *engine, const llm_session_options *options, llm_session **out,
                    err *e) {
    *out = NULL;
    if (!engine->info.generates)
        return embed_session_new(engine, options, out, e);
    if (engine->backend->session_new != NULL && !options->count_only)
        return engine->backend->session_new(engine, options, out, e);
    llm_session *s = mem_zalloc(sizeof *s);
    s->driver = &local_driver;
    s->engine = engine;
    s->options = *options;
    llm_session_options *o = &s->options;
    o->kv_memory_bytes = o->kv_memory_bytes > 0 ? o->kv_memory_bytes : engine->info.kv_memory_bytes;
    o->max_batch = o->max_batch > 0 ? o->max_batch : engine->backend->max_batch;
    o->pass_tokens = o->pass_tokens > 0 ? o->pass_tokens : session_pass_tokens(engine);
    if (o->window == 0 && o->reuse != LLM_REUSE_TREE)
        o->window = DEFAULT_FIFO_WINDOW;
    s->block_size = engine->info.kv_bytes_per_token * LLM_BLOCK_TOKENS;
    size_t blocks = BASE_MIN(o->kv_memory_bytes / s->block_size, (size_t)1 << 24), host = 0;
    if (engine->info.kv_host_bytes > 0) {
        size_t bytes = o->kv_host_bytes > 0 ? o->kv_host_bytes : engine->info.kv_host_bytes;
        host = BASE_MIN(bytes / s->block_size, (size_t)1 << 24);
    }
    if (blocks < 2) {
        int code = refuse_memory(o->kv_memory_bytes, 2 * s->block_size, "this model", e);
        free(s);
        return code;
    }
    s->runs_model = !o->count_only && engine->backend->forward != NULL;
    s->device_blocks = (int)blocks;
    s->ms_per_token = engine->info.prefill_tok_s > 0 ? 1e3 / engine->info.prefill_tok_s : 0;
    prefix_init(&s->tree, (int)(blocks + host), &s->cursor);
    s->tree.most_used = host > 0 ? (int)blocks : INT32_MAX;
    s->tree.first_in_first_out = o->reuse == LLM_REUSE_FIFO;
    s->cursor = &s->tree.root;
    s->kv_budget_bytes = blocks * s->block_size;
    s->kv_host_budget_bytes = host * s->block_size;
    s->figures.load_ms = engine->info.load_ms;
    *out = s;
    return 0;
}

/* Estimates the number of blocks that the requests so far need if they share nothing. Adds two
 * blocks for each request, for its answer and for its last, partly filled block. */
static int likely_blocks(const llm_session *s) {
    uint64_t most = s->submitted_tokens / LLM_BLOCK_TOKENS + 2 * s->figures.requests;
    return (int)BASE_MIN(most, (uint64_t)s->device_blocks);
}

/* Allocates the backend's session data at the first pass: if all answers are stored, no pass runs
 * and nothing is allocated. */
static int work_begin(llm_session *s, err *e) {
    if (s->failed) {
        err_set(e, ERR_INTERNAL, "the model's last computation failed");
        err_hint(e, "run the statement again");
        return ERR_INTERNAL;
    }
    if (!s->runs_model || s->work != NULL)
        return 0;
    const llm_session_options *o = &s->options;
    double start = clock_ms();
    /* 64 rows are spare: last_row_ensure may add rows beyond pass_tokens */
    work_size size = {.blocks = s->tree.nblocks,
                      .device_blocks = s->device_blocks,
                      .likely_blocks = likely_blocks(s),
                      .rows = o->pass_tokens + o->max_batch + 64,
                      .cancel = o->cancel,
                      .wanted = prefix_wanted,
                      .life = prefix_life,
                      .ctx = &s->tree};
    int code = s->engine->backend->work_new(s->engine, &size, &s->work, e);
    if (code == 0) {
        s->block_bytes = mem_alloc(s->block_size);
        const llm_kv_store *store = &o->store;
        if (store->get != NULL && store->prefetch != NULL && o->reuse == LLM_REUSE_TREE)
            s->loader = loader_new(s->engine, s->work, store, s->block_size);
        s->figures.load_ms += clock_ms() - start;
    }
    return code;
}

static void list_free(request_list *list) {
    request *r;
    while ((r = list_pop(list)) != NULL)
        request_free(r);
}

void session_end(llm_session *s) {
    list_free(&s->ready);
    list_free(&s->handed);
    free(s->scratch);
}

/* Adds to *st the tokens computed or loaded so far of a prompt that has no answer yet. */
static void count_begun(const request *r, llm_figures *st) {
    int begun = BASE_MIN(r->computed + r->from_disk, r->prompt_tokens);
    st->prompt_tokens += (uint64_t)begun;
    st->head_tokens += (uint64_t)BASE_MIN(begun, r->head_tokens);
}

/* Drops every unanswered request; the KV of shared nodes is kept. */
static void drop_unanswered(llm_session *s) {
    list_free(&s->queue);
    for (int i = 0; i < s->nlive; i++) {
        count_begun(s->live[i], &s->figures);
        schedule_release(s, s->live[i]);
        request_free(s->live[i]);
    }
    s->nlive = 0;
    s->current = NULL;
    s->probing = s->chosen = (request_list){0};
    request *r;
    while ((r = schedule_take_waiting(s)) != NULL) {
        schedule_release(s, r);
        request_free(r);
    }
}

/* Records the session's rates, if it ran for long enough to measure them. */
static void rates_keep(const llm_session *s) {
    const llm_figures *st = &s->figures;
    bool prefill = st->prefill_ms > 100, decode = st->decode_ms > 100;
    if (s->runs_model && s->engine->backend->keep_rates != NULL && (prefill || decode)) {
        s->engine->backend->keep_rates(
            s->engine,
            prefill ? (double)(st->computed_tokens + st->choice_tokens) * 1e3 / st->prefill_ms : 0,
            decode ? (double)st->output_tokens * 1e3 / st->decode_ms : 0);
    }
}

static void local_free(llm_session *s) {
    rates_keep(s);
    drop_unanswered(s);
    session_end(s);
    prefix_free(&s->tree);
    loader_free(s->loader);
    if (s->work != NULL)
        s->engine->backend->work_free(s->engine, s->work);
    free(s->live);
    free(s->pass.rows);
    free(s->pass.copies);
    free(s->pass.moves);
    free(s->pass.probes);
    free(s->probe_rows[PROBE_ATTENTION]);
    free(s->probe_rows[PROBE_DEVIATION]);
    free(s->pass.wants);
    free(s->pass.next);
    free(s->want_infos);
    free(s->logits);
    free(s->finished_nodes);
    free(s->block_bytes);
    free(s->branch_tokens);
    free(s);
}

/* ---- submitting ------------------------------------------------------------------------------ */

/* Whether BOS is added: the prompt begins with a template whose tokens do not begin with BOS. */
static bool needs_bos(const llm_engine *engine, const llm_request *q) {
    if (!engine->adds_bos || engine->bos < 0 || q->nspans == 0 ||
        q->spans[0]->kind != LLM_SPAN_TEMPLATE)
        return false;
    const llm_span *first = q->spans[0];
    return first->count == 0 || first->tokens[0] != engine->bos;
}

/* Retains the request's spans, with SentencePiece's space added where it is needed. */
static void spans_attach(const llm_engine *engine, request *r, const llm_request *q) {
    llm_token last = -1; /* no token so far */
    r->nspans = q->nspans;
    r->spans = mem_alloc(sizeof *r->spans * (size_t)BASE_MAX(q->nspans, 1));
    for (int i = 0; i < q->nspans; i++) {
        llm_span *span = engine_span_after(engine, q->spans[i], last);
        last = span->count > 0 ? span->tokens[span->count - 1] : last;
        r->spans[i] = span;
    }
}

static int spans_tokens(llm_span *const *spans, int count) {
    size_t n = 0;
    for (int i = 0; i < count; i++)
        n += spans[i]->count;
    /* leaves 64 for BOS and the guide's prefix */
    return (int)BASE_MIN(n, (size_t)MOST_TOKENS - 64);
}

/* Returns the field to remove first: the longest field that the question does not name, or, if it
 * names all, the longest of all. -1: only one field is left, which stays. */
static int field_to_drop(const request *r, const bool *named) {
    int best = -1, fields = 0;
    for (int i = 0; i < r->nspans; i++) {
        if (r->spans[i]->kind != LLM_SPAN_VALUE)
            continue;
        fields++;
        bool spared = named != NULL && named[i], was = best >= 0 && named != NULL && named[best];
        if (best < 0 || (was && !spared) ||
            (was == spared && r->spans[i]->count >= r->spans[best]->count))
            best = i;
    }
    return fields > 1 ? best : -1;
}

/* Removes a value with its name from the spans, and from `named`. */
static void field_drop(request *r, int at, bool *named) {
    int from = at > 0 && r->spans[at - 1]->kind == LLM_SPAN_NAME ? at - 1 : at;
    for (int i = from; i <= at; i++) {
        r->prompt_tokens -= (int)r->spans[i]->count;
        llm_span_release(r->spans[i]);
    }
    size_t after = (size_t)(r->nspans - at - 1);
    memmove(r->spans + from, r->spans + at + 1, sizeof *r->spans * after);
    if (named != NULL)
        memmove(named + from, named + at + 1, sizeof *named * after);
    r->nspans -= at + 1 - from;
}

void request_fit(request *r, bool *named, int most) {
    int at;
    while (r->prompt_tokens > most && (at = field_to_drop(r, named)) >= 0) {
        field_drop(r, at, named);
        r->shortened = true;
    }
}

bool *named_copy(const llm_request *q) {
    if (q->named == NULL)
        return NULL;
    bool *out = mem_alloc(sizeof *out * (size_t)BASE_MAX(q->nspans, 1));
    memcpy(out, q->named, sizeof *out * (size_t)q->nspans);
    return out;
}

int request_answer_tokens(const request *r) {
    if (r->guide == NULL)
        return r->max_tokens;
    /* besides the digits: one token each for lead, sign and point, one spare */
    return request_is_choice(r) ? r->guide->longest : GUIDE_MAX_DIGITS + 4;
}

/* Returns the maximum number of tokens of a prompt with its answer. Streaming attention is not
 * limited to the context. */
static int context_limit(const llm_session *s) {
    const llm_model_info *info = &s->engine->info;
    return info->attention == LLM_ATTENTION_STREAMING ? (int)MOST_TOKENS : info->context;
}

static int fit_check(llm_session *s, request *r, bool *named, const llm_blend *how, err *e) {
    int context = context_limit(s), answer = request_answer_tokens(r);
    if (s->options.truncate)
        request_fit(r, named, context - answer);
    s->figures.truncated += r->shortened;
    r->blend = how != NULL ? blend_new(s, r, how) : NULL;
    const char *left = s->options.truncate ? ", and no more fields can be removed" : "";
    if (r->prompt_tokens + answer > context && answer == 0)
        return err_set(e, ERR_LIMIT, "a prompt of %d tokens exceeds the model's context of %d%s",
                       r->prompt_tokens, context, left);
    if (r->prompt_tokens + answer > context) {
        return err_set(
            e, ERR_LIMIT,
            "a prompt of %d tokens and an answer of up to %d exceed the model's context of %d%s",
            r->prompt_tokens, answer, context, left);
    }
    /* the answer's own nodes need blocks besides: each node begins with a copy of a block */
    int segments = request_is_choice(r) ? 2 * r->guide->longest : 2;
    int need = (r->prompt_tokens + answer) / LLM_BLOCK_TOKENS + 1 + segments +
               (r->blend != NULL ? blend_blocks(r->blend) : 0);
    if (need > s->device_blocks) {
        char what[80];
        snprintf(what, sizeof what, "a prompt of %d tokens with its answer", r->prompt_tokens);
        return refuse_memory(s->kv_budget_bytes, (size_t)need * s->block_size, what, e);
    }
    return 0;
}

int request_new(llm_session *s, const llm_request *q, request **out, err *e) {
    request *r = mem_zalloc(sizeof *r);
    *out = NULL;
    r->tag = q->tag;
    r->chat = q->after != NULL && q->after->chat;
    r->max_tokens =
        q->max_tokens > 0 ? BASE_MIN(q->max_tokens, (int)MOST_TOKENS) : (int)DEFAULT_MAX_TOKENS;
    r->sampling = q->sampling;
    r->keep = q->keep;
    r->choice = -1;
    r->prob = NAN;
    spans_attach(s->engine, r, q);
    r->nstop = q->nstop;
    r->stop = mem_zalloc(sizeof *r->stop * (size_t)BASE_MAX(q->nstop, 1));
    for (int i = 0; i < q->nstop; i++)
        r->stop[i] = (str){mem_strndup(q->stop[i].p, q->stop[i].n), q->stop[i].n};
    r->guide = q->guide != NULL ? llm_guide_retain(q->guide) : NULL;
    r->all_probs = q->all_probs;
    r->prompt_tokens = spans_tokens(r->spans, r->nspans) + needs_bos(s->engine, q) +
                       (r->guide != NULL ? r->guide->nprefix : 0);
    r->head_tokens = q->head_tokens;
    bool *named = named_copy(q);
    int code = r->prompt_tokens > 0 ? fit_check(s, r, named, q->blend, e)
                                    : err_set(e, ERR_LIMIT, "the prompt is empty");
    free(named);
    if (code != 0)
        request_free(r);
    else
        *out = r;
    return code;
}

const llm_token *llm_prompt_tokens(llm_session *s, const llm_request *q, int *count, err *e) {
    request *r;
    if (request_new(s, q, &r, e) != 0)
        return NULL;
    *count = schedule_flatten(s, r);
    request_free(r);
    return s->scratch;
}

static int local_submit(llm_session *s, const llm_request *q, err *e) {
    request *r;
    int code = request_new(s, q, &r, e);
    if (code != 0)
        return code;
    r->output = mem_alloc(sizeof(llm_token) * (size_t)BASE_MAX(request_answer_tokens(r), 1));
    s->figures.requests++;
    s->submitted_tokens += (uint64_t)r->prompt_tokens;
    list_push(&s->queue, r);
    return 0;
}

/* ---- stepping -------------------------------------------------------------------------------- */

bool session_store_pays(const llm_session *s) {
    /* bytes per millisecond read from a disk, not from the page cache */
    static const double read_bytes_ms = 2e6;
    double read_ms = (double)s->block_size / read_bytes_ms;
    return s->options.store.keep_all || s->options.warm_only || s->ms_per_token <= 0 ||
           s->ms_per_token * LLM_BLOCK_TOKENS > read_ms;
}

void session_kv_id(const llm_session *s, const prefix_node *node, int i, llm_kv_id *id) {
    hash128 seed = s->engine->info.fingerprint;
    int b = node->start / LLM_BLOCK_TOKENS + i;
    *id = (llm_kv_id){.fingerprint = seed, .depth = b, .fanout = node->fanout};
    id->key = node->keys[i];
    id->parent = i > 0 ? node->keys[i - 1] : prefix_key(node->parent, b - 1, seed);
    id->cost_ms = s->ms_per_token * LLM_BLOCK_TOKENS;
    prefix_tokens(node, b * LLM_BLOCK_TOKENS, LLM_BLOCK_TOKENS, id->tokens);
}

/* Updates the cost of reading a block relative to computing one, once both have been measured. */
static void read_cost_update(llm_session *s) {
    double ms = s->read_ms;
    uint64_t blocks = s->reads;
    if (s->loader != NULL)
        loader_times(s->loader, &ms, &blocks);
    if (blocks > 0 && s->ms_per_token > 0)
        s->tree.read_cost = ms / (double)blocks / (s->ms_per_token * LLM_BLOCK_TOKENS);
}

/* Offers the full blocks of the nodes that the pass completed to the store. */
static int store_offer(llm_session *s, err *e) {
    const llm_kv_store *store = &s->options.store;
    int code = 0;
    bool offers = store->put != NULL && session_store_pays(s);
    for (int i = 0; offers && i < s->nfinished; i++) {
        prefix_node *node = s->finished_nodes[i];
        if (node->is_private || (node->fanout < 2 && !store->keep_all))
            continue;
        prefix_make_keys(node, s->engine->info.fingerprint);
        int full = prefix_full_blocks(node);
        for (int b = node->loaded_blocks; b < full && code == 0; b++) {
            llm_kv_id id;
            session_kv_id(s, node, b, &id);
            code = s->engine->backend->kv_read(s->engine, s->work, node->table[id.depth],
                                               s->block_bytes, e);
            if (code == 0) {
                store->put(store->ctx, &id, s->block_bytes, s->block_size);
                node->stored_blocks = b + 1;
            }
        }
    }
    return code;
}

static int pass_run(llm_session *s, err *e) {
    /* a pass without rows may have moves for a blended prompt that waits for blocks */
    bool idle =
        s->pass.nrows == 0 && (!s->engine->info.blends || s->pass.nmoves + s->pass.ncopies == 0);
    if (idle || !s->runs_model) {
        s->figures.passes += s->pass.nrows > 0;
        return 0;
    }
    double start = clock_ms();
    int code = s->engine->backend->forward(s->engine, s->work, &s->pass, e);
    code = code != 0 ? code : engine_file_check(s->engine, NULL, NULL, e);
    if (code != 0) {
        s->failed = true;
        return code;
    }
    int rows = BASE_MAX(s->pass.nrows, 1);
    double ms = clock_ms() - start, share = (double)s->prefill_rows / rows;
    s->figures.prefill_ms += ms * share;
    s->figures.decode_ms += ms * (1 - share);
    s->figures.passes++;
    if (s->prefill_rows >= LLM_BLOCK_TOKENS)
        s->ms_per_token = ms / rows;
    read_cost_update(s);
    code = store_offer(s, e);
    s->failed = code != 0;
    return code;
}

/* Returns an error if logits were NaN or infinite: the file is damaged, or it overflows in this
 * precision. */
static int soundness_check(llm_session *s, err *e) {
    if (!s->unsound)
        return 0;
    s->failed = true;
    return err_set(e, ERR_MODEL,
                   "the model '%s' computed logits that are not finite (NaN or infinity): its file "
                   "may be damaged",
                   s->engine->info.path);
}

static int one_pass(llm_session *s, err *e) {
    int code = work_begin(s, e);
    if (code != 0)
        return code;
    if (!schedule_fill(s)) {
        err_set(e, ERR_FULL, "no room in kv_memory for a prompt of %d tokens",
                s->current->prompt_tokens);
        err_hint(e, "raise kv_memory with SET");
        return ERR_FULL;
    }
    s->most_blocks = BASE_MAX(s->most_blocks, s->tree.nblocks - s->tree.nfree);
    code = pass_run(s, e);
    if (code == 0)
        session_take_logits(s);
    return code != 0 ? code : soundness_check(s, e);
}

static void event_fill(const request *r, llm_event *ev) {
    *ev = (llm_event){.tag = r->tag,
                      .text = r->text.n > 0 ? buf_str(&r->text) : STR(""),
                      .choice = r->choice,
                      .prob = r->prob,
                      .probs = r->all_probs ? r->probs : NULL,
                      .finish = r->finish,
                      .shortened = r->shortened,
                      .prompt_tokens = r->prompt_tokens,
                      .computed_tokens = r->computed,
                      .reused_tokens = BASE_MAX(r->prompt_tokens - r->computed, 0),
                      .output_tokens = r->noutput,
                      .top_logits = r->top_logits,
                      .top_tokens = r->top_tokens,
                      .failure = r->failure};
}

void session_hand_out(llm_session *s, llm_event *events, int capacity, int *count) {
    while (*count < capacity && s->ready.first != NULL) {
        request *r = list_pop(&s->ready);
        event_fill(r, &events[(*count)++]);
        list_push(&s->handed, r);
    }
}

static bool work_left(const llm_session *s) {
    return s->queue.count > 0 || s->nlive > 0 || s->tree.root.waiting > 0;
}

static int local_step(llm_session *s, llm_event *events, int capacity, int *count, bool *idle,
                      err *e) {
    int code = 0;
    if (s->options.cancel != NULL && atomic_load(s->options.cancel)) {
        if (work_left(s)) {
            drop_unanswered(s);
            code = err_set(e, ERR_CANCELLED, "cancelled");
        }
    } else if (s->ready.count < capacity && work_left(s)) {
        code = one_pass(s, e);
    }
    session_hand_out(s, events, capacity, count);
    *idle = s->ready.count == 0 && !work_left(s);
    return code;
}

static void local_figures(const llm_session *s, llm_figures *out) {
    *out = s->figures;
    for (int i = 0; i < s->nlive; i++)
        count_begun(s->live[i], out);
    out->evicted_blocks = s->tree.evicted;
}

void llm_session_memory(const llm_session *s, llm_memory *out) {
    size_t held = (size_t)(s->tree.nblocks - s->tree.nfree) * s->block_size;
    size_t device = BASE_MIN(held, s->kv_budget_bytes);
    *out = (llm_memory){.kv_bytes = device,
                        .kv_budget_bytes = s->kv_budget_bytes,
                        .kv_host_bytes = held - device,
                        .kv_host_budget_bytes = s->kv_host_budget_bytes,
                        .kv_peak_bytes = (size_t)s->most_blocks * s->block_size,
                        .live_sequences = s->nlive};
}

/* ---- log-probabilities ----------------------------------------------------------------------- */

static void log_softmax(float *x, int n) {
    double top = (double)x[0], sum = 0;
    for (int i = 1; i < n; i++)
        top = fmax(top, (double)x[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)x[i] - top);
    double norm = top + log(sum);
    for (int i = 0; i < n; i++)
        x[i] = (float)((double)x[i] - norm);
}

static int local_logprobs(llm_session *s, const llm_token *tokens, size_t count, float *out,
                          err *e) {
    const llm_model_info *info = &s->engine->info;
    if (!s->runs_model)
        return err_set(e, ERR_UNSUPPORTED, "the model '%s' is a test model: it computes no logits",
                       info->name);
    size_t need = count / LLM_BLOCK_TOKENS + 1;
    if (count == 0)
        return err_set(e, ERR_LIMIT, "the prompt is empty");
    if (count > (size_t)context_limit(s))
        return err_set(e, ERR_LIMIT, "a prompt of %zu tokens exceeds the model's context of %d",
                       count, context_limit(s));
    if (need > (size_t)s->device_blocks) {
        err_set(e, ERR_LIMIT, "no room in kv_memory for a prompt of %zu tokens", count);
        err_hint(e, "raise kv_memory with SET");
        return ERR_LIMIT;
    }
    int code = work_begin(s, e);
    if (code != 0)
        return code;
    request r = {.raw = (llm_token *)(uintptr_t)tokens,
                 .raw_logits = out,
                 .prompt_tokens = (int)count,
                 .live = true};
    bool share = s->options.reuse != LLM_REUSE_NONE;
    r.end = share ? prefix_insert(&s->tree, tokens, (int)count)
                  : prefix_add_private(&s->tree, &s->tree.root, tokens, (int)count, (int)count);
    r.end->keep = true;
    prefix_count(&s->tree, r.end, 1, 0, 1);
    bool whole = false;
    while (code == 0 && !whole) {
        schedule_reset_pass(s);
        whole = schedule_fill_one(s, &r);
        schedule_finish_pass(s);
        if (s->pass.nrows == 0) {
            code = err_set(e, ERR_FULL, "no room in kv_memory for a prompt of %zu tokens", count);
            err_hint(e, "raise kv_memory with SET");
        } else if ((code = pass_run(s, e)) == 0)
            session_take_logits(s);
    }
    schedule_release(s, &r);
    code = code != 0 ? code : soundness_check(s, e);
    if (code == 0)
        log_softmax(out, info->vocab);
    return code;
}

/* ---- views ----------------------------------------------------------------------------------- */

/* Whether a branch begins at the node: it is shared, and not all prompts of the node above go on to
 * it. */
static bool begins_branch(const prefix_node *node) {
    return node->fanout > 1 && !node->is_private &&
           (node->parent->parent == NULL || node->parent->fanout != node->fanout);
}

/* Returns the node that continues the branch of `node`, or NULL if the branch ends. */
static const prefix_node *branch_next(const prefix_node *node) {
    const prefix_node *child = node->first_child;
    while (child != NULL && (child->is_private || child->fanout != node->fanout))
        child = child->next;
    return child;
}

/* Returns the next node of a depth-first walk at which a branch begins, or NULL. */
static const prefix_node *next_branch(const prefix_node *node) {
    do
        node = prefix_next(node, node->parent == NULL || (node->fanout > 1 && !node->is_private));
    while (node != NULL && !begins_branch(node));
    return node;
}

static int branch_tokens(const prefix_node *node) {
    int tokens = 0;
    for (; node != NULL; node = branch_next(node))
        tokens += node->count;
    return tokens;
}

/* A branch, and the tokens that its prompts need not compute because they share it. */
typedef struct shared_branch {
    const prefix_node *node; /* at which it begins */
    int above;               /* index of the branch that it continues; -1: none */
    uint64_t own, saved;     /* tokens saved by the branch alone; with the branches below it */
} shared_branch;

/* Lists all branches in depth-first order. */
static shared_branch *list_branches(const prefix_node *root, int *count) {
    shared_branch *list = NULL;
    int n = 0, cap = 0;
    for (const prefix_node *node = root; (node = next_branch(node)) != NULL;) {
        const prefix_node *up = node->parent;
        int above = n - 1;
        while (up->parent != NULL && !begins_branch(up))
            up = up->parent;
        while (above >= 0 && list[above].node != up)
            above = list[above].above;
        uint64_t own = (uint64_t)(node->fanout - 1) * (uint64_t)branch_tokens(node);
        ARRAY_PUSH(list, n, cap, ((shared_branch){node, above, own, own}));
    }
    for (int i = n; i-- > 0;)
        if (list[i].above >= 0)
            list[list[i].above].saved += list[i].saved;
    *count = n;
    return list;
}

static int larger_first(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

/* Returns the smallest saving among the `capacity` branches that save most, without branches that
 * save less than 1 / SMALL of the largest own saving below the first branch. Sets *equal to the
 * number of chosen branches that save exactly that. */
static uint64_t least_saved(const shared_branch *list, int n, int capacity, int *equal) {
    enum { SMALL = 20 };
    uint64_t most = 0, least, *saved = mem_alloc(sizeof *saved * (size_t)BASE_MAX(n, 1));
    for (int i = 0; i < n; i++) {
        saved[i] = list[i].saved;
        most = i > 0 ? BASE_MAX(most, list[i].own) : 0;
    }
    qsort(saved, (size_t)n, sizeof *saved, larger_first);
    n = BASE_MIN(n, capacity);
    while (n > 1 && saved[n - 1] * SMALL < most)
        n--;
    least = n > 0 ? saved[n - 1] : 0;
    for (*equal = 0; *equal < n && saved[n - 1 - *equal] == least;)
        ++*equal;
    free(saved);
    return least;
}

/* Describes a branch; `to` has room for its tokens. */
static void describe_branch(const prefix_node *node, int depth, llm_token *to, llm_branch *out) {
    *out = (llm_branch){.depth = depth,
                        .tokens = branch_tokens(node),
                        .fanout = node->fanout,
                        .done = node->fanout - node->pending};
    out->nbefore = BASE_MIN(node->start, LLM_BRANCH_BEFORE);
    prefix_tokens(node, node->start - out->nbefore, out->nbefore, to);
    out->before = to;
    out->first = to += out->nbefore;
    for (; node != NULL && out->nfirst < LLM_BRANCH_TOKENS; node = branch_next(node)) {
        int n = BASE_MIN(node->count, LLM_BRANCH_TOKENS - out->nfirst);
        memcpy(to + out->nfirst, node->tokens, sizeof *to * (size_t)n);
        out->nfirst += n;
    }
}

static int local_branches(llm_session *s, llm_branch *out, int capacity) {
    enum { ROOM = LLM_BRANCH_TOKENS + LLM_BRANCH_BEFORE };
    int all, equal, n = 0;
    shared_branch *list = list_branches(&s->tree.root, &all);
    uint64_t least = least_saved(list, all, capacity, &equal);
    ARRAY_RESERVE(s->branch_tokens, (size_t)capacity * ROOM, s->branch_room);
    /* A branch saves less than the branch above it: if it is chosen, so is that one. */
    for (int i = 0; i < all && n < capacity; i++) {
        int depth = 0;
        if (list[i].saved < least || (list[i].saved == least && equal-- <= 0))
            continue;
        for (int up = list[i].above; up >= 0; up = list[up].above)
            depth++;
        describe_branch(list[i].node, depth, s->branch_tokens + (size_t)n * ROOM, &out[n]);
        n++;
    }
    free(list);
    return n;
}

/* ---- the driver ------------------------------------------------------------------------------ */

static const session_driver local_driver = {.free = local_free,
                                            .submit = local_submit,
                                            .step = local_step,
                                            .figures = local_figures,
                                            .branches = local_branches,
                                            .logprobs = local_logprobs};

void llm_session_free(llm_session *s) {
    if (s != NULL)
        s->driver->free(s);
}

int llm_submit(llm_session *s, const llm_request *q, err *e) {
    return s->driver->submit(s, q, e);
}

int llm_step(llm_session *s, llm_event *events, int capacity, int *count, bool *idle, err *e) {
    list_free(&s->handed);
    *count = 0;
    return s->driver->step(s, events, capacity, count, idle, e);
}

void llm_session_figures(const llm_session *s, llm_figures *out) {
    s->driver->figures(s, out);
}

int llm_session_places(const llm_session *s, llm_place *out, int capacity) {
    return s->driver->places != NULL ? s->driver->places(s, out, capacity) : 0;
}

int llm_session_branches(llm_session *s, llm_branch *out, int capacity) {
    return s->driver->branches(s, out, capacity);
}

int llm_logprobs(llm_session *s, const llm_token *tokens, size_t count, float *out, err *e) {
    return s->driver->logprobs(s, tokens, count, out, e);
}
