/*
 * fake_llm.c - a server of a model without a model, on loopback, with the OpenAI routes, that fails
 * as it is told.
 *
 *   fake_llm --port-file FILE [options]    listens on a free port of 127.0.0.1, writes the port to
 *                                          FILE, goes on in the background
 *   fake_llm --get FILE PATH               prints what GET PATH gives from the server of FILE
 *
 *   --as vllm|sglang|llamacpp|ollama|openai|generic   what it says that it is, and does (vllm)
 *   --model NAME        the model that it serves (m)
 *   --key KEY           refuses requests without this key
 *   --engines N         so many engines, each with a prefix cache of its own, take the requests in
 *                       turn, as behind a load balancer (1)
 *   --rate N            tokens that an engine computes in a second, in passes of 4 ms more (0: no time)
 *   --share at-once|after-first   whether a pass shares the prefixes of its own prompts (at-once)
 *   --delay MS          before each answer
 *   --requests N, --seconds S   ends after so many requests (1000000), so many seconds (60)
 *   --die-after N       ends at the N-th answer, without it
 *   --ignore-guide      answers with free text whatever constraint is sent
 *   --fault KIND[,percent=P][,match=TEXT][,first=N][,retry-after=S]    may be repeated
 *
 * Answers are those of test:hash for the same instruction, fields and allowed answers, where the
 * request names these: structured_outputs, guided_choice, regex, grammar, json_schema, or logit_bias
 * of tokens that /tokenize gave out. Invariant: it ends by itself, and listens on 127.0.0.1 alone.
 */
#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "storage/base.h"
#include "storage/containers.h"

enum {
    BLOCK = 64,
    CONNECTIONS = 1024,
    FAULTS = 16,
    LITERALS = 64,
    ENGINES = 64,
    PASS_TOKENS = 8192
};
static const double PASS_S = 0.004;

typedef struct fault {
    const char *kind, *match;
    double percent, retry_after;
    long first; /* only this many times; -1: always */
} fault;

typedef struct connection {
    int fd;
    buf in, out;
    size_t sent;
    double send_at_s; /* the reply waits until then */
    bool hangs, drips, closes;
} connection;

/* BLOCK bytes of a prompt and all before them. */
typedef struct block {
    uint64_t hash;
    long pass; /* in which it was computed */
} block;

/* An engine with a cache without bounds. Requests join the pass that begins next. */
typedef struct engine {
    hash_index by_hash;
    block *blocks;
    size_t nblocks, blocks_cap;
    long pass;             /* the one that begins next, or began last */
    double begin_s, end_s; /* of that pass */
    long tokens;           /* that it computes */
} engine;

typedef struct literal {
    int32_t id;
    char *text;
} literal;

static struct {
    const char *as, *model, *key;
    long engines, delay_ms, most_requests, die_after;
    double seconds, rate;
    bool ignores_guide, shares_late;
    fault faults[FAULTS];
    int nfaults;
    long requests, answers, refused, prompt_tokens, cached_tokens, output_tokens, probes;
    engine engine[ENGINES];
    literal *known; /* texts that were tokenized, by their first token */
    size_t nknown, known_cap;
    bool quit;
} fake = {.as = "vllm",
          .model = "m",
          .engines = 1,
          .most_requests = 1000000,
          .seconds = 60,
          .die_after = -1};

/* ---- what test:hash answers ------------------------------------------------------------------ */

/* The allowed answers of a request. */
typedef struct guide {
    int kind; /* 0: literals, 1: INTEGER, 2: REAL; -1: free text */
    const char *literals[LITERALS];
    int count;
} guide;

static hash128 guide_key(const guide *g) {
    buf b = {0};
    buf_printf(&b, "%d completion %d\n", g->kind, g->count);
    for (int i = 0; i < g->count; i++)
        buf_printf(&b, "%zu:%s", strlen(g->literals[i]), g->literals[i]);
    hash128 h = hash_128(b.p, b.n);
    buf_free(&b);
    return h;
}

static int by_text(const void *a, const void *b) {
    return str_compare(*(const str *)a, *(const str *)b);
}

