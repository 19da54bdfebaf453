/*
 * reply.c - reads replies (dialect_int.h).
 *
 *   body --json_parse_reply--> choice, message, usage --> text checked against the type, or the
 *   probabilities of the literals
 *
 * Invariant: nothing of a reply is believed: numbers are finite and in their range or not used,
 * nesting is at most 64 deep, and no member need exist or have its type.
 */
#ifdef KVASIR_REMOTE
#include <cjson/cJSON.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dialect_int.h"
#include "engine/guide_int.h"

enum { DEEPEST = 64, SHOWN = 80, MESSAGE_SHOWN = 300 };

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Returns the length of a name of a number that is none, such as NaN, which JSON does not have but
 * servers write; 0: there is none. */
static size_t odd_number(str s) {
    static const char *const names[] = {"NaN", "-NaN", "Infinity", "-Infinity"};
    for (size_t i = 0; i < BASE_COUNT(names) && strchr("NI-", s.p[0]) != NULL; i++) {
        size_t n = strlen(names[i]);
        if (s.n >= n && memcmp(s.p, names[i], n) == 0)
            return n;
    }
    return 0;
}

cJSON *json_parse_reply(str body) {
    buf clean = {0};
    int depth = 0, deepest = 0;
    bool quoted = false;
    for (size_t i = 0; i < body.n && deepest <= DEEPEST; i++) {
        char c = body.p[i];
        size_t odd = quoted ? 0 : odd_number((str){body.p + i, body.n - i});
        if (odd > 0) {
            buf_append_c(&clean, "null");
            i += odd - 1;
            continue;
        }
        buf_append_char(&clean, c);
        if (quoted && c == '\\' && i + 1 < body.n)
            buf_append_char(&clean, body.p[++i]);
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '{' || c == '['))
            deepest = BASE_MAX(deepest, ++depth);
        else if (!quoted && (c == '}' || c == ']'))
            depth--;
    }
    cJSON *out = deepest <= DEEPEST && clean.n > 0 ? cJSON_ParseWithLength(clean.p, clean.n) : NULL;
    buf_free(&clean);
    return out;
}

static const cJSON *member(const cJSON *of, const char *name) {
    return cJSON_IsObject(of) ? cJSON_GetObjectItemCaseSensitive(of, name) : NULL;
}

static str text_of(const cJSON *item) {
    return cJSON_IsString(item) ? str_from(item->valuestring) : STR("");
}

