/*
 * dialect_int.h - requests and replies as JSON, by what the server is. No network.
 *
 * A prompt's spans before the row's first field are the system message, the rest is the user's; the
 * server's own template wraps them. With `api` completions the prompt is one text, or the tokens of
 * `tokenizer`, in which no control token can be forged. Where the prompt is text, the server reads
 * names of control tokens wherever they stand: those in cells are broken up by U+200B.
 *
 * Invariant: whatever a reply contains, dialect_read gives an answer of the type that was asked for,
 * with a probability of 0 to 1 or NaN, or says why not.
 */
#ifndef KVASIR_DIALECT_INT_H
#define KVASIR_DIALECT_INT_H

#include "remote_int.h"
#include "session/session_int.h"

typedef struct question {
    const llm_engine *engine;
    const request *r;
    way way;
    bool again;           /* an answer was not of the type: the allowed ones are named */
    const llm_token *ids; /* WAY_SCORE: [guide->count] the literals' first tokens at the server */
} question;

/* Whether the prompt is sent as tokens. */
bool dialect_sends_tokens(const llm_engine *engine);
/* Returns the path of the route below endpoint.base. */
const char *dialect_path(const remote_model *m);
/* Writes the request. Returns the number of values in which control tokens were broken up. */
int dialect_write(const question *q, buf *body);
/* Writes a request for the tokens of a text, and reads the first token of the reply; -1: it has
 * none. */
void dialect_write_tokenize(const remote_model *m, str text, buf *body);
llm_token dialect_read_tokenize(str body);
/* Returns the most tokens that the answer may have. */
int dialect_max_tokens(const question *q);
/* Appends the text with names of control tokens broken up; returns whether there was one. */
bool append_unforged(buf *out, str text);

typedef enum verdict {
    VERDICT_ANSWER,
    VERDICT_WRONG_TYPE, /* the text is not of the type */
    VERDICT_UNSURE,     /* the probabilities do not decide: the next way is asked */
    VERDICT_AGAIN,      /* the reply is unusable: the request is sent again */
    VERDICT_BUSY,       /* 429, 503, 529: the same, later and slower */
    VERDICT_TOO_LONG,   /* the prompt exceeds the context */
    VERDICT_ROW,        /* the request is refused for good */
    VERDICT_ENDPOINT    /* the endpoint refuses all requests */
} verdict;

typedef struct reply {
    verdict verdict;
    /* unless VERDICT_ANSWER: the reason, and what the server said, as it came, of which `most` bytes
     * may be shown, followed by `after` */
    const char *why, *after;
    buf said;
    size_t most;
    buf text;      /* the answer */
    int choice;    /* index of the literal; -1 */
    double prob;   /* NaN: not known */
    double *probs; /* [guide->count] on the heap; NULL: not all are known */
    llm_finish finish;
    int64_t prompt_tokens, cached_tokens, output_tokens; /* -1: not reported */
} reply;

/* Reads a reply with this status and body. */
void dialect_read(const question *q, int status, str body, reply *out);
/* Appends the reason as a message may show it: masked. */
void reply_message(const reply *r, const char *key, buf *out);
void reply_free(reply *r);
/* Returns the JSON value, or NULL: it is damaged, or nested more than 64 deep. The caller frees it
 * with cJSON_Delete. */
struct cJSON *json_parse_reply(str body);

#endif
