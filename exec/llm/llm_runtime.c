/*
 * llm_runtime.c - what the LLM operators of a statement share: engines, sessions, the cache, the
 * memo of answers, examples.
 *
 * Invariant: a session outlives the operators, so that a second operator of the statement finds the
 * first one's prefixes.
 */
#include <stdlib.h>
#include <string.h>

#include "llm_int.h"

/* Releases an engine that is of the wrong kind for a call, and sets the error. */
static void refuse_engine(db *d, const llm_call *call, llm_engine **engine, err *e) {
    const llm_model_info *m = llm_engine_info(*engine);
    const char *name = m->remote ? m->name : m->path;
    if (m->generates) {
        err_set_at(e, ERR_UNSUPPORTED, call->pos, call->len,
                   "the model '%s' (%s) generates text and makes no embeddings", name,
                   m->architecture);
        err_hint(e, "SET embed_model = '' for the default one, or name an embedding model");
    } else {
        err_set_at(e, ERR_UNSUPPORTED, call->pos, call->len,
                   "the model '%s' (%s) makes embeddings: it turns a text into a vector and cannot "
                   "answer a prompt",
                   name, m->architecture);
        err_hint(e, "SET model = '' for the default model, or name one that generates text");
    }
    engine_release(d, *engine);
    *engine = NULL;
}

llm_runtime *llm_runtime_new(exec_ctx *ctx) {
    llm_runtime *r = mem_zalloc(sizeof *r);
    int n = ctx->stmt->ncalls;
    r->ctx = ctx;
    r->mem = arena_new();
    r->kept = arena_new_spilling((size_t)ctx->settings->work_memory, ctx->space);
    r->memo = answer_memo_new(ctx->space, r->kept);
    r->engines = ARENA_ARRAY(r->mem, llm_engine *, n + 1);
    r->nengines = n;
    r->guides = ARENA_ARRAY(r->mem, llm_guide *, n + 1);
    r->examples = ARENA_ARRAY(r->mem, prompt_example *, n + 1);
    r->nexamples = ARENA_ARRAY(r->mem, int, n + 1);
    r->priors = ARENA_ARRAY(r->mem, call_priors, n + 1);
    r->answer_rows = ARENA_ARRAY(r->mem, uint64_t *, n + 1);
    r->sampled = ARENA_ARRAY(r->mem, call_facts, n + 1);
    r->started_s = clock_seconds();
    r->pinned.mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    const catalog *c = ctx->txn ? txn_catalog(ctx->txn) : NULL;
    /* Opening can take long: all bytes of a file not seen before are hashed to identify it. */
    if (n > 0)
        progress_publish(ctx->progress,
                         &(exec_progress){.llm_running = true, .phase = "opening the model"});
    for (int i = 0; i < n && r->open_error.code == ERR_NONE; i++) {
        const llm_call *call = ctx->stmt->calls[i];
        llm_engine **engine = &r->engines[call->number - 1];
        engine_acquire(ctx->db, ctx->settings, c, call->model, call->returns == RETURNS_VECTOR,
                       ctx->cancel, engine, &r->open_error);
        if (*engine && llm_engine_info(*engine)->generates == (call->returns == RETURNS_VECTOR))
            refuse_engine(ctx->db, call, engine, &r->open_error);
    }
    return r;
}

void count_run_close(count_run *run) {
    sessions_close(&run->sessions);
    answer_memo_free(run->asked);
    arena_free(run->mem);
    *run = (count_run){0};
}

void llm_runtime_free(llm_runtime *r) {
    if (!r)
        return;
    sessions_close(&r->sessions);
    for (int k = 0; k < COUNT_STRATEGIES; k++)
        count_run_close(&r->counts[k]);
    shown_free(r->shown);
    free(r->pinned.keys);
    answer_memo_free(r->memo);
    for (int i = 0; i < r->nengines; i++) {
        llm_guide_release(r->guides[i]);
        engine_release(r->ctx->db, r->engines[i]);
    }
    arena_free(r->kept);
    arena_free(r->mem);
    free(r);
}

