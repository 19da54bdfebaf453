/*
 * route.c - runs of the queue for endpoints, and which of their requests wait for others.
 *
 * Invariant: a request that is not done is in exactly one place: an interval of the queue, an
 * interval of an endpoint's run, or a record (`taken`). Of a request that waits, the one that it
 * waits for has a record at the same endpoint and was taken before it, so that the first of such a
 * chain is in flight or free to be sent: an endpoint with waiting requests never stands still.
 *
 * Requests are the leaves of their prefix tree in depth-first order, and two of them share the
 * minimum of what neighbours between them share. So the tree is never built: an endpoint has the
 * path from the root to the request that it took last (`path`), each part with the first request
 * that has it. Time for a request: O(depth of the tree).
 *
 * When to send, to retry and to give up is the caller's.
 */
#include "remote/route_int.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "storage/containers.h"

/* WORTH: tokens for which a request waits. LOWS: requests for each item of route.low. */
enum { BLOCK_COST = 8, LEAST_RUN = 4000, WORTH = 16, LOWS = 256 };
#define NOBODY UINT32_MAX
#define NOWHERE SIZE_MAX

/* Numbers of requests, in the order in which they were added. */
typedef struct interval {
    size_t from, to;
} interval;

typedef struct interval_list {
    interval *p;
    size_t n, cap;
} interval_list;

typedef struct request {
    int64_t id; /* -1: done */
    uint32_t count;
    uint32_t shared; /* tokens that the request before it also begins with */
} request;

/* A request that an endpoint has taken from its run: it waits, is free to be sent, or is in flight.
 * Links are numbers of other records. */
typedef struct taken {
    size_t at;         /* its number in the order */
    uint32_t endpoint; /* of endpoints */
    bool in_flight;
    uint32_t leader;      /* what it waits for, or NOBODY */
    uint32_t first, last; /* the requests that wait for it, in the order in which they were taken */
    uint32_t next;        /* in such a list, in endpoint.free, or in the list of unused records */
    uint32_t before, behind; /* in the list of all records of the endpoint */
} taken;

/* A part of a path: tokens from the end of the part above it. */
typedef struct part {
    uint32_t end;
    uint32_t holder; /* an unanswered request that has it */
} part;

typedef struct endpoint {
    bool down;
    interval_list run;
    size_t run_at;            /* the first interval of `run` that is left */
    uint64_t answered;        /* cost of its answered requests */
    uint32_t all;             /* its records */
    uint32_t free, free_last; /* those that were released and are not yet sent */
    int held;                 /* number of those that wait */
    size_t last;              /* the request that it took last, or NOWHERE */
    size_t furthest;          /* the last in the order of all that it took, if `last` is one */
    uint32_t known;           /* tokens of the path of `last` that an answered request has */
    part *path;               /* the rest of this path, as far as it is shared with others so far */
    size_t nparts, parts_cap;
} endpoint;

struct route {
    route_options options;
    endpoint *endpoints;
    /* requests base .. base + n - 1; `base` is a multiple of LOWS */
    request *requests;
    size_t base, n, cap;
    uint32_t *low; /* least `shared` of each LOWS requests from base on */
    size_t nlow, low_cap;
    uint32_t least;      /* least `shared` of all but the first */
    interval_list queue; /* disjoint, descending: the last one is taken first */
    uint64_t queue_cost;
    size_t waiting;
    taken *records;
    uint32_t nrecords, records_cap, unused;
    hash_index in_flight; /* id -> record */
    llm_token *before;    /* the prompt added last */
    int nbefore, before_cap;
};

route *route_new(const route_options *options) {
    route *r = mem_zalloc(sizeof *r);
    r->options = *options;
    r->least = UINT32_MAX;
    r->unused = NOBODY;
    r->endpoints = mem_zalloc(sizeof *r->endpoints * (size_t)options->endpoints);
    for (int i = 0; i < options->endpoints; i++) {
        endpoint *e = &r->endpoints[i];
        e->last = NOWHERE;
        e->all = e->free = e->free_last = NOBODY;
    }
    return r;
}

void route_free(route *r) {
    if (!r)
        return;
    for (int i = 0; i < r->options.endpoints; i++) {
        free(r->endpoints[i].run.p);
        free(r->endpoints[i].path);
    }
    free(r->endpoints);
    free(r->requests);
    free(r->low);
    free(r->queue.p);
    free(r->records);
    free(r->before);
    hash_index_free(&r->in_flight);
    free(r);
}

size_t route_waiting(const route *r) {
    return r->waiting;
}

int route_held(const route *r, int of) {
    return r->endpoints[of].held;
}

/* ---- the order ------------------------------------------------------------------------------- */

static request *request_at(const route *r, size_t at) {
    return &r->requests[at - r->base];
}

