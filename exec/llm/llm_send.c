/*
 * llm_send.c - submits the inputs that a stage's calls need for given rows, in the order in which
 * their prompts share most tokens.
 *
 * One walk serves all drivers: llm_ask.c submits to the statement's session and keeps the answers,
 * llm_count.c submits to a session without a model, and llm_show.c keeps the prompts. So what is
 * counted or shown is what would be asked.
 *
 * Calls of one engine are sent together, since a session serves one engine. If the prompts of a
 * group share the row (prompt.shares_row), they are sent input by input: for each input, the prompts of all calls
 * of the group in the stage. Prompts wait in memory until they are answered. When they take too
 * much memory, the session runs before more are submitted.
 */
#include <stdlib.h>
#include <string.h>

#include "op_llm_int.h"

void llm_sender_open(llm_sender *x, op *o, const llm_driver *driver, const input_order *orders,
                     arena *mem) {
    const llm_state *s = o->state;
    int most = 0;
    *x = (llm_sender){.o = o, .driver = driver, .orders = orders};
    x->marks = ARENA_ARRAY(mem, uint8_t *, s->nsites + 1);
    for (int i = 0; i < s->nsites; i++) {
        x->marks[i] = ARENA_ARRAY(mem, uint8_t, s->sites[i].in->count + 1);
        most = BASE_MAX(most, prompt_max_spans(s->sites[i].prompt));
    }
    x->spans = ARENA_ARRAY(mem, llm_span *, most + 1);
    x->named = ARENA_ARRAY(mem, bool, most + 1);
}

void llm_sender_close(llm_sender *x) {
    buf_free(&x->id.identity);
}

/* ---- which inputs ---------------------------------------------------------------------------- */

void llm_mark_inputs(llm_sender *x, int at, const int64_t *rows, int64_t count, uint64_t *inputs,
                     uint64_t *fresh) {
    const llm_inputs *in = ((llm_state *)x->o->state)->sites[at].in;
    *inputs = *fresh = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t input = in->of_row[rows[i]];
        if (input == NO_INPUT)
            continue;
        (*inputs)++;
        *fresh += !(x->marks[at][input] & INPUT_COUNTED);
        x->marks[at][input] |= INPUT_NEEDED | INPUT_COUNTED;
    }
}

typedef struct ranked_input {
    uint32_t rank, input;
} ranked_input;

static int by_rank(const void *a, const void *b) {
    uint32_t x = ((const ranked_input *)a)->rank, y = ((const ranked_input *)b)->rank;
    return (x > y) - (x < y);
}

/* Returns the inputs of these rows, each once, ordered by rank. */
static ranked_input *inputs_in_order(const llm_inputs *in, const uint32_t *rank,
                                     const int64_t *rows, int64_t count, arena *mem, size_t *n) {
    ranked_input *list = arena_alloc(mem, sizeof *list * (size_t)BASE_MAX(count, 1));
    size_t k = 0, distinct = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t input = in->of_row[rows[i]];
        if (input != NO_INPUT)
            list[k++] = (ranked_input){rank[input], input};
    }
    qsort(list, k, sizeof *list, by_rank);
    for (size_t i = 0; i < k; i++)
        if (i == 0 || list[i].input != list[i - 1].input)
            list[distinct++] = list[i];
    *n = distinct;
    return list;
}

/* ---- which calls together -------------------------------------------------------------------- */

static int end_of_stage(const llm_state *s, int at) {
    const llm_stage *t = &s->stages[s->sites[at].stage];
    return t->first_site + t->plan->nsites;
}

/* Whether call site `at` is sent input by input with call site `first` of its stage: both belong to
 * the same group, whose prompts share the row. True also if `at` is `first`. */
static bool shares_prompts_with(const llm_state *s, int first, int at) {
    const site_run *site = &s->sites[at];
    return at == first || (at > first && site->stage == s->sites[first].stage &&
                           site->leader == s->sites[first].leader && site->prompt->shares_row);
}

static bool was_sent_with_another(const llm_state *s, int at) {
    for (int i = s->stages[s->sites[at].stage].first_site; i < at; i++)
        if (shares_prompts_with(s, i, at))
            return true;
    return false;
}