bool llm_runtime_outdated(const llm_runtime *r) {
    for (int i = 0; r && i < r->nengines; i++)
        if (r->engines[i] && llm_engine_outdated(r->engines[i]))
            return true;
    return false;
}

int runtime_engine(llm_runtime *r, const llm_call *call, llm_engine **out, err *e) {
    *out = r->engines[call->number - 1];
    if (*out)
        return 0;
    *e = r->open_error;
    return e->code ? (int)e->code : err_set(e, ERR_INTERNAL, "LLM#%d has no engine", call->number);
}

/* ---- the cache ------------------------------------------------------------------------------- */

static void warn_of_cache(const llm_runtime *r, const char *why, const char *what) {
    if (!r->ctx->db->cache_warning_shown)
        exec_notice(r->ctx, "%s: %s", why, what);
    r->ctx->db->cache_warning_shown = true;
}

cache *runtime_cache(llm_runtime *r) {
    static const cache_policy policies[] = {
        [EVICT_COST] = CACHE_COST, [EVICT_LRU] = CACHE_LRU, [EVICT_FIFO] = CACHE_FIFO};
    BASE_COVERS(policies, EVICTS);
    const settings *s = r->ctx->settings;
    err e = {0};
    if (!s->cache)
        return NULL;
    if (!r->cache_tried) {
        r->cache_tried = true;
        /* Without a cache the statement is only slower. */
        r->cache = store_cache(r->ctx->db->store, &e);
        if (!r->cache)
            warn_of_cache(r, e.message, "answers and KV blocks are not kept");
        if (r->cache && !cache_configure(r->cache, (size_t)s->kv_disk, policies[s->kv_evict]))
            warn_of_cache(r, "no address space for kv_disk", "the cache keeps its size");
        for (int i = 0; r->cache && i < r->ctx->stmt->ncalls; i++)
            if (r->engines[i])
                model_files_note(r->ctx, r->cache, llm_engine_info(r->engines[i]));
    }
    return r->cache;
}

void llm_runtime_report_cache_off(const llm_runtime *r) {
    buf why = {0};
    if (!r || !r->cache || !cache_failed(r->cache, &why))
        return;
    warn_of_cache(r, why.p, "answers and KV blocks are not kept any more");
    buf_free(&why);
}

/* ---- sessions -------------------------------------------------------------------------------- */

void session_options(const exec_ctx *ctx, llm_session_options *out) {
    const settings *s = ctx->settings;
    *out = (llm_session_options){
        .kv_memory_bytes = s->kv_memory > 0 ? (size_t)s->kv_memory : 0,
        .kv_host_bytes = s->kv_host < 0 ? 0 : (size_t)BASE_MAX(s->kv_host, 1),
        .reuse = !s->kv_cache                       ? LLM_REUSE_NONE
                 : s->llm_schedule == SCHEDULE_FIFO ? LLM_REUSE_FIFO
                                                    : LLM_REUSE_TREE,
        .window = (int)s->llm_window,
        .truncate = s->llm_overflow != OVERFLOW_ERROR,
        .warm_only = ctx->stmt->kind == STMT_WARM,
        .cancel = ctx->cancel,
    };
}

void runtime_figures(const llm_runtime *r, llm_figures *out) {
    llm_figures now;
    *out = r->figures;
    for (const engine_session *x = r->sessions.first; x; x = x->next) {
        if (!x->session)
            continue;
        llm_session_figures(x->session, &now);
        llm_figures_add(out, &now);
    }
}

void runtime_memory(const llm_runtime *r, llm_memory *out) {
    llm_memory one;
    *out = (llm_memory){0};
    for (const engine_session *x = r->sessions.first; x; x = x->next) {
        if (!x->session)
            continue;
        llm_session_memory(x->session, &one);
        out->kv_bytes += one.kv_bytes;
        out->kv_budget_bytes += one.kv_budget_bytes;
        out->kv_host_bytes += one.kv_host_bytes;
        out->kv_host_budget_bytes += one.kv_host_budget_bytes;
        out->kv_peak_bytes += one.kv_peak_bytes;
        out->live_sequences += one.live_sequences;
    }
}

