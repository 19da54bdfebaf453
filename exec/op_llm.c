/*
 * op_llm.c - the LLM operator: gathers all its input, dedups it, orders it, asks the engine, hands answers back in input order.
 *
 *   left --drain--> rowset --per use--> inputs, prompt, order --> answers by input --> batches with the answer columns
 *
 * Invariant: the rows come out as they came in, whatever the order of the prompts (DIALECT 4). Answers arrive in the memo and, where
 * the cache is on, on disk one by one, so that a cancelled statement loses none that it paid for (DESIGN 2.6).
 * With a LIMIT above (node->llm.wanted) rows are answered in waves, in input order; else all at once.
 * Uses that ask about the same fields form a group: its inputs are gathered and tokenized once, and where the data stand first
 * (llm_layout.c) the questions about a row are sent one after the other, so that they share it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "watch_int.h"

/* One use of the node while it runs. */
typedef struct use_run {
    const plan_llm_use *use;
    struct use_run *leader; /* the first use of its group: maybe itself */
    llm_engine *engine;
    llm_inputs *in;
    prompt *prompt;
    input_order order;
    const llm_answer **answers; /* by input; NULL: not yet */
    bool *queued;
    uint64_t stored;
    call_facts facts;
    bool learned; /* `facts` are more than the record's */
} use_run;

typedef struct llm_state {
    rowset *rows;
    use_run *uses;
    int nuses;
    int64_t answered_rows, emitted_rows, wave;
    int64_t step; /* every step-th row is asked: 1, or more in a sample */
    bool prepared;
    uint64_t inputs_total, inputs_done;
    uint64_t head_tokens;
    double started_s;
    exec_progress progress;
} llm_state;

/* ---- preparation ------------------------------------------------------------------------------- */

static psm_strategy strategy_of(const settings *s) {
    static const psm_strategy strategies[] = {PSM_OFF, PSM_FIXED, PSM_GROUPED, PSM_AUTO};
    return strategies[s->psm];
}

static int solve_order(op *o, use_run *u, err *e) {
    double started = clock_seconds();
    int status =
        order_solve(o->ctx, u->prompt, u->in, strategy_of(o->ctx->settings), o->mem, &u->order, e);
    o->ctx->summary.solve_seconds += clock_seconds() - started;
    return status;
}

/* The examples follow the statement's field order, so they join the head once the order is known. */
static void place_examples(op *o, use_run *u) {
    const llm_runtime *r = o->ctx->llm;
    int at = u->use->call->number - 1;
    const uint8_t *order = u->in->count ? u->order.psm.field_order : NULL;
    uint8_t whole[PSM_MAX_FIELDS];
    if (order && u->order.psm.ngroups > 0) {
        /* absent fields stand last in a row's order: take the order that most rows have */
        bool used[PSM_MAX_FIELDS] = {false};
        int n = 0;
        for (int k = 0; k < u->order.psm.groups[0].fields; k++) {
            whole[n++] = u->order.psm.groups[0].order[k];
            used[whole[n - 1]] = true;
        }
        for (int f = 0; f < u->in->nfields; f++)
            if (!used[f])
                whole[n++] = (uint8_t)f;
        order = whole;
    }
    prompt_close_head(u->prompt, r->examples[at], r->nexamples[at], order);
}

static bool data_first_wanted(const settings *s) {
    return s->llm_layout == LAYOUT_DATA_FIRST;
}

