/*
 * dialect.c - writes requests as JSON (dialect_int.h).
 *
 * Invariant: a request is a function of options, server kind, prompt, guide, sampling and way.
 */
#ifdef KVASIR_REMOTE
#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dialect_int.h"
#include "engine/guide_int.h"

enum {
    TOP_LOGPROBS = 20,
    GUIDED_TOKENS = 24,
    NUMBER_TOKENS = GUIDE_MAX_DIGITS + 6,
    PLAIN_TOKENS = 24
};

bool dialect_sends_tokens(const llm_engine *engine) {
    return remote_of(engine)->options.api == API_COMPLETIONS && engine->tokenizer != NULL;
}

const char *dialect_path(const remote_model *m) {
    return m->options.api == API_COMPLETIONS ? "/completions" : "/chat/completions";
}

/* ---- text ------------------------------------------------------------------------------------ */

bool append_unforged(buf *out, str text) {
    static const char *const names[] = {
        "<|",    "</s>", "<s>", "[INST]", "[/INST]", "<start_of_turn>", "<end_of_turn>",
        "<bos>", "<eos>"};
    bool found = false;
    for (size_t i = 0; i < text.n; i++) {
        buf_append_char(out, text.p[i]);
        if (text.p[i] != '<' && text.p[i] != '[')
            continue;
        for (size_t k = 0; k < BASE_COUNT(names); k++) {
            size_t n = strlen(names[k]);
            if (text.n - i < n || memcmp(text.p + i, names[k], n) != 0)
                continue;
            buf_append_c(out, "\xe2\x80\x8b");
            found = true;
            break;
        }
    }
    return found;
}

/* Appends the spans; returns the number of values that were changed. */
static int append_spans(llm_span *const *spans, int n, buf *out) {
    int broken = 0;
    for (int i = 0; i < n; i++) {
        bool data = spans[i]->kind == LLM_SPAN_VALUE || spans[i]->kind == LLM_SPAN_NAME ||
                    spans[i]->kind == LLM_SPAN_EXAMPLE;
        if (data)
            broken += append_unforged(out, spans[i]->text) && spans[i]->kind == LLM_SPAN_VALUE;
        else
            buf_append_str(out, spans[i]->text);
    }
    return broken;
}

static int first_field(const request *r) {
    int i = 0;
    while (i < r->nspans && r->spans[i]->kind != LLM_SPAN_NAME &&
           r->spans[i]->kind != LLM_SPAN_VALUE)
        i++;
    return i;
}

/* Appends the line that names the allowed answers. */
static void append_demand(const llm_guide *g, buf *out) {
    if (g->kind == LLM_GUIDE_INTEGER) {
        buf_append_c(out, "Answer with a whole number alone.\n");
    } else if (g->kind == LLM_GUIDE_REAL) {
        buf_append_c(out, "Answer with a number alone.\n");
    } else {
        buf_append_c(out, "Answer with one of: ");
        for (int i = 0; i < g->count; i++) {
            buf_append_c(out, i > 0 ? ", " : "");
            buf_append_str(out, g->literals[i]);
        }
        buf_append_c(out, "\n");
    }
}

/* Adds a string; bytes that are not UTF-8 and NUL become U+FFFD. */
static void add_text(cJSON *to, const char *name, str text) {
    buf clean = {0};
    uint32_t cp;
    char bytes[4];
    for (size_t n; (n = utf8_next(text, &cp)) > 0; text = (str){text.p + n, text.n - n})
        buf_append(&clean, bytes, utf8_encode(cp == 0 ? 0xFFFD : cp, bytes));
    cJSON_AddStringToObject(to, name, clean.p != NULL ? clean.p : "");
    buf_free(&clean);
}

static void add_message(cJSON *messages, const char *role, str text) {
    cJSON *one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, "role", role);
    add_text(one, "content", text);
    cJSON_AddItemToArray(messages, one);
}

