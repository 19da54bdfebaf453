/*
 * answer.c - from a pass's logits to answers: next tokens, probabilities of literals, stop rules.
 *
 *   free text       a sampled or greedy token per pass, until an end token, stop text or max_tokens
 *   INTEGER, REAL   the likeliest allowed token per pass, until only the end is allowed
 *   CHOICE          the literal of largest probability: from the logits of all branching points at
 *                   once, or best first (search.c)
 *
 * Invariant: an answer is decided from its request's own logits, in the order of its own tokens.
 * schedule.c decides which rows a pass runs.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "session_int.h"

/* ---- lists and lifetime ---------------------------------------------------------------------- */

void list_push(request_list *list, request *r) {
    r->next = NULL;
    *(list->last != NULL ? &list->last->next : &list->first) = r;
    list->last = r;
    list->count++;
}

request *list_pop(request_list *list) {
    request *r = list->first;
    if (r != NULL) {
        list->first = r->next;
        list->last = list->first != NULL ? list->last : NULL;
        list->count--;
        r->next = NULL;
    }
    return r;
}

void request_free(request *r) {
    if (r == NULL)
        return;
    request_end(r);
    for (int i = 0; i < r->nspans; i++)
        llm_span_release(r->spans[i]);
    for (int i = 0; i < r->nstop; i++)
        free((char *)(uintptr_t)r->stop[i].p);
    llm_guide_release(r->guide);
    blend_free(r->blend);
    free(r->spans);
    free(r->stop);
    free(r->output);
    free(r->probs);
    free(r->top_logits);
    free(r->top_tokens);
    free(r->failure);
    buf_free(&r->text);
    free(r);
}

void request_begin(request *r) {
    const llm_guide *g = r->guide;
    request_end(r);
    r->arrived = r->wants_all = false;
    r->segments_placed = 0;
    r->noutput = r->digits = 0;
    r->log_prob = 0;
    buf_clear(&r->text);
    if (g == NULL)
        return;
    r->state = g->first;
    r->branches_left = g->nbranches;
    if (!request_is_choice(r))
        return;
    if (!r->all_probs && g->nbranches > 0) {
        r->search = search_new(g);
        return;
    }
    r->branch_log_prob = mem_zalloc(sizeof *r->branch_log_prob * (size_t)(g->nbranches + 1));
    r->segments = mem_zalloc(sizeof *r->segments * (size_t)(g->nsegments + 1));
    r->segment_children = mem_alloc(sizeof *r->segment_children * (size_t)(g->nsegments + 1));
    for (int i = 0; i < g->nsegments; i++)
        r->segment_children[i] = g->segments[i].children;
}

void request_end(request *r) {
    for (int b = 0; r->branch_log_prob != NULL && b < r->guide->nbranches; b++)
        free(r->branch_log_prob[b]);
    free(r->branch_log_prob);
    free(r->segments);
    free(r->segment_children);
    search_free(r->search);
    r->branch_log_prob = NULL;
    r->segments = NULL;
    r->segment_children = NULL;
    r->search = NULL;
}

/* ---- finishing ------------------------------------------------------------------------------- */

static void text_set(request *r, str text) {
    buf clean = {0};
    buf_append_str(&clean, str_trim(text, STR_SPACES));
    buf_free(&r->text);
    r->text = clean;
}

void free_text_set(request *r, str text) {
    buf clean = {0};
    if (text.n > 0 && (!utf8_valid(text) || memchr(text.p, 0, text.n) != NULL)) {
        uint32_t cp;
        char bytes[4];
        for (size_t n; (n = utf8_next(text, &cp)) > 0; text = (str){text.p + n, text.n - n})
            buf_append(&clean, bytes, utf8_encode(cp == 0 ? 0xFFFD : cp, bytes));
        text = buf_str(&clean);
    }
    text_set(r, text);
    buf_free(&clean);
}

static void request_finish(llm_session *s, request *r, llm_finish finish) {
    r->finish = finish;
    s->figures.done++;
    s->figures.prompt_tokens += (uint64_t)r->prompt_tokens;
    s->figures.head_tokens += (uint64_t)r->head_tokens;
    s->figures.output_tokens += (uint64_t)r->noutput;
    int reused = r->prompt_tokens - r->computed - r->from_disk;
    s->figures.reused_memory += (uint64_t)BASE_MAX(reused, 0);
    schedule_release(s, r);
    list_push(&s->ready, r);
}