static bool is_first_of_engine(const llm_state *s, int at) {
    for (int i = s->stages[s->sites[at].stage].first_site; i < at; i++)
        if (s->sites[i].engine == s->sites[at].engine)
            return false;
    return true;
}

/* Whether calls of stages that are not `done`, or of a pipeline above, ask about the same data or go
 * on from this call. */
static bool kv_is_reused_later(const llm_state *s, const site_run *site, uint32_t done) {
    bool followed = false;
    for (int i = 0; i < s->nsites; i++) {
        const site_run *later = &s->sites[i];
        bool shares = site->prompt->shares_row && later->leader == site->leader;
        followed = followed || later->after == site;
        if ((shares || later->after == site) && later->stage != site->stage &&
            !(done >> later->stage & 1))
            return true;
    }
    return site->plan->call->goes_on && !followed;
}

/* ---- one input ------------------------------------------------------------------------------- */

/* Marks the values that the question names: if fields must be left out, these are left out last. */
static void mark_named(llm_sender *x, const prompt *p) {
    memset(x->named, 0, sizeof *x->named * (size_t)x->nspans);
    for (int i = 0; i + 1 < x->nspans; i++) {
        int f = prompt_named_field(p, x->spans[i]);
        if (f >= 0)
            x->named[i + 1] = p->call->field_required[f];
    }
}

static int submit(llm_sender *x, int at, uint32_t input, err *e) {
    const site_run *site = &((llm_state *)x->o->state)->sites[at];
    const settings *set = x->o->ctx->settings;
    bool may_lose = set->llm_overflow != OVERFLOW_ERROR;
    str own;
    if (may_lose)
        mark_named(x, site->prompt);
    llm_request request = {.tag = (uint64_t)at << 32 | input,
                           .spans = x->spans,
                           .nspans = x->nspans,
                           .head_tokens = (int)site->prompt->head_tokens,
                           .named = may_lose ? x->named : NULL,
                           .guide = site->prompt->guide,
                           .all_probs = site->prompt->all_probs,
                           .after = site->prompt->tmpl,
                           .max_tokens = llm_call_max_tokens(set, site->plan->call),
                           .blend = site->prompt->blends && !x->exact ? &site->prompt->blend : NULL,
                           .keep = x->keep};
    call_sampling(set, site->plan->call, &request.sampling);
    request.nstop = call_stops(set, site->plan->call, &own, &request.stop);
    return x->driver->submit ? x->driver->submit(x, &request, e)
                             : llm_submit(x->session, &request, e);
}

int64_t llm_row_of_input(const llm_inputs *in, uint32_t input) {
    for (int64_t r = 0; r < in->rows; r++)
        if (in->of_row[r] == input)
            return r + 1;
    return 0;
}

int llm_complain(const op *o, int at, uint32_t input, const err *why, err *e) {
    const site_run *site = &((llm_state *)o->state)->sites[at];
    const llm_call *call = site->plan->call;
    err reason = *why;
    err_set_at(e, reason.code, call->pos, call->len, "%.*s, row %lld: %s", (int)call->label.n,
               call->label.p, (long long)llm_row_of_input(site->in, input), reason.message);
    if (reason.hint[0] != '\0')
        err_hint(e, "%s", reason.hint);
    else if (reason.code == ERR_LIMIT && call->shown_labels)
        err_hint(e, "SET labels_in_prompt = off leaves the %d labels out of the prompt",
                 call->shown_labels->n);
    else if (reason.code == ERR_LIMIT)
        err_hint(e, "%sNULL ON ERROR after the call's last argument makes such answers NULL",
                 o->ctx->settings->llm_overflow == OVERFLOW_ERROR
                     ? "SET llm_overflow = 'truncate' leaves fields out of such prompts, "
                     : "");
    return (int)reason.code;
}

/* QUEUED_BYTES: estimated memory that the session uses for a prompt beside its tokens: the request,
 * its lists, a node of the prefix tree. QUEUED_LEAST: the session does not run before this many
 * prompts are submitted, however small work_memory is. */