static int add_messages(const question *q, cJSON *to) {
    const request *r = q->r;
    int at = first_field(r), broken = 0, last = r->nspans;
    buf system = {0}, user = {0};
    if (at == r->nspans)
        at = 0; /* without fields, the instruction is what the user says */
    broken += append_spans(r->spans, at, &system);
    if (q->again && last > at && r->spans[last - 1]->kind == LLM_SPAN_TEMPLATE)
        last--;
    broken += append_spans(r->spans + at, last - at, &user);
    if (q->again)
        append_demand(r->guide, &user);
    broken += append_spans(r->spans + last, r->nspans - last, &user);
    cJSON *messages = cJSON_AddArrayToObject(to, "messages");
    str head = system.n > 0 ? str_trim(buf_str(&system), STR_SPACES) : STR("");
    if (head.n > 0)
        add_message(messages, "system", head);
    add_message(messages, "user", user.n > 0 ? str_trim(buf_str(&user), STR_SPACES) : STR(""));
    buf_free(&system);
    buf_free(&user);
    return broken;
}

static int add_prompt(const question *q, cJSON *to) {
    const request *r = q->r;
    if (dialect_sends_tokens(q->engine)) {
        cJSON *ids = cJSON_AddArrayToObject(to, "prompt");
        bool bos = q->engine->adds_bos && q->engine->bos >= 0;
        if (bos)
            cJSON_AddItemToArray(ids, cJSON_CreateNumber(q->engine->bos));
        for (int i = 0; i < r->nspans; i++)
            for (size_t k = 0; k < r->spans[i]->count; k++)
                cJSON_AddItemToArray(ids, cJSON_CreateNumber(r->spans[i]->tokens[k]));
        return 0;
    }
    buf text = {0};
    int last = r->nspans, broken;
    if (q->again && last > 0 && r->spans[last - 1]->kind == LLM_SPAN_TEMPLATE)
        last--;
    broken = append_spans(r->spans, last, &text);
    if (q->again)
        append_demand(r->guide, &text);
    broken += append_spans(r->spans + last, r->nspans - last, &text);
    add_text(to, "prompt", text.n > 0 ? buf_str(&text) : STR(""));
    buf_free(&text);
    return broken;
}

/* ---- ways ------------------------------------------------------------------------------------ */

int dialect_max_tokens(const question *q) {
    const llm_guide *g = q->r->guide;
    if (q->way == WAY_TEXT)
        return q->r->max_tokens;
    if (q->way == WAY_SCORE || q->way == WAY_TOP)
        return 1;
    if (g->kind != LLM_GUIDE_CHOICE)
        return NUMBER_TOKENS;
    size_t longest = 0;
    for (int i = 0; i < g->count; i++)
        longest = BASE_MAX(longest, g->literals[i].n);
    /* a token is at least a byte; braces and quotes besides */
    return (int)BASE_MIN(longest, 4000) +
           (q->way == WAY_PLAIN ? (int)PLAIN_TOKENS : (int)GUIDED_TOKENS);
}

static const char *number_pattern(const llm_guide *g) {
    return g->kind == LLM_GUIDE_INTEGER ? "-?[0-9]{1,18}" : "-?[0-9]{1,17}(\\.[0-9]{1,17})?";
}

static cJSON *literals_of(const llm_guide *g) {
    cJSON *list = cJSON_CreateArray();
    for (int i = 0; i < g->count; i++) {
        cJSON *one = cJSON_CreateObject();
        add_text(one, "x", g->literals[i]);
        cJSON_AddItemToArray(list, cJSON_DetachItemFromObject(one, "x"));
        cJSON_Delete(one);
    }
    return list;
}

/* Appends a literal as a GBNF string, or as a regular expression. */
static void append_escaped(buf *out, str text, bool grammar) {
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (c == '\n' || c == '\r' || c == '\t') {
            buf_append_c(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
            continue;
        }
        if (grammar ? c == '"' || c == '\\' : strchr(".^$*+?()[]{}|\\", c) != NULL)
            buf_append_char(out, '\\');
        buf_append_char(out, c);
    }
}

static void add_pattern(cJSON *to, const char *name, const llm_guide *g, bool grammar) {
    buf text = {0};
    buf_append_c(&text, grammar ? "root ::= " : "(");
    if (g->kind != LLM_GUIDE_CHOICE) {
        buf_append_c(&text, !grammar ? number_pattern(g)
                            : g->kind == LLM_GUIDE_INTEGER
                                ? "\"-\"? [0-9]{1,18}"
                                : "\"-\"? [0-9]{1,17} (\".\" [0-9]{1,17})?");
    }
    for (int i = 0; i < g->count; i++) {
        buf_append_c(&text, i > 0 ? (grammar ? " | " : "|") : "");
        buf_append_c(&text, grammar ? "\"" : "");
        append_escaped(&text, g->literals[i], grammar);
        buf_append_c(&text, grammar ? "\"" : "");
    }
    buf_append_c(&text, grammar ? "" : ")");
    add_text(to, name, buf_str(&text));
    buf_free(&text);
}