static void pass_notice(void *ctx, const char *text) {
    exec_notice(ctx, "%s", text);
}

/* Sets what a session at servers may still spend of the statement's limits. */
static void limit_session(llm_runtime *r, const llm_engine *engine, llm_session_options *o) {
    const settings *set = r->ctx->settings;
    static const double least = 1e-12; /* 0 means no limit */
    llm_figures now;
    if (!llm_engine_info(engine)->remote)
        return;
    runtime_figures(r, &now);
    uint64_t tokens = now.computed_tokens + now.output_tokens,
             most = (uint64_t)BASE_MAX(set->max_tokens_total, 0);
    if (set->max_cost > 0)
        o->max_money = BASE_MAX(set->max_cost - now.money, least);
    if (most > 0)
        o->max_tokens = most > tokens ? most - tokens : 1;
    o->notice = pass_notice;
    o->notice_ctx = r->ctx;
    utf8_copy(r->ctx->counts.summary.currency, sizeof r->ctx->counts.summary.currency,
              str_from(llm_engine_info(engine)->currency));
}

int runtime_session(llm_runtime *r, llm_engine *engine, llm_session **out, err *e) {
    llm_session_options options;
    engine_session *x = sessions_entry(&r->sessions, r, engine, r->mem);
    *out = x->session;
    if (x->session)
        return 0;
    session_options(r->ctx, &options);
    options.kv_memory_bytes = sessions_kv_bytes(r, engine);
    limit_session(r, engine, &options);
    bool keeps = options.reuse == LLM_REUSE_TREE && !llm_engine_info(engine)->remote;
    cache *c = keeps && r->ctx->settings->kv_keep != KEEP_NONE ? runtime_cache(r) : NULL;
    if (c)
        kv_link_open(&x->kv, c, engine, r->ctx->settings->kv_keep == KEEP_ALL,
                     r->ctx->stmt->pin ? &r->pinned : NULL, &options.store);
    int status = llm_session_new(engine, &options, &x->session, e);
    *out = x->session;
    return status;
}

int llm_runtime_pin(exec_ctx *ctx, str name, err *e) {
    const llm_runtime *r = ctx->llm;
    cache_pins pins = {0};
    bool stored = r->sessions.first && r->sessions.first->kv.cache;
    int status = stored ? cache_pin(r->cache, name, r->pinned.keys, r->pinned.count, &pins, e) : 0;
    if (status)
        return status;
    if (pins.blocks == 0) {
        exec_notice(
            ctx, "PIN \"%.*s\": nothing to keep: the prompts share less than a block of %d tokens",
            (int)BASE_MIN(name.n, 100u), name.p, LLM_BLOCK_TOKENS);
        return 0;
    }
    buf bytes = {0};
    buf_append_bytes(&bytes, pins.bytes);
    exec_notice(ctx, "PIN \"%.*s\": %llu block%s kept, %s", (int)BASE_MIN(name.n, 100u), name.p,
                (unsigned long long)pins.blocks, pins.blocks == 1 ? "" : "s", bytes.p);
    buf_free(&bytes);
    return 0;
}

/* ---- examples -------------------------------------------------------------------------------- */

static bool answer_fits(const llm_call *call, str answer) {
    int64_t i;
    double d;
    if (call->returns == RETURNS_TEXT)
        return true;
    for (int k = 0; k < call->nliterals; k++)
        if (str_equal(call->literals[k], answer))
            return true;
    if (call->nliterals > 0)
        return false;
    return call->returns == RETURNS_INTEGER ? parse_integer(answer, &i) : parse_real(answer, &d);
}

/* Makes the answer of an example as the model would write it: true or false if the call returns
 * BOOLEAN and the answer is one of the texts that a BOOLEAN is read from. */