static uint64_t lines_hash(str text) {
    uint64_t sum = 0;
    while (text.n > 0) {
        const char *newline = memchr(text.p, '\n', text.n);
        size_t n = newline ? (size_t)(newline - text.p) + 1 : text.n;
        sum += hash64(text.p, n, 7);
        text = (str){text.p + n, text.n - n};
    }
    return sum;
}

/* The hash of test:hash: instruction, examples, fields by name, allowed answers. */
static uint64_t question_hash(const char *system, const char *user, const guide *g) {
    enum { FIELDS = 64 };
    buf head = {0}, examples = {0}, fields = {0};
    str lines[FIELDS], rest = str_from(user);
    int n = 0;
    const char *blank = strstr(system, "\n\n");
    buf_append(&head, system, blank ? (size_t)(blank - system) : strlen(system));
    buf_append_c(&head, "\n\nanswer:");
    if (blank)
        buf_printf(&examples, "%s\n", blank + 1);
    while (rest.n > 0 && n < FIELDS) {
        str line = str_split_next(&rest, '\n');
        bool field = line.n > 0 && !str_equal(line, STR("answer:")) &&
                     !(line.n > 11 && memcmp(line.p, "Answer with", 11) == 0);
        if (field)
            lines[n++] = line;
    }
    qsort(lines, (size_t)n, sizeof *lines, by_text);
    uint64_t h = hash64(head.p, head.n, 1);
    h = hash_mix(h, lines_hash(examples.n > 0 ? buf_str(&examples) : STR("")));
    for (int i = 0; i < n; i++) {
        str cell = lines[i], name = str_split_next(&cell, ':');
        buf_clear(&fields);
        buf_append_str(&fields, cell);
        buf_append_char(&fields, '\n');
        h = hash_mix(h, hash64(name.p, name.n + 1, 2)); /* with its colon */
        h = hash_mix(h, hash64(fields.p, fields.n, 3));
    }
    if (g->kind >= 0) {
        hash128 key = guide_key(g);
        h = hash_mix(h, hash_mix(key.low, key.high));
    }
    buf_free(&head);
    buf_free(&examples);
    buf_free(&fields);
    return h;
}

typedef struct answer {
    char text[256];
    int choice, tokens;
    double probs[LITERALS];
    bool ended;
} answer;

static void answer_of(uint64_t h, const guide *g, int max_tokens, answer *a) {
    *a = (answer){.choice = -1, .tokens = 1};
    if (g->kind < 0) {
        enum { TOKENS = 4, TOKEN_BYTES = 3 };
        snprintf(a->text, sizeof a->text, "t-%08x", (unsigned)(h & 0xffffffffu));
        a->tokens = BASE_MIN((int)TOKENS, max_tokens);
        a->ended = max_tokens < TOKENS;
        a->text[BASE_MIN((int)strlen(a->text), a->tokens * TOKEN_BYTES)] = '\0';
    } else if (g->kind == 1) {
        snprintf(a->text, sizeof a->text, "%d", (int)(h % 100));
    } else if (g->kind == 2) {
        snprintf(a->text, sizeof a->text, "%d.%d", (int)(h % 100), (int)((h >> 16) % 10));
    } else {
        double prob = 0.5 + (double)((h >> 32) & 0xffff) / 131072.0, sum = 0;
        a->choice = (int)((h >> 8) % (uint64_t)g->count);
        for (int i = 0; i < g->count; i++) {
            a->probs[i] = 1 + (double)(hash_mix(h, (uint64_t)i) & 0xff);
            sum += i == a->choice ? 0 : a->probs[i];
        }
        for (int i = 0; i < g->count; i++)
            a->probs[i] *= (1 - prob) / (sum > 0 ? sum : 1);
        a->probs[a->choice] = prob;
        snprintf(a->text, sizeof a->text, "%s", g->literals[a->choice]);
    }
}

/* ---- the request ----------------------------------------------------------------------------- */

static const cJSON *at(const cJSON *of, const char *name) {
    return cJSON_IsObject(of) ? cJSON_GetObjectItemCaseSensitive(of, name) : NULL;
}

static void add_literal(guide *g, const char *text) {
    if (g->count < LITERALS)
        g->literals[g->count++] = text;
}