static void add_schema(cJSON *to, const llm_guide *g) {
    cJSON *format = cJSON_AddObjectToObject(to, "response_format");
    cJSON_AddStringToObject(format, "type", "json_schema");
    cJSON *named = cJSON_AddObjectToObject(format, "json_schema");
    cJSON_AddStringToObject(named, "name", "answer");
    cJSON_AddTrueToObject(named, "strict");
    cJSON *schema = cJSON_AddObjectToObject(named, "schema");
    cJSON_AddStringToObject(schema, "type", "object");
    cJSON *answer =
        cJSON_AddObjectToObject(cJSON_AddObjectToObject(schema, "properties"), "answer");
    cJSON_AddStringToObject(answer, "type",
                            g->kind == LLM_GUIDE_CHOICE    ? "string"
                            : g->kind == LLM_GUIDE_INTEGER ? "integer"
                                                           : "number");
    if (g->kind == LLM_GUIDE_CHOICE)
        cJSON_AddItemToObject(answer, "enum", literals_of(g));
    cJSON_AddItemToArray(cJSON_AddArrayToObject(schema, "required"), cJSON_CreateString("answer"));
    cJSON_AddFalseToObject(schema, "additionalProperties");
}

/* Asks for the probabilities of the first token. */
static void add_logprobs(const question *q, cJSON *to, int top) {
    if (remote_of(q->engine)->options.api == API_COMPLETIONS) {
        cJSON_AddNumberToObject(to, "logprobs", top);
        return;
    }
    cJSON_AddTrueToObject(to, "logprobs");
    cJSON_AddNumberToObject(to, "top_logprobs", top);
}

static void add_score(const question *q, cJSON *to) {
    static const double bias = 100; /* more than logits differ by */
    cJSON *list = cJSON_AddArrayToObject(to, "logit_bias");
    for (int i = 0; i < q->r->guide->count; i++) {
        cJSON *pair = cJSON_CreateArray();
        cJSON_AddItemToArray(pair, cJSON_CreateNumber(q->ids[i]));
        cJSON_AddItemToArray(pair, cJSON_CreateNumber(bias));
        cJSON_AddItemToArray(list, pair);
    }
    cJSON *samplers = cJSON_AddArrayToObject(to, "samplers");
    cJSON_AddItemToArray(samplers, cJSON_CreateString("temperature"));
    cJSON_AddTrueToObject(to, "post_sampling_probs");
    add_logprobs(q, to, q->r->guide->count);
}

static void add_way(const question *q, cJSON *to) {
    const llm_guide *g = q->r->guide;
    cJSON *part;
    switch (q->way) {
    case WAY_SCORE:
        add_score(q, to);
        break;
    case WAY_TOP:
        add_logprobs(q, to, TOP_LOGPROBS);
        break;
    case WAY_CHOICE:
        part = cJSON_AddObjectToObject(to, "structured_outputs");
        if (g->kind == LLM_GUIDE_CHOICE) {
            cJSON_AddItemToObject(part, "choice", literals_of(g));
            add_logprobs(q, to, TOP_LOGPROBS);
        } else {
            cJSON_AddStringToObject(part, "regex", number_pattern(g));
        }
        break;
    case WAY_GUIDED:
        if (g->kind == LLM_GUIDE_CHOICE) {
            cJSON_AddItemToObject(to, "guided_choice", literals_of(g));
            add_logprobs(q, to, TOP_LOGPROBS);
        } else {
            cJSON_AddStringToObject(to, "guided_regex", number_pattern(g));
        }
        break;
    case WAY_GRAMMAR:
        add_pattern(to, "grammar", g, true);
        break;
    case WAY_REGEX:
        add_pattern(to, "regex", g, false);
        break;
    case WAY_SCHEMA:
        add_schema(to, g);
        break;
    case WAY_TEXT:
    case WAY_PLAIN:
    case WAYS:
        break;
    }
}

/* ---- sampling -------------------------------------------------------------------------------- */

