/*
 * http_int.h - HTTP requests in flight, with libcurl's multi interface, on the caller's thread.
 *
 * Connections are kept open; HTTP/2 where a server offers it over TLS. No redirect is followed, no
 * cookie kept. TLS certificates are always checked. An address that is link-local is refused before
 * anything is sent (CURLOPT_PREREQFUNCTION), whatever name led to it.
 *
 * Limits of a reply: HTTP_BODY_MAX bytes of body, HTTP_HEAD_MAX of headers; 10 s to connect, and 30 s
 * between two bytes once the first has come, or the call's own time if that is shorter.
 */
#ifndef KVASIR_HTTP_INT_H
#define KVASIR_HTTP_INT_H

#include "storage/base.h"

typedef struct http http;

enum { HTTP_BODY_MAX = 16 << 20, HTTP_HEAD_MAX = 64 << 10 };

typedef enum http_result {
    HTTP_DONE,    /* `status` and `body` are the reply */
    HTTP_CONNECT, /* no connection: refused, no such host, unreachable */
    HTTP_BROKEN,  /* the connection ended before the reply did */
    HTTP_TIMEOUT,
    HTTP_TLS,     /* the certificate or the TLS version is not acceptable */
    HTTP_REFUSED, /* by us: a link-local address, a reply that is too large */
} http_result;

/* A request and its reply. The caller sets the first members; the call must not move while it is in
 * flight. */
typedef struct http_call {
    void *owner;
    const char *url; /* outlives the call */
    bool is_get;
    str request;      /* the body of a POST; outlives the call */
    double timeout_s; /* of the whole call */

    http_result result;
    int status; /* 200, …; 0: there is no reply */
    buf head;   /* header lines, names in lower case, each with '\n' */
    buf body;
    const char *why; /* unless HTTP_DONE: libcurl's words, valid until http_call_free */
    buf redirect;    /* the URL of a redirect */

    /* of http.c */
    void *easy;
    char words[256];
    double last_byte_s, idle_s;
    bool too_large, refused_address, finished;
    struct http_call *next; /* of the finished calls */
    http *net;
} http_call;

/* `key`: sent as Authorization: Bearer; or NULL. `ca`: a file of further authorities; or NULL. Both
 * are copied. ERR_INTERNAL; ERR_IO: the file cannot be read. */
int http_new(const char *key, const char *ca, http **out, err *e);
void http_free(http *net); /* NULL is fine; ends the calls in flight */
void http_start(http *net, http_call *c);
/* Ends a call that is in flight: its connection is closed. */
void http_drop(http *net, http_call *c);
/* Waits at most `ms` until something happens, and goes on with all calls. */
void http_wait(http *net, int ms);
/* Sends a request and waits for its reply; other calls go on meanwhile. ERR_CANCELLED; everything
 * else is in c->result. */
int http_sync(http *net, http_call *c, const atomic_bool *cancel, err *e);
/* Returns a finished call, or NULL. */
http_call *http_next(http *net);
void http_call_free(http_call *c); /* what a finished or dropped call owns */
/* Appends the value of a header, of its last line with this name. false: there is none. */
bool http_header(const http_call *c, const char *name, buf *out);
/* Returns the seconds that the reply asks to wait (retry-after-ms, Retry-After); -1: it asks none. */
double http_retry_after(const http_call *c);

#endif