static void take_list(guide *g, const cJSON *list) {
    const cJSON *one;
    g->kind = cJSON_IsArray(list) ? 0 : g->kind;
    cJSON_ArrayForEach(one, list) if (cJSON_IsString(one)) add_literal(g, one->valuestring);
}

/* Reads the literals out of (a|b) or root ::= "a" | "b", which have no escapes in these tests. */
static void take_pattern(guide *g, const char *pattern, bool quoted, arena *mem) {
    str rest = str_from(pattern);
    if (strstr(pattern, "[0-9]")) {
        g->kind = strchr(pattern, '.') ? 2 : 1;
        return;
    }
    g->kind = 0;
    if (quoted && rest.n > 9)
        rest = (str){rest.p + 9, rest.n - 9}; /* root ::= */
    while (rest.n > 0) {
        str one = str_trim(str_split_next(&rest, '|'), quoted ? " \"" : "()");
        add_literal(g, arena_strndup(mem, one.p, one.n));
    }
}

static void take_bias(guide *g, const cJSON *bias) {
    const cJSON *pair;
    cJSON_ArrayForEach(pair, bias) {
        int32_t id = (int32_t)cJSON_GetArrayItem(pair, 0)->valuedouble;
        for (size_t i = 0; i < fake.nknown; i++)
            if (fake.known[i].id == id)
                add_literal(g, fake.known[i].text);
    }
    g->kind = g->count > 0 ? 0 : -1; /* another server gave out the tokens */
}

/* Finds the constraint that a server of this kind heeds; it ignores all others. */
static void read_guide(const cJSON *q, guide *g, arena *mem) {
    const cJSON *schema = at(at(at(q, "response_format"), "json_schema"), "schema"),
                *member = at(at(schema, "properties"), "answer"),
                *one = at(q, "structured_outputs");
    *g = (guide){.kind = -1};
    if (fake.ignores_guide)
        return;
    if (strcmp(fake.as, "vllm") == 0 && one) {
        take_list(g, at(one, "choice"));
        if (cJSON_IsString(at(one, "regex")))
            take_pattern(g, at(one, "regex")->valuestring, false, mem);
    } else if (strcmp(fake.as, "sglang") == 0 && cJSON_IsString(at(q, "regex"))) {
        take_pattern(g, at(q, "regex")->valuestring, false, mem);
    } else if (strcmp(fake.as, "llamacpp") == 0 && cJSON_IsString(at(q, "grammar"))) {
        take_pattern(g, at(q, "grammar")->valuestring, true, mem);
    } else if (strcmp(fake.as, "llamacpp") == 0 && at(q, "logit_bias")) {
        take_bias(g, at(q, "logit_bias"));
    } else if (cJSON_IsString(at(member, "type"))) {
        const char *type = at(member, "type")->valuestring;
        g->kind = strcmp(type, "integer") == 0 ? 1 : strcmp(type, "number") == 0 ? 2 : 0;
        take_list(g, at(member, "enum"));
    }
}

/* Returns the text of a role; of a completion the part before or after its last blank line. */
static const char *text_of(const cJSON *q, const char *role, arena *mem) {
    const cJSON *one, *prompt = at(q, "prompt");
    if (cJSON_IsString(prompt)) {
        char *text = arena_strndup(mem, prompt->valuestring, strlen(prompt->valuestring)),
             *cut = NULL;
        for (char *p = text; (p = strstr(p, "\n\n")) != NULL; p++)
            cut = p;
        if (!cut)
            return strcmp(role, "user") == 0 ? text : "";
        *cut = '\0';
        return strcmp(role, "user") == 0 ? cut + 2 : text;
    }
    cJSON_ArrayForEach(one, at(q, "messages")) if (cJSON_IsString(at(one, "role")) &&
                                                   strcmp(at(one, "role")->valuestring, role) ==
                                                       0) return at(one, "content")
        ->valuestring;
    return "";
}

/* ---- engines --------------------------------------------------------------------------------- */

/* Begins a new pass if the last one has begun or is full. */
static void join_pass(engine *e) {
    double now = clock_seconds();
    if (now < e->begin_s && e->tokens < PASS_TOKENS)
        return;
    e->begin_s = BASE_MAX(now, e->end_s);
    e->end_s = e->begin_s + (fake.rate > 0 ? PASS_S : 0);
    e->tokens = 0;
    e->pass++;
}