/* Inputs, tokens and field order of one use; its group's where it has a leader. */
static int prepare_use(op *o, use_run *u, err *e) {
    exec_ctx *ctx = o->ctx;
    bool leads = u->leader == u;
    int status = runtime_engine(ctx->llm, u->use->call, &u->engine, e);
    u->in = u->leader->in;
    if (status == 0 && leads)
        status = inputs_gather(ctx, u->use, ((llm_state *)o->state)->rows, ctx->settings->dedup,
                               o->mem, &u->in, e);
    if (status)
        return status;
    prompt_spec spec = {.call = u->use->call,
                        .engine = u->engine,
                        .settings = ctx->settings,
                        .data_first = data_first_wanted(ctx->settings),
                        .like = leads ? NULL : u->leader->prompt};
    status = prompt_new(&spec, u->in, &u->prompt, e);
    if (status == 0)
        status = solve_order(o, u, e);
    if (status)
        return status;
    u->answers = ARENA_ARRAY(o->mem, const llm_answer *, u->in->count + 1);
    u->queued = ARENA_ARRAY(o->mem, bool, u->in->count + 1);
    facts_recall(ctx, u->use->call, llm_engine_info(u->engine)->fingerprint, &u->facts);
    ctx->summary.llm_inputs += (uint64_t)u->in->needed_rows;
    ctx->summary.distinct_inputs += u->in->count;
    o->actual.distinct_inputs += u->in->count;
    return 0;
}

/* Lets the group of `leader` send the data first where that computes fewer tokens; they then stand in one order for all its calls. */
static int lay_out_group(op *o, use_run *leader, err *e) {
    llm_state *s = o->state;
    const prompt **calls = ARENA_ARRAY(o->mem, const prompt *, s->nuses + 1);
    llm_inputs *distinct = leader->in;
    bool data_first = false;
    int count = 0, status = 0;
    for (int i = 0; i < s->nuses; i++)
        if (s->uses[i].leader == leader)
            calls[count++] = s->uses[i].prompt;
    if (count < 2 || o->ctx->settings->llm_layout == LAYOUT_INSTRUCTION_FIRST)
        return 0;
    if (data_first_wanted(o->ctx->settings))
        data_first = true;
    else if (!o->ctx->settings
                  ->dedup) /* whether rows are asked apart must not change what they are asked */
        status = inputs_gather(o->ctx, leader->use, s->rows, true, o->mem, &distinct, e);
    if (status == 0 && !data_first)
        status = layout_choose(calls, count, distinct, &data_first, e);
    for (int i = 0; i < s->nuses && status == 0 && data_first; i++) {
        use_run *u = &s->uses[i];
        if (u->leader != leader)
            continue;
        prompt_lay_out(u->prompt, true);
        u->order = leader->order;
    }
    return status;
}

/* "synopsis, review", with the call's number where the uses differ, and what stands first. */
static str orders_text(op *o) {
    llm_state *s = o->state;
    buf b = {0};
    bool alike = true;
    for (int i = 1; i < s->nuses; i++)
        alike = alike && str_equal(s->uses[i].order.text, s->uses[0].order.text) &&
                s->uses[i].prompt->data_first == s->uses[0].prompt->data_first;
    for (int i = 0; i < (alike ? BASE_MIN(s->nuses, 1) : s->nuses); i++) {
        const use_run *u = &s->uses[i];
        if (!alike)
            buf_printf(&b, "%s#%d ", i ? ", then " : "", u->use->call->number);
        buf_append_str(&b, u->order.text);
        if (u->prompt->data_first && u->order.text.n > 0)
            buf_append_c(&b, ", before the instruction");
    }
    str text = str_copy(o->mem, buf_str(&b));
    buf_free(&b);
    return text;
}

/* The same fields of the same rows. */
static bool share_rows(const plan_llm_use *a, const plan_llm_use *b) {
    return !a->guard && !b->guard && llm_calls_share_fields(a->call, a->args, b->call, b->args);
}

static int prepare_uses(op *o, err *e) {
    llm_state *s = o->state;
    int status = 0;
    for (int i = 0; i < s->nuses; i++) {
        s->uses[i].leader = &s->uses[i];
        for (int k = 0; k < i && s->uses[i].leader == &s->uses[i]; k++)
            if (share_rows(s->uses[k].use, s->uses[i].use))
                s->uses[i].leader = s->uses[k].leader;
    }
    for (int i = 0; i < s->nuses && status == 0; i++) {
        status = prepare_use(o, &s->uses[i], e);
        s->inputs_total += s->uses[i].in ? s->uses[i].in->count : 0;
    }
    for (int i = 0; i < s->nuses && status == 0; i++)
        if (s->uses[i].leader == &s->uses[i])
            status = lay_out_group(o, &s->uses[i], e);
    for (int i = 0; i < s->nuses && status == 0; i++)
        place_examples(o, &s->uses[i]);
    if (status == 0)
        o->actual.field_order = orders_text(o);
    return status;
}