static int example_answer(const llm_call *call, value v, int64_t row, arena *mem, str *out,
                          err *e) {
    value text;
    bool on, field = call->field.n > 0;
    if (v.type == TYPE_NULL && field)
        return 0;
    if (v.type == TYPE_NULL)
        return err_set_at(e, ERR_TYPE, call->pos, call->len,
                          "example %lld of %.*s: its column \"answer\" is NULL", (long long)row + 1,
                          (int)call->label.n, call->label.p);
    /* the fields of a STRUCT have the same examples, whatever their types */
    if (call->returns == RETURNS_BOOLEAN && !field && parse_boolean(v, &on)) {
        *out = llm_boolean_literal(on);
    } else {
        int status = value_cast(mem, v, TYPE_TEXT, &text, e);
        if (status)
            return status;
        *out = str_copy(mem, text.s);
    }
    if (answer_fits(call, *out))
        return 0;
    err_set_at(e, ERR_TYPE, call->pos, call->len,
               "example %lld of %.*s: '%.*s' is not an answer of type %s", (long long)row + 1,
               (int)call->label.n, call->label.p, (int)BASE_MIN(out->n, 60u), out->p,
               llm_returns_name(call->returns));
    if (call->nliterals > 0)
        err_hint(e, "the call may answer '%.*s'%s'%.*s'", (int)BASE_MIN(call->literals[0].n, 60u),
                 call->literals[0].p, call->nliterals > 2 ? " … " : " or ",
                 (int)BASE_MIN(call->literals[call->nliterals - 1].n, 60u),
                 call->literals[call->nliterals - 1].p);
    return ERR_TYPE;
}

static int example_row(const llm_call *call, const rowset *rows, int64_t row, arena *mem,
                       prompt_example *out, err *e) {
    value v, text;
    out->fields = ARENA_ARRAY(mem, str, call->nfields + 1);
    for (int k = 0; k < call->nexample_fields; k++) {
        v = rowset_get(rows, row, k);
        if (v.type == TYPE_NULL)
            continue;
        int status = value_cast(mem, v, TYPE_TEXT, &text, e);
        if (status)
            return status;
        out->fields[call->example_fields[k]] = str_copy(mem, text.s);
    }
    out->answers = ARENA_ARRAY(mem, str, call->nexample_answers + 1);
    for (int k = 0; k < call->nexample_answers; k++) {
        v = rowset_get(rows, row, call->nexample_fields + k);
        int status = 0;
        if (k == call->example_answer)
            status = example_answer(call, v, row, mem, &out->answers[k], e);
        else if (v.type != TYPE_NULL && (status = value_cast(mem, v, TYPE_TEXT, &text, e)) == 0)
            out->answers[k] = str_copy(mem, text.s);
        if (status)
            return status;
    }
    return 0;
}

int examples_read(exec_ctx *ctx, const llm_call *call, arena *mem, prompt_example **out, int *count,
                  err *e) {
    const plan_node *node = NULL;
    op *o = NULL;
    for (int i = 0; i < ctx->stmt->ncalls; i++)
        if (ctx->stmt->calls[i] == call)
            node = ctx->plan->examples[i];
    *count = 0;
    if (!node)
        return 0;
    int status = op_build(ctx, node, &o, e);
    rowset *rows = rowset_new(ctx, node->types, node->ncols);
    if (status == 0)
        status = op_drain(o, rows, e);
    op_close(o);
    int64_t n = rowset_rows(rows);
    *out = ARENA_ARRAY(mem, prompt_example, n + 1);
    for (int64_t row = 0; row < n && status == 0; row++)
        status = example_row(call, rows, row, mem, &(*out)[row], e);
    *count = (int)n;
    rowset_free(rows);
    return status;
}

int llm_runtime_examples(exec_ctx *ctx, err *e) {
    llm_runtime *r = ctx->llm;
    int status = 0;
    for (int i = 0; r && i < ctx->stmt->ncalls && status == 0; i++) {
        const llm_call *call = ctx->stmt->calls[i];
        int at = call->number - 1;
        if (call->examples && !r->examples[at])
            status = examples_read(ctx, call, r->mem, &r->examples[at], &r->nexamples[at], e);
    }
    return status;
}
