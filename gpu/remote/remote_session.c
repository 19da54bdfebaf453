/*
 * remote_session.c - a session whose requests are answered by servers (session_driver).
 *
 *   submit ──> route ──ask_send──> in flight ──ask_take──> ready ──step──> events
 *                ^                    │
 *                └──── delayed <──────┘  sent again after a failure
 *
 * A place is an endpoint with its window and its state. A place that fails five times in a row is
 * down: its requests go to others, and one request at a time tries it again after 1, 2, 4, … 60 s. A
 * place that refuses all requests (its key, a redirect, a certificate) is out for good.
 *
 * Whose fault a failure is: a request that fails three times for the server's reasons, on two places
 * or on the only one, while others are answered, fails by itself (llm_event.failure). If no place
 * is up for the time of a request, the session fails.
 *
 * Invariant: every submitted request is in exactly one of the places drawn above, and no request is
 * sent that may exceed max_money or max_tokens. Answers do not depend on windows, retries or places.
 */
#ifdef KVASIR_REMOTE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dialect_int.h"
#include "engine/guide_int.h"
#include "http_int.h"
#include "route_int.h"
#include "window_int.h"

enum {
    FIRST_WINDOW = 8,
    DOWN_AFTER = 5, /* failures in a row of a place */
    ROW_FAILS = 3,  /* failures of a request at the only place */
    STEP_MS = 50,   /* the longest wait of a step */
    TRIED = 8,
    WRONG = 3,       /* a way is left if WRONG of its first TRIED answers are not of the type */
    SCORED_MAX = 64, /* the most literals whose tokens are asked for */
    SHOWN = 300,
    LATEST = 64 /* answers of which an endpoint's times are known */
};
static const double LONGEST_WAIT_S = 120, LONGEST_PAUSE_S = 60;

/* ---- types ----------------------------------------------------------------------------------- */

typedef enum place_state { PLACE_UP, PLACE_TRIED, PLACE_DOWN, PLACE_OUT } place_state;

typedef struct place {
    const endpoint *at;
    const char *url;
    window window;
    place_state state;
    int failures;            /* in a row */
    double try_at_s;         /* PLACE_DOWN: when one request is sent again */
    double pause_s;          /* the last wait before that */
    uint64_t answered;       /* requests that it answered */
    uint64_t refused;        /* requests that it answered by 429 or 503 */
    uint64_t prompt, cached; /* tokens: of the answered prompts, and those that it had */
    float latest_ms[LATEST]; /* times of the latest answers, as a ring */
    char reason[2 * SHOWN];
} place;

/* A request on its way. */
typedef struct ask {
    int64_t id;
    request *r;
    bool *named;              /* llm_request.named, copied; NULL */
    int way;                  /* index in remote_ways(); not used for free text */
    bool again;               /* question.again */
    int tokens;               /* of the prompt, as we count */
    int shared;               /* of these: with the prompt submitted before */
    int tries;                /* how often it failed and is to be sent again */
    int faults;               /* failures that were the server's */
    int fault_at;             /* the place of the last of them; -1 */
    uint64_t answered_before; /* requests that were answered when it failed first */
    int at;                   /* the place where it is in flight or delayed; -1 */
    bool delayed;             /* sent again at due_s */
    bool counted;             /* its broken cells are counted */
    double due_s, sent_s;
    double money, reserved; /* reserved for it while it is in flight: money, tokens */
    http_call call;
    buf body;
} ask;

/* The literals' first tokens at the server. */
typedef struct scored {
    hash128 key;
    llm_token *ids; /* NULL: they do not tell the literals apart, or the server does not say */
} scored;

typedef struct remote_session {
    llm_session base; /* first: a pointer to it is one to the session */
    remote_model *m;
    http *net;
    route *route;
    place *places;
    int nplaces;
    ask **asks; /* by id; NULL: free */
    size_t nasks, asks_cap;
    int64_t *free_ids;
    size_t nfree, free_cap;
    size_t unanswered;
    size_t ndelayed;
    llm_token *last; /* the tokens of the prompt submitted last */
    int nlast;
    size_t last_cap;
    scored *scored;
    size_t nscored, scored_cap;
    double ratio; /* the largest ratio seen of a server's count of tokens to ours; 0: none seen */
    double reserved_money, reserved_tokens;
    bool full;          /* the next request may exceed a cap */
    bool full_of_money; /* that cap is max_money */
    double no_place_s;  /* since when no place is up; 0: one is */
    double held_from_s; /* since when limits hold requests back; 0: they do not */
    uint64_t answered;
    uint64_t seed;
} remote_session;

static remote_session *session_of(llm_session *s) {
    return (remote_session *)s;
}

static void tell(const remote_session *x, const char *text) {
    if (x->base.options.notice != NULL)
        x->base.options.notice(x->base.options.notice_ctx, text);
}

