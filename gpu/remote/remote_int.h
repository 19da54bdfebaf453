/*
 * remote_int.h - a model at servers: its options and endpoints, and what is known about them.
 *
 *   endpoint.c        URLs, options, the key, masking
 *   http.c            requests in flight (libcurl), one thread
 *   dialect.c         requests as JSON, by what the server is
 *   reply.c           replies, checked against the type that was asked for
 *   remote.c          the backend: opening, tokens, asking what a server is
 *   window.c          how many requests an endpoint gets, and when
 *   remote_session.c  a session: queue, retries, limits
 *   route.c           which endpoint gets which request
 *
 * Invariant: no text that came from a server or from libcurl reaches a message unmasked
 * (remote_mask), and no request leaves for an endpoint that endpoint.c did not accept.
 */
#ifndef KVASIR_REMOTE_INT_H
#define KVASIR_REMOTE_INT_H

#include "engine/engine_int.h"

/* ---- options and endpoints (endpoint.c) ------------------------------------------------------ */

typedef enum remote_api { API_AUTO, API_CHAT, API_COMPLETIONS } remote_api;
typedef enum server_kind {
    SERVER_AUTO,
    SERVER_VLLM,
    SERVER_SGLANG,
    SERVER_LLAMACPP,
    SERVER_OLLAMA,
    SERVER_OPENAI,
    SERVER_GENERIC,
    SERVERS
} server_kind;
typedef enum thinking { THINKING_AUTO, THINKING_ON, THINKING_OFF } thinking;

#define REMOTE_MEMBER_TEXT const char *
#define REMOTE_MEMBER_WORD int
#define REMOTE_MEMBER_INTEGER int64_t
#define REMOTE_MEMBER_REAL double
#define REMOTE_MEMBER(name, type, standard, words, help) REMOTE_MEMBER_##type name;
typedef struct remote_options {
    LLM_REMOTE_OPTIONS(REMOTE_MEMBER)
} remote_options;
#undef REMOTE_MEMBER

typedef struct endpoint {
    const char *origin; /* "http://127.0.0.1:8080" */
    const char *root;   /* the URL without "/v1" at its end */
    const char *base;   /* the URL of the OpenAI routes: "http://127.0.0.1:8080/v1" */
    bool tls;
    bool loopback;
} endpoint;

/* The most bytes of a key. */
enum { REMOTE_KEY_MAX = 4096, REMOTE_ENDPOINTS_MAX = 1024 };

/* Parses options; strings are in `mem`. Errors of llm_remote_check_option. */
int remote_options_parse(str text, arena *mem, remote_options *out, err *e);
/* Parses a URL; strings are in `mem`. ERR_BIND. */
int endpoint_parse(str url, arena *mem, endpoint *out, err *e);
/* Reads the key that the options name; *key is on the heap, NULL if they name none. ERR_MODEL. */
int remote_key_read(const remote_options *o, char **key, err *e);
/* Appends a text that came from outside, as a message may show it: at most `most` bytes, control
 * characters as \xNN, the key and what looks like one as ***. `key` may be NULL. */
void remote_mask(str text, const char *key, size_t most, buf *out);
/* Whether an IP address, as text, is link-local (169.254/16, fe80::/10): metadata services. */
bool address_is_link_local(const char *ip);

/* ---- what is known (remote.c) ---------------------------------------------------------------- */

/* How an answer is asked for. */
typedef enum way {
    WAY_TEXT,    /* free text */
    WAY_SCORE,   /* one token, among the literals' first tokens */
    WAY_TOP,     /* one token; the literals' share of the likeliest ones */
    WAY_CHOICE,  /* structured_outputs */
    WAY_GUIDED,  /* guided_choice, guided_regex: before structured_outputs */
    WAY_GRAMMAR, /* GBNF */
    WAY_REGEX,   /* a regular expression */
    WAY_SCHEMA,  /* response_format json_schema */
    WAY_PLAIN,   /* plain text, checked */
    WAYS
} way;

enum { WAYS_MAX = 5 }; /* the most ways that a server has */

/* What servers of a kind can, best way first; the last is WAY_PLAIN. */
typedef struct server_row {
    const char *name;                         /* in option `server` */
    const char *owned_by;                     /* of /v1/models; NULL: not told by it */
    way choices[WAYS_MAX], numbers[WAYS_MAX]; /* for literals; for numbers without a list */
    int window;                               /* most requests in flight, unless it says */
    const char *probability, *cached;         /* for .model */
} server_row;
const server_row *server_row_of(server_kind kind);
const char *way_name(way w);

/* llm_engine.state. What is probed is set once, by the first session. */
typedef struct remote_model {
    arena *mem;
    remote_options options;
    endpoint *endpoints;
    int nendpoints;
    char *key; /* NULL: none */

    bool probed;
    server_kind server;
    bool guided_by_name;  /* vLLM before 0.12: guided_choice, not structured_outputs */
    const char *name;     /* the model's name at the server */
    int context;          /* 0: not told */
    int slots;            /* 0: not told */
    const char *software; /* "llamacpp b4000", for people */
    /* how many of the first answers of each way were not of the type asked for */
    int tried[WAYS], wrong[WAYS];
} remote_model;

static inline const remote_model *remote_of(const llm_engine *engine) {
    return engine->state;
}
/* Returns the ways for a guide; NULL: free text. */
const way *remote_ways(const remote_model *m, const llm_guide *guide);

struct http;
/* Asks an endpoint what it is; sets what is probed. ERR_MODEL: no endpoint answered; the message
 * names each. */
int remote_probe(remote_model *m, struct http *net, const atomic_bool *cancel, err *e);
/* remote_session.c */
int remote_session_new(llm_engine *engine, const llm_session_options *options, llm_session **out,
                       err *e);

#endif