/* Whether the block is in the engine's cache for a prompt of the next pass; adds it. */
static bool use_block(engine *e, uint64_t h) {
    hash_slot *s = hash_index_first(&e->by_hash, h);
    while (s && e->blocks[s->item].hash != h)
        s = hash_index_next(&e->by_hash, s);
    if (s)
        return !fake.shares_late || e->blocks[s->item].pass < e->pass;
    hash_index_add(&e->by_hash, h, (uint32_t)e->nblocks);
    ARRAY_PUSH(e->blocks, e->nblocks, e->blocks_cap, ((block){h, e->pass}));
    return false;
}

/* Has an engine compute a prompt of so many tokens; sets when it has, returns how many of the tokens
 * were in its cache. */
static long compute_prompt(const char *system, const char *user, long tokens, double *done_s) {
    engine *e = &fake.engine[fake.answers % fake.engines];
    buf text = {0};
    uint64_t h = 0;
    size_t hit = 0;
    bool found = true;
    join_pass(e);
    buf_printf(&text, "%s\n%s", system, user);
    for (size_t i = 0; i + BLOCK < text.n; i += BLOCK) {
        h = hash_mix(h, hash64(text.p + i, BLOCK, 5));
        found = use_block(e, h) && found;
        hit += found ? BLOCK : 0;
    }
    buf_free(&text);
    long cached = (long)hit / 4;
    e->tokens += tokens - cached;
    e->end_s += fake.rate > 0 ? (double)(tokens - cached) / fake.rate : 0;
    *done_s = e->end_s;
    return cached;
}

/* ---- replies --------------------------------------------------------------------------------- */

static void reply(connection *c, int status, const char *more, const char *body) {
    buf_printf(
        &c->out,
        "HTTP/1.1 %d Reply\r\nContent-Type: application/json\r\n%sContent-Length: %zu\r\n\r\n",
        status, more, strlen(body));
    buf_append_c(&c->out, body);
}

static void reply_json(connection *c, int status, cJSON *root) {
    char *text = cJSON_PrintUnformatted(root);
    reply(c, status, "", text);
    cJSON_free(text);
    cJSON_Delete(root);
}

/* The tokens that test:hash has: up to three bytes of a word, and their number. */
static int32_t first_token(const char *text) {
    int32_t id = 0;
    int n = 0;
    while (n < 3 && text[n] != '\0') {
        id |= (int32_t)(unsigned char)text[n] << (8 * n);
        n++;
    }
    return id | n << 24;
}

static void add_logprobs(cJSON *choice, const cJSON *q, const guide *g, const answer *a,
                         const fault *f) {
    const char *kind = f ? f->kind : "";
    bool scored = at(q, "post_sampling_probs") != NULL;
    if (g->kind != 0 || !at(q, "logprobs") || strcmp(kind, "nologprob") == 0)
        return;
    cJSON *content = cJSON_AddArrayToObject(cJSON_AddObjectToObject(choice, "logprobs"), "content");
    cJSON *first = cJSON_CreateObject();
    cJSON_AddItemToArray(content, first);
    cJSON *top = cJSON_AddArrayToObject(first, scored ? "top_probs" : "top_logprobs");
    for (int i = 0; i < g->count; i++) {
        cJSON *one = cJSON_CreateObject();
        double p = strcmp(kind, "badlogprob") == 0 ? 1.5 : a->probs[i];
        cJSON_AddStringToObject(one, "token",
                                strcmp(kind, "otherlogprob") == 0 ? "the" : g->literals[i]);
        cJSON_AddNumberToObject(one, "id", first_token(g->literals[i]));
        if (strcmp(kind, "nanlogprob") == 0)
            cJSON_AddRawToObject(one, scored ? "prob" : "logprob", "NaN");
        else
            cJSON_AddNumberToObject(one, scored ? "prob" : "logprob", scored ? p : log(p));
        cJSON_AddItemToArray(top, one);
    }
}