static uint64_t cost_at(const route *r, size_t at) {
    const request *q = request_at(r, at);
    return q->count - q->shared + BLOCK_COST;
}

/* The tokens that two requests share; b is not dropped. If a is, the result may be too small. */
static uint32_t shared_by(const route *r, size_t a, size_t b) {
    if (a == NOWHERE)
        return 0;
    if (a == b)
        return request_at(r, a)->count;
    size_t i = BASE_MIN(a, b) + 1, end = BASE_MAX(a, b);
    uint32_t low = i < r->base ? r->least : UINT32_MAX;
    while (i <= end && low > r->least) {
        bool whole = i % LOWS == 0 && i + LOWS - 1 <= end;
        uint32_t next = whole ? r->low[(i - r->base) / LOWS] : request_at(r, i)->shared;
        low = BASE_MIN(low, next);
        i += whole ? LOWS : 1;
    }
    return low;
}

/* Drops requests at the front that are done, if they are half of all. */
static void drop_done(route *r) {
    size_t done = 0;
    while (done < r->n && r->requests[done].id < 0)
        done++;
    done -= done % LOWS;
    if (done == 0 || done < r->n / 2)
        return;
    r->n -= done;
    r->base += done;
    r->nlow -= done / LOWS;
    memmove(r->requests, r->requests + done, sizeof *r->requests * r->n);
    memmove(r->low, r->low + done / LOWS, sizeof *r->low * r->nlow);
}

/* ---- the queue ------------------------------------------------------------------------------- */

/* Puts requests back into the queue, or new ones behind it. */
static void queue_put(route *r, size_t from, size_t to) {
    interval_list *q = &r->queue;
    size_t k = q->n;
    while (k > 0 && q->p[k - 1].from < from)
        k--;
    if (k < q->n && q->p[k].to == from) {
        q->p[k].to = to;
    } else if (k > 0 && q->p[k - 1].from == to) {
        q->p[k - 1].from = from;
    } else {
        ARRAY_RESERVE(q->p, q->n + 1, q->cap);
        memmove(q->p + k + 1, q->p + k, sizeof *q->p * (q->n++ - k));
        q->p[k] = (interval){from, to};
    }
    for (size_t i = from; i < to; i++)
        r->queue_cost += cost_at(r, i);
}

void route_add_shared(route *r, int64_t id, int count, int shared) {
    assert(id >= 0 && shared >= 0 && shared <= count);
    if (r->n == r->cap)
        drop_done(r);
    size_t at = r->base + r->n;
    uint32_t s = at == 0 ? 0 : (uint32_t)shared;
    ARRAY_PUSH(r->requests, r->n, r->cap, ((request){id, (uint32_t)count, s}));
    if (at > 0)
        r->least = BASE_MIN(r->least, s);
    if (at % LOWS == 0)
        ARRAY_PUSH(r->low, r->nlow, r->low_cap, s);
    else
        r->low[r->nlow - 1] = BASE_MIN(r->low[r->nlow - 1], s);
    queue_put(r, at, at + 1);
    r->waiting++;
}

void route_add(route *r, int64_t id, const llm_token *tokens, int count) {
    int shared = 0, most = BASE_MIN(count, r->nbefore);
    while (shared < most && tokens[shared] == r->before[shared])
        shared++;
    ARRAY_RESERVE(r->before, count, r->before_cap);
    if (count > shared)
        memcpy(r->before + shared, tokens + shared, sizeof *tokens * (size_t)(count - shared));
    r->nbefore = count;
    route_add_shared(r, id, count, shared);
}

/* The cost of the next run of an endpoint (route_int.h). */
static uint64_t run_cost(const route *r, const endpoint *e) {
    uint64_t all = 0;
    if (e->answered == 0)
        return LEAST_RUN;
    for (int i = 0; i < r->options.endpoints; i++)
        all += r->endpoints[i].down ? 0 : r->endpoints[i].answered;
    double share = (double)e->answered / (double)all;
    uint64_t want = BASE_MIN((uint64_t)((double)r->queue_cost * share / 2), 2 * e->answered);
    double least = LEAST_RUN * BASE_MIN(1.0, share * r->options.endpoints);
    return BASE_MAX(want, 1 + (uint64_t)least);
}

/* The best end of a run within [from, to): the latest of the places in its last quarter where
 * neighbours share least. There is a request at `to`. */
static size_t best_end(const route *r, size_t from, size_t to) {
    size_t best = to;
    for (size_t i = to; i > from + (to - from) * 3 / 4; i--)
        if (request_at(r, i)->shared < request_at(r, best)->shared)
            best = i;
    return best;
}

