/*
 * remote.c - the backend of models at servers: opens a model, counts its tokens, asks what a server
 * is.
 *
 * Tokens are those of the vocabulary in the file `tokenizer`. Without it they are runs of up to four
 * bytes within a word, used for the order of prompts, for estimates and for the key of an answer;
 * they can be decoded to text.
 *
 * Invariant: opening sends nothing if the model's name is given. The fingerprint depends on name and
 * options, not on URLs: an answer of one endpoint serves for all.
 */
#ifdef KVASIR_REMOTE
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dialect_int.h"
#include "engine/guide_int.h"
#include "http_int.h"
#include "remote_int.h"

/* PIECE: bytes of an estimated token. KV_BYTES, with KV_MEMORY: sizes by which sessions that only
 * count have room for any prompts. */
enum { PIECE = 4, CONTEXT = 131072, KV_BYTES = 16 };
static const size_t KV_MEMORY = (size_t)1 << 28;
static const double PROBE_S = 2;

/* ---- what servers can ------------------------------------------------------------------------ */

static const server_row servers[] = {
    [SERVER_AUTO] = {"auto", NULL, {WAY_PLAIN}, {WAY_PLAIN}, 8, "none", "not known"},
    [SERVER_VLLM] = {"vllm",
                     "vllm",
                     {WAY_CHOICE, WAY_TOP, WAY_SCHEMA, WAY_PLAIN},
                     {WAY_CHOICE, WAY_SCHEMA, WAY_PLAIN},
                     256,
                     "from the 20 likeliest tokens",
                     "reported with --enable-prompt-tokens-details"},
    [SERVER_SGLANG] = {"sglang",
                       "sglang",
                       {WAY_REGEX, WAY_SCHEMA, WAY_PLAIN},
                       {WAY_REGEX, WAY_SCHEMA, WAY_PLAIN},
                       256,
                       "none",
                       "reported with --enable-cache-report"},
    [SERVER_LLAMACPP] = {"llamacpp",
                         "llamacpp",
                         {WAY_SCORE, WAY_GRAMMAR, WAY_SCHEMA, WAY_PLAIN},
                         {WAY_GRAMMAR, WAY_SCHEMA, WAY_PLAIN},
                         4,
                         "exact where the answers differ in their first token",
                         "reported"},
    [SERVER_OLLAMA] = {"ollama",
                       "library",
                       {WAY_SCHEMA, WAY_PLAIN},
                       {WAY_SCHEMA, WAY_PLAIN},
                       4,
                       "none",
                       "not reported"},
    [SERVER_OPENAI] = {"openai",
                       "openai",
                       {WAY_TOP, WAY_SCHEMA, WAY_PLAIN},
                       {WAY_SCHEMA, WAY_PLAIN},
                       64,
                       "from the 20 likeliest tokens",
                       "reported for prompts of 1,024 tokens and more"},
    [SERVER_GENERIC] = {"generic",
                        NULL,
                        {WAY_TOP, WAY_SCHEMA, WAY_PLAIN},
                        {WAY_SCHEMA, WAY_PLAIN},
                        8,
                        "from the likeliest tokens, where it lists them",
                        "not known"},
};
BASE_COVERS(servers, SERVERS);

const server_row *server_row_of(server_kind kind) {
    return &servers[kind];
}

const char *way_name(way w) {
    static const char *const names[] = {
        [WAY_TEXT] = "text",
        [WAY_SCORE] = "scoring the first tokens of the answers",
        [WAY_TOP] = "the likeliest tokens",
        [WAY_CHOICE] = "structured outputs",
        [WAY_GUIDED] = "guided choice",
        [WAY_GRAMMAR] = "a grammar",
        [WAY_REGEX] = "a regular expression",
        [WAY_SCHEMA] = "a JSON schema",
        [WAY_PLAIN] = "checked text",
    };
    BASE_COVERS(names, WAYS);
    return names[w];
}