static void publish(op *o, const char *phase) {
    llm_state *s = o->state;
    exec_progress *p = &s->progress;
    p->llm_running = true;
    strncpy(p->phase, phase, sizeof p->phase - 1);
    p->rows_total = s->inputs_total;
    p->rows_done = s->inputs_done;
    p->answers_stored = o->ctx->summary.answers_stored;
    p->seconds = clock_seconds() - o->ctx->llm->started_s;
    p->llm_seconds = clock_seconds() - s->started_s;
    p->head_tokens = o->ctx->summary.head_tokens;
    runtime_stats(o->ctx->llm, &p->llm);
    p->stored_tokens = o->ctx->llm->stored_tokens;
    p->held_seconds = o->ctx->summary.held_seconds;
    watch_details(o->ctx, p, false);
    if (o->ctx->publish)
        o->ctx->publish(o->ctx, p);
}

static int prepare(op *o, err *e) {
    llm_state *s = o->state;
    s->started_s = clock_seconds();
    s->rows = rowset_new(o->ctx, o->left->node->types, o->left->node->ncols);
    publish(o, "reading");
    int status = rowset_drain(s->rows, o->left, e);
    publish(o, "ordering");
    if (status == 0)
        status = prepare_uses(o, e);
    if (status == 0) {
        str text = o->actual.field_order;
        size_t n = utf8_fit(text, sizeof s->progress.field_order - 1);
        memcpy(s->progress.field_order, text.p, BASE_MIN(n, sizeof s->progress.field_order - 1));
        s->progress.field_order[BASE_MIN(n, sizeof s->progress.field_order - 1)] = 0;
    }
    s->prepared = true;
    o->ctx->llm->operators_started++;
    s->progress.operator_number = o->ctx->llm->operators_started;
    s->progress.operators = watch_operators(o->ctx->plan->root);
    return status;
}

/* ---- asking ------------------------------------------------------------------------------------ */

/* The first row that has this input, from 1, for messages. */
static int64_t row_of_input(const llm_inputs *in, uint32_t input) {
    for (int64_t r = 0; r < in->rows; r++)
        if (in->of_row[r] == input)
            return r + 1;
    return 0;
}

static const llm_answer *keep_answer(op *o, use_run *u, uint32_t input, const llm_answer *a) {
    hash128 key = inputs_key(u->in, u->use->call, input);
    if (!o->ctx->settings->dedup) /* asked once per row on purpose: the memo must not share it */
        key.low ^= input + 1u;
    u->answers[input] = answer_memo_add(o->ctx->llm->memo, key, a);
    ((llm_state *)o->state)->inputs_done++;
    return u->answers[input];
}

/* Where answers are kept; NULL: nowhere. WARM has none: it is there for the KV. */
static cache *answers_cache(const exec_ctx *ctx) {
    bool wanted = ctx->settings->answer_cache && ctx->stmt->kind != STMT_WARM;
    return wanted ? runtime_cache(ctx->llm) : NULL;
}

/* An answer that is known already: from this statement, or from disk. */
static bool find_known(op *o, use_run *u, uint32_t input, llm_span **spans, int nspans,
                       answer_id *id) {
    exec_ctx *ctx = o->ctx;
    if (ctx->settings->dedup) {
        const llm_answer *a =
            answer_memo_find(ctx->llm->memo, inputs_key(u->in, u->use->call, input));
        if (a) {
            u->answers[input] = a;
            ((llm_state *)o->state)->inputs_done++;
            return true;
        }
    }
    cache *c = answers_cache(ctx);
    llm_answer stored;
    if (!c)
        return false;
    answer_identify(u->prompt, ctx->settings, spans, nspans, id);
    if (!answer_load(c, id, o->mem, &stored))
        return false;
    keep_answer(o, u, input, &stored);
    u->stored++;
    watch_stored(ctx->llm, spans, nspans);
    ctx->summary.answers_stored++;
    o->actual.stored_answers++;
    return true;
}

