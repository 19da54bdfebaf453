/*
 * llm_ask.c - one stage's calls over chosen rows: what is known already, what the engine is asked,
 * and its answers as they come.
 *
 * Invariant: an answer is in the memo, and where the cache is on also on disk, as soon as it is
 * there, so that a cancelled statement loses none that it paid for (DESIGN 2.6). Inputs go out in
 * the solver's order; where the data stand first, the questions about a row one after the other.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"

enum { EVENTS_AT_ONCE = 64 };

/* ---- progress -------------------------------------------------------------------------------- */

/* Inputs asked about so far, and those that are expected to be. */
static uint64_t expected_inputs(const llm_state *s) {
    double total = 0;
    for (int i = 0; i < s->nstages && s->prepared; i++) {
        double share = llm_rank_share(s, i), inputs = 0;
        for (int k = 0; k < s->stages[i].plan->nsites; k++)
            inputs += s->uses[s->stages[i].first_use + k].in->count;
        bool over = s->decided_rows == rowset_rows(s->rows);
        double asked = (double)s->stages[i].inputs_asked;
        total += over ? asked : BASE_MAX(asked, share * inputs);
    }
    return BASE_MAX((uint64_t)(total + 0.5), s->inputs_done);
}

void llm_publish(op *o, const char *phase) {
    llm_state *s = o->state;
    exec_progress *p = &s->progress;
    p->llm_running = true;
    strncpy(p->phase, phase, sizeof p->phase - 1);
    p->rows_total = expected_inputs(s);
    p->rows_done = s->inputs_done;
    p->seconds = clock_seconds() - o->ctx->llm->started_s;
    p->llm_seconds = clock_seconds() - s->started_s;
    runtime_figures(o->ctx->llm, &p->llm);
    runtime_memory(o->ctx->llm, &p->memory);
    p->held_seconds = o->ctx->counts.summary.held_seconds;
    watch_details(o->ctx, p, false);
    progress_publish(o->ctx->progress, p);
}

/* The first row that has this input, from 1, for messages. */
static int64_t row_of_input(const llm_inputs *in, uint32_t input) {
    for (int64_t r = 0; r < in->rows; r++)
        if (in->of_row[r] == input)
            return r + 1;
    return 0;
}

static void keep_answer(op *o, use_run *u, uint32_t input, const llm_answer *a) {
    answer_memo *memo = o->ctx->llm->memo;
    if (!u->answers[input])
        u->answers[input] = answer_memo_expect(memo);
    answer_memo_fill(memo, u->answers[input], a);
    /* without dedup rows are asked apart on purpose */
    if (o->ctx->settings->dedup)
        answer_memo_link(memo, inputs_key(u->in, u->use->call, input), u->answers[input]);
    ((llm_state *)o->state)->inputs_done++;
}

bool llm_answers_wanted(const exec_ctx *ctx) {
    return !ctx->count_only && ctx->stmt->kind != STMT_WARM;
}

/* WARM has none: it is there for the KV. */
cache *llm_answers_cache(const exec_ctx *ctx) {
    bool wanted = ctx->settings->answer_cache && ctx->stmt->kind != STMT_WARM;
    return wanted ? runtime_cache(ctx->llm) : NULL;
}

/* An answer that is known or on its way already: the statement's own - to the same fields of the
 * call, or to another call that came to the same prompt -, or (*stored) one from disk, whose text
 * is in `mem`. If there is none, *id is what the prompt is known by. */
static bool look_up(op *o, const use_run *u, uint32_t input, llm_span **spans, int nspans,
                    answer_id *id, arena *mem, llm_answer **own, llm_answer *stored) {
    exec_ctx *ctx = o->ctx;
    cache *c = llm_answers_cache(ctx);
    bool dedup = ctx->settings->dedup;
    *own = dedup ? answer_memo_find(ctx->llm->memo, inputs_key(u->in, u->use->call, input)) : NULL;
    if (*own)
        return true;
    answer_identify(u->prompt, ctx->settings, spans, nspans, id);
    *own = dedup ? answer_memo_find(ctx->llm->memo, id->key) : NULL;
    return *own ||
           (c && answer_load(c, id, ctx->settings->llm_overflow != OVERFLOW_ERROR, mem, stored));
}