/* The first wait before a request is sent again; shorter where requests may take less time. */
static double first_wait(const remote_session *x) {
    return BASE_MIN(0.5, x->m->options.timeout / 240);
}

/* ---- asks ------------------------------------------------------------------------------------ */

static void ask_free(remote_session *x, int64_t id) {
    ask *a = x->asks[id];
    if (a == NULL)
        return;
    http_call_free(&a->call);
    buf_free(&a->body);
    request_free(a->r);
    free(a->named);
    free(a);
    x->asks[id] = NULL;
    ARRAY_PUSH(x->free_ids, x->nfree, x->free_cap, id);
}

static way ask_way(const remote_session *x, const ask *a) {
    if (a->r->guide == NULL)
        return WAY_TEXT;
    way w = remote_ways(x->m, a->r->guide)[a->way];
    return w == WAY_CHOICE && x->m->guided_by_name ? WAY_GUIDED : w;
}

static bool way_is_left(const remote_session *x, way w) {
    return w != WAY_PLAIN && x->m->wrong[w] >= WRONG;
}

/* Releases what was reserved for a request in flight. */
static void reserve_end(remote_session *x, ask *a) {
    x->reserved_money -= a->money;
    x->reserved_tokens -= a->reserved;
    a->money = a->reserved = 0;
    x->full = false;
}

/* Hands the request to the caller, with its answer or its failure. */
static void ask_finish(remote_session *x, int64_t id) {
    ask *a = x->asks[id];
    route_done(x->route, id);
    list_push(&x->base.ready, a->r);
    a->r = NULL;
    ask_free(x, id);
    x->unanswered--;
}

static void ask_fail(remote_session *x, int64_t id, err_code code, const char *message) {
    request *r = x->asks[id]->r;
    r->failure = mem_zalloc(sizeof *r->failure);
    err_set(r->failure, code, "%s", message);
    r->failure->pos = -1;
    x->base.figures.failed++;
    ask_finish(x, id);
}

/* ---- submitting ------------------------------------------------------------------------------ */

static int64_t new_id(remote_session *x) {
    if (x->nfree > 0)
        return x->free_ids[--x->nfree];
    ARRAY_PUSH(x->asks, x->nasks, x->asks_cap, NULL);
    return (int64_t)x->nasks - 1;
}

static int remote_submit(llm_session *s, const llm_request *q, err *e) {
    remote_session *x = session_of(s);
    request *r;
    int status = request_new(s, q, &r, e);
    if (status != 0)
        return status;
    ask *a = mem_zalloc(sizeof *a);
    a->r = r;
    a->at = a->fault_at = -1;
    a->named = named_copy(q);
    a->tokens = schedule_flatten(s, r);
    while (a->shared < a->tokens && a->shared < x->nlast &&
           x->last[a->shared] == s->scratch[a->shared])
        a->shared++;
    ARRAY_RESERVE(x->last, (size_t)a->tokens, x->last_cap);
    memcpy(x->last, s->scratch, sizeof *x->last * (size_t)a->tokens);
    x->nlast = a->tokens;
    x->seed = q->sampling.seed;
    int64_t id = a->id = new_id(x);
    x->asks[id] = a;
    route_add_shared(x->route, id, a->tokens, a->shared);
    x->unanswered++;
    s->figures.requests++;
    return 0;
}

/* ---- tokens of literals ---------------------------------------------------------------------- */

/* Asks for the first token of a literal; -1: not told. */
static llm_token first_token(remote_session *x, const place *at, str literal, bool chat, err *e) {
    buf url = {0}, body = {0}, text = {0};
    llm_token found = -1;
    bool lead = x->m->options.api == API_COMPLETIONS && !chat;
    buf_printf(&url, "%s/tokenize", at->at->root);
    buf_append_c(&text, lead ? " " : "");
    buf_append_str(&text, literal);
    dialect_write_tokenize(x->m, buf_str(&text), &body);
    http_call call = {.url = url.p, .request = buf_str(&body), .timeout_s = x->m->options.timeout};
    if (http_sync(x->net, &call, x->base.options.cancel, e) == 0 && call.result == HTTP_DONE &&
        call.status == 200)
        found = dialect_read_tokenize(call.body.n > 0 ? buf_str(&call.body) : STR(""));
    http_call_free(&call);
    buf_free(&url);
    buf_free(&body);
    buf_free(&text);
    return found;
}