/* Moves a run from the queue to an endpoint that has none; false: the queue is empty. */
static bool take_run(route *r, endpoint *e) {
    uint64_t want = run_cost(r, e), cost = 0;
    e->run.n = e->run_at = 0;
    while (r->queue.n > 0 && cost < want) {
        interval *front = &r->queue.p[r->queue.n - 1];
        size_t from = front->from, to = from;
        while (to < front->to && cost < want)
            cost += cost_at(r, to++);
        if (to < front->to)
            to = best_end(r, from, to);
        for (size_t i = from; i < to; i++)
            r->queue_cost -= cost_at(r, i);
        ARRAY_PUSH(e->run.p, e->run.n, e->run.cap, ((interval){from, to}));
        front->from = to;
        if (to == front->to)
            r->queue.n--;
    }
    return e->run.n > 0;
}

/* ---- records --------------------------------------------------------------------------------- */

static uint32_t record_new(route *r, int to, size_t at) {
    endpoint *e = &r->endpoints[to];
    uint32_t x = r->unused;
    taken t = {at, (uint32_t)to, false, NOBODY, NOBODY, NOBODY, NOBODY, NOBODY, e->all};
    if (x == NOBODY) {
        x = r->nrecords;
        ARRAY_PUSH(r->records, r->nrecords, r->records_cap, t);
    } else {
        r->unused = r->records[x].next;
        r->records[x] = t;
    }
    if (e->all != NOBODY)
        r->records[e->all].before = x;
    e->all = x;
    return x;
}

static uint64_t id_hash(int64_t id) {
    return hash64(&id, sizeof id, 0);
}

static void record_free(route *r, uint32_t x) {
    taken *t = &r->records[x];
    if (t->in_flight)
        hash_index_remove(&r->in_flight,
                          hash_index_slot(&r->in_flight, id_hash(request_at(r, t->at)->id), x));
    if (t->before == NOBODY)
        r->endpoints[t->endpoint].all = t->behind;
    else
        r->records[t->before].behind = t->behind;
    if (t->behind != NOBODY)
        r->records[t->behind].before = t->before;
    t->next = r->unused;
    r->unused = x;
}

/* Appends a record to a list linked by `next`. */
static void list_add(route *r, uint32_t *first, uint32_t *last, uint32_t x) {
    r->records[x].next = NOBODY;
    if (*first == NOBODY)
        *first = x;
    else
        r->records[*last].next = x;
    *last = x;
}

static void wait_for(route *r, uint32_t x, uint32_t leader) {
    r->records[x].leader = leader;
    list_add(r, &r->records[leader].first, &r->records[leader].last, x);
}

static void release(route *r, endpoint *e, uint32_t x) {
    r->records[x].leader = NOBODY;
    list_add(r, &e->free, &e->free_last, x);
    e->held--;
}

/* Returns the id. */
static int64_t set_in_flight(route *r, uint32_t x) {
    int64_t id = request_at(r, r->records[x].at)->id;
    r->records[x].in_flight = true;
    hash_index_add(&r->in_flight, id_hash(id), x);
    r->waiting--;
    return id;
}

/* The record of a request in flight. */
static uint32_t find(const route *r, int64_t id) {
    hash_slot *s = hash_index_first(&r->in_flight, id_hash(id));
    while (s && request_at(r, r->records[s->item].at)->id != id)
        s = hash_index_next(&r->in_flight, s);
    assert(s);
    return s->item;
}

/* ---- leaders --------------------------------------------------------------------------------- */

/* Of the endpoint's records that wait for `leader` (NOBODY: of all records), one that shares most
 * with the request `at`: the nearest on one of its sides. */
static uint32_t closest(const route *r, const endpoint *e, uint32_t leader, size_t at) {
    uint32_t below = NOBODY, above = NOBODY;
    for (uint32_t x = e->all; x != NOBODY; x = r->records[x].behind) {
        const taken *t = &r->records[x];
        if ((leader != NOBODY && t->leader != leader) || t->at == at)
            continue;
        if (t->at < at && (below == NOBODY || t->at > r->records[below].at))
            below = x;
        if (t->at > at && (above == NOBODY || t->at < r->records[above].at))
            above = x;
    }
    if (below == NOBODY || above == NOBODY)
        return below == NOBODY ? above : below;
    return shared_by(r, r->records[below].at, at) >= shared_by(r, r->records[above].at, at) ? below
                                                                                            : above;
}

/* Cuts the path where the request `at` leaves it. Returns the tokens that this request shares with
 * those taken before. */