/* Takes an answer that is known already; if there is none, it is expected from now on. */
static bool find_known(op *o, use_run *u, uint32_t input, llm_span **spans, int nspans,
                       answer_id *id) {
    llm_state *s = o->state;
    llm_answer *own, stored;
    arena_reset(s->scratch); /* of a stored answer's text, until it is kept */
    bool known = look_up(o, u, input, spans, nspans, id, s->scratch, &own, &stored);
    if (!own && o->ctx->settings->dedup) {
        u->answers[input] = answer_memo_expect(o->ctx->llm->memo);
        answer_memo_link(o->ctx->llm->memo, id->key, u->answers[input]);
    }
    if (!known)
        return false;
    if (own) {
        u->answers[input] = own;
        o->ctx->llm->figures.answers_repeated++;
        s->inputs_done++;
        return true;
    }
    keep_answer(o, u, input, &stored);
    watch_stored(o->ctx->llm, spans, nspans);
    o->ctx->llm->figures.answers_stored++;
    return true;
}

enum { KNOWN_SAMPLE = 64 };

/* The share of a use's answers that are known, by some of its inputs. */
static double known_share(op *o, const use_run *u) {
    llm_span **spans = mem_alloc(sizeof *spans * (size_t)prompt_max_spans(u->prompt));
    answer_id id = {0};
    arena *mem = arena_new();
    uint32_t step = BASE_MAX(1u, u->in->count / KNOWN_SAMPLE), asked = 0, known = 0;
    for (uint32_t i = 0; i < u->in->count; i += step, asked++) {
        const uint8_t *order = u->order.psm.field_order + (size_t)i * (size_t)u->in->nfields;
        llm_answer *own, stored;
        int nspans = prompt_spans(u->prompt, u->in, i, order, spans);
        known += look_up(o, u, i, spans, nspans, &id, mem, &own, &stored);
        arena_reset(mem);
    }
    arena_free(mem);
    buf_free(&id.identity);
    free(spans);
    return asked ? (double)known / asked : 0;
}

void llm_ask_known(op *o) {
    llm_state *s = o->state;
    for (int i = 0; i < s->nstages && llm_rank_free(s); i++) {
        llm_stage *t = &s->stages[i];
        for (int k = 0; k < t->plan->nsites; k++)
            t->known += known_share(o, &s->uses[t->first_use + k]) / t->plan->nsites;
    }
}

/* What it holds of a prompt beside its tokens: the request, its lists, a node of the tree. And how
 * many prompts it sees at least, however little memory there is. */
enum { QUEUED_BYTES = 1024, QUEUED_LEAST = 512 };

bool llm_queue_is_full(const exec_ctx *ctx, const llm_sending *how) {
    return how->queued >= QUEUED_LEAST && how->queued_bytes > (size_t)ctx->settings->work_memory;
}

void llm_queue_add(llm_sending *how, int nspans) {
    how->queued++;
    how->queued_bytes += QUEUED_BYTES;
    for (int i = 0; i < nspans; i++) {
        size_t count;
        llm_span_tokens(how->spans[i], &count);
        how->queued_bytes += count * sizeof(llm_token);
    }
}

bool llm_asked_again(const llm_state *s, const use_run *u, uint32_t done) {
    for (int i = 0; i < s->nuses && u->prompt->data_first; i++)
        if (s->uses[i].leader == u->leader && s->uses[i].stage != u->stage &&
            !(done >> s->uses[i].stage & 1))
            return true;
    return false;
}

llm_sending llm_sending_new(const use_run *u, bool keep, arena *mem) {
    return (llm_sending){.keep = keep,
                         .spans = ARENA_ARRAY(mem, llm_span *, prompt_max_spans(u->prompt)),
                         .named = ARENA_ARRAY(mem, bool, prompt_max_spans(u->prompt))};
}