static void sampling_of(const settings *s, const llm_call *call, llm_sampling *out) {
    *out = (llm_sampling){.temperature = (float)s->temperature,
                          .top_p = (float)s->top_p,
                          .min_p = (float)s->min_p,
                          .top_k = (int)s->top_k,
                          .seed = (uint64_t)s->seed};
    if (call->temperature.type == TYPE_REAL)
        out->temperature = (float)call->temperature.r;
    if (call->temperature.type == TYPE_INTEGER)
        out->temperature = (float)call->temperature.i;
}

static int submit_input(op *o, int use, uint32_t input, llm_session *session, llm_span **spans,
                        int nspans, err *e) {
    llm_state *s = o->state;
    use_run *u = &s->uses[use];
    const settings *set = o->ctx->settings;
    llm_request request = {.tag = (uint64_t)use << 32 | input,
                           .spans = spans,
                           .nspans = nspans,
                           .guide = u->prompt->guide,
                           .after = u->prompt->tmpl,
                           .max_tokens = u->use->call->max_tokens ? u->use->call->max_tokens
                                                                  : (int)set->max_tokens};
    sampling_of(set, u->use->call, &request.sampling);
    int status = llm_submit(session, &request, e);
    if (status == 0) {
        o->ctx->summary.head_tokens += u->prompt->head_tokens;
        s->head_tokens += u->prompt->head_tokens;
        return 0;
    }
    if (set->llm_on_error == ON_ERROR_NULL && status != ERR_CANCELLED) {
        keep_answer(o, u, input, &(llm_answer){.failed = true, .choice = -1, .text = {"", 0}});
        return 0;
    }
    err reason = *e;
    return err_set_at(e, reason.code, u->use->call->pos, u->use->call->len, "LLM#%d, row %lld: %s",
                      u->use->call->number, (long long)row_of_input(u->in, input), reason.message);
}

/* Queues one input unless it has an answer. */
static int ask_input(op *o, int use, uint32_t input, llm_session *session, llm_span **spans,
                     answer_id *id, err *e) {
    use_run *u = &((llm_state *)o->state)->uses[use];
    if (u->answers[input] || u->queued[input])
        return 0;
    const uint8_t *order = u->order.psm.field_order + (size_t)input * (size_t)u->in->nfields;
    int nspans = prompt_spans(u->prompt, u->in, input, order, spans);
    if (find_known(o, u, input, spans, nspans, id))
        return 0;
    u->queued[input] = true;
    return submit_input(o, use, input, session, spans, nspans, e);
}

/* Whether use i goes through the inputs together with use `first`: it is of its group, and the data stand first. */
static bool goes_along(const llm_state *s, int first, int i) {
    const use_run *u = &s->uses[i];
    return i == first || (i > first && u->leader == &s->uses[first] && u->prompt->data_first);
}