static void add_sampling(const question *q, cJSON *to) {
    const remote_model *m = remote_of(q->engine);
    const llm_sampling *how = &q->r->sampling;
    bool more = m->server != SERVER_OPENAI && m->server != SERVER_GENERIC;
    if (q->way != WAY_TEXT) {
        /* the probabilities that are scored are those of temperature 1 */
        cJSON_AddNumberToObject(to, "temperature", q->way == WAY_SCORE ? 1 : 0);
        return;
    }
    cJSON_AddNumberToObject(to, "temperature", (double)how->temperature);
    if (how->temperature <= 0)
        return;
    if (how->top_p < 1)
        cJSON_AddNumberToObject(to, "top_p", (double)how->top_p);
    if (more && how->min_p > 0)
        cJSON_AddNumberToObject(to, "min_p", (double)how->min_p);
    if (more && how->top_k > 0)
        cJSON_AddNumberToObject(to, "top_k", how->top_k);
    /* 31 bits: what every server takes */
    cJSON_AddNumberToObject(to, "seed", (double)(how->seed & 0x7fffffff));
}

static void add_stops(const question *q, cJSON *to) {
    enum { MOST = 4 }; /* what OpenAI takes; the rest is cut off here */
    const request *r = q->r;
    bool newline =
        q->way == WAY_TEXT && !r->chat && remote_of(q->engine)->options.api == API_COMPLETIONS;
    if (q->way != WAY_TEXT || (r->nstop == 0 && !newline))
        return;
    cJSON *list = cJSON_AddArrayToObject(to, "stop");
    if (newline)
        cJSON_AddItemToArray(list, cJSON_CreateString("\n"));
    for (int i = 0; i < r->nstop && cJSON_GetArraySize(list) < MOST; i++) {
        char *text = mem_strndup(r->stop[i].p, r->stop[i].n);
        cJSON_AddItemToArray(list, cJSON_CreateString(text));
        free(text);
    }
}

static void add_thinking(const remote_model *m, cJSON *to) {
    if (m->options.thinking == THINKING_AUTO)
        return;
    bool on = m->options.thinking == THINKING_ON;
    if (m->server == SERVER_OPENAI) {
        cJSON_AddStringToObject(to, "reasoning_effort", on ? "medium" : "minimal");
        return;
    }
    cJSON *part = cJSON_AddObjectToObject(to, "chat_template_kwargs");
    cJSON_AddBoolToObject(part, "enable_thinking", on);
}

int dialect_write(const question *q, buf *body) {
    const remote_model *m = remote_of(q->engine);
    bool completions = m->options.api == API_COMPLETIONS;
    cJSON *to = cJSON_CreateObject();
    add_text(to, "model", str_from(m->name));
    int broken = completions ? add_prompt(q, to) : add_messages(q, to);
    const char *limit =
        m->server == SERVER_OPENAI && !completions ? "max_completion_tokens" : "max_tokens";
    cJSON_AddNumberToObject(to, limit, dialect_max_tokens(q));
    add_sampling(q, to);
    add_stops(q, to);
    add_way(q, to);
    if (!completions)
        add_thinking(m, to);
    if (m->server == SERVER_LLAMACPP)
        cJSON_AddTrueToObject(to, "cache_prompt");
    char *text = cJSON_PrintUnformatted(to);
    buf_append_c(body, text != NULL ? text : "");
    cJSON_free(text);
    cJSON_Delete(to);
    return broken;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

void dialect_write_tokenize(const remote_model *m, str text, buf *body) {
    cJSON *to = cJSON_CreateObject();
    add_text(to, "model", str_from(m->name));
    add_text(to, "content", text);
    cJSON_AddFalseToObject(to, "add_special");
    char *written = cJSON_PrintUnformatted(to);
    buf_append_c(body, written != NULL ? written : "");
    cJSON_free(written);
    cJSON_Delete(to);
}

llm_token dialect_read_tokenize(str body) {
    cJSON *root = json_parse_reply(body);
    const cJSON *first = cJSON_GetArrayItem(
        cJSON_IsObject(root) ? cJSON_GetObjectItemCaseSensitive(root, "tokens") : NULL, 0);
    bool sound = cJSON_IsNumber(first) && first->valuedouble >= 0 && first->valuedouble < INT32_MAX;
    llm_token id = sound ? (llm_token)first->valuedouble : -1;
    cJSON_Delete(root);
    return id;
}
#else
typedef int dialect_is_not_built; /* ISO C requires a declaration in a file */
#endif