static void add_usage(connection *c, cJSON *root, const char *system, const char *user,
                      const answer *a, const fault *f) {
    const char *kind = f ? f->kind : "";
    double done_s;
    long prompt = (long)(strlen(system) + strlen(user)) / 4 + 8,
         cached = compute_prompt(system, user, prompt, &done_s);
    c->send_at_s = BASE_MAX(c->send_at_s, fake.rate > 0 ? done_s : 0);
    fake.prompt_tokens += prompt;
    fake.cached_tokens += cached;
    fake.output_tokens += a->tokens;
    if (strcmp(kind, "nousage") == 0)
        return;
    cJSON *usage = cJSON_AddObjectToObject(root, "usage");
    bool negative = strcmp(kind, "negusage") == 0;
    cJSON_AddNumberToObject(usage, "prompt_tokens", negative ? -5 : (double)prompt);
    cJSON_AddNumberToObject(usage, "completion_tokens", negative ? -1 : a->tokens);
    cJSON_AddNumberToObject(usage, "total_tokens", (double)(prompt + a->tokens));
    if (strcmp(fake.as, "ollama") != 0)
        cJSON_AddNumberToObject(cJSON_AddObjectToObject(usage, "prompt_tokens_details"),
                                "cached_tokens", negative ? -7 : (double)cached);
}

static void complete(connection *c, const cJSON *q, const fault *f) {
    arena *mem = arena_new();
    guide g;
    answer a;
    read_guide(q, &g, mem);
    const cJSON *limit = at(q, "max_tokens") ? at(q, "max_tokens") : at(q, "max_completion_tokens");
    const char *system = text_of(q, "system", mem), *user = text_of(q, "user", mem),
               *kind = f ? f->kind : "";
    answer_of(question_hash(system, user, &g), &g, limit ? limit->valueint : 16, &a);
    cJSON *root = cJSON_CreateObject(), *choice = cJSON_CreateObject();
    buf text = {0};
    bool schema = at(q, "response_format") && g.kind >= 0;
    if (strcmp(kind, "wrongtype") == 0)
        buf_append_c(&text, "The review is, all in all, \x01 hard to say");
    else if (schema)
        buf_printf(&text, g.kind == 0 ? "{\"answer\": \"%s\"}" : "{\"answer\": %s}", a.text);
    else
        buf_append_c(&text, a.text);
    cJSON_AddStringToObject(root, "object", "chat.completion");
    cJSON_AddStringToObject(root, "model", fake.model);
    cJSON *choices = cJSON_AddArrayToObject(root, "choices");
    if (at(q, "prompt")) {
        cJSON_AddStringToObject(choice, "text", text.p);
    } else {
        cJSON *message = cJSON_AddObjectToObject(choice, "message");
        cJSON_AddStringToObject(message, "role", "assistant");
        if (strcmp(kind, "nullcontent") == 0)
            cJSON_AddNullToObject(message, "content");
        else
            cJSON_AddStringToObject(message, "content", text.p);
    }
    cJSON_AddStringToObject(choice, "finish_reason", a.ended ? "length" : "stop");
    add_logprobs(choice, q, &g, &a, f);
    if (strcmp(kind, "nochoice") == 0)
        cJSON_Delete(choice);
    else
        cJSON_AddItemToArray(choices, choice);
    add_usage(c, root, system, user, &a, f);
    reply_json(c, 200, root);
    fake.answers++;
    buf_free(&text);
    arena_free(mem);
}

static void reply_error(connection *c, int status, const char *more, const char *code,
                        const char *message) {
    buf body = {0};
    buf_printf(&body, "{\"error\": {\"message\": \"%s\", \"type\": \"%s\", \"code\": \"%s\"}}",
               message, code, code);
    reply(c, status, more, body.p);
    buf_free(&body);
}