/* Queues the inputs of rows [from, to) that have no answer yet, in the solver's order. */
static int submit_use(op *o, int use, int64_t from, int64_t to, err *e) {
    llm_state *s = o->state;
    use_run *u = &s->uses[use];
    bool *wanted = mem_zalloc(u->in->count + 1u);
    llm_span **spans = mem_alloc(sizeof *spans * (size_t)prompt_max_spans(u->prompt));
    answer_id id = {0};
    llm_session *session;
    int status = runtime_session(o->ctx->llm, u->engine, &session, e);
    for (int64_t r = from; r < to; r += s->step)
        if (u->in->of_row[r] != NO_INPUT)
            wanted[u->in->of_row[r]] = true;
    for (uint32_t k = 0; k < u->in->count && status == 0; k++) {
        uint32_t input = u->order.psm.row_order[k];
        for (int i = use; i < s->nuses && status == 0 && wanted[input]; i++)
            if (goes_along(s, use, i))
                status = ask_input(o, i, input, session, spans, &id, e);
    }
    buf_free(&id.identity);
    free(spans);
    free(wanted);
    return status;
}

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
    size_t n = utf8_fit(event->text, 70);
    n = BASE_MIN(n, sizeof s->progress.last_answer - 1);
    memcpy(s->progress.last_answer, event->text.p, n);
    s->progress.last_answer[n] = 0;
    cache *c = answers_cache(o->ctx);
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
    llm_stats now;
    runtime_stats(o->ctx->llm, &now);
    int status = 0;
    if (set->max_tokens_total > 0 &&
        now.computed_tokens + now.output_tokens > (uint64_t)set->max_tokens_total)
        status = err_set(e, ERR_LIMIT,
                         "stopped: more than max_tokens_total = %lld tokens computed (%llu of %llu "
                         "answers done)",
                         (long long)set->max_tokens_total, (unsigned long long)s->inputs_done,
                         (unsigned long long)s->inputs_total);
    else if (set->max_seconds > 0 && clock_seconds() - o->ctx->llm->started_s > set->max_seconds)
        status = err_set(e, ERR_LIMIT,
                         "stopped: more than max_seconds = %g s (%llu of %llu answers done)",
                         set->max_seconds, (unsigned long long)s->inputs_done,
                         (unsigned long long)s->inputs_total);
    if (status != 0 && s->progress.answers_kept > 0)
        err_hint(e, "its answers are kept: run it again to go on from there");
    return status;
}

static int remember_facts(op *o, err *e) {
    llm_state *s = o->state;
    int status = 0;
    for (int i = 0; i < s->nuses && status == 0; i++) {
        use_run *u = &s->uses[i];
        if (u->learned && o->ctx->llm->sample > 0)
            o->ctx->llm->sampled[u->use->call->number - 1] = u->facts;
        if (u->learned) /* a commit is not free */
            status = facts_remember(o->ctx, u->use->call, llm_engine_info(u->engine)->fingerprint,
                                    &u->facts, e);
    }
    return status;
}

/* Calls that are sent together are counted together. */
static int count_uses(op *o, plan_actual *into, err *e) {
    llm_state *s = o->state;
    int status = 0;
    const prompt **calls = ARENA_ARRAY(o->mem, const prompt *, s->nuses + 1);
    for (int i = 0; i < s->nuses && status == 0; i++) {
        const use_run *u = &s->uses[i];
        int count = 0;
        if (u->leader != u && u->prompt->data_first)
            continue;
        for (int k = i; k < s->nuses; k++)
            if (goes_along(s, i, k))
                calls[count++] = s->uses[k].prompt;
        status = count_calls(o->ctx, calls, count, u->in, o->node, into, e);
    }
    return status;
}

/* For a view that compares, once: the model waits meanwhile. */
static int count_baselines(op *o, err *e) {
    llm_state *s = o->state;
    exec_progress *p = &s->progress;
    plan_actual counted = {.bound = NAN};
    if (p->nbaselines || !o->ctx->compared ||
        !atomic_load_explicit(o->ctx->compared, memory_order_relaxed))
        return 0;
    publish(o, "counting");
    int status = count_uses(o, &counted, e);
    for (int i = 0; i < counted.ntokens && status == 0; i++)
        watch_baseline(p, counted.tokens[i].strategy, counted.tokens[i].computed_tokens);
    return status;
}

enum { EVENTS_AT_ONCE = 64 };

/* Time that a person held the statement is nobody's: clocks that began before it are set on. */
static void wait_while_paused(op *o, double *started) {
    llm_state *s = o->state;
    double held = watch_pause(o->ctx, &s->progress, publish, o);
    *started += held;
    s->started_s += held;
    o->ctx->llm->started_s += held;
    o->ctx->summary.held_seconds += held;
}