static void named_values(const prompt *p, llm_span *const *spans, int nspans, bool *named) {
    memset(named, 0, sizeof *named * (size_t)nspans);
    for (int i = 0; i + 1 < nspans; i++) {
        int f = prompt_named_field(p, spans[i]);
        if (f >= 0)
            named[i + 1] = p->call->field_required[f];
    }
}

llm_request llm_ask_request(op *o, int use, uint32_t input, const llm_sending *how, int nspans,
                            str *own) {
    const use_run *u = &((llm_state *)o->state)->uses[use];
    const settings *set = o->ctx->settings;
    bool may_lose = set->llm_overflow != OVERFLOW_ERROR;
    if (may_lose)
        named_values(u->prompt, how->spans, nspans, how->named);
    llm_request request = {.tag = (uint64_t)use << 32 | input,
                           .spans = how->spans,
                           .nspans = nspans,
                           .head_tokens = (int)u->prompt->head_tokens,
                           .named = may_lose ? how->named : NULL,
                           .guide = u->prompt->guide,
                           .after = u->prompt->tmpl,
                           .max_tokens = llm_call_max_tokens(set, u->use->call),
                           .keep = how->keep};
    call_sampling(set, u->use->call, &request.sampling);
    request.nstop = call_stops(set, u->use->call, own, &request.stop);
    return request;
}

/* What goes with every input of one submission. */
typedef struct submission {
    llm_session *session;
    llm_sending how;
    answer_id id;
} submission;

static int submit_input(op *o, int use, uint32_t input, submission *sub, int nspans, err *e) {
    llm_state *s = o->state;
    use_run *u = &s->uses[use];
    const settings *set = o->ctx->settings;
    str own;
    llm_request request = llm_ask_request(o, use, input, &sub->how, nspans, &own);
    int status = llm_submit(sub->session, &request, e);
    if (status == 0) {
        llm_queue_add(&sub->how, nspans);
        return 0;
    }
    if (set->llm_on_error == ON_ERROR_NULL && status != ERR_CANCELLED) {
        keep_answer(o, u, input,
                    &(llm_answer){.failed = true, .choice = -1, .text = str_from(e->message)});
        err_clear(e);
        return 0;
    }
    err reason = *e;
    err_set_at(e, reason.code, u->use->call->pos, u->use->call->len, "LLM#%d, row %lld: %s",
               u->use->call->number, (long long)row_of_input(u->in, input), reason.message);
    if (reason.hint[0] != '\0')
        err_hint(e, "%s", reason.hint);
    else if (reason.code == ERR_LIMIT)
        err_hint(e, "%sSET llm_on_error = 'null' passes their rows over",
                 set->llm_overflow == OVERFLOW_ERROR
                     ? "SET llm_overflow = 'truncate' leaves fields out of such prompts, "
                     : "");
    return (int)reason.code;
}

/* Queues one input unless it has an answer. */
static int ask_input(op *o, int use, uint32_t input, submission *sub, err *e) {
    use_run *u = &((llm_state *)o->state)->uses[use];
    if (u->answers[input] || (u->state[input] & INPUT_QUEUED))
        return 0;
    const uint8_t *order = u->order.psm.field_order + (size_t)input * (size_t)u->in->nfields;
    int nspans = prompt_spans(u->prompt, u->in, input, order, sub->how.spans);
    if (find_known(o, u, input, sub->how.spans, nspans, &sub->id))
        return 0;
    u->state[input] |= INPUT_QUEUED;
    return submit_input(o, use, input, sub, nspans, e);
}