/* Returns a count; -1: it is missing, negative or no number. */
static int64_t count_of(const cJSON *item) {
    bool sound = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1e12;
    return sound ? (int64_t)item->valuedouble : -1;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

/* `why` must be a literal. The whole of what was said is kept, since a cut could leave half a key. */
static void decide(reply *out, verdict v, const char *why, str said, size_t most) {
    enum { KEPT = 64 << 10 };
    out->verdict = v;
    out->why = why;
    out->after = "";
    out->most = most;
    buf_clear(&out->said);
    buf_append(&out->said, said.p, BASE_MIN(said.n, (size_t)KEPT));
}

void reply_message(const reply *r, const char *key, buf *out) {
    buf_append_c(out, r->why != NULL ? r->why : "");
    if (r->said.n > 0)
        remote_mask(buf_str(&r->said), key, r->most, out);
    buf_append_c(out, r->after != NULL ? r->after : "");
}

/* Returns what an error reply says, as the usual servers have it. */
static str error_text(const cJSON *root, str body) {
    const cJSON *error = member(root, "error");
    str text = text_of(member(error, "message"));
    text = text.n > 0 ? text : text_of(error);
    text = text.n > 0 ? text : text_of(member(root, "message"));
    text = text.n > 0 ? text : text_of(member(root, "detail"));
    return text.n > 0 ? text : body;
}

/* Whether the code, the type or the words of an error name this reason. */
static bool error_is(const cJSON *root, const char *reason) {
    const cJSON *error = member(root, "error");
    const cJSON *at = error != NULL ? error : root;
    const char *const members[] = {"code", "type", "message"};
    for (size_t i = 0; i < BASE_COUNT(members); i++) {
        str text = text_of(member(at, members[i]));
        if (text.n > 0 && memmem(text.p, text.n, reason, strlen(reason)) != NULL)
            return true;
    }
    return false;
}

static bool is_too_long(const cJSON *root) {
    return error_is(root, "context_length_exceeded") ||
           error_is(root, "exceed_context_size_error") ||
           error_is(root, "maximum context length") ||
           error_is(root, "longer than the model's context");
}

static void too_long(const cJSON *root, str text, reply *out) {
    const cJSON *error = member(root, "error");
    int64_t tokens = count_of(member(error, "n_prompt_tokens")),
            context = count_of(member(error, "n_ctx"));
    if (tokens > 0 && context > 0) {
        decide(out, VERDICT_TOO_LONG, "", STR(""), MESSAGE_SHOWN);
        buf_printf(&out->said, "a prompt of %lld tokens exceeds the server's context of %lld",
                   (long long)tokens, (long long)context);
        return;
    }
    decide(out, VERDICT_TOO_LONG, "the prompt exceeds the server's context: ", text, MESSAGE_SHOWN);
}

static void decide_status(reply *out, verdict v, int status, str text) {
    decide(out, v, "it answered ", STR(""), MESSAGE_SHOWN);
    buf_printf(&out->said, "%d%s", status, text.n > 0 ? ": " : "");
    buf_append_str(&out->said, text);
}

/* Reads a reply that is no answer. */
static void read_refusal(const question *q, int status, str body, reply *out) {
    cJSON *root = json_parse_reply(body);
    str text = error_text(root, body);
    verdict v = VERDICT_ROW;
    if (status == 429 && !error_is(root, "insufficient_quota"))
        v = VERDICT_BUSY;
    else if (status == 503 || status == 529)
        v = VERDICT_BUSY;
    else if (status == 408 || status == 425 || (status >= 500 && status != 501 && status != 505))
        v = VERDICT_AGAIN;
    else if (status == 401 || status == 402 || status == 403 || status == 404 || status == 405 ||
             status == 429 || (status >= 300 && status < 400))
        v = VERDICT_ENDPOINT;
    else if ((status == 400 || status == 422) && q->way != WAY_TEXT && q->way != WAY_PLAIN)
        v = VERDICT_UNSURE; /* it may not know this way */
    if ((status == 400 || status == 413 || status == 500) && is_too_long(root))
        too_long(root, text, out);
    else
        decide_status(out, v, status, text);
    cJSON_Delete(root);
}

/* ---- the type -------------------------------------------------------------------------------- */

/* Removes what models reason in front of an answer. */
static str without_thoughts(str text) {
    static const char open[] = "<think>", close[] = "</think>";
    text = str_trim(text, STR_SPACES);
    if (text.n < sizeof open - 1 || memcmp(text.p, open, sizeof open - 1) != 0)
        return text;
    const char *end = memmem(text.p, text.n, close, sizeof close - 1);
    size_t n = end != NULL ? (size_t)(end - text.p) + sizeof close - 1 : text.n;
    return str_trim((str){text.p + n, text.n - n}, STR_SPACES);
}

/* Appends the answer in {"answer": …} or "…", else the text itself, without quotes and full stop. */
static void append_bare(str text, buf *out) {
    cJSON *root = text.n > 0 && strchr("{\"", text.p[0]) != NULL ? json_parse_reply(text) : NULL;
    const cJSON *answer = cJSON_IsObject(root) ? member(root, "answer") : root;
    char number[32];
    if (cJSON_IsString(answer)) {
        buf_append_c(out, answer->valuestring);
    } else if (cJSON_IsNumber(answer)) {
        double r = answer->valuedouble;
        bool whole = r == floor(r) && fabs(r) < 9e15;
        if (whole)
            snprintf(number, sizeof number, "%.0f", r);
        else
            format_real(r, number);
        buf_append_c(out, number);
    } else if (cJSON_IsBool(answer)) {
        buf_append_c(out, cJSON_IsTrue(answer) ? "true" : "false");
    } else {
        text = str_trim(text, STR_SPACES "\"'`*");
        text = str_trim(text, ".");
        buf_append_str(out, str_trim(text, STR_SPACES "\"'`*"));
    }
    cJSON_Delete(root);
}

static bool in_word(char c) {
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80 || c == '_';
}

static bool has_word(str text, str word) {
    for (size_t i = 0; word.n > 0 && i + word.n <= text.n; i++)
        if (memcmp(text.p + i, word.p, word.n) == 0 && (i == 0 || !in_word(text.p[i - 1])) &&
            (i + word.n == text.n || !in_word(text.p[i + word.n])))
            return true;
    return false;
}

/* Returns the literal that the text is, in any case; with `inside`, that alone occurs in it as a
 * word. -1: none. */
static int literal_of(const llm_guide *g, str text, bool inside) {
    arena *mem = arena_new();
    str lower = utf8_lower(mem, str_trim(text, STR_SPACES));
    int found = -1, words = 0;
    for (int i = 0; i < g->count && found < 0; i++)
        if (str_equal(str_trim(g->literals[i], STR_SPACES), text))
            found = i;
    for (int i = 0; i < g->count && found < 0; i++)
        if (str_equal(utf8_lower(mem, str_trim(g->literals[i], STR_SPACES)), lower))
            found = i;
    for (int i = 0; i < g->count && found < 0 && inside; i++)
        words += has_word(lower, utf8_lower(mem, g->literals[i]));
    for (int i = 0; i < g->count && words == 1 && found < 0; i++)
        if (has_word(lower, utf8_lower(mem, g->literals[i])))
            found = i;
    arena_free(mem);
    return found;
}

/* Returns the only number in a text; empty: there are none or several. */
static str only_number(str text) {
    str found = {"", 0};
    int n = 0;
    for (size_t i = 0; i < text.n;) {
        size_t from = i;
        while (i < text.n &&
               (isdigit((unsigned char)text.p[i]) || (text.p[i] == '-' && i == from) ||
                (text.p[i] == '.' && i > from && i + 1 < text.n &&
                 isdigit((unsigned char)text.p[i + 1]))))
            i++;
        bool number = i > from && isdigit((unsigned char)text.p[i - 1]);
        if (number) {
            found = (str){text.p + from, i - from};
            n++;
        }
        i += i == from;
    }
    return n == 1 ? found : (str){"", 0};
}

static bool is_number(const llm_guide *g, str text) {
    int64_t i;
    double r;
    return g->kind == LLM_GUIDE_INTEGER ? parse_integer(text, &i)
                                        : parse_real(text, &r) && isfinite(r);
}

/* Makes the text an answer of the type. */
static void take_typed(const question *q, str text, reply *out) {
    const llm_guide *g = q->r->guide;
    buf bare = {0};
    append_bare(text, &bare);
    str answer = bare.n > 0 ? buf_str(&bare) : STR("");
    bool loose = q->way == WAY_PLAIN;
    if (g->kind == LLM_GUIDE_CHOICE) {
        out->choice = literal_of(g, answer, loose);
        if (out->choice >= 0)
            buf_append_str(&out->text, g->literals[out->choice]);
    } else {
        if (loose && !is_number(g, answer))
            answer = only_number(answer);
        if (is_number(g, answer))
            buf_append_str(&out->text, answer);
    }
    if (out->text.n == 0 && out->choice < 0) {
        decide(out, VERDICT_WRONG_TYPE, "the model answered '", text, SHOWN);
        out->after = "', which is not of the call's type";
    } else {
        out->verdict = VERDICT_ANSWER;
        out->finish = LLM_FINISH_CHOICE;
    }
    buf_free(&bare);
}

/* ---- probabilities --------------------------------------------------------------------------- */

/* The likeliest first tokens that a reply lists. */
typedef struct likely {
    str token;
    int64_t id; /* -1: not told */
    double p;
} likely;

typedef struct likely_list {
    likely *items;
    size_t n, cap;
    bool unsound; /* a probability is not one */
} likely_list;

static void add_likely(likely_list *list, const cJSON *token, const char *name, const cJSON *log_p,
                       const cJSON *p, const cJSON *id) {
    likely one = {.token = name != NULL ? str_from(name) : text_of(token), .id = count_of(id)};
    if (cJSON_IsNumber(p))
        one.p = p->valuedouble;
    else if (cJSON_IsNumber(log_p) && log_p->valuedouble <= 1e-6)
        one.p = BASE_MIN(exp(log_p->valuedouble), 1.0);
    else
        one.p = NAN;
    /* rounding may leave a sum slightly above 1 */
    if (!(one.p >= 0 && one.p <= 1.0001))
        list->unsound = true;
    else
        ARRAY_PUSH(list->items, list->n, list->cap, one);
}

/* Reads the list of the first token. Three forms: chat, llama-server's probabilities, and that of
 * the older completions. */
static void read_likely(const cJSON *choice, likely_list *list) {
    const cJSON *all = member(choice, "logprobs"), *one;
    const cJSON *first = cJSON_GetArrayItem(member(all, "content"), 0);
    const cJSON *top = member(first, "top_probs");
    top = top != NULL ? top : member(first, "top_logprobs");
    if (cJSON_IsArray(top)) {
        cJSON_ArrayForEach(one, top)
            add_likely(list, member(one, "token"), NULL, member(one, "logprob"),
                       member(one, "prob"), member(one, "id"));
        return;
    }
    top = cJSON_GetArrayItem(member(all, "top_logprobs"), 0);
    if (cJSON_IsObject(top))
        cJSON_ArrayForEach(one, top) add_likely(list, NULL, one->string, one, NULL, NULL);
}

static int largest(const double *p, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        best = p[i] > p[best] ? i : best;
    return best;
}

/* Divides the masses by their sum and sets the answer to the largest. */
static void take_masses(const llm_guide *g, double *mass, double sum, bool all, reply *out) {
    int best = largest(mass, g->count);
    for (int i = 0; i < g->count; i++)
        mass[i] = BASE_MIN(mass[i] / sum, 1.0);
    out->choice = best;
    out->prob = mass[best];
    out->probs = all ? mass : NULL;
    if (!all)
        free(mass);
}

/* WAY_SCORE: every literal's first token must be listed. */
static bool read_score(const question *q, const likely_list *list, reply *out) {
    const llm_guide *g = q->r->guide;
    double *mass = mem_zalloc(sizeof *mass * (size_t)g->count), sum = 0;
    int listed = 0;
    for (int i = 0; i < g->count; i++)
        for (size_t k = 0; k < list->n; k++)
            if (list->items[k].id == q->ids[i]) {
                mass[i] = list->items[k].p;
                listed++;
                break;
            }
    for (int i = 0; i < g->count; i++)
        sum += mass[i];
    if (listed < g->count || list->unsound || !(sum > 0)) {
        free(mass);
        return false;
    }
    take_masses(g, mass, sum, true, out);
    return true;
}

/* Returns the literal that alone begins with a token; -1: none, -2: several do. */
static int begun_by(const llm_guide *g, str token, arena *mem) {
    int found = -1;
    str lower = utf8_lower(mem, str_trim(token, STR_SPACES "\""));
    for (int i = 0; i < g->count && lower.n > 0; i++) {
        str literal = utf8_lower(mem, str_trim(g->literals[i], STR_SPACES));
        if (literal.n < lower.n || memcmp(literal.p, lower.p, lower.n) != 0)
            continue;
        if (found >= 0)
            return -2;
        found = i;
    }
    return found;
}

/* WAY_TOP: the mass of a literal is that of the listed tokens that begin it and no other. What is
 * not listed is at most as likely as the least of the list. */
static bool read_top(const llm_guide *g, const likely_list *list, reply *out) {
    double *mass = mem_zalloc(sizeof *mass * (size_t)g->count), sum = 0, least = 1, unclear = 0;
    arena *mem = arena_new();
    for (size_t k = 0; k < list->n; k++) {
        int i = begun_by(g, list->items[k].token, mem);
        least = BASE_MIN(least, list->items[k].p);
        if (i >= 0)
            mass[i] += list->items[k].p;
        unclear += i == -2 ? list->items[k].p : 0;
    }
    arena_free(mem);
    bool all = true;
    double second = unclear;
    int best = largest(mass, g->count);
    for (int i = 0; i < g->count; i++) {
        sum += mass[i];
        all = all && mass[i] > 0;
        if (i != best)
            second = BASE_MAX(second, (mass[i] > 0 ? mass[i] : least) + unclear);
    }
    if (list->unsound || !(mass[best] > 0) || mass[best] <= second) {
        free(mass);
        return false;
    }
    take_masses(g, mass, sum + unclear, all && unclear == 0, out);
    return true;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void read_usage(const cJSON *root, reply *out) {
    const cJSON *usage = member(root, "usage");
    out->prompt_tokens = count_of(member(usage, "prompt_tokens"));
    out->output_tokens = count_of(member(usage, "completion_tokens"));
    out->cached_tokens = count_of(member(member(usage, "prompt_tokens_details"), "cached_tokens"));
    if (out->prompt_tokens <= 0)
        out->prompt_tokens = out->cached_tokens = -1;
    else if (out->cached_tokens > out->prompt_tokens)
        out->cached_tokens = -1;
}

/* Sets the probabilities of a guided answer, where the reply has them and they agree with it. */
static void add_probability(const question *q, const likely_list *list, reply *out) {
    reply by = {.choice = -1, .prob = NAN};
    if (q->r->guide->kind != LLM_GUIDE_CHOICE || list->n == 0)
        return;
    if (read_top(q->r->guide, list, &by) && by.choice == out->choice) {
        out->prob = by.prob;
        out->probs = by.probs;
        return;
    }
    free(by.probs);
}

static void read_probable(const question *q, const likely_list *list, reply *out) {
    bool sure = q->way == WAY_SCORE ? read_score(q, list, out) : read_top(q->r->guide, list, out);
    if (!sure) {
        decide(out, VERDICT_UNSURE, "the probabilities that the server returned do not decide",
               STR(""), 0);
        return;
    }
    out->verdict = VERDICT_ANSWER;
    out->finish = LLM_FINISH_CHOICE;
    buf_append_str(&out->text, q->r->guide->literals[out->choice]);
}

static void read_choice(const question *q, const cJSON *choice, str body, reply *out) {
    const cJSON *message = member(choice, "message"), *content = member(message, "content");
    content = content != NULL ? content : member(choice, "text");
    str reason = text_of(member(choice, "finish_reason")),
        text = without_thoughts(text_of(content));
    str refusal = text_of(member(message, "refusal"));
    likely_list list = {0};
    read_likely(choice, &list);
    bool probable = q->way == WAY_SCORE || q->way == WAY_TOP;
    if (refusal.n > 0) {
        decide(out, VERDICT_ROW, "the model refused: ", refusal, MESSAGE_SHOWN);
    } else if (str_equal(reason, STR("content_filter"))) {
        decide(out, VERDICT_ROW, "the server's content filter withheld the answer", STR(""), 0);
    } else if (probable) {
        read_probable(q, &list, out);
    } else if (!cJSON_IsString(content)) {
        decide(out, VERDICT_AGAIN, "its reply has no text: ", body, SHOWN);
    } else if (q->way == WAY_TEXT) {
        out->verdict = VERDICT_ANSWER;
        out->finish = str_equal(reason, STR("length")) ? LLM_FINISH_LENGTH : LLM_FINISH_STOP;
        buf_append_str(&out->text, text);
    } else {
        take_typed(q, text, out);
        if (out->verdict == VERDICT_ANSWER)
            add_probability(q, &list, out);
    }
    free(list.items);
}

static void read_answer(const question *q, str body, reply *out) {
    cJSON *root = json_parse_reply(body);
    const cJSON *choices = member(root, "choices"), *first = cJSON_GetArrayItem(choices, 0);
    if (root == NULL) {
        decide(out, VERDICT_AGAIN, "its reply is not JSON: ", body, SHOWN);
    } else if (!cJSON_IsObject(first)) {
        decide(out, VERDICT_AGAIN, "its reply has no choice: ", body, SHOWN);
    } else {
        read_usage(root, out);
        read_choice(q, first, body, out);
    }
    cJSON_Delete(root);
}

void dialect_read(const question *q, int status, str body, reply *out) {
    *out = (reply){
        .choice = -1, .prob = NAN, .prompt_tokens = -1, .cached_tokens = -1, .output_tokens = -1};
    if (body.p == NULL)
        body = STR("");
    if (status == 200)
        read_answer(q, body, out);
    else
        read_refusal(q, status, body, out);
}

void reply_free(reply *r) {
    buf_free(&r->said);
    buf_free(&r->text);
    free(r->probs);
}
#else
typedef int reply_is_not_built; /* ISO C requires a declaration in a file */
#endif