/* Queues the uses of one engine, then runs it until it is idle: a session serves one engine. */
static int answer_engine(op *o, const llm_engine *engine, int64_t from, int64_t to, double *started,
                         err *e) {
    llm_state *s = o->state;
    llm_event events[EVENTS_AT_ONCE];
    int status = 0, count = 0;
    bool idle = false;
    for (int i = 0; i < s->nuses && status == 0; i++)
        if (s->uses[i].engine == engine)
            status = submit_use(o, i, from, to, e);
    publish(o, "model");
    while (status == 0 && !idle && o->ctx->llm->session) {
        wait_while_paused(o, started);
        status = llm_step(o->ctx->llm->session, events, EVENTS_AT_ONCE, &count, &idle, e);
        for (int i = 0; i < count; i++)
            take_event(o, &events[i]);
        publish(o, "model");
        if (status == 0)
            status = check_caps(o, e);
        if (status == 0)
            status = count_baselines(o, e);
    }
    return status;
}

static bool engine_is_first(const llm_state *s, int use) {
    for (int i = 0; i < use; i++)
        if (s->uses[i].engine == s->uses[use].engine)
            return false;
    return true;
}

/* What the model did between two looks at it was this operator's: others wait meanwhile. */
static void count_work(op *o, const llm_stats *before) {
    llm_stats now;
    runtime_stats(o->ctx->llm, &now);
    o->actual.prompt_tokens += now.prompt_tokens - before->prompt_tokens;
    o->actual.computed_tokens += now.computed_tokens - before->computed_tokens;
    o->actual.reused_disk += now.reused_disk - before->reused_disk;
    o->actual.output_tokens += now.output_tokens - before->output_tokens;
}

/* Answers rows [from, to), engine by engine. */
static int answer_rows(op *o, int64_t from, int64_t to, err *e) {
    llm_state *s = o->state;
    llm_stats before;
    int status = 0;
    double started = clock_seconds();
    runtime_stats(o->ctx->llm, &before);
    for (int i = 0; i < s->nuses && status == 0; i++)
        if (engine_is_first(s, i))
            status = answer_engine(o, s->uses[i].engine, from, to, &started, e);
    count_work(o, &before);
    o->ctx->summary.llm_seconds += clock_seconds() - started;
    s->answered_rows = to;
    return status ? status : remember_facts(o, e);
}

/* ---- handing out ------------------------------------------------------------------------------- */

/* Counting and warming leave every input unanswered. */
static bool answers_wanted(const op *o) {
    return !o->ctx->count_only && o->ctx->stmt->kind != STMT_WARM;
}

static int fill_use(op *o, const use_run *u, int64_t first_row, int rows, err *e) {
    const plan_llm_use *use = u->use;
    column *out = &o->out.cols[use->out_slot];
    column *prob = use->prob_slot >= 0 ? &o->out.cols[use->prob_slot] : NULL;
    column_init(out, o->pass, llm_call_type(use->call), rows, false);
    if (prob)
        column_init(prob, o->pass, TYPE_REAL, rows, false);
    for (int i = 0; i < rows; i++) {
        uint32_t input = u->in->of_row[first_row + i];
        const llm_answer *a = input == NO_INPUT ? NULL : u->answers[input];
        value v = value_null();
        int status = a ? answer_value(use->call, a, &v, e) : 0;
        if (input != NO_INPUT && !a && answers_wanted(o))
            status =
                err_set(e, ERR_INTERNAL, "LLM#%d: an input was not answered", use->call->number);
        if (status)
            return status;
        column_set(out, o->pass, rows, i, v);
        bool has_prob = a && !a->failed && !isnan(a->prob);
        if (prob)
            column_set(prob, o->pass, rows, i, has_prob ? value_real(a->prob) : value_null());
    }
    return 0;
}