/* Marks the inputs that rows[0..count) need of this use, and counts them where they are new. */
static int want_inputs(op *o, use_run *u, const int64_t *rows, int64_t count, err *e) {
    llm_state *s = o->state;
    llm_figures *figures = &o->ctx->llm->figures;
    int64_t asking = count;
    arena *mem = NULL;
    int status = 0;
    if (o->ctx->llm->sample > 0 && (u->use->late_guard || !llm_sample_wants(o->ctx, u->use)))
        return 0;
    if (u->use->late_guard) {
        mem = arena_new_in(o->ctx->space);
        int64_t *guarded = arena_alloc(mem, sizeof *guarded * (size_t)BASE_MAX(count, 1));
        status = llm_rows_where(o, u->use->guard, rows, count, guarded, &asking, e);
        for (int64_t i = 0; i < asking && status == 0; i++)
            u->guarded[guarded[i]] = 1;
        rows = guarded;
    }
    for (int64_t i = 0; i < asking && status == 0; i++) {
        uint32_t input = u->in->of_row[rows[i]];
        if (input == NO_INPUT)
            continue;
        bool again = o->ctx->llm->sample > 0 || (u->state[input] & INPUT_COUNTED);
        figures->inputs += o->ctx->llm->sample == 0;
        figures->distinct_inputs += !again;
        s->stages[u->stage].inputs_asked += !again;
        u->state[input] |= INPUT_WANTED | INPUT_COUNTED;
    }
    arena_free(mem);
    return status;
}

static int by_rank(const void *a, const void *b) {
    uint32_t x = ((const placed_input *)a)->rank, y = ((const placed_input *)b)->rank;
    return (x > y) - (x < y);
}

placed_input *llm_inputs_in_order(const llm_inputs *in, const uint32_t *rank, const int64_t *rows,
                                  int64_t count, arena *mem, size_t *n) {
    placed_input *list = arena_alloc(mem, sizeof *list * (size_t)BASE_MAX(count, 1));
    size_t k = 0, distinct = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t input = in->of_row[rows[i]];
        if (input != NO_INPUT)
            list[k++] = (placed_input){rank[input], input};
    }
    qsort(list, k, sizeof *list, by_rank);
    for (size_t i = 0; i < k; i++)
        if (i == 0 || list[i].input != list[i - 1].input)
            list[distinct++] = list[i];
    *n = distinct;
    return list;
}

bool llm_goes_along(const llm_state *s, int first, int i) {
    const use_run *u = &s->uses[i];
    return i == first || (i > first && u->stage == s->uses[first].stage &&
                          u->leader == s->uses[first].leader && u->prompt->data_first);
}