enum { QUEUED_BYTES = 1024, QUEUED_LEAST = 512 };

static void add_to_queue(llm_sender *x) {
    x->queued++;
    x->queued_bytes += QUEUED_BYTES;
    for (int i = 0; i < x->nspans; i++) {
        size_t count;
        llm_span_tokens(x->spans[i], &count);
        x->queued_bytes += count * sizeof(llm_token);
    }
}

static bool queue_is_full(const llm_sender *x) {
    return x->queued >= QUEUED_LEAST && x->queued_bytes > (size_t)x->o->ctx->settings->work_memory;
}

static int send_input(llm_sender *x, int at, uint32_t input, err *e) {
    const site_run *site = &((llm_state *)x->o->state)->sites[at];
    uint8_t *marks = &x->marks[at][input];
    if (!(*marks & INPUT_NEEDED) || (*marks & INPUT_SENT))
        return 0;
    *marks |= INPUT_SENT;
    const uint8_t *order = order_of_input(&x->orders[at], site->in, input);
    x->nspans = prompt_spans(site->prompt, site->in, input, order, x->spans);
    if (x->driver->is_known(x, at, input))
        return 0;
    int status = submit(x, at, input, e);
    if (status == 0) {
        add_to_queue(x);
        return 0;
    }
    if (site->plan->call->on_error == ON_ERROR_FAIL || status == ERR_CANCELLED)
        return llm_complain(x->o, at, input, e, e);
    if (x->driver->failed)
        x->driver->failed(x, at, input, e);
    err_clear(e);
    return 0;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Submits the inputs of call site `first` and of the call sites that share its prompts. */
static int send_group(llm_sender *x, int first, uint32_t done, const int64_t *rows, int64_t count,
                      err *e) {
    llm_state *s = x->o->state;
    const site_run *site = &s->sites[first];
    int end = end_of_stage(s, first), status = 0;
    size_t n;
    arena *mem = arena_new_in(x->o->ctx->space);
    x->keep = kv_is_reused_later(s, site, done);
    for (int i = first; i < end && status == 0; i++)
        if (shares_prompts_with(s, first, i))
            status = x->driver->select(x, i, rows, count, e);
    ranked_input *list = inputs_in_order(site->in, x->orders[first].rank, rows, count, mem, &n);
    for (size_t k = 0; k < n && status == 0; k++) {
        for (int i = first; i < end && status == 0; i++)
            if (shares_prompts_with(s, first, i))
                status = send_input(x, i, list[k].input, e);
        if (status == 0 && queue_is_full(x)) {
            size_t before = x->queued;
            x->full = true;
            x->left = 0;
            status = x->driver->drain(x, e);
            x->full = false;
            x->queued = x->left;
            x->queued_bytes = x->queued_bytes / before * x->left;
        }
    }
    for (int i = first; i < end; i++)
        for (size_t k = 0; k < n && shares_prompts_with(s, first, i); k++)
            x->marks[i][list[k].input] &= (uint8_t)~INPUT_NEEDED;
    arena_free(mem);
    return status ? status : arena_full_error(x->o->ctx->llm->kept, e);
}

static int send_engine(llm_sender *x, int first, uint32_t done, const int64_t *rows, int64_t count,
                       err *e) {
    const llm_state *s = x->o->state;
    x->engine = s->sites[first].engine;
    int end = end_of_stage(s, first), status = x->driver->open(x, x->engine, e);
    for (int i = first; i < end && status == 0; i++)
        if (s->sites[i].engine == s->sites[first].engine && !was_sent_with_another(s, i))
            status = send_group(x, i, done, rows, count, e);
    return status ? status : x->driver->drain(x, e);
}

int llm_send_stage(llm_sender *x, int stage, uint32_t done, const int64_t *rows, int64_t count,
                   err *e) {
    const llm_state *s = x->o->state;
    const llm_stage *t = &s->stages[stage];
    int status = 0;
    x->stage = stage;
    for (int i = t->first_site; i < t->first_site + t->plan->nsites && status == 0; i++)
        if (is_first_of_engine(s, i))
            status = send_engine(x, i, done, rows, count, e);
    return status;
}