static int emit(op *o, batch **out, err *e) {
    llm_state *s = o->state;
    const batch *in = rowset_batch(s->rows, (int)(s->emitted_rows / BATCH_ROWS));
    int from = (int)(s->emitted_rows % BATCH_ROWS);
    int rows = (int)BASE_MIN((int64_t)(in->rows - from), s->answered_rows - s->emitted_rows);
    arena_reset(o->pass);
    o->out = (batch){.rows = rows, .ncols = o->node->ncols, .mem = o->pass};
    o->out.cols = ARENA_ARRAY(o->pass, column, o->node->ncols + 1);
    int *pick = ARENA_ARRAY(o->pass, int, rows + 1);
    for (int i = 0; i < rows; i++)
        pick[i] = from + i;
    for (int c = 0; c < in->ncols; c++) {
        if (from == 0 && rows == in->rows)
            o->out.cols[c] = in->cols[c];
        else
            column_gather(&o->out.cols[c], o->pass, &in->cols[c], pick, rows);
    }
    for (int i = 0; i < s->nuses; i++) {
        int status = fill_use(o, &s->uses[i], s->emitted_rows, rows, e);
        if (status)
            return status;
    }
    s->emitted_rows += rows;
    *out = &o->out;
    return 0;
}

static int count_all(op *o, err *e) {
    llm_state *s = o->state;
    s->answered_rows = rowset_rows(s->rows);
    return count_uses(o, &o->actual, e);
}

/* All rows, or the next wave of as many as the LIMIT above should need. */
static int next_wave(op *o, err *e) {
    llm_state *s = o->state;
    int64_t rows = rowset_rows(s->rows);
    if (o->ctx->count_only)
        return count_all(o, e);
    if (o->ctx->llm->sample > 0)
        s->step = BASE_MAX(1, rows / o->ctx->llm->sample);
    if (o->node->llm.wanted <= 0)
        return answer_rows(o, 0, rows, e);
    s->wave = wave_rows(o->ctx, o->node, s->answered_rows, s->wave);
    return answer_rows(o, s->answered_rows, BASE_MIN(rows, s->answered_rows + s->wave), e);
}

static int llm_open(op *o, err *e) {
    llm_state *s = o->state;
    (void)e;
    s->nuses = o->node->llm.nuses;
    s->step = 1;
    s->uses = ARENA_ARRAY(o->mem, use_run, s->nuses + 1);
    for (int i = 0; i < s->nuses; i++)
        s->uses[i].use = &o->node->llm.uses[i];
    return 0;
}

static int llm_next(op *o, batch **out, err *e) {
    llm_state *s = o->state;
    int status = s->prepared ? 0 : prepare(o, e);
    *out = NULL;
    if (status == 0 && s->emitted_rows == s->answered_rows &&
        s->answered_rows < rowset_rows(s->rows))
        status = next_wave(o, e);
    if (status || o->ctx->llm->sample > 0 || s->emitted_rows == rowset_rows(s->rows))
        return status; /* a sample's rows go nowhere: what they taught is kept */
    return emit(o, out, e);
}

static void llm_close(op *o) {
    llm_state *s = o->state;
    if (o->ctx->llm && s->prepared) {
        runtime_stats(o->ctx->llm, &o->ctx->summary.llm);
        watch_details(o->ctx, &s->progress, true);
        publish(o, "done");
        /* the texts go with this operator's arena, the figures are read after it */
        o->actual.field_order = str_copy(o->ctx->mem, o->actual.field_order);
    }
    if (s->progress.answers_kept >
        0) /* the next statement may ask the same: it finds them, however soon it comes */
        cache_flush(answers_cache(o->ctx));
    for (int i = 0; i < s->nuses; i++)
        prompt_free(s->uses[i].prompt);
    rowset_free(s->rows);
}

const op_class op_llm = {.name = "LLM",
                         .state_bytes = sizeof(llm_state),
                         .open = llm_open,
                         .next = llm_next,
                         .close = llm_close};