/* Replies as a fault says; false: the request is answered, with what the fault changes in it. */
static bool reply_fault(connection *c, const fault *f, const char *headers) {
    const char *kind = f->kind;
    char more[128] = "";
    if (f->retry_after >= 0)
        snprintf(more, sizeof more, "Retry-After: %g\r\n", f->retry_after);
    if (strcmp(kind, "429") == 0)
        reply_error(c, 429, more, "rate_limit_exceeded", "slow down");
    else if (strcmp(kind, "quota") == 0)
        reply_error(c, 429, more, "insufficient_quota", "You exceeded your current quota");
    else if (strcmp(kind, "500") == 0)
        reply_error(c, 500, more, "server_error", "an\x1b[31m error");
    else if (strcmp(kind, "503") == 0)
        reply_error(c, 503, more, "unavailable", "loading the model");
    else if (strcmp(kind, "toolong") == 0)
        reply(c, 400, "",
              "{\"error\":{\"code\":400,\"message\":\"the request exceeds the available context "
              "size\",\"type\":\"exceed_context_size_error\",\"n_prompt_tokens\":9000,\"n_ctx\":"
              "4096}}");
    else if (strcmp(kind, "400") == 0)
        reply_error(c, 400, "", "invalid_request_error", "not like this");
    else if (strcmp(kind, "echo") == 0)
        reply(c, 500, "", headers);
    else if (strcmp(kind, "redirect") == 0)
        reply(c, 302, "Location: http://127.0.0.1:9/elsewhere\r\n", "");
    else if (strcmp(kind, "nojson") == 0)
        reply(c, 200, "", "<html>\x07hello</html>");
    else if (strcmp(kind, "reset") == 0)
        c->closes = true;
    else if (strcmp(kind, "hang") == 0)
        c->hangs = true;
    else if (strcmp(kind, "drip") == 0) {
        reply(c, 200, "", "{                                                                    }");
        c->drips = true;
    } else if (strcmp(kind, "cut") == 0) {
        buf_append_c(&c->out, "HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{\"choices\": [");
        c->closes = true;
    } else if (strcmp(kind, "deep") == 0 || strcmp(kind, "big") == 0) {
        buf body = {0};
        for (long i = 0; i < (strcmp(kind, "deep") == 0 ? 5000 : 17 << 20); i++)
            buf_append_char(&body, '[');
        reply(c, 200, "", body.p);
        buf_free(&body);
    } else
        return false;
    return true;
}

static const fault *pick_fault(const char *body) {
    for (int i = 0; i < fake.nfaults; i++) {
        fault *f = &fake.faults[i];
        uint64_t h = hash_mix((uint64_t)fake.requests, (uint64_t)i + 77);
        bool hit = (double)(h % 10000) < f->percent * 100 && (!f->match || strstr(body, f->match));
        if (!hit || f->first == 0)
            continue;
        f->first -= f->first > 0;
        fake.refused++;
        return f;
    }
    return NULL;
}

static void tokenize(connection *c, const cJSON *q) {
    const cJSON *content = at(q, "content");
    const char *text = cJSON_IsString(content) ? content->valuestring : "";
    ARRAY_PUSH(fake.known, fake.nknown, fake.known_cap,
               ((literal){first_token(text), mem_strdup(*text == ' ' ? text + 1 : text)}));
    cJSON *root = cJSON_CreateObject();
    cJSON_AddItemToArray(cJSON_AddArrayToObject(root, "tokens"),
                         cJSON_CreateNumber(first_token(text)));
    reply_json(c, 200, root);
}

static void reply_get(connection *c, const char *path) {
    buf body = {0};
    const char *owner = strcmp(fake.as, "ollama") == 0 ? "library" : fake.as;
    if (strcmp(path, "/v1/models") == 0)
        buf_printf(&body,
                   "{\"object\":\"list\",\"data\":[{\"id\":\"%s\",\"object\":\"model\",\"owned_"
                   "by\":\"%s\","
                   "\"max_model_len\":4096}]}",
                   fake.model, owner);
    else if (strcmp(path, "/version") == 0)
        buf_append_c(&body, "{\"version\":\"0.12.1\"}");
    else if (strcmp(path, "/props") == 0)
        buf_append_c(&body, "{\"total_slots\":4,\"build_info\":\"b4000\"}");
    else if (strcmp(path, "/stats") == 0)
        buf_printf(&body, "requests %ld answers %ld faults %ld prompt %ld cached %ld output %ld\n",
                   fake.requests, fake.answers, fake.refused, fake.prompt_tokens,
                   fake.cached_tokens, fake.output_tokens);
    else if (strcmp(path, "/quit") == 0)
        fake.quit = true;
    else {
        reply_error(c, 404, "", "not_found", "no such route");
        return;
    }
    reply(c, 200, "", body.p ? body.p : "");
    buf_free(&body);
}