/* Returns the literals' first tokens at the server, or NULL if these do not tell them apart. */
static const llm_token *literal_tokens(remote_session *x, const place *at, const request *r) {
    const llm_guide *g = r->guide;
    err ignored = {0}; /* a cancelled wait is found by the next step */
    for (size_t i = 0; i < x->nscored; i++)
        if (hash128_equal(x->scored[i].key, g->key))
            return x->scored[i].ids;
    llm_token *ids = mem_alloc(sizeof *ids * (size_t)g->count);
    bool apart = g->count <= SCORED_MAX;
    for (int i = 0; i < g->count && apart; i++) {
        ids[i] = first_token(x, at, g->literals[i], r->chat, &ignored);
        apart = ids[i] >= 0;
        for (int k = 0; k < i && apart; k++)
            apart = ids[k] != ids[i];
    }
    if (!apart) {
        free(ids);
        ids = NULL;
    }
    if (ignored.code == 0)
        ARRAY_PUSH(x->scored, x->nscored, x->scored_cap, ((scored){g->key, ids}));
    else
        free(ids);
    return ignored.code == 0 ? ids : NULL;
}

/* Goes on to a way that is not left and that this request can be asked by. */
static const llm_token *choose_way(remote_session *x, const place *at, ask *a) {
    for (;; a->way++) {
        way w = ask_way(x, a);
        if (way_is_left(x, w))
            continue;
        if (w != WAY_SCORE)
            return NULL;
        const llm_token *ids = literal_tokens(x, at, a->r);
        if (ids != NULL)
            return ids;
    }
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Our estimate of a prompt's tokens at the server, from above. */
static double likely_tokens(const remote_session *x, const ask *a) {
    static const double unknown = 1.5;
    return ceil(a->tokens * (x->ratio > 0 ? x->ratio : unknown));
}

/* Reserves what the request may cost; false: that may exceed a cap. */
static bool reserve(remote_session *x, ask *a, const question *q) {
    const llm_session_options *o = &x->base.options;
    const llm_figures *f = &x->base.figures;
    double prompt = likely_tokens(x, a), output = dialect_max_tokens(q);
    double money = llm_price(&x->base.engine->info, prompt, 0, output), tokens = prompt + output;
    /* rounding must not refuse a request that costs exactly what is left */
    bool payable =
        o->max_money <= 0 || f->money + x->reserved_money + money <= o->max_money * (1 + 1e-9);
    double used = (double)(f->computed_tokens + f->output_tokens);
    bool fits = o->max_tokens == 0 || used + x->reserved_tokens + tokens <= (double)o->max_tokens;
    x->full_of_money = !payable;
    if (!payable || !fits)
        return false;
    a->money = money;
    a->reserved = tokens;
    x->reserved_money += money;
    x->reserved_tokens += tokens;
    return true;
}

/* Sends a request to a place; false: a cap forbids it. */
static bool ask_send(remote_session *x, int64_t id, int at) {
    ask *a = x->asks[id];
    place *p = &x->places[at];
    question q = {.engine = x->base.engine, .r = a->r, .again = a->again};
    if (a->r->guide != NULL)
        q.ids = choose_way(x, p, a);
    q.way = ask_way(x, a);
    if (!reserve(x, a, &q))
        return false;
    buf_clear(&a->body);
    int broken = dialect_write(&q, &a->body);
    x->base.figures.broken_cells += a->counted ? 0 : (uint64_t)broken;
    a->counted = true;
    a->at = at;
    a->sent_s = clock_seconds();
    http_call_free(&a->call);
    a->call = (http_call){.owner = a,
                          .url = p->url,
                          .request = buf_str(&a->body),
                          .timeout_s = x->m->options.timeout};
    window_sent(&p->window, a->sent_s, likely_tokens(x, a));
    http_start(x->net, &a->call);
    return true;
}

/* Sends to a place as much as its window takes. Returns the seconds until it takes more; < 0: until
 * something is answered. */
static double fill_place(remote_session *x, int at) {
    place *p = &x->places[at];
    double now = clock_seconds();
    if (p->state == PLACE_DOWN && now >= p->try_at_s) {
        p->state = PLACE_TRIED;
        p->window.size = 1;
        route_up(x->route, at);
    }
    if (p->state == PLACE_DOWN)
        return p->try_at_s - now;
    while (p->state != PLACE_OUT && !x->full) {
        double wait = window_wait(&p->window, clock_seconds(), x->nlast);
        if (wait != 0)
            return wait;
        int64_t id = route_next(x->route, at);
        if (id < 0)
            return -1;
        if (!ask_send(x, id, at)) {
            route_again(x->route, id);
            x->full = true;
        }
    }
    return -1;
}

/* Puts requests whose wait is over back into the queue. */
static double wake_delayed(remote_session *x) {
    double now = clock_seconds(), next = -1;
    size_t left = x->ndelayed;
    for (size_t id = 0; id < x->nasks && left > 0; id++) {
        ask *a = x->asks[id];
        if (a == NULL || !a->delayed)
            continue;
        left--;
        if (a->due_s <= now) {
            a->delayed = false;
            a->at = -1;
            x->ndelayed--;
            route_again(x->route, (int64_t)id);
        } else {
            next = next < 0 ? a->due_s - now : BASE_MIN(next, a->due_s - now);
        }
    }
    return next;
}

/* ---- places ---------------------------------------------------------------------------------- */

static bool place_is_up(const place *p) {
    return p->state == PLACE_UP;
}

static void note_places(remote_session *x) {
    bool up = false;
    for (int i = 0; i < x->nplaces; i++)
        up = up || place_is_up(&x->places[i]);
    x->no_place_s = up ? 0 : x->no_place_s > 0 ? x->no_place_s : clock_seconds();
}

/* Takes a place out of use: its requests go back to the queue. */
static void place_down(remote_session *x, int at, place_state state) {
    place *p = &x->places[at];
    bool was_up = p->state == PLACE_UP;
    for (size_t id = 0; id < x->nasks; id++) {
        ask *a = x->asks[id];
        if (a == NULL || a->at != at)
            continue;
        if (a->delayed) {
            a->delayed = false;
            x->ndelayed--;
        } else {
            http_drop(x->net, &a->call);
            window_done(&p->window, clock_seconds(), 0);
            reserve_end(x, a);
        }
        a->at = -1;
    }
    route_down(x->route, at);
    p->state = state;
    p->pause_s = p->pause_s > 0 ? BASE_MIN(2 * p->pause_s, LONGEST_PAUSE_S) : 2 * first_wait(x);
    p->try_at_s = clock_seconds() + p->pause_s;
    note_places(x);
    if (was_up && x->nplaces > 1 && x->no_place_s == 0) {
        char text[3 * SHOWN];
        snprintf(text, sizeof text, "%s does not answer, others do: %s", p->at->origin, p->reason);
        tell(x, text);
    }
}

static void place_answered(remote_session *x, place *p, double ms) {
    p->failures = 0;
    p->latest_ms[p->answered % LATEST] = (float)ms;
    p->answered++;
    x->answered++;
    if (p->state == PLACE_TRIED) {
        p->state = PLACE_UP;
        p->pause_s = 0;
        p->window.size = BASE_MIN(FIRST_WINDOW, p->window.most);
    }
    note_places(x);
}

static int all_down(const remote_session *x, err *e) {
    buf reasons = {0};
    bool out = true;
    for (int i = 0; i < x->nplaces; i++) {
        const place *p = &x->places[i];
        out = out && p->state == PLACE_OUT;
        buf_printf(&reasons, "%s%s: %s", i > 0 ? "; " : "", p->at->origin,
                   p->reason[0] != '\0' ? p->reason : "no answer");
    }
    int code = err_set(e, ERR_MODEL, "%s: %s",
                       x->nplaces == 1 ? "the model's endpoint does not answer"
                                       : "no endpoint of the model answers",
                       reasons.p);
    if (strstr(reasons.p, "certificate") != NULL)
        err_hint(e, "WITH (ca 'file.pem') names a further authority");
    else if (!out)
        err_hint(e, "the answers so far are stored: run the statement again to continue");
    buf_free(&reasons);
    return code;
}

/* ---- failures -------------------------------------------------------------------------------- */

static void set_reason(const remote_session *x, place *p, str why) {
    buf text = {0};
    remote_mask(why, x->m->key, SHOWN, &text);
    utf8_copy(p->reason, sizeof p->reason, text.n > 0 ? buf_str(&text) : STR(""));
    buf_free(&text);
}

/* Seconds until a request is sent again: as the server says, else twice as long each time, with
 * noise that is a function of prompt, seed and try. */
static double back_off(const remote_session *x, const ask *a) {
    double told = http_retry_after(&a->call);
    if (told >= 0)
        return told;
    uint64_t h = hash_mix(hash64(a->body.p, a->body.n, x->seed), (uint64_t)a->tries);
    double noise = 0.75 + 0.5 * (double)(h >> 11) / (double)(1ull << 53);
    return BASE_MIN(first_wait(x) * pow(2, a->tries - 1) * noise, LONGEST_PAUSE_S);
}

static void ask_delay(remote_session *x, ask *a, double seconds) {
    a->delayed = true;
    a->due_s = clock_seconds() + seconds;
    x->ndelayed++;
    x->base.figures.retries++;
}

/* Whether a failure is the request's own: it failed elsewhere too, or often, while others were
 * answered, or it is the only one left at a place that has answered others. */
static bool is_its_own(const remote_session *x, const ask *a, int at) {
    bool others =
        x->answered > a->answered_before || (x->unanswered == 1 && x->places[at].answered > 0);
    bool elsewhere = a->fault_at >= 0 && a->fault_at != at;
    return others && a->faults >= ROW_FAILS && (elsewhere || x->nplaces == 1);
}

/* The request failed, but may succeed if it is sent again. `busy`: the server has too much to do. */
static void ask_retry(remote_session *x, int64_t id, bool busy, bool fault, str why) {
    ask *a = x->asks[id];
    int at = a->at;
    place *p = &x->places[at];
    bool timed_out = a->call.result == HTTP_TIMEOUT;
    char message[4 * SHOWN];
    set_reason(x, p, why);
    snprintf(message, sizeof message, "%s: %s", p->at->origin, p->reason);
    if (busy || timed_out)
        window_cut(&p->window, clock_seconds(), a->sent_s);
    x->base.figures.refused += busy;
    p->refused += busy;
    if (a->faults == 0)
        a->answered_before = x->answered;
    a->faults += fault;
    a->tries++;
    bool own = fault && is_its_own(x, a, at);
    a->fault_at = fault ? at : a->fault_at;
    if (http_retry_after(&a->call) > LONGEST_WAIT_S) {
        snprintf(p->reason, sizeof p->reason, "it asks to wait %.0f s", http_retry_after(&a->call));
        a->at = -1;
        place_down(x, at, PLACE_OUT);
        return;
    }
    bool down = !busy && !own && ++p->failures >= DOWN_AFTER;
    if (!down && (own || a->tries > x->m->options.retries)) {
        ask_fail(x, id, ERR_MODEL, message);
    } else if (down || p->state == PLACE_TRIED) {
        a->tries = BASE_MIN(a->tries, 1); /* it was the place's fault */
        a->delayed = false;
        a->at = -1;
        place_down(x, at, PLACE_DOWN);
    } else {
        ask_delay(x, a, back_off(x, a));
    }
}

/* An endpoint that refuses all requests is out; the request goes to another. */
static void ask_refused(remote_session *x, int64_t id, str why) {
    int at = x->asks[id]->at;
    set_reason(x, &x->places[at], why);
    x->asks[id]->at = -1;
    place_down(x, at, PLACE_OUT);
}

/* Removes a field of a prompt that is too long for the server and sends it again. false: no field
 * can be removed. */
static bool ask_shorten(remote_session *x, int64_t id) {
    ask *a = x->asks[id];
    int before = a->r->nspans;
    if (!x->base.options.truncate)
        return false;
    request_fit(a->r, a->named, a->r->prompt_tokens - 1);
    if (a->r->nspans == before)
        return false;
    x->base.figures.truncated++;
    route_again(x->route, id);
    a->at = -1;
    return true;
}

/* The answer was not of its type, or not sure: asks once more, or by the next way. */
static void ask_otherwise(remote_session *x, int64_t id, const reply *got) {
    ask *a = x->asks[id];
    way w = ask_way(x, a);
    remote_model *m = x->m;
    bool was_left = way_is_left(x, w);
    m->tried[w] += a->call.status != 200; /* the server refuses the way */
    if (m->tried[w] <= TRIED)
        m->wrong[w]++;
    if (!was_left && way_is_left(x, w) && got->verdict == VERDICT_WRONG_TYPE) {
        char text[SHOWN];
        snprintf(
            text, sizeof text,
            "the server of the model \"%.60s\" seems to ignore %s: %d of its first answers are "
            "not of their type; it is asked in another way",
            m->name, way_name(w), m->wrong[w]);
        tell(x, text);
    }
    if (w != WAY_PLAIN && (way_is_left(x, w) || got->verdict == VERDICT_UNSURE)) {
        a->way++;
        a->again = false;
    } else if (!a->again) {
        a->again = true;
    } else {
        buf why = {0};
        reply_message(got, m->key, &why);
        ask_fail(x, id, ERR_MODEL, why.p);
        buf_free(&why);
        return;
    }
    a->at = -1;
    route_again(x->route, id);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Counts what a reply cost, as reported; what is not reported is counted as expected. */
static void count_usage(remote_session *x, ask *a, const reply *got) {
    llm_figures *f = &x->base.figures;
    request *r = a->r;
    double likely = a->tokens * (x->ratio > 0 ? x->ratio : 1);
    double prompt = got->prompt_tokens > 0 ? (double)got->prompt_tokens : ceil(likely);
    double scale = a->tokens > 0 ? prompt / a->tokens : 1, shared = floor(a->shared * scale);
    bool reported = got->cached_tokens >= 0;
    double cached = reported ? (double)got->cached_tokens : BASE_MIN(shared, prompt);
    int64_t output = got->output_tokens >= 0 ? got->output_tokens : 1 + (int64_t)got->text.n / 4;
    if (got->prompt_tokens > 0)
        x->ratio = BASE_MAX(x->ratio, scale);
    r->prompt_tokens = (int)prompt;
    r->computed = (int)(prompt - cached);
    r->noutput += (int)output;
    f->prompt_tokens += (uint64_t)prompt;
    f->computed_tokens += (uint64_t)(prompt - cached);
    f->reused_memory += (uint64_t)cached;
    f->shared_tokens += (uint64_t)shared;
    f->output_tokens += (uint64_t)output;
    f->head_tokens += (uint64_t)BASE_MIN(r->head_tokens, (int)prompt);
    f->passes++;
    f->served++;
    f->unreported += !reported;
    x->places[a->at].prompt += (uint64_t)prompt;
    x->places[a->at].cached += (uint64_t)cached;
    /* what is not reported is not taken for cached where money is counted */
    f->money += llm_price(&x->base.engine->info, prompt, reported ? cached : 0, (double)output);
}

/* Puts a reply's answer into the request. */
static void take_answer(remote_session *x, int64_t id, reply *got) {
    request *r = x->asks[id]->r;
    buf_clear(&r->text);
    if (got->text.n > 0)
        buf_append_str(&r->text, buf_str(&got->text));
    r->finish = got->finish;
    if (r->guide == NULL) {
        buf kept = {0};
        size_t stop = text_stop(r);
        if (stop != SIZE_MAX) {
            r->text.n = stop;
            r->finish = LLM_FINISH_STOP;
        }
        /* a server could send back the key that it was sent */
        if (x->m->key != NULL && r->text.n > 0 && strstr(r->text.p, x->m->key) != NULL) {
            remote_mask(buf_str(&r->text), x->m->key, SIZE_MAX, &kept);
            buf_clear(&r->text);
            buf_append_str(&r->text, buf_str(&kept));
            buf_free(&kept);
        }
        free_text_set(r, r->text.n > 0 ? buf_str(&r->text) : STR(""));
    }
    r->choice = got->choice;
    r->prob = got->prob;
    if (r->all_probs) {
        r->probs = got->probs;
        got->probs = NULL;
    }
    x->base.figures.done++;
    ask_finish(x, id);
}

/* Acts on a reply of the server. */
static void ask_reply(remote_session *x, int64_t id, reply *got) {
    ask *a = x->asks[id];
    place *p = &x->places[a->at];
    way w = ask_way(x, a);
    char message[2 * SHOWN];
    bool answered = got->verdict == VERDICT_ANSWER || got->verdict == VERDICT_WRONG_TYPE ||
                    (got->verdict == VERDICT_UNSURE && a->call.status == 200);
    if (answered) {
        count_usage(x, a, got);
        x->m->tried[w]++;
    }
    if (answered || got->verdict == VERDICT_ROW || got->verdict == VERDICT_TOO_LONG)
        place_answered(x, p, 1e3 * (clock_seconds() - a->sent_s));
    buf shown = {0};
    reply_message(got, x->m->key, &shown);
    str why = shown.n > 0 ? buf_str(&shown) : STR("");
    snprintf(message, sizeof message, "%s: %s", p->at->origin, shown.n > 0 ? shown.p : "");
    switch (got->verdict) {
    case VERDICT_ANSWER:
        take_answer(x, id, got);
        break;
    case VERDICT_WRONG_TYPE:
    case VERDICT_UNSURE:
        ask_otherwise(x, id, got);
        break;
    case VERDICT_AGAIN:
    case VERDICT_BUSY:
        ask_retry(x, id, got->verdict == VERDICT_BUSY, got->verdict == VERDICT_AGAIN, why);
        break;
    case VERDICT_TOO_LONG:
        if (!ask_shorten(x, id))
            ask_fail(x, id, ERR_LIMIT, shown.n > 0 ? shown.p : "");
        break;
    case VERDICT_ROW:
        ask_fail(x, id, ERR_MODEL, message);
        break;
    case VERDICT_ENDPOINT:
        ask_refused(x, id, why);
        break;
    }
    buf_free(&shown);
}

static void take_limits(place *p, const http_call *c) {
    buf left = {0}, reset = {0};
    if (http_header(c, "x-ratelimit-remaining-requests", &left) &&
        http_header(c, "x-ratelimit-reset-requests", &reset))
        window_told(&p->window, clock_seconds(), buf_str(&left), buf_str(&reset));
    buf_free(&left);
    buf_free(&reset);
}

/* Acts on the end of a call. */
static void ask_take(remote_session *x, int64_t id) {
    ask *a = x->asks[id];
    place *p = &x->places[a->at];
    http_call *c = &a->call;
    reply got = {0};
    bool done = c->result == HTTP_DONE;
    reserve_end(x, a);
    if (done && c->redirect.n == 0) {
        question q = {.engine = x->base.engine, .r = a->r, .again = a->again, .way = ask_way(x, a)};
        if (q.way == WAY_SCORE)
            q.ids = literal_tokens(x, p, a->r);
        dialect_read(&q, c->status, c->body.n > 0 ? buf_str(&c->body) : STR(""), &got);
    }
    double tokens = done && c->status == 200 ? (double)BASE_MAX(got.prompt_tokens, (int64_t)1) : 0;
    window_done(&p->window, clock_seconds(), tokens);
    take_limits(p, c);
    if (done && c->redirect.n > 0) {
        buf why = {0};
        buf_printf(&why, "it redirects to %s, which is not followed", c->redirect.p);
        ask_refused(x, id, buf_str(&why));
        buf_free(&why);
    } else if (done) {
        ask_reply(x, id, &got);
    } else if (c->result == HTTP_TLS || (c->result == HTTP_REFUSED && c->refused_address)) {
        ask_refused(x, id, str_from(c->why));
    } else {
        ask_retry(x, id, false, c->result != HTTP_CONNECT, str_from(c->why));
    }
    reply_free(&got);
}

/* ---- stepping -------------------------------------------------------------------------------- */

static route_options route_options_of(const remote_session *x) {
    enum { WINDOW = 256 }; /* before it is known what the server is */
    int most = x->places[0].window.most;
    return (route_options){
        .endpoints = x->nplaces, .leaders = true, .window = most > 0 ? most : (int)WINDOW};
}

/* Drops everything that is unanswered; connections are closed, so servers stop computing. */
static void drop_all(remote_session *x) {
    for (size_t id = 0; id < x->nasks; id++) {
        ask *a = x->asks[id];
        if (a == NULL)
            continue;
        if (a->at >= 0 && !a->delayed) {
            http_drop(x->net, &a->call);
            window_done(&x->places[a->at].window, clock_seconds(), 0);
            reserve_end(x, a);
        }
        x->ndelayed -= a->delayed;
        a->at = -1;
        a->delayed = false;
        ask_free(x, (int64_t)id);
    }
    x->unanswered = 0;
    x->nlast = 0; /* the new route has no request before the next one */
    route_options o = route_options_of(x);
    route_free(x->route);
    x->route = route_new(&o);
}

static int in_flight(const remote_session *x) {
    int n = 0;
    for (int i = 0; i < x->nplaces; i++)
        n += x->places[i].window.in_flight;
    return n;
}

static int cap_error(const remote_session *x, err *e) {
    const llm_session_options *o = &x->base.options;
    if (x->full_of_money)
        return err_set(e, ERR_LIMIT, "max_cost = %g: the next request might exceed it (%g spent)",
                       o->max_money, x->base.figures.money);
    return err_set(e, ERR_LIMIT, "max_tokens_total = %llu: the next request might exceed it",
                   (unsigned long long)o->max_tokens);
}

/* Counts the time during which limits alone hold requests back. */
static void count_held(remote_session *x, bool held) {
    double now = clock_seconds();
    if (x->held_from_s > 0)
        x->base.figures.held_ms += 1e3 * (now - x->held_from_s);
    x->held_from_s = held ? now : 0;
}

/* Sends what may be sent. Returns the milliseconds until more may be sent, at most STEP_MS. */
static int send_all(remote_session *x) {
    double next = wake_delayed(x), wait;
    bool held = false;
    for (int i = 0; i < x->nplaces; i++) {
        wait = fill_place(x, i);
        held = held || wait > 0;
        if (wait >= 0)
            next = next < 0 ? wait : BASE_MIN(next, wait);
    }
    count_held(x, held && in_flight(x) == 0);
    return next < 0 ? (int)STEP_MS : (int)BASE_MIN(ceil(next * 1e3), (double)STEP_MS);
}

static int session_begin(remote_session *x, err *e) {
    if (!x->m->probed)
        return remote_probe(x->m, x->net, x->base.options.cancel, e);
    return 0;
}

static void windows_begin(remote_session *x) {
    const remote_model *m = x->m;
    const server_row *row = server_row_of(m->server);
    int most = m->options.window > 0 ? (int)BASE_MIN(m->options.window, 4096)
               : m->slots > 0        ? m->slots
                                     : row->window;
    for (int i = 0; i < x->nplaces; i++)
        window_init(&x->places[i].window, BASE_MAX(FIRST_WINDOW, m->slots), most,
                    (double)m->options.rpm, (double)m->options.tpm);
}

static int session_turn(remote_session *x, err *e) {
    int status = session_begin(x, e);
    if (status != 0)
        return status;
    if (x->places[0].window.most == 0)
        windows_begin(x);
    int ms = send_all(x);
    bool finished = x->base.ready.count > 0;
    http_wait(x->net, finished ? 0 : ms);
    http_call *c;
    while ((c = http_next(x->net)) != NULL)
        ask_take(x, ((const ask *)c->owner)->id);
    bool out = true;
    for (int i = 0; i < x->nplaces; i++)
        out = out && x->places[i].state == PLACE_OUT;
    if (x->unanswered > 0 &&
        (out || (x->no_place_s > 0 && clock_seconds() - x->no_place_s > x->m->options.timeout)))
        return all_down(x, e);
    if (x->full && in_flight(x) == 0 && x->base.ready.count == 0 && x->unanswered > 0)
        return cap_error(x, e);
    return 0;
}

static int remote_step(llm_session *s, llm_event *events, int capacity, int *count, bool *idle,
                       err *e) {
    remote_session *x = session_of(s);
    int status = 0;
    if (s->options.cancel != NULL && atomic_load(s->options.cancel)) {
        if (x->unanswered > 0) {
            drop_all(x);
            status = err_set(e, ERR_CANCELLED, "cancelled");
        }
    } else if (s->ready.count < capacity && x->unanswered > 0) {
        status = session_turn(x, e);
    }
    session_hand_out(s, events, capacity, count);
    *idle = s->ready.count == 0 && x->unanswered == 0;
    return status;
}

/* ---- the driver ------------------------------------------------------------------------------ */

static void remote_free(llm_session *s) {
    remote_session *x = session_of(s);
    drop_all(x);
    session_end(s);
    http_free(x->net);
    route_free(x->route);
    for (size_t i = 0; i < x->nscored; i++)
        free(x->scored[i].ids);
    for (int i = 0; i < x->nplaces; i++)
        free((char *)(uintptr_t)x->places[i].url);
    free(x->scored);
    free(x->places);
    free(x->asks);
    free(x->free_ids);
    free(x->last);
    free(x);
}

static void remote_figures(const llm_session *s, llm_figures *out) {
    *out = s->figures;
}

static int remote_branches(llm_session *s, llm_branch *out, int capacity) {
    (void)s;
    (void)out;
    (void)capacity;
    return 0; /* the tree is the server's */
}

static int remote_logprobs(llm_session *s, const llm_token *tokens, size_t count, float *out,
                           err *e) {
    (void)tokens;
    (void)count;
    (void)out;
    return err_set(e, ERR_UNSUPPORTED, "the server of the model \"%s\" returns no logits",
                   s->engine->info.name);
}

static int by_time(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int remote_places(const llm_session *s, llm_place *out, int capacity) {
    static const char *const states[] = {
        [PLACE_UP] = "up", [PLACE_TRIED] = "tried", [PLACE_DOWN] = "down", [PLACE_OUT] = "left"};
    const remote_session *x = (const remote_session *)s;
    for (int i = 0; i < x->nplaces && i < capacity; i++) {
        const place *p = &x->places[i];
        float ms[LATEST];
        size_t n = (size_t)BASE_MIN(p->answered, (uint64_t)LATEST);
        memcpy(ms, p->latest_ms, sizeof ms);
        qsort(ms, n, sizeof *ms, by_time);
        out[i] = (llm_place){.url = p->at->origin,
                             .state = states[p->state],
                             .in_flight = p->window.in_flight,
                             .window = p->window.size,
                             .answered = p->answered,
                             .refused = p->refused,
                             .prompt = p->prompt,
                             .cached = p->cached,
                             .tokens_s = p->window.rate,
                             .median_ms = n > 0 ? (double)ms[n / 2] : 0,
                             .slow_ms = n > 0 ? (double)ms[n * 95 / 100] : 0};
    }
    return x->nplaces;
}

static const session_driver remote_driver = {.free = remote_free,
                                             .submit = remote_submit,
                                             .step = remote_step,
                                             .figures = remote_figures,
                                             .branches = remote_branches,
                                             .logprobs = remote_logprobs,
                                             .places = remote_places};

int remote_session_new(llm_engine *engine, const llm_session_options *options, llm_session **out,
                       err *e) {
    *out = NULL;
    if (options->warm_only) {
        err_set(e, ERR_UNSUPPORTED,
                "the model \"%s\" is at a server, which keeps its own cache: it cannot be warmed",
                engine->info.name);
        return ERR_UNSUPPORTED;
    }
    remote_session *x = mem_zalloc(sizeof *x);
    x->base.driver = &remote_driver;
    x->base.engine = engine;
    x->base.options = *options;
    x->base.device_blocks = INT32_MAX;
    x->m = engine->state;
    x->nplaces = x->m->nendpoints;
    int status = http_new(x->m->key, x->m->options.ca, &x->net, e);
    if (status != 0) {
        free(x);
        return status;
    }
    x->places = mem_zalloc(sizeof *x->places * (size_t)x->nplaces);
    for (int i = 0; i < x->nplaces; i++) {
        buf url = {0};
        x->places[i].at = &x->m->endpoints[i];
        buf_printf(&url, "%s%s", x->m->endpoints[i].base, dialect_path(x->m));
        x->places[i].url = url.p;
    }
    route_options o = route_options_of(x);
    x->route = route_new(&o);
    *out = &x->base;
    return 0;
}
#else
typedef int remote_session_is_not_built; /* ISO C requires a declaration in a file */
#endif