bool llm_went_along(const llm_state *s, int use) {
    for (int i = s->stages[s->uses[use].stage].first_use; i < use; i++)
        if (llm_goes_along(s, i, use))
            return true;
    return false;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void learn(use_run *u, const llm_event *event) {
    u->learned = true;
    u->facts.answers++;
    u->facts.output_tokens += (uint64_t)event->output_tokens;
    if (event->choice >= 0 && event->choice < (int)BASE_COUNT(u->facts.literal_counts))
        u->facts.literal_counts[event->choice]++;
}

static void take_event(op *o, const llm_event *event) {
    llm_state *s = o->state;
    use_run *u = &s->uses[event->tag >> 32];
    uint32_t input = (uint32_t)event->tag;
    llm_answer a = {.text = event->text,
                    .choice = event->choice,
                    .prob = event->prob,
                    .ended = event->finish == LLM_FINISH_LENGTH,
                    .shortened = event->shortened,
                    .output_tokens = (uint32_t)event->output_tokens};
    if (o->ctx->stmt->kind == STMT_WARM) {
        a = (llm_answer){.text = STR(""), .choice = -1, .failed = true};
        keep_answer(o, u, input, &a);
        return;
    }
    keep_answer(o, u, input, &a);
    learn(u, event);
    const uint8_t *order = u->order.psm.field_order + (size_t)input * (size_t)u->in->nfields;
    watch_prompt(&s->progress, event, u->in, input, order);
    utf8_copy(s->progress.last_answer, sizeof s->progress.last_answer, event->text);
    cache *c = llm_answers_cache(o->ctx);
    if (!c)
        return;
    answer_id id = {0};
    llm_span **spans = mem_alloc(sizeof *spans * (size_t)prompt_max_spans(u->prompt));
    answer_identify(u->prompt, o->ctx->settings, spans,
                    prompt_spans(u->prompt, u->in, input, order, spans), &id);
    const llm_model_info *info = llm_engine_info(u->engine);
    double rate = info->prefill_tok_s > 0 ? info->prefill_tok_s : 2000;
    answer_store(c, &id, &a, 1e3 * (double)event->computed_tokens / rate);
    s->progress.answers_kept++;
    buf_free(&id.identity);
    free(spans);
}

static int check_caps(op *o, err *e) {
    const settings *set = o->ctx->settings;
    llm_state *s = o->state;
    llm_figures now;
    int status = 0;
    uint64_t inputs = 0;
    for (int i = 0; i < s->nuses; i++)
        inputs += (uint64_t)s->uses[i].in->count;
    if (s->inputs_done >= inputs)
        return 0; /* all is spent: an error would only withhold what was paid for */
    runtime_figures(o->ctx->llm, &now);
    if (set->max_tokens_total > 0 &&
        now.computed_tokens + now.output_tokens > (uint64_t)set->max_tokens_total)
        status = err_set(e, ERR_LIMIT,
                         "stopped: more than max_tokens_total = %lld tokens computed (%llu of %llu "
                         "answers done)",
                         (long long)set->max_tokens_total, (unsigned long long)s->inputs_done,
                         (unsigned long long)expected_inputs(s));
    else if (set->max_seconds > 0 && clock_seconds() - o->ctx->llm->started_s > set->max_seconds)
        status = err_set(e, ERR_LIMIT,
                         "stopped: more than max_seconds = %g s (%llu of %llu answers done)",
                         set->max_seconds, (unsigned long long)s->inputs_done,
                         (unsigned long long)expected_inputs(s));
    if (status != 0 && s->progress.answers_kept > 0)
        err_hint(e, "its answers are kept: run it again to go on from there");
    return status;
}

void llm_ask_remember(op *o) {
    llm_state *s = o->state;
    for (int i = 0; i < s->nuses; i++) {
        use_run *u = &s->uses[i];
        if (u->learned && o->ctx->llm->sample > 0)
            o->ctx->llm->sampled[u->use->call->number - 1] = u->facts;
        if (u->learned) /* a commit is not free */
            facts_remember(o->ctx, u->use->call, llm_engine_info(u->engine)->fingerprint,
                           &u->facts);
    }
}

/* ---- what answers are worth ------------------------------------------------------------------ */

/* How many of a use's answers are of a kind, and the first row that has one. */
typedef struct answer_kind {
    bool (*is)(const llm_answer *);
    uint32_t count, of;
    long long row; /* from 1 */
    const llm_answer *first;
} answer_kind;

static bool was_ended(const llm_answer *a) {
    return a->ended;
}

static bool was_shortened(const llm_answer *a) {
    return a->shortened;
}

static bool has_failed(const llm_answer *a) {
    return a->failed;
}

static answer_kind answers_of(const use_run *u, bool (*is)(const llm_answer *)) {
    answer_kind k = {.is = is};
    for (uint32_t i = 0; i < u->in->count; i++) {
        bool known = u->answers[i] != NULL && !u->answers[i]->waits;
        k.of += known;
        k.count += known && is(u->answers[i]);
    }
    for (int64_t r = 0; k.count > 0 && k.first == NULL && r < u->in->rows; r++) {
        uint32_t input = u->in->of_row[r];
        const llm_answer *a = input != NO_INPUT ? u->answers[input] : NULL;
        k.row = (long long)r + 1;
        k.first = a != NULL && !a->waits && is(a) ? a : NULL;
    }
    return k;
}

static void use_tell(op *o, const use_run *u) {
    const llm_call *call = u->use->call;
    answer_kind ended = answers_of(u, was_ended), cut = answers_of(u, was_shortened),
                failed = answers_of(u, has_failed);
    if (ended.count > 0)
        exec_notice(o->ctx,
                    "LLM#%d: %u of %u answers end at max_tokens = %d, the first in row %lld",
                    call->number, ended.count, ended.of,
                    llm_call_max_tokens(o->ctx->settings, call), ended.row);
    if (cut.count > 0)
        exec_notice(o->ctx,
                    "LLM#%d: %u of %u prompts left fields out to fit the model's context of %d "
                    "tokens, the first for row %lld",
                    call->number, cut.count, cut.of, llm_engine_info(u->engine)->context, cut.row);
    if (failed.count > 0)
        exec_notice(o->ctx,
                    "LLM#%d: %u of %u calls failed and are NULL, the first in row %lld: %.*s",
                    call->number, failed.count, failed.of, failed.row, (int)failed.first->text.n,
                    failed.first->text.p);
    o->ctx->llm->figures.answers_ended += ended.count;
    o->ctx->llm->figures.prompts_shortened += cut.count;
}

void llm_ask_tell(op *o) {
    llm_state *s = o->state;
    for (int i = 0; i < s->nuses; i++)
        if (s->uses[i].answers != NULL && o->ctx->llm->sample == 0 &&
            o->ctx->stmt->kind != STMT_WARM)
            use_tell(o, &s->uses[i]);
}

/* ---- what other strategies would cost -------------------------------------------------------- */

/* For a view that compares, once: the model waits meanwhile. */
static int count_baselines(op *o, err *e) {
    llm_state *s = o->state;
    exec_progress *p = &s->progress;
    count_run runs[COUNT_STRATEGIES] = {0};
    if (p->nbaselines || !o->ctx->view ||
        !atomic_load_explicit(&o->ctx->view->compared, memory_order_relaxed))
        return 0;
    llm_publish(o, "counting");
    plan_actual *counted = ARENA_ARRAY(o->mem, plan_actual, s->nstages + 1);
    int status = llm_count_stages(o, runs, counted, e);
    for (int i = 0; i < s->nstages && status == 0; i++)
        for (int k = 0; k < counted[i].ntokens; k++)
            watch_baseline(p, counted[i].tokens[k].strategy,
                           counted[i].tokens[k].llm.computed_tokens);
    for (int k = 0; k < COUNT_STRATEGIES; k++)
        count_run_close(&runs[k]);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Time that a person held the statement is nobody's: clocks that began before it are set on. */
static void wait_while_paused(op *o, double *started) {
    llm_state *s = o->state;
    double held = watch_pause(o->ctx, &s->progress, llm_publish, o);
    *started += held;
    s->started_s += held;
    o->ctx->llm->started_s += held;
    o->ctx->counts.summary.held_seconds += held;
}

/* Before the first pass weights may have to be read, which takes long where they are many. */
static const char *phase_of(const op *o) {
    llm_figures session = {0};
    if (o->ctx->llm->session)
        llm_session_figures(o->ctx->llm->session, &session);
    return session.passes > 0 ? "model" : "starting the model";
}

/* Runs the engine until it is idle. */
static int run_session(op *o, double *started, err *e) {
    llm_event events[EVENTS_AT_ONCE];
    int status = 0, count = 0;
    bool idle = false;
    llm_publish(o, phase_of(o));
    while (status == 0 && !idle && o->ctx->llm->session) {
        wait_while_paused(o, started);
        status = llm_step(o->ctx->llm->session, events, EVENTS_AT_ONCE, &count, &idle, e);
        for (int i = 0; i < count; i++)
            take_event(o, &events[i]);
        llm_publish(o, phase_of(o));
        if (status == 0)
            status = arena_full_error(o->ctx->llm->kept, e);
        if (status == 0)
            status = check_caps(o, e);
        if (status == 0)
            status = count_baselines(o, e);
    }
    return status;
}

/* ---- submitting ------------------------------------------------------------------------------ */

/* Queues the inputs of these rows that have no answer yet, for a use and those that go along. More
 * of them than memory has room for are answered meanwhile. */
static int submit_use(op *o, int use, uint32_t done, const int64_t *rows, int64_t count,
                      double *started, err *e) {
    llm_state *s = o->state;
    use_run *u = &s->uses[use];
    size_t n;
    arena *mem = arena_new_in(o->ctx->space);
    submission sub = {.how = llm_sending_new(u, llm_asked_again(s, u, done), mem)};
    int end = s->stages[u->stage].first_use + s->stages[u->stage].plan->nsites;
    int status = runtime_session(o->ctx->llm, u->engine, &sub.session, e);
    for (int i = use; i < end && status == 0; i++)
        if (llm_goes_along(s, use, i))
            status = want_inputs(o, &s->uses[i], rows, count, e);
    placed_input *list = llm_inputs_in_order(u->in, u->rank, rows, count, mem, &n);
    for (size_t k = 0; k < n && status == 0; k++) {
        for (int i = use; i < end && status == 0; i++)
            if (llm_goes_along(s, use, i) && (s->uses[i].state[list[k].input] & INPUT_WANTED))
                status = ask_input(o, i, list[k].input, &sub, e);
        if (status == 0 && llm_queue_is_full(o->ctx, &sub.how)) {
            status = run_session(o, started, e);
            sub.how.queued = sub.how.queued_bytes = 0;
        }
    }
    for (int i = use; i < end; i++)
        for (size_t k = 0; k < n && llm_goes_along(s, use, i); k++)
            s->uses[i].state[list[k].input] &= (uint8_t)~INPUT_WANTED;
    buf_free(&sub.id.identity);
    arena_free(mem);
    return status ? status : arena_full_error(o->ctx->llm->kept, e);
}

/* Counts what was done since `before` as this stage's: no other stage runs meanwhile. */
static void count_work(op *o, llm_stage *t, const llm_figures *before) {
    llm_figures now;
    runtime_figures(o->ctx->llm, &now);
    llm_figures_add_since(&t->actual.llm, before, &now);
    t->tokens += now.computed_tokens - before->computed_tokens +
                 (uint64_t)OUTPUT_WEIGHT * (now.output_tokens - before->output_tokens);
}

/* A session serves one engine: the uses go engine by engine. */
static int ask_engine(op *o, int first, uint32_t done, const int64_t *rows, int64_t count,
                      double *started, err *e) {
    llm_state *s = o->state;
    int end = s->stages[s->uses[first].stage].first_use +
              s->stages[s->uses[first].stage].plan->nsites,
        status = 0;
    for (int i = first; i < end && status == 0; i++)
        if (s->uses[i].engine == s->uses[first].engine && !llm_went_along(s, i))
            status = submit_use(o, i, done, rows, count, started, e);
    return status ? status : run_session(o, started, e);
}

bool llm_engine_is_first(const llm_state *s, int use) {
    for (int i = s->stages[s->uses[use].stage].first_use; i < use; i++)
        if (s->uses[i].engine == s->uses[use].engine)
            return false;
    return true;
}

int llm_ask_stage(op *o, int stage, uint32_t done, const int64_t *rows, int64_t count, err *e) {
    llm_state *s = o->state;
    llm_stage *t = &s->stages[stage];
    llm_figures before;
    int status = 0;
    double started = clock_seconds();
    s->progress.operator_number = s->operators_before + stage + 1;
    runtime_figures(o->ctx->llm, &before);
    for (int i = t->first_use; i < t->first_use + t->plan->nsites && status == 0; i++)
        if (llm_engine_is_first(s, i))
            status = ask_engine(o, i, done, rows, count, &started, e);
    count_work(o, t, &before);
    double seconds = clock_seconds() - started;
    t->ms += 1e3 * seconds;
    o->ctx->counts.summary.llm_seconds += seconds;
    return status;
}