/* Handles one complete request. */
static void handle(connection *c, char *headers, const char *body) {
    char method[8] = "", path[256] = "", want[512];
    sscanf(headers, "%7s %255s", method, path);
    c->send_at_s = clock_seconds();
    if (strcmp(method, "GET") == 0) {
        reply_get(c, path);
        return;
    }
    snprintf(want, sizeof want, "Authorization: Bearer %s\r\n", fake.key ? fake.key : "");
    c->send_at_s += (double)fake.delay_ms / 1e3;
    cJSON *q = cJSON_Parse(body);
    if (fake.key && !strstr(headers, want)) {
        reply_error(c, 401, "", "invalid_api_key", "no such key");
    } else if (strcmp(path, "/tokenize") == 0 && strcmp(fake.as, "llamacpp") == 0) {
        tokenize(c, q);
    } else if (strcmp(path, "/v1/chat/completions") == 0 || strcmp(path, "/v1/completions") == 0) {
        fake.requests++;
        const fault *f = pick_fault(body);
        if (fake.die_after >= 0 && fake.answers >= fake.die_after)
            exit(0);
        if (!f || !reply_fault(c, f, headers))
            complete(c, q, f);
    } else {
        reply_error(c, 404, "", "not_found", "no such route");
    }
    cJSON_Delete(q);
}

/* ---- connections ----------------------------------------------------------------------------- */

static void handle_input(connection *c) {
    char *end;
    while (c->out.n == 0 && c->in.n > 0 && (end = strstr(c->in.p, "\r\n\r\n")) != NULL) {
        size_t head = (size_t)(end - c->in.p) + 4;
        const char *length = strcasestr(c->in.p, "\r\ncontent-length:");
        size_t n = length && length < end ? strtoul(length + 17, NULL, 10) : 0;
        if (c->in.n < head + n)
            return;
        char *headers = mem_strndup(c->in.p, head), *body = mem_strndup(c->in.p + head, n);
        memmove(c->in.p, c->in.p + head + n, c->in.n - head - n + 1);
        c->in.n -= head + n;
        handle(c, headers, body);
        free(headers);
        free(body);
        if (c->hangs || (c->closes && c->out.n == 0))
            return;
    }
}