static void choice_finish(llm_session *s, request *r) {
    if (r->search != NULL) {
        r->choice = r->search->best;
        r->prob = exp(r->search->best_log_prob);
    } else {
        r->probs = mem_alloc(sizeof *r->probs * (size_t)r->guide->count);
        r->choice = guide_best(r->guide, r->branch_log_prob, r->probs);
        r->prob = r->probs[r->choice];
    }
    text_set(r, r->guide->literals[r->choice]);
    request_finish(s, r, LLM_FINISH_CHOICE);
}

/* Finishes a request without logits: with the backend's answer, or with an empty one if the session
 * only counts. */
static void answer_finish(llm_session *s, request *r) {
    const llm_backend *backend = s->engine->backend;
    if (request_is_choice(r))
        s->figures.choice_tokens += (uint64_t)llm_guide_tokens(r->guide, r->all_probs);
    llm_finish finish = r->guide != NULL ? LLM_FINISH_CHOICE : LLM_FINISH_STOP;
    if (!s->options.count_only && backend->answer != NULL) {
        backend_question q = {
            .spans = r->spans, .nspans = r->nspans, .guide = r->guide, .max_tokens = r->max_tokens};
        backend_answer a = {.choice = -1, .prob = NAN};
        if (request_is_choice(r) && r->all_probs)
            a.probs = r->probs = mem_zalloc(sizeof *r->probs * (size_t)r->guide->count);
        backend->answer(s->engine, &q, &a, &r->text);
        r->choice = a.choice;
        r->prob = a.prob;
        r->noutput = a.tokens;
        finish = a.ended ? LLM_FINISH_LENGTH : finish;
    }
    request_finish(s, r, finish);
}

/* ---- free text ------------------------------------------------------------------------------- */

/* Stop texts are a newline (completion format) and the request's own; leading white space is not
 * searched. If several occur, the one that ends first counts; if several end there, the longest of
 * them. This rule does not depend on how the text was divided into tokens. */
size_t text_stop(const request *r) {
    static const str newline = {"\n", 1};
    size_t from = 0, at = SIZE_MAX, end = SIZE_MAX;
    str text = buf_str(&r->text);
    while (from < text.n && isspace((unsigned char)text.p[from]))
        from++;
    if (from == text.n)
        return SIZE_MAX;
    for (int k = r->chat ? 0 : -1; k < r->nstop; k++) {
        str stop = k < 0 ? newline : r->stop[k];
        const char *found =
            stop.n > 0 ? memmem(text.p + from, text.n - from, stop.p, stop.n) : NULL;
        size_t starts = found != NULL ? (size_t)(found - text.p) : SIZE_MAX;
        if (found != NULL && (starts + stop.n < end || (starts + stop.n == end && starts < at))) {
            at = starts;
            end = starts + stop.n;
        }
    }
    return at;
}

static void output_push(request *r, llm_token token) {
    r->output[r->noutput++] = token;
    prefix_node *tail = r->tail;
    tail->tokens[tail->count++] = token;
}