static uint32_t path_turn(route *r, endpoint *e, size_t at) {
    uint32_t shared = shared_by(r, e->last, at);
    e->known = BASE_MIN(e->known, shared);
    while (e->nparts > 0 && (e->nparts > 1 ? e->path[e->nparts - 2].end : e->known) >= shared)
        e->nparts--;
    if (e->nparts > 0)
        e->path[e->nparts - 1].end = BASE_MIN(e->path[e->nparts - 1].end, shared);
    shared = e->nparts > 0 ? e->path[e->nparts - 1].end : e->known;
    /* going back, the path lacks branches that the endpoint left, but has not answered */
    bool onward = at > e->last && e->last == e->furthest;
    uint32_t x = onward ? NOBODY : closest(r, e, NOBODY, at);
    uint32_t more = x == NOBODY ? 0 : shared_by(r, r->records[x].at, at);
    if (more > shared) {
        ARRAY_PUSH(e->path, e->nparts, e->parts_cap, ((part){more, x}));
        shared = more;
    }
    e->furthest = onward || e->last == NOWHERE ? at : BASE_MAX(e->furthest, at);
    e->last = at;
    return shared;
}

/* Takes the request `at`: the result either is free to be sent or waits for another. */
static uint32_t take(route *r, int to, size_t at) {
    endpoint *e = &r->endpoints[to];
    uint32_t shared = r->options.leaders ? path_turn(r, e, at) : 0, leader = NOBODY;
    if (shared >= e->known + WORTH) {
        size_t k = 0;
        while (e->path[k].end + WORTH <= shared)
            k++;
        leader = e->path[k].holder;
    }
    uint32_t x = record_new(r, to, at), count = request_at(r, at)->count;
    if (r->options.leaders && count > shared)
        ARRAY_PUSH(e->path, e->nparts, e->parts_cap, ((part){count, x}));
    if (leader != NOBODY) {
        wait_for(r, x, leader);
        e->held++;
    }
    return x;
}

int64_t route_next(route *r, int to) {
    endpoint *e = &r->endpoints[to];
    if (e->down)
        return ROUTE_NONE;
    if (e->free != NOBODY) {
        uint32_t x = e->free;
        e->free = r->records[x].next;
        return set_in_flight(r, x);
    }
    while (e->held < 2 * r->options.window) {
        if (e->run_at == e->run.n && !take_run(r, e))
            return e->held > 0 ? ROUTE_HELD : ROUTE_NONE;
        interval *now = &e->run.p[e->run_at];
        uint32_t x = take(r, to, now->from++);
        e->run_at += now->from == now->to;
        if (r->records[x].leader == NOBODY)
            return set_in_flight(r, x);
    }
    return ROUTE_HELD;
}

void route_done(route *r, int64_t id) {
    uint32_t x = find(r, id);
    taken *t = &r->records[x];
    endpoint *e = &r->endpoints[t->endpoint];
    e->answered += cost_at(r, t->at);
    size_t k = e->nparts;
    while (k > 0 && e->path[k - 1].holder != x)
        k--;
    if (k > 0) {
        e->known = e->path[k - 1].end;
        e->nparts -= k;
        memmove(e->path, e->path + k, sizeof *e->path * e->nparts);
    }
    for (uint32_t w = t->first, next; w != NOBODY; w = next) {
        next = r->records[w].next;
        release(r, e, w);
    }
    size_t at = t->at;
    record_free(r, x);
    request_at(r, at)->id = -1;
}

/* Gives what waits for a request that failed to the one of them that shares most with it, and so
 * with each of the others what these share with the failed one. */
static void hand_down(route *r, endpoint *e, uint32_t x) {
    const taken *t = &r->records[x];
    uint32_t heir = t->first == NOBODY ? NOBODY : closest(r, e, x, t->at);
    for (uint32_t w = t->first, next; w != NOBODY; w = next) {
        next = r->records[w].next;
        if (w == heir)
            release(r, e, w);
        else
            wait_for(r, w, heir);
    }
    uint32_t shared = heir == NOBODY ? 0 : shared_by(r, r->records[heir].at, e->last),
             end = e->known;
    size_t kept = 0;
    for (size_t k = 0; k < e->nparts; k++) {
        part p = e->path[k];
        if (p.holder == x)
            p = (part){BASE_MIN(p.end, shared), heir};
        if (p.end > end) {
            e->path[kept++] = p;
            end = p.end;
        }
    }
    e->nparts = kept;
}

void route_again(route *r, int64_t id) {
    uint32_t x = find(r, id);
    size_t at = r->records[x].at;
    hand_down(r, &r->endpoints[r->records[x].endpoint], x);
    record_free(r, x);
    queue_put(r, at, at + 1);
    r->waiting++;
}

void route_down(route *r, int to) {
    endpoint *e = &r->endpoints[to];
    while (e->all != NOBODY) {
        const taken *t = &r->records[e->all];
        size_t at = t->at;
        r->waiting += t->in_flight;
        record_free(r, e->all);
        queue_put(r, at, at + 1);
    }
    for (; e->run_at < e->run.n; e->run_at++)
        queue_put(r, e->run.p[e->run_at].from, e->run.p[e->run_at].to);
    e->free = NOBODY;
    e->held = 0;
    e->last = NOWHERE;
    e->down = true;
}

void route_up(route *r, int to) {
    r->endpoints[to].down = false;
}