/* Returns false if the connection is over. */
static bool serve(connection *c, short events) {
    char bytes[65536];
    if (events & (POLLIN | POLLHUP | POLLERR)) {
        ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return false;
        if (n > 0)
            buf_append(&c->in, bytes, (size_t)n);
    }
    handle_input(c);
    if (c->out.n > 0 && clock_seconds() >= c->send_at_s) {
        size_t most = c->drips ? 1 : c->out.n - c->sent;
        ssize_t n = send(c->fd, c->out.p + c->sent, most, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            return false;
        c->sent += n > 0 ? (size_t)n : 0;
        c->send_at_s += c->drips ? 0.05 : 0;
        if (c->sent == c->out.n) {
            buf_clear(&c->out);
            c->sent = 0;
            handle_input(c);
        }
    }
    return !(c->closes && c->out.n == 0);
}

static void run(int listener) {
    static connection all[CONNECTIONS];
    static struct pollfd fds[CONNECTIONS + 1];
    double until = clock_seconds() + fake.seconds;
    int n = 0;
    while (clock_seconds() < until && fake.requests <= fake.most_requests &&
           !(fake.quit && n == 0)) {
        double now = clock_seconds();
        int ms = 100;
        fds[0] = (struct pollfd){listener, n < CONNECTIONS ? POLLIN : 0, 0};
        for (int i = 0; i < n; i++) {
            bool due = all[i].out.n > 0 && now >= all[i].send_at_s;
            fds[i + 1] = (struct pollfd){all[i].fd, (short)(POLLIN | (due ? POLLOUT : 0)), 0};
            if (all[i].out.n > 0 && !due)
                ms = BASE_MIN(ms, (int)ceil((all[i].send_at_s - now) * 1e3));
        }
        poll(fds, (nfds_t)n + 1, ms);
        for (int i = n; i-- > 0;) {
            if (serve(&all[i], fds[i + 1].revents))
                continue;
            close(all[i].fd);
            buf_free(&all[i].in);
            buf_free(&all[i].out);
            all[i] = all[--n];
        }
        int fd = fds[0].revents & POLLIN ? accept(listener, NULL, NULL) : -1;
        if (fd >= 0) {
            fcntl(fd, F_SETFL, O_NONBLOCK);
            all[n++] = (connection){.fd = fd};
        }
        if (fake.quit)
            until = BASE_MIN(until, clock_seconds() + 0.2);
    }
}

/* ---- the program ----------------------------------------------------------------------------- */

static int get(const char *file, const char *path) {
    char text[4096];
    int port = 0;
    FILE *in = fopen(file, "r");
    if (!in || fscanf(in, "%d", &port) != 1)
        return 1;
    fclose(in);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        return 1;
    dprintf(fd, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    close(fd);
    if (n <= 0)
        return 1;
    text[n] = '\0';
    const char *body = strstr(text, "\r\n\r\n");
    fputs(body ? body + 4 : text, stdout);
    return 0;
}

static void parse_fault(char *spec) {
    fault *f = &fake.faults[fake.nfaults++];
    *f = (fault){.percent = 100, .retry_after = -1, .first = -1};
    f->kind = strtok(spec, ",");
    for (char *part; (part = strtok(NULL, ",")) != NULL;) {
        char *given = strchr(part, '=') ? strchr(part, '=') + 1 : part;
        if (strncmp(part, "percent", 7) == 0)
            f->percent = strtod(given, NULL);
        else if (strncmp(part, "match", 5) == 0)
            f->match = given;
        else if (strncmp(part, "first", 5) == 0)
            f->first = strtol(given, NULL, 10);
        else if (strncmp(part, "retry-after", 11) == 0)
            f->retry_after = strtod(given, NULL);
    }
}

static void parse(int argc, char **argv, const char **file) {
    for (int i = 1; i < argc; i++) {
        char *name = argv[i], *given = i + 1 < argc ? argv[i + 1] : name;
        if (strcmp(name, "--ignore-guide") == 0) {
            fake.ignores_guide = true;
            continue;
        }
        i++;
        if (strcmp(name, "--port-file") == 0)
            *file = given;
        else if (strcmp(name, "--as") == 0)
            fake.as = given;
        else if (strcmp(name, "--model") == 0)
            fake.model = given;
        else if (strcmp(name, "--key") == 0)
            fake.key = given;
        else if (strcmp(name, "--engines") == 0)
            fake.engines = BASE_MIN(BASE_MAX(strtol(given, NULL, 10), 1), (long)ENGINES);
        else if (strcmp(name, "--rate") == 0)
            fake.rate = strtod(given, NULL);
        else if (strcmp(name, "--share") == 0)
            fake.shares_late = strcmp(given, "after-first") == 0;
        else if (strcmp(name, "--delay") == 0)
            fake.delay_ms = strtol(given, NULL, 10);
        else if (strcmp(name, "--requests") == 0)
            fake.most_requests = strtol(given, NULL, 10);
        else if (strcmp(name, "--seconds") == 0)
            fake.seconds = strtod(given, NULL);
        else if (strcmp(name, "--die-after") == 0)
            fake.die_after = strtol(given, NULL, 10);
        else if (strcmp(name, "--fault") == 0 && fake.nfaults < FAULTS)
            parse_fault(given);
    }
}

int main(int argc, char **argv) {
    const char *file = NULL;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof own;
    if (argc == 4 && strcmp(argv[1], "--get") == 0)
        return get(argv[2], argv[3]);
    parse(argc, argv, &file);
    int null = open("/dev/null", O_RDWR);
    while (null >= 0 && null < 3) /* a closed standard stream must not become the listener */
        null = dup(null);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FILE *out = file ? fopen(file, "w") : NULL;
    if (!out || bind(fd, (struct sockaddr *)&own, sizeof own) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &n) != 0) {
        fprintf(stderr, "fake_llm: %s\n", strerror(errno));
        return 1;
    }
    fprintf(out, "%d\n", ntohs(own.sin_port));
    fclose(out);
    if (fork() != 0)
        _exit(0);
    /* whoever waits for the end of our output must not wait for the server */
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    run(fd);
    return 0;
}