static void text_token(llm_session *s, request *r, const pass_want *want) {
    llm_token token;
    if (want->top == 0) {
        token = sample_token(want->logits, want->count, &r->sampling, r->sample_seed, r->noutput);
    } else if (want->temperature > 0) {
        token = sample_likeliest(want->logits, want->top_ids, want->top, want->total, &r->sampling,
                                 r->sample_seed, r->noutput);
    } else {
        token = want->top_ids[0];
    }
    if (token < 0) {
        r->wants_all = true;
        return;
    }
    if (engine_is_end(s->engine, token)) {
        free_text_set(r, buf_str(&r->text));
        request_finish(s, r, LLM_FINISH_STOP);
        return;
    }
    output_push(r, token);
    s->engine->backend->decode(s->engine, token, false, &r->text);
    size_t stop = text_stop(r);
    if (stop != SIZE_MAX) {
        free_text_set(r, (str){r->text.p, stop});
        request_finish(s, r, LLM_FINISH_STOP);
    } else if (r->noutput >= r->max_tokens) {
        free_text_set(r, utf8_whole(buf_str(&r->text))); /* the last character may be incomplete */
        request_finish(s, r, LLM_FINISH_LENGTH);
    }
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Takes the likeliest allowed token. If only END may follow, the answer ends without another
 * pass. */
static void number_token(llm_session *s, request *r, const float *logits, int count) {
    const guide_state *state = &r->guide->states[r->state];
    llm_sampling greedy = {0};
    int pick = sample_token(logits, count, &greedy, 0, 0);
    double *log_prob = mem_alloc(sizeof *log_prob * (size_t)count);
    guide_softmax(logits, count, log_prob);
    r->log_prob += log_prob[pick];
    free(log_prob);
    bool ends = state->ends && pick == 0;
    if (!ends) {
        output_push(r, state->ids[pick]);
        s->engine->backend->decode(s->engine, state->ids[pick], false, &r->text);
        r->digits += state->digits[pick];
        r->state = (number_state)state->next[pick];
        ends = r->guide->states[r->state].ends && guide_allowed(r->guide, r->state, r->digits) == 1;
    }
    if (ends) {
        r->prob = exp(r->log_prob);
        text_set(r, buf_str(&r->text));
        request_finish(s, r, LLM_FINISH_CHOICE);
    }
}

/* ---- literals -------------------------------------------------------------------------------- */

/* Finishes a segment if all segments below it are finished, then likewise its parent, and so on. */
static void segment_finish(llm_session *s, request *r, int segment) {
    while (segment >= 0 && r->segment_children[segment] == 0) {
        int parent = r->guide->segments[segment].parent;
        r->segment_children[segment] = -1;
        schedule_segment_done(s, r, segment);
        if (parent >= 0)
            r->segment_children[parent]--;
        segment = parent;
    }
}

static void branch_decide(llm_session *s, request *r, int branch, const float *logits) {
    const guide_branch *b = &r->guide->branches[branch];
    if (r->search != NULL) {
        search_learn(r->search, logits);
        return;
    }
    r->branch_log_prob[branch] = mem_alloc(sizeof(double) * (size_t)b->count);
    guide_softmax(logits, b->count, r->branch_log_prob[branch]);
    if (b->segment >= 0)
        segment_finish(s, r, b->segment);
    if (--r->branches_left == 0)
        choice_finish(s, r);
}

/* ---- the pass -------------------------------------------------------------------------------- */

static void top_keep(request *r, const pass_want *want) {
    size_t top = (size_t)want->top;
    r->top_logits = mem_alloc(sizeof(float) * top);
    r->top_tokens = mem_alloc(sizeof(llm_token) * top);
    memcpy(r->top_logits, want->logits, sizeof(float) * top);
    memcpy(r->top_tokens, want->top_ids, sizeof(llm_token) * top);
}

/* Whether the logits are sound. All logits of listed tokens must be finite; of the logits of the
 * whole vocabulary, at least one (if only the largest were asked for: the first). */
static bool want_is_sound(const pass_want *want) {
    if (want->ids == NULL && want->top > 0)
        return isfinite(want->logits[0]);
    int finite = 0;
    for (int i = 0; i < want->count; i++)
        finite += isfinite(want->logits[i]) != 0;
    return want->ids != NULL ? finite == want->count : finite > 0;
}

static void want_take(llm_session *s, const want_info *info, const pass_want *want) {
    request *r = info->r;
    if (s->runs_model && !want_is_sound(want)) {
        s->unsound = true;
        return;
    }
    if (!s->runs_model)
        answer_finish(s, r);
    else if (info->what == WANT_TOP)
        top_keep(r, want);
    else if (info->what == WANT_RAW)
        memcpy(r->raw_logits, want->logits, sizeof(float) * (size_t)want->count);
    else if (info->what >= 0)
        branch_decide(s, r, info->what, want->logits);
    else if (r->guide != NULL)
        number_token(s, r, want->logits, want->count);
    else
        text_token(s, r, want);
}

static void live_compact(llm_session *s) {
    int kept = 0;
    for (int i = 0; i < s->nlive; i++)
        if (s->live[i]->live)
            s->live[kept++] = s->live[i];
    s->nlive = kept;
}

void session_take_logits(llm_session *s) {
    blend_choose_probed(s);
    for (int w = 0; w < s->pass.nwants; w++)
        want_take(s, &s->want_infos[w], &s->pass.wants[w]);
    /* finish the requests whose answers need no logits */
    for (int i = 0; i < s->nlive; i++) {
        request *r = s->live[i];
        if (!r->live || r == s->current)
            continue;
        if (s->options.warm_only && r->arrived)
            request_finish(s, r, LLM_FINISH_STOP);
        else if (request_is_choice(r) && s->runs_model && r->branches_left == 0)
            choice_finish(s, r); /* the guide has only one literal */
        else if (r->search != NULL && search_is_done(r->search))
            choice_finish(s, r);
    }
    live_compact(s);
}