const way *remote_ways(const remote_model *m, const llm_guide *guide) {
    const server_row *row = &servers[m->server];
    return guide->kind == LLM_GUIDE_CHOICE ? row->choices : row->numbers;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Returns 1 for a letter, 2 for a space, 3 for other bytes. */
static int byte_class(char c) {
    unsigned char u = (unsigned char)c;
    return u >= 0x80 || (u >= 'a' && u <= 'z') || (u >= 'A' && u <= 'Z') ? 1 : u == ' ' ? 2 : 3;
}

/* Returns the bytes of the first token: a space belongs to the word after it; digits and
 * punctuation marks are tokens of their own. */
static size_t piece_length(str s) {
    size_t n = 1;
    int kind = byte_class(s.p[0]);
    if (kind == 2 && s.n > 1 && byte_class(s.p[1]) == 1)
        kind = 1;
    while (kind == 1 && n < s.n && n < PIECE && byte_class(s.p[n]) == 1)
        n++;
    return n;
}

/* A token is its bytes, the first one lowest. No piece but a single NUL has a NUL. */
static void remote_encode(const llm_engine *engine, str text, bool parse_special,
                          bool segment_start, llm_token **out, size_t *count, size_t *cap) {
    if (engine->tokenizer != NULL) {
        engine_file_encode(engine, text, parse_special, segment_start, out, count, cap);
        return;
    }
    while (text.n > 0) {
        size_t n = piece_length(text);
        uint32_t token = 0;
        for (size_t i = 0; i < n; i++)
            token |= (uint32_t)(unsigned char)text.p[i] << (8 * i);
        ARRAY_PUSH(*out, *count, *cap, (llm_token)token);
        text = (str){text.p + n, text.n - n};
    }
}

static void remote_decode(const llm_engine *engine, llm_token token, bool special, buf *out) {
    if (engine->tokenizer != NULL) {
        engine_file_decode(engine, token, special, out);
        return;
    }
    uint32_t bytes = (uint32_t)token;
    do {
        buf_append_char(out, (char)(bytes & 0xff));
        bytes >>= 8;
    } while (bytes != 0);
}

static int open_tokenizer(llm_engine *engine, const remote_model *m, err *e) {
    const char *path = m->options.tokenizer;
    if (path[0] == '\0')
        return 0;
    int status = gguf_open(path, &engine->file, e);
    status = status != 0 ? status : tokenizer_new(engine->file, &engine->tokenizer, e);
    if (status != 0) {
        err why = *e;
        err_set(e, why.code, "tokenizer '%s': %s", path, why.message);
        return status;
    }
    engine->bos = tokenizer_bos(engine->tokenizer);
    engine->eos = tokenizer_eos(engine->tokenizer);
    engine->adds_bos = tokenizer_adds_bos(engine->tokenizer);
    engine->info.vocab = tokenizer_size(engine->tokenizer);
    if (m->options.api == API_COMPLETIONS)
        engine->chat = template_for_chat(engine->file, &engine->info.chat_family);
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_endpoints(remote_model *m, str source, err *e) {
    int status = 0, room = 1;
    for (size_t i = 0; i < source.n; i++)
        room += source.p[i] == ' ';
    m->endpoints = ARENA_ARRAY(m->mem, endpoint, room);
    while (source.n > 0 && status == 0) {
        str url = str_split_next(&source, ' ');
        if (url.n > 0)
            status = endpoint_parse(url, m->mem, &m->endpoints[m->nendpoints++], e);
    }
    return status;
}

/* Hashes what decides how a prompt is answered. */
static hash128 fingerprint_of(const llm_engine *engine, const remote_model *m) {
    buf b = {0};
    gguf_array vocabulary;
    buf_printf(&b, "remote 1\n%s\n%d\n%d\n%d\n%s\n", m->name, m->options.api, m->options.server,
               m->options.thinking, m->options.version);
    if (engine->file != NULL &&
        gguf_get_array(engine->file, "tokenizer.ggml.tokens", &vocabulary)) {
        size_t bytes = (size_t)((const char *)vocabulary.end - (const char *)vocabulary.data);
        hash128 h = hash_128(vocabulary.data, bytes);
        buf_append(&b, &h, sizeof h);
    }
    hash128 h = hash_128(b.p, b.n);
    buf_free(&b);
    return h;
}

static void set_facts(llm_engine *engine, const remote_model *m) {
    /* With no "answer:" at its end, a server's own template asks for free text. */
    static const llm_template chat = {.name = "chat",
                                      .before = {"", 0},
                                      .after = {"", 0},
                                      .answer_lead = {"", 0},
                                      .said_lead = {" ", 1},
                                      .turn = {"\n", 1},
                                      .chat = true};
    llm_model_info *info = &engine->info;
    info->remote = info->generates = true;
    info->name = m->name;
    info->architecture = "remote";
    info->device = "remote";
    info->precision = "the server's";
    info->chat_family = info->chat_family != NULL ? info->chat_family : "none";
    info->currency = m->options.currency;
    info->price_in = m->options.price_in;
    info->price_cached = m->options.price_cached;
    info->price_out = m->options.price_out;
    info->default_format = LLM_FORMAT_COMPLETION;
    /* estimated tokens must not refuse a prompt that the server would take */
    info->context = m->context > 0 && engine->tokenizer != NULL ? m->context : (int)CONTEXT;
    info->kv_bytes_per_token = KV_BYTES;
    info->kv_memory_bytes = KV_MEMORY;
    info->fingerprint = info->weights = fingerprint_of(engine, m);
    /* the path has one key in the cache's record, whatever the options are */
    info->weights = hash_128(info->path, strlen(info->path));
    if (m->options.api != API_COMPLETIONS)
        engine->chat = &chat;
    if (engine->eos < 0)
        engine->eos = 0;
}

static int remote_open(llm_engine *engine, const llm_engine_options *options, err *e) {
    remote_model *m = mem_zalloc(sizeof *m);
    engine->state = m;
    m->mem = arena_new();
    int status = llm_remote_check(str_from(options->path), options->remote, e);
    status = status ? status : remote_options_parse(options->remote, m->mem, &m->options, e);
    status = status ? status : open_endpoints(m, str_from(options->path), e);
    status = status ? status : remote_key_read(&m->options, &m->key, e);
    status = status ? status : open_tokenizer(engine, m, e);
    if (status != 0)
        return status;
    m->name = m->options.model;
    m->server = (server_kind)m->options.server;
    m->context = (int)m->options.context;
    if (m->name[0] == '\0') {
        struct http *net;
        status = http_new(m->key, m->options.ca, &net, e);
        status = status ? status : remote_probe(m, net, options->cancel, e);
        http_free(net);
    }
    if (status == 0)
        set_facts(engine, m);
    return status;
}

static void remote_close(llm_engine *engine) {
    remote_model *m = engine->state;
    if (m->key != NULL)
        explicit_bzero(m->key, strlen(m->key));
    free(m->key);
    arena_free(m->mem);
    free(m);
}

/* ---- what a server is ------------------------------------------------------------------------ */

/* Gets a URL. Returns the parsed reply, or NULL; *call has the result. */
static cJSON *get(const remote_model *m, struct http *net, const char *url,
                  const atomic_bool *cancel, http_call *call, err *e) {
    *call =
        (http_call){.url = url, .is_get = true, .timeout_s = BASE_MIN(PROBE_S, m->options.timeout)};
    cJSON *root = NULL;
    if (http_sync(net, call, cancel, e) == 0 && call->result == HTTP_DONE && call->status == 200)
        root = json_parse_reply(call->body.n > 0 ? buf_str(&call->body) : STR(""));
    return root;
}

static const char *string_of(const cJSON *of, const char *name) {
    const cJSON *item = cJSON_IsObject(of) ? cJSON_GetObjectItemCaseSensitive(of, name) : NULL;
    return cJSON_IsString(item) ? item->valuestring : "";
}

static int number_of(const cJSON *of, const char *name) {
    const cJSON *item = cJSON_IsObject(of) ? cJSON_GetObjectItemCaseSensitive(of, name) : NULL;
    bool sound = cJSON_IsNumber(item) && item->valuedouble >= 1 && item->valuedouble < 1e9;
    return sound ? (int)item->valuedouble : 0;
}

static server_kind kind_of(const char *owned_by, const endpoint *at) {
    for (int k = 0; k < SERVERS; k++)
        if (servers[k].owned_by != NULL && strcmp(owned_by, servers[k].owned_by) == 0)
            return (server_kind)k;
    bool openai = strcmp(at->origin, "https://api.openai.com") == 0;
    return openai || strcmp(owned_by, "system") == 0 ? SERVER_OPENAI : SERVER_GENERIC;
}

static const char *masked(const remote_model *m, const char *text) {
    buf b = {0};
    enum { MOST = 200 };
    remote_mask(str_from(text), m->key, MOST, &b);
    const char *out = arena_strndup(m->mem, b.n > 0 ? b.p : "", b.n);
    buf_free(&b);
    return out;
}

/* Takes the facts of the list of models. */
static int take_models(remote_model *m, const endpoint *at, const cJSON *root, err *e) {
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(root, "data"), *one, *own = NULL;
    cJSON_ArrayForEach(one, data) if (own == NULL && (m->options.model[0] == '\0' ||
                                                      strcmp(string_of(one, "id"),
                                                             m->options.model) == 0)) own = one;
    if (m->options.model[0] == '\0' && (own == NULL || cJSON_GetArraySize(data) != 1)) {
        err_set(e, ERR_MODEL, "%s serves %d models", at->origin, cJSON_GetArraySize(data));
        err_hint(e,
                 own == NULL ? "name one in WITH (model '…')"
                             : "name one in WITH (model '…'), such as %s",
                 masked(m, string_of(own, "id")));
        return ERR_MODEL;
    }
    const cJSON *about = own != NULL ? own : cJSON_GetArrayItem(data, 0);
    if (m->options.model[0] == '\0')
        m->name = arena_strndup(m->mem, string_of(own, "id"), strlen(string_of(own, "id")));
    if (m->options.server == SERVER_AUTO)
        m->server = kind_of(string_of(about, "owned_by"), at);
    int context = number_of(own, "max_model_len");
    if (context == 0)
        context = number_of(cJSON_GetObjectItemCaseSensitive(own, "meta"), "n_ctx");
    m->context = m->options.context > 0 ? (int)m->options.context : context;
    return 0;
}

/* Asks what the kind of the server suggests. */
static int take_details(remote_model *m, struct http *net, const endpoint *at,
                        const atomic_bool *cancel, err *e) {
    static const char *const routes[SERVERS] = {
        [SERVER_VLLM] = "/version", [SERVER_LLAMACPP] = "/props", [SERVER_OLLAMA] = "/api/version"};
    http_call call;
    const char *route = routes[m->server];
    m->software = servers[m->server].name;
    if (route == NULL)
        return 0;
    const char *url = arena_printf(m->mem, "%s%s", at->root, route);
    cJSON *root = get(m, net, url, cancel, &call, e);
    http_call_free(&call);
    const char *version = string_of(root, m->server == SERVER_LLAMACPP ? "build_info" : "version");
    int major, minor;
    if (m->server == SERVER_VLLM && sscanf(version, "%d.%d", &major, &minor) == 2)
        m->guided_by_name = major == 0 && minor < 12;
    m->slots = number_of(root, "total_slots");
    if (version[0] != '\0')
        m->software = arena_printf(m->mem, "%s %s", m->software, masked(m, version));
    cJSON_Delete(root);
    return (int)(e->code == ERR_CANCELLED ? ERR_CANCELLED : 0);
}

/* Appends why an endpoint did not answer. */
static void append_reason(const remote_model *m, const endpoint *at, const http_call *call,
                          buf *out) {
    enum { MOST = 160 };
    buf_printf(out, "%s%s: ", out->n > 0 ? "; " : "", at->origin);
    if (call->result != HTTP_DONE)
        remote_mask(str_from(call->why), m->key, MOST, out);
    else if (call->redirect.n > 0)
        buf_printf(out, "it redirects to %s", masked(m, call->redirect.p));
    else if (call->status == 401 || call->status == 403)
        buf_printf(out, "it refuses the key (%d)", call->status);
    else
        buf_printf(out, call->status == 200 ? "its list of models is not JSON" : "it answered %d",
                   call->status);
}

static int none_answers(const buf *reasons, err *e) {
    const char *why = reasons->n > 0 ? reasons->p : "it has none";
    err_set(e, ERR_MODEL, "no endpoint of the model answers: %s", why);
    if (strstr(why, "certificate") != NULL)
        err_hint(e, "WITH (ca 'file.pem') names a further authority");
    return ERR_MODEL;
}

int remote_probe(remote_model *m, struct http *net, const atomic_bool *cancel, err *e) {
    buf reasons = {0};
    int status = 0;
    err why = {.pos = -1};
    for (int i = 0; i < m->nendpoints && !m->probed && status == 0; i++) {
        const endpoint *at = &m->endpoints[i];
        http_call call;
        const char *url = arena_printf(m->mem, "%s/models", at->base);
        cJSON *root = get(m, net, url, cancel, &call, &why);
        bool lists = cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(root, "data"));
        /* a server that lists no models can be asked if the model's name is given */
        bool silent = call.result == HTTP_DONE && m->options.model[0] != '\0' && !lists &&
                      (call.status == 200 || call.status == 404 || call.status == 405);
        if (why.code == ERR_CANCELLED) {
            status = ERR_CANCELLED;
        } else if (lists) {
            status = take_models(m, at, root, &why);
            m->probed = status == 0;
        } else if (silent) {
            m->server = m->options.server == SERVER_AUTO ? SERVER_GENERIC : m->server;
            m->probed = true;
        } else {
            append_reason(m, at, &call, &reasons);
        }
        cJSON_Delete(root);
        http_call_free(&call);
        if (m->probed)
            status = take_details(m, net, at, cancel, &why);
    }
    if (status != 0)
        *e = why;
    else if (!m->probed)
        status = none_answers(&reasons, e);
    buf_free(&reasons);
    return status;
}

int llm_engine_probe(llm_engine *engine, const atomic_bool *cancel, buf *about, err *e) {
    remote_model *m = engine->state;
    struct http *net = NULL;
    int status = m->probed ? 0 : http_new(m->key, m->options.ca, &net, e);
    if (status == 0 && !m->probed)
        status = remote_probe(m, net, cancel, e);
    http_free(net);
    if (status != 0)
        return status;
    const server_row *row = &servers[m->server];
    buf_printf(about, "server\t%s\n", m->software != NULL ? m->software : row->name);
    for (int i = 0; i < m->nendpoints; i++)
        buf_printf(about, "%s\t%s\n", i == 0 ? "endpoints" : "", m->endpoints[i].base);
    if (m->context > 0)
        buf_printf(about, "context\t%d tokens\n", m->context);
    else
        buf_append_c(about, "context\tnot told\n");
    buf_append_c(about, "typed answers\t");
    for (int i = 0; row->choices[i] != WAY_PLAIN; i++)
        buf_printf(about, "%s, else ", way_name(row->choices[i]));
    buf_printf(about, "%s\n", way_name(WAY_PLAIN));
    buf_printf(about, "probabilities\t%s\ncached tokens\t%s\n", row->probability, row->cached);
    buf_printf(about, "tokens\t%s\n",
               m->options.tokenizer[0] != '\0'
                   ? m->options.tokenizer
                   : "estimated: WITH (tokenizer 'file.gguf') names the model's vocabulary");
    return 0;
}

const llm_backend backend_remote = {
    .name = "remote",
    .pass_tokens = 8192,
    .max_batch = 256,
    .open = remote_open,
    .close = remote_close,
    .encode = remote_encode,
    .decode = remote_decode,
    .session_new = remote_session_new,
};
#else
#include "remote_int.h"

int llm_engine_probe(llm_engine *engine, const atomic_bool *cancel, buf *about, err *e) {
    (void)engine;
    (void)cancel;
    (void)about;
    return llm_remote_check(STR(""), STR(""), e);
}
#endif
