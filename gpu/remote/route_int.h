/*
 * route_int.h - which endpoint gets which of the queued requests of a remote model.
 *
 * Requests are added in the order in which their prompts share most tokens (the solver's). An
 * endpoint takes them in runs: intervals of that order, so that what requests share is computed by
 * few endpoints. Within its runs, requests that share a prefix that is new to the endpoint wait
 * until the first of them, the leader, is answered, since a server may reuse a prefix only then.
 *
 * Pure: no clock, no network. Answers do not depend on it. Used by one thread.
 *
 *   cost of a request   its tokens that the request before it does not share, + 8 (half a block of
 *                       16 tokens, which the server computes again)
 *   a run               of the cost in the queue, half of the endpoint's share of the cost that
 *                       all endpoints that are up have answered; at most twice the cost that it
 *                       has answered itself; at least 4,000, or of a slow endpoint that times its
 *                       speed / the mean speed. It ends where requests share least in its last
 *                       quarter
 *   a leader            a request that waits for no other. A request waits if it shares at least
 *                       16 tokens (a block) more with an unanswered request at its endpoint than
 *                       with any answered one
 */
#ifndef KVASIR_ROUTE_INT_H
#define KVASIR_ROUTE_INT_H

#include "llm.h"

typedef struct route route;

enum { ROUTE_NONE = -1, ROUTE_HELD = -2 };

/* `leaders`: hold back requests whose prefix is new to an endpoint. `window`: the most requests
 * that an endpoint answers at a time; at most two windows of requests wait at an endpoint. */
typedef struct route_options {
    int endpoints;
    bool leaders;
    int window;
} route_options;

/* All endpoints are up at first. */
route *route_new(const route_options *options);
void route_free(route *r); /* NULL is fine */
/* Adds a request behind all others; the tokens are copied. `id`: the caller's, not negative, and
 * no other request's that is not done. */
void route_add(route *r, int64_t id, const llm_token *tokens, int count);
/* The same for a request of `count` tokens, of which the request added before has the first
 * `shared`. All requests of a route are added by this function, or all by route_add(). */
void route_add_shared(route *r, int64_t id, int count, int shared);
/* Returns the id of the next request for an endpoint, which is then in flight there. ROUTE_HELD:
 * none until a request in flight there is answered. ROUTE_NONE: none until a request is added or
 * returns to the queue, or the endpoint is down. */
int64_t route_next(route *r, int endpoint);
/* A request in flight was answered, or will not be sent again. Requests that waited for it come
 * next. */
void route_done(route *r, int64_t id);
/* A request in flight is to be sent again, to any endpoint: it returns to the queue, to its place
 * in the order, which is before the requests that no endpoint has taken. */
void route_again(route *r, int64_t id);
/* The endpoint gets no requests until route_up(): what is in flight there and what is left of its
 * run return to the queue. What it has cached counts as lost. */
void route_down(route *r, int endpoint);
void route_up(route *r, int endpoint);
/* Number of requests that are neither in flight nor done. */
size_t route_waiting(const route *r);
/* Number of requests that wait for another at an endpoint: at most two windows. */
int route_held(const route *r, int endpoint);

#endif
